/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_PROXY_INTERNAL_H
#define GPUNET_PROXY_INTERNAL_H

#include "proxy/proxy.h"

#include <pthread.h>
#include <stdatomic.h>

/* A thread's sleep mark (docs/bus.md, Z1 and Z3). */
enum { AWAKE = 0, ASLEEP = 1, ASLEEP_FOR_ROOM = 2 };

#define PROXY_TOUCHED 16

struct proxy_thread {
	struct proxy *p;
	unsigned index;
	pthread_t thread;
	int epfd;
	struct proxy_watch wake; /* the event descriptor */
	int wake_fd;
	struct sys_ring *ring; /* NULL: a call each */
	_Atomic unsigned mark;

	uint64_t head; /* next queue position; published in sq_head */
	_Atomic uint64_t
		done;   /* entries before this position have been handled, not only copied out */
	uint64_t hints; /* next position in the news ring */
	uint64_t now;
	unsigned
		n_touched; /* words that kernels may wait on, changed in this step; more than fit: all */
	const void *touched[PROXY_TOUCHED];
	bool dead;             /* it cannot go on */
	bool quiet;            /* no entry and no event in this step so far */
	unsigned defer;        /* passes without asking for events */
	unsigned deferred;     /* how many it was the last time */
	uint64_t asked_at;     /* when events were asked for last */
	bool rested;           /* that was by a sleep, just now */
	uint64_t awake_until;  /* whatever spin_ns says */
	struct list graveyard; /* struct proxy_grave */

	_Atomic uint64_t entries, sleeps, wakeups;
};

struct proxy {
	struct proxy_params params;
	struct proxy_hooks hooks;
	struct {
		proxy_op_fn fn;
		void *ctx;
	} ops[GNET_OP_COUNT];
	bool kicks; /* kernels can wake threads themselves */
	unsigned started;
	_Atomic bool stop;
	bool sentinel_started;
	pthread_t sentinel;
	struct proxy_thread t[];
};

/* Is there a whole entry at the thread's head? If so and `e` is not NULL it is copied out and the head moves on. */
bool proxy_sq_ready(const struct proxy_params *p, unsigned q, uint64_t head);
bool proxy_sq_take(struct proxy_thread *t, struct proxy_entry *e);

/* Frees what was buried. */
void proxy_dig(struct proxy_thread *t);

void *proxy_thread_main(void *arg);
void *proxy_sentinel_main(void *arg);

#endif
