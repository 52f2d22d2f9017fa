/* SPDX-License-Identifier: BSD-3-Clause */
/* Socket files: what is left of a dead server goes away, what is somebody's stays. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tool.h"

static const char *path_of(const struct tool_addr *addr)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&addr->addr;

	return addr->addr.ss_family == AF_UNIX && un->sun_path[0] ? un->sun_path : NULL;
}

/* 0: somebody listens; -ECONNREFUSED: nobody does; or another negative errno. */
static int try_connect(const struct tool_addr *addr)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc;

	if (fd < 0)
		return -errno;
	rc = connect(fd, (const struct sockaddr *)&addr->addr, addr->len) == 0 ? 0 : -errno;
	close(fd);
	/* Its queue is full: there is one. */
	return rc == -EAGAIN ? 0 : rc;
}

int unix_path_claim(const struct tool_addr *addr)
{
	const char *path = path_of(addr);
	struct stat st;
	int rc;

	if (!path)
		return 0;
	if (lstat(path, &st) != 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	rc = try_connect(addr);
	if (rc == 0 || rc == -EPROTOTYPE)
		return -EADDRINUSE;
	if (rc != -ECONNREFUSED)
		return rc == -ENOENT ? 0 : rc;
	return unlink(path) == 0 || errno == ENOENT ? 0 : -errno;
}

void unix_path_remember(struct unix_path *file, const struct tool_addr *addr)
{
	const char *path = path_of(addr);
	struct stat st;

	file->path[0] = 0;
	if (!path || strlen(path) > URL_PATH_MAX || lstat(path, &st) != 0)
		return;
	strcpy(file->path, path);
	file->device = st.st_dev;
	file->inode = st.st_ino;
}

void unix_path_remove(const struct unix_path *file)
{
	struct stat st;

	if (file->path[0] && lstat(file->path, &st) == 0 && st.st_dev == file->device &&
	    st.st_ino == file->inode)
		unlink(file->path);
}
