/* SPDX-License-Identifier: BSD-3-Clause */
/* The codecs of src/wire against known values, random round trips and inputs that they must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/cm.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/pcap.h"
#include "wire/roce.h"

static uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void fill(uint64_t *s, void *p, size_t n)
{
	uint8_t *b = p;

	while (n--)
		*b++ = (uint8_t)(rnd(s) >> 32);
}

/* --- ICRC --------------------------------------------------------------------------------------- */

static void crc_has_its_check_value(void **state)
{
	(void)state;
	assert_int_equal(~wire_crc32(UINT32_MAX, "123456789", 9), 0xcbf43926);
	assert_int_equal(wire_crc32(0x1234, "", 0), 0x1234);
}

static void crc_is_the_same_however_it_is_cut(void **state)
{
	uint64_t s = 7;
	uint8_t buf[80];
	size_t off, len, cut, i;

	(void)state;
	fill(&s, buf, sizeof(buf));
	for (off = 0; off < 8; off++)
		for (len = 0; len <= 64; len++) {
			uint32_t one = UINT32_MAX, whole = wire_crc32(UINT32_MAX, buf + off, len);

			for (i = 0; i < len; i++)
				one = wire_crc32(one, buf + off + i, 1);
			assert_int_equal(one, whole);
			cut = rnd(&s) % (len + 1);
			one = wire_crc32(UINT32_MAX, buf + off, cut);
			assert_int_equal(wire_crc32(one, buf + off + cut, len - cut), whole);
		}
}

static void crc_by_folding_is_the_same_as_by_tables(void **state)
{
	static uint8_t buf[5000], copy[5002];
	uint64_t s = 11;
	size_t len, off;

	(void)state;
	fill(&s, buf, sizeof(buf));
	for (len = 0; len < 4200; len += len < 300 ? 1 : 61)
		for (off = 0; off < 3; off++) {
			uint32_t crc = (uint32_t)rnd(&s);

			assert_int_equal(wire_crc32(crc, buf + off, len),
					 wire_crc32_table(crc, buf + off, len));
			assert_int_equal(wire_crc32_copy(crc, copy + 1, buf + off, len),
					 wire_crc32_table(crc, buf + off, len));
			assert_memory_equal(copy + 1, buf + off, len);
			assert_int_equal(copy[0], 0);
			assert_int_equal(copy[len + 1], 0);
			memset(copy, 0, len + 1);
		}
}

static void crc_masks_what_routers_change(void **state)
{
	struct wire_ip ip = { .ttl = 64, .tos = 2, .id = 7, .dont_frag = true };
	struct wire_udp udp = { 0xc001, WIRE_ROCE_PORT, 0 };
	uint8_t bth[16] = { 4, 0x40, 0xff, 0xff, 0x00, 0, 0, 17, 0x80, 0, 0, 1 };
	uint32_t want;

	(void)state;
	wire_gid_from_v4(ip.src, (uint8_t[]){ 10, 0, 2, 1 });
	wire_gid_from_v4(ip.dst, (uint8_t[]){ 10, 0, 2, 2 });
	want = wire_icrc(&ip, &udp, bth, sizeof(bth));
	ip.ttl = 3;
	ip.tos = 0xff;
	udp.csum = 0x1234;
	bth[4] = 0xc0;
	assert_int_equal(wire_icrc(&ip, &udp, bth, sizeof(bth)), want);
	ip.id = 8;
	assert_int_not_equal(wire_icrc(&ip, &udp, bth, sizeof(bth)), want);
	ip.id = 7;
	bth[12] ^= 1;
	assert_int_not_equal(wire_icrc(&ip, &udp, bth, sizeof(bth)), want);
}

static void crc_tells_the_id(void **state)
{
	static uint8_t bth[4200];
	struct wire_udp udp = { 0xc001, WIRE_ROCE_PORT, 0 };
	struct wire_ip ip = { .ttl = 64, .dont_frag = true };
	uint64_t s = 5;
	size_t len, i;
	int found = 0;

	(void)state;
	wire_gid_from_v4(ip.src, (uint8_t[]){ 10, 0, 2, 1 });
	wire_gid_from_v4(ip.dst, (uint8_t[]){ 10, 0, 2, 2 });
	for (i = 0; i < sizeof(bth); i++)
		bth[i] = (uint8_t)rnd(&s);
	for (len = 12; len < sizeof(bth); len += len < 80 ? 1 : 97) {
		uint32_t undo = wire_icrc_undo(len), zero;
		uint16_t sent = (uint16_t)rnd(&s), id = 0;

		ip.id = 0;
		zero = wire_icrc(&ip, &udp, bth, len);
		ip.id = sent;
		ip.dont_frag = len & 1;
		assert_true(wire_icrc_find_id(undo, zero, wire_icrc(&ip, &udp, bth, len), &id));
		ip.dont_frag = true;
		assert_int_equal(id, sent);
		/* One wrong bit is never taken for an ID; of wrong CRCs one in 2^15 is. */
		bth[len - 1] ^= (uint8_t)(1 << (len & 7));
		assert_false(wire_icrc_find_id(undo, zero, wire_icrc(&ip, &udp, bth, len), &id));
		for (i = 0; i < 1000; i++)
			found += wire_icrc_find_id(undo, zero, (uint32_t)rnd(&s), &id);
	}
	assert_true(found < 40);
}

/* --- numbers ------------------------------------------------------------------------------------ */

static void psn_distance_wraps(void **state)
{
	(void)state;
	assert_int_equal(wire_psn_add(0xffffff, 1), 0);
	assert_int_equal(wire_psn_diff(0, 0xffffff), 1);
	assert_int_equal(wire_psn_diff(0xffffff, 0), -1);
	assert_int_equal(wire_psn_diff(0x800000, 1), 0x7fffff);
	assert_int_equal(wire_psn_diff(0x800000, 0), -0x800000);
	assert_int_equal(wire_psn_diff(5, 5), 0);
}

static void timer_codes_match_the_tables(void **state)
{
	unsigned i;

	(void)state;
	assert_int_equal(wire_rnr_ns(0), 655360000);
	for (i = 1; i <= 4; i++)
		assert_int_equal(wire_rnr_ns(i), i * 10000);
	assert_int_equal(wire_rnr_ns(12), 640000);
	assert_int_equal(wire_rnr_ns(14), 1280000);
	assert_int_equal(wire_rnr_ns(31), 491520000);
	for (i = 2; i < 32; i++) {
		assert_true(wire_rnr_ns(i) > wire_rnr_ns(i - 1));
		assert_int_equal(wire_rnr_code(wire_rnr_ns(i)), i);
		assert_int_equal(wire_rnr_code(wire_rnr_ns(i - 1) + 1), i);
	}
	assert_int_equal(wire_rnr_code(0), 1);
	assert_int_equal(wire_rnr_code(491520001), 0);
	assert_int_equal(wire_ack_timeout_ns(0), 0);
	assert_int_equal(wire_ack_timeout_ns(19), UINT64_C(2147483648));
	assert_int_equal(wire_ack_timeout_code(67108864), 14);
	assert_int_equal(wire_ack_timeout_code(67108865), 15);
	assert_int_equal(wire_ack_timeout_code(UINT64_MAX), 31);
}

static void mtu_codes_match_their_sizes(void **state)
{
	unsigned i;

	(void)state;
	for (i = 1; i <= 5; i++) {
		assert_int_equal(wire_mtu_bytes(i), 128u << i);
		assert_int_equal(wire_mtu_code(128u << i), i);
		assert_int_equal(wire_mtu_code((128u << i) - 1), i - 1);
	}
	assert_int_equal(wire_mtu_bytes(0), 0);
	assert_int_equal(wire_mtu_bytes(6), 0);
	assert_int_equal(wire_mtu_code(9000), 5);
}

static void source_port_follows_the_flow_label(void **state)
{
	(void)state;
	assert_int_equal(wire_udp_sport(0x880a8, 0, 0), 49290);
	assert_true(wire_udp_sport(0, 17, 18) >= 0xc000);
	assert_int_not_equal(wire_udp_sport(0, 17, 18), wire_udp_sport(0, 17, 19));
}

static void syndromes_have_kinds(void **state)
{
	(void)state;
	assert_int_equal(wire_aeth_kind(0), WIRE_AETH_ACK);
	assert_int_equal(wire_aeth_kind(WIRE_SYN_ACK), WIRE_AETH_ACK);
	assert_int_equal(wire_aeth_kind(WIRE_SYN_RNR | 31), WIRE_AETH_RNR);
	assert_int_equal(wire_aeth_kind(0x40), WIRE_AETH_RESERVED);
	assert_int_equal(wire_aeth_kind(WIRE_SYN_NAK_ACCESS), WIRE_AETH_NAK);
	assert_int_equal(wire_aeth_kind(0x80), WIRE_AETH_RESERVED);
}

/* --- packets ------------------------------------------------------------------------------------ */

static void random_packet(uint64_t *s, struct wire_roce *r, uint8_t opcode, const uint8_t *payload,
			  size_t len)
{
	memset(r, 0, sizeof(*r));
	r->bth = (struct wire_bth){
		.opcode = opcode,
		.solicited = rnd(s) & 1,
		.mig = rnd(s) & 1,
		.pad = wire_pad(len),
		.tver = rnd(s) & 0xf,
		.pkey = (uint16_t)rnd(s),
		.fecn = rnd(s) & 1,
		.becn = rnd(s) & 1,
		.rsv6 = rnd(s) & 0x3f,
		.dqpn = rnd(s) & WIRE_QPN_MASK,
		.ack_req = rnd(s) & 1,
		.rsv7 = rnd(s) & 0x7f,
		.psn = rnd(s) & WIRE_PSN_MASK,
	};
	r->flags = wire_opcode_flags(opcode);
	if (r->flags & WIRE_X_RETH)
		r->reth = (struct wire_reth){ rnd(s), (uint32_t)rnd(s), (uint32_t)rnd(s) };
	if (r->flags & WIRE_X_ATOMIC)
		r->atomic = (struct wire_atomic){ rnd(s), (uint32_t)rnd(s), rnd(s), rnd(s) };
	if (r->flags & WIRE_X_AETH)
		r->aeth = (struct wire_aeth){ (uint8_t)rnd(s), rnd(s) & 0xffffff };
	if (r->flags & WIRE_X_DETH)
		r->deth =
			(struct wire_deth){ (uint32_t)rnd(s), (uint8_t)rnd(s), rnd(s) & 0xffffff };
	r->imm = r->flags & WIRE_X_IMM ? (uint32_t)rnd(s) : 0;
	r->inv_rkey = r->flags & WIRE_X_IETH ? (uint32_t)rnd(s) : 0;
	r->atomic_orig = r->flags & WIRE_X_ATOMIC_ACK ? rnd(s) : 0;
	r->payload = payload;
	r->payload_len = len;
	r->icrc = (uint32_t)rnd(s);
}

static void assert_same(const struct wire_roce *a, const struct wire_roce *b)
{
	uint8_t ha[64], hb[64];
	int na = wire_roce_encode_hdr(a, ha, sizeof(ha)),
	    nb = wire_roce_encode_hdr(b, hb, sizeof(hb));

	assert_int_equal(na, nb);
	assert_memory_equal(ha, hb, (size_t)na);
	assert_int_equal(a->bth.psn, b->bth.psn);
	assert_int_equal(a->bth.dqpn, b->bth.dqpn);
	assert_memory_equal(&a->reth, &b->reth, sizeof(a->reth));
	assert_memory_equal(&a->atomic.compare, &b->atomic.compare, 8);
	assert_int_equal(a->aeth.msn, b->aeth.msn);
	assert_int_equal(a->deth.sqpn, b->deth.sqpn);
	assert_int_equal(a->imm, b->imm);
	assert_int_equal(a->inv_rkey, b->inv_rkey);
	assert_int_equal(a->atomic_orig, b->atomic_orig);
	assert_int_equal(a->icrc, b->icrc);
	assert_int_equal(a->payload_len, b->payload_len);
	assert_memory_equal(a->payload, b->payload, a->payload_len);
}

static void every_opcode_comes_back_as_it_went(void **state)
{
	uint8_t payload[64], buf[256];
	unsigned op, known = 0;
	uint64_t s = 99;

	(void)state;
	fill(&s, payload, sizeof(payload));
	for (op = 0; op < 256; op++) {
		struct wire_roce a, b;
		size_t len = rnd(&s) % sizeof(payload);
		int n;

		random_packet(&s, &a, (uint8_t)op, payload, len);
		n = wire_roce_encode(&a, buf, sizeof(buf));
		if (!a.flags) {
			assert_int_equal(n, -EPROTONOSUPPORT);
			assert_string_equal(wire_opcode_name((uint8_t)op), "unknown");
			continue;
		}
		known++;
		assert_true(n > 0 && n % 4 == 0);
		assert_int_equal(wire_roce_encode(&a, buf, (size_t)n), n);
		assert_int_equal(wire_roce_encode(&a, buf, (size_t)n - 1), -ENOBUFS);
		assert_int_equal(wire_roce_encode(&a, buf, 15), -ENOBUFS);
		assert_int_equal(wire_roce_decode(&b, buf, (size_t)n), 0);
		assert_same(&a, &b);
	}
	/* RC 23, UC 12 (SEND and WRITE forms), UD 2, CNP */
	assert_int_equal(known, 23 + 12 + 2 + 1);
}

/* The buffer is a heap block of exactly the packet's length, so that ASan sees any read beyond it. */
static void packets_cut_short_are_refused(void **state)
{
	uint64_t s = 5;
	unsigned op;

	(void)state;
	for (op = 0; op < 256; op++) {
		size_t hdr = wire_roce_hdr_len(wire_opcode_flags((uint8_t)op)), len;

		for (len = 0; len < hdr + 8; len++) {
			uint8_t *p = malloc(len ? len : 1);
			struct wire_roce r;
			int rc;

			fill(&s, p, len);
			if (len)
				p[0] = (uint8_t)op;
			rc = wire_roce_decode(&r, p, len);
			if (len < WIRE_BTH_LEN + WIRE_ICRC_LEN)
				assert_int_equal(rc, -EMSGSIZE);
			else if (!wire_opcode_flags((uint8_t)op))
				assert_int_equal(rc, -EPROTONOSUPPORT);
			else if (len < hdr + WIRE_ICRC_LEN)
				assert_int_equal(rc, -EMSGSIZE);
			else if (len - hdr - WIRE_ICRC_LEN < (p[1] >> 4 & 3))
				assert_int_equal(rc, -EBADMSG);
			else
				assert_int_equal(rc, 0);
			free(p);
		}
	}
}

/* --- frames ------------------------------------------------------------------------------------- */

static const uint8_t gid_a[16] = {
	0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0xff, 0xfe, 0, 0, 1
};
static const uint8_t gid_b[16] = {
	0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x54, 0xff, 0xfe, 0, 0, 2
};

/* A frame with the 5-byte payload "hello"; returns its length. */
static size_t make_frame(struct wire_frame *f, uint8_t *buf, bool v6)
{
	*f = (struct wire_frame){
		.eth_dst = { 2, 0, 0, 0, 0, 1 },
		.eth_src = { 2, 0, 0, 0, 0, 2 },
		.ip = { .ttl = 64, .dont_frag = true, .id = v6 ? 0 : 9, .flow = v6 ? 0x880a8 : 0 },
		.udp = { 0xc001, WIRE_ROCE_PORT, 0 },
		.payload_len = 5,
	};
	wire_gid_from_v4(f->ip.src, (uint8_t[]){ 10, 0, 2, 1 });
	wire_gid_from_v4(f->ip.dst, (uint8_t[]){ 10, 0, 2, 2 });
	if (v6) {
		memcpy(f->ip.src, gid_a, 16);
		memcpy(f->ip.dst, gid_b, 16);
	}
	assert_true(wire_frame_encode(f, buf, 128) > 0);
	memcpy(buf + f->hdr_len, "hello", 5);
	return f->hdr_len + 5;
}

static void udp_checksum_has_known_values(void **state)
{
	struct wire_frame f;
	uint8_t buf[128];

	(void)state;
	make_frame(&f, buf, false);
	wire_frame_seal(&f, buf);
	assert_int_equal(f.udp.csum, 0xd146);
	make_frame(&f, buf, true);
	wire_frame_seal(&f, buf);
	assert_int_equal(f.udp.csum, 0x45a4);
	assert_int_equal(wire_get_be16(buf + f.hdr_len - 2), 0x45a4);
}

static void frames_come_back_as_they_went(void **state)
{
	struct wire_frame f, g;
	uint8_t buf[128], again[128];
	int v6;

	(void)state;
	for (v6 = 0; v6 < 2; v6++) {
		size_t n = make_frame(&f, buf, v6);

		memset(&g, 0xee, sizeof(g));
		assert_int_equal(wire_frame_decode(&g, buf, n + 20), 0);
		assert_int_equal(g.payload_len, 5);
		assert_int_equal(g.hdr_len, f.hdr_len);
		assert_int_equal(g.ip.flow, v6 ? 0x880a8 : 0);
		assert_int_equal(wire_frame_encode(&g, again, n), f.hdr_len);
		assert_memory_equal(again, buf, f.hdr_len);
		assert_int_equal(wire_frame_encode(&g, again, n - 1), -ENOBUFS);
		g.payload_len = 65536;
		assert_int_equal(wire_frame_encode(&g, again, SIZE_MAX), -EMSGSIZE);
	}
	memcpy(f.ip.src, (uint8_t[16]){ [10] = 0xff, [11] = 0xff, [12] = 10 }, 16);
	assert_int_equal(wire_frame_encode(&f, again, sizeof(again)), -EINVAL);
}

static int spoilt(bool v6, size_t at, uint8_t value, bool fix_sum)
{
	struct wire_frame f;
	uint8_t buf[128];
	size_t n = make_frame(&f, buf, v6), i;
	uint32_t sum = 0;

	buf[at] = value;
	if (fix_sum) {
		buf[24] = buf[25] = 0;
		for (i = 14; i < 34; i += 2)
			sum += wire_get_be16(buf + i);
		sum = (sum & 0xffff) + (sum >> 16);
		wire_put_be16(buf + 24, (uint16_t)~sum);
	}
	return wire_frame_decode(&f, buf, n);
}

static void frames_of_another_kind_are_told_apart(void **state)
{
	(void)state;
	assert_int_equal(spoilt(false, 12, 0x81, false), -EPROTONOSUPPORT); /* VLAN */
	assert_int_equal(spoilt(false, 14, 0x46, false), -EPROTONOSUPPORT); /* IP options */
	assert_int_equal(spoilt(false, 14, 0x65, false), -EBADMSG);
	assert_int_equal(spoilt(false, 17, 34, false), -EMSGSIZE);
	assert_int_equal(spoilt(false, 17, 19, false), -EBADMSG);
	assert_int_equal(spoilt(false, 19, 10, false), -EBADMSG); /* checksum */
	assert_int_equal(spoilt(false, 19, 10, true), 0);
	assert_int_equal(spoilt(false, 20, 0x60, true), -EPROTONOSUPPORT); /* more fragments */
	assert_int_equal(spoilt(false, 21, 1, true), -EPROTONOSUPPORT);    /* fragment */
	assert_int_equal(spoilt(false, 23, 6, true), -EPROTONOSUPPORT);    /* TCP */
	assert_int_equal(spoilt(false, 39, 12, false), -EBADMSG);          /* UDP length */
	assert_int_equal(spoilt(false, 39, 14, false), -EBADMSG);
	assert_int_equal(spoilt(true, 14, 0x45, false), -EBADMSG);
	assert_int_equal(spoilt(true, 19, 14, false), -EMSGSIZE);
	assert_int_equal(spoilt(true, 20, 58, false), -EPROTONOSUPPORT);
	assert_int_equal(spoilt(true, 59, 12, false), -EBADMSG);
}

static void frames_cut_short_are_refused(void **state)
{
	struct wire_frame f;
	uint8_t buf[128];
	int v6;

	(void)state;
	for (v6 = 0; v6 < 2; v6++) {
		size_t n = make_frame(&f, buf, v6), len;

		for (len = 0; len < n; len++) {
			uint8_t *p = malloc(len ? len : 1);

			memcpy(p, buf, len);
			assert_int_equal(wire_frame_decode(&f, p, len), -EMSGSIZE);
			free(p);
		}
	}
}

/* --- connection management ---------------------------------------------------------------------- */

static void random_mads_come_back_as_they_went(void **state)
{
	uint64_t s = 3;
	int i;

	(void)state;
	for (i = 0; i < 2000; i++) {
		uint8_t mad[WIRE_MAD_LEN], again[WIRE_MAD_LEN];
		struct wire_cm cm, cm2;

		/* Decode noise, so that every field has some value; what it encodes to is canonical. */
		fill(&s, mad, sizeof(mad));
		memcpy(mad, (uint8_t[]){ 1, 7, 2, 3 }, 4);
		wire_put_be16(mad + 16, (uint16_t)(WIRE_CM_REQ + i % 9));
		wire_put_be16(mad + 24 + 96, 0);
		if (wire_get_be16(mad + 16) == WIRE_CM_REJ)
			mad[24 + 9] %= 2 * WIRE_CM_ARI;
		if (wire_get_be16(mad + 16) == WIRE_CM_SIDR_REP)
			mad[24 + 5] %= WIRE_CM_ARI;
		assert_int_equal(wire_cm_decode(&cm, mad, sizeof(mad)), 0);
		assert_int_equal(wire_cm_encode(&cm, mad), 0);
		assert_int_equal(wire_cm_decode(&cm2, mad, sizeof(mad)), 0);
		assert_memory_equal(&cm, &cm2, sizeof(cm));
		assert_int_equal(wire_cm_encode(&cm2, again), 0);
		assert_memory_equal(mad, again, sizeof(mad));
	}
}

static void mads_out_of_range_are_refused(void **state)
{
	struct wire_cm cm = { .attr = WIRE_CM_REJ, .u.rej.info_len = WIRE_CM_ARI };
	uint8_t mad[WIRE_MAD_LEN];

	(void)state;
	assert_int_equal(wire_cm_encode(&cm, mad), 0);
	assert_int_equal(wire_cm_decode(&cm, mad, 255), -EMSGSIZE);
	assert_int_equal(wire_cm_decode(&cm, mad, 257), -EMSGSIZE);
	assert_int_equal(wire_cm_decode(&cm, mad, 256), 0);
	mad[24 + 9] = (WIRE_CM_ARI + 1) << 1;
	assert_int_equal(wire_cm_decode(&cm, mad, 256), -EBADMSG);
	mad[2] = 1;
	assert_int_equal(wire_cm_decode(&cm, mad, 256), -EPROTONOSUPPORT);

	memset(&cm, 0, sizeof(cm));
	cm.attr = WIRE_CM_REQ;
	wire_cm_encode(&cm, mad);
	mad[24 + 97] = 1;
	assert_int_equal(wire_cm_decode(&cm, mad, 256), -EOPNOTSUPP);
	cm.attr = 0x19;
	assert_int_equal(wire_cm_encode(&cm, mad), -EPROTONOSUPPORT);
	mad[17] = 0x19;
	assert_int_equal(wire_cm_decode(&cm, mad, 256), -EPROTONOSUPPORT);
}

static void rdmacm_header_keeps_both_families(void **state)
{
	struct wire_rdmacm h, g;
	uint8_t p[WIRE_RDMACM_LEN];

	(void)state;
	/* Padding, too: the two are compared as bytes. */
	memset(&h, 0, sizeof(h));
	memset(&g, 0, sizeof(g));
	h.ip_version = 6;
	h.sport = 7471;
	memcpy(h.src, gid_a, 16);
	memcpy(h.dst, gid_b, 16);
	wire_rdmacm_encode(&h, p);
	assert_int_equal(wire_rdmacm_decode(&g, p, sizeof(p)), 0);
	assert_memory_equal(&g, &h, sizeof(g));
	assert_int_equal(wire_rdmacm_decode(&g, p, sizeof(p) - 1), -EMSGSIZE);
	p[1] = 0x50;
	assert_int_equal(wire_rdmacm_decode(&g, p, sizeof(p)), -EPROTONOSUPPORT);
	p[1] = 0x40;
	p[0] = 1;
	assert_int_equal(wire_rdmacm_decode(&g, p, sizeof(p)), -EPROTONOSUPPORT);
	assert_int_equal(wire_rdmacm_service_id(WIRE_RDMACM_PS_TCP, 7471), UINT64_C(0x01061d2f));
}

/* --- pcap --------------------------------------------------------------------------------------- */

static void captures_written_can_be_read(void **state)
{
	uint8_t file[24 + 16 + 60];
	struct wire_pcap_reader r;
	const uint8_t *frame;
	size_t n;

	(void)state;
	wire_pcap_header_put(file);
	wire_pcap_record_put(file + 24, UINT64_C(5000000123), 60);
	assert_int_equal(wire_pcap_open(&r, file, sizeof(file)), 0);
	assert_int_equal(wire_pcap_next(&r, &frame), 60);
	assert_ptr_equal(frame, file + 40);
	assert_int_equal(r.stamp_ns, UINT64_C(5000000123));
	assert_int_equal(wire_pcap_next(&r, &frame), -ENODATA);
	for (n = 25; n < sizeof(file); n++) {
		assert_int_equal(wire_pcap_open(&r, file, n), 0);
		assert_int_equal(wire_pcap_next(&r, &frame), -EBADMSG);
	}
	assert_int_equal(wire_pcap_open(&r, file, 23), -EMSGSIZE);
	file[0] = 0;
	assert_int_equal(wire_pcap_open(&r, file, sizeof(file)), -EPROTONOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_has_its_check_value),
		cmocka_unit_test(crc_is_the_same_however_it_is_cut),
		cmocka_unit_test(crc_by_folding_is_the_same_as_by_tables),
		cmocka_unit_test(crc_masks_what_routers_change),
		cmocka_unit_test(crc_tells_the_id),
		cmocka_unit_test(psn_distance_wraps),
		cmocka_unit_test(timer_codes_match_the_tables),
		cmocka_unit_test(mtu_codes_match_their_sizes),
		cmocka_unit_test(source_port_follows_the_flow_label),
		cmocka_unit_test(syndromes_have_kinds),
		cmocka_unit_test(every_opcode_comes_back_as_it_went),
		cmocka_unit_test(packets_cut_short_are_refused),
		cmocka_unit_test(udp_checksum_has_known_values),
		cmocka_unit_test(frames_come_back_as_they_went),
		cmocka_unit_test(frames_of_another_kind_are_told_apart),
		cmocka_unit_test(frames_cut_short_are_refused),
		cmocka_unit_test(random_mads_come_back_as_they_went),
		cmocka_unit_test(mads_out_of_range_are_refused),
		cmocka_unit_test(rdmacm_header_keeps_both_families),
		cmocka_unit_test(captures_written_can_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
