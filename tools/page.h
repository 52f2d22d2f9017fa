/* SPDX-License-Identifier: BSD-3-Clause */
/* Pages that a process shows to others of its user as memory files among its descriptors: gpunet stat, gpunet rnic. */
#ifndef GPUNET_TOOLS_PAGE_H
#define GPUNET_TOOLS_PAGE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether descriptor `fd` of a process is the memory file of that name. */
bool page_is_named(int pid, int fd, const char *name);
/* Maps it for reading; NULL. */
const void *page_map(int pid, int fd, size_t *size);
/* Whether a page that tells this number is of that process: in a container it knows itself by another number. */
bool page_same_process(int pid, int told);

/*
 * Calls `one` for each descriptor of a process (0: of all of them); it says whether that was a page, which it has shown then.
 * If there was none, says so: "process N" and `does_not`, a failure, or but for JSON "no process of this user" and `does`. The
 * tool's exit code.
 */
int page_show(int pid, bool json, bool (*one)(int pid, int fd, bool json), const char *does_not,
	      const char *does);

#endif
