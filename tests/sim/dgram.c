/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks that send datagrams to each other. Each datagram says who sent it to whom and which it is, and its length tells its bytes; so
 * whoever gets it can tell whether it is whole, in order, and from where it says; an empty one only has its sender's address. Some
 * have a second socket, connected to one of them. The host counts what it had to drop: in the end no other may be
 * missing. Not instrumented, as program.c.
 */
#include "dgram.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "block.h"
#include "host.h"
#include "sim.h"

#define MOST_PEERS 3
#define LONGEST 9000
#define QUIET_NS 30000000 /* longer than anything stays on its way */

struct peer {
	int fd;
	struct sockaddr_storage addr;
	socklen_t addr_len;
	int via; /* 0, or connected to number via_to */
	unsigned via_to;
	bool limited; /* calls that receive have a time limit */
	unsigned to_send;
	uint16_t next[2][MOST_PEERS]; /* number of the next one to each; [1]: connected */
	uint16_t seen[2][MOST_PEERS]; /* numbers from each are at least this */
	unsigned sent_to, received;   /* to this one, and by it */
	uint8_t buf[LONGEST];
};

struct dgrams {
	unsigned n, ready, sending;
	uint64_t up; /* word: all sockets are bound */
	int over;
	struct peer peer[MOST_PEERS];
};

struct head {
	uint8_t from, to;
	uint16_t number;
	uint32_t len; /* and VIA, if the socket with the address has not sent it */
};

#define VIA UINT32_C(0x80000000)
#define LIMIT_US 300

static uint8_t byte_of(const struct head *h, uint32_t i)
{
	return (uint8_t)(h->from * 31 + h->to * 17 + h->number * 7 + h->len + i * 13 + (i >> 8));
}

static void fail(const struct peer *p, const char *what, int64_t rc)
{
	sim_fail("datagrams: %s(%x): %lld", what, p->fd, (long long)rc);
}

/* Is this the end of all waits? Others are faults. */
static bool over(struct world *w, struct dgrams *d, const struct peer *p, const char *what,
		 int64_t rc)
{
	if (!is_first())
		return false;
	/* Peers that have seen the end of all waits are gone. */
	if (!wait_ended(w, rc) && !w->aborted)
		fail(p, what, rc);
	d->over = 1;
	return true;
}

/* ---- sending ------------------------------------------------------------------------------------------------------------- */

static uint32_t any_len(void)
{
	static const uint32_t most[] = { 8, 48, 60, 80, 90, 110, 300, 1500, LONGEST };

	return sim_between(sizeof(struct head), most[sim_below(9)]);
}

static uint32_t compose(struct peer *p, unsigned from, unsigned to, bool via)
{
	struct head h = { (uint8_t)from, (uint8_t)to, p->next[via][to], any_len() };
	uint32_t i;

	if (!via && sim_chance(50))
		return 0;
	for (i = sizeof(h); i < h.len; i++)
		p->buf[i] = byte_of(&h, i);
	i = h.len;
	h.len |= via ? VIA : 0;
	memcpy(p->buf, &h, sizeof(h));
	return i;
}

/* A datagram's buffer as three, one of them empty; of block `self`. */
static struct gnet_msghdr *parts(unsigned self, uint8_t *buf, uint32_t n, void *addr, uint32_t alen)
{
	static struct gnet_iovec v[MOST_PEERS][3];
	static struct gnet_msghdr m[MOST_PEERS];
	uint32_t some;

	if (is_first()) {
		some = sim_below(n + 1);
		v[self][0] = (struct gnet_iovec){ buf, some };
		v[self][1] = (struct gnet_iovec){ buf + some, n - some };
		v[self][2] = (struct gnet_iovec){ buf, 0 };
		m[self] = (struct gnet_msghdr){
			.name = addr, .namelen = alen, .iov = v[self], .iovlen = 3
		};
	}
	__syncthreads();
	return &m[self];
}

static int64_t send_by(struct world *w, struct dgrams *d, unsigned from, unsigned to, uint32_t len)
{
	struct peer *p = &d->peer[from], *q = &d->peer[to];
	int fd = p->fd;

	switch (share(sim_below(4))) {
	case 1:
		return share(gnet__tid() < 32
				     ? gsendto_warp(w->net, fd, p->buf, len, GNET_MSG_DONTWAIT,
						    &q->addr, q->addr_len)
				     : 0);
	case 2:
		return share(is_first() ? gsendto_thread(w->net, fd, p->buf, len, GNET_MSG_DONTWAIT,
							 &q->addr, q->addr_len)
					: 0);
	case 3:
		return gsendmsg(w->net, fd, parts(from, p->buf, len, &q->addr, q->addr_len),
				GNET_MSG_DONTWAIT);
	default:
		return gsendto(w->net, fd, p->buf, len, GNET_MSG_DONTWAIT, &q->addr, q->addr_len);
	}
}

static int64_t send_via(struct world *w, const struct dgrams *d, unsigned from, uint32_t len)
{
	const struct peer *p = &d->peer[from];

	if (share(sim_below(2)))
		return gsend(w->net, p->via, p->buf, len, GNET_MSG_DONTWAIT);
	return gsendmsg(w->net, p->via, parts(from, (uint8_t *)(uintptr_t)p->buf, len, NULL, 0),
			GNET_MSG_DONTWAIT);
}

static void send_one(struct world *w, struct dgrams *d, unsigned from)
{
	unsigned to = (unsigned)share(sim_below(d->n));
	struct peer *p = &d->peer[from], *q = &d->peer[to];
	bool via = share(p->via && p->via_to == to && sim_chance(500));
	uint32_t len = (uint32_t)share(is_first() ? compose(p, from, to, via) : 0);
	int64_t rc;

	/* Before, for it may be received before the call returns. */
	if (is_first())
		q->sent_to++;
	rc = via ? send_via(w, d, from, len) : send_by(w, d, from, to, len);
	if (!is_first())
		return;
	sim_note("datagrams: %u sends %u bytes to %u%s, number %u = %lld", from, len, to,
		 via ? ", connected" : "", p->next[via][to], (long long)rc);
	if (rc == (int64_t)len) {
		p->next[via][to] += len != 0;
		if (!--p->to_send)
			d->sending--;
		return;
	}
	q->sent_to--;
	if (rc != -EAGAIN && rc != -ENOBUFS)
		over(w, d, p, "gsendto", rc);
}

/* ---- receiving ------------------------------------------------------------------------------------------------------------- */

static bool is_address(const struct peer *p, const struct sockaddr_storage *a, uint32_t n)
{
	return n == p->addr_len && !memcmp(a, &p->addr, n);
}

static void check_empty(struct dgrams *d, unsigned self, const struct sockaddr_storage *from,
			uint32_t from_len, bool peek)
{
	unsigned i = 0;

	while (i < d->n && !is_address(&d->peer[i], from, from_len))
		i++;
	if (i == d->n)
		sim_fail("datagrams: %u got an empty one from nobody", self);
	d->peer[self].received += !peek;
}

static void check(struct dgrams *d, unsigned self, int64_t rc, uint32_t room,
		  const struct sockaddr_storage *from, uint32_t from_len, bool peek)
{
	struct peer *p = &d->peer[self];
	struct head h;
	uint32_t i, have;
	bool via;

	if (!rc) {
		check_empty(d, self, from, from_len, peek);
		return;
	}
	memcpy(&h, p->buf, sizeof(h));
	via = h.len & VIA;
	h.len &= ~VIA;
	if (h.to != self || h.from >= d->n || h.number < p->seen[via][h.from] || h.len != rc)
		sim_fail(
			"datagrams: %u got number %u from %u to %u, %u bytes, in %lld; number %u was "
			"due",
			self, h.number, h.from, h.to, h.len, (long long)rc,
			h.from < d->n ? p->seen[via][h.from] : 0);
	have = h.len < room ? h.len : room;
	for (i = sizeof(h); i < have; i++) {
		if (p->buf[i] != byte_of(&h, i))
			sim_fail("datagrams: number %u from %u to %u: byte %u of %u is %02x",
				 h.number, h.from, h.to, i, h.len, p->buf[i]);
	}
	if (via == is_address(&d->peer[h.from], from, from_len))
		sim_fail("datagrams: number %u from %u comes with another's address", h.number,
			 h.from);
	if (peek)
		return;
	p->seen[via][h.from] = (uint16_t)(h.number + 1);
	p->received++;
}

static int64_t receive_by(struct world *w, struct dgrams *d, unsigned self, uint32_t room,
			  int flags, struct sockaddr_storage *from, uint32_t *from_len)
{
	struct peer *p = &d->peer[self];
	struct gnet_msghdr *m;
	int64_t rc;

	switch (share(sim_below(4))) {
	case 1:
		return share(gnet__tid() < 32 ? grecvfrom_warp(w->net, p->fd, p->buf, room, flags,
							       from, from_len)
					      : 0);
	case 2:
		return share(is_first() ? grecvfrom_thread(w->net, p->fd, p->buf, room, flags, from,
							   from_len)
					: 0);
	case 3:
		m = parts(self, p->buf, room, from, sizeof(*from));
		rc = grecvmsg(w->net, p->fd, m, flags);
		if (is_first() && rc >= 0 && !(m->flags & GNET_MSG_TRUNC) != (rc <= room))
			sim_fail("datagrams: %lld bytes into %u: flags %x", (long long)rc, room,
				 m->flags);
		if (is_first())
			*from_len = m->namelen;
		return rc;
	default:
		return grecvfrom(w->net, p->fd, p->buf, room, flags, from, from_len);
	}
}

/* -EAGAIN if there is none. */
static int64_t receive_one(struct world *w, struct dgrams *d, unsigned self)
{
	static struct sockaddr_storage from[MOST_PEERS];
	static uint32_t from_len[MOST_PEERS];
	struct peer *p = &d->peer[self];
	uint32_t room = (uint32_t)share(sim_chance(300) ? any_len() : LONGEST);
	bool waits = share(p->limited && sim_chance(500));
	int flags = GNET_MSG_TRUNC | (waits ? 0 : GNET_MSG_DONTWAIT);
	uint64_t start = sim_now();
	int64_t rc;

	if (share(is_first() && sim_chance(200)))
		flags |= GNET_MSG_PEEK;
	if (is_first())
		from_len[self] = sizeof(from[0]);
	__syncthreads();
	rc = receive_by(w, d, self, room, flags, &from[self], &from_len[self]);
	if (is_first())
		sim_note("datagrams: grecvfrom(%x, %u, flags %x) = %lld", p->fd, room, flags,
			 (long long)rc);
	if (is_first() && rc == -ETIMEDOUT && waits && sim_now() - start < 1000 * LIMIT_US)
		fail(p, "grecvfrom, before its time is over", rc);
	if (waits && rc == -ETIMEDOUT)
		rc = -EAGAIN;
	if (is_first() && rc >= 0)
		check(d, self, rc, room, &from[self], from_len[self], flags & GNET_MSG_PEEK);
	else if (rc != -EAGAIN)
		over(w, d, p, "grecvfrom", rc);
	__syncthreads();
	return rc;
}

/* Waits for events, or for nothing to come any more: false. */
static bool wait_events(struct world *w, struct dgrams *d, unsigned self)
{
	struct peer *p = &d->peer[self];
	struct gnet_pollfd f = { .fd = p->fd, .events = GNET_POLLIN };
	bool quiet = share(!d->sending);
	int64_t rc = 0;

	if (p->to_send)
		f.events |= GNET_POLLOUT;
	if (is_first())
		rc = gpoll_thread(w->net, &f, 1, QUIET_NS);
	if (is_first() && rc < 0)
		over(w, d, p, "gpoll", rc);
	if (is_first() && rc > 0 && !w->aborted &&
	    (f.revents & (GNET_POLLERR | GNET_POLLHUP | GNET_POLLNVAL)))
		fail(p, "gpoll", f.revents);
	rc = share(rc);
	if (rc > 0 && share(f.revents & GNET_POLLIN) && receive_one(w, d, self) == -EAGAIN &&
	    is_first())
		fail(p, "grecvfrom after gpoll", -EAGAIN);
	return rc > 0 || (rc == 0 && !quiet);
}

/* ---- a block ------------------------------------------------------------------------------------------------------------- */

static bool open_one(struct world *w, struct dgrams *d, unsigned self)
{
	struct peer *p = &d->peer[self];
	uint64_t turn = 0;
	int64_t rc = gsocket(w->net, w->domain, SOCK_DGRAM, 0);

	if (rc == -EMFILE)
		rc = 0; /* the run has few sockets: this one takes no part */
	if (is_first() && rc < 0)
		over(w, d, p, "gsocket", rc);
	if (rc < 0)
		return false;
	if (is_first())
		p->fd = (int)rc;
	__syncthreads();
	if (rc > 0) {
		rc = gbind(w->net, (int)rc, &p->addr, p->addr_len);
		if (is_first() && rc)
			over(w, d, p, "gbind", rc);
		if (rc)
			return false;
	}
	if (is_first() && !p->fd) {
		d->sending -= p->to_send != 0;
		p->to_send = 0;
	}
	if (is_first() && ++d->ready == d->n)
		gnet_dev_store_release(&d->up, 1);
	while (is_first() && !d->over && !gnet_dev_load_acquire(&d->up)) {
		rc = gnet__spin(w->net, &turn);
		if (rc)
			over(w, d, p, "wait", rc);
	}
	return !share(d->over || !p->fd);
}

/* A socket that is connected, and a limit for waits. */
static void prepare(struct world *w, struct dgrams *d, unsigned self)
{
	struct peer *p = &d->peer[self], *q = &d->peer[share(sim_below(d->n))];
	const int64_t limit[2] = { 0, LIMIT_US };
	int64_t rc = 0;

	if (share(is_first() && sim_chance(300))) {
		rc = gsetsockopt(w->net, p->fd, SOL_SOCKET, SO_RCVTIMEO, limit, sizeof(limit));
		if (is_first())
			p->limited = !rc;
	}
	if (!rc && share(is_first() && q->fd && sim_chance(300))) {
		rc = gsocket(w->net, w->domain, SOCK_DGRAM, 0);
		if (is_first() && rc > 0) {
			p->via = (int)rc;
			p->via_to = (unsigned)(q - d->peer);
		}
		rc = rc == -EMFILE ? 0 : rc;
		if (rc > 0)
			rc = gconnect(w->net, (int)rc, &q->addr, q->addr_len);
	}
	if (rc)
		over(w, d, p, "prepare", rc);
}

void dgram_run(struct world *w, struct dgrams *d, unsigned self)
{
	struct peer *p = &d->peer[self];
	bool goes_on = true;
	int64_t rc;

	if (!open_one(w, d, self))
		return;
	prepare(w, d, self);
	while (goes_on && !share(d->over)) {
		if (share(p->to_send && sim_chance(500)))
			send_one(w, d, self);
		else if (share(sim_chance(500)))
			receive_one(w, d, self);
		else
			goes_on = wait_events(w, d, self);
	}
	rc = gclose(w->net, p->fd);
	if (!rc && share(p->via))
		rc = gclose(w->net, p->via);
	if (is_first() && rc)
		over(w, d, p, "gclose", rc);
}

/* ---- the host's side ----------------------------------------------------------------------------------------------------- */

size_t dgram_size(void)
{
	return sizeof(struct dgrams);
}

unsigned dgram_make(const struct world *w, struct dgrams *d)
{
	unsigned i;

	d->n = sim_between(2, MOST_PEERS);
	for (i = 0; i < d->n; i++) {
		struct peer *p = &d->peer[i];
		struct sockaddr_in *in = (struct sockaddr_in *)&p->addr;
		struct sockaddr_un *un = (struct sockaddr_un *)&p->addr;

		p->to_send = sim_below(40);
		d->sending += p->to_send != 0;
		if (w->domain == AF_INET) {
			in->sin_family = AF_INET;
			in->sin_port = htons((uint16_t)(6000 + i));
			in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
			p->addr_len = sizeof(*in);
		} else {
			un->sun_family = AF_UNIX;
			un->sun_path[1] = (char)('p' + i);
			p->addr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 2);
		}
	}
	return d->n;
}

void dgram_check(const struct world *w, const struct dgrams *d)
{
	unsigned i;

	for (i = 0; i < d->n && !w->abort_after; i++) {
		const struct peer *p = &d->peer[i];
		unsigned dropped = host_dropped((const struct sockaddr *)&p->addr, p->addr_len);

		if (p->fd && p->received + dropped != p->sent_to)
			sim_fail("datagrams: %u were sent to %u, %u received and %u dropped",
				 p->sent_to, i, p->received, dropped);
	}
}
