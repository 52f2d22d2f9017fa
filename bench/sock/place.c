/* SPDX-License-Identifier: BSD-3-Clause */
/* Which CPU a thread runs on: our server and its peer run on the same ones. */
#include <sched.h>
#include <stdlib.h>

#include "sock.h"

static int cpu[CPU_SETSIZE]; /* those that the process may use */
static int cpus;
static cpu_set_t all;

/* With fewer there is no room for a CPU each, and the system places better than we could. */
#define ENOUGH 8

void place_init(void)
{
	int i;

	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		return;
	for (i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET(i, &all))
			cpu[cpus++] = i;
	}
}

/* The clients have the first half; servers every second CPU of the other one, since neighbours are often one core. */
static void choose(enum place p, cpu_set_t *set)
{
	int half = cpus / 2, i;

	CPU_ZERO(set);
	if (p == PLACE_CLIENT)
		CPU_SET(cpu[0], set);
	for (i = 0; p == PLACE_CLIENTS && i < half; i++)
		CPU_SET(cpu[i], set);
	/* Two: the thread that looks at a sleeping GPU's queue is not to be in the way. */
	for (i = 0; p == PLACE_SERVER && i < 2; i++)
		CPU_SET(cpu[half + 2 * i], set);
	if (p == PLACE_HAND)
		CPU_SET(cpu[cpus - 2], set);
	for (i = half; p == PLACE_SERVERS && i < cpus; i += cpus - half >= 8 ? 2 : 1)
		CPU_SET(cpu[i], set);
	if (p == PLACE_ANY)
		*set = all;
}

void place(enum place p)
{
	cpu_set_t set;

	if (cpus < ENOUGH)
		return;
	choose(p, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

void place_describe(char *out, size_t size)
{
	int half = cpus / 2;

	if (cpus < ENOUGH)
		snprintf(out, size, "%d CPUs, threads are placed by the system", cpus);
	else
		snprintf(
			out, size,
			"%d CPUs: client on %d, server and proxy on %d and %d, bytes handed to %d; "
			"several clients on %d-%d",
			cpus, cpu[0], cpu[half], cpu[half + 2], cpu[cpus - 2], cpu[0],
			cpu[half - 1]);
}
