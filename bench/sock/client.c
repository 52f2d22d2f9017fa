/* SPDX-License-Identifier: BSD-3-Clause */
/* The clients: ordinary sockets, the same ones against a kernel and against the CPU. */
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "sock.h"

#define PIECE (64u << 10) /* bytes a call of a stream */

void address_new(const char *transport, struct address *a)
{
	static unsigned number;

	memset(a, 0, sizeof(*a));
	if (strcmp(transport, "unix") == 0) {
		struct sockaddr_un *un = (struct sockaddr_un *)&a->ss;
		int n;

		un->sun_family = AF_UNIX;
		n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "gpunet-bench-%d-%u",
			     (int)getpid(), number++);
		a->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	} else {
		struct sockaddr_in *in = (struct sockaddr_in *)&a->ss;

		in->sin_family = AF_INET;
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		a->len = sizeof(*in);
	}
}

int dial(const struct address *a)
{
	int fd = socket(a->ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		die("cannot make a socket: %s", strerror(errno));
	while (connect(fd, (const struct sockaddr *)&a->ss, a->len) != 0) {
		if (errno != EINTR && errno != EAGAIN)
			die("cannot connect: %s", strerror(errno));
		usleep(100); /* a UNIX listener's backlog is full */
	}
	if (a->ss.ss_family == AF_INET)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

ssize_t spin_recv(int fd, void *buf, size_t n)
{
	ssize_t r;

	do
		r = recv(fd, buf, n, MSG_DONTWAIT);
	while (r < 0 && (errno == EAGAIN || errno == EINTR));
	return r;
}

ssize_t send_all(int fd, const void *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = send(fd, (const char *)buf + done, n - done, MSG_NOSIGNAL);

		if (r < 0 && errno != EINTR)
			return -1;
		done += r > 0 ? (size_t)r : 0;
	}
	return (ssize_t)n;
}

static void *memory(size_t n)
{
	void *p = calloc(1, n);

	if (!p)
		die("memory is short");
	return p;
}

/* ---- echo ---------------------------------------------------------------------------------------------------------------- */

static void there_and_back(int fd, const uint8_t *out, uint8_t *in, size_t size)
{
	size_t got = 0;

	if (send_all(fd, out, size) < 0)
		die("a server has ended a connection: %s", strerror(errno));
	while (got < size) {
		ssize_t n = spin_recv(fd, in + got, size - got);

		if (n <= 0)
			die("a server has ended a connection: %s", n ? strerror(errno) : "EOF");
		got += (size_t)n;
	}
}

void client_echo(const struct address *a, unsigned size, unsigned rounds, struct echo_times *t)
{
	unsigned warm = rounds / 10 + 10, i, k;
	double *us = memory(rounds * sizeof(*us));
	uint8_t *out = memory(size), *in = memory(size);
	int fd = dial(a);

	for (i = 0; i < rounds + warm; i++) {
		double start;

		for (k = 0; k < size && k < 256; k++)
			out[k] = (uint8_t)(i * 7 + k);
		start = now_us();
		there_and_back(fd, out, in, size);
		if (i >= warm)
			us[i - warm] = now_us() - start;
		if (memcmp(out, in, size) != 0)
			die("other bytes came back in message %u of %u bytes", i, size);
	}
	t->p50 = percentile(us, rounds, 50);
	t->p99 = percentile(us, rounds, 99);
	close(fd);
	free(us);
	free(out);
	free(in);
}

/* ---- streams -------------------------------------------------------------------------------------------------------------- */

static void stream_out(int fd, uint64_t total)
{
	char *buf = memory(PIECE), byte;
	uint64_t done = 0;

	while (done < total) {
		uint64_t left = total - done;

		if (send_all(fd, buf, left < PIECE ? (size_t)left : PIECE) < 0)
			die("a server has ended a stream: %s", strerror(errno));
		done += left < PIECE ? left : PIECE;
	}
	shutdown(fd, SHUT_WR);
	if (spin_recv(fd, &byte, 1) != 1)
		die("a server has not confirmed a stream");
	free(buf);
}

static void stream_in(int fd, uint64_t total)
{
	char *buf = memory(PIECE);
	uint64_t done = 0;

	while (done < total) {
		ssize_t n = spin_recv(fd, buf, PIECE);

		if (n <= 0)
			die("a stream has ended after %llu of %llu bytes", (unsigned long long)done,
			    (unsigned long long)total);
		done += (uint64_t)n;
	}
	free(buf);
}

double client_stream(const struct address *a, enum bench_mode mode, uint64_t total)
{
	int fd = dial(a);
	double start = now_us();

	if (mode == BENCH_SINK)
		stream_out(fd, total);
	else
		stream_in(fd, total);
	start = now_us() - start;
	close(fd);
	return (double)total / start / 1e3;
}

#define STREAMS 16

struct one_stream {
	int fd;
	enum bench_mode mode;
	uint64_t total;
	pthread_t thread;
	pthread_barrier_t *go;
};

static void *stream_main(void *arg)
{
	struct one_stream *s = arg;

	place(PLACE_CLIENTS);
	pthread_barrier_wait(s->go);
	if (s->mode == BENCH_SINK)
		stream_out(s->fd, s->total);
	else
		stream_in(s->fd, s->total);
	close(s->fd);
	return NULL;
}

double client_streams(const struct address *a, enum bench_mode mode, uint64_t total, unsigned conns)
{
	struct one_stream s[STREAMS];
	pthread_barrier_t go;
	double start;
	unsigned i;

	pthread_barrier_init(&go, NULL, conns + 1);
	for (i = 0; i < conns; i++) {
		s[i] = (struct one_stream){ dial(a), mode, total, 0, &go };
		if (pthread_create(&s[i].thread, NULL, stream_main, &s[i]) != 0)
			die("cannot start a client thread");
	}
	pthread_barrier_wait(&go);
	start = now_us();
	for (i = 0; i < conns; i++)
		pthread_join(s[i].thread, NULL);
	start = now_us() - start;
	pthread_barrier_destroy(&go);
	return (double)total * conns / start / 1e3;
}

/* ---- connections ------------------------------------------------------------------------------------------------------------ */

#define DIALERS 4
#define BATCH 8

struct dialer {
	const struct address *at;
	unsigned count;
	pthread_t thread;
};

static void *dialer_main(void *arg)
{
	struct dialer *d = arg;
	/* A reset instead of TIME_WAIT: thousands of ports a second would be used up. */
	struct linger hard = { 1, 0 };
	unsigned done, i;

	place(PLACE_CLIENTS);
	for (done = 0; done < d->count; done += BATCH) {
		int fd[BATCH];

		for (i = 0; i < BATCH; i++)
			fd[i] = dial(d->at);
		for (i = 0; i < BATCH; i++) {
			char byte;
			ssize_t n;

			do
				n = recv(fd[i], &byte, 1, 0);
			while (n < 0 && errno == EINTR);
			if (n > 0)
				die("a server that only accepts has sent something");
			setsockopt(fd[i], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
			close(fd[i]);
		}
	}
	return NULL;
}

double client_accepts(const struct address *a, unsigned count)
{
	unsigned each = (count / DIALERS + BATCH - 1) / BATCH * BATCH, i;
	struct dialer d[DIALERS];
	double start = now_us();

	for (i = 0; i < DIALERS; i++) {
		d[i] = (struct dialer){ a, each, 0 };
		if (pthread_create(&d[i].thread, NULL, dialer_main, &d[i]) != 0)
			die("cannot start a client thread");
	}
	for (i = 0; i < DIALERS; i++)
		pthread_join(d[i].thread, NULL);
	return each * DIALERS / (now_us() - start) * 1e6;
}

/* ---- many busy connections -------------------------------------------------------------------------------------------------- */

struct busy {
	const int *fd;
	unsigned n;
	double seconds;
	uint64_t messages;
	pthread_t thread;
};

static void *busy_main(void *arg)
{
	struct busy *b = arg;
	uint8_t out[64], in[64];
	double end = now_us() + b->seconds * 1e6;
	unsigned i;

	place(PLACE_CLIENTS);
	memset(out, 1, sizeof(out));
	while (now_us() < end) {
		for (i = 0; i < b->n; i++) {
			if (send_all(b->fd[i], out, sizeof(out)) < 0)
				die("a busy connection has ended: %s", strerror(errno));
		}
		for (i = 0; i < b->n; i++) {
			if (recv(b->fd[i], in, sizeof(in), MSG_WAITALL) != sizeof(in))
				die("a busy connection has ended");
		}
		b->messages += b->n;
	}
	return NULL;
}

double client_busy(const int *fd, unsigned n, double seconds)
{
	struct busy b[DIALERS];
	uint64_t messages = 0;
	unsigned i;

	for (i = 0; i < DIALERS; i++) {
		unsigned from = n * i / DIALERS, to = n * (i + 1) / DIALERS;

		b[i] = (struct busy){ fd + from, to - from, seconds, 0, 0 };
		if (pthread_create(&b[i].thread, NULL, busy_main, &b[i]) != 0)
			die("cannot start a client thread");
	}
	for (i = 0; i < DIALERS; i++) {
		pthread_join(b[i].thread, NULL);
		messages += b[i].messages;
	}
	return (double)messages / seconds;
}
