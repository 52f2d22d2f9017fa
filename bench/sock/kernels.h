/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of bench-sock behind a table: kernels.c is compiled for the CPU device and, with CUDA, once more by nvcc.
 * Valid as C11 and as C++.
 */
#ifndef GPUNET_BENCH_KERNELS_H
#define GPUNET_BENCH_KERNELS_H

#include <stdint.h>

#include <gpunet/gpunet.h>

#define BENCH_BUF (UINT64_C(1) << 20) /* bytes of a block's buffer */
#define BENCH_PAD UINT64_C(256)       /* beyond it, for buffers that begin at any byte */
#define BENCH_MAIL_MAX 128u           /* bytes of a message of the hand-written kernel */
#define BENCH_GO_END (~UINT64_C(0))   /* bench_shared.go: the kernel may end */

enum bench_mode {
	BENCH_ECHO = 1,
	BENCH_SINK,   /* receives until the end, then sends one byte */
	BENCH_SOURCE, /* sends `total` bytes */
	BENCH_ACCEPT  /* closes at once */
};

/* What a server does with the next connection: written before the client connects, read after the accept. */
struct bench_order {
	uint64_t mode;
	uint64_t chunk;  /* bytes a call at most, up to BENCH_BUF + BENCH_PAD / 2 */
	uint64_t offset; /* where in its buffer the server begins, up to BENCH_PAD / 2 */
	uint64_t total;  /* BENCH_SOURCE */
};

/* Memory that host and kernels see. */
struct bench_shared {
	struct bench_order order;
	uint64_t error; /* errno with which a kernel failed, 0: none */
	uint64_t held;  /* connections that holders have */
	uint64_t go;    /* kernel `late`: messages that it may send by now */
	uint64_t ready; /* waiters that wait */
};

/* Kernel `listen`, of one block, makes one listener; `addr` becomes the address that it got. */
struct bench_listen {
	uint8_t addr[128];
	uint32_t len;
	int32_t fd; /* or a negative errno */
};

/* Kernel `serve`: blocks of three kinds, in this order. */
struct bench_serve {
	struct gnet *net;
	struct bench_shared *shared;
	uint8_t *bufs;    /* device memory, BENCH_BUF + BENCH_PAD for each of `servers` */
	uint32_t servers; /* serve connections of `listener`, one at a time */
	uint32_t holders; /* accept connections of `second` and leave them alone */
	uint32_t
		waiters; /* a third each waits in gaccept on `silent`, in grecv, and in gpoll on connections of `second` */
	int32_t listener, second, silent;
};

/* Kernel `late`: sends 64 bytes to the first connection of `listener` each time that shared->go grows. */
struct bench_late {
	struct gnet *net;
	struct bench_shared *shared;
	uint8_t *buf;
	int32_t listener;
};

/* What a program without gpunet would have: a message each way in pinned memory, a flag beside each. */
struct bench_mail {
	uint64_t asked; /* messages that the CPU has put into `in`; BENCH_GO_END: end */
	uint64_t pad0[15];
	uint64_t answered; /* messages that the kernel has put into `out` */
	uint64_t pad1[15];
	uint64_t in[BENCH_MAIL_MAX / 8], out[BENCH_MAIL_MAX / 8];
	uint64_t bytes; /* of `in` */
};

struct bench_kernels {
	const char *kind; /* as gpunet_device_kind says it */
	/* Zeroed memory, NULL if there is none: seen by both sides at one address; the device's own. */
	void *(*shared_alloc)(size_t size);
	void *(*device_alloc)(size_t size);
	/* Once no kernel uses it; NULL is nothing. */
	void (*shared_free)(void *memory);
	void (*device_free)(void *memory);
	/* 0 or a negative errno. */
	int (*prepare)(void);
	int (*listen)(gpunet_t *g, struct bench_listen *l);
	int (*serve)(gpunet_t *g, unsigned threads, const struct bench_serve *s);
	int (*late)(gpunet_t *g, unsigned threads, const struct bench_late *l);
	/* A kernel of one warp that answers the mail, on a stream of its own. NULL on the CPU device. */
	int (*mail_start)(struct bench_mail *mail);
	int (*mail_wait)(void);
	/* Copies to the GPU, launches, copies back, waits. `in` and `out` are shared memory. NULL on the CPU device. */
	int (*copy_echo)(const void *in, void *out, size_t size);
};

#ifdef __cplusplus
extern "C" {
#endif

extern const struct bench_kernels bench_kernels_cpu;
#ifdef GPUNET_WITH_CUDA
extern const struct bench_kernels bench_kernels_cuda;
#endif

#ifdef __cplusplus
}
#endif

#endif
