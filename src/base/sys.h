/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The system calls and allocations that the library makes, and its threads, in one table, so that a test can make the n-th call
 * fail, shorten I/O or put a virtual clock in place. Callers see the C library's conventions, except that each call returns a
 * negative errno instead of -1.
 */
#ifndef GPUNET_BASE_SYS_H
#define GPUNET_BASE_SYS_H

#include <netdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/* One of several calls that go to the system together: sendmsg or recvmsg, never blocking, no signal, nothing but bytes. */
struct sys_io {
	int fd;
	bool send;
	bool more; /* out, of a receive that got something: there may be more */
	int n;     /* parts: 1 or 2 */
	struct iovec v[2];
	ssize_t rc; /* out */
};

/* An io_uring, for one thread at a time. */
struct sys_ring;

struct sys_ops {
	void *(*alloc)(size_t size); /* zeroed; NULL when there is no memory */
	void (*free)(void *p);
	void *(*map)(size_t size); /* anonymous, shared, zeroed, page-aligned; NULL on failure */
	/* The same from a descriptor, by which another process of this user can map it, too (/proc/PID/fd); *fd -1: it cannot. */
	void *(*map_fd)(const char *name, size_t size, int *fd);
	void (*unmap)(void *p, size_t size);

	int (*socket)(int domain, int type, int protocol);
	int (*bind)(int fd, const struct sockaddr *a, socklen_t n);
	int (*listen)(int fd, int backlog);
	int (*accept)(int fd, struct sockaddr *a, socklen_t *n); /* SOCK_NONBLOCK | SOCK_CLOEXEC */
	int (*connect)(int fd, const struct sockaddr *a, socklen_t n);
	ssize_t (*sendmsg)(int fd, const struct msghdr *m, int flags);
	ssize_t (*recvmsg)(int fd, struct msghdr *m, int flags);
	int (*shutdown)(int fd, int how);
	int (*close)(int fd);
	int (*getsockopt)(int fd, int level, int name, void *v, socklen_t *n);
	int (*setsockopt)(int fd, int level, int name, const void *v, socklen_t n);
	int (*getsockname)(int fd, struct sockaddr *a, socklen_t *n);
	int (*getpeername)(int fd, struct sockaddr *a, socklen_t *n);

	int (*epoll_create)(void);
	int (*epoll_ctl)(int epfd, int op, int fd, struct epoll_event *ev);
	int (*epoll_wait)(int epfd, struct epoll_event *ev, int max,
			  int64_t timeout_ns); /* < 0: for ever */
	int (*eventfd)(void);                  /* non-blocking */
	ssize_t (*read)(int fd, void *buf, size_t n);
	ssize_t (*write)(int fd, const void *buf, size_t n);

	/* -ENOSYS, -EPERM, ...: there is none here, or not for this process; -ENOPKG: it was not built. */
	int (*ring_open)(struct sys_ring **out);
	void (*ring_close)(struct sys_ring *r);
	/* Does all of them, in their order, as sys_io_each() does. None is under way when it returns. */
	void (*ring_io)(struct sys_ring *r, struct sys_io *io, unsigned n);

	/* May block for long. 0 or an EAI_ code, as in the C library. */
	int (*getaddrinfo)(const char *node, const char *service, const struct addrinfo *hints,
			   struct addrinfo **out);
	void (*freeaddrinfo)(struct addrinfo *all);

	/* A thread that takes no signals: the program's handlers, and whoever waits for one, are on the program's threads. */
	int (*thread_start)(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);

	uint64_t (*now_ns)(void); /* CLOCK_MONOTONIC */
};

/* The table in use. Tests change slots while no other thread uses the library. */
extern struct sys_ops sys;
/* The real calls, for a test's replacements to fall back to. */
extern const struct sys_ops sys_real;

/* A call each, by the table's sendmsg and recvmsg. */
void sys_io_each(struct sys_io *io, unsigned n);

/* ring.c: the real ones */
int sys_ring_open(struct sys_ring **out);
void sys_ring_close(struct sys_ring *r);
void sys_ring_io(struct sys_ring *r, struct sys_io *io, unsigned n);

#endif
