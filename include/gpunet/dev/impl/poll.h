/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for any of several sockets. Each thread of the scope looks at its share of them: a status line's first cell, the
 * send word, two loads across the bus that are on their way together; positions of its own side lie in device memory.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_POLL_H
#define GPUNET_DEV_IMPL_POLL_H

#include <gpunet/dev/impl/stream.h>

/* What a listener has: the next connection, if its cell of the accept ring is filled. */
GNET_DEV short gnet__poll_listener(const struct gnet_sock *sk, const struct gnet_sock_bus *bus)
{
	uint64_t p = gnet_dev_load(&sk->rx_head);
	uint64_t c = gnet_sys_load(&bus->line.cell[1 + p % GNET_ACCEPT_RING]);

	return (c & 0xff) == GNET_ACCEPT_TAG(p) ? GNET_POLLIN : 0;
}

/* Is there something between a position consumed and a line's tail? The line may be older than the position: then its tail is behind. */
GNET_DEV int gnet__poll_unread(uint64_t c0, uint64_t head)
{
	uint64_t n = gnet__line_tail(c0, head) - head;

	return n && n <= GNET_LINE_TAIL_MASK / 2;
}

/*
 * The send word beside a first cell. Both loads are under way together, so the word can be older than flags that speak of it (R3):
 * it is read again then.
 */
GNET_DEV uint64_t gnet__poll_txw(const struct gnet_sock_bus *bus, uint64_t *c0)
{
	const uint64_t speak = (uint64_t)(GNET_LINE_ERR | GNET_LINE_BROKEN | GNET_LINE_HUP)
			       << GNET_LINE_FLAGS_SHIFT;
	uint64_t txw;

	*c0 = gnet_sys_load(&bus->line.cell[0]);
	txw = gnet_sys_load(&bus->txw);
	if (*c0 & speak) {
		*c0 = gnet_sys_load_acquire(&bus->line.cell[0]);
		txw = gnet_sys_load(&bus->txw);
	}
	return txw;
}

/* What a stream or a socket of datagrams has. `tx`: the word of its send side. */
GNET_DEV short gnet__poll_carrier(gnet_t *net, const struct gnet_sock *sk,
				  const struct gnet_sock_bus *bus, uint64_t tx)
{
	uint64_t head = gnet_dev_load(&sk->rx_head), tail = gnet_dev_load(&sk->tx_tail);
	uint64_t c0, txw = gnet__poll_txw(bus, &c0);
	uint64_t window = gnet_dev_load(&sk->tx_seg) & GNET_SOCK_SEG ? (uint64_t)1 << net->seg_log2
								     : GNET_MINI_BYTES;
	int dgram = (tx & GNET_L_DGRAM) != 0;
	uint64_t err = dgram ? 0 : txw >> GNET_TXW_ERR_SHIFT & 0xff;
	uint64_t flags = c0 >> GNET_LINE_FLAGS_SHIFT;
	/* EPIPE from a send: that the peer takes no more is the sender's affair, and Linux tells no error either. */
	int failed = err && (err != GNET__EPIPE || (flags & (GNET_LINE_ERR | GNET_LINE_BROKEN)));
	int sent_all = err || (tx & GNET_L_SHUT_WR);
	uint32_t ends = dgram ? GNET_LINE_EOF : GNET_LINE_EOF | GNET_LINE_ERR;
	/* The errno comes first, the line's flag a little later. */
	int ended = (flags & ends) != 0 || (failed && !dgram);
	/* An error is over when a call was told of it, as SO_ERROR; what it has ended stays so. */
	int news = (dgram || failed) && txw >> GNET_TXW_ERRS_SHIFT != gnet_dev_load(&sk->err_seen);
	short r = 0;

	if (ended || gnet__poll_unread(c0, head))
		r |= GNET_POLLIN;
	if (ended)
		r |= GNET_POLLRDHUP;
	if (news)
		r |= GNET_POLLERR;
	if (sent_all || gnet__unsent(tail, txw) < window)
		r |= GNET_POLLOUT;
	if (failed || (ended && sent_all) || (flags & GNET_LINE_HUP))
		r |= GNET_POLLHUP;
	return r;
}

/* A socket that kernels do not know as connected. */
GNET_DEV short gnet__poll_unknown(gnet_t *net, const struct gnet_sock *sk, int fd, uint64_t tx)
{
	uint32_t flags = gnet__line_flags(net, fd);

	if (flags & (GNET_LINE_CONNECTED | GNET_LINE_ERR))
		return gnet__poll_carrier(net, sk, &net->bus[GNET_FD_SLOT(fd)], tx);
	if (flags & GNET_LINE_CONNECTING)
		return 0;
	return GNET_POLLOUT | GNET_POLLHUP; /* as Linux has it for a socket without a peer */
}

/* One descriptor's events, those asked for and those that are always told. */
GNET_DEV short gnet__poll_one(gnet_t *net, const struct gnet_pollfd *f)
{
	const short always = GNET_POLLERR | GNET_POLLHUP | GNET_POLLNVAL;
	struct gnet_sock *sk = gnet__slot(net, f->fd);
	uint64_t rx, tx;
	short r = 0;

	if (f->fd < 0)
		return 0;
	rx = sk ? gnet_dev_load_acquire(&sk->rx) : 0;
	tx = sk ? gnet_dev_load(&sk->tx) : 0;
	if (!sk || !gnet__alive(rx, f->fd))
		r = GNET_POLLNVAL;
	else if (rx & GNET_L_LISTENING)
		r = gnet__poll_listener(sk, &net->bus[GNET_FD_SLOT(f->fd)]);
	else if (rx & (GNET_L_DGRAM | GNET_L_CONNECTED))
		r = gnet__poll_carrier(net, sk, &net->bus[GNET_FD_SLOT(f->fd)], tx);
	else
		r = gnet__poll_unknown(net, sk, f->fd, tx);
	return r & (f->events | always);
}

/* How many threads of the scope say yes. Not by an atomic in the scratch: a thread's own is in local memory, where a GPU has none. */
GNET_DEV uint32_t gnet__votes(struct gnet__scope sc, int yes)
{
	if (sc.kind == GNET__BLOCK)
		return (uint32_t)GNET__MEET_COUNT(sc.call, yes);
	if (sc.kind == GNET__WARP)
		return (uint32_t)__popc(__ballot_sync(sc.mask, yes));
	return yes != 0;
}

/* One look at all of them, by the whole scope: how many have events. */
GNET_DEV uint32_t gnet__poll_look(struct gnet__scope sc, gnet_t *net, struct gnet_pollfd *fds,
				  uint32_t n)
{
	uint32_t count = 0;
	uint64_t from;

	for (from = 0; from < n; from += sc.n) {
		uint64_t i = from + sc.tid;
		short r = i < n ? gnet__poll_one(net, &fds[i]) : (short)0;

		if (i < n)
			fds[i].revents = r;
		count += gnet__votes(sc, r != 0);
	}
	gnet__sync(sc);
	return count;
}

/* Thread 0: one turn of the wait; 1: look again, else s->fail is the result. */
GNET_DEV uint32_t gnet__poll_turn(gnet_t *net, struct gnet__scratch *s, uint64_t until,
				  uint64_t *turn)
{
	const uint64_t never = ~(uint64_t)0;

	s->fail = 0;
	if (until != never && gnet_time_ns() >= until)
		return 0;
	s->fail = gnet__spin_until(net, turn, until == never ? 0 : until);
	return !s->fail;
}

/* This thread's share of the sockets: how many hints were given at them so far. */
GNET_DEV uint64_t gnet__poll_hints(struct gnet__scope sc, gnet_t *net,
				   const struct gnet_pollfd *fds, uint32_t n)
{
	uint64_t i, sum = 0;

	for (i = sc.tid; i < n; i += sc.n)
		sum += gnet__slot(net, fds[i].fd) ? gnet__hints(net, fds[i].fd) : 0;
	return sum;
}

/* Asks for hints at this thread's share. `first`: this gpoll has not yet. */
GNET_DEV void gnet__poll_ask(struct gnet__scope sc, gnet_t *net, const struct gnet_pollfd *fds,
			     uint32_t n, int first)
{
	uint64_t i;

	for (i = sc.tid; i < n; i += sc.n) {
		if (!gnet__slot(net, fds[i].fd))
			continue;
		if (first)
			gnet__poll_begins(net, fds[i].fd);
		gnet__ask_hint(net, fds[i].fd, GNET_WAIT_POLL, 0);
	}
}

/* Asks for none any more. */
GNET_DEV void gnet__poll_asked(struct gnet__scope sc, gnet_t *net, const struct gnet_pollfd *fds,
			       uint32_t n)
{
	uint64_t i;

	for (i = sc.tid; i < n; i += sc.n)
		if (gnet__slot(net, fds[i].fd))
			gnet__poll_ends(net, fds[i].fd);
}

#ifdef __CUDACC__
/*
 * All: sleeps until a hint is given at one of the sockets, or it is time to look without one, or the time is over. Sets s->fail if the
 * network has ended.
 */
GNET_DEV void gnet__poll_nap(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
			     const struct gnet_pollfd *fds, uint32_t n, uint64_t hints,
			     uint64_t until)
{
	uint64_t belt = gnet_time_ns() + GNET__BELT_NS, now;
	uint32_t q;
	int over;

	do {
		now = gnet_time_ns();
		for (q = sc.tid; q < net->n_queues; q += sc.n)
			gnet__news(net, q, now);
		over = now >= until || gnet__poll_hints(sc, net, fds, n) != hints;
		if (now >= belt) {
			over = 1;
			for (q = sc.tid; q < net->n_queues; q += sc.n)
				gnet__news_head(net, q);
			if (sc.tid == 0)
				s->fail = -(int)gnet_sys_load(&net->ctl->stop);
		}
		if (!over)
			__nanosleep(GNET__NAP_NS);
	} while (!gnet__votes(sc, over));
}
#endif

GNET__COLD int gnet__poll(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
			  struct gnet_pollfd *fds, uint32_t n, int64_t timeout_ns)
{
	uint64_t turn = 0, until = ~(uint64_t)0, hints = 0;
	uint32_t ready, turns = 0;
	int rc, asked = 0, first = 1;

	gnet__sync(sc);
	if (n && !fds)
		return -GNET__EINVAL;
	if (sc.tid == 0)
		s->fail = gnet__ended(net);
	gnet__sync(sc);
	if (s->fail)
		return s->fail;
	if (timeout_ns >= 0)
		until = gnet_time_ns() + (uint64_t)timeout_ns;
	for (;;) {
		ready = gnet__poll_look(sc, net, fds, n);
		if (ready)
			break;
		if (asked) {
#ifdef __CUDACC__
			gnet__poll_nap(sc, s, net, fds, n, hints, until);
			asked = 0;
			if (s->fail)
				break;
			continue;
#else
			(void)hints; /* the wait below ends when something is stored */
#endif
		} else if (++turns >= GNET__SPIN_LONG) {
			/* As gnet__told_spin: asks, looks once more, naps. A hint uses up what was asked for. */
			hints = gnet__poll_hints(sc, net, fds, n);
			gnet__poll_ask(sc, net, fds, n, first);
			asked = 1;
			if (first && sc.tid == 0)
				gnet__tell(net, GNET_W_POLL, n ? fds[0].fd : -1, n);
			first = 0;
		}
		if (sc.tid == 0)
			s->again = gnet__poll_turn(net, s, until, &turn);
		gnet__sync(sc);
		if (!s->again)
			break;
	}
	rc = ready ? (int)ready : s->fail;
	if (!first)
		gnet__poll_asked(sc, net, fds, n);
	if (!first && sc.tid == 0)
		gnet__tell_end(net, GNET_W_POLL, n ? fds[0].fd : -1, n, rc < 0 ? rc : 0);
	gnet__sync(sc);
	return rc;
}

GNET_DEV int gpoll(gnet_t *net, struct gnet_pollfd *fds, uint32_t n, int64_t timeout_ns)
{
	return gnet__poll(gnet__scope_of(GNET__BLOCK), gnet__block_scratch(), net, fds, n,
			  timeout_ns);
}

GNET_DEV int gpoll_warp(gnet_t *net, struct gnet_pollfd *fds, uint32_t n, int64_t timeout_ns)
{
	return gnet__poll(gnet__scope_of(GNET__WARP), gnet__warp_scratch(), net, fds, n,
			  timeout_ns);
}

GNET_DEV int gpoll_thread(gnet_t *net, struct gnet_pollfd *fds, uint32_t n, int64_t timeout_ns)
{
	struct gnet__scratch s;

	return gnet__poll(gnet__scope_of(GNET__THREAD), &s, net, fds, n, timeout_ns);
}

#endif
