/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_WIRE_H
#define GPUNET_RNIC_WIRE_H

/*
 * What carries packets between devices, behind one ops table. A wire computes the ICRC of what it sends, since
 * only it knows the IP header, and checks it on what it receives wherever it sees that header.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "rnic/rnic.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/roce.h"

enum {
	RNIC_TX_MAX_HDR = 64,
	RNIC_TX_MAX_SEG = 34, /**< payload pieces: one a scatter entry, and spare */
};

/** A packet to send. Everything it points to is valid during the call only. */
struct rnic_tx {
	const struct rnic_path *path;
	uint16_t sport;
	uint8_t hdr[RNIC_TX_MAX_HDR]; /**< BTH and extension headers */
	size_t hdr_len;
	struct iovec seg[RNIC_TX_MAX_SEG];
	unsigned nseg;
	size_t payload_len; /**< sum of the pieces; the pad follows from it */
};

/** A packet received, its ICRC checked where the wire can. */
struct rnic_rx {
	struct wire_ip ip;
	const uint8_t *data; /**< UDP payload, ICRC included */
	size_t len;
	/** Not NULL: the payload lies here, and `data` has but headers and ICRC. For payloads that need no pad. */
	const uint8_t *payload;
	size_t payload_len;
};

struct rnic_wire_ops {
	/** Sends a packet. 0; -EAGAIN when the wire is full: the device tries again in a later step. */
	int (*send)(struct rnic_wire *w, const struct rnic_tx *tx, uint64_t now);
	/** Sends what it has held back to send together; at the end of a step. NULL: it holds nothing. 0, or -EAGAIN. */
	int (*flush)(struct rnic_wire *w, uint64_t now);
};

struct rnic_wire {
	const struct rnic_wire_ops *ops;
	struct rnic_pcap
		*pcap; /**< what it sends and receives goes there, too (rnic/pcap.h); or NULL */
};

/** Gives a device a packet that came for one of its addresses. Anything may be in it. */
void rnic_receive(struct rnic *r, const struct rnic_rx *rx, uint64_t now);

/** Writes a packet as one UDP payload with pad and ICRC; its length, or -ENOBUFS. For wires. */
int rnic_tx_flatten(const struct rnic_tx *tx, const struct wire_ip *ip, uint16_t dport,
		    uint8_t *buf, size_t cap);

/** The same from the register behind IP and UDP headers on, for a wire that remembers it (wire_icrc_begin()). */
int rnic_tx_flatten_from(const struct rnic_tx *tx, uint32_t crc, uint8_t *buf, size_t cap);

/** Bytes of that payload. */
static inline size_t rnic_tx_len(const struct rnic_tx *tx)
{
	return tx->hdr_len + tx->payload_len + wire_pad(tx->payload_len) + WIRE_ICRC_LEN;
}

#endif
