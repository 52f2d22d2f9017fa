/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls: two callers share one call, each makes two. Argument and answer lie in the same word; the
 * reply carries the tag of the use. With ABORT the network is aborted at some time: each caller
 * sees that in its own wait, the proxy works on until it dies, so late replies come. The queue is a
 * sequence of words (queue.pml is about it).
 *
 * Checked: the proxy finds the argument of the call that it answers, the caller finds its own
 * answer, and nobody waits for ever.
 *
 * VARIANT abort: -DABORT the network is aborted at any time
 * MUTANT K_NO_BIT: a call is taken by a load and a store
 * MUTANT K_NO_TAG: the tag is not raised
 * MUTANT K_ARG_RELAXED: the entry is stored without release
 * MUTANT K_REPLY_RELAXED: the reply is stored without release
 * MUTANT K_NO_ACQUIRE: the answer may be loaded before the reply
 * MUTANT K_FREE_EARLY: the call is freed before its answer was read
 * MUTANT K_FREE_ON_ABORT: a caller that gives up frees its call; under ABORT
 * MUTANT Z4_REPLY: the wait for the reply does not look at the control line; under ABORT
 * MUTANT Z4_TAKE: the wait for a free call does not look at the control line; under ABORT
 */
#define EACH 2
#define QUEUE (2 * EACH)
#define ARG QUEUE
#define REPLY (QUEUE + 1)
#define WORDS (QUEUE + 2)
#define SB 3

/* An argument names its caller and its number; so does the answer, with a bit more. */
#define ID(me, i) (1 + 2 * (me) + (i))
#define ANSWER_TO(id) ((id) + 8)
#define ENTRY(tag, id) ((tag) + 8 * (id))

#include "memory.pmh"

buffer p, k0, k1;
active proctype bus_p() { BUS(p) }
active proctype bus_k0() { BUS(k0) }
active proctype bus_k1() { BUS(k1) }

/* device memory */
bit taken;
byte tag, qtail;

bit stop;

#ifdef M_Z4_TAKE
#define OR_STOPPED_TAKE
#else
#define OR_STOPPED_TAKE :: stop -> goto over
#endif
#ifdef M_Z4_REPLY
#define OR_STOPPED_REPLY
#else
#ifdef M_K_FREE_ON_ABORT
#define OR_STOPPED_REPLY :: stop -> taken = 0; goto over
#else
#define OR_STOPPED_REPLY :: stop -> goto over
#endif
#endif
#ifdef M_K_NO_BIT
#define TAKE !taken -> taken = 1
#else
#define TAKE d_step { !taken -> taken = 1 }
#endif
#ifdef M_K_NO_TAG
#define RAISE mine = 1; tag = 1
#else
#define RAISE mine = (tag + 1) % 4; tag = mine
#endif
#ifdef M_K_ARG_RELAXED
#define RELEASE 0
#else
#define RELEASE 1
#endif
#ifdef M_K_NO_ACQUIRE
#define EARLY_LOOK early = mem[ARG];
#define LOOK assert(early == ANSWER_TO(ID(me, i)));
#else
#define EARLY_LOOK
#define LOOK assert(mem[ARG] == ANSWER_TO(ID(me, i)));
#endif
#ifdef M_K_FREE_EARLY
#define FREE_EARLY taken = 0;
#define FREE
#else
#define FREE_EARLY
#define FREE taken = 0;
#endif

#define CALLER(n, b) \
	byte me = n, i, at, mine, early; \
	do \
	:: i < EACH -> \
		if \
		:: TAKE \
		OR_STOPPED_TAKE \
		fi; \
		atomic { RAISE }; \
		store(b, ARG, ID(me, i)); \
		d_step { at = qtail; qtail++ }; \
		store_as(b, at, ENTRY(mine, ID(me, i)), RELEASE); \
		EARLY_LOOK \
		if \
		:: mem[REPLY] % 4 == mine && mem[REPLY] -> skip \
		OR_STOPPED_REPLY \
		fi; \
		FREE_EARLY \
		LOOK \
		FREE \
		atomic { i++; at = 0; mine = 0; early = 0 } \
	:: else -> break \
	od; \
over: \
	skip

active proctype caller0() { CALLER(0, k0) }
active proctype caller1() { CALLER(1, k1) }

active proctype proxy()
{
	byte head, id, t;

end:	do
	:: head < QUEUE && mem[head] ->
		d_step { id = mem[head] / 8; t = mem[head] % 8; head++ };
		assert(mem[ARG] == id);
		store(p, ARG, ANSWER_TO(id));
#ifdef M_K_REPLY_RELAXED
		store(p, REPLY, t + 4);
#else
		store_release(p, REPLY, t + 4);
#endif
		d_step { id = 0; t = 0 }
#ifdef ABORT
	:: stop -> break
#endif
	od
}

#ifdef ABORT
active proctype host()
{
	stop = 1
}
#endif
