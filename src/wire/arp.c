/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/arp.h"

#include <errno.h>
#include <string.h>

#include "wire/bytes.h"

/* Frame type; then kinds and lengths of the addresses: Ethernet, IPv4, 6, 4. */
static const uint8_t fixed[8] = { 0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4 };

void wire_arp_put(uint8_t *p, const struct wire_arp *a)
{
	memcpy(p, a->eth_dst, 6);
	memcpy(p + 6, a->sender_mac, 6);
	memcpy(p + 12, fixed, sizeof(fixed));
	wire_put_be16(p + 20, a->op);
	memcpy(p + 22, a->sender_mac, 6);
	memcpy(p + 28, a->sender_ip, 4);
	memcpy(p + 32, a->target_mac, 6);
	memcpy(p + 38, a->target_ip, 4);
}

int wire_arp_get(struct wire_arp *a, const uint8_t *p, size_t len)
{
	if (len < 14 || memcmp(p + 12, fixed, 2) != 0)
		return -EPROTONOSUPPORT;
	if (len < WIRE_ARP_LEN)
		return -EMSGSIZE;
	if (memcmp(p + 12, fixed, sizeof(fixed)) != 0)
		return -EPROTONOSUPPORT;
	memcpy(a->eth_dst, p, 6);
	a->op = wire_get_be16(p + 20);
	memcpy(a->sender_mac, p + 22, 6);
	memcpy(a->sender_ip, p + 28, 4);
	memcpy(a->target_mac, p + 32, 6);
	memcpy(a->target_ip, p + 38, 4);
	return 0;
}
