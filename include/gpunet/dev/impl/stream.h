/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes of a stream: receive by status line and ring, send by entry and ring (docs/bus.md, rules R and T).
 * The block's first warp ("lanes") decides and moves small messages; large ones are copied by all threads.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_STREAM_H
#define GPUNET_DEV_IMPL_STREAM_H

#include <gpunet/dev/abi/socket.h>
#include <gpunet/dev/impl/copy.h>
#include <gpunet/dev/impl/sock.h>

/* The most that one GNET_OP_TX announces: small enough that the proxy sends while the kernel copies on. */
#define GNET__TX_CHUNK (64u * 1024u)
/* Sends between two looks at the socket's error across the bus while there is room. */
#define GNET__TX_LOOK 16u

/* The one shared scratch of a block for all of gpunet. Written by the first warp or thread 0, read after a barrier. */
struct gnet__scratch {
	int64_t rc;     /* bytes of this step, 0: end of stream, or a negative errno */
	uint64_t at;    /* ring position, or first byte's index in the cells */
	uint64_t pos;   /* queue position of an entry that the lanes fill */
	uint64_t seg;   /* ring segment */
	uint32_t cells; /* the bytes are in cell[] */
	uint32_t again; /* lanes: another turn */
	int fail;       /* thread 0: the network ended while bytes were announced */
	struct gnet_sock *sk;
	uint64_t cell[GNET_CELLS];
};

/* ---- scopes: who takes part in a call ------------------------------------------------------------------------------ */

#define GNET__THREAD 0
#define GNET__WARP 1
#define GNET__BLOCK 2

struct gnet__scope {
	int kind;
	uint32_t tid;   /* this thread's number in the scope */
	uint32_t n;     /* threads of the scope */
	uint32_t lanes; /* the first of them, which are one warp */
	uint32_t mask;  /* their lane mask */
};

GNET_DEV uint32_t gnet__tid(void)
{
	return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

GNET_DEV struct gnet__scope gnet__scope_of(int kind)
{
	uint32_t tid = gnet__tid(), n = blockDim.x * blockDim.y * blockDim.z;
	struct gnet__scope sc;

	if (kind == GNET__THREAD) {
		tid = 0;
		n = 1;
	} else if (kind == GNET__WARP) {
		n -= tid & ~31u;
		n = n < 32 ? n : 32;
		tid &= 31u;
	}
	sc.kind = kind;
	sc.tid = tid;
	sc.n = n;
	sc.lanes = n < 32 ? n : 32;
	sc.mask = sc.lanes == 32 ? 0xffffffffu : (1u << sc.lanes) - 1u;
	return sc;
}

/* Barrier of the whole scope, and of its lanes. */
GNET_DEV void gnet__sync(struct gnet__scope sc)
{
	if (sc.kind == GNET__BLOCK)
		__syncthreads();
	else if (sc.kind == GNET__WARP)
		__syncwarp(sc.mask);
}

GNET_DEV void gnet__sync_lanes(struct gnet__scope sc)
{
	if (sc.kind != GNET__THREAD)
		__syncwarp(sc.mask);
}

GNET_DEV struct gnet__scratch *gnet__block_scratch(void)
{
	__shared__ struct gnet__scratch s;

	return &s;
}

/* A warp's own scratch; only kernels that use calls of warp scope have this memory. */
GNET_DEV struct gnet__scratch *gnet__warp_scratch(void)
{
	__shared__ struct gnet__scratch s[32];

	return &s[gnet__tid() / 32];
}

/* Copies between a ring and a buffer, by all threads of the scope. */
GNET_DEV void gnet__ring_read(struct gnet__scope sc, gnet_t *net, uint64_t seg, uint64_t pos,
			      uint8_t *dst, uint64_t n)
{
	uint64_t size = (uint64_t)1 << net->seg_log2, off = pos & (size - 1);
	const uint8_t *ring = net->slab + (seg << net->seg_log2);
	uint64_t first = n < size - off ? n : size - off;

	gnet__copy(dst, ring + off, first, sc.tid, sc.n);
	if (n > first)
		gnet__copy(dst + first, ring, n - first, sc.tid, sc.n);
}

GNET_DEV void gnet__ring_write(struct gnet__scope sc, gnet_t *net, uint64_t seg, uint64_t pos,
			       const uint8_t *src, uint64_t n)
{
	uint64_t size = (uint64_t)1 << net->seg_log2, off = pos & (size - 1);
	uint8_t *ring = net->slab + (seg << net->seg_log2);
	uint64_t first = n < size - off ? n : size - off;

	gnet__copy(ring + off, src, first, sc.tid, sc.n);
	if (n > first)
		gnet__copy(ring, src + first, n - first, sc.tid, sc.n);
}

/* ---- receive ---------------------------------------------------------------------------------------------------------- */

/* The position that a line's 41 bits mean: the one at or after `head` that is nearest. */
GNET_DEV uint64_t gnet__line_tail(uint64_t cell0, uint64_t head)
{
	return head + (((cell0 >> GNET_LINE_TAIL_SHIFT) - head) & GNET_LINE_TAIL_MASK);
}

/* R4, bytes in cells: `need` bytes from index `first` on are valid if their cells carry cell 0's tag. */
GNET_DEV int gnet__cells_valid(const uint64_t *cell, uint64_t first, uint64_t need)
{
	uint64_t i, last = 1 + (first + need - 1) / GNET_CELL_DATA;

	for (i = 1 + first / GNET_CELL_DATA; i <= last; i++) {
		if ((cell[i] ^ cell[0]) & 0xff)
			return 0;
	}
	return 1;
}

/* R4, bytes in the ring: cell 1 names their segment if its tag and its part of the tail are cell 0's. */
GNET_DEV int gnet__cell1_valid(uint64_t c1, uint64_t c0)
{
	return !((c1 ^ c0) & 0xff) &&
	       !((c1 >> GNET_LINE_TAIL24_SHIFT ^ c0 >> GNET_LINE_TAIL_SHIFT) & 0xffffff);
}

/* Nothing to read: the end, an error, or another turn. Sets s->rc when it returns 0. */
GNET_DEV uint32_t gnet__recv_idle(gnet_t *net, int fd, struct gnet__scratch *s, uint32_t lflags,
				  int dontwait, uint64_t *turn)
{
	struct gnet_sock *sk = s->sk;

	if (lflags & GNET_LINE_ERR)
		s->rc = gnet__sock_error(net, fd, sk, 0);
	else if (lflags & GNET_LINE_EOF)
		s->rc = 0;
	else if (dontwait)
		s->rc = -GNET__EAGAIN;
	else {
		s->rc = gnet__sock_spin(net, sk, turn);
		return !s->rc;
	}
	return 0;
}

/* Looks at a line that the lanes have loaded into s->cell: 0 when s->rc is decided, 1 for another turn. */
GNET_DEV uint32_t gnet__recv_look(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t len,
				  int dontwait, uint64_t *turn)
{
	struct gnet_sock *sk = s->sk;
	struct gnet_line *line = &net->bus[GNET_FD_SLOT(fd)].line;
	uint64_t c0 = s->cell[0], head = sk->rx_head, avail = gnet__line_tail(c0, head) - head;
	uint32_t lflags = (uint32_t)(c0 >> GNET_LINE_FLAGS_SHIFT) & 0xff;
	uint64_t in = c0 >> GNET_LINE_INLINE_SHIFT & 0x7f, n;

	if (!avail)
		return gnet__recv_idle(net, fd, s, lflags, dontwait, turn);
	n = avail < len ? avail : len;
	if (in >= avail && gnet__cells_valid(s->cell, in - avail, n)) {
		s->cells = 1;
		s->at = in - avail;
		s->rc = (int64_t)n;
		return 0;
	}
	if (!in && gnet__cell1_valid(s->cell[1], c0)) {
		/* While bytes wait in the ring the segment stays, so a newer cell 0 only adds bytes. */
		c0 = gnet_sys_load_acquire(&line->cell[0]);
		sk->rx_tail = gnet__line_tail(c0, head);
		sk->rx_seg = s->cell[1] >> GNET_LINE_SEG_SHIFT & 0xffffff;
		avail = sk->rx_tail - head;
		s->cells = 0;
		s->at = head;
		s->seg = sk->rx_seg;
		s->rc = (int64_t)(avail < len ? avail : len);
		return 0;
	}
	s->rc = gnet__sock_spin(net, sk, turn); /* the line is being rewritten */
	return !s->rc;
}

/* Thread 0: enters, checks and takes the receive side; on failure there is no s->sk. */
GNET_DEV int gnet__recv_begin(gnet_t *net, int fd, struct gnet__scratch *s, int flags)
{
	const int known = GNET_MSG_PEEK | GNET_MSG_DONTWAIT | GNET_MSG_WAITALL | GNET_MSG_NOSIGNAL;
	int rc;

	s->sk = 0;
	if (flags & ~known)
		return -GNET__EOPNOTSUPP;
	rc = gnet__enter(net, fd, GNET_L_RX, GNET_L_CONNECTED, -GNET__ENOTCONN,
			 flags & GNET_MSG_DONTWAIT);
	if (!rc)
		s->sk = gnet__slot(net, fd);
	return rc;
}

/* Thread 0: takes bytes that are known to lie in the ring without a look across the bus: 0 if there are, 1 if not. */
GNET_DEV uint32_t gnet__recv_known(struct gnet__scratch *s, uint64_t len)
{
	struct gnet_sock *sk = s->sk;
	uint64_t known = sk->rx_tail > sk->rx_head ? sk->rx_tail - sk->rx_head : 0;

	s->rc = 0;
	if (!len)
		return 0;
	if (!known)
		return 1;
	s->cells = 0;
	s->at = sk->rx_head;
	s->seg = sk->rx_seg;
	s->rc = (int64_t)(known < len ? known : len);
	return 0;
}

/* Lanes: waits until this step's bytes, end or error are known (in the scratch). `first`: begins the call. */
GNET_DEV void gnet__recv_plan(struct gnet__scope sc, gnet_t *net, int fd, struct gnet__scratch *s,
			      uint64_t len, int flags, int first)
{
	struct gnet_line *line = &net->bus[GNET_FD_SLOT(fd) % net->max_socks].line;
	uint32_t i;
	uint64_t turn = 0;

	if (sc.tid == 0) {
		int rc = first ? gnet__recv_begin(net, fd, s, flags) : 0;

		s->again = rc ? 0 : gnet__recv_known(s, len);
		if (rc)
			s->rc = rc;
	}
	gnet__sync_lanes(sc);
	while (s->again) {
		for (i = sc.tid; i < GNET_CELLS; i += sc.lanes)
			s->cell[i] = gnet_sys_load(&line->cell[i]);
		gnet__sync_lanes(sc);
		if (sc.tid == 0)
			s->again =
				gnet__recv_look(net, fd, s, len, flags & GNET_MSG_DONTWAIT, &turn);
		gnet__sync_lanes(sc);
	}
}

/* Moves this step's bytes into the buffer, by all threads. */
GNET_DEV void gnet__recv_move(struct gnet__scope sc, gnet_t *net, const struct gnet__scratch *s,
			      uint8_t *dst, uint64_t n)
{
	uint64_t i;

	if (!s->cells) {
		gnet__ring_read(sc, net, s->seg, s->at, dst, n);
		return;
	}
	for (i = sc.tid; i < n; i += sc.n) {
		uint64_t k = s->at + i;

		dst[i] = (uint8_t)(s->cell[1 + k / GNET_CELL_DATA] >>
				   (8 + 8 * (k % GNET_CELL_DATA)));
	}
}

/* Thread 0: the bytes of this step have been copied out. */
GNET_DEV void gnet__recv_done(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t n)
{
	struct gnet_sock *sk = s->sk;

	sk->rx_head += n;
	/* Cells were loaded by atomics and their bytes used already; only a ring's plain loads need the release. */
	if (s->cells)
		gnet_sys_store(&net->bus[GNET_FD_SLOT(fd)].head, sk->rx_head);
	else
		gnet_sys_store_release(&net->bus[GNET_FD_SLOT(fd)].head, sk->rx_head);
	gnet__kick(net, gnet__queue(net, fd) | GNET_KICK_ROOM);
}

/* Thread 0: ends a call. An error that a count hides is left for the next call. */
GNET_DEV void gnet__stream_end(struct gnet_sock *sk, uint64_t side, uint64_t count, int64_t rc)
{
	if (!sk)
		return;
	if (count && rc < 0)
		gnet_dev_and(&sk->life, ~(uint64_t)GNET_L_ERR_SEEN);
	gnet__leave(sk, side);
}

GNET_DEV int64_t gnet__recv(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net, int fd,
			    void *buf, uint64_t len, int flags)
{
	uint64_t got = 0;
	int first = 1;
	int64_t rc;

	gnet__sync(sc);
	do {
		if (sc.tid < sc.lanes)
			gnet__recv_plan(sc, net, fd, s, len - got, flags, first);
		gnet__sync(sc);
		rc = s->rc;
		if (rc > 0)
			gnet__recv_move(sc, net, s, (uint8_t *)buf + got, (uint64_t)rc);
		gnet__sync(sc);
		if (rc <= 0)
			break;
		got += (uint64_t)rc;
		if (sc.tid == 0 && !(flags & GNET_MSG_PEEK))
			gnet__recv_done(net, fd, s, (uint64_t)rc);
		first = 0;
	} while (got < len && (flags & (GNET_MSG_WAITALL | GNET_MSG_PEEK)) == GNET_MSG_WAITALL);
	if (sc.tid == 0)
		gnet__stream_end(s->sk, GNET_L_RX, got, rc);
	return got ? (int64_t)got : rc;
}

GNET_DEV int64_t grecv(gnet_t *net, int fd, void *buf, uint64_t len, int flags)
{
	return gnet__recv(gnet__scope_of(GNET__BLOCK), gnet__block_scratch(), net, fd, buf, len,
			  flags);
}

GNET_DEV int64_t grecv_warp(gnet_t *net, int fd, void *buf, uint64_t len, int flags)
{
	return gnet__recv(gnet__scope_of(GNET__WARP), gnet__warp_scratch(), net, fd, buf, len,
			  flags);
}

GNET_DEV int64_t grecv_thread(gnet_t *net, int fd, void *buf, uint64_t len, int flags)
{
	struct gnet__scratch s;

	return gnet__recv(gnet__scope_of(GNET__THREAD), &s, net, fd, buf, len, flags);
}

/* ---- send -------------------------------------------------------------------------------------------------------------- */

/* T1: bytes that may be handed over now. Looks across the bus only if the cached head leaves less than `enough`, or every
 * GNET__TX_LOOK turns, for the socket's error is there too. */
GNET_DEV int64_t gnet__send_room(gnet_t *net, int fd, struct gnet_sock *sk, uint64_t enough)
{
	uint64_t window = sk->tx_seg ? (uint64_t)1 << net->seg_log2 : GNET_MINI_BYTES;
	uint64_t room = window - (sk->tx_tail - sk->tx_head), txw;

	if (room >= enough && ++sk->tx_looks < GNET__TX_LOOK)
		return (int64_t)room;
	sk->tx_looks = 0;
	txw = gnet_sys_load_acquire(&net->bus[GNET_FD_SLOT(fd)].txw);
	if (txw >> GNET_TXW_ERR_SHIFT & 0xff)
		return gnet__sock_error(net, fd, sk, -GNET__EPIPE);
	sk->tx_head += (txw - sk->tx_head) & GNET_TXW_POS_MASK;
	return (int64_t)(window - (sk->tx_tail - sk->tx_head));
}

/* Gives the socket a send segment if it has none; without one to be had the bytes go inline. */
GNET_DEV int gnet__send_attach(gnet_t *net, int fd, struct gnet_sock *sk)
{
	int64_t seg;

	if (sk->tx_seg)
		return 0;
	seg = gnet__call(net, gnet__queue(net, fd), GNET_OP_TX_ATTACH, fd, 0, 0);
	if (seg >= 0)
		sk->tx_seg = (uint64_t)seg + 1;
	return seg == -GNET__ENOBUFS || seg >= 0 ? 0 : (int)seg;
}

/* Thread 0: enters, checks and takes the send side; on failure there is no s->sk. */
GNET_DEV int gnet__send_begin(gnet_t *net, int fd, struct gnet__scratch *s, int flags)
{
	int rc;

	s->sk = 0;
	s->fail = 0;
	if (flags & ~(GNET_MSG_DONTWAIT | GNET_MSG_NOSIGNAL))
		return -GNET__EOPNOTSUPP;
	rc = gnet__enter(net, fd, GNET_L_TX, GNET_L_CONNECTED, -GNET__ENOTCONN,
			 flags & GNET_MSG_DONTWAIT);
	if (!rc)
		s->sk = gnet__slot(net, fd);
	return rc;
}

/* Room at which a step begins: all of a small message, and of a long one enough that steps do not become tiny. */
GNET_DEV uint64_t gnet__send_enough(gnet_t *net, const struct gnet__scratch *s, uint64_t len)
{
	uint64_t quarter = ((uint64_t)1 << net->seg_log2) / 4,
		 most = quarter < GNET__TX_CHUNK ? quarter : GNET__TX_CHUNK;

	if (s->cells)
		most = GNET_INLINE_MAX;
	return len < most ? len : most;
}

/* Waits until `enough` may be handed over (some, with dontwait): how much, or why not. */
GNET_DEV int64_t gnet__send_wait(gnet_t *net, int fd, struct gnet_sock *sk, uint64_t enough,
				 int dontwait)
{
	uint64_t turn = 0;

	for (;;) {
		int64_t room;
		int rc;

		if (gnet_dev_load(&sk->life) & GNET_L_SHUT_WR)
			return -GNET__EPIPE;
		room = gnet__send_room(net, fd, sk, enough);
		if (room < 0 || (uint64_t)room >= enough || (dontwait && room > 0))
			return room;
		if (dontwait)
			return -GNET__EAGAIN;
		rc = gnet__sock_spin(net, sk, &turn);
		if (rc)
			return rc;
	}
}

/* Thread 0: decides this step: s->rc bytes, by cells (an entry is reserved) or by the ring. */
GNET_DEV void gnet__send_plan(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t len, int flags,
			      int first)
{
	int rc = first ? gnet__send_begin(net, fd, s, flags) : s->fail;
	uint64_t most;
	int64_t n;

	if (!rc && len > GNET_INLINE_MAX)
		rc = gnet__send_attach(net, fd, s->sk);
	s->rc = rc;
	if (rc || !len)
		return;
	s->cells = len <= GNET_INLINE_MAX || !s->sk->tx_seg;
	n = gnet__send_wait(net, fd, s->sk, gnet__send_enough(net, s, len),
			    flags & GNET_MSG_DONTWAIT);
	most = s->cells ? GNET_INLINE_MAX : GNET__TX_CHUNK;
	if (most > len)
		most = len;
	if (n > 0 && (uint64_t)n > most)
		n = (int64_t)most;
	if (n > 0 && s->cells)
		rc = gnet__reserve(net, gnet__queue(net, fd), &s->pos);
	s->rc = rc ? rc : n;
}

/* Lanes, T2: the step's bytes ride in the entry that was reserved. */
GNET_DEV void gnet__send_cells(struct gnet__scope sc, gnet_t *net, int fd,
			       const struct gnet__scratch *s, const uint8_t *src)
{
	uint32_t q = gnet__queue(net, fd), n = (uint32_t)s->rc, i, k;
	struct gnet_sqe *e = gnet__sqe(net, q, s->pos);
	uint64_t tag = GNET_SQ_TAG(s->pos, net->sq_log2);

	for (i = sc.tid; i < GNET_CELLS; i += sc.lanes) {
		uint64_t v = tag;

		if (i == 0)
			v |= gnet__cell0(GNET_OP_SEND, fd, n);
		for (k = 0; i && k < GNET_CELL_DATA; k++) {
			uint32_t at = (i - 1) * GNET_CELL_DATA + k;

			if (at < n)
				v |= (uint64_t)src[at] << (8 + 8 * k);
		}
		gnet_sys_store(&e->cell[i], v);
	}
	gnet__sync_lanes(sc);
	if (sc.tid == 0) {
		s->sk->tx_tail += n;
		gnet__kick(net, q);
	}
}

/* Thread 0, T3: the block has stored n bytes into the ring. */
GNET_DEV void gnet__send_tail(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t n)
{
	s->sk->tx_tail += n;
	s->fail = gnet__post(net, gnet__queue(net, fd), GNET_OP_TX, fd, s->sk->tx_tail, 1);
}

GNET_DEV int64_t gnet__send(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net, int fd,
			    const void *buf, uint64_t len, int flags)
{
	uint64_t sent = 0;
	int first = 1;
	int64_t rc;

	gnet__sync(sc);
	do {
		const uint8_t *src = (const uint8_t *)buf + sent;

		if (sc.tid < sc.lanes) {
			if (sc.tid == 0)
				gnet__send_plan(net, fd, s, len - sent, flags, first);
			gnet__sync_lanes(sc);
			if (s->rc > 0 && s->cells)
				gnet__send_cells(sc, net, fd, s, src);
		}
		gnet__sync(sc);
		rc = s->rc;
		if (rc > 0 && !s->cells)
			gnet__ring_write(sc, net, s->sk->tx_seg - 1, s->sk->tx_tail, src,
					 (uint64_t)rc);
		gnet__sync(sc);
		if (rc <= 0)
			break;
		if (sc.tid == 0 && !s->cells)
			gnet__send_tail(net, fd, s, (uint64_t)rc);
		sent += (uint64_t)rc;
		first = 0;
	} while (sent < len);
	if (sc.tid == 0)
		gnet__stream_end(s->sk, GNET_L_TX, sent, rc);
	return sent ? (int64_t)sent : rc;
}

GNET_DEV int64_t gsend(gnet_t *net, int fd, const void *buf, uint64_t len, int flags)
{
	return gnet__send(gnet__scope_of(GNET__BLOCK), gnet__block_scratch(), net, fd, buf, len,
			  flags);
}

GNET_DEV int64_t gsend_warp(gnet_t *net, int fd, const void *buf, uint64_t len, int flags)
{
	return gnet__send(gnet__scope_of(GNET__WARP), gnet__warp_scratch(), net, fd, buf, len,
			  flags);
}

GNET_DEV int64_t gsend_thread(gnet_t *net, int fd, const void *buf, uint64_t len, int flags)
{
	struct gnet__scratch s;

	return gnet__send(gnet__scope_of(GNET__THREAD), &s, net, fd, buf, len, flags);
}

#endif
