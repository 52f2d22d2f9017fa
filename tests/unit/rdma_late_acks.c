/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Acknowledgements that come late wake the proxy when a kernel waits for their end: small messages go one way until the window is
 * full. After 10 ms the proxy looks anyway, which would hide what is looked for; so meanwhile its clock goes ten thousand times
 * slower. Arming the queue of acknowledgements is what is looked for.
 */
#include "../device/test.h"
#include "base/sys.h"
#include "verbs_stub.h"

#define RING (16u << 10)
#define SLOWER 10000
/* Words: the client is connected; it may send. */
enum { W_CONNECTED, W_GO };

/* What the client sends. */
#define MESSAGES 300u
#define MESSAGE 64u

static uint64_t slow_since; /* real time, 0: the clock goes as it should */

static uint64_t clock_ns(void)
{
	uint64_t since = __atomic_load_n(&slow_since, __ATOMIC_ACQUIRE), now = sys_real.now_ns();

	return since && now > since ? since + (now - since) / SLOWER : now;
}

GNET_DEV int client(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	test_k_set(&a->word[W_CONNECTED], 1);
	test_k_wait(&a->word[W_GO], 1);
	K_CALL(test_k_send_all(r, a->net, fd, buf, MESSAGE, MESSAGES * MESSAGE, 1));
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int server(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint64_t n = MESSAGES * MESSAGE;
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 1));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	K_CALL(test_k_recv_all(r, a->net, fd, buf, n, n, 0, 1));
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

GNET_DEV int both(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x ? client(a, r, buf) : server(a, r, buf);
}

TEST_KERNEL(both_kernel, both)

/* The queue of acknowledgements has been armed since: within 30 s, in which the slow clock goes 3 ms on. */
static void await_arming(unsigned before, const struct test_args *a)
{
	for (int i = 0; i < 30000 && stub_ack_arms() == before; i++) {
		if (__atomic_load_n(&a->report[1].line, __ATOMIC_ACQUIRE))
			test_reports(a->report, 2);
		test_sleep_ms(1);
	}
	CHECK(stub_ack_arms() != before);
}

static void one_way(void)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct test_args a;
	unsigned before;
	gpunet_t *g;

	stub_install();
	o.segment_bytes = RING;
	o.slab_bytes = 16 * RING;
	o.proxy_threads = 1;
	g = test_open(&o);
	a = test_setup(g, TEST_TCP, 2, 2 * RING);
	a.want->protocol = GNET_PROTO_RDMA;
	TEST_LAUNCH(g, both_kernel, a, 2, 32);
	test_word_wait(&a.word[W_CONNECTED], 1, a.report + 1);
	/* What the two ends say at first, of how much they can take, is acknowledged at once. */
	while (stub_posted() < 2)
		test_sleep_ms(1);
	__atomic_store_n(&slow_since, sys_real.now_ns(), __ATOMIC_RELEASE);
	stub_freeze();
	before = stub_ack_arms();
	__atomic_store_n(&a.word[W_GO], 1, __ATOMIC_RELEASE);
	await_arming(before, &a);
	stub_thaw(0);
	__atomic_store_n(&slow_since, 0, __ATOMIC_RELEASE);
	test_sync(g, a.report, 2);
	test_close(g);
	test_teardown(&a);
	CHECK_EQ(stub_objects(), 0);
}

int main(void)
{
	test_begin(90);
	sys.now_ns = clock_ns;
	one_way();
	return 0;
}
