/* SPDX-License-Identifier: BSD-3-Clause */
/* Which headers a program, its kernels and the library were compiled with; checked by gpunet_open and gsocket. */
#ifndef GPUNET_DEV_ABI_VERSION_H
#define GPUNET_DEV_ABI_VERSION_H

/* Changes whenever a layout or a rule of dev/abi/ changes. */
#define GNET_ABI_VERSION 10u

#endif
