/* SPDX-License-Identifier: BSD-3-Clause */
/* A network: device, pinned memory, proxy, sockets; behind include/gpunet/gpunet.h. */
#ifndef GPUNET_SOCKET_NET_H
#define GPUNET_SOCKET_NET_H

#include <gpunet/dev/abi/net.h>
#include <gpunet/gpunet.h>

#include "platform/platform.h"
#include "proxy/proxy.h"
#include "socket/report.h"
#include "socket/socket.h"
#include "stream/slab.h"

/* Where each part lies in the one mapping that is shared with the device (bytes from its start). */
struct net_layout {
	size_t ctl, sq_head, sq, calls, news, told, gave_up, hops, bus, end;
};

struct gpunet {
	struct gpunet_options opt; /* complete: no member is "default" */
	const struct platform_ops *platform;
	struct platform_dev *dev;
	struct platform_mem shared, slab_mem;                 /* host memory */
	struct platform_mem net_mem, socks, sqd, naps, calls; /* device memory */
	struct net_layout at;
	struct platform_near near; /* memory that NICs write and read; size 0: none, `why` */
	struct slab slab, near_slab;
	bool slab_ready, near_ready;
	struct channel_net *channels;
	struct proxy *proxy;
	struct stat_book stat;
	struct reports reports;
	bool reports_ready;
	struct sockets sockets;
	bool sockets_ready;
};

/* near.c: no RDMA, or no memory for it, is no error. Before the handle is written. */
int net_near_open(struct gpunet *g);
void net_near_close(struct gpunet *g);
void net_near_params(struct gpunet *g, struct channel_near *out);

/* options.c: fills *out from *opt (may be NULL), the environment and the defaults; checks ranges. */
int options_complete(struct gpunet_options *out, const struct gpunet_options *opt);
/* Defaults that depend on the device: spin_us. */
void options_for_device(struct gpunet_options *o, int is_gpu);

#endif
