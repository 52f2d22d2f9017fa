/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does the software RNIC do between two processes? bench.sh at the root runs this program once a row.
 *
 *   bench-rnic [--quick] [--json FILE] ROW ...
 *   bench-rnic --list | --header
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rnic.h"

struct bench_opt opt = { .reps = 5 };
struct bench bench = { .name = "bench-rnic", .device = "rnic", .row = "", .judges = true };

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

/* ---- options --------------------------------------------------------------------------------------------------------------- */

/* Asked for it is an answer, else an error. */
static int usage(bool asked)
{
	FILE *to = asked ? stdout : stderr;
	size_t i;

	fputs("usage: bench-rnic [--quick] [--json FILE] ROW ...\n"
	      "       bench-rnic --list | --header\nrows:",
	      to);
	for (i = 0; i < ROWS; i++)
		fprintf(to, " %s", rows[i].name);
	fputs("\n", to);
	return asked ? 0 : 2;
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
	bench.row = r->name;
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
	bench.json = fopen(optarg, "a");
	if (!bench.json)
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
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	size_t r;
	int c, i;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'h')
			return usage(true);
		for (r = 0; c == 'l' && r < ROWS; r++)
			printf("%s %u\n", rows[r].name, rows[r].limit_s);
		if (c == 'H')
			report_header();
		if (c == 'l' || c == 'H')
			return 0;
		/* bench.sh tells each program where kernels run; here are none. */
		if (c != 'd' && !take(c))
			return usage(false);
	}
	for (i = optind; i < argc; i++) {
		if (!row_named(argv[i]))
			return usage(false);
	}
	if (optind == argc)
		return usage(false);
	limit_rows();
	signal(SIGPIPE, SIG_IGN);
	for (i = optind; i < argc; i++)
		run(row_named(argv[i]));
	return 0;
}
