/* SPDX-License-Identifier: BSD-3-Clause */
/* Which sanitizer this is built with, and what it must be told of fibers. */
#ifndef GPUNET_CPU_SANITIZE_H
#define GPUNET_CPU_SANITIZE_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CPU_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define CPU_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define CPU_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CPU_ASAN 1
#endif
#ifndef CPU_TSAN
#define CPU_TSAN 0
#endif
#ifndef CPU_ASAN
#define CPU_ASAN 0
#endif

/*
 * The scheduler's own data pass from fiber to fiber with the switch itself. TSan is told that a switch orders nothing,
 * so that it sees the kernel's races; it must then not look at the scheduler, nor take its atomics for the kernel's
 * synchronisation. Functions marked so call no instrumented function that touches what fibers share.
 */
#define CPU_SCHED __attribute__((no_sanitize("thread")))

#if CPU_TSAN
#include <sanitizer/tsan_interface.h>

#define cpu_tsan_acquire(tag) __tsan_acquire(tag)
#define cpu_tsan_release(tag) __tsan_release(tag)
#else
#define cpu_tsan_acquire(tag) ((void)(tag))
#define cpu_tsan_release(tag) ((void)(tag))
#endif

#if CPU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#endif
