/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Submission queue (S1..S4): two kernel threads, one proxy, a queue of two entries of two cells,
 * two lap tags, so that every cell is reused twice. An entry carries the number of its message in
 * both cells; a message may also speak of a word that lies elsewhere. A caller may give up between
 * reserving and writing.
 *
 * Checked: every message comes once, whole and in its caller's order; what it speaks of is there;
 * nobody waits for ever.
 *
 * VARIANT aborted: -DABORTED the host aborts at any time; the proxy drains all the same
 * VARIANT dead: -DBOTH the proxy dies at any point, before or after an abort, and says so
 * MUTANT S1_NO_ROOM: does not wait for room
 * MUTANT S1_NO_ADD: takes a position with a load and a store
 * MUTANT S1_NEVER_REFRESH: trusts the cached head when it says full
 * MUTANT S1_OVERSHOOT: raises the cached copy to its own position
 * MUTANT S1_ABORTED: an abort ends the wait for room, and the position stays empty; under ABORTED
 * MUTANT S1_HIDDEN_DEATH: an abort overwrites the news of the proxy's death; under BOTH
 * MUTANT S2_HOLE: a caller that gives up writes nothing
 * MUTANT S3_RELAXED: cell 0 of an entry that speaks of a word elsewhere is stored without release
 * MUTANT S3_NO_BARRIER: another thread stored the word, and no barrier came before the release
 * MUTANT S3_NO_ACQUIRE: the proxy may load the word before it has loaded cell 0
 * MUTANT S4_EARLY_HEAD: the head is published (or stored without release) before the copy is made
 * MUTANT S4_ONE_TAG: the proxy looks at the tag of cell 0 only
 * MUTANT S4_NO_LAPS: the tag is the same in every lap
 * MUTANT Z4_ROOM: the wait for room does not look at the control line; under DEAD
 */
#ifdef BOTH
#define DEAD
#define ABORTED
#endif
#define ECANCELED 1
#define EIO 2

#define SIZE 2
#define CALLERS 2
#define EACH 3
#define TOTAL 5 /* the second caller has one less */
#define NOP 7

#define CELL(pos, i) (((pos) % SIZE) * 2 + (i))
#define ELSEWHERE(id) (2 * SIZE + (id))
#define WORDS (2 * SIZE + TOTAL)
#define SB 3

#ifdef M_S4_NO_LAPS
#define TAG(pos) 1
#else
#define TAG(pos) (1 + ((pos) / SIZE) % 2)
#endif
#define PACK(pos, id) (TAG(pos) + 4 * (id))
#define TAG_OF(c) ((c) % 4)
#define ID_OF(c) ((c) / 4)

#include "memory.pmh"

buffer k0, k1, lane; /* lane: the other thread of block 0 */
byte tail, cached, head; /* the first two in device memory, the third written by the proxy */
byte stop; /* the control line */

active proctype bus_k0() { BUS(k0) }
active proctype bus_k1() { BUS(k1) }
#ifdef M_S3_NO_BARRIER
active proctype bus_lane() { BUS(lane) }
#define LANE lane
#else
#define LANE k0
#endif

#ifdef M_Z4_ROOM
#define OR_DEAD
#elif defined(M_S1_ABORTED)
#define OR_DEAD :: stop -> goto over
#else
#define OR_DEAD :: stop == EIO -> goto over
#endif

inline reserve(pos)
{
#ifdef M_S1_NO_ADD
	pos = tail;
	tail = pos + 1;
#else
	d_step { pos = tail; tail++ };
#endif
#ifndef M_S1_NO_ROOM
	h = cached;
	do
	:: pos - h < SIZE -> break
	:: else ->
#ifdef M_S1_NEVER_REFRESH
		if
		:: false
		OR_DEAD
		fi
#else
		seen = head;
		d_step {
#ifdef M_S1_OVERSHOOT
			seen = pos;
#endif
			if
			:: seen > cached -> cached = seen
			:: else
			fi;
			h = cached
		};
		if
		:: pos - h < SIZE
		:: else ->
			if
			:: head != seen
			OR_DEAD
			fi
		fi
#endif
	od;
#endif
	h = 0;
	seen = 0
}

#define CALLER(me, b, first_store) \
	byte i, h, seen, pos, id; \
	bit speaks; \
	do \
	:: i < EACH - me -> \
		id = me * EACH + i; \
		if \
		:: i == me -> first_store(ELSEWHERE(id)); speaks = 1 \
		:: else \
		fi; \
		reserve(pos); \
		if \
		:: true -> WRITE(b, pos, id, speaks) \
		:: i != me -> GIVE_UP(b, pos) \
		fi; \
		d_step { id = 0; pos = 0; speaks = 0; i++ } \
	:: else -> break \
	od; \
over: \
	skip

#ifdef M_S3_RELAXED
#define WRITE0(b, pos, id, speaks) store(b, CELL(pos, 0), PACK(pos, id) + 32 * speaks)
#else
#define WRITE0(b, pos, id, speaks) store_as(b, CELL(pos, 0), PACK(pos, id) + 32 * speaks, speaks)
#endif
/* The cells are stored in either order, and may arrive in any. */
inline write_cells(b, pos, id, speaks)
{
	if
	:: id >= EACH -> store(b, CELL(pos, 1), PACK(pos, id))
	:: else
	fi;
	WRITE0(b, pos, id, speaks);
	if
	:: id < EACH -> store(b, CELL(pos, 1), PACK(pos, id))
	:: else
	fi
}

#define WRITE(b, pos, id, speaks) write_cells(b, pos, id, speaks)
#ifdef M_S2_HOLE
#define GIVE_UP(b, pos) skip
#else
#define GIVE_UP(b, pos) write_cells(b, pos, NOP, 0)
#endif
#define BY_LANE(addr) store(LANE, addr, 1)
#define BY_SELF(addr) store(k1, addr, 1)

active proctype caller0() { CALLER(0, k0, BY_LANE) }
active proctype caller1() { CALLER(1, k1, BY_SELF) }

inline load_cell0()
{
	atomic { TAG_OF(mem[CELL(pos, 0)]) == TAG(pos) -> c0 = mem[CELL(pos, 0)] }
}

inline load_cell1()
{
#ifdef M_S4_ONE_TAG
	c1 = mem[CELL(pos, 1)]
#else
	atomic { TAG_OF(mem[CELL(pos, 1)]) == TAG(pos) -> c1 = mem[CELL(pos, 1)] }
#endif
}

active proctype proxy()
{
	byte pos, id, next[CALLERS];
	short c0, c1;
	bit word, early[TOTAL];

	do
	:: pos < TOTAL ->
#ifdef M_S4_EARLY_HEAD
		TAG_OF(mem[CELL(pos, 0)]) == TAG(pos);
		TAG_OF(mem[CELL(pos, 1)]) == TAG(pos);
		head = pos + 1;
#endif
#ifdef M_S3_NO_ACQUIRE
		d_step {
			id = 0;
			do
			:: id < TOTAL -> early[id] = mem[ELSEWHERE(id)]; id++
			:: else -> break
			od;
			id = 0
		};
#endif
#ifdef DEAD
		if
		:: load_cell0()
		:: stop = EIO; goto died
		fi;
		load_cell1();
#else
		load_cell0();
		load_cell1();
#endif
		id = ID_OF(c0 % 32);
		assert(ID_OF(c1) == id);
		if
		:: id == NOP
		:: else ->
			if
			:: c0 >= 32 ->
#ifdef M_S3_NO_ACQUIRE
				word = early[id];
#else
				word = mem[ELSEWHERE(id)];
#endif
				assert(word == 1)
			:: else
			fi;
			d_step {
				/* in its caller's order, never twice: those given up leave gaps */
				assert(id % EACH >= next[id / EACH]);
				next[id / EACH] = id % EACH + 1
			}
		fi;
		d_step { c0 = 0; c1 = 0; word = 0; id = 0 };
		pos++;
#ifndef M_S4_EARLY_HEAD
		head = pos
#endif
	:: else -> break
	od;
	assert(tail == TOTAL);
#ifdef DEAD
died:
	skip
#endif
}

#ifdef ABORTED
active proctype host()
{
#ifdef M_S1_HIDDEN_DEATH
	stop = ECANCELED
#else
	d_step {
		if
		:: !stop -> stop = ECANCELED
		:: else
		fi
	}
#endif
}
#endif
