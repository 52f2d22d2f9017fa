/* SPDX-License-Identifier: BSD-3-Clause */
/* Receive: from the channel into the ring, and into the status line (docs/bus.md, rules R). */
#include "stream/internal.h"

#include <errno.h>
#include <string.h>

/*
 * The most that one receive takes, and no more than half a ring: small enough that the kernel copies while the proxy receives
 * on. (H200, 1 MiB rings, UNIX: 32 and 64 KiB as 128; 256 KiB 4% more with one stream, 10% with eight.)
 */
#define RX_CHUNK (256u * 1024u)
/* How many streams are looked at, at a time, for a segment to take back. */
#define RECLAIM_SCAN 64

static uint64_t seg_size(const struct stream *s)
{
	return slab_seg_size(s->set->slab);
}

/* ---- the status line ------------------------------------------------------------------------------------------------ */

static void put_cell(struct stream *s, unsigned i, uint64_t v)
{
	__atomic_store_n(&s->bus->line.cell[i], v, __ATOMIC_RELAXED);
}

static void put_cell0(struct stream *s, uint64_t v)
{
	s->cell0 = v;
	__atomic_store_n(&s->bus->line.cell[0], v, __ATOMIC_RELEASE);
	stream_tell(s, GNET_WAIT_RX, &s->bus->line.cell[0]);
}

static uint64_t cell0(uint64_t flags, uint64_t n_inline, uint64_t tail, uint64_t tag)
{
	return (tail & GNET_LINE_TAIL_MASK) << GNET_LINE_TAIL_SHIFT |
	       n_inline << GNET_LINE_INLINE_SHIFT | flags << GNET_LINE_FLAGS_SHIFT | tag;
}

/* R1: all cells with the next inline tag. `data` has at least 7 readable bytes more than n. */
void stream_publish_inline(struct stream *s, const uint8_t *data, unsigned n)
{
	unsigned i;

	s->tag_inline = s->tag_inline == GNET_LINE_TAG_INLINE_LAST ? GNET_LINE_TAG_INLINE_FIRST
								   : s->tag_inline + 1u;
	for (i = 1; i < GNET_CELLS; i++) {
		uint64_t v = 0;

		if ((i - 1) * GNET_CELL_DATA < n)
			memcpy(&v, data + (size_t)(i - 1) * GNET_CELL_DATA, GNET_CELL_DATA);
		put_cell(s, i, v << 8 | s->tag_inline);
	}
	put_cell0(s, cell0(s->flags, n, s->rx_tail, s->tag_inline));
}

/* R2: the bytes up to rx_tail are in the ring. */
void stream_publish_ring(struct stream *s)
{
	s->tag_ring = s->tag_ring == GNET_LINE_TAG_RING_LAST ? GNET_LINE_TAG_RING_FIRST
							     : s->tag_ring + 1u;
	put_cell(s, 1,
		 (s->rx_tail & 0xffffff) << GNET_LINE_TAIL24_SHIFT |
			 (uint64_t)(uint32_t)s->rx_seg << GNET_LINE_SEG_SHIFT | s->tag_ring);
	put_cell0(s, cell0(s->flags, 0, s->rx_tail, s->tag_ring));
}

/* R3 */
void stream_publish_flags(struct stream *s, uint64_t flags)
{
	const uint64_t all = UINT64_C(0xff) << GNET_LINE_FLAGS_SHIFT;

	s->flags = flags;
	put_cell0(s, (s->cell0 & ~all) | flags << GNET_LINE_FLAGS_SHIFT);
}

void stream_connecting(struct stream *s)
{
	s->err = 0;
	stream_publish_txw(s);
	stream_publish_flags(s, GNET_LINE_CONNECTING);
}

void stream_not_connected(struct stream *s, int err)
{
	stream_set_error(s, err);
	stream_publish_txw(s);
	stream_publish_flags(s, GNET_LINE_ERR);
}

void stream_is_connected(struct stream *s)
{
	stream_publish_flags(s, GNET_LINE_CONNECTED);
}

void stream_tell_gone(struct stream *s)
{
	stream_publish_flags(s, s->flags | GNET_LINE_GONE);
}

/* ---- segments --------------------------------------------------------------------------------------------------------- */

void stream_rx_release(struct stream *s)
{
	if (s->rx_seg < 0)
		return;
	list_del(&s->attached_link);
	if (!s->rings)
		slab_put(s->set->slab, s->rx_seg);
	s->rx_seg = -1;
}

/* R7: takes the segment of a stream whose reader has consumed everything. */
static bool reclaim(struct stream_set *set)
{
	const struct stream *first = NULL;
	unsigned i;

	for (i = 0; i < RECLAIM_SCAN && !list_empty(&set->attached); i++) {
		struct stream *s = list_entry(set->attached.next, struct stream, attached_link);

		if (s == first)
			break;
		if (!first)
			first = s;
		/* The next look begins behind it: many slow readers must not hide the others. */
		list_del(&s->attached_link);
		list_add_tail(&set->attached, &s->attached_link);
		if (s->rx_io || __atomic_load_n(&s->bus->head, __ATOMIC_ACQUIRE) != s->rx_tail)
			continue;
		stream_rx_release(s);
		return true;
	}
	return false;
}

/* Each thread looks once for each question: none can take it from those that sleep, the one that asks least of all. */
void stream_ask_others(struct stream_set *set)
{
	set->asked = atomic_fetch_add(&set->slab->asked, 1) + 1;
	proxy_wake_others(set->t);
}

bool stream_set_is_asked(const struct stream_set *set)
{
	return atomic_load_explicit(&set->slab->asked, memory_order_relaxed) != set->asked;
}

void stream_give_asked(struct stream_set *set)
{
	if (!stream_set_is_asked(set))
		return;
	set->asked = atomic_load_explicit(&set->slab->asked, memory_order_relaxed);
	reclaim(set);
}

int stream_take_segment(struct stream_set *set)
{
	int seg = slab_get(set->slab);

	return seg < 0 && reclaim(set) ? slab_get(set->slab) : seg;
}

/* Gives the stream a segment and puts the unread bytes of the private copy at their place in it. */
bool stream_rx_attach(struct stream *s, uint64_t unread)
{
	uint64_t in = s->cell0 >> GNET_LINE_INLINE_SHIFT & 0x7f;
	int seg = stream_take_segment(s->set);

	if (seg < 0)
		return false;
	s->rx_seg = seg;
	s->line_full = s->line_short = false;
	list_add_tail(&s->set->attached, &s->attached_link);
	if (unread)
		ring_put(slab_at(s->set->slab, seg), seg_size(s), s->rx_tail - unread,
			 s->rx_mini + in - unread, unread);
	return true;
}

/* ---- receiving ------------------------------------------------------------------------------------------------------- */

void stream_wait_for_room(struct stream *s, uint64_t head)
{
	s->rx_seen = head;
	if (list_empty(&s->wait_link))
		list_add_tail(&s->set->waiters, &s->wait_link);
}

/*
 * TCP's reception ends with the end of the stream and is not told of a reset behind it; that a UNIX peer has closed its socket,
 * and not only its sending, no call tells but a send.
 */
void stream_after_end(struct stream *s)
{
	uint64_t flags = s->flags;
	socklen_t n = sizeof(int);
	int err = 0;

	if (s->failing && !s->ch->ops->get_option(s->ch, SOL_SOCKET, SO_ERROR, &err, &n) && err) {
		stream_fail(s, err);
		/* Behind our own SHUT_RD only the errno tells whether the peer's end had come, too. */
		flags |= s->ch->ops->end_is_last && (!s->rx_cut || err == EPIPE) ? GNET_LINE_BROKEN
										 : GNET_LINE_ERR;
	}
	s->failing = false;
	if (s->hung_up)
		flags |= GNET_LINE_HUP;
	if (flags != s->flags)
		stream_publish_flags(s, flags);
}

static void finish(struct stream *s, int err)
{
	s->rx_done = true;
	s->rx_cut = s->rx_shut;
	stream_cool(s);
	s->readable = false;
	if (err)
		stream_fail(s, err);
	/* That the peer takes no more is the senders' error: here the stream ended in good order. */
	stream_publish_flags(s, s->flags | (s->err && s->err != EPIPE ? GNET_LINE_ERR
								      : GNET_LINE_EOF));
	stream_after_end(s);
}

void stream_no_bytes(struct stream *s, ssize_t rc)
{
	if (rc == -EAGAIN && s->err && s->err != EPIPE)
		finish(s, 0); /* sending failed, and what had arrived before is read */
	else if (rc == -EAGAIN)
		s->readable = false;
	else if (rc == -ENOMEM || rc == -ENOBUFS)
		stream_later(s);
	else if (rc == -EINTR)
		stream_run(s);
	else
		finish(s, (int)-rc);
}

void stream_publish_received(struct stream *s, uint64_t from, uint64_t n, uint64_t unread)
{
	s->rx_tail = from + n;
	/* R8: what lies in the device's memory only kernels read. */
	if (unread || n > GNET_INLINE_MAX || ((unsigned)s->rx_seg & GNET_SEG_NEAR)) {
		stream_publish_ring(s);
		return;
	}
	ring_get(slab_at(s->set->slab, s->rx_seg), seg_size(s), from, s->rx_mini, n);
	stream_publish_inline(s, s->rx_mini, (unsigned)n);
}

/* Where the next bytes go; false: there is no room. */
static bool ring_room(struct stream *s, uint64_t head, struct sys_io *io)
{
	uint64_t size = seg_size(s), room = size - s->rx_unread,
		 most = size / 2 < RX_CHUNK ? size / 2 : RX_CHUNK;

	if (!room) {
		stream_wait_for_room(s, head);
		return false;
	}
	io->n = ring_parts(slab_at(s->set->slab, s->rx_seg), size, s->rx_tail,
			   room < most ? room : most, io->v);
	return true;
}

bool stream_rx_begin(struct stream *s, struct sys_io *io)
{
	/* Without a segment the unread bytes are those of the line, at most. */
	uint64_t head,
		most = s->rx_seg >= 0 ? seg_size(s) : s->cell0 >> GNET_LINE_INLINE_SHIFT & 0x7f;

	if (!s->readable || s->rx_done || s->closing)
		return false;
	head = __atomic_load_n(&s->bus->head, __ATOMIC_ACQUIRE);
	s->rx_unread = s->rx_tail - head;
	if (s->rx_unread > most) {
		finish(s, EIO); /* a kernel wrote where it should not */
		return false;
	}
	if (s->rx_seg < 0 && (s->rx_unread || s->line_short) &&
	    !stream_rx_attach(s, s->rx_unread) && s->rx_unread) {
		stream_wait_for_room(s, head);
		return false;
	}
	if (s->rx_seg < 0) {
		/* Into the private copy: the reader has consumed everything and there is no segment. */
		io->v[0] = (struct iovec){ s->rx_mini, GNET_INLINE_MAX };
		io->n = 1;
	} else if (!ring_room(s, head, io)) {
		return false;
	}
	io->fd = s->ch->ops->descriptor(s->ch);
	io->send = false;
	s->rx_io = true;
	return true;
}

unsigned stream_rx_end(struct stream *s, const struct sys_io *io)
{
	ssize_t n = io->rc;

	s->rx_io = false;
	if (n <= 0) {
		s->line_full = false;
		stream_no_bytes(s, n);
		return 0;
	}
	if (s->set->hops)
		stream_hop_received(s);
	if (s->rx_seg < 0) {
		s->rx_tail += (uint64_t)n;
		stream_publish_inline(s, s->rx_mini, (unsigned)n);
		/* A reader that is always faster than the next receive leaves nothing unread that would ask for a segment. */
		s->line_short |= s->line_full;
		s->line_full = n == GNET_INLINE_MAX && io->more;
	} else {
		stream_publish_received(s, s->rx_tail, (uint64_t)n, s->rx_unread);
	}
	s->rx_bulk = n >= STREAM_BULK;
	/* A short count is not the last word: an urgent mark ends it, too. But the system may say that there is no more yet. */
	if (io->more || s->ending || s->rx_shut || s->err)
		stream_run(s);
	else
		s->readable = false;
	stream_heat(s);
	atomic_fetch_add_explicit(&s->set->bytes_in, (uint64_t)n, memory_order_relaxed);
	return (unsigned)n;
}
