/* SPDX-License-Identifier: BSD-3-Clause */
#define RINGS bus_rings
#define RINGS_KERNEL ring_kernel
#define RINGS_FORM "copies inlined"
#include "rings_body.h"
