/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A process forked while a network is open holds copies of its descriptors. A socket that a kernel
 * closes is nevertheless no longer watched: what its peer does then would otherwise be told to a
 * proxy thread by the name of memory that is free. And the network goes on to work.
 */
#include "test.h"

#include <dirent.h>

GNET_DEV int one_byte(struct test_report *r, gnet_t *net, int l, uint8_t *buf)
{
	int fd;

	K_GET(r, fd, gaccept(net, l, NULL, NULL));
	K_EQ(r, grecv(net, fd, buf, 1, 0), 1);
	K_EQ(r, gsend(net, fd, buf, 1, 0), 1);
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

GNET_DEV int server(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int l;

	K_GET(r, l, test_k_listen(a->net, a->want, a->where, 5));
	for (uint64_t i = 0; i < a->n; i++) {
		K_CALL(one_byte(r, a->net, l, buf));
		test_k_set(&a->word[0], i + 1);
	}
	K_EQ(r, gclose(a->net, l), 0);
	return 0;
}

TEST_KERNEL(k_server, server)

/* Descriptors that this process's epoll descriptors watch. */
static unsigned watched(void)
{
	DIR *d = opendir("/proc/self/fd");
	char path[300], line[256];
	struct dirent *e;
	unsigned n = 0;
	FILE *f;

	CHECK(d != NULL);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/fdinfo/%s", e->d_name);
		f = fopen(path, "r");
		while (f && fgets(line, sizeof(line), f))
			n += strncmp(line, "tfd:", 4) == 0;
		if (f)
			fclose(f);
	}
	closedir(d);
	return n;
}

/* A child that holds copies of all descriptors until *stop is closed. */
static pid_t fork_holder(int *stop)
{
	int p[2];
	pid_t pid;
	char c;

	CHECK_EQ(pipe(p), 0);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(p[1]);
		_exit(read(p[0], &c, 1) == 0 ? 0 : 1);
	}
	close(p[0]);
	*stop = p[1];
	return pid;
}

static void run(enum test_kind kind)
{
	gpunet_t *g = test_open(NULL);
	struct test_args a = test_setup(g, kind, 1, 64);
	unsigned before, rounds = 8;
	int status, stop, fd[8];
	pid_t pid;

	a.n = rounds;
	TEST_LAUNCH(g, k_server, a, 1, 64);
	test_addr_wait(a.where, a.report);
	before = watched();
	for (unsigned i = 0; i < rounds; i++) {
		char c = 'x';

		fd[i] = test_connect(a.where);
		/* Accepted when the child is made: the proxy takes connections before kernels ask. */
		for (unsigned t = 0; watched() == before && t < 20000; t++)
			test_sleep_ms(1);
		CHECK_EQ(watched(), before + 1);
		pid = fork_holder(&stop);
		test_write(fd[i], &c, 1);
		test_read(fd[i], &c, 1);
		test_word_wait(&a.word[0], i + 1, a.report);
		/* Its close may still be under way; the last one's goes with the listener's. */
		for (unsigned t = 0; i + 1 < rounds && watched() != before && t < 20000; t++)
			test_sleep_ms(1);
		if (i + 1 < rounds)
			CHECK_EQ(watched(), before);
		/* What would be told of a watch that is gone. */
		if (send(fd[i], &c, 1, MSG_NOSIGNAL) < 0)
			CHECK(errno == EPIPE || errno == ECONNRESET);
		shutdown(fd[i], SHUT_WR);
		test_sleep_ms(2);
		close(stop);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
		close(fd[i]);
	}
	test_sync(g, a.report, 1);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	test_begin(60);
	run(TEST_TCP);
	run(TEST_UNIX);
	return 0;
}
