/* SPDX-License-Identifier: BSD-3-Clause */
/* Several processes on one device, each with a network of its own, in a ring: each sends to the next and gets what the one before sent. */
#include "test.h"

#define MOST 8

GNET_DEV int ring(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener = -1, fd;
	uint32_t before = (uint32_t)a->word[0], mine = (uint32_t)a->word[2];

	/* Block 0 takes from the process before, block 1 gives to the next. */
	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 4));
		test_k_set(&a->word[1], 1);
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		K_CALL(test_k_recv_all(r, a->net, fd, buf, a->room, a->n, 0, before));
		K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
		K_EQ(r, gclose(a->net, listener), 0);
	} else {
		K_GET(r, fd, test_k_connect(a->net, a->want + 2));
		K_CALL(test_k_send_all(r, a->net, fd, buf, a->room, a->n, mine));
	}
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(ring_kernel, ring)

/* One process: tells `up` when it listens, goes on when `go` says so. */
static int process(const struct test_addr *mine, const struct test_addr *next, unsigned before,
		   unsigned key, int up, int go)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_addr *addr;
	struct test_args a;
	gpunet_t *g;
	char c = 0;

	test_begin(60);
	opt.slab_bytes = 8 << 20;
	g = test_open(&opt);
	a = test_setup(g, TEST_UNIX, 2, 16 << 10);
	addr = (struct test_addr *)test_shared(3 * sizeof(*addr));
	addr[0] = *mine;
	addr[2] = *next;
	test_shared_free(a.want);
	a.want = addr;
	a.where = addr + 1;
	a.word[0] = before;
	a.word[2] = key;
	a.n = test_rounds(1 << 20, 64 << 20);
	TEST_LAUNCH(g, ring_kernel, a, 2, 64);
	test_word_wait(&a.word[1], 1, a.report);
	CHECK_EQ(write(up, &c, 1), 1);
	CHECK_EQ(read(go, &c, 1), 1);
	test_word_set(&addr[2].ready, 1);
	test_sync(g, a.report, 2);
	test_close(g);
	test_teardown(&a);
	return 0;
}

static void run(int n)
{
	struct test_addr addr[MOST];
	int up[2], go[2];
	char c[MOST] = { 0 };
	pid_t pid[MOST];

	CHECK_EQ(pipe(up) | pipe(go), 0);
	for (int i = 0; i < n; i++)
		test_addr_make(&addr[i], TEST_UNIX);
	for (int i = 0; i < n; i++) {
		pid[i] = fork();
		CHECK(pid[i] >= 0);
		if (pid[i] == 0)
			_exit(process(&addr[i], &addr[(i + 1) % n],
				      (unsigned)(i + n - 1) % (unsigned)n, (unsigned)i, up[1],
				      go[0]));
	}
	for (int i = 0; i < n; i++) {
		struct pollfd p = { up[0], POLLIN, 0 };

		CHECK_EQ(poll(&p, 1, 50000 * TEST_SLOW), 1);
		CHECK_EQ(read(up[0], c, 1), 1);
	}
	CHECK_EQ(write(go[1], c, (size_t)n), n);
	for (int i = 0; i < n; i++) {
		int status;

		CHECK_EQ(waitpid(pid[i], &status, 0), pid[i]);
		if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
			_exit(TEST_SKIP);
		CHECK_EQ(status, 0);
		test_addr_remove(&addr[i]);
	}
	close(up[0]);
	close(up[1]);
	close(go[0]);
	close(go[1]);
}

int main(void)
{
	test_begin(100);
	run(2);
	/* A process that is instrumented, or opens a GPU, takes long to begin. */
	for (int n = 3; n < MOST && TEST_SLOW == 1 && !TEST_ON_GPU; n++)
		run(n);
	run(TEST_SLOW > 1 ? 3 : MOST);
	return 0;
}
