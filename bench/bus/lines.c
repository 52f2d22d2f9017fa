/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small messages without a fence: sixteen cells of eight bytes, each with a tag, as in the status
 * line (CPU to GPU, one load of a warp) and the submission entry (GPU to CPU, one store of a warp).
 * The kernel sends back what it got; both sides look at every byte. Cell 0 is a header, the others
 * carry 105 bytes.
 */
#include "bus.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 20000u
#define WARM 1000u
#define CELLS 16u
#define ENTRIES 64u

struct line_args {
	uint64_t *cells;
	const uint64_t *line; /* status line */
	uint64_t *queue;      /* ENTRIES entries */
	unsigned rounds;
};

#define TAG(round) ((round) % 255u + 1u)
/* Seven bytes that belong to one round and one cell. */
#define PAYLOAD(round, cell) \
	(((round)*UINT64_C(0x9e3779b97f4a7c15) + (cell)*UINT64_C(0xc2b2ae3d27d4eb4f)) >> 8)
#define CELL(round, cell) (PAYLOAD(round, cell) << 8 | TAG(round))

GNET_KERNEL(line_kernel, struct line_args, a)
{
	struct bus_limit limit = bus_limit_from(a.cells);
	const unsigned lane = threadIdx.x;
	uint64_t i, cell, wrong = 0, torn = 0;
	unsigned match;

	for (i = 1; i <= a.rounds; i++) {
		for (;;) {
			cell = lane < CELLS ? gnet_sys_load(a.line + lane) : 0;
			match = __ballot_sync(0xffffffffu, (cell & 0xffu) == TAG(i));
			if (match == 0xffffu)
				break;
			torn += match != 0;
			if (__any_sync(0xffffffffu, bus_over(&limit)))
				return;
		}
		if (lane < CELLS) {
			wrong += cell != CELL(i, lane);
			gnet_sys_store(a.queue + i % ENTRIES * CELLS + lane, cell);
		}
	}
	if (lane == 0)
		gnet_sys_store(a.cells + BUS_TORN * BUS_LINE, torn);
	if (lane < CELLS && wrong)
		gnet_sys_store(a.cells + BUS_WRONG * BUS_LINE, wrong);
}

/*
 * Waits for an entry. Adds to *torn when it was seen with some cells of this round only. -1: the
 * time is over.
 */
static int entry_wait(struct bus *b, const uint64_t *entry, uint64_t round, uint64_t *got,
		      uint64_t *torn)
{
	uint64_t start = 0;
	unsigned turns, k, match;

	for (turns = 0;; turns++) {
		for (k = 0, match = 0; k < CELLS; k++) {
			got[k] = __atomic_load_n(entry + k, __ATOMIC_RELAXED);
			match += (got[k] & 0xffu) == TAG(round);
		}
		if (match == CELLS)
			return 0;
		*torn += match != 0;
		if (turns % 65536u != 65535u)
			continue;
		if (!start)
			start = bus_now();
		if (bus_now() - start > BUS_LIMIT_NS || bus_load(bus_cell(b, BUS_ABORT)))
			return -1;
	}
}

void bus_lines(struct bus *b)
{
	double *us = (double *)malloc(ROUNDS * sizeof(*us));
	uint64_t *line = (uint64_t *)b->host, *queue = line + 1024, got[CELLS];
	struct line_args a = { b->cells, line, queue, ROUNDS / b->scale + WARM };
	uint64_t i, start, wrong = 0, torn = 0;
	unsigned k;
	char extra[160];
	int ok = us != NULL;

	bus_begin(b);
	for (k = 0; k < 1024 + ENTRIES * CELLS; k++)
		line[k] = 0; /* tag 0 is nobody's */
	if (ok) {
		line_kernel<<<1, 32, 0, b->stream>>>(a);
		ok = bus_launched("lines");
	}
	for (i = 1; ok && i <= a.rounds; i++) {
		start = bus_now();
		for (k = 0; k < CELLS; k++)
			__atomic_store_n(line + k, CELL(i, k), __ATOMIC_RELAXED);
		ok = !entry_wait(b, queue + i % ENTRIES * CELLS, i, got, &torn);
		if (i > WARM)
			us[i - WARM - 1] = (double)(bus_now() - start) / 1e3;
		for (k = 0; ok && k < CELLS; k++)
			wrong += got[k] != CELL(i, k);
	}
	if (!bus_end(b, "lines", ok)) {
		wrong += bus_load(bus_cell(b, BUS_WRONG));
		snprintf(
			extra, sizeof(extra),
			"\"bytes\":105,\"wrong\":%llu,\"torn_seen_by_gpu\":%llu,\"torn_seen_by_cpu\":%llu",
			(unsigned long long)wrong,
			(unsigned long long)bus_load(bus_cell(b, BUS_TORN)),
			(unsigned long long)torn);
		bus_report(b, "line_roundtrip", "16 tagged cells each way, one warp", "us", us,
			   a.rounds - WARM, extra);
		b->failed |= wrong != 0;
	}
	free(us);
}
