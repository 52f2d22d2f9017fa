/* SPDX-License-Identifier: BSD-3-Clause */
/* For unit tests that call a kernel's functions on the host: cmocka.h and gpunet/dev/socket.h come before. */
#ifndef GPUNET_KERNEL_PAIR_H
#define GPUNET_KERNEL_PAIR_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* A kernel's socket and the host's, connected. */
static inline int pair(gnet_t *n, int *host)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0), fd;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&a, &len), 0);
	fd = gsocket(n, GNET_AF_INET, GNET_SOCK_STREAM, 0);
	assert_true(fd >= 0);
	assert_int_equal(gconnect(n, fd, &a, sizeof(a)), 0);
	*host = accept(l, NULL, NULL);
	assert_true(*host >= 0);
	close(l);
	return fd;
}

#endif
