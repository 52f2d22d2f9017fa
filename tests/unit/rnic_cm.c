/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection management: two devices on a network in memory, which connect over QP1 while it loses, doubles and reorders;
 * and messages that nobody should send.
 */
#include "rnic_rig.h"

#include "rnic/cm.h"
#include "rnic/cm_gsi.h"
#include "wire/bytes.h"
#include "wire/cm.h"

enum { PORT = 7471, EVENTS = 4096, CONNS = 64 };

struct told {
	enum rnic_cm_event_type type;
	struct rnic_cm_conn *conn;
	void *user;
	uint16_t reason;
	int status;
	struct rnic_cm_qp peer;
	uint8_t priv[64];
};

struct cm_side {
	struct rnic_gsi *gsi;
	struct rnic_cm *cm;
	struct told told[EVENTS];
	unsigned ntold, taken;
	uint64_t rnd;
	int refuse;
	unsigned asked; /* whether somebody is there */
	int nobody;     /* the answer, from the second time on */
};

struct cm_rig {
	struct rig g;
	struct cm_side side[2];
};

static const uint8_t any_gid[16];

static int hear(void *ctx, const struct rnic_cm_event *ev)
{
	struct cm_side *s = ctx;
	struct told *t = &s->told[s->ntold];

	if (s->refuse)
		return s->refuse;
	assert_true(s->ntold < EVENTS);
	s->ntold++;
	*t = (struct told){ ev->type, ev->conn, ev->user, ev->reason, ev->status, ev->peer, { 0 } };
	if (ev->priv_len)
		memcpy(t->priv, ev->priv, ev->priv_len < 64 ? ev->priv_len : 64);
	return 0;
}

static int is_nobody(void *ctx, const struct rnic_path *path)
{
	struct cm_side *s = ctx;

	(void)path;
	return ++s->asked < 2 ? 0 : s->nobody;
}

static uint64_t side_rnd(void *ctx)
{
	struct cm_side *s = ctx;

	return rig_rnd(&s->rnd);
}

static void cm_rig_open(struct cm_rig *t, const struct rnic_cm_config *with,
			const struct rnic_mem_config *net)
{
	struct rnic_cm_config cfg = with ? *with : (struct rnic_cm_config){ 0 };
	int i;

	memset(t, 0, sizeof(*t));
	rig_open(&t->g, NULL, net);
	for (i = 0; i < 2; i++) {
		t->side[i].rnd = 1000 + (uint64_t)i;
		cfg.guid = 0x100 + (uint64_t)i;
		cfg.event = hear;
		cfg.random = side_rnd;
		cfg.nobody = is_nobody;
		cfg.ctx = &t->side[i];
		assert_int_equal(rnic_gsi_open(t->g.side[i].r, &cfg, &t->side[i].gsi), 0);
		t->side[i].cm = rnic_gsi_cm(t->side[i].gsi);
	}
}

static void cm_rig_close(struct cm_rig *t)
{
	rnic_gsi_close(t->side[0].gsi);
	rnic_gsi_close(t->side[1].gsi);
	rig_close(&t->g);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Runs until `until` says so, nothing is left to do, or the time is over. */
static void cm_run_until(struct cm_rig *t, uint64_t ns, bool (*until)(struct cm_rig *))
{
	uint64_t end = t->g.now + ns, next;
	int i;

	while (!until || !until(t)) {
		next = UINT64_MAX;
		for (i = 0; i < 2; i++) {
			rnic_gsi_poll(t->side[i].gsi, t->g.now);
			next = earlier(next, rnic_cm_step(t->side[i].cm, t->g.now));
			next = earlier(next, rnic_step(t->g.side[i].r, t->g.now, 100));
		}
		next = earlier(next, rnic_mem_step(t->g.net, t->g.now));
		for (i = 0; i < 2; i++)
			if (rnic_gsi_poll(t->side[i].gsi, t->g.now))
				next = t->g.now;
		if (next == UINT64_MAX)
			return;
		if (next > end) {
			t->g.now = end;
			return;
		}
		if (next > t->g.now)
			t->g.now = next;
	}
}

static void cm_run(struct cm_rig *t, uint64_t ns)
{
	cm_run_until(t, ns, NULL);
}

static struct told *expect(struct cm_rig *t, int side, enum rnic_cm_event_type type)
{
	struct cm_side *s = &t->side[side];

	assert_true(s->taken < s->ntold);
	assert_int_equal(s->told[s->taken].type, type);
	return &s->told[s->taken++];
}

static void expect_nothing(struct cm_rig *t, int side)
{
	assert_int_equal(t->side[side].taken, t->side[side].ntold);
}

static struct rnic_cm_route route_to(struct cm_rig *t, int from)
{
	struct rnic_cm_route to = { .port_space = WIRE_RDMACM_PS_TCP,
				    .sport = 50000,
				    .dport = PORT,
				    .path = { .flow = 0x12345, .tclass = 8 } };

	memcpy(to.path.src, t->g.side[from].gid[0], 16);
	memcpy(to.path.dst, t->g.side[1 - from].gid[0], 16);
	return to;
}

static const struct rnic_cm_qp qp_a = { .qpn = 0x111,
					.psn = 0xaaa,
					.responder_resources = 3,
					.initiator_depth = 4,
					.retry = 7,
					.rnr_retry = 6,
					.flow_control = true,
					.mtu = 5,
					.ack_timeout = 14 };
static const struct rnic_cm_qp qp_b = {
	.qpn = 0x222, .psn = 0xbbb, .responder_resources = 5, .initiator_depth = 6, .rnr_retry = 5
};

static struct rnic_cm_conn *start(struct cm_rig *t, const char *priv)
{
	struct rnic_cm_route to = route_to(t, 0);
	struct rnic_cm_conn *c = NULL;

	assert_int_equal(rnic_cm_connect(t->side[0].cm, &to, &qp_a, priv, strlen(priv), NULL, &c,
					 t->g.now),
			 0);
	return c;
}

static struct rnic_cm_listener *listen_on(struct cm_rig *t, uint16_t ps, unsigned backlog)
{
	struct rnic_cm_listener *l = NULL;

	assert_int_equal(rnic_cm_listen(t->side[1].cm, ps, any_gid, PORT, backlog, &t->side[1], &l),
			 0);
	return l;
}

/* An established connection. */
static void join(struct cm_rig *t, struct rnic_cm_conn *c[2])
{
	c[0] = start(t, "hello");
	cm_run(t, RIG_MS);
	c[1] = expect(t, 1, RNIC_CM_REQUEST)->conn;
	assert_int_equal(rnic_cm_accept(c[1], &qp_b, "welcome", 7, t->g.now), 0);
	cm_run(t, RIG_MS);
	expect(t, 0, RNIC_CM_RESPONSE);
	assert_int_equal(rnic_cm_establish(c[0], t->g.now), 0);
	cm_run(t, RIG_MS);
	expect(t, 1, RNIC_CM_ESTABLISHED);
}

static void all_is_free(struct cm_rig *t)
{
	struct rnic_cm_route to = route_to(t, 0);
	struct rnic_cm_conn *c[CONNS];
	unsigned i, s;

	for (s = 0; s < 2; s++) {
		for (i = 0; i < CONNS; i++)
			assert_int_equal(rnic_cm_connect(t->side[s].cm, &to, &qp_a, NULL, 0, NULL,
							 &c[i], t->g.now),
					 0);
		while (i--)
			rnic_cm_release(c[i], t->g.now);
	}
}

/* --- the way it should be ------------------------------------------------------------------------- */

static void a_connection_is_made_and_ended(void **state)
{
	struct rnic_cm_conn *c[2];
	struct cm_rig *t = malloc(sizeof(*t));
	struct told *ev;

	(void)state;
	cm_rig_open(t, NULL, NULL);
	listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	c[0] = start(t, "hello");
	cm_run(t, RIG_MS);
	ev = expect(t, 1, RNIC_CM_REQUEST);
	c[1] = ev->conn;
	assert_ptr_equal(ev->user, &t->side[1]);
	assert_memory_equal(&ev->peer, &qp_a, sizeof(qp_a));
	assert_memory_equal(ev->priv, "hello", 6);
	assert_int_equal(rnic_cm_route(c[1])->sport, PORT);
	assert_int_equal(rnic_cm_route(c[1])->dport, 50000);
	assert_int_equal(rnic_cm_route(c[1])->path.flow, 0x12345);
	assert_int_equal(rnic_cm_route(c[1])->path.tclass, 8);
	assert_memory_equal(rnic_cm_route(c[1])->path.dst, t->g.side[0].gid[0], 16);
	assert_memory_equal(rnic_cm_route(c[1])->path.src, t->g.side[1].gid[0], 16);

	assert_int_equal(rnic_cm_accept(c[1], &qp_b, "welcome", 7, t->g.now), 0);
	assert_int_equal(rnic_cm_accept(c[1], &qp_b, "welcome", 7, t->g.now), -EINVAL);
	cm_run(t, RIG_MS);
	ev = expect(t, 0, RNIC_CM_RESPONSE);
	assert_ptr_equal(ev->conn, c[0]);
	assert_memory_equal(ev->priv, "welcome", 8);
	assert_int_equal(ev->peer.qpn, qp_b.qpn);
	assert_int_equal(ev->peer.psn, qp_b.psn);
	assert_int_equal(ev->peer.responder_resources, qp_b.responder_resources);
	assert_int_equal(ev->peer.rnr_retry, qp_b.rnr_retry);
	assert_int_equal(rnic_cm_establish(c[0], t->g.now), 0);
	cm_run(t, RIG_MS);
	expect(t, 1, RNIC_CM_ESTABLISHED);
	/* Nothing is repeated, and no timer runs. */
	cm_run(t, 100 * RIG_S);
	expect_nothing(t, 0);
	expect_nothing(t, 1);
	assert_int_equal(rnic_cm_counters(t->side[0].cm)->resent, 0);
	assert_int_equal(rnic_cm_counters(t->side[1].cm)->resent, 0);

	assert_int_equal(rnic_cm_disconnect(c[0], t->g.now), 0);
	cm_run(t, RIG_MS);
	expect(t, 1, RNIC_CM_DISCONNECTED);
	expect(t, 0, RNIC_CM_DISCONNECTED);
	assert_int_equal(rnic_cm_disconnect(c[1], t->g.now), -EALREADY);
	cm_run(t, 2 * RIG_S);
	expect(t, 0, RNIC_CM_TIMEWAIT_EXIT);
	expect(t, 1, RNIC_CM_TIMEWAIT_EXIT);
	rnic_cm_release(c[0], t->g.now);
	rnic_cm_release(c[1], t->g.now);
	cm_rig_close(t);
	free(t);
}

static void both_may_end_it_at_once(void **state)
{
	struct cm_rig *t = malloc(sizeof(*t));
	struct rnic_cm_conn *c[2];

	(void)state;
	cm_rig_open(t, NULL, NULL);
	listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	join(t, c);
	assert_int_equal(rnic_cm_disconnect(c[0], t->g.now), 0);
	assert_int_equal(rnic_cm_disconnect(c[1], t->g.now), 0);
	cm_run(t, RIG_MS);
	expect(t, 0, RNIC_CM_DISCONNECTED);
	expect(t, 1, RNIC_CM_DISCONNECTED);
	expect_nothing(t, 0);
	expect_nothing(t, 1);
	cm_rig_close(t);
	free(t);
}

/* The user goes away; the protocol goes on to its end without a word to the user. */
static void a_released_connection_is_ended_properly(void **state)
{
	struct rnic_cm_config cfg = { .max_conns = CONNS };
	struct cm_rig *t = malloc(sizeof(*t));
	struct rnic_cm_conn *c[2];

	(void)state;
	cm_rig_open(t, &cfg, NULL);
	listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	join(t, c);
	rnic_cm_release(c[1], t->g.now);
	cm_run(t, RIG_MS);
	expect(t, 0, RNIC_CM_DISCONNECTED);
	rnic_cm_release(c[0], t->g.now);
	/* Released before it is answered, and before it is accepted. */
	c[0] = start(t, "");
	rnic_cm_release(c[0], t->g.now);
	c[0] = start(t, "");
	cm_run(t, RIG_MS);
	/* The first one's REQ was followed by its REJ. */
	c[1] = expect(t, 1, RNIC_CM_REQUEST)->conn;
	assert_ptr_equal(expect(t, 1, RNIC_CM_REJECTED)->conn, c[1]);
	rnic_cm_release(c[1], t->g.now);
	rnic_cm_release(expect(t, 1, RNIC_CM_REQUEST)->conn, t->g.now);
	cm_run(t, 5 * RIG_S);
	assert_int_equal(expect(t, 0, RNIC_CM_REJECTED)->reason, WIRE_REJ_CONSUMER);
	expect(t, 0, RNIC_CM_TIMEWAIT_EXIT);
	rnic_cm_release(c[0], t->g.now);
	expect_nothing(t, 0);
	cm_run(t, 5 * RIG_S);
	all_is_free(t);
	cm_rig_close(t);
	free(t);
}

static void requests_are_refused_with_a_reason(void **state)
{
	struct cm_rig *t = malloc(sizeof(*t));
	struct rnic_cm_conn *c;
	struct told *ev;

	(void)state;
	cm_rig_open(t, NULL, NULL);
	start(t, "");
	cm_run(t, RIG_MS);
	assert_int_equal(expect(t, 0, RNIC_CM_REJECTED)->reason, WIRE_REJ_INVALID_SERVICE_ID);
	assert_int_equal(rnic_cm_counters(t->side[1].cm)->no_listener, 1);
	listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	start(t, "");
	cm_run(t, RIG_MS);
	c = expect(t, 1, RNIC_CM_REQUEST)->conn;
	assert_int_equal(rnic_cm_reject(c, WIRE_REJ_CONSUMER, "no", 2, t->g.now), 0);
	cm_run(t, RIG_MS);
	ev = expect(t, 0, RNIC_CM_REJECTED);
	assert_int_equal(ev->reason, WIRE_REJ_CONSUMER);
	assert_memory_equal(ev->priv, "no", 3);
	t->side[1].refuse = -ENOMEM;
	start(t, "");
	cm_run(t, RIG_MS);
	assert_int_equal(expect(t, 0, RNIC_CM_REJECTED)->reason, WIRE_REJ_NO_RESOURCES);
	t->side[1].refuse = 0;
	/* And the active side may refuse the answer. */
	c = start(t, "");
	cm_run(t, RIG_MS);
	rnic_cm_accept(expect(t, 1, RNIC_CM_REQUEST)->conn, &qp_b, NULL, 0, t->g.now);
	cm_run(t, RIG_MS);
	expect(t, 0, RNIC_CM_RESPONSE);
	assert_int_equal(rnic_cm_reject(c, WIRE_REJ_CONSUMER, NULL, 0, t->g.now), 0);
	cm_run(t, RIG_MS);
	assert_int_equal(expect(t, 1, RNIC_CM_REJECTED)->reason, WIRE_REJ_CONSUMER);
	cm_rig_close(t);
	free(t);
}

static void ports_are_taken_once(void **state)
{
	struct cm_rig *t = malloc(sizeof(*t));
	struct rnic_cm_listener *l, *m;
	const uint8_t *gid;

	(void)state;
	cm_rig_open(t, NULL, NULL);
	gid = t->g.side[1].gid[0];
	l = listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	assert_int_equal(rnic_cm_listen(t->side[1].cm, WIRE_RDMACM_PS_TCP, any_gid, PORT, 0, NULL,
					&m),
			 -EADDRINUSE);
	assert_int_equal(rnic_cm_listen(t->side[1].cm, WIRE_RDMACM_PS_TCP, gid, PORT, 0, NULL, &m),
			 -EADDRINUSE);
	assert_int_equal(rnic_cm_listen(t->side[1].cm, WIRE_RDMACM_PS_UDP, gid, PORT, 0, NULL, &m),
			 0);
	rnic_cm_unlisten(m);
	rnic_cm_unlisten(l);
	assert_int_equal(rnic_cm_listen(t->side[1].cm, WIRE_RDMACM_PS_TCP, gid, PORT, 0, NULL, &m),
			 0);
	assert_int_equal(rnic_cm_listen(t->side[1].cm, WIRE_RDMACM_PS_TCP, any_gid, PORT, 0, NULL,
					&l),
			 -EADDRINUSE);
	cm_rig_close(t);
	free(t);
}

/* They are their taker's: one is answered before the end, one after it, one not. */
static void requests_outlive_their_listener(void **state)
{
	struct cm_rig *t = malloc(sizeof(*t));
	unsigned responses = 0, rejects = 0, i;
	struct rnic_cm_conn *c[3];
	struct rnic_cm_listener *l;

	(void)state;
	cm_rig_open(t, NULL, NULL);
	l = listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	for (i = 0; i < 3; i++)
		start(t, "");
	cm_run(t, RIG_MS);
	for (i = 0; i < 3; i++)
		c[i] = expect(t, 1, RNIC_CM_REQUEST)->conn;
	assert_int_equal(rnic_cm_accept(c[0], &qp_b, NULL, 0, t->g.now), 0);
	rnic_cm_unlisten(l);
	assert_int_equal(rnic_cm_accept(c[1], &qp_b, NULL, 0, t->g.now), 0);
	rnic_cm_release(c[2], t->g.now);
	cm_run(t, RIG_MS);
	assert_int_equal(t->side[0].ntold, 3);
	for (; t->side[0].taken < 3; t->side[0].taken++) {
		responses += t->side[0].told[t->side[0].taken].type == RNIC_CM_RESPONSE;
		rejects += t->side[0].told[t->side[0].taken].type == RNIC_CM_REJECTED;
	}
	assert_int_equal(responses, 2);
	assert_int_equal(rejects, 1);
	rnic_cm_release(c[0], t->g.now);
	rnic_cm_release(c[1], t->g.now);
	cm_rig_close(t);
	free(t);
}

static void datagram_ports_answer_with_a_number(void **state)
{
	const struct rnic_cm_qp mine = { .qpn = 0x333, .qkey = 0x1234567 };
	struct cm_rig *t = malloc(sizeof(*t));
	struct rnic_cm_route to;
	struct rnic_cm_conn *c;
	struct told *ev;

	(void)state;
	cm_rig_open(t, NULL, NULL);
	to = route_to(t, 0);
	to.port_space = WIRE_RDMACM_PS_UDP;
	rnic_cm_connect(t->side[0].cm, &to, &qp_a, "q", 1, NULL, &c, t->g.now);
	cm_run(t, RIG_MS);
	assert_int_equal(expect(t, 0, RNIC_CM_REJECTED)->reason, 0x8000 | WIRE_SIDR_NO_SERVICE);
	listen_on(t, WIRE_RDMACM_PS_UDP, 0);
	rnic_cm_connect(t->side[0].cm, &to, &qp_a, "q", 1, NULL, &c, t->g.now);
	cm_run(t, RIG_MS);
	ev = expect(t, 1, RNIC_CM_REQUEST);
	assert_memory_equal(ev->priv, "q", 2);
	assert_int_equal(rnic_cm_accept(ev->conn, &mine, "a", 1, t->g.now), 0);
	cm_run(t, RIG_MS);
	ev = expect(t, 0, RNIC_CM_DATAGRAM);
	assert_int_equal(ev->peer.qpn, 0x333);
	assert_int_equal(ev->peer.qkey, 0x1234567);
	assert_memory_equal(ev->priv, "a", 2);
	cm_run(t, 5 * RIG_S);
	expect(t, 0, RNIC_CM_TIMEWAIT_EXIT);
	expect(t, 1, RNIC_CM_TIMEWAIT_EXIT);
	cm_rig_close(t);
	free(t);
}

static void the_smaller_mtu_is_agreed_on(void **state)
{
	struct rnic_cm_config cfg = { .max_mtu = 3, .max_conns = 8 };
	struct cm_rig *t = malloc(sizeof(*t));
	struct rnic_gsi *small;
	struct rnic_cm_conn *c;

	(void)state;
	cm_rig_open(t, NULL, NULL);
	/* Side 1 has a smaller one. */
	rnic_gsi_close(t->side[1].gsi);
	cfg.event = hear;
	cfg.ctx = &t->side[1];
	assert_int_equal(rnic_gsi_open(t->g.side[1].r, &cfg, &small), 0);
	t->side[1].gsi = small;
	t->side[1].cm = rnic_gsi_cm(small);
	listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	c = start(t, "");
	cm_run(t, RIG_MS);
	assert_int_equal(expect(t, 1, RNIC_CM_REQUEST)->peer.mtu, 3);
	assert_int_equal(rnic_cm_mine(c)->mtu, 3);
	expect_nothing(t, 0);
	cm_rig_close(t);
	free(t);
}

/* --- nobody answers -------------------------------------------------------------------------------- */

static void a_silent_peer_is_given_up(void **state)
{
	struct rnic_mem_config net = { .seed = 1, .faults = { .loss = 1000000 } };
	struct cm_rig *t = malloc(sizeof(*t));
	uint64_t began;

	(void)state;
	cm_rig_open(t, NULL, &net);
	start(t, "");
	began = t->g.now;
	cm_run(t, 18 * RIG_S);
	expect_nothing(t, 0);
	cm_run(t, 10 * RIG_S);
	assert_int_equal(expect(t, 0, RNIC_CM_UNREACHABLE)->status, -ETIMEDOUT);
	assert_int_equal(rnic_cm_counters(t->side[0].cm)->resent, 7);
	assert_int_equal(t->side[0].asked, 7);
	assert_true(t->g.now - began < 40 * RIG_S);
	cm_rig_close(t);
	free(t);
}

/* Once the machine says that nobody is there, nothing more is sent. */
static void a_peer_that_is_known_to_be_gone(void **state)
{
	struct rnic_mem_config net = { .seed = 1, .faults = { .loss = 1000000 } };
	struct cm_rig *t = malloc(sizeof(*t));
	struct rnic_cm_conn *c;

	(void)state;
	cm_rig_open(t, NULL, &net);
	t->side[0].nobody = -EHOSTUNREACH;
	c = start(t, "");
	cm_run(t, RIG_S);
	assert_int_equal(expect(t, 0, RNIC_CM_UNREACHABLE)->status, -EHOSTUNREACH);
	assert_int_equal(rnic_cm_counters(t->side[0].cm)->resent, 1);
	assert_int_equal(rnic_cm_counters(t->side[0].cm)->tx[WIRE_CM_REJ - 0x10], 0);
	rnic_cm_release(c, t->g.now);
	cm_rig_close(t);
	free(t);
}

/* The application sleeps: the peer is told to wait, then that it was in vain. */
static void an_application_that_does_not_answer(void **state)
{
	struct cm_rig *t = malloc(sizeof(*t));
	struct rnic_cm_conn *c[2];

	(void)state;
	cm_rig_open(t, NULL, NULL);
	listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	c[0] = start(t, "");
	cm_run(t, RIG_S);
	c[1] = expect(t, 1, RNIC_CM_REQUEST)->conn;
	assert_int_equal(rnic_cm_counters(t->side[1].cm)->tx[WIRE_CM_MRA - 0x10], 1);
	cm_run(t, 25 * RIG_S);
	/* The MRA was heeded: nothing more was asked. */
	assert_int_equal(rnic_cm_counters(t->side[0].cm)->resent, 1);
	expect_nothing(t, 0);
	cm_run(t, 10 * RIG_S);
	assert_int_equal(expect(t, 0, RNIC_CM_REJECTED)->reason, WIRE_REJ_TIMEOUT);
	expect(t, 1, RNIC_CM_UNREACHABLE);
	assert_int_equal(rnic_cm_accept(c[1], &qp_b, NULL, 0, t->g.now), -EINVAL);
	rnic_cm_release(c[0], t->g.now);
	rnic_cm_release(c[1], t->g.now);

	/* The same on the active side. */
	t->side[1].taken = t->side[1].ntold;
	t->side[0].taken = t->side[0].ntold;
	c[0] = start(t, "");
	cm_run(t, RIG_MS);
	c[1] = expect(t, 1, RNIC_CM_REQUEST)->conn;
	rnic_cm_accept(c[1], &qp_b, NULL, 0, t->g.now);
	cm_run(t, 20 * RIG_S);
	expect(t, 0, RNIC_CM_RESPONSE);
	expect_nothing(t, 1);
	cm_run(t, 15 * RIG_S);
	expect(t, 0, RNIC_CM_UNREACHABLE);
	expect(t, 1, RNIC_CM_REJECTED);
	cm_rig_close(t);
	free(t);
}

static bool drop_rtu;

static enum rnic_mem_verdict rtu_hook(void *ctx, struct rnic_mem_packet *p, uint64_t now)
{
	(void)ctx;
	(void)now;
	return drop_rtu && p->len > 60 && wire_get_be16(p->data + 20 + 16) == WIRE_CM_RTU
		       ? RNIC_MEM_DROP
		       : RNIC_MEM_PASS;
}

static void data_is_as_good_as_an_rtu(void **state)
{
	struct rnic_mem_config net = { .seed = 1, .hook = rtu_hook };
	struct cm_rig *t = malloc(sizeof(*t));
	struct rnic_cm_conn *c[2];

	(void)state;
	cm_rig_open(t, NULL, &net);
	listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	drop_rtu = true;
	c[0] = start(t, "");
	cm_run(t, RIG_MS);
	c[1] = expect(t, 1, RNIC_CM_REQUEST)->conn;
	rnic_cm_accept(c[1], &qp_b, NULL, 0, t->g.now);
	cm_run(t, RIG_MS);
	expect(t, 0, RNIC_CM_RESPONSE);
	rnic_cm_establish(c[0], t->g.now);
	cm_run(t, RIG_MS);
	expect_nothing(t, 1);
	rnic_cm_data_seen(c[1], t->g.now);
	rnic_cm_data_seen(c[1], t->g.now);
	expect(t, 1, RNIC_CM_ESTABLISHED);
	expect_nothing(t, 1);
	cm_run(t, 60 * RIG_S);
	expect_nothing(t, 1);
	expect_nothing(t, 0);

	/* Without data either: both learn of the end. */
	c[0] = start(t, "");
	cm_run(t, RIG_MS);
	c[1] = expect(t, 1, RNIC_CM_REQUEST)->conn;
	rnic_cm_accept(c[1], &qp_b, NULL, 0, t->g.now);
	cm_run(t, RIG_MS);
	expect(t, 0, RNIC_CM_RESPONSE);
	rnic_cm_establish(c[0], t->g.now);
	cm_run(t, 60 * RIG_S);
	expect(t, 1, RNIC_CM_UNREACHABLE);
	expect(t, 0, RNIC_CM_DISCONNECTED);
	drop_rtu = false;
	cm_rig_close(t);
	free(t);
}

/* --- a bad network ---------------------------------------------------------------------------------- */

struct fate {
	bool request, response, established, over;
};

static struct fate *fate_of(struct fate *f, struct rnic_cm_conn *c, struct rnic_cm_conn **known)
{
	unsigned i;

	for (i = 0; known[i] && known[i] != c; i++)
		assert_true(i < EVENTS - 1);
	known[i] = c;
	return &f[i];
}

/* Does what a user does with each event; nothing is told twice or out of order. */
static void live(struct cm_rig *t, int side, struct fate *f, struct rnic_cm_conn **known,
		 uint64_t *rnd)
{
	struct cm_side *s = &t->side[side];

	while (s->taken < s->ntold) {
		struct told *ev = &s->told[s->taken++];
		struct fate *at = fate_of(f, ev->conn, known);

		switch (ev->type) {
		case RNIC_CM_REQUEST:
			assert_false(at->request);
			at->request = true;
			if (rig_rnd(rnd) % 4 == 0) {
				rnic_cm_reject(ev->conn, WIRE_REJ_CONSUMER, NULL, 0, t->g.now);
				at->over = true;
			} else {
				assert_int_equal(rnic_cm_accept(ev->conn, &qp_b, NULL, 0, t->g.now),
						 0);
			}
			break;
		case RNIC_CM_RESPONSE:
			assert_false(at->response || at->over);
			at->response = true;
			assert_int_equal(rnic_cm_establish(ev->conn, t->g.now), 0);
			if (rig_rnd(rnd) % 2)
				rnic_cm_disconnect(ev->conn, t->g.now);
			break;
		case RNIC_CM_ESTABLISHED:
			assert_true(at->request && !at->established && !at->over);
			at->established = true;
			if (rig_rnd(rnd) % 2)
				rnic_cm_disconnect(ev->conn, t->g.now);
			break;
		case RNIC_CM_TIMEWAIT_EXIT:
			assert_true(at->over);
			rnic_cm_release(ev->conn, t->g.now);
			memset(at, 0, sizeof(*at));
			break;
		default:
			assert_false(at->over);
			at->over = true;
		}
	}
}

static void a_bad_network(uint64_t seed, unsigned loss)
{
	struct rnic_mem_config net = { .seed = seed,
				       .faults = { .loss = loss,
						   .duplicate = 100000,
						   .reorder = 200000,
						   .reorder_ns = 400 * RIG_MS,
						   .corrupt = 1000 } };
	struct rnic_cm_config cfg = { .max_conns = CONNS };
	struct cm_rig *t = calloc(1, sizeof(*t));
	struct fate *f[2] = { calloc(EVENTS, sizeof(*f[0])), calloc(EVENTS, sizeof(*f[0])) };
	struct rnic_cm_conn **known[2] = { calloc(EVENTS, sizeof(known[0][0])),
					   calloc(EVENTS, sizeof(known[0][0])) };
	uint64_t rnd = seed;
	unsigned i;

	cm_rig_open(t, &cfg, &net);
	listen_on(t, WIRE_RDMACM_PS_TCP, 0);
	for (i = 0; i < 40; i++) {
		start(t, "x");
		cm_run(t, rig_rnd(&rnd) % (300 * RIG_MS));
		live(t, 0, f[0], known[0], &rnd);
		live(t, 1, f[1], known[1], &rnd);
	}
	for (i = 0; i < 3000; i++) {
		cm_run(t, 100 * RIG_MS);
		live(t, 0, f[0], known[0], &rnd);
		live(t, 1, f[1], known[1], &rnd);
	}
	/* What is established on one side only has ended there by now: end the rest, and everything is free. */
	for (i = 0; i < EVENTS && known[0][i]; i++)
		if (f[0][i].response && !f[0][i].over)
			rnic_cm_disconnect(known[0][i], t->g.now);
	for (i = 0; i < 1000; i++) {
		cm_run(t, 100 * RIG_MS);
		live(t, 0, f[0], known[0], &rnd);
		live(t, 1, f[1], known[1], &rnd);
	}
	for (i = 0; i < EVENTS && known[1][i]; i++)
		if (f[1][i].established && !f[1][i].over)
			rnic_cm_disconnect(known[1][i], t->g.now);
	for (i = 0; i < 1000; i++) {
		cm_run(t, 100 * RIG_MS);
		live(t, 0, f[0], known[0], &rnd);
		live(t, 1, f[1], known[1], &rnd);
	}
	all_is_free(t);
	cm_rig_close(t);
	for (i = 0; i < 2; i++) {
		free(f[i]);
		free(known[i]);
	}
	free(t);
}

static void bad_networks(void **state)
{
	static const unsigned losses[] = { 0, 50000, 300000, 600000 };
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= 12; seed++)
		a_bad_network(seed, losses[seed % 4]);
}

/* --- hostile ---------------------------------------------------------------------------------------- */

struct flood {
	struct rnic_cm *cm;
	unsigned told, sent;
	struct rnic_cm_conn *last;
	uint32_t number; /* of ours in the last message sent */
};

static int flood_send(void *ctx, const struct rnic_path *p, const uint8_t *mad, uint64_t now)
{
	struct flood *f = ctx;

	(void)p;
	(void)now;
	f->sent++;
	f->number = wire_get_be32(mad + 24);
	return -EAGAIN;
}

static int flood_event(void *ctx, const struct rnic_cm_event *ev)
{
	struct flood *f = ctx;

	f->told++;
	f->last = ev->conn;
	return 0;
}

static void flood_open(struct flood *f, struct rnic_cm_config cfg)
{
	struct rnic_cm_listener *l;

	memset(f, 0, sizeof(*f));
	cfg.send = flood_send;
	cfg.event = flood_event;
	cfg.ctx = f;
	assert_int_equal(rnic_cm_open(&f->cm, &cfg), 0);
	assert_int_equal(rnic_cm_listen(f->cm, WIRE_RDMACM_PS_TCP, any_gid, PORT, 0, NULL, &l), 0);
}

static void make_req(struct wire_cm *m, const struct rnic_path *back, uint32_t id)
{
	struct wire_rdmacm h = { .ip_version = 4, .sport = 1 };

	memset(m, 0, sizeof(*m));
	m->attr = WIRE_CM_REQ;
	m->u.req.local_id = id;
	m->u.req.qpn = 0x99;
	m->u.req.path_mtu = 3;
	m->u.req.service_id = wire_rdmacm_service_id(WIRE_RDMACM_PS_TCP, PORT);
	memcpy(m->u.req.local_gid, back->dst, 16);
	memcpy(m->u.req.remote_gid, back->src, 16);
	memcpy(h.src, back->dst, 16);
	memcpy(h.dst, back->src, 16);
	wire_rdmacm_encode(&h, m->u.req.priv);
}

static void give(struct rnic_cm *cm, const struct rnic_path *back, const struct wire_cm *m,
		 uint64_t now)
{
	uint8_t mad[WIRE_MAD_LEN];

	assert_int_equal(wire_cm_encode(m, mad), 0);
	rnic_cm_receive(cm, back, mad, sizeof(mad), now);
}

static struct rnic_path path_from(uint8_t host)
{
	return (struct rnic_path){ .src = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 2 },
				   .dst = { [10] = 0xff, [11] = 0xff, 10, 0, 1, host } };
}

static void floods_of_requests_are_bounded(void **state)
{
	struct rnic_cm_config cfg = { .max_conns = 512,
				      .max_half_open = 200,
				      .max_half_open_peer = 50 };
	struct rnic_path back = path_from(7);
	struct wire_cm m;
	struct flood f;
	uint32_t i;

	(void)state;
	flood_open(&f, cfg);
	for (i = 1; i <= 100000; i++) {
		make_req(&m, &back, i);
		give(f.cm, &back, &m, i);
	}
	assert_int_equal(f.told, 50);
	assert_int_equal(rnic_cm_counters(f.cm)->half_open_refused, 100000 - 50);
	/* Others still get in, up to the limit for all. */
	for (i = 0; i < 250; i++) {
		back = path_from((uint8_t)i);
		make_req(&m, &back, 0x1000000 + i);
		give(f.cm, &back, &m, 200000);
	}
	assert_int_equal(f.told, 200);
	/* One that is answered makes no room, one that is established does. */
	assert_int_equal(rnic_cm_accept(f.last, &qp_b, NULL, 0, 300000), 0);
	back = path_from(251);
	make_req(&m, &back, 1);
	give(f.cm, &back, &m, 300000);
	assert_int_equal(f.told, 200);
	rnic_cm_data_seen(f.last, 300000);
	give(f.cm, &back, &m, 300000);
	assert_int_equal(f.told, 202);
	/* All that nobody answers is over in time. */
	for (i = 0; i < 100; i++)
		rnic_cm_step(f.cm, i * RIG_S);
	f.told = 0;
	for (i = 0; i < 40; i++) {
		back = path_from((uint8_t)i);
		make_req(&m, &back, 0x2000000 + i);
		give(f.cm, &back, &m, 100 * RIG_S);
	}
	assert_int_equal(f.told, 40);
	rnic_cm_close(f.cm);
}

/* Requests of which nobody may be told. */
static void give_bad_requests(struct flood *f, const struct rnic_path *back,
			      const struct rnic_path *other)
{
	struct wire_cm m;

	/* A source that its sender does not have. */
	make_req(&m, back, 5);
	give(f->cm, other, &m, 0);
	assert_int_equal(f->told, 0);
	assert_int_equal(rnic_cm_counters(f->cm)->rx_spoofed, 1);
	make_req(&m, back, 5);
	m.u.req.qpn = 0;
	give(f->cm, back, &m, 0);
	make_req(&m, back, 5);
	m.u.req.path_mtu = 9;
	give(f->cm, back, &m, 0);
	make_req(&m, back, 5);
	m.u.req.transport = WIRE_CM_TRANSPORT_UC;
	give(f->cm, back, &m, 0);
	make_req(&m, back, 5);
	m.u.req.priv[0] = 1;
	give(f->cm, back, &m, 0);
	assert_int_equal(f->told, 0);
	assert_int_equal(f->sent, 5);
}

static void messages_count_only_from_the_peer(void **state)
{
	struct rnic_path back = path_from(7), other = path_from(8);
	struct wire_cm m, reply = { .attr = WIRE_CM_RTU };
	struct flood f;
	uint32_t mine;

	(void)state;
	flood_open(&f, (struct rnic_cm_config){ .max_conns = 1 });
	give_bad_requests(&f, &back, &other);
	make_req(&m, &back, 5);
	give(f.cm, &back, &m, 0);
	assert_int_equal(f.told, 1);
	assert_int_equal(rnic_cm_accept(f.last, &qp_b, NULL, 0, 0), 0);
	mine = f.number;
	reply.u.rtu.local_id = 5;
	reply.u.rtu.remote_id = mine;
	give(f.cm, &other, &reply, 0);
	reply.u.rtu.local_id = 6;
	give(f.cm, &back, &reply, 0);
	reply.u.rtu.local_id = 5;
	reply.u.rtu.remote_id = mine + 1;
	give(f.cm, &back, &reply, 0);
	assert_int_equal(f.told, 1);
	reply.u.rtu.remote_id = mine;
	give(f.cm, &back, &reply, 0);
	assert_int_equal(f.told, 2);

	memset(&reply, 0, sizeof(reply));
	reply.attr = WIRE_CM_DREQ;
	reply.u.dreq.local_id = 5;
	reply.u.dreq.remote_id = mine;
	reply.u.dreq.remote_qpn = qp_b.qpn + 1;
	give(f.cm, &back, &reply, 0);
	reply.u.dreq.remote_qpn = qp_b.qpn;
	give(f.cm, &other, &reply, 0);
	assert_int_equal(f.told, 2);
	give(f.cm, &back, &reply, 0);
	assert_int_equal(f.told, 3);
	give(f.cm, &back, &reply, 0);
	assert_int_equal(f.told, 3);
	rnic_cm_close(f.cm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_connection_is_made_and_ended),
		cmocka_unit_test(both_may_end_it_at_once),
		cmocka_unit_test(a_released_connection_is_ended_properly),
		cmocka_unit_test(requests_are_refused_with_a_reason),
		cmocka_unit_test(ports_are_taken_once),
		cmocka_unit_test(requests_outlive_their_listener),
		cmocka_unit_test(datagram_ports_answer_with_a_number),
		cmocka_unit_test(the_smaller_mtu_is_agreed_on),
		cmocka_unit_test(a_silent_peer_is_given_up),
		cmocka_unit_test(a_peer_that_is_known_to_be_gone),
		cmocka_unit_test(an_application_that_does_not_answer),
		cmocka_unit_test(data_is_as_good_as_an_rtu),
		cmocka_unit_test(bad_networks),
		cmocka_unit_test(floods_of_requests_are_bounded),
		cmocka_unit_test(messages_count_only_from_the_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
