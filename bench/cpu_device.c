/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does the CPU device cost: a switch between two CUDA threads of a block, and a barrier?
 *
 * At a barrier each of n threads switches once, so a barrier of 2 threads gives the switch alone and larger blocks show
 * what their stacks cost the caches. Prints one JSON line a case: nanoseconds, smallest and median of the rounds.
 * The clock is read in the kernel; the smallest is the figure on a machine with other work.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunet/dev/device.h>
#include <gpunet/gpunet.h>

#define ROUNDS 200

struct bench {
	uint64_t *ns; /* [ROUNDS] */
	unsigned turns;
	int what;
};

enum { SYNCTHREADS, SYNCWARP, SHUFFLE, ATOMIC, LOAD };

static const char *const names[] = { "__syncthreads", "__syncwarp", "__shfl_xor_sync", "atomicAdd",
				     "gpunet_cpu_yield" };

GNET_DEV void turn(int what, unsigned *word)
{
	switch (what) {
	case SYNCTHREADS:
		__syncthreads();
		break;
	case SYNCWARP:
		__syncwarp();
		break;
	case SHUFFLE:
		*word += __shfl_xor_sync(0xffffffffu, *word, 1);
		break;
	case ATOMIC:
		atomicAdd(word, 1u);
		break;
	default:
		gpunet_cpu_yield();
	}
}

GNET_KERNEL(bench_kernel, struct bench, a)
{
	unsigned i, k, word = threadIdx.x;

	for (k = 0; k < ROUNDS; k++) {
		uint64_t start = 0;

		__syncthreads();
		if (threadIdx.x == 0)
			start = gnet_time_ns();
		for (i = 0; i < a.turns; i++)
			turn(a.what, &word);
		__syncthreads();
		if (threadIdx.x == 0)
			a.ns[k] = gnet_time_ns() - start;
	}
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int run(gpunet_t *g, int what, unsigned threads, int seeded)
{
	static uint64_t ns[ROUNDS];
	struct gpunet_grid grid = { .block_x = threads };
	struct bench a = { ns, 200, what };
	double least, median;
	int err = GPUNET_LAUNCH(g, bench_kernel, grid, a);

	if (!err)
		err = gpunet_sync(g, 60000);
	if (err) {
		fprintf(stderr, "cpu_device: %s\n", gpunet_last_error());
		return err;
	}
	qsort(ns, ROUNDS, sizeof(ns[0]), by_size);
	least = (double)ns[0] / a.turns;
	median = (double)ns[ROUNDS / 2] / a.turns;
	printf("{\"bench\":\"cpu_device\",\"what\":\"%s\",\"threads\":%u,\"seeded\":%s,\"ns\":%.1f,"
	       "\"ns_median\":%.1f,\"ns_per_thread\":%.2f}\n",
	       names[what], threads, seeded ? "true" : "false", least, median, least / threads);
	return 0;
}

static int run_all(int seeded)
{
	static const unsigned threads[] = { 2, 32, 256, 1024 };
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	gpunet_t *g;
	unsigned i;
	int err;

	opt.device = "cpu";
	opt.cpu_seed = seeded ? 1 : 0;
	err = gpunet_open(&g, &opt);
	if (err) {
		fprintf(stderr, "cpu_device: %s\n", gpunet_last_error());
		return err;
	}
	for (i = 0; i < 4 && !err; i++)
		err = run(g, SYNCTHREADS, threads[i], seeded);
	for (i = SYNCWARP; i <= LOAD && !err; i++)
		err = run(g, (int)i, 32, seeded);
	gpunet_close(g, 1000);
	return err;
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		int help = strcmp(argv[1], "--help") == 0;

		fprintf(help ? stdout : stderr, "usage: %s (a line of JSON a measurement)\n",
			argv[0]);
		return help ? 0 : 2;
	}
	return run_all(0) || run_all(1);
}
