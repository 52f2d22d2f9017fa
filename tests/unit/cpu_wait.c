/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits: none is missed, none burns the CPU, deadlines hold. */
#include <signal.h>
#include <sys/time.h>

#include "cpu_test.h"
#include "platform/cpu/sched.h"

#define WORDS 8

/* A store that a waiter waits for, as dev/order.h makes it. */
GNET_DEV void publish(uint64_t *p, uint64_t v)
{
	gpunet_cpu_look(p);
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
	gpunet_cpu_event_at(p);
}

GNET_DEV uint64_t look(const uint64_t *p)
{
	gpunet_cpu_look(p);
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

struct pong {
	uint64_t *ping, *pong;
	uint64_t turns;
};

GNET_KERNEL(pong_kernel, struct pong, a)
{
	uint64_t i;

	for (i = 1; i <= a.turns; i++) {
		if (threadIdx.x == 0) {
			while (look(a.ping) < i)
				gpunet_cpu_wait(0);
			publish(a.pong, i);
		}
		__syncthreads();
	}
}

/* The host answers as a proxy would: changes a word, then notifies. It waits on the same event counter. */
static void no_wakeup_between_host_and_kernel_is_lost(void **state)
{
	uint64_t seed, i, turns = CPU_TSAN ? 3000 : 20000;

	(void)state;
	for (seed = 0; seed < 2; seed++) {
		struct platform_dev *d = test_open(1, seed);
		struct platform_grid g = test_grid(1, seed ? 1 : 33);
		uint64_t ping = 0, pong = 0;
		struct pong a = { &ping, &pong, turns };

		assert_int_equal(platform_cpu.launch(d, pong_kernel_entry, &g, &a, sizeof(a)), 0);
		for (i = 1; i <= turns; i++) {
			__atomic_store_n(&ping, i, __ATOMIC_RELEASE);
			platform_cpu.notify(d, NULL);
			while (__atomic_load_n(&pong, __ATOMIC_ACQUIRE) < i)
				gpunet_cpu_wait(0);
		}
		assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
		platform_cpu.close(d);
	}
}

struct ring {
	uint64_t *word; /* [blocks][WORDS] */
	uint64_t turns;
	uint64_t *looked; /* by the thread that waits for two words at once */
};

/*
 * A token goes round through all blocks, and in each block through WORDS threads; nothing else makes events. With one
 * block there may be one thread more, which waits for either of two words, with switches between its two looks.
 */
GNET_KERNEL(ring_kernel, struct ring, a)
{
	unsigned n = gridDim.x * WORDS;
	unsigned me = blockIdx.x * WORDS + threadIdx.x;
	unsigned next = (me + 1) % n;
	uint64_t i;

	if (threadIdx.x == WORDS) {
		while (look(&a.word[1]) < a.turns && look(&a.word[n - 1]) < a.turns) {
			++*a.looked;
			gpunet_cpu_wait(0);
		}
		return;
	}
	for (i = 1; i <= a.turns; i++) {
		while (look(&a.word[me]) < i)
			gpunet_cpu_wait(0);
		publish(&a.word[next], next ? i : i + 1);
	}
}

static void no_wakeup_between_fibers_and_blocks_is_lost(void **state)
{
	static const uint64_t seeds[] = { 0, 1, 99 };
	unsigned i;

	(void)state;
	for (i = 0; i < 3; i++) {
		struct platform_dev *d = test_open(3, seeds[i]);
		uint64_t word[3 * WORDS] = { 1 }, looked = 0;
		struct ring a = { word, CPU_TSAN ? 60 : 500, &looked };
		struct platform_grid g = test_grid(3, WORDS + (i < 2));

		g.grid[0] = i < 2 ? 1 : 3;
		assert_int_equal(test_run_entry(d, ring_kernel_entry, g, &a, sizeof(a)), 0);
		platform_cpu.close(d);
	}
}

struct late {
	uint64_t *word;
};

/* Thread 0 looks, and before it waits the others have had their turn: the one event there is comes in between. */
GNET_KERNEL(late_kernel, struct late, a)
{
	unsigned i;

	if (threadIdx.x) {
		publish(a.word, 1);
		return;
	}
	while (!__atomic_load_n(a.word, __ATOMIC_ACQUIRE)) {
		for (i = 0; i < 200; i++)
			gpunet_cpu_yield();
		gpunet_cpu_wait(0);
	}
}

static void an_event_between_look_and_wait_is_not_lost(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 20; seed++) {
		struct platform_dev *d = test_open(1, seed);
		uint64_t word = 0;
		struct late a = { &word };

		assert_int_equal(test_run(d, late_kernel, 1, 2, a), 0);
		platform_cpu.close(d);
	}
}

static uint64_t *late_word;

/* The clock is read after a round was found empty and before the thread sleeps. */
static uint64_t now_and_publish(void)
{
	uint64_t *word = __atomic_exchange_n(&late_word, NULL, __ATOMIC_ACQ_REL);

	if (word) {
		__atomic_store_n(word, 1, __ATOMIC_RELEASE);
		gpunet_cpu_event();
	}
	return sys_real.now_ns();
}

struct once {
	uint64_t *word, *waited;
};

GNET_KERNEL(once_kernel, struct once, a)
{
	uint64_t start = sys_real.now_ns();

	__atomic_store_n(&late_word, a.word, __ATOMIC_RELEASE);
	while (!__atomic_load_n(a.word, __ATOMIC_ACQUIRE))
		gpunet_cpu_wait(start + 20 * SECOND);
	*a.waited = sys_real.now_ns() - start;
}

static void an_event_before_the_thread_sleeps_is_not_lost(void **state)
{
	struct platform_dev *d = test_open(1, 0);
	uint64_t word = 0, waited = 0;
	struct once a = { &word, &waited };

	(void)state;
	sys.now_ns = now_and_publish;
	assert_int_equal(test_run(d, once_kernel, 1, 1, a), 0);
	sys.now_ns = sys_real.now_ns;
	assert_int_equal(word, 1);
	assert_in_range(waited, 1, 19 * SECOND);
	platform_cpu.close(d);
}

struct until {
	uint64_t *word;
	uint64_t ns;
	uint64_t *waited;
	unsigned *turns;
};

GNET_KERNEL(until_kernel, struct until, a)
{
	uint64_t start = gnet_time_ns(), now = start;

	while (!look(a.word) && now - start < a.ns) {
		gpunet_cpu_wait(start + a.ns);
		now = gnet_time_ns();
		atomicAdd(a.turns, 1u);
	}
	a.waited[threadIdx.x] = now - start;
}

static void a_wait_ends_at_its_deadline_and_sleeps_until_then(void **state)
{
	struct platform_dev *d = test_open(1, 0);
	uint64_t word = 0, waited[40], spent;
	unsigned turns = 0, i;
	struct until a = { &word, SECOND / 5, waited, &turns };

	(void)state;
	spent = test_cpu_time();
	assert_int_equal(test_run(d, until_kernel, 1, 40, a), 0);
	spent = test_cpu_time() - spent;
	for (i = 0; i < 40; i++)
		assert_true(waited[i] >= a.ns);
	/* Looks, not time: each fiber sleeps once; it may be woken early a few times, but it does not poll. */
	assert_in_range(turns, 40, 400);
	if (!CPU_TSAN)
		assert_in_range(spent, 0, a.ns / 4);
	platform_cpu.close(d);
}

static void an_event_ends_a_wait_before_its_deadline(void **state)
{
	struct platform_dev *d = test_open(1, 0);
	struct platform_grid g = test_grid(1, 40);
	uint64_t word = 0, waited[40];
	unsigned turns = 0, i;
	struct until a = { &word, 300 * SECOND, waited, &turns };

	(void)state;
	assert_int_equal(platform_cpu.launch(d, until_kernel_entry, &g, &a, sizeof(a)), 0);
	test_sleep_ms(20);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	platform_cpu.notify(d, NULL);
	assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	for (i = 0; i < 40; i++)
		assert_true(waited[i] < a.ns);
	platform_cpu.close(d);
}

/* Until `n` blocks sleep on the event counter. */
static void wait_until_idle(struct platform_dev *d, unsigned n)
{
	struct cpu_worker *w;
	unsigned idle;

	do {
		test_sleep_ms(5);
		pthread_mutex_lock(&cpu_lock);
		for (idle = 0, w = cpu_dev_of(d)->workers; w; w = w->next)
			idle += __atomic_load_n(&w->block.idle, __ATOMIC_RELAXED);
		pthread_mutex_unlock(&cpu_lock);
	} while (idle < n);
}

/* An event of any device, or of a host thread, is for all. */
static void a_kernel_of_another_device_ends_a_wait(void **state)
{
	struct platform_dev *d1 = test_open(1, 0), *d2 = test_open(1, 0);
	struct platform_grid g = test_grid(1, 2);
	uint64_t ping = 0, pong = 0;
	struct pong a = { &ping, &pong, 1 }, b = { &pong, &ping, 1 };

	(void)state;
	assert_int_equal(platform_cpu.launch(d1, pong_kernel_entry, &g, &a, sizeof(a)), 0);
	wait_until_idle(d1, 1);
	assert_int_equal(platform_cpu.sync(d1, 0), -ETIMEDOUT);
	__atomic_store_n(&ping, 1, __ATOMIC_RELEASE);
	assert_int_equal(platform_cpu.launch(d2, pong_kernel_entry, &g, &b, sizeof(b)), 0);
	platform_cpu.notify(d2, NULL);
	assert_int_equal(platform_cpu.sync(d1, ENOUGH), 0);
	assert_int_equal(platform_cpu.sync(d2, ENOUGH), 0);
	platform_cpu.close(d1);
	platform_cpu.close(d2);
}

static void kernels_that_wait_use_no_cpu(void **state)
{
	struct platform_dev *d = test_open(16, 0);
	struct platform_grid g = test_grid(16, 16);
	uint64_t ping = 0, pong = 0, spent;
	struct pong a = { &ping, &pong, 1 };

	(void)state;
	assert_int_equal(platform_cpu.launch(d, pong_kernel_entry, &g, &a, sizeof(a)), 0);
	wait_until_idle(d, 16);
	spent = test_cpu_time();
	test_sleep_ms(400);
	spent = test_cpu_time() - spent;
	__atomic_store_n(&ping, 1, __ATOMIC_RELEASE);
	platform_cpu.notify(d, NULL);
	assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	assert_in_range(spent, 0, SECOND / 50);
	platform_cpu.close(d);
}

#define LINE 16 /* words */

struct crowd {
	uint64_t *word[16]; /* one a block, the topics differ */
	uint64_t *stop;
	uint64_t turns;
	unsigned *looked; /* [blocks] */
	uint64_t *pong;
};

/* Block 0 is spoken to; the others wait for words of their own and, as it does, for the end. */
GNET_KERNEL(crowd_kernel, struct crowd, a)
{
	uint64_t i = 1;

	while (!look(a.stop)) {
		a.looked[blockIdx.x]++;
		if (look(a.word[blockIdx.x]) >= i)
			publish(a.pong, i++);
		else
			gpunet_cpu_wait(0);
	}
}

static void an_event_wakes_those_that_looked_at_its_word(void **state)
{
	static uint64_t area[4096] __attribute__((aligned(128)));
	struct platform_dev *d = test_open(16, 0);
	struct platform_grid g = test_grid(16, 1);
	unsigned looked[16] = { 0 }, n = 0, k, others = 0;
	uint64_t *stop = area, *pong = area + LINE, i;
	struct crowd a = { .stop = stop, .turns = 500, .looked = looked, .pong = pong };
	uint64_t *p;

	(void)state;
	for (p = area + 2 * LINE; n < 16; p += LINE) {
		for (k = 0; k < n && cpu_topic(a.word[k]) != cpu_topic(p); k++) {
		}
		if (k == n && cpu_topic(p) != cpu_topic(stop) && cpu_topic(p) != cpu_topic(pong))
			a.word[n++] = p;
	}
	assert_int_equal(platform_cpu.launch(d, crowd_kernel_entry, &g, &a, sizeof(a)), 0);
	wait_until_idle(d, 16);
	for (i = 1; i <= a.turns; i++) {
		__atomic_store_n(a.word[0], i, __ATOMIC_RELEASE);
		gpunet_cpu_event_at(a.word[0]);
		while (__atomic_load_n(pong, __ATOMIC_ACQUIRE) < i)
			gpunet_cpu_wait(0);
	}
	wait_until_idle(d, 16);
	__atomic_store_n(stop, 1, __ATOMIC_RELEASE);
	gpunet_cpu_event_at(stop);
	assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	assert_true(looked[0] > a.turns);
	/* While they came to rest, events of block 0 kept them awake; after that none did. */
	for (k = 1; k < 16; k++)
		others += looked[k];
	assert_in_range(others, 15, 15 * 20);
	platform_cpu.close(d);
}

struct round {
	uint64_t *other, *first, *second;
};

/*
 * Thread 1 leaves a wait in a round in which thread 0 then makes an event, looks at a word, and comes into the next round
 * before it looks at the second one and waits. The first word must not be forgotten with the round.
 */
GNET_KERNEL(round_kernel, struct round, a)
{
	unsigned i;

	if (threadIdx.x == 0)
		publish(a.other, 1);
	gpunet_cpu_wait(0);
	if (threadIdx.x == 0) {
		publish(a.other, 2);
		return;
	}
	while (!look(a.first)) {
		for (i = 0; i < 64; i++)
			gnet_time_ns();
		if (look(a.second))
			break;
		gpunet_cpu_wait(0);
	}
}

static void what_was_looked_at_in_the_round_before_is_not_forgotten(void **state)
{
	static uint64_t word[3 * LINE] __attribute__((aligned(128)));
	struct platform_dev *d = test_open(1, 0);
	struct platform_grid g = test_grid(1, 2);
	struct round a = { word, word + LINE, word + 2 * LINE };

	(void)state;
	assert_int_not_equal(cpu_topic(a.first), cpu_topic(a.second));
	assert_int_equal(platform_cpu.launch(d, round_kernel_entry, &g, &a, sizeof(a)), 0);
	wait_until_idle(d, 1);
	__atomic_store_n(a.first, 1, __ATOMIC_RELEASE);
	gpunet_cpu_event_at(a.first);
	assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	platform_cpu.close(d);
}

static void on_signal(int number)
{
	int err = errno;

	(void)number;
	gpunet_cpu_event();
	errno = err;
}

/* An abort may come from a signal handler, also of a thread that is just making an event or going to sleep. */
static void a_signal_handler_may_make_an_event(void **state)
{
	const struct itimerval often = { { 0, 50 }, { 0, 50 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_handler = on_signal }, old;
	struct platform_dev *d = test_open(4, 0);
	struct platform_grid g = test_grid(4, 1);
	uint64_t ping = 0, pong = 0, i, end = sys_real.now_ns() + SECOND / 4;
	struct pong a = { &ping, &pong, 1 };

	(void)state;
	assert_int_equal(platform_cpu.launch(d, pong_kernel_entry, &g, &a, sizeof(a)), 0);
	assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
	assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
	for (i = 0; sys_real.now_ns() < end; i++) {
		gpunet_cpu_event_at(&ping);
		gpunet_cpu_wait(sys_real.now_ns() + 10000);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	sigaction(SIGALRM, &old, NULL);
	__atomic_store_n(&ping, 1, __ATOMIC_RELEASE);
	platform_cpu.notify(d, NULL);
	assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	assert_true(i > 10);
	platform_cpu.close(d);
}

struct nap {
	unsigned *flag, *turns;
	unsigned ns;
};

/* A user's own spin: it never tells the device what it waits for. */
GNET_KERNEL(nap_kernel, struct nap, a)
{
	while (!atomicAdd(a.flag, 0u)) {
		atomicAdd(a.turns, 1u);
		__nanosleep(a.ns);
	}
}

static void a_spin_with_nanosleep_sleeps(void **state)
{
	struct platform_dev *d = test_open(2, 0);
	struct platform_grid g = test_grid(2, 32);
	unsigned flag = 0, turns = 0;
	struct nap a = { &flag, &turns, 20000000 };
	uint64_t spent = test_cpu_time();

	(void)state;
	assert_int_equal(platform_cpu.launch(d, nap_kernel_entry, &g, &a, sizeof(a)), 0);
	while (__atomic_load_n(&turns, __ATOMIC_SEQ_CST) < 64)
		test_sleep_ms(1);
	test_sleep_ms(300);
	__atomic_store_n(&flag, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(platform_cpu.sync(d, ENOUGH), 0);
	spent = test_cpu_time() - spent;
	assert_in_range(turns, 64, 64 * 400);
	if (!CPU_TSAN)
		assert_in_range(spent, 0, SECOND / 10);
	platform_cpu.close(d);
}

struct locked {
	unsigned *lock, *owner;
	uint64_t *count;
};

/* A spin lock of plain atomics: in one block it needs the holder to be switched to, between blocks only time. */
GNET_KERNEL(lock_kernel, struct locked, a)
{
	unsigned i;

	for (i = 0; i < 20; i++) {
		while (atomicCAS(a.lock, 0u, 1u)) {
		}
		__threadfence();
		++*a.count;
		atomicAdd(a.owner, 1u);
		++*a.count;
		__threadfence();
		atomicExch(a.lock, 0u);
	}
}

static void a_spin_lock_of_atomics_is_passed_on(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 3; seed++) {
		struct platform_dev *d = test_open(2, seed);
		unsigned lock = 0, owner = 0;
		uint64_t count = 0;
		struct locked a = { &lock, &owner, &count };

		assert_int_equal(test_run(d, lock_kernel, 2, 40, a), 0);
		assert_int_equal(count, 2 * 2 * 40 * 20);
		platform_cpu.close(d);
	}
}

struct flag {
	unsigned *word;
};

/* The first thread of each warp spins until the last of the block has had its turn. */
GNET_KERNEL(flag_kernel, struct flag, a)
{
	if (threadIdx.x == blockDim.x - 1)
		atomicExch(a.word, 1u);
	while (!atomicAdd(a.word, 0u)) {
	}
}

static void a_spin_on_an_atomic_lets_the_others_run(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 0; seed < 3; seed++) {
		struct platform_dev *d = test_open(1, seed);
		unsigned word = 0;
		struct flag a = { &word };

		assert_int_equal(test_run(d, flag_kernel, 1, 70, a), 0);
		platform_cpu.close(d);
	}
}

struct kicks {
	void *dev;
	unsigned *called;
};

GNET_KERNEL(kick_kernel, struct kicks, a)
{
	gpunet_cpu_kick(a.dev, threadIdx.x);
}

static void on_kick(void *ctx, unsigned q)
{
	__atomic_fetch_add((unsigned *)ctx + q, 1, __ATOMIC_RELAXED);
}

static void a_kick_calls_what_the_host_has_set(void **state)
{
	struct platform_dev *d1 = test_open(2, 0), *d2 = test_open(2, 0);
	unsigned called1[4] = { 0 }, called2[4] = { 0 }, i;
	struct kicks a = { d1, NULL };

	(void)state;
	assert_int_equal(test_run(d1, kick_kernel, 2, 4, a), 0);
	assert_int_equal(platform_cpu.set_kick(d1, on_kick, called1), 1);
	assert_int_equal(platform_cpu.set_kick(d2, on_kick, called2), 1);
	assert_int_equal(test_run(d1, kick_kernel, 2, 4, a), 0);
	assert_int_equal(platform_cpu.set_kick(d1, NULL, NULL), 1);
	assert_int_equal(test_run(d1, kick_kernel, 2, 4, a), 0);
	for (i = 0; i < 4; i++) {
		assert_int_equal(called1[i], 2);
		assert_int_equal(called2[i], 0);
	}
	platform_cpu.close(d1);
	platform_cpu.close(d2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_wakeup_between_host_and_kernel_is_lost),
		cmocka_unit_test(no_wakeup_between_fibers_and_blocks_is_lost),
		cmocka_unit_test(an_event_between_look_and_wait_is_not_lost),
		cmocka_unit_test(an_event_before_the_thread_sleeps_is_not_lost),
		cmocka_unit_test(a_wait_ends_at_its_deadline_and_sleeps_until_then),
		cmocka_unit_test(an_event_ends_a_wait_before_its_deadline),
		cmocka_unit_test(a_kernel_of_another_device_ends_a_wait),
		cmocka_unit_test(kernels_that_wait_use_no_cpu),
		cmocka_unit_test(an_event_wakes_those_that_looked_at_its_word),
		cmocka_unit_test(what_was_looked_at_in_the_round_before_is_not_forgotten),
		cmocka_unit_test(a_signal_handler_may_make_an_event),
		cmocka_unit_test(a_spin_with_nanosleep_sleeps),
		cmocka_unit_test(a_spin_lock_of_atomics_is_passed_on),
		cmocka_unit_test(a_spin_on_an_atomic_lets_the_others_run),
		cmocka_unit_test(a_kick_calls_what_the_host_has_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
