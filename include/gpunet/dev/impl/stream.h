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
/* In gnet_sock.rx_seg: the last bytes came by the ring. */
#define GNET__RX_RING ((uint64_t)1 << 32)
/* Sends between two looks at the socket's error across the bus while there is room. */
#define GNET__TX_LOOK 16u

/*
 * The one shared scratch of a scope for all of gpunet. Thread 0 begins a call in it before the call's first barrier: by then
 * every thread has read what the call before left there, since each call ends with a barrier after its last look.
 */
struct gnet__scratch {
	int64_t rc;             /* bytes of this step, 0: end of stream, or a negative errno */
	uint64_t at;            /* ring position, or first byte's index in the cells */
	uint64_t seg;           /* ring segment */
	uint64_t tag;           /* of the entry that the lanes fill */
	uint32_t cells;         /* the bytes are, or go, in cells */
	uint32_t again;         /* lanes: another turn */
	uint32_t no_seg;        /* gsend: the slab is used up */
	uint32_t acquire;       /* cell 0 is loaded with acquire: bytes are expected in the ring */
	uint64_t head;          /* receive position consumed */
	int fail;               /* why the call could not begin, or go on */
	struct gnet_sock *sk;   /* whose side this call holds; 0: it holds none */
	struct gnet_sqe *entry; /* that the lanes fill */
	struct gnet__wait wait; /* thread 0 */
	struct gnet_dgram rec;  /* header of the datagram at hand */
	uint32_t room;          /* for its sender's address */
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

/* gsend and grecv of a socket of datagrams, in dgram.h. */
#ifdef __CUDACC__
#define GNET__COLD static __device__ __noinline__ __attribute__((unused))
#else
#define GNET__COLD GNET_DEV
#endif

GNET__COLD int64_t gnet__send_one(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				  int fd, const void *buf, uint64_t len, int flags);
GNET__COLD int64_t gnet__recv_one(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				  int fd, void *buf, uint64_t len, int flags);

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

	gnet__copy_out(ring + off, src, first, sc.tid, sc.n);
	if (n > first)
		gnet__copy_out(ring, src + first, n - first, sc.tid, sc.n);
}

/* ---- receive ---------------------------------------------------------------------------------------------------------- */

/* The position that a line's 41 bits mean: the one at or after `head` that is nearest. */
GNET_DEV uint64_t gnet__line_tail(uint64_t cell0, uint64_t head)
{
	return head + (((cell0 >> GNET_LINE_TAIL_SHIFT) - head) & GNET_LINE_TAIL_MASK);
}

/* R4, bytes in cells: `need` bytes from index `first` on are valid if their cells carry cell 0's tag; `valid` has a bit for each
 * cell that does. */
GNET_DEV int gnet__cells_valid(uint32_t valid, uint64_t first, uint64_t need)
{
	uint32_t from = 1 + (uint32_t)first / GNET_CELL_DATA;
	uint32_t to = 1 + (uint32_t)(first + need - 1) / GNET_CELL_DATA;
	uint32_t mask = ((2u << to) - 1u) & ~((1u << from) - 1u);

	return (valid & mask) == mask;
}

/* R4, bytes in the ring: cell 1 names their segment if its tag and its part of the tail are cell 0's. */
GNET_DEV int gnet__cell1_valid(uint64_t c1, uint64_t c0)
{
	return !((c1 ^ c0) & 0xff) &&
	       !((c1 >> GNET_LINE_TAIL24_SHIFT ^ c0 >> GNET_LINE_TAIL_SHIFT) & 0xffffff);
}

/* Nothing to read: the end, an error, or another turn. Sets s->rc when it returns 0. */
GNET_DEV uint32_t gnet__recv_idle(gnet_t *net, int fd, struct gnet__scratch *s, uint32_t lflags)
{
	struct gnet_sock *sk = s->sk;

	s->rc = 0;
	if ((lflags & GNET_LINE_ERR) && !s->wait.some)
		s->rc = gnet__sock_error(net, fd, sk, 0);
	/* An error ends a stream, but not a socket of datagrams. */
	if (s->rc || ((lflags & GNET_LINE_ERR) && !s->wait.dgram))
		return 0;
	if (lflags & GNET_LINE_EOF)
		s->rc = 0;
	else if (s->wait.dontwait)
		s->rc = -GNET__EAGAIN;
	else {
		s->rc = gnet__told_spin(net, fd, sk, GNET_WAIT_RX, s->head, &s->wait);
		return !s->rc;
	}
	return 0;
}

/* The bytes of this step lie in the ring; cell 0, loaded with acquire, is c0. */
GNET_DEV void gnet__recv_ring(struct gnet__scratch *s, uint64_t c0, uint64_t len)
{
	struct gnet_sock *sk = s->sk;
	uint64_t tail = gnet__line_tail(c0, s->head), avail = tail - s->head;

	s->seg = s->cell[1] >> GNET_LINE_SEG_SHIFT & 0xffffff;
	sk->rx_tail = tail;
	sk->rx_seg = s->seg | GNET__RX_RING;
	s->cells = 0;
	s->at = s->head;
	s->rc = (int64_t)(avail < len ? avail : len);
}

/* Looks at a line that the lanes have loaded into s->cell: 0 when s->rc is decided, 1 for another turn. */
GNET_DEV uint32_t gnet__recv_look(gnet_t *net, int fd, struct gnet__scratch *s, uint32_t valid,
				  uint64_t len)
{
	struct gnet_sock *sk = s->sk;
	uint64_t c0 = s->cell[0], avail = gnet__line_tail(c0, s->head) - s->head;
	uint32_t lflags = (uint32_t)(c0 >> GNET_LINE_FLAGS_SHIFT) & 0xff;
	uint64_t in = c0 >> GNET_LINE_INLINE_SHIFT & 0x7f, n;

	if (!avail)
		return gnet__recv_idle(net, fd, s, lflags);
	n = avail < len ? avail : len;
	if (in >= avail && gnet__cells_valid(valid, in - avail, n)) {
		if (s->acquire)
			sk->rx_seg &= ~GNET__RX_RING;
		s->cells = 1;
		s->at = in - avail;
		s->rc = (int64_t)n;
		return 0;
	}
	if (!in && gnet__cell1_valid(s->cell[1], c0)) {
		/* While bytes wait in the ring the segment stays, so a newer cell 0 only adds bytes. */
		if (!s->acquire)
			c0 = gnet_sys_load_acquire(&net->bus[GNET_FD_SLOT(fd)].line.cell[0]);
		gnet__recv_ring(s, c0, len);
		return 0;
	}
	s->rc = gnet__side_spin(net, &sk->rx, &s->wait); /* the line is being rewritten */
	return !s->rc;
}

/* Thread 0: checks and takes the receive side. */
GNET_DEV void gnet__recv_begin(gnet_t *net, int fd, struct gnet__scratch *s, int flags)
{
	const int known = GNET_MSG_PEEK | GNET_MSG_DONTWAIT | GNET_MSG_WAITALL | GNET_MSG_NOSIGNAL;
	struct gnet_sock *sk = gnet__slot(net, fd);
	int rc = flags & ~known ? -GNET__EOPNOTSUPP : sk ? 0 : -GNET__EBADF;

	if (flags & GNET_MSG_TRUNC)
		rc = GNET__IS_DGRAM; /* or the call is wrong, as it will find */
	if (!rc) {
		gnet__wait_begin(&s->wait, &sk->rcv_limit, flags);
		rc = gnet__take(net, fd, &sk->rx, GNET_L_CONNECTED, -GNET__ENOTCONN, &s->wait);
	}
	s->sk = rc ? 0 : sk;
	s->fail = rc;
}

/* Thread 0: takes bytes that are known to lie in the ring without a look across the bus: 0 if there are, 1 if not. A peek
 * takes nothing, so the next one would never see more: it is content with known bytes only if they are all it wants. */
GNET_DEV uint32_t gnet__recv_known(struct gnet__scratch *s, uint64_t len, int flags)
{
	struct gnet_sock *sk = s->sk;
	uint64_t head = sk->rx_head, tail = sk->rx_tail, seg = sk->rx_seg;
	uint64_t known = tail > head ? tail - head : 0;

	s->rc = 0;
	if (!len)
		return 0;
	s->head = head;
	s->acquire = !!(seg & GNET__RX_RING);
	if (!known || ((flags & GNET_MSG_PEEK) && known < len))
		return 1;
	s->cells = 0;
	s->at = head;
	s->seg = seg & ~GNET__RX_RING;
	s->rc = (int64_t)(known < len ? known : len);
	return 0;
}

/* Lanes: loads the line into s->cell; thread 0 gets a bit for each cell whose tag is cell 0's. */
GNET_DEV uint32_t gnet__line_load(struct gnet__scope sc, const struct gnet_line *line,
				  struct gnet__scratch *s)
{
	uint32_t valid = 0, i;
	uint64_t c = 0, c0;

	if (sc.lanes >= GNET_CELLS) {
		/* Cell 0 last: what follows an acquire waits for it. */
		if (sc.tid < GNET_CELLS && (sc.tid || !s->acquire))
			c = gnet_sys_load(&line->cell[sc.tid]);
		if (!sc.tid && s->acquire)
			c = gnet_sys_load_acquire(&line->cell[0]);
		if (sc.tid < GNET_CELLS)
			s->cell[sc.tid] = c;
		c0 = __shfl_sync(sc.mask, c, 0);
		valid = __ballot_sync(sc.mask, sc.tid < GNET_CELLS && !((c ^ c0) & 0xff));
	} else {
		for (i = sc.tid + sc.lanes * ((GNET_CELLS - 1 - sc.tid) / sc.lanes);;
		     i -= sc.lanes) {
			s->cell[i] = i ? gnet_sys_load(&line->cell[i])
				       : gnet_sys_load_acquire(&line->cell[0]);
			if (i < sc.lanes)
				break;
		}
		gnet__sync_lanes(sc);
		for (i = 0; i < GNET_CELLS && !sc.tid; i++)
			valid |= (uint32_t) !((s->cell[i] ^ s->cell[0]) & 0xff) << i;
	}
	return valid;
}

/* Lanes: waits until this step's bytes, end or error are known (in the scratch). */
GNET_DEV void gnet__recv_plan(struct gnet__scope sc, gnet_t *net, int fd, struct gnet__scratch *s,
			      uint64_t len, int flags)
{
	struct gnet_line *line = &net->bus[GNET_FD_SLOT(fd)].line;

	if (sc.tid == 0)
		s->again = gnet__recv_known(s, len, flags);
	gnet__sync_lanes(sc);
	while (s->again) {
		uint32_t valid = gnet__line_load(sc, line, s);

		gnet__sync_lanes(sc);
		if (sc.tid == 0)
			s->again = gnet__recv_look(net, fd, s, valid, len);
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

/* The bytes of this step have been copied out. */
GNET_DEV void gnet__recv_done(gnet_t *net, int fd, struct gnet_sock *sk, uint64_t n, int cells)
{
	uint64_t head = sk->rx_head + n;

	gnet_dev_store(&sk->rx_head, head); /* gpoll looks at it */
	/* Cells were loaded by atomics and their bytes used already; only a ring's plain loads need the release. */
	if (cells)
		gnet_sys_store(&net->bus[GNET_FD_SLOT(fd)].head, head);
	else
		gnet_sys_store_release(&net->bus[GNET_FD_SLOT(fd)].head, head);
	gnet__kick(net, gnet__queue(net, fd) | GNET_KICK_ROOM);
}

/*
 * The thread that publishes what the scope has done: not thread 0 if there are more warps, for what it waits for (earlier stores)
 * need not keep the next call waiting.
 */
GNET_DEV uint32_t gnet__publisher(struct gnet__scope sc)
{
	return sc.n > 32 ? 32 : 0;
}

GNET_DEV int64_t gnet__recv(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net, int fd,
			    void *buf, uint64_t len, int flags)
{
	struct gnet_sock *sk;
	uint64_t got = 0;
	int64_t rc;
	int cells, nonblock;

	/* The call before this one may still be giving the side back, in another thread of the scope. */
	if (flags & GNET_MSG_DONTWAIT)
		gnet__sync(sc);
	if (sc.tid == 0)
		gnet__recv_begin(net, fd, s, flags);
	gnet__sync(sc);
	sk = s->sk;
	if (!sk) {
		rc = s->fail;
		gnet__sync(sc);
		return rc == GNET__IS_DGRAM ? gnet__recv_one(sc, s, net, fd, buf, len, flags) : rc;
	}
	nonblock = s->wait.dontwait;
	do {
		if (sc.tid < sc.lanes)
			gnet__recv_plan(sc, net, fd, s, len - got, flags);
		gnet__sync(sc);
		rc = s->rc;
		cells = (int)s->cells;
		if (rc > 0)
			gnet__recv_move(sc, net, s, (uint8_t *)buf + got, (uint64_t)rc);
		gnet__sync(sc);
		if (rc <= 0)
			break;
		got += (uint64_t)rc;
		if (flags & GNET_MSG_PEEK)
			break;
		if (sc.tid == gnet__publisher(sc))
			gnet__recv_done(net, fd, sk, (uint64_t)rc, cells);
		if (!(flags & GNET_MSG_WAITALL) || got == len)
			break;
		gnet__sync(sc); /* the next step reads what the publisher wrote */
		if (sc.tid == 0)
			gnet__wait_on(&s->wait);
	} while (got < len);
	if (sc.tid == gnet__publisher(sc))
		gnet__give(&sk->rx);
	if (nonblock)
		gnet__sync(sc); /* the next call must not find the side held by this one */
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

/* What the send side's words in device memory say, loaded at once. */
struct gnet__tx {
	uint64_t tail, head, seg, once, looks;
};

GNET_DEV struct gnet__tx gnet__tx_load(const struct gnet_sock *sk)
{
	struct gnet__tx t;

	t.tail = sk->tx_tail;
	t.head = sk->tx_head;
	t.seg = sk->tx_seg & GNET_SOCK_SEG;
	t.once = sk->tx_seg & GNET_SOCK_ONCE;
	t.looks = sk->tx_seg >> 32;
	return t;
}

/* T1: what the window leaves. More than the window may be unsent if the segment has been let go of (T6). */
GNET_DEV uint64_t gnet__tx_left(const gnet_t *net, const struct gnet__tx *t)
{
	uint64_t window = t->seg ? (uint64_t)1 << net->seg_log2 : GNET_MINI_BYTES;
	uint64_t used = t->tail - t->head;

	return used < window ? window - used : 0;
}

/*
 * T1: bytes that may be handed over now, or the socket's error. Looks across the bus only if the cached head leaves less than
 * `enough`, or after GNET__TX_LOOK sends, for the socket's error is there too.
 */
GNET_DEV int64_t gnet__send_room(gnet_t *net, int fd, struct gnet_sock *sk, struct gnet__tx *t,
				 uint64_t enough, const struct gnet__wait *w)
{
	uint64_t room = gnet__tx_left(net, t), txw;

	if (room >= enough && t->looks < GNET__TX_LOOK) {
		gnet_dev_store(&sk->tx_seg, t->seg | t->once | (t->looks + 1) << 32);
		return (int64_t)room;
	}
	txw = gnet_sys_load_acquire(&net->bus[GNET_FD_SLOT(fd)].txw);
	if (txw >> GNET_TXW_ERR_SHIFT & 0xff) {
		int64_t later = w->dgram ? 0 : -GNET__EPIPE;
		int64_t rc = w->some ? later : gnet__sock_error(net, fd, sk, later);

		if (rc)
			return rc;
	}
	t->looks = 0;
	t->head += (txw - t->head) & GNET_TXW_POS_MASK;
	gnet_dev_store(&sk->tx_seg, t->seg | t->once);
	sk->tx_head = t->head;
	return (int64_t)gnet__tx_left(net, t);
}

/* Waits until `enough` may be handed over (some, with dontwait): how much, or why not. */
GNET_DEV int64_t gnet__send_wait(gnet_t *net, int fd, struct gnet_sock *sk, struct gnet__tx *t,
				 uint64_t enough, struct gnet__wait *w)
{
	for (;;) {
		int64_t room = gnet__send_room(net, fd, sk, t, enough, w);
		int rc;

		if (room < 0 || (uint64_t)room >= enough || (w->dontwait && room > 0))
			return room;
		if (w->dontwait)
			return -GNET__EAGAIN;
		if (gnet_dev_load(&sk->tx) & (GNET_L_SHUT_WR | GNET_L_FAILED))
			return -GNET__EPIPE;
		rc = gnet__told_spin(net, fd, sk, GNET_WAIT_TX, t->tail, w);
		if (rc)
			return rc;
	}
}

/* Gives the socket a send segment if it has none; if none is to be had, this call's bytes go inline. */
GNET_DEV int gnet__send_attach(gnet_t *net, int fd, struct gnet__scratch *s)
{
	struct gnet_sock *sk = s->sk;
	int64_t seg;

	if (s->no_seg || (sk->tx_seg & GNET_SOCK_SEG))
		return 0;
	seg = gnet__call(net, (uint32_t)sk->queue, GNET_OP_TX_ATTACH, fd, 0, 0);
	if (seg >= 0)
		gnet_dev_store(&sk->tx_seg, ((uint64_t)seg & GNET_TX_SEG_MASK) + 1 +
						    (seg & GNET_TX_ONCE ? GNET_SOCK_ONCE : 0));
	s->no_seg = seg == -GNET__ENOBUFS;
	return seg == -GNET__ENOBUFS || seg >= 0 ? 0 : (int)seg;
}

/* T6: the holder of the send side, at a call's end, lets go of a segment that was for one call. */
GNET_DEV void gnet__send_detach(gnet_t *net, int fd, struct gnet_sock *sk)
{
	if (!(gnet_dev_load(&sk->tx_seg) & GNET_SOCK_ONCE))
		return;
	gnet_dev_store(&sk->tx_seg, 0);
	gnet__post(net, (uint32_t)sk->queue, GNET_OP_TX_DETACH, fd, 0, 0);
}

/* Thread 0: checks and takes the send side. */
GNET_DEV void gnet__send_begin(gnet_t *net, int fd, struct gnet__scratch *s, int flags)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	int rc = flags & ~(GNET_MSG_DONTWAIT | GNET_MSG_NOSIGNAL) ? -GNET__EOPNOTSUPP
		 : sk                                             ? 0
								  : -GNET__EBADF;

	if (!rc) {
		gnet__wait_begin(&s->wait, &sk->snd_limit, flags);
		rc = gnet__take(net, fd, &sk->tx, GNET_L_CONNECTED, -GNET__ENOTCONN, &s->wait);
	}
	if (!rc && (s->wait.word & (GNET_L_SHUT_WR | GNET_L_FAILED))) {
		gnet__give(&sk->tx);
		rc = -GNET__EPIPE;
	}
	s->no_seg = 0;
	s->sk = rc ? 0 : sk;
	s->fail = rc;
}

/* Thread 0: the next step of a long message goes by the ring. */
GNET_DEV void gnet__plan_ring(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t len)
{
	uint64_t quarter = ((uint64_t)1 << net->seg_log2) / 4;
	uint64_t most = quarter < GNET__TX_CHUNK ? quarter : GNET__TX_CHUNK;
	struct gnet__tx t = gnet__tx_load(s->sk);
	int64_t n;

	if (most > len)
		most = len;
	/* Not as soon as a few bytes fit, or steps become tiny. */
	n = gnet__send_wait(net, fd, s->sk, &t, most, &s->wait);
	if (n > (int64_t)most)
		n = (int64_t)most;
	s->cells = 0;
	s->at = t.tail;
	s->seg = t.seg - 1;
	s->rc = n;
}

/*
 * Thread 0: the next step rides in an entry. The position is taken before it is known that there is room, so that both atomics
 * and the loads are on their way together; if there is none the entry becomes a no-op.
 */
GNET_DEV void gnet__plan_cells(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t len)
{
	uint64_t enough = len < GNET_INLINE_MAX ? len : GNET_INLINE_MAX;
	struct gnet_sock *sk = s->sk;
	uint32_t q = (uint32_t)sk->queue;
	struct gnet_sq_dev *d = &net->sqd[q];
	uint64_t pos = gnet_dev_ticket(&d->tail);
	struct gnet__tx t = gnet__tx_load(sk);
	uint64_t head = gnet_dev_load_acquire(&d->head);
	int64_t room;
	int rc = gnet__sq_room(net, d, q, pos, head);

	s->cells = 1;
	room = rc ? rc : gnet__send_room(net, fd, sk, &t, enough, &s->wait);
	if (!rc && (room < 0 || (uint64_t)room < enough)) {
		gnet__put(net, q, pos, 0, 0, 0, 0);
		if (room >= 0)
			room = gnet__send_wait(net, fd, sk, &t, enough, &s->wait);
		if (room > 0) {
			rc = gnet__reserve(net, q, &pos);
			room = rc ? rc : room;
		}
	}
	if (room > 0) {
		if ((uint64_t)room > enough)
			room = (int64_t)enough;
		gnet_dev_store(&sk->tx_tail, t.tail + (uint64_t)room);
		s->entry = gnet__sqe(net, q, pos);
		s->tag = GNET_SQ_TAG(pos, net->sq_log2);
	}
	s->rc = room;
}

/* Thread 0: decides the next step: s->rc bytes, by an entry or by the ring. */
GNET_DEV void gnet__send_plan(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t len)
{
	int rc = s->fail;

	if (!rc && len > GNET_INLINE_MAX)
		rc = gnet__send_attach(net, fd, s);
	s->rc = rc;
	if (rc || !len)
		return;
	if (len > GNET_INLINE_MAX && (s->sk->tx_seg & GNET_SOCK_SEG))
		gnet__plan_ring(net, fd, s, len);
	else
		gnet__plan_cells(net, fd, s, len);
}

/* The bytes of one cell, as loaded: joined only when they are needed, so that they can be on their way meanwhile. */
struct gnet__raw {
	uint8_t b[GNET_CELL_DATA];
};

GNET_DEV struct gnet__raw gnet__raw_load(const uint8_t *src, uint32_t cell, uint64_t n)
{
	struct gnet__raw r;
	uint32_t k;

	for (k = 0; k < GNET_CELL_DATA; k++) {
		uint64_t at = (uint64_t)(cell - 1) * GNET_CELL_DATA + k;

		r.b[k] = 0;
		if (cell && at < n)
			r.b[k] = src[at];
	}
	return r;
}

GNET_DEV uint64_t gnet__raw_join(struct gnet__raw r)
{
	uint64_t v = 0;
	uint32_t k;

	for (k = 0; k < GNET_CELL_DATA; k++)
		v |= (uint64_t)r.b[k] << (8 + 8 * k);
	return v;
}

/* Lanes, T2: the step's bytes ride in the entry that was reserved. `mine`: the bytes of cell number tid, if they are `n`. */
GNET_DEV void gnet__send_cells(struct gnet__scope sc, gnet_t *net, int fd,
			       const struct gnet__scratch *s, const uint8_t *src,
			       struct gnet__raw mine, uint64_t n)
{
	uint32_t i;

	if (sc.tid < GNET_CELLS && (sc.lanes < GNET_CELLS || (uint64_t)s->rc != n))
		mine = gnet__raw_load(src, sc.tid, (uint64_t)s->rc);
	for (i = sc.tid; i < GNET_CELLS; i += sc.lanes) {
		uint64_t v = s->tag | gnet__raw_join(mine);

		if (i == 0)
			v |= gnet__cell0(GNET_OP_SEND, fd, (uint32_t)s->rc);
		gnet_sys_store(&s->entry->cell[i], v);
		if (i + sc.lanes < GNET_CELLS)
			mine = gnet__raw_load(src, i + sc.lanes, (uint64_t)s->rc);
	}
	gnet__sync_lanes(sc);
	if (sc.tid == 0)
		gnet__kick(net, (uint32_t)s->sk->queue);
}

/* T3: the scope has stored n bytes into the ring. */
GNET_DEV int gnet__send_tail(gnet_t *net, int fd, struct gnet_sock *sk, uint64_t n)
{
	uint64_t tail = sk->tx_tail + n;

	gnet_dev_store(&sk->tx_tail, tail);
	return gnet__post(net, (uint32_t)sk->queue, GNET_OP_TX, fd, tail, 1);
}

/* One step: its bytes, 0 if there are none to send, or why not. */
GNET_DEV int64_t gnet__send_step(struct gnet__scope sc, gnet_t *net, int fd,
				 struct gnet__scratch *s, const uint8_t *src, uint64_t len)
{
	int64_t rc;

	if (sc.tid < sc.lanes) {
		struct gnet__raw mine = gnet__raw_load(src, sc.tid < GNET_CELLS ? sc.tid : 0,
						       len <= GNET_INLINE_MAX ? len : 0);

		if (sc.tid == 0)
			gnet__send_plan(net, fd, s, len);
		gnet__sync_lanes(sc);
		if (s->rc > 0 && s->cells)
			gnet__send_cells(sc, net, fd, s, src, mine,
					 len <= GNET_INLINE_MAX ? len : 0);
	}
	gnet__sync(sc);
	rc = s->rc;
	if (rc > 0 && !s->cells) {
		gnet__ring_write(sc, net, s->seg, s->at, src, (uint64_t)rc);
		gnet__sync(sc);
		if (sc.tid == 0)
			s->fail = gnet__send_tail(net, fd, s->sk, (uint64_t)rc);
	} else {
		gnet__sync(sc);
	}
	return rc;
}

GNET_DEV int64_t gnet__send(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net, int fd,
			    const void *buf, uint64_t len, int flags)
{
	struct gnet_sock *sk;
	uint64_t sent = 0;
	int64_t rc;

	if (sc.tid == 0)
		gnet__send_begin(net, fd, s, flags);
	gnet__sync(sc);
	sk = s->sk;
	if (!sk) {
		rc = s->fail;
		gnet__sync(sc);
		return rc == GNET__IS_DGRAM ? gnet__send_one(sc, s, net, fd, buf, len, flags) : rc;
	}
	do {
		rc = gnet__send_step(sc, net, fd, s, (const uint8_t *)buf + sent, len - sent);
		if (rc <= 0)
			break;
		sent += (uint64_t)rc;
		if (sc.tid == 0)
			gnet__wait_on(&s->wait);
	} while (sent < len);
	if (sc.tid == 0) {
		gnet__send_detach(net, fd, sk);
		gnet__give(&sk->tx);
	}
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
