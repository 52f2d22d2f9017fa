/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a host's port is up: its interface, and that it still has the address. The kernel says when something of interfaces or
 * addresses changes; what, is then looked up.
 */
#include "verbs/rnic/internal.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include "base/sys.h"

void vport_open(struct vhost *h)
{
	struct sockaddr_nl a = { .nl_family = AF_NETLINK,
				 .nl_groups =
					 RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR };
	int fd = sys.socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);

	h->port_fd = -1;
	h->port_up = h->addr.up;
	if (fd < 0)
		return;
	if (sys.bind(fd, (struct sockaddr *)&a, sizeof(a)))
		sys.close(fd);
	else
		h->port_fd = fd;
}

void vport_close(struct vhost *h)
{
	if (h->port_fd >= 0)
		sys.close(h->port_fd);
}

static void tell(struct vhost *h)
{
	struct list *l;

	for (l = h->devices.next; l != &h->devices; l = l->next)
		vevents_device(list_entry(l, struct verbs_device, on),
			       h->port_up ? VPENDING_UP : VPENDING_DOWN);
}

void vport_hear(struct vhost *h)
{
	uint8_t buf[8192];
	struct iovec iov = { buf, sizeof(buf) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct vaddr now;
	ssize_t n;
	bool up;
	int rc;

	/* What is lost for lack of room was news, too. */
	do {
		n = sys.recvmsg(h->port_fd, &m, MSG_DONTWAIT);
	} while (n >= 0 || n == -ENOBUFS || n == -EINTR);
	rc = vaddr_find(h->addr.gid, h->addr.scope, &now);
	if (rc && rc != -EADDRNOTAVAIL)
		return;
	up = !rc && now.up;
	if (up == h->port_up)
		return;
	h->port_up = up;
	tell(h);
}
