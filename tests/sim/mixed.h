/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_TESTS_SIM_MIXED_H
#define GPUNET_TESTS_SIM_MIXED_H

#include "world.h"

struct mixed;

/* Bytes, zero at first. */
size_t mixed_size(void);
/* How many blocks it takes. */
unsigned mixed_make(const struct world *w, struct mixed *m);
/* By a whole block, number `self` of them. */
void mixed_run(struct world *w, struct mixed *m, unsigned self);
/* For reports. */
void mixed_report(const struct mixed *m);

#endif
