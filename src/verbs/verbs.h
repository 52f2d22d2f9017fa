/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What gpunet needs of RDMA verbs and of the RDMA CM, in one table, so that a provider is chosen at run time: `ibverbs`
 * (libibverbs and librdmacm, loaded with dlopen) or `rnic` (the software RNIC of this project). No type of libibverbs appears
 * here; numbers of opcodes, statuses and access flags are libibverbs' own, so that a provider can pass them through.
 *
 * Every slot of a table is filled: one that a provider does not have is that of verbs_dummy, which answers -EOPNOTSUPP.
 *
 * Errors: 0, a count or a negative errno. Outputs are set on success only. A provider logs (base/log.h) only in `open`, into
 * `why`; everywhere else the caller, who knows the peer, makes the message.
 *
 * Blocking: no slot waits for the network or for a peer. Slots marked [slow] may take a system call and, for memory, the
 * time to pin it; the others touch memory only (ibverbs on an emulated device may make a system call in them).
 *
 * Threads: slots of different objects may be called at the same time. One object is used by one thread at a time, and so is
 * a CQ together with the queue pairs on it, and a struct verbs_events together with the ids on it. `open`, `close`,
 * `devices`, `device_info`, `reg`, `dereg` may be called from any thread at any time between open and close.
 *
 * Lifetimes: children go first. A queue pair goes before its id and its CQs, memory regions after the queue pairs that use
 * them, ids before their verbs_events, CQs before their verbs_comp, everything before `close`.
 */
#ifndef GPUNET_VERBS_VERBS_H
#define GPUNET_VERBS_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct verbs;        /* an open provider */
struct verbs_device; /* a device of it, with one protection domain */
struct verbs_events; /* a queue of connection and asynchronous events behind one descriptor */
struct verbs_id;     /* a listener or a connection, as rdma_cm_id */
struct verbs_comp;   /* a completion descriptor */
struct verbs_cq;
struct verbs_qp;

/* ---- data path ---------------------------------------------------------------------------------------------------------- */

enum {
	VERBS_ACCESS_LOCAL_WRITE = 1 << 0,
	VERBS_ACCESS_REMOTE_WRITE = 1 << 1,
	VERBS_ACCESS_REMOTE_READ = 1 << 2,
	VERBS_ACCESS_REMOTE_ATOMIC = 1 << 3,
};

enum verbs_wr_opcode {
	VERBS_WR_WRITE = 0,
	VERBS_WR_WRITE_IMM = 1,
	VERBS_WR_SEND = 2,
	VERBS_WR_SEND_IMM = 3,
	VERBS_WR_READ = 4,
	VERBS_WR_CMP_SWAP = 5,
	VERBS_WR_FETCH_ADD = 6,
};

enum {
	VERBS_SEND_FENCE = 1 << 0,
	VERBS_SEND_SIGNALED = 1 << 1,
	VERBS_SEND_SOLICITED = 1 << 2,
	VERBS_SEND_INLINE = 1 << 3, /* sge.addr is a pointer, copied by the call; lkey unused */
};

struct verbs_sge {
	uint64_t addr; /* in the terms of the region: from its iova on */
	uint32_t len;
	uint32_t lkey;
};

struct verbs_send_wr {
	uint64_t wr_id;
	enum verbs_wr_opcode opcode;
	unsigned flags;              /* VERBS_SEND_* */
	const struct verbs_sge *sge; /* may be NULL when nsge is 0 */
	unsigned nsge;
	uint32_t imm; /* as a number; it travels in network order */
	uint64_t raddr;
	uint32_t rkey;
	uint64_t compare;  /* CMP_SWAP */
	uint64_t swap_add; /* CMP_SWAP: the new value; FETCH_ADD: what to add */
};

struct verbs_recv_wr {
	uint64_t wr_id;
	const struct verbs_sge *sge; /* NULL: a receive without memory, for WRITE_IMM */
	unsigned nsge;
};

enum verbs_wc_status {
	VERBS_WC_SUCCESS = 0,
	VERBS_WC_LOC_LEN_ERR = 1,
	VERBS_WC_LOC_QP_OP_ERR = 2,
	VERBS_WC_LOC_PROT_ERR = 4,
	VERBS_WC_WR_FLUSH_ERR = 5,
	VERBS_WC_MW_BIND_ERR = 6,
	VERBS_WC_BAD_RESP_ERR = 7,
	VERBS_WC_LOC_ACCESS_ERR = 8,
	VERBS_WC_REM_INV_REQ_ERR = 9,
	VERBS_WC_REM_ACCESS_ERR = 10,
	VERBS_WC_REM_OP_ERR = 11,
	VERBS_WC_RETRY_EXC_ERR = 12,
	VERBS_WC_RNR_RETRY_EXC_ERR = 13,
	VERBS_WC_REM_ABORT_ERR = 16,
	VERBS_WC_FATAL_ERR = 19,
	VERBS_WC_RESP_TIMEOUT_ERR = 20,
	VERBS_WC_GENERAL_ERR = 21,
};

enum verbs_wc_opcode {
	VERBS_WC_SEND = 0,
	VERBS_WC_WRITE = 1,
	VERBS_WC_READ = 2,
	VERBS_WC_CMP_SWAP = 3,
	VERBS_WC_FETCH_ADD = 4,
	VERBS_WC_RECV = 128,
	VERBS_WC_RECV_WRITE_IMM = 129,
};

#define VERBS_WC_WITH_IMM (1u << 1)

/* A completion. With a status that is not SUCCESS only wr_id, status and vendor_err mean anything. */
struct verbs_wc {
	uint64_t wr_id;
	uint32_t status; /* enum verbs_wc_status */
	uint32_t opcode; /* enum verbs_wc_opcode */
	uint32_t byte_len;
	uint32_t imm; /* as a number */
	uint32_t qpn;
	uint32_t flags; /* VERBS_WC_WITH_IMM */
	uint32_t vendor_err;
};

struct verbs_qp_init {
	struct verbs_cq *send_cq;
	struct verbs_cq *recv_cq;
	unsigned max_send_wr; /* out: what it has, at least as many; the same for those below */
	unsigned max_recv_wr;
	unsigned max_send_sge;
	unsigned max_recv_sge;
	unsigned max_inline; /* wished for; out: what it has, which may be 0 */
	uint32_t qpn;        /* out */
	/*
	 * Sends are posted in memory (export_queue), for life, and complete there, not in send_cq; post_send refuses. Only where
	 * VERBS_DEVICE_EXPORT is set.
	 */
	bool external;
};

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

/* What to register. fd < 0: `length` bytes at `addr`. Else: `length` bytes from `offset` on of the dma-buf `fd`. */
struct verbs_mem {
	void *addr;
	int fd; /* may be closed after the call */
	uint64_t offset;
	uint64_t length;
	uint64_t iova; /* the address by which work requests name the first byte */
};

/* A region. Providers put it first in what they allocate; `provider` is theirs. */
struct verbs_mr {
	uint32_t lkey;
	uint32_t rkey;
	void *provider;
};

/* ---- connections --------------------------------------------------------------------------------------------------------- */

#define VERBS_PRIVATE_MAX 196u /* room in a REP; a REQ of the RDMA CM carries at most 56 */
#define VERBS_PRIVATE_REQ 56u

struct verbs_conn_param {
	uint8_t retry;     /* 0..7: retransmissions without an answer; rdma_rxe takes 7 for ever */
	uint8_t rnr_retry; /* 0..7, 7: for ever */
	uint8_t ack_timeout; /* 4.096 us * 2^n; 0: the provider's own default */
	uint8_t min_rnr_timer; /* RNR code that we tell a sender that came too early; in force from RTS on */
	uint8_t responder_resources; /* READs and atomics that the peer may have under way */
	uint8_t initiator_depth;     /* ... and that we may */
	bool flow_control;
	uint8_t private_len;
	uint8_t private_data[VERBS_PRIVATE_MAX];
};

enum verbs_event_type {
	/* of an id */
	VERBS_EVENT_RESOLVED,    /* resolve: address and route; id_device is known */
	VERBS_EVENT_UNREACHABLE, /* resolve or connect failed: status */
	VERBS_EVENT_CONNECT_REQUEST, /* a listener's: `request` is a new id, which the taker owns; `param` */
	VERBS_EVENT_ESTABLISHED, /* connect: the queue pair is in RTS, `param` is the peer's. accept: the peer's RTU came */
	VERBS_EVENT_REJECTED, /* connect: the peer said no: status, reason, `param` its private data */
	VERBS_EVENT_DISCONNECTED, /* the peer disconnected, or died, or we did; the queue pair is in error */
	VERBS_EVENT_DEVICE_REMOVED, /* id_destroy it */
	/* asynchronous, only from queues opened with VERBS_EVENTS_ASYNC; id is NULL, `device` is set */
	VERBS_EVENT_PORT_ACTIVE,
	VERBS_EVENT_PORT_DOWN,
	VERBS_EVENT_DEVICE_FATAL,
	VERBS_EVENT_CQ_ERROR,
	VERBS_EVENT_QP_ERROR, /* of some queue pair: its completions tell more */
	VERBS_EVENT_OTHER,    /* to be ignored */
};

struct verbs_event {
	enum verbs_event_type type;
	struct verbs_id *id;
	void *user;                  /* of the id; of a CONNECT_REQUEST: of the listener */
	struct verbs_id *request;    /* CONNECT_REQUEST */
	struct verbs_device *device; /* asynchronous events */
	int status; /* negative errno of UNREACHABLE and REJECTED (-ECONNREFUSED, -EHOSTUNREACH, -ETIMEDOUT) */
	unsigned reason; /* REJECTED: the CM's reason (28: by the consumer) */
	struct verbs_conn_param
		param; /* what the peer asked for or answered; private_len is the room, not what was meant */
};

#define VERBS_EVENTS_ASYNC 1u /* also those of all devices; at most one such queue a provider */

enum verbs_id_option {
	VERBS_ID_REUSEADDR, /* as SO_REUSEADDR */
	VERBS_ID_AFONLY,    /* as IPV6_V6ONLY */
};

/* ---- devices ------------------------------------------------------------------------------------------------------------ */

enum verbs_port_state { VERBS_PORT_DOWN, VERBS_PORT_ACTIVE };

struct verbs_device_info {
	char name[64];
	char detail[128]; /* firmware or driver, link layer, rate: for people */
	enum verbs_port_state port;
	unsigned mtu; /* bytes of a packet's payload at most */
	unsigned max_qp, max_cq, max_mr;
	unsigned max_cqe, max_wr, max_sge;
	unsigned flags; /* VERBS_DEVICE_* */
};

#define VERBS_DEVICE_DMABUF 1u   /* reg takes a dma-buf */
#define VERBS_DEVICE_PEERMEM 2u  /* reg takes pointers to GPU memory */
#define VERBS_DEVICE_SOFTWARE 4u /* no hardware: GPU memory that the CPU cannot map is copied */
#define VERBS_DEVICE_EXPORT 8u   /* export_queue works */

/* ---- queue pairs without a connection manager: numbers are exchanged in some other way --------------------------------------- */

/* An entry of a device's table of addresses. */
struct verbs_gid {
	uint8_t gid[16];
	uint16_t lid; /* InfiniBand: of the port; 0: by gid only */
	bool usable;  /* for RoCEv2, or InfiniBand */
};

/* What peer_qp_connect needs to know. */
struct verbs_peer {
	unsigned gid_index; /* ours, as device_gid counts */
	uint32_t my_psn;    /* the first number that we send with */
	uint32_t qpn, psn;  /* the peer's, and the first number that it sends with */
	uint16_t lid;
	uint8_t gid[16];
	unsigned mtu; /* bytes, what both can: 256 to 4096 */
};

/* ---- queues for device-posted work ----------------------------------------------------------------------------------------- */

/* A queue pair's memory, in the formats of mlx5 (src/wire/mlx5.h). All addresses are the CPU's. */
struct verbs_queue_export {
	void *sq;
	unsigned sq_blocks; /* of 64 bytes, a power of two */
	void *cq;
	unsigned cq_entries; /* of 64 bytes, a power of two */
	uint32_t *sq_dbrec;
	uint32_t *cq_dbrec;
	uint64_t *doorbell; /* the register (or slot) to store to */
	uint32_t qpn, cqn;
	int sq_fd, doorbell_fd; /* dma-bufs of the same, -1: none */
};

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

struct verbs_ops {
	const char *name;

	/*
	 * [slow] Opens the provider for one network. -ENOSYS: not built in; -ENOENT: a library or kernel module is missing; -ENODEV:
	 * no device; -EACCES, -ENOMEM, -EADDRINUSE, ... On failure `why` gets one line: what is missing, and the remedy.
	 */
	int (*open)(struct verbs **out, char *why, size_t why_size);
	void (*close)(struct verbs *v);
	/* [slow] Calls fn for each device, in a fixed order; stops at a value that is not 0 and returns it. */
	int (*devices)(struct verbs *v, int (*fn)(const struct verbs_device_info *d, void *arg),
		       void *arg);

	/* [slow] */
	int (*events_open)(struct verbs *v, unsigned flags, struct verbs_events **out);
	void (*events_close)(struct verbs_events *e);
	/* Readable while events wait; made for epoll, edge-triggered, and read by event_next only. */
	int (*events_fd)(struct verbs_events *e);
	/* Takes the next event: 0; -EAGAIN when there is none. */
	int (*event_next)(struct verbs_events *e, struct verbs_event *out);

	/* [slow] */
	int (*id_create)(struct verbs_events *e, void *user, struct verbs_id **out);
	/*
	 * [slow] Ends it, whatever its state; no event of it comes afterwards. Its queue pair must be gone. An unanswered request is
	 * rejected.
	 */
	void (*id_destroy)(struct verbs_id *id);
	/*
	 * Moves it, with events not yet taken, to another queue, and gives it another `user`; from the thread that has it, while the
	 * other queue's thread may use that one. To the queue that it is on: only `user` changes, of events not yet taken, too.
	 */
	int (*id_migrate)(struct verbs_id *id, struct verbs_events *to, void *user);
	int (*id_option)(struct verbs_id *id, enum verbs_id_option option, int value);
	/* NULL until RESOLVED; of a CONNECT_REQUEST's id known at once. */
	struct verbs_device *(*id_device)(struct verbs_id *id);
	/* The machine's address or the peer's, as getsockname(2) and getpeername(2). -ENOTCONN. */
	int (*id_name)(struct verbs_id *id, int peer, struct sockaddr *a, socklen_t *n);
	/* [slow] Port 0: any. Ports are shared with every user of the RDMA CM on this machine: -EADDRINUSE. */
	int (*bind)(struct verbs_id *id, const struct sockaddr *a, socklen_t n);
	/* [slow] Binds to any port if need be. */
	int (*listen)(struct verbs_id *id, int backlog);
	/* Begins to find device and route: RESOLVED or UNREACHABLE follows. Binds the id if need be. */
	int (*resolve)(struct verbs_id *id, const struct sockaddr *a, socklen_t n,
		       unsigned timeout_ms);
	/* After RESOLVED and qp_create: ESTABLISHED, REJECTED or UNREACHABLE follows. */
	int (*connect)(struct verbs_id *id, const struct verbs_conn_param *p);
	/*
	 * Answers a CONNECT_REQUEST, after qp_create. The queue pair is in RTS when it returns; ESTABLISHED follows, or DISCONNECTED.
	 * -EMSGSIZE: the peer asks for larger packets than the port takes.
	 */
	int (*accept)(struct verbs_id *id, const struct verbs_conn_param *p);
	int (*reject)(struct verbs_id *id, const void *private_data, uint8_t n);
	/* The queue pair goes to error (so everything posted is flushed), and the peer is told. Again: no harm. */
	int (*disconnect)(struct verbs_id *id);

	/* [slow] Current state of the device and its port. */
	int (*device_info)(struct verbs_device *d, struct verbs_device_info *out);
	/* [slow] A completion descriptor for CQs of one device. */
	int (*comp_open)(struct verbs_device *d, struct verbs_comp **out);
	void (*comp_close)(struct verbs_comp *c);
	/* Readable once a CQ of it that was armed has got something. Made for epoll, edge-triggered. */
	int (*comp_fd)(struct verbs_comp *c);
	/* Makes it unreadable again; which CQs it was for is not told: the caller polls them all, and arms those it wants to wait for. */
	void (*comp_drain)(struct verbs_comp *c);
	/* [slow] At least `entries`; -EINVAL beyond max_cqe. It is the caller's business that it never overflows. */
	int (*cq_create)(struct verbs_device *d, unsigned entries, struct verbs_comp *c,
			 struct verbs_cq **out);
	void (*cq_destroy)(struct verbs_cq *cq);
	/* Takes up to n completions, in order: how many, or a negative errno when the CQ is broken. */
	int (*poll)(struct verbs_cq *cq, struct verbs_wc *wc, int n);
	/* The next completion makes the descriptor readable. What lies in the queue already does not: poll after arming. */
	int (*arm)(struct verbs_cq *cq);

	/* [slow] An RC queue pair of an id whose device is known, on CQs of that device. In INIT: receives may be posted. */
	int (*qp_create)(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out);
	/*
	 * [slow] When it returns the device touches no memory for it any more. Completions of it that lie in its CQs may still be
	 * polled, or not.
	 */
	void (*qp_destroy)(struct verbs_qp *qp);
	/*
	 * Posts wr[0..n) in order: how many were taken, which is less than n when the queue is full; or, when none was, a negative
	 * errno (-EAGAIN: full). On a queue pair in error they are taken and flushed.
	 */
	int (*post_send)(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n);
	int (*post_recv)(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n);

	/*
	 * [slow] Registers memory: `access` VERBS_ACCESS_*, 0 is local read. Bounds are exact to the byte. No ODP. Memory of the CPU that
	 * is not shared is kept from children (MADV_DONTFORK). -EOPNOTSUPP: not memory of this kind; -ENOMEM: RLIMIT_MEMLOCK, mostly.
	 */
	int (*reg)(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
		   struct verbs_mr **out);
	/* [slow] When it returns its keys name nothing. */
	void (*dereg)(struct verbs_mr *mr);

	/* The memory in which sends of an `external` queue pair are posted. -EOPNOTSUPP: it is not one, or there are none. */
	int (*export_queue)(struct verbs_qp *qp, struct verbs_queue_export *out);

	/* [slow] The device of that name, as `devices` tells it. -ENODEV. It stays until `close`. */
	int (*device_open)(struct verbs *v, const char *name, struct verbs_device **out);
	/* [slow] -ENOENT: there is no entry of that number, nor a later one. */
	int (*device_gid)(struct verbs_device *d, unsigned index, struct verbs_gid *out);
	/* [slow] As qp_create, for no id; ended by qp_destroy. */
	int (*peer_qp_create)(struct verbs_device *d, struct verbs_qp_init *init,
			      struct verbs_qp **out);
	/* [slow] To RTS, for that peer; of `p` everything but private data counts. */
	int (*peer_qp_connect)(struct verbs_qp *qp, const struct verbs_peer *to,
			       const struct verbs_conn_param *p);
};

/* Every slot answers -EOPNOTSUPP, or does nothing, or (descriptors) -1. */
extern const struct verbs_ops verbs_dummy;
extern const struct verbs_ops verbs_ibverbs;
extern const struct verbs_ops verbs_rnic;

/* The providers, in the order in which "auto" tries them; NULL at the end. */
extern const struct verbs_ops *const verbs_all[];

/* A unit test's provider: if set, it is the only one. Changed while no other thread uses the library. */
extern const struct verbs_ops *verbs_override;

/* A provider in use. */
struct verbs_use {
	const struct verbs_ops *ops;
	struct verbs *v;
	char why[512]; /* why this one; after a failure: why none */
};

/*
 * Opens the provider `name`: "auto" (or NULL: the environment's GPUNET_VERBS, else "auto") takes the first that opens. -EINVAL:
 * there is no provider of that name. [slow]
 */
int verbs_open(struct verbs_use *u, const char *name);
/* May the provider of that name (NULL: any) find a device that is not software? Asked before one is opened; it opens nothing. */
bool verbs_hardware(const char *name);
/* No-op if none is open. */
void verbs_close(struct verbs_use *u);

/* "retry exceeded" and so on. */
const char *verbs_status_text(uint32_t status);

#endif
