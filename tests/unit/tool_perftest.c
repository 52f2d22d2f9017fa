/* SPDX-License-Identifier: BSD-3-Clause */
/* perftest's exchange as bytes: what stock programs wrote, what we write, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <errno.h>

#include <cmocka.h>

#include "../../tools/perftest.h"

/* In the form that ib_write_bw 6.06 writes, with a GID of IPv4. */
static const char golden[PERFTEST_RECORD] =
	"0000:0010:000011:6b3a9f:000012a4:00007f1c2a5b1000:"
	"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:02:01:00000000:";

static void a_stock_record(void **state)
{
	static const uint8_t gid[16] = { [10] = 0xff, 0xff, 10, 0, 2, 1 };
	struct perftest_record r;
	char again[PERFTEST_RECORD];

	assert_int_equal(perftest_get_record(&r, golden), 0);
	assert_int_equal(r.lid, 0);
	assert_int_equal(r.reads, 16);
	assert_int_equal(r.qpn, 0x11);
	assert_int_equal(r.psn, 0x6b3a9f);
	assert_int_equal(r.rkey, 0x12a4);
	assert_int_equal(r.addr, UINT64_C(0x7f1c2a5b1000));
	assert_memory_equal(r.gid, gid, 16);
	assert_int_equal(r.srqn, 0);
	perftest_put_record(again, &r);
	assert_memory_equal(again, golden, PERFTEST_RECORD);
	(void)state;
}

static void every_bit_of_a_record(void **state)
{
	struct perftest_record r = { 0xfedc,   0x8001,     0xabcdef,
				     0x123456, 0xdeadbeef, UINT64_C(0xfedcba9876543210),
				     { 0 },    0x89abcdef },
			       back;
	char text[PERFTEST_RECORD];
	unsigned i;

	for (i = 0; i < 16; i++)
		r.gid[i] = (uint8_t)(0xf0 ^ i * 17);
	perftest_put_record(text, &r);
	assert_int_equal(strlen(text), PERFTEST_RECORD - 1);
	assert_int_equal(perftest_get_record(&back, text), 0);
	assert_int_equal(back.lid, r.lid);
	assert_int_equal(back.reads, r.reads);
	assert_int_equal(back.qpn, r.qpn);
	assert_int_equal(back.psn, r.psn);
	assert_int_equal(back.rkey, r.rkey);
	assert_int_equal(back.addr, r.addr);
	assert_memory_equal(back.gid, r.gid, 16);
	assert_int_equal(back.srqn, r.srqn);
	(void)state;
}

/* Each place holds a digit or a colon, and nothing else does. */
static void damaged_records(void **state)
{
	struct perftest_record r = { .qpn = 77 };
	char text[PERFTEST_RECORD];
	unsigned i;

	for (i = 0; i < PERFTEST_RECORD; i++) {
		memcpy(text, golden, sizeof(text));
		text[i] = text[i] == ':' ? '0' : text[i] ? ':' : 'x';
		assert_int_equal(perftest_get_record(&r, text), -EPROTO);
		text[i] = ' ';
		assert_int_equal(perftest_get_record(&r, text), -EPROTO);
	}
	assert_int_equal(r.qpn, 77);
	(void)state;
}

static int version(const char *text)
{
	uint8_t in[PERFTEST_VERSION] = { 0 };

	memcpy(in, text, strlen(text) < sizeof(in) ? strlen(text) : sizeof(in));
	return perftest_get_version(in);
}

static void versions(void **state)
{
	uint8_t ours[PERFTEST_VERSION];

	perftest_put_version(ours);
	assert_string_equal((char *)ours, "6.27");
	assert_int_equal(perftest_get_version(ours), 627);
	assert_int_equal(version("6.06"), 606);
	assert_int_equal(version("6"), 600);
	assert_int_equal(version("5.7"), 570);
	assert_int_equal(version("6.281"), 628);
	assert_int_equal(version("25.07.0"), 2507);
	assert_int_equal(version(""), -EPROTO);
	assert_int_equal(version("x6"), -EPROTO);
	assert_int_equal(version("1234567890123456"), -EPROTO);
	(void)state;
}

static void mtus(void **state)
{
	static const unsigned bytes[] = { 256, 512, 1024, 2048, 4096 };
	uint8_t b[PERFTEST_MTU];
	unsigned i;

	for (i = 0; i < 5; i++) {
		perftest_put_mtu(b, bytes[i]);
		assert_int_equal(b[0], '1' + i);
		assert_int_equal(b[1], 0);
		assert_int_equal(perftest_get_mtu(b), bytes[i]);
	}
	perftest_put_mtu(b, 1500);
	assert_int_equal(perftest_get_mtu(b), 1024);
	assert_int_equal(perftest_get_mtu((const uint8_t *)"0"), -EPROTO);
	assert_int_equal(perftest_get_mtu((const uint8_t *)"6"), -EPROTO);
	assert_int_equal(perftest_get_mtu((const uint8_t *)"33"), -EPROTO);
	(void)state;
}

static void reports_and_numbers(void **state)
{
	const struct perftest_report r = { 65536, 5000, 1234.5, 1200.25, 0.0192 };
	uint8_t b[PERFTEST_FIGURES][PERFTEST_FIGURE], n[PERFTEST_NUMBER];
	static const uint8_t size[8] = { 0, 0, 0, 0, 0, 1, 0, 0 };
	static const uint8_t peak[8] = { 0x40, 0x93, 0x4a };
	struct perftest_report back;

	perftest_put_report(b, &r);
	assert_memory_equal(b[0], size, 8);
	assert_memory_equal(b[2], peak, 8);
	assert_int_equal(perftest_get_report(&back, b), 0);
	assert_memory_equal(&back, &r, sizeof(r));
	memset(b[4], 0xff, 8);
	assert_int_equal(perftest_get_report(&back, b), -EPROTO);
	perftest_put_number(n, 0x01020304);
	assert_memory_equal(n, "\1\2\3\4", 4);
	assert_int_equal(perftest_get_number(n), 0x01020304);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stock_record),
		cmocka_unit_test(every_bit_of_a_record),
		cmocka_unit_test(damaged_records),
		cmocka_unit_test(versions),
		cmocka_unit_test(mtus),
		cmocka_unit_test(reports_and_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
