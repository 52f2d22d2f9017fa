/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a device answers to binding memory windows, of both types, in each state of a queue pair that is connected with itself:
 *   mw_bind DEVICE GID_INDEX
 * A line a state: the two errnos (0: the work was taken), and in RTS whether it completed. docs/wire/rsocket.md leans on it.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

enum { BYTES = 4096 };

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_mw *mw[2];
	struct ibv_qp *qp;
	union ibv_gid gid;
	uint8_t gid_index;
};

static uint8_t memory[BYTES];

static int fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	return 1;
}

static struct ibv_context *device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	int i;

	for (i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	return ctx;
}

static int open_side(struct side *s)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 }
	};

	if (ibv_query_gid(s->ctx, 1, s->gid_index, &s->gid))
		return fail("ibv_query_gid");
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, 16, NULL, NULL, 0);
	if (!s->pd || !s->cq)
		return fail("protection domain and completion queue");
	s->mr = ibv_reg_mr(s->pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	s->mw[0] = ibv_alloc_mw(s->pd, IBV_MW_TYPE_1);
	s->mw[1] = ibv_alloc_mw(s->pd, IBV_MW_TYPE_2);
	if (!s->mr || !s->mw[0] || !s->mw[1])
		return fail("region and windows");
	attr.send_cq = attr.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &attr);
	return s->qp ? 0 : fail("queue pair");
}

static int to_state(struct side *s, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = { .qp_state = state,
				 .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
				 .path_mtu = IBV_MTU_256,
				 .dest_qp_num = s->qp->qp_num,
				 .min_rnr_timer = 12,
				 .timeout = 14,
				 .retry_cnt = 6,
				 .rnr_retry = 6,
				 .ah_attr = { .is_global = 1, .port_num = 1 } };
	int mask = IBV_QP_STATE;

	a.ah_attr.grh.dgid = s->gid;
	a.ah_attr.grh.sgid_index = s->gid_index;
	a.ah_attr.grh.hop_limit = 1;
	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	else if (state == IBV_QPS_RTR)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	else
		mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	errno = ibv_modify_qp(s->qp, &a, mask);
	return errno ? fail("ibv_modify_qp") : 0;
}

static struct ibv_mw_bind_info window(const struct side *s)
{
	return (struct ibv_mw_bind_info){ .mr = s->mr,
					  .addr = (uintptr_t)memory,
					  .length = BYTES / 2,
					  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
}

static int bind_1(struct side *s)
{
	struct ibv_mw_bind b = { .wr_id = 1,
				 .send_flags = IBV_SEND_SIGNALED,
				 .bind_info = window(s) };

	return ibv_bind_mw(s->qp, s->mw[0], &b);
}

static int bind_2(struct side *s)
{
	struct ibv_send_wr wr = { .wr_id = 2,
				  .opcode = IBV_WR_BIND_MW,
				  .send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.bind_mw.mw = s->mw[1];
	wr.bind_mw.rkey = ibv_inc_rkey(s->mw[1]->rkey);
	wr.bind_mw.bind_info = window(s);
	return ibv_post_send(s->qp, &wr, &bad);
}

/* How many of the two ended well, within 10 s. */
static int completed(struct side *s)
{
	const struct timespec pause = { 0, 1000000 };
	struct ibv_wc wc;
	int good = 0, seen = 0, i;

	for (i = 0; i < 10000 && seen < 2; i++) {
		if (ibv_poll_cq(s->cq, 1, &wc) == 1) {
			seen++;
			good += wc.status == IBV_WC_SUCCESS;
		} else {
			nanosleep(&pause, NULL);
		}
	}
	return good;
}

/* In this order: a window that is bound to a queue pair holds it, and rdma_rxe would wait a minute for its end. */
static void close_side(struct side *s)
{
	ibv_dealloc_mw(s->mw[0]);
	ibv_dealloc_mw(s->mw[1]);
	ibv_destroy_qp(s->qp);
	ibv_dereg_mr(s->mr);
	ibv_destroy_cq(s->cq);
	ibv_dealloc_pd(s->pd);
	ibv_close_device(s->ctx);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		enum ibv_qp_state state;
	} states[] = { { "INIT", IBV_QPS_INIT }, { "RTR", IBV_QPS_RTR }, { "RTS", IBV_QPS_RTS } };
	struct ibv_device_attr attr;
	struct side s = { 0 };
	unsigned i;

	if (argc != 3)
		return 2;
	s.ctx = device(argv[1]);
	s.gid_index = (uint8_t)atoi(argv[2]);
	if (!s.ctx || ibv_query_device(s.ctx, &attr))
		return fail("the device");
	printf("windows %d, type 2B %d\n", !!(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW),
	       !!(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B));
	if (open_side(&s))
		return 1;
	for (i = 0; i < 3; i++) {
		int one, two;

		if (to_state(&s, states[i].state))
			return 1;
		one = bind_1(&s);
		two = bind_2(&s);
		printf("%s %d %d\n", states[i].name, one, two);
	}
	printf("completed %d\n", completed(&s));
	fflush(stdout);
	close_side(&s);
	return 0;
}
