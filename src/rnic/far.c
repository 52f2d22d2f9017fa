/* SPDX-License-Identifier: BSD-3-Clause */
#include "rnic/far.h"

#include <errno.h>

#include "platform/copier.h"
#include "platform/platform.h"

enum { STAGING = 256 * PLATFORM_COPIER_UNIT }; /* 16 MiB, as tests/device/rnic_far measures with */

int rnic_far_open(const void *p, struct rnic_far *f)
{
	const struct platform_params params = { .size = sizeof(params) };
	struct rnic_far got = { 0 };
	int i, ordinal = -1, rc;

	for (i = 0; platform_all[i] && ordinal < 0; i++)
		ordinal = platform_all[i]->owner(p);
	if (ordinal < 0)
		return -EOPNOTSUPP;
	got.ops = platform_all[i - 1];
	rc = got.ops->open(ordinal, &params, &got.dev);
	if (rc)
		return rc;
	rc = got.ops->copier_open(got.dev, STAGING, &got.copier);
	if (rc)
		got.ops->close(got.dev);
	else
		*f = got;
	return rc;
}

void rnic_far_close(struct rnic_far *f)
{
	if (f->copier)
		f->copier->ops->close(f->copier);
	if (f->ops)
		f->ops->close(f->dev);
	*f = (struct rnic_far){ 0 };
}
