/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Socket options: time limits and the error are kernels' own business, all others are the proxy's and the host's socket's.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_OPTION_H
#define GPUNET_DEV_IMPL_OPTION_H

#include <gpunet/dev/impl/socket.h>

#define GNET__NS_A_SEC INT64_C(1000000000)

/* The limit that an option's name means, NULL if it means none. */
GNET_DEV uint64_t *gnet__limit_of(struct gnet_sock *sk, int level, int name)
{
	if (level != GNET_SOL_SOCKET)
		return 0;
	if (name == GNET_SO_RCVTIMEO)
		return &sk->rcv_limit;
	return name == GNET_SO_SNDTIMEO ? &sk->snd_limit : 0;
}

/* Bytes, since a value need not be aligned. */
GNET_DEV void gnet__bytes(void *to, const void *from, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		((uint8_t *)to)[i] = ((const uint8_t *)from)[i];
}

GNET_DEV int gnet__limit_set(uint64_t *limit, const void *val, uint32_t len)
{
	int64_t t[2]; /* struct timeval */

	if (len < sizeof(t))
		return -GNET__EINVAL;
	gnet__bytes(t, val, sizeof(t));
	if (t[0] < 0 || t[1] < 0 || t[1] > 999999)
		return -GNET__EDOM;
	/* Longer than a century is no limit. */
	if (t[0] > INT64_C(3200000000))
		t[0] = t[1] = 0;
	gnet_dev_store_release(limit, (uint64_t)(t[0] * GNET__NS_A_SEC + t[1] * 1000));
	return 0;
}

GNET_DEV uint32_t gnet__limit_get(uint64_t *limit, void *val, uint32_t room)
{
	int64_t ns = (int64_t)gnet_dev_load(limit), t[2];

	t[0] = ns / GNET__NS_A_SEC;
	t[1] = ns % GNET__NS_A_SEC / 1000;
	room = room < sizeof(t) ? room : (uint32_t)sizeof(t);
	gnet__bytes(val, t, room);
	return room;
}

/* A command with a value: the argument goes out and comes back. */
GNET__COLD int64_t gnet__call_opt(gnet_t *net, uint32_t op, int fd, int level, int name, void *val,
				  uint32_t len)
{
	int64_t value = 0;
	int call, rc;

	if (level < 0 || level > 0xffff || name < 0 || name > 0xffff)
		return -GNET__ENOPROTOOPT;
	if (len > GNET_CALL_ARG)
		len = GNET_CALL_ARG;
	call = gnet__call_take(net);
	if (call < 0)
		return call;
	if (op == GNET_OP_SETOPT)
		gnet__bytes(net->calls[call].arg, val, len);
	rc = gnet__call_wait(net, gnet__queue(net, fd), call, op, fd, 0, GNET_OPT(level, name, len),
			     &value);
	if (rc)
		return rc;
	if (op == GNET_OP_GETOPT && value > 0)
		gnet__bytes(val, net->calls[call].arg,
			    (uint32_t)value < len ? (uint32_t)value : len);
	gnet__call_free(net, call);
	return value;
}

GNET__COLD int64_t gnet__setsockopt(gnet_t *net, int fd, int level, int name, const void *val,
				    uint32_t len)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	int64_t rc = gnet__enter(net, fd);

	if (rc)
		return rc;
	if (!val)
		rc = -GNET__EINVAL;
	else if (gnet__limit_of(sk, level, name))
		rc = gnet__limit_set(gnet__limit_of(sk, level, name), val, len);
	else
		rc = gnet__call_opt(net, GNET_OP_SETOPT, fd, level, name, (void *)(uintptr_t)val,
				    len);
	gnet__leave(sk);
	return rc;
}

/* The value's length, or why there is none. */
GNET_DEV int64_t gnet__getsockopt(gnet_t *net, int fd, struct gnet_sock *sk, int level, int name,
				  void *val, uint32_t room)
{
	uint64_t *limit = gnet__limit_of(sk, level, name);
	int err;

	if (limit)
		return gnet__limit_get(limit, val, room);
	if (level != GNET_SOL_SOCKET || name != GNET_SO_ERROR)
		return gnet__call_opt(net, GNET_OP_GETOPT, fd, level, name, val, room);
	err = (int)-gnet__sock_error(net, fd, sk, 0);
	room = room < sizeof(err) ? room : (uint32_t)sizeof(err);
	gnet__bytes(val, &err, room);
	return room;
}

GNET__COLD int64_t gnet__get_option(gnet_t *net, int fd, int level, int name, void *val,
				    uint32_t *len)
{
	int64_t rc = gnet__enter(net, fd);

	if (rc)
		return rc;
	rc = val && len ? gnet__getsockopt(net, fd, gnet__slot(net, fd), level, name, val, *len)
			: -GNET__EINVAL;
	if (rc >= 0) {
		*len = (uint32_t)rc;
		rc = 0;
	}
	gnet__leave(gnet__slot(net, fd));
	return rc;
}

GNET__COLD int64_t gnet__fcntl(gnet_t *net, int fd, int cmd, int arg)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	int64_t rc = gnet__enter(net, fd);

	if (rc)
		return rc;
	if (cmd == GNET_F_GETFL) {
		rc = GNET_O_RDWR;
		if (gnet_dev_load(&sk->rx) & GNET_L_NONBLOCK)
			rc |= GNET_O_NONBLOCK;
	} else if (cmd != GNET_F_SETFL) {
		rc = -GNET__EINVAL;
	} else if (arg & GNET_O_NONBLOCK) {
		gnet_dev_or(&sk->rx, GNET_L_NONBLOCK);
		gnet_dev_or(&sk->tx, GNET_L_NONBLOCK);
	} else {
		gnet_dev_and(&sk->rx, ~(uint64_t)GNET_L_NONBLOCK);
		gnet_dev_and(&sk->tx, ~(uint64_t)GNET_L_NONBLOCK);
	}
	gnet__leave(sk);
	return rc;
}

GNET_DEV int gfcntl(gnet_t *net, int fd, int cmd, int arg)
{
	GNET__BY_THREAD_0(gnet__fcntl(net, fd, cmd, arg));
}

GNET_DEV int gsetsockopt(gnet_t *net, int fd, int level, int name, const void *val, uint32_t len)
{
	GNET__BY_THREAD_0(gnet__setsockopt(net, fd, level, name, val, len));
}

GNET_DEV int ggetsockopt(gnet_t *net, int fd, int level, int name, void *val, uint32_t *len)
{
	GNET__BY_THREAD_0(gnet__get_option(net, fd, level, name, val, len));
}

#endif
