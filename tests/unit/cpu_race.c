/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What TSan says of kernels: barriers order, and what no barrier orders is reported although one thread runs it all. Each
 * case is a run of this program by itself; its exit code tells whether a race was reported. Skipped without TSan.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "cpu_test.h"

#define RACE 66 /* TSan's exit code */

struct race {
	int which;
	unsigned *word; /* [64] */
	unsigned *flag;
	unsigned *present;
};

enum {
	WITH_BARRIER,
	WITHOUT_BARRIER,
	NEXT_ROUND, /* a barrier is missing between a read and the next write */
	WITH_SYNCWARP,
	WITHOUT_SYNCWARP, /* a shuffle orders nothing */
	SYNCWARP_OF_OTHERS,
	WITH_FENCE,
	WITHOUT_FENCE,
	WITH_BLOCK_FENCE,
	FENCE_BETWEEN_BLOCKS,
	BLOCK_FENCE_BETWEEN_BLOCKS,
	SHARED_OF_BLOCK_BEFORE,
	GLOBAL_OF_OTHER_BLOCK,
	KERNEL_AFTER_KERNEL,
	CASES
};

static const char reported[CASES] = {
	[WITHOUT_BARRIER] = 1,      [NEXT_ROUND] = 1,    [WITHOUT_SYNCWARP] = 1,
	[SYNCWARP_OF_OTHERS] = 1,   [WITHOUT_FENCE] = 1, [BLOCK_FENCE_BETWEEN_BLOCKS] = 1,
	[GLOBAL_OF_OTHER_BLOCK] = 1
};

GNET_DEV void exchange_words(unsigned *word, int which)
{
	unsigned t = threadIdx.x;

	word[t] = t;
	if (which != WITHOUT_BARRIER)
		__syncthreads();
	word[32 + t] = word[31 - t];
	if (which == NEXT_ROUND)
		word[t] = 0;
	__syncthreads();
	word[t] = word[63 - t];
}

GNET_DEV void exchange_in_warp(unsigned *word, int which)
{
	unsigned t = threadIdx.x;

	word[t] = t;
	if (which == WITH_SYNCWARP)
		__syncwarp();
	else if (which == WITHOUT_SYNCWARP)
		__shfl_xor_sync(0xffffffffu, t, 1);
	else
		__syncwarp(t < 16 ? 0xffffu : 0xffff0000u);
	word[32 + t] = word[31 - t];
}

/*
 * Blocks that run one after the other on one worker are ordered by it. Once each block has been seen by all others they
 * run on workers of their own. Atomics order nothing here, so this hides no race.
 */
GNET_DEV void meet(unsigned *present)
{
	atomicAdd(present, 1u);
	while (atomicAdd(present, 0u) < gridDim.x * blockDim.x) {
	}
}

GNET_DEV void pass_on(unsigned *word, unsigned *flag, int which)
{
	int block = which == WITH_BLOCK_FENCE || which == BLOCK_FENCE_BETWEEN_BLOCKS;
	int device = which == WITH_FENCE || which == FENCE_BETWEEN_BLOCKS;

	if (blockIdx.x == 0 && threadIdx.x == 0) {
		word[0] = 7;
		if (device)
			__threadfence();
		else if (block)
			__threadfence_block();
		atomicExch(flag, 1u);
	} else if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 1) {
		while (!atomicAdd(flag, 0u)) {
		}
		if (device)
			__threadfence();
		else if (block)
			__threadfence_block();
		word[1] = word[0];
	}
}

GNET_KERNEL(race_kernel, struct race, a)
{
	__shared__ unsigned shared[64];

	switch (a.which) {
	case WITH_BARRIER:
	case WITHOUT_BARRIER:
	case NEXT_ROUND:
		exchange_words(shared, a.which);
		break;
	case WITH_SYNCWARP:
	case WITHOUT_SYNCWARP:
	case SYNCWARP_OF_OTHERS:
		exchange_in_warp(shared, a.which);
		break;
	case WITH_FENCE:
	case WITHOUT_FENCE:
	case WITH_BLOCK_FENCE:
	case FENCE_BETWEEN_BLOCKS:
	case BLOCK_FENCE_BETWEEN_BLOCKS:
		meet(a.present);
		pass_on(a.word, a.flag, a.which);
		break;
	case SHARED_OF_BLOCK_BEFORE:
		shared[(threadIdx.x + blockIdx.x) % 32] = threadIdx.x;
		break;
	case GLOBAL_OF_OTHER_BLOCK:
		meet(a.present);
		a.word[threadIdx.x] = threadIdx.x;
		break;
	default:
		a.word[(threadIdx.x + blockIdx.x) % 32] = threadIdx.x;
	}
}

static unsigned blocks_of(int which)
{
	switch (which) {
	case SHARED_OF_BLOCK_BEFORE:
		return 8;
	case FENCE_BETWEEN_BLOCKS:
	case BLOCK_FENCE_BETWEEN_BLOCKS:
	case GLOBAL_OF_OTHER_BLOCK:
		return 2;
	default:
		return 1;
	}
}

/* In the child. */
static int run_case(int which)
{
	struct platform_dev *d = test_open(2, 0);
	static unsigned word[64], flag, present;
	struct race a = { which, word, &flag, &present };
	unsigned blocks = blocks_of(which);
	int err = test_run(d, race_kernel, blocks, 32, a);

	if (!err && which == KERNEL_AFTER_KERNEL)
		err = test_run(d, race_kernel, blocks, 32, a);
	word[0]++; /* after sync it is the host's */
	platform_cpu.close(d);
	return err ? 1 : 0;
}

static int run_child(int which)
{
	char number[8];
	int status;
	pid_t pid;

	snprintf(number, sizeof(number), "%d", which);
	pid = fork();
	if (pid == 0) {
		setenv("TSAN_OPTIONS", "exitcode=66:halt_on_error=1", 1);
		if (!freopen("/dev/null", "w", stderr))
			_exit(3);
		execl("/proc/self/exe", "cpu_race", number, (char *)NULL);
		_exit(2);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void races_are_reported_and_order_is_seen(void **state)
{
	int which;

	(void)state;
	for (which = 0; which < CASES; which++) {
		int code = run_child(which);

		if (code != (reported[which] ? RACE : 0))
			fail_msg("case %d: exit code %d", which, code);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(races_are_reported_and_order_is_seen),
	};

	if (argc > 1)
		return run_case(atoi(argv[1]));
	if (!CPU_TSAN) {
		puts("skipped: not built with ThreadSanitizer");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
