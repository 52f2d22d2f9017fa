/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects and their limits: devices, regions and keys, completion queues, states of queue pairs. */
#include "rnic_rig.h"

#include "rnic/impl.h"

static void limits_out_of_range_are_refused(void **state)
{
	static const uint8_t gid[1][16] = { { 0 } };
	static const struct rnic_config bad[] = {
		{ .gids = NULL, .ngids = 1 },
		{ .gids = gid, .ngids = 0 },
		{ .gids = gid, .ngids = 65 },
		{ .gids = gid, .ngids = 1, .max_qp = 32769 },
		{ .gids = gid, .ngids = 1, .max_mr = (1 << 20) + 1 },
		{ .gids = gid, .ngids = 1, .max_sge = 33 },
		{ .gids = gid, .ngids = 1, .max_inline = 1025 },
		{ .gids = gid, .ngids = 1, .max_rd_atomic = 129 },
		{ .gids = gid, .ngids = 1, .max_msg = (1u << 30) + 1 },
		{ .gids = gid, .ngids = 1, .window = 7 },
		{ .gids = gid, .ngids = 1, .window = 65537 },
		{ .gids = gid, .ngids = 1, .window = 8, .read_chunk = 9 },
		{ .gids = gid, .ngids = 1, .burst = 257 },
	};
	struct rnic_wire wire = { 0 };
	struct rnic *r = NULL;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(rnic_open(&r, &bad[i], &wire), -EINVAL);
		assert_null(r);
	}
	/* With the default source of keys. */
	assert_int_equal(rnic_open(&r, &(struct rnic_config){ .gids = gid, .ngids = 1 }, &wire), 0);
	assert_int_equal(rnic_step(r, 5, 10), UINT64_MAX);
	assert_int_equal(rnic_close(r), 0);
}

enum { NKEYS = 3000 };

struct keyed {
	struct rnic_mr *mr; /* NULL: gone */
	uint32_t lkey, rkey;
};

static bool local_finds(struct rnic_pd *pd, uint32_t key, unsigned i)
{
	const struct rnic_sge sge = { i, 64, key };
	struct rnic_span s;

	return rnic_spans(pd, &sge, 1, 0, 64, 0, &s, 1) == 1;
}

static bool remote_finds(struct rnic_pd *pd, uint32_t key, unsigned i)
{
	struct rnic_span s;

	return rnic_remote(pd, key, i, 64, 0, &s);
}

/* Keys of regions that are there find them, each for its own purpose; others find nothing. */
static void check_keys(struct rnic_pd *pd, const struct keyed *k)
{
	unsigned i;

	for (i = 0; i < NKEYS; i++) {
		assert_int_equal(local_finds(pd, k[i].lkey, i), k[i].mr != NULL);
		assert_int_equal(remote_finds(pd, k[i].rkey, i), k[i].mr != NULL);
		assert_false(local_finds(pd, k[i].rkey, i));
		assert_false(remote_finds(pd, k[i].lkey, i));
	}
}

static void keys_find_their_region_until_it_dies(void **state)
{
	static struct keyed k[NKEYS];
	struct rnic_config dev = { .max_mr = NKEYS + 1 };
	struct rnic_mr *extra = NULL;
	unsigned i, round;
	struct rig g;

	(void)state;
	rig_open(&g, &dev, NULL);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < NKEYS; i++) {
			assert_int_equal(rnic_mr_create(g.side[0].pd, g.side[0].mem, 64, i,
							RNIC_ACCESS_ALL, &k[i].mr),
					 0);
			k[i].lkey = rnic_mr_lkey(k[i].mr);
			k[i].rkey = rnic_mr_rkey(k[i].mr);
		}
		check_keys(g.side[0].pd, k);
		/* The rig's own region is the last of the limit. */
		assert_int_equal(rnic_mr_create(g.side[0].pd, g.side[0].mem, 64, 0, RNIC_ACCESS_ALL,
						&extra),
				 -ENOMEM);
		assert_null(extra);
		/* In another order, so that holes close over others' slots. */
		for (i = 0; i < NKEYS; i++) {
			struct keyed *x = &k[(i * 7 + round) % NKEYS];

			rnic_mr_destroy(x->mr);
			x->mr = NULL;
			if (i % 300 == 299)
				check_keys(g.side[0].pd, k);
		}
	}
	rig_close(&g);
}

static void regions_that_make_no_sense_are_refused(void **state)
{
	struct rnic_mr *mr;
	struct rig g;
	uint8_t *m;

	(void)state;
	rig_open(&g, NULL, NULL);
	m = g.side[0].mem;
	assert_int_equal(rnic_mr_create(g.side[0].pd, m, 0, 0, 0, &mr), -EINVAL);
	assert_int_equal(rnic_mr_create(g.side[0].pd, m, 8, UINT64_MAX - 6, 0, &mr), -EINVAL);
	assert_int_equal(rnic_mr_create(g.side[0].pd, m, UINT64_MAX, 0, 0, &mr), -EINVAL);
	assert_int_equal(rnic_mr_create(g.side[0].pd, m, 8, 0, 16, &mr), -EINVAL);
	assert_int_equal(rnic_mr_create(g.side[0].pd, m, 8, 0, RNIC_ACCESS_REMOTE_WRITE, &mr),
			 -EINVAL);
	assert_int_equal(rnic_mr_create(g.side[0].pd, m, 8, 0, RNIC_ACCESS_REMOTE_ATOMIC, &mr),
			 -EINVAL);
	/* The very last address is a good one. */
	assert_int_equal(rnic_mr_create(g.side[0].pd, m, 8, UINT64_MAX - 7, 0, &mr), 0);
	rnic_mr_destroy(mr);
	rig_close(&g);
}

/* What the step to a state takes along. */
static unsigned mask_to(enum rnic_qp_state to)
{
	if (to == RNIC_QPS_RTR)
		return RNIC_ATTR_STATE | RNIC_ATTR_PATH | RNIC_ATTR_MTU | RNIC_ATTR_DEST_QPN |
		       RNIC_ATTR_RQ_PSN | RNIC_ATTR_SQ_PSN;
	return RNIC_ATTR_STATE;
}

static void state_changes_follow_the_standard(void **state)
{
	static const uint8_t allowed[7][7] = {
		/* to:        RESET INIT RTR RTS SQD SQE ERR */
		[RNIC_QPS_RESET] = { 1, 1, 0, 0, 0, 0, 1 },
		[RNIC_QPS_INIT] = { 1, 1, 1, 0, 0, 0, 1 },
		[RNIC_QPS_RTR] = { 1, 0, 0, 1, 0, 0, 1 },
		[RNIC_QPS_RTS] = { 1, 0, 0, 1, 1, 0, 1 },
		[RNIC_QPS_SQD] = { 1, 0, 0, 1, 0, 0, 1 },
		[RNIC_QPS_ERR] = { 1, 0, 0, 0, 0, 0, 1 },
	};
	static const enum rnic_qp_state way[] = { RNIC_QPS_INIT, RNIC_QPS_RTR, RNIC_QPS_RTS,
						  RNIC_QPS_SQD };
	struct rnic_qp_attr a = { .mtu = 1024 };
	unsigned from, to, i;
	struct rig g;

	(void)state;
	rig_open(&g, NULL, NULL);
	memcpy(a.path.src, g.side[0].gid[0], 16);
	for (from = 0; from < 7; from++)
		for (to = 0; to < 7; to++) {
			struct rnic_qp_init in = { .type = RNIC_QP_RC,
						   .send_cq = g.side[0].scq,
						   .recv_cq = g.side[0].rcq,
						   .max_send_wr = 1 };
			struct rnic_qp_attr now;
			struct rnic_qp *qp;

			if (from == RNIC_QPS_SQE)
				continue; /* by itself only */
			assert_int_equal(rnic_qp_create(g.side[0].pd, &in, &qp), 0);
			for (i = 0; from != RNIC_QPS_RESET && from != RNIC_QPS_ERR; i++) {
				a.state = way[i];
				assert_int_equal(rnic_qp_modify(qp, &a, mask_to(a.state), 0), 0);
				if (way[i] == from)
					break;
			}
			if (from == RNIC_QPS_ERR) {
				a.state = RNIC_QPS_INIT;
				assert_int_equal(rnic_qp_modify(qp, &a, mask_to(a.state), 0), 0);
				a.state = RNIC_QPS_ERR;
				assert_int_equal(rnic_qp_modify(qp, &a, mask_to(a.state), 0), 0);
			}
			a.state = (enum rnic_qp_state)to;
			assert_int_equal(rnic_qp_modify(qp, &a, mask_to(a.state), 0),
					 allowed[from][to] ? 0 : -EINVAL);
			rnic_qp_query(qp, &now);
			assert_int_equal(now.state, allowed[from][to] ? to : from);
			rnic_qp_destroy(qp);
		}
	rig_close(&g);
}

static void attributes_come_in_time_or_not(void **state)
{
	static const unsigned late[] = { RNIC_ATTR_PATH,     RNIC_ATTR_MTU,
					 RNIC_ATTR_DEST_QPN, RNIC_ATTR_RQ_PSN,
					 RNIC_ATTR_SQ_PSN,   RNIC_ATTR_DEST_RD_ATOMIC,
					 RNIC_ATTR_RD_ATOMIC };
	static const unsigned any_time[] = { RNIC_ATTR_TIMEOUT,   RNIC_ATTR_RETRY,
					     RNIC_ATTR_RNR_RETRY, RNIC_ATTR_MIN_RNR,
					     RNIC_ATTR_QKEY,      RNIC_ATTR_ACCESS };
	struct rnic_qp_attr a = { .mtu = 512, .min_rnr = 12 }, b;
	struct rnic_qp *qp[2];
	struct rig g;
	size_t i;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	memcpy(a.path.src, g.side[0].gid[0], 16);
	for (i = 0; i < sizeof(late) / sizeof(late[0]); i++)
		assert_int_equal(rnic_qp_modify(qp[0], &a, late[i], 0), -EINVAL);
	for (i = 0; i < sizeof(any_time) / sizeof(any_time[0]); i++)
		assert_int_equal(rnic_qp_modify(qp[0], &a, any_time[i], 0), 0);
	rnic_qp_query(qp[0], &b);
	assert_int_equal(b.min_rnr, 12);
	assert_int_equal(b.mtu, 1024);
	rig_unpair(qp);
	rig_close(&g);
}

static void attributes_out_of_range_are_refused(void **state)
{
	static const struct {
		unsigned mask;
		struct rnic_qp_attr a;
	} bad[] = {
		{ RNIC_ATTR_MTU, { .mtu = 1500 } },
		{ RNIC_ATTR_MTU, { .mtu = 0 } },
		{ RNIC_ATTR_PATH, { .path = { .src = { 1 } } } }, /* not ours */
		{ RNIC_ATTR_DEST_QPN, { .dest_qpn = 1 << 24 } },
		{ RNIC_ATTR_RQ_PSN, { .rq_psn = 1 << 24 } },
		{ RNIC_ATTR_SQ_PSN, { .sq_psn = 1 << 24 } },
		{ RNIC_ATTR_TIMEOUT, { .timeout = 32 } },
		{ RNIC_ATTR_RETRY, { .retry = 8 } },
		{ RNIC_ATTR_RNR_RETRY, { .rnr_retry = 8 } },
		{ RNIC_ATTR_MIN_RNR, { .min_rnr = 32 } },
		{ RNIC_ATTR_RD_ATOMIC, { .rd_atomic = 17 } },
		{ RNIC_ATTR_DEST_RD_ATOMIC, { .dest_rd_atomic = 17 } },
		{ RNIC_ATTR_ACCESS, { .access = 16 } },
	};
	struct rnic_qp_attr before, after;
	struct rnic_qp_init in = { .type = RNIC_QP_RC };
	struct rnic_qp *qp;
	struct rig g;
	size_t i;

	(void)state;
	rig_open(&g, NULL, NULL);
	in.send_cq = in.recv_cq = g.side[0].scq;
	assert_int_equal(rnic_qp_create(g.side[0].pd, &in, &qp), 0);
	rnic_qp_query(qp, &before);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(rnic_qp_modify(qp, &bad[i].a, bad[i].mask, 0), -EINVAL);
		rnic_qp_query(qp, &after);
		assert_memory_equal(&before, &after, sizeof(before));
	}
	rnic_qp_destroy(qp);
	rig_close(&g);
}

static void queue_pairs_end_at_their_limit(void **state)
{
	struct rnic_config dev = { .max_qp = 20 };
	struct rnic_qp *qp[20], *extra;
	uint32_t seen[20 * 3];
	unsigned i, k, n = 0, round;
	struct rig g;

	(void)state;
	rig_open(&g, &dev, NULL);
	for (round = 0; round < 3; round++) {
		struct rnic_qp_init in = { .type = RNIC_QP_RC,
					   .send_cq = g.side[0].scq,
					   .recv_cq = g.side[0].rcq };

		for (i = 0; i < 20; i++) {
			assert_int_equal(rnic_qp_create(g.side[0].pd, &in, &qp[i]), 0);
			assert_true(rnic_qp_num(qp[i]) >= 16);
			/* A number does not come back at once. */
			for (k = 0; k < n; k++)
				assert_int_not_equal(seen[k], rnic_qp_num(qp[i]));
			seen[n++] = rnic_qp_num(qp[i]);
		}
		assert_int_equal(rnic_qp_create(g.side[0].pd, &in, &extra), -ENOMEM);
		assert_int_equal(rnic_cq_destroy(g.side[0].scq), -EBUSY);
		assert_int_equal(rnic_pd_destroy(g.side[0].pd), -EBUSY);
		for (i = 0; i < 20; i++)
			rnic_qp_destroy(qp[i]);
	}
	rig_close(&g);
}

static unsigned notified;

static void notify(void *ctx)
{
	(void)ctx;
	notified++;
}

static void an_armed_cq_tells_once(void **state)
{
	struct rnic_qp *qp[2];
	struct rig g;
	int i;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	notified = 0;
	for (i = 0; i < 4; i++)
		assert_int_equal(rig_recv(&g, 1, qp[1], 0, 100, 1), 0);
	rnic_cq_arm(g.side[1].rcq, false, notify, NULL);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 10, 0, 1), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 10, 0, 2), 0);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(notified, 1);
	/* Solicited only. */
	rnic_cq_arm(g.side[1].rcq, true, notify, NULL);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 10, 0, 3), 0);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(notified, 1);
	assert_int_equal(rnic_post_send(qp[0],
					&(struct rnic_send_wr){ .opcode = RNIC_WR_SEND,
								.flags = RNIC_SEND_SOLICITED },
					g.now),
			 0);
	assert_true(rig_run(&g, RIG_S));
	assert_int_equal(notified, 2);
	rig_unpair(qp);
	rig_close(&g);
}

static void posts_that_make_no_sense_are_refused(void **state)
{
	struct rnic_sge sge[5];
	struct rnic_send_wr wr = { .opcode = RNIC_WR_WRITE, .sge = sge, .nsge = 1 };
	struct rnic_qp *qp[2];
	struct rig g;
	int i;

	(void)state;
	rig_open(&g, NULL, NULL);
	rig_pair(&g, NULL, qp);
	for (i = 0; i < 5; i++)
		sge[i] = rig_sge(&g, 0, 0, 1u << 29);
	wr.nsge = 5;
	assert_int_equal(rnic_post_send(qp[0], &wr, 0), -EINVAL); /* max_send_sge is 4 */
	wr.nsge = 3;
	assert_int_equal(rnic_post_send(qp[0], &wr, 0), -EMSGSIZE); /* 1.5 GiB */
	sge[0].len = 257;
	wr.nsge = 1;
	wr.flags = RNIC_SEND_INLINE;
	assert_int_equal(rnic_post_send(qp[0], &wr, 0), -EMSGSIZE);
	wr.flags = 1 << 4;
	assert_int_equal(rnic_post_send(qp[0], &wr, 0), -EINVAL);
	wr.flags = 0;
	wr.opcode = (enum rnic_wr_opcode)7;
	assert_int_equal(rnic_post_send(qp[0], &wr, 0), -EINVAL);
	wr.opcode = RNIC_WR_FETCH_ADD;
	assert_int_equal(rnic_post_send(qp[0], &wr, 0), -EINVAL); /* not 8 bytes */
	sge[0].len = 8;
	wr.raddr = rig_va(4);
	assert_int_equal(rnic_post_send(qp[0], &wr, 0), -EINVAL); /* not aligned */
	assert_int_equal(rnic_post_recv(qp[0], 0, sge, 5), -EINVAL);
	rig_unpair(qp);
	rig_close(&g);
}

/* --- the n-th allocation fails ------------------------------------------------------------------------ */

static int allocs, fail_at, live;

static void *failing_alloc(size_t n)
{
	void *p = ++allocs == fail_at ? NULL : sys_real.alloc(n);

	live += p != NULL;
	return p;
}

static void counting_free(void *p)
{
	live -= p != NULL;
	sys_real.free(p);
}

/* Makes one object of each kind; 0, or the error of the first that could not be made. Leaves nothing in either case. */
static int one_of_each(void)
{
	static const uint8_t gid[1][16] = { { 1 } };
	static _Alignas(64) uint8_t mem[4096];
	const struct rnic_config cfg = { .gids = gid, .ngids = 1, .max_mr = 4, .max_qp = 4 };
	const struct rnic_mlx5_cq_init ecq = { mem, 8, mem + 1024, false, false };
	const struct rnic_mlx5_queues queues = { mem + 2048, 8, NULL, 0, 0, mem + 1032 };
	struct rnic_qp_init in = { .type = RNIC_QP_RC, .max_send_wr = 4, .max_recv_wr = 4 };
	struct rnic_wire wire = { 0 };
	struct rnic *r = NULL;
	struct rnic_pd *pd = NULL;
	struct rnic_mr *mr = NULL;
	struct rnic_cq *cq = NULL, *mcq = NULL;
	struct rnic_srq *srq = NULL;
	struct rnic_qp *qp = NULL, *mqp = NULL;
	int rc = rnic_open(&r, &cfg, &wire);

	rc = rc ? rc : rnic_pd_create(r, &pd);
	rc = rc ? rc : rnic_mr_create(pd, mem, sizeof(mem), 0, RNIC_ACCESS_ALL, &mr);
	rc = rc ? rc : rnic_cq_create(r, 8, &cq);
	rc = rc ? rc : rnic_mlx5_cq_create(r, &ecq, &mcq);
	rc = rc ? rc : rnic_srq_create(pd, 4, 1, &srq);
	in.send_cq = in.recv_cq = cq;
	rc = rc ? rc : rnic_qp_create(pd, &in, &qp);
	in.send_cq = in.recv_cq = mcq;
	in.queues = &queues;
	rc = rc ? rc : rnic_qp_create(pd, &in, &mqp);
	if (mqp)
		rnic_qp_destroy(mqp);
	if (qp)
		rnic_qp_destroy(qp);
	assert_true(!srq || rnic_srq_destroy(srq) == 0);
	assert_true(!mcq || rnic_cq_destroy(mcq) == 0);
	assert_true(!cq || rnic_cq_destroy(cq) == 0);
	if (mr)
		rnic_mr_destroy(mr);
	assert_true(!pd || rnic_pd_destroy(pd) == 0);
	assert_true(!r || rnic_close(r) == 0);
	return rc;
}

static void an_allocation_that_fails_leaves_nothing_behind(void **state)
{
	int rc = -ENOMEM;

	(void)state;
	sys.alloc = failing_alloc;
	sys.free = counting_free;
	for (fail_at = 1; rc; fail_at++) {
		allocs = 0;
		rc = one_of_each();
		assert_int_equal(live, 0);
		assert_true(rc == 0 || rc == -ENOMEM);
	}
	sys = sys_real;
	/* The last round had nothing to fail. */
	assert_int_equal(allocs + 2, fail_at);
	assert_true(allocs > 15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(limits_out_of_range_are_refused),
		cmocka_unit_test(keys_find_their_region_until_it_dies),
		cmocka_unit_test(regions_that_make_no_sense_are_refused),
		cmocka_unit_test(state_changes_follow_the_standard),
		cmocka_unit_test(attributes_come_in_time_or_not),
		cmocka_unit_test(attributes_out_of_range_are_refused),
		cmocka_unit_test(queue_pairs_end_at_their_limit),
		cmocka_unit_test(an_armed_cq_tells_once),
		cmocka_unit_test(posts_that_make_no_sense_are_refused),
		cmocka_unit_test(an_allocation_that_fails_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
