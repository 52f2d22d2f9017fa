/* SPDX-License-Identifier: BSD-3-Clause */
/* What a peer of gpunet perf may write over TCP: each message is refused, or understood as its text means. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../../tools/perftest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
	if (!ok)
		__builtin_trap();
}

/* `n` bytes in a place of their own, so that a byte too far is seen. */
static int part(const uint8_t **data, size_t *size, void *out, size_t n)
{
	if (*size < n)
		return 0;
	memcpy(out, *data, n);
	*data += n;
	*size -= n;
	return 1;
}

static void record(const char text[PERFTEST_RECORD])
{
	struct perftest_record r, again;
	char back[PERFTEST_RECORD];
	size_t i;

	if (perftest_get_record(&r, text))
		return;
	must(r.qpn < 1u << 24 && r.psn < 1u << 24);
	perftest_put_record(back, &r);
	/* Digits may be capital ones. */
	for (i = 0; i < PERFTEST_RECORD; i++)
		must((back[i] | 0x20) == (text[i] | 0x20));
	must(perftest_get_record(&again, back) == 0 && again.addr == r.addr);
}

static void report(const uint8_t in[PERFTEST_FIGURES][PERFTEST_FIGURE])
{
	uint8_t back[PERFTEST_FIGURES][PERFTEST_FIGURE];
	struct perftest_report r;

	if (perftest_get_report(&r, in))
		return;
	must(isfinite(r.peak) && isfinite(r.average) && isfinite(r.rate));
	perftest_put_report(back, &r);
	must(memcmp(back, in, sizeof(back)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t version[PERFTEST_VERSION], mtu[PERFTEST_MTU], back[PERFTEST_MTU];
	uint8_t figures[PERFTEST_FIGURES][PERFTEST_FIGURE];
	char text[PERFTEST_RECORD];
	int v;

	if (part(&data, &size, version, sizeof(version))) {
		v = perftest_get_version(version);
		must(v < 0 || v < 10000000);
	}
	if (part(&data, &size, mtu, sizeof(mtu))) {
		v = perftest_get_mtu(mtu);
		must(v < 0 || (v >= 256 && v <= 4096));
		perftest_put_mtu(back, v < 0 ? 256 : (unsigned)v);
		must(v < 0 || memcmp(back, mtu, sizeof(mtu)) == 0);
	}
	if (part(&data, &size, text, sizeof(text)))
		record(text);
	if (part(&data, &size, figures, sizeof(figures)))
		report((const uint8_t(*)[PERFTEST_FIGURE])figures);
	return 0;
}
