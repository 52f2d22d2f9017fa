/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_TESTS_SIM_DGMIX_H
#define GPUNET_TESTS_SIM_DGMIX_H

#include "world.h"

struct dgmix;

/* Bytes, zero at first. */
size_t dgmix_size(void);
/* How many blocks it takes. */
unsigned dgmix_make(const struct world *w, struct dgmix *m);
/* By a whole block, number `self` of them. */
void dgmix_run(struct world *w, struct dgmix *m, unsigned self);
void dgmix_check(const struct dgmix *m);

#endif
