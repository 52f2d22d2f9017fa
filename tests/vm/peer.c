/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An ordinary TCP program, client and server, that knows nothing of RDMA: under librspreload its sockets become rsockets.
 *
 *	vm_peer serve ADDRESS PORT                  returns what each connection sends, one after the other
 *	vm_peer ask ADDRESS PORT BYTES PIECE [late] sends BYTES in sends of PIECE, all of it must come back;
 *	                                            late: reads nothing for two seconds, then slowly
 *	vm_peer first ADDRESS PORT BYTES PIECE      the same, but reads only after it has sent all and its end
 *	vm_peer hold ADDRESS PORT                   one byte there and back, prints "held", waits for ever
 *	vm_peer pour ADDRESS PORT                   prints "flows N" whenever 100 kB have come back
 *	vm_peer many ADDRESS PORT N                 N connections at once, 100 bytes there and back on each, three times;
 *	                                            prints what it does next
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHUNK = 65536, PATIENCE_MS = 60000, MANY = 512 };

static int failed(const char *what)
{
	fprintf(stderr, "vm_peer: %s: %s\n", what, strerror(errno));
	return 1;
}

/* A connected socket, or with `serve` a listening one; -1. */
static int open_socket(const char *address, const char *port, bool serve)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
	struct addrinfo *a;
	int fd, one = 1;

	if (getaddrinfo(address, port, &hints, &a))
		return -1;
	fd = socket(a->ai_family, SOCK_STREAM, 0);
	if (serve) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 64))
			fd = -1;
	} else if (connect(fd, a->ai_addr, a->ai_addrlen)) {
		fd = -1;
	}
	freeaddrinfo(a);
	return fd;
}

static int send_all(int fd, const uint8_t *p, size_t n)
{
	ssize_t put;

	for (; n; n -= (size_t)put, p += put) {
		put = send(fd, p, n, 0);
		if (put <= 0)
			return -1;
	}
	return 0;
}

static int serve(const char *address, const char *port)
{
	static uint8_t buf[CHUNK];
	int listener = open_socket(address, port, true), fd;
	ssize_t n;

	if (listener < 0)
		return failed("listen");
	puts("listening");
	fflush(stdout);
	for (;;) {
		fd = accept(listener, NULL, NULL);
		if (fd < 0)
			return failed("accept");
		while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
			if (send_all(fd, buf, (size_t)n))
				break;
		}
		if (n < 0)
			failed("recv");
		shutdown(fd, SHUT_RDWR);
		close(fd);
	}
}

/* The byte at a place of the stream: no two of its 64 KiB are the same. */
static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(((i * UINT64_C(0x9e3779b97f4a7c15)) >> 29) ^ (i >> 16));
}

struct stream {
	int fd;
	uint64_t size, sent, got;
	size_t piece;
	bool late;
	uint8_t buf[CHUNK];
};

static int send_piece(struct stream *s, int flags)
{
	uint64_t left = s->size - s->sent;
	size_t n = left < s->piece ? (size_t)left : s->piece, i;
	ssize_t put;

	if (n > CHUNK)
		n = CHUNK;
	for (i = 0; i < n; i++)
		s->buf[i] = byte_at(s->sent + i);
	put = send(s->fd, s->buf, n, flags);
	if (put < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : failed("send");
	s->sent += (uint64_t)put;
	if (s->sent == s->size && shutdown(s->fd, SHUT_WR))
		return failed("shutdown");
	return 0;
}

/* 0; 1 after a failure; 2 at the end of the stream. */
static int receive(struct stream *s, int flags)
{
	ssize_t n = recv(s->fd, s->buf, s->late ? 512 : CHUNK, flags), i;

	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : failed("recv");
	for (i = 0; i < n; i++) {
		if (s->buf[i] == byte_at(s->got + (uint64_t)i))
			continue;
		fprintf(stderr, "vm_peer: byte %llu is wrong\n",
			(unsigned long long)(s->got + (uint64_t)i));
		return 1;
	}
	s->got += (uint64_t)n;
	return n == 0 ? 2 : 0;
}

static int finish(const struct stream *s)
{
	if (s->got != s->size) {
		fprintf(stderr, "vm_peer: %llu of %llu bytes came back\n",
			(unsigned long long)s->got, (unsigned long long)s->size);
		return 1;
	}
	puts("the same");
	close(s->fd);
	return 0;
}

static int ask(struct stream *s)
{
	struct pollfd p = { .fd = s->fd };
	int rc = 0;

	while (rc == 0) {
		p.events = (short)(POLLIN | (s->sent < s->size ? POLLOUT : 0));
		if (s->late && s->got == 0 && s->sent < s->size)
			p.events = POLLOUT;
		rc = poll(&p, 1, s->late && s->got == 0 ? 2000 : PATIENCE_MS);
		if (rc < 0 || (rc == 0 && !s->late))
			return failed("nothing happens");
		rc = 0;
		if (p.revents & POLLOUT)
			rc = send_piece(s, MSG_DONTWAIT);
		else if (s->late)
			usleep(1000);
		if (rc == 0 && ((p.revents & POLLIN) || !p.revents))
			rc = receive(s, MSG_DONTWAIT);
	}
	return rc == 2 ? finish(s) : 1;
}

static int first(struct stream *s)
{
	int rc = 0;

	while (s->sent < s->size) {
		if (send_piece(s, 0))
			return 1;
	}
	while (rc == 0)
		rc = receive(s, 0);
	return rc == 2 ? finish(s) : 1;
}

static int hold(int fd)
{
	char c = 'x';

	if (send(fd, &c, 1, 0) != 1 || recv(fd, &c, 1, 0) != 1)
		return failed("one byte");
	puts("held");
	fflush(stdout);
	for (;;)
		pause();
}

static int pour(struct stream *s)
{
	uint64_t told = 0;
	int rc = 0;

	s->size = UINT64_MAX;
	s->piece = 4096;
	while (rc == 0) {
		rc = send_piece(s, 0);
		while (rc == 0 && s->got < s->sent)
			rc = receive(s, 0);
		if (s->got / 100000 > told) {
			told = s->got / 100000;
			printf("flows %llu\n", (unsigned long long)told);
			fflush(stdout);
		}
	}
	return 1;
}

static int many(const char *address, const char *port, unsigned n)
{
	static int fd[MANY];
	uint8_t out[100], in[100];
	unsigned i, turn;

	if (n > MANY)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("connect");
	for (i = 0; i < n; i++) {
		fd[i] = open_socket(address, port, false);
		if (fd[i] < 0)
			return failed("connect");
	}
	for (turn = 0; turn < 3; turn++) {
		printf("turn %u\n", turn);
		for (i = 0; i < n; i++) {
			memset(out, (int)(i + turn), sizeof(out));
			if (send_all(fd[i], out, sizeof(out)))
				return failed("send");
		}
		for (i = 0; i < n; i++) {
			memset(out, (int)(i + turn), sizeof(out));
			if (recv(fd[i], in, sizeof(in), MSG_WAITALL) != sizeof(in) ||
			    memcmp(in, out, sizeof(in)))
				return failed("other bytes came back");
		}
	}
	for (i = 0; i < n; i++) {
		if (i % 20 == 0)
			printf("close %u\n", i);
		close(fd[i]);
	}
	puts("the same");
	return 0;
}

static int client(int argc, char **argv)
{
	static struct stream s;

	s.fd = open_socket(argv[2], argv[3], false);
	if (s.fd < 0)
		return failed("connect");
	if (!strcmp(argv[1], "hold"))
		return hold(s.fd);
	if (!strcmp(argv[1], "pour"))
		return pour(&s);
	if (argc < 6)
		return 2;
	s.size = strtoull(argv[4], NULL, 10);
	s.piece = strtoul(argv[5], NULL, 10);
	s.late = argc > 6;
	return strcmp(argv[1], "first") ? ask(&s) : first(&s);
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc < 4)
		return 2;
	if (!strcmp(argv[1], "serve"))
		return serve(argv[2], argv[3]);
	if (!strcmp(argv[1], "many"))
		return argc > 4 ? many(argv[2], argv[3], (unsigned)strtoul(argv[4], NULL, 10)) : 2;
	return client(argc, argv);
}
