/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams over RDMA: the rsocket protocol (docs/wire/rsocket.md) on RC queue pairs, straight between the rings of two programs.
 * Nothing here knows which provider of verbs it has.
 *
 * Threads: a channel belongs to one proxy thread, with its id, queue pair and completion queue. An accepted connection changes
 * hands once, before it has a queue pair: from the listener's thread to the one that will own it (rdc_hand_over).
 */
#ifndef GPUNET_CHANNEL_VERBS_RDC_H
#define GPUNET_CHANNEL_VERBS_RDC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "channel/channel.h"
#include "channel/verbs/verbs.h"
#include "proxy/proxy.h"
#include "verbs/verbs.h"
#include "wire/rsocket.h"

/* Receives that a peer may use for data, and those more for its control messages. */
#define RDC_CREDITS 384u
#define RDC_RECV_SLACK 16u
/* Data and control messages that we have under way. */
#define RDC_SENDS 384u
#define RDC_CTRL 4u
#define RDC_CTRL_SLACK 4u
/* Data stops this far from the peer's limit: its control messages' receives are among those it counts. */
#define RDC_MARGIN 4u
/* Entries of our SGL array. */
#define RDC_SGL 2u
#define RDC_INLINE 64u
/* Bytes of one message at most: what is sent is free again when its last byte is acknowledged. */
#define RDC_CHUNK (256u * 1024u)

/*
 * ACK time-out 4.096 us * 2^18 = 1.07 s, once and six times more: a dead machine shows after 7.5 s (a device may take up to four
 * times as long). Seven times means for ever to rdma_rxe. RNR timer 0.64 ms.
 */
#define RDC_ACK_TIMEOUT 18
#define RDC_MIN_RNR 12
#define RDC_RETRY 6
#define RDC_RNR_RETRY 7

#define RDC_CONNECT_NS UINT64_C(60000000000)
#define RDC_RESOLVE_MS 5000u
#define RDC_ABORT_NS UINT64_C(2000000000)
/*
 * For so long at most a queue pair is held for a peer that has said goodbye and does not go: librdmacm says its goodbye again after
 * 2.3 s, if its acknowledgement was lost, so two times; a peer that never closes keeps nothing for longer.
 */
#define RDC_HOLD_NS UINT64_C(5000000000)
/* Acknowledgements that nobody waits for are looked for at the latest after this time without any. */
#define RDC_PATIENCE_NS UINT64_C(10000000)
/* A kernel's answer to what it was told is waited for awake, if the last ones came sooner than this. */
#define RDC_THINK_NS UINT64_C(1000000)
/* As TCP's, unless TCP_KEEPIDLE says otherwise. */
#define RDC_KEEP_S 7200u
/* In the id of a work request that asks whether the peer's device is there: an op that is never sent. */
#define RDC_OP_PROBE 2u

/* Of a connection's page: our SGL array at its start, entries on their way to the peer's here. */
#define RDC_PAGE 4096u
#define RDC_PAGE_OUT 64u

/* How a device is given memory of the GPU. */
enum rdc_memory { RDC_HOST, RDC_DMABUF, RDC_PEERMEM };

/* Segments that can be short: in host memory, and in the device's. Bits. */
enum rdc_room { RDC_ROOM_HOST = 1, RDC_ROOM_NEAR = 2 };

struct rdc_where {
	struct list link;
	struct verbs_device *dev;
	enum rdc_memory kind;
};

struct rdc_net {
	struct channel_net_params p;
	unsigned threads;
	pthread_mutex_t lock; /* of opening, and of `where` */
	struct list where;    /* devices whose way to the GPU's memory was tried */
	bool tried;
	int rc; /* of opening */
	struct verbs_use use;
	struct rdc_thread *t; /* [threads] */
	/* Closed channels that are still there: those whose end the peer does not know, */
	_Atomic uint64_t lingering;
	_Atomic uint64_t held; /* and those that wait for the peer to go */
};

/* A device as one thread uses it. */
struct rdc_dev {
	struct list link;
	struct rdc_thread *t;
	struct verbs_device *dev;
	struct verbs_device_info info;
	struct verbs_comp *comp;
	struct proxy_watch watch;
	struct list cqs;
};

struct rdc_queue {
	struct verbs_cq *cq;
	bool armed;
};

/*
 * What its connections receive wakes the thread. What was sent is acknowledged a little before the answer comes, and to be woken for
 * both costs twice; so acknowledgements have a queue of their own, which is armed only when somebody waits for them (rdc_attend).
 */
struct rdc_cq {
	struct list link;
	struct rdc_dev *dev;
	struct rdc_queue recv, send;
	unsigned size, used; /* connections */
};

struct rdc_thread {
	struct rdc_net *net;
	struct proxy_thread *pt;
	_Atomic bool open;
	struct verbs_events *events;
	struct proxy_watch watch;
	struct list devs;
	struct rdc **slot; /* channels with a queue pair, by the number in their wr_id */
	uint16_t *gen;
	unsigned slots, live;
	struct list dirty; /* channels that completions have told something */
	struct list timed; /* channels with a deadline */
	struct list held;  /* closed channels that wait for the peer to go, the oldest first */
	_Atomic unsigned n_held;
	_Atomic unsigned asked; /* RDC_ROOM_*: another thread is short of it */
	uint64_t next_deadline;
	unsigned unacked;  /* channels of which something is under way, */
	unsigned urgent;   /* and of those where somebody waits for its end */
	uint64_t patience; /* until then the others' acknowledgements wake nobody */
	uint64_t busy_until;
	uint64_t
		told_at; /* a kernel was told of bytes and has not answered yet; 0: there is none */
	uint64_t think;  /* for so long its answer is waited for awake */
	bool late;       /* it has taken longer */

	pthread_mutex_t lock; /* of what other threads hand over: */
	struct list handed;
	_Atomic bool has_handed;
};

enum rdc_state {
	RDC_FRESH, /* perhaps bound */
	RDC_LISTENING,
	RDC_RESOLVING,
	RDC_CONNECTING,
	RDC_FAILED,    /* a connect: err says why */
	RDC_REQUESTED, /* a peer's request, taken from a listener and not yet answered */
	RDC_OPEN,      /* the queue pair carries the stream, or `err` says why not */
	RDC_CLOSING,   /* the owner has let go */
};

struct rdc {
	struct channel base;
	struct rdc_net *net;
	struct rdc_thread *t;
	struct proxy_grave grave;
	enum rdc_state state;
	int domain;
	int err; /* errno */
	struct verbs_id *id;
	struct sockaddr_storage bound, peer;
	socklen_t bound_len, peer_len;
	bool reuseaddr, v6only, keepalive;
	unsigned keep_s; /* seconds of silence before the peer's device is asked */
	struct list timed_link, hand_link, dirty_link, held_link;
	uint64_t deadline;

	/* listening: requests not yet taken, each a channel in RDC_REQUESTED */
	struct list requests;
	struct list request_link;
	unsigned n_requests, backlog;

	/* the queue pair and its memory */
	struct rdc_cq *cq;
	struct verbs_qp *qp;
	unsigned slot;
	int rx_seg, tx_seg; /* in host memory; -1: none */
	enum rdc_memory memory;
	int near_rx,
		near_tx; /* in the device's; -1: none. Then the receive ring is there, and there is no rx_seg, */
	uint64_t near_from; /* and from this position of the stream on the send ring is there */
	struct verbs_mr *mr_rx, *mr_tx, *mr_near, *mr_sgl, *mr_out;
	uint8_t *page; /* our SGL array, which the peer writes, and entries for the peer's */
	unsigned inline_max;
	unsigned credits; /* that we gave */
	bool established; /* the peer is ready to receive */
	bool told;        /* a completion error has been explained */

	/* receive */
	uint64_t rx_pos;  /* arrived */
	uint64_t rx_told; /* of it, told to the owner */
	uint64_t rx_head; /* consumed by the reader */
	uint64_t granted; /* the peer may write up to here */
	unsigned due;     /* receives to post again */
	uint16_t rseq;    /* of the peer's messages, those whose receives are posted again */
	uint16_t limit;   /* as the peer knows it */
	bool rx_end;      /* no byte follows rx_pos */
	bool rx_shut;     /* by our side */
	bool gone;        /* the peer has disconnected in good order */
	bool left;        /* its CM has said so: it waits for nothing of ours any more */

	/* send */
	uint64_t tx_tail;      /* told by the owner */
	uint64_t tx_pos;       /* posted */
	uint64_t tx_done;      /* acknowledged */
	uint64_t tx_told;      /* of it, told to the owner */
	unsigned sends, ctrls; /* under way */
	struct wire_rsock_conn remote;
	struct wire_rsock_sge target; /* where the next byte goes */
	unsigned target_index;        /* in our SGL array, of the entry that `target` came from */
	uint32_t remote_index;        /* in the peer's SGL array, of the entry to write next */
	unsigned out;                 /* entries for it sent so far */
	uint16_t seq, peer_limit, margin;
	bool limited; /* a message said what peer_limit is */
	unsigned
		want_ctrl; /* 1 + what to say when there is room: WIRE_RSOCK_SHUTDOWN or _DISCONNECT; 0: nothing */
	bool tx_shut; /* said it */
	bool bye;     /* that it was _DISCONNECT */
	bool hurry;   /* the owner waits until all is acknowledged */
	bool failing; /* a send has failed, as `failure` says: an error once what arrived before is known */
	struct verbs_wc failure;
	bool attached; /* kernels know the send ring; before, they have GNET_MINI_BYTES under way at most */
	enum { RDC_QUIET, RDC_PATIENT, RDC_URGENT } attention; /* as the thread counts it */
	unsigned news; /* CHANNEL_* that the owner is to be told */
};

static inline struct rdc *rdc_of(struct channel *c)
{
	return list_entry(c, struct rdc, base);
}

/* ---- net.c ---- */

/* Opens the provider once, for all threads: 0, or the same error each time. */
int rdc_net_ready(struct rdc_net *n);
struct rdc_thread *rdc_thread_of(struct rdc_net *n, struct proxy_thread *t);
/* CQs of the device with room for one more connection: it is counted. */
int rdc_cq_get(struct rdc_thread *t, struct verbs_device *dev, struct rdc_cq **out);
void rdc_cq_put(struct rdc_cq *q);
/* Takes completions and tells owners; how many. It may end and free any connection of the thread. */
unsigned rdc_poll(struct rdc_thread *t);
/* Takes the completions of the connection's queues, and tells nobody yet. */
void rdc_drain(struct rdc *c);
/* Whoever saw sends complete: takes what arrived before one of them failed, then the failure is the connection's, if it is not over. */
void rdc_settle(struct rdc *c);
void rdc_drain_sends(struct rdc *c);
void rdc_drain_recvs(struct rdc *c);
/* After what is under way has changed, or who waits for it: how soon the thread has to know. */
void rdc_attend(struct rdc *c);
/* A kernel was told of bytes; it sends some. */
void rdc_told(struct rdc_thread *t);
void rdc_answered(struct rdc_thread *t);
/* `ns` from now on rdc_expired is called, unless rdc_untime comes first. */
void rdc_time(struct rdc *c, uint64_t ns);
void rdc_untime(struct rdc *c);

/* ---- chan.c ---- */

struct rdc *rdc_new(struct rdc_thread *t, int domain);
/* Ends its queue pair and id, now, and frees it at the end of the pass. */
void rdc_free(struct rdc *c);
/* Something happened that the owner is told at the end of the pass. */
void rdc_tell(struct rdc *c, unsigned events);

/* ---- conn.c ---- */

int rdc_id(struct rdc *c);
/* Queue pair, memory, receives; c->id has a device. The error is in the log. */
int rdc_setup(struct rdc *c);
/* Gives back all of it; peers reach nothing of it any more. */
void rdc_teardown(struct rdc *c);
int rdc_connect(struct rdc *c, const struct sockaddr *a, socklen_t n);
/* RESOLVED has come. */
void rdc_go_on(struct rdc *c);
void rdc_connected(struct rdc *c, const struct verbs_conn_param *p);
void rdc_connect_failed(struct rdc *c, int err);
/* Answers a request, in the thread that owns it from now on. */
void rdc_adopt(struct rdc *c);
void rdc_hand_over(struct rdc *c, struct rdc_thread *to);
void rdc_close(struct rdc *c, int abort);
/* A closing channel has nothing more to wait for? Then it goes. */
void rdc_close_step(struct rdc *c);
/* Ends the channel that is held longest of those with such segments, since they are wanted: false if this thread has none. */
bool rdc_end_held(struct rdc_thread *t, enum rdc_room room);
/* The same; if this thread has none the others are asked. */
bool rdc_make_room(struct rdc_thread *t, enum rdc_room room);
void rdc_expired(struct rdc *c);
/* SO_KEEPALIVE was set or cleared, or there is a connection now. */
void rdc_keep(struct rdc *c);

/* ---- memory.c ---- */

/* How `dev` can be given the device's memory; `why` receives where rings are, and the reason. */
enum rdc_memory rdc_memory_try(const struct verbs_ops *ops, struct verbs_device *dev,
			       const struct channel_near *near, char *why, size_t why_size);
void rdc_memory_forget(struct rdc_net *n);
/* Two segments in host memory: 0, -ENOBUFS, or -EAGAIN: other threads have been asked to make room. */
int rdc_take_segments(struct rdc *c);
/* Those in the device's memory, if c->id's device can be given them: before the owner asks for the segments. */
void rdc_take_near(struct rdc *c);
uint64_t rdc_rx_addr(const struct rdc *c);
/* Address and key of the send ring's bytes from `pos` on. */
void rdc_tx_sge(const struct rdc *c, uint64_t pos, struct verbs_sge *sge);
/*
 * Each region has exactly what it is for: a peer may write our receive ring and our SGL array, and nothing else. The error is in
 * the log.
 */
int rdc_set_memory(struct rdc *c);
/* Gives back regions, then segments. The queue pair is gone. */
void rdc_drop_memory(struct rdc *c);

/* ---- cm.c ---- */

void rdc_events(struct rdc_thread *t);

/* ---- data.c ---- */

void rdc_data_init(struct rdc *c);
void rdc_local_conn(const struct rdc *c, struct wire_rsock_conn *out);
/* The peer's private data is in c->remote. */
void rdc_data_start(struct rdc *c);
void rdc_completion(struct rdc *c, const struct verbs_wc *wc);
/* After completions, or when the owner moved: receives again, credits, data, goodbyes. */
void rdc_flow(struct rdc *c);
void rdc_fail(struct rdc *c, int err);
ssize_t rdc_ring_recv(struct channel *ch, uint64_t head, bool *watch);
ssize_t rdc_ring_send(struct channel *ch, uint64_t tail);
void rdc_hurry(struct channel *ch);
int rdc_say(struct rdc *c, unsigned ctrl);
/* A write of no bytes, unless something is under way that will tell as well. */
void rdc_probe(struct rdc *c);

/* ---- text.c ---- */

/* "10.0.0.1:7471" for a message; `out` has RDC_NAME bytes. */
#define RDC_NAME 80
const char *rdc_name(const struct sockaddr_storage *a, char *out);
/* Says once what a completion error means. Returns the errno. */
int rdc_explain(struct rdc *c, const struct verbs_wc *wc, const char *what);
/* Registration failed: the limit and the remedy. */
int rdc_explain_memory(int err, uint64_t bytes);

#endif
