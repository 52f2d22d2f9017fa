/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The words of dev/device.h for the CPU device, and what the library offers the headers of dev/.
 *
 * A block runs on one OS thread; its CUDA threads are fibers on that thread. Between two calls of what is declared here
 * a fiber runs alone in its block, so each call that may switch is where other orders of events come from.
 */
#ifndef GPUNET_DEV_IMPL_CPU_H
#define GPUNET_DEV_IMPL_CPU_H

#include <stddef.h>
#include <stdint.h>

#include <gpunet/api.h>

GPUNET_BEGIN_DECLS

struct gpunet_cpu_dim {
	unsigned x, y, z;
};

struct gpunet_cpu_block {
	struct gpunet_cpu_dim block_idx, block_dim, grid_dim;
	void *shared; /* dynamic shared memory */
};

struct gpunet_cpu_thread {
	struct gpunet_cpu_dim thread_idx;
	unsigned lane;
	const struct gpunet_cpu_block *block;
};

/*
 * Who runs. Outside of kernels: the only thread of a block of one thread, so that device functions may be called from
 * host code, as tests do.
 */
extern __thread const struct gpunet_cpu_thread *gpunet_cpu_self
	__attribute__((tls_model("initial-exec")));

/* May switch to another fiber of the block. Outside of kernels: nothing. */
void gpunet_cpu_yield(void);

/* gpunet_cpu_yield before the caller reads `word`, which its next wait may be about. Before each ordered access. */
void gpunet_cpu_look(const void *word);

/*
 * The caller has found a condition false and will look again: returns at the next event, at `deadline_ns` on
 * CLOCK_MONOTONIC (0: none), or for no reason.
 *
 *	while (!condition)
 *		gpunet_cpu_wait(deadline);
 *
 * misses no event that was made after the condition was changed, however many words it reads and however often the fiber
 * is switched in between: a wait only sleeps if no event was made since the caller's last wait returned.
 *
 * 0; or 1: the kernel has failed in this block or another one, and from now on no wait sleeps. The caller gives up.
 */
int gpunet_cpu_wait(uint64_t deadline_ns);
/* The same without a wait. */
int gpunet_cpu_failed(void);

/*
 * A word that a wait may be about has been changed: waits of all blocks of all CPU devices of the process look again. With
 * the word given, those that read nothing near it (128 bytes) since their last wait may sleep on. A wait whose
 * caller also yielded, or did not look at anything, is about any word.
 */
void gpunet_cpu_event(void);
void gpunet_cpu_event_at(const void *word);

/* Calls what the host has set for queue `q` of the device `dev` (platform.h, set_kick); nothing if nothing is set. */
void gpunet_cpu_kick(void *dev, unsigned q);

enum gpunet_cpu_vote { GPUNET_CPU_COUNT, GPUNET_CPU_ANY, GPUNET_CPU_ALL, GPUNET_CPU_BALLOT };

int gpunet_cpu_barrier(enum gpunet_cpu_vote vote, int predicate);
/*
 * The same within a call that all threads of a block make together: `call` names it. Where some threads of the block are in it and others
 * at another barrier, or have ended, the kernel ends with -EDEADLK. gnet2014_ before the name means the API of 2014.
 */
int gpunet_cpu_barrier_of(const char *call, enum gpunet_cpu_vote vote, int predicate);
void gpunet_cpu_syncwarp(unsigned mask);
unsigned gpunet_cpu_vote(enum gpunet_cpu_vote vote, unsigned mask, int predicate);
uint64_t gpunet_cpu_shuffle(unsigned mask, uint64_t value, unsigned lane);

/*
 * Fences of the C body: a read-modify-write on one word of the process (or of the block), ordered in both directions.
 * Any two fences are thereby ordered, which is what a sequentially consistent fence gives, and ThreadSanitizer, which
 * does not model stand-alone fences, sees it.
 */
void gpunet_cpu_fence(void);
void gpunet_cpu_fence_block(void);

void gpunet_cpu_nanosleep(unsigned ns);
uint64_t gpunet_cpu_time_ns(
	void); /* CLOCK_MONOTONIC; may switch, since loops until a time end with it */

GPUNET_END_DECLS

#define GNET_DEV static inline __attribute__((unused))
#define GNET__COLD GNET_DEV

/* GNET_CPU_MASK_(): a mask that may be left out, then it is all lanes. */
#ifdef __cplusplus
#define GNET_CPU_LINKAGE extern "C"
#define GNET_CPU_MASK_(...) gnet_cpu_mask(__VA_ARGS__)
#define __shared__ static thread_local

GNET_DEV unsigned gnet_cpu_mask(unsigned mask = 0xffffffffu)
{
	return mask;
}
#else
#define GNET_CPU_LINKAGE
#define GNET_CPU_MASK_(...) (((unsigned[]){ 0xffffffffu, __VA_ARGS__ })[sizeof(#__VA_ARGS__) > 1])
#define __shared__ static _Thread_local
#endif

/* The entry point has external linkage: a launch may be in another file than the kernel. */
#define GNET_KERNEL(name, type, arg) GNET_KERNEL_MAX(name, type, arg, 1024)
#define GNET_KERNEL_MAX(name, type, arg, threads)       \
	static void name##_body(type arg);              \
	GNET_CPU_LINKAGE void name##_entry(void *args); \
	GNET_CPU_LINKAGE void name##_entry(void *args)  \
	{                                               \
		name##_body(*(type *)args);             \
	}                                               \
	static void name##_body(type arg)

#define GNET_DYN_SHARED(type, name) type *name = (type *)gpunet_cpu_self->block->shared

#define threadIdx (gpunet_cpu_self->thread_idx)
#define blockIdx (gpunet_cpu_self->block->block_idx)
#define blockDim (gpunet_cpu_self->block->block_dim)
#define gridDim (gpunet_cpu_self->block->grid_dim)
#define warpSize 32

#define __syncthreads() ((void)gpunet_cpu_barrier(GPUNET_CPU_COUNT, 0))
#define __syncthreads_count(p) gpunet_cpu_barrier(GPUNET_CPU_COUNT, gnet_cpu_true(p))
#define __syncthreads_or(p) gpunet_cpu_barrier(GPUNET_CPU_ANY, gnet_cpu_true(p))
#define __syncthreads_and(p) gpunet_cpu_barrier(GPUNET_CPU_ALL, gnet_cpu_true(p))

#define __syncwarp(...) gpunet_cpu_syncwarp(GNET_CPU_MASK_(__VA_ARGS__))
#define __ballot_sync(mask, p) gpunet_cpu_vote(GPUNET_CPU_BALLOT, mask, gnet_cpu_true(p))
#define __any_sync(mask, p) ((int)gpunet_cpu_vote(GPUNET_CPU_ANY, mask, gnet_cpu_true(p)))
#define __all_sync(mask, p) ((int)gpunet_cpu_vote(GPUNET_CPU_ALL, mask, gnet_cpu_true(p)))

#define __popc(x) __builtin_popcount((unsigned)(x))
#define __popcll(x) __builtin_popcountll((unsigned long long)(x))
#define __ffs(x) __builtin_ffs((int)(x))
#define __ffsll(x) __builtin_ffsll((long long)(x))
#define __clz(x) gnet_cpu_clz((unsigned)(x))
#define __clzll(x) gnet_cpu_clzll((unsigned long long)(x))

#define __threadfence() gpunet_cpu_fence()
#define __threadfence_system() gpunet_cpu_fence()
#define __threadfence_block() gpunet_cpu_fence_block()
#define __nanosleep(ns) gpunet_cpu_nanosleep(ns)
#define clock64() ((long long)gpunet_cpu_time_ns())

/* Predicates are ints, of which any bit counts. */
GNET_DEV int gnet_cpu_true(int p)
{
	return p != 0;
}

GNET_DEV uint64_t gnet_time_ns(void)
{
	return gpunet_cpu_time_ns();
}

GNET_DEV int gnet_cpu_clz(unsigned x)
{
	return x ? __builtin_clz(x) : 32;
}

GNET_DEV int gnet_cpu_clzll(unsigned long long x)
{
	return x ? __builtin_clzll(x) : 64;
}

/* ---- shuffles ------------------------------------------------------------------------------------------------------ */

/* The lane that each kind of shuffle reads; a lane beyond the segment of `width` lanes means one's own. */
GNET_DEV unsigned gnet_cpu_lane_idx(unsigned n, unsigned width)
{
	return (gpunet_cpu_self->lane & ~(width - 1)) | (n & (width - 1));
}

GNET_DEV unsigned gnet_cpu_lane_up(unsigned n, unsigned width)
{
	unsigned lane = gpunet_cpu_self->lane;

	return (lane & (width - 1)) >= n ? lane - n : lane;
}

GNET_DEV unsigned gnet_cpu_lane_down(unsigned n, unsigned width)
{
	unsigned lane = gpunet_cpu_self->lane;

	return (lane & (width - 1)) + n < width ? lane + n : lane;
}

GNET_DEV unsigned gnet_cpu_lane_xor(unsigned n, unsigned width)
{
	unsigned lane = gpunet_cpu_self->lane;

	return ((lane ^ n) & 31u) <= (lane | (width - 1)) ? (lane ^ n) & 31u : lane;
}

/* Calls with three arguments take the fourth's default. */
#define GNET_CPU_FOURTH_(a, b, c, d, ...) d
#define GNET_CPU_WIDTH_(...) GNET_CPU_FOURTH_(__VA_ARGS__, 32, 0)
#define GNET_CPU_FIRST_(a, ...) a
#define GNET_CPU_SECOND_(a, b, ...) b
#define GNET_CPU_THIRD_(a, b, c, ...) c

#define GNET_CPU_SHUFFLE_(kind, ...)                                        \
	GNET_CPU_SHUFFLE_FN_(GNET_CPU_SECOND_(__VA_ARGS__, 0))              \
	(GNET_CPU_FIRST_(__VA_ARGS__, 0), GNET_CPU_SECOND_(__VA_ARGS__, 0), \
	 gnet_cpu_lane_##kind((unsigned)(GNET_CPU_THIRD_(__VA_ARGS__, 0)),  \
			      (unsigned)(GNET_CPU_WIDTH_(__VA_ARGS__))))

#define __shfl_sync(...) GNET_CPU_SHUFFLE_(idx, __VA_ARGS__)
#define __shfl_up_sync(...) GNET_CPU_SHUFFLE_(up, __VA_ARGS__)
#define __shfl_down_sync(...) GNET_CPU_SHUFFLE_(down, __VA_ARGS__)
#define __shfl_xor_sync(...) GNET_CPU_SHUFFLE_(xor, __VA_ARGS__)

/*
 * One function a type. C chooses with _Generic among names that end in the type's short name, C++ by overloading one
 * name.
 */
#ifdef __cplusplus
#define GNET_CPU_NAME_(name, suffix) gnet_cpu_##name
#define GNET_CPU_SHUFFLE_FN_(v) gnet_cpu_shuffle
#define GNET_CPU_ATOMIC_FN_(name, p) gnet_cpu_##name
#else
#define GNET_CPU_NAME_(name, suffix) gnet_cpu_##name##_##suffix
#define GNET_CPU_SHUFFLE_FN_(v)                            \
	_Generic((v), int                                  \
		 : gnet_cpu_shuffle_i, unsigned            \
		 : gnet_cpu_shuffle_u, long                \
		 : gnet_cpu_shuffle_l, unsigned long       \
		 : gnet_cpu_shuffle_ul, long long          \
		 : gnet_cpu_shuffle_ll, unsigned long long \
		 : gnet_cpu_shuffle_ull)
#define GNET_CPU_ATOMIC_FN_(name, p) \
	_Generic((p), int *: gnet_cpu_##name##_i,     \
		 unsigned *: gnet_cpu_##name##_u,     \
		 unsigned long long *: gnet_cpu_##name##_ull)
#endif

#define GNET_CPU_DEFINE_SHUFFLE_(type, suffix)                                              \
	GNET_DEV type GNET_CPU_NAME_(shuffle, suffix)(unsigned mask, type v, unsigned lane) \
	{                                                                                   \
		return (type)gpunet_cpu_shuffle(mask, (uint64_t)v, lane);                   \
	}

GNET_CPU_DEFINE_SHUFFLE_(int, i)
GNET_CPU_DEFINE_SHUFFLE_(unsigned, u)
GNET_CPU_DEFINE_SHUFFLE_(long, l)
GNET_CPU_DEFINE_SHUFFLE_(unsigned long, ul)
GNET_CPU_DEFINE_SHUFFLE_(long long, ll)
GNET_CPU_DEFINE_SHUFFLE_(unsigned long long, ull)

/* ---- atomics: relaxed as on the GPU, so that a fence that is missing there is missing here ------------------------- */

#define atomicAdd(p, v) GNET_CPU_ATOMIC_FN_(add, p)(p, v)
#define atomicSub(p, v) GNET_CPU_ATOMIC_FN_(sub, p)(p, v)
#define atomicExch(p, v) GNET_CPU_ATOMIC_FN_(exch, p)(p, v)
#define atomicMin(p, v) GNET_CPU_ATOMIC_FN_(min, p)(p, v)
#define atomicMax(p, v) GNET_CPU_ATOMIC_FN_(max, p)(p, v)
#define atomicAnd(p, v) GNET_CPU_ATOMIC_FN_(and, p)(p, v)
#define atomicOr(p, v) GNET_CPU_ATOMIC_FN_(or, p)(p, v)
#define atomicXor(p, v) GNET_CPU_ATOMIC_FN_(xor, p)(p, v)
#define atomicCAS(p, old, v) GNET_CPU_ATOMIC_FN_(cas, p)(p, old, v)

#define GNET_CPU_DEFINE_RMW_(type, name, suffix, builtin)            \
	GNET_DEV type GNET_CPU_NAME_(name, suffix)(type * p, type v) \
	{                                                            \
		gpunet_cpu_look(p);                                  \
		return builtin(p, v, __ATOMIC_RELAXED);              \
	}

#define GNET_CPU_DEFINE_CHOICE_(type, name, suffix, better)                          \
	GNET_DEV type GNET_CPU_NAME_(name, suffix)(type * p, type v)                 \
	{                                                                            \
		type old;                                                            \
                                                                                     \
		gpunet_cpu_look(p);                                                  \
		old = __atomic_load_n(p, __ATOMIC_RELAXED);                          \
		while (v better old &&                                               \
		       !__atomic_compare_exchange_n(p, &old, v, 1, __ATOMIC_RELAXED, \
						    __ATOMIC_RELAXED)) {             \
		}                                                                    \
		return old;                                                          \
	}

#define GNET_CPU_DEFINE_CAS_(type, suffix)                                                      \
	GNET_DEV type GNET_CPU_NAME_(cas, suffix)(type * p, type old, type v)                   \
	{                                                                                       \
		gpunet_cpu_look(p);                                                             \
		__atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
		return old;                                                                     \
	}

#define GNET_CPU_DEFINE_ATOMICS_(type, suffix)                        \
	GNET_CPU_DEFINE_RMW_(type, add, suffix, __atomic_fetch_add)   \
	GNET_CPU_DEFINE_RMW_(type, sub, suffix, __atomic_fetch_sub)   \
	GNET_CPU_DEFINE_RMW_(type, exch, suffix, __atomic_exchange_n) \
	GNET_CPU_DEFINE_RMW_(type, and, suffix, __atomic_fetch_and)   \
	GNET_CPU_DEFINE_RMW_(type, or, suffix, __atomic_fetch_or)     \
	GNET_CPU_DEFINE_RMW_(type, xor, suffix, __atomic_fetch_xor)   \
	GNET_CPU_DEFINE_CHOICE_(type, min, suffix, <)                 \
	GNET_CPU_DEFINE_CHOICE_(type, max, suffix, >)                 \
	GNET_CPU_DEFINE_CAS_(type, suffix)

GNET_CPU_DEFINE_ATOMICS_(int, i)
GNET_CPU_DEFINE_ATOMICS_(unsigned, u)
GNET_CPU_DEFINE_ATOMICS_(unsigned long long, ull)

#endif
