/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/icmp.h"

#include <errno.h>
#include <string.h>

#include "wire/bytes.h"
#include "wire/frame.h"

enum {
	ECHO_REPLY_4 = 0,
	ECHO_REQUEST_4 = 8,
	ECHO_REQUEST_6 = 128,
	ECHO_REPLY_6 = 129,
	SOLICIT = 135,
	ADVERTISE = 136,
	NEXT_ICMPV6 = 58,
	ND_FIXED = 24, /* bytes of an ND message before its options */
	OPT_SOURCE = 1,
	OPT_TARGET = 2,
};

/* Ones' complement sum, not folded. */
static uint32_t sum(uint32_t s, const uint8_t *p, size_t n)
{
	size_t i;

	for (i = 0; i + 1 < n; i += 2)
		s += wire_get_be16(p + i);
	return n & 1 ? s + ((uint32_t)p[n - 1] << 8) : s;
}

static uint16_t fold(uint32_t s)
{
	while (s >> 16)
		s = (s & 0xffff) + (s >> 16);
	return (uint16_t)~s;
}

/* ---- echo ---------------------------------------------------------------------------------------- */

void wire_echo_put(uint8_t *p, size_t len, const struct wire_echo *e, bool v6)
{
	memset(p, 0, len);
	if (v6)
		p[0] = e->reply ? ECHO_REPLY_6 : ECHO_REQUEST_6;
	else
		p[0] = e->reply ? ECHO_REPLY_4 : ECHO_REQUEST_4;
	wire_put_be16(p + 4, e->id);
	wire_put_be16(p + 6, e->seq);
	memcpy(p + 8, e->cookie, 8);
	wire_put_be16(p + 2, fold(sum(0, p, len)));
}

int wire_echo_get(struct wire_echo *e, const uint8_t *p, size_t len, bool v6)
{
	uint8_t reply = v6 ? ECHO_REPLY_6 : ECHO_REPLY_4,
		request = v6 ? ECHO_REQUEST_6 : ECHO_REQUEST_4;

	if (len < WIRE_ECHO_MIN)
		return -EMSGSIZE;
	if (p[1] || (p[0] != reply && p[0] != request))
		return -EPROTONOSUPPORT;
	e->reply = p[0] == reply;
	e->id = wire_get_be16(p + 4);
	e->seq = wire_get_be16(p + 6);
	memcpy(e->cookie, p + 8, 8);
	return 0;
}

/* ---- neighbour discovery --------------------------------------------------------------------------- */

static uint16_t checksum(const uint8_t *ip, size_t len)
{
	uint32_t s = sum((uint32_t)len + NEXT_ICMPV6, ip + 8, 32);

	return fold(sum(s, ip + WIRE_IPV6_LEN, len));
}

size_t wire_nd_put(uint8_t *p, const struct wire_nd *n)
{
	size_t len = ND_FIXED + (n->has_mac ? 8 : 0);
	uint8_t *ip = p + WIRE_ETH_LEN, *m = ip + WIRE_IPV6_LEN;

	memset(p, 0, WIRE_ETH_LEN + WIRE_IPV6_LEN + len);
	memcpy(p, n->eth_dst, 6);
	memcpy(p + 6, n->eth_src, 6);
	wire_put_be16(p + 12, 0x86dd);
	ip[0] = 0x60;
	wire_put_be16(ip + 4, (uint16_t)len);
	ip[6] = NEXT_ICMPV6;
	ip[7] = 255;
	memcpy(ip + 8, n->src, 16);
	memcpy(ip + 24, n->dst, 16);
	m[0] = n->advert ? ADVERTISE : SOLICIT;
	m[4] = n->advert ? n->flags : 0;
	memcpy(m + 8, n->target, 16);
	if (n->has_mac) {
		m[ND_FIXED] = n->advert ? OPT_TARGET : OPT_SOURCE;
		m[ND_FIXED + 1] = 1;
		memcpy(m + ND_FIXED + 2, n->mac, 6);
	}
	wire_put_be16(m + 2, checksum(ip, len));
	return WIRE_ETH_LEN + WIRE_IPV6_LEN + len;
}

/* An option has a kind, and a length in units of 8 bytes. The last one of the kind that is looked for counts. */
static int options(struct wire_nd *n, const uint8_t *p, size_t len)
{
	uint8_t kind = n->advert ? OPT_TARGET : OPT_SOURCE;
	size_t off;

	for (off = 0; off < len; off += 8u * p[off + 1]) {
		if (len - off < 8 || !p[off + 1] || 8u * p[off + 1] > len - off)
			return -EBADMSG;
		if (p[off] != kind || p[off + 1] != 1)
			continue;
		n->has_mac = true;
		memcpy(n->mac, p + off + 2, 6);
	}
	return 0;
}

/* What RFC 4861 has every node check before it believes such a message. */
static bool sensible(const struct wire_nd *n)
{
	static const uint8_t nobody[16];
	uint8_t group[16], mac[6];

	if (n->target[0] == 0xff || n->src[0] == 0xff)
		return false;
	if (n->advert)
		return n->dst[0] != 0xff || !(n->flags & WIRE_ND_SOLICITED);
	wire_nd_group(n->target, group, mac);
	return memcmp(n->src, nobody, 16) != 0 || (!n->has_mac && memcmp(n->dst, group, 16) == 0);
}

int wire_nd_get(struct wire_nd *n, const uint8_t *p, size_t len)
{
	const uint8_t *ip = p + WIRE_ETH_LEN, *m = ip + WIRE_IPV6_LEN;
	struct wire_nd got = { 0 };
	size_t size;

	if (len < WIRE_ETH_LEN || wire_get_be16(p + 12) != 0x86dd)
		return -EPROTONOSUPPORT;
	if (len < WIRE_ETH_LEN + WIRE_IPV6_LEN + 1)
		return -EMSGSIZE;
	if (ip[0] >> 4 != 6 || ip[6] != NEXT_ICMPV6 || (m[0] != SOLICIT && m[0] != ADVERTISE))
		return -EPROTONOSUPPORT;
	size = wire_get_be16(ip + 4);
	if (len - WIRE_ETH_LEN - WIRE_IPV6_LEN < size || size < ND_FIXED)
		return -EMSGSIZE;
	if (ip[7] != 255 || m[1] || checksum(ip, size))
		return -EBADMSG;
	got.advert = m[0] == ADVERTISE;
	got.flags = got.advert ? m[4] : 0;
	memcpy(got.eth_dst, p, 6);
	memcpy(got.eth_src, p + 6, 6);
	memcpy(got.src, ip + 8, 16);
	memcpy(got.dst, ip + 24, 16);
	memcpy(got.target, m + 8, 16);
	if (options(&got, m + ND_FIXED, size - ND_FIXED) || !sensible(&got))
		return -EBADMSG;
	*n = got;
	return 0;
}

void wire_nd_group(const uint8_t ip[16], uint8_t group[16], uint8_t mac[6])
{
	static const uint8_t prefix[13] = { 0xff, 0x02, [11] = 1, [12] = 0xff };

	memcpy(group, prefix, 13);
	memcpy(group + 13, ip + 13, 3);
	mac[0] = mac[1] = 0x33;
	memcpy(mac + 2, group + 12, 4);
}
