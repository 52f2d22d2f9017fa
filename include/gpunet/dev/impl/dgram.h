/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datagrams: whole records in a socket's rings, entries and line (docs/bus.md, rules D). Kernels that only use streams carry these
 * bodies too, since a descriptor may be of either kind; on a GPU they are real functions, so that they cost streams nothing.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_DGRAM_H
#define GPUNET_DEV_IMPL_DGRAM_H

#include <gpunet/dev/impl/stream.h>

/* The longest UDP datagram: IPv4 and IPv6. */
#define GNET__UDP_MAX 65507u
#define GNET__UDP6_MAX 65527u

GNET_DEV uint64_t gnet__round16(uint64_t n)
{
	return (n + 15) & ~(uint64_t)15;
}

GNET_DEV uint64_t gnet__iov_len(const struct gnet_iovec *iov, uint32_t n)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		sum += iov[i].len;
	return sum;
}

/* ---- receive ---------------------------------------------------------------------------------------------------------- */

/* A byte of the record that was found, `at` bytes after its begin. */
GNET_DEV uint8_t gnet__rec_byte(gnet_t *net, const struct gnet__scratch *s, uint64_t at)
{
	uint64_t k = s->at + at, mask = ((uint64_t)1 << net->seg_log2) - 1;

	if (s->cells)
		return (uint8_t)(s->cell[1 + k / GNET_CELL_DATA] >> (8 + 8 * (k % GNET_CELL_DATA)));
	return net->slab[(s->seg << net->seg_log2) + (k & mask)];
}

/* Thread 0: the record's header, whole, into the scratch. */
GNET_DEV void gnet__rec_header(gnet_t *net, struct gnet__scratch *s)
{
	uint8_t *to = (uint8_t *)&s->rec;
	uint32_t i;

	for (i = 0; i < sizeof(s->rec); i++)
		to[i] = gnet__rec_byte(net, s, i);
}

/* Thread 0: checks and takes the receive side. */
GNET_DEV void gnet__dgram_recv_begin(gnet_t *net, int fd, struct gnet__scratch *s, int flags,
				     const uint32_t *alen)
{
	const int known = GNET_MSG_PEEK | GNET_MSG_DONTWAIT | GNET_MSG_WAITALL | GNET_MSG_NOSIGNAL |
			  GNET_MSG_TRUNC;
	struct gnet_sock *sk = gnet__slot(net, fd);
	int rc = flags & ~known ? -GNET__EOPNOTSUPP : sk ? 0 : -GNET__EBADF;

	s->room = alen ? *alen : 0;
	if (!rc) {
		gnet__wait_begin(&s->wait, &sk->rcv_limit, flags);
		s->wait.dgram = 1;
		rc = gnet__take(net, fd, &sk->rx, GNET_L_DGRAM, GNET__IS_STREAM, &s->wait);
	}
	s->sk = rc ? 0 : sk;
	s->fail = rc;
}

/* All threads: the record's bytes, to where they are wanted: how many. */
GNET_DEV uint64_t gnet__dgram_move(struct gnet__scope sc, gnet_t *net,
				   const struct gnet__scratch *s, const struct gnet_iovec *iov,
				   uint32_t n)
{
	uint64_t at = sizeof(s->rec) + s->rec.addr_room, left = s->rec.stored, k;
	uint32_t i;

	for (i = 0; i < n && left; i++) {
		uint8_t *dst = (uint8_t *)iov[i].base;
		uint64_t part = iov[i].len < left ? iov[i].len : left;

		if (!s->cells)
			gnet__ring_read(sc, net, gnet__rings_of(net), s->seg, s->at + at, dst,
					part);
		for (k = sc.tid; s->cells && k < part; k += sc.n)
			dst[k] = gnet__rec_byte(net, s, at + k);
		at += part;
		left -= part;
	}
	return s->rec.stored - left;
}

/* What a receive tells besides its count; members may be NULL. */
struct gnet__from {
	void *addr;
	uint32_t *len;  /* in: room at addr, out: the address's length */
	int *out_flags; /* MSG_TRUNC */
};

/* The record that was found: moved, told of and, unless it is only looked at, consumed. */
GNET_DEV int64_t gnet__dgram_got(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				 int fd, const struct gnet_iovec *iov, uint32_t n, int flags,
				 struct gnet__from from)
{
	uint32_t room = from.addr ? s->room : 0, alen = s->rec.addr_len, i;
	uint64_t size = sizeof(s->rec) + s->rec.addr_room + gnet__round16(s->rec.stored),
		 whole = s->rec.len, got = gnet__dgram_move(sc, net, s, iov, n);

	for (i = sc.tid; i < alen && i < room; i += sc.n)
		((uint8_t *)from.addr)[i] = gnet__rec_byte(net, s, sizeof(s->rec) + i);
	gnet__sync(sc);
	if (sc.tid == 0) {
		if (from.len)
			*from.len = alen;
		if (from.out_flags)
			*from.out_flags = got < whole ? GNET_MSG_TRUNC : 0;
		if (!(flags & GNET_MSG_PEEK))
			gnet__recv_done(net, fd, s->sk, s->head + size, (int)s->cells);
	}
	return flags & GNET_MSG_TRUNC ? (int64_t)whole : (int64_t)got;
}

GNET__COLD int64_t gnet__dgram_recv(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				    int fd, const struct gnet_iovec *iov, uint32_t n, int flags,
				    struct gnet__from from)
{
	struct gnet_sock *sk;
	int64_t rc;

	gnet__sync(sc);
	if (sc.tid == 0)
		gnet__dgram_recv_begin(net, fd, s, flags, from.len);
	gnet__sync(sc);
	sk = s->sk;
	if (!sk) {
		rc = s->fail;
		gnet__sync(sc);
		return rc;
	}
	if (sc.tid < sc.lanes) {
		gnet__recv_plan(sc, net, fd, s, INT64_MAX, 0);
		if (sc.tid == 0 && s->rc > 0)
			gnet__rec_header(net, s);
	}
	gnet__sync(sc);
	rc = s->rc;
	if (rc > 0)
		rc = gnet__dgram_got(sc, s, net, fd, iov, n, flags, from);
	gnet__sync(sc);
	if (sc.tid == 0)
		gnet__give(&sk->rx, GNET_L_HELD);
	return rc;
}

/* ---- send -------------------------------------------------------------------------------------------------------------- */

/* The longest datagram of a socket, were the rings endless. */
GNET_DEV uint64_t gnet__dgram_max(const struct gnet_sock *sk)
{
	if (sk->domain == GNET_AF_INET)
		return GNET__UDP_MAX;
	return sk->domain == GNET_AF_INET6 ? GNET__UDP6_MAX : 0xffffffffu;
}

/* Thread 0: checks, and takes the send side. */
GNET_DEV void gnet__dgram_send_begin(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t len,
				     int flags, const void *addr, uint32_t alen)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	int rc = flags & ~(GNET_MSG_DONTWAIT | GNET_MSG_NOSIGNAL) ? -GNET__EOPNOTSUPP : 0;

	if (!rc && !sk)
		rc = -GNET__EBADF;
	if (!rc) {
		gnet__wait_begin(&s->wait, &sk->snd_limit, flags);
		s->wait.dgram = 1;
		rc = gnet__take(net, fd, &sk->tx, GNET_L_DGRAM, GNET__IS_STREAM, &s->wait);
	}
	s->sk = rc ? 0 : sk;
	s->fail = rc;
	if (rc)
		return;
	if (s->wait.word & GNET_L_SHUT_WR)
		s->fail = -GNET__EPIPE;
	else if (addr && (alen < 2 || alen > GNET_DGRAM_ADDR_MAX))
		s->fail = -GNET__EINVAL;
	else if (!addr && !(s->wait.word & GNET_L_CONNECTED))
		s->fail = -GNET__EDESTADDRREQ;
	else if (len > gnet__dgram_max(sk))
		s->fail = -GNET__EMSGSIZE;
}

/* Thread 0: waits for room for a record of `size` bytes and finds its place: 0, or why not. */
GNET_DEV int gnet__dgram_place(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t size)
{
	struct gnet_sock *sk = s->sk;
	struct gnet__tx t;
	uint64_t pos;
	int64_t n;
	int rc = 0;

	s->cells = size <= GNET_INLINE_MAX;
	s->no_seg = 0;
	if (size > (uint64_t)1 << net->seg_log2)
		return -GNET__EMSGSIZE;
	if (!s->cells)
		rc = gnet__send_attach(net, fd, s);
	if (rc)
		return rc;
	t = gnet__tx_load(sk);
	if (!s->cells && !t.seg)
		return -GNET__ENOBUFS;
	if (s->rec.addr_len)
		s->wait.some =
			1; /* an earlier error is somebody else's: this one is sent all the same */
	else
		t.looks = GNET__TX_LOOK; /* an error of a datagram before this one is told now */
	n = gnet__send_wait(net, fd, sk, t, size, &s->wait);
	if (n < (int64_t)size)
		return n < 0 ? (int)n : -GNET__EAGAIN;
	s->at = t.tail;
	s->seg = t.seg - 1;
	if (!s->cells)
		return 0;
	rc = gnet__reserve(net, (uint32_t)sk->queue, &pos);
	if (rc)
		return rc;
	gnet_dev_store(&sk->tx_tail, t.tail + size);
	gnet__at_place(net, s, (uint32_t)sk->queue, pos);
	return 0;
}

/* A byte of the record that is being sent. */
GNET_DEV uint8_t gnet__out_byte(const struct gnet__scratch *s, const struct gnet_iovec *iov,
				uint32_t n, const void *addr, uint64_t at)
{
	uint32_t i;

	if (at < sizeof(s->rec))
		return ((const uint8_t *)&s->rec)[at];
	at -= sizeof(s->rec);
	if (at < s->rec.addr_room)
		return at < s->rec.addr_len ? ((const uint8_t *)addr)[at] : 0;
	at -= s->rec.addr_room;
	for (i = 0; i < n; i++) {
		if (at < iov[i].len)
			return ((const uint8_t *)iov[i].base)[at];
		at -= iov[i].len;
	}
	return 0;
}

/* Lanes: the record rides in the entry. */
GNET_DEV void gnet__dgram_cells(struct gnet__scope sc, gnet_t *net, int fd,
				const struct gnet__scratch *s, const struct gnet_iovec *iov,
				uint32_t n, const void *addr, uint64_t size)
{
	uint32_t i, k;

	for (i = sc.tid; i < GNET_CELLS; i += sc.lanes) {
		uint64_t v = s->tag;

		if (i == 0)
			v |= gnet__cell0(GNET_OP_SEND, fd, (uint32_t)size);
		for (k = 0; i && k < GNET_CELL_DATA; k++) {
			uint64_t at = (uint64_t)(i - 1) * GNET_CELL_DATA + k;

			if (at < size)
				v |= (uint64_t)gnet__out_byte(s, iov, n, addr, at) << (8 + 8 * k);
		}
		gnet_sys_store(&s->entry->cell[i], v);
	}
	gnet__sync_lanes(sc);
	if (sc.tid == 0)
		gnet__kick(net, (uint32_t)s->sk->queue);
}

/* All threads: the record into the ring. */
GNET_DEV void gnet__dgram_ring(struct gnet__scope sc, gnet_t *net, const struct gnet__scratch *s,
			       const struct gnet_iovec *iov, uint32_t n, const void *addr)
{
	uint64_t at = s->at + sizeof(s->rec) + s->rec.addr_room,
		 mask = ((uint64_t)1 << net->seg_log2) - 1;
	uint8_t *ring = net->slab + (s->seg << net->seg_log2);
	uint32_t i, front = (uint32_t)sizeof(s->rec) + s->rec.addr_room;

	for (i = sc.tid; i < front; i += sc.n)
		ring[(s->at + i) & mask] = gnet__out_byte(s, iov, n, addr, i);
	for (i = 0; i < n; i++) {
		gnet__ring_write(sc, net, gnet__rings_of(net), s->seg, at,
				 (const uint8_t *)iov[i].base, iov[i].len);
		at += iov[i].len;
	}
}

GNET__COLD int64_t gnet__dgram_send(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				    int fd, const struct gnet_iovec *iov, uint32_t n, int flags,
				    const void *addr, uint32_t alen)
{
	uint64_t len = gnet__iov_len(iov, n),
		 size = sizeof(s->rec) + (addr ? gnet__round16(alen) : 0) + gnet__round16(len);
	struct gnet_sock *sk;
	int rc;

	gnet__sync(sc);
	if (sc.tid == 0) {
		gnet__dgram_send_begin(net, fd, s, len, flags, addr, alen);
		s->rec.len = s->rec.stored = (uint32_t)len;
		s->rec.addr_len = (uint16_t)(addr ? alen : 0);
		s->rec.addr_room = (uint16_t)gnet__round16(s->rec.addr_len);
		s->rec.pad = 0;
		if (!s->fail)
			s->fail = gnet__dgram_place(net, fd, s, size);
	}
	gnet__sync(sc);
	sk = s->sk;
	rc = s->fail;
	if (!rc && s->cells && sc.tid < sc.lanes)
		gnet__dgram_cells(sc, net, fd, s, iov, n, addr, size);
	else if (!rc && !s->cells)
		gnet__dgram_ring(sc, net, s, iov, n, addr);
	gnet__sync(sc);
	if (!rc && !s->cells) {
		if (sc.tid == 0)
			s->fail = gnet__send_tail(net, fd, sk, size);
		gnet__sync(sc);
		rc = s->fail;
		gnet__sync(sc); /* the next call of thread 0 may write it */
	}
	if (sc.tid == 0 && sk)
		gnet__send_end(net, fd, sk);
	return rc ? rc : (int64_t)len;
}

GNET__COLD int64_t gnet__send_one(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				  int fd, const void *buf, uint64_t len, int flags)
{
	struct gnet_iovec iov;

	iov.base = (void *)(uintptr_t)buf;
	iov.len = len;
	return gnet__dgram_send(sc, s, net, fd, &iov, 1, flags, 0, 0);
}

GNET__COLD int64_t gnet__recv_one(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				  int fd, void *buf, uint64_t len, int flags)
{
	struct gnet_iovec iov;
	struct gnet__from from;
	int64_t rc;

	iov.base = buf;
	iov.len = len;
	from.addr = 0;
	from.len = 0;
	from.out_flags = 0;
	rc = gnet__dgram_recv(sc, s, net, fd, &iov, 1, flags, from);
	return rc == GNET__IS_STREAM ? -GNET__EOPNOTSUPP : rc; /* a flag that streams do not have */
}

/* ---- the calls ----------------------------------------------------------------------------------------------------------- */

GNET__COLD int64_t gnet__sendto(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net, int fd,
				const void *buf, uint64_t len, int flags, const void *addr,
				uint32_t alen)
{
	struct gnet_iovec iov;
	int64_t rc;

	iov.base = (void *)(uintptr_t)buf;
	iov.len = len;
	rc = gnet__dgram_send(sc, s, net, fd, &iov, 1, flags, addr, alen);
	if (rc != GNET__IS_STREAM)
		return rc;
	if (addr)
		return -GNET__EISCONN;
	return gnet__send(sc, s, net, fd, buf, len, flags);
}

GNET__COLD int64_t gnet__recvfrom(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				  int fd, void *buf, uint64_t len, int flags, void *addr,
				  uint32_t *alen)
{
	struct gnet__from from;
	struct gnet_iovec iov;
	int64_t rc;

	if (addr && !alen) {
		gnet__sync(sc);
		return -GNET__EINVAL;
	}
	iov.base = buf;
	iov.len = len;
	from.addr = addr;
	from.len = alen;
	from.out_flags = 0;
	rc = gnet__dgram_recv(sc, s, net, fd, &iov, 1, flags, from);
	if (rc != GNET__IS_STREAM)
		return rc;
	rc = gnet__recv(sc, s, net, fd, buf, len, flags);
	if (sc.tid == 0 && alen && rc >= 0)
		*alen = 0; /* a stream's bytes have no address */
	gnet__sync(sc);
	return rc;
}

GNET_DEV int64_t gsendto(gnet_t *net, int fd, const void *buf, uint64_t len, int flags,
			 const void *addr, uint32_t alen)
{
	return gnet__sendto(gnet__scope_of(GNET__BLOCK), gnet__block_scratch(), net, fd, buf, len,
			    flags, addr, alen);
}

GNET_DEV int64_t gsendto_warp(gnet_t *net, int fd, const void *buf, uint64_t len, int flags,
			      const void *addr, uint32_t alen)
{
	return gnet__sendto(gnet__scope_of(GNET__WARP), gnet__warp_scratch(), net, fd, buf, len,
			    flags, addr, alen);
}

GNET_DEV int64_t gsendto_thread(gnet_t *net, int fd, const void *buf, uint64_t len, int flags,
				const void *addr, uint32_t alen)
{
	struct gnet__scratch s;

	gnet__forget(&s);
	return gnet__sendto(gnet__scope_of(GNET__THREAD), &s, net, fd, buf, len, flags, addr, alen);
}

GNET_DEV int64_t grecvfrom(gnet_t *net, int fd, void *buf, uint64_t len, int flags, void *addr,
			   uint32_t *alen)
{
	return gnet__recvfrom(gnet__scope_of(GNET__BLOCK), gnet__block_scratch(), net, fd, buf, len,
			      flags, addr, alen);
}

GNET_DEV int64_t grecvfrom_warp(gnet_t *net, int fd, void *buf, uint64_t len, int flags, void *addr,
				uint32_t *alen)
{
	return gnet__recvfrom(gnet__scope_of(GNET__WARP), gnet__warp_scratch(), net, fd, buf, len,
			      flags, addr, alen);
}

GNET_DEV int64_t grecvfrom_thread(gnet_t *net, int fd, void *buf, uint64_t len, int flags,
				  void *addr, uint32_t *alen)
{
	struct gnet__scratch s;

	gnet__forget(&s);
	return gnet__recvfrom(gnet__scope_of(GNET__THREAD), &s, net, fd, buf, len, flags, addr,
			      alen);
}

#endif
