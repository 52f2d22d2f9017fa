/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies into and out of a GPU's memory, as platform/copier.h has them. */
#ifndef GPUNET_CUDA_COPIER_H
#define GPUNET_CUDA_COPIER_H

#include "platform/copier.h"
#include "platform/platform.h"

/*
 * [slow] A copier of the GPU, with a stream and a thread of its own and `staging` bytes of pinned memory. Opened before a
 * kernel is resident, since it allocates.
 */
int cuda_copier_open(struct platform_dev *dev, size_t staging, struct platform_copier **out);

/* The number of the GPU whose memory that is; -1: none's, or there is no driver. */
int cuda_owner(const void *p);

#endif
