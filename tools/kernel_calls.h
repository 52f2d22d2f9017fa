/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tool's kernels do with a socket; by all threads of the block. */
#ifndef GPUNET_TOOLS_KERNEL_CALLS_H
#define GPUNET_TOOLS_KERNEL_CALLS_H

#include <gpunet/dev/socket.h>

#include "kernels.h"

/* A connection to one address: the descriptor, or the error with *step saying where. */
GNET_DEV int connect_to(gnet_t *net, const struct tool_addr *a, int type, int *step)
{
	int fd, rc;

	*step = TOOL_STEP_SOCKET;
	fd = gsocket(net, a->addr.ss_family, type, (int)a->protocol);
	if (fd < 0)
		return fd;
	*step = TOOL_STEP_CONNECT;
	rc = gconnect(net, fd, &a->addr, a->len);
	if (rc < 0) {
		gclose(net, fd);
		return rc;
	}
	*step = TOOL_STEP_NONE;
	return fd;
}

/* All of `len`, or the error; gsend returns less only if one came in between. */
GNET_DEV int64_t send_all(gnet_t *net, int fd, const uint8_t *buf, uint64_t len)
{
	uint64_t done = 0;

	while (done < len) {
		int64_t n = gsend(net, fd, buf + done, len - done, 0);

		if (n < 0)
			return n;
		done += (uint64_t)n;
	}
	return (int64_t)done;
}

#endif
