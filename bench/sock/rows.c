/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection: echo, streams, buffers that lie badly, curves over the message size. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sock.h"

#define REPS_MAX 16
#define STREAM_THREADS 512

static unsigned echo_threads(void)
{
	return opt.gpu ? 64 : 32;
}

static unsigned stream_threads(void)
{
	return opt.gpu ? STREAM_THREADS : 64;
}

static uint64_t stream_total(void)
{
	return UINT64_C(1) << (opt.gpu ? (opt.quick ? 28 : 31) : (opt.quick ? 26 : 29));
}

/* ---- echo -------------------------------------------------------------------------------------------------------------------- */

struct echo_runs {
	double p50[REPS_MAX], p99[REPS_MAX];
	struct echo_times t; /* the medians */
};

static void echo_run(const struct address *a, unsigned size, unsigned rounds, struct echo_runs *r,
		     unsigned rep)
{
	struct echo_times t;

	client_echo(a, size, rounds, &t);
	r->p50[rep] = t.p50;
	r->p99[rep] = t.p99;
}

static void echo_median(struct echo_runs *r, unsigned reps)
{
	r->t.p50 = median(r->p50, reps);
	r->t.p99 = median(r->p99, reps);
}

static unsigned echo_rounds(unsigned size)
{
	unsigned n = opt.quick ? 2000 : 20000;

	n = opt.gpu ? n : n / 2;
	return size > 4096 ? n / 10 : n;
}

/* By way of the GPU without gpunet. */
static void echo_without(enum server_kind kind, const char *transport, struct echo_runs *r)
{
	struct cpu_server *s = cpu_server_start(kind, transport, bench_kernels(), 1);
	unsigned i;

	cpu_server_order(s)->mode = BENCH_ECHO;
	place(PLACE_CLIENT);
	for (i = 0; i < opt.reps; i++)
		echo_run(cpu_server_address(s), 64, echo_rounds(64), r, i);
	place(PLACE_ANY);
	cpu_server_stop(s);
	echo_median(r, opt.reps);
}

static void echo_report(const char *name, const char *transport, double ours, const char *peer_name,
			double peer, const char *bar, bool good)
{
	struct figure f = { name, transport, 64, 1, ours, peer_name, peer, "us", bar, good };

	if (!strcmp(bar, "recorded"))
		f.good = -1;
	report(&f);
}

/* Kernel and spinning CPU, a run of each in turn. */
static void echo_both(const char *transport, unsigned size, unsigned reps, struct echo_runs *ours,
		      struct echo_runs *cpu)
{
	const struct bench_order o = { BENCH_ECHO, BENCH_BUF, 0, 0 };
	struct cpu_server *c = cpu_server_start(SERVER_LOOP, transport, NULL, 1);
	struct gpu_server s;
	unsigned i;

	gpu_server_open(&s, transport, NULL);
	gpu_server_serve(&s, 1, 0, 0, echo_threads());
	gpu_server_order(&s, &o);
	*cpu_server_order(c) = o;
	place(PLACE_CLIENT);
	for (i = 0; i < reps; i++) {
		echo_run(cpu_server_address(c), size, echo_rounds(size), cpu, i);
		echo_run(&s.at, size, echo_rounds(size), ours, i);
	}
	place(PLACE_ANY);
	gpu_server_close(&s);
	cpu_server_stop(c);
	echo_median(ours, reps);
	echo_median(cpu, reps);
}

void row_echo(const char *transport)
{
	struct echo_runs ours, r;

	echo_both(transport, 64, opt.reps, &ours, &r);
	echo_report("echo p50", transport, ours.t.p50, "CPU server, spinning", r.t.p50,
		    "<= 2.8 us more", ours.t.p50 - r.t.p50 <= 2.8);
	echo_report("echo p99", transport, ours.t.p99, "CPU server, spinning", r.t.p99, "recorded",
		    false);
	if (!opt.gpu)
		return;
	echo_without(SERVER_MAIL, transport, &r);
	echo_report("echo p50", transport, ours.t.p50, "hand-written kernel, pinned flags", r.t.p50,
		    "<= 1.10", ours.t.p50 <= 1.1 * r.t.p50);
	echo_report("echo p99", transport, ours.t.p99, "hand-written kernel, pinned flags", r.t.p99,
		    "<= 1.10", ours.t.p99 <= 1.1 * r.t.p99);
	echo_without(SERVER_COPY, transport, &r);
	echo_report("echo p50", transport, ours.t.p50, "CPU server, copy-launch-copy", r.t.p50,
		    "<= 0.526", ours.t.p50 * 1.9 <= r.t.p50);
}

/* ---- streams ------------------------------------------------------------------------------------------------------------------ */

static const char *stream_name(enum bench_mode mode)
{
	return mode == BENCH_SINK ? "stream to the kernel" : "stream from the kernel";
}

static void stream_report(enum bench_mode mode, const char *transport, uint64_t size, double ours,
			  const char *peer_name, double peer, const char *bar, double least)
{
	struct figure f = { stream_name(mode), transport, size,   1,   ours,
			    peer_name,         peer,      "GB/s", bar, ours >= least * peer };

	report(&f);
}

static double cpu_stream(struct cpu_server *c, enum bench_mode mode, uint64_t total)
{
	struct bench_order o = { mode, 0, 0, total };

	*cpu_server_order(c) = o;
	return client_stream(cpu_server_address(c), mode, total);
}

static double our_stream(struct gpu_server *s, enum bench_mode mode, uint64_t total, uint64_t chunk,
			 uint64_t offset)
{
	struct bench_order o = { mode, chunk, offset, total };
	double gbs;

	gpu_server_order(s, &o);
	gbs = client_stream(&s->at, mode, total);
	gpu_server_check(s);
	return gbs;
}

void row_stream(const char *transport)
{
	static const enum bench_mode modes[] = { BENCH_SINK, BENCH_SOURCE };
	struct cpu_server *loop = cpu_server_start(SERVER_LOOP, transport, NULL, 1);
	struct cpu_server *handed = cpu_server_start(SERVER_HANDED, transport, NULL, 1);
	double ours[REPS_MAX], a[REPS_MAX], b[REPS_MAX], x;
	uint64_t total = stream_total();
	struct gpu_server s;
	unsigned m, i;

	gpu_server_open(&s, transport, NULL);
	gpu_server_serve(&s, 1, 0, 0, stream_threads());
	place(PLACE_CLIENT);
	for (m = 0; m < 2; m++) {
		for (i = 0; i < opt.reps; i++) {
			a[i] = cpu_stream(handed, modes[m], total);
			b[i] = cpu_stream(loop, modes[m], total);
			ours[i] = our_stream(&s, modes[m], total, BENCH_BUF, 0);
		}
		x = median(ours, opt.reps);
		stream_report(modes[m], transport, BENCH_BUF, x,
			      "CPU, bytes handed to another core by a ring of 1 MiB",
			      median(a, opt.reps), ">= 0.95", 0.95);
		stream_report(modes[m], transport, BENCH_BUF, x, "CPU loop that touches no byte",
			      median(b, opt.reps), ">= 0.80", 0.80);
	}
	place(PLACE_ANY);
	gpu_server_close(&s);
	cpu_server_stop(loop);
	cpu_server_stop(handed);
}

/* ---- buffers and sizes that are not aligned --------------------------------------------------------------------------------------- */

static const struct {
	uint64_t chunk, offset;
} skewed[] = { { 65536, 1 }, { 65536, 7 },  { 65536, 15 }, { 65535, 0 },
	       { 65537, 0 }, { 65537, 13 }, { 4095, 3 } };

#define SKEWED (sizeof(skewed) / sizeof(skewed[0]))

/* The aligned figure that a variant is compared with has the next power of two as its size. */
static uint64_t aligned_chunk(uint64_t chunk)
{
	return chunk < 8192 ? 4096 : 65536;
}

static void unaligned_one(struct gpu_server *s, enum bench_mode mode, const char *transport)
{
	uint64_t total = stream_total() / 4;
	double worst = INFINITY, ours = 0, peer = 0, v[REPS_MAX], w[REPS_MAX];
	char peer_name[80] = "";
	unsigned k, i;

	for (k = 0; k < SKEWED; k++) {
		uint64_t chunk = skewed[k].chunk, offset = skewed[k].offset;

		for (i = 0; i < opt.reps; i++) {
			w[i] = our_stream(s, mode, total, aligned_chunk(chunk), 0);
			v[i] = our_stream(s, mode, total, chunk, offset);
		}
		if (median(v, opt.reps) / median(w, opt.reps) >= worst)
			continue;
		ours = median(v, opt.reps);
		peer = median(w, opt.reps);
		worst = ours / peer;
		snprintf(peer_name, sizeof(peer_name),
			 "aligned; the worst of %u is %u B at offset %u", (unsigned)SKEWED,
			 (unsigned)chunk, (unsigned)offset);
	}
	stream_report(mode, transport, 65536, ours, peer_name, peer, ">= 0.70", 0.70);
}

void row_unaligned(const char *transport)
{
	struct gpu_server s;

	gpu_server_open(&s, transport, NULL);
	gpu_server_serve(&s, 1, 0, 0, stream_threads());
	place(PLACE_CLIENT);
	unaligned_one(&s, BENCH_SINK, transport);
	unaligned_one(&s, BENCH_SOURCE, transport);
	place(PLACE_ANY);
	gpu_server_close(&s);
}

/* ---- curves over the message size ------------------------------------------------------------------------------------------------- */

static void curve_point(const char *name, const char *transport, uint64_t size, double ours,
			double peer, const char *unit)
{
	struct figure f = { name, transport, size,       1, ours, "CPU server, spinning",
			    peer, unit,      "recorded", -1 };

	report(&f);
}

static void curve_stream(struct gpu_server *s, struct cpu_server *c, enum bench_mode mode,
			 const char *transport, uint64_t size)
{
	uint64_t most = stream_total() / 4, total = size * 8192;
	double ours[REPS_MAX], cpu[REPS_MAX];
	unsigned i, reps = opt.quick ? 1 : 3;

	total = total < most ? total : most;
	for (i = 0; i < reps; i++) {
		*cpu_server_order(c) = (struct bench_order){ mode, size, 0, total };
		cpu[i] = client_stream(cpu_server_address(c), mode, total);
		ours[i] = our_stream(s, mode, total, size, 0);
	}
	curve_point(mode == BENCH_SINK ? "curve to the kernel" : "curve from the kernel", transport,
		    size, median(ours, reps), median(cpu, reps), "GB/s");
}

void row_curves(const char *transport)
{
	static const unsigned sizes[] = {
		1, 16, 64, 105, 106, 256, 1024, 4096, 16384, 65536, 262144
	};
	struct cpu_server *c;
	struct echo_runs ours, cpu;
	struct gpu_server s;
	uint64_t size;
	unsigned i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		echo_both(transport, sizes[i], opt.quick ? 1 : 3, &ours, &cpu);
		curve_point("curve echo p50", transport, sizes[i], ours.t.p50, cpu.t.p50, "us");
	}
	c = cpu_server_start(SERVER_LOOP, transport, NULL, 1);
	gpu_server_open(&s, transport, NULL);
	gpu_server_serve(&s, 1, 0, 0, stream_threads());
	place(PLACE_CLIENT);
	for (size = 64; size <= BENCH_BUF; size *= 4) {
		curve_stream(&s, c, BENCH_SINK, transport, size);
		curve_stream(&s, c, BENCH_SOURCE, transport, size);
	}
	place(PLACE_ANY);
	gpu_server_close(&s);
	cpu_server_stop(c);
}
