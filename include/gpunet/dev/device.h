/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The words of a kernel, the same for every device. A source that includes this header builds with nvcc for the GPU
 * and with gcc or clang, as C11, for the CPU device; docs/subset.md has the rules that both compilers share.
 *
 *   GNET_DEV                          before a function that kernels call: static, inlined, on the device
 *   GNET_KERNEL(name, struct s, a)    begins a kernel: it takes one `struct s` by value, named `a`
 *   GNET_KERNEL_MAX(name, struct s, a, threads)
 *                                     the same for blocks of at most `threads`, which may use more registers a thread
 *   GNET_DYN_SHARED(type, name)       declares `type *name`, the block's dynamic shared memory, 16-byte aligned
 *   __shared__                        before a declaration in a function: one object a block, contents undefined
 *
 *   threadIdx blockIdx blockDim gridDim (x, y, z)  warpSize
 *   __syncthreads() __syncthreads_or(p) __syncthreads_and(p) __syncthreads_count(p)
 *   __syncwarp([mask])
 *   __shfl_sync(mask, v, lane[, width]) __shfl_up_sync __shfl_down_sync __shfl_xor_sync
 *                                     v: int, unsigned, long, unsigned long, long long, unsigned long long
 *   __ballot_sync(mask, p) __any_sync __all_sync
 *   __popc __popcll __ffs __ffsll __clz __clzll
 *   atomicAdd atomicSub atomicExch atomicCAS atomicMin atomicMax atomicAnd atomicOr atomicXor
 *                                     on int, unsigned and unsigned long long; relaxed, device scope
 *   __threadfence() __threadfence_block() __threadfence_system()
 *   __nanosleep(ns) clock64()
 *   gnet_time_ns()                    nanoseconds of a clock that never goes back, the same for all blocks of a device
 *
 * Atomics and fences of this vocabulary do not end a wait of dev/order.h: words that such a wait is about are written
 * with the stores of dev/order.h. There is no __activemask: which threads run together is nobody's to know.
 */
#ifndef GPUNET_DEV_DEVICE_H
#define GPUNET_DEV_DEVICE_H

#ifdef __CUDACC__
#include <gpunet/dev/impl/cuda.h>
#else
#include <gpunet/dev/impl/cpu.h>
#endif

#endif
