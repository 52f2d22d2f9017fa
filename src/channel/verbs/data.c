/* SPDX-License-Identifier: BSD-3-Clause */
/* The stream as the rsocket protocol has it: credits, memory grants, data, goodbyes (docs/wire/rsocket.md). */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "channel/verbs/rdc.h"

/* Work requests of one call, and receives posted again in one. */
#define BATCH 16

static uint64_t ring_size(const struct rdc *c)
{
	return UINT64_C(1) << c->net->p.seg_log2;
}

/* ---- work request ids: slot 16 | generation 16 | what 32, as an immediate; receives say KEEPALIVE, which nobody posts --- */

static uint64_t wr_id(const struct rdc *c, uint32_t what)
{
	return (uint64_t)c->slot << 48 | (uint64_t)c->t->gen[c->slot] << 32 | what;
}

static uint64_t recv_id(const struct rdc *c)
{
	return wr_id(c, wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_KEEPALIVE));
}

/* ---- start --------------------------------------------------------------------------------------------------------------- */

void rdc_data_init(struct rdc *c)
{
	c->rx_pos = c->rx_told = c->rx_head = 0;
	c->tx_pos = c->tx_done = c->tx_told = 0;
	c->granted = ring_size(c) / 2;
	c->near_from = UINT64_MAX;
	c->rseq = 0;
	c->limit = (uint16_t)c->credits;
	c->due = c->credits + RDC_RECV_SLACK;
	c->sends = c->ctrls = 0;
	c->target.length = 0;
	c->target_index = 0;
	c->remote_index = 1;
	c->out = 0;
	c->seq = 0;
	c->want_ctrl = 0;
	c->limited = c->hurry = c->failing = false;
	c->established = c->told = c->rx_end = c->rx_shut = c->gone = c->left = false;
	c->tx_shut = c->bye = false;
}

void rdc_local_conn(const struct rdc *c, struct wire_rsock_conn *out)
{
	const uint16_t one = 1;
	uint8_t first;

	memcpy(&first, &one, 1);
	memset(out, 0, sizeof(*out));
	out->flags = (first ? 0 : WIRE_RSOCK_BIG_ENDIAN) | WIRE_RSOCK_IOMAP;
	out->credits = (uint16_t)c->credits;
	out->sgl.addr = (uintptr_t)c->page;
	out->sgl.key = c->mr_sgl->rkey;
	out->sgl.length = RDC_SGL;
	out->data.addr = rdc_rx_addr(c);
	out->data.key = c->mr_rx->rkey;
	out->data.length = (uint32_t)(ring_size(c) / 2);
}

void rdc_data_start(struct rdc *c)
{
	c->target = c->remote.data;
	if (!c->limited)
		c->peer_limit = c->remote.credits;
	c->margin = c->remote.credits < 2 * RDC_MARGIN ? c->remote.credits / 2 : RDC_MARGIN;
}

/* ---- sending --------------------------------------------------------------------------------------------------------------- */

/*
 * The peer's next entry in our SGL array. The peer's writes put the length last, in one with the key, so once it is there all is. The copy is taken
 * once, and 0 put in its place: the peer writes it again only after all of it was used.
 */
static bool next_target(struct rdc *c)
{
	const unsigned next = (c->target_index + 1) % RDC_SGL;
	uint8_t *e = c->page + (size_t)next * WIRE_RSOCK_SGE_LEN;
	uint64_t *last = (uint64_t *)(void *)(e + 8),
		 word = __atomic_load_n(last, __ATOMIC_ACQUIRE);
	uint32_t length;

	/* Ours is the order of this machine, little-endian or big. */
	memcpy(&length, (const uint8_t *)&word + 4, 4);
	if (!length)
		return false;
	memcpy(&c->target.addr, e, 8);
	memcpy(&c->target.key, &word, 4);
	c->target.length = length;
	__atomic_store_n(last, 0, __ATOMIC_RELAXED);
	c->target_index = next;
	return c->target.length != 0;
}

static bool may_send_data(const struct rdc *c)
{
	return c->tx_pos != c->tx_tail && c->sends < RDC_SENDS &&
	       (uint16_t)(c->peer_limit - c->seq) > c->margin;
}

/* One message: as much as the peer's entry, our ring's end and the chunk allow. The entry is used up before the message is posted. */
static void fill_data(struct rdc *c, struct verbs_send_wr *wr, struct verbs_sge *sge)
{
	uint64_t off = c->tx_pos & (ring_size(c) - 1), n = c->tx_tail - c->tx_pos;

	if (n > ring_size(c) - off)
		n = ring_size(c) - off;
	if (n > RDC_CHUNK)
		n = RDC_CHUNK;
	if (n > c->target.length)
		n = c->target.length;
	if (c->tx_pos < c->near_from && n > c->near_from - c->tx_pos)
		n = c->near_from - c->tx_pos;
	rdc_tx_sge(c, c->tx_pos, sge);
	sge->len = (uint32_t)n;
	memset(wr, 0, sizeof(*wr));
	wr->imm = wire_rsock_imm(WIRE_RSOCK_OP_DATA, (uint32_t)n);
	wr->wr_id = wr_id(c, wr->imm);
	wr->opcode = VERBS_WR_WRITE_IMM;
	wr->flags = VERBS_SEND_SIGNALED;
	/* Inline bytes are copied by the CPU. */
	if (n <= c->inline_max && c->tx_pos < c->near_from)
		wr->flags |= VERBS_SEND_INLINE;
	wr->sge = sge;
	wr->nsge = 1;
	wr->raddr = c->target.addr;
	wr->rkey = c->target.key;
	c->target.addr += n;
	c->target.length -= (uint32_t)n;
	c->tx_pos += n;
	c->seq++;
	c->sends++;
}

static bool post(struct rdc *c, const struct verbs_send_wr *wr, int n)
{
	int rc = n ? c->net->use.ops->post_send(c->qp, wr, n) : 0;

	if (rc == n)
		return true;
	/* The queue has room for all that is counted: this is a broken device or queue pair. */
	rdc_fail(c, rc < 0 ? -rc : EIO);
	return false;
}

static void send_data(struct rdc *c)
{
	struct verbs_send_wr wr[BATCH];
	struct verbs_sge sge[BATCH];
	int n;

	do {
		for (n = 0; n < BATCH && may_send_data(c); n++) {
			if (!c->target.length && !next_target(c))
				break;
			fill_data(c, &wr[n], &sge[n]);
		}
		if (!post(c, wr, n))
			return;
	} while (n == BATCH);
}

/* A message without data, or (entry) with 16 bytes for the peer's SGL array. */
static bool post_ctrl(struct rdc *c, uint32_t imm, const uint8_t *entry)
{
	struct verbs_sge sge = { (uintptr_t)entry, WIRE_RSOCK_SGE_LEN, 0 };
	struct verbs_send_wr wr = { .imm = imm,
				    .wr_id = wr_id(c, imm),
				    .opcode = VERBS_WR_WRITE_IMM,
				    .flags = VERBS_SEND_SIGNALED };

	if (entry) {
		wr.sge = &sge;
		wr.nsge = 1;
		wr.raddr = c->remote.sgl.addr + (uint64_t)c->remote_index * WIRE_RSOCK_SGE_LEN;
		wr.rkey = c->remote.sgl.key;
		if (c->inline_max >= WIRE_RSOCK_SGE_LEN)
			wr.flags |= VERBS_SEND_INLINE;
		else
			sge.lkey = c->mr_out->lkey;
		c->remote_index = (c->remote_index + 1) % c->remote.sgl.length;
	}
	c->ctrls++;
	return post(c, &wr, 1);
}

/* ---- credits --------------------------------------------------------------------------------------------------------------- */

/* The half of the ring behind what is granted is the peer's as soon as the reader has consumed what it held. */
static bool grant_due(const struct rdc *c)
{
	return c->granted + ring_size(c) / 2 - c->rx_head <= ring_size(c);
}

/*
 * At most RDC_CTRL control messages are under way, one of which is kept for a goodbye. A receiver's sequence moves when a receive is
 * posted again: the message's bytes are counted, not kept as a message.
 */
static void give_credits(struct rdc *c)
{
	while (c->ctrls < RDC_CTRL - 1 && !c->rx_end && !c->rx_shut) {
		uint16_t limit = (uint16_t)(c->rseq + c->credits);
		uint8_t *e = c->page + RDC_PAGE_OUT + c->out % RDC_CTRL * WIRE_RSOCK_SGE_LEN;
		struct wire_rsock_sge half = { .key = c->mr_rx->rkey,
					       .length = (uint32_t)(ring_size(c) / 2) };
		bool grant = grant_due(c);

		if (!grant && (uint16_t)(limit - c->limit) < c->credits / 2)
			return;
		if (grant) {
			c->out++;
			half.addr = rdc_rx_addr(c) + (c->granted & (ring_size(c) - 1));
			wire_rsock_sge_encode(&half, c->remote.flags & WIRE_RSOCK_BIG_ENDIAN, e);
			c->granted += ring_size(c) / 2;
		}
		c->limit = limit;
		if (!post_ctrl(c, wire_rsock_imm(WIRE_RSOCK_OP_SGL, limit), grant ? e : NULL))
			return;
	}
}

static void post_receives(struct rdc *c)
{
	struct verbs_recv_wr wr[BATCH];
	unsigned i, n = c->due < BATCH ? c->due : BATCH;
	int rc;

	for (i = 0; i < n; i++)
		wr[i] = (struct verbs_recv_wr){ .wr_id = recv_id(c) };
	while (c->due && c->qp && !c->err) {
		n = c->due < BATCH ? c->due : BATCH;
		rc = c->net->use.ops->post_recv(c->qp, wr, (int)n);
		if (rc != (int)n) {
			rdc_fail(c, rc < 0 ? -rc : EIO);
			return;
		}
		c->due -= n;
	}
}

/* ---- goodbyes -------------------------------------------------------------------------------------------------------------- */

static void say_goodbye(struct rdc *c)
{
	unsigned ctrl = c->want_ctrl - 1;

	if (!c->want_ctrl || c->ctrls >= RDC_CTRL ||
	    (ctrl == WIRE_RSOCK_SHUTDOWN && c->tx_pos != c->tx_tail))
		return;
	c->want_ctrl = 0;
	c->tx_shut = true;
	c->bye = ctrl == WIRE_RSOCK_DISCONNECT;
	post_ctrl(c, wire_rsock_imm(WIRE_RSOCK_OP_CTRL, ctrl), NULL);
}

int rdc_say(struct rdc *c, unsigned ctrl)
{
	if (c->err || c->gone)
		return 0;
	c->want_ctrl = 1 + ctrl;
	rdc_flow(c);
	return 0;
}

void rdc_probe(struct rdc *c)
{
	struct verbs_send_wr wr = { .wr_id = wr_id(c, wire_rsock_imm(RDC_OP_PROBE, 0)),
				    .opcode = VERBS_WR_WRITE,
				    .flags = VERBS_SEND_SIGNALED };

	if (!c->established || c->err || c->gone || !c->qp || c->sends || c->ctrls)
		return;
	c->ctrls++;
	post(c, &wr, 1);
	rdc_attend(c);
}

/* ---- the flow -------------------------------------------------------------------------------------------------------------- */

static void flow(struct rdc *c)
{
	post_receives(c);
	if (!c->established || c->err || c->gone || !c->qp)
		return;
	if (c->state != RDC_CLOSING) {
		give_credits(c);
		if (!c->err && !c->tx_shut)
			send_data(c);
	}
	if (!c->err)
		say_goodbye(c);
}

void rdc_flow(struct rdc *c)
{
	flow(c);
	rdc_attend(c);
}

void rdc_hurry(struct channel *ch)
{
	struct rdc *c = rdc_of(ch);

	c->hurry = true;
	rdc_attend(c);
}

void rdc_fail(struct rdc *c, int err)
{
	if (c->err)
		return;
	/* What the stream would take for a state that passes is the end here. */
	c->err = err == ENOMEM || err == ENOBUFS || err == EAGAIN || err == EINTR ? EIO : err;
	rdc_tell(c, CHANNEL_IN | CHANNEL_OUT);
}

/* ---- completions ------------------------------------------------------------------------------------------------------------ */

static void got_ctrl(struct rdc *c, uint32_t what)
{
	if (what == WIRE_RSOCK_KEEPALIVE)
		return;
	if (what == WIRE_RSOCK_DISCONNECT)
		c->gone = true;
	c->rx_end = true;
	rdc_tell(c, CHANNEL_IN | CHANNEL_OUT);
}

static void got_data(struct rdc *c, uint32_t n)
{
	if (c->rx_end || n > c->granted - c->rx_pos) {
		char name[RDC_NAME];

		log_line(LOG_WARN,
			 "rdma: %s sent %u bytes where it had room for %llu: connection dropped",
			 rdc_name(&c->peer, name), n,
			 (unsigned long long)(c->rx_end ? 0 : c->granted - c->rx_pos));
		rdc_fail(c, EPROTO);
		return;
	}
	c->rx_pos += n;
	rdc_tell(c, CHANNEL_IN);
}

/* It may come before the REP. */
static void got_limit(struct rdc *c, uint16_t limit)
{
	c->peer_limit = limit;
	c->limited = true;
}

static void received(struct rdc *c, const struct verbs_wc *wc)
{
	struct wire_rsock_msg m;

	c->due++;
	/* Whoever sends can receive: the RTU may be late or lost. Who connects waits for the peer's private data nevertheless. */
	if (c->state != RDC_CONNECTING)
		c->established = true;
	if (!(wc->flags & VERBS_WC_WITH_IMM) || wire_rsock_imm_decode(&m, wc->imm)) {
		char name[RDC_NAME];

		log_line(LOG_WARN,
			 "rdma: %s sent a message that is none (0x%08x): connection dropped",
			 rdc_name(&c->peer, name), wc->imm);
		rdc_fail(c, EPROTO);
		return;
	}
	if (m.op == WIRE_RSOCK_OP_DATA || m.op == WIRE_RSOCK_OP_IOMAP)
		c->rseq++;
	if (m.op == WIRE_RSOCK_OP_DATA)
		got_data(c, m.value);
	else if (m.op == WIRE_RSOCK_OP_SGL)
		got_limit(c, (uint16_t)m.value);
	else if (m.op == WIRE_RSOCK_OP_CTRL)
		got_ctrl(c, m.value);
}

static void sent(struct rdc *c, uint32_t what)
{
	if (what >> WIRE_RSOCK_OP_SHIFT != WIRE_RSOCK_OP_DATA) {
		c->ctrls--;
		return;
	}
	c->sends--;
	c->tx_done += what & WIRE_RSOCK_VALUE_MASK;
	rdc_tell(c, CHANNEL_OUT);
}

static const char *name_of_wr(uint32_t what)
{
	switch (what >> WIRE_RSOCK_OP_SHIFT) {
	case WIRE_RSOCK_OP_DATA:
		return "sending data";
	case WIRE_RSOCK_OP_SGL:
		return "giving credits";
	case RDC_OP_PROBE:
		return "a keepalive";
	default:
		return "saying goodbye";
	}
}

/*
 * Only wr_id and status of an error mean anything. That receives were flushed may be due to a send, whose completion says more. A send
 * that failed is seen at once, while a goodbye that arrived before may still lie in the other queue: see rdc_settle().
 */
static void failed(struct rdc *c, const struct verbs_wc *wc, bool recv)
{
	uint32_t what = (uint32_t)wc->wr_id;

	if (recv && wc->status == VERBS_WC_WR_FLUSH_ERR && !c->gone && !c->err)
		rdc_drain_sends(c);

	if (!recv && what >> WIRE_RSOCK_OP_SHIFT == WIRE_RSOCK_OP_DATA)
		c->sends--;
	else if (!recv)
		c->ctrls--;
	/* A peer that said goodbye does not answer any more, and what was flushed says nothing new. */
	if (c->gone || c->err || c->failing)
		return;
	if (!recv) {
		c->failing = true;
		c->failure = *wc;
		return;
	}
	rdc_fail(c, wc->status == VERBS_WC_WR_FLUSH_ERR ? ECONNRESET
							: rdc_explain(c, wc, "receiving"));
}

void rdc_settle(struct rdc *c)
{
	const struct verbs_wc *wc = &c->failure;

	if (!c->failing)
		return;
	rdc_drain_recvs(c);
	c->failing = false;
	if (c->gone || c->err)
		return;
	rdc_fail(c, wc->status == VERBS_WC_WR_FLUSH_ERR
			    ? ECONNRESET
			    : rdc_explain(c, wc, name_of_wr((uint32_t)wc->wr_id)));
}

void rdc_completion(struct rdc *c, const struct verbs_wc *wc)
{
	bool recv = (uint32_t)wc->wr_id == wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_KEEPALIVE);

	if (list_empty(&c->dirty_link))
		list_add_tail(&c->t->dirty, &c->dirty_link);
	if (wc->status != VERBS_WC_SUCCESS)
		failed(c, wc, recv);
	else if (recv)
		received(c, wc);
	else
		sent(c, (uint32_t)wc->wr_id);
}

/* ---- what the owner asks --------------------------------------------------------------------------------------------------- */

/* What the NIC has written is where kernels look. */
static void flush(struct rdc *c)
{
	const struct channel_near *near = &c->net->p.near;
	int rc = c->near_rx >= 0 && near->flush ? near->flush(near->ctx) : 0;

	if (rc)
		rdc_fail(c, EIO);
}

ssize_t rdc_ring_recv(struct channel *ch, uint64_t head, bool *watch)
{
	struct rdc *c = rdc_of(ch);
	uint64_t n = c->rx_pos - c->rx_told;

	c->rx_head = head;
	if (n) {
		flush(c);
		n = c->err == EIO && c->near_rx >= 0 ? 0 : n;
	}
	if (c->established && !c->err && !c->gone) {
		give_credits(c);
		rdc_attend(c);
	}
	*watch = !c->rx_end && !c->err && c->granted - c->rx_pos <= ring_size(c) / 2;
	if (n) {
		c->rx_told = c->rx_pos;
		rdc_told(c->t);
		return (ssize_t)n;
	}
	if (c->rx_end || c->rx_shut)
		return 0;
	return c->err ? -c->err : -EAGAIN;
}

ssize_t rdc_ring_send(struct channel *ch, uint64_t tail)
{
	struct rdc *c = rdc_of(ch);
	uint64_t n;

	if (tail != c->tx_tail)
		rdc_answered(c->t);
	c->tx_tail = tail;
	rdc_flow(c);
	n = c->tx_done - c->tx_told;
	if (n) {
		c->tx_told = c->tx_done;
		return (ssize_t)n;
	}
	if (c->err)
		return -c->err;
	return c->gone && tail != c->tx_done ? -EPIPE : -EAGAIN;
}
