/* SPDX-License-Identifier: BSD-3-Clause */
/* Launches: geometry, arguments, shared memory, queues. */
#include "cpu_test.h"

struct cover {
	unsigned char *seen; /* [blocks][threads] */
	unsigned *wrong;
};

/* Each thread marks its linear place; that the sum of marks is right says that no two have the same place. */
GNET_KERNEL(cover_kernel, struct cover, a)
{
	unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
	unsigned n = blockDim.x * blockDim.y * blockDim.z;

	if (threadIdx.x >= blockDim.x || threadIdx.y >= blockDim.y || threadIdx.z >= blockDim.z ||
	    blockIdx.x >= gridDim.x || blockIdx.y >= gridDim.y || blockIdx.z >= gridDim.z)
		atomicAdd(a.wrong, 1u);
	else
		a.seen[b * n + t]++;
}

static void every_thread_of_every_block_runs_once(void **state)
{
	static const struct platform_grid grids[] = {
		{ { 1, 1, 1 }, { 1, 1, 1 }, 0 },   { { 7, 1, 1 }, { 31, 1, 1 }, 0 },
		{ { 1, 9, 1 }, { 1, 33, 1 }, 0 },  { { 2, 3, 4 }, { 4, 3, 2 }, 0 },
		{ { 1, 1, 5 }, { 1, 1, 64 }, 0 },  { { 2, 1, 1 }, { 1024, 1, 1 }, 0 },
		{ { 3, 2, 1 }, { 16, 16, 1 }, 0 },
	};
	struct platform_dev *d = test_open(4, 0);
	unsigned i, k, wrong = 0;

	(void)state;
	for (i = 0; i < sizeof(grids) / sizeof(grids[0]); i++) {
		const struct platform_grid *g = &grids[i];
		unsigned n = g->grid[0] * g->grid[1] * g->grid[2] * g->block[0] * g->block[1] *
			     g->block[2];
		struct cover a = { test_calloc(n, 1), &wrong };

		assert_int_equal(test_run_entry(d, cover_kernel_entry, *g, &a, sizeof(a)), 0);
		for (k = 0; k < n; k++)
			assert_int_equal(a.seen[k], 1);
		test_free(a.seen);
	}
	assert_int_equal(wrong, 0);
	platform_cpu.close(d);
}

struct hold {
	unsigned *started, *go;
	unsigned *value, *out;
};

GNET_KERNEL(hold_kernel, struct hold, a)
{
	atomicAdd(a.started, 1u);
	while (!atomicAdd(a.go, 0u))
		__nanosleep(100000);
	if (a.out)
		atomicAdd(a.out, *a.value);
}

static void launch_does_not_wait_and_sync_has_a_time_limit(void **state)
{
	struct platform_dev *d = test_open(0, 0);
	struct platform_grid g = test_grid(2, 3);
	unsigned started = 0, go = 0;
	struct hold a = { &started, &go, NULL, NULL };

	(void)state;
	assert_int_equal(platform_cpu.launch(d, hold_kernel_entry, &g, &a, sizeof(a)), 0);
	assert_int_equal(platform_cpu.sync(d, 0), -ETIMEDOUT);
	assert_int_equal(platform_cpu.sync(d, SECOND / 50), -ETIMEDOUT);
	__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(platform_cpu.sync(d, UINT64_MAX), 0);
	assert_int_equal(started, 6);
	platform_cpu.close(d);
}

struct big_args {
	unsigned word[1000];
	unsigned *sum;
};

GNET_KERNEL(sum_kernel, struct big_args, a)
{
	unsigned i, sum = 0;

	for (i = 0; i < 1000; i++)
		sum += a.word[i];
	/* The struct is each thread's own. */
	memset(a.word, 0xff, sizeof(a.word));
	__syncthreads();
	atomicAdd(a.sum, sum);
}

static void arguments_are_copied_at_the_launch(void **state)
{
	struct platform_dev *d = test_open(0, 0);
	struct platform_grid g = test_grid(3, 33);
	struct big_args a;
	unsigned i, sum = 0;

	(void)state;
	for (i = 0; i < 1000; i++)
		a.word[i] = i;
	a.sum = &sum;
	assert_int_equal(platform_cpu.launch(d, sum_kernel_entry, &g, &a, sizeof(a)), 0);
	memset(&a, 0xee, sizeof(a));
	assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	assert_int_equal(sum, 99 * 499500);
	platform_cpu.close(d);
}

struct order {
	unsigned *now, *most, *next;
	unsigned number;
	unsigned *wrong;
};

/*
 * Counts how many blocks run at once, and that all blocks of the kernel before have ended. The first three blocks of all wait for each
 * other, or one that is done before another's worker has come to run would leave fewer.
 */
GNET_KERNEL(order_kernel, struct order, a)
{
	unsigned n;

	if (threadIdx.x == 0) {
		n = atomicAdd(a.now, 1u) + 1;
		atomicMax(a.most, n);
		if (atomicAdd(a.next, 1u) / gridDim.x != a.number)
			atomicAdd(a.wrong, 1u);
	}
	while (a.number == 0 && blockIdx.x < 3 && atomicAdd(a.most, 0u) < 3) {
	}
	__nanosleep(1000000);
	__syncthreads();
	if (threadIdx.x == 0)
		atomicSub(a.now, 1u);
}

static void kernels_run_in_turn_and_blocks_up_to_the_limit_at_once(void **state)
{
	struct platform_dev *d = test_open(3, 0);
	struct platform_grid g = test_grid(10, 40);
	unsigned now = 0, most = 0, next = 0, wrong = 0, i;

	(void)state;
	for (i = 0; i < 5; i++) {
		struct order a = { &now, &most, &next, i, &wrong };

		assert_int_equal(platform_cpu.launch(d, order_kernel_entry, &g, &a, sizeof(a)), 0);
	}
	assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	assert_int_equal(next, 50);
	assert_int_equal(wrong, 0);
	assert_int_equal(now, 0);
	assert_int_equal(most, 3);
	platform_cpu.close(d);
}

struct meet {
	unsigned *count;
	unsigned *wrong;
};

/* Ends only if all blocks are resident together. */
GNET_KERNEL(meet_kernel, struct meet, a)
{
	if (threadIdx.x == 0)
		atomicAdd(a.count, 1u);
	while (atomicAdd(a.count, 0u) < gridDim.x) {
	}
}

static void blocks_within_the_limit_are_resident_together(void **state)
{
	struct platform_dev *d = test_open(20, 0);
	unsigned count = 0;
	struct meet a = { &count, NULL };

	(void)state;
	assert_int_equal(test_run(d, meet_kernel, 20, 2, a), 0);
	assert_int_equal(count, 20);
	platform_cpu.close(d);
}

struct shared {
	unsigned *wrong;
};

/* Static and dynamic shared memory: one a block, whole while others run on theirs. */
GNET_KERNEL(shared_kernel, struct shared, a)
{
	__shared__ unsigned mine[64];
	GNET_DYN_SHARED(unsigned, dynamic);
	unsigned t = threadIdx.x, turn, other = 63 - t;

	for (turn = 0; turn < 20; turn++) {
		unsigned v = blockIdx.x * 1000003u + turn * 64u;

		mine[t] = v + t;
		dynamic[t] = v + t;
		dynamic[t + 64] = v + t + 64;
		__syncthreads();
		if (mine[other] != v + other || dynamic[other] != v + other ||
		    dynamic[other + 64] != v + other + 64)
			atomicAdd(a.wrong, 1u);
		__syncthreads();
	}
}

static void shared_memory_is_one_a_block(void **state)
{
	struct platform_dev *d = test_open(6, 77);
	struct platform_grid g = { { 30, 1, 1 }, { 64, 1, 1 }, 512 };
	unsigned wrong = 0;
	struct shared a = { &wrong };

	(void)state;
	assert_int_equal(test_run_entry(d, shared_kernel_entry, g, &a, sizeof(a)), 0);
	assert_int_equal(wrong, 0);
	platform_cpu.close(d);
}

GNET_KERNEL(nothing_kernel, struct shared, a)
{
	(void)a;
}

static void a_geometry_beyond_the_limits_is_refused(void **state)
{
	static const struct platform_grid bad[] = {
		{ { 0, 1, 1 }, { 1, 1, 1 }, 0 },           { { 1, 1, 1 }, { 1, 0, 1 }, 0 },
		{ { 1, 1, 1 }, { 1025, 1, 1 }, 0 },        { { 1, 1, 1 }, { 33, 32, 1 }, 0 },
		{ { 1, 1, 1 }, { 1, 1, 65 }, 0 },          { { 1, 65536, 1 }, { 1, 1, 1 }, 0 },
		{ { 0x80000000u, 1, 1 }, { 1, 1, 1 }, 0 }, { { 1, 1, 1 }, { 1, 1, 1 }, 1u << 20 },
	};
	struct platform_dev *d = test_open(0, 0);
	struct platform_grid good = test_grid(1, 1);
	static char big[CPU_MAX_ARGS + 1];
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(platform_cpu.launch(d, nothing_kernel_entry, &bad[i], big, 8),
				 -EINVAL);
		assert_int_not_equal(strlen(log_last()), 0);
	}
	assert_int_equal(platform_cpu.launch(d, nothing_kernel_entry, &good, big, sizeof(big)),
			 -EINVAL);
	assert_int_equal(platform_cpu.sync(d, 0), 0);
	platform_cpu.close(d);
}

static void two_devices_do_not_wait_for_each_other(void **state)
{
	struct platform_dev *d1 = test_open(2, 0), *d2 = test_open(2, 5);
	struct platform_grid g = test_grid(2, 32);
	unsigned started = 0, go = 0, wrong = 0;
	struct hold h = { &started, &go, NULL, NULL };
	struct shared s = { &wrong };
	unsigned i;

	(void)state;
	assert_int_equal(platform_cpu.launch(d1, hold_kernel_entry, &g, &h, sizeof(h)), 0);
	for (i = 0; i < 20; i++)
		assert_int_equal(test_run(d2, nothing_kernel, 5, 32, s), 0);
	assert_int_equal(platform_cpu.sync(d1, 0), -ETIMEDOUT);
	platform_cpu.close(d2);
	__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(platform_cpu.sync(d1, ENOUGH), 0);
	platform_cpu.close(d1);
}

/* Threads beyond what may live at once: blocks queue, and each runs. */
static void more_fibers_than_the_process_may_have(void **state)
{
	struct platform_dev *d = test_open(64, 0);
	struct platform_info info;
	unsigned n = 40, wrong = 0, i;
	struct cover a = { test_calloc(n * 1024, 1), &wrong };

	(void)state;
	assert_int_equal(platform_cpu.info(d, &info), 0);
	assert_string_equal(info.name, "CPU");
	assert_int_equal(info.max_resident_blocks, 64);
	assert_int_equal(test_run(d, cover_kernel, CPU_TSAN ? 6 : n, 1024, a), 0);
	for (i = 0; i < (CPU_TSAN ? 6 : n) * 1024; i++)
		assert_int_equal(a.seen[i], 1);
	test_free(a.seen);
	platform_cpu.close(d);
}

static void memory_is_zeroed_aligned_and_bounded(void **state)
{
	struct platform_dev *d = test_open(0, 0);
	struct platform_mem h, m;
	unsigned char byte[64], got[64];
	unsigned i;

	(void)state;
	assert_int_equal(platform_cpu.host_alloc(d, 5000, true, &h), 0);
	assert_ptr_equal(h.host, h.dev);
	assert_int_equal((uintptr_t)h.host % 4096, 0);
	assert_int_equal(h.size, 5000);
	for (i = 0; i < 5000; i++)
		assert_int_equal(((char *)h.host)[i], 0);
	assert_int_equal(platform_cpu.dev_alloc(d, 64, &m), 0);
	assert_null(m.host);
	for (i = 0; i < 64; i++)
		byte[i] = (unsigned char)(i + 1);
	assert_int_equal(platform_cpu.dev_write(d, &m, 0, byte, 64), 0);
	assert_int_equal(platform_cpu.dev_read(d, &m, 16, got, 48), 0);
	assert_memory_equal(got, byte + 16, 48);
	assert_int_equal(platform_cpu.dev_write(d, &m, 1, byte, 64), -EINVAL);
	assert_int_equal(platform_cpu.dev_read(d, &m, 65, got, 0), -EINVAL);
	assert_int_equal(platform_cpu.dev_read(d, &m, 2, got, SIZE_MAX), -EINVAL);
	assert_int_equal(platform_cpu.host_alloc(d, 0, true, &h), -EINVAL);
	platform_cpu.dev_free(d, &m);
	platform_cpu.host_free(d, &h);
	assert_null(h.host);
	platform_cpu.close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_thread_of_every_block_runs_once),
		cmocka_unit_test(launch_does_not_wait_and_sync_has_a_time_limit),
		cmocka_unit_test(arguments_are_copied_at_the_launch),
		cmocka_unit_test(kernels_run_in_turn_and_blocks_up_to_the_limit_at_once),
		cmocka_unit_test(blocks_within_the_limit_are_resident_together),
		cmocka_unit_test(shared_memory_is_one_a_block),
		cmocka_unit_test(a_geometry_beyond_the_limits_is_refused),
		cmocka_unit_test(two_devices_do_not_wait_for_each_other),
		cmocka_unit_test(more_fibers_than_the_process_may_have),
		cmocka_unit_test(memory_is_zeroed_aligned_and_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
