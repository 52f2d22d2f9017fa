/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagrams: a receive gets 40 bytes of IP header (a GRH, or an IPv4 header in its last 20 bytes), then the payload. */
#include "rnic/impl.h"

#include <errno.h>
#include <string.h>

#include "wire/frame.h"

static void make_grh(uint8_t grh[RNIC_GRH_LEN], const struct rnic_rx *rx)
{
	size_t iplen = wire_ip_len(&rx->ip);

	memset(grh, 0, RNIC_GRH_LEN);
	wire_ip_put(grh + RNIC_GRH_LEN - iplen, &rx->ip, WIRE_UDP_LEN + rx->len);
}

/* Header and payload into the receive that was taken: 0, or as rnic_scatter(). */
static int put(struct rnic_qp *qp, const uint8_t grh[RNIC_GRH_LEN], const struct wire_roce *pkt)
{
	const struct rnic_resp *p = &qp->resp;
	uint32_t len = (uint32_t)pkt->payload_len;
	struct rnic_scatter to = { .pd = qp->srq ? qp->srq->pd : qp->pd,
				   .sge = p->sge,
				   .nsge = p->nsge,
				   .total = RNIC_GRH_LEN + len };
	int rc;

	if (qp->dma) {
		qp->dma->far = false;
		to.run = &qp->dma->in;
	}
	rc = rnic_scatter(qp, &to, grh, RNIC_GRH_LEN);
	to.off = RNIC_GRH_LEN;
	to.total = len;
	if (!rc && len)
		rc = rnic_scatter(qp, &to, pkt->payload, len);
	if (qp->dma)
		rnic_dma_end(qp, &qp->dma->in, true);
	return rc;
}

void rnic_ud_receive(struct rnic_qp *qp, const struct rnic_rx *rx, const struct wire_roce *pkt)
{
	uint32_t len = (uint32_t)pkt->payload_len;
	struct rnic_resp *p = &qp->resp;
	uint8_t grh[RNIC_GRH_LEN];
	struct rnic_wc wc = {
		.opcode = RNIC_WC_RECV,
		.byte_len = RNIC_GRH_LEN + len,
		.src_qpn = pkt->deth.sqpn,
		.flags = RNIC_WC_GRH | (pkt->flags & WIRE_X_IMM ? RNIC_WC_WITH_IMM : 0),
		.imm = pkt->imm,
	};

	if (pkt->deth.qkey != qp->attr.qkey) {
		qp->r->ctr.rx_wrong_qkey++;
		return;
	}
	if (len > WIRE_MTU_MAX || pkt->bth.pad != wire_pad(len)) {
		qp->r->ctr.rx_malformed++;
		return;
	}
	if (!rnic_rq_take(qp) || !rnic_cq_room(qp->rcq) || p->wqe_len < RNIC_GRH_LEN + len ||
	    rnic_dma_full(qp->dma)) {
		qp->r->ctr.rx_dropped_no_wqe++;
		return;
	}
	make_grh(grh, rx);
	switch (put(qp, grh, pkt)) {
	case 0:
		qp->r->ctr.rx_bytes += len;
		break;
	case -EAGAIN:
		qp->r->ctr.rx_dropped_no_wqe++;
		return;
	default:
		wc.status = RNIC_WC_LOC_PROT_ERR;
	}
	rnic_dma_message(qp, 0, &wc, wc.status || pkt->bth.solicited);
}
