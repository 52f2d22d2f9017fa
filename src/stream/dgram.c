/* SPDX-License-Identifier: BSD-3-Clause */
/* Datagrams: whole records between the rings and the channel (docs/bus.md, rules D). */
#include "stream/internal.h"

#include <errno.h>
#include <string.h>

/* Datagrams that one step moves: others want their turn. */
#define BATCH 16

static uint64_t round16(uint64_t n)
{
	return (n + 15) & ~UINT64_C(15);
}

/* An error of one datagram: the socket goes on. The flag stays: from now on readers also look at txw. */
static void soft_error(struct stream *s, int err)
{
	stream_set_error(s, err);
	stream_publish_txw(s);
	stream_publish_flags(s, s->flags | GNET_LINE_ERR);
}

/* ---- receive ---------------------------------------------------------------------------------------------------------- */

/*
 * D3: will the next datagram fit into `room` bytes after its header and address? What is taken must be kept, so it is looked at
 * first, except where nothing larger can be. One that not even an empty ring holds is cut (and says so).
 */
static int next_fits(struct stream *s, uint64_t room, uint64_t size)
{
	uint64_t front = sizeof(struct gnet_dgram) + s->addr_room;
	ssize_t n;

	if (room == size || room >= front + round16(s->dgram_most))
		return 1;
	n = s->ch->ops->next(s->ch);
	if (n < 0)
		return (int)n;
	return room >= front && room - front >= round16((uint64_t)n);
}

/* Takes one datagram into the ring behind rx_tail: the record's size, or a negative errno. */
static int64_t take(struct stream *s, uint64_t room, uint64_t size)
{
	uint64_t front = sizeof(struct gnet_dgram) + s->addr_room;
	uint8_t *ring = slab_at(s->set->slab, s->rx_seg);
	struct sockaddr_storage from;
	socklen_t len = sizeof(from);
	struct gnet_dgram h;
	struct iovec v[2];
	ssize_t n;

	memset(&h, 0, sizeof(h));
	n = s->ch->ops->recv_from(s->ch, v,
				  ring_parts(ring, size, s->rx_tail + front, room - front, v),
				  (struct sockaddr *)&from, &len);
	if (n < 0)
		return n;
	h.len = (uint32_t)n;
	h.stored = (uint64_t)n < room - front ? (uint32_t)n : (uint32_t)(room - front);
	h.addr_len = (uint16_t)(len < s->addr_room ? len : s->addr_room);
	h.addr_room = (uint16_t)s->addr_room;
	ring_put(ring, size, s->rx_tail, &h, sizeof(h));
	ring_put(ring, size, s->rx_tail + sizeof(h), &from, h.addr_len);
	return (int64_t)(front + round16(h.stored));
}

static void publish(struct stream *s, uint64_t from, uint64_t size, bool alone)
{
	uint64_t n = s->rx_tail - from;

	if (!alone || n > GNET_INLINE_MAX) {
		stream_publish_ring(s);
		return;
	}
	ring_get(slab_at(s->set->slab, s->rx_seg), size, from, s->rx_mini, n);
	stream_publish_inline(s, s->rx_mini, (unsigned)n);
}

static void not_taken(struct stream *s, int64_t rc)
{
	if (rc == -ENOMEM || rc == -ENOBUFS) {
		stream_later(s);
		return;
	}
	if (rc == -EAGAIN) {
		s->readable = false;
		return;
	}
	if (rc != -EINTR)
		soft_error(s, (int)-rc);
	stream_run(s);
}

/* As many as there are and fit, up to a batch: all of them are told of at once. */
static unsigned take_batch(struct stream *s, uint64_t head, uint64_t size)
{
	uint64_t from = s->rx_tail, room = size - (from - head);
	unsigned n = 0;
	int64_t rc = 0;

	while (n < BATCH) {
		rc = next_fits(s, room, size);
		if (rc <= 0)
			break;
		rc = take(s, room, size);
		if (rc < 0)
			break;
		s->rx_tail += (uint64_t)rc;
		room -= (uint64_t)rc;
		n++;
	}
	if (n)
		publish(s, from, size, n == 1 && from == head);
	if (rc < 0)
		not_taken(s, rc);
	else if (rc == 0)
		stream_wait_for_room(s, head);
	else
		stream_run(s);
	return n;
}

/*
 * The socket is closed, and stays only for what it has still to send. Nobody reads any more, so what comes goes: else its senders, of whom it
 * may be one itself, would wait until its time to linger is over.
 */
static unsigned discard(struct stream *s)
{
	struct sockaddr_storage from;
	unsigned n = 0;
	ssize_t rc = 0;

	while (n < BATCH && rc >= 0) {
		socklen_t len = sizeof(from);

		rc = s->ch->ops->recv_from(s->ch, NULL, 0, (struct sockaddr *)&from, &len);
		n += rc >= 0;
	}
	if (rc == -EAGAIN)
		s->readable = false;
	else if (rc == -ENOMEM || rc == -ENOBUFS)
		stream_later(s);
	else
		stream_run(s);
	return n;
}

unsigned stream_dgram_rx(struct stream *s)
{
	uint64_t head, unread, size = slab_seg_size(s->set->slab);

	if (!s->readable || s->rx_done || (s->closing && s->rx_shut))
		return 0;
	if (s->closing)
		return discard(s);
	if (s->rx_shut) {
		s->rx_done = true;
		stream_publish_flags(s, s->flags | GNET_LINE_EOF);
		return 1;
	}
	head = __atomic_load_n(&s->bus->head, __ATOMIC_ACQUIRE);
	unread = s->rx_tail - head;
	if (unread > size || (head & 15) || (unread && s->rx_seg < 0)) {
		s->rx_done = true; /* a kernel wrote where it should not */
		soft_error(s, EIO);
		stream_publish_flags(s, s->flags | GNET_LINE_EOF);
		return 1;
	}
	if (s->rx_seg < 0 && !stream_rx_attach(s, 0)) {
		/*
		 * All segments are others': this reader's head tells nothing of when one is free. A stream would go on without
		 * one. If all threads have idle readers' segments, one of them gives one back, and this is tried again.
		 */
		stream_ask_others(s->set);
		stream_later(s);
		return 0;
	}
	return take_batch(s, head, size);
}

/* ---- send ------------------------------------------------------------------------------------------------------------- */

/* Reads and checks the record at tx_head: its size, 0 if it is not what a kernel that keeps the rules writes. */
static uint64_t record(const struct stream *s, uint8_t *ring, uint64_t size, struct gnet_dgram *h)
{
	uint64_t have = s->tx_tail - s->tx_head, n;

	if (have < sizeof(*h) || (s->tx_head & 15))
		return 0;
	ring_get(ring, size, s->tx_head, h, sizeof(*h));
	n = sizeof(*h) + (uint64_t)h->addr_room + round16(h->stored);
	return h->addr_len <= h->addr_room && h->addr_len <= sizeof(struct sockaddr_storage) &&
			       !(h->addr_room & 15) && h->len == h->stored && n <= have
		       ? n
		       : 0;
}

static ssize_t send_record(struct stream *s, uint8_t *ring, uint64_t size,
			   const struct gnet_dgram *h)
{
	uint64_t pos = s->tx_head + sizeof(*h);
	struct sockaddr_storage to;
	struct iovec v[2];
	int parts;

	ring_get(ring, size, pos, &to, h->addr_len);
	parts = ring_parts(ring, size, pos + h->addr_room, h->stored, v);
	return s->ch->ops->send_to(s->ch, v, parts, h->addr_len ? (struct sockaddr *)&to : NULL,
				   h->addr_len);
}

/* Not now: an event or, where none may come, a little later. */
static unsigned postpone(struct stream *s, ssize_t rc)
{
	if (rc == -EINTR) {
		stream_run(s);
	} else {
		/* The peer's queue is full (UNIX) or the device's (ENOBUFS): of neither an event tells. */
		stream_later(s);
	}
	return 0;
}

static bool transient(ssize_t rc)
{
	return rc == -EAGAIN || rc == -ENOBUFS || rc == -ENOMEM || rc == -EINTR;
}

/* Sends the record at tx_head; 1 if it is done with. */
static unsigned send_one(struct stream *s, uint8_t *ring, uint64_t size)
{
	struct gnet_dgram h;
	uint64_t n = record(s, ring, size, &h);
	ssize_t rc;

	if (!n) {
		s->tx_dead = true;
		soft_error(s, EIO);
		return 0;
	}
	rc = send_record(s, ring, size, &h);
	if (rc < 0 && !transient(rc) && !s->tx_error_told) {
		/* It may be an earlier datagram's error, told in place of sending this one. */
		soft_error(s, (int)-rc);
		s->tx_error_told = true;
		rc = send_record(s, ring, size, &h);
	}
	if (rc < 0 && transient(rc))
		return postpone(s, rc);
	s->tx_error_told = false;
	s->tx_head += n;
	return 1;
}

unsigned stream_dgram_tx(struct stream *s, uint8_t *ring, uint64_t size)
{
	unsigned n = 0;

	while (n < BATCH && s->tx_head != s->tx_tail && s->writable && !s->tx_dead &&
	       send_one(s, ring, size))
		n++;
	if (n) {
		stream_publish_txw(s);
		stream_run(s);
	}
	return n;
}
