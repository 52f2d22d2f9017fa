/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that the CPU must not touch, for tests: it has addresses that fault, and is reached by copies only, which the
 * CPU device does late and piece by piece in an order drawn from a seed, as little orderly as platform/copier.h allows.
 */
#ifndef GPUNET_CPU_COPIER_H
#define GPUNET_CPU_COPIER_H

#include "platform/copier.h"

/* A copier of the CPU device. Seed 0: each copy is whole, and done when asked for. */
int cpu_copier_open(size_t staging, uint64_t seed, struct platform_copier **out);

/* Makes `size` bytes at `backing` memory of the device; its address there. At most 8 times. */
int cpu_copier_add(struct platform_copier *c, void *backing, size_t size, uint64_t *addr);

/* `seen` is called after each piece of a copy, when memory may be half done. */
void cpu_copier_watch(struct platform_copier *c, void (*seen)(void *ctx), void *ctx);

/* How many pieces are done at a time: fewer than `pieces`, at least 2; 48 unless set. */
void cpu_copier_pace(struct platform_copier *c, unsigned pieces);

/* From now on the device does nothing more and says so. */
void cpu_copier_fail(struct platform_copier *c, int err);

/* While held, copies do not proceed. */
void cpu_copier_hold(struct platform_copier *c, int held);

/* Copies put in so far, without marks. */
uint64_t cpu_copier_count(const struct platform_copier *c);

#endif
