/* SPDX-License-Identifier: BSD-3-Clause */
/* The raw wire's descriptors: opening, reading, writing. What is in the frames: raw_frame.c. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/sys.h"
#include "rnic/raw_impl.h"
#include "wire/icmp.h"

enum { GSO_UDP_L4 = 5 }; /* as in newer linux/virtio_net.h */

static struct raw *of(struct rnic_wire *w)
{
	return (struct raw *)w;
}

/* --- frames out and in -------------------------------------------------------------------------------- */

int raw_put(struct raw *w, uint8_t *frame, size_t len)
{
	struct iovec iov = { frame, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (w->cfg.tap) {
		n = sys.write(w->fd, frame, len);
	} else {
		memset(frame - RAW_VNET, 0, RAW_VNET);
		iov = (struct iovec){ frame - RAW_VNET, RAW_VNET + len };
		n = sys.sendmsg(w->fd, &m, MSG_DONTWAIT);
	}
	if (n == -EAGAIN || n == -ENOBUFS || n == -EINTR)
		return -EAGAIN;
	if (n < 0)
		w->stats.tx_dropped++;
	return 0;
}

/* Receives once. Packets, plus one, so that a frame without any counts; 0: there is none. */
static int receive(struct raw *w, uint64_t now)
{
	struct sockaddr_ll from;
	struct iovec iov = { w->rx, sizeof(w->rx) };
	struct msghdr m = {
		.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1
	};
	struct virtio_net_hdr v = { 0 };
	size_t skip = w->cfg.tap ? 0 : RAW_VNET;
	ssize_t n = w->cfg.tap ? sys.read(w->fd, w->rx, sizeof(w->rx))
			       : sys.recvmsg(w->fd, &m, MSG_DONTWAIT);
	size_t size = 0;

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	if (n < 0)
		return (int)n;
	if ((size_t)n < skip || (!w->cfg.tap && from.sll_pkttype == PACKET_OUTGOING))
		return 1;
	memcpy(&v, w->rx, skip);
	if (v.gso_type != VIRTIO_NET_HDR_GSO_NONE) {
		if (v.gso_type != GSO_UDP_L4 || !v.gso_size)
			return 1;
		size = v.gso_size;
	}
	return 1 + (int)raw_take(w, w->rx + skip, (size_t)n - skip, size,
				 v.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM, now);
}

int rnic_raw_poll(struct rnic_wire *wire, uint64_t now, unsigned budget)
{
	unsigned done = 0;
	int n = 0;

	while (done < budget && (n = receive(of(wire), now)) > 0)
		done += (unsigned)n;
	return n < 0 && !done ? n : (int)done;
}

/* --- set-up ----------------------------------------------------------------------------------------- */

static int fail(const struct raw *w, const char *what, int rc)
{
	return log_error(rc, "rnic: cannot %s %s for raw frames: %s%s", what, w->cfg.ifname,
			 strerror(-rc),
			 rc == -EPERM ? " (needs CAP_NET_RAW, for a TAP CAP_NET_ADMIN)" : "");
}

static int open_tap(struct raw *w)
{
	struct ifreq req = { .ifr_flags = IFF_TAP | IFF_NO_PI };

	w->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (w->fd < 0)
		return fail(w, "open /dev/net/tun to create", -errno);
	memcpy(req.ifr_name, w->cfg.ifname, strlen(w->cfg.ifname) + 1);
	if (ioctl(w->fd, TUNSETIFF, &req))
		return fail(w, "create", -errno);
	/* Not the address of the kernel's end. */
	w->mac[0] = 2;
	w->mac[1] = 0x47;
	memcpy(w->mac + 2, w->cfg.gid + 12, 4);
	return 0;
}

/* Neighbours ask for an IPv6 address in a group, which the interface may not pass on by itself. */
static int join_group(struct raw *w)
{
	struct packet_mreq m = { .mr_ifindex = (int)if_nametoindex(w->cfg.ifname),
				 .mr_type = PACKET_MR_MULTICAST,
				 .mr_alen = 6 };
	uint8_t group[16];

	if (w->v4)
		return 0;
	wire_nd_group(w->cfg.gid, group, m.mr_address);
	return sys.setsockopt(w->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &m, sizeof(m));
}

static int open_packet(struct raw *w)
{
	int one = 1, size = (int)w->cfg.socket_buffer, rc;
	struct sockaddr_ll a = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	struct ifreq req = { .ifr_flags = 0 };

	/* Protocol 0: nothing comes before it is bound to the interface. */
	w->fd = sys.socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (w->fd < 0)
		return fail(w, "open a packet socket on", w->fd);
	memcpy(req.ifr_name, w->cfg.ifname, strlen(w->cfg.ifname) + 1);
	if (ioctl(w->fd, SIOCGIFHWADDR, &req))
		return fail(w, "use", -errno);
	memcpy(w->mac, req.ifr_hwaddr.sa_data, 6);
	a.sll_ifindex = (int)if_nametoindex(w->cfg.ifname);
	sys.setsockopt(w->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	sys.setsockopt(w->fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	rc = sys.setsockopt(w->fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one));
	if (!rc)
		rc = sys.bind(w->fd, (struct sockaddr *)&a, sizeof(a));
	if (!rc)
		rc = join_group(w);
	return rc ? fail(w, "bind", rc) : 0;
}

/* A node's own address, and prefix and gateway of its family. */
static bool address_makes_sense(const struct rnic_raw_config *cfg)
{
	static const uint8_t none[16];
	bool v4 = wire_gid_is_v4(cfg->gid);

	if (cfg->prefix > (v4 ? 32 : 128) || cfg->gid[0] == 0xff || !memcmp(cfg->gid, none, 16))
		return false;
	return memcmp(cfg->gateway, none, 16) == 0 || wire_gid_is_v4(cfg->gateway) == v4;
}

int rnic_raw_create(const struct rnic_raw_config *cfg, struct rnic_wire **out)
{
	struct raw *w;
	int rc;

	if (!cfg->ifname || !*cfg->ifname || strlen(cfg->ifname) >= IFNAMSIZ ||
	    !address_makes_sense(cfg))
		return -EINVAL;
	w = sys.alloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->wire.ops = &raw_ops;
	w->cfg = *cfg;
	w->v4 = wire_gid_is_v4(cfg->gid);
	w->fd = -1;
	if (!w->cfg.socket_buffer)
		w->cfg.socket_buffer = 4 << 20;
	rc = cfg->tap ? open_tap(w) : open_packet(w);
	w->cfg.ifname = NULL;
	if (rc) {
		rnic_raw_destroy(&w->wire);
		return rc;
	}
	*out = &w->wire;
	return 0;
}

void rnic_raw_destroy(struct rnic_wire *wire)
{
	struct raw *w = of(wire);

	if (w->fd >= 0)
		sys.close(w->fd);
	sys.free(w);
}

void rnic_raw_attach(struct rnic_wire *w, struct rnic *r)
{
	of(w)->r = r;
}

int rnic_raw_fd(const struct rnic_wire *w)
{
	return ((const struct raw *)w)->fd;
}

const struct rnic_raw_stats *rnic_raw_stats(const struct rnic_wire *w)
{
	return &((const struct raw *)w)->stats;
}
