/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scopes: the threads that take part in a call, the scratch that they share, and what they remember of sockets (docs/bus.md, rules K).
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_SCOPE_H
#define GPUNET_DEV_IMPL_SCOPE_H

#include <gpunet/dev/abi/socket.h>
#include <gpunet/dev/impl/copy.h>
#include <gpunet/dev/impl/sock.h>

/* Sends between two looks at the socket's error across the bus while there is room. */
#define GNET__TX_LOOK 16u

/*
 * The longest message for which a place in the queue is taken before its bytes are in the ring: others' entries behind that place wait
 * while they are copied.
 */
#define GNET__TX_QUICK (16u * 1024u)

/* What the send side's words in device memory say, loaded at once. */
struct gnet__tx {
	uint64_t tail, head, seg, once, looks;
};

/*
 * What a scope knew of a socket when it gave its sides back (K1). If a compare-and-swap of a side's word finds the very same, nobody
 * has had the side since, and nothing need be ordered or loaded. Shared memory begins with anything in it: `id` is the network's
 * if this was written here, for this network. The network's constants are here too, since each would be a way to the L2.
 */
struct gnet__known {
	uint64_t id;
	uint64_t rx, tx;  /* the sides' words; 0: not known */
	uint64_t sq_head; /* the proxy's position in the socket's queue, or less */
	struct gnet__tx t;
	uint64_t left; /* room in the window */
	uint64_t lap;  /* of the queue, when its tag was computed last */
	uint64_t lap_tag;
	struct gnet_sock *sk;
	struct gnet_sq_dev *d;
	struct gnet_sqe *sq; /* of the socket's queue */
	uint32_t sq_log2;
	uint32_t queue;
	int fd;
	uint32_t
		seen; /* the ring's bytes before this position, low half, are there for this scope to load */
	struct gnet_hops *hops; /* of this socket, or 0 */
};

/* Each socket of a slot takes an entry at least: its descriptor does not come again within the entries of a queue of this size. */
#define GNET__KNOWN_LOG2 11u

/* Sockets that a scope remembers. Power of two. */
#define GNET__KNOWN 2u

/*
 * The one shared scratch of a scope for all of gpunet. Thread 0 begins a call in it before the call's first barrier: by then
 * every thread has read what the call before left there, since each call ends with a barrier after its last look. (After that barrier
 * `quick`, `head` and `lost` are still read; no call stores these before its first barrier.)
 */
struct gnet__scratch {
	int64_t rc;         /* bytes of this step, 0: end of stream, or a negative errno */
	uint64_t at;        /* ring position, or first byte's index in the cells */
	uint64_t seg;       /* ring segment */
	uint64_t tag;       /* of the entry that the lanes fill */
	uint32_t cells;     /* the bytes are, or go, in cells */
	uint32_t again;     /* lanes: another turn */
	uint32_t no_seg;    /* gsend: the slab is used up */
	uint32_t known_now; /* gsend: this call found its socket known */
	uint32_t
		quick; /* grecv: bytes that the lanes have moved already, with nothing left to do */
	uint32_t acquire;       /* cell 0 is loaded with acquire: bytes are expected in the ring */
	uint32_t anew;          /* grecv: others may have had the side since this scope had it */
	uint64_t head;          /* receive position consumed */
	int fail;               /* why the call could not begin, or go on */
	uint32_t lost;          /* gsend: bytes of the last step that could not be handed over */
	struct gnet_sock *sk;   /* whose side this call holds; 0: it holds none */
	struct gnet_sqe *entry; /* that the lanes fill, with `tag` */
	struct gnet__wait wait; /* thread 0 */
	struct gnet__known known[GNET__KNOWN];
	struct gnet_dgram rec; /* header of the datagram at hand */
	uint32_t room;         /* for its sender's address */
	uint32_t seen;         /* grecv: as in struct gnet__known, for this call */
	uint64_t cell[GNET_CELLS];
};

/* ---- scopes: who takes part in a call ------------------------------------------------------------------------------ */

#define GNET__THREAD 0
#define GNET__WARP 1
#define GNET__BLOCK 2

/*
 * The block's barriers within a call, of which the CPU device checks that all threads are in the same one; and the scope of the call,
 * which is named after the function that makes it.
 */
#ifdef __CUDACC__
#define GNET__MEET(call) __syncthreads()
#define GNET__MEET_COUNT(call, p) __syncthreads_count(p)
#define gnet__scope_of(kind) gnet__scope_in(kind, 0)
#else
#define GNET__MEET(call) ((void)gpunet_cpu_barrier_of(call, GPUNET_CPU_COUNT, 0))
#define GNET__MEET_COUNT(call, p) gpunet_cpu_barrier_of(call, GPUNET_CPU_COUNT, gnet_cpu_true(p))
#define gnet__scope_of(kind) gnet__scope_in(kind, __func__)
#endif

struct gnet__scope {
#ifndef __CUDACC__
	const char *call;
#endif
	int kind;
	uint32_t tid;   /* this thread's number in the scope */
	uint32_t n;     /* threads of the scope */
	uint32_t lanes; /* the first of them, which are one warp */
	uint32_t mask;  /* their lane mask */
};

GNET_DEV uint32_t gnet__tid(void)
{
	return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

GNET_DEV struct gnet__scope gnet__scope_in(int kind, const char *call)
{
	uint32_t tid = gnet__tid(), n = blockDim.x * blockDim.y * blockDim.z;
	struct gnet__scope sc;

	if (kind == GNET__THREAD) {
		tid = 0;
		n = 1;
	} else if (kind == GNET__WARP) {
		n -= tid & ~31u;
		n = n < 32 ? n : 32;
		tid &= 31u;
	}
#ifndef __CUDACC__
	sc.call = call;
#else
	(void)call;
#endif
	sc.kind = kind;
	sc.tid = tid;
	sc.n = n;
	sc.lanes = n < 32 ? n : 32;
	sc.mask = sc.lanes == 32 ? 0xffffffffu : (1u << sc.lanes) - 1u;
	return sc;
}

/* Barrier of the whole scope, and of its lanes. */
GNET_DEV void gnet__sync(struct gnet__scope sc)
{
	if (sc.kind == GNET__BLOCK)
		GNET__MEET(sc.call);
	else if (sc.kind == GNET__WARP)
		__syncwarp(sc.mask);
}

GNET_DEV void gnet__sync_lanes(struct gnet__scope sc)
{
	if (sc.kind != GNET__THREAD)
		__syncwarp(sc.mask);
}

GNET_DEV struct gnet__scratch *gnet__block_scratch(void)
{
	__shared__ struct gnet__scratch s;

	return &s;
}

/* A warp's own scratch; only kernels that use calls of warp scope have this memory. */
GNET_DEV struct gnet__scratch *gnet__warp_scratch(void)
{
	__shared__ struct gnet__scratch s[32];

	return &s[gnet__tid() / 32];
}

/* Where rings lie. Who is about to wait loads it before: an acquire empties the L1. */
struct gnet__rings {
	uint8_t *slab;
	uint32_t log2; /* bytes of a segment */
};

GNET_DEV struct gnet__rings gnet__rings_of(const gnet_t *net)
{
	struct gnet__rings r = { net->slab, (uint32_t)net->seg_log2 };

	return r;
}

/* Where a segment begins: in the host's memory, or in the device's. */
GNET_DEV uint8_t *gnet__seg_in(const gnet_t *net, struct gnet__rings r, uint64_t seg)
{
	if (seg & GNET_SEG_NEAR)
		return net->near_slab + ((seg & ~(uint64_t)GNET_SEG_NEAR) << r.log2);
	return r.slab + (seg << r.log2);
}

GNET_DEV uint8_t *gnet__seg_at(gnet_t *net, uint64_t seg)
{
	return gnet__seg_in(net, gnet__rings_of(net), seg);
}

/* Is the send segment (as in gnet__tx.seg) one that the CPU does not touch? */
GNET_DEV int gnet__tx_near(uint64_t seg)
{
	return seg && ((seg - 1) & GNET_SEG_NEAR);
}

/* Any copy. The code is the largest piece there is, and a kernel has one. */
GNET__COLD void gnet__copy_call(void *dst, const void *src, uint64_t n, int out, uint32_t tid,
				uint32_t threads)
{
	gnet__copy_any(dst, src, n, out, tid, threads);
}

/* The same, but the usual ones are inlined: a byte a thread, and 64 bytes or more by whole warps. */
GNET_DEV void gnet__copy_here(void *dst, const void *src, uint64_t n, int out, uint32_t tid,
			      uint32_t threads)
{
#ifdef __CUDACC__
	if (n <= threads) {
		if (tid < n)
			((uint8_t *)dst)[tid] = ((const uint8_t *)src)[tid];
		return;
	}
	if (n >= 64 && threads >= 32) {
		gnet__copy_lines((uint8_t *)dst, (const uint8_t *)src, (unsigned)n, out, tid,
				 threads);
		return;
	}
#endif
	gnet__copy_call(dst, src, n, out, tid, threads);
}

/* Copies between a ring and a buffer, by all threads of the scope. */
GNET_DEV void gnet__rings_read(struct gnet__scope sc, const gnet_t *net, struct gnet__rings r,
			       uint64_t seg, uint64_t pos, uint8_t *dst, uint64_t n)
{
	uint64_t size = (uint64_t)1 << r.log2, off = pos & (size - 1);
	const uint8_t *ring = gnet__seg_in(net, r, seg);
	uint64_t first = n < size - off ? n : size - off;

	gnet__copy_here(dst, ring + off, first, 0, sc.tid, sc.n);
	if (n > first)
		gnet__copy_call(dst + first, ring, n - first, 0, sc.tid, sc.n);
}

GNET_DEV void gnet__rings_write(struct gnet__scope sc, const gnet_t *net, struct gnet__rings r,
				uint64_t seg, uint64_t pos, const uint8_t *src, uint64_t n)
{
	uint64_t size = (uint64_t)1 << r.log2, off = pos & (size - 1);
	uint8_t *ring = gnet__seg_in(net, r, seg);
	uint64_t first = n < size - off ? n : size - off;

	gnet__copy_here(ring + off, src, first, 1, sc.tid, sc.n);
	if (n > first)
		gnet__copy_call(ring, src + first, n - first, 1, sc.tid, sc.n);
}

/* The same, called. */
GNET__COLD void gnet__ring_read(struct gnet__scope sc, gnet_t *net, struct gnet__rings r,
				uint64_t seg, uint64_t pos, uint8_t *dst, uint64_t n)
{
	gnet__rings_read(sc, net, r, seg, pos, dst, n);
}

GNET__COLD void gnet__ring_write(struct gnet__scope sc, gnet_t *net, struct gnet__rings r,
				 uint64_t seg, uint64_t pos, const uint8_t *src, uint64_t n)
{
	gnet__rings_write(sc, net, r, seg, pos, src, n);
}

GNET_DEV struct gnet__tx gnet__tx_load(const struct gnet_sock *sk)
{
	struct gnet__tx t;
	uint64_t seg;

	t.tail = gnet_dev_load(&sk->tx_tail);
	t.head = gnet_dev_load(&sk->tx_head);
	seg = gnet_dev_load(&sk->tx_seg);
	t.seg = seg & GNET_SOCK_SEG;
	t.once = seg & GNET_SOCK_ONCE;
	t.looks = seg >> 32;
	return t;
}

/* T1: what the window leaves. More than the window may be unsent if the segment has been let go of (T6). */
GNET_DEV uint64_t gnet__tx_left(const gnet_t *net, const struct gnet__tx *t)
{
	uint64_t window = t->seg ? (uint64_t)1 << net->seg_log2 : GNET_MINI_BYTES;
	uint64_t used = t->tail - t->head;

	return used < window ? window - used : 0;
}

/*
 * With option hops. Callers load where the words are (0: off) together with what they load from the L2 or the scratch anyway, before they
 * wait for any of it: so without the option there is a comparison and nothing to wait for.
 */
GNET_DEV void gnet__stamp(uint64_t *word, uint64_t pos)
{
	gnet_sys_store(word, GNET_HOP(pos, gnet_time_ns()));
}

/* ---- what a scope remembers (K1); thread 0 runs these ------------------------------------------------------------------ */

GNET_DEV struct gnet__known *gnet__known_of(struct gnet__scratch *s, int fd)
{
	return &s->known[GNET_FD_SLOT(fd) & (GNET__KNOWN - 1)];
}

GNET_DEV int gnet__is_known(gnet_t *net, const struct gnet__known *k, int fd)
{
	return (k->fd == fd) & (k->id == net->id); /* both loads at once */
}

/* Begins a scratch that no call has used. */
GNET_DEV void gnet__forget(struct gnet__scratch *s)
{
	uint32_t i;

	for (i = 0; i < GNET__KNOWN; i++) {
#ifndef __CUDACC__
		/* Compilers warn of what is read together with it and not used. */
		__builtin_memset(&s->known[i], 0, sizeof(s->known[i]));
#endif
		s->known[i].id = 0;
	}
}

/* Begins to know a socket, neither side of it so far. */
GNET_DEV struct gnet__known *gnet__meet(gnet_t *net, int fd, struct gnet__scratch *s)
{
	struct gnet__known *k = gnet__known_of(s, fd);
	uint32_t q = gnet__queue(net, fd);

	if (gnet__is_known(net, k, fd))
		return k;
	k->id = net->id;
	k->rx = k->tx = 0;
	k->lap = ~(uint64_t)0;
	k->sk = &net->socks[GNET_FD_SLOT(fd)];
	k->d = &net->sqd[q];
	k->sq = gnet__sqe(net, q, 0);
	k->sq_log2 = net->sq_log2;
	k->queue = q;
	k->fd = fd;
	k->hops = net->hops ? &net->hops[GNET_FD_SLOT(fd)] : 0;
	return k;
}

/* The word of a side, given back at position `at`, that was taken with another. */
GNET_DEV uint64_t gnet__word_at(uint64_t word, uint64_t at)
{
	return (uint32_t)(word & ~(uint64_t)GNET_L_HELD) | at << GNET_L_AT_SHIFT;
}

/* Takes the receive side if it is as the scope left it. */
GNET_DEV int gnet__recv_take_known(gnet_t *net, int fd, struct gnet__scratch *s)
{
	struct gnet__known *k = gnet__known_of(s, fd);
	uint64_t word = k->rx;

	if (!gnet__is_known(net, k, fd) || !word ||
	    gnet_dev_cas_relaxed(&k->sk->rx, word, word | GNET_L_HELD) != word)
		return 0;
	s->wait.word = word;
	if (word & GNET_L_NONBLOCK)
		s->wait.dontwait = 1;
	return 1;
}

/* Ending a call that took the receive side and consumed n bytes. */
GNET_DEV void gnet__recv_remember(gnet_t *net, int fd, struct gnet__scratch *s, uint64_t n)
{
	struct gnet__known *k = gnet__meet(net, fd, s);
	uint64_t word = s->wait.word;

	k->rx = gnet__word_at(word, (word >> GNET_L_AT_SHIFT) + n);
	k->seen = s->seen;
}

/*
 * A queue that has room for the entries that a slot's sockets need until the descriptor comes again: of the proxy's position so much less is
 * known that a place behind them is none (K1).
 */
GNET__COLD void gnet__known_less(struct gnet__known *k)
{
	uint64_t size = (uint64_t)1 << k->sq_log2;
	uint64_t less = gnet_dev_load(&k->d->tail) + GNET_GEN_MAX - size;

	if ((int64_t)(less - k->sq_head) < 0)
		k->sq_head = less;
}

/* Holding the send side at a call's end: what the next call will find. */
GNET_DEV void gnet__send_remember(gnet_t *net, int fd, struct gnet__scratch *s)
{
	struct gnet__known *k = gnet__meet(net, fd, s);

	k->t = gnet__tx_load(s->sk);
	/* T7: what is known goes inline, and such a socket's bytes never do. B3: without WRITTEN, as it is if this call has sent something. */
	k->tx = gnet__tx_near(k->t.seg)
			? 0
			: gnet__word_at(s->wait.word & ~(uint64_t)GNET_L_WRITTEN, k->t.tail);
	k->sq_head = gnet_dev_load_acquire(&k->d->head);
	k->left = gnet__tx_left(net, &k->t);
	if (k->sq_log2 > GNET__KNOWN_LOG2)
		gnet__known_less(k);
}

/*
 * Refreshes what will soon say that there is no room, and looks for an error, and the network's end: now, when nobody waits for it. They
 * are left for the next call, which does not find its socket known and looks itself.
 */
GNET__COLD void gnet__known_refresh(gnet_t *net, struct gnet__known *k)
{
	uint64_t stop = gnet_sys_load(&net->ctl->stop);
	/* Not for others: K2 allows to store the position only. */
	uint64_t txw = gnet_sys_load_acquire(&net->bus[GNET_FD_SLOT(k->fd)].txw);

	k->t.looks = 0;
	k->t.head += (txw - k->t.head) & GNET_TXW_POS_MASK;
	k->left = gnet__tx_left(net, &k->t);
	if (stop || (txw >> GNET_TXW_ERR_SHIFT & 0xff)) {
		gnet_dev_store(&k->sk->tx_seg, k->t.seg | (uint64_t)GNET__TX_LOOK << 32);
		k->tx = 0;
	}
}

/* A place in the queue was taken for a message that goes another way. */
GNET__COLD void gnet__known_wrong(gnet_t *net, struct gnet__known *k, uint64_t pos, int held)
{
	k->tx = 0;
	if (!gnet__sq_room(net, k->d, k->queue, pos, gnet_dev_load_acquire(&k->d->head)))
		gnet__put(net, k->queue, pos, 0, 0, 0, 0);
	/* The word is what it was: where the position is this scope may not see yet. */
	if (held)
		gnet_dev_add_relaxed(&k->sk->tx, 0 - (uint64_t)GNET_L_HELD);
}

/* What a try needs, gathered beforehand: the word that the side is to have, or 0 if there is nothing to be tried. */
struct gnet__ready {
	uint64_t word;
	struct gnet_sock *sk;
	struct gnet_sq_dev *d;
};

/* Is there something to be tried? Takes nothing. */
GNET_DEV struct gnet__ready gnet__send_ready(gnet_t *net, int fd, struct gnet__scratch *s,
					     uint64_t len, int flags)
{
	struct gnet__known *k = gnet__known_of(s, fd);
	struct gnet__ready r = { k->tx, k->sk, k->d };
	/* T6: a segment that was for one call is not known. */
	uint64_t most = k->t.seg ? GNET__TX_QUICK : GNET_INLINE_MAX;

	if (!gnet__is_known(net, k, fd) || len - 1 >= most || k->left < len ||
	    (flags & ~(GNET_MSG_DONTWAIT | GNET_MSG_NOSIGNAL)))
		r.word = 0;
	return r;
}

/* A try to take the send side and a place in the queue at once, of a socket that the scope remembers; its answers may be on their way. */
struct gnet__try {
	int made;
	uint64_t word, old, pos, tail, seg;
};

/* Nothing here waits for an answer. */
GNET_DEV struct gnet__try gnet__send_try(const struct gnet__ready *r)
{
	struct gnet__try t = { 0, r->word, 0, 0, 0, 0 };

	if (!t.word)
		return t;
	t.made = 1;
	t.old = gnet_dev_cas_relaxed(&r->sk->tx, t.word, t.word | GNET_L_HELD);
	t.pos = gnet_dev_ticket(&r->d->tail);
	/*
	 * The word comes again after 4 GiB, or 2,047 sockets; these do not with it. A segment that was attached by a call which then sent
	 * nothing may not be seen here: what goes inline is right all the same, and a near one is in the word.
	 */
	t.tail = gnet_dev_load(&r->sk->tx_tail);
	t.seg = gnet_dev_load(&r->sk->tx_seg);
	return t;
}

/* No place in the queue. */
#define GNET__NO_PLACE (~(uint64_t)0)

/* The place in the queue that a try has got together with the side; or none: then it has neither, and the side is not known any more. */
GNET_DEV uint64_t gnet__try_place(gnet_t *net, struct gnet__known *k, const struct gnet__try *t,
				  uint64_t len)
{
	uint64_t head = k->sq_head, tail = k->t.tail, seg = k->t.seg;
	uint32_t log2 = k->sq_log2;
	struct gnet_hops *hops = len > GNET_INLINE_MAX ? 0 : k->hops; /* not yet stored */

	if (!t->made)
		return GNET__NO_PLACE;
	if (t->old != t->word || t->pos - head >= (uint64_t)1 << log2 || t->tail != tail ||
	    (t->seg & GNET_SOCK_SEG) != seg) {
		gnet__known_wrong(net, k, t->pos, t->old == t->word);
		return GNET__NO_PLACE;
	}
	if (hops)
		gnet__stamp(&hops->stored, tail + len);
	return t->pos;
}

/* The message has gone, or goes, to place `pos`: what this scope and others know of the socket. The side is still held. */
GNET_DEV void gnet__known_sent(struct gnet__scratch *s, struct gnet__known *k, uint64_t pos,
			       uint64_t tag, uint64_t len)
{
	s->sk = k->sk;
	s->cells = len <= GNET_INLINE_MAX;
	s->rc = (int64_t)len;
	s->fail = 0;
	s->known_now = 1;
	k->lap = pos >> k->sq_log2;
	k->lap_tag = tag;
	k->t.tail += len;
	k->t.looks++;
	k->left -= len;
	gnet_dev_store(&k->sk->tx_tail, k->t.tail);
}

/* Its bytes are to go by the ring, and then its entry to place `pos`. */
GNET_DEV void gnet__known_ring(struct gnet__scratch *s, struct gnet__known *k, uint64_t pos,
			       uint64_t len)
{
	s->at = k->t.tail;
	s->seg = k->t.seg - 1;
	s->entry = &k->sq[pos & (((uint64_t)1 << k->sq_log2) - 1)];
	s->tag = GNET_SQ_TAG(pos, k->sq_log2);
	gnet__known_sent(s, k, pos, s->tag, len);
}

/* The end of such a call. */
GNET_DEV void gnet__known_end(gnet_t *net, int fd, struct gnet__scratch *s)
{
	struct gnet__known *k = gnet__known_of(s, fd);
	uint64_t word = k->tx, change = gnet__word_at(word, k->t.tail) - word - GNET_L_HELD;

	k->tx = gnet__word_at(word, k->t.tail);
	if (k->t.looks >= GNET__TX_LOOK || k->left < GNET_MINI_BYTES / 2)
		gnet__known_refresh(net, k);
	if (k->tx)
		gnet_dev_add_relaxed(&k->sk->tx, change);
	else /* more than the position was stored */
		gnet_dev_add_release(&k->sk->tx, change);
}

#endif
