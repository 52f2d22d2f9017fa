/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library calls of the C library, as the simulation has it. The linker's option --wrap sends each call of NAME to
 * __wrap_NAME.
 */
#include "sim.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "platform/cpu/cpu.h"

/* How often a wait returns for no reason, per mille. */
#define SPURIOUS 20

#define WRAP(type, name, ...)            \
	type __real_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__); \
	type __wrap_##name(__VA_ARGS__)

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* ---- threads ---------------------------------------------------------------------------------------------------------- */

WRAP(int, pthread_create, pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	static unsigned n;
	char name[16];

	(void)a;
	sim_point();
	snprintf(name, sizeof(name), "thread%u", ++n);
	*t = (pthread_t)sim_spawn(name, fn, arg);
	return 0;
}

WRAP(int, pthread_join, pthread_t t, void **value)
{
	(void)value;
	sim_join((unsigned)t);
	return 0;
}

static unsigned detached[64], n_detached;

WRAP(int, pthread_detach, pthread_t t)
{
	detached[n_detached++ % 64] = (unsigned)t;
	return 0;
}

void sim_detached_end(void)
{
	while (n_detached)
		sim_join(detached[--n_detached % 64]);
}

/* ---- locks: held is the holder's number + 1 ------------------------------------------------------------------------------ */

struct lock {
	uint32_t holder;
};

WRAP(int, pthread_mutex_lock, pthread_mutex_t *m)
{
	struct lock *l = (struct lock *)(void *)m;

	if (!sim_on)
		return 0;
	sim_point();
	if (l->holder == sim_self() + 1)
		sim_fail("a thread takes a lock that it holds");
	while (l->holder)
		sim_park(m, SIM_NEVER, "a lock");
	l->holder = sim_self() + 1;
	return 0;
}

static void give_back(pthread_mutex_t *m)
{
	struct lock *l = (struct lock *)(void *)m;

	if (l->holder != sim_self() + 1)
		sim_fail("a thread gives back a lock that it does not hold");
	l->holder = 0;
	sim_wake(m, 1);
}

WRAP(int, pthread_mutex_unlock, pthread_mutex_t *m)
{
	if (!sim_on)
		return 0;
	give_back(m);
	sim_point();
	return 0;
}

WRAP(int, pthread_mutex_init, pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
	(void)a;
	memset(m, 0, sizeof(*m));
	return 0;
}

WRAP(int, pthread_mutex_destroy, pthread_mutex_t *m)
{
	if (sim_on && ((struct lock *)(void *)m)->holder)
		sim_fail("a lock is destroyed while it is held");
	return 0;
}

/* ---- conditions ----------------------------------------------------------------------------------------------------------- */

static bool cond_wait(pthread_cond_t *c, pthread_mutex_t *m, uint64_t deadline)
{
	bool woken;

	give_back(m);
	if (sim_chance(SPURIOUS))
		deadline = sim_now();
	woken = sim_park(c, deadline, "a condition");
	__wrap_pthread_mutex_lock(m);
	return woken;
}

WRAP(int, pthread_cond_wait, pthread_cond_t *c, pthread_mutex_t *m)
{
	cond_wait(c, m, SIM_NEVER);
	return 0;
}

WRAP(int, pthread_cond_timedwait, pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
	cond_wait(c, m, ns_of(t));
	return sim_now() >= ns_of(t) ? ETIMEDOUT : 0;
}

WRAP(int, pthread_cond_signal, pthread_cond_t *c)
{
	sim_wake(c, 1);
	sim_point();
	return 0;
}

WRAP(int, pthread_cond_broadcast, pthread_cond_t *c)
{
	sim_wake(c, ~0u);
	sim_point();
	return 0;
}

/* ---- signals, time, futexes ------------------------------------------------------------------------------------------------- */

WRAP(int, pthread_sigmask, int how, const sigset_t *set, sigset_t *old)
{
	(void)how;
	(void)set;
	if (old)
		sigemptyset(old);
	return 0;
}

WRAP(int, sched_yield, void)
{
	sim_yield();
	return 0;
}

WRAP(int, nanosleep, const struct timespec *t, struct timespec *left)
{
	static const char word;

	(void)left;
	sim_park(&word, sim_now() + ns_of(t), "its sleep's end");
	return 0;
}

WRAP(int, clock_gettime, clockid_t clock, struct timespec *t)
{
	if (!sim_on)
		return __real_clock_gettime(clock, t);
	t->tv_sec = (time_t)(sim_now() / 1000000000u);
	t->tv_nsec = (long)(sim_now() % 1000000000u);
	sim_point();
	return 0;
}

static long futex_wait(uint32_t *word, uint32_t value, const struct timespec *timeout)
{
	uint64_t deadline = timeout ? sim_now() + ns_of(timeout) : SIM_NEVER;

	sim_point();
	if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
		errno = EAGAIN;
		return -1;
	}
	if (sim_chance(SPURIOUS))
		deadline = sim_now();
	sim_park(word, deadline, "an event (futex)");
	return 0;
}

WRAP(long, syscall, long number, ...)
{
	const struct timespec *timeout;
	uint32_t *word, value;
	va_list ap;
	int op;

	va_start(ap, number);
	word = va_arg(ap, uint32_t *);
	op = va_arg(ap, int) & ~FUTEX_PRIVATE_FLAG;
	value = va_arg(ap, uint32_t);
	timeout = va_arg(ap, const struct timespec *);
	va_end(ap);
	if (number != SYS_futex)
		sim_fail("system call %ld is not simulated", number);
	if (op == FUTEX_WAIT)
		return futex_wait(word, value, timeout);
	sim_point();
	return (long)sim_wake(word, value);
}

/* ---- what kernels call ---------------------------------------------------------------------------------------------------- */

WRAP(void, gpunet_cpu_look, const void *word)
{
	sim_point();
	__real_gpunet_cpu_look(word);
}
