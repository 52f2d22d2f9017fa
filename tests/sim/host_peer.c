/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that wait, for the programs of the host: peers of the kernels. */
#include "host.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"
#include "sim.h"

#define BACKLOG_NS 1000000u

static bool again(ssize_t rc)
{
	return rc == -EINTR || rc == -ENOBUFS || rc == -ENOMEM || rc == -EMFILE ||
	       rc == -ECONNABORTED;
}

/* Asked again, connect tells how the attempt that is under way has ended. */
int host_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	static const char word;
	int rc;

	for (;;) {
		rc = sys.connect(fd, a, n);
		if (rc == -EAGAIN)
			sim_park(&word, sim_now() + BACKLOG_NS, "a backlog (host)");
		else if (rc == -EINPROGRESS || rc == -EINTR || rc == -EALREADY)
			host_wait(fd, "its connect (host)");
		else
			return rc == -EISCONN ? 0 : rc;
	}
}

int host_accept(int fd)
{
	int rc;

	while ((rc = sys.accept(fd, NULL, NULL)) == -EAGAIN || again(rc)) {
		if (rc == -EAGAIN)
			host_wait(fd, "a connection (host)");
	}
	return rc; /* -EBADF: it was closed meanwhile */
}

ssize_t host_send(int fd, const void *buf, size_t n)
{
	struct iovec v = { (void *)(uintptr_t)buf, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	ssize_t rc;

	while ((rc = sys.sendmsg(fd, &m, 0)) == -EAGAIN || again(rc)) {
		if (rc == -EAGAIN)
			host_wait(fd, "room to send (host)");
	}
	return rc;
}

ssize_t host_recv(int fd, void *buf, size_t n)
{
	struct iovec v = { buf, n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	ssize_t rc;

	while ((rc = sys.recvmsg(fd, &m, 0)) == -EAGAIN || again(rc)) {
		if (rc == -EAGAIN)
			host_wait(fd, "bytes (host)");
	}
	return rc;
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

struct found {
	struct addrinfo ai;
	struct sockaddr_in in;
};

/* Takes its time, at times. */
static int look_up(const char *node, const char *service, const struct addrinfo *hints,
		   struct addrinfo **out)
{
	static const char word;
	unsigned n = (unsigned)atoi(node), i;
	struct found *f;

	(void)hints;
	if (sim_chance(700))
		sim_park(&word, sim_now() + sim_below(3000000), "a name server");
	if (!n)
		return strcmp(node, "again") ? EAI_NONAME : EAI_AGAIN;
	f = sim_alloc(n * sizeof(*f));
	for (i = 0; i < n; i++) {
		f[i].in.sin_family = AF_INET;
		f[i].in.sin_port = htons((uint16_t)atoi(service));
		f[i].in.sin_addr.s_addr = htonl(0x0a000001 + i);
		f[i].ai.ai_family = AF_INET;
		f[i].ai.ai_socktype = SOCK_STREAM;
		f[i].ai.ai_addrlen = sizeof(f[i].in);
		f[i].ai.ai_addr = (struct sockaddr *)&f[i].in;
		f[i].ai.ai_next = i + 1 < n ? &f[i + 1].ai : NULL;
	}
	*out = &f[0].ai;
	return 0;
}

static void forget(struct addrinfo *all)
{
	sim_free(all);
}

void host_names(void)
{
	sys.getaddrinfo = look_up;
	sys.freeaddrinfo = forget;
}
