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

/* Calls `fn` for each descriptor of a process (0: of all of them); the sum of its values, or a negative errno. */
int page_each(int pid, int (*fn)(int pid, int fd, void *arg), void *arg);
/* What such an errno means to people, as a failure of the tool. */
int page_failed(int pid, int rc);

#endif
