/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connection manager under a stranger's datagrams. Input: records of {control, control, length, MAD bytes from its
 * attribute id on}. Control says what is put right (numbers, addresses) so that mutations get past the first checks, what
 * the caller does with what it is told, and how the time goes on. Nothing is told of a connection that was released, what
 * is sent is well-formed, and in the end every connection is free again.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "rnic/cm.h"
#include "wire/bytes.h"
#include "wire/cm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CONNS = 8, PORT = 7471, MAD_BODY = 24 };

enum control {
	FIX_LOCAL = 1 << 0,  /* the peer's number in the message is the one of the REQ */
	FIX_REMOTE = 1 << 1, /* our number is that of the last connection */
	FIX_REQ = 1 << 2,    /* addresses, service and header of a request */
	FIX_QPN = 1 << 3,
	OTHER_PEER = 1 << 4,
	ACT_SHIFT = 5, /* 0..7: what the caller does before */
};

struct rig {
	struct rnic_cm *cm;
	struct rnic_cm_conn *held[CONNS];
	uint32_t number; /* ours in the last message that began a conversation */
	uint64_t now, rnd;
};

static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

static const uint8_t any[16];
static const uint8_t ours[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 };
static const uint8_t peers[2][16] = { { [10] = 0xff, [11] = 0xff, 10, 0, 0, 2 },
				      { [10] = 0xff, [11] = 0xff, 10, 0, 0, 3 } };

static int sink(void *ctx, const struct rnic_path *path, const uint8_t *mad, uint64_t now)
{
	struct rig *g = ctx;
	struct wire_cm m;

	(void)now;
	must(wire_cm_decode(&m, mad, WIRE_MAD_LEN) == 0);
	must(memcmp(path->src, ours, 16) == 0);
	if (m.attr == WIRE_CM_REQ || m.attr == WIRE_CM_REP || m.attr == WIRE_CM_SIDR_REQ)
		g->number = wire_get_be32(mad + MAD_BODY);
	return 0;
}

static int told(void *ctx, const struct rnic_cm_event *ev)
{
	struct rig *g = ctx;
	unsigned i;

	for (i = 0; i < CONNS; i++)
		if (g->held[i] == ev->conn)
			break;
	if (ev->type != RNIC_CM_REQUEST) {
		must(i < CONNS);
		return 0;
	}
	must(i == CONNS);
	for (i = 0; i < CONNS && g->held[i]; i++)
		;
	if (i == CONNS)
		return -1;
	g->held[i] = ev->conn;
	return 0;
}

static uint64_t rnd(void *ctx)
{
	struct rig *g = ctx;

	g->rnd = g->rnd * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return g->rnd >> 16;
}

static void connect_out(struct rig *g)
{
	struct rnic_cm_route to = { .port_space = WIRE_RDMACM_PS_TCP, .dport = PORT };
	const struct rnic_cm_qp mine = { .qpn = 0x11 };
	unsigned i;

	for (i = 0; i < CONNS && g->held[i]; i++)
		;
	if (i == CONNS)
		return;
	memcpy(to.path.src, ours, 16);
	memcpy(to.path.dst, peers[0], 16);
	if (rnic_cm_connect(g->cm, &to, &mine, NULL, 0, NULL, &g->held[i], g->now))
		g->held[i] = NULL;
}

static void act(struct rig *g, unsigned what, unsigned which)
{
	const struct rnic_cm_qp mine = { .qpn = 0x11 };
	struct rnic_cm_conn *c = g->held[which % CONNS];

	if (what == 1)
		connect_out(g);
	if (!c || what < 2)
		return;
	switch (what) {
	case 2:
		rnic_cm_accept(c, &mine, NULL, 0, g->now);
		break;
	case 3:
		rnic_cm_establish(c, g->now);
		break;
	case 4:
		rnic_cm_reject(c, WIRE_REJ_CONSUMER, NULL, 0, g->now);
		break;
	case 5:
		rnic_cm_disconnect(c, g->now);
		break;
	case 6:
		rnic_cm_data_seen(c, g->now);
		break;
	default:
		g->held[which % CONNS] = NULL;
		rnic_cm_release(c, g->now);
	}
}

static void fix(struct rig *g, unsigned control, uint8_t *mad, const uint8_t peer[16])
{
	uint16_t attr = wire_get_be16(mad + 16);
	uint8_t *p = mad + MAD_BODY;
	bool sidr = attr == WIRE_CM_SIDR_REQ;
	struct wire_rdmacm h = { .ip_version = 4, .sport = 9 };

	if (control & FIX_LOCAL)
		wire_put_be32(p, attr == WIRE_CM_SIDR_REP ? g->number : 0x77);
	if (control & FIX_REMOTE && attr != WIRE_CM_REQ)
		wire_put_be32(p + 4, g->number);
	if (control & FIX_QPN && attr == WIRE_CM_DREQ)
		wire_put_be24(p + 8, 0x11);
	if (!(control & FIX_REQ) || (attr != WIRE_CM_REQ && !sidr))
		return;
	memcpy(h.src, peer, 16);
	memcpy(h.dst, ours, 16);
	wire_put_be64(p + 8,
		      wire_rdmacm_service_id(sidr ? WIRE_RDMACM_PS_UDP : WIRE_RDMACM_PS_TCP, PORT));
	wire_rdmacm_encode(&h, p + (sidr ? 16 : 140));
	if (sidr)
		return;
	memcpy(p + 56, peer, 16);
	memcpy(p + 72, ours, 16);
	p[35 - 1] |= 1;
	p[43] &= 0xf9;
	p[50] = (uint8_t)(p[50] & 0xf) | 0x30;
	wire_put_be16(p + 96, 0);
}

static void datagram(struct rig *g, unsigned control, const uint8_t *data, size_t len)
{
	struct rnic_path back = { .flow = 0 };
	uint8_t mad[WIRE_MAD_LEN] = { 1, 7, 2, 3 };
	const uint8_t *peer = peers[control & OTHER_PEER ? 1 : 0];

	memcpy(mad + 16, data, len < WIRE_MAD_LEN - 16 ? len : WIRE_MAD_LEN - 16);
	mad[16] = 0;
	mad[17] = (uint8_t)(0x10 | (mad[17] & 15));
	memcpy(back.src, ours, 16);
	memcpy(back.dst, peer, 16);
	fix(g, control, mad, peer);
	rnic_cm_receive(g->cm, &back, mad, WIRE_MAD_LEN, g->now);
}

static void finish(struct rig *g)
{
	struct rnic_cm_conn *c[CONNS];
	struct rnic_cm_route to = { .port_space = WIRE_RDMACM_PS_TCP };
	const struct rnic_cm_qp mine = { .qpn = 1 };
	unsigned i;
	uint64_t next;

	for (i = 0; i < CONNS; i++)
		act(g, 7, i);
	for (i = 0; i < 1000 && (next = rnic_cm_step(g->cm, g->now)) != UINT64_MAX; i++)
		g->now = next > g->now ? next : g->now;
	must(i < 1000);
	memcpy(to.path.src, ours, 16);
	for (i = 0; i < CONNS; i++)
		must(rnic_cm_connect(g->cm, &to, &mine, NULL, 0, NULL, &c[i], g->now) == 0);
	rnic_cm_close(g->cm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rig g = { .now = 1 };
	struct rnic_cm_config cfg = {
		.max_conns = CONNS, .send = sink, .event = told, .random = rnd, .ctx = &g
	};
	struct rnic_cm_listener *l;

	must(rnic_cm_open(&g.cm, &cfg) == 0);
	must(rnic_cm_listen(g.cm, WIRE_RDMACM_PS_TCP, any, PORT, 0, NULL, &l) == 0);
	must(rnic_cm_listen(g.cm, WIRE_RDMACM_PS_UDP, any, PORT, 0, NULL, &l) == 0);
	while (size >= 3) {
		unsigned control = data[0], more = data[1];
		size_t len = data[2];

		data += 3;
		size -= 3;
		len = len > size ? size : len;
		act(&g, control >> ACT_SHIFT, more & 7);
		datagram(&g, control, data, len);
		data += len;
		size -= len;
		if (more & 0x80)
			g.now += UINT64_C(1) << (20 + (more >> 3 & 15));
		rnic_cm_step(g.cm, g.now);
	}
	finish(&g);
	return 0;
}
