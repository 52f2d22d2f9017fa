/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several blocks use the same sockets of datagrams, UNIX and UDP at the same time, by any call, in any scope, of any length, with any
 * flags, while options change: against each other and an ordinary socket of the host. In rounds, each with new sockets, of which one
 * ends with a gclose by a block at any time, and the last one with an abort. Each datagram says who has sent it, to which end, and
 * which it is, and its bytes follow from that; those too short for it only show their length. So whoever gets one sees that it is
 * whole, from whom it says, for this socket and in order; in the end none may have come twice, nor one be missing, unless UDP
 * has lost it.
 */
#include "test.h"

#ifdef __CUDACC__
#define BOTH static __host__ __device__ __attribute__((unused))
#else
#define BOTH static __attribute__((unused))
#endif

#define BLOCKS 4u
#define HOST BLOCKS /* the party that is the host */
#define PARTIES (BLOCKS + 1u)
#define QUOTA (TEST_SLOW < 8 ? 250u : 100u) /* datagrams of a party, in a round */
#define WARPS 4u                            /* that make a call at once */
#define NUMBERS (250u * WARPS) /* those of a step are a group of as many, in any order */
#define SLICE 4000u            /* of the buffer, a warp's */
#define RING (16u << 10)
#define LARGEST 16000u      /* of a kernel: the ring holds it */
#define HOST_LARGEST 20000u /* not even an empty ring does */
#define SHORT 16u           /* too short to say what it is */
#define CUT_AT 16000u       /* what an empty ring does hold of one */
#define SCARCE 5u           /* of eight that the sockets would have */
#define MANY (TEST_SLOW < 8 ? 256u : 80u)
#define MS UINT64_C(1000000)

enum { UNIX, UDP, DOMAINS };
enum { ONE, TWO, PEER, ENDS }; /* two of the kernel, of which TWO is connected; the host's */
enum { OPEN, CLOSES, ABORTS };
enum { WORD_READY, WORD_HOST_DONE, WORD_SENT, WORD_GOT = WORD_SENT + DOMAINS };
enum { DEV_SENDERS, DEV_ENDED, DEV_DONE, DEV_SENT, DEV_GOT = DEV_SENT + DOMAINS };
enum { BLOCK, WARP, THREAD, SCOPES };
enum { PLAIN, ADDRESSED, PARTS };

/* What a datagram says of itself: all but the shortest. */
struct head {
	uint8_t party, domain, from, to;
	uint32_t number, len, check;
};

/* What a party has sent and received in a round; only that party writes it. */
struct tally {
	uint16_t sent[NUMBERS];                  /* 0, or 1 + the domain */
	uint8_t got[PARTIES][NUMBERS];           /* how often */
	uint32_t next[PARTIES][ENDS][ENDS];      /* UNIX: the group, at least */
	uint32_t small[2][DOMAINS][ENDS][SHORT]; /* sent, received: of each length */
};

struct mix_args {
	struct test_args t;
	struct test_addr *addr; /* of DOMAINS * ENDS */
	struct tally *tally;
	uint64_t seed;
	uint32_t mode, partner; /* of TWO: ONE or PEER */
};

BOTH uint32_t draw_of(uint64_t *random, uint32_t n)
{
	*random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((*random >> 33) % n);
}

BOTH uint64_t random_of(uint64_t seed, uint32_t who)
{
	uint64_t x = (seed + who * 13u + 1u) * UINT64_C(0x9e3779b97f4a7c15);

	return x ^ x >> 29;
}

BOTH uint32_t key_of(const struct head *h)
{
	return h->number * 64u + h->party * 8u + h->to;
}

BOTH uint32_t check_of(const struct head *h)
{
	return (key_of(h) * 2654435761u ^ h->len) * 2246822519u + h->domain * 16u + h->from;
}

/* Lengths at which what carries a datagram changes, or any. */
BOTH uint32_t any_len(uint64_t *random, uint32_t most)
{
	uint32_t len = 1, i;

	if (draw_of(random, 4) == 0)
		return 16u * draw_of(random, 8) + draw_of(random, 3);
	for (i = draw_of(random, 9); i; i--)
		len *= 4u;
	return draw_of(random, len < most ? len + 1u : most + 1u);
}

/* May `from` send to `to`? TWO hears its partner only. */
BOTH int is_way(uint32_t from, uint32_t to, uint32_t partner)
{
	return to != TWO || from == partner;
}

/* Which blocks may receive at an end: one, or any. */
BOTH int may_receive(uint64_t seed, uint32_t domain, uint32_t end, uint32_t block)
{
	uint32_t r = (uint32_t)(random_of(seed, 900u + domain * ENDS + end) >> 40);

	return (r & 4u) || (r & 3u) == block;
}

BOTH int is_only_one(uint64_t seed, uint32_t domain, uint32_t end)
{
	return !((random_of(seed, 900u + domain * ENDS + end) >> 40) & 4u);
}

/* A block's round; thread 0's, but for what all read. */
struct mix {
	struct mix_args a;
	struct test_report *r;
	struct tally *tally;
	uint8_t *buf;
	uint64_t random;
	uint32_t left, number; /* to send */
	int fd[DOMAINS][ENDS];
	uint32_t next[PARTIES][ENDS][ENDS];    /* the tally's when this step began */
	uint64_t got[DOMAINS], since[DOMAINS]; /* how far all are, and since when */
	struct test_addr from;
	uint32_t from_len;
	struct gnet_iovec part[3];
	struct gnet_msghdr msg;
	int failed, over;
};

struct call {
	int sends, scope, api, flags;
	uint32_t domain, end, to, len, addr_room, who; /* who: the thread, or one of the warp */
};

GNET_DEV uint32_t draw(struct mix *m, uint32_t n)
{
	return draw_of(&m->random, n);
}

GNET_DEV int bad(struct mix *m, int line, int64_t got, int64_t want)
{
	if (test_k_tid() == 0) {
		m->failed = 1;
		test_k_bad(m->r, line, got, want);
	}
	return -1;
}

GNET_DEV int64_t from_thread(int64_t rc, uint32_t who)
{
	__shared__ int64_t shared;
	int64_t out;

	__syncthreads();
	if (test_k_tid() == who)
		shared = rc;
	__syncthreads();
	out = shared;
	__syncthreads();
	return out;
}

GNET_DEV uint64_t *dev_word(struct mix *m, uint32_t i)
{
	return (uint64_t *)(void *)&m->a.t.dword[i];
}

GNET_DEV const struct test_addr *address(const struct mix *m, uint32_t domain, uint32_t end)
{
	return &m->a.addr[domain * ENDS + end];
}

/* ---- one call, by each scope --------------------------------------------------------------------- */

#define DEFINE_CALLS(scope)                                                                   \
	GNET_DEV int64_t out##scope(struct mix *m, const struct call *c, int fd,              \
				    const struct test_addr *to)                               \
	{                                                                                     \
		if (c->api == PLAIN)                                                          \
			return gsend##scope(m->a.t.net, fd, m->buf, c->len, c->flags);        \
		if (c->api == PARTS)                                                          \
			return gsendmsg##scope(m->a.t.net, fd, &m->msg, c->flags);            \
		return gsendto##scope(m->a.t.net, fd, m->buf, c->len, c->flags,               \
				      to ? &to->a : NULL, to ? to->len : 0);                  \
	}                                                                                     \
                                                                                              \
	GNET_DEV int64_t in##scope(struct mix *m, const struct call *c, int fd)               \
	{                                                                                     \
		if (c->api == PLAIN)                                                          \
			return grecv##scope(m->a.t.net, fd, m->buf, c->len, c->flags);        \
		if (c->api == PARTS)                                                          \
			return grecvmsg##scope(m->a.t.net, fd, &m->msg, c->flags);            \
		return grecvfrom##scope(m->a.t.net, fd, m->buf, c->len, c->flags, &m->from.a, \
					&m->from_len);                                        \
	}

DEFINE_CALLS()
DEFINE_CALLS(_warp)
DEFINE_CALLS(_thread)

/* The buffer as three, one of them empty, and an address. */
GNET_DEV void split(struct mix *m, uint32_t n, const void *name, uint32_t namelen)
{
	if (test_k_tid() == 0) {
		uint32_t some = draw(m, n + 1u);

		memset(&m->msg, 0, sizeof(m->msg));
		m->part[0].base = m->part[1].base = m->buf;
		m->part[0].len = some;
		m->part[1].len = 0;
		m->part[2].base = m->buf + some;
		m->part[2].len = n - some;
		m->msg.iov = m->part;
		m->msg.iovlen = 3;
		m->msg.name = (void *)(uintptr_t)name;
		m->msg.namelen = namelen;
	}
	__syncthreads();
}

GNET_DEV int64_t hand_over(struct mix *m, const struct call *c, const struct test_addr *to)
{
	int fd = m->fd[c->domain][c->end];
	int64_t rc = 0;

	if (c->api == PARTS)
		split(m, c->len, to ? &to->a : NULL, to ? to->len : 0);
	if (c->scope == BLOCK)
		return out(m, c, fd, to);
	if (c->scope == WARP && test_k_tid() / 32u == c->who / 32u)
		rc = out_warp(m, c, fd, to);
	if (c->scope == THREAD && test_k_tid() == c->who)
		rc = out_thread(m, c, fd, to);
	return from_thread(rc, c->who);
}

GNET_DEV int64_t take(struct mix *m, const struct call *c)
{
	int fd = m->fd[c->domain][c->end];
	int64_t rc = 0;

	if (test_k_tid() == 0)
		m->from_len = c->addr_room;
	__syncthreads();
	if (c->api == PARTS)
		split(m, c->len, &m->from.a, c->addr_room);
	if (c->scope == BLOCK)
		rc = in(m, c, fd);
	if (c->scope == WARP && test_k_tid() / 32u == c->who / 32u)
		rc = in_warp(m, c, fd);
	if (c->scope == THREAD && test_k_tid() == c->who)
		rc = in_thread(m, c, fd);
	__syncthreads();
	if (c->api == PARTS && test_k_tid() == 0)
		m->from_len = m->msg.namelen;
	return c->scope == BLOCK ? rc : from_thread(rc, c->who);
}

/* ---- what a call says ------------------------------------------------------------------------------ */

GNET_DEV int ended(struct mix *m)
{
	return gnet_dev_load_acquire(dev_word(m, DEV_ENDED)) != 0;
}

/* A call that did nothing: thread 0 finds out whether it may, and waits a little. */
GNET_DEV void nothing(struct mix *m, const struct call *c, int64_t rc)
{
	int gone = rc == -EBADF || rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -ENOTCONN ||
		   rc == -EPIPE || rc == -EDESTADDRREQ;

	if (rc == -ECANCELED && m->a.mode == ABORTS)
		m->over = 1;
	else if (rc == -EAGAIN || rc == -ETIMEDOUT || (rc == -ENOBUFS && c->sends))
		__nanosleep(draw(m, 20000));
	else if (!gone || !ended(m))
		bad(m, __LINE__, rc, c->sends);
	else if (rc == -EBADF)
		m->fd[c->domain][c->end] = -1;
}

/* All: the bytes behind the head, as far as they were received, or those of a datagram without one. */
GNET_DEV int wrong_bytes(const uint8_t *buf, uint32_t have, uint32_t len, const struct head *h)
{
	if (len < SHORT)
		return test_k_wrong(buf, have, 0, 100u + len);
	return test_k_wrong(buf + SHORT, have - SHORT, SHORT, key_of(h));
}

GNET_DEV int is_address(const struct mix *m, const struct call *c, uint32_t end)
{
	const struct test_addr *is = address(m, c->domain, end);
	uint32_t i;

	if (c->api == PLAIN)
		return 1;
	if (m->from_len != is->len)
		return 0;
	for (i = 0; i < is->len && i < c->addr_room; i++)
		if (m->from.a.bytes[i] != is->a.bytes[i])
			return 0;
	return 1;
}

/* Thread 0: a datagram that shows its length only. */
GNET_DEV void got_small(struct mix *m, const struct call *c, uint32_t len)
{
	if (!is_address(m, c, ONE) && !is_address(m, c, TWO) && !is_address(m, c, PEER))
		bad(m, __LINE__, m->from_len, len);
	if (!(c->flags & GNET_MSG_PEEK))
		m->tally->small[1][c->domain][c->end][len]++;
}

/* Thread 0: one that says what it is; order is UNIX's. */
GNET_DEV void got_large(struct mix *m, const struct call *c, const struct head *h)
{
	uint32_t *next, group = h->number / WARPS;

	if (h->domain != c->domain || h->to != c->end || h->party >= PARTIES || h->from >= ENDS ||
	    h->number >= NUMBERS || !is_way(h->from, h->to, m->a.partner)) {
		bad(m, __LINE__, h->domain * 16 + h->to, c->domain * 16 + c->end);
		return;
	}
	if (!is_address(m, c, h->from))
		bad(m, __LINE__, m->from_len, address(m, c->domain, h->from)->len);
	if (h->domain == UNIX && group < m->next[h->party][h->from][h->to])
		bad(m, __LINE__, group, m->next[h->party][h->from][h->to]);
	if (c->flags & GNET_MSG_PEEK)
		return;
	next = &m->tally->next[h->party][h->from][h->to];
	if (h->domain == UNIX && group > *next)
		*next = group;
	m->tally->got[h->party][h->number]++;
}

/* All: what was received. `rc`: the call's result. */
GNET_DEV void got(struct mix *m, const struct call *c, const uint8_t *buf, int64_t rc)
{
	uint32_t have = rc < (int64_t)c->len ? (uint32_t)rc : c->len, len = (uint32_t)rc;
	struct head h;
	int cut = 0, big = rc >= (int64_t)SHORT && c->len >= SHORT;

	memset(&h, 0, sizeof(h));
	if (big) {
		memcpy(&h, buf, sizeof(h));
		len = h.len;
		/* The longest are cut where the ring ends. */
		if (len > LARGEST && have > CUT_AT)
			have = CUT_AT;
		cut = len > have;
	}
	/* Of one that was only looked at, with less room than its head takes, there is nothing to say. */
	if (!big && c->len < SHORT)
		return;
	if (big && (h.check != check_of(&h) || len < SHORT || len > HOST_LARGEST))
		bad(m, __LINE__, h.check, check_of(&h));
	else if (c->flags & GNET_MSG_TRUNC ? rc != len : rc < (int64_t)have || rc > len)
		bad(m, __LINE__, rc, len);
	else if (!(c->flags & GNET_MSG_TRUNC) && len <= LARGEST &&
		 rc != (len < c->len ? len : c->len))
		bad(m, __LINE__, rc, len);
	else if (wrong_bytes(buf, have, len, &h))
		bad(m, __LINE__, h.number, len);
	else if (c->api == PARTS && len <= LARGEST && !(m->msg.flags & GNET_MSG_TRUNC) != !cut)
		bad(m, __LINE__, m->msg.flags, len);
	else if (test_k_tid() == 0 && big)
		got_large(m, c, &h);
	else if (test_k_tid() == 0)
		got_small(m, c, len);
	if (test_k_tid() == 0 && !(c->flags & GNET_MSG_PEEK))
		gnet_dev_add(dev_word(m, DEV_GOT + c->domain), 1);
}

/* ---- steps ------------------------------------------------------------------------------------------- */

/* Thread 0: anything; `sends` 0 if nothing is to be sent, or if the socket is not to be used. */
GNET_DEV void any_call(struct mix *m, struct call *c)
{
	memset(c, 0, sizeof(*c));
	c->domain = draw(m, DOMAINS);
	c->end = draw(m, PEER);
	c->to = draw(m, ENDS);
	c->sends = m->left && draw(m, 2) && is_way(c->end, c->to, m->a.partner);
	c->scope = (int)draw(m, SCOPES);
	c->who = draw(m, blockDim.x);
	if (c->scope == WARP)
		c->who &= ~31u;
	c->api = (int)draw(m, 3);
	c->flags = draw(m, 2) ? GNET_MSG_DONTWAIT : 0;
	if (c->sends) {
		/* Without an address only to where the socket is connected. */
		if (c->api == PLAIN && (c->end != TWO || c->to != m->a.partner))
			c->api = ADDRESSED;
		c->len = any_len(&m->random, LARGEST);
		return;
	}
	c->addr_room = draw(m, 5) ? (uint32_t)sizeof(m->from.a) : draw(m, 20);
	if (!draw(m, 4))
		c->flags |= GNET_MSG_PEEK;
	if (!draw(m, 3))
		c->flags |= GNET_MSG_TRUNC;
	c->len = HOST_LARGEST;
	if (!draw(m, 5))
		c->len = (c->flags & GNET_MSG_PEEK ? 0 : SHORT) + any_len(&m->random, 3000);
}

/* All: the datagram of the call, which has that number, into `buf`. */
GNET_DEV void compose(const struct call *c, uint8_t *buf, uint32_t number)
{
	struct head h;

	memset(&h, 0, sizeof(h));
	h.party = (uint8_t)blockIdx.x;
	h.domain = (uint8_t)c->domain;
	h.from = (uint8_t)c->end;
	h.to = (uint8_t)c->to;
	h.number = number;
	h.len = c->len;
	h.check = check_of(&h);
	test_k_pattern(buf, c->len, 0, c->len < SHORT ? 100u + c->len : key_of(&h));
	if (c->len >= SHORT && test_k_tid() == 0)
		memcpy(buf, &h, sizeof(h));
	__syncthreads();
}

/* Where a call sends to; NULL: where its socket is connected. */
GNET_DEV const struct test_addr *goes_to(const struct mix *m, const struct call *c)
{
	int plain = c->end == TWO && c->to == m->a.partner && (c->api == PLAIN || (c->who & 1u));

	return plain ? NULL : address(m, c->domain, c->to);
}

/* Thread 0: a call has sent the datagram of that number, or not. */
GNET_DEV void count_sent(struct mix *m, const struct call *c, uint32_t number, int64_t rc)
{
	if (rc != (int64_t)c->len) {
		nothing(m, c, rc);
		return;
	}
	if (c->len < SHORT)
		m->tally->small[0][c->domain][c->to][c->len]++;
	else
		m->tally->sent[number] = (uint16_t)(1u + c->domain);
	gnet_dev_add(dev_word(m, DEV_SENT + c->domain), 1);
	if (!--m->left)
		gnet_dev_add(dev_word(m, DEV_SENDERS), 1);
}

GNET_DEV void send_one(struct mix *m, const struct call *c)
{
	int64_t rc;

	compose(c, m->buf, m->number);
	rc = hand_over(m, c, goes_to(m, c));
	if (test_k_tid())
		return;
	count_sent(m, c, m->number, rc);
	if (rc >= (int64_t)SHORT)
		m->number += WARPS;
}

/* Several warps of the block at once, each with a slice of the buffer. */
GNET_DEV void by_warps(struct mix *m, struct call *c)
{
	__shared__ int64_t rc[WARPS];
	uint32_t warp = test_k_tid() / 32u, n = (blockDim.x + 31u) / 32u, left = m->left, i;
	uint8_t *mine = m->buf + warp * SLICE;
	const struct test_addr *to = goes_to(m, c);
	int fd = m->fd[c->domain][c->end];
	int64_t one = 0;

	n = n < WARPS ? n : WARPS;
	n = c->sends && left < n ? left : n;
	__syncthreads();
	if (test_k_tid() == 0 && (!c->sends || c->len > SLICE))
		c->len = SLICE;
	if (test_k_tid() == 0)
		c->api = PLAIN;
	__syncthreads();
	for (i = 0; i < n && c->sends; i++)
		compose(c, m->buf + i * SLICE, m->number + i);
	if (warp < n && c->sends)
		one = gsendto_warp(m->a.t.net, fd, mine, c->len, c->flags, to ? &to->a : NULL,
				   to ? to->len : 0);
	else if (warp < n)
		one = grecv_warp(m->a.t.net, fd, mine, c->len, c->flags);
	if (warp < n && test_k_tid() % 32u == 0)
		rc[warp] = one;
	__syncthreads();
	for (i = 0; i < n; i++) {
		if (!c->sends && rc[i] >= 0)
			got(m, c, m->buf + i * SLICE, rc[i]);
		else if (test_k_tid() == 0 && c->sends)
			count_sent(m, c, m->number + i, rc[i]);
		else if (test_k_tid() == 0)
			nothing(m, c, rc[i]);
	}
	__syncthreads();
	if (test_k_tid() == 0 && c->sends)
		m->number += WARPS;
}

GNET_DEV void receive_one(struct mix *m, const struct call *c)
{
	int64_t rc = take(m, c);

	if (rc >= 0)
		got(m, c, m->buf, rc);
	else if (test_k_tid() == 0)
		nothing(m, c, rc);
	__syncthreads();
}

/* All ends, one of them twice, and none. Who alone receives at the first finds there what it was told of. */
GNET_DEV void look(struct mix *m, struct call *c)
{
	__shared__ struct gnet_pollfd p[6];
	int64_t limit;
	int rc = 0, i, only;

	__syncthreads();
	for (i = 0; i < 6 && test_k_tid() == 0; i++) {
		p[i].fd = i == 5 ? -1 : m->fd[i / 2 % 2][i % 2];
		p[i].events = i ? GNET_POLLIN | GNET_POLLOUT : GNET_POLLIN;
	}
	__syncthreads();
	limit = from_thread(test_k_tid() == 0 ? (int64_t)draw(m, 1000000) : 0, 0);
	if (c->scope == BLOCK)
		rc = gpoll(m->a.t.net, p, 6, limit);
	if (c->scope == WARP && test_k_tid() / 32u == c->who / 32u)
		rc = gpoll_warp(m->a.t.net, p, 6, limit);
	if (c->scope == THREAD && test_k_tid() == c->who)
		rc = gpoll_thread(m->a.t.net, p, 6, limit);
	rc = (int)from_thread(rc, c->who);
	only = is_only_one(m->a.seed, UNIX, ONE) && may_receive(m->a.seed, UNIX, ONE, blockIdx.x);
	if (test_k_tid() == 0) {
		c->sends = 0;
		c->domain = c->end = 0;
		c->len = HOST_LARGEST;
		c->flags = GNET_MSG_DONTWAIT;
		if (rc < 0)
			nothing(m, c, rc);
		for (i = 0; i < 6 && rc > 0; i++)
			if (p[i].revents & ~(GNET_POLLIN | GNET_POLLOUT) && !ended(m))
				bad(m, __LINE__, p[i].revents, i);
	}
	__syncthreads();
	if (rc <= 0 || !only || !(p[0].revents & GNET_POLLIN) || m->a.mode != OPEN)
		return;
	rc = (int)take(m, c);
	if (rc < 0)
		bad(m, __LINE__, rc, 0);
	else
		got(m, c, m->buf, rc);
}

/* A time limit, of which there is always one, or O_NONBLOCK, for all users of an end. */
GNET_DEV void set_some(struct mix *m, struct call *c)
{
	__shared__ int64_t t[2];
	int what = (int)c->scope, fd = m->fd[c->domain][c->end];
	int64_t rc;

	__syncthreads();
	if (test_k_tid() == 0) {
		t[0] = 0;
		t[1] = 1 + (int64_t)draw(m, 3000);
	}
	__syncthreads();
	if (what < 2)
		rc = gsetsockopt(m->a.t.net, fd, GNET_SOL_SOCKET,
				 what ? GNET_SO_RCVTIMEO : GNET_SO_SNDTIMEO, t, sizeof(t));
	else
		rc = gfcntl(m->a.t.net, fd, GNET_F_SETFL, c->who & 1u ? GNET_O_NONBLOCK : 0);
	if (rc && test_k_tid() == 0)
		nothing(m, c, rc);
	__syncthreads();
}

/* ---- rounds -------------------------------------------------------------------------------------------- */

GNET_DEV int make_end(struct mix *m, uint32_t domain, uint32_t end)
{
	struct test_addr *mine = &m->a.addr[domain * ENDS + end];
	const struct test_addr *to = address(m, domain, m->a.partner);
	struct call c;
	int fd;

	K_GET(m->r, fd, gsocket(m->a.t.net, mine->a.sa.sa_family, GNET_SOCK_DGRAM, 0));
	K_EQ(m->r, gbind(m->a.t.net, fd, &mine->a, mine->len), 0);
	if (test_k_tid() == 0)
		m->from_len = sizeof(mine->a);
	__syncthreads();
	K_EQ(m->r, ggetsockname(m->a.t.net, fd, &mine->a, &m->from_len), 0);
	if (test_k_tid() == 0) {
		mine->len = m->from_len;
		m->fd[domain][end] = fd;
	}
	__syncthreads();
	if (end == TWO)
		K_EQ(m->r, gconnect(m->a.t.net, fd, &to->a, to->len), 0);
	memset(&c, 0, sizeof(c));
	c.domain = domain;
	c.end = end;
	for (c.scope = 0; c.scope < 2; c.scope++)
		set_some(m, &c);
	return 0;
}

/* Block 0 makes the sockets, the others wait for them. */
GNET_DEV int make_ends(struct mix *m)
{
	uint64_t *fds = m->a.t.word + TEST_WORDS / 2;
	uint32_t d, e;

	if (blockIdx.x)
		test_k_wait(&m->a.t.word[WORD_READY], 1);
	for (d = 0; d < DOMAINS; d++) {
		for (e = 0; e < PEER; e++) {
			if (blockIdx.x == 0)
				K_CALL(make_end(m, d, e));
			if (blockIdx.x == 0 && test_k_tid() == 0)
				gnet_sys_store(&fds[d * ENDS + e], (uint64_t)m->fd[d][e]);
			else if (test_k_tid() == 0)
				m->fd[d][e] = (int)gnet_sys_load(&fds[d * ENDS + e]);
		}
	}
	if (blockIdx.x == 0)
		test_k_set(&m->a.t.word[WORD_READY], 1);
	__syncthreads();
	return 0;
}

/* Thread 0: has all come that was sent? Of UDP all that will. */
GNET_DEV int all_came(struct mix *m)
{
	uint64_t now = gnet_time_ns();
	uint32_t d;

	if (gnet_dev_load_acquire(dev_word(m, DEV_SENDERS)) < BLOCKS ||
	    !gnet_sys_load_acquire(&m->a.t.word[WORD_HOST_DONE]))
		return 0;
	for (d = 0; d < DOMAINS; d++) {
		uint64_t sent = gnet_dev_load(dev_word(m, DEV_SENT + d)) +
				gnet_sys_load(&m->a.t.word[WORD_SENT + d]);
		uint64_t came = gnet_dev_load(dev_word(m, DEV_GOT + d)) +
				gnet_sys_load(&m->a.t.word[WORD_GOT + d]);

		if (came == sent)
			continue;
		if (came != m->got[d] || !m->since[d]) {
			m->got[d] = came;
			m->since[d] = now;
		}
		if (d == UNIX && now - m->since[d] > 10000 * MS * TEST_SLOW)
			return bad(m, __LINE__, (int64_t)came, (int64_t)sent);
		if (d == UNIX || now - m->since[d] < 20 * MS * TEST_SLOW)
			return 0;
	}
	return 1;
}

/* All: one step; whose is not to be done by this block is left out. */
GNET_DEV void step(struct mix *m)
{
	__shared__ struct call c;
	uint32_t what = (uint32_t)from_thread(test_k_tid() == 0 ? (int64_t)draw(m, 20) : 0, 0);

	if (test_k_tid() == 0) {
		any_call(m, &c);
		memcpy(m->next, m->tally->next, sizeof(m->next));
	}
	__syncthreads();
	if (what == 0)
		look(m, &c);
	else if (m->fd[c.domain][c.end] < 0)
		return;
	else if (what == 1)
		set_some(m, &c);
	else if (!c.sends && !may_receive(m->a.seed, c.domain, c.end, blockIdx.x))
		return;
	else if (what < 5)
		by_warps(m, &c);
	else if (c.sends)
		send_one(m, &c);
	else
		receive_one(m, &c);
	__syncthreads();
}

/* In such a round the last block closes an end while others are in it. */
GNET_DEV int close_one(struct mix *m)
{
	uint32_t d, e;

	d = (uint32_t)from_thread(test_k_tid() == 0 ? (int64_t)draw(m, DOMAINS) : 0, 0);
	e = (uint32_t)from_thread(test_k_tid() == 0 ? (int64_t)draw(m, PEER) : 0, 0);
	if (test_k_tid() == 0)
		atomicExch(&m->a.t.dword[DEV_ENDED], 1ull);
	K_EQ(m->r, gclose(m->a.t.net, m->fd[d][e]), 0);
	__syncthreads();
	if (test_k_tid() == 0)
		m->fd[d][e] = -1;
	__syncthreads();
	return 0;
}

/* Block 0, when all are done. What nobody has received goes with the sockets. */
GNET_DEV int end_round(struct mix *m)
{
	uint32_t d, e, gone = 0;
	int64_t rc;

	__syncthreads();
	if (test_k_tid() == 0)
		gnet_dev_add(dev_word(m, DEV_DONE), 1);
	if (blockIdx.x || m->a.mode == ABORTS)
		return 0;
	if (test_k_tid() == 0)
		while (gnet_dev_load_acquire(dev_word(m, DEV_DONE)) < BLOCKS)
			__nanosleep(20000);
	__syncthreads();
	for (d = 0; d < DOMAINS; d++) {
		for (e = 0; e < PEER; e++) {
			rc = m->fd[d][e] < 0 ? -EBADF : gclose(m->a.t.net, m->fd[d][e]);
			if (rc == -EBADF)
				gone++;
			else
				K_EQ(m->r, rc, 0);
		}
	}
	K_EQ(m->r, gone, m->a.mode == CLOSES);
	return 0;
}

GNET_DEV int mixed(struct mix *m)
{
	uint32_t steps, most = QUOTA / 2u;

	K_CALL(make_ends(m));
	for (steps = 0;; steps++) {
		int over = m->over;

		if (m->a.mode == OPEN)
			over = test_k_tid() == 0 && !(steps & 7u) ? all_came(m) : 0;
		else if (m->a.mode == CLOSES)
			over = steps == 3u * most;
		if (from_thread(over, 0))
			break;
		step(m);
		__syncthreads();
		if (m->failed)
			return -1;
		if (m->a.mode == CLOSES && blockIdx.x == BLOCKS - 1u && steps == most)
			K_CALL(close_one(m));
	}
	return m->failed ? -1 : end_round(m);
}

GNET_KERNEL(mixed_kernel, struct mix_args, a)
{
	struct test_report *r = &a.t.report[blockIdx.x];
	__shared__ struct mix m;

	if (test_k_tid() == 0) {
		memset(&m, 0, sizeof(m));
		m.a = a;
		m.r = r;
		m.tally = &a.tally[blockIdx.x];
		m.buf = a.t.buf + a.t.room * blockIdx.x;
		m.random = random_of(a.seed, blockIdx.x);
		m.left = a.t.n;
	}
	__syncthreads();
	test_k_done(r, mixed(&m));
}

/* ---- the host's part -------------------------------------------------------------------------------------- */

struct host {
	struct mix_args *a;
	struct tally *tally;
	int fd[DOMAINS];
	uint64_t random;
	uint32_t left, number;
	uint64_t sent[DOMAINS], got[DOMAINS];
	uint8_t buf[HOST_LARGEST + 1];
};

static void host_end(struct host *h, uint32_t domain)
{
	struct test_addr *a = &h->a->addr[domain * ENDS + PEER];
	socklen_t len = sizeof(a->a);

	h->fd[domain] = socket(a->a.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CHECK(h->fd[domain] >= 0);
	if (bind(h->fd[domain], &a->a.sa, a->len) != 0)
		FAIL("bind: %s", strerror(errno));
	CHECK_EQ(getsockname(h->fd[domain], &a->a.sa, &len), 0);
	a->len = len;
}

static void host_send(struct host *h)
{
	uint32_t domain = draw_of(&h->random, DOMAINS), end = draw_of(&h->random, PEER);
	uint32_t len = any_len(&h->random, HOST_LARGEST);
	const struct test_addr *to = &h->a->addr[domain * ENDS + end];
	struct head d;

	if (!h->left || !is_way(PEER, end, h->a->partner))
		return;
	memset(&d, 0, sizeof(d));
	d.party = HOST;
	d.domain = (uint8_t)domain;
	d.from = PEER;
	d.to = (uint8_t)end;
	d.number = h->number * WARPS;
	d.len = len;
	d.check = check_of(&d);
	test_pattern(h->buf, len, 0, len < SHORT ? 100u + len : key_of(&d));
	if (len >= SHORT)
		memcpy(h->buf, &d, sizeof(d));
	if (sendto(h->fd[domain], h->buf, len, 0, &to->a.sa, to->len) != (ssize_t)len) {
		if (errno != EAGAIN && errno != ENOBUFS && h->a->mode == OPEN)
			FAIL("sendto: %s", strerror(errno));
		return;
	}
	if (len < SHORT)
		h->tally->small[0][domain][end][len]++;
	else
		h->tally->sent[h->number++ * WARPS] = (uint16_t)(1u + domain);
	h->sent[domain]++;
	h->left--;
}

static void host_got(struct host *h, uint32_t domain, uint32_t len, const struct test_addr *from)
{
	const struct test_addr *is;
	uint32_t *next;
	struct head d;

	h->got[domain]++;
	if (len < SHORT) {
		test_pattern_check(h->buf, len, 0, 100u + len);
		h->tally->small[1][domain][PEER][len]++;
		return;
	}
	memcpy(&d, h->buf, sizeof(d));
	if (d.check != check_of(&d) || d.len != len || d.domain != domain || d.to != PEER ||
	    d.party >= BLOCKS || d.from >= PEER || d.number >= NUMBERS)
		FAIL("the host got number %u of party %u, %u bytes in %u", d.number, d.party, d.len,
		     len);
	test_pattern_check(h->buf + SHORT, len - SHORT, SHORT, key_of(&d));
	is = &h->a->addr[domain * ENDS + d.from];
	if (from->len != is->len || memcmp(&from->a, &is->a, is->len))
		FAIL("number %u of party %u comes with another's address", d.number, d.party);
	next = &h->tally->next[d.party][d.from][PEER];
	if (domain == UNIX && d.number / WARPS < *next)
		FAIL("the host got number %u of party %u after group %u", d.number, d.party, *next);
	if (domain == UNIX)
		*next = d.number / WARPS;
	h->tally->got[d.party][d.number]++;
}

static void host_receive(struct host *h, uint32_t domain)
{
	struct test_addr from;
	socklen_t len = sizeof(from.a);
	ssize_t n = recvfrom(h->fd[domain], h->buf, sizeof(h->buf), 0, &from.a.sa, &len);

	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR && h->a->mode == OPEN)
			FAIL("recvfrom: %s", strerror(errno));
		return;
	}
	from.len = len;
	host_got(h, domain, (uint32_t)n, &from);
}

static int host_over(const struct test_report *r)
{
	unsigned i, done = 0;

	for (i = 0; i < BLOCKS; i++) {
		if (__atomic_load_n(&r[i].line, __ATOMIC_ACQUIRE))
			test_reports(&r[i], 1);
		done += __atomic_load_n(&r[i].done, __ATOMIC_ACQUIRE) != 0;
	}
	return done == BLOCKS;
}

/* Until the kernel is done. */
static void serve(struct host *h, gpunet_t *g)
{
	uint64_t *word = h->a->t.word, end = test_now_ms() + 20 + draw_of(&h->random, 30);
	struct pollfd p[DOMAINS];

	test_word_wait(&word[WORD_READY], 1, h->a->t.report);
	while (!host_over(h->a->t.report)) {
		for (uint32_t d = 0; d < DOMAINS; d++) {
			p[d].fd = h->fd[d];
			p[d].events = POLLIN;
		}
		poll(p, DOMAINS, h->left ? (int)draw_of(&h->random, 2) : 5);
		for (uint32_t i = draw_of(&h->random, 12); i; i--)
			host_receive(h, draw_of(&h->random, DOMAINS));
		for (uint32_t i = draw_of(&h->random, 12); i; i--)
			host_send(h);
		for (uint32_t d = 0; d < DOMAINS; d++) {
			test_word_set(&word[WORD_SENT + d], h->sent[d]);
			test_word_set(&word[WORD_GOT + d], h->got[d]);
		}
		test_word_set(&word[WORD_HOST_DONE], !h->left);
		if (h->a->mode == ABORTS && test_now_ms() >= end)
			gpunet_abort(g);
	}
}

/* ---- in the end --------------------------------------------------------------------------------------------- */

static void compare_party(const struct mix_args *a, unsigned s)
{
	for (unsigned n = 0; n < NUMBERS; n++) {
		unsigned sent = a->tally[s].sent[n], came = 0;

		for (unsigned i = 0; i < PARTIES; i++)
			came += a->tally[i].got[s][n];
		if (came > (sent != 0))
			FAIL("number %u of party %u came %u times, sent: %u", n, s, came, sent);
		if (!came && sent == 1 + UNIX && a->mode == OPEN)
			FAIL("number %u of party %u did not come", n, s);
	}
}

static void compare_small(const struct mix_args *a, unsigned domain, unsigned end, unsigned len)
{
	unsigned count[2] = { 0, 0 };

	for (unsigned i = 0; i < PARTIES; i++)
		for (unsigned k = 0; k < 2; k++)
			count[k] += a->tally[i].small[k][domain][end][len];
	if (count[1] > count[0] || (count[1] < count[0] && domain == UNIX && a->mode == OPEN))
		FAIL("domain %u, end %u: of %u bytes %u were sent, %u came", domain, end, len,
		     count[0], count[1]);
}

static void compare(const struct mix_args *a)
{
	for (unsigned s = 0; s < PARTIES; s++)
		compare_party(a, s);
	for (unsigned i = 0; i < DOMAINS * ENDS * SHORT; i++)
		compare_small(a, i / SHORT / ENDS, i / SHORT % ENDS, i % SHORT);
}

static void run(gpunet_t *g, uint32_t mode, unsigned threads, uint64_t seed)
{
	static struct host h;
	struct mix_args a;

	memset(&a, 0, sizeof(a));
	memset(&h, 0, sizeof(h));
	a.t = test_setup(g, TEST_UNIX, BLOCKS, HOST_LARGEST);
	a.t.n = QUOTA;
	a.addr = (struct test_addr *)test_shared(DOMAINS * ENDS * sizeof(*a.addr));
	a.tally = (struct tally *)test_shared(PARTIES * sizeof(*a.tally));
	a.seed = seed;
	a.mode = mode;
	a.partner = seed & 1 ? ONE : PEER;
	for (unsigned i = 0; i < DOMAINS * ENDS; i++)
		test_addr_make(&a.addr[i], i / ENDS == UDP ? TEST_TCP : TEST_UNIX);
	h.a = &a;
	h.tally = &a.tally[HOST];
	h.random = random_of(seed, HOST);
	h.left = QUOTA;
	for (unsigned d = 0; d < DOMAINS; d++)
		host_end(&h, d);
	a.t.word[WORD_HOST_DONE] = 0;
	TEST_LAUNCH(g, mixed_kernel, a, BLOCKS, threads);
	serve(&h, g);
	test_sync(g, a.t.report, BLOCKS);
	compare(&a);
	for (unsigned i = 0; i < DOMAINS * ENDS; i++)
		test_addr_remove(&a.addr[i]);
	for (unsigned d = 0; d < DOMAINS; d++)
		close(h.fd[d]);
	test_shared_free(a.tally);
	test_shared_free(a.addr);
	test_teardown(&a.t);
}

int main(int argc, char **argv)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : 2;

	test_begin(60 * (unsigned)seeds);
	opt.segment_bytes = RING;
	for (; seeds; seeds--, seed++) {
		gpunet_t *g;

		opt.proxy_threads = 1 + seed % 3;
		/* At times each segment is one that somebody else wants. */
		opt.slab_bytes = seed % 4 == 2 ? SCARCE * RING : 0;
		g = test_open(&opt);
		CHECK_EQ(GPUNET_PREPARE(mixed_kernel), 0);
		run(g, OPEN, 33, 8 * seed);
		run(g, OPEN, MANY, 8 * seed + 1);
		run(g, CLOSES, 64, 8 * seed + 2 + (seed & 1));
		run(g, OPEN, 7, 8 * seed + 4);
		run(g, OPEN, 64, 8 * seed + 5);
		run(g, ABORTS, 40, 8 * seed + 6);
		test_close(g);
	}
	return 0;
}
