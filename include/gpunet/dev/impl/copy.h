/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies between rings and a kernel's memory by all threads of a block (or of a warp, or by one
 * thread).
 *
 * A load across PCIe takes more than a microsecond, so what counts is how many bytes are asked for
 * before the first ones are there: each thread has up to GNET_COPY_UNROLL 16-byte loads in flight,
 * and the few bytes at both ends that fill no 16-byte word are asked for before the rest. The
 * accesses are plain: a ring's counters, with acquire and release, order them (dev/order.h), and
 * dst and src do not overlap.
 *
 * dst is written in aligned 16-byte words. Where src lies differently, aligned words of src are
 * loaded all the same, and each lane joins its word with the one of the next lane. Only words that
 * lie in [src, src + n) as a whole are loaded, so nothing outside is read, on either device.
 *
 * The C body gives each thread a slice and memcpy: a compiler and a sanitizer then see exactly the
 * bytes that are asked for. A test may ask for the GPU's body on the CPU device with
 * GNET_COPY_VECTOR.
 */
#ifndef GPUNET_DEV_IMPL_COPY_H
#define GPUNET_DEV_IMPL_COPY_H

#include <gpunet/dev/device.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__) || defined(GNET_COPY_VECTOR)

/*
 * Loads in flight a thread, a power of two. 8 times 16 bytes by 512 threads cover the bus's
 * bandwidth times its latency; more would cost registers only.
 */
#ifndef GNET_COPY_UNROLL
#define GNET_COPY_UNROLL 8u
#endif

#ifdef __CUDACC__
typedef uint4 gnet__word;

/*
 * Copies of more than a byte a thread can be calls instead: a third less code in a kernel of many
 * copies, but registers are saved at each call.
 */
#ifdef GNET_COPY_CALL
#define GNET__COPY_MANY static __device__ __noinline__ __attribute__((unused))
#else
#define GNET__COPY_MANY GNET_DEV
#endif

#define GNET__UNROLL _Pragma("unroll")

GNET_DEV uint32_t gnet__funnel(uint32_t low, uint32_t high, unsigned bits)
{
	return __funnelshift_r(low, high, bits);
}
#else
typedef struct {
	uint32_t x, y, z, w;
} __attribute__((aligned(16), may_alias)) gnet__word;

#define GNET__COPY_MANY GNET_DEV
#define GNET__UNROLL

GNET_DEV uint32_t gnet__funnel(uint32_t low, uint32_t high, unsigned bits)
{
	return (uint32_t)((((uint64_t)high << 32) | low) >> bits);
}
#endif

/*
 * The 16 bytes that begin `skew` (1 to 15) bytes into a and go on in b. Selects, not indices: words
 * stay in registers.
 */
GNET_DEV gnet__word gnet__join(gnet__word a, gnet__word b, unsigned skew)
{
	const unsigned bits = (skew & 3u) * 8u;
	uint32_t v0 = a.x, v1 = a.y, v2 = a.z, v3 = a.w, v4 = b.x;
	gnet__word out;

	if (skew & 8u) {
		v0 = a.z;
		v1 = a.w;
		v2 = b.x;
		v3 = b.y;
		v4 = b.z;
	}
	if (skew & 4u) {
		v0 = v1;
		v1 = v2;
		v2 = v3;
		v3 = v4;
		v4 = skew & 8u ? b.w : b.y;
	}
	out.x = gnet__funnel(v0, v1, bits);
	out.y = gnet__funnel(v1, v2, bits);
	out.z = gnet__funnel(v2, v3, bits);
	out.w = gnet__funnel(v3, v4, bits);
	return out;
}

/* The word of the next lane; the last lane gets what lane 0 has of its own next words. */
GNET_DEV gnet__word gnet__next_lane(gnet__word mine, gnet__word after, unsigned lane)
{
	const unsigned from = (lane + 1u) & 31u;
	gnet__word out;

	out.x = __shfl_sync(0xffffffffu, lane ? mine.x : after.x, from);
	out.y = __shfl_sync(0xffffffffu, lane ? mine.y : after.y, from);
	out.z = __shfl_sync(0xffffffffu, lane ? mine.z : after.z, from);
	out.w = __shfl_sync(0xffffffffu, lane ? mine.w : after.w, from);
	return out;
}

/*
 * `words` aligned words to dst. src begins `skew` bytes into its first word; if that is not 0, one
 * word more is loaded than stored. By whole warps: a warp takes runs of 32 * per words, and all its
 * lanes make the same turns. Positions 0 to phase - 1 are no words: they move a warp's 512 bytes to
 * the beginning of a line of 128, see gnet__copy_many.
 */
GNET_DEV void gnet__copy_warps(gnet__word *dst, const gnet__word *src, unsigned words,
			       unsigned phase, unsigned skew, unsigned tid, unsigned nthreads)
{
	const unsigned lane = tid % 32u, warp = tid / 32u, warps = nthreads / 32u;
	const unsigned loads = words + (skew ? 1u : 0u);
	const gnet__word none = { 0, 0, 0, 0 };
	gnet__word w[GNET_COPY_UNROLL + 1u];
	unsigned per = 1, base, u;

	if (warp >= warps)
		return; /* lanes of a warp that is not whole */
	while (per < GNET_COPY_UNROLL && per * 32u * warps < words + phase)
		per *= 2u;
	for (base = warp * 32u * per; base < words + phase; base += warps * 32u * per) {
		/* Below 0 for what is no word: as an unsigned number that is not less than any. */
		const int at = (int)(base + lane) - (int)phase;
		const gnet__word *s = src + at;
		gnet__word *d = dst + at;

		GNET__UNROLL
		for (u = 0; u <= GNET_COPY_UNROLL; u++) {
			w[u] = none;
			if ((u < per || (u == per && !lane)) && (unsigned)at + u * 32u < loads)
				w[u] = s[u * 32u];
		}
		GNET__UNROLL
		for (u = 0; u < GNET_COPY_UNROLL; u++) {
			gnet__word out = w[u];

			if (u >= per)
				break;
			if (skew)
				out = gnet__join(out, gnet__next_lane(out, w[u + 1u], lane), skew);
			if ((unsigned)at + u * 32u < words)
				d[u * 32u] = out;
		}
	}
}

/*
 * The same by fewer threads than a warp has, each for itself: runs of four words, of which the last
 * may need the first of the next run.
 */
GNET_DEV void gnet__copy_words(gnet__word *dst, const gnet__word *src, unsigned words,
			       unsigned skew, unsigned tid, unsigned nthreads)
{
	const unsigned loads = words + (skew ? 1u : 0u);
	const gnet__word none = { 0, 0, 0, 0 };
	gnet__word w[5];
	unsigned at, u;

	for (at = tid * 4u; at < words; at += nthreads * 4u) {
		GNET__UNROLL
		for (u = 0; u < 5u; u++) {
			w[u] = none;
			if (at + u < loads)
				w[u] = src[at + u];
		}
		GNET__UNROLL
		for (u = 0; u < 4u; u++)
			if (at + u < words)
				dst[at + u] = skew ? gnet__join(w[u], w[u + 1u], skew) : w[u];
	}
}

/* Sixteen bytes of a thread are on their way at once: few threads wait few times. */
GNET_DEV void gnet__copy_bytes(unsigned char *dst, const unsigned char *src, unsigned n,
			       unsigned tid, unsigned nthreads)
{
	unsigned char v[16];
	unsigned at, u;

	if (n <= nthreads) {
		if (tid < n)
			dst[tid] = src[tid];
		return;
	}
	for (at = tid; at < n; at += nthreads * 16u) {
		GNET__UNROLL
		for (u = 0; u < 16u; u++) {
			v[u] = 0;
			if (at + u * nthreads < n)
				v[u] = src[at + u * nthreads];
		}
		GNET__UNROLL
		for (u = 0; u < 16u; u++)
			if (at + u * nthreads < n)
				dst[at + u * nthreads] = v[u];
	}
}

/* How a copy of 64 bytes or more is cut: bytes, aligned words of dst, bytes. */
struct gnet__parts {
	unsigned head, skew, words, tail_at, tail;
};

GNET_DEV struct gnet__parts gnet__parts_of(const void *dst, const void *src, unsigned n)
{
	struct gnet__parts p;

	p.head = (unsigned)(0u - (uintptr_t)dst) & 15u;
	p.skew = (unsigned)((uintptr_t)src + p.head) & 15u;
	if (p.head < p.skew)
		p.head += 16u; /* the word of src that holds byte `head` begins before src */
	p.words = (n - p.head + p.skew) / 16u - (p.skew ? 1u : 0u);
	p.tail_at = p.head + p.words * 16u;
	p.tail = n - p.tail_at;
	return p;
}

/*
 * 64 bytes or more by whole warps. The side across the bus, dst if `out` and else src, is accessed by warps from the beginning of a
 * line of 128 bytes on, which saves one packet in five.
 */
GNET_DEV void gnet__copy_lines(unsigned char *d, const unsigned char *s, unsigned n, int out,
			       unsigned tid, unsigned nthreads)
{
	const struct gnet__parts p = gnet__parts_of(d, s, n);
	unsigned char first = 0, last = 0;
	unsigned phase;

	/* The edges, of 30 bytes at most each, are on their way while the words are. */
	if (tid < p.head)
		first = s[tid];
	if (tid < p.tail)
		last = s[p.tail_at + tid];
	phase = (unsigned)((out ? (uintptr_t)d : (uintptr_t)s - p.skew) + p.head) / 16u & 7u;
	gnet__copy_warps((gnet__word *)(d + p.head), (const gnet__word *)(s + p.head - p.skew),
			 p.words, phase, p.skew, tid, nthreads);
	if (tid < p.head)
		d[tid] = first;
	if (tid < p.tail)
		d[p.tail_at + tid] = last;
}

GNET__COPY_MANY void gnet__copy_many(void *dst, const void *src, size_t n, int out, unsigned tid,
				     unsigned nthreads)
{
	unsigned char *d = (unsigned char *)dst;
	const unsigned char *s = (const unsigned char *)src;

	if (n < 64u) {
		/* Too little for a word to be sure of. */
		gnet__copy_bytes(d, s, (unsigned)n, tid, nthreads);
	} else if (nthreads < 32u) {
		const struct gnet__parts p = gnet__parts_of(d, s, (unsigned)n);

		gnet__copy_bytes(d, s, p.head, tid, nthreads);
		gnet__copy_bytes(d + p.tail_at, s + p.tail_at, p.tail, tid, nthreads);
		gnet__copy_words((gnet__word *)(d + p.head),
				 (const gnet__word *)(s + p.head - p.skew), p.words, p.skew, tid,
				 nthreads);
	} else {
		gnet__copy_lines(d, s, (unsigned)n, out, tid, nthreads);
	}
}

GNET_DEV void gnet__copy_any(void *dst, const void *src, size_t n, int out, unsigned tid,
			     unsigned nthreads)
{
	if (n > nthreads)
		gnet__copy_many(dst, src, n, out, tid, nthreads);
	else if (tid < n)
		((unsigned char *)dst)[tid] = ((const unsigned char *)src)[tid];
}

#else

GNET_DEV void gnet__copy_any(void *dst, const void *src, size_t n, int out, unsigned tid,
			     unsigned nthreads)
{
	/* Slices are multiples of 64 bytes, so that small copies are not cut into crumbs. */
	const size_t slice = (n / nthreads + 64u) & ~(size_t)63u;
	const size_t at = slice * tid;

	(void)out;
	if (at < n)
		__builtin_memcpy((char *)dst + at, (const char *)src + at,
				 n - at < slice ? n - at : slice);
}

#endif

/*
 * Copies n (below 2^31) bytes. All `nthreads` threads of the scope call it with the same arguments
 * but for tid, which is 0 to nthreads - 1 and, from 32 threads up, lies so that tid % 32 is the
 * thread's lane. No barrier inside: the caller has one before, if other threads wrote src, and one
 * after, before it tells anybody.
 */
GNET_DEV void gnet__copy(void *dst, const void *src, size_t n, unsigned tid, unsigned nthreads)
{
	gnet__copy_any(dst, src, n, 0, tid, nthreads);
}

/*
 * The same for a dst across the bus, a kernel's way out: gnet__copy is for a src there, or for
 * neither.
 */
GNET_DEV void gnet__copy_out(void *dst, const void *src, size_t n, unsigned tid, unsigned nthreads)
{
	gnet__copy_any(dst, src, n, 1, tid, nthreads);
}

#endif
