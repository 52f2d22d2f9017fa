/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the tests of dev/device.h share: a device, memory that host and kernels see, launches, and a place where kernels
 * report what is wrong. Kernels and host code are in one file, compiled as C11 or as CUDA.
 */
#ifndef VOCAB_H
#define VOCAB_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunet/dev/device.h>
#include <gpunet/gpunet.h>

/* Kernels count mistakes and leave the line of one. */
struct vocab {
	unsigned wrong;
	unsigned line;
	unsigned done; /* threads that came to the end */
	unsigned word[61];
	unsigned long long wide[64];
	int number[64];
};

struct vocab_args {
	struct vocab *v;
	unsigned n;
};

#define CHECK(v, condition)                                         \
	do {                                                        \
		if (!(condition)) {                                 \
			atomicAdd(&(v)->wrong, 1u);                 \
			atomicExch(&(v)->line, (unsigned)__LINE__); \
		}                                                   \
	} while (0)

#ifdef __CUDACC__
#define VOCAB_DEVICE "cuda"

static struct vocab *vocab_memory(void)
{
	void *p = NULL;

	if (cudaMallocManaged(&p, sizeof(struct vocab)) != cudaSuccess)
		return NULL;
	return (struct vocab *)p;
}
#else
#define VOCAB_DEVICE "cpu"

static struct vocab *vocab_memory(void)
{
	return (struct vocab *)malloc(sizeof(struct vocab));
}
#endif

static gpunet_t *vocab_net;
static struct vocab *vocab_area;
static int vocab_failed;

static struct vocab *vocab_reset(void)
{
	memset(vocab_area, 0, sizeof(*vocab_area));
	return vocab_area;
}

/* After a launch, whose result is `err`: waits, and says what is wrong if something is. */
static void vocab_result(const char *name, int err, unsigned threads)
{
	if (!err)
		err = gpunet_sync(vocab_net, 60000);
	if (!err && !vocab_area->wrong && vocab_area->done == threads)
		return;
	vocab_failed = 1;
	fprintf(stderr, "%s on %s: error %d %s, %u wrong (line %u), %u of %u threads done\n", name,
		VOCAB_DEVICE, err, err ? gpunet_last_error() : "", vocab_area->wrong,
		vocab_area->line, vocab_area->done, threads);
}

#define VOCAB_RUN(kernel, geometry, count)                                            \
	do {                                                                          \
		struct vocab_args args_ = { vocab_reset(), (count) };                 \
		struct gpunet_grid grid_ = (geometry);                                \
		vocab_result(#kernel, GPUNET_LAUNCH(vocab_net, kernel, grid_, args_), \
			     vocab_threads(&grid_));                                  \
	} while (0)

static unsigned vocab_or_1(unsigned n)
{
	return n ? n : 1;
}

static unsigned vocab_threads(const struct gpunet_grid *g)
{
	return vocab_or_1(g->grid_x) * vocab_or_1(g->grid_y) * vocab_or_1(g->grid_z) *
	       vocab_or_1(g->block_x) * vocab_or_1(g->block_y) * vocab_or_1(g->block_z);
}

static struct gpunet_grid vocab_grid(unsigned blocks, unsigned threads, size_t shared)
{
	struct gpunet_grid g;

	memset(&g, 0, sizeof(g));
	g.grid_x = blocks;
	g.block_x = threads;
	g.shared = shared;
	return g;
}

/* Runs `tests` on the fixed order and on some seeds, which a GPU does not care about. */
static int vocab_main(void (*tests)(void))
{
	static const unsigned seeds[] = { 0, 1, 2, 12345 };
	unsigned i;

	vocab_area = vocab_memory();
	for (i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
		struct gpunet_options opt = GPUNET_OPTIONS_INIT;
		int err;

		opt.device = VOCAB_DEVICE;
		opt.cpu_seed = seeds[i];
		opt.max_sockets = 16;
		opt.slab_bytes = 1u << 20;
		err = gpunet_open(&vocab_net, &opt);
		if (err == -ENODEV)
			return 77;
		if (err || !vocab_area) {
			fprintf(stderr, "no device or memory: %s\n", gpunet_last_error());
			return 1;
		}
		tests();
		err = gpunet_close(vocab_net, 60000);
		if (err) {
			fprintf(stderr, "close: %s\n", gpunet_last_error());
			return 1;
		}
	}
	return vocab_failed;
}

#endif
