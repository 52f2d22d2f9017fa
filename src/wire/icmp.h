/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_ICMP_H
#define GPUNET_WIRE_ICMP_H

/*
 * ICMP: echo, as a socket carries it, and neighbour discovery of IPv6, as whole Ethernet frames. No I/O, no allocation, no state.
 *
 * Decoders return 0 or a negative errno and never read past `len`: -EPROTONOSUPPORT: something else; -EMSGSIZE: cut short;
 * -EBADMSG: it contradicts itself, its checksum is wrong, or it is not what such a message must be.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- echo ------------------------------------------------------------------------------------------------------------------ */

enum { WIRE_ECHO_MIN = 16 /**< ICMP header and cookie; zeros follow */ };

struct wire_echo {
	bool reply;
	uint16_t id, seq;
	uint8_t cookie[8]; /**< the sender's, which the answer has, too */
};

/** Writes a message of `len` bytes, at least WIRE_ECHO_MIN. The checksum is IPv4's; a socket of ICMPv6 puts its own there. */
void wire_echo_put(uint8_t *p, size_t len, const struct wire_echo *e, bool v6);

/** A message as a socket gives it, which has checked the sum. What follows the cookie is not looked at. */
int wire_echo_get(struct wire_echo *e, const uint8_t *p, size_t len, bool v6);

/* ---- neighbour discovery ----------------------------------------------------------------------------------------------------- */

enum {
	WIRE_ND_LEN = 86,
	WIRE_ND_SOLICITED = 0x40, /**< flags of an advertisement */
	WIRE_ND_OVERRIDE = 0x20,
};

struct wire_nd {
	bool advert; /**< else it asks */
	bool has_mac;
	uint8_t flags; /**< of an advertisement */
	uint8_t eth_src[6], eth_dst[6];
	uint8_t src[16], dst[16];
	uint8_t target[16]; /**< whose Ethernet address is asked for, or told */
	uint8_t mac[6];     /**< of the one who asks, or of the target */
};

/** Writes a frame of WIRE_ND_LEN bytes; without `has_mac`, of 8 fewer. Its length. */
size_t wire_nd_put(uint8_t *p, const struct wire_nd *n);

int wire_nd_get(struct wire_nd *n, const uint8_t *p, size_t len);

/** The group in which the owner of an address is asked for, and its Ethernet address. */
void wire_nd_group(const uint8_t ip[16], uint8_t group[16], uint8_t mac[6]);

#endif
