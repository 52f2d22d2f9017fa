/* SPDX-License-Identifier: BSD-3-Clause */
#include "facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

static int keep(const struct gpunet_check *c, void *arg)
{
	struct facts *facts = arg;
	struct fact *all = realloc(facts->all, (size_t)(facts->count + 1) * sizeof(*all));
	struct fact *f;

	if (!all)
		return -ENOMEM;
	facts->all = all;
	f = &all[facts->count++];
	f->status = c->status;
	f->name = strdup(c->name);
	f->detail = strdup(c->detail);
	f->remedy = strdup(c->remedy);
	return f->name && f->detail && f->remedy ? 0 : -ENOMEM;
}

int facts_ask(struct facts *facts)
{
	memset(facts, 0, sizeof(*facts));
	return gpunet_doctor(keep, facts);
}

void facts_free(struct facts *facts)
{
	int i;

	for (i = 0; i < facts->count; i++) {
		free(facts->all[i].name);
		free(facts->all[i].detail);
		free(facts->all[i].remedy);
	}
	free(facts->all);
}

const char *fact_status(const struct fact *f)
{
	switch (f->status) {
	case GPUNET_OK:
		return "ok";
	case GPUNET_MISSING:
		return "missing";
	case GPUNET_LIMITED:
		return "limited";
	case GPUNET_NOT_BUILT:
		return "not built";
	}
	return "unknown";
}

bool fact_is_device(const struct fact *f)
{
	const char *word = strstr(f->name, "device");

	/* "cpu device", "cuda device", "cuda device 1" */
	return word && (word == f->name || word[-1] == ' ') && (word[6] == 0 || word[6] == ' ');
}

bool fact_is_transport(const struct fact *f)
{
	return strncmp(f->name, "transport ", 10) == 0;
}

bool fact_works(const struct fact *f)
{
	return f->status == GPUNET_OK || f->status == GPUNET_LIMITED;
}

void fact_json(const struct fact *f)
{
	putchar('{');
	json_member(true, "name", f->name);
	json_member(false, "status", fact_status(f));
	json_member(false, "detail", f->detail);
	json_member(false, "remedy", f->remedy);
	putchar('}');
}
