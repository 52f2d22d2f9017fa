/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpunet, host side: opens a network for kernels, launches kernels on the CPU device, ends their waits, closes.
 *
 * Threads: every call may come from any thread, at the same time on different networks and, except gpunet_close, on the
 * same one. Calls do not need a CUDA context: the library uses the caller's current one, else the device's primary
 * context, and leaves the caller's as it was. The library's threads run on those processors of the GPU's NUMA node that the
 * thread which calls gpunet_open may use, and that thread's affinity stays as it was. A process that was forked while a
 * network was open has no part in it and must not make calls on it; it holds copies of its descriptors until it ends
 * or calls exec.
 *
 * Errors: 0 or a count, or a negative errno. gpunet_last_error() has the calling thread's last error in words: the
 * object, the cause and the remedy. NULL in place of a network is -EINVAL; gpunet_abort and gpunet_close then do nothing,
 * gpunet_device and gpunet_stream are NULL, gpunet_device_kind is "". The library never ends the process and prints only to
 * standard error, what GPUNET_LOG (error, warn, note, debug; warn unless set) lets through.
 */
#ifndef GPUNET_GPUNET_H
#define GPUNET_GPUNET_H

#include <stddef.h>
#include <stdint.h>

#include <gpunet/api.h>
#include <gpunet/dev/abi/version.h>
#include <gpunet/version.h>

GPUNET_BEGIN_DECLS

typedef struct gpunet gpunet_t; /* a network, host side */
struct gnet; /* the same network as kernels see it: gnet_t of <gpunet/dev/socket.h> */

/*
 * Options of gpunet_open. Initialise with GPUNET_OPTIONS_INIT: it sets the size, and every other member to "default"
 * (0 or NULL). A default is taken from the environment variable named, else it is the value in brackets. docs/options.md
 * has the same table; a value out of range is -EINVAL and the error names the option.
 */
struct gpunet_options {
	/* sizeof(struct gpunet_options) */
	size_t size;
	/* GPUNET_DEVICE: "auto", "cpu", "cuda", "cuda:N" ["auto": a GPU if there is one] */
	const char *device;
	/* GPUNET_PROXY_THREADS: CPU threads that serve the kernels, 1-64 [1] */
	unsigned proxy_threads;
	/*
	 * GPUNET_SPIN_US: microseconds without work before a proxy thread sleeps; -1: it never
	 * sleeps [CPU device 1, GPU 200]
	 */
	int spin_us;
	/* GPUNET_MAX_SOCKETS: open at once, 16-1048575 [16384] */
	unsigned max_sockets;
	/* GPUNET_SLAB_BYTES: pinned memory of all data rings, 64 KiB-64 GiB [256 MiB] */
	size_t slab_bytes;
	/* GPUNET_SEGMENT_BYTES: one ring, a power of two, 16 KiB-8 MiB [1 MiB] */
	size_t segment_bytes;
	/*
	 * GPUNET_QUEUE_ENTRIES: submission queue a proxy thread, power of two, 64-65536 [1024]
	 */
	unsigned queue_entries;
	/* GPUNET_CALLS: commands that may wait for an answer at once, 64-65536 [256] */
	unsigned calls;
	/*
	 * GPUNET_LINGER_MS: after gclose, how long the proxy waits for the peer to take more
	 * [10000]
	 */
	unsigned linger_ms;
	/* GPUNET_CPU_BLOCKS: CPU device: resident blocks, 1-4096 [64] */
	unsigned cpu_blocks;
	/* GPUNET_CPU_SEED: CPU device: order of switches; 0: fixed [0] */
	uint64_t cpu_seed;
	/* GPUNET_SENTINEL_US: GPU: how often sleeping threads' queues are looked at [1000] */
	unsigned sentinel_us;
	/*
	 * GPUNET_VERBS: who serves rdma:// sockets: "auto", "ibverbs" (hardware, rdma_rxe), "rnic" (software in this
	 * process) ["auto": ibverbs if a port is active]
	 */
	const char *verbs;
	/*
	 * GPUNET_ENGINE: how the proxy moves small messages of TCP and UNIX sockets: "auto", "epoll" (a system call
	 * each), "io_uring" (several by one; epoll tells when) ["auto": io_uring if the system lets it]
	 */
	const char *engine;
	/*
	 * GPUNET_RDMA_MEMORY: where the rings of rdma:// sockets are: "auto" (the GPU's memory if the NIC can be given it,
	 * for which as many bytes as slab_bytes are reserved there where the machine has an RDMA device), "host" ["auto"]
	 */
	const char *rdma_memory;
	/*
	 * GPUNET_HOPS: 1: stamps each message's way between network and kernel, for gpunet_get_hops and gpunet stat; costs each
	 * message some hundred nanoseconds [0]
	 */
	unsigned hops;
};

#define GPUNET_OPTIONS_INIT                                                                   \
	{                                                                                     \
		sizeof(struct gpunet_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/*
 * Opens a network on a device: pins its memory and starts its proxy threads. No kernel may be resident on that GPU, for
 * pinning waits for it. `opt` may be NULL. On success *out is the network; on failure *out is unchanged and nothing is
 * left behind.
 * -EINVAL an option is out of range or unknown (a larger size than this library knows, too); -ENODEV there is no such
 * device; -ENOMEM memory or pinned memory is short; -EMFILE, -ENFILE, -EAGAIN descriptors or threads are; -EPROTO the
 * program was compiled with headers of another version than the library's, which the macro below passes on.
 */
int gpunet_open(gpunet_t **out, const struct gpunet_options *opt);

/* Opens for a program that was compiled with headers of this GNET_ABI_VERSION. */
int gpunet_open_abi(unsigned abi, gpunet_t **out, const struct gpunet_options *opt);
#define gpunet_open(...) gpunet_open_abi(GNET_ABI_VERSION, __VA_ARGS__)

/*
 * Ends the network. Kernels' waits end with -ECANCELED; then waits up to `timeout_ms` for the kernels of this network to
 * end, goes on sending what closed sockets still have to send (at most linger_ms, and timeout_ms; RDMA's peers are told of the
 * end and answered meanwhile), and frees everything.
 * -EBUSY: a kernel is still resident; nothing is freed, call again. Not at the same time as any other call on `g`.
 */
int gpunet_close(gpunet_t *g, unsigned timeout_ms);

/* The handle to pass to kernels. Valid until gpunet_close succeeds. */
struct gnet *gpunet_device(gpunet_t *g);

/*
 * Ends every wait of every kernel on this network, now and later, with -ECANCELED; calls that do not wait end with it as well, on a GPU one
 * in 64 or in some hundred of them. Does not wait. Async-signal-safe.
 */
void gpunet_abort(gpunet_t *g);

/*
 * Waits until all bytes that kernels have handed over are in the hands of the transport and closed sockets are gone: 0 (also
 * where only peers of closed RDMA sockets have not gone), -ETIMEDOUT after `timeout_ms`, or -EIO: the proxy has failed and the
 * rest is lost.
 */
int gpunet_drain(gpunet_t *g, unsigned timeout_ms);

/*
 * Waits until the kernels launched on this network with GPUNET_LAUNCH have ended: 0, -ETIMEDOUT, or a kernel's error and a reason
 * (GPU: -EIO; CPU device: -EDEADLK, its threads were stuck or a part of a block made a call, or -EINVAL). Every caller is told of it, on the CPU device
 * until another kernel is launched. A kernel that fails on the CPU device ends as soon as its other blocks do: their waits in calls, now and later, are
 * -ECANCELED, and who sleeps in __nanosleep goes no further. Another kernel can use the
 * network unless a thread of the block that failed was in a call.
 */
int gpunet_sync(gpunet_t *g, unsigned timeout_ms);

/* Geometry of a launch. Members left 0 count as 1 (shared as 0). */
struct gpunet_grid {
	unsigned grid_x, grid_y, grid_z;
	unsigned block_x, block_y, block_z;
	size_t shared; /* bytes of dynamic shared memory */
};

/*
 * CPU device: queues a kernel and returns; use GPUNET_LAUNCH. `args` is copied. -EOPNOTSUPP on a GPU's network; -EINVAL for
 * a geometry beyond 1,024 threads a block; -ENOMEM, -EAGAIN when threads cannot be had.
 */
int gpunet_launch_cpu(gpunet_t *g, void (*entry)(void *args), const struct gpunet_grid *grid,
		      const void *args, size_t args_size);

/* GPU: the stream (a CUstream, that is a cudaStream_t) on which GPUNET_LAUNCH runs kernels; NULL on the CPU device. */
void *gpunet_stream(gpunet_t *g);

/* "cpu" or "cuda". */
const char *gpunet_device_kind(gpunet_t *g);

struct gpunet_stats {
	size_t size;             /* set by the caller: sizeof(struct gpunet_stats) */
	uint64_t sockets;        /* open now */
	uint64_t accepted;       /* connections taken over by the proxy, in all */
	uint64_t bytes_received; /* from the network */
	uint64_t bytes_sent;     /* to the network */
	uint64_t commands;       /* entries of the submission queues */
	uint64_t sleeps;         /* times that a proxy thread went to sleep */
	uint64_t wakeups;        /* times that a kernel or the sentinel woke one */
	uint64_t slab_segments;  /* in all */
	uint64_t slab_segments_used;
	uint64_t pinned_bytes; /* host memory shared with the device */
};

/* Fills as many members as s->size has room for. -EINVAL: size is less than the first two members. */
int gpunet_get_stats(gpunet_t *g, struct gpunet_stats *s);

/*
 * A kernel's wait that was a long one and ended with an errno: its time limit (-ETIMEDOUT), an abort (-ECANCELED), or the
 * proxy's death (-EIO). A wait is long from about half a millisecond on (CPU device: from a quarter on).
 */
struct gpunet_report {
	uint64_t number; /* from 1 on, in the order in which they were written */
	unsigned block;  /* of the kernel, in its grid */
	const char *
		call; /* "grecv", "gsend", "gaccept", "gconnect", "gclose", "gpoll", or what else it waited for */
	int fd;             /* as the kernel knows the socket; gpoll: the first of them */
	int error;          /* a negative errno */
	uint64_t waited_ns; /* by the device's clock */
	uint64_t unread;    /* bytes received that no kernel has read */
	uint64_t unsent;    /* bytes that kernels have sent and the transport has not taken */
	const char *
		text; /* all of it in words, with addresses, state and the proxy's state; valid during the call of fn */
};

/*
 * Calls `fn` for each report that is kept, the last 32, oldest first; stops and returns its value if it is not 0. They are also
 * logged, once each and at most ten a second: as a warning if the proxy died, else as a note (GPUNET_LOG=note), since limits and
 * aborts are what a program asks for. `gpunet stat` shows them.
 */
int gpunet_reports(gpunet_t *g, int (*fn)(const struct gpunet_report *r, void *arg), void *arg);

/* The steps of a message's way, in the order in which a request and its answer take them. */
enum gpunet_hop {
	GPUNET_HOP_READ, /* the proxy's system call that received it, perhaps with those of other sockets */
	GPUNET_HOP_LINE,      /* from its return until the line is written */
	GPUNET_HOP_TO_KERNEL, /* that, and until the kernel took it */
	GPUNET_HOP_KERNEL,    /* until the kernel stored what it sent next */
	GPUNET_HOP_TO_PROXY,  /* until the proxy saw that */
	GPUNET_HOP_TO_CALL,   /* until the system call that sent it */
	GPUNET_HOP_WRITE,     /* that call */
	GPUNET_HOP_COUNT
};

struct gpunet_hop_time {
	uint64_t count;   /* messages */
	int64_t p50, p99; /* nanoseconds */
};

/*
 * Of the messages of the last two seconds with messages, at most 512 a proxy thread. Messages are met one at a time on a socket: of
 * one that came while another was unread, or was sent while another was unsent, no stamps are kept.
 *
 * A GPU's clock is not the CPU's. How far they are apart is found from the messages: neither direction across the bus takes
 * less than no time, which bounds the difference from both sides; its middle is taken. So TO_KERNEL + TO_PROXY is right, and
 * either is wrong by at most clock_error_ns. 0 on the CPU device. clock_step_ns is the step in which the kernel's clock was
 * seen to go on.
 */
struct gpunet_hops {
	size_t size; /* set by the caller: sizeof(struct gpunet_hops) */
	struct gpunet_hop_time hop[GPUNET_HOP_COUNT];
	int64_t clock_error_ns;
	uint64_t clock_step_ns;
};

/* -EOPNOTSUPP: option hops is off; -EINVAL: h->size is another; -ENOMEM. */
int gpunet_get_hops(gpunet_t *g, struct gpunet_hops *h);
/* In a few words, such as "kernel"; "" for no hop. */
const char *gpunet_hop_name(unsigned hop);

/* This thread's last error in words, "" if none. Valid until the thread's next failing call. */
const char *gpunet_last_error(void);

/* ---- what this machine has ----------------------------------------------------------------------------------------- */

enum gpunet_status { GPUNET_OK, GPUNET_MISSING, GPUNET_LIMITED, GPUNET_NOT_BUILT };

/* One thing that a user may need. Strings are valid until the next call of the same thread. */
struct gpunet_check {
	const char *name; /* "cpu device", "cuda driver", "transport tcp", ... */
	enum gpunet_status status;
	const char *detail; /* what was found */
	const char *remedy; /* what to do, "" if nothing */
};

/* Calls `fn` for each check, in a fixed order; stops and returns its value if it is not 0. Opens no network. */
int gpunet_doctor(int (*fn)(const struct gpunet_check *c, void *arg), void *arg);

GPUNET_END_DECLS

/* ---- launching, the same on both devices ---------------------------------------------------------------------------- */

/*
 * GPUNET_LAUNCH(g, kernel, grid, args): launches `kernel` (defined with GNET_KERNEL) with a struct gpunet_grid and one struct by
 * value; returns 0 or a negative errno. Where this header is compiled by nvcc the kernel goes to the GPU (`g` must be a
 * GPU's network, else -EOPNOTSUPP), elsewhere to the CPU device.
 * GPUNET_PREPARE(kernel): loads the kernel's code; 0, or -EIO on a GPU. There call it for each kernel before the first one is resident: a
 * first launch beside a resident kernel may wait for that kernel to end.
 */
#ifdef __CUDACC__
#include <cuda_runtime.h>
#include <errno.h>

static inline int gpunet_cuda_prepare(const void *kernel)
{
	struct cudaFuncAttributes a;

	return cudaFuncGetAttributes(&a, kernel) == cudaSuccess ? 0 : -EIO;
}

static inline int gpunet_cuda_launch(gpunet_t *g, const void *kernel, const struct gpunet_grid *n,
				     void *args)
{
	dim3 grid(n->grid_x ? n->grid_x : 1, n->grid_y ? n->grid_y : 1, n->grid_z ? n->grid_z : 1);
	dim3 block(n->block_x ? n->block_x : 1, n->block_y ? n->block_y : 1,
		   n->block_z ? n->block_z : 1);
	void *argv[1] = { args };

	if (!gpunet_stream(g))
		return -EOPNOTSUPP;
	return cudaLaunchKernel(kernel, grid, block, argv, n->shared,
				(cudaStream_t)gpunet_stream(g)) == cudaSuccess
		       ? 0
		       : -EIO;
}

#define GPUNET_PREPARE(kernel) gpunet_cuda_prepare((const void *)(kernel))
#define GPUNET_LAUNCH(g, kernel, grid, args) \
	gpunet_cuda_launch(g, (const void *)(kernel), &(grid), &(args))
#else
static inline int gpunet_cpu_prepare(void (*entry)(void *args))
{
	(void)entry;
	return 0;
}

#define GPUNET_PREPARE(kernel) gpunet_cpu_prepare(kernel##_entry)
#define GPUNET_LAUNCH(g, kernel, grid, args) \
	gpunet_launch_cpu(g, kernel##_entry, &(grid), &(args), sizeof(args))
#endif

#endif
