/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_WIRE_UDP_H
#define GPUNET_RNIC_WIRE_UDP_H

/*
 * RoCEv2 over ordinary UDP sockets: no privilege, no kernel module, any interface.
 *
 * One socket is bound to port 4791 of one local address and receives; a few others send, since the source port, by
 * which routers spread flows, is the port a socket is bound to: a queue pair keeps to one of them. Sending sockets stay
 * unconnected and never fragment, so that the kernel gives their packets IP ID 0, or 0, 1, 2 … within one send of
 * several segments; the ICRC covers the ID, so this is what makes it right.
 *
 * On receive a UDP socket does not show the ID. On IPv6, which has none, the ICRC is enforced as it is. On IPv4 the ID is
 * found from the ICRC (wire_icrc_find_id()): a packet for which there is none is dropped. That leaves 16 bits of the
 * check. For a peer (address and queue pair) which often starts from 0 and stays below 128, as a sender such as this one
 * does, only such IDs are taken from then on, which leaves 25 bits. Linux rxe's count up from anywhere.
 *
 * Sockets that share the port have a filter that gives a packet to the one whose place is the top byte of its DestQP. Places
 * shift when a socket is closed, and there may be none: so `steer` must be able to pass packets on.
 *
 * A wire belongs to one thread, as the device on it does.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/rnic.h"
#include "rnic/wire.h"

struct rnic_udp_config {
	uint8_t gid[16];        /**< local address, IPv4 as ::ffff:a.b.c.d */
	uint32_t scope_id;      /**< of a link-local IPv6 address */
	unsigned ports;         /**< sending sockets, 1..64 [8] */
	unsigned socket_buffer; /**< bytes, each way [4 MiB] */
	bool quiet; /**< a port that is taken is not logged: the caller has another address */
	bool share; /**< others of this user may bind the port as well, see the filter below */
	/**
	 * Sees each packet first; true: it was for another process. With rx NULL: what it has seen lies in memory no longer
	 * when it returns. NULL: all are for the device.
	 */
	bool (*steer)(void *ctx, const struct rnic_rx *rx);
	void *steer_ctx;
	bool no_segments; /**< one packet a send, one a receive: UDP_SEGMENT and UDP_GRO off */
};

struct rnic_udp_stats {
	uint64_t tx_sends, tx_packets; /**< system calls and what they carried */
	uint64_t
		tx_dropped; /**< the kernel refused for good: no route, too long for the interface … */
	uint64_t rx_receives, rx_packets;
	uint64_t rx_bad_icrc;
	uint64_t rx_any_id; /* ICRC right for an ID that says nothing */
};

/**
 * Binds the sockets. -EADDRINUSE: UDP port 4791 of the address is taken, by rdma_rxe in the kernel or by another
 * process; -EADDRNOTAVAIL: not an address of this machine; -EINVAL; what socket(2) returns. The reason is logged.
 */
int rnic_udp_create(const struct rnic_udp_config *cfg, struct rnic_wire **out);
void rnic_udp_destroy(struct rnic_wire *w); /**< after the device on it is closed */

/* In the child of a fork: its copies of the sockets become copies of `nothing`, which is no socket. */
void rnic_udp_silence(struct rnic_wire *w, int nothing);

/** The device that gets what arrives. */
void rnic_udp_attach(struct rnic_wire *w, struct rnic *r);

/** Descriptor that becomes readable when packets have arrived. */
int rnic_udp_fd(const struct rnic_wire *w);

/** Delivers what has arrived, at most about `budget` packets; how many, or a negative errno that is not about one packet. */
int rnic_udp_poll(struct rnic_wire *w, uint64_t now, unsigned budget);

const struct rnic_udp_stats *rnic_udp_stats(const struct rnic_wire *w);

#endif
