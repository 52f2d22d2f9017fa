/* SPDX-License-Identifier: BSD-3-Clause */
#include "platform/platform.h"

#include <stddef.h>

const struct platform_ops *const platform_all[] = { &platform_cuda, &platform_cpu, NULL };
