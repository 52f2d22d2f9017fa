/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA platform on a driver that keeps books: contexts, memory, waiting, and every call
 * failing.
 */
#include "cuda_stub.h"

#include "base/log.h"
#include "base/sys.h"
#include "platform/cuda/driver.h"
#include "platform/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#define ops platform_cuda
#define BIG (3 * 4096 + 5)

static struct cuda_stub stub;

/* The library's own calls, counted; the n-th fails. */
static struct {
	int calls, fail_at, blocks, maps;
	size_t mapped;
	uint64_t now, tick;
} os;

static void *fake_alloc(size_t size)
{
	void *p = ++os.calls == os.fail_at ? NULL : sys_real.alloc(size);

	os.blocks += p != NULL;
	return p;
}

static void fake_free(void *p)
{
	os.blocks -= p != NULL;
	sys_real.free(p);
}

static void *fake_map(size_t size)
{
	void *p = ++os.calls == os.fail_at ? NULL : sys_real.map(size);

	os.maps += p != NULL;
	os.mapped += p ? size : 0;
	return p;
}

static void *fake_map_fd(const char *name, size_t size, int *fd)
{
	(void)name;
	*fd = -1;
	return fake_map(size);
}

static void fake_unmap(void *p, size_t size)
{
	os.maps--;
	os.mapped -= size;
	sys_real.unmap(p, size);
}

/* Time passes by looking at the clock. */
static uint64_t fake_now(void)
{
	return os.now += os.tick;
}

static int setup(void **state)
{
	(void)state;
	cuda_driver_forget();
	log_set_level(LOG_ERROR);
	memset(&os, 0, sizeof(os));
	sys.alloc = fake_alloc;
	sys.free = fake_free;
	sys.map = fake_map;
	sys.map_fd = fake_map_fd;
	sys.unmap = fake_unmap;
	return cuda_stub_use(&stub, STUB) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	sys = sys_real;
	cuda_driver_forget();
	stub.reset();
	return dlclose(stub.library);
}

static struct platform_dev *open_dev(int ordinal)
{
	struct platform_dev *dev = NULL;

	assert_int_equal(ops.open(ordinal, NULL, &dev), 0);
	assert_non_null(dev);
	return dev;
}

static void nothing_held(void)
{
	const struct cuda_stub_state *s = stub.state;

	assert_int_equal(s->primary, 0);
	assert_int_equal(s->pushed, 0);
	assert_int_equal(s->registered, 0);
	assert_int_equal(s->allocated, 0);
	assert_int_equal(s->streams, 0);
	assert_int_equal(os.blocks, 0);
	assert_int_equal(os.maps, 0);
	assert_int_equal(os.mapped, 0);
	if (s->misuse)
		fail_msg("%d calls of %s and others that a driver would refuse", s->misuse,
			 s->misused);
}

static void *current(void)
{
	void *c = NULL;

	assert_int_equal(stub.current(&c), 0);
	return c;
}

/* ---- contexts ---- */

static void retains_the_primary_context(void **state)
{
	struct platform_dev *dev, *second;

	(void)state;
	dev = open_dev(1);
	second = open_dev(1);
	assert_int_equal(stub.state->primary, 2);
	assert_null(current());
	ops.close(dev);
	ops.close(second);
	nothing_held();
}

static void uses_the_callers_context(void **state)
{
	struct platform_mem m;
	struct platform_dev *dev;
	void *mine = stub.context(1), *popped;

	(void)state;
	assert_int_equal(stub.push(mine), 0);
	dev = open_dev(1);
	assert_int_equal(stub.state->primary, 0);
	assert_ptr_equal(current(), mine);
	assert_int_equal(ops.host_alloc(dev, 100, true, &m), 0);
	assert_ptr_equal(current(), mine);
	ops.host_free(dev, &m);
	ops.close(dev);
	assert_int_equal(stub.pop(&popped), 0);
	nothing_held();
}

static void leaves_a_context_of_another_gpu_alone(void **state)
{
	struct platform_dev *dev;
	void *other = stub.context(0), *popped;

	(void)state;
	assert_int_equal(stub.push(other), 0);
	dev = open_dev(1);
	assert_int_equal(stub.state->primary, 1);
	assert_ptr_equal(current(), other);
	ops.close(dev);
	assert_ptr_equal(current(), other);
	assert_int_equal(stub.pop(&popped), 0);
	nothing_held();
}

struct worker {
	pthread_t thread;
	struct platform_dev *dev;
	int err;
};

/* What a thread does that never heard of CUDA. */
static void *fresh_thread(void *arg)
{
	struct worker *w = arg;
	struct platform_mem h, d;
	struct platform_info info;
	char out[64] = { 1 };

	for (int i = 0; i < 50 && !w->err; i++) {
		w->err = ops.host_alloc(w->dev, BIG, true, &h);
		if (w->err)
			break;
		w->err = ops.dev_alloc(w->dev, 64, &d);
		if (!w->err) {
			memset(h.host, i, BIG);
			w->err = ops.dev_write(w->dev, &d, 0, h.host, 64);
			if (!w->err)
				w->err = ops.dev_read(w->dev, &d, 0, out, 64);
			if (!w->err && (out[0] != i || out[63] != i))
				w->err = -EBADMSG;
			if (!w->err)
				w->err = ops.sync(w->dev, 0);
			if (!w->err)
				w->err = ops.info(w->dev, &info);
			ops.dev_free(w->dev, &d);
		}
		ops.host_free(w->dev, &h);
	}
	return NULL;
}

static void any_thread_may_call(void **state)
{
	struct worker w[8] = { 0 };

	(void)state;
	sys = sys_real; /* its counters are not for threads */
	w[0].dev = open_dev(0);
	for (size_t i = 0; i < 8; i++) {
		w[i].dev = w[0].dev;
		assert_int_equal(pthread_create(&w[i].thread, NULL, fresh_thread, &w[i]), 0);
	}
	for (size_t i = 0; i < 8; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].err, 0);
	}
	ops.close(w[0].dev);
	nothing_held();
}

static void no_such_gpu(void **state)
{
	struct platform_dev *dev = NULL;

	(void)state;
	assert_int_equal(ops.open(CUDA_STUB_DEVICES, NULL, &dev), -ENODEV);
	assert_non_null(strstr(log_last(), "cuda:2"));
	assert_non_null(strstr(log_last(), "2 GPUs"));
	assert_int_equal(ops.open(-1, NULL, &dev), -ENODEV);
	assert_null(dev);
	nothing_held();
}

/* ---- facts ---- */

static void tells_what_it_knows(void **state)
{
	struct platform_dev *dev;
	struct platform_info i;

	(void)state;
	dev = open_dev(1);
	assert_int_equal(ops.info(dev, &i), 0);
	assert_string_equal(i.name, "Stub GPU 1");
	assert_non_null(strstr(i.detail, "CUDA 13.0"));
	assert_non_null(strstr(i.detail, "sm_90"));
	assert_non_null(strstr(i.detail, "0000:1b:00.0"));
	assert_null(strstr(i.detail, "watchdog"));
	assert_int_equal(i.max_resident_blocks, 132 * 32);
	assert_int_equal(i.lazy_loading, 1);
	assert_int_equal(i.numa_node, 0);
	stub.state->kernel_timeout = 1;
	assert_int_equal(ops.info(dev, &i), 0);
	assert_non_null(strstr(i.detail, "watchdog"));
	ops.close(dev);
	nothing_held();
}

static bool called(const char *name)
{
	int i;

	for (i = 0; i < stub.state->calls && i < CUDA_STUB_TRACE; i++) {
		if (!strcmp(stub.state->trace[i], name))
			return true;
	}
	return false;
}

/* What a report asks for must not wait for a kernel that is resident: no stream, and of an open GPU no context. */
static void a_look_makes_nothing(void **state)
{
	struct platform_info i;
	struct platform_dev *dev;

	(void)state;
	assert_int_equal(ops.look(1, &i), 0);
	assert_string_equal(i.name, "Stub GPU 1");
	assert_int_equal(i.numa_node, 0);
	assert_true(called("cuDevicePrimaryCtxRetain"));
	assert_false(called("cuStreamCreateWithPriority"));
	nothing_held();
	dev = open_dev(1);
	memset(&i, 0, sizeof(i));
	stub.state->calls = 0;
	assert_int_equal(ops.look(1, &i), 0);
	assert_string_equal(i.name, "Stub GPU 1");
	assert_false(called("cuDevicePrimaryCtxRetain"));
	assert_false(called("cuCtxPushCurrent_v2"));
	assert_false(called("cuStreamCreateWithPriority"));
	assert_int_equal(ops.look(CUDA_STUB_DEVICES, &i), -ENODEV);
	ops.close(dev);
	nothing_held();
}

/* A GPU that another process has for itself is there, and of no use. */
static void a_look_says_that_a_gpu_cannot_be_used(void **state)
{
	struct platform_info i;

	(void)state;
	stub.state->fail_call = "cuDevicePrimaryCtxRetain";
	stub.state->fail_code = 46;
	assert_int_equal(ops.look(0, &i), -EBUSY);
	assert_non_null(strstr(log_last(), "exclusive"));
	nothing_held();
}

/*
 * Attributes that came later: the driver of 11.0 refuses them, and sysfs or arithmetic stands in.
 */
static void older_driver_knows_less(void **state)
{
	struct platform_dev *dev;
	struct platform_info i;

	(void)state;
	stub.state->old_attributes = true;
	dev = open_dev(0);
	assert_int_equal(ops.info(dev, &i), 0);
	assert_int_equal(i.max_resident_blocks, 132 * 64);
	assert_true(i.numa_node >= -1);
	ops.close(dev);
	nothing_held();
}

static void driver_before_lazy_loading(void **state)
{
	struct cuda_stub old = { 0 };
	struct platform_dev *dev;
	struct platform_info i;

	(void)state;
	assert_true(cuda_stub_use(&old, STUB_BEFORE_LAZY));
	dev = open_dev(0);
	assert_int_equal(ops.info(dev, &i), 0);
	assert_int_equal(i.lazy_loading, 0);
	ops.close(dev);
	assert_int_equal(old.state->misuse, 0);
	assert_int_equal(old.state->streams, 0);
	cuda_driver_forget();
	dlclose(old.library);
}

static void kernels_come_from_the_runtime(void **state)
{
	struct platform_dev *dev = open_dev(0);

	(void)state;
	assert_int_equal(ops.launch(dev, NULL, NULL, NULL, 0), -EOPNOTSUPP);
	assert_int_equal(ops.set_kick(dev, NULL, NULL), 0);
	ops.notify(dev, NULL);
	assert_non_null(ops.stream(dev));
	assert_int_equal(stub.state->stream_flags, 1); /* non-blocking */
	ops.close(dev);
	nothing_held();
}

/* ---- memory ---- */

static void host_memory(void **state)
{
	struct platform_dev *dev = open_dev(0);
	struct platform_mem m;
	char *p;

	(void)state;
	assert_int_equal(ops.host_alloc(dev, BIG, true, &m), 0);
	assert_int_equal(m.size, BIG);
	assert_int_equal(m.mapped, 4 * 4096);
	assert_ptr_equal(m.dev, m.host);
	assert_int_equal(stub.state->register_flags, 3); /* portable, mapped */
	p = m.host;
	for (size_t i = 0; i < m.mapped; i++)
		assert_int_equal(p[i], 0);
	memset(p, 1, m.mapped);
	ops.host_free(dev, &m);
	assert_null(m.host);
	ops.host_free(dev, &m); /* of nothing: nothing */
	assert_int_equal(ops.host_alloc(dev, 0, true, &m), -EINVAL);
	assert_int_equal(ops.host_alloc(dev, SIZE_MAX, true, &m), -EINVAL);
	ops.close(dev);
	nothing_held();
}

static void device_memory(void **state)
{
	struct platform_dev *dev = open_dev(0);
	struct platform_mem m;
	unsigned char out[100];

	(void)state;
	assert_int_equal(ops.dev_alloc(dev, sizeof(out), &m), 0);
	assert_null(m.host);
	assert_int_equal(m.size, sizeof(out));
	assert_int_equal(ops.dev_read(dev, &m, 0, out, sizeof(out)), 0);
	for (size_t i = 0; i < sizeof(out); i++)
		assert_int_equal(out[i], 0);
	assert_int_equal(ops.dev_write(dev, &m, 97, "abc", 3), 0);
	assert_int_equal(ops.dev_read(dev, &m, 96, out, 4), 0);
	assert_memory_equal(out, "\0abc", 4);

	assert_int_equal(ops.dev_write(dev, &m, 98, "abc", 3), -EINVAL);
	assert_int_equal(ops.dev_read(dev, &m, 101, out, 0), -EINVAL);
	assert_int_equal(ops.dev_read(dev, &m, SIZE_MAX, out, 2), -EINVAL);
	assert_int_equal(ops.dev_write(dev, &m, 100, "", 0), 0);
	assert_int_equal(ops.dev_alloc(dev, 0, &m), -EINVAL);
	ops.dev_free(dev, &m);
	ops.dev_free(dev, &m);
	ops.close(dev);
	nothing_held();
}

static void pinning_names_the_limit(void **state)
{
	struct rlimit old, small;
	struct platform_dev *dev = open_dev(0);
	struct platform_mem m;

	(void)state;
	stub.state->fail_call = "cuMemHostRegister_v2";
	stub.state->fail_code = 2;
	getrlimit(RLIMIT_MEMLOCK, &old);
	small = old;
	small.rlim_cur = 65536;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &small), 0);
	assert_int_equal(ops.host_alloc(dev, 1 << 30, true, &m), -ENOMEM);
	assert_non_null(strstr(log_last(), "cannot pin 1 GiB"));
	assert_non_null(strstr(log_last(), "RLIMIT_MEMLOCK is 64 KiB: raise it with ulimit -l"));
	assert_int_equal(ops.host_alloc(dev, 4096, true, &m), -ENOMEM);
	assert_non_null(strstr(log_last(), "64 KiB for the whole process"));
	/* Another cause is not blamed on the limit. */
	stub.state->fail_code = 700;
	assert_int_equal(ops.host_alloc(dev, 1 << 20, true, &m), -EFAULT);
	assert_null(strstr(log_last(), "MEMLOCK"));
	setrlimit(RLIMIT_MEMLOCK, &old);
	ops.close(dev);
	nothing_held();
}

/* Memory that the driver does not let go stays mapped, or its address could not be pinned again. */
static void unpinning_fails(void **state)
{
	struct platform_dev *dev = open_dev(0);
	struct platform_mem m;

	(void)state;
	assert_int_equal(ops.host_alloc(dev, 4096, true, &m), 0);
	stub.state->fail_call = "cuMemHostUnregister";
	stub.state->fail_code = 999;
	ops.host_free(dev, &m);
	assert_int_equal(os.maps, 1);

	stub.state->fail_call = NULL;
	assert_int_equal(ops.host_alloc(dev, 4096, true, &m), 0);
	stub.state->fail_call = "cuMemHostUnregister";
	stub.state->fail_code = 709; /* the context is gone, and with it the registration */
	ops.host_free(dev, &m);
	assert_int_equal(os.maps, 1);
	ops.close(dev);
	os.maps = 0;
}

/* ---- waiting ---- */

/* Freeing would wait for the other network's kernels: memory is kept, used again, and goes with the last handle. */
static void nothing_is_freed_beside_another_handle(void **state)
{
	struct platform_dev *one, *two;
	struct platform_mem host, gpu, again;
	void *was;

	(void)state;
	assert_int_equal(ops.open(0, NULL, &one), 0);
	assert_int_equal(ops.open(0, NULL, &two), 0);
	assert_int_equal(ops.host_alloc(one, BIG, true, &host), 0);
	assert_int_equal(ops.dev_alloc(one, BIG, &gpu), 0);
	memset(host.host, 7, BIG);
	was = host.host;
	ops.host_free(one, &host);
	ops.dev_free(one, &gpu);
	assert_null(host.host);
	assert_null(gpu.dev);
	ops.close(one);
	assert_int_equal(stub.state->registered, 1);
	assert_int_equal(stub.state->allocated, 1);

	assert_int_equal(ops.host_alloc(two, BIG - 1, true, &again), 0);
	assert_ptr_equal(again.host, was);
	assert_int_equal(again.size, BIG - 1);
	assert_int_equal(((char *)again.host)[BIG - 2], 0);
	assert_int_equal(stub.state->registered, 1);
	ops.host_free(two, &again); /* the only handle: at once */
	assert_int_equal(stub.state->registered, 0);
	assert_int_equal(stub.state->allocated, 1);
	ops.close(two);
	assert_int_equal(stub.state->allocated, 0);
}

static void sync_ends_at_its_time(void **state)
{
	struct platform_dev *dev = open_dev(0);

	(void)state;
	sys.now_ns = fake_now;
	os.tick = 1000000;
	assert_int_equal(ops.sync(dev, UINT64_MAX), 0);
	assert_int_equal(stub.state->queries, 1);
	stub.state->queries = 0;
	stub.state->busy_from = 1;
	assert_int_equal(ops.sync(dev, 0), -ETIMEDOUT);
	assert_int_equal(stub.state->queries, 1);
	stub.state->queries = 0;
	assert_int_equal(ops.sync(dev, 50 * UINT64_C(1000000)), -ETIMEDOUT);
	assert_int_equal(stub.state->queries, 50);
	ops.close(dev);
	nothing_held();
}

static void sync_gives_the_kernels_error(void **state)
{
	struct platform_dev *dev = open_dev(0);

	(void)state;
	stub.state->fail_call = "cuStreamQuery";
	stub.state->fail_code = 700;
	assert_int_equal(ops.sync(dev, UINT64_MAX), -EFAULT);
	assert_non_null(strstr(log_last(), "CUDA_ERROR_ILLEGAL_ADDRESS"));
	ops.close(dev);
	nothing_held();
}

static void busy_stream_refuses_copies(void **state)
{
	struct platform_dev *dev = open_dev(0);
	struct platform_mem m, none;
	char c = 0;

	(void)state;
	assert_int_equal(ops.dev_alloc(dev, 16, &m), 0);
	stub.state->busy_from = 1;
	assert_int_equal(ops.dev_alloc(dev, 16, &none), -EBUSY);
	assert_int_equal(ops.dev_write(dev, &m, 0, &c, 1), -EBUSY);
	assert_int_equal(ops.dev_read(dev, &m, 0, &c, 1), -EBUSY);
	assert_int_equal(stub.state->allocated, 1);
	stub.state->busy_from = 0;
	ops.dev_free(dev, &m);
	ops.close(dev);
	nothing_held();
}

/* Freeing would wait for the fill that does not end. */
static void fill_that_never_ends(void **state)
{
	struct platform_dev *dev = open_dev(0);
	struct platform_mem m;

	(void)state;
	sys.now_ns = fake_now;
	os.tick = 250 * 1000000;
	stub.state->queries = 0;
	stub.state->busy_from = 2; /* the first one asks whether the stream is idle */
	assert_int_equal(ops.dev_alloc(dev, 16, &m), -ETIMEDOUT);
	assert_int_equal(stub.state->allocated, 1);
	for (int i = 0; i < stub.state->calls && i < CUDA_STUB_TRACE; i++)
		assert_string_not_equal(stub.state->trace[i], "cuMemFree_v2");
	ops.close(dev);
	assert_int_equal(stub.state->streams, 0);
	assert_int_equal(stub.state->pushed, 0);
}

/* ---- every call fails ---- */

/* The whole life of a device; the first error, with what was made undone in any case. */
static int live(const char **failed)
{
	struct platform_mem h = { 0 }, m = { 0 };
	struct platform_dev *dev = NULL;
	struct platform_info info;
	char c[8] = "1234567";
	int err = ops.open(1, NULL, &dev);

	*failed = "open";
	if (err)
		return err;
	*failed = "info";
	err = ops.info(dev, &info);
	if (!err) {
		*failed = "host_alloc";
		err = ops.host_alloc(dev, BIG, true, &h);
	}
	if (!err) {
		*failed = "dev_alloc";
		err = ops.dev_alloc(dev, 64, &m);
	}
	if (!err) {
		*failed = "dev_write";
		err = ops.dev_write(dev, &m, 0, c, sizeof(c));
	}
	if (!err) {
		*failed = "dev_read";
		err = ops.dev_read(dev, &m, 0, c, sizeof(c));
	}
	if (!err) {
		*failed = "sync";
		err = ops.sync(dev, 1000000);
	}
	ops.dev_free(dev, &m);
	ops.host_free(dev, &h);
	ops.close(dev);
	return err;
}

/* The same without the log's lines, of which there are hundreds. */
static int whole_life(const char **failed)
{
	int screen = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY), err;

	assert_true(screen >= 0 && nowhere >= 0);
	dup2(nowhere, STDERR_FILENO);
	err = live(failed);
	dup2(screen, STDERR_FILENO);
	close(screen);
	close(nowhere);
	return err;
}

static bool one_of(const char *name, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(name, *list))
			return true;
	return false;
}

/* Facts that may be unknown, and calls that undo: their failure is not the caller's. */
static const char *const tolerated[] = { "cuDeviceGetAttribute", "cuModuleGetLoadingMode", NULL };
static const char *const undo[] = {
	"cuCtxPopCurrent_v2", "cuMemHostUnregister",          "cuMemFree_v2",
	"cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2", NULL
};

/* What may be left over is exactly what the failing call should have given back. */
static void books_after(const char *failed_call, int n)
{
	const struct cuda_stub_state *s = stub.state;
	const int pop = !strcmp(failed_call, "cuCtxPopCurrent_v2");
	const int unpin = !strcmp(failed_call, "cuMemHostUnregister");

	if (s->misuse)
		fail_msg("call %d (%s) failing: then %s misused", n, failed_call, s->misused);
	assert_int_equal(s->pushed, pop);
	assert_int_equal(s->registered, unpin);
	assert_int_equal(os.maps, unpin);
	assert_int_equal(s->allocated, !strcmp(failed_call, "cuMemFree_v2"));
	assert_int_equal(s->streams, !strcmp(failed_call, "cuStreamDestroy_v2"));
	assert_int_equal(s->primary, !strcmp(failed_call, "cuDevicePrimaryCtxRelease_v2"));
	assert_int_equal(os.blocks, 0);
}

/* A push may fail while undoing too: then the work in that context is skipped. */
static void books_after_push(int n)
{
	const struct cuda_stub_state *s = stub.state;

	if (s->misuse)
		fail_msg("call %d (push) failing: then %s misused", n, s->misused);
	assert_int_equal(s->pushed, 0);
	assert_int_equal(s->primary, 0);
	assert_int_equal(os.blocks, 0);
	assert_true(s->registered + s->allocated + s->streams <= 1);
	assert_int_equal(os.maps, 0);
}

static void every_driver_call_fails_in_turn(void **state)
{
	const char *where;
	int total;

	(void)state;
	assert_int_equal(whole_life(&where), 0);
	total = stub.state->calls;
	assert_true(total > 40 && total < CUDA_STUB_TRACE);
	for (int n = 1; n <= total; n++) {
		const char *call;
		int err;

		setup(NULL);
		stub.state->fail_at = n;
		stub.state->fail_code = 999;
		err = whole_life(&where);
		call = stub.state->trace[n - 1];
		if (!strcmp(call, "cuCtxPushCurrent_v2")) {
			books_after_push(n);
			continue;
		}
		books_after(call, n);
		if (one_of(call, undo) || one_of(call, tolerated) ||
		    (n > 2 && !strcmp(call, "cuDriverGetVersion")))
			assert_int_equal(err, 0);
		else if (!err)
			fail_msg("call %d (%s) failed and nobody said so", n, call);
		/*
		 * After a failure nothing but undoing, up to the end: facts and work do not go on.
		 */
		for (int i = n; err && i < stub.state->calls; i++)
			if (!one_of(stub.state->trace[i], undo) &&
			    strcmp(stub.state->trace[i], "cuCtxPushCurrent_v2"))
				fail_msg("after call %d (%s) failed, %s was called", n, call,
					 stub.state->trace[i]);
	}
}

static void every_system_call_fails_in_turn(void **state)
{
	const char *where;
	int total;

	(void)state;
	assert_int_equal(whole_life(&where), 0);
	total = os.calls;
	assert_int_equal(total, 2);
	for (int n = 1; n <= total; n++) {
		os.calls = 0;
		os.fail_at = n;
		assert_int_equal(whole_life(&where), -ENOMEM);
		nothing_held();
	}
}

/* Whatever number a driver answers, known or not, the caller gets an errno and the log its name. */
static void every_code_of_every_call(void **state)
{
	static const int codes[] = { 1,   2,   3,   4,   34,  36,  46,   100,   101, 201,
				     214, 216, 304, 400, 500, 700, 709,  712,   713, 716,
				     800, 801, 802, 803, 804, 999, 1000, 31337, -1 };
	static const char *const calls[] = {
		"cuInit",
		"cuDriverGetVersion",
		"cuDeviceGetCount",
		"cuDeviceGet",
		"cuDeviceGetName",
		"cuDevicePrimaryCtxRetain",
		"cuCtxGetCurrent",
		"cuCtxPushCurrent_v2",
		"cuMemHostRegister_v2",
		"cuMemHostGetDevicePointer_v2",
		"cuMemAlloc_v2",
		"cuMemsetD8Async",
		"cuMemcpyHtoDAsync_v2",
		"cuMemcpyDtoHAsync_v2",
		"cuStreamCreateWithPriority",
		"cuStreamQuery",
	};
	const char *where;

	(void)state;
	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++)
		for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
			char number[32];
			int err;

			setup(NULL);
			stub.state->nameless = i % 2;
			stub.state->fail_call = calls[c];
			stub.state->fail_code = codes[i];
			err = whole_life(&where);
			if (err >= 0)
				fail_msg("%s answered %d and %s gave %d", calls[c], codes[i], where,
					 err);
			snprintf(number, sizeof(number), "CUDA error %d", codes[i]);
			if (stub.state->nameless && !strstr(log_last(), number) && codes[i] != 100)
				fail_msg("\"%s\" does not say %s", log_last(), number);
			assert_int_equal(stub.state->misuse, 0);
			assert_int_equal(os.blocks + os.maps, 0);
		}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(retains_the_primary_context),
		TEST(uses_the_callers_context),
		TEST(leaves_a_context_of_another_gpu_alone),
		TEST(any_thread_may_call),
		TEST(no_such_gpu),
		TEST(tells_what_it_knows),
		TEST(a_look_makes_nothing),
		TEST(a_look_says_that_a_gpu_cannot_be_used),
		TEST(older_driver_knows_less),
		TEST(driver_before_lazy_loading),
		TEST(kernels_come_from_the_runtime),
		TEST(host_memory),
		TEST(device_memory),
		TEST(pinning_names_the_limit),
		TEST(unpinning_fails),
		TEST(nothing_is_freed_beside_another_handle),
		TEST(sync_ends_at_its_time),
		TEST(sync_gives_the_kernels_error),
		TEST(busy_stream_refuses_copies),
		TEST(fill_that_never_ends),
		TEST(every_driver_call_fails_in_turn),
		TEST(every_system_call_fails_in_turn),
		TEST(every_code_of_every_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
