/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What losses cost, in virtual time: one queue pair over a wire of 3 GB/s and 5 us one way, with losses, and some packets
 * doubled and held back. Prints the table that docs/rnic.md shows. 100 simulated milliseconds a line, 5 seconds with
 * GPUNET_LONG=1.
 *
 * Beside the goodput, everything that arrived is checked: each WRITE carries its number in every 8 bytes.
 */
#include "rnic_rig.h"

enum { MSG = 65536, SLOTS = 4 };

/* One thread has no races, and under TSan a simulated millisecond takes 60 of a real one. */
#ifdef __SANITIZE_THREAD__
#define SIMULATED (25 * RIG_MS)
#else
#define SIMULATED (100 * RIG_MS)
#endif

struct flow {
	struct rig g;
	struct rnic_qp *qp[2];
	uint64_t posted, done;
};

static void stamp(uint8_t *p, uint64_t v)
{
	size_t i;

	for (i = 0; i < MSG; i += 8)
		memcpy(p + i, &v, 8);
}

static void check(const uint8_t *p, uint64_t v)
{
	uint64_t seen[MSG / 8];
	size_t i;

	memcpy(seen, p, MSG);
	for (i = 0; i < MSG / 8; i++)
		if (seen[i] != v)
			fail_msg("byte %zu of message %llu", i * 8, (unsigned long long)v);
}

/* READs take what the WRITEs left: slot by slot, fenced. */
static void post_more(struct flow *f, enum rnic_wr_opcode op)
{
	while (f->posted - f->done < SLOTS) {
		size_t slot = f->posted % SLOTS * MSG;

		if (op == RNIC_WR_WRITE)
			stamp(f->g.side[0].mem + slot, f->posted);
		else
			stamp(f->g.side[1].mem + slot, f->posted);
		assert_int_equal(rig_post(&f->g, 0, f->qp[0], op, slot, MSG, slot, f->posted), 0);
		f->posted++;
	}
}

static void take(struct flow *f, enum rnic_wr_opcode op)
{
	struct rnic_wc wc;

	while (rnic_cq_poll(f->g.side[0].scq, &wc, 1) == 1) {
		assert_int_equal(wc.status, RNIC_WC_SUCCESS);
		assert_int_equal(wc.wr_id, f->done);
		check(f->g.side[op == RNIC_WR_WRITE].mem + f->done % SLOTS * MSG, f->done);
		f->done++;
	}
}

/* Runs for `ns`; bytes a second. */
static double goodput(enum rnic_wr_opcode op, unsigned loss, uint64_t ns, struct rnic_counters *c)
{
	struct rnic_mem_config net = { .seed = loss + 1,
				       .packets = 2048,
				       .faults = { .loss = loss,
						   .duplicate = loss ? 1000 : 0,
						   .reorder = loss ? 1000 : 0,
						   .reorder_ns = 20000,
						   .delay_ns = 5000,
						   .rate = UINT64_C(3000000000) } };
	static struct flow f;
	uint64_t start, end;

	memset(&f, 0, sizeof(f));
	rig_open(&f.g, &(struct rnic_config){ .max_mr = 4, .max_qp = 4 }, &net);
	/* Time-out 0.5 ms. */
	rig_pair(&f.g, &(struct rig_qp){ .mtu = 4096, .timeout = 7, .rd_atomic = 16 }, f.qp);
	start = f.g.now;
	end = start + ns;
	while (f.g.now < end) {
		post_more(&f, op);
		rig_run(&f.g, 20000);
		take(&f, op);
	}
	*c = *rnic_counters(f.g.side[0].r);
	rig_unpair(f.qp);
	rig_close(&f.g);
	return (double)f.done * MSG / (double)(f.g.now - start) * 1e9;
}

static enum rnic_qp_state qp_state(const struct rnic_qp *qp)
{
	struct rnic_qp_attr a;

	rnic_qp_query(qp, &a);
	return a.state;
}

static void goodput_falls_gently_with_loss(void **state)
{
	static const struct {
		unsigned loss;      /* parts of a million */
		double write, read; /* GB/s at least */
	} line[] = {
		{ 0, 2.9, 2.9 }, { 1000, 2.3, 2.3 }, { 10000, 1.4, 1.4 }, { 100000, 0.3, 0.15 }
	};
	uint64_t ns = getenv("GPUNET_LONG") ? 5 * RIG_S : SIMULATED;
	static const enum rnic_wr_opcode ops[] = { RNIC_WR_WRITE, RNIC_WR_READ };
	struct rnic_counters c;
	size_t i, k;

	(void)state;
	for (k = 0; k < 2; k++)
		for (i = 0; i < sizeof(line) / sizeof(line[0]); i++) {
			double gbps = goodput(ops[k], line[i].loss, ns, &c) * 1e-9;

			print_message("| %s | %.1f%% | %.2f | %.2f | %llu |\n",
				      k ? "READ" : "WRITE", line[i].loss / 10000.0, gbps,
				      (double)c.retransmits / (double)c.tx_packets,
				      (unsigned long long)c.timeouts);
			assert_true(gbps >= (k ? line[i].read : line[i].write));
		}
}

/* E9: what was lost for a while does not slow down what comes later. */
static void the_wire_is_full_again_after_losses(void **state)
{
	struct rnic_mem_faults bad = { .loss = 100000,
				       .delay_ns = 30000,
				       .rate = UINT64_C(3000000000) };
	struct rnic_mem_faults good = { .delay_ns = 30000, .rate = UINT64_C(3000000000) };
	struct rnic_mem_config net = { .seed = 3, .packets = 2048, .faults = bad };
	static struct flow f;
	uint64_t done, end;

	(void)state;
	memset(&f, 0, sizeof(f));
	rig_open(&f.g, &(struct rnic_config){ .max_mr = 4, .max_qp = 4 }, &net);
	rig_pair(&f.g, &(struct rig_qp){ .mtu = 4096, .timeout = 7 }, f.qp);
	for (end = f.g.now + 20 * RIG_MS; f.g.now < end;) {
		post_more(&f, RNIC_WR_WRITE);
		rig_run(&f.g, 20000);
		take(&f, RNIC_WR_WRITE);
	}
	rnic_mem_set_faults(f.g.net, &good);
	done = f.done;
	for (end = f.g.now + 20 * RIG_MS; f.g.now < end;) {
		post_more(&f, RNIC_WR_WRITE);
		rig_run(&f.g, 20000);
		take(&f, RNIC_WR_WRITE);
	}
	/* 20 ms at 3 GB/s are 915 messages, of which four under way allow most; with the window of the bad times, 330. */
	assert_in_range(f.done - done, 750, 915);
	rig_unpair(f.qp);
	rig_close(&f.g);
}

/* J1: a link that carries short packets only. */
static enum rnic_mem_verdict black_hole(void *ctx, struct rnic_mem_packet *p, uint64_t now)
{
	(void)ctx;
	(void)now;
	return p->len > 1500 ? RNIC_MEM_DROP : RNIC_MEM_PASS;
}

static void blocked(enum rnic_wr_opcode op, uint32_t len, uint64_t limit)
{
	struct rnic_mem_config net = { .seed = 5,
				       .hook = black_hole,
				       .faults = { .delay_ns = 5000 } };
	struct rnic_qp *qp[2];
	uint64_t start;
	static struct rig g;

	memset(&g, 0, sizeof(g));
	rig_open(&g, NULL, &net);
	/* Time-out 67 ms. */
	rig_pair(&g, &(struct rig_qp){ .mtu = 4096, .timeout = 14 }, qp);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 1000, 0, 1), 0);
	rig_run(&g, RIG_MS);
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	start = g.now;
	assert_int_equal(rig_post(&g, 0, qp[0], op, 0, len, 0, 2), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 8, 0, 3), 0);
	while (qp_state(qp[0]) != RNIC_QPS_ERR) {
		assert_true(g.now - start <= limit);
		rig_run(&g, RIG_MS);
	}
	rig_expect(g.side[0].scq, 2, RNIC_WC_RETRY_EXC_ERR);
	rig_expect(g.side[0].scq, 3, RNIC_WC_WR_FLUSH_ERR);
	assert_int_equal(rnic_counters(g.side[0].r)->mtu_blocked, 1);
	/* It did not shout meanwhile. */
	assert_true(rnic_counters(g.side[0].r)->tx_packets < 2000);
	rig_unpair(qp);
	rig_close(&g);
}

static void an_mtu_that_is_too_large_is_named_in_time(void **state)
{
	(void)state;
	/* The last packet arrives and is answered: one time-out. */
	blocked(RNIC_WR_WRITE, 65536 + 100, 100 * RIG_MS);
	/* What comes behind is answered. */
	blocked(RNIC_WR_WRITE, 65536, 100 * RIG_MS);
	/* The last response arrives. */
	blocked(RNIC_WR_READ, 65536 + 100, 8 * 70 * RIG_MS);
}

/* A peer that is gone is no question of the MTU. */
static void a_dead_peer_is_not_taken_for_a_small_mtu(void **state)
{
	struct rnic_mem_faults dead = { .loss = 1000000 };
	struct rnic_mem_config net = { .seed = 5 };
	struct rnic_qp *qp[2];
	static struct rig g;

	(void)state;
	memset(&g, 0, sizeof(g));
	rig_open(&g, NULL, &net);
	rig_pair(&g, &(struct rig_qp){ .mtu = 4096, .timeout = 14 }, qp);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 65536, 0, 1), 0);
	rig_run(&g, RIG_S);
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	rnic_mem_set_faults(g.net, &dead);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 65536, 0, 2), 0);
	rig_run(&g, RIG_S);
	rig_expect(g.side[0].scq, 2, RNIC_WC_RETRY_EXC_ERR);
	assert_int_equal(rnic_counters(g.side[0].r)->mtu_blocked, 0);
	rig_unpair(qp);
	rig_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(goodput_falls_gently_with_loss),
		cmocka_unit_test(the_wire_is_full_again_after_losses),
		cmocka_unit_test(an_mtu_that_is_too_large_is_named_in_time),
		cmocka_unit_test(a_dead_peer_is_not_taken_for_a_small_mtu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
