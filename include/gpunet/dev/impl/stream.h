/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes of a stream: receive by status line and ring, send by entry and ring (docs/bus.md, rules R and T).
 * The block's first warp ("lanes") decides and moves small messages; large ones are copied by all threads.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_STREAM_H
#define GPUNET_DEV_IMPL_STREAM_H

#include <gpunet/dev/abi/socket.h>
#include <gpunet/dev/impl/scope.h>

/* The most that one GNET_OP_TX announces: small enough that the proxy sends while the kernel copies on. */
#define GNET__TX_CHUNK (64u * 1024u)

/* gsend and grecv of a socket of datagrams, in dgram.h. */
GNET__COLD int64_t gnet__send_one(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				  int fd, const void *buf, uint64_t len, int flags);
GNET__COLD int64_t gnet__recv_one(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				  int fd, void *buf, uint64_t len, int flags);

/* ---- receive ---------------------------------------------------------------------------------------------------------- */

/* The position that a line's 41 bits mean: the one at or after `head` that is nearest. */
GNET_DEV uint64_t gnet__line_tail(uint64_t cell0, uint64_t head)
{
	return head + (((cell0 >> GNET_LINE_TAIL_SHIFT) - head) & GNET_LINE_TAIL_MASK);
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
	gnet_dev_store(&sk->rx_ring, GNET_RX_RING(s->seg, tail));
	s->seen = (uint32_t)tail;
	s->cells = 0;
	s->at = s->head;
	s->rc = (int64_t)(avail < len ? avail : len);
}

/* What a step may take of a line, as every lane sees it. A ring is small, so 32 bits of a position are enough. */
struct gnet__look {
	uint64_t c0;
	uint64_t mine;  /* this lane's cell, if there is a lane for each */
	uint32_t avail; /* bytes behind head */
	uint32_t n;     /* of them wanted */
	uint32_t at;    /* the first one's index in the cells */
	int good;       /* they are in the cells, all of them */
	uint32_t
		more; /* looks at once that may find c0 again; after them: those that were not made */
};

/* R4, bytes in cells: those of cell i are [7(i - 1), 7i). Does a step need any of them? */
GNET_DEV int gnet__cell_wanted(const struct gnet__look *k, uint32_t i)
{
	uint32_t end = i * GNET_CELL_DATA;

	return i && end > k->at && end - GNET_CELL_DATA < k->at + k->n;
}

GNET_DEV void gnet__look_at(struct gnet__look *k, uint64_t c0, uint64_t head, uint64_t len)
{
	uint32_t in = (uint32_t)(c0 >> GNET_LINE_INLINE_SHIFT) & 0x7f;

	k->c0 = c0;
	k->avail = (uint32_t)(c0 >> GNET_LINE_TAIL_SHIFT) - (uint32_t)head;
	k->n = k->avail < len ? k->avail : (uint32_t)len;
	k->at = in - k->avail;
	k->good = k->avail && in >= k->avail;
}

/* Thread 0, a look that found neither cells nor bytes in the ring: 0 when s->rc is decided, 1 for another turn. */
GNET__COLD uint32_t gnet__recv_else(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t c0,
				    uint32_t avail)
{
	if (!avail)
		return gnet__recv_idle(net, fd, s, (uint32_t)(c0 >> GNET_LINE_FLAGS_SHIFT) & 0xff);
	s->rc = gnet__side_spin(net, &s->sk->rx, &s->wait); /* the line is being rewritten */
	return !s->rc;
}

/*
 * Thread 0, a look that found nothing, on a GPU: may it be made again at once? All else that a turn of the wait does, the first load of the
 * time limit among it, is for every eighth turn: a message that comes soon does not meet it.
 */
GNET_DEV uint32_t gnet__look_again(struct gnet__wait *w, const struct gnet__look *k)
{
#ifdef __CUDACC__
	const uint64_t ends = (uint64_t)(GNET_LINE_ERR | GNET_LINE_EOF) << GNET_LINE_FLAGS_SHIFT;

	if (k->avail || (k->c0 & ends) || w->dontwait || (w->turn & 7u) == 7u ||
	    w->turn >= GNET__SPIN_LONG)
		return 0;
	w->turn++;
	return 1;
#else
	(void)w;
	(void)k;
	return 0;
#endif
}

/* Thread 0, a look that was not good: are there bytes in the ring? */
GNET_DEV int gnet__look_ring(gnet_t *net, int fd, struct gnet__scratch *s,
			     const struct gnet__look *k, uint64_t len)
{
	uint64_t c0 = k->c0;

	if (!k->avail || (c0 >> GNET_LINE_INLINE_SHIFT & 0x7f) ||
	    !gnet__cell1_valid(s->cell[1], c0))
		return 0;
	/* While bytes wait in the ring the segment stays, so a newer cell 0 only adds bytes. */
	if (!s->acquire)
		c0 = gnet_sys_load_acquire(&net->bus[GNET_FD_SLOT(fd)].line.cell[0]);
	gnet__recv_ring(s, c0, len);
	return 1;
}

/* Thread 0: after a look. */
GNET_DEV uint32_t gnet__recv_look(gnet_t *net, int fd, struct gnet__scratch *s,
				  const struct gnet__look *k, uint64_t len)
{
	if (!k->good && gnet__look_again(&s->wait, k))
		return 1;
	if (!k->good)
		return !gnet__look_ring(net, fd, s, k, len) &&
		       gnet__recv_else(net, fd, s, k->c0, k->avail);
	if (s->acquire)
		gnet_dev_store(&s->sk->rx_ring, 0);
	s->cells = 1;
	s->at = k->at;
	s->rc = (int64_t)k->n;
	return 0;
}

/* Thread 0: checks and takes the receive side. */
GNET_DEV void gnet__recv_begin(gnet_t *net, int fd, struct gnet__scratch *s, int flags)
{
	const int known = GNET_MSG_PEEK | GNET_MSG_DONTWAIT | GNET_MSG_WAITALL | GNET_MSG_NOSIGNAL;
	struct gnet_sock *sk = gnet__slot(net, fd);
	int rc = flags & ~known ? -GNET__EOPNOTSUPP : sk ? gnet__ended(net) : -GNET__EBADF;

	if (flags & GNET_MSG_TRUNC)
		rc = GNET__IS_DGRAM; /* or the call is wrong, as it will find */
	if (!rc) {
		gnet__wait_begin(&s->wait, &sk->rcv_limit, flags);
		s->anew = !gnet__recv_take_known(net, fd, s);
		if (s->anew)
			rc = gnet__take(net, fd, &sk->rx, GNET_L_CONNECTED, -GNET__ENOTCONN,
					&s->wait);
		/* It may have been this scope's call before, not quite at its end: then the word is what that one left. */
		if (s->anew && !rc && gnet__known_of(s, fd)->rx == s->wait.word &&
		    gnet__is_known(net, gnet__known_of(s, fd), fd))
			s->anew = 0;
		s->seen = gnet__known_of(s, fd)->seen; /* if it is known */
		gnet_dev_prefetch(&net->id);           /* a reply comes next, perhaps */
	}
	s->sk = rc ? 0 : sk;
	s->fail = rc;
}

/*
 * Thread 0: the ring's bytes before which position (low half) may this call load? `ring`: rx_ring. Who takes the side by an acquire has
 * seen all that its last holder had; who takes it relaxed only what this scope had, for a call that consumed nothing may have seen more
 * (K1). Never more than there is, should the word have come again.
 */
GNET_DEV uint32_t gnet__recv_seen(const struct gnet__scratch *s, uint64_t ring)
{
	uint32_t tail = (uint32_t)ring;

	return s->anew || s->wait.dgram || (int32_t)(s->seen - tail) >= 0 ? tail : s->seen;
}

/* Thread 0: takes bytes that are known to lie in the ring without a look across the bus: 0 if there are, 1 if not. A peek
 * takes nothing, so the next one would never see more: it is content with known bytes only if they are all it wants. */
GNET_DEV uint32_t gnet__recv_known(struct gnet__scratch *s, uint64_t len, int flags)
{
	struct gnet_sock *sk = s->sk;
	uint64_t head = gnet_dev_load(&sk->rx_head), ring = gnet_dev_load(&sk->rx_ring);
	uint32_t known;

	s->rc = 0;
	s->seen = ring ? gnet__recv_seen(s, ring) : (uint32_t)head;
	s->head = head;
	s->acquire = !!ring;
	if (!len)
		return 0;
	known = s->seen - (uint32_t)head;
	if (!ring || known - 1 > (uint32_t)INT32_MAX || ((flags & GNET_MSG_PEEK) && known < len))
		return 1;
	s->cells = 0;
	s->at = head;
	s->seg = GNET_RX_RING_SEG(ring);
	s->rc = (int64_t)(known < len ? known : len);
	return 0;
}

/* Lanes, at least as many as there are cells: each loads its cell. */
GNET_DEV uint64_t gnet__line_load(struct gnet__scope sc, const struct gnet_line *line,
				  const struct gnet__scratch *s)
{
	uint64_t c = 0;

	/* Cell 0 last: what follows an acquire waits for it. */
	if (sc.tid < GNET_CELLS && (sc.tid || !s->acquire))
		c = gnet_sys_load(&line->cell[sc.tid]);
	if (!sc.tid && s->acquire)
		c = gnet_sys_load_acquire(&line->cell[0]);
	return c;
}

/*
 * Lanes, at least as many as there are cells: a look, or as many as k says while cell 0 is what it was. Sets k->c0; the lane's own cell.
 */
GNET_DEV uint64_t gnet__line_looks(struct gnet__scope sc, const struct gnet_line *line,
				   const struct gnet__scratch *s, struct gnet__look *k)
{
	uint64_t c, was = k->c0;

	for (;;) {
		c = gnet__line_load(sc, line, s);
		k->c0 = __shfl_sync(sc.mask, c, 0);
		if (!k->more || k->c0 != was)
			return c;
		k->more--;
	}
}

/*
 * Lanes: loads the line into s->cell, and looks at it. On a GPU a look that has found nothing is made again at once, k->more times, while
 * cell 0 is what it was; on the CPU device the wait between two looks ends with the news.
 */
GNET_DEV void gnet__line_look(struct gnet__scope sc, const struct gnet_line *line,
			      struct gnet__scratch *s, uint64_t len, struct gnet__look *k)
{
	uint64_t c, head = s->head;
	uint32_t i;

	if (sc.lanes >= GNET_CELLS) {
		c = gnet__line_looks(sc, line, s, k);
		gnet__look_at(k, k->c0, head, len);
		if (sc.tid < GNET_CELLS)
			s->cell[sc.tid] = c;
		k->mine = c;
		i = sc.tid < GNET_CELLS && gnet__cell_wanted(k, sc.tid) && ((c ^ k->c0) & 0xff);
		k->good = k->good && !__any_sync(sc.mask, (int)i);
	} else {
		for (i = sc.tid + sc.lanes * ((GNET_CELLS - 1 - sc.tid) / sc.lanes);;
		     i -= sc.lanes) {
			s->cell[i] = i ? gnet_sys_load(&line->cell[i])
				       : gnet_sys_load_acquire(&line->cell[0]);
			if (i < sc.lanes)
				break;
		}
		gnet__sync_lanes(sc);
		gnet__look_at(k, s->cell[0], head, len);
		for (i = 1; i < GNET_CELLS; i++)
			if (gnet__cell_wanted(k, i) && ((s->cell[i] ^ k->c0) & 0xff))
				k->good = 0;
	}
}

/*
 * Lanes, after a look: how many may follow without a turn of the wait. None if the line tells of bytes and was being rewritten, for then the
 * next look may find them with the same cell 0; nor in a long wait, which leaves the bus alone. Thread 0 stores turns between barriers only.
 */
GNET_DEV uint32_t gnet__more_looks(const struct gnet__scratch *s, const struct gnet__look *k)
{
#ifdef __CUDACC__
	if (k->avail || s->wait.turn >= GNET__SPIN_LONG)
		return 0;
	return 7u - ((uint32_t)s->wait.turn & 7u);
#else
	(void)s;
	(void)k;
	return 0;
#endif
}

/* The bytes up to `head` have been taken. `hops`: the socket's, or 0. */
GNET_DEV void gnet__recv_publish(struct gnet_sock *sk, struct gnet_sock_bus *bus,
				 struct gnet_hops *hops, uint64_t head, int cells)
{
	gnet_dev_store(&sk->rx_head, head); /* gpoll looks at it */
	if (hops)
		gnet__stamp(&hops->seen, head);
	/* Cells were loaded by atomics and their bytes used already; only a ring's plain loads need the release, and so do those of
	   who had the side before and consumed nothing, though it was taken relaxed. */
	if (cells)
		gnet_sys_store(&bus->head, head);
	else
		gnet_release_both(&bus->head, head, &sk->rx, 0);
}

GNET_DEV void gnet__recv_done(gnet_t *net, int fd, struct gnet_sock *sk, uint64_t head, int cells)
{
	uint32_t slot = GNET_FD_SLOT(fd);
	struct gnet_hops *hops = net->hops;

	gnet__recv_publish(sk, &net->bus[slot], hops ? &hops[slot] : 0, head, cells);
	gnet__kick(net, gnet__queue(net, fd) | GNET_KICK_ROOM);
}

/* n bytes of cells, from index `at` on, into the buffer, by the scope's first `threads` threads. */
GNET_DEV void gnet__cells_move(struct gnet__scope sc, const struct gnet__scratch *s, uint64_t at,
			       uint8_t *dst, uint64_t n, uint32_t threads)
{
	uint32_t i;

	for (i = sc.tid; i < (uint32_t)n; i += threads) {
		uint32_t k = (uint32_t)at + i;

		dst[i] = (uint8_t)(s->cell[1 + k / GNET_CELL_DATA] >>
				   (8 + 8 * (k % GNET_CELL_DATA)));
	}
}

/* Lanes: the same from the registers of lanes that have a cell each. */
GNET_DEV void gnet__cells_spread(struct gnet__scope sc, const struct gnet__look *k, uint8_t *dst)
{
	int to = ((int)sc.tid - 1) * (int)GNET_CELL_DATA - (int)k->at;
	uint32_t n = sc.tid && sc.tid < GNET_CELLS ? k->n : 0;
	int i;

	for (i = 0; i < (int)GNET_CELL_DATA; i++)
		if ((uint32_t)(to + i) < n)
			dst[to + i] = (uint8_t)(k->mine >> (8 + 8 * i));
}

/* What gnet__recv_quick needs of what the scope remembers, loaded before the wait. But for dst it is thread 0's. */
struct gnet__quick {
	uint8_t *dst; /* 0: it may not be done */
	struct gnet_sock *sk;
	struct gnet_hops *hops;
	uint64_t head, word;
};

GNET_DEV struct gnet__quick gnet__quick_begin(struct gnet__scope sc, struct gnet__scratch *s,
					      int fd, uint8_t *dst)
{
	struct gnet__known *known = gnet__known_of(s, fd);
	struct gnet__quick q = { dst, 0, 0, 0, 0 };

	/* rx_ring tells of bytes before these: it is to be stored, and the side given back with release (K2). */
	if (s->acquire)
		q.dst = 0;
	if (!q.dst || sc.tid)
		return q;
	q.sk = known->sk;
	q.hops = known->hops;
	q.head = s->head;
	q.word = known->rx;
	known->seen =
		(uint32_t)q.head; /* what was seen before must not seem to lie ahead 4 GiB later */
	return q;
}

/*
 * Lanes: all that is left of a grecv that has found a small message on a socket that its scope remembers: the bytes into the buffer, the
 * head published, the side given back (K2). The scope's other threads learn of it by s->quick, which no call stores before its first
 * barrier.
 */
GNET_DEV void gnet__recv_quick(struct gnet__scope sc, gnet_t *net, int fd, struct gnet__scratch *s,
			       struct gnet_sock_bus *bus, const struct gnet__look *k,
			       const struct gnet__quick *q)
{
	if (sc.lanes >= GNET_CELLS)
		gnet__cells_spread(sc, k, q->dst);
	else
		gnet__cells_move(sc, s, k->at, q->dst, k->n, sc.lanes);
	if (sc.tid)
		return;
	s->quick = k->n;
	gnet__known_of(s, fd)->rx = gnet__word_at(q->word, (q->word >> GNET_L_AT_SHIFT) + k->n);
	gnet__recv_publish(q->sk, bus, q->hops, q->head + k->n, 1);
	gnet__kick(net, gnet__queue(net, fd) | GNET_KICK_ROOM);
	gnet_dev_add_relaxed(&q->sk->rx, ((uint64_t)k->n << GNET_L_AT_SHIFT) - GNET_L_HELD);
}

/*
 * Lanes: waits until this step's bytes, end or error are known (in the scratch), or, if they come in cells and `dst` is given, until
 * they are there and the call is at its end (s->quick).
 */
GNET_DEV void gnet__recv_plan_to(struct gnet__scope sc, gnet_t *net, int fd,
				 struct gnet__scratch *s, uint64_t len, int flags, uint8_t *dst)
{
	struct gnet_sock_bus *bus = &net->bus[GNET_FD_SLOT(fd)];
	struct gnet__quick q;
	struct gnet__look k;

	if (sc.tid == 0) {
		s->again = gnet__recv_known(s, len, flags);
		s->quick = 0;
	}
	gnet__sync_lanes(sc);
	q = gnet__quick_begin(sc, s, fd, dst);
	k.c0 = k.mine = 0;
	k.more = 0;
	while (s->again) {
		uint32_t more = k.more;

		gnet__line_look(sc, &bus->line, s, len, &k);
		if (q.dst && k.good) {
			gnet__recv_quick(sc, net, fd, s, bus, &k, &q);
			break;
		}
		gnet__sync_lanes(sc);
		if (sc.tid == 0) {
			s->wait.turn += more - k.more;
			s->again = gnet__recv_look(net, fd, s, &k, len);
		}
		gnet__sync_lanes(sc);
		k.more = gnet__more_looks(s, &k);
	}
}

GNET__COLD void gnet__recv_plan(struct gnet__scope sc, gnet_t *net, int fd, struct gnet__scratch *s,
				uint64_t len, int flags)
{
	gnet__recv_plan_to(sc, net, fd, s, len, flags, 0);
}

/*
 * The thread that publishes what the scope has done: not thread 0 if there are more warps, for what it waits for (earlier stores)
 * need not keep the next call waiting.
 */
GNET_DEV uint32_t gnet__publisher(struct gnet__scope sc)
{
	return sc.n > 32 ? 32 : 0;
}

/* What the end of a grecv needs, loaded before its wait. */
struct gnet__ways {
	struct gnet__rings rings;
	struct gnet_sock_bus *bus;
	struct gnet_hops *hops; /* the socket's, or 0 */
};

GNET_DEV struct gnet__ways gnet__ways_of(gnet_t *net, int fd)
{
	struct gnet__ways w = { gnet__rings_of(net), &net->bus[GNET_FD_SLOT(fd)],
				net->hops ? &net->hops[GNET_FD_SLOT(fd)] : 0 };

	return w;
}

/* What a call of grecv knows between its steps; each thread of the scope has its own. */
struct gnet__recv_call {
	uint64_t got;
	uint64_t head; /* the publisher's look at the published head */
	int64_t rc;    /* of the last step */
	int anew;      /* of the publisher: another's head may still be on its way */
	int given;     /* the side went back with the last step */
	int ends;      /* the side goes back with the head, which is `end`: one release for both */
	uint64_t end;
	struct gnet__ways ways;
};

/* One step: moves the bytes that were waited for. 1: there may be another. */
GNET_DEV int gnet__recv_step(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net, int fd,
			     struct gnet_sock *sk, void *buf, uint64_t len, int flags,
			     struct gnet__recv_call *c)
{
	int cells = (int)s->cells;

	c->rc = s->rc;
	/* s->acquire: rx_ring was stored, so the side goes back with release (K2). */
	c->given =
		c->rc > 0 && cells && !s->acquire && !(flags & (GNET_MSG_PEEK | GNET_MSG_WAITALL));
	if (c->anew)
		gnet__settle_head(net, fd, c->head, s->wait.word);
	c->anew = 0;
	/* Cells lie in the scratch: the side can go back while they are moved. */
	if (c->given && sc.tid == gnet__publisher(sc)) {
		gnet__recv_done(net, fd, sk, s->head + (uint64_t)c->rc, cells);
		gnet_dev_add_relaxed(&sk->rx, ((uint64_t)c->rc << GNET_L_AT_SHIFT) - GNET_L_HELD);
	}
	if (c->rc > 0 && cells)
		gnet__cells_move(sc, s, s->at, (uint8_t *)buf + c->got, (uint64_t)c->rc, sc.n);
	else if (c->rc > 0)
		gnet__ring_read(sc, net, c->ways.rings, s->seg, s->at, (uint8_t *)buf + c->got,
				(uint64_t)c->rc);
	if (c->given && sc.tid == 0)
		gnet__recv_remember(net, fd, s, (uint64_t)c->rc);
	gnet__sync(sc);
	if (c->given || c->rc <= 0)
		return 0;
	c->got += (uint64_t)c->rc;
	if (flags & GNET_MSG_PEEK)
		return 0;
	c->end = s->head + (uint64_t)c->rc;
	c->ends = !(flags & GNET_MSG_WAITALL) || c->got == len;
	if (c->ends)
		return 0;
	if (sc.tid == gnet__publisher(sc))
		gnet__recv_done(net, fd, sk, c->end, cells);
	gnet__sync(sc); /* the next step reads what the publisher wrote */
	if (sc.tid == 0)
		gnet__wait_on(&s->wait);
	return 1;
}

/* The publisher, at a call's end: the head up to which bytes were taken is published, and the side goes back. */
GNET_DEV void gnet__recv_end(gnet_t *net, int fd, struct gnet_sock *sk, const struct gnet__ways *w,
			     uint64_t end, uint64_t give)
{
	gnet_dev_store(&sk->rx_head, end);
	if (w->hops)
		gnet__stamp(&w->hops->seen, end);
	gnet_release_both(&w->bus->head, end, &sk->rx, give);
	gnet__kick(net, gnet__queue(net, fd) | GNET_KICK_ROOM);
}

/* What is left of a grecv that its first look has not ended. `waited`: the first step's bytes, end or error are known. */
GNET__COLD int64_t gnet__recv_rest(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				   int fd, void *buf, uint64_t len, int flags,
				   struct gnet__ways ways, int waited)
{
	struct gnet__recv_call c = { 0, 0, s->fail, 0, 0, 0, 0, ways };
	struct gnet_sock *sk = s->sk;
	int nonblock = s->wait.dontwait;
	uint64_t taken, give;

	if (!sk) {
		gnet__sync(sc);
		return c.rc == GNET__IS_DGRAM ? gnet__recv_one(sc, s, net, fd, buf, len, flags)
					      : c.rc;
	}
	/* The look is on its way while this call finds its bytes. */
	c.anew = s->anew && sc.tid == gnet__publisher(sc);
	c.head = c.anew ? gnet_sys_load(&ways.bus->head) : 0;
	do {
		if (!waited && sc.tid < sc.lanes)
			gnet__recv_plan(sc, net, fd, s, len - c.got, flags);
		if (!waited)
			gnet__sync(sc);
		waited = 0;
	} while (gnet__recv_step(sc, s, net, fd, sk, buf, len, flags, &c));
	if (c.given)
		return c.rc;
	taken = flags & GNET_MSG_PEEK ? 0 : c.got;
	if (sc.tid == 0)
		gnet__recv_remember(net, fd, s, taken);
	/* As gnet__give, which would load what is known: the next call waits for it. */
	give = (taken << GNET_L_AT_SHIFT) - GNET_L_HELD;
	if (sc.tid == gnet__publisher(sc) && c.ends)
		gnet__recv_end(net, fd, sk, &ways, c.end, give);
	else if (sc.tid == gnet__publisher(sc))
		gnet_dev_add_release(&sk->rx, give);
	if (nonblock)
		gnet__sync(sc); /* the next call must not find the side held by this one */
	return c.got ? (int64_t)c.got : c.rc;
}

/* All of a grecv behind its wait whose only step is by the ring. */
GNET_DEV int64_t gnet__recv_here(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				 int fd, void *buf, const struct gnet__ways *w)
{
	uint64_t n = (uint64_t)s->rc, end = s->head + n;
	struct gnet_sock *sk = s->sk;

	gnet__rings_read(sc, net, w->rings, s->seg, s->at, (uint8_t *)buf, n);
	gnet__sync(sc);
	if (sc.tid == 0)
		gnet__recv_remember(net, fd, s, n);
	if (sc.tid == gnet__publisher(sc))
		gnet__recv_end(net, fd, sk, w, end, (n << GNET_L_AT_SHIFT) - GNET_L_HELD);
	return (int64_t)n;
}

GNET_DEV int64_t gnet__recv(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net, int fd,
			    void *buf, uint64_t len, int flags)
{
	struct gnet__ways ways;
	uint32_t got;

	/* The call before this one may still be giving the side back, in another thread of the scope. */
	if (flags & GNET_MSG_DONTWAIT)
		gnet__sync(sc);
	if (sc.tid == 0)
		gnet__recv_begin(net, fd, s, flags);
	gnet__sync(sc);
	ways = gnet__ways_of(net, fd);
	/* K1: nobody else's head is on its way. And the next call of who does not wait must not find the side held by this one. */
	if (sc.kind == GNET__THREAD || !s->sk || s->anew || s->wait.dontwait ||
	    (flags & (GNET_MSG_PEEK | GNET_MSG_WAITALL)))
		return gnet__recv_rest(sc, s, net, fd, buf, len, flags, ways, 0);
	if (sc.tid < sc.lanes)
		gnet__recv_plan_to(sc, net, fd, s, len, flags, (uint8_t *)buf);
	gnet__sync(sc);
	got = s->quick;
	if (got)
		return (int64_t)got;
	if (s->rc > 0 && !s->cells)
		return gnet__recv_here(sc, s, net, fd, buf, &ways);
	return gnet__recv_rest(sc, s, net, fd, buf, len, flags, ways, 1);
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

	gnet__forget(&s);
	return gnet__recv(gnet__scope_of(GNET__THREAD), &s, net, fd, buf, len, flags);
}

/* ---- send -------------------------------------------------------------------------------------------------------------- */

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
	gnet_dev_store(&sk->tx_head, t->head);
	return (int64_t)gnet__tx_left(net, t);
}

/* Waits until `enough` may be handed over (some, with dontwait): how much, or why not. */
GNET__COLD int64_t gnet__send_wait(gnet_t *net, int fd, struct gnet_sock *sk, struct gnet__tx t,
				   uint64_t enough, struct gnet__wait *w)
{
	for (;;) {
		int64_t room = gnet__send_room(net, fd, sk, &t, enough, w);
		int rc;

		if (room < 0 || (uint64_t)room >= enough || (w->dontwait && room > 0))
			return room;
		if (w->dontwait)
			return -GNET__EAGAIN;
		if (gnet_dev_load(&sk->tx) & (GNET_L_SHUT_WR | GNET_L_FAILED))
			return -GNET__EPIPE;
		rc = gnet__told_spin(net, fd, sk, GNET_WAIT_TX, t.tail, w);
		if (rc)
			return rc;
	}
}

/* The proxy has named the send segment. A near one is in the side's word, too: who remembers the word may see no segment yet (K1). */
GNET_DEV void gnet__attached(struct gnet_sock *sk, uint64_t reply)
{
	uint64_t seg = (reply & GNET_TX_SEG_MASK) + 1;

	gnet_dev_store(&sk->tx_seg, seg | (reply & GNET_TX_ONCE ? GNET_SOCK_ONCE : 0));
	if (gnet__tx_near(seg))
		gnet_dev_or(&sk->tx, GNET_L_NEAR);
}

/* Gives the socket a send segment if it has none; if none is to be had, this call's bytes go inline. */
GNET__COLD int gnet__send_attach(gnet_t *net, int fd, struct gnet__scratch *s)
{
	struct gnet_sock *sk = s->sk;
	int64_t seg;

	if (s->no_seg || (sk->tx_seg & GNET_SOCK_SEG))
		return 0;
	seg = gnet__call(net, (uint32_t)sk->queue, GNET_OP_TX_ATTACH, fd, 0, 0);
	if (seg >= 0)
		gnet__attached(sk, (uint64_t)seg);
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

/* Thread 0: ends a call that holds the send side. */
GNET_DEV void gnet__send_end(gnet_t *net, int fd, struct gnet_sock *sk)
{
	gnet__send_detach(net, fd, sk);
	gnet__give(&sk->tx, GNET_L_HELD);
}

/* Thread 0: checks and takes the send side. */
GNET__COLD void gnet__send_begin(gnet_t *net, int fd, struct gnet__scratch *s, int flags)
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
		gnet__give(&sk->tx, GNET_L_HELD);
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
	n = gnet__send_wait(net, fd, s->sk, t, most, &s->wait);
	if (n > (int64_t)most)
		n = (int64_t)most;
	s->cells = 0;
	s->at = t.tail;
	s->seg = t.seg - 1;
	s->rc = n;
}

/* The entry that the lanes are to fill is at position `pos`. */
GNET_DEV void gnet__at_place(gnet_t *net, struct gnet__scratch *s, uint32_t q, uint64_t pos)
{
	s->entry = gnet__sqe(net, q, pos);
	s->tag = GNET_SQ_TAG(pos, net->sq_log2);
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
	struct gnet_hops *hops = net->hops;
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
			room = gnet__send_wait(net, fd, sk, t, enough, &s->wait);
		if (room > 0) {
			rc = gnet__reserve(net, q, &pos);
			room = rc ? rc : room;
		}
	}
	if (room > 0) {
		if ((uint64_t)room > enough)
			room = (int64_t)enough;
		gnet_dev_store(&sk->tx_tail, t.tail + (uint64_t)room);
		if (hops)
			gnet__stamp(&hops[GNET_FD_SLOT(fd)].stored, t.tail + (uint64_t)room);
		gnet__at_place(net, s, q, pos);
	}
	s->rc = room;
}

/* Thread 0: decides the next step: s->rc bytes, by an entry or by the ring. */
GNET_DEV void gnet__send_plan(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t len)
{
	uint64_t seg;
	int rc = s->fail;

	if (!rc && len > GNET_INLINE_MAX)
		rc = gnet__send_attach(net, fd, s);
	s->rc = rc;
	if (rc || !len)
		return;
	seg = s->sk->tx_seg & GNET_SOCK_SEG;
	if (gnet__tx_near(seg) || (seg && len > GNET_INLINE_MAX))
		gnet__plan_ring(net, fd, s, len);
	else
		gnet__plan_cells(net, fd, s, len);
}

/* The bytes of one cell, where a cell has them. All are on their way before the first one is needed. */
GNET_DEV uint64_t gnet__cell_bytes(const uint8_t *src, uint32_t cell, uint32_t n)
{
	uint32_t at = (cell - 1) * GNET_CELL_DATA, k;
	uint8_t b[GNET_CELL_DATA];
	uint64_t v = 0;

	for (k = 0; k < GNET_CELL_DATA; k++) {
		b[k] = 0;
		if (cell && at + k < n)
			b[k] = src[at + k];
	}
	for (k = 0; k < GNET_CELL_DATA; k++)
		v |= (uint64_t)b[k] << (8 + 8 * k);
	return v;
}

/* Lanes, T2: the step's bytes ride in the entry that was reserved. `mine`: the bytes of cell number tid, if they are `n`. */
GNET_DEV void gnet__send_cells(struct gnet__scope sc, gnet_t *net, int fd,
			       const struct gnet__scratch *s, const uint8_t *src, uint64_t mine,
			       uint64_t n)
{
	uint32_t i;

	if (sc.tid < GNET_CELLS && (sc.lanes < GNET_CELLS || (uint64_t)s->rc != n))
		mine = gnet__cell_bytes(src, sc.tid, (uint32_t)s->rc);
	for (i = sc.tid; i < GNET_CELLS; i += sc.lanes) {
		uint64_t v = s->tag | mine;

		if (i == 0)
			v |= gnet__cell0(GNET_OP_SEND, fd, (uint32_t)s->rc);
		gnet_sys_store(&s->entry->cell[i], v);
		if (i + sc.lanes < GNET_CELLS)
			mine = gnet__cell_bytes(src, i + sc.lanes, (uint32_t)s->rc);
	}
	gnet__sync_lanes(sc);
	if (sc.tid == 0)
		gnet__kick(net, (uint32_t)s->sk->queue);
}

/* T3: the scope has stored n bytes into the ring. */
GNET_DEV int gnet__send_tail(gnet_t *net, int fd, struct gnet_sock *sk, uint64_t n)
{
	struct gnet_hops *hops = net->hops;
	uint64_t tail = gnet_dev_load(&sk->tx_tail) + n;

	gnet_dev_store(&sk->tx_tail, tail);
	if (hops)
		gnet__stamp(&hops[GNET_FD_SLOT(fd)].stored, tail);
	return gnet__post(net, (uint32_t)sk->queue, GNET_OP_TX, fd, tail, 1);
}

/* Thread 0, after a step of n bytes by the ring: a place for its entry, and when they were stored. */
GNET_DEV void gnet__tail_place(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t n)
{
	uint32_t q = (uint32_t)s->sk->queue;
	struct gnet_hops *hops = net->hops ? &net->hops[GNET_FD_SLOT(fd)] : 0;
	uint64_t pos = 0;

	gnet_dev_store(&s->sk->tx_tail, s->at + n);
	s->fail = gnet__reserve(net, q, &pos);
	s->lost = s->fail ? (uint32_t)n : 0;
	gnet__at_place(net, s, q, pos);
	if (hops)
		gnet__stamp(&hops->stored, s->at + n);
}

/*
 * Lanes, T3: the scope has stored a step's bytes into the ring, up to `tail`, and has met. Only cell 0 must come after them. Lanes' stores
 * cross the bus together, one thread's one by one.
 */
GNET_DEV void gnet__tail_cells(struct gnet__scope sc, gnet_t *net, int fd,
			       const struct gnet__scratch *s, uint64_t tail)
{
	uint32_t i;

	for (i = sc.tid ? sc.tid : sc.lanes; i < GNET_CELLS; i += sc.lanes)
		gnet_sys_store(&s->entry->cell[i], s->tag | (i == 1 ? tail << 8 : 0));
	if (sc.tid == 0)
		gnet_sys_store_release(&s->entry->cell[0], s->tag | gnet__cell0(GNET_OP_TX, fd, 0));
	gnet__sync_lanes(sc);
	if (sc.tid == 0)
		gnet__kick(net, (uint32_t)s->sk->queue);
}

/*
 * Lanes: what has come of thread 0's try. 1: the message has gone, the side is still held; 0: nothing is held, and if there was a try the side
 * is not known any more. Thread 0 tells the place only: the rest is known to all lanes, and what the message does not wait for comes behind it.
 */
GNET_DEV int gnet__send_tried(struct gnet__scope sc, gnet_t *net, int fd, struct gnet__scratch *s,
			      const struct gnet__try *t, const uint8_t *src, uint64_t mine,
			      uint64_t len)
{
	struct gnet__known *k = gnet__known_of(s, fd);
	struct gnet_sqe *sq = k->sq, *e;
	uint64_t lap = k->lap, tag = k->lap_tag, pos = GNET__NO_PLACE;
	uint32_t log2 = k->sq_log2, i;

	if (sc.kind == GNET__THREAD) /* it remembers nothing */
		return 0;
	if (sc.tid == 0)
		pos = gnet__try_place(net, k, t, len);
	pos = __shfl_sync(sc.mask, pos, 0);
	if (pos == GNET__NO_PLACE)
		return 0;
	if (len > GNET_INLINE_MAX) {
		gnet__sync_lanes(sc); /* as below */
		if (sc.tid == 0)
			gnet__known_ring(s, k, pos, len);
		return 1;
	}
	if (lap != pos >> log2)
		tag = GNET_SQ_TAG(pos, log2);
	e = &sq[pos & (((uint64_t)1 << log2) - 1)];
	for (i = sc.tid; i < GNET_CELLS; i += sc.lanes) {
		uint64_t v = i ? mine : gnet__cell0(GNET_OP_SEND, fd, (uint32_t)len);

		gnet_sys_store(&e->cell[i], tag | v);
		if (i + sc.lanes < GNET_CELLS)
			mine = gnet__cell_bytes(src, i + sc.lanes, (uint32_t)len);
	}
	gnet__sync_lanes(sc); /* all have read what is known */
	if (sc.tid == 0) {
		gnet__kick(net, k->queue);
		gnet__known_sent(s, k, pos, tag, len);
	}
	return 1;
}

/* Thread 0: the first step of a call whose socket was not known. */
GNET_DEV void gnet__send_start(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t len,
			       int flags)
{
	s->known_now = 0;
	gnet__send_begin(net, fd, s, flags);
	s->lost = 0; /* and so before any call that finds its socket known */
	s->cells = 0;
	s->rc = s->fail;
	if (s->sk)
		gnet__send_plan(net, fd, s, len);
}

/* The bytes of this lane's cell, if the message is one for an entry. */
GNET_DEV uint64_t gnet__send_mine(struct gnet__scope sc, const uint8_t *src, uint64_t len)
{
	uint32_t small = len <= GNET_INLINE_MAX ? (uint32_t)len : 0;

	return gnet__cell_bytes(src, sc.tid < GNET_CELLS ? sc.tid : 0, small);
}

/* Lanes: a step is decided and, if it rides in an entry, on its way. `start`: it takes the send side before. */
GNET__COLD void gnet__send_lanes(struct gnet__scope sc, gnet_t *net, int fd,
				 struct gnet__scratch *s, const uint8_t *src, uint64_t mine,
				 uint64_t len, int start, int flags)
{
	if (sc.tid == 0 && start)
		gnet__send_start(net, fd, s, len, flags);
	else if (sc.tid == 0)
		gnet__send_plan(net, fd, s, len);
	gnet__sync_lanes(sc);
	if (s->rc > 0 && s->cells)
		gnet__send_cells(sc, net, fd, s, src, mine, len <= GNET_INLINE_MAX ? len : 0);
}

/* Lanes, after a step of n bytes by the ring. */
GNET_DEV void gnet__send_tail_lanes(struct gnet__scope sc, gnet_t *net, int fd,
				    struct gnet__scratch *s, uint64_t n)
{
	if (sc.tid == 0)
		gnet__tail_place(net, fd, s, n);
	gnet__sync_lanes(sc);
	if (!s->fail)
		gnet__tail_cells(sc, net, fd, s, s->at + n);
}

/* All threads: a step that was decided goes by the ring, if that is its way. Its bytes, 0 if there are none to send, or why not. */
GNET_DEV int64_t gnet__send_moved(struct gnet__scope sc, gnet_t *net, int fd,
				  struct gnet__scratch *s, const uint8_t *src, struct gnet__rings r)
{
	int64_t rc = s->rc;

	if (rc > 0 && s->sk && !s->cells) {
		gnet__ring_write(sc, net, r, s->seg, s->at, src, (uint64_t)rc);
		gnet__sync(sc);
		if (sc.tid < sc.lanes)
			gnet__send_tail_lanes(sc, net, fd, s, (uint64_t)rc);
	}
	return rc;
}

/* A step of a call that holds the send side. */
GNET_DEV int64_t gnet__send_step(struct gnet__scope sc, gnet_t *net, int fd,
				 struct gnet__scratch *s, const uint8_t *src, uint64_t len)
{
	struct gnet__rings r = gnet__rings_of(net); /* on their way meanwhile */

	if (sc.tid < sc.lanes)
		gnet__send_lanes(sc, net, fd, s, src, gnet__send_mine(sc, src, len), len, 0, 0);
	gnet__sync(sc);
	return gnet__send_moved(sc, net, fd, s, src, r);
}

/* The first step is decided, and has gone if it is one for an entry; all threads know. */
GNET_DEV void gnet__send_first(struct gnet__scope sc, gnet_t *net, int fd, struct gnet__scratch *s,
			       const uint8_t *src, uint64_t len, int flags)
{
	struct gnet__ready r = { 0, 0, 0 };
	struct gnet__try t = { 0, 0, 0, 0, 0, 0 };

	if (sc.tid == 0)
		r = gnet__send_ready(net, fd, s, len, flags);
	gnet__sync(sc); /* the scope's threads may just have written the bytes */
	/* The answers come while the bytes are loaded. Not before the barrier: a warp that is late for it may wait for what the queue would hold up
	   behind a place that was taken and not filled (S2). */
	if (sc.tid == 0)
		t = gnet__send_try(&r);
	if (sc.tid < sc.lanes) {
		uint64_t mine = gnet__send_mine(sc, src, len);

		if (!gnet__send_tried(sc, net, fd, s, &t, src, mine, len))
			gnet__send_lanes(sc, net, fd, s, src, mine, len, 1, flags);
	}
	gnet__sync(sc);
}

/* What is left of a gsend behind that, if its socket was not known. */
GNET__COLD int64_t gnet__send_rest(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				   int fd, const void *buf, uint64_t len, int flags,
				   struct gnet__rings r)
{
	const uint8_t *src = (const uint8_t *)buf;
	int64_t rc = gnet__send_moved(sc, net, fd, s, src, r);
	uint64_t sent = rc > 0 ? (uint64_t)rc : 0;

	if (!s->sk) {
		gnet__sync(sc);
		return rc == GNET__IS_DGRAM ? gnet__send_one(sc, s, net, fd, buf, len, flags) : rc;
	}
	while (rc > 0 && sent < len) {
		gnet__sync(sc);
		if (sc.tid == 0)
			gnet__wait_on(&s->wait);
		rc = gnet__send_step(sc, net, fd, s, src + sent, len - sent);
		sent += rc > 0 ? (uint64_t)rc : 0;
	}
	gnet__sync(sc);
	/* The proxy is dead. This word is not stored again before the next call's first barrier. */
	if (s->lost) {
		sent -= s->lost;
		rc = -GNET__EIO;
	}
	if (sc.tid == 0) {
		gnet__send_detach(net, fd, s->sk);
		gnet__send_remember(net, fd, s);
		if (s->lost)
			gnet__forget(s);
		gnet__give(&s->sk->tx, GNET_L_HELD);
	}
	return sent ? (int64_t)sent : rc;
}

/* All threads: the bytes of a message that has its place go by the ring, and then its entry. */
GNET_DEV void gnet__send_placed(struct gnet__scope sc, gnet_t *net, int fd, struct gnet__scratch *s,
				const uint8_t *src, uint64_t len, struct gnet__rings r)
{
	uint64_t tail = s->at + len;

	gnet__rings_write(sc, net, r, s->seg, s->at, src, len);
	gnet__sync(sc);
	if (sc.tid == 0 && gnet__known_of(s, fd)->hops)
		gnet__stamp(&gnet__known_of(s, fd)->hops->stored, tail);
	if (sc.tid < sc.lanes)
		gnet__tail_cells(sc, net, fd, s, tail);
}

GNET_DEV int64_t gnet__send(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net, int fd,
			    const void *buf, uint64_t len, int flags)
{
	const int large = len > GNET_INLINE_MAX;
	struct gnet__rings r = { 0, 0 };

	if (large) /* on their way while the side is taken */
		r = gnet__rings_of(net);
	gnet__send_first(sc, net, fd, s, (const uint8_t *)buf, len, flags);
	if (sc.kind == GNET__THREAD || !s->known_now)
		return gnet__send_rest(sc, s, net, fd, buf, len, flags,
				       large ? r : gnet__rings_of(net));
	if (large)
		gnet__send_placed(sc, net, fd, s, (const uint8_t *)buf, len, r);
	gnet__sync(sc);
	if (sc.tid == 0)
		gnet__known_end(net, fd, s);
	return (int64_t)len;
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

	gnet__forget(&s);
	return gnet__send(gnet__scope_of(GNET__THREAD), &s, net, fd, buf, len, flags);
}

#endif
