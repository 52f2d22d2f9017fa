/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_PCAP_H
#define GPUNET_RNIC_PCAP_H

/*
 * What a wire sends and receives, written to a file that tshark and tcpdump read. A wire with such a capture puts every
 * packet into it as it is on the network: with the IP ID that the kernel gives it or that was found on receive, so that
 * the ICRC is right in the file where it was right on the network. A wire that sees no Ethernet makes up addresses of
 * the local kind, 02:00 and the last four bytes of the IP address.
 *
 * The file is written at the end of a step, and has a bound: packets that do not fit any more are counted.
 */
#include <stddef.h>
#include <stdint.h>

#include "wire/frame.h"

struct rnic_pcap;

struct rnic_pcap_config {
	const char *path;   /**< created, or emptied */
	uint64_t max_bytes; /**< of the file [64 MiB] */
	uint64_t
		epoch_ns; /**< added to the time of a packet: what the clock of the callers has for 1970 */
};

/** The errno of open(2) or -ENOMEM; logged. */
int rnic_pcap_open(const struct rnic_pcap_config *cfg, struct rnic_pcap **out);
void rnic_pcap_close(struct rnic_pcap *p); /**< NULL: nothing */

/** A UDP payload, ICRC included, between two addresses. `p` NULL: nothing, as below. */
void rnic_pcap_packet(struct rnic_pcap *p, const struct wire_ip *ip, uint16_t sport, uint16_t dport,
		      const uint8_t *payload, size_t len, uint64_t now);

/** A frame as it is on the network. */
void rnic_pcap_frame(struct rnic_pcap *p, const uint8_t *frame, size_t len, uint64_t now);

/** Writes what is still in memory. */
void rnic_pcap_flush(struct rnic_pcap *p);

/** Packets that were not written, for the bound or a full disk. */
uint64_t rnic_pcap_left_out(const struct rnic_pcap *p);

#endif
