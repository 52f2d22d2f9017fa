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
 *	K6, K7	x^(16*128+32), x^(16*128-32)	over sixteen lanes: four registers of four
 */
#include "wire/icrc.h"

#ifdef __x86_64__

#include <immintrin.h>

#define K1 0x154442bd4
#define K2 0x1c6e41596
#define K3 0x1751997d0
#define K4 0x0ccaa009e
#define K5 0x163cd6124
#define K6 0x11542778a
#define K7 0x1322d1430
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

/* Takes 16 bytes in and, when `dst` is not NULL, puts them there: what is stored is what was summed. */
FOLDS static inline __m128i take(uint8_t *dst, const uint8_t *src, size_t at)
{
	__m128i v = load(src + at);

	if (dst)
		_mm_storeu_si128((__m128i *)(void *)(dst + at), v);
	return v;
}

/* `len` is at least 64. */
FOLDS static inline size_t fold_narrow(uint32_t *crc, uint8_t *dst, const uint8_t *src, size_t len)
{
	const __m128i k12 = _mm_set_epi64x(K2, K1), k34 = _mm_set_epi64x(K4, K3);
	__m128i a = _mm_xor_si128(take(dst, src, 0), _mm_cvtsi32_si128((int)*crc));
	__m128i b = take(dst, src, 16), c = take(dst, src, 32), d = take(dst, src, 48);
	size_t at;

	for (at = 64; len - at >= 64; at += 64) {
		a = fold(a, k12, take(dst, src, at));
		b = fold(b, k12, take(dst, src, at + 16));
		c = fold(c, k12, take(dst, src, at + 32));
		d = fold(d, k12, take(dst, src, at + 48));
	}
	a = fold(fold(fold(a, k34, b), k34, c), k34, d);
	for (; len - at >= 16; at += 16)
		a = fold(a, k34, take(dst, src, at));
	*crc = reduce(a);
	return at;
}

FOLDS static size_t sum_narrow(uint32_t *crc, const uint8_t *src, size_t len)
{
	return fold_narrow(crc, NULL, src, len);
}

FOLDS static size_t copy_narrow(uint32_t *crc, uint8_t *dst, const uint8_t *src, size_t len)
{
	return fold_narrow(crc, dst, src, len);
}

/* --- four lanes in a register --------------------------------------------------------------------- */

#define FOLDS_WIDE __attribute__((target("vpclmulqdq,avx512f,pclmul,sse4.1")))

FOLDS_WIDE static inline __m512i fold_wide4(__m512i acc, __m512i k, __m512i next)
{
	__m512i lo = _mm512_clmulepi64_epi128(acc, k, 0x00);
	__m512i hi = _mm512_clmulepi64_epi128(acc, k, 0x11);

	return _mm512_xor_si512(_mm512_xor_si512(lo, hi), next);
}

FOLDS_WIDE static inline __m512i take_wide(uint8_t *dst, const uint8_t *src, size_t at)
{
	__m512i v = _mm512_loadu_si512(src + at);

	if (dst)
		_mm512_storeu_si512(dst + at, v);
	return v;
}

FOLDS_WIDE static inline __m128i join(__m512i x)
{
	const __m128i k34 = _mm_set_epi64x(K4, K3);

	return fold(fold(fold(_mm512_castsi512_si128(x), k34, _mm512_extracti32x4_epi32(x, 1)), k34,
			 _mm512_extracti32x4_epi32(x, 2)),
		    k34, _mm512_extracti32x4_epi32(x, 3));
}

/* `len` is at least 256. */
FOLDS_WIDE static inline size_t fold_wide(uint32_t *crc, uint8_t *dst, const uint8_t *src,
					  size_t len)
{
	const __m512i near = _mm512_broadcast_i32x4(_mm_set_epi64x(K2, K1));
	const __m512i far = _mm512_broadcast_i32x4(_mm_set_epi64x(K7, K6));
	const __m128i k34 = _mm_set_epi64x(K4, K3);
	__m512i a = _mm512_xor_si512(take_wide(dst, src, 0),
				     _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)*crc)));
	__m512i b = take_wide(dst, src, 64), c = take_wide(dst, src, 128),
		d = take_wide(dst, src, 192);
	__m128i x;
	size_t at;

	for (at = 256; len - at >= 256; at += 256) {
		a = fold_wide4(a, far, take_wide(dst, src, at));
		b = fold_wide4(b, far, take_wide(dst, src, at + 64));
		c = fold_wide4(c, far, take_wide(dst, src, at + 128));
		d = fold_wide4(d, far, take_wide(dst, src, at + 192));
	}
	a = fold_wide4(fold_wide4(fold_wide4(a, near, b), near, c), near, d);
	for (; len - at >= 64; at += 64)
		a = fold_wide4(a, near, take_wide(dst, src, at));
	x = join(a);
	for (; len - at >= 16; at += 16)
		x = fold(x, k34, take(dst, src, at));
	*crc = reduce(x);
	return at;
}

FOLDS_WIDE static size_t sum_wide(uint32_t *crc, const uint8_t *src, size_t len)
{
	return fold_wide(crc, NULL, src, len);
}

FOLDS_WIDE static size_t copy_wide(uint32_t *crc, uint8_t *dst, const uint8_t *src, size_t len)
{
	return fold_wide(crc, dst, src, len);
}

static bool can(bool wide)
{
	if (wide)
		return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f");
	return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

size_t wire_crc32_fold(uint32_t *crc, uint8_t *dst, const uint8_t *src, size_t len)
{
	if (len >= 256 && can(true))
		return dst ? copy_wide(crc, dst, src, len) : sum_wide(crc, src, len);
	if (len >= 64 && can(false))
		return dst ? copy_narrow(crc, dst, src, len) : sum_narrow(crc, src, len);
	return 0;
}

#else

size_t wire_crc32_fold(uint32_t *crc, uint8_t *dst, const uint8_t *src, size_t len)
{
	(void)crc;
	(void)dst;
	(void)src;
	(void)len;
	return 0;
}

#endif
