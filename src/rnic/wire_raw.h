/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_WIRE_RAW_H
#define GPUNET_RNIC_WIRE_RAW_H

/*
 * RoCEv2 in Ethernet frames of its own: by a packet socket on an interface (needs CAP_NET_RAW), or as the other end of a TAP
 * interface, which it creates (CAP_NET_ADMIN). IPv4 or IPv6.
 *
 * It sees whole frames, so every packet's ICRC is checked and enforced; what it sends has IP ID 0 and DF. It answers for its
 * address and asks for its neighbours', by ARP or by neighbour discovery: one packet waits for the answer, further ones are
 * lost until it comes, which the sender makes up for.
 *
 * On an interface the address may be the kernel's, too, as long as nobody has bound UDP port 4791 there (two would answer).
 * The frames of such a kernel may come unsegmented and without UDP checksum, which both are dealt with.
 *
 * A wire belongs to one thread, as the device on it does.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/rnic.h"
#include "rnic/wire.h"

struct rnic_raw_config {
	const char *ifname; /**< the interface; with `tap`, of the one that is created */
	bool tap;           /**< the other end of a TAP interface */
	uint8_t gid[16];    /**< local address; IPv4: ::ffff:a.b.c.d */
	unsigned
		prefix; /**< bits of the network; beyond it packets go to the gateway [all are neighbours] */
	uint8_t gateway[16];    /**< as gid; zeros: none */
	unsigned socket_buffer; /**< bytes, each way, packet socket [4 MiB] */
};

struct rnic_raw_stats {
	uint64_t tx_packets;
	uint64_t tx_dropped; /**< refused for good, or lost while a neighbour was asked for */
	uint64_t rx_frames, rx_packets;
	uint64_t rx_other;    /**< frames that are no RoCE packets for this address */
	uint64_t rx_bad_csum; /**< of UDP */
	uint64_t rx_bad_icrc;
	uint64_t arp_asked, arp_answered; /**< or by neighbour discovery */
};

/** -ENODEV: no such interface; -EPERM; -EINVAL: addresses and prefix do not fit together; what a system call returned. Logged. */
int rnic_raw_create(const struct rnic_raw_config *cfg, struct rnic_wire **out);
void rnic_raw_destroy(struct rnic_wire *w); /**< after the device on it is closed */

/** The device that gets what arrives. */
void rnic_raw_attach(struct rnic_wire *w, struct rnic *r);

/** Descriptor that becomes readable when frames have arrived. */
int rnic_raw_fd(const struct rnic_wire *w);

/** Delivers what has arrived, at most about `budget` packets; how many, or a negative errno. */
int rnic_raw_poll(struct rnic_wire *w, uint64_t now, unsigned budget);

const struct rnic_raw_stats *rnic_raw_stats(const struct rnic_wire *w);

#endif
