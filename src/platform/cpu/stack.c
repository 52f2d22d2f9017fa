/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Warps with their stacks. A warp's stacks lie in one mapping; below each is a guard page, made only for as many lanes as
 * some kernel needed, since every guard page costs the process two of the mappings that the system allows it.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "platform/cpu/cpu.h"

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

static struct cpu_warp *warp_new(struct cpu_dev *dev)
{
	size_t stride = dev->stack_size + page_size();
	struct cpu_warp *w = sys.alloc(sizeof(*w));
	unsigned i;

	if (!w)
		return NULL;
	w->map_size = stride * CPU_LANES;
	w->map = sys.map(w->map_size);
	if (!w->map) {
		sys.free(w);
		return NULL;
	}
	for (i = 0; i < CPU_LANES; i++) {
		w->fiber[i].warp = w;
		w->fiber[i].pub.lane = i;
		w->fiber[i].stack = (char *)w->map + i * stride + page_size();
		w->fiber[i].stack_size = dev->stack_size;
	}
	return w;
}

static void warp_free(struct cpu_warp *w)
{
	sys.unmap(w->map, w->map_size);
	sys.free(w);
}

/* Gives the first `lanes` stacks their guard pages. Harmless while a block runs on the warp: it uses other pages. */
static int warp_guard(struct cpu_warp *w, unsigned lanes)
{
	size_t page = page_size();
	int err;

	while (w->ready < lanes) {
		err = cpu_hooks.protect((char *)w->fiber[w->ready].stack - page, page);
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
