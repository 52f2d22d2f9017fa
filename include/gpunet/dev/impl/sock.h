/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A socket's life among blocks: entering and leaving, its two directions' locks, its error. One thread runs each of these.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_SOCK_H
#define GPUNET_DEV_IMPL_SOCK_H

#include <gpunet/dev/impl/bus.h>

/* Enters the socket as a user; NULL: there is no such descriptor (-EBADF). */
GNET_DEV struct gnet_sock *gnet__enter(gnet_t *net, int fd)
{
	uint32_t slot = GNET_FD_SLOT(fd), gen = GNET_FD_GEN(fd);
	struct gnet_sock *sk;
	uint64_t life;

	if (fd < 0 || !gen || slot >= net->max_socks)
		return 0;
	sk = &net->socks[slot];
	life = gnet_dev_load(&sk->life);
	for (;;) {
		uint64_t old;

		if (life >> GNET_LIFE_GEN_SHIFT != gen || (life & GNET_LIFE_CLOSING))
			return 0;
		old = gnet_dev_cas(&sk->life, life, life + 1);
		if (old == life)
			return sk;
		life = old;
	}
}

GNET_DEV void gnet__leave(struct gnet_sock *sk)
{
	gnet_dev_add(&sk->life, ~(uint64_t)0);
}

/* gnet__spin for a user of a socket: also ends when the socket is being closed. */
GNET_DEV int gnet__sock_spin(gnet_t *net, struct gnet_sock *sk, uint64_t *turn)
{
	if (gnet_dev_load(&sk->life) & GNET_LIFE_CLOSING)
		return -GNET__EBADF;
	return gnet__spin(net, turn);
}

/* Takes a direction. */
GNET_DEV int gnet__lock(gnet_t *net, struct gnet_sock *sk, uint64_t *lock, int dontwait)
{
	uint64_t turn = 0;

	while (gnet_dev_load(lock) || gnet_dev_cas(lock, 0, 1)) {
		int rc;

		if (dontwait)
			return -GNET__EAGAIN;
		rc = gnet__sock_spin(net, sk, &turn);
		if (rc)
			return rc;
	}
	return 0;
}

GNET_DEV void gnet__unlock(uint64_t *lock)
{
	gnet_dev_store_release(lock, 0);
}

/* Brings a descriptor that the proxy has just given out to life among blocks. */
GNET_DEV void gnet__sock_init(gnet_t *net, int fd, uint64_t flags)
{
	struct gnet_sock *sk = &net->socks[GNET_FD_SLOT(fd)];

	sk->flags = flags;
	sk->rx_lock = 0;
	sk->tx_lock = 0;
	sk->rx_head = 0;
	sk->rx_tail = 0;
	sk->rx_seg = 0;
	sk->tx_tail = 0;
	sk->tx_head = 0;
	sk->tx_seg = 0;
	sk->tx_looks = 0;
	gnet_dev_store_release(&sk->life, (uint64_t)GNET_FD_GEN(fd) << GNET_LIFE_GEN_SHIFT);
}

/* The socket's error, reported once; afterwards `later`. */
GNET_DEV int64_t gnet__sock_error(gnet_t *net, int fd, struct gnet_sock *sk, int64_t later)
{
	struct gnet_sock_bus *bus = &net->bus[GNET_FD_SLOT(fd)];
	uint64_t txw;
	int err;

	(void)gnet_sys_load_acquire(&bus->line.cell[0]); /* R3: the errno was stored before the flag */
	txw = gnet_sys_load_acquire(&bus->txw);
	err = (int)(txw >> GNET_TXW_ERR_SHIFT & 0xff);

	if (gnet_dev_or(&sk->flags, GNET_F_ERR_SEEN) & GNET_F_ERR_SEEN)
		return later;
	return -(int64_t)(err ? err : GNET__EIO);
}

#endif
