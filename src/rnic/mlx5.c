/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues in the caller's memory. Sends are fetched into the queue pair's own send queue, receives when a message needs
 * one; completions are written to the caller's CQ. The memory may change at any time and hold anything: entries are
 * copied once, then decoded, then checked like those of a call.
 */
#include "rnic/impl.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "wire/mlx5.h"

enum {
	RECORDS_A_SCAN =
		64, /* doorbell records looked at in one scan, besides those that a doorbell names */
	SCAN_MIN_NS = 1000,
};

static bool pow2(unsigned n)
{
	return n && !(n & (n - 1));
}

/* The producer's stores before the record are visible after this load. */
static uint16_t record(const struct rnic_ext *e, unsigned i)
{
	const uint32_t *rec = e->q.dbrec;

	return (uint16_t)be32toh(__atomic_load_n(&rec[i], __ATOMIC_ACQUIRE));
}

/* --- creation ----------------------------------------------------------------------------------- */

int rnic_ext_check(const struct rnic *r, const struct rnic_qp_init *in)
{
	const struct rnic_mlx5_queues *q = in->queues;

	(void)r;
	if (!q->dbrec || (uintptr_t)q->dbrec & 7)
		return -EINVAL;
	if (q->sq_blocks && (!q->sq || !pow2(q->sq_blocks) || q->sq_blocks > 32768))
		return -EINVAL;
	if (in->srq && q->rq_entries)
		return -EINVAL;
	if (q->rq_entries && (!q->rq || !pow2(q->rq_entries) || q->rq_entries > 32768 ||
			      q->rq_stride % WIRE_MLX5_SEG || !pow2(q->rq_stride) ||
			      q->rq_stride > RNIC_MAX_SGE * WIRE_MLX5_SEG))
		return -EINVAL;
	return 0;
}

int rnic_ext_init(struct rnic_qp *qp, const struct rnic_mlx5_queues *q)
{
	struct rnic *r = qp->r;
	struct rnic_ext *e = &qp->ext;
	unsigned i;

	for (i = 0; i < r->cfg.ndoorbells && r->db_owner[i]; i++)
		;
	if (i < r->cfg.ndoorbells) {
		r->db_owner[i] = qp;
		r->db_seen[i] = __atomic_load_n(&r->cfg.doorbells[i], __ATOMIC_RELAXED);
		e->slot = (int)i;
		if (i >= r->db_used)
			r->db_used = i + 1;
	}
	e->q = *q;
	e->next = r->ext_qps;
	e->prev = &r->ext_qps;
	if (e->next)
		e->next->ext.prev = &e->next;
	r->ext_qps = qp;
	r->scan_at = 0;
	return 0;
}

void rnic_ext_free(struct rnic_qp *qp)
{
	struct rnic_ext *e = &qp->ext;

	if (!e->q.dbrec)
		return;
	if (e->slot >= 0)
		qp->r->db_owner[e->slot] = NULL;
	*e->prev = e->next;
	if (e->next)
		e->next->ext.prev = e->prev;
	if (qp->r->ext_next == qp)
		qp->r->ext_next = e->next;
}

void rnic_ext_reset(struct rnic_qp *qp)
{
	qp->ext.sq_ci = 0;
	qp->ext.rq_ci = 0;
}

int rnic_qp_doorbell(const struct rnic_qp *qp)
{
	return qp->ext.slot;
}

/* --- sends -------------------------------------------------------------------------------------- */

static void copy_wqe(const struct rnic_ext *e, uint8_t *to, unsigned blocks)
{
	uint32_t mask = e->q.sq_blocks - 1, at = e->sq_ci & mask;
	uint32_t first = e->q.sq_blocks - at < blocks ? e->q.sq_blocks - at : blocks;
	const uint8_t *sq = e->q.sq;

	memcpy(to, sq + (size_t)at * WIRE_MLX5_BB, (size_t)first * WIRE_MLX5_BB);
	memcpy(to + (size_t)first * WIRE_MLX5_BB, sq, (size_t)(blocks - first) * WIRE_MLX5_BB);
}

static int opcode_of(const struct wire_mlx5_wqe *w)
{
	switch (w->opcode) {
	case WIRE_MLX5_NOP:
	case WIRE_MLX5_DUMP:
		return RNIC_WR_NOP;
	case WIRE_MLX5_SEND:
		return RNIC_WR_SEND;
	case WIRE_MLX5_SEND_IMM:
		return RNIC_WR_SEND_IMM;
	case WIRE_MLX5_SEND_INVAL:
		return RNIC_WR_SEND_INV;
	case WIRE_MLX5_WRITE:
		return RNIC_WR_WRITE;
	case WIRE_MLX5_WRITE_IMM:
		return RNIC_WR_WRITE_IMM;
	case WIRE_MLX5_READ:
		return RNIC_WR_READ;
	case WIRE_MLX5_ATOMIC_CS:
		return RNIC_WR_CMP_SWAP;
	default:
		return RNIC_WR_FETCH_ADD;
	}
}

static void make_path(const struct rnic *r, const struct wire_mlx5_av *av, struct rnic_path *path)
{
	memset(path, 0, sizeof(*path));
	memcpy(path->src, r->gids[av->sgid_index < r->cfg.ngids ? av->sgid_index : 0], 16);
	memcpy(path->dst, av->rgid, 16);
	path->flow = av->flow;
	path->tclass = av->tclass;
	path->hop_limit = av->hop_limit;
}

static void make_wr(const struct wire_mlx5_wqe *w, struct rnic_send_wr *wr, struct rnic_sge *sge)
{
	unsigned i;

	wr->opcode = (enum rnic_wr_opcode)opcode_of(w);
	wr->flags |= w->fence ? RNIC_SEND_FENCE : 0;
	wr->flags |= w->solicited ? RNIC_SEND_SOLICITED : 0;
	wr->imm = w->imm;
	wr->raddr = w->raddr;
	wr->rkey = w->rkey;
	wr->compare = w->compare;
	wr->swap_add = w->swap_add;
	wr->dest_qpn = w->av.dqpn;
	wr->qkey = w->av.qkey;
	wr->sge = sge;
	if (w->inl) {
		wr->flags |= RNIC_SEND_INLINE;
		sge[0] = (struct rnic_sge){ (uintptr_t)w->inl, w->inl_len, 0 };
		wr->nsge = 1;
		return;
	}
	for (i = 0; i < w->ndata; i++)
		sge[i] = (struct rnic_sge){ w->data[i].addr, w->data[i].len, w->data[i].lkey };
	wr->nsge = w->ndata;
}

static void push_bad(struct rnic_qp *qp, struct rnic_send_wr *wr, enum rnic_wc_status status)
{
	wr->opcode = (enum rnic_wr_opcode)RNIC_WR_BAD;
	wr->imm = status;
	wr->nsge = 0;
	wr->flags = RNIC_SEND_SIGNALED;
	rnic_sq_push(qp, wr, 0);
}

/* Fetches one WQE, of at most `left` blocks; the blocks that it takes. */
static unsigned fetch_one(struct rnic_qp *qp, unsigned left)
{
	uint8_t wqe[WIRE_MLX5_BB * 16];
	struct rnic_sge sge[WIRE_MLX5_MAX_DATA];
	struct rnic_send_wr wr = { .wr_id = qp->ext.sq_ci };
	struct wire_mlx5_wqe w;
	struct rnic_path path;
	unsigned blocks = left < 16 ? left : 16;
	int rc;

	copy_wqe(&qp->ext, wqe, blocks);
	rc = wire_mlx5_wqe_decode(&w, wqe, (size_t)blocks * WIRE_MLX5_BB, rnic_qp_datagram(qp));
	if (wire_mlx5_blocks(w.ds) < blocks)
		blocks = wire_mlx5_blocks(w.ds);
	wr.flags = w.cq_update ? RNIC_SEND_SIGNALED : 0;
	/* An index or number that is not its own: the block was never written, or by somebody else. */
	if (!rc && (w.index != qp->ext.sq_ci || w.qpn != qp->num))
		rc = -EINVAL;
	if (!rc) {
		make_wr(&w, &wr, sge);
		make_path(qp->r, &w.av, &path);
		wr.path = &path;
		if (opcode_of(&w) == RNIC_WR_NOP)
			rnic_sq_push(qp, &wr, 0);
		else
			rc = rnic_sq_post(qp, &wr);
	}
	if (rc)
		push_bad(qp, &wr, rc == -EMSGSIZE ? RNIC_WC_LOC_LEN_ERR : RNIC_WC_LOC_QP_OP_ERR);
	return blocks;
}

void rnic_ext_fetch(struct rnic_qp *qp)
{
	struct rnic_ext *e = &qp->ext;
	unsigned left;

	if (qp->state < RNIC_QPS_RTS || !e->q.sq_blocks)
		return;
	left = (uint16_t)(record(e, 1) - e->sq_ci);
	if (left > e->q.sq_blocks) {
		/* Nobody can have posted so many: the record is wrong. It is believed from here on. */
		if (rnic_sq_full(qp))
			return;
		push_bad(qp, &(struct rnic_send_wr){ .wr_id = e->sq_ci }, RNIC_WC_LOC_QP_OP_ERR);
		e->sq_ci = (uint16_t)(e->sq_ci + left);
		return;
	}
	while (left && !rnic_sq_full(qp)) {
		unsigned n = fetch_one(qp, left);

		e->sq_ci = (uint16_t)(e->sq_ci + n);
		left -= n;
	}
}

/* --- receives ----------------------------------------------------------------------------------- */

bool rnic_ext_take(struct rnic_qp *qp)
{
	struct wire_mlx5_data d[RNIC_MAX_SGE];
	uint8_t entry[RNIC_MAX_SGE * WIRE_MLX5_SEG];
	struct rnic_ext *e = &qp->ext;
	struct rnic_resp *p = &qp->resp;
	uint64_t len = 0;
	unsigned i, n;

	if (!e->q.rq_entries || record(e, 0) == e->rq_ci)
		return false;
	memcpy(entry,
	       (const uint8_t *)e->q.rq +
		       (size_t)(e->rq_ci & (e->q.rq_entries - 1)) * e->q.rq_stride,
	       e->q.rq_stride);
	n = wire_mlx5_recv_decode(entry, e->q.rq_stride, d, RNIC_MAX_SGE);
	for (i = 0; i < n; i++) {
		/* What lies beyond the longest message is of no use. */
		if (len + d[i].len > UINT32_MAX)
			break;
		p->sge[i] = (struct rnic_sge){ d[i].addr, d[i].len, d[i].lkey };
		len += d[i].len;
	}
	p->nsge = i;
	p->wqe_len = (uint32_t)len;
	p->wr_id = e->rq_ci++;
	p->have_wqe = true;
	return true;
}

/* --- completions -------------------------------------------------------------------------------- */

int rnic_mlx5_cq_create(struct rnic *r, const struct rnic_mlx5_cq_init *in, struct rnic_cq **out)
{
	struct rnic_cq *cq;
	unsigned i;
	int rc;

	if (!in->buf || (uintptr_t)in->buf & (WIRE_MLX5_CQE - 1) || !pow2(in->entries) ||
	    in->entries > r->cfg.max_cqe || (!in->dbrec && !in->overrun) ||
	    (uintptr_t)in->dbrec & 3)
		return -EINVAL;
	rc = rnic_cq_create(r, 1, &cq);
	if (rc)
		return rc;
	cq->ext = *in;
	cq->next_ext = r->ext_cqs;
	r->ext_cqs = cq;
	for (i = 0; i < in->entries; i++)
		((uint8_t *)in->buf)[(size_t)i * WIRE_MLX5_CQE + 63] = WIRE_MLX5_CQE_FREE;
	*out = cq;
	return 0;
}

void rnic_ext_cq_free(struct rnic_cq *cq)
{
	struct rnic_cq **at = &cq->r->ext_cqs;

	if (!cq->ext.buf)
		return;
	while (*at != cq)
		at = &(*at)->next_ext;
	*at = cq->next_ext;
}

bool rnic_ext_cq_room(const struct rnic_cq *cq)
{
	const uint32_t *rec = cq->ext.dbrec;
	uint32_t used;

	if (cq->ext.overrun)
		return true;
	used = (cq->head - be32toh(__atomic_load_n(rec, __ATOMIC_ACQUIRE))) & 0xffffff;
	/* More than there is: the record is wrong, and to wait for it would be to wait for ever. */
	return used > cq->ext.entries || used + cq->reserved < cq->ext.entries;
}

static uint8_t cqe_opcode(const struct rnic_wc *wc)
{
	bool recv = wc->opcode >= RNIC_WC_RECV;

	if (wc->status)
		return recv ? WIRE_MLX5_CQE_RESP_ERR : WIRE_MLX5_CQE_REQ_ERR;
	if (!recv)
		return WIRE_MLX5_CQE_REQ;
	if (wc->opcode == RNIC_WC_RECV_WRITE_IMM)
		return WIRE_MLX5_CQE_RESP_WR_IMM;
	if (wc->flags & RNIC_WC_WITH_INV)
		return WIRE_MLX5_CQE_RESP_SEND_INV;
	return wc->flags & RNIC_WC_WITH_IMM ? WIRE_MLX5_CQE_RESP_SEND_IMM : WIRE_MLX5_CQE_RESP_SEND;
}

static uint8_t send_opcode(const struct rnic_wc *wc)
{
	static const uint8_t op[] = { WIRE_MLX5_SEND, WIRE_MLX5_WRITE, WIRE_MLX5_READ,
				      WIRE_MLX5_ATOMIC_CS, WIRE_MLX5_ATOMIC_FA };

	return wc->opcode < sizeof(op) ? op[wc->opcode] : 0;
}

void rnic_ext_cq_put(struct rnic_cq *cq, const struct rnic_wc *wc, bool solicited)
{
	struct wire_mlx5_cqe c = {
		.opcode = cqe_opcode(wc),
		.solicited = solicited,
		.send_opcode = send_opcode(wc),
		.qpn = wc->qpn,
		.byte_cnt = wc->byte_len,
		.imm = wc->imm,
		.wqe_counter = (uint16_t)wc->wr_id,
		.src_qpn = wc->src_qpn,
		.grh = wc->flags & RNIC_WC_GRH,
		.syndrome = wire_mlx5_syndrome(wc->status),
	};
	uint32_t n = cq->head++;
	uint32_t at = cq->ext.collapsed ? 0 : n & (cq->ext.entries - 1);
	uint8_t *to = (uint8_t *)cq->ext.buf + (size_t)at * WIRE_MLX5_CQE;
	uint8_t cqe[WIRE_MLX5_CQE];
	uint32_t last;

	cqe[63] = wire_mlx5_cqe_encode(&c, cqe, n & cq->ext.entries);
	memcpy(&last, cqe + 60, 4);
	memcpy(to, cqe, 60);
	/* Index and owner are one store, after the rest, so that a collapsed entry is never half of two. */
	__atomic_store_n((uint32_t *)(void *)(to + 60), last, __ATOMIC_RELEASE);
}

/* --- looking for work --------------------------------------------------------------------------- */

bool rnic_ext_can_fetch(const struct rnic_qp *qp)
{
	const struct rnic_ext *e = &qp->ext;

	return qp->state >= RNIC_QPS_RTS && e->q.sq_blocks && record(e, 1) != e->sq_ci &&
	       !rnic_sq_full(qp);
}

static bool posted(const struct rnic_qp *qp)
{
	const struct rnic_ext *e = &qp->ext;

	if (rnic_ext_can_fetch(qp))
		return true;
	/* A receive is only of interest when it must be flushed. */
	return qp->state == RNIC_QPS_ERR && e->q.rq_entries && record(e, 0) != e->rq_ci;
}

bool rnic_ext_doorbells(struct rnic *r)
{
	bool found = false;
	unsigned i;

	for (i = 0; i < r->db_used; i++) {
		uint64_t v = __atomic_load_n(&r->cfg.doorbells[i], __ATOMIC_RELAXED);

		if (v == r->db_seen[i])
			continue;
		r->db_seen[i] = v;
		if (r->db_owner[i]) {
			found = true;
			rnic_kick(r->db_owner[i]);
		}
	}
	return found;
}

static bool scan_records(struct rnic *r)
{
	bool found = false;
	unsigned i;

	for (i = 0; i < RECORDS_A_SCAN; i++) {
		struct rnic_qp *qp = r->ext_next ? r->ext_next : r->ext_qps;

		if (!qp)
			break;
		r->ext_next = qp->ext.next;
		if (posted(qp)) {
			found = true;
			rnic_kick(qp);
		}
		if (!r->ext_next)
			break; /* once round is enough */
	}
	return found;
}

void rnic_ext_scan(struct rnic *r, uint64_t now)
{
	bool found = scan_records(r);
	struct rnic_cq *cq;

	for (cq = r->ext_cqs; cq; cq = cq->next_ext)
		if (cq->starved && rnic_ext_cq_room(cq)) {
			found = true;
			rnic_cq_feed(cq);
		}
	if (found)
		r->scan_ns = SCAN_MIN_NS;
	else
		r->scan_ns =
			r->scan_ns * 2 < r->cfg.idle_scan_ns ? r->scan_ns * 2 : r->cfg.idle_scan_ns;
	if (!r->scan_ns)
		r->scan_ns = SCAN_MIN_NS;
	r->scan_at = now + r->scan_ns;
}
