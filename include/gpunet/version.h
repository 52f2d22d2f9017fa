/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_VERSION_H
#define GPUNET_VERSION_H

#include <gpunet/api.h>

#define GPUNET_VERSION_MAJOR 0
#define GPUNET_VERSION_MINOR 1
#define GPUNET_VERSION_PATCH 0

GPUNET_BEGIN_DECLS

/*
 * The version of the library that the program runs with, "MAJOR.MINOR.PATCH"; the macros above are
 * those of the headers that it was compiled with. The string is constant. Any thread, any time.
 */
const char *gpunet_version(void);

GPUNET_END_DECLS

#endif
