/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network handle that kernels hold and the state that kernels share among themselves. It lies in device memory:
 * the CPU writes it once at open and reads it only when no kernel is resident.
 */
#ifndef GPUNET_DEV_ABI_NET_H
#define GPUNET_DEV_ABI_NET_H

#include <gpunet/dev/abi/bus.h>

#define GNET_MAGIC 0x74656e67u /* "gnet" */
/* Changes whenever a layout or a rule of dev/abi/ changes. */
#define GNET_ABI_VERSION 1u

/* A socket as kernels see it. `life` is all that several blocks touch at once: one atomic enters and takes a direction. */
struct gnet_sock {
	uint64_t life; /* generation 32 | GNET_L_* | users 16; generation 0: no socket */
	uint64_t pad0[3];
	/* Receive side, under GNET_L_RX. */
	uint64_t rx_head; /* consumed: bytes, or connections of a listener */
	uint64_t rx_tail; /* known to have arrived in the ring; no more than the truth */
	uint64_t rx_seg;  /* segment in which the bytes up to rx_tail lie */
	uint64_t pad1;
	/* Send side, under GNET_L_TX. */
	uint64_t tx_tail;  /* handed to the proxy */
	uint64_t tx_head;  /* known to be free; no more than the truth */
	uint64_t tx_seg;   /* send segment + 1, 0: none */
	uint64_t tx_looks; /* sends since txw was looked at */
	uint64_t pad2[4];
};

#define GNET_L_USERS 0xffffu
#define GNET_L_RX 0x10000u /* a call holds the receive side (or accept) */
#define GNET_L_TX 0x20000u /* a call holds the send side */
#define GNET_L_CLOSING 0x40000u
#define GNET_L_CONNECTED 0x80000u
#define GNET_L_LISTENING 0x100000u
#define GNET_L_SHUT_WR 0x200000u
#define GNET_L_ERR_SEEN 0x400000u /* the socket's error was reported once, as POSIX has it */
#define GNET_L_GEN_SHIFT 32

struct gnet_sq_dev {
	uint64_t tail; /* next position to reserve */
	uint64_t head; /* cached copy of the proxy's position */
	uint64_t pad[14];
};

struct gnet {
	uint32_t magic;
	uint32_t version;
	uint32_t size; /* of this struct */
	uint32_t max_socks;
	uint32_t n_queues;
	uint32_t sq_log2;
	uint32_t n_calls; /* multiple of 64 */
	uint32_t seg_log2;
	/* host memory, at the device's addresses */
	struct gnet_ctl *ctl;
	struct gnet_sock_bus *bus;    /* [max_socks] */
	struct gnet_sqe *sq;          /* [n_queues << sq_log2] */
	struct gnet_sq_head *sq_head; /* [n_queues] */
	struct gnet_call *calls;      /* [n_calls] */
	uint8_t *slab;                /* segments of 2^seg_log2 bytes */
	/* device memory */
	struct gnet_sock *socks; /* [max_socks] */
	struct gnet_sq_dev *sqd; /* [n_queues] */
	uint64_t *call_map;      /* [n_calls / 64] bit set: taken */
	uint64_t *call_tag;      /* [n_calls] tag of the last use */
	void *cpu_dev;           /* CPU device: whom to kick; NULL on a GPU */
};

typedef struct gnet gnet_t;

#endif
