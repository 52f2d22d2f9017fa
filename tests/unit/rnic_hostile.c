/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets that a peer, or somebody who pretends to be one, should not send: each is refused or bounded, counted, and
 * never writes a byte. Packets are made by hand and put on the network as side A's; B is the victim.
 */
#include "rnic_rig.h"

#include "rnic/impl.h"
#include "wire/bytes.h"
#include "wire/icrc.h"

/* Puts a packet for `qp` of side B on the network, from side A's address with its last byte plus `spoof`. */
static void inject(struct rig *g, const struct rnic_qp *qp, struct wire_roce *p, uint8_t spoof)
{
	uint8_t buf[WIRE_MTU_MAX + 128];
	struct rnic_mem_packet m = { .sport = 0xc001, .data = buf };
	int n;

	p->bth.pkey = p->bth.pkey ? p->bth.pkey : WIRE_PKEY_DEFAULT;
	p->bth.dqpn = p->bth.dqpn ? p->bth.dqpn : rnic_qp_num(qp);
	m.ip.ttl = 64;
	m.ip.dont_frag = true;
	memcpy(m.ip.src, g->side[0].gid[0], 16);
	memcpy(m.ip.dst, g->side[1].gid[0], 16);
	m.ip.src[15] = (uint8_t)(m.ip.src[15] + spoof);
	n = wire_roce_encode(p, buf, sizeof(buf));
	assert_true(n > 0);
	m.len = (size_t)n;
	rnic_mem_reseal(&m);
	assert_int_equal(rnic_mem_inject(g->net, &m, g->now), 0);
}

static const uint8_t evil[WIRE_MTU_MAX] = { 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee };

/* The next packet that B expects: a WRITE_ONLY of `len` bytes. */
static struct wire_roce write_only(const struct rig *g, uint64_t va, uint32_t len)
{
	return (struct wire_roce){
		.bth = { .opcode = WIRE_RC | WIRE_WRITE_ONLY,
			 .psn = 0x100,
			 .ack_req = true,
			 .pad = wire_pad(len) },
		.reth = { va, rnic_mr_rkey(g->side[1].mr), len },
		.payload = evil,
		.payload_len = len,
	};
}

struct victim {
	struct rig g;
	struct rnic_qp *qp[2];
};

static void victim_open(struct victim *v, const struct rig_qp *with)
{
	rig_open(&v->g, NULL, NULL);
	rig_pair(&v->g, with, v->qp);
	memset(v->g.side[1].mem, 0x33, RIG_MEM);
}

/* Nothing of B's memory has changed. */
static void victim_intact(const struct victim *v)
{
	size_t i;

	for (i = 0; i < RIG_MEM; i++)
		assert_int_equal(v->g.side[1].mem[i], 0x33);
}

static void victim_close(struct victim *v)
{
	rig_unpair(v->qp);
	rig_close(&v->g);
}

static enum rnic_qp_state state_of(const struct rnic_qp *qp)
{
	struct rnic_qp_attr a;

	rnic_qp_query(qp, &a);
	return a.state;
}

/* Injects one request; it must be refused with a NAK that ends the queue pair, and change nothing. */
static void refused(struct wire_roce *p, struct victim *v, bool access)
{
	const struct rnic_counters *c = rnic_counters(v->g.side[1].r);

	inject(&v->g, v->qp[1], p, 0);
	rig_run(&v->g, RIG_MS);
	victim_intact(v);
	assert_int_equal(c->rx_access, access);
	assert_int_equal(c->rx_invalid, !access);
	assert_int_equal(c->tx_naks, 1);
	assert_int_equal(state_of(v->qp[1]), RNIC_QPS_ERR);
	assert_true(rig_saw(&v->g, 1, access ? RNIC_EVENT_QP_ACCESS_ERR : RNIC_EVENT_QP_REQ_ERR));
	rig_expect_none(v->g.side[1].rcq);
}

/* --- keys and bounds ---------------------------------------------------------------------------- */

static void a_good_write_passes(void **state)
{
	struct victim v;
	struct wire_roce p;

	(void)state;
	victim_open(&v, NULL);
	p = write_only(&v.g, rig_va(RIG_MEM - 8), 8);
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_memory_equal(v.g.side[1].mem + RIG_MEM - 8, evil, 8);
	victim_close(&v);
}

static void wrong_keys_are_refused(void **state)
{
	uint32_t keys[5];
	struct victim v;
	struct wire_roce p;
	size_t i;

	(void)state;
	for (i = 0; i < 5; i++) {
		victim_open(&v, NULL);
		keys[0] = rnic_mr_rkey(v.g.side[1].mr) ^ 1;
		keys[1] = rnic_mr_lkey(v.g.side[1].mr); /* a local key is no remote key */
		keys[2] = rnic_mr_rkey(v.g.side[0].mr); /* another device's */
		keys[3] = 0;
		keys[4] = 0xffffffff;
		p = write_only(&v.g, rig_va(0), 8);
		p.reth.rkey = keys[i];
		refused(&p, &v, true);
		victim_close(&v);
	}
}

static void a_byte_out_of_bounds_is_refused(void **state)
{
	static const struct {
		uint64_t off;
		uint32_t len;
	} bad[] = {
		{ RIG_MEM - 7, 8 },      /* one byte beyond the end */
		{ UINT64_MAX, 8 },       /* one byte before the start */
		{ RIG_MEM, 1 },          /* just behind */
		{ UINT64_MAX - 7, 8 },   /* wholly before */
		{ 0 - RIG_IOVA - 4, 8 }, /* wraps past 2^64 */
		{ UINT64_C(1) << 32, 8 },
	};
	struct victim v;
	struct wire_roce p;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		victim_open(&v, NULL);
		p = write_only(&v.g, RIG_IOVA + bad[i].off, bad[i].len);
		refused(&p, &v, true);
		victim_close(&v);
	}
}

static void lengths_that_overflow_are_refused(void **state)
{
	static const uint32_t len[] = { RIG_MEM + 1, 0x40000000, 0x40000001, 0x80000001,
					0xffffffff };
	struct victim v;
	size_t i;

	(void)state;
	for (i = 0; i < 5; i++) {
		struct wire_roce p;

		victim_open(&v, NULL);
		p = write_only(&v.g, rig_va(0), 1024);
		p.bth.opcode = WIRE_RC | WIRE_WRITE_FIRST;
		p.reth.len = len[i];
		refused(&p, &v, len[i] <= 0x40000000);
		victim_close(&v);

		victim_open(&v, NULL);
		p = write_only(&v.g, rig_va(0), 0);
		p.bth.opcode = WIRE_RC | WIRE_READ_REQ;
		p.reth.len = len[i];
		refused(&p, &v, len[i] <= 0x40000000);
		victim_close(&v);
	}
}

/* The regions lie side by side, so that a check of the address alone would let this pass. */
static void regions_of_another_pd_are_refused(void **state)
{
	struct rnic_pd *other;
	struct rnic_mr *mr;
	struct victim v;
	struct wire_roce p;

	(void)state;
	victim_open(&v, NULL);
	assert_int_equal(rnic_pd_create(v.g.side[1].r, &other), 0);
	assert_int_equal(rnic_mr_create(other, v.g.side[1].mem, 4096, 0, RNIC_ACCESS_ALL, &mr), 0);
	p = write_only(&v.g, 0, 8);
	p.reth.rkey = rnic_mr_rkey(mr);
	refused(&p, &v, true);
	rnic_mr_destroy(mr);
	assert_int_equal(rnic_pd_destroy(other), 0);
	victim_close(&v);
}

static void stale_keys_are_refused(void **state)
{
	struct rnic_mr *mr;
	struct victim v;
	struct wire_roce p;

	(void)state;
	victim_open(&v, NULL);
	assert_int_equal(
		rnic_mr_create(v.g.side[1].pd, v.g.side[1].mem, 4096, 0, RNIC_ACCESS_ALL, &mr), 0);
	p = write_only(&v.g, 0, 8);
	p.reth.rkey = rnic_mr_rkey(mr);
	rnic_mr_destroy(mr);
	refused(&p, &v, true);
	victim_close(&v);
}

static void a_region_that_goes_away_mid_message_is_refused(void **state)
{
	struct rnic_mr *mr;
	struct victim v;
	struct wire_roce p;

	(void)state;
	victim_open(&v, NULL);
	assert_int_equal(
		rnic_mr_create(v.g.side[1].pd, v.g.side[1].mem, 4096, 0, RNIC_ACCESS_ALL, &mr), 0);
	p = write_only(&v.g, 0, 1024);
	p.bth.opcode = WIRE_RC | WIRE_WRITE_FIRST;
	p.reth.rkey = rnic_mr_rkey(mr);
	p.reth.len = 2048;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	rnic_mr_destroy(mr);
	memset(v.g.side[1].mem, 0x33, RIG_MEM);
	p = write_only(&v.g, 0, 1024);
	p.bth.opcode = WIRE_RC | WIRE_WRITE_LAST;
	p.bth.psn = 0x101;
	refused(&p, &v, true);
	victim_close(&v);
}

static void rights_are_needed(void **state)
{
	static const struct {
		uint8_t opcode;
		unsigned mr, qp; /* what the region and the queue pair allow */
		bool access;
	} tries[] = {
		{ WIRE_WRITE_ONLY, RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_READ,
		  RNIC_ACCESS_ALL, true },
		{ WIRE_WRITE_ONLY, RNIC_ACCESS_ALL, RNIC_ACCESS_REMOTE_READ, false },
		{ WIRE_READ_REQ, RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_WRITE,
		  RNIC_ACCESS_ALL, true },
		{ WIRE_READ_REQ, RNIC_ACCESS_ALL, RNIC_ACCESS_REMOTE_WRITE, false },
		{ WIRE_FETCH_ADD, RNIC_ACCESS_LOCAL_WRITE | RNIC_ACCESS_REMOTE_WRITE,
		  RNIC_ACCESS_ALL, true },
		{ WIRE_FETCH_ADD, RNIC_ACCESS_ALL, RNIC_ACCESS_REMOTE_WRITE, false },
	};
	struct rnic_mr *mr;
	struct victim v;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		struct wire_roce p;

		victim_open(&v, &(struct rig_qp){ .access = tries[i].qp });
		assert_int_equal(rnic_mr_create(v.g.side[1].pd, v.g.side[1].mem, 4096, 0,
						tries[i].mr, &mr),
				 0);
		p = write_only(&v.g, 0, tries[i].opcode == WIRE_WRITE_ONLY ? 8 : 0);
		p.bth.opcode = tries[i].opcode;
		p.reth.len = 8;
		p.reth.rkey = p.atomic.rkey = rnic_mr_rkey(mr);
		p.atomic.swap_add = 1;
		refused(&p, &v, tries[i].access);
		rnic_mr_destroy(mr);
		victim_close(&v);
	}
}

/* --- requests that make no sense ----------------------------------------------------------------- */

static void malformed_requests_are_refused(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t len, reth;
		uint8_t pad;
	} tries[] = {
		{ WIRE_WRITE_ONLY, 8, 9, 0 },       /* says more than it has */
		{ WIRE_WRITE_ONLY, 8, 7, 0 },       /* less */
		{ WIRE_WRITE_ONLY, 1028, 1028, 0 }, /* longer than the MTU */
		{ WIRE_WRITE_ONLY, 8, 8, 1 },       /* pad of a length that needs none */
		{ WIRE_WRITE_ONLY, 7, 7, 0 },       /* pad missing */
		{ WIRE_WRITE_FIRST, 1020, 4096, 0 },
		{ WIRE_WRITE_FIRST, 1024, 1024, 0 }, /* the whole of it, yet only the first */
		{ WIRE_WRITE_MIDDLE, 1024, 0, 0 },   /* of what? */
		{ WIRE_WRITE_LAST, 8, 0, 0 },
		{ WIRE_SEND_MIDDLE, 1024, 0, 0 },
		{ WIRE_SEND_LAST, 8, 0, 0 },
		{ WIRE_READ_REQ, 8, 8, 0 }, /* with payload */
	};
	struct victim v;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		struct wire_roce p;

		victim_open(&v, NULL);
		p = write_only(&v.g, rig_va(0), tries[i].len);
		p.bth.opcode = tries[i].opcode;
		p.bth.pad = tries[i].pad;
		p.reth.len = tries[i].reth;
		refused(&p, &v, false);
		victim_close(&v);
	}
}

static void messages_that_change_midway_are_refused(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t len;
	} tries[] = {
		{ WIRE_WRITE_LAST, 1023 }, /* the WRITE has 1,024 to go */
		{ WIRE_WRITE_LAST, 4 },    { WIRE_WRITE_MIDDLE, 1024 }, { WIRE_SEND_LAST, 1024 },
		{ WIRE_WRITE_ONLY, 8 },    { WIRE_READ_REQ, 0 },        { WIRE_WRITE_LAST, 0 },
	};
	struct victim v;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		struct wire_roce p;

		victim_open(&v, NULL);
		assert_int_equal(rig_recv(&v.g, 1, v.qp[1], 0, 4096, 1), 0);
		p = write_only(&v.g, rig_va(0), 1024);
		p.bth.opcode = WIRE_RC | WIRE_WRITE_FIRST;
		p.reth.len = 2048;
		inject(&v.g, v.qp[1], &p, 0);
		rig_run(&v.g, RIG_MS);
		memset(v.g.side[1].mem, 0x33, RIG_MEM);
		p = write_only(&v.g, rig_va(0), tries[i].len);
		p.bth.opcode = tries[i].opcode;
		p.bth.psn = 0x101;
		inject(&v.g, v.qp[1], &p, 0);
		rig_run(&v.g, RIG_MS);
		victim_intact(&v);
		assert_int_equal(rnic_counters(v.g.side[1].r)->rx_invalid, 1);
		assert_int_equal(state_of(v.qp[1]), RNIC_QPS_ERR);
		rig_expect(v.g.side[1].rcq, 1, RNIC_WC_WR_FLUSH_ERR);
		victim_close(&v);
	}
}

static void sends_beyond_their_receive_are_refused(void **state)
{
	struct victim v;
	struct wire_roce p;

	(void)state;
	victim_open(&v, NULL);
	assert_int_equal(rig_recv(&v.g, 1, v.qp[1], 0, 7, 1), 0);
	p = write_only(&v.g, 0, 8);
	p.bth.opcode = WIRE_RC | WIRE_SEND_ONLY;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	victim_intact(&v);
	rig_expect(v.g.side[1].rcq, 1, RNIC_WC_LOC_LEN_ERR);
	assert_int_equal(state_of(v.qp[1]), RNIC_QPS_ERR);
	victim_close(&v);

	/* In the second packet. */
	victim_open(&v, NULL);
	assert_int_equal(rig_recv(&v.g, 1, v.qp[1], 0, 1025, 1), 0);
	p = write_only(&v.g, 0, 1024);
	p.bth.opcode = WIRE_RC | WIRE_SEND_FIRST;
	inject(&v.g, v.qp[1], &p, 0);
	p = write_only(&v.g, 0, 2);
	p.bth.opcode = WIRE_RC | WIRE_SEND_LAST;
	p.bth.psn = 0x101;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_int_equal(v.g.side[1].mem[1024], 0x33);
	rig_expect(v.g.side[1].rcq, 1, RNIC_WC_LOC_LEN_ERR);
	victim_close(&v);
}

static void receives_into_foreign_memory_fail_here(void **state)
{
	struct rnic_pd *other;
	struct rnic_mr *mr;
	struct rnic_sge sge;
	struct victim v;

	(void)state;
	victim_open(&v, NULL);
	assert_int_equal(rnic_pd_create(v.g.side[1].r, &other), 0);
	assert_int_equal(rnic_mr_create(other, v.g.side[1].mem, 4096, 0, RNIC_ACCESS_ALL, &mr), 0);
	sge = (struct rnic_sge){ 0, 100, rnic_mr_lkey(mr) };
	assert_int_equal(rnic_post_recv(v.qp[1], 1, &sge, 1), 0);
	assert_int_equal(rig_post(&v.g, 0, v.qp[0], RNIC_WR_SEND, 0, 100, 0, 2), 0);
	rig_run(&v.g, RIG_MS);
	victim_intact(&v);
	rig_expect(v.g.side[1].rcq, 1, RNIC_WC_LOC_PROT_ERR);
	rig_expect(v.g.side[0].scq, 2, RNIC_WC_REM_OP_ERR);
	rnic_mr_destroy(mr);
	assert_int_equal(rnic_pd_destroy(other), 0);
	victim_close(&v);
}

static void sends_from_foreign_memory_fail_here(void **state)
{
	struct rnic_sge sge;
	struct rnic_send_wr wr = { .wr_id = 9, .opcode = RNIC_WR_WRITE, .sge = &sge, .nsge = 1 };
	struct victim v;

	(void)state;
	victim_open(&v, NULL);
	sge = rig_sge(&v.g, 0, RIG_MEM - 7, 8);
	wr.raddr = rig_va(0);
	wr.rkey = rnic_mr_rkey(v.g.side[1].mr);
	assert_int_equal(rig_post(&v.g, 0, v.qp[0], RNIC_WR_READ, 0, 5000, 0, 8), 0);
	assert_int_equal(rnic_post_send(v.qp[0], &wr, v.g.now), 0);
	assert_int_equal(rig_post(&v.g, 0, v.qp[0], RNIC_WR_WRITE, 0, 8, 0, 10), 0);
	rig_run(&v.g, RIG_S);
	victim_intact(&v);
	/* What came before it is done, and what comes after is flushed. */
	rig_expect(v.g.side[0].scq, 8, RNIC_WC_SUCCESS);
	rig_expect(v.g.side[0].scq, 9, RNIC_WC_LOC_PROT_ERR);
	rig_expect(v.g.side[0].scq, 10, RNIC_WC_WR_FLUSH_ERR);
	victim_close(&v);
}

/* --- packets from elsewhere ---------------------------------------------------------------------- */

static void strangers_are_not_heard(void **state)
{
	const struct rnic_counters *c;
	struct victim v;
	struct wire_roce p;

	(void)state;
	victim_open(&v, NULL);
	c = rnic_counters(v.g.side[1].r);
	p = write_only(&v.g, rig_va(0), 8);
	inject(&v.g, v.qp[1], &p, 5); /* another source address */
	p.bth.pkey = 0x8001;
	inject(&v.g, v.qp[1], &p, 0);
	p.bth.pkey = 0;
	p.bth.opcode = WIRE_UC | WIRE_WRITE_ONLY;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_int_equal(c->rx_wrong_peer, 3);
	p = write_only(&v.g, rig_va(0), 8);
	p.bth.tver = 1;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_int_equal(c->rx_malformed, 1);
	p.bth.tver = 0;
	p.bth.dqpn = rnic_qp_num(v.qp[1]) ^ 0x800;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_int_equal(c->rx_no_qp, 1);
	/* None of it was answered, and the connection lives. */
	victim_intact(&v);
	assert_int_equal(c->tx_packets, 0);
	assert_int_equal(rig_post(&v.g, 0, v.qp[0], RNIC_WR_WRITE, 0, 8, 0, 1), 0);
	rig_run(&v.g, RIG_S);
	rig_expect(v.g.side[0].scq, 1, RNIC_WC_SUCCESS);
	/* The limited member's P_Key is as good. */
	p = write_only(&v.g, rig_va(0), 8);
	p.bth.psn = 0x101;
	p.bth.pkey = 0x7fff;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_memory_equal(v.g.side[1].mem, evil, 8);
	victim_close(&v);
}

static void made_up_responses_complete_nothing(void **state)
{
	struct wire_roce p = { .aeth = { WIRE_SYN_ACK, 1 } };
	struct rnic_mem_faults none = { .loss = 1000000 };
	struct victim v;
	uint32_t psn;

	(void)state;
	victim_open(&v, NULL);
	/* B waits for the answer to a READ, which got lost. */
	rnic_mem_set_faults(v.g.net, &none);
	assert_int_equal(rig_post(&v.g, 1, v.qp[1], RNIC_WR_READ, 0, 3000, 0, 1), 0);
	rig_run(&v.g, 100000);
	for (psn = 0x1f0; psn < 0x210; psn++) {
		p.bth.psn = psn;
		p.bth.opcode = WIRE_RC | WIRE_ACK;
		inject(&v.g, v.qp[1], &p, 0);
		p.bth.opcode = WIRE_RC | WIRE_ATOMIC_ACK;
		inject(&v.g, v.qp[1], &p, 0);
		p.bth.opcode = WIRE_RC | WIRE_READ_RESP_ONLY;
		p.payload = evil;
		p.payload_len = 1024;
		/* Not the one that it waits for: that one a man in the middle could make up. */
		if (psn != 0x200)
			inject(&v.g, v.qp[1], &p, 0);
		p.payload_len = 0;
	}
	rig_run(&v.g, 100000);
	victim_intact(&v);
	rig_expect_none(v.g.side[1].scq);
	victim_close(&v);
}

static void a_response_of_the_wrong_length_is_an_error(void **state)
{
	struct wire_roce p = { .bth = { .opcode = WIRE_RC | WIRE_READ_RESP_FIRST, .psn = 0x200 },
			       .aeth = { WIRE_SYN_ACK, 1 },
			       .payload = evil };
	struct rnic_mem_faults none = { .loss = 1000000 };
	static const uint32_t len[] = { 0, 1020, 1028, 4096 };
	struct victim v;
	size_t i;

	(void)state;
	for (i = 0; i < 4; i++) {
		victim_open(&v, NULL);
		rnic_mem_set_faults(v.g.net, &none);
		assert_int_equal(rig_post(&v.g, 1, v.qp[1], RNIC_WR_READ, 0, 3000, 0, 1), 0);
		rig_run(&v.g, 100000);
		p.payload_len = len[i];
		inject(&v.g, v.qp[1], &p, 0);
		p.bth.dqpn = 0;
		rig_run(&v.g, 100000);
		victim_intact(&v);
		rig_expect(v.g.side[1].scq, 1, RNIC_WC_BAD_RESP_ERR);
		victim_close(&v);
	}
}

/* --- replays and floods --------------------------------------------------------------------------- */

static void a_replayed_write_is_not_done_again(void **state)
{
	struct victim v;
	struct wire_roce p;
	int i;

	(void)state;
	victim_open(&v, NULL);
	p = write_only(&v.g, rig_va(0), 8);
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_memory_equal(v.g.side[1].mem, evil, 8);
	memset(v.g.side[1].mem, 0x33, 8);
	for (i = 0; i < 100; i++)
		inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	victim_intact(&v);
	assert_int_equal(rnic_counters(v.g.side[1].r)->rx_duplicate, 100);
	assert_int_equal(state_of(v.qp[1]), RNIC_QPS_RTS);
	victim_close(&v);
}

/* Many copies of a READ are answered as one, since each answer waits its turn once. */
static void a_flood_of_duplicate_reads_is_bounded(void **state)
{
	struct victim v;
	struct wire_roce p;
	uint64_t sent;
	int i;

	(void)state;
	victim_open(&v, NULL);
	p = write_only(&v.g, rig_va(0), 0);
	p.bth.opcode = WIRE_RC | WIRE_READ_REQ;
	p.reth.len = 65536;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	sent = rnic_counters(v.g.side[1].r)->tx_packets;
	assert_int_equal(sent, 64);
	for (i = 0; i < 1000; i++)
		inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_int_equal(rnic_counters(v.g.side[1].r)->tx_packets, 2 * sent);
	/* One that asks for the rest gets the rest. */
	p.bth.psn = 0x110;
	p.reth.va += 16384;
	p.reth.len -= 16384;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	sent = rnic_counters(v.g.side[1].r)->tx_packets - sent;
	assert_int_equal(sent, 64 + 48);
	p.bth.psn = 0x100;
	p.reth.va -= 16384;
	p.reth.len += 16384;
	/* Copies that ask for something else are ignored. */
	p.reth.va++;
	inject(&v.g, v.qp[1], &p, 0);
	p.reth.va--;
	p.reth.rkey++;
	inject(&v.g, v.qp[1], &p, 0);
	p.reth.rkey--;
	p.reth.len++;
	inject(&v.g, v.qp[1], &p, 0);
	p.bth.psn = 0x101;
	p.reth.va += 1024;
	p.reth.len = 65536 - 1023;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_int_equal(rnic_counters(v.g.side[1].r)->tx_packets, 64 + 64 + 48);
	victim_close(&v);
}

/*
 * The copy of an answered READ wants its answer again when the next READ needs its slot: the peer that sent that one has
 * had the answer.
 */
static void a_late_copy_of_a_read_gives_way(void **state)
{
	struct victim v;
	struct wire_roce p;

	(void)state;
	victim_open(&v, &(struct rig_qp){ .rd_atomic = 1 });
	p = write_only(&v.g, rig_va(0), 0);
	p.bth.opcode = WIRE_RC | WIRE_READ_REQ;
	p.reth.len = 4096;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_int_equal(rnic_counters(v.g.side[1].r)->tx_packets, 4);
	inject(&v.g, v.qp[1], &p, 0);
	p.bth.psn = 0x104;
	p.reth.len = 2048;
	inject(&v.g, v.qp[1], &p, 0);
	rig_run(&v.g, RIG_MS);
	assert_int_equal(rnic_counters(v.g.side[1].r)->tx_packets, 4 + 2);
	assert_int_equal(state_of(v.qp[1]), RNIC_QPS_RTS);
	victim_close(&v);
}

/* As if 2^24 packets, or a multiple, had been sent: the next one has the number of the first again. */
static void numbers_come_round(const struct victim *v)
{
	struct rnic_sq *sq = &v->qp[0]->sq;

	sq->next_psn = sq->snd_psn = sq->snd_max = sq->una_psn = 0x100;
	v->qp[1]->resp.epsn = 0x100;
}

static enum rnic_mem_verdict drop_atomic_ack(void *ctx, struct rnic_mem_packet *p, uint64_t now)
{
	unsigned *n = ctx;

	(void)now;
	return p->data[0] == WIRE_ATOMIC_ACK && (*n)++ == 1 ? RNIC_MEM_DROP : RNIC_MEM_PASS;
}

static void a_repeated_atomic_is_not_taken_for_an_old_one(void **state)
{
	unsigned acks = 0;
	struct rnic_mem_config net = { .seed = 1, .hook = drop_atomic_ack, .ctx = &acks };
	struct victim v;
	uint64_t old;

	(void)state;
	rig_open(&v.g, NULL, &net);
	rig_pair(&v.g, NULL, v.qp);
	memset(v.g.side[1].mem, 0, 8);
	assert_int_equal(rig_post(&v.g, 0, v.qp[0], RNIC_WR_FETCH_ADD, 0, 8, 0, 1), 0);
	assert_true(rig_run(&v.g, RIG_S));
	rig_expect(v.g.side[0].scq, 1, RNIC_WC_SUCCESS);
	v.g.side[1].mem[0] = 77;
	numbers_come_round(&v);
	/* Its answer is lost. */
	assert_int_equal(rig_post(&v.g, 0, v.qp[0], RNIC_WR_FETCH_ADD, 0, 8, 0, 2), 0);
	assert_true(rig_run(&v.g, RIG_S));
	rig_expect(v.g.side[0].scq, 2, RNIC_WC_SUCCESS);
	assert_int_equal(acks, 3);
	memcpy(&old, v.g.side[0].mem, 8);
	assert_int_equal(old, 77);
	victim_close(&v);
}

static void more_reads_than_agreed_are_refused(void **state)
{
	struct victim v;
	struct wire_roce p;
	int i;

	(void)state;
	victim_open(&v, &(struct rig_qp){ .rd_atomic = 2 });
	p = write_only(&v.g, rig_va(0), 0);
	p.bth.opcode = WIRE_RC | WIRE_READ_REQ;
	p.reth.len = 8;
	for (i = 0; i < 3; i++) {
		p.bth.psn = 0x100 + (uint32_t)i;
		inject(&v.g, v.qp[1], &p, 0);
	}
	rig_run(&v.g, RIG_MS);
	assert_int_equal(rnic_counters(v.g.side[1].r)->rx_invalid, 1);
	assert_int_equal(state_of(v.qp[1]), RNIC_QPS_ERR);
	victim_close(&v);
}

/* Noise with a right ICRC, for every opcode: B's memory stays as it is, and whatever happens ends. */
static void noise_is_survived(void **state)
{
	uint8_t buf[300];
	struct rnic_mem_packet m = { .sport = 1, .data = buf };
	uint64_t s = 4242;
	struct victim v;
	int i, k;

	(void)state;
	victim_open(&v, NULL);
	for (i = 0; i < 20000; i++) {
		if (state_of(v.qp[1]) == RNIC_QPS_ERR) {
			rig_unpair(v.qp);
			rig_pair(&v.g, NULL, v.qp);
		}
		m.ip.ttl = 1;
		memcpy(m.ip.src, v.g.side[0].gid[0], 16);
		memcpy(m.ip.dst, v.g.side[1].gid[0], 16);
		m.len = 16 + rig_rnd(&s) % (sizeof(buf) - 16);
		for (k = 0; k < (int)m.len; k++)
			buf[k] = (uint8_t)(rig_rnd(&s) >> 50);
		/* Every opcode, those of RC more often. */
		buf[0] = (uint8_t)(i & 3 ? i >> 2 & 0x1f : i >> 2);
		buf[1] &= 0xf0;
		/* Requests without payload get as far as their keys. */
		if (buf[0] == WIRE_READ_REQ || buf[0] == WIRE_CMP_SWAP) {
			m.len = wire_roce_hdr_len(wire_opcode_flags(buf[0])) + WIRE_ICRC_LEN;
			buf[1] &= 0xc0;
		}
		wire_put_be16(buf + 2, WIRE_PKEY_DEFAULT);
		wire_put_be24(buf + 5, rnic_qp_num(v.qp[1]));
		if (i & 512)
			wire_put_be24(buf + 9, 0x100);
		/* A key that is right, now and then. */
		if (i & 1024)
			wire_put_be32(buf + 20, rnic_mr_rkey(v.g.side[1].mr));
		rnic_mem_reseal(&m);
		assert_int_equal(rnic_mem_inject(v.g.net, &m, v.g.now), 0);
		rig_run(&v.g, 10000);
	}
	victim_intact(&v);
	/* It got as far as the checks of requests, keys and responses. */
	assert_true(rnic_counters(v.g.side[1].r)->rx_invalid > 1000);
	assert_true(rnic_counters(v.g.side[1].r)->rx_access > 50);
	assert_true(rnic_counters(v.g.side[1].r)->rx_stale_response > 1000);
	victim_close(&v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_good_write_passes),
		cmocka_unit_test(wrong_keys_are_refused),
		cmocka_unit_test(a_byte_out_of_bounds_is_refused),
		cmocka_unit_test(lengths_that_overflow_are_refused),
		cmocka_unit_test(regions_of_another_pd_are_refused),
		cmocka_unit_test(stale_keys_are_refused),
		cmocka_unit_test(a_region_that_goes_away_mid_message_is_refused),
		cmocka_unit_test(rights_are_needed),
		cmocka_unit_test(malformed_requests_are_refused),
		cmocka_unit_test(messages_that_change_midway_are_refused),
		cmocka_unit_test(sends_beyond_their_receive_are_refused),
		cmocka_unit_test(receives_into_foreign_memory_fail_here),
		cmocka_unit_test(sends_from_foreign_memory_fail_here),
		cmocka_unit_test(strangers_are_not_heard),
		cmocka_unit_test(made_up_responses_complete_nothing),
		cmocka_unit_test(a_response_of_the_wrong_length_is_an_error),
		cmocka_unit_test(a_replayed_write_is_not_done_again),
		cmocka_unit_test(a_flood_of_duplicate_reads_is_bounded),
		cmocka_unit_test(a_late_copy_of_a_read_gives_way),
		cmocka_unit_test(a_repeated_atomic_is_not_taken_for_an_old_one),
		cmocka_unit_test(more_reads_than_agreed_are_refused),
		cmocka_unit_test(noise_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
