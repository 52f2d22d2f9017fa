/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that is made by a part of a block ends the kernel with an error that names it; what is legal stays so. */
#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#include "cpu_test.h"

enum scene {
	ONE_CALLS_AND_THE_REST_RETURN,
	ONE_CALLS_AND_THE_REST_WAIT,
	THE_REST_CALLS_AND_ONE_WAITS,
	TWO_CALLS,
	HALF_HAS_ENDED,
	ONE_CALL_MORE,
	ONE_ENDS_WITHOUT_IT,
	AT_A_WARP_OPERATION,
	BAD, /* all before it end the kernel, those behind it do not */
	ALL_CALL,
	ENDED_AND_SYNCTHREADS,
	TWO_SYNCTHREADS,
	SCOPES_OF_A_PART,
	SCENES
};

struct part {
	gnet_t *net;
	enum scene scene;
	int fd; /* of no socket: a call with it has its barriers all the same */
};

GNET_DEV void bad_scene(gnet_t *net, enum scene scene, int fd, unsigned t)
{
	char byte = 0;

	switch (scene) {
	case ONE_CALLS_AND_THE_REST_RETURN:
		if (t == 0)
			gsocket(net, GNET_AF_INET, GNET_SOCK_STREAM, 0);
		break;
	case ONE_CALLS_AND_THE_REST_WAIT:
		if (t == 0)
			gsend(net, fd, &byte, 1, 0);
		__syncthreads();
		break;
	case THE_REST_CALLS_AND_ONE_WAITS:
		if (t != 3)
			gclose(net, fd);
		__syncthreads();
		break;
	case TWO_CALLS:
		if (t < 7)
			grecv(net, fd, &byte, 1, 0);
		else
			gaccept(net, fd, NULL, NULL);
		break;
	case HALF_HAS_ENDED:
		if (t >= blockDim.x / 2)
			return;
		__syncthreads();
		gpoll(net, NULL, 0, 0);
		break;
	case ONE_CALL_MORE:
		gclose(net, fd);
		if (t == 5)
			gclose(net, fd);
		break;
	case ONE_ENDS_WITHOUT_IT:
		if (t != 2)
			gsend(net, fd, &byte, 1, 0);
		break;
	default: /* AT_A_WARP_OPERATION */
		if (t == 0 || t >= 32)
			gsend(net, fd, &byte, 1, 0);
		else
			__syncwarp();
		break;
	}
}

GNET_DEV void good_scene(gnet_t *net, enum scene scene, int fd, unsigned t)
{
	char byte = 0;

	switch (scene) {
	case ALL_CALL:
		gsend(net, fd, &byte, 1, 0);
		gclose(net, gsocket(net, GNET_AF_INET, GNET_SOCK_STREAM, 0));
		__syncthreads();
		gpoll(net, NULL, 0, 0);
		break;
	case ENDED_AND_SYNCTHREADS:
		if (t % 3 == 0)
			return;
		__syncthreads();
		if (t % 3 == 1)
			return;
		__syncthreads();
		break;
	case TWO_SYNCTHREADS: /* of one number: hardware lets them meet, and programs that give warps different tasks use it */
		if (t < 32)
			__syncthreads();
		else
			__syncthreads();
		break;
	default: /* SCOPES_OF_A_PART */
		if (t == 0)
			gsend_thread(net, fd, &byte, 1, 0);
		if (t >= 32)
			gsend_warp(net, fd, &byte, 1, 0);
		__syncthreads();
		break;
	}
}

GNET_KERNEL(part_kernel, struct part, a)
{
	if (a.scene < BAD)
		bad_scene(a.net, a.scene, a.fd, threadIdx.x);
	else
		good_scene(a.net, a.scene, a.fd, threadIdx.x);
}

static const char *const words[] = {
	[ONE_CALLS_AND_THE_REST_RETURN] =
		"block (0,0,0): a part of the block calls gsocket: thread 0 is in it, thread ",
	[ONE_CALLS_AND_THE_REST_WAIT] =
		"a part of the block calls gsend: thread 0 is in it, thread ",
	[THE_REST_CALLS_AND_ONE_WAITS] = "thread 3 is at __syncthreads;",
	[TWO_CALLS] = "a part of the block calls g",
	[HALF_HAS_ENDED] = "a part of the block calls gpoll: thread ",
	[ONE_CALL_MORE] = "a part of the block calls gclose: thread 5 is in it, thread ",
	[ONE_ENDS_WITHOUT_IT] = "a part of the block calls gsend: thread ",
	[AT_A_WARP_OPERATION] = "stuck: 33 threads are at gsend, 31 at warp operations",
};

/* What the kernel's end and its words are, with one order of switches. */
static void play(enum scene scene, uint64_t seed)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct gpunet_grid grid = { 1, 1, 1, 64, 1, 1, 0 };
	struct part a = { NULL, scene, -1 };
	gpunet_t *g = NULL;
	int rc;

	o.device = "cpu";
	o.cpu_seed = seed;
	assert_int_equal(gpunet_open(&g, &o), 0);
	a.net = gpunet_device(g);
	assert_int_equal(GPUNET_LAUNCH(g, part_kernel, grid, a), 0);
	rc = gpunet_sync(g, 30000);
	printf("scene %d, seed %u: %d %s\n", scene, (unsigned)seed, rc,
	       rc ? gpunet_last_error() : "");
	assert_int_equal(rc, scene < BAD ? -EDEADLK : 0);
	if (scene < BAD)
		assert_non_null(strstr(gpunet_last_error(), words[scene]));
	/* The network is whole: another kernel runs on it, and its end is no error. */
	a.scene = ALL_CALL;
	assert_int_equal(GPUNET_LAUNCH(g, part_kernel, grid, a), 0);
	assert_int_equal(gpunet_sync(g, 30000), 0);
	assert_int_equal(gpunet_close(g, 10000), 0);
}

static void play_with_seeds(enum scene from, enum scene to)
{
	enum scene scene;
	uint64_t seed;

	for (scene = from; scene < to; scene++)
		for (seed = 0; seed < 6; seed++)
			play(scene, seed);
}

struct others {
	gnet_t *net;
	uint64_t *fd; /* a block's socket */
	int64_t *rc;  /* what its call returned */
	int fails;
};

enum waits_in { FAILS, GACCEPT, GPOLL, GACCEPT_TWICE, NO_WAIT, NANOSLEEP, WAITERS };

/* Is a block in a wait that its end will be reported of? */
GNET_DEV int is_waiting(gnet_t *net, const uint64_t *fd, unsigned block)
{
	int at = (int)gnet_dev_load(&fd[block]);

	if (block == GPOLL)
		return gnet_sys_load(&net->told[block].what) != 0;
	return at &&
	       (block >= NO_WAIT || gnet_sys_load(&net->bus[GNET_FD_SLOT(at)].waits[GNET_WAIT_RX]));
}

/* A block in each kind of wait, and one that fails when all are there. */
GNET_KERNEL(others_kernel, struct others, a)
{
	int fd = gsocket(a.net, GNET_AF_INET, GNET_SOCK_STREAM, 0);
	int64_t rc = 0;
	unsigned n;

	glisten(a.net, fd, 1);
	if (threadIdx.x == 0)
		gnet_dev_store(&a.fd[blockIdx.x], (uint64_t)fd);
	switch ((enum waits_in)blockIdx.x) {
	case FAILS:
		for (n = GACCEPT; n < WAITERS; n += is_waiting(a.net, a.fd, n))
			__nanosleep(1000000);
		__nanosleep(1000000);
		if (a.fails == EINVAL)
			__syncwarp(threadIdx.x == 0 ? ~1u : ~0u);
		else if (threadIdx.x == 0)
			gclose(a.net, fd);
		return;
	case GPOLL:
		rc = gpoll(a.net, NULL, 0, -1);
		break;
	case NO_WAIT:
		do
			rc = gaccept4(a.net, fd, NULL, NULL, GNET_MSG_DONTWAIT);
		while (rc == -EAGAIN);
		break;
	case NANOSLEEP:
		while (a.fails)
			__nanosleep(1000000);
		break;
	case GACCEPT_TWICE:
		gaccept(a.net, fd, NULL, NULL);
		/* fall through */
	default:
		rc = gaccept(a.net, fd, NULL, NULL);
		break;
	}
	if (threadIdx.x == 0)
		a.rc[blockIdx.x] = rc;
}

/* What a failed kernel has left can be used: nobody holds its sockets. */
GNET_KERNEL(close_kernel, struct others, a)
{
	int rc = gclose(a.net, (int)a.fd[blockIdx.x]);

	if (threadIdx.x == 0)
		a.rc[blockIdx.x] = rc;
}

static int is_about_failure(const struct gpunet_report *r, void *arg)
{
	*(int *)arg += strstr(r->text, "its kernel has failed") != NULL;
	return 0;
}

static void play_others(int fails, uint64_t seed)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct gpunet_grid grid = { WAITERS, 1, 1, 64, 1, 1, 0 };
	uint64_t fd[WAITERS] = { 0 };
	int reports = 0, i;
	int64_t rc[WAITERS] = { 0 };
	struct others a = { NULL, fd, rc, fails };
	gpunet_t *g = NULL;

	o.device = "cpu";
	o.cpu_seed = seed;
	assert_int_equal(gpunet_open(&g, &o), 0);
	a.net = gpunet_device(g);
	assert_int_equal(GPUNET_LAUNCH(g, others_kernel, grid, a), 0);
	assert_int_equal(gpunet_sync(g, 30000), -fails);
	for (i = GACCEPT; i < NANOSLEEP; i++)
		assert_int_equal(rc[i], -ECANCELED);
	assert_int_equal(GPUNET_LAUNCH(g, close_kernel, grid, a), 0);
	assert_int_equal(gpunet_sync(g, 30000), 0);
	for (i = FAILS; i < WAITERS; i++)
		assert_int_equal(rc[i], 0);
	gpunet_reports(g, is_about_failure, &reports);
	assert_true(reports >= NO_WAIT - GACCEPT);
	assert_int_equal(gpunet_close(g, 10000), 0);
}

static void a_fault_of_one_block_ends_the_waits_of_the_others(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 4; seed++) {
		play_others(EDEADLK, seed);
		play_others(EINVAL, seed);
	}
}

#define BLOCKS 30

/* All blocks make commands; the first one fails meanwhile. */
GNET_KERNEL(commands_kernel, struct others, a)
{
	int fd = 0;

	if (blockIdx.x == 0) {
		__nanosleep(3000000);
		__syncwarp(~1u);
		return;
	}
	while (fd >= 0) {
		fd = gsocket(a.net, GNET_AF_INET, GNET_SOCK_STREAM, 0);
		if (fd >= 0)
			gclose(a.net, fd);
	}
}

static void a_command_under_way_when_another_block_fails_is_given_back(void **state)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct gpunet_grid grid = { BLOCKS, 1, 1, 1, 1, 1, 0 };
	struct others a = { NULL, NULL, NULL, EINVAL };
	gpunet_t *g = NULL;
	unsigned i;

	(void)state;
	o.device = "cpu";
	o.calls = 64;
	assert_int_equal(gpunet_open(&g, &o), 0);
	a.net = gpunet_device(g);
	for (i = 0; i < 8; i++) {
		assert_int_equal(GPUNET_LAUNCH(g, commands_kernel, grid, a), 0);
		assert_int_equal(gpunet_sync(g, 10000), -EINVAL);
		assert_int_equal(*a.net->call_map, 0);
	}
	assert_int_equal(gpunet_close(g, 10000), 0);
}

static void a_call_by_a_part_of_a_block_is_named(void **state)
{
	(void)state;
	play_with_seeds(0, BAD);
}

static void what_a_part_of_a_block_may_do_is_no_error(void **state)
{
	(void)state;
	play_with_seeds(BAD + 1, SCENES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_by_a_part_of_a_block_is_named),
		cmocka_unit_test(a_fault_of_one_block_ends_the_waits_of_the_others),
		cmocka_unit_test(a_command_under_way_when_another_block_fails_is_given_back),
		cmocka_unit_test(what_a_part_of_a_block_may_do_is_no_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
