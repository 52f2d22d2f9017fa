/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled by nvcc only. */
#include "rnic_far.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

static cudaStream_t stream;
static struct far_watch *shared;

static int ok(cudaError_t err, const char *what)
{
	if (err == cudaSuccess)
		return 0;
	fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(err));
	return -1;
}

/* The driver's calls without linking to it: the program must start where there is none. */
static int entry(const char *name, void **fn)
{
	cudaDriverEntryPointQueryResult found;

	return ok(cudaGetDriverEntryPointByVersion(name, fn, 12000, cudaEnableDefault, &found),
		  name) ||
	       found != cudaDriverEntryPointSuccess;
}

static int vmm_alloc(size_t size, void **out, size_t *seam)
{
	CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
				CUmemAllocationGranularity_flags) = NULL;
	CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long) = NULL;
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			   unsigned long long) = NULL;
	CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
			unsigned long long) = NULL;
	CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) = NULL;
	CUmemAllocationProp prop = {};
	CUmemAccessDesc desc = {};
	CUdeviceptr base = 0;
	size_t unit = 0, at;

	if (entry("cuMemGetAllocationGranularity", (void **)&granularity) ||
	    entry("cuMemAddressReserve", (void **)&reserve) ||
	    entry("cuMemCreate", (void **)&create) || entry("cuMemMap", (void **)&map) ||
	    entry("cuMemSetAccess", (void **)&access))
		return -1;
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	desc.location = prop.location;
	desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	if (granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS || !unit)
		return -1;
	size = (size + unit - 1) / unit * unit;
	if (reserve(&base, size, 0, 0, 0) != CUDA_SUCCESS)
		return -1;
	for (at = 0; at < size; at += unit) {
		CUmemGenericAllocationHandle h;

		if (create(&h, unit, &prop, 0) != CUDA_SUCCESS ||
		    map(base + at, unit, 0, h, 0) != CUDA_SUCCESS)
			return -1;
	}
	if (access(base, size, &desc, 1) != CUDA_SUCCESS)
		return -1;
	*out = (void *)(uintptr_t)base;
	*seam = unit;
	return 0;
}

/* Also when a test fails, and CUDA might wait for the kernel at the process's end. */
static void stop_at_exit(void)
{
	__atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
}

extern "C" int far_open(void)
{
	int n = 0;

	if (cudaGetDeviceCount(&n) != cudaSuccess || !n)
		return 77;
	return ok(cudaFree(NULL), "cudaFree") ||
	       ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate") ||
	       ok(cudaHostAlloc((void **)&shared, sizeof(*shared), cudaHostAllocDefault),
		  "cudaHostAlloc") ||
	       atexit(stop_at_exit);
}

extern "C" int far_alloc(enum far_kind kind, size_t size, void **out, size_t *seam)
{
	*seam = 0;
	switch (kind) {
	case FAR_MALLOC:
		return ok(cudaMalloc(out, size), "cudaMalloc");
	case FAR_POOL:
		return ok(cudaMallocAsync(out, size, stream), "cudaMallocAsync") ||
		       ok(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
	default:
		return vmm_alloc(size, out, seam);
	}
}

extern "C" int far_put(void *gpu, const void *host, size_t n)
{
	return ok(cudaMemcpy(gpu, host, n, cudaMemcpyHostToDevice), "cudaMemcpy");
}

extern "C" int far_get(void *host, const void *gpu, size_t n)
{
	return ok(cudaMemcpy(host, gpu, n, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

static __device__ unsigned long long load_acquire(const unsigned long long *p)
{
	unsigned long long v;

	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

static __device__ void store_release(uint64_t *p, unsigned long long v)
{
	asm volatile("st.release.sys.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}

static __device__ unsigned long long load_host(const uint64_t *p)
{
	unsigned long long v;

	asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

/* Waits for the turn's flag: false when it was told to stop. */
static __device__ bool await(struct far_watch *w, const unsigned long long *flag, uint64_t turn)
{
	unsigned n = 0;

	while (load_acquire(flag) != turn) {
		if (++n % 4096 == 0 && load_host(&w->stop))
			return false;
	}
	return true;
}

static __global__ void watch_kernel(struct far_watch *w, const unsigned long long *payload,
				    unsigned words, const unsigned long long *flag, uint64_t turns)
{
	__shared__ int go;
	uint64_t turn;

	for (turn = 1; turn <= turns; turn++) {
		int wrong = 0;
		unsigned i;

		if (!threadIdx.x)
			go = await(w, flag, turn);
		__syncthreads();
		if (!go)
			break;
		for (i = threadIdx.x; i < words; i += blockDim.x)
			wrong |= *(const volatile unsigned long long *)&payload[i] !=
				 FAR_WORD(turn, i);
		wrong = __syncthreads_or(wrong);
		if (!threadIdx.x) {
			if (wrong)
				w->wrong++;
			store_release(&w->seen, turn);
		}
		__syncthreads();
	}
	if (!threadIdx.x)
		store_release(&w->ended, 1);
}

extern "C" int far_watch_start(struct far_watch **w, const void *payload, unsigned words,
			       const void *flag, uint64_t turns)
{
	*shared = (struct far_watch){};
	*w = shared;
	watch_kernel<<<1, 32, 0, stream>>>(shared, (const unsigned long long *)payload, words,
					   (const unsigned long long *)flag, turns);
	return ok(cudaGetLastError(), "launch");
}

static __global__ void crowd_kernel(struct far_watch *w)
{
	if (!threadIdx.x)
		atomicAdd_system((unsigned long long *)&w->seen, 1ull);
	while (!load_host(&w->stop))
		__nanosleep(1000);
}

extern "C" int far_crowd_start(struct far_watch **w, unsigned *blocks)
{
	enum { THREADS = 1024 };
	int dev, sms, threads;

	if (ok(cudaGetDevice(&dev), "cudaGetDevice") ||
	    ok(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, dev), "attribute") ||
	    ok(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, dev),
	       "attribute"))
		return -1;
	*blocks = (unsigned)(sms * (threads / THREADS));
	*shared = (struct far_watch){};
	*w = shared;
	crowd_kernel<<<*blocks, THREADS, 0, stream>>>(shared);
	return ok(cudaGetLastError(), "launch");
}

extern "C" int far_watch_end(void)
{
	return ok(cudaStreamSynchronize(stream), "the watching kernel");
}
