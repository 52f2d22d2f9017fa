/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet perf on the host: the ends with plain sockets, and what is made of results. */
#ifndef GPUNET_TOOLS_PERF_RUN_H
#define GPUNET_TOOLS_PERF_RUN_H

#include <stdbool.h>

#include "tool.h"

struct perf_opt {
	const char *device; /* NULL: GPUNET_DEVICE, else auto; "host": plain sockets */
	bool host, server, dgram, json, all_sizes, reverse, hops;
	unsigned test; /* enum perf_test */
	unsigned size, count, conns, threads, blocks;
	struct url url;
	struct tool_addr addr[TOOL_ADDRS];
	int addrs;
};

/* One run: one size, all connections. */
struct perf_run {
	const struct perf_opt *opt;
	const char *kind;        /* "cpu", "cuda", "host" */
	struct perf_hello hello; /* with the size and the count for each connection */
	unsigned warm;
	struct perf_result *results; /* [opt->conns] */
	uint64_t *ticks;             /* [opt->conns * hello.count]; NULL: not wanted */
	const struct tool_addr *to;
	const struct gpunet_hops *hops; /* NULL: no stamps */
	double peak; /* messages a second, the best of the intervals that were looked at; 0: none */
};

/* ---- perf_verbs.c ------------------------------------------------------------------------------ */

/* Whether the command line names a test of RDMA posted by the CPU. */
bool perf_is_verbs(int argc, char **argv);
int perf_verbs(int argc, char **argv);

/* ---- perf_host.c ------------------------------------------------------------------------------- */

/* Serves until a signal comes. */
int perf_host_server(const struct perf_opt *o);
/* Starts a thread a connection, calls `wait` and joins them. */
int perf_host_client(struct perf_run *r, void (*wait)(struct perf_run *r));

/* ---- perf_report.c ----------------------------------------------------------------------------- */

const char *perf_name(unsigned test);
bool perf_is_latency(unsigned test);
/* Above the rows of one test. */
void perf_header(const struct perf_opt *o);
/* Prints the row, or fails with the first error of a connection. */
int perf_report(struct perf_run *r);

/* Of all connections. */
uint64_t perf_done(const struct perf_run *r);
bool perf_ended(const struct perf_run *r);
/* A line that is written again and again, if standard error is a terminal. */
void perf_progress(struct perf_run *r);
void perf_progress_end(void);

/* "listening on URL". */
void perf_announce(const struct perf_opt *o, const struct tool_addr *bound);

#endif
