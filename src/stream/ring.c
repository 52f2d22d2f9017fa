/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams over a channel that moves the rings' bytes itself (RDMA): only positions pass between the two (docs/bus.md, X). */
#include "stream/internal.h"

#include <errno.h>

unsigned stream_ring_rx(struct stream *s)
{
	uint64_t head, unread;
	bool watch = false;
	ssize_t n;

	if (!s->ch || s->rx_done || s->closing)
		return 0;
	head = __atomic_load_n(&s->bus->head, __ATOMIC_ACQUIRE);
	unread = s->rx_tail - head;
	if (unread > slab_seg_size(s->set->slab)) {
		stream_no_bytes(s, -EIO); /* a kernel wrote where it should not */
		return 1;
	}
	n = s->ch->ops->ring->recv(s->ch, head, &watch);
	if (n > 0) {
		stream_publish_received(s, s->rx_tail, (uint64_t)n, unread);
		stream_heat(s);
		atomic_fetch_add_explicit(&s->set->bytes_in, (uint64_t)n, memory_order_relaxed);
		stream_run(s); /* the end may be right behind */
	} else {
		stream_no_bytes(s, n);
	}
	if (watch && !s->rx_done)
		stream_wait_for_room(s, head);
	return n > 0;
}

unsigned stream_ring_tx(struct stream *s)
{
	ssize_t n;

	if (s->tx_dead || s->tx_head == s->tx_tail || (!s->writable && s->tx_told == s->tx_tail))
		return 0;
	s->tx_told = s->tx_tail;
	n = s->ch->ops->ring->send(s->ch, s->tx_tail);
	if (n > 0)
		stream_sent(s, (uint64_t)n);
	else if (n == -EAGAIN)
		s->writable = false;
	else
		stream_fail(s, (int)-n);
	return n != -EAGAIN;
}
