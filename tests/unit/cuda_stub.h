/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libcuda for tests: it keeps books instead of driving a GPU, and any of its calls can be made to
 * fail. Built as a shared object of its own and loaded through GPUNET_LIBCUDA, as the real one
 * would be.
 */
#ifndef GPUNET_TEST_CUDA_STUB_H
#define GPUNET_TEST_CUDA_STUB_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_STUB_TRACE 256
#define CUDA_STUB_DEVICES 2

struct cuda_stub_state {
	/* What the test sets. */
	int version; /* as cuDriverGetVersion gives it */
	int devices;
	int fail_at;           /* the n-th call fails, counted from 1; 0: none */
	const char *fail_call; /* and every call of this symbol does; NULL: none */
	int fail_code;
	bool nameless; /* cuGetErrorName knows nothing */
	int busy_from; /* from this cuStreamQuery on, counted from 1, streams never end; 0: they are idle */
	bool old_attributes; /* numbers above 105 are CUDA_ERROR_INVALID_VALUE */
	int kernel_timeout;
	/* Of the stub that has calls for copies beside kernels: it stays in its next copy until this is 0 again; … */
	int gate;
	/* … or in its next call for words, which are written by then; … */
	int late;
	/* … words into this memory are CUDA_ERROR_INVALID_VALUE; … */
	unsigned long long no_words_from, no_words_to;
	/* … and calls for several words, or copies, are refused with these. */
	int words_code, copies_code;

	/* What it saw. */
	int calls; /* cuGetErrorName is not counted */
	const char *trace[CUDA_STUB_TRACE];
	int queries;
	int misuse;          /* calls that a real driver would refuse or crash on */
	const char *misused; /* the last one */
	unsigned register_flags, stream_flags;
	/* Copies in (c) and out (r), several in one call (C and how many, 9 for more), refused (D); words (w), refused (x), several
	 * in one call (2 to 9), refused (y). */
	char work[CUDA_STUB_TRACE];
	int works;
	int in_gate; /* a copy is there */

	/* What is held. */
	int primary, pushed, registered, allocated, streams;
};

/* What a test reaches of a stub. The caller's own contexts are made by `context`. */
struct cuda_stub {
	void *library;
	struct cuda_stub_state *state;
	void (*reset)(void);
	void *(*context)(int dev);
	int (*push)(void *ctx);
	int (*pop)(void **ctx);
	int (*current)(void **ctx);
};

static inline bool cuda_stub_slot(void *slot, void *library, const char *name)
{
	void *p = dlsym(library, name);

	memcpy(slot, &p, sizeof(p));
	return p != NULL;
}

/* Makes `file` the libcuda that the library will load. */
static inline bool cuda_stub_use(struct cuda_stub *s, const char *file)
{
	s->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!s->library || !cuda_stub_slot(&s->state, s->library, "stub_state") ||
	    !cuda_stub_slot(&s->reset, s->library, "stub_reset") ||
	    !cuda_stub_slot(&s->context, s->library, "stub_context") ||
	    !cuda_stub_slot(&s->push, s->library, "cuCtxPushCurrent_v2") ||
	    !cuda_stub_slot(&s->pop, s->library, "cuCtxPopCurrent_v2") ||
	    !cuda_stub_slot(&s->current, s->library, "cuCtxGetCurrent"))
		return false;
	s->reset();
	return !setenv("GPUNET_LIBCUDA", file, 1);
}

#endif
