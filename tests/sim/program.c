/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel's blocks do. Thread 0 of a block decides and checks; what all threads must do alike goes through share(). This file
 * is not instrumented, so that between two calls of the library nothing else happens: the model needs no locks.
 */
#include "world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <gpunet/gpunet.h>

#include "block.h"
#include "dgmix.h"
#include "dgram.h"
#include "ends.h"
#include "misuse.h"
#include "mixed.h"
#include "sim.h"

struct args {
	struct world *w;
};

/* How a block does one call. */
enum way { PLAIN, WARP, THREAD, MSG, BORROW };

struct call {
	enum way way;
	int flags;
	uint64_t len;
};

__attribute__((format(printf, 2, 3))) static void doing(struct block *b, const char *fmt, ...)
{
	va_list ap;

	if (!is_first())
		return;
	va_start(ap, fmt);
	vsnprintf(b->doing, sizeof(b->doing), fmt, ap);
	va_end(ap);
	sim_note("block %u: %s", blockIdx.x, b->doing);
}

static void result(const struct block *b, int64_t rc)
{
	if (is_first())
		sim_note("block %u: %s = %lld", blockIdx.x, b->doing, (long long)rc);
}

/* What must be 0 when nothing is wrong, or the end of all waits. Thread 0 says so. */
static int64_t must(struct world *w, struct block *b, int64_t rc)
{
	if (is_first() && rc < 0 && !wait_ended(w, rc))
		sim_fail("%s: %s", b->doing, strerror((int)-rc));
	return rc;
}

/* Waits until another block, or the host, has stored something other than 0 there. */
static int64_t wait_word(struct world *w, struct block *b, uint64_t *word, const char *what)
{
	uint64_t turn = 0, v = 0;
	int64_t rc = 0;

	doing(b, "wait for %s", what);
	while (is_first() && !rc && !(v = gnet_dev_load_acquire(word)))
		rc = gnet__spin(w->net, &turn);
	return share(rc ? rc : (int64_t)v);
}

/* ---- connections -------------------------------------------------------------------------------------------------------- */

/* gpoll by any scope, with a limit or without: one must not be over early. */
static int poll_by(struct world *w, const struct block *b, struct gnet_pollfd *p, uint32_t n,
		   int64_t limit)
{
	uint64_t start = sim_now(), took;
	int rc = 0;

	switch (share(sim_below(4))) {
	case 1:
		rc = gnet__tid() < 32 ? gpoll_warp(w->net, p, n, limit) : 0;
		rc = (int)share(rc);
		break;
	case 2:
		rc = is_first() ? gpoll_thread(w->net, p, n, limit) : 0;
		rc = (int)share(rc);
		break;
	default:
		rc = gpoll(w->net, p, n, limit);
	}
	took = sim_now() - start;
	if (is_first() && !rc && (limit < 0 || took < (uint64_t)limit))
		sim_fail("%s with a limit of %lld ns: 0 after %llu", b->doing, (long long)limit,
			 (unsigned long long)took);
	result(b, rc);
	return rc;
}

/* At times one that is soon over, or when the wait has become a long one. */
static int64_t any_limit(void)
{
	int64_t unit = sim_naps && is_first() && sim_chance(500) ? 2000000 : 100000;

	return share(is_first() && sim_chance(300) ? (int64_t)sim_below(3) * unit : -1);
}

/* 0: its time is over. */
static int64_t poll_for(struct world *w, struct block *b, int fd, short events)
{
	__shared__ struct gnet_pollfd p;
	int rc;

	__syncthreads();
	if (is_first())
		p = (struct gnet_pollfd){ .fd = fd, .events = events };
	__syncthreads();
	doing(b, "gpoll(%x, %x)", fd, events);
	rc = poll_by(w, b, &p, 1, any_limit());
	if (is_first() && rc >= 0 && (rc != 0) != (p.revents != 0))
		sim_fail("gpoll(%x): %d, revents %x", fd, rc, p.revents);
	return rc;
}

static int64_t make_listener(struct world *w, struct block *b)
{
	int64_t fd;

	if (blockIdx.x) {
		fd = wait_word(w, b, &w->up, "the listener");
		return fd < 0 ? fd : fd - 1;
	}
	doing(b, "gsocket for the listener");
	fd = must(w, b, gsocket(w->net, w->domain, SOCK_STREAM, 0));
	if (fd < 0)
		return fd;
	doing(b, "gbind(%llx)", (long long)fd);
	if (must(w, b, gbind(w->net, (int)fd, &w->addr[0], w->addr_len[0])) < 0)
		return -ECANCELED;
	doing(b, "glisten(%llx, %d)", (long long)fd, w->backlog);
	if (must(w, b, glisten(w->net, (int)fd, w->backlog)) < 0)
		return -ECANCELED;
	if (is_first()) {
		gnet_dev_store_release(&w->up, (uint64_t)fd + 1);
		sim_wake(&w->up, ~0u);
	}
	return fd;
}

/* From here on the connection's tasks have the socket. */
static int64_t publish(struct world *w, struct block *b, struct conn *c, unsigned end, int fd)
{
	const struct linger reset = { 1, 0 };

	if (share(c->chaos == RESET && is_first() && sim_chance(500)) &&
	    must(w, b, gsetsockopt(w->net, fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset))) < 0)
		return -ECANCELED;
	if (share(c->end[end].nonblock) &&
	    must(w, b, gfcntl(w->net, fd, GNET_F_SETFL, GNET_O_NONBLOCK)) < 0)
		return -ECANCELED;
	if (is_first() && end)
		flow_got(c, 1, b->buf, HELLO);
	if (is_first())
		gnet_dev_store_release(&c->end[end].fd, (uint64_t)fd + 1);
	return 0;
}

/* Accepts one connection and finds out which it is. */
static int64_t accept_one(struct world *w, struct block *b, int listener)
{
	int flags = (int)share(is_first() && sim_chance(400) ? GNET_MSG_DONTWAIT : 0);
	int nonblock = (int)share(is_first() && sim_chance(200) ? GNET_SOCK_NONBLOCK : 0);
	int64_t fd, rc;

	flags |= nonblock;

	for (;;) {
		doing(b, "gaccept4(%x, %x)", listener, flags);
		fd = gaccept4(w->net, listener, NULL, NULL, flags);
		result(b, fd);
		if (fd != -EAGAIN || !(flags & GNET_MSG_DONTWAIT))
			break;
		if (poll_for(w, b, listener, GNET_POLLIN) < 0)
			return -ECANCELED;
	}
	if (must(w, b, fd) < 0)
		return fd;
	if (nonblock && must(w, b, gfcntl(w->net, (int)fd, GNET_F_SETFL, 0)) < 0)
		return -ECANCELED;
	doing(b, "grecv(%llx) of the hello", (long long)fd);
	rc = grecv(w->net, (int)fd, b->buf, HELLO, GNET_MSG_WAITALL);
	result(b, rc);
	if (is_first() && rc != HELLO && !w->aborted)
		sim_fail("%s: %lld", b->doing, (long long)rc);
	if (rc != HELLO)
		return -ECANCELED;
	/* What the other threads do at the end of a call must be done before another block has the socket. */
	__syncthreads();
	return publish(w, b, &w->conn[b->buf[0] % MOST_CONNS], 1, (int)fd);
}

static int64_t connect_nonblock(struct world *w, struct block *b, int fd, unsigned to)
{
	int err = 0;
	uint32_t n = sizeof(err);
	int64_t rc;

	for (;;) {
		doing(b, "gconnect(%x), non-blocking", fd);
		rc = gconnect(w->net, fd, &w->addr[to], w->addr_len[to]);
		result(b, rc);
		if (rc != -EAGAIN)
			break;
		__nanosleep(100000); /* a UNIX listener's backlog */
	}
	if (rc != -EINPROGRESS)
		return rc;
	do
		rc = poll_for(w, b, fd, GNET_POLLOUT);
	while (!rc);
	if (rc < 0)
		return rc;
	rc = ggetsockopt(w->net, fd, SOL_SOCKET, SO_ERROR, &err, &n);
	return rc ? rc : -share(err);
}

static int64_t connect_one(struct world *w, struct block *b, struct conn *c)
{
	unsigned to = c->end[1].host;
	int type = SOCK_STREAM;
	int64_t fd, rc;

	if (!to && wait_word(w, b, &w->up, "the listener") < 0)
		return -ECANCELED;
	type |= (int)share(is_first() && sim_chance(300) ? GNET_SOCK_NONBLOCK : 0);
	doing(b, "gsocket");
	fd = must(w, b, gsocket(w->net, w->domain, type, 0));
	if (fd < 0)
		return fd;
	if (type & GNET_SOCK_NONBLOCK) {
		rc = connect_nonblock(w, b, (int)fd, to);
		if (!rc)
			rc = gfcntl(w->net, (int)fd, GNET_F_SETFL, 0);
	} else {
		doing(b, "gconnect(%llx)", (long long)fd);
		rc = gconnect(w->net, (int)fd, &w->addr[to], w->addr_len[to]);
	}
	result(b, rc);
	if (must(w, b, rc) < 0)
		return rc;
	if (is_first()) {
		flow_fill(&c->flow[0], 0, b->buf, HELLO);
		c->flow[0].sent = HELLO;
	}
	__syncthreads();
	doing(b, "gsend(%llx) of the hello", (long long)fd);
	rc = gsend(w->net, (int)fd, b->buf, HELLO, 0);
	if (must(w, b, rc) < 0)
		return rc;
	__syncthreads();
	return publish(w, b, c, 0, (int)fd);
}

/* ---- chaos -------------------------------------------------------------------------------------------------------------- */

/* Now and then a task does to its connection what its other tasks do not expect. */
static void maybe_chaos(struct world *w, struct block *b, struct task *t)
{
	struct end *e = &t->c->end[t->end];
	int fd = (int)e->fd - 1, how;
	int64_t rc;

	/* Not before both sides know which connection it is. */
	if (t->c->chaos < CLOSED || t->c->chaos > SHUT || !share(t->c->end[!t->end].fd != 0) ||
	    !share(is_first() && sim_chance(50)))
		return;
	if (t->c->chaos == SHUT) {
		how = (int)share(sim_below(3));
		/* Both sides' writers would wait for ever if nobody read. */
		if (share(how == SHUT_RD && t->c->end[!t->end].deaf))
			how = SHUT_RDWR;
		if (is_first() && how == SHUT_RD)
			e->deaf = true;
		if (is_first() && how != SHUT_WR)
			e->told = true;
		if (is_first() && how != SHUT_RD)
			flow_end(&t->c->flow[t->end]);
		doing(b, "gshutdown(%x, %d) at any time", fd, how);
		rc = gshutdown(w->net, fd, how);
	} else {
		if (is_first())
			flow_end(&t->c->flow[t->end]);
		doing(b, "gclose(%x) at any time", fd);
		rc = gclose(w->net, fd);
	}
	result(b, rc);
	if (is_first() && rc)
		call_failed(t->c, t->end, b->doing, rc);
}

/* ---- reading and writing -------------------------------------------------------------------------------------------------- */

static uint64_t any_len(void)
{
	static const uint32_t most[] = { 1, 8, 104, 106, 300, 4100, 20000 };

	return sim_between(1, most[sim_below(7)]);
}

/* A call's buffer as two buffers of any lengths, and an empty one between them. */
static struct gnet_msghdr *parts(uint8_t *buf, uint64_t n)
{
	__shared__ struct gnet_iovec v[3];
	__shared__ struct gnet_msghdr m;

	__syncthreads();
	if (is_first()) {
		uint64_t first = sim_below((uint32_t)n + 1);

		v[0] = (struct gnet_iovec){ buf, first };
		v[1] = (struct gnet_iovec){ buf, 0 };
		v[2] = (struct gnet_iovec){ buf + first, n - first };
		m = (struct gnet_msghdr){ .iov = v, .iovlen = 3 };
	}
	__syncthreads();
	return &m;
}

/* All threads of the block get the same call. */
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

static struct call any_read(bool dontwait)
{
	static const enum way ways[] = { PLAIN, PLAIN, MSG, WARP, THREAD, BORROW };
	struct call c = { 0 };

	if (!is_first())
		return c;
	c.way = ways[sim_below(6)];
	c.len = any_len();
	c.flags = dontwait ? GNET_MSG_DONTWAIT : 0;
	if (c.way != BORROW && sim_chance(200))
		c.flags |= sim_chance(200) ? GNET_MSG_PEEK | GNET_MSG_WAITALL : GNET_MSG_PEEK;
	else if (c.way != BORROW && sim_chance(200))
		c.flags |= GNET_MSG_WAITALL;
	return c;
}

/* Borrows, checks, and gives some of it back as consumed. */
static int64_t read_borrowed(struct world *w, struct block *b, struct task *t, int fd,
			     struct call c)
{
	__shared__ struct gnet_borrow lent;
	const struct flow *f = &t->c->flow[!t->end];
	int64_t n, rc, some;

	if (share(sim_below(2)))
		n = grecv_borrow(w->net, fd, &lent, c.len, c.flags);
	else if (share(sim_below(2)))
		n = share(gnet__tid() < 32 ? grecv_borrow_warp(w->net, fd, &lent, c.len, c.flags)
					   : 0);
	else
		n = share(is_first() ? grecv_borrow_thread(w->net, fd, &lent, c.len, c.flags) : 0);
	if (n <= 0)
		return n;
	if (is_first()) {
		if (lent.len[0] + lent.len[1] != (uint64_t)n || (uint64_t)n > c.len)
			sim_fail("%s: %lld bytes in spans of %llu and %llu", b->doing, (long long)n,
				 (unsigned long long)lent.len[0], (unsigned long long)lent.len[1]);
		flow_check(f, f->received, lent.ptr[0], lent.len[0]);
		flow_check(f, f->received + lent.len[0], lent.ptr[1], lent.len[1]);
	}
	some = share(is_first() && sim_chance(300) ? sim_between(0, (uint32_t)n) : n);
	if (t->c->chaos == CLOSED)
		maybe_chaos(w, b, t);
	if (share(sim_below(2)))
		rc = grecv_return(w->net, fd, (uint64_t)some);
	else
		rc = share(is_first() ? grecv_return_thread(w->net, fd, (uint64_t)some) : 0);
	result(b, rc);
	if (rc)
		return rc;
	if (is_first())
		t->c->flow[!t->end].received += (uint64_t)some;
	return n;
}

static int64_t read_call(struct world *w, struct block *b, struct task *t, int fd, struct call c)
{
	int64_t rc = 0;

	doing(b, "receive(%x, %llu, flags %x, way %d)", fd, (unsigned long long)c.len, c.flags,
	      c.way);
	switch (c.way) {
	case WARP:
		if (gnet__tid() < 32)
			rc = grecv_warp(w->net, fd, b->buf, c.len, c.flags);
		return share(rc);
	case THREAD:
		if (is_first())
			rc = grecv_thread(w->net, fd, b->buf, c.len, c.flags);
		return share(rc);
	case MSG:
		return grecvmsg(w->net, fd, parts(b->buf, c.len), c.flags);
	case BORROW:
		return read_borrowed(w, b, t, fd, c);
	default:
		return grecv(w->net, fd, b->buf, c.len, c.flags);
	}
}

/* A read of a shared flow: by one of several readers whole units only. */
static struct call any_units_read(const struct task *t)
{
	static const enum way ways[] = { PLAIN, MSG, WARP, THREAD };
	struct call c = { 0 };

	c.way = ways[sim_below(4)];
	c.len = any_len();
	if (t->c->flow[!t->end].loose)
		c.len = sim_between(1, 40); /* parts of small messages, by several blocks */
	if (t->alone || t->c->flow[!t->end].loose)
		return c;
	c.len = (c.len + 7) & ~UINT64_C(7);
	c.flags = GNET_MSG_WAITALL;
	return c;
}

/* One call; the result. The task may be done after it. */
static int64_t read_step(struct world *w, struct block *b, struct task *t, bool dontwait)
{
	int fd = (int)t->c->end[t->end].fd - 1;
	struct flow *f = &t->c->flow[!t->end];
	struct call c = share_call(f->shared ? any_units_read(t) : any_read(dontwait));
	int64_t rc = read_call(w, b, t, fd, c);

	result(b, rc);
	if (is_first() && rc > (int64_t)c.len)
		sim_fail("%s: %lld", b->doing, (long long)rc);
	if (is_first() && rc > 0 && (c.flags & GNET_MSG_PEEK))
		flow_check(f, f->received, b->buf, (uint64_t)rc);
	else if (is_first() && (rc <= 0 || c.way != BORROW) && rc != -EAGAIN &&
		 !(rc == -ETIMEDOUT && t->limited))
		flow_got(t->c, t->end, b->buf, rc);
	if (is_first() && f->shared && rc > 0)
		units_check(t, b->buf, (uint64_t)rc);
	if (is_first() && (c.flags & (GNET_MSG_WAITALL | GNET_MSG_PEEK)) == GNET_MSG_WAITALL &&
	    !dontwait && !t->c->end[t->end].nonblock && rc > 0 && rc < (int64_t)c.len &&
	    !f->ended && !t->c->chaos && !t->limited)
		sim_fail("%s: %lld, and the flow goes on", b->doing, (long long)rc);
	if (rc == -ETIMEDOUT && t->limited) {
		/* Its limit, or what a connection that breaks tells. */
		t->c->end[t->end].told |= t->c->chaos == BREAKS;
		return rc;
	}
	if (is_first() && rc == -EAGAIN && !dontwait && !t->c->end[t->end].nonblock)
		sim_fail("%s: -EAGAIN", b->doing);
	if (is_first() && rc <= 0 && rc != -EAGAIN)
		t->done = true;
	__syncthreads();
	return rc;
}

static struct call any_write(const struct flow *f, bool dontwait)
{
	static const enum way ways[] = { PLAIN, PLAIN, MSG, WARP, THREAD, BORROW };
	struct call c = { 0 };

	if (!is_first())
		return c;
	c.way = ways[sim_below(6)];
	c.len = any_len();
	if (c.len > f->total - f->sent)
		c.len = f->total - f->sent;
	if (c.way == BORROW && c.len > 16384)
		c.len = 16384;
	c.flags = dontwait ? GNET_MSG_DONTWAIT : 0;
	return c;
}

static int64_t write_reserved(struct world *w, struct block *b, struct task *t, int fd,
			      struct call c)
{
	struct flow *f = &t->c->flow[t->end];
	__shared__ struct gnet_borrow room;
	int64_t rc, some;

	if (share(sim_below(2)))
		rc = gsend_reserve(w->net, fd, &room, c.len, c.flags);
	else if (share(sim_below(2)))
		rc = share(gnet__tid() < 32 ? gsend_reserve_warp(w->net, fd, &room, c.len, c.flags)
					    : 0);
	else
		rc = share(is_first() ? gsend_reserve_thread(w->net, fd, &room, c.len, c.flags)
				      : 0);
	if (rc)
		return rc;
	some = share(is_first() && sim_chance(300) ? sim_between(0, (uint32_t)c.len)
						   : (int64_t)c.len);
	if (is_first()) {
		if (room.len[0] + room.len[1] != c.len)
			sim_fail("%s: spans of %llu and %llu", b->doing,
				 (unsigned long long)room.len[0], (unsigned long long)room.len[1]);
		flow_fill(f, f->sent, room.ptr[0], room.len[0]);
		flow_fill(f, f->sent + room.len[0], room.ptr[1], room.len[1]);
		f->sent += (uint64_t)some;
	}
	if (t->c->chaos == CLOSED)
		maybe_chaos(w, b, t);
	if (share(sim_below(2)))
		rc = gsend_commit(w->net, fd, (uint64_t)some);
	else
		rc = share(is_first() ? gsend_commit_thread(w->net, fd, (uint64_t)some) : 0);
	if (is_first() && rc)
		f->sent -= (uint64_t)some;
	return rc ? rc : some;
}

static int64_t write_call(struct world *w, struct block *b, struct task *t, int fd, struct call c)
{
	struct flow *f = &t->c->flow[t->end];
	int64_t rc = 0;

	doing(b, "send(%x, %llu, flags %x, way %d)", fd, (unsigned long long)c.len, c.flags, c.way);
	if (c.way == BORROW)
		return write_reserved(w, b, t, fd, c);
	if (is_first()) {
		flow_fill(f, f->sent, b->buf, c.len);
		f->sent += c.len; /* the reader may be faster than the call's return */
	}
	__syncthreads();
	if (c.way == WARP && gnet__tid() < 32)
		rc = gsend_warp(w->net, fd, b->buf, c.len, c.flags);
	else if (c.way == THREAD && is_first())
		rc = gsend_thread(w->net, fd, b->buf, c.len, c.flags);
	else if (c.way == MSG)
		rc = gsendmsg(w->net, fd, parts(b->buf, c.len), c.flags);
	else if (c.way == PLAIN)
		rc = gsend(w->net, fd, b->buf, c.len, c.flags);
	rc = share(rc);
	if (is_first())
		f->sent -= c.len - (rc > 0 ? (uint64_t)rc : 0);
	return rc;
}

/* One call that writes units, all of them unless the connection ends. */
static int64_t write_units(struct world *w, struct block *b, struct task *t, int fd)
{
	static const enum way ways[] = { PLAIN, MSG, WARP, THREAD };
	struct flow *f = &t->c->flow[t->end];
	struct call c = { 0 };
	int64_t rc = 0;

	if (is_first()) {
		c.way = ways[sim_below(4)];
		c.len = sim_between(1, sim_chance(300) ? MOST_UNITS : 20);
		c.len = 8 * (c.len < t->units ? c.len : t->units);
		units_fill(t, b->buf, (unsigned)(c.len / 8));
		f->sent += c.len;
	}
	c = share_call(c);
	doing(b, "send(%x, %llu, way %d) of units", fd, (unsigned long long)c.len, c.way);
	if (c.way == WARP && gnet__tid() < 32)
		rc = gsend_warp(w->net, fd, b->buf, c.len, 0);
	else if (c.way == THREAD && is_first())
		rc = gsend_thread(w->net, fd, b->buf, c.len, 0);
	else if (c.way == MSG)
		rc = gsendmsg(w->net, fd, parts(b->buf, c.len), 0);
	else if (c.way == PLAIN)
		rc = gsend(w->net, fd, b->buf, c.len, 0);
	rc = share(rc);
	result(b, rc);
	if (!is_first())
		return rc;
	f->sent -= c.len - (rc > 0 ? (uint64_t)rc : 0);
	f->sum[0] += bytes_sum(b->buf, rc > 0 ? (uint64_t)rc : 0);
	t->units -= c.len / 8;
	if (rc != (int64_t)c.len && !t->c->chaos && !w->aborted)
		sim_fail("%s: %lld", b->doing, (long long)rc);
	if (rc != (int64_t)c.len) {
		t->units = 0; /* no whole unit would follow */
		if (rc < 0)
			call_failed(t->c, t->end, b->doing, rc);
	}
	return rc;
}

/* The writer's last word. The other task of this end, if it is still there, closes. */
static void write_end(struct world *w, struct block *b, struct task *t, int fd)
{
	bool closes = share(t->c->end[t->end].users == 1 && !t->c->end[t->end].left);
	int64_t rc;

	if (is_first()) {
		flow_end(&t->c->flow[t->end]);
		t->done = true;
	}
	if (closes && share(is_first() && sim_chance(500)))
		return;
	doing(b, "gshutdown(%x)", fd);
	rc = gshutdown(w->net, fd, SHUT_WR);
	result(b, rc);
	if (is_first() && rc)
		call_failed(t->c, t->end, b->doing, rc);
}

static int64_t write_step(struct world *w, struct block *b, struct task *t, bool dontwait)
{
	int fd = (int)t->c->end[t->end].fd - 1;
	struct flow *f = &t->c->flow[t->end];
	struct call c;
	int64_t rc;

	if (f->shared) {
		while (share(t->units != 0))
			write_units(w, b, t, fd);
		if (is_first())
			t->done = true;
		if (share(is_first() && !--f->writers))
			write_end(w, b, t, fd);
		return 0;
	}
	if (share(f->sent == f->total)) {
		write_end(w, b, t, fd);
		return 0;
	}
	c = share_call(any_write(f, dontwait));
	rc = write_call(w, b, t, fd, c);
	result(b, rc);
	if ((rc == -ENOBUFS && c.way == BORROW) || (rc == -ETIMEDOUT && t->limited))
		return rc; /* the slab is used up: another way next time */
	dontwait |= t->c->end[t->end].nonblock;
	if (is_first() && rc < 0 && (rc != -EAGAIN || !dontwait)) {
		flow_end(f);
		t->done = true;
		call_failed(t->c, t->end, b->doing, rc);
	}
	if (is_first() && !dontwait && rc >= 0 && rc != (int64_t)c.len && c.way != BORROW &&
	    !t->c->chaos && !w->aborted && !t->limited)
		sim_fail("%s: %lld", b->doing, (long long)rc);
	__syncthreads();
	return rc;
}

/* ---- tasks --------------------------------------------------------------------------------------------------------------- */

static void task_done(struct world *w, struct block *b, struct task *t)
{
	const struct linger patient = { 1, 3600 };
	struct end *e = &t->c->end[t->end];
	int fd = (int)e->fd - 1;
	int64_t rc;

	if (!share(is_first() && !--e->users) || share(e->left))
		return;
	if (!b->polls && share(is_first() && sim_chance(200))) {
		doing(b, "gsetsockopt(%x) of SO_LINGER", fd);
		rc = gsetsockopt(w->net, fd, SOL_SOCKET, SO_LINGER, &patient, sizeof(patient));
		if (is_first() && rc)
			call_failed(t->c, t->end, b->doing, rc);
	}
	doing(b, "gclose(%x)", fd);
	rc = gclose(w->net, fd);
	result(b, rc);
	if (is_first() && rc)
		call_failed(t->c, t->end, b->doing, rc);
}

/* At times a task's calls get a time limit. */
static void maybe_limit(struct world *w, struct block *b, struct task *t)
{
	int fd = (int)t->c->end[t->end].fd - 1;
	int64_t limit[2] = { 0, share(sim_between(1, 2000)) }, rc;

	if (t->c->flow[t->reads ? !t->end : t->end].shared || !share(is_first() && sim_chance(200)))
		return;
	doing(b, "gsetsockopt(%x) of a limit of %lld us", fd, (long long)limit[1]);
	rc = gsetsockopt(w->net, fd, SOL_SOCKET, t->reads ? SO_RCVTIMEO : SO_SNDTIMEO, limit,
			 sizeof(limit));
	if (is_first() && rc)
		call_failed(t->c, t->end, b->doing, rc);
	if (is_first())
		t->limited = true;
	__syncthreads();
}

/* One task, by calls that wait, or by gpoll and calls that do not. */
static void run_one(struct world *w, struct block *b, struct task *t)
{
	if (wait_word(w, b, &t->c->end[t->end].fd, "its connection") < 0)
		return;
	maybe_limit(w, b, t);
	while (!share(t->done)) {
		bool dontwait = share(is_first() && sim_chance(300));
		int64_t rc =
			t->reads ? read_step(w, b, t, dontwait) : write_step(w, b, t, dontwait);

		if (rc == -EAGAIN && poll_for(w, b, (int)t->c->end[t->end].fd - 1,
					      t->reads ? GNET_POLLIN : GNET_POLLOUT) < 0)
			return;
	}
	task_done(w, b, t);
}

static void poll_prepare(struct block *b, struct gnet_pollfd *p)
{
	unsigned i;

	for (i = 0; i < b->n_tasks; i++) {
		const struct task *t = &b->task[i];

		p[i].fd = t->done ? -1 : (int)t->c->end[t->end].fd - 1;
		p[i].events = t->reads ? GNET_POLLIN : GNET_POLLOUT;
		if (t->reads && sim_chance(200))
			p[i].events |= GNET_POLLRDHUP;
		p[i].revents = 0;
	}
}

/* A UNIX peer that takes no more is no error, but for those who send. */
static bool no_errors(const struct conn *c)
{
	return !c->chaos || (c->chaos == DEAF && c->orderly);
}

/* Thread 0: is this what gpoll may say? */
static void poll_check(const struct block *b, const struct gnet_pollfd *p, int rc)
{
	unsigned i;
	int n = 0;

	for (i = 0; i < b->n_tasks; i++) {
		const struct task *t = &b->task[i];

		n += p[i].revents != 0;
		if (p[i].revents && p[i].fd < 0)
			sim_fail("gpoll: events %x of descriptor -1", p[i].revents);
		if ((p[i].revents & (GNET_POLLNVAL | GNET_POLLERR)) && no_errors(t->c))
			sim_fail("gpoll: events %x of %x", p[i].revents, p[i].fd);
		if ((p[i].revents & (GNET_POLLRDHUP | GNET_POLLIN)) == GNET_POLLRDHUP)
			sim_fail("gpoll: %x is at its end, but not ready: %x", p[i].fd,
				 p[i].revents);
	}
	if (n != rc)
		sim_fail("gpoll: %d, but %d descriptors have events", rc, n);
}

/* One look at all tasks. Thread 0 of a task that gpoll calls ready finds that it is. */
static int64_t poll_round(struct world *w, struct block *b)
{
	__shared__ struct gnet_pollfd p[MOST_TASKS];
	unsigned i;
	int rc;

	__syncthreads();
	if (is_first())
		poll_prepare(b, p);
	__syncthreads();
	doing(b, "gpoll of %u", b->n_tasks);
	rc = poll_by(w, b, p, b->n_tasks, any_limit());
	if (rc <= 0)
		return rc ? rc : 1;
	if (is_first())
		poll_check(b, p, rc);
	for (i = 0; i < b->n_tasks; i++) {
		struct task *t = &b->task[i];
		int64_t got;

		if (!p[i].revents)
			continue;
		maybe_chaos(w, b, t);
		got = t->reads ? read_step(w, b, t, true) : write_step(w, b, t, true);
		if (is_first() && got == -EAGAIN && t->reads && !t->c->chaos)
			sim_fail("gpoll said %x, but: %s: -EAGAIN", p[i].revents, b->doing);
		if (share(t->done))
			task_done(w, b, t);
	}
	return rc;
}

static void run_all(struct world *w, struct block *b)
{
	unsigned i, left;
	int64_t rc = 1;

	for (i = 0; i < b->n_tasks; i++) {
		struct task *t = &b->task[i];

		if (wait_word(w, b, &t->c->end[t->end].fd, "a connection") < 0)
			return;
	}
	do {
		left = 0;
		for (i = 0; i < b->n_tasks; i++)
			left += !b->task[i].done;
		if (share(left))
			rc = poll_round(w, b);
	} while (left && rc > 0);
	if (rc < 0)
		must(w, b, rc);
}

/* Of no socket at all it is a rest. */
static void rest_by_poll(struct world *w, struct block *b)
{
	int64_t limit = share(sim_below(200000));

	doing(b, "gpoll of none");
	must(w, b, poll_by(w, b, NULL, 0, limit));
}

static bool take_ticket(unsigned *left)
{
	return *left && (*left)--;
}

/* A block that is none of the world's own, number `i` of them. */
static void run_others(struct world *w, unsigned i)
{
	unsigned n_misuse = w->misuse != NULL;

	if (i < w->n_dgrams)
		dgram_run(w, w->dgrams, i);
	else if ((i -= w->n_dgrams) < n_misuse)
		misuse_run(w, w->misuse);
	else if ((i -= n_misuse) < w->n_ends)
		ends_run(w, w->ends, i);
	else if ((i -= w->n_ends) < w->n_mixed)
		mixed_run(w, w->mixed, i);
	else
		dgmix_run(w, w->dgmix, i - w->n_mixed);
}

GNET_KERNEL(sim_program, struct args, a)
{
	struct world *w = a.w;
	struct block *b = &w->block[blockIdx.x % w->n_blocks];
	int64_t listener = -1;
	unsigned i;

	if (blockIdx.x >= w->n_blocks) {
		run_others(w, blockIdx.x - w->n_blocks);
		return;
	}
	if (b->accepts) {
		listener = make_listener(w, b);
		if (listener < 0)
			return;
	}
	for (i = 0; i < w->n_conns; i++) {
		if ((b->connects >> i & 1) && connect_one(w, b, &w->conn[i]) < 0)
			return;
	}
	while (b->accepts && share(is_first() && take_ticket(&w->to_accept))) {
		if (accept_one(w, b, (int)listener) < 0)
			return;
	}
	/* The listener ends while connections are used. */
	if (b->accepts && share(is_first() && !--w->acceptors)) {
		doing(b, "gclose(%llx) of the listener", (long long)listener);
		if (must(w, b, gclose(w->net, (int)listener)) < 0)
			return;
	}
	if (share(is_first() && sim_chance(100)))
		rest_by_poll(w, b);
	if (b->polls)
		run_all(w, b);
	else if (b->n_tasks)
		run_one(w, b, &b->task[0]);
	doing(b, "ended");
}

void program_launch(struct gpunet *g, struct world *w)
{
	const struct gpunet_grid grid = { .grid_x = w->n_blocks + w->n_dgrams +
						    (w->misuse != NULL) + w->n_ends + w->n_mixed +
						    w->n_dgmix,
					  .block_x = w->n_threads };
	struct args a = { w };
	int rc = GPUNET_LAUNCH(g, sim_program, grid, a);

	if (rc)
		sim_fail("gpunet_launch_cpu: %s", strerror(-rc));
}
