/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes of a receive ring that one block looks at and another takes (K1): a ring of two bytes, two blocks, each of which takes a byte or
 * only looks at it, by what it remembers of the side's word or by an acquire. A block's plain loads go through a cache of its
 * own, which an acquire empties and nothing else. Memory is in order here: rxside.pml is about that.
 *
 * Checked: each byte that is loaded is the one at that position, and nobody waits for ever.
 *
 * MUTANT K1_FOREIGN: who takes the side by what it remembers believes what another block has seen of the ring
 * MUTANT K1_NO_LOOK: or that a ring's worth is there
 */
#define N 6
#define HELD 64
#define EMPTY 255

byte ring[2], tail, head;
byte rx;      /* the side's word: HELD, the position */
byte rx_ring; /* up to where whoever looked last has seen bytes */

#define ACQUIRE d_step { l1[0] = EMPTY; l1[1] = EMPTY }
#define EARLIER(a, b) ((a) < (b) -> (a) : (b))
#ifdef M_K1_FOREIGN
#define MAY_LOAD rx_ring
#elif defined(M_K1_NO_LOOK)
#define MAY_LOAD (h + 2)
#else
#define MAY_LOAD EARLIER(seen, rx_ring)
#endif

active [2] proctype block()
{
	byte l1[2], h, known, seen;

	ACQUIRE;
again:
	do
	:: rx == N -> break
	:: rx != N ->
		if
		:: known ->
			if
			:: atomic { rx == known - 1 -> rx = HELD + rx }; h = known - 1; seen = MAY_LOAD
			:: rx != known - 1 -> known = 0; goto again
			fi
		:: !known ->
			if
			:: rx == N -> break
			:: atomic { rx < N -> h = rx; rx = HELD + rx }; ACQUIRE; seen = rx_ring
			fi
		fi;
		if
		:: seen > h
		:: else -> seen = tail; ACQUIRE;
			if
			:: seen > h -> rx_ring = seen
			:: else
			fi
		fi;
		if
		:: seen > h ->
			if
			:: l1[h % 2] == EMPTY -> l1[h % 2] = ring[h % 2]
			:: else
			fi;
			assert(l1[h % 2] == h);
			if
			:: h++; head = h
			:: true /* a peek */
			fi
		:: else
		fi;
		atomic { rx = h; known = 1 + h; h = 0 }
	od
}

active proctype proxy()
{
	do
	:: tail < N && tail - head < 2 -> ring[tail % 2] = tail; tail++
	:: tail == N -> break
	od
}
