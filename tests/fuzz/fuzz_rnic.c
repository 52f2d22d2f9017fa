/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device with one connected queue pair of each type, one of which a stranger's packets reach. Input: records of
 * {control, length, packet from BTH on, without ICRC}. Control says what is put right in the packet (number, key,
 * address), so that mutations get past the first checks, and which work request is posted before it. Nothing outside the
 * one region may change, and everything must end. An input of odd length has the region in memory that only copies reach.
 */
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "platform/cpu/copier.h"
#include "rnic/rnic.h"
#include "rnic/wire.h"
#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/roce.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REGION = 8192, GUARD = 512, MTU = 256 };

enum control {
	FIX_PSN = 1 << 0, /* small numbers are relative to what the queue pair waits for */
	FIX_KEY = 1 << 1,
	FIX_VA = 1 << 2,
	POST_SHIFT = 3, /* 0..7: nothing, or a kind of work request */
	QP_SHIFT = 6,   /* 0..3: RC, UC, UD, RC */
};

#define IOVA UINT64_C(0x10000)

struct rig {
	struct rnic_wire wire;
	struct platform_copier *copier; /* or NULL */
	struct rnic *r;
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_mr *mr;
	struct rnic_qp *qp[3];
	uint8_t mem[GUARD + REGION + GUARD];
	uint64_t now, rnd;
	unsigned sent;
};

static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

static int sink(struct rnic_wire *w, const struct rnic_tx *tx, uint64_t now)
{
	struct rig *g = (struct rig *)w;
	uint8_t buf[WIRE_MTU_MAX + 128];
	struct wire_ip ip = { .ttl = 1 };
	struct wire_roce p;
	int n;

	(void)now;
	memcpy(ip.src, tx->path->src, 16);
	memcpy(ip.dst, tx->path->dst, 16);
	n = rnic_tx_flatten(tx, &ip, WIRE_ROCE_PORT, buf, sizeof(buf));
	/* What goes out is well-formed. */
	must(n > 0 && wire_roce_decode(&p, buf, (size_t)n) == 0 &&
	     p.bth.pad == wire_pad(p.payload_len));
	return g->sent++ % 7 == 6 ? -EAGAIN : 0;
}

static const struct rnic_wire_ops sink_ops = { .send = sink };
static const uint8_t gids[2][16] = { { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 },
				     { [10] = 0xff, [11] = 0xff, 10, 0, 0, 2 } };

static uint64_t rnd(void *ctx)
{
	struct rig *g = ctx;

	g->rnd = g->rnd * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return g->rnd >> 16;
}

static void connect_qp(struct rig *g, struct rnic_qp *qp)
{
	struct rnic_qp_attr a = { .access = RNIC_ACCESS_ALL,
				  .mtu = MTU,
				  .dest_qpn = 0x77,
				  .rq_psn = 0,
				  .sq_psn = 0,
				  .timeout = 5,
				  .retry = 2,
				  .rnr_retry = 2,
				  .min_rnr = 1,
				  .rd_atomic = 2,
				  .dest_rd_atomic = 2,
				  .qkey = 1 };
	int s;

	memcpy(a.path.src, gids[0], 16);
	memcpy(a.path.dst, gids[1], 16);
	for (s = RNIC_QPS_INIT; s <= RNIC_QPS_RTS; s++) {
		a.state = (enum rnic_qp_state)s;
		must(rnic_qp_modify(qp, &a, s == RNIC_QPS_RTR ? (1 << 14) - 1 : RNIC_ATTR_STATE,
				    0) == 0);
	}
}

static void open_region(struct rig *g)
{
	uint64_t far;

	if (!g->copier) {
		must(rnic_mr_create(g->pd, g->mem + GUARD, REGION, IOVA, RNIC_ACCESS_ALL, &g->mr) ==
		     0);
		return;
	}
	must(cpu_copier_add(g->copier, g->mem + GUARD, REGION, &far) == 0);
	must(rnic_mr_create_far(g->pd, far, REGION, IOVA, RNIC_ACCESS_ALL, &g->mr) == 0);
}

static void open_rig(struct rig *g, uint64_t far_seed)
{
	static const enum rnic_qp_type types[3] = { RNIC_QP_RC, RNIC_QP_UC, RNIC_QP_UD };
	struct rnic_config cfg = { .gids = gids,
				   .ngids = 1,
				   .max_mr = 1,
				   .max_qp = 3,
				   .window = 8,
				   .read_chunk = 4,
				   .random = rnd,
				   .ctx = g };
	struct rnic_qp_init in = {
		.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1
	};
	int i;

	memset(g, 0, sizeof(*g));
	if (far_seed)
		must(cpu_copier_open(9 * PLATFORM_COPIER_UNIT, far_seed, &g->copier) == 0);
	cfg.copier = g->copier;
	g->wire.ops = &sink_ops;
	memset(g->mem, 0x5a, sizeof(g->mem));
	must(rnic_open(&g->r, &cfg, &g->wire) == 0);
	must(rnic_pd_create(g->r, &g->pd) == 0);
	must(rnic_cq_create(g->r, 4, &g->cq) == 0);
	open_region(g);
	in.send_cq = in.recv_cq = g->cq;
	for (i = 0; i < 3; i++) {
		in.type = types[i];
		must(rnic_qp_create(g->pd, &in, &g->qp[i]) == 0);
		connect_qp(g, g->qp[i]);
	}
}

static void post(struct rig *g, struct rnic_qp *qp, unsigned kind)
{
	static const enum rnic_wr_opcode ops[8] = {
		0, RNIC_WR_WRITE, RNIC_WR_SEND, RNIC_WR_READ, RNIC_WR_FETCH_ADD, RNIC_WR_READ, 0, 0
	};
	struct rnic_sge sge = { IOVA + 1024, kind == 4 ? 8 : 1000, rnic_mr_lkey(g->mr) };
	struct rnic_path path = { .tclass = 0 };
	struct rnic_send_wr wr = { .opcode = ops[kind],
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .raddr = 8,
				   .path = &path };

	memcpy(path.src, gids[0], 16);
	memcpy(path.dst, gids[1], 16);
	if (kind >= 6)
		rnic_post_recv(qp, 1, &sge, 1);
	else if (kind)
		rnic_post_send(qp, &wr, g->now);
}

static void packet(struct rig *g, unsigned control, const uint8_t *data, size_t len)
{
	struct rnic_qp *qp = g->qp[(control >> QP_SHIFT) % 3];
	uint8_t buf[WIRE_BTH_LEN + 256 + WIRE_ICRC_LEN] = { 0 };
	struct rnic_rx rx = { .data = buf };

	memcpy(buf, data, len);
	memcpy(rx.ip.src, gids[1], 16);
	memcpy(rx.ip.dst, gids[0], 16);
	rx.len = len + WIRE_ICRC_LEN;
	wire_put_be24(buf + 5, rnic_qp_num(qp));
	if (control & FIX_PSN)
		buf[9] = buf[10] = 0;
	if (control & FIX_KEY)
		wire_put_be32(buf + 20, rnic_mr_rkey(g->mr));
	if (control & FIX_VA)
		wire_put_be64(buf + 12, IOVA + (wire_get_be16(buf + 18) & (REGION - 1)));
	post(g, qp, control >> POST_SHIFT & 7);
	rnic_receive(g->r, &rx, g->now);
}

static void close_rig(struct rig *g)
{
	struct rnic_wc wc;
	unsigned i;
	uint64_t next;

	/* Nothing hangs: with nobody answering, everything comes to an end soon. */
	for (i = 0; i < 10000; i++) {
		next = rnic_step(g->r, g->now, 100);
		rnic_cq_poll(g->cq, &wc, 1);
		if (next == UINT64_MAX && !rnic_cq_poll(g->cq, &wc, 1))
			break;
		g->now = next == UINT64_MAX || next < g->now ? g->now : next;
	}
	must(i < 10000);
	for (i = 0; i < GUARD; i++)
		must(g->mem[i] == 0x5a && g->mem[GUARD + REGION + i] == 0x5a);
	for (i = 0; i < 3; i++)
		rnic_qp_destroy(g->qp[i]);
	rnic_mr_destroy(g->mr);
	must(rnic_cq_destroy(g->cq) == 0 && rnic_pd_destroy(g->pd) == 0 && rnic_close(g->r) == 0);
	if (g->copier)
		g->copier->ops->close(g->copier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rnic_wc wc;
	struct rig g;

	open_rig(&g, size % 2 ? size : 0);
	while (size >= 2) {
		unsigned control = data[0];
		size_t len = data[1];

		data += 2;
		size -= 2;
		if (len > size)
			len = size;
		packet(&g, control, data, len);
		data += len;
		size -= len;
		if (control & 1)
			rnic_step(g.r, g.now, 4);
		if (len & 1)
			rnic_cq_poll(g.cq, &wc, 1);
		g.now += 5000;
	}
	close_rig(&g);
	return 0;
}
