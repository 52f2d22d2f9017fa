/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/rsocket.h"

#include <errno.h>
#include <string.h>

#include "wire/bytes.h"

static void get_sge(struct wire_rsock_sge *s, const uint8_t *p)
{
	s->addr = wire_get_be64(p);
	s->key = wire_get_be32(p + 8);
	s->length = wire_get_be32(p + 12);
}

static void put_sge(const struct wire_rsock_sge *s, uint8_t *p)
{
	wire_put_be64(p, s->addr);
	wire_put_be32(p + 8, s->key);
	wire_put_be32(p + 12, s->length);
}

int wire_rsock_conn_decode(struct wire_rsock_conn *c, const uint8_t *p, size_t len)
{
	uint8_t iomap;

	if (len < WIRE_RSOCK_CONN_LEN)
		return -EMSGSIZE;
	if (p[WIRE_RSOCK_AT_VERSION] != WIRE_RSOCK_VERSION)
		return -EPROTONOSUPPORT;
	iomap = p[WIRE_RSOCK_AT_IOMAP_SIZE];
	c->flags = p[WIRE_RSOCK_AT_FLAGS];
	c->credits = wire_get_be16(p + WIRE_RSOCK_AT_CREDITS);
	/* Small sizes as they are, larger ones in units of 256. */
	c->iomap_size = iomap <= 128 ? iomap : (uint32_t)(iomap & 0x7f) << 8;
	get_sge(&c->sgl, p + WIRE_RSOCK_AT_SGL);
	get_sge(&c->data, p + WIRE_RSOCK_AT_DATA);
	if (c->credits < WIRE_RSOCK_MIN_CREDITS || c->sgl.length < WIRE_RSOCK_MIN_SGL ||
	    !c->data.length)
		return -EPROTO;
	return 0;
}

void wire_rsock_conn_encode(const struct wire_rsock_conn *c, uint8_t p[WIRE_RSOCK_CONN_LEN])
{
	memset(p, 0, WIRE_RSOCK_CONN_LEN);
	p[WIRE_RSOCK_AT_VERSION] = WIRE_RSOCK_VERSION;
	p[WIRE_RSOCK_AT_FLAGS] = c->flags;
	wire_put_be16(p + WIRE_RSOCK_AT_CREDITS, c->credits);
	p[WIRE_RSOCK_AT_IOMAP_SIZE] = c->iomap_size <= 128
					      ? (uint8_t)c->iomap_size
					      : (uint8_t)(0x80 | (c->iomap_size >> 8 & 0x7f));
	put_sge(&c->sgl, p + WIRE_RSOCK_AT_SGL);
	put_sge(&c->data, p + WIRE_RSOCK_AT_DATA);
}

int wire_rsock_imm_decode(struct wire_rsock_msg *m, uint32_t imm)
{
	m->op = imm >> WIRE_RSOCK_OP_SHIFT;
	m->value = imm & WIRE_RSOCK_VALUE_MASK;
	switch (m->op) {
	case WIRE_RSOCK_OP_DATA:
		return m->value ? 0 : -EPROTO;
	case WIRE_RSOCK_OP_SGL:
	case WIRE_RSOCK_OP_IOMAP:
		return 0;
	case WIRE_RSOCK_OP_CTRL:
		return m->value <= WIRE_RSOCK_SHUTDOWN ? 0 : -EPROTO;
	default:
		return -EPROTO;
	}
}

void wire_rsock_sge_encode(const struct wire_rsock_sge *s, bool big_endian,
			   uint8_t p[WIRE_RSOCK_SGE_LEN])
{
	if (big_endian) {
		put_sge(s, p);
		return;
	}
	wire_put_le32(p, (uint32_t)s->addr);
	wire_put_le32(p + 4, (uint32_t)(s->addr >> 32));
	wire_put_le32(p + 8, s->key);
	wire_put_le32(p + 12, s->length);
}

void wire_rsock_sge_decode(struct wire_rsock_sge *s, bool big_endian,
			   const uint8_t p[WIRE_RSOCK_SGE_LEN])
{
	if (big_endian) {
		get_sge(s, p);
		return;
	}
	s->addr = (uint64_t)wire_get_le32(p + 4) << 32 | wire_get_le32(p);
	s->key = wire_get_le32(p + 8);
	s->length = wire_get_le32(p + 12);
}
