/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The completer: takes what the responder sends back, decides what is acknowledged, what is sent again and when, and
 * completes work requests in order.
 *
 * All of it is about one number, `una_psn`: everything before it is done. SENDs and WRITEs pass it by any later
 * acknowledgement, READs and atomics only by their own data: an acknowledgement from beyond one whose response is
 * missing says that the response was lost (an implied NAK).
 */
#include "rnic/impl.h"

#include <errno.h>
#include <arpa/inet.h>
#include <string.h>

#include "base/log.h"

/* A peer that asks so often for one and the same packet will not get it. */
enum { BLOCKED = 8 };

/* A peer whose program does other things for a moment, or whose thread has to be woken, answers by then. */
#define PROBE_NS UINT64_C(4000000)
#define PROBES 8 /* to 128 times that */

/* Puts the cursor on `psn`, which is at or after una_psn and not beyond what was sent. */
static void cursor_to_una(struct rnic_qp *qp)
{
	struct rnic_sq *sq = &qp->sq;

	sq->cur = sq->una;
	sq->cur_pkt = 0;
	if (sq->una != sq->assigned)
		sq->cur_pkt = (uint32_t)wire_psn_diff(sq->una_psn, rnic_swqe_at(sq, sq->una)->psn);
	sq->snd_psn = sq->una_psn;
	sq->rd_tail = sq->rd_head;
	sq->local_err = 0;
}

/*
 * A NAK is sent once for each gap, so if it is lost, nothing tells of the gap but that everything stands still. The time-out is
 * the user's and long, so what is not acknowledged is sent again some time before: when an answer takes far longer than
 * they used to, then after twice that, and so on. Such a probe costs no retry, and the time-out goes on.
 */
static uint64_t probe_at(const struct rnic_sq *sq)
{
	uint64_t wait = 2 * sq->rtt + 4 * sq->rtt_dev;

	if (!sq->rtt || sq->rtx_at == RNIC_NEVER || sq->probes >= PROBES)
		return RNIC_NEVER;
	wait = (wait > PROBE_NS ? wait : PROBE_NS) << sq->probes;
	/* Near the time-out there is no sense in it. */
	return 2 * wait < sq->rtx_at - sq->moved_at ? sq->moved_at + wait : RNIC_NEVER;
}

static void note_answer(struct rnic_sq *sq, uint64_t now)
{
	uint64_t took = now - sq->timed_at, off = took > sq->rtt ? took - sq->rtt : sq->rtt - took;

	sq->rtt_dev = sq->rtt ? (3 * sq->rtt_dev + off) / 4 : took / 2;
	sq->rtt = sq->rtt ? (7 * sq->rtt + took) / 8 : took + 1;
	sq->timed_at = 0;
}

void rnic_comp_wait(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;

	if (!qp->attr.timeout)
		return;
	sq->rtx_at = now + wire_ack_timeout_ns(qp->attr.timeout);
	sq->moved_at = now;
	sq->probes = 0;
	rnic_comp_arm(qp);
}

void rnic_comp_arm(struct rnic_qp *qp)
{
	struct rnic_sq *sq = &qp->sq;
	uint64_t at = sq->rnr_until ? sq->rnr_until : sq->rtx_at;

	if (!sq->rnr_until && probe_at(sq) < at)
		at = probe_at(sq);
	if (qp->cc.wait_until && qp->cc.wait_until < at)
		at = qp->cc.wait_until;
	/* An earlier alarm finds out that it is not time yet and sets the next: cheaper than moving it at each ACK. */
	if (at == RNIC_NEVER || (qp->timer_pos != UINT32_MAX && qp->timer_at <= at))
		return;
	rnic_timer_set(qp, at);
}

/*
 * Going back throws away everything in flight, so with one packet in n lost there is no sense in having many more than n
 * under way: the window follows twice the run between losses. It opens again as soon as a run gets longer.
 */
static void note_loss(struct rnic_qp *qp)
{
	const uint32_t floor = 16;
	struct rnic_sq *sq = &qp->sq;
	uint32_t want;

	sq->avg_run = (3 * sq->avg_run + sq->run) / 4;
	sq->run = 0;
	want = 2 * sq->avg_run > floor ? 2 * sq->avg_run : floor;
	sq->cwnd = want < qp->r->cfg.window ? want : qp->r->cfg.window;
}

static void note_progress(struct rnic_qp *qp, uint32_t packets)
{
	struct rnic_sq *sq = &qp->sq;

	sq->run += packets;
	if (sq->run > qp->r->cfg.window)
		sq->run = qp->r->cfg.window;
	if (sq->run > sq->cwnd)
		sq->cwnd = sq->run;
}

/* Whether the packet at una_psn, or what a READ asks for with it, is of full size. */
static bool full_size(const struct rnic_qp *qp)
{
	const struct rnic_sq *sq = &qp->sq;
	const struct rnic_swqe *w = &sq->ring[sq->una % sq->depth];

	if (sq->una == sq->assigned || w->opcode == RNIC_WR_CMP_SWAP ||
	    w->opcode == RNIC_WR_FETCH_ADD)
		return false;
	return w->len - (uint32_t)wire_psn_diff(sq->una_psn, w->psn) * qp->attr.mtu >= qp->attr.mtu;
}

/*
 * The peer asks for a packet of full size, and of those none ever arrived: an interface there, or one on the way, has a smaller
 * MTU. Linux does not tell it when it connects, and no router is there to say so.
 */
static bool mtu_too_large(const struct rnic_qp *qp)
{
	/* No interface has an MTU so small that it takes the sizes below; those get lost by chance. */
	return qp->attr.mtu >= 1024 && qp->sq.blocked && !qp->sq.full_passed && full_size(qp);
}

static void give_up(struct rnic_qp *qp)
{
	const uint8_t *gid = qp->attr.path.dst;
	bool v4 = wire_gid_is_v4(gid);
	char peer[INET6_ADDRSTRLEN] = "";

	qp->r->ctr.retry_exceeded++;
	if (mtu_too_large(qp)) {
		qp->r->ctr.mtu_blocked++;
		inet_ntop(v4 ? AF_INET : AF_INET6, gid + (v4 ? 12 : 0), peer, sizeof(peer));
		log_line(
			LOG_ERROR,
			"rnic: packets with %u bytes do not reach %s and back, shorter ones do: the "
			"MTU of its interface, or of one on the way, is smaller than ours; give all "
			"the same one (ip link set dev IF mtu N)",
			qp->attr.mtu, peer);
	}
	rnic_qp_error(qp, RNIC_WC_RETRY_EXC_ERR);
}

static void retry(struct rnic_qp *qp)
{
	struct rnic_sq *sq = &qp->sq;

	if (!sq->retry_left) {
		give_up(qp);
		return;
	}
	sq->retry_left--;
	cursor_to_una(qp);
	sq->rtx_at = RNIC_NEVER;
	rnic_kick(qp);
}

/*
 * A response with PSN `seen` says that the packet at una_psn is missing. Many say so after one loss; the first is acted
 * on. If then one comes that is not from further on (`restarts`: a NAK, or the data of a READ), the repetition was under
 * way and its packet got lost again. Should nothing come, the time-out sees to it.
 */
static void go_back(struct rnic_qp *qp, uint32_t seen, bool restarts)
{
	struct rnic_sq *sq = &qp->sq;

	if (sq->rnr_until)
		return;
	sq->blocked += restarts;
	if (sq->blocked > BLOCKED && mtu_too_large(qp))
		return; /* until the time-out */
	if (!sq->went_back) {
		note_loss(qp);
		retry(qp);
	} else if (restarts && wire_psn_diff(seen, sq->beyond) <= 0) {
		/* Costs no retry, but the time-out goes on: it ends what never gets anywhere. */
		note_loss(qp);
		cursor_to_una(qp);
		rnic_kick(qp);
	} else {
		return;
	}
	sq->went_back = true;
	sq->beyond = seen;
}

/* Whether the requester goes on without an answer, but for the rate. */
static bool can_go_on(struct rnic_qp *qp)
{
	struct rnic_sq *sq = &qp->sq;
	uint32_t under_way = (uint32_t)wire_psn_diff(sq->snd_psn, sq->una_psn);
	const struct rnic_swqe *w = rnic_swqe_at(sq, sq->cur);

	if (sq->cur == sq->head || under_way >= sq->cwnd)
		return false;
	if (sq->cur == sq->assigned && w->flags & RNIC_SEND_FENCE && sq->rd_wqes)
		return false;
	/* A READ asks for an answer itself, so if the window has room for a smaller one, no harm is done. */
	return !rnic_swqe_is_rd(w) || (sq->rd_head - sq->rd_tail < qp->attr.rd_atomic &&
				       under_way + qp->r->cfg.read_chunk <= sq->cwnd);
}

/* Only if nothing else can be sent, what is under way asked for an answer. */
static void probe(struct rnic_qp *qp)
{
	struct rnic_sq *sq = &qp->sq;

	sq->probes++;
	if (qp->cc.wait_until || can_go_on(qp) || (sq->blocked && mtu_too_large(qp)))
		return;
	qp->r->ctr.probes++;
	cursor_to_una(qp);
	rnic_kick(qp);
}

void rnic_comp_timer(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;

	if (qp->cc.wait_until && now >= qp->cc.wait_until) {
		qp->cc.wait_until = 0;
		rnic_kick(qp);
	}
	if (sq->rnr_until) {
		if (now >= sq->rnr_until) {
			sq->rnr_until = 0;
			sq->went_back = false;
			rnic_kick(qp);
		}
	} else if (now >= sq->rtx_at) {
		qp->r->ctr.timeouts++;
		sq->went_back = false;
		note_loss(qp);
		if (sq->blocked > BLOCKED && mtu_too_large(qp))
			give_up(qp);
		else
			retry(qp);
	} else if (now >= probe_at(sq)) {
		probe(qp);
	}
	rnic_comp_arm(qp);
}

void rnic_comp_retire(struct rnic_qp *qp)
{
	struct rnic_sq *sq = &qp->sq;

	while (sq->una != sq->assigned) {
		struct rnic_swqe *w = rnic_swqe_at(sq, sq->una);

		if (wire_psn_diff(wire_psn_add(w->psn, w->npsn), sq->una_psn) > 0)
			break;
		sq->rd_wqes -= rnic_swqe_is_rd(w);
		sq->full_passed = sq->full_passed || w->len >= qp->attr.mtu;
		sq->una++;
	}
}

void rnic_comp_advance(struct rnic_qp *qp, uint32_t psn, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;

	if (psn == sq->una_psn)
		return;
	note_progress(qp, (uint32_t)wire_psn_diff(psn, sq->una_psn));
	sq->full_passed = sq->full_passed || full_size(qp);
	sq->blocked = 0;
	sq->una_psn = psn;
	if (sq->timed_at && wire_psn_diff(psn, sq->timed_psn) > 0)
		note_answer(sq, now);
	sq->retry_left = (uint8_t)qp->attr.retry;
	sq->rnr_left = (uint8_t)qp->attr.rnr_retry;
	sq->went_back = false;
	rnic_comp_retire(qp);
	while (sq->rd_tail != sq->rd_head &&
	       wire_psn_diff(sq->rd_end[sq->rd_tail % RNIC_MAX_RD], psn) < 0)
		sq->rd_tail++;
	if (wire_psn_diff(psn, sq->snd_psn) > 0)
		cursor_to_una(qp);
	sq->rtx_at = RNIC_NEVER;
	if (sq->una_psn != sq->snd_psn && rnic_qp_reliable(qp))
		rnic_comp_wait(qp, now);
	if (sq->local_err && sq->una == sq->cur)
		rnic_qp_error(qp, (enum rnic_wc_status)sq->local_err);
	rnic_comp_report(qp);
	rnic_kick(qp);
}

/*
 * Everything before `upto` is acknowledged. False when a READ or atomic before it lacks its data; the requester then
 * goes back to it. `data`: a READ's or atomic's response says so. False, too, when the queue pair came to its end.
 */
static bool acknowledge(struct rnic_qp *qp, uint32_t upto, bool data, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;
	uint32_t i, reach = upto;

	for (i = sq->una; i != sq->assigned; i++) {
		struct rnic_swqe *w = rnic_swqe_at(sq, i);

		if (wire_psn_diff(w->psn, upto) >= 0)
			break;
		if (rnic_swqe_is_rd(w)) {
			reach = i == sq->una ? sq->una_psn : w->psn;
			break;
		}
	}
	rnic_comp_advance(qp, reach, now);
	if (qp->state == RNIC_QPS_ERR)
		return false;
	if (wire_psn_diff(reach, upto) >= 0)
		return true;
	qp->r->ctr.implied_naks++;
	go_back(qp, upto, data);
	return false;
}

static void rnr(struct rnic_qp *qp, unsigned code, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;

	if (sq->rnr_until)
		return;
	qp->r->ctr.rx_rnr_naks++;
	if (!sq->rnr_left) {
		qp->r->ctr.rnr_exceeded++;
		rnic_qp_error(qp, RNIC_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (sq->rnr_left != 7)
		sq->rnr_left--;
	/* The peer is there, and the packet came through: what it may cost to get it there is not added up over the waits. */
	sq->retry_left = (uint8_t)qp->attr.retry;
	cursor_to_una(qp);
	sq->rtx_at = RNIC_NEVER;
	sq->rnr_until = now + wire_rnr_ns(code);
	rnic_comp_arm(qp);
}

static enum rnic_wc_status nak_status(uint8_t syndrome)
{
	switch (syndrome) {
	case WIRE_SYN_NAK_INVALID:
		return RNIC_WC_REM_INV_REQ_ERR;
	case WIRE_SYN_NAK_ACCESS:
		return RNIC_WC_REM_ACCESS_ERR;
	default:
		return RNIC_WC_REM_OP_ERR;
	}
}

static void ack_packet(struct rnic_qp *qp, const struct wire_roce *pkt, uint64_t now)
{
	uint8_t syn = pkt->aeth.syndrome;
	uint32_t psn = pkt->bth.psn;

	switch (wire_aeth_kind(syn)) {
	case WIRE_AETH_ACK:
		acknowledge(qp, wire_psn_add(psn, 1), false, now);
		break;
	case WIRE_AETH_RNR:
		if (acknowledge(qp, psn, false, now))
			rnr(qp, syn & 31, now);
		break;
	case WIRE_AETH_NAK:
		qp->r->ctr.rx_naks++;
		if (!acknowledge(qp, psn, false, now))
			break;
		if (syn == WIRE_SYN_NAK_PSN)
			go_back(qp, psn, true);
		else
			rnic_qp_error(qp, nak_status(syn));
		break;
	default:
		qp->r->ctr.rx_malformed++;
	}
}

/* Data of the READ, or the old value of the atomic, whose turn it is. */
static void data_packet(struct rnic_qp *qp, const struct wire_roce *pkt, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;
	uint32_t psn = pkt->bth.psn, off, want;
	const uint8_t *data = pkt->payload;
	struct rnic_swqe *w;

	if (!acknowledge(qp, psn, true, now) || sq->una == sq->assigned)
		return;
	w = rnic_swqe_at(sq, sq->una);
	if (!rnic_swqe_is_rd(w) ||
	    (w->opcode == RNIC_WR_READ) != !(pkt->flags & WIRE_X_ATOMIC_ACK)) {
		qp->r->ctr.rx_stale_response++;
		return;
	}
	off = (uint32_t)wire_psn_diff(psn, w->psn) * qp->attr.mtu;
	want = w->len - off < qp->attr.mtu ? w->len - off : qp->attr.mtu;
	if (pkt->flags & WIRE_X_ATOMIC_ACK) {
		data = (const uint8_t *)&pkt->atomic_orig;
		want = 8;
	} else if (pkt->payload_len != want || pkt->bth.pad != wire_pad(want)) {
		rnic_qp_error(qp, RNIC_WC_BAD_RESP_ERR);
		return;
	}
	if (want) {
		struct rnic_scatter to = { qp->pd, w->sge,       w->nsge,
					   off,    w->len - off, qp->dma ? &qp->dma->back : NULL };
		int rc = rnic_scatter(qp, &to, data, want);

		if (rc == -EAGAIN) {
			/* As if it had been lost on the way. */
			qp->r->ctr.held_lost++;
			return;
		}
		if (rc) {
			rnic_qp_error(qp, RNIC_WC_LOC_PROT_ERR);
			return;
		}
	}
	if (qp->dma && off + want >= w->len) {
		rnic_dma_end(qp, &qp->dma->back, true);
		w->ticket = rnic_dma_ticket(qp->r->dma);
	}
	rnic_comp_advance(qp, wire_psn_add(psn, 1), now);
}

void rnic_comp_receive(struct rnic_qp *qp, const struct wire_roce *pkt, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;
	uint32_t psn = pkt->bth.psn;

	if (wire_psn_diff(psn, sq->una_psn) < 0 || wire_psn_diff(psn, sq->snd_max) >= 0) {
		qp->r->ctr.rx_stale_response++;
		return;
	}
	if (pkt->bth.opcode == (WIRE_RC | WIRE_ACK))
		ack_packet(qp, pkt, now);
	else
		data_packet(qp, pkt, now);
}

/* --- completions -------------------------------------------------------------------------------- */

static uint32_t wc_opcode(const struct rnic_swqe *w)
{
	switch (w->opcode) {
	case RNIC_WR_WRITE:
	case RNIC_WR_WRITE_IMM:
		return RNIC_WC_WRITE;
	case RNIC_WR_READ:
		return RNIC_WC_READ;
	case RNIC_WR_CMP_SWAP:
		return RNIC_WC_CMP_SWAP;
	case RNIC_WR_FETCH_ADD:
		return RNIC_WC_FETCH_ADD;
	default:
		return RNIC_WC_SEND;
	}
}

/* Completes the oldest unreported one. False when the CQ has no room. */
static bool report(struct rnic_qp *qp, enum rnic_wc_status status)
{
	struct rnic_sq *sq = &qp->sq;
	struct rnic_swqe *w = rnic_swqe_at(sq, sq->rep);
	struct rnic_wc wc = {
		.wr_id = w->wr_id,
		.status = status,
		.opcode = wc_opcode(w),
		.byte_len = w->len,
		.qpn = qp->num,
	};

	if (qp->dma && rnic_dma_unfinished(qp, w)) {
		if (!qp->r->dma->failed)
			return false;
		wc.status = RNIC_WC_LOC_PROT_ERR;
	}
	if (wc.status || qp->sig_all || w->flags & RNIC_SEND_SIGNALED) {
		if (!rnic_cq_room(qp->scq))
			return false;
		rnic_cq_put(qp->scq, &wc, false);
	}
	sq->rep++;
	return true;
}

void rnic_comp_report(struct rnic_qp *qp)
{
	struct rnic_sq *sq = &qp->sq;

	while (sq->rep != sq->una)
		if (!report(qp, RNIC_WC_SUCCESS))
			return;
	if (qp->state != RNIC_QPS_ERR && qp->state != RNIC_QPS_SQE)
		return;
	while (sq->rep != sq->head) {
		if (!report(qp, (enum rnic_wc_status)sq->err_status))
			return;
		sq->err_status = RNIC_WC_WR_FLUSH_ERR;
		sq->una = sq->assigned = sq->cur = sq->rep;
		sq->cur_pkt = 0;
	}
}
