/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/cm.h"

#include <errno.h>
#include <string.h>

#include "wire/bytes.h"
#include "wire/frame.h"

enum {
	MAD_BASE_VERSION = 1,
	MAD_CLASS_CM = 7,
	MAD_CLASS_VERSION = 2,
	MAD_METHOD_SEND = 3,
	MAD_HDR_LEN = 24,
	REQ_ALT_LID = 96,
};

/* --- REQ --------------------------------------------------------------------------------------- */

static void req_get_path(struct wire_cm_req *q, const uint8_t *p)
{
	q->local_lid = wire_get_be16(p + 52);
	q->remote_lid = wire_get_be16(p + 54);
	memcpy(q->local_gid, p + 56, 16);
	memcpy(q->remote_gid, p + 72, 16);
	q->flow_label = wire_get_be32(p + 88) >> 12;
	q->rate = p[91] & 0x3f;
	q->traffic_class = p[92];
	q->hop_limit = p[93];
	q->sl = p[94] >> 4;
	q->subnet_local = p[94] & 8;
	q->ack_timeout = p[95] >> 3;
}

static int req_get(struct wire_cm_req *q, const uint8_t *p)
{
	if (wire_get_be16(p + REQ_ALT_LID))
		return -EOPNOTSUPP;
	q->local_id = wire_get_be32(p);
	q->service_id = wire_get_be64(p + 8);
	q->ca_guid = wire_get_be64(p + 16);
	q->qkey = wire_get_be32(p + 28);
	q->qpn = wire_get_be24(p + 32);
	q->responder_resources = p[35];
	q->initiator_depth = p[39];
	q->remote_cm_timeout = p[43] >> 3;
	q->transport = p[43] >> 1 & 3;
	q->flow_control = p[43] & 1;
	q->psn = wire_get_be24(p + 44);
	q->local_cm_timeout = p[47] >> 3;
	q->retry_count = p[47] & 7;
	q->pkey = wire_get_be16(p + 48);
	q->path_mtu = p[50] >> 4;
	q->rnr_retry = p[50] & 7;
	q->max_cm_retries = p[51] >> 4;
	q->srq = p[51] & 8;
	req_get_path(q, p);
	memcpy(q->priv, p + 140, sizeof(q->priv));
	return 0;
}

static void req_put_path(uint8_t *p, const struct wire_cm_req *q)
{
	wire_put_be16(p + 52, q->local_lid);
	wire_put_be16(p + 54, q->remote_lid);
	memcpy(p + 56, q->local_gid, 16);
	memcpy(p + 72, q->remote_gid, 16);
	wire_put_be32(p + 88, q->flow_label << 12 | (q->rate & 0x3f));
	p[92] = q->traffic_class;
	p[93] = q->hop_limit;
	p[94] = (uint8_t)(q->sl << 4 | (q->subnet_local ? 8 : 0));
	p[95] = (uint8_t)(q->ack_timeout << 3);
}

static void req_put(uint8_t *p, const struct wire_cm_req *q)
{
	wire_put_be32(p, q->local_id);
	wire_put_be64(p + 8, q->service_id);
	wire_put_be64(p + 16, q->ca_guid);
	wire_put_be32(p + 28, q->qkey);
	wire_put_be24(p + 32, q->qpn);
	p[35] = q->responder_resources;
	p[39] = q->initiator_depth;
	p[43] = (uint8_t)(q->remote_cm_timeout << 3 | (q->transport & 3) << 1 |
			  (q->flow_control ? 1 : 0));
	wire_put_be24(p + 44, q->psn);
	p[47] = (uint8_t)(q->local_cm_timeout << 3 | (q->retry_count & 7));
	wire_put_be16(p + 48, q->pkey);
	p[50] = (uint8_t)(q->path_mtu << 4 | (q->rnr_retry & 7));
	p[51] = (uint8_t)(q->max_cm_retries << 4 | (q->srq ? 8 : 0));
	req_put_path(p, q);
	memcpy(p + 140, q->priv, sizeof(q->priv));
}

/* --- REP --------------------------------------------------------------------------------------- */

static void rep_get(struct wire_cm_rep *r, const uint8_t *p)
{
	r->local_id = wire_get_be32(p);
	r->remote_id = wire_get_be32(p + 4);
	r->qkey = wire_get_be32(p + 8);
	r->qpn = wire_get_be24(p + 12);
	r->psn = wire_get_be24(p + 20);
	r->responder_resources = p[24];
	r->initiator_depth = p[25];
	r->ack_delay = p[26] >> 3;
	r->failover = p[26] >> 1 & 3;
	r->flow_control = p[26] & 1;
	r->rnr_retry = p[27] >> 5;
	r->srq = p[27] & 0x10;
	r->ca_guid = wire_get_be64(p + 28);
	memcpy(r->priv, p + 36, sizeof(r->priv));
}

static void rep_put(uint8_t *p, const struct wire_cm_rep *r)
{
	wire_put_be32(p, r->local_id);
	wire_put_be32(p + 4, r->remote_id);
	wire_put_be32(p + 8, r->qkey);
	wire_put_be24(p + 12, r->qpn);
	wire_put_be24(p + 20, r->psn);
	p[24] = r->responder_resources;
	p[25] = r->initiator_depth;
	p[26] = (uint8_t)(r->ack_delay << 3 | (r->failover & 3) << 1 | (r->flow_control ? 1 : 0));
	p[27] = (uint8_t)(r->rnr_retry << 5 | (r->srq ? 0x10 : 0));
	wire_put_be64(p + 28, r->ca_guid);
	memcpy(p + 36, r->priv, sizeof(r->priv));
}

/* --- the short ones ---------------------------------------------------------------------------- */

static void ids_get(struct wire_cm_ids *r, const uint8_t *p)
{
	r->local_id = wire_get_be32(p);
	r->remote_id = wire_get_be32(p + 4);
	memcpy(r->priv, p + 8, sizeof(r->priv));
}

static void ids_put(uint8_t *p, const struct wire_cm_ids *r)
{
	wire_put_be32(p, r->local_id);
	wire_put_be32(p + 4, r->remote_id);
	memcpy(p + 8, r->priv, sizeof(r->priv));
}

static void dreq_get(struct wire_cm_dreq *r, const uint8_t *p)
{
	r->local_id = wire_get_be32(p);
	r->remote_id = wire_get_be32(p + 4);
	r->remote_qpn = wire_get_be24(p + 8);
	memcpy(r->priv, p + 12, sizeof(r->priv));
}

static void dreq_put(uint8_t *p, const struct wire_cm_dreq *r)
{
	wire_put_be32(p, r->local_id);
	wire_put_be32(p + 4, r->remote_id);
	wire_put_be24(p + 8, r->remote_qpn);
	memcpy(p + 12, r->priv, sizeof(r->priv));
}

static int rej_get(struct wire_cm_rej *r, const uint8_t *p)
{
	r->local_id = wire_get_be32(p);
	r->remote_id = wire_get_be32(p + 4);
	r->message = p[8] >> 6;
	r->info_len = p[9] >> 1;
	r->reason = wire_get_be16(p + 10);
	memcpy(r->ari, p + 12, sizeof(r->ari));
	memcpy(r->priv, p + 84, sizeof(r->priv));
	return r->info_len > WIRE_CM_ARI ? -EBADMSG : 0;
}

static void rej_put(uint8_t *p, const struct wire_cm_rej *r)
{
	wire_put_be32(p, r->local_id);
	wire_put_be32(p + 4, r->remote_id);
	p[8] = (uint8_t)(r->message << 6);
	p[9] = (uint8_t)(r->info_len << 1);
	wire_put_be16(p + 10, r->reason);
	memcpy(p + 12, r->ari, sizeof(r->ari));
	memcpy(p + 84, r->priv, sizeof(r->priv));
}

static void mra_get(struct wire_cm_mra *r, const uint8_t *p)
{
	r->local_id = wire_get_be32(p);
	r->remote_id = wire_get_be32(p + 4);
	r->message = p[8] >> 6;
	r->timeout = p[9] >> 3;
	memcpy(r->priv, p + 10, sizeof(r->priv));
}

static void mra_put(uint8_t *p, const struct wire_cm_mra *r)
{
	wire_put_be32(p, r->local_id);
	wire_put_be32(p + 4, r->remote_id);
	p[8] = (uint8_t)(r->message << 6);
	p[9] = (uint8_t)(r->timeout << 3);
	memcpy(p + 10, r->priv, sizeof(r->priv));
}

static void sidr_req_get(struct wire_cm_sidr_req *r, const uint8_t *p)
{
	r->request_id = wire_get_be32(p);
	r->pkey = wire_get_be16(p + 4);
	r->service_id = wire_get_be64(p + 8);
	memcpy(r->priv, p + 16, sizeof(r->priv));
}

static void sidr_req_put(uint8_t *p, const struct wire_cm_sidr_req *r)
{
	wire_put_be32(p, r->request_id);
	wire_put_be16(p + 4, r->pkey);
	wire_put_be64(p + 8, r->service_id);
	memcpy(p + 16, r->priv, sizeof(r->priv));
}

static int sidr_rep_get(struct wire_cm_sidr_rep *r, const uint8_t *p)
{
	r->request_id = wire_get_be32(p);
	r->status = p[4];
	r->info_len = p[5];
	r->qpn = wire_get_be24(p + 8);
	r->service_id = wire_get_be64(p + 12);
	r->qkey = wire_get_be32(p + 20);
	memcpy(r->ari, p + 24, sizeof(r->ari));
	memcpy(r->priv, p + 96, sizeof(r->priv));
	return r->info_len > WIRE_CM_ARI ? -EBADMSG : 0;
}

static void sidr_rep_put(uint8_t *p, const struct wire_cm_sidr_rep *r)
{
	wire_put_be32(p, r->request_id);
	p[4] = r->status;
	p[5] = r->info_len;
	wire_put_be24(p + 8, r->qpn);
	wire_put_be64(p + 12, r->service_id);
	wire_put_be32(p + 20, r->qkey);
	memcpy(p + 24, r->ari, sizeof(r->ari));
	memcpy(p + 96, r->priv, sizeof(r->priv));
}

/* --- the datagram ------------------------------------------------------------------------------ */

static int body_get(struct wire_cm *cm, const uint8_t *p)
{
	switch (cm->attr) {
	case WIRE_CM_REQ:
		return req_get(&cm->u.req, p);
	case WIRE_CM_REP:
		rep_get(&cm->u.rep, p);
		return 0;
	case WIRE_CM_RTU:
	case WIRE_CM_DREP:
		ids_get(cm->attr == WIRE_CM_RTU ? &cm->u.rtu : &cm->u.drep, p);
		return 0;
	case WIRE_CM_DREQ:
		dreq_get(&cm->u.dreq, p);
		return 0;
	case WIRE_CM_REJ:
		return rej_get(&cm->u.rej, p);
	case WIRE_CM_MRA:
		mra_get(&cm->u.mra, p);
		return 0;
	case WIRE_CM_SIDR_REQ:
		sidr_req_get(&cm->u.sidr_req, p);
		return 0;
	case WIRE_CM_SIDR_REP:
		return sidr_rep_get(&cm->u.sidr_rep, p);
	default:
		return -EPROTONOSUPPORT;
	}
}

int wire_cm_decode(struct wire_cm *cm, const uint8_t *mad, size_t len)
{
	memset(cm, 0, sizeof(*cm));
	if (len != WIRE_MAD_LEN)
		return -EMSGSIZE;
	if (mad[0] != MAD_BASE_VERSION || mad[1] != MAD_CLASS_CM || mad[2] != MAD_CLASS_VERSION ||
	    mad[3] != MAD_METHOD_SEND)
		return -EPROTONOSUPPORT;
	cm->tid = wire_get_be64(mad + 8);
	cm->attr = wire_get_be16(mad + 16);
	return body_get(cm, mad + MAD_HDR_LEN);
}

int wire_cm_encode(const struct wire_cm *cm, uint8_t mad[WIRE_MAD_LEN])
{
	uint8_t *p = mad + MAD_HDR_LEN;

	memset(mad, 0, WIRE_MAD_LEN);
	mad[0] = MAD_BASE_VERSION;
	mad[1] = MAD_CLASS_CM;
	mad[2] = MAD_CLASS_VERSION;
	mad[3] = MAD_METHOD_SEND;
	wire_put_be64(mad + 8, cm->tid);
	wire_put_be16(mad + 16, cm->attr);
	switch (cm->attr) {
	case WIRE_CM_REQ:
		req_put(p, &cm->u.req);
		return 0;
	case WIRE_CM_REP:
		rep_put(p, &cm->u.rep);
		return 0;
	case WIRE_CM_RTU:
	case WIRE_CM_DREP:
		ids_put(p, cm->attr == WIRE_CM_RTU ? &cm->u.rtu : &cm->u.drep);
		return 0;
	case WIRE_CM_DREQ:
		dreq_put(p, &cm->u.dreq);
		return 0;
	case WIRE_CM_REJ:
		rej_put(p, &cm->u.rej);
		return 0;
	case WIRE_CM_MRA:
		mra_put(p, &cm->u.mra);
		return 0;
	case WIRE_CM_SIDR_REQ:
		sidr_req_put(p, &cm->u.sidr_req);
		return 0;
	case WIRE_CM_SIDR_REP:
		sidr_rep_put(p, &cm->u.sidr_rep);
		return 0;
	default:
		return -EPROTONOSUPPORT;
	}
}

/* --- the RDMA CM's header ---------------------------------------------------------------------- */

int wire_rdmacm_decode(struct wire_rdmacm *h, const uint8_t *p, size_t len)
{
	if (len < WIRE_RDMACM_LEN)
		return -EMSGSIZE;
	h->ip_version = p[1] >> 4;
	if (p[0] != 0 || (h->ip_version != 4 && h->ip_version != 6))
		return -EPROTONOSUPPORT;
	h->sport = wire_get_be16(p + 2);
	if (h->ip_version == 4) {
		wire_gid_from_v4(h->src, p + 4 + 12);
		wire_gid_from_v4(h->dst, p + 20 + 12);
	} else {
		memcpy(h->src, p + 4, 16);
		memcpy(h->dst, p + 20, 16);
	}
	return 0;
}

void wire_rdmacm_encode(const struct wire_rdmacm *h, uint8_t *p)
{
	size_t skip = h->ip_version == 4 ? 12 : 0;

	memset(p, 0, WIRE_RDMACM_LEN);
	p[1] = (uint8_t)(h->ip_version << 4);
	wire_put_be16(p + 2, h->sport);
	memcpy(p + 4 + skip, h->src + skip, 16 - skip);
	memcpy(p + 20 + skip, h->dst + skip, 16 - skip);
}
