/* SPDX-License-Identifier: BSD-3-Clause */
/* What gpunet perf prints: columns as perftest has them, a line of JSON a row, a line of progress. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "perf_run.h"

const char *perf_name(unsigned test)
{
	static const char *const names[PERF_TESTS] = {
		[PERF_STREAM_BW] = "stream_bw",
		[PERF_STREAM_LAT] = "stream_lat",
		[PERF_CONN_RATE] = "conn_rate",
		[PERF_DGRAM_LAT] = "dgram_lat",
	};

	return test < PERF_TESTS ? names[test] : NULL;
}

bool perf_is_latency(unsigned test)
{
	return test == PERF_STREAM_LAT || test == PERF_DGRAM_LAT;
}

void perf_header(const struct perf_opt *o)
{
	if (o->json)
		return;
	if (perf_is_latency(o->test))
		printf(" #bytes  #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  t_avg[usec]  "
		       "t_stdev[usec]  99%%[usec]  99.9%%[usec]%s\n",
		       o->test == PERF_DGRAM_LAT ? "  lost" : "");
	else if (o->test == PERF_STREAM_BW)
		puts(" #bytes  #iterations  BW peak[MiB/sec]  BW average[MiB/sec]  MsgRate[Mpps]");
	else
		puts(" #connections  seconds  rate[conn/sec]");
	fflush(stdout);
}

static void json_begin(const struct perf_run *r, uint64_t iterations)
{
	char url[URL_TEXT_MAX];

	url_format(&r->opt->url, url);
	putchar('{');
	json_member(true, "test", perf_name(r->hello.test));
	json_member(false, "device", r->kind);
	json_member(false, "url", url);
	printf(",\"size\":%llu,\"conns\":%u,\"iterations\":%llu", (unsigned long long)r->hello.size,
	       r->opt->conns, (unsigned long long)iterations);
}

/* ---- latency ------------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Ticks of one connection to microseconds, halved: one way, as perftest tells it. */
static void to_us(const struct perf_run *r, unsigned conn, double *us)
{
	const struct perf_result *p = &r->results[conn];
	double ticks = (double)(p->end_tick - p->begin_tick);
	double ns = ticks > 0 ? (double)(p->end - p->begin) / ticks : 1;
	uint64_t i;

	for (i = 0; i < r->hello.count; i++)
		us[i] = (double)r->ticks[conn * r->hello.count + i] * ns / 2e3;
}

struct summary {
	double min, max, typical, avg, stdev, p99, p999;
	uint64_t n, lost;
};

static int summarise(const struct perf_run *r, struct summary *s)
{
	double *us, sum = 0, squares = 0;
	uint64_t i;
	unsigned c;

	memset(s, 0, sizeof(*s));
	s->n = r->hello.count * r->opt->conns;
	us = malloc(s->n * sizeof(*us));
	if (!us)
		return tool_fail("memory is short");
	for (c = 0; c < r->opt->conns; c++) {
		to_us(r, c, us + c * r->hello.count);
		s->lost += r->results[c].lost;
	}
	qsort(us, s->n, sizeof(*us), compare);
	for (i = 0; i < s->n; i++)
		sum += us[i];
	s->avg = sum / (double)s->n;
	for (i = 0; i < s->n; i++)
		squares += (us[i] - s->avg) * (us[i] - s->avg);
	s->stdev = sqrt(squares / (double)s->n);
	s->min = us[0];
	s->max = us[s->n - 1];
	s->typical = us[s->n / 2];
	s->p99 = us[s->n * 99 / 100];
	s->p999 = us[s->n * 999 / 1000];
	free(us);
	return TOOL_DONE;
}

static int report_latency(const struct perf_run *r)
{
	struct summary s;
	int rc = summarise(r, &s);

	if (rc != TOOL_DONE)
		return rc;
	if (r->opt->json) {
		json_begin(r, s.n);
		printf(",\"t_min_us\":%.3f,\"t_max_us\":%.3f,\"t_typical_us\":%.3f,\"t_avg_us\":%.3f,"
		       "\"t_stdev_us\":%.3f,\"t_99_us\":%.3f,\"t_999_us\":%.3f,\"lost\":%llu",
		       s.min, s.max, s.typical, s.avg, s.stdev, s.p99, s.p999,
		       (unsigned long long)s.lost);
		if (r->hops)
			hops_json(r->hops);
		puts("}");
		return TOOL_DONE;
	}
	printf(" %-7llu %-12llu %-12.2f %-12.2f %-16.2f %-12.2f %-14.2f %-10.2f %-11.2f",
	       (unsigned long long)r->hello.size, (unsigned long long)s.n, s.min, s.max, s.typical,
	       s.avg, s.stdev, s.p99, s.p999);
	if (r->hello.test == PERF_DGRAM_LAT)
		printf("  %llu", (unsigned long long)s.lost);
	putchar('\n');
	if (r->hops)
		hops_text(r->hops);
	return TOOL_DONE;
}

/* ---- rates ---------------------------------------------------------------------------------------- */

/* From the first that began to the last that ended. */
static double seconds(const struct perf_run *r)
{
	uint64_t from = UINT64_MAX, to = 0;
	unsigned c;

	for (c = 0; c < r->opt->conns; c++) {
		from = r->results[c].begin < from ? r->results[c].begin : from;
		to = r->results[c].end > to ? r->results[c].end : to;
	}
	return to > from ? (double)(to - from) / 1e9 : 1e-9;
}

static void report_rate(const struct perf_run *r)
{
	uint64_t n = r->hello.count * r->opt->conns;
	double s = seconds(r), rate = (double)n / s, mib = (double)r->hello.size / 1048576;
	double peak = r->peak > rate ? r->peak : rate;

	if (r->opt->json)
		json_begin(r, n);
	if (r->hello.test == PERF_CONN_RATE && r->opt->json)
		printf(",\"seconds\":%.6f,\"conn_rate\":%.1f}\n", s, rate);
	else if (r->hello.test == PERF_CONN_RATE)
		printf(" %-13llu %-8.3f %.1f\n", (unsigned long long)n, s, rate);
	else if (r->opt->json)
		printf(",\"seconds\":%.6f,\"bw_peak_mib_s\":%.6g,\"bw_avg_mib_s\":%.6g,"
		       "\"msg_rate_mpps\":%.6g,\"reverse\":%s}\n",
		       s, peak * mib, rate * mib, rate / 1e6, r->opt->reverse ? "true" : "false");
	else
		printf(" %-7llu %-12llu %-17.2f %-20.2f %.6f\n", (unsigned long long)r->hello.size,
		       (unsigned long long)n, peak * mib, rate * mib, rate / 1e6);
}

/* A datagram has no connection that could be refused: nobody answers. */
static int fail(const struct perf_run *r, const struct perf_result *p)
{
	int err = (int)p->error;
	char url[URL_TEXT_MAX];

	if (r->hello.test != PERF_DGRAM_LAT)
		return tool_fail_step((enum tool_step)p->step, err, r->to);
	url_format(&r->opt->url, url);
	if (err == ECONNREFUSED || err == ETIMEDOUT || err == ENOENT)
		return tool_fail("nobody answers at %s: %s; start \"gpunet perf%s %s\" there", url,
				 strerror(err), r->opt->url.family == AF_UNIX ? " --dgram" : "",
				 url);
	return tool_fail("cannot exchange datagrams of %llu bytes with %s: %s",
			 (unsigned long long)r->hello.size, url, strerror(err));
}

int perf_report(struct perf_run *r)
{
	int rc = TOOL_DONE;
	unsigned c;

	for (c = 0; c < r->opt->conns; c++) {
		const struct perf_result *p = &r->results[c];

		if (p->error)
			return fail(r, p);
	}
	if (perf_is_latency(r->hello.test))
		rc = report_latency(r);
	else
		report_rate(r);
	fflush(stdout);
	return rc;
}

/* ---- progress -------------------------------------------------------------------------------------- */

uint64_t perf_done(const struct perf_run *r)
{
	uint64_t done = 0;
	unsigned c;

	for (c = 0; c < r->opt->conns; c++)
		done += __atomic_load_n(&r->results[c].done, __ATOMIC_RELAXED);
	return done;
}

bool perf_ended(const struct perf_run *r)
{
	unsigned c;

	for (c = 0; c < r->opt->conns; c++) {
		if (!__atomic_load_n(&r->results[c].ended, __ATOMIC_ACQUIRE))
			return false;
	}
	return true;
}

void perf_progress(struct perf_run *r)
{
	static struct perf_run *last;
	static double at;
	static uint64_t then;
	uint64_t done = perf_done(r), all = r->hello.count * r->opt->conns;
	struct timespec t;
	double now, rate;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (double)t.tv_sec + (double)t.tv_nsec / 1e9;
	/* Not from one run to the next, and not the rounds that warm up. */
	rate = last == r && now > at && done >= then && then ? (double)(done - then) / (now - at)
							     : 0;
	if (rate > r->peak)
		r->peak = rate;
	last = r;
	at = now;
	then = done;
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%s, %llu bytes: %llu of %llu\033[K", perf_name(r->hello.test),
			(unsigned long long)r->hello.size, (unsigned long long)done,
			(unsigned long long)all);
}

void perf_progress_end(void)
{
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
}

void perf_announce(const struct perf_opt *o, const struct tool_addr *bound)
{
	char text[URL_TEXT_MAX];
	struct url u;

	if (url_of_addr(&u, bound) == 0) {
		u.dgram = o->url.dgram;
		url_format(&u, text);
	} else {
		url_format_addr(bound, text);
	}
	printf("listening on %s\n", text);
	fflush(stdout);
}
