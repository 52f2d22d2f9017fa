/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A user's program: a kernel echoes one connection, the host is its client. The same file builds with cc for
 * the CPU device and with nvcc for a GPU. Exit code 1 and the reason where the device is missing.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#define MESSAGE "a kernel said this back"

struct echo_args {
	gnet_t *net;
	struct sockaddr_un addr;
	uint32_t addr_len;
};

GNET_KERNEL(echo, struct echo_args, a)
{
	__shared__ struct sockaddr_un addr;
	__shared__ char buf[1024];
	int listener, conn;
	int64_t n;

	if (threadIdx.x == 0)
		addr = a.addr;
	__syncthreads();
	listener = gsocket(a.net, AF_UNIX, SOCK_STREAM, 0);
	if (listener < 0)
		return;
	if (gbind(a.net, listener, &addr, a.addr_len) == 0 && glisten(a.net, listener, 8) == 0) {
		conn = gaccept(a.net, listener, NULL, NULL);
		if (conn >= 0) {
			do {
				n = grecv(a.net, conn, buf, sizeof(buf), 0);
			} while (n > 0 && gsend(a.net, conn, buf, (uint64_t)n, 0) == n);
			gclose(a.net, conn);
		}
	}
	gclose(a.net, listener);
}

/* The kernel binds when it gets to it: tries for ten seconds. */
static int dial(const struct sockaddr_un *addr, socklen_t len)
{
	const struct timespec pause = { 0, 10000000 };
	int fd, i;

	for (i = 0; i < 1000; i++) {
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (fd >= 0 && connect(fd, (const struct sockaddr *)addr, len) == 0)
			return fd;
		if (fd >= 0)
			close(fd);
		nanosleep(&pause, NULL);
	}
	return -1;
}

static int client(const struct sockaddr_un *addr, socklen_t len)
{
	char buf[64];
	size_t got = 0;
	ssize_t n;
	int fd = dial(addr, len);

	if (fd < 0 || write(fd, MESSAGE, sizeof(MESSAGE)) != sizeof(MESSAGE))
		return -1;
	shutdown(fd, SHUT_WR);
	while (got < sizeof(buf) && (n = read(fd, buf + got, sizeof(buf) - got)) > 0)
		got += (size_t)n;
	close(fd);
	return got == sizeof(MESSAGE) && memcmp(buf, MESSAGE, got) == 0 ? 0 : -1;
}

int main(void)
{
	struct gpunet_grid grid = { 1, 1, 1, 32, 1, 1, 0 };
	struct echo_args args;
	gpunet_t *g;
	int status;

	if (gpunet_open(&g, NULL) != 0) {
		printf("consumer: no device: %s\n", gpunet_last_error());
		return 1;
	}
	memset(&args, 0, sizeof(args));
	args.net = gpunet_device(g);
	args.addr.sun_family = AF_UNIX;
	/* An abstract name: nothing to clean up. */
	snprintf(args.addr.sun_path + 1, sizeof(args.addr.sun_path) - 1, "gpunet-consumer-%d",
		 (int)getpid());
	args.addr_len = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				   strlen(args.addr.sun_path + 1));
	GPUNET_PREPARE(echo); /* its result may be left out without a warning */
	status = GPUNET_PREPARE(echo);
	if (status == 0)
		status = GPUNET_LAUNCH(g, echo, grid, args);
	if (status == 0)
		status = client(&args.addr, (socklen_t)args.addr_len);
	if (status != 0)
		printf("consumer: failed: %s\n", gpunet_last_error());
	if (gpunet_close(g, 10000) != 0)
		status = -1;
	if (status == 0)
		printf("consumer: ok, library %s\n", gpunet_version());
	return status != 0;
}
