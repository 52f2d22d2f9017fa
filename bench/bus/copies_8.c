/* SPDX-License-Identifier: BSD-3-Clause */
#define COPY_DEPTH 8u
#define COPY_THREADS 1024
#define COPY_LAUNCH bus_copy_8
#include "copies_kernel.h"
