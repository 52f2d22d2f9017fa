/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two gpolls of one socket (H6): both use one word to ask for hints. One waits for news, the other gives up, twice. Accesses are in
 * order, and nobody looks for himself (H5), as in hint.pml, which has the rest of the rules.
 *
 * Checked: the one that waits sees all news; when both have ended nobody asks.
 *
 * MUTANT H6_ALL: a gpoll that ends takes away what others ask for
 * MUTANT H6_TOGETHER: it looks whether it is the last one before it counts itself out
 * MUTANT H6_NO_LOOK: the last one that asks does not look whether somebody has come meanwhile
 * MUTANT H6_FOR_HIM: it does, and asks for him, too
 * MUTANT H6_LATE_COUNT: a gpoll counts itself when it has asked
 */
#define NEWS 3

byte word, given, hints, polls, ended;
bit ask;

active proctype proxy()
{
	bit asked;

	do
	:: word < NEWS ->
		word++;
		asked = ask;
		if
		:: asked -> ask = 0; given++
		:: else
		fi;
		asked = 0
	:: word == NEWS -> break
	od
}

#ifdef M_H6_LATE_COUNT
#define COUNT_EARLY skip
#define COUNT_LATE if :: !counted -> polls++; counted = 1 :: else fi
#else
#define COUNT_EARLY if :: !counted -> polls++; counted = 1 :: else fi
#define COUNT_LATE skip
#endif

#ifdef M_H6_ALL
#define LAST true
#else
#define LAST (was == 1)
#endif
#if defined(M_H6_NO_LOOK) || defined(M_H6_ALL)
#define CAME false
#else
#define CAME polls
#endif
#ifdef M_H6_FOR_HIM
#define WAKE ask = 1; hints++
#else
#define WAKE hints++
#endif

/* One that has asked ends. */
inline ends()
{
#ifdef M_H6_TOGETHER
	was = polls;
	polls--;
#else
	d_step { was = polls; polls-- };
#endif
	if
	:: LAST ->
		ask = 0;
		if
		:: CAME -> WAKE
		:: else
		fi
	:: else
	fi;
	was = 0
}

inline over()
{
	d_step {
		ended++;
		assert(ended < 2 || !ask)
	}
}

active proctype poller()
{
	byte noted, seen, was;
	bit counted;

next:
	do
	:: word > seen -> seen = word
	:: word == seen && seen == NEWS -> goto out
	:: word == seen && seen < NEWS -> break
	od;
	noted = hints;
	COUNT_EARLY;
	ask = 1;
	if
	:: word > seen -> goto next
	:: else
	fi;
	COUNT_LATE;
	do
	:: hints != noted -> break
	:: d_step { given -> given-- }; hints++
	od;
	goto next;
out:
	if
	:: counted -> ends()
	:: else
	fi;
	over()
}

active proctype other()
{
	byte n, was;

	do
	:: n < 2 ->
		polls++;
		ask = 1;
		ends();
		n++
	:: n == 2 -> break
	od;
	over()
}
