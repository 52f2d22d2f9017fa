/* SPDX-License-Identifier: BSD-3-Clause */
/* Constants of the socket calls that kernels and the CPU share: the values of Linux's <sys/socket.h>. */
#ifndef GPUNET_DEV_ABI_SOCKET_H
#define GPUNET_DEV_ABI_SOCKET_H

#define GNET_AF_UNIX 1
#define GNET_AF_INET 2
#define GNET_AF_INET6 10

#define GNET_SOCK_STREAM 1

#define GNET_MSG_PEEK 0x02
#define GNET_MSG_DONTWAIT 0x40
#define GNET_MSG_WAITALL 0x100
#define GNET_MSG_NOSIGNAL 0x4000

#define GNET_POLLIN 0x001
#define GNET_POLLOUT 0x004
#define GNET_POLLERR 0x008
#define GNET_POLLHUP 0x010
#define GNET_POLLNVAL 0x020
#define GNET_POLLRDHUP 0x2000

/* As struct pollfd. */
struct gnet_pollfd {
	int fd;
	short events;
	short revents;
};

#define GNET_SHUT_RD 0
#define GNET_SHUT_WR 1
#define GNET_SHUT_RDWR 2

#endif
