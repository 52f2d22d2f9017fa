/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The send side among blocks (K1..K3): two blocks send messages of one byte on one socket in turns, each by what it remembers or
 * by an acquire. The word of the side carries the position modulo AT, so it comes again while a block is away. Stores of a block
 * arrive late and in any order (but not later than the position comes again); read-modify-writes of the side's word and of the
 * queue's tail are at once and order nothing unless they say so. A holder that took the side by an acquire may attach a segment,
 * which makes the window larger. That a block which remembers loads the segment, too, is left out: the load may be old.
 *
 * Checked: the proxy gets each byte once and in order and never more than the window holds, a taker sees what the last
 * one stored, and nobody waits for ever.
 *
 * VARIANT reuse: -DREUSE the second block closes the socket when it likes, and another one begins in the slot
 * VARIANT near: -DNEAR the segment is near (T7): from it on no byte goes inline; a call that attaches it may send nothing
 * MUTANT K1_BLIND: a block takes the side whether the word is the one that it remembers or not, and compares the position only
 * MUTANT K1_NO_ATOMIC: it takes the side by a load and a store
 * MUTANT K1_NO_TAIL: it does not compare the position, though the word comes again
 * MUTANT K1_NO_WINDOW: it does not look whether there is room
 * MUTANT K1_NO_NOP: after a wrong guess the place in the queue stays empty
 * MUTANT K1_KEEP: after a wrong guess the side is not given back
 * MUTANT K1_GIVE_SEEN: it is given back with the position as this block sees it
 * MUTANT K1_NO_MARK: the word does not say that the segment is near; under NEAR
 * MUTANT K2_NO_POSITION: the word does not say where the position is
 * MUTANT K2_NO_SETTLE: who takes the side by an acquire does not wait for the position
 * MUTANT K2_RELAXED: a call that has stored more than the position gives back without release
 * MUTANT K2_STORES: a block that remembers stores what it knows of txw, too; under REUSE
 * MUTANT K3_NO_SETTLE: gclose does not wait for the position; under REUSE
 */
#ifdef REUSE
#define EACH1 2
#define AT 4
#else
#define EACH1 3
#define AT 3
#endif
#define EACH0 2
#ifdef NEAR
#define MINI 2 /* or none would be sent by what is remembered */
#else
#define MINI 1
#endif
#define RING 3
#define NOP 64
#define BYTE_OF(p) (1 + (p))
#define QUEUE 9
#define TAIL QUEUE
#define SEG (QUEUE + 1)
#define FREE (QUEUE + 2) /* what is known of txw */
#define WORDS (QUEUE + 3)
#define SB 4
#define HELD 16
#define CLOSED 32
#define RINGED 32 /* of an entry: its byte is in the segment */
#define MARKED 128

#include "memory.pmh"

buffer k0, k1;
active proctype bus_k0() { BUS(k0) }
active proctype bus_k1() { BUS(k1) }

byte tx;    /* the side's word: HELD, and the position */
byte qtail; /* the queue's */
byte txw, done, lives, from = 255; /* where a near segment begins */
bit seg, asked;
#define FREE_NOW !(tx & (HELD + CLOSED))

#ifdef NEAR
#define MAY_ATTACH !ks
#define ATTACHED from = kt; fresh = 1
#define GIVES_UP fresh
#define ENTRY(t) (ks -> RINGED + BYTE_OF(t) : BYTE_OF(t))
#define KNOWN(w) (ks -> 0 : 1 + w)
#else
#define MAY_ATTACH !ks && !kt
#define ATTACHED skip
#define GIVES_UP false
#define ENTRY(t) BYTE_OF(t)
#define KNOWN(w) 1 + w
#endif
#if defined(NEAR) && !defined(M_K1_NO_MARK)
#define MARK (ks -> MARKED : 0)
#else
#define MARK 0
#endif

#define OWN(b, w) (b.n > 3 && b.a[3] == w -> b.v[3] : \
	(b.n > 2 && b.a[2] == w -> b.v[2] : (b.n > 1 && b.a[1] == w -> b.v[1] : \
	(b.n > 0 && b.a[0] == w -> b.v[0] : mem[w]))))
/* No store of the position is under way: 4 GiB of them are not. */
#define ARRIVED(b, w) !((b.n > 0 && b.a[0] == w) || (b.n > 1 && b.a[1] == w) || \
	(b.n > 2 && b.a[2] == w) || (b.n > 3 && b.a[3] == w))
#define WINDOW(s) (s -> RING : MINI)
#define LEFT(t, f, s) (t - f < WINDOW(s))

#ifdef M_K2_NO_POSITION
#define WORD(t) (AT * lives)
#else
#define WORD(t) ((t) % AT + AT * lives)
#endif
#ifdef M_K1_NO_WINDOW
#define K_ROOM true
#else
#define K_ROOM LEFT(kt, kf, ks)
#endif
#ifdef M_K1_NO_ATOMIC
#define SWAP(b) ok = (tx == known - 1); if :: ok -> tx = HELD + tx :: else fi
#elif defined(M_K1_BLIND)
/* The position is loaded beside that, so it may be older. */
#define SWAP(b) was = (OWN(b, TAIL) == kt); atomic { FREE_NOW -> tx = HELD + tx; ok = was; was = 0 }
#else
#define SWAP(b) d_step { ok = (tx == known - 1); if :: ok -> tx = HELD + tx :: else fi }
#endif
#if defined(M_K1_NO_TAIL) || defined(M_K1_BLIND)
#define SAME(b) ok
#else
#define SAME(b) ok && OWN(b, TAIL) == kt
#endif
#ifdef M_K1_NO_NOP
#define PUT_NOP(b) skip
#else
#define PUT_NOP(b) store(b, at, NOP)
#endif
#ifdef M_K1_KEEP
#define GIVE_BACK(b) skip
#elif defined(M_K1_GIVE_SEEN)
#define GIVE_BACK(b) drained(b); tx = WORD(OWN(b, TAIL))
#else
#define GIVE_BACK(b) tx = tx - HELD
#endif
#ifdef M_K2_STORES
#define KNOW(b) store(b, FREE, kf)
#else
#define KNOW(b) skip
#endif
#ifdef M_K2_NO_SETTLE
#define SETTLE(b)
#else
#define SETTLE(b) OWN(b, TAIL) % AT == was % AT;
#endif
#ifdef M_K2_RELAXED
#define ALL_ARRIVED(b) true
#else
#define ALL_ARRIVED(b) drained(b)
#endif

/* The place in the queue is taken at the same time. */
#define FAST(b) \
	d_step { at = qtail; qtail++ }; \
	SWAP(b); \
	if \
	:: d_step { SAME(b) -> ok = 0 }; \
		ARRIVED(b, TAIL); \
		store(b, TAIL, kt + 1); \
		store(b, at, BYTE_OF(kt)); \
		d_step { kt++; left-- }; \
		if \
		:: kf < txw -> kf = txw; KNOW(b) \
		:: true \
		fi; \
		atomic { tx = WORD(kt); known = 1 + tx } \
	:: else -> \
		known = 0; \
		PUT_NOP(b); \
		if \
		:: ok -> GIVE_BACK(b); ok = 0 \
		:: else \
		fi \
	fi; \
	at = 0

#define SLOW(b) \
	atomic { FREE_NOW -> was = tx % MARKED; tx = HELD + tx }; \
	SETTLE(b) \
	d_step { \
		kt = OWN(b, TAIL); \
		ks = OWN(b, SEG); \
		kf = OWN(b, FREE); \
		assert(ks == seg && kf <= kt); \
		was = 0 \
	}; \
	if \
	:: MAY_ATTACH -> d_step { seg = 1; ks = 1; ATTACHED }; store(b, SEG, 1) \
	:: true \
	fi; \
	if \
	:: GIVES_UP -> \
		ALL_ARRIVED(b); \
		atomic { fresh = 0; tx = WORD(kt) + MARK; known = 0 } \
	:: true -> \
		fresh = 0; \
		do \
		:: LEFT(kt, kf, ks) -> break \
		:: else -> txw > kf; kf = txw; store(b, FREE, kf) \
		od; \
		atomic { at = qtail; qtail++ }; \
		ARRIVED(b, TAIL); \
		store(b, TAIL, kt + 1); \
		store(b, at, ENTRY(kt)); \
		ALL_ARRIVED(b); \
		atomic { kt++; left--; at = 0; tx = WORD(kt) + MARK; known = KNOWN(tx) } \
	fi

active proctype block0()
{
	byte left = EACH0, at, was, known, kt, kf;
	bit ks, ok, fresh;

	do
	:: left && known && K_ROOM -> FAST(k0)
	:: left -> SLOW(k0)
	:: !left -> done++; break
	od
}

#ifdef M_K3_NO_SETTLE
#define CLOSE_SETTLE
#else
#define CLOSE_SETTLE OWN(k1, TAIL) % AT == was % AT;
#endif

active proctype block1()
{
	byte left = EACH1, at, was, known, kt, kf;
	bit ks, ok, fresh;

	do
	:: left && known && K_ROOM -> FAST(k1)
	:: left -> SLOW(k1)
#ifdef REUSE
	:: !lives && left ->
		atomic { FREE_NOW -> was = tx; tx = CLOSED };
		CLOSE_SETTLE
		drained(k1);
		asked = 1;
		!asked;
		store(k1, TAIL, 0);
		store(k1, SEG, 0);
		store(k1, FREE, 0);
		drained(k1);
		d_step { tx = WORD(0); was = 0; left = 1 }
#endif
	:: !left -> done++; break
	od
}

active proctype proxy()
{
	byte head, told, out, v;

	do
	:: mem[head] ->
		d_step {
			v = mem[head];
			head++;
			if
			:: v == NOP
			:: else ->
				assert(v >= RINGED || told < from);
				assert(v % RINGED == BYTE_OF(told));
				told++;
				assert(told - out <= WINDOW(seg))
			fi;
			v = 0
		}
	:: out < told -> d_step { out++; txw = out }
#ifdef REUSE
	:: asked && mem[head] == 0 && head == qtail ->
		d_step { told = 0; out = 0; txw = 0; seg = 0; lives++; asked = 0 }
#endif
	:: done == 2 && head == qtail && out == told -> break
	od
}
