/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What do a kernel's sockets cost over what a user would take instead? bench.sh at the root runs this program once a row.
 *
 *   bench-sock [--device cpu|cuda] [--quick] [--json FILE] [--transport tcp|unix] ROW ...
 *   bench-sock --list | --header | --where | --kinds
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sock.h"

struct bench_opt opt = { .device = "cpu", .reps = 5 };
struct bench bench = { .name = "bench-sock", .device = "cpu", .row = "" };

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

/* ---- options ---------------------------------------------------------------------------------------------------------------- */

/* Asked for it is an answer, else an error. */
static int usage(bool asked)
{
	FILE *to = asked ? stdout : stderr;
	size_t i;

	fputs("usage: bench-sock [--device cpu|cuda] [--quick] [--json FILE] [--transport tcp|unix]\n"
	      "                  [--reps N] [--no-place] ROW ...\n"
	      "       bench-sock --list | --header | --where | --kinds\nrows:",
	      to);
	for (i = 0; i < ROWS; i++)
		fprintf(to, " %s", rows[i].name);
	fputs("\n", to);
	return asked ? 0 : 2;
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
		report_header();
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
		opt.device = bench.device = optarg;
		opt.gpu = strcmp(optarg, "cuda") == 0;
		/* Bars are for a GPU; the CPU device's figures are recorded. */
		bench.judges = opt.gpu;
		return opt.gpu || strcmp(optarg, "cpu") == 0;
	case 'q':
		opt.quick = true;
		opt.reps = 3;
		return true;
	case 'j':
		bench.json = fopen(optarg, "a");
		if (!bench.json)
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

	bench.row = r->name;
	for (i = 0; i < 2; i++) {
		if (opt.transport ? strcmp(opt.transport, transports[i]) != 0 : i && !r->both)
			continue;
		alarm(r->limit_s);
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
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	bool placed = true;
	int c, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'h')
			return usage(true);
		if (answer(c))
			return 0;
		if (!take(c, &placed))
			return usage(false);
	}
	if (optind == argc)
		return usage(false);
	for (i = optind; i < argc; i++) {
		if (!row_named(argv[i]))
			return usage(false);
	}
#ifndef GPUNET_WITH_CUDA
	if (opt.gpu)
		die("this program was built without CUDA");
#endif
	limit_rows();
	signal(SIGPIPE, SIG_IGN);
	if (placed)
		place_init();
	for (i = optind; i < argc; i++)
		run(row_named(argv[i]));
	return 0;
}
