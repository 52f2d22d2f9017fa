/* SPDX-License-Identifier: BSD-3-Clause */
/* GPU memory that NICs write and read. */
#include "platform/cuda/device.h"

#include "base/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What a NIC's driver maps a GPU's memory in. */
#define ALIGN ((size_t)64 << 10)

static int attribute(const struct cuda_dev *d, cuda_attribute a, int otherwise)
{
	int v;

	/* An older driver does not know it. */
	return d->api->device_attribute(&v, a, d->id) == CUDA_OK ? v : otherwise;
}

/* Whole host pages around it; a driver may hand out no more than what was allocated, so the allocation has to cover them. */
static cuda_result dma_buf(const struct cuda_dev *d, cuda_devptr p, size_t n, int *fd,
			   uint64_t *offset)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	cuda_devptr first = p & ~(page - 1), end = (p + n + page - 1) & ~(page - 1);
	cuda_result r;

	if (!d->api->range_handle || !attribute(d, CUDA_ATTR_DMA_BUF, 0))
		return CUDA_NOT_SUPPORTED;
	r = d->api->range_handle(fd, first, (size_t)(end - first), CUDA_RANGE_DMA_BUF_FD, 0);
	if (r == CUDA_OK)
		*offset = p - first;
	return r;
}

int cuda_export_mem(struct platform_dev *dev, const void *p, size_t n, int *fd, uint64_t *offset)
{
	const struct cuda_dev *d = cuda_of(dev);
	int err = cuda_enter(d, "export GPU memory");
	cuda_result r;

	if (err)
		return err;
	r = dma_buf(d, (cuda_devptr)(uintptr_t)p, n, fd, offset);
	cuda_leave(d);
	/* What the driver cannot export it calls invalid or not supported: pools, memory of another process, older drivers. */
	if (r == CUDA_NOT_SUPPORTED || r == CUDA_INVALID_VALUE || r == CUDA_NOT_PERMITTED)
		return -EOPNOTSUPP;
	return r == CUDA_OK ? 0 : cuda_fail(d, r, "export GPU memory");
}

/* Must a NIC's writes be flushed? -1: they must, and it cannot be done from here. */
static int ordering(const struct cuda_dev *d)
{
	if (attribute(d, CUDA_ATTR_WRITES_ORDERING, 0) >= CUDA_ORDERING_OWNER)
		return 0;
	return d->api->flush_writes &&
			       (attribute(d, CUDA_ATTR_FLUSH_OPTIONS, 0) & CUDA_FLUSH_OPTION_HOST)
		       ? 1
		       : -1;
}

/* The context is entered. */
static void prepare(const struct cuda_dev *d, struct platform_near *out)
{
	const unsigned on = 1;
	char name[32];
	cuda_result r;

	/* Copies and fills of this memory are then never behind what a NIC does. An older driver does so anyhow. */
	if (d->api->pointer_set)
		(void)d->api->pointer_set(&on, CUDA_POINTER_SYNC_MEMOPS, out->bus);
	r = dma_buf(d, out->bus, out->size, &out->fd, &out->fd_offset);
	if (r == CUDA_OK)
		return;
	out->fd = -1;
	snprintf(out->why, sizeof(out->why), "the driver gives no dma-buf of GPU memory (%s)",
		 cuda_error_name(d->api, r, name, sizeof(name)));
}

int cuda_near_alloc(struct platform_dev *dev, size_t size, struct platform_near *out)
{
	const struct cuda_dev *d = cuda_of(dev);
	int err, order = ordering(d);

	memset(out, 0, sizeof(*out));
	out->fd = -1;
	if (order < 0) {
		snprintf(
			out->why, sizeof(out->why),
			"this GPU needs a flush after what a NIC writes, and the driver has no call for it");
		return -EOPNOTSUPP;
	}
	err = cuda_dev_alloc(dev, size + ALIGN, &out->mem);
	if (err) {
		snprintf(out->why, sizeof(out->why), "no GPU memory for the rings");
		return err;
	}
	out->bus = ((uint64_t)(uintptr_t)out->mem.dev + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
	out->dev = (void *)(uintptr_t)out->bus;
	out->size = size;
	out->flush = order > 0;
	err = cuda_enter(d, "prepare GPU memory for NICs");
	if (err) {
		snprintf(out->why, sizeof(out->why), "the GPU's context cannot be used");
		cuda_dev_free(dev, &out->mem);
		return err;
	}
	prepare(d, out);
	cuda_leave(d);
	return 0;
}

void cuda_near_free(struct platform_dev *dev, struct platform_near *n)
{
	if (n->fd >= 0)
		sys.close(n->fd);
	cuda_dev_free(dev, &n->mem);
	memset(n, 0, sizeof(*n));
	n->fd = -1;
}

int cuda_near_flush(struct platform_dev *dev)
{
	const struct cuda_dev *d = cuda_of(dev);
	int err = cuda_enter(d, "flush what a NIC has written");
	cuda_result r;

	if (err)
		return err;
	r = d->api->flush_writes(CUDA_FLUSH_TARGET_CURRENT, CUDA_FLUSH_TO_OWNER);
	cuda_leave(d);
	return r == CUDA_OK ? 0 : cuda_fail(d, r, "flush what a NIC has written");
}
