/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of gpunet perf: C11 and CUDA, see perf.h. */
#include <errno.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#include "kernel_calls.h"
#include "kernels.h"

/* ---- server ------------------------------------------------------------------------------------ */

/* Messages of `size` bytes there and back until the peer ends. */
GNET_DEV void serve_lat(gnet_t *net, int fd, uint8_t *buf, uint64_t size)
{
	while (grecv(net, fd, buf, size, GNET_MSG_WAITALL) == (int64_t)size &&
	       send_all(net, fd, buf, size) == (int64_t)size) {
	}
}

GNET_DEV void serve_bw(gnet_t *net, int fd, uint8_t *buf)
{
	uint64_t bytes = 0;
	int64_t n;

	while ((n = grecv(net, fd, buf, PERF_BUFFER, 0)) > 0)
		bytes += (uint64_t)n;
	if (threadIdx.x == 0)
		*(uint64_t *)(void *)buf = bytes;
	send_all(net, fd, buf, 8);
}

GNET_DEV void serve_reverse(gnet_t *net, int fd, uint8_t *buf, struct perf_hello h)
{
	uint64_t i;

	for (i = 0; i < h.count && send_all(net, fd, buf, h.size) > 0; i++) {
	}
}

GNET_DEV void serve_stream(gnet_t *net, int fd, uint8_t *buf)
{
	struct perf_hello h;

	if (grecv(net, fd, buf, sizeof(h), GNET_MSG_WAITALL) != sizeof(h))
		return;
	h = *(struct perf_hello *)(void *)buf;
	__syncthreads();
	if (h.magic != PERF_MAGIC || h.version != PERF_VERSION || !h.size || h.size > PERF_BUFFER)
		return;
	if (h.test == PERF_STREAM_LAT)
		serve_lat(net, fd, buf, h.size);
	else if (h.test == PERF_STREAM_BW && h.reverse)
		serve_reverse(net, fd, buf, h);
	else if (h.test == PERF_STREAM_BW)
		serve_bw(net, fd, buf);
}

GNET_DEV int serve_streams(const struct perf_server *a, uint8_t *buf)
{
	int fd;

	while ((fd = gaccept(a->net, a->socket, NULL, NULL)) >= 0) {
		serve_stream(a->net, fd, buf);
		gclose(a->net, fd);
	}
	return fd;
}

#define THREADS_MAX 256

GNET_KERNEL_MAX(kernel_perf_server, struct perf_server, a, THREADS_MAX)
{
	uint8_t *buf = a.buffers + blockIdx.x * PERF_BUFFER;
	int rc = a.dgram ? serve_dgrams(a.net, a.socket, buf, PERF_BUFFER, &a.peers[blockIdx.x])
			 : serve_streams(&a, buf);

	if (threadIdx.x == 0 && rc != -ECANCELED)
		gnet_sys_store_release(a.error, (uint64_t)-rc);
}

/* ---- client ------------------------------------------------------------------------------------- */

struct client {
	gnet_t *net;
	const struct perf_client *a;
	struct perf_result *r;
	uint64_t *ticks;
	uint8_t *buf;
	int fd;
	int step; /* of the error */
};

GNET_DEV void begin(const struct client *c)
{
	if (threadIdx.x == 0) {
		c->r->begin_tick = (uint64_t)clock64();
		c->r->begin = gnet_time_ns();
	}
}

GNET_DEV void end(const struct client *c)
{
	if (threadIdx.x == 0) {
		c->r->end_tick = (uint64_t)clock64();
		c->r->end = gnet_time_ns();
	}
}

GNET_DEV void progress(const struct client *c, uint64_t done)
{
	if (threadIdx.x == 0)
		gnet_sys_store(&c->r->done, done);
}

/* Connects and says hello. */
GNET_DEV int64_t greet(struct client *c)
{
	int64_t rc;

	c->fd = connect_to(c->net, c->a->addr, GNET_SOCK_STREAM, &c->step);
	if (c->fd < 0)
		return c->fd;
	c->step = TOOL_STEP_SEND;
	if (threadIdx.x == 0)
		*(struct perf_hello *)(void *)c->buf = c->a->hello;
	__syncthreads();
	rc = send_all(c->net, c->fd, c->buf, sizeof(struct perf_hello));
	return rc < 0 ? rc : 0;
}

/* All of `n`, or the error; the end of the stream is one, too. */
GNET_DEV int64_t receive(struct client *c, uint64_t n)
{
	int64_t got;

	c->step = TOOL_STEP_RECEIVE;
	got = grecv(c->net, c->fd, c->buf, n, GNET_MSG_WAITALL);
	return got < 0 ? got : (uint64_t)got < n ? -ECONNRESET : 0;
}

GNET_DEV int64_t run_lat(struct client *c)
{
	uint64_t size = c->a->hello.size, count = c->a->hello.count, warm = c->a->warm, i;
	int64_t rc = greet(c);

	for (i = 0; i < count + warm && rc >= 0; i++) {
		uint64_t start;

		if (i == warm)
			begin(c);
		start = (uint64_t)clock64();
		c->step = TOOL_STEP_SEND;
		rc = send_all(c->net, c->fd, c->buf, size);
		if (rc >= 0)
			rc = receive(c, size);
		if (threadIdx.x == 0 && i >= warm)
			c->ticks[i - warm] = (uint64_t)clock64() - start;
		progress(c, i < warm ? 0 : i - warm + 1);
	}
	end(c);
	return rc;
}

/* How many messages make a step of the progress that is told: each costs a store across the bus. */
#define TELL_EVERY 16

GNET_DEV int64_t run_bw(struct client *c)
{
	uint64_t size = c->a->hello.size, count = c->a->hello.count, i;
	int64_t rc = greet(c);

	begin(c);
	for (i = 0; i < count && rc >= 0; i++) {
		c->step = TOOL_STEP_SEND;
		if (c->a->hello.reverse)
			rc = receive(c, size);
		else
			rc = send_all(c->net, c->fd, c->buf, size);
		if (i % TELL_EVERY == TELL_EVERY - 1 || size >= 65536)
			progress(c, i + 1);
	}
	if (rc >= 0 && !c->a->hello.reverse) {
		gshutdown(c->net, c->fd, GNET_SHUT_WR);
		rc = receive(c, 8);
		if (rc >= 0 && *(uint64_t *)(void *)c->buf != size * count)
			rc = -ECONNRESET; /* the server has not got it all */
	}
	end(c);
	progress(c, i);
	return rc;
}

GNET_DEV int64_t run_conn(struct client *c)
{
	uint64_t count = c->a->hello.count, i;
	int64_t rc = 0;

	begin(c);
	for (i = 0; i < count && rc >= 0; i++) {
		rc = greet(c);
		if (rc >= 0) {
			c->step = TOOL_STEP_RECEIVE;
			rc = grecv(c->net, c->fd, c->buf, 1, 0);
		}
		if (c->fd >= 0)
			gclose(c->net, c->fd);
		c->fd = -1;
		progress(c, i + 1);
	}
	end(c);
	return rc;
}

/* ---- datagrams ------------------------------------------------------------------------------------ */

/* Waits for the answer to datagram `seq`, of whose first bytes the number is one if there is room: 1, 0: lost, or the error. */
GNET_DEV int64_t dgram_answer(struct client *c, uint64_t seq, uint64_t size)
{
	__shared__ struct gnet_pollfd p;
	int64_t n;

	c->step = TOOL_STEP_RECEIVE;
	for (;;) {
		uint64_t got = seq;

		if (threadIdx.x == 0) {
			p.fd = c->fd;
			p.events = GNET_POLLIN;
		}
		n = grecv(c->net, c->fd, c->buf, PERF_BUFFER, GNET_MSG_DONTWAIT);
		if (n == -EAGAIN) {
			n = gpoll(c->net, &p, 1, PERF_TIMEOUT_US * INT64_C(1000));
			if (n <= 0)
				return n;
			continue;
		}
		if (n < 0)
			return n;
		if (size >= sizeof(seq))
			got = *(uint64_t *)(void *)c->buf;
		__syncthreads();
		/* An answer that comes after it was given up for lost is passed over. */
		if (got == seq)
			return (uint64_t)n == size ? 1 : -EMSGSIZE;
	}
}

GNET_DEV int64_t dgram_round(struct client *c, uint64_t seq, uint64_t size)
{
	int64_t rc;

	if (threadIdx.x == 0 && size >= sizeof(seq))
		*(uint64_t *)(void *)c->buf = seq;
	__syncthreads();
	c->step = TOOL_STEP_SEND;
	rc = gsend(c->net, c->fd, c->buf, size, 0);
	return rc < 0 ? rc : dgram_answer(c, seq, size);
}

GNET_DEV int64_t run_dgram(struct client *c)
{
	uint64_t size = c->a->hello.size, count = c->a->hello.count, i = 0, seq = 0, lost = 0,
		 row = 0;
	uint64_t warm = c->a->warm;
	int64_t rc = connect_to(c->net, c->a->addr, GNET_SOCK_DGRAM, &c->step);

	c->fd = (int)rc;
	while (i < count + warm && rc >= 0) {
		uint64_t start;

		if (i == warm)
			begin(c);
		start = (uint64_t)clock64();
		rc = dgram_round(c, ++seq, size);
		row = rc == 0 ? row + 1 : 0;
		lost += rc == 0;
		if (row == PERF_LOST_MAX)
			rc = -ETIMEDOUT;
		if (rc <= 0)
			continue;
		if (threadIdx.x == 0 && i >= warm)
			c->ticks[i - warm] = (uint64_t)clock64() - start;
		i++;
		progress(c, i <= warm ? 0 : i - warm);
	}
	end(c);
	if (threadIdx.x == 0)
		c->r->lost = lost;
	return rc;
}

GNET_KERNEL_MAX(kernel_perf_client, struct perf_client, a, THREADS_MAX)
{
	struct client c;
	int64_t rc;

	c.net = a.net;
	c.a = &a;
	c.r = &a.results[blockIdx.x];
	c.ticks = a.ticks + blockIdx.x * a.hello.count;
	c.buf = a.buffers + blockIdx.x * PERF_BUFFER;
	c.fd = -1;
	c.step = TOOL_STEP_NONE;
	if (a.hello.test == PERF_STREAM_LAT)
		rc = run_lat(&c);
	else if (a.hello.test == PERF_STREAM_BW)
		rc = run_bw(&c);
	else if (a.hello.test == PERF_CONN_RATE)
		rc = run_conn(&c);
	else
		rc = run_dgram(&c);
	if (c.fd >= 0)
		gclose(a.net, c.fd);
	if (threadIdx.x == 0) {
		c.r->step = rc < 0 ? (uint64_t)c.step : 0;
		c.r->error = rc < 0 ? (uint64_t)-rc : 0;
		gnet_sys_store_release(&c.r->ended, 1);
	}
}

/* ---- the table ------------------------------------------------------------------------------------ */

static int prepare(void)
{
	int rc = GPUNET_PREPARE(kernel_perf_server);

	return rc ? rc : GPUNET_PREPARE(kernel_perf_client);
}

static int run_server(gpunet_t *g, unsigned blocks, unsigned threads,
		      const struct perf_server *given)
{
	struct gpunet_grid grid = { blocks, 1, 1, threads, 1, 1, 0 };
	struct perf_server args = *given;

	return GPUNET_LAUNCH(g, kernel_perf_server, grid, args);
}

static int run_client(gpunet_t *g, unsigned threads, const struct perf_client *given)
{
	struct gpunet_grid grid = { given->conns, 1, 1, threads, 1, 1, 0 };
	struct perf_client args = *given;

	return GPUNET_LAUNCH(g, kernel_perf_client, grid, args);
}

#ifdef __CUDACC__
extern "C" const struct tool_perf_kernels tool_perf_kernels_cuda = {
#else
const struct tool_perf_kernels tool_perf_kernels_cpu = {
#endif
	prepare,
	run_server,
	run_client,
};
