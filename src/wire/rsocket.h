/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_RSOCKET_H
#define GPUNET_WIRE_RSOCKET_H

/*
 * The rsocket stream protocol of librdmacm: what its private data, immediates and SGL entries say. docs/wire/rsocket.md is
 * the protocol. No I/O, no allocation, no state.
 *
 * Everything that is decoded here comes from a peer that may be broken or hostile.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WIRE_RSOCK_VERSION = 1,
	WIRE_RSOCK_CONN_LEN = 40, /**< private data of REQ (after the RDMA CM's header) and REP */
	WIRE_RSOCK_SGE_LEN = 16,
};

/** Flags of the private data. */
enum {
	WIRE_RSOCK_BIG_ENDIAN = 1 << 0, /**< its sender is a big-endian host */
	WIRE_RSOCK_IOMAP = 1 << 1,
};

/** Where a peer may write: an address, a key and a length. In the SGL array, by the byte order of the array's owner. */
struct wire_rsock_sge {
	uint64_t addr;
	uint32_t key;
	uint32_t length;
};

/** The private data of both directions. */
struct wire_rsock_conn {
	uint8_t flags;
	uint16_t credits;           /**< receives that are posted: the first limit */
	uint32_t iomap_size;        /**< 0..128, or a multiple of 256 up to 32512 */
	struct wire_rsock_sge sgl;  /**< the SGL array; length: its entries */
	struct wire_rsock_sge data; /**< the first half of the receive buffer */
};

enum {
	WIRE_RSOCK_AT_VERSION = 0,
	WIRE_RSOCK_AT_FLAGS = 1,
	WIRE_RSOCK_AT_CREDITS = 2,
	WIRE_RSOCK_AT_IOMAP_SIZE = 7,
	WIRE_RSOCK_AT_SGL = 8,
	WIRE_RSOCK_AT_DATA = 24,
};

/** Fewer than these a connection cannot work with: refused. */
enum {
	WIRE_RSOCK_MIN_CREDITS = 4,
	WIRE_RSOCK_MIN_SGL = 2,
};

/**
 * Decodes private data of which `len` bytes may be meant. 0, or
 *   -EMSGSIZE        fewer than 40 bytes
 *   -EPROTONOSUPPORT another version
 *   -EPROTO          credits, SGL entries or a data buffer that no stream can flow with
 */
int wire_rsock_conn_decode(struct wire_rsock_conn *c, const uint8_t *p, size_t len);

/** Encodes 40 bytes. */
void wire_rsock_conn_encode(const struct wire_rsock_conn *c, uint8_t p[WIRE_RSOCK_CONN_LEN]);

/** What an immediate says, its upper three bits. */
enum {
	WIRE_RSOCK_OP_DATA = 0,  /**< value: bytes */
	WIRE_RSOCK_OP_SGL = 4,   /**< value: the new limit, modulo 2^16 */
	WIRE_RSOCK_OP_IOMAP = 6, /**< value: an index */
	WIRE_RSOCK_OP_CTRL = 7,  /**< value: WIRE_RSOCK_DISCONNECT … */
};

enum {
	WIRE_RSOCK_DISCONNECT = 0, /**< both directions end */
	WIRE_RSOCK_KEEPALIVE = 1,
	WIRE_RSOCK_SHUTDOWN = 2, /**< its sender sends no more */
};

#define WIRE_RSOCK_OP_SHIFT 29
#define WIRE_RSOCK_VALUE_MASK ((UINT32_C(1) << WIRE_RSOCK_OP_SHIFT) - 1)

static inline uint32_t wire_rsock_imm(unsigned op, uint32_t value)
{
	return (uint32_t)op << WIRE_RSOCK_OP_SHIFT | (value & WIRE_RSOCK_VALUE_MASK);
}

struct wire_rsock_msg {
	unsigned op;
	uint32_t value;
};

/** Takes an immediate apart: 0, or -EPROTO for what a peer must never send: another op or control, DATA of no bytes. */
int wire_rsock_imm_decode(struct wire_rsock_msg *m, uint32_t imm);

/** The entry as it lies in the SGL array of a host of that byte order. */
void wire_rsock_sge_encode(const struct wire_rsock_sge *s, bool big_endian,
			   uint8_t p[WIRE_RSOCK_SGE_LEN]);
void wire_rsock_sge_decode(struct wire_rsock_sge *s, bool big_endian,
			   const uint8_t p[WIRE_RSOCK_SGE_LEN]);

#endif
