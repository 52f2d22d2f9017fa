/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Status line and receive ring (R1..R7): one proxy that receives N bytes and then sees the end or
 * an error, one reader. The line has three cells, so at most two inline bytes; two inline tags, two
 * ring tags; a tail modulo 4; two segments of two bytes, which belong to another socket as soon as
 * they are detached. The reader loads the cells one by one in any order, takes one byte or all, and
 * reads what it knows to be in the ring without looking at the line.
 *
 * Checked: the bytes come once and in order, the end (or the errno) after the last of them, and
 * nobody waits for ever.
 *
 * VARIANT errors: -DERRORS fewer bytes, but the connection may fail at any point
 * VARIANT abort: -DABORT the proxy dies at any point, the control line says so
 * MUTANT R1_NO_HEAD: inline though the reader's head is not the tail
 * MUTANT R1_SAME_TAG: the inline tag does not change
 * MUTANT R1_RELAXED: cell 0 without release: a cell that was not needed may be two lines old
 * MUTANT R1_PARTIAL: only the cells with bytes are rewritten; under LONG
 * MUTANT R1_NO_RING: inline bytes are not put into the ring though there is a segment
 * MUTANT R2_RELAXED: cell 0 without release
 * MUTANT R2_NO_COPY: the private copy is left behind when a segment is attached
 * MUTANT R2_NO_CELL1: cell 1 is not rewritten
 * MUTANT R2_SHARED_TAGS: ring lines count their tags among those of inline lines
 * MUTANT R3_NEW_TAG: a change of flags takes a new tag; under ERRORS
 * MUTANT R3_NO_INLINE: a change of flags writes inline = 0; under ERRORS
 * MUTANT R3_NO_ACQUIRE: the errno may be loaded before cell 0; under ERRORS
 * MUTANT R3_RELAXED: flags are stored without release, so the errno may come later; under ERRORS
 * MUTANT R4_NO_TAGS: the inline cells' tags are not looked at
 * MUTANT R4_TAG_ONLY: cell 1 is believed for its tag alone, though loaded in any order
 * MUTANT R4_NO_ACQUIRE: ring bytes may be loaded before cell 0
 * MUTANT R5_NO_ROOM: the proxy does not look at the head before it receives
 * MUTANT R5_EARLY_HEAD: the head is published (or stored without release) before the bytes are loaded
 * MUTANT R6_EOF: the end is returned as soon as its flag is seen
 * MUTANT R6_ERR: an error is returned as soon as its flag is seen; under ERRORS
 * MUTANT R7_NO_HEAD: a segment is detached though not all of it is consumed
 * MUTANT Z4_LINE: the wait for news does not look at the control line; under ABORT
 */
#ifdef LONG
#define N 5
#elif defined(ERRORS) || defined(ABORT)
#define N 3
#else
#define N 4
#endif
#define RING 2
#define MODULUS 4
#define GARBAGE 7

#define BYTE_OF(p) ((p) + 1)
#define IN_RING(s, p) (3 + ((s) - 1) * RING + (p) % RING)
#define HEAD 7
#define TXW 8
#define WORDS 9
#ifndef SB
#define SB 4
#endif

#define EOF 1
#define ERR 2
#define CELL0(tag, flags, inl, t) ((tag) + 8 * (flags) + 64 * (inl) + 256 * ((t) % MODULUS))
#define TAG_OF(c) ((c) & 7)
#define FLAGS_OF(c) (((c) >> 3) & 7)
#define INLINE_OF(c) (((c) >> 6) & 3)
#define TAIL_OF(c) (((c) >> 8) & 3)
#define TAIL_AT(c, h) ((h) + (TAIL_OF(c) + 2 * MODULUS - (h)) % MODULUS)
#define INLINE_CELL(tag, b) ((tag) + 8 * (b))
#define RING_CELL(tag, s, t) ((tag) + 8 * (s) + 256 * ((t) % MODULUS))
#define PAYLOAD_OF(c) (((c) >> 3) & 31)

bit changed; /* some store arrived since the reader began to load the line */
#define ON_STORE changed = 1
#include "memory.pmh"

buffer p, k;
bit stop;
byte last = N; /* where the stream ends */
active proctype bus_p() { BUS(p) }
active proctype bus_k() { end: do ARRIVE0(k) od }

#ifdef M_R1_RELAXED
#define store_inline_cell0(v) store(p, 0, v)
#else
#define store_inline_cell0(v) store_release(p, 0, v)
#endif
#ifdef M_R2_RELAXED
#define store_ring_cell0(v) store(p, 0, v)
#else
#define store_ring_cell0(v) store_release(p, 0, v)
#endif
#ifdef M_R3_RELAXED
#define store_flags(v) store(p, 0, v)
#else
#define store_flags(v) store_release(p, 0, v)
#endif

#define ITAG (1 + itag)
#ifdef M_R2_SHARED_TAGS
#define RTAG (1 + rtag)
#else
#define RTAG (3 + rtag)
#endif

inline put_inline(n)
{
#ifndef M_R1_SAME_TAG
	itag = 1 - itag;
#endif
	if
	:: seg == 0 -> own = n
	:: else ->
#ifndef M_R1_NO_RING
		store(p, IN_RING(seg, tail), BYTE_OF(tail));
		if
		:: n > 1 -> store(p, IN_RING(seg, tail + 1), BYTE_OF(tail + 1))
		:: else
		fi
#else
		skip
#endif
	fi;
	store(p, 1, INLINE_CELL(ITAG, BYTE_OF(tail)));
	if
	:: n > 1 -> store(p, 2, INLINE_CELL(ITAG, BYTE_OF(tail + 1)))
#ifdef M_R1_PARTIAL
	:: else
#else
	:: else -> store(p, 2, INLINE_CELL(ITAG, 0))
#endif
	fi;
	d_step { tail = tail + n; inl = n };
	store_inline_cell0(CELL0(ITAG, 0, n, tail))
}

inline attach(s)
{
	d_step { seg = s; i = tail - own };
	do
	:: i < tail ->
#ifdef M_R2_NO_COPY
		i = tail
#else
		store(p, IN_RING(seg, i), BYTE_OF(i));
		i++
#endif
	:: else -> break
	od;
	atomic { i = 0; own = 0 }
}

inline put_ring(n)
{
	store(p, IN_RING(seg, tail), BYTE_OF(tail));
	if
	:: n > 1 -> store(p, IN_RING(seg, tail + 1), BYTE_OF(tail + 1))
	:: else
	fi;
	d_step { tail = tail + n; inl = 0; rtag = 1 - rtag };
#ifndef M_R2_NO_CELL1
	store(p, 1, RING_CELL(RTAG, seg, tail));
#endif
	store_ring_cell0(CELL0(RTAG, 0, 0, tail))
}

inline put_flags(f)
{
#ifdef M_R3_NEW_TAG
	if
	:: inl -> itag = 1 - itag
	:: else -> rtag = 1 - rtag
	fi;
#endif
	d_step {
		if
		:: inl -> tag = ITAG
		:: !inl && tail -> tag = RTAG
		:: else
		fi
	};
#ifdef M_R3_NO_INLINE
	store_flags(CELL0(tag, f, 0, tail));
#else
	store_flags(CELL0(tag, f, inl, tail));
#endif
	tag = 0
}

#ifdef M_R1_NO_HEAD
#define ALL_CONSUMED true
#else
#define ALL_CONSUMED (mem[HEAD] == tail)
#endif
#ifdef M_R5_NO_ROOM
#define ROOM(n) true
#else
#define ROOM(n) (tail + n - mem[HEAD] <= RING)
#endif
#ifdef M_R7_NO_HEAD
#define MAY_DETACH true
#else
#define MAY_DETACH (mem[HEAD] == tail)
#endif

active proctype proxy()
{
	byte tail, seg, old = 2, own, inl, i, tag;
	byte fin; /* flags */
	bit itag, rtag;

end:	do
	:: !fin && tail + 1 <= N && ALL_CONSUMED -> put_inline(1)
	:: !fin && tail + 2 <= N && ALL_CONSUMED -> put_inline(2)
	:: !fin && tail + 1 <= N && seg && ROOM(1) -> put_ring(1)
	:: !fin && tail + 2 <= N && seg && ROOM(2) -> put_ring(2)
	:: !fin && tail + 1 <= N && !seg && ROOM(1) ->
		/* what is not consumed of a private copy must be copied; all of it may be */
		attach(3 - old);
		put_ring(1)
	:: seg && MAY_DETACH ->
		store(p, IN_RING(seg, 0), GARBAGE);
		store(p, IN_RING(seg, 1), GARBAGE);
		d_step { old = seg; seg = 0 }
	:: tail == N && !fin -> fin = EOF; put_flags(fin)
#ifdef ERRORS
	:: !(fin & ERR) ->
		fin = fin | ERR;
		last = tail;
		store(p, TXW, 1);
		put_flags(fin)
#endif
#ifdef ABORT
	:: stop = 1; break
#endif
	od
}

inline publish()
{
#ifndef M_R5_EARLY_HEAD
	store_release(k, HEAD, head)
#else
	skip
#endif
}

inline before_loads(h)
{
#ifdef M_R5_EARLY_HEAD
	store_release(k, HEAD, h)
#else
	skip
#endif
}

#if defined(ABORT) && !defined(M_Z4_LINE)
#define WAIT_CHANGE if :: changed :: stop -> goto aborted fi
#else
#define WAIT_CHANGE changed
#endif

inline load_line()
{
	d_step { changed = 0; need = 7 };
	do
	:: need & 1 -> d_step { c0 = mem[0]; need = need & 6 }
	:: need & 2 -> d_step { c1 = mem[1]; need = need & 5 }
	:: need & 4 -> d_step { c2 = mem[2]; need = need & 3 }
	:: need == 0 -> break
	od
}

/* One inline byte: position head, in cell 1 or 2. */
inline take_inline()
{
	atomic {
		if
		:: first == head -> assert(PAYLOAD_OF(c1) == BYTE_OF(head))
		:: else -> assert(PAYLOAD_OF(c2) == BYTE_OF(head))
		fi;
		head++
	}
}

#ifdef M_R4_NO_TAGS
#define CELLS_FIT true
#else
#define CELLS_FIT ((first < head || TAG_OF(c1) == TAG_OF(c0)) && \
		   (end <= first + 1 || TAG_OF(c2) == TAG_OF(c0)))
#endif

active proctype reader()
{
	byte head, tail, seg; /* rx_head, rx_tail, rx_seg */
	byte need, first, end;
	short c0, c1, c2;
#ifdef M_R4_NO_ACQUIRE
	short early[4];
#endif
#ifdef M_R3_NO_ACQUIRE
	short early;
#endif

	do
	:: head < tail ->
		/* from the ring, without a look at the line */
		before_loads(head + 1);
		d_step { assert(mem[IN_RING(seg, head)] == BYTE_OF(head)); head++ };
		if
		:: publish()
		:: head < tail
		fi
	:: else ->
#ifdef M_R4_NO_ACQUIRE
		d_step {
			early[0] = mem[3];
			early[1] = mem[4];
			early[2] = mem[5];
			early[3] = mem[6]
		};
#endif
#ifdef M_R3_NO_ACQUIRE
		early = mem[TXW];
#endif
		load_line();
		atomic {
			end = TAIL_AT(c0, head);
			first = end - INLINE_OF(c0)
		};
#ifdef M_R6_EOF
		if
		:: FLAGS_OF(c0) & EOF -> break
		:: else
		fi;
#endif
#ifdef M_R6_ERR
		if
		:: FLAGS_OF(c0) & ERR -> break
		:: else
		fi;
#endif
		if
		:: end == head ->
			if
			:: FLAGS_OF(c0) & EOF -> break
			:: FLAGS_OF(c0) & ERR ->
#ifdef M_R3_NO_ACQUIRE
				assert(early == 1);
#else
				assert(mem[TXW] == 1);
#endif
				break
			:: else -> WAIT_CHANGE
			fi
		:: end > head && INLINE_OF(c0) ->
			if
			:: head >= first && CELLS_FIT ->
				before_loads(head + 1);
				take_inline();
				if
				:: head < end -> take_inline()
				:: true
				fi;
				publish()
			:: else -> WAIT_CHANGE
			fi
		:: end > head && !INLINE_OF(c0) ->
			if
#ifdef M_R4_TAG_ONLY
			:: TAG_OF(c1) == TAG_OF(c0) ->
#else
			:: TAG_OF(c1) == TAG_OF(c0) && TAIL_OF(c1) == TAIL_OF(c0) ->
#endif
				/* the acquire: of cell 0 as it was loaded, or of a newer one, which may have
				 * more bytes, and nothing else */
				if
				:: d_step { assert(INLINE_OF(mem[0]) == 0); c0 = mem[0] }
				:: true
				fi;
				d_step { tail = TAIL_AT(c0, head); seg = PAYLOAD_OF(c1) & 3 };
#ifdef M_R4_NO_ACQUIRE
				do
				:: head < tail ->
					assert(early[IN_RING(seg, head) - 3] == BYTE_OF(head));
					head++
				:: else -> break
				od;
				publish()
#endif
			:: else -> WAIT_CHANGE
			fi
		fi;
		d_step { c0 = 0; c1 = 0; c2 = 0; first = 0; end = 0 }
	od;
	assert(head == last);
aborted:
	skip
}
