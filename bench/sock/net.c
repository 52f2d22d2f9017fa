/* SPDX-License-Identifier: BSD-3-Clause */
/* A kernel as a server: opens a network, makes the listeners, starts and ends the kernel. */
#include <errno.h>
#include <string.h>

#include "sock.h"

#define CLOSE_MS 8000

const struct bench_kernels *bench_kernels(void)
{
#ifdef GPUNET_WITH_CUDA
	if (opt.gpu)
		return &bench_kernels_cuda;
#endif
	return &bench_kernels_cpu;
}

static int make_listener(struct gpu_server *s, unsigned i, const char *transport,
			 struct address *at)
{
	struct bench_listen *l = s->k->shared_alloc(sizeof(*l));
	int rc, fd;

	if (!l)
		die("memory is short");
	s->listen[i] = l;
	address_new(transport, at);
	memcpy(l->addr, &at->ss, sizeof(l->addr));
	l->len = at->len;
	rc = s->k->listen(s->g, l);
	if (rc)
		die("a kernel cannot listen: %s", strerror(-rc));
	memcpy(&at->ss, l->addr, sizeof(l->addr));
	at->len = l->len;
	fd = l->fd;
	return fd;
}

void gpu_server_open(struct gpu_server *s, const char *transport, const struct gpunet_options *want)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;

	memset(s, 0, sizeof(*s));
	if (want)
		o = *want;
	o.device = opt.device;
	s->k = bench_kernels();
	if (s->k->prepare())
		die("cannot load the kernels for device %s", opt.device);
	place(o.proxy_threads > 1 ? PLACE_SERVERS : PLACE_SERVER);
	if (gpunet_open(&s->g, &o))
		die("cannot open a network on device %s: %s", opt.device, gpunet_last_error());
	place(PLACE_ANY);
	s->shared = s->k->shared_alloc(sizeof(*s->shared));
	if (!s->shared)
		die("memory is short");
	s->args.net = gpunet_device(s->g);
	s->args.shared = s->shared;
	s->args.listener = make_listener(s, 0, transport, &s->at);
	s->args.second = make_listener(s, 1, transport, &s->second_at);
	s->args.silent = make_listener(s, 2, transport, &s->silent_at);
}

void gpu_server_serve(struct gpu_server *s, unsigned servers, unsigned holders, unsigned waiters,
		      unsigned threads)
{
	int rc;

	s->args.servers = servers;
	s->args.holders = holders;
	s->args.waiters = waiters;
	s->args.bufs = s->k->device_alloc(servers * (BENCH_BUF + BENCH_PAD) + 16);
	if (!s->args.bufs)
		die("no memory for %u blocks", servers);
	rc = s->k->serve(s->g, threads, &s->args);
	if (rc)
		die("cannot start a kernel of %u blocks, %u threads each: %s",
		    servers + holders + waiters, threads, gpunet_last_error());
}

void gpu_server_late(struct gpu_server *s, unsigned threads)
{
	struct bench_late l = { s->args.net, s->shared, s->k->device_alloc(64), s->args.listener };
	int rc = (s->late_buf = l.buf) ? s->k->late(s->g, threads, &l) : -ENOMEM;

	if (rc)
		die("cannot start a kernel: %s", strerror(-rc));
}

void gpu_server_order(struct gpu_server *s, const struct bench_order *o)
{
	struct bench_order *to = &s->shared->order;

	__atomic_store_n(&to->chunk, o->chunk, __ATOMIC_RELAXED);
	__atomic_store_n(&to->offset, o->offset, __ATOMIC_RELAXED);
	__atomic_store_n(&to->total, o->total, __ATOMIC_RELAXED);
	__atomic_store_n(&to->mode, o->mode, __ATOMIC_RELEASE);
}

void gpu_server_check(struct gpu_server *s)
{
	uint64_t error = __atomic_load_n(&s->shared->error, __ATOMIC_ACQUIRE);

	if (error)
		die("the kernel has failed: %s", strerror((int)error));
}

void gpu_server_close(struct gpu_server *s)
{
	unsigned i;

	gpu_server_check(s);
	if (gpunet_close(s->g, CLOSE_MS))
		die("cannot close the network: %s", gpunet_last_error());
	for (i = 0; i < 3; i++)
		s->k->shared_free(s->listen[i]);
	s->k->shared_free(s->shared);
	s->k->device_free(s->args.bufs);
	s->k->device_free(s->late_buf);
}
