/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A raw wire's network: the input is frames for it, and packets that it is to send meanwhile. What it sends must be frames that
 * decode; a packet goes only where the neighbour that it is for has said that it is; what it delivers has a right ICRC and lies
 * in the frame. Neighbour discovery and echo that are accepted encode to what decodes to the same.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/pcap.h"
#include "rnic/raw_impl.h"
#include "rnic/rnic.h"
#include "wire/arp.h"
#include "wire/bytes.h"
#include "wire/icmp.h"
#include "wire/icrc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t own_mac[6] = { 2, 0, 0, 0, 0, 9 };
static volatile uint8_t sink;

static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

/* ---- what the wire calls ------------------------------------------------------------------------------- */

int raw_put(struct raw *w, uint8_t *frame, size_t len)
{
	struct wire_frame f;
	struct wire_arp a;
	struct wire_nd n;

	/* The room before it is written to, as for a packet socket. */
	memset(frame - RAW_VNET, 0, RAW_VNET);
	must(len <= RAW_FRAME_MAX && memcmp(frame + 6, own_mac, 6) == 0);
	if (w->v4 && wire_arp_get(&a, frame, len) == 0) {
		must(memcmp(a.sender_ip, w->cfg.gid + 12, 4) == 0);
	} else if (!w->v4 && wire_nd_get(&n, frame, len) == 0) {
		must(n.has_mac && memcmp(n.src, w->cfg.gid, 16) == 0);
		must(!n.advert || memcmp(n.target, w->cfg.gid, 16) == 0);
	} else {
		must(wire_frame_decode(&f, frame, len) == 0);
		must(f.udp.dport == WIRE_ROCE_PORT && memcmp(f.ip.src, w->cfg.gid, 16) == 0);
		must(wire_icrc(&f.ip, &f.udp, frame + f.hdr_len, f.payload_len - 4) ==
		     wire_get_le32(frame + f.hdr_len + f.payload_len - 4));
	}
	return 0;
}

void rnic_pcap_frame(struct rnic_pcap *p, const uint8_t *frame, size_t len, uint64_t now)
{
	size_t i;

	for (i = 0; i < len; i++)
		sink ^= frame[i];
}

void rnic_receive(struct rnic *r, const struct rnic_rx *rx, uint64_t now)
{
	const struct raw *w = (const void *)r;
	size_t i;

	must(memcmp(rx->ip.dst, w->cfg.gid, 16) == 0 && rx->len >= WIRE_BTH_LEN + WIRE_ICRC_LEN);
	for (i = 0; i < rx->len; i++)
		sink ^= rx->data[i];
}

int rnic_tx_flatten(const struct rnic_tx *tx, const struct wire_ip *ip, uint16_t dport,
		    uint8_t *buf, size_t cap)
{
	struct wire_udp udp = { tx->sport, dport, 0 };
	size_t n = tx->hdr_len + tx->payload_len + wire_pad(tx->payload_len);

	must(n + WIRE_ICRC_LEN <= cap);
	memset(buf, 0, n);
	memcpy(buf, tx->hdr, tx->hdr_len);
	wire_put_le32(buf + n, wire_icrc(ip, &udp, buf, n));
	return (int)(n + WIRE_ICRC_LEN);
}

/* ---- input --------------------------------------------------------------------------------------------- */

static void codecs(const uint8_t *p, size_t len)
{
	uint8_t buf[256];
	struct wire_nd n, m;
	struct wire_echo e, g;
	struct wire_arp a, b;
	int v6;

	if (wire_nd_get(&n, p, len) == 0) {
		must(wire_nd_get(&m, buf, wire_nd_put(buf, &n)) == 0);
		must(memcmp(&n, &m, sizeof(n)) == 0);
	}
	if (wire_arp_get(&a, p, len) == 0) {
		wire_arp_put(buf, &a);
		must(wire_arp_get(&b, buf, WIRE_ARP_LEN) == 0 && a.op == b.op);
	}
	for (v6 = 0; v6 < 2; v6++) {
		if (wire_echo_get(&e, p, len, v6))
			continue;
		wire_echo_put(buf, WIRE_ECHO_MIN + (len & 127), &e, v6);
		must(wire_echo_get(&g, buf, WIRE_ECHO_MIN, v6) == 0);
		must(e.id == g.id && e.seq == g.seq && e.reply == g.reply);
		must(memcmp(e.cookie, g.cookie, 8) == 0);
	}
}

static void send_one(struct raw *w, const uint8_t *p, size_t len, uint64_t now)
{
	struct rnic_path path = { .hop_limit = 0 };
	struct rnic_tx tx = { .path = &path, .sport = 50000, .hdr_len = WIRE_BTH_LEN };

	memcpy(path.src, w->cfg.gid, 16);
	memcpy(path.dst, w->cfg.gid, 16);
	memcpy(path.dst + 16 - (len < 16 ? len : 16), p, len < 16 ? len : 16);
	tx.payload_len = len > 16 ? p[16] * 16u : 0;
	(void)w->wire.ops->send(&w->wire, &tx, now);
}

/* Kinds: 0 to 191 a frame; of several pieces or without sums as the low bits say; above, something to send. */
static void feed(struct raw *w, const uint8_t *p, size_t len)
{
	uint64_t now = 1000;

	while (len >= 3) {
		size_t n = wire_get_be16(p + 1) % 1600u;
		uint8_t kind = p[0];

		p += 3;
		len -= 3;
		n = n < len ? n : len;
		now += (uint64_t)(kind & 0x3c) << 22;
		if (kind < 192) {
			/* A copy of its own, so that a read behind it is seen. */
			uint8_t *copy = malloc(n ? n : 1);

			must(copy != NULL);
			memcpy(copy, p, n);
			codecs(copy, n);
			(void)raw_take(w, copy, n, kind & 1 ? 64 : 0, kind & 2, now);
			free(copy);
		} else {
			send_one(w, p, n, now);
		}
		p += n;
		len -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct raw w;

	if (!size)
		return 0;
	memset(&w, 0, sizeof(w));
	w.wire.ops = &raw_ops;
	w.r = (struct rnic *)&w;
	w.v4 = data[0] & 1;
	memcpy(w.mac, own_mac, 6);
	if (w.v4) {
		wire_gid_from_v4(w.cfg.gid, (const uint8_t[]){ 10, 77, 0, 1 });
		w.cfg.prefix = data[0] & 2 ? 24 : 0;
		wire_gid_from_v4(w.cfg.gateway, (const uint8_t[]){ 10, 77, 0, 9 });
	} else {
		memcpy(w.cfg.gid, (const uint8_t[16]){ 0xfd, 0x77, 0, 77, [15] = 1 }, 16);
		w.cfg.prefix = data[0] & 2 ? 61 : 0;
		memcpy(w.cfg.gateway, (const uint8_t[16]){ 0xfe, 0x80, [15] = 9 }, 16);
	}
	feed(&w, data + 1, size - 1);
	return 0;
}
