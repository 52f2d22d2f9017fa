/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive queues: a queue pair's own and shared ones. */
#include "rnic/impl.h"

#include <errno.h>
#include <string.h>

int rnic_rq_init(struct rnic_rq *rq, uint32_t depth, uint32_t max_sge)
{
	rq->depth = rnic_pow2(depth);
	rq->max_sge = max_sge;
	if (!depth) {
		rq->depth = 0;
		return 0;
	}
	rq->ring = rnic_alloc(rq->depth, sizeof(*rq->ring));
	rq->sges = rnic_alloc((size_t)rq->depth * (max_sge ? max_sge : 1), sizeof(*rq->sges));
	return rq->ring && rq->sges ? 0 : -ENOMEM;
}

void rnic_rq_free(struct rnic_rq *rq)
{
	sys.free(rq->ring);
	sys.free(rq->sges);
}

static int rq_post(struct rnic_rq *rq, uint64_t wr_id, const struct rnic_sge *sge, unsigned nsge,
		   uint32_t max_msg)
{
	struct rnic_rwqe *w;
	uint64_t len = 0;
	unsigned i;

	if (nsge > rq->max_sge || !rq->depth)
		return -EINVAL;
	for (i = 0; i < nsge; i++)
		len += sge[i].len;
	/* Room beyond the longest message is of no use, and offsets stay in 32 bits. */
	if (len > (uint64_t)max_msg + RNIC_GRH_LEN)
		return -EMSGSIZE;
	if (rq->head - rq->tail >= rq->depth)
		return -EAGAIN;
	i = rq->head & (rq->depth - 1);
	w = &rq->ring[i];
	w->wr_id = wr_id;
	w->nsge = nsge;
	w->len = (uint32_t)len;
	w->sge = rq->sges + (size_t)i * (rq->max_sge ? rq->max_sge : 1);
	if (nsge)
		memcpy(w->sge, sge, nsge * sizeof(*sge));
	rq->head++;
	return 0;
}

int rnic_post_recv(struct rnic_qp *qp, uint64_t wr_id, const struct rnic_sge *sge, unsigned nsge)
{
	int rc;

	if (qp->srq || qp->ext.q.dbrec || qp->state == RNIC_QPS_RESET)
		return -EINVAL;
	rc = rq_post(&qp->rq, wr_id, sge, nsge, qp->r->cfg.max_msg);
	if (!rc && qp->state == RNIC_QPS_ERR)
		rnic_rq_flush(qp);
	return rc;
}

static bool take(struct rnic_resp *p, struct rnic_rq *rq)
{
	struct rnic_rwqe *w;

	if (rq->head == rq->tail)
		return false;
	w = &rq->ring[rq->tail++ & (rq->depth - 1)];
	p->wr_id = w->wr_id;
	p->nsge = w->nsge;
	p->wqe_len = w->len;
	if (w->nsge)
		memcpy(p->sge, w->sge, w->nsge * sizeof(*w->sge));
	p->have_wqe = true;
	return true;
}

bool rnic_rq_take(struct rnic_qp *qp)
{
	struct rnic_srq *srq = qp->srq;

	if (qp->resp.have_wqe)
		return true;
	if (!srq)
		return qp->ext.q.dbrec ? rnic_ext_take(qp) : take(&qp->resp, &qp->rq);
	if (!take(&qp->resp, &srq->rq))
		return false;
	if (srq->limit && srq->rq.head - srq->rq.tail < srq->limit) {
		srq->limit = 0;
		rnic_event(qp->r, RNIC_EVENT_SRQ_LIMIT, srq);
	}
	return true;
}

void rnic_rq_defer(struct rnic_qp *qp, struct rnic_wc *wc)
{
	wc->wr_id = qp->resp.wr_id;
	wc->qpn = qp->num;
	qp->resp.have_wqe = false;
	qp->rcq->reserved++;
}

void rnic_rq_complete(struct rnic_qp *qp, struct rnic_wc *wc, bool solicited)
{
	wc->wr_id = qp->resp.wr_id;
	wc->qpn = qp->num;
	qp->resp.have_wqe = false;
	rnic_cq_put(qp->rcq, wc, solicited);
}

void rnic_rq_flush(struct rnic_qp *qp)
{
	struct rnic_wc wc = { .opcode = RNIC_WC_RECV };

	/* Those that came before are completed before; then it is this one's turn again. */
	if (rnic_dma_pending(qp->dma))
		return;
	while (qp->resp.have_wqe || (!qp->srq && rnic_rq_take(qp))) {
		if (!rnic_cq_room(qp->rcq))
			return;
		wc.status = qp->resp.wqe_status ? qp->resp.wqe_status : RNIC_WC_WR_FLUSH_ERR;
		qp->resp.wqe_status = 0;
		rnic_rq_complete(qp, &wc, false);
	}
	if (qp->srq && !qp->last_wqe_told) {
		qp->last_wqe_told = true;
		rnic_event(qp->r, RNIC_EVENT_LAST_WQE, qp);
	}
}

/* --- shared receive queues ---------------------------------------------------------------------- */

int rnic_srq_create(struct rnic_pd *pd, unsigned max_wr, unsigned max_sge, struct rnic_srq **out)
{
	struct rnic *r = pd->r;
	struct rnic_srq *srq;

	if (!max_wr || max_wr > r->cfg.max_wr || max_sge > r->cfg.max_sge)
		return -EINVAL;
	srq = rnic_alloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	if (rnic_rq_init(&srq->rq, max_wr, max_sge)) {
		rnic_rq_free(&srq->rq);
		sys.free(srq);
		return -ENOMEM;
	}
	srq->pd = pd;
	pd->refs++;
	r->nsrq++;
	*out = srq;
	return 0;
}

int rnic_srq_destroy(struct rnic_srq *srq)
{
	if (srq->refs)
		return -EBUSY;
	srq->pd->refs--;
	srq->pd->r->nsrq--;
	rnic_rq_free(&srq->rq);
	sys.free(srq);
	return 0;
}

int rnic_srq_post(struct rnic_srq *srq, uint64_t wr_id, const struct rnic_sge *sge, unsigned nsge)
{
	return rq_post(&srq->rq, wr_id, sge, nsge, srq->pd->r->cfg.max_msg);
}

void rnic_srq_arm(struct rnic_srq *srq, unsigned limit)
{
	srq->limit = limit;
}
