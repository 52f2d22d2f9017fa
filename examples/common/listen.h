/* SPDX-License-Identifier: BSD-3-Clause */
/* Device code: a socket that listens, as every server kernel begins. */
#ifndef EXAMPLES_COMMON_LISTEN_H
#define EXAMPLES_COMMON_LISTEN_H

#include <gpunet/dev/socket.h>

#include "example.h"

/* Called by all threads of a block, like every call of gpunet/dev/socket.h. Leaves the socket, or an error, in l->fd. */
GNET_DEV void example_listen(gnet_t *net, struct example_listener *l)
{
	int fd = gsocket(net, l->addr.addr.ss_family, GNET_SOCK_STREAM, 0);
	int rc = fd;

	if (fd >= 0) {
		rc = gbind(net, fd, &l->addr.addr, l->addr.len);
		if (rc == 0)
			rc = glisten(net, fd, 128);
		if (rc == 0) {
			/* One thread says how much room there is, the call says how much was needed. */
			if (threadIdx.x == 0)
				l->addr.len = sizeof(l->addr.addr);
			__syncthreads();
			rc = ggetsockname(net, fd, &l->addr.addr, &l->addr.len);
		}
		if (rc < 0)
			gclose(net, fd);
	}
	/* All threads have the same results; one of them tells the host. */
	if (threadIdx.x == 0)
		l->fd = rc < 0 ? rc : fd;
}

#endif
