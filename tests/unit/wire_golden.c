/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets that rdma_rxe, rdma-core and a user-space peer exchanged decode, and encode again to the byte,
 * ICRC included. tests/data/roce/golden.pcap always; the whole captures where the folder that they come
 * from lies beside the checkout (or where GPUNET_PCAP_DIR says); tshark's opinion where tshark is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include <cmocka.h>

#include "wire/bytes.h"
#include "wire/cm.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/pcap.h"
#include "wire/roce.h"

#define GOLDEN GPUNET_TEST_DATA "/roce/golden.pcap"

struct tally {
	unsigned roce;     /* RoCE packets */
	unsigned other;    /* frames of another kind */
	unsigned bad_icrc; /* sent wrong on purpose */
	unsigned cm;
	unsigned udp_csum; /* packets with a whole UDP checksum */
	unsigned udp_part; /* caught before the sender's device completed it */
	unsigned opcode[256];
	unsigned attr[32];
};

static uint8_t *load(const char *path, size_t *len)
{
	FILE *f = fopen(path, "rb");
	uint8_t *buf = malloc(1 << 20);

	if (!f)
		fail_msg("cannot open %s", path);
	*len = fread(buf, 1, 1 << 20, f);
	assert_true(feof(f));
	fclose(f);
	return buf;
}

/* A QP1 datagram: the MAD encodes back, and a REQ's RDMA CM header too. */
static void check_cm(const struct wire_roce *r, struct tally *t)
{
	struct wire_cm cm;
	uint8_t mad[WIRE_MAD_LEN], priv[WIRE_CM_REQ_PRIV];
	struct wire_rdmacm h;
	uint16_t ps = 0, port = 0;

	assert_int_equal(r->deth.qkey, WIRE_CM_QKEY_GSI);
	assert_int_equal(wire_cm_decode(&cm, r->payload, r->payload_len), 0);
	assert_int_equal(wire_cm_encode(&cm, mad), 0);
	assert_memory_equal(mad, r->payload, WIRE_MAD_LEN);
	t->cm++;
	t->attr[cm.attr]++;
	if (cm.attr != WIRE_CM_REQ)
		return;
	assert_true(wire_rdmacm_from_service_id(cm.u.req.service_id, &ps, &port));
	assert_int_equal(ps, WIRE_RDMACM_PS_TCP);
	assert_int_equal(wire_rdmacm_service_id(ps, port), cm.u.req.service_id);
	assert_int_equal(wire_rdmacm_decode(&h, cm.u.req.priv, sizeof(cm.u.req.priv)), 0);
	memcpy(priv, cm.u.req.priv, sizeof(priv));
	memset(priv, 0xee, WIRE_RDMACM_LEN);
	wire_rdmacm_encode(&h, priv);
	assert_memory_equal(priv, cm.u.req.priv, sizeof(priv));
}

/*
 * A checksum in a capture is either whole, or, caught on the sending machine, the sum of the pseudo header that
 * the device would have completed. `out` is our encoding with the captured checksum; it is left so.
 */
static void check_udp_csum(struct wire_frame *f, uint8_t *out, struct tally *t)
{
	uint16_t seen = f->udp.csum;
	uint32_t pseudo = 17 + 8 + (uint32_t)f->payload_len;
	size_t i;

	if (!seen)
		return;
	if (wire_udp_csum(f, out) == seen) {
		t->udp_csum++;
		wire_frame_seal(f, out);
		assert_int_equal(f->udp.csum, seen);
		return;
	}
	assert_true(wire_ip_is_v4(&f->ip));
	for (i = 12; i < 16; i += 2)
		pseudo += (uint32_t)wire_get_be16(f->ip.src + i) + wire_get_be16(f->ip.dst + i);
	while (pseudo >> 16)
		pseudo = (pseudo & 0xffff) + (pseudo >> 16);
	assert_int_equal(seen, pseudo);
	t->udp_part++;
}

static void check_roce(struct wire_frame *f, const uint8_t *buf, struct tally *t)
{
	const uint8_t *bth = buf + f->hdr_len;
	uint8_t out[9000];
	struct wire_roce r;
	int n;

	assert_int_equal(wire_roce_decode(&r, bth, f->payload_len), 0);
	t->roce++;
	t->opcode[r.bth.opcode]++;
	assert_int_equal(wire_pad(r.payload_len), r.bth.pad);
	if (wire_icrc(&f->ip, &f->udp, bth, f->payload_len - WIRE_ICRC_LEN) == r.icrc)
		r.icrc = wire_icrc(&f->ip, &f->udp, bth, f->payload_len - WIRE_ICRC_LEN);
	else
		t->bad_icrc++;
	if (r.bth.dqpn == WIRE_CM_QPN_GSI)
		check_cm(&r, t);
	n = wire_frame_encode(f, out, sizeof(out));
	assert_int_equal(n, f->hdr_len);
	n = wire_roce_encode(&r, out + n, sizeof(out) - (size_t)n);
	assert_int_equal(n, f->payload_len);
	check_udp_csum(f, out, t);
	assert_memory_equal(out, buf, f->hdr_len + f->payload_len);
}

static void check_capture(const char *path, struct tally *t)
{
	struct wire_pcap_reader rd;
	const uint8_t *frame;
	uint8_t *file;
	size_t len;
	int64_t n;

	file = load(path, &len);
	assert_int_equal(wire_pcap_open(&rd, file, len), 0);
	while ((n = wire_pcap_next(&rd, &frame)) >= 0) {
		struct wire_frame f;
		int rc = wire_frame_decode(&f, frame, (size_t)n);

		if (rc == 0 && f.udp.dport == WIRE_ROCE_PORT) {
			check_roce(&f, frame, t);
		} else {
			assert_true(rc == 0 || rc == -EPROTONOSUPPORT);
			t->other++;
		}
	}
	assert_int_equal(n, -ENODATA);
	free(file);
}

static void golden_packets_encode_to_the_byte(void **state)
{
	static const uint8_t seen[] = { 0x00, 0x01, 0x02, 0x04, 0x06, 0x07, 0x08, 0x09, 0x0a,
					0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13,
					0x14, 0x20, 0x21, 0x22, 0x64, 0x65, 0x81 };
	struct tally t = { 0 };
	size_t i;

	(void)state;
	check_capture(GOLDEN, &t);
	assert_int_equal(t.roce, 124);
	assert_int_equal(t.other, 2);
	assert_int_equal(t.bad_icrc, 1);
	assert_true(t.udp_part > 0);
	for (i = 0; i < sizeof(seen); i++)
		assert_true(t.opcode[seen[i]] > 0);
	for (i = WIRE_CM_REQ; i <= WIRE_CM_SIDR_REP; i++)
		assert_true(i == WIRE_CM_MRA || t.attr[i] > 0);
}

static void whole_captures_encode_to_the_byte(void **state)
{
	const char *dir = getenv("GPUNET_PCAP_DIR");
	struct tally t = { 0 };
	struct dirent *e;
	DIR *d;

	(void)state;
	if (!dir)
		dir = GPUNET_SOURCE_DIR "/../shared/pcap";
	d = opendir(dir);
	if (!d) {
		print_message("no captures at %s (GPUNET_PCAP_DIR names another place)\n", dir);
		skip();
	}
	while ((e = readdir(d)) != NULL) {
		const char *dot = strrchr(e->d_name, '.');
		char path[1024];

		if (!dot || strcmp(dot, ".pcap") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		check_capture(path, &t);
	}
	closedir(d);
	print_message(
		"%u RoCE packets, %u of them CM, %u UDP checksums (%u partial), %u wrong ICRC\n",
		t.roce, t.cm, t.udp_csum + t.udp_part, t.udp_part, t.bad_icrc);
	assert_true(t.roce >= 1278);
	assert_int_equal(t.bad_icrc, 1);
}

/* --- tshark ------------------------------------------------------------------------------------- */

#define TSHARK_FIELDS                                                                                \
	" -e frame.number -e infiniband.bth.opcode -e infiniband.bth.padcnt -e infiniband.bth.p_key" \
	" -e infiniband.bth.destqp -e infiniband.bth.a -e infiniband.bth.psn -e infiniband.reth.va"  \
	" -e infiniband.reth.r_key -e infiniband.reth.dmalen -e infiniband.aeth.syndrome"            \
	" -e infiniband.aeth.msn -e infiniband.deth.q_key -e infiniband.deth.srcqp"                  \
	" -e infiniband.immdt -e infiniband.atomiceth.swapdt -e infiniband.atomiceth.cmpdt"          \
	" -e infiniband.atomicacketh.origremdt -e infiniband.invariant.crc"

enum { COLUMNS = 19, COLUMN_IMM = 14 };

__attribute__((format(printf, 2, 3))) static void put(char **row, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	*row += vsprintf(*row, format, ap);
	va_end(ap);
}

/* Our view of a packet, one number a column, "-" where the packet has no such header. */
static void our_row(char *row, unsigned number, const struct wire_roce *r)
{
	put(&row, "%u %u %u %u %u %u %u", number, r->bth.opcode, r->bth.pad, r->bth.pkey,
	    r->bth.dqpn, r->bth.ack_req, r->bth.psn);
	if (r->flags & WIRE_X_RETH)
		put(&row, " %llu %u %u", (unsigned long long)r->reth.va, r->reth.rkey, r->reth.len);
	else if (r->flags & WIRE_X_ATOMIC)
		put(&row, " %llu %u -", (unsigned long long)r->atomic.va, r->atomic.rkey);
	else
		put(&row, " - - -");
	if (r->flags & WIRE_X_AETH)
		put(&row, " %u %u", r->aeth.syndrome, r->aeth.msn);
	else
		put(&row, " - -");
	if (r->flags & WIRE_X_DETH)
		put(&row, " %u %u", r->deth.qkey, r->deth.sqpn);
	else
		put(&row, " - -");
	if (r->flags & WIRE_X_IMM)
		put(&row, " %u", r->imm);
	else
		put(&row, " -");
	if (r->flags & WIRE_X_ATOMIC)
		put(&row, " %llu %llu", (unsigned long long)r->atomic.swap_add,
		    (unsigned long long)r->atomic.compare);
	else
		put(&row, " - -");
	if (r->flags & WIRE_X_ATOMIC_ACK)
		put(&row, " %llu", (unsigned long long)r->atomic_orig);
	else
		put(&row, " -");
	/* tshark reads the ICRC's bytes as big-endian, and does not look into a CNP. */
	if (r->bth.opcode == WIRE_CNP)
		put(&row, " -");
	else
		put(&row, " %u", __builtin_bswap32(r->icrc));
}

/* tshark's line with its separators, hexadecimal numbers and booleans, in the form of our_row(). */
static void their_row(char *row, char *line)
{
	unsigned i;

	line[strcspn(line, "\n")] = 0;
	for (i = 0; i < COLUMNS; i++) {
		char *field = strsep(&line, "\t");

		put(&row, i ? " " : "");
		if (!field || !*field)
			put(&row, "-");
		else if (strcmp(field, "True") == 0 || strcmp(field, "False") == 0)
			put(&row, "%d", *field == 'T');
		else
			/* The immediate is printed as bytes, without 0x. */
			put(&row, "%llu", strtoull(field, NULL, i == COLUMN_IMM ? 16 : 0));
	}
}

/* The next RoCE packet of the capture that tshark dissects; false at the end. */
static bool next_packet(struct wire_pcap_reader *rd, unsigned *number, struct wire_roce *r)
{
	const uint8_t *frame;
	struct wire_frame f;
	int64_t n;

	while ((n = wire_pcap_next(rd, &frame)) >= 0) {
		++*number;
		if (wire_frame_decode(&f, frame, (size_t)n) == 0 && f.udp.dport == WIRE_ROCE_PORT) {
			assert_int_equal(wire_roce_decode(r, frame + f.hdr_len, f.payload_len), 0);
			return true;
		}
	}
	return false;
}

static void tshark_agrees(void **state)
{
	struct wire_pcap_reader rd;
	char line[4096], ours[1024], theirs[1024];
	unsigned number = 0, compared = 0;
	struct wire_roce r;
	uint8_t *file;
	size_t len;
	FILE *p;

	(void)state;
	if (system("tshark --version >/dev/null 2>&1") != 0) {
		print_message("tshark is not installed\n");
		skip();
	}
	file = load(GOLDEN, &len);
	assert_int_equal(wire_pcap_open(&rd, file, len), 0);
	p = popen("timeout 60 tshark -n --disable-protocol rpcordma -r " GOLDEN
		  " -Y infiniband -T fields" TSHARK_FIELDS " 2>/dev/null",
		  "r");
	assert_non_null(p);
	while (next_packet(&rd, &number, &r)) {
		assert_non_null(fgets(line, sizeof(line), p));
		our_row(ours, number, &r);
		their_row(theirs, line);
		assert_string_equal(ours, theirs);
		compared++;
	}
	assert_null(fgets(line, sizeof(line), p));
	assert_int_equal(pclose(p), 0);
	assert_int_equal(compared, 124);
	free(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_packets_encode_to_the_byte),
		cmocka_unit_test(whole_captures_encode_to_the_byte),
		cmocka_unit_test(tshark_agrees),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
