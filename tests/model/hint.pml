/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hints for waits that last long (H1..H4): a call that waits for the receive word and a gpoll that waits for both words of a
 * socket, a proxy that stores news into either. Nobody looks for himself (H5), since what that mends shall not be needed: accesses are in order
 * here, so a wait that is not hinted at is the rules' fault. The news ring never fills (accept.pml is about such rings).
 *
 * Checked: both see all news.
 *
 * MUTANT H1_NO_LOOK: who has asked does not look once more
 * MUTANT H1_LATE_NOTE: the number of hints is noted after that look
 * MUTANT H1_ONCE: who was hinted at does not ask anew
 * MUTANT H2_EARLY: the proxy looks whether a hint is asked for before it stores the news
 * MUTANT H2_ONE: it does not look at what gpoll asks for
 * MUTANT H2_CLEAR_LATE: it takes the asking away after it has put the hint into the ring
 * MUTANT H4_NOBODY: a wait leaves the ring to the others
 */
#define RX 0
#define TX 1
#define POLL 2
#define NEWS 2 /* of each word */
#define RING 4

byte word[2], ring, at, hints; /* ring: hints put into it; at: passed on */
bit ask[3];

#ifdef M_H2_EARLY
#define STORE_EARLY(w)
#define STORE_LATE(w) word[w]++;
#else
#define STORE_EARLY(w) word[w]++;
#define STORE_LATE(w)
#endif
#ifdef M_H2_ONE
#define ASKED(w) mine
#else
#define ASKED(w) (mine || ask[POLL])
#endif
#ifdef M_H2_CLEAR_LATE
#define HINT(w) ring++; ask[w] = 0; ask[POLL] = 0
#else
#define HINT(w) ask[w] = 0; ask[POLL] = 0; ring++
#endif

inline news(w)
{
	STORE_EARLY(w)
	mine = ask[w];
	if
	:: ASKED(w) -> STORE_LATE(w) HINT(w)
	:: else -> STORE_LATE(w) skip
	fi;
	mine = 0
}

active proctype proxy()
{
	bit mine;

	do
	:: word[RX] < NEWS -> news(RX)
	:: word[TX] < NEWS -> news(TX)
	:: word[RX] == NEWS && word[TX] == NEWS -> break
	od
}

#ifdef M_H1_NO_LOOK
#define LOOK(there) skip
#else
#define LOOK(there) if :: there -> goto next :: else fi
#endif
#ifdef M_H1_LATE_NOTE
#define NOTE_EARLY skip
#define NOTE_LATE noted = hints
#else
#define NOTE_EARLY noted = hints
#define NOTE_LATE skip
#endif
#ifdef M_H1_ONCE
#define ASK(w) if :: !once -> ask[w] = 1; once = 1 :: else fi
#else
#define ASK(w) ask[w] = 1
#endif
#ifdef M_H4_NOBODY
#define PASS_ON(w) w == POLL && at < ring
#else
#define PASS_ON(w) at < ring
#endif

/* `there`: what is waited for; `done`: all that will come has been seen. */
#define WAIT(w, there, see, done) \
	byte noted, seen; \
	bit once; \
next: \
	do \
	:: there -> see \
	:: done -> goto over \
	:: else -> break \
	od; \
	NOTE_EARLY; \
	ASK(w); \
	LOOK(there); \
	NOTE_LATE; \
	do \
	:: hints != noted -> break \
	:: d_step { PASS_ON(w) -> at++ }; hints++ \
	od; \
	noted = 0; \
	goto next; \
over: \
	skip

active proctype receiver()
{
	WAIT(RX, word[RX] > seen, seen++, seen == NEWS)
}

active proctype poller()
{
	WAIT(POLL, word[RX] + word[TX] > seen, seen = word[RX] + word[TX], seen == 2 * NEWS)
}
