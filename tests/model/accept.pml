/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Accept ring and the listener's close: a ring of two cells with two lap tags, four connections on
 * three slots, two blocks that claim, give each connection a look and close it, and one that closes
 * the listener at some time. An accepted socket's record is one word, which says whose it is. A
 * block enters the listener and takes its receive side in one atomic; who waits for the side is no
 * user. Both blocks' stores to host memory share a buffer: they take turns by a lock, so stores to
 * one word keep their order.
 *
 * Checked: each connection is claimed once, with its own record, or dropped once at the listener's
 * close; nobody waits for ever.
 *
 * VARIANT abort: -DABORT the proxy dies at any point, the control line says so
 * MUTANT A_NO_ROOM: the proxy does not look at the head before it posts
 * MUTANT A_ONE_TAG: the tag is the same in every lap
 * MUTANT A_RELAXED: the cell is stored without release
 * MUTANT A_NO_ACQUIRE: the record may be loaded before the cell
 * MUTANT A_EARLY_HEAD: the head is published before the descriptor is loaded
 * MUTANT A_NO_SIDE: blocks claim without the receive side
 * MUTANT A_ENTER_LATE: the side is taken first, and the block counted as a user afterwards
 * MUTANT A_BLIND_HOLDER: the side's holder does not look at life
 * MUTANT A_DROP_ALL: at the listener's close the proxy drops all that it posted
 * MUTANT A_DROP_NONE: it drops none
 * MUTANT A_CLOSE_EARLY: the listener's CLOSE does not wait for its users
 * MUTANT A_FREE_EARLY: a slot is given out again before the CLOSE of its connection
 * MUTANT Z4_ACCEPT: the wait for a connection does not look at the control line; under ABORT
 */
#define RING 2
#define CONNS 4
#define SLOTS 3

#ifdef M_A_ONE_TAG
#define TAG(c) 1
#else
#define TAG(c) (1 + ((c) / RING) % 2)
#endif
#define CELL(c) ((c) % RING)
#define RECORD(slot) (RING + (slot))
#define HEAD (RING + SLOTS)
#define CLOSED(slot) (HEAD + 1 + (slot))
#define LISTENER_CLOSED (HEAD + 1 + SLOTS)
#define WORDS (LISTENER_CLOSED + 1)
#define SB 4

#include "memory.pmh"

buffer p, k;
active proctype bus_p() { BUS(p) }
active proctype bus_k() { BUS(k) }

/* device memory */
byte rx_head;
bit held, closing; /* life: the receive side, the mark, the users */
byte users;
bit stop;

byte claimed[CONNS], dropped[CONNS]; /* what came of the connections */

#ifdef M_A_NO_SIDE
#define FREE true
#else
#define FREE !held
#endif
#ifdef M_A_ENTER_LATE
#define ENTER d_step { !closing && FREE -> held = 1 }; users++
#else
#define ENTER d_step { !closing && FREE -> held = 1; users++ }
#endif
#define LEAVE d_step { held = 0; users-- };

#ifdef M_A_BLIND_HOLDER
#define GIVES_UP stop
#elif defined(M_Z4_ACCEPT)
#define GIVES_UP closing
#else
#define GIVES_UP (closing || stop)
#endif

#define CLAIMER \
	byte pos, c, slot; \
	short cell; \
	bit ok, early[SLOTS]; \
	do \
	:: closing || stop -> break \
	:: else -> \
		ok = 0; \
		if \
		:: ENTER; ok = 1 \
		:: closing || stop \
		fi; \
		if \
		:: ok -> \
			pos = rx_head; \
			EARLY_LOOK \
			if \
			:: atomic { mem[CELL(pos)] % 4 == TAG(pos) -> cell = mem[CELL(pos)] }; \
				PUBLISH_EARLY \
				rx_head = pos + 1; \
				c = cell / 4; \
				slot = c % SLOTS; \
				d_step { claimed[c]++; assert(claimed[c] + dropped[c] == 1) }; \
				PUBLISH \
				LEAVE \
				LOOK \
				store_release(k, CLOSED(slot), c + 1) \
			:: GIVES_UP -> LEAVE \
			fi \
		:: else \
		fi; \
		atomic { pos = 0; c = 0; slot = 0; cell = 0; ok = 0 } \
	od; \
	ok = 0

#ifdef M_A_NO_ACQUIRE
#define EARLY_LOOK early[0] = (mem[RECORD(pos % SLOTS)] == pos + 1);
#define LOOK assert(early[0] || c != pos);
#else
#define EARLY_LOOK
#define LOOK assert(mem[RECORD(slot)] == c + 1);
#endif
#ifdef M_A_EARLY_HEAD
#define PUBLISH_EARLY store_release(k, HEAD, pos + 1); cell = mem[CELL(pos)];
#define PUBLISH
#else
#define PUBLISH_EARLY
#define PUBLISH store_release(k, HEAD, pos + 1);
#endif

active proctype claimer0() { CLAIMER }
active proctype claimer1() { CLAIMER }

active proctype closer()
{
	bit patient;

	/* at any time, or when all connections have been claimed, which must come about */
	if
	:: patient = 0
	:: patient = 1
	fi;
	if
	:: !patient || rx_head == CONNS ->
		closing = 1;
#ifndef M_A_CLOSE_EARLY
		users == 0;
#endif
		store_release(k, LISTENER_CLOSED, rx_head + 1)
	:: stop
	fi
}

#ifdef M_A_FREE_EARLY
#define MAY_FREE (mem[HEAD] > 0)
#else
#define MAY_FREE (mem[CLOSED(0)] == 1)
#endif
#ifdef M_A_NO_ROOM
#define ROOM true
#else
#define ROOM (next - mem[HEAD] < RING)
#endif

active proctype proxy()
{
	byte next, c, slot;
	bit used[SLOTS];

	do
	:: next < CONNS && ROOM && !used[next % SLOTS] ->
		slot = next % SLOTS;
		used[slot] = 1;
		store(p, RECORD(slot), next + 1);
#ifdef M_A_RELAXED
		store(p, CELL(next), TAG(next) + 4 * next);
#else
		store_release(p, CELL(next), TAG(next) + 4 * next);
#endif
		d_step { next++; slot = 0 }
	/* only the first slot is used twice */
	:: used[0] && next < CONNS && MAY_FREE -> used[0] = 0
	:: mem[LISTENER_CLOSED] -> break
#ifdef ABORT
	:: stop = 1; goto dead
#endif
	od;
#ifdef M_A_DROP_ALL
	c = 0;
#else
	c = mem[LISTENER_CLOSED] - 1;
#endif
#ifndef M_A_DROP_NONE
	do
	:: c < next ->
		d_step { dropped[c]++; assert(claimed[c] + dropped[c] == 1); c++ }
	:: else -> break
	od;
#endif
	(drained(k) && users == 0);
	c = 0;
	do
	:: c < next -> assert(claimed[c] + dropped[c] == 1); c++
	:: else -> break
	od;
dead:
	skip
}
