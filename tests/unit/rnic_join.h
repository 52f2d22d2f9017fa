/* SPDX-License-Identifier: BSD-3-Clause */
/* A reliable queue pair of a test on real wires, from creation to its peer. After <cmocka.h>. */
#ifndef GPUNET_TESTS_RNIC_JOIN_H
#define GPUNET_TESTS_RNIC_JOIN_H

#include <string.h>

#include "base/sys.h"
#include "rnic/rnic.h"

/*
 * It asks for 4.3 s before it gives up: the kernel looks at links that have come up once a second at most, and does not answer for
 * an IPv6 address of theirs before.
 */
static inline void rnic_join(struct rnic_qp *qp, uint32_t dest_qpn, unsigned mtu,
			     const uint8_t src[16], const uint8_t dst[16])
{
	struct rnic_qp_attr a = { .access = RNIC_ACCESS_ALL,
				  .mtu = mtu,
				  .dest_qpn = dest_qpn,
				  .rq_psn = 7,
				  .sq_psn = 7,
				  .timeout = 17,
				  .retry = 7,
				  .rnr_retry = 7,
				  .min_rnr = 12,
				  .rd_atomic = 8,
				  .dest_rd_atomic = 8 };
	int s;

	memcpy(a.path.src, src, 16);
	memcpy(a.path.dst, dst, 16);
	for (s = RNIC_QPS_INIT; s <= RNIC_QPS_RTS; s++) {
		a.state = (enum rnic_qp_state)s;
		assert_int_equal(rnic_qp_modify(qp, &a,
						s == RNIC_QPS_RTR ? (1 << 14) - 1 : RNIC_ATTR_STATE,
						sys.now_ns()),
				 0);
	}
}

#endif
