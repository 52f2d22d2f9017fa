/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tool's kernels do with a socket; by all threads of the block. */
#ifndef GPUNET_TOOLS_KERNEL_CALLS_H
#define GPUNET_TOOLS_KERNEL_CALLS_H

#include <gpunet/dev/socket.h>

#include "kernels.h"

/*
 * A connection to one address: the descriptor, or the error with *step saying where. A UNIX socket of datagrams gets a name of its
 * own, or nobody could answer; with its peer first, for then nobody else can send to it.
 */
GNET_DEV int connect_to(gnet_t *net, const struct tool_addr *a, int type, int *step)
{
	int fd, rc;

	*step = TOOL_STEP_SOCKET;
	fd = gsocket(net, a->addr.ss_family, type, (int)a->protocol);
	if (fd < 0)
		return fd;
	*step = TOOL_STEP_CONNECT;
	rc = gconnect(net, fd, &a->addr, a->len);
	if (rc == 0 && type == GNET_SOCK_DGRAM && a->addr.ss_family == GNET_AF_UNIX) {
		*step = TOOL_STEP_BIND;
		rc = gbind(net, fd, &a->addr, sizeof(a->addr.ss_family));
	}
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

/* Sends each datagram back to whoever sent it, until the network ends: by which error. `peer`: this block's own memory. */
GNET_DEV int serve_dgrams(gnet_t *net, int fd, uint8_t *buf, uint64_t room, struct tool_addr *peer)
{
	for (;;) {
		int64_t n;

		__syncthreads(); /* all have read its length */
		if (threadIdx.x == 0)
			peer->len = sizeof(peer->addr);
		__syncthreads();
		n = grecvfrom(net, fd, buf, room, GNET_MSG_TRUNC, &peer->addr, &peer->len);
		if (n == -ECANCELED || n == -EBADF || n == -EIO)
			return (int)n;
		/*
		 * Other errors are those of a datagram before, whose client has gone. One that is too long is not sent back
		 * cut: if it was for the buffer, here; if it was for a ring, gsendto refuses it. A sender without a name cannot
		 * be answered.
		 */
		if (n >= 0 && (uint64_t)n <= room && peer->len)
			gsendto(net, fd, buf, (uint64_t)n, 0, &peer->addr, peer->len);
	}
}

#endif
