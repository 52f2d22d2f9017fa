/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send and go: a process whose kernel has sent 64 MB and closed ends at once, after gpunet_close
 * or after gpunet_drain alone. The receiver gets every byte and then the end of the stream, no
 * reset.
 */
#include "test.h"

GNET_DEV int send_and_leave(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	K_CALL(test_k_send_all(r, a->net, fd, buf, a->room, a->n, 6));
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(exit_kernel, send_and_leave)

/* In a process of its own, which touches the device first. */
static void sender(const struct test_addr *addr, uint64_t n, int closes)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	opt.linger_ms = 60000;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(exit_kernel), 0);
	a = test_setup(g, TEST_TCP, 1, 128 << 10);
	a.n = n;
	*a.where = *addr;
	a.where->ready = 1;
	TEST_LAUNCH(g, exit_kernel, a, 1, 128);
	test_sync(g, a.report, 1);
	if (closes)
		CHECK_EQ(gpunet_close(g, 60000), 0);
	else
		CHECK_EQ(gpunet_drain(g, 60000), 0);
	_exit(0);
}

static void receive(int fd, uint64_t n)
{
	uint8_t *data = (uint8_t *)malloc(1 << 20);
	uint64_t pos = 0;
	ssize_t k;

	CHECK(data != NULL);
	test_sleep_ms(200);
	while ((k = test_read_some(fd, data, 1 << 20)) > 0) {
		test_pattern_check(data, (size_t)k, pos, 6);
		pos += (uint64_t)k;
	}
	CHECK_EQ(k, 0);
	CHECK_EQ(pos, n);
	free(data);
}

static void run(enum test_kind kind, uint64_t n, int closes)
{
	struct test_addr addr;
	int listener, fd, status;
	pid_t pid;

	test_addr_make(&addr, kind);
	listener = test_listen(&addr, 1);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		test_begin(60);
		sender(&addr, n, closes);
	}
	/* A sender that skips or fails never connects. */
	struct pollfd p = { listener, POLLIN, 0 };

	while (poll(&p, 1, 100) == 0) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			_exit(WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP ? TEST_SKIP
										    : 1);
	}
	fd = test_accept(listener);
	receive(fd, n);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(fd);
	close(listener);
	test_addr_remove(&addr);
}

int main(void)
{
	uint64_t n = test_rounds(64000000, 64000000);

	test_begin(100);
	run(TEST_TCP, n, 1);
	run(TEST_UNIX, n, 1);
	run(TEST_TCP, n, 0);
	run(TEST_UNIX, n, 0);
	return 0;
}
