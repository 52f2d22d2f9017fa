/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/roce.h"

#include <errno.h>
#include <string.h>

#include "wire/bytes.h"
#include "wire/icrc.h"

/* Operations of the reliable connection; UC and UD take the part that they have from it. */
static const struct {
	unsigned flags;
	const char *name[3]; /* RC, UC, UD; NULL where the transport lacks it */
} ops[0x20] = {
	[WIRE_SEND_FIRST] = { WIRE_F_SEND | WIRE_F_FIRST | WIRE_F_PAYLOAD,
			      { "RC SEND_FIRST", "UC SEND_FIRST", NULL } },
	[WIRE_SEND_MIDDLE] = { WIRE_F_SEND | WIRE_F_PAYLOAD,
			       { "RC SEND_MIDDLE", "UC SEND_MIDDLE", NULL } },
	[WIRE_SEND_LAST] = { WIRE_F_SEND | WIRE_F_LAST | WIRE_F_PAYLOAD,
			     { "RC SEND_LAST", "UC SEND_LAST", NULL } },
	[WIRE_SEND_LAST_IMM] = { WIRE_F_SEND | WIRE_F_LAST | WIRE_F_PAYLOAD | WIRE_X_IMM,
				 { "RC SEND_LAST_IMM", "UC SEND_LAST_IMM", NULL } },
	[WIRE_SEND_ONLY] = { WIRE_F_SEND | WIRE_F_ONLY | WIRE_F_PAYLOAD,
			     { "RC SEND_ONLY", "UC SEND_ONLY", "UD SEND_ONLY" } },
	[WIRE_SEND_ONLY_IMM] = { WIRE_F_SEND | WIRE_F_ONLY | WIRE_F_PAYLOAD | WIRE_X_IMM,
				 { "RC SEND_ONLY_IMM", "UC SEND_ONLY_IMM", "UD SEND_ONLY_IMM" } },
	[WIRE_WRITE_FIRST] = { WIRE_F_WRITE | WIRE_F_FIRST | WIRE_F_PAYLOAD | WIRE_X_RETH,
			       { "RC WRITE_FIRST", "UC WRITE_FIRST", NULL } },
	[WIRE_WRITE_MIDDLE] = { WIRE_F_WRITE | WIRE_F_PAYLOAD,
				{ "RC WRITE_MIDDLE", "UC WRITE_MIDDLE", NULL } },
	[WIRE_WRITE_LAST] = { WIRE_F_WRITE | WIRE_F_LAST | WIRE_F_PAYLOAD,
			      { "RC WRITE_LAST", "UC WRITE_LAST", NULL } },
	[WIRE_WRITE_LAST_IMM] = { WIRE_F_WRITE | WIRE_F_LAST | WIRE_F_PAYLOAD | WIRE_X_IMM,
				  { "RC WRITE_LAST_IMM", "UC WRITE_LAST_IMM", NULL } },
	[WIRE_WRITE_ONLY] = { WIRE_F_WRITE | WIRE_F_ONLY | WIRE_F_PAYLOAD | WIRE_X_RETH,
			      { "RC WRITE_ONLY", "UC WRITE_ONLY", NULL } },
	[WIRE_WRITE_ONLY_IMM] = { WIRE_F_WRITE | WIRE_F_ONLY | WIRE_F_PAYLOAD | WIRE_X_RETH |
					  WIRE_X_IMM,
				  { "RC WRITE_ONLY_IMM", "UC WRITE_ONLY_IMM", NULL } },
	[WIRE_READ_REQ] = { WIRE_F_READ | WIRE_F_ONLY | WIRE_X_RETH,
			    { "RC READ_REQUEST", NULL, NULL } },
	[WIRE_READ_RESP_FIRST] = { WIRE_F_RESPONSE | WIRE_F_FIRST | WIRE_F_PAYLOAD | WIRE_X_AETH,
				   { "RC READ_RESPONSE_FIRST", NULL, NULL } },
	[WIRE_READ_RESP_MIDDLE] = { WIRE_F_RESPONSE | WIRE_F_PAYLOAD,
				    { "RC READ_RESPONSE_MIDDLE", NULL, NULL } },
	[WIRE_READ_RESP_LAST] = { WIRE_F_RESPONSE | WIRE_F_LAST | WIRE_F_PAYLOAD | WIRE_X_AETH,
				  { "RC READ_RESPONSE_LAST", NULL, NULL } },
	[WIRE_READ_RESP_ONLY] = { WIRE_F_RESPONSE | WIRE_F_ONLY | WIRE_F_PAYLOAD | WIRE_X_AETH,
				  { "RC READ_RESPONSE_ONLY", NULL, NULL } },
	[WIRE_ACK] = { WIRE_F_RESPONSE | WIRE_F_ONLY | WIRE_X_AETH,
		       { "RC ACKNOWLEDGE", NULL, NULL } },
	[WIRE_ATOMIC_ACK] = { WIRE_F_RESPONSE | WIRE_F_ONLY | WIRE_X_AETH | WIRE_X_ATOMIC_ACK,
			      { "RC ATOMIC_ACKNOWLEDGE", NULL, NULL } },
	[WIRE_CMP_SWAP] = { WIRE_F_ATOMIC_REQ | WIRE_F_ONLY | WIRE_X_ATOMIC,
			    { "RC CMP_SWAP", NULL, NULL } },
	[WIRE_FETCH_ADD] = { WIRE_F_ATOMIC_REQ | WIRE_F_ONLY | WIRE_X_ATOMIC,
			     { "RC FETCH_ADD", NULL, NULL } },
	[WIRE_SEND_LAST_INV] = { WIRE_F_SEND | WIRE_F_LAST | WIRE_F_PAYLOAD | WIRE_X_IETH,
				 { "RC SEND_LAST_INV", NULL, NULL } },
	[WIRE_SEND_ONLY_INV] = { WIRE_F_SEND | WIRE_F_ONLY | WIRE_F_PAYLOAD | WIRE_X_IETH,
				 { "RC SEND_ONLY_INV", NULL, NULL } },
};

/* Index of the transport in ops[].name, or -1. */
static int transport_index(uint8_t opcode)
{
	switch (opcode & WIRE_TRANSPORT_MASK) {
	case WIRE_RC:
		return 0;
	case WIRE_UC:
		return 1;
	case WIRE_UD:
		return 2;
	default:
		return -1;
	}
}

unsigned wire_opcode_flags(uint8_t opcode)
{
	int t = transport_index(opcode);

	if (opcode == WIRE_CNP)
		return WIRE_F_ONLY | WIRE_F_PAYLOAD;
	if (t < 0 || !ops[opcode & 0x1f].name[t])
		return 0;
	return ops[opcode & 0x1f].flags | (t == 2 ? WIRE_X_DETH : 0);
}

const char *wire_opcode_name(uint8_t opcode)
{
	int t = transport_index(opcode);

	if (opcode == WIRE_CNP)
		return "CNP";
	if (t < 0 || !ops[opcode & 0x1f].name[t])
		return "unknown";
	return ops[opcode & 0x1f].name[t];
}

size_t wire_roce_hdr_len(unsigned flags)
{
	size_t n = WIRE_BTH_LEN;

	n += flags & WIRE_X_DETH ? WIRE_DETH_LEN : 0;
	n += flags & WIRE_X_RETH ? WIRE_RETH_LEN : 0;
	n += flags & WIRE_X_ATOMIC ? WIRE_ATOMIC_LEN : 0;
	n += flags & WIRE_X_AETH ? WIRE_AETH_LEN : 0;
	n += flags & WIRE_X_ATOMIC_ACK ? WIRE_ATOMIC_ACK_LEN : 0;
	n += flags & WIRE_X_IMM ? WIRE_IMM_LEN : 0;
	n += flags & WIRE_X_IETH ? WIRE_IETH_LEN : 0;
	return n;
}

void wire_bth_get(struct wire_bth *bth, const uint8_t *buf)
{
	bth->opcode = buf[0];
	bth->solicited = buf[1] & 0x80;
	bth->mig = buf[1] & 0x40;
	bth->pad = buf[1] >> 4 & 3;
	bth->tver = buf[1] & 0xf;
	bth->pkey = wire_get_be16(buf + 2);
	bth->fecn = buf[4] & 0x80;
	bth->becn = buf[4] & 0x40;
	bth->rsv6 = buf[4] & 0x3f;
	bth->dqpn = wire_get_be24(buf + 5);
	bth->ack_req = buf[8] & 0x80;
	bth->rsv7 = buf[8] & 0x7f;
	bth->psn = wire_get_be24(buf + 9);
}

void wire_bth_put(uint8_t *buf, const struct wire_bth *bth)
{
	buf[0] = bth->opcode;
	buf[1] = (uint8_t)((bth->solicited ? 0x80 : 0) | (bth->mig ? 0x40 : 0) |
			   (bth->pad & 3) << 4 | (bth->tver & 0xf));
	wire_put_be16(buf + 2, bth->pkey);
	buf[4] = (uint8_t)((bth->fecn ? 0x80 : 0) | (bth->becn ? 0x40 : 0) | (bth->rsv6 & 0x3f));
	wire_put_be24(buf + 5, bth->dqpn);
	buf[8] = (uint8_t)((bth->ack_req ? 0x80 : 0) | (bth->rsv7 & 0x7f));
	wire_put_be24(buf + 9, bth->psn);
}

/* Decodes the extension headers at `p` in the order of the wire; returns where they end. */
static const uint8_t *ext_get(struct wire_roce *r, const uint8_t *p)
{
	if (r->flags & WIRE_X_DETH) {
		r->deth = (struct wire_deth){ wire_get_be32(p), p[4], wire_get_be24(p + 5) };
		p += WIRE_DETH_LEN;
	}
	if (r->flags & WIRE_X_RETH) {
		r->reth = (struct wire_reth){ wire_get_be64(p), wire_get_be32(p + 8),
					      wire_get_be32(p + 12) };
		p += WIRE_RETH_LEN;
	}
	if (r->flags & WIRE_X_ATOMIC) {
		r->atomic = (struct wire_atomic){ wire_get_be64(p), wire_get_be32(p + 8),
						  wire_get_be64(p + 12), wire_get_be64(p + 20) };
		p += WIRE_ATOMIC_LEN;
	}
	if (r->flags & WIRE_X_AETH) {
		r->aeth = (struct wire_aeth){ p[0], wire_get_be24(p + 1) };
		p += WIRE_AETH_LEN;
	}
	if (r->flags & WIRE_X_ATOMIC_ACK) {
		r->atomic_orig = wire_get_be64(p);
		p += WIRE_ATOMIC_ACK_LEN;
	}
	if (r->flags & WIRE_X_IMM) {
		r->imm = wire_get_be32(p);
		p += WIRE_IMM_LEN;
	}
	if (r->flags & WIRE_X_IETH) {
		r->inv_rkey = wire_get_be32(p);
		p += WIRE_IETH_LEN;
	}
	return p;
}

int wire_roce_decode(struct wire_roce *r, const uint8_t *buf, size_t len)
{
	size_t hdr, rest;

	memset(r, 0, sizeof(*r));
	if (len < WIRE_BTH_LEN + WIRE_ICRC_LEN)
		return -EMSGSIZE;
	wire_bth_get(&r->bth, buf);
	r->flags = wire_opcode_flags(r->bth.opcode);
	if (!r->flags)
		return -EPROTONOSUPPORT;
	hdr = wire_roce_hdr_len(r->flags);
	if (len < hdr + WIRE_ICRC_LEN)
		return -EMSGSIZE;
	rest = len - hdr - WIRE_ICRC_LEN;
	if (rest < r->bth.pad)
		return -EBADMSG;
	r->payload = ext_get(r, buf + WIRE_BTH_LEN);
	r->payload_len = rest - r->bth.pad;
	r->icrc = wire_get_le32(buf + len - WIRE_ICRC_LEN);
	return 0;
}

/* Encodes the extension headers at `p` in the order of the wire. */
static void ext_put(uint8_t *p, const struct wire_roce *r, unsigned flags)
{
	if (flags & WIRE_X_DETH) {
		wire_put_be32(p, r->deth.qkey);
		p[4] = r->deth.rsv;
		wire_put_be24(p + 5, r->deth.sqpn);
		p += WIRE_DETH_LEN;
	}
	if (flags & WIRE_X_RETH) {
		wire_put_be64(p, r->reth.va);
		wire_put_be32(p + 8, r->reth.rkey);
		wire_put_be32(p + 12, r->reth.len);
		p += WIRE_RETH_LEN;
	}
	if (flags & WIRE_X_ATOMIC) {
		wire_put_be64(p, r->atomic.va);
		wire_put_be32(p + 8, r->atomic.rkey);
		wire_put_be64(p + 12, r->atomic.swap_add);
		wire_put_be64(p + 20, r->atomic.compare);
		p += WIRE_ATOMIC_LEN;
	}
	if (flags & WIRE_X_AETH) {
		p[0] = r->aeth.syndrome;
		wire_put_be24(p + 1, r->aeth.msn);
		p += WIRE_AETH_LEN;
	}
	if (flags & WIRE_X_ATOMIC_ACK) {
		wire_put_be64(p, r->atomic_orig);
		p += WIRE_ATOMIC_ACK_LEN;
	}
	if (flags & WIRE_X_IMM) {
		wire_put_be32(p, r->imm);
		p += WIRE_IMM_LEN;
	}
	if (flags & WIRE_X_IETH)
		wire_put_be32(p, r->inv_rkey);
}

int wire_roce_encode_hdr(const struct wire_roce *r, uint8_t *buf, size_t cap)
{
	unsigned flags = wire_opcode_flags(r->bth.opcode);
	size_t n = wire_roce_hdr_len(flags);

	if (!flags)
		return -EPROTONOSUPPORT;
	if (cap < n)
		return -ENOBUFS;
	wire_bth_put(buf, &r->bth);
	ext_put(buf + WIRE_BTH_LEN, r, flags);
	return (int)n;
}

int wire_roce_encode(const struct wire_roce *r, uint8_t *buf, size_t cap)
{
	int n = wire_roce_encode_hdr(r, buf, cap);
	size_t tail = (r->bth.pad & 3) + WIRE_ICRC_LEN;
	size_t len;

	if (n < 0)
		return n;
	len = (size_t)n;
	if (cap - len < tail || cap - len - tail < r->payload_len)
		return -ENOBUFS;
	if (r->payload_len)
		memcpy(buf + len, r->payload, r->payload_len);
	len += r->payload_len;
	memset(buf + len, 0, r->bth.pad & 3);
	len += r->bth.pad & 3;
	wire_put_le32(buf + len, r->icrc);
	return (int)(len + WIRE_ICRC_LEN);
}

unsigned wire_mtu_bytes(unsigned code)
{
	return code >= 1 && code <= 5 ? 128u << code : 0;
}

unsigned wire_mtu_code(unsigned bytes)
{
	unsigned code = 5;

	while (code && wire_mtu_bytes(code) > bytes)
		code--;
	return code;
}

enum wire_aeth_kind wire_aeth_kind(uint8_t syndrome)
{
	switch (syndrome >> 5) {
	case 0:
		return WIRE_AETH_ACK;
	case 1:
		return WIRE_AETH_RNR;
	case 3:
		return WIRE_AETH_NAK;
	default:
		return WIRE_AETH_RESERVED;
	}
}

/* In units of 10 us. */
static const uint16_t rnr_10us[32] = {
	65535, 1,    2,    3,    4,    6,     8,     12,    16,    24,    32,
	48,    64,   96,   128,  192,  256,   384,   512,   768,   1024,  1536,
	2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

uint64_t wire_rnr_ns(unsigned code)
{
	code &= 31;
	/* 655.36 ms is one unit more than 16 bits hold. */
	return ((uint64_t)rnr_10us[code] + (code == 0)) * 10000;
}

unsigned wire_rnr_code(uint64_t ns)
{
	unsigned code;

	for (code = 1; code < 32; code++)
		if (wire_rnr_ns(code) >= ns)
			return code;
	return 0;
}

uint64_t wire_ack_timeout_ns(unsigned code)
{
	return code & 31 ? UINT64_C(4096) << (code & 31) : 0;
}

unsigned wire_ack_timeout_code(uint64_t ns)
{
	unsigned code = 1;

	while (code < 31 && wire_ack_timeout_ns(code) < ns)
		code++;
	return code;
}

uint16_t wire_udp_sport(uint32_t flow_label, uint32_t lqpn, uint32_t rqpn)
{
	uint64_t fl = flow_label & 0xfffff;

	if (!fl) {
		fl = (uint64_t)(lqpn & WIRE_QPN_MASK) * (rqpn & WIRE_QPN_MASK);
		fl ^= fl >> 20;
		fl ^= fl >> 40;
	}
	return (uint16_t)(((fl & 0x3fff) ^ (fl >> 14 & 0x3f)) | 0xc000);
}
