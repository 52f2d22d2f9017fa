/* SPDX-License-Identifier: BSD-3-Clause */
/* What other processes may see of a network's sockets: <gpunet/stat.h>. */
#ifndef GPUNET_SOCKET_STAT_H
#define GPUNET_SOCKET_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <gpunet/stat.h>

struct sock;

struct stat_params {
	const char *device;
	uint32_t sockets, threads;
	unsigned seg_log2;
	int bus_fd;
	uint64_t bus_at, told_at;
	bool hops, same_clock;
};

struct stat_book {
	struct gpunet_stat_page *page; /* NULL: no memory for it */
	struct gpunet_stat_socket *socket;
	struct gpunet_stat_hops *hops; /* [threads], NULL: option hops is off */
	size_t size;
	int fd; /* -1: this process alone sees it */
};

/* Never fails: without the page a network works all the same. */
void stat_open(struct stat_book *b, const struct stat_params *p);
void stat_close(struct stat_book *b);

/* By whoever owns the socket at that moment: it is there, or has other names now (which costs two system calls, or one if it was accepted). */
void stat_tell(const struct sock *s, bool names);
/* It was accepted, and nobody knows yet whether it will live long: of its names those that cost no call. */
void stat_tell_young(const struct sock *s, const struct sock *listener);
/* It tries to connect to that address, so that it has no peer yet. */
void stat_tell_connecting(const struct sock *s, const struct sockaddr *a, socklen_t n);
/* Its state, or a listener's number of connections, is another one. */
void stat_tell_state(const struct sock *s);
void stat_tell_gone(const struct sock *s);

/* A copy of a slot's record: false if another socket has it by now, or none. From any thread. */
bool stat_look(const struct stat_book *b, uint32_t slot, int fd, struct gpunet_stat_socket *out);
/* Keeps a report; one thread at a time. */
void stat_report(const struct stat_book *b, const struct gpunet_stat_report *v);
/* A copy of report number `number`: false if it is not kept. From any thread. */
bool stat_reported(const struct stat_book *b, uint64_t number, struct gpunet_stat_report *out);

#endif
