/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An echo server and its client, as kernels. One source for both devices: gcc makes kernels for the CPU device of it,
 * nvcc makes them for the GPU.
 *
 * All threads of a block make each call together, with the same arguments, and all get the same result. So the code
 * below reads like a program of one thread.
 */
#include "echo.h"

#include <gpunet/dev/socket.h>

#include "../common/listen.h"
#include "../common/memory.h"

#define BLOCKS 16  /* connections that are served at once */
#define THREADS 64 /* they copy the bytes together */
#define BUFFER 4096

struct listen_args {
	gnet_t *net;
	struct example_listener *listener;
};

GNET_KERNEL(echo_listen, struct listen_args, a)
{
	example_listen(a.net, a.listener);
}

struct serve_args {
	gnet_t *net;
	int listener;
};

/*
 * Any number of blocks wait on one listener; each connection goes to one of them. _MAX: with no more than THREADS threads
 * a block, each of them may have more of a GPU's registers.
 */
GNET_KERNEL_MAX(echo_serve, struct serve_args, a, THREADS)
{
	__shared__ char buf[BUFFER];
	int64_t n;
	int fd;

	/* -ECANCELED: the host has called gpunet_abort. */
	while ((fd = gaccept(a.net, a.listener, NULL, NULL)) >= 0) {
		/* 0 is the peer's end of stream, less is an error, and both end this connection only. */
		while ((n = grecv(a.net, fd, buf, BUFFER, 0)) > 0) {
			if (gsend(a.net, fd, buf, (uint64_t)n, 0) < n)
				break;
		}
		gclose(a.net, fd);
	}
}

struct ask_args {
	gnet_t *net;
	struct echo_client *client;
};

/* Connects, sends, says that nothing more follows, and reads until the server has ended its stream, too. */
GNET_DEV int ask(gnet_t *net, int fd, struct echo_client *c)
{
	int64_t n = gconnect(net, fd, &c->addr.addr, c->addr.len);

	if (n == 0)
		n = gsend(net, fd, c->text, c->len, 0);
	if (n >= 0)
		n = gshutdown(net, fd, GNET_SHUT_WR);
	if (n == 0)
		n = grecv(net, fd, c->answer, ECHO_TEXT - 1, GNET_MSG_WAITALL);
	return n < 0 ? (int)n : 0;
}

GNET_KERNEL(echo_ask, struct ask_args, a)
{
	struct echo_client *c = a.client;
	int fd = gsocket(a.net, c->addr.addr.ss_family, GNET_SOCK_STREAM, 0);
	int rc = fd;

	if (fd >= 0) {
		rc = ask(a.net, fd, c);
		gclose(a.net, fd);
	}
	if (threadIdx.x == 0)
		c->error = rc;
}

/* ---- from here on the host runs --------------------------------------------------------------- */

/* On a GPU every kernel is loaded before the first one is resident: loading can wait for kernels to end. */
static int prepare(void)
{
	int rc = GPUNET_PREPARE(echo_listen);

	if (rc == 0)
		rc = GPUNET_PREPARE(echo_serve);
	return rc ? rc : GPUNET_PREPARE(echo_ask);
}

static int launch_listen(gpunet_t *g, struct example_listener *l)
{
	struct gpunet_grid grid = { 1, 1, 1, THREADS, 1, 1, 0 };
	struct listen_args args = { gpunet_device(g), l };

	return GPUNET_LAUNCH(g, echo_listen, grid, args);
}

static int launch_serve(gpunet_t *g, int listener)
{
	struct gpunet_grid grid = { BLOCKS, 1, 1, THREADS, 1, 1, 0 };
	struct serve_args args = { gpunet_device(g), listener };

	return GPUNET_LAUNCH(g, echo_serve, grid, args);
}

static int launch_ask(gpunet_t *g, struct echo_client *c)
{
	struct gpunet_grid grid = { 1, 1, 1, THREADS, 1, 1, 0 };
	struct ask_args args = { gpunet_device(g), c };

	return GPUNET_LAUNCH(g, echo_ask, grid, args);
}

#ifdef __CUDACC__
const struct echo_kernels echo_cuda = {
#else
const struct echo_kernels echo_cpu = {
#endif
	{ example_alloc, example_free, prepare, launch_listen, launch_serve },
	launch_ask,
};
