/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_ARP_H
#define GPUNET_WIRE_ARP_H

/* ARP for IPv4 on Ethernet, as whole frames. No I/O, no allocation, no state. */
#include <stddef.h>
#include <stdint.h>

enum { WIRE_ARP_LEN = 42, WIRE_ARP_REQUEST = 1, WIRE_ARP_REPLY = 2 };

struct wire_arp {
	uint16_t op;
	uint8_t eth_dst[6];
	uint8_t sender_mac[6]; /**< the frame's source, too */
	uint8_t sender_ip[4];
	uint8_t target_mac[6]; /**< of a request: zeros */
	uint8_t target_ip[4];
};

/** Writes a frame of WIRE_ARP_LEN bytes. */
void wire_arp_put(uint8_t *p, const struct wire_arp *a);

/** 0; -EPROTONOSUPPORT: no ARP for IPv4 on Ethernet; -EMSGSIZE: cut short. */
int wire_arp_get(struct wire_arp *a, const uint8_t *p, size_t len);

#endif
