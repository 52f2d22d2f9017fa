/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proxy: CPU threads that drain the kernels' submission queues and wait for descriptors. It knows no protocol: upper
 * layers register what an entry's op does, and what else there is to do in a step.
 *
 * A thread is a function, proxy_step(thread, now), called in a loop: one bounded pass, which reads no clock and sleeps never;
 * so a test can run it by hand with a clock of its own. What belongs to a thread is touched by that thread only, unless a
 * comment says otherwise.
 */
#ifndef GPUNET_PROXY_H
#define GPUNET_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpunet/dev/abi/bus.h>

#include "base/list.h"
#include "base/sys.h"
#include "platform/platform.h"

struct proxy;
struct proxy_thread;

/* An entry, copied out of the queue. Commands: call, tag, a, b; GNET_OP_SEND: data, len. */
struct proxy_entry {
	unsigned op;
	int fd;
	unsigned len;
	unsigned call;
	unsigned tag;
	uint32_t a;
	uint64_t b;
	uint64_t pos; /* GNET_OP_TX */
	uint8_t data[GNET_CELLS * GNET_CELL_DATA + 8];
};

typedef void (*proxy_op_fn)(struct proxy_thread *t, const struct proxy_entry *e, void *ctx);

struct proxy_hooks {
	void *ctx;
	/*
	 * Does what is ready in thread `t`; returns how much was done, and lowers *next to the time at which it wants to be
	 * called again at the latest.
	 */
	unsigned (*step)(struct proxy_thread *t, uint64_t now, uint64_t *next, void *ctx);
	/* Are there sockets that wait for a kernel's head to move (docs/bus.md, Z3)? */
	bool (*waits_for_room)(struct proxy_thread *t, void *ctx);
	/* Has one of those heads moved, or another thread handed this one something (and woken it)? */
	bool (*has_work)(struct proxy_thread *t, void *ctx);
	/* There is no work and the thread is about to sleep, until *next at the latest (which may be made earlier): only what is watched wakes it. */
	void (*rest)(struct proxy_thread *t, uint64_t *next, void *ctx);
};

/* A descriptor that a thread waits for, edge-triggered. `fn` runs in the thread. */
struct proxy_watch {
	void (*fn)(struct proxy_watch *w, uint32_t epoll_events);
	struct proxy_thread *t;
};

struct proxy_grave {
	struct list link;
	void (*fn)(struct proxy_grave *g);
};

struct proxy_params {
	unsigned threads;
	bool ring;            /* several calls at once go through an io_uring, where there is one */
	int64_t spin_ns;      /* without work before a thread sleeps; < 0: for ever */
	uint64_t sentinel_ns; /* how often sleeping threads are looked at if kernels cannot kick */
	unsigned sq_log2;
	struct gnet_sqe *sq;          /* [threads << sq_log2] */
	struct gnet_sq_head *sq_head; /* [threads] */
	struct gnet_call *calls;      /* [n_calls] */
	unsigned n_calls;
	struct gnet_ctl *ctl;
	struct gnet_news *news; /* [threads] */
	const struct platform_ops *platform;
	struct platform_dev *dev;
};

struct proxy_counters {
	uint64_t entries, sleeps, wakeups;
};

/* Makes the threads' state (epoll descriptors, event descriptors), starts none. */
int proxy_open(struct proxy **out, const struct proxy_params *p);
/* After proxy_stop. */
void proxy_close(struct proxy *p);

/* Before proxy_start: what `op` does. An op that nobody registered is answered -EOPNOTSUPP if it is a command. */
void proxy_on_op(struct proxy *p, unsigned op, proxy_op_fn fn, void *ctx);
void proxy_set_hooks(struct proxy *p, const struct proxy_hooks *h);

int proxy_start(struct proxy *p);
/* Ends and joins the threads. No-op if they do not run. */
void proxy_stop(struct proxy *p);

unsigned proxy_threads(const struct proxy *p);
struct proxy_thread *proxy_thread(struct proxy *p, unsigned i);
unsigned proxy_index(const struct proxy_thread *t);

/* One pass; returns how much was done. *next: the latest time of the next pass (UINT64_MAX: none). */
unsigned proxy_step(struct proxy_thread *t, uint64_t now, uint64_t *next);

/* Ends every wait of every kernel: ECANCELED unless it has ended already, EIO for good. Async-signal-safe. */
void proxy_end_waits(struct proxy *p, int err);

/* A thread could not go on: its sockets are served by nobody, and every wait of every kernel has ended. From any thread. */
bool proxy_is_dead(const struct proxy *p);
bool proxy_is_aborted(const struct proxy *p);

/* What thread i does: "awake", "asleep", "dead", "stopped". From any thread. */
const char *proxy_state(const struct proxy *p, unsigned i);

/* The time of the current step. */
uint64_t proxy_now(const struct proxy_thread *t);

/* In the current step neither an entry nor an event was found. */
bool proxy_quiet(const struct proxy_thread *t);

/* Wakes a thread if it sleeps; from any thread, async-signal-safe. */
void proxy_wake(struct proxy_thread *t);

/* Wakes all threads but this one. */
void proxy_wake_others(struct proxy_thread *t);

/* Answers a command. value: 48 bits, signed. An address goes to proxy_arg() first. */
void proxy_reply(struct proxy_thread *t, unsigned call, unsigned tag, int64_t value);
uint8_t *proxy_arg(struct proxy_thread *t, unsigned call);

/* `word`, which kernels may wait for, was stored in this step: the device is told at the step's end. */
void proxy_touched(struct proxy_thread *t, const void *word);

/* H2: hints at the socket in `slot`; not when the ring is full, or kernels are woken by other means. From t's thread. */
bool proxy_may_hint(struct proxy_thread *t);
void proxy_hint(struct proxy_thread *t, uint32_t slot);

/*
 * The next few passes need not ask the kernel for events: the caller looks itself at what is busy. Eight at first; while what
 * is asked is answered with nothing, more and more, up to `most` (of passes that do something, a sixteenth of it); after an
 * answer fewer again. After 4 ms they are asked for anyway.
 */
void proxy_defer_events(struct proxy_thread *t, unsigned most);

/*
 * From a hook: the thread does not sleep before `until`, though spin_ns may be over, since what it waits for is nearer than a
 * sleep is long; nor does it ask for events, but after 4 ms.
 */
void proxy_stay_awake(struct proxy_thread *t, uint64_t until);

/*
 * Watches `fd` for EPOLLIN | EPOLLOUT | EPOLLRDHUP, edge-triggered. From any thread, once everything that fn uses is set. Logs no
 * error: -ENOSPC and -ENOMEM may pass.
 */
int proxy_watch(struct proxy_thread *t, int fd, struct proxy_watch *w);
/*
 * Ends it, before the descriptor is closed: while another process holds a copy of it, one that was forked say, a close alone
 * does not, and events would go on naming a watch that is gone.
 */
void proxy_unwatch(struct proxy_thread *t, int fd);
/* Calls g->fn when the events at hand have been handled: to free what holds a watch. From t's thread, after the close. */
void proxy_bury(struct proxy_thread *t, struct proxy_grave *g);

/* Several calls at once, in their order: by one system call if there is a ring. From t's thread. */
void proxy_io(struct proxy_thread *t, struct sys_io *io, unsigned n);
/* Has it one? */
bool proxy_has_ring(const struct proxy_thread *t);

void proxy_get_counters(struct proxy *p, struct proxy_counters *c);
/* True if no entry waits in any queue or is being handled. From any thread. */
bool proxy_queues_empty(struct proxy *p);

#endif
