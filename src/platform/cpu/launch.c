/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels of a device run one after the other, as on one CUDA stream. A kernel's blocks are taken by workers, each a
 * thread that runs one block at a time; workers are started when a kernel first needs them and stay until close.
 *
 * All that a kernel needs is had at its launch, so that what is short is that call's error and no kernel's.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/sys.h"
#include "platform/cpu/cpu.h"

#define ARGS_ALIGN 64
#define SHARED_ALIGN 128

static unsigned live_fibers; /* under cpu_lock: of all devices */

/* ---- faults --------------------------------------------------------------------------------------------------------- */

void cpu_fault(struct cpu_block *b, int err, const char *fmt, ...)
{
	struct cpu_launch *l = b->launch;
	const struct gpunet_cpu_dim *at = &b->pub.block_idx;
	char text[CPU_FAULT_TEXT];
	int none = 0, n;
	va_list ap;

	if (!__atomic_compare_exchange_n(&l->err, &none, err, 0, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return;
	n = snprintf(text, sizeof(text), "block (%u,%u,%u): ", at->x, at->y, at->z);
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
	va_end(ap);
	memcpy(l->fault, text, sizeof(text));
	log_line(LOG_ERROR, "kernel %llu on the CPU device, %s", (unsigned long long)l->number,
		 text);
	/* Its blocks that wait are told; see gpunet_cpu_wait. */
	gpunet_cpu_event();
}

/* ---- workers -------------------------------------------------------------------------------------------------------- */

/* Under cpu_lock: the kernel that has a block to run now. */
static struct cpu_launch *ready(struct cpu_dev *dev)
{
	struct cpu_launch *l = dev->head;

	if (!l || l->next_block == l->n_blocks || l->resident == l->limit)
		return NULL;
	if (live_fibers && live_fibers + l->n_threads > CPU_FIBERS)
		return NULL;
	return l;
}

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* Under cpu_lock. */
static void block_take(struct cpu_worker *w, struct cpu_launch *l)
{
	struct cpu_dev *dev = w->dev;
	struct cpu_block *b = &w->block;
	const unsigned *grid = l->grid.grid;
	uint64_t number = l->next_block++;
	unsigned i;

	l->resident++;
	live_fibers += l->n_threads;
	b->launch = l;
	b->n_threads = l->n_threads;
	b->n_warps = l->n_warps;
	for (i = 0; i < l->n_warps; i++) {
		b->warp[i] = dev->free_warps;
		dev->free_warps = b->warp[i]->next;
	}
	b->pub.block_idx.x = (unsigned)(number % grid[0]);
	b->pub.block_idx.y = (unsigned)(number / grid[0] % grid[1]);
	b->pub.block_idx.z = (unsigned)(number / grid[0] / grid[1]);
	b->pub.grid_dim = (struct gpunet_cpu_dim){ grid[0], grid[1], grid[2] };
	b->pub.block_dim =
		(struct gpunet_cpu_dim){ l->grid.block[0], l->grid.block[1], l->grid.block[2] };
	b->pub.shared = l->shared ? l->shared[--l->shared_free] : NULL;
	b->seeded = dev->seed != 0;
	b->random = mix(dev->seed ^ mix(l->number ^ mix(number))) | 1;
	cpu_fibers_begin(b);
	w->runs = 1;
}

static void launch_free(struct cpu_launch *l)
{
	unsigned i;

	for (i = 0; l->shared && i < l->limit; i++)
		sys.free(l->shared[i]);
	sys.free(l->shared);
	sys.free(l->args_memory);
	sys.free(l);
}

/* Under cpu_lock: the first kernel of the queue has ended. Returns it, to be freed without the lock. */
static struct cpu_launch *launch_ended(struct cpu_dev *dev)
{
	struct cpu_launch *l = dev->head;
	int err;

	dev->head = l->next;
	if (!dev->head)
		dev->tail = NULL;
	dev->finished++;
	err = __atomic_load_n(&l->err, __ATOMIC_ACQUIRE);
	if (err && dev->faulted == dev->forgotten) {
		dev->err = err;
		dev->faulted = l->number;
		memcpy(dev->fault, l->fault, sizeof(dev->fault));
	}
	pthread_cond_broadcast(&dev->ended);
	return l;
}

/* Under cpu_lock. Returns the kernel if this was its last block. */
static struct cpu_launch *block_done(struct cpu_worker *w)
{
	struct cpu_dev *dev = w->dev, *d;
	struct cpu_block *b = &w->block;
	struct cpu_launch *l = b->launch;
	unsigned i;

	w->runs = 0;
	cpu_fibers_end(b);
	for (i = 0; i < b->n_warps; i++) {
		b->warp[i]->next = dev->free_warps;
		dev->free_warps = b->warp[i];
	}
	if (l->shared)
		l->shared[l->shared_free++] = b->pub.shared;
	l->resident--;
	live_fibers -= l->n_threads;
	/* A kernel that has failed begins no more of its blocks. */
	if (__atomic_load_n(&l->err, __ATOMIC_ACQUIRE))
		l->next_block = l->n_blocks;
	l = l->resident || l->next_block < l->n_blocks ? NULL : launch_ended(dev);
	/* This device's next kernel may run now, or another device's that had no fibers left. */
	for (d = cpu_devices; d; d = d->next)
		if (ready(d))
			pthread_cond_broadcast(&d->work);
	return l;
}

static void *worker_main(void *arg)
{
	struct cpu_worker *w = arg;
	struct cpu_dev *dev = w->dev;
	struct cpu_launch *l;

	cpu_crash_thread(w->crash_stack, sizeof(w->crash_stack));
	pthread_mutex_lock(&cpu_lock);
	for (;;) {
		l = ready(dev);
		if (!l) {
			if (dev->closing)
				break;
			pthread_cond_wait(&dev->work, &cpu_lock);
			continue;
		}
		block_take(w, l);
		pthread_mutex_unlock(&cpu_lock);
		cpu_block_run(&w->block);
		pthread_mutex_lock(&cpu_lock);
		l = block_done(w);
		if (l) {
			pthread_mutex_unlock(&cpu_lock);
			launch_free(l);
			pthread_mutex_lock(&cpu_lock);
		}
	}
	pthread_mutex_unlock(&cpu_lock);
	cpu_crash_thread(NULL, 0);
	return NULL;
}

static int workers_reserve(struct cpu_dev *dev, unsigned n)
{
	struct cpu_worker *w;
	int err;

	while (dev->n_workers < n) {
		w = sys.alloc(sizeof(*w));
		if (!w)
			return log_error(-ENOMEM, "CPU device: no memory for a thread");
		w->dev = dev;
		err = sys.thread_start(&w->thread, NULL, worker_main, w);
		if (err) {
			sys.free(w);
			return log_error(
				err,
				"CPU device: cannot start thread %u of %u: %s; raise ulimit -u or "
				"the control group's pids.max, or use fewer resident blocks",
				dev->n_workers + 1, n, strerror(-err));
		}
		pthread_mutex_lock(&cpu_lock);
		w->next = dev->workers;
		dev->workers = w;
		dev->n_workers++;
		pthread_mutex_unlock(&cpu_lock);
	}
	if (dev->watch_ns && !dev->watches) {
		err = sys.thread_start(&dev->watchdog, NULL, cpu_watch_main, dev);
		if (err)
			log_line(LOG_WARN,
				 "CPU device: no watchdog, its thread cannot be started: %s",
				 strerror(-err));
		dev->watches = !err;
	}
	return 0;
}

void cpu_stop_threads(struct cpu_dev *dev)
{
	struct cpu_worker *w;

	pthread_mutex_lock(&cpu_lock);
	dev->closing = 1;
	pthread_cond_broadcast(&dev->work);
	pthread_cond_broadcast(&dev->watch);
	pthread_mutex_unlock(&cpu_lock);
	if (dev->watches)
		pthread_join(dev->watchdog, NULL);
	while ((w = dev->workers)) {
		dev->workers = w->next;
		pthread_join(w->thread, NULL);
		sys.free(w);
	}
}

/* ---- launch --------------------------------------------------------------------------------------------------------- */

static int grid_check(const struct platform_grid *g, size_t args_size)
{
	static const unsigned most[] = { 0x7fffffffu, 65535, 65535, 1024, 1024, 64 };
	uint64_t threads = 1;
	unsigned i;

	for (i = 0; i < 6; i++) {
		unsigned n = i < 3 ? g->grid[i] : g->block[i - 3];

		if (!n || n > most[i])
			return log_error(-EINVAL,
					 "kernel launch: the %s's %c is %u, it must be 1 to %u",
					 i < 3 ? "grid" : "block", 'x' + (int)(i % 3), n, most[i]);
		if (i >= 3)
			threads *= n;
	}
	if (threads > CPU_MAX_THREADS)
		return log_error(-EINVAL,
				 "kernel launch: %llu threads a block, at most %d are possible",
				 (unsigned long long)threads, CPU_MAX_THREADS);
	if (g->shared > CPU_MAX_SHARED)
		return log_error(
			-EINVAL,
			"kernel launch: %zu bytes of shared memory, at most %u are possible",
			g->shared, CPU_MAX_SHARED);
	if (args_size > CPU_MAX_ARGS)
		return log_error(-EINVAL,
				 "kernel launch: %zu bytes of arguments, at most %d are possible",
				 args_size, CPU_MAX_ARGS);
	return 0;
}

static int shared_alloc(struct cpu_launch *l)
{
	unsigned i;

	if (!l->grid.shared)
		return 0;
	l->shared = sys.alloc(l->limit * sizeof(*l->shared));
	for (i = 0; l->shared && i < l->limit; i++) {
		l->shared[i] = sys.alloc(l->grid.shared);
		if (!l->shared[i])
			break;
	}
	if (i < l->limit)
		return log_error(
			-ENOMEM,
			"kernel launch: no memory for %u blocks' shared memory, %zu bytes each",
			l->limit, l->grid.shared);
	l->shared_free = l->limit;
	return 0;
}

static struct cpu_launch *launch_new(struct cpu_dev *dev, const struct platform_grid *g,
				     const void *args, size_t args_size)
{
	struct cpu_launch *l = sys.alloc(sizeof(*l));
	unsigned most;

	if (!l)
		return NULL;
	l->args_memory = sys.alloc(args_size + ARGS_ALIGN);
	if (!l->args_memory) {
		sys.free(l);
		return NULL;
	}
	l->args = (void *)(((uintptr_t)l->args_memory + ARGS_ALIGN - 1) &
			   ~(uintptr_t)(ARGS_ALIGN - 1));
	if (args_size)
		memcpy(l->args, args, args_size);
	l->grid = *g;
	l->n_threads = g->block[0] * g->block[1] * g->block[2];
	l->n_warps = (l->n_threads + CPU_LANES - 1) / CPU_LANES;
	l->n_blocks = (uint64_t)g->grid[0] * g->grid[1] * g->grid[2];
	most = CPU_FIBERS / l->n_threads;
	l->limit = dev->max_blocks < most ? dev->max_blocks : most;
	if (l->limit > l->n_blocks)
		l->limit = (unsigned)l->n_blocks;
	return l;
}

static void enqueue(struct cpu_dev *dev, struct cpu_launch *l)
{
	unsigned i;

	pthread_mutex_lock(&cpu_lock);
	dev->forgotten = dev->told;
	l->number = ++dev->launched;
	if (dev->tail)
		dev->tail->next = l;
	else
		dev->head = l;
	dev->tail = l;
	if (dev->head == l)
		for (i = 0; i < l->limit; i++)
			pthread_cond_signal(&dev->work);
	pthread_cond_signal(&dev->watch);
	pthread_mutex_unlock(&cpu_lock);
}

int cpu_launch(struct platform_dev *d, void (*entry)(void *), const struct platform_grid *g,
	       const void *args, size_t args_size)
{
	struct cpu_dev *dev = cpu_dev_of(d);
	struct cpu_launch *l;
	int err = grid_check(g, args_size);

	if (err)
		return err;
	l = launch_new(dev, g, args, args_size);
	if (!l)
		return log_error(-ENOMEM, "kernel launch: no memory for its arguments");
	l->entry = entry;
	pthread_mutex_lock(&dev->launching);
	err = shared_alloc(l);
	if (!err)
		err = cpu_warps_reserve(dev, l->limit * l->n_warps,
					l->n_threads < CPU_LANES ? l->n_threads : CPU_LANES);
	if (!err)
		err = workers_reserve(dev, l->limit);
	if (!err)
		enqueue(dev, l);
	pthread_mutex_unlock(&dev->launching);
	if (err)
		launch_free(l);
	return err;
}

/* ---- sync ----------------------------------------------------------------------------------------------------------- */

void cpu_time_add(struct timespec *ts, uint64_t ns)
{
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_sec += (time_t)(ns / 1000000000u);
	ts->tv_nsec += (long)(ns % 1000000000u);
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_nsec -= 1000000000;
		ts->tv_sec++;
	}
}

/* A fault is told to all who ask until the next kernel is launched, and to those who had begun to wait before that. */
int cpu_sync(struct platform_dev *d, uint64_t timeout_ns)
{
	struct cpu_dev *dev = cpu_dev_of(d);
	char fault[CPU_FAULT_TEXT];
	struct timespec until;
	uint64_t target, known;
	int err = 0, late = 0;

	if (timeout_ns != UINT64_MAX)
		cpu_time_add(&until, timeout_ns);
	pthread_mutex_lock(&cpu_lock);
	target = dev->launched;
	known = dev->forgotten;
	while (dev->finished < target && !late) {
		if (timeout_ns == UINT64_MAX)
			pthread_cond_wait(&dev->ended, &cpu_lock);
		else
			late = pthread_cond_timedwait(&dev->ended, &cpu_lock, &until);
	}
	if (dev->finished < target) {
		err = -ETIMEDOUT;
	} else if (dev->faulted != known) {
		err = dev->err;
		dev->told = dev->faulted;
		memcpy(fault, dev->fault, sizeof(fault));
	}
	pthread_mutex_unlock(&cpu_lock);
	if (err && err != -ETIMEDOUT)
		log_keep("a kernel failed on the CPU device: %s", fault);
	return err;
}
