/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations of a warp. Lanes that bring the same mask to the same operation meet; the last one works out what each of
 * them takes away, so that a lane that runs ahead to the next operation cannot disturb those that have not left.
 *
 * A lane of the mask that the block does not have (its size is no multiple of 32) counts as not named, as on a GPU. One
 * that has ended is the kernel's mistake: it is reported, and the others go on without it.
 *
 * Under TSan only __syncwarp orders memory: shuffles and votes do not on a GPU either.
 */
#include <errno.h>

#include "platform/cpu/sched.h"

#define UNDEFINED \
	UINT64_C(0xdeadbeefdeadbeef) /* what a shuffle reads from a lane that is not there */

CPU_SCHED static struct cpu_group *group_of(struct cpu_warp *w, uint32_t mask, enum cpu_warp_op op)
{
	struct cpu_group *g;
	unsigned i;

	for (i = 0; i < w->n_groups; i++)
		if (w->group[i].mask == mask && w->group[i].op == op)
			return &w->group[i];
	/* A lane is in one group at most, so there is room. */
	g = &w->group[w->n_groups++];
	g->mask = mask;
	g->op = op;
	g->arrived = 0;
	return g;
}

CPU_SCHED static void exchange(struct cpu_warp *w, const struct cpu_group *g)
{
	uint64_t value[CPU_LANES];
	uint64_t ballot = 0;
	uint32_t rest;

	for (rest = g->arrived; rest; rest &= rest - 1) {
		unsigned i = (unsigned)__builtin_ctz(rest);

		value[i] = w->fiber[i].value;
		ballot |= (value[i] & 1) << i;
	}
	for (rest = g->arrived; rest; rest &= rest - 1) {
		struct cpu_fiber *f = &w->fiber[__builtin_ctz(rest)];

		if (g->op == CPU_VOTE)
			f->value = ballot | (uint64_t)g->arrived << 32;
		else if (g->op == CPU_SHUFFLE)
			f->value =
				g->arrived & (1u << f->lane_read) ? value[f->lane_read] : UNDEFINED;
	}
}

/* Memory of all who meet is seen by all: through the last one, with tags of each lane's own, so that no older meeting
 * orders more than it did. */
CPU_SCHED static void order_memory(struct cpu_warp *w, uint32_t lanes)
{
	uint32_t rest;

	for (rest = lanes; rest; rest &= rest - 1)
		cpu_tsan_acquire(&w->fiber[__builtin_ctz(rest)].tag_in);
	for (rest = lanes; rest; rest &= rest - 1)
		cpu_tsan_release(&w->fiber[__builtin_ctz(rest)].tag_out);
}

/* Lets the group go if all of its lanes that live are there. */
CPU_SCHED static void group_check(struct cpu_warp *w, struct cpu_group *g)
{
	struct cpu_block *b;
	uint32_t rest;

	if (g->arrived != (g->mask & w->live) || !g->arrived)
		return;
	exchange(w, g);
	if (CPU_TSAN && g->op == CPU_SYNCWARP)
		order_memory(w, g->arrived);
	b = w->fiber[__builtin_ctz(g->arrived)].block;
	b->spins = 0;
	for (rest = g->arrived; rest; rest &= rest - 1)
		cpu_set_add(&b->later, &w->fiber[__builtin_ctz(rest)]);
	*g = w->group[--w->n_groups];
}

CPU_HOT void meet(struct cpu_fiber *f, uint32_t mask, enum cpu_warp_op op)
{
	struct cpu_warp *w = f->warp;
	struct cpu_block *b = f->block;
	struct cpu_group *g;

	if (!(mask & (1u << f->pub.lane))) {
		cpu_fault(
			b, -EINVAL,
			"thread %u is lane %u and calls a warp operation with mask 0x%08x, without itself",
			f->index, f->pub.lane, mask);
		mask = 1u << f->pub.lane;
	}
	mask &= w->exists;
	if (mask & ~w->live)
		cpu_fault(
			b, -EINVAL,
			"thread %u calls a warp operation with mask 0x%08x, but lanes 0x%08x of it have ended",
			f->index, mask, mask & ~w->live);
	g = group_of(w, mask, op);
	g->arrived |= 1u << f->pub.lane;
	f->at = CPU_AT_WARP;
	group_check(w, g);
	cpu_suspend(b, f);
}

CPU_SCHED void cpu_warp_lane_ended(struct cpu_fiber *f)
{
	struct cpu_warp *w = f->warp;
	uint32_t lane = 1u << f->pub.lane;
	unsigned i;

	w->live &= ~lane;
	/* From the end: a group that goes is replaced by the last. */
	for (i = w->n_groups; i-- > 0;) {
		if (!(w->group[i].mask & lane))
			continue;
		cpu_fault(
			f->block, -EINVAL,
			"thread %u has ended, but lanes 0x%08x of its warp wait for it: a warp operation's "
			"mask names it (0x%08x)",
			f->index, w->group[i].arrived, w->group[i].mask);
		group_check(w, &w->group[i]);
	}
}

CPU_SCHED void gpunet_cpu_syncwarp(unsigned mask)
{
	struct cpu_fiber *f = cpu_self();

	if (!f->block)
		return;
	cpu_tsan_release(&f->tag_in);
	meet(f, mask, CPU_SYNCWARP);
	cpu_tsan_acquire(&f->tag_out);
}

CPU_SCHED unsigned gpunet_cpu_vote(enum gpunet_cpu_vote vote, unsigned mask, int predicate)
{
	struct cpu_fiber *f = cpu_self();
	uint32_t ballot = (uint32_t)predicate, lanes = 1;

	if (f->block) {
		f->value = (uint64_t)predicate;
		meet(f, mask, CPU_VOTE);
		ballot = (uint32_t)f->value;
		lanes = (uint32_t)(f->value >> 32);
	}
	switch (vote) {
	case GPUNET_CPU_ANY:
		return ballot != 0;
	case GPUNET_CPU_ALL:
		return ballot == lanes;
	default:
		return ballot;
	}
}

CPU_SCHED uint64_t gpunet_cpu_shuffle(unsigned mask, uint64_t value, unsigned lane)
{
	struct cpu_fiber *f = cpu_self();

	if (!f->block)
		return value;
	f->value = value;
	f->lane_read = lane % CPU_LANES;
	meet(f, mask, CPU_SHUFFLE);
	return f->value;
}
