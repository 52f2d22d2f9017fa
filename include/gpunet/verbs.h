/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA posted by the CPU: memory, reliable queue pairs, completions and connections, over hardware (libibverbs) or over the
 * software RNIC of this library, which needs none. It is what gpunet itself uses, in a form that stays; a program that
 * knows libibverbs will find its way. It stands by itself: no network of <gpunet/gpunet.h> is needed.
 *
 * A device (gpunet_verbs_t) is opened first; everything else belongs to one, lies in one protection domain, and must be gone
 * before it is closed.
 *
 *	client				server
 *	gpunet_verbs_open (toward)	gpunet_verbs_open (local)
 *	gpunet_verbs_reg, _cq_create	gpunet_verbs_reg, _cq_create
 *	gpunet_verbs_dial		gpunet_verbs_listen, _next
 *	gpunet_verbs_qp_create		gpunet_verbs_qp_create
 *	gpunet_verbs_post_recv		gpunet_verbs_post_recv
 *	gpunet_verbs_connect		gpunet_verbs_accept
 *	gpunet_verbs_post_send, _poll	gpunet_verbs_post_send, _poll
 *	gpunet_verbs_disconnect		gpunet_verbs_disconnect
 *
 * or, without a connection manager, both sides: gpunet_verbs_qp_create (no connection), gpunet_verbs_qp_address, then by whatever
 * way the two addresses are exchanged, gpunet_verbs_qp_connect.
 *
 * Errors: 0 or a count, or a negative errno; outputs are set on success only. Where a call says more than an errno can,
 * gpunet_last_error() of <gpunet/gpunet.h> has it in words.
 *
 * Threads: a device may be used by several threads at once. Each other object is used by one thread at a time, and so is a
 * completion queue together with the queue pairs on it.
 *
 * Blocking: only calls with a `timeout_ms` wait for a peer: -1 for ever, 0 not at all; a signal's handler ends the wait with
 * -EINTR. Those that create or end something take system calls, and memory is pinned, page by page, in gpunet_verbs_reg.
 * gpunet_verbs_post_send, gpunet_verbs_post_recv and gpunet_verbs_poll without a time-out do not sleep.
 *
 * Progress: provider rnic has a thread a local address, which works while nobody polls. Whoever polls runs the device itself.
 * The child of a fork has no part in what its parent opened; with provider rnic it may open devices of its own.
 *
 * Units: bytes, and milliseconds where a name says so. Numbers are the host's own; an immediate travels in network order.
 */
#ifndef GPUNET_VERBS_H
#define GPUNET_VERBS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <gpunet/api.h>

GPUNET_BEGIN_DECLS

typedef struct gpunet_verbs gpunet_verbs_t; /* a device in use */
typedef struct gpunet_verbs_mr gpunet_verbs_mr_t;
typedef struct gpunet_verbs_cq gpunet_verbs_cq_t;
typedef struct gpunet_verbs_qp gpunet_verbs_qp_t;
typedef struct gpunet_verbs_listener gpunet_verbs_listener_t;
typedef struct gpunet_verbs_conn gpunet_verbs_conn_t;

/* ---- devices ----------------------------------------------------------------------------------------------------------- */

/*
 * Which device. Initialise with GPUNET_VERBS_OPTIONS_INIT. One of `device`, `local` and `toward` is needed; of several the first
 * counts.
 */
struct gpunet_verbs_options {
	size_t size;          /* sizeof(struct gpunet_verbs_options) */
	const char *provider; /* "ibverbs", "rnic", "auto"; NULL: GPUNET_VERBS, else "auto" */
	const char *device;   /* a name, as gpunet_verbs_list tells it */
	const struct sockaddr
		*local; /* the device that has this address; its port does not matter */
	socklen_t local_len;
	const struct sockaddr *toward; /* the device by which this peer is reached */
	socklen_t toward_len;
	unsigned timeout_ms; /* for finding the way to a peer; 0: 5000 */
	int gid_index; /* entry of the device's GID table, for gpunet_verbs_qp_connect; -1: the best */
};

#define GPUNET_VERBS_OPTIONS_INIT                                                         \
	{                                                                                 \
		sizeof(struct gpunet_verbs_options), NULL, NULL, NULL, 0, NULL, 0, 0, -1, \
	}

/* A device. Set `size` before the call; strings are the device's, valid until it is closed. */
struct gpunet_verbs_info {
	size_t size;
	const char *provider; /* "ibverbs", "rnic" */
	const char *name;     /* "mlx5_0", "rnic:127.0.0.1" */
	const char *detail;   /* for people */
	unsigned active;      /* 0: its port is down */
	unsigned mtu;         /* bytes of payload in a packet at most */
	unsigned max_wr;      /* depth of a queue */
	unsigned max_cqe;     /* of a completion queue */
	unsigned max_sge;     /* pieces of a work request */
	unsigned max_qp;
	unsigned software; /* 1: no hardware */
};

/*
 * Opens a device. -ENODEV: no such device, or none at all; -ENOSYS, -ENOENT, -EACCES: the provider is not to be had;
 * -EHOSTUNREACH, -ETIMEDOUT: no device leads to the peer; -EADDRNOTAVAIL: no device has that address; -EADDRINUSE: provider
 * rnic: UDP port 4791 of the address is in other hands; -EINVAL.
 */
int gpunet_verbs_open(gpunet_verbs_t **out, const struct gpunet_verbs_options *opt);

/* -EBUSY, and nothing done, while something of it is left. */
int gpunet_verbs_close(gpunet_verbs_t *v);

/* Fills as many members as info->size has room for. */
int gpunet_verbs_query(gpunet_verbs_t *v, struct gpunet_verbs_info *info);

/*
 * Calls `fn` for each device of a provider (NULL as in gpunet_verbs_options); stops and returns its value if it is not 0. Strings
 * are valid during the call.
 */
int gpunet_verbs_list(const char *provider,
		      int (*fn)(const struct gpunet_verbs_info *info, void *arg), void *arg);

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

enum gpunet_verbs_access {
	GPUNET_VERBS_LOCAL_WRITE =
		1, /* receives and READs put data there; needed by the next and the last */
	GPUNET_VERBS_REMOTE_WRITE = 2,
	GPUNET_VERBS_REMOTE_READ = 4,
	GPUNET_VERBS_REMOTE_ATOMIC = 8
};

/*
 * Registers `length` bytes of this process, which stay where they are until gpunet_verbs_dereg. Peers name a byte by its
 * address here and the region's rkey. Memory of a GPU: hardware needs a driver for that; provider rnic copies (docs/rnic.md,
 * "Memory and order"), and opens the GPU at the first such region, which must be while no kernel is resident.
 * -ENOMEM: mostly RLIMIT_MEMLOCK; -EOPNOTSUPP: memory that this device cannot use; -EFAULT: read-only memory, with a right to
 * write; -EINVAL: a length of 0, or access flags that do not fit together.
 */
int gpunet_verbs_reg(gpunet_verbs_t *v, void *addr, size_t length, unsigned access,
		     gpunet_verbs_mr_t **out);
/* Its keys name nothing when it returns. */
void gpunet_verbs_dereg(gpunet_verbs_mr_t *mr);
uint32_t gpunet_verbs_lkey(const gpunet_verbs_mr_t *mr);
uint32_t gpunet_verbs_rkey(const gpunet_verbs_mr_t *mr);

/* ---- completions ------------------------------------------------------------------------------------------------------- */

enum gpunet_verbs_wc_opcode {
	GPUNET_VERBS_WC_SEND = 0,
	GPUNET_VERBS_WC_WRITE = 1,
	GPUNET_VERBS_WC_READ = 2,
	GPUNET_VERBS_WC_CMP_SWAP = 3,
	GPUNET_VERBS_WC_FETCH_ADD = 4,
	GPUNET_VERBS_WC_RECV = 128,
	GPUNET_VERBS_WC_RECV_WRITE_IMM = 129
};

enum gpunet_verbs_wc_flags { GPUNET_VERBS_WC_WITH_IMM = 2 };

/* A completion. Its status is 0, or a number of libibverbs' enum ibv_wc_status: then only wr_id and qpn mean anything else. */
struct gpunet_verbs_wc {
	uint64_t wr_id;
	uint32_t status;
	uint32_t opcode;   /* enum gpunet_verbs_wc_opcode */
	uint32_t byte_len; /* of receives and READs */
	uint32_t imm;
	uint32_t qpn;
	uint32_t flags; /* enum gpunet_verbs_wc_flags */
	uint32_t vendor_err;
	uint32_t reserved;
};

/* At least `entries`; it is the caller's business that no more completions wait in it. */
int gpunet_verbs_cq_create(gpunet_verbs_t *v, unsigned entries, gpunet_verbs_cq_t **out);
/* -EBUSY while a queue pair uses it. */
int gpunet_verbs_cq_destroy(gpunet_verbs_cq_t *cq);

/*
 * Takes up to n completions, in order: their number; 0 when none came in time. It looks once before it sleeps, so a caller
 * that wants to spin calls it with a time-out of 0.
 */
int gpunet_verbs_poll(gpunet_verbs_cq_t *cq, struct gpunet_verbs_wc *wc, int n, int timeout_ms);

/*
 * For event loops. Arm, take what is there with gpunet_verbs_poll, then wait: the next completion makes the descriptor readable.
 * Made for epoll, also edge-triggered; it is not to be read. Arming makes it unreadable again.
 */
int gpunet_verbs_cq_fd(gpunet_verbs_cq_t *cq);
int gpunet_verbs_cq_arm(gpunet_verbs_cq_t *cq);

/* "no answer after all retries" and so on. */
const char *gpunet_verbs_status_text(uint32_t status);

/* ---- queue pairs ------------------------------------------------------------------------------------------------------- */

enum gpunet_verbs_opcode {
	GPUNET_VERBS_WRITE = 0,
	GPUNET_VERBS_WRITE_IMM = 1,
	GPUNET_VERBS_SEND = 2,
	GPUNET_VERBS_SEND_IMM = 3,
	GPUNET_VERBS_READ = 4,
	GPUNET_VERBS_CMP_SWAP = 5, /* of 8 aligned bytes, as the next */
	GPUNET_VERBS_FETCH_ADD = 6
};

enum gpunet_verbs_send_flags {
	GPUNET_VERBS_FENCE = 1,    /* begins when READs and atomics before it have returned */
	GPUNET_VERBS_SIGNALED = 2, /* completes visibly; a failure always does */
	GPUNET_VERBS_SOLICITED = 4,
	GPUNET_VERBS_INLINE = 8 /* the call copies the data; lkeys are not used */
};

struct gpunet_verbs_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct gpunet_verbs_send_wr {
	uint64_t wr_id;
	uint32_t opcode; /* enum gpunet_verbs_opcode */
	uint32_t flags;  /* enum gpunet_verbs_send_flags */
	const struct gpunet_verbs_sge *sge;
	uint32_t nsge;
	uint32_t imm;
	uint64_t remote_addr; /* WRITE, READ and atomics */
	uint32_t rkey;
	uint32_t reserved; /* 0 */
	uint64_t compare;
	uint64_t swap_add; /* CMP_SWAP: the new value; FETCH_ADD: what to add */
};

struct gpunet_verbs_recv_wr {
	uint64_t wr_id;
	const struct gpunet_verbs_sge *sge;
	uint32_t nsge; /* 0: for WRITE_IMM */
	uint32_t reserved;
};

/* What a queue pair is to have; the call sets max_* to what it has, which is as much or more, but max_inline may be less. */
struct gpunet_verbs_qp_init {
	size_t size;
	gpunet_verbs_cq_t *send_cq;
	gpunet_verbs_cq_t *recv_cq;
	unsigned max_send_wr;
	unsigned max_recv_wr;
	unsigned max_send_sge; /* 0 as 1 */
	unsigned max_recv_sge;
	unsigned max_inline;
};

/*
 * A reliable queue pair of a connection, or (`c` NULL) one that gpunet_verbs_qp_connect will connect. Receives may be posted at
 * once, sends from connect or accept on. -EINVAL: a limit out of range, or the connection has a queue pair.
 */
int gpunet_verbs_qp_create(gpunet_verbs_t *v, gpunet_verbs_conn_t *c,
			   struct gpunet_verbs_qp_init *init, gpunet_verbs_qp_t **out);
/* When it returns the device touches no memory for it any more. */
void gpunet_verbs_qp_destroy(gpunet_verbs_qp_t *qp);

/*
 * Posts wr[0..n) in order: how many were taken, which is fewer when the queue is full; if none was, a negative errno (-EAGAIN:
 * full). After a failure of the queue pair they are taken and complete as flushed.
 */
int gpunet_verbs_post_send(gpunet_verbs_qp_t *qp, const struct gpunet_verbs_send_wr *wr, int n);
int gpunet_verbs_post_recv(gpunet_verbs_qp_t *qp, const struct gpunet_verbs_recv_wr *wr, int n);

/* ---- connections by the RDMA connection manager ------------------------------------------------------------------------ */

/* How to connect. Initialise with GPUNET_VERBS_PARAM_INIT. */
struct gpunet_verbs_param {
	size_t size;
	const void *private_data; /* for the peer, with the request or the answer */
	uint8_t private_length;   /* at most 56 with a request, 196 with an answer */
	uint8_t retry;            /* 0 to 7: retransmissions without an answer */
	uint8_t rnr_retry;        /* 0 to 7: waits for a receive; 7: for ever */
	uint8_t ack_timeout; /* 4.096 us * 2^n without an answer, 1 to 31; 0: the provider's default */
	uint8_t min_rnr_timer; /* RNR code that a peer gets which came before a receive; 12: 0.64 ms */
	uint8_t initiator_depth;     /* READs and atomics of ours under way */
	uint8_t responder_resources; /* the peer's */
};

#define GPUNET_VERBS_PARAM_INIT                                                  \
	{                                                                        \
		sizeof(struct gpunet_verbs_param), NULL, 0, 7, 7, 0, 12, 16, 16, \
	}

/*
 * Listens on an address of the device; port 0: any. Ports are those of the RDMA port space. -EADDRINUSE; -EXDEV: the address is
 * another device's.
 */
int gpunet_verbs_listen(gpunet_verbs_t *v, const struct sockaddr *addr, socklen_t len, int backlog,
			gpunet_verbs_listener_t **out);
void gpunet_verbs_listener_close(gpunet_verbs_listener_t *l);
/* As getsockname(2). */
int gpunet_verbs_listener_name(gpunet_verbs_listener_t *l, struct sockaddr *addr, socklen_t *len);
/* Readable while a request may wait. */
int gpunet_verbs_listener_fd(gpunet_verbs_listener_t *l);
/* The next peer that wants to connect: give it a queue pair and accept, or reject, or close it. -ETIMEDOUT (-EAGAIN for 0). */
int gpunet_verbs_next(gpunet_verbs_listener_t *l, int timeout_ms, gpunet_verbs_conn_t **out);

/* Finds the way to a peer. -EHOSTUNREACH, -ETIMEDOUT; -EXDEV: it is reached by another device, open that one. */
int gpunet_verbs_dial(gpunet_verbs_t *v, const struct sockaddr *peer, socklen_t len, int timeout_ms,
		      gpunet_verbs_conn_t **out);
/*
 * Connects what gpunet_verbs_dial has found, which needs a queue pair by now. `p` may be NULL. -ECONNREFUSED: nobody listens,
 * or the peer rejected; -EHOSTUNREACH, -ETIMEDOUT. After a failure the connection is of no more use.
 */
int gpunet_verbs_connect(gpunet_verbs_conn_t *c, const struct gpunet_verbs_param *p,
			 int timeout_ms);
/*
 * Accepts. The queue pair works when it returns 0 or -ETIMEDOUT (-EAGAIN for 0): the peer has not confirmed yet.
 * -ECONNRESET: it has given up.
 */
int gpunet_verbs_accept(gpunet_verbs_conn_t *c, const struct gpunet_verbs_param *p, int timeout_ms);
/* Refuses; close it then. */
int gpunet_verbs_reject(gpunet_verbs_conn_t *c, const void *private_data, uint8_t length);

/* Copies the private data that came with the peer's request or answer, up to n bytes: how many there are. */
int gpunet_verbs_peer_data(gpunet_verbs_conn_t *c, void *data, size_t n);
/* peer 0: as getsockname(2), 1: as getpeername(2). */
int gpunet_verbs_conn_name(gpunet_verbs_conn_t *c, int peer, struct sockaddr *addr, socklen_t *len);

/* Readable when something of the connection changed: gpunet_verbs_wait_end tells what. */
int gpunet_verbs_conn_fd(gpunet_verbs_conn_t *c);
/* Waits until the peer has disconnected, or was lost: 0. -ETIMEDOUT (-EAGAIN for 0): it has not. */
int gpunet_verbs_wait_end(gpunet_verbs_conn_t *c, int timeout_ms);
/* Ends it: what is posted completes as flushed, and the peer is told. Again: no harm. */
int gpunet_verbs_disconnect(gpunet_verbs_conn_t *c);
/* -EBUSY while it has a queue pair. */
int gpunet_verbs_conn_close(gpunet_verbs_conn_t *c);

/* ---- connections by exchanged numbers, as perftest makes them ----------------------------------------------------------- */

/* Where a queue pair is. */
struct gpunet_verbs_address {
	size_t size;
	uint32_t qpn;
	uint32_t psn; /* of the first packet that it sends */
	uint16_t lid; /* InfiniBand; else 0 */
	uint16_t mtu; /* bytes of payload in a packet; the smaller of the two counts */
	uint8_t gid[16];
};

/* Our own; the PSN is drawn anew for each queue pair. */
int gpunet_verbs_qp_address(gpunet_verbs_qp_t *qp, struct gpunet_verbs_address *out);
/* To work with that peer, which does the same. `p` may be NULL; private data is not used. */
int gpunet_verbs_qp_connect(gpunet_verbs_qp_t *qp, const struct gpunet_verbs_address *peer,
			    const struct gpunet_verbs_param *p);

GPUNET_END_DECLS

#endif
