/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_FAR_H
#define GPUNET_RNIC_FAR_H

/* The GPU that some memory belongs to, opened with a queue of copies: for rnic_attach_copier(). */

struct platform_copier;
struct platform_dev;
struct platform_ops;

struct rnic_far {
	const struct platform_ops *ops; /* NULL: the copier stands alone */
	struct platform_dev *dev;
	struct platform_copier *copier; /* NULL: none */
};

/* [slow] -EOPNOTSUPP: it is no GPU's memory; else the errors of opening a device. No kernel may be resident. */
int rnic_far_open(const void *p, struct rnic_far *f);

/* [slow] After the device that has the copier is closed. Nothing that is not open: no harm. */
void rnic_far_close(struct rnic_far *f);

#endif
