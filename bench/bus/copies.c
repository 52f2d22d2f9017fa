/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How fast one or two blocks move bytes between pinned host memory and GPU memory: by block size,
 * by loads in flight a thread, by how source and destination lie to each other, and by the size of
 * a piece. The copy engine beside it.
 */
#include "copies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEATS 5u
#define PIECE (256u << 10) /* a ring segment */
#define TOTAL (16u << 20)

typedef void launch_fn(struct copy_args a, unsigned blocks, unsigned threads, cudaStream_t stream);

struct shape {
	unsigned blocks, threads;
};

static const struct shape shapes[] = {
	{ 1, 32 }, { 1, 256 }, { 1, 512 }, { 1, 1024 }, { 2, 1024 }
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static const struct {
	const char *name;
	launch_fn *launch;
	unsigned max_threads;
} depths[] = { { "4", bus_copy_4, 1024 }, { "8", bus_copy_8, 1024 }, { "16", bus_copy_16, 512 } };
#define DEPTHS (sizeof(depths) / sizeof(depths[0]))

static const char *const ways[] = { "host to GPU", "GPU to host" };

/* GB/s of one launch, 0 on an error. */
static double once(struct bus *b, const struct bus_timer *t, launch_fn *launch,
		   const struct copy_args *a, struct shape s)
{
	float ms = 0;

	cudaEventRecord(t->from, b->stream);
	launch(*a, s.blocks, s.threads, b->stream);
	cudaEventRecord(t->to, b->stream);
	if (bus_end(b, "copies", bus_launched("copies")) ||
	    cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess || ms <= 0)
		return 0;
	return (double)a->piece * a->pieces / ((double)ms * 1e6);
}

static void place(const struct bus *b, struct copy_args *a, int out, unsigned src_off,
		  unsigned dst_off)
{
	a->out = out;
	a->src = (out ? b->gpu : b->host) + src_off;
	a->dst = (out ? b->host : b->gpu) + dst_off;
}

/* The median of a few launches, after one that is not counted. */
static double median(struct bus *b, const struct bus_timer *t, launch_fn *launch,
		     const struct copy_args *a, struct shape s, double *sample)
{
	unsigned i;
	double mid;

	once(b, t, launch, a, s);
	for (i = 0; i < REPEATS; i++)
		sample[i] = once(b, t, launch, a, s);
	mid = sample[0];
	for (i = 0; i < REPEATS; i++) {
		unsigned less = 0, k;

		for (k = 0; k < REPEATS; k++)
			less += sample[k] < sample[i] || (sample[k] == sample[i] && k < i);
		if (less == REPEATS / 2)
			mid = sample[i];
	}
	return mid;
}

static void aligned(struct bus *b, const struct bus_timer *t, int out)
{
	struct copy_args a = { NULL, NULL, PIECE, TOTAL / PIECE, PIECE, 0 };
	double sample[REPEATS];
	char form[80];
	size_t d, s;

	place(b, &a, out, 0, 0);
	for (s = 0; s < SHAPES; s++) {
		for (d = 0; d < DEPTHS; d++) {
			if (shapes[s].threads > depths[d].max_threads)
				continue;
			median(b, t, depths[d].launch, &a, shapes[s], sample);
			snprintf(form, sizeof(form), "%s, %u x %u, %s loads", ways[out],
				 shapes[s].blocks, shapes[s].threads, depths[d].name);
			bus_report(b, "copy", form, "GB/s", sample, REPEATS, "");
		}
	}
}

/*
 * One side 1 to 15 bytes off, then the other, then both by the same: the slowest and the median
 * against aligned.
 */
static void skewed(struct bus *b, const struct bus_timer *t, int out, struct shape shape)
{
	static const char *const sides[] = { "source off by 1-15", "destination off by 1-15",
					     "both off by 1-15" };
	struct copy_args a = { NULL, NULL, PIECE - 64u, TOTAL / PIECE, PIECE, 0 };
	double sample[REPEATS], rates[15], base, low;
	char form[80], extra[80];
	unsigned side, off;

	place(b, &a, out, 0, 0);
	base = median(b, t, bus_copy_8, &a, shape, sample);
	for (side = 0; side < 3; side++) {
		low = 1e9;
		for (off = 1; off < 16; off++) {
			place(b, &a, out, side == 1 ? 0 : off, side == 0 ? 0 : off);
			rates[off - 1] = median(b, t, bus_copy_8, &a, shape, sample);
			if (rates[off - 1] < low)
				low = rates[off - 1];
		}
		snprintf(form, sizeof(form), "%s, %u x %u, %s", ways[out], shape.blocks,
			 shape.threads, sides[side]);
		snprintf(extra, sizeof(extra), "\"aligned\":%.3f,\"worst_ratio\":%.3f", base,
			 base > 0 ? low / base : 0);
		bus_report(b, "copy_skewed", form, "GB/s", rates, 15, extra);
	}
}

/* Sizes beside powers of two, one call a piece. */
static void sizes(struct bus *b, const struct bus_timer *t, int out)
{
	static const unsigned powers[] = { 1024, 4096, 16384, 65536, 262144 };
	const struct shape shape = { 1, 256 };
	struct copy_args a = { NULL, NULL, 0, 0, 0, 0 };
	double sample[REPEATS], base, rate;
	char form[80], extra[80];
	unsigned i;
	int d;

	place(b, &a, out, 0, 0);
	for (i = 0; i < sizeof(powers) / sizeof(powers[0]); i++) {
		a.stride = 2u * powers[i];
		a.pieces = (TOTAL / 4u) / powers[i];
		a.piece = powers[i];
		base = median(b, t, bus_copy_8, &a, shape, sample);
		for (d = -1; d < 2; d++) {
			a.piece = powers[i] + (unsigned)d;
			rate = median(b, t, bus_copy_8, &a, shape, sample);
			snprintf(form, sizeof(form), "%s, 1 x 256, pieces of %u B", ways[out],
				 a.piece);
			snprintf(extra, sizeof(extra), "\"ratio\":%.3f",
				 base > 0 ? rate / base : 0);
			bus_report(b, "copy_size", form, "GB/s", sample, REPEATS, extra);
		}
	}
}

static void engine(struct bus *b, const struct bus_timer *t, int out)
{
	double sample[REPEATS];
	char form[80];
	float ms = 0;
	unsigned i;

	for (i = 0; i < REPEATS; i++) {
		cudaEventRecord(t->from, b->stream);
		cudaMemcpyAsync(out ? b->host : b->gpu, out ? b->gpu : b->host, TOTAL,
				cudaMemcpyDefault, b->stream);
		cudaEventRecord(t->to, b->stream);
		if (bus_end(b, "copies", 1) ||
		    cudaEventElapsedTime(&ms, t->from, t->to) != cudaSuccess || ms <= 0)
			return;
		sample[i] = TOTAL / ((double)ms * 1e6);
	}
	snprintf(form, sizeof(form), "%s, copy engine", ways[out]);
	bus_report(b, "copy", form, "GB/s", sample, REPEATS, "");
}

/* That the bytes arrive at all; tests/device/copy.c looks at each of them. */
static void check(struct bus *b, int out)
{
	struct copy_args a = { NULL, NULL, PIECE, TOTAL / PIECE, PIECE, 0 };
	unsigned char *other = (unsigned char *)malloc(TOTAL);
	const struct shape shape = { 2, 1024 };
	unsigned i, wrong = 0;

	for (i = 0; i < TOTAL; i++)
		b->host[i] = (unsigned char)((i * 2654435761u) >> 24);
	cudaMemcpy(b->gpu, b->host, TOTAL, cudaMemcpyDefault);
	if (out)
		memset(b->host, 0, TOTAL);
	else
		cudaMemset(b->gpu, 0, TOTAL);
	cudaDeviceSynchronize();
	place(b, &a, out, 0, 0);
	bus_copy_8(a, shape.blocks, shape.threads, b->stream);
	bus_end(b, "copies", 1);
	if (other)
		cudaMemcpy(other, out ? b->host : b->gpu, TOTAL, cudaMemcpyDefault);
	for (i = 0; other && i < TOTAL; i++)
		wrong += other[i] != (unsigned char)((i * 2654435761u) >> 24);
	if (!other || wrong) {
		fprintf(stderr, "bench-bus: copies: %s: %u bytes wrong\n", ways[out], wrong);
		b->failed = 1;
	}
	free(other);
}

void bus_copies(struct bus *b)
{
	struct bus_timer t;
	size_t s;
	int out;

	if (bus_timer_make(&t)) {
		b->failed = 1;
		return;
	}
	for (out = 0; out < 2; out++) {
		bus_begin(b);
		check(b, out);
		engine(b, &t, out);
		aligned(b, &t, out);
		for (s = 1; s < SHAPES; s++)
			skewed(b, &t, out, shapes[s]);
		sizes(b, &t, out);
	}
	bus_timer_free(&t);
}
