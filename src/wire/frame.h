/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_FRAME_H
#define GPUNET_WIRE_FRAME_H

/*
 * Ethernet II, IPv4 (without options, not fragmented), IPv6 (without extension headers) and UDP: the
 * envelope of RoCEv2. No I/O, no allocation, no state.
 *
 * Addresses are kept as 16-byte GIDs, an IPv4 address as ::ffff:a.b.c.d, because that is how RDMA
 * names them; wire_ip_is_v4() tells the two apart.
 *
 * Decoders return 0 or a negative errno and never read past `len`:
 *   -EMSGSIZE        the frame is shorter than its headers say
 *   -EPROTONOSUPPORT a valid frame of another kind (ARP, TCP, IP options, fragments, VLAN)
 *   -EBADMSG         a header contradicts itself or its checksum is wrong
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WIRE_ETH_LEN = 14,
	WIRE_IPV4_LEN = 20,
	WIRE_IPV6_LEN = 40,
	WIRE_UDP_LEN = 8,
	/** Longest envelope: Ethernet, IPv6, UDP. */
	WIRE_FRAME_MAX_HDR = WIRE_ETH_LEN + WIRE_IPV6_LEN + WIRE_UDP_LEN,
	WIRE_ROCE_PORT = 4791,
};

/** The IP header's fields. */
struct wire_ip {
	uint8_t src[16];
	uint8_t dst[16];
	uint32_t flow;  /**< IPv6 flow label, 20 bits; 0 on IPv4 */
	uint16_t id;    /**< IPv4 identification; 0 on IPv6 */
	uint8_t tos;    /**< IPv4 TOS or IPv6 traffic class; ECN is the low two bits */
	uint8_t ttl;    /**< TTL or hop limit */
	bool dont_frag; /**< IPv4 DF */
};

struct wire_udp {
	uint16_t sport;
	uint16_t dport;
	uint16_t csum; /**< as on the wire; 0 means none */
};

struct wire_frame {
	uint8_t eth_dst[6];
	uint8_t eth_src[6];
	struct wire_ip ip;
	struct wire_udp udp;
	size_t hdr_len;     /**< bytes before the UDP payload */
	size_t payload_len; /**< bytes of UDP payload; what follows is padding of the link */
};

/** Makes the GID of an IPv4 address given as 4 bytes in network order. */
void wire_gid_from_v4(uint8_t gid[16], const uint8_t v4[4]);

/** True when the GID stands for an IPv4 address. */
bool wire_gid_is_v4(const uint8_t gid[16]);

/** True when the header is an IPv4 one: both addresses are. */
bool wire_ip_is_v4(const struct wire_ip *ip);

/** Length of the IP header that `ip` encodes to. */
size_t wire_ip_len(const struct wire_ip *ip);

/**
 * Writes an IP header for `payload` bytes (the UDP header included) at `p`, which has room for
 * wire_ip_len() bytes. The caller has checked that payload + 20 fits 16 bits.
 */
void wire_ip_put(uint8_t *p, const struct wire_ip *ip, size_t payload);

/** Decodes Ethernet, IP and UDP. Any UDP port is accepted; the payload is at buf + hdr_len. */
int wire_frame_decode(struct wire_frame *f, const uint8_t *buf, size_t len);

/**
 * Writes the headers before f->payload_len bytes of UDP payload, sets f->hdr_len and returns it, or
 * -ENOBUFS when headers and payload do not fit `cap`, -EMSGSIZE when they do not fit an IP packet,
 * -EINVAL when the two addresses are of different families. The UDP checksum field becomes f->udp.csum; to have
 * it computed call wire_frame_seal() when the payload is in place.
 */
int wire_frame_encode(struct wire_frame *f, uint8_t *buf, size_t cap);

/** Computes the UDP checksum of a frame that is complete at `buf` and stores it there and in f. */
void wire_frame_seal(struct wire_frame *f, uint8_t *buf);

/** The UDP checksum that the frame at `buf`, described by `f`, should carry (never 0). */
uint16_t wire_udp_csum(const struct wire_frame *f, const uint8_t *buf);

#endif
