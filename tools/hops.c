/* SPDX-License-Identifier: BSD-3-Clause */
/* The times of each hop of a message, as gpunet perf and gpunet stat print them. */
#include <stdio.h>

#include <gpunet/gpunet.h>

#include "tool.h"

void hops_text(const struct gpunet_hops *h)
{
	unsigned i;

	for (i = 0; i < GPUNET_HOP_COUNT; i++) {
		const struct gpunet_hop_time *t = &h->hop[i];

		if (t->count)
			printf("  hop %-16s p50 %9.3f us, p99 %9.3f us, %llu messages\n",
			       gpunet_hop_name(i), (double)t->p50 / 1e3, (double)t->p99 / 1e3,
			       (unsigned long long)t->count);
	}
	if (h->clock_error_ns)
		printf("  \"line to kernel\" and \"kernel to proxy\" are right in sum, and each to %.3f us\n",
		       (double)h->clock_error_ns / 1e3);
	/* Another clock than the CPU's: single times are no finer. */
	if (h->clock_error_ns && h->clock_step_ns > 100)
		printf("  the kernel's clock goes in steps of %.3f us\n",
		       (double)h->clock_step_ns / 1e3);
}

void hops_json(const struct gpunet_hops *h)
{
	unsigned i;

	fputs(",\"hops\":{", stdout);
	for (i = 0; i < GPUNET_HOP_COUNT; i++) {
		const struct gpunet_hop_time *t = &h->hop[i];

		printf("\"%s\":{\"p50_ns\":%lld,\"p99_ns\":%lld,\"count\":%llu},",
		       gpunet_hop_name(i), (long long)t->p50, (long long)t->p99,
		       (unsigned long long)t->count);
	}
	printf("\"clock_error_ns\":%lld,\"clock_step_ns\":%llu}", (long long)h->clock_error_ns,
	       (unsigned long long)h->clock_step_ns);
}
