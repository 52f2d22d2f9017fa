/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The GPU's body of gnet__copy, built as C and run by the CPU device's fibers: shuffles, uneven
 * warps, few threads. Each source is a block of memory of just its size, so that AddressSanitizer
 * sees any byte that is read outside.
 */
#define GNET_COPY_VECTOR
#include <gpunet/dev/impl/copy.h>

#include "platform/platform.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define OUT_OF_BOUNDS(p, n) __asan_poison_memory_region(p, n)
#define IN_BOUNDS(p, n) __asan_unpoison_memory_region(p, n)
#else
#define OUT_OF_BOUNDS(p, n) ((void)0)
#define IN_BOUNDS(p, n) ((void)0)
#endif

/* ThreadSanitizer makes every byte and every switch thirty times as dear. */
#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifdef TSAN
#define STEP 41u
#define OUTS 1
#else
#define STEP 1u
#define OUTS 2
#endif

#define SMALL 600u
#define GUARD 64u
#define GUARD_BYTE 0xeeu
#define PATTERN(i) ((unsigned char)(((i)*2654435761u) >> 24))

static const unsigned big[] = { 1023, 1024, 1025, 4095, 4096, 4097, 20000, 65535, 65536, 65537 };
#define BIGS (sizeof(big) / sizeof(big[0]))
#define CASES (SMALL + 1u + BIGS)

static unsigned char *sources[16][CASES];

static unsigned size_of(unsigned k)
{
	return k <= SMALL ? k : big[k - SMALL - 1];
}

struct copy_args {
	unsigned char *dst; /* an area a block */
	size_t area;
	unsigned *bad;
	unsigned *cases;
	unsigned step; /* of the sizes, each block begins with another one */
	int out;
};

static unsigned wrong_bytes(const unsigned char *d, unsigned n)
{
	unsigned i, bad = 0;

	for (i = 0; i < GUARD; i++)
		bad += d[i] != GUARD_BYTE || d[GUARD + n + i] != GUARD_BYTE;
	for (i = 0; i < n; i++)
		bad += d[GUARD + i] != PATTERN(i);
	return bad;
}

/* One block a source offset; it goes through the others and the sizes. */
GNET_KERNEL(copy_kernel, struct copy_args, a)
{
	const unsigned src_off = blockIdx.x, tid = threadIdx.x;
	unsigned dst_off, k;

	for (dst_off = 0; dst_off < 16; dst_off++) {
		unsigned char *d = a.dst + blockIdx.x * a.area + dst_off;

		for (k = (src_off * 16 + dst_off) % a.step % CASES; k < CASES; k += a.step) {
			const unsigned n = size_of(k);

			if (tid == 0)
				memset(d, GUARD_BYTE, n + 2 * GUARD);
			__syncthreads();
			gnet__copy_any(d + GUARD, sources[src_off][k] + src_off, n, a.out, tid,
				       blockDim.x);
			__syncthreads();
			if (tid == 0) {
				__atomic_fetch_add(a.bad, wrong_bytes(d, n), __ATOMIC_RELAXED);
				__atomic_fetch_add(a.cases, 1, __ATOMIC_RELAXED);
			}
			__syncthreads();
		}
	}
}

static int make_sources(void **state)
{
	(void)state;
	for (unsigned off = 0; off < 16; off++)
		for (unsigned k = 0; k < CASES; k++) {
			const unsigned n = size_of(k);
			unsigned char *p = malloc(off + n + !n);

			if (!p || (uintptr_t)p % 16)
				return -1;
			for (unsigned i = 0; i < n; i++)
				p[off + i] = PATTERN(i);
			/* The sanitizer knows eights only, at a beginning. */
			OUT_OF_BOUNDS(p, off & ~7u);
			sources[off][k] = p;
		}
	return 0;
}

static int drop_sources(void **state)
{
	(void)state;
	for (unsigned off = 0; off < 16; off++)
		for (unsigned k = 0; k < CASES; k++) {
			IN_BOUNDS(sources[off][k], off & ~7u);
			free(sources[off][k]);
		}
	return 0;
}

static void run(struct platform_dev *dev, unsigned threads, unsigned step, int out)
{
	const struct platform_grid grid = { { 16, 1, 1 }, { threads, 1, 1 }, 0 };
	const size_t area = (big[BIGS - 1] + 2 * GUARD + 16 + 15) / 16 * 16;
	unsigned bad = 0, cases = 0;
	struct copy_args a = { NULL, area, &bad, &cases, step, out };

	a.dst = aligned_alloc(16, 16 * area);
	assert_non_null(a.dst);
	assert_int_equal(platform_cpu.launch(dev, copy_kernel_entry, &grid, &a, sizeof(a)), 0);
	assert_int_equal(platform_cpu.sync(dev, UINT64_C(100000000000)), 0);
	assert_int_equal(bad, 0);
	assert_true(cases >= 256);
	free(a.dst);
}

static void every_offset_and_size(void **state)
{
	static const struct {
		unsigned threads, step;
	} rows[] = { { 1, 5 },   { 7, 11 },  { 31, 11 },  { 32, 3 },
		     { 33, 13 }, { 64, 13 }, { 100, 37 }, { 256, 61 } };
	const struct platform_params params = { .size = sizeof(params), .cpu_seed = 7 };
	struct platform_dev *dev = NULL;

	(void)state;
	assert_int_equal(platform_cpu.open(0, &params, &dev), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (int out = 0; out < OUTS; out++)
			run(dev, rows[i].threads, rows[i].step * STEP, out);
	platform_cpu.close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_offset_and_size) };

	return cmocka_run_group_tests(tests, make_sources, drop_sources);
}
