/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpunet_abort ends every wait with -ECANCELED: gaccept, grecv, gsend, gconnect, and waits for a
 * call's turn on a socket that another block holds. Later waits end the same way, and
 * gpunet_close then succeeds.
 */
#include "test.h"

/* Roles of the blocks. */
enum { ACCEPT, ACCEPT_TOO, RECV, RECV_TOO, SEND, SEND_TOO, CONNECT, ROLES };

struct abort_args {
	struct test_args t;
	struct test_addr *full;
};

/* Words: descriptor + 1 of the listener, of the quiet connection, of the full one. */
enum { LISTENER = 1, QUIET, STUFFED };

/*
 * Waits until a block has published a descriptor; a block that failed publishes nothing, and the
 * time limit says so.
 */
GNET_DEV int published(struct abort_args *a, int which)
{
	test_k_wait(&a->t.word[which], 1);
	return (int)gnet_sys_load_acquire(&a->t.word[which]) - 1;
}

/* Block 0 makes the descriptors: the host connects twice. */
GNET_DEV int make_all(struct abort_args *a, struct test_report *r)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->t.net, a->t.want, a->t.where, 5));
	K_GET(r, fd, gaccept(a->t.net, listener, NULL, NULL));
	test_k_set(&a->t.word[QUIET], (uint64_t)fd + 1);
	K_GET(r, fd, gaccept(a->t.net, listener, NULL, NULL));
	test_k_set(&a->t.word[STUFFED], (uint64_t)fd + 1);
	test_k_set(&a->t.word[LISTENER], (uint64_t)listener + 1);
	return 0;
}

GNET_DEV int64_t wait_in_role(struct abort_args *a, uint8_t *buf)
{
	gnet_t *net = a->t.net;
	int fd;
	int64_t n;

	switch (blockIdx.x) {
	case ACCEPT:
	case ACCEPT_TOO:
		return gaccept(net, published(a, LISTENER), NULL, NULL);
	case RECV:
	case RECV_TOO:
		return grecv(net, published(a, QUIET), buf, 100, GNET_MSG_WAITALL);
	case CONNECT:
		fd = gsocket(net, a->full->a.sa.sa_family, GNET_SOCK_STREAM, 0);
		return fd < 0 ? fd : gconnect(net, fd, &a->full->a, a->full->len);
	default:
		fd = published(a, STUFFED);
		do
			n = gsend(net, fd, buf, a->t.room, 0);
		while (n == (int64_t)a->t.room);
		/* A send that was cut short may say how much of it was taken. */
		return n > 0 ? gsend(net, fd, buf, 1, 0) : n;
	}
}

GNET_DEV int be_aborted(struct abort_args *a, struct test_report *r, uint8_t *buf)
{
	if (blockIdx.x == 0)
		K_CALL(make_all(a, r));
	if (threadIdx.x == 0)
		atomicAdd(&a->t.dword[0], 1ull);
	test_k_set(&a->t.word[8 + blockIdx.x], 1);
	K_EQ(r, wait_in_role(a, buf), -ECANCELED);
	K_EQ(r, grecv(a->t.net, published(a, QUIET), buf, 100, 0), -ECANCELED);
	return 0;
}

GNET_KERNEL(abort_kernel, struct abort_args, a)
{
	struct test_report *r = &a.t.report[blockIdx.x];

	test_k_done(r, be_aborted(&a, r, a.t.buf + a.t.room * blockIdx.x));
}

static void run(enum test_kind kind, unsigned threads, int close_aborts)
{
	struct abort_args a;
	struct test_full full;
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	int quiet, stuffed;
	uint64_t start;
	gpunet_t *g;

	/* What the stuffed connection still has to send is given up soon. */
	opt.linger_ms = 200;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(abort_kernel), 0);
	a.t = test_setup(g, kind, ROLES, 64 << 10);
	test_full_open(&full, kind);
	a.full = full.addr;
	TEST_LAUNCH(g, abort_kernel, a, ROLES, threads);
	test_addr_wait(a.t.where, a.t.report);
	quiet = test_connect(a.t.where);
	stuffed = test_connect(a.t.where);
	for (int i = 0; i < ROLES; i++)
		test_word_wait(&a.t.word[8 + i], 1, a.t.report);
	test_sleep_ms(300);
	start = test_now_ms();
	if (close_aborts) {
		test_close(g);
		test_reports(a.t.report, ROLES);
	} else {
		gpunet_abort(g);
		gpunet_abort(g);
		test_sync(g, a.t.report, ROLES);
		test_close(g);
	}
	if (test_now_ms() - start > 20000 * TEST_SLOW) /* a hang; the bench has times */
		FAIL("abort took %llu ms", (unsigned long long)(test_now_ms() - start));
	close(quiet);
	close(stuffed);
	test_full_close(&full);
	test_teardown(&a.t);
}

int main(void)
{
	test_begin(60);
	run(TEST_TCP, 32, 0);
	run(TEST_UNIX, 64, 0);
	run(TEST_TCP, 1, 1);
	return 0;
}
