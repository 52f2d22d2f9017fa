/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams (D2, D3): a host's socket with datagrams of one or two words in its queue, a receive ring of five words, a reader. A
 * record is a word of header, which says the datagram's number and length, and its words. The proxy tells of records
 * one by one or several at once, of a short one that is alone in the line as well. Memory is in order here: line.pml is about that.
 *
 * Checked: each datagram is received, whole and in order, and nobody waits for ever.
 *
 * MUTANT D1_NO_HEADER: the header is written after the tail is told
 * MUTANT D2_PART: the tail is told in the middle of a record
 * MUTANT D2_NOT_ALONE: a record rides in the line though one before it is not read
 * MUTANT D2_NO_RING: a record that rides in the line is not put into the ring
 * MUTANT D3_NO_LOOK: a datagram is taken though there is less room than it needs, and cut
 * MUTANT D3_HEADER: the room for the header is forgotten
 * MUTANT D3_NO_WAIT: when there is no room the proxy forgets the socket
 */
#define N 4
#define RING 5
#define LEN(i) (((i) == 1 || (i) == 2) -> 2 : 1) /* words of datagram i */
#define HEADER(i) (16 + 2 * (i) + LEN(i) - 1)
#define WORD(i, k) (1 + 2 * (i) + (k))

byte ring[RING], head, tail, in_line; /* in_line: words of the record that the line holds, with its header */
byte line[2];

#define PUT(p, v) ring[(p) % RING] = v

active proctype proxy()
{
	byte i, at, room;

	do
	:: i < N ->
		room = RING - (at - head);
#ifdef M_D3_NO_LOOK
		if
		:: room >= 2
		:: else -> goto wait
		fi;
#elif defined(M_D3_HEADER)
		if
		:: room >= LEN(i)
		:: else -> goto wait
		fi;
#else
		if
		:: room >= 1 + LEN(i)
		:: else -> goto wait
		fi;
#endif
#ifndef M_D1_NO_HEADER
		PUT(at, HEADER(i));
#endif
#ifdef M_D2_NO_RING
		if
		:: LEN(i) == 1 && head == at
		:: else -> PUT(at + 1, WORD(i, 0))
		fi;
#else
		PUT(at + 1, WORD(i, 0));
#endif
#ifdef M_D2_PART
		d_step { in_line = 0; tail = at + 1 };
#endif
		if
		:: LEN(i) == 2 && room > 2 -> PUT(at + 2, WORD(i, 1))
		:: else
		fi;
		at = at + 1 + (LEN(i) == 2 && room > 2 -> 2 : 1);
		if
#ifdef M_D2_NOT_ALONE
		:: LEN(i) == 1 ->
#else
		:: LEN(i) == 1 && head == at - 2 ->
#endif
			d_step { line[0] = HEADER(i); line[1] = WORD(i, 0); in_line = 2; tail = at }
		:: d_step { in_line = 0; tail = at }
		:: i + 1 < N && RING - (at - head) >= 1 + LEN(i + 1) && tail == head ->
			skip /* the next one is there, too: both are told of at once */
		fi;
#ifdef M_D1_NO_HEADER
		PUT(at - 1 - LEN(i), HEADER(i));
#endif
		i++;
		goto next;
wait:
#ifdef M_D3_NO_WAIT
		break;
#else
		head != at + room - RING;
#endif
next:
		skip
	:: i == N -> break
	od
}

active proctype reader()
{
	byte i, h, n;

	do
	:: i < N ->
		tail != head;
		/* A line that begins behind the head is none that the reader understands (R4). */
		atomic {
			if
			:: in_line && tail == head + in_line -> h = line[0]; assert(line[1] == WORD(i, 0))
			:: !in_line -> h = ring[head % RING]
			fi
		};
		assert(h == HEADER(i));
		n = 1 + LEN(i);
		assert(tail - head >= n);
		if
		:: in_line && n == 2
		:: else ->
			assert(ring[(head + 1) % RING] == WORD(i, 0));
			if
			:: n == 3 -> assert(ring[(head + 2) % RING] == WORD(i, 1))
			:: else
			fi
		fi;
		head = head + n;
		i++
	:: i == N -> break
	od
}
