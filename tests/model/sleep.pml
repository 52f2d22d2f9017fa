/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeping (Z1..Z3). The proxy serves a queue and receives from socket A; its sleep mark, the
 * kernel's heads and the wake-up of its event descriptor are modelled whole, the queue and the line
 * each by one word (queue.pml and line.pml are about them). The peer sends TOTAL bytes on A, each
 * as soon as the host's buffer has room, and then something on socket B. The kernel takes bytes of
 * A, one or all that it knows of, stops where the rest finds room on the way, and waits for B; at
 * some point it submits an entry and waits for its answer. Another thread of the host orders
 * something of the proxy.
 *
 * Checked: nobody waits for ever.
 *
 * VARIANT no_segment: -DNO_SEGMENT no ring: the proxy waits until all of a private copy is consumed
 * VARIANT gpu: -DGPU nobody is woken; a sentinel looks at the queue, a sleep for room is short
 * VARIANT gpu_no_segment: -DGPU -DNO_SEGMENT both
 * MUTANT Z1_LOAD: the kernel loads the mark, and exchanges it only if it is set
 * MUTANT Z1_STORE: the proxy stores the mark
 * MUTANT Z1_NO_LOOK: the proxy does not look at its queue again
 * MUTANT Z1_NO_ORDERS: it does not look again at what other threads order
 * MUTANT Z1_KICK_FIRST: the kernel exchanges the mark before it submits
 * MUTANT Z2_NO_SENTINEL: nobody looks for the GPU; under GPU
 * MUTANT Z2_ONCE: the sentinel looks at a sleep only once; under GPU
 * MUTANT Z3_NO_KICK: the kernel does not look at the mark when it has published a head
 * MUTANT Z3_LOAD: it looks by a load
 * MUTANT Z3_NO_LIST: the mark never says that the proxy waits for room
 * MUTANT Z3_NO_LOOK: the proxy does not look at the heads again
 * MUTANT Z3_LONG_SLEEP: waiting for room the proxy sleeps on; under GPU
 * MUTANT Z3_PART: the kernel looks at the mark for the first room only, not for all; under NO_SEGMENT
 * MUTANT Z3_LAZY_HEAD: the kernel waits without having published its head; under NO_SEGMENT
 */
#define RING 2
#define TOTAL 5
/* What the kernel must have taken before the peer can be done with A. */
#ifdef NO_SEGMENT
#define KBUF 2
#define NEEDED TOTAL
#else
#define KBUF 1
#define NEEDED (TOTAL - RING - KBUF)
#endif

#define TAIL 0
#define HEAD 1
#define ENTRY 2
#define ANSWER 3
#define READY_B 4
#define MARK 5
#define ORDER 6
#define WORDS 7
#define SB 3

#define AWAKE 0
#define ASLEEP 1
#define ASLEEP_FOR_ROOM (ASLEEP + 1)

#include "memory.pmh"

buffer p, k, o;
active proctype bus_p() { BUS(p) }
active proctype bus_k() { BUS(k) }
active proctype bus_o() { BUS(o) }

byte host_a;       /* bytes in the host's buffer of A */
bit host_b;        /* something came on B */
bit event;         /* the proxy's event descriptor */
bit kernel_done;

active proctype peer()
{
	byte i;

	do
	:: i < TOTAL -> d_step { host_a < KBUF -> host_a++; i++ }
	:: else -> break
	od;
	host_b = 1
}

/* ---- the kernel ---- */

inline wake(b)
{
#ifdef M_Z1_LOAD
	if
	:: mem[MARK] == AWAKE
	:: else -> atomic { drained(b) -> mem[MARK] = AWAKE; event = 1 }
	fi
#else
	atomic {
		drained(b) ->
		if
		:: mem[MARK] == AWAKE
		:: else -> mem[MARK] = AWAKE; event = 1
		fi
	}
#endif
}

inline submit()
{
#ifdef GPU
	store(k, ENTRY, 1)
#else
#ifdef M_Z1_KICK_FIRST
	wake(k);
	store(k, ENTRY, 1)
#else
	store(k, ENTRY, 1);
	wake(k)
#endif
#endif
}

inline publish()
{
	store_release(k, HEAD, head);
#ifndef GPU
#ifdef M_Z3_PART
	if
	:: rung == tail + 1
	:: else -> rung = tail + 1; wake_for_room()
	fi
#else
	wake_for_room()
#endif
#endif
}

inline wake_for_room()
{
#ifdef M_Z3_NO_KICK
	skip
#else
#ifdef M_Z3_LOAD
	if
	:: mem[MARK] != ASLEEP_FOR_ROOM
	:: else -> atomic { drained(k) -> mem[MARK] = AWAKE; event = 1 }
	fi
#else
	/* a read-modify-write even where it changes nothing */
	atomic {
		drained(k) ->
		if
		:: mem[MARK] == ASLEEP_FOR_ROOM -> mem[MARK] = AWAKE; event = 1
		:: else
		fi
	}
#endif
#endif
}

inline take_a(until)
{
	do
	:: head < until ->
		mem[TAIL] > head;
		tail = mem[TAIL];
		do
		:: head < tail && head < until ->
			head++;
			if
#ifdef M_Z3_LAZY_HEAD
			:: head % RING == 0 || head == until -> publish()
			:: head % RING && head < until
#else
			:: publish()
			:: head < tail && head < until
#endif
			fi
		:: !(head < tail && head < until) -> break
		od
	:: else -> break
	od
}

active proctype kernel()
{
	byte head, tail;
	bit early;
#ifdef M_Z3_PART
	byte rung;
#endif

	if
	:: submit(); early = 1
	:: true
	fi;
	take_a(NEEDED);
	mem[READY_B] == 1;
	if
	:: !early -> submit()
	:: early
	fi;
	mem[ANSWER] == 1;
	take_a(TOTAL);
	kernel_done = 1
}

/* ---- another thread of the host ---- */

bit ordered;

active proctype other()
{
	store(o, ORDER, 1);
	wake(o);
	ordered
}

/* ---- the proxy ---- */

#ifdef NO_SEGMENT
#define ROOM (mem[HEAD] == tail)
#else
#define ROOM (tail - mem[HEAD] < RING)
#endif

#ifdef GPU
#ifdef M_Z2_NO_SENTINEL
#define SENTINEL false
#else
#ifdef M_Z2_ONCE
bit looked;
#define SENTINEL (mem[ENTRY] > served && !looked)
active proctype sentinel()
{
end:	do
	:: mem[MARK] != AWAKE && !looked && mem[ENTRY] == 0 -> looked = 1
	:: mem[MARK] == AWAKE && looked -> looked = 0
	od
}
#else
#define SENTINEL (mem[ENTRY] > served)
#endif
#endif
#else
#define SENTINEL false
#endif

/* A GPU's proxy that waits for room sleeps no longer than the sentinel's period. */
#if defined(GPU) && !defined(M_Z3_LONG_SLEEP)
#define PERIOD wants
#else
#define PERIOD false
#endif

#define done (kernel_done && ordered)

active proctype proxy()
{
	byte tail, served;
	bit got_b, wants, again;

	do
	:: done -> break
	:: !done && mem[ENTRY] > served -> served = 1; store(p, ANSWER, 1)
	:: !done && mem[ORDER] && !ordered -> ordered = 1
	:: !done && host_b && !got_b -> got_b = 1; store(p, READY_B, 1)
	:: !done && host_a && ROOM ->
#ifdef NO_SEGMENT
		d_step { tail = tail + host_a; host_a = 0 };
#else
		d_step { tail++; host_a-- };
#endif
		store_release(p, TAIL, tail)
	:: !done && mem[ENTRY] == served && mem[ORDER] == ordered &&
	   host_b == got_b && !(host_a && ROOM) ->
		/* nothing to do. The list of those who wait for room: A, if its bytes do. */
		wants = !ROOM;
#ifdef M_Z1_STORE
		store(p, MARK, ASLEEP + wants);
#else
		atomic {
			drained(p) ->
#ifdef M_Z3_NO_LIST
			mem[MARK] = ASLEEP
#else
			mem[MARK] = ASLEEP + wants
#endif
		};
#endif
		again = 0;
#ifndef M_Z1_NO_LOOK
		again = (mem[ENTRY] > served);
#endif
#ifndef M_Z1_NO_ORDERS
		again = again | (mem[ORDER] > ordered);
#endif
#ifndef M_Z3_NO_LOOK
		again = again | (wants && ROOM);
#endif
		if
		:: again
		:: !again ->
			/* what is there wakes, but bytes of A do not while they have no room */
			if
			:: event -> event = 0
			:: host_a && !wants
			:: host_b && !got_b
			:: SENTINEL
			:: PERIOD && ROOM
			:: done
			fi
		fi;
		atomic { drained(p) -> mem[MARK] = AWAKE };
		d_step { wants = 0; again = 0 }
	od
}
