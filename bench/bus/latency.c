/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Single accesses: what one thread waits for a load across the bus, what stores and fences cost it,
 * and what it costs to reserve an entry by compare-and-swap in GPU memory, alone and against other
 * blocks.
 */
#include "bus.h"

#include <stdio.h>
#include <stdlib.h>

#define SAMPLES 200u
#define CHAIN 32u        /* accesses in a sample, each one's address from the one before */
#define WORDS (1u << 20) /* no address twice in a run: what a load finds in no cache */

enum access {
	LOAD_WEAK,
	LOAD_RELAXED,
	LOAD_ACQUIRE,
	STORE_RELAXED,
	STORE_RELEASE,
	STORE_AND_FENCE,
	STORE_AND_FENCE_SC,
	GPU_LOAD,
	GPU_CAS,
	GPU_ADD,
	ACCESSES
};

static const char *const access_names[] = {
	"ld (weak), pinned memory",
	"ld.relaxed.sys, pinned memory",
	"ld.acquire.sys, pinned memory",
	"st.relaxed.sys, pinned memory",
	"st.release.sys, pinned memory, after a store",
	"st.relaxed.sys + fence.acq_rel.sys",
	"st.relaxed.sys + fence.sc.sys",
	"ld.relaxed.gpu, GPU memory",
	"atom.cas.acq_rel.gpu, GPU memory",
	"atom.add.acq_rel.gpu, GPU memory",
};

struct access_args {
	uint64_t *host, *gpu; /* zeros */
	uint64_t *clocks;     /* pinned: SAMPLES of them, then the clocks and nanoseconds of all */
	int kind;
};

/* What the access gives is 0; the next access's address depends on it. */
GNET_DEV uint64_t access_once(struct access_args a, unsigned at, int kind)
{
	if (kind == LOAD_WEAK)
		return a.host[at];
	if (kind == LOAD_RELAXED)
		return gnet_sys_load(a.host + at);
	if (kind == LOAD_ACQUIRE)
		return gnet_sys_load_acquire(a.host + at);
	if (kind == GPU_LOAD)
		return gnet_dev_load(a.gpu + at);
	if (kind == GPU_CAS)
		return gnet_dev_cas(a.gpu + at, 1, 2);
	if (kind == GPU_ADD)
		return gnet_dev_add(a.gpu + at, 0);
	gnet_sys_store(a.host + at, 0);
	if (kind == STORE_RELEASE)
		gnet_sys_store_release(a.host + (at ^ 64u), 0);
	if (kind == STORE_AND_FENCE)
		asm volatile("fence.acq_rel.sys;" ::: "memory");
	if (kind == STORE_AND_FENCE_SC)
		asm volatile("fence.sc.sys;" ::: "memory");
	return 0;
}

/* The clock is read when `seen`, which is 0, is known: the comparison waits for it. */
GNET_DEV void wait_for(uint64_t seen)
{
	asm volatile("{ .reg .pred known; setp.eq.u64 known, %0, -1; @known trap; }"
		     :
		     : "l"(seen)
		     : "memory");
}

GNET_DEV void access_all(struct access_args a, int kind)
{
	const uint64_t ns = gnet_time_ns();
	const long long from = clock64();
	unsigned i, k, at = 0;
	uint64_t seen = 0;
	long long start;

	for (i = 0; i < SAMPLES; i++) {
		start = clock64();
		for (k = 0; k < CHAIN; k++) {
			seen = access_once(a, at, kind);
			at = (unsigned)((at + 32u + seen) % WORDS);
		}
		wait_for(seen);
		a.clocks[i] = (uint64_t)(clock64() - start);
	}
	a.clocks[SAMPLES] = (uint64_t)(clock64() - from);
	a.clocks[SAMPLES + 1u] = gnet_time_ns() - ns;
}

GNET_KERNEL(access_kernel, struct access_args, a)
{
	switch (a.kind) {
	case LOAD_WEAK:
		access_all(a, LOAD_WEAK);
		break;
	case LOAD_RELAXED:
		access_all(a, LOAD_RELAXED);
		break;
	case LOAD_ACQUIRE:
		access_all(a, LOAD_ACQUIRE);
		break;
	case STORE_RELAXED:
		access_all(a, STORE_RELAXED);
		break;
	case STORE_RELEASE:
		access_all(a, STORE_RELEASE);
		break;
	case STORE_AND_FENCE:
		access_all(a, STORE_AND_FENCE);
		break;
	case STORE_AND_FENCE_SC:
		access_all(a, STORE_AND_FENCE_SC);
		break;
	case GPU_LOAD:
		access_all(a, GPU_LOAD);
		break;
	case GPU_CAS:
		access_all(a, GPU_CAS);
		break;
	case GPU_ADD:
		access_all(a, GPU_ADD);
		break;
	}
}

static void accesses(struct bus *b)
{
	uint64_t *clocks = (uint64_t *)(b->host + (16u << 20));
	struct access_args a = { (uint64_t *)b->host, (uint64_t *)b->gpu, clocks, 0 };
	double ns[SAMPLES];
	unsigned i;

	for (i = 0; i < WORDS; i++)
		a.host[i] = 0;
	for (a.kind = 0; a.kind < ACCESSES; a.kind++) {
		bus_begin(b);
		cudaMemset(b->gpu, 0, WORDS * sizeof(uint64_t));
		cudaDeviceSynchronize();
		access_kernel<<<1, 1, 0, b->stream>>>(a);
		if (bus_end(b, "latency", bus_launched("latency")) || !clocks[SAMPLES])
			continue;
		for (i = 0; i < SAMPLES; i++)
			ns[i] = (double)clocks[i] / CHAIN * (double)clocks[SAMPLES + 1u] /
				(double)clocks[SAMPLES];
		bus_report(b, "access", access_names[a.kind], "ns", ns, SAMPLES, "");
	}
}

#define RESERVATIONS 1000u

struct reserve_args {
	uint64_t *cells, *tail; /* tail in GPU memory */
	uint64_t *ns;           /* pinned, one a block */
};

/* One thread a block takes entry after entry of the submission queue, as a producer does. */
GNET_KERNEL(reserve_kernel, struct reserve_args, a)
{
	struct bus_limit limit = bus_limit_from(a.cells);
	const uint64_t from = gnet_time_ns();
	uint64_t pos = gnet_dev_load(a.tail), seen;
	unsigned i;

	for (i = 0; i < RESERVATIONS; i++) {
		while ((seen = gnet_dev_cas(a.tail, pos, pos + 1)) != pos) {
			pos = seen;
			if (bus_over(&limit))
				return;
		}
		pos++;
	}
	a.ns[blockIdx.x] = gnet_time_ns() - from;
}

static void reservations(struct bus *b)
{
	static const unsigned blocks[] = { 1, 4, 16, 64, 132 };
	uint64_t *ns = (uint64_t *)b->host;
	struct reserve_args a = { b->cells, (uint64_t *)b->gpu, ns };
	double sample[132];
	uint64_t taken;
	char form[64], extra[64];
	unsigned i, k;

	for (i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		bus_begin(b);
		cudaMemset(b->gpu, 0, sizeof(uint64_t));
		cudaDeviceSynchronize();
		reserve_kernel<<<blocks[i], 1, 0, b->stream>>>(a);
		if (bus_end(b, "latency", bus_launched("latency")))
			continue;
		taken = 0;
		cudaMemcpy(&taken, b->gpu, sizeof(taken), cudaMemcpyDefault);
		b->failed |= taken != (uint64_t)blocks[i] * RESERVATIONS;
		for (k = 0; k < blocks[i]; k++)
			sample[k] = (double)ns[k] / RESERVATIONS;
		snprintf(form, sizeof(form), "compare-and-swap until it succeeds, %u block%s",
			 blocks[i], blocks[i] == 1 ? "" : "s");
		snprintf(extra, sizeof(extra), "\"taken\":%llu", (unsigned long long)taken);
		bus_report(b, "reservation", form, "ns", sample, blocks[i], extra);
	}
}

void bus_latency(struct bus *b)
{
	accesses(b);
	reservations(b);
}
