/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ordered bytes between a kernel's rings and a channel: the proxy's half of docs/bus.md, rules R and T. A stream belongs to
 * one proxy thread, and everything here happens in it.
 */
#ifndef GPUNET_STREAM_H
#define GPUNET_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpunet/dev/abi/bus.h>

#include "base/list.h"
#include "channel/channel.h"
#include "proxy/proxy.h"
#include "stream/slab.h"

/* What a stream knows of the messages at hand, with option hops. */
struct stream_hops {
	bool rx_open, tx_open;
	uint64_t rx_at[3]; /* call entered, left, line about to be written */
	uint64_t tx_at[5]; /* struct gpunet_stat_hop's */
	uint64_t tx_pos;
	uint64_t seen, stored; /* the kernel's words before the message: they do not speak of it */
};

/* The streams of one proxy thread. */
struct stream_set {
	/* Option hops; NULL: off. */
	struct gpunet_stat_hops *hops;
	struct gnet_hops *hops_bus; /* by slot */
	uint64_t call_at[2];        /* when the last system call was entered and left */
	struct proxy_thread *t;
	struct slab *slab;
	uint64_t linger_ns;
	struct list run;      /* have something to do now */
	struct list waiters;  /* wait for the kernel's head to move */
	struct list attached; /* have a receive segment; to be looked at next first */
	uint64_t asked;       /* of slab->asked: up to here this thread has looked among its own */
	struct list hot;      /* received just now: asked directly, before events tell */
	unsigned n_hot;
	uint64_t crowded_until; /* more receive than are asked: none is asked */
	struct list later;      /* the system was short of memory: tried again at later_at */
	uint64_t later_at;
	struct list full; /* UNIX sockets that took no more: tried again from full_at on */
	uint64_t full_at;
	struct list closing; /* closed by the kernel, bytes still to send */
	_Atomic uint64_t bytes_in, bytes_out;
	_Atomic uint64_t unsent; /* streams with unsent bytes */
};

struct stream {
	struct stream_set *set;
	struct channel *ch;
	struct gnet_sock_bus *bus;
	uint32_t slot; /* of bus in the table */
	/* Called when a closed stream has given everything back; may reuse the stream's memory. */
	void (*gone)(struct stream *s);
	struct list run_link, wait_link, attached_link, closing_link, hot_link, later_link,
		full_link;
	uint64_t hot_until;

	struct stream_hops hops;

	/* datagrams */
	bool dgram;
	bool rx_shut;        /* shut down for receiving */
	unsigned addr_room;  /* bytes for an address in a received record, a multiple of 16 */
	uint64_t dgram_most; /* no datagram of the transport is longer */

	/* receive */
	uint64_t rx_tail;   /* published */
	uint64_t rx_seen;   /* the kernel's head when the stream began to wait */
	uint64_t rx_unread; /* while rx_io: published and unread before what is being received */
	bool rx_io;         /* a receive into the segment or the private copy is being made */
	bool rx_bulk;       /* the last one got much */
	bool line_full;     /* the last one, without a segment, filled the line */
	bool line_short;    /* and the socket had more: there shall be a segment */
	uint64_t cell0;     /* as published */
	uint64_t flags;     /* GNET_LINE_*, in every cell 0 */
	int rx_seg;         /* -1: none */
	uint8_t tag_inline, tag_ring;
	bool readable; /* recv may have something */
	bool ending;   /* and goes on until the end */
	bool rx_done;  /* end or error published */
	bool rx_cut;   /* it was shut down for receiving before the end had come */
	bool hung_up;  /* the channel has told that nothing goes either way any more */
	bool failing;  /* and of an error, which reception may not meet */
	uint8_t rx_mini
		[GNET_INLINE_MAX +
		 7]; /* unconsumed bytes of a stream without a segment; position rx_tail ends it */

	/* send */
	uint64_t tx_tail; /* handed over by the kernel */
	uint64_t tx_head; /* given to the channel */
	uint64_t tx_told; /* rings: the tail that the channel knows */
	int tx_seg;       /* -1: none */
	bool tx_near;     /* the kernel writes into a segment of the device's memory (T7) */
	bool rings; /* both segments are the channel's, which moves the bytes (src/stream/ring.c) */
	bool tx_let_go;   /* the segment goes back when all of it is sent (T6) */
	uint8_t *tx_mini; /* GNET_MINI_BYTES, while there is no segment */
	bool writable;
	bool tx_dead;       /* an error: nothing will be sent any more */
	bool tx_error_told; /* datagrams: of the one at tx_head */
	bool shut_wr;       /* shut down when everything is sent */
	bool closing;
	bool counted; /* in set->unsent */
	bool late;    /* the linger time is over, with bytes unsent */
	bool reset;   /* closing drops what is unsent and resets the connection */
	uint64_t
		linger_ns; /* after a close: since the last progress, or (linger_in_all) since the close */
	bool linger_in_all;
	uint64_t deadline;
	int err;      /* errno of the channel, 0: none */
	uint8_t errs; /* errors so far */
};

void stream_set_init(struct stream_set *set, struct proxy_thread *t, struct slab *slab,
		     uint64_t linger_ns);
/* The hooks of proxy.h. */
unsigned stream_set_step(struct stream_set *set, uint64_t now, uint64_t *next);
bool stream_set_waits(const struct stream_set *set);
bool stream_set_has_room(const struct stream_set *set);
bool stream_set_is_asked(const struct stream_set *set);

/* Makes it a stream of datagrams: before it is connected to its channel. */
void stream_set_dgram(struct stream *s, unsigned addr_room, uint64_t most);
/* Before the descriptor is given out; from any thread. Resets the shared record. */
void stream_init(struct stream *s, struct stream_set *set, struct gnet_sock_bus *bus, uint32_t slot,
		 void (*gone)(struct stream *));
/* A connect is under way: the line says so, and no error of an earlier one is left. */
void stream_connecting(struct stream *s);
/* It has failed; there may be another. */
void stream_not_connected(struct stream *s, int err);
/* It has succeeded: the line says so. */
void stream_is_connected(struct stream *s);
/* Where a stream's positions begin: 0, but in a test of what happens when they are large, whose kernels set their own side. */
extern uint64_t stream_first_position;
/* The channel is connected: bytes may flow. */
void stream_connected(struct stream *s, struct channel *ch);
/* The channel told of events (channel.h). */
void stream_event(struct stream *s, unsigned events);

/* A word that kernels wait for was stored. `side`: GNET_WAIT_RX or _TX (H2). From the thread that owns the stream. */
void stream_tell(struct stream *s, unsigned side, const uint64_t *word);

/* GNET_OP_SEND and GNET_OP_TX. */
void stream_send(struct stream *s, const uint8_t *data, unsigned n);
void stream_tail(struct stream *s, uint64_t tail48);
/* GNET_OP_TX_ATTACH: the segment's number, perhaps with GNET_TX_ONCE, or -ENOBUFS. */
int stream_attach_tx(struct stream *s);
/* GNET_OP_TX_DETACH */
void stream_detach_tx(struct stream *s);
int stream_shutdown(struct stream *s, int how);
/* Before the close: how long, in all, it goes on sending; 0: the connection is reset. */
void stream_set_linger(struct stream *s, uint64_t ns);
/* The kernel has let go of the socket. Goes on sending until the linger time is over, then calls gone(). */
void stream_close(struct stream *s);
/* A closed stream that is gone keeps its line for whoever waits for its end: tells them (N3). */
void stream_tell_gone(struct stream *s);
/* Gives everything back now; unsent bytes are dropped. Calls gone(). */
void stream_abort(struct stream *s);

#endif
