/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet doctor: what this machine can do, what is missing, how to get it. */
#include <stdio.h>
#include <string.h>

#include "facts.h"
#include "tool.h"

static void help(void)
{
	puts("usage: gpunet doctor [--json]\n"
	     "\n"
	     "Checks each thing that gpunet may need on this machine: ok, missing, limited or not\n"
	     "built, and what to do about it.\n"
	     "\n"
	     "Exit code: 0 at least one device and one transport work, 1 not, 2 usage.");
}

static void print_text(const struct facts *facts)
{
	int i, width = 0;

	for (i = 0; i < facts->count; i++) {
		int n = (int)strlen(facts->all[i].name);

		width = n > width ? n : width;
	}
	for (i = 0; i < facts->count; i++) {
		const struct fact *f = &facts->all[i];

		printf("%-*s  %-9s  %s\n", width, f->name, fact_status(f), f->detail);
		if (*f->remedy)
			printf("%-*s  %-9s  remedy: %s\n", width, "", "", f->remedy);
	}
}

static void print_json(const struct facts *facts, bool works)
{
	int i;

	printf("{\"works\":%s,\"checks\":[", works ? "true" : "false");
	for (i = 0; i < facts->count; i++) {
		if (i)
			putchar(',');
		fact_json(&facts->all[i]);
	}
	puts("]}");
}

static int report(bool json)
{
	bool device = false, transport = false;
	struct facts facts;
	int i, rc = facts_ask(&facts);

	if (rc != 0) {
		facts_free(&facts);
		return tool_fail("cannot check this machine: %s", tool_reason(rc));
	}
	for (i = 0; i < facts.count; i++) {
		const struct fact *f = &facts.all[i];

		device |= fact_is_device(f) && fact_works(f);
		transport |= fact_is_transport(f) && fact_works(f);
	}
	if (json)
		print_json(&facts, device && transport);
	else
		print_text(&facts);
	facts_free(&facts);
	if (!device)
		return tool_fail("no device for kernels works");
	if (!transport)
		return tool_fail("no transport works");
	return TOOL_DONE;
}

int cmd_doctor(int argc, char **argv)
{
	return tool_report(argc, argv, help, report);
}
