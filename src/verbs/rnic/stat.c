/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What other processes may see of a host: the page of <gpunet/stat.h>. It is copied now and then from what the device counts anyway, so that
 * packets cost nothing more; after the last of them the host's thread wakes once to bring it up to date.
 */
#include "verbs/rnic/internal.h"

#include <gpunet/stat.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "wire/roce.h"

enum { RECORDS = 1024 };

#define EVERY_NS UINT64_C(50000000)

_Static_assert(sizeof(struct rnic_counters) <= sizeof(uint64_t) * GPUNET_STAT_RNIC_COUNTERS,
	       "GPUNET_STAT_RNIC_COUNTERS is too small");
_Static_assert(sizeof(struct rnic_counters) / 8 ==
		       sizeof((const char *[]){ GPUNET_STAT_RNIC_NAMES }) / sizeof(const char *),
	       "each counter has a name");
_Static_assert((int)GPUNET_STAT_QP_ERR == (int)RNIC_QPS_ERR, "states are the device's");

static struct gpunet_stat_rnic_qp *records(struct gpunet_stat_rnic *page)
{
	return (struct gpunet_stat_rnic_qp *)(void *)(page + 1);
}

void vstat_open(struct vhost *h, const char *device)
{
	const size_t size = sizeof(*h->page) + RECORDS * sizeof(struct gpunet_stat_rnic_qp);
	struct gpunet_stat_rnic *page = sys.map_fd(GPUNET_STAT_RNIC_NAME, size, &h->page_fd);

	if (!page || h->page_fd < 0) {
		log_line(LOG_NOTE, "gpunet rnic will not see %s: no memory file", device);
		if (page)
			sys.unmap(page, size);
		return;
	}
	page->size = sizeof(*page);
	page->record_size = sizeof(struct gpunet_stat_rnic_qp);
	page->records = RECORDS;
	page->pid = (int32_t)getpid();
	snprintf(page->device, sizeof(page->device), "%s", device);
	snprintf(page->interface, sizeof(page->interface), "%s", h->addr.dev);
	page->mtu = wire_mtu_bytes(h->mtu_code);
	page->slot = h->slot;
	h->page = page;
	h->page_size = size;
	__atomic_store_n(&page->magic, GPUNET_STAT_RNIC_MAGIC, __ATOMIC_RELEASE);
}

void vstat_close(struct vhost *h)
{
	if (h->page)
		__atomic_store_n(&h->page->magic, 0, __ATOMIC_RELEASE);
	vstat_forget(h);
}

void vstat_forget(struct vhost *h)
{
	if (!h->page)
		return;
	sys.unmap(h->page, h->page_size);
	sys.close(h->page_fd);
	h->page = NULL;
}

/* Words are stored whole, for whoever looks meanwhile. */
static void put(void *to, const void *from, size_t n)
{
	uint64_t word;
	size_t i;

	for (i = 0; i < n; i += sizeof(word)) {
		memcpy(&word, (const uint8_t *)from + i, sizeof(word));
		__atomic_store_n((uint64_t *)(void *)((uint8_t *)to + i), word, __ATOMIC_RELAXED);
	}
}

struct listing {
	struct gpunet_stat_rnic_qp *next, *end;
};

static void list_one(void *arg, const struct rnic_qp_view *v)
{
	struct listing *l = arg;
	struct gpunet_stat_rnic_qp q = { .qpn = v->num,
					 .peer_qpn = v->dest_qpn,
					 .state = v->state,
					 .posted = v->posted,
					 .pending = v->pending,
					 .received = v->received,
					 .window = v->window,
					 .rate = v->rate };

	/* QP1 is the connection manager's. */
	if (v->type == RNIC_QP_GSI || l->next == l->end)
		return;
	memcpy(q.peer, v->dst, sizeof(q.peer));
	put(l->next++, &q, sizeof(q));
}

static void tell(struct vhost *h)
{
	struct gpunet_stat_rnic *page = h->page;
	struct listing l = { records(page), records(page) + RECORDS };
	uint64_t seq = page->seq + 1, qps;

	/* Odd before anything else of it changes, see src/socket/stat.c. */
	__atomic_exchange_n(&page->seq, seq, __ATOMIC_ACQ_REL);
	put(page->counter, rnic_counters(h->r), sizeof(struct rnic_counters));
	qps = rnic_qp_each(h->r, list_one, &l) - 1; /* without QP1 */
	put(&page->qps, &qps, sizeof(qps));
	__atomic_store_n(&page->seq, seq + 1, __ATOMIC_RELEASE);
}

/* What changes with all that happens. */
static uint64_t mark(const struct vhost *h)
{
	const struct rnic_counters *c = rnic_counters(h->r);

	return c->tx_packets + c->rx_packets + c->rx_malformed + c->rx_no_qp + c->rx_wrong_peer +
	       h->stat_touched;
}

uint64_t vstat_look(struct vhost *h, uint64_t now)
{
	uint64_t m = mark(h);

	if (!h->page || m == h->stat_mark)
		return UINT64_MAX;
	if (now - h->stat_at < EVERY_NS)
		return h->stat_at + EVERY_NS;
	h->stat_at = now;
	h->stat_mark = m;
	tell(h);
	return UINT64_MAX;
}
