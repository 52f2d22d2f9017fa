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

static void disarmed(struct verbs_cq *cq)
{
	cq->comp->armed -= cq->armed;
	cq->armed = false;
}

/* Not until there are none, which would be a system call more each time. An event that stays because its CQ was armed twice does no
 * harm: what comes next makes an edge as well. */
void ib_comp_drain(struct verbs_comp *c)
{
	struct ibv_cq *cq;
	void *ctx;

	while (c->armed && !ib_lib.get_cq_event(c->channel, &cq, &ctx)) {
		ib_lib.ack_cq_events(cq, 1);
		disarmed(ctx);
	}
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
	cq->comp = c;
	*out = cq;
	return 0;
}

void ib_cq_destroy(struct verbs_cq *cq)
{
	disarmed(cq);
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
	int rc = ibv_req_notify_cq(cq->cq, 0);

	if (!rc && !cq->armed) {
		cq->armed = true;
		cq->comp->armed++;
	}
	return -rc;
}

/* ---- queue pairs ---------------------------------------------------------------------------------------------------------------- */

static struct ibv_qp_init_attr attr_of(const struct verbs_qp_init *init)
{
	return (struct ibv_qp_init_attr){ .send_cq = init->send_cq->cq,
					  .recv_cq = init->recv_cq->cq,
					  .cap = { .max_send_wr = init->max_send_wr,
						   .max_recv_wr = init->max_recv_wr,
						   .max_send_sge = init->max_send_sge,
						   .max_recv_sge = init->max_recv_sge,
						   .max_inline_data = init->max_inline },
					  .qp_type = IBV_QPT_RC };
}

static void tell_caps(struct verbs_qp_init *init, const struct ibv_qp_init_attr *attr,
		      const struct ibv_qp *qp)
{
	init->max_send_wr = attr->cap.max_send_wr;
	init->max_recv_wr = attr->cap.max_recv_wr;
	init->max_send_sge = attr->cap.max_send_sge;
	init->max_recv_sge = attr->cap.max_recv_sge;
	init->max_inline = attr->cap.max_inline_data;
	init->qpn = qp->qp_num;
}

int ib_qp_create(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out)
{
	struct ibv_qp_init_attr attr = attr_of(init);
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
	tell_caps(init, &attr, qp->qp);
	*out = qp;
	return 0;
}

void ib_qp_destroy(struct verbs_qp *qp)
{
	if (qp->cm)
		ib_lib.destroy_qp(qp->cm);
	else
		(void)ib_lib.destroy_raw_qp(qp->qp);
	sys.free(qp);
}

/* ---- queue pairs whose peer is told by numbers ------------------------------------------------------------------------------------ */

enum { REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

int ib_peer_qp_create(struct verbs_device *d, struct verbs_qp_init *init, struct verbs_qp **out)
{
	struct ibv_qp_attr to_init = { .qp_state = IBV_QPS_INIT,
				       .port_num = 1,
				       .qp_access_flags = REMOTE };
	struct ibv_qp_init_attr attr = attr_of(init);
	struct verbs_qp *qp = sys.alloc(sizeof(*qp));
	int rc;

	if (!qp)
		return -ENOMEM;
	qp->qp = ib_lib.create_raw_qp(d->pd, &attr);
	if (!qp->qp && attr.cap.max_inline_data) {
		attr.cap.max_inline_data = 0;
		qp->qp = ib_lib.create_raw_qp(d->pd, &attr);
	}
	rc = qp->qp ? -ib_lib.modify_qp(qp->qp, &to_init,
					IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						IBV_QP_ACCESS_FLAGS)
		    : -errno;
	if (rc) {
		if (qp->qp)
			(void)ib_lib.destroy_raw_qp(qp->qp);
		sys.free(qp);
		return rc;
	}
	tell_caps(init, &attr, qp->qp);
	*out = qp;
	return 0;
}

static enum ibv_mtu mtu_code(unsigned bytes)
{
	enum ibv_mtu code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && 128u << (code + 1) <= bytes)
		code++;
	return code;
}

static struct ibv_ah_attr way_to(const struct verbs_peer *to)
{
	struct ibv_ah_attr ah = { .dlid = to->lid, .port_num = 1 };

	/* On InfiniBand a LID is enough; on Ethernet there is none. */
	ah.is_global = to->lid == 0;
	memcpy(ah.grh.dgid.raw, to->gid, 16);
	ah.grh.sgid_index = (uint8_t)to->gid_index;
	ah.grh.hop_limit = 64;
	return ah;
}

int ib_peer_qp_connect(struct verbs_qp *qp, const struct verbs_peer *to,
		       const struct verbs_conn_param *p)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR,
				 .ah_attr = way_to(to),
				 .path_mtu = mtu_code(to->mtu),
				 .dest_qp_num = to->qpn,
				 .rq_psn = to->psn,
				 .max_dest_rd_atomic = p->responder_resources,
				 .min_rnr_timer = p->min_rnr_timer };
	int rc;

	if (qp->cm)
		return -EINVAL;
	rc = -ib_lib.modify_qp(qp->qp, &a,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				       IBV_QP_MIN_RNR_TIMER);
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = to->my_psn;
	a.timeout = p->ack_timeout ? p->ack_timeout : 14; /* 67 ms, as perftest has it */
	a.retry_cnt = p->retry;
	a.rnr_retry = p->rnr_retry;
	a.max_rd_atomic = p->initiator_depth;
	if (!rc)
		rc = -ib_lib.modify_qp(qp->qp, &a,
				       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_MAX_QP_RD_ATOMIC);
	return rc;
}

static int fill_sges(struct ibv_sge *to, const struct verbs_sge *from, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		to[i] = (struct ibv_sge){ from[i].addr, from[i].len, from[i].lkey };
	return (int)n;
}

static void fill_send(struct ibv_send_wr *to, struct ibv_sge *sge, const struct verbs_send_wr *wr)
{
	memset(to, 0, sizeof(*to));
	to->wr_id = wr->wr_id;
	to->opcode = (enum ibv_wr_opcode)wr->opcode;
	to->send_flags = wr->flags;
	to->imm_data = htobe32(wr->imm);
	to->sg_list = sge;
	to->num_sge = fill_sges(sge, wr->sge, wr->nsge);
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

static int post_some(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n)
{
	struct ibv_send_wr ib[BATCH], *bad = NULL;
	struct ibv_sge sge[BATCH][IB_SGES];
	int i, rc;

	for (i = 0; i < n; i++) {
		if (wr[i].nsge > IB_SGES) {
			n = i;
			break;
		}
		fill_send(&ib[i], sge[i], &wr[i]);
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
	struct ibv_sge sge[BATCH][IB_SGES];
	int i, rc;

	memset(ib, 0, sizeof(ib));
	for (i = 0; i < n; i++) {
		if (wr[i].nsge > IB_SGES)
			return -EOPNOTSUPP;
		ib[i].wr_id = wr[i].wr_id;
		ib[i].sg_list = sge[i];
		ib[i].num_sge = fill_sges(sge[i], wr[i].sge, wr[i].nsge);
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
