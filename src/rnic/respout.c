/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the responder sends, in the order of the requests: READ and atomic responses first, then a NAK or one ACK for
 * everything that was taken. An ACK never overtakes a response, for the requester would take that for its loss.
 */
#include "rnic/impl.h"

#include <errno.h>

static int send_packet(struct rnic_qp *qp, struct wire_roce *p, struct rnic_tx *tx, uint64_t now)
{
	p->bth.mig = true;
	p->bth.pkey = WIRE_PKEY_DEFAULT;
	p->bth.dqpn = qp->attr.dest_qpn;
	p->bth.pad = wire_pad(tx->payload_len);
	tx->path = &qp->attr.path;
	tx->sport = qp->sport;
	tx->hdr_len = (size_t)wire_roce_encode_hdr(p, tx->hdr, sizeof(tx->hdr));
	return rnic_send(qp, tx, now);
}

static int send_ack(struct rnic_qp *qp, uint8_t syndrome, uint32_t psn, uint32_t msn, uint64_t now)
{
	struct wire_roce p = { .bth = { .opcode = WIRE_RC | WIRE_ACK, .psn = psn },
			       .aeth = { syndrome, msn } };
	struct rnic_tx tx = { 0 };
	int rc = send_packet(qp, &p, &tx, now);

	if (rc)
		return rc;
	switch (wire_aeth_kind(syndrome)) {
	case WIRE_AETH_ACK:
		qp->r->ctr.tx_acks++;
		qp->resp.acked = psn;
		break;
	case WIRE_AETH_RNR:
		qp->r->ctr.tx_rnr_naks++;
		break;
	default:
		qp->r->ctr.tx_naks++;
	}
	qp->resp.ack = false;
	return 1;
}

static void dequeue(struct rnic_resp *p, struct rnic_res *res)
{
	res->queued = false;
	p->out_tail++;
}

static uint8_t read_opcode(bool first, bool last)
{
	if (first)
		return last ? WIRE_READ_RESP_ONLY : WIRE_READ_RESP_FIRST;
	return last ? WIRE_READ_RESP_LAST : WIRE_READ_RESP_MIDDLE;
}

/* The region went away after the request was taken. */
static int read_lost(struct rnic_qp *qp, struct rnic_res *res)
{
	struct rnic_resp *p = &qp->resp;

	qp->r->ctr.rx_access++;
	p->nak = res->replay ? 0 : WIRE_SYN_NAK_ACCESS;
	p->nak_psn = wire_psn_add(res->psn, res->next);
	dequeue(p, res);
	if (!p->nak)
		return 1;
	while (p->out_tail != p->out_head)
		dequeue(p, &p->res[p->out[p->out_tail % RNIC_MAX_RD]]);
	rnic_qp_error(qp, RNIC_WC_SUCCESS);
	rnic_event(qp->r, RNIC_EVENT_QP_ACCESS_ERR, qp);
	return 1;
}

/* 1; 0: it is not here yet; or -EFAULT. */
static int read_data(struct rnic_qp *qp, struct rnic_res *res, uint32_t off, uint32_t len,
		     uint8_t **data)
{
	struct rnic_span s;

	if (!rnic_remote(qp->pd, res->rkey, res->va + off, len, RNIC_ACCESS_REMOTE_READ, &s))
		return -EFAULT;
	*data = s.p;
	return s.far ? rnic_dma_read(qp, res, off, len, data) : 1;
}

static int send_read(struct rnic_qp *qp, struct rnic_res *res, uint64_t now)
{
	uint32_t mtu = qp->attr.mtu, off = res->next * mtu;
	uint32_t len = res->len - off < mtu ? res->len - off : mtu;
	bool last = res->next + 1 == res->stop;
	struct wire_roce p = { .bth = { .opcode =
						(uint8_t)(WIRE_RC | read_opcode(res->fresh, last)),
					.psn = wire_psn_add(res->psn, res->next) },
			       .aeth = { WIRE_SYN_ACK, res->msn } };
	struct rnic_tx tx = { .payload_len = len, .nseg = len ? 1 : 0 };
	int rc;

	if (!rnic_cc_may_send(qp, now))
		return 0;
	if (len) {
		tx.seg[0].iov_len = len;
		rc = read_data(qp, res, off, len, (uint8_t **)&tx.seg[0].iov_base);
		if (rc <= 0)
			return rc ? read_lost(qp, res) : 0;
	}
	rc = send_packet(qp, &p, &tx, now);
	if (rc)
		return rc;
	rnic_cc_sent(qp, len, now);
	res->fresh = false;
	res->next++;
	if (last)
		dequeue(&qp->resp, res);
	return 1;
}

static int send_atomic(struct rnic_qp *qp, struct rnic_res *res, uint64_t now)
{
	struct wire_roce p = { .bth = { .opcode = WIRE_RC | WIRE_ATOMIC_ACK, .psn = res->psn },
			       .aeth = { WIRE_SYN_ACK, res->msn },
			       .atomic_orig = res->orig };
	struct rnic_tx tx = { 0 };
	int rc = send_packet(qp, &p, &tx, now);

	if (rc)
		return rc;
	dequeue(&qp->resp, res);
	return 1;
}

/*
 * One ACK for everything taken; but of a message in far memory the last packet is acknowledged only when its copies are
 * done.
 */
static int send_due_ack(struct rnic_qp *qp, uint64_t now)
{
	uint32_t psn = wire_psn_add(qp->resp.epsn, WIRE_PSN_MASK), msn = qp->resp.msn;
	const struct rnic_dma_qp *d = qp->dma;
	int rc;

	if (rnic_dma_pending(d)) {
		psn = wire_psn_add(d->due[d->due_tail % RNIC_DMA_DUE].psn, WIRE_PSN_MASK);
		msn = d->due[d->due_tail % RNIC_DMA_DUE].msn;
		if (psn == qp->resp.acked)
			return 0;
	}
	rc = send_ack(qp, WIRE_SYN_ACK, psn, msn, now);
	if (rc == 1)
		qp->resp.ack = rnic_dma_pending(d);
	return rc;
}

/* Whether a response would tell of what is not done yet. */
static bool too_early(const struct rnic_qp *qp, const struct rnic_res *res)
{
	return qp->dma && (res->waits || (int32_t)(qp->dma->due_tail - res->after) < 0);
}

bool rnic_resp_has_ack_only(const struct rnic_qp *qp)
{
	const struct rnic_resp *p = &qp->resp;

	return p->ack && !p->nak && p->out_tail == p->out_head && rnic_qp_reliable(qp) &&
	       wire_gid_is_v4(qp->attr.path.dst) && qp->attr.path.dst[12] == 127;
}

int rnic_resp_send(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_resp *p = &qp->resp;
	int rc;

	if (!rnic_qp_reliable(qp))
		return 0;
	if (p->out_tail != p->out_head) {
		struct rnic_res *res = &p->res[p->out[p->out_tail % RNIC_MAX_RD]];

		if (too_early(qp, res))
			return 0;
		rc = res->type == RNIC_RES_READ ? send_read(qp, res, now)
						: send_atomic(qp, res, now);
		/* The last response acknowledges what came before it. */
		if (rc == 1 && p->out_tail == p->out_head &&
		    wire_psn_add(res->psn, res->stop) == p->epsn)
			p->ack = false;
		return rc;
	}
	if (p->nak) {
		/* It acknowledges what came before it. */
		if (rnic_dma_pending(qp->dma))
			return 0;
		rc = send_ack(qp, p->nak, p->nak_psn, p->msn, now);
		if (rc == 1)
			p->nak = 0;
		return rc;
	}
	return p->ack ? send_due_ack(qp, now) : 0;
}
