/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A GPU that is open. Nothing in it but `next` changes between open and close, so any thread may use
 * it without a lock.
 *
 * A CUDA call works on the calling thread's current context, and threads of this library, like
 * threads of its user, may have none or another. So each entry point puts the device's context in
 * place for its own duration (cuda_enter, cuda_leave) and leaves the thread as it was.
 */
#ifndef GPUNET_CUDA_DEVICE_H
#define GPUNET_CUDA_DEVICE_H

#include "platform/cuda/driver.h"
#include "platform/platform.h"

struct cuda_dev {
	const struct cuda_api *api;
	cuda_device id;
	int ordinal;
	cuda_context ctx;
	bool retained; /* ctx is the primary one, which we hold; else its owner keeps it */
	cuda_stream stream;
	int numa_node;         /* nearest to the GPU, -1: unknown */
	struct cuda_dev *next; /* keep.c: of the open handles */
};

static inline struct cuda_dev *cuda_of(struct platform_dev *dev)
{
	return (struct cuda_dev *)dev;
}

/* Logs "cuda:N: cannot WHAT: ERROR; remedy" and returns the negative errno. */
int cuda_fail(const struct cuda_dev *d, cuda_result r, const char *what);

/*
 * 0, or a negative errno that was logged: `what` names the caller's purpose. Each success needs one
 * cuda_leave.
 */
int cuda_enter(const struct cuda_dev *d, const char *what);
void cuda_leave(const struct cuda_dev *d);

/*
 * Polls the stream until it is idle. CUDA_OK, CUDA_NOT_READY at the timeout (UINT64_MAX: none), or
 * the error of the work. Polled with short sleeps, not cuStreamSynchronize: that one has no time
 * limit, spins by default, and the flag that would change this belongs to the context's owner. The
 * context must be entered.
 */
cuda_result cuda_wait(const struct cuda_dev *d, uint64_t timeout_ns);

/* facts.c */
int cuda_numa_node(const struct cuda_dev *d);
int cuda_info(struct platform_dev *dev, struct platform_info *out);

/* keep.c: what may have to outlive the handle that allocated it. */
void cuda_keep_open(struct cuda_dev *d);
/* Is a handle of that GPU open? */
bool cuda_keep_has(cuda_device id);
/* Keeps *m and clears it if another handle of the context is open; false: free it. */
bool cuda_keep_put(const struct cuda_dev *d, struct platform_mem *m);
/* Something kept, of `mapped` bytes; its contents are old. */
bool cuda_keep_take(const struct cuda_dev *d, size_t mapped, bool host, bool shared,
		    struct platform_mem *out);
/* The handle is closing; the context's last one frees what was kept. */
void cuda_keep_close(struct cuda_dev *d);

/* memory.c */
/* Frees host or device memory at once, which may wait for kernels. */
void cuda_mem_free(const struct cuda_dev *d, struct platform_mem *m);
int cuda_host_alloc(struct platform_dev *dev, size_t size, bool shared, struct platform_mem *out);
void cuda_host_free(struct platform_dev *dev, struct platform_mem *m);
int cuda_dev_alloc(struct platform_dev *dev, size_t size, struct platform_mem *out);
void cuda_dev_free(struct platform_dev *dev, struct platform_mem *m);
int cuda_dev_write(struct platform_dev *dev, struct platform_mem *m, size_t off, const void *src,
		   size_t n);
int cuda_dev_read(struct platform_dev *dev, struct platform_mem *m, size_t off, void *dst,
		  size_t n);

/* near.c */
int cuda_near_alloc(struct platform_dev *dev, size_t size, struct platform_near *out);
void cuda_near_free(struct platform_dev *dev, struct platform_near *n);
int cuda_near_flush(struct platform_dev *dev);
int cuda_export_mem(struct platform_dev *dev, const void *p, size_t n, int *fd, uint64_t *offset);

#endif
