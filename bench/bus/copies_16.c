/* SPDX-License-Identifier: BSD-3-Clause */
#define COPY_DEPTH 16u
#define COPY_THREADS 512
#define COPY_LAUNCH bus_copy_16
#include "copies_kernel.h"
