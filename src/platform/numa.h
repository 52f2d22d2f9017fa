/* SPDX-License-Identifier: BSD-3-Clause */
/* Which processors are near a device. */
#ifndef GPUNET_PLATFORM_NUMA_H
#define GPUNET_PLATFORM_NUMA_H

#include <sched.h>

/* The system's folder of facts about itself, "/sys" but for tests. */
extern const char *numa_sys;

/*
 * The processors of memory node `node` that the calling thread may run on: 0, or -ENOENT: the system knows no such node, or the
 * thread may use none of its processors. Logs nothing: a thread anywhere works, too.
 */
int numa_cpus(int node, cpu_set_t *out);

#endif
