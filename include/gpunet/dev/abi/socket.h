/* SPDX-License-Identifier: BSD-3-Clause */
/* Constants of the socket calls that kernels and the CPU share: the values of Linux's <sys/socket.h>. */
#ifndef GPUNET_DEV_ABI_SOCKET_H
#define GPUNET_DEV_ABI_SOCKET_H

#include <stdint.h>

#define GNET_AF_UNIX 1
#define GNET_AF_INET 2
#define GNET_AF_INET6 10

#define GNET_SOCK_STREAM 1
/* Protocol of a stream over RDMA: gsocket(net, AF_INET or AF_INET6, SOCK_STREAM, GNET_PROTO_RDMA). Not a number of IP's. */
#define GNET_PROTO_RDMA 254
#define GNET_SOCK_DGRAM 2
/* Flags of a type, and of gaccept4. */
#define GNET_SOCK_NONBLOCK 0x800
#define GNET_SOCK_CLOEXEC 0x80000

#define GNET_F_GETFL 3
#define GNET_F_SETFL 4
#define GNET_O_RDWR 2
#define GNET_O_NONBLOCK 0x800

#define GNET_AF_UNSPEC 0
#define GNET_MSG_PEEK 0x02
#define GNET_MSG_TRUNC 0x20
#define GNET_MSG_DONTWAIT 0x40
#define GNET_MSG_WAITALL 0x100
#define GNET_MSG_NOSIGNAL 0x4000

/* As struct iovec. */
struct gnet_iovec {
	void *base;
	uint64_t len;
};

/* As struct msghdr. */
struct gnet_msghdr {
	void *name;
	uint32_t namelen;
	struct gnet_iovec *iov;
	uint64_t iovlen;
	void *control;
	uint64_t controllen;
	int flags;
};

/* As struct addrinfo, with the address in it: hints and results of ggetaddrinfo. */
struct gnet_addrinfo {
	int32_t flags; /* hints: GNET_AI_* */
	int32_t family;
	int32_t socktype;
	int32_t protocol;
	uint32_t addrlen;
	uint8_t addr[28]; /* struct sockaddr_in or sockaddr_in6 */
};

/* The most results of one call. */
#define GNET_ADDRINFO_MAX 8u
/* The longest name of a host, and of a service, without the zero at the end. */
#define GNET_NODE_MAX 255u
#define GNET_SERVICE_MAX 63u

#define GNET_AI_PASSIVE 0x1
#define GNET_AI_NUMERICHOST 0x4
#define GNET_AI_V4MAPPED 0x8
#define GNET_AI_ALL 0x10
#define GNET_AI_ADDRCONFIG 0x20
#define GNET_AI_NUMERICSERV 0x400

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

/* Levels and names of options. */
#define GNET_SOL_SOCKET 1
#define GNET_SO_REUSEADDR 2
#define GNET_SO_TYPE 3
#define GNET_SO_ERROR 4
#define GNET_SO_BROADCAST 6
#define GNET_SO_SNDBUF 7
#define GNET_SO_RCVBUF 8
#define GNET_SO_KEEPALIVE 9
#define GNET_SO_LINGER 13
#define GNET_SO_REUSEPORT 15
#define GNET_SO_RCVTIMEO 20
#define GNET_SO_SNDTIMEO 21
#define GNET_SO_ACCEPTCONN 30
#define GNET_SO_PROTOCOL 38
#define GNET_SO_DOMAIN 39
#define GNET_IPPROTO_TCP 6
#define GNET_TCP_NODELAY 1
#define GNET_IPPROTO_IPV6 41
#define GNET_IPV6_V6ONLY 26

#define GNET_SHUT_RD 0
#define GNET_SHUT_WR 1
#define GNET_SHUT_RDWR 2

#endif
