/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private data, immediates and SGL entries from a peer: what is accepted is within what the stream reckons with, and encodes
 * to what decodes to the same.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/bytes.h"
#include "wire/rsocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

static int same(const struct wire_rsock_sge *a, const struct wire_rsock_sge *b)
{
	return a->addr == b->addr && a->key == b->key && a->length == b->length;
}

static void conn(const uint8_t *data, size_t size)
{
	uint8_t out[WIRE_RSOCK_CONN_LEN];
	struct wire_rsock_conn c, again;

	if (wire_rsock_conn_decode(&c, data, size))
		return;
	must(c.credits >= WIRE_RSOCK_MIN_CREDITS && c.sgl.length >= WIRE_RSOCK_MIN_SGL &&
	     c.data.length);
	must(c.iomap_size <= 127u << 8);
	wire_rsock_conn_encode(&c, out);
	must(wire_rsock_conn_decode(&again, out, sizeof(out)) == 0);
	must(again.flags == c.flags && again.credits == c.credits &&
	     again.iomap_size == c.iomap_size);
	must(same(&again.sgl, &c.sgl) && same(&again.data, &c.data));
}

static void imm(uint32_t v)
{
	struct wire_rsock_msg m;

	if (wire_rsock_imm_decode(&m, v))
		return;
	must(wire_rsock_imm(m.op, m.value) == v);
	must(m.op != WIRE_RSOCK_OP_DATA || m.value);
}

static void entry(const uint8_t *p)
{
	uint8_t out[WIRE_RSOCK_SGE_LEN];
	struct wire_rsock_sge s;
	int big;

	for (big = 0; big < 2; big++) {
		wire_rsock_sge_decode(&s, big, p);
		wire_rsock_sge_encode(&s, big, out);
		must(memcmp(out, p, sizeof(out)) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	conn(data, size);
	if (size >= 4)
		imm(wire_get_be32(data));
	if (size >= WIRE_RSOCK_SGE_LEN)
		entry(data);
	return 0;
}
