/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the CPU device share. A kernel's results go to plain memory; the checks are made after sync. */
#ifndef CPU_TEST_H
#define CPU_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <gpunet/dev/device.h>

#include "base/log.h"
#include "base/sys.h"
#include "platform/cpu/cpu.h"
#include "platform/platform.h"

#define SECOND UINT64_C(1000000000)
#define ENOUGH (60 * SECOND) /* a kernel that takes longer hangs */

static inline struct platform_dev *test_open(unsigned blocks, uint64_t seed)
{
	struct platform_params p = { .size = sizeof(p), .cpu_blocks = blocks, .cpu_seed = seed };
	struct platform_dev *d = NULL;

	assert_int_equal(platform_cpu.open(0, &p, &d), 0);
	assert_non_null(d);
	return d;
}

static inline struct platform_grid test_grid(unsigned blocks, unsigned threads)
{
	struct platform_grid g = { { blocks, 1, 1 }, { threads, 1, 1 }, 0 };

	return g;
}

/* Launches a kernel of one struct and waits for its end; returns sync's result. */
#define test_run(d, kernel, blocks, threads, args) \
	test_run_entry(d, kernel##_entry, test_grid(blocks, threads), &(args), sizeof(args))

static inline int test_run_entry(struct platform_dev *d, void (*entry)(void *),
				 struct platform_grid g, const void *args, size_t size)
{
	assert_int_equal(platform_cpu.launch(d, entry, &g, args, size), 0);
	return platform_cpu.sync(d, ENOUGH);
}

static inline uint64_t test_cpu_time(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * SECOND + (uint64_t)ts.tv_nsec;
}

static inline void test_sleep_ms(unsigned ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

#endif
