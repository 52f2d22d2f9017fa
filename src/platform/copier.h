/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A queue of copies into and out of a device's memory that the CPU cannot map. They take effect in the order in which they
 * were put in, all bytes of one before any of the next. Only `write`s that follow each other and do not overlap have no
 * order among them, as the bytes of one have none. So whoever wants bytes to be seen last puts them in by `write_word`, which
 * has its place in the order.
 *
 * The CPU's side of every copy lies in the copier's staging memory and stays as it is until a ticket says that the copy is
 * done. No call waits for the device, except drain and those marked [slow]; kernels that use the memory may be resident.
 *
 * One thread at a time uses a copier. A failure of the device is reported by `done` and is final.
 */
#ifndef GPUNET_PLATFORM_COPIER_H
#define GPUNET_PLATFORM_COPIER_H

#include <stddef.h>
#include <stdint.h>

struct platform_copier;

enum {
	PLATFORM_COPIER_UNIT = 65536, /* staging memory is a multiple of this … */
	PLATFORM_COPIER_OPS =
		64, /* … and for each there is room for so many copies and marks under way */
};

struct platform_copier_ops {
	/* [slow] Waits for what is under way, a bounded time. */
	void (*close)(struct platform_copier *c);
	/* [slow] 0 when each byte of the range is memory of this device; else -EFAULT, and the reason is logged. */
	int (*check)(struct platform_copier *c, uint64_t addr, uint64_t len);
	void (*write)(struct platform_copier *c, uint64_t dst, const void *src, size_t n);
	/* 1, 2, 4 or 8 bytes at a multiple of their number: one store, after what was put in before and before what comes after. */
	void (*write_word)(struct platform_copier *c, uint64_t dst, const void *src, size_t n);
	void (*read)(struct platform_copier *c, void *dst, uint64_t src, size_t n);
	/* What was put in before is done once `done` says so; it may wait for this. Tickets grow; the first is 1. */
	void (*mark)(struct platform_copier *c, uint64_t ticket);
	/* The newest ticket that is done (0: none), and 0; or a negative errno: nothing more will be done. */
	int (*done)(struct platform_copier *c, uint64_t *ticket);
	/* Waits until all that was put in is done: 0, -ETIMEDOUT, or as `done`. */
	int (*drain)(struct platform_copier *c, uint64_t timeout_ns);
};

/* Implementations put it first in what they allocate. */
struct platform_copier {
	const struct platform_copier_ops *ops;
	uint8_t *staging;
	size_t size;
};

#endif
