/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs, completion queues and memory by libibverbs. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "verbs/ibverbs/ib.h"

#define BATCH 16

/* ---- completions ---------------------------------------------------------------------------------------------------------------- */

int ib_comp_open(struct verbs_device *d, struct verbs_comp **out)
{
	struct verbs_comp *c = sys.alloc(sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->channel = ib_lib.create_comp_channel(d->ctx);
	rc = c->channel ? ib_nonblocking(c->channel->fd) : -errno;
	if (rc) {
		ib_comp_close(c);
		return rc;
	}
	*out = c;
	return 0;
}

void ib_comp_close(struct verbs_comp *c)
{
	if (c->channel)
		(void)ib_lib.destroy_comp_channel(c->channel);
	sys.free(c);
}

int ib_comp_fd(struct verbs_comp *c)
{
	return c->channel->fd;
}

void ib_comp_drain(struct verbs_comp *c)
{
	struct ibv_cq *cq;
	void *ctx;

	while (!ib_lib.get_cq_event(c->channel, &cq, &ctx))
		ib_lib.ack_cq_events(cq, 1);
}

int ib_cq_create(struct verbs_device *d, unsigned entries, struct verbs_comp *c,
		 struct verbs_cq **out)
{
	struct verbs_cq *cq = sys.alloc(sizeof(*cq));

	if (!cq)
		return -ENOMEM;
	cq->cq = ib_lib.create_cq(d->ctx, (int)entries, cq, c->channel, 0);
	if (!cq->cq) {
		int rc = -errno;

		sys.free(cq);
		return rc;
	}
	*out = cq;
	return 0;
}

void ib_cq_destroy(struct verbs_cq *cq)
{
	(void)ib_lib.destroy_cq(cq->cq);
	sys.free(cq);
}

static void translate(struct verbs_wc *to, const struct ibv_wc *from)
{
	to->wr_id = from->wr_id;
	to->status = from->status;
	to->opcode = from->opcode;
	to->byte_len = from->byte_len;
	to->qpn = from->qp_num;
	to->vendor_err = from->vendor_err;
	to->flags = from->wc_flags & IBV_WC_WITH_IMM;
	to->imm = be32toh(from->imm_data);
}

int ib_poll(struct verbs_cq *cq, struct verbs_wc *wc, int n)
{
	struct ibv_wc ib[BATCH];
	int done = 0, got = BATCH, i;

	while (done < n && got == BATCH) {
		got = ibv_poll_cq(cq->cq, n - done < BATCH ? n - done : BATCH, ib);
		if (got < 0)
			return done ? done : -EIO;
		for (i = 0; i < got; i++)
			translate(&wc[done + i], &ib[i]);
		done += got;
	}
	return done;
}

int ib_arm(struct verbs_cq *cq)
{
	return -ibv_req_notify_cq(cq->cq, 0);
}

/* ---- queue pairs ---------------------------------------------------------------------------------------------------------------- */

int ib_qp_create(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out)
{
	struct ibv_qp_init_attr attr = { .send_cq = init->send_cq->cq,
					 .recv_cq = init->recv_cq->cq,
					 .cap = { .max_send_wr = init->max_send_wr,
						  .max_recv_wr = init->max_recv_wr,
						  .max_send_sge = init->max_send_sge,
						  .max_recv_sge = init->max_recv_sge,
						  .max_inline_data = init->max_inline },
					 .qp_type = IBV_QPT_RC };
	struct verbs_device *d = ib_id_device(id);
	struct verbs_qp *qp;
	int rc;

	if (!d)
		return -ENODEV;
	qp = sys.alloc(sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	rc = ib_lib.create_qp(id->cm, d->pd, &attr) ? -errno : 0;
	if (rc == -EINVAL && attr.cap.max_inline_data) {
		/* A device that has no room for so much inline. */
		attr.cap.max_inline_data = 0;
		rc = ib_lib.create_qp(id->cm, d->pd, &attr) ? -errno : 0;
	}
	if (rc) {
		sys.free(qp);
		return rc;
	}
	qp->cm = id->cm;
	qp->qp = id->cm->qp;
	init->max_send_wr = attr.cap.max_send_wr;
	init->max_recv_wr = attr.cap.max_recv_wr;
	init->max_send_sge = attr.cap.max_send_sge;
	init->max_recv_sge = attr.cap.max_recv_sge;
	init->max_inline = attr.cap.max_inline_data;
	init->qpn = qp->qp->qp_num;
	*out = qp;
	return 0;
}

void ib_qp_destroy(struct verbs_qp *qp)
{
	ib_lib.destroy_qp(qp->cm);
	sys.free(qp);
}

static void fill_send(struct ibv_send_wr *to, struct ibv_sge *sge, const struct verbs_send_wr *wr)
{
	memset(to, 0, sizeof(*to));
	to->wr_id = wr->wr_id;
	to->opcode = (enum ibv_wr_opcode)wr->opcode;
	to->send_flags = wr->flags;
	to->imm_data = htobe32(wr->imm);
	if (wr->nsge) {
		sge->addr = wr->sge[0].addr;
		sge->length = wr->sge[0].len;
		sge->lkey = wr->sge[0].lkey;
		to->sg_list = sge;
		to->num_sge = 1;
	}
	if (wr->opcode == VERBS_WR_CMP_SWAP || wr->opcode == VERBS_WR_FETCH_ADD) {
		to->wr.atomic.remote_addr = wr->raddr;
		to->wr.atomic.rkey = wr->rkey;
		to->wr.atomic.compare_add =
			wr->opcode == VERBS_WR_CMP_SWAP ? wr->compare : wr->swap_add;
		to->wr.atomic.swap = wr->swap_add;
	} else {
		to->wr.rdma.remote_addr = wr->raddr;
		to->wr.rdma.rkey = wr->rkey;
	}
}

/* One element a request, which is all that gpunet uses so far. */
static int post_some(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n)
{
	struct ibv_send_wr ib[BATCH], *bad = NULL;
	struct ibv_sge sge[BATCH];
	int i, rc;

	for (i = 0; i < n; i++) {
		if (wr[i].nsge > 1) {
			n = i;
			break;
		}
		fill_send(&ib[i], &sge[i], &wr[i]);
		if (i)
			ib[i - 1].next = &ib[i];
	}
	if (!n)
		return -EOPNOTSUPP;
	rc = ibv_post_send(qp->qp, ib, &bad);
	if (!rc)
		return n;
	i = bad ? (int)(bad - ib) : 0;
	return i ? i : rc == ENOMEM ? -EAGAIN : -rc;
}

int ib_post_send(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n)
{
	int done = 0;

	while (done < n) {
		int want = n - done < BATCH ? n - done : BATCH;
		int got = post_some(qp, wr + done, want);

		if (got < 0)
			return done ? done : got;
		done += got;
		if (got < want)
			break;
	}
	return done;
}

static int recv_some(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n)
{
	struct ibv_recv_wr ib[BATCH], *bad = NULL;
	struct ibv_sge sge[BATCH];
	int i, rc;

	memset(ib, 0, sizeof(ib));
	for (i = 0; i < n; i++) {
		if (wr[i].nsge > 1)
			return -EOPNOTSUPP;
		ib[i].wr_id = wr[i].wr_id;
		if (wr[i].nsge) {
			sge[i] = (struct ibv_sge){ wr[i].sge->addr, wr[i].sge->len,
						   wr[i].sge->lkey };
			ib[i].sg_list = &sge[i];
			ib[i].num_sge = 1;
		}
		if (i)
			ib[i - 1].next = &ib[i];
	}
	rc = ibv_post_recv(qp->qp, ib, &bad);
	if (!rc)
		return n;
	i = bad ? (int)(bad - ib) : 0;
	return i ? i : rc == ENOMEM ? -EAGAIN : -rc;
}

int ib_post_recv(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n)
{
	int done = 0;

	while (done < n) {
		int want = n - done < BATCH ? n - done : BATCH;
		int got = recv_some(qp, wr + done, want);

		if (got < 0)
			return done ? done : got;
		done += got;
		if (got < want)
			break;
	}
	return done;
}

/* ---- memory --------------------------------------------------------------------------------------------------------------------- */

static struct ibv_mr *reg_any(struct verbs_device *d, const struct verbs_mem *m, int access)
{
	errno = EOPNOTSUPP;
	if (m->fd >= 0)
		return ib_lib.reg_dmabuf_mr ? ib_lib.reg_dmabuf_mr(d->pd, m->offset, m->length,
								   m->iova, m->fd, access)
					    : NULL;
	if (m->iova != (uintptr_t)m->addr)
		return ib_lib.reg_mr_iova
			       ? ib_lib.reg_mr_iova(d->pd, m->addr, m->length, m->iova, access)
			       : NULL;
	return ib_lib.reg_mr(d->pd, m->addr, m->length, access);
}

int ib_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
	   struct verbs_mr **out)
{
	struct verbs_mr *mr = sys.alloc(sizeof(*mr));
	struct ibv_mr *ib;

	if (!mr)
		return -ENOMEM;
	ib = reg_any(d, m, (int)access);
	if (!ib) {
		int rc = -errno;

		sys.free(mr);
		return rc;
	}
	mr->lkey = ib->lkey;
	mr->rkey = ib->rkey;
	mr->provider = ib;
	*out = mr;
	return 0;
}

void ib_dereg(struct verbs_mr *mr)
{
	(void)ib_lib.dereg_mr(mr->provider);
	sys.free(mr);
}
