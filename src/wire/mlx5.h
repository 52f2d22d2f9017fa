/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_MLX5_H
#define GPUNET_WIRE_MLX5_H

/*
 * Queue entries in the mlx5 formats: send work requests (WQEs), receive entries, completions (CQEs). Whoever drives a
 * ConnectX with them, a GPU kernel too, can drive the software RNIC. Pure functions on bytes; a WQE may be garbage.
 *
 * A send WQE is a chain of 16-byte segments in 64-byte basic blocks: control, then by opcode the address vector (UD),
 * the remote address, the atomic operands, then data pointers or one inline segment.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WIRE_MLX5_BB = 64, /**< basic block of the send queue */
	WIRE_MLX5_SEG = 16,
	WIRE_MLX5_MAX_WQE = 1008, /**< 63 segments */
	WIRE_MLX5_MAX_DATA = 62,
	WIRE_MLX5_CQE = 64,
	WIRE_MLX5_UAR_DB = 0x800,   /**< where in a UAR page the doorbell lies */
	WIRE_MLX5_LKEY_END = 0x100, /**< ends the list of a receive entry */
	WIRE_MLX5_CQE_FREE = 0xf1,  /**< op_own of a completion that was never written */
};

enum {
	WIRE_MLX5_NOP = 0x00,
	WIRE_MLX5_SEND_INVAL = 0x01,
	WIRE_MLX5_WRITE = 0x08,
	WIRE_MLX5_WRITE_IMM = 0x09,
	WIRE_MLX5_SEND = 0x0a,
	WIRE_MLX5_SEND_IMM = 0x0b,
	WIRE_MLX5_READ = 0x10,
	WIRE_MLX5_ATOMIC_CS = 0x11,
	WIRE_MLX5_ATOMIC_FA = 0x12,
	WIRE_MLX5_DUMP = 0x23, /**< does nothing and completes */
};

/** Opcodes of a CQE. */
enum {
	WIRE_MLX5_CQE_REQ = 0,
	WIRE_MLX5_CQE_RESP_WR_IMM = 1,
	WIRE_MLX5_CQE_RESP_SEND = 2,
	WIRE_MLX5_CQE_RESP_SEND_IMM = 3,
	WIRE_MLX5_CQE_RESP_SEND_INV = 4,
	WIRE_MLX5_CQE_REQ_ERR = 13,
	WIRE_MLX5_CQE_RESP_ERR = 14,
	WIRE_MLX5_CQE_INVALID = 15,
};

struct wire_mlx5_data {
	uint64_t addr;
	uint32_t len;
	uint32_t lkey;
};

/** Address vector of a datagram. */
struct wire_mlx5_av {
	uint32_t qkey;
	uint32_t dqpn;
	uint8_t tclass;
	uint8_t hop_limit;
	uint8_t sgid_index;
	uint32_t flow;
	uint8_t rmac[6];
	uint8_t rgid[16];
};

/** A send WQE. */
struct wire_mlx5_wqe {
	uint8_t opcode;
	uint16_t index; /**< of its first basic block, as its maker counts */
	uint32_t qpn;
	unsigned ds; /**< segments */
	bool cq_update;
	bool solicited;
	bool fence;
	uint32_t imm; /**< as a number */
	struct wire_mlx5_av av;
	uint64_t raddr;
	uint32_t rkey;
	uint64_t swap_add;
	uint64_t compare;
	const uint8_t *inl; /**< inline data, or NULL */
	uint32_t inl_len;
	unsigned ndata;
	struct wire_mlx5_data data[WIRE_MLX5_MAX_DATA];
};

/** Basic blocks that `ds` segments take, at least 1. */
static inline unsigned wire_mlx5_blocks(unsigned ds)
{
	return ds > 4 ? (ds + 3) / 4 : 1;
}

/** Number of segments that the control segment at `p` (16 bytes) claims: 0..63. */
unsigned wire_mlx5_wqe_ds(const uint8_t *p);

/**
 * Decodes the WQE at `p`, of which `len` bytes can be read. `datagram`: of a UD queue pair. 0, or -EMSGSIZE: longer than
 * len; -EOPNOTSUPP: opcode (w->opcode is set); -EINVAL: segments that do not fit the opcode. ds, index, qpn and
 * cq_update are set in every case if len >= 16.
 */
int wire_mlx5_wqe_decode(struct wire_mlx5_wqe *w, const uint8_t *p, size_t len, bool datagram);

/**
 * Encodes a WQE, sets w->ds and returns the bytes written (a multiple of 16), or -ENOBUFS, -EOPNOTSUPP.
 */
int wire_mlx5_wqe_encode(struct wire_mlx5_wqe *w, uint8_t *p, size_t cap, bool datagram);

/** Data segments of a receive entry of `stride` bytes, up to its terminator; their number, at most `max`. */
unsigned wire_mlx5_recv_decode(const uint8_t *p, size_t stride, struct wire_mlx5_data *d,
			       unsigned max);

/** Writes them, and the terminator if there is room. -ENOBUFS when they do not fit. */
int wire_mlx5_recv_encode(uint8_t *p, size_t stride, const struct wire_mlx5_data *d, unsigned n);

/** A completion. */
struct wire_mlx5_cqe {
	uint8_t opcode;
	bool solicited;
	uint8_t send_opcode; /**< requester: opcode of the WQE */
	uint32_t qpn;
	uint32_t byte_cnt;
	uint32_t imm; /**< or the key that was invalidated */
	uint16_t wqe_counter;
	uint32_t src_qpn; /**< UD */
	bool grh;
	uint64_t timestamp;
	uint8_t syndrome; /**< of an error */
	uint8_t vendor;
};

/** Encodes all but the last byte, op_own; returns what that byte must become, for the given owner bit. */
uint8_t wire_mlx5_cqe_encode(const struct wire_mlx5_cqe *c, uint8_t p[WIRE_MLX5_CQE], bool owner);

/** Decodes a completion that is there. */
void wire_mlx5_cqe_decode(struct wire_mlx5_cqe *c, const uint8_t p[WIRE_MLX5_CQE]);

/** Syndrome of a status of libibverbs' numbering (not 0), and back. */
uint8_t wire_mlx5_syndrome(uint32_t status);
uint32_t wire_mlx5_status(uint8_t syndrome);

#endif
