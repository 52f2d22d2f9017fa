/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two devices, A (side 0, 10.0.0.1) and B (side 1, 10.0.0.2), on a network in memory, each with a PD, two CQs, and 1 MiB
 * of registered memory between guard bytes. Time is virtual: rig_run() jumps from event to event.
 */
#ifndef GPUNET_TEST_RNIC_RIG_H
#define GPUNET_TEST_RNIC_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

#include "platform/cpu/copier.h"
#include "rnic/rnic.h"
#include "rnic/wire_mem.h"
#include "wire/roce.h"

enum { RIG_MEM = 1 << 20, RIG_GUARD = 4096, RIG_EVENTS = 64, RIG_STAGING = 32 * 65536 };

#define RIG_IOVA UINT64_C(0x7f0000001000)
#define RIG_MS UINT64_C(1000000)
#define RIG_S UINT64_C(1000000000)

struct rig_side {
	uint8_t gid[1][16];
	uint64_t rnd;
	struct rnic *r;
	struct rnic_pd *pd;
	struct rnic_cq *scq, *rcq;
	struct rnic_mr *mr;
	uint8_t *block; /* guard, memory, guard */
	uint8_t *mem;
	struct platform_copier *copier; /* NULL: the memory is the CPU's */
	uint64_t far;                   /* its address otherwise; mem is what lies behind it */
	enum rnic_event_type events[RIG_EVENTS];
	unsigned nevents;
};

struct rig {
	struct rnic_mem_net *net;
	struct rig_side side[2];
	uint64_t now;
	/* Set before rig_open_far(): of which sides the registered memory is one that the CPU must not touch. */
	unsigned far_sides;
	uint64_t far_seed; /* order of copies */
};

/* What a pair of queue pairs is made with; zero means the default in brackets. */
struct rig_qp {
	enum rnic_qp_type type; /* [RC] */
	unsigned mtu;           /* [1024] */
	uint32_t psn[2];     /* first that the side sends; top bit set: really 0 [0x100, 0x200] */
	unsigned timeout;    /* [10: 4.2 ms] */
	unsigned retry;      /* [7] */
	unsigned rnr_retry;  /* [7] */
	bool no_retry;       /* retry 0 and rnr_retry 0 */
	unsigned min_rnr;    /* [1: 10 us] */
	unsigned rd_atomic;  /* [4] */
	unsigned access;     /* [all] */
	unsigned depth;      /* [64] */
	unsigned send_depth; /* [depth] */
	unsigned recv_sge;   /* [4] */
	struct rnic_srq *srq[2];
	bool sig_all;
	const struct rnic_mlx5_queues *queues; /* of side 0 */
	struct rnic_cq *queues_cq;             /* and its CQ */
};

/* The devices' and the network's configurations may be changed beforehand; NULL for the defaults. */
void rig_open(struct rig *g, const struct rnic_config *dev, const struct rnic_mem_config *net);
/* The same, with far_sides and far_seed as they are. */
void rig_open_far(struct rig *g, const struct rnic_config *dev, const struct rnic_mem_config *net);
/* Checks the guards, and that everything can be closed. */
void rig_close(struct rig *g);

/* Two connected queue pairs in RTS. */
void rig_pair(struct rig *g, const struct rig_qp *with, struct rnic_qp *qp[2]);
void rig_unpair(struct rnic_qp *qp[2]);

/* Runs until nothing is left to do, or `ns` are over. True in the first case. */
bool rig_run(struct rig *g, uint64_t ns);

/* The iova of a place in a side's memory. */
static inline uint64_t rig_va(size_t off)
{
	return RIG_IOVA + off;
}

static inline struct rnic_sge rig_sge(const struct rig *g, int side, size_t off, uint32_t len)
{
	return (struct rnic_sge){ rig_va(off), len, rnic_mr_lkey(g->side[side].mr) };
}

/* Posts a signaled work request of one piece from side's memory at `off`, to the other side's at `roff`. */
int rig_post(struct rig *g, int side, struct rnic_qp *qp, enum rnic_wr_opcode op, size_t off,
	     uint32_t len, size_t roff, uint64_t wr_id);
int rig_recv(struct rig *g, int side, struct rnic_qp *qp, size_t off, uint32_t len, uint64_t wr_id);

/* The next completion, which must be there, with this id and status. */
struct rnic_wc rig_expect(struct rnic_cq *cq, uint64_t wr_id, enum rnic_wc_status status);
void rig_expect_none(struct rnic_cq *cq);

void rig_fill(struct rig *g, int side, uint64_t seed);
uint64_t rig_rnd(uint64_t *s);

/* Whether the side saw the event. */
bool rig_saw(const struct rig *g, int side, enum rnic_event_type type);

#endif
