/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of gpunet echo and gpunet cat: C11 and CUDA, see kernels.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#include "kernel_calls.h"
#include "kernels.h"

/* ---- listen and connect: one block, once ------------------------------------------------------ */

struct setup_args {
	gnet_t *net;
	struct tool_setup *setup;
};

/* A listener on one address: the descriptor, or the error with *step saying where. */
GNET_DEV int listen_on(gnet_t *net, struct tool_setup *s, int which, int *step)
{
	const struct tool_addr *a = &s->addr[which];
	int fd, rc;

	*step = TOOL_STEP_SOCKET;
	fd = gsocket(net, a->addr.ss_family, s->dgram ? GNET_SOCK_DGRAM : GNET_SOCK_STREAM,
		     (int)a->protocol);
	if (fd < 0)
		return fd;
	*step = TOOL_STEP_BIND;
	rc = gbind(net, fd, &a->addr, a->len);
	if (rc == 0 && !s->dgram) {
		*step = TOOL_STEP_LISTEN;
		rc = glisten(net, fd, s->backlog);
	}
	if (rc == 0)
		rc = ggetsockname(net, fd, &s->bound.addr, &s->bound.len);
	if (rc == 0) {
		*step = TOOL_STEP_NONE;
		return fd;
	}
	gclose(net, fd);
	return rc;
}

GNET_KERNEL(kernel_listen, struct setup_args, a)
{
	struct tool_setup *s = a.setup;
	int count = s->addrs, which, step = TOOL_STEP_NONE, fd = -EINVAL;

	for (which = 0; which < count; which++) {
		fd = listen_on(a.net, s, which, &step);
		if (fd >= 0 || fd == -ECANCELED)
			break;
	}
	if (threadIdx.x == 0) {
		s->step = step;
		s->error = fd < 0 ? fd : 0;
		s->which = which < count ? which : count - 1;
		s->bound.protocol = s->addr[s->which].protocol;
		s->bound.dgram = s->addr[s->which].dgram;
		s->fd = fd;
	}
}

GNET_KERNEL(kernel_connect, struct setup_args, a)
{
	struct tool_setup *s = a.setup;
	int count = s->addrs, which, step = TOOL_STEP_NONE, fd = -EINVAL, local = -1, rc = 0;
	int type = s->dgram ? GNET_SOCK_DGRAM : GNET_SOCK_STREAM;

	for (which = 0; which < count; which++) {
		fd = connect_to(a.net, &s->addr[which], type, &step);
		if (fd >= 0 || fd == -ECANCELED)
			break;
	}
	if (fd >= 0) {
		local = connect_to(a.net, &s->local, type, &step);
		if (local >= 0 && s->dgram)
			rc = ggetsockname(a.net, local, &s->bound.addr, &s->bound.len);
		if (local < 0 || rc < 0)
			step = TOOL_STEP_LOCAL;
	}
	if (threadIdx.x == 0) {
		s->step = step;
		s->error = fd < 0 ? fd : local < 0 ? local : rc;
		s->which = which < count ? which : count - 1;
		s->fd = fd;
		s->local_fd = local;
	}
}

/* ---- echo ------------------------------------------------------------------------------------- */

/* Sends what was borrowed, as far as there is room: how much, or the error. */
GNET_DEV int64_t send_borrowed(gnet_t *net, int fd, const struct gnet_borrow *b)
{
	int64_t sent = 0;
	int i;

	for (i = 0; i < 2 && b->len[i]; i++) {
		int64_t n = gsend(net, fd, b->ptr[i], b->len[i], GNET_MSG_DONTWAIT);

		if (n < 0 && n != -EAGAIN)
			return n;
		sent += n > 0 ? n : 0;
		if (n < (int64_t)b->len[i])
			break;
	}
	return sent;
}

#define ECHO_MOST (UINT64_C(256) << 10) /* bytes a turn */
#define ECHO_TURNS 4                    /* of a connection before the others have theirs */
#define ECHO_REST_NS 200000             /* for the others to take a connection */

/*
 * Sends back what a connection has, from ring to ring and without waiting, since the block has other connections: the event to
 * wait for next, or 0 when the connection is over, whether by its end or by a reset.
 */
GNET_DEV int echo_some(gnet_t *net, int fd)
{
	__shared__ struct gnet_borrow b;
	int turn;

	for (turn = 0; turn < ECHO_TURNS; turn++) {
		int64_t n = grecv_borrow(net, fd, &b, ECHO_MOST, GNET_MSG_DONTWAIT), sent;

		if (n == -EAGAIN)
			return GNET_POLLIN;
		if (n <= 0)
			return 0;
		sent = send_borrowed(net, fd, &b);
		if (grecv_return(net, fd, sent < 0 ? 0 : (uint64_t)sent) < 0 || sent < 0)
			return 0;
		/* What was not taken stays in the ring, and the peer's window closes. */
		if (sent < n)
			return GNET_POLLOUT;
	}
	return GNET_POLLIN;
}

/* One more or less (delta) of all blocks' connections, of which this block has `own` now: has it more than its share? */
GNET_DEV int echo_crowded(const struct tool_echo *a, uint32_t own, int64_t delta)
{
	__shared__ uint64_t all;
	int crowded;

	if (threadIdx.x == 0)
		all = gnet_dev_add(&a->state->open, (uint64_t)delta) + (uint64_t)delta;
	__syncthreads();
	crowded = (uint64_t)own * gridDim.x > all;
	__syncthreads();
	return crowded;
}

GNET_DEV void echo_slot(struct gnet_pollfd *p, int fd, int events)
{
	if (threadIdx.x == 0) {
		p->fd = fd;
		p->events = (short)events;
		p->revents = 0;
	}
}

/* Serves the connections that gpoll has found: how many are left of fds[1 .. n - 1]. */
GNET_DEV uint32_t echo_round(const struct tool_echo *a, struct gnet_pollfd *fds, uint32_t n)
{
	uint32_t i;

	for (i = n - 1; i > 0; i--) {
		int fd = fds[i].fd, events;

		if (!fds[i].revents)
			continue;
		events = echo_some(a->net, fd);
		if (events) {
			echo_slot(&fds[i], fd, events);
			continue;
		}
		gclose(a->net, fd);
		n--;
		/* The last one, which was served already, takes its place. */
		if (threadIdx.x == 0)
			fds[i] = fds[n];
		echo_crowded(a, n - 1, -1);
	}
	return n;
}

/*
 * Each block has the listener in fds[0] and its connections behind it, and waits for all of them. A block that has more than its
 * share first leaves a new connection to the others for a moment, and takes it if they are all busy.
 */
GNET_DEV int echo_serve(const struct tool_echo *a, struct gnet_pollfd *fds)
{
	uint32_t n = 1;
	int rest = 0, rested = 0;

	for (;;) {
		int rc, fd;

		__syncthreads(); /* all have read fds[0] */
		echo_slot(&fds[0], rest || n == TOOL_CONNS ? -1 : a->listener, GNET_POLLIN);
		rc = gpoll(a->net, fds, n, rest ? ECHO_REST_NS : -1);
		if (rc < 0)
			return rc;
		rested = rest;
		rest = 0;
		n = echo_round(a, fds, n);
		if (!fds[0].revents)
			continue;
		if (!rested && echo_crowded(a, n - 1, 0)) {
			rest = 1;
			continue;
		}
		fd = gaccept4(a->net, a->listener, NULL, NULL, GNET_MSG_DONTWAIT);
		if (fd < 0 && fd != -EAGAIN)
			return fd;
		if (fd >= 0) {
			echo_slot(&fds[n], fd, GNET_POLLIN);
			echo_crowded(a, n++, 1);
		}
	}
}

GNET_DEV void echo(struct tool_echo a)
{
	int rc;

	if (a.dgram)
		rc = serve_dgrams(a.net, a.listener, a.buffers + blockIdx.x * TOOL_DGRAM,
				  TOOL_DGRAM, &a.peers[blockIdx.x]);
	else
		rc = echo_serve(&a, a.fds + (uint64_t)blockIdx.x * TOOL_CONNS);
	if (threadIdx.x == 0 && rc != -ECANCELED)
		gnet_sys_store_release(a.error, (uint64_t)-rc);
}

/* Blocks of up to 256 threads leave each thread the registers it likes, larger ones do not. */
#define ROOMY 256

GNET_KERNEL_MAX(kernel_echo, struct tool_echo, a, ROOMY)
{
	echo(a);
}

GNET_KERNEL(kernel_echo_wide, struct tool_echo, a)
{
	echo(a);
}

/* ---- cat -------------------------------------------------------------------------------------- */

/* Moves bytes until the end of `from` (0) or an error, with *step saying where. */
GNET_DEV int64_t shovel(gnet_t *net, int from, int to, uint8_t *buf, int *step)
{
	for (;;) {
		int64_t n = grecv(net, from, buf, TOOL_BUFFER, 0);

		*step = TOOL_STEP_RECEIVE;
		if (n <= 0)
			return n;
		n = send_all(net, to, buf, (uint64_t)n);
		*step = TOOL_STEP_SEND;
		if (n < 0)
			return n;
	}
}

/* The last of the two blocks closes the sockets. */
GNET_DEV void cat_ends(const struct tool_shovel *a)
{
	__shared__ uint64_t before;

	__syncthreads();
	if (threadIdx.x == 0)
		before = gnet_dev_add(&a->state->ended, 1);
	__syncthreads();
	if (before == 1) {
		gclose(a->net, a->peer);
		gclose(a->net, a->local);
	}
}

GNET_DEV void cat_failed(const struct tool_shovel *a, int step, int64_t rc)
{
	if (threadIdx.x == 0) {
		a->result->step[blockIdx.x] = (uint64_t)step;
		a->result->error[blockIdx.x] = (uint64_t)-rc;
	}
}

/* Has a block set the sign that both are to end? The same for all threads. */
GNET_DEV int cat_over(const struct tool_shovel *a)
{
	__shared__ uint64_t over;

	__syncthreads();
	if (threadIdx.x == 0)
		over = gnet_dev_load_acquire(&a->state->over);
	__syncthreads();
	return over != 0;
}

/*
 * Moves datagrams until an empty one at `local`, or until the other block has ended: 0, or an error with *step saying where.
 * One that is longer than the buffer, which is longer than the tool's own socket can carry, is an error and not cut.
 */
GNET_DEV int64_t shovel_dgrams(const struct tool_shovel *a, int down, uint8_t *buf, int *step)
{
	for (;;) {
		int64_t n = grecv(a->net, down ? a->peer : a->local, buf, a->room, GNET_MSG_TRUNC);

		*step = TOOL_STEP_RECEIVE;
		if (n < 0 || cat_over(a))
			return n < 0 ? n : 0;
		if (n == 0 && !down)
			return 0;
		if (n == 0)
			continue;
		if ((uint64_t)n > a->room)
			return -EMSGSIZE;
		n = gsend(a->net, down ? a->local : a->peer, buf, (uint64_t)n, 0);
		*step = TOOL_STEP_SEND;
		if (n < 0)
			return n;
	}
}

GNET_DEV void cat_dgrams(struct tool_shovel a)
{
	int down = blockIdx.x == 1, step = TOOL_STEP_NONE;
	int64_t rc = shovel_dgrams(&a, down, a.buffers + blockIdx.x * a.room, &step);

	/* What the other one's end brought about is no error of this one. */
	if (rc < 0 && !cat_over(&a))
		cat_failed(&a, step, rc);
	if (threadIdx.x == 0)
		gnet_dev_store_release(&a.state->over, 1);
	__syncthreads();
	/* The other block leaves its wait; the tool hears that there will be no more. */
	if (down) {
		gsend(a.net, a.local, a.buffers, 0, 0);
		gshutdown(a.net, a.local, GNET_SHUT_RD);
	} else {
		gshutdown(a.net, a.peer, GNET_SHUT_RD);
	}
	cat_ends(&a);
}

GNET_DEV void cat(struct tool_shovel a)
{
	__shared__ uint64_t before;
	int down = blockIdx.x == 1, step = TOOL_STEP_NONE;
	int from = down ? a.peer : a.local, to = down ? a.local : a.peer;
	int64_t rc = shovel(a.net, from, to, a.buffers + (uint64_t)blockIdx.x * TOOL_BUFFER, &step);

	/* A peer that has ended its stream and then refuses ours has not failed: it is gone. */
	if (threadIdx.x == 0) {
		if (down && rc == 0)
			gnet_dev_store_release(&a.state->eof, 1);
		before = gnet_dev_load_acquire(&a.state->eof);
	}
	__syncthreads();
	if (!down && step == TOOL_STEP_SEND && before && (rc == -EPIPE || rc == -ECONNRESET))
		rc = 0;
	if (rc < 0) {
		cat_failed(&a, step, rc);
		/* The other block must not wait for what cannot come any more. */
		gshutdown(a.net, a.peer, GNET_SHUT_RDWR);
		gshutdown(a.net, a.local, GNET_SHUT_RDWR);
	} else {
		gshutdown(a.net, to, GNET_SHUT_WR);
	}
	cat_ends(&a);
}

GNET_KERNEL_MAX(kernel_shovel, struct tool_shovel, a, ROOMY)
{
	if (a.dgram)
		cat_dgrams(a);
	else
		cat(a);
}

GNET_KERNEL(kernel_shovel_wide, struct tool_shovel, a)
{
	if (a.dgram)
		cat_dgrams(a);
	else
		cat(a);
}

/* ---- the table: what differs between the devices ---------------------------------------------- */

#ifdef __CUDACC__

static int select_device(int ordinal)
{
	return cudaSetDevice(ordinal) == cudaSuccess ? 0 : -ENODEV;
}

static void *shared_alloc(size_t size)
{
	void *memory;

	if (cudaHostAlloc(&memory, size, cudaHostAllocMapped) != cudaSuccess)
		return NULL;
	memset(memory, 0, size);
	return memory;
}

static void shared_free(void *memory)
{
	cudaFreeHost(memory);
}

static void *device_alloc(size_t size)
{
	void *memory;

	if (cudaMalloc(&memory, size) != cudaSuccess)
		return NULL;
	if (cudaMemset(memory, 0, size) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess)
		return memory;
	cudaFree(memory);
	return NULL;
}

static void device_free(void *memory)
{
	cudaFree(memory);
}

#else

static int select_device(int ordinal)
{
	return ordinal == 0 ? 0 : -ENODEV;
}

static void *shared_alloc(size_t size)
{
	return calloc(1, size);
}

static void shared_free(void *memory)
{
	free(memory);
}

static void *device_alloc(size_t size)
{
	return calloc(1, size);
}

static void device_free(void *memory)
{
	free(memory);
}

#endif

static int prepare(void)
{
	int rc = GPUNET_PREPARE(kernel_listen);

	if (rc == 0)
		rc = GPUNET_PREPARE(kernel_connect);
	if (rc == 0)
		rc = GPUNET_PREPARE(kernel_echo);
	if (rc == 0)
		rc = GPUNET_PREPARE(kernel_echo_wide);
	if (rc == 0)
		rc = GPUNET_PREPARE(kernel_shovel);
	if (rc == 0)
		rc = GPUNET_PREPARE(kernel_shovel_wide);
	return rc;
}

static struct gpunet_grid grid_of(unsigned blocks, unsigned threads)
{
	struct gpunet_grid grid = { blocks, 1, 1, threads, 1, 1, 0 };

	return grid;
}

static int run_listen(gpunet_t *g, struct tool_setup *setup)
{
	struct gpunet_grid grid = grid_of(1, 32);
	struct setup_args args = { gpunet_device(g), setup };

	return GPUNET_LAUNCH(g, kernel_listen, grid, args);
}

static int run_connect(gpunet_t *g, struct tool_setup *setup)
{
	struct gpunet_grid grid = grid_of(1, 32);
	struct setup_args args = { gpunet_device(g), setup };

	return GPUNET_LAUNCH(g, kernel_connect, grid, args);
}

static int run_echo(gpunet_t *g, unsigned blocks, unsigned threads, const struct tool_echo *given)
{
	struct gpunet_grid grid = grid_of(blocks, threads);
	struct tool_echo args = *given;

	if (threads > ROOMY)
		return GPUNET_LAUNCH(g, kernel_echo_wide, grid, args);
	return GPUNET_LAUNCH(g, kernel_echo, grid, args);
}

static int run_shovel(gpunet_t *g, unsigned threads, const struct tool_shovel *given)
{
	struct gpunet_grid grid = grid_of(2, threads);
	struct tool_shovel args = *given;

	if (threads > ROOMY)
		return GPUNET_LAUNCH(g, kernel_shovel_wide, grid, args);
	return GPUNET_LAUNCH(g, kernel_shovel, grid, args);
}

#ifdef __CUDACC__
extern "C" const struct tool_kernels tool_kernels_cuda = {
	"cuda",
#else
const struct tool_kernels tool_kernels_cpu = {
	"cpu",
#endif
	select_device, shared_alloc, shared_free, device_alloc, device_free,
	prepare,       run_listen,   run_connect, run_echo,     run_shovel,
};
