/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lingering (N3): a closer submits CLOSE, hears that the socket lingers, watches its line for GONE and submits CLOSE once more.
 * The proxy sends meanwhile, for a time or all of it, and keeps the slot. Another block asks for sockets all the while and uses the
 * slot when it is free: it lingers, too. The queue is a sequence of words (queue.pml is about it); answers come by words.
 *
 * Checked: each closer gets its own socket's result, no line is changed under a socket that another has, everybody ends.
 *
 * VARIANT abort: -DABORT the proxy dies at any point, the control line says so
 * MUTANT N3_FREE_EARLY: the slot is free when the bytes are sent, not when the closer has seen it
 * MUTANT N3_NO_RESET: the line's GONE is not taken back before the slot is given out again
 * MUTANT N3_NO_GONE: the line is not told
 * MUTANT N3_EARLY_GONE: GONE is told while the proxy still sends
 * MUTANT Z4_GONE: the wait for GONE does not look at the control line; under ABORT
 */
#define SOCKET 1
#define CLOSE 2
#define ENTRY(op, who) ((op) + 4 * (who))
#define OP_OF(e) ((e) & 3)
#define WHO_OF(e) ((e) >> 2)

/* Two closers, each a socket; a try for one, CLOSE, CLOSE. */
#define QUEUE 8
#define ANSWER(who) (QUEUE + (who))
#define LINE (QUEUE + 2)
#define WORDS (QUEUE + 3)
#define SB 3

#define OK 1
#define LATE 2
#define FULL 3
#define WAIT 4
#define BADF 5
/* An answer names the result and its number. */
#define VALUE(result, nr) ((result) + 8 * (nr))

#define GONE 1

#include "memory.pmh"

buffer p, k0, k1;
active proctype bus_p() { BUS(p) }
active proctype bus_k0() { BUS(k0) }
active proctype bus_k1() { BUS(k1) }

byte qtail, owner = 2;   /* who watches the line; 2: nobody */
bit stop;
byte truth[2];           /* what became of each socket's bytes */

inline submit(b, e)
{
	d_step { pos = qtail; qtail++ };
	store_release(b, pos, e)
}

#define CALL(b, who, op) \
	nr++; \
	submit(b, ENTRY(op, who)); \
	if \
	:: (mem[ANSWER(who)] >> 3) == nr -> got = mem[ANSWER(who)] & 7 \
	:: stop -> goto over \
	fi

#ifdef M_Z4_GONE
#define SEEN_GONE mem[LINE] == GONE
#else
#define SEEN_GONE mem[LINE] == GONE || stop
#endif

#define BLOCK(b, me) \
	byte pos, nr, got; \
	CALL(b, me, SOCKET); \
	if \
	:: got == FULL -> goto over \
	:: else \
	fi; \
	assert(owner == 2); \
	CALL(b, me, CLOSE); \
	if \
	:: got == WAIT -> \
		assert(owner == 2); \
		owner = me; \
		(SEEN_GONE); \
		if \
		:: stop -> goto over \
		:: else \
		fi; \
		owner = 2; \
		CALL(b, me, CLOSE) \
	:: else \
	fi; \
	assert(got == truth[me]); \
over:	skip

proctype block0() { BLOCK(k0, 0) }
proctype block1() { BLOCK(k1, 1) }

proctype proxy()
{
	byte head, who, has = 2, nr[2];
	short e;
	bit sends, over;

end:	do
	:: head < qtail && mem[head] ->
		d_step { e = mem[head]; head++; who = WHO_OF(e); nr[who]++ };
		if
		:: OP_OF(e) == SOCKET && has == 2 ->
			has = who;
			over = 0;
#ifndef M_N3_NO_RESET
			store(p, LINE, 0);
#endif
			store_release(p, ANSWER(who), VALUE(OK, nr[who]))
		:: OP_OF(e) == SOCKET && has != 2 ->
			store_release(p, ANSWER(who), VALUE(FULL, nr[who]))
		:: OP_OF(e) == CLOSE && has != who ->
			store_release(p, ANSWER(who), VALUE(BADF, nr[who]))
		:: OP_OF(e) == CLOSE && has == who && over ->
			has = 2;
			store_release(p, ANSWER(who), VALUE(truth[who], nr[who]))
		:: OP_OF(e) == CLOSE && has == who && !over && sends ->
			store_release(p, ANSWER(who), VALUE(WAIT, nr[who]))
		:: OP_OF(e) == CLOSE && has == who && !over && !sends ->
			if
			:: truth[who] = OK; has = 2; /* nothing was unsent */
				store_release(p, ANSWER(who), VALUE(OK, nr[who]))
			:: sends = 1;
#ifdef M_N3_EARLY_GONE
				store(p, LINE, GONE);
#endif
				store_release(p, ANSWER(who), VALUE(WAIT, nr[who]))
			fi
		fi;
		e = 0
	:: sends ->
		if
		:: truth[has] = OK
		:: truth[has] = LATE
		fi;
#ifdef M_N3_FREE_EARLY
		has = 2;
#endif
		sends = 0;
		over = 1;
#ifndef M_N3_NO_GONE
		store_release(p, LINE, GONE)
#endif
#ifdef ABORT
	:: stop -> break
#endif
	od
}

#ifdef ABORT
active proctype aborts() { stop = 1 }
#endif

init
{
	atomic {
		run block0();
		run block1();
		run proxy()
	}
}
