/* SPDX-License-Identifier: BSD-3-Clause */
#define RINGS bus_rings_call
#define RINGS_KERNEL ring_call_kernel
#define RINGS_FORM "copies called"
#define GNET_COPY_CALL
#include "rings_body.h"
