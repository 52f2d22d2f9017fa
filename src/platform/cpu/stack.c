/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Warps with their stacks. A warp's stacks lie in one mapping; below each is a guard, made only for as many lanes as some
 * kernel needed, since every guard costs the process two of the mappings that the system allows it.
 *
 * TSan takes a fiber for a thread. Making one takes it long, so a fiber keeps the one that it had for the block before;
 * a warp goes from block to block through cpu_lock, so the two blocks are ordered anyway and no race is hidden by it.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "platform/cpu/cpu.h"

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/*
 * What no frame may touch, below each stack: address space only. More than a page, for a frame that does not fit must not
 * step over it into another lane's stack. The page on top of the 64 KiB is for the TLB: stacks a power of two apart would
 * all use the same few of its entries.
 */
static size_t guard_size(void)
{
	return ((size_t)64 << 10) + page_size();
}

/* The bytes before the stacks. */
static size_t head_size(void)
{
	return (sizeof(struct cpu_warp) + page_size() - 1) & ~(page_size() - 1);
}

static struct cpu_warp *warp_new(struct cpu_dev *dev)
{
	size_t stride = dev->stack_size + guard_size();
	size_t size = head_size() + stride * CPU_LANES;
	struct cpu_warp *w = sys.map(size);
	unsigned i;

	if (!w)
		return NULL;
	w->map_size = size;
	for (i = 0; i < CPU_LANES; i++) {
		w->fiber[i].warp = w;
		w->fiber[i].pub.lane = i;
		w->fiber[i].stack = (char *)w + head_size() + i * stride + guard_size();
		w->fiber[i].stack_size = dev->stack_size;
	}
	return w;
}

/* What the sanitizers know of a fiber that will not go on. */
static void fiber_forget(struct cpu_fiber *f)
{
#if CPU_TSAN
	if (f->tsan)
		__tsan_destroy_fiber(f->tsan);
	f->tsan = NULL;
#endif
#if CPU_ASAN
	__asan_unpoison_memory_region(f->stack, f->stack_size);
#endif
	(void)f;
}

static void warp_forget(struct cpu_warp *w)
{
	unsigned i;

	for (i = 0; i < CPU_LANES; i++)
		fiber_forget(&w->fiber[i]);
}

#if CPU_TSAN
static unsigned warp_count(const struct cpu_warp *w)
{
	unsigned i, n = 0;

	for (i = 0; i < CPU_LANES; i++)
		n += w->fiber[i].tsan != NULL;
	return n;
}

/* Makes room for a block: what is kept for fibers that are in no block goes if it would be too much. */
static void tsan_trim(unsigned more)
{
	struct cpu_dev *dev;
	struct cpu_warp *w;
	unsigned n = more;

	for (dev = cpu_devices; dev; dev = dev->next)
		for (w = dev->all_warps; w; w = w->next_all)
			n += warp_count(w);
	for (dev = cpu_devices; dev; dev = dev->next)
		for (w = dev->free_warps; w && n > CPU_FIBERS; w = w->next) {
			n -= warp_count(w);
			warp_forget(w);
		}
}
#endif

void cpu_fibers_begin(struct cpu_block *b)
{
#if CPU_TSAN
	unsigned i;

	tsan_trim(b->n_threads);
	for (i = 0; i < b->n_threads; i++) {
		struct cpu_fiber *f = &b->warp[i / CPU_LANES]->fiber[i % CPU_LANES];

		if (!f->tsan)
			f->tsan = __tsan_create_fiber(0);
	}
#endif
	(void)b;
}

void cpu_fibers_end(struct cpu_block *b)
{
	unsigned i;

	/* Frames that were left and not returned from. */
	for (i = 0; b->stuck && i < b->n_warps; i++)
		warp_forget(b->warp[i]);
}

static void warp_free(struct cpu_warp *w)
{
	warp_forget(w);
	sys.unmap(w, w->map_size);
}

/* Gives the first `lanes` stacks their guards. Harmless while a block runs on the warp: it uses other pages. */
static int warp_guard(struct cpu_warp *w, unsigned lanes)
{
	size_t guard = guard_size();
	int err;

	while (w->ready < lanes) {
		err = cpu_hooks.protect((char *)w->fiber[w->ready].stack - guard, guard);
		if (err)
			return err;
		w->ready++;
	}
	return 0;
}

int cpu_warps_reserve(struct cpu_dev *dev, unsigned warps, unsigned lanes)
{
	struct cpu_warp *w;
	int err;

	while (dev->n_warps < warps) {
		w = warp_new(dev);
		if (!w)
			return log_error(
				-ENOMEM,
				"CPU device: no memory for the stacks of %u warps (%zu KiB a "
				"thread); use fewer or smaller blocks, or raise ulimit -v",
				warps, dev->stack_size >> 10);
		pthread_mutex_lock(&cpu_lock);
		w->next_all = dev->all_warps;
		dev->all_warps = w;
		w->next = dev->free_warps;
		dev->free_warps = w;
		dev->n_warps++;
		pthread_mutex_unlock(&cpu_lock);
	}
	for (w = dev->all_warps; w; w = w->next_all) {
		err = warp_guard(w, lanes);
		if (err)
			return log_error(
				err,
				"CPU device: cannot protect the end of a thread's stack: %s; "
				"raise the sysctl vm.max_map_count or use fewer threads",
				strerror(-err));
	}
	return 0;
}

void cpu_warps_release(struct cpu_dev *dev)
{
	struct cpu_warp *w;

	while ((w = dev->all_warps)) {
		dev->all_warps = w->next_all;
		warp_free(w);
	}
	dev->free_warps = NULL;
	dev->n_warps = 0;
}
