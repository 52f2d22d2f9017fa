/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of a GPU that the CPU cannot map, for provider rnic. The first region of it that is registered on a host opens the GPU and
 * a queue of copies, which that host keeps; a host has copies of one GPU.
 */
#include "verbs/rnic/internal.h"

#include <errno.h>

int (*vfar_open)(const void *p, struct rnic_far *f) = rnic_far_open;

/*
 * Without the lock: to open a GPU can take a second, in which peers would give up. If another thread is quicker, its copies are taken.
 */
static int open_copies(struct vhost *h, const void *p)
{
	struct rnic_far f = { 0 };
	bool have;
	int rc;

	vhost_lock(h);
	have = h->far.copier;
	vhost_unlock(h);
	if (have)
		return 0;
	rc = vfar_open(p, &f);
	if (rc)
		return rc;
	vhost_lock(h);
	if (!h->far.copier) {
		rc = rnic_attach_copier(h->r, f.copier);
		if (!rc) {
			h->far = f;
			f = (struct rnic_far){ 0 };
		}
	}
	vhost_unlock(h);
	rnic_far_close(&f);
	return rc;
}

int vfar_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
	     struct rnic_mr **out)
{
	int rc = open_copies(d->host, m->addr);

	if (rc)
		return rc;
	vhost_lock(d->host);
	rc = rnic_mr_create_far(d->pd, (uintptr_t)m->addr, m->length, m->iova, access, out);
	vhost_unlock(d->host);
	return rc;
}
