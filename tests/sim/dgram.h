/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_TESTS_SIM_DGRAM_H
#define GPUNET_TESTS_SIM_DGRAM_H

#include "world.h"

struct dgrams;

/* Bytes, zero at first. */
size_t dgram_size(void);
/* How many blocks it takes. */
unsigned dgram_make(const struct world *w, struct dgrams *d);
/* By a whole block, number `self` of them. */
void dgram_run(struct world *w, struct dgrams *d, unsigned self);
void dgram_check(const struct world *w, const struct dgrams *d);

#endif
