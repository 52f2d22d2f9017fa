/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive side among blocks (K1..K3): two blocks take small messages in turns, each by what it remembers of the side's word or
 * by an acquire. A message is two bytes, a call takes one; the line is one word, its tail; there is no segment, so the proxy sends on only when the
 * published head is the tail. Stores of a block arrive late and in any order, those of device memory and of the bus alike;
 * read-modify-writes of the side's word are at once and order nothing unless they say so. What a call stores beside the
 * positions (where it looks first the next time) is one more word.
 *
 * Checked: each byte is received once and in order, a taker sees what the last one stored, no head that arrives late
 * is met by the proxy, and nobody waits for ever.
 *
 * VARIANT reuse: -DREUSE the second block closes the socket when it likes, and another one begins in the slot
 * MUTANT K1_NO_ATOMIC: a side that is remembered is taken by a load and a store
 * MUTANT K1_NOT_HELD: who takes it does not mark it as held
 * MUTANT K2_NO_POSITION: the word does not say where the position is
 * MUTANT K2_NO_SETTLE: who takes the side by an acquire does not wait for the position
 * MUTANT K2_NO_HEAD: nor for the published head
 * MUTANT K2_HINT: a call that stores something else, too, gives back without release
 * MUTANT K3_NO_SETTLE: gclose does not wait for the position; under REUSE
 * MUTANT K3_NO_HEAD: nor for the published head; under REUSE
 */
#define N 4
#define RX_HEAD 0
#define HINT 1
#define HEAD 2
#define WORDS 3
#define SB 5
#define GEN 8
#define HELD 64
#define CLOSED 128

#include "memory.pmh"

buffer k0, k1;
active proctype bus_k0() { BUS(k0) }
active proctype bus_k1() { BUS(k1) }

byte rx; /* the side's word: HELD, the generation, the position */
byte line, life;
byte hint; /* what the last holder has stored there */
bit asked; /* CLOSE */
byte last = N, left = N; /* bytes to be sent, and not yet received */

/* A block sees its own stores. */
#define OWN(b, w) (b.n > 4 && b.a[4] == w -> b.v[4] : (b.n > 3 && b.a[3] == w -> b.v[3] : \
	(b.n > 2 && b.a[2] == w -> b.v[2] : (b.n > 1 && b.a[1] == w -> b.v[1] : \
	(b.n > 0 && b.a[0] == w -> b.v[0] : mem[w])))))

#ifdef M_K1_NOT_HELD
#define TAKEN(w) w
#else
#define TAKEN(w) (HELD + w)
#endif
#ifdef M_K1_NO_ATOMIC
#define TAKE_KNOWN rx == known - 1 -> rx = TAKEN(known - 1)
#else
#define TAKE_KNOWN atomic { rx == known - 1 -> rx = TAKEN(known - 1) }
#endif
#ifdef M_K2_NO_POSITION
#define WORD(h) (GEN * life)
#else
#define WORD(h) ((h) + GEN * life)
#endif
#ifdef M_K2_NO_SETTLE
#define SETTLE(b)
#else
#define SETTLE(b) OWN(b, RX_HEAD) == was % GEN;
#endif
#ifdef M_K2_NO_HEAD
#define SETTLE_HEAD(b)
#else
#define SETTLE_HEAD(b) OWN(b, HEAD) == was % GEN;
#endif
/* Of what comes before: the head itself may arrive after the side has gone back. */
#ifdef M_K2_HINT
#define RELEASE_BOTH(b) true
#else
#define RELEASE_BOTH(b) drained(b)
#endif

/* One call: receives, or finds nothing. */
#define CALL(b) \
	if \
	:: known -> \
		if \
		:: TAKE_KNOWN; h = OWN(b, RX_HEAD) \
		:: rx != known - 1 -> known = 0; goto again \
		fi \
	:: atomic { rx < HELD -> was = rx; rx = HELD + rx }; \
		SETTLE(b) \
		SETTLE_HEAD(b) \
		h = OWN(b, RX_HEAD); \
		assert(OWN(b, HINT) == hint) \
	fi; \
	if \
	:: line > h -> \
		d_step { assert(line - h <= 2); h++; left-- }; \
		if \
		:: h == 2 -> atomic { hint++; more = 1; store(b, HINT, hint) } \
		:: true \
		fi; \
		store(b, RX_HEAD, h); \
		if \
		:: more -> RELEASE_BOTH(b) \
		:: else \
		fi; \
		store(b, HEAD, h) \
	:: line <= h \
	fi; \
	atomic { rx = WORD(h); known = 1 + rx }; \
	d_step { h = 0; was = 0; more = 0 }

active proctype block0()
{
	byte h, was, known;
	bit more;

again:
	do
	:: left -> CALL(k0)
	:: !left -> break
	od
}

#ifdef M_K3_NO_SETTLE
#define CLOSE_SETTLE
#else
#define CLOSE_SETTLE OWN(k1, RX_HEAD) == was % GEN;
#endif
#ifdef M_K3_NO_HEAD
#define CLOSE_HEAD
#else
#define CLOSE_HEAD OWN(k1, HEAD) == OWN(k1, RX_HEAD);
#endif

active proctype block1()
{
	byte h, was, known;
	bit more;

again:
	do
	:: left -> CALL(k1)
#ifdef REUSE
	:: !life && left ->
		atomic { rx < HELD -> was = rx; rx = CLOSED };
		CLOSE_SETTLE
		CLOSE_HEAD
		drained(k1);
		asked = 1;
		!asked;
		store(k1, RX_HEAD, 0);
		drained(k1);
		d_step { rx = GEN * life; was = 0 }
#endif
	:: !left -> break
	od
}

active proctype proxy()
{
	byte tail;

end:	do
	:: tail == mem[HEAD] && tail < last -> d_step { tail = tail + 2; line = tail }
	:: atomic { mem[HEAD] > tail || tail - mem[HEAD] > 2 -> assert(false) }
#ifdef REUSE
	:: asked ->
		d_step { tail = 0; line = 0; mem[HEAD] = 0; life++; last = 2; left = 2; asked = 0 }
#endif
	od
}
