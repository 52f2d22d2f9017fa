/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_BASE_RELAX_H
#define GPUNET_BASE_RELAX_H

/* One turn of a loop that spins: leaves the core's other thread more of it. */
static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
