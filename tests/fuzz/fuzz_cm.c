/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connection management datagrams: what is accepted encodes to a datagram that decodes to the same.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/cm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

static void rdmacm(const uint8_t *p, size_t len)
{
	uint8_t out[WIRE_RDMACM_LEN];
	struct wire_rdmacm h, g;

	if (wire_rdmacm_decode(&h, p, len))
		return;
	wire_rdmacm_encode(&h, out);
	must(wire_rdmacm_decode(&g, out, sizeof(out)) == 0);
	must(g.ip_version == h.ip_version && g.sport == h.sport);
	must(memcmp(g.src, h.src, 16) == 0 && memcmp(g.dst, h.dst, 16) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_cm cm, again;
	uint8_t mad[WIRE_MAD_LEN];

	rdmacm(data, size);
	if (wire_cm_decode(&cm, data, size))
		return 0;
	must(wire_cm_encode(&cm, mad) == 0);
	must(wire_cm_decode(&again, mad, sizeof(mad)) == 0);
	must(memcmp(&cm, &again, sizeof(cm)) == 0);
	if (cm.attr == WIRE_CM_REQ)
		rdmacm(cm.u.req.priv, sizeof(cm.u.req.priv));
	return 0;
}
