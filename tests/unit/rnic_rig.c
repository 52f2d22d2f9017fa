/* SPDX-License-Identifier: BSD-3-Clause */
#include "rnic_rig.h"

uint64_t rig_rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s * UINT64_C(0x2545f4914f6cdd1d);
}

static uint64_t side_random(void *ctx)
{
	struct rig_side *s = ctx;

	return rig_rnd(&s->rnd);
}

static void side_event(void *ctx, const struct rnic_event *ev)
{
	struct rig_side *s = ctx;

	if (s->nevents < RIG_EVENTS)
		s->events[s->nevents++] = ev->type;
}

bool rig_saw(const struct rig *g, int side, enum rnic_event_type type)
{
	unsigned i;

	for (i = 0; i < g->side[side].nevents; i++)
		if (g->side[side].events[i] == type)
			return true;
	return false;
}

static void open_side(struct rig *g, int i, const struct rnic_config *dev)
{
	struct rnic_config cfg = dev ? *dev : (struct rnic_config){ 0 };
	struct rnic_wire *port = rnic_mem_port(g->net);
	struct rig_side *s = &g->side[i];
	const uint8_t gid[16] = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(i + 1) };

	memcpy(s->gid[0], gid, 16);
	s->rnd = 77 + (uint64_t)i;
	cfg.gids = (const uint8_t(*)[16])s->gid;
	cfg.ngids = 1;
	cfg.random = side_random;
	cfg.event = side_event;
	cfg.ctx = s;
	if (g->far_sides & 1u << i)
		assert_int_equal(
			cpu_copier_open(RIG_STAGING, g->far_seed + (uint64_t)i, &s->copier), 0);
	cfg.copier = s->copier;
	assert_int_equal(rnic_open(&s->r, &cfg, port), 0);
	assert_int_equal(rnic_mem_attach(g->net, port, gid, s->r), 0);
	assert_int_equal(rnic_pd_create(s->r, &s->pd), 0);
	assert_int_equal(rnic_cq_create(s->r, 4096, &s->scq), 0);
	assert_int_equal(rnic_cq_create(s->r, 4096, &s->rcq), 0);
	s->block = malloc(RIG_MEM + 2 * RIG_GUARD);
	assert_non_null(s->block);
	memset(s->block, 0xa5, RIG_MEM + 2 * RIG_GUARD);
	s->mem = s->block + RIG_GUARD;
	memset(s->mem, 0, RIG_MEM);
	if (s->copier) {
		assert_int_equal(cpu_copier_add(s->copier, s->mem, RIG_MEM, &s->far), 0);
		assert_int_equal(rnic_mr_create_far(s->pd, s->far, RIG_MEM, RIG_IOVA,
						    RNIC_ACCESS_ALL, &s->mr),
				 0);
		return;
	}
	assert_int_equal(rnic_mr_create(s->pd, s->mem, RIG_MEM, RIG_IOVA, RNIC_ACCESS_ALL, &s->mr),
			 0);
}

void rig_open(struct rig *g, const struct rnic_config *dev, const struct rnic_mem_config *net)
{
	g->far_sides = 0;
	rig_open_far(g, dev, net);
}

void rig_open_far(struct rig *g, const struct rnic_config *dev, const struct rnic_mem_config *net)
{
	struct rnic_mem_config cfg = net ? *net : (struct rnic_mem_config){ .seed = 1 };
	unsigned far_sides = g->far_sides;
	uint64_t far_seed = g->far_seed;
	int i;

	memset(g, 0, sizeof(*g));
	g->far_sides = far_sides;
	g->far_seed = far_seed;
	g->now = 1000;
	if (!cfg.faults.delay_ns)
		cfg.faults.delay_ns = 1000;
	assert_int_equal(rnic_mem_create(&cfg, &g->net), 0);
	for (i = 0; i < 2; i++)
		open_side(g, i, dev);
}

static void close_side(struct rig_side *s)
{
	size_t i;

	for (i = 0; i < RIG_GUARD; i++) {
		assert_int_equal(s->block[i], 0xa5);
		assert_int_equal(s->mem[RIG_MEM + i], 0xa5);
	}
	rnic_mr_destroy(s->mr);
	assert_int_equal(rnic_cq_destroy(s->scq), 0);
	assert_int_equal(rnic_cq_destroy(s->rcq), 0);
	assert_int_equal(rnic_close(s->r), -EBUSY);
	assert_int_equal(rnic_pd_destroy(s->pd), 0);
	assert_int_equal(rnic_close(s->r), 0);
	if (s->copier)
		s->copier->ops->close(s->copier);
	free(s->block);
}

void rig_close(struct rig *g)
{
	close_side(&g->side[0]);
	close_side(&g->side[1]);
	rnic_mem_destroy(g->net);
}

bool rig_run(struct rig *g, uint64_t ns)
{
	uint64_t end = g->now + ns;

	for (;;) {
		uint64_t a = rnic_step(g->side[0].r, g->now, 1000);
		uint64_t b = rnic_step(g->side[1].r, g->now, 1000);
		uint64_t next = rnic_mem_step(g->net, g->now);

		next = a < next ? a : next;
		next = b < next ? b : next;
		/* A delivery may have made work for a device that has run already. */
		a = rnic_step(g->side[0].r, g->now, 0);
		b = rnic_step(g->side[1].r, g->now, 0);
		next = a < next ? a : next;
		next = b < next ? b : next;
		if (next == UINT64_MAX)
			return true;
		if (next > end) {
			g->now = end;
			return false;
		}
		if (next > g->now)
			g->now = next;
	}
}

/* --- queue pairs -------------------------------------------------------------------------------- */

static unsigned or_default(unsigned v, unsigned d)
{
	return v ? v : d;
}

static void connect_one(struct rig *g, const struct rig_qp *w, struct rnic_qp *qp[2], int i)
{
	static const uint32_t first[2] = { 0x100, 0x200 };
	struct rnic_qp_attr a = {
		.state = RNIC_QPS_INIT,
		.access = or_default(w->access, RNIC_ACCESS_ALL),
		.mtu = or_default(w->mtu, 1024),
		.dest_qpn = rnic_qp_num(qp[1 - i]),
		.rq_psn = or_default(w->psn[1 - i], first[1 - i]) & WIRE_PSN_MASK,
		.sq_psn = or_default(w->psn[i], first[i]) & WIRE_PSN_MASK,
		.timeout = or_default(w->timeout, 10),
		.retry = w->no_retry ? 0 : or_default(w->retry, 7),
		.rnr_retry = w->no_retry ? 0 : or_default(w->rnr_retry, 7),
		.min_rnr = or_default(w->min_rnr, 1),
		.rd_atomic = or_default(w->rd_atomic, 4),
		.dest_rd_atomic = or_default(w->rd_atomic, 4),
		.qkey = 0x1234,
	};

	memcpy(a.path.src, g->side[i].gid[0], 16);
	memcpy(a.path.dst, g->side[1 - i].gid[0], 16);
	assert_int_equal(rnic_qp_modify(qp[i], &a,
					RNIC_ATTR_STATE | RNIC_ATTR_ACCESS | RNIC_ATTR_QKEY,
					g->now),
			 0);
	a.state = RNIC_QPS_RTR;
	assert_int_equal(rnic_qp_modify(qp[i], &a,
					RNIC_ATTR_STATE | RNIC_ATTR_PATH | RNIC_ATTR_MTU |
						RNIC_ATTR_DEST_QPN | RNIC_ATTR_RQ_PSN |
						RNIC_ATTR_MIN_RNR | RNIC_ATTR_DEST_RD_ATOMIC,
					g->now),
			 0);
	a.state = RNIC_QPS_RTS;
	assert_int_equal(rnic_qp_modify(qp[i], &a,
					RNIC_ATTR_STATE | RNIC_ATTR_SQ_PSN | RNIC_ATTR_TIMEOUT |
						RNIC_ATTR_RETRY | RNIC_ATTR_RNR_RETRY |
						RNIC_ATTR_RD_ATOMIC,
					g->now),
			 0);
}

void rig_pair(struct rig *g, const struct rig_qp *with, struct rnic_qp *qp[2])
{
	struct rig_qp none = { 0 };
	const struct rig_qp *w = with ? with : &none;
	int i;

	for (i = 0; i < 2; i++) {
		struct rnic_qp_init in = {
			.type = w->type ? w->type : RNIC_QP_RC,
			.send_cq = g->side[i].scq,
			.recv_cq = g->side[i].rcq,
			.srq = w->srq[i],
			.max_send_wr = or_default(w->send_depth, or_default(w->depth, 64)),
			.max_recv_wr = or_default(w->depth, 64),
			.max_send_sge = 4,
			.max_recv_sge = or_default(w->recv_sge, 4),
			.max_inline = 256,
			.sq_sig_all = w->sig_all,
		};

		if (w->queues && i == 0) {
			in.queues = w->queues;
			in.send_cq = in.recv_cq = w->queues_cq;
		}
		assert_int_equal(rnic_qp_create(g->side[i].pd, &in, &qp[i]), 0);
	}
	connect_one(g, w, qp, 0);
	connect_one(g, w, qp, 1);
}

void rig_unpair(struct rnic_qp *qp[2])
{
	rnic_qp_destroy(qp[0]);
	rnic_qp_destroy(qp[1]);
}

int rig_post(struct rig *g, int side, struct rnic_qp *qp, enum rnic_wr_opcode op, size_t off,
	     uint32_t len, size_t roff, uint64_t wr_id)
{
	struct rnic_sge sge = rig_sge(g, side, off, len);
	struct rnic_send_wr wr = {
		.wr_id = wr_id,
		.opcode = op,
		.flags = RNIC_SEND_SIGNALED,
		.sge = &sge,
		.nsge = len ? 1 : 0,
		.imm = (uint32_t)wr_id ^ 0x51515151,
		.raddr = rig_va(roff),
		.rkey = rnic_mr_rkey(g->side[1 - side].mr),
	};

	return rnic_post_send(qp, &wr, g->now);
}

int rig_recv(struct rig *g, int side, struct rnic_qp *qp, size_t off, uint32_t len, uint64_t wr_id)
{
	struct rnic_sge sge = rig_sge(g, side, off, len);

	return rnic_post_recv(qp, wr_id, &sge, len ? 1 : 0);
}

struct rnic_wc rig_expect(struct rnic_cq *cq, uint64_t wr_id, enum rnic_wc_status status)
{
	struct rnic_wc wc = { 0 };

	assert_int_equal(rnic_cq_poll(cq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.status, status);
	return wc;
}

void rig_expect_none(struct rnic_cq *cq)
{
	struct rnic_wc wc;

	assert_int_equal(rnic_cq_poll(cq, &wc, 1), 0);
}

void rig_fill(struct rig *g, int side, uint64_t seed)
{
	uint64_t s = seed * 2 + 1;
	size_t i;

	for (i = 0; i < RIG_MEM; i++)
		g->side[side].mem[i] = (uint8_t)(rig_rnd(&s) >> 56);
}
