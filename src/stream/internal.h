/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_STREAM_INTERNAL_H
#define GPUNET_STREAM_INTERNAL_H

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "stream/stream.h"

/* As many bytes take longer to copy than a system call: they are moved by a call of their own, and told of at once. */
#define STREAM_BULK 16384

/* `n` bytes from position `pos` of a ring on: one part or two. */
static inline int ring_parts(uint8_t *ring, uint64_t size, uint64_t pos, uint64_t n,
			     struct iovec v[2])
{
	uint64_t off = pos & (size - 1), first = n < size - off ? n : size - off;

	v[0] = (struct iovec){ ring + off, first };
	v[1] = (struct iovec){ ring, n - first };
	return n > first ? 2 : 1;
}

static inline void ring_put(uint8_t *ring, uint64_t size, uint64_t pos, const void *src, size_t n)
{
	struct iovec v[2];

	ring_parts(ring, size, pos, n, v);
	memcpy(v[0].iov_base, src, v[0].iov_len);
	memcpy(v[1].iov_base, (const uint8_t *)src + v[0].iov_len, v[1].iov_len);
}

static inline void ring_get(uint8_t *ring, uint64_t size, uint64_t pos, void *dst, size_t n)
{
	struct iovec v[2];

	ring_parts(ring, size, pos, n, v);
	memcpy(dst, v[0].iov_base, v[0].iov_len);
	memcpy((uint8_t *)dst + v[0].iov_len, v[1].iov_base, v[1].iov_len);
}

/* Queues the stream for the next pass. */
void stream_run(struct stream *s);

/* Queues it for a pass a little later: what it wanted the system was short of. */
void stream_later(struct stream *s);

/* Its socket is full, and an event may not tell all that changes that (T8). */
void stream_try_full(struct stream *s);

/* Something was received: for a while the stream is asked directly. */
void stream_heat(struct stream *s);
void stream_cool(struct stream *s);

/*
 * One bounded send and one bounded receive. _begin: is there one to be made, and which? _end: with what came of it; how much was
 * done. Between the two nothing else happens to the stream.
 */
bool stream_tx_begin(struct stream *s, struct sys_io *io);
unsigned stream_tx_end(struct stream *s, const struct sys_io *io);
bool stream_rx_begin(struct stream *s, struct sys_io *io);
unsigned stream_rx_end(struct stream *s, const struct sys_io *io);
/* After the send: the shutdown and the close that waited for it. True: there is no stream any more. */
bool stream_tx_over(struct stream *s);

/* The same for a channel that moves the rings' bytes itself, in one. */
unsigned stream_ring_rx(struct stream *s);
unsigned stream_ring_tx(struct stream *s);
/* n bytes from position `from` on are in the ring, behind `unread` others: tells the kernel. */
void stream_publish_received(struct stream *s, uint64_t from, uint64_t n, uint64_t unread);
/* What a receive gave, other than bytes: an end or a negative errno. */
void stream_no_bytes(struct stream *s, ssize_t rc);
/* Reception is done: publishes what the channel has told of besides, or tells of now. */
void stream_after_end(struct stream *s);
/* The channel has taken n more bytes, n > 0. */
void stream_sent(struct stream *s, uint64_t n);

/* Stores what was sent, and the last error, for the kernel to see (T4, E1). */
void stream_publish_txw(struct stream *s);

/* R1, R2, R3. `data` has at least 7 readable bytes more than n; `flags`: all that cell 0 shall have. */
void stream_publish_inline(struct stream *s, const uint8_t *data, unsigned n);
void stream_publish_ring(struct stream *s);
void stream_publish_flags(struct stream *s, uint64_t flags);
/* Gives the stream a receive segment if one is to be had, with the unread bytes of the private copy at their place. */
bool stream_rx_attach(struct stream *s, uint64_t unread);
/* Z3: goes on when the kernel's head is not `head` any more. */
void stream_wait_for_room(struct stream *s, uint64_t head);

/* dgram.c: the steps of a socket of datagrams; `ring`: its send ring. */
unsigned stream_dgram_rx(struct stream *s);
unsigned stream_dgram_tx(struct stream *s, uint8_t *ring, uint64_t size);
/* tx.c: the latter, and what follows it. */
unsigned stream_send_datagrams(struct stream *s);

/* Counts an error and keeps it as kernels see it: in eight bits, a positive errno, or EIO for one that has none of them. */
static inline void stream_set_error(struct stream *s, int err)
{
	s->err = err > 255 ? EIO : err;
	s->errs++;
}

/*
 * hop.c, with option hops only: the socket is made; the set's last call received something, and the line is about to be
 * written; a kernel has handed bytes over, and the set's last call sent them, or gave an errno.
 */
void stream_hop_init(struct stream *s);
void stream_hop_received(struct stream *s);
void stream_hop_handed(struct stream *s);
void stream_hop_sent(struct stream *s, ssize_t rc);

/* The channel failed: both directions end. */
void stream_fail(struct stream *s, int err);
void stream_rx_release(struct stream *s);
/* A free segment, or that of a reader of this thread which has consumed everything: -ENOBUFS if there is none. */
int stream_take_segment(struct stream_set *set);
/* D7: asks the other threads for a segment, and gives one of a reader that has consumed everything to a thread that has asked. */
void stream_ask_others(struct stream_set *set);
void stream_give_asked(struct stream_set *set);

#endif
