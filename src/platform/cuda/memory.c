/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host memory is our own mapping, registered with CUDA, rather than cuMemHostAlloc: it can be
 * placed near the GPU and shared with another process (`gpunet stat`), and it outlives a context
 * that its owner destroys.
 *
 * MADV_DONTFORK is not used: sys.map gives a shared mapping, so a fork makes no copy-on-write pages
 * and the parent's pages stay where the GPU expects them; the child, which cannot use CUDA, gets
 * errors and not a fault.
 */
#include "platform/cuda/device.h"

#include "base/log.h"
#include "base/sys.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Our own copies and fills end at once unless the GPU is ill or full of other kernels. */
#define COPY_TIMEOUT_NS UINT64_C(10000000000)

static void print_bytes(char *buf, size_t size, uint64_t n)
{
	static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
	unsigned u = 0;

	while (u < 4 && n >= 1024 && n % 1024 == 0) {
		n /= 1024;
		u++;
	}
	snprintf(buf, size, "%llu %s", (unsigned long long)n, unit[u]);
}

static int pin_failed(const struct cuda_dev *d, cuda_result r, size_t size)
{
	char bytes[32], limit[32], name[32], advice[160];
	struct rlimit lim;

	print_bytes(bytes, sizeof(bytes), size);
	if (r != CUDA_OUT_OF_MEMORY && r != CUDA_OPERATING_SYSTEM && r != CUDA_NOT_PERMITTED &&
	    r != CUDA_UNKNOWN) {
		snprintf(advice, sizeof(advice), "%s", cuda_remedy(r));
	} else if (getrlimit(RLIMIT_MEMLOCK, &lim) || lim.rlim_cur == RLIM_INFINITY) {
		snprintf(advice, sizeof(advice), "; free host memory or ask for smaller rings");
	} else {
		print_bytes(limit, sizeof(limit), lim.rlim_cur);
		snprintf(advice, sizeof(advice),
			 "; RLIMIT_MEMLOCK is %s%s: raise it with ulimit -l (LimitMEMLOCK= of a "
			 "systemd unit)",
			 limit, lim.rlim_cur < size ? "" : " for the whole process");
	}
	return log_error(cuda_errno(r), "cuda:%d: cannot pin %s of host memory: %s%s", d->ordinal,
			 bytes, cuda_error_name(d->api, r, name, sizeof(name)), advice);
}

/* Both are wishes: the memory works without them. Before the first touch, which registering is. */
static void place(const struct cuda_dev *d, void *p, size_t size)
{
	unsigned long nodes;

	madvise(p, size, MADV_HUGEPAGE);
	if (d->numa_node < 0 || d->numa_node >= (int)(8 * sizeof(nodes)))
		return;
	nodes = 1UL << d->numa_node;
	syscall(SYS_mbind, p, size, MPOL_PREFERRED, &nodes, 8 * sizeof(nodes) + 1, 0);
}

/*
 * Whether the mapping may go. A registration that cannot be undone stays known to the driver by its
 * address; were the address used again, registering it would fail. After the context's end there is
 * no registration.
 */
static bool unregister(const struct cuda_dev *d, void *p)
{
	cuda_result r = d->api->host_unregister(p);
	char buf[32];

	if (r == CUDA_OK || r == CUDA_NOT_REGISTERED || r == CUDA_CONTEXT_DESTROYED ||
	    r == CUDA_DEINITIALIZED || r == CUDA_NOT_INITIALIZED)
		return true;
	log_line(LOG_WARN, "cuda:%d: cannot unpin host memory, which stays mapped: %s", d->ordinal,
		 cuda_error_name(d->api, r, buf, sizeof(buf)));
	return false;
}

/* Registers the mapping. On an error *unmap tells whether the caller still has to unmap it. */
static int pin(const struct cuda_dev *d, void *p, size_t size, cuda_devptr *dev, bool *unmap)
{
	int err = cuda_enter(d, "pin host memory");
	cuda_result r;

	*unmap = true;
	if (err)
		return err;
	r = d->api->host_register(p, size, CUDA_REGISTER_PORTABLE | CUDA_REGISTER_DEVICEMAP);
	if (r != CUDA_OK) {
		err = pin_failed(d, r, size);
	} else {
		r = d->api->host_device_pointer(dev, p, 0);
		if (r != CUDA_OK) {
			err = cuda_fail(d, r, "map host memory into the GPU's address space");
			*unmap = unregister(d, p);
		}
	}
	cuda_leave(d);
	return err;
}

int cuda_host_alloc(struct platform_dev *dev, size_t size, bool shared, struct platform_mem *out)
{
	const struct cuda_dev *d = cuda_of(dev);
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t mapped = (size + page - 1) / page * page;
	cuda_devptr gpu = 0;
	char bytes[32];
	bool unmap;
	void *p;
	int err, fd = -1;

	if (!size || mapped < size)
		return log_error(-EINVAL, "cuda:%d: cannot allocate %zu bytes of host memory",
				 d->ordinal, size);
	if (cuda_keep_take(d, mapped, true, shared, out)) {
		memset(out->host, 0, mapped);
		out->size = size;
		return 0;
	}
	/* Not both at once: on most systems shared memory has no huge pages. */
	p = shared ? sys.map_fd(PLATFORM_MAP_NAME, mapped, &fd) : sys.map(mapped);
	if (!p) {
		print_bytes(bytes, sizeof(bytes), mapped);
		return log_error(
			-ENOMEM,
			"cuda:%d: cannot map %s of host memory; free some or ask for smaller rings",
			d->ordinal, bytes);
	}
	place(d, p, mapped);
	err = pin(d, p, mapped, &gpu, &unmap);
	if (err) {
		if (unmap)
			sys.unmap(p, mapped);
		if (fd >= 0)
			sys.close(fd);
		return err;
	}
	*out = (struct platform_mem){ .host = p,
				      .dev = (void *)(uintptr_t)gpu,
				      .size = size,
				      .mapped = mapped,
				      .fd = fd,
				      .shared = shared };
	return 0;
}

static void host_free(const struct cuda_dev *d, struct platform_mem *m)
{
	bool unmap = true; /* no context, no registration */

	if (!cuda_enter(d, "unpin host memory")) {
		unmap = unregister(d, m->host);
		cuda_leave(d);
	}
	if (unmap)
		sys.unmap(m->host, m->mapped);
	if (m->fd >= 0)
		sys.close(m->fd);
}

static void dev_free(const struct cuda_dev *d, struct platform_mem *m)
{
	cuda_result r;
	char buf[32];

	if (cuda_enter(d, "free GPU memory"))
		return;
	r = d->api->mem_free((cuda_devptr)(uintptr_t)m->dev);
	if (r != CUDA_OK)
		log_line(LOG_WARN, "cuda:%d: cannot free GPU memory: %s", d->ordinal,
			 cuda_error_name(d->api, r, buf, sizeof(buf)));
	cuda_leave(d);
}

void cuda_mem_free(const struct cuda_dev *d, struct platform_mem *m)
{
	if (m->host)
		host_free(d, m);
	else
		dev_free(d, m);
	*m = (struct platform_mem){ 0 };
}

void cuda_host_free(struct platform_dev *dev, struct platform_mem *m)
{
	if (m->host && !cuda_keep_put(cuda_of(dev), m))
		cuda_mem_free(cuda_of(dev), m);
}

/*
 * Work of ours on the stream would wait behind a resident kernel, perhaps for ever, and so would
 * the calls that undo it. So such a call is refused instead. Enters the context on success.
 */
static int enter_idle(const struct cuda_dev *d, const char *what)
{
	int err = cuda_enter(d, what);
	cuda_result r;

	if (err)
		return err;
	r = d->api->stream_query(d->stream);
	if (r == CUDA_OK)
		return 0;
	cuda_leave(d);
	if (r == CUDA_NOT_READY)
		return log_error(
			-EBUSY,
			"cuda:%d: cannot %s: a kernel is running on the network's stream; end it first",
			d->ordinal, what);
	return cuda_fail(d, r, what);
}

/* Ends what was put on the stream with result `r`. */
static int finish(const struct cuda_dev *d, cuda_result r, const char *what)
{
	if (r != CUDA_OK)
		return cuda_fail(d, r, what);
	r = cuda_wait(d, COPY_TIMEOUT_NS);
	if (r == CUDA_OK)
		return 0;
	if (r == CUDA_NOT_READY)
		return log_error(
			-ETIMEDOUT,
			"cuda:%d: cannot %s: no answer within 10 s; other kernels hold the whole GPU?",
			d->ordinal, what);
	return cuda_fail(d, r, what);
}

int cuda_dev_alloc(struct platform_dev *dev, size_t size, struct platform_mem *out)
{
	const struct cuda_dev *d = cuda_of(dev);
	struct platform_mem old;
	cuda_devptr gpu = 0;
	cuda_result r = CUDA_OK;
	int err;

	if (!size)
		return log_error(-EINVAL, "cuda:%d: cannot allocate 0 bytes of GPU memory",
				 d->ordinal);
	err = enter_idle(d, "allocate GPU memory");
	if (err)
		return err;
	if (cuda_keep_take(d, size, false, false, &old))
		gpu = (cuda_devptr)(uintptr_t)old.dev;
	else
		r = d->api->mem_alloc(&gpu, size);
	if (r != CUDA_OK) {
		err = cuda_fail(d, r, "allocate GPU memory");
	} else {
		err = finish(d, d->api->set_async(gpu, 0, size, d->stream), "clear GPU memory");
		/*
		 * After a timeout the fill is still to come, and freeing would wait for it: rather
		 * lost than hung.
		 */
		if (err && err != -ETIMEDOUT)
			d->api->mem_free(gpu);
	}
	cuda_leave(d);
	if (!err)
		*out = (struct platform_mem){ .dev = (void *)(uintptr_t)gpu,
					      .size = size,
					      .mapped = size };
	return err;
}

void cuda_dev_free(struct platform_dev *dev, struct platform_mem *m)
{
	if (m->dev && !cuda_keep_put(cuda_of(dev), m))
		cuda_mem_free(cuda_of(dev), m);
}

/* Between the caller's `host` and `n` bytes of an allocation. */
static int transfer(const struct cuda_dev *d, const struct platform_mem *m, size_t off, void *host,
		    size_t n, bool write)
{
	const cuda_devptr at = (cuda_devptr)(uintptr_t)m->dev + off;
	const char *what = write ? "write GPU memory" : "read GPU memory";
	int err;

	if (off > m->size || n > m->size - off)
		return log_error(-EINVAL,
				 "cuda:%d: %zu bytes at %zu do not lie in an allocation of %zu",
				 d->ordinal, n, off, m->size);
	if (!n)
		return 0;
	err = enter_idle(d, what);
	if (err)
		return err;
	err = finish(d,
		     write ? d->api->write_async(at, host, n, d->stream)
			   : d->api->read_async(host, at, n, d->stream),
		     what);
	cuda_leave(d);
	return err;
}

int cuda_dev_write(struct platform_dev *dev, struct platform_mem *m, size_t off, const void *src,
		   size_t n)
{
	return transfer(cuda_of(dev), m, off, (void *)(uintptr_t)src, n, true);
}

int cuda_dev_read(struct platform_dev *dev, struct platform_mem *m, size_t off, void *dst, size_t n)
{
	return transfer(cuda_of(dev), m, off, dst, n, false);
}
