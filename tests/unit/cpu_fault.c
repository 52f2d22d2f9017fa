/* SPDX-License-Identifier: BSD-3-Clause */
/* What is short at open and launch is an error of that call and leaves nothing behind; misuse is reported. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu_test.h"

/* ---- the n-th call fails -------------------------------------------------------------------------------------------- */

static int fails_in; /* calls until one fails; <= 0: none does */
static int live;     /* allocations, mappings and threads that were not given back */

static int fails(void)
{
	return fails_in > 0 && --fails_in == 0;
}

static void *counted_alloc(size_t n)
{
	void *p = fails() ? NULL : sys_real.alloc(n);

	__atomic_fetch_add(&live, p != NULL, __ATOMIC_RELAXED);
	return p;
}

static void counted_free(void *p)
{
	__atomic_fetch_sub(&live, p != NULL, __ATOMIC_RELAXED);
	sys_real.free(p);
}

static void *counted_map(size_t n)
{
	void *p = fails() ? NULL : sys_real.map(n);

	__atomic_fetch_add(&live, p != NULL, __ATOMIC_RELAXED);
	return p;
}

static void counted_unmap(void *p, size_t n)
{
	__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	sys_real.unmap(p, n);
}

static int counted_start(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	return fails() ? -EAGAIN : sys_real.thread_start(t, a, fn, arg);
}

static int counted_protect(void *p, size_t n)
{
	if (fails())
		return -ENOMEM;
	return mprotect(p, n, PROT_NONE) ? -errno : 0;
}

/* Two warps; TSan is slow to make fibers, and nothing here depends on how many there are. */
#define THREADS (CPU_TSAN ? 2 : 40)

struct count {
	unsigned *n;
};

GNET_KERNEL(count_kernel, struct count, a)
{
	GNET_DYN_SHARED(unsigned, s);

	s[threadIdx.x] = 1;
	__syncthreads();
	atomicAdd(a.n, s[blockDim.x - 1 - threadIdx.x]);
}

/* One life of a device; 0 if it went through, else the error. */
static int one_life(unsigned *n)
{
	struct platform_params p = { .size = sizeof(p), .cpu_blocks = 2 };
	struct platform_grid g = { { 5, 1, 1 }, { THREADS, 1, 1 }, THREADS * 4 };
	struct count a = { n };
	struct platform_dev *d = NULL;
	int err = platform_cpu.open(0, &p, &d);

	if (err) {
		assert_null(d);
		return err;
	}
	err = platform_cpu.launch(d, count_kernel_entry, &g, &a, sizeof(a));
	if (!err) {
		assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	} else {
		/* Nothing was queued, and the next launch finds the device whole. */
		assert_int_equal(platform_cpu.sync(d, 0), 0);
		assert_int_equal(*n, 0);
		fails_in = 0;
		assert_int_equal(platform_cpu.launch(d, count_kernel_entry, &g, &a, sizeof(a)), 0);
		assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	}
	assert_int_equal(*n, 5 * THREADS);
	platform_cpu.close(d);
	return err;
}

static void every_failure_of_open_and_launch_leaves_nothing(void **state)
{
	unsigned calls, failed = 0;

	(void)state;
	sys.alloc = counted_alloc;
	sys.free = counted_free;
	sys.map = counted_map;
	sys.unmap = counted_unmap;
	sys.thread_start = counted_start;
	cpu_hooks.protect = counted_protect;
	for (calls = 1;; calls++) {
		unsigned n = 0;
		int err;

		fails_in = (int)calls;
		err = one_life(&n);
		assert_int_equal(live, 0);
		if (fails_in > 0)
			break; /* there are fewer calls: none failed */
		if (err) {
			assert_true(err == -ENOMEM || err == -EAGAIN);
			assert_int_not_equal(strlen(log_last()), 0);
			failed++;
		}
	}
	/* open 1; launch: itself, arguments, shared 3, warps 2 x 4, guards, workers 2 x 2, the watchdog is optional. */
	assert_in_range(failed, CPU_TSAN ? 15 : 90, calls - 1);
	fails_in = 0;
	sys = sys_real;
}

/* ---- misuse ------------------------------------------------------------------------------------------------------------ */

static char captured[8192];

/* Standard error of `fn`, in `captured`. `fn` makes no assertions, which would not return here, but returns a line. */
static void capture(int (*fn)(void))
{
	int old = dup(2), file = memfd_create("stderr", 0);
	int line;
	ssize_t n;

	assert_true(old >= 0 && file >= 0);
	dup2(file, 2);
	line = fn();
	dup2(old, 2);
	n = pread(file, captured, sizeof(captured) - 1, 0);
	captured[n > 0 ? n : 0] = 0;
	fputs(captured, stderr);
	assert_int_equal(line, 0);
	close(file);
	close(old);
}

static unsigned count_of(const char *text)
{
	const char *p = captured;
	unsigned n = 0;

	while ((p = strstr(p, text))) {
		n++;
		p++;
	}
	return n;
}

struct gate {
	unsigned *go;
};

GNET_KERNEL(gate_kernel, struct gate, a)
{
	while (!atomicAdd(a.go, 0u))
		__nanosleep(1000000);
}

static int close_while_resident(void)
{
	struct platform_dev *d = test_open(1, 0);
	struct platform_grid g = test_grid(1, 2);
	unsigned go = 0;
	struct gate a = { &go };

	if (platform_cpu.launch(d, gate_kernel_entry, &g, &a, sizeof(a)) != 0)
		return __LINE__;
	platform_cpu.close(d);
	/* Still all there. */
	if (platform_cpu.sync(d, 0) != -ETIMEDOUT)
		return __LINE__;
	__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
	if (platform_cpu.sync(d, ENOUGH) != 0)
		return __LINE__;
	platform_cpu.close(d);
	return 0;
}

static void close_with_a_kernel_resident_frees_nothing(void **state)
{
	(void)state;
	capture(close_while_resident);
	assert_int_equal(count_of("closed while a kernel runs"), 1);
}

/* Thread 1 calls a warp operation that does not name it, once the gate is open. */
GNET_KERNEL(misuse_kernel, struct gate, a)
{
	while (!atomicAdd(a.go, 0u))
		__nanosleep(1000000);
	__shfl_sync(1u << (1 - threadIdx.x), 0, 0);
}

struct asker {
	struct platform_dev *d;
	pid_t tid; /* set when it is about to wait */
};

static void *sync_late(void *arg)
{
	struct asker *a = arg;
	int rc;

	__atomic_store_n(&a->tid, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
	rc = platform_cpu.sync(a->d, ENOUGH);
	return (void *)(intptr_t)(strstr(log_last(), "without itself") ? rc : 0);
}

/* Until it sleeps: then it has begun to wait, or will as soon as it has the lock. */
static void until_it_waits(const struct asker *a)
{
	char path[64], line[256], state = 0;
	FILE *f;

	do {
		test_sleep_ms(5);
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat",
			 (int)__atomic_load_n(&a->tid, __ATOMIC_ACQUIRE));
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(line, sizeof(line), f) && strrchr(line, ')'))
			state = strrchr(line, ')')[2];
		fclose(f);
	} while (state != 'S');
}

/* Two that ask afterwards, and one that has begun to wait before the fault and is behind the next launch. */
static int ask_three_times(void)
{
	struct platform_dev *d = test_open(1, 0);
	unsigned go = 0, open = 1;
	struct gate shut = { &go }, none = { &open };
	struct platform_grid g = test_grid(1, 2);
	struct asker asker = { d, 0 };
	pthread_t t;
	void *rc;

	if (platform_cpu.launch(d, misuse_kernel_entry, &g, &shut, sizeof(shut)) != 0 ||
	    pthread_create(&t, NULL, sync_late, &asker) != 0)
		return __LINE__;
	until_it_waits(&asker);
	__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
	if (platform_cpu.sync(d, ENOUGH) != -EINVAL)
		return __LINE__;
	if (platform_cpu.sync(d, 0) != -EINVAL)
		return __LINE__;
	if (platform_cpu.launch(d, gate_kernel_entry, &g, &none, sizeof(none)) != 0)
		return __LINE__;
	if (platform_cpu.sync(d, ENOUGH) != 0)
		return __LINE__;
	if (pthread_join(t, &rc) != 0 || (int)(intptr_t)rc != -EINVAL)
		return __LINE__;
	platform_cpu.close(d);
	return 0;
}

static void a_fault_is_told_to_all_and_logged_once(void **state)
{
	(void)state;
	capture(ask_three_times);
	assert_int_equal(count_of("without itself"), 1);
}

struct spin {
	unsigned *go;
	unsigned *seen;
};

/* What the watchdog is for: thread 5 never yields. The relaxed load is the compiler's, not the device's. */
GNET_KERNEL(spin_kernel, struct spin, a)
{
	if (blockIdx.x == 1 && threadIdx.x == 5)
		while (!__atomic_load_n(a.go, __ATOMIC_RELAXED)) {
		}
	__syncthreads();
	atomicAdd(a.seen, 1u);
}

/* Within capture(). */
static int has_said(const char *text)
{
	static char now[8192];
	ssize_t n = pread(2, now, sizeof(now) - 1, 0);

	now[n > 0 ? n : 0] = 0;
	return strstr(now, text) != NULL;
}

static int spin_for_a_while(void)
{
	struct platform_dev *d;
	struct platform_grid g = test_grid(2, 8);
	unsigned go = 0, seen = 0;
	struct spin a = { &go, &seen };
	uint64_t end = sys_real.now_ns() + ENOUGH;

	setenv("GPUNET_CPU_WATCHDOG_MS", "50", 1);
	d = test_open(2, 0);
	unsetenv("GPUNET_CPU_WATCHDOG_MS");
	if (platform_cpu.launch(d, spin_kernel_entry, &g, &a, sizeof(a)) != 0)
		return __LINE__;
	/* However long the watchdog's thread waits for a processor beside the one that spins; then it might say it again. */
	while (!has_said("letting") && sys_real.now_ns() < end)
		test_sleep_ms(10);
	test_sleep_ms(200);
	__atomic_store_n(&go, 1, __ATOMIC_RELAXED);
	if (platform_cpu.sync(d, ENOUGH) != 0)
		return __LINE__;
	if (seen != 16)
		return __LINE__;
	platform_cpu.close(d);
	return 0;
}

static void a_thread_that_never_yields_is_named_once(void **state)
{
	(void)state;
	capture(spin_for_a_while);
	assert_int_equal(count_of("block (1,0,0)"), 1);
	assert_int_equal(count_of("thread (5,0,0)"), 1);
	assert_int_equal(count_of("letting the block's other threads run"), 1);
}

static int wait_for_a_while(void)
{
	struct platform_dev *d;
	struct platform_grid g = test_grid(2, 8);
	unsigned go = 0;
	struct gate a = { &go };

	setenv("GPUNET_CPU_WATCHDOG_MS", "20", 1);
	d = test_open(2, 0);
	unsetenv("GPUNET_CPU_WATCHDOG_MS");
	if (platform_cpu.launch(d, gate_kernel_entry, &g, &a, sizeof(a)) != 0)
		return __LINE__;
	test_sleep_ms(200);
	__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
	if (platform_cpu.sync(d, ENOUGH) != 0)
		return __LINE__;
	platform_cpu.close(d);
	return 0;
}

static void a_kernel_that_sleeps_is_not_named(void **state)
{
	(void)state;
	capture(wait_for_a_while);
	assert_int_equal(count_of("letting"), 0);
}

struct deep {
	unsigned *n;
};

/* A frame that is larger than the stack, of which only the far end is touched. */
GNET_KERNEL(deep_kernel, struct deep, a)
{
	unsigned frame[(CPU_DEFAULT_STACK + (36 << 10)) / sizeof(unsigned)];

	__asm__ volatile("" : : "r"(frame) : "memory"); /* or clang keeps what is touched only */
	if (threadIdx.x == 1) {
		__atomic_store_n(&frame[0], 1, __ATOMIC_RELAXED);
		atomicAdd(a.n, __atomic_load_n(&frame[0], __ATOMIC_RELAXED));
	}
}

/* Below lane 1's stack is lane 0's: it must not be what the frame's end meets. */
static void a_frame_larger_than_the_stack_dies(void **state)
{
	unsigned n = 0;
	struct deep a = { &n };
	pid_t child;
	int status;

	(void)state;
	if (CPU_ASAN || CPU_TSAN)
		skip(); /* they have a handler of their own, and larger frames */
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		struct platform_dev *d = NULL;
		struct platform_grid g = test_grid(1, 2);

		signal(SIGSEGV, SIG_DFL);
		if (!platform_cpu.open(0, NULL, &d) &&
		    !platform_cpu.launch(d, deep_kernel_entry, &g, &a, sizeof(a)))
			platform_cpu.sync(d, ENOUGH);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
}

struct wild {
	unsigned *word;
};

/* Thread (2,1,0) of block (1,0,0). */
GNET_KERNEL(wild_kernel, struct wild, a)
{
	if (blockIdx.x == 1 && threadIdx.x == 2 && threadIdx.y == 1)
		__atomic_store_n(a.word, 1, __ATOMIC_RELAXED);
}

/* Runs `kernel` in a child, whose end is the signal that is returned and whose words are in `captured`. */
static int signal_of_child(void (*kernel)(void *), const void *args, size_t size)
{
	int old = dup(2), file = memfd_create("stderr", 0), status = 0;
	ssize_t n;
	pid_t child;

	dup2(file, 2);
	child = fork();
	if (!child) {
		struct platform_grid g = { { 2, 1, 1 }, { 4, 2, 1 }, 0 };
		struct platform_dev *d = NULL;

		signal(SIGSEGV, SIG_DFL);
		if (!platform_cpu.open(0, NULL, &d) &&
		    !platform_cpu.launch(d, kernel, &g, args, size))
			platform_cpu.sync(d, ENOUGH);
		_exit(1);
	}
	dup2(old, 2);
	waitpid(child, &status, 0);
	n = pread(file, captured, sizeof(captured) - 1, 0);
	captured[n > 0 ? n : 0] = 0;
	close(file);
	close(old);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void a_crash_in_a_kernel_names_block_and_thread(void **state)
{
	struct wild a = { (unsigned *)(uintptr_t)0x10 };
	unsigned n = 0;
	struct deep d = { &n };

	(void)state;
	if (CPU_ASAN || CPU_TSAN)
		skip(); /* they have a handler of their own */
	assert_int_equal(signal_of_child(wild_kernel_entry, &a, sizeof(a)), SIGSEGV);
	assert_int_equal(
		count_of("kernel 1 on the CPU device, block (1,0,0), thread (2,1,0): SIGSEGV"), 1);
	assert_int_equal(count_of("at 0x10; NULL was used: a network"), 1);
	/* Where there is no stack left to say it on; in which of them, all being as bad, depends on the compiler. */
	assert_int_equal(signal_of_child(deep_kernel_entry, &d, sizeof(d)), SIGSEGV);
	assert_int_equal(count_of("kernel 1 on the CPU device, block ("), 1);
	assert_int_equal(count_of("): SIGSEGV"), 1);
}

/* What is no kernel's ends the process without a word of ours. */
static void a_crash_elsewhere_is_as_ever(void **state)
{
	static const char *const how[] = { "access", "kill" };
	unsigned *volatile wild = (unsigned *)(uintptr_t)0x10;
	unsigned i;

	(void)state;
	if (CPU_ASAN || CPU_TSAN)
		skip();
	for (i = 0; i < 2; i++) {
		int status = 0;
		pid_t child = fork();

		if (!child) {
			signal(SIGSEGV, SIG_DFL);
			test_open(1, 0);
			if (how[i][0] == 'a')
				__atomic_store_n(wild, 1, __ATOMIC_RELAXED);
			else
				kill(getpid(), SIGSEGV);
			_exit(1);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGSEGV);
	}
}

static void handler(int sig)
{
}

static void handlers_are_the_programs(void **state)
{
	struct sigaction mine = { .sa_flags = SA_RESTART }, was, is;
	struct platform_dev *one, *two;

	(void)state;
	if (CPU_ASAN || CPU_TSAN)
		skip();
	mine.sa_handler = handler;
	assert_int_equal(sigaction(SIGBUS, NULL, &was), 0);
	signal(SIGSEGV, SIG_DFL);
	assert_int_equal(sigaction(SIGBUS, &mine, NULL), 0);
	one = test_open(1, 0);
	two = test_open(1, 0);
	assert_int_equal(sigaction(SIGBUS, NULL, &is), 0);
	assert_ptr_equal(is.sa_handler, handler);
	assert_int_equal(sigaction(SIGSEGV, NULL, &is), 0);
	assert_ptr_not_equal(is.sa_handler, SIG_DFL);
	platform_cpu.close(one);
	assert_int_equal(sigaction(SIGSEGV, NULL, &is), 0);
	assert_ptr_not_equal(is.sa_handler, SIG_DFL);
	platform_cpu.close(two);
	assert_int_equal(sigaction(SIGSEGV, NULL, &is), 0);
	assert_ptr_equal(is.sa_handler, SIG_DFL);
	assert_int_equal(sigaction(SIGBUS, &was, NULL), 0);
}

static void bad_parameters_are_refused(void **state)
{
	struct platform_params p = { .size = sizeof(p) };
	struct platform_dev *d = NULL;
	char why[8];

	(void)state;
	assert_int_equal(platform_cpu.count(why, sizeof(why)), 1);
	assert_int_equal(platform_cpu.open(1, NULL, &d), -ENODEV);
	p.cpu_blocks = CPU_MAX_BLOCKS + 1;
	assert_int_equal(platform_cpu.open(0, &p, &d), -EINVAL);
	p.cpu_blocks = 0;
	p.cpu_stack = 1000;
	assert_int_equal(platform_cpu.open(0, &p, &d), -EINVAL);
	assert_null(d);
	assert_int_equal(platform_cpu.open(0, NULL, &d), 0);
	assert_null(platform_cpu.stream(d));
	platform_cpu.close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_failure_of_open_and_launch_leaves_nothing),
		cmocka_unit_test(close_with_a_kernel_resident_frees_nothing),
		cmocka_unit_test(a_fault_is_told_to_all_and_logged_once),
		cmocka_unit_test(a_thread_that_never_yields_is_named_once),
		cmocka_unit_test(a_kernel_that_sleeps_is_not_named),
		cmocka_unit_test(a_frame_larger_than_the_stack_dies),
		cmocka_unit_test(a_crash_in_a_kernel_names_block_and_thread),
		cmocka_unit_test(a_crash_elsewhere_is_as_ever),
		cmocka_unit_test(handlers_are_the_programs),
		cmocka_unit_test(bad_parameters_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
