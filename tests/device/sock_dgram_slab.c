/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Idle streams of one proxy thread hold every segment of the slab; datagrams of a socket of the other thread arrive all the
 * same.
 */
#include "opt.h"

#define SEGMENTS 4

/* Words: idle streams have received; address is known. */
enum { IDLE, AT };

/* A socket of that proxy thread: they are dealt out in turn. */
GNET_DEV int socket_of(gnet_t *net, int type, int thread)
{
	int fd = gsocket(net, GNET_AF_INET, type, 0);

	while (fd >= 0 && (fd & 1) != thread) {
		gclose(net, fd);
		fd = gsocket(net, GNET_AF_INET, type, 0);
	}
	return fd;
}

/* Block 1, with sockets of thread 1: each connection receives more than a line holds, and keeps its segment. */
GNET_DEV int idle(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd[SEGMENTS];

	for (int i = 0; i < SEGMENTS; i++) {
		K_GET(r, fd[i], socket_of(a->net, GNET_SOCK_STREAM, 1));
		K_EQ(r, gconnect(a->net, fd[i], &a->want->a, a->want->len), 0);
		/* All of it is there before this reads: who reads along needs no segment. */
		test_k_wait(&a->net->bus[GNET_FD_SLOT(fd[i])].line.cell[0],
			    (uint64_t)1000 << GNET_LINE_TAIL_SHIFT);
		K_EQ(r, grecv(a->net, fd[i], buf, 1000, GNET_MSG_WAITALL), 1000);
	}
	test_k_set(&a->word[IDLE], 1);
	test_k_wait(&a->word[AT], 2);
	for (int i = 0; i < SEGMENTS; i++)
		K_EQ(r, gclose(a->net, fd[i]), 0);
	return 0;
}

GNET_DEV int datagrams(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	gnet_t *net = a->net;
	__shared__ uint32_t len;
	int fd;

	test_k_wait(&a->word[IDLE], 1);
	K_GET(r, fd, socket_of(net, GNET_SOCK_DGRAM, 0));
	K_EQ(r, gbind(net, fd, &a->where->a, a->where->len), 0);
	K_EQ(r, opt_limit_ms(net, fd, GNET_SO_RCVTIMEO, 30000), 0);
	__syncthreads();
	if (threadIdx.x == 0)
		len = sizeof(a->where->a);
	__syncthreads();
	K_EQ(r, ggetsockname(net, fd, &a->where->a, &len), 0);
	test_k_set(&a->word[AT], 1);
	for (int i = 0; i < 3; i++)
		K_EQ(r, grecv(net, fd, buf, 1000, 0), 500 + i);
	test_k_set(&a->word[AT], 2);
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

GNET_DEV int starve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x ? idle(a, r, buf) : datagrams(a, r, buf);
}

TEST_KERNEL(starve_kernel, starve)

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	int listener, fd[SEGMENTS], udp;
	uint8_t bytes[1000] = { 0 };
	struct gpunet_stats s;
	struct test_args a;
	gpunet_t *g;

	test_begin(60);
	opt.proxy_threads = 2;
	opt.segment_bytes = 16 << 10;
	opt.slab_bytes = SEGMENTS * opt.segment_bytes;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(starve_kernel), 0);
	a = test_setup(g, TEST_TCP, 2, 4096);
	*a.where = *a.want;
	listener = test_listen(a.want, SEGMENTS);
	TEST_LAUNCH(g, starve_kernel, a, 2, 32);
	for (int i = 0; i < SEGMENTS; i++) {
		fd[i] = test_accept(listener);
		test_write(fd[i], bytes, sizeof(bytes));
	}
	test_word_wait(&a.word[AT], 1, a.report);
	s.size = sizeof(s);
	CHECK_EQ(gpunet_get_stats(g, &s), 0);
	/* One may be on its way already: the proxy looks for datagrams as soon as the socket is there. */
	CHECK(s.slab_segments_used >= SEGMENTS - 1);
	udp = socket(AF_INET, SOCK_DGRAM, 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(sendto(udp, bytes, (size_t)(500 + i), 0, &a.where->a.sa, a.where->len),
			 500 + i);
	test_sync(g, a.report, 2);
	test_close(g);
	close(udp);
	for (int i = 0; i < SEGMENTS; i++)
		close(fd[i]);
	close(listener);
	test_teardown(&a);
	return 0;
}
