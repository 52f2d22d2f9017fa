/* SPDX-License-Identifier: BSD-3-Clause */
/* What gpunet_doctor said, kept: its strings live only until the next call. */
#ifndef GPUNET_TOOLS_FACTS_H
#define GPUNET_TOOLS_FACTS_H

#include <stdbool.h>

#include <gpunet/gpunet.h>

struct fact {
	char *name, *detail, *remedy;
	enum gpunet_status status;
};

struct facts {
	struct fact *all;
	int count;
};

/* 0 or a negative errno; facts_free in any case. */
int facts_ask(struct facts *facts);
void facts_free(struct facts *facts);

const char *fact_status(const struct fact *f);

/* A device that kernels run on, a transport that sockets use; by the names that gpunet_doctor gives them. */
bool fact_is_device(const struct fact *f);
bool fact_is_transport(const struct fact *f);

/* It can be used, perhaps with limits. */
bool fact_works(const struct fact *f);

/* {"name":…,"status":…,"detail":…,"remedy":…} */
void fact_json(const struct fact *f);

#endif
