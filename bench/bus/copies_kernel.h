/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The body of copies_N.c, which defines COPY_DEPTH (N), COPY_THREADS (at most so many) and
 * COPY_LAUNCH.
 */
#include "copies.h"

#define GNET_COPY_UNROLL COPY_DEPTH
#include <gpunet/dev/impl/copy.h>

static __global__ void __launch_bounds__(COPY_THREADS) copy_kernel(struct copy_args a)
{
	unsigned i;

	for (i = blockIdx.x; i < a.pieces; i += gridDim.x) {
		unsigned char *d = a.dst + (size_t)i * a.stride;
		const unsigned char *s = a.src + (size_t)i * a.stride;

		gnet__copy_any(d, s, a.piece, a.out, threadIdx.x, blockDim.x);
		__syncthreads();
	}
}

void COPY_LAUNCH(struct copy_args a, unsigned blocks, unsigned threads, cudaStream_t stream)
{
	copy_kernel<<<blocks, threads, 0, stream>>>(a);
}
