/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet perf over RDMA posted by the CPU: perf_verbs.c (command line, the two sides' exchange), perf_verbs_run.c (the runs). */
#ifndef GPUNET_TOOLS_PERF_VERBS_H
#define GPUNET_TOOLS_PERF_VERBS_H

#include <gpunet/verbs.h>
#include <stdbool.h>

#include "perftest.h"

#define PERF_VERBS_MAX (UINT32_C(1) << 30) /* the largest message */
#define PERF_VERBS_ALL (UINT32_C(1) << 23) /* ... of --all, as perftest has it */
#define PERF_VERBS_QPS 64

struct pv_opt {
	enum perftest_kind kind;
	const char *host; /* NULL: a server */
	const char *provider, *device, *bind;
	unsigned port, size, count, depth, list, mtu, qps;
	int gid_index;
	bool json;
	bool all;  /* sizes, from 2 bytes on */
	bool both; /* directions, of a bandwidth */
};

struct pv {
	struct pv_opt o;
	bool client;
	int tcp;
	gpunet_verbs_t *v;
	struct gpunet_verbs_info info;
	gpunet_verbs_mr_t *mr;
	gpunet_verbs_cq_t *cq;
	gpunet_verbs_qp_t *qp[PERF_VERBS_QPS];
	uint8_t *mem; /* our data first, then, `half` bytes further, what the peer may use */
	size_t half;
	unsigned depth, recv_depth;        /* of the queues */
	unsigned receives[PERF_VERBS_QPS]; /* posted so far, for the size that runs */
	unsigned max_inline, mtu;
	struct perftest_record ours[PERF_VERBS_QPS], theirs[PERF_VERBS_QPS];
	uint64_t *ns;                  /* latencies: when each began, and the end */
	struct perftest_report result; /* bandwidths */
	struct perftest_report peer;   /* ... as the peer tells them */
};

/* ---- perf_verbs_run.c ------------------------------------------------------------------------------------------------------ */

const char *pv_name(enum perftest_kind kind);
bool pv_is_latency(enum perftest_kind kind);
/* Whether this side does something in the run, besides being there. */
bool pv_is_active(const struct pv *p);
/* Posts the receives of SEND for a size: TOOL_DONE or TOOL_FAILED. */
int pv_receives(struct pv *p);
int pv_run(struct pv *p);
/* A message of this side is one WRITE, READ or so; whether it is a SEND. */
bool pv_is_send(const struct pv *p);
/* Lets the device work once, for whoever waits for something else; completions are not expected. */
int pv_idle(struct pv *p);
void pv_header(const struct pv *p);
int pv_report(struct pv *p);

#endif
