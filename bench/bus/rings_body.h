/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes through rings in pinned memory: the CPU copies a message into a ring and releases its tail;
 * a block acquires it, copies the message into GPU memory and from there into the ring of the other
 * direction, releases that tail; the CPU copies it out. Timed with both of the CPU's copies; what
 * came back is compared outside of the time.
 *
 * The files that include this define RINGS, the function's name, RINGS_KERNEL and RINGS_FORM.
 */
#include "bus.h"

#include <gpunet/dev/impl/copy.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 10000u
#define WARM 200u
#define RING ((size_t)256 << 10)
#define THREADS 256u

struct ring_args {
	uint64_t *cells;
	const unsigned char *in;
	unsigned char *out, *message;
	unsigned rounds, size;
};

GNET_KERNEL(RINGS_KERNEL, struct ring_args, a)
{
	struct bus_limit limit = bus_limit_from(a.cells);
	const unsigned tid = threadIdx.x;
	uint64_t pos = 0;
	unsigned i;
	int over;

	for (i = 0; i < a.rounds; i++) {
		const size_t at = (size_t)(pos % RING);

		over = 0;
		if (tid == 0)
			while (!over &&
			       gnet_sys_load_acquire(a.cells + BUS_PING * BUS_LINE) != pos + a.size)
				over = bus_over(&limit);
		if (__syncthreads_or(over))
			return;
		gnet__copy(a.message, a.in + at, a.size, tid, THREADS);
		__syncthreads();
		gnet__copy_out(a.out + at, a.message, a.size, tid, THREADS);
		pos += a.size;
		__syncthreads();
		if (tid == 0)
			gnet_sys_store_release(a.cells + BUS_PONG * BUS_LINE, pos);
	}
}

/* A message lies in one piece: sizes are powers of two, and so is the ring. */
static void measure(struct bus *b, unsigned size, unsigned rounds, double *us)
{
	unsigned char *in = b->host, *out = b->host + RING;
	unsigned char *sent = (unsigned char *)malloc(size), *got = (unsigned char *)malloc(size);
	struct ring_args a = { b->cells, in, out, b->gpu, rounds + WARM, size };
	uint64_t i, pos = 0, start, wrong = 0;
	char form[64], extra[64];
	int ok = sent && got;

	bus_begin(b);
	if (ok) {
		memset(out, 0, RING);
		RINGS_KERNEL<<<1, THREADS, 0, b->stream>>>(a);
		ok = bus_launched("rings");
	}
	for (i = 0; ok && i < a.rounds; i++) {
		memset(sent, (int)(i * 7 + 1), size);
		start = bus_now();
		memcpy(in + pos % RING, sent, size);
		bus_store(bus_cell(b, BUS_PING), pos + size);
		ok = !bus_wait(b, bus_cell(b, BUS_PONG), pos + size);
		memcpy(got, out + pos % RING, size);
		if (i >= WARM)
			us[i - WARM] = (double)(bus_now() - start) / 1e3;
		wrong += memcmp(sent, got, size) != 0;
		pos += size;
	}
	if (!bus_end(b, "rings", ok)) {
		snprintf(form, sizeof(form), "%u B, 256 threads, " RINGS_FORM, size);
		snprintf(extra, sizeof(extra), "\"bytes\":%u,\"wrong\":%llu", size,
			 (unsigned long long)wrong);
		bus_report(b, "ring_roundtrip", form, "us", us, rounds, extra);
		b->failed |= wrong != 0;
	}
	free(sent);
	free(got);
}

void RINGS(struct bus *b)
{
	double *us = (double *)malloc(ROUNDS * sizeof(*us));

	if (us) {
		measure(b, 64, ROUNDS / b->scale, us);
		measure(b, 1024, ROUNDS / b->scale, us);
		measure(b, 65536, ROUNDS / 2 / b->scale, us);
	}
	free(us);
}
