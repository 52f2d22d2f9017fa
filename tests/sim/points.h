/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Comes before each of the library's files (the compiler's option -include): at each atomic access another thread may go on. What an
 * access is given is worked out before that, as a compiled program has it in registers by then. Any compiler gives the same points in
 * the same order, and so the same run from the same seed.
 *
 * stdatomic.h is made of the compiler's own names, which gcc and clang do not share; both are here.
 */
#ifndef GPUNET_TESTS_SIM_POINTS_H
#define GPUNET_TESTS_SIM_POINTS_H

#include <stdatomic.h>

void sim_point(void);
void sim_stall(void);

/* The type that an access to *p has: without _Atomic. */
#define SIM_VALUE(p) __typeof__((void)0, *(p))

#define SIM_LOAD(access, p, mo)        \
	__extension__({                \
		__auto_type at_ = (p); \
		sim_point();           \
		access(at_, mo);       \
	})

#define SIM_CHANGE(access, point, p, v, mo) \
	__extension__({                     \
		__auto_type at_ = (p);      \
		SIM_VALUE(at_) v_ = (v);    \
		point();                    \
		access(at_, v_, mo);        \
	})

#define SIM_CAS(p, old, v, ...)           \
	__extension__({                   \
		__auto_type at_ = (p);    \
		__auto_type old_ = (old); \
		SIM_VALUE(at_) v_ = (v);  \
		sim_point();              \
		__VA_ARGS__;              \
	})

#define __atomic_load_n(p, mo) SIM_LOAD(__atomic_load_n, p, mo)
#define __atomic_store_n(p, v, mo) SIM_CHANGE(__atomic_store_n, sim_point, p, v, mo)
#define __atomic_exchange_n(p, v, mo) SIM_CHANGE(__atomic_exchange_n, sim_stall, p, v, mo)
#define __atomic_fetch_add(p, v, mo) SIM_CHANGE(__atomic_fetch_add, sim_point, p, v, mo)
#define __atomic_fetch_sub(p, v, mo) SIM_CHANGE(__atomic_fetch_sub, sim_point, p, v, mo)
#define __atomic_fetch_and(p, v, mo) SIM_CHANGE(__atomic_fetch_and, sim_point, p, v, mo)
#define __atomic_fetch_or(p, v, mo) SIM_CHANGE(__atomic_fetch_or, sim_point, p, v, mo)
#define __atomic_fetch_xor(p, v, mo) SIM_CHANGE(__atomic_fetch_xor, sim_point, p, v, mo)
#define __atomic_compare_exchange_n(p, old, v, weak, mo, fail) \
	SIM_CAS(p, old, v, __atomic_compare_exchange_n(at_, old_, v_, weak, mo, fail))

#ifdef __clang__
#define __c11_atomic_load(p, mo) SIM_LOAD(__c11_atomic_load, p, mo)
#define __c11_atomic_store(p, v, mo) SIM_CHANGE(__c11_atomic_store, sim_point, p, v, mo)
#define __c11_atomic_exchange(p, v, mo) SIM_CHANGE(__c11_atomic_exchange, sim_stall, p, v, mo)
#define __c11_atomic_fetch_add(p, v, mo) SIM_CHANGE(__c11_atomic_fetch_add, sim_point, p, v, mo)
#define __c11_atomic_fetch_sub(p, v, mo) SIM_CHANGE(__c11_atomic_fetch_sub, sim_point, p, v, mo)
#define __c11_atomic_fetch_and(p, v, mo) SIM_CHANGE(__c11_atomic_fetch_and, sim_point, p, v, mo)
#define __c11_atomic_fetch_or(p, v, mo) SIM_CHANGE(__c11_atomic_fetch_or, sim_point, p, v, mo)
#define __c11_atomic_fetch_xor(p, v, mo) SIM_CHANGE(__c11_atomic_fetch_xor, sim_point, p, v, mo)
#define __c11_atomic_compare_exchange_strong(p, old, v, mo, fail) \
	SIM_CAS(p, old, v, __c11_atomic_compare_exchange_strong(at_, old_, v_, mo, fail))
#define __c11_atomic_compare_exchange_weak(p, old, v, mo, fail) \
	SIM_CAS(p, old, v, __c11_atomic_compare_exchange_weak(at_, old_, v_, mo, fail))
#else
/* Here the header itself has worked out what it gives, and gives values by their addresses. */
#define __atomic_load(p, v, mo) (sim_point(), __atomic_load(p, v, mo))
#define __atomic_store(p, v, mo) (sim_point(), __atomic_store(p, v, mo))
#define __atomic_exchange(p, v, out, mo) (sim_stall(), __atomic_exchange(p, v, out, mo))
#define __atomic_compare_exchange(p, old, v, weak, mo, fail) \
	(sim_point(), __atomic_compare_exchange(p, old, v, weak, mo, fail))
#endif

#endif
