/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of the CM, in. Each finds its connection by our number, which is random, and must come from the
 * connection's address and carry the peer's number; only a REQ, a SIDR_REQ and the REJ of a peer that gave up waiting are
 * found by the peer's.
 */
#include "rnic/cm_impl.h"

#include <errno.h>
#include <string.h>

#include "wire/roce.h"

/* Longest wait that a peer may ask for by an MRA. */
#define MRA_MAX_NS UINT64_C(70000000000)

struct in {
	struct rnic_cm *cm;
	const struct rnic_path *back;
	const struct wire_cm *m;
	uint64_t now;
};

static bool from_peer(const struct in *in, const struct rnic_cm_conn *c)
{
	return memcmp(in->back->dst, c->route.path.dst, 16) == 0 &&
	       memcmp(in->back->src, c->route.path.src, 16) == 0;
}

/* The connection that a message with these numbers is about. `remote_id` 0 matches any: a REJ may not know it. */
static struct rnic_cm_conn *find(const struct in *in, uint32_t local_id, uint32_t remote_id)
{
	struct rnic_cm_conn *c = cm_conn_find(in->cm, local_id);

	if (!c || (remote_id && c->remote_id && c->remote_id != remote_id)) {
		in->cm->ctr.rx_unknown++;
		return NULL;
	}
	if (!from_peer(in, c)) {
		in->cm->ctr.rx_spoofed++;
		return NULL;
	}
	return c;
}

/* --- requests ----------------------------------------------------------------------------------- */

static void refuse(const struct in *in, uint16_t reason, uint8_t ari)
{
	struct wire_cm m = { .tid = in->m->tid, .attr = WIRE_CM_REJ };

	m.u.rej.remote_id = in->m->u.req.local_id;
	m.u.rej.message = WIRE_CM_MSG_REQ;
	m.u.rej.reason = reason;
	m.u.rej.info_len = ari ? 1 : 0;
	m.u.rej.ari[0] = ari;
	cm_send_stray(in->cm, in->back, &m, in->now);
}

/* What a peer repeats. */
static void again(const struct in *in, struct rnic_cm_conn *c)
{
	in->cm->ctr.rx_duplicate++;
	switch (c->state) {
	case CM_REQ_RCVD:
		cm_send_mra(c, WIRE_CM_MSG_REQ, in->now);
		break;
	case CM_REP_SENT:
		cm_resend(c, in->now);
		break;
	case CM_TIMEWAIT:
		if (c->mad_attr == WIRE_CM_REJ || c->mad_attr == WIRE_CM_SIDR_REP)
			cm_resend(c, in->now);
		break;
	default:
		break; /* an old copy */
	}
}

static uint16_t req_wrong(const struct in *in, const struct wire_cm_req *q)
{
	if (memcmp(q->local_gid, in->back->dst, 16) != 0 ||
	    memcmp(q->remote_gid, in->back->src, 16) != 0) {
		in->cm->ctr.rx_spoofed++;
		return WIRE_REJ_INVALID_GID;
	}
	if (q->transport != WIRE_CM_TRANSPORT_RC)
		return WIRE_REJ_INVALID_TRANSPORT;
	if (!q->qpn)
		return WIRE_REJ_UNSUPPORTED;
	if (!wire_mtu_bytes(q->path_mtu) || q->path_mtu > in->cm->cfg.max_mtu)
		return WIRE_REJ_INVALID_MTU;
	return 0;
}

static struct rnic_cm_conn *request_new(const struct in *in, struct rnic_cm_listener *l,
					uint32_t remote_id, uint16_t sport)
{
	struct rnic_cm_conn *c;

	if (!cm_half_open_room(in->cm, l, in->back->dst) || !(c = cm_conn_new(in->cm, in->back))) {
		in->cm->ctr.half_open_refused++;
		return NULL;
	}
	c->passive = true;
	c->remote_id = remote_id;
	c->req_tid = in->m->tid;
	c->route.port_space = l->ps;
	c->route.dport = sport;
	c->route.sport = l->port;
	c->user = l->user;
	cm_conn_hash(c);
	cm_half_open(c, l);
	return c;
}

static void request_tell(const struct in *in, struct rnic_cm_conn *c, const uint8_t *priv,
			 size_t len)
{
	struct rnic_cm_event ev = { .type = RNIC_CM_REQUEST,
				    .peer = c->theirs,
				    .priv = priv + WIRE_RDMACM_LEN,
				    .priv_len = len - WIRE_RDMACM_LEN };

	cm_timer(c, in->now + in->cm->cfg.answer_ns);
	if (cm_tell(c, &ev) == 0)
		return;
	if (c->state == CM_SIDR_RCVD)
		cm_send_sidr_rep(c, WIRE_SIDR_NO_QP, NULL, 0, in->now);
	else
		cm_send_rej(c, WIRE_CM_MSG_REQ, WIRE_REJ_NO_RESOURCES, NULL, 0, in->now);
	cm_conn_free(c);
}

static void theirs_from_req(struct rnic_cm_conn *c, const struct wire_cm_req *q)
{
	c->route.path.flow = q->flow_label;
	c->route.path.tclass = q->traffic_class;
	c->theirs = (struct rnic_cm_qp){
		.qpn = q->qpn,
		.psn = q->psn,
		.responder_resources = q->responder_resources,
		.initiator_depth = q->initiator_depth,
		.retry = q->retry_count,
		.rnr_retry = q->rnr_retry,
		.flow_control = q->flow_control,
		.srq = q->srq,
		.mtu = q->path_mtu,
		.ack_timeout = q->ack_timeout,
	};
}

static void on_req(const struct in *in)
{
	const struct wire_cm_req *q = &in->m->u.req;
	struct rnic_cm_listener *l = NULL;
	struct rnic_cm_conn *c;
	struct wire_rdmacm h;
	uint16_t ps, port, wrong;

	c = cm_conn_of_peer(in->cm, in->back->dst, q->local_id, false);
	if (c) {
		again(in, c);
		return;
	}
	wrong = req_wrong(in, q);
	if (wrong) {
		refuse(in, wrong, wrong == WIRE_REJ_INVALID_MTU ? (uint8_t)in->cm->cfg.max_mtu : 0);
		return;
	}
	if (wire_rdmacm_from_service_id(q->service_id, &ps, &port) && ps != WIRE_RDMACM_PS_UDP)
		l = cm_listener_find(in->cm, ps, in->back->src, port);
	if (!l) {
		in->cm->ctr.no_listener++;
		refuse(in, WIRE_REJ_INVALID_SERVICE_ID, 0);
		return;
	}
	if (wire_rdmacm_decode(&h, q->priv, sizeof(q->priv))) {
		refuse(in, WIRE_REJ_UNSUPPORTED, 0);
		return;
	}
	c = request_new(in, l, q->local_id, h.sport);
	if (!c)
		return;
	c->state = CM_REQ_RCVD;
	theirs_from_req(c, q);
	request_tell(in, c, q->priv, sizeof(q->priv));
}

static void on_sidr_req(const struct in *in)
{
	const struct wire_cm_sidr_req *q = &in->m->u.sidr_req;
	struct wire_cm m = { .tid = in->m->tid, .attr = WIRE_CM_SIDR_REP };
	struct rnic_cm_listener *l = NULL;
	struct rnic_cm_conn *c;
	struct wire_rdmacm h;
	uint16_t ps, port;

	c = cm_conn_of_peer(in->cm, in->back->dst, q->request_id, true);
	if (c) {
		again(in, c);
		return;
	}
	if (wire_rdmacm_from_service_id(q->service_id, &ps, &port) && ps == WIRE_RDMACM_PS_UDP)
		l = cm_listener_find(in->cm, ps, in->back->src, port);
	if (!l || wire_rdmacm_decode(&h, q->priv, sizeof(q->priv))) {
		in->cm->ctr.no_listener++;
		m.u.sidr_rep.request_id = q->request_id;
		m.u.sidr_rep.status = WIRE_SIDR_NO_SERVICE;
		m.u.sidr_rep.service_id = q->service_id;
		cm_send_stray(in->cm, in->back, &m, in->now);
		return;
	}
	c = request_new(in, l, q->request_id, h.sport);
	if (!c)
		return;
	c->state = CM_SIDR_RCVD;
	request_tell(in, c, q->priv, sizeof(q->priv));
}

/* --- answers ------------------------------------------------------------------------------------ */

static void theirs_from_rep(struct rnic_cm_conn *c, const struct wire_cm_rep *r)
{
	c->theirs = (struct rnic_cm_qp){
		.qpn = r->qpn,
		.psn = r->psn,
		.responder_resources = r->responder_resources,
		.initiator_depth = r->initiator_depth,
		.rnr_retry = r->rnr_retry,
		.flow_control = r->flow_control,
		.srq = r->srq,
		.mtu = c->mine.mtu,
		.ack_timeout = c->mine.ack_timeout,
	};
}

/* A REP for nothing: its sender has waited in vain, or is a ghost of an old REQ. */
static void rep_refuse(const struct in *in)
{
	struct wire_cm m = { .tid = in->m->tid, .attr = WIRE_CM_REJ };

	m.u.rej.local_id = in->m->u.rep.remote_id;
	m.u.rej.remote_id = in->m->u.rep.local_id;
	m.u.rej.message = WIRE_CM_MSG_REP;
	m.u.rej.reason = WIRE_REJ_INVALID_COMM_ID;
	cm_send_stray(in->cm, in->back, &m, in->now);
}

static void on_rep(const struct in *in)
{
	const struct wire_cm_rep *r = &in->m->u.rep;
	struct rnic_cm_conn *c = cm_conn_find(in->cm, r->remote_id);
	struct rnic_cm_event ev = { .type = RNIC_CM_RESPONSE,
				    .priv = r->priv,
				    .priv_len = sizeof(r->priv) };

	if (!c) {
		in->cm->ctr.rx_unknown++;
		rep_refuse(in);
		return;
	}
	if (!find(in, r->remote_id, r->local_id) || c->passive)
		return;
	if (c->state == CM_REP_RCVD) {
		in->cm->ctr.rx_duplicate++;
		cm_send_mra(c, WIRE_CM_MSG_REP, in->now);
		return;
	}
	if (c->state == CM_ESTABLISHED && c->mad_attr == WIRE_CM_RTU) {
		in->cm->ctr.rx_duplicate++;
		cm_resend(c, in->now);
		return;
	}
	if (c->state != CM_REQ_SENT)
		return;
	c->remote_id = r->local_id;
	c->state = CM_REP_RCVD;
	c->mad_attr = 0;
	theirs_from_rep(c, r);
	cm_timer(c, in->now + in->cm->cfg.answer_ns);
	ev.peer = c->theirs;
	cm_tell(c, &ev);
}

static void on_rtu(const struct in *in)
{
	struct rnic_cm_conn *c = find(in, in->m->u.rtu.remote_id, in->m->u.rtu.local_id);

	if (c)
		rnic_cm_data_seen(c, in->now);
}

static void on_sidr_rep(const struct in *in)
{
	const struct wire_cm_sidr_rep *r = &in->m->u.sidr_rep;
	struct rnic_cm_conn *c = find(in, r->request_id, 0);
	struct rnic_cm_event ev = { .type = RNIC_CM_DATAGRAM,
				    .priv = r->priv,
				    .priv_len = sizeof(r->priv) };

	if (!c || c->state != CM_SIDR_SENT)
		return;
	c->theirs = (struct rnic_cm_qp){ .qpn = r->qpn, .qkey = r->qkey };
	if (r->status != WIRE_SIDR_OK) {
		ev.type = RNIC_CM_REJECTED;
		ev.reason = (uint16_t)(0x8000 | r->status);
	}
	ev.peer = c->theirs;
	c->mad_attr = 0;
	cm_tell(c, &ev);
	cm_timewait(c, in->now);
}

/* --- refusals and delays ------------------------------------------------------------------------- */

/* The peer's MTU is smaller: ask again with that. True when it was so. */
static bool smaller_mtu(const struct in *in, struct rnic_cm_conn *c, const struct wire_cm_rej *r)
{
	struct wire_cm m;

	if (c->state != CM_REQ_SENT || r->reason != WIRE_REJ_INVALID_MTU || !r->info_len ||
	    !wire_mtu_bytes(r->ari[0]) || r->ari[0] >= c->mine.mtu)
		return false;
	c->mine.mtu = r->ari[0];
	wire_cm_decode(&m, c->mad, WIRE_MAD_LEN);
	m.u.req.path_mtu = c->mine.mtu;
	wire_cm_encode(&m, c->mad);
	cm_resend(c, in->now);
	return true;
}

static void on_rej(const struct in *in)
{
	const struct wire_cm_rej *r = &in->m->u.rej;
	struct rnic_cm_event ev = { .type = RNIC_CM_REJECTED,
				    .reason = r->reason,
				    .priv = r->priv,
				    .priv_len = sizeof(r->priv) };
	struct rnic_cm_conn *c;

	c = r->remote_id ? find(in, r->remote_id, r->local_id)
			 : cm_conn_of_peer(in->cm, in->back->dst, r->local_id, false);
	if (!c || smaller_mtu(in, c, r))
		return;
	switch (c->state) {
	case CM_REQ_SENT:
	case CM_REP_RCVD:
	case CM_REQ_RCVD:
	case CM_REP_SENT:
		break;
	case CM_ESTABLISHED:
		/* The peer never saw our RTU. */
		ev.type = RNIC_CM_DISCONNECTED;
		break;
	case CM_DREQ_SENT:
		ev.type = RNIC_CM_DISCONNECTED;
		break;
	default:
		return;
	}
	cm_half_open_end(c);
	c->mad_attr = 0;
	cm_tell(c, &ev);
	cm_timewait(c, in->now);
}

static void on_mra(const struct in *in)
{
	const struct wire_cm_mra *r = &in->m->u.mra;
	struct rnic_cm_conn *c = find(in, r->remote_id, r->local_id);
	uint64_t ns = wire_ack_timeout_ns(r->timeout);

	if (!c || !((r->message == WIRE_CM_MSG_REQ && c->state == CM_REQ_SENT) ||
		    (r->message == WIRE_CM_MSG_REP && c->state == CM_REP_SENT)))
		return;
	cm_timer(c, in->now + (ns > MRA_MAX_NS ? MRA_MAX_NS : ns));
}

/* --- the end ------------------------------------------------------------------------------------ */

static void drep(const struct in *in)
{
	struct wire_cm m = { .tid = in->m->tid, .attr = WIRE_CM_DREP };

	m.u.drep.local_id = in->m->u.dreq.remote_id;
	m.u.drep.remote_id = in->m->u.dreq.local_id;
	cm_send_stray(in->cm, in->back, &m, in->now);
}

static void on_dreq(const struct in *in)
{
	const struct wire_cm_dreq *d = &in->m->u.dreq;
	struct rnic_cm_conn *c = cm_conn_find(in->cm, d->remote_id);

	if (!c) {
		in->cm->ctr.rx_unknown++;
		drep(in);
		return;
	}
	if (!find(in, d->remote_id, d->local_id))
		return;
	switch (c->state) {
	case CM_REP_RCVD:
	case CM_REP_SENT:
	case CM_ESTABLISHED:
	case CM_DREQ_SENT:
		if (d->remote_qpn != c->mine.qpn || c->remote_id != d->local_id) {
			in->cm->ctr.rx_spoofed++;
			return;
		}
		break;
	case CM_TIMEWAIT:
		in->cm->ctr.rx_duplicate++;
		drep(in);
		return;
	default:
		return;
	}
	drep(in);
	cm_half_open_end(c);
	c->mad_attr = 0;
	cm_tell_type(c, RNIC_CM_DISCONNECTED);
	cm_timewait(c, in->now);
}

static void on_drep(const struct in *in)
{
	struct rnic_cm_conn *c = find(in, in->m->u.drep.remote_id, in->m->u.drep.local_id);

	if (!c || c->state != CM_DREQ_SENT)
		return;
	c->mad_attr = 0;
	cm_tell_type(c, RNIC_CM_DISCONNECTED);
	cm_timewait(c, in->now);
}

void rnic_cm_receive(struct rnic_cm *cm, const struct rnic_path *back, const uint8_t *mad,
		     size_t len, uint64_t now)
{
	static void (*const on[])(const struct in *) = {
		[WIRE_CM_REQ - 0x10] = on_req,           [WIRE_CM_MRA - 0x10] = on_mra,
		[WIRE_CM_REJ - 0x10] = on_rej,           [WIRE_CM_REP - 0x10] = on_rep,
		[WIRE_CM_RTU - 0x10] = on_rtu,           [WIRE_CM_DREQ - 0x10] = on_dreq,
		[WIRE_CM_DREP - 0x10] = on_drep,         [WIRE_CM_SIDR_REQ - 0x10] = on_sidr_req,
		[WIRE_CM_SIDR_REP - 0x10] = on_sidr_rep,
	};
	struct wire_cm m;
	struct in in = { cm, back, &m, now };

	if (wire_cm_decode(&m, mad, len)) {
		cm->ctr.rx_malformed++;
		return;
	}
	cm->ctr.rx[m.attr & 15]++;
	on[m.attr - 0x10](&in);
}
