/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several blocks use the same two sockets of datagrams, by any call, in any scope, with any flags; the second one is connected to the
 * first, and hears nobody else. In dgram.c each block has its own. At times one of the two is closed while they do. Each datagram
 * says which it is and what its bytes are. So each one that is received must be one that was sent to there, whole, once and in order; in the end only
 * those that the host had to drop may be missing. Not instrumented, as program.c.
 */
#include "dgmix.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "block.h"
#include "host.h"
#include "sim.h"

#define MOST 4
#define NUMBERS 60
#define LONGEST 9000
#define QUIET_NS 30000000 /* longer than anything stays on its way */

enum fate { NOT_SENT, SENT, CAME };

struct dgmix {
	const struct world *w;
	unsigned n, senders;
	uint64_t up, done; /* words: the sockets are there; blocks that are at their end */
	int fd[2];
	struct sockaddr_storage addr[2];
	socklen_t addr_len;
	bool over, ended;
	int closer; /* the block that closes a socket after so many steps, or -1 */
	unsigned steps_left;
	unsigned sent[2], came[2]; /* to each */
	enum fate fate[MOST][NUMBERS];
	uint16_t next[MOST][MOST][2][2]; /* of each block: who sent it, from, to */
	struct {
		unsigned left;
		uint16_t number;
		struct sockaddr_storage from;
		uint32_t from_len;
		uint8_t buf[LONGEST];
	} block[MOST];
};

/* Of all but empty ones. */
struct head {
	uint8_t block, from, to;
	uint16_t number;
	uint32_t len;
};

struct call {
	enum { BLOCK, WARP, THREAD } scope;
	enum { PLAIN, ADDRESSED, PARTS } api;
	int flags;
	unsigned from, to;
	uint32_t len;
};

static uint8_t byte_of(const struct head *h, uint32_t i)
{
	return (uint8_t)(h->block * 31 + h->from * 5 + h->number * 7 + h->len + i * 13 + (i >> 8));
}

static bool all_over(struct dgmix *m, int64_t rc)
{
	if (wait_ended(m->w, rc) || m->w->aborted)
		m->over = true;
	return m->over;
}

/* Thread 0: a call that did nothing. */
static void nothing(struct dgmix *m, const char *what, int64_t rc)
{
	bool gone = rc == -EBADF || rc == -ECONNREFUSED || rc == -ECONNRESET || rc == -ENOTCONN ||
		    rc == -EPIPE || rc == -EDESTADDRREQ;

	if (rc == -EAGAIN || rc == -ETIMEDOUT || rc == -ENOBUFS || (gone && m->ended))
		return;
	if (!all_over(m, rc))
		sim_fail("dgmix: %s: %lld", what, (long long)rc);
}

static struct call share_call(struct call c)
{
	__shared__ struct call shared;
	struct call out;

	__syncthreads();
	if (is_first())
		shared = c;
	__syncthreads();
	out = shared;
	__syncthreads();
	return out;
}

static uint32_t any_len(void)
{
	static const uint32_t most[] = { 12, 48, 60, 80, 90, 110, 300, 1500, LONGEST };

	return sim_between(sizeof(struct head), most[sim_below(9)]);
}

static struct gnet_msghdr *parts(uint8_t *buf, uint32_t n, void *addr, uint32_t alen)
{
	__shared__ struct gnet_iovec v[3];
	__shared__ struct gnet_msghdr msg;
	uint32_t some;

	__syncthreads();
	if (is_first()) {
		some = sim_below(n + 1);
		v[0] = (struct gnet_iovec){ buf, some };
		v[1] = (struct gnet_iovec){ buf, 0 };
		v[2] = (struct gnet_iovec){ buf + some, n - some };
		msg = (struct gnet_msghdr){ .name = addr, .namelen = alen, .iov = v, .iovlen = 3 };
	}
	__syncthreads();
	return &msg;
}

/* ---- sending ------------------------------------------------------------------------------------------------------------- */

static int64_t hand_over(struct dgmix *m, uint8_t *buf, const struct call *c)
{
	gnet_t *net = m->w->net;
	void *to = c->from && c->api == PLAIN ? NULL : &m->addr[c->to];
	uint32_t alen = to ? m->addr_len : 0;
	int fd = m->fd[c->from];
	int64_t rc = 0;

	if (c->api == PARTS)
		return gsendmsg(net, fd, parts(buf, c->len, to, alen), c->flags);
	if (c->scope == BLOCK)
		return to ? gsendto(net, fd, buf, c->len, c->flags, to, alen)
			  : gsend(net, fd, buf, c->len, c->flags);
	if (c->scope == WARP && gnet__tid() < 32)
		rc = to ? gsendto_warp(net, fd, buf, c->len, c->flags, to, alen)
			: gsend_warp(net, fd, buf, c->len, c->flags);
	if (c->scope == THREAD && is_first())
		rc = to ? gsendto_thread(net, fd, buf, c->len, c->flags, to, alen)
			: gsend_thread(net, fd, buf, c->len, c->flags);
	return share(rc);
}

static void compose(uint8_t *buf, const struct call *c, unsigned self, uint16_t number)
{
	struct head h = { (uint8_t)self, (uint8_t)c->from, (uint8_t)c->to, number, c->len };
	uint32_t i;

	if (!h.len)
		return;
	for (i = sizeof(h); i < h.len; i++)
		buf[i] = byte_of(&h, i);
	memcpy(buf, &h, sizeof(h));
}

static void send_one(struct dgmix *m, unsigned self, struct call c)
{
	uint16_t number = m->block[self].number;
	enum fate *fate = &m->fate[self][number];
	int64_t rc;

	/* Before, for it may be received before the call returns. */
	if (is_first()) {
		compose(m->block[self].buf, &c, self, number);
		m->sent[c.to]++;
		*fate = c.len ? SENT : NOT_SENT;
	}
	rc = hand_over(m, m->block[self].buf, &c);
	if (!is_first())
		return;
	sim_note("dgmix %u: number %u, %u bytes, %u to %u, flags %x = %lld", self, number, c.len,
		 c.from, c.to, c.flags, (long long)rc);
	if (rc == (int64_t)c.len) {
		m->block[self].number += c.len != 0;
		if (!--m->block[self].left)
			m->senders--;
		return;
	}
	if (*fate == CAME)
		sim_fail("dgmix: number %u of %u came, and its call said %lld", number, self,
			 (long long)rc);
	*fate = NOT_SENT;
	m->sent[c.to]--;
	nothing(m, "send", rc);
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

static int64_t take(struct dgmix *m, unsigned self, const struct call *c)
{
	uint8_t *buf = m->block[self].buf;
	struct sockaddr_storage *from = &m->block[self].from;
	uint32_t *from_len = &m->block[self].from_len;
	gnet_t *net = m->w->net;
	int fd = m->fd[c->to];
	struct gnet_msghdr *msg;
	int64_t rc = 0;

	if (c->api == PARTS) {
		msg = parts(buf, c->len, from, sizeof(*from));
		rc = grecvmsg(net, fd, msg, c->flags);
		if (is_first())
			*from_len = msg->namelen;
		return rc;
	}
	if (is_first())
		*from_len = sizeof(*from);
	__syncthreads();
	if (c->scope == BLOCK)
		return c->api == PLAIN ? grecv(net, fd, buf, c->len, c->flags)
				       : grecvfrom(net, fd, buf, c->len, c->flags, from, from_len);
	if (c->scope == WARP && gnet__tid() < 32)
		rc = c->api == PLAIN
			     ? grecv_warp(net, fd, buf, c->len, c->flags)
			     : grecvfrom_warp(net, fd, buf, c->len, c->flags, from, from_len);
	if (c->scope == THREAD && is_first())
		rc = c->api == PLAIN
			     ? grecv_thread(net, fd, buf, c->len, c->flags)
			     : grecvfrom_thread(net, fd, buf, c->len, c->flags, from, from_len);
	return share(rc);
}

/* Thread 0: whole, and one that was sent to there? */
static void check(struct dgmix *m, unsigned self, const struct call *c, int64_t rc)
{
	const uint8_t *buf = m->block[self].buf;
	bool peek = c->flags & GNET_MSG_PEEK;
	uint16_t *next;
	struct head h;
	uint32_t i;

	m->came[c->to] += !peek;
	if (!rc)
		return;
	memcpy(&h, buf, sizeof(h));
	if (h.block >= m->n || h.from > 1 || h.to != c->to || h.number >= NUMBERS || h.len != rc)
		sim_fail("dgmix %u: at %u number %u of %u from %u to %u, %u bytes, in %lld", self,
			 c->to, h.number, h.block, h.from, h.to, h.len, (long long)rc);
	for (i = sizeof(h); i < h.len && i < c->len; i++)
		if (buf[i] != byte_of(&h, i))
			sim_fail("dgmix %u: number %u of %u: byte %u of %u is %02x", self, h.number,
				 h.block, i, h.len, buf[i]);
	if (c->api != PLAIN && (m->block[self].from_len != m->addr_len ||
				memcmp(&m->block[self].from, &m->addr[h.from], m->addr_len)))
		sim_fail("dgmix %u: number %u of %u comes with another's address", self, h.number,
			 h.block);
	next = &m->next[self][h.block][h.from][h.to];
	/* Looked at, it may have come to another block since. */
	if (h.number < *next || (!peek && m->fate[h.block][h.number] != SENT))
		sim_fail("dgmix %u: number %u of %u, which is %d, and %u was due", self, h.number,
			 h.block, (int)m->fate[h.block][h.number], *next);
	if (peek)
		return;
	*next = (uint16_t)(h.number + 1);
	m->fate[h.block][h.number] = CAME;
}

static void receive_one(struct dgmix *m, unsigned self, struct call c)
{
	int64_t rc = take(m, self, &c);

	if (!is_first())
		return;
	sim_note("dgmix %u: receives %u bytes at %u, flags %x = %lld", self, c.len, c.to, c.flags,
		 (long long)rc);
	if (rc >= 0)
		check(m, self, &c, rc);
	else
		nothing(m, "receive", rc);
}

/* ---- a block ------------------------------------------------------------------------------------------------------------- */

static struct call any_call(const struct dgmix *m, unsigned self, bool *sends)
{
	struct call c = { 0 };

	if (!is_first())
		return c;
	*sends = m->block[self].left && sim_chance(500);
	c.scope = sim_below(3);
	c.api = sim_below(3);
	c.flags = sim_chance(600) ? GNET_MSG_DONTWAIT : 0;
	c.from = sim_below(2);
	/* The second one hears the first one only. */
	c.to = *sends && c.from ? 0 : sim_below(2);
	c.len = sim_chance(50) ? 0 : any_len();
	if (*sends)
		return c;
	c.len = sim_chance(300) ? any_len() : LONGEST;
	c.flags |= GNET_MSG_TRUNC;
	c.flags |= sim_chance(200) ? GNET_MSG_PEEK : 0;
	return c;
}

static void look(struct dgmix *m)
{
	struct gnet_pollfd p[2] = { { .fd = m->fd[0], .events = GNET_POLLIN },
				    { .fd = m->fd[1], .events = GNET_POLLIN } };
	int rc;

	if (!is_first())
		return;
	rc = gpoll_thread(m->w->net, p, 2, sim_chance(500) ? sim_below(100) * 1000 : QUIET_NS);
	if (rc < 0)
		nothing(m, "gpoll", rc);
	if (rc > 0 && !m->ended && !all_over(m, 0) &&
	    ((p[0].revents | p[1].revents) & (GNET_POLLERR | GNET_POLLHUP | GNET_POLLNVAL)))
		sim_fail("dgmix: gpoll: %x and %x", p[0].revents, p[1].revents);
}

/* Has all come that will? Thread 0. */
static bool all_came(const struct dgmix *m)
{
	unsigned i;

	if (m->senders)
		return false;
	for (i = 0; i < 2 && !m->ended; i++) {
		const struct sockaddr *a = (const struct sockaddr *)&m->addr[i];

		if (m->came[i] + host_dropped(a, m->addr_len) != m->sent[i])
			return false;
	}
	return true;
}

static void close_one(struct dgmix *m)
{
	unsigned e = (unsigned)share(sim_below(2));
	int64_t rc;

	if (is_first())
		m->ended = true;
	__syncthreads();
	if (is_first())
		sim_note("dgmix: %u is closed", e);
	rc = gclose(m->w->net, m->fd[e]);
	if (is_first() && rc)
		nothing(m, "gclose", rc);
}

static void step(struct dgmix *m, unsigned self)
{
	bool sends = false;
	struct call c;

	if (share(is_first() && m->closer == (int)self && !m->ended && !m->steps_left--)) {
		close_one(m);
		return;
	}
	if (share(sim_chance(100))) {
		look(m);
		return;
	}
	c = share_call(any_call(m, self, &sends));
	if (share(sends))
		send_one(m, self, c);
	else
		receive_one(m, self, c);
}

/* Calls that wait have a limit, or who sends would wait for who sends. */
static int64_t make_one(struct dgmix *m, unsigned i)
{
	const int64_t limit[2] = { 0, share(sim_between(1, 300)) };
	gnet_t *net = m->w->net;
	int64_t fd = gsocket(net, m->w->domain, SOCK_DGRAM, 0), rc;

	if (fd < 0)
		return fd;
	if (is_first())
		m->fd[i] = (int)fd;
	rc = gbind(net, (int)fd, &m->addr[i], m->addr_len);
	if (!rc && i)
		rc = gconnect(net, (int)fd, &m->addr[0], m->addr_len);
	if (!rc)
		rc = gsetsockopt(net, (int)fd, SOL_SOCKET, SO_RCVTIMEO, limit, sizeof(limit));
	if (!rc)
		rc = gsetsockopt(net, (int)fd, SOL_SOCKET, SO_SNDTIMEO, limit, sizeof(limit));
	return rc;
}

/* Block 0 makes the sockets, the others wait for them. False: all is over. */
static bool begin(struct dgmix *m, unsigned self)
{
	uint64_t turn = 0;
	int64_t rc = 0;

	if (!self)
		rc = make_one(m, 0);
	if (!self && !rc)
		rc = make_one(m, 1);
	if (is_first() && rc)
		nothing(m, "the sockets", rc);
	if (is_first() && !self)
		gnet_dev_store_release(&m->up, 1);
	while (is_first() && !rc && !gnet_dev_load_acquire(&m->up)) {
		rc = gnet__spin(m->w->net, &turn);
		if (rc)
			all_over(m, rc);
	}
	return !share(m->over || rc);
}

static void end(struct dgmix *m)
{
	unsigned i, gone = 0;
	uint64_t turn = 0;
	int64_t rc = 0;

	while (is_first() && !rc && gnet_dev_load_acquire(&m->done) < m->n)
		rc = gnet__spin(m->w->net, &turn);
	for (i = 0; i < 2 && !share(rc); i++) {
		rc = gclose(m->w->net, m->fd[i]);
		gone += rc == -EBADF;
		if (is_first() && rc)
			nothing(m, "gclose", rc);
		rc = 0;
	}
	if (is_first() && !rc && gone != m->ended && !all_over(m, 0))
		sim_fail("dgmix: %u were closed before", gone);
}

void dgmix_run(struct world *w, struct dgmix *m, unsigned self)
{
	(void)w;
	if (!begin(m, self))
		return;
	/* Calls that do not wait are not told of an abort. */
	while (!share(is_first() &&
		      (all_over(m, 0) || all_came(m) || (m->ended && !m->block[self].left))))
		step(m, self);
	if (is_first())
		gnet_dev_add(&m->done, 1);
	if (!self)
		end(m);
}

/* ---- the host's side ----------------------------------------------------------------------------------------------------- */

size_t dgmix_size(void)
{
	return sizeof(struct dgmix);
}

unsigned dgmix_make(const struct world *w, struct dgmix *m)
{
	unsigned i;

	m->w = w;
	m->n = sim_between(2, MOST);
	m->closer = sim_chance(700) ? -1 : (int)sim_below(m->n);
	m->steps_left = sim_below(40);
	for (i = 0; i < m->n; i++) {
		m->block[i].left = sim_below(NUMBERS);
		m->senders += m->block[i].left != 0;
	}
	for (i = 0; i < 2; i++) {
		struct sockaddr_in *in = (struct sockaddr_in *)&m->addr[i];
		struct sockaddr_un *un = (struct sockaddr_un *)&m->addr[i];

		m->addr[i].ss_family = (sa_family_t)w->domain;
		if (w->domain == AF_INET) {
			in->sin_port = htons((uint16_t)(7300 + i));
			in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
			m->addr_len = sizeof(*in);
		} else {
			un->sun_path[1] = (char)('x' + i);
			m->addr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 2);
		}
	}
	return m->n;
}

void dgmix_check(const struct dgmix *m)
{
	if (!m->over && !m->ended && !all_came(m))
		sim_fail("dgmix: %u and %u were sent, %u and %u came", m->sent[0], m->sent[1],
			 m->came[0], m->came[1]);
}
