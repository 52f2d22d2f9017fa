/* SPDX-License-Identifier: BSD-3-Clause */
/* Mistakes with warp operations and barriers end the kernel with an error that names them; nothing hangs. What the
 * operations compute is tested on every device: tests/device/vocab_warp.c. */
#include <unistd.h>

#include "cpu_test.h"

struct mistake {
	int which;
	unsigned *after; /* threads that went on */
};

enum { ENDED_LANE, ENDS_LATER, NOT_ITSELF, MASKS_DIFFER, BARRIER_AND_WARP, NONE };

GNET_KERNEL(mistake_kernel, struct mistake, a)
{
	unsigned t = threadIdx.x;

	switch (a.which) {
	case ENDED_LANE: /* lane 0 ends first in the fixed order */
		if (t == 0)
			return;
		__syncwarp();
		break;
	case ENDS_LATER: /* lane 31 ends while the others wait for it */
		if (t == 31)
			return;
		__ballot_sync(0xffffffffu, 1);
		break;
	case NOT_ITSELF:
		__shfl_sync(2u, 1, 1);
		break;
	case MASKS_DIFFER:
		__syncwarp(t % 2 ? 0xffffffffu : 0x7fffffffu);
		break;
	case BARRIER_AND_WARP:
		if (t < 16)
			__syncthreads();
		else
			__syncwarp();
		break;
	default: /* lanes that the block does not have are no mistake */
		__syncwarp();
	}
	atomicAdd(a.after, 1u);
}

static void expect(int which, unsigned threads, int err, int goes_on, const char *text)
{
	struct platform_dev *d = test_open(1, 0);
	unsigned after = 0;
	struct mistake a = { which, &after };

	assert_int_equal(test_run(d, mistake_kernel, 1, threads, a), err);
	if (text)
		assert_non_null(strstr(log_last(), text));
	if (goes_on)
		assert_int_equal(after, goes_on);
	/* The device is as good as new. */
	a.which = NONE;
	assert_int_equal(test_run(d, mistake_kernel, 4, 40, a), 0);
	platform_cpu.close(d);
}

static void a_lane_that_has_ended_is_reported(void **state)
{
	(void)state;
	expect(ENDED_LANE, 32, -EINVAL, 31, "lanes 0x00000001 of it have ended");
}

static void a_lane_that_ends_while_others_wait_is_reported(void **state)
{
	(void)state;
	expect(ENDS_LATER, 32, -EINVAL, 31, "thread 31 has ended");
}

static void a_mask_without_its_caller_is_reported(void **state)
{
	(void)state;
	expect(NOT_ITSELF, 1, -EINVAL, 1, "without itself");
}

static void masks_that_never_meet_are_reported(void **state)
{
	(void)state;
	expect(MASKS_DIFFER, 64, -EDEADLK, 0, "stuck");
}

static void a_barrier_against_a_warp_operation_is_reported(void **state)
{
	(void)state;
	expect(BARRIER_AND_WARP, 32, -EDEADLK, 0, "16 threads are at __syncthreads");
}

static void lanes_that_a_block_does_not_have_are_no_mistake(void **state)
{
	(void)state;
	expect(NONE, 5, 0, 5, NULL);
	expect(NONE, 33, 0, 33, NULL);
}

GNET_KERNEL(one_of_many_kernel, struct mistake, a)
{
	if (blockIdx.x == 3 && threadIdx.x == 0)
		__syncwarp(3u);
	__syncthreads();
	atomicAdd(a.after, 1u);
}

/* A block that is stuck ends its kernel: blocks that have not begun do not. */
static void after_a_stuck_block_no_other_begins(void **state)
{
	struct platform_dev *d = test_open(1, 0);
	unsigned after = 0;
	struct mistake a = { 0, &after };

	(void)state;
	assert_int_equal(test_run(d, one_of_many_kernel, 10, 2, a), -EDEADLK);
	assert_non_null(strstr(log_last(), "block (3,0,0)"));
	assert_int_equal(after, 6);
	/* The next who asks is told, too. */
	assert_int_equal(platform_cpu.sync(d, 0), -EDEADLK);
	platform_cpu.close(d);
}

static void outside_of_kernels_they_are_harmless(void **state)
{
	unsigned word = 5;

	(void)state;
	assert_int_equal(threadIdx.x + blockIdx.y + threadIdx.z, 0);
	assert_int_equal(blockDim.x * gridDim.z, 1);
	__syncthreads();
	__syncwarp();
	gpunet_cpu_yield();
	__threadfence();
	__threadfence_block();
	__nanosleep(1000);
	assert_int_equal(__syncthreads_count(1), 1);
	assert_int_equal(__syncthreads_and(0), 0);
	assert_int_equal(__shfl_xor_sync(0xffffffffu, 17, 1), 17);
	assert_int_equal(__ballot_sync(1u, 1), 1);
	assert_int_equal(__all_sync(1u, 0), 0);
	assert_int_equal(__any_sync(1u, 2), 1);
	assert_int_equal(atomicAdd(&word, 3u), 5);
	assert_true(gnet_time_ns() <= (uint64_t)clock64());
	gpunet_cpu_kick(NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lane_that_has_ended_is_reported),
		cmocka_unit_test(a_lane_that_ends_while_others_wait_is_reported),
		cmocka_unit_test(a_mask_without_its_caller_is_reported),
		cmocka_unit_test(masks_that_never_meet_are_reported),
		cmocka_unit_test(a_barrier_against_a_warp_operation_is_reported),
		cmocka_unit_test(lanes_that_a_block_does_not_have_are_no_mistake),
		cmocka_unit_test(after_a_stuck_block_no_other_begins),
		cmocka_unit_test(outside_of_kernels_they_are_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
