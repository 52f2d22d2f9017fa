/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU device. A block is an OS thread (worker), its CUDA threads are fibers on that thread.
 *
 *   dev.c    the platform table: open, close, memory
 *   launch.c queue of kernels, workers, the life of a block
 *   block.c  a block's scheduler: rounds, waits, barriers; sched.h has the switch
 *   warp.c   operations of a warp's lanes
 *   event.c  the event counter that sleeping blocks wait on
 *   stack.c  the pool of warps: fibers and their stacks
 *   watch.c  names blocks that spin without yielding
 *   crash.c  names the thread of a kernel that crashes
 *
 * Locks: `cpu_lock` guards devices, queues, pools and the count of live fibers. Blocks run without it. What a block's
 * scheduler owns is touched by that block's thread only; the watchdog reads three words of it, which are atomics.
 */
#ifndef GPUNET_CPU_H
#define GPUNET_CPU_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <gpunet/dev/device.h>

#include "platform/cpu/sanitize.h"
#include "platform/platform.h"

#define CPU_LANES 32
#define CPU_MAX_THREADS 1024
#define CPU_MAX_WARPS (CPU_MAX_THREADS / CPU_LANES)
#define CPU_DEFAULT_BLOCKS 64
#define CPU_MAX_BLOCKS 4096
#define CPU_MAX_SHARED (227u << 10) /* what a Hopper block can have */
#define CPU_MAX_ARGS 4096
#define CPU_FAULT_TEXT 256
#define CPU_CRASH_STACK (32u << 10) /* bytes; the processor's registers take up to 11 KiB of it */

/* Sanitizers need more stack: larger frames, and interceptors with buffers of their own. */
#if CPU_TSAN || CPU_ASAN
#define CPU_DEFAULT_STACK ((size_t)256 << 10)
#else
#define CPU_DEFAULT_STACK ((size_t)64 << 10)
#endif
#define CPU_MIN_STACK ((size_t)16 << 10)

/*
 * Live fibers in the process. gcc's TSan dies when it has about 8,128 threads; elsewhere the limit is the kernel's on
 * mappings (65,530 by default, and each stack with its guard takes two).
 */
#if CPU_TSAN
#define CPU_FIBERS 4096u
#else
#define CPU_FIBERS 16384u
#endif

/* What an event is about: see event.c. */
#define CPU_TOPICS 1024u
#define CPU_ANY_TOPIC CPU_TOPICS
#define CPU_SLEEP_TOPICS 24u /* that a block remembers */

struct cpu_block;
struct cpu_dev;
struct cpu_launch;
struct cpu_warp;

/* Where a fiber is; for reports. */
enum cpu_at { CPU_RUNS, CPU_WAITS, CPU_SLEEPS, CPU_AT_BARRIER, CPU_AT_WARP, CPU_ENDED };

/* What a switch touches comes first and fills one line of the cache. */
struct cpu_fiber {
	struct gpunet_cpu_thread pub; /* first: gpunet_cpu_self points to it */
	struct cpu_block *block;      /* NULL: not in a kernel */
	void *context;                /* where it continues; valid while it does not run */
	unsigned index;               /* linear thread number */
	enum cpu_at at;
	uint32_t seen;      /* the block's `events` when its last wait returned */
	unsigned lane_read; /* shuffle: whose value it takes */
	uint64_t value;     /* what it brings to a warp operation, then what it takes from it */
	uint64_t deadline;  /* of a wait or sleep; UINT64_MAX: none */
	struct cpu_warp *warp;
	void *stack; /* lowest address */
	size_t stack_size;
	void *tsan;           /* TSan's idea of the fiber, kept for the next block (see stack.c) */
	void *asan_stack;     /* ASan's fake stack while it does not run */
	char tag_in, tag_out; /* TSan: addresses that stand for meetings of the warp */
	char pad[14];
};

_Static_assert(offsetof(struct cpu_fiber, deadline) == 64, "the switch's line");
_Static_assert(sizeof(struct cpu_fiber) == 128, "lines of their own");

enum cpu_warp_op { CPU_SYNCWARP, CPU_VOTE, CPU_SHUFFLE };

/* Lanes of a warp that meet: those with the same mask at the same operation. */
struct cpu_group {
	uint32_t mask;
	uint32_t arrived;
	enum cpu_warp_op op;
};

/* A warp's fibers with their stacks; what the pool holds. Lies at the beginning of the stacks' mapping. */
struct cpu_warp {
	struct cpu_fiber fiber[CPU_LANES]; /* first, so that each has its own lines */
	struct cpu_warp *next;             /* in the pool's free list */
	struct cpu_warp *next_all;         /* in the pool's list of all */
	size_t map_size;
	unsigned ready;  /* stacks that have their guard */
	uint32_t exists; /* lanes of this block */
	uint32_t live;   /* of these, lanes that have not ended */
	unsigned n_groups;
	struct cpu_group group[CPU_LANES];
};

/* Who sleeps until an event. */
struct cpu_sleeper {
	struct cpu_sleeper *next, **prev; /* prev NULL: in no list */
	uint32_t woken;
	unsigned topics; /* 0: no event, only the deadline; CPU_ANY_TOPIC: every event */
	uint16_t topic[CPU_SLEEP_TOPICS];
};

/* A set of a block's fibers: a word a warp, and a word that says which of these are not 0. */
struct cpu_set {
	uint32_t warps;
	uint32_t lanes[CPU_MAX_WARPS];
};

struct cpu_block {
	struct gpunet_cpu_block pub;
	struct cpu_fiber main;     /* the worker itself, not a CUDA thread */
	struct cpu_fiber *current; /* atomic: the watchdog reads it */
	struct cpu_launch *launch;
	unsigned n_threads, n_warps;
	unsigned live;         /* fibers that have not ended */
	struct cpu_set now;    /* to run in this round */
	struct cpu_set later;  /* to run in the next round */
	struct cpu_set waits;  /* in gpunet_cpu_wait: run at an event or their deadline */
	struct cpu_set sleeps; /* in __nanosleep: run at their deadline */
	struct cpu_set at_barrier;
	unsigned arrived, votes; /* at the barrier, and of these with a true predicate */
	unsigned first;          /* the one of them that came first */
	const char *call;        /* whose barrier that one is at; NULL: __syncthreads */
	unsigned result_arrived, result_votes; /* of the last barrier */
	unsigned phase;                        /* barriers passed */
	int seeded;
	uint64_t random;
	unsigned quantum; /* yields that do not switch until one does */
	unsigned spins;   /* switches by yield in a row */
	uint32_t
		events; /* event count at the beginning of the round; when it changes, `waits` is emptied */
	uint64_t earliest; /* no deadline is before it; UINT64_MAX: there is none */
	uint64_t beat;     /* atomic: counts switches */
	unsigned idle;     /* atomic: asleep on the event counter */
	int stuck; /* ended early: its threads can never meet, or a part of them makes a call of the block */
	uint64_t fence;
	struct cpu_sleeper sleeper; /* its topics: what fibers looked at since `events` was set */
	char tag_start, tag_end, tag_barrier[2];
	struct cpu_warp *warp[CPU_MAX_WARPS];
};

/* A kernel in the queue. */
struct cpu_launch {
	struct cpu_launch *next;
	void (*entry)(void *args);
	void *args; /* aligned copy */
	void *args_memory;
	struct platform_grid grid;
	unsigned n_threads, n_warps;
	uint64_t number;
	uint64_t n_blocks, next_block;
	unsigned resident, limit; /* blocks that run, and may run at once */
	void **shared;            /* [limit] dynamic shared memory, handed out from the end */
	unsigned shared_free;
	int err;                    /* atomic: its first fault */
	char fault[CPU_FAULT_TEXT]; /* in words */
};

struct cpu_worker {
	struct cpu_worker *next;
	struct cpu_dev *dev;
	pthread_t thread;
	int runs; /* a block runs */
	struct cpu_block block;
	/* The watchdog's. */
	uint64_t beat_seen;
	uint64_t beat_cpu_ns; /* the thread's CPU time when the beat changed */
	int reported;
	char crash_stack[CPU_CRASH_STACK];
};

struct cpu_dev {
	struct cpu_dev *next; /* in cpu_devices */
	unsigned max_blocks;
	uint64_t seed;
	size_t stack_size;
	uint64_t watch_ns;         /* 0: no watchdog */
	pthread_mutex_t launching; /* one launch at a time grows pools */
	pthread_cond_t work;       /* for workers */
	pthread_cond_t ended;      /* for sync */
	pthread_cond_t watch;      /* for the watchdog */
	int closing;
	struct cpu_launch *head, *tail;
	uint64_t launched, finished; /* kernels */
	/* A kernel's fault: the first one since a launch came after a sync that had told the one before. */
	int err;
	char fault[CPU_FAULT_TEXT];
	uint64_t faulted;   /* that kernel's number, 0: none */
	uint64_t told;      /* the last one that a sync has told */
	uint64_t forgotten; /* `told` when the last kernel was launched: what is newer is news */
	struct cpu_worker *workers;
	unsigned n_workers;
	int watches; /* the watchdog's thread runs */
	pthread_t watchdog;
	struct cpu_warp *free_warps, *all_warps;
	unsigned n_warps;
	void (*kick)(void *ctx, unsigned q);
	void *kick_ctx;
};

/* What a test may make fail besides base/sys.h. */
struct cpu_hooks {
	int (*protect)(void *p, size_t n); /* makes a guard: 0 or a negative errno */
	bool near; /* there is memory as a GPU's, that the CPU does not touch: a mapping for kernels, and a descriptor for NICs */
};

extern struct cpu_hooks cpu_hooks;
extern pthread_mutex_t cpu_lock;
extern struct cpu_dev *cpu_devices; /* all that are open */

static inline struct cpu_dev *cpu_dev_of(struct platform_dev *d)
{
	return (struct cpu_dev *)(void *)d;
}

/* launch.c */
int cpu_launch(struct platform_dev *d, void (*entry)(void *), const struct platform_grid *g,
	       const void *args, size_t args_size);
int cpu_sync(struct platform_dev *d, uint64_t timeout_ns);
/* `ts` = now + ns, on CLOCK_MONOTONIC. */
void cpu_time_add(struct timespec *ts, uint64_t ns);
void cpu_stop_threads(struct cpu_dev *dev); /* no kernel is queued */
/* The kernel of a block did what no kernel may do; the first fault of a kernel is logged, is what sync returns, and ends the others' waits. */
void cpu_fault(struct cpu_block *b, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* block.c */
void cpu_block_run(struct cpu_block *b);

/* warp.c */
void cpu_warp_lane_ended(struct cpu_fiber *f);

/* crash.c: under cpu_lock, while any device is open. */
void cpu_crash_watch(void);
void cpu_crash_unwatch(void);
/* A worker begins: where its handlers run. And ends: NULL, before that memory goes. */
void cpu_crash_thread(void *stack, size_t size);

/* event.c */
uint32_t cpu_events(void);
/* Sleeps while the count is `seen`, then until an event of the sleeper's topics or the deadline; may return early. */
void cpu_event_sleep(struct cpu_sleeper *s, uint32_t seen, uint64_t deadline_ns);

/* stack.c; under dev->launching */
int cpu_warps_reserve(struct cpu_dev *dev, unsigned warps, unsigned lanes);
void cpu_warps_release(struct cpu_dev *dev);
/* Under cpu_lock: before a block begins, after its warps were taken from the pool. */
void cpu_fibers_begin(struct cpu_block *b);
/* Under cpu_lock: before the warps go back to the pool. */
void cpu_fibers_end(struct cpu_block *b);

/* watch.c */
uint64_t cpu_watch_default(void);
void *cpu_watch_main(void *dev);

#endif
