/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that host and kernel see at one address, for files with kernels, which are compiled once for each device. */
#ifndef EXAMPLES_COMMON_MEMORY_H
#define EXAMPLES_COMMON_MEMORY_H

#include <stdlib.h>
#include <string.h>

#ifdef __CUDACC__
static inline void *example_alloc(size_t size)
{
	void *memory = NULL;

	/* Before a kernel is resident: pinning memory can wait for kernels to end. */
	if (cudaHostAlloc(&memory, size, cudaHostAllocMapped) != cudaSuccess)
		return NULL;
	return memset(memory, 0, size);
}

static inline void example_free(void *memory)
{
	cudaFreeHost(memory);
}
#else
static inline void *example_alloc(size_t size)
{
	return calloc(1, size);
}

static inline void example_free(void *memory)
{
	free(memory);
}
#endif

#endif
