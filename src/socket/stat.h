/* SPDX-License-Identifier: BSD-3-Clause */
/* What other processes may see of a network's sockets: <gpunet/stat.h>. */
#ifndef GPUNET_SOCKET_STAT_H
#define GPUNET_SOCKET_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpunet/stat.h>

struct sock;

struct stat_params {
	const char *device;
	uint32_t sockets, threads;
	unsigned seg_log2;
	int bus_fd;
	uint64_t bus_at;
};

struct stat_book {
	struct gpunet_stat_page *page; /* NULL: nobody can see anything */
	struct gpunet_stat_socket *socket;
	size_t size;
	int fd;
};

/* Never fails: without the page a network works all the same. */
void stat_open(struct stat_book *b, const struct stat_params *p);
void stat_close(struct stat_book *b);

/* By whoever owns the socket at that moment: it is there, or has other names now (which costs two system calls). */
void stat_tell(const struct sock *s, bool names);
/* Its state, or a listener's number of connections, is another one. */
void stat_tell_state(const struct sock *s);
void stat_tell_gone(const struct sock *s);

#endif
