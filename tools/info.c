/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet info: version, build, devices, transports, which would be chosen and why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "facts.h"
#include "tool.h"

#ifdef GPUNET_WITH_CUDA
#define CUDA_KERNELS true
#else
#define CUDA_KERNELS false
#endif

struct choice {
	const char *device; /* "cpu", "cuda", or "none" */
	const char *asked;  /* GPUNET_DEVICE or "auto" */
	char why[400];
};

static void help(void)
{
	puts("usage: gpunet info [--json]\n"
	     "\n"
	     "Version, what was built in, devices and transports, and the device that a program gets\n"
	     "that asks for none, with the reason. Opens a network to find that out.\n"
	     "\n"
	     "Exit code: 0 done, 1 no network can be opened, 2 usage.");
}

static const struct fact *find(const struct facts *facts, const char *prefix)
{
	int i;

	for (i = 0; i < facts->count; i++) {
		if (strncmp(facts->all[i].name, prefix, strlen(prefix)) == 0)
			return &facts->all[i];
	}
	return NULL;
}

/* The cause without the remedy, which is the doctor's business. */
static int cause_length(const char *detail)
{
	return (int)strcspn(detail, ";");
}

/* Why "auto" is not a GPU: the first thing of CUDA that does not work. */
static const char *why_no_gpu(const struct facts *facts)
{
	int i;

	for (i = 0; i < facts->count; i++) {
		const struct fact *f = &facts->all[i];

		if (strncmp(f->name, "cuda", 4) == 0 && !fact_works(f))
			return f->detail;
	}
	return "none was found";
}

static void explain(struct choice *c, const struct facts *facts)
{
	const struct fact *gpu = find(facts, "cuda device");

	if (strcmp(c->asked, "auto") != 0)
		snprintf(c->why, sizeof(c->why), "GPUNET_DEVICE says %s", c->asked);
	else if (strcmp(c->device, "cpu") == 0)
		snprintf(c->why, sizeof(c->why), "no GPU can be used: %.*s",
			 cause_length(why_no_gpu(facts)), why_no_gpu(facts));
	else
		snprintf(c->why, sizeof(c->why), "there is a GPU%s%s", gpu ? ": " : "",
			 gpu ? gpu->detail : "");
}

static int choose(struct choice *c, const struct facts *facts)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	gpunet_t *g;
	int rc;

	c->asked = getenv("GPUNET_DEVICE");
	if (!c->asked || !*c->asked)
		c->asked = "auto";
	rc = gpunet_open(&g, &opt);
	if (rc < 0) {
		c->device = "none";
		snprintf(c->why, sizeof(c->why), "%s", tool_reason(rc));
		return TOOL_FAILED;
	}
	c->device = strcmp(gpunet_device_kind(g), "cpu") == 0 ? "cpu" : "cuda";
	gpunet_close(g, 1000);
	explain(c, facts);
	return TOOL_DONE;
}

static void print_fact(const char *kind, const char *name, const struct fact *f)
{
	if (fact_works(f))
		printf("%-12s %s: %s\n", kind, name, f->detail);
	else
		printf("%-12s %s: %s (%.*s)\n", kind, name, fact_status(f), cause_length(f->detail),
		       f->detail);
}

static void print_text(const struct facts *facts, const struct choice *c)
{
	int i;

	printf("version      %s\n", gpunet_version());
	printf("kernels for  cpu%s\n",
	       CUDA_KERNELS ? ", cuda" : " (this tool was built without CUDA)");
	for (i = 0; i < facts->count; i++) {
		const struct fact *f = &facts->all[i];

		if (fact_is_device(f))
			print_fact("device", f->name, f);
		else if (fact_is_transport(f))
			print_fact("transport", f->name + strlen("transport "), f);
	}
	printf("chosen       %s, since %s\n", c->device, c->why);
	puts("             tcp:// is TCP, udp:// is UDP, rdma:// is RDMA, unix: and unix-dgram: are UNIX sockets, by the CPU's "
	     "proxy threads");
}

static void json_list(const char *key, const struct facts *facts,
		      bool (*belongs)(const struct fact *f))
{
	bool first = true;
	int i;

	putchar(',');
	json_string(key);
	fputs(":[", stdout);
	for (i = 0; i < facts->count; i++) {
		if (!belongs(&facts->all[i]))
			continue;
		if (!first)
			putchar(',');
		fact_json(&facts->all[i]);
		first = false;
	}
	putchar(']');
}

static void print_json(const struct facts *facts, const struct choice *c)
{
	char headers[32];

	snprintf(headers, sizeof(headers), "%d.%d.%d", GPUNET_VERSION_MAJOR, GPUNET_VERSION_MINOR,
		 GPUNET_VERSION_PATCH);
	putchar('{');
	json_member(true, "version", gpunet_version());
	json_member(false, "headers", headers);
	printf(",\"build\":{\"cpu_kernels\":true,\"cuda_kernels\":%s}",
	       CUDA_KERNELS ? "true" : "false");
	json_list("devices", facts, fact_is_device);
	json_list("transports", facts, fact_is_transport);
	fputs(",\"choice\":{", stdout);
	json_member(true, "device", c->device);
	json_member(false, "asked", c->asked);
	json_member(false, "why", c->why);
	puts("}}");
}

static int report(bool json)
{
	struct choice choice = { 0 };
	struct facts facts;
	int rc = facts_ask(&facts);

	if (rc != 0) {
		facts_free(&facts);
		return tool_fail("cannot check this machine: %s", tool_reason(rc));
	}
	rc = choose(&choice, &facts);
	if (json)
		print_json(&facts, &choice);
	else
		print_text(&facts, &choice);
	facts_free(&facts);
	return rc;
}

int cmd_info(int argc, char **argv)
{
	return tool_report(argc, argv, help, report);
}
