/* SPDX-License-Identifier: BSD-3-Clause */
/* Reliable connections: every operation, at the sizes where something changes, and every way to recover. */
#include "rnic_rig.h"

static const uint32_t sizes[] = {
	0, 1, 3, 8, 255, 1023, 1024, 1025, 2048, 2049, 5000, 65536, 200001
};

enum { NSIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void writes_of_every_size_arrive(void **state)
{
	static const unsigned mtus[] = { 256, 512, 1024, 2048, 4096 };
	struct rnic_qp *qp[2];
	struct rig g;
	size_t i, m;

	(void)state;
	rig_open(&g, NULL, NULL);
	for (m = 0; m < 5; m++) {
		rig_pair(&g, &(struct rig_qp){ .mtu = mtus[m] }, qp);
		for (i = 0; i < NSIZES; i++) {
			rig_fill(&g, 0, i + 1);
			memset(g.side[1].mem, 0x11, RIG_MEM);
			assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 7, sizes[i], 13, i),
					 0);
			assert_true(rig_run(&g, RIG_S));
			rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
			assert_memory_equal(g.side[1].mem + 13, g.side[0].mem + 7, sizes[i]);
			assert_int_equal(g.side[1].mem[12], 0x11);
			assert_int_equal(g.side[1].mem[13 + sizes[i]], 0x11);
		}
		rig_unpair(qp);
	}
	assert_int_equal(rnic_counters(g.side[0].r)->retransmits, 0);
	rig_close(&g);
}

static void sends_of_every_size_arrive(void **state)
{
	static const enum rnic_wr_opcode ops[] = { RNIC_WR_SEND, RNIC_WR_SEND_IMM };
	struct rnic_qp *qp[2];
	struct rnic_wc wc;
	struct rig g;
	size_t i, k;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	for (k = 0; k < 2; k++)
		for (i = 0; i < NSIZES; i++) {
			rig_fill(&g, 0, i + 1);
			assert_int_equal(rig_recv(&g, 1, qp[1], 64, sizes[i], 100 + i), 0);
			assert_int_equal(rig_post(&g, 0, qp[0], ops[k], 7, sizes[i], 0, i), 0);
			assert_true(rig_run(&g, RIG_S));
			rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
			wc = rig_expect(g.side[1].rcq, 100 + i, RNIC_WC_SUCCESS);
			assert_int_equal(wc.opcode, RNIC_WC_RECV);
			assert_int_equal(wc.byte_len, sizes[i]);
			assert_int_equal(wc.qpn, rnic_qp_num(qp[1]));
			assert_int_equal(wc.flags, k ? RNIC_WC_WITH_IMM : 0);
			if (k)
				assert_int_equal(wc.imm, i ^ 0x51515151);
			assert_memory_equal(g.side[1].mem + 64, g.side[0].mem + 7, sizes[i]);
		}
	rig_unpair(qp);
	rig_close(&g);
}

static void reads_of_every_size_arrive(void **state)
{
	struct rnic_qp *qp[2];
	struct rnic_wc wc;
	struct rig g;
	size_t i;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	for (i = 0; i < NSIZES; i++) {
		rig_fill(&g, 1, i + 1);
		memset(g.side[0].mem, 0x22, RIG_MEM);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_READ, 9, sizes[i], 5, i), 0);
		assert_true(rig_run(&g, RIG_S));
		wc = rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
		assert_int_equal(wc.opcode, RNIC_WC_READ);
		assert_memory_equal(g.side[0].mem + 9, g.side[1].mem + 5, sizes[i]);
		assert_int_equal(g.side[0].mem[9 + sizes[i]], 0x22);
	}
	assert_int_equal(rnic_counters(g.side[0].r)->retransmits, 0);
	rig_unpair(qp);
	rig_close(&g);
}

static void post_atomic(struct rig *g, struct rnic_qp *qp, enum rnic_wr_opcode op, uint64_t compare,
			uint64_t swap_add, uint64_t wr_id)
{
	struct rnic_sge sge = rig_sge(g, 0, 64, 8);
	struct rnic_send_wr wr = {
		.wr_id = wr_id,
		.opcode = op,
		.flags = RNIC_SEND_SIGNALED,
		.sge = &sge,
		.nsge = 1,
		.raddr = rig_va(128),
		.rkey = rnic_mr_rkey(g->side[1].mr),
		.compare = compare,
		.swap_add = swap_add,
	};

	assert_int_equal(rnic_post_send(qp, &wr, g->now), 0);
}

static void atomics_return_the_old_value(void **state)
{
	uint64_t *there, *here;
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	there = (uint64_t *)(void *)(g.side[1].mem + 128);
	here = (uint64_t *)(void *)(g.side[0].mem + 64);
	*there = UINT64_C(0x1122334455667788);
	post_atomic(&g, qp[0], RNIC_WR_FETCH_ADD, 0, 5, 1);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS).opcode, RNIC_WC_FETCH_ADD);
	assert_int_equal(*here, UINT64_C(0x1122334455667788));
	assert_int_equal(*there, UINT64_C(0x112233445566778d));
	post_atomic(&g, qp[0], RNIC_WR_CMP_SWAP, 1, 99, 2);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 2, RNIC_WC_SUCCESS);
	assert_int_equal(*here, UINT64_C(0x112233445566778d));
	assert_int_equal(*there, UINT64_C(0x112233445566778d));
	post_atomic(&g, qp[0], RNIC_WR_CMP_SWAP, UINT64_C(0x112233445566778d), 99, 3);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(rig_expect(g.side[0].scq, 3, RNIC_WC_SUCCESS).opcode, RNIC_WC_CMP_SWAP);
	assert_int_equal(*there, 99);
	rig_unpair(qp);
	rig_close(&g);
}

static void write_imm_takes_a_receive(void **state)
{
	struct rnic_qp *qp[2];
	struct rnic_wc wc;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	rig_fill(&g, 0, 3);
	/* A receive without a buffer is enough. */
	assert_int_equal(rnic_post_recv(qp[1], 70, NULL, 0), 0);
	assert_int_equal(rnic_post_recv(qp[1], 71, NULL, 0), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE_IMM, 0, 3000, 100, 1), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE_IMM, 0, 0, 0, 2), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	rig_expect(g.side[0].scq, 2, RNIC_WC_SUCCESS);
	wc = rig_expect(g.side[1].rcq, 70, RNIC_WC_SUCCESS);
	assert_int_equal(wc.opcode, RNIC_WC_RECV_WRITE_IMM);
	assert_int_equal(wc.byte_len, 3000);
	assert_int_equal(wc.imm, 1 ^ 0x51515151);
	wc = rig_expect(g.side[1].rcq, 71, RNIC_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 0);
	assert_memory_equal(g.side[1].mem + 100, g.side[0].mem, 3000);
	rig_unpair(qp);
	rig_close(&g);
}

/* A keepalive of rsockets: no bytes, key 0. */
static void writes_of_nothing_need_no_key(void **state)
{
	struct rnic_send_wr wr = { .wr_id = 5,
				   .opcode = RNIC_WR_WRITE,
				   .flags = RNIC_SEND_SIGNALED,
				   .raddr = 0xdead,
				   .rkey = 0 };
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 5, RNIC_WC_SUCCESS);
	rig_unpair(qp);
	rig_close(&g);
}

static void scatter_lists_and_inline_data_arrive(void **state)
{
	uint8_t here[] = "inline data that may change at once";
	struct rnic_sge from[3], to[3];
	struct rnic_send_wr wr = { .opcode = RNIC_WR_SEND,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = from };
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	rig_fill(&g, 0, 9);
	from[0] = rig_sge(&g, 0, 5, 1000);
	from[1] = rig_sge(&g, 0, 2000, 0);
	from[2] = rig_sge(&g, 0, 3000, 2001);
	to[0] = rig_sge(&g, 1, 0, 1);
	to[1] = rig_sge(&g, 1, 100, 2000);
	to[2] = rig_sge(&g, 1, 5000, 4000);
	assert_int_equal(rnic_post_recv(qp[1], 1, to, 3), 0);
	wr.nsge = 3;
	assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(rig_expect(g.side[1].rcq, 1, RNIC_WC_SUCCESS).byte_len, 3001);
	assert_int_equal(g.side[1].mem[0], g.side[0].mem[5]);
	assert_memory_equal(g.side[1].mem + 100, g.side[0].mem + 6, 999);
	assert_memory_equal(g.side[1].mem + 100 + 999, g.side[0].mem + 3000, 1001);
	assert_memory_equal(g.side[1].mem + 5000, g.side[0].mem + 4001, 1000);

	from[0] = (struct rnic_sge){ (uintptr_t)here, sizeof(here), 0 };
	wr.nsge = 1;
	wr.flags |= RNIC_SEND_INLINE;
	assert_int_equal(rnic_post_recv(qp[1], 2, to + 1, 1), 0);
	assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
	memset(here, 0, 6);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[1].rcq, 2, RNIC_WC_SUCCESS);
	assert_memory_equal(g.side[1].mem + 100, "inline data", 11);
	rig_unpair(qp);
	rig_close(&g);
}

static void numbers_wrap(void **state)
{
	struct rig_qp w = { .psn = { 0xfffff0, 0xffffff }, .mtu = 256 };
	struct rnic_qp *qp[2];
	struct rig g;
	uint64_t i;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, &w, qp);
	rig_fill(&g, 0, 1);
	for (i = 0; i < 20; i++) {
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 1000, 2000 * i, i), 0);
		assert_int_equal(rig_post(&g, 1, qp[1], RNIC_WR_READ, 500000, 1000, 0, i), 0);
	}
	assert_true(rig_run(&g, RIG_S));
	for (i = 0; i < 20; i++) {
		rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
		rig_expect(g.side[1].scq, i, RNIC_WC_SUCCESS);
		assert_memory_equal(g.side[1].mem + 2000 * i, g.side[0].mem, 1000);
	}
	assert_memory_equal(g.side[1].mem + 500000, g.side[0].mem, 1000);
	rig_unpair(qp);
	rig_close(&g);
}

/* --- recovery ----------------------------------------------------------------------------------- */

struct drops {
	uint8_t opcode;
	unsigned skip; /* of this opcode, so many pass first */
	unsigned drop;
};

static enum rnic_mem_verdict drop_some(void *ctx, struct rnic_mem_packet *p, uint64_t now)
{
	struct drops *d = ctx;

	(void)now;
	if (p->data[0] != d->opcode)
		return RNIC_MEM_PASS;
	if (d->skip) {
		d->skip--;
		return RNIC_MEM_PASS;
	}
	if (d->drop) {
		d->drop--;
		return RNIC_MEM_DROP;
	}
	return RNIC_MEM_PASS;
}

/* Runs three operations of a kind with losses; all must complete, and data be right. */
static void with_losses(enum rnic_wr_opcode op, struct drops d, struct rnic_counters *a,
			struct rnic_counters *b)
{
	struct rnic_mem_config net = { .seed = 1, .hook = drop_some, .ctx = &d };
	bool recv = op == RNIC_WR_SEND;
	struct rnic_qp *qp[2];
	struct rig g;
	uint64_t i;

	rig_open(&g, NULL, &net);
	rig_pair(&g, NULL, qp);
	rig_fill(&g, op == RNIC_WR_READ, 5);
	for (i = 0; i < 3; i++) {
		if (recv)
			assert_int_equal(rig_recv(&g, 1, qp[1], 200000 * i, 200000, i), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], op, 200000 * i, 150000, 200000 * i, i), 0);
	}
	assert_true(rig_run(&g, RIG_S));
	for (i = 0; i < 3; i++) {
		rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
		if (recv)
			rig_expect(g.side[1].rcq, i, RNIC_WC_SUCCESS);
		assert_memory_equal(g.side[1].mem + 200000 * i, g.side[0].mem + 200000 * i, 150000);
	}
	assert_int_equal(d.drop, 0);
	*a = *rnic_counters(g.side[0].r);
	*b = *rnic_counters(g.side[1].r);
	rig_unpair(qp);
	rig_close(&g);
}

static void a_gap_costs_one_nak_and_no_timeout(void **state)
{
	struct rnic_counters a, b;

	(void)state;
	with_losses(RNIC_WR_WRITE, (struct drops){ WIRE_WRITE_MIDDLE, 5, 1 }, &a, &b);
	assert_int_equal(b.tx_naks, 1);
	assert_int_equal(a.rx_naks, 1);
	assert_int_equal(a.timeouts, 0);
	with_losses(RNIC_WR_SEND, (struct drops){ WIRE_SEND_FIRST, 1, 1 }, &a, &b);
	assert_int_equal(b.tx_naks, 1);
	assert_int_equal(a.timeouts, 0);
}

/* Loses PSN 0x110 once and 0x140 when it comes a second time. */
static enum rnic_mem_verdict drop_two_psns(void *ctx, struct rnic_mem_packet *p, uint64_t now)
{
	unsigned *seen = ctx;

	(void)now;
	if (p->data[0] != WIRE_WRITE_MIDDLE)
		return RNIC_MEM_PASS;
	if (p->data[11] == 0x10 && seen[0]++ == 0)
		return RNIC_MEM_DROP;
	return p->data[11] == 0x40 && seen[1]++ == 1 ? RNIC_MEM_DROP : RNIC_MEM_PASS;
}

static void every_gap_gets_its_nak(void **state)
{
	unsigned seen[2] = { 0, 0 };
	struct rnic_mem_config net = { .seed = 1, .hook = drop_two_psns, .ctx = seen };
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, &net);
	rig_pair(&g, NULL, qp);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 100000, 0, 1), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	assert_int_equal(seen[1], 3);
	assert_int_equal(rnic_counters(g.side[1].r)->tx_naks, 2);
	assert_int_equal(rnic_counters(g.side[0].r)->timeouts, 0);
	rig_unpair(qp);
	rig_close(&g);
}

/* Loses PSN 0x110 three times in a row. */
static enum rnic_mem_verdict drop_one_thrice(void *ctx, struct rnic_mem_packet *p, uint64_t now)
{
	unsigned *dropped = ctx;

	(void)now;
	if ((p->data[0] == WIRE_WRITE_MIDDLE || p->data[0] == WIRE_READ_RESP_MIDDLE ||
	     p->data[0] == WIRE_READ_RESP_FIRST) &&
	    p->data[11] == 0x10 && *dropped < 3) {
		++*dropped;
		return RNIC_MEM_DROP;
	}
	return RNIC_MEM_PASS;
}

static void a_packet_lost_again_needs_no_timeout(void **state)
{
	static const enum rnic_wr_opcode ops[] = { RNIC_WR_WRITE, RNIC_WR_READ };
	unsigned dropped, i;
	struct rnic_mem_config net = { .seed = 1, .hook = drop_one_thrice, .ctx = &dropped };
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	for (i = 0; i < 2; i++) {
		dropped = 0;
		rig_open(&g, NULL, &net);
		/* One retry: that a packet is lost three times in a row takes no more. */
		rig_pair(&g, &(struct rig_qp){ .retry = 1 }, qp);
		assert_int_equal(rig_post(&g, 0, qp[0], ops[i], 0, 100000, 0, 1), 0);
		assert_true(rig_run(&g, RIG_S));
		rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
		assert_int_equal(dropped, 3);
		assert_int_equal(rnic_counters(g.side[0].r)->timeouts, 0);
		rig_unpair(qp);
		rig_close(&g);
	}
}

/* The time-out came too early: the ACK of the first sending arrives when one packet has been sent again. */
static void a_late_ack_ends_a_repetition(void **state)
{
	struct rnic_qp *qp[2];
	struct rig g;
	uint64_t i;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	for (i = 0; i < 5; i++)
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 100, 0, i), 0);
	rnic_step(g.side[0].r, g.now, 100);
	g.now += 5 * RIG_MS;
	rnic_step(g.side[0].r, g.now, 1);
	rnic_mem_step(g.net, g.now);
	rnic_step(g.side[1].r, g.now, 100);
	rnic_mem_step(g.net, g.now + 10000);
	for (i = 0; i < 5; i++)
		rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
	assert_int_equal(rnic_counters(g.side[0].r)->retransmits, 1);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 100, 0, 5), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 5, RNIC_WC_SUCCESS);
	assert_int_equal(rnic_counters(g.side[0].r)->retransmits, 1);
	assert_int_equal(rnic_counters(g.side[0].r)->timeouts, 1);
	rig_unpair(qp);
	rig_close(&g);
}

static void a_lost_tail_is_sent_again_after_the_timeout(void **state)
{
	struct rnic_counters a, b;

	(void)state;
	with_losses(RNIC_WR_WRITE, (struct drops){ WIRE_WRITE_LAST, 2, 1 }, &a, &b);
	assert_int_equal(a.timeouts, 1);
	assert_int_equal(b.tx_naks, 0);
}

static void lost_acks_are_repaired(void **state)
{
	struct rnic_counters a, b;

	(void)state;
	with_losses(RNIC_WR_WRITE, (struct drops){ WIRE_ACK, 0, 2 }, &a, &b);
}

/* Once it is armed: loses a packet in the middle of a WRITE, and the NAK that tells of it. */
struct silence {
	bool armed;
	unsigned data, nak;
};

static enum rnic_mem_verdict drop_with_nak(void *ctx, struct rnic_mem_packet *p, uint64_t now)
{
	struct silence *s = ctx;

	(void)now;
	if (s->armed && p->data[0] == WIRE_WRITE_MIDDLE && s->data++ == 0)
		return RNIC_MEM_DROP;
	if (s->armed && p->data[0] == WIRE_ACK && p->data[12] == WIRE_SYN_NAK_PSN && s->nak++ == 0)
		return RNIC_MEM_DROP;
	return RNIC_MEM_PASS;
}

static void a_lost_nak_needs_no_timeout(void **state)
{
	struct silence lost = { false, 0, 0 };
	struct rnic_mem_config net = { .seed = 1, .hook = drop_with_nak, .ctx = &lost };
	struct rnic_qp *qp[2];
	uint64_t start;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, &net);
	/* Time-out 67 ms; one retry, of which a probe takes none. */
	rig_pair(&g, &(struct rig_qp){ .timeout = 14, .retry = 1 }, qp);
	/* How long an answer takes is learned from the first. */
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 100000, 0, 1), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	lost.armed = true;
	start = g.now;
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 100000, 0, 2), 0);
	rig_run(&g, 10 * RIG_MS);
	assert_true(g.now - start <= 10 * RIG_MS);
	rig_expect(g.side[0].scq, 2, RNIC_WC_SUCCESS);
	assert_true(lost.nak);
	assert_int_equal(rnic_counters(g.side[0].r)->probes, 1);
	assert_int_equal(rnic_counters(g.side[0].r)->timeouts, 0);
	rig_unpair(qp);
	rig_close(&g);
}

/* Once it is armed: loses the answers to READs, `n` of them. */
struct mute {
	bool armed;
	unsigned n;
};

static enum rnic_mem_verdict drop_answers(void *ctx, struct rnic_mem_packet *p, uint64_t now)
{
	struct mute *m = ctx;

	(void)now;
	if (m->armed && p->data[0] >= WIRE_READ_RESP_FIRST && p->data[0] <= WIRE_READ_RESP_ONLY &&
	    m->n) {
		m->n--;
		return RNIC_MEM_DROP;
	}
	return RNIC_MEM_PASS;
}

/* `posted` READs with four at a time under way, of which the answers to all are lost once. */
static void reads_lost(unsigned posted, unsigned answers)
{
	struct mute m = { false, answers };
	struct rnic_mem_config net = { .seed = 1, .hook = drop_answers, .ctx = &m };
	struct rnic_qp *qp[2];
	uint64_t i, start;
	struct rig g;

	rig_open(&g, NULL, &net);
	rig_pair(&g, &(struct rig_qp){ .timeout = 14, .retry = 1 }, qp);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_READ, 0, 3000, 0, 99), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 99, RNIC_WC_SUCCESS);
	m.armed = true;
	start = g.now;
	for (i = 0; i < posted; i++)
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_READ, 0, 1000, 0, i), 0);
	rig_run(&g, 10 * RIG_MS);
	assert_true(g.now - start <= 10 * RIG_MS);
	for (i = 0; i < posted; i++)
		rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
	assert_int_equal(m.n, 0);
	assert_int_equal(rnic_counters(g.side[0].r)->probes, 1);
	assert_int_equal(rnic_counters(g.side[0].r)->timeouts, 0);
	rig_unpair(qp);
	rig_close(&g);
}

static void lost_answers_to_reads_need_no_timeout(void **state)
{
	(void)state;
	reads_lost(1, 1);
	/* More are posted, but nothing more may be under way. */
	reads_lost(8, 4);
}

/* What always takes long is not lost. */
static void a_peer_far_away_is_not_probed(void **state)
{
	struct rnic_mem_config net = { .seed = 1, .faults = { .delay_ns = 20 * RIG_MS } };
	struct rnic_qp *qp[2];
	struct rig g;
	uint64_t i;

	(void)state;
	rig_open(&g, NULL, &net);
	rig_pair(&g, &(struct rig_qp){ .timeout = 17 }, qp);
	for (i = 0; i < 40; i++) {
		assert_int_equal(rig_post(&g, 0, qp[0], i & 8 ? RNIC_WR_READ : RNIC_WR_WRITE, 0,
					  900000, 0, i),
				 0);
		assert_true(rig_run(&g, 10 * RIG_S));
		rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
	}
	assert_int_equal(rnic_counters(g.side[0].r)->retransmits, 0);
	rig_unpair(qp);
	rig_close(&g);
}

static void a_lost_read_response_is_asked_for_again(void **state)
{
	struct rnic_counters a, b;

	(void)state;
	with_losses(RNIC_WR_READ, (struct drops){ WIRE_READ_RESP_MIDDLE, 10, 1 }, &a, &b);
	assert_int_equal(a.timeouts, 0);
	assert_true(a.implied_naks > 0);
	assert_true(b.rx_duplicate > 0);
	with_losses(RNIC_WR_READ, (struct drops){ WIRE_READ_RESP_FIRST, 1, 1 }, &a, &b);
	with_losses(RNIC_WR_READ, (struct drops){ WIRE_READ_RESP_LAST, 8, 1 }, &a, &b);
	with_losses(RNIC_WR_READ, (struct drops){ WIRE_READ_REQ, 1, 2 }, &a, &b);
}

static void a_repeated_atomic_is_not_done_twice(void **state)
{
	struct drops d = { WIRE_ATOMIC_ACK, 0, 2 };
	struct rnic_mem_config net = { .seed = 1, .hook = drop_some, .ctx = &d };
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, &net);
	rig_pair(&g, NULL, qp);
	post_atomic(&g, qp[0], RNIC_WR_FETCH_ADD, 0, 1, 1);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	assert_int_equal(*(uint64_t *)(void *)(g.side[1].mem + 128), 1);
	assert_int_equal(*(uint64_t *)(void *)(g.side[0].mem + 64), 0);
	assert_int_equal(rnic_counters(g.side[1].r)->rx_duplicate, 2);
	rig_unpair(qp);
	rig_close(&g);
}

/* E4: an early SEND does not kill the connection. */
static void a_receive_posted_late_still_gets_the_send(void **state)
{
	struct rnic_qp *qp[2];
	uint64_t posted;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	/* Timer code 14: 1.28 ms. */
	rig_pair(&g, &(struct rig_qp){ .min_rnr = 14 }, qp);
	rig_fill(&g, 0, 2);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 3000, 0, 1), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 4096, 10, 0, 2), 0);
	assert_false(rig_run(&g, 10 * RIG_MS));
	rig_expect_none(g.side[0].scq);
	/* Seen once in a timer's period, and nothing besides. */
	assert_in_range(rnic_counters(g.side[1].r)->tx_rnr_naks, 7, 8);
	assert_int_equal(rnic_counters(g.side[1].r)->tx_naks, 0);
	assert_int_equal(rnic_counters(g.side[0].r)->timeouts, 0);
	posted = g.now;
	assert_int_equal(rig_recv(&g, 1, qp[1], 0, 4096, 8), 0);
	assert_int_equal(rig_recv(&g, 1, qp[1], 4096, 4096, 9), 0);
	assert_true(rig_run(&g, RIG_S));
	/* An alarm that was set earlier may outlast the work. */
	assert_true(g.now - posted < 6 * RIG_MS);
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	rig_expect(g.side[0].scq, 2, RNIC_WC_SUCCESS);
	rig_expect(g.side[1].rcq, 8, RNIC_WC_SUCCESS);
	rig_expect(g.side[1].rcq, 9, RNIC_WC_SUCCESS);
	assert_memory_equal(g.side[1].mem, g.side[0].mem, 3000);
	rig_unpair(qp);
	rig_close(&g);
}

/*
 * In each wait for a receive all of the SEND's packets come anew, and where some overtake others the peer also says now and then that
 * there is a gap. That is no sign of a dead peer, however often it happens.
 */
static void waits_for_a_receive_cost_no_retries(void **state)
{
	struct rnic_mem_config net = {
		.seed = 1, .faults = { .delay_ns = 500, .reorder = 200000, .reorder_ns = 3000 }
	};
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, &net);
	rig_pair(&g, NULL, qp);
	rig_fill(&g, 0, 2);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 8000, 0, 1), 0);
	assert_false(rig_run(&g, 10 * RIG_MS));
	rig_expect_none(g.side[0].scq);
	assert_true(rnic_counters(g.side[0].r)->rx_rnr_naks > 100);
	assert_true(rnic_counters(g.side[0].r)->rx_naks > 10);
	assert_int_equal(rig_recv(&g, 1, qp[1], 0, 8192, 8), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	rig_expect(g.side[1].rcq, 8, RNIC_WC_SUCCESS);
	rig_unpair(qp);
	rig_close(&g);
}

static void rnr_retries_run_out(void **state)
{
	struct rnic_qp *qp[2];
	struct rnic_qp_attr a;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, &(struct rig_qp){ .rnr_retry = 3 }, qp);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 10, 0, 1), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 10, 0, 2), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 1, RNIC_WC_RNR_RETRY_EXC_ERR);
	rig_expect(g.side[0].scq, 2, RNIC_WC_WR_FLUSH_ERR);
	assert_int_equal(rnic_counters(g.side[1].r)->tx_rnr_naks, 4);
	rnic_qp_query(qp[0], &a);
	assert_int_equal(a.state, RNIC_QPS_ERR);
	assert_true(rig_saw(&g, 0, RNIC_EVENT_QP_FATAL));
	rig_unpair(qp);
	rig_close(&g);
}

/* E1, B12: a dead peer is a bounded error. */
static void retries_run_out_and_everything_is_flushed(void **state)
{
	struct rnic_mem_config net = { .seed = 1, .faults = { .loss = 1000000 } };
	struct rnic_qp *qp[2];
	uint64_t start;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, &net);
	rig_pair(&g, &(struct rig_qp){ .retry = 5 }, qp);
	assert_int_equal(rig_recv(&g, 0, qp[0], 0, 100, 50), 0);
	assert_int_equal(rig_recv(&g, 0, qp[0], 0, 100, 51), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_READ, 0, 5000, 0, 1), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 10, 0, 2), 0);
	start = g.now;
	assert_true(rig_run(&g, RIG_S));
	/* Six time-outs of 4.194 ms. */
	assert_in_range(g.now - start, 25 * RIG_MS, 26 * RIG_MS);
	rig_expect(g.side[0].scq, 1, RNIC_WC_RETRY_EXC_ERR);
	rig_expect(g.side[0].scq, 2, RNIC_WC_WR_FLUSH_ERR);
	rig_expect(g.side[0].rcq, 50, RNIC_WC_WR_FLUSH_ERR);
	rig_expect(g.side[0].rcq, 51, RNIC_WC_WR_FLUSH_ERR);
	/* Those that come later, too. */
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 10, 0, 3), 0);
	assert_int_equal(rig_recv(&g, 0, qp[0], 0, 100, 52), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 3, RNIC_WC_WR_FLUSH_ERR);
	rig_expect(g.side[0].rcq, 52, RNIC_WC_WR_FLUSH_ERR);
	assert_int_equal(rnic_counters(g.side[0].r)->retry_exceeded, 1);
	rig_unpair(qp);
	rig_close(&g);
}

/* --- order -------------------------------------------------------------------------------------- */

static void a_fence_waits_for_reads(void **state)
{
	struct rnic_mem_config net = { .seed = 1, .faults = { .delay_ns = 50000 } };
	struct rnic_sge sge;
	struct rnic_send_wr wr = { .wr_id = 2, .opcode = RNIC_WR_WRITE, .sge = &sge, .nsge = 1 };
	struct rnic_qp *qp[2];
	struct rig g;
	int fence;

	(void)state;
	for (fence = 0; fence < 2; fence++) {
		rig_open(&g, NULL, &net);
		rig_pair(&g, NULL, qp);
		g.side[1].mem[0] = 1;
		g.side[0].mem[100] = 2;
		sge = rig_sge(&g, 0, 100, 1);
		wr.raddr = rig_va(0);
		wr.rkey = rnic_mr_rkey(g.side[1].mr);
		wr.flags = RNIC_SEND_SIGNALED | (fence ? RNIC_SEND_FENCE : 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_READ, 0, 1, 0, 1), 0);
		assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
		/* One way: without a fence the WRITE is there already, with it not yet sent. */
		assert_false(rig_run(&g, 60000));
		assert_int_equal(g.side[1].mem[0], fence ? 1 : 2);
		assert_true(rig_run(&g, RIG_S));
		rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
		rig_expect(g.side[0].scq, 2, RNIC_WC_SUCCESS);
		assert_int_equal(g.side[1].mem[0], 2);
		rig_unpair(qp);
		rig_close(&g);
	}
}

/* E6: a queue filled to its depth gives back-pressure. */
static void a_full_queue_refuses_and_goes_on(void **state)
{
	uint64_t next = 0, done = 0;
	struct rnic_qp *qp[2];
	struct rnic_wc wc;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, &(struct rig_qp){ .depth = 16 }, qp);
	while (done < 1000) {
		while (next < 1000 && rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 100, 0, next) == 0)
			next++;
		assert_true(next - done <= 16);
		assert_true(next == 1000 || next - done == 16);
		rig_run(&g, 3000);
		while (rnic_cq_poll(g.side[0].scq, &wc, 1) == 1) {
			assert_int_equal(wc.status, RNIC_WC_SUCCESS);
			assert_int_equal(wc.wr_id, done++);
		}
	}
	rig_unpair(qp);
	rig_close(&g);
}

/* A CQ of 4 entries, not polled: work waits, nothing is lost, nobody fails. */
static void a_full_cq_holds_completions_back(void **state)
{
	struct rnic_cq *small;
	struct rnic_qp *qp[2];
	uint64_t i, sent = 0, got = 0;
	struct rnic_wc wc;
	struct rig g;
	int side;

	(void)state;
	rig_open(&g, NULL, NULL);
	for (side = 0; side < 2; side++) {
		struct rnic_cq *was = side ? g.side[1].rcq : g.side[0].scq;

		assert_int_equal(rnic_cq_create(g.side[side].r, 4, &small), 0);
		*(side ? &g.side[1].rcq : &g.side[0].scq) = small;
		assert_int_equal(rnic_cq_destroy(was), 0);
	}
	rig_pair(&g, &(struct rig_qp){ .depth = 32 }, qp);
	for (i = 0; i < 32; i++) {
		assert_int_equal(rig_recv(&g, 1, qp[1], 0, 100, i), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 50, 0, i), 0);
	}
	while (got < 32) {
		rig_run(&g, RIG_MS);
		assert_true(rnic_cq_poll(g.side[1].rcq, &wc, 1) == 1);
		assert_int_equal(wc.status, RNIC_WC_SUCCESS);
		assert_int_equal(wc.wr_id, got++);
		rig_run(&g, RIG_MS);
		while (sent < got && rnic_cq_poll(g.side[0].scq, &wc, 1) == 1) {
			assert_int_equal(wc.status, RNIC_WC_SUCCESS);
			assert_int_equal(wc.wr_id, sent++);
		}
	}
	assert_true(rig_run(&g, RIG_S));
	while (rnic_cq_poll(g.side[0].scq, &wc, 1) == 1)
		assert_int_equal(wc.wr_id, sent++);
	assert_int_equal(sent, 32);
	assert_true(rnic_counters(g.side[1].r)->cq_full > 0);
	rig_unpair(qp);
	rig_close(&g);
}

static void acks_are_coalesced(void **state)
{
	struct rnic_qp *qp[2];
	struct rig g;
	uint64_t i;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	for (i = 0; i < 64; i++)
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 64, 0, i), 0);
	assert_true(rig_run(&g, RIG_S));
	for (i = 0; i < 64; i++)
		rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
	assert_int_equal(rnic_counters(g.side[0].r)->tx_packets, 64);
	/* They arrive at one moment, so one ACK answers for all. */
	assert_int_equal(rnic_counters(g.side[1].r)->tx_acks, 1);
	rig_unpair(qp);
	rig_close(&g);
}

static void send_with_invalidate_ends_the_key(void **state)
{
	struct rnic_send_wr wr = { .opcode = RNIC_WR_SEND_INV, .flags = RNIC_SEND_SIGNALED };
	struct rnic_qp *qp[2];
	struct rnic_mr *mr;
	struct rnic_wc wc;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	assert_int_equal(rnic_mr_create(g.side[1].pd, g.side[1].mem, 4096, 0, RNIC_ACCESS_ALL, &mr),
			 0);
	wr.imm = rnic_mr_rkey(mr);
	assert_int_equal(rnic_post_recv(qp[1], 1, NULL, 0), 0);
	assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 0, RNIC_WC_SUCCESS);
	wc = rig_expect(g.side[1].rcq, 1, RNIC_WC_SUCCESS);
	assert_int_equal(wc.flags, RNIC_WC_WITH_INV);
	assert_int_equal(wc.imm, wr.imm);
	assert_int_equal(rnic_mr_rkey(mr), 0);
	/* Its local key lives on, its remote key is stale. */
	wr.opcode = RNIC_WR_WRITE;
	wr.rkey = wr.imm;
	wr.nsge = 1;
	wr.sge = &(struct rnic_sge){ rig_va(0), 1, rnic_mr_lkey(g.side[0].mr) };
	assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 0, RNIC_WC_REM_ACCESS_ERR);
	rnic_mr_destroy(mr);
	rig_unpair(qp);
	rig_close(&g);
}

static void a_drained_send_queue_says_so(void **state)
{
	struct rnic_qp_attr a = { .state = RNIC_QPS_SQD };
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 500000, 0, 1), 0);
	rig_run(&g, 1500);
	assert_int_equal(rnic_qp_modify(qp[0], &a, RNIC_ATTR_STATE, g.now), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 10, 0, 2), 0);
	assert_false(rig_saw(&g, 0, RNIC_EVENT_SQ_DRAINED));
	assert_true(rig_run(&g, RIG_S));
	assert_true(rig_saw(&g, 0, RNIC_EVENT_SQ_DRAINED));
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	rig_expect_none(g.side[0].scq);
	a.state = RNIC_QPS_RTS;
	assert_int_equal(rnic_qp_modify(qp[0], &a, RNIC_ATTR_STATE, g.now), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 2, RNIC_WC_SUCCESS);
	rig_unpair(qp);
	rig_close(&g);
}

/* Fair scheduling: a long message does not hold up short ones on other queue pairs. */
static void queue_pairs_take_turns(void **state)
{
	struct rnic_qp *big[2], *small[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, big);
	rig_pair(&g, NULL, small);
	assert_int_equal(rig_post(&g, 0, big[0], RNIC_WR_WRITE, 0, 900000, 0, 1), 0);
	assert_int_equal(rig_post(&g, 0, small[0], RNIC_WR_WRITE, 0, 64, 0, 2), 0);
	/* 17 packets of budget: a turn of 16, and then the other's. */
	rnic_step(g.side[0].r, g.now, 17);
	rnic_mem_step(g.net, g.now + 2000);
	assert_int_equal(rnic_counters(g.side[1].r)->rx_packets, 17);
	rnic_step(g.side[1].r, g.now + 2000, 100);
	rnic_mem_step(g.net, g.now + 4000);
	rig_expect(g.side[0].scq, 2, RNIC_WC_SUCCESS);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	rig_unpair(big);
	rig_unpair(small);
	rig_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_of_every_size_arrive),
		cmocka_unit_test(sends_of_every_size_arrive),
		cmocka_unit_test(reads_of_every_size_arrive),
		cmocka_unit_test(atomics_return_the_old_value),
		cmocka_unit_test(write_imm_takes_a_receive),
		cmocka_unit_test(writes_of_nothing_need_no_key),
		cmocka_unit_test(scatter_lists_and_inline_data_arrive),
		cmocka_unit_test(numbers_wrap),
		cmocka_unit_test(a_gap_costs_one_nak_and_no_timeout),
		cmocka_unit_test(every_gap_gets_its_nak),
		cmocka_unit_test(a_packet_lost_again_needs_no_timeout),
		cmocka_unit_test(a_late_ack_ends_a_repetition),
		cmocka_unit_test(a_lost_tail_is_sent_again_after_the_timeout),
		cmocka_unit_test(lost_acks_are_repaired),
		cmocka_unit_test(a_lost_nak_needs_no_timeout),
		cmocka_unit_test(lost_answers_to_reads_need_no_timeout),
		cmocka_unit_test(a_peer_far_away_is_not_probed),
		cmocka_unit_test(a_lost_read_response_is_asked_for_again),
		cmocka_unit_test(a_repeated_atomic_is_not_done_twice),
		cmocka_unit_test(a_receive_posted_late_still_gets_the_send),
		cmocka_unit_test(waits_for_a_receive_cost_no_retries),
		cmocka_unit_test(rnr_retries_run_out),
		cmocka_unit_test(retries_run_out_and_everything_is_flushed),
		cmocka_unit_test(a_fence_waits_for_reads),
		cmocka_unit_test(a_full_queue_refuses_and_goes_on),
		cmocka_unit_test(a_full_cq_holds_completions_back),
		cmocka_unit_test(acks_are_coalesced),
		cmocka_unit_test(send_with_invalidate_ends_the_key),
		cmocka_unit_test(a_drained_send_queue_says_so),
		cmocka_unit_test(queue_pairs_take_turns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
