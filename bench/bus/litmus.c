/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Litmus cases across the bus, a million instances each, thirty-two a round in thirty-two lanes and
 * as many places. For each case a mutant that lacks the order: what it shows is recorded; only the
 * real forms have to be clean.
 *
 * Message passing: the writer stores data, then a flag; a reader that sees the flag must see the
 * data. Store buffering: both sides store their own word and then load the other's; not both may
 * miss the other's store.
 */
#include "bus.h"

#include <stdio.h>
#include <stdlib.h>

#define LANES 32u
#define INSTANCES 1000000u
#define PAD 16u /* words from one place to the next: a line of 128 bytes */
#define FAR \
	(1u \
	 << 16) /* words from the flags to the data: other pages, other slices of the GPU's cache */
#define ALL 0xffffffffu

/* Words of the pinned area. */
#define FLAG(p, lane) ((p) + (lane)*PAD)
#define DATA(p, lane) ((p) + FAR + (lane)*PAD)
#define SEEN(p, lane) ((p) + 2u * FAR + (lane))

struct litmus_args {
	uint64_t *cells, *words;
	unsigned rounds;
	int mutant;
};

static struct litmus_args begin(struct bus *b, unsigned lanes, int mutant)
{
	struct litmus_args a = { b->cells, (uint64_t *)b->host, INSTANCES / lanes / b->scale,
				 mutant };
	unsigned k;

	bus_begin(b);
	for (k = 0; k < 3u * FAR; k++)
		a.words[k] = 0;
	return a;
}

/* `more`: members of the case's own, each after a comma. */
static void report(struct bus *b, const char *what, const char *form, const struct litmus_args *a,
		   unsigned lanes, uint64_t wrong, const char *more)
{
	double one = (double)wrong;
	char extra[256];

	snprintf(extra, sizeof(extra), "\"instances\":%u,\"mutant\":%s%s", a->rounds * lanes,
		 a->mutant ? "true" : "false", more);
	bus_report(b, what, form, "wrong", &one, 1, extra);
	b->failed |= !a->mutant && wrong != 0;
}

/*
 * CPU to GPU. Each turn loads flag and data in this order, so that no lane waits for another
 * between the two.
 */
GNET_KERNEL(mp_in_kernel, struct litmus_args, a)
{
	struct bus_limit limit = bus_limit_from(a.cells);
	const unsigned lane = threadIdx.x;
	uint64_t i, flag, data, wrong = 0;

	for (i = 1; i <= a.rounds; i++) {
		do {
			if (a.mutant) {
				flag = gnet_sys_load(FLAG(a.words, lane));
				data = *DATA(a.words, lane);
			} else {
				flag = gnet_sys_load_acquire(FLAG(a.words, lane));
				data = *DATA(a.words, lane);
			}
			wrong += flag == i && data != i;
			if (__any_sync(ALL, bus_over(&limit)))
				return;
		} while (!__all_sync(ALL, flag == i));
		if (lane == 0)
			gnet_sys_store_release(a.cells + BUS_PONG * BUS_LINE, i);
	}
	gnet_sys_store(SEEN(a.words, lane), wrong);
}

static void mp_in(struct bus *b, const char *form, int mutant)
{
	struct litmus_args a = begin(b, LANES, mutant);
	uint64_t *w = a.words, i, wrong = 0;
	unsigned k;
	int ok;

	mp_in_kernel<<<1, LANES, 0, b->stream>>>(a);
	ok = bus_launched("litmus");
	for (i = 1; ok && i <= a.rounds; i++) {
		for (k = 0; k < LANES; k++) {
			__atomic_store_n(DATA(w, k), i, __ATOMIC_RELAXED);
			__atomic_store_n(FLAG(w, k), i, __ATOMIC_RELEASE);
		}
		ok = !bus_wait(b, bus_cell(b, BUS_PONG), i);
	}
	if (bus_end(b, "litmus", ok))
		return;
	for (k = 0; k < LANES; k++)
		wrong += *SEEN(w, k);
	report(b, "mp_cpu_to_gpu", form, &a, LANES, wrong, "");
}

/* GPU to CPU. */
GNET_KERNEL(mp_out_kernel, struct litmus_args, a)
{
	struct bus_limit limit = bus_limit_from(a.cells);
	const unsigned lane = threadIdx.x;
	uint64_t i;

	for (i = 1; i <= a.rounds; i++) {
		*DATA(a.words, lane) = i;
		if (a.mutant)
			gnet_sys_store(FLAG(a.words, lane), i);
		else
			gnet_sys_store_release(FLAG(a.words, lane), i);
		while (gnet_sys_load(a.cells + BUS_PING * BUS_LINE) != i)
			if (bus_over(&limit))
				return;
		__syncwarp();
	}
}

/*
 * Sees each flag and its data until all flags are there. Adds what was wrong; -1 when the time is
 * over.
 */
static int mp_look(struct bus *b, uint64_t *w, uint64_t round, uint64_t *wrong)
{
	uint64_t start = bus_now();
	unsigned k, there, turns = 0;

	do {
		for (k = 0, there = 0; k < LANES; k++) {
			const uint64_t flag = __atomic_load_n(FLAG(w, k), __ATOMIC_ACQUIRE);
			const uint64_t data = __atomic_load_n(DATA(w, k), __ATOMIC_RELAXED);

			there += flag == round;
			*wrong += flag == round && data != round;
		}
		if (++turns % 4096u == 0 && bus_now() - start > BUS_LIMIT_NS)
			return -1;
	} while (there < LANES);
	return 0;
}

static void mp_out(struct bus *b, const char *form, int mutant)
{
	struct litmus_args a = begin(b, LANES, mutant);
	uint64_t *w = a.words, i, wrong = 0;
	int ok;

	mp_out_kernel<<<1, LANES, 0, b->stream>>>(a);
	ok = bus_launched("litmus");
	for (i = 1; ok && i <= a.rounds; i++) {
		ok = !mp_look(b, w, i, &wrong);
		bus_store(bus_cell(b, BUS_PING), i);
	}
	if (bus_end(b, "litmus", ok))
		return;
	report(b, "mp_gpu_to_cpu", form, &a, LANES, wrong, "");
}

/*
 * Many writers, one release: a block stores, meets at a barrier, and one thread releases. What a
 * ring's tail does.
 */
#define BLOCK 256u

GNET_KERNEL(mp_block_kernel, struct litmus_args, a)
{
	struct bus_limit limit = bus_limit_from(a.cells);
	const unsigned tid = threadIdx.x;
	uint64_t i;
	int over = 0;

	for (i = 1; i <= a.rounds; i++) {
		a.words[FAR + tid * PAD] = i;
		__syncthreads();
		if (tid == 0) {
			if (a.mutant)
				gnet_sys_store(a.words, i);
			else
				gnet_sys_store_release(a.words, i);
			while (!over && gnet_sys_load(a.cells + BUS_PING * BUS_LINE) != i)
				over = bus_over(&limit);
		}
		if (__syncthreads_or(over))
			return;
	}
}

static void mp_block(struct bus *b, const char *form, int mutant)
{
	struct litmus_args a = begin(b, BLOCK, mutant);
	uint64_t *w = a.words, i, wrong = 0;
	unsigned k;
	int ok;

	a.rounds *= 8u;
	mp_block_kernel<<<1, BLOCK, 0, b->stream>>>(a);
	ok = bus_launched("litmus");
	for (i = 1; ok && i <= a.rounds; i++) {
		ok = !bus_wait(b, w, i);
		for (k = 0; ok && k < BLOCK; k++) {
			/* From the last thread on, whose stores have had the least time. */
			wrong += __atomic_load_n(w + FAR + (BLOCK - 1u - k) * PAD,
						 __ATOMIC_RELAXED) != i;
		}
		bus_store(bus_cell(b, BUS_PING), i);
	}
	if (bus_end(b, "litmus", ok))
		return;
	report(b, "mp_block_to_cpu", form, &a, BLOCK, wrong, "");
}

/*
 * X is the GPU's word (FLAG), Y the CPU's (DATA). SEEN: whether the lane has seen Y of this round.
 */
GNET_KERNEL(sb_kernel, struct litmus_args, a)
{
	struct bus_limit limit = bus_limit_from(a.cells);
	const unsigned lane = threadIdx.x;
	uint64_t i, y;

	for (i = 1; i <= a.rounds; i++) {
		while (gnet_sys_load(a.cells + BUS_PING * BUS_LINE) != i)
			if (bus_over(&limit))
				return;
		__syncwarp();
		gnet_sys_store(FLAG(a.words, lane), i);
		if (a.mutant)
			asm volatile("fence.acq_rel.sys;" ::: "memory");
		else
			asm volatile("fence.sc.sys;" ::: "memory");
		y = gnet_sys_load(DATA(a.words, lane));
		gnet_sys_store(SEEN(a.words, lane), y == i);
		__syncwarp();
		if (lane == 0)
			gnet_sys_store_release(a.cells + BUS_PONG * BUS_LINE, i);
	}
}

static void spin_ns(uint64_t ns)
{
	const uint64_t end = bus_now() + ns;

	while (bus_now() < end)
		;
}

/*
 * The CPU's half of a round: begins after another delay each time, so that the two sides meet in
 * every way.
 */
static void sb_cpu(uint64_t *w, uint64_t round, int *saw)
{
	unsigned k;

	spin_ns(round % 32u * 100u);
	for (k = 0; k < LANES; k++) {
		__atomic_store_n(DATA(w, k), round, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		saw[k] = __atomic_load_n(FLAG(w, k), __ATOMIC_RELAXED) == round;
	}
}

static void sb(struct bus *b, const char *form, int mutant)
{
	struct litmus_args a = begin(b, LANES, mutant);
	uint64_t *w = a.words, i, outcome[4] = { 0, 0, 0, 0 };
	int saw[LANES], ok;
	unsigned k;
	char more[128];

	sb_kernel<<<1, LANES, 0, b->stream>>>(a);
	ok = bus_launched("litmus");
	for (i = 1; ok && i <= a.rounds; i++) {
		bus_store(bus_cell(b, BUS_PING), i);
		sb_cpu(w, i, saw);
		ok = !bus_wait(b, bus_cell(b, BUS_PONG), i);
		for (k = 0; ok && k < LANES; k++)
			outcome[2 * saw[k] + (int)__atomic_load_n(SEEN(w, k), __ATOMIC_RELAXED)]++;
	}
	if (bus_end(b, "litmus", ok))
		return;
	snprintf(more, sizeof(more),
		 ",\"only_gpu_saw\":%llu,\"only_cpu_saw\":%llu,\"both_saw\":%llu",
		 (unsigned long long)outcome[1], (unsigned long long)outcome[2],
		 (unsigned long long)outcome[3]);
	report(b, "store_buffering", form, &a, LANES, outcome[0], more);
}

void bus_litmus(struct bus *b)
{
	mp_in(b, "ld.acquire.sys flag, ld data", 0);
	mp_in(b, "mutant: ld.relaxed.sys flag, ld data", 1);
	mp_out(b, "st data, st.release.sys flag", 0);
	mp_out(b, "mutant: st data, st.relaxed.sys flag", 1);
	mp_block(b, "256 threads st data, barrier, st.release.sys", 0);
	mp_block(b, "mutant: st data, barrier, st.relaxed.sys", 1);
	sb(b, "st, fence.sc.sys, ld", 0);
	sb(b, "mutant: st, fence.acq_rel.sys, ld", 1);
}
