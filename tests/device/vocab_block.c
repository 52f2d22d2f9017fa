/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks: places, shared memory, barriers, bits, time, fences. */
#include "vocab.h"

GNET_KERNEL(place_kernel, struct vocab_args, a)
{
	unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
	unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
	unsigned n = blockDim.x * blockDim.y * blockDim.z;

	CHECK(a.v,
	      threadIdx.x < blockDim.x && threadIdx.y < blockDim.y && threadIdx.z < blockDim.z);
	CHECK(a.v, blockIdx.x < gridDim.x && blockIdx.y < gridDim.y && blockIdx.z < gridDim.z);
	CHECK(a.v, gridDim.x * gridDim.y * gridDim.z * n == a.n);
	CHECK(a.v, warpSize == 32);
	/* One bit a place: each is set once. */
	t += b * n;
	CHECK(a.v, (atomicOr(&a.v->word[t / 32], 1u << (t % 32)) & 1u << (t % 32)) == 0);
	atomicAdd(&a.v->done, 1u);
}

/* Reverses twice, through static and through dynamic shared memory. */
GNET_KERNEL(shared_kernel, struct vocab_args, a)
{
	__shared__ unsigned fixed[256];
	GNET_DYN_SHARED(unsigned, dynamic);
	unsigned t = threadIdx.x, n = blockDim.x, i;

	for (i = 0; i < 20; i++) {
		fixed[t] = t * 3 + i + blockIdx.x;
		__syncthreads();
		dynamic[t] = fixed[n - 1 - t];
		__syncthreads();
		CHECK(a.v, dynamic[n - 1 - t] == t * 3 + i + blockIdx.x);
		__syncthreads();
	}
	atomicAdd(&a.v->done, 1u);
}

GNET_KERNEL(barrier_kernel, struct vocab_args, a)
{
	unsigned t = threadIdx.x, n = blockDim.x, i;

	for (i = 0; i < n; i += 7) {
		CHECK(a.v, __syncthreads_count(t <= i) == (int)i + 1);
		CHECK(a.v, __syncthreads_or(t == i) != 0);
		CHECK(a.v, __syncthreads_or(t == n) == 0);
		CHECK(a.v, __syncthreads_and(t < n) != 0);
		CHECK(a.v, __syncthreads_and(t != i) == 0);
	}
	atomicAdd(&a.v->done, 1u);
}

GNET_KERNEL(bits_kernel, struct vocab_args, a)
{
	unsigned t = threadIdx.x;

	CHECK(a.v, __popc(0xf0f0f0f0u) == 16 && __popc(0u) == 0);
	CHECK(a.v, __popcll(0xf0f0f0f0f0f0f0f0ull) == 32);
	CHECK(a.v, __ffs(0) == 0 && __ffs((int)0x80000000u) == 32 && __ffs(6) == 2);
	CHECK(a.v, __ffsll(0ll) == 0 && __ffsll(1ll << 40) == 41);
	CHECK(a.v, __clz(0) == 32 && __clz(1) == 31 && __clz(-1) == 0);
	CHECK(a.v, __clzll(0ll) == 64 && __clzll(1ll) == 63);
	CHECK(a.v, __popc(1u << t) == 1 && __ffs((int)(1u << t)) == (int)t + 1);
	atomicAdd(&a.v->done, 1u);
}

GNET_KERNEL(time_kernel, struct vocab_args, a)
{
	uint64_t start = gnet_time_ns(), last = start, now = start;
	long long ticks = clock64();
	unsigned i;

	for (i = 0; i < 1000; i++) {
		now = gnet_time_ns();
		CHECK(a.v, now >= last);
		last = now;
	}
	/* __nanosleep may sleep for less, but time goes on. */
	while (gnet_time_ns() - start < 2000000)
		__nanosleep(100000);
	CHECK(a.v, clock64() > ticks);
	CHECK(a.v, gnet_time_ns() - start < 60000000000ull);
	atomicAdd(&a.v->done, 1u);
}

/* Plain data under a flag of atomics, from block 0 to all others. */
GNET_KERNEL(fence_kernel, struct vocab_args, a)
{
	unsigned i;

	if (blockIdx.x == 0) {
		a.v->word[threadIdx.x] = threadIdx.x + 1;
		__syncthreads();
		if (threadIdx.x == 0) {
			__threadfence();
			atomicExch(&a.v->word[60], 1u);
		}
	} else {
		if (threadIdx.x == 0) {
			while (atomicAdd(&a.v->word[60], 0u) == 0)
				__nanosleep(1000);
			__threadfence();
		}
		__syncthreads();
		for (i = 0; i < blockDim.x; i++)
			CHECK(a.v, a.v->word[i] == i + 1);
	}
	__threadfence_block();
	__threadfence_system();
	atomicAdd(&a.v->done, 1u);
}

static struct gpunet_grid grid3(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
				unsigned bz)
{
	struct gpunet_grid g = vocab_grid(gx, bx, 0);

	g.grid_y = gy;
	g.grid_z = gz;
	g.block_y = by;
	g.block_z = bz;
	return g;
}

static void tests(void)
{
	VOCAB_RUN(place_kernel, grid3(1, 1, 1, 1, 1, 1), 1);
	VOCAB_RUN(place_kernel, grid3(3, 2, 2, 5, 3, 4), 720);
	VOCAB_RUN(place_kernel, grid3(1, 1, 7, 1, 1, 33), 231);
	VOCAB_RUN(place_kernel, grid3(1, 2, 1, 64, 2, 1), 256);
	VOCAB_RUN(shared_kernel, vocab_grid(6, 200, 800), 0);
	VOCAB_RUN(shared_kernel, vocab_grid(2, 256, 1024), 0);
	VOCAB_RUN(barrier_kernel, vocab_grid(2, 70, 0), 0);
	VOCAB_RUN(bits_kernel, vocab_grid(1, 32, 0), 0);
	VOCAB_RUN(time_kernel, vocab_grid(2, 33, 0), 0);
	VOCAB_RUN(fence_kernel, vocab_grid(4, 60, 0), 0);
}

int main(void)
{
	return vocab_main(tests);
}
