/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a GPU that the CPU cannot map, for provider rnic. The first region of it that is registered on a host opens the GPU and
 * a queue of copies, which that host keeps; a host has copies of one GPU.
 */
#include "verbs/rnic/internal.h"

#include <errno.h>

int (*vfar_open)(const void *p, struct rnic_far *f) = rnic_far_open;

/* With the lock. */
static int open_copies(struct vhost *h, const void *p)
{
	int rc;

	if (h->far.copier)
		return 0;
	rc = vfar_open(p, &h->far);
	if (rc)
		return rc;
	rc = rnic_attach_copier(h->r, h->far.copier);
	if (rc)
		rnic_far_close(&h->far);
	return rc;
}

int vfar_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
	     struct rnic_mr **out)
{
	int rc;

	vhost_lock(d->host);
	rc = open_copies(d->host, m->addr);
	if (!rc)
		rc = rnic_mr_create_far(d->pd, (uintptr_t)m->addr, m->length, m->iova, access, out);
	vhost_unlock(d->host);
	return rc;
}
