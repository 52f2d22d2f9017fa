/* SPDX-License-Identifier: BSD-3-Clause */
/* Send: from the kernel's entries and ring into the channel (docs/bus.md, rules T), and the stream's end. */
#include "stream/internal.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"

static uint64_t tx_size(const struct stream *s)
{
	return s->tx_seg >= 0 ? slab_seg_size(s->set->slab) : GNET_MINI_BYTES;
}

static uint8_t *tx_buf(const struct stream *s)
{
	return s->tx_seg >= 0 ? slab_at(s->set->slab, s->tx_seg) : s->tx_mini;
}

/* T4 */
void stream_tell(struct stream *s, unsigned side, const uint64_t *word)
{
	uint64_t *mine = &s->bus->waits[side], *poll = &s->bus->waits[GNET_WAIT_POLL];

	proxy_touched(s->set->t, word);
	if ((__atomic_load_n(mine, __ATOMIC_RELAXED) | __atomic_load_n(poll, __ATOMIC_RELAXED)) &&
	    proxy_may_hint(s->set->t)) {
		/* Before the hint: who follows it asks anew. */
		__atomic_store_n(mine, 0, __ATOMIC_RELAXED);
		__atomic_store_n(poll, 0, __ATOMIC_RELAXED);
		proxy_hint(s->set->t, s->slot);
	}
}

void stream_publish_txw(struct stream *s)
{
	uint64_t v = (s->tx_head & GNET_TXW_POS_MASK) |
		     (uint64_t)(unsigned)s->err << GNET_TXW_ERR_SHIFT |
		     (uint64_t)s->errs << GNET_TXW_ERRS_SHIFT;

	__atomic_store_n(&s->bus->txw, v, __ATOMIC_RELEASE);
	stream_tell(s, GNET_WAIT_TX, &s->bus->txw);
}

static void count_unsent(struct stream *s)
{
	bool unsent = s->closing || (!s->tx_dead && s->tx_head != s->tx_tail);

	if (unsent == s->counted)
		return;
	s->counted = unsent;
	if (unsent)
		atomic_fetch_add(&s->set->unsent, 1);
	else
		atomic_fetch_sub(&s->set->unsent, 1);
}

void stream_init(struct stream *s, struct stream_set *set, struct gnet_sock_bus *bus, uint32_t slot,
		 void (*gone)(struct stream *))
{
	unsigned i;

	memset(s, 0, sizeof(*s));
	s->set = set;
	s->bus = bus;
	s->slot = slot;
	s->gone = gone;
	s->linger_ns = set->linger_ns;
	s->rx_seg = s->tx_seg = -1;
	s->tag_inline = GNET_LINE_TAG_INLINE_FIRST;
	s->tag_ring = GNET_LINE_TAG_RING_FIRST;
	list_init(&s->run_link);
	list_init(&s->wait_link);
	list_init(&s->attached_link);
	list_init(&s->closing_link);
	list_init(&s->later_link);
	list_init(&s->full_link);
	list_init(&s->hot_link);
	for (i = 0; i < GNET_CELLS; i++)
		__atomic_store_n(&bus->line.cell[i], 0, __ATOMIC_RELAXED);
	if (set->hops)
		stream_hop_init(s);
	__atomic_store_n(&bus->txw, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&bus->head, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&bus->tx_tail, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&bus->waits[GNET_WAIT_RX], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&bus->waits[GNET_WAIT_TX], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&bus->waits[GNET_WAIT_POLL], 0, __ATOMIC_RELAXED);
}

void stream_set_dgram(struct stream *s, unsigned addr_room, uint64_t most)
{
	s->dgram = true;
	s->addr_room = addr_room;
	s->dgram_most = most;
}

uint64_t stream_first_position;

static void begin_at(struct stream *s, uint64_t pos)
{
	s->rx_tail = s->tx_tail = s->tx_head = pos;
	s->cell0 = (pos & GNET_LINE_TAIL_MASK) << GNET_LINE_TAIL_SHIFT;
	__atomic_store_n(&s->bus->head, pos, __ATOMIC_RELAXED);
	stream_publish_txw(s);
	stream_publish_flags(s, s->flags);
}

void stream_connected(struct stream *s, struct channel *ch)
{
	if (stream_first_position && !s->dgram)
		begin_at(s, stream_first_position);
	s->ch = ch;
	s->readable = s->writable = true;
	s->rings = ch->ops->ring != NULL;
	if (s->rings)
		ch->ops->ring->segments(ch, &s->rx_seg, &s->tx_seg);
}

void stream_event(struct stream *s, unsigned events)
{
	if (events & CHANNEL_IN)
		s->readable = true;
	if (events & CHANNEL_END)
		s->ending = true;
	if (events & CHANNEL_OUT) {
		s->writable = true;
		list_del(&s->full_link);
	}
	s->hung_up |= (events & CHANNEL_HUP) != 0;
	s->failing |= (events & CHANNEL_ERR) != 0;
	if (s->rx_done && !s->dgram && !s->closing)
		stream_after_end(s);
	stream_run(s);
}

void stream_fail(struct stream *s, int err)
{
	/* A reset that reception meets says more than that sending met a closed end. */
	if (!s->err || s->err == EPIPE)
		stream_set_error(s, err);
	s->tx_dead = true;
	list_del(&s->full_link);
	/* Bytes that arrived before the error are the reader's: read on to the end. */
	s->readable = true;
	stream_publish_txw(s);
	count_unsent(s);
	stream_run(s);
}

/* ---- what kernels hand over ------------------------------------------------------------------------------------------ */

/* Room for n more bytes behind the tail? A kernel that keeps the rules never sends more. */
static bool fits(struct stream *s, uint64_t n)
{
	if (s->tx_tail - s->tx_head + n <= tx_size(s))
		return true;
	if (!s->tx_dead)
		stream_fail(s, EIO);
	return false;
}

static void handed_over(struct stream *s, uint64_t n)
{
	s->tx_tail += n;
	__atomic_store_n(&s->bus->tx_tail, s->tx_tail, __ATOMIC_RELAXED);
	if (s->set->hops)
		stream_hop_handed(s);
	count_unsent(s);
	stream_run(s);
}

void stream_send(struct stream *s, const uint8_t *data, unsigned n)
{
	if (!s->ch || s->shut_wr || s->closing || !n || !fits(s, n))
		return;
	if (s->tx_near) { /* T7: the ring is not the CPU's to write */
		stream_fail(s, EIO);
		return;
	}
	if (s->tx_seg < 0 && !s->tx_mini) {
		s->tx_mini = sys.alloc(GNET_MINI_BYTES);
		if (!s->tx_mini) {
			stream_fail(s, ENOMEM);
			return;
		}
	}
	ring_put(tx_buf(s), tx_size(s), s->tx_tail, data, n);
	handed_over(s, n);
}

void stream_tail(struct stream *s, uint64_t tail48)
{
	uint64_t n = (tail48 - s->tx_tail) & GNET_TXW_POS_MASK;

	if (!s->ch || s->tx_seg < 0 || s->shut_wr || s->closing || !fits(s, n))
		return;
	handed_over(s, n);
}

/*
 * Half of the segments stay with who has sent most recently; the others are lent call by call, so that idle sockets never hold
 * all.
 */
static int tx_seg_reply(const struct stream *s)
{
	return s->tx_seg | (slab_scarce(s->set->slab) ? (int)GNET_TX_ONCE : 0);
}

int stream_attach_tx(struct stream *s)
{
	uint64_t pos, size = slab_seg_size(s->set->slab);
	int seg;

	s->tx_let_go = false;
	if (s->rings && s->ch) {
		seg = s->ch->ops->ring->attach(s->ch, s->tx_tail);
		s->tx_near = seg >= 0 && ((unsigned)seg & GNET_SEG_NEAR);
		return seg;
	}
	if (s->tx_seg >= 0)
		return tx_seg_reply(s);
	seg = stream_take_segment(s->set);
	if (seg < 0)
		return seg;
	for (pos = s->tx_head; pos != s->tx_tail; pos++)
		slab_at(s->set->slab, seg)[pos & (size - 1)] =
			s->tx_mini[pos & (GNET_MINI_BYTES - 1)];
	sys.free(s->tx_mini);
	s->tx_mini = NULL;
	s->tx_seg = seg;
	return tx_seg_reply(s);
}

/* T6 */
static void give_back_tx(struct stream *s)
{
	if (!s->tx_let_go || s->tx_head != s->tx_tail)
		return;
	s->tx_let_go = false;
	slab_put(s->set->slab, s->tx_seg);
	s->tx_seg = -1;
}

void stream_detach_tx(struct stream *s)
{
	s->tx_let_go = s->tx_seg >= 0 && !s->rings;
	give_back_tx(s);
}

/* ---- sending --------------------------------------------------------------------------------------------------------- */

/* The list is in the order of the deadlines; most streams linger equally long and go to its end. */
static void linger(struct stream *s)
{
	struct list *l;

	list_del(&s->closing_link);
	s->deadline = proxy_now(s->set->t) + s->linger_ns;
	l = s->set->closing.prev;
	while (l != &s->set->closing &&
	       list_entry(l, struct stream, closing_link)->deadline > s->deadline)
		l = l->prev;
	list_add_tail(l->next, &s->closing_link);
}

void stream_sent(struct stream *s, uint64_t n)
{
	s->tx_head += n;
	stream_publish_txw(s);
	give_back_tx(s);
	if (s->closing && !s->linger_in_all)
		linger(s); /* the time counts from the last progress */
	atomic_fetch_add_explicit(&s->set->bytes_out, n, memory_order_relaxed);
	stream_run(s);
}

bool stream_tx_begin(struct stream *s, struct sys_io *io)
{
	uint64_t n = s->tx_tail - s->tx_head;

	if (s->tx_dead || !s->writable || !n)
		return false;
	io->fd = s->ch->ops->descriptor(s->ch);
	io->send = true;
	io->n = ring_parts(tx_buf(s), tx_size(s), s->tx_head, n, io->v);
	return true;
}

unsigned stream_tx_end(struct stream *s, const struct sys_io *io)
{
	ssize_t rc = io->rc;

	if (s->set->hops)
		stream_hop_sent(s, rc);
	if (rc == -EAGAIN) {
		s->writable = false;
		if (s->ch->ops->hides_deaf)
			stream_try_full(s);
		return 0;
	}
	if (rc == -ENOBUFS || rc == -ENOMEM) {
		stream_later(s);
		return 0;
	}
	if (rc == -EINTR) {
		stream_run(s);
		return 0;
	}
	if (rc < 0) {
		stream_fail(s, (int)-rc);
		return 1;
	}
	stream_sent(s, (uint64_t)rc);
	return (unsigned)rc;
}

unsigned stream_send_datagrams(struct stream *s)
{
	uint64_t from = s->tx_head;
	unsigned n;

	if (s->tx_dead || !s->writable || s->tx_head == s->tx_tail)
		return 0;
	n = stream_dgram_tx(s, tx_buf(s), tx_size(s));

	give_back_tx(s);
	if (n && s->closing && !s->linger_in_all)
		linger(s);
	atomic_fetch_add_explicit(&s->set->bytes_out, s->tx_head - from, memory_order_relaxed);
	return n;
}

static void shut_wr(struct stream *s)
{
	int rc = s->ch->ops->shutdown(s->ch, SHUT_WR);

	s->shut_wr = false;
	s->tx_dead = true;
	if (rc && rc != -ENOTCONN)
		log_line(LOG_DEBUG, "shutdown of a sent-out stream: %s", strerror(-rc));
}

bool stream_tx_over(struct stream *s)
{
	bool gone;

	if (s->shut_wr && !s->tx_dead && s->tx_head == s->tx_tail)
		shut_wr(s);
	if ((s->shut_wr || s->closing) && s->rings && !s->tx_dead && s->tx_head != s->tx_tail)
		s->ch->ops->ring->hurry(s->ch);
	gone = s->closing && (s->tx_dead || s->tx_head == s->tx_tail);
	if (gone)
		stream_abort(s);
	else
		count_unsent(s);
	return gone;
}

/* ---- the end --------------------------------------------------------------------------------------------------------- */

int stream_shutdown(struct stream *s, int how)
{
	int rc = 0;

	if (!s->ch)
		return -ENOTCONN;
	if (how != SHUT_WR) {
		rc = s->ch->ops->shutdown(s->ch, SHUT_RD);
		s->readable = s->rx_shut = true;
	}
	if (how != SHUT_RD)
		s->shut_wr = true;
	stream_run(s);
	return rc == -ENOTCONN ? 0 : rc; /* the peer was faster */
}

void stream_set_linger(struct stream *s, uint64_t ns)
{
	s->linger_ns = ns;
	s->reset = !ns;
	s->linger_in_all = true;
}

void stream_close(struct stream *s)
{
	stream_cool(s);
	stream_rx_release(s);
	list_del(&s->wait_link);
	if (!s->ch || s->tx_dead || s->reset || s->tx_head == s->tx_tail) {
		stream_abort(s);
		return;
	}
	s->closing = true;
	linger(s);
	count_unsent(s);
	stream_run(s);
}

void stream_abort(struct stream *s)
{
	bool lost = s->ch && !s->tx_dead && s->tx_head != s->tx_tail, counted = s->counted;
	struct stream_set *set = s->set;

	if (lost && !s->reset)
		log_line(LOG_NOTE,
			 "closing a socket with %llu unsent bytes: its time to linger is over",
			 (unsigned long long)(s->tx_tail - s->tx_head));
	s->late = lost && !s->reset;
	s->closing = false;
	s->tx_dead = true;
	s->counted = false;
	stream_rx_release(s);
	list_del(&s->wait_link);
	list_del(&s->run_link);
	list_del(&s->closing_link);
	list_del(&s->later_link);
	list_del(&s->full_link);
	stream_cool(s);
	if (s->tx_seg >= 0 && !s->rings)
		slab_put(s->set->slab, s->tx_seg);
	s->tx_seg = -1;
	sys.free(s->tx_mini);
	s->tx_mini = NULL;
	if (s->ch)
		s->ch->ops->close(s->ch, lost || s->reset);
	s->ch = NULL;
	s->gone(s);
	/* Last, so that gpunet_drain returns when the socket is gone. */
	if (counted)
		atomic_fetch_sub(&set->unsent, 1);
}
