/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices behind one table: where kernels run and which memory they share with the CPU.
 *
 * Three kinds of memory:
 *   host    the library's own mapping, zeroed, registered with the device: both sides load and store it;
 *   device  near the device, zeroed; the CPU reaches it with dev_write and dev_read only, and only while
 *           no kernel that uses the network is resident (open, close, diagnosis);
 *   and the caller's own, which the library never touches from the CPU.
 *
 * Every slot of a table is filled. Calls return 0 or a negative errno; the cause in words goes to the log
 * of base/log.h by the function that first decides that it is an error. Calls may come from any thread.
 */
#ifndef GPUNET_PLATFORM_H
#define GPUNET_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct platform_dev;
struct platform_copier;

/* The name of host memory's mappings in /proc/PID/maps and /proc/PID/fd. */
#define PLATFORM_MAP_NAME "gpunet-bus"

/* One allocation. `host` is NULL for device memory that the CPU cannot map. */
struct platform_mem {
	void *host;    /* the CPU's address */
	void *dev;     /* the kernels' address; equal to host on the CPU device */
	size_t size;   /* bytes, as asked for */
	size_t mapped; /* bytes really mapped (rounded up to pages) */
	int fd;        /* host memory: by which another process may map it; -1: it cannot */
	bool shared;   /* host memory: as it was asked for */
};

/*
 * Device memory that NICs write and read, and the CPU never touches. A NIC is given it by the dma-buf, or (where the system's
 * drivers know such addresses) by `dev`; work requests name its first byte by `bus`.
 */
struct platform_near {
	void *dev; /* the kernels' address, at a multiple of 64 KiB */
	uint64_t bus;
	size_t size;
	int fd;             /* a dma-buf, -1: none */
	uint64_t fd_offset; /* of the first byte in it */
	bool flush; /* what a NIC has written is there for kernels after near_flush, not by itself */
	char why[160];           /* why there is no such memory, or no dma-buf of it */
	struct platform_mem mem; /* the device's own */
	void *guard;
};

struct platform_info {
	char name[64];    /* "NVIDIA H200", "CPU" */
	char detail[160]; /* driver and its version, or how many resident blocks */
	int numa_node;    /* -1: unknown */
	unsigned
		max_resident_blocks; /* upper bound for one kernel of 32 threads a block; 0: unknown */
	int lazy_loading; /* CUDA: 1 if module loading is lazy, 0 if eager, -1 if it does not apply */
};

struct platform_params {
	size_t size;         /* of this struct */
	unsigned cpu_blocks; /* CPU device: resident blocks, 0 = its default */
	uint64_t cpu_seed;   /* CPU device: seed of the fibers' switch order; 0 = fixed order */
	size_t cpu_stack;    /* CPU device: stack bytes a fiber, 0 = its default */
};

/* A kernel's geometry; blocks and threads have x, y, z, all at least 1. */
struct platform_grid {
	unsigned grid[3];
	unsigned block[3];
	size_t shared; /* bytes of dynamic shared memory */
};

struct platform_ops {
	const char *name; /* "cpu", "cuda" */

	/* How many devices there are: >= 0. `why` receives, when 0, what is missing and the remedy. */
	int (*count)(char *why, size_t why_size);

	int (*open)(int ordinal, const struct platform_params *p, struct platform_dev **out);
	/* No kernel may be resident. Frees what open made, not memory that was not given back. */
	void (*close)(struct platform_dev *dev);
	int (*info)(struct platform_dev *dev, struct platform_info *out);
	/* The same of a device that need not be open, and whether it can be; waits for no kernel. */
	int (*look)(int ordinal, struct platform_info *out);

	/*
	 * `shared`: another process may map it, by out->fd, if the system can do that; else in huge pages, if it has them to
	 * give.
	 */
	int (*host_alloc)(struct platform_dev *dev, size_t size, bool shared,
			  struct platform_mem *out);
	void (*host_free)(struct platform_dev *dev, struct platform_mem *m);
	int (*dev_alloc)(struct platform_dev *dev, size_t size, struct platform_mem *out);
	void (*dev_free)(struct platform_dev *dev, struct platform_mem *m);
	int (*dev_write)(struct platform_dev *dev, struct platform_mem *m, size_t off,
			 const void *src, size_t n);
	int (*dev_read)(struct platform_dev *dev, struct platform_mem *m, size_t off, void *dst,
			size_t n);

	/*
	 * `size` bytes of memory for NICs: 0, or a negative errno with out->why set, and then nothing is logged. No kernel may be
	 * resident. Freed as dev_alloc's.
	 */
	int (*near_alloc)(struct platform_dev *dev, size_t size, struct platform_near *out);
	void (*near_free)(struct platform_dev *dev, struct platform_near *n);
	/*
	 * What NICs have written into such memory is there for kernels when it returns. From any thread, also beside a resident
	 * kernel.
	 */
	int (*near_flush)(struct platform_dev *dev);
	/*
	 * A dma-buf of any memory of the device: the caller's, of whatever allocator, at whatever offset. *offset: of `p` in
	 * it. The caller closes *fd. -EOPNOTSUPP: device, driver or this kind of memory has none.
	 */
	int (*export_mem)(struct platform_dev *dev, const void *p, size_t n, int *fd,
			  uint64_t *offset);

	/*
	 * The number of the device whose memory that is, and the CPU cannot map; -1: none's. Of a device that need not be open.
	 */
	int (*owner)(const void *p);
	/*
	 * [slow] A queue of copies (copier.h) with `staging` bytes. No kernel may be resident. -EOPNOTSUPP: its memory is the
	 * CPU's.
	 */
	int (*copier_open)(struct platform_dev *dev, size_t staging, struct platform_copier **out);

	/* A host thread has changed `word`, or (NULL) any words, that kernels may wait on: wakes blocks that looked at the 128
	 * bytes around it, or all that wait. No-op on a GPU. */
	void (*notify)(struct platform_dev *dev, const void *word);
	/*
	 * Sets what a kernel's kick calls: a kernel has put an entry in queue `q` of the owner `ctx`. Only a device
	 * whose kernels run on the CPU can call it; returns 1 there and 0 where kicks never come (a GPU), so that
	 * the proxy knows whether it must poll.
	 */
	int (*set_kick)(struct platform_dev *dev, void (*kick)(void *ctx, unsigned q), void *ctx);

	/* CPU device: queue a kernel; `args` is copied. -EOPNOTSUPP where the CUDA runtime launches kernels. */
	int (*launch)(struct platform_dev *dev, void (*entry)(void *args),
		      const struct platform_grid *g, const void *args, size_t args_size);
	/* The stream that the launch macro uses (a CUstream), NULL on the CPU device. Made at open, non-blocking. */
	void *(*stream)(struct platform_dev *dev);
	/* Waits until all kernels of this device handle's stream have ended: 0, -ETIMEDOUT, or their error. */
	int (*sync)(struct platform_dev *dev, uint64_t timeout_ns);
};

extern const struct platform_ops platform_cpu;
extern const struct platform_ops platform_cuda;

/* Every device kind, in order of preference ("cuda" first), NULL at the end. */
extern const struct platform_ops *const platform_all[];

#endif
