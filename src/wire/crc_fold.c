/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CRC-32 by carry-less multiplication, where the processor has it: 64 bytes are folded onto the next 64 with two
 * multiplications a 16-byte lane, then the lanes onto one, then 128 bits are reduced to 32. The constants are powers of x
 * modulo the polynomial, bit-reflected and shifted by one as a reflected product wants them:
 *
 *	K1, K2	x^(4*128+32), x^(4*128-32)	over four lanes
 *	K3, K4	x^(128+32), x^(128-32)		over one lane
 *	K5	x^64				128 bits to 64
 *	POLY, MU				64 bits to 32 (Barrett)
 */
#include "wire/icrc.h"

#ifdef __x86_64__

#include <immintrin.h>

#define K1 0x154442bd4
#define K2 0x1c6e41596
#define K3 0x1751997d0
#define K4 0x0ccaa009e
#define K5 0x163cd6124
#define POLY 0x1db710641
#define MU 0x1f7011641

#define FOLDS __attribute__((target("pclmul,sse4.1")))

FOLDS static inline __m128i fold(__m128i acc, __m128i k, __m128i next)
{
	__m128i lo = _mm_clmulepi64_si128(acc, k, 0x00);
	__m128i hi = _mm_clmulepi64_si128(acc, k, 0x11);

	return _mm_xor_si128(_mm_xor_si128(lo, hi), next);
}

FOLDS static inline __m128i load(const uint8_t *p)
{
	return _mm_loadu_si128((const __m128i *)(const void *)p);
}

FOLDS static uint32_t reduce(__m128i x)
{
	const __m128i low32 = _mm_setr_epi32(-1, 0, 0, 0);
	const __m128i k34 = _mm_set_epi64x(K4, K3), k5 = _mm_set_epi64x(0, K5);
	const __m128i barrett = _mm_set_epi64x(MU, POLY);
	__m128i t;

	/* 128 bits to 96, to 64. */
	x = _mm_xor_si128(_mm_clmulepi64_si128(x, k34, 0x10), _mm_srli_si128(x, 8));
	t = _mm_clmulepi64_si128(_mm_and_si128(x, low32), k5, 0x00);
	x = _mm_xor_si128(_mm_srli_si128(x, 4), t);
	/* 64 bits to 32. */
	t = _mm_clmulepi64_si128(_mm_and_si128(x, low32), barrett, 0x10);
	t = _mm_clmulepi64_si128(_mm_and_si128(t, low32), barrett, 0x00);
	return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, t), 1);
}

FOLDS static size_t fold_all(uint32_t *crc, const uint8_t *p, size_t len)
{
	const __m128i k12 = _mm_set_epi64x(K2, K1), k34 = _mm_set_epi64x(K4, K3);
	__m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)*crc));
	__m128i b = load(p + 16), c = load(p + 32), d = load(p + 48);
	const uint8_t *start = p;

	for (p += 64, len -= 64; len >= 64; p += 64, len -= 64) {
		a = fold(a, k12, load(p));
		b = fold(b, k12, load(p + 16));
		c = fold(c, k12, load(p + 32));
		d = fold(d, k12, load(p + 48));
	}
	a = fold(fold(fold(a, k34, b), k34, c), k34, d);
	for (; len >= 16; p += 16, len -= 16)
		a = fold(a, k34, load(p));
	*crc = reduce(a);
	return (size_t)(p - start);
}

size_t wire_crc32_fold(uint32_t *crc, const uint8_t *p, size_t len)
{
	if (len < 64 || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1"))
		return 0;
	return fold_all(crc, p, len);
}

#else

size_t wire_crc32_fold(uint32_t *crc, const uint8_t *p, size_t len)
{
	(void)crc;
	(void)p;
	(void)len;
	return 0;
}

#endif
