/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Working in place: spans of the rings are lent to a block (docs/bus.md, rules B).
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_BORROW_H
#define GPUNET_DEV_IMPL_BORROW_H

#include <gpunet/dev/impl/socket.h>

/* In rx_lent: the bytes lie in the status line, and a copy of them with the borrower. */
#define GNET__LENT_CELLS ((uint64_t)1 << 63)

/* Thread 0: the ring's bytes from `pos` on as at most two spans. */
GNET_DEV void gnet__spans(gnet_t *net, struct gnet_borrow *b, uint64_t seg, uint64_t pos,
			  uint64_t n)
{
	uint64_t size = (uint64_t)1 << net->seg_log2, off = pos & (size - 1);
	uint8_t *ring = gnet__seg_at(net, seg);
	uint64_t first = n < size - off ? n : size - off;

	b->ptr[0] = ring + off;
	b->len[0] = first;
	b->ptr[1] = ring;
	b->len[1] = n - first;
}

/* B1, thread 0: the side that this call holds is the borrower's from now on. */
GNET_DEV void gnet__lend(struct gnet_sock *sk, uint64_t *side, uint64_t *lent, uint64_t n)
{
	gnet_dev_store(lent, n);
	gnet_dev_add(&sk->life, GNET_L_LENT);
	gnet_dev_or(side, GNET_L_BORROWED);
}

/* What a borrow that is being given back is: not there, live, or of a socket that gclose has left to its borrowers. */
#define GNET__LENT_NONE 0
#define GNET__LENT_LIVE 1
#define GNET__LENT_ORPHAN 2

/*
 * B4: begins to give a borrow back; the reason why not, or -EBADF for a socket that is being closed. If *kind is not NONE the
 * caller counts as a user: gclose waits for it, so ORPHAN is not set any more if it was not before.
 */
GNET_DEV int gnet__unlend_begin(gnet_t *net, int fd, const uint64_t *side, const uint64_t *lent,
				uint64_t n, int *kind)
{
	uint64_t w = gnet_dev_load_acquire(side);

	*kind = GNET__LENT_NONE;
	if ((w & GNET_L_SIDE_GEN) != GNET_FD_GEN(fd))
		return -GNET__EBADF;
	if (!(w & GNET_L_BORROWED))
		return w & GNET_L_CLOSING ? -GNET__EBADF : -GNET__EINVAL;
	if (n > (gnet_dev_load(lent) & ~GNET__LENT_CELLS))
		return -GNET__EINVAL;
	w = gnet_dev_add(&gnet__slot(net, fd)->life, 1);
	*kind = w & GNET_L_ORPHAN ? GNET__LENT_ORPHAN : GNET__LENT_LIVE;
	return w & GNET_L_CLOSING ? -GNET__EBADF : 0;
}

GNET_DEV void gnet__unlend_end(gnet_t *net, int fd, struct gnet_sock *sk, uint64_t *side, int kind)
{
	uint64_t one = GNET_L_LENT;

	if (kind == GNET__LENT_LIVE) {
		gnet_dev_add(&sk->life, 0 - one);
		gnet__give(side, GNET_L_HELD | GNET_L_BORROWED);
		gnet__leave(sk);
		return;
	}
	/* B5: in one step, since the other borrower may end the socket right after it. */
	if ((gnet_dev_add(&sk->life, 0 - one - 1) & GNET_L_LENT_MASK) == GNET_L_LENT)
		gnet__close_finish(net, fd, sk);
}

/* ---- receive --------------------------------------------------------------------------------------------------------- */

GNET__COLD int64_t gnet__recv_borrow(struct gnet__scope sc, struct gnet__scratch *s, gnet_t *net,
				     int fd, struct gnet_borrow *b, uint64_t most, int flags)
{
	uint64_t head;
	int64_t rc;

	gnet__sync(sc);
	if (sc.tid == 0) {
		gnet__recv_begin(net, fd, s,
				 flags & (GNET_MSG_PEEK | GNET_MSG_WAITALL) ? -1 : flags);
		if (s->sk && !most) {
			gnet__give(&s->sk->rx, GNET_L_HELD);
			s->sk = 0;
			s->fail = -GNET__EINVAL;
		}
	}
	gnet__sync(sc);
	if (!s->sk) {
		rc = s->fail == GNET__IS_DGRAM ? -GNET__EOPNOTSUPP : s->fail;
		gnet__sync(sc);
		return rc;
	}
	head = sc.tid == 0 && s->anew ? gnet_sys_load(&net->bus[GNET_FD_SLOT(fd)].head) : 0;
	if (sc.tid < sc.lanes)
		gnet__recv_plan(sc, net, fd, s, most, flags);
	if (sc.tid == 0 && s->anew)
		gnet__settle_head(net, fd, head, s->wait.word);
	gnet__sync(sc);
	rc = s->rc;
	if (rc > 0 && s->cells)
		gnet__cells_move(sc, s, s->at, b->cells, (uint64_t)rc, sc.n);
	if (sc.tid == 0 && rc > 0) {
		gnet__spans(net, b, s->cells ? 0 : s->seg, s->at, (uint64_t)rc);
		if (s->cells) {
			b->ptr[0] = b->cells;
			b->len[0] = (uint64_t)rc;
			b->len[1] = 0;
		}
		gnet__lend(s->sk, &s->sk->rx, &s->sk->rx_lent,
			   (uint64_t)rc | (s->cells ? GNET__LENT_CELLS : 0));
	} else if (sc.tid == 0) {
		gnet__give(&s->sk->rx, GNET_L_HELD);
	}
	gnet__sync(sc);
	return rc;
}

GNET_DEV int64_t grecv_borrow(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t most, int flags)
{
	return gnet__recv_borrow(gnet__scope_of(GNET__BLOCK), gnet__block_scratch(), net, fd, b,
				 most, flags);
}

GNET_DEV int64_t grecv_borrow_warp(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t most,
				   int flags)
{
	return gnet__recv_borrow(gnet__scope_of(GNET__WARP), gnet__warp_scratch(), net, fd, b, most,
				 flags);
}

GNET_DEV int64_t grecv_borrow_thread(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t most,
				     int flags)
{
	struct gnet__scratch s;

	gnet__forget(&s);
	return gnet__recv_borrow(gnet__scope_of(GNET__THREAD), &s, net, fd, b, most, flags);
}

GNET__COLD int64_t gnet__recv_return(gnet_t *net, int fd, uint64_t n)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	int kind, rc;

	if (!sk)
		return -GNET__EBADF;
	rc = gnet__unlend_begin(net, fd, &sk->rx, &sk->rx_lent, n, &kind);
	if (kind == GNET__LENT_NONE)
		return rc;
	if (n && !rc)
		gnet__recv_done(net, fd, sk, gnet_dev_load(&sk->rx_head) + n, 0);
	gnet__unlend_end(net, fd, sk, &sk->rx, kind);
	return rc;
}

GNET_DEV int grecv_return(gnet_t *net, int fd, uint64_t n)
{
	GNET__BY_THREAD_0(gnet__recv_return(net, fd, n));
}

GNET_DEV int grecv_return_warp(gnet_t *net, int fd, uint64_t n)
{
	GNET__BY_LANE_0(gnet__recv_return(net, fd, n));
}

GNET_DEV int grecv_return_thread(gnet_t *net, int fd, uint64_t n)
{
	return (int)gnet__recv_return(net, fd, n);
}

/* ---- send ------------------------------------------------------------------------------------------------------------ */

GNET__COLD int64_t gnet__send_reserve(gnet_t *net, int fd, struct gnet__scratch *s,
				      struct gnet_borrow *b, uint64_t n, int flags)
{
	struct gnet__tx t;
	int64_t rc;

	if (n > (uint64_t)1 << net->seg_log2)
		return -GNET__EMSGSIZE;
	if (!n)
		return -GNET__EINVAL;
	gnet__send_begin(net, fd, s, flags);
	if (!s->sk)
		return s->fail == GNET__IS_DGRAM ? -GNET__EOPNOTSUPP : s->fail;
	rc = gnet__send_attach(net, fd, s);
	t = gnet__tx_load(s->sk);
	if (!rc && !t.seg)
		rc = -GNET__ENOBUFS;
	if (!rc)
		rc = gnet__send_wait(net, fd, s->sk, t, n, &s->wait);
	if (rc >= 0 && (uint64_t)rc < n)
		rc = -GNET__EAGAIN;
	if (rc < 0) {
		gnet__send_end(net, fd, s->sk);
		return rc;
	}
	gnet__spans(net, b, t.seg - 1, t.tail, n);
	gnet__lend(s->sk, &s->sk->tx, &s->sk->tx_lent, n);
	return 0;
}

GNET_DEV int gsend_reserve(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t n, int flags)
{
	GNET__BY_THREAD_0(gnet__send_reserve(net, fd, s_, b, n, flags));
}

GNET_DEV int gsend_reserve_warp(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t n, int flags)
{
	GNET__BY_LANE_0(gnet__send_reserve(net, fd, s_, b, n, flags));
}

GNET_DEV int gsend_reserve_thread(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t n, int flags)
{
	struct gnet__scratch s;

	gnet__forget(&s);
	return (int)gnet__send_reserve(net, fd, &s, b, n, flags);
}

GNET__COLD int64_t gnet__send_commit(gnet_t *net, int fd, uint64_t n)
{
	struct gnet_sock *sk = gnet__slot(net, fd);
	int kind, rc;

	if (!sk)
		return -GNET__EBADF;
	rc = gnet__unlend_begin(net, fd, &sk->tx, &sk->tx_lent, n, &kind);
	if (kind == GNET__LENT_NONE)
		return rc;
	/* Also of nothing: what was stored behind the tail comes before whatever is sent next, and whoever sends it (B3). */
	if (!rc)
		rc = gnet__send_tail(net, fd, sk, n);
	if (!n && kind == GNET__LENT_LIVE)
		gnet_dev_or(&sk->tx, GNET_L_WRITTEN);
	gnet__send_detach(net, fd, sk);
	gnet__unlend_end(net, fd, sk, &sk->tx, kind);
	return rc;
}

GNET_DEV int gsend_commit(gnet_t *net, int fd, uint64_t n)
{
	GNET__BY_THREAD_0(gnet__send_commit(net, fd, n));
}

GNET_DEV int gsend_commit_warp(gnet_t *net, int fd, uint64_t n)
{
	GNET__BY_LANE_0(gnet__send_commit(net, fd, n));
}

GNET_DEV int gsend_commit_thread(gnet_t *net, int fd, uint64_t n)
{
	return (int)gnet__send_commit(net, fd, n);
}

#endif
