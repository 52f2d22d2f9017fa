/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of the CM, out. Fields that RoCE does not use hold what Linux puts there. */
#include "rnic/cm_impl.h"

#include <string.h>

#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/roce.h"

enum {
	CM_TIMEOUT_CODE = 20, /* 4.3 s: how soon a peer may expect our answers */
	CM_RETRIES = 15,
	HOP_LIMIT = 64,
	LID_PERMISSIVE = 0xffff,
};

static void put(struct rnic_cm *cm, const struct rnic_path *path, const struct wire_cm *m,
		uint8_t mad[WIRE_MAD_LEN], uint64_t now)
{
	wire_cm_encode(m, mad);
	cm->ctr.tx[m->attr & 15]++;
	cm->cfg.send(cm->cfg.ctx, path, mad, now);
}

void cm_send_stray(struct rnic_cm *cm, const struct rnic_path *path, const struct wire_cm *m,
		   uint64_t now)
{
	uint8_t mad[WIRE_MAD_LEN];

	put(cm, path, m, mad, now);
}

/* Sends, and keeps it for duplicates and the timer. */
static void put_kept(struct rnic_cm_conn *c, const struct wire_cm *m, uint64_t now)
{
	c->mad_attr = m->attr;
	put(c->cm, &c->route.path, m, c->mad, now);
}

void cm_resend(struct rnic_cm_conn *c, uint64_t now)
{
	struct rnic_cm *cm = c->cm;

	if (!c->mad_attr)
		return;
	cm->ctr.tx[c->mad_attr & 15]++;
	cm->ctr.resent++;
	cm->cfg.send(cm->cfg.ctx, &c->route.path, c->mad, now);
}

/* The RDMA CM's header, then the caller's bytes. */
static void put_private(const struct rnic_cm_conn *c, uint8_t *to, const void *priv, size_t len)
{
	const struct rnic_path *p = &c->route.path;
	struct wire_rdmacm h = { .sport = c->route.sport };
	bool v4 = wire_gid_is_v4(p->src) && wire_gid_is_v4(p->dst);

	h.ip_version = v4 ? 4 : 6;
	memcpy(h.src, p->src, 16);
	memcpy(h.dst, p->dst, 16);
	wire_rdmacm_encode(&h, to);
	if (len)
		memcpy(to + WIRE_RDMACM_LEN, priv, len);
}

void cm_send_req(struct rnic_cm_conn *c, const void *priv, size_t len, uint64_t now)
{
	const struct rnic_cm_route *to = &c->route;
	struct wire_cm m = { .tid = c->tid, .attr = WIRE_CM_REQ };
	struct wire_cm_req *q = &m.u.req;

	*q = (struct wire_cm_req){
		.local_id = c->local_id,
		.service_id = wire_rdmacm_service_id(to->port_space, to->dport),
		.ca_guid = c->cm->cfg.guid,
		.qpn = c->mine.qpn,
		.responder_resources = c->mine.responder_resources,
		.initiator_depth = c->mine.initiator_depth,
		.remote_cm_timeout = CM_TIMEOUT_CODE,
		.transport = WIRE_CM_TRANSPORT_RC,
		.flow_control = c->mine.flow_control,
		.psn = c->mine.psn,
		.local_cm_timeout = CM_TIMEOUT_CODE,
		.retry_count = c->mine.retry,
		.pkey = WIRE_PKEY_DEFAULT,
		.path_mtu = c->mine.mtu,
		.rnr_retry = c->mine.rnr_retry,
		.max_cm_retries = CM_RETRIES,
		.srq = c->mine.srq,
		.local_lid = LID_PERMISSIVE,
		.remote_lid = LID_PERMISSIVE,
		.flow_label = to->path.flow,
		.traffic_class = to->path.tclass,
		.hop_limit = to->path.hop_limit ? to->path.hop_limit : HOP_LIMIT,
		.ack_timeout = c->mine.ack_timeout,
	};
	memcpy(q->local_gid, to->path.src, 16);
	memcpy(q->remote_gid, to->path.dst, 16);
	put_private(c, q->priv, priv, len);
	put_kept(c, &m, now);
}

void cm_send_rep(struct rnic_cm_conn *c, const void *priv, size_t len, uint64_t now)
{
	struct wire_cm m = { .tid = c->req_tid, .attr = WIRE_CM_REP };

	m.u.rep = (struct wire_cm_rep){
		.local_id = c->local_id,
		.remote_id = c->remote_id,
		.qpn = c->mine.qpn,
		.psn = c->mine.psn,
		.responder_resources = c->mine.responder_resources,
		.initiator_depth = c->mine.initiator_depth,
		.ack_delay = 15,
		.flow_control = c->mine.flow_control,
		.rnr_retry = c->mine.rnr_retry,
		.srq = c->mine.srq,
		.ca_guid = c->cm->cfg.guid,
	};
	if (len)
		memcpy(m.u.rep.priv, priv, len);
	put_kept(c, &m, now);
}

void cm_send_rtu(struct rnic_cm_conn *c, uint64_t now)
{
	struct wire_cm m = { .tid = c->tid, .attr = WIRE_CM_RTU };

	m.u.rtu.local_id = c->local_id;
	m.u.rtu.remote_id = c->remote_id;
	put_kept(c, &m, now);
}

void cm_send_dreq(struct rnic_cm_conn *c, uint64_t now)
{
	struct wire_cm m = { .tid = c->tid, .attr = WIRE_CM_DREQ };

	m.u.dreq.local_id = c->local_id;
	m.u.dreq.remote_id = c->remote_id;
	m.u.dreq.remote_qpn = c->theirs.qpn;
	put_kept(c, &m, now);
}

void cm_send_rej(struct rnic_cm_conn *c, unsigned message, uint16_t reason, const void *priv,
		 size_t len, uint64_t now)
{
	struct wire_cm m = { .tid = c->passive ? c->req_tid : c->tid, .attr = WIRE_CM_REJ };

	m.u.rej.local_id = c->local_id;
	m.u.rej.remote_id = c->remote_id;
	m.u.rej.message = (uint8_t)message;
	m.u.rej.reason = reason;
	if (reason == WIRE_REJ_TIMEOUT) {
		/* The peer's number may not be known; Linux finds its connection by the GUID then. */
		m.u.rej.info_len = 8;
		wire_put_be64(m.u.rej.ari, c->cm->cfg.guid);
	}
	if (len)
		memcpy(m.u.rej.priv, priv, len);
	put_kept(c, &m, now);
}

/* Not kept: it is neither repeated nor in the place of what is. */
void cm_send_mra(struct rnic_cm_conn *c, unsigned message, uint64_t now)
{
	struct wire_cm m = { .tid = c->passive ? c->req_tid : c->tid, .attr = WIRE_CM_MRA };

	m.u.mra.local_id = c->local_id;
	m.u.mra.remote_id = c->remote_id;
	m.u.mra.message = (uint8_t)message;
	m.u.mra.timeout = (uint8_t)wire_ack_timeout_code(c->cm->cfg.answer_ns);
	cm_send_stray(c->cm, &c->route.path, &m, now);
}

void cm_send_sidr_req(struct rnic_cm_conn *c, const void *priv, size_t len, uint64_t now)
{
	struct wire_cm m = { .tid = c->tid, .attr = WIRE_CM_SIDR_REQ };
	struct wire_cm_sidr_req *q = &m.u.sidr_req;

	q->request_id = c->local_id;
	q->pkey = WIRE_PKEY_DEFAULT;
	q->service_id = wire_rdmacm_service_id(c->route.port_space, c->route.dport);
	put_private(c, q->priv, priv, len);
	put_kept(c, &m, now);
}

void cm_send_sidr_rep(struct rnic_cm_conn *c, uint8_t status, const void *priv, size_t len,
		      uint64_t now)
{
	struct wire_cm m = { .tid = c->req_tid, .attr = WIRE_CM_SIDR_REP };
	struct wire_cm_sidr_rep *r = &m.u.sidr_rep;

	r->request_id = c->remote_id;
	r->status = status;
	r->qpn = c->mine.qpn;
	r->qkey = c->mine.qkey;
	r->service_id = wire_rdmacm_service_id(c->route.port_space, c->route.sport);
	if (len)
		memcpy(r->priv, priv, len);
	put_kept(c, &m, now);
}
