/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_TESTS_SIM_MISUSE_H
#define GPUNET_TESTS_SIM_MISUSE_H

#include "world.h"

struct misuse;

/* Bytes, zero at first. */
size_t misuse_size(void);
/* By a whole block. */
void misuse_run(struct world *w, struct misuse *m);
/* The network is closed: its clients on the host end. */
void misuse_end(struct misuse *m);

#endif
