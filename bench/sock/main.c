/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What do a kernel's sockets cost over what a user would take instead? bench.sh at the root runs this program once a row.
 *
 *   bench-sock [--device cpu|cuda] [--quick] [--json FILE] [--transport tcp|unix] ROW ...
 *   bench-sock --list | --header | --where | --kinds
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sock.h"

struct bench_opt opt = { .device = "cpu", .reps = 5 };

static const struct row {
	const char *name;
	void (*run)(const char *transport);
	bool both; /* transports, else TCP only */
	unsigned limit_s;
} rows[] = {
	{ "echo", row_echo, true, 60 },
	{ "stream", row_stream, true, 120 },
	{ "streams8", row_streams8, true, 120 },
	{ "accepts", row_accepts, true, 60 },
	{ "sockets10k", row_sockets10k, true, 120 },
	{ "waiters", row_waiters, true, 120 },
	{ "idle", row_idle, false, 90 },
	{ "unaligned", row_unaligned, true, 240 },
	{ "curves", row_curves, true, 400 },
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
	fprintf(stderr, "bench-sock: %s: %s\n", row_now, text);
	/* Threads and a resident kernel may be anywhere. */
	_exit(1);
}

static void too_late(int number)
{
	static const char text[] = "bench-sock: the row's time limit is over\n";

	(void)number;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(4);
	_exit(3);
}

/* ---- results -------------------------------------------------------------------------------------------------------------- */

static void json_number(FILE *out, const char *key, double v)
{
	if (isfinite(v))
		fprintf(out, ",\"%s\":%.6g", key, v);
	else
		fprintf(out, ",\"%s\":null", key);
}

static void report_json(const struct figure *f)
{
	fprintf(opt.json,
		"{\"name\":\"%s\",\"device\":\"%s\",\"transport\":\"%s\",\"size\":%llu,\"conns\":%u",
		f->name, opt.device, f->transport, (unsigned long long)f->size, f->conns);
	json_number(opt.json, "ours", f->ours);
	fprintf(opt.json, ",\"peer_name\":\"%s\"", f->peer_name);
	json_number(opt.json, "peer", f->peer);
	fprintf(opt.json, ",\"unit\":\"%s\"", f->unit);
	json_number(opt.json, "ratio", f->ours / f->peer);
	fputs("}\n", opt.json);
	fflush(opt.json);
}

/* Bars are for a GPU; the CPU device's figures are recorded. */
static const char *verdict(const struct figure *f)
{
	if (f->good < 0 || !opt.gpu)
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
	       opt.device, f->transport, size, f->conns, f->ours, peer, f->unit, ratio, f->bar,
	       verdict(f), f->peer_name);
	fflush(stdout);
	if (opt.json)
		report_json(f);
}

static void header(void)
{
	printf("%-36s %-4s %-4s %8s %6s %10s %10s %-11s %7s  %-15s %-6s %s\n", "figure", "dev",
	       "via", "size", "conns", "ours", "peer", "unit", "ratio", "bar", "", "peer");
}

/* ---- options ---------------------------------------------------------------------------------------------------------------- */

static int usage(void)
{
	size_t i;

	fputs("usage: bench-sock [--device cpu|cuda] [--quick] [--json FILE] [--transport tcp|unix]\n"
	      "                  [--reps N] [--no-place] ROW ...\n"
	      "       bench-sock --list | --header | --where | --kinds\nrows:",
	      stderr);
	for (i = 0; i < ROWS; i++)
		fprintf(stderr, " %s", rows[i].name);
	fputs("\n", stderr);
	return 2;
}

/* Questions that need no measurement: true if `c` is one. */
static bool answer(int c)
{
	char text[256];
	size_t i;

	switch (c) {
	case 'l':
		for (i = 0; i < ROWS; i++)
			printf("%s %u\n", rows[i].name, rows[i].limit_s);
		return true;
	case 'H':
		header();
		return true;
	case 'w':
		place_init();
		place_describe(text, sizeof(text));
		puts(text);
		return true;
	case 'k':
#ifdef GPUNET_WITH_CUDA
		puts("cpu cuda");
#else
		puts("cpu");
#endif
		return true;
	default:
		return false;
	}
}

static bool take(int c, bool *placed)
{
	switch (c) {
	case 'd':
		opt.device = optarg;
		opt.gpu = strcmp(optarg, "cuda") == 0;
		return opt.gpu || strcmp(optarg, "cpu") == 0;
	case 'q':
		opt.quick = true;
		opt.reps = 3;
		return true;
	case 'j':
		opt.json = fopen(optarg, "a");
		if (!opt.json)
			die("%s: %s", optarg, strerror(errno));
		return true;
	case 't':
		opt.transport = optarg;
		return strcmp(optarg, "tcp") == 0 || strcmp(optarg, "unix") == 0;
	case 'r':
		opt.reps = (unsigned)atoi(optarg);
		return opt.reps >= 1 && opt.reps <= 15;
	case 'n':
		*placed = false;
		return true;
	default:
		return false;
	}
}

static void run(const struct row *r)
{
	static const char *const transports[] = { "tcp", "unix" };
	unsigned i;

	row_now = r->name;
	for (i = 0; i < 2; i++) {
		if (opt.transport ? strcmp(opt.transport, transports[i]) != 0 : i && !r->both)
			continue;
		alarm(opt.quick ? r->limit_s / 4 + 10 : r->limit_s);
		r->run(transports[i]);
		alarm(0);
	}
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

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "quick", no_argument, NULL, 'q' },
		{ "json", required_argument, NULL, 'j' },
		{ "transport", required_argument, NULL, 't' },
		{ "reps", required_argument, NULL, 'r' },
		{ "no-place", no_argument, NULL, 'n' },
		{ "list", no_argument, NULL, 'l' },
		{ "header", no_argument, NULL, 'H' },
		{ "where", no_argument, NULL, 'w' },
		{ "kinds", no_argument, NULL, 'k' },
		{ 0 },
	};
	bool placed = true;
	int c, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (answer(c))
			return 0;
		if (!take(c, &placed))
			return usage();
	}
	if (optind == argc)
		return usage();
	for (i = optind; i < argc; i++) {
		if (!row_named(argv[i]))
			return usage();
	}
#ifndef GPUNET_WITH_CUDA
	if (opt.gpu)
		die("this program was built without CUDA");
#endif
	signal(SIGALRM, too_late);
	signal(SIGPIPE, SIG_IGN);
	if (placed)
		place_init();
	for (i = optind; i < argc; i++)
		run(row_named(argv[i]));
	return 0;
}
