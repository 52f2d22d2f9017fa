/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP, UDP and UNIX sockets of the host's kernel as channels. */
#ifndef GPUNET_CHANNEL_TCP_H
#define GPUNET_CHANNEL_TCP_H

#include "channel/channel.h"

/*
 * Makes a socket: AF_INET, AF_INET6 or AF_UNIX, SOCK_STREAM or SOCK_DGRAM. SO_REUSEADDR is set on TCP sockets, so that a
 * server's port can be bound again at once, and TCP_NODELAY, since the proxy itself gathers what is queued into one call. Both
 * are options that a kernel may take back. UNIX sockets refuse a peer's descriptors where the system can (SO_PASSRIGHTS);
 * elsewhere they are dropped.
 */
int tcp_create(int domain, int type, int protocol, struct channel **out);

#endif
