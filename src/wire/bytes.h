/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_WIRE_BYTES_H
#define GPUNET_WIRE_BYTES_H

/*
 * Loads and stores of integers in a byte string, at any alignment. The name says width and byte
 * order; a caller has checked the length. Every codec in this folder goes through these, so that no
 * codec depends on the host's byte order or on the alignment of a packet.
 */
#include <stdint.h>

static inline uint16_t wire_get_be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t wire_get_be24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static inline uint32_t wire_get_be32(const uint8_t *p)
{
	return (uint32_t)wire_get_be16(p) << 16 | wire_get_be16(p + 2);
}

static inline uint64_t wire_get_be64(const uint8_t *p)
{
	return (uint64_t)wire_get_be32(p) << 32 | wire_get_be32(p + 4);
}

static inline uint32_t wire_get_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void wire_put_be16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static inline void wire_put_be24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)v;
}

static inline void wire_put_be32(uint8_t *p, uint32_t v)
{
	wire_put_be16(p, (uint16_t)(v >> 16));
	wire_put_be16(p + 2, (uint16_t)v);
}

static inline void wire_put_be64(uint8_t *p, uint64_t v)
{
	wire_put_be32(p, (uint32_t)(v >> 32));
	wire_put_be32(p + 4, (uint32_t)v);
}

static inline void wire_put_le16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static inline uint16_t wire_get_le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline void wire_put_le32(uint8_t *p, uint32_t v)
{
	wire_put_le16(p, (uint16_t)v);
	wire_put_le16(p + 2, (uint16_t)(v >> 16));
}

#endif
