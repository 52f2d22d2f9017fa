/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_PCAP_H
#define GPUNET_WIRE_PCAP_H

/*
 * The classic pcap file: a 24-byte header, then records of a 16-byte header and a frame. Little-endian,
 * Ethernet; written with nanosecond stamps, read with either. No I/O, no allocation.
 */
#include <stddef.h>
#include <stdint.h>

enum { WIRE_PCAP_HDR_LEN = 24, WIRE_PCAP_REC_LEN = 16, WIRE_PCAP_SNAPLEN = 262144 };

/** A place in a capture held in memory, and its last record. */
struct wire_pcap_reader {
	const uint8_t *buf;
	size_t len;
	size_t off;        /**< of the next record */
	uint32_t frac_ns;  /**< nanoseconds in one unit of a stamp's fraction */
	uint64_t stamp_ns; /**< of the last record */
};

/** Writes the file header, WIRE_PCAP_HDR_LEN bytes. */
void wire_pcap_header_put(uint8_t *p);

/** Writes a record header, WIRE_PCAP_REC_LEN bytes, for a frame of `len` bytes seen at `stamp_ns`. */
void wire_pcap_record_put(uint8_t *p, uint64_t stamp_ns, size_t len);

/** Starts to read a capture. 0, -EMSGSIZE when too short, -EPROTONOSUPPORT for another format or link. */
int wire_pcap_open(struct wire_pcap_reader *r, const uint8_t *buf, size_t len);

/** The next frame: its length (>= 0) with *frame set; -ENODATA at the end; -EBADMSG for a cut record. */
int64_t wire_pcap_next(struct wire_pcap_reader *r, const uint8_t **frame);

#endif
