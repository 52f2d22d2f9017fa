/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/sys.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int result(int rc)
{
	return rc < 0 ? -errno : rc;
}

static void *real_alloc(size_t size)
{
	return calloc(1, size);
}

static void *real_map(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void *real_map_fd(const char *name, size_t size, int *fd)
{
	void *p = MAP_FAILED;

	*fd = memfd_create(name, MFD_CLOEXEC);
	if (*fd >= 0 && ftruncate(*fd, (off_t)size) == 0)
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (p != MAP_FAILED)
		return p;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return real_map(size);
}

static void real_unmap(void *p, size_t size)
{
	munmap(p, size);
}

static int real_socket(int domain, int type, int protocol)
{
	return result(socket(domain, type, protocol));
}

static int real_bind(int fd, const struct sockaddr *a, socklen_t n)
{
	return result(bind(fd, a, n));
}

static int real_listen(int fd, int backlog)
{
	return result(listen(fd, backlog));
}

static int real_accept(int fd, struct sockaddr *a, socklen_t *n)
{
	return result(accept4(fd, a, n, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

static int real_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	return result(connect(fd, a, n));
}

static ssize_t real_sendmsg(int fd, const struct msghdr *m, int flags)
{
	ssize_t n = sendmsg(fd, m, flags);

	return n < 0 ? -errno : n;
}

static ssize_t real_recvmsg(int fd, struct msghdr *m, int flags)
{
	ssize_t n = recvmsg(fd, m, flags);

	return n < 0 ? -errno : n;
}

static int real_shutdown(int fd, int how)
{
	return result(shutdown(fd, how));
}

static int real_close(int fd)
{
	return result(close(fd));
}

static int real_getsockopt(int fd, int level, int name, void *v, socklen_t *n)
{
	return result(getsockopt(fd, level, name, v, n));
}

static int real_setsockopt(int fd, int level, int name, const void *v, socklen_t n)
{
	return result(setsockopt(fd, level, name, v, n));
}

static int real_getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
	return result(getsockname(fd, a, n));
}

static int real_getpeername(int fd, struct sockaddr *a, socklen_t *n)
{
	return result(getpeername(fd, a, n));
}

static int real_epoll_create(void)
{
	return result(epoll_create1(EPOLL_CLOEXEC));
}

static int real_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	return result(epoll_ctl(epfd, op, fd, ev));
}

/* epoll_wait has milliseconds only; round up, so that a deadline has passed when it returns. */
static int real_epoll_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	int64_t ms = timeout_ns <= 0 ? timeout_ns : (timeout_ns + 999999) / 1000000;

	return result(epoll_wait(epfd, ev, max, ms < 0 ? -1 : ms > 1 << 30 ? 1 << 30 : (int)ms));
}

static int real_eventfd(void)
{
	return result(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static ssize_t real_read(int fd, void *buf, size_t n)
{
	ssize_t r = read(fd, buf, n);

	return r < 0 ? -errno : r;
}

static ssize_t real_write(int fd, const void *buf, size_t n)
{
	ssize_t r = write(fd, buf, n);

	return r < 0 ? -errno : r;
}

static int real_thread_start(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(t, a, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

static uint64_t real_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#define REAL                                                                                       \
	{                                                                                          \
		.alloc = real_alloc, .free = free, .map = real_map, .map_fd = real_map_fd,         \
		.unmap = real_unmap, .socket = real_socket, .bind = real_bind,                     \
		.listen = real_listen, .accept = real_accept, .connect = real_connect,             \
		.sendmsg = real_sendmsg, .recvmsg = real_recvmsg, .shutdown = real_shutdown,       \
		.close = real_close, .getsockopt = real_getsockopt, .setsockopt = real_setsockopt, \
		.getsockname = real_getsockname, .getpeername = real_getpeername,                  \
		.epoll_create = real_epoll_create, .epoll_ctl = real_epoll_ctl,                    \
		.epoll_wait = real_epoll_wait, .eventfd = real_eventfd, .read = real_read,         \
		.write = real_write, .ring_open = sys_ring_open, .ring_close = sys_ring_close,     \
		.ring_io = sys_ring_io, .getaddrinfo = getaddrinfo, .freeaddrinfo = freeaddrinfo,  \
		.thread_start = real_thread_start, .now_ns = real_now_ns,                          \
	}

const struct sys_ops sys_real = REAL;
struct sys_ops sys = REAL;

void sys_io_each(struct sys_io *io, unsigned n)
{
	for (; n; io++, n--) {
		struct msghdr m = { .msg_iov = io->v, .msg_iovlen = (size_t)io->n };

		io->more = true;
		io->rc = io->send ? sys.sendmsg(io->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT)
				  : sys.recvmsg(io->fd, &m, MSG_DONTWAIT);
	}
}
