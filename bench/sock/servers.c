/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU as a server: what a user would have instead of a kernel. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sock.h"

#define PIECE (64u << 10)
#define SHARERS 4

/* Bytes on their way to or from another core. Each position has one writer, and a cache line of its own. */
struct ring {
	uint64_t tail __attribute__((aligned(128)));
	uint64_t head __attribute__((aligned(128)));
	uint64_t ended __attribute__((aligned(128))); /* no byte follows tail */
	uint8_t bytes[RING_BYTES] __attribute__((aligned(128)));
};

struct cpu_server {
	enum server_kind kind;
	int listener;
	unsigned conns; /* SERVER_SHARED: connections a round, of all threads */
	struct address at;
	struct bench_order order;
	const struct bench_kernels *k;
	struct bench_mail *mail;
	uint8_t *in, *out; /* SERVER_COPY: memory that the GPU sees */
	struct ring *ring;
	pthread_t thread[SHARERS];
	unsigned threads;
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static uint64_t load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* ---- one thread, spinning ---------------------------------------------------------------------------------------------------- */

static void loop_echo(int fd, char *buf)
{
	ssize_t n;

	do {
		n = spin_recv(fd, buf, BENCH_BUF);
		if (n > 0)
			n = send_all(fd, buf, (size_t)n);
	} while (n > 0);
}

static void loop_serve(struct cpu_server *s, int fd, char *buf)
{
	uint64_t left = s->order.total, piece = s->order.chunk ? s->order.chunk : PIECE;
	ssize_t n = 1;

	if (s->order.mode == BENCH_ECHO)
		loop_echo(fd, buf);
	while (s->order.mode == BENCH_SINK && n > 0)
		n = spin_recv(fd, buf, piece);
	if (s->order.mode == BENCH_SINK)
		send_all(fd, buf, 1);
	while (s->order.mode == BENCH_SOURCE && left && n > 0) {
		n = send_all(fd, buf, left < piece ? (size_t)left : piece);
		left -= n > 0 ? (uint64_t)n : 0;
	}
}

/* ---- bytes handed to another core -------------------------------------------------------------------------------------------- */

struct hand {
	struct ring *r;
	uint64_t total; /* to be made; 0: to be taken */
};

static uint64_t until_wrap(uint64_t pos, uint64_t n)
{
	uint64_t end = RING_BYTES - pos % RING_BYTES;

	n = n < PIECE ? n : PIECE;
	return n < end ? n : end;
}

/* The other core: takes the bytes, or makes them. */
static void *hand_main(void *arg)
{
	struct hand *h = arg;
	struct ring *r = h->r;
	uint8_t *own = calloc(1, PIECE);
	uint64_t pos = 0, n;

	place(PLACE_HAND);
	if (!own)
		die("memory is short");
	while (h->total ? pos < h->total : true) {
		if (!h->total) {
			uint64_t ended = load(&r->ended);

			n = load(&r->tail) - pos;
			if (!n && ended)
				break;
		} else {
			n = RING_BYTES - (pos - load(&r->head));
			n = n < h->total - pos ? n : h->total - pos;
		}
		n = until_wrap(pos, n);
		if (!n) {
			relax();
			continue;
		}
		if (h->total)
			memcpy(r->bytes + pos % RING_BYTES, own, n);
		else
			memcpy(own, r->bytes + pos % RING_BYTES, n);
		pos += n;
		store(h->total ? &r->tail : &r->head, pos);
	}
	free(own);
	return NULL;
}

static void handed_sink(struct ring *r, int fd)
{
	uint64_t pos = 0;
	ssize_t n = 1;

	while (n > 0) {
		uint64_t room = until_wrap(pos, RING_BYTES - (pos - load(&r->head)));

		if (!room) {
			relax();
			continue;
		}
		n = spin_recv(fd, r->bytes + pos % RING_BYTES, room);
		if (n > 0)
			store(&r->tail, pos += (uint64_t)n);
	}
	store(&r->ended, 1);
}

static void handed_source(struct ring *r, int fd, uint64_t total)
{
	uint64_t pos = 0;

	while (pos < total) {
		uint64_t n = until_wrap(pos, load(&r->tail) - pos);

		if (!n) {
			relax();
			continue;
		}
		if (send_all(fd, r->bytes + pos % RING_BYTES, n) < 0)
			die("a client has ended a stream: %s", strerror(errno));
		store(&r->head, pos += n);
	}
}

static void handed_serve(struct cpu_server *s, int fd)
{
	struct ring *r = s->ring;
	struct hand h = { r, s->order.mode == BENCH_SOURCE ? s->order.total : 0 };
	pthread_t other;

	r->tail = r->head = r->ended = 0;
	if (pthread_create(&other, NULL, hand_main, &h) != 0)
		die("cannot start a server thread");
	if (h.total)
		handed_source(r, fd, h.total);
	else
		handed_sink(r, fd);
	pthread_join(other, NULL);
	if (!h.total)
		send_all(fd, r->bytes, 1);
}

/* ---- by way of the GPU, without gpunet ---------------------------------------------------------------------------------------- */

static void mail_serve(struct cpu_server *s, int fd)
{
	struct bench_mail *m = s->mail;
	uint64_t seq = 0;
	ssize_t n;

	m->asked = m->answered = 0;
	m->bytes = 0;
	if (s->k->mail_start(m))
		die("cannot start the hand-written kernel");
	while ((n = spin_recv(fd, m->in, BENCH_MAIL_MAX)) > 0) {
		m->bytes = (uint64_t)n;
		store(&m->asked, ++seq);
		while (load(&m->answered) != seq)
			relax();
		if (send_all(fd, m->out, (size_t)n) < 0)
			break;
	}
	store(&m->asked, BENCH_GO_END);
	if (s->k->mail_wait())
		die("the hand-written kernel has failed");
}

static void copy_serve(struct cpu_server *s, int fd)
{
	ssize_t n;

	while ((n = spin_recv(fd, s->in, 1024)) > 0) {
		if (s->k->copy_echo(s->in, s->out, (size_t)n))
			die("copying to the GPU and back has failed");
		if (send_all(fd, s->out, (size_t)n) < 0)
			break;
	}
}

/* ---- several threads ------------------------------------------------------------------------------------------------------------ */

struct shared_conn {
	int fd;
	uint64_t left; /* BENCH_SOURCE */
};

/* Moves what one connection can move now; false: it is over. */
static bool shared_move(struct cpu_server *s, struct shared_conn *c, char *buf)
{
	ssize_t n;

	if (s->order.mode == BENCH_SOURCE) {
		n = send(c->fd, buf, c->left < PIECE ? (size_t)c->left : PIECE,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		c->left -= n > 0 ? (uint64_t)n : 0;
		return c->left && (n > 0 || errno == EAGAIN || errno == EINTR);
	}
	n = recv(c->fd, buf, PIECE, MSG_DONTWAIT);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return true;
	send_all(c->fd, buf, 1);
	return false;
}

static void *shared_main(void *arg)
{
	struct cpu_server *s = arg;
	struct shared_conn c[16];
	char *buf = calloc(1, PIECE);
	unsigned each = s->conns / s->threads, i, open;

	place(PLACE_SERVERS);
	if (!buf || each > 16)
		die("too many connections a thread");
	for (;;) {
		for (i = 0; i < each; i++) {
			c[i].fd = accept(s->listener, NULL, NULL);
			c[i].left = s->order.total;
			if (c[i].fd < 0) {
				while (i-- > 0)
					close(c[i].fd);
				free(buf);
				return NULL;
			}
		}
		for (open = each; open;) {
			for (i = 0; i < each; i++) {
				if (c[i].fd >= 0 && !shared_move(s, &c[i], buf)) {
					close(c[i].fd);
					c[i].fd = -1;
					open--;
				}
			}
		}
	}
}

/* ---- start and end ----------------------------------------------------------------------------------------------------------------- */

static void *server_main(void *arg)
{
	struct cpu_server *s = arg;
	char *buf = calloc(1, BENCH_BUF);
	int fd, one = 1;

	place(PLACE_SERVER);
	if (!buf)
		die("memory is short");
	while ((fd = accept(s->listener, NULL, NULL)) >= 0) {
		if (s->at.ss.ss_family == AF_INET && s->order.mode != BENCH_ACCEPT)
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (s->order.mode == BENCH_ACCEPT) {
			close(fd);
			continue;
		}
		if (s->kind == SERVER_HANDED)
			handed_serve(s, fd);
		else if (s->kind == SERVER_MAIL)
			mail_serve(s, fd);
		else if (s->kind == SERVER_COPY)
			copy_serve(s, fd);
		else
			loop_serve(s, fd, buf);
		close(fd);
	}
	free(buf);
	return NULL;
}

static void server_memory(struct cpu_server *s)
{
	bool there = true;

	if (s->kind == SERVER_HANDED)
		there = (s->ring = aligned_alloc(4096, sizeof(*s->ring) + 4096 -
							       sizeof(*s->ring) % 4096)) != NULL;
	if (s->kind == SERVER_MAIL)
		there = (s->mail = s->k->shared_alloc(sizeof(*s->mail))) != NULL;
	if (s->kind == SERVER_COPY)
		there = (s->in = s->k->shared_alloc(1024)) && (s->out = s->k->shared_alloc(1024));
	if (!there)
		die("no memory for a server");
	if (s->ring)
		memset(s->ring, 0, sizeof(*s->ring));
}

struct cpu_server *cpu_server_start(enum server_kind kind, const char *transport,
				    const struct bench_kernels *k, unsigned conns)
{
	struct cpu_server *s = calloc(1, sizeof(*s));
	unsigned i;

	if (!s)
		die("memory is short");
	s->kind = kind;
	s->k = k;
	s->conns = conns;
	address_new(transport, &s->at);
	server_memory(s);
	s->listener = socket(s->at.ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&s->at.ss, s->at.len) != 0 ||
	    listen(s->listener, 4096) != 0 ||
	    getsockname(s->listener, (struct sockaddr *)&s->at.ss, &s->at.len) != 0)
		die("the CPU's server cannot listen: %s", strerror(errno));
	s->threads = kind == SERVER_SHARED ? SHARERS : 1;
	for (i = 0; i < s->threads; i++) {
		if (pthread_create(&s->thread[i], NULL,
				   kind == SERVER_SHARED ? shared_main : server_main, s) != 0)
			die("cannot start a server thread");
	}
	return s;
}

const struct address *cpu_server_address(const struct cpu_server *s)
{
	return &s->at;
}

struct bench_order *cpu_server_order(struct cpu_server *s)
{
	return &s->order;
}

void cpu_server_stop(struct cpu_server *s)
{
	unsigned i;

	shutdown(s->listener, SHUT_RDWR);
	for (i = 0; i < s->threads; i++)
		pthread_join(s->thread[i], NULL);
	close(s->listener);
	free(s->ring);
	free(s); /* memory that the GPU sees is left to the end of the process */
}
