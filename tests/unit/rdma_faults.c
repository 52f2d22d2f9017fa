/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets over RDMA when something below fails: each call of the provider in turn, each kind of completion error at each kind
 * of message, the network silent for a while. Kernels get an errno and come to their end, and everything is given back.
 */
#include "../device/opt.h"
#include "verbs_stub.h"
#include "wire/rsocket.h"

#define TCP_KEEPIDLE_ 4
#define TCP_KEEPINTVL_ 5

enum { W_SERVER = 1, W_CLIENT, W_LIMIT };

/* What a call gave; errors end the block in good order. */
#define TRY(var, expr)                                                     \
	do {                                                               \
		var = (expr);                                              \
		if (var < 0) {                                             \
			if (test_k_tid() == 0)                             \
				a->word[which] = (uint64_t)(int64_t)(var); \
			if (fd >= 0)                                       \
				gclose(a->net, fd);                        \
			if (listener >= 0)                                 \
				gclose(a->net, listener);                  \
			return 0;                                          \
		}                                                          \
	} while (0)

GNET_DEV int server(struct test_args *a, uint8_t *buf)
{
	__shared__ uint32_t len;
	int which = W_SERVER, listener = -1, fd = -1, rc;
	int64_t n;

	TRY(listener, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, GNET_PROTO_RDMA));
	TRY(rc, gbind(a->net, listener, &a->want->a, a->want->len));
	TRY(rc, glisten(a->net, listener, 4));
	if (a->word[W_LIMIT])
		TRY(rc, opt_limit_ms(a->net, listener, GNET_SO_RCVTIMEO, a->word[W_LIMIT]));
	len = sizeof(a->where->a);
	__syncthreads();
	TRY(rc, ggetsockname(a->net, listener, &a->where->a, &len));
	a->where->len = len;
	test_k_set(&a->where->ready, 1);
	TRY(fd, gaccept(a->net, listener, NULL, NULL));
	do {
		TRY(n, grecv(a->net, fd, buf, a->room, 0));
		if (n)
			TRY(n, gsend(a->net, fd, buf, (uint64_t)n, 0));
	} while (n);
	TRY(rc, gclose(a->net, fd));
	fd = -1;
	TRY(rc, gclose(a->net, listener));
	return 0;
}

GNET_DEV int client(struct test_args *a, uint8_t *buf)
{
	int which = W_CLIENT, listener = -1, fd = -1, rc, i;
	int64_t n;

	TRY(fd, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, GNET_PROTO_RDMA));
	TRY(rc, gconnect(a->net, fd, &a->where->a, a->where->len));
	for (i = 0; i < 3; i++) {
		TRY(n, gsend(a->net, fd, buf, 3000, 0));
		TRY(n, grecv(a->net, fd, buf, 3000, GNET_MSG_WAITALL));
	}
	TRY(rc, gshutdown(a->net, fd, GNET_SHUT_WR));
	TRY(n, grecv(a->net, fd, buf, 1, 0));
	rc = gclose(a->net, fd);
	return 0;
}

GNET_DEV int both(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	if (blockIdx.x == 0) {
		int rc = server(a, buf);

		/* A server that never was is found by a client that looks. */
		test_k_set(&a->where->ready, 1);
		return rc;
	}
	test_k_wait(&a->where->ready, 1);
	if (!a->where->len)
		return 0;
	return client(a, buf);
}

TEST_KERNEL(both_kernel, both)

struct outcome {
	int64_t server, client;
};

/* What came of it; the network was opened and closed. The server waits for its client for so long. */
static struct outcome run(unsigned limit_ms)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct outcome out;
	struct test_args a;
	gpunet_t *g;

	o.segment_bytes = 16 << 10;
	o.slab_bytes = 256 << 10;
	o.proxy_threads = 2;
	o.linger_ms = 200;
	o.max_sockets = 16; /* hundreds of networks are opened */
	g = test_open(&o);
	a = test_setup(g, TEST_TCP, 2, 4096);
	a.word[W_LIMIT] = limit_ms;
	TEST_LAUNCH(g, both_kernel, a, 2, 1);
	test_sync(g, a.report, 2);
	out.server = (int64_t)a.word[W_SERVER];
	out.client = (int64_t)a.word[W_CLIENT];
	test_close(g);
	test_teardown(&a);
	CHECK_EQ(stub_objects(), 0);
	return out;
}

/* Did it come to call n, which fails? */
static bool call_fails(unsigned n, int err, unsigned inline_max, unsigned limit_ms)
{
	stub_install();
	stub_inline(inline_max);
	stub_fail_any(n, err);
	if (getenv("STUB_TRACE"))
		fprintf(stderr, "call %u fails\n", n);
	run(limit_ms);
	return stub_failed();
}

static void each_call_fails(void)
{
	static const int errs[] = { ENOMEM, EIO };
	const unsigned soon = TEST_SLOW > 1 ? 150 : 50;
	unsigned n, k;

	for (k = 0; k < 2; k++) {
		unsigned inline_max = k ? 0 : 64;
		struct outcome o;

		/* On a slow machine the server's patience may end before that call. */
		for (n = getenv("STUB_FROM") ? (unsigned)atoi(getenv("STUB_FROM")) : 1;
		     call_fails(n, errs[k], inline_max, soon) ||
		     call_fails(n, errs[k], inline_max, 3000);
		     n++)
			continue;
		/* Nothing fails any more: however slow the machine, all goes well. */
		stub_install();
		o = run(20000);
		CHECK_EQ(o.server, 0);
		CHECK_EQ(o.client, 0);
		CHECK(n > 30);
		fprintf(stderr, "%u calls failed in turn\n", n - 1);
	}
}

/* Segments that come later are waited for; what else a provider calls -EAGAIN may never come. */
static void a_connect_that_cannot_begin_ends(void)
{
	stub_install();
	stub_fail("id_create", 2, EAGAIN); /* the first one is the listener's */
	CHECK_EQ(run(150).client, -ENOMEM);
	stub_install();
	stub_fail("resolve", 1, EAGAIN);
	CHECK_EQ(run(150).client, -ENOMEM);
}

static void queues_break(void)
{
	static const char *const slots[] = { "poll", "arm" };
	unsigned i, n;

	for (i = 0; i < 2; i++) {
		for (n = 1; n < 20; n += 3) {
			stub_install();
			stub_fail(slots[i], n, EIO);
			run(150);
		}
	}
}

static void completions_fail(void)
{
	static const struct {
		uint32_t status;
		int err;
	} kinds[] = {
		{ VERBS_WC_RETRY_EXC_ERR, ETIMEDOUT },
		{ VERBS_WC_RNR_RETRY_EXC_ERR, ETIMEDOUT },
		{ VERBS_WC_REM_ACCESS_ERR, ECONNRESET },
		{ VERBS_WC_REM_INV_REQ_ERR, ECONNRESET },
		{ VERBS_WC_REM_OP_ERR, ECONNRESET },
		{ VERBS_WC_LOC_PROT_ERR, EIO },
		{ VERBS_WC_LOC_LEN_ERR, EIO },
		{ VERBS_WC_LOC_QP_OP_ERR, EIO },
		{ VERBS_WC_BAD_RESP_ERR, EIO },
		{ VERBS_WC_WR_FLUSH_ERR, ECONNRESET },
		{ VERBS_WC_FATAL_ERR, EIO },
		{ 99, EIO },
	};
	static const int ops[] = { WIRE_RSOCK_OP_DATA, WIRE_RSOCK_OP_SGL, WIRE_RSOCK_OP_CTRL };
	unsigned i, k;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		for (k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
			struct outcome o;

			stub_install();
			stub_status(ops[k], kinds[i].status);
			/* It is accepted before anything fails: however slow the machine. */
			o = run(20000);
			/* Who met it says which; the other end's connection is reset; at a goodbye nobody need notice. */
			if (ops[k] == WIRE_RSOCK_OP_CTRL)
				continue;
			if (o.server != -kinds[i].err && o.client != -kinds[i].err)
				FAIL("status %u at op %d: server %lld, client %lld, none is %d",
				     kinds[i].status, ops[k], (long long)o.server,
				     (long long)o.client, -kinds[i].err);
		}
	}
}

/*
 * A close that ends with a completion which is found while the peer's disconnect is looked at. What else lies in that queue
 * comes late as well, so kernels may get errors; each comes to its end, and everything is given back.
 */
static void goodbyes_meet(void)
{
	unsigned i;

	for (i = 0; i < 5; i++) {
		stub_install();
		stub_late();
		run(1);
	}
}

/*
 * A listener that closes while a request lies in the queue, which nobody has taken: the peer is refused, as the kernel's CM does it.
 * Else it would ask on until its own time is over, a minute, and so would the kernel that waits for it.
 */
static void a_listener_that_goes_refuses_who_waits(void)
{
	const struct verbs_conn_param p = { .retry = 7 };
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	struct verbs_id *l, *c;
	struct verbs_events *le, *ce;
	struct verbs_event ev;

	stub_install();
	CHECK_EQ(verbs_stub.events_open(NULL, 0, &le), 0);
	CHECK_EQ(verbs_stub.events_open(NULL, 0, &ce), 0);
	CHECK_EQ(verbs_stub.id_create(le, NULL, &l), 0);
	CHECK_EQ(verbs_stub.bind(l, (struct sockaddr *)&a, len), 0);
	CHECK_EQ(verbs_stub.listen(l, 4), 0);
	CHECK_EQ(verbs_stub.id_name(l, 0, (struct sockaddr *)&a, &len), 0);
	CHECK_EQ(verbs_stub.id_create(ce, NULL, &c), 0);
	CHECK_EQ(verbs_stub.resolve(c, (struct sockaddr *)&a, len, 1000), 0);
	CHECK_EQ(verbs_stub.event_next(ce, &ev), 0);
	CHECK_EQ(ev.type, VERBS_EVENT_RESOLVED);
	CHECK_EQ(verbs_stub.connect(c, &p), 0);
	CHECK_EQ(verbs_stub.event_next(ce, &ev), -EAGAIN);
	verbs_stub.id_destroy(l);
	CHECK_EQ(verbs_stub.event_next(ce, &ev), 0);
	CHECK_EQ(ev.type, VERBS_EVENT_REJECTED);
	CHECK_EQ(ev.status, -ECONNREFUSED);
	verbs_stub.id_destroy(c);
	verbs_stub.events_close(le);
	verbs_stub.events_close(ce);
	CHECK_EQ(stub_objects(), 0);
}

/* ---- keepalive ---------------------------------------------------------------------------------------------------------------- */

/* Nobody says anything: the client's device asks, after the second that it was told, the server's does not. */
GNET_DEV int silent(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 1));
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		K_EQ(r, grecv(a->net, fd, buf, 1, 0), -ECONNRESET);
		K_EQ(r, gclose(a->net, fd), 0);
		K_EQ(r, gclose(a->net, listener), 0);
		return 0;
	}
	K_GET(r, fd, test_k_connect(a->net, a->where));
	K_EQ(r, opt_set(a->net, fd, GNET_IPPROTO_TCP, TCP_KEEPIDLE_, 0), -EINVAL);
	K_EQ(r, opt_set(a->net, fd, GNET_IPPROTO_TCP, TCP_KEEPINTVL_, 1), -ENOPROTOOPT);
	K_EQ(r, opt_get(a->net, fd, GNET_IPPROTO_TCP, TCP_KEEPIDLE_), 7200);
	K_EQ(r, opt_set(a->net, fd, GNET_IPPROTO_TCP, TCP_KEEPIDLE_, 1), 0);
	K_EQ(r, opt_set(a->net, fd, GNET_SOL_SOCKET, GNET_SO_KEEPALIVE, 1), 0);
	K_EQ(r, opt_get(a->net, fd, GNET_SOL_SOCKET, GNET_SO_KEEPALIVE), 1);
	test_k_set(&a->word[W_CLIENT], 1);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), -ETIMEDOUT);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

TEST_KERNEL(silent_kernel, silent)

static void keepalive(void)
{
	struct test_args a;
	unsigned before;
	gpunet_t *g;

	stub_install();
	g = test_open(NULL);
	a = test_setup(g, TEST_TCP, 2, 64);
	a.want->protocol = GNET_PROTO_RDMA;
	TEST_LAUNCH(g, silent_kernel, a, 2, 1);
	test_word_wait(&a.word[W_CLIENT], 1, a.report + 1);
	before = stub_posted();
	/* The first one is answered. */
	while (stub_posted() == before)
		test_sleep_ms(10);
	stub_freeze();
	before = stub_posted();
	while (stub_posted() == before)
		test_sleep_ms(10);
	stub_thaw(VERBS_WC_RETRY_EXC_ERR);
	test_sync(g, a.report, 2);
	CHECK_EQ(stub_posted(), before + 1);
	test_close(g);
	test_teardown(&a);
	CHECK_EQ(stub_objects(), 0);
}

int main(void)
{
	test_begin(100);
	a_listener_that_goes_refuses_who_waits();
	keepalive();
	goodbyes_meet();
	a_connect_that_cannot_begin_ends();
	each_call_fails();
	completions_fail();
	queues_break();
	return 0;
}
