/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel serves a peer that this file plays message by message: one that keeps the protocol, one from a big-endian machine, and
 * those that break it. A broken peer costs its own connection, with -EPROTO for the kernel, and the next one is served.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../device/opt.h"
#include "base/sys.h"
#include "platform/cpu/cpu.h"
#include "socket/net.h"
#include "verbs_stub.h"
#include "wire/rsocket.h"

#define RING (16u << 10)
#define CREDITS 384u

enum { W_SERVED = 1, W_RESULT, W_BYTES, W_CONNS, W_RESET, W_ASKS, W_KEPT };
enum { ASKS = 1, ASKS_ON /* and does not wait */ };

/* Connects a socket of the other of two threads than that of `like`, to where nobody listens. */
GNET_DEV int ask_elsewhere(struct test_args *a, struct test_report *r, int like)
{
	const int type = GNET_SOCK_STREAM | (a->word[W_ASKS] == ASKS_ON ? GNET_SOCK_NONBLOCK : 0);
	__shared__ struct gnet_pollfd p;
	int one, two, fd, rc;

	/* The threads take turns. */
	K_GET(r, one, gsocket(a->net, GNET_AF_INET, type, GNET_PROTO_RDMA));
	K_GET(r, two, gsocket(a->net, GNET_AF_INET, type, GNET_PROTO_RDMA));
	fd = GNET_FD_SLOT(one) % 2 == GNET_FD_SLOT(like) % 2 ? two : one;
	K_EQ(r, GNET_FD_SLOT(fd) % 2, 1 - GNET_FD_SLOT(like) % 2);
	rc = gconnect(a->net, fd, &a->where->a, a->where->len);
	if (a->word[W_ASKS] == ASKS_ON) {
		K_EQ(r, rc, -EINPROGRESS);
		__syncthreads();
		p.fd = fd;
		p.events = GNET_POLLOUT;
		__syncthreads();
		K_EQ(r, gpoll(a->net, &p, 1, -1), 1);
		rc = -opt_get(a->net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR);
	}
	K_EQ(r, rc, -ECONNREFUSED);
	K_EQ(r, gclose(a->net, one), 0);
	K_EQ(r, gclose(a->net, two), 0);
	return 0;
}

/* Serves word[W_CONNS] connections: says what the stream's end was. Those whose bit is in word[W_KEPT] are left alone until the end. */
GNET_DEV int serve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ uint32_t len;
	int listener, fd = 0, kept[8], n_kept = 0;
	int64_t n;

	K_GET(r, listener, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, GNET_PROTO_RDMA));
	K_EQ(r, gbind(a->net, listener, &a->want->a, a->want->len), 0);
	K_EQ(r, glisten(a->net, listener, 8), 0);
	len = sizeof(a->where->a);
	__syncthreads();
	K_EQ(r, ggetsockname(a->net, listener, &a->where->a, &len), 0);
	a->where->len = len;
	test_k_set(&a->where->ready, 1);
	for (uint64_t i = 0; i < a->word[W_CONNS]; i++) {
		uint64_t total = 0;

		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		if (a->word[W_KEPT] >> i & 1) {
			kept[n_kept++] = fd;
			test_k_set(&a->word[W_SERVED], i + 1);
			continue;
		}
		do {
			n = grecv(a->net, fd, buf, a->room, 0);
			if (n > 0) {
				total += (uint64_t)n;
				gsend(a->net, fd, buf, (uint64_t)n, 0);
			}
		} while (n > 0);
		if (a->word[W_RESET])
			opt_linger(a->net, fd, 1, 0);
		gclose(a->net, fd);
		if (test_k_tid() == 0) {
			a->word[W_RESULT] = (uint64_t)n;
			a->word[W_BYTES] = total;
		}
		test_k_set(&a->word[W_SERVED], i + 1);
	}
	while (n_kept)
		K_EQ(r, gclose(a->net, kept[--n_kept]), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	if (a->word[W_ASKS])
		K_CALL(ask_elsewhere(a, r, fd));
	return 0;
}

TEST_KERNEL(serve_kernel, serve)

/* ---- the peer ------------------------------------------------------------------------------------------------------------------------ */

struct raw {
	struct verbs *v;
	struct verbs_events *events;
	struct verbs_id *id;
	struct verbs_comp *comp;
	struct verbs_cq *cq;
	struct verbs_qp *qp;
	struct verbs_mr *mr;
	struct wire_rsock_conn theirs;
	uint8_t mem
		[2 *
		 RING]; /* the SGL array at its start, the receive buffer behind, what is sent in the second half */
};

static const struct verbs_ops *const ops = &verbs_stub;

static struct verbs_event wait_event(struct raw *p)
{
	struct pollfd fd = { ops->events_fd(p->events), POLLIN, 0 };
	struct verbs_event e;

	while (ops->event_next(p->events, &e))
		CHECK(poll(&fd, 1, 20000) == 1);
	return e;
}

static void raw_open(struct raw *p)
{
	struct verbs_qp_init init = { .max_send_wr = 600, .max_recv_wr = 600 };
	char why[100];

	memset(p, 0, sizeof(*p));
	CHECK_EQ(ops->open(&p->v, why, sizeof(why)), 0);
	CHECK_EQ(ops->events_open(p->v, 0, &p->events), 0);
	CHECK_EQ(ops->id_create(p->events, p, &p->id), 0);
	CHECK_EQ(ops->comp_open(NULL, &p->comp), 0);
	CHECK_EQ(ops->cq_create(NULL, 2000, p->comp, &p->cq), 0);
	init.send_cq = init.recv_cq = p->cq;
	CHECK_EQ(ops->qp_create(p->id, &init, &p->qp), 0);
	{
		struct verbs_mem m = { p->mem, -1, 0, sizeof(p->mem), (uintptr_t)p->mem };

		CHECK_EQ(ops->reg(NULL, &m, VERBS_ACCESS_LOCAL_WRITE | VERBS_ACCESS_REMOTE_WRITE,
				  &p->mr),
			 0);
	}
	for (int i = 0; i < 600; i++) {
		struct verbs_recv_wr wr = { .wr_id = 1 };

		CHECK_EQ(ops->post_recv(p->qp, &wr, 1), 1);
	}
}

static void raw_close(struct raw *p)
{
	ops->disconnect(p->id);
	ops->qp_destroy(p->qp);
	ops->id_destroy(p->id);
	ops->dereg(p->mr);
	ops->cq_destroy(p->cq);
	ops->comp_close(p->comp);
	ops->events_close(p->events);
	ops->close(p->v);
}

static void own_private_data(struct raw *p, struct verbs_conn_param *c)
{
	struct wire_rsock_conn mine = { .flags = WIRE_RSOCK_IOMAP, .credits = CREDITS };

	mine.sgl = (struct wire_rsock_sge){ (uintptr_t)p->mem, p->mr->rkey, 2 };
	mine.data = (struct wire_rsock_sge){ (uintptr_t)p->mem + 64, p->mr->rkey, RING / 2 };
	memset(c, 0, sizeof(*c));
	c->private_len = WIRE_RSOCK_CONN_LEN;
	wire_rsock_conn_encode(&mine, c->private_data);
}

/* Asks with this private data; the event that answers. */
static struct verbs_event raw_ask(struct raw *p, const struct test_addr *to,
				  const struct verbs_conn_param *c)
{
	CHECK_EQ(ops->resolve(p->id, &to->a.sa, to->len, 1000), 0);
	CHECK_EQ(wait_event(p).type, VERBS_EVENT_RESOLVED);
	CHECK_EQ(ops->connect(p->id, c), 0);
	return wait_event(p);
}

static void raw_connect(struct raw *p, const struct test_addr *to, uint8_t flags)
{
	struct verbs_conn_param c;
	struct verbs_event e;

	raw_open(p);
	own_private_data(p, &c);
	c.private_data[WIRE_RSOCK_AT_FLAGS] |= flags;
	e = raw_ask(p, to, &c);
	CHECK_EQ(e.type, VERBS_EVENT_ESTABLISHED);
	/* What its device is asked for: 0.64 ms, and no retries that rdma_rxe takes for without end. */
	CHECK_EQ(e.param.min_rnr_timer, 12);
	CHECK_EQ(e.param.ack_timeout, 18);
	CHECK_EQ(e.param.retry, 6);
	CHECK_EQ(e.param.rnr_retry, 7);
	CHECK_EQ(wire_rsock_conn_decode(&p->theirs, e.param.private_data, e.param.private_len), 0);
}

/* One message; `n` bytes of the pattern go to `at`. */
static void say(struct raw *p, uint32_t imm, uint32_t n, uint64_t at, uint32_t key)
{
	struct verbs_sge sge = { (uintptr_t)p->mem + RING, n, p->mr->lkey };
	struct verbs_send_wr wr = { .imm = imm,
				    .opcode = VERBS_WR_WRITE_IMM,
				    .flags = VERBS_SEND_SIGNALED,
				    .sge = &sge,
				    .nsge = n ? 1 : 0,
				    .raddr = at,
				    .rkey = key };

	CHECK_EQ(ops->post_send(p->qp, &wr, 1), 1);
}

static void goodbye(struct raw *p)
{
	say(p, wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_DISCONNECT), 0, 0, 0);
}

static void say_data(struct raw *p, uint32_t n, uint32_t off)
{
	test_pattern(p->mem + RING, n, off, 5);
	say(p, wire_rsock_imm(WIRE_RSOCK_OP_DATA, n), n, p->theirs.data.addr + off,
	    p->theirs.data.key);
}

/* The next immediate that is not an SGL message's, or that is one of this op. */
static uint32_t hear(struct raw *p, unsigned op)
{
	struct verbs_wc wc;
	uint64_t end = test_now_ms() + 20000;

	while (test_now_ms() < end) {
		if (ops->poll(p->cq, &wc, 1) != 1) {
			test_sleep_ms(1);
			continue;
		}
		if (wc.status)
			return UINT32_MAX;
		if (wc.opcode == VERBS_WC_RECV_WRITE_IMM && wc.imm >> WIRE_RSOCK_OP_SHIFT == op)
			return wc.imm;
	}
	FAIL("no message of op %u came", op);
}

/* `n` messages have been acknowledged, all. */
static void acknowledged(struct raw *p, unsigned n)
{
	struct verbs_wc wc;
	uint64_t end = test_now_ms() + 20000;

	while (n && test_now_ms() < end) {
		if (ops->poll(p->cq, &wc, 1) != 1) {
			test_sleep_ms(1);
			continue;
		}
		CHECK_EQ(wc.status, 0);
		n -= wc.opcode == VERBS_WC_WRITE;
	}
	CHECK_EQ(n, 0);
}

/* ---- the proxy's clock ---------------------------------------------------------------------------------------------------------------- */

static struct {
	uint64_t (*real)(void);
	uint64_t since;  /* the real clock's time */
	uint64_t shown;  /* and this one's, when its speed changed last */
	uint64_t slower; /* it goes so many times slower */
	_Atomic uint64_t ahead;
} proxys = { .slower = 1 };

static uint64_t proxys_now(void)
{
	return proxys.shown + (proxys.real() - proxys.since) / proxys.slower + proxys.ahead;
}

/* Before a network is opened. */
static void proxys_clock(uint64_t slower)
{
	const uint64_t before = sys.now_ns();

	if (!proxys.real) {
		proxys.real = sys.now_ns;
		sys.now_ns = proxys_now;
	}
	proxys.since = proxys.real();
	proxys.shown = before - proxys.ahead;
	proxys.slower = slower;
	CHECK(sys.now_ns() >= before);
}

/* ---- cases --------------------------------------------------------------------------------------------------------------------------- */

struct bench {
	gpunet_t *g;
	struct test_args a;
	uint64_t served;
};

/* `gpu`: the provider takes memory of the GPU by dma-buf. */
static void begin_on(struct bench *b, unsigned conns, unsigned linger_ms, unsigned threads,
		     bool gpu)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;

	stub_install();
	cpu_hooks.near = gpu;
	if (gpu)
		stub_gpu(STUB_DMABUF);
	memset(b, 0, sizeof(*b));
	o.proxy_threads = threads;
	o.segment_bytes = RING;
	o.slab_bytes = 256 << 10;
	o.linger_ms = linger_ms;
	b->g = test_open(&o);
	b->a = test_setup(b->g, TEST_TCP, 1, 4096);
	b->a.word[W_CONNS] = conns;
	TEST_LAUNCH(b->g, serve_kernel, b->a, 1, 1);
	test_addr_wait(b->a.where, b->a.report);
}

static void begin(struct bench *b, unsigned conns, unsigned linger_ms, unsigned threads)
{
	begin_on(b, conns, linger_ms, threads, false);
}

static int64_t served(struct bench *b)
{
	test_word_wait(&b->a.word[W_SERVED], ++b->served, b->a.report);
	return (int64_t)b->a.word[W_RESULT];
}

static void end(struct bench *b)
{
	test_sync(b->g, b->a.report, 1);
	test_close(b->g);
	test_teardown(&b->a);
	CHECK_EQ(stub_objects(), 0);
}

/* A peer that keeps the protocol: data comes back to the byte, credits and the second half are where they should be. */
static void plain_peer(struct bench *b, uint8_t flags)
{
	struct wire_rsock_sge half;
	struct raw p;

	raw_connect(&p, b->a.where, flags);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_SGL) & 0xffff, CREDITS);
	wire_rsock_sge_decode(&half, flags & WIRE_RSOCK_BIG_ENDIAN, p.mem + WIRE_RSOCK_SGE_LEN);
	CHECK_EQ(half.addr, p.theirs.data.addr + RING / 2);
	CHECK_EQ(half.key, p.theirs.data.key);
	CHECK_EQ(half.length, RING / 2);
	say_data(&p, 1000, 0);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_DATA), 1000);
	test_pattern_check(p.mem + 64, 1000, 0, 5);
	say(&p, wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_KEEPALIVE), 0, 0, 0);
	say(&p, wire_rsock_imm(WIRE_RSOCK_OP_IOMAP, 0), 0, 0, 0);
	say(&p, wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_SHUTDOWN), 0, 0, 0);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_CTRL),
		 wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_DISCONNECT));
	CHECK_EQ(served(b), 0);
	CHECK_EQ(b->a.word[W_BYTES], 1000);
	raw_close(&p);
}

/* Private data that no stream can flow with is refused before it costs anything. */
static void bad_private_data(struct bench *b)
{
	static const uint8_t at[][2] = { { WIRE_RSOCK_AT_VERSION, 0 },
					 { WIRE_RSOCK_AT_VERSION, 9 },
					 { WIRE_RSOCK_AT_SGL + 15, 0 },
					 { WIRE_RSOCK_AT_SGL + 15, 1 },
					 { WIRE_RSOCK_AT_DATA + 14, 0 } };
	struct verbs_conn_param c;
	struct raw p;
	unsigned i;

	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		raw_open(&p);
		own_private_data(&p, &c);
		c.private_data[at[i][0]] = at[i][1];
		CHECK_EQ(raw_ask(&p, b->a.where, &c).type, VERBS_EVENT_REJECTED);
		raw_close(&p);
	}
}

static void bad_message(struct bench *b, uint32_t imm, int64_t wanted)
{
	struct raw p;

	raw_connect(&p, b->a.where, 0);
	say_data(&p, 10, 0);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_DATA), 10);
	say(&p, imm, 0, 0, 0);
	CHECK_EQ(served(b), wanted);
	CHECK_EQ(b->a.word[W_BYTES], 10);
	raw_close(&p);
}

static void data_after_its_end(struct bench *b)
{
	struct raw p;

	raw_connect(&p, b->a.where, 0);
	say(&p, wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_SHUTDOWN), 0, 0, 0);
	say_data(&p, 10, 0);
	served(b);
	CHECK_EQ(b->a.word[W_BYTES], 0);
	raw_close(&p);
}

/* The device refuses what lies outside of the ring, by one byte, and our send ring's neighbours. */
static void write_out_of_bounds(struct bench *b)
{
	struct raw p;

	raw_connect(&p, b->a.where, 0);
	say(&p, wire_rsock_imm(WIRE_RSOCK_OP_DATA, 2), 2, p.theirs.data.addr + RING - 1,
	    p.theirs.data.key);
	CHECK_EQ(served(b), -ECONNRESET);
	raw_close(&p);
	raw_connect(&p, b->a.where, 0);
	say(&p, wire_rsock_imm(WIRE_RSOCK_OP_SGL, 9), 17, p.theirs.sgl.addr + 16, p.theirs.sgl.key);
	CHECK_EQ(served(b), -ECONNRESET);
	raw_close(&p);
}

/* A peer says that it has written what it has not, and the kernel sends it back: nothing of what other peers have sent. */
static void bytes_that_nobody_wrote(struct bench *b)
{
	struct raw p;
	unsigned i;

	raw_connect(&p, b->a.where, 0);
	memset(p.mem + 64, 0xaa, 1000);
	say(&p, wire_rsock_imm(WIRE_RSOCK_OP_DATA, 1000), 0, 0, 0);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_DATA), 1000);
	for (i = 0; i < 1000; i++)
		CHECK_EQ(p.mem[64 + i], 0);
	say(&p, wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_DISCONNECT), 0, 0, 0);
	served(b);
	raw_close(&p);
}

/* The RTU is lost: the first message says that the peer is ready. */
static void message_before_rtu(void)
{
	struct bench b;
	struct raw p;

	stub_no_rtu = 1;
	begin(&b, 1, 500, 1);
	raw_connect(&p, b.a.where, 0);
	say_data(&p, 10, 0);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_DATA), 10);
	test_pattern_check(p.mem + 64, 10, 0, 5);
	goodbye(&p);
	CHECK_EQ(served(&b), 0);
	raw_close(&p);
	end(&b);
	stub_no_rtu = 0;
}

/* The peer goes without a word. */
static void peer_vanishes(struct bench *b)
{
	struct raw p;

	raw_connect(&p, b->a.where, 0);
	say_data(&p, 10, 0);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_DATA), 10);
	raw_close(&p);
	CHECK_EQ(served(b), -ECONNRESET);
	CHECK_EQ(b->a.word[W_BYTES], 10);
}

/* Any limit and any entry that a peer may write: our side goes on or ends, and never waits for ever at its close. */
static void wild_credits(struct bench *b)
{
	static const uint32_t limits[] = { 0, 1, 0xffff, 0x10129, 0x8000, 0x1fffffff };
	struct raw p;
	unsigned i;

	for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		raw_connect(&p, b->a.where, 0);
		say(&p, wire_rsock_imm(WIRE_RSOCK_OP_SGL, limits[i]), 0, 0, 0);
		memset(p.mem + RING, 0xff, 16);
		say(&p, wire_rsock_imm(WIRE_RSOCK_OP_SGL, limits[i]), 16, p.theirs.sgl.addr + 16,
		    p.theirs.sgl.key);
		say_data(&p, 100, 0);
		say(&p, wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_DISCONNECT), 0, 0, 0);
		served(b);
		raw_close(&p);
	}
}

/*
 * The acknowledgement of a goodbye is lost, and the peer says it again. Our side has closed meanwhile: its queue pair is there
 * nevertheless until the peer has gone, which ends it long before the linger time.
 */
static void lost_acknowledgement(void)
{
	struct verbs_event e;
	struct bench b;
	struct raw p;

	proxys_clock(100);
	begin(&b, 2, 3600000, 1);
	raw_connect(&p, b.a.where, 0);
	goodbye(&p);
	CHECK_EQ(served(&b), 0);
	plain_peer(&b, 0); /* the close has been carried out by then */
	CHECK_EQ(ops->event_next(p.events, &e), -EAGAIN);
	goodbye(&p);
	acknowledged(&p, 2);
	raw_close(&p);
	end(&b);
}

/*
 * A peer that has said goodbye and never goes is answered for as long as it may say it again, also where our side closed without
 * lingering, and for no longer than that, however long other closes may linger. Nothing waits to be sent meanwhile.
 */
static void peer_stays(bool reset)
{
	struct verbs_event e;
	struct bench b;
	struct raw p;

	proxys_clock(100);
	begin(&b, 5, 3600000, 1);
	b.a.word[W_RESET] = reset;
	raw_connect(&p, b.a.where, 0);
	goodbye(&p);
	CHECK_EQ(served(&b), 0);
	plain_peer(&b, 0);
	while (gpunet_drain(b.g, 0))
		test_sleep_ms(1);
	proxys.ahead += UINT64_C(3000000000);
	plain_peer(&b, 0); /* the proxy has seen the time by then */
	CHECK_EQ(ops->event_next(p.events, &e), -EAGAIN);
	goodbye(&p);
	acknowledged(&p, 2);
	proxys.ahead += UINT64_C(3000000000);
	plain_peer(&b, 0);
	CHECK_EQ(wait_event(&p).type, VERBS_EVENT_DISCONNECTED);
	plain_peer(&b, 0);
	raw_close(&p);
	end(&b);
}

static _Atomic bool proxys_end;

static int ending_epoll_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	const int64_t ms = 1000000;

	if (proxys_end)
		return -EBADF;
	return sys_real.epoll_wait(epfd, ev, max,
				   timeout_ns < 0 || timeout_ns > ms ? ms : timeout_ns);
}

/* A proxy that dies while a connection is there for its peer's sake only has lost nothing. */
static void peer_stays_and_the_proxy_dies(void)
{
	struct bench b;
	struct raw p;

	proxys_clock(100);
	sys.epoll_wait = ending_epoll_wait;
	begin(&b, 1, 3600000, 1);
	raw_connect(&p, b.a.where, 0);
	goodbye(&p);
	CHECK_EQ(served(&b), 0);
	test_sync(b.g, b.a.report, 1);
	while (gpunet_drain(b.g, 0))
		test_sleep_ms(1);
	proxys_end = true;
	while (!proxy_is_dead(b.g->proxy))
		test_sleep_ms(1);
	CHECK_EQ(gpunet_drain(b.g, 3600000), 0);
	test_close(b.g);
	CHECK_EQ(wait_event(&p).type, VERBS_EVENT_DISCONNECTED);
	raw_close(&p);
	test_teardown(&b.a);
	CHECK_EQ(stub_objects(), 0);
	sys.epoll_wait = sys_real.epoll_wait;
	proxys_end = false;
}

/* Once our goodbye is acknowledged, our side goes: the peer, which knows by then, waits for nothing of ours. */
static void our_goodbye(void)
{
	struct bench b;
	struct raw p;

	proxys_clock(100);
	begin(&b, 1, 3600000, 1);
	raw_connect(&p, b.a.where, 0);
	say(&p, wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_SHUTDOWN), 0, 0, 0);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_CTRL),
		 wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_DISCONNECT));
	CHECK_EQ(wait_event(&p).type, VERBS_EVENT_DISCONNECTED);
	CHECK_EQ(served(&b), 0);
	raw_close(&p);
	end(&b);
}

/*
 * The slab has segments for eight connections, the GPU's memory too, and peers that have said goodbye have them all: new ones get them
 * nevertheless.
 */
static void peers_stay_and_others_come(unsigned threads, bool gpu)
{
	static struct raw p[16];
	struct bench b;
	unsigned i;

	proxys_clock(10);
	begin_on(&b, 16, 3600000, threads, gpu);
	for (i = 0; i < 8; i++) {
		raw_connect(&p[i], b.a.where, 0);
		goodbye(&p[i]);
		CHECK_EQ(served(&b), 0);
	}
	for (; i < 16; i++)
		raw_connect(&p[i], b.a.where, 0);
	for (i = 0; i < 8; i++)
		CHECK_EQ(wait_event(&p[i]).type, VERBS_EVENT_DISCONNECTED);
	if (gpu)
		CHECK_EQ(stub_regs(STUB_DMABUF), 32);
	for (i = 8; i < 16; i++) {
		goodbye(&p[i]);
		CHECK_EQ(served(&b), 0);
	}
	for (i = 0; i < 16; i++)
		raw_close(&p[i]);
	end(&b);
}

static uint64_t segments_used(gpunet_t *g)
{
	struct gpunet_stats s = { .size = sizeof(s) };

	CHECK_EQ(gpunet_get_stats(g, &s), 0);
	return s.slab_segments_used;
}

/* Peers that have said goodbye have every segment, in one thread: a connect in the other gets two nevertheless. */
static void peers_stay_in_one_thread(unsigned asks)
{
	static struct raw p[15];
	struct bench b;
	unsigned i;

	proxys_clock(10);
	begin(&b, 15, 3600000, 2);
	b.a.word[W_ASKS] = asks;
	for (i = 0; i < 15; i++) {
		/* The threads take turns, and the second's peers go. */
		while (segments_used(b.g) != 2 * ((i + 1) / 2))
			test_sleep_ms(1);
		raw_connect(&p[i], b.a.where, 0);
		goodbye(&p[i]);
		CHECK_EQ(served(&b), 0);
		if (i % 2)
			raw_close(&p[i]);
	}
	CHECK_EQ(wait_event(&p[0]).type, VERBS_EVENT_DISCONNECTED);
	for (i = 0; i < 15; i += 2)
		raw_close(&p[i]);
	end(&b);
}

/* Eight connections have all of the GPU's memory. One that is held for its peer and has none of it stays, for it could make no room. */
static void peer_stays_and_gpu_memory_is_short(unsigned threads)
{
	static struct raw p[9];
	struct verbs_event e;
	struct bench b;
	unsigned i;

	proxys_clock(10);
	begin_on(&b, 11, 3600000, threads, true);
	b.a.word[W_KEPT] = 0xff;
	for (i = 0; i < 9; i++) {
		raw_connect(&p[i], b.a.where, 0);
		if (i < 8)
			served(&b);
	}
	CHECK_EQ(stub_regs(STUB_DMABUF), 16);
	goodbye(&p[8]);
	CHECK_EQ(served(&b), 0);
	plain_peer(&b, 0); /* the close has been carried out by then */
	plain_peer(&b, 0);
	CHECK_EQ(stub_regs(STUB_DMABUF), 16);
	CHECK_EQ(ops->event_next(p[8].events, &e), -EAGAIN);
	goodbye(&p[8]);
	acknowledged(&p[8], 2);
	for (i = 0; i < 9; i++)
		raw_close(&p[i]);
	end(&b);
}

static void *close_network(void *arg)
{
	test_close(arg);
	return NULL;
}

/* gpunet_close waits until the peer has our goodbye, and no longer, also if the peer says its own at the same time. */
static void network_closes(bool both)
{
	unsigned posted, i;
	struct bench b;
	pthread_t t;
	struct raw p;

	proxys_clock(100);
	begin(&b, 2, 3600000, 1);
	raw_connect(&p, b.a.where, 0);
	say_data(&p, 10, 0);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_DATA), 10);
	stub_freeze();
	posted = stub_posted();
	CHECK_EQ(pthread_create(&t, NULL, close_network, b.g), 0);
	/* Our goodbye comes before the peer's, which would make it needless. */
	for (i = 0; i < 20000 && stub_posted() == posted; i++)
		test_sleep_ms(1);
	test_sleep_ms(100); /* a close that does not wait is over by then */
	if (both)
		goodbye(&p);
	stub_thaw(0);
	CHECK_EQ(hear(&p, WIRE_RSOCK_OP_CTRL),
		 wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_DISCONNECT));
	CHECK_EQ(pthread_join(t, NULL), 0);
	raw_close(&p);
	test_teardown(&b.a);
	CHECK_EQ(stub_objects(), 0);
}

int main(void)
{
	static const uint32_t bad[] = {
		1u << 29 | 5,
		2u << 29 | 5,
		3u << 29 | 5,
		5u << 29 | 5,
		7u << 29 | 3,
		7u << 29 | 0x1fffffff,
		0,
		RING,
		RING + 1,
		0x1fffffff,
	};
	struct bench b;
	unsigned i;

	test_begin(60);
	begin(&b, 2 + 1 + sizeof(bad) / sizeof(bad[0]) + 1 + 2 + 1 + 6 + 1, 500, 0);
	plain_peer(&b, 0);
	plain_peer(&b, WIRE_RSOCK_BIG_ENDIAN);
	bytes_that_nobody_wrote(&b);
	bad_private_data(&b);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		bad_message(&b, bad[i], -EPROTO);
	data_after_its_end(&b);
	write_out_of_bounds(&b);
	peer_vanishes(&b);
	wild_credits(&b);
	plain_peer(&b, 0);
	end(&b);
	message_before_rtu();
	lost_acknowledgement();
	peer_stays(false);
	peer_stays(true);
	peer_stays_and_the_proxy_dies();
	our_goodbye();
	peers_stay_and_others_come(1, false);
	peers_stay_and_others_come(2, false);
	peers_stay_and_others_come(1, true);
	peers_stay_in_one_thread(ASKS);
	peers_stay_in_one_thread(ASKS_ON);
	peer_stays_and_gpu_memory_is_short(1);
	peer_stays_and_gpu_memory_is_short(2);
	network_closes(false);
	network_closes(true);
	return 0;
}
