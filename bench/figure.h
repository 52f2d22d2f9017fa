/* SPDX-License-Identifier: BSD-3-Clause */
/* What bench-sock and bench-rnic share: figures as a line of columns and as JSON, medians, time, and an end with a message. */
#ifndef GPUNET_BENCH_FIGURE_H
#define GPUNET_BENCH_FIGURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The program that runs, for every line that it prints. */
struct bench {
	const char *name, *device;
	const char *row; /* that is measured now; "": none */
	bool judges;     /* says whether a bar is met */
	FILE *json;      /* NULL: none */
};

extern struct bench bench; /* each program has its own */

void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* From now on an alarm ends the program. */
void limit_rows(void);

/* A figure. `peer` NAN: there is none. `bar`: a ratio or another limit, in words; `good`: it is met (-1: no bar). */
struct figure {
	const char *name, *transport;
	uint64_t size;
	unsigned conns;
	double ours;
	const char *peer_name;
	double peer;
	const char *unit;
	const char *bar;
	int good;
};

void report(const struct figure *f);
void report_header(void);

double now_us(void);
/* Both sort. */
double median(double *v, unsigned n);
double percentile(double *v, unsigned n, double p);

#endif
