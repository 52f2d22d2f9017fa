/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernels talk to kernels over RDMA, on a provider within this process: both roles of the protocol, all sizes, all ends. */
#include "../device/test.h"
#include "verbs_stub.h"

enum { BLOCK_SERVER, BLOCK_CLIENT };

GNET_DEV int rdma_listen(struct test_args *a, struct test_report *r)
{
	__shared__ uint32_t len;
	int fd;

	K_GET(r, fd, gsocket(a->net, a->want->a.sa.sa_family, GNET_SOCK_STREAM, GNET_PROTO_RDMA));
	K_EQ(r, gbind(a->net, fd, &a->want->a, a->want->len), 0);
	K_EQ(r, glisten(a->net, fd, 16), 0);
	if (test_k_tid() == 0)
		len = sizeof(a->where->a);
	__syncthreads();
	K_EQ(r, ggetsockname(a->net, fd, &a->where->a, &len), 0);
	if (test_k_tid() == 0)
		a->where->len = len;
	test_k_set(&a->where->ready, 1);
	return fd + 1;
}

GNET_DEV int rdma_connect(struct test_args *a, struct test_report *r)
{
	int fd;

	test_k_wait(&a->where->ready, 1);
	K_GET(r, fd, gsocket(a->net, a->where->a.sa.sa_family, GNET_SOCK_STREAM, GNET_PROTO_RDMA));
	K_EQ(r, gconnect(a->net, fd, &a->where->a, a->where->len), 0);
	return fd + 1;
}

#define K_FD(var, expr)            \
	do {                       \
		var = (expr)-1;    \
		if (var < 0)       \
			return -1; \
	} while (0)

/* ---- echo: a->n bytes there and back, in pieces of word[1] ------------------------------------------------------------------------- */

GNET_DEV int echo_server(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;
	int64_t n;

	K_FD(listener, rdma_listen(a, r));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	do {
		K_GET(r, n, grecv(a->net, fd, buf, a->room, 0));
		if (n)
			K_EQ(r, gsend(a->net, fd, buf, (uint64_t)n, 0), n);
	} while (n);
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

GNET_DEV int echo_client(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint64_t pos = 0, piece = a->word[1];
	int fd;

	K_FD(fd, rdma_connect(a, r));
	while (pos < a->n) {
		uint64_t n = a->n - pos < piece ? a->n - pos : piece;

		test_k_pattern(buf, n, pos, 1);
		K_EQ(r, gsend(a->net, fd, buf, n, 0), n);
		K_CALL(test_k_recv_all(r, a->net, fd, buf, n, n, pos, 1));
		pos += n;
	}
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x == BLOCK_SERVER ? echo_server(a, r, buf) : echo_client(a, r, buf);
}

TEST_KERNEL(echo_kernel, echo)

/* ---- pipe: the client sends a->n bytes in pieces of word[1] without waiting; the server reads pieces of word[2], slowly if word[3] - */

GNET_DEV int pipe_server(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint64_t pos = 0, piece = a->word[2];
	int listener, fd;

	K_FD(listener, rdma_listen(a, r));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	if (a->word[3])
		test_k_sleep(200000);
	while (pos < a->n) {
		uint64_t n = a->n - pos < piece ? a->n - pos : piece;

		K_CALL(test_k_recv_all(r, a->net, fd, buf, n, n, pos, 2));
		pos += n;
	}
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

GNET_DEV int pipe_client(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_FD(fd, rdma_connect(a, r));
	K_CALL(test_k_send_all(r, a->net, fd, buf, a->word[1], a->n, 2));
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int pipe_both(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x == BLOCK_SERVER ? pipe_server(a, r, buf) : pipe_client(a, r, buf);
}

TEST_KERNEL(pipe_kernel, pipe_both)

/* ---- host ---------------------------------------------------------------------------------------------------------------------------- */

struct run {
	const char *what;
	uint64_t bytes, send, recv;
	int slow;
	int pipe;
	enum test_kind kind;
};

static void one(const struct run *run, const struct gpunet_options *opt)
{
	gpunet_t *g = test_open(opt);
	struct test_args a = test_setup(g, run->kind, 2, 1 << 20);

	a.n = run->bytes;
	if (TEST_SLOW > 1 && a.n > (run->send == 1 ? 10000 : 120000))
		a.n = run->send == 1 ? 10000 : 120000;
	/* An echo sends a whole piece before it reads: it must fit into the rings. */
	a.word[1] = opt && !run->pipe && run->send > 8192 ? 8192 : run->send;
	a.word[2] = run->recv;
	a.word[3] = (uint64_t)run->slow;
	fprintf(stderr, "%s\n", run->what);
	if (run->pipe)
		TEST_LAUNCH(g, pipe_kernel, a, 2, 32);
	else
		TEST_LAUNCH(g, echo_kernel, a, 2, 32);
	test_sync(g, a.report, 2);
	test_close(g);
	test_teardown(&a);
	CHECK_EQ(stub_objects(), 0);
	CHECK_EQ(stub_rnr(), 0);
	/* Nobody who only sends and receives is woken for acknowledgements: at the end of a stream somebody waits for them. */
	if (!run->pipe && run->send <= 64)
		CHECK(stub_ack_arms() <= 12);
}

int main(void)
{
	static const struct run runs[] = {
		{ "echo of one byte", 1, 1, 0, 0, 0, TEST_TCP },
		{ "echo of 64 bytes, 200 times", 64 * 200, 64, 0, 0, 0, TEST_TCP },
		{ "echo of one byte, 2,000 times: credits", 2000, 1, 0, 0, 0, TEST_TCP6 },
		{ "echo of 4 MiB", 4 << 20, 1 << 20, 0, 0, 0, TEST_TCP },
		{ "pipe of 3 MiB in pieces of 1,000,003", 3 << 20, 1000003, 1 << 20, 0, 1,
		  TEST_TCP },
		{ "pipe of 100,000 bytes one by one", 100000, 1, 777, 0, 1, TEST_TCP },
		{ "pipe to a slow reader", 3 << 20, 70000, 5000, 1, 1, TEST_TCP },
	};
	struct gpunet_options small = GPUNET_OPTIONS_INIT;
	unsigned i;

	test_begin(60);
	small.segment_bytes = 16 << 10;
	small.slab_bytes = 1 << 20;
	small.proxy_threads = 3;
	for (i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		stub_install();
		one(&runs[i], NULL);
		stub_install();
		if (i & 1)
			stub_inline(0);
		one(&runs[i], &small);
	}
	return 0;
}
