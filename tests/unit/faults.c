/* SPDX-License-Identifier: BSD-3-Clause */
#include "faults.h"

#include <errno.h>
#include <time.h>

#include "base/sys.h"
#include "fake_ring.h"

struct faults faults;

static uint64_t draws;

static uint64_t draw(void)
{
	uint64_t z =
		faults.seed + __atomic_add_fetch(&draws, 1, __ATOMIC_RELAXED) * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static int happens(enum fault f)
{
	if (!faults.chance[f] || draw() % 1000 >= faults.chance[f])
		return 0;
	__atomic_add_fetch(&faults.injected[f], 1, __ATOMIC_RELAXED);
	return 1;
}

/* A datagram is never short. */
static int is_stream(int fd)
{
	socklen_t n = sizeof(int);
	int type = 0;

	return sys_real.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM;
}

/* Up to a fifth of a millisecond. */
static void be_late(void)
{
	struct timespec t = { 0, 0 };

	if (!happens(DELAY))
		return;
	t.tv_nsec = (long)(draw() % 200000);
	nanosleep(&t, NULL);
}

/* An error, or 0 with what the message describes cut to its first few bytes, or not. */
static int disturb(int fd, struct msghdr *m, struct iovec *one)
{
	size_t n;

	be_late();
	if (happens(INTERRUPT))
		return -EINTR;
	if (happens(NO_MEMORY))
		return draw() % 2 ? -ENOMEM : -ENOBUFS;
	if (!is_stream(fd) || !happens(SHORT) || !m->msg_iov[0].iov_len)
		return 0;
	n = 1 + draw() % 200;
	*one = m->msg_iov[0];
	if (one->iov_len > n)
		one->iov_len = n;
	m->msg_iov = one;
	m->msg_iovlen = 1;
	return 0;
}

static ssize_t bad_sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct msghdr cut = *m;
	struct iovec one;
	int rc = disturb(fd, &cut, &one);

	return rc ? rc : sys_real.sendmsg(fd, &cut, flags);
}

static ssize_t bad_recvmsg(int fd, struct msghdr *m, int flags)
{
	struct msghdr cut = *m;
	struct iovec one;
	ssize_t n = disturb(fd, &cut, &one);

	if (!n)
		n = sys_real.recvmsg(fd, &cut, flags);
	m->msg_namelen = cut.msg_namelen;
	m->msg_flags = cut.msg_flags;
	return n;
}

static int bad_accept(int fd, struct sockaddr *a, socklen_t *n)
{
	be_late();
	if (happens(INTERRUPT))
		return -EINTR;
	if (happens(NO_MEMORY))
		return -ENOMEM;
	if (happens(NO_DESCRIPTORS))
		return draw() % 2 ? -EMFILE : -ENFILE;
	return sys_real.accept(fd, a, n);
}

static int bad_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	int rc = sys_real.connect(fd, a, n);

	/* An interrupted connect goes on, so it is interrupted after it has begun. */
	return rc == -EINPROGRESS && happens(INTERRUPT) ? -EINTR : rc;
}

static int bad_epoll_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	if (happens(INTERRUPT))
		return -EINTR;
	return sys_real.epoll_wait(epfd, ev, max, timeout_ns);
}

static int is_short(int *of)
{
	return __atomic_load_n(of, __ATOMIC_RELAXED) > 0 &&
	       __atomic_fetch_sub(of, 1, __ATOMIC_RELAXED) > 0;
}

static void *bad_alloc(size_t size)
{
	return is_short(&faults.no_memory) ? NULL : sys_real.alloc(size);
}

static int bad_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	if (op == EPOLL_CTL_ADD && is_short(&faults.no_watches))
		return -ENOSPC;
	return sys_real.epoll_ctl(epfd, op, fd, ev);
}

void faults_install(void)
{
	fake_ring();
	sys.sendmsg = bad_sendmsg;
	sys.recvmsg = bad_recvmsg;
	sys.accept = bad_accept;
	sys.connect = bad_connect;
	sys.epoll_wait = bad_epoll_wait;
	sys.alloc = bad_alloc;
	sys.epoll_ctl = bad_epoll_ctl;
}
