/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda_stub.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_HELD 64
#define MAX_STACK 8

/* The prototypes of <cuda.h>, which the test must do without. */
typedef int result;
typedef unsigned long long devptr;

EXPORT result cuInit(unsigned flags);
EXPORT result cuDriverGetVersion(int *version);
EXPORT result cuGetErrorName(result error, const char **name);
EXPORT result cuDeviceGetCount(int *count);
EXPORT result cuDeviceGet(int *dev, int ordinal);
EXPORT result cuDeviceGetName(char *name, int size, int dev);
EXPORT result cuDeviceGetAttribute(int *value, int attr, int dev);
EXPORT result cuDevicePrimaryCtxRetain(void **ctx, int dev);
EXPORT result cuDevicePrimaryCtxRelease_v2(int dev);
EXPORT result cuCtxGetCurrent(void **ctx);
EXPORT result cuCtxGetDevice(int *dev);
EXPORT result cuCtxPushCurrent_v2(void *ctx);
EXPORT result cuCtxPopCurrent_v2(void **ctx);
EXPORT result cuMemHostRegister_v2(void *p, size_t size, unsigned flags);
EXPORT result cuMemHostUnregister(void *p);
EXPORT result cuMemHostGetDevicePointer_v2(devptr *dev, void *p, unsigned flags);
EXPORT result cuMemAlloc_v2(devptr *dev, size_t size);
EXPORT result cuMemFree_v2(devptr dev);
EXPORT result cuMemsetD8Async(devptr dev, unsigned char byte, size_t n, void *s);
EXPORT result cuMemcpyHtoDAsync_v2(devptr dst, const void *src, size_t n, void *s);
EXPORT result cuMemcpyDtoHAsync_v2(void *dst, devptr src, size_t n, void *s);
EXPORT result cuStreamCreateWithPriority(void **s, unsigned flags, int priority);
EXPORT result cuStreamDestroy_v2(void *s);
EXPORT result cuStreamQuery(void *s);
EXPORT result cuModuleGetLoadingMode(int *mode);
#ifdef CUDA_STUB_COPIES
EXPORT result cuPointerGetAttribute(void *value, int attr, devptr at);
EXPORT result cuStreamWriteValue32_v2(void *s, devptr at, uint32_t v, unsigned flags);
EXPORT result cuStreamWriteValue64_v2(void *s, devptr at, uint64_t v, unsigned flags);
EXPORT result cuStreamBatchMemOp_v2(void *s, unsigned n, void *ops, unsigned flags);
EXPORT result cuMemcpyBatchAsync_v2(devptr *dst, devptr *src, size_t *size, size_t n, void *how,
				    size_t *first, size_t hows, void *s);
#endif

/* For the test: the books, a fresh start, and contexts of the caller's own. */
extern EXPORT struct cuda_stub_state stub_state;
EXPORT void stub_reset(void);
EXPORT void *stub_context(int dev);

struct cuda_stub_state stub_state;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char primaries[CUDA_STUB_DEVICES], own[CUDA_STUB_DEVICES], a_stream;
static void *allocated[MAX_HELD], *registered[MAX_HELD];
static _Thread_local void *stack[MAX_STACK];
static _Thread_local int depth;

void stub_reset(void)
{
	for (int i = 0; i < MAX_HELD; i++) {
		free(allocated[i]);
		allocated[i] = registered[i] = NULL;
	}
	depth = 0;
	memset(&stub_state, 0, sizeof(stub_state));
	stub_state.version = 13000;
	stub_state.devices = CUDA_STUB_DEVICES;
}

void *stub_context(int dev)
{
	return &own[dev];
}

static result wrong(const char *name, result r)
{
	stub_state.misuse++;
	stub_state.misused = name;
	return r;
}

/* Books a call; what it shall return if it shall fail. */
static result book(const char *name)
{
	struct cuda_stub_state *s = &stub_state;

	if (s->calls < CUDA_STUB_TRACE)
		s->trace[s->calls] = name;
	s->calls++;
	if (s->calls == s->fail_at || (s->fail_call && !strcmp(s->fail_call, name)))
		return s->fail_code;
	return 0;
}

/* Books a call that needs a current context. */
static result book_in_context(const char *name)
{
	result r = book(name);

	return r || depth ? r : wrong(name, 201);
}

static bool hold(void **set, void *p, int *count)
{
	for (int i = 0; i < MAX_HELD; i++)
		if (!set[i]) {
			set[i] = p;
			(*count)++;
			return true;
		}
	return false;
}

static bool drop(void **set, void *p, int *count)
{
	for (int i = 0; i < MAX_HELD; i++)
		if (p && set[i] == p) {
			set[i] = NULL;
			(*count)--;
			return true;
		}
	return false;
}

/* Runs a body under the lock: r is what book says, the body sees r == 0. */
#define CALL(how, body)                      \
	do {                                 \
		result r;                    \
                                             \
		pthread_mutex_lock(&lock);   \
		r = how(__func__);           \
		if (!r)                      \
			body;                \
		pthread_mutex_unlock(&lock); \
		return r;                    \
	} while (0)

result cuInit(unsigned flags)
{
	CALL(book, { r = flags ? wrong("cuInit", 1) : stub_state.devices ? 0 : 100; });
}

result cuDriverGetVersion(int *version)
{
	CALL(book, { *version = stub_state.version; });
}

result cuGetErrorName(result error, const char **name)
{
	static const char *const names[1000] = {
		[1] = "CUDA_ERROR_INVALID_VALUE", [2] = "CUDA_ERROR_OUT_OF_MEMORY",
		[600] = "CUDA_ERROR_NOT_READY",   [700] = "CUDA_ERROR_ILLEGAL_ADDRESS",
		[999] = "CUDA_ERROR_UNKNOWN",
	};

	*name = error > 0 && error < 1000 && !stub_state.nameless ? names[error] : NULL;
	return *name ? 0 : 1;
}

result cuDeviceGetCount(int *count)
{
	CALL(book, { *count = stub_state.devices; });
}

result cuDeviceGet(int *dev, int ordinal)
{
	/* Numbers differ from ordinals, so that a mix-up of the two shows. */
	CALL(book, { *dev = ordinal + 10; });
}

result cuDeviceGetName(char *name, int size, int dev)
{
	CALL(book, { snprintf(name, (size_t)size, "Stub GPU %d", dev - 10); });
}

result cuDeviceGetAttribute(int *value, int attr, int dev)
{
	CALL(book, {
		if (attr > 105 && stub_state.old_attributes)
			r = 1;
		else if (dev < 10)
			r = wrong("cuDeviceGetAttribute", 101);
		else
			*value = attr == 16    ? 132
				 : attr == 39  ? 2048
				 : attr == 106 ? 32
				 : attr == 75  ? 9
				 : attr == 17  ? stub_state.kernel_timeout
				 : attr == 33  ? 0x1b
					       : 0;
	});
}

result cuDevicePrimaryCtxRetain(void **ctx, int dev)
{
	CALL(book, {
		*ctx = &primaries[dev - 10];
		stub_state.primary++;
	});
}

#ifndef CUDA_STUB_ANCIENT
result cuDevicePrimaryCtxRelease_v2(int dev)
{
	CALL(book, {
		if (dev < 10 || !stub_state.primary)
			r = wrong("cuDevicePrimaryCtxRelease_v2", 101);
		else
			stub_state.primary--;
	});
}
#endif

result cuCtxGetCurrent(void **ctx)
{
	CALL(book, { *ctx = depth ? stack[depth - 1] : NULL; });
}

result cuCtxGetDevice(int *dev)
{
	CALL(book_in_context, {
		const char *c = stack[depth - 1];

		for (int i = 0; i < CUDA_STUB_DEVICES; i++)
			if (c == &own[i] || c == &primaries[i])
				*dev = i + 10;
	});
}

result cuCtxPushCurrent_v2(void *ctx)
{
	CALL(book, {
		if (!ctx || depth == MAX_STACK) {
			r = wrong("cuCtxPushCurrent_v2", 201);
		} else {
			stack[depth++] = ctx;
			stub_state.pushed++;
		}
	});
}

result cuCtxPopCurrent_v2(void **ctx)
{
	CALL(book_in_context, {
		*ctx = stack[--depth];
		stub_state.pushed--;
	});
}

result cuMemHostRegister_v2(void *p, size_t size, unsigned flags)
{
	CALL(book_in_context, {
		stub_state.register_flags = flags;
		if (!size || (uintptr_t)p % 4096 || !hold(registered, p, &stub_state.registered))
			r = wrong("cuMemHostRegister_v2", 1);
	});
}

result cuMemHostUnregister(void *p)
{
	CALL(book_in_context, {
		if (!drop(registered, p, &stub_state.registered))
			r = wrong("cuMemHostUnregister", 713);
	});
}

result cuMemHostGetDevicePointer_v2(devptr *dev, void *p, unsigned flags)
{
	CALL(book_in_context, { *dev = flags ? 0 : (devptr)(uintptr_t)p; });
}

result cuMemAlloc_v2(devptr *dev, size_t size)
{
	CALL(book_in_context, {
		void *p = malloc(size);

		if (!p || !hold(allocated, p, &stub_state.allocated)) {
			free(p);
			r = 2;
		} else {
			memset(p, 0xa5, size);
			*dev = (devptr)(uintptr_t)p;
		}
	});
}

result cuMemFree_v2(devptr dev)
{
	CALL(book_in_context, {
		void *p = (void *)(uintptr_t)dev;

		if (drop(allocated, p, &stub_state.allocated))
			free(p);
		else
			r = wrong("cuMemFree_v2", 1);
	});
}

static bool alive(const void *s)
{
	return s == &a_stream && stub_state.streams > 0;
}

result cuMemsetD8Async(devptr dev, unsigned char byte, size_t n, void *s)
{
	CALL(book_in_context, {
		if (alive(s))
			memset((void *)(uintptr_t)dev, byte, n);
		else
			r = wrong("cuMemsetD8Async", 400);
	});
}

/* What the GPU would have been given to do. Under the lock. */
static void note_work(char what)
{
	if (stub_state.works < CUDA_STUB_TRACE - 1)
		stub_state.work[stub_state.works++] = what;
}

static void wait_at_gate(void)
{
	const struct timespec nap = { .tv_nsec = 100000 };

	while (__atomic_load_n(&stub_state.gate, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&stub_state.in_gate, 1, __ATOMIC_RELEASE);
		nanosleep(&nap, NULL);
	}
}

result cuMemcpyHtoDAsync_v2(devptr dst, const void *src, size_t n, void *s)
{
	wait_at_gate();
	CALL(book_in_context, {
		note_work('c');
		if (alive(s))
			memcpy((void *)(uintptr_t)dst, src, n);
		else
			r = wrong("cuMemcpyHtoDAsync_v2", 400);
	});
}

result cuMemcpyDtoHAsync_v2(void *dst, devptr src, size_t n, void *s)
{
	CALL(book_in_context, {
		note_work('r');
		if (alive(s))
			memcpy(dst, (const void *)(uintptr_t)src, n);
		else
			r = wrong("cuMemcpyDtoHAsync_v2", 400);
	});
}

result cuStreamCreateWithPriority(void **s, unsigned flags, int priority)
{
	CALL(book_in_context, {
		stub_state.stream_flags = flags;
		*s = &a_stream + priority;
		stub_state.streams++;
	});
}

result cuStreamDestroy_v2(void *s)
{
	CALL(book_in_context, {
		if (alive(s))
			stub_state.streams--;
		else
			r = wrong("cuStreamDestroy_v2", 400);
	});
}

result cuStreamQuery(void *s)
{
	CALL(book_in_context, {
		stub_state.queries++;
		if (!alive(s))
			r = wrong("cuStreamQuery", 400);
		else if (stub_state.busy_from && stub_state.queries >= stub_state.busy_from)
			r = 600;
	});
}

#ifndef CUDA_STUB_BEFORE_LAZY
result cuModuleGetLoadingMode(int *mode)
{
	CALL(book, { *mode = 2; });
}
#endif

#ifdef CUDA_STUB_COPIES
result cuPointerGetAttribute(void *value, int attr, devptr at)
{
	CALL(book_in_context, {
		(void)at;
		r = attr == 2 || attr == 9 ? 0 : 1;
		if (!r)
			*(unsigned *)value = attr == 2 ? 2 : 0;
	});
}

static void come_back_late(void)
{
	const struct timespec nap = { .tv_nsec = 100000 };

	while (__atomic_load_n(&stub_state.late, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
}

static bool takes_words(devptr at)
{
	return at < stub_state.no_words_from || at >= stub_state.no_words_to;
}

result cuStreamWriteValue32_v2(void *s, devptr at, uint32_t v, unsigned flags)
{
	CALL(book_in_context, {
		note_work(takes_words(at) ? 'w' : 'x');
		if (!alive(s) || flags || at % 4)
			r = wrong("cuStreamWriteValue32_v2", 400);
		else if (takes_words(at))
			__atomic_store_n((uint32_t *)(uintptr_t)at, v, __ATOMIC_RELEASE);
		else
			r = 1;
	});
}

result cuStreamWriteValue64_v2(void *s, devptr at, uint64_t v, unsigned flags)
{
	CALL(book_in_context, {
		note_work(takes_words(at) ? 'w' : 'x');
		if (!alive(s) || flags || at % 8)
			r = wrong("cuStreamWriteValue64_v2", 400);
		else if (takes_words(at))
			__atomic_store_n((uint64_t *)(uintptr_t)at, v, __ATOMIC_RELEASE);
		else
			r = 1;
		come_back_late();
	});
}

#ifndef CUDA_STUB_NO_BATCH
/* As <cuda.h> has it, of words only. */
union word {
	struct {
		unsigned operation;
		devptr at;
		union {
			uint32_t v4;
			uint64_t v8;
		};
	} w;
	uint64_t pad[6];
};

result cuStreamBatchMemOp_v2(void *s, unsigned n, void *ops, unsigned flags)
{
	CALL(book_in_context, {
		const union word *o = ops;

		r = stub_state.words_code;
		for (unsigned i = 0; i < n && !r; i++)
			r = !takes_words(o[i].w.at);
		note_work(r ? 'y' : (char)('0' + (n < 9 ? n : 9)));
		if (!alive(s) || flags || n > 255)
			r = wrong("cuStreamBatchMemOp_v2", 400);
		for (unsigned i = 0; i < n && !r; i++) {
			void *to = (void *)(uintptr_t)o[i].w.at;

			if (o[i].w.operation == 5)
				__atomic_store_n((uint64_t *)to, o[i].w.v8, __ATOMIC_RELEASE);
			else if (o[i].w.operation == 2)
				__atomic_store_n((uint32_t *)to, o[i].w.v4, __ATOMIC_RELEASE);
			else
				r = wrong("cuStreamBatchMemOp_v2", 1);
		}
		come_back_late();
	});
}

struct how {
	int order, hints[4];
	unsigned flags;
};

/* In an order that nobody would expect. */
result cuMemcpyBatchAsync_v2(devptr *dst, devptr *src, size_t *size, size_t n, void *how,
			     size_t *first, size_t hows, void *s)
{
	CALL(book_in_context, {
		const struct how *h = how;

		r = stub_state.copies_code;
		note_work(r ? 'D' : 'C');
		if (!r)
			note_work((char)('0' + (n < 9 ? n : 9)));
		if (!alive(s) || !n || hows != 1 || *first || h->order != 1 || h->flags != 1)
			r = wrong("cuMemcpyBatchAsync_v2", 1);
		while (!r && n--)
			memcpy((void *)(uintptr_t)dst[n], (const void *)(uintptr_t)src[n], size[n]);
	});
}
#endif
#endif
