/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_RNIC_H
#define GPUNET_RNIC_RNIC_H

/*
 * A software RDMA NIC: RoCEv2 on any wire that carries UDP payloads.
 *
 * A `struct rnic` is one device with its objects: protection domains, memory regions, completion queues,
 * queue pairs, shared receive queues. It does no I/O, reads no clock and starts no thread. Packets come in by
 * rnic_receive(), go out through the wire's ops table (wire.h), and rnic_step() does what is due: it sends,
 * times out, retransmits and completes. Every call takes the time, in nanoseconds of any monotonic clock.
 *
 * Threads: none of it is thread-safe. One thread at a time uses a device and everything that belongs to it.
 *
 * Errors: 0, a count or a negative errno. -EAGAIN means that a queue is full and nothing was consumed.
 * A call that takes an object which the caller did not get from this device is undefined, as free() is; a
 * packet can do no harm whatever it holds.
 *
 * Numbers of opcodes, statuses and access flags are those of libibverbs, so that a provider passes them
 * through. Memory and order guarantees are in docs/rnic.md.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rnic;
struct rnic_pd;
struct rnic_mr;
struct rnic_cq;
struct rnic_qp;
struct rnic_srq;
struct rnic_wire;
struct platform_copier;

enum {
	RNIC_ACCESS_LOCAL_WRITE = 1 << 0,
	RNIC_ACCESS_REMOTE_WRITE = 1 << 1,
	RNIC_ACCESS_REMOTE_READ = 1 << 2,
	RNIC_ACCESS_REMOTE_ATOMIC = 1 << 3,
	RNIC_ACCESS_ALL = 15,
};

enum rnic_qp_type {
	RNIC_QP_RC = 2,
	RNIC_QP_UC = 3,
	RNIC_QP_UD = 4,
	RNIC_QP_GSI = 1, /**< UD with the number 1; one a device */
};

enum rnic_qp_state {
	RNIC_QPS_RESET,
	RNIC_QPS_INIT,
	RNIC_QPS_RTR,
	RNIC_QPS_RTS,
	RNIC_QPS_SQD, /**< starts no new work request; those begun go on */
	RNIC_QPS_SQE, /**< UC and UD: the send queue failed, the receive queue works */
	RNIC_QPS_ERR,
};

enum rnic_wr_opcode {
	RNIC_WR_WRITE = 0,
	RNIC_WR_WRITE_IMM = 1,
	RNIC_WR_SEND = 2,
	RNIC_WR_SEND_IMM = 3,
	RNIC_WR_READ = 4,
	RNIC_WR_CMP_SWAP = 5,
	RNIC_WR_FETCH_ADD = 6,
	RNIC_WR_SEND_INV = 9,
};

enum {
	RNIC_SEND_FENCE = 1 << 0,
	RNIC_SEND_SIGNALED = 1 << 1,
	RNIC_SEND_SOLICITED = 1 << 2,
	RNIC_SEND_INLINE = 1 << 3,
};

enum rnic_wc_status {
	RNIC_WC_SUCCESS = 0,
	RNIC_WC_LOC_LEN_ERR = 1,
	RNIC_WC_LOC_QP_OP_ERR = 2,
	RNIC_WC_LOC_PROT_ERR = 4,
	RNIC_WC_WR_FLUSH_ERR = 5,
	RNIC_WC_BAD_RESP_ERR = 7,
	RNIC_WC_LOC_ACCESS_ERR = 8,
	RNIC_WC_REM_INV_REQ_ERR = 9,
	RNIC_WC_REM_ACCESS_ERR = 10,
	RNIC_WC_REM_OP_ERR = 11,
	RNIC_WC_RETRY_EXC_ERR = 12,
	RNIC_WC_RNR_RETRY_EXC_ERR = 13,
};

enum rnic_wc_opcode {
	RNIC_WC_SEND = 0,
	RNIC_WC_WRITE = 1,
	RNIC_WC_READ = 2,
	RNIC_WC_CMP_SWAP = 3,
	RNIC_WC_FETCH_ADD = 4,
	RNIC_WC_RECV = 128,
	RNIC_WC_RECV_WRITE_IMM = 129,
};

enum {
	RNIC_WC_GRH = 1 << 0, /**< the first 40 bytes are a GRH */
	RNIC_WC_WITH_IMM = 1 << 1,
	RNIC_WC_WITH_INV = 1 << 3, /**< imm is the key that was invalidated */
};

/** A completion. On an error only wr_id, status, qpn and (for receives) opcode are meaningful. */
struct rnic_wc {
	uint64_t wr_id;
	uint32_t status; /**< enum rnic_wc_status */
	uint32_t opcode; /**< enum rnic_wc_opcode */
	uint32_t byte_len;
	uint32_t imm; /**< as a number */
	uint32_t qpn;
	uint32_t src_qpn; /**< UD: the sender */
	uint32_t flags;   /**< RNIC_WC_GRH … */
};

enum rnic_event_type {
	RNIC_EVENT_QP_FATAL,      /**< a local error ended the queue pair */
	RNIC_EVENT_QP_REQ_ERR,    /**< the peer sent an invalid request */
	RNIC_EVENT_QP_ACCESS_ERR, /**< the peer broke the protection */
	RNIC_EVENT_COMM_EST,      /**< first packet of a queue pair in RTR */
	RNIC_EVENT_SQ_DRAINED,
	RNIC_EVENT_SRQ_LIMIT,
	RNIC_EVENT_LAST_WQE, /**< a queue pair in error took its last receive from an SRQ */
};

/** An asynchronous event; `object` is the queue pair or the SRQ. */
struct rnic_event {
	enum rnic_event_type type;
	void *object;
};

/** Congestion control (DCQCN). Rates are bytes a second; zero means the default in brackets. */
struct rnic_dcqcn {
	bool off;           /**< sends neither marks nor CNPs, and does not heed them */
	uint64_t line_rate; /**< what the network can do at most [12.5e9] */
	uint64_t min_rate;  /**< never slower [1e6] */
	unsigned g;         /**< the weight of one CNP is 1/g [256] */
	uint64_t alpha_ns;  /**< without a CNP the next one's weight falls in such steps [55 us] */
	uint64_t rate_ns;   /**< … and the rate rises [55 us] */
	uint64_t byte_counter;   /**< … and also each time so many bytes were sent [10 MB] */
	uint64_t increase;       /**< a step up, after five that go back half the way [5e6] */
	uint64_t hyper_increase; /**< … and when both counters have made five [50e6] */
	uint64_t cnp_ns;         /**< at most one CNP a queue pair in that time [50 us] */
};

/** Limits and hooks of a device. Zero (or NULL) means the default in brackets. */
struct rnic_config {
	const uint8_t (*gids)[16]; /**< local addresses, IPv4 as ::ffff:a.b.c.d; copied */
	unsigned ngids;            /**< at least 1, at most 64 */
	unsigned max_qp;           /**< queue pairs, 1..32768 [1024] */
	unsigned max_mr;           /**< memory regions, 1..2^20 [65536] */
	unsigned max_wr;           /**< depth of a queue, 1..65536 [32768] */
	unsigned max_cqe;          /**< entries of a CQ, 1..2^22 [4194304] */
	unsigned max_sge;          /**< entries of a work request, 1..32 [32] */
	unsigned max_inline;       /**< bytes, 0..1024 [512] */
	unsigned max_rd_atomic; /**< READ and atomic requests under way a queue pair, 1..128 [16] */
	uint32_t max_msg;       /**< bytes of a message, 1..2^30 [2^30] */
	unsigned window;        /**< unacknowledged packets a queue pair, 8..65536 [256] */
	unsigned read_chunk;    /**< packets that one READ request asks for, 1..window [64] */
	unsigned burst;         /**< packets that a queue pair sends in its turn, 1..256 [16] */
	struct rnic_dcqcn cc;   /**< congestion control */
	uint8_t qpn_prefix;     /**< top byte of every queue pair number */
	uint64_t *doorbells;    /**< slots for doorbells of mlx5 queues, see below; may be NULL */
	unsigned ndoorbells;    /**< 0..32768 */
	uint64_t idle_scan_ns;  /**< longest time between two looks at idle mlx5 queues [1 ms] */
	uint64_t (*random)(
		void *ctx); /**< for keys and numbers; must not be guessable [getrandom] */
	void (*event)(void *ctx, const struct rnic_event *ev); /**< must not call into the device */
	void *ctx;
	/**
	 * Copies to memory that the CPU cannot map, for rnic_mr_create_far(), or NULL. It belongs to this device alone and
	 * must outlive it.
	 */
	struct platform_copier *copier;
};

/** Counters of a device; all only grow. */
struct rnic_counters {
	uint64_t tx_packets, tx_bytes; /**< packets and payload handed to the wire */
	uint64_t rx_packets, rx_bytes; /**< packets and payload accepted by a queue pair */
	uint64_t rx_malformed;         /**< not decodable, header version, wrong pad */
	uint64_t rx_no_qp;             /**< no such queue pair, or not in a state to receive */
	uint64_t rx_wrong_peer; /**< addresses, P_Key or transport are not the queue pair's */
	uint64_t rx_wrong_qkey;
	uint64_t rx_duplicate;      /**< requests seen before */
	uint64_t rx_out_of_order;   /**< requests behind a gap */
	uint64_t rx_stale_response; /**< responses to nothing that is waited for */
	uint64_t rx_dropped_no_wqe; /**< UC and UD: no receive posted, or too short */
	uint64_t rx_access;         /**< refused: key, bounds, rights */
	uint64_t rx_invalid;        /**< refused: request that makes no sense */
	uint64_t rx_cnp, tx_cnp;
	uint64_t rx_marked; /**< packets that a switch has marked: its queue grows */
	uint64_t paced;     /**< times that a queue pair had to wait for its rate */
	uint64_t tx_acks, tx_naks, tx_rnr_naks;
	uint64_t rx_naks, rx_rnr_naks;
	uint64_t implied_naks;
	uint64_t retransmits; /**< packets sent again */
	uint64_t timeouts;
	uint64_t retry_exceeded, rnr_exceeded;
	uint64_t turns;     /**< times that a queue pair was looked at for work */
	uint64_t held;      /**< packets that had to wait for copies into GPU memory */
	uint64_t held_lost; /**< … that found no room to wait in, or no staging memory */
	uint64_t cq_full;   /**< times that a completion had to wait for room */
	/** Queue pairs that ended since just their packets of full size did not arrive. */
	uint64_t mtu_blocked;
	uint64_t
		probes; /**< times that what was not acknowledged was sent again before the time-out */
};

/* --- the device ------------------------------------------------------------------------------- */

/** Opens a device on a wire, which must outlive it. -EINVAL: a limit out of range; -ENOMEM. */
int rnic_open(struct rnic **out, const struct rnic_config *cfg, struct rnic_wire *wire);

/** Closes it. -EBUSY, and nothing done, while it has objects. */
int rnic_close(struct rnic *r);

/**
 * Does a bounded piece of the work that is due: expired timers, packets to send (at most `budget`).
 * Returns when it wants to run again: `now` if there is more to do at once, UINT64_MAX if only a packet or a call
 * can bring more, and in between the time of the next timer.
 */
uint64_t rnic_step(struct rnic *r, uint64_t now, unsigned budget);

const struct rnic_counters *rnic_counters(const struct rnic *r);

/* --- protection domains and memory ------------------------------------------------------------ */

int rnic_pd_create(struct rnic *r, struct rnic_pd **out);
int rnic_pd_destroy(struct rnic_pd *pd); /**< -EBUSY while it has regions, queue pairs or SRQs */

/**
 * Registers `len` bytes at `addr`, which peers name by addresses from `iova` on. -EINVAL for a length of 0, an
 * address range that wraps, unknown access flags, or remote write or atomic without local write; -ENOMEM at the
 * limit. The memory must stay until the region is gone.
 */
int rnic_mr_create(struct rnic_pd *pd, void *addr, uint64_t len, uint64_t iova, unsigned access,
		   struct rnic_mr **out);

/**
 * The same of memory that only the device's copier reaches. -EOPNOTSUPP without one; -EFAULT when some of it is not the
 * copier's (the reason is logged). Work requests and peers name it as any other; what its order is, is in docs/rnic.md.
 */
int rnic_mr_create_far(struct rnic_pd *pd, uint64_t addr, uint64_t len, uint64_t iova,
		       unsigned access, struct rnic_mr **out);

/**
 * Gives a device that was opened without one a copier, which it keeps. -EALREADY: it has one; -EINVAL: too little staging
 * memory; -ENOMEM.
 */
int rnic_attach_copier(struct rnic *r, struct platform_copier *c);

/** Ends a region: its keys name nothing from now on. Of GPU memory: waits for copies, two seconds at most. */
void rnic_mr_destroy(struct rnic_mr *mr);

uint32_t rnic_mr_lkey(const struct rnic_mr *mr);
uint32_t rnic_mr_rkey(const struct rnic_mr *mr); /**< 0 once a peer has invalidated it */

/* --- completion queues ------------------------------------------------------------------------ */

/**
 * A queue of at least `entries` completions. It never overflows: what finds no room waits in its queue pair, receives get
 * RNR, until rnic_cq_poll() makes room.
 */
int rnic_cq_create(struct rnic *r, unsigned entries, struct rnic_cq **out);
int rnic_cq_destroy(struct rnic_cq *cq); /**< -EBUSY while a queue pair uses it */

/** Takes up to n completions; the number taken. */
unsigned rnic_cq_poll(struct rnic_cq *cq, struct rnic_wc *wc, unsigned n);

/**
 * Calls `notify` once, at the next completion that is put in (solicited_only: at the next solicited one, or
 * error). `notify` must not call into the device. If completions lie in the queue already, they do not count: poll after arming.
 */
void rnic_cq_arm(struct rnic_cq *cq, bool solicited_only, void (*notify)(void *ctx), void *ctx);

/* --- queue pairs ------------------------------------------------------------------------------ */

struct rnic_mlx5_queues;

/** What a queue pair is created with. Depths are rounded up to a power of two. */
struct rnic_qp_init {
	enum rnic_qp_type type;
	struct rnic_cq *send_cq;
	struct rnic_cq *recv_cq;
	struct rnic_srq *srq; /**< or NULL */
	unsigned max_send_wr;
	unsigned max_recv_wr; /**< not used with an SRQ */
	unsigned max_send_sge;
	unsigned max_recv_sge;
	unsigned max_inline;
	bool sq_sig_all; /**< every send completes visibly */
	const struct rnic_mlx5_queues
		*queues; /**< or NULL: posted by rnic_post_send() and _recv() */
	uint64_t user;   /**< the caller's word, see rnic_qp_user() */
};

/** The way to a peer: addresses, and what the IP and UDP headers say. */
struct rnic_path {
	uint8_t src[16]; /**< one of the device's */
	uint8_t dst[16];
	uint32_t flow; /**< flow label; 0: the source port follows from the QPNs */
	uint8_t tclass;
	uint8_t hop_limit; /**< 0 means 64 */
	uint16_t sport;    /**< 0: chosen by the rule of wire_udp_sport() */
};

enum {
	RNIC_ATTR_STATE = 1 << 0,
	RNIC_ATTR_ACCESS = 1 << 1,
	RNIC_ATTR_PATH = 1 << 2,
	RNIC_ATTR_MTU = 1 << 3,
	RNIC_ATTR_DEST_QPN = 1 << 4,
	RNIC_ATTR_RQ_PSN = 1 << 5,
	RNIC_ATTR_SQ_PSN = 1 << 6,
	RNIC_ATTR_TIMEOUT = 1 << 7,
	RNIC_ATTR_RETRY = 1 << 8,
	RNIC_ATTR_RNR_RETRY = 1 << 9,
	RNIC_ATTR_MIN_RNR = 1 << 10,
	RNIC_ATTR_RD_ATOMIC = 1 << 11,
	RNIC_ATTR_DEST_RD_ATOMIC = 1 << 12,
	RNIC_ATTR_QKEY = 1 << 13,
};

struct rnic_qp_attr {
	enum rnic_qp_state state;
	unsigned access; /**< what the peer may do: RNIC_ACCESS_REMOTE_* */
	struct rnic_path path;
	unsigned mtu; /**< bytes: 256, 512, 1024, 2048 or 4096 */
	uint32_t dest_qpn;
	uint32_t rq_psn;         /**< first number that the peer sends with */
	uint32_t sq_psn;         /**< first number that we send with */
	unsigned timeout;        /**< code, 4.096 us * 2^n; 0: no time-out */
	unsigned retry;          /**< 0..7 */
	unsigned rnr_retry;      /**< 0..7, 7: for ever */
	unsigned min_rnr;        /**< RNR timer code that we send; 0 is the longest (655 ms) */
	unsigned rd_atomic;      /**< READ and atomic requests that we have under way */
	unsigned dest_rd_atomic; /**< … that the peer has */
	uint32_t qkey;
};

int rnic_qp_create(struct rnic_pd *pd, const struct rnic_qp_init *init, struct rnic_qp **out);

/** Ends a queue pair; completions in its CQs stay. -EBUSY never: peers and work requests cannot hold it. */
void rnic_qp_destroy(struct rnic_qp *qp);

/**
 * Changes the attributes that `mask` names. A change of state must be one of the standard ones: RESET to INIT to
 * RTR to RTS; RTS to SQD and back; SQE to RTS; any to ERR or RESET. To RTR, RC and UC need path, MTU, dest_qpn
 * and rq_psn, and to RTS sq_psn (set now or before). From RTR on, path, MTU, dest_qpn, rq_psn and dest_rd_atomic
 * are fixed, from RTS on sq_psn and rd_atomic, too. To ERR and RESET, attributes are ignored. -EINVAL, with nothing
 * changed, otherwise.
 */
int rnic_qp_modify(struct rnic_qp *qp, const struct rnic_qp_attr *attr, unsigned mask,
		   uint64_t now);

void rnic_qp_query(const struct rnic_qp *qp, struct rnic_qp_attr *attr);
uint32_t rnic_qp_num(const struct rnic_qp *qp);
/** Whether the peer has sent a request: it knows that this side is there. */
bool rnic_qp_established(const struct rnic_qp *qp);
uint64_t rnic_qp_user(const struct rnic_qp *qp);

/** What there is to see of a queue pair. */
struct rnic_qp_view {
	uint32_t num, dest_qpn;
	enum rnic_qp_type type;
	enum rnic_qp_state state;
	uint8_t dst[16];
	uint32_t posted;   /**< work requests, modulo 2^32 */
	uint32_t pending;  /**< of them not reported */
	uint32_t received; /**< requests of the peer, modulo 2^24 */
	uint32_t window;   /**< packets that may be unacknowledged now */
	uint64_t rate;     /**< bytes a second; 0: not limited */
};

/** Shows all queue pairs to `fn`, which must not call into the device; how many there are. */
unsigned rnic_qp_each(const struct rnic *r, void (*fn)(void *arg, const struct rnic_qp_view *v),
		      void *arg);

struct rnic_sge {
	uint64_t addr; /**< in the terms of the region: from its iova on */
	uint32_t len;
	uint32_t lkey;
};

struct rnic_send_wr {
	uint64_t wr_id;
	enum rnic_wr_opcode opcode;
	unsigned flags;
	const struct rnic_sge *sge; /**< INLINE: addr is a pointer, lkey unused */
	unsigned nsge;
	uint32_t imm; /**< immediate as a number, or the key to invalidate */
	uint64_t raddr;
	uint32_t rkey;
	uint64_t compare;             /**< CMP_SWAP */
	uint64_t swap_add;            /**< CMP_SWAP: the new value; FETCH_ADD: what to add */
	const struct rnic_path *path; /**< UD; copied */
	uint32_t dest_qpn;            /**< UD */
	uint32_t qkey;                /**< UD; with its top bit set the queue pair's own is used */
};

/**
 * Posts a send. -EAGAIN: the queue is full; -EINVAL: opcode, flags or sizes that this queue pair cannot have, or
 * a state before RTS; -EMSGSIZE: too long for a message, for inline, or (UD) for the MTU. In ERR and SQE it is
 * accepted and flushed.
 */
int rnic_post_send(struct rnic_qp *qp, const struct rnic_send_wr *wr, uint64_t now);

/** Posts a receive, from INIT on. Errors as rnic_post_send(). */
int rnic_post_recv(struct rnic_qp *qp, uint64_t wr_id, const struct rnic_sge *sge, unsigned nsge);

/* --- shared receive queues -------------------------------------------------------------------- */

int rnic_srq_create(struct rnic_pd *pd, unsigned max_wr, unsigned max_sge, struct rnic_srq **out);
int rnic_srq_destroy(struct rnic_srq *srq); /**< -EBUSY while a queue pair uses it */
int rnic_srq_post(struct rnic_srq *srq, uint64_t wr_id, const struct rnic_sge *sge, unsigned nsge);

/** One RNIC_EVENT_SRQ_LIMIT when fewer than `limit` receives are left; 0 turns it off. */
void rnic_srq_arm(struct rnic_srq *srq, unsigned limit);

/* --- queues in memory of the caller, in the formats of mlx5 ------------------------------------ */

/*
 * For whoever posts by storing, such as a GPU kernel. The memory must be addressable by the CPU and stay until the
 * object is gone; entries are in wire/mlx5.h. A queue pair is posted either by calls or by its memory, for life.
 *
 * Posting: write the WQE, then (release) the doorbell record, then, if wanted, the doorbell slot. The record is the
 * truth; the slot, any value that differs from the last, is a hint that makes the device look soon. Without it the
 * device finds out when it scans the records, at least every idle_scan_ns. Ringing twice is harmless.
 *
 * A WQE is copied before it is looked at. One that makes no sense fails with an error when its turn comes, and so ends
 * the queue pair; a send index that is further ahead than the queue is long does so, too.
 */

struct rnic_mlx5_queues {
	void *sq;            /**< basic blocks of 64 bytes */
	unsigned sq_blocks;  /**< a power of two, at most 32768; 0: no sends */
	void *rq;            /**< entries of data segments */
	unsigned rq_entries; /**< a power of two, at most 32768; 0: no receives of its own */
	unsigned rq_stride;  /**< bytes of an entry: 16 times a power of two, at most 512 */
	void *dbrec;         /**< two be32: [0] receives posted, [1] blocks posted, modulo 65536 */
};

/** Slot of the queue pair's doorbell in cfg.doorbells, or -1. */
int rnic_qp_doorbell(const struct rnic_qp *qp);

struct rnic_mlx5_cq_init {
	void *buf;        /**< entries of 64 bytes, aligned to 64; initialised by the call */
	unsigned entries; /**< a power of two, at most 2^22 */
	void *dbrec;      /**< be32 [0]: completions taken; not read with `overrun` */
	bool collapsed;   /**< all completions go to the first entry */
	bool overrun;     /**< never waits for room */
};

/**
 * A CQ in the caller's memory. Its completions carry the index of the WQE (of a send: its first block). rnic_cq_poll()
 * takes nothing from it; rnic_cq_arm() works.
 */
int rnic_mlx5_cq_create(struct rnic *r, const struct rnic_mlx5_cq_init *in, struct rnic_cq **out);

#endif
