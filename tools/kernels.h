/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The tool's kernels behind a table. kernels.c is compiled for the CPU device and, in a build with CUDA, once more by
 * nvcc, so that one program serves machines with and without a GPU. Valid as C11 and as C++.
 */
#ifndef GPUNET_TOOLS_KERNELS_H
#define GPUNET_TOOLS_KERNELS_H

#include <stdint.h>

#include <gpunet/gpunet.h>

#include "perf.h"
#include "url.h"

#define TOOL_ADDRS 8
#define TOOL_BUFFER (UINT64_C(64) << 10) /* cat: bytes of device memory a block */
#define TOOL_DGRAM (UINT64_C(256) << 10) /* the same of echo and cat where datagrams come whole */
#define TOOL_CONNS 4096u                 /* echo: descriptors a block */

/* What a kernel was doing when it ran into an error. */
enum tool_step {
	TOOL_STEP_NONE,
	TOOL_STEP_SOCKET,
	TOOL_STEP_BIND,
	TOOL_STEP_LISTEN,
	TOOL_STEP_ACCEPT,
	TOOL_STEP_CONNECT,
	TOOL_STEP_LOCAL, /* cat: reaching the tool's own socket */
	TOOL_STEP_RECEIVE,
	TOOL_STEP_SEND
};

/* Kernels `listen` and `connect`. In memory that host and device see; the host reads the results when the kernel has ended. */
struct tool_setup {
	struct tool_addr addr[TOOL_ADDRS]; /* tried in order */
	struct tool_addr local;            /* connect: connect here as well */
	int32_t addrs;
	int32_t backlog; /* listen */
	int32_t dgram;   /* sockets for datagrams, which a listener is only bound with */
	/* results */
	int32_t step;  /* enum tool_step of the last error, 0: done */
	int32_t error; /* its negative errno */
	int32_t which; /* the address that worked, or that the error is about */
	int32_t fd;
	int32_t local_fd;
	struct tool_addr
		bound; /* the address it got: the listener, or connect's local socket of datagrams */
};

/* What the blocks of `echo` share, in device memory, zeroed. */
struct tool_echo_state {
	uint64_t open; /* connections of all blocks */
};

/* Kernel `echo`: any number of blocks serve one listener, or one socket of datagrams. */
struct tool_echo {
	struct gnet *net;
	struct gnet_pollfd
		*fds; /* device memory, TOOL_CONNS a block: the listener and its connections */
	struct tool_echo_state *state;
	uint64_t *error; /* seen by the host: errno of the accept that ended a block, 0: none */
	int32_t listener;
	int32_t dgram; /* the listener is a socket of datagrams, and of the above only `error` is used */
	uint8_t *buffers;        /* dgram: device memory, TOOL_DGRAM a block */
	struct tool_addr *peers; /* dgram: device memory, one a block */
};

/* What the two blocks of `shovel` know of each other, in device memory, zeroed. */
struct tool_shovel_state {
	uint64_t ended; /* blocks that have ended */
	uint64_t eof;   /* the peer's end of stream was seen */
	uint64_t over;  /* datagrams: the other block is to end, too */
};

/* Seen by the host: [0] input to peer, [1] peer to output. */
struct tool_shovel_result {
	uint64_t step[2];  /* enum tool_step of the error, 0: none */
	uint64_t error[2]; /* its errno */
};

/*
 * Kernel `shovel`: block 0 moves bytes from `local` to `peer`, block 1 the other way. Of datagrams an empty one at `local` is
 * the end, in both directions; empty ones of the peer are left out.
 */
struct tool_shovel {
	struct gnet *net;
	uint8_t *buffers;
	struct tool_shovel_state *state;
	struct tool_shovel_result *result;
	int32_t local;
	int32_t peer;
	int32_t dgram;
	int32_t pad;
	uint64_t room; /* of a block's buffer */
};

struct tool_kernels {
	const char *kind; /* as gpunet_device_kind says it */
	/* Makes GPU `ordinal` the one that the calls below mean: 0 or -ENODEV. */
	int (*select_device)(int ordinal);
	/* Zeroed memory, NULL if there is none: seen by both sides at one address; the device's own. */
	void *(*shared_alloc)(size_t size);
	void (*shared_free)(void *memory);
	void *(*device_alloc)(size_t size);
	void (*device_free)(void *memory);
	/* The kernels: 0 or a negative errno. */
	int (*prepare)(void);
	int (*listen)(gpunet_t *g, struct tool_setup *setup);
	int (*connect)(gpunet_t *g, struct tool_setup *setup);
	int (*echo)(gpunet_t *g, unsigned blocks, unsigned threads, const struct tool_echo *args);
	int (*shovel)(gpunet_t *g, unsigned threads, const struct tool_shovel *args);
};

struct tool_perf_kernels {
	int (*prepare)(void);
	int (*server)(gpunet_t *g, unsigned blocks, unsigned threads,
		      const struct perf_server *args);
	int (*client)(gpunet_t *g, unsigned threads, const struct perf_client *args);
};

#ifdef __cplusplus
extern "C" {
#endif

extern const struct tool_kernels tool_kernels_cpu;
extern const struct tool_perf_kernels tool_perf_kernels_cpu;
#ifdef GPUNET_WITH_CUDA
extern const struct tool_kernels tool_kernels_cuda;
extern const struct tool_perf_kernels tool_perf_kernels_cuda;
#endif

#ifdef __cplusplus
}
#endif

#endif
