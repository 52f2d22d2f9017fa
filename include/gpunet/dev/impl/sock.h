/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A socket's life among blocks: entering and leaving, taking and giving back a side; its error. One thread runs each of these.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_SOCK_H
#define GPUNET_DEV_IMPL_SOCK_H

#include <gpunet/dev/impl/bus.h>

/* The socket in a descriptor's slot, whether it is alive or not; NULL: no such slot. */
GNET_DEV struct gnet_sock *gnet__slot(gnet_t *net, int fd)
{
	uint32_t slot = GNET_FD_SLOT(fd);

	return fd >= 0 && GNET_FD_GEN(fd) && slot < net->max_socks ? &net->socks[slot] : 0;
}

/* May a call with this descriptor go on, given one of its socket's words? */
GNET_DEV int gnet__alive(uint64_t word, int fd)
{
	return word >> GNET_L_GEN_SHIFT == GNET_FD_GEN(fd) && !(word & GNET_L_CLOSING);
}

/*
 * Takes one side of a socket (&sk->rx or &sk->tx), waiting while another call holds it unless `dontwait`. `state`:
 * GNET_L_CONNECTED or GNET_L_LISTENING, which the side must have. 0 and *word, what the side was; or -EBADF, -EAGAIN, why the wait
 * ended, or `wrong` for another state. The first guess, a free side, is right for most calls and then costs one atomic.
 */
GNET_DEV int gnet__take(gnet_t *net, int fd, uint64_t *side, uint64_t state, int wrong,
			int dontwait, uint64_t *word)
{
	uint64_t guess = (uint64_t)GNET_FD_GEN(fd) << GNET_L_GEN_SHIFT | state, turn = 0;

	for (;;) {
		uint64_t old = gnet_dev_cas_acquire(side, guess, guess | GNET_L_HELD);

		if (old == guess) {
			*word = old;
			return 0;
		}
		while (old & GNET_L_HELD && gnet__alive(old, fd)) {
			int rc = dontwait ? -GNET__EAGAIN : gnet__spin(net, &turn);

			if (rc)
				return rc;
			old = gnet_dev_load(side);
		}
		if (!gnet__alive(old, fd))
			return -GNET__EBADF;
		if ((old & state) != state)
			return wrong;
		guess = old;
	}
}

/* Gives a side back. */
GNET_DEV void gnet__give(uint64_t *side)
{
	gnet_dev_clear_release(side, GNET_L_HELD);
}

/* gnet__spin for the holder of a side: also ends when the socket is being closed (a GPU looks every 8th turn). */
GNET_DEV int gnet__side_spin(gnet_t *net, uint64_t *side, uint64_t *turn)
{
#ifdef __CUDACC__
	if (*turn & 7u)
		return gnet__spin(net, turn);
#endif
	if (gnet_dev_load(side) & GNET_L_CLOSING)
		return -GNET__EBADF;
	return gnet__spin(net, turn);
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
		if (!gnet__alive(old, fd))
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
	uint64_t gen = (uint64_t)GNET_FD_GEN(fd) << GNET_L_GEN_SHIFT;

	sk->queue = gnet__queue(net, fd);
	sk->rx_head = 0;
	sk->rx_tail = 0;
	sk->rx_seg = 0;
	sk->tx_tail = 0;
	sk->tx_head = 0;
	sk->tx_seg = 0;
	gnet_dev_store_release(&sk->rx, gen | state);
	gnet_dev_store_release(&sk->tx, gen | state);
	gnet_dev_store_release(&sk->life, gen);
}

/* The socket's error, reported once; afterwards `later`. */
GNET_DEV int64_t gnet__sock_error(gnet_t *net, int fd, struct gnet_sock *sk, int64_t later)
{
	struct gnet_sock_bus *bus = &net->bus[GNET_FD_SLOT(fd)];
	uint64_t txw;
	int err;

	(void)gnet_sys_load_acquire(
		&bus->line.cell[0]); /* R3: the errno was stored before the flag */
	txw = gnet_sys_load_acquire(&bus->txw);
	err = (int)(txw >> GNET_TXW_ERR_SHIFT & 0xff);

	if (gnet_dev_or(&sk->life, GNET_L_ERR_SEEN) & GNET_L_ERR_SEEN)
		return later;
	/* Sends look for errors across the bus now and then only; this one they need not look for. */
	gnet_dev_or(&sk->tx, GNET_L_ERR_SEEN);
	return -(int64_t)(err ? err : GNET__EIO);
}

#endif
