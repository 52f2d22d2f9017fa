/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls that misbehave, from a seed, in ways that no user of the library may notice but by the time it takes: short reads and
 * writes, interruptions, no memory, no descriptors for a while, delays.
 */
#ifndef TESTS_UNIT_FAULTS_H
#define TESTS_UNIT_FAULTS_H

#include <stdint.h>

enum fault { SHORT, INTERRUPT, NO_MEMORY, NO_DESCRIPTORS, DELAY, FAULTS };

struct faults {
	uint64_t seed;
	unsigned chance[FAULTS];   /* in 1,000 */
	unsigned injected[FAULTS]; /* so far */
	int no_memory,
		no_watches; /* the next calls that fail: allocations, and watches of descriptors */
};

extern struct faults faults;

/* Puts the calls into the library's table; before it is used. */
void faults_install(void);

#endif
