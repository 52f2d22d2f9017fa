/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A block's scheduler. There is no scheduling fiber: the one that stops picks the next and jumps to it.
 *
 * Time is in rounds: the fibers of `now` run once each, those that yield go to `later`, which is the next round. Between
 * rounds fibers in `waits` come along if an event was made since the last time that they did, and those whose
 * deadline has come. When nobody can run and no event was made, the thread sleeps on the event counter.
 *
 * Why no wake-up is lost: a fiber goes to `waits` only if the event count is still the one of the round in which its last
 * wait returned, so all that it has read since is newer than that count. `waits` is emptied whenever a round begins with
 * another count, and the thread sleeps only while the count is that of the round.
 *
 * What the block sleeps on is all that any of its fibers looked at since the count last changed, not only those that wait: in
 * a call that a block makes together some threads read and another one waits.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/sys.h"
#include "platform/cpu/sched.h"

/* Boost.Context's other routine; see sched.h. */
void *make_fcontext(void *stack_top, size_t size, void (*fn)(struct cpu_jump));

#define QUANTUM_FIXED 64u /* yields a switch without a seed */
#define QUANTUM_SEEDED 8u /* at most, with a seed */

/* Host code is the only thread of a block of one. */
static const struct gpunet_cpu_block host_block = { { 0, 0, 0 }, { 1, 1, 1 }, { 1, 1, 1 }, NULL };
static const struct cpu_fiber host = { .pub = { { 0, 0, 0 }, 0, &host_block } };
static _Thread_local uint32_t host_seen;
static uint64_t fence_word;

__thread const struct gpunet_cpu_thread *gpunet_cpu_self = &host.pub;

/* ---- which fiber is next ------------------------------------------------------------------------------------------ */

CPU_SCHED static void set_move(struct cpu_set *to, struct cpu_set *from)
{
	uint32_t warps = from->warps;

	to->warps |= warps;
	from->warps = 0;
	for (; warps; warps &= warps - 1) {
		unsigned w = (unsigned)__builtin_ctz(warps);

		to->lanes[w] |= from->lanes[w];
		from->lanes[w] = 0;
	}
}

/* Puts the fibers of `s` whose deadline has come into the next round, and lowers `earliest` to the others' deadlines. */
CPU_SCHED static void set_expire(struct cpu_block *b, struct cpu_set *s, uint64_t now)
{
	uint32_t warps, lanes;

	for (warps = s->warps; warps; warps &= warps - 1) {
		unsigned w = (unsigned)__builtin_ctz(warps);

		for (lanes = s->lanes[w]; lanes; lanes &= lanes - 1) {
			unsigned lane = (unsigned)__builtin_ctz(lanes);
			struct cpu_fiber *f = &b->warp[w]->fiber[lane];

			if (f->deadline <= now) {
				s->lanes[w] &= ~(1u << lane);
				cpu_set_add(&b->later, f);
			} else if (f->deadline < b->earliest) {
				b->earliest = f->deadline;
			}
		}
		if (!s->lanes[w])
			s->warps &= ~(1u << w);
	}
}

CPU_SCHED static void expire(struct cpu_block *b)
{
	uint64_t now;

	if (b->earliest == UINT64_MAX)
		return;
	now = sys.now_ns();
	if (now < b->earliest)
		return;
	b->earliest = UINT64_MAX;
	set_expire(b, &b->waits, now);
	set_expire(b, &b->sleeps, now);
}

/* A block that does nothing but spin lets the block run that it spins for. */
CPU_SCHED static void be_polite(struct cpu_block *b)
{
	if (b->spins < 4 * b->n_threads)
		return;
	b->spins = 0;
	sched_yield();
}

CPU_SCHED static int has_failed(const struct cpu_block *b)
{
	return __atomic_load_n(&b->launch->err, __ATOMIC_ACQUIRE) != 0;
}

/* Begins a round, after sleeping if need be; 0 if no fiber can ever run again, or is to. */
CPU_SCHED static int next_round(struct cpu_block *b)
{
	for (;;) {
		uint32_t events = cpu_events();

		if (events != b->events) {
			b->events = events;
			b->sleeper.topics = 0;
			set_move(&b->later, &b->waits);
		}
		expire(b);
		if (b->later.warps) {
			be_polite(b);
			set_move(&b->now, &b->later);
			return 1;
		}
		/* Who sleeps is in no call, or in one that holds nothing, so a kernel that has failed ends here. */
		if (!b->waits.warps && (!b->sleeps.warps || has_failed(b)))
			return 0;
		__atomic_store_n(&b->idle, 1, __ATOMIC_RELAXED);
		/* Fibers that wait and have not said for what wait for anything. */
		if (b->waits.warps && !b->sleeper.topics)
			b->sleeper.topics = CPU_ANY_TOPIC;
		cpu_event_sleep(&b->sleeper, events, b->earliest);
		__atomic_store_n(&b->idle, 0, __ATOMIC_RELAXED);
	}
}

/* Is it a call of gpunet/compat/gpunet2014.h? What follows is its name. */
#define CALL_2014 "gnet2014_"

CPU_SCHED static int is_2014(const char *call)
{
	return !strncmp(call, CALL_2014, sizeof(CALL_2014) - 1);
}

CPU_SCHED static const char *barrier_name(const char *call)
{
	if (!call)
		return "__syncthreads";
	return is_2014(call) ? call + sizeof(CALL_2014) - 1 : call;
}

CPU_SCHED static void report_stuck(struct cpu_block *b)
{
	unsigned i, at_barrier = 0, at_warp = 0;
	struct cpu_fiber *f, *first = NULL;

	for (i = 0; i < b->n_threads; i++) {
		f = &b->warp[i / CPU_LANES]->fiber[i % CPU_LANES];
		at_barrier += f->at == CPU_AT_BARRIER;
		at_warp += f->at == CPU_AT_WARP;
		if (!first && f->at == CPU_AT_WARP)
			first = f;
	}
	b->stuck = 1;
	cpu_fault(
		b, -EDEADLK,
		"stuck: %u threads are at %s, %u at warp operations that other lanes of their mask "
		"never reach (the first: thread %u), %u have ended",
		at_barrier, barrier_name(b->arrived ? b->call : NULL), at_warp,
		first ? first->index : 0, b->n_threads - b->live);
}

/* Thread `in` makes a call of the whole block, and thread `other` does not: the block ends. */
CPU_SCHED static void report_part(struct cpu_block *b, const char *call, unsigned in,
				  unsigned other, const char *is, const char *at)
{
	b->stuck = 1;
	cpu_fault(
		b, -EDEADLK,
		"a part of the block calls %s: thread %u is in it, thread %u %s%s; such a call is made by all threads of "
		"the block, one for %s",
		barrier_name(call), in, other, is, at,
		is_2014(call)
			? "a thread lies in a BEGIN_SINGLE_THREAD_PART or begins with single_thread_"
			: "a warp or a thread ends in _warp or _thread");
}

CPU_SCHED struct cpu_fiber *cpu_pick(struct cpu_block *b)
{
	while (!b->now.warps) {
		if (!b->live)
			return &b->main;
		if (!next_round(b)) {
			report_stuck(b);
			return &b->main;
		}
	}
	return cpu_set_take(b, &b->now, b->seeded ? cpu_random_below(b, b->n_threads) : 0);
}

/* ---- the life of a block ------------------------------------------------------------------------------------------- */

CPU_SCHED static void barrier_open(struct cpu_block *b)
{
	b->result_arrived = b->arrived;
	b->result_votes = b->votes;
	b->arrived = 0;
	b->votes = 0;
	b->phase++;
	b->spins = 0;
	/* All that live were at the barrier, so nobody who can run is overtaken. */
	set_move(&b->now, &b->at_barrier);
}

CPU_SCHED static void fiber_ended(struct cpu_block *b, struct cpu_fiber *f)
{
	f->at = CPU_ENDED;
	b->live--;
	b->spins = 0;
	if (b->arrived && b->call) {
		report_part(b, b->call, b->first, f->index, "has ended", "");
		return;
	}
	cpu_warp_lane_ended(f);
	/* Those that have ended do not count at a barrier. */
	if (b->live && b->arrived == b->live)
		barrier_open(b);
}

CPU_SCHED static void fiber_main(struct cpu_jump j)
{
	struct cpu_fiber *f = cpu_self();
	struct cpu_block *b = f->block;

	cpu_arrived_from(j, f);
	cpu_tsan_acquire(&b->tag_start);
	b->launch->entry(b->launch->args);
	fiber_ended(b, f);
	cpu_tsan_release(&b->tag_end);
	cpu_switch(b, f, b->stuck ? &b->main : cpu_pick(b), 1);
}

/* Where the stack begins differs from lane to lane, else all would have their data in the same few sets of the cache. */
static void *stack_top(const struct cpu_fiber *f)
{
	return (char *)f->stack + f->stack_size - (size_t)f->pub.lane * 128;
}

static void fiber_init(struct cpu_block *b, struct cpu_fiber *f, unsigned index)
{
	const unsigned *n = b->launch->grid.block;

	f->pub.thread_idx.x = index % n[0];
	f->pub.thread_idx.y = index / n[0] % n[1];
	f->pub.thread_idx.z = index / n[0] / n[1];
	f->pub.block = &b->pub;
	f->block = b;
	f->index = index;
	f->seen = b->events;
	f->at = CPU_RUNS;
	f->asan_stack = NULL;
	f->context = make_fcontext(stack_top(f), f->stack_size - CPU_LANES * 128, fiber_main);
	cpu_set_add(&b->now, f);
}

static void block_init(struct cpu_block *b)
{
	unsigned i;

	b->live = b->n_threads;
	b->arrived = b->votes = b->phase = b->spins = 0;
	b->stuck = 0;
	b->sleeper.topics = 0;
	b->events = cpu_events();
	b->earliest = UINT64_MAX;
	b->quantum = b->seeded ? 1 : QUANTUM_FIXED;
	memset(&b->now, 0, sizeof(b->now));
	memset(&b->later, 0, sizeof(b->later));
	memset(&b->waits, 0, sizeof(b->waits));
	memset(&b->sleeps, 0, sizeof(b->sleeps));
	memset(&b->at_barrier, 0, sizeof(b->at_barrier));
	b->main.block = b;
	b->main.asan_stack = NULL;
	for (i = 0; i < b->n_warps; i++) {
		unsigned lanes = b->n_threads - i * CPU_LANES;

		b->warp[i]->exists = lanes >= CPU_LANES ? ~UINT32_C(0) : (1u << lanes) - 1;
		b->warp[i]->live = b->warp[i]->exists;
		b->warp[i]->n_groups = 0;
	}
	for (i = 0; i < b->n_threads; i++)
		fiber_init(b, &b->warp[i / CPU_LANES]->fiber[i % CPU_LANES], i);
}

CPU_SCHED static void run(struct cpu_block *b)
{
	cpu_switch(b, &b->main, cpu_pick(b), 0);
	gpunet_cpu_self = &host.pub;
}

/* What the threads of a stuck block did comes before whatever uses their memory next, as if they had ended. */
CPU_SCHED static void release_abandoned(struct cpu_block *b)
{
#if CPU_TSAN
	unsigned i;

	for (i = 0; i < b->n_threads; i++) {
		struct cpu_fiber *f = &b->warp[i / CPU_LANES]->fiber[i % CPU_LANES];

		__tsan_switch_to_fiber(f->tsan, __tsan_switch_to_fiber_no_sync);
		__tsan_release(&b->tag_end);
	}
	__tsan_switch_to_fiber(b->main.tsan, __tsan_switch_to_fiber_no_sync);
#endif
	(void)b;
}

void cpu_block_run(struct cpu_block *b)
{
#if CPU_TSAN
	b->main.tsan = __tsan_get_current_fiber();
#endif
	block_init(b);
	cpu_tsan_release(&b->tag_start);
	run(b);
	if (b->stuck)
		release_abandoned(b);
	cpu_tsan_acquire(&b->tag_end);
}

/* ---- what device code calls ---------------------------------------------------------------------------------------- */

CPU_HOT void yield_now(struct cpu_block *b, struct cpu_fiber *f)
{
	struct cpu_set *to = &b->later;

	b->quantum = QUANTUM_FIXED;
	if (b->seeded) {
		b->quantum = 1 + cpu_random_below(b, QUANTUM_SEEDED);
		/* At times twice in a round, so that fibers drift apart further than one round. */
		if (cpu_random_below(b, 2))
			to = &b->now;
	}
	b->spins++;
	cpu_set_add(to, f);
	cpu_suspend(b, f);
}

CPU_HOT void maybe_yield(struct cpu_block *b, struct cpu_fiber *f)
{
	if (!--b->quantum)
		yield_now(b, f);
}

CPU_SCHED void gpunet_cpu_yield(void)
{
	struct cpu_fiber *f = cpu_self();

	if (!f->block)
		return;
	maybe_yield(f->block, f);
	/* Whatever it reads now, its next wait may be about that. */
	f->block->sleeper.topics = CPU_ANY_TOPIC;
}

CPU_HOT void note_topic(struct cpu_sleeper *s, unsigned topic)
{
	unsigned i;

	if (s->topics == CPU_ANY_TOPIC)
		return;
	for (i = 0; i < s->topics; i++)
		if (s->topic[i] == topic)
			return;
	if (i == CPU_SLEEP_TOPICS)
		s->topics = CPU_ANY_TOPIC;
	else
		s->topic[s->topics++] = (uint16_t)topic;
}

CPU_SCHED void gpunet_cpu_look(const void *word)
{
	struct cpu_fiber *f = cpu_self();
	struct cpu_block *b = f->block;

	if (!b)
		return;
	maybe_yield(b, f);
	/* After the switch, in the round in which the word is read. */
	note_topic(&b->sleeper, cpu_topic(word));
}

CPU_SCHED static void host_wait(uint64_t deadline_ns)
{
	struct cpu_sleeper s = { .topics = CPU_ANY_TOPIC };
	uint32_t events = cpu_events();

	if (events == host_seen)
		cpu_event_sleep(&s, events, deadline_ns);
	host_seen = cpu_events();
}

CPU_HOT void sleep_until(struct cpu_block *b, struct cpu_fiber *f, uint64_t deadline)
{
	f->deadline = deadline;
	if (deadline < b->earliest)
		b->earliest = deadline;
	b->spins = 0;
	cpu_suspend(b, f);
}

CPU_SCHED int gpunet_cpu_failed(void)
{
	const struct cpu_block *b = cpu_self()->block;

	return b && has_failed(b);
}

/* A fault is an event, so no wait sleeps through it. */
CPU_SCHED int gpunet_cpu_wait(uint64_t deadline_ns)
{
	struct cpu_fiber *f = cpu_self();
	struct cpu_block *b = f->block;

	if (!deadline_ns)
		deadline_ns = UINT64_MAX;
	if (!b) {
		host_wait(deadline_ns);
		return 0;
	}
	if (f->seen == cpu_events() && !has_failed(b)) {
		f->at = CPU_WAITS;
		cpu_set_add(&b->waits, f);
		sleep_until(b, f, deadline_ns);
	} else {
		cpu_set_add(&b->later, f);
		cpu_suspend(b, f);
	}
	f->seen = b->events;
	return has_failed(b);
}

CPU_SCHED void gpunet_cpu_nanosleep(unsigned ns)
{
	struct cpu_fiber *f = cpu_self();
	struct cpu_block *b = f->block;

	if (!b) {
		struct timespec ts = { ns / 1000000000u, (long)(ns % 1000000000u) };

		nanosleep(&ts, NULL);
		return;
	}
	f->at = CPU_SLEEPS;
	cpu_set_add(&b->sleeps, f);
	sleep_until(b, f, sys.now_ns() + ns);
}

CPU_SCHED uint64_t gpunet_cpu_time_ns(void)
{
	struct cpu_fiber *f = cpu_self();

	if (f->block)
		maybe_yield(f->block, f);
	return sys.now_ns();
}

CPU_SCHED static unsigned first_ended(const struct cpu_block *b)
{
	unsigned i = 0;

	while (b->warp[i / CPU_LANES]->fiber[i % CPU_LANES].at != CPU_ENDED)
		i++;
	return i;
}

/*
 * `f` arrives at a barrier of `call`, and the first one there was at another one, or threads have ended. Does the block end with it? Threads
 * that have ended do not matter at __syncthreads, but a call shares its work among all.
 */
CPU_SCHED static int is_part(struct cpu_block *b, const struct cpu_fiber *f, const char *call)
{
	const char *known = b->call;

	if (call && b->live < b->n_threads)
		report_part(b, call, f->index, first_ended(b), "has ended", "");
	else if (call && (!known || strcmp(known, call) != 0))
		report_part(b, call, f->index, b->first, "is at ", barrier_name(known));
	else if (!call)
		report_part(b, known, b->first, f->index, "is at ", barrier_name(call));
	return b->stuck;
}

CPU_HOT int barrier(const char *call, enum gpunet_cpu_vote vote, int predicate)
{
	struct cpu_fiber *f = cpu_self();
	struct cpu_block *b = f->block;
	char *tag;

	if (!b)
		return predicate;
	if (!b->arrived) {
		b->call = call;
		b->first = f->index;
	}
	if ((b->call != call || (call && b->live < b->n_threads)) && is_part(b, f, call))
		cpu_switch(b, f, &b->main, 0); /* never to come back */
	tag = &b->tag_barrier[b->phase % 2];
	/* Two tags in turn: who is through and already at the next barrier must not be seen by those still to leave. */
	cpu_tsan_release(tag);
	f->at = CPU_AT_BARRIER;
	cpu_set_add(&b->at_barrier, f);
	b->votes += (unsigned)predicate;
	if (++b->arrived == b->live)
		barrier_open(b);
	cpu_suspend(b, f);
	cpu_tsan_acquire(tag);
	switch (vote) {
	case GPUNET_CPU_ANY:
		return b->result_votes != 0;
	case GPUNET_CPU_ALL:
		return b->result_votes == b->result_arrived;
	default:
		return (int)b->result_votes;
	}
}

CPU_SCHED int gpunet_cpu_barrier(enum gpunet_cpu_vote vote, int predicate)
{
	return barrier(NULL, vote, predicate);
}

CPU_SCHED int gpunet_cpu_barrier_of(const char *call, enum gpunet_cpu_vote vote, int predicate)
{
	return barrier(call, vote, predicate);
}

void gpunet_cpu_fence(void)
{
	__atomic_fetch_add(&fence_word, 1, __ATOMIC_SEQ_CST);
}

void gpunet_cpu_fence_block(void)
{
	struct cpu_block *b = cpu_self()->block;

	if (b)
		__atomic_fetch_add(&b->fence, 1, __ATOMIC_SEQ_CST);
}
