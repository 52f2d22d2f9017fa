/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How kernels of the CPU device wait (src/platform/cpu/event.c): one counter of events, one count
 * of sleepers, a futex on the counter. Two fibers of one block wait for two words, which the proxy
 * stores and another block stores; each makes an event afterwards. A fiber gives its turn away if
 * an event was made since its last wait returned; the block sleeps when all its fibers wait.
 *
 * Checked: every fiber sees its word; nobody sleeps for ever.
 *
 * MUTANT P_NO_EVENT: the proxy makes no event
 * MUTANT P_EVENT_FIRST: it makes the event before it stores the word
 * MUTANT P_LOOK_FIRST: who makes an event looks for sleepers before it counts up
 * MUTANT P_PLAIN: it counts up with a store that may come later than its look for sleepers
 * MUTANT P_SEEN_LATE: a fiber notes the counter as it begins a wait, not as the last one ended
 * MUTANT P_MARK_LATE: the block counts itself among the sleepers after the futex has compared
 * MUTANT P_NO_COMPARE: the futex sleeps whatever the counter
 * MUTANT P_WAKE_ONE: an event wakes one sleeper only
 */
#define WORD(i) (i)
#define EVENTS 2
#define WORDS 3
#define SB 3

#include "memory.pmh"

buffer p, k;
active proctype bus_p() { BUS(p) }
active proctype bus_k() { BUS(k) }

byte sleepers;
bit asleep[2]; /* two sleepers: the block, and a thread of the host that waits as a kernel does */

inline wake_all()
{
	if
	:: sleepers ->
		d_step {
#ifdef M_P_WAKE_ONE
			if
			:: asleep[1] -> asleep[1] = 0
			:: else -> asleep[0] = 0
			fi
#else
			asleep[0] = 0;
			asleep[1] = 0
#endif
		}
	:: else
	fi
}

/* The counter's increment is a read-modify-write: what was stored before has arrived. */
inline event(b)
{
#ifdef M_P_LOOK_FIRST
	if
	:: sleepers -> atomic { drained(b) -> mem[EVENTS]++ }; wake_all()
	:: else -> atomic { drained(b) -> mem[EVENTS]++ }
	fi
#else
#ifdef M_P_PLAIN
	store(b, EVENTS, mem[EVENTS] + 1);
#else
	atomic { drained(b) -> mem[EVENTS]++ };
#endif
	wake_all()
#endif
}

active proctype proxy()
{
#ifdef M_P_EVENT_FIRST
	event(p);
	store_release(p, WORD(0), 1)
#else
	store_release(p, WORD(0), 1);
#ifndef M_P_NO_EVENT
	event(p)
#endif
#endif
}

active proctype other_block()
{
	store_release(k, WORD(1), 1);
	event(k)
}

inline sleep(me, count)
{
#ifdef M_P_MARK_LATE
	if
	:: d_step { mem[EVENTS] == count -> asleep[me] = 1 }; sleepers++; !asleep[me]; sleepers--
	:: mem[EVENTS] != count
	fi
#else
	sleepers++;
	if
#ifdef M_P_NO_COMPARE
	:: true -> asleep[me] = 1
#else
	:: d_step { mem[EVENTS] == count -> asleep[me] = 1 }
	:: mem[EVENTS] != count
#endif
	fi;
	!asleep[me];
	sleepers--
#endif
}

/* A block of two fibers that take turns; fiber i waits for word i. */
active proctype block()
{
	byte seen[2], noted, count, i;
	bit waits[2], over[2];

	do
	:: over[0] && over[1] -> break
	:: !over[i] && !waits[i] ->
		/* the fiber looks, and then waits */
		if
		:: mem[WORD(i)] -> over[i] = 1
		:: else ->
#ifdef M_P_SEEN_LATE
			seen[i] = mem[EVENTS];
#endif
			if
			:: mem[EVENTS] == seen[i] -> waits[i] = 1
			:: mem[EVENTS] != seen[i] -> seen[i] = mem[EVENTS]
			fi
		fi;
		i = 1 - i
	:: (over[i] || waits[i]) && !over[1 - i] && !waits[1 - i] -> i = 1 - i
	:: (over[0] || waits[0]) && (over[1] || waits[1]) && !(over[0] && over[1]) ->
		/* nobody can run */
		count = mem[EVENTS];
		if
		:: count != noted ->
			d_step { noted = count; waits[0] = 0; waits[1] = 0 };
			d_step { seen[0] = mem[EVENTS]; seen[1] = mem[EVENTS] }
		:: else -> sleep(0, count)
		fi;
		count = 0
	od
}

/* One who waits without fibers: host code that calls device functions. */
active proctype host()
{
	byte seen, count;

	do
	:: mem[WORD(1)] -> break
	:: !mem[WORD(1)] ->
#ifdef M_P_SEEN_LATE
		seen = mem[EVENTS];
#endif
		count = mem[EVENTS];
		if
		:: count == seen -> sleep(1, count)
		:: else
		fi;
		seen = mem[EVENTS];
		count = 0
	od
}
