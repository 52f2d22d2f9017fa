/* SPDX-License-Identifier: BSD-3-Clause */
#include "figure.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void die(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s: %s: %s\n", bench.name, bench.row, text);
	/* Threads, processes and a resident kernel may be anywhere. */
	_exit(1);
}

static void too_late(int number)
{
	static const char text[] = ": the row's time limit is over\n";

	(void)number;
	if (write(STDERR_FILENO, bench.name, strlen(bench.name)) < 0 ||
	    write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(4);
	_exit(3);
}

void limit_rows(void)
{
	signal(SIGALRM, too_late);
}

/* ---- time and medians -------------------------------------------------------------------------------------------------------- */

double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double percentile(double *v, unsigned n, double p)
{
	unsigned i = (unsigned)((double)n * p / 100);

	qsort(v, n, sizeof(*v), compare);
	return v[i < n ? i : n - 1];
}

double median(double *v, unsigned n)
{
	double high = percentile(v, n, 50);

	return n % 2 ? high : (high + v[n / 2 - 1]) / 2;
}

/* ---- figures ------------------------------------------------------------------------------------------------------------------ */

static void json_number(const char *key, double v)
{
	if (isfinite(v))
		fprintf(bench.json, ",\"%s\":%.6g", key, v);
	else
		fprintf(bench.json, ",\"%s\":null", key);
}

static void report_json(const struct figure *f)
{
	fprintf(bench.json,
		"{\"name\":\"%s\",\"device\":\"%s\",\"transport\":\"%s\",\"size\":%llu,\"conns\":%u",
		f->name, bench.device, f->transport, (unsigned long long)f->size, f->conns);
	json_number("ours", f->ours);
	fprintf(bench.json, ",\"peer_name\":\"%s\"", f->peer_name);
	json_number("peer", f->peer);
	fprintf(bench.json, ",\"unit\":\"%s\"", f->unit);
	json_number("ratio", f->ours / f->peer);
	fputs("}\n", bench.json);
	fflush(bench.json);
}

static const char *verdict(const struct figure *f)
{
	if (f->good < 0 || !bench.judges)
		return "";
	return f->good ? "ok" : "MISSED";
}

void report(const struct figure *f)
{
	char peer[16] = "-", ratio[16] = "-", size[16];

	if (isfinite(f->peer)) {
		snprintf(peer, sizeof(peer), "%.4g", f->peer);
		snprintf(ratio, sizeof(ratio), "%.3f", f->ours / f->peer);
	}
	snprintf(size, sizeof(size), "%llu", (unsigned long long)f->size);
	printf("%-36s %-4s %-4s %8s %6u %10.4g %10s %-11s %7s  %-15s %-6s %s\n", f->name,
	       bench.device, f->transport, size, f->conns, f->ours, peer, f->unit, ratio, f->bar,
	       verdict(f), f->peer_name);
	fflush(stdout);
	if (bench.json)
		report_json(f);
}

void report_header(void)
{
	printf("%-36s %-4s %-4s %8s %6s %10s %10s %-11s %7s  %-15s %-6s %s\n", "figure", "dev",
	       "via", "size", "conns", "ours", "peer", "unit", "ratio", "bar", "", "peer");
}
