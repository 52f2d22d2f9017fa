/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet: finds the subcommand. */
#include <stdio.h>
#include <string.h>

#include "tool.h"

static const struct command {
	const char *name, *title; /* title: for messages, which name the whole command */
	int (*run)(int argc, char **argv);
	const char *purpose;
} commands[] = {
	{ "echo", "gpunet echo", cmd_echo, "a kernel as a server: sends back what it receives" },
	{ "cat", "gpunet cat", cmd_cat, "a kernel as a client: standard input and output" },
	{ "perf", "gpunet perf", cmd_perf,
	  "bandwidth, latency and connections a second, columns of perftest" },
	{ "stat", "gpunet stat", cmd_stat, "the sockets of running processes, as ss shows them" },
	{ "rnic", "gpunet rnic", cmd_rnic, "the software RNIC of running processes" },
	{ "doctor", "gpunet doctor", cmd_doctor,
	  "what this machine can do, what is missing, how to get it" },
	{ "info", "gpunet info", cmd_info,
	  "version, devices, transports, the choice and its reason" },
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void help(void)
{
	size_t i;

	puts("usage: gpunet COMMAND [argument ...]\n"
	     "       gpunet COMMAND --help\n"
	     "       gpunet --version\n"
	     "\n"
	     "Network sockets for GPU kernels.\n");
	for (i = 0; i < COMMANDS; i++)
		printf("  %-8s %s\n", commands[i].name, commands[i].purpose);
	puts("\nExit code: 0 done, 1 failed, 2 usage.");
}

static int finish(int rc)
{
	/* A full disk or a reader that has gone is not "done". */
	if (fflush(stdout) != 0 && rc == TOOL_DONE)
		return tool_fail("cannot write standard output");
	return rc;
}

int main(int argc, char **argv)
{
	size_t i;

	if (argc < 2)
		return tool_usage("a command is needed");
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		help();
		return finish(TOOL_DONE);
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("gpunet %s\n", gpunet_version());
		return finish(TOOL_DONE);
	}
	for (i = 0; i < COMMANDS; i++) {
		if (strcmp(argv[1], commands[i].name) == 0) {
			char title[32];

			/* getopt's messages begin with argv[0]. */
			snprintf(title, sizeof(title), "%s", commands[i].title);
			argv[1] = title;
			tool_set_name(commands[i].title);
			return finish(commands[i].run(argc - 1, argv + 1));
		}
	}
	return tool_usage("%s: there is no such command", argv[1]);
}
