/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_ICRC_H
#define GPUNET_WIRE_ICRC_H

/*
 * The invariant CRC of RoCEv2: a reflected CRC-32 over 8 bytes of ones, the IP and UDP headers, BTH,
 * extension headers, payload and pad, in which every field that a router may change counts as ones:
 * IPv4 TOS, TTL and checksum; IPv6 traffic class, flow label and hop limit; the UDP checksum; the
 * BTH byte with FECN and BECN. It is stored with its least significant byte first.
 *
 * The headers are taken from structs, not from bytes, so that a sender on a UDP socket, which never
 * sees the IP header, computes it too; such a sender must know the IP ID, which is not masked.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/frame.h"

enum { WIRE_ICRC_LEN = 4 };

/** Continues a CRC-32 register (no start or final complement) over `len` bytes. */
uint32_t wire_crc32(uint32_t crc, const void *data, size_t len);

/** The same, and copies the bytes; what is summed is what was copied, even if `src` changes meanwhile. */
uint32_t wire_crc32_copy(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t len);

/**
 * The fast part of both (dst NULL: it only sums): continues over as many of the first bytes as it can and returns how many,
 * which is 0 where the processor lacks the instructions or `len` is short.
 */
size_t wire_crc32_fold(uint32_t *crc, uint8_t *dst, const uint8_t *src, size_t len);

/** The same by tables alone; for its test. */
uint32_t wire_crc32_table(uint32_t crc, const void *data, size_t len);

/** The register after the masked headers, for a UDP payload of `udp_payload` bytes, ICRC included. */
uint32_t wire_icrc_begin(const struct wire_ip *ip, const struct wire_udp *udp, size_t udp_payload);

/** Continues over the 12 bytes of a BTH, with its FECN byte masked. */
uint32_t wire_icrc_bth(uint32_t crc, const uint8_t bth[12]);

/** Ends the computation: the value to store with wire_put_le32(). */
uint32_t wire_icrc_end(uint32_t crc);

/**
 * The ICRC of a packet whose UDP payload, from BTH up to but without the ICRC, is the `len` bytes at
 * `bth`; `len` is at least 12.
 */
uint32_t wire_icrc(const struct wire_ip *ip, const struct wire_udp *udp, const uint8_t *bth,
		   size_t len);

/*
 * A CRC is linear and can be run backwards, so an ICRC tells the ID of its packet to whoever sees all of the packet but
 * that. 16 of its 32 bits are spent on it; the other 16 still say whether the packet is broken.
 */

/** What undoes the bytes of an IPv4 packet behind ID and flags, for wire_icrc_find_id(); `len` as for wire_icrc(). */
uint32_t wire_icrc_undo(size_t len);

/**
 * The ICRC would be right if the ID were *id: true, with *id, which is the ID that it was computed with before, corrected. DF
 * may be the other way, too. False when no ID makes it right.
 */
bool wire_icrc_find_id(uint32_t undo, uint32_t computed, uint32_t received, uint16_t *id);

#endif
