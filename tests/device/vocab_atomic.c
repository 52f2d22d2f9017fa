/* SPDX-License-Identifier: BSD-3-Clause */
/* Atomics: what they return and what they leave, on each type, alone and with all threads at once. */
#include "vocab.h"

GNET_KERNEL(one_thread_kernel, struct vocab_args, a)
{
	int *i = a.v->number;
	unsigned *u = a.v->word;
	unsigned long long *w = a.v->wide;

	CHECK(a.v, atomicAdd(i, -5) == 0 && *i == -5);
	CHECK(a.v, atomicSub(i, 7) == -5 && *i == -12);
	CHECK(a.v, atomicMin(i, 3) == -12 && *i == -12);
	CHECK(a.v, atomicMax(i, 3) == -12 && *i == 3);
	CHECK(a.v, atomicMin(i, -1) == 3 && *i == -1);
	CHECK(a.v, atomicExch(i, 12) == -1 && *i == 12);
	CHECK(a.v, atomicCAS(i, 11, 1) == 12 && *i == 12);
	CHECK(a.v, atomicCAS(i, 12, 1) == 12 && *i == 1);
	CHECK(a.v, atomicOr(i, 6) == 1 && *i == 7);
	CHECK(a.v, atomicAnd(i, 12) == 7 && *i == 4);
	CHECK(a.v, atomicXor(i, -1) == 4 && *i == -5);

	CHECK(a.v, atomicAdd(u, 0xfffffffeu) == 0 && *u == 0xfffffffeu);
	CHECK(a.v, atomicAdd(u, 3u) == 0xfffffffeu && *u == 1);
	CHECK(a.v, atomicSub(u, 2u) == 1 && *u == 0xffffffffu);
	CHECK(a.v, atomicMin(u, 5u) == 0xffffffffu && *u == 5);
	CHECK(a.v, atomicMax(u, 0x80000000u) == 5 && *u == 0x80000000u);
	CHECK(a.v, atomicExch(u, 6u) == 0x80000000u && *u == 6);
	CHECK(a.v, atomicCAS(u, 6u, 9u) == 6 && *u == 9);
	CHECK(a.v, atomicOr(u, 6u) == 9 && *u == 15);
	CHECK(a.v, atomicAnd(u, 3u) == 15 && *u == 3);
	CHECK(a.v, atomicXor(u, 1u) == 3 && *u == 2);

	CHECK(a.v, atomicAdd(w, 0xffffffffffffffffull) == 0 && *w == 0xffffffffffffffffull);
	CHECK(a.v, atomicMin(w, 1ull << 40) == 0xffffffffffffffffull && *w == 1ull << 40);
	CHECK(a.v, atomicSub(w, 1ull) == 1ull << 40 && *w == (1ull << 40) - 1);
	CHECK(a.v, atomicMax(w, 1ull << 63) == (1ull << 40) - 1 && *w == 1ull << 63);
	CHECK(a.v, atomicExch(w, 3ull << 32) == 1ull << 63 && *w == 3ull << 32);
	CHECK(a.v, atomicCAS(w, 3ull << 32, 5ull) == 3ull << 32 && *w == 5);
	CHECK(a.v, atomicOr(w, 1ull << 33) == 5 && *w == (1ull << 33 | 5));
	CHECK(a.v, atomicAnd(w, 7ull) == (1ull << 33 | 5) && *w == 5);
	CHECK(a.v, atomicXor(w, 4ull) == 5 && *w == 1);
	atomicAdd(&a.v->done, 1u);
}

/* Every thread of every block on the same words; the host knows what must come out. */
GNET_KERNEL(all_threads_kernel, struct vocab_args, a)
{
	unsigned n = blockDim.x * gridDim.x;
	unsigned t = threadIdx.x + blockDim.x * blockIdx.x, i, old, seen;

	for (i = 0; i < a.n; i++) {
		atomicAdd(&a.v->number[0], (int)t - 100);
		atomicSub(&a.v->word[0], t);
		atomicAdd(&a.v->wide[0], (unsigned long long)t << 20);
		atomicMax(&a.v->number[1], (int)t - 50);
		atomicMin(&a.v->number[2], 50 - (int)t);
		atomicOr(&a.v->word[1], 1u << (t % 32));
		atomicXor(&a.v->word[2], 1u << (t % 32));
		/* An increment by compare-and-swap. */
		old = atomicAdd(&a.v->word[3], 0u);
		do {
			seen = old;
			old = atomicCAS(&a.v->word[3], seen, seen + 1);
		} while (old != seen);
	}
	/* Numbers are handed on: what all took, and what is left, is what all brought. */
	atomicAdd(&a.v->wide[1], (unsigned long long)atomicExch(&a.v->word[4], t + 1));
	CHECK(a.v, n > t);
	atomicAdd(&a.v->done, 1u);
}

static void expect(int condition, int line)
{
	if (condition)
		return;
	fprintf(stderr, "vocab_atomic.c:%d: wrong\n", line);
	vocab_failed = 1;
}

static void tests(void)
{
	const unsigned blocks = 4, threads = 48, n = blocks * threads, turns = 9;
	const unsigned sum = n * (n - 1) / 2 * turns;
	struct vocab *v;

	VOCAB_RUN(one_thread_kernel, vocab_grid(1, 1, 0), 0);
	VOCAB_RUN(all_threads_kernel, vocab_grid(blocks, threads, 0), turns);
	v = vocab_area;
	expect(v->number[0] == (int)sum - 100 * (int)(n * turns), __LINE__);
	expect(v->word[0] == 0u - sum, __LINE__);
	expect(v->wide[0] == (unsigned long long)sum << 20, __LINE__);
	expect(v->number[1] == (int)n - 51, __LINE__);
	expect(v->number[2] == 51 - (int)n, __LINE__);
	expect(v->word[1] == 0xffffffffu, __LINE__);
	/* Each bit was turned n / 32 * turns times. */
	expect(v->word[2] == (n / 32 * turns % 2 ? 0xffffffffu : 0), __LINE__);
	expect(v->word[3] == n * turns, __LINE__);
	expect(v->wide[1] + v->word[4] == (unsigned long long)n * (n + 1) / 2, __LINE__);
}

int main(void)
{
	return vocab_main(tests);
}
