/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The same traffic under options that leave little room: several proxy threads, the smallest
 * rings, queue and calls, a slab with fewer segments than busy sockets. Nothing may stop or get
 * lost, it may only be slower.
 */
#include "test.h"

#define PAIRS 12

/* Blocks come in pairs on one listener: even ones accept and echo, odd ones connect and check. */
GNET_DEV int listener_of(struct test_args *a, struct test_report *r, int *listener)
{
	if (blockIdx.x == 0) {
		K_GET(r, *listener, test_k_listen(a->net, a->want, a->where, PAIRS));
		test_k_set(&a->word[0], (uint64_t)*listener + 1);
	}
	test_k_wait(&a->word[0], 1);
	*listener = (int)gnet_sys_load_acquire(&a->word[0]) - 1;
	return 0;
}

GNET_DEV int echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_CALL(listener_of(a, r, &listener));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	return test_k_echo(r, a->net, fd, buf, a->room);
}

/*
 * Sends a few pieces more than it has looked at: more than a ring without a segment holds, less
 * than the system's smallest socket buffer when it is filled with small messages.
 */
GNET_DEV int ask(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint32_t key = blockIdx.x;
	uint64_t piece = 2000 + 100 * key, sent = 0, got = 0;
	int fd;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	while (sent < a->n) {
		test_k_pattern(buf, piece, sent, key);
		K_EQ(r, gsend(a->net, fd, buf, piece, 0), piece);
		sent += piece;
		if (sent - got > 4 * piece) {
			K_CALL(test_k_recv_all(r, a->net, fd, buf, a->room, piece, got, key));
			got += piece;
		}
	}
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	K_CALL(test_k_recv_all(r, a->net, fd, buf, a->room, sent - got, got, key));
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int traffic(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x % 2 ? ask(a, r, buf) : echo(a, r, buf);
}

TEST_KERNEL(traffic_kernel, traffic)

static void run(const struct gpunet_options *opt, enum test_kind kind, unsigned bytes)
{
	gpunet_t *g = test_open(opt);
	struct gpunet_stats s;
	struct test_args a;

	CHECK_EQ(GPUNET_PREPARE(traffic_kernel), 0);
	a = test_setup(g, kind, 2 * PAIRS, 32 << 10);
	a.n = test_rounds(bytes, 64 * bytes);
	TEST_LAUNCH(g, traffic_kernel, a, 2 * PAIRS, 32);
	test_sync(g, a.report, 2 * PAIRS);
	memset(&s, 0, sizeof(s));
	s.size = sizeof(s);
	CHECK_EQ(gpunet_drain(g, 20000 * TEST_SLOW), 0);
	CHECK_EQ(gpunet_get_stats(g, &s), 0);
	/* The listener was left open on purpose: closing the network is enough. */
	CHECK_EQ(s.sockets, 1);
	CHECK_EQ(s.slab_segments_used, 0);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	struct gpunet_options plain = GPUNET_OPTIONS_INIT, opt;
	enum test_kind kind;

	test_begin(100);
	for (int i = 0; i < (test_rdma() ? 1 : 2); i++) {
		kind = i ? TEST_UNIX : TEST_TCP;
		opt = plain;
		opt.proxy_threads = 4;
		run(&opt, kind, 512 << 10);
		opt = plain;
		opt.segment_bytes = 16 << 10;
		run(&opt, kind, 512 << 10);
		opt = plain;
		opt.queue_entries = 64;
		opt.calls = 64;
		run(&opt, kind, 512 << 10);
		/* Over RDMA a socket has two segments, or it is none. */
		if (test_rdma())
			continue;
		/* Four segments for 48 directions. */
		opt = plain;
		opt.segment_bytes = 16 << 10;
		opt.slab_bytes = 64 << 10;
		run(&opt, kind, 64 << 10);
		/* All of it. */
		opt.queue_entries = 64;
		opt.calls = 64;
		opt.max_sockets = 32;
		opt.proxy_threads = 3;
		run(&opt, kind, 64 << 10);
		/* One segment only. */
		opt = plain;
		opt.segment_bytes = 64 << 10;
		opt.slab_bytes = 64 << 10;
		run(&opt, kind, 64 << 10);
	}
	return 0;
}
