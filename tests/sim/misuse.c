/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A block that makes any call on any of its sockets, whatever their state, and knows what POSIX says to each. Not instrumented, as
 * program.c.
 */
#include "misuse.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/sys.h"
#include "block.h"
#include "host.h"
#include "sim.h"

#define SOCKETS 5
#define VALUES 4
#define MOST_PENDING 60 /* bytes that no call has read yet: they fit in any buffer */

enum state { GONE, NEW, BOUND, LISTENS, CONNECTED };

struct msock {
	int fd;
	enum state state;
	bool nonblock, shut;
	bool refused;       /* a connect was: Linux has that at an end then */
	uint64_t limit;     /* SO_RCVTIMEO, ns; 0: none */
	struct msock *peer; /* NULL: closed */
	bool lost;          /* the peer was closed with bytes unread, or after a send of this one */
	bool end;           /* the peer has ended its direction */
	unsigned pending;   /* bytes to be read here */
	int value[VALUES];  /* of options that only keep what they are given */
	int64_t send_limit[2];
	struct linger linger; /* never in force: a close would wait for its own block */
};

/* Of one block, in thread 0's hands. */
struct misuse {
	struct world *w;
	struct msock s[SOCKETS];
	unsigned names;
	int over; /* all waits have ended */
	/* Clients on the host of the first listener. */
	unsigned storm, clients; /* thread, how many it makes */
	struct sockaddr_storage at;
	uint32_t at_len;
	bool stormed;
};

/* Thread 0: the result must be `a` or `b`. */
static void expect(struct misuse *m, const struct msock *s, const char *call, int64_t rc, int64_t a,
		   int64_t b)
{
	if (!is_first())
		return;
	sim_note("misuse: %s(%x) in state %d = %lld", call, s->fd, s->state, (long long)rc);
	if (m->over || wait_ended(m->w, rc))
		m->over = 1;
	else if (rc != a && rc != b)
		sim_fail("misuse: %s(%x) in state %d: %lld, should be %lld or %lld", call, s->fd,
			 s->state, (long long)rc, (long long)a, (long long)b);
}

static void expect_one(struct misuse *m, const struct msock *s, const char *call, int64_t rc,
		       int64_t a)
{
	expect(m, s, call, rc, a, a);
}

/* What a call on a socket in this state says; 0 if it is one that can do it. */
static int64_t unless(const struct msock *s, enum state right, int64_t wrong)
{
	return s->state == GONE ? -EBADF : s->state == right ? 0 : wrong;
}

static socklen_t any_name(struct misuse *m, struct sockaddr_storage *a, unsigned port)
{
	struct sockaddr_in *in = (struct sockaddr_in *)a;
	struct sockaddr_un *un = (struct sockaddr_un *)a;

	memset(a, 0, sizeof(*a));
	if (m->w->domain == AF_INET) {
		in->sin_family = AF_INET;
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		in->sin_port = htons((uint16_t)port);
		return sizeof(*in);
	}
	un->sun_family = AF_UNIX;
	snprintf(un->sun_path + 1, 20, "misuse%u", port ? 0 : ++m->names);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(un->sun_path + 1));
}

/* ---- one call each ------------------------------------------------------------------------------------------------------- */

static void do_socket(struct misuse *m, struct msock *s)
{
	gnet_t *n = m->w->net;
	int64_t rc;

	if (share(s->state != GONE)) {
		rc = gsocket(n, 3, SOCK_STREAM, 0);
		expect_one(m, s, "gsocket of family 3", rc, -EAFNOSUPPORT);
		rc = gsocket(n, m->w->domain, 4, 0);
		expect(m, s, "gsocket of type 4", rc, -ESOCKTNOSUPPORT, -EPROTONOSUPPORT);
		return;
	}
	rc = gsocket(n, m->w->domain, SOCK_STREAM, 0);
	if (!is_first())
		return;
	if (rc < 0) {
		expect_one(m, s, "gsocket", rc, -EMFILE);
		return;
	}
	*s = (struct msock){ .fd = (int)rc, .state = NEW };
	sim_note("misuse: gsocket = %x", s->fd);
}

static void do_bind(struct misuse *m, struct msock *s)
{
	static struct sockaddr_storage a;
	socklen_t len = (socklen_t)share(is_first() ? any_name(m, &a, 0) : 0);
	int64_t rc = gbind(m->w->net, s->fd, &a, len);

	expect_one(m, s, "gbind", rc, unless(s, NEW, -EINVAL));
	if (is_first() && !rc)
		s->state = BOUND;
	__syncthreads();
	rc = gbind(m->w->net, s->fd, &a, 1);
	expect_one(m, s, "gbind of 1 byte", rc, unless(s, GONE, -EINVAL));
}

static void do_listen(struct misuse *m, struct msock *s)
{
	int64_t rc = glisten(m->w->net, s->fd, 3), want = 0;

	if (s->state == GONE)
		want = -EBADF;
	else if (s->state == CONNECTED || (s->state == NEW && m->w->domain == AF_UNIX))
		want = -EINVAL;
	expect_one(m, s, "glisten", rc, want);
	if (is_first() && !rc)
		s->state = LISTENS;
	__syncthreads();
}

/* A wait that a limit or a flag ends: which, and when. */
static void expect_timeout(struct misuse *m, const struct msock *s, const char *call, int64_t rc,
			   uint64_t start, bool dontwait)
{
	bool at_once = dontwait || s->nonblock;

	expect_one(m, s, call, rc, at_once ? -EAGAIN : -ETIMEDOUT);
	if (is_first() && !at_once && !m->over && sim_now() - start < s->limit)
		sim_fail("misuse: %s(%x) with a limit of %llu ns ends after %llu", call, s->fd,
			 (unsigned long long)s->limit, (unsigned long long)(sim_now() - start));
}

/* A wait without a limit would not end. */
static bool may_wait(const struct msock *s)
{
	return share(s->limit && sim_chance(500));
}

static void do_accept(struct misuse *m, struct msock *s)
{
	uint64_t start = sim_now();
	bool waits = may_wait(s);
	int64_t rc = gaccept4(m->w->net, s->fd, NULL, NULL, waits ? 0 : GNET_MSG_DONTWAIT);

	if (s->state == LISTENS && m->stormed && rc >= 0) {
		rc = gclose(m->w->net, (int)rc);
		expect_one(m, s, "gclose of a client", rc, 0);
	} else if (s->state == LISTENS && m->stormed) {
		expect(m, s, "gaccept4", rc, -EAGAIN, -ETIMEDOUT);
	} else if (s->state == LISTENS)
		expect_timeout(m, s, "gaccept4", rc, start, !waits);
	else
		expect_one(m, s, "gaccept4", rc, unless(s, LISTENS, -EINVAL));
}

static void do_connect(struct misuse *m, struct msock *s)
{
	static struct sockaddr_storage a;
	socklen_t len = (socklen_t)share(is_first() ? any_name(m, &a, 9) : 0);
	int64_t rc = gconnect(m->w->net, s->fd, &a, len);
	struct gnet_pollfd p = { .fd = s->fd, .events = GNET_POLLOUT };
	int err = 0;
	uint32_t n = sizeof(err);

	/* It tells of the connection's end what no call has told yet. */
	if (s->state == CONNECTED && (s->lost || !s->peer) && (rc == -EPIPE || rc == -ECONNRESET))
		return;
	if (s->state != NEW && s->state != BOUND) {
		expect(m, s, "gconnect", rc, s->state == GONE ? -EBADF : -EISCONN,
		       s->state == LISTENS ? -EINVAL : -EISCONN);
		return;
	}
	expect(m, s, "gconnect to nobody", rc, -ECONNREFUSED,
	       s->nonblock ? -EINPROGRESS : -ECONNREFUSED);
	if (is_first())
		s->refused = true;
	/* An address is bound by the attempt, if there was none. */
	if (is_first() && m->w->domain == AF_INET)
		s->state = BOUND;
	if (rc != -EINPROGRESS)
		return;
	if (is_first() && (m->over |= gpoll_thread(m->w->net, &p, 1, -1) < 0, !m->over) &&
	    !(p.revents & GNET_POLLERR))
		sim_fail("misuse: a refused connect's events are %x", p.revents);
	__syncthreads();
	rc = ggetsockopt(m->w->net, s->fd, SOL_SOCKET, SO_ERROR, &err, &n);
	expect_one(m, s, "SO_ERROR", rc ? rc : -share(err), -ECONNREFUSED);
}

static void do_receive(struct misuse *m, struct msock *s)
{
	static uint8_t buf[MOST_PENDING];
	uint64_t start = sim_now();
	bool waits = may_wait(s) || share(s->pending && !s->nonblock);
	int64_t rc = grecv(m->w->net, s->fd, buf, sizeof(buf), waits ? 0 : GNET_MSG_DONTWAIT);

	if (s->state != CONNECTED) {
		expect_one(m, s, "grecv", rc, unless(s, CONNECTED, -ENOTCONN));
	} else if (rc > 0 && rc <= s->pending) {
		if (is_first())
			s->pending -= (unsigned)rc;
	} else if (s->lost) {
		/* The news may be on its way. */
		if (is_first() && rc && rc != -ECONNRESET && rc != -EAGAIN && rc != -EPIPE &&
		    !(waits && rc == -ETIMEDOUT))
			expect(m, s, "grecv", rc, 0, -ECONNRESET);
	} else if (s->pending) {
		expect(m, s, "grecv of what may be on its way", rc, -EAGAIN,
		       waits ? -ETIMEDOUT : -EAGAIN);
	} else if (s->end) {
		/* The end may be on its way. */
		if (rc)
			expect(m, s, "grecv at the end", rc, -EAGAIN, waits ? -ETIMEDOUT : -EAGAIN);
	} else {
		expect_timeout(m, s, "grecv", rc, start, !waits);
	}
	__syncthreads();
}

static void do_send(struct misuse *m, struct msock *s)
{
	static uint8_t buf[MOST_PENDING];
	unsigned room = s->peer ? MOST_PENDING - s->peer->pending : 1;
	uint64_t n = (uint64_t)share(room ? sim_below(room + 1) : 0);
	int64_t rc;

	if (is_first())
		memset(buf, 0xee, sizeof(buf)); /* not what says which connection it is */
	__syncthreads();
	rc = gsend(m->w->net, s->fd, buf, n, 0);
	if (s->state != CONNECTED) {
		expect_one(m, s, "gsend", rc, unless(s, CONNECTED, -ENOTCONN));
	} else if (s->shut) {
		expect_one(m, s, "gsend after its shutdown", rc, -EPIPE);
	} else if (!s->peer) {
		if (rc != -EPIPE && rc != -EAGAIN)
			expect(m, s, "gsend to nobody", rc, (int64_t)n, -ECONNRESET);
		if (is_first())
			s->lost = true;
	} else {
		expect_one(m, s, "gsend", rc, (int64_t)n);
		if (is_first())
			s->peer->pending += (unsigned)n;
	}
	__syncthreads();
	rc = gsend(m->w->net, s->fd, buf, 1, MSG_OOB);
	expect(m, s, "gsend of MSG_OOB", rc, -EOPNOTSUPP, -EBADF);
}

static void do_shutdown(struct misuse *m, struct msock *s)
{
	int64_t rc = gshutdown(m->w->net, s->fd, 3);

	expect(m, s, "gshutdown, how 3", rc, -EINVAL, -EINVAL);
	rc = gshutdown(m->w->net, s->fd, SHUT_WR);
	expect(m, s, "gshutdown", rc, unless(s, CONNECTED, -ENOTCONN),
	       s->lost || !s->peer ? -ENOTCONN : unless(s, CONNECTED, -ENOTCONN));
	if (is_first() && !rc) {
		s->shut = true;
		if (s->peer)
			s->peer->end = true;
	}
	__syncthreads();
}

static void do_poll(struct misuse *m, struct msock *s)
{
	struct gnet_pollfd p = { .fd = s->fd, .events = GNET_POLLIN | GNET_POLLOUT };
	short must = 0, may = 0;

	if (is_first()) {
		int rc = gpoll_thread(m->w->net, &p, 1, 0);

		if (rc < 0) {
			expect_one(m, s, "gpoll", rc, -ECANCELED);
		} else {
			if (s->state == GONE)
				must = GNET_POLLNVAL;
			else if (s->state == NEW || s->state == BOUND)
				must = GNET_POLLOUT | GNET_POLLHUP;
			else if (s->state == CONNECTED)
				must = GNET_POLLOUT;
			may = must;
			if (s->refused || (m->stormed && s->state == LISTENS))
				may |= GNET_POLLIN;
			if (s->state == CONNECTED && (s->pending || s->end || s->lost))
				may |= GNET_POLLIN;
			if (s->state == CONNECTED && (s->shut || s->lost || s->end))
				may |= GNET_POLLHUP;
			if (s->state == CONNECTED && (s->lost || !s->peer))
				may |= GNET_POLLERR | GNET_POLLHUP | GNET_POLLIN;
			sim_note("misuse: gpoll(%x) = %x", s->fd, p.revents);
			if ((p.revents & must) != must || (p.revents & ~may))
				sim_fail(
					"misuse: gpoll(%x) in state %d: events %x, should be %x, may be %x",
					s->fd, s->state, p.revents, must, may);
		}
	}
	__syncthreads();
}

static void do_names(struct misuse *m, struct msock *s)
{
	static struct sockaddr_storage a;
	uint32_t len = sizeof(a);
	int64_t rc = ggetsockname(m->w->net, s->fd, &a, &len);

	expect_one(m, s, "ggetsockname", rc, s->state == GONE ? -EBADF : 0);
	len = sizeof(a);
	rc = ggetpeername(m->w->net, s->fd, &a, &len);
	if (s->state == CONNECTED && (s->lost || !s->peer))
		expect(m, s, "ggetpeername of one that is gone", rc, 0, -ENOTCONN);
	else
		expect_one(m, s, "ggetpeername", rc, unless(s, CONNECTED, -ENOTCONN));
}

static void do_returns(struct misuse *m, struct msock *s)
{
	int64_t rc = grecv_return(m->w->net, s->fd, 0);

	expect_one(m, s, "grecv_return", rc, s->state == GONE ? -EBADF : -EINVAL);
	rc = gsend_commit(m->w->net, s->fd, 0);
	expect_one(m, s, "gsend_commit", rc, s->state == GONE ? -EBADF : -EINVAL);
}

static void do_options(struct misuse *m, struct msock *s)
{
	int64_t t[2] = { 0, share(is_first() ? (int64_t)sim_below(3) * 700 : 0) }, rc;
	int64_t alive = s->state == GONE ? -EBADF : 0;
	bool nonblock = share(is_first() && sim_chance(500));

	rc = gsetsockopt(m->w->net, s->fd, SOL_SOCKET, SO_RCVTIMEO, t, sizeof(t));
	expect_one(m, s, "SO_RCVTIMEO", rc, alive);
	if (is_first() && !rc)
		s->limit = (uint64_t)t[1] * 1000;
	__syncthreads();
	t[1] = 1000000;
	rc = gsetsockopt(m->w->net, s->fd, SOL_SOCKET, SO_RCVTIMEO, t, sizeof(t));
	expect_one(m, s, "SO_RCVTIMEO of a second in microseconds", rc, alive ? alive : -EDOM);
	rc = gsetsockopt(m->w->net, s->fd, SOL_SOCKET, 9999, t, sizeof(t));
	expect_one(m, s, "option 9999", rc, alive ? alive : -ENOPROTOOPT);
	rc = gfcntl(m->w->net, s->fd, GNET_F_SETFL, nonblock ? GNET_O_NONBLOCK : 0);
	expect_one(m, s, "F_SETFL", rc, alive);
	if (is_first() && !rc)
		s->nonblock = nonblock;
	__syncthreads();
	rc = gfcntl(m->w->net, s->fd, GNET_F_GETFL, 0);
	expect_one(m, s, "F_GETFL", rc,
		   alive ? alive : GNET_O_RDWR | (nonblock ? GNET_O_NONBLOCK : 0));
}

/* An option's value as it was set last, in as much room as there is. Thread 0 knows what that is. */
static void expect_value(struct misuse *m, const struct msock *s, int level, int name,
			 const void *must, uint32_t len)
{
	static uint8_t v[16];
	uint32_t room = (uint32_t)share(sim_chance(300) ? sim_below(len) : len), n = room;
	int64_t rc;

	__syncthreads();
	rc = ggetsockopt(m->w->net, s->fd, level, name, v, &n);
	expect_one(m, s, "ggetsockopt", rc, s->state == GONE ? -EBADF : 0);
	/* The answer to what set it may not have been waited for. */
	if (is_first() && !rc && !m->over && (n != room || memcmp(v, must, n)))
		sim_fail("misuse: option %d, %d of %x: %u bytes, begins with %u", level, name,
			 s->fd, n, v[0]);
	__syncthreads();
}

static void do_values(struct misuse *m, struct msock *s)
{
	static const int kept[VALUES][2] = {
		{ SOL_SOCKET, SO_KEEPALIVE },
		{ SOL_SOCKET, SO_RCVBUF },
		{ SOL_SOCKET, SO_PRIORITY },
		{ SOL_SOCKET, SO_DONTROUTE },
	};
	unsigned i = (unsigned)share(sim_below(VALUES));
	int value = (int)share(sim_below(100000));
	int64_t limit[2] = { value, value * INT64_C(7) }, rc, alive = s->state == GONE ? -EBADF : 0;
	struct linger none = { 0, value % 1000 };

	rc = gsetsockopt(m->w->net, s->fd, kept[i][0], kept[i][1], &value, sizeof(value));
	expect_one(m, s, "gsetsockopt", rc, alive);
	if (is_first() && !rc)
		s->value[i] = value;
	rc = gsetsockopt(m->w->net, s->fd, SOL_SOCKET, SO_SNDTIMEO, limit, sizeof(limit));
	expect_one(m, s, "SO_SNDTIMEO", rc, alive);
	if (is_first() && !rc)
		memcpy(s->send_limit, limit, sizeof(limit));
	rc = gsetsockopt(m->w->net, s->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	expect_one(m, s, "SO_LINGER", rc, alive);
	if (is_first() && !rc)
		s->linger = none;
	i = (unsigned)share(sim_below(VALUES));
	expect_value(m, s, kept[i][0], kept[i][1], &s->value[i], sizeof(s->value[i]));
	expect_value(m, s, SOL_SOCKET, SO_SNDTIMEO, s->send_limit, sizeof(s->send_limit));
	limit[0] = (int64_t)(s->limit / 1000000000u);
	limit[1] = (int64_t)(s->limit % 1000000000u / 1000);
	expect_value(m, s, SOL_SOCKET, SO_RCVTIMEO, limit, sizeof(limit));
	expect_value(m, s, SOL_SOCKET, SO_LINGER, &s->linger, sizeof(s->linger));
}

static void do_close(struct misuse *m, struct msock *s)
{
	int64_t rc = gclose(m->w->net, s->fd);

	expect_one(m, s, "gclose", rc, s->state == GONE ? -EBADF : 0);
	if (is_first()) {
		if (s->peer) {
			s->peer->lost |= s->pending || !s->peer->shut;
			s->peer->end = true;
			s->peer->peer = NULL;
		}
		s->peer = NULL;
		s->state = GONE;
	}
	__syncthreads();
}

/* A connection between two of the sockets, through a third. */
static void do_pair(struct misuse *m, struct msock *s)
{
	static struct sockaddr_storage a;
	struct msock *l = s, *c = NULL, *n = NULL;
	uint32_t len = sizeof(a);
	unsigned i;
	int64_t rc;

	for (i = 0; i < SOCKETS; i++) {
		if (m->s[i].state == NEW)
			c = &m->s[i];
		if (m->s[i].state == GONE)
			n = &m->s[i];
	}
	if (share(l->state != LISTENS || !c || !n || m->stormed))
		return;
	c = &m->s[share(c - m->s)];
	n = &m->s[share(n - m->s)];
	if (ggetsockname(m->w->net, l->fd, &a, &len) < 0)
		return;
	rc = gfcntl(m->w->net, c->fd, GNET_F_SETFL, 0);
	if (!rc)
		rc = gconnect(m->w->net, c->fd, &a, len);
	expect(m, c, "gconnect to its own listener", rc, 0, 0);
	if (rc)
		return;
	if (is_first())
		c->nonblock = l->nonblock = false;
	gfcntl(m->w->net, l->fd, GNET_F_SETFL, 0);
	do
		rc = gaccept(m->w->net, l->fd, NULL, NULL);
	while (rc == -ETIMEDOUT);
	if (is_first() && rc < 0)
		expect_one(m, l, "gaccept", rc, -ECANCELED);
	if (is_first() && rc >= 0) {
		*n = (struct msock){ .fd = (int)rc, .state = CONNECTED, .peer = c };
		c->state = CONNECTED;
		c->peer = n;
	}
	__syncthreads();
}

/* ---- all of them ---------------------------------------------------------------------------------------------------------- */

/* More clients than a listener's ring takes, and it may be closed at any time. */
static void *storm(void *arg)
{
	struct misuse *m = arg;
	int fd[30], rc = 0;
	unsigned n, i;
	char c;

	for (n = 0; n < m->clients && !rc; n++) {
		fd[n] = sys.socket(m->w->domain, SOCK_STREAM, 0);
		rc = host_connect(fd[n], (struct sockaddr *)&m->at, m->at_len);
	}
	for (i = 0; i < n; i++) {
		while (host_recv(fd[i], &c, 1) > 0) {
		}
		sys.close(fd[i]);
	}
	return NULL;
}

static void begin_storm(struct misuse *m)
{
	uint32_t len = sizeof(m->at);

	if (share(m->s[0].state != LISTENS) ||
	    ggetsockname(m->w->net, m->s[0].fd, &m->at, &len) < 0)
		return;
	if (is_first()) {
		m->at_len = len;
		m->stormed = true;
		m->clients = sim_between(1, 30);
		m->storm = sim_spawn("storm", storm, m);
	}
	__syncthreads();
}

void misuse_end(struct misuse *m)
{
	if (m->storm)
		sim_join(m->storm);
}

/* So that there is something to begin with. */
static void prepare(struct misuse *m)
{
	do_socket(m, &m->s[0]);
	do_bind(m, &m->s[0]);
	do_listen(m, &m->s[0]);
	if (share(is_first() && sim_chance(250))) {
		begin_storm(m);
		return;
	}
	do_socket(m, &m->s[1]);
	do_pair(m, &m->s[0]);
}

void misuse_run(struct world *w, struct misuse *m)
{
	static void (*const calls[])(struct misuse * m, struct msock * s) = {
		do_socket,  do_socket, do_socket,  do_bind,    do_listen,   do_accept, do_connect,
		do_receive, do_send,   do_pair,    do_pair,    do_shutdown, do_poll,   do_poll,
		do_names,   do_send,   do_receive, do_returns, do_options,  do_close,  do_values,
	};
	unsigned steps = (unsigned)share(is_first() ? sim_between(10, 60) : 0), i;

	if (is_first())
		m->w = w;
	__syncthreads();
	if (share(is_first() && sim_chance(800)))
		prepare(m);
	for (i = 0; i < steps && !share(m->over); i++) {
		struct msock *s = &m->s[share(sim_below(SOCKETS))];

		/* What is open is of more interest. */
		if (share(s->state == GONE && sim_chance(700)))
			do_socket(m, s);
		if (share(m->stormed && sim_chance(400)))
			do_accept(m, &m->s[0]);
		s = &m->s[share(sim_below(SOCKETS))];
		calls[share(sim_below(sizeof(calls) / sizeof(calls[0])))](m, s);
	}
	for (i = 0; i < SOCKETS && !share(m->over); i++)
		do_close(m, &m->s[i]);
}

size_t misuse_size(void)
{
	return sizeof(struct misuse);
}
