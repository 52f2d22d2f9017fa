/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ethernet frames down to the transport packet: whatever is accepted encodes again to the same bytes.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/roce.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A sanitizer reports the trap with its stack. */
static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

static void transport(const uint8_t *data, size_t size)
{
	struct wire_roce r;
	uint8_t *out;
	size_t body;

	if (wire_roce_decode(&r, data, size))
		return;
	must(r.payload >= data &&
	     r.payload + r.payload_len + r.bth.pad + WIRE_ICRC_LEN == data + size);
	must(wire_opcode_name(r.bth.opcode)[0] != 'u');
	out = malloc(size);
	must(wire_roce_encode(&r, out, size) == (int)size);
	/* All but the pad, which is written as zeros. */
	body = size - WIRE_ICRC_LEN - r.bth.pad;
	must(memcmp(out, data, body) == 0);
	must(memcmp(out + size - WIRE_ICRC_LEN, data + size - WIRE_ICRC_LEN, WIRE_ICRC_LEN) == 0);
	must(wire_roce_encode(&r, out, size - 1) < 0);
	free(out);
}

/* IPv4's checksum has two spellings of zero, and we write one of them. */
static bool same_envelope(const uint8_t *a, const uint8_t *b, size_t len)
{
	const size_t sum = WIRE_ETH_LEN + 10;

	if (a[WIRE_ETH_LEN] >> 4 != 4)
		return memcmp(a, b, len) == 0;
	return memcmp(a, b, sum) == 0 && memcmp(a + sum + 2, b + sum + 2, len - sum - 2) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_frame f;
	uint8_t *out;
	size_t n;

	/* Without the envelope first: mutations reach the transport headers sooner. */
	transport(data, size);
	if (wire_frame_decode(&f, data, size))
		return 0;
	n = f.hdr_len + f.payload_len;
	must(n <= size);
	out = malloc(n);
	must(wire_frame_encode(&f, out, n) == (int)f.hdr_len);
	must(same_envelope(out, data, f.hdr_len));
	memcpy(out + f.hdr_len, data + f.hdr_len, f.payload_len);
	wire_frame_seal(&f, out);
	free(out);
	if (f.payload_len >= WIRE_BTH_LEN + WIRE_ICRC_LEN)
		wire_icrc(&f.ip, &f.udp, data + f.hdr_len, f.payload_len - WIRE_ICRC_LEN);
	transport(data + f.hdr_len, f.payload_len);
	return 0;
}
