/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench-bus: what the forms of dev/order.h and dev/impl/copy.h cost on this machine's bus. Its own
 * program on the CUDA runtime, so that it needs nothing of the library that it measures for.
 *
 * Nothing in it waits without an end: kernels look at an abort word and a time limit, the CPU at a
 * clock, and an alarm ends the process if both fail.
 */
#ifndef GPUNET_BENCH_BUS_H
#define GPUNET_BENCH_BUS_H

#include <gpunet/dev/device.h>
#include <gpunet/dev/order.h>

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Cells of the control page, a line of 128 bytes each. */
enum bus_cell { BUS_ABORT, BUS_PING, BUS_PONG, BUS_WRONG, BUS_TORN, BUS_CELLS };
#define BUS_LINE 16u /* uint64_t in a line of 128 bytes */

#define BUS_AREA ((size_t)32 << 20)       /* bytes of each big buffer */
#define BUS_LIMIT_NS UINT64_C(8000000000) /* for one kernel, and for the CPU's wait for it */

struct bus {
	uint64_t *cells; /* pinned, BUS_CELLS lines */
	unsigned char
		*host; /* pinned as the library pins: registered mapping, BUS_AREA and a page */
	unsigned char *gpu; /* GPU memory of the same size */
	cudaStream_t stream;
	unsigned scale; /* rounds are divided by it */
	int table;
	int failed;
};

/* ---- device side ---- */

struct bus_limit {
	const uint64_t *abort;
	uint64_t end;
	unsigned turns;
};

GNET_DEV struct bus_limit bus_limit_from(const uint64_t *cells)
{
	struct bus_limit l = { cells + BUS_ABORT * BUS_LINE, gnet_time_ns() + BUS_LIMIT_NS, 0 };

	return l;
}

/* Whether a wait is over without success. Looks rarely, for the look itself crosses the bus. */
GNET_DEV int bus_over(struct bus_limit *l)
{
	if (++l->turns % 256u)
		return 0;
	return gnet_time_ns() > l->end || gnet_sys_load(l->abort) != 0;
}

/* ---- host side ---- */

static inline uint64_t bus_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static inline uint64_t bus_load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static inline void bus_store(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

static inline void bus_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static inline uint64_t *bus_cell(const struct bus *b, enum bus_cell c)
{
	return b->cells + (unsigned)c * BUS_LINE;
}

/* Clears the cells before a kernel. */
void bus_begin(struct bus *b);

/* Whether the kernel before could be launched; says why not. */
int bus_launched(const char *name);

/* The CPU waits for *p == v. 0, or -1 after the limit: the kernel is then told to stop. */
int bus_wait(struct bus *b, const uint64_t *p, uint64_t v);

/* Waits for the kernel; `ok` tells whether the CPU's half went well. 0 if both halves did. */
int bus_end(struct bus *b, const char *name, int ok);

/* The nanoseconds that the stream's last work between the two took. */
struct bus_timer {
	cudaEvent_t from, to;
};
int bus_timer_make(struct bus_timer *t);
void bus_timer_free(struct bus_timer *t);

/*
 * One figure: a JSON line, or a line of the table. `extra` is more members of the JSON object,
 * without the first comma, or "". Sorts the samples.
 */
void bus_report(const struct bus *b, const char *name, const char *form, const char *unit,
		double *sample, size_t n, const char *extra);

/* ---- the questions ---- */

void bus_flags(struct bus *b);
void bus_lines(struct bus *b);
void bus_rings(struct bus *b);
void bus_rings_call(struct bus *b);
void bus_copies(struct bus *b);
void bus_latency(struct bus *b);
void bus_litmus(struct bus *b);

#endif
