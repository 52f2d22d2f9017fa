/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet perf without gpunet: the same ends with plain sockets and a thread a connection, to compare kernels with. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "perf_run.h"

#define SPIN_NS \
	200000 /* before a wait sleeps: as long as a network's proxy on a GPU does by default */
#define BACKLOG 4096

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int new_socket(const struct tool_addr *a, bool dgram)
{
	int fd = socket(a->addr.ss_family, (dgram ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
	int one = 1;

	if (fd < 0)
		return -errno;
	if (a->addr.ss_family != AF_UNIX && !dgram)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* Waits for `fd` as a proxy thread does: spins, then sleeps. One recv: bytes, 0, or a negative errno (-ETIMEDOUT). */
static ssize_t wait_recv(int fd, void *buf, size_t n, int timeout_ms, struct tool_addr *from)
{
	uint64_t start = now_ns();
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		socklen_t len = sizeof(from->addr);
		ssize_t got =
			recvfrom(fd, buf, n, MSG_DONTWAIT,
				 from ? (struct sockaddr *)&from->addr : NULL, from ? &len : NULL);
		int rc;

		if (got >= 0) {
			if (from)
				from->len = len;
			return got;
		}
		if (errno == EINTR || (errno == EAGAIN && now_ns() - start < SPIN_NS))
			continue;
		if (errno != EAGAIN)
			return -errno;
		rc = poll(&p, 1, timeout_ms);
		if (rc == 0)
			return -ETIMEDOUT;
	}
}

static int recv_all(int fd, void *buf, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t rc = wait_recv(fd, (char *)buf + got, n - got, -1, NULL);

		if (rc <= 0)
			return rc ? (int)rc : -ECONNRESET;
		got += (size_t)rc;
	}
	return 0;
}

static int send_all(int fd, const void *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t rc = send(fd, (const char *)buf + done, n - done, MSG_NOSIGNAL);

		if (rc < 0 && errno != EINTR)
			return -errno;
		done += rc > 0 ? (size_t)rc : 0;
	}
	return 0;
}

/* ---- server ------------------------------------------------------------------------------------- */

static void serve_bw(int fd, uint8_t *buf)
{
	uint64_t bytes = 0;
	ssize_t n;

	while ((n = wait_recv(fd, buf, PERF_BUFFER, -1, NULL)) > 0)
		bytes += (uint64_t)n;
	send_all(fd, &bytes, sizeof(bytes));
}

static void serve(int fd, uint8_t *buf)
{
	struct perf_hello h;
	uint64_t i;

	if (recv_all(fd, &h, sizeof(h)) != 0 || h.magic != PERF_MAGIC ||
	    h.version != PERF_VERSION || !h.size || h.size > PERF_BUFFER)
		return;
	if (h.test == PERF_STREAM_LAT) {
		while (recv_all(fd, buf, h.size) == 0 && send_all(fd, buf, h.size) == 0) {
		}
	} else if (h.test == PERF_STREAM_BW && h.reverse) {
		for (i = 0; i < h.count && send_all(fd, buf, h.size) == 0; i++) {
		}
	} else if (h.test == PERF_STREAM_BW) {
		serve_bw(fd, buf);
	}
}

static void *serve_main(void *arg)
{
	int fd = (int)(intptr_t)arg;
	uint8_t *buf = calloc(1, PERF_BUFFER);

	if (buf)
		serve(fd, buf);
	free(buf);
	close(fd);
	return NULL;
}

static int start_detached(void *(*fn)(void *), int fd)
{
	pthread_t thread;
	int rc = pthread_create(&thread, NULL, fn, (void *)(intptr_t)fd);

	if (rc == 0)
		pthread_detach(thread);
	return -rc;
}

static void *serve_dgrams(void *arg)
{
	int fd = (int)(intptr_t)arg;
	uint8_t *buf = malloc(PERF_BUFFER);
	struct tool_addr from;

	for (;;) {
		ssize_t n = buf ? wait_recv(fd, buf, PERF_BUFFER, -1, &from) : -ENOMEM;

		if (n == -ENOMEM)
			return NULL;
		if (n >= 0 && from.len)
			sendto(fd, buf, (size_t)n, MSG_NOSIGNAL, (struct sockaddr *)&from.addr,
			       from.len);
	}
}

static int make_listener(const struct perf_opt *o, struct tool_addr *bound)
{
	int fd = -EINVAL, i, one = 1, err = 0;

	for (i = 0; i < o->addrs; i++) {
		const struct tool_addr *a = &o->addr[i];

		fd = new_socket(a, o->dgram);
		if (fd < 0)
			return tool_fail_step(TOOL_STEP_SOCKET, -fd, a), -1;
		if (a->addr.ss_family != AF_UNIX && !o->dgram)
			setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, (const struct sockaddr *)&a->addr, a->len) == 0 &&
		    (o->dgram || listen(fd, BACKLOG) == 0)) {
			socklen_t len = sizeof(bound->addr);

			getsockname(fd, (struct sockaddr *)&bound->addr, &len);
			bound->len = len;
			return fd;
		}
		err = errno;
		close(fd);
	}
	tool_fail_step(TOOL_STEP_BIND, err, &o->addr[o->addrs - 1]);
	return -1;
}

static int accept_until_stopped(int listener)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = listener, .events = POLLIN },
				       { .fd = stop_fd(), .events = POLLIN } };
		int fd, rc = poll(p, 2, -1);

		if ((rc < 0 && errno != EINTR) || p[1].revents || stop_asked())
			return TOOL_DONE;
		if (rc <= 0 || !p[0].revents)
			continue;
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE))
			usleep(10000);
		if (fd >= 0 && start_detached(serve_main, fd) < 0)
			close(fd);
	}
}

int perf_host_server(const struct perf_opt *o)
{
	struct tool_addr bound = { 0 };
	int fd = make_listener(o, &bound), rc;
	struct unix_path file = { 0 };
	struct pollfd p = { .fd = stop_fd(), .events = POLLIN };

	if (fd < 0)
		return TOOL_FAILED;
	unix_path_remember(&file, &bound);
	perf_announce(o, &bound);
	if (o->dgram) {
		rc = start_detached(serve_dgrams, fd);
		if (rc < 0)
			rc = tool_fail("cannot start a thread: %s", strerror(-rc));
		while (rc == 0 && !stop_asked())
			poll(&p, 1, -1);
	} else {
		rc = accept_until_stopped(fd);
	}
	unix_path_remove(&file);
	return rc;
}

/* ---- client -------------------------------------------------------------------------------------- */

struct client {
	struct perf_run *run;
	struct perf_result *r;
	uint64_t *ticks;
	uint8_t *buf;
	int fd;
	enum tool_step step; /* of the error */
	bool made;
	pthread_t thread;
};

static void begin(struct client *c)
{
	c->r->begin = c->r->begin_tick = now_ns();
}

static void progress(struct client *c, uint64_t done)
{
	__atomic_store_n(&c->r->done, done, __ATOMIC_RELAXED);
}

static int open_to(struct client *c, bool dgram)
{
	const struct tool_addr *to = c->run->to;
	struct sockaddr any = { .sa_family = AF_UNIX };

	c->step = TOOL_STEP_SOCKET;
	c->fd = new_socket(to, dgram);
	if (c->fd < 0)
		return c->fd;
	/* A name of its own, or nobody could answer. */
	if (dgram && to->addr.ss_family == AF_UNIX && bind(c->fd, &any, sizeof(any.sa_family)) != 0)
		return -errno;
	c->step = TOOL_STEP_CONNECT;
	while (connect(c->fd, (const struct sockaddr *)&to->addr, to->len) != 0) {
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
		usleep(100); /* a UNIX listener's backlog is full */
	}
	return 0;
}

static int greet(struct client *c)
{
	int rc = open_to(c, false);

	if (rc < 0)
		return rc;
	c->step = TOOL_STEP_SEND;
	return send_all(c->fd, &c->run->hello, sizeof(c->run->hello));
}

static int receive(struct client *c, uint64_t n)
{
	c->step = TOOL_STEP_RECEIVE;
	return recv_all(c->fd, c->buf, n);
}

static int run_lat(struct client *c)
{
	const struct perf_hello *h = &c->run->hello;
	uint64_t warm = c->run->warm, i;
	int rc = greet(c);

	for (i = 0; i < h->count + warm && rc >= 0 && !stop_asked(); i++) {
		uint64_t start;

		if (i == warm)
			begin(c);
		start = now_ns();
		c->step = TOOL_STEP_SEND;
		rc = send_all(c->fd, c->buf, h->size);
		if (rc >= 0)
			rc = receive(c, h->size);
		if (i >= warm)
			c->ticks[i - warm] = now_ns() - start;
		progress(c, i < warm ? 0 : i - warm + 1);
	}
	return rc;
}

static int run_bw(struct client *c)
{
	const struct perf_hello *h = &c->run->hello;
	uint64_t i, bytes;
	int rc = greet(c);

	begin(c);
	for (i = 0; i < h->count && rc >= 0 && !stop_asked(); i++) {
		c->step = TOOL_STEP_SEND;
		rc = h->reverse ? receive(c, h->size) : send_all(c->fd, c->buf, h->size);
		progress(c, i + 1);
	}
	if (rc >= 0 && !h->reverse) {
		shutdown(c->fd, SHUT_WR);
		rc = receive(c, sizeof(bytes));
		memcpy(&bytes, c->buf, sizeof(bytes));
		if (rc >= 0 && bytes != h->size * h->count)
			rc = -ECONNRESET; /* the server has not got it all */
	}
	return rc;
}

static int run_conn(struct client *c)
{
	const struct perf_hello *h = &c->run->hello;
	uint64_t i;
	int rc = 0;

	begin(c);
	for (i = 0; i < h->count && rc >= 0 && !stop_asked(); i++) {
		rc = greet(c);
		c->step = TOOL_STEP_RECEIVE;
		if (rc >= 0)
			rc = (int)wait_recv(c->fd, c->buf, 1, -1, NULL);
		if (c->fd >= 0)
			close(c->fd);
		c->fd = -1;
		progress(c, i + 1);
	}
	return rc;
}

/* 1: the answer came, 0: it is lost, or the error. */
static int dgram_round(struct client *c, uint64_t seq)
{
	uint64_t size = c->run->hello.size, got = seq;
	ssize_t n;

	if (size >= sizeof(seq))
		memcpy(c->buf, &seq, sizeof(seq));
	c->step = TOOL_STEP_SEND;
	if (send(c->fd, c->buf, size, MSG_NOSIGNAL) < 0)
		return -errno;
	c->step = TOOL_STEP_RECEIVE;
	for (;;) {
		n = wait_recv(c->fd, c->buf, PERF_BUFFER, PERF_TIMEOUT_US / 1000, NULL);
		if (n < 0)
			return n == -ETIMEDOUT ? 0 : (int)n;
		if (size >= sizeof(seq))
			memcpy(&got, c->buf, sizeof(got));
		/* An answer that comes after it was given up for lost is passed over. */
		if (got == seq)
			return (uint64_t)n == size ? 1 : -EMSGSIZE;
	}
}

static int run_dgram(struct client *c)
{
	const struct perf_hello *h = &c->run->hello;
	uint64_t warm = c->run->warm, i = 0, seq = 0, row = 0;
	int rc = open_to(c, true);

	while (i < h->count + warm && rc >= 0 && !stop_asked()) {
		uint64_t start;

		if (i == warm)
			begin(c);
		start = now_ns();
		rc = dgram_round(c, ++seq);
		row = rc == 0 ? row + 1 : 0;
		c->r->lost += rc == 0;
		if (row == PERF_LOST_MAX)
			rc = -ETIMEDOUT;
		if (rc <= 0)
			continue;
		if (i >= warm)
			c->ticks[i - warm] = now_ns() - start;
		i++;
		progress(c, i <= warm ? 0 : i - warm);
	}
	return rc;
}

static void *client_main(void *arg)
{
	static int (*const run[PERF_TESTS])(struct client * c) = {
		[PERF_STREAM_BW] = run_bw,
		[PERF_STREAM_LAT] = run_lat,
		[PERF_CONN_RATE] = run_conn,
		[PERF_DGRAM_LAT] = run_dgram,
	};
	struct client *c = arg;
	int rc = run[c->run->hello.test](c);

	c->r->end = c->r->end_tick = now_ns();
	if (c->fd >= 0)
		close(c->fd);
	c->r->step = rc < 0 ? c->step : TOOL_STEP_NONE;
	c->r->error = rc < 0 ? (uint64_t)-rc : 0;
	__atomic_store_n(&c->r->ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

static int start_client(struct client *c, struct perf_run *r, unsigned i)
{
	c->run = r;
	c->r = &r->results[i];
	c->ticks = r->ticks ? r->ticks + i * r->hello.count : NULL;
	c->fd = -1;
	c->buf = calloc(1, PERF_BUFFER);
	if (!c->buf)
		return -ENOMEM;
	c->made = pthread_create(&c->thread, NULL, client_main, c) == 0;
	return c->made ? 0 : -EAGAIN;
}

int perf_host_client(struct perf_run *r, void (*wait)(struct perf_run *r))
{
	struct client *c = calloc(r->opt->conns, sizeof(*c));
	int rc = c ? 0 : -ENOMEM;
	unsigned i;

	for (i = 0; i < r->opt->conns && rc == 0; i++)
		rc = start_client(&c[i], r, i);
	if (rc == 0)
		wait(r);
	for (i = 0; c && i < r->opt->conns; i++) {
		/* What was started ends by itself, unless the peer hangs: after a signal it is left alone. */
		if (c[i].made && !stop_asked())
			pthread_join(c[i].thread, NULL);
	}
	if (stop_asked())
		return tool_fail("interrupted");
	for (i = 0; c && i < r->opt->conns; i++)
		free(c[i].buf);
	free(c);
	return rc < 0 ? tool_fail("cannot start %u threads: %s", r->opt->conns, strerror(-rc))
		      : TOOL_DONE;
}
