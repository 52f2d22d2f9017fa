/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the headers are warned of where a compiler knows an argument: descriptors that are none. Compiled by warnings.sh, with ALONE only a
 * part of it, since what is inlined depends on what else a file has. Nothing runs.
 */
#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

struct args {
	gnet_t *net;
	char *buf;
	uint32_t *len;
	int64_t *result;
};

#define CALL(name, call)                  \
	GNET_KERNEL(name, struct args, a) \
	{                                 \
		int64_t rc = call;        \
                                          \
		if (threadIdx.x == 0)     \
			*a.result = rc;   \
	}

CALL(send_thread, gsend_thread(a.net, -1, a.buf, 10, 0))

#ifndef ALONE
CALL(close_, gclose(a.net, -1))
CALL(shutdown_, gshutdown(a.net, -1, 2))
CALL(bind_, gbind(a.net, -1, a.buf, 16))
CALL(listen_, glisten(a.net, -1, 16))
CALL(accept_, gaccept(a.net, -1, NULL, NULL))
CALL(connect_, gconnect(a.net, -1, a.buf, 16))
CALL(send_, gsend(a.net, -1, a.buf, 10, 0))
CALL(recv_, grecv(a.net, -1, a.buf, 10, 0))
CALL(sendto_, gsendto(a.net, -1, a.buf, 10, 0, a.buf, 16))
CALL(recvfrom_, grecvfrom(a.net, -1, a.buf, 10, 0, a.buf, a.len))
CALL(sendmsg_, gsendmsg(a.net, -1, (const struct gnet_msghdr *)(void *)a.buf, 0))
CALL(recvmsg_, grecvmsg(a.net, -1, (struct gnet_msghdr *)(void *)a.buf, 0))
CALL(recv_thread, grecv_thread(a.net, -1, a.buf, 10, 0))
CALL(send_warp, gsend_warp(a.net, -1, a.buf, 10, 0))
CALL(recv_warp, grecv_warp(a.net, -1, a.buf, 10, 0))
CALL(borrow_, grecv_borrow(a.net, -1, (struct gnet_borrow *)(void *)a.buf, 10, 0))
CALL(return_, grecv_return(a.net, -1, 10))
CALL(reserve_, gsend_reserve(a.net, -1, (struct gnet_borrow *)(void *)a.buf, 10, 0))
CALL(commit_, gsend_commit(a.net, -1, 10))
CALL(setsockopt_, gsetsockopt(a.net, -1, 1, 2, a.buf, 4))
CALL(getsockopt_, ggetsockopt(a.net, -1, 1, 2, a.buf, a.len))
CALL(sockname_, ggetsockname(a.net, -1, a.buf, a.len))
CALL(peername_, ggetpeername(a.net, -1, a.buf, a.len))
CALL(fcntl_, gfcntl(a.net, -1, 3, 0))
#endif
