/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A signal a millisecond, handler without SA_RESTART, through a whole life of a network: to the
 * process by a timer and to each of its threads in turn, the library's among them. No call fails,
 * no byte is lost.
 */
#include <dirent.h>
#include <sys/syscall.h>

#include "test.h"

#define ROUNDS 3

static uint64_t handled;

static void on_signal(int sig)
{
	(void)sig;
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

/* Sends the signal to every thread of the process but its own, again and again. */
static void *nag(void *arg)
{
	const int *stop = (const int *)arg;
	pid_t self = (pid_t)syscall(SYS_gettid);
	struct dirent *e;

	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
		DIR *d = opendir("/proc/self/task");

		CHECK(d != NULL);
		while ((e = readdir(d)) != NULL)
			if (e->d_name[0] != '.' && atoi(e->d_name) != self)
				syscall(SYS_tgkill, getpid(), atoi(e->d_name), SIGUSR1);
		closedir(d);
		test_sleep_ms(1);
	}
	return NULL;
}

GNET_DEV int echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	for (int i = 0; i < 3; i++) {
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		K_CALL(test_k_echo(r, a->net, fd, buf, a->room));
	}
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(signals_kernel, echo)

static int connect_patiently(const struct test_addr *a)
{
	int fd = socket(a->a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd p = { fd, POLLOUT, 0 };

	CHECK(fd >= 0);
	if (connect(fd, &a->a.sa, a->len) == 0)
		return fd;
	CHECK_EQ(errno, EINTR);
	while (poll(&p, 1, 10000) < 0)
		CHECK_EQ(errno, EINTR);
	return fd;
}

static void talk(const struct test_addr *a, size_t total)
{
	uint8_t data[20000];
	int fd = connect_patiently(a);

	for (size_t pos = 0; pos < total; pos += sizeof(data)) {
		test_pattern(data, sizeof(data), pos, 1);
		test_write(fd, data, sizeof(data));
		memset(data, 0, sizeof(data));
		test_read(fd, data, sizeof(data));
		test_pattern_check(data, sizeof(data), pos, 1);
	}
	/* A pause in which every thread goes to sleep. */
	test_sleep_ms(50);
	test_write(fd, data, 1);
	test_read(fd, data, 1);
	CHECK_EQ(shutdown(fd, SHUT_WR), 0);
	test_read_end(fd);
	close(fd);
}

static void life(enum test_kind kind)
{
	gpunet_t *g = test_open(NULL);
	struct test_args a;

	CHECK_EQ(GPUNET_PREPARE(signals_kernel), 0);
	a = test_setup(g, kind, 1, 16 << 10);
	TEST_LAUNCH(g, signals_kernel, a, 1, 64);
	test_addr_wait(a.where, a.report);
	for (int i = 0; i < 3; i++)
		talk(a.where, test_rounds(500000, 20000000));
	test_sync(g, a.report, 1);
	CHECK_EQ(gpunet_drain(g, 20000 * TEST_SLOW), 0);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	struct itimerspec ms = { { 0, 1000000 }, { 0, 1000000 } };
	struct sigaction sa;
	struct sigevent ev;
	pthread_t nagger;
	timer_t timer;
	int stop = 0;

	test_begin(60);
	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = on_signal;
	CHECK_EQ(sigaction(SIGUSR1, &sa, NULL), 0);
	memset(&ev, 0, sizeof(ev));
	ev.sigev_notify = SIGEV_SIGNAL;
	ev.sigev_signo = SIGUSR1;
	CHECK_EQ(timer_create(CLOCK_MONOTONIC, &ev, &timer), 0);
	CHECK_EQ(timer_settime(timer, 0, &ms, NULL), 0);
	CHECK_EQ(pthread_create(&nagger, NULL, nag, &stop), 0);
	for (int i = 0; i < ROUNDS; i++)
		life(i % 2 ? TEST_UNIX : TEST_TCP);
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	pthread_join(nagger, NULL);
	timer_delete(timer);
	CHECK(__atomic_load_n(&handled, __ATOMIC_RELAXED) > 20);
	return 0;
}
