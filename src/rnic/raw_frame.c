/* SPDX-License-Identifier: BSD-3-Clause */
/* What is in the frames of the raw wire: packets, and questions and answers about neighbours (ARP, neighbour discovery). */
#include <errno.h>
#include <string.h>

#include "rnic/pcap.h"
#include "rnic/raw_impl.h"
#include "wire/arp.h"
#include "wire/bytes.h"
#include "wire/icmp.h"
#include "wire/icrc.h"

/* A neighbour is asked for anew so often while it does not answer … */
#define ASK_NS UINT64_C(100000000)
/* … and so long after it did. */
#define FRESH_NS UINT64_C(30000000000)

static const uint8_t everybody[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
static const uint8_t nobody[16];

/* --- neighbours --------------------------------------------------------------------------------------- */

static struct raw_neighbour *slot_of(struct raw *w, const uint8_t gid[16])
{
	uint32_t h = (wire_get_be32(gid + 12) ^ wire_get_be32(gid + 8)) * 2654435761u;

	return &w->neighbour[h >> 16 & (RAW_NEIGHBOURS - 1)];
}

static void say_arp(struct raw *w, uint16_t op, const uint8_t mac[6], const uint8_t ip[4])
{
	struct wire_arp a = { .op = op };
	uint8_t buf[RAW_VNET + WIRE_ARP_LEN];

	memcpy(a.eth_dst, mac, 6);
	memcpy(a.sender_mac, w->mac, 6);
	memcpy(a.sender_ip, w->cfg.gid + 12, 4);
	if (op == WIRE_ARP_REPLY)
		memcpy(a.target_mac, mac, 6);
	memcpy(a.target_ip, ip, 4);
	wire_arp_put(buf + RAW_VNET, &a);
	(void)raw_put(w, buf + RAW_VNET, WIRE_ARP_LEN); /* whoever misses it asks again */
}

static void say_nd(struct raw *w, struct wire_nd *n)
{
	uint8_t buf[RAW_VNET + WIRE_ND_LEN];
	size_t len;

	n->has_mac = true;
	memcpy(n->mac, w->mac, 6);
	memcpy(n->eth_src, w->mac, 6);
	memcpy(n->src, w->cfg.gid, 16);
	len = wire_nd_put(buf + RAW_VNET, n);
	(void)raw_put(w, buf + RAW_VNET, len);
}

static void ask(struct raw *w, const uint8_t gid[16])
{
	struct wire_nd n = { .advert = false };

	w->stats.arp_asked++;
	if (w->v4) {
		say_arp(w, WIRE_ARP_REQUEST, everybody, gid + 12);
		return;
	}
	memcpy(n.target, gid, 16);
	wire_nd_group(gid, n.dst, n.eth_dst);
	say_nd(w, &n);
}

/* Whether two addresses are the same in so many leading bits. */
static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	return memcmp(a, b, whole) == 0 &&
	       (!rest || !((a[whole] ^ b[whole]) & (0xff00u >> rest) & 0xff));
}

/* The neighbour that a packet goes to: the peer, or the gateway. */
static const uint8_t *next_hop(const struct raw *w, const uint8_t dst[16])
{
	unsigned skip = w->v4 ? 12 : 0;
	bool local = !w->v4 && dst[0] == 0xfe && (dst[1] & 0xc0) == 0x80; /* of the link, always */

	if (local || memcmp(w->cfg.gateway, nobody, 16) == 0 ||
	    same_bits(dst + skip, w->cfg.gid + skip, w->cfg.prefix))
		return dst;
	return w->cfg.gateway;
}

/* The entry of a neighbour, which is asked for if need be. Two of one place take turns: that costs questions only. */
static struct raw_neighbour *look_up(struct raw *w, const uint8_t gid[16], uint64_t now)
{
	struct raw_neighbour *n = slot_of(w, gid);

	if (memcmp(n->gid, gid, 16) != 0) {
		memcpy(n->gid, gid, 16);
		n->known = false;
		n->waiting = 0;
		n->asked_at = 0;
	}
	if (n->known && now - n->answered_at < FRESH_NS)
		return n;
	if (!n->asked_at || now - n->asked_at >= ASK_NS) {
		n->asked_at = now;
		ask(w, gid);
	}
	return n;
}

/* One frame waits for the answer, the newest. */
static void hold(struct raw *w, struct raw_neighbour *n, const uint8_t *frame, size_t len)
{
	w->stats.tx_dropped += n->waiting > 0;
	memcpy(n->frame, frame, len);
	n->waiting = len;
}

/* A neighbour that was asked for has answered, or has a new address. */
static void learn(struct raw *w, const uint8_t gid[16], const uint8_t mac[6], uint64_t now)
{
	struct raw_neighbour *n = slot_of(w, gid);
	uint8_t buf[RAW_VNET + RAW_FRAME_MAX];

	/* Who was not asked for is not believed. */
	if (!n->asked_at || memcmp(n->gid, gid, 16) != 0)
		return;
	memcpy(n->mac, mac, 6);
	n->known = true;
	n->answered_at = now;
	if (!n->waiting)
		return;
	memcpy(buf + RAW_VNET, n->frame, n->waiting);
	memcpy(buf + RAW_VNET, n->mac, 6);
	if (!raw_put(w, buf + RAW_VNET, n->waiting)) {
		rnic_pcap_frame(w->wire.pcap, buf + RAW_VNET, n->waiting, now);
		w->stats.tx_packets++;
	}
	n->waiting = 0;
}

static bool is_arp(struct raw *w, const uint8_t *frame, size_t len, uint64_t now)
{
	struct wire_arp a;
	uint8_t gid[16];

	if (wire_arp_get(&a, frame, len))
		return false;
	if (!w->v4 || memcmp(a.target_ip, w->cfg.gid + 12, 4) != 0)
		return true;
	wire_gid_from_v4(gid, a.sender_ip);
	learn(w, gid, a.sender_mac, now);
	if (a.op == WIRE_ARP_REQUEST) {
		w->stats.arp_answered++;
		say_arp(w, WIRE_ARP_REPLY, a.sender_mac, a.sender_ip);
	}
	return true;
}

/* Somebody asks for our address; one that has none yet hears the answer with all others. */
static void answer_nd(struct raw *w, const struct wire_nd *q)
{
	static const uint8_t all[16] = { 0xff, 0x02, [15] = 1 };
	static const uint8_t all_mac[6] = { 0x33, 0x33, 0, 0, 0, 1 };
	bool named = memcmp(q->src, nobody, 16) != 0;
	struct wire_nd n = { .advert = true, .flags = WIRE_ND_OVERRIDE };

	memcpy(n.target, w->cfg.gid, 16);
	memcpy(n.dst, named ? q->src : all, 16);
	memcpy(n.eth_dst, named ? q->has_mac ? q->mac : q->eth_src : all_mac, 6);
	n.flags |= named ? WIRE_ND_SOLICITED : 0;
	w->stats.arp_answered++;
	say_nd(w, &n);
}

static bool is_nd(struct raw *w, const uint8_t *frame, size_t len, uint64_t now)
{
	struct wire_nd n;

	if (wire_nd_get(&n, frame, len))
		return false;
	if (w->v4)
		return true;
	if (n.advert && n.has_mac)
		learn(w, n.target, n.mac, now);
	if (n.advert || memcmp(n.target, w->cfg.gid, 16) != 0)
		return true;
	if (n.has_mac)
		learn(w, n.src, n.mac, now);
	answer_nd(w, &n);
	return true;
}

/* --- packets out -------------------------------------------------------------------------------------- */

/* An address that one node has, and of our family. A group has no neighbour who would answer. */
static bool is_node(const struct raw *w, const uint8_t gid[16])
{
	uint32_t v4 = wire_get_be32(gid + 12);

	if (wire_gid_is_v4(gid))
		return w->v4 && v4 && v4 >> 28 < 0xe;
	return !w->v4 && gid[0] != 0xff && memcmp(gid, nobody, 16) != 0;
}

static int raw_send(struct rnic_wire *wire, const struct rnic_tx *tx, uint64_t now)
{
	struct raw *w = (struct raw *)wire;
	uint8_t *frame = w->tx + RAW_VNET;
	struct wire_frame f = { .ip = { .tos = tx->path->tclass,
					.ttl = tx->path->hop_limit ? tx->path->hop_limit : 64,
					.dont_frag = true },
				.udp = { tx->sport, WIRE_ROCE_PORT, 0 },
				.payload_len = tx->hdr_len + tx->payload_len +
					       wire_pad(tx->payload_len) + WIRE_ICRC_LEN };
	struct raw_neighbour *n;
	int rc;

	if (!is_node(w, tx->path->dst) || wire_gid_is_v4(tx->path->src) != w->v4)
		return -EINVAL;
	n = look_up(w, next_hop(w, tx->path->dst), now);
	f.ip.flow = w->v4 ? 0 : tx->path->flow & 0xfffff;
	memcpy(f.ip.src, tx->path->src, 16);
	memcpy(f.ip.dst, tx->path->dst, 16);
	memcpy(f.eth_src, w->mac, 6);
	memcpy(f.eth_dst, n->mac, 6);
	rc = wire_frame_encode(&f, frame, RAW_FRAME_MAX);
	if (rc < 0)
		return rc;
	rc = rnic_tx_flatten(tx, &f.ip, WIRE_ROCE_PORT, frame + f.hdr_len,
			     RAW_FRAME_MAX - f.hdr_len);
	if (rc < 0)
		return rc;
	if (!n->known) {
		hold(w, n, frame, f.hdr_len + f.payload_len);
		return 0;
	}
	rc = raw_put(w, frame, f.hdr_len + f.payload_len);
	if (rc)
		return rc;
	rnic_pcap_frame(wire->pcap, frame, f.hdr_len + f.payload_len, now);
	w->stats.tx_packets++;
	return 0;
}

const struct rnic_wire_ops raw_ops = { .send = raw_send };

/* --- packets in --------------------------------------------------------------------------------------- */

/* One packet; those that came in one frame have IDs that go up. */
static void deliver(struct raw *w, const struct wire_frame *f, const uint8_t *data, size_t len,
		    unsigned index, uint64_t now)
{
	struct rnic_rx rx = { .ip = f->ip, .data = data, .len = len };

	w->stats.rx_packets++;
	rx.ip.id = (uint16_t)(w->v4 ? f->ip.id + index : 0);
	if (len < WIRE_BTH_LEN + WIRE_ICRC_LEN ||
	    wire_icrc(&rx.ip, &f->udp, data, len - WIRE_ICRC_LEN) !=
		    wire_get_le32(data + len - WIRE_ICRC_LEN)) {
		w->stats.rx_bad_icrc++;
		return;
	}
	if (w->r)
		rnic_receive(w->r, &rx, now);
}

unsigned raw_take(struct raw *w, const uint8_t *frame, size_t len, size_t size, bool unsummed,
		  uint64_t now)
{
	unsigned packets = 0;
	struct wire_frame f;
	size_t off;

	w->stats.rx_frames++;
	if (is_arp(w, frame, len, now) || is_nd(w, frame, len, now))
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
