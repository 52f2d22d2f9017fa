/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_TESTS_SIM_ENDS_H
#define GPUNET_TESTS_SIM_ENDS_H

#include "world.h"

struct ends;

/* Bytes, zero at first. */
size_t ends_size(void);
/* Of the host's part; `which`: what happens. How many blocks it takes. */
unsigned ends_make(struct world *w, struct ends *e, unsigned which);
/* By a whole block, number `self` of them. */
void ends_run(struct world *w, struct ends *e, unsigned self);
/* The network is closed, or drained. */
void ends_end(struct world *w, struct ends *e);

#endif
