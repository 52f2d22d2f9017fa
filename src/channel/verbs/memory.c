/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a connection's rings lie, and who may write them. Rings in the device's memory spare the way through the host's; whether a
 * NIC can be given that memory is tried once a device: by dma-buf, then by its address (nvidia-peermem), else the rings are in
 * pinned host memory. The bytes that kernels hand over inline are the proxy's to place, so there is a host segment for them in any case.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "channel/verbs/rdc.h"

#define PAGE RDC_PAGE
/* What is tried: a whole number of any GPU's pages. */
#define TRIAL (UINT64_C(64) << 10)

/* ---- what a device can be given -------------------------------------------------------------------------------------------------- */

bool rdc_near_wanted(const char *verbs)
{
	return verbs_hardware(verbs);
}

static int reg_near(const struct verbs_ops *ops, struct verbs_device *dev,
		    const struct channel_near *near, enum rdc_memory how, uint64_t at, uint64_t n,
		    unsigned access, struct verbs_mr **out)
{
	struct verbs_mem m = { .fd = -1, .length = n, .iova = near->bus + at };

	if (how == RDC_DMABUF) {
		m.fd = near->fd;
		m.offset = near->fd_offset + at;
	} else {
		m.addr = near->dev + at;
	}
	return ops->reg(dev, &m, access, out);
}

static int try_one(const struct verbs_ops *ops, struct verbs_device *dev,
		   const struct channel_near *near, enum rdc_memory how)
{
	const unsigned written = VERBS_ACCESS_LOCAL_WRITE | VERBS_ACCESS_REMOTE_WRITE;
	struct verbs_mr *mr;
	int rc = reg_near(ops, dev, near, how, 0, near->size < TRIAL ? near->size : TRIAL, written,
			  &mr);

	if (!rc)
		ops->dereg(mr);
	return rc;
}

enum rdc_memory rdc_memory_try(const struct verbs_ops *ops, struct verbs_device *dev,
			       const struct channel_near *near, char *why, size_t why_size)
{
	struct verbs_device_info info;
	int rc = ops->device_info(dev, &info), peer;
	char dma[192];

	if (rc || (info.flags & VERBS_DEVICE_SOFTWARE)) {
		snprintf(why, why_size, "pinned host memory: %s",
			 rc ? strerror(-rc) : "the device is software, which the CPU runs");
		return RDC_HOST;
	}
	if (!near->n) {
		snprintf(why, why_size, "pinned host memory: %s", near->why);
		return RDC_HOST;
	}
	rc = near->fd < 0 ? -EOPNOTSUPP : try_one(ops, dev, near, RDC_DMABUF);
	if (!rc) {
		snprintf(why, why_size, "GPU memory, by dma-buf");
		return RDC_DMABUF;
	}
	snprintf(dma, sizeof(dma), "%s", near->fd < 0 ? near->why : strerror(-rc));
	peer = try_one(ops, dev, near, RDC_PEERMEM);
	if (!peer) {
		snprintf(why, why_size, "GPU memory, by nvidia-peermem (no dma-buf: %s)", dma);
		return RDC_PEERMEM;
	}
	snprintf(
		why, why_size,
		"pinned host memory: GPU memory cannot be registered by dma-buf (%s), nor by its address (%s): modprobe nvidia-peermem",
		dma, strerror(-peer));
	return RDC_HOST;
}

/* Once a device and network; the reason is told then. */
static enum rdc_memory memory_of(struct rdc_net *n, struct verbs_device *dev)
{
	struct verbs_device_info info = { .name = "a device" };
	struct rdc_where *w = NULL;
	struct list *l;
	char why[512];

	pthread_mutex_lock(&n->lock);
	for (l = n->where.next; l != &n->where && !w; l = l->next) {
		w = list_entry(l, struct rdc_where, link);
		w = w->dev == dev ? w : NULL;
	}
	if (!w) {
		w = sys.alloc(sizeof(*w));
		if (!w) {
			pthread_mutex_unlock(&n->lock);
			return RDC_HOST;
		}
		w->dev = dev;
		w->kind = rdc_memory_try(n->use.ops, dev, &n->p.near, why, sizeof(why));
		list_add_tail(&n->where, &w->link);
		(void)n->use.ops->device_info(dev, &info);
		log_line(w->kind == RDC_HOST && n->p.near.n ? LOG_WARN : LOG_NOTE,
			 "rdma: rings on %s are in %s", info.name, why);
	}
	pthread_mutex_unlock(&n->lock);
	return w->kind;
}

void rdc_memory_forget(struct rdc_net *n)
{
	while (!list_empty(&n->where)) {
		struct rdc_where *w = list_entry(n->where.next, struct rdc_where, link);

		list_del(&w->link);
		sys.free(w);
	}
}

/* ---- segments -------------------------------------------------------------------------------------------------------------------- */

static void put(struct rdc *c, int *seg)
{
	if (*seg >= 0)
		c->net->p.seg_put(c->net->p.seg_ctx, *seg);
	*seg = -1;
}

static void put_near(struct rdc *c, int *seg)
{
	if (*seg >= 0)
		c->net->p.near.put(c->net->p.near.ctx, *seg);
	*seg = -1;
}

static bool take(struct rdc *c)
{
	const struct channel_net_params *p = &c->net->p;

	c->rx_seg = p->seg_get(p->seg_ctx);
	c->tx_seg = c->rx_seg < 0 ? -1 : p->seg_get(p->seg_ctx);
	if (c->tx_seg < 0)
		put(c, &c->rx_seg);
	return c->tx_seg >= 0;
}

/*
 * What is held for peers that have said goodbye is not kept from new ones. Whoever holds none any more has given its segments back:
 * so the last look finds those that came since the one before.
 */
int rdc_take_segments(struct rdc *c)
{
	while (!take(c)) {
		if (rdc_make_room(c->t, RDC_ROOM_HOST))
			continue;
		if (rdc_net_holds(c->net))
			return -EAGAIN;
		return take(c) ? 0 : -ENOBUFS;
	}
	return 0;
}

static bool take_near(struct rdc *c)
{
	const struct channel_near *near = &c->net->p.near;

	c->near_rx = near->get(near->ctx);
	c->near_tx = c->near_rx < 0 ? -1 : near->get(near->ctx);
	if (c->near_tx < 0)
		put_near(c, &c->near_rx);
	return c->near_tx >= 0;
}

void rdc_take_near(struct rdc *c)
{
	struct verbs_device *dev = c->net->use.ops->id_device(c->id);

	c->memory = dev ? memory_of(c->net, dev) : RDC_HOST;
	if (c->memory == RDC_HOST)
		return;
	while (!take_near(c) && rdc_make_room(c->t, RDC_ROOM_NEAR))
		;
	if (c->near_tx < 0) {
		/* All of it is in use: this connection's rings are as those of a machine without. */
		c->memory = RDC_HOST;
		return;
	}
	put(c, &c->rx_seg);
}

static uint64_t offset_of(const struct rdc *c, int seg)
{
	return (uint64_t)(unsigned)seg << c->net->p.seg_log2;
}

uint64_t rdc_rx_addr(const struct rdc *c)
{
	if (c->near_rx >= 0)
		return c->net->p.near.bus + offset_of(c, c->near_rx);
	return (uintptr_t)(c->net->p.slab + offset_of(c, c->rx_seg));
}

void rdc_tx_sge(const struct rdc *c, uint64_t pos, struct verbs_sge *sge)
{
	const uint64_t off = pos & ((UINT64_C(1) << c->net->p.seg_log2) - 1);

	if (pos >= c->near_from) {
		sge->addr = c->net->p.near.bus + offset_of(c, c->near_tx) + off;
		sge->lkey = c->mr_near->lkey;
	} else {
		sge->addr = (uintptr_t)(c->net->p.slab + offset_of(c, c->tx_seg)) + off;
		sge->lkey = c->mr_tx->lkey;
	}
}

/* ---- regions --------------------------------------------------------------------------------------------------------------------- */

static int reg(struct rdc *c, void *addr, uint64_t n, unsigned access, struct verbs_mr **out)
{
	struct verbs_mem m = { .addr = addr, .fd = -1, .length = n, .iova = (uintptr_t)addr };
	int rc = c->net->use.ops->reg(c->net->use.ops->id_device(c->id), &m, access, out);

	return rc ? rdc_explain_memory(rc, n) : 0;
}

static int reg_ring(struct rdc *c, int near, int seg, unsigned access, struct verbs_mr **out)
{
	const uint64_t size = UINT64_C(1) << c->net->p.seg_log2;
	const struct verbs_ops *ops = c->net->use.ops;
	int rc;

	if (near < 0)
		return reg(c, c->net->p.slab + offset_of(c, seg), size, access, out);
	rc = reg_near(ops, ops->id_device(c->id), &c->net->p.near, c->memory, offset_of(c, near),
		      size, access, out);
	return rc ? rdc_explain_memory(rc, size) : 0;
}

/* What others have left in the ring is nothing for this peer, which can say that it has written what it has not. */
static void clear_ring(const struct rdc *c)
{
	if (c->near_rx < 0)
		memset(c->net->p.slab + offset_of(c, c->rx_seg), 0,
		       (size_t)1 << c->net->p.seg_log2);
}

int rdc_set_memory(struct rdc *c)
{
	const unsigned written = VERBS_ACCESS_LOCAL_WRITE | VERBS_ACCESS_REMOTE_WRITE;
	int rc;

	c->page = sys.map(PAGE);
	if (!c->page)
		return log_error(-ENOMEM, "rdma: no memory for a connection");
	clear_ring(c);
	rc = reg_ring(c, c->near_rx, c->rx_seg, written, &c->mr_rx);
	if (!rc)
		rc = reg_ring(c, -1, c->tx_seg, 0, &c->mr_tx);
	if (!rc && c->near_tx >= 0)
		rc = reg_ring(c, c->near_tx, -1, 0, &c->mr_near);
	if (!rc)
		rc = reg(c, c->page, RDC_SGL * WIRE_RSOCK_SGE_LEN, written, &c->mr_sgl);
	if (!rc && c->inline_max < WIRE_RSOCK_SGE_LEN)
		rc = reg(c, c->page + RDC_PAGE_OUT, PAGE - RDC_PAGE_OUT, 0, &c->mr_out);
	return rc;
}

static void dereg(struct rdc *c, struct verbs_mr **mr)
{
	if (*mr)
		c->net->use.ops->dereg(*mr);
	*mr = NULL;
}

/* The queue pair is gone: nobody writes any more. Then the keys go, and at last the memory. */
void rdc_drop_memory(struct rdc *c)
{
	dereg(c, &c->mr_rx);
	dereg(c, &c->mr_tx);
	dereg(c, &c->mr_near);
	dereg(c, &c->mr_sgl);
	dereg(c, &c->mr_out);
	if (c->page)
		sys.unmap(c->page, PAGE);
	c->page = NULL;
	put(c, &c->rx_seg);
	put(c, &c->tx_seg);
	put_near(c, &c->near_rx);
	put_near(c, &c->near_tx);
}
