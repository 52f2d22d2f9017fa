/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_CM_H
#define GPUNET_RNIC_CM_H

/*
 * Connection management: how two queue pairs find each other. The InfiniBand CM protocol on QP1, with the RDMA CM's port
 * spaces, so that rdma_connect() and rdma_listen() of a Linux program are the other side.
 *
 * A pure state machine: datagrams of 256 bytes come in by rnic_cm_receive() and go out through a hook, time is passed
 * in, what happens is told by another hook. It knows no queue pair: a caller that is told of a request creates one and
 * accepts with its number. cm_gsi.h ties it to QP1 of a device.
 *
 *	active			passive
 *	rnic_cm_connect()  REQ>	REQUEST: rnic_cm_accept() or rnic_cm_reject()
 *	RESPONSE	  <REP
 *	rnic_cm_establish() RTU>	ESTABLISHED
 *	rnic_cm_disconnect() DREQ>	DISCONNECTED
 *	DISCONNECTED	  <DREP
 *
 * Messages are repeated, with growing intervals, until they are answered or `resends` are used up; then the connection
 * is UNREACHABLE. What a peer repeats is answered again from what is known, and tells the caller nothing twice. A DREQ is
 * answered at once. In the UDP port space one question (SIDR_REQ) and one answer make a queue pair's number known.
 *
 * A connection is the caller's until rnic_cm_release(), which may come at any time: what the protocol still has to say
 * is said without the caller.
 *
 * Anything may be received. A peer makes the state machine allocate nothing; it can use up `max_half_open_peer`
 * connections that nobody has answered, all peers together `max_half_open`, and the rest is dropped until there is
 * room. Numbers of connections are random, and messages count only from the address that the connection has.
 *
 * Threads: none of it is thread-safe. Hooks must not call back.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/rnic.h"
#include "wire/cm.h"

struct rnic_cm;
struct rnic_cm_conn;
struct rnic_cm_listener;

enum rnic_cm_event_type {
	RNIC_CM_REQUEST, /**< a peer wants to connect: accept or reject */
	RNIC_CM_RESPONSE, /**< the peer accepts; make the queue pair ready, then rnic_cm_establish() */
	RNIC_CM_ESTABLISHED,   /**< passive: the peer is ready */
	RNIC_CM_REJECTED,      /**< reason says why; the connection is over */
	RNIC_CM_UNREACHABLE,   /**< nobody answered; status says why; the connection is over */
	RNIC_CM_DISCONNECTED,  /**< by the peer, or our own DREQ was answered or timed out */
	RNIC_CM_TIMEWAIT_EXIT, /**< nothing more will come; all that is left is rnic_cm_release() */
	RNIC_CM_DATAGRAM, /**< UDP port space, active: number and qkey of the peer's queue pair */
};

/** What each side tells the other about its queue pair. */
struct rnic_cm_qp {
	uint32_t qpn;
	uint32_t psn;  /**< first number that the other side sends with */
	uint32_t qkey; /**< UDP port space */
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t retry;     /**< of a REQ only */
	uint8_t rnr_retry; /**< 0..7 */
	bool flow_control;
	bool srq;
	uint8_t mtu;         /**< code, of a REQ only */
	uint8_t ack_timeout; /**< code, of a REQ only */
};

struct rnic_cm_event {
	enum rnic_cm_event_type type;
	struct rnic_cm_conn *conn;
	void *user;             /**< of the connection; REQUEST: of the listener */
	uint16_t reason;        /**< REJECTED: WIRE_REJ_* (or a SIDR status with bit 15 set) */
	int status;             /**< UNREACHABLE: -ETIMEDOUT, or what `nobody` said */
	struct rnic_cm_qp peer; /**< REQUEST, RESPONSE, DATAGRAM */
	const uint8_t
		*priv; /**< private data, valid during the call; its sender's length is not known */
	size_t priv_len;
};

/** Limits and hooks. Zero means the default in brackets. */
struct rnic_cm_config {
	uint64_t guid;               /**< names this device to peers; no default */
	bool prefixed;               /**< the top byte of our numbers is … */
	uint8_t prefix;              /**< … this one */
	unsigned max_conns;          /**< connections, 1..32768 [4096] */
	unsigned max_half_open;      /**< passive ones not yet established [1024] */
	unsigned max_half_open_peer; /**< … from one address [256] */
	unsigned max_mtu;            /**< code of the path MTU, 1..5 [5] */
	uint64_t
		resend_ns; /**< before a message is repeated the first time, then doubled [250 ms] */
	uint64_t resend_max_ns; /**< … up to [4 s] */
	unsigned resends;       /**< [7] */
	uint64_t answer_ns;     /**< that a caller has for REQUEST and RESPONSE [30 s] */
	uint64_t timewait_ns;   /**< that an ended connection still answers [1 s] */
	/** Sends a datagram to QP1 of path->dst. A failure is a loss. */
	int (*send)(void *ctx, const struct rnic_path *path, const uint8_t mad[WIRE_MAD_LEN],
		    uint64_t now);
	/** Something happened. For a REQUEST an error refuses it: no resources. */
	int (*event)(void *ctx, const struct rnic_cm_event *ev);
	/**
	 * Asked before a question (REQ, SIDR_REQ) is repeated: 0, or why repeating it is no use, a negative errno, and then the
	 * connection is UNREACHABLE at once [0].
	 */
	int (*nobody)(void *ctx, const struct rnic_path *path);
	uint64_t (*random)(void *ctx); /**< must not be guessable [getrandom] */
	void *ctx;
};

struct rnic_cm_counters {
	uint64_t rx[16], tx[16]; /**< messages by attribute id - 0x10, copies included */
	uint64_t rx_malformed;
	uint64_t rx_duplicate;
	uint64_t rx_unknown; /**< for no connection, or not in its state */
	uint64_t rx_spoofed; /**< not from the address that they name or that the connection has */
	uint64_t no_listener;
	uint64_t half_open_refused;
	uint64_t resent;
	uint64_t unreachable;
};

int rnic_cm_open(struct rnic_cm **out, const struct rnic_cm_config *cfg);
/** Ends everything without a word to peers. */
void rnic_cm_close(struct rnic_cm *cm);

/** A datagram came; back->src is our address, back->dst its sender's. */
void rnic_cm_receive(struct rnic_cm *cm, const struct rnic_path *back, const uint8_t *mad,
		     size_t len, uint64_t now);

/** Repeats and times out what is due. When it wants to be called again, or UINT64_MAX. */
uint64_t rnic_cm_step(struct rnic_cm *cm, uint64_t now);
/** The same, after calls that may have set a timer: nothing is done. */
uint64_t rnic_cm_next(const struct rnic_cm *cm);

/** Whether a peer has yet to answer that a connection is over. */
bool rnic_cm_ending(const struct rnic_cm *cm);

const struct rnic_cm_counters *rnic_cm_counters(const struct rnic_cm *cm);

/* --- passive ---------------------------------------------------------------------------------- */

/**
 * Takes requests for a port of a port space (WIRE_RDMACM_PS_*). `gid` all zero: of any address. `backlog` bounds its
 * requests that are not yet established [max_half_open]. -EADDRINUSE, -ENOMEM.
 */
int rnic_cm_listen(struct rnic_cm *cm, uint16_t port_space, const uint8_t gid[16], uint16_t port,
		   unsigned backlog, void *user, struct rnic_cm_listener **out);
/** Requests that were told are the caller's, answered or not. */
void rnic_cm_unlisten(struct rnic_cm_listener *l);

/** Answers a REQUEST. Bytes of private data up to 196 (136 in the UDP port space). -EINVAL in another state. */
int rnic_cm_accept(struct rnic_cm_conn *c, const struct rnic_cm_qp *mine, const void *priv,
		   size_t len, uint64_t now);

/* --- active ----------------------------------------------------------------------------------- */

struct rnic_cm_route {
	struct rnic_path path;
	uint16_t port_space;
	uint16_t sport; /**< told to the peer */
	uint16_t dport;
};

/** Asks for a connection. Private data up to 56 bytes (180 in the UDP port space). -ENOMEM: max_conns; -EINVAL. */
int rnic_cm_connect(struct rnic_cm *cm, const struct rnic_cm_route *to,
		    const struct rnic_cm_qp *mine, const void *priv, size_t len, void *user,
		    struct rnic_cm_conn **out, uint64_t now);

/** After RESPONSE, when the queue pair is ready to send. -EINVAL in another state. */
int rnic_cm_establish(struct rnic_cm_conn *c, uint64_t now);

/* --- both ------------------------------------------------------------------------------------- */

/** Answers a REQUEST or a RESPONSE with no. Private data up to 148 bytes. -EINVAL in another state. */
int rnic_cm_reject(struct rnic_cm_conn *c, uint16_t reason, const void *priv, size_t len,
		   uint64_t now);

/** Passive: data came before the RTU did, which is as good. */
void rnic_cm_data_seen(struct rnic_cm_conn *c, uint64_t now);

/** Ends an established connection. -EINVAL in another state; -EALREADY when it is over or about to be. */
int rnic_cm_disconnect(struct rnic_cm_conn *c, uint64_t now);

/** The caller is done with it, and is told nothing more. */
void rnic_cm_release(struct rnic_cm_conn *c, uint64_t now);

void rnic_cm_set_user(struct rnic_cm_conn *c, void *user);

/** Way to the peer and ports; what was agreed on. */
const struct rnic_cm_route *rnic_cm_route(const struct rnic_cm_conn *c);
const struct rnic_cm_qp *rnic_cm_mine(const struct rnic_cm_conn *c);
const struct rnic_cm_qp *rnic_cm_peer(const struct rnic_cm_conn *c);

#endif
