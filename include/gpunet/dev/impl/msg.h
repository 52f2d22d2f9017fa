/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gsendmsg and grecvmsg: bytes gathered from several buffers and scattered to several, of streams and datagrams.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_MSG_H
#define GPUNET_DEV_IMPL_MSG_H

#include <gpunet/dev/impl/dgram.h>

/* Linux's UIO_MAXIOV. */
#define GNET__IOV_MAX 1024u

/* All threads: may the call begin? 0 or why not. */
GNET_DEV int gnet__msg_check(const struct gnet_iovec *iov, uint64_t n)
{
	uint64_t sum = 0, i;

	if (n > GNET__IOV_MAX)
		return -GNET__EMSGSIZE;
	if (n && !iov)
		return -GNET__EINVAL;
	for (i = 0; i < n; i++) {
		if (iov[i].len > INT64_MAX - sum)
			return -GNET__EINVAL;
		sum += iov[i].len;
	}
	return 0;
}

/* ---- streams ----------------------------------------------------------------------------------------------------------- */

/* One buffer of several: its bytes that were sent, and in *rc why not all of them were. */
GNET_DEV uint64_t gnet__send_part(struct gnet__scope sc, gnet_t *net, int fd,
				  struct gnet__scratch *s, const struct gnet_iovec *part,
				  int64_t *rc)
{
	const uint8_t *src = (const uint8_t *)part->base;
	uint64_t sent = 0;

	while (sent < part->len) {
		gnet__sync(sc); /* all have read what the step before left */
		*rc = gnet__send_step(sc, net, fd, s, src + sent, part->len - sent);
		if (*rc <= 0)
			break;
		sent += (uint64_t)*rc;
		if (sc.tid == 0)
			gnet__wait_on(&s->wait);
	}
	return sent;
}

/* The send side is held to the end, so the bytes of all buffers stay together. */
GNET__COLD int64_t gnet__send_parts(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				    int fd, const struct gnet_iovec *iov, uint32_t n, int flags)
{
	struct gnet_sock *sk;
	uint64_t sent = 0;
	int64_t rc = 0;
	uint32_t i;

	gnet__sync(sc);
	if (sc.tid == 0)
		gnet__send_begin(net, fd, s, flags);
	gnet__sync(sc);
	sk = s->sk;
	if (!sk) {
		rc = s->fail;
		gnet__sync(sc);
		return rc;
	}
	for (i = 0; i < n && rc >= 0; i++) {
		uint64_t part = gnet__send_part(sc, net, fd, s, &iov[i], &rc);

		sent += part;
		if (part < iov[i].len)
			break;
	}
	gnet__sync(sc);
	if (sc.tid == 0)
		gnet__send_end(net, fd, sk);
	return sent ? (int64_t)sent : rc;
}

/* All threads: this step's `n` bytes, to the place that begins `skip` bytes after the first buffer's begin. */
GNET_DEV void gnet__recv_scatter(struct gnet__scope sc, gnet_t *net, const struct gnet__scratch *s,
				 const struct gnet_iovec *iov, uint64_t skip, uint64_t n)
{
	uint64_t at = 0, k;

	for (; n; iov++) {
		uint64_t part = iov->len - skip;
		uint8_t *dst = (uint8_t *)iov->base + skip;

		if (skip >= iov->len) {
			skip -= iov->len;
			continue;
		}
		part = part < n ? part : n;
		if (!s->cells)
			gnet__ring_read(sc, net, gnet__rings_of(net), s->seg, s->at + at, dst,
					part);
		for (k = sc.tid; s->cells && k < part; k += sc.n)
			dst[k] = gnet__rec_byte(net, s, at + k);
		at += part;
		n -= part;
		skip = 0;
	}
}

/* gnet__recv, into several buffers. */
GNET__COLD int64_t gnet__recv_parts(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				    int fd, const struct gnet_iovec *iov, uint32_t n, int flags)
{
	uint64_t len = gnet__iov_len(iov, n), got = 0, head;
	struct gnet_sock *sk;
	int64_t rc;
	int anew;

	gnet__sync(sc);
	if (sc.tid == 0)
		gnet__recv_begin(net, fd, s, flags);
	gnet__sync(sc);
	sk = s->sk;
	if (!sk) {
		rc = s->fail;
		gnet__sync(sc);
		return rc == GNET__IS_DGRAM ? -GNET__EOPNOTSUPP : rc; /* MSG_TRUNC */
	}
	anew = sc.tid == 0 && s->anew;
	head = anew ? gnet_sys_load(&net->bus[GNET_FD_SLOT(fd)].head) : 0;
	do {
		if (sc.tid < sc.lanes)
			gnet__recv_plan(sc, net, fd, s, len - got, flags);
		if (anew)
			gnet__settle_head(net, fd, head, s->wait.word);
		anew = 0;
		gnet__sync(sc);
		rc = s->rc;
		if (rc <= 0)
			break;
		gnet__recv_scatter(sc, net, s, iov, got, (uint64_t)rc);
		got += (uint64_t)rc;
		gnet__sync(sc);
		if (sc.tid == 0 && !(flags & GNET_MSG_PEEK)) {
			gnet__recv_done(net, fd, sk, s->head + (uint64_t)rc, (int)s->cells);
			gnet__wait_on(&s->wait);
		}
		gnet__sync(sc);
	} while (got < len && (flags & (GNET_MSG_WAITALL | GNET_MSG_PEEK)) == GNET_MSG_WAITALL);
	gnet__sync(sc);
	if (sc.tid == 0)
		gnet__give(&sk->rx, GNET_L_HELD);
	return got ? (int64_t)got : rc;
}

/* ---- the calls ----------------------------------------------------------------------------------------------------------- */

GNET__COLD int64_t gnet__sendmsg(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				 int fd, const struct gnet_msghdr *m, int flags)
{
	const struct gnet_iovec *iov;
	const void *name;
	uint32_t n;
	int64_t rc;

	gnet__sync(sc); /* the scope's threads may just have written the header */
	iov = m->iov;
	n = (uint32_t)m->iovlen;
	name = m->name; /* not after the last barrier: the header is the caller's again */
	rc = gnet__msg_check(iov, m->iovlen);
	if (!rc && m->controllen)
		rc = -GNET__EOPNOTSUPP;
	if (rc) {
		gnet__sync(sc);
		return rc;
	}
	rc = gnet__dgram_send(sc, s, net, fd, iov, n, flags, name, m->namelen);
	if (rc != GNET__IS_STREAM)
		return rc;
	return name ? -GNET__EISCONN : gnet__send_parts(sc, s, net, fd, iov, n, flags);
}

GNET__COLD int64_t gnet__recvmsg(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				 int fd, struct gnet_msghdr *m, int flags)
{
	const struct gnet_iovec *iov;
	struct gnet__from from;
	uint32_t n;
	int64_t rc;

	gnet__sync(sc); /* as gnet__sendmsg */
	iov = m->iov;
	n = (uint32_t)m->iovlen;
	rc = gnet__msg_check(iov, m->iovlen);
	if (rc) {
		gnet__sync(sc);
		return rc;
	}
	from.addr = m->name;
	from.len = m->name ? &m->namelen : 0;
	from.out_flags = &m->flags;
	rc = gnet__dgram_recv(sc, s, net, fd, iov, n, flags, from);
	if (rc == GNET__IS_STREAM) {
		rc = gnet__recv_parts(sc, s, net, fd, iov, n, flags);
		if (sc.tid == 0 && rc >= 0) {
			m->namelen = 0; /* a stream's bytes have no address */
			m->flags = 0;
		}
	}
	if (sc.tid == 0 && rc >= 0)
		m->controllen = 0;
	gnet__sync(sc);
	return rc;
}

GNET_DEV int64_t gsendmsg(gnet_t *net, int fd, const struct gnet_msghdr *msg, int flags)
{
	return gnet__sendmsg(gnet__scope_of(GNET__BLOCK), gnet__block_scratch(), net, fd, msg,
			     flags);
}

GNET_DEV int64_t gsendmsg_warp(gnet_t *net, int fd, const struct gnet_msghdr *msg, int flags)
{
	return gnet__sendmsg(gnet__scope_of(GNET__WARP), gnet__warp_scratch(), net, fd, msg, flags);
}

GNET_DEV int64_t gsendmsg_thread(gnet_t *net, int fd, const struct gnet_msghdr *msg, int flags)
{
	struct gnet__scratch s;

	gnet__forget(&s);
	return gnet__sendmsg(gnet__scope_of(GNET__THREAD), &s, net, fd, msg, flags);
}

GNET_DEV int64_t grecvmsg(gnet_t *net, int fd, struct gnet_msghdr *msg, int flags)
{
	return gnet__recvmsg(gnet__scope_of(GNET__BLOCK), gnet__block_scratch(), net, fd, msg,
			     flags);
}

GNET_DEV int64_t grecvmsg_warp(gnet_t *net, int fd, struct gnet_msghdr *msg, int flags)
{
	return gnet__recvmsg(gnet__scope_of(GNET__WARP), gnet__warp_scratch(), net, fd, msg, flags);
}

GNET_DEV int64_t grecvmsg_thread(gnet_t *net, int fd, struct gnet_msghdr *msg, int flags)
{
	struct gnet__scratch s;

	gnet__forget(&s);
	return gnet__recvmsg(gnet__scope_of(GNET__THREAD), &s, net, fd, msg, flags);
}

#endif
