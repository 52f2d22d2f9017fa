/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs whose sends are posted in memory, as a kernel of a GPU posts them. One mapping holds the send queue, its
 * completion queue and the doorbell records, so that a caller can register it with a GPU; the doorbell is a slot of the
 * host's page. Receives are still posted by calls: they go to a shared receive queue that nobody else uses.
 */
#include "verbs/rnic/internal.h"

#include <errno.h>

#include "base/sys.h"

enum { BLOCK = 64, MAX_BLOCKS = 32768, RECORDS = 128 };

struct vexport {
	uint8_t *map; /* send queue, completion queue, records */
	size_t size;
	unsigned blocks;
	struct rnic_mlx5_queues queues;
	struct rnic_cq *cq;
	struct rnic_srq *srq;
};

/* Two be32: receives, which are not posted so, and sends. */
static uint32_t *qp_record(const struct vexport *x)
{
	return (uint32_t *)(void *)(x->map + 2 * (size_t)x->blocks * BLOCK);
}

/* In a line of its own: another thread may write it. */
static uint32_t *cq_record(const struct vexport *x)
{
	return qp_record(x) + BLOCK / sizeof(uint32_t);
}

void vexport_close(struct vexport *x)
{
	if (x->srq)
		rnic_srq_destroy(x->srq);
	if (x->cq)
		rnic_cq_destroy(x->cq);
	if (x->map)
		sys.unmap(x->map, x->size);
	sys.free(x);
}

static int make_queues(struct vexport *x, struct vhost *h, struct rnic_pd *pd,
		       const struct verbs_qp_init *init)
{
	struct rnic_mlx5_cq_init cq = { .buf = x->map + (size_t)x->blocks * BLOCK,
					.entries = x->blocks,
					.dbrec = cq_record(x) };
	int rc = rnic_mlx5_cq_create(h->r, &cq, &x->cq);

	if (!rc)
		rc = rnic_srq_create(pd, init->max_recv_wr ? init->max_recv_wr : 1,
				     init->max_recv_sge, &x->srq);
	return rc;
}

int vexport_open(struct vhost *h, struct rnic_pd *pd, const struct verbs_qp_init *init,
		 struct rnic_qp_init *in, struct vexport **out)
{
	struct vexport *x;
	int rc = -ENOMEM;

	if (!init->max_send_wr || init->max_send_wr > MAX_BLOCKS)
		return -EINVAL;
	x = sys.alloc(sizeof(*x));
	if (!x)
		return rc;
	for (x->blocks = 1; x->blocks < init->max_send_wr;)
		x->blocks *= 2;
	x->size = 2 * (size_t)x->blocks * BLOCK + RECORDS;
	x->map = sys.map(x->size);
	if (x->map)
		rc = make_queues(x, h, pd, init);
	if (rc) {
		vexport_close(x);
		return rc;
	}
	x->queues = (struct rnic_mlx5_queues){ .sq = x->map,
					       .sq_blocks = x->blocks,
					       .dbrec = qp_record(x) };
	in->queues = &x->queues;
	in->send_cq = x->cq;
	in->srq = x->srq;
	*out = x;
	return 0;
}

int vexport_post_recv(struct vexport *x, uint64_t wr_id, const struct rnic_sge *sge, unsigned nsge)
{
	return rnic_srq_post(x->srq, wr_id, sge, nsge);
}

int vexport_get(struct verbs_qp *qp, struct verbs_queue_export *out)
{
	const struct vexport *x = qp->ex;
	int slot;

	if (!x)
		return -EOPNOTSUPP;
	vhost_lock(qp->host);
	slot = rnic_qp_doorbell(qp->qp);
	vhost_unlock(qp->host);
	*out = (struct verbs_queue_export){
		.sq = x->map,
		.sq_blocks = x->blocks,
		.cq = x->map + (size_t)x->blocks * BLOCK,
		.cq_entries = x->blocks,
		.sq_dbrec = qp_record(x) + 1,
		.cq_dbrec = cq_record(x),
		/* Without a slot the device finds what is posted by looking at the records, at a falling rate. */
		.doorbell = slot >= 0 ? &qp->host->doorbells[slot] : NULL,
		.qpn = rnic_qp_num(qp->qp),
		.sq_fd = -1,
		.doorbell_fd = -1,
	};
	return 0;
}
