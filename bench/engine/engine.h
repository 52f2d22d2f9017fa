/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two engines for what a proxy thread does to the host's sockets: an echo of `n` connections by one thread, until all of them have
 * ended. Neither spins: the thread sleeps when there is nothing to do, so that its processor time is what the work costs.
 */
#ifndef BENCH_ENGINE_H
#define BENCH_ENGINE_H

#include <stdint.h>

#define ENGINE_MOST 256          /* connections */
#define ENGINE_ROOM (128u << 10) /* bytes a connection */

struct engine {
	const char *name;
	/* 0, or a negative errno: it cannot be had here. `room`: [n][ENGINE_ROOM]. *calls: system calls made. */
	int (*serve)(const int *fd, int n, uint8_t (*room)[ENGINE_ROOM], uint64_t *calls);
};

extern const struct engine engine_epoll, engine_epoll_short, engine_uring;

#endif
