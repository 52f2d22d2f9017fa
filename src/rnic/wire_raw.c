/* SPDX-License-Identifier: BSD-3-Clause */
#include "rnic/wire_raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/sys.h"
#include "rnic/pcap.h"
#include "wire/arp.h"
#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/roce.h"

enum {
	VNET = sizeof(struct virtio_net_hdr),
	FRAME_MAX = WIRE_FRAME_MAX_HDR + WIRE_MTU_MAX + 128,
	RX_BYTES = 65536 + 256,
	NEIGHBOURS = 256,
	GSO_UDP_L4 = 5, /* as in newer linux/virtio_net.h */
};

/* A neighbour is asked for anew so often while it does not answer … */
#define ASK_NS UINT64_C(100000000)
/* … and so long after it did. */
#define FRESH_NS UINT64_C(30000000000)

static const uint8_t everybody[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };

struct neighbour {
	uint8_t ip[4]; /* 0.0.0.0: empty */
	uint8_t mac[6];
	bool known;
	uint64_t asked_at, answered_at;
	size_t waiting; /* length of the frame below */
	uint8_t frame[FRAME_MAX];
};

struct raw {
	struct rnic_wire wire;
	struct rnic *r;
	struct rnic_raw_config cfg;
	struct rnic_raw_stats stats;
	int fd;
	uint8_t mac[6];
	struct neighbour neighbour[NEIGHBOURS];
	uint8_t tx[VNET + FRAME_MAX];
	uint8_t rx[VNET + RX_BYTES];
};

static struct raw *of(struct rnic_wire *w)
{
	return (struct raw *)w;
}

/* --- frames out ------------------------------------------------------------------------------------- */

/* Sends the frame, before which there is room for the header of a packet socket. 0 or -EAGAIN. */
static int put(struct raw *w, uint8_t *frame, size_t len)
{
	struct iovec iov = { frame, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (w->cfg.tap) {
		n = sys.write(w->fd, frame, len);
	} else {
		memset(frame - VNET, 0, VNET);
		iov = (struct iovec){ frame - VNET, VNET + len };
		n = sys.sendmsg(w->fd, &m, MSG_DONTWAIT);
	}
	if (n == -EAGAIN || n == -ENOBUFS || n == -EINTR)
		return -EAGAIN;
	if (n < 0)
		w->stats.tx_dropped++;
	return 0;
}

static void arp(struct raw *w, uint16_t op, const uint8_t mac[6], const uint8_t ip[4])
{
	struct wire_arp a = { .op = op };
	uint8_t buf[VNET + WIRE_ARP_LEN];

	memcpy(a.eth_dst, mac, 6);
	memcpy(a.sender_mac, w->mac, 6);
	memcpy(a.sender_ip, w->cfg.gid + 12, 4);
	if (op == WIRE_ARP_REPLY)
		memcpy(a.target_mac, mac, 6);
	memcpy(a.target_ip, ip, 4);
	wire_arp_put(buf + VNET, &a);
	(void)put(w, buf + VNET, WIRE_ARP_LEN); /* whoever misses it asks again */
}

static struct neighbour *slot_of(struct raw *w, const uint8_t ip[4])
{
	uint32_t h = wire_get_be32(ip) * 2654435761u;

	return &w->neighbour[h >> 16 & (NEIGHBOURS - 1)];
}

/* The neighbour that a packet goes to: the peer, or the gateway. */
static const uint8_t *next_hop(const struct raw *w, const uint8_t dst[4])
{
	uint32_t mask = w->cfg.prefix ? UINT32_MAX << (32 - w->cfg.prefix) : 0;

	if (!wire_get_be32(w->cfg.gateway) ||
	    !((wire_get_be32(dst) ^ wire_get_be32(w->cfg.gid + 12)) & mask))
		return dst;
	return w->cfg.gateway;
}

/* The entry of a neighbour, which is asked for if need be. Two of one place take turns: that costs questions only. */
static struct neighbour *look_up(struct raw *w, const uint8_t ip[4], uint64_t now)
{
	struct neighbour *n = slot_of(w, ip);

	if (memcmp(n->ip, ip, 4) != 0) {
		memcpy(n->ip, ip, 4);
		n->known = false;
		n->waiting = 0;
		n->asked_at = 0;
	}
	if (n->known && now - n->answered_at < FRESH_NS)
		return n;
	if (!n->asked_at || now - n->asked_at >= ASK_NS) {
		n->asked_at = now;
		w->stats.arp_asked++;
		arp(w, WIRE_ARP_REQUEST, everybody, ip);
	}
	return n;
}

/* One frame waits for the answer, the newest. */
static void hold(struct raw *w, struct neighbour *n, const uint8_t *frame, size_t len)
{
	w->stats.tx_dropped += n->waiting > 0;
	memcpy(n->frame, frame, len);
	n->waiting = len;
}

static int raw_send(struct rnic_wire *wire, const struct rnic_tx *tx, uint64_t now)
{
	struct raw *w = of(wire);
	uint8_t *frame = w->tx + VNET;
	struct wire_frame f = { .ip = { .tos = tx->path->tclass,
					.ttl = tx->path->hop_limit ? tx->path->hop_limit : 64,
					.dont_frag = true },
				.udp = { tx->sport, WIRE_ROCE_PORT, 0 },
				.payload_len = tx->hdr_len + tx->payload_len +
					       wire_pad(tx->payload_len) + WIRE_ICRC_LEN };
	struct neighbour *n;
	int rc;

	if (!wire_gid_is_v4(tx->path->dst) || !wire_gid_is_v4(tx->path->src))
		return -EINVAL;
	n = look_up(w, next_hop(w, tx->path->dst + 12), now);
	memcpy(f.ip.src, tx->path->src, 16);
	memcpy(f.ip.dst, tx->path->dst, 16);
	memcpy(f.eth_src, w->mac, 6);
	memcpy(f.eth_dst, n->mac, 6);
	rc = wire_frame_encode(&f, frame, FRAME_MAX);
	if (rc < 0)
		return rc;
	rc = rnic_tx_flatten(tx, &f.ip, WIRE_ROCE_PORT, frame + f.hdr_len, FRAME_MAX - f.hdr_len);
	if (rc < 0)
		return rc;
	if (!n->known) {
		hold(w, n, frame, f.hdr_len + f.payload_len);
		return 0;
	}
	rc = put(w, frame, f.hdr_len + f.payload_len);
	if (rc)
		return rc;
	rnic_pcap_frame(wire->pcap, frame, f.hdr_len + f.payload_len, now);
	w->stats.tx_packets++;
	return 0;
}

static const struct rnic_wire_ops raw_ops = { .send = raw_send };

/* --- frames in -------------------------------------------------------------------------------------- */

/* A neighbour that was asked for has answered, or has a new address. */
static void learn(struct raw *w, const struct wire_arp *a, uint64_t now)
{
	struct neighbour *n = slot_of(w, a->sender_ip);
	uint8_t buf[VNET + FRAME_MAX];

	/* Who was not asked for is not believed. */
	if (!n->asked_at || memcmp(n->ip, a->sender_ip, 4) != 0)
		return;
	memcpy(n->mac, a->sender_mac, 6);
	n->known = true;
	n->answered_at = now;
	if (!n->waiting)
		return;
	memcpy(buf + VNET, n->frame, n->waiting);
	memcpy(buf + VNET, n->mac, 6);
	if (!put(w, buf + VNET, n->waiting)) {
		rnic_pcap_frame(w->wire.pcap, buf + VNET, n->waiting, now);
		w->stats.tx_packets++;
	}
	n->waiting = 0;
}

static bool is_arp(struct raw *w, const uint8_t *frame, size_t len, uint64_t now)
{
	struct wire_arp a;

	if (wire_arp_get(&a, frame, len))
		return false;
	if (memcmp(a.target_ip, w->cfg.gid + 12, 4) != 0)
		return true;
	learn(w, &a, now);
	if (a.op == WIRE_ARP_REQUEST) {
		w->stats.arp_answered++;
		arp(w, WIRE_ARP_REPLY, a.sender_mac, a.sender_ip);
	}
	return true;
}

/* One packet; those that came in one frame have IDs that go up. */
static void deliver(struct raw *w, const struct wire_frame *f, const uint8_t *data, size_t len,
		    unsigned index, uint64_t now)
{
	struct rnic_rx rx = { .ip = f->ip, .data = data, .len = len };

	w->stats.rx_packets++;
	rx.ip.id = (uint16_t)(f->ip.id + index);
	if (len < WIRE_BTH_LEN + WIRE_ICRC_LEN ||
	    wire_icrc(&rx.ip, &f->udp, data, len - WIRE_ICRC_LEN) !=
		    wire_get_le32(data + len - WIRE_ICRC_LEN)) {
		w->stats.rx_bad_icrc++;
		return;
	}
	if (w->r)
		rnic_receive(w->r, &rx, now);
}

/*
 * A frame, from a kernel perhaps before it has cut it up (size: of the pieces) or summed it (`unsummed`). How many packets.
 */
static unsigned take(struct raw *w, const uint8_t *frame, size_t len, size_t size, bool unsummed,
		     uint64_t now)
{
	unsigned packets = 0;
	struct wire_frame f;
	size_t off;

	w->stats.rx_frames++;
	if (is_arp(w, frame, len, now))
		return 0;
	if (wire_frame_decode(&f, frame, len) || f.udp.dport != WIRE_ROCE_PORT ||
	    memcmp(f.ip.dst, w->cfg.gid, 16) != 0) {
		w->stats.rx_other++;
		return 0;
	}
	if (!unsummed && f.udp.csum && f.udp.csum != wire_udp_csum(&f, frame)) {
		w->stats.rx_bad_csum++;
		return 0;
	}
	rnic_pcap_frame(w->wire.pcap, frame, f.hdr_len + f.payload_len, now);
	if (!size)
		size = f.payload_len ? f.payload_len : 1;
	for (off = 0; off < f.payload_len; off += size)
		deliver(w, &f, frame + f.hdr_len + off,
			f.payload_len - off < size ? f.payload_len - off : size, packets++, now);
	return packets;
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
	size_t skip = w->cfg.tap ? 0 : VNET;
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
	return 1 + (int)take(w, w->rx + skip, (size_t)n - skip, size,
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
	return rc ? fail(w, "bind", rc) : 0;
}

int rnic_raw_create(const struct rnic_raw_config *cfg, struct rnic_wire **out)
{
	struct raw *w;
	int rc;

	if (!cfg->ifname || !*cfg->ifname || strlen(cfg->ifname) >= IFNAMSIZ || cfg->prefix > 32)
		return -EINVAL;
	if (!wire_gid_is_v4(cfg->gid))
		return -EAFNOSUPPORT;
	w = sys.alloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->wire.ops = &raw_ops;
	w->cfg = *cfg;
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
