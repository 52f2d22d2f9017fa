/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gnet__copy: every pair of offsets and every small size, sizes around powers of two, blocks of
 * many shapes. Each byte arrives and no byte beside them changes. On the CPU device the threads'
 * calls are made one after the other, which for a function without a barrier is the same; on a GPU
 * one block a pair of offsets goes through the sizes, with the memory on either side of the bus.
 */
#include <gpunet/dev/impl/copy.h>

#include <stdio.h>
#include <stdlib.h>

#define GUARD 64u
#define GUARD_BYTE 0xeeu
#define SMALL 600u
#define BIG_MAX ((1u << 20) + 1u)
#define AREA ((1u << 20) + 256u)

struct one_copy {
	unsigned char *dst; /* area of AREA bytes, 16-byte aligned, as src */
	const unsigned char *src;
	unsigned dst_off, src_off, n;
	int out; /* dst lies across the bus, else src */
};

/* A byte that tells its place, so that a shifted copy shows. */
#define PATTERN(i) ((unsigned char)(((i)*2654435761u) >> 24))

GNET_DEV void fill(const struct one_copy *c, unsigned tid, unsigned nthreads)
{
	unsigned i;

	for (i = tid; i < c->n + 2u * GUARD; i += nthreads)
		c->dst[c->dst_off + i] = GUARD_BYTE;
}

GNET_DEV void copy(const struct one_copy *c, unsigned tid, unsigned nthreads)
{
	unsigned char *d = c->dst + c->dst_off + GUARD;
	const unsigned char *s = c->src + c->src_off;

	if (c->out)
		gnet__copy_out(d, s, c->n, tid, nthreads);
	else
		gnet__copy(d, s, c->n, tid, nthreads);
}

GNET_DEV unsigned wrong(const struct one_copy *c, unsigned tid, unsigned nthreads)
{
	unsigned i, bad = 0;

	for (i = tid; i < c->n + 2u * GUARD; i += nthreads) {
		unsigned char want = GUARD_BYTE;

		if (i >= GUARD && i < GUARD + c->n)
			want = PATTERN(c->src_off + i - GUARD);
		bad += c->dst[c->dst_off + i] != want;
	}
	return bad;
}

/* Around powers of two, where tails and turns change; 0 at the end. */
GNET_DEV unsigned big_size(unsigned k)
{
	const unsigned p = 1024u << (k / 3u);

	return p > BIG_MAX ? 0 : p + k % 3u - 1u;
}

static const unsigned block_sizes[] = { 1, 7, 32, 33, 64, 100, 256, 1024 };
#define BLOCK_SIZES (sizeof(block_sizes) / sizeof(block_sizes[0]))

static int report(unsigned long long bad, unsigned long long cases, const char *where,
		  unsigned nthreads)
{
	if (bad)
		fprintf(stderr, "%s, %u threads: %llu bytes wrong\n", where, nthreads, bad);
	else if (!cases)
		fprintf(stderr, "%s, %u threads: nothing was tested\n", where, nthreads);
	return bad || !cases;
}

#ifdef __CUDACC__

struct copy_run {
	unsigned char *dst;       /* one area a block */
	const unsigned char *src; /* one for all */
	unsigned long long *bad, *cases;
	int out, big;
};

/* Bounded, since without a bound it takes more registers than 1,024 threads can have. */
extern "C" __global__ void __launch_bounds__(1024) copy_kernel(struct copy_run r)
{
	const unsigned tid = threadIdx.x, nthreads = blockDim.x;
	struct one_copy c = { r.dst + (size_t)blockIdx.x * AREA,
			      r.src,
			      blockIdx.x / 16u,
			      blockIdx.x % 16u,
			      0,
			      r.out };
	unsigned long long bad = 0, cases = 0;
	unsigned k;

	/* Big sizes: blocks take turns with them, or it would take minutes. */
	for (k = r.big ? blockIdx.x % 8u : 0u; r.big ? big_size(k) != 0 : k <= SMALL;
	     k += r.big ? 8u : 1u) {
		c.n = r.big ? big_size(k) : k;
		fill(&c, tid, nthreads);
		__syncthreads();
		copy(&c, tid, nthreads);
		__syncthreads();
		bad += wrong(&c, tid, nthreads);
		cases++;
		__syncthreads();
	}
	if (bad)
		atomicAdd(r.bad, bad);
	if (!tid)
		atomicAdd(r.cases, cases);
}

#include <cuda_runtime.h>

static void need(cudaError_t err, const char *what)
{
	if (err == cudaSuccess)
		return;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(err));
	exit(1);
}

static void *pinned(size_t size)
{
	void *p = NULL;

	need(cudaHostAlloc(&p, size, cudaHostAllocDefault), "cudaHostAlloc");
	return p;
}

static void *on_gpu(size_t size)
{
	void *p = NULL;

	need(cudaMalloc(&p, size), "cudaMalloc");
	return p;
}

/* Blocks at once: all pairs of offsets. */
#define PAIRS 256u

static int run(struct copy_run r, unsigned nthreads, const char *where)
{
	*r.bad = *r.cases = 0;
	copy_kernel<<<PAIRS, nthreads>>>(r);
	need(cudaGetLastError(), "launch");
	need(cudaDeviceSynchronize(), where);
	return report(*r.bad, *r.cases, where, nthreads);
}

int main(void)
{
	unsigned char *pattern_host, *src_gpu, *dst_host, *dst_gpu;
	unsigned long long *counts;
	struct copy_run r = { NULL, NULL, NULL, NULL, 0, 0 };
	int failed = 0, gpus = 0, big;
	unsigned i;

	if (cudaGetDeviceCount(&gpus) != cudaSuccess || !gpus) {
		fputs("skipped: no GPU\n", stderr);
		return 77;
	}
	pattern_host = (unsigned char *)pinned(AREA);
	for (i = 0; i < AREA; i++)
		pattern_host[i] = PATTERN(i);
	src_gpu = (unsigned char *)on_gpu(AREA);
	need(cudaMemcpy(src_gpu, pattern_host, AREA, cudaMemcpyDefault), "cudaMemcpy");
	dst_host = (unsigned char *)pinned((size_t)AREA * PAIRS);
	dst_gpu = (unsigned char *)on_gpu((size_t)AREA * PAIRS);
	counts = (unsigned long long *)pinned(2 * sizeof(*counts));
	r.bad = counts;
	r.cases = counts + 1;
	for (i = 0; i < BLOCK_SIZES; i++) {
		for (big = 0; big < 2; big++) {
			/* One thread across the bus takes microseconds a word. */
			if (big && block_sizes[i] < 32)
				continue;
			r.big = big;
			r.out = 0;
			r.dst = dst_gpu;
			r.src = pattern_host;
			failed += run(r, block_sizes[i], "host to GPU");
			r.src = src_gpu;
			failed += run(r, block_sizes[i], "GPU to GPU");
			r.out = 1;
			r.dst = dst_host;
			failed += run(r, block_sizes[i], "GPU to host");
		}
	}
	return failed ? 1 : 0;
}

#else

/* ThreadSanitizer makes every byte thirty times as dear. */
#if defined(__SANITIZE_THREAD__)
#define STEP 31u
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STEP 31u
#endif
#endif
#ifndef STEP
#define STEP 1u
#endif

static unsigned long long run(const struct one_copy *c, unsigned nthreads)
{
	unsigned tid;

	fill(c, 0, 1);
	for (tid = 0; tid < nthreads; tid++)
		copy(c, tid, nthreads);
	return wrong(c, 0, 1);
}

static int run_all(struct one_copy c, unsigned nthreads)
{
	unsigned long long bad = 0, cases = 0;
	unsigned k;

	for (c.dst_off = 0; c.dst_off < 16; c.dst_off++) {
		for (c.src_off = 0; c.src_off < 16; c.src_off++) {
			for (c.n = (c.dst_off + c.src_off) % STEP; c.n <= SMALL;
			     c.n += STEP, cases++)
				bad += run(&c, nthreads);
			for (k = (c.dst_off + c.src_off) % 16u; (c.n = big_size(k)) != 0;
			     k += 15u + STEP, cases++)
				bad += run(&c, nthreads);
		}
	}
	return report(bad, cases, "CPU", nthreads);
}

int main(void)
{
	unsigned char *src = (unsigned char *)aligned_alloc(16, AREA);
	unsigned char *dst = (unsigned char *)aligned_alloc(16, AREA);
	struct one_copy c = { dst, src, 0, 0, 0, 0 };
	int failed = 0;
	unsigned i;

	if (!src || !dst)
		return 1;
	for (i = 0; i < AREA; i++)
		src[i] = PATTERN(i);
	for (i = 0; i < BLOCK_SIZES; i++)
		failed += run_all(c, block_sizes[i]);
	free(src);
	free(dst);
	return failed ? 1 : 0;
}

#endif
