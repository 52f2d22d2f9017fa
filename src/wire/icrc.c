/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/icrc.h"

#include <string.h>

#include "wire/bytes.h"

/*
 * Eight tables of 256 entries: table k maps a byte to the register it leaves after k more zero bytes, so
 * that eight bytes are folded in at once. A CRC is linear, so an entry is the XOR of the entries of its
 * set bits: eight constants spell a table and the compiler writes it out. Constant data, hence no set-up.
 */
#define BIT(i, b, c) (((i) >> (b)) & 1 ? (c) : 0)
#define ENTRY(i, a, b, c, d, e, f, g, h)                                                          \
	(UINT32_C(0) ^ BIT(i, 0, a) ^ BIT(i, 1, b) ^ BIT(i, 2, c) ^ BIT(i, 3, d) ^ BIT(i, 4, e) ^ \
	 BIT(i, 5, f) ^ BIT(i, 6, g) ^ BIT(i, 7, h))
#define X4(i, ...)                                                                   \
	ENTRY(i, __VA_ARGS__), ENTRY(i + 1, __VA_ARGS__), ENTRY(i + 2, __VA_ARGS__), \
		ENTRY(i + 3, __VA_ARGS__)
#define X16(i, ...) \
	X4(i, __VA_ARGS__), X4(i + 4, __VA_ARGS__), X4(i + 8, __VA_ARGS__), X4(i + 12, __VA_ARGS__)
#define X64(i, ...)                                                              \
	X16(i, __VA_ARGS__), X16(i + 16, __VA_ARGS__), X16(i + 32, __VA_ARGS__), \
		X16(i + 48, __VA_ARGS__)
#define TABLE(...)                                                                \
	{                                                                         \
		X64(0, __VA_ARGS__), X64(64, __VA_ARGS__), X64(128, __VA_ARGS__), \
			X64(192, __VA_ARGS__)                                     \
	}

static const uint32_t table[8][256] = {
	TABLE(0x77073096, 0xee0e612c, 0x076dc419, 0x0edb8832, 0x1db71064, 0x3b6e20c8, 0x76dc4190,
	      0xedb88320),
	TABLE(0x191b3141, 0x32366282, 0x646cc504, 0xc8d98a08, 0x4ac21251, 0x958424a2, 0xf0794f05,
	      0x3b83984b),
	TABLE(0x01c26a37, 0x0384d46e, 0x0709a8dc, 0x0e1351b8, 0x1c26a370, 0x384d46e0, 0x709a8dc0,
	      0xe1351b80),
	TABLE(0xb8bc6765, 0xaa09c88b, 0x8f629757, 0xc5b428ef, 0x5019579f, 0xa032af3e, 0x9b14583d,
	      0xed59b63b),
	TABLE(0x3d6029b0, 0x7ac05360, 0xf580a6c0, 0x30704bc1, 0x60e09782, 0xc1c12f04, 0x58f35849,
	      0xb1e6b092),
	TABLE(0xcb5cd3a5, 0x4dc8a10b, 0x9b914216, 0xec53826d, 0x03d6029b, 0x07ac0536, 0x0f580a6c,
	      0x1eb014d8),
	TABLE(0xa6770bb4, 0x979f1129, 0xf44f2413, 0x33ef4e67, 0x67de9cce, 0xcfbd399c, 0x440b7579,
	      0x8816eaf2),
	TABLE(0xccaa009e, 0x4225077d, 0x844a0efa, 0xd3e51bb5, 0x7cbb312b, 0xf9766256, 0x299dc2ed,
	      0x533b85da),
};

uint32_t wire_crc32(uint32_t crc, const void *data, size_t len)
{
	size_t n = wire_crc32_fold(&crc, NULL, data, len);

	return wire_crc32_table(crc, (const uint8_t *)data + n, len - n);
}

uint32_t wire_crc32_copy(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t len)
{
	size_t n = wire_crc32_fold(&crc, dst, src, len);

	memcpy(dst + n, src + n, len - n);
	/* Of the copy: the source may change under our hands. */
	return wire_crc32_table(crc, dst + n, len - n);
}

uint32_t wire_crc32_table(uint32_t crc, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len >= 8) {
		uint32_t lo = wire_get_le32(p) ^ crc;
		uint32_t hi = wire_get_le32(p + 4);

		crc = table[7][lo & 0xff] ^ table[6][lo >> 8 & 0xff] ^ table[5][lo >> 16 & 0xff] ^
		      table[4][lo >> 24] ^ table[3][hi & 0xff] ^ table[2][hi >> 8 & 0xff] ^
		      table[1][hi >> 16 & 0xff] ^ table[0][hi >> 24];
		p += 8;
		len -= 8;
	}
	/* Headers end so: a BTH has 12 bytes, those of IPv4 and UDP 36 with what goes before them. */
	if (len >= 4) {
		crc ^= wire_get_le32(p);
		crc = table[3][crc & 0xff] ^ table[2][crc >> 8 & 0xff] ^
		      table[1][crc >> 16 & 0xff] ^ table[0][crc >> 24];
		p += 4;
		len -= 4;
	}
	while (len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p++) & 0xff];
	return crc;
}

uint32_t wire_icrc_begin(const struct wire_ip *ip, const struct wire_udp *udp, size_t udp_payload)
{
	uint8_t hdr[8 + WIRE_IPV6_LEN + WIRE_UDP_LEN];
	uint8_t *p = hdr + 8;
	size_t iplen = wire_ip_len(ip);

	memset(hdr, 0xff, 8);
	wire_ip_put(p, ip, WIRE_UDP_LEN + udp_payload);
	if (iplen == WIRE_IPV4_LEN) {
		p[1] = 0xff;
		p[8] = 0xff;
		p[10] = 0xff;
		p[11] = 0xff;
	} else {
		p[0] = 0x6f;
		memset(p + 1, 0xff, 3);
		p[7] = 0xff;
	}
	p += iplen;
	wire_put_be16(p, udp->sport);
	wire_put_be16(p + 2, udp->dport);
	wire_put_be16(p + 4, (uint16_t)(WIRE_UDP_LEN + udp_payload));
	wire_put_be16(p + 6, 0xffff);
	return wire_crc32(UINT32_MAX, hdr, 8 + iplen + WIRE_UDP_LEN);
}

uint32_t wire_icrc_bth(uint32_t crc, const uint8_t bth[12])
{
	uint8_t masked[12];

	memcpy(masked, bth, 12);
	masked[4] = 0xff;
	return wire_crc32(crc, masked, 12);
}

uint32_t wire_icrc_end(uint32_t crc)
{
	return ~crc;
}

uint32_t wire_icrc(const struct wire_ip *ip, const struct wire_udp *udp, const uint8_t *bth,
		   size_t len)
{
	uint32_t crc = wire_icrc_begin(ip, udp, len + WIRE_ICRC_LEN);

	crc = wire_icrc_bth(crc, bth);
	return wire_icrc_end(wire_crc32(crc, bth + 12, len - 12));
}

/* --- backwards ---------------------------------------------------------------------------------- */

/* The register as a polynomial: its top bit is the constant, and to take in a zero bit is to multiply by x. */
#define ONE (UINT32_C(1) << 31)
#define POLY UINT32_C(0xedb88320)

static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;
	int i;

	for (i = 31; i >= 0; i--) {
		product ^= b & (0 - (a >> i & 1));
		b = b >> 1 ^ (POLY & (0 - (b & 1)));
	}
	return product;
}

/* x to the power of minus `bits`. The polynomial is primitive: x to the power of 2^32 - 1 is 1. */
static uint32_t back(uint32_t bits)
{
	uint32_t square = ONE >> 1, r = ONE, e;

	for (e = UINT32_MAX - bits; e; e >>= 1) {
		if (e & 1)
			r = multiply(r, square);
		square = multiply(square, square);
	}
	return r;
}

uint32_t wire_icrc_undo(size_t len)
{
	/* ID and flags, four bytes, are followed by those of IP from the TTL on. */
	return back(8 * (uint32_t)(4 + WIRE_IPV4_LEN - 8 + WIRE_UDP_LEN + len));
}

bool wire_icrc_find_id(uint32_t undo, uint32_t computed, uint32_t received, uint16_t *id)
{
	/* The four bytes, the first one lowest, that are to be changed to change the CRC so. */
	uint32_t change = multiply(undo, computed ^ received);

	/* Of flags and offset only DF. */
	if (change >> 16 & ~UINT32_C(0x40))
		return false;
	*id ^= (uint16_t)(change << 8 | (change >> 8 & 0xff));
	return true;
}
