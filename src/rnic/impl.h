/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_IMPL_H
#define GPUNET_RNIC_IMPL_H

/*
 * Structs behind rnic.h and the calls between the files of this folder.
 *
 *	rnic.c	device, step, dispatch of received packets
 *	sched.c	who sends next, and timers
 *	mr.c	PDs, regions, keys, access to memory
 *	cq.c	completion queues
 *	qp.c	queue pairs: creation, states, posting, flush
 *	rq.c	receive queues, shared ones too
 *	req.c	requester: turns work requests into packets
 *	comp.c	completer: takes responses, completes work requests, retries
 *	resp.c	responder of RC and UC: takes requests
 *	respout.c responder: sends acknowledgements and responses
 *	ud.c	datagrams
 *	cc.c	congestion control
 *	mlx5.c	queues in the caller's memory
 *	dma.c, dma_resp.c	memory that the CPU cannot map (dma.h)
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sys.h"
#include "rnic/dma.h"
#include "rnic/rnic.h"
#include "rnic/wire.h"
#include "wire/roce.h"

enum {
	RNIC_MAX_SGE = 32,
	RNIC_MAX_RD = 128,
	RNIC_GRH_LEN = 40,
	RNIC_TIMERS_A_STEP = 64,
	RNIC_EXT_DEPTH = 256, /* work requests fetched from memory and not complete */
};

#define RNIC_NEVER UINT64_MAX

/* Sizes of rings: indices wrap at 2^32, which must be a multiple. */
static inline uint32_t rnic_pow2(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

/* Zeroed; NULL when there is no memory, or `n` pieces of `size` are more than a size_t. */
static inline void *rnic_alloc(size_t n, size_t size)
{
	return size && n > SIZE_MAX / size ? NULL : sys.alloc(n * size);
}

struct rnic_pd {
	struct rnic *r;
	unsigned refs;
};

struct rnic_mr {
	struct rnic_pd *pd;
	uint8_t *base;    /* where iova lies in this process, */
	uint64_t address; /* … or (far) in a device's memory */
	bool far;
	uint64_t iova;
	uint64_t len;
	unsigned access;
	uint32_t lkey;
	uint32_t rkey; /* 0: invalidated */
};

/* Keys to regions: open addressing, linear probing, at most half full. */
struct rnic_keys {
	struct rnic_key {
		uint32_t key; /* 0: empty */
		struct rnic_mr *mr;
	} * slot;
	uint32_t mask;
	uint32_t used;
	uint32_t max;
};

struct rnic_cq {
	struct rnic *r;
	unsigned refs;
	uint32_t size;
	uint32_t head;     /* put */
	uint32_t tail;     /* taken */
	uint32_t reserved; /* entries promised to completions that wait for copies */
	bool starved;      /* a queue pair waits for room */
	uint8_t armed;     /* 0, 1 solicited only, 2 any */
	void (*notify)(void *ctx);
	void *ctx;
	struct rnic_wc *ring;
	struct rnic_mlx5_cq_init ext; /* buf NULL: the ring above */
	struct rnic_cq *next_ext;
};

/* Work requests besides those of enum rnic_wr_opcode. */
enum {
	RNIC_WR_NOP = 100, /* completes in its turn */
	RNIC_WR_BAD = 101, /* fails in its turn, with the status in imm */
};

/* The queues of a queue pair that is posted by memory. */
struct rnic_ext {
	struct rnic_mlx5_queues q; /* dbrec NULL: posted by calls */
	uint16_t sq_ci;            /* first block not fetched */
	uint16_t rq_ci;
	int slot; /* doorbell, or -1 */
	struct rnic_qp *next, **prev;
};

/* A posted receive. */
struct rnic_rwqe {
	uint64_t wr_id;
	unsigned nsge;
	uint32_t len;
	struct rnic_sge *sge;
};

/* A ring of posted receives: of a queue pair, or shared. */
struct rnic_rq {
	uint32_t depth;
	uint32_t max_sge;
	uint32_t head;
	uint32_t tail;
	struct rnic_rwqe *ring;
	struct rnic_sge *sges;
};

struct rnic_srq {
	struct rnic_pd *pd;
	unsigned refs;
	uint32_t limit;
	struct rnic_rq rq;
};

/* A posted send. */
struct rnic_swqe {
	uint64_t wr_id;
	uint8_t opcode;
	uint8_t flags;
	uint8_t nsge;
	uint32_t len;
	uint32_t psn; /* first, once assigned */
	uint32_t npsn;
	uint32_t imm;
	uint32_t rkey;
	uint64_t raddr;
	uint64_t compare;
	uint64_t swap_add;
	struct rnic_path path; /* UD */
	uint32_t dest_qpn;
	uint32_t qkey;
	struct rnic_sge *sge;
	uint8_t *inl;    /* data when RNIC_SEND_INLINE */
	uint64_t ticket; /* of the copies that bring what a READ returned */
};

/* The send half: requester and completer. Indices only grow; a ring slot is index % depth. */
struct rnic_sq {
	uint32_t depth;
	uint32_t max_sge;
	uint32_t max_inline;
	struct rnic_swqe *ring;
	struct rnic_sge *sges;
	uint8_t *inl;

	uint32_t head;     /* posted */
	uint32_t assigned; /* have PSNs */
	uint32_t cur;      /* being sent */
	uint32_t una;      /* oldest not yet acknowledged */
	uint32_t rep;      /* oldest not yet reported in the CQ */

	uint32_t cur_pkt;  /* packets of `cur` sent */
	uint32_t next_psn; /* first not assigned */
	uint32_t snd_psn;  /* of the next packet at the cursor */
	uint32_t snd_max;  /* first never sent */
	uint32_t una_psn;  /* oldest not acknowledged */

	uint32_t rd_wqes;             /* READs and atomics assigned and not complete */
	uint32_t rd_end[RNIC_MAX_RD]; /* last PSNs of the requests under way, a ring */
	uint32_t rd_head, rd_tail;

	uint8_t retry_left;
	uint8_t rnr_left;
	uint8_t err_status; /* why the first work request fails, once in error */
	uint8_t local_err;  /* status: the request at the cursor cannot be sent; 0: it can */
	bool drained_told;
	bool went_back;     /* to una_psn, and nothing was acknowledged since */
	uint32_t beyond;    /* PSN of the response that made it go back */
	uint64_t rtx_at;    /* RNIC_NEVER: off */
	uint64_t moved_at;  /* when that was set: the last progress */
	unsigned probes;    /* since then, comp.c */
	uint32_t timed_psn; /* of the packet whose acknowledgement is timed, */
	uint64_t timed_at;  /* … when it was sent first; 0: none is */
	uint64_t rtt;       /* until the acknowledgement, on average; 0: not known */
	uint64_t rtt_dev;   /* how far off it is, on average */
	uint64_t rnr_until; /* 0: not waiting */
	uint32_t since_ackreq;

	bool full_passed; /* a packet of full size was acknowledged, or came as an answer */
	unsigned blocked; /* times in a row that the peer asked for the packet at una_psn */

	uint32_t run;     /* packets acknowledged since the last loss */
	uint32_t avg_run; /* the same between losses, on average */
	uint32_t cwnd;    /* packets that may be unacknowledged now */
};

enum rnic_res_type { RNIC_RES_NONE, RNIC_RES_READ, RNIC_RES_ATOMIC };

/* A READ or atomic that was executed, kept for its duplicates. */
struct rnic_res {
	enum rnic_res_type type;
	bool queued; /* its response waits to be sent */
	bool replay;
	bool fresh;   /* next packet is the first of a response */
	uint32_t psn; /* first */
	uint32_t npsn;
	uint32_t next; /* packets of the response sent */
	uint32_t stop; /* … and to be sent */
	uint64_t va;
	uint32_t rkey;
	uint32_t len;
	uint64_t orig; /* atomic: the old value */
	uint32_t msn;
	bool waits;     /* atomic in far memory: not done yet */
	uint32_t after; /* answered when that many messages in far memory are told of */
};

/* The receive half: responder. */
struct rnic_resp {
	uint32_t epsn; /* expected */
	uint32_t msn;
	bool in_msg;  /* between FIRST and LAST */
	bool skip;    /* UC: wait for the next FIRST or ONLY */
	unsigned msg; /* WIRE_F_SEND or WIRE_F_WRITE */
	uint64_t va;
	uint32_t rkey;
	uint32_t left; /* of the WRITE */
	uint32_t done; /* bytes of the message placed */

	bool have_wqe;      /* a receive is taken and not completed */
	uint8_t wqe_status; /* with which it fails, when the queue pair is flushed; 0: as flushed */
	uint64_t wr_id;
	uint32_t wqe_len;
	unsigned nsge;
	struct rnic_sge sge[RNIC_MAX_SGE];

	bool ack;       /* an ACK up to epsn - 1 is due */
	uint32_t acked; /* PSN of the last one */
	uint8_t nak;    /* syndrome of a NAK that is due; 0: none */
	uint32_t nak_psn;
	bool nak_sent;        /* for the gap at epsn */
	uint32_t first_ahead; /* PSN of the packet that showed the gap */
	uint64_t now;         /* of the packet in hand */
	uint64_t quiet_until; /* an RNR NAK holds: what comes behind its packet is no gap */
	struct rnic_res res[RNIC_MAX_RD];
	uint32_t res_next;        /* slot for the next one, below dest_rd_atomic */
	uint8_t out[RNIC_MAX_RD]; /* slots whose response is due, in order, each once: a ring */
	uint32_t out_head, out_tail;
};

/* Congestion control, of what a queue pair sends and (cnp_*) receives. */
struct rnic_cc {
	bool reacting;         /* the rest, but alpha, means something */
	uint64_t rate, target; /* bytes a second */
	uint64_t alpha;        /* how much a CNP weighs, in 1/65536 */
	uint64_t alpha_at, rate_at;
	uint64_t bytes;
	unsigned time_steps, byte_steps; /* since the last CNP */
	uint64_t next_at;                /* when the next packet is due */
	uint64_t wait_until;             /* 0: it does not wait for that */
	bool cnp_due;
	uint64_t cnp_at; /* no CNP before */
};

struct rnic_qp {
	struct rnic *r;
	struct rnic_pd *pd;
	struct rnic_cq *scq, *rcq;
	struct rnic_srq *srq;
	uint32_t num;
	enum rnic_qp_type type;
	enum rnic_qp_state state;
	struct rnic_qp_attr attr;
	bool sig_all;
	bool has_psn[2]; /* rq, sq */
	bool established;
	bool last_wqe_told;
	uint16_t sport;
	uint64_t user;

	struct rnic_qp *next_ready; /* sched.c */
	bool ready;
	struct rnic_qp *next_all; /* list of all, for CQs that get room */
	struct rnic_qp **prev_all;
	uint64_t timer_at;
	uint32_t timer_pos; /* in the heap; UINT32_MAX: not in it */

	struct rnic_cc cc;
	struct rnic_sq sq;
	struct rnic_rq rq;
	struct rnic_resp resp;
	struct rnic_ext ext;
	struct rnic_dma_qp *dma; /* NULL: the device has no far memory */
};

struct rnic {
	struct rnic_config cfg;
	struct rnic_wire *wire;
	uint8_t (*gids)[16];
	struct rnic_counters ctr;
	struct rnic_keys keys;
	unsigned npd, ncq, nsrq;

	struct rnic_qp **qps; /* by the low 16 bits of the number */
	uint32_t qp_slots;
	uint32_t qp_count;
	uint32_t qp_next; /* where the search for a free slot starts */
	struct rnic_qp *gsi;
	struct rnic_qp *all;

	struct rnic_qp *ready_head, **ready_tail;
	struct rnic_qp **timers;
	uint32_t ntimers;

	struct rnic_cq *ext_cqs;
	struct rnic_qp *ext_qps;   /* posted by memory */
	struct rnic_qp *ext_next;  /* whose records are looked at next */
	struct rnic_qp **db_owner; /* by slot */
	uint64_t *db_seen;
	unsigned db_used; /* slots below this one may have owners */
	uint64_t scan_at, scan_ns;

	struct rnic_dma *dma; /* NULL: no far memory */
};

/* --- sched.c ----------------------------------------------------------------------------------- */

void rnic_kick(struct rnic_qp *qp); /* it may have something to send */
void rnic_unkick(struct rnic_qp *qp);
struct rnic_qp *rnic_ready_take(struct rnic *r);
void rnic_timer_set(struct rnic_qp *qp, uint64_t at); /* RNIC_NEVER: off */
struct rnic_qp *rnic_timer_due(struct rnic *r, uint64_t now);
uint64_t rnic_timer_next(const struct rnic *r);

/* --- mr.c -------------------------------------------------------------------------------------- */

int rnic_keys_init(struct rnic_keys *k, uint32_t max_mr);
void rnic_keys_free(struct rnic_keys *k);

/* Bytes of a region: at `p` if the CPU can reach them, else (far) at `addr` in a device's memory. */
struct rnic_span {
	uint8_t *p;
	uint64_t addr;
	uint32_t len;
	bool far;
	const struct rnic_mr *mr;
};

/*
 * Bytes of a region that a peer names. False: unknown key, another PD, missing access, any byte outside. `len` must not
 * be 0.
 */
bool rnic_remote(struct rnic_pd *pd, uint32_t rkey, uint64_t va, uint32_t len, unsigned access,
		 struct rnic_span *s);
/* Ends a remote key. False when the PD has no such key. */
bool rnic_invalidate(struct rnic_pd *pd, uint32_t rkey);
/* Copies, with the last naturally aligned piece (up to 8 bytes) stored last, with release. */
void rnic_place(uint8_t *dst, const uint8_t *src, size_t len);
/* Pieces of a scatter list from `off` on; their number, or -EFAULT when a key or bound is wrong. */
int rnic_spans(struct rnic_pd *pd, const struct rnic_sge *sge, unsigned nsge, uint32_t off,
	       uint32_t len, unsigned access, struct rnic_span *s, unsigned max);
/* Whether any piece is in far memory. */
bool rnic_far_list(struct rnic_pd *pd, const struct rnic_sge *sge, unsigned nsge);
/* The same for a wire. -EREMOTE: some of it is in far memory. */
int rnic_gather(struct rnic_pd *pd, const struct rnic_sge *sge, unsigned nsge, uint32_t off,
		uint32_t len, struct iovec *seg, unsigned max);
/* What a message places. */
struct rnic_scatter {
	struct rnic_pd *pd;
	const struct rnic_sge *sge;
	unsigned nsge;
	uint32_t off;         /* of the bytes in hand */
	uint32_t total;       /* bytes of the message from there on, as far as is known */
	struct rnic_run *run; /* of the queue pair, for far memory */
};
/* Copies into a scatter list, which is long enough. 0, or with nothing written -EFAULT; -EAGAIN: no staging memory. */
int rnic_scatter(struct rnic_qp *qp, const struct rnic_scatter *to, const uint8_t *data,
		 uint32_t len);

/* --- cq.c -------------------------------------------------------------------------------------- */

/* Whether there is room; if not, the CQ's next poll kicks its queue pairs. */
bool rnic_cq_room(struct rnic_cq *cq);
/* There is room again: those that wait for it get their turn. */
void rnic_cq_feed(struct rnic_cq *cq);
/* There is room. */
void rnic_cq_put(struct rnic_cq *cq, const struct rnic_wc *wc, bool solicited);

/* --- rq.c -------------------------------------------------------------------------------------- */

int rnic_rq_init(struct rnic_rq *rq, uint32_t depth, uint32_t max_sge);
void rnic_rq_free(struct rnic_rq *rq);
/* Takes the next receive of the queue pair, if there is one and its completion will find room. */
bool rnic_rq_take(struct rnic_qp *qp);
/* The receive that was taken will be completed by what is filled in here; there is room. */
void rnic_rq_defer(struct rnic_qp *qp, struct rnic_wc *wc);
/* Completes the receive that was taken. */
void rnic_rq_complete(struct rnic_qp *qp, struct rnic_wc *wc, bool solicited);
void rnic_rq_flush(struct rnic_qp *qp);

/* --- qp.c -------------------------------------------------------------------------------------- */

struct rnic_qp *rnic_qp_find(struct rnic *r, uint32_t num);
/* To ERR; the oldest send completes with `status`, or as flushed when it is 0. */
void rnic_qp_error(struct rnic_qp *qp, enum rnic_wc_status status);
void rnic_event(struct rnic *r, enum rnic_event_type type, void *object);
/* rnic_post_send() for either kind of queue pair. */
int rnic_sq_post(struct rnic_qp *qp, const struct rnic_send_wr *wr);
/* Puts a work request into the send queue unchecked; there is room. */
void rnic_sq_push(struct rnic_qp *qp, const struct rnic_send_wr *wr, uint32_t len);
bool rnic_sq_full(const struct rnic_qp *qp);
static inline bool rnic_qp_reliable(const struct rnic_qp *qp)
{
	return qp->type == RNIC_QP_RC;
}
static inline bool rnic_qp_datagram(const struct rnic_qp *qp)
{
	return qp->type == RNIC_QP_UD || qp->type == RNIC_QP_GSI;
}

/* --- req.c ------------------------------------------------------------------------------------- */

/* Sends one packet. 1, 0 when there is nothing to send now, -EAGAIN when the wire is full. */
int rnic_req_send(struct rnic_qp *qp, uint64_t now);
uint32_t rnic_swqe_psns(const struct rnic_qp *qp, const struct rnic_swqe *w);
static inline bool rnic_swqe_is_rd(const struct rnic_swqe *w)
{
	return w->opcode == RNIC_WR_READ || w->opcode == RNIC_WR_CMP_SWAP ||
	       w->opcode == RNIC_WR_FETCH_ADD;
}
static inline struct rnic_swqe *rnic_swqe_at(struct rnic_sq *sq, uint32_t index)
{
	return &sq->ring[index % sq->depth];
}

/* --- comp.c ------------------------------------------------------------------------------------ */

void rnic_comp_receive(struct rnic_qp *qp, const struct wire_roce *pkt, uint64_t now);
void rnic_comp_timer(struct rnic_qp *qp, uint64_t now);
/* All up to but without `psn` is acknowledged. */
void rnic_comp_advance(struct rnic_qp *qp, uint32_t psn, uint64_t now);
/* Passes over work requests that take no packet and have nothing before them. */
void rnic_comp_retire(struct rnic_qp *qp);
/* Puts completions into the CQ as far as there is room. */
void rnic_comp_report(struct rnic_qp *qp);
/* Begins to wait for an acknowledgement. */
void rnic_comp_wait(struct rnic_qp *qp, uint64_t now);
/* Sees that the timer fires when the next deadline is over. */
void rnic_comp_arm(struct rnic_qp *qp);

/* --- resp.c, respout.c, ud.c ------------------------------------------------------------------- */

void rnic_resp_receive(struct rnic_qp *qp, const struct wire_roce *pkt, uint64_t now);
/*
 * Of responses nothing but an ACK is due, and it may wait for the requests: the peer is on the loopback network. With rdma_rxe
 * that gains nothing.
 */
bool rnic_resp_has_ack_only(const struct rnic_qp *qp);
/* Sends one packet of responses, as rnic_req_send(). */
int rnic_resp_send(struct rnic_qp *qp, uint64_t now);
void rnic_ud_receive(struct rnic_qp *qp, const struct rnic_rx *rx, const struct wire_roce *pkt);

/* --- cc.c -------------------------------------------------------------------------------------- */

/* A CNP came from the peer. */
void rnic_cc_cnp(struct rnic_qp *qp, uint64_t now);
/* A packet came that a switch has marked. */
void rnic_cc_marked(struct rnic_qp *qp, uint64_t now);
/* Sends the CNP that is due. 0 or -EAGAIN. */
int rnic_cc_send_cnp(struct rnic_qp *qp, uint64_t now);
/* Whether the rate allows a packet with payload now; if not, a timer runs. */
bool rnic_cc_may_send(struct rnic_qp *qp, uint64_t now);
void rnic_cc_sent(struct rnic_qp *qp, size_t payload, uint64_t now);

/* --- mlx5.c ------------------------------------------------------------------------------------ */

int rnic_ext_check(const struct rnic *r, const struct rnic_qp_init *in);
int rnic_ext_init(struct rnic_qp *qp, const struct rnic_mlx5_queues *q);
void rnic_ext_free(struct rnic_qp *qp);
void rnic_ext_reset(struct rnic_qp *qp);
/* Takes what was posted to the send queue, as far as there is room. */
void rnic_ext_fetch(struct rnic_qp *qp);
bool rnic_ext_can_fetch(const struct rnic_qp *qp);
/* Takes the next receive. */
bool rnic_ext_take(struct rnic_qp *qp);
/* Looks at the doorbells; true when one rang. */
bool rnic_ext_doorbells(struct rnic *r);
/* Looks at records and CQs, and says when to look again; kicks whom it concerns. */
void rnic_ext_scan(struct rnic *r, uint64_t now);
bool rnic_ext_cq_room(const struct rnic_cq *cq);
void rnic_ext_cq_put(struct rnic_cq *cq, const struct rnic_wc *wc, bool solicited);
void rnic_ext_cq_free(struct rnic_cq *cq);

/* Hands a packet to the wire and counts it. */
int rnic_send(struct rnic_qp *qp, struct rnic_tx *tx, uint64_t now);

#endif
