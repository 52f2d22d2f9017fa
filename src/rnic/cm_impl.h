/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_CM_IMPL_H
#define GPUNET_RNIC_CM_IMPL_H

/*
 * Structs behind cm.h.
 *
 *	cm.c		opening, connections, listeners, timers, the caller's calls
 *	cm_msg.c	messages out
 *	cm_recv.c	messages in
 */
#include "base/list.h"
#include "rnic/cm.h"

enum cm_state {
	CM_FREE,
	CM_REQ_SENT,
	CM_REP_RCVD,
	CM_REQ_RCVD,
	CM_REP_SENT,
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_SIDR_SENT,
	CM_SIDR_RCVD,
	CM_TIMEWAIT, /* over; duplicates are still answered */
	CM_OVER,     /* not even that */
};

struct rnic_cm_listener {
	struct rnic_cm *cm;
	struct list link;
	uint16_t ps, port;
	uint8_t gid[16];
	unsigned backlog;
	unsigned half_open;
	void *user;
};

struct rnic_cm_conn {
	struct rnic_cm *cm;
	enum cm_state state;
	bool released;
	bool passive;
	uint32_t local_id;
	uint32_t remote_id;
	uint64_t tid;     /* of our own requests */
	uint64_t req_tid; /* of the peer's request, for the answer */
	struct rnic_cm_route route;
	struct rnic_cm_qp mine, theirs;
	void *user;
	struct rnic_cm_listener *listener; /* while it counts as half open, and that one lives */
	bool half_open;

	struct list timed; /* in cm->timed, while a timer runs */
	uint64_t at;
	unsigned tries;
	struct rnic_cm_conn *next_same; /* of one hash; only passive ones */
	struct rnic_cm_conn *next_free;
	uint8_t mad[WIRE_MAD_LEN]; /* what is repeated: by the timer, or to a duplicate */
	uint16_t mad_attr;         /* 0: nothing */
};

struct rnic_cm {
	struct rnic_cm_config cfg;
	struct rnic_cm_counters ctr;
	struct rnic_cm_conn *conn; /* slots */
	uint32_t slots;            /* a power of two */
	struct rnic_cm_conn *free;
	struct rnic_cm_conn **by_peer;
	unsigned half_open;
	struct list timed;
	uint64_t next; /* no timer is due earlier */
	struct list listeners;
};

/* --- cm.c --------------------------------------------------------------------------------------- */

struct rnic_cm_conn *cm_conn_new(struct rnic_cm *cm, const struct rnic_path *path);
/* Connection of a peer's request, by the number that the peer gave it; or NULL. */
struct rnic_cm_conn *cm_conn_of_peer(struct rnic_cm *cm, const uint8_t gid[16], uint32_t remote_id,
				     bool datagram);
void cm_conn_hash(struct rnic_cm_conn *c);
/* By our number; or NULL. */
struct rnic_cm_conn *cm_conn_find(struct rnic_cm *cm, uint32_t local_id);
void cm_conn_free(struct rnic_cm_conn *c);
/* It counts as half open, or no longer. */
void cm_half_open(struct rnic_cm_conn *c, struct rnic_cm_listener *l);
void cm_half_open_end(struct rnic_cm_conn *c);
bool cm_half_open_room(struct rnic_cm *cm, const struct rnic_cm_listener *l, const uint8_t gid[16]);
struct rnic_cm_listener *cm_listener_find(struct rnic_cm *cm, uint16_t ps, const uint8_t gid[16],
					  uint16_t port);
void cm_timer(struct rnic_cm_conn *c, uint64_t at); /* UINT64_MAX: off */
/* Tells the caller, unless it has released the connection. */
int cm_tell(struct rnic_cm_conn *c, const struct rnic_cm_event *ev);
int cm_tell_type(struct rnic_cm_conn *c, enum rnic_cm_event_type type);
/* The connection ends; it answers duplicates for a while. */
void cm_timewait(struct rnic_cm_conn *c, uint64_t now);
/* A message was sent that wants an answer. */
void cm_await(struct rnic_cm_conn *c, enum cm_state state, uint64_t now);

/* --- cm_msg.c ----------------------------------------------------------------------------------- */

/* Bytes of private data must fit the message; the caller has checked. */
void cm_send_req(struct rnic_cm_conn *c, const void *priv, size_t len, uint64_t now);
void cm_send_rep(struct rnic_cm_conn *c, const void *priv, size_t len, uint64_t now);
void cm_send_rtu(struct rnic_cm_conn *c, uint64_t now);
void cm_send_dreq(struct rnic_cm_conn *c, uint64_t now);
void cm_send_rej(struct rnic_cm_conn *c, unsigned message, uint16_t reason, const void *priv,
		 size_t len, uint64_t now);
void cm_send_mra(struct rnic_cm_conn *c, unsigned message, uint64_t now);
void cm_send_sidr_req(struct rnic_cm_conn *c, const void *priv, size_t len, uint64_t now);
void cm_send_sidr_rep(struct rnic_cm_conn *c, uint8_t status, const void *priv, size_t len,
		      uint64_t now);
/* The stored message once more. */
void cm_resend(struct rnic_cm_conn *c, uint64_t now);
/* Sends a message that belongs to no connection. */
void cm_send_stray(struct rnic_cm *cm, const struct rnic_path *path, const struct wire_cm *m,
		   uint64_t now);

#endif
