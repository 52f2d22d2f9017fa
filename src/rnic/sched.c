/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who sends next: a queue of queue pairs that may have something to send, each of which gets a turn of `burst`
 * packets and goes to the end. And when: a binary heap of the times at which a queue pair wants to be looked at.
 */
#include "rnic/impl.h"

void rnic_kick(struct rnic_qp *qp)
{
	struct rnic *r = qp->r;

	if (qp->ready)
		return;
	qp->ready = true;
	qp->next_ready = NULL;
	*r->ready_tail = qp;
	r->ready_tail = &qp->next_ready;
}

struct rnic_qp *rnic_ready_take(struct rnic *r)
{
	struct rnic_qp *qp = r->ready_head;

	if (!qp)
		return NULL;
	r->ready_head = qp->next_ready;
	if (!r->ready_head)
		r->ready_tail = &r->ready_head;
	qp->ready = false;
	return qp;
}

/* Only when a queue pair ends, hence a search. */
void rnic_unkick(struct rnic_qp *qp)
{
	struct rnic *r = qp->r;
	struct rnic_qp **at = &r->ready_head;

	if (!qp->ready)
		return;
	while (*at != qp)
		at = &(*at)->next_ready;
	*at = qp->next_ready;
	if (!*at)
		r->ready_tail = at;
	qp->ready = false;
}

static void heap_put(struct rnic *r, uint32_t pos, struct rnic_qp *qp)
{
	r->timers[pos] = qp;
	qp->timer_pos = pos;
}

static void heap_up(struct rnic *r, uint32_t pos, struct rnic_qp *qp)
{
	while (pos) {
		uint32_t parent = (pos - 1) / 2;

		if (r->timers[parent]->timer_at <= qp->timer_at)
			break;
		heap_put(r, pos, r->timers[parent]);
		pos = parent;
	}
	heap_put(r, pos, qp);
}

static void heap_down(struct rnic *r, uint32_t pos, struct rnic_qp *qp)
{
	for (;;) {
		uint32_t child = 2 * pos + 1;

		if (child >= r->ntimers)
			break;
		if (child + 1 < r->ntimers &&
		    r->timers[child + 1]->timer_at < r->timers[child]->timer_at)
			child++;
		if (qp->timer_at <= r->timers[child]->timer_at)
			break;
		heap_put(r, pos, r->timers[child]);
		pos = child;
	}
	heap_put(r, pos, qp);
}

static void heap_remove(struct rnic *r, struct rnic_qp *qp)
{
	uint32_t pos = qp->timer_pos;
	struct rnic_qp *last = r->timers[--r->ntimers];

	qp->timer_pos = UINT32_MAX;
	if (last == qp)
		return;
	heap_up(r, pos, last);
	heap_down(r, last->timer_pos, last);
}

void rnic_timer_set(struct rnic_qp *qp, uint64_t at)
{
	struct rnic *r = qp->r;

	if (qp->timer_pos != UINT32_MAX) {
		if (qp->timer_at == at)
			return;
		heap_remove(r, qp);
	}
	qp->timer_at = at;
	if (at != RNIC_NEVER)
		heap_up(r, r->ntimers++, qp);
}

/* The queue pair whose time has come, taken out of the heap; NULL when there is none. */
struct rnic_qp *rnic_timer_due(struct rnic *r, uint64_t now)
{
	struct rnic_qp *qp;

	if (!r->ntimers || r->timers[0]->timer_at > now)
		return NULL;
	qp = r->timers[0];
	heap_remove(r, qp);
	return qp;
}

uint64_t rnic_timer_next(const struct rnic *r)
{
	return r->ntimers ? r->timers[0]->timer_at : RNIC_NEVER;
}
