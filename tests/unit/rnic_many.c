/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many queue pairs on one device, and what many small messages between them must keep.
 *
 *	unit_rnic_many bench	10 busy ones among 1,000 against 10 alone, by the clock
 */
#include "rnic_rig.h"

#include <time.h>

#include "rnic/impl.h"

enum { BUSY = 10, IDLE = 990, PACKET = 1024 };

struct crowd {
	struct rig g;
	struct rnic_qp *qp[BUSY + IDLE][2];
	unsigned n;
	uint64_t turns[2]; /* until all were connected */
};

static void crowd_open(struct crowd *c, unsigned n)
{
	struct rnic_config dev = { .max_qp = BUSY + IDLE + 1 };
	struct rig_qp with = { .depth = 16, .timeout = 14 };

	rig_open(&c->g, &dev, NULL);
	for (c->n = 0; c->n < n; c->n++)
		rig_pair(&c->g, &with, c->qp[c->n]);
	rig_run(&c->g, RIG_MS);
	c->turns[0] = rnic_counters(c->g.side[0].r)->turns;
	c->turns[1] = rnic_counters(c->g.side[1].r)->turns;
}

static void crowd_close(struct crowd *c)
{
	while (c->n--)
		rig_unpair(c->qp[c->n]);
	rig_close(&c->g);
}

/* `rounds` WRITEs of each busy queue pair, four at a time. The busy ones are spread among the others. */
static void crowd_work(struct crowd *c, unsigned rounds)
{
	struct rnic_wc wc[64];
	unsigned i, k, got;

	for (k = 0; k < rounds; k += 4) {
		for (i = 0; i < 4 * BUSY; i++)
			assert_int_equal(rig_post(&c->g, 0, c->qp[i % BUSY * (c->n / BUSY)][0],
						  RNIC_WR_WRITE, i % BUSY * PACKET * 4, PACKET * 4,
						  i % BUSY * PACKET * 4, i),
					 0);
		for (got = 0; got < 4 * BUSY;) {
			rig_run(&c->g, RIG_MS);
			got += rnic_cq_poll(c->g.side[0].scq, wc, 64);
		}
	}
}

/* A device with 990 idle queue pairs more does the same work in the same turns. */
static void idle_queue_pairs_cost_nothing(void **state)
{
	static struct crowd few, many;
	const struct rnic_counters *a, *b;
	int side;

	(void)state;
	crowd_open(&few, BUSY);
	crowd_open(&many, BUSY + IDLE);
	crowd_work(&few, 40);
	crowd_work(&many, 40);
	for (side = 0; side < 2; side++) {
		a = rnic_counters(few.g.side[side].r);
		b = rnic_counters(many.g.side[side].r);
		assert_true(a->tx_packets > BUSY * 40 / 32 && a->turns > few.turns[side]);
		assert_int_equal(a->tx_packets, b->tx_packets);
		assert_int_equal(a->turns - few.turns[side], b->turns - many.turns[side]);
		assert_int_equal(b->retransmits, 0);
	}
	assert_int_equal(few.g.now, many.g.now);
	crowd_close(&few);
	crowd_close(&many);
}

/* J3: flows of different queue pairs can take different ways through the network. */
static void queue_pairs_differ_in_their_source_port(void **state)
{
	static struct crowd c;
	uint8_t seen[65536 / 8] = { 0 };
	unsigned i, ports = 0;

	(void)state;
	crowd_open(&c, 200);
	for (i = 0; i < c.n; i++) {
		unsigned port = c.qp[i][0]->sport;

		assert_true(port >= 0xc000);
		ports += !(seen[port / 8] & 1u << port % 8);
		seen[port / 8] |= (uint8_t)(1u << port % 8);
	}
	/* 16,384 there are, drawn from the numbers: a few may be alike. */
	assert_true(ports > 180);
	crowd_close(&c);
}

/* --- F3: barriers over a network that changes the order of packets ------------------------------ */

struct barrier {
	uint64_t payload[32];
	uint64_t flag;
};

static struct barrier *inbox(struct rig *g, int side)
{
	return (struct barrier *)(void *)g->side[side].mem;
}

static void arrive(struct rig *g, struct rnic_qp *qp, int side, uint64_t turn)
{
	struct barrier *out = inbox(g, side) + 1;
	unsigned i;

	for (i = 0; i < 32; i++)
		out->payload[i] = turn * 100 + i;
	out->flag = turn;
	assert_int_equal(rig_post(g, side, qp, RNIC_WR_WRITE, sizeof(*out), sizeof(out->payload), 0,
				  turn),
			 0);
	assert_int_equal(rig_post(g, side, qp, RNIC_WR_WRITE, sizeof(*out) + sizeof(out->payload),
				  8, sizeof(out->payload), turn),
			 0);
}

static bool there(struct rig *g, int side, uint64_t turn)
{
	struct barrier *in = inbox(g, side);
	unsigned i;

	if (in->flag != turn)
		return false;
	for (i = 0; i < 32; i++)
		assert_int_equal(in->payload[i], turn * 100 + i);
	return true;
}

static void barriers_hold_without_fences(void **state)
{
	const struct rnic_mem_config net = { .seed = 5,
					     .faults = { .delay_ns = 1000,
							 .loss = 1000,
							 .duplicate = 20000,
							 .reorder = 300000,
							 .reorder_ns = 5000 } };
	const uint64_t turns = getenv("GPUNET_LONG") ? 100000 : 2000;
	struct rig_qp with = { .timeout = 6 };
	struct rnic_qp *qp[2];
	struct rnic_wc wc[8];
	struct rig g;
	uint64_t turn;
	int side;

	(void)state;
	rig_open(&g, NULL, &net);
	rig_pair(&g, &with, qp);
	for (turn = 1; turn <= turns; turn++) {
		uint64_t end = g.now + 100 * RIG_S;
		bool all;

		for (side = 0; side < 2; side++)
			arrive(&g, qp[side], side, turn);
		do {
			assert_true(g.now < end);
			rig_run(&g, 700);
			for (all = true, side = 0; side < 2; side++)
				all &= there(&g, side, turn);
		} while (!all);
		/* What was sent may be reused when it is acknowledged. */
		for (side = 0; side < 2; side++) {
			unsigned got = 0;

			while ((got += rnic_cq_poll(g.side[side].scq, wc + got, 2 - got)) < 2)
				rig_run(&g, 5000);
			assert_int_equal(wc[0].status, RNIC_WC_SUCCESS);
			assert_int_equal(wc[1].status, RNIC_WC_SUCCESS);
		}
	}
	assert_true(rnic_counters(g.side[0].r)->rx_out_of_order > turns / 20);
	rig_unpair(qp);
	rig_close(&g);
}

/* --- E3: a receiver that comes late ------------------------------------------------------------- */

/* Code 0 is the longest wait, not none; what it costs shows in a counter. */
static void the_rnr_timer_of_zero_is_the_longest(void **state)
{
	static const struct {
		unsigned code;
		uint64_t least, most;
	} row[] = { { 0, 655 * RIG_MS, 660 * RIG_MS }, { 12, RIG_MS / 2, 2 * RIG_MS } };
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct rig_qp with = { .min_rnr = 12 };
		struct rnic_qp *qp[2];
		uint64_t start, took;
		struct rnic_wc wc;
		struct rig g;

		rig_open(&g, NULL, NULL);
		rig_pair(&g, &with, qp);
		qp[1]->attr.min_rnr = row[i].code;
		start = g.now;
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 64, 0, 1), 0);
		rig_run(&g, 100000);
		assert_int_equal(rnic_counters(g.side[0].r)->rx_rnr_naks, 1);
		assert_int_equal(rig_recv(&g, 1, qp[1], 0, 64, 2), 0);
		for (took = 0; !rnic_cq_poll(g.side[1].rcq, &wc, 1); took++) {
			assert_true(took < 100000);
			rig_run(&g, 50000);
		}
		assert_int_equal(wc.status, RNIC_WC_SUCCESS);
		took = g.now - start;
		assert_true(took >= row[i].least && took <= row[i].most);
		rig_unpair(qp);
		rig_close(&g);
	}
}

/* --- by the clock ------------------------------------------------------------------------------- */

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int bench(void)
{
	static struct crowd few, many;
	double best[2] = { 1e9, 1e9 }, start, t;
	unsigned i;

	crowd_open(&few, BUSY);
	crowd_open(&many, BUSY + IDLE);
	for (i = 0; i < 14; i++) {
		start = seconds();
		crowd_work(i % 2 ? &many : &few, 2000);
		t = seconds() - start;
		best[i % 2] = t < best[i % 2] ? t : best[i % 2];
	}
	printf("{\"what\":\"10 busy of 1000 queue pairs against 10\",\"ratio\":%.3f,\"bar\":0.9}\n",
	       best[0] / best[1]);
	crowd_close(&few);
	crowd_close(&many);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(idle_queue_pairs_cost_nothing),
		cmocka_unit_test(queue_pairs_differ_in_their_source_port),
		cmocka_unit_test(barriers_hold_without_fences),
		cmocka_unit_test(the_rnr_timer_of_zero_is_the_longest),
	};

	if (argc > 1 && !strcmp(argv[1], "bench"))
		return bench();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
