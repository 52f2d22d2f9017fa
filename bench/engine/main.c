/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One question: would io_uring serve the proxy's sockets cheaper than epoll and non-blocking calls? An echo server of each kind, one
 * thread, against one client; the client writes to all connections, then reads from all. A JSON line a case: processor time of the server's
 * thread a message, system calls a message, messages a second; medians of `rounds` runs, the engines in turns.
 */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

#define ROUNDS 7
#define ENGINES 3

struct run {
	const struct engine *engine;
	int unix_, n;
	size_t size;
	unsigned turns;
	int server[ENGINE_MOST], client[ENGINE_MOST];
	uint8_t (*room)[ENGINE_ROOM];
	int rc;
	uint64_t calls;
	double cpu_s, wall_s;
};

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int tcp_pair(int pair[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

	rc = l < 0 || bind(l, (struct sockaddr *)&a, n) || listen(l, 1) ||
	     getsockname(l, (struct sockaddr *)&a, &n);
	pair[0] = rc ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rc = rc || pair[0] < 0 || connect(pair[0], (struct sockaddr *)&a, n);
	pair[1] = rc ? -1 : accept4(l, NULL, NULL, SOCK_CLOEXEC);
	if (l >= 0)
		close(l);
	return pair[1] < 0 ? -errno : 0;
}

static void *server_main(void *arg)
{
	struct run *r = arg;
	double start = seconds(CLOCK_THREAD_CPUTIME_ID);

	r->rc = r->engine->serve(r->server, r->n, r->room, &r->calls);
	r->cpu_s = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
	return NULL;
}

static int transfer(int fd, uint8_t *data, size_t n, int out)
{
	while (n) {
		ssize_t k = out ? send(fd, data, n, MSG_NOSIGNAL) : recv(fd, data, n, 0);

		if (k <= 0)
			return -1;
		data += k;
		n -= (size_t)k;
	}
	return 0;
}

static int client(struct run *r)
{
	static uint8_t data[ENGINE_ROOM];
	unsigned t;
	int i, rc = 0;

	for (t = 0; t < r->turns && !rc; t++) {
		for (i = 0; i < r->n; i++)
			rc |= transfer(r->client[i], data, r->size, 1);
		for (i = 0; i < r->n; i++)
			rc |= transfer(r->client[i], data, r->size, 0);
	}
	return rc;
}

/* One run: 0 or a negative errno. */
static int measure(struct run *r)
{
	pthread_t t;
	int i, pair[2], rc = 0;

	for (i = 0; i < r->n; i++) {
		rc = r->unix_ ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)
			      : tcp_pair(pair);
		if (rc)
			return -errno;
		r->client[i] = pair[0];
		r->server[i] = pair[1];
	}
	r->calls = 0;
	rc = -pthread_create(&t, NULL, server_main, r);
	if (!rc) {
		r->wall_s = seconds(CLOCK_MONOTONIC);
		rc = client(r) ? -EIO : 0;
		r->wall_s = seconds(CLOCK_MONOTONIC) - r->wall_s;
		for (i = 0; i < r->n; i++)
			shutdown(r->client[i], SHUT_WR);
		pthread_join(t, NULL);
	}
	for (i = 0; i < r->n; i++) {
		close(r->client[i]);
		close(r->server[i]);
	}
	return r->rc ? r->rc : rc;
}

static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return d < 0 ? -1 : d > 0;
}

static int row(int unix_, int n, size_t size, unsigned turns, uint8_t (*room)[ENGINE_ROOM])
{
	const struct engine *const engines[ENGINES] = { &engine_epoll, &engine_epoll_short,
							&engine_uring };
	double cpu[ENGINES][ROUNDS], rate[ENGINES][ROUNDS], calls[ENGINES] = { 0 };
	double messages = (double)turns * n;
	int e, i, rc;

	for (i = 0; i < ROUNDS; i++) {
		for (e = 0; e < ENGINES; e++) {
			struct run r = { .engine = engines[e],
					 .unix_ = unix_,
					 .n = n,
					 .size = size,
					 .turns = turns,
					 .room = room };

			rc = measure(&r);
			if (rc) {
				fprintf(stderr, "bench-engine: %s: %s\n", engines[e]->name,
					strerror(-rc));
				return rc;
			}
			cpu[e][i] = r.cpu_s * 1e6 / messages;
			rate[e][i] = messages / r.wall_s;
			calls[e] = (double)r.calls / messages;
		}
	}
	for (e = 0; e < ENGINES; e++) {
		qsort(cpu[e], ROUNDS, sizeof(double), by_value);
		qsort(rate[e], ROUNDS, sizeof(double), by_value);
		printf("{\"name\":\"engine\",\"engine\":\"%s\",\"transport\":\"%s\",\"conns\":%d,\"size\":%zu,"
		       "\"cpu_us\":%.3f,\"calls\":%.2f,\"per_s\":%.0f}\n",
		       engines[e]->name, unix_ ? "unix" : "tcp", n, size, cpu[e][ROUNDS / 2],
		       calls[e], rate[e][ROUNDS / 2]);
	}
	fflush(stdout);
	return 0;
}

int main(void)
{
	static const struct {
		int n;
		size_t size;
		unsigned turns;
	} rows[] = { { 1, 64, 20000 },   { 8, 64, 4000 },    { 100, 64, 400 },
		     { 1, 16384, 4000 }, { 100, 4096, 200 }, { 1, 131072, 1000 } };
	uint8_t(*room)[ENGINE_ROOM] = calloc(ENGINE_MOST, ENGINE_ROOM);
	int unix_, rc = room ? 0 : -ENOMEM;
	unsigned i;

	for (unix_ = 0; unix_ < 2 && !rc; unix_++)
		for (i = 0; i < sizeof(rows) / sizeof(rows[0]) && !rc; i++)
			rc = row(unix_, rows[i].n, rows[i].size, rows[i].turns, room);
	free(room);
	return rc ? 1 : 0;
}
