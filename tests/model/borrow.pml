/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Borrows and gclose (B1, B4, B5): a block that borrows the receive side, closes the socket itself and gives the bytes back; one that
 * borrows the send side and gives it back; one that makes an ordinary call; and one more closer. All is in three words, changed
 * by read-modify-writes that order what is around them, so memory is in order here. What lies in the rings is in line.pml and
 * send.pml.
 *
 * Checked: the socket is closed once, not while somebody has a side of it or is in it, and nobody waits for ever.
 *
 * MUTANT B1_NO_COUNT: a borrow is not counted in `life`
 * MUTANT B1_MARK_FIRST: the side is marked before the borrow is counted
 * MUTANT B1_NO_HELD: a borrower takes the side whether it is held or not
 * MUTANT B4_NO_USER: who gives back does not count as a user meanwhile
 * MUTANT B4_LATE: he looks at `life` first and counts as a user a little later
 * MUTANT B5_WAITS: gclose waits for borrows
 * MUTANT B5_NO_ORPHAN: gclose leaves borrows alone and says nothing to them
 * MUTANT B5_STORE: gclose sets ORPHAN whatever the word is by then
 * MUTANT B5_TWO_STEPS: the last borrower leaves the count, and then looks whether he was the last
 * MUTANT B5_EARLY: gclose looks at `life` before it looks at the sides
 */
#define CLOSING 1
#define ORPHAN 2
#define HELD 4
#define BORROWED 8
#define RX 0
#define TX 1

byte flags, users, lent; /* life: one word */
byte side[2];
byte closes, inside; /* inside: those that use the sides */

inline finish()
{
	d_step { assert(!closes && !inside); closes++ }
}

#ifdef M_B1_NO_HELD
#define FREE(s) !(side[s] & CLOSING)
#else
#define FREE(s) !(side[s] & (HELD | CLOSING))
#endif
#ifdef M_B1_NO_COUNT
#define COUNT skip
#else
#define COUNT lent++
#endif
#ifdef M_B1_MARK_FIRST
#define LEND(s) side[s] = side[s] | BORROWED; COUNT
#else
#define LEND(s) COUNT; side[s] = side[s] | BORROWED
#endif

inline borrow(s)
{
	if
	:: d_step { FREE(s) -> assert(!(side[s] & HELD)); side[s] = side[s] | HELD; inside++ };
		LEND(s);
		have = 1
	:: side[s] & CLOSING
	fi
}

inline enter_life()
{
#if defined(M_B4_NO_USER)
	orphan = (flags & ORPHAN) != 0
#elif defined(M_B4_LATE)
	orphan = (flags & ORPHAN) != 0;
	users++
#else
	d_step { orphan = (flags & ORPHAN) != 0; users++ }
#endif
}

#ifdef M_B4_NO_USER
#define LEAVE skip
#define LESS
#else
#define LEAVE users--
#define LESS users--;
#endif

inline give_back(s)
{
	enter_life();
	inside--;
	if
	:: !orphan ->
		lent--;
		side[s] = side[s] & ~(HELD | BORROWED);
		LEAVE
	:: else ->
#ifdef M_B5_TWO_STEPS
		d_step { lent--; LESS };
		last = (lent == 0);
#else
		d_step { last = (lent == 1); lent--; LESS };
#endif
		if
		:: last -> finish()
		:: else
		fi
	fi;
	have = 0
}

#ifdef M_B5_WAITS
#define IN_USE(s) (side[s] & HELD)
#else
#define IN_USE(s) ((side[s] & (HELD | BORROWED)) == HELD)
#endif

inline close()
{
	if
	:: d_step { !(flags & CLOSING) -> flags = flags | CLOSING; users++ };
		side[RX] = side[RX] | CLOSING;
		side[TX] = side[TX] | CLOSING;
again:
#ifdef M_B5_EARLY
		w = lent;
#endif
		users == 1;
		!IN_USE(RX);
		!IN_USE(TX);
#ifndef M_B5_EARLY
		w = lent;
#endif
#ifdef M_B5_NO_ORPHAN
		w = w;
#elif defined(M_B5_STORE)
		if
		:: w -> flags = flags | ORPHAN
		:: else -> if :: users == 1 -> finish() :: else -> goto again fi
		fi
#else
		if
		:: d_step { w && users == 1 && w == lent -> flags = flags | ORPHAN }
		:: users > 1 || w != lent -> goto again
		:: !w && users == 1 -> finish()
		fi
#endif
	:: flags & CLOSING
	fi
}

active proctype closer_borrower()
{
	bit have, orphan, last;
	byte w;

	borrow(RX);
	close();
	if
	:: have -> give_back(RX)
	:: else
	fi
}

active proctype borrower()
{
	bit have, orphan, last;

	borrow(TX);
	if
	:: have -> give_back(TX)
	:: else
	fi
}

active proctype caller()
{
	if
	:: d_step { !(side[TX] & (HELD | CLOSING)) -> side[TX] = side[TX] | HELD; inside++ };
		assert(!closes);
		d_step { inside--; side[TX] = side[TX] & ~HELD }
	:: side[TX] & CLOSING
	fi
}

active proctype closer()
{
	byte w;

	close()
}

/* The proxy keeps the slot until then. */
active proctype proxy()
{
	closes
}
