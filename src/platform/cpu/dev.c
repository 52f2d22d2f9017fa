/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU device's place in the table of devices: open, close, memory. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "platform/cpu/cpu.h"

static int protect(void *p, size_t n)
{
	return mprotect(p, n, PROT_NONE) ? -errno : 0;
}

struct cpu_hooks cpu_hooks = { protect, false };
pthread_mutex_t cpu_lock = PTHREAD_MUTEX_INITIALIZER;
struct cpu_dev *cpu_devices;

static int count(char *why, size_t why_size)
{
	return 1;
}

/* Members that a caller with older headers does not have count as 0. */
static struct platform_params params_of(const struct platform_params *p)
{
	struct platform_params out = { 0 };

	if (p)
		memcpy(&out, p, p->size < sizeof(out) ? p->size : sizeof(out));
	return out;
}

static int conditions_init(struct cpu_dev *dev)
{
	pthread_cond_t *const all[] = { &dev->work, &dev->ended, &dev->watch };
	pthread_condattr_t a;
	unsigned i;
	int err = pthread_condattr_init(&a);

	if (err)
		return -err;
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	for (i = 0; i < 3 && !err; i++)
		err = pthread_cond_init(all[i], &a);
	if (err)
		while (--i > 0)
			pthread_cond_destroy(all[i - 1]);
	pthread_condattr_destroy(&a);
	return -err;
}

static void conditions_destroy(struct cpu_dev *dev)
{
	pthread_cond_destroy(&dev->work);
	pthread_cond_destroy(&dev->ended);
	pthread_cond_destroy(&dev->watch);
}

static int open_dev(int ordinal, const struct platform_params *p, struct platform_dev **out)
{
	struct platform_params params = params_of(p);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct cpu_dev *dev;
	int err;

	if (ordinal)
		return log_error(-ENODEV, "CPU device %d: there is only number 0", ordinal);
	if (params.cpu_blocks > CPU_MAX_BLOCKS)
		return log_error(-EINVAL, "cpu_blocks is %u, it must be 1 to %d", params.cpu_blocks,
				 CPU_MAX_BLOCKS);
	if (params.cpu_stack && params.cpu_stack < CPU_MIN_STACK)
		return log_error(-EINVAL, "cpu_stack is %zu bytes, it must be at least %zu",
				 params.cpu_stack, CPU_MIN_STACK);
	dev = sys.alloc(sizeof(*dev));
	if (!dev)
		return log_error(-ENOMEM, "CPU device: no memory");
	dev->max_blocks = params.cpu_blocks ? params.cpu_blocks : CPU_DEFAULT_BLOCKS;
	dev->seed = params.cpu_seed;
	dev->stack_size = params.cpu_stack ? params.cpu_stack : CPU_DEFAULT_STACK;
	dev->stack_size = (dev->stack_size + page - 1) & ~(page - 1);
	dev->watch_ns = cpu_watch_default();
	err = conditions_init(dev);
	if (err) {
		sys.free(dev);
		return log_error(err, "CPU device: cannot make a condition variable: %s",
				 strerror(-err));
	}
	pthread_mutex_init(&dev->launching, NULL);
	pthread_mutex_lock(&cpu_lock);
	cpu_crash_watch();
	dev->next = cpu_devices;
	cpu_devices = dev;
	pthread_mutex_unlock(&cpu_lock);
	*out = (struct platform_dev *)(void *)dev;
	return 0;
}

static void close_dev(struct platform_dev *d)
{
	struct cpu_dev *dev = cpu_dev_of(d), **p;
	int busy;

	pthread_mutex_lock(&cpu_lock);
	busy = dev->head != NULL;
	for (p = &cpu_devices; !busy && *p; p = &(*p)->next) {
		if (*p == dev) {
			*p = dev->next;
			break;
		}
	}
	if (!cpu_devices)
		cpu_crash_unwatch();
	pthread_mutex_unlock(&cpu_lock);
	if (busy) {
		log_line(LOG_ERROR,
			 "CPU device: closed while a kernel runs; nothing is freed, since the "
			 "kernel could still reach it: end kernels and sync before close");
		return;
	}
	cpu_stop_threads(dev);
	cpu_warps_release(dev);
	conditions_destroy(dev);
	pthread_mutex_destroy(&dev->launching);
	sys.free(dev);
}

static int info(struct platform_dev *d, struct platform_info *out)
{
	struct cpu_dev *dev = cpu_dev_of(d);
	unsigned most = CPU_FIBERS / CPU_LANES;

	memset(out, 0, sizeof(*out));
	out->numa_node = -1;
	out->lazy_loading = -1;
	out->max_resident_blocks = dev->max_blocks < most ? dev->max_blocks : most;
	snprintf(out->name, sizeof(out->name), "CPU");
	snprintf(out->detail, sizeof(out->detail),
		 "%u resident blocks, %zu KiB stack a thread, %s switch order", dev->max_blocks,
		 dev->stack_size >> 10, dev->seed ? "seeded" : "fixed");
	return 0;
}

static int look(int ordinal, struct platform_info *out)
{
	struct platform_dev *d = NULL;
	int err = open_dev(ordinal, NULL, &d);

	if (err)
		return err;
	err = info(d, out);
	close_dev(d);
	return err;
}

/* ---- memory --------------------------------------------------------------------------------------------------------- */

static int mem_alloc(size_t size, bool shared, struct platform_mem *out)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t mapped = (size + page - 1) & ~(page - 1);
	int fd = -1;
	void *p;

	if (!size || mapped < size)
		return log_error(-EINVAL, "CPU device: cannot allocate %zu bytes", size);
	p = shared ? sys.map_fd(PLATFORM_MAP_NAME, mapped, &fd) : sys.map(mapped);
	if (!p)
		return log_error(-ENOMEM, "CPU device: no memory for %zu bytes", size);
	out->host = p;
	out->dev = p;
	out->size = size;
	out->mapped = mapped;
	out->fd = fd;
	out->shared = shared;
	return 0;
}

static void mem_free(struct platform_mem *m)
{
	if (m->dev)
		sys.unmap(m->dev, m->mapped);
	if (m->dev && m->fd >= 0)
		sys.close(m->fd);
	memset(m, 0, sizeof(*m));
}

static int host_alloc(struct platform_dev *d, size_t size, bool shared, struct platform_mem *out)
{
	return mem_alloc(size, shared, out);
}

static void host_free(struct platform_dev *d, struct platform_mem *m)
{
	mem_free(m);
}

static int dev_alloc(struct platform_dev *d, size_t size, struct platform_mem *out)
{
	int err = mem_alloc(size, false, out);

	/* Kernels' memory, as on a GPU, so that code which would fail there fails here. */
	if (!err)
		out->host = NULL;
	return err;
}

static int range_check(const struct platform_mem *m, size_t off, size_t n)
{
	if (off > m->size || n > m->size - off)
		return log_error(-EINVAL, "CPU device: bytes %zu to %zu of a memory of %zu", off,
				 off + n, m->size);
	return 0;
}

static int dev_write(struct platform_dev *d, struct platform_mem *m, size_t off, const void *src,
		     size_t n)
{
	int err = range_check(m, off, n);

	if (!err)
		memcpy((char *)m->dev + off, src, n);
	return err;
}

static int dev_read(struct platform_dev *d, struct platform_mem *m, size_t off, void *dst, size_t n)
{
	int err = range_check(m, off, n);

	if (!err)
		memcpy(dst, (const char *)m->dev + off, n);
	return err;
}

/*
 * Kernels have a mapping of their own, NICs the descriptor. The address that stands for it on the bus is one that cannot be
 * touched, so that code which would do so from the CPU ends there and then.
 */
static int near_alloc(struct platform_dev *d, size_t size, struct platform_near *out)
{
	int err;

	memset(out, 0, sizeof(*out));
	out->fd = -1;
	if (!cpu_hooks.near) {
		snprintf(out->why, sizeof(out->why), "kernels run on the CPU, in its memory");
		return -EOPNOTSUPP;
	}
	err = mem_alloc(size, true, &out->mem);
	if (err)
		return err;
	out->guard = sys.map(out->mem.mapped);
	err = out->guard ? cpu_hooks.protect(out->guard, out->mem.mapped) : -ENOMEM;
	if (err) {
		snprintf(out->why, sizeof(out->why), "no memory for %zu bytes", size);
		if (out->guard)
			sys.unmap(out->guard, out->mem.mapped);
		mem_free(&out->mem);
		return err;
	}
	out->dev = out->mem.dev;
	out->bus = (uintptr_t)out->guard;
	out->size = size;
	out->fd = out->mem.fd;
	return 0;
}

static void near_free(struct platform_dev *d, struct platform_near *n)
{
	if (n->guard)
		sys.unmap(n->guard, n->mem.mapped);
	mem_free(&n->mem);
	memset(n, 0, sizeof(*n));
	n->fd = -1;
}

static int near_flush(struct platform_dev *d)
{
	return 0;
}

static int export_mem(struct platform_dev *d, const void *p, size_t n, int *fd, uint64_t *offset)
{
	return -EOPNOTSUPP;
}

static int owner(const void *p)
{
	return -1;
}

static int copier_open(struct platform_dev *d, size_t staging, struct platform_copier **out)
{
	return -EOPNOTSUPP;
}

/* ---- between host and kernels -------------------------------------------------------------------------------------- */

static void notify(struct platform_dev *d, const void *word)
{
	if (word)
		gpunet_cpu_event_at(word);
	else
		gpunet_cpu_event();
}

/* A kernel that sees the function sees its context. */
static int set_kick(struct platform_dev *d, void (*kick)(void *ctx, unsigned q), void *ctx)
{
	struct cpu_dev *dev = cpu_dev_of(d);

	__atomic_store_n(&dev->kick, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&dev->kick_ctx, ctx, __ATOMIC_RELAXED);
	__atomic_store_n(&dev->kick, kick, __ATOMIC_RELEASE);
	return 1;
}

void gpunet_cpu_kick(void *dev, unsigned q)
{
	struct cpu_dev *d = dev;
	void (*kick)(void *, unsigned);

	kick = d ? __atomic_load_n(&d->kick, __ATOMIC_ACQUIRE) : NULL;
	if (kick)
		kick(__atomic_load_n(&d->kick_ctx, __ATOMIC_RELAXED), q);
}

static void *stream(struct platform_dev *d)
{
	return NULL;
}

const struct platform_ops platform_cpu = {
	.name = "cpu",
	.count = count,
	.open = open_dev,
	.close = close_dev,
	.info = info,
	.look = look,
	.host_alloc = host_alloc,
	.host_free = host_free,
	.dev_alloc = dev_alloc,
	.dev_free = host_free,
	.dev_write = dev_write,
	.dev_read = dev_read,
	.near_alloc = near_alloc,
	.near_free = near_free,
	.near_flush = near_flush,
	.export_mem = export_mem,
	.owner = owner,
	.copier_open = copier_open,
	.notify = notify,
	.set_kick = set_kick,
	.launch = cpu_launch,
	.stream = stream,
	.sync = cpu_sync,
};
