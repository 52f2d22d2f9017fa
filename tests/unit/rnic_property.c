/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random work lists over a network that loses, doubles, reorders, delays and corrupts, against a model that applies
 * the same list in order to plain memory. Everything is drawn from a seed, so a failure is replayed by
 *
 *	unit_rnic_property SEED [COUNT]
 *
 * Without arguments: seeds from 1 on, for 40 s of processor time, 20 s with ASan; 20,000 of them with GPUNET_LONG=1.
 *
 * What must hold: work completes in order, each receive gets the message that is its turn, READs and atomics return
 * what the list says, remote memory ends as the model's, and no request is ever refused. Where retries run out (as
 * they may at 30% loss) the list ends with one error and flushes, and what was received before is right; where at most
 * 1% is lost they must not run out. Every list ends within simulated minutes.
 */
#include <time.h>

#include "rnic_rig.h"

enum {
	OPS = 40,
	MAX_QPS = 2,
	SRC = 65536,
	SLOT = 4096,
	AREA = SRC + SRC + 2 * OPS * SLOT, /* of one queue pair on one side */
};

struct op {
	enum rnic_wr_opcode code;
	unsigned flags;
	uint32_t src, len, dst;
	uint32_t imm;
	uint64_t compare, swap_add;
	uint8_t want[SLOT]; /* READ: the data; atomic: the old value */
	bool done;
};

/* One direction of one queue pair: the side that posts is `side`. */
struct flow {
	struct rig *g;
	struct rnic_qp *qp, *peer;
	int side;
	uint32_t base; /* of this queue pair's area in either side's memory */
	struct op op[OPS];
	unsigned nops, posted, completed;
	unsigned recvs, recv_posted, received;
	unsigned recv_op[OPS]; /* which operation the n-th receive is for */
	uint8_t model[SRC];
	bool fence_due;
	bool failed;
};

struct world {
	struct rig g;
	struct flow flow[2 * MAX_QPS];
	unsigned nflows;
	unsigned loss;
	uint64_t s;
	uint64_t seed;
};

static uint32_t below(uint64_t *s, uint32_t n)
{
	return (uint32_t)(rig_rnd(s) >> 20) % n;
}

/* --- areas: on the posting side source and READ slots, on the other target and receive slots ----- */

static uint32_t source(const struct flow *f)
{
	return f->base;
}

static uint32_t read_slot(const struct flow *f, unsigned i)
{
	return f->base + 2 * SRC + i * SLOT;
}

static uint32_t target(const struct flow *f)
{
	return f->base + SRC;
}

static uint32_t recv_slot(const struct flow *f, unsigned i)
{
	return f->base + 2 * SRC + (OPS + i) * SLOT;
}

static uint8_t *mem(const struct flow *f, int side)
{
	return f->g->side[side].mem;
}

/* --- drawing a list, and what the model makes of it ---------------------------------------------- */

static uint32_t draw_len(uint64_t *s, uint32_t mtu, uint32_t max)
{
	uint32_t len;

	switch (below(s, 6)) {
	case 0:
		len = 0;
		break;
	case 1:
		len = mtu * below(s, 4) + below(s, 3) - (below(s, 4) ? 0 : 1);
		break;
	case 2:
		len = below(s, 65);
		break;
	default:
		len = below(s, max + 1);
	}
	return len > max ? max : len;
}

static void model_atomic(struct flow *f, struct op *o)
{
	uint64_t v;

	memcpy(&v, f->model + o->dst, 8);
	memcpy(o->want, &v, 8);
	if (o->code == RNIC_WR_FETCH_ADD)
		v += o->swap_add;
	else if (v == o->compare)
		v = o->swap_add;
	memcpy(f->model + o->dst, &v, 8);
}

static void draw_op(struct flow *f, struct op *o, uint64_t *s, uint32_t mtu)
{
	static const enum rnic_wr_opcode codes[] = {
		RNIC_WR_WRITE, RNIC_WR_WRITE,    RNIC_WR_WRITE_IMM,
		RNIC_WR_SEND,  RNIC_WR_SEND_IMM, RNIC_WR_READ,
		RNIC_WR_READ,  RNIC_WR_CMP_SWAP, RNIC_WR_FETCH_ADD,
	};
	bool slot, atomic, receives;

	o->code = codes[below(s, 9)];
	atomic = o->code == RNIC_WR_CMP_SWAP || o->code == RNIC_WR_FETCH_ADD;
	slot = o->code == RNIC_WR_READ || o->code == RNIC_WR_SEND || o->code == RNIC_WR_SEND_IMM;
	receives = o->code == RNIC_WR_SEND || o->code == RNIC_WR_SEND_IMM ||
		   o->code == RNIC_WR_WRITE_IMM;
	o->len = atomic ? 8 : draw_len(s, mtu, slot ? SLOT : below(s, 4) ? 9000 : SRC);
	o->src = below(s, SRC - o->len + 1);
	o->dst = below(s, SRC - o->len + 1);
	o->imm = (uint32_t)rig_rnd(s);
	o->flags = below(s, 2) ? RNIC_SEND_SIGNALED : 0;
	/* What changes the target must not overtake a READ of it. */
	if (f->fence_due || below(s, 8) == 0)
		o->flags |= RNIC_SEND_FENCE;
	f->fence_due = o->code == RNIC_WR_READ || (f->fence_due && !(o->flags & RNIC_SEND_FENCE));
	if (atomic) {
		o->dst &= ~7u;
		o->compare = below(s, 2) ? rig_rnd(s) : 0;
		memcpy(&o->compare, f->model + o->dst, below(s, 2) ? 8 : 0);
		o->swap_add = rig_rnd(s);
		model_atomic(f, o);
	} else if (o->code == RNIC_WR_READ) {
		memcpy(o->want, f->model + o->dst, o->len);
	} else if (o->code == RNIC_WR_WRITE || o->code == RNIC_WR_WRITE_IMM) {
		memcpy(f->model + o->dst, mem(f, f->side) + source(f) + o->src, o->len);
	}
	if (receives)
		f->recv_op[f->recvs++] = (unsigned)(o - f->op);
}

static void draw_flow(struct flow *f, uint64_t *s, uint32_t mtu)
{
	unsigned i;

	f->nops = 1 + below(s, OPS);
	memcpy(f->model, mem(f, 1 - f->side) + target(f), SRC);
	for (i = 0; i < f->nops; i++)
		draw_op(f, &f->op[i], s, mtu);
	f->op[f->nops - 1].flags |= RNIC_SEND_SIGNALED;
}

/* --- running ------------------------------------------------------------------------------------ */

static bool post_next(struct flow *f)
{
	struct op *o = &f->op[f->posted];
	bool into = o->code == RNIC_WR_READ || o->code == RNIC_WR_CMP_SWAP ||
		    o->code == RNIC_WR_FETCH_ADD;
	uint32_t at = into ? read_slot(f, f->posted) : source(f) + o->src;
	struct rnic_sge sge[2] = { rig_sge(f->g, f->side, at, o->len / 2),
				   rig_sge(f->g, f->side, at + o->len / 2, o->len - o->len / 2) };
	struct rnic_send_wr wr = {
		.wr_id = f->posted,
		.opcode = o->code,
		.flags = o->flags,
		.sge = sge,
		.nsge = 2,
		.imm = o->imm,
		.raddr = rig_va(target(f) + o->dst),
		.rkey = rnic_mr_rkey(f->g->side[1 - f->side].mr),
		.compare = o->compare,
		.swap_add = o->swap_add,
	};
	int rc = rnic_post_send(f->qp, &wr, f->g->now);

	if (rc == -EAGAIN)
		return false;
	assert_int_equal(rc, 0);
	f->posted++;
	return true;
}

static void take_send(struct flow *f, const struct rnic_wc *wc)
{
	assert_true(wc->wr_id < f->posted);
	if (wc->status == RNIC_WC_SUCCESS) {
		assert_false(f->failed);
		/* Those passed over are done, silently. */
		while (f->completed < wc->wr_id) {
			assert_false(f->op[f->completed].flags & RNIC_SEND_SIGNALED);
			f->op[f->completed++].done = true;
		}
		assert_true(f->op[wc->wr_id].flags & RNIC_SEND_SIGNALED);
		f->op[wc->wr_id].done = true;
	} else if (!f->failed) {
		f->failed = true;
		assert_true(wc->status == RNIC_WC_RETRY_EXC_ERR ||
			    wc->status == RNIC_WC_RNR_RETRY_EXC_ERR);
		while (f->completed < wc->wr_id) {
			assert_false(f->op[f->completed].flags & RNIC_SEND_SIGNALED);
			f->op[f->completed++].done = true;
		}
	} else {
		assert_int_equal(wc->status, RNIC_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(wc->wr_id, f->completed);
	f->completed++;
}

static void take_recv(struct flow *f, const struct rnic_wc *wc)
{
	const struct op *o;

	assert_int_equal(wc->wr_id, f->received);
	f->received++;
	if (wc->status == RNIC_WC_WR_FLUSH_ERR)
		return;
	assert_int_equal(wc->status, RNIC_WC_SUCCESS);
	o = &f->op[f->recv_op[wc->wr_id]];
	assert_int_equal(wc->opcode,
			 o->code == RNIC_WR_WRITE_IMM ? RNIC_WC_RECV_WRITE_IMM : RNIC_WC_RECV);
	assert_int_equal(wc->byte_len, o->len);
	assert_int_equal(wc->flags, o->code == RNIC_WR_SEND ? 0 : RNIC_WC_WITH_IMM);
	if (wc->flags)
		assert_int_equal(wc->imm, o->imm);
	if (o->code != RNIC_WR_WRITE_IMM)
		assert_memory_equal(mem(f, 1 - f->side) + recv_slot(f, (unsigned)wc->wr_id),
				    mem(f, f->side) + source(f) + o->src, o->len);
}

static void poll_all(struct world *w)
{
	struct rnic_wc wc;
	unsigned i;
	int side;

	for (side = 0; side < 2; side++) {
		while (rnic_cq_poll(w->g.side[side].scq, &wc, 1) == 1)
			for (i = 0; i < w->nflows; i++)
				if (w->flow[i].side == side && rnic_qp_num(w->flow[i].qp) == wc.qpn)
					take_send(&w->flow[i], &wc);
		while (rnic_cq_poll(w->g.side[side].rcq, &wc, 1) == 1)
			for (i = 0; i < w->nflows; i++)
				if (w->flow[i].side != side &&
				    rnic_qp_num(w->flow[i].peer) == wc.qpn)
					take_recv(&w->flow[i], &wc);
	}
}

static bool finished(const struct world *w)
{
	unsigned i;

	for (i = 0; i < w->nflows; i++)
		if (w->flow[i].completed < w->flow[i].nops)
			return false;
	return true;
}

/* What the seeds brought about, so that a run can be seen to have exercised it. */
static struct {
	struct rnic_counters c;
	unsigned failed, flows;
	uint64_t ns; /* of virtual time */
} total;

static void run(struct world *w)
{
	uint64_t begin = w->g.now, end = begin + 600 * RIG_S;
	unsigned i;

	while (!finished(w)) {
		assert_true(w->g.now < end);
		for (i = 0; i < w->nflows; i++) {
			struct flow *f = &w->flow[i];
			unsigned burst = below(&w->s, 8);

			while (burst-- && f->posted < f->nops && post_next(f))
				;
			if (f->recv_posted < f->recvs && below(&w->s, 3)) {
				assert_int_equal(rig_recv(&w->g, 1 - f->side, f->peer,
							  recv_slot(f, f->recv_posted), SLOT,
							  f->recv_posted),
						 0);
				f->recv_posted++;
			}
		}
		rig_run(&w->g, 1 + below(&w->s, 1u << below(&w->s, 20)));
		poll_all(w);
	}
	total.ns += w->g.now - begin;
}

/* --- the end ------------------------------------------------------------------------------------ */

static void check_flow(struct world *w, struct flow *f)
{
	unsigned i;

	if (f->failed)
		assert_true(w->loss > 10000);
	for (i = 0; i < f->nops; i++) {
		struct op *o = &f->op[i];

		if (o->done && (o->code == RNIC_WR_READ || o->code == RNIC_WR_CMP_SWAP ||
				o->code == RNIC_WR_FETCH_ADD))
			assert_memory_equal(mem(f, f->side) + read_slot(f, i), o->want, o->len);
	}
	if (f->failed)
		return;
	assert_int_equal(f->received, f->recvs);
	assert_memory_equal(mem(f, 1 - f->side) + target(f), f->model, SRC);
}

static void draw_faults(struct world *w, struct rnic_mem_faults *m)
{
	static const unsigned loss[] = { 0, 1000, 10000, 100000, 300000 };
	uint64_t *s = &w->s;

	w->loss = loss[below(s, 5)];
	m->loss = w->loss;
	m->delay_ns = 500 + below(s, 20000);
	m->duplicate = below(s, 2) ? below(s, 100000) : 0;
	m->reorder = below(s, 2) ? below(s, 200000) : 0;
	m->reorder_ns = 1 + below(s, 300000);
	m->jitter_ns = below(s, 2) ? below(s, 20000) : 0;
	m->refuse = below(s, 4) ? 0 : below(s, 300000);
	m->corrupt = below(s, 2) ? below(s, 5000) : 0;
	/* A corrupted packet is a lost one. */
	w->loss += m->corrupt;
}

static void add_up(const struct world *w)
{
	uint64_t *sum = (uint64_t *)&total.c;
	unsigned i, k;

	for (i = 0; i < 2; i++)
		for (k = 0; k < sizeof(total.c) / 8; k++)
			sum[k] += ((const uint64_t *)rnic_counters(w->g.side[i].r))[k];
	for (i = 0; i < w->nflows; i++)
		total.failed += w->flow[i].failed;
	total.flows += w->nflows;
}

static void one_world(uint64_t seed)
{
	static const unsigned mtus[] = { 256, 512, 1024, 2048, 4096 };
	struct world *w = calloc(1, sizeof(*w));
	struct rnic_qp *qp[MAX_QPS][2];
	struct rnic_config dev = { .max_mr = 4, .max_qp = 4 };
	struct rnic_mem_config net = { .seed = seed, .packets = 1024 };
	struct rig_qp with;
	unsigned n, i;

	assert_non_null(w);
	w->seed = seed;
	w->s = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	draw_faults(w, &net.faults);
	dev.window = 8 + below(&w->s, 250);
	dev.read_chunk = 1 + below(&w->s, dev.window < 64 ? dev.window : 64);
	dev.burst = 1 + below(&w->s, 32);
	/* Memory of the CPU, or behind copies, on either side. */
	w->g.far_sides = (unsigned)(seed & 3);
	w->g.far_seed = seed * 7 + 1;
	rig_open_far(&w->g, &dev, &net);
	rig_fill(&w->g, 0, seed);
	rig_fill(&w->g, 1, seed + 1);
	n = 1 + below(&w->s, MAX_QPS);
	for (i = 0; i < n; i++) {
		with = (struct rig_qp){
			.mtu = mtus[below(&w->s, 5)],
			.psn = { 1 + below(&w->s, WIRE_PSN_MASK),
				 WIRE_PSN_MASK - below(&w->s, 200) },
			.timeout = 8 + below(&w->s, 4),
			.rd_atomic = 1 + below(&w->s, 8),
			.min_rnr = 1 + below(&w->s, 14),
			.depth = OPS, /* receives all fit, sends need not */
			.send_depth = 1u << below(&w->s, 7),
		};
		rig_pair(&w->g, &with, qp[i]);
		w->flow[2 * i] = (struct flow){
			.g = &w->g, .qp = qp[i][0], .peer = qp[i][1], .side = 0, .base = i * AREA
		};
		w->flow[2 * i + 1] = (struct flow){
			.g = &w->g, .qp = qp[i][1], .peer = qp[i][0], .side = 1, .base = i * AREA
		};
	}
	w->nflows = 2 * n;
	for (i = 0; i < w->nflows; i++)
		draw_flow(&w->flow[i], &w->s, w->flow[i].g ? 1024 : 0);
	run(w);
	for (i = 0; i < w->nflows; i++)
		check_flow(w, &w->flow[i]);
	for (i = 0; i < 2; i++) {
		assert_int_equal(rnic_counters(w->g.side[i].r)->rx_access, 0);
		assert_int_equal(rnic_counters(w->g.side[i].r)->rx_invalid, 0);
		assert_int_equal(rnic_counters(w->g.side[i].r)->rx_malformed, 0);
	}
	add_up(w);
	for (i = 0; i < n; i++)
		rig_unpair(qp[i]);
	rig_close(&w->g);
	free(w);
}

/* One thread: TSan has nothing to find and takes ten times as long. */
#if defined(__SANITIZE_THREAD__)
static uint64_t seeds = 30, long_seeds = 300;
#else
/* The long run is ten minutes of virtual time. */
static uint64_t seeds = 20000, long_seeds = 20000;
#endif
#if defined(__SANITIZE_ADDRESS__)
static unsigned seconds = 20;
#else
static unsigned seconds = 40;
#endif
static uint64_t first_seed = 1;

/* The time is over, after enough seeds to have met each kind of fault. */
static bool over(uint64_t done)
{
	return seconds && done >= 300 && clock() / CLOCKS_PER_SEC >= (clock_t)seconds;
}

static void random_work_lists_match_the_model(void **state)
{
	uint64_t i;

	(void)state;
	for (i = first_seed; i < first_seed + seeds && !over(i - first_seed); i++) {
		/* The last line of a failed run names the seed. */
		print_message("seed %llu\r", (unsigned long long)i);
		fflush(stdout);
		one_world(i);
	}
	print_message(
		"%llu seeds, %u lists in %.1f s of virtual time, %u of them ran out of retries; %llu packets, %llu sent again, %llu time-outs, "
		"%llu NAKs, %llu implied, %llu RNR, %llu duplicates\n",
		(unsigned long long)(i - first_seed), total.flows, (double)total.ns / 1e9,
		total.failed, (unsigned long long)total.c.tx_packets,
		(unsigned long long)total.c.retransmits, (unsigned long long)total.c.timeouts,
		(unsigned long long)total.c.rx_naks, (unsigned long long)total.c.implied_naks,
		(unsigned long long)total.c.rx_rnr_naks, (unsigned long long)total.c.rx_duplicate);
	if (seeds >= 100)
		assert_true(total.c.rx_naks && total.c.implied_naks && total.c.rx_rnr_naks &&
			    total.c.timeouts && total.c.rx_duplicate);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_work_lists_match_the_model),
	};

	if (getenv("GPUNET_LONG")) {
		seeds = long_seeds;
		seconds = 0;
	}
	if (argc > 1) {
		seconds = 0;
		first_seed = strtoull(argv[1], NULL, 0);
		seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
