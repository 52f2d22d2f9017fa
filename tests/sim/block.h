/* SPDX-License-Identifier: BSD-3-Clause */
/* For what a whole block does: its thread 0 decides and checks. */
#ifndef GPUNET_TESTS_SIM_BLOCK_H
#define GPUNET_TESTS_SIM_BLOCK_H

#include <stdint.h>

#include <gpunet/dev/socket.h>

static inline int is_first(void)
{
	return gnet__tid() == 0;
}

/* Thread 0's value, in all threads of the block. */
static inline int64_t share(int64_t v)
{
	__shared__ int64_t shared;
	int64_t out;

	__syncthreads();
	if (is_first())
		shared = v;
	__syncthreads();
	out = shared;
	__syncthreads();
	return out;
}

#endif
