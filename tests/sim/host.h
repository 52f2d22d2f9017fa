/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The host's kernel, as far as the library needs it: stream sockets between each other, epoll (edge-triggered), event descriptors;
 * behind base/sys.h, with faults. What it promises is what the manual pages promise and no more: an edge that Linux need not
 * tell is often not told.
 */
#ifndef GPUNET_TESTS_SIM_HOST_H
#define GPUNET_TESTS_SIM_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* Chances of faults, per mille of the calls concerned. All of them are such that a program above must not notice. */
struct host_faults {
	unsigned short_io; /* fewer bytes than there are, or than there is room for */
	unsigned eintr;
	unsigned enobufs;  /* sendmsg, recvmsg: no memory just now */
	unsigned emfile;   /* accept: no descriptor just now */
	unsigned aborted;  /* accept: a connection that is gone already */
	unsigned spurious; /* events that tell of nothing */
	unsigned at_once;  /* connect ends at once */
};

struct host_params {
	struct host_faults faults;
	size_t buffer;     /* bytes that a socket takes beyond what its peer has read */
	uint64_t delay_ns; /* of what goes from one socket to another: up to this */
};

void host_begin(const struct host_params *p);
size_t host_buffer(void);
/* Descriptors that are still open. */
unsigned host_open_files(void);
/* The connection whose first bytes are these breaks, as if both machines had lost it, with this error. */
void host_break(uint64_t hello, int err);
/* One call of epoll_wait fails for good. */
void host_fail_epoll(void);
/* Datagrams to this address for which there was no room. */
unsigned host_dropped(const struct sockaddr *a, socklen_t n);
/* Prints the sockets that are open. */
void host_report(void);

/* The host can look up names: a number has as many addresses. */
void host_names(void);

/* Until something happens to a socket. */
void host_wait(int fd, const char *what);

/* Blocking calls, for programs on the host; descriptors are those of sys.socket(). */
int host_connect(int fd, const struct sockaddr *a, socklen_t n);
int host_accept(int fd);
ssize_t host_send(int fd, const void *buf, size_t n);
ssize_t host_recv(int fd, void *buf, size_t n);

#endif
