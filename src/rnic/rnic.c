/* SPDX-License-Identifier: BSD-3-Clause */
/* The device: opening, what a step does, where a received packet goes. */
#include "rnic/impl.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "rnic/pcap.h"
#include "wire/bytes.h"
#include "wire/icrc.h"

/* Wait before a full wire is tried again, if nobody comes earlier. */
#define WIRE_FULL_NS 10000
/* Wait before copies are asked after again. */
#define COPIES_NS 1000

static uint64_t random_default(void *ctx)
{
	uint64_t v;

	(void)ctx;
	/* 8 bytes are never interrupted nor short once the kernel's pool is ready. */
	while (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
		;
	return v;
}

/* --- opening ------------------------------------------------------------------------------------ */

#define DEFAULT(field, value)             \
	do {                              \
		if (!c->field)            \
			c->field = value; \
	} while (0)

static int config_complete(struct rnic_config *c)
{
	DEFAULT(max_qp, 1024);
	DEFAULT(max_mr, 65536);
	DEFAULT(max_wr, 32768);
	DEFAULT(max_cqe, 1u << 22);
	DEFAULT(max_sge, RNIC_MAX_SGE);
	DEFAULT(max_inline, 512);
	DEFAULT(max_rd_atomic, 16);
	DEFAULT(max_msg, 1u << 30);
	DEFAULT(window, 256);
	DEFAULT(read_chunk, c->window < 64 ? c->window : 64);
	DEFAULT(burst, 16);
	DEFAULT(idle_scan_ns, 1000000);
	DEFAULT(random, random_default);
	DEFAULT(cc.line_rate, UINT64_C(12500000000));
	DEFAULT(cc.min_rate, 1000000);
	DEFAULT(cc.g, 256);
	DEFAULT(cc.alpha_ns, 55000);
	DEFAULT(cc.rate_ns, 55000);
	DEFAULT(cc.byte_counter, 10000000);
	DEFAULT(cc.increase, 5000000);
	DEFAULT(cc.hyper_increase, 50000000);
	DEFAULT(cc.cnp_ns, 50000);
	if (!c->gids || !c->ngids || c->ngids > 64)
		return -EINVAL;
	if (c->ndoorbells > 32768 || (c->ndoorbells && !c->doorbells))
		return -EINVAL;
	if (c->max_qp > 32768 || c->max_mr > 1u << 20 || c->max_wr > 65536 ||
	    c->max_cqe > 1u << 22 || c->max_sge > RNIC_MAX_SGE || c->max_inline > 1024)
		return -EINVAL;
	if (c->cc.min_rate > c->cc.line_rate || c->cc.line_rate > UINT64_C(1) << 40 ||
	    c->cc.g > 65536)
		return -EINVAL;
	if (c->max_rd_atomic > RNIC_MAX_RD || c->max_msg > 1u << 30 || c->window < 8 ||
	    c->window > 65536 || c->read_chunk > c->window || c->burst > 256)
		return -EINVAL;
	return 0;
}

static void device_free(struct rnic *r)
{
	rnic_dma_close(r);
	rnic_keys_free(&r->keys);
	sys.free(r->gids);
	sys.free(r->qps);
	sys.free(r->timers);
	sys.free(r->db_owner);
	sys.free(r->db_seen);
	sys.free(r);
}

int rnic_open(struct rnic **out, const struct rnic_config *cfg, struct rnic_wire *wire)
{
	struct rnic *r = rnic_alloc(1, sizeof(*r));
	int rc;

	if (!r)
		return -ENOMEM;
	r->cfg = *cfg;
	r->wire = wire;
	r->ready_tail = &r->ready_head;
	rc = config_complete(&r->cfg);
	if (rc)
		goto fail;
	rc = -ENOMEM;
	/* 16 slots are not given out. */
	r->qp_slots = rnic_pow2(r->cfg.max_qp + 16);
	r->qps = rnic_alloc(r->qp_slots, sizeof(*r->qps));
	r->timers = rnic_alloc(r->cfg.max_qp + 1, sizeof(*r->timers));
	r->gids = rnic_alloc(r->cfg.ngids, sizeof(*r->gids));
	r->db_owner = rnic_alloc(r->cfg.ndoorbells + 1, sizeof(*r->db_owner));
	r->db_seen = rnic_alloc(r->cfg.ndoorbells + 1, sizeof(*r->db_seen));
	if (!r->qps || !r->timers || !r->gids || !r->db_owner || !r->db_seen ||
	    rnic_keys_init(&r->keys, r->cfg.max_mr))
		goto fail;
	rc = rnic_dma_open(r);
	if (rc)
		goto fail;
	memcpy(r->gids, cfg->gids, r->cfg.ngids * sizeof(*r->gids));
	r->cfg.gids = NULL;
	*out = r;
	return 0;
fail:
	device_free(r);
	return rc;
}

int rnic_close(struct rnic *r)
{
	if (r->npd || r->ncq)
		return -EBUSY;
	device_free(r);
	return 0;
}

const struct rnic_counters *rnic_counters(const struct rnic *r)
{
	return &r->ctr;
}

/* --- sending ------------------------------------------------------------------------------------ */

int rnic_send(struct rnic_qp *qp, struct rnic_tx *tx, uint64_t now)
{
	struct rnic *r = qp->r;
	int rc = r->wire->ops->send(r->wire, tx, now);

	if (rc == -EAGAIN)
		return rc;
	/* Any other failure is a packet lost on the way. */
	r->ctr.tx_packets++;
	r->ctr.tx_bytes += tx->payload_len;
	return 0;
}

int rnic_tx_flatten(const struct rnic_tx *tx, const struct wire_ip *ip, uint16_t dport,
		    uint8_t *buf, size_t cap)
{
	struct wire_udp udp = { .sport = tx->sport, .dport = dport };

	return rnic_tx_flatten_from(tx, wire_icrc_begin(ip, &udp, rnic_tx_len(tx)), buf, cap);
}

int rnic_tx_flatten_from(const struct rnic_tx *tx, uint32_t crc, uint8_t *buf, size_t cap)
{
	size_t pad = wire_pad(tx->payload_len), n = tx->hdr_len;
	unsigned i;

	if (cap < rnic_tx_len(tx))
		return -ENOBUFS;
	memcpy(buf, tx->hdr, n);
	crc = wire_icrc_bth(crc, buf);
	crc = wire_crc32(crc, buf + WIRE_BTH_LEN, n - WIRE_BTH_LEN);
	for (i = 0; i < tx->nseg; i++) {
		crc = wire_crc32_copy(crc, buf + n, tx->seg[i].iov_base, tx->seg[i].iov_len);
		n += tx->seg[i].iov_len;
	}
	memset(buf + n, 0, pad);
	crc = wire_crc32(crc, buf + n, pad);
	n += pad;
	wire_put_le32(buf + n, wire_icrc_end(crc));
	return (int)(n + WIRE_ICRC_LEN);
}

/* One turn of a queue pair: packets sent, or -EAGAIN. */
static int turn(struct rnic_qp *qp, uint64_t now, unsigned burst)
{
	unsigned n = 0;
	int a = 0, b = 0;

	qp->r->ctr.turns++;
	if (qp->ext.q.dbrec)
		rnic_ext_fetch(qp);
	if (qp->cc.cnp_due && rnic_cc_send_cnp(qp, now))
		return -EAGAIN;
	while (n < burst) {
		/* One of each kind in turn, so that neither starves the other. */
		a = rnic_resp_has_ack_only(qp) ? 0 : rnic_resp_send(qp, now);
		b = a == -EAGAIN ? a : rnic_req_send(qp, now);
		if (b == -EAGAIN)
			return -EAGAIN;
		if (a + b == 0)
			break;
		n += (unsigned)(a + b);
	}
	/* An ACK comes last, for it is shorter than any request: so a wire can send it together with those (UDP_SEGMENT). */
	if (rnic_resp_has_ack_only(qp) && rnic_resp_send(qp, now) == -EAGAIN)
		return -EAGAIN;
	rnic_comp_report(qp);
	if (qp->state == RNIC_QPS_ERR)
		rnic_rq_flush(qp);
	if (n >= burst || (qp->ext.q.dbrec && rnic_ext_can_fetch(qp)))
		rnic_kick(qp);
	return (int)n;
}

static uint64_t next_wake(const struct rnic *r)
{
	uint64_t timer = rnic_timer_next(r);

	if (!r->ext_qps && !r->ext_cqs)
		return timer;
	return timer < r->scan_at ? timer : r->scan_at;
}

/* Gives turns until the budget is used up. False when the wire is full. */
static bool run_ready(struct rnic *r, uint64_t now, unsigned budget)
{
	struct rnic_qp *qp;
	int n;

	while (budget && (qp = rnic_ready_take(r)) != NULL) {
		n = turn(qp, now, budget < r->cfg.burst ? budget : r->cfg.burst);
		if (n == -EAGAIN) {
			rnic_kick(qp);
			return false;
		}
		/* A turn without a packet costs one, too, so that a step is bounded. */
		budget -= n > 0 ? ((unsigned)n < budget ? (unsigned)n : budget) : 1;
	}
	return true;
}

uint64_t rnic_step(struct rnic *r, uint64_t now, unsigned budget)
{
	const struct rnic_wire_ops *ops = r->wire->ops;
	struct rnic_qp *qp;
	uint64_t next;
	bool flowing;
	unsigned i;

	if (r->dma)
		rnic_dma_step(r, now);
	for (i = 0; i < RNIC_TIMERS_A_STEP && (qp = rnic_timer_due(r, now)) != NULL; i++)
		rnic_comp_timer(qp, now);
	if (r->db_used && rnic_ext_doorbells(r))
		r->scan_ns = 0; /* where one rings, others may */
	if ((r->ext_qps || r->ext_cqs) && now >= r->scan_at)
		rnic_ext_scan(r, now);
	flowing = run_ready(r, now, budget);
	if (ops && ops->flush && ops->flush(r->wire, now))
		flowing = false;
	rnic_pcap_flush(r->wire->pcap);
	next = next_wake(r);
	if (rnic_dma_busy(r) && next > now + COPIES_NS)
		next = now + COPIES_NS;
	if (!flowing)
		return next < now + WIRE_FULL_NS ? next : now + WIRE_FULL_NS;
	return r->ready_head ? now : next;
}

/* --- receiving ---------------------------------------------------------------------------------- */

static bool local(const struct rnic *r, const uint8_t gid[16])
{
	unsigned i;

	for (i = 0; i < r->cfg.ngids; i++)
		if (memcmp(r->gids[i], gid, 16) == 0)
			return true;
	return false;
}

/* Whether the packet comes from where the queue pair's packets come from. */
static bool from_peer(const struct rnic_qp *qp, const struct rnic_rx *rx,
		      const struct wire_roce *pkt)
{
	/* The top bit of a P_Key says full or limited member of the one partition there is. */
	if ((pkt->bth.pkey & 0x7fff) != 0x7fff)
		return false;
	if (rnic_qp_datagram(qp))
		return (pkt->bth.opcode & WIRE_TRANSPORT_MASK) == WIRE_UD &&
		       local(qp->r, rx->ip.dst);
	if ((pkt->bth.opcode & WIRE_TRANSPORT_MASK) != (rnic_qp_reliable(qp) ? WIRE_RC : WIRE_UC))
		return false;
	return memcmp(rx->ip.src, qp->attr.path.dst, 16) == 0 &&
	       memcmp(rx->ip.dst, qp->attr.path.src, 16) == 0;
}

static bool receiving(const struct rnic_qp *qp, bool response)
{
	switch (qp->state) {
	case RNIC_QPS_RTS:
	case RNIC_QPS_SQD:
		return true;
	case RNIC_QPS_RTR:
	case RNIC_QPS_SQE:
		return !response;
	default:
		return false;
	}
}

/* A CNP counts only from the peer. */
static void congestion(struct rnic *r, const struct rnic_rx *rx, const struct wire_roce *pkt,
		       uint64_t now)
{
	struct rnic_qp *qp = rnic_qp_find(r, pkt->bth.dqpn);

	r->ctr.rx_cnp++;
	if (!qp || rnic_qp_datagram(qp) || !receiving(qp, true) ||
	    memcmp(rx->ip.src, qp->attr.path.dst, 16) != 0 ||
	    memcmp(rx->ip.dst, qp->attr.path.src, 16) != 0)
		return;
	rnic_cc_cnp(qp, now);
}

void rnic_receive(struct rnic *r, const struct rnic_rx *rx, uint64_t now)
{
	struct wire_roce pkt;
	struct rnic_qp *qp;

	if (wire_roce_decode(&pkt, rx->data, rx->len) || pkt.bth.tver) {
		r->ctr.rx_malformed++;
		return;
	}
	if (rx->payload) {
		pkt.payload = rx->payload;
		pkt.payload_len = rx->payload_len;
	}
	if (pkt.bth.opcode == WIRE_CNP) {
		congestion(r, rx, &pkt, now);
		return;
	}
	qp = rnic_qp_find(r, pkt.bth.dqpn);
	if (!qp || qp->state == RNIC_QPS_RESET || qp->state == RNIC_QPS_INIT) {
		r->ctr.rx_no_qp++;
		return;
	}
	if (!from_peer(qp, rx, &pkt)) {
		r->ctr.rx_wrong_peer++;
		return;
	}
	if (!receiving(qp, pkt.flags & WIRE_F_RESPONSE)) {
		r->ctr.rx_no_qp++;
		return;
	}
	r->ctr.rx_packets++;
	if ((rx->ip.tos & 3) == 3 && !rnic_qp_datagram(qp))
		rnic_cc_marked(qp, now);
	if (rnic_qp_datagram(qp))
		rnic_ud_receive(qp, rx, &pkt);
	else if (pkt.flags & WIRE_F_RESPONSE)
		rnic_comp_receive(qp, &pkt, now);
	else
		rnic_resp_receive(qp, &pkt, now);
}
