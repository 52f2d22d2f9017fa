/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conversations of rdma_rxe in tests/data/roce/golden.pcap: our connection management plays either side and must say
 * the same, to the byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/cm.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/pcap.h"
#include "wire/roce.h"

static const uint8_t any_gid[16];

enum { TALK = 16 };

struct line {
	struct wire_cm m;
	uint8_t mad[WIRE_MAD_LEN];
	uint8_t src[16], dst[16];
};

struct talk {
	struct line line[TALK];
	unsigned n;
};

struct actor {
	struct rnic_cm *cm;
	struct rnic_cm_conn *conn;
	uint64_t rnd[2]; /* what the random source says: number, TID */
	unsigned rnds;
	uint8_t said[TALK][WIRE_MAD_LEN];
	unsigned nsaid;
};

static int actor_send(void *ctx, const struct rnic_path *p, const uint8_t *mad, uint64_t now)
{
	struct actor *a = ctx;

	(void)p;
	(void)now;
	assert_true(a->nsaid < TALK);
	memcpy(a->said[a->nsaid++], mad, WIRE_MAD_LEN);
	return 0;
}

static int actor_event(void *ctx, const struct rnic_cm_event *ev)
{
	struct actor *a = ctx;

	a->conn = ev->conn;
	return 0;
}

static uint64_t actor_random(void *ctx)
{
	struct actor *a = ctx;

	return a->rnd[a->rnds++ % 2];
}

/* Number and TID that the actor's side used in the conversation. */
static void learn(struct actor *a, const struct talk *t, bool passive)
{
	unsigned i;

	for (i = 0; i < t->n; i++) {
		const struct wire_cm *m = &t->line[i].m;
		bool by_passive = memcmp(t->line[i].src, t->line[0].src, 16) != 0;

		if (by_passive != passive)
			continue;
		/* Each message begins with its sender's number. */
		if (m->attr != WIRE_CM_SIDR_REP)
			a->rnd[0] = wire_get_be32(t->line[i].mad + 24);
		if (m->attr == WIRE_CM_REQ || m->attr == WIRE_CM_SIDR_REQ ||
		    m->attr == WIRE_CM_DREQ)
			a->rnd[1] = m->tid;
	}
}

static struct rnic_cm_qp told_by(const struct wire_cm_req *q)
{
	return (struct rnic_cm_qp){ .qpn = q->qpn,
				    .psn = q->psn,
				    .responder_resources = q->responder_resources,
				    .initiator_depth = q->initiator_depth,
				    .retry = q->retry_count,
				    .rnr_retry = q->rnr_retry,
				    .flow_control = q->flow_control,
				    .srq = q->srq,
				    .mtu = q->path_mtu,
				    .ack_timeout = q->ack_timeout };
}

static void say_req(struct actor *a, const struct line *l)
{
	const struct wire_cm_req *q = &l->m.u.req;
	bool datagram = l->m.attr == WIRE_CM_SIDR_REQ;
	const uint8_t *priv = datagram ? l->m.u.sidr_req.priv : q->priv;
	struct rnic_cm_route to = { .path = { .flow = 0 } };
	struct rnic_cm_qp mine = { 0 };
	struct wire_rdmacm h;

	memcpy(to.path.src, l->src, 16);
	memcpy(to.path.dst, l->dst, 16);
	if (!datagram) {
		to.path.flow = q->flow_label;
		to.path.tclass = q->traffic_class;
		mine = told_by(q);
	}
	assert_true(wire_rdmacm_from_service_id(
		datagram ? l->m.u.sidr_req.service_id : q->service_id, &to.port_space, &to.dport));
	assert_int_equal(wire_rdmacm_decode(&h, priv, WIRE_RDMACM_LEN), 0);
	to.sport = h.sport;
	assert_int_equal(rnic_cm_connect(a->cm, &to, &mine, priv + WIRE_RDMACM_LEN,
					 datagram ? 180 : 56, NULL, &a->conn, 0),
			 0);
}

static void say_answer(struct actor *a, const struct line *l)
{
	struct rnic_cm_qp mine = { 0 };

	assert_non_null(a->conn);
	if (l->m.attr == WIRE_CM_SIDR_REP) {
		const struct wire_cm_sidr_rep *s = &l->m.u.sidr_rep;

		mine.qpn = s->qpn;
		mine.qkey = s->qkey;
		assert_int_equal(rnic_cm_accept(a->conn, &mine, s->priv, sizeof(s->priv), 0), 0);
	} else {
		const struct wire_cm_rep *r = &l->m.u.rep;

		mine.qpn = r->qpn;
		mine.psn = r->psn;
		mine.responder_resources = r->responder_resources;
		mine.initiator_depth = r->initiator_depth;
		mine.rnr_retry = r->rnr_retry;
		mine.flow_control = r->flow_control;
		mine.srq = r->srq;
		assert_int_equal(rnic_cm_accept(a->conn, &mine, r->priv, sizeof(r->priv), 0), 0);
	}
}

/* The actor says what the capture has next. Answers to a DREQ and to a bad port come by themselves. */
static void say(struct actor *a, const struct line *l)
{
	switch (l->m.attr) {
	case WIRE_CM_REQ:
	case WIRE_CM_SIDR_REQ:
		say_req(a, l);
		break;
	case WIRE_CM_REP:
	case WIRE_CM_SIDR_REP:
		say_answer(a, l);
		break;
	case WIRE_CM_RTU:
		assert_int_equal(rnic_cm_establish(a->conn, 0), 0);
		break;
	case WIRE_CM_DREQ:
		assert_int_equal(rnic_cm_disconnect(a->conn, 0), 0);
		break;
	default:
		break;
	}
}

static void play(const struct talk *t, bool passive)
{
	struct actor a = { 0 };
	struct rnic_cm_config cfg = { .max_conns = 1,
				      .send = actor_send,
				      .event = actor_event,
				      .random = actor_random,
				      .ctx = &a };
	bool listens = t->line[1].m.attr != WIRE_CM_REJ;
	struct rnic_cm_listener *l;
	uint16_t ps = 0, port = 0;
	unsigned i, said = 0;

	learn(&a, t, passive);
	a.rnd[0] += !a.rnd[0]; /* nothing to learn where it is not told */
	if (t->line[1].m.attr == WIRE_CM_REP)
		cfg.guid = passive ? t->line[1].m.u.rep.ca_guid : t->line[0].m.u.req.ca_guid;
	else if (t->line[0].m.attr == WIRE_CM_REQ)
		cfg.guid = t->line[0].m.u.req.ca_guid;
	assert_int_equal(rnic_cm_open(&a.cm, &cfg), 0);
	assert_true(wire_rdmacm_from_service_id(t->line[0].m.attr == WIRE_CM_SIDR_REQ
							? t->line[0].m.u.sidr_req.service_id
							: t->line[0].m.u.req.service_id,
						&ps, &port));
	if (passive && listens)
		assert_int_equal(rnic_cm_listen(a.cm, ps, any_gid, port, 0, NULL, &l), 0);
	for (i = 0; i < t->n; i++) {
		const struct line *ln = &t->line[i];
		bool by_passive = memcmp(ln->src, t->line[0].src, 16) != 0;
		struct rnic_path back = { .flow = 0 };

		if (by_passive == passive) {
			say(&a, ln);
			assert_true(said < a.nsaid);
			assert_memory_equal(a.said[said], ln->mad, WIRE_MAD_LEN);
			said++;
			continue;
		}
		memcpy(back.src, ln->dst, 16);
		memcpy(back.dst, ln->src, 16);
		rnic_cm_receive(a.cm, &back, ln->mad, WIRE_MAD_LEN, 0);
	}
	/* A capture may have been cut before the answer to a DREQ. */
	assert_int_equal(said + (t->line[t->n - 1].m.attr == WIRE_CM_DREQ), a.nsaid);
	rnic_cm_close(a.cm);
}

/* Puts a message into the conversation that it belongs to: they share the active side's number. */
static void sort_line(struct talk *talks, unsigned *n, const struct line *l)
{
	uint32_t id = wire_get_be32(l->mad + 24), other = wire_get_be32(l->mad + 28);
	unsigned i;

	for (i = *n; i-- > 0;) {
		uint32_t active = wire_get_be32(talks[i].line[0].mad + 24);

		if (l->m.attr != WIRE_CM_REQ && l->m.attr != WIRE_CM_SIDR_REQ &&
		    (id == active || other == active)) {
			assert_true(talks[i].n < TALK);
			talks[i].line[talks[i].n++] = *l;
			return;
		}
	}
	talks[*n].line[0] = *l;
	talks[(*n)++].n = 1;
}

static unsigned read_talks(const char *path, struct talk *talks, unsigned max)
{
	struct wire_pcap_reader rd;
	uint8_t *file = malloc(1 << 20);
	FILE *f = fopen(path, "rb");
	const uint8_t *frame;
	unsigned n = 0;
	int64_t len;

	assert_non_null(f);
	len = (int64_t)fread(file, 1, 1 << 20, f);
	fclose(f);
	assert_int_equal(wire_pcap_open(&rd, file, (size_t)len), 0);
	while ((len = wire_pcap_next(&rd, &frame)) >= 0) {
		struct wire_frame fr;
		struct wire_roce r;
		struct line l;

		if (wire_frame_decode(&fr, frame, (size_t)len) ||
		    wire_roce_decode(&r, frame + fr.hdr_len, fr.payload_len) ||
		    r.bth.dqpn != WIRE_CM_QPN_GSI)
			continue;
		assert_int_equal(wire_cm_decode(&l.m, r.payload, r.payload_len), 0);
		memcpy(l.mad, r.payload, WIRE_MAD_LEN);
		memcpy(l.src, fr.ip.src, 16);
		memcpy(l.dst, fr.ip.dst, 16);
		assert_true(n < max);
		sort_line(talks, &n, &l);
	}
	free(file);
	return n;
}

/* Whether both sent a DREQ and this side's came second: it had not seen the other's, which a replay cannot show. */
static bool crossed(const struct talk *t, bool passive)
{
	bool other = false;
	unsigned i;

	for (i = 0; i < t->n; i++) {
		bool mine = (memcmp(t->line[i].src, t->line[0].src, 16) != 0) == passive;

		if (t->line[i].m.attr != WIRE_CM_DREQ)
			continue;
		if (mine && other)
			return true;
		other |= !mine;
	}
	return false;
}

static void the_conversations_of_linux(void **state)
{
	struct talk *talks = calloc(32, sizeof(*talks));
	unsigned i, n = read_talks(GPUNET_TEST_DATA "/roce/golden.pcap", talks, 32);

	(void)state;
	assert_true(n >= 10);
	for (i = 0; i < n; i++) {
		const struct talk *t = &talks[i];

		/* One process that is not Linux takes another TID for its DREQ. */
		if (t->line[0].m.tid != UINT64_C(0x1234567800000001))
			play(t, false);
		if (!crossed(t, true))
			play(t, true);
	}
	free(talks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_conversations_of_linux),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
