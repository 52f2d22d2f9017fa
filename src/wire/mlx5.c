/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/mlx5.h"

#include <errno.h>
#include <string.h>

#include "wire/bytes.h"

enum {
	CTRL_CQ_UPDATE = 0x08,
	CTRL_SOLICITED = 0x02,
	CTRL_FENCE = 0x80,
	AV_LEN = 48,
};

#define INLINE_FLAG UINT32_C(0x80000000)
#define AV_EXTENDED UINT32_C(0x80000000)

/* What lies between control and data, by opcode; 0xff: unknown. */
enum { HAS_RADDR = 1, HAS_ATOMIC = 2, HAS_AV = 4, HAS_NOTHING = 8, UNKNOWN = 0xff };

static unsigned shape(uint8_t opcode, bool datagram)
{
	switch (opcode) {
	case WIRE_MLX5_NOP:
	case WIRE_MLX5_DUMP:
		return HAS_NOTHING;
	case WIRE_MLX5_SEND:
	case WIRE_MLX5_SEND_IMM:
	case WIRE_MLX5_SEND_INVAL:
		return datagram ? HAS_AV : 0;
	case WIRE_MLX5_WRITE:
	case WIRE_MLX5_WRITE_IMM:
	case WIRE_MLX5_READ:
		return HAS_RADDR;
	case WIRE_MLX5_ATOMIC_CS:
	case WIRE_MLX5_ATOMIC_FA:
		return HAS_RADDR | HAS_ATOMIC;
	default:
		return UNKNOWN;
	}
}

unsigned wire_mlx5_wqe_ds(const uint8_t *p)
{
	return p[7] & 0x3f;
}

static void av_get(struct wire_mlx5_av *av, const uint8_t *p)
{
	uint32_t gid_fl = wire_get_be32(p + 28);

	av->qkey = wire_get_be32(p);
	av->dqpn = wire_get_be32(p + 8) & 0xffffff;
	memcpy(av->rmac, p + 20, 6);
	av->tclass = p[26];
	av->hop_limit = p[27];
	av->sgid_index = (uint8_t)(gid_fl >> 20);
	av->flow = gid_fl & 0xfffff;
	memcpy(av->rgid, p + 32, 16);
}

static void av_put(uint8_t *p, const struct wire_mlx5_av *av)
{
	memset(p, 0, AV_LEN);
	wire_put_be32(p, av->qkey);
	wire_put_be32(p + 8, AV_EXTENDED | (av->dqpn & 0xffffff));
	memcpy(p + 20, av->rmac, 6);
	p[26] = av->tclass;
	p[27] = av->hop_limit;
	wire_put_be32(p + 28, (uint32_t)av->sgid_index << 20 | (av->flow & 0xfffff));
	memcpy(p + 32, av->rgid, 16);
}

/* The data segments in [p, end), which is whole segments. */
static int data_get(struct wire_mlx5_wqe *w, const uint8_t *p, const uint8_t *end)
{
	while (p < end) {
		uint32_t count = wire_get_be32(p);

		if (count & INLINE_FLAG) {
			/* Inline data is all of it, and the last segment. */
			count &= ~INLINE_FLAG;
			if (w->ndata || count > (size_t)(end - p) - 4)
				return -EINVAL;
			w->inl = p + 4;
			w->inl_len = count;
			return 0;
		}
		w->data[w->ndata++] = (struct wire_mlx5_data){ wire_get_be64(p + 8), count,
							       wire_get_be32(p + 4) };
		p += WIRE_MLX5_SEG;
	}
	return 0;
}

int wire_mlx5_wqe_decode(struct wire_mlx5_wqe *w, const uint8_t *p, size_t len, bool datagram)
{
	const uint8_t *end;
	unsigned has;
	size_t fixed;

	memset(w, 0, offsetof(struct wire_mlx5_wqe, data));
	if (len < WIRE_MLX5_SEG)
		return -EMSGSIZE;
	w->opcode = p[3];
	w->index = wire_get_be16(p + 1);
	w->qpn = wire_get_be24(p + 4);
	w->ds = wire_mlx5_wqe_ds(p);
	w->cq_update = p[11] & CTRL_CQ_UPDATE;
	w->solicited = p[11] & CTRL_SOLICITED;
	w->fence = p[11] & CTRL_FENCE;
	w->imm = wire_get_be32(p + 12);
	if (w->ds * WIRE_MLX5_SEG > len)
		return -EMSGSIZE;
	has = shape(w->opcode, datagram);
	if (has == UNKNOWN)
		return -EOPNOTSUPP;
	if (has & HAS_NOTHING)
		return w->ds ? 0 : -EINVAL;
	fixed = WIRE_MLX5_SEG + (has & HAS_AV ? AV_LEN : 0) +
		(has & HAS_RADDR ? WIRE_MLX5_SEG : 0) + (has & HAS_ATOMIC ? WIRE_MLX5_SEG : 0);
	if (w->ds * WIRE_MLX5_SEG < fixed)
		return -EINVAL;
	end = p + w->ds * WIRE_MLX5_SEG;
	p += WIRE_MLX5_SEG;
	if (has & HAS_AV) {
		av_get(&w->av, p);
		p += AV_LEN;
	}
	if (has & HAS_RADDR) {
		w->raddr = wire_get_be64(p);
		w->rkey = wire_get_be32(p + 8);
		p += WIRE_MLX5_SEG;
	}
	if (has & HAS_ATOMIC) {
		w->swap_add = wire_get_be64(p);
		w->compare = wire_get_be64(p + 8);
		p += WIRE_MLX5_SEG;
	}
	return data_get(w, p, end);
}

static uint8_t *data_put(uint8_t *p, const struct wire_mlx5_wqe *w)
{
	unsigned i;

	if (w->inl) {
		wire_put_be32(p, INLINE_FLAG | w->inl_len);
		memcpy(p + 4, w->inl, w->inl_len);
		return p + (4 + w->inl_len + WIRE_MLX5_SEG - 1) / WIRE_MLX5_SEG * WIRE_MLX5_SEG;
	}
	for (i = 0; i < w->ndata; i++) {
		wire_put_be32(p, w->data[i].len & ~INLINE_FLAG);
		wire_put_be32(p + 4, w->data[i].lkey);
		wire_put_be64(p + 8, w->data[i].addr);
		p += WIRE_MLX5_SEG;
	}
	return p;
}

/* Bytes that a WQE takes. */
static size_t wqe_len(const struct wire_mlx5_wqe *w, unsigned has)
{
	size_t n = WIRE_MLX5_SEG;

	if (has & HAS_NOTHING)
		return n;
	n += has & HAS_AV ? AV_LEN : 0;
	n += has & HAS_RADDR ? WIRE_MLX5_SEG : 0;
	n += has & HAS_ATOMIC ? WIRE_MLX5_SEG : 0;
	if (w->inl)
		return n +
		       (4 + (size_t)w->inl_len + WIRE_MLX5_SEG - 1) / WIRE_MLX5_SEG * WIRE_MLX5_SEG;
	return n + (size_t)w->ndata * WIRE_MLX5_SEG;
}

int wire_mlx5_wqe_encode(struct wire_mlx5_wqe *w, uint8_t *p, size_t cap, bool datagram)
{
	unsigned has = shape(w->opcode, datagram);
	uint8_t *at = p + WIRE_MLX5_SEG;
	size_t n;

	if (has == UNKNOWN)
		return -EOPNOTSUPP;
	n = wqe_len(w, has);
	if (n > cap || n > WIRE_MLX5_MAX_WQE)
		return -ENOBUFS;
	memset(p, 0, n);
	w->ds = (unsigned)(n / WIRE_MLX5_SEG);
	wire_put_be32(p, (uint32_t)w->index << 8 | w->opcode);
	wire_put_be32(p + 4, w->qpn << 8 | w->ds);
	p[11] = (uint8_t)((w->cq_update ? CTRL_CQ_UPDATE : 0) |
			  (w->solicited ? CTRL_SOLICITED : 0) | (w->fence ? CTRL_FENCE : 0));
	wire_put_be32(p + 12, w->imm);
	if (has & HAS_NOTHING)
		return (int)n;
	if (has & HAS_AV) {
		av_put(at, &w->av);
		at += AV_LEN;
	}
	if (has & HAS_RADDR) {
		wire_put_be64(at, w->raddr);
		wire_put_be32(at + 8, w->rkey);
		at += WIRE_MLX5_SEG;
	}
	if (has & HAS_ATOMIC) {
		wire_put_be64(at, w->swap_add);
		wire_put_be64(at + 8, w->compare);
		at += WIRE_MLX5_SEG;
	}
	data_put(at, w);
	return (int)n;
}

unsigned wire_mlx5_recv_decode(const uint8_t *p, size_t stride, struct wire_mlx5_data *d,
			       unsigned max)
{
	unsigned n = 0;

	for (; stride >= WIRE_MLX5_SEG && n < max; stride -= WIRE_MLX5_SEG, p += WIRE_MLX5_SEG) {
		uint32_t lkey = wire_get_be32(p + 4);

		if (lkey == WIRE_MLX5_LKEY_END)
			break;
		d[n++] = (struct wire_mlx5_data){ wire_get_be64(p + 8),
						  wire_get_be32(p) & ~INLINE_FLAG, lkey };
	}
	return n;
}

int wire_mlx5_recv_encode(uint8_t *p, size_t stride, const struct wire_mlx5_data *d, unsigned n)
{
	unsigned i;

	if ((size_t)n * WIRE_MLX5_SEG > stride)
		return -ENOBUFS;
	memset(p, 0, stride);
	for (i = 0; i < n; i++, p += WIRE_MLX5_SEG) {
		wire_put_be32(p, d[i].len & ~INLINE_FLAG);
		wire_put_be32(p + 4, d[i].lkey);
		wire_put_be64(p + 8, d[i].addr);
	}
	if ((size_t)(n + 1) * WIRE_MLX5_SEG <= stride)
		wire_put_be32(p + 4, WIRE_MLX5_LKEY_END);
	return 0;
}

/* --- completions -------------------------------------------------------------------------------- */

static bool is_error(uint8_t opcode)
{
	return opcode == WIRE_MLX5_CQE_REQ_ERR || opcode == WIRE_MLX5_CQE_RESP_ERR;
}

uint8_t wire_mlx5_cqe_encode(const struct wire_mlx5_cqe *c, uint8_t p[WIRE_MLX5_CQE], bool owner)
{
	memset(p, 0, WIRE_MLX5_CQE - 1);
	if (is_error(c->opcode)) {
		p[54] = c->vendor;
		p[55] = c->syndrome;
	} else {
		/* Bits 28 and 29: GRH present, and what kind. */
		wire_put_be32(p + 24,
			      (c->grh ? UINT32_C(0x10000000) : 0) | (c->src_qpn & 0xffffff));
		wire_put_be32(p + 36, c->imm);
		wire_put_be32(p + 44, c->byte_cnt);
		wire_put_be64(p + 48, c->timestamp);
	}
	wire_put_be32(p + 56, (uint32_t)c->send_opcode << 24 | (c->qpn & 0xffffff));
	wire_put_be16(p + 60, c->wqe_counter);
	return (uint8_t)(c->opcode << 4 | (c->solicited ? 2 : 0) | (owner ? 1 : 0));
}

void wire_mlx5_cqe_decode(struct wire_mlx5_cqe *c, const uint8_t p[WIRE_MLX5_CQE])
{
	memset(c, 0, sizeof(*c));
	c->opcode = p[63] >> 4;
	c->solicited = p[63] & 2;
	c->send_opcode = p[56];
	c->qpn = wire_get_be24(p + 57);
	c->wqe_counter = wire_get_be16(p + 60);
	if (is_error(c->opcode)) {
		c->vendor = p[54];
		c->syndrome = p[55];
		return;
	}
	c->src_qpn = wire_get_be24(p + 25);
	c->grh = p[24] & 0x30;
	c->imm = wire_get_be32(p + 36);
	c->byte_cnt = wire_get_be32(p + 44);
	c->timestamp = wire_get_be64(p + 48);
}

/* Index: status as libibverbs counts them. */
static const uint8_t syndrome_of[14] = { 0,    0x01, 0x02, 0x02, 0x04, 0x05, 0x06,
					 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16 };

uint8_t wire_mlx5_syndrome(uint32_t status)
{
	return status < sizeof(syndrome_of) ? syndrome_of[status] : 0x02;
}

uint32_t wire_mlx5_status(uint8_t syndrome)
{
	uint32_t i;

	for (i = sizeof(syndrome_of) - 1; i; i--)
		if (syndrome_of[i] == syndrome && i != 3)
			return i;
	return syndrome == 0x22 ? 16 : 21; /* aborted by the peer; general error */
}
