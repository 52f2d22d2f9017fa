/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A CPU program that talks to a kernel over RDMA and knows nothing of gpunet: librdmacm's rsockets, which are sockets with an r
 * in front. Sends a text to an echo server and prints what comes back.
 *
 *   gpunet echo rdma://10.0.2.1:7471            # a kernel, on the other machine
 *   example-rsocket 10.0.2.1 7471 'hello kernel'
 */
#include <netdb.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fail(const char *what)
{
	perror(what);
	return -1;
}

/* A connection, or -1 after a message. */
static int dial(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *a;
	int rc = getaddrinfo(host, port, &hints, &a), fd;

	if (rc) {
		fprintf(stderr, "%s: %s\n", host, gai_strerror(rc));
		return -1;
	}
	fd = rsocket(a->ai_family, SOCK_STREAM, 0);
	if (fd < 0)
		fail("rsocket");
	else if (rconnect(fd, a->ai_addr, a->ai_addrlen)) {
		fail("rconnect");
		rclose(fd);
		fd = -1;
	}
	freeaddrinfo(a);
	return fd;
}

static int send_all(int fd, const char *text, size_t n)
{
	while (n) {
		ssize_t k = rsend(fd, text, n, 0);

		if (k < 0)
			return fail("rsend");
		text += k;
		n -= (size_t)k;
	}
	/* The kernel sees the end of the stream and closes when all has come back. */
	return rshutdown(fd, SHUT_WR) ? fail("rshutdown") : 0;
}

static int print_all(int fd)
{
	char buf[4096];
	ssize_t k;

	while ((k = rrecv(fd, buf, sizeof(buf), 0)) > 0)
		fwrite(buf, 1, (size_t)k, stdout);
	putchar('\n');
	return k < 0 ? fail("rrecv") : 0;
}

int main(int argc, char **argv)
{
	int help = argc == 2 && strcmp(argv[1], "--help") == 0, fd, rc;

	if (argc != 4) {
		fprintf(help ? stdout : stderr, "usage: %s host port text\n", argv[0]);
		return help ? 0 : 2;
	}
	fd = dial(argv[1], argv[2]);
	if (fd < 0)
		return 1;
	rc = send_all(fd, argv[3], strlen(argv[3]));
	if (!rc)
		rc = print_all(fd);
	rclose(fd);
	return rc ? 1 : 0;
}
