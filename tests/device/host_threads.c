/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host calls from threads that have done nothing before, each call from another one, on two
 * networks at once with options of their own: no call leans on what its thread or another network
 * has set up. On a GPU that is the CUDA context, which a new thread does not have.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#define WORDS 4

#ifdef __CUDACC__
#define DEVICE "cuda"

static int *shared_words(void)
{
	void *p = NULL;

	return cudaHostAlloc(&p, WORDS * sizeof(int), cudaHostAllocDefault) == cudaSuccess
		       ? (int *)p
		       : NULL;
}
#else
#define DEVICE "cpu"

static int *shared_words(void)
{
	static int words[WORDS];

	return words;
}
#endif

#define MOST 256

struct fill_args {
	gnet_t *net;
	int *result; /* how many sockets there were, and the error that the next one gave */
};

/* Makes sockets until the network has no more, and closes them. */
GNET_KERNEL(fill, struct fill_args, a)
{
	__shared__ int fds[MOST];
	int n, fd = 0;

	for (n = 0; n < MOST; n++) {
		fd = gsocket(a.net, GNET_AF_INET, GNET_SOCK_STREAM, 0);
		if (fd < 0)
			break;
		if (threadIdx.x == 0)
			fds[n] = fd;
		__syncthreads();
	}
	if (threadIdx.x == 0) {
		a.result[0] = n;
		a.result[1] = fd;
	}
	while (n > 0)
		gclose(a.net, fds[--n]);
}

enum call { OPEN, LAUNCH, SYNC, STATS, DRAIN, ABORT, CLOSE, CALLS };

static const char *const call_names[] = { "open",  "launch", "sync", "stats",
					  "drain", "abort",  "close" };

struct network {
	unsigned max_sockets;
	gpunet_t *g;
	int *result;
	enum call call;
	int rc;
	char error[256];
};

static int make_call(struct network *n)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct gpunet_grid grid = { 1, 1, 1, 64, 1, 1, 0 };
	struct gpunet_stats stats;
	struct fill_args args;

	switch (n->call) {
	case OPEN:
		opt.device = DEVICE;
		opt.max_sockets = n->max_sockets;
		return gpunet_open(&n->g, &opt);
	case LAUNCH:
		args.net = gpunet_device(n->g);
		args.result = n->result;
		return GPUNET_LAUNCH(n->g, fill, grid, args);
	case SYNC:
		return gpunet_sync(n->g, 60000);
	case STATS:
		memset(&stats, 0, sizeof(stats));
		stats.size = sizeof(stats);
		return gpunet_get_stats(n->g, &stats);
	case DRAIN:
		return gpunet_drain(n->g, 20000);
	case ABORT:
		gpunet_abort(n->g);
		return 0;
	case CLOSE:
		return gpunet_close(n->g, 10000);
	default:
		return -EINVAL;
	}
}

static void *thread_main(void *arg)
{
	struct network *n = (struct network *)arg;

	n->rc = make_call(n);
	snprintf(n->error, sizeof(n->error), "%s", n->rc ? gpunet_last_error() : "");
	return NULL;
}

/* Both networks' call at once, each in a thread made for it. */
static int both(struct network *n, enum call call)
{
	pthread_t t[2];
	int i, made, failed = 0;

	for (made = 0; made < 2; made++) {
		n[made].call = call;
		if (pthread_create(&t[made], NULL, thread_main, &n[made]))
			break;
	}
	for (i = 0; i < made; i++) {
		pthread_join(t[i], NULL);
		if (!n[i].rc)
			continue;
		fprintf(stderr, "network %d: %s: %d %s\n", i, call_names[call], n[i].rc,
			n[i].error);
		failed = 1;
	}
	return failed || made < 2;
}

static int has_its_own_limit(const struct network *n)
{
	if (n->result[0] == (int)n->max_sockets && n->result[1] == -EMFILE)
		return 1;
	fprintf(stderr, "a network for %u sockets gave %d and then %d\n", n->max_sockets,
		n->result[0], n->result[1]);
	return 0;
}

int main(void)
{
	struct network n[2];
	int call, failed = 0;

#ifdef __CUDACC__
	int gpus = 0;

	if (cudaGetDeviceCount(&gpus) != cudaSuccess || !gpus) {
		fputs("skipped: no GPU\n", stderr);
		return 77;
	}
#endif
	memset(n, 0, sizeof(n));
	n[0].max_sockets = 16;
	n[1].max_sockets = 100;
	n[0].result = shared_words();
	if (!n[0].result || GPUNET_PREPARE(fill))
		return 1;
	n[1].result = n[0].result + 2;
	for (call = OPEN; call < CALLS && !failed; call++) {
		failed = both(n, (enum call)call);
		if (call == SYNC && !failed)
			failed = !has_its_own_limit(&n[0]) || !has_its_own_limit(&n[1]);
	}
	return failed;
}
