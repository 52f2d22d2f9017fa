/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_impl.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define FIRST_FD 100
#define EPHEMERAL 40000
#define SYN_RETRY_NS 1000000u

struct host_params host_params;
struct file host_files[HOST_FILES];
int host_next_fd;
static int next_port;

/* ---- descriptors -------------------------------------------------------------------------------------------------------- */

struct file *host_file(int fd)
{
	struct file *f =
		fd >= FIRST_FD && fd < FIRST_FD + HOST_FILES ? &host_files[fd - FIRST_FD] : NULL;

	return f && f->kind != K_FREE && !f->closed ? f : NULL;
}

struct file *host_sock(int fd)
{
	struct file *f = host_file(fd);

	return f && f->kind == K_SOCK ? f : NULL;
}

/* Numbers are not used twice, so that a descriptor that was closed names nothing. */
struct file *host_new(enum kind kind)
{
	struct file *f;

	if (host_next_fd == HOST_FILES)
		sim_fail("the run opens more than %d descriptors", HOST_FILES);
	f = &host_files[host_next_fd];
	f->kind = kind;
	f->fd = FIRST_FD + host_next_fd++;
	return f;
}

size_t host_buffer(void)
{
	return host_params.buffer;
}

unsigned host_open_files(void)
{
	unsigned n = 0;
	int i;

	for (i = 0; i < host_next_fd; i++)
		n += !host_files[i].closed;
	return n;
}

/* ---- names -------------------------------------------------------------------------------------------------------------- */

static bool same_name(const struct name *a, const struct name *b)
{
	if (!a->len || !b->len || a->a.sa.sa_family != b->a.sa.sa_family)
		return false;
	if (a->a.sa.sa_family == AF_INET)
		return a->a.in.sin_port == b->a.in.sin_port;
	return a->len == b->len && !memcmp(&a->a, &b->a, a->len);
}

static struct file *bound_to(const struct name *n, bool listening, bool dgram)
{
	int i;

	for (i = 0; i < host_next_fd; i++) {
		struct file *f = &host_files[i];

		if (f->kind == K_SOCK && !f->closed && f->dgram == dgram &&
		    same_name(&f->local, n) && (dgram || !f->remote.len) &&
		    (!listening || f->state == S_LISTEN))
			return f;
	}
	return NULL;
}

static int take_name(struct name *out, const struct file *f, const struct sockaddr *a, socklen_t n)
{
	if (n < sizeof(a->sa_family) || n > sizeof(out->a))
		return -EINVAL;
	if (a->sa_family != f->domain)
		return -EAFNOSUPPORT;
	if (f->domain == AF_INET && n < sizeof(struct sockaddr_in))
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	memcpy(&out->a, a, n);
	out->len = f->domain == AF_INET ? (socklen_t)sizeof(struct sockaddr_in) : n;
	return 0;
}

static void auto_name(struct file *f)
{
	f->local.len = sizeof(sa_family_t);
	f->local.a.sa.sa_family = (sa_family_t)f->domain;
	if (f->domain != AF_INET)
		return;
	f->local.len = sizeof(struct sockaddr_in);
	f->local.a.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	f->local.a.in.sin_port = htons((uint16_t)(EPHEMERAL + next_port++));
}

static int give_name(const struct name *n, struct sockaddr *a, socklen_t *len)
{
	memcpy(a, &n->a, n->len < *len ? n->len : *len);
	*len = n->len;
	return 0;
}

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

static int h_socket(int domain, int type, int protocol)
{
	struct file *f;

	(void)protocol;
	sim_point();
	if (domain != AF_INET && domain != AF_UNIX)
		return -EAFNOSUPPORT;
	if ((type & 0xf) != SOCK_STREAM && (type & 0xf) != SOCK_DGRAM)
		return -ESOCKTNOSUPPORT;
	f = host_new(K_SOCK);
	f->domain = domain;
	f->dgram = (type & 0xf) == SOCK_DGRAM;
	sim_note("host: socket %d", f->fd);
	return f->fd;
}

static int h_bind(int fd, const struct sockaddr *a, socklen_t n)
{
	struct file *f = host_sock(fd), *other;
	struct name name;
	int rc = f ? take_name(&name, f, a, n) : -EBADF;

	sim_point();
	if (rc)
		return rc;
	if (f->local.len)
		return -EINVAL;
	if (f->domain == AF_INET && !name.a.in.sin_port) {
		auto_name(f);
		return 0;
	}
	other = bound_to(&name, false, f->dgram);
	if (other && (f->domain == AF_UNIX || other->state == S_LISTEN || !f->reuse))
		return -EADDRINUSE;
	f->local = name;
	return 0;
}

static int h_listen(int fd, int backlog)
{
	struct file *f = host_sock(fd);

	sim_point();
	if (!f)
		return -EBADF;
	if (f->state != S_NEW && f->state != S_LISTEN)
		return -EINVAL;
	if (!f->local.len && f->domain == AF_UNIX)
		return -EINVAL;
	if (!f->local.len)
		auto_name(f);
	if (f->state == S_NEW && bound_to(&f->local, true, false))
		return -EADDRINUSE;
	f->state = S_LISTEN;
	f->backlog = backlog < 0 ? 0 : backlog > 60 ? 60 : (unsigned)backlog;
	return 0;
}

/* The listener's side of a new connection. */
static void establish(struct file *client, struct file *listener)
{
	struct file *f = host_new(K_SOCK);

	f->domain = client->domain;
	f->state = client->state = S_CONNECTED;
	f->local = listener->local;
	f->remote = client->local;
	client->remote = listener->local;
	f->n_hello = sizeof(f->hello) + 1; /* says none */
	f->peer = client;
	client->peer = f;
	/* Of nobody until it is accepted. */
	listener->queued[listener->n_queued++] = f;
	host_edge(listener);
}

/* A SYN arrives. */
static void syn(void *arg)
{
	struct file *f = arg, *l;

	if (f->closed || f->state != S_CONNECTING)
		return;
	l = bound_to(&f->remote, true, false);
	if (!l) {
		f->state = S_NEW;
		f->remote.len = 0;
		f->err = ECONNREFUSED;
		f->refused = true;
	} else if (l->n_queued > l->backlog) {
		sim_timer(&f->syn, sim_now() + SYN_RETRY_NS, syn, f);
		return;
	} else {
		establish(f, l);
	}
	host_edge(f);
}

static int connect_unix(struct file *f, const struct name *name)
{
	struct file *l = bound_to(name, true, false);

	if (!l)
		return bound_to(name, false, false) || name->a.un.sun_path[0] == 0 ? -ECONNREFUSED
										   : -ENOENT;
	if (l->n_queued > l->backlog)
		return -EAGAIN;
	if (!f->local.len)
		auto_name(f);
	establish(f, l);
	host_edge(f);
	return 0;
}

static int h_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	struct file *f = host_sock(fd);
	struct name name;
	int rc = f ? take_name(&name, f, a, n) : -EBADF;

	sim_point();
	if (rc)
		return rc;
	if (f->state == S_CONNECTED || f->state == S_LISTEN)
		return -EISCONN;
	if (f->state == S_CONNECTING)
		return -EALREADY;
	if (f->state == S_ENDED)
		return -EINVAL;
	if (f->refused) {
		f->refused = false;
		return f->err ? -f->err : -ECONNABORTED;
	}
	f->err = 0;
	if (f->domain == AF_UNIX && !f->dgram)
		return connect_unix(f, &name);
	if (!f->local.len)
		auto_name(f);
	f->remote = name;
	if (f->dgram)
		return 0;
	f->state = S_CONNECTING;
	if (sim_chance(host_params.faults.at_once)) {
		syn(f);
		if (f->state == S_CONNECTED)
			return 0;
		if (f->refused) {
			f->refused = false;
			f->err = 0;
			return -ECONNREFUSED;
		}
		return -EINPROGRESS;
	}
	sim_timer(&f->syn,
		  sim_now() + 1 + (host_params.delay_ns ? sim_random() % host_params.delay_ns : 0),
		  syn, f);
	return sim_chance(host_params.faults.eintr) ? -EINTR : -EINPROGRESS;
}

static int h_accept(int fd, struct sockaddr *a, socklen_t *n)
{
	struct file *f = host_sock(fd), *c;

	sim_point();
	if (!f)
		return -EBADF;
	if (f->state != S_LISTEN)
		return -EINVAL;
	if (!f->n_queued)
		return -EAGAIN;
	if (sim_chance(host_params.faults.eintr))
		return -EINTR;
	if (sim_chance(host_params.faults.aborted))
		return -ECONNABORTED;
	if (sim_chance(host_params.faults.emfile)) {
		sim_note("fault: accept: EMFILE");
		return -EMFILE;
	}
	c = f->queued[0];
	memmove(f->queued, f->queued + 1, --f->n_queued * sizeof(f->queued[0]));
	if (a)
		give_name(&c->remote, a, n);
	sim_note("host: accept %d on %d", c->fd, fd);
	return c->fd;
}

unsigned host_dropped(const struct sockaddr *a, socklen_t n)
{
	unsigned dropped = 0;
	struct name name = { .len = n };
	int i;

	memcpy(&name.a, a, n);
	for (i = 0; i < host_next_fd; i++) {
		if (host_files[i].dgram && same_name(&host_files[i].local, &name))
			dropped += host_files[i].dropped;
	}
	return dropped;
}

static int io_fault(void);

static ssize_t send_dgram(struct file *f, const struct msghdr *m)
{
	struct name to = { 0 };
	struct packet *p;
	struct file *t;
	size_t n = 0, i;
	int rc = io_fault();

	if (!rc && f->err) {
		rc = -f->err;
		f->err = 0;
	}
	if (!rc && !m->msg_name && !f->remote.len)
		return -EDESTADDRREQ;
	if (!rc && !m->msg_name)
		to = f->remote;
	else if (!rc)
		rc = take_name(&to, f, m->msg_name, m->msg_namelen);
	if (rc)
		return rc;
	if (!f->local.len)
		auto_name(f);
	t = bound_to(&to, false, true);
	if (!t)
		return f->domain == AF_UNIX ? -ECONNREFUSED : 0;
	if (f->domain == AF_UNIX && t->n_dgrams + t->flight >= HOST_DGRAMS)
		return -EAGAIN;
	for (i = 0; i < m->msg_iovlen; i++)
		n += m->msg_iov[i].iov_len;
	p = malloc(sizeof(*p) + n);
	if (!p)
		sim_fail("no memory for a datagram");
	*p = (struct packet){ .to = t, .what = P_DGRAM, .from = f->local };
	if (f->domain == AF_UNIX && f->local.len == sizeof(sa_family_t))
		p->from.len = 0; /* it has no name */
	for (i = 0; i < m->msg_iovlen; i++) {
		memcpy(p->data + p->n, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
		p->n += m->msg_iov[i].iov_len;
	}
	t->flight++;
	host_on_its_way(f, p);
	return (ssize_t)n;
}

static ssize_t receive_dgram(struct file *f, struct msghdr *m, int flags)
{
	struct packet *p = f->first;
	size_t at = 0, i;
	ssize_t n;
	int rc = io_fault();

	if (!rc && f->err) {
		rc = -f->err;
		f->err = 0;
	}
	if (rc)
		return rc;
	if (!p) {
		f->drained = true;
		return -EAGAIN;
	}
	for (i = 0; i < m->msg_iovlen && at < p->n; i++) {
		size_t some = m->msg_iov[i].iov_len;

		some = some < p->n - at ? some : p->n - at;
		memcpy(m->msg_iov[i].iov_base, p->data + at, some);
		at += some;
	}
	if (m->msg_name)
		give_name(&p->from, m->msg_name, &m->msg_namelen);
	n = (ssize_t)(flags & MSG_TRUNC ? p->n : at);
	if (flags & MSG_PEEK)
		return n;
	f->first = p->next;
	f->n_dgrams--;
	free(p);
	return n;
}

/* At most n, and at least 1. */
static size_t some_of(size_t n)
{
	return n > 1 && sim_chance(host_params.faults.short_io) ? 1 + sim_below((uint32_t)n - 1)
								: n;
}

static int io_fault(void)
{
	if (sim_chance(host_params.faults.eintr))
		return -EINTR;
	if (sim_chance(host_params.faults.enobufs))
		return sim_chance(500) ? -ENOBUFS : -ENOMEM;
	return 0;
}

/* May this socket send? */
static int send_state(struct file *f)
{
	int err = f->err;

	if (err) {
		f->err = 0;
		return -err;
	}
	if (f->state == S_NEW || f->state == S_CONNECTING || f->state == S_LISTEN)
		return f->domain == AF_UNIX || f->state == S_CONNECTING ? -ENOTCONN : -EPIPE;
	if (f->shut_wr || f->state == S_ENDED)
		return -EPIPE;
	if (f->domain == AF_UNIX && f->peer && (f->peer->closed || f->peer->shut_rd))
		return -EPIPE;
	return 0;
}

static ssize_t send_some(int fd, const struct msghdr *m)
{
	struct file *f = host_sock(fd);
	size_t room, i, sent = 0;
	int rc;

	if (!f)
		return -EBADF;
	rc = io_fault();
	if (!rc)
		rc = send_state(f);
	if (rc)
		return rc;
	room = host_space(f);
	if (!room) {
		f->no_space = true;
		return -EAGAIN;
	}
	room = some_of(room);
	for (i = 0; i < m->msg_iovlen && room; i++) {
		size_t n = m->msg_iov[i].iov_len < room ? m->msg_iov[i].iov_len : room;

		host_send_packet(f, P_DATA, m->msg_iov[i].iov_base, n);
		room -= n;
		sent += n;
	}
	return (ssize_t)sent;
}

static ssize_t h_sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct file *f = host_sock(fd);
	ssize_t rc;

	(void)flags;
	sim_point();
	rc = f && f->dgram ? send_dgram(f, m) : send_some(fd, m);
	sim_note("host: sendmsg %d = %zd", fd, rc);
	return rc;
}

static ssize_t read_rx(struct file *f, const struct iovec *v, size_t n_iov)
{
	size_t left = some_of(f->rx_len), got = 0, i;

	for (i = 0; i < n_iov && left; i++) {
		size_t n = v[i].iov_len < left ? v[i].iov_len : left;

		memcpy(v[i].iov_base, f->rx + got, n);
		got += n;
		left -= n;
	}
	memmove(f->rx, f->rx + got, f->rx_len - got);
	f->rx_len -= got;
	host_room_again(f);
	return (ssize_t)got;
}

static ssize_t receive_some(int fd, struct msghdr *m)
{
	struct file *f = host_sock(fd);
	int rc;

	if (!f)
		return -EBADF;
	rc = io_fault();
	if (rc)
		return rc;
	if (f->state == S_NEW || f->state == S_LISTEN || f->state == S_CONNECTING)
		return f->state == S_CONNECTING ? -EAGAIN : -ENOTCONN;
	if (f->rx_len)
		return read_rx(f, m->msg_iov, m->msg_iovlen);
	if (f->err) {
		rc = -f->err;
		f->err = 0;
		return rc;
	}
	if (f->fin || f->shut_rd || f->state == S_ENDED)
		return 0;
	f->drained = true;
	return -EAGAIN;
}

static ssize_t h_recvmsg(int fd, struct msghdr *m, int flags)
{
	struct file *f = host_sock(fd);
	ssize_t rc;

	sim_point();
	rc = f && f->dgram ? receive_dgram(f, m, flags) : receive_some(fd, m);
	sim_note("host: recvmsg %d = %zd", fd, rc);
	return rc;
}

static int h_shutdown(int fd, int how)
{
	struct file *f = host_sock(fd);

	sim_point();
	if (!f)
		return -EBADF;
	if (f->state != S_CONNECTED)
		return -ENOTCONN;
	if (how != SHUT_RD && !f->shut_wr) {
		f->shut_wr = true;
		host_send_packet(f, P_FIN, NULL, 0);
	}
	if (how != SHUT_WR) {
		f->shut_rd = true;
		if (f->domain == AF_UNIX && f->peer)
			host_edge(f->peer);
	}
	host_edge(f);
	return 0;
}

static void close_sock(struct file *f)
{
	unsigned i;

	for (i = 0; i < f->n_queued; i++) {
		f->queued[i]->closed = true;
		host_reset(f->queued[i]);
	}
	f->n_queued = 0;
	sim_wake(f, ~0u);
	if (f->state != S_CONNECTED)
		return;
	if (f->rx_len || f->reset_on_close) {
		host_reset(f);
	} else if (!f->shut_wr) {
		f->shut_wr = true;
		host_send_packet(f, P_FIN, NULL, 0);
	}
	/* Who waits for room that nobody will make. */
	if (f->peer && f->domain == AF_UNIX)
		host_edge(f->peer);
}

static int h_close(int fd)
{
	struct file *f = host_file(fd);

	sim_point();
	if (!f)
		sim_fail("descriptor %d is closed, but is not open", fd);
	if (f->epoll && f->kind == K_SOCK)
		sim_fail("descriptor %d is closed while it is watched", fd);
	sim_note("host: close %d", fd);
	f->closed = true;
	if (f->kind == K_SOCK)
		close_sock(f);
	return 0;
}

/* ---- options and names ----------------------------------------------------------------------------------------------------- */

static int h_getsockopt(int fd, int level, int name, void *v, socklen_t *n)
{
	struct file *f = host_sock(fd);
	int value = 0;

	sim_point();
	if (!f)
		return -EBADF;
	if (level == SOL_SOCKET && name == SO_ERROR) {
		value = f->err;
		f->err = 0;
	} else if (level == SOL_SOCKET && name == SO_REUSEADDR) {
		value = f->reuse;
	} else if (level == SOL_SOCKET && name == SO_ACCEPTCONN) {
		value = f->state == S_LISTEN;
	} else if (level == SOL_SOCKET && name == SO_TYPE) {
		value = f->dgram ? SOCK_DGRAM : SOCK_STREAM;
	} else if (level == SOL_SOCKET && name == SO_DOMAIN) {
		value = f->domain;
	} else if (level == SOL_SOCKET && name < VALUES) {
		value = f->value[name];
	}
	if (*n > sizeof(value))
		*n = sizeof(value);
	memcpy(v, &value, *n);
	return 0;
}

static int h_setsockopt(int fd, int level, int name, const void *v, socklen_t n)
{
	struct file *f = host_sock(fd);
	struct linger l;

	sim_point();
	if (!f)
		return -EBADF;
	if (level == SOL_SOCKET && name == SO_LINGER && n >= sizeof(l)) {
		memcpy(&l, v, sizeof(l));
		f->reset_on_close = l.l_onoff && !l.l_linger;
	} else if (level == SOL_SOCKET && name == SO_REUSEADDR) {
		f->reuse = n && *(const char *)v;
	} else if (level == SOL_SOCKET && name < VALUES && n >= sizeof(int)) {
		memcpy(&f->value[name], v, sizeof(int));
	}
	return 0;
}

static int h_getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
	struct file *f = host_sock(fd);
	struct name none = { .len = sizeof(sa_family_t) };

	sim_point();
	if (!f)
		return -EBADF;
	none.a.sa.sa_family = (sa_family_t)f->domain;
	if (f->domain == AF_INET)
		none.len = sizeof(struct sockaddr_in);
	return give_name(f->local.len ? &f->local : &none, a, n);
}

static int h_getpeername(int fd, struct sockaddr *a, socklen_t *n)
{
	struct file *f = host_sock(fd);

	sim_point();
	if (!f)
		return -EBADF;
	return f->state == S_CONNECTED ? give_name(&f->remote, a, n) : -ENOTCONN;
}

static uint64_t h_now_ns(void)
{
	sim_point();
	return sim_now();
}

void host_wait(int fd, const char *what)
{
	sim_park(host_sock(fd), SIM_NEVER, what);
}

/* ---- begin --------------------------------------------------------------------------------------------------------------- */

void host_report(void)
{
	static const char *const states[] = { "new", "listening", "connecting", "connected",
					      "ended" };
	int i;

	for (i = 0; i < host_next_fd; i++) {
		const struct file *f = &host_files[i];

		if (f->kind != K_SOCK || (f->closed && !f->rx_len && !f->flight))
			continue;
		fprintf(stderr, "  host %d: %s%s peer %d rx %zu + %zu%s%s%s%s%s%s%s err %d\n",
			f->fd, states[f->state], f->closed ? ", closed" : "",
			f->peer ? f->peer->fd : 0, f->rx_len, f->flight, f->fin ? " fin" : "",
			f->shut_rd ? " shut_rd" : "", f->shut_wr ? " shut_wr" : "",
			f->no_space ? " no_space" : "", f->drained ? " drained" : "",
			f->ready ? " ready" : "", f->epoll ? " watched" : "", f->err);
		if (f->dgram)
			fprintf(stderr, "    %u datagrams arrived, %u dropped\n", f->n_dgrams,
				f->dropped);
	}
}

static void *h_map_fd(const char *name, size_t size, int *fd)
{
	(void)name;
	*fd = -1;
	return sim_map(size);
}

/*
 * Some networks have a ring. What goes together is a call each here; who has received is told whether there is more, and an edge
 * tells of what comes later. An end that is there already is not more, as with UNIX sockets: events have told of it.
 */
static int h_ring_open(struct sys_ring **out)
{
	static char none;

	*out = (struct sys_ring *)(void *)&none;
	return sim_below(2) ? 0 : -ENOSYS;
}

static void h_ring_close(struct sys_ring *r)
{
}

static void h_ring_io(struct sys_ring *r, struct sys_io *io, unsigned n)
{
	for (; n; io++, n--) {
		struct file *f = host_sock(io->fd);

		sys_io_each(io, 1);
		if (io->send || io->rc <= 0 || !f || f->rx_len)
			continue;
		io->more = false;
		f->drained = true;
	}
}

void host_begin(const struct host_params *p)
{
	host_params = *p;
	sys = (struct sys_ops){
		.alloc = sim_alloc,
		.free = sim_free,
		.map = sim_map,
		.map_fd = h_map_fd,
		.unmap = sim_unmap,
		.socket = h_socket,
		.bind = h_bind,
		.listen = h_listen,
		.accept = h_accept,
		.connect = h_connect,
		.sendmsg = h_sendmsg,
		.recvmsg = h_recvmsg,
		.shutdown = h_shutdown,
		.close = h_close,
		.getsockopt = h_getsockopt,
		.setsockopt = h_setsockopt,
		.getsockname = h_getsockname,
		.getpeername = h_getpeername,
		.epoll_create = h_epoll_create,
		.epoll_ctl = h_epoll_ctl,
		.epoll_wait = h_epoll_wait,
		.eventfd = h_eventfd,
		.read = h_read,
		.write = h_write,
		.ring_open = h_ring_open,
		.ring_close = h_ring_close,
		.ring_io = h_ring_io,
		.thread_start = sys_real.thread_start,
		.now_ns = h_now_ns,
	};
}
