/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagrams: a receive gets 40 bytes of IP header (a GRH, or an IPv4 header in its last 20 bytes), then the payload. */
#include "rnic/impl.h"

#include <string.h>

#include "wire/frame.h"

static void make_grh(uint8_t grh[RNIC_GRH_LEN], const struct rnic_rx *rx)
{
	size_t iplen = wire_ip_len(&rx->ip);

	memset(grh, 0, RNIC_GRH_LEN);
	wire_ip_put(grh + RNIC_GRH_LEN - iplen, &rx->ip, WIRE_UDP_LEN + rx->len);
}

void rnic_ud_receive(struct rnic_qp *qp, const struct rnic_rx *rx, const struct wire_roce *pkt)
{
	struct rnic_pd *pd = qp->srq ? qp->srq->pd : qp->pd;
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
	if (!rnic_rq_take(qp) || !rnic_cq_room(qp->rcq) || p->wqe_len < RNIC_GRH_LEN + len) {
		qp->r->ctr.rx_dropped_no_wqe++;
		return;
	}
	make_grh(grh, rx);
	if (rnic_scatter(pd, p->sge, p->nsge, 0, grh, RNIC_GRH_LEN) ||
	    (len && rnic_scatter(pd, p->sge, p->nsge, RNIC_GRH_LEN, pkt->payload, len))) {
		wc.status = RNIC_WC_LOC_PROT_ERR;
		rnic_rq_complete(qp, &wc, true);
		return;
	}
	qp->r->ctr.rx_bytes += len;
	rnic_rq_complete(qp, &wc, pkt->bth.solicited);
}
