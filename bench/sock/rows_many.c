/* SPDX-License-Identifier: BSD-3-Clause */
/* Many connections, many blocks, and none that does anything. */
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sock.h"

#define REPS_MAX 16
#define CONNS 8
#define BUSY 100
#define MANY 10000
#define WAITERS 131

static void sleep_us(double us)
{
	double end = now_us() + us, left;

	while ((left = end - now_us()) > 0)
		usleep(left > 1e5 ? 100000 : (useconds_t)left + 1);
}

/* ---- 8 connections on 4 proxy threads --------------------------------------------------------------------------------------- */

static void streams8_one(struct gpu_server *s, struct cpu_server *c, enum bench_mode mode,
			 const char *transport)
{
	uint64_t total = UINT64_C(1) << (opt.quick ? 25 : opt.gpu ? 29 : 27);
	struct bench_order o = { mode, BENCH_BUF, 0, total };
	double ours[REPS_MAX], cpu[REPS_MAX];
	struct figure f = { mode == BENCH_SINK ? "streams to the kernel"
					       : "streams from the kernel",
			    transport,
			    BENCH_BUF,
			    CONNS,
			    0,
			    "4 CPU threads serve 8",
			    0,
			    "GB/s",
			    ">= 0.90",
			    0 };
	unsigned i;

	for (i = 0; i < opt.reps; i++) {
		*cpu_server_order(c) = o;
		cpu[i] = client_streams(cpu_server_address(c), mode, total, CONNS);
		gpu_server_order(s, &o);
		ours[i] = client_streams(&s->at, mode, total, CONNS);
		gpu_server_check(s);
	}
	f.ours = median(ours, opt.reps);
	f.peer = median(cpu, opt.reps);
	f.good = f.ours >= 0.9 * f.peer;
	report(&f);
}

void row_streams8(const char *transport)
{
	struct cpu_server *c = cpu_server_start(SERVER_SHARED, transport, NULL, CONNS);
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct gpu_server s;

	o.proxy_threads = 4;
	gpu_server_open(&s, transport, &o);
	gpu_server_serve(&s, CONNS, 0, 0, opt.gpu ? 512 : 64);
	streams8_one(&s, c, BENCH_SINK, transport);
	streams8_one(&s, c, BENCH_SOURCE, transport);
	gpu_server_close(&s);
	cpu_server_stop(c);
}

/* ---- accepts ------------------------------------------------------------------------------------------------------------------ */

void row_accepts(const char *transport)
{
	struct cpu_server *c = cpu_server_start(SERVER_LOOP, transport, NULL, 1);
	struct bench_order o = { BENCH_ACCEPT, BENCH_BUF, 0, 0 };
	struct figure f = { "accepts", transport, 0,         1, 0, "CPU loop on one thread",
			    0,         "1/s",     ">= 0.50", 0 };
	unsigned count = opt.quick ? 2000 : 10000, i;
	double ours[REPS_MAX], cpu[REPS_MAX];
	struct gpu_server s;

	gpu_server_open(&s, transport, NULL);
	gpu_server_serve(&s, opt.gpu ? 16 : 4, 0, 0, 32);
	gpu_server_order(&s, &o);
	*cpu_server_order(c) = o;
	for (i = 0; i < opt.reps; i++) {
		cpu[i] = client_accepts(cpu_server_address(c), count);
		ours[i] = client_accepts(&s.at, count);
	}
	f.ours = median(ours, opt.reps);
	f.peer = median(cpu, opt.reps);
	f.good = f.ours >= 0.5 * f.peer;
	report(&f);
	gpu_server_close(&s);
	cpu_server_stop(c);
}

/* ---- 100 busy among 10,000 ------------------------------------------------------------------------------------------------------ */

/* Two descriptors a connection in this process: how many idle ones there can be. */
static unsigned idle_conns(void)
{
	struct rlimit l;
	unsigned most;

	if (getrlimit(RLIMIT_NOFILE, &l) != 0)
		die("cannot ask for the limit of open files");
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	if (l.rlim_max == RLIM_INFINITY || l.rlim_max > 2 * MANY + 1000)
		return MANY - BUSY;
	most = l.rlim_max < 2000 ? 500 : (unsigned)l.rlim_max;
	return (most - 500) / 2 - BUSY;
}

static double pinned_bytes(struct gpu_server *s, uint64_t *segments)
{
	struct gpunet_stats st = { .size = sizeof(st) };

	if (gpunet_get_stats(s->g, &st))
		die("no figures of the network: %s", gpunet_last_error());
	*segments = st.slab_segments_used;
	return (double)st.pinned_bytes;
}

/* Pinned bytes that room for more sockets costs, from two networks of different size. */
static double bytes_a_slot(const char *transport, const struct gpunet_options *big)
{
	struct gpunet_options o = *big;
	uint64_t segments;
	struct gpu_server s;
	double small;

	gpu_server_open(&s, transport, big);
	small = pinned_bytes(&s, &segments);
	gpu_server_close(&s);
	o.max_sockets *= 2;
	gpu_server_open(&s, transport, &o);
	small = (pinned_bytes(&s, &segments) - small) / big->max_sockets;
	gpu_server_close(&s);
	return small;
}

static void report_memory(const char *transport, unsigned conns, double bytes)
{
	struct figure f = { "pinned memory of an idle socket",
			    transport,
			    0,
			    conns,
			    bytes,
			    "",
			    NAN,
			    "bytes",
			    "<= 1024",
			    bytes <= 1024 };

	report(&f);
}

static void open_idle(struct gpu_server *s, int *fd, unsigned n)
{
	double end = now_us() + 20e6;
	unsigned i;

	for (i = 0; i < n; i++)
		fd[i] = dial(&s->second_at);
	while (__atomic_load_n(&s->shared->held, __ATOMIC_ACQUIRE) < n) {
		gpu_server_check(s);
		if (now_us() > end)
			die("the kernel has accepted %u of %u connections in 20 s",
			    (unsigned)s->shared->held, n);
		usleep(1000);
	}
}

/*
 * Messages a second by the busy connections of a new network that has `idle` others, and what the slab has in use for an idle
 * one. fd has room for all of them.
 */
static double busy_among(const char *transport, const struct gpunet_options *big, int *fd,
			 unsigned idle, double *slab_bytes)
{
	struct bench_order o = { BENCH_ECHO, 4096, 0, 0 };
	uint64_t before, after;
	struct gpu_server s;
	double rate;
	unsigned i;

	gpu_server_open(&s, transport, big);
	gpu_server_serve(&s, BUSY, 8, 0, 32);
	gpu_server_order(&s, &o);
	for (i = 0; i < BUSY; i++)
		fd[i] = dial(&s.at);
	client_busy(fd, BUSY, 0.05);
	pinned_bytes(&s, &before);
	open_idle(&s, fd + BUSY, idle);
	pinned_bytes(&s, &after);
	*slab_bytes = idle ? (double)(after - before) * RING_BYTES / idle : 0;
	rate = client_busy(fd, BUSY, opt.quick ? 0.3 : 1);
	for (i = 0; i < idle + BUSY; i++)
		close(fd[i]);
	gpu_server_close(&s);
	return rate;
}

/* In turns: what the machine's speed does meets both. */
void row_sockets10k(const char *transport)
{
	struct gpunet_options big = GPUNET_OPTIONS_INIT;
	unsigned idle = idle_conns(), i;
	struct figure f = { "64 B messages, 100 busy sockets",
			    transport,
			    64,
			    idle + BUSY,
			    0,
			    "100 busy among 100",
			    0,
			    "1/s",
			    ">= 0.90",
			    0 };
	int *fd = calloc(idle + BUSY, sizeof(*fd));
	double ours[REPS_MAX], alone[REPS_MAX], none, bytes;

	if (!fd)
		die("memory is short");
	big.max_sockets = 12288;
	big.cpu_blocks = 256;
	for (i = 0; i < opt.reps; i++) {
		alone[i] = busy_among(transport, &big, fd, 0, &none);
		ours[i] = busy_among(transport, &big, fd, idle, &bytes);
	}
	f.ours = median(ours, opt.reps);
	f.peer = median(alone, opt.reps);
	f.good = f.ours >= 0.9 * f.peer;
	report(&f);
	free(fd);
	report_memory(transport, idle, bytes_a_slot(transport, &big) + bytes);
}

/* ---- a stream beside 131 blocks that wait --------------------------------------------------------------------------------------- */

static void waiters_measure(const char *transport, unsigned waiters, double gbs[2], unsigned *there)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	uint64_t total = UINT64_C(1) << (opt.gpu ? (opt.quick ? 28 : 31) : (opt.quick ? 25 : 28));
	double v[REPS_MAX], end;
	struct gpu_server s;
	int fd[WAITERS];
	unsigned i, m, conns = 0;

	o.cpu_blocks = WAITERS + 1;
	gpu_server_open(&s, transport, &o);
	gpu_server_serve(&s, 1, 0, waiters, opt.gpu ? 512 : 32);
	for (i = 1; i <= waiters; i++) {
		if (i % 3 != 0)
			fd[conns++] = dial(&s.second_at);
	}
	/* A GPU that has fewer multiprocessors does not start them all. */
	end = now_us() + 3e6;
	while (__atomic_load_n(&s.shared->ready, __ATOMIC_ACQUIRE) < waiters && now_us() < end)
		usleep(1000);
	*there = (unsigned)__atomic_load_n(&s.shared->ready, __ATOMIC_ACQUIRE);
	sleep_us(50000);
	place(PLACE_CLIENT);
	for (m = 0; m < 2; m++) {
		struct bench_order order = { m ? BENCH_SOURCE : BENCH_SINK, BENCH_BUF, 0, total };

		gpu_server_order(&s, &order);
		for (i = 0; i < opt.reps; i++)
			v[i] = client_stream(&s.at, order.mode, total);
		gbs[m] = median(v, opt.reps);
	}
	place(PLACE_ANY);
	gpu_server_close(&s);
	for (i = 0; i < conns; i++)
		close(fd[i]);
}

void row_waiters(const char *transport)
{
	double alone[2], with[2];
	char peer_name[64];
	unsigned there, m;

	waiters_measure(transport, 0, alone, &there);
	waiters_measure(transport, WAITERS, with, &there);
	snprintf(peer_name, sizeof(peer_name), "alone (here beside %u waiting blocks)", there);
	for (m = 0; m < 2; m++) {
		struct figure f = { m ? "stream from the kernel" : "stream to the kernel",
				    transport,
				    BENCH_BUF,
				    1,
				    with[m],
				    peer_name,
				    alone[m],
				    "GB/s",
				    ">= 0.95",
				    with[m] >= 0.95 * alone[m] };

		report(&f);
	}
}

/* ---- nothing to do -------------------------------------------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void idle_report(const char *name, const char *transport, double ours, const char *unit,
			const char *bar, bool good)
{
	struct figure f = { name, transport, 64, 1, ours, "", NAN, unit, bar, good };

	report(&f);
}

static double round_trip(int fd)
{
	char out[64] = "after silence", in[64];
	double start = now_us();
	size_t got = 0;

	if (send_all(fd, out, sizeof(out)) < 0)
		die("the connection has ended");
	while (got < sizeof(in)) {
		ssize_t n = spin_recv(fd, in + got, sizeof(in) - got);

		if (n <= 0)
			die("the connection has ended");
		got += (size_t)n;
	}
	return now_us() - start;
}

/* How late a message is after silence: the first one against those that follow it. */
static double late_by_network(int fd)
{
	double first = round_trip(fd), warm[200];
	unsigned i;

	for (i = 0; i < 200; i++)
		warm[i] = round_trip(fd);
	return first - median(warm, 200);
}

static double from_kernel(struct gpu_server *s, int fd, uint64_t seq)
{
	char in[64];
	double start = now_us();
	size_t got = 0;

	__atomic_store_n(&s->shared->go, seq, __ATOMIC_RELEASE);
	while (got < sizeof(in)) {
		ssize_t n = spin_recv(fd, in + got, sizeof(in) - got);

		if (n <= 0)
			die("the connection has ended");
		got += (size_t)n;
	}
	return now_us() - start;
}

static void idle_network(const char *transport, double pause_us)
{
	struct bench_order o = { BENCH_ECHO, 4096, 0, 0 };
	unsigned reps = opt.quick ? 1 : 3, i;
	double late[3], used, start;
	struct gpu_server s;
	int fd;

	gpu_server_open(&s, transport, NULL);
	gpu_server_serve(&s, 1, 0, 0, opt.gpu ? 64 : 32);
	gpu_server_order(&s, &o);
	place(PLACE_CLIENT);
	fd = dial(&s.at);
	round_trip(fd);
	sleep_us(500000);
	used = cpu_seconds();
	start = now_us();
	for (i = 0; i < reps; i++) {
		sleep_us(pause_us);
		if (i == 0) {
			used = (cpu_seconds() - used) / (now_us() - start) * 1e8;
			idle_report("CPU of an idle network", transport, used, "% of a core", "< 2",
				    used < 2);
		}
		late[i] = late_by_network(fd);
	}
	place(PLACE_ANY);
	close(fd);
	gpu_server_close(&s);
	idle_report("first message from the network, late", transport, median(late, reps), "us",
		    "< 200 (at once)", median(late, reps) < 200);
}

static void idle_kernel(const char *transport, double pause_us)
{
	unsigned reps = opt.quick ? 1 : 3, i, k;
	double late[3], warm[100];
	struct gpu_server s;
	uint64_t seq = 0;
	int fd;

	gpu_server_open(&s, transport, NULL);
	gpu_server_late(&s, opt.gpu ? 64 : 32);
	place(PLACE_CLIENT);
	fd = dial(&s.at);
	from_kernel(&s, fd, ++seq);
	for (i = 0; i < reps; i++) {
		sleep_us(pause_us);
		late[i] = from_kernel(&s, fd, ++seq);
		for (k = 0; k < 100; k++)
			warm[k] = from_kernel(&s, fd, ++seq);
		late[i] -= median(warm, 100);
	}
	__atomic_store_n(&s.shared->go, BENCH_GO_END, __ATOMIC_RELEASE);
	place(PLACE_ANY);
	close(fd);
	gpu_server_close(&s);
	idle_report("first message from the kernel, late", transport, median(late, reps), "us",
		    "<= 1500", median(late, reps) <= 1500);
}

void row_idle(const char *transport)
{
	idle_network(transport, 5e6);
	idle_kernel(transport, 5e6);
}
