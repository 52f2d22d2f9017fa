/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network handle that kernels hold and the state that kernels share among themselves. It lies in device memory:
 * the CPU writes it once at open and reads it only when no kernel is resident.
 */
#ifndef GPUNET_DEV_ABI_NET_H
#define GPUNET_DEV_ABI_NET_H

#include <gpunet/dev/abi/bus.h>
#include <gpunet/dev/abi/version.h>

#define GNET_MAGIC 0x74656e67u /* "gnet" */

/* In gnet_sock.tx_seg. */
#define GNET_SOCK_SEG 0x7fffffffu
#define GNET_SOCK_ONCE 0x80000000u
/* gnet_sock.rx_ring, one word so that an old one is as true as a new one: the bytes before `tail` that are not consumed lie there. */
#define GNET_RX_RING(segment, tail) \
	((uint64_t)1 << 63 | (uint64_t)(segment) << 32 | ((uint64_t)(tail)&0xffffffff))
#define GNET_RX_RING_SEG(v) ((uint64_t)(v) >> 32 & 0x7fffffff)

/*
 * A socket as kernels see it. Three words say who uses it, each with the generation, so that one compare-and-swap checks the
 * descriptor, the state and whether the side is free, and takes it: one for each direction (held by one call at a time, and
 * followed by the position of which it carries the low half: docs/bus.md, K2), one for calls that need neither.
 */
struct gnet_sock {
	uint64_t life;     /* generation 32 | GNET_L_CLOSING | users 16; generation 0: no socket */
	uint64_t queue;    /* submission queue of the proxy thread that owns it */
	uint64_t err_seen; /* number of the last error in txw that a call was told of */
	uint64_t domain;   /* of a socket of datagrams */
	/* Receive side, under GNET_L_HELD of rx. */
	uint64_t
		rx; /* rx_head 32 | GNET_L_HELD, _CLOSING, _CONNECTED, _LISTENING | generation 16 */
	uint64_t rx_head; /* consumed: bytes, or connections of a listener */
	uint64_t
		rx_ring; /* GNET_RX_RING(segment, tail) of the last bytes, or 0: they did not come by the ring */
	uint64_t unused; /* the struct is one line of the L2 */
	/* Send side, under GNET_L_HELD of tx. */
	uint64_t tx; /* tx_tail 32 | GNET_L_HELD, _CLOSING, _CONNECTED, _SHUT_WR | generation 16 */
	uint64_t tx_tail; /* handed to the proxy */
	uint64_t tx_head; /* known to be free; no more than the truth */
	uint64_t
		tx_seg; /* bits 0-30: send segment + 1, 0: none; bit 31: for one call; bits 32-63: sends since txw was looked at */
	/* SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds, 0: none. Set and read without a side. */
	uint64_t rcv_limit;
	uint64_t snd_limit;
	uint64_t rx_lent; /* under rx: bytes lent by grecv_borrow, GNET__LENT_CELLS */
	uint64_t tx_lent; /* under tx: bytes reserved by gsend_reserve */
};

#define GNET_L_USERS 0xffffu
#define GNET_L_HELD 0x10000u
#define GNET_L_CLOSING 0x20000u
#define GNET_L_CONNECTED 0x40000u
#define GNET_L_LISTENING 0x80000u
#define GNET_L_SHUT_WR 0x100000u
#define GNET_L_FAILED 0x200000u   /* of tx: a call was told of the error that ended the stream */
#define GNET_L_NONBLOCK 0x400000u /* of rx and tx */
#define GNET_L_DGRAM 0x20000000u  /* of rx and tx: records, not a stream */
#define GNET_L_WRITTEN \
	0x4000000u /* of tx: who reserved the room behind the position has handed over nothing of it */
#define GNET_L_NEAR 0x40000000u   /* of tx: the send segment is near (T7) */
#define GNET_L_BORROWED 0x800000u /* of rx and tx: held by a borrower, not by a call */
#define GNET_L_LENT 0x4000000u    /* of life: one borrow; at most two, one a side */
#define GNET_L_LENT_MASK 0xc000000u
#define GNET_L_ORPHAN 0x10000000u /* of life: gclose has left the rest to the last borrower */
/* Of life, for gpunet/compat/gpunet2014.h. */
#define GNET_L_2014_NONBLOCK 0x1000000u /* a call that would wait is -EAGAIN */
#define GNET_L_2014_END 0x2000000u      /* a call was told of the stream's end */
#define GNET_L_GEN_SHIFT 32
/* Of rx and tx: the generation; and the low half of the side's position, while no call holds it. */
#define GNET_L_SIDE_GEN 0xffffu
#define GNET_L_AT_SHIFT 32

struct gnet_sq_dev {
	uint64_t tail; /* next position to reserve */
	uint64_t head; /* cached copy of the proxy's position */
	uint64_t made; /* of queue 0: sockets asked for, of all queues in turn */
	uint64_t pad[13];
};

/* Of gnet.hints. */
#define GNET_HINT_ONE ((uint64_t)1 << 32)
#define GNET_HINTS(w) ((uint64_t)(w) >> 32)
#define GNET_HINT_POLLS(w) ((uint32_t)(w))

/* Who looks at a news ring, and when. */
struct gnet_nap {
	uint64_t due; /* gnet_time_ns from which on the next look may be taken */
	uint64_t at;  /* next hint */
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
	struct gnet_hops *hops;       /* [max_socks], or NULL: no stamps */
	struct gnet_sqe *sq;          /* [n_queues << sq_log2] */
	struct gnet_sq_head *sq_head; /* [n_queues] */
	struct gnet_call *calls;      /* [n_calls] */
	struct gnet_news *news;       /* [n_queues] */
	uint8_t *slab;                /* segments of 2^seg_log2 bytes */
	struct gnet_told *told;       /* [GNET_TOLD] */
	struct gnet_gave_up *gave_up; /* [GNET_GAVE_UPS] */
	/* device memory */
	uint8_t *near_slab;      /* segments that devices of RDMA write and read; NULL: none */
	struct gnet_sock *socks; /* [max_socks] */
	struct gnet_sq_dev *sqd; /* [n_queues] */
	struct gnet_nap *naps;   /* [n_queues] */
	uint64_t *hints;         /* [max_socks] hints given 32 | gpolls that ask 32 */
	uint64_t *call_map;      /* [n_calls / 64] bit set: taken */
	uint64_t *call_tag;      /* [n_calls] tag of the last use */
	uint64_t *gave_up_next;  /* number of the next record in gave_up */
	void *cpu_dev;           /* CPU device: whom to kick; NULL on a GPU */
	uint64_t id;             /* another network never had this one */
};

typedef struct gnet gnet_t;

#endif
