/* SPDX-License-Identifier: BSD-3-Clause */
/* Unreliable connections and datagrams, QP1, shared receive queues. */
#include "rnic_rig.h"

#include "wire/bytes.h"
#include "wire/cm.h"

/* --- UC ------------------------------------------------------------------------------------------- */

static void uc_messages_arrive_without_acks(void **state)
{
	struct rnic_qp *qp[2];
	struct rnic_wc wc;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, &(struct rig_qp){ .type = RNIC_QP_UC }, qp);
	rig_fill(&g, 0, 4);
	assert_int_equal(rig_recv(&g, 1, qp[1], 0, 5000, 1), 0);
	assert_int_equal(rig_recv(&g, 1, qp[1], 0, 0, 2), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND_IMM, 10, 5000, 0, 11), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 10, 70000, 100000, 12), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE_IMM, 0, 3000, 200000, 13), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_READ, 0, 3000, 200000, 14), -EINVAL);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 11, RNIC_WC_SUCCESS);
	rig_expect(g.side[0].scq, 12, RNIC_WC_SUCCESS);
	rig_expect(g.side[0].scq, 13, RNIC_WC_SUCCESS);
	wc = rig_expect(g.side[1].rcq, 1, RNIC_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 5000);
	assert_int_equal(rig_expect(g.side[1].rcq, 2, RNIC_WC_SUCCESS).opcode,
			 RNIC_WC_RECV_WRITE_IMM);
	assert_memory_equal(g.side[1].mem, g.side[0].mem + 10, 5000);
	assert_memory_equal(g.side[1].mem + 100000, g.side[0].mem + 10, 70000);
	assert_int_equal(rnic_counters(g.side[1].r)->tx_packets, 0);
	rig_unpair(qp);
	rig_close(&g);
}

struct nth {
	unsigned n; /* the packet to lose or double, from 0 */
	unsigned seen;
	enum rnic_mem_verdict verdict;
};

static enum rnic_mem_verdict nth_packet(void *ctx, struct rnic_mem_packet *p, uint64_t now)
{
	struct nth *x = ctx;

	(void)p;
	(void)now;
	return x->seen++ == x->n ? x->verdict : RNIC_MEM_PASS;
}

/* Three messages of three packets; whichever packet is lost, the other two arrive whole and in order. */
static void uc_drops_a_message_with_a_gap_and_goes_on(void **state)
{
	struct nth x;
	struct rnic_mem_config net = { .seed = 1, .hook = nth_packet, .ctx = &x };
	struct rnic_qp *qp[2];
	struct rnic_wc wc;
	unsigned lost, i;
	struct rig g;

	(void)state;
	for (lost = 0; lost < 9; lost++) {
		uint64_t next = 0, got = 0;

		x = (struct nth){ .n = lost, .verdict = RNIC_MEM_DROP };
		rig_open(&g, NULL, &net);
		rig_pair(&g, &(struct rig_qp){ .type = RNIC_QP_UC }, qp);
		rig_fill(&g, 0, 4);
		for (i = 0; i < 3; i++) {
			assert_int_equal(rig_recv(&g, 1, qp[1], 4096 * i, 4096, i), 0);
			assert_int_equal(
				rig_post(&g, 0, qp[0], RNIC_WR_SEND_IMM, 4096 * i, 3000, 0, i), 0);
		}
		assert_true(rig_run(&g, RIG_S));
		while (rnic_cq_poll(g.side[1].rcq, &wc, 1) == 1) {
			uint64_t sent = wc.imm ^ 0x51515151;

			assert_int_equal(wc.status, RNIC_WC_SUCCESS);
			assert_int_equal(wc.wr_id, got++);
			assert_true(sent >= next && sent != lost / 3);
			next = sent + 1;
			assert_memory_equal(g.side[1].mem + 4096 * wc.wr_id,
					    g.side[0].mem + 4096 * sent, 3000);
		}
		assert_int_equal(got, 2);
		rig_unpair(qp);
		rig_close(&g);
	}
}

static void uc_takes_a_doubled_packet_once(void **state)
{
	struct nth x;
	struct rnic_mem_config net = { .seed = 1, .hook = nth_packet, .ctx = &x };
	struct rnic_qp *qp[2];
	unsigned twice, i;
	struct rig g;

	(void)state;
	for (twice = 0; twice < 4; twice++) {
		x = (struct nth){ .n = twice, .verdict = RNIC_MEM_DOUBLE };
		rig_open(&g, NULL, &net);
		rig_pair(&g, &(struct rig_qp){ .type = RNIC_QP_UC }, qp);
		for (i = 0; i < 4; i++)
			assert_int_equal(rig_recv(&g, 1, qp[1], 4096 * i, 4096, i), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 3000, 0, 1), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 10, 0, 2), 0);
		assert_true(rig_run(&g, RIG_S));
		assert_int_equal(rig_expect(g.side[1].rcq, 0, RNIC_WC_SUCCESS).byte_len, 3000);
		assert_int_equal(rig_expect(g.side[1].rcq, 1, RNIC_WC_SUCCESS).byte_len, 10);
		rig_expect_none(g.side[1].rcq);
		rig_unpair(qp);
		rig_close(&g);
	}
}

/* The send queue fails, the receive queue works, and the send queue can be revived. */
static void uc_send_error_stops_the_send_queue_only(void **state)
{
	struct rnic_sge sge[2];
	struct rnic_send_wr wr = { .wr_id = 2, .opcode = RNIC_WR_SEND, .sge = sge, .nsge = 2 };
	struct rnic_qp_attr a;
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, &(struct rig_qp){ .type = RNIC_QP_UC }, qp);
	assert_int_equal(rig_recv(&g, 1, qp[1], 0, 5000, 20), 0);
	assert_int_equal(rig_recv(&g, 0, qp[0], 0, 5000, 30), 0);
	/* The first packet of it can be sent. */
	sge[0] = rig_sge(&g, 0, 0, 1024);
	sge[1] = rig_sge(&g, 0, RIG_MEM, 1024);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 10, 0, 1), 0);
	assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 10, 0, 3), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	rig_expect(g.side[0].scq, 2, RNIC_WC_LOC_PROT_ERR);
	rig_expect(g.side[0].scq, 3, RNIC_WC_WR_FLUSH_ERR);
	rnic_qp_query(qp[0], &a);
	assert_int_equal(a.state, RNIC_QPS_SQE);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 10, 0, 4), 0);
	assert_int_equal(rig_post(&g, 1, qp[1], RNIC_WR_SEND, 0, 10, 0, 5), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 4, RNIC_WC_WR_FLUSH_ERR);
	rig_expect(g.side[0].rcq, 30, RNIC_WC_SUCCESS);
	a.state = RNIC_QPS_RTS;
	assert_int_equal(rnic_qp_modify(qp[0], &a, RNIC_ATTR_STATE, g.now), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 2000, 0, 6), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 6, RNIC_WC_SUCCESS);
	assert_int_equal(rig_expect(g.side[1].rcq, 20, RNIC_WC_SUCCESS).byte_len, 2000);
	rig_unpair(qp);
	rig_close(&g);
}

/* --- UD ------------------------------------------------------------------------------------------- */

static int post_ud(struct rig *g, struct rnic_qp *qp, uint32_t dest, uint32_t qkey, uint32_t len)
{
	struct rnic_sge sge = rig_sge(g, 0, 0, len);
	struct rnic_path path = { .tclass = 0x20, .hop_limit = 9 };
	struct rnic_send_wr wr = {
		.wr_id = 1,
		.opcode = RNIC_WR_SEND_IMM,
		.flags = RNIC_SEND_SIGNALED,
		.sge = &sge,
		.nsge = 1,
		.imm = 99,
		.path = &path,
		.dest_qpn = dest,
		.qkey = qkey,
	};

	memcpy(path.src, g->side[0].gid[0], 16);
	memcpy(path.dst, g->side[1].gid[0], 16);
	return rnic_post_send(qp, &wr, g->now);
}

static void datagrams_arrive_behind_their_header(void **state)
{
	const struct rnic_counters *c;
	struct rnic_qp *qp[2];
	struct rnic_wc wc;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, &(struct rig_qp){ .type = RNIC_QP_UD }, qp);
	c = rnic_counters(g.side[1].r);
	rig_fill(&g, 0, 4);
	assert_int_equal(rig_recv(&g, 1, qp[1], 0, 40 + 1001, 7), 0);
	assert_int_equal(post_ud(&g, qp[0], rnic_qp_num(qp[1]), 0x1234, 4097), -EMSGSIZE);
	assert_int_equal(post_ud(&g, qp[0], rnic_qp_num(qp[1]), 0x1234, 1001), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	wc = rig_expect(g.side[1].rcq, 7, RNIC_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 1041);
	assert_int_equal(wc.flags, RNIC_WC_GRH | RNIC_WC_WITH_IMM);
	assert_int_equal(wc.imm, 99);
	assert_int_equal(wc.src_qpn, rnic_qp_num(qp[0]));
	assert_memory_equal(g.side[1].mem + 40, g.side[0].mem, 1001);
	/* IPv4: the header lies in the last 20 of the 40 bytes. */
	assert_int_equal(g.side[1].mem[0], 0);
	assert_int_equal(g.side[1].mem[20], 0x45);
	assert_int_equal(g.side[1].mem[21], 0x20);
	assert_int_equal(g.side[1].mem[28], 9);
	assert_memory_equal(g.side[1].mem + 32, "\x0a\0\0\x01\x0a\0\0\x02", 8);

	/* Wrong qkey; no receive; a receive that is too short: dropped and counted. */
	assert_int_equal(post_ud(&g, qp[0], rnic_qp_num(qp[1]), 0x1235, 8), 0);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(c->rx_wrong_qkey, 1);
	assert_int_equal(post_ud(&g, qp[0], rnic_qp_num(qp[1]), 0x1234, 8), 0);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(c->rx_dropped_no_wqe, 1);
	assert_int_equal(rig_recv(&g, 1, qp[1], 0, 40 + 7, 8), 0);
	assert_int_equal(post_ud(&g, qp[0], rnic_qp_num(qp[1]), 0x1234, 8), 0);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(c->rx_dropped_no_wqe, 2);
	rig_expect_none(g.side[1].rcq);
	/* The receive is still there for one that fits. The top bit of a qkey means: the sender's own. */
	assert_int_equal(post_ud(&g, qp[0], rnic_qp_num(qp[1]), 0x80000000, 7), 0);
	assert_true(rig_run(&g, RIG_S));
	rig_expect(g.side[1].rcq, 8, RNIC_WC_SUCCESS);
	rig_unpair(qp);
	rig_close(&g);
}

static struct rnic_qp *make_gsi(struct rig *g, int side)
{
	struct rnic_qp_init in = { .type = RNIC_QP_GSI,
				   .send_cq = g->side[side].scq,
				   .recv_cq = g->side[side].rcq,
				   .max_send_wr = 4,
				   .max_recv_wr = 4,
				   .max_send_sge = 1,
				   .max_recv_sge = 1 };
	struct rnic_qp_attr a = { .qkey = WIRE_CM_QKEY_GSI };
	struct rnic_qp *qp, *second;
	int s;

	assert_int_equal(rnic_qp_create(g->side[side].pd, &in, &qp), 0);
	assert_int_equal(rnic_qp_create(g->side[side].pd, &in, &second), -EBUSY);
	assert_int_equal(rnic_qp_num(qp), 1);
	for (s = RNIC_QPS_INIT; s <= RNIC_QPS_RTS; s++) {
		a.state = (enum rnic_qp_state)s;
		assert_int_equal(rnic_qp_modify(qp, &a, RNIC_ATTR_STATE | RNIC_ATTR_QKEY, g->now),
				 0);
	}
	return qp;
}

static void qp1_carries_cm_datagrams(void **state)
{
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	qp[0] = make_gsi(&g, 0);
	qp[1] = make_gsi(&g, 1);
	assert_int_equal(rig_recv(&g, 1, qp[1], 0, 40 + WIRE_MAD_LEN, 7), 0);
	assert_int_equal(post_ud(&g, qp[0], 1, WIRE_CM_QKEY_GSI, WIRE_MAD_LEN), 0);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(rig_expect(g.side[1].rcq, 7, RNIC_WC_SUCCESS).src_qpn, 1);
	rig_unpair(qp);
	rig_close(&g);
}

/* --- shared receive queues -------------------------------------------------------------------------- */

static void queue_pairs_share_receives(void **state)
{
	struct rnic_qp *a[2], *b[2];
	struct rig_qp w = { 0 };
	struct rnic_srq *srq;
	struct rnic_sge sge;
	struct rnic_wc wc;
	struct rig g;
	uint64_t i;

	(void)state;
	rig_open(&g, NULL, NULL);
	assert_int_equal(rnic_srq_create(g.side[1].pd, 8, 1, &srq), 0);
	w.srq[1] = srq;
	rig_pair(&g, &w, a);
	rig_pair(&g, &w, b);
	sge = rig_sge(&g, 1, 0, 100);
	assert_int_equal(rnic_post_recv(a[1], 0, &sge, 1), -EINVAL);
	for (i = 0; i < 8; i++)
		assert_int_equal(rnic_srq_post(srq, i, &sge, 1), 0);
	assert_int_equal(rnic_srq_post(srq, 8, &sge, 1), -EAGAIN);
	rnic_srq_arm(srq, 3);
	for (i = 0; i < 5; i++)
		assert_int_equal(rig_post(&g, 0, i & 1 ? b[0] : a[0], RNIC_WR_SEND, 0, 10, 0, i),
				 0);
	assert_true(rig_run(&g, RIG_S));
	for (i = 0; i < 5; i++) {
		wc = rig_expect(g.side[1].rcq, i, RNIC_WC_SUCCESS);
		assert_true(wc.qpn == rnic_qp_num(a[1]) || wc.qpn == rnic_qp_num(b[1]));
	}
	assert_false(rig_saw(&g, 1, RNIC_EVENT_SRQ_LIMIT));
	assert_int_equal(rig_post(&g, 0, a[0], RNIC_WR_SEND, 0, 10, 0, 5), 0);
	assert_true(rig_run(&g, RIG_S));
	assert_true(rig_saw(&g, 1, RNIC_EVENT_SRQ_LIMIT));
	assert_int_equal(rnic_srq_destroy(srq), -EBUSY);
	/* In error, a queue pair gives nothing of it back but says that it is done with it. */
	assert_int_equal(rnic_qp_modify(a[1], &(struct rnic_qp_attr){ .state = RNIC_QPS_ERR },
					RNIC_ATTR_STATE, g.now),
			 0);
	assert_true(rig_run(&g, RIG_S));
	assert_true(rig_saw(&g, 1, RNIC_EVENT_LAST_WQE));
	rig_expect(g.side[1].rcq, 5, RNIC_WC_SUCCESS);
	rig_expect_none(g.side[1].rcq);
	rig_unpair(a);
	rig_unpair(b);
	assert_int_equal(rnic_srq_destroy(srq), 0);
	rig_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uc_messages_arrive_without_acks),
		cmocka_unit_test(uc_drops_a_message_with_a_gap_and_goes_on),
		cmocka_unit_test(uc_takes_a_doubled_packet_once),
		cmocka_unit_test(uc_send_error_stops_the_send_queue_only),
		cmocka_unit_test(datagrams_arrive_behind_their_header),
		cmocka_unit_test(qp1_carries_cm_datagrams),
		cmocka_unit_test(queue_pairs_share_receives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
