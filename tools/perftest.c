/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest.h"

#include <errno.h>
#include <math.h>
#include <string.h>

const struct perftest_script perftest_scripts[PERFTEST_KINDS] = {
	[PERFTEST_WRITE_BW] = { 1, 1, 1, 1 },  [PERFTEST_WRITE_LAT] = { 2, 0, 0, 0 },
	[PERFTEST_READ_BW] = { 1, 1, 1, 1 },   [PERFTEST_READ_LAT] = { 2, 0, 0, 1 },
	[PERFTEST_SEND_BW] = { 0, 0, 0, 1 },   [PERFTEST_SEND_LAT] = { 0, 0, 0, 1 },
	[PERFTEST_ATOMIC_BW] = { 1, 1, 1, 1 },
};

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

static void put_be(uint8_t *out, uint64_t v, unsigned n)
{
	while (n--) {
		out[n] = (uint8_t)v;
		v >>= 8;
	}
}

static uint64_t get_be(const uint8_t *in, unsigned n)
{
	uint64_t v = 0;
	unsigned i;

	for (i = 0; i < n; i++)
		v = v << 8 | in[i];
	return v;
}

void perftest_put_number(uint8_t out[PERFTEST_NUMBER], uint32_t v)
{
	put_be(out, v, PERFTEST_NUMBER);
}

uint32_t perftest_get_number(const uint8_t in[PERFTEST_NUMBER])
{
	return (uint32_t)get_be(in, PERFTEST_NUMBER);
}

void perftest_put_version(uint8_t out[PERFTEST_VERSION])
{
	memset(out, 0, PERFTEST_VERSION);
	out[0] = '0' + PERFTEST_SPEAKS / 100;
	out[1] = '.';
	out[2] = '0' + PERFTEST_SPEAKS / 10 % 10;
	out[3] = '0' + PERFTEST_SPEAKS % 10;
}

static int digit(uint8_t c)
{
	return c >= '0' && c <= '9' ? c - '0' : -1;
}

int perftest_get_version(const uint8_t in[PERFTEST_VERSION])
{
	int v = 0, i, after = -1;

	for (i = 0; i < PERFTEST_VERSION && in[i]; i++) {
		int d = digit(in[i]);

		if (in[i] == '.' && after < 0 && i) {
			after = 0;
			continue;
		}
		if (d < 0 || v > 99999)
			break;
		/* More digits are finer than anybody asks. */
		if (after < 2)
			v = v * 10 + d;
		after += after >= 0;
	}
	if (!i || i == PERFTEST_VERSION || v > 99999)
		return -EPROTO;
	for (after = after < 0 ? 0 : after; after < 2; after++)
		v *= 10;
	return v;
}

void perftest_put_mtu(uint8_t out[PERFTEST_MTU], unsigned bytes)
{
	unsigned code = 1;

	while (code < 5 && 128u << (code + 1) <= bytes)
		code++;
	out[0] = (uint8_t)('0' + code);
	out[1] = 0;
}

int perftest_get_mtu(const uint8_t in[PERFTEST_MTU])
{
	int code = digit(in[0]);

	return code < 1 || code > 5 || in[1] ? -EPROTO : 128 << code;
}

/* ---- records ------------------------------------------------------------------------------------------------------------- */

static char *put_hex(char *to, uint64_t v, unsigned digits)
{
	unsigned i;

	for (i = digits; i--; v >>= 4)
		to[i] = "0123456789abcdef"[v & 15];
	to[digits] = ':';
	return to + digits + 1;
}

void perftest_put_record(char out[PERFTEST_RECORD], const struct perftest_record *r)
{
	char *to = out;
	unsigned i;

	to = put_hex(to, r->lid, 4);
	to = put_hex(to, r->reads, 4);
	to = put_hex(to, r->qpn, 6);
	to = put_hex(to, r->psn, 6);
	to = put_hex(to, r->rkey, 8);
	to = put_hex(to, r->addr, 16);
	for (i = 0; i < 16; i++)
		to = put_hex(to, r->gid[i], 2);
	to = put_hex(to, r->srqn, 8);
	memset(to, 0, (size_t)(out + PERFTEST_RECORD - to));
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The number of `digits` and a colon at *at, which goes on. A number that is too large has more digits: an error. */
static uint64_t get_hex(const char **at, unsigned digits, int *bad)
{
	uint64_t v = 0;
	unsigned i;

	for (i = 0; i < digits; i++) {
		int d = hex((*at)[i]);

		*bad |= d < 0;
		v = v << 4 | (unsigned)(d & 15);
	}
	*bad |= (*at)[digits] != ':';
	*at += digits + 1;
	return v;
}

int perftest_get_record(struct perftest_record *r, const char in[PERFTEST_RECORD])
{
	struct perftest_record got = { 0 };
	const char *at = in;
	int bad = 0;
	unsigned i;

	got.lid = (uint16_t)get_hex(&at, 4, &bad);
	got.reads = (uint16_t)get_hex(&at, 4, &bad);
	got.qpn = (uint32_t)get_hex(&at, 6, &bad);
	got.psn = (uint32_t)get_hex(&at, 6, &bad);
	got.rkey = (uint32_t)get_hex(&at, 8, &bad);
	got.addr = get_hex(&at, 16, &bad);
	for (i = 0; i < 16; i++)
		got.gid[i] = (uint8_t)get_hex(&at, 2, &bad);
	got.srqn = (uint32_t)get_hex(&at, 8, &bad);
	if (bad || *at)
		return -EPROTO;
	*r = got;
	return 0;
}

/* ---- reports ------------------------------------------------------------------------------------------------------------- */

static void put_double(uint8_t out[PERFTEST_FIGURE], double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	put_be(out, bits, PERFTEST_FIGURE);
}

static double get_double(const uint8_t in[PERFTEST_FIGURE])
{
	uint64_t bits = get_be(in, PERFTEST_FIGURE);
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

void perftest_put_report(uint8_t out[PERFTEST_FIGURES][PERFTEST_FIGURE],
			 const struct perftest_report *r)
{
	put_be(out[0], r->size, PERFTEST_FIGURE);
	put_be(out[1], r->iterations, PERFTEST_FIGURE);
	put_double(out[2], r->peak);
	put_double(out[3], r->average);
	put_double(out[4], r->rate);
}

int perftest_get_report(struct perftest_report *r,
			const uint8_t in[PERFTEST_FIGURES][PERFTEST_FIGURE])
{
	struct perftest_report got = { .size = get_be(in[0], PERFTEST_FIGURE),
				       .iterations = get_be(in[1], PERFTEST_FIGURE),
				       .peak = get_double(in[2]),
				       .average = get_double(in[3]),
				       .rate = get_double(in[4]) };

	if (!isfinite(got.peak) || !isfinite(got.average) || !isfinite(got.rate))
		return -EPROTO;
	*r = got;
	return 0;
}
