/* SPDX-License-Identifier: BSD-3-Clause */
#define COPY_DEPTH 4u
#define COPY_THREADS 1024
#define COPY_LAUNCH bus_copy_4
#include "copies_kernel.h"
