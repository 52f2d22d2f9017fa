/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers, and that the switch order drawn from a seed brings missing ones to light. */
#include "cpu_test.h"

#define THREADS 96
#define SEEDS 200

struct neighbour {
	unsigned *wrong;
	int barrier;
};

/*
 * Each thread writes a word and reads that of the thread before it. Without the barrier this is right when threads
 * run one after the other from the first to the last, as they do in the fixed order.
 */
GNET_KERNEL(neighbour_kernel, struct neighbour, a)
{
	__shared__ unsigned word[THREADS];
	unsigned t = threadIdx.x;

	word[t] = 0;
	__syncthreads();
	word[t] = t + 1;
	if (a.barrier)
		__syncthreads();
	if (t && word[t - 1] != t)
		atomicAdd(a.wrong, 1u);
}

static unsigned seeds_that_go_wrong(int barrier, uint64_t first, uint64_t last)
{
	unsigned bad = 0;
	uint64_t seed;

	for (seed = first; seed <= last; seed++) {
		struct platform_dev *d = test_open(1, seed);
		unsigned wrong = 0;
		struct neighbour a = { &wrong, barrier };

		assert_int_equal(test_run(d, neighbour_kernel, 1, THREADS, a), 0);
		bad += wrong != 0;
		platform_cpu.close(d);
	}
	return bad;
}

static void a_missing_barrier_shows_under_some_seed(void **state)
{
	(void)state;
	/* TSan reports the race instead: see cpu_race.c. */
	if (CPU_TSAN)
		skip();
	assert_int_equal(seeds_that_go_wrong(0, 0, 0), 0);
	assert_int_not_equal(seeds_that_go_wrong(0, 1, SEEDS), 0);
}

static void with_the_barrier_no_seed_goes_wrong(void **state)
{
	(void)state;
	assert_int_equal(seeds_that_go_wrong(1, 0, CPU_TSAN ? 20 : SEEDS), 0);
}

struct trace {
	unsigned *order, *n;
};

GNET_KERNEL(trace_kernel, struct trace, a)
{
	unsigned i;

	for (i = 0; i < 4; i++)
		a.order[atomicAdd(a.n, 1u)] = threadIdx.x;
}

static void record(uint64_t seed, unsigned order[4 * THREADS])
{
	struct platform_dev *d = test_open(1, seed);
	unsigned n = 0;
	struct trace a = { order, &n };

	assert_int_equal(test_run(d, trace_kernel, 1, THREADS, a), 0);
	assert_int_equal(n, 4 * THREADS);
	platform_cpu.close(d);
}

static void a_seed_gives_the_same_order_each_time(void **state)
{
	static unsigned a[4 * THREADS], b[4 * THREADS], c[4 * THREADS];

	(void)state;
	record(42, a);
	record(42, b);
	assert_memory_equal(a, b, sizeof(a));
	record(43, c);
	assert_memory_not_equal(a, c, sizeof(a));
	record(0, b);
	record(0, c);
	assert_memory_equal(b, c, sizeof(b));
}

struct votes {
	unsigned *wrong;
};

GNET_KERNEL(votes_kernel, struct votes, a)
{
	unsigned t = threadIdx.x, n = blockDim.x, turn;

	for (turn = 0; turn < n; turn++) {
		int bad = __syncthreads_count(t <= turn) != (int)turn + 1;

		bad |= __syncthreads_or(t == turn) != 1;
		bad |= __syncthreads_or(t == n) != 0;
		bad |= __syncthreads_and(t < n) != 1;
		bad |= __syncthreads_and(t != turn) != 0;
		if (bad)
			atomicAdd(a.wrong, 1u);
	}
}

static void barriers_count_and_combine(void **state)
{
	unsigned wrong = 0, threads;
	struct votes a = { &wrong };
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 4; seed++) {
		struct platform_dev *d = test_open(2, seed);

		for (threads = 1; threads <= 100; threads += 33)
			assert_int_equal(test_run(d, votes_kernel, 2, threads, a), 0);
		platform_cpu.close(d);
	}
	assert_int_equal(wrong, 0);
}

/* Thread t passes t barriers and ends; the others go on without it. */
GNET_KERNEL(leave_kernel, struct votes, a)
{
	unsigned i;

	for (i = 0; i < threadIdx.x; i++)
		if (__syncthreads_count(1) != (int)(blockDim.x - i - 1))
			atomicAdd(a.wrong, 1u);
}

static void threads_that_have_ended_do_not_count(void **state)
{
	unsigned wrong = 0;
	struct votes a = { &wrong };
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 4; seed++) {
		struct platform_dev *d = test_open(2, seed);

		assert_int_equal(test_run(d, leave_kernel, 3, 70, a), 0);
		platform_cpu.close(d);
	}
	assert_int_equal(wrong, 0);
}

struct fenced {
	unsigned *data, *flag, *wrong;
};

/* Data, fence, flag from one block to the other, and the classic test that two stores are not both missed. */
GNET_KERNEL(fence_kernel, struct fenced, a)
{
	unsigned me = blockIdx.x, i;

	for (i = 1; i <= 200; i++) {
		if (me == 0) {
			*a.data = i;
			__threadfence();
			atomicExch(a.flag, i);
			while (atomicAdd(a.flag, 0u) == i) {
			}
			__threadfence();
		} else {
			while (atomicAdd(a.flag, 0u) != i) {
			}
			__threadfence();
			if (*a.data != i)
				atomicAdd(a.wrong, 1u);
			__threadfence_system();
			atomicExch(a.flag, 0u);
		}
	}
}

static void fences_order_plain_memory(void **state)
{
	struct platform_dev *d = test_open(2, 3);
	unsigned data = 0, flag = 0, wrong = 0;
	struct fenced a = { &data, &flag, &wrong };

	(void)state;
	assert_int_equal(test_run(d, fence_kernel, 2, 1, a), 0);
	assert_int_equal(wrong, 0);
	platform_cpu.close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_missing_barrier_shows_under_some_seed),
		cmocka_unit_test(with_the_barrier_no_seed_goes_wrong),
		cmocka_unit_test(a_seed_gives_the_same_order_each_time),
		cmocka_unit_test(barriers_count_and_combine),
		cmocka_unit_test(threads_that_have_ended_do_not_count),
		cmocka_unit_test(fences_order_plain_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
