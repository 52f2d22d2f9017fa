/* SPDX-License-Identifier: BSD-3-Clause */
/* Warp operations: what each lane gets, for each kind, width, type and mask. */
#include "vocab.h"

#define ALL 0xffffffffu

/* The lane that each kind reads, worked out another way than the library's. */
GNET_DEV unsigned source(int kind, unsigned lane, unsigned n, unsigned width)
{
	unsigned first = lane / width * width, place = lane % width;

	switch (kind) {
	case 0:
		return first + n % width;
	case 1:
		return place < n ? lane : lane - n;
	case 2:
		return place + n >= width ? lane : lane + n;
	default:
		return (lane ^ n) >= first + width ? lane : lane ^ n;
	}
}

GNET_DEV int shuffle_int(int kind, unsigned mask, int v, unsigned n, unsigned width)
{
	switch (kind) {
	case 0:
		return __shfl_sync(mask, v, (int)n, (int)width);
	case 1:
		return __shfl_up_sync(mask, v, n, (int)width);
	case 2:
		return __shfl_down_sync(mask, v, n, (int)width);
	default:
		return __shfl_xor_sync(mask, v, (int)n, (int)width);
	}
}

GNET_KERNEL(shuffle_kernel, struct vocab_args, a)
{
	unsigned lane = threadIdx.x % warpSize, width, n;
	int kind, v = (int)(threadIdx.x * 7919u) - 40000, got;

	for (width = 1; width <= 32; width *= 2)
		for (n = 0; n < width; n++)
			for (kind = 0; kind < 4; kind++) {
				unsigned from = threadIdx.x - lane + source(kind, lane, n, width);

				got = shuffle_int(kind, ALL, v, n, width);
				CHECK(a.v, got == (int)(from * 7919u) - 40000);
			}
	atomicAdd(&a.v->done, 1u);
}

/* Each type keeps its width and its sign; the width of the segment may be left out. */
GNET_KERNEL(types_kernel, struct vocab_args, a)
{
	unsigned lane = threadIdx.x % warpSize, peer = lane ^ 1u;
	int i = __shfl_xor_sync(ALL, -(int)lane, 1);
	unsigned u = __shfl_xor_sync(ALL, 0x80000000u + lane, 1);
	long l = __shfl_sync(ALL, -(long)lane, 3);
	unsigned long ul = __shfl_sync(ALL, 0ul - lane, 3);
	long long ll = __shfl_up_sync(ALL, -0x100000000ll - (long long)lane, 1u);
	unsigned long long ull = __shfl_down_sync(ALL, 0xfedcba9800000000ull + lane, 1u);

	CHECK(a.v, i == -(int)peer);
	CHECK(a.v, u == 0x80000000u + peer);
	CHECK(a.v, l == -3);
	CHECK(a.v, ul == 0ul - 3ul);
	CHECK(a.v, ll == -0x100000000ll - (long long)(lane ? lane - 1 : 0));
	CHECK(a.v, ull == 0xfedcba9800000000ull + (lane < 31 ? lane + 1 : 31));
	atomicAdd(&a.v->done, 1u);
}

GNET_KERNEL(vote_kernel, struct vocab_args, a)
{
	unsigned lane = threadIdx.x % warpSize, i;

	for (i = 0; i < 32; i++) {
		CHECK(a.v, __ballot_sync(ALL, lane <= i) == (i == 31 ? ALL : (1u << (i + 1)) - 1u));
		CHECK(a.v, __any_sync(ALL, lane == i) != 0);
		CHECK(a.v, __any_sync(ALL, lane > 31) == 0);
		CHECK(a.v, __all_sync(ALL, lane == i) == 0);
		CHECK(a.v, __all_sync(ALL, lane < 32) != 0);
	}
	/* A predicate is any int, not its lowest bit. */
	CHECK(a.v, __ballot_sync(ALL, lane == 5 ? 256 : 0) == 1u << 5);
	atomicAdd(&a.v->done, 1u);
}

/* Several groups of one warp go their own ways and meet by their masks. */
GNET_KERNEL(groups_kernel, struct vocab_args, a)
{
	unsigned lane = threadIdx.x % warpSize, turn;
	unsigned mask = lane % 3 == 0 ? 0x49249249u : lane % 3 == 1 ? 0x92492492u : 0x24924924u;

	for (turn = 0; turn < 10 * (lane % 3 + 1); turn++) {
		CHECK(a.v, __ballot_sync(mask, 1) == mask);
		CHECK(a.v, __shfl_sync(mask, lane, (int)(lane % 3)) == lane % 3);
	}
	__syncwarp();
	CHECK(a.v, __ballot_sync(ALL, lane % 3 == 1) == 0x92492492u);
	atomicAdd(&a.v->done, 1u);
}

/* The last warp is not full: its lanes name those that are there. */
GNET_KERNEL(partial_kernel, struct vocab_args, a)
{
	unsigned lane = threadIdx.x % warpSize, first = threadIdx.x - lane;
	unsigned lanes = blockDim.x - first < 32 ? blockDim.x - first : 32;
	unsigned mask = lanes == 32 ? ALL : (1u << lanes) - 1u, sum = lane, i;

	CHECK(a.v, __ballot_sync(mask, 1) == mask);
	CHECK(a.v, __all_sync(mask, 1) != 0);
	for (i = 1; i < lanes; i *= 2) {
		unsigned v = __shfl_up_sync(mask, sum, i);

		if (lane >= i)
			sum += v;
	}
	CHECK(a.v, sum == lane * (lane + 1) / 2);
	__syncwarp(mask);
	atomicAdd(&a.v->done, 1u);
}

/* __syncwarp orders shared memory within the warp. */
GNET_KERNEL(syncwarp_kernel, struct vocab_args, a)
{
	__shared__ unsigned word[64];
	unsigned t = threadIdx.x, other = t ^ 31u, turn;

	for (turn = 0; turn < 50; turn++) {
		word[t] = turn * 64 + t;
		__syncwarp();
		CHECK(a.v, word[other] == turn * 64 + other);
		__syncwarp(ALL);
	}
	atomicAdd(&a.v->done, 1u);
}

static void tests(void)
{
	unsigned threads;

	VOCAB_RUN(shuffle_kernel, vocab_grid(2, 64, 0), 0);
	VOCAB_RUN(types_kernel, vocab_grid(1, 32, 0), 0);
	VOCAB_RUN(vote_kernel, vocab_grid(2, 96, 0), 0);
	VOCAB_RUN(groups_kernel, vocab_grid(1, 64, 0), 0);
	VOCAB_RUN(syncwarp_kernel, vocab_grid(2, 64, 0), 0);
	for (threads = 1; threads < 100; threads += 7)
		VOCAB_RUN(partial_kernel, vocab_grid(2, threads, 0), 0);
}

int main(void)
{
	return vocab_main(tests);
}
