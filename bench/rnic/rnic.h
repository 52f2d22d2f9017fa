/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench-rnic: what the software RNIC does between two processes of one machine, beside what a user would take instead, measured
 * in the same run. Failures end the program with a message: there is nobody who could go on.
 */
#ifndef GPUNET_BENCH_RNIC_H
#define GPUNET_BENCH_RNIC_H

#include <gpunet/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "../figure.h"

/* ---- main.c: options and results ----------------------------------------------------------------------------------------- */

struct bench_opt {
	bool quick;
	unsigned reps; /* runs of each figure, of which the median counts */
};

extern struct bench_opt opt;

/* ---- ends.c: two processes ------------------------------------------------------------------------------------------------- */

#define QPS_MAX 1000
#define DEPTH 256
#define MEMORY (UINT32_C(1) << 20)

/* How the queue pairs of a row are. */
struct setup {
	unsigned qps;
	uint8_t ack_timeout; /* as struct gpunet_verbs_param has it */
	unsigned loss;       /* of a million packets, at both ends */
};

/* This process; the other one is its server, on another address. */
struct client {
	gpunet_verbs_t *v;
	gpunet_verbs_mr_t *mr;
	gpunet_verbs_cq_t *cq;
	gpunet_verbs_qp_t *qp[QPS_MAX];
	unsigned qps;
	uint8_t *mem;
	uint64_t addr; /* the server's memory */
	uint32_t rkey;
	int fd; /* to the server */
	pid_t pid;
};

void client_open(struct client *c, const struct setup *s);
void client_close(struct client *c);

/* `count` WRITEs of `size` bytes in batches, round robin over the first `busy` queue pairs: seconds. */
double client_writes(struct client *c, unsigned size, unsigned count, unsigned batch,
		     unsigned busy);
/* `count` WRITEs there and one back for each: the median of half a round trip in us. */
double client_ping(struct client *c, unsigned size, unsigned count);

/* ---- ucx.c: the peer ------------------------------------------------------------------------------------------------------- */

/* One run of ucx_perftest over its TCP transport; NAN, and why in *why, when there is none. */
struct ucx_result {
	double gbs, us;
	const char *why;
};

struct ucx_result ucx_run(const char *test, unsigned size, unsigned count);

/* ---- rows.c ---------------------------------------------------------------------------------------------------------------- */

void row_write_bw(void);
void row_write_lat(void);
void row_msg_rate(void);
void row_loss(void);
void row_idle_qps(void);

#endif
