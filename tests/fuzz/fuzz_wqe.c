/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues in memory that hold anything, as a GPU gone wrong may leave them. Input: a byte that chooses the type of queue
 * pair, then records of {control, 64 bytes}: a block of the send queue, and what is rung. What goes out must be
 * well-formed, nothing outside the one region may change, and everything must end.
 */
#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/rnic.h"
#include "rnic/wire.h"
#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/mlx5.h"
#include "wire/roce.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REGION = 4096, GUARD = 256, BLOCKS = 16, RECVS = 4, CQES = 8 };

enum control {
	FIX_INDEX = 1 << 0, /* index and number of the control segment */
	FIX_KEY = 1 << 1,   /* local key and address of the segment behind the remote address */
	RING = 1 << 2,
	RING_RECV = 1 << 3,
	TAKE = 1 << 4, /* completions */
	JUMP = 1 << 5, /* the record runs away */
};

#define IOVA UINT64_C(0x10000)

struct rig {
	struct rnic_wire wire;
	struct rnic *r;
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_mr *mr;
	struct rnic_qp *qp;
	uint8_t mem[GUARD + REGION + GUARD];
	_Alignas(64) uint8_t sq[BLOCKS * 64], rq[RECVS * 64], cqe[CQES * 64];
	uint8_t behind_cqe[64];
	_Alignas(8) uint32_t dbrec[2];
	uint32_t cq_dbrec[2];
	uint64_t doorbell;
	uint64_t now, rnd;
	uint16_t pi, ri;
};

static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

static int sink(struct rnic_wire *w, const struct rnic_tx *tx, uint64_t now)
{
	uint8_t buf[WIRE_MTU_MAX + 128];
	struct wire_ip ip = { .ttl = 1 };
	struct wire_roce p;
	int n;

	(void)w;
	(void)now;
	n = rnic_tx_flatten(tx, &ip, WIRE_ROCE_PORT, buf, sizeof(buf));
	must(n > 0 && wire_roce_decode(&p, buf, (size_t)n) == 0 &&
	     p.bth.pad == wire_pad(p.payload_len));
	return 0;
}

static const struct rnic_wire_ops sink_ops = { .send = sink };
static const uint8_t gids[1][16] = { { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 } };

static uint64_t rnd(void *ctx)
{
	struct rig *g = ctx;

	g->rnd = g->rnd * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return g->rnd >> 16;
}

static void open_rig(struct rig *g, enum rnic_qp_type type)
{
	struct rnic_config cfg = { .gids = gids,
				   .ngids = 1,
				   .max_mr = 1,
				   .max_qp = 1,
				   .random = rnd,
				   .ctx = g,
				   .doorbells = &g->doorbell,
				   .ndoorbells = 1 };
	struct rnic_mlx5_queues q = { g->sq, BLOCKS, g->rq, RECVS, 64, g->dbrec };
	struct rnic_mlx5_cq_init cq = { g->cqe, CQES, g->cq_dbrec, false, false };
	struct rnic_qp_init in = { .type = type, .queues = &q };
	struct rnic_qp_attr a = { .access = RNIC_ACCESS_ALL,
				  .mtu = 256,
				  .dest_qpn = 0x77,
				  .timeout = 5,
				  .retry = 2,
				  .rnr_retry = 2,
				  .rd_atomic = 2,
				  .qkey = 1 };
	int s;

	memset(g, 0, sizeof(*g));
	memset(g->mem, 0x5a, sizeof(g->mem));
	memset(g->behind_cqe, 0x5a, sizeof(g->behind_cqe));
	g->wire.ops = &sink_ops;
	must(rnic_open(&g->r, &cfg, &g->wire) == 0);
	must(rnic_pd_create(g->r, &g->pd) == 0);
	must(rnic_mlx5_cq_create(g->r, &cq, &g->cq) == 0);
	must(rnic_mr_create(g->pd, g->mem + GUARD, REGION, IOVA, RNIC_ACCESS_ALL, &g->mr) == 0);
	in.send_cq = in.recv_cq = g->cq;
	must(rnic_qp_create(g->pd, &in, &g->qp) == 0);
	memcpy(a.path.src, gids[0], 16);
	for (s = RNIC_QPS_INIT; s <= RNIC_QPS_RTS; s++) {
		a.state = (enum rnic_qp_state)s;
		must(rnic_qp_modify(g->qp, &a, s == RNIC_QPS_RTR ? (1 << 14) - 1 : RNIC_ATTR_STATE,
				    0) == 0);
	}
}

static void record(struct rig *g, unsigned control, const uint8_t block[64])
{
	uint8_t *at = g->sq + g->pi % BLOCKS * 64;

	memcpy(at, block, 64);
	memcpy(g->rq + g->ri % RECVS * 64, block, 64);
	if (control & FIX_INDEX) {
		wire_put_be16(at + 1, g->pi);
		wire_put_be24(at + 4, rnic_qp_num(g->qp));
	}
	if (control & FIX_KEY) {
		wire_put_be32(at + 36, rnic_mr_lkey(g->mr));
		wire_put_be64(at + 40, IOVA + (wire_get_be16(at + 46) & (REGION - 1)));
	}
	g->pi++;
	if (control & RING)
		g->dbrec[1] = htobe32(g->pi);
	if (control & JUMP)
		g->dbrec[1] = htobe32(wire_get_be16(block));
	if (control & RING_RECV)
		g->dbrec[0] = htobe32(++g->ri);
	if (control & TAKE)
		g->cq_dbrec[0] = htobe32(wire_get_be16(block + 8));
	g->doorbell++;
	rnic_step(g->r, g->now, 16);
	g->now += 3000;
}

static void close_rig(struct rig *g)
{
	uint64_t busy = 0, next;
	unsigned i;

	/* With room in the CQ, a second of time-outs later nothing is left to send. */
	for (i = 0; i < 3000; i++) {
		g->cq_dbrec[0] = htobe32(i * CQES);
		next = rnic_step(g->r, g->now, 100);
		if (next <= g->now)
			must(busy++ < 2000);
		g->now = next <= g->now ? g->now : next;
	}
	for (i = 0; i < GUARD; i++)
		must(g->mem[i] == 0x5a && g->mem[GUARD + REGION + i] == 0x5a);
	for (i = 0; i < sizeof(g->behind_cqe); i++)
		must(g->behind_cqe[i] == 0x5a);
	rnic_qp_destroy(g->qp);
	rnic_mr_destroy(g->mr);
	must(rnic_cq_destroy(g->cq) == 0 && rnic_pd_destroy(g->pd) == 0 && rnic_close(g->r) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum rnic_qp_type types[4] = { RNIC_QP_RC, RNIC_QP_UC, RNIC_QP_UD,
						    RNIC_QP_RC };
	static struct rig g;

	if (!size)
		return 0;
	open_rig(&g, types[data[0] & 3]);
	for (data++, size--; size >= 65; data += 65, size -= 65)
		record(&g, data[0], data + 1);
	close_rig(&g);
	return 0;
}
