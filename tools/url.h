/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses as people write them:
 *   tcp://host:port   host: a name, an IPv4 address, [an IPv6 address] or [an IPv6 address%interface]
 *   rdma://host:port  the same over RDMA
 *   udp://host:port   the same for datagrams
 *   unix:///path      a UNIX socket by path; unix-dgram:///path for datagrams
 *   unix:@name        a UNIX socket by abstract name; unix-dgram:@name for datagrams
 */
#ifndef GPUNET_TOOLS_URL_H
#define GPUNET_TOOLS_URL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define URL_HOST_MAX 253 /* a domain name's limit */
#define URL_ZONE_MAX 15  /* an interface name's limit */
#define URL_PATH_MAX 107 /* sun_path with a zero at the end, or one at the beginning */
#define URL_TEXT_MAX 300 /* room for any formatted URL */
#define URL_WHY_MAX 400  /* room for a reason, with a list of interfaces */

/* A socket address in the system's layout; kernels read and write it. */
struct tool_addr {
	struct sockaddr_storage addr;
	uint32_t len;
	uint32_t protocol; /* of its sockets: 0, or GNET_PROTO_RDMA */
	uint32_t dgram;    /* its sockets carry datagrams */
	uint32_t pad;
};

struct url {
	int family;                  /* AF_INET, AF_INET6, AF_UNIX; AF_UNSPEC: a name to look up */
	char host[URL_HOST_MAX + 1]; /* without brackets and zone */
	char zone[URL_ZONE_MAX + 1]; /* "": none */
	uint16_t port;
	int rdma;     /* rdma:// instead of tcp:// */
	int dgram;    /* udp:// or unix-dgram: */
	int abstract; /* AF_UNIX: `path` is an abstract name, without the '@' */
	char path[URL_PATH_MAX + 1];
};

/* 0, or -EINVAL and in `why` (URL_WHY_MAX bytes) what is wrong with `text`. */
int url_parse(struct url *u, const char *text, char *why);

/* The URL's canonical text; returns its length. `out` has URL_TEXT_MAX bytes. */
int url_format(const struct url *u, char *out);

/* The URL of a socket address: 0, or -EINVAL if it has none (an unnamed socket, a family that we do not know). */
int url_of_addr(struct url *u, const struct tool_addr *addr);

/* url_of_addr and url_format in one; "an unnamed socket" where there is no URL. */
void url_format_addr(const struct tool_addr *addr, char *out);

/*
 * The socket addresses to try, in order, at most `room`: their number (at least 1), or a negative errno and the
 * reason in `why`. May ask the name service.
 */
int url_resolve(const struct url *u, struct tool_addr *list, int room, char *why);

#endif
