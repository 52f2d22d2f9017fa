/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs: creation, numbers, states, posting of sends, the way into error. */
#include "rnic/impl.h"

#include <errno.h>
#include <string.h>

#include "wire/cm.h"
#include "wire/mlx5.h"

/* Slots below this one are not given out: QPNs 0 and 1 are special, and Linux peers start at 16, too. */
enum { FIRST_SLOT = 16, DEFAULT_HOPS = 64, ECT0 = 2 };

/* --- numbers ------------------------------------------------------------------------------------ */

struct rnic_qp *rnic_qp_find(struct rnic *r, uint32_t num)
{
	struct rnic_qp *qp;

	if (num == WIRE_CM_QPN_GSI)
		return r->gsi;
	qp = r->qps[num & (r->qp_slots - 1)];
	return qp && qp->num == num ? qp : NULL;
}

/*
 * A number is prefix, then random bits, then the slot. Slots are taken round robin and the random bits differ each
 * time, so that a late packet for a queue pair that is gone hardly ever finds another in its place.
 */
static int number_take(struct rnic *r, struct rnic_qp *qp)
{
	uint32_t i, slot;

	if (qp->type == RNIC_QP_GSI) {
		if (r->gsi)
			return -EBUSY;
		r->gsi = qp;
		qp->num = WIRE_CM_QPN_GSI;
		return 0;
	}
	if (r->qp_count >= r->cfg.max_qp)
		return -ENOMEM;
	for (i = 0; i < r->qp_slots; i++) {
		slot = r->qp_next++ & (r->qp_slots - 1);
		if (slot >= FIRST_SLOT && !r->qps[slot])
			break;
	}
	if (i == r->qp_slots)
		return -ENOMEM;
	qp->num = (uint32_t)r->cfg.qpn_prefix << 16 |
		  ((uint32_t)r->cfg.random(r->cfg.ctx) & 0xffff & ~(r->qp_slots - 1)) | slot;
	r->qps[slot] = qp;
	r->qp_count++;
	return 0;
}

static void number_return(struct rnic_qp *qp)
{
	struct rnic *r = qp->r;

	if (qp->type == RNIC_QP_GSI) {
		r->gsi = NULL;
		return;
	}
	r->qps[qp->num & (r->qp_slots - 1)] = NULL;
	r->qp_count--;
}

/* --- creation ----------------------------------------------------------------------------------- */

static int init_check(const struct rnic *r, const struct rnic_qp_init *in)
{
	const struct rnic_config *c = &r->cfg;

	if (in->type != RNIC_QP_RC && in->type != RNIC_QP_UC && in->type != RNIC_QP_UD &&
	    in->type != RNIC_QP_GSI)
		return -EINVAL;
	if (!in->send_cq || !in->recv_cq || in->send_cq->r != r || in->recv_cq->r != r)
		return -EINVAL;
	if (in->srq && in->srq->pd->r != r)
		return -EINVAL;
	if (in->queues)
		return rnic_ext_check(r, in);
	if (in->max_send_wr > c->max_wr || in->max_recv_wr > c->max_wr ||
	    in->max_send_sge > c->max_sge || in->max_recv_sge > c->max_sge ||
	    in->max_inline > c->max_inline)
		return -EINVAL;
	return 0;
}

static int sq_init(struct rnic_sq *sq, const struct rnic_qp_init *in)
{
	if (!in->max_send_wr)
		return 0;
	sq->depth = rnic_pow2(in->max_send_wr);
	sq->max_sge = in->max_send_sge;
	sq->max_inline = in->max_inline;
	sq->ring = rnic_alloc(sq->depth, sizeof(*sq->ring));
	sq->sges = rnic_alloc((size_t)sq->depth * (sq->max_sge + 1), sizeof(*sq->sges));
	sq->inl = rnic_alloc((size_t)sq->depth, sq->max_inline + 1);
	return sq->ring && sq->sges && sq->inl ? 0 : -ENOMEM;
}

static void qp_free(struct rnic_qp *qp)
{
	rnic_ext_free(qp);
	rnic_dma_qp_free(qp);
	sys.free(qp->sq.ring);
	sys.free(qp->sq.sges);
	sys.free(qp->sq.inl);
	rnic_rq_free(&qp->rq);
	sys.free(qp);
}

static void qp_link(struct rnic_qp *qp)
{
	struct rnic *r = qp->r;

	qp->next_all = r->all;
	qp->prev_all = &r->all;
	if (r->all)
		r->all->prev_all = &qp->next_all;
	r->all = qp;
	qp->pd->refs++;
	qp->scq->refs++;
	qp->rcq->refs++;
	if (qp->srq)
		qp->srq->refs++;
}

/* A queue pair that is posted by memory needs a send queue of its own for what it has fetched. */
static struct rnic_qp_init own_queues(const struct rnic *r, const struct rnic_qp_init *in)
{
	struct rnic_qp_init own = *in;

	if (in->queues) {
		own.max_send_wr = in->queues->sq_blocks < RNIC_EXT_DEPTH ? in->queues->sq_blocks
									 : RNIC_EXT_DEPTH;
		own.max_recv_wr = 0;
		own.max_send_sge = r->cfg.max_sge;
		own.max_inline = WIRE_MLX5_MAX_WQE;
	}
	return own;
}

int rnic_qp_create(struct rnic_pd *pd, const struct rnic_qp_init *init, struct rnic_qp **out)
{
	struct rnic *r = pd->r;
	const struct rnic_qp_init own = own_queues(r, init), *in = &own;
	struct rnic_qp *qp;
	int rc = init_check(r, in);

	if (rc)
		return rc;
	qp = rnic_alloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	qp->r = r;
	qp->pd = pd;
	qp->type = in->type;
	qp->scq = in->send_cq;
	qp->rcq = in->recv_cq;
	qp->srq = in->srq;
	qp->sig_all = in->sq_sig_all;
	qp->user = in->user;
	qp->timer_pos = UINT32_MAX;
	qp->sq.rtx_at = RNIC_NEVER;
	qp->ext.slot = -1;
	if (sq_init(&qp->sq, in) ||
	    rnic_rq_init(&qp->rq, in->srq ? 0 : in->max_recv_wr, in->max_recv_sge) ||
	    rnic_dma_qp_init(qp))
		rc = -ENOMEM;
	if (!rc && in->queues)
		rc = rnic_ext_init(qp, in->queues);
	if (!rc)
		rc = number_take(r, qp);
	if (rc) {
		qp_free(qp);
		return rc;
	}
	qp_link(qp);
	*out = qp;
	return 0;
}

void rnic_qp_destroy(struct rnic_qp *qp)
{
	rnic_timer_set(qp, RNIC_NEVER);
	rnic_unkick(qp);
	number_return(qp);
	*qp->prev_all = qp->next_all;
	if (qp->next_all)
		qp->next_all->prev_all = qp->prev_all;
	qp->pd->refs--;
	qp->scq->refs--;
	qp->rcq->refs--;
	if (qp->srq)
		qp->srq->refs--;
	qp_free(qp);
}

uint32_t rnic_qp_num(const struct rnic_qp *qp)
{
	return qp->num;
}

bool rnic_qp_established(const struct rnic_qp *qp)
{
	return qp->established;
}

uint64_t rnic_qp_user(const struct rnic_qp *qp)
{
	return qp->user;
}

unsigned rnic_qp_each(const struct rnic *r, void (*fn)(void *arg, const struct rnic_qp_view *v),
		      void *arg)
{
	const struct rnic_qp *qp;
	unsigned n = 0;

	for (qp = r->all; qp; qp = qp->next_all, n++) {
		struct rnic_qp_view v = { .num = qp->num,
					  .dest_qpn = qp->attr.dest_qpn,
					  .type = qp->type,
					  .state = qp->state,
					  .posted = qp->sq.head,
					  .pending = qp->sq.head - qp->sq.rep,
					  .received = qp->resp.msn & WIRE_PSN_MASK,
					  .window = qp->sq.cwnd,
					  .rate = qp->cc.reacting ? qp->cc.rate : 0 };

		memcpy(v.dst, qp->attr.path.dst, 16);
		fn(arg, &v);
	}
	return n;
}

void rnic_qp_query(const struct rnic_qp *qp, struct rnic_qp_attr *attr)
{
	*attr = qp->attr;
	attr->state = qp->state;
}

void rnic_event(struct rnic *r, enum rnic_event_type type, void *object)
{
	struct rnic_event ev = { type, object };

	if (r->cfg.event)
		r->cfg.event(r->cfg.ctx, &ev);
}

/* --- states ------------------------------------------------------------------------------------- */

static bool may_change(const struct rnic_qp *qp, enum rnic_qp_state to)
{
	switch (to) {
	case RNIC_QPS_RESET:
	case RNIC_QPS_ERR:
		return true;
	case RNIC_QPS_INIT:
		return qp->state == RNIC_QPS_RESET || qp->state == RNIC_QPS_INIT;
	case RNIC_QPS_RTR:
		return qp->state == RNIC_QPS_INIT;
	case RNIC_QPS_RTS:
		/* Out of SQE only when all that failed with it has been reported. */
		return qp->state == RNIC_QPS_RTR || qp->state == RNIC_QPS_RTS ||
		       qp->state == RNIC_QPS_SQD ||
		       (qp->state == RNIC_QPS_SQE && qp->sq.rep == qp->sq.head);
	case RNIC_QPS_SQD:
		return qp->state == RNIC_QPS_RTS;
	default:
		return false;
	}
}

static bool local_gid(const struct rnic *r, const uint8_t gid[16])
{
	unsigned i;

	for (i = 0; i < r->cfg.ngids; i++)
		if (memcmp(r->gids[i], gid, 16) == 0)
			return true;
	return false;
}

static bool attr_in_range(const struct rnic_qp *qp, const struct rnic_qp_attr *a, unsigned mask)
{
	const struct rnic_config *c = &qp->r->cfg;

	if (mask & RNIC_ATTR_ACCESS && a->access & ~(unsigned)RNIC_ACCESS_ALL)
		return false;
	if (mask & RNIC_ATTR_PATH && (!local_gid(qp->r, a->path.src) || a->path.flow > 0xfffff))
		return false;
	if (mask & RNIC_ATTR_MTU && (!a->mtu || wire_mtu_bytes(wire_mtu_code(a->mtu)) != a->mtu))
		return false;
	if (mask & RNIC_ATTR_DEST_QPN && a->dest_qpn > WIRE_QPN_MASK)
		return false;
	if ((mask & RNIC_ATTR_RQ_PSN && a->rq_psn > WIRE_PSN_MASK) ||
	    (mask & RNIC_ATTR_SQ_PSN && a->sq_psn > WIRE_PSN_MASK))
		return false;
	if ((mask & RNIC_ATTR_TIMEOUT && a->timeout > 31) ||
	    (mask & RNIC_ATTR_RETRY && a->retry > 7) ||
	    (mask & RNIC_ATTR_RNR_RETRY && a->rnr_retry > 7) ||
	    (mask & RNIC_ATTR_MIN_RNR && a->min_rnr > 31))
		return false;
	return !((mask & RNIC_ATTR_RD_ATOMIC && a->rd_atomic > c->max_rd_atomic) ||
		 (mask & RNIC_ATTR_DEST_RD_ATOMIC && a->dest_rd_atomic > c->max_rd_atomic));
}

/* What is fixed once packets can flow: a change would pull the ground from under what is in flight. */
static bool attr_in_time(const struct rnic_qp *qp, unsigned mask)
{
	const unsigned before_rtr = RNIC_ATTR_PATH | RNIC_ATTR_MTU | RNIC_ATTR_DEST_QPN |
				    RNIC_ATTR_RQ_PSN | RNIC_ATTR_DEST_RD_ATOMIC;
	const unsigned before_rts = RNIC_ATTR_SQ_PSN | RNIC_ATTR_RD_ATOMIC;

	if (qp->state == RNIC_QPS_RESET || qp->state == RNIC_QPS_INIT)
		return true;
	return !(mask & (qp->state == RNIC_QPS_RTR ? before_rtr : before_rtr | before_rts));
}

/* What the step to RTR or RTS needs must be given now or have been given before. */
static bool attr_complete(const struct rnic_qp *qp, const struct rnic_qp_attr *a, unsigned mask)
{
	const unsigned rtr = RNIC_ATTR_PATH | RNIC_ATTR_MTU | RNIC_ATTR_DEST_QPN | RNIC_ATTR_RQ_PSN;

	if (!(mask & RNIC_ATTR_STATE) || rnic_qp_datagram(qp))
		return true;
	if (a->state == RNIC_QPS_RTR)
		return (mask & rtr) == rtr;
	if (a->state == RNIC_QPS_RTS && qp->state == RNIC_QPS_RTR)
		return mask & RNIC_ATTR_SQ_PSN || qp->has_psn[1];
	return true;
}

static void attr_merge(struct rnic_qp *qp, const struct rnic_qp_attr *a, unsigned mask)
{
	struct rnic_qp_attr *d = &qp->attr;

#define TAKE(flag, field)                    \
	do {                                 \
		if (mask & RNIC_ATTR_##flag) \
			d->field = a->field; \
	} while (0)
	TAKE(ACCESS, access);
	TAKE(PATH, path);
	TAKE(MTU, mtu);
	TAKE(DEST_QPN, dest_qpn);
	TAKE(RQ_PSN, rq_psn);
	TAKE(SQ_PSN, sq_psn);
	TAKE(TIMEOUT, timeout);
	TAKE(RETRY, retry);
	TAKE(RNR_RETRY, rnr_retry);
	TAKE(MIN_RNR, min_rnr);
	TAKE(RD_ATOMIC, rd_atomic);
	TAKE(DEST_RD_ATOMIC, dest_rd_atomic);
	TAKE(QKEY, qkey);
#undef TAKE
	if (mask & RNIC_ATTR_SQ_PSN)
		qp->has_psn[1] = true;
}

static void reset(struct rnic_qp *qp)
{
	struct rnic_sq *sq = &qp->sq;

	rnic_timer_set(qp, RNIC_NEVER);
	rnic_unkick(qp);
	rnic_dma_qp_reset(qp);
	*sq = (struct rnic_sq){
		.depth = sq->depth,
		.max_sge = sq->max_sge,
		.max_inline = sq->max_inline,
		.ring = sq->ring,
		.sges = sq->sges,
		.inl = sq->inl,
		.rtx_at = RNIC_NEVER,
	};
	qp->rq.head = qp->rq.tail = 0;
	memset(&qp->resp, 0, sizeof(qp->resp));
	memset(&qp->cc, 0, sizeof(qp->cc));
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->has_psn[0] = qp->has_psn[1] = false;
	qp->established = qp->last_wqe_told = false;
	rnic_ext_reset(qp);
}

static void enter_rtr(struct rnic_qp *qp)
{
	const struct rnic_path *p = &qp->attr.path;

	qp->resp.epsn = qp->attr.rq_psn;
	qp->sport = p->sport ? p->sport : wire_udp_sport(p->flow, qp->num, qp->attr.dest_qpn);
	if (rnic_qp_datagram(qp))
		qp->attr.mtu = WIRE_MTU_MAX;
	else if (!qp->r->cfg.cc.off)
		qp->attr.path.tclass = (p->tclass & 0xfc) | ECT0; /* switches may mark it */
}

static void enter_rts(struct rnic_qp *qp)
{
	struct rnic_sq *sq = &qp->sq;

	sq->drained_told = false;
	if (qp->state != RNIC_QPS_RTR)
		return;
	sq->next_psn = sq->snd_psn = sq->snd_max = sq->una_psn = qp->attr.sq_psn;
	sq->retry_left = (uint8_t)qp->attr.retry;
	sq->full_passed = false;
	sq->blocked = 0;
	sq->rnr_left = (uint8_t)qp->attr.rnr_retry;
	sq->cwnd = sq->avg_run = qp->r->cfg.window;
}

int rnic_qp_modify(struct rnic_qp *qp, const struct rnic_qp_attr *a, unsigned mask, uint64_t now)
{
	enum rnic_qp_state to = mask & RNIC_ATTR_STATE ? a->state : qp->state;

	if (mask & RNIC_ATTR_STATE && !may_change(qp, to))
		return -EINVAL;
	if (mask & RNIC_ATTR_STATE && to == RNIC_QPS_RESET) {
		reset(qp);
		qp->state = to;
		return 0;
	}
	if (mask & RNIC_ATTR_STATE && to == RNIC_QPS_ERR) {
		rnic_qp_error(qp, RNIC_WC_SUCCESS);
		return 0;
	}
	if (!attr_in_range(qp, a, mask) || !attr_in_time(qp, mask) || !attr_complete(qp, a, mask))
		return -EINVAL;
	attr_merge(qp, a, mask);
	if (!(mask & RNIC_ATTR_STATE))
		return 0;
	if (to == RNIC_QPS_RTR)
		enter_rtr(qp);
	else if (to == RNIC_QPS_RTS)
		enter_rts(qp);
	qp->state = to;
	rnic_kick(qp);
	return 0;
}

void rnic_qp_error(struct rnic_qp *qp, enum rnic_wc_status status)
{
	if (qp->state == RNIC_QPS_ERR)
		return;
	qp->state = RNIC_QPS_ERR;
	qp->sq.err_status = (uint8_t)(status ? status : RNIC_WC_WR_FLUSH_ERR);
	qp->sq.rtx_at = RNIC_NEVER;
	qp->sq.rnr_until = 0;
	rnic_timer_set(qp, RNIC_NEVER);
	/* Responses that were due go out only when a NAK closes them. */
	if (!qp->resp.nak)
		qp->resp.out_head = qp->resp.out_tail;
	qp->resp.ack = false;
	if (status)
		rnic_event(qp->r, RNIC_EVENT_QP_FATAL, qp);
	/* Flushed in its turn; a NAK that is due goes out first. */
	rnic_kick(qp);
}

/* --- posting ------------------------------------------------------------------------------------ */

/* Whether a queue pair of this type can have such a work request. */
static bool opcode_allowed(const struct rnic_qp *qp, const struct rnic_send_wr *wr)
{
	switch (wr->opcode) {
	case RNIC_WR_SEND:
	case RNIC_WR_SEND_IMM:
		return true;
	case RNIC_WR_WRITE:
	case RNIC_WR_WRITE_IMM:
		return !rnic_qp_datagram(qp);
	case RNIC_WR_SEND_INV:
		return rnic_qp_reliable(qp);
	case RNIC_WR_READ:
	case RNIC_WR_CMP_SWAP:
	case RNIC_WR_FETCH_ADD:
		return rnic_qp_reliable(qp) && qp->attr.rd_atomic &&
		       !(wr->flags & RNIC_SEND_INLINE);
	default:
		return false;
	}
}

static int post_check(const struct rnic_qp *qp, const struct rnic_send_wr *wr, uint32_t *len)
{
	uint64_t sum = 0;
	unsigned i;

	if (qp->state != RNIC_QPS_RTS && qp->state != RNIC_QPS_SQD && qp->state != RNIC_QPS_SQE &&
	    qp->state != RNIC_QPS_ERR)
		return -EINVAL;
	if (wr->flags & ~15u || !qp->sq.depth)
		return -EINVAL;
	if (qp->state != RNIC_QPS_ERR && !opcode_allowed(qp, wr))
		return -EINVAL;
	if (wr->nsge > (wr->flags & RNIC_SEND_INLINE ? RNIC_MAX_SGE : qp->sq.max_sge))
		return -EINVAL;
	for (i = 0; i < wr->nsge; i++)
		sum += wr->sge[i].len;
	if (wr->flags & RNIC_SEND_INLINE && sum > qp->sq.max_inline)
		return -EMSGSIZE;
	if ((wr->opcode == RNIC_WR_CMP_SWAP || wr->opcode == RNIC_WR_FETCH_ADD) &&
	    (sum != 8 || wr->raddr & 7))
		return -EINVAL;
	if (rnic_qp_datagram(qp)) {
		if (!wr->path || !local_gid(qp->r, wr->path->src) || wr->dest_qpn > WIRE_QPN_MASK)
			return -EINVAL;
		if (sum > WIRE_MTU_MAX)
			return -EMSGSIZE;
	}
	if (sum > qp->r->cfg.max_msg)
		return -EMSGSIZE;
	*len = (uint32_t)sum;
	return 0;
}

static void copy_data(struct rnic_sq *sq, struct rnic_swqe *w, const struct rnic_send_wr *wr)
{
	uint32_t slot = sq->head & (sq->depth - 1);
	unsigned i;
	uint8_t *p;

	w->sge = sq->sges + (size_t)slot * (sq->max_sge + 1);
	w->inl = sq->inl + (size_t)slot * (sq->max_inline + 1);
	w->nsge = (uint8_t)wr->nsge;
	if (!(wr->flags & RNIC_SEND_INLINE)) {
		if (wr->nsge)
			memcpy(w->sge, wr->sge, wr->nsge * sizeof(*wr->sge));
		return;
	}
	p = w->inl;
	w->nsge = 0;
	for (i = 0; i < wr->nsge; i++) {
		if (wr->sge[i].len)
			memcpy(p, (const void *)(uintptr_t)wr->sge[i].addr, wr->sge[i].len);
		p += wr->sge[i].len;
	}
}

bool rnic_sq_full(const struct rnic_qp *qp)
{
	return qp->sq.head - qp->sq.rep >= qp->sq.depth;
}

void rnic_sq_push(struct rnic_qp *qp, const struct rnic_send_wr *wr, uint32_t len)
{
	struct rnic_sq *sq = &qp->sq;
	struct rnic_swqe *w;

	w = rnic_swqe_at(sq, sq->head);
	*w = (struct rnic_swqe){
		.wr_id = wr->wr_id,
		.opcode = (uint8_t)wr->opcode,
		.flags = (uint8_t)wr->flags,
		.len = len,
		.imm = wr->imm,
		.rkey = wr->rkey,
		.raddr = wr->raddr,
		.compare = wr->compare,
		.swap_add = wr->swap_add,
		.dest_qpn = wr->dest_qpn,
		.qkey = wr->qkey,
	};
	if (rnic_qp_datagram(qp) && wr->path)
		w->path = *wr->path;
	copy_data(sq, w, wr);
	sq->head++;
	rnic_kick(qp);
}

int rnic_sq_post(struct rnic_qp *qp, const struct rnic_send_wr *wr)
{
	uint32_t len;
	int rc = post_check(qp, wr, &len);

	if (rc)
		return rc;
	if (rnic_sq_full(qp))
		return -EAGAIN;
	rnic_sq_push(qp, wr, len);
	return 0;
}

int rnic_post_send(struct rnic_qp *qp, const struct rnic_send_wr *wr, uint64_t now)
{
	(void)now;
	return qp->ext.q.dbrec ? -EINVAL : rnic_sq_post(qp, wr);
}
