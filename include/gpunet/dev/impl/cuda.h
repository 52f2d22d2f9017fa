/* SPDX-License-Identifier: BSD-3-Clause */
/* The words of dev/device.h for nvcc: what CUDA does not have already. */
#ifndef GPUNET_DEV_IMPL_CUDA_H
#define GPUNET_DEV_IMPL_CUDA_H

#include <stdint.h>

#define GNET_DEV static __device__ __forceinline__ __attribute__((unused))
/*
 * What a small message does not meet on its way is a function of its own, of which a kernel has one, however many calls it makes.
 * Inlined at each of them it would cost the compiler minutes and the kernel registers.
 */
#define GNET__COLD static __device__ __noinline__ __attribute__((unused))

/* The calls use about a hundred registers a thread where they may, which is too many for blocks of 1,024. */
#define GNET_KERNEL(name, type, arg) GNET_KERNEL_MAX(name, type, arg, 1024)
/* One resident block a multiprocessor is enough: without that minimum the compiler bounds registers for two and spills. */
#define GNET_KERNEL_MAX(name, type, arg, threads) \
	extern "C" __global__ void __launch_bounds__(threads, 1) name(type arg)

#define GNET_DYN_SHARED(type, name)                                       \
	extern __shared__ __align__(16) unsigned char gnet_dyn_shared_[]; \
	type *name = (type *)gnet_dyn_shared_

GNET_DEV uint64_t gnet_time_ns(void)
{
	uint64_t t;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
	return t;
}

/* CUDA has it for 32 bits only. */
GNET_DEV unsigned long long atomicSub(unsigned long long *p, unsigned long long v)
{
	return atomicAdd(p, 0ull - v);
}

#endif
