/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpunet_open's options: sizes of the struct, ranges, the environment; what a second network with other
 * options sees; devices that are not there; statistics of every size.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <gpunet/dev/abi/net.h>
#include <gpunet/gpunet.h>

static struct gpunet_options cpu_options(void)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;

	o.device = "cpu";
	return o;
}

/* Opening fails with `rc`, and the error's words contain `word`. */
static void refused(const struct gpunet_options *o, int rc, const char *word)
{
	gpunet_t *g = NULL;

	assert_int_equal(gpunet_open(&g, o), rc);
	assert_null(g);
	if (!strstr(gpunet_last_error(), word))
		fail_msg("\"%s\" is not in \"%s\"", word, gpunet_last_error());
}

static void opens(const struct gpunet_options *o)
{
	gpunet_t *g = NULL;

	if (gpunet_open(&g, o) != 0)
		fail_msg("%s", gpunet_last_error());
	assert_string_equal(gpunet_device_kind(g), "cpu");
	assert_int_equal(gpunet_close(g, 10000), 0);
}

static void struct_sizes(void **state)
{
	struct {
		struct gpunet_options o;
		uint64_t from_the_future;
	} larger = { GPUNET_OPTIONS_INIT, 0 };
	struct gpunet_options o = cpu_options();

	(void)state;
	opens(&o);
	/* An older program knows fewer members: the rest have their defaults. */
	o.size = offsetof(struct gpunet_options, max_sockets);
	o.max_sockets = 1;
	opens(&o);
	o.size = 0;
	refused(&o, -EINVAL, "GPUNET_OPTIONS_INIT");
	o.size = sizeof(size_t);
	refused(&o, -EINVAL, "GPUNET_OPTIONS_INIT");
	larger.o.device = "cpu";
	larger.o.size = sizeof(larger);
	refused(&larger.o, -EINVAL, "newer");
	assert_int_equal(gpunet_open(NULL, &o), -EINVAL);
}

#define REFUSED(member, value)                            \
	do {                                              \
		struct gpunet_options o_ = cpu_options(); \
		o_.member = value;                        \
		refused(&o_, -EINVAL, #member);           \
	} while (0)

#define OPENS(member, value)                              \
	do {                                              \
		struct gpunet_options o_ = cpu_options(); \
		o_.member = value;                        \
		opens(&o_);                               \
	} while (0)

static void ranges(void **state)
{
	(void)state;
	REFUSED(proxy_threads, 65);
	OPENS(proxy_threads, 64);
	REFUSED(spin_us, -2);
	OPENS(spin_us, -1);
	REFUSED(max_sockets, 15);
	REFUSED(max_sockets, 1048576);
	OPENS(max_sockets, 16);
	REFUSED(slab_bytes, (64 << 10) - 1);
	REFUSED(slab_bytes, (size_t)65 << 30);
	REFUSED(slab_bytes, 128 << 10); /* less than a segment of the default size */
	REFUSED(segment_bytes, 8 << 10);
	REFUSED(segment_bytes, 24 << 10);
	OPENS(segment_bytes, 16 << 10);
	REFUSED(queue_entries, 32);
	REFUSED(queue_entries, 100);
	REFUSED(queue_entries, 131072);
	OPENS(queue_entries, 64);
	REFUSED(calls, 63);
	OPENS(calls, 65);
	REFUSED(cpu_blocks, 4097);
	OPENS(cpu_blocks, 1);
	REFUSED(sentinel_us, 9);
	REFUSED(hops, 2);
	OPENS(hops, 1);
}

static void environment(void **state)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;

	(void)state;
	setenv("GPUNET_DEVICE", "cpu", 1);
	opens(NULL);
	opens(&o);
	setenv("GPUNET_DEVICE", "abacus", 1);
	refused(NULL, -EINVAL, "abacus");
	setenv("GPUNET_DEVICE", "cpu", 1);
	setenv("GPUNET_SLAB_BYTES", "2M", 1);
	opens(NULL);
	setenv("GPUNET_SLAB_BYTES", "two", 1);
	refused(NULL, -EINVAL, "GPUNET_SLAB_BYTES");
	setenv("GPUNET_SLAB_BYTES", "1", 1);
	refused(NULL, -EINVAL, "GPUNET_SLAB_BYTES");
	/* What the program says counts more. */
	o.slab_bytes = 1 << 20;
	opens(&o);
	setenv("GPUNET_SLAB_BYTES", "", 1);
	opens(NULL);
	unsetenv("GPUNET_SLAB_BYTES");
	unsetenv("GPUNET_DEVICE");
}

static void devices(void **state)
{
	static const char *const none[] = {
		"", "gpu", "cpu:", "cpu:x", "cpu:-1", "cpu:1x", "cpux"
	};
	struct gpunet_options o = cpu_options();

	(void)state;
	for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		o.device = none[i];
		refused(&o, -EINVAL, "device");
	}
	o.device = "cpu:0";
	opens(&o);
	o.device = "cpu:1";
	refused(&o, -ENODEV, "cpu:1");
	o.device = "cuda:1023";
	refused(&o, -ENODEV, "");
}

static uint32_t sockets_of(gpunet_t *g)
{
	/* On the CPU device the kernels' handle is in reach. */
	return ((const struct gnet *)gpunet_device(g))->max_socks;
}

static void second_network_keeps_its_own(void **state)
{
	struct gpunet_options a = cpu_options(), b = cpu_options();
	gpunet_t *one = NULL, *two = NULL, *three = NULL;

	(void)state;
	a.max_sockets = 32;
	a.proxy_threads = 2;
	b.max_sockets = 640;
	assert_int_equal(gpunet_open(&one, &a), 0);
	assert_int_equal(gpunet_open(&two, &b), 0);
	assert_int_equal(sockets_of(one), 32);
	assert_int_equal(sockets_of(two), 640);
	assert_int_equal(gpunet_close(one, 10000), 0);
	assert_int_equal(gpunet_open(&three, &a), 0);
	assert_int_equal(sockets_of(three), 32);
	assert_int_equal(sockets_of(two), 640);
	assert_int_equal(gpunet_close(two, 10000), 0);
	assert_int_equal(gpunet_close(three, 10000), 0);
}

static void stats(void **state)
{
	const struct gpunet_options o = cpu_options();
	struct gpunet_stats s, untouched;
	gpunet_t *g = NULL;

	(void)state;
	assert_int_equal(gpunet_open(&g, &o), 0);
	memset(&untouched, 0xa5, sizeof(untouched));
	for (size_t size = 0; size <= sizeof(s); size++) {
		int rc;

		s = untouched;
		s.size = size;
		rc = gpunet_get_stats(g, &s);
		assert_int_equal(rc, size < offsetof(struct gpunet_stats, accepted) ? -EINVAL : 0);
		assert_int_equal(s.size, size);
		if (rc == 0)
			assert_int_equal(s.sockets, 0);
		if (size < sizeof(s) && size >= sizeof(size_t))
			assert_memory_equal((char *)&s + size, (char *)&untouched + size,
					    sizeof(s) - size);
	}
	assert_true(s.slab_segments == 256 && s.slab_segments_used == 0);
	assert_true(s.pinned_bytes >= 64 << 20);
	assert_int_equal(gpunet_close(g, 10000), 0);
}

/* A kernel that must not run. */
static void never(void *args)
{
	*(int *)args = 1;
	abort();
}

static void launches(void **state)
{
	const struct gpunet_options o = cpu_options();
	struct gpunet_grid grid = { 1, 1, 1, 1025, 1, 1, 0 };
	gpunet_t *g = NULL;
	int args = 0;

	(void)state;
	assert_int_equal(gpunet_open(&g, &o), 0);
	assert_int_equal(gpunet_launch_cpu(g, never, &grid, &args, sizeof(args)), -EINVAL);
	grid.block_x = 32;
	grid.block_y = 33;
	assert_int_equal(gpunet_launch_cpu(g, never, &grid, &args, sizeof(args)), -EINVAL);
	assert_null(gpunet_stream(g));
	assert_int_equal(gpunet_sync(g, 0), 0);
	assert_int_equal(gpunet_drain(g, 0), 0);
	assert_int_equal(gpunet_close(g, 0), 0);
	assert_int_equal(gpunet_close(NULL, 0), 0);
}

static int no_check(const struct gpunet_check *c, void *arg)
{
	return 0;
}

/* What a user has whose gpunet_open failed and was not looked at. */
static void calls_without_a_network_are_refused(void **state)
{
	const struct gpunet_options o = cpu_options();
	struct gpunet_stats s = { .size = sizeof(s) };
	struct gpunet_grid grid = { 1, 1, 1, 1, 1, 1, 0 };
	gpunet_t *g = NULL;
	int args = 0;

	(void)state;
	assert_int_equal(gpunet_sync(NULL, 1000), -EINVAL);
	assert_non_null(strstr(gpunet_last_error(), "gpunet_sync: the network is NULL"));
	assert_int_equal(gpunet_drain(NULL, 1000), -EINVAL);
	assert_int_equal(gpunet_get_stats(NULL, &s), -EINVAL);
	assert_int_equal(gpunet_launch_cpu(NULL, never, &grid, &args, sizeof(args)), -EINVAL);
	assert_non_null(strstr(gpunet_last_error(), "gpunet_launch_cpu: the network"));
	assert_int_equal(gpunet_doctor(NULL, NULL), -EINVAL);
	assert_int_equal(gpunet_open(NULL, &o), -EINVAL);
	assert_null(gpunet_device(NULL));
	assert_null(gpunet_stream(NULL));
	assert_string_equal(gpunet_device_kind(NULL), "");
	gpunet_abort(NULL);
	assert_int_equal(gpunet_close(NULL, 0), 0);
	assert_int_equal(gpunet_open(&g, &o), 0);
	assert_int_equal(gpunet_get_stats(g, NULL), -EINVAL);
	assert_int_equal(gpunet_launch_cpu(g, NULL, &grid, &args, sizeof(args)), -EINVAL);
	assert_int_equal(gpunet_launch_cpu(g, never, NULL, &args, sizeof(args)), -EINVAL);
	assert_int_equal(gpunet_launch_cpu(g, never, &grid, NULL, sizeof(args)), -EINVAL);
	assert_int_equal(gpunet_doctor(no_check, NULL), 0);
	assert_int_equal(gpunet_close(g, 1000), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(struct_sizes),
		cmocka_unit_test(ranges),
		cmocka_unit_test(environment),
		cmocka_unit_test(devices),
		cmocka_unit_test(second_network_keeps_its_own),
		cmocka_unit_test(stats),
		cmocka_unit_test(launches),
		cmocka_unit_test(calls_without_a_network_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
