/* SPDX-License-Identifier: BSD-3-Clause */
/* From stamps to the times of each hop: gpunet_stat_get_hops. What is in the page may be another process's. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <gpunet/dev/abi/bus.h>
#include <gpunet/gpunet.h>
#include <gpunet/stat.h>

#include "base/log.h"
#include "base/sys.h"

/* Older ones than the newest by more than this are left out: the clocks drift. */
#define RECENT_NS UINT64_C(2000000000)

const char *gpunet_hop_name(unsigned hop)
{
	static const char *const names[GPUNET_HOP_COUNT] = {
		[GPUNET_HOP_READ] = "read call",           [GPUNET_HOP_LINE] = "call to line",
		[GPUNET_HOP_TO_KERNEL] = "line to kernel", [GPUNET_HOP_KERNEL] = "kernel",
		[GPUNET_HOP_TO_PROXY] = "kernel to proxy", [GPUNET_HOP_TO_CALL] = "proxy to call",
		[GPUNET_HOP_WRITE] = "write call",
	};

	return hop < GPUNET_HOP_COUNT ? names[hop] : "";
}

/* Times of each hop, and the kernel's stamps. */
struct heap {
	size_t room, n[GPUNET_HOP_COUNT], n_stamps;
	int64_t *v[GPUNET_HOP_COUNT], *stamps;
	bool based;
	int64_t base; /* kernel's clock less the CPU's, of one message */
};

/* The difference of two times of 48 bits. */
static int64_t diff48(uint64_t a, uint64_t b)
{
	return (int64_t)((a - b) << 16) >> 16;
}

static void add(struct heap *h, unsigned hop, int64_t v)
{
	if (h->n[hop] < h->room)
		h->v[hop][h->n[hop]++] = v;
}

static void add_stamp(struct heap *h, uint64_t kernel, uint64_t cpu)
{
	int64_t d = diff48(kernel, cpu);

	if (!h->based)
		h->base = d;
	h->based = true;
	if (h->n_stamps < 2 * h->room)
		h->stamps[h->n_stamps++] = (int64_t)GNET_HOP_TIME(kernel);
}

/* Across the bus in kernel's less CPU's time, from a base that both directions share. */
static void take(struct heap *h, uint64_t kind, const uint64_t *at)
{
	if (kind == GPUNET_STAT_HOP_RECEIVED) {
		add_stamp(h, at[3], at[2]);
		add(h, GPUNET_HOP_READ, (int64_t)(at[1] - at[0]));
		add(h, GPUNET_HOP_LINE, (int64_t)(at[2] - at[1]));
		add(h, GPUNET_HOP_TO_KERNEL, diff48(at[3], at[2]) - h->base);
	} else if (kind == GPUNET_STAT_HOP_SENT) {
		add_stamp(h, at[0], at[1]);
		if (at[4])
			add(h, GPUNET_HOP_KERNEL, diff48(at[0], at[4]));
		add(h, GPUNET_HOP_TO_PROXY, diff48(at[1], at[0]) + h->base);
		add(h, GPUNET_HOP_TO_CALL, (int64_t)(at[2] - at[1]));
		add(h, GPUNET_HOP_WRITE, (int64_t)(at[3] - at[2]));
	}
}

/* A copy of one message's stamps: false if there is none, or it is being written. */
static bool copy(const struct gpunet_stat_hop *from, struct gpunet_stat_hop *to)
{
	uint64_t number = __atomic_load_n(&from->number, __ATOMIC_ACQUIRE);
	unsigned i;

	to->kind_fd = __atomic_load_n(&from->kind_fd, __ATOMIC_ACQUIRE);
	for (i = 0; i < sizeof(to->at) / sizeof(to->at[0]); i++)
		to->at[i] = __atomic_load_n(&from->at[i], __ATOMIC_ACQUIRE);
	return number && __atomic_load_n(&from->number, __ATOMIC_ACQUIRE) == number;
}

/* By the CPU's clock, when the message was through. */
static uint64_t when(const struct gpunet_stat_hop *h)
{
	return h->kind_fd >> 32 == GPUNET_STAT_HOP_SENT ? h->at[3] : h->at[2];
}

static void gather(const struct gpunet_stat_hops *r, uint32_t threads, struct heap *heap)
{
	struct gpunet_stat_hop h;
	uint64_t newest = 0;
	uint32_t t, i, pass;

	for (pass = 0; pass < 2; pass++) {
		for (t = 0; t < threads; t++) {
			for (i = 0; i < GPUNET_STAT_HOPS; i++) {
				if (!copy(&r[t].hop[i], &h))
					continue;
				if (pass && newest - when(&h) <= RECENT_NS)
					take(heap, h.kind_fd >> 32, h.at);
				else if (!pass && when(&h) > newest)
					newest = when(&h);
			}
		}
	}
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static void shift(struct heap *h, unsigned hop, int64_t by)
{
	size_t i;

	for (i = 0; i < h->n[hop]; i++)
		h->v[hop][i] += by;
}

/* Everything is sorted: what the clocks differ by, beyond the base, lies between two bounds. */
static void relate(struct heap *h, bool same, struct gpunet_hops *out)
{
	int64_t to_kernel, to_proxy, middle;

	if (same) {
		shift(h, GPUNET_HOP_TO_KERNEL, h->base);
		shift(h, GPUNET_HOP_TO_PROXY, -h->base);
		return;
	}
	if (!h->n[GPUNET_HOP_TO_KERNEL] || !h->n[GPUNET_HOP_TO_PROXY]) {
		/* Only one bound: nothing can be said. */
		h->n[GPUNET_HOP_TO_KERNEL] = h->n[GPUNET_HOP_TO_PROXY] = 0;
		return;
	}
	to_kernel = h->v[GPUNET_HOP_TO_KERNEL][0];
	to_proxy = h->v[GPUNET_HOP_TO_PROXY][0];
	middle = (to_kernel - to_proxy) / 2;
	out->clock_error_ns = (to_kernel + to_proxy) / 2;
	shift(h, GPUNET_HOP_TO_KERNEL, -middle);
	shift(h, GPUNET_HOP_TO_PROXY, middle);
}

static uint64_t step_of(struct heap *h)
{
	int64_t least = 0, d;
	size_t i;

	qsort(h->stamps, h->n_stamps, sizeof(*h->stamps), compare);
	for (i = 1; i < h->n_stamps; i++) {
		d = h->stamps[i] - h->stamps[i - 1];
		if (d && (!least || d < least))
			least = d;
	}
	return (uint64_t)least;
}

static void evaluate(struct heap *h, bool same, struct gpunet_hops *out)
{
	unsigned i;

	for (i = 0; i < GPUNET_HOP_COUNT; i++)
		qsort(h->v[i], h->n[i], sizeof(*h->v[i]), compare);
	relate(h, same, out);
	out->clock_step_ns = step_of(h);
	for (i = 0; i < GPUNET_HOP_COUNT; i++) {
		out->hop[i].count = h->n[i];
		if (h->n[i]) {
			out->hop[i].p50 = h->v[i][h->n[i] / 2];
			out->hop[i].p99 = h->v[i][h->n[i] * 99 / 100];
		}
	}
}

static bool is_page(const struct gpunet_stat_page *p, size_t size)
{
	return size >= sizeof(*p) && p->magic == GPUNET_STAT_MAGIC && p->size == sizeof(*p);
}

static bool inside(uint64_t at, uint32_t threads, size_t size)
{
	return at % 8 == 0 && at >= sizeof(struct gpunet_stat_page) && at < size && threads &&
	       threads <= 64 && (size - at) / sizeof(struct gpunet_stat_hops) >= threads;
}

int gpunet_stat_get_hops(const void *page, size_t size, struct gpunet_hops *out)
{
	const struct gpunet_stat_page *p = page;
	struct heap h = { 0 };
	int64_t *memory;
	uint32_t threads;
	uint64_t at;
	unsigned i;

	if (!page || out->size != sizeof(*out))
		return log_error(
			-EINVAL,
			"struct gpunet_hops has size %zu: set it to sizeof(struct gpunet_hops)",
			out->size);
	if (!is_page(p, size))
		return log_error(-EINVAL, "this is no page of a network of this version");
	/* Once: its process may change them. */
	at = __atomic_load_n(&p->hops_at, __ATOMIC_RELAXED);
	threads = __atomic_load_n(&p->threads, __ATOMIC_RELAXED);
	if (!at)
		return log_error(-EOPNOTSUPP, "that network stamps no hops: set GPUNET_HOPS=1");
	if (!inside(at, threads, size))
		return log_error(-EINVAL, "this page's stamps do not lie within its %zu bytes",
				 size);
	h.room = (size_t)threads * GPUNET_STAT_HOPS;
	memory = sys.alloc((GPUNET_HOP_COUNT + 2) * h.room * sizeof(*memory));
	if (!memory)
		return log_error(-ENOMEM, "no memory for %zu messages' stamps", h.room);
	for (i = 0; i < GPUNET_HOP_COUNT; i++)
		h.v[i] = memory + i * h.room;
	h.stamps = memory + GPUNET_HOP_COUNT * h.room;
	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	gather((const void *)((const uint8_t *)page + at), threads, &h);
	evaluate(&h, p->same_clock != 0, out);
	sys.free(memory);
	return 0;
}
