/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two gpolls of one socket (H6): both use one word to ask for hints. One waits for news, the other gives up, twice. Accesses are in
 * order, and nobody looks for himself (H5), as in hint.pml, which has the rest of the rules.
 *
 * Checked: the one that waits sees all news.
 *
 * MUTANT H6_ALL: a gpoll that ends takes away what others ask for
 * MUTANT H6_NO_LOOK: the last one that asks does not look whether somebody has come meanwhile
 * MUTANT H6_NO_HINT: it does, and asks for him, but lets him sleep
 * MUTANT H6_LATE_COUNT: a gpoll counts itself when it has asked
 */
#define NEWS 3

byte word, given, hints, polls;
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

active proctype poller()
{
	byte noted, seen;
	bit counted;

next:
	do
	:: word > seen -> seen = word
	:: word == seen && seen == NEWS -> goto over
	:: word == seen && seen < NEWS -> break
	od;
	COUNT_EARLY;
	noted = hints;
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
over:
	skip
}

#if defined(M_H6_ALL)
#define LAST true
#define CAME false
#elif defined(M_H6_NO_LOOK)
#define LAST polls == 1
#define CAME false
#else
#define LAST polls == 1
#define CAME polls
#endif
#ifdef M_H6_NO_HINT
#define WAKE skip
#else
#define WAKE hints++
#endif

active proctype other()
{
	byte n;
	bit last;

	do
	:: n < 2 ->
		polls++;
		ask = 1;
		last = LAST;
		if
		:: last -> ask = 0
		:: else
		fi;
		polls--;
		if
		:: last && CAME -> ask = 1; WAKE
		:: else
		fi;
		last = 0;
		n++
	:: n == 2 -> break
	od
}
