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

#define GNET_SHUT_RD 0
#define GNET_SHUT_WR 1
#define GNET_SHUT_RDWR 2

#endif
