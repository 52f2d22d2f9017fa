/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requester: takes work requests in order and turns them into packets.
 *
 * A work request gets its PSNs when its first packet is due. The cursor (`cur`, `cur_pkt`, `snd_psn`) is where the
 * next packet comes from; the completer moves it back to resend. A READ is cut into requests of at most `read_chunk`
 * packets, at fixed places of the message, so that a lost response costs a chunk and not the message, and so that a
 * request that is repeated never asks for more than the responder has kept.
 */
#include "rnic/impl.h"

#include <errno.h>

#include "wire/cm.h"

enum { ACK_REQ_EVERY = 32 };

uint32_t rnic_swqe_psns(const struct rnic_qp *qp, const struct rnic_swqe *w)
{
	uint32_t mtu = qp->attr.mtu;

	if (w->opcode == RNIC_WR_NOP)
		return 0;
	if (w->opcode == RNIC_WR_CMP_SWAP || w->opcode == RNIC_WR_FETCH_ADD || !w->len)
		return 1;
	return (w->len + mtu - 1) / mtu;
}

static uint32_t in_flight(const struct rnic_sq *sq)
{
	return (uint32_t)wire_psn_diff(sq->snd_psn, sq->una_psn);
}

/* Whether the next work request, which has no PSNs yet, may begin; if so it gets them. */
static bool begin(struct rnic_qp *qp, struct rnic_swqe *w)
{
	struct rnic_sq *sq = &qp->sq;

	if (qp->state == RNIC_QPS_SQD)
		return false;
	if (w->flags & RNIC_SEND_FENCE && sq->rd_wqes)
		return false;
	w->psn = sq->next_psn;
	w->npsn = rnic_swqe_psns(qp, w);
	sq->next_psn = wire_psn_add(sq->next_psn, w->npsn);
	sq->rd_wqes += rnic_swqe_is_rd(w);
	sq->assigned++;
	return true;
}

/* A work request that cannot be sent: it fails when all before it is acknowledged. */
static void fail(struct rnic_qp *qp, enum rnic_wc_status status)
{
	struct rnic_sq *sq = &qp->sq;

	if (!rnic_qp_reliable(qp)) {
		qp->state = RNIC_QPS_SQE;
		sq->err_status = (uint8_t)status;
		/* The numbers that the failed message did not use are free again. */
		sq->next_psn = sq->una_psn = sq->snd_psn;
		rnic_comp_report(qp);
		return;
	}
	sq->local_err = (uint8_t)status;
	if (sq->una == sq->cur)
		rnic_qp_error(qp, status);
}

/* How long an answer to what is just sent takes will be measured, if it asks for one and is sent for the first time. */
static void time_answer(struct rnic_sq *sq, uint64_t now)
{
	if (sq->timed_at || sq->since_ackreq || sq->snd_psn != sq->snd_max)
		return;
	sq->timed_psn = sq->snd_psn;
	sq->timed_at = now;
}

/* `n` PSNs at the cursor went out. */
static void sent(struct rnic_qp *qp, struct rnic_swqe *w, uint32_t n, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;

	if (wire_psn_diff(sq->snd_psn, sq->snd_max) < 0)
		qp->r->ctr.retransmits++;
	sq->snd_psn = wire_psn_add(sq->snd_psn, n);
	if (wire_psn_diff(sq->snd_psn, sq->snd_max) > 0)
		sq->snd_max = sq->snd_psn;
	sq->cur_pkt += n;
	if (sq->cur_pkt == w->npsn) {
		sq->cur++;
		sq->cur_pkt = 0;
	}
	if (!rnic_qp_reliable(qp)) {
		if (!sq->cur_pkt)
			rnic_comp_advance(qp, sq->snd_psn, now);
		return;
	}
	if (sq->rtx_at == RNIC_NEVER)
		rnic_comp_wait(qp, now);
}

static void fill_bth(struct rnic_qp *qp, struct wire_roce *p, uint8_t opcode)
{
	p->bth.opcode = opcode;
	p->bth.mig = true;
	p->bth.pkey = WIRE_PKEY_DEFAULT;
	p->bth.dqpn = qp->attr.dest_qpn;
	p->bth.psn = qp->sq.snd_psn;
}

/* --- READ and atomics --------------------------------------------------------------------------- */

static int send_rd(struct rnic_qp *qp, struct rnic_swqe *w, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;
	uint32_t chunk = qp->r->cfg.read_chunk;
	uint32_t n = chunk - sq->cur_pkt % chunk;
	uint32_t off = sq->cur_pkt * qp->attr.mtu;
	struct wire_roce p = { 0 };
	struct rnic_tx tx = { .path = &qp->attr.path, .sport = qp->sport };
	int rc;

	if (n > w->npsn - sq->cur_pkt)
		n = w->npsn - sq->cur_pkt;
	if (sq->rd_head - sq->rd_tail >= qp->attr.rd_atomic)
		return 0;
	if (in_flight(sq) && in_flight(sq) + n > sq->cwnd)
		return 0;
	if (w->opcode == RNIC_WR_READ) {
		fill_bth(qp, &p, WIRE_RC | WIRE_READ_REQ);
		p.reth.va = w->raddr + off;
		p.reth.rkey = w->rkey;
		p.reth.len = n * qp->attr.mtu;
		if (p.reth.len > w->len - off)
			p.reth.len = w->len - off;
	} else {
		fill_bth(qp, &p,
			 WIRE_RC |
				 (w->opcode == RNIC_WR_CMP_SWAP ? WIRE_CMP_SWAP : WIRE_FETCH_ADD));
		p.atomic = (struct wire_atomic){ w->raddr, w->rkey, w->swap_add, w->compare };
	}
	p.bth.ack_req = true;
	tx.hdr_len = (size_t)wire_roce_encode_hdr(&p, tx.hdr, sizeof(tx.hdr));
	rc = rnic_send(qp, &tx, now);
	if (rc)
		return rc;
	sq->rd_end[sq->rd_head++ % RNIC_MAX_RD] = wire_psn_add(sq->snd_psn, n - 1);
	sq->since_ackreq = 0;
	time_answer(sq, now);
	sent(qp, w, n, now);
	return 1;
}

/* --- SEND and WRITE ----------------------------------------------------------------------------- */

static uint8_t transport(const struct rnic_qp *qp)
{
	return qp->type == RNIC_QP_RC ? WIRE_RC : qp->type == RNIC_QP_UC ? WIRE_UC : WIRE_UD;
}

/* The operation of a packet at its place in the message. */
static uint8_t data_opcode(const struct rnic_swqe *w, bool first, bool last)
{
	static const uint8_t send[4] = { WIRE_SEND_MIDDLE, WIRE_SEND_FIRST, WIRE_SEND_LAST,
					 WIRE_SEND_ONLY };
	static const uint8_t send_imm[4] = { WIRE_SEND_MIDDLE, WIRE_SEND_FIRST, WIRE_SEND_LAST_IMM,
					     WIRE_SEND_ONLY_IMM };
	static const uint8_t send_inv[4] = { WIRE_SEND_MIDDLE, WIRE_SEND_FIRST, WIRE_SEND_LAST_INV,
					     WIRE_SEND_ONLY_INV };
	static const uint8_t write[4] = { WIRE_WRITE_MIDDLE, WIRE_WRITE_FIRST, WIRE_WRITE_LAST,
					  WIRE_WRITE_ONLY };
	static const uint8_t write_imm[4] = { WIRE_WRITE_MIDDLE, WIRE_WRITE_FIRST,
					      WIRE_WRITE_LAST_IMM, WIRE_WRITE_ONLY_IMM };
	unsigned i = (first ? 1 : 0) | (last ? 2 : 0);

	switch (w->opcode) {
	case RNIC_WR_WRITE:
		return write[i];
	case RNIC_WR_WRITE_IMM:
		return write_imm[i];
	case RNIC_WR_SEND_IMM:
		return send_imm[i];
	case RNIC_WR_SEND_INV:
		return send_inv[i];
	default:
		return send[i];
	}
}

/* A packet asks for an ACK at the end of a message, now and then within, and when it is sent again. */
static bool wants_ack(const struct rnic_qp *qp, bool last)
{
	const struct rnic_sq *sq = &qp->sq;

	return rnic_qp_reliable(qp) &&
	       (last || sq->since_ackreq >= ACK_REQ_EVERY || sq->since_ackreq >= sq->cwnd / 4 ||
		wire_psn_diff(sq->snd_psn, sq->snd_max) < 0);
}

static void data_header(struct rnic_qp *qp, const struct rnic_swqe *w, uint32_t len, bool last,
			struct rnic_tx *tx)
{
	struct wire_roce p = { 0 };

	fill_bth(qp, &p, (uint8_t)(transport(qp) | data_opcode(w, !qp->sq.cur_pkt, last)));
	p.bth.pad = wire_pad(len);
	p.bth.solicited = last && w->flags & RNIC_SEND_SOLICITED;
	p.bth.ack_req = wants_ack(qp, last);
	p.reth = (struct wire_reth){ w->raddr, w->rkey, w->len };
	p.imm = w->imm;
	p.inv_rkey = w->imm;
	if (rnic_qp_datagram(qp)) {
		p.bth.dqpn = w->dest_qpn;
		p.deth.qkey = w->qkey & 0x80000000 ? qp->attr.qkey : w->qkey;
		p.deth.sqpn = qp->num;
		tx->path = &w->path;
		tx->sport = w->path.sport ? w->path.sport
					  : wire_udp_sport(w->path.flow, qp->num, w->dest_qpn);
	}
	tx->hdr_len = (size_t)wire_roce_encode_hdr(&p, tx->hdr, sizeof(tx->hdr));
	qp->sq.since_ackreq = p.bth.ack_req ? 0 : qp->sq.since_ackreq + 1;
}

static int send_data(struct rnic_qp *qp, struct rnic_swqe *w, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;
	uint32_t mtu = qp->attr.mtu, off = sq->cur_pkt * mtu;
	uint32_t len = w->len - off < mtu ? w->len - off : mtu;
	bool last = sq->cur_pkt + 1 == w->npsn;
	struct rnic_tx
		tx; /* not all of it: clearing what a packet does not need takes a tenth of its time */
	uint32_t since = sq->since_ackreq;
	int rc;

	if (rnic_qp_reliable(qp) && in_flight(sq) >= sq->cwnd)
		return 0;
	if (!rnic_cc_may_send(qp, now))
		return 0;
	tx.path = &qp->attr.path;
	tx.sport = qp->sport;
	tx.payload_len = len;
	if (w->flags & RNIC_SEND_INLINE) {
		tx.seg[0] = (struct iovec){ w->inl + off, len };
		tx.nseg = len ? 1 : 0;
	} else {
		rc = rnic_gather(qp->pd, w->sge, w->nsge, off, len, tx.seg, RNIC_TX_MAX_SEG);
		if (rc == -EREMOTE) {
			rc = rnic_dma_gather(qp, w, off, len, (uint8_t **)&tx.seg[0].iov_base);
			tx.seg[0].iov_len = len;
			if (!rc)
				return 0;
		}
		if (rc < 0) {
			fail(qp, RNIC_WC_LOC_PROT_ERR);
			return 0;
		}
		tx.nseg = (unsigned)rc;
	}
	data_header(qp, w, len, last, &tx);
	rc = rnic_send(qp, &tx, now);
	if (rc) {
		sq->since_ackreq = since;
		return rc;
	}
	rnic_cc_sent(qp, len, now);
	time_answer(sq, now);
	sent(qp, w, 1, now);
	return 1;
}

/*
 * A work request that takes no packet: a NOP is passed over, and done when all before it is; a bad one fails. False when
 * the cursor stays where it is.
 */
static bool pass(struct rnic_qp *qp, const struct rnic_swqe *w)
{
	struct rnic_sq *sq = &qp->sq;

	if (w->opcode == RNIC_WR_BAD) {
		fail(qp, (enum rnic_wc_status)w->imm);
		return false;
	}
	sq->cur++;
	rnic_comp_retire(qp);
	return true;
}

int rnic_req_send(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_sq *sq = &qp->sq;
	struct rnic_swqe *w;

	if ((qp->state != RNIC_QPS_RTS && qp->state != RNIC_QPS_SQD) || sq->rnr_until ||
	    sq->local_err)
		return 0;
	if (qp->state == RNIC_QPS_SQD && sq->una == sq->assigned && !sq->drained_told) {
		sq->drained_told = true;
		rnic_event(qp->r, RNIC_EVENT_SQ_DRAINED, qp);
	}
	while (sq->cur != sq->head) {
		w = rnic_swqe_at(sq, sq->cur);
		if (sq->cur == sq->assigned && !begin(qp, w))
			return 0;
		if (w->opcode != RNIC_WR_NOP && w->opcode != RNIC_WR_BAD)
			return rnic_swqe_is_rd(w) ? send_rd(qp, w, now) : send_data(qp, w, now);
		if (!pass(qp, w))
			return 0;
	}
	return 0;
}
