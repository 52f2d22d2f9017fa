/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One event counter for the process. Whoever changes a word that a kernel may wait on counts up afterwards; a block
 * whose fibers all wait sleeps on the counter's value from before they looked, so an event in between keeps it awake.
 *
 * The counter wraps after 2^32 events; a sleeper would have to miss exactly that many between its look and its sleep.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "platform/cpu/cpu.h"

static uint32_t events;
static uint32_t sleepers;

CPU_SCHED void gpunet_cpu_event(void)
{
	/* Both sequentially consistent: either the sleeper's futex call sees the new count or its mark is seen here. */
	__atomic_fetch_add(&events, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&sleepers, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &events, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

CPU_SCHED uint32_t cpu_events(void)
{
	return __atomic_load_n(&events, __ATOMIC_SEQ_CST);
}

CPU_SCHED void cpu_event_sleep(uint32_t seen, uint64_t deadline_ns)
{
	struct timespec ts, *timeout = NULL;
	uint64_t now;

	if (deadline_ns != UINT64_MAX) {
		now = sys.now_ns();
		if (now >= deadline_ns)
			return;
		ts.tv_sec = (time_t)((deadline_ns - now) / 1000000000u);
		ts.tv_nsec = (long)((deadline_ns - now) % 1000000000u);
		timeout = &ts;
	}
	__atomic_fetch_add(&sleepers, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &events, FUTEX_WAIT_PRIVATE, seen, timeout, NULL, 0);
	__atomic_fetch_sub(&sleepers, 1, __ATOMIC_SEQ_CST);
}
