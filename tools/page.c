/* SPDX-License-Identifier: BSD-3-Clause */
#include "page.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

bool page_is_named(int pid, int fd, const char *name)
{
	char path[64], to[128], want[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	snprintf(want, sizeof(want), "/memfd:%s", name);
	n = readlink(path, to, sizeof(to) - 1);
	if (n <= 0)
		return false;
	to[n] = 0;
	return strncmp(to, want, strlen(want)) == 0 && strchr(" ", to[strlen(want)]);
}

const void *page_map(int pid, int fd, size_t *size)
{
	char path[64];
	struct stat st;
	const void *p = MAP_FAILED;
	int own;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	own = open(path, O_RDONLY | O_CLOEXEC);
	if (own < 0)
		return NULL;
	if (fstat(own, &st) == 0 && st.st_size > 0) {
		*size = (size_t)st.st_size;
		p = mmap(NULL, *size, PROT_READ, MAP_SHARED, own, 0);
	}
	close(own);
	return p == MAP_FAILED ? NULL : p;
}

bool page_same_process(int pid, int told)
{
	char path[64], line[256];
	bool same = pid == told;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = same ? NULL : fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		const char *last = strrchr(line, '\t');

		if (strncmp(line, "NSpid:", 6) == 0 && last)
			same = atoi(last) == told;
	}
	if (f)
		fclose(f);
	return same;
}

static int each_of(int pid, bool json, bool (*one)(int pid, int fd, bool json))
{
	struct dirent *e;
	char path[64];
	int found = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	if (!d)
		return -errno;
	while ((e = readdir(d))) {
		if (isdigit((unsigned char)e->d_name[0]))
			found += one(pid, atoi(e->d_name), json);
	}
	closedir(d);
	return found;
}

static int each(int pid, bool json, bool (*one)(int pid, int fd, bool json))
{
	struct dirent *e;
	int found = 0, n;
	DIR *d;

	if (pid)
		return each_of(pid, json, one);
	d = opendir("/proc");
	while (d && (e = readdir(d))) {
		n = atoi(e->d_name) > 0 ? each_of(atoi(e->d_name), json, one) : 0;
		found += n > 0 ? n : 0;
	}
	if (d)
		closedir(d);
	return found;
}

static int failed(int pid, int rc)
{
	if (rc == -ENOENT)
		return tool_fail("there is no process %d", pid);
	if (rc == -EACCES || rc == -EPERM)
		return tool_fail("process %d cannot be looked into: it is another user's; root can",
				 pid);
	return tool_fail("cannot look into process %d: %s", pid, strerror(-rc));
}

int page_show(int pid, bool json, bool (*one)(int pid, int fd, bool json), const char *does_not,
	      const char *does)
{
	int n = each(pid, json, one);

	fflush(stdout);
	if (n < 0)
		return failed(pid, n);
	if (n == 0 && pid)
		return tool_fail("process %d %s", pid, does_not);
	if (n == 0 && !json)
		printf("no process of this user %s\n", does);
	return TOOL_DONE;
}
