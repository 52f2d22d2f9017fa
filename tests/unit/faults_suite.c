/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Linked to a device test it makes the system calls under that test misbehave (faults.h), from before the test begins to its end:
 * GPUNET_TEST_SEED is the seed, GPUNET_TEST_FAULTS how many of 1,000 calls misbehave in each way. That something was injected is said at exit, and none at all is a failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "faults.h"

static void at_end(void)
{
	unsigned n = 0;

	for (int f = 0; f < FAULTS; f++)
		n += __atomic_load_n(&faults.injected[f], __ATOMIC_RELAXED);
	fprintf(stderr, "%u faults\n", n);
	if (n < 10)
		_exit(1);
}

__attribute__((constructor)) static void begin(void)
{
	const char *seed = getenv("GPUNET_TEST_SEED"), *chance = getenv("GPUNET_TEST_FAULTS");

	faults.seed = seed ? strtoull(seed, NULL, 0) : 1;
	for (int f = 0; f < FAULTS; f++)
		faults.chance[f] = chance ? (unsigned)atoi(chance) : 50;
	log_set_level(LOG_ERROR); /* what is short for a while is said as a warning */
	faults_install();
	atexit(at_end);
}
