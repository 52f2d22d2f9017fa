/* SPDX-License-Identifier: BSD-3-Clause */
/* Which provider is used, and why. */
#include "verbs/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A new provider adds its line here. */
const struct verbs_ops *const verbs_all[] = { &verbs_ibverbs, &verbs_rnic, NULL };

const struct verbs_ops *verbs_override;

bool verbs_hardware(const char *name)
{
	struct dirent *e;
	bool any = false;
	DIR *dir;

	if (verbs_override)
		return true;
	if (name && !strcmp(name, verbs_rnic.name))
		return false;
	dir = opendir("/sys/class/infiniband");
	while (dir && !any && (e = readdir(dir)))
		any = e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return any;
}

/* Appends "name: text". */
static void add(char *to, size_t size, const char *name, const char *text)
{
	size_t n = strlen(to);

	snprintf(to + n, size - n, "%s%s: %s", n ? "; " : "", name, text);
}

static int open_one(struct verbs_use *u, const struct verbs_ops *ops)
{
	char why[256] = "";
	int rc = ops->open(&u->v, why, sizeof(why));

	if (rc) {
		add(u->why, sizeof(u->why), ops->name, *why ? why : strerror(-rc));
		return rc;
	}
	u->ops = ops;
	return 0;
}

/* "rnic (software RNIC), as ibverbs: the kernel has no RDMA": what works comes first, then what those before it lack. */
static void say_found(struct verbs_use *u)
{
	char lacks[sizeof(u->why)];
	int n;

	memcpy(lacks, u->why, sizeof(lacks));
	n = snprintf(u->why, sizeof(u->why), "%s%s, %s", u->ops->name,
		     u->ops == &verbs_rnic ? " (software RNIC)" : "",
		     *lacks ? "as " : "the first that works");
	snprintf(u->why + n, sizeof(u->why) - (size_t)n, "%s", lacks);
}

static int open_named(struct verbs_use *u, const char *name)
{
	unsigned i;

	for (i = 0; verbs_all[i]; i++) {
		if (!strcmp(verbs_all[i]->name, name))
			return open_one(u, verbs_all[i]);
	}
	snprintf(u->why, sizeof(u->why),
		 "there is no provider of RDMA named \"%s\": use auto, ibverbs or rnic", name);
	return -EINVAL;
}

int verbs_open(struct verbs_use *u, const char *name)
{
	int rc = -ENODEV;
	unsigned i;

	memset(u, 0, sizeof(*u));
	if (verbs_override) {
		rc = open_one(u, verbs_override);
		if (!rc)
			add(u->why, sizeof(u->why), u->ops->name, "a test's");
		return rc;
	}
	if (!name)
		name = getenv("GPUNET_VERBS");
	if (name && *name && strcmp(name, "auto")) {
		rc = open_named(u, name);
		if (!rc)
			add(u->why, sizeof(u->why), u->ops->name, "as asked for");
		else if (!strcmp(name, verbs_ibverbs.name))
			add(u->why, sizeof(u->why), "GPUNET_VERBS=auto or rnic",
			    "the software RNIC, which needs none");
		return rc;
	}
	if (!verbs_all[0])
		snprintf(u->why, sizeof(u->why), "no provider of RDMA is part of this build");
	for (i = 0; verbs_all[i]; i++) {
		rc = open_one(u, verbs_all[i]);
		if (!rc) {
			say_found(u);
			return 0;
		}
	}
	return rc;
}

void verbs_close(struct verbs_use *u)
{
	if (u->ops)
		u->ops->close(u->v);
	u->ops = NULL;
	u->v = NULL;
}

const char *verbs_status_text(uint32_t status)
{
	switch (status) {
	case VERBS_WC_SUCCESS:
		return "success";
	case VERBS_WC_LOC_LEN_ERR:
		return "local length error";
	case VERBS_WC_LOC_QP_OP_ERR:
		return "local operation error";
	case VERBS_WC_LOC_PROT_ERR:
		return "local protection error";
	case VERBS_WC_WR_FLUSH_ERR:
		return "flushed";
	case VERBS_WC_MW_BIND_ERR:
		return "memory window error";
	case VERBS_WC_BAD_RESP_ERR:
		return "bad response";
	case VERBS_WC_LOC_ACCESS_ERR:
		return "local access error";
	case VERBS_WC_REM_INV_REQ_ERR:
		return "the peer found the request invalid";
	case VERBS_WC_REM_ACCESS_ERR:
		return "the peer refused access to its memory";
	case VERBS_WC_REM_OP_ERR:
		return "the peer could not do the operation";
	case VERBS_WC_RETRY_EXC_ERR:
		return "no answer after all retries";
	case VERBS_WC_RNR_RETRY_EXC_ERR:
		return "the peer had no receive ready after all retries";
	case VERBS_WC_REM_ABORT_ERR:
		return "the peer aborted";
	case VERBS_WC_FATAL_ERR:
		return "fatal error of the device";
	case VERBS_WC_RESP_TIMEOUT_ERR:
		return "response timed out";
	case VERBS_WC_GENERAL_ERR:
		return "error of the device";
	default:
		return "unknown status";
	}
}
