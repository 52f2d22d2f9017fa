/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Close: one slot, used by a first socket (generation 1), then perhaps by a second one. A user
 * connects it, to an address that may never answer (N1: the command is answered at once, and the
 * line tells the end), or takes its receive side, publishes a head and waits for bytes. Another waits for that side and is no user meanwhile. Two blocks close the
 * socket at once. Another block asks for a socket and gets the slot if it is free by then. The
 * queue is a sequence of words (queue.pml is about it).
 *
 * A read-modify-write of `life` orders for the device, not for the proxy: it leaves the stores to
 * host memory where they are, and only a release at system scope (CLOSE) waits for those of all who
 * have left before.
 *
 * Checked: one close succeeds, commands find the socket they mean, the second socket lives
 * undisturbed, everybody ends.
 *
 * VARIANT abort: -DABORT the proxy dies at any point, the control line says so
 * MUTANT C_ENTER_NO_CAS: enters by a look at life and an addition
 * MUTANT C_ENTER_NO_GEN: enters whatever the generation
 * MUTANT C_TAKE_NO_CAS: takes the side by a look and a store
 * MUTANT C_NO_MARK: life is not marked
 * MUTANT C_MARK_ONE: life is marked, but not the side
 * MUTANT C_TWO_CLOSERS: a second gclose goes on though the mark is set
 * MUTANT C_BLIND_WAITER: the side's holder does not look at its word while it waits
 * MUTANT C_STALE_WAITER: who waits for the side does not look at the generation
 * MUTANT N1_BLIND_WAITER: who waits for a connect's end does not look at a side's word
 * MUTANT N1_ANSWER_LATE: CONNECT is answered when it has come to its end
 * MUTANT C_SIDE_FORGOTTEN: gclose waits for users, but not for the side
 * MUTANT C_NO_WAIT: CLOSE is submitted while there are users
 * MUTANT C_CLEAR_LATE: life is cleared after CLOSE
 * MUTANT C_CLOSE_RELAXED: CLOSE is stored without release
 * MUTANT C_NO_RESET: the proxy does not reset the head before it gives the slot out
 * MUTANT C_RESET_LATE: it resets it after its answer (or answers without release)
 * MUTANT S4_BLOCKING: the proxy handles nothing while a connect is under way
 * MUTANT Z4_ANSWER: the wait for an answer does not look at the control line; under ABORT
 */
#define CONNECT 1
#define CLOSE 3
#define SOCKET 4
#define ENTRY(op, gen, who) ((op) + 8 * (gen) + 32 * (who))
#define OP_OF(e) ((e) & 7)
#define GEN_OF(e) (((e) >> 3) & 3)
#define WHO_OF(e) ((e) >> 5)

/* life: generation, closing, users; the receive side's word: generation, held, closing */
#define CLOSING 8
#define HELD 16
#define USERS_OF(l) ((l) & 7)
#define GEN_IN(l) ((l) >> 5)
#define LIFE(gen, users) (32 * (gen) + (users))

#define QUEUE 7
#define LIFE_WORD QUEUE
#define SIDE_WORD (QUEUE + 1)
#define HEAD (QUEUE + 2)
#define ANSWER(who) (QUEUE + 3 + (who))
#define LINE (QUEUE + 7)
#define WORDS (QUEUE + 8)
#define SB 4

#define OK 1
#define BADF 2
#define FULL 3

#include "memory.pmh"

buffer p, user, closer0, closer1, opener;
byte qtail;
bit stop;
byte refused; /* closers that got -EBADF */

active proctype bus_p() { BUS(p) }
active proctype bus_user() { BUS(user) }
active proctype bus_opener() { BUS(opener) }

/* A closer's release waits for the stores of the user, who has left before. */
#define CUMULATIVE(b, other) end: do \
	:: d_step { MAY0(b) && (!b.r[0] || (user.n == 0 && other.n == 0)) -> arrive(b, 0) } \
	ARRIVE1(b) ARRIVE2(b) ARRIVE3(b) od
active proctype bus_closer0() { CUMULATIVE(closer0, closer1) }
active proctype bus_closer1() { CUMULATIVE(closer1, closer0) }

inline submit(b, e, rel)
{
	d_step { pos = qtail; qtail++ };
	store_as(b, pos, e, rel);
	pos = 0
}

#ifdef M_Z4_ANSWER
#define ANSWERED(who) (mem[ANSWER(who)])
#else
#define ANSWERED(who) (mem[ANSWER(who)] || stop)
#endif
#define HELD_NOW (mem[SIDE_WORD] & HELD)
#ifdef M_C_SIDE_FORGOTTEN
#define IN_USE (USERS_OF(mem[LIFE_WORD]) > 1)
#else
#define IN_USE (USERS_OF(mem[LIFE_WORD]) > 1 || HELD_NOW)
#endif
/* Users leave when the network stops, so this wait ends by itself; it looks all the same. */
#define ALONE (!IN_USE || stop)

#ifdef M_C_ENTER_NO_GEN
#define ALIVE(word, gen) (GEN_IN(mem[word]) && !(mem[word] & CLOSING))
#else
#define ALIVE(word, gen) (GEN_IN(mem[word]) == gen && !(mem[word] & CLOSING))
#endif

inline enter(gen, in)
{
#ifdef M_C_ENTER_NO_CAS
	in = ALIVE(LIFE_WORD, gen);
	if
	:: in -> mem[LIFE_WORD] = mem[LIFE_WORD] + 1
	:: else
	fi
#else
	d_step {
		in = ALIVE(LIFE_WORD, gen);
		mem[LIFE_WORD] = mem[LIFE_WORD] + in
	}
#endif
}

inline leave()
{
	mem[LIFE_WORD] = mem[LIFE_WORD] - 1
}

/* Takes the side if it is free now. */
inline take(gen, in)
{
#ifdef M_C_TAKE_NO_CAS
	in = ALIVE(SIDE_WORD, gen) && !HELD_NOW;
	if
	:: in -> mem[SIDE_WORD] = mem[SIDE_WORD] | HELD
	:: else
	fi
#else
	d_step {
		in = ALIVE(SIDE_WORD, gen) && !HELD_NOW;
		mem[SIDE_WORD] = mem[SIDE_WORD] | (HELD * in)
	}
#endif
}

/* Clears a bit, whatever else the word has got meanwhile. */
inline give()
{
	d_step {
		assert(HELD_NOW);
		mem[SIDE_WORD] = mem[SIDE_WORD] - HELD
	}
}

proctype connector()
{
	byte pos;
	bit in;

	if
	:: enter(1, in);
		if
		:: in ->
			submit(user, ENTRY(CONNECT, 1, 0), 1);
			ANSWERED(0);
#ifdef M_N1_BLIND_WAITER
			mem[LINE] || stop;
#else
			mem[LINE] || (mem[SIDE_WORD] & CLOSING) || stop;
#endif
			leave()
		:: else
		fi
	:: take(1, in);
		if
		:: in ->
			store_release(user, HEAD, 1);
#ifdef M_C_BLIND_WAITER
			stop;
#else
			(mem[SIDE_WORD] & CLOSING) || stop;
#endif
			give()
		:: else
		fi
	fi
}

#ifdef M_C_STALE_WAITER
#define GONE (mem[SIDE_WORD] & CLOSING)
#else
#define GONE (GEN_IN(mem[SIDE_WORD]) != 1 || (mem[SIDE_WORD] & CLOSING))
#endif

proctype waiter()
{
	if
	:: GONE || stop
	:: d_step { !GONE && !HELD_NOW -> mem[SIDE_WORD] = mem[SIDE_WORD] | HELD };
		give()
	fi
}

#define CLOSER(b, who) \
	byte pos; \
	bit in, late; \
	enter(1, in); \
	if \
	:: in -> \
		MARK_LIFE(); \
		if \
		:: late -> leave(); REFUSED \
		:: else -> \
			MARK_SIDE \
			WAIT_ALONE \
			if \
			:: !stop -> CLEAR_AND_CLOSE(b, who); ANSWERED(who); \
				assert(stop || mem[ANSWER(who)] == OK) \
			:: stop \
			fi \
		fi \
	:: else -> REFUSED \
	fi

/* Not both. */
#define REFUSED d_step { refused++; assert(refused < 2) }

inline mark_life()
{
	d_step {
#ifndef M_C_TWO_CLOSERS
		late = (mem[LIFE_WORD] & CLOSING) / CLOSING;
#endif
#ifndef M_C_NO_MARK
		mem[LIFE_WORD] = mem[LIFE_WORD] | CLOSING
#endif
	}
}
#define MARK_LIFE() mark_life()
#ifdef M_C_MARK_ONE
#define MARK_SIDE
#else
#define MARK_SIDE mem[SIDE_WORD] = mem[SIDE_WORD] | CLOSING;
#endif

#ifdef M_C_NO_WAIT
#define WAIT_ALONE
#else
#define WAIT_ALONE ALONE;
#endif
#ifdef M_C_CLOSE_RELAXED
#define CLOSE_RELEASE 0
#else
#define CLOSE_RELEASE 1
#endif
#ifdef M_C_CLEAR_LATE
#define CLEAR_AND_CLOSE(b, who) \
	submit(b, ENTRY(CLOSE, 1, who), CLOSE_RELEASE); \
	store(b, SIDE_WORD, 0); store(b, LIFE_WORD, 0)
#else
#define CLEAR_AND_CLOSE(b, who) \
	store(b, SIDE_WORD, 0); store(b, LIFE_WORD, 0); \
	submit(b, ENTRY(CLOSE, 1, who), CLOSE_RELEASE)
#endif

proctype close0() { CLOSER(closer0, 1) }
proctype close1() { CLOSER(closer1, 2) }

/* The second socket. */
proctype open()
{
	byte pos;
	bit in;

	submit(opener, ENTRY(SOCKET, 0, 3), 1);
	ANSWERED(3);
	if
	:: mem[ANSWER(3)] == OK ->
		/* its life begins; what is still on its way would be seen by one of these looks */
		store_release(opener, SIDE_WORD, LIFE(2, 0));
		store_release(opener, LIFE_WORD, LIFE(2, 0));
		drained(opener);
		enter(2, in);
		assert(in);
		assert(mem[HEAD] == 0 && mem[LINE] == 0);
		leave();
		d_step {
			assert(mem[LIFE_WORD] == LIFE(2, 0));
			assert(mem[SIDE_WORD] == LIFE(2, 0))
		}
	:: else
	fi
}

proctype proxy()
{
	byte head, gen = 1, op;
	short e;
	bit pending;
	bit silent; /* the address never answers */

	if
	:: silent = 1
	:: silent = 0
	fi;
end:	do
#ifdef M_S4_BLOCKING
	:: !pending && head < QUEUE && mem[head] ->
#else
	:: head < QUEUE && mem[head] ->
#endif
		d_step { e = mem[head]; head++; op = OP_OF(e) };
		if
		:: op == CONNECT ->
			assert(gen == GEN_OF(e) && !pending);
			pending = 1;
#ifndef M_N1_ANSWER_LATE
			store_release(p, ANSWER(0), OK)
#endif
		:: op == CLOSE ->
			assert(gen == GEN_OF(e));
			gen = 0;
			pending = 0; /* the transport's attempt ends with its socket */
			store_release(p, ANSWER(WHO_OF(e)), OK)
		:: op == SOCKET ->
			if
			:: gen == 0 ->
				gen = 2;
#ifdef M_C_RESET_LATE
				store_release(p, ANSWER(3), OK);
				store(p, HEAD, 0)
#else
#ifndef M_C_NO_RESET
				store(p, HEAD, 0);
				store(p, LINE, 0);
#endif
				store_release(p, ANSWER(3), OK)
#endif
			:: else -> store_release(p, ANSWER(3), FULL)
			fi
		fi;
		d_step { e = 0; op = 0 }
	:: pending && !silent ->
		pending = 0;
#ifdef M_N1_ANSWER_LATE
		store_release(p, ANSWER(0), OK);
#endif
		store_release(p, LINE, 1)
#ifdef ABORT
	:: stop = 1; break
#endif
	od
}

/* The slot's first socket is there from the start. */
init
{
	atomic {
		mem[LIFE_WORD] = LIFE(1, 0);
		mem[SIDE_WORD] = LIFE(1, 0);
		run connector();
		run waiter();
		run close0();
		run close1();
		run open();
		run proxy()
	}
}
