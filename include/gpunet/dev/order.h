/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every load, store and read-modify-write that orders something, each with what it orders and why. Exactly two bodies:
 * PTX for the GPU, C11-model atomics for the CPU device. Nothing else in gpunet orders memory; `volatile` never does.
 *
 * System scope (gnet_sys_*): words in host memory that a kernel and the CPU share.
 *
 *   gnet_sys_load         one cell, complete, no order with anything else. Enough for tagged cells: the tag travels in
 *                         the same 8 bytes as the payload.
 *   gnet_sys_load_acquire what the writer stored before its release of the value seen is visible to this thread's later
 *                         loads, and after a block barrier to the block's. For positions in rings.
 *   gnet_sys_store        one cell, complete, no order. For tagged cells.
 *   gnet_sys_store_release everything this thread stored, and what other threads stored before a barrier that this
 *                         thread passed, is visible before the value is. For positions in rings, and for cell 0 of an
 *                         entry that speaks of bytes which lie elsewhere.
 *
 * Device scope (gnet_dev_*): words in device memory that blocks share.
 *
 *   gnet_dev_load, _load_acquire, _store, _store_release as above.
 *   gnet_dev_add, _or, _and, _cas   acquire and release: before and after stay before and after.
 *   gnet_dev_cas_acquire            takes a lock: what its last holder wrote is visible.
 *   gnet_dev_cas_relaxed            takes a lock from a holder who was this very scope: there is nothing to be seen.
 *   gnet_dev_add_relaxed            gives a lock back whose word says itself what its holder did.
 *   gnet_dev_add_release            adds and returns nothing: gives a lock back, after all that its holder did.
 *   gnet_dev_ticket                 fetch-and-add that orders nothing: only the number counts.
 *   gnet_release_both               gnet_sys_store_release and gnet_dev_add_release of what was done before both, for the
 *                                   price of one: the two may be seen in either order. The caller holds the lock *p, perhaps taken
 *                                   relaxed: what those did who gave it back with release comes before both, too.
 *   On a GPU the difference is half a microsecond each: a release waits for earlier stores, an acquire empties the L1.
 *
 * On the CPU device each of them may switch to another fiber, and those that may end another block's wait also tell the
 * device so (gpunet_cpu_event); stand-alone fences are not used, since ThreadSanitizer does not model them.
 */
#ifndef GPUNET_DEV_ORDER_H
#define GPUNET_DEV_ORDER_H

#include <gpunet/dev/device.h>
#include <stdint.h>

#ifdef __CUDACC__

GNET_DEV uint64_t gnet_sys_load(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
		     : "=l"(v)
		     : "l"(__cvta_generic_to_global(p))
		     : "memory");
	return v;
}

GNET_DEV uint64_t gnet_sys_load_acquire(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
		     : "=l"(v)
		     : "l"(__cvta_generic_to_global(p))
		     : "memory");
	return v;
}

GNET_DEV void gnet_sys_store(uint64_t *p, uint64_t v)
{
	asm volatile("st.relaxed.sys.global.u64 [%0], %1;"
		     :
		     : "l"(__cvta_generic_to_global(p)), "l"(v)
		     : "memory");
}

GNET_DEV void gnet_sys_store_release(uint64_t *p, uint64_t v)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;"
		     :
		     : "l"(__cvta_generic_to_global(p)), "l"(v)
		     : "memory");
}

GNET_DEV uint64_t gnet_dev_load(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];"
		     : "=l"(v)
		     : "l"(__cvta_generic_to_global(p))
		     : "memory");
	return v;
}

GNET_DEV uint64_t gnet_dev_load_acquire(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
		     : "=l"(v)
		     : "l"(__cvta_generic_to_global(p))
		     : "memory");
	return v;
}

GNET_DEV void gnet_dev_store(uint64_t *p, uint64_t v)
{
	asm volatile("st.relaxed.gpu.global.u64 [%0], %1;"
		     :
		     : "l"(__cvta_generic_to_global(p)), "l"(v)
		     : "memory");
}

GNET_DEV void gnet_dev_store_release(uint64_t *p, uint64_t v)
{
	asm volatile("st.release.gpu.global.u64 [%0], %1;"
		     :
		     : "l"(__cvta_generic_to_global(p)), "l"(v)
		     : "memory");
}

GNET_DEV uint64_t gnet_dev_add(uint64_t *p, uint64_t v)
{
	uint64_t old;

	asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
		     : "=l"(old)
		     : "l"(__cvta_generic_to_global(p)), "l"(v)
		     : "memory");
	return old;
}

GNET_DEV uint64_t gnet_dev_or(uint64_t *p, uint64_t v)
{
	uint64_t old;

	asm volatile("atom.acq_rel.gpu.global.or.b64 %0, [%1], %2;"
		     : "=l"(old)
		     : "l"(__cvta_generic_to_global(p)), "l"(v)
		     : "memory");
	return old;
}

GNET_DEV uint64_t gnet_dev_and(uint64_t *p, uint64_t v)
{
	uint64_t old;

	asm volatile("atom.acq_rel.gpu.global.and.b64 %0, [%1], %2;"
		     : "=l"(old)
		     : "l"(__cvta_generic_to_global(p)), "l"(v)
		     : "memory");
	return old;
}

/* Returns what was there: equal to `expected` if the swap was made. */
GNET_DEV uint64_t gnet_dev_cas(uint64_t *p, uint64_t expected, uint64_t desired)
{
	uint64_t old;

	asm volatile("atom.acq_rel.gpu.global.cas.b64 %0, [%1], %2, %3;"
		     : "=l"(old)
		     : "l"(__cvta_generic_to_global(p)), "l"(expected), "l"(desired)
		     : "memory");
	return old;
}

GNET_DEV uint64_t gnet_dev_cas_acquire(uint64_t *p, uint64_t expected, uint64_t desired)
{
	uint64_t old;

	asm volatile("atom.acquire.gpu.global.cas.b64 %0, [%1], %2, %3;"
		     : "=l"(old)
		     : "l"(__cvta_generic_to_global(p)), "l"(expected), "l"(desired)
		     : "memory");
	return old;
}

GNET_DEV uint64_t gnet_dev_cas_relaxed(uint64_t *p, uint64_t expected, uint64_t desired)
{
	uint64_t old;

	asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
		     : "=l"(old)
		     : "l"(__cvta_generic_to_global(p)), "l"(expected), "l"(desired)
		     : "memory");
	return old;
}

GNET_DEV void gnet_dev_add_release(uint64_t *p, uint64_t v)
{
	asm volatile("red.release.gpu.global.add.u64 [%0], %1;"
		     :
		     : "l"(__cvta_generic_to_global(p)), "l"(v)
		     : "memory");
}

/* A fence, and a store and an addition behind it: each is a release. */
GNET_DEV void gnet_release_both(uint64_t *word, uint64_t v, uint64_t *p, uint64_t add)
{
	asm volatile("fence.acq_rel.sys;\n\t"
		     "st.relaxed.sys.global.u64 [%0], %1;\n\t"
		     "red.relaxed.gpu.global.add.u64 [%2], %3;"
		     :
		     : "l"(__cvta_generic_to_global(word)), "l"(v),
		       "l"(__cvta_generic_to_global(p)), "l"(add)
		     : "memory");
}

GNET_DEV void gnet_dev_add_relaxed(uint64_t *p, uint64_t v)
{
	asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;"
		     :
		     : "l"(__cvta_generic_to_global(p)), "l"(v)
		     : "memory");
}

/* Orders nothing: a word that never changes is brought near, after an acquire has emptied the L1. */
GNET_DEV void gnet_dev_prefetch(const uint64_t *p)
{
	asm volatile("prefetch.global.L1 [%0];" : : "l"(__cvta_generic_to_global(p)));
}

GNET_DEV uint64_t gnet_dev_ticket(uint64_t *p)
{
	uint64_t old;

	asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], 1;"
		     : "=l"(old)
		     : "l"(__cvta_generic_to_global(p))
		     : "memory");
	return old;
}

#else

GNET_DEV uint64_t gnet_sys_load(const uint64_t *p)
{
	gpunet_cpu_look(p);
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

GNET_DEV uint64_t gnet_sys_load_acquire(const uint64_t *p)
{
	gpunet_cpu_look(p);
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

GNET_DEV void gnet_sys_store(uint64_t *p, uint64_t v)
{
	gpunet_cpu_look(p);
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

GNET_DEV void gnet_sys_store_release(uint64_t *p, uint64_t v)
{
	gpunet_cpu_look(p);
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

GNET_DEV uint64_t gnet_dev_load(const uint64_t *p)
{
	gpunet_cpu_look(p);
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

GNET_DEV uint64_t gnet_dev_load_acquire(const uint64_t *p)
{
	gpunet_cpu_look(p);
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

GNET_DEV void gnet_dev_store(uint64_t *p, uint64_t v)
{
	gpunet_cpu_look(p);
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

GNET_DEV void gnet_dev_store_release(uint64_t *p, uint64_t v)
{
	gpunet_cpu_look(p);
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
	gpunet_cpu_event_at(p);
}

GNET_DEV uint64_t gnet_dev_add(uint64_t *p, uint64_t v)
{
	uint64_t old;

	gpunet_cpu_look(p);
	old = __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
	gpunet_cpu_event_at(p);
	return old;
}

GNET_DEV uint64_t gnet_dev_or(uint64_t *p, uint64_t v)
{
	uint64_t old;

	gpunet_cpu_look(p);
	old = __atomic_fetch_or(p, v, __ATOMIC_ACQ_REL);
	gpunet_cpu_event_at(p);
	return old;
}

GNET_DEV uint64_t gnet_dev_and(uint64_t *p, uint64_t v)
{
	uint64_t old;

	gpunet_cpu_look(p);
	old = __atomic_fetch_and(p, v, __ATOMIC_ACQ_REL);
	gpunet_cpu_event_at(p);
	return old;
}

/* Returns what was there: equal to `expected` if the swap was made. */
GNET_DEV uint64_t gnet_dev_cas(uint64_t *p, uint64_t expected, uint64_t desired)
{
	uint64_t old = expected;

	gpunet_cpu_look(p);
	if (__atomic_compare_exchange_n(p, &old, desired, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		gpunet_cpu_event_at(p);
	return old;
}

GNET_DEV uint64_t gnet_dev_cas_acquire(uint64_t *p, uint64_t expected, uint64_t desired)
{
	uint64_t old = expected;

	gpunet_cpu_look(p);
	__atomic_compare_exchange_n(p, &old, desired, 0, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE);
	return old;
}

GNET_DEV uint64_t gnet_dev_cas_relaxed(uint64_t *p, uint64_t expected, uint64_t desired)
{
	uint64_t old = expected;

	gpunet_cpu_look(p);
	__atomic_compare_exchange_n(p, &old, desired, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return old;
}

GNET_DEV void gnet_dev_add_release(uint64_t *p, uint64_t v)
{
	gpunet_cpu_look(p);
	__atomic_fetch_add(p, v, __ATOMIC_RELEASE);
	gpunet_cpu_event_at(p);
}

GNET_DEV void gnet_release_both(uint64_t *word, uint64_t v, uint64_t *p, uint64_t add)
{
	(void)gnet_dev_load_acquire(p); /* as the fence does */
	gnet_sys_store_release(word, v);
	gnet_dev_add_release(p, add);
}

GNET_DEV void gnet_dev_add_relaxed(uint64_t *p, uint64_t v)
{
	gpunet_cpu_look(p);
	__atomic_fetch_add(p, v, __ATOMIC_RELAXED);
	gpunet_cpu_event_at(p);
}

GNET_DEV void gnet_dev_prefetch(const uint64_t *p)
{
	(void)p;
}

GNET_DEV uint64_t gnet_dev_ticket(uint64_t *p)
{
	gpunet_cpu_look(p);
	return __atomic_fetch_add(p, 1, __ATOMIC_RELAXED);
}

#endif

#endif
