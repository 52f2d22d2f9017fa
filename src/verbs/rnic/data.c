/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues, queue pairs, posting. */
#include "verbs/rnic/internal.h"

#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "wire/roce.h"

enum { POLL_BATCH = 32, MAX_SGE = 32, MAX_RD_ATOMIC = 16 };

/* --- completion descriptors --------------------------------------------------------------------- */

int vcomp_open(struct verbs_device *d, struct verbs_comp **out)
{
	struct verbs_comp *c = sys.alloc(sizeof(*c));
	int fd;

	if (!c)
		return -ENOMEM;
	fd = sys.eventfd();
	if (fd < 0) {
		sys.free(c);
		return fd;
	}
	c->fd = fd;
	*out = c;
	return 0;
}

void vcomp_close(struct verbs_comp *c)
{
	sys.close(c->fd);
	sys.free(c);
}

int vcomp_fd(struct verbs_comp *c)
{
	return c->fd;
}

/*
 * First unreadable, then to be signaled again: the other way round, a signal in between would be read here and still count as given, and
 * no later one would be. What is not signaled in between lies in its CQ, and the caller polls.
 */
void vcomp_drain(struct verbs_comp *c)
{
	uint64_t count;
	ssize_t n = sys.read(c->fd, &count, sizeof(count));

	(void)n; /* empty already is as good */
	atomic_store(&c->signaled, false);
}

static void signal_comp(void *ctx)
{
	struct verbs_comp *c = ctx;
	uint64_t one = 1;

	if (atomic_exchange(&c->signaled, true))
		return;
	if (sys.write(c->fd, &one, sizeof(one)) < 0)
		return; /* readable already */
}

/* --- completion queues -------------------------------------------------------------------------- */

int vcq_create(struct verbs_device *d, unsigned entries, struct verbs_comp *c,
	       struct verbs_cq **out)
{
	struct verbs_cq *cq = sys.alloc(sizeof(*cq));
	int rc;

	if (!cq)
		return -ENOMEM;
	cq->host = d->host;
	cq->comp = c;
	vhost_lock(d->host);
	rc = rnic_cq_create(d->host->r, entries, &cq->cq);
	vhost_unlock(d->host);
	if (rc) {
		sys.free(cq);
		return rc;
	}
	*out = cq;
	return 0;
}

void vcq_destroy(struct verbs_cq *cq)
{
	vhost_lock(cq->host);
	rnic_cq_destroy(cq->cq);
	vhost_unlock(cq->host);
	sys.free(cq);
}

static void convert(struct verbs_wc *to, const struct rnic_wc *from)
{
	*to = (struct verbs_wc){ .wr_id = from->wr_id,
				 .status = from->status,
				 .opcode = from->opcode,
				 .byte_len = from->byte_len,
				 .imm = from->imm,
				 .qpn = from->qpn,
				 .flags = from->flags & VERBS_WC_WITH_IMM };
}

int vcq_poll(struct verbs_cq *cq, struct verbs_wc *wc, int n)
{
	struct rnic_wc batch[POLL_BATCH];
	unsigned want = n < POLL_BATCH ? (unsigned)(n > 0 ? n : 0) : POLL_BATCH, got, i;

	vhost_lock(cq->host);
	got = rnic_cq_poll(cq->cq, batch, want);
	if (!got) {
		vhost_poll(cq->host);
		got = rnic_cq_poll(cq->cq, batch, want);
	}
	vhost_unlock(cq->host);
	for (i = 0; i < got; i++)
		convert(&wc[i], &batch[i]);
	return (int)got;
}

int vcq_arm(struct verbs_cq *cq)
{
	if (!cq->comp)
		return -EINVAL;
	vhost_lock(cq->host);
	rnic_cq_arm(cq->cq, false, signal_comp, cq->comp);
	vhost_hand_over(cq->host);
	vhost_unlock(cq->host);
	return 0;
}

/* --- queue pairs -------------------------------------------------------------------------------- */

static int make_qp(struct verbs_device *d, const struct verbs_qp_init *init, struct verbs_qp *qp)
{
	struct rnic_qp_init in = { .type = RNIC_QP_RC,
				   .send_cq = init->send_cq->cq,
				   .recv_cq = init->recv_cq->cq,
				   .max_send_wr = init->max_send_wr,
				   .max_recv_wr = init->max_recv_wr,
				   .max_send_sge = init->max_send_sge,
				   .max_recv_sge = init->max_recv_sge,
				   .max_inline = init->max_inline };
	struct rnic_qp_attr a = { .state = RNIC_QPS_INIT,
				  .access = RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_READ |
					    RNIC_ACCESS_REMOTE_ATOMIC };
	int rc = 0;

	if (init->external)
		rc = vexport_open(d->host, d->pd, init, &in, &qp->ex);
	if (rc)
		return rc;
	rc = rnic_qp_create(d->pd, &in, &qp->qp);
	if (!rc)
		return rnic_qp_modify(qp->qp, &a, RNIC_ATTR_STATE | RNIC_ATTR_ACCESS, sys.now_ns());
	if (qp->ex)
		vexport_close(qp->ex);
	return rc;
}

/* `id` NULL: numbers will say who the peer is. */
static int create_qp(struct verbs_device *d, struct verbs_id *id, struct verbs_qp_init *init,
		     struct verbs_qp **out)
{
	struct verbs_qp *qp = sys.alloc(sizeof(*qp));
	int rc;

	if (!qp)
		return -ENOMEM;
	qp->host = d->host;
	qp->id = id;
	/* What inline data cannot be had is not an error: the caller is told what there is. */
	init->max_inline = init->max_inline < 512 ? init->max_inline : 512;
	vhost_lock(qp->host);
	rc = make_qp(d, init, qp);
	if (!rc && id)
		id->qp = qp;
	qp->host->stat_touched++;
	vhost_flush(qp->host);
	vhost_unlock(qp->host);
	if (rc) {
		sys.free(qp);
		return rc;
	}
	init->qpn = rnic_qp_num(qp->qp);
	*out = qp;
	return 0;
}

int vqp_create(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out)
{
	if (!id->dev || id->qp || !init->send_cq || !init->recv_cq)
		return -EINVAL;
	return create_qp(id->dev, id, init, out);
}

int vqp_create_alone(struct verbs_device *d, struct verbs_qp_init *init, struct verbs_qp **out)
{
	if (!init->send_cq || !init->recv_cq)
		return -EINVAL;
	return create_qp(d, NULL, init, out);
}

void vqp_destroy(struct verbs_qp *qp)
{
	struct vhost *h = qp->host;

	vhost_lock(h);
	if (qp->id)
		qp->id->qp = NULL;
	/* Acknowledgements that are due go out before. */
	vhost_flush(h);
	rnic_qp_destroy(qp->qp);
	if (qp->ex)
		vexport_close(qp->ex);
	h->stat_touched++;
	vhost_flush(h);
	vhost_unlock(h);
	sys.free(qp);
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* From INIT to RTS. */
static int to_rts(struct rnic_qp *qp, struct rnic_qp_attr *a, uint64_t now)
{
	int rc;

	a->state = RNIC_QPS_RTR;
	rc = rnic_qp_modify(qp, a,
			    RNIC_ATTR_STATE | RNIC_ATTR_PATH | RNIC_ATTR_MTU | RNIC_ATTR_DEST_QPN |
				    RNIC_ATTR_RQ_PSN | RNIC_ATTR_MIN_RNR | RNIC_ATTR_DEST_RD_ATOMIC,
			    now);
	a->state = RNIC_QPS_RTS;
	if (!rc)
		rc = rnic_qp_modify(qp, a,
				    RNIC_ATTR_STATE | RNIC_ATTR_SQ_PSN | RNIC_ATTR_TIMEOUT |
					    RNIC_ATTR_RETRY | RNIC_ATTR_RNR_RETRY |
					    RNIC_ATTR_RD_ATOMIC,
				    now);
	return rc;
}

int vqp_connect(struct verbs_qp *qp, uint64_t now)
{
	const struct verbs_id *id = qp->id;
	const struct rnic_cm_qp *them = &id->theirs;
	struct rnic_qp_attr a = {
		.path = rnic_cm_route(id->conn)->path,
		.mtu = wire_mtu_bytes(them->mtu),
		.dest_qpn = them->qpn,
		.rq_psn = id->my_psn,
		.sq_psn = them->psn,
		.timeout = id->param.ack_timeout,
		.retry = id->param.retry,
		.rnr_retry = them->rnr_retry,
		.min_rnr = id->param.min_rnr_timer,
		.rd_atomic = least(least(id->param.initiator_depth, them->responder_resources),
				   MAX_RD_ATOMIC),
		.dest_rd_atomic = least(id->param.responder_resources, MAX_RD_ATOMIC),
	};

	return to_rts(qp->qp, &a, now);
}

int vqp_connect_alone(struct verbs_qp *qp, const struct verbs_peer *to,
		      const struct verbs_conn_param *p)
{
	unsigned mtu = wire_mtu_bytes(wire_mtu_code(to->mtu));
	struct rnic_qp_attr a = {
		.mtu = least(mtu, wire_mtu_bytes(qp->host->mtu_code)),
		.dest_qpn = to->qpn,
		.rq_psn = to->psn & WIRE_PSN_MASK,
		.sq_psn = to->my_psn & WIRE_PSN_MASK,
		.timeout = p->ack_timeout ? p->ack_timeout : VRNIC_ACK_TIMEOUT,
		.retry = p->retry,
		.rnr_retry = p->rnr_retry,
		.min_rnr = p->min_rnr_timer,
		.rd_atomic = least(p->initiator_depth, MAX_RD_ATOMIC),
		.dest_rd_atomic = least(p->responder_resources, MAX_RD_ATOMIC),
	};
	int rc;

	if (qp->id || to->gid_index || !mtu)
		return -EINVAL;
	memcpy(a.path.src, qp->host->addr.gid, 16);
	memcpy(a.path.dst, to->gid, 16);
	vhost_lock(qp->host);
	rc = to_rts(qp->qp, &a, sys.now_ns());
	qp->host->stat_touched++;
	vhost_flush(qp->host);
	vhost_unlock(qp->host);
	return rc;
}

void vqp_fail(struct verbs_qp *qp, uint64_t now)
{
	struct rnic_qp_attr a = { .state = RNIC_QPS_ERR };

	rnic_qp_modify(qp->qp, &a, RNIC_ATTR_STATE, now);
}

/* --- posting ------------------------------------------------------------------------------------ */

static void convert_sge(struct rnic_sge *to, const struct verbs_sge *from, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		to[i] = (struct rnic_sge){ from[i].addr, from[i].len, from[i].lkey };
}

static int post_one(struct verbs_qp *qp, const struct verbs_send_wr *wr, uint64_t now)
{
	struct rnic_sge sge[MAX_SGE];
	struct rnic_send_wr w = { .wr_id = wr->wr_id,
				  .opcode = (enum rnic_wr_opcode)wr->opcode,
				  .flags = wr->flags,
				  .sge = sge,
				  .nsge = wr->nsge,
				  .imm = wr->imm,
				  .raddr = wr->raddr,
				  .rkey = wr->rkey,
				  .compare = wr->compare,
				  .swap_add = wr->swap_add };

	if (wr->nsge > MAX_SGE)
		return -EINVAL;
	convert_sge(sge, wr->sge, wr->nsge);
	return rnic_post_send(qp->qp, &w, now);
}

int vqp_post_send(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n)
{
	uint64_t now = sys.now_ns();
	int i, rc = 0;

	vhost_lock(qp->host);
	for (i = 0; i < n && !rc; i++)
		rc = post_one(qp, &wr[i], now);
	i -= rc != 0;
	vhost_flush(qp->host);
	vhost_unlock(qp->host);
	return i ? i : rc;
}

int vqp_post_recv(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n)
{
	struct rnic_sge sge[MAX_SGE];
	int i, rc = 0;

	vhost_lock(qp->host);
	for (i = 0; i < n && !rc; i++) {
		if (wr[i].nsge > MAX_SGE) {
			rc = -EINVAL;
			continue;
		}
		convert_sge(sge, wr[i].sge, wr[i].nsge);
		rc = qp->ex ? vexport_post_recv(qp->ex, wr[i].wr_id, sge, wr[i].nsge)
			    : rnic_post_recv(qp->qp, wr[i].wr_id, sge, wr[i].nsge);
	}
	i -= rc != 0;
	vhost_unlock(qp->host);
	return i ? i : rc;
}
