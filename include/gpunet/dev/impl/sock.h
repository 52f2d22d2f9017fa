/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A socket's life among blocks: entering and leaving, taking and giving back a side; its error. One thread runs each of these.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_SOCK_H
#define GPUNET_DEV_IMPL_SOCK_H

#include <gpunet/dev/abi/socket.h>
#include <gpunet/dev/impl/nap.h>

/* The socket in a descriptor's slot, whether it is alive or not; NULL: no such slot. */
GNET_DEV struct gnet_sock *gnet__slot(gnet_t *net, int fd)
{
	uint32_t slot = GNET_FD_SLOT(fd);

	return fd >= 0 && GNET_FD_GEN(fd) && slot < net->max_socks ? &net->socks[slot] : 0;
}

/* May a call with this descriptor go on, given the word of one of its socket's sides? */
GNET_DEV int gnet__alive(uint64_t side, int fd)
{
	return (side & GNET_L_SIDE_GEN) == GNET_FD_GEN(fd) && !(side & GNET_L_CLOSING);
}

/* Results of a call that is for sockets of the other kind; no errno. */
#define GNET__IS_DGRAM (-4096)
#define GNET__IS_STREAM (-4097)

/* How a call waits, from its flags and its socket's options. */
struct gnet__wait {
	uint64_t turn;
	uint64_t until;  /* when it ends (gnet_time_ns); 0: never, or it has not begun */
	uint64_t *limit; /* the socket's limit for such calls, 0: none */
	uint64_t word;   /* what the side was when it was taken */
	int dontwait;
	int dgram;      /* the call is for a socket of datagrams */
	int some;       /* the call has moved bytes: an error is left for the next one */
	int told;       /* a hint was asked for, or stat sees this wait in a table */
	uint64_t hints; /* given before it was asked for */
	uint64_t since; /* when it was found to be a long one; 0: not yet */
};

GNET_DEV void gnet__wait_begin(struct gnet__wait *w, uint64_t *limit, int flags)
{
	w->turn = 0;
	w->until = 0;
	w->limit = limit;
	w->dontwait = flags & GNET_MSG_DONTWAIT;
	w->dgram = 0;
	w->some = 0;
	w->told = 0;
	w->since = 0;
}

/* The call has moved some bytes and may wait for more. */
GNET_DEV void gnet__wait_on(struct gnet__wait *w)
{
	w->turn = 0;
	w->some = 1;
	w->told = 0;
	w->since = 0;
}

/* gnet__spin for a wait that the socket's limit ends: it counts from the call's first turn here. */
GNET_DEV int gnet__limited_spin(gnet_t *net, struct gnet__wait *w)
{
	if (!w->until && w->limit) {
		uint64_t ns = gnet_dev_load(w->limit);

		if (ns)
			w->until = gnet_time_ns() + ns;
		else
			w->limit = 0;
	}
	if (w->until && gnet_time_ns() >= w->until)
		return -GNET__ETIMEDOUT;
	return gnet__spin_until(net, &w->turn, w->until);
}

/* The flags of a socket's status line; with acquire, for what they speak of. */
GNET_DEV uint32_t gnet__line_flags(gnet_t *net, int fd)
{
	uint64_t c0 = gnet_sys_load_acquire(&net->bus[GNET_FD_SLOT(fd)].line.cell[0]);

	return (uint32_t)(c0 >> GNET_LINE_FLAGS_SHIFT) & 0xff;
}

/*
 * The socket's error, if no call was told of it yet, else `later`. Who is told ends a stream for senders: they need not look
 * across the bus to find out.
 */
GNET__COLD int64_t gnet__sock_error(gnet_t *net, int fd, struct gnet_sock *sk, int64_t later)
{
	uint64_t txw, number, seen = gnet_dev_load(&sk->err_seen);

	(void)gnet__line_flags(net, fd); /* R3: the errno was stored before the flag */
	txw = gnet_sys_load_acquire(&net->bus[GNET_FD_SLOT(fd)].txw);
	number = txw >> GNET_TXW_ERRS_SHIFT;
	while (seen != number) {
		uint64_t old = gnet_dev_cas(&sk->err_seen, seen, number);

		if (old == seen) {
			uint64_t tx = gnet_dev_load(&sk->tx);

			if ((tx & (GNET_L_CONNECTED | GNET_L_DGRAM)) == GNET_L_CONNECTED)
				gnet_dev_or(&sk->tx, GNET_L_FAILED);
			return -(int64_t)(txw >> GNET_TXW_ERR_SHIFT & 0xff);
		}
		seen = old;
	}
	return later;
}

/* gnet__limited_spin for a wait that others see in a table once it is a long one; w->told says that they do. */
GNET__COLD int gnet__seen_limited(gnet_t *net, uint32_t call, int fd, struct gnet__wait *w)
{
	int rc;

	if (!w->told && w->turn + 1 >= GNET__SPIN_LONG) {
		w->told = 1;
		gnet__tell(net, call, fd, 0);
	}
	rc = gnet__limited_spin(net, w);
	if (rc && w->told)
		gnet__tell_end(net, call, fd, 0, rc);
	return rc;
}

/* The socket that kernels do not know as connected: 1: it is by now, 0: look again, or why it is not. */
GNET_DEV int64_t gnet__arrived(gnet_t *net, int fd, struct gnet__wait *w)
{
	uint32_t flags = gnet__line_flags(net, fd);

	if (flags & GNET_LINE_CONNECTED)
		return 1;
	if (flags & GNET_LINE_CONNECTING)
		return w->dontwait ? -GNET__EAGAIN : gnet__seen_limited(net, GNET_W_CONNECT, fd, w);
	if (flags & GNET_LINE_ERR)
		return gnet__sock_error(net, fd, &net->socks[GNET_FD_SLOT(fd)], -GNET__ENOTCONN);
	return -GNET__ENOTCONN;
}

/*
 * K2: the word of a side says where its position is, low half, while no call holds it; the position itself is the next word (rx_head,
 * tx_tail). Whoever takes the side waits until it is there: its last holder may have ordered nothing.
 */
GNET_DEV int gnet__settle(gnet_t *net, const uint64_t *side, uint64_t word)
{
	uint64_t turn = 0;
	int rc = 0;

	while (!rc && (uint32_t)gnet_dev_load(&side[1]) != (uint32_t)(word >> GNET_L_AT_SHIFT))
		rc = gnet__spin(net, &turn);
	return rc;
}

/*
 * K2: the same of the published head, of which `head` is a look. What the last holder has stored there must not come after what this
 * call stores. It has been stored, so it comes soon, unless somebody else's stores have spoiled it.
 */
GNET_DEV void gnet__settle_head(gnet_t *net, int fd, uint64_t head, uint64_t word)
{
	uint32_t turn;

	for (turn = 0; (uint32_t)head != (uint32_t)(word >> GNET_L_AT_SHIFT) && turn < 1000; turn++)
		head = gnet_sys_load(&net->bus[GNET_FD_SLOT(fd)].head);
}

/* Gives a side back: `held`, the marks that the holder has set, go. WRITTEN goes when the position moves: then the word is new in any case. */
GNET_DEV void gnet__give(uint64_t *side, uint64_t held)
{
	uint64_t word = gnet_dev_load(side), is = gnet_dev_load(&side[1]);
	uint64_t moved = (is - (word >> GNET_L_AT_SHIFT)) << GNET_L_AT_SHIFT;

	gnet_dev_add_release(side, moved - held - (moved ? word & GNET_L_WRITTEN : 0));
}

/* A wait for the turn of a side. */
GNET_DEV int gnet__turn_spin(gnet_t *net, int fd, const uint64_t *side, struct gnet__wait *w)
{
	uint32_t call =
		side == &net->socks[GNET_FD_SLOT(fd)].rx ? GNET_W_RECV_SIDE : GNET_W_SEND_SIDE;

	return gnet__seen_limited(net, call, fd, w);
}

/* The end of such waits, if one has begun, before the call goes on or returns. */
GNET_DEV void gnet__turn_over(gnet_t *net, struct gnet__wait *w)
{
	if (!w->told)
		return;
	w->told = 0;
	gnet__tell_end(net, GNET_W_NONE, 0, 0, 0);
}

/*
 * Takes one side of a socket (&sk->rx or &sk->tx), waiting while another call holds it unless w->dontwait. `state`:
 * GNET_L_CONNECTED or GNET_L_LISTENING, which the side must have; a connect that has ended since is noted. 0 and w->word;
 * or -EBADF, -EAGAIN, why the wait ended, or `wrong` for another state.
 */
GNET__COLD int gnet__take(gnet_t *net, int fd, uint64_t *side, uint64_t state, int wrong,
			  struct gnet__wait *w)
{
	uint64_t old = gnet_dev_load_acquire(side), also = 0;
	int over = gnet__ended(net);

	if (over)
		return over;
	for (;;) {
		uint64_t free;

		if (old & GNET_L_NONBLOCK && state != GNET_L_SHUT_WR) /* shutdown always waits */
			w->dontwait = 1;
		if (old & GNET_L_DGRAM && state == GNET_L_CONNECTED && gnet__alive(old, fd))
			return GNET__IS_DGRAM;
		if (!(old & GNET_L_DGRAM) && state == GNET_L_DGRAM && gnet__alive(old, fd))
			return wrong; /* before a wait for whoever holds the side */
		while (old & GNET_L_HELD && gnet__alive(old, fd)) {
			int rc = w->dontwait ? -GNET__EAGAIN : gnet__turn_spin(net, fd, side, w);

			if (rc)
				return rc;
			old = gnet_dev_load(side);
		}
		if (gnet__alive(old, fd) && (old & state) != state) {
			int64_t rc = state == GNET_L_CONNECTED ? gnet__arrived(net, fd, w) : wrong;

			if (!rc) {
				old = gnet_dev_load(side);
				continue;
			}
			gnet__turn_over(net, w);
			if (rc < 0)
				return (int)rc;
			also = state;
		}
		gnet__turn_over(net, w);
		if (!gnet__alive(old, fd))
			return -GNET__EBADF;
		free = old;
		old = gnet_dev_cas_acquire(side, free, free | GNET_L_HELD | also);
		if (old == free) {
			w->word = old | also;
			return gnet__settle(net, side, old);
		}
	}
}

/* gnet__spin for the holder of a side: also ends when the socket is being closed (a GPU looks every 8th turn). */
GNET__COLD int gnet__side_spin(gnet_t *net, uint64_t *side, struct gnet__wait *w)
{
#ifdef __CUDACC__
	int look = (w->turn & 7u) == 7u;
#else
	int look = 1;
#endif

	if (look && (gnet_dev_load(side) & GNET_L_CLOSING))
		return -GNET__EBADF;
	return gnet__limited_spin(net, w);
}

#ifdef __CUDACC__
/* Sleeps until a hint is given at the socket, or it is time to look without one: 0, or why the wait ends. */
GNET_DEV int gnet__nap(gnet_t *net, int fd, const uint64_t *side, const struct gnet__wait *w)
{
	uint64_t start = gnet_time_ns();

	for (;;) {
		uint64_t now = gnet_time_ns();

		if (gnet_dev_load(side) & GNET_L_CLOSING)
			return -GNET__EBADF;
		gnet__news(net, gnet__queue(net, fd), now);
		if (gnet__hints(net, fd) != w->hints)
			return 0;
		if (w->until && now >= w->until)
			return -GNET__ETIMEDOUT;
		if (now - start >= GNET__BELT_NS) {
			gnet__news_head(net, gnet__queue(net, fd));
			return -(int)gnet_sys_load(&net->ctl->stop);
		}
		__nanosleep(GNET__NAP_NS);
	}
}
#endif

/* Such a wait gives up. */
GNET_DEV void gnet__told_end(gnet_t *net, int fd, int side, const struct gnet__wait *w, int rc)
{
	gnet__ask_no_hint(net, fd, side);
	gnet__gave_up(net, side == GNET_WAIT_RX ? GNET_W_RECV : GNET_W_SEND, fd, 0, w->since, rc);
}

/*
 * gnet__side_spin for a wait at `pos` that may take long. `side`: GNET_WAIT_RX or _TX. When it has, it asks for a hint, and since the
 * news may have come just before, looks once more; on a GPU it naps then.
 */
GNET__COLD int gnet__told_spin(gnet_t *net, int fd, struct gnet_sock *sk, int side, uint64_t pos,
			       struct gnet__wait *w)
{
	uint64_t *word = side == GNET_WAIT_RX ? &sk->rx : &sk->tx;
	int rc;

#ifdef __CUDACC__
	if (w->told) {
		w->told = 0;
		rc = gnet__nap(net, fd, word, w);
		if (rc)
			gnet__told_end(net, fd, side, w, rc);
		return rc;
	}
#endif
	if (!w->told && w->turn + 1 >= GNET__SPIN_LONG) {
		w->told = 1;
		w->since = w->since ? w->since : gnet_time_ns();
		w->hints = gnet__hints(net, fd);
		gnet__ask_hint(net, fd, side, pos);
	}
	rc = gnet__side_spin(net, word, w);
	if (rc && w->told)
		gnet__told_end(net, fd, side, w, rc);
	return rc;
}

/* Enters a socket without a side, as a user. */
GNET_DEV int gnet__enter(gnet_t *net, int fd)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	uint64_t guess = (uint64_t)GNET_FD_GEN(fd) << GNET_L_GEN_SHIFT;

	if (!sk)
		return -GNET__EBADF;
	for (;;) {
		uint64_t old = gnet_dev_cas(&sk->life, guess, guess + 1);

		if (old == guess)
			return 0;
		if (old >> GNET_L_GEN_SHIFT != GNET_FD_GEN(fd) || (old & GNET_L_CLOSING))
			return -GNET__EBADF;
		guess = old;
	}
}

GNET_DEV void gnet__leave(struct gnet_sock *sk)
{
	gnet_dev_add(&sk->life, ~(uint64_t)0);
}

/* Brings a descriptor that the proxy has just given out to life among blocks. */
GNET_DEV void gnet__sock_init(gnet_t *net, int fd, uint64_t state)
{
	struct gnet_sock *sk = &net->socks[GNET_FD_SLOT(fd)];
	uint64_t gen = GNET_FD_GEN(fd);

	sk->queue = gnet__queue(net, fd);
	/* Whoever still has a descriptor of the slot's last life may look at these, to find that it is none any more. */
	gnet_dev_store(&sk->err_seen, 0);
	gnet_dev_store(&sk->rcv_limit, 0);
	gnet_dev_store(&sk->snd_limit, 0);
	gnet_dev_store(&sk->rx_head, 0);
	gnet_dev_store(&sk->rx_ring, 0);
	gnet_dev_store(&sk->tx_tail, 0);
	gnet_dev_store(&sk->tx_head, 0);
	gnet_dev_store(&sk->tx_seg, 0);
	gnet_dev_store_release(&sk->rx, gen | state);
	gnet_dev_store_release(&sk->tx, gen | state);
	gnet_dev_store_release(&sk->life, gen << GNET_L_GEN_SHIFT);
}

#endif
