/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_DMA_H
#define GPUNET_RNIC_DMA_H

/*
 * Memory of a GPU that the CPU cannot map ("far"). Its bytes go through staging memory and a queue of copies
 * (platform/copier.h), so nothing about it is done when a call returns. Four things follow:
 *
 *	runs	what a message places at following addresses is collected and becomes one copy; its last word, a second one
 *	due	what peer and user may learn only when copies are done: acknowledgements and completions of receives
 *	held	requests that must not take effect yet, kept as they came
 *	fetches	what is to be sent is copied out beforehand
 *
 * A ticket stands for all copies that were put in before it was marked, which happens in each step.
 */
#include <stdbool.h>
#include <stdint.h>

#include "platform/copier.h"
#include "rnic/rnic.h"
#include "wire/roce.h"

struct rnic_mr;
struct rnic_res;
struct rnic_swqe;

enum {
	RNIC_DMA_MOST = 65536, /* bytes of one copy; a multiple of every MTU */
	RNIC_DMA_CHUNK =
		RNIC_DMA_MOST + 64, /* a copy's place in it has the alignment of its target */
	RNIC_DMA_RUNS =
		15, /* that share a chunk: each is two copies, and two marks, of the copier's room */
	RNIC_DMA_ROOM = 4, /* chunks that one packet may take: see dma.c */
	RNIC_DMA_WORDS = 32,
	RNIC_DMA_AHEAD = 4,     /* copies out under way for what a queue pair sends */
	RNIC_DMA_DUE = 256,     /* a power of two */
	RNIC_DMA_HELD = 1024,   /* packets held, of all queue pairs together … */
	RNIC_DMA_HELD_QP = 256, /* … and of one */
};

/* A piece of staging memory. */
struct rnic_chunk {
	uint8_t *data;
	uint64_t ticket; /* of the last copy that uses it */
	struct rnic_chunk *next;
};

struct rnic_run {
	struct rnic_chunk *chunk;
	const struct rnic_mr *mr; /* where the open run goes; NULL: none is open */
	uint64_t dst;             /* … its first byte */
	uint32_t start, fill;     /* … in the chunk */
	unsigned runs;            /* of this chunk, closed */
};

/* Bytes [off, off + len) of the message `id`, copied out. */
struct rnic_fetch {
	struct rnic_chunk *chunk;
	uint32_t id, off, len;
};

struct rnic_fetches {
	struct rnic_fetch ring[RNIC_DMA_AHEAD];
	unsigned head, tail;
};

struct rnic_due {
	uint64_t ticket;
	uint32_t psn; /* of the message's last packet */
	uint32_t msn; /* before it */
	bool has_wc, solicited;
	struct rnic_wc wc;
};

struct rnic_held {
	struct rnic_held *next;
	struct wire_roce pkt;
	uint8_t payload[];
};

/* A queue pair's part. */
struct rnic_dma_qp {
	struct rnic_qp *next,
		**prev;       /* in the list of those that wait for copies; prev NULL: not in it */
	struct rnic_run in;   /* what the peer sends */
	struct rnic_run back; /* what READs return */
	struct rnic_fetches tx; /* for requests; id: index of the work request */
	struct rnic_fetches rd; /* for responses to READs; id: of the resource */
	struct rnic_due due[RNIC_DMA_DUE];
	uint32_t due_head, due_tail;
	struct rnic_held *held, **held_end;
	unsigned nheld;
	bool far;   /* the message that is coming in has bytes in far memory */
	bool again; /* a held packet is being taken */
};

struct rnic_dma {
	struct platform_copier *copier;
	struct rnic_chunk *chunks, *free, *busy;
	unsigned nchunks, nfree;
	uint64_t next; /* ticket of what is put in now */
	uint64_t done;
	bool unmarked;
	int failed;
	/*
	 * Last words that are still to be written, in order: behind the bytes of all messages of a step, since going to and fro
	 * between copies and words costs a GPU more than either.
	 */
	struct rnic_dma_word {
		uint64_t dst;
		const uint8_t *from;
		uint32_t len;
	} word[RNIC_DMA_WORDS];
	unsigned nwords;
	struct rnic_qp *waiting;
	unsigned nheld;
	/* The one atomic under way: between copies out and in nobody else may change the word. */
	struct {
		struct rnic_qp *qp; /* NULL: none */
		struct rnic_res *res;
		const struct rnic_mr *mr;
		struct rnic_chunk *chunk;
		uint64_t addr, swap_add, compare;
		bool add;
	} atomic;
};

int rnic_dma_open(struct rnic *r);
void rnic_dma_close(struct rnic *r);
int rnic_dma_qp_init(struct rnic_qp *qp);
/* Forgets all that it waits for, and that its peer or user would have learned. */
void rnic_dma_qp_reset(struct rnic_qp *qp);
void rnic_dma_qp_free(struct rnic_qp *qp);

/* Sees what is done, and lets those go on who waited for it. */
void rnic_dma_step(struct rnic *r, uint64_t now);
/* Marks what was put in since. True when copies are under way. */
bool rnic_dma_busy(struct rnic *r);

/* The region's end: nothing of it is touched any more. */
void rnic_dma_mr_end(const struct rnic_mr *mr);

/* Whether there are chunks for one packet; takes back what can be had. */
bool rnic_dma_room(struct rnic *r);
/* Puts bytes behind those of the run. `total`: so many will follow in this message. There is room. */
void rnic_dma_put(struct rnic_qp *qp, struct rnic_run *run, const struct rnic_mr *mr, uint64_t addr,
		  const uint8_t *data, uint32_t len, uint32_t total);
/* The run is whole: copied, and if `last`, its last word apart. */
void rnic_dma_end(struct rnic_qp *qp, struct rnic_run *run, bool last);
/* All open runs become copies. */
void rnic_dma_end_all(struct rnic *r);

/* --- responder --- */

/* Whether the request must wait; if so it is kept, or dropped where there is no more room. */
bool rnic_dma_hold(struct rnic_qp *qp, const struct wire_roce *pkt);
/* A message has come in whole: it is acknowledged, and `wc` (or NULL) completed, now or when its copies are done. */
void rnic_dma_message(struct rnic_qp *qp, uint32_t psn, struct rnic_wc *wc, bool solicited);
void rnic_dma_atomic(struct rnic_qp *qp, struct rnic_res *res, const struct rnic_mr *mr,
		     uint64_t addr, const struct wire_roce *pkt);
static inline bool rnic_dma_pending(const struct rnic_dma_qp *d)
{
	return d && d->due_tail != d->due_head;
}
static inline bool rnic_dma_full(const struct rnic_dma_qp *d)
{
	return d && d->due_head - d->due_tail == RNIC_DMA_DUE;
}
/* The READ's bytes from `off` on, `len` of them: 1, 0 not yet, or -EFAULT. */
int rnic_dma_read(struct rnic_qp *qp, struct rnic_res *res, uint32_t off, uint32_t len,
		  uint8_t **data);
/* The resource is asked for anew: what was copied out for it is old. */
void rnic_dma_read_again(struct rnic_qp *qp, const struct rnic_res *res);

/* --- between the two files --- */

struct rnic_chunk *rnic_dma_take(struct rnic *r); /* NULL: there is no room */
void rnic_dma_give(struct rnic_dma *d, struct rnic_chunk *c);
/* Puts the last words in; before whatever must come behind them. */
void rnic_dma_words(struct rnic_dma *d);
/* Tells what is done, and takes what was held for it. */
void rnic_dma_settle(struct rnic_qp *qp, uint64_t now);
void rnic_dma_forget(struct rnic_qp *qp);
void rnic_dma_fail(struct rnic_qp *qp);
void rnic_dma_atomic_done(struct rnic *r);
void rnic_dma_atomic_drop(struct rnic *r);
/* The region of the atomic under way has ended: its queue pair does, too. */
void rnic_dma_atomic_refuse(struct rnic *r);
/* The ticket of all that was put in so far. */
static inline uint64_t rnic_dma_ticket(const struct rnic_dma *d)
{
	return d->unmarked ? d->next : d->next - 1;
}

/* --- requester --- */

/* The work request's bytes, as rnic_dma_read(). */
int rnic_dma_gather(struct rnic_qp *qp, struct rnic_swqe *w, uint32_t off, uint32_t len,
		    uint8_t **data);
/* It has not got all it waits for. */
bool rnic_dma_unfinished(struct rnic_qp *qp, const struct rnic_swqe *w);
void rnic_dma_wait(struct rnic_qp *qp);

#endif
