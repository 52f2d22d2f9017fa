/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The path of a switch, inline: from what device code calls to the jump there is no call that returns after the switch.
 * The jump leaves through no return, so each such call would cost a wrong prediction (measured: 6 ns each of 22).
 */
#ifndef GPUNET_CPU_SCHED_H
#define GPUNET_CPU_SCHED_H

#include "platform/cpu/cpu.h"

#define CPU_HOT CPU_SCHED static inline __attribute__((always_inline))

/* Boost.Context's routine; its library is C++ only in its headers. */
struct cpu_jump {
	void *context; /* of the one who jumped here */
	void *data;
};

struct cpu_jump jump_fcontext(void *to, void *data);

CPU_HOT struct cpu_fiber *cpu_self(void)
{
	return (struct cpu_fiber *)(void *)gpunet_cpu_self;
}

CPU_HOT void cpu_set_add(struct cpu_set *s, const struct cpu_fiber *f)
{
	s->lanes[f->index / CPU_LANES] |= 1u << (f->index % CPU_LANES);
	s->warps |= 1u << (f->index / CPU_LANES);
}

CPU_HOT unsigned cpu_topic(const void *word)
{
	/* Fibonacci hashing of the line. */
	return (unsigned)(((uintptr_t)word >> 7) * UINT64_C(0x9e3779b97f4a7c15) >> 54) % CPU_TOPICS;
}

CPU_HOT uint32_t cpu_random_below(struct cpu_block *b, uint32_t n)
{
	/* xorshift64*; the high half is the good one. */
	b->random ^= b->random >> 12;
	b->random ^= b->random << 25;
	b->random ^= b->random >> 27;
	return (uint32_t)(((b->random * UINT64_C(2685821657736338717)) >> 32) * n >> 32);
}

/* Takes the first fiber of the set at or after thread `from`, or else the first of all. */
CPU_HOT struct cpu_fiber *cpu_set_take(struct cpu_block *b, struct cpu_set *s, unsigned from)
{
	unsigned w = from / CPU_LANES;
	uint32_t lanes = s->lanes[w] & (~UINT32_C(0) << (from % CPU_LANES));
	uint32_t warps;
	unsigned lane;

	if (!lanes) {
		warps = s->warps & (~UINT32_C(1) << w);
		w = (unsigned)__builtin_ctz(warps ? warps : s->warps);
		lanes = s->lanes[w];
	}
	lane = (unsigned)__builtin_ctz(lanes);
	s->lanes[w] &= ~(1u << lane);
	if (!s->lanes[w])
		s->warps &= ~(1u << w);
	return &b->warp[w]->fiber[lane];
}

/* The fiber to run next; the worker itself when none is left. */
struct cpu_fiber *cpu_pick(struct cpu_block *b);

CPU_HOT void cpu_arrived_from(struct cpu_jump j, struct cpu_fiber *f)
{
	struct cpu_fiber *from = j.data;

	from->context = j.context;
#if CPU_ASAN
	const void *stack;
	size_t size;

	__sanitizer_finish_switch_fiber(f->asan_stack, &stack, &size);
	if (from == &f->block->main) {
		from->stack = (void *)(uintptr_t)stack;
		from->stack_size = size;
	}
#else
	(void)f;
#endif
}

/* `ends`: `from` never runs again. */
CPU_HOT void cpu_switch(struct cpu_block *b, struct cpu_fiber *from, struct cpu_fiber *to, int ends)
{
	__atomic_store_n(&b->current, to, __ATOMIC_RELEASE);
	__atomic_store_n(&b->beat, b->beat + 1, __ATOMIC_RELAXED);
	gpunet_cpu_self = &to->pub;
#if CPU_ASAN
	__sanitizer_start_switch_fiber(ends ? NULL : &from->asan_stack, to->stack, to->stack_size);
#endif
#if CPU_TSAN
	__tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
	(void)ends;
	cpu_arrived_from(jump_fcontext(to->context, from), from);
}

/* Until somebody puts the fiber into `now` or `later`. */
CPU_HOT void cpu_suspend(struct cpu_block *b, struct cpu_fiber *f)
{
	struct cpu_fiber *to;

	if (b->now.warps && !b->seeded)
		to = cpu_set_take(b, &b->now, 0);
	else
		to = cpu_pick(b);
	if (to != f)
		cpu_switch(b, f, to, 0);
	f->at = CPU_RUNS;
}

#endif
