/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues: a ring that is never overrun, since whoever completes asks for room first. */
#include "rnic/impl.h"

#include <errno.h>

int rnic_cq_create(struct rnic *r, unsigned entries, struct rnic_cq **out)
{
	struct rnic_cq *cq;

	if (!entries || entries > r->cfg.max_cqe)
		return -EINVAL;
	cq = rnic_alloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->size = rnic_pow2(entries);
	cq->ring = rnic_alloc(cq->size, sizeof(*cq->ring));
	if (!cq->ring) {
		sys.free(cq);
		return -ENOMEM;
	}
	cq->r = r;
	r->ncq++;
	*out = cq;
	return 0;
}

int rnic_cq_destroy(struct rnic_cq *cq)
{
	if (cq->refs)
		return -EBUSY;
	cq->r->ncq--;
	rnic_ext_cq_free(cq);
	sys.free(cq->ring);
	sys.free(cq);
	return 0;
}

void rnic_cq_feed(struct rnic_cq *cq)
{
	struct rnic_qp *qp;

	cq->starved = false;
	for (qp = cq->r->all; qp; qp = qp->next_all)
		if (qp->scq == cq || qp->rcq == cq)
			rnic_kick(qp);
}

bool rnic_cq_room(struct rnic_cq *cq)
{
	if (cq->ext.buf ? rnic_ext_cq_room(cq) : cq->head + cq->reserved - cq->tail < cq->size)
		return true;
	if (!cq->starved)
		cq->r->ctr.cq_full++;
	cq->starved = true;
	return false;
}

void rnic_cq_put(struct rnic_cq *cq, const struct rnic_wc *wc, bool solicited)
{
	if (cq->ext.buf)
		rnic_ext_cq_put(cq, wc, solicited);
	else
		cq->ring[cq->head++ % cq->size] = *wc;
	if (cq->armed == 2 || (cq->armed == 1 && (solicited || wc->status != RNIC_WC_SUCCESS))) {
		cq->armed = 0;
		cq->notify(cq->ctx);
	}
}

unsigned rnic_cq_poll(struct rnic_cq *cq, struct rnic_wc *wc, unsigned n)
{
	unsigned got = 0;

	if (cq->ext.buf)
		return 0;
	while (got < n && cq->tail != cq->head)
		wc[got++] = cq->ring[cq->tail++ % cq->size];
	if (got && cq->starved)
		rnic_cq_feed(cq);
	return got;
}

void rnic_cq_arm(struct rnic_cq *cq, bool solicited_only, void (*notify)(void *ctx), void *ctx)
{
	cq->armed = solicited_only ? 1 : 2;
	cq->notify = notify;
	cq->ctx = ctx;
}
