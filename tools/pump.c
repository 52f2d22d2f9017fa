/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves bytes between standard input, standard output and one socket, and waits in poll only. */
#include "pump.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER (64 << 10)
#define PAUSE_MS 200 /* input that pauses for so long after the peer's end is not waited for */
#define TICK_MS 1000 /* how often `over` is asked */

struct flow {
	int from, to;
	size_t at, end; /* bytes that were read and are still to be written */
	size_t most;    /* bytes a read */
	size_t chunk;   /* bytes a write */
	bool ended;     /* nothing more comes, or may be written */
	int read_error, write_error;
	char buffer[PUMP_DGRAM_MOST];
};

/* What the flow waits for. */
static void flow_want(const struct flow *f, struct pollfd *p)
{
	p->fd = f->ended ? -1 : f->at < f->end ? f->to : f->from;
	p->events = f->at < f->end ? POLLOUT : POLLIN;
	p->revents = 0;
}

static bool again(void)
{
	return errno == EINTR || errno == EAGAIN;
}

static void flow_read(struct flow *f)
{
	ssize_t n = read(f->from, f->buffer, f->most);

	if (n > 0) {
		f->at = 0;
		f->end = (size_t)n;
	} else if (n == 0 || !again()) {
		f->read_error = n < 0 ? errno : 0;
		f->ended = true;
	}
}

static void flow_write(struct flow *f)
{
	size_t left = f->end - f->at;
	ssize_t n = write(f->to, f->buffer + f->at, left < f->chunk ? left : f->chunk);

	if (n >= 0) {
		f->at += (size_t)n;
	} else if (!again()) {
		f->write_error = errno;
		f->ended = true;
	}
}

static void flow_step(struct flow *f)
{
	if (f->at < f->end)
		flow_write(f);
	else
		flow_read(f);
}

/* A write of more than a pipe is sure to take would block, and the other direction with it. */
static size_t chunk_for(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? BUFFER : PIPE_BUF;
}

void pump(int in, int out, int sock, int stop, bool (*over)(void *arg), void *arg,
	  struct pump_end *end)
{
	static struct flow up, down;
	bool shut = false;

	up = (struct flow){ .from = in, .to = sock, .most = BUFFER, .chunk = BUFFER };
	down = (struct flow){ .from = sock, .to = out, .most = BUFFER, .chunk = chunk_for(out) };
	while (!down.ended || !up.ended) {
		struct pollfd p[3] = { { .fd = stop, .events = POLLIN } };
		bool pause = down.ended && up.at == up.end;
		int n;

		flow_want(&up, &p[1]);
		flow_want(&down, &p[2]);
		n = poll(p, 3, pause ? PAUSE_MS : TICK_MS);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || p[0].revents)
			break;
		if (n == 0 && (pause || over(arg)))
			break;
		if (p[1].revents)
			flow_step(&up);
		if (p[2].revents)
			flow_step(&down);
		if (up.ended && !shut)
			shut = shutdown(sock, SHUT_WR) == 0 || errno != EINTR;
		/* Without standard output there is no use in going on. */
		if (down.write_error)
			break;
	}
	if (!shut)
		shutdown(sock, SHUT_WR);
	end->read_error = up.read_error;
	end->write_error = down.write_error;
}

void pump_dgrams(const struct pump_dgrams *d, bool (*over)(void *arg), void *arg,
		 struct pump_end *end)
{
	static struct flow up, down;
	bool asked = false, full = false;

	up = (struct flow){ .from = d->in, .to = d->sock, .most = d->most, .chunk = d->most };
	down = (struct flow){
		.from = d->sock, .to = d->out, .most = PUMP_DGRAM_MOST, .chunk = chunk_for(d->out)
	};
	while (!down.ended) {
		struct pollfd p[3] = { { .fd = d->stop, .events = POLLIN } };
		bool ask = up.ended && !asked;
		int n;

		flow_want(&up, &p[1]);
		flow_want(&down, &p[2]);
		n = poll(p, 3, ask && !full ? (int)d->quiet_ms : TICK_MS);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || p[0].revents || (n == 0 && over(arg)))
			break;
		if (n == 0 && ask) {
			asked = send(d->sock, "", 0, MSG_NOSIGNAL) == 0;
			full = !asked;
		}
		if (p[1].revents)
			flow_step(&up);
		if (p[2].revents)
			flow_step(&down);
	}
	if (!asked)
		(void)send(d->sock, "", 0, MSG_NOSIGNAL);
	end->read_error = up.read_error;
	end->write_error = down.write_error;
}
