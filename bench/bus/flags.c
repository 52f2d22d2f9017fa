/* SPDX-License-Identifier: BSD-3-Clause */
/* A flag from the CPU to one waiting thread and back, in the forms that a kernel could use. */
#include "bus.h"

#include <stdlib.h>

#define ROUNDS 20000u
#define WARM 1000u

enum flag_form { FLAG_VOLATILE, FLAG_RELAXED, FLAG_ACQUIRE, FLAG_FENCE, FLAG_FORMS };

static const char *const form_names[] = {
	"volatile, unordered",
	"ld.relaxed.sys, st.relaxed.sys",
	"ld.acquire.sys, st.release.sys",
	"ld.relaxed.sys, fence.acq_rel.sys, st.release.sys",
};

struct flag_args {
	uint64_t *cells;
	unsigned rounds;
	int form;
};

GNET_DEV uint64_t look(const uint64_t *p, int form)
{
	if (form == FLAG_VOLATILE)
		return *(const volatile uint64_t *)p;
	if (form == FLAG_ACQUIRE)
		return gnet_sys_load_acquire(p);
	return gnet_sys_load(p);
}

GNET_DEV void answer(uint64_t *p, uint64_t v, int form)
{
	if (form == FLAG_VOLATILE)
		*(volatile uint64_t *)p = v;
	else if (form == FLAG_RELAXED)
		gnet_sys_store(p, v);
	else
		gnet_sys_store_release(p, v);
}

/* `form` is a literal at each call, so that each loop holds one form only. */
GNET_DEV void echo(struct flag_args a, int form)
{
	struct bus_limit limit = bus_limit_from(a.cells);
	uint64_t i;

	for (i = 1; i <= a.rounds; i++) {
		while (look(a.cells + BUS_PING * BUS_LINE, form) != i)
			if (bus_over(&limit))
				return;
		if (form == FLAG_FENCE)
			asm volatile("fence.acq_rel.sys;" ::: "memory");
		answer(a.cells + BUS_PONG * BUS_LINE, i, form);
	}
}

GNET_KERNEL(flag_kernel, struct flag_args, a)
{
	if (a.form == FLAG_VOLATILE)
		echo(a, FLAG_VOLATILE);
	else if (a.form == FLAG_RELAXED)
		echo(a, FLAG_RELAXED);
	else if (a.form == FLAG_ACQUIRE)
		echo(a, FLAG_ACQUIRE);
	else
		echo(a, FLAG_FENCE);
}

static void measure(struct bus *b, int form, double *us)
{
	struct flag_args a = { b->cells, ROUNDS / b->scale + WARM, form };
	uint64_t i, start;
	int ok;

	bus_begin(b);
	flag_kernel<<<1, 1, 0, b->stream>>>(a);
	ok = bus_launched("flags");
	for (i = 1; ok && i <= a.rounds; i++) {
		start = bus_now();
		bus_store(bus_cell(b, BUS_PING), i);
		ok = !bus_wait(b, bus_cell(b, BUS_PONG), i);
		if (i > WARM)
			us[i - WARM - 1] = (double)(bus_now() - start) / 1e3;
	}
	if (!bus_end(b, "flags", ok))
		bus_report(b, "flag_roundtrip", form_names[form], "us", us, a.rounds - WARM, "");
}

void bus_flags(struct bus *b)
{
	double *us = (double *)malloc(ROUNDS * sizeof(*us));
	int form;

	for (form = 0; us && form < FLAG_FORMS; form++)
		measure(b, form, us);
	free(us);
}
