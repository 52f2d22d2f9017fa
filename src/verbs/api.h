/* SPDX-License-Identifier: BSD-3-Clause */
/* What is behind the handles of <gpunet/verbs.h>: api.c (devices, memory, queues), api_conn.c (connections). */
#ifndef GPUNET_VERBS_API_H
#define GPUNET_VERBS_API_H

#include <gpunet/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "verbs/verbs.h"

struct gpunet_verbs {
	struct verbs_use use;
	struct verbs_device *dev;
	struct verbs_device_info info;
	struct verbs_gid gid; /* by which peers name the device */
	unsigned gid_index;
	struct sockaddr_storage local; /* an address of the device, port 0 */
	socklen_t local_len;           /* 0: none is known */
	bool bind;                     /* connections are made from that address */
	atomic_uint children;
};

struct gpunet_verbs_mr {
	gpunet_verbs_t *v;
	struct verbs_mr *mr;
};

struct gpunet_verbs_cq {
	gpunet_verbs_t *v;
	struct verbs_comp *comp;
	struct verbs_cq *cq;
	atomic_uint qps;
};

struct gpunet_verbs_qp {
	gpunet_verbs_t *v;
	gpunet_verbs_conn_t *conn; /* NULL: its peer is told by numbers */
	gpunet_verbs_cq_t *send_cq, *recv_cq;
	struct verbs_qp *qp;
	uint32_t qpn, psn;
};

struct gpunet_verbs_listener {
	gpunet_verbs_t *v;
	struct verbs_events *events;
	struct verbs_id *id;
};

struct gpunet_verbs_conn {
	gpunet_verbs_t *v;
	struct verbs_events *events; /* its own, so that threads with connections do not meet */
	struct verbs_id *id;
	gpunet_verbs_qp_t *qp;
	bool passive, over;
	uint8_t data_length;
	uint8_t data[VERBS_PRIVATE_MAX];
};

/* Finds the device by its address, or by the way to a peer. */
int api_device_by_address(gpunet_verbs_t *v, const struct gpunet_verbs_options *opt);
/* The caller's parameters, or the defaults. -EINVAL. */
int api_param(const struct gpunet_verbs_param *p, uint8_t private_max,
	      struct verbs_conn_param *out);
/* A deadline in nanoseconds; UINT64_MAX: none. */
uint64_t api_deadline(int timeout_ms);
/* Waits until the descriptor is readable: 1; 0: the deadline is over; a negative errno. */
int api_wait(int fd, uint64_t deadline);

#endif
