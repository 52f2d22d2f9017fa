/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Option hops: when a message passed each step between network and kernel (docs/bus.md, "For those who look"). A kernel's
 * stamps carry their position; those of another message are dropped, and so is the message.
 */
#include "stream/internal.h"

#include <gpunet/stat.h>

#include "base/sys.h"

static struct gnet_hops *stamps(const struct stream *s)
{
	return &s->set->hops_bus[s->slot];
}

/* The time in a kernel's word; 0: it is that of an earlier message, whose position may have the same low bits. */
static uint64_t time_of(uint64_t word, uint64_t before, uint64_t pos)
{
	return word != before && GNET_HOP_IS_AT(word, pos) ? GNET_HOP_TIME(word) : 0;
}

static uint64_t seen(const struct stream *s)
{
	return time_of(__atomic_load_n(&stamps(s)->seen, __ATOMIC_RELAXED), s->hops.seen,
		       s->rx_tail);
}

static void keep(struct stream *s, uint64_t kind, const uint64_t *at, unsigned n)
{
	struct gpunet_stat_hops *r = s->set->hops;
	uint64_t number = __atomic_load_n(&r->count, __ATOMIC_RELAXED) + 1;
	struct gpunet_stat_hop *h = &r->hop[number % GPUNET_STAT_HOPS];
	unsigned i;

	__atomic_exchange_n(&h->number, 0, __ATOMIC_ACQ_REL);
	__atomic_store_n(&h->kind_fd, kind << 32, __ATOMIC_RELAXED);
	for (i = 0; i < n; i++)
		__atomic_store_n(&h->at[i], at[i], __ATOMIC_RELAXED);
	__atomic_store_n(&h->number, number, __ATOMIC_RELEASE);
	__atomic_store_n(&r->count, number, __ATOMIC_RELEASE);
}

/* The message received last: by now the kernel should have taken it. */
static void close_rx(struct stream *s)
{
	struct stream_hops *h = &s->hops;
	uint64_t at[4] = { h->rx_at[0], h->rx_at[1], h->rx_at[2], 0 };

	if (!h->rx_open)
		return;
	at[3] = seen(s);
	if (at[3])
		keep(s, GPUNET_STAT_HOP_RECEIVED, at, 4);
	h->rx_open = false;
}

void stream_hop_init(struct stream *s)
{
	__atomic_store_n(&stamps(s)->seen, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&stamps(s)->stored, 0, __ATOMIC_RELAXED);
}

void stream_hop_received(struct stream *s)
{
	struct stream_hops *h = &s->hops;

	close_rx(s);
	h->seen = __atomic_load_n(&stamps(s)->seen, __ATOMIC_RELAXED);
	h->rx_at[0] = s->set->call_at[0];
	h->rx_at[1] = s->set->call_at[1];
	/* Before the kernel can see it: how far two clocks are apart is judged by what comes after what. */
	h->rx_at[2] = sys.now_ns();
	h->rx_open = true;
}

void stream_hop_handed(struct stream *s)
{
	struct stream_hops *h = &s->hops;
	uint64_t now = sys.now_ns(), word = __atomic_load_n(&stamps(s)->stored, __ATOMIC_RELAXED);
	bool alone = s->tx_head == h->tx_pos; /* all that was handed over before has gone */

	close_rx(s);
	h->tx_at[0] = time_of(word, h->stored, s->tx_tail);
	h->tx_at[1] = now;
	h->tx_at[4] = seen(s);
	h->tx_pos = s->tx_tail;
	/* More than one message at hand: theirs would be mixed up. */
	h->tx_open = h->tx_at[0] && alone;
	h->stored = word;
}

void stream_hop_sent(struct stream *s, ssize_t rc)
{
	struct stream_hops *h = &s->hops;

	if (!h->tx_open)
		return;
	h->tx_at[2] = s->set->call_at[0];
	h->tx_at[3] = s->set->call_at[1];
	if (rc > 0 && s->tx_head + (uint64_t)rc == h->tx_pos)
		keep(s, GPUNET_STAT_HOP_SENT, h->tx_at, 5);
	h->tx_open = false;
}
