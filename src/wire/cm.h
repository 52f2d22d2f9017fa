/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_CM_H
#define GPUNET_WIRE_CM_H

/*
 * Connection management datagrams (MADs of class CM) and the header that the RDMA CM puts at the front
 * of their private data. A MAD is always 256 bytes: a UD SEND_ONLY from QP1 to QP1 carries one. No I/O,
 * no allocation, no state.
 *
 * wire_cm_decode() accepts what a peer may send and refuses what this library could not answer rightly;
 * wire_cm_encode() writes reserved fields as zero. For a MAD whose reserved fields are zero the two are
 * inverse to the byte.
 *
 * "psn" is the number with which the *other* side starts to send. Private data is carried whole: its
 * length is not on the wire, only the room for it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WIRE_MAD_LEN = 256,
	WIRE_CM_QPN_GSI = 1,
	WIRE_CM_GRH_LEN = 40, /**< bytes before the payload of a received UD message */
};

/** The qkey of QP1. */
#define WIRE_CM_QKEY_GSI UINT32_C(0x80010000)

/** Attribute ids. */
enum {
	WIRE_CM_REQ = 0x10,
	WIRE_CM_MRA = 0x11,
	WIRE_CM_REJ = 0x12,
	WIRE_CM_REP = 0x13,
	WIRE_CM_RTU = 0x14,
	WIRE_CM_DREQ = 0x15,
	WIRE_CM_DREP = 0x16,
	WIRE_CM_SIDR_REQ = 0x17,
	WIRE_CM_SIDR_REP = 0x18,
};

/** Transport types of a REQ. */
enum { WIRE_CM_TRANSPORT_RC = 0, WIRE_CM_TRANSPORT_UC = 1 };

/** Messages that a REJ or MRA can be about. */
enum { WIRE_CM_MSG_REQ = 0, WIRE_CM_MSG_REP = 1, WIRE_CM_MSG_OTHER = 2 };

/** REJ reasons that this library sends or tells apart. */
enum {
	WIRE_REJ_NO_QP = 1,
	WIRE_REJ_NO_RESOURCES = 3,
	WIRE_REJ_TIMEOUT = 4,
	WIRE_REJ_UNSUPPORTED = 5,
	WIRE_REJ_INVALID_COMM_ID = 6,
	WIRE_REJ_INVALID_SERVICE_ID = 8,
	WIRE_REJ_INVALID_TRANSPORT = 9,
	WIRE_REJ_STALE_CONN = 10,
	WIRE_REJ_INVALID_GID = 14,
	WIRE_REJ_INVALID_MTU = 26,
	WIRE_REJ_CONSUMER = 28,
};

/** SIDR_REP status. */
enum { WIRE_SIDR_OK = 0, WIRE_SIDR_NO_SERVICE = 1, WIRE_SIDR_REJECTED = 2, WIRE_SIDR_NO_QP = 3 };

/** Room for private data in each message. */
enum {
	WIRE_CM_REQ_PRIV = 92,
	WIRE_CM_MRA_PRIV = 222,
	WIRE_CM_REJ_PRIV = 148,
	WIRE_CM_REP_PRIV = 196,
	WIRE_CM_RTU_PRIV = 224,
	WIRE_CM_DREQ_PRIV = 220,
	WIRE_CM_DREP_PRIV = 224,
	WIRE_CM_SIDR_REQ_PRIV = 216,
	WIRE_CM_SIDR_REP_PRIV = 136,
	WIRE_CM_ARI = 72, /**< additional information of REJ and SIDR_REP */
};

struct wire_cm_req {
	uint32_t local_id;
	uint64_t service_id;
	uint64_t ca_guid;
	uint32_t qkey;
	uint32_t qpn;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t remote_cm_timeout; /**< 5 bits, 4.096 us * 2^n */
	uint8_t transport;         /**< 2 bits */
	bool flow_control;
	uint32_t psn;
	uint8_t local_cm_timeout; /**< 5 bits */
	uint8_t retry_count;      /**< 3 bits */
	uint16_t pkey;
	uint8_t path_mtu;       /**< code, 4 bits */
	uint8_t rnr_retry;      /**< 3 bits */
	uint8_t max_cm_retries; /**< 4 bits */
	bool srq;
	uint16_t local_lid;
	uint16_t remote_lid;
	uint8_t local_gid[16];
	uint8_t remote_gid[16];
	uint32_t flow_label; /**< 20 bits */
	uint8_t rate;        /**< 6 bits */
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t sl; /**< 4 bits */
	bool subnet_local;
	uint8_t ack_timeout; /**< 5 bits */
	uint8_t priv[WIRE_CM_REQ_PRIV];
};

struct wire_cm_rep {
	uint32_t local_id;
	uint32_t remote_id;
	uint32_t qkey;
	uint32_t qpn;
	uint32_t psn;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t ack_delay; /**< 5 bits */
	uint8_t failover;  /**< 2 bits */
	bool flow_control;
	uint8_t rnr_retry; /**< 3 bits */
	bool srq;
	uint64_t ca_guid;
	uint8_t priv[WIRE_CM_REP_PRIV];
};

/** RTU and DREP. */
struct wire_cm_ids {
	uint32_t local_id;
	uint32_t remote_id;
	uint8_t priv[WIRE_CM_RTU_PRIV];
};

struct wire_cm_dreq {
	uint32_t local_id;
	uint32_t remote_id;
	uint32_t remote_qpn;
	uint8_t priv[WIRE_CM_DREQ_PRIV];
};

struct wire_cm_rej {
	uint32_t local_id;
	uint32_t remote_id;
	uint8_t message;  /**< WIRE_CM_MSG_*, 2 bits */
	uint8_t info_len; /**< 7 bits, at most WIRE_CM_ARI */
	uint16_t reason;
	uint8_t ari[WIRE_CM_ARI];
	uint8_t priv[WIRE_CM_REJ_PRIV];
};

struct wire_cm_mra {
	uint32_t local_id;
	uint32_t remote_id;
	uint8_t message; /**< WIRE_CM_MSG_*, 2 bits */
	uint8_t timeout; /**< 5 bits */
	uint8_t priv[WIRE_CM_MRA_PRIV];
};

struct wire_cm_sidr_req {
	uint32_t request_id;
	uint16_t pkey;
	uint64_t service_id;
	uint8_t priv[WIRE_CM_SIDR_REQ_PRIV];
};

struct wire_cm_sidr_rep {
	uint32_t request_id;
	uint8_t status;
	uint8_t info_len;
	uint32_t qpn;
	uint64_t service_id;
	uint32_t qkey;
	uint8_t ari[WIRE_CM_ARI];
	uint8_t priv[WIRE_CM_SIDR_REP_PRIV];
};

/** One CM datagram. `attr` tells which member of the union holds it. */
struct wire_cm {
	uint64_t tid;
	uint16_t attr;
	union {
		struct wire_cm_req req;
		struct wire_cm_rep rep;
		struct wire_cm_ids rtu;
		struct wire_cm_ids drep;
		struct wire_cm_dreq dreq;
		struct wire_cm_rej rej;
		struct wire_cm_mra mra;
		struct wire_cm_sidr_req sidr_req;
		struct wire_cm_sidr_rep sidr_rep;
	} u;
};

/**
 * Decodes a MAD. 0, or
 *   -EMSGSIZE        len is not 256
 *   -EPROTONOSUPPORT not a CM datagram of version 2, or an attribute this library does not know
 *   -EOPNOTSUPP      a REQ with an alternate path
 *   -EBADMSG         a field has an impossible value (information longer than its room)
 */
int wire_cm_decode(struct wire_cm *cm, const uint8_t *mad, size_t len);

/** Encodes into WIRE_MAD_LEN bytes. 0, or -EPROTONOSUPPORT when cm->attr is unknown. */
int wire_cm_encode(const struct wire_cm *cm, uint8_t mad[WIRE_MAD_LEN]);

/* --- the RDMA CM's header at the front of the private data of REQ and SIDR_REQ ------------------ */

enum {
	WIRE_RDMACM_LEN = 36,
	WIRE_RDMACM_PS_TCP = 0x0106,
	WIRE_RDMACM_PS_UDP = 0x0111,
};

struct wire_rdmacm {
	uint8_t ip_version; /**< 4 or 6 */
	uint16_t sport;     /**< the active side's port */
	uint8_t src[16];    /**< GID form: IPv4 as ::ffff:a.b.c.d */
	uint8_t dst[16];
};

/** Decodes 36 bytes. 0, or -EPROTONOSUPPORT for a version that is not 0 or an IP version not 4 or 6. */
int wire_rdmacm_decode(struct wire_rdmacm *h, const uint8_t *p, size_t len);

/** Encodes into WIRE_RDMACM_LEN bytes. */
void wire_rdmacm_encode(const struct wire_rdmacm *h, uint8_t *p);

/** Service id of a port in a port space. */
static inline uint64_t wire_rdmacm_service_id(uint16_t port_space, uint16_t port)
{
	return (uint64_t)port_space << 16 | port;
}

/** Splits a service id; false when it is not one of the RDMA CM. */
static inline bool wire_rdmacm_from_service_id(uint64_t sid, uint16_t *port_space, uint16_t *port)
{
	if (sid >> 24 != 1)
		return false;
	*port_space = (uint16_t)(sid >> 16);
	*port = (uint16_t)sid;
	return true;
}

#endif
