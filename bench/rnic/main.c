/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does the software RNIC do between two processes? bench.sh at the root runs this program once a row.
 *
 *   bench-rnic [--quick] [--json FILE] ROW ...
 *   bench-rnic --list | --header
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rnic.h"

struct bench_opt opt = { .reps = 5 };

static const struct row {
	const char *name;
	void (*run)(void);
	unsigned limit_s;
} rows[] = {
	{ "rnic_write_bw", row_write_bw, 60 }, { "rnic_write_lat", row_write_lat, 60 },
	{ "rnic_msg_rate", row_msg_rate, 30 }, { "rnic_loss", row_loss, 60 },
	{ "rnic_idle_qps", row_idle_qps, 60 },
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const char *row_now = "";

void die(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "bench-rnic: %s: %s\n", row_now, text);
	_exit(1);
}

static void too_late(int number)
{
	static const char text[] = "bench-rnic: the row's time limit is over\n";

	(void)number;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(4);
	_exit(3);
}

/* ---- results --------------------------------------------------------------------------------------------------------------- */

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

double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), compare);
	return n % 2 ? v[n / 2] : (v[n / 2] + v[n / 2 - 1]) / 2;
}

static void json_number(const char *key, double v)
{
	if (isfinite(v))
		fprintf(opt.json, ",\"%s\":%.6g", key, v);
	else
		fprintf(opt.json, ",\"%s\":null", key);
}

static void report_json(const struct figure *f)
{
	fprintf(opt.json,
		"{\"name\":\"%s\",\"device\":\"rnic\",\"transport\":\"udp\",\"size\":%llu,\"conns\":%u",
		f->name, (unsigned long long)f->size, f->conns);
	json_number("ours", f->ours);
	fprintf(opt.json, ",\"peer_name\":\"%s\"", f->peer_name);
	json_number("peer", f->peer);
	fprintf(opt.json, ",\"unit\":\"%s\"", f->unit);
	json_number("ratio", f->ours / f->peer);
	fputs("}\n", opt.json);
	fflush(opt.json);
}

/* The columns of bench-sock. */
void report(const struct figure *f)
{
	char peer[16] = "-", ratio[16] = "-", size[16];

	if (isfinite(f->peer)) {
		snprintf(peer, sizeof(peer), "%.4g", f->peer);
		snprintf(ratio, sizeof(ratio), "%.3f", f->ours / f->peer);
	}
	snprintf(size, sizeof(size), "%llu", (unsigned long long)f->size);
	printf("%-36s %-4s %-4s %8s %6u %10.4g %10s %-11s %7s  %-15s %-6s %s\n", f->name, "rnic",
	       "udp", size, f->conns, f->ours, peer, f->unit, ratio, f->bar,
	       f->good ? "ok" : "MISSED", f->peer_name);
	fflush(stdout);
	if (opt.json)
		report_json(f);
}

static void header(void)
{
	printf("%-36s %-4s %-4s %8s %6s %10s %10s %-11s %7s  %-15s %-6s %s\n", "figure", "dev",
	       "via", "size", "conns", "ours", "peer", "unit", "ratio", "bar", "", "peer");
}

/* ---- options --------------------------------------------------------------------------------------------------------------- */

static int usage(void)
{
	size_t i;

	fputs("usage: bench-rnic [--quick] [--json FILE] ROW ...\n"
	      "       bench-rnic --list | --header\nrows:",
	      stderr);
	for (i = 0; i < ROWS; i++)
		fprintf(stderr, " %s", rows[i].name);
	fputs("\n", stderr);
	return 2;
}

static const struct row *row_named(const char *name)
{
	size_t i;

	for (i = 0; i < ROWS; i++) {
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	}
	return NULL;
}

static void run(const struct row *r)
{
	row_now = r->name;
	alarm(r->limit_s);
	r->run();
	alarm(0);
}

static bool take(int c)
{
	if (c == 'q') {
		opt.quick = true;
		opt.reps = 3;
		return true;
	}
	if (c != 'j')
		return false;
	opt.json = fopen(optarg, "a");
	if (!opt.json)
		die("%s: %s", optarg, strerror(errno));
	return true;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "quick", no_argument, NULL, 'q' },
		{ "json", required_argument, NULL, 'j' },
		{ "list", no_argument, NULL, 'l' },
		{ "header", no_argument, NULL, 'H' },
		{ "device", required_argument, NULL, 'd' },
		{ 0 },
	};
	size_t r;
	int c, i;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		for (r = 0; c == 'l' && r < ROWS; r++)
			printf("%s %u\n", rows[r].name, rows[r].limit_s);
		if (c == 'H')
			header();
		if (c == 'l' || c == 'H')
			return 0;
		/* bench.sh tells each program where kernels run; here are none. */
		if (c != 'd' && !take(c))
			return usage();
	}
	for (i = optind; i < argc; i++) {
		if (!row_named(argv[i]))
			return usage();
	}
	if (optind == argc)
		return usage();
	signal(SIGALRM, too_late);
	signal(SIGPIPE, SIG_IGN);
	for (i = optind; i < argc; i++)
		run(row_named(argv[i]));
	return 0;
}
