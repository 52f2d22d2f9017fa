/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send (T1..T5): two blocks send on one socket in turns, at first inline with a window of two
 * bytes, then, once one of them has asked for a segment of three bytes, inline or by the ring. An
 * inline entry carries one byte, the ring up to two at once; the place in the queue for the entry
 * that tells of these is taken before they are stored, or after. The transport takes bytes when it
 * likes. Who finishes last closes. The queue is a sequence of words (queue.pml is about it), the
 * segment another socket's as soon as it is free.
 *
 * Checked: the transport gets every byte once and in order, and nobody waits for ever.
 *
 * VARIANT detach: -DLET_GO at the end of a turn the segment may be let go of, once
 * VARIANT abort: -DABORT the proxy dies at any point, the control line says so
 * MUTANT T1_NO_WINDOW: the sender does not look at the window
 * MUTANT T1_BIG_WINDOW: it takes the segment's window though it has no segment
 * MUTANT T1_NEVER_REFRESH: it trusts its cached copy when that says no room
 * MUTANT T1_NO_ACQUIRE: ring bytes may be stored before txw is loaded
 * MUTANT T2_OVERTAKE: the proxy passes an inline byte on though earlier bytes wait
 * MUTANT T2_DROP: it forgets what the transport does not take
 * MUTANT T2_NO_COPY: its private buffer is left behind when a segment is attached
 * MUTANT T3_RELAXED: the entry is stored without release
 * MUTANT T3_NO_BARRIER: another thread stored the bytes, and no barrier comes before the release
 * MUTANT T4_EARLY: txw is advanced before the bytes are read (or stored without release)
 * MUTANT T4_BEYOND: the proxy reads one byte beyond the tail that it was told
 * MUTANT T5_EARLY_UNLOCK: the side is given up before the entry is submitted
 * MUTANT T5_TWO_QUEUES: each block has a queue of its own
 * MUTANT T6_EARLY: the proxy takes the segment back though bytes in it are unsent; under LET_GO
 * MUTANT T6_NOT_REVOKED: an attach does not revoke the detach before it; under LET_GO
 * MUTANT T6_WINDOW: the sender that has let go keeps the segment's window; under LET_GO
 * MUTANT T6_KEEPS: it goes on storing into it; under LET_GO
 * MUTANT C_FREE_EARLY: the proxy frees the segment at CLOSE, though the transport has not taken all
 * MUTANT Z4_WINDOW: the wait for the window does not look at the control line; under ABORT
 */
#define MINI 2
#define RING 3
/* The second block sends one only. */
#if (defined(LET_GO) && !defined(M_T6_WINDOW)) || defined(ABORT)
#define EACH 2
#else
#define EACH 3
#endif
#define N (EACH + 1)
#define GARBAGE 15

#define BYTE_OF(p) ((p) + 1)
#define SEND 1
#define TX 2
#define ATTACH 3
#define CLOSE 4
#define DETACH 5
#define ENTRY(op, v) ((op) + 8 * (v))
#define OP_OF(e) ((e) & 7)
#define VALUE_OF(e) ((e) >> 3)

#define QUEUE (N + 4)
#define IN_RING(p) (2 * QUEUE + (p) % RING)
#define TXW (2 * QUEUE + RING)
#define ANSWER (TXW + 1)
#define WORDS (ANSWER + 1)
#define SB 3

#include "memory.pmh"

buffer p, k0, k1, lane0, lane1;
active proctype bus_p() { BUS(p) }
active proctype bus_k0() { BUS(k0) }
active proctype bus_k1() { BUS(k1) }
#ifdef M_T3_NO_BARRIER
active proctype bus_lane0() { BUS(lane0) }
active proctype bus_lane1() { BUS(lane1) }
#define LANE0 lane0
#define LANE1 lane1
#else
#define LANE0 k0
#define LANE1 k1
#endif

#ifdef M_T5_TWO_QUEUES
byte qtail[2];
#define WHICH(me) me
#else
byte qtail[1];
#define WHICH(me) 0
#endif

/* device memory */
bit tx_lock, attached, had, let_go;
byte tx_tail, tx_head, finished, asked;
bit stop;

#define SUBMIT(me, b, e, rel) \
	atomic { \
		b.n < SB; \
		at = QUEUE * WHICH(me) + qtail[WHICH(me)]; \
		qtail[WHICH(me)] = qtail[WHICH(me)] + 1; \
		store_as(b, at, e, rel); \
		at = 0 \
	}

#ifdef M_T1_BIG_WINDOW
#define WINDOW RING
#else
#ifdef M_T6_WINDOW
#define WINDOW (had -> RING : MINI)
#else
#define WINDOW (attached -> RING : MINI)
#endif
#endif

#ifdef M_T1_NO_WINDOW
#define WAIT_WINDOW(n)
#else
#ifdef M_T1_NEVER_REFRESH
#define REFRESH false;
#else
#define REFRESH tx_head = mem[TXW];
#endif
#ifdef M_Z4_WINDOW
#define NO_NEWS mem[TXW] != tx_head
#else
#define NO_NEWS if :: mem[TXW] != tx_head :: stop -> tx_lock = 0; goto over fi
#endif
#define WAIT_WINDOW(n) do \
	:: tx_tail + n - tx_head <= WINDOW -> break \
	:: else -> \
		if \
		:: mem[TXW] == tx_head -> NO_NEWS \
		:: else \
		fi; \
		REFRESH \
	od;
#endif

/* K1: what is known to have room has its place before it stores. */
#define MAY_PLACE(me) \
	if \
	:: atomic { \
		true -> \
		at = QUEUE * WHICH(me) + qtail[WHICH(me)]; \
		qtail[WHICH(me)] = qtail[WHICH(me)] + 1 \
	} \
	:: true \
	fi;

#define SUBMIT_TX(me, b, e, rel) \
	if \
	:: at -> store_as(b, at, e, rel); at = 0 \
	:: else -> SUBMIT(me, b, e, rel) \
	fi;

#define STORE_RING(lane, n) \
	atomic { \
		lane.n + n <= SB; \
		store(lane, IN_RING(tx_tail), BYTE_OF(tx_tail)); \
		if \
		:: n > 1 -> store(lane, IN_RING(tx_tail + 1), BYTE_OF(tx_tail + 1)) \
		:: else \
		fi \
	}

#ifdef M_T1_NO_ACQUIRE
#define STORE_AND_WAIT(me, lane, n) MAY_PLACE(me) STORE_RING(lane, n); WAIT_WINDOW(n)
#else
#define STORE_AND_WAIT(me, lane, n) WAIT_WINDOW(n) MAY_PLACE(me) STORE_RING(lane, n);
#endif
#ifdef M_T3_RELAXED
#define TX_RELEASE 0
#else
#define TX_RELEASE 1
#endif
#ifdef M_T5_EARLY_UNLOCK
#define UNLOCK_EARLY tx_lock = 0;
#define UNLOCK
#else
#define UNLOCK_EARLY
#define UNLOCK tx_lock = 0;
#endif

#ifdef M_T6_KEEPS
#define FORGET skip
#else
#define FORGET attached = 0
#endif

#ifdef LET_GO
#define MAY_DETACH(me, b) \
		if \
		:: attached && !let_go -> \
			d_step { let_go = 1; FORGET }; \
			SUBMIT(me, b, ENTRY(DETACH, 0), 0) \
		:: true \
		fi;
#else
#define MAY_DETACH(me, b)
#endif

#define SENDER(me, b, lane) \
	byte left = (me -> 1 : EACH), n, at, to; \
	do \
	:: left > 0 -> \
		if \
		:: d_step { !tx_lock -> tx_lock = 1 } \
		:: stop -> goto over \
		fi; \
		if \
		:: !attached -> \
			SUBMIT(me, b, ENTRY(ATTACH, 0), 1); \
			asked++; \
			if \
			:: mem[ANSWER] == asked -> d_step { attached = 1; had = 1 } \
			:: stop -> tx_lock = 0; goto over \
			fi \
		:: true \
		fi; \
		if \
		:: attached && left > 1 -> n = 2 \
		:: true -> n = 1 \
		fi; \
		if \
		:: attached -> \
			STORE_AND_WAIT(me, lane, n) \
			atomic { to = tx_tail + n; tx_tail = to }; \
			UNLOCK_EARLY \
			SUBMIT_TX(me, b, ENTRY(TX, to), TX_RELEASE) \
		:: n == 1 -> \
			WAIT_WINDOW(1) \
			atomic { to = tx_tail + 1; tx_tail = to }; \
			UNLOCK_EARLY \
			SUBMIT(me, b, ENTRY(SEND, to), 0) \
		fi; \
		d_step { left = left - n; n = 0; to = 0 }; \
		MAY_DETACH(me, b) \
		UNLOCK \
	:: else -> break \
	od; \
	atomic { \
		finished++; \
		if \
		:: finished == 2 -> SUBMIT(me, b, ENTRY(CLOSE, 0), 1) \
		:: else \
		fi \
	}; \
over: \
	skip

active proctype sender0() { SENDER(0, k0, LANE0) }
active proctype sender1() { SENDER(1, k1, LANE1) }

/* ---- the proxy ---- */

/* What the transport has not taken is kept at its place in the ring, or in the private buffer. */
inline keep(pos)
{
#ifdef M_T2_DROP
	skip
#else
	if
	:: seg -> mem[IN_RING(pos)] = BYTE_OF(pos)
	:: !seg -> own[(pos) % MINI] = BYTE_OF(pos)
	fi
#endif
}

inline pass_on(v)
{
	d_step { assert(v == BYTE_OF(out)); out++ }
}

inline advance()
{
	store_release(p, TXW, out)
}

/* One entry. */
inline handle()
{
	if
	:: OP_OF(e) == SEND ->
		/* the value is the byte's position + 1 */
		if
#ifdef M_T2_OVERTAKE
		:: true ->
#else
		:: out == told ->
#endif
			told = VALUE_OF(e);
			pass_on(VALUE_OF(e));
			advance()
		:: true ->
			told = VALUE_OF(e);
			keep(told - 1)
		fi
	:: OP_OF(e) == TX -> told = VALUE_OF(e)
	:: OP_OF(e) == DETACH -> going = seg
	:: OP_OF(e) == ATTACH ->
#ifndef M_T6_NOT_REVOKED
		going = 0;
#endif
#ifndef M_T2_NO_COPY
		i = (seg -> told : out);
		do
		:: i < told -> mem[IN_RING(i)] = own[i % MINI]; i++
		:: else -> break
		od;
		i = 0;
#endif
		seg = 1;
		answers++;
		store_release(p, ANSWER, answers)
	:: OP_OF(e) == CLOSE ->
		closed = 1;
#ifdef M_C_FREE_EARLY
		if
		:: seg ->
			d_step {
				mem[IN_RING(0)] = GARBAGE;
				mem[IN_RING(1)] = GARBAGE;
				mem[IN_RING(2)] = GARBAGE
			}
		:: else
		fi
#endif
	fi;
	e = 0
}

active proctype proxy()
{
	byte head[2], told, out, i, answers, own[MINI];
	short e;
	bit seg, going, closed;

	do
	:: mem[head[0]] -> d_step { e = mem[head[0]]; head[0]++ }; handle()
#ifdef M_T5_TWO_QUEUES
	:: mem[QUEUE + head[1]] -> d_step { e = mem[QUEUE + head[1]]; head[1]++ }; handle()
#endif
#ifdef M_T4_BEYOND
	:: seg && out < N ->
#else
	:: seg && out < told ->
#endif
#ifdef M_T4_EARLY
		store_release(p, TXW, out + 1);
		pass_on(mem[IN_RING(out)])
#else
		pass_on(mem[IN_RING(out)]);
		advance()
#endif
	:: !seg && out < told ->
		pass_on(own[out % MINI]);
		advance()
#ifdef M_T6_EARLY
	:: going ->
#else
	:: going && out == told ->
#endif
		d_step {
			mem[IN_RING(0)] = GARBAGE;
			mem[IN_RING(1)] = GARBAGE;
			mem[IN_RING(2)] = GARBAGE;
			going = 0;
			seg = 0
		}
	:: closed && out == told -> break
#ifdef ABORT
	:: stop = 1; goto dead
#endif
	od;
	assert(out == N);
dead:
	skip
}
