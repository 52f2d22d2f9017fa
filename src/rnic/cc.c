/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Congestion control: DCQCN. A switch marks packets when its queue grows; whoever receives a marked packet sends its sender
 * a CNP, at most one in 50 us for each queue pair; whoever gets a CNP sends more slowly, and then speeds up again step by
 * step. Until the first CNP, and again when the full rate has been reached, a queue pair is not held back at all.
 *
 * Time passes when a packet is due: there are no timers but the one that ends a wait.
 */
#include "rnic/impl.h"

#include "wire/frame.h"

enum {
	ONE = 1 << 16, /* alpha is a fraction of it */
	FAST_STEPS = 5,
	PACKET_OVERHEAD = 90, /* headers of RoCE, UDP, IP, Ethernet and the gap after a frame */
	MAX_CATCH_UP = 1000,  /* steps of time that are made up for; after that, all is forgotten */
};

/* Packets may go out so much earlier than their time: the clock of a step is coarse. */
#define BURST_NS 10000

static const struct rnic_dcqcn *conf(const struct rnic_qp *qp)
{
	return &qp->r->cfg.cc;
}

static void recovered(struct rnic_cc *cc)
{
	cc->reacting = false;
	cc->wait_until = 0;
}

/* --- speeding up -------------------------------------------------------------------------------- */

static unsigned more(unsigned a, unsigned b)
{
	return a > b ? a : b;
}

static void speed_up(struct rnic_qp *qp)
{
	const struct rnic_dcqcn *c = conf(qp);
	struct rnic_cc *cc = &qp->cc;

	if (cc->time_steps > FAST_STEPS && cc->byte_steps > FAST_STEPS)
		cc->target += c->hyper_increase;
	else if (more(cc->time_steps, cc->byte_steps) > FAST_STEPS)
		cc->target += c->increase;
	if (cc->target > c->line_rate)
		cc->target = c->line_rate;
	cc->rate = (cc->rate + cc->target) / 2;
	if (cc->rate >= c->line_rate - c->line_rate / 64)
		recovered(cc);
}

/* Without a CNP there is less and less reason to slow down much at the next. */
static void calm_down(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_cc *cc = &qp->cc;
	unsigned i;

	for (i = 0; cc->alpha_at <= now && i < MAX_CATCH_UP; i++) {
		cc->alpha -= cc->alpha / conf(qp)->g;
		cc->alpha_at += conf(qp)->alpha_ns;
	}
	if (cc->alpha_at <= now) {
		cc->alpha = 0;
		cc->alpha_at = now + conf(qp)->alpha_ns;
	}
}

static void catch_up(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_cc *cc = &qp->cc;
	unsigned i;

	calm_down(qp, now);
	for (i = 0; cc->reacting && cc->rate_at <= now && i < MAX_CATCH_UP; i++) {
		cc->rate_at += conf(qp)->rate_ns;
		cc->time_steps++;
		speed_up(qp);
	}
	if (cc->rate_at <= now)
		recovered(cc);
}

/* --- the sender --------------------------------------------------------------------------------- */

void rnic_cc_cnp(struct rnic_qp *qp, uint64_t now)
{
	const struct rnic_dcqcn *c = conf(qp);
	struct rnic_cc *cc = &qp->cc;

	if (c->off)
		return;
	if (!cc->alpha_at) { /* the first in its life */
		cc->alpha = ONE;
		cc->alpha_at = now;
	} else {
		catch_up(qp, now);
	}
	if (!cc->reacting) {
		cc->rate = c->line_rate;
		cc->next_at = now;
	}
	cc->reacting = true;
	cc->target = cc->rate;
	cc->rate -= cc->rate * cc->alpha / (2 * ONE);
	if (cc->rate < c->min_rate)
		cc->rate = c->min_rate;
	cc->alpha += (ONE - cc->alpha) / c->g;
	cc->alpha_at = now + c->alpha_ns;
	cc->rate_at = now + c->rate_ns;
	cc->time_steps = cc->byte_steps = 0;
	cc->bytes = 0;
}

bool rnic_cc_may_send(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_cc *cc = &qp->cc;

	if (!cc->reacting)
		return true;
	catch_up(qp, now);
	if (!cc->reacting || cc->next_at <= now + BURST_NS)
		return true;
	cc->wait_until = cc->next_at - BURST_NS;
	qp->r->ctr.paced++;
	rnic_comp_arm(qp);
	return false;
}

void rnic_cc_sent(struct rnic_qp *qp, size_t payload, uint64_t now)
{
	struct rnic_cc *cc = &qp->cc;
	uint64_t bytes = payload + PACKET_OVERHEAD;

	if (!cc->reacting)
		return;
	/* What was not sent in time is not made up for. */
	if (cc->next_at < now)
		cc->next_at = now;
	cc->next_at += bytes * UINT64_C(1000000000) / cc->rate;
	cc->bytes += bytes;
	if (cc->bytes >= conf(qp)->byte_counter) {
		cc->bytes -= conf(qp)->byte_counter;
		cc->byte_steps++;
		speed_up(qp);
	}
}

/* --- the receiver ------------------------------------------------------------------------------- */

void rnic_cc_marked(struct rnic_qp *qp, uint64_t now)
{
	struct rnic_cc *cc = &qp->cc;

	qp->r->ctr.rx_marked++;
	if (conf(qp)->off || cc->cnp_due || now < cc->cnp_at)
		return;
	cc->cnp_due = true;
	rnic_kick(qp);
}

int rnic_cc_send_cnp(struct rnic_qp *qp, uint64_t now)
{
	static const uint8_t zeros[WIRE_CNP_PAYLOAD];
	struct wire_bth bth = { .opcode = WIRE_CNP,
				.becn = true,
				.pkey = WIRE_PKEY_DEFAULT,
				.mig = true,
				.dqpn = qp->attr.dest_qpn };
	struct rnic_path path = qp->attr.path;
	struct rnic_tx tx = { .path = &path,
			      .sport = qp->sport,
			      .hdr_len = WIRE_BTH_LEN,
			      .seg = { { (void *)(uintptr_t)zeros, sizeof(zeros) } },
			      .nseg = 1,
			      .payload_len = sizeof(zeros) };
	int rc;

	/* It is not itself asked to slow down. */
	path.tclass &= 0xfc;
	wire_bth_put(tx.hdr, &bth);
	rc = rnic_send(qp, &tx, now);
	if (rc)
		return rc;
	qp->r->ctr.tx_cnp++;
	qp->cc.cnp_due = false;
	qp->cc.cnp_at = now + conf(qp)->cnp_ns;
	return 0;
}
