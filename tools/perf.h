/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpunet perf: what its two ends say to each other, and what a run is and gives. An end is a kernel or, to compare
 * with, a program with plain sockets ("host"). Valid as C11 and as C++.
 */
#ifndef GPUNET_TOOLS_PERF_H
#define GPUNET_TOOLS_PERF_H

#include <stdint.h>

#include "url.h"

enum perf_test { PERF_STREAM_BW, PERF_STREAM_LAT, PERF_CONN_RATE, PERF_DGRAM_LAT, PERF_TESTS };

#define PERF_MAGIC 0x46724567u
#define PERF_VERSION 1u
#define PERF_BUFFER (UINT64_C(1) << 20) /* the largest message */
#define PERF_CONNS 256                  /* at once */
#define PERF_TIMEOUT_US 500000          /* a datagram that has not come back by then is lost */
#define PERF_LOST_MAX 20                /* in a row: nobody answers */

/*
 * Begins each connection: what the server is to do with it. Little-endian. stream_lat: messages of `size` bytes come and
 * go back. stream_bw: receives until the end and answers with the number of bytes, 8 of them; `reverse`: sends count * size
 * bytes. conn_rate: closes.
 */
struct perf_hello {
	uint32_t magic;
	uint32_t version;
	uint32_t test;
	uint32_t reverse;
	uint64_t size;
	uint64_t count;
	uint64_t pad[4];
};

/* What one connection of a client has come to, in memory that the host sees. */
struct perf_result {
	uint64_t begin, end;           /* nanoseconds of one clock for all */
	uint64_t begin_tick, end_tick; /* the same in the ticks of `ticks` */
	uint64_t done;                 /* messages, or connections, so far */
	uint64_t lost;                 /* datagrams */
	uint64_t step;                 /* enum tool_step of the error, 0: none */
	uint64_t error;                /* its errno */
	uint64_t ended;
};

/* A kernel as a client, a block a connection. */
struct perf_client {
	struct gnet *net;
	const struct tool_addr *addr; /* host and device see it */
	struct perf_result *results;
	uint64_t *ticks;  /* latencies: hello.count of each connection; NULL: not wanted */
	uint8_t *buffers; /* device memory, PERF_BUFFER for each connection */
	struct perf_hello hello;
	uint32_t conns;
	uint32_t warm; /* rounds before the first that counts */
};

/* A kernel as a server, for one connection a block at a time. */
struct perf_server {
	struct gnet *net;
	uint8_t *buffers;        /* device memory, PERF_BUFFER a block */
	struct tool_addr *peers; /* dgram: device memory, one a block */
	uint64_t *error;         /* seen by the host: errno that ended a block, 0: none */
	int32_t socket;
	int32_t dgram;
};

#endif
