/* SPDX-License-Identifier: BSD-3-Clause */
/* Ring segments in the device's memory, for RDMA. Pools are reserved at open: later a resident kernel may hold allocation up. */
#include "socket/net.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "channel/channel.h"

int net_near_open(struct gpunet *g)
{
	const struct gpunet_options *o = &g->opt;
	const uint64_t size = o->slab_bytes / o->segment_bytes * o->segment_bytes;
	int rc;

	g->near.fd = -1;
	if (!strcmp(o->rdma_memory, "host")) {
		snprintf(g->near.why, sizeof(g->near.why), "option rdma_memory says so");
		return 0;
	}
	if (!channel_near_wanted(o->verbs)) {
		snprintf(g->near.why, sizeof(g->near.why),
			 "there was no RDMA device when the network was opened");
		return 0;
	}
	/* Why there is none stays in g->near.why: RDMA has its rings in host memory then. */
	if (g->platform->near_alloc(g->dev, size, &g->near))
		return 0;
	rc = slab_init(&g->near_slab, NULL, (unsigned)__builtin_ctzll(o->segment_bytes),
		       (uint32_t)(size / o->segment_bytes));
	if (rc)
		return log_error(rc, "no memory for the list of RDMA's segments");
	g->near_ready = true;
	return 0;
}

void net_near_close(struct gpunet *g)
{
	if (g->near_ready)
		slab_fini(&g->near_slab);
	g->near_ready = false;
	if (g->near.dev)
		g->platform->near_free(g->dev, &g->near);
}

static int near_get(void *g)
{
	return slab_get(&((struct gpunet *)g)->near_slab);
}

static void near_put(void *g, int seg)
{
	slab_put(&((struct gpunet *)g)->near_slab, seg);
}

static int near_flush(void *g)
{
	const struct gpunet *net = g;

	return net->platform->near_flush(net->dev);
}

void net_near_params(struct gpunet *g, struct channel_near *out)
{
	memset(out, 0, sizeof(*out));
	out->fd = -1;
	snprintf(out->why, sizeof(out->why), "%s", g->near.why);
	if (!g->near_ready)
		return;
	out->n = g->near_slab.n;
	out->size = g->near.size;
	out->dev = g->near.dev;
	out->bus = g->near.bus;
	out->fd = g->near.fd;
	out->fd_offset = g->near.fd_offset;
	out->get = near_get;
	out->put = near_put;
	out->flush = g->near.flush ? near_flush : NULL;
	out->ctx = g;
}
