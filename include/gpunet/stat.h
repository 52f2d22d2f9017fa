/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process with networks shows of its sockets to other processes of its user: `gpunet stat` reads it.
 *
 * Each network has a page, a memory file named GPUNET_STAT_NAME among the process's descriptors (/proc/PID/fd): the header
 * below and a record a socket. It ends with the process, so nothing is left to clean up, and who may read it is who may look
 * into /proc/PID/fd. A reader maps it and changes nothing. Positions and waits are in the memory that kernels and the proxy
 * share (struct gnet_sock_bus of <gpunet/dev/abi/bus.h>), which is the descriptor `bus_fd` of the same process.
 *
 * Words of 8 bytes are written whole, by one thread at a time. A record's names belong together while `seq` is even and the same
 * before and after they are read.
 */
#ifndef GPUNET_STAT_H
#define GPUNET_STAT_H

#include <stddef.h>
#include <stdint.h>

#include <gpunet/api.h>

GPUNET_BEGIN_DECLS

#define GPUNET_STAT_NAME "gpunet-stat"
#define GPUNET_STAT_BUS_NAME "gpunet-bus"
#define GPUNET_STAT_MAGIC UINT64_C(0x3154415354455047) /* "GPETSTA1" */
#define GPUNET_STAT_NAME_MAX 112
/* Waits that gave up: the last so many are kept. */
#define GPUNET_STAT_REPORTS 32
#define GPUNET_STAT_TEXT_MAX 488

enum gpunet_stat_state {
	GPUNET_STAT_FREE, /* no socket */
	GPUNET_STAT_NEW,
	GPUNET_STAT_CONNECTING,
	GPUNET_STAT_CONNECTED,
	GPUNET_STAT_LISTENING,
	GPUNET_STAT_DATAGRAMS,
	GPUNET_STAT_CLOSED /* by the kernel; bytes may still be on their way */
};

/* A wait that gave up (struct gpunet_report of <gpunet/gpunet.h>), number `number`, at place (number - 1) % GPUNET_STAT_REPORTS. */
struct gpunet_stat_report {
	uint64_t seq;    /* as a record's */
	uint64_t number; /* 0: none */
	uint64_t fd, block;
	uint64_t call; /* enum gnet_wait_call of <gpunet/dev/abi/bus.h> */
	uint64_t error;
	uint64_t waited_ns, unread, unsent;
	char text[GPUNET_STAT_TEXT_MAX];
};

/*
 * With option hops: what one message met, in nanoseconds of CLOCK_MONOTONIC or, of the kernel, the low 48 bits of gnet_time_ns.
 * Written by one thread; `number` is 0 while it changes.
 */
#define GPUNET_STAT_HOPS 512
#define GPUNET_STAT_HOP_RECEIVED \
	1 /* at: call entered, call left, line about to be written, seen by the kernel */
#define GPUNET_STAT_HOP_SENT \
	2 /* at: stored by the kernel, seen by the proxy, call entered, call left, last seen by the kernel (0: not known) */

struct gpunet_stat_hop {
	uint64_t number;  /* from 1 on */
	uint64_t kind_fd; /* kind 32 | 0 32: whose message it was is not kept */
	uint64_t at[6];
};

/* One a proxy thread; number n is at place n % GPUNET_STAT_HOPS. */
struct gpunet_stat_hops {
	uint64_t count; /* so far */
	uint64_t pad[7];
	struct gpunet_stat_hop hop[GPUNET_STAT_HOPS];
};

struct gpunet_stat_page {
	uint64_t magic; /* 0: the network is being opened, or closed */
	uint32_t size;  /* of this struct: the records come behind it */
	uint32_t record_size;
	uint32_t sockets; /* records */
	uint32_t threads; /* proxy threads; socket i belongs to thread i % threads */
	int32_t pid;
	int32_t bus_fd;    /* -1: not to be had */
	uint64_t bus_at;   /* where struct gnet_sock_bus of socket 0 lies in that file */
	uint32_t abi;      /* GNET_ABI_VERSION */
	uint32_t seg_log2; /* a ring has 2^seg_log2 bytes */
	char device[32];   /* "cpu", "cuda:0" */
	uint64_t
		told_at; /* where struct gnet_told number 0 lies in the same file as the sockets' memory */
	uint32_t told;    /* how many of them */
	uint32_t reports; /* GPUNET_STAT_REPORTS */
	struct gpunet_stat_report report[GPUNET_STAT_REPORTS];
	uint64_t
		hops_at; /* where struct gpunet_stat_hops of thread 0 lies in this file; 0: option hops is off */
	uint64_t same_clock; /* kernels have the CPU's clock */
};

struct gpunet_stat_socket {
	uint64_t seq;
	uint64_t fd;                  /* 0: none */
	uint64_t state;               /* enum gpunet_stat_state */
	uint64_t accepted;            /* a listener's connections so far */
	char transport[8];            /* "tcp", "unix", "udp", "rdma" */
	uint32_t local_len, peer_len; /* 0: none */
	/* An accepted connection has its listener's local name at first, of all addresses perhaps: for 2 ms, or a pass if that is longer. */
	uint8_t local[GPUNET_STAT_NAME_MAX];
	uint8_t peer[GPUNET_STAT_NAME_MAX];
};

/* ---- the software RNIC ------------------------------------------------------------------------------------------------ */

/*
 * Provider rnic has such a file for each address that it serves, GPUNET_STAT_RNIC_NAME: this struct, then records of its queue
 * pairs. `gpunet rnic` reads it. The process brings it up to date at most 20 times a second, and once more when it has become
 * quiet; all of it belongs together while `seq` is even and the same before and after it is read.
 */
#define GPUNET_STAT_RNIC_NAME "gpunet-rnic"
#define GPUNET_STAT_RNIC_MAGIC UINT64_C(0x3143494e52504547) /* "GEPRNIC1" */
#define GPUNET_STAT_RNIC_COUNTERS 40 /* room; those that are not there are 0 */

/* The counters' names, in order; each only grows. */
#define GPUNET_STAT_RNIC_NAMES                                                                  \
	"tx_packets", "tx_bytes", "rx_packets", "rx_bytes", "rx_malformed", "rx_no_qp",         \
		"rx_wrong_peer", "rx_wrong_qkey", "rx_duplicate", "rx_out_of_order",            \
		"rx_stale_response", "rx_dropped_no_wqe", "rx_access", "rx_invalid", "rx_cnp",  \
		"tx_cnp", "rx_marked", "paced", "tx_acks", "tx_naks", "tx_rnr_naks", "rx_naks", \
		"rx_rnr_naks", "implied_naks", "retransmits", "timeouts", "retry_exceeded",     \
		"rnr_exceeded", "turns", "held", "held_lost", "cq_full", "mtu_blocked", "probes"

struct gpunet_stat_rnic {
	uint64_t magic; /* 0: being opened, or closed */
	uint32_t size;  /* of this struct: the records come behind it */
	uint32_t record_size;
	uint32_t records; /* room */
	int32_t pid;
	char device[64]; /* "rnic:127.0.0.1" */
	char interface[16];
	uint32_t mtu;  /* bytes of payload in a packet at most */
	uint32_t slot; /* top byte of its queue pairs' numbers */
	uint64_t seq;
	uint64_t qps; /* in all; the first of them have records */
	uint64_t counter[GPUNET_STAT_RNIC_COUNTERS];
};

enum gpunet_stat_qp_state {
	GPUNET_STAT_QP_RESET,
	GPUNET_STAT_QP_INIT,
	GPUNET_STAT_QP_RTR,
	GPUNET_STAT_QP_RTS,
	GPUNET_STAT_QP_SQD,
	GPUNET_STAT_QP_SQE,
	GPUNET_STAT_QP_ERR
};

struct gpunet_stat_rnic_qp {
	uint64_t qpn;
	uint64_t peer_qpn;
	uint64_t state;    /* enum gpunet_stat_qp_state */
	uint64_t posted;   /* work requests, modulo 2^32 */
	uint64_t pending;  /* of them not complete */
	uint64_t received; /* requests of the peer that were carried out, modulo 2^24 */
	uint64_t window;   /* packets that may be unacknowledged now */
	uint64_t rate;     /* bytes a second that congestion allows; 0: it knows of none */
	uint8_t peer[16];  /* its address, IPv4 as ::ffff:a.b.c.d */
};

struct gpunet_hops;

/* gpunet_get_hops for a page of `size` bytes, of any process. -EINVAL: it is not one; others as there. */
int gpunet_stat_get_hops(const void *page, size_t size, struct gpunet_hops *h);

GPUNET_END_DECLS

#endif
