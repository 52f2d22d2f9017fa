/* SPDX-License-Identifier: BSD-3-Clause */
#include "platform/cuda/device.h"

#include "base/log.h"
#include "base/sys.h"
#include "platform/cuda/copier.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

#define WHY_BYTES 320

int cuda_fail(const struct cuda_dev *d, cuda_result r, const char *what)
{
	char buf[32];

	return log_error(cuda_errno(r), "cuda:%d: cannot %s: %s%s", d->ordinal, what,
			 cuda_error_name(d->api, r, buf, sizeof(buf)), cuda_remedy(r));
}

int cuda_enter(const struct cuda_dev *d, const char *what)
{
	cuda_result r = d->api->ctx_push(d->ctx);

	return r == CUDA_OK ? 0 : cuda_fail(d, r, what);
}

void cuda_leave(const struct cuda_dev *d)
{
	cuda_context popped;
	cuda_result r = d->api->ctx_pop(&popped);
	char buf[32];

	if (r != CUDA_OK)
		log_line(LOG_WARN, "cuda:%d: cannot restore the thread's CUDA context: %s",
			 d->ordinal, cuda_error_name(d->api, r, buf, sizeof(buf)));
}

static void pause_ns(long ns)
{
	const struct timespec t = { .tv_nsec = ns };

	nanosleep(&t, NULL); /* a signal only makes it shorter */
}

cuda_result cuda_wait(const struct cuda_dev *d, uint64_t timeout_ns)
{
	const uint64_t start = sys.now_ns();
	long nap = 10000;

	for (;;) {
		cuda_result r = d->api->stream_query(d->stream);

		if (r != CUDA_NOT_READY || sys.now_ns() - start >= timeout_ns)
			return r;
		pause_ns(nap);
		if (nap < 8000000) /* a wait that has been long may end a little late */
			nap *= 2;
	}
}

static int count(char *why, size_t why_size)
{
	const struct cuda_api *api = cuda_driver(why, why_size);
	cuda_result r;
	char buf[32];
	int n = 0;

	if (!api)
		return 0;
	r = api->device_count(&n);
	if (r == CUDA_OK && n > 0)
		return n;
	snprintf(why, why_size, "the NVIDIA driver lists no GPU (%s)%s",
		 r == CUDA_OK ? "count 0" : cuda_error_name(api, r, buf, sizeof(buf)),
		 cuda_remedy(r));
	return 0;
}

/* The device handle's number and existence. */
static int find(struct cuda_dev *d)
{
	cuda_result r;
	int n = 0;

	r = d->api->device_count(&n);
	if (r != CUDA_OK)
		return cuda_fail(d, r, "count the GPUs");
	if (d->ordinal < 0 || d->ordinal >= n)
		return log_error(
			-ENODEV,
			"there is no cuda:%d: the driver lists %d GPU%s (CUDA_VISIBLE_DEVICES limits them)",
			d->ordinal, n, n == 1 ? "" : "s");
	r = d->api->device_get(&d->id, d->ordinal);
	return r == CUDA_OK ? 0 : cuda_fail(d, r, "find the GPU");
}

/*
 * The caller's current context if it is one of this GPU, so that the caller's kernels and ours
 * share it; else the primary context, which the CUDA runtime uses. Never a new one: memory and
 * streams do not cross contexts.
 */
static int attach(struct cuda_dev *d)
{
	cuda_context current = NULL;
	cuda_device on = -1;
	cuda_result r;

	r = d->api->ctx_current(&current);
	if (r != CUDA_OK)
		return cuda_fail(d, r, "ask for the current context");
	if (current) {
		r = d->api->ctx_device(&on);
		if (r != CUDA_OK)
			return cuda_fail(d, r, "ask for the current context's GPU");
		if (on == d->id) {
			d->ctx = current;
			return 0;
		}
	}
	r = d->api->primary_retain(&d->ctx, d->id);
	if (r != CUDA_OK)
		return cuda_fail(d, r, "retain the primary context");
	d->retained = true;
	return 0;
}

static void detach(struct cuda_dev *d)
{
	cuda_result r;
	char buf[32];

	if (!d->retained)
		return;
	r = d->api->primary_release(d->id);
	if (r != CUDA_OK)
		log_line(LOG_WARN, "cuda:%d: cannot release the primary context: %s", d->ordinal,
			 cuda_error_name(d->api, r, buf, sizeof(buf)));
}

static int make_stream(struct cuda_dev *d)
{
	int err = cuda_enter(d, "use its context");
	cuda_result r;

	if (err)
		return err;
	/*
	 * Non-blocking: a kernel that stays resident must not hold up the caller's default stream,
	 * nor wait for it.
	 */
	r = d->api->stream_create(&d->stream, CUDA_STREAM_NON_BLOCKING, 0);
	cuda_leave(d);
	return r == CUDA_OK ? 0 : cuda_fail(d, r, "make a stream");
}

/* The driver and the GPU in it. */
static int reach(struct cuda_dev *d, int ordinal)
{
	char why[WHY_BYTES] = "";

	d->ordinal = ordinal;
	d->api = cuda_driver(why, sizeof(why));
	return d->api ? find(d) : log_error(-ENODEV, "cuda:%d: %s", ordinal, why);
}

/*
 * No stream: making one waits for a resident kernel where launches block. And no context if one of our handles shows
 * already that there can be one.
 */
static int look(int ordinal, struct platform_info *out)
{
	struct cuda_dev d = { 0 };
	int err = reach(&d, ordinal);

	if (err)
		return err;
	if (!cuda_keep_has(d.id)) {
		err = attach(&d);
		if (err)
			return err;
		detach(&d);
	}
	d.numa_node = cuda_numa_node(&d);
	return cuda_info((struct platform_dev *)&d, out);
}

/* All of `p` is the CPU device's. */
static int dev_open(int ordinal, const struct platform_params *p, struct platform_dev **out)
{
	struct cuda_dev *d;
	int err;

	d = sys.alloc(sizeof(*d));
	if (!d)
		return log_error(-ENOMEM, "cuda:%d: no memory for the device handle", ordinal);
	err = reach(d, ordinal);
	if (err)
		goto free_dev;
	err = attach(d);
	if (err)
		goto free_dev;
	err = make_stream(d);
	if (err)
		goto detach_ctx;
	d->numa_node = cuda_numa_node(d);
	cuda_keep_open(d);
	*out = (struct platform_dev *)d;
	return 0;

detach_ctx:
	detach(d);
free_dev:
	sys.free(d);
	return err;
}

static void dev_close(struct platform_dev *dev)
{
	struct cuda_dev *d = cuda_of(dev);
	cuda_result r;
	char buf[32];

	cuda_keep_close(d);
	/* A context that cannot be entered has been destroyed, and its streams with it. */
	if (!cuda_enter(d, "close")) {
		r = d->api->stream_destroy(d->stream);
		if (r != CUDA_OK)
			log_line(LOG_WARN, "cuda:%d: cannot destroy the stream: %s", d->ordinal,
				 cuda_error_name(d->api, r, buf, sizeof(buf)));
		cuda_leave(d);
	}
	detach(d);
	sys.free(d);
}

/* The GPU sees the CPU's stores by itself. */
static void notify(struct platform_dev *dev, const void *word)
{
}

static int set_kick(struct platform_dev *dev, void (*kick)(void *ctx, unsigned q), void *ctx)
{
	return 0;
}

static int launch(struct platform_dev *dev, void (*entry)(void *args),
		  const struct platform_grid *g, const void *args, size_t args_size)
{
	return log_error(
		-EOPNOTSUPP,
		"cuda:%d: kernels are launched by the CUDA runtime: compile the file with nvcc",
		cuda_of(dev)->ordinal);
}

static void *stream(struct platform_dev *dev)
{
	return cuda_of(dev)->stream;
}

static int sync_stream(struct platform_dev *dev, uint64_t timeout_ns)
{
	const struct cuda_dev *d = cuda_of(dev);
	int err = cuda_enter(d, "wait for its kernels");
	cuda_result r;

	if (err)
		return err;
	r = cuda_wait(d, timeout_ns);
	cuda_leave(d);
	if (r == CUDA_NOT_READY)
		return -ETIMEDOUT;
	return r == CUDA_OK ? 0 : cuda_fail(d, r, "finish the kernels on its stream");
}

const struct platform_ops platform_cuda = {
	.name = "cuda",
	.count = count,
	.open = dev_open,
	.close = dev_close,
	.info = cuda_info,
	.look = look,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
	.dev_alloc = cuda_dev_alloc,
	.dev_free = cuda_dev_free,
	.dev_write = cuda_dev_write,
	.dev_read = cuda_dev_read,
	.near_alloc = cuda_near_alloc,
	.near_free = cuda_near_free,
	.near_flush = cuda_near_flush,
	.export_mem = cuda_export_mem,
	.owner = cuda_owner,
	.copier_open = cuda_copier_open,
	.notify = notify,
	.set_kick = set_kick,
	.launch = launch,
	.stream = stream,
	.sync = sync_stream,
};
