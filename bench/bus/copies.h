/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring copy with several depths of unrolling: copies_N.c holds the kernel with N loads in
 * flight a thread.
 */
#ifndef GPUNET_BENCH_BUS_COPIES_H
#define GPUNET_BENCH_BUS_COPIES_H

#include "bus.h"

/* Blocks take pieces in turn, with a barrier after each, as calls of gsend and grecv would. */
struct copy_args {
	unsigned char *dst;
	const unsigned char *src;
	unsigned piece, pieces; /* bytes of each; how many */
	unsigned stride;        /* from one piece to the next */
	int out;                /* dst lies in host memory, else src */
};

void bus_copy_4(struct copy_args a, unsigned blocks, unsigned threads, cudaStream_t stream);
void bus_copy_8(struct copy_args a, unsigned blocks, unsigned threads, cudaStream_t stream);
void bus_copy_16(struct copy_args a, unsigned blocks, unsigned threads,
		 cudaStream_t stream); /* up to 512 threads */

#endif
