/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/frame.h"

#include <errno.h>
#include <string.h>

#include "wire/bytes.h"

enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_IPV6 = 0x86dd,
	PROTO_UDP = 17,
	IPV4_DF = 0x4000,
	IPV4_MF_OR_OFFSET = 0x3fff,
	IPV4_EVIL = 0x8000,
};

static const uint8_t v4_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

void wire_gid_from_v4(uint8_t gid[16], const uint8_t v4[4])
{
	memcpy(gid, v4_prefix, 12);
	memcpy(gid + 12, v4, 4);
}

bool wire_gid_is_v4(const uint8_t gid[16])
{
	return memcmp(gid, v4_prefix, 12) == 0;
}

bool wire_ip_is_v4(const struct wire_ip *ip)
{
	return wire_gid_is_v4(ip->src) && wire_gid_is_v4(ip->dst);
}

size_t wire_ip_len(const struct wire_ip *ip)
{
	return wire_ip_is_v4(ip) ? WIRE_IPV4_LEN : WIRE_IPV6_LEN;
}

/* Adds the big-endian 16-bit words of `p` to a ones' complement sum; an odd last byte is padded. */
static uint32_t sum_add(uint32_t sum, const uint8_t *p, size_t len)
{
	size_t i;

	for (i = 0; i + 1 < len; i += 2) {
		sum += wire_get_be16(p + i);
		sum = (sum & 0xffff) + (sum >> 16);
	}
	if (len & 1) {
		sum += (uint32_t)p[len - 1] << 8;
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return sum;
}

static uint16_t sum_fold(uint32_t sum)
{
	return (uint16_t) ~((sum & 0xffff) + (sum >> 16));
}

static void ipv4_put(uint8_t *p, const struct wire_ip *ip, size_t payload)
{
	p[0] = 0x45;
	p[1] = ip->tos;
	wire_put_be16(p + 2, (uint16_t)(WIRE_IPV4_LEN + payload));
	wire_put_be16(p + 4, ip->id);
	wire_put_be16(p + 6, ip->dont_frag ? IPV4_DF : 0);
	p[8] = ip->ttl;
	p[9] = PROTO_UDP;
	wire_put_be16(p + 10, 0);
	memcpy(p + 12, ip->src + 12, 4);
	memcpy(p + 16, ip->dst + 12, 4);
	wire_put_be16(p + 10, sum_fold(sum_add(0, p, WIRE_IPV4_LEN)));
}

static void ipv6_put(uint8_t *p, const struct wire_ip *ip, size_t payload)
{
	wire_put_be32(p, UINT32_C(6) << 28 | (uint32_t)ip->tos << 20 | (ip->flow & 0xfffff));
	wire_put_be16(p + 4, (uint16_t)payload);
	p[6] = PROTO_UDP;
	p[7] = ip->ttl;
	memcpy(p + 8, ip->src, 16);
	memcpy(p + 24, ip->dst, 16);
}

void wire_ip_put(uint8_t *p, const struct wire_ip *ip, size_t payload)
{
	if (wire_ip_is_v4(ip))
		ipv4_put(p, ip, payload);
	else
		ipv6_put(p, ip, payload);
}

/* Decodes the IPv4 header at `p`; returns its payload's length or a negative errno. */
static int ipv4_get(struct wire_ip *ip, const uint8_t *p, size_t len)
{
	uint16_t total, frag;

	if (len < WIRE_IPV4_LEN)
		return -EMSGSIZE;
	if (p[0] >> 4 != 4)
		return -EBADMSG;
	if (p[0] != 0x45)
		return -EPROTONOSUPPORT;
	total = wire_get_be16(p + 2);
	frag = wire_get_be16(p + 6);
	if (total < WIRE_IPV4_LEN)
		return -EBADMSG;
	if (total > len)
		return -EMSGSIZE;
	if (sum_fold(sum_add(0, p, WIRE_IPV4_LEN)) != 0)
		return -EBADMSG;
	if ((frag & (IPV4_MF_OR_OFFSET | IPV4_EVIL)) || p[9] != PROTO_UDP)
		return -EPROTONOSUPPORT;
	ip->tos = p[1];
	ip->id = wire_get_be16(p + 4);
	ip->dont_frag = frag & IPV4_DF;
	ip->ttl = p[8];
	ip->flow = 0;
	wire_gid_from_v4(ip->src, p + 12);
	wire_gid_from_v4(ip->dst, p + 16);
	return total - WIRE_IPV4_LEN;
}

static int ipv6_get(struct wire_ip *ip, const uint8_t *p, size_t len)
{
	uint32_t word;
	size_t payload;

	if (len < WIRE_IPV6_LEN)
		return -EMSGSIZE;
	word = wire_get_be32(p);
	payload = wire_get_be16(p + 4);
	if (word >> 28 != 6)
		return -EBADMSG;
	if (payload > len - WIRE_IPV6_LEN)
		return -EMSGSIZE;
	if (p[6] != PROTO_UDP)
		return -EPROTONOSUPPORT;
	ip->tos = (uint8_t)(word >> 20);
	ip->flow = word & 0xfffff;
	ip->id = 0;
	ip->dont_frag = true;
	ip->ttl = p[7];
	memcpy(ip->src, p + 8, 16);
	memcpy(ip->dst, p + 24, 16);
	/* A mapped address inside IPv6 would come back out as IPv4: it is not legal on a wire. */
	if (wire_gid_is_v4(ip->src) || wire_gid_is_v4(ip->dst))
		return -EBADMSG;
	return (int)payload;
}

int wire_frame_decode(struct wire_frame *f, const uint8_t *buf, size_t len)
{
	const uint8_t *ip = buf + WIRE_ETH_LEN;
	const uint8_t *udp;
	uint16_t type;
	size_t ulen;
	int n;

	if (len < WIRE_ETH_LEN)
		return -EMSGSIZE;
	memcpy(f->eth_dst, buf, 6);
	memcpy(f->eth_src, buf + 6, 6);
	type = wire_get_be16(buf + 12);
	if (type == ETHERTYPE_IPV4)
		n = ipv4_get(&f->ip, ip, len - WIRE_ETH_LEN);
	else if (type == ETHERTYPE_IPV6)
		n = ipv6_get(&f->ip, ip, len - WIRE_ETH_LEN);
	else
		n = -EPROTONOSUPPORT;
	if (n < 0)
		return n;
	if (n < WIRE_UDP_LEN)
		return -EBADMSG;
	udp = ip + wire_ip_len(&f->ip);
	ulen = wire_get_be16(udp + 4);
	if (ulen != (size_t)n)
		return -EBADMSG;
	f->udp.sport = wire_get_be16(udp);
	f->udp.dport = wire_get_be16(udp + 2);
	f->udp.csum = wire_get_be16(udp + 6);
	f->hdr_len = (size_t)(udp - buf) + WIRE_UDP_LEN;
	f->payload_len = ulen - WIRE_UDP_LEN;
	return 0;
}

int wire_frame_encode(struct wire_frame *f, uint8_t *buf, size_t cap)
{
	bool v4 = wire_ip_is_v4(&f->ip);
	size_t iplen = wire_ip_len(&f->ip);
	size_t hdr = WIRE_ETH_LEN + iplen + WIRE_UDP_LEN;
	uint8_t *udp = buf + WIRE_ETH_LEN + iplen;

	if (wire_gid_is_v4(f->ip.src) != wire_gid_is_v4(f->ip.dst))
		return -EINVAL;
	if (f->payload_len > (size_t)UINT16_MAX - iplen - WIRE_UDP_LEN)
		return -EMSGSIZE;
	if (cap < hdr || cap - hdr < f->payload_len)
		return -ENOBUFS;
	memcpy(buf, f->eth_dst, 6);
	memcpy(buf + 6, f->eth_src, 6);
	wire_put_be16(buf + 12, v4 ? ETHERTYPE_IPV4 : ETHERTYPE_IPV6);
	wire_ip_put(buf + WIRE_ETH_LEN, &f->ip, WIRE_UDP_LEN + f->payload_len);
	wire_put_be16(udp, f->udp.sport);
	wire_put_be16(udp + 2, f->udp.dport);
	wire_put_be16(udp + 4, (uint16_t)(WIRE_UDP_LEN + f->payload_len));
	wire_put_be16(udp + 6, f->udp.csum);
	f->hdr_len = hdr;
	return (int)hdr;
}

uint16_t wire_udp_csum(const struct wire_frame *f, const uint8_t *buf)
{
	const uint8_t *udp = buf + f->hdr_len - WIRE_UDP_LEN;
	size_t skip = wire_ip_is_v4(&f->ip) ? 12 : 0;
	uint32_t sum = PROTO_UDP;
	uint16_t c;

	sum += (uint32_t)(WIRE_UDP_LEN + f->payload_len);
	sum = sum_add(sum, f->ip.src + skip, 16 - skip);
	sum = sum_add(sum, f->ip.dst + skip, 16 - skip);
	sum = sum_add(sum, udp, 6);
	sum = sum_add(sum, udp + WIRE_UDP_LEN, f->payload_len);
	c = sum_fold(sum);
	return c ? c : 0xffff;
}

void wire_frame_seal(struct wire_frame *f, uint8_t *buf)
{
	f->udp.csum = wire_udp_csum(f, buf);
	wire_put_be16(buf + f->hdr_len - 2, f->udp.csum);
}
