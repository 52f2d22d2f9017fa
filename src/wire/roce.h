/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_ROCE_H
#define GPUNET_WIRE_ROCE_H

/*
 * InfiniBand transport packets as RoCEv2 carries them: the UDP payload BTH | extension headers |
 * payload | pad | ICRC. No I/O, no allocation, no state.
 *
 * wire_roce_decode() and wire_roce_encode_hdr() are inverse to each other to the bit, reserved bits
 * included: what a peer put into them is kept, so that a capture re-encodes to the byte.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Operation part of an opcode; the transport is in the top three bits. */
enum {
	WIRE_RC = 0x00,
	WIRE_UC = 0x20,
	WIRE_UD = 0x60,
	WIRE_TRANSPORT_MASK = 0xe0,

	WIRE_SEND_FIRST = 0x00,
	WIRE_SEND_MIDDLE = 0x01,
	WIRE_SEND_LAST = 0x02,
	WIRE_SEND_LAST_IMM = 0x03,
	WIRE_SEND_ONLY = 0x04,
	WIRE_SEND_ONLY_IMM = 0x05,
	WIRE_WRITE_FIRST = 0x06,
	WIRE_WRITE_MIDDLE = 0x07,
	WIRE_WRITE_LAST = 0x08,
	WIRE_WRITE_LAST_IMM = 0x09,
	WIRE_WRITE_ONLY = 0x0a,
	WIRE_WRITE_ONLY_IMM = 0x0b,
	WIRE_READ_REQ = 0x0c,
	WIRE_READ_RESP_FIRST = 0x0d,
	WIRE_READ_RESP_MIDDLE = 0x0e,
	WIRE_READ_RESP_LAST = 0x0f,
	WIRE_READ_RESP_ONLY = 0x10,
	WIRE_ACK = 0x11,
	WIRE_ATOMIC_ACK = 0x12,
	WIRE_CMP_SWAP = 0x13,
	WIRE_FETCH_ADD = 0x14,
	WIRE_SEND_LAST_INV = 0x16,
	WIRE_SEND_ONLY_INV = 0x17,

	WIRE_CNP = 0x81, /**< congestion notification, an opcode of its own */
};

/* What an opcode carries and means; see wire_opcode_flags(). */
enum {
	/* extension headers */
	WIRE_X_RETH = 1 << 0,
	WIRE_X_ATOMIC = 1 << 1, /**< AtomicETH */
	WIRE_X_AETH = 1 << 2,
	WIRE_X_ATOMIC_ACK = 1 << 3,
	WIRE_X_DETH = 1 << 4,
	WIRE_X_IMM = 1 << 5,
	WIRE_X_IETH = 1 << 6,
	/* place in the message; ONLY is FIRST and LAST together */
	WIRE_F_FIRST = 1 << 8,
	WIRE_F_LAST = 1 << 9,
	WIRE_F_ONLY = WIRE_F_FIRST | WIRE_F_LAST,
	/* kind */
	WIRE_F_SEND = 1 << 10,
	WIRE_F_WRITE = 1 << 11,
	WIRE_F_READ = 1 << 12, /**< READ request */
	WIRE_F_ATOMIC_REQ = 1 << 13,
	WIRE_F_RESPONSE = 1 << 14, /**< goes from responder to requester */
	WIRE_F_PAYLOAD = 1 << 15,  /**< may carry payload */
	WIRE_F_REQUEST = WIRE_F_SEND | WIRE_F_WRITE | WIRE_F_READ | WIRE_F_ATOMIC_REQ,
};

enum {
	WIRE_BTH_LEN = 12,
	WIRE_RETH_LEN = 16,
	WIRE_ATOMIC_LEN = 28,
	WIRE_AETH_LEN = 4,
	WIRE_ATOMIC_ACK_LEN = 8,
	WIRE_DETH_LEN = 8,
	WIRE_IMM_LEN = 4,
	WIRE_IETH_LEN = 4,
	/** Longest run of BTH and extension headers of any opcode: the atomic requests. */
	WIRE_ROCE_MAX_HDR = WIRE_BTH_LEN + WIRE_ATOMIC_LEN,
	WIRE_CNP_PAYLOAD = 16,
	WIRE_MTU_MIN = 256,
	WIRE_MTU_MAX = 4096,
	WIRE_PSN_MASK = 0xffffff,
	WIRE_QPN_MASK = 0xffffff,
	WIRE_PKEY_DEFAULT = 0xffff,
};

struct wire_bth {
	uint8_t opcode;
	bool solicited;
	bool mig;
	uint8_t pad;  /**< 0..3 bytes after the payload */
	uint8_t tver; /**< header version, 4 bits; a receiver drops what is not 0 */
	uint16_t pkey;
	bool fecn;
	bool becn;
	uint8_t rsv6; /**< reserved, 6 bits, kept */
	uint32_t dqpn;
	bool ack_req;
	uint8_t rsv7; /**< reserved, 7 bits, kept */
	uint32_t psn;
};

struct wire_reth {
	uint64_t va;
	uint32_t rkey;
	uint32_t len;
};

struct wire_atomic {
	uint64_t va;
	uint32_t rkey;
	uint64_t swap_add;
	uint64_t compare;
};

struct wire_aeth {
	uint8_t syndrome;
	uint32_t msn;
};

struct wire_deth {
	uint32_t qkey;
	uint8_t rsv; /**< reserved, kept */
	uint32_t sqpn;
};

/** One decoded packet. Only the headers that the opcode has are meaningful. */
struct wire_roce {
	struct wire_bth bth;
	unsigned flags; /**< wire_opcode_flags() of the opcode */
	struct wire_reth reth;
	struct wire_atomic atomic;
	struct wire_aeth aeth;
	struct wire_deth deth;
	uint32_t imm;         /**< as a number, big-endian on the wire */
	uint32_t inv_rkey;    /**< IETH */
	uint64_t atomic_orig; /**< AtomicAckETH */
	const uint8_t *payload;
	size_t payload_len; /**< without pad */
	uint32_t icrc;      /**< as received; not checked by the decoder */
};

/** WIRE_X_* and WIRE_F_* of an opcode, or 0 for one that this library does not know. */
unsigned wire_opcode_flags(uint8_t opcode);

/** Name of an opcode as the specification spells it ("RC SEND_ONLY"), or "unknown". */
const char *wire_opcode_name(uint8_t opcode);

/** Length of BTH and the extension headers that `flags` names. */
size_t wire_roce_hdr_len(unsigned flags);

/**
 * Decodes a UDP payload, ICRC included. 0, or
 *   -EMSGSIZE        shorter than the headers of its opcode and the ICRC
 *   -EPROTONOSUPPORT opcode unknown (bth is set)
 *   -EBADMSG         pad longer than the rest
 * A header version other than 0, and a payload or pad of the wrong length for the opcode, are the
 * receiving queue pair's to refuse, not errors here.
 */
int wire_roce_decode(struct wire_roce *r, const uint8_t *buf, size_t len);

/** Decodes a BTH alone; `buf` holds WIRE_BTH_LEN bytes. */
void wire_bth_get(struct wire_bth *bth, const uint8_t *buf);

/** Encodes a BTH alone. */
void wire_bth_put(uint8_t *buf, const struct wire_bth *bth);

/**
 * Encodes BTH and the extension headers of r->bth.opcode. Returns the length, or -ENOBUFS when `cap` is
 * too small, -EPROTONOSUPPORT for an unknown opcode. Payload, pad and ICRC are the caller's, who has set
 * bth.pad.
 */
int wire_roce_encode_hdr(const struct wire_roce *r, uint8_t *buf, size_t cap);

/**
 * Encodes a packet whole: headers, r->payload (may be NULL when the length is 0), zeroed pad of bth.pad
 * bytes and r->icrc. Returns its length or a negative errno as wire_roce_encode_hdr().
 */
int wire_roce_encode(const struct wire_roce *r, uint8_t *buf, size_t cap);

/** Bytes of pad that `len` bytes of payload need. */
static inline uint8_t wire_pad(size_t len)
{
	return (uint8_t)(-len & 3);
}

/* --- PSN arithmetic: 24 bits, compared as a signed distance ----------------------------------- */

static inline uint32_t wire_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & WIRE_PSN_MASK;
}

/** a − b as a number in [−2^23, 2^23). */
static inline int32_t wire_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/* --- path MTU --------------------------------------------------------------------------------- */

/** Bytes of MTU code 1..5 (256..4096), or 0 for another code. */
unsigned wire_mtu_bytes(unsigned code);

/** Code of the largest MTU that is at most `bytes`, or 0 when bytes < 256. */
unsigned wire_mtu_code(unsigned bytes);

/* --- AETH syndromes and timer codes ----------------------------------------------------------- */

enum wire_aeth_kind {
	WIRE_AETH_ACK,
	WIRE_AETH_RNR,
	WIRE_AETH_NAK,
	WIRE_AETH_RESERVED,
};

enum {
	WIRE_SYN_ACK = 0x1f, /**< ACK without end-to-end credits */
	WIRE_SYN_RNR = 0x20, /**< plus a timer code of 5 bits */
	WIRE_SYN_NAK_PSN = 0x60,
	WIRE_SYN_NAK_INVALID = 0x61,
	WIRE_SYN_NAK_ACCESS = 0x62,
	WIRE_SYN_NAK_OPERATIONAL = 0x63,
	WIRE_SYN_NAK_RD_INVALID = 0x64,
};

enum wire_aeth_kind wire_aeth_kind(uint8_t syndrome);

/** Nanoseconds of an RNR timer code (5 bits; higher bits are ignored). */
uint64_t wire_rnr_ns(unsigned code);

/** The shortest RNR timer code that waits at least `ns`; the longest (0) when none does. */
unsigned wire_rnr_code(uint64_t ns);

/** Nanoseconds of an ACK time-out code, 4.096 us * 2^code; 0 means no time-out. */
uint64_t wire_ack_timeout_ns(unsigned code);

/** The shortest ACK time-out code of at least `ns`, at most 31. */
unsigned wire_ack_timeout_code(uint64_t ns);

/**
 * UDP source port of a queue pair, from the flow label or, when that is 0, from the two QPNs: in
 * 0xc000..0xffff. Routers spread flows by it.
 */
uint16_t wire_udp_sport(uint32_t flow_label, uint32_t lqpn, uint32_t rqpn);

#endif
