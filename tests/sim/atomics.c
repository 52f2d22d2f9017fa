/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In place of ThreadSanitizer's runtime: at each atomic access of the library another thread may go on. Plain accesses are of no
 * interest here; that they do not race is for ThreadSanitizer itself to see.
 */
#include "sim.h"

#define ATOMIC_RMW(bits, name, builtin, point)                                                    \
	uint##bits##_t __tsan_atomic##bits##_##name(uint##bits##_t *p, uint##bits##_t v, int mo); \
	uint##bits##_t __tsan_atomic##bits##_##name(uint##bits##_t *p, uint##bits##_t v, int mo)  \
	{                                                                                         \
		(void)mo;                                                                         \
		point();                                                                          \
		return builtin(p, v, __ATOMIC_SEQ_CST);                                           \
	}

#define ATOMIC_CAS(bits, name)                                                                    \
	int __tsan_atomic##bits##_compare_exchange_##name(uint##bits##_t *p, uint##bits##_t *old, \
							  uint##bits##_t v, int mo, int fail);    \
	int __tsan_atomic##bits##_compare_exchange_##name(uint##bits##_t *p, uint##bits##_t *old, \
							  uint##bits##_t v, int mo, int fail)     \
	{                                                                                         \
		(void)mo;                                                                         \
		(void)fail;                                                                       \
		sim_point();                                                                      \
		return __atomic_compare_exchange_n(p, old, v, 0, __ATOMIC_SEQ_CST,                \
						   __ATOMIC_SEQ_CST);                             \
	}

#define ATOMIC(bits)                                                                   \
	uint##bits##_t __tsan_atomic##bits##_load(const uint##bits##_t *p, int mo);    \
	uint##bits##_t __tsan_atomic##bits##_load(const uint##bits##_t *p, int mo)     \
	{                                                                              \
		(void)mo;                                                              \
		sim_point();                                                           \
		return __atomic_load_n(p, __ATOMIC_SEQ_CST);                           \
	}                                                                              \
	void __tsan_atomic##bits##_store(uint##bits##_t *p, uint##bits##_t v, int mo); \
	void __tsan_atomic##bits##_store(uint##bits##_t *p, uint##bits##_t v, int mo)  \
	{                                                                              \
		(void)mo;                                                              \
		sim_point();                                                           \
		__atomic_store_n(p, v, __ATOMIC_SEQ_CST);                              \
	}                                                                              \
	ATOMIC_RMW(bits, exchange, __atomic_exchange_n, sim_stall)                     \
	ATOMIC_RMW(bits, fetch_add, __atomic_fetch_add, sim_point)                     \
	ATOMIC_RMW(bits, fetch_sub, __atomic_fetch_sub, sim_point)                     \
	ATOMIC_RMW(bits, fetch_and, __atomic_fetch_and, sim_point)                     \
	ATOMIC_RMW(bits, fetch_or, __atomic_fetch_or, sim_point)                       \
	ATOMIC_RMW(bits, fetch_xor, __atomic_fetch_xor, sim_point)                     \
	ATOMIC_CAS(bits, strong)                                                       \
	ATOMIC_CAS(bits, weak)

ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)

#define PLAIN(name)                        \
	void __tsan_##name(const void *p); \
	void __tsan_##name(const void *p)  \
	{                                  \
		(void)p;                   \
	}

#define RANGE(name)                                  \
	void __tsan_##name(const void *p, size_t n); \
	void __tsan_##name(const void *p, size_t n)  \
	{                                            \
		(void)p;                             \
		(void)n;                             \
	}

#define NOTHING(name)             \
	void __tsan_##name(void); \
	void __tsan_##name(void)  \
	{                         \
	}

PLAIN(read1)
PLAIN(read2)
PLAIN(read4)
PLAIN(read8)
PLAIN(read16)
PLAIN(write1)
PLAIN(write2)
PLAIN(write4)
PLAIN(write8)
PLAIN(write16)
PLAIN(unaligned_read2)
PLAIN(unaligned_read4)
PLAIN(unaligned_read8)
PLAIN(unaligned_read16)
PLAIN(unaligned_write2)
PLAIN(unaligned_write4)
PLAIN(unaligned_write8)
PLAIN(unaligned_write16)
PLAIN(func_entry)
RANGE(read_range)
RANGE(write_range)
NOTHING(func_exit)
NOTHING(init)
