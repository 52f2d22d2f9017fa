/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What crosses the bus between kernels and the CPU's proxy: layouts only, no code that orders anything (dev/order.h
 * does). docs/bus.md is the protocol; tests/model is its model. Fixed widths, natural alignment, little endian.
 *
 * A cell is 8 bytes: bits 0-7 a tag, bits 8-63 seven bytes of payload. One store writes a cell and one load reads it, so
 * a cell is never torn, and a tag that does not fit says that the cell is not (yet) part of what is being read.
 */
#ifndef GPUNET_DEV_ABI_BUS_H
#define GPUNET_DEV_ABI_BUS_H

#include <stdint.h>

#define GNET_CELLS 16u
#define GNET_CELL_DATA 7u
/* Stream bytes that ride in an entry or a status line: cells 1..15. */
#define GNET_INLINE_MAX 105u
/* Unsent bytes that a socket without a send segment may have, all sent inline. Power of two. */
#define GNET_MINI_BYTES 4096u

/* ---- submission queue: kernel to proxy -------------------------------------------------------------------------- */

struct gnet_sqe {
	uint64_t cell[GNET_CELLS];
};

/* Tag of the entry at queue position `pos` in a queue of 2^log2 entries: 1..255, changes with every lap. */
#define GNET_SQ_TAG(pos, log2) ((uint8_t)(1u + (uint8_t)(((pos) >> (log2)) % 255u)))

/* Cell 0: op 8 | fd 31 | len 7 | spare 10 (above the tag). */
#define GNET_SQE0_OP_SHIFT 8
#define GNET_SQE0_FD_SHIFT 16
#define GNET_SQE0_LEN_SHIFT 47

enum gnet_op {
	GNET_OP_NOP = 0,       /* fills a reserved entry whose caller gave up */
	GNET_OP_SEND = 1,      /* len bytes of the stream in cells 1..15 */
	GNET_OP_TX = 2,        /* cell 1: the send ring's tail is now this position */
	GNET_OP_TX_DETACH = 3, /* the send segment goes back when all of it is sent */
	GNET_OP_GAVE_UP = 4,   /* a struct gnet_gave_up was written */
	/* Commands: cell 1 = call 16 | call tag 16 | a 24, cell 2 = b 56; answered in gnet_call.reply. */
	GNET_OP_FIRST_COMMAND = 16,
	GNET_OP_SOCKET = 16, /* a: domain 8 | type 8 | protocol 8; reply: fd */
	GNET_OP_BIND = 17,   /* a: address length; arg: address */
	GNET_OP_LISTEN = 18, /* b: backlog */
	GNET_OP_CONNECT =
		19, /* a: address length; b: 1 if it may wait for a listener's backlog; arg: address; reply: 0,
				  -EINPROGRESS (the line will tell), or an error */
	GNET_OP_SHUTDOWN = 20, /* a: SHUT_RD, SHUT_WR, SHUT_RDWR */
	GNET_OP_CLOSE =
		21, /* b: listeners: connections claimed so far; reply: 0, -ETIMEDOUT, or -EINPROGRESS (the line will tell, then again) */
	GNET_OP_GETSOCKNAME = 23, /* reply: address length; arg: address */
	GNET_OP_GETPEERNAME = 24,
	GNET_OP_TX_ATTACH =
		25,          /* gives the socket a send segment; reply: its number | GNET_TX_ONCE */
	GNET_OP_SETOPT = 32, /* b: GNET_OPT; arg: value */
	GNET_OP_GETOPT = 33, /* b: GNET_OPT, its length the room; reply: length; arg: value */
	GNET_OP_GETADDRINFO =
		34, /* a: 1: node, 2: service; arg: struct gnet_lookup; reply: results, in arg; -EBUSY: too many at a time */
	GNET_OP_COUNT = 64
};

/* An option: level 16, name 16, length 16. */
#define GNET_OPT(level, name, len) \
	((uint64_t)(level) | (uint64_t)(name) << 16 | (uint64_t)(len) << 32)
#define GNET_OPT_LEVEL(b) ((int)((b)&0xffff))
#define GNET_OPT_NAME(b) ((int)((b) >> 16 & 0xffff))
#define GNET_OPT_LEN(b) ((uint32_t)((b) >> 32 & 0xffff))

/* With a segment's number: segments are scarce, it is for this call only (T6). */
#define GNET_TX_ONCE 0x1000000u
#define GNET_TX_SEG_MASK 0xffffffu

/* In a segment's number: it lies in the device's memory, which the CPU does not touch. Such a segment's bytes are never inline: a
 * socket that sends from one sends by the ring only (T7), and receives into one by the ring only (R8). */
#define GNET_SEG_NEAR 0x800000u

/* Flag of a kick's queue number: no entry, but a head has moved. */
#define GNET_KICK_ROOM 0x80000000u

/* The position up to which the proxy has copied entries out; one a queue. */
struct gnet_sq_head {
	uint64_t pos;
	uint64_t pad[15];
};

/* ---- calls: a command's argument and its answer ------------------------------------------------------------------ */

#define GNET_CALL_ARG 448u

/* A caller owns a call from allocation to its reply. reply: tag 16 | value 48, signed. */
struct gnet_call {
	uint64_t reply;
	uint64_t pad[7];
	uint8_t arg[GNET_CALL_ARG];
};

/* GNET_OP_GETADDRINFO: what to look up, the texts each with a zero at its end. Results: GNET_ADDRINFO_MAX of abi/socket.h. */
struct gnet_lookup {
	int32_t flags, family, socktype, protocol;
	char text[GNET_CALL_ARG - 16];
};

/* ---- a socket's shared record ------------------------------------------------------------------------------------ */

/*
 * Status line, written by the proxy thread that owns the socket only.
 *
 * Stream: cell 0 = tag 8 | flags 8 | inline 7 | tail 41 (receive position, modulo 2^41). inline > 0: cells 1..15 hold
 * the `inline` bytes before tail; those whose tag equals cell 0's are valid, the others are read from the ring. inline
 * = 0: cell 1 = tag 8 | segment 24 | tail 24, valid if its tag and its 24 bits of tail equal cell 0's.
 * Listener: cell 0 as above without tail; cells 1..15 are the accept ring: connection number p sits in cell 1 + p % 15
 * with tag GNET_ACCEPT_TAG(p), its descriptor in the payload.
 */
struct gnet_line {
	uint64_t cell[GNET_CELLS];
};

#define GNET_LINE_FLAGS_SHIFT 8
#define GNET_LINE_INLINE_SHIFT 16
#define GNET_LINE_TAIL_SHIFT 23
#define GNET_LINE_TAIL_BITS 41
#define GNET_LINE_TAIL_MASK ((UINT64_C(1) << GNET_LINE_TAIL_BITS) - 1)
#define GNET_LINE_SEG_SHIFT 8
#define GNET_LINE_TAIL24_SHIFT 32

#define GNET_LINE_EOF 1u        /* no byte follows tail */
#define GNET_LINE_ERR 2u        /* the socket failed; the errno is in txw */
#define GNET_LINE_CONNECTING 4u /* a connect is under way */
#define GNET_LINE_CONNECTED 8u  /* it has succeeded */
#define GNET_LINE_GONE 16u      /* a gclose that lingers has come to its end */
#define GNET_LINE_HUP 32u       /* nothing goes either way any more; with EOF or ERR */
#define GNET_LINE_BROKEN 64u    /* it failed after its end; the errno is in txw */

/* Tags of lines with inline bytes are 1..127 in turn, of those without 128..255, so that neither kind can be taken for
 * an older one of the other: see docs/bus.md. */
#define GNET_LINE_TAG_INLINE_FIRST 1u
#define GNET_LINE_TAG_INLINE_LAST 127u
#define GNET_LINE_TAG_RING_FIRST 128u
#define GNET_LINE_TAG_RING_LAST 255u

/* A segment is at most half of what 24 bits of tail can tell apart. */
#define GNET_SEG_LOG2_MAX 23u

#define GNET_ACCEPT_RING 15u
#define GNET_ACCEPT_TAG(p) ((uint8_t)(1u + (uint8_t)(((p) / GNET_ACCEPT_RING) % 255u)))

/* txw: bytes the proxy has taken from the send ring, modulo 2^48; last errno 8; number of errors so far, modulo 256, 8 */
#define GNET_TXW_POS_MASK ((UINT64_C(1) << 48) - 1)
#define GNET_TXW_ERR_SHIFT 48
#define GNET_TXW_ERRS_SHIFT 56

struct gnet_sock_bus {
	struct gnet_line line; /* proxy writes */
	uint64_t txw;          /* proxy writes */
	uint64_t
		tx_tail; /* proxy writes, for diagnosis: position up to which kernels have handed bytes over */
	uint64_t pad0[6];
	uint64_t
		head; /* kernel writes: receive position consumed, or connections claimed; the proxy
				  resets it before it gives the descriptor out */
	/*
	 * Kernels write, rule H1: GNET_WAIT of the call that holds this side and has waited long; of a gpoll that has, its block. The
	 * proxy takes it away when it gives the hint that is asked for.
	 */
	uint64_t waits[3]; /* GNET_WAIT_RX, GNET_WAIT_TX, GNET_WAIT_POLL */
	uint64_t pad1[4];
};

/* 0: none, or block + 1 in the lower half and the position's lower half: the wait is over when the position is another one,
 * so that its end costs no store. */
#define GNET_WAIT_RX 0
#define GNET_WAIT_TX 1
#define GNET_WAIT_POLL 2 /* without a position */
#define GNET_WAIT(block, pos) ((uint64_t)(uint32_t)(pos) << 32 | ((uint32_t)(block) + 1u))
#define GNET_WAIT_BLOCK(w) ((uint32_t)(w)-1u)
#define GNET_WAIT_POS(w) ((uint32_t)((w) >> 32))

/*
 * ---- long waits: who waits now, and waits that gave up; for those who look (docs/bus.md) ----------------------------
 */

/* What a block waits in. */
enum gnet_wait_call {
	GNET_W_NONE = 0,
	GNET_W_RECV = 1,
	GNET_W_SEND = 2,
	GNET_W_ACCEPT = 3,
	GNET_W_CONNECT = 4,
	GNET_W_CLOSE = 5,     /* for the other calls on the socket, or while it lingers */
	GNET_W_POLL = 6,      /* fd: the first socket; n: how many */
	GNET_W_COMMAND = 7,   /* n: enum gnet_op */
	GNET_W_RECV_SIDE = 8, /* for a receiver's turn, since another call has the direction */
	GNET_W_SEND_SIDE = 9,
	GNET_W_CALLS = 10, /* for one of the network's calls to be free */
	GNET_W_COUNT = 11
};

/*
 * A long wait that is not in gnet_sock_bus.waits, of block number `block` in entry block % GNET_TOLD of a table. `what` is stored
 * last when it begins, and 0 when it ends.
 */
#define GNET_TOLD 1024u

struct gnet_told {
	uint64_t what;  /* call 8 | n 24 | fd 32, 0: none */
	uint64_t block; /* in its grid */
	uint64_t since; /* gnet_time_ns */
	uint64_t pad;
};

#define GNET_TOLD_WHAT(call, n, fd) \
	((uint64_t)(call) | (uint64_t)((n)&0xffffffu) << 8 | (uint64_t)(uint32_t)(fd) << 32)
#define GNET_TOLD_CALL(w) ((uint32_t)((w)&0xff))
#define GNET_TOLD_N(w) ((uint32_t)((w) >> 8 & 0xffffff))
#define GNET_TOLD_FD(w) ((int)((w) >> 32))

/*
 * A long wait that ended without what it waited for. Record number p, counted from 0, is entry p % GNET_GAVE_UPS; all cells have its
 * tag. Payloads: 0: call 8 | errno 8 | flags of the line 8 | n 24; 1: block 32; 2: fd 32; 3: nanoseconds waited; 4: bytes received and
 * unread; 5: bytes handed over and unsent; 6: entries in the queue that the proxy had not taken; 7: 0.
 */
#define GNET_GAVE_UPS 64u
#define GNET_GAVE_UP_CELLS 8u
#define GNET_GAVE_UP_TAG(p) ((uint8_t)(1u + (uint8_t)(((p) / GNET_GAVE_UPS) % 255u)))

struct gnet_gave_up {
	uint64_t cell[GNET_GAVE_UP_CELLS];
};

/* ---- stamps of hops, with option hops; one a socket, for those who look (docs/bus.md) ------------------------------ */

/* Kernels write both: the low bits of a position, and when (gnet_time_ns). 0: not since the socket was made. */
struct gnet_hops {
	uint64_t seen;   /* everything up to this receive position was taken */
	uint64_t stored; /* everything up to this send position was handed over */
	uint64_t pad[6];
};

#define GNET_HOP_TIME_BITS 48
#define GNET_HOP(pos, ns) \
	((uint64_t)(pos) << GNET_HOP_TIME_BITS | ((ns) & ((UINT64_C(1) << GNET_HOP_TIME_BITS) - 1)))
#define GNET_HOP_IS_AT(h, pos) (((h) >> GNET_HOP_TIME_BITS) == ((uint64_t)(pos)&0xffff))
#define GNET_HOP_TIME(h) ((h) & ((UINT64_C(1) << GNET_HOP_TIME_BITS) - 1))

/*
 * ---- datagrams: records in the same rings ---------------------------------------------------------------------------
 *
 * This header, the address in addr_room bytes, `stored` bytes of the datagram, up to the next multiple of 16. A record
 * begins at a multiple of 16.
 */
struct gnet_dgram {
	uint32_t len; /* of the datagram; received: more than `stored` if it was cut */
	uint32_t stored;
	uint16_t addr_len;  /* 0: none */
	uint16_t addr_room; /* a multiple of 16 */
	uint32_t pad;
};

#define GNET_DGRAM_ADDR_MAX 112u

/* ---- hints: sockets on which something has changed for a call that waits long (docs/bus.md, rules H) --------------- */

#define GNET_NEWS_RING 64u
#define GNET_NEWS_TAG(p) ((uint8_t)(1u + (uint8_t)(((p) / GNET_NEWS_RING) % 255u)))

/* One a proxy thread. */
struct gnet_news {
	uint64_t cell[GNET_NEWS_RING]; /* proxy writes: tag 8 | slot 32 */
	uint64_t head;                 /* kernels write: hints taken; no more than the truth */
	uint64_t pad[15];
};

/* ---- control line ------------------------------------------------------------------------------------------------ */

struct gnet_ctl {
	uint64_t
		stop; /* 0, or the errno with which every wait ends: ECANCELED (abort), EIO (the proxy died) */
	uint64_t pad[15];
};

/* ---- descriptors -------------------------------------------------------------------------------------------------- */

/* A descriptor is a slot number and the generation of its use (1..2047), so that a stale one is -EBADF. */
#define GNET_SLOT_BITS 20
#define GNET_SLOT_MAX (1u << GNET_SLOT_BITS)
#define GNET_GEN_MAX 2047u
#define GNET_FD(slot, gen) ((int)((slot) | ((uint32_t)(gen) << GNET_SLOT_BITS)))
#define GNET_FD_SLOT(fd) ((uint32_t)(fd) & (GNET_SLOT_MAX - 1u))
#define GNET_FD_GEN(fd) ((uint32_t)(fd) >> GNET_SLOT_BITS)

#endif
