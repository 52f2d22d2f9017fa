/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Far memory at the responder: what must wait for copies, and how.
 *
 * A message whose bytes go to far memory is taken at once; that it has come is told later. What follows it on its queue
 * pair and is seen at once (bytes or atomics in the CPU's memory) is held until then. The order of what goes to far memory
 * is that of the copies.
 */
#include "rnic/impl.h"

#include <string.h>

/* --- requests that wait ------------------------------------------------------------------------- */

static bool send_waits(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	struct rnic_pd *pd = qp->srq ? qp->srq->pd : qp->pd;
	const struct rnic_resp *p = &qp->resp;
	struct rnic_span part[RNIC_MAX_SGE];
	uint32_t done = pkt->flags & WIRE_F_FIRST ? 0 : p->done;
	uint32_t len = (uint32_t)pkt->payload_len;
	int i, n;

	if (!len || !rnic_rq_take(qp))
		return false;
	if (done > p->wqe_len || len > p->wqe_len - done)
		return false;
	n = rnic_spans(pd, p->sge, p->nsge, done, len, RNIC_ACCESS_LOCAL_WRITE, part, RNIC_MAX_SGE);
	for (i = 0; i < n; i++)
		if (part[i].far ? !rnic_dma_room(qp->r) : rnic_dma_pending(qp->dma))
			return true;
	return false;
}

static bool write_waits(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	bool first = pkt->flags & WIRE_F_FIRST;
	uint32_t len = (uint32_t)pkt->payload_len;
	struct rnic_span s;

	if (!len)
		return false;
	/* A message whose run is open goes on where it began. */
	if (!first && qp->dma->in.mr)
		return !rnic_dma_room(qp->r);
	if (!rnic_remote(qp->pd, first ? pkt->reth.rkey : qp->resp.rkey,
			 first ? pkt->reth.va : qp->resp.va, len, RNIC_ACCESS_REMOTE_WRITE, &s))
		return false;
	return s.far ? !rnic_dma_room(qp->r) : rnic_dma_pending(qp->dma);
}

static bool atomic_waits(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	struct rnic_span s;

	if (!rnic_remote(qp->pd, pkt->atomic.rkey, pkt->atomic.va, 8, RNIC_ACCESS_REMOTE_ATOMIC,
			 &s))
		return false;
	if (!s.far)
		return rnic_dma_pending(qp->dma);
	return qp->r->dma->atomic.qp || !rnic_dma_room(qp->r);
}

static bool must_wait(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	/* Whatever follows an atomic may be about its word. */
	if (qp->r->dma->atomic.qp == qp || rnic_dma_full(qp->dma))
		return true;
	if (pkt->flags & WIRE_F_SEND)
		return send_waits(qp, pkt);
	if (pkt->flags & WIRE_F_WRITE)
		return write_waits(qp, pkt);
	return pkt->flags & WIRE_F_ATOMIC_REQ && atomic_waits(qp, pkt);
}

static void keep(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	struct rnic_dma_qp *d = qp->dma;
	struct rnic *r = qp->r;
	struct rnic_held *h = NULL;

	if (d->nheld < RNIC_DMA_HELD_QP && r->dma->nheld < RNIC_DMA_HELD)
		h = rnic_alloc(1, sizeof(*h) + pkt->payload_len);
	if (!h) {
		/* The peer sends it again. */
		r->ctr.held_lost++;
		return;
	}
	h->pkt = *pkt;
	if (pkt->payload_len)
		memcpy(h->payload, pkt->payload, pkt->payload_len);
	h->pkt.payload = h->payload;
	*d->held_end = h;
	d->held_end = &h->next;
	d->nheld++;
	r->dma->nheld++;
	r->ctr.held++;
	rnic_dma_wait(qp);
}

bool rnic_dma_hold(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	if (qp->dma->again)
		return false;
	if (!qp->dma->held && !must_wait(qp, pkt))
		return false;
	keep(qp, pkt);
	return true;
}

static struct rnic_held *pop_held(struct rnic_qp *qp)
{
	struct rnic_dma_qp *d = qp->dma;
	struct rnic_held *h = d->held;

	d->held = h->next;
	if (!d->held)
		d->held_end = &d->held;
	d->nheld--;
	qp->r->dma->nheld--;
	return h;
}

static bool alive(const struct rnic_qp *qp)
{
	return qp->state == RNIC_QPS_RTR || qp->state == RNIC_QPS_RTS ||
	       qp->state == RNIC_QPS_SQD || qp->state == RNIC_QPS_SQE;
}

static void take_held(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_dma_qp *d = qp->dma;

	while (d->held && (!alive(qp) || !must_wait(qp, &d->held->pkt))) {
		struct rnic_held *h = pop_held(qp);

		if (alive(qp)) {
			d->again = true;
			rnic_resp_receive(qp, &h->pkt, now);
			d->again = false;
		}
		sys.free(h);
	}
}

/* --- what is told later ------------------------------------------------------------------------- */

void rnic_dma_message(struct rnic_qp *qp, uint32_t psn, struct rnic_wc *wc, bool solicited)
{
	struct rnic_dma_qp *d = qp->dma;
	struct rnic_due *e;

	if (!d || (!d->far && !rnic_dma_pending(d))) {
		if (wc)
			rnic_rq_complete(qp, wc, solicited);
		return;
	}
	e = &d->due[d->due_head++ % RNIC_DMA_DUE];
	*e = (struct rnic_due){ .ticket = rnic_dma_ticket(qp->r->dma),
				.psn = psn,
				.msn = (qp->resp.msn - 1) & 0xffffff,
				.has_wc = wc != NULL,
				.solicited = solicited };
	if (wc) {
		e->wc = *wc;
		rnic_rq_defer(qp, &e->wc);
	}
	d->far = false;
	rnic_dma_wait(qp);
}

static void tell(struct rnic_qp *qp, bool lost)
{
	struct rnic_dma_qp *d = qp->dma;
	struct rnic_due *e = &d->due[d->due_tail++ % RNIC_DMA_DUE];

	if (!e->has_wc)
		return;
	qp->rcq->reserved--;
	if (lost)
		e->wc.status = RNIC_WC_LOC_PROT_ERR;
	rnic_cq_put(qp->rcq, &e->wc, e->solicited);
}

/* Completions of receives that nobody gets any more. */
void rnic_dma_forget(struct rnic_qp *qp)
{
	struct rnic_dma_qp *d = qp->dma;

	for (; d->due_tail != d->due_head; d->due_tail++)
		qp->rcq->reserved -= d->due[d->due_tail % RNIC_DMA_DUE].has_wc;
	while (d->held)
		sys.free(pop_held(qp));
}

void rnic_dma_settle(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_dma_qp *d = qp->dma;
	uint64_t done = qp->r->dma->done;
	bool told = false;

	while (rnic_dma_pending(d) && d->due[d->due_tail % RNIC_DMA_DUE].ticket <= done) {
		tell(qp, false);
		told = true;
	}
	if (told && rnic_qp_reliable(qp) && alive(qp))
		qp->resp.ack = true;
	take_held(qp, now);
}

/* The device does nothing more: what was not done by now is lost, and both sides learn it. */
void rnic_dma_fail(struct rnic_qp *qp)
{
	struct rnic_dma_qp *d = qp->dma;
	struct rnic_resp *p = &qp->resp;

	if (rnic_dma_pending(d) && rnic_qp_reliable(qp)) {
		p->nak = WIRE_SYN_NAK_OPERATIONAL;
		p->nak_psn = d->due[d->due_tail % RNIC_DMA_DUE].psn;
		p->out_tail = p->out_head;
	}
	while (rnic_dma_pending(d))
		tell(qp, true);
	rnic_dma_forget(qp);
	if (qp->r->dma->atomic.qp == qp)
		rnic_dma_atomic_drop(qp->r);
	rnic_qp_error(qp, RNIC_WC_LOC_PROT_ERR);
	rnic_kick(qp);
}

/* --- atomics ------------------------------------------------------------------------------------ */

/* The word is copied out here; rnic_dma_atomic_done() does the rest. */
void rnic_dma_atomic(struct rnic_qp *qp, struct rnic_res *res, const struct rnic_mr *mr,
		     uint64_t addr, const struct wire_roce *pkt)
{
	struct rnic_dma *d = qp->r->dma;

	res->waits = true;
	d->atomic.qp = qp;
	d->atomic.res = res;
	d->atomic.mr = mr;
	d->atomic.addr = addr;
	d->atomic.add = pkt->bth.opcode == (WIRE_RC | WIRE_FETCH_ADD);
	d->atomic.swap_add = pkt->atomic.swap_add;
	d->atomic.compare = pkt->atomic.compare;
	d->atomic.chunk = rnic_dma_take(qp->r); /* there is one: it did not have to wait */
	rnic_dma_words(d);
	d->copier->ops->read(d->copier, d->atomic.chunk->data, addr, 8);
	d->atomic.chunk->ticket = d->next;
	d->unmarked = true;
	rnic_dma_wait(qp);
}

void rnic_dma_atomic_drop(struct rnic *r)
{
	struct rnic_dma *d = r->dma;

	/* Not done, and so not answered: the peer's request ends in a time-out. */
	if (d->atomic.chunk)
		rnic_dma_give(d, d->atomic.chunk);
	d->atomic.chunk = NULL;
	d->atomic.qp = NULL;
}

void rnic_dma_atomic_refuse(struct rnic *r)
{
	struct rnic_qp *qp = r->dma->atomic.qp;
	struct rnic_resp *p = &qp->resp;

	r->ctr.rx_access++;
	p->nak = WIRE_SYN_NAK_ACCESS;
	p->nak_psn = r->dma->atomic.res->psn;
	p->out_tail = p->out_head;
	rnic_dma_atomic_drop(r);
	rnic_qp_error(qp, RNIC_WC_SUCCESS);
	rnic_event(r, RNIC_EVENT_QP_ACCESS_ERR, qp);
}

void rnic_dma_atomic_done(struct rnic *r)
{
	struct rnic_dma *d = r->dma;
	struct rnic_chunk *c = d->atomic.chunk;
	struct rnic_qp *qp = d->atomic.qp;
	struct rnic_res *res = d->atomic.res;
	uint64_t old, new;

	if (!qp || c->ticket > d->done)
		return;
	memcpy(&old, c->data, 8);
	new = d->atomic.add ? old + d->atomic.swap_add : d->atomic.swap_add;
	if (d->atomic.add || old == d->atomic.compare) {
		memcpy(c->data + 8, &new, 8);
		rnic_dma_words(d);
		d->copier->ops->write_word(d->copier, d->atomic.addr, c->data + 8, 8);
		c->ticket = d->next;
		d->unmarked = true;
	}
	res->orig = old;
	res->waits = false;
	rnic_dma_atomic_drop(r);
	/* It is answered when the new value is there. */
	qp->dma->far = true;
	rnic_dma_message(qp, res->psn, NULL, false);
	res->after = qp->dma->due_head;
}
