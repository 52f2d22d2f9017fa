/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * As the proxy does it today: edge-triggered events, receive until there is no more, send what came. And the same with a short
 * count taken for the last, which saves a call a message and is wrong for urgent bytes and for an end that came with the bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine.h"

/* All of it: the peer of this bench always reads. */
static int send_all(int fd, const uint8_t *data, size_t n, uint64_t *calls)
{
	while (n) {
		ssize_t k = send(fd, data, n, MSG_NOSIGNAL);

		++*calls;
		if (k < 0 && errno != EINTR)
			return -errno;
		if (k > 0) {
			data += k;
			n -= (size_t)k;
		}
	}
	return 0;
}

/* 1: the connection has ended. `trusting`: a short count is the last, unless the peer has ended. */
static int serve_one(int fd, uint8_t *room, int trusting, uint64_t *calls)
{
	for (;;) {
		ssize_t n = recv(fd, room, ENGINE_ROOM, MSG_DONTWAIT);

		++*calls;
		if (n == 0)
			return 1;
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		if (send_all(fd, room, (size_t)n, calls))
			return -EIO;
		if (trusting && n < (ssize_t)ENGINE_ROOM)
			return 0;
	}
}

static int serve(const int *fd, int n, uint8_t (*room)[ENGINE_ROOM], int trusting, uint64_t *calls)
{
	int ep = epoll_create1(EPOLL_CLOEXEC), open = n, rc = ep < 0 ? -errno : 0, i;
	struct epoll_event ev[64];

	for (i = 0; i < n && !rc; i++) {
		struct epoll_event e = { EPOLLIN | EPOLLRDHUP | EPOLLET, { .u32 = (uint32_t)i } };

		rc = epoll_ctl(ep, EPOLL_CTL_ADD, fd[i], &e) ? -errno : 0;
	}
	while (open && !rc) {
		int got = epoll_wait(ep, ev, 64, -1);

		++*calls;
		for (i = 0; i < got && !rc; i++) {
			uint32_t c = ev[i].data.u32;

			rc = serve_one(fd[c], room[c], trusting && !(ev[i].events & EPOLLRDHUP),
				       calls);
			if (rc == 1) {
				epoll_ctl(ep, EPOLL_CTL_DEL, fd[c], ev);
				open--;
				rc = 0;
			}
		}
	}
	if (ep >= 0)
		close(ep);
	return rc;
}

static int serve_wary(const int *fd, int n, uint8_t (*room)[ENGINE_ROOM], uint64_t *calls)
{
	return serve(fd, n, room, 0, calls);
}

static int serve_trusting(const int *fd, int n, uint8_t (*room)[ENGINE_ROOM], uint64_t *calls)
{
	return serve(fd, n, room, 1, calls);
}

const struct engine engine_epoll = { "epoll", serve_wary };
const struct engine engine_epoll_short = { "epoll, short counts", serve_trusting };
