/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The responder of RC and UC: takes requests in the order of their PSNs, checks everything about them, places their
 * data and leaves what is to be answered for respout.c. A request is either taken whole or changes nothing: what can
 * refuse it (no receive posted, no room for its completion, a wrong key) is asked before the first byte is placed.
 */
#include "rnic/impl.h"

#include <string.h>

/* --- refusals ----------------------------------------------------------------------------------- */

static void nak(struct rnic_qp *qp, uint8_t syndrome)
{
	qp->resp.nak = syndrome;
	qp->resp.nak_psn = qp->resp.epsn;
	rnic_kick(qp);
}

/*
 * A request that can never be taken. On RC it ends the queue pair, once the NAK is out; on UC the message is dropped.
 */
static void refuse(struct rnic_qp *qp, uint8_t syndrome)
{
	struct rnic_resp *p = &qp->resp;

	if (syndrome == WIRE_SYN_NAK_ACCESS)
		qp->r->ctr.rx_access++;
	else
		qp->r->ctr.rx_invalid++;
	p->in_msg = false;
	if (!rnic_qp_reliable(qp)) {
		p->skip = true;
		return;
	}
	nak(qp, syndrome);
	rnic_qp_error(qp, RNIC_WC_SUCCESS);
	rnic_event(qp->r,
		   syndrome == WIRE_SYN_NAK_ACCESS ? RNIC_EVENT_QP_ACCESS_ERR
						   : RNIC_EVENT_QP_REQ_ERR,
		   qp);
}

/* The receive that a SEND was put into is at fault: it completes with `status`, and the peer is told. */
static void refuse_receive(struct rnic_qp *qp, enum rnic_wc_status status, uint8_t syndrome)
{
	if (rnic_qp_reliable(qp)) {
		qp->resp.wqe_status = (uint8_t)status;
		refuse(qp, syndrome);
		return;
	}
	qp->r->ctr.rx_dropped_no_wqe++;
	qp->resp.in_msg = false;
	qp->resp.skip = true;
}

/* No receive, or no room for its completion: later perhaps. */
static void not_ready(struct rnic_qp *qp)
{
	struct rnic_resp *p = &qp->resp;

	if (!rnic_qp_reliable(qp)) {
		qp->r->ctr.rx_dropped_no_wqe++;
		p->in_msg = false;
		p->skip = true;
		return;
	}
	nak(qp, (uint8_t)(WIRE_SYN_RNR | qp->attr.min_rnr));
	/* What comes behind it is no gap: the peer goes back without being told. */
	p->quiet_until = p->now + wire_rnr_ns(qp->attr.min_rnr);
}

/* --- progress ----------------------------------------------------------------------------------- */

/* A request of `n` PSNs is taken. */
static void took(struct rnic_qp *qp, const struct wire_roce *pkt, uint32_t n)
{
	struct rnic_resp *p = &qp->resp;

	p->epsn = wire_psn_add(p->epsn, n);
	p->nak_sent = false;
	p->quiet_until = 0;
	p->nak = 0; /* one that is not out yet is out of date */
	qp->r->ctr.rx_bytes += pkt->payload_len;
	if (rnic_qp_reliable(qp) && pkt->bth.ack_req) {
		p->ack = true;
		rnic_kick(qp);
	}
}

static void end_message(struct rnic_qp *qp)
{
	qp->resp.in_msg = false;
	qp->resp.msn = (qp->resp.msn + 1) & 0xffffff;
}

static void complete_receive(struct rnic_qp *qp, const struct wire_roce *pkt, uint32_t opcode,
			     uint32_t len)
{
	struct rnic_wc wc = {
		.opcode = opcode,
		.byte_len = len,
		.src_qpn = qp->attr.dest_qpn,
	};

	if (pkt->flags & WIRE_X_IMM) {
		wc.flags |= RNIC_WC_WITH_IMM;
		wc.imm = pkt->imm;
	}
	if (pkt->flags & WIRE_X_IETH) {
		wc.flags |= RNIC_WC_WITH_INV;
		wc.imm = pkt->inv_rkey;
	}
	rnic_dma_message(qp, pkt->bth.psn, &wc, pkt->bth.solicited);
}

/* --- SEND --------------------------------------------------------------------------------------- */

/* A message is whole. With an invalidation, nothing that others sent to the region may come after its completion. */
static void end_far(struct rnic_qp *qp, bool invalidated)
{
	rnic_dma_end(qp, &qp->dma->in, true);
	if (invalidated && rnic_dma_busy(qp->r)) {
		rnic_dma_end_all(qp->r);
		qp->dma->far = true;
	}
}

static int place_send(struct rnic_qp *qp, const struct wire_roce *pkt, uint32_t done)
{
	const struct rnic_resp *p = &qp->resp;
	uint32_t len = (uint32_t)pkt->payload_len;
	struct rnic_scatter to = {
		.pd = qp->srq ? qp->srq->pd : qp->pd,
		.sge = p->sge,
		.nsge = p->nsge,
		.off = done,
		/* The receive is as long as the message may get. */
		.total = pkt->flags & WIRE_F_LAST ? len : p->wqe_len - done,
	};

	if (qp->dma) {
		if (pkt->flags & WIRE_F_FIRST)
			qp->dma->far = false;
		to.run = &qp->dma->in;
	}
	return rnic_scatter(qp, &to, pkt->payload, len);
}

static void request_send(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	bool last = pkt->flags & WIRE_F_LAST;
	struct rnic_resp *p = &qp->resp;
	uint32_t done = pkt->flags & WIRE_F_FIRST ? 0 : p->done;
	uint32_t len = (uint32_t)pkt->payload_len;

	if (!rnic_rq_take(qp) || (last && !rnic_cq_room(qp->rcq))) {
		not_ready(qp);
		return;
	}
	if (len > p->wqe_len - done) {
		refuse_receive(qp, RNIC_WC_LOC_LEN_ERR, WIRE_SYN_NAK_INVALID);
		return;
	}
	if (len && place_send(qp, pkt, done)) {
		refuse_receive(qp, RNIC_WC_LOC_PROT_ERR, WIRE_SYN_NAK_OPERATIONAL);
		return;
	}
	if (pkt->flags & WIRE_X_IETH && !rnic_invalidate(qp->pd, pkt->inv_rkey)) {
		refuse(qp, WIRE_SYN_NAK_ACCESS);
		return;
	}
	if (last && qp->dma)
		end_far(qp, pkt->flags & WIRE_X_IETH);
	p->done = done + len;
	p->in_msg = !last;
	p->msg = WIRE_F_SEND;
	took(qp, pkt, 1);
	if (last) {
		end_message(qp);
		complete_receive(qp, pkt, RNIC_WC_RECV, p->done);
	}
}

/* --- WRITE -------------------------------------------------------------------------------------- */

/* Checks the first packet of a WRITE; 0 or the syndrome to refuse it with. */
static uint8_t write_check(const struct rnic_qp *qp, const struct wire_roce *pkt)
{
	const struct wire_reth *h = &pkt->reth;
	struct rnic_span s;

	if (!(qp->attr.access & RNIC_ACCESS_REMOTE_WRITE))
		return WIRE_SYN_NAK_INVALID;
	if (h->len > qp->r->cfg.max_msg)
		return WIRE_SYN_NAK_INVALID;
	if (pkt->flags & WIRE_F_LAST ? h->len != pkt->payload_len : h->len <= pkt->payload_len)
		return WIRE_SYN_NAK_INVALID;
	/* With no bytes, address and key may be anything. */
	if (h->len && !rnic_remote(qp->pd, h->rkey, h->va, h->len, RNIC_ACCESS_REMOTE_WRITE, &s))
		return WIRE_SYN_NAK_ACCESS;
	return 0;
}

/* Places a packet's bytes; `left` of the message are to come, these included. */
static bool place_write(struct rnic_qp *qp, const struct wire_roce *pkt, const struct wire_reth *at)
{
	uint32_t len = (uint32_t)pkt->payload_len;
	struct rnic_span s;

	if (qp->dma && pkt->flags & WIRE_F_FIRST)
		qp->dma->far = false;
	if (!len)
		return true;
	if (!rnic_remote(qp->pd, at->rkey, at->va, len, RNIC_ACCESS_REMOTE_WRITE, &s))
		return false;
	if (!s.far) {
		rnic_place(s.p, pkt->payload, len);
		return true;
	}
	rnic_dma_put(qp, &qp->dma->in, s.mr, s.addr, pkt->payload, len, at->len);
	if (pkt->flags & WIRE_F_LAST)
		rnic_dma_end(qp, &qp->dma->in, true);
	return true;
}

static void request_write(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	bool first = pkt->flags & WIRE_F_FIRST, last = pkt->flags & WIRE_F_LAST;
	bool imm = pkt->flags & WIRE_X_IMM;
	struct rnic_resp *p = &qp->resp;
	uint32_t len = (uint32_t)pkt->payload_len;
	struct wire_reth at = { p->va, p->rkey, p->left };
	uint32_t done = first ? 0 : p->done;
	uint8_t syndrome;

	if (first) {
		syndrome = write_check(qp, pkt);
		if (syndrome) {
			refuse(qp, syndrome);
			return;
		}
		at = pkt->reth;
	} else if (last ? len != at.len : len >= at.len) {
		refuse(qp, WIRE_SYN_NAK_INVALID);
		return;
	}
	if (imm && (!rnic_rq_take(qp) || !rnic_cq_room(qp->rcq))) {
		not_ready(qp);
		return;
	}
	if (!place_write(qp, pkt, &at)) {
		refuse(qp, WIRE_SYN_NAK_ACCESS);
		return;
	}
	p->va = at.va + len;
	p->rkey = at.rkey;
	p->left = at.len - len;
	p->done = done + len;
	p->in_msg = !last;
	p->msg = WIRE_F_WRITE;
	took(qp, pkt, 1);
	if (last)
		end_message(qp);
	if (imm)
		complete_receive(qp, pkt, RNIC_WC_RECV_WRITE_IMM, p->done);
	else if (last)
		rnic_dma_message(qp, pkt->bth.psn, NULL, false);
}

/* --- READ and atomics --------------------------------------------------------------------------- */

static uint32_t read_psns(const struct rnic_qp *qp, uint32_t len)
{
	return len ? (len - 1) / qp->attr.mtu + 1 : 1;
}

static void enqueue(struct rnic_qp *qp, struct rnic_res *res)
{
	struct rnic_resp *p = &qp->resp;

	res->fresh = true;
	if (qp->dma) {
		res->after = qp->dma->due_head;
		rnic_dma_read_again(qp, res);
	}
	if (!res->queued)
		p->out[p->out_head++ % RNIC_MAX_RD] = (uint8_t)(res - p->res);
	res->queued = true;
	rnic_kick(qp);
}

/* Takes a response out of the middle of the queue. */
static void forget(struct rnic_resp *p, struct rnic_res *res)
{
	uint32_t i, to = p->out_tail;

	for (i = p->out_tail; i != p->out_head; i++)
		if (&p->res[p->out[i % RNIC_MAX_RD]] != res)
			p->out[to++ % RNIC_MAX_RD] = p->out[i % RNIC_MAX_RD];
	p->out_head = to;
	res->queued = false;
}

/*
 * The slot for a new READ or atomic, NULL when the peer has more of them under way than was agreed. A peer that keeps
 * to the agreement has seen the response whose slot is taken over; a repetition of that is due only because its
 * request was doubled on the way.
 */
static struct rnic_res *resource(struct rnic_qp *qp)
{
	unsigned n = qp->attr.dest_rd_atomic;
	struct rnic_resp *p = &qp->resp;
	struct rnic_res *res;

	if (!n)
		return NULL;
	res = &p->res[p->res_next];
	if (res->queued && !res->replay)
		return NULL;
	if (res->queued)
		forget(p, res);
	p->res_next = (p->res_next + 1) % n;
	memset(res, 0, sizeof(*res));
	res->psn = p->epsn;
	return res;
}

static void request_read(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	const struct wire_reth *h = &pkt->reth;
	struct rnic_res *res;
	struct rnic_span s;

	if (!(qp->attr.access & RNIC_ACCESS_REMOTE_READ) || h->len > qp->r->cfg.max_msg) {
		refuse(qp, WIRE_SYN_NAK_INVALID);
		return;
	}
	if (h->len && !rnic_remote(qp->pd, h->rkey, h->va, h->len, RNIC_ACCESS_REMOTE_READ, &s)) {
		refuse(qp, WIRE_SYN_NAK_ACCESS);
		return;
	}
	res = resource(qp);
	if (!res) {
		refuse(qp, WIRE_SYN_NAK_INVALID);
		return;
	}
	end_message(qp);
	res->type = RNIC_RES_READ;
	res->va = h->va;
	res->rkey = h->rkey;
	res->len = h->len;
	res->npsn = res->stop = read_psns(qp, h->len);
	res->msn = qp->resp.msn;
	took(qp, pkt, res->npsn);
	enqueue(qp, res);
}

static uint64_t atomic_do(uint64_t *at, const struct wire_roce *pkt)
{
	uint64_t old = pkt->atomic.compare;

	if (pkt->bth.opcode == (WIRE_RC | WIRE_FETCH_ADD))
		return __atomic_fetch_add(at, pkt->atomic.swap_add, __ATOMIC_ACQ_REL);
	__atomic_compare_exchange_n(at, &old, pkt->atomic.swap_add, false, __ATOMIC_ACQ_REL,
				    __ATOMIC_ACQUIRE);
	return old;
}

static void request_atomic(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	const struct wire_atomic *h = &pkt->atomic;
	struct rnic_res *res;
	struct rnic_span s;

	if (!(qp->attr.access & RNIC_ACCESS_REMOTE_ATOMIC) || h->va & 7) {
		refuse(qp, WIRE_SYN_NAK_INVALID);
		return;
	}
	/* A region whose iova is aligned otherwise than its memory cannot have atomics. */
	if (!rnic_remote(qp->pd, h->rkey, h->va, 8, RNIC_ACCESS_REMOTE_ATOMIC, &s) || s.addr & 7) {
		refuse(qp, WIRE_SYN_NAK_ACCESS);
		return;
	}
	res = resource(qp);
	if (!res) {
		refuse(qp, WIRE_SYN_NAK_INVALID);
		return;
	}
	end_message(qp);
	res->type = RNIC_RES_ATOMIC;
	res->npsn = res->stop = 1;
	if (s.far)
		rnic_dma_atomic(qp, res, s.mr, s.addr, pkt);
	else
		res->orig = atomic_do((uint64_t *)(void *)s.p, pkt);
	res->msn = qp->resp.msn;
	took(qp, pkt, 1);
	enqueue(qp, res);
}

/* --- order -------------------------------------------------------------------------------------- */

/*
 * A request that was taken before. A SEND or WRITE is acknowledged again, a READ read again, from where the peer wants
 * it, and an atomic gets the value that it got. Each resource is at most once in the queue of responses, so a flood of
 * duplicates costs no memory.
 */
static void duplicate(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	unsigned i, n = qp->attr.dest_rd_atomic;
	struct rnic_resp *p = &qp->resp;

	qp->r->ctr.rx_duplicate++;
	if (pkt->flags & (WIRE_F_SEND | WIRE_F_WRITE)) {
		p->ack = true;
		rnic_kick(qp);
		return;
	}
	/* The newest first: numbers come round, and an old one may have been of the same. */
	for (i = 1; i <= n; i++) {
		struct rnic_res *res = &p->res[(p->res_next + n - i) % n];
		uint32_t k = (uint32_t)wire_psn_diff(pkt->bth.psn, res->psn);
		uint32_t off = k * qp->attr.mtu;

		if (res->type == RNIC_RES_NONE || k >= res->npsn)
			continue;
		if ((res->type == RNIC_RES_READ) != !!(pkt->flags & WIRE_F_READ))
			return;
		if (res->type == RNIC_RES_READ) {
			if (pkt->reth.rkey != res->rkey || pkt->reth.va != res->va + off ||
			    pkt->reth.len > res->len - off)
				return;
			res->stop = k + read_psns(qp, pkt->reth.len);
		}
		res->next = k;
		res->replay = true;
		enqueue(qp, res);
		return;
	}
}

/* Whether the packet's place in a message and its length fit. */
static bool well_formed(const struct rnic_qp *qp, const struct wire_roce *pkt)
{
	const struct rnic_resp *p = &qp->resp;
	bool first = pkt->flags & WIRE_F_FIRST, last = pkt->flags & WIRE_F_LAST;

	if (pkt->bth.pad != wire_pad(pkt->payload_len))
		return false;
	if (first == p->in_msg)
		return false;
	if (pkt->flags & (WIRE_F_READ | WIRE_F_ATOMIC_REQ))
		return pkt->payload_len == 0;
	if (!first && !(pkt->flags & p->msg))
		return false;
	if (!last)
		return pkt->payload_len == qp->attr.mtu;
	return pkt->payload_len <= qp->attr.mtu && (first || pkt->payload_len);
}

static void request(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	if (!well_formed(qp, pkt)) {
		refuse(qp, WIRE_SYN_NAK_INVALID);
		return;
	}
	if (pkt->flags & WIRE_F_SEND)
		request_send(qp, pkt);
	else if (pkt->flags & WIRE_F_WRITE)
		request_write(qp, pkt);
	else if (pkt->flags & WIRE_F_READ)
		request_read(qp, pkt);
	else
		request_atomic(qp, pkt);
}

/*
 * UC has no retransmission: a message with a gap is dropped, its receive kept for the next. Packets a little behind
 * the expected number are late copies and must not start a message again.
 */
static void request_uc(struct rnic_qp *qp, const struct wire_roce *pkt)
{
	const int32_t late = -65536;
	struct rnic_resp *p = &qp->resp;
	int32_t ahead = wire_psn_diff(pkt->bth.psn, p->epsn);

	if (ahead < 0 && ahead >= late) {
		qp->r->ctr.rx_duplicate++;
		return;
	}
	if (ahead) {
		qp->r->ctr.rx_out_of_order++;
		p->skip = true;
		p->in_msg = false;
	}
	if (pkt->flags & WIRE_F_FIRST) {
		/* A sender that gave a message up begins the next one without a gap. */
		p->skip = false;
		p->in_msg = false;
	}
	p->epsn = wire_psn_add(pkt->bth.psn, p->skip);
	if (p->skip)
		return;
	request(qp, pkt);
	if (p->skip)
		p->epsn = wire_psn_add(pkt->bth.psn, 1);
}

/*
 * One NAK a gap: what follows says nothing new. But a packet that is not further on than the first behind the gap shows
 * that the peer has gone back, and that the missing one was lost again.
 */
static void gap(struct rnic_qp *qp, uint32_t psn)
{
	struct rnic_resp *p = &qp->resp;

	if (p->now < p->quiet_until)
		return;
	if (p->nak_sent && wire_psn_diff(psn, p->first_ahead) > 0)
		return;
	p->nak_sent = true;
	p->first_ahead = psn;
	nak(qp, WIRE_SYN_NAK_PSN);
}

void rnic_resp_receive(struct rnic_qp *qp, const struct wire_roce *pkt, uint64_t now)
{
	struct rnic_resp *p = &qp->resp;
	int32_t ahead;

	p->now = now;
	if (!qp->established) {
		qp->established = true;
		if (qp->state == RNIC_QPS_RTR)
			rnic_event(qp->r, RNIC_EVENT_COMM_EST, qp);
	}
	if (qp->type == RNIC_QP_UC) {
		if (!qp->dma || !rnic_dma_hold(qp, pkt))
			request_uc(qp, pkt);
		return;
	}
	ahead = wire_psn_diff(pkt->bth.psn, p->epsn);
	if (ahead >= 0 && qp->dma && rnic_dma_hold(qp, pkt))
		return;
	if (ahead < 0) {
		duplicate(qp, pkt);
	} else if (ahead > 0) {
		qp->r->ctr.rx_out_of_order++;
		gap(qp, pkt->bth.psn);
	} else {
		request(qp, pkt);
	}
}
