/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several blocks on both ends of one connection, each by any call, in any scope, of any length (also 0), with any flags, while options
 * change: tests/sim/mixed.c with real threads, and on a GPU with its memory. In rounds, each with a new connection, of which the
 * last ones end with a gclose by one block at any time. Whoever writes numbers its bytes modulo MODULUS and puts its own number
 * beside it: so what one call receives is checked by itself, all that an only reader gets is, and in the end as many of each value
 * must have been received as sent.
 */
#include "test.h"

#define BLOCKS 4u
#define ROUNDS 12u
#define CLOSED 9u   /* the first round that is */
#define MODULUS 61u /* no divisor of a ring's size */
#define RING (16u << 10)
#define LARGEST 20000u /* more than a ring holds */
#define QUOTA 60000u
#define MANY (TEST_SLOW < 8 ? 256u : 80u) /* of a block's threads */

enum { WORD_ROUND, WORD_FD }; /* the descriptors: two words */
enum { DEV_DONE, DEV_WRITERS, DEV_ENDED = DEV_WRITERS + 2 };
enum { PLAIN, WARP, THREAD, PARTS, BORROW, HOWS };

/* What each block counts, behind its buffer: of each direction, bytes of each value. */
struct sums {
	uint32_t of[2][2][256]; /* sent, received */
};

/* A block's round; thread 0's, but for what all read. */
struct mix {
	struct test_args *a;
	struct test_report *r;
	uint8_t *buf;
	struct sums *sums;
	uint64_t random;
	uint32_t round, roles; /* bit 2d: writes direction d; 2d + 1: reads it */
	uint32_t left[2], at[2];
	uint32_t readers[2], seen[2][4];
	int fd[2], listener;
	int failed;
};

struct call {
	int how, flags;
	uint32_t dir, what, len;
};

GNET_DEV uint32_t draw(struct mix *m, uint32_t n)
{
	m->random = m->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((m->random >> 33) % n);
}

GNET_DEV uint64_t hash(uint64_t seed, uint32_t round, uint32_t i)
{
	uint64_t x = (seed + round * 97u + i * 13u + 1u) * UINT64_C(0x9e3779b97f4a7c15);

	return x ^ x >> 29;
}

/* All blocks come to the same: one or two writers and readers of each direction. */
GNET_DEV uint32_t roles_of(uint64_t seed, uint32_t round, uint32_t block)
{
	uint32_t mine = 0, i;

	for (i = 0; i < 8; i++) {
		uint32_t kind = i / 2; /* writers and readers of direction 0, of direction 1 */
		uint32_t who = (uint32_t)(hash(seed, round, i) >> 40) % BLOCKS;

		if (who == block)
			mine |= 1u << kind;
	}
	return mine;
}

GNET_DEV uint8_t byte_at(uint32_t writer, uint32_t pos)
{
	return (uint8_t)(writer << 6 | pos % MODULUS);
}

GNET_DEV int bad(struct mix *m, int line, int64_t got, int64_t want)
{
	m->failed = 1;
	return test_k_bad(m->r, line, got, want);
}

/* ---- what thread 0 counts and checks --------------------------------------------------------- */

GNET_DEV void count_sent(struct mix *m, uint32_t d, uint32_t from, uint32_t to, uint32_t by)
{
	uint32_t i;

	for (i = from; i < to; i++)
		m->sums->of[0][d][byte_at(blockIdx.x, m->at[d] + i)] += by;
}

/* `next`: each writer's next number; MODULUS: any. */
GNET_DEV void check_bytes(struct mix *m, const uint8_t *p, uint64_t n, uint32_t *next)
{
	uint64_t i;

	for (i = 0; i < n && !m->failed; i++) {
		uint32_t writer = p[i] >> 6, number = p[i] & 63u;

		if (number >= MODULUS || (next[writer] < MODULUS && next[writer] != number))
			bad(m, __LINE__, number, next[writer]);
		next[writer] = (number + 1u) % MODULUS;
	}
}

GNET_DEV void check_begin(const struct mix *m, uint32_t d, uint32_t *next)
{
	uint32_t i;

	for (i = 0; i < 4; i++)
		next[i] = m->readers[d] == 1 ? m->seen[d][i] % MODULUS : MODULUS;
}

GNET_DEV void consumed(struct mix *m, uint32_t d, const uint8_t *p, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++) {
		m->sums->of[1][d][p[i]]++;
		m->seen[d][p[i] >> 6]++;
	}
}

/* A call that did nothing: does its role end? */
GNET_DEV int role_ends(struct mix *m, int64_t rc)
{
	int end = rc == -EBADF || rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN;

	if (rc == -EAGAIN || rc == -ETIMEDOUT || rc == -ENOBUFS)
		return 0;
	if (!end || !gnet_dev_load_acquire((const uint64_t *)&m->a->dword[DEV_ENDED]))
		bad(m, __LINE__, rc, 0);
	return 1;
}

/* ---- one call ---------------------------------------------------------------------------------- */

GNET_DEV void any_call(struct mix *m, struct call *c)
{
	uint32_t alone = !(m->roles & (m->roles - 1u)), pick = draw(m, 4), len = 1;

	while (!(m->roles >> pick & 1u))
		pick = (pick + 1u) % 4u;
	c->dir = pick / 2u;
	c->what = pick % 2u;
	c->how = draw(m, 3) ? PLAIN : (int)draw(m, HOWS);
	for (pick = draw(m, 9); pick; pick--)
		len *= 4u;
	len = len < LARGEST ? len : LARGEST;
	c->len = draw(m, 5) ? draw(m, len + 1u) : 103u + draw(m, 6);
	if (c->how == BORROW) {
		c->len += !c->len;
		c->len = c->len < RING ? c->len : RING;
	}
	if (!c->what && c->len > m->left[c->dir])
		c->len = m->left[c->dir];
	/* Who is to close must not wait for who waits for the close. */
	c->flags = alone && m->round < CLOSED && draw(m, 4) ? 0 : GNET_MSG_DONTWAIT;
	if (c->what && c->how != BORROW && !draw(m, 5))
		c->flags |= GNET_MSG_PEEK;
	if (c->what && c->how != BORROW && !draw(m, 5))
		c->flags |= GNET_MSG_WAITALL;
}

GNET_DEV int64_t from_0(int64_t rc)
{
	__shared__ int64_t shared;
	int64_t out;

	__syncthreads();
	if (test_k_tid() == 0)
		shared = rc;
	__syncthreads();
	out = shared;
	__syncthreads();
	return out;
}

GNET_DEV struct gnet_msghdr *parts_of(uint8_t *buf, uint32_t n)
{
	__shared__ struct gnet_iovec v[3];
	__shared__ struct gnet_msghdr msg;

	__syncthreads();
	if (test_k_tid() == 0) {
		memset(&msg, 0, sizeof(msg));
		v[0].base = v[1].base = buf;
		v[0].len = n / 3u;
		v[1].len = 0;
		v[2].base = buf + n / 3u;
		v[2].len = n - n / 3u;
		msg.iov = v;
		msg.iovlen = 3;
	}
	__syncthreads();
	return &msg;
}

GNET_DEV int64_t receive(struct mix *m, int fd, const struct call *c)
{
	gnet_t *net = m->a->net;
	int64_t rc = 0;

	if (c->how == WARP) {
		if (test_k_tid() < 32)
			rc = grecv_warp(net, fd, m->buf, c->len, c->flags);
		return from_0(rc);
	}
	if (c->how == THREAD) {
		if (test_k_tid() == 0)
			rc = grecv_thread(net, fd, m->buf, c->len, c->flags);
		return from_0(rc);
	}
	if (c->how == PARTS)
		return grecvmsg(net, fd, parts_of(m->buf, c->len), c->flags);
	return grecv(net, fd, m->buf, c->len, c->flags);
}

/* Into m->buf, as the others; gives back a part of it only at times. */
GNET_DEV int64_t receive_lent(struct mix *m, int fd, struct call *c)
{
	__shared__ struct gnet_borrow b;
	int64_t n = grecv_borrow(m->a->net, fd, &b, c->len, c->flags), some, rc;
	uint64_t i;

	if (n <= 0)
		return n;
	some = from_0(test_k_tid() == 0 && !draw(m, 3) ? (int64_t)draw(m, (uint32_t)n + 1u) : n);
	for (i = test_k_tid(); i < (uint64_t)some; i += blockDim.x)
		m->buf[i] = i < b.len[0] ? b.ptr[0][i] : b.ptr[1][i - b.len[0]];
	__syncthreads();
	rc = grecv_return(m->a->net, fd, (uint64_t)some);
	return rc ? rc : some ? some : -EAGAIN;
}

GNET_DEV int64_t hand_over(struct mix *m, int fd, const struct call *c)
{
	gnet_t *net = m->a->net;
	int64_t rc = 0;

	if (c->how == WARP) {
		if (test_k_tid() < 32)
			rc = gsend_warp(net, fd, m->buf, c->len, c->flags);
		return from_0(rc);
	}
	if (c->how == THREAD) {
		if (test_k_tid() == 0)
			rc = gsend_thread(net, fd, m->buf, c->len, c->flags);
		return from_0(rc);
	}
	if (c->how == PARTS)
		return gsendmsg(net, fd, parts_of(m->buf, c->len), c->flags);
	return gsend(net, fd, m->buf, c->len, c->flags);
}

/* At times less than was reserved is handed over, though all of it was written. */
GNET_DEV int64_t hand_over_lent(struct mix *m, int fd, const struct call *c)
{
	__shared__ struct gnet_borrow b;
	int64_t rc, some;
	uint64_t i;

	rc = c->len ? gsend_reserve(m->a->net, fd, &b, c->len, c->flags) : 0;
	if (rc || !c->len)
		return rc;
	for (i = test_k_tid(); i < c->len; i += blockDim.x)
		*(i < b.len[0] ? &b.ptr[0][i] : &b.ptr[1][i - b.len[0]]) = m->buf[i];
	some = from_0(test_k_tid() == 0 && !draw(m, 3) ? (int64_t)draw(m, c->len + 1u) : c->len);
	rc = gsend_commit(m->a->net, fd, (uint64_t)some);
	return rc ? rc : some;
}

/* ---- steps -------------------------------------------------------------------------------------- */

GNET_DEV void read_some(struct mix *m, struct call *c)
{
	uint32_t d = c->dir, next[4];
	int64_t rc = c->how == BORROW ? receive_lent(m, m->fd[!d], c) : receive(m, m->fd[!d], c);

	if (test_k_tid())
		return;
	if (rc > (int64_t)c->len) {
		bad(m, __LINE__, rc, c->len);
	} else if (rc > 0) {
		check_begin(m, d, next);
		check_bytes(m, m->buf, (uint64_t)rc, next);
		if (!(c->flags & GNET_MSG_PEEK))
			consumed(m, d, m->buf, (uint64_t)rc);
	}
	if (rc ? rc < 0 && role_ends(m, rc) : c->len != 0)
		m->roles &= ~(2u << 2u * d);
}

GNET_DEV void write_some(struct mix *m, struct call *c)
{
	uint32_t d = c->dir, i, sent;
	int64_t rc;

	for (i = test_k_tid(); i < c->len; i += blockDim.x)
		m->buf[i] = byte_at(blockIdx.x, m->at[d] + i);
	__syncthreads();
	rc = c->how == BORROW ? hand_over_lent(m, m->fd[d], c) : hand_over(m, m->fd[d], c);
	if (test_k_tid() == 0) {
		sent = rc > 0 ? (uint32_t)rc : 0;
		if (sent > c->len)
			bad(m, __LINE__, rc, c->len);
		count_sent(m, d, 0, sent, 1);
		m->at[d] += sent;
		m->left[d] -= sent;
		if (!m->left[d] || (rc < 0 && role_ends(m, rc)))
			m->roles &= ~(1u << 2u * d);
	}
	__syncthreads();
	if (m->roles >> 2u * d & 1u)
		return;
	/* The direction's last writer ends it. */
	if (!from_0(test_k_tid() == 0 && atomicAdd(&m->a->dword[DEV_WRITERS + d], ~0ull) == 1))
		return;
	rc = gshutdown(m->a->net, m->fd[d], GNET_SHUT_WR);
	if (rc && test_k_tid() == 0)
		role_ends(m, rc);
}

/* A time limit or O_NONBLOCK, for all users of an end. */
GNET_DEV void set_some(struct mix *m)
{
	__shared__ int64_t t[2];
	__shared__ uint32_t what, end;
	int64_t rc;

	__syncthreads();
	if (test_k_tid() == 0) {
		what = draw(m, 4);
		end = draw(m, 2);
		t[0] = 0;
		t[1] = draw(m, 2) ? (int64_t)draw(m, 500) : 0;
	}
	__syncthreads();
	if (what < 2)
		rc = gsetsockopt(m->a->net, m->fd[end], GNET_SOL_SOCKET,
				 what ? GNET_SO_RCVTIMEO : GNET_SO_SNDTIMEO, t, sizeof(t));
	else
		rc = gfcntl(m->a->net, m->fd[end], GNET_F_SETFL, t[1] ? GNET_O_NONBLOCK : 0);
	if (rc && test_k_tid() == 0)
		role_ends(m, rc);
}

/* ---- rounds ------------------------------------------------------------------------------------- */

GNET_DEV void begin(struct mix *m, struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint32_t i, k;

	__syncthreads();
	if (test_k_tid() == 0) {
		m->a = a;
		m->r = r;
		m->buf = buf;
		m->sums = (struct sums *)(void *)(buf + LARGEST);
		m->random = hash(a->n, m->round, 100u + blockIdx.x);
		m->roles = roles_of(a->n, m->round, blockIdx.x);
		m->failed = 0;
		for (i = 0; i < 2; i++) {
			m->left[i] = 1u + draw(m, draw(m, 2) ? QUOTA : 2000u);
			m->at[i] = m->readers[i] = 0;
			for (k = 0; k < BLOCKS; k++) {
				m->readers[i] += roles_of(a->n, m->round, k) >> (2u * i + 1u) & 1u;
				m->seen[i][k] = 0;
			}
		}
	}
	__syncthreads();
}

GNET_DEV void tell(struct mix *m)
{
	uint32_t d, k;

	for (d = 0; d < 2; d++) {
		unsigned long long writers = 0;

		for (k = 0; k < BLOCKS; k++)
			writers += roles_of(m->a->n, m->round, k) >> 2u * d & 1u;
		atomicExch(&m->a->dword[DEV_WRITERS + d], writers);
		gnet_sys_store(&m->a->word[WORD_FD + d], (uint64_t)m->fd[d]);
	}
	atomicExch(&m->a->dword[DEV_DONE], 0ull);
	atomicExch(&m->a->dword[DEV_ENDED], 0ull);
	gnet_sys_store_release(&m->a->word[WORD_ROUND], m->round);
}

/* Block 0 makes the connection, the others wait for it. */
GNET_DEV int meet(struct mix *m)
{
	struct test_args *a = m->a;
	int fd;

	if (blockIdx.x) {
		test_k_wait(&a->word[WORD_ROUND], m->round);
		if (test_k_tid() == 0) {
			m->fd[0] = (int)gnet_sys_load(&a->word[WORD_FD]);
			m->fd[1] = (int)gnet_sys_load(&a->word[WORD_FD + 1]);
		}
		__syncthreads();
		return 0;
	}
	if (m->round == 1) {
		K_GET(m->r, fd, test_k_listen(a->net, a->want, a->where, 1));
		if (test_k_tid() == 0)
			m->listener = fd;
	}
	K_GET(m->r, fd, test_k_connect(a->net, a->where));
	if (test_k_tid() == 0)
		m->fd[0] = fd;
	K_GET(m->r, fd, gaccept(a->net, m->listener, NULL, NULL));
	if (test_k_tid() == 0)
		m->fd[1] = fd;
	if (test_k_tid() == 0)
		tell(m);
	__syncthreads();
	return 0;
}

/* Block 0, when all are done: what was sent was received. */
GNET_DEV int compare(struct mix *m)
{
	uint32_t d, v, k;

	for (d = 0; d < 2; d++) {
		for (v = test_k_tid(); v < 256; v += blockDim.x) {
			uint32_t sent = 0, received = 0;

			for (k = 0; k < BLOCKS; k++) {
				const uint8_t *b = m->a->buf + m->a->room * k + LARGEST;
				const struct sums *s = (const struct sums *)(const void *)b;

				sent += s->of[0][d][v];
				received += s->of[1][d][v];
			}
			if (sent != received)
				m->failed = __LINE__;
		}
	}
	__syncthreads();
	return m->failed ? test_k_bad(m->r, __LINE__, m->round, m->failed) : 0;
}

GNET_DEV int end_round(struct mix *m)
{
	uint64_t *done = (uint64_t *)(void *)&m->a->dword[DEV_DONE];
	int64_t rc;

	__syncthreads();
	if (test_k_tid() == 0)
		gnet_dev_add(done, 1);
	if (blockIdx.x)
		return 0;
	if (test_k_tid() == 0)
		while (gnet_dev_load_acquire(done) < BLOCKS)
			__nanosleep(20000);
	__syncthreads();
	if (m->round < CLOSED)
		K_CALL(compare(m));
	for (int e = 0; e < 2; e++) {
		rc = gclose(m->a->net, m->fd[e]);
		K_EQ(m->r, rc, e == 0 && m->round >= CLOSED ? -EBADF : 0);
	}
	return 0;
}

/* In a round that is, the last block closes an end of the connection while others are in it. */
GNET_DEV int close_it(struct mix *m)
{
	if (m->round < CLOSED || blockIdx.x != BLOCKS - 1u)
		return 0;
	if (test_k_tid() == 0)
		atomicExch(&m->a->dword[DEV_ENDED], 1ull);
	K_EQ(m->r, gclose(m->a->net, m->fd[0]), 0);
	return 0;
}

GNET_DEV int one_round(struct mix *m)
{
	__shared__ struct call c;
	uint32_t steps = 0, most = 20;

	K_CALL(meet(m));
	/* Not before: block 0 has looked at those of the round before. */
	if (test_k_tid() == 0)
		memset(m->sums, 0, sizeof(*m->sums));
	while (m->roles) {
		if (m->round >= CLOSED && blockIdx.x == BLOCKS - 1u && steps++ == most)
			break;
		__syncthreads();
		if (test_k_tid() == 0)
			any_call(m, &c);
		__syncthreads();
		if (c.what)
			read_some(m, &c);
		else
			write_some(m, &c);
		__syncthreads();
		if (m->failed)
			return -1;
		if (from_0(test_k_tid() == 0 && !draw(m, 20)))
			set_some(m);
	}
	K_CALL(close_it(m));
	return end_round(m);
}

GNET_DEV int mixed(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct mix m;

	for (uint32_t round = 1; round <= ROUNDS; round++) {
		__syncthreads();
		if (test_k_tid() == 0)
			m.round = round;
		begin(&m, a, r, buf);
		K_CALL(one_round(&m));
	}
	if (blockIdx.x == 0)
		K_EQ(r, gclose(a->net, m.listener), 0);
	return 0;
}

TEST_KERNEL(mixed_kernel, mixed)

static void run(gpunet_t *g, enum test_kind kind, unsigned threads, uint64_t seed)
{
	struct test_args a = test_setup(g, kind, BLOCKS, LARGEST + sizeof(struct sums));

	a.n = seed;
	TEST_LAUNCH(g, mixed_kernel, a, BLOCKS, threads);
	test_sync(g, a.report, BLOCKS);
	test_teardown(&a);
}

int main(int argc, char **argv)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	gpunet_t *g;

	test_begin(100 * (unsigned)seeds);
	opt.segment_bytes = RING;
	opt.proxy_threads = 2; /* one an end, at times */
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(mixed_kernel), 0);
	for (; seeds; seeds--, seed++) {
		run(g, TEST_TCP, 64, 3 * seed);
		run(g, TEST_UNIX, 33, 3 * seed + 1);
		run(g, TEST_UNIX, MANY, 3 * seed + 2);
	}
	test_close(g);
	return 0;
}
