/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of bench-sock: C11 and CUDA, see kernels.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#include "kernels.h"

#define THREADS_MAX 512

struct listen_args {
	gnet_t *net;
	struct bench_listen *l;
};

GNET_KERNEL_MAX(kernel_listen, struct listen_args, a, THREADS_MAX)
{
	struct bench_listen *l = a.l;
	int fd = gsocket(a.net, l->addr[0] | l->addr[1] << 8, GNET_SOCK_STREAM, 0);
	int rc = fd < 0 ? fd : gbind(a.net, fd, l->addr, l->len);

	if (!rc)
		rc = glisten(a.net, fd, 4096);
	if (threadIdx.x == 0)
		l->len = sizeof(l->addr);
	__syncthreads();
	if (!rc)
		rc = ggetsockname(a.net, fd, l->addr, &l->len);
	if (threadIdx.x == 0)
		l->fd = rc ? rc : fd;
}

/* ---- the server -------------------------------------------------------------------------------------------------------- */

GNET_DEV struct bench_order take_order(const struct bench_shared *shared)
{
	__shared__ struct bench_order o;
	struct bench_order mine;

	if (threadIdx.x == 0) {
		o.mode = gnet_sys_load_acquire(&shared->order.mode);
		o.chunk = gnet_sys_load(&shared->order.chunk);
		o.offset = gnet_sys_load(&shared->order.offset);
		o.total = gnet_sys_load(&shared->order.total);
	}
	__syncthreads();
	mine = o;
	__syncthreads();
	return mine;
}

GNET_DEV void serve_echo(gnet_t *net, int fd, uint8_t *buf, uint64_t chunk)
{
	int64_t n;

	do {
		n = grecv(net, fd, buf, chunk, 0);
		if (n > 0)
			n = gsend(net, fd, buf, (uint64_t)n, 0);
	} while (n > 0);
}

GNET_DEV void serve_sink(gnet_t *net, int fd, uint8_t *buf, uint64_t chunk)
{
	int64_t n;

	do
		n = grecv(net, fd, buf, chunk, 0);
	while (n > 0);
	gsend(net, fd, buf, 1, 0);
}

GNET_DEV void serve_source(gnet_t *net, int fd, uint8_t *buf, const struct bench_order *o)
{
	uint64_t left = o->total;
	int64_t n = 1;

	while (left && n > 0) {
		n = gsend(net, fd, buf, left < o->chunk ? left : o->chunk, 0);
		left -= n > 0 ? (uint64_t)n : 0;
	}
}

GNET_DEV void failed(struct bench_shared *shared, int rc)
{
	if (threadIdx.x == 0 && rc < 0 && rc != -ECANCELED)
		gnet_sys_store_release(&shared->error, (uint64_t)-rc);
}

GNET_DEV void serve(const struct bench_serve *a)
{
	uint8_t *bufs = a->bufs + blockIdx.x * (BENCH_BUF + BENCH_PAD);
	int fd;

	while ((fd = gaccept(a->net, a->listener, 0, 0)) >= 0) {
		struct bench_order o = take_order(a->shared);
		uint8_t *buf = bufs + o.offset;

		if (o.mode == BENCH_ECHO)
			serve_echo(a->net, fd, buf, o.chunk);
		else if (o.mode == BENCH_SINK)
			serve_sink(a->net, fd, buf, o.chunk);
		else if (o.mode == BENCH_SOURCE)
			serve_source(a->net, fd, buf, &o);
		gclose(a->net, fd);
	}
	failed(a->shared, fd);
}

/* ---- blocks that are only there ------------------------------------------------------------------------------------------ */

/* One more, counted where the host sees it; the count itself is in device memory, as atomics are. */
GNET_DEV void count(uint64_t *seen_by_host, uint64_t *counter)
{
	if (threadIdx.x == 0)
		gnet_sys_store_release(seen_by_host, gnet_dev_add(counter, 1) + 1);
}

/* The counters of holders and waiters lie behind the servers' buffers. */
GNET_DEV uint64_t *counters(const struct bench_serve *a)
{
	return (uint64_t *)(void *)(a->bufs + a->servers * (BENCH_BUF + BENCH_PAD));
}

GNET_DEV void hold(const struct bench_serve *a)
{
	int fd;

	while ((fd = gaccept(a->net, a->second, 0, 0)) >= 0)
		count(&a->shared->held, &counters(a)[0]);
	failed(a->shared, fd);
}

GNET_DEV void wait_for_ever(const struct bench_serve *a)
{
	__shared__ struct gnet_pollfd p[2];
	__shared__ uint8_t byte[16];
	int kind = (int)(blockIdx.x % 3), fd = -1;

	if (kind != 0)
		fd = gaccept(a->net, a->second, 0, 0);
	if (threadIdx.x == 0) {
		p[0].fd = a->silent;
		p[1].fd = fd;
		p[0].events = p[1].events = GNET_POLLIN;
	}
	count(&a->shared->ready, &counters(a)[1]);
	if (kind == 0)
		fd = gaccept(a->net, a->silent, 0, 0);
	else if (kind == 1)
		fd = (int)grecv(a->net, fd, byte, sizeof(byte), 0);
	else
		fd = gpoll(a->net, p, 2, -1);
	failed(a->shared, fd);
}

GNET_DEV void serve_as(const struct bench_serve *a)
{
	if (blockIdx.x < a->servers)
		serve(a);
	else if (blockIdx.x < a->servers + a->holders)
		hold(a);
	else
		wait_for_ever(a);
}

/* Small blocks leave each thread the registers it likes, as a user who wants low latency would have it. */
#define ROOMY 256

GNET_KERNEL_MAX(kernel_serve, struct bench_serve, a, ROOMY)
{
	serve_as(&a);
}

GNET_KERNEL_MAX(kernel_serve_wide, struct bench_serve, a, THREADS_MAX)
{
	serve_as(&a);
}

/* ---- a message after silence ---------------------------------------------------------------------------------------------- */

/* Waits until the host has let message `seq` go: 0 when there will be none. */
GNET_DEV int may_send(const struct bench_shared *shared, uint64_t seq)
{
	__shared__ uint64_t go;
	int yes;

	if (threadIdx.x == 0) {
		while ((go = gnet_sys_load_acquire(&shared->go)) < seq) {
#ifndef __CUDACC__
			__nanosleep(20000); /* the host's store is no event of the CPU device */
#endif
		}
	}
	__syncthreads();
	yes = go != BENCH_GO_END;
	__syncthreads();
	return yes;
}

GNET_KERNEL_MAX(kernel_late, struct bench_late, a, ROOMY)
{
	int fd = gaccept(a.net, a.listener, 0, 0), rc = fd;
	uint64_t seq;

	for (seq = 1; rc >= 0 && may_send(a.shared, seq); seq++)
		rc = (int)gsend(a.net, fd, a.buf, 64, 0);
	failed(a.shared, rc);
}

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

static struct gpunet_grid grid_of(unsigned blocks, unsigned threads)
{
	struct gpunet_grid grid = { blocks, 1, 1, threads, 1, 1, 0 };

	return grid;
}

static int run_listen(gpunet_t *g, struct bench_listen *l)
{
	struct gpunet_grid grid = grid_of(1, 32);
	struct listen_args args = { gpunet_device(g), l };
	int rc = GPUNET_LAUNCH(g, kernel_listen, grid, args);

	if (!rc)
		rc = gpunet_sync(g, 10000);
	return rc ? rc : l->fd < 0 ? l->fd : 0;
}

static int run_serve(gpunet_t *g, unsigned threads, const struct bench_serve *given)
{
	struct gpunet_grid grid =
		grid_of(given->servers + given->holders + given->waiters, threads);
	struct bench_serve args = *given;

	if (threads > ROOMY)
		return GPUNET_LAUNCH(g, kernel_serve_wide, grid, args);
	return GPUNET_LAUNCH(g, kernel_serve, grid, args);
}

static int run_late(gpunet_t *g, unsigned threads, const struct bench_late *given)
{
	struct gpunet_grid grid = grid_of(1, threads);
	struct bench_late args = *given;

	return GPUNET_LAUNCH(g, kernel_late, grid, args);
}

#ifdef __CUDACC__

/* ---- what a program without gpunet would do: CUDA only -------------------------------------------------------------------- */

/* One warp: lane 0 waits for the flag, all lanes copy, lane 0 sets the other flag. */
static __global__ void answer_mail(struct bench_mail *m)
{
	const unsigned lane = threadIdx.x;
	uint64_t seq, asked = 0;

	for (seq = 1;; seq++) {
		while (lane == 0 && (asked = gnet_sys_load_acquire(&m->asked)) < seq) {
		}
		asked = __shfl_sync(0xffffffffu, asked, 0);
		if (asked == BENCH_GO_END)
			return;
		__syncwarp(); /* the message, too, is there for all lanes */
		if (lane < BENCH_MAIL_MAX / 8 && lane * 8 < m->bytes)
			m->out[lane] = m->in[lane];
		__syncwarp();
		if (lane == 0)
			gnet_sys_store_release(&m->answered, seq);
	}
}

static __global__ void copy_bytes(const uint8_t *in, uint8_t *out, unsigned n)
{
	if (threadIdx.x < n)
		out[threadIdx.x] = in[threadIdx.x];
}

static cudaStream_t own_stream(void)
{
	static cudaStream_t stream;

	if (!stream && cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
		stream = NULL;
	return stream;
}

static int mail_start(struct bench_mail *mail)
{
	cudaStream_t stream = own_stream();

	if (!stream)
		return -EIO;
	answer_mail<<<1, 32, 0, stream>>>(mail);
	return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

static int mail_wait(void)
{
	return cudaStreamSynchronize(own_stream()) == cudaSuccess ? 0 : -EIO;
}

static int copy_echo(const void *in, void *out, size_t size)
{
	static uint8_t *there;
	cudaStream_t stream = own_stream();

	if (!there && cudaMalloc((void **)&there, 2048) != cudaSuccess)
		return -ENOMEM;
	if (!stream || size > 1024)
		return -EINVAL;
	if (cudaMemcpyAsync(there, in, size, cudaMemcpyHostToDevice, stream) != cudaSuccess)
		return -EIO;
	copy_bytes<<<1, 1024, 0, stream>>>(there, there + 1024, (unsigned)size);
	if (cudaMemcpyAsync(out, there + 1024, size, cudaMemcpyDeviceToHost, stream) != cudaSuccess)
		return -EIO;
	return cudaStreamSynchronize(stream) == cudaSuccess ? 0 : -EIO;
}

static void *shared_alloc(size_t size)
{
	void *memory;

	if (cudaHostAlloc(&memory, size, cudaHostAllocMapped) != cudaSuccess)
		return NULL;
	memset(memory, 0, size);
	return memory;
}

static void *device_alloc(size_t size)
{
	void *memory;

	if (cudaMalloc(&memory, size) != cudaSuccess)
		return NULL;
	if (cudaMemset(memory, 0, size) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess)
		return NULL;
	return memory;
}

static void shared_free(void *memory)
{
	if (memory)
		cudaFreeHost(memory);
}

static void device_free(void *memory)
{
	if (memory)
		cudaFree(memory);
}

static int prepare(void)
{
	/* Its waits spin, as a program that wants low latency would have it. Too late if there is a context already. */
	if (cudaSetDeviceFlags(cudaDeviceScheduleSpin | cudaDeviceMapHost) != cudaSuccess)
		cudaGetLastError();
	if (GPUNET_PREPARE(kernel_listen) || GPUNET_PREPARE(kernel_serve) ||
	    GPUNET_PREPARE(kernel_serve_wide) || GPUNET_PREPARE(kernel_late) ||
	    GPUNET_PREPARE(answer_mail) || GPUNET_PREPARE(copy_bytes))
		return -EIO;
	return 0;
}

extern "C" const struct bench_kernels bench_kernels_cuda = {
	"cuda",     shared_alloc, device_alloc, shared_free, device_free, prepare,
	run_listen, run_serve,    run_late,     mail_start,  mail_wait,   copy_echo,
};

#else

static void *any_alloc(size_t size)
{
	return calloc(1, size);
}

static int prepare(void)
{
	return 0;
}

const struct bench_kernels bench_kernels_cpu = {
	"cpu",      any_alloc, any_alloc, free, free, prepare,
	run_listen, run_serve, run_late,  NULL, NULL, NULL,
};

#endif
