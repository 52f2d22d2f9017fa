/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several blocks on both ends of one connection, each by any call, in any scope, of any length (also 0), with any flags, while options
 * change; in rounds, each with a new connection, between the same blocks: so what their scopes remember is of the round before.
 * Whoever writes numbers its bytes modulo MODULUS and puts its own number beside it. So in what one call receives each writer's
 * bytes are numbered one after the other, all that a direction's only reader gets is, and in the end as many of each value must
 * have been received as sent. In some rounds a block closes, shuts down or resets the connection at any time. Not
 * instrumented, as program.c.
 */
#include "mixed.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "block.h"
#include "host.h"
#include "sim.h"

#define MOST 5        /* blocks */
#define WRITERS 4     /* of one direction */
#define MODULUS 61    /* no divisor of a ring's size */
#define LARGEST 20000 /* more than a ring */

enum end_of { GOES_ON, IS_CLOSED, IS_SHUT, IS_RESET, ENDS_OF };

/* One direction: from end `d` of the connection to the other. */
struct way {
	unsigned writers, readers; /* that are not done */
	unsigned n_writers, n_readers;
	uint64_t left[WRITERS]; /* bytes that the writer has to send */
	uint64_t at[WRITERS];   /* that it has sent */
	uint64_t seen[WRITERS]; /* that the only reader has received */
	int64_t sum[2][256];    /* of each value: sent, received */
};

/* What a block does in a round: of each direction. */
struct roles {
	bool writes[2], reads[2];
	unsigned writer[2]; /* number */
};

struct mixed {
	const struct world *w;
	unsigned n, rounds;
	uint64_t round; /* word: that may be run */
	uint64_t done;  /* word: blocks that have ended it */
	int fd[2], old; /* ends; one that is closed */
	enum end_of end;
	unsigned steps_left; /* until it is ended at any time */
	unsigned ender, ended_by;
	bool ended; /* it has been */
	bool over;
	struct way way[2];
	struct roles role[MOST];
	struct sockaddr_storage at;
	socklen_t at_len;
	char doing[MOST][80];
	uint8_t buf[MOST][LARGEST];
};

static void __attribute__((format(printf, 3, 4)))
doing(struct mixed *m, unsigned self, const char *fmt, ...)
{
	va_list ap;

	if (!is_first())
		return;
	va_start(ap, fmt);
	vsnprintf(m->doing[self], sizeof(m->doing[self]), fmt, ap);
	va_end(ap);
	sim_note("mixed %u: %s", self, m->doing[self]);
}

/* Thread 0: is it a result that all is over with? Notes that. */
static bool all_over(struct mixed *m, int64_t rc)
{
	if (wait_ended(m->w, rc))
		m->over = true;
	return m->over;
}

static void fail(struct mixed *m, unsigned self, int64_t rc)
{
	if (is_first() && !all_over(m, rc))
		sim_fail("mixed %u: %s: %lld", self, m->doing[self], (long long)rc);
}

/* Waits until *word is at least `least`: false when all is over. */
static bool wait_for(struct mixed *m, unsigned self, const uint64_t *word, uint64_t least)
{
	uint64_t turn = 0;
	int64_t rc = 0;

	doing(m, self, "waits for the others");
	while (is_first() && !rc && gnet_dev_load_acquire(word) < least) {
		rc = gnet__spin(m->w->net, &turn);
		if (rc)
			all_over(m, rc);
	}
	return !share(rc);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------------------- */

static uint8_t byte_at(unsigned writer, uint64_t pos)
{
	return (uint8_t)(writer << 6 | pos % MODULUS);
}

static void fill(const struct way *y, unsigned writer, uint64_t from, uint8_t *buf, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++)
		buf[i] = byte_at(writer, y->at[writer] + from + i);
}

/* They count as sent before the call: a reader may be faster than its return. */
static void count_sent(struct way *y, unsigned writer, uint64_t from, uint64_t n, int by)
{
	uint64_t i;

	for (i = 0; i < n; i++)
		y->sum[0][byte_at(writer, y->at[writer] + from + i)] += by;
}

/* What the bytes that one call got must go on with. */
struct got {
	int next[WRITERS]; /* each writer's next number; -1: any */
};

static struct got got_begin(const struct way *y)
{
	struct got g;
	unsigned i;

	for (i = 0; i < WRITERS; i++) {
		g.next[i] = y->n_readers == 1 ? (int)(y->seen[i] % MODULUS) : -1;
	}
	return g;
}

static void check(struct mixed *m, unsigned self, const struct way *y, struct got *g,
		  const uint8_t *buf, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++) {
		unsigned writer = buf[i] >> 6;
		int number = buf[i] & 63;

		if (writer >= y->n_writers || number >= MODULUS ||
		    (g->next[writer] >= 0 && g->next[writer] != number))
			sim_fail(
				"mixed %u: %s: byte %llu of %llu is number %d of writer %u, should be %d",
				self, m->doing[self], (unsigned long long)i, (unsigned long long)n,
				number, writer, writer < WRITERS ? g->next[writer] : 0);
		g->next[writer] = (number + 1) % MODULUS;
	}
}

static void consumed(struct way *y, const uint8_t *buf, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++) {
		y->sum[1][buf[i]]++;
		y->seen[buf[i] >> 6]++;
	}
}

/* ---- one call ------------------------------------------------------------------------------------------------------------- */

enum how { PLAIN, WARP, THREAD, MSG, TO, TO_THREAD, BORROW, HOWS };

struct call {
	enum how how;
	int flags;
	uint64_t len;
};

static uint64_t any_len(void)
{
	static const uint32_t most[] = { 0, 1, 8, 104, 110, 300, 1000, 4100, 16384, LARGEST };

	return sim_chance(200) ? sim_between(103, 108) : sim_below(most[sim_below(10)] + 1);
}

static struct call share_call(struct call c)
{
	__shared__ struct call shared;

	__syncthreads();
	if (is_first())
		shared = c;
	__syncthreads();
	c = shared;
	__syncthreads();
	return c;
}

/* `alone`: the block has nothing else to do, so it may wait. */
static struct call any_call(bool alone, bool reads)
{
	struct call c = { 0 };

	if (!is_first())
		return c;
	c.how = sim_chance(400) ? PLAIN : sim_below(HOWS);
	c.len = any_len();
	c.flags = alone && sim_chance(700) ? 0 : GNET_MSG_DONTWAIT;
	if (reads && c.how != BORROW && sim_chance(200))
		c.flags |= GNET_MSG_PEEK;
	if (reads && c.how != BORROW && sim_chance(200))
		c.flags |= GNET_MSG_WAITALL;
	return c;
}

static struct gnet_msghdr *parts(uint8_t *buf, uint64_t n)
{
	__shared__ struct gnet_iovec v[3];
	__shared__ struct gnet_msghdr msg;

	__syncthreads();
	if (is_first()) {
		uint64_t first = sim_below((uint32_t)n + 1);

		v[0] = (struct gnet_iovec){ buf, first };
		v[1] = (struct gnet_iovec){ buf, 0 };
		v[2] = (struct gnet_iovec){ buf + first, n - first };
		msg = (struct gnet_msghdr){ .iov = v, .iovlen = 3 };
	}
	__syncthreads();
	return &msg;
}

static int64_t receive(gnet_t *net, int fd, uint8_t *buf, struct call c)
{
	int64_t rc = 0;

	switch (c.how) {
	case WARP:
		return share(gnet__tid() < 32 ? grecv_warp(net, fd, buf, c.len, c.flags) : 0);
	case THREAD:
		return share(is_first() ? grecv_thread(net, fd, buf, c.len, c.flags) : 0);
	case MSG:
		return grecvmsg(net, fd, parts(buf, c.len), c.flags);
	case TO:
		return grecvfrom(net, fd, buf, c.len, c.flags, NULL, NULL);
	case TO_THREAD:
		if (is_first())
			rc = grecvfrom_thread(net, fd, buf, c.len, c.flags, NULL, NULL);
		return share(rc);
	default:
		return grecv(net, fd, buf, c.len, c.flags);
	}
}

static int64_t hand_over(gnet_t *net, int fd, uint8_t *buf, struct call c)
{
	int64_t rc = 0;

	switch (c.how) {
	case WARP:
		return share(gnet__tid() < 32 ? gsend_warp(net, fd, buf, c.len, c.flags) : 0);
	case THREAD:
		return share(is_first() ? gsend_thread(net, fd, buf, c.len, c.flags) : 0);
	case MSG:
		return gsendmsg(net, fd, parts(buf, c.len), c.flags);
	case TO:
		return gsendto(net, fd, buf, c.len, c.flags, NULL, 0);
	case TO_THREAD:
		if (is_first())
			rc = gsendto_thread(net, fd, buf, c.len, c.flags, NULL, 0);
		return share(rc);
	default:
		return gsend(net, fd, buf, c.len, c.flags);
	}
}

/* Thread 0: what a call said that did nothing. True: it is the end of this role. */
static bool nothing(struct mixed *m, unsigned self, const struct call *c, int64_t rc)
{
	bool end = rc == -EBADF || rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN;

	if (rc == -EAGAIN || rc == -ETIMEDOUT || (rc == -ENOBUFS && c->how == BORROW))
		return false;
	if (rc == -EINVAL && c->how == BORROW && !c->len)
		return false;
	if (!(end && m->end != GOES_ON && m->ended))
		fail(m, self, rc);
	return true;
}

static void pause(int64_t rc)
{
	if (rc == -EAGAIN || rc == -ETIMEDOUT || rc == -ENOBUFS)
		__nanosleep((uint32_t)share(sim_below(20000)));
}

/* ---- reading -------------------------------------------------------------------------------------------------------------- */

static int64_t read_borrowed(struct mixed *m, unsigned self, unsigned d, const struct call *c)
{
	__shared__ struct gnet_borrow b;
	gnet_t *net = m->w->net;
	struct way *y = &m->way[d];
	int fd = m->fd[!d];
	struct got g;
	int64_t n, some, rc;

	if (share(sim_below(2)))
		n = grecv_borrow(net, fd, &b, c->len, c->flags);
	else
		n = share(is_first() ? grecv_borrow_thread(net, fd, &b, c->len, c->flags) : 0);
	if (n <= 0)
		return n;
	if (is_first()) {
		g = got_begin(y);
		check(m, self, y, &g, b.ptr[0], b.len[0]);
		check(m, self, y, &g, b.ptr[1], b.len[1]);
	}
	some = share(is_first() && sim_chance(300) ? sim_below((uint32_t)n + 1) : n);
	__nanosleep((uint32_t)share(sim_below(2000)));
	/* Copied before: after grecv_return the bytes are another's. */
	if (is_first()) {
		uint64_t first = (uint64_t)some < b.len[0] ? (uint64_t)some : b.len[0];

		memcpy(m->buf[self], b.ptr[0], first);
		memcpy(m->buf[self] + first, b.ptr[1], (uint64_t)some - first);
	}
	rc = grecv_return(net, fd, (uint64_t)some);
	if (is_first() && !rc)
		consumed(y, m->buf[self], (uint64_t)some);
	return rc ? rc : n;
}

static void read_some(struct mixed *m, unsigned self, unsigned d, bool alone)
{
	struct call c = share_call(any_call(alone, true));
	struct way *y = &m->way[d];
	struct got g;
	int64_t rc;

	doing(m, self, "receive(%x, %llu, flags %x, how %d)", m->fd[!d], (unsigned long long)c.len,
	      c.flags, c.how);
	rc = c.how == BORROW ? read_borrowed(m, self, d, &c)
			     : receive(m->w->net, m->fd[!d], m->buf[self], c);
	if (is_first())
		sim_note("mixed %u: %s = %lld", self, m->doing[self], (long long)rc);
	if (is_first() && rc > (int64_t)c.len)
		fail(m, self, rc);
	if (is_first() && rc > 0 && c.how != BORROW) {
		g = got_begin(y);
		check(m, self, y, &g, m->buf[self], (uint64_t)rc);
		if (!(c.flags & GNET_MSG_PEEK))
			consumed(y, m->buf[self], (uint64_t)rc);
	}
	if (is_first() && ((!rc && c.len) || (rc < 0 && nothing(m, self, &c, rc)))) {
		if (!rc && y->writers && !m->ended)
			fail(m, self, rc);
		m->role[self].reads[d] = false;
		y->readers--;
	}
	pause(rc);
}

/* ---- writing -------------------------------------------------------------------------------------------------------------- */

static int64_t write_reserved(struct mixed *m, unsigned self, unsigned d, const struct call *c)
{
	__shared__ struct gnet_borrow b;
	gnet_t *net = m->w->net;
	struct way *y = &m->way[d];
	unsigned writer = m->role[self].writer[d];
	int64_t some, rc;

	if (share(sim_below(2)))
		rc = gsend_reserve(net, m->fd[d], &b, c->len, c->flags);
	else
		rc = share(is_first() ? gsend_reserve_thread(net, m->fd[d], &b, c->len, c->flags)
				      : 0);
	if (rc)
		return rc;
	some = share(is_first() && sim_chance(300) ? sim_below((uint32_t)c->len + 1)
						   : (int64_t)c->len);
	if (is_first()) {
		fill(y, writer, 0, b.ptr[0], b.len[0]);
		fill(y, writer, b.len[0], b.ptr[1], b.len[1]);
		count_sent(y, writer, 0, (uint64_t)some, 1);
	}
	__nanosleep((uint32_t)share(sim_below(2000)));
	rc = gsend_commit(net, m->fd[d], (uint64_t)some);
	if (is_first() && rc)
		count_sent(y, writer, 0, (uint64_t)some, -1);
	return rc ? rc : some;
}

static int64_t write_plain(struct mixed *m, unsigned self, unsigned d, const struct call *c)
{
	struct way *y = &m->way[d];
	unsigned writer = m->role[self].writer[d];
	uint64_t sent;
	int64_t rc;

	if (is_first()) {
		fill(y, writer, 0, m->buf[self], c->len);
		count_sent(y, writer, 0, c->len, 1);
	}
	__syncthreads();
	rc = hand_over(m->w->net, m->fd[d], m->buf[self], *c);
	sent = rc > 0 ? (uint64_t)rc : 0;
	if (is_first() && sent <= c->len)
		count_sent(y, writer, sent, c->len - sent, -1);
	return rc;
}

/* The direction's last writer ends it. */
static void write_end(struct mixed *m, unsigned self, unsigned d)
{
	struct way *y = &m->way[d];
	int64_t rc;

	if (is_first())
		m->role[self].writes[d] = false;
	if (!share(is_first() && !--y->writers))
		return;
	doing(m, self, "gshutdown(%x)", m->fd[d]);
	rc = gshutdown(m->w->net, m->fd[d], GNET_SHUT_WR);
	if (is_first() && rc && !(m->end != GOES_ON && m->ended))
		fail(m, self, rc);
}

static void write_some(struct mixed *m, unsigned self, unsigned d, bool alone)
{
	struct way *y = &m->way[d];
	unsigned writer = m->role[self].writer[d];
	struct call c = any_call(alone, false);
	int64_t rc;

	if (c.len > y->left[writer])
		c.len = y->left[writer];
	if (c.how == BORROW && c.len > 16384)
		c.len = 16384;
	c = share_call(c);
	doing(m, self, "send(%x, %llu, flags %x, how %d)", m->fd[d], (unsigned long long)c.len,
	      c.flags, c.how);
	rc = c.how == BORROW ? write_reserved(m, self, d, &c) : write_plain(m, self, d, &c);
	if (is_first())
		sim_note("mixed %u: %s = %lld", self, m->doing[self], (long long)rc);
	if (is_first() && rc > (int64_t)c.len)
		fail(m, self, rc);
	if (is_first() && rc > 0) {
		y->at[writer] += (uint64_t)rc;
		y->left[writer] -= (uint64_t)rc;
	}
	if (share(!y->left[writer] || (is_first() && rc < 0 && nothing(m, self, &c, rc))))
		write_end(m, self, d);
	pause(rc);
}

/* ---- other calls ------------------------------------------------------------------------------------------------------------ */

/* Both ends, one of them twice, none, and one that was closed. */
static void look(struct mixed *m, unsigned self)
{
	__shared__ struct gnet_pollfd p[5];
	int fds[5] = { m->fd[0], -1, m->fd[1], m->fd[0], m->old };
	bool stale = m->old >= 0;
	int64_t limit = share(sim_below(100) * 1000);
	int rc;
	unsigned i;

	doing(m, self, "gpoll");
	for (i = 0; i < 5 && is_first(); i++)
		p[i] = (struct gnet_pollfd){ .fd = fds[i],
					     .events = GNET_POLLIN | (i == 2 ? GNET_POLLOUT : 0) };
	__syncthreads();
	rc = gpoll(m->w->net, p, 5, limit);
	if (!is_first())
		return;
	if (rc < 0)
		fail(m, self, rc);
	if (rc >= 0 && (p[1].revents || (p[4].revents != 0) != stale))
		fail(m, self, p[4].revents);
	if (rc > 0 && !m->ended && (p[0].revents | p[2].revents) & GNET_POLLNVAL)
		fail(m, self, p[0].revents | p[2].revents);
}

static void set(struct mixed *m, unsigned self)
{
	int fd = m->fd[share(sim_below(2))];
	int64_t t[2] = { 0, share(sim_chance(500) ? sim_below(300) : 0) }, rc;

	switch (share(sim_below(4))) {
	case 0:
		doing(m, self, "SO_RCVTIMEO of %lld us", (long long)t[1]);
		rc = gsetsockopt(m->w->net, fd, GNET_SOL_SOCKET, GNET_SO_RCVTIMEO, t, sizeof(t));
		break;
	case 1:
		doing(m, self, "SO_SNDTIMEO of %lld us", (long long)t[1]);
		rc = gsetsockopt(m->w->net, fd, GNET_SOL_SOCKET, GNET_SO_SNDTIMEO, t, sizeof(t));
		break;
	default:
		doing(m, self, "F_SETFL");
		rc = gfcntl(m->w->net, fd, GNET_F_SETFL, t[1] ? GNET_O_NONBLOCK : 0);
	}
	if (rc && !(rc == -EBADF && m->ended))
		fail(m, self, rc);
}

/* Ends the round's connection at any time. */
static void end_it(struct mixed *m, unsigned self)
{
	const struct linger reset = { 1, 0 };
	unsigned e = (unsigned)share(sim_below(2));
	int64_t rc = 0, how;

	if (is_first()) {
		m->ended = true;
		m->ended_by = e;
	}
	__syncthreads();
	doing(m, self, "ends %x in way %d", m->fd[e], m->end);
	if (m->end == IS_SHUT) {
		/* TCP tells nobody who sends that nobody reads. */
		how = share(m->w->domain == AF_UNIX ? sim_below(3) : GNET_SHUT_WR);
		rc = gshutdown(m->w->net, m->fd[e], (int)how);
	} else {
		if (m->end == IS_RESET)
			rc = gsetsockopt(m->w->net, m->fd[e], SOL_SOCKET, SO_LINGER, &reset,
					 sizeof(reset));
		if (!rc)
			rc = gclose(m->w->net, m->fd[e]);
	}
	if (rc && !(rc == -ENOTCONN && m->end == IS_SHUT))
		fail(m, self, rc);
}

/* ---- rounds ----------------------------------------------------------------------------------------------------------------- */

static void step(struct mixed *m, unsigned self)
{
	const struct roles *r = &m->role[self];
	unsigned n = r->writes[0] + r->writes[1] + r->reads[0] + r->reads[1], d;

	if (share(is_first() && m->end != GOES_ON && m->ender == self && !m->ended &&
		  !m->steps_left--)) {
		end_it(m, self);
		return;
	}
	if (share(sim_chance(50))) {
		look(m, self);
		return;
	}
	if (share(sim_chance(50))) {
		set(m, self);
		return;
	}
	d = (unsigned)share(sim_below(2));
	if (share(sim_below(2)) && r->writes[d])
		write_some(m, self, d, n == 1 && self != m->ender);
	else if (r->reads[d])
		read_some(m, self, d, n == 1 && self != m->ender);
}

static void run_round(struct mixed *m, unsigned self)
{
	const struct roles *r = &m->role[self];

	while (!share((is_first() && m->over) ||
		      !(r->writes[0] || r->writes[1] || r->reads[0] || r->reads[1])))
		step(m, self);
	/* Who is to end it does so at the latest when it has nothing else to do, or others may wait for ever. */
	if (share(is_first() && m->end != GOES_ON && m->ender == self && !m->ended && !m->over))
		end_it(m, self);
}

/* Not too many if they go through a keyhole. */
static uint64_t any_total(void)
{
	uint64_t n = sim_below(sim_chance(300) ? 40000 : 3000);

	return n < 20 * host_buffer() ? n : 20 * host_buffer();
}

static void give_roles(struct mixed *m)
{
	unsigned d, i, n;

	memset(m->way, 0, sizeof(m->way));
	memset(m->role, 0, sizeof(m->role));
	m->end = sim_chance(600) ? GOES_ON : sim_below(ENDS_OF);
	m->steps_left = sim_below(30);
	m->ender = sim_below(m->n);
	m->ended = false;
	for (d = 0; d < 2; d++) {
		struct way *y = &m->way[d];

		n = sim_between(1, 2);
		for (i = 0; i < n; i++) {
			struct roles *r = &m->role[sim_below(m->n)];

			y->n_readers += !r->reads[d];
			r->reads[d] = true;
		}
		n = sim_between(1, 2);
		for (i = 0; i < n; i++) {
			struct roles *r = &m->role[sim_below(m->n)];

			if (r->writes[d])
				continue;
			r->writes[d] = true;
			r->writer[d] = y->n_writers;
			y->left[y->n_writers++] = any_total();
		}
		y->writers = y->n_writers;
		y->readers = y->n_readers;
	}
}

/* A connection between two of the kernel's sockets; false: all is over, or there are no more sockets. */
static bool connect_both(struct mixed *m)
{
	gnet_t *net = m->w->net;
	int listener, fd;
	int64_t rc;

	doing(m, 0, "makes a connection");
	listener = gsocket(net, m->w->domain, SOCK_STREAM, 0);
	rc = listener < 0 ? listener : gbind(net, listener, &m->at, m->at_len);
	rc = rc ? rc : glisten(net, listener, 1);
	fd = rc ? (int)rc : gsocket(net, m->w->domain, SOCK_STREAM, 0);
	rc = fd < 0 ? fd : gconnect(net, fd, &m->at, m->at_len);
	if (is_first())
		m->fd[0] = fd;
	fd = rc ? (int)rc : gaccept(net, listener, NULL, NULL);
	if (is_first())
		m->fd[1] = fd;
	if (fd >= 0)
		rc = gclose(net, listener);
	if (fd < 0 || rc)
		fail(m, 0, fd < 0 ? fd : rc);
	if (is_first() && m->rounds % 2)
		m->old = listener;
	return !share(m->over || fd < 0 || rc);
}

static void close_both(struct mixed *m)
{
	bool gone = m->ended && (m->end == IS_CLOSED || m->end == IS_RESET);
	unsigned e, d, v;
	int64_t rc;

	for (e = 0; e < 2; e++) {
		if (share(gone && m->ended_by == e))
			continue;
		doing(m, 0, "gclose(%x)", m->fd[e]);
		rc = gclose(m->w->net, m->fd[e]);
		if (rc)
			fail(m, 0, rc);
	}
	for (d = 0; d < 2 && is_first() && m->end == GOES_ON && !m->over; d++)
		for (v = 0; v < 256; v++)
			if (m->way[d].sum[0][v] != m->way[d].sum[1][v])
				sim_fail("mixed: of value %u %lld were sent, %lld received", v,
					 (long long)m->way[d].sum[0][v],
					 (long long)m->way[d].sum[1][v]);
}

static bool begin_round(struct mixed *m, uint64_t round)
{
	if (is_first())
		give_roles(m);
	__syncthreads();
	if (!connect_both(m))
		return false;
	if (is_first()) {
		gnet_dev_store_release(&m->done, 0);
		gnet_dev_store_release(&m->round, round);
	}
	return true;
}

void mixed_run(struct world *w, struct mixed *m, unsigned self)
{
	uint64_t round;

	(void)w;
	for (round = 1; round <= m->rounds && !share(m->over); round++) {
		if (!self && !begin_round(m, round))
			return;
		if (self && !wait_for(m, self, &m->round, round))
			return;
		run_round(m, self);
		if (is_first())
			gnet_dev_add(&m->done, 1);
		if (!self && (!wait_for(m, self, &m->done, m->n) || share(m->over)))
			return;
		if (!self)
			close_both(m);
	}
	doing(m, self, "ended");
}

void mixed_report(const struct mixed *m)
{
	unsigned i, d;

	for (i = 0; i < m->n; i++)
		fprintf(stderr, "  mixed %u: %s\n", i, m->doing[i]);
	for (d = 0; d < 2; d++)
		fprintf(stderr, "  direction %u, %x to %x: %u of %u writers, %u of %u readers%s\n",
			d, m->fd[d], m->fd[!d], m->way[d].writers, m->way[d].n_writers,
			m->way[d].readers, m->way[d].n_readers, m->ended ? ", ended" : "");
}

size_t mixed_size(void)
{
	return sizeof(struct mixed);
}

unsigned mixed_make(const struct world *w, struct mixed *m)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&m->at;
	struct sockaddr_un *un = (struct sockaddr_un *)&m->at;

	m->w = w;
	m->n = sim_between(1, MOST);
	m->rounds = sim_between(1, 4);
	m->old = -1;
	m->at.ss_family = (sa_family_t)w->domain;
	if (w->domain == AF_INET) {
		in->sin_port = htons(7100);
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		m->at_len = sizeof(*in);
	} else {
		un->sun_path[1] = 'm';
		m->at_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 2);
	}
	return m->n;
}
