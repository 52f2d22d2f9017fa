/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rsocket protocol's codec: against what librdmacm sends, against docs/wire/rsocket.md, and what it refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

#include "wire/rsocket.h"

/* REP of rcopy (librdmacm 44, rdma_rxe, x86-64), as captured. */
static const uint8_t stock[WIRE_RSOCK_CONN_LEN] = {
	0x01, 0x02, 0x01, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x7f, 0x0e, 0xe0, 0x02,
	0x40, 0x00, 0x00, 0x00, 0xe8, 0x62, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x7f, 0x0e,
	0xe0, 0x02, 0x60, 0x00, 0x00, 0x00, 0xe9, 0x96, 0x00, 0x01, 0x00, 0x00,
};

static void stock_private_data(void **state)
{
	uint8_t again[WIRE_RSOCK_CONN_LEN];
	struct wire_rsock_conn c;

	assert_int_equal(wire_rsock_conn_decode(&c, stock, sizeof(stock)), 0);
	assert_int_equal(c.flags, WIRE_RSOCK_IOMAP);
	assert_int_equal(c.credits, 384);
	assert_int_equal(c.iomap_size, 0);
	assert_int_equal(c.sgl.length, 2);
	assert_int_equal(c.sgl.key, 0xe862);
	assert_int_equal(c.data.length, 64 << 10);
	assert_true(c.data.addr == UINT64_C(0x7f0ee0026000));
	wire_rsock_conn_encode(&c, again);
	assert_memory_equal(again, stock, sizeof(stock));
}

static int decode_with(unsigned at, uint8_t value)
{
	uint8_t p[WIRE_RSOCK_CONN_LEN];
	struct wire_rsock_conn c;

	memcpy(p, stock, sizeof(p));
	p[at] = value;
	return wire_rsock_conn_decode(&c, p, sizeof(p));
}

static void bad_private_data(void **state)
{
	struct wire_rsock_conn c;
	size_t n;

	for (n = 0; n < sizeof(stock); n++)
		assert_int_equal(wire_rsock_conn_decode(&c, stock, n), -EMSGSIZE);
	assert_int_equal(decode_with(WIRE_RSOCK_AT_VERSION, 0), -EPROTONOSUPPORT);
	assert_int_equal(decode_with(WIRE_RSOCK_AT_VERSION, 2), -EPROTONOSUPPORT);
	assert_int_equal(decode_with(WIRE_RSOCK_AT_SGL + 15, 0), -EPROTO);
	assert_int_equal(decode_with(WIRE_RSOCK_AT_SGL + 15, 1), -EPROTO);
	assert_int_equal(decode_with(WIRE_RSOCK_AT_DATA + 13, 0), -EPROTO);
	/* 384 credits less their low byte are 256 */
	assert_int_equal(decode_with(WIRE_RSOCK_AT_CREDITS + 1, 0), 0);
	assert_int_equal(decode_with(WIRE_RSOCK_AT_CREDITS, 0), 0);
	/* What is reserved is not looked at. */
	assert_int_equal(decode_with(4, 0xff), 0);
}

static void iomap_sizes_scale(void **state)
{
	static const struct {
		uint8_t wire;
		uint32_t size;
	} t[] = { { 0, 0 }, { 1, 1 }, { 128, 128 }, { 0x81, 256 }, { 0xff, 127 * 256 } };
	uint8_t p[WIRE_RSOCK_CONN_LEN], again[WIRE_RSOCK_CONN_LEN];
	struct wire_rsock_conn c;
	unsigned i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		memcpy(p, stock, sizeof(p));
		p[WIRE_RSOCK_AT_IOMAP_SIZE] = t[i].wire;
		assert_int_equal(wire_rsock_conn_decode(&c, p, sizeof(p)), 0);
		assert_int_equal(c.iomap_size, t[i].size);
		wire_rsock_conn_encode(&c, again);
		assert_int_equal(again[WIRE_RSOCK_AT_IOMAP_SIZE], t[i].wire);
	}
}

static void immediates(void **state)
{
	struct wire_rsock_msg m;
	unsigned op;

	/* As captured: a limit of more than 16 bits, a SHUTDOWN, a DISCONNECT. */
	assert_int_equal(wire_rsock_imm_decode(&m, 0x80010129), 0);
	assert_int_equal(m.op, WIRE_RSOCK_OP_SGL);
	assert_int_equal((uint16_t)m.value, 0x129);
	assert_int_equal(wire_rsock_imm_decode(&m, 0xe0000002), 0);
	assert_int_equal(m.value, WIRE_RSOCK_SHUTDOWN);
	assert_int_equal(wire_rsock_imm_decode(&m, 0xe0000000), 0);
	assert_int_equal(m.value, WIRE_RSOCK_DISCONNECT);
	assert_int_equal(wire_rsock_imm_decode(&m, 64), 0);
	assert_int_equal(m.op, WIRE_RSOCK_OP_DATA);
	assert_int_equal(wire_rsock_imm_decode(&m, 0), -EPROTO);
	assert_int_equal(wire_rsock_imm_decode(&m, 0xe0000003), -EPROTO);
	for (op = 1; op < 8; op++)
		assert_int_equal(wire_rsock_imm_decode(&m, wire_rsock_imm(op, 1)),
				 op == 4 || op == 6 || op == 7 ? 0 : -EPROTO);
}

static void entries_have_their_owners_order(void **state)
{
	const struct wire_rsock_sge s = { UINT64_C(0x0102030405060708), 0x0a0b0c0d, 0x00010002 };
	uint8_t big[WIRE_RSOCK_SGE_LEN], little[WIRE_RSOCK_SGE_LEN];
	struct wire_rsock_sge again;

	wire_rsock_sge_encode(&s, true, big);
	wire_rsock_sge_encode(&s, false, little);
	assert_int_equal(big[0], 1);
	assert_int_equal(big[15], 2);
	assert_int_equal(little[0], 8);
	assert_int_equal(little[12], 2);
	wire_rsock_sge_decode(&again, true, big);
	assert_memory_equal(&again, &s, sizeof(s));
	wire_rsock_sge_decode(&again, false, little);
	assert_memory_equal(&again, &s, sizeof(s));
}

/* Each name of the header that the page has stands there with its value, and each name of the header is on the page. */
static void the_page_agrees_with_the_header(void **state)
{
#define NAME(n)               \
	{                     \
#n, (long)(n) \
	}
	static const struct {
		const char *name;
		long value;
	} names[] = {
		NAME(WIRE_RSOCK_VERSION),     NAME(WIRE_RSOCK_CONN_LEN),
		NAME(WIRE_RSOCK_BIG_ENDIAN),  NAME(WIRE_RSOCK_IOMAP),
		NAME(WIRE_RSOCK_AT_VERSION),  NAME(WIRE_RSOCK_AT_FLAGS),
		NAME(WIRE_RSOCK_AT_CREDITS),  NAME(WIRE_RSOCK_AT_IOMAP_SIZE),
		NAME(WIRE_RSOCK_AT_SGL),      NAME(WIRE_RSOCK_AT_DATA),
		NAME(WIRE_RSOCK_MIN_CREDITS), NAME(WIRE_RSOCK_MIN_SGL),
		NAME(WIRE_RSOCK_OP_DATA),     NAME(WIRE_RSOCK_OP_SGL),
		NAME(WIRE_RSOCK_OP_IOMAP),    NAME(WIRE_RSOCK_OP_CTRL),
		NAME(WIRE_RSOCK_DISCONNECT),  NAME(WIRE_RSOCK_KEEPALIVE),
		NAME(WIRE_RSOCK_SHUTDOWN),    NAME(WIRE_RSOCK_OP_SHIFT),
		NAME(WIRE_RSOCK_SGE_LEN),
	};
	FILE *f = fopen(GPUNET_SOURCE_DIR "/docs/wire/rsocket.md", "r");
	char line[400], name[100];
	unsigned found = 0, i;
	long value;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "| `%99[A-Z_]` | %ld |", name, &value) != 2)
			continue;
		for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			if (strcmp(names[i].name, name))
				continue;
			if (names[i].value != value)
				fail_msg("%s is %ld, the page says %ld", name, names[i].value,
					 value);
			found++;
			break;
		}
		if (i == sizeof(names) / sizeof(names[0]))
			fail_msg("the page has %s, the header not", name);
	}
	fclose(f);
	assert_int_equal(found, sizeof(names) / sizeof(names[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stock_private_data),
		cmocka_unit_test(bad_private_data),
		cmocka_unit_test(iomap_sizes_scale),
		cmocka_unit_test(immediates),
		cmocka_unit_test(entries_have_their_owners_order),
		cmocka_unit_test(the_page_agrees_with_the_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
