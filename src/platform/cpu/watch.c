/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The watchdog. A CUDA thread that loops on a plain load never lets the others of its block run, and what it waits for
 * may be theirs to do: on a GPU it would go on, here it hangs. The watchdog's thread, which sleeps while no kernel runs,
 * names a block whose thread has used that much CPU time without one switch, once until it switches again. CPU
 * time and not the clock: a machine with too much to do is no fault of the kernel.
 */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "platform/cpu/cpu.h"

#define DEFAULT_MS 5000

/* GPUNET_CPU_WATCHDOG_MS: 0 turns it off. */
uint64_t cpu_watch_default(void)
{
	const char *s = getenv("GPUNET_CPU_WATCHDOG_MS");
	char *end;
	unsigned long ms;

	if (!s || !*s)
		return DEFAULT_MS * UINT64_C(1000000);
	ms = strtoul(s, &end, 10);
	if (*end || ms > 86400000) {
		log_line(
			LOG_WARN,
			"GPUNET_CPU_WATCHDOG_MS=%s is no number of milliseconds up to a day; %d is used",
			s, DEFAULT_MS);
		ms = DEFAULT_MS;
	}
	return ms * UINT64_C(1000000);
}

static uint64_t cpu_time_ns(pthread_t t)
{
	struct timespec ts;
	clockid_t clock;

	if (pthread_getcpuclockid(t, &clock) || clock_gettime(clock, &ts))
		return 0;
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* CPU_SCHED: the fiber was written before the switch to it, which is a release that TSan does not see. */
CPU_SCHED static void report(struct cpu_worker *w, const struct cpu_fiber *f, uint64_t spent)
{
	const struct gpunet_cpu_dim *b = &w->block.pub.block_idx;
	const struct gpunet_cpu_dim *t = &f->pub.thread_idx;

	log_line(
		LOG_WARN,
		"block (%u,%u,%u) of a kernel on the CPU device: thread (%u,%u,%u) has run for %llu ms without "
		"letting the block's other threads run; a loop that waits must use the loads of dev/order.h, "
		"atomics or __nanosleep",
		b->x, b->y, b->z, t->x, t->y, t->z, (unsigned long long)(spent / 1000000u));
}

/* Under cpu_lock, so the worker and its block stay. */
static void look_at(struct cpu_dev *dev, struct cpu_worker *w)
{
	const struct cpu_block *b = &w->block;
	uint64_t beat = __atomic_load_n(&b->beat, __ATOMIC_RELAXED);
	uint64_t spent;

	if (!w->runs || beat != w->beat_seen || __atomic_load_n(&b->idle, __ATOMIC_RELAXED)) {
		w->beat_seen = beat;
		w->beat_cpu_ns = cpu_time_ns(w->thread);
		w->reported = 0;
		return;
	}
	spent = cpu_time_ns(w->thread) - w->beat_cpu_ns;
	if (spent < dev->watch_ns || w->reported)
		return;
	w->reported = 1;
	report(w, __atomic_load_n(&b->current, __ATOMIC_ACQUIRE), spent);
}

void *cpu_watch_main(void *arg)
{
	struct cpu_dev *dev = arg;
	uint64_t step = dev->watch_ns / 4 ? dev->watch_ns / 4 : 1;
	struct cpu_worker *w;
	struct timespec ts;

	pthread_mutex_lock(&cpu_lock);
	while (!dev->closing) {
		if (!dev->head) {
			pthread_cond_wait(&dev->watch, &cpu_lock);
			continue;
		}
		cpu_time_add(&ts, step);
		pthread_cond_timedwait(&dev->watch, &cpu_lock, &ts);
		for (w = dev->workers; w; w = w->next)
			look_at(dev, w);
	}
	pthread_mutex_unlock(&cpu_lock);
	return NULL;
}
