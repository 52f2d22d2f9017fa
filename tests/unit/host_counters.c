/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams whose positions pass 2^24, 2^32, 2^41 and 2^48, where each of the bus's shorter copies of them wraps: they begin a little
 * before, on both sides, since nobody wants to wait for 2^48 bytes. Every way to move bytes is used across the edge.
 */
#include "../device/test.h"

#include "stream/stream.h"

#define BEFORE 100003u
#define ROUNDS 400

/* Both sides of a new connection begin where the proxy does. */
GNET_DEV void begin_at(gnet_t *net, int fd, uint64_t pos)
{
	struct gnet_sock *sk = &net->socks[GNET_FD_SLOT(fd)];

	__syncthreads();
	if (test_k_tid() == 0) {
		sk->rx_head = pos;
		sk->tx_head = sk->tx_tail = pos;
		sk->rx = (uint32_t)sk->rx | pos << GNET_L_AT_SHIFT;
		sk->tx = (uint32_t)sk->tx | pos << GNET_L_AT_SHIFT;
	}
	__syncthreads();
}

GNET_DEV uint64_t length_of(uint64_t i)
{
	return 1 + i * 7919 % (i % 3 ? 120 : 5000);
}

GNET_DEV int polled(gnet_t *net, int fd, short events)
{
	__shared__ struct gnet_pollfd p;

	__syncthreads();
	if (test_k_tid() == 0) {
		p.fd = fd;
		p.events = events;
	}
	__syncthreads();
	if (gpoll(net, &p, 1, INT64_C(20000000000)) != 1)
		return -1;
	return p.revents;
}

GNET_DEV int receive(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, uint64_t i,
		     uint32_t key)
{
	__shared__ struct gnet_borrow b;
	uint64_t n = length_of(i), got = 0;
	int64_t k;

	K_EQ(r, polled(a->net, fd, GNET_POLLIN), GNET_POLLIN);
	K_EQ(r, grecv(a->net, fd, buf, 1, GNET_MSG_PEEK), 1);
	if (i % 5 != 2) {
		K_EQ(r, grecv(a->net, fd, buf, n, GNET_MSG_WAITALL), n);
		K_EQ(r, test_k_wrong(buf, n, i, key), 0);
		return 0;
	}
	for (; got < n; got += (uint64_t)k) {
		K_GET(r, k, grecv_borrow(a->net, fd, &b, n - got, 0));
		for (uint64_t j = 0; j < (uint64_t)k; j++)
			K_EQ(r, j < b.len[0] ? b.ptr[0][j] : b.ptr[1][j - b.len[0]],
			     TEST_PATTERN_(key, i + got + j));
		K_EQ(r, grecv_return(a->net, fd, (uint64_t)k), 0);
	}
	return 0;
}

GNET_DEV int talk(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	uint32_t me = blockIdx.x;

	begin_at(a->net, fd, a->n);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		uint64_t n = length_of(i);

		K_EQ(r, polled(a->net, fd, GNET_POLLOUT), GNET_POLLOUT);
		test_k_pattern(buf, n, i, me);
		K_EQ(r, gsend(a->net, fd, buf, n, 0), n);
		K_CALL(receive(a, r, fd, buf, i, !me));
	}
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int both(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	if (blockIdx.x == 1) {
		K_GET(r, fd, test_k_connect(a->net, a->where));
		return talk(a, r, fd, buf);
	}
	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 1));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	K_CALL(talk(a, r, fd, buf));
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(counters_kernel, both)

static void run(enum test_kind kind, unsigned bits)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	opt.segment_bytes = 16 << 10;
	stream_first_position = (UINT64_C(1) << bits) - BEFORE;
	g = test_open(&opt);
	a = test_setup(g, kind, 2, 8192);
	a.n = stream_first_position;
	TEST_LAUNCH(g, counters_kernel, a, 2, 32);
	test_sync(g, a.report, 2);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	const unsigned bits[] = { 24, 32, 41, 48 };
	uint64_t sum = 0;

	for (uint64_t i = 0; i < ROUNDS; i++)
		sum += 1 + i * 7919 % (i % 3 ? 120 : 5000);
	CHECK(sum > 2 * BEFORE);
	test_begin(60);
	for (unsigned i = 0; i < 4; i++) {
		run(TEST_TCP, bits[i]);
		run(TEST_UNIX, bits[i]);
	}
	return 0;
}
