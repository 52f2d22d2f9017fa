/* SPDX-License-Identifier: BSD-3-Clause */
#include "platform/numa.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *numa_sys = "/sys";

/* "0-3,8,10-11": false if it is something else. Processors that the set has no room for are left out. */
static bool parse_list(const char *text, cpu_set_t *out)
{
	unsigned long first, last;
	char *end;

	CPU_ZERO(out);
	while (*text && *text != '\n') {
		first = last = strtoul(text, &end, 10);
		if (end == text)
			return false;
		if (*end == '-') {
			text = end + 1;
			last = strtoul(text, &end, 10);
			if (end == text || last < first)
				return false;
		}
		for (; first <= last && first < CPU_SETSIZE; first++)
			CPU_SET(first, out);
		if (*end == ',')
			end++;
		else if (*end && *end != '\n')
			return false;
		text = end;
	}
	return true;
}

static bool read_list(int node, cpu_set_t *out)
{
	char path[256], text[4096];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist", numa_sys, node);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	return parse_list(text, out);
}

int numa_cpus(int node, cpu_set_t *out)
{
	cpu_set_t near, mine;

	if (node < 0 || !read_list(node, &near) || sched_getaffinity(0, sizeof(mine), &mine))
		return -ENOENT;
	CPU_AND(&near, &near, &mine);
	if (!CPU_COUNT(&near))
		return -ENOENT;
	*out = near;
	return 0;
}
