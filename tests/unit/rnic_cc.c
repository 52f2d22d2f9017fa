/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Congestion control in virtual time: flows of WRITEs meet at one port of a switch, 1 GB/s wide, which marks packets from
 * 30 KB of waiting bytes on. Prints the figures of docs/rnic.md; with GPUNET_CURVES=1 also the flows' rates, a line a
 * millisecond.
 */
#include "rnic_rig.h"

#include "wire/bytes.h"

enum { FLOWS = 8, MSG = 65536, OUTSTANDING = 4, RATE = 1000000000, BUFFER = 1000000 };

struct host {
	uint8_t gid[1][16];
	struct rnic *r;
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_mr *mr;
	struct rnic_qp *qp;  /* of a sender */
	struct rnic_qp *end; /* its other end, at the receiver */
	uint64_t posted, done, last;
	uint64_t rnd;
	uint8_t *mem;
};

struct net {
	struct rnic_mem_net *net;
	struct host host[FLOWS + 1]; /* the last one receives */
	unsigned flows;              /* that send */
	uint64_t now;
};

static uint64_t host_random(void *ctx)
{
	return rig_rnd(&((struct host *)ctx)->rnd);
}

static void host_open(struct net *t, struct host *h, unsigned i, const struct rnic_dcqcn *cc)
{
	struct rnic_config cfg = { .gids = (const uint8_t(*)[16])h->gid,
				   .ngids = 1,
				   .max_qp = 16,
				   .max_mr = 4,
				   .cc = *cc,
				   .random = host_random,
				   .ctx = h };
	struct rnic_wire *port = rnic_mem_port(t->net);
	const uint8_t gid[16] = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = (uint8_t)(i + 1) };

	memcpy(h->gid[0], gid, 16);
	h->rnd = i + 1;
	h->mem = calloc(1, MSG);
	assert_int_equal(rnic_open(&h->r, &cfg, port), 0);
	assert_int_equal(rnic_mem_attach(t->net, port, gid, h->r), 0);
	assert_int_equal(rnic_pd_create(h->r, &h->pd), 0);
	assert_int_equal(rnic_cq_create(h->r, 1024, &h->cq), 0);
	assert_int_equal(rnic_mr_create(h->pd, h->mem, MSG, 0x10000, RNIC_ACCESS_ALL, &h->mr), 0);
}

static struct rnic_qp *make_qp(struct host *h)
{
	struct rnic_qp_init in = { .type = RNIC_QP_RC,
				   .send_cq = h->cq,
				   .recv_cq = h->cq,
				   .max_send_wr = 16,
				   .max_send_sge = 1 };
	struct rnic_qp *qp = NULL;

	assert_int_equal(rnic_qp_create(h->pd, &in, &qp), 0);
	return qp;
}

static void ready(struct host *h, struct rnic_qp *qp, const struct host *peer,
		  const struct rnic_qp *other)
{
	struct rnic_qp_attr a = { .access = RNIC_ACCESS_ALL,
				  .mtu = 4096,
				  .dest_qpn = rnic_qp_num(other),
				  .timeout = 10,
				  .retry = 7,
				  .rnr_retry = 7,
				  .min_rnr = 1,
				  .rd_atomic = 8,
				  .dest_rd_atomic = 8 };
	int s;

	memcpy(a.path.src, h->gid[0], 16);
	memcpy(a.path.dst, peer->gid[0], 16);
	for (s = RNIC_QPS_INIT; s <= RNIC_QPS_RTS; s++) {
		a.state = (enum rnic_qp_state)s;
		assert_int_equal(rnic_qp_modify(qp, &a,
						s == RNIC_QPS_RTR ? (1 << 14) - 1 : RNIC_ATTR_STATE,
						0),
				 0);
	}
}

static void net_open(struct net *t, const struct rnic_dcqcn *cc, const struct rnic_mem_faults *f)
{
	struct rnic_mem_config cfg = { .seed = 5, .packets = 8192, .faults = *f };
	struct host *to = &t->host[FLOWS];
	unsigned i;

	memset(t, 0, sizeof(*t));
	t->now = 1000;
	assert_int_equal(rnic_mem_create(&cfg, &t->net), 0);
	for (i = 0; i <= FLOWS; i++)
		host_open(t, &t->host[i], i, cc);
	for (i = 0; i < FLOWS; i++) {
		struct host *h = &t->host[i];

		h->qp = make_qp(h);
		h->end = make_qp(to);
		ready(h, h->qp, to, h->end);
		ready(to, h->end, h, h->qp);
	}
}

static void net_close(struct net *t)
{
	unsigned i;

	for (i = 0; i <= FLOWS; i++) {
		struct host *h = &t->host[i];

		if (h->qp) {
			rnic_qp_destroy(h->qp);
			rnic_qp_destroy(h->end);
		}
	}
	for (i = 0; i <= FLOWS; i++) {
		struct host *h = &t->host[i];

		rnic_mr_destroy(h->mr);
		assert_int_equal(rnic_cq_destroy(h->cq), 0);
		assert_int_equal(rnic_pd_destroy(h->pd), 0);
		assert_int_equal(rnic_close(h->r), 0);
		free(h->mem);
	}
	rnic_mem_destroy(t->net);
}

static void keep_posting(struct net *t, struct host *h)
{
	struct rnic_sge sge = { 0x10000, MSG, rnic_mr_lkey(h->mr) };
	struct rnic_send_wr wr = { .opcode = RNIC_WR_WRITE,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .raddr = 0x10000,
				   .rkey = rnic_mr_rkey(t->host[FLOWS].mr) };
	struct rnic_wc wc;

	while (rnic_cq_poll(h->cq, &wc, 1) == 1) {
		assert_int_equal(wc.status, RNIC_WC_SUCCESS);
		h->done++;
	}
	while (h->posted - h->done < OUTSTANDING) {
		assert_int_equal(rnic_post_send(h->qp, &wr, t->now), 0);
		h->posted++;
	}
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void net_run(struct net *t, uint64_t ns)
{
	uint64_t end = t->now + ns, next;
	unsigned i;

	while (t->now < end) {
		next = rnic_mem_step(t->net, t->now);
		for (i = 0; i < t->flows; i++)
			keep_posting(t, &t->host[i]);
		for (i = 0; i <= FLOWS; i++)
			next = least(next, rnic_step(t->host[i].r, t->now, 64));
		next = least(next, rnic_mem_step(t->net, t->now));
		t->now = next > t->now ? least(next, end) : t->now;
	}
}

/* Runs for some milliseconds; fills the bytes a second of each flow over that time. */
static void watch(struct net *t, unsigned ms, double rate[FLOWS])
{
	uint64_t first[FLOWS], start = t->now;
	unsigned i, k;

	for (i = 0; i < FLOWS; i++)
		first[i] = t->host[i].last = t->host[i].done;
	for (k = 0; k < ms; k++) {
		net_run(t, RIG_MS);
		for (i = 0; i < FLOWS && getenv("GPUNET_CURVES"); i++) {
			printf("%s%.3f", i ? " " : "",
			       (double)(t->host[i].done - t->host[i].last) * MSG / 1e6);
			t->host[i].last = t->host[i].done;
			if (i == FLOWS - 1)
				printf("\n");
		}
	}
	for (i = 0; i < FLOWS; i++)
		rate[i] =
			(double)(t->host[i].done - first[i]) * MSG / (double)(t->now - start) * 1e9;
}

static double sum(const double *v, unsigned n)
{
	double s = 0;
	unsigned i;

	for (i = 0; i < n; i++)
		s += v[i];
	return s;
}

/* 1 when all are equal, 1/n when one has it all. */
static double fairness(const double *v, unsigned n)
{
	double s = 0;
	unsigned i;

	for (i = 0; i < n; i++)
		s += v[i] * v[i];
	return sum(v, n) * sum(v, n) / (n * s);
}

static uint64_t total(const struct net *t, size_t offset)
{
	uint64_t s = 0, v;
	unsigned i;

	for (i = 0; i <= FLOWS; i++) {
		memcpy(&v, (const char *)rnic_counters(t->host[i].r) + offset, sizeof(v));
		s += v;
	}
	return s;
}

#define TOTAL(t, what) total(t, offsetof(struct rnic_counters, what))

static const struct rnic_mem_faults port = { .delay_ns = 5000,
					     .out_rate = RATE,
					     .out_queue = BUFFER,
					     .mark_from = 30000,
					     .mark_to = 200000 };
static const struct rnic_dcqcn dcqcn = { .line_rate = UINT64_C(2000000000) };

static void flows_share_a_port(void **state)
{
	struct net *t = malloc(sizeof(*t));
	double rate[FLOWS];
	uint64_t lost;

	(void)state;
	net_open(t, &dcqcn, &port);
	t->flows = FLOWS;
	watch(t, 40, rate); /* all begin at once, at full speed */
	lost = rnic_mem_stats(t->net)->overflow;
	watch(t, 60, rate);
	print_message(
		"8 flows: %.3f GB/s of %.3f, fairness %.3f, lost %llu then %llu, marked %llu, "
		"CNPs %llu, most waiting %llu bytes\n",
		sum(rate, FLOWS) * 1e-9, RATE * 1e-9, fairness(rate, FLOWS),
		(unsigned long long)lost,
		(unsigned long long)(rnic_mem_stats(t->net)->overflow - lost),
		(unsigned long long)rnic_mem_stats(t->net)->marked,
		(unsigned long long)TOTAL(t, tx_cnp),
		(unsigned long long)rnic_mem_stats(t->net)->out_most);
	assert_true(sum(rate, FLOWS) > 0.85 * RATE);
	assert_true(fairness(rate, FLOWS) > 0.95);
	/* Once it has settled the port's buffer is enough. */
	assert_int_equal(rnic_mem_stats(t->net)->overflow, lost);
	assert_true(TOTAL(t, rx_cnp) > 0 && TOTAL(t, rx_cnp) <= TOTAL(t, tx_cnp));
	/* At most one CNP in 50 us for each flow. */
	assert_true(TOTAL(t, tx_cnp) <= FLOWS * t->now / 50000 + FLOWS);
	net_close(t);
	free(t);
}

static void a_flow_that_comes_late_gets_its_share(void **state)
{
	struct net *t = malloc(sizeof(*t));
	double rate[FLOWS];

	(void)state;
	net_open(t, &dcqcn, &port);
	t->flows = 1;
	watch(t, 20, rate);
	watch(t, 20, rate);
	print_message("1 flow: %.3f GB/s\n", rate[0] * 1e-9);
	assert_true(rate[0] > 0.85 * RATE);
	t->flows = 2;
	watch(t, 40, rate);
	watch(t, 40, rate);
	print_message("2 flows, the second 40 ms later: %.3f and %.3f GB/s\n", rate[0] * 1e-9,
		      rate[1] * 1e-9);
	assert_true(fairness(rate, 2) > 0.9);
	assert_true(sum(rate, 2) > 0.85 * RATE);
	/* When one ends, the other takes what is free. */
	t->flows = 1;
	watch(t, 60, rate);
	watch(t, 20, rate);
	print_message("then one of them: %.3f GB/s\n", rate[0] * 1e-9);
	assert_true(rate[0] > 0.85 * RATE);
	net_close(t);
	free(t);
}

/* What the control is for: the same without it. */
static void without_it_the_buffer_overflows(void **state)
{
	struct net *t = malloc(sizeof(*t));
	struct rnic_dcqcn off = { .off = true };
	double rate[FLOWS];

	(void)state;
	net_open(t, &off, &port);
	t->flows = FLOWS;
	watch(t, 50, rate);
	print_message("8 flows without: %.3f GB/s, lost %llu, sent again %llu, marked %llu\n",
		      sum(rate, FLOWS) * 1e-9, (unsigned long long)rnic_mem_stats(t->net)->overflow,
		      (unsigned long long)TOTAL(t, retransmits),
		      (unsigned long long)rnic_mem_stats(t->net)->marked);
	assert_true(rnic_mem_stats(t->net)->overflow > 1000);
	assert_int_equal(rnic_mem_stats(t->net)->marked, 0);
	assert_int_equal(TOTAL(t, tx_cnp), 0);
	net_close(t);
	free(t);
}

/* With pauses nothing is lost; with both, few pauses are needed. */
static void pauses_are_rare_beside_it(void **state)
{
	struct rnic_mem_faults pfc = port;
	struct rnic_dcqcn off = { .off = true };
	struct net *t = malloc(sizeof(*t));
	uint64_t before, without, with;
	double rate[FLOWS];

	(void)state;
	pfc.pause_from = 400000;
	net_open(t, &off, &pfc);
	t->flows = FLOWS;
	watch(t, 20, rate);
	before = rnic_mem_stats(t->net)->paused;
	watch(t, 30, rate);
	without = rnic_mem_stats(t->net)->paused - before;
	assert_int_equal(rnic_mem_stats(t->net)->overflow, 0);
	net_close(t);
	net_open(t, &dcqcn, &pfc);
	t->flows = FLOWS;
	watch(t, 20, rate);
	before = rnic_mem_stats(t->net)->paused;
	watch(t, 30, rate);
	with = rnic_mem_stats(t->net)->paused - before;
	print_message("pauses in 30 ms: %llu without, %llu with\n", (unsigned long long)without,
		      (unsigned long long)with);
	assert_int_equal(rnic_mem_stats(t->net)->overflow, 0);
	assert_true(with * 20 < without);
	assert_true(sum(rate, FLOWS) > 0.85 * RATE);
	net_close(t);
	free(t);
}

/* A CNP from a stranger, or for nobody, slows nobody down. */
static void cnps_count_only_from_the_peer(void **state)
{
	struct rnic_mem_faults calm = { .delay_ns = 1000 };
	uint8_t buf[12 + 16 + 4] = { 0x81, 0, 0xff, 0xff, 0x40 };
	struct rnic_mem_packet p = { .sport = 50000, .len = sizeof(buf), .data = buf };
	struct net *t = malloc(sizeof(*t));
	double rate[FLOWS];
	int i;

	(void)state;
	net_open(t, &dcqcn, &calm);
	t->flows = 1;
	for (i = 0; i < 2; i++) {
		memcpy(p.ip.src, t->host[i ? FLOWS : 3].gid[0], 16);
		memcpy(p.ip.dst, t->host[0].gid[0], 16);
		wire_put_be24(buf + 5, rnic_qp_num(t->host[0].qp));
		rnic_mem_reseal(&p);
		assert_int_equal(rnic_mem_inject(t->net, &p, t->now), 0);
		watch(t, 1, rate);
		assert_int_equal(rnic_counters(t->host[0].r)->rx_cnp, i + 1);
		if (i == 0)
			assert_int_equal(rnic_counters(t->host[0].r)->paced, 0);
	}
	assert_true(rnic_counters(t->host[0].r)->paced > 0);
	net_close(t);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flows_share_a_port),
		cmocka_unit_test(a_flow_that_comes_late_gets_its_share),
		cmocka_unit_test(without_it_the_buffer_overflows),
		cmocka_unit_test(pauses_are_rare_beside_it),
		cmocka_unit_test(cnps_count_only_from_the_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
