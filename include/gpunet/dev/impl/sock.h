/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A socket's life among blocks: entering, taking a direction, leaving; its error. One thread runs each of these.
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

/*
 * Enters the socket as a user and, if `side` is GNET_L_RX or GNET_L_TX, takes that direction, in one atomic; waits while it is
 * held unless `dontwait`. `state`: GNET_L_CONNECTED, GNET_L_LISTENING or 0, which the socket must have and most probably
 * has. 0, or -EBADF, -EAGAIN, why the wait ended, or `wrong` for another state.
 */
GNET_DEV int gnet__enter(gnet_t *net, int fd, uint64_t side, uint64_t state, int wrong,
			 int dontwait)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	uint64_t gen = (uint64_t)GNET_FD_GEN(fd) << GNET_L_GEN_SHIFT, guess = gen | state, turn = 0;

	if (!sk)
		return -GNET__EBADF;
	for (;;) {
		uint64_t old = gnet_dev_cas(&sk->life, guess, (guess + 1) | side);
		int rc;

		if (old == guess)
			return 0;
		if (old >> GNET_L_GEN_SHIFT != GNET_FD_GEN(fd) || (old & GNET_L_CLOSING))
			return -GNET__EBADF;
		if ((old & state) != state)
			return wrong;
		guess = old;
		while (guess & side) {
			if (dontwait)
				return -GNET__EAGAIN;
			rc = gnet__spin(net, &turn);
			if (rc)
				return rc;
			guess = gnet_dev_load(&sk->life);
			if (guess >> GNET_L_GEN_SHIFT != GNET_FD_GEN(fd) ||
			    (guess & GNET_L_CLOSING))
				return -GNET__EBADF;
		}
	}
}

/* Gives the direction back and leaves. */
GNET_DEV void gnet__leave(struct gnet_sock *sk, uint64_t side)
{
	gnet_dev_add(&sk->life, ~(side + 1) + 1);
}

/* gnet__spin for a user of a socket: also ends when the socket is being closed. */
GNET_DEV int gnet__sock_spin(gnet_t *net, struct gnet_sock *sk, uint64_t *turn)
{
	if (gnet_dev_load(&sk->life) & GNET_L_CLOSING)
		return -GNET__EBADF;
	return gnet__spin(net, turn);
}

/* Brings a descriptor that the proxy has just given out to life among blocks. */
GNET_DEV void gnet__sock_init(gnet_t *net, int fd, uint64_t state)
{
	struct gnet_sock *sk = &net->socks[GNET_FD_SLOT(fd)];

	sk->rx_head = 0;
	sk->rx_tail = 0;
	sk->rx_seg = 0;
	sk->tx_tail = 0;
	sk->tx_head = 0;
	sk->tx_seg = 0;
	sk->tx_looks = 0;
	gnet_dev_store_release(&sk->life, (uint64_t)GNET_FD_GEN(fd) << GNET_L_GEN_SHIFT | state);
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
	return -(int64_t)(err ? err : GNET__EIO);
}

#endif
