/* SPDX-License-Identifier: BSD-3-Clause */
/* The provider ibverbs: libibverbs and librdmacm, loaded when it is opened. Their headers are needed at build time only. */
#ifndef GPUNET_VERBS_IBVERBS_IB_H
#define GPUNET_VERBS_IBVERBS_IB_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "verbs/verbs.h"

/* Devices of one machine that we keep track of. */
#define IB_DEVICES 64
/* Pieces of a work request that we take. */
#define IB_SGES 4

/* What the two libraries export and we call. Those that may be missing in older ones are NULL then. */
struct ib_lib {
	__typeof__(ibv_get_device_list) *get_device_list;
	__typeof__(ibv_free_device_list) *free_device_list;
	__typeof__(ibv_fork_init) *fork_init;
	__typeof__(ibv_is_fork_initialized) *is_fork_initialized; /* may be missing */
	__typeof__(ibv_query_device) *query_device;
	int (*query_port)(struct ibv_context *c, uint8_t port, void *attr);
	__typeof__(ibv_alloc_pd) *alloc_pd;
	__typeof__(ibv_dealloc_pd) *dealloc_pd;
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t n, int access);
	struct ibv_mr *(*reg_mr_iova)(struct ibv_pd *pd, void *addr, size_t n, uint64_t iova,
				      int access);    /* may be missing */
	__typeof__(ibv_reg_dmabuf_mr) *reg_dmabuf_mr; /* may be missing */
	__typeof__(ibv_dereg_mr) *dereg_mr;
	__typeof__(ibv_create_comp_channel) *create_comp_channel;
	__typeof__(ibv_destroy_comp_channel) *destroy_comp_channel;
	__typeof__(ibv_create_cq) *create_cq;
	__typeof__(ibv_destroy_cq) *destroy_cq;
	__typeof__(ibv_get_cq_event) *get_cq_event;
	__typeof__(ibv_ack_cq_events) *ack_cq_events;
	__typeof__(ibv_get_async_event) *get_async_event;
	__typeof__(ibv_ack_async_event) *ack_async_event;
	__typeof__(ibv_modify_qp) *modify_qp;
	__typeof__(ibv_create_qp) *create_raw_qp;
	__typeof__(ibv_destroy_qp) *destroy_raw_qp;
	__typeof__(ibv_query_gid) *query_gid;

	__typeof__(rdma_get_devices) *get_devices;
	__typeof__(rdma_free_devices) *free_devices;
	__typeof__(rdma_create_event_channel) *create_event_channel;
	__typeof__(rdma_destroy_event_channel) *destroy_event_channel;
	__typeof__(rdma_get_cm_event) *get_cm_event;
	__typeof__(rdma_ack_cm_event) *ack_cm_event;
	__typeof__(rdma_create_id) *create_id;
	__typeof__(rdma_destroy_id) *destroy_id;
	__typeof__(rdma_migrate_id) *migrate_id;
	__typeof__(rdma_set_option) *set_option;
	__typeof__(rdma_bind_addr) *bind_addr;
	__typeof__(rdma_listen) *listen;
	__typeof__(rdma_resolve_addr) *resolve_addr;
	__typeof__(rdma_resolve_route) *resolve_route;
	__typeof__(rdma_create_qp) *create_qp;
	__typeof__(rdma_destroy_qp) *destroy_qp;
	__typeof__(rdma_connect) *connect;
	__typeof__(rdma_accept) *accept;
	int (*init_qp_attr)(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask);
	__typeof__(rdma_reject) *reject;
	__typeof__(rdma_disconnect) *disconnect;
};

extern struct ib_lib ib_lib;

struct verbs_device {
	struct verbs *v;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
};

struct verbs {
	pthread_mutex_t lock; /* of dev[].pd and of n_devs */
	struct ibv_context **ctxs;
	struct verbs_device dev[IB_DEVICES];
	unsigned n_devs;
};

struct verbs_events {
	struct verbs *v;
	struct rdma_event_channel *channel;
	int epfd; /* over the channel and the devices' asynchronous events; -1: the channel only */
	unsigned timeout_ms;
};

struct verbs_id {
	struct rdma_cm_id *cm;
	struct verbs_events *events;
	void *user;
	unsigned timeout_ms; /* of resolving */
	uint8_t min_rnr;
	bool active;
};

struct verbs_qp {
	struct rdma_cm_id *cm; /* NULL: its peer is told by numbers */
	struct ibv_qp *qp;
};

struct verbs_comp {
	struct ibv_comp_channel *channel;
	unsigned
		armed; /* CQs that are, as far as is known: no more events than these can be waited for */
};

struct verbs_cq {
	struct ibv_cq *cq;
	struct verbs_comp *comp;
	bool armed;
};

/* The device of a context, or NULL when there are too many or it has no protection domain to give. */
struct verbs_device *ib_device(struct verbs *v, struct ibv_context *ctx);
int ib_nonblocking(int fd);
int ib_query_port(struct ibv_context *ctx, uint8_t number, struct ibv_port_attr *out);
void ib_set_min_rnr(struct verbs_id *id);

/* cm.c */
int ib_events_open(struct verbs *v, unsigned flags, struct verbs_events **out);
void ib_events_close(struct verbs_events *e);
int ib_events_fd(struct verbs_events *e);
int ib_event_next(struct verbs_events *e, struct verbs_event *out);
int ib_id_create(struct verbs_events *e, void *user, struct verbs_id **out);
void ib_id_destroy(struct verbs_id *id);
int ib_id_migrate(struct verbs_id *id, struct verbs_events *to, void *user);
int ib_id_option(struct verbs_id *id, enum verbs_id_option option, int value);
struct verbs_device *ib_id_device(struct verbs_id *id);
int ib_id_name(struct verbs_id *id, int peer, struct sockaddr *a, socklen_t *n);
int ib_bind(struct verbs_id *id, const struct sockaddr *a, socklen_t n);
int ib_listen(struct verbs_id *id, int backlog);
int ib_resolve(struct verbs_id *id, const struct sockaddr *a, socklen_t n, unsigned timeout_ms);
int ib_connect(struct verbs_id *id, const struct verbs_conn_param *p);
int ib_accept(struct verbs_id *id, const struct verbs_conn_param *p);
int ib_reject(struct verbs_id *id, const void *private_data, uint8_t n);
int ib_disconnect(struct verbs_id *id);

/* data.c */
int ib_comp_open(struct verbs_device *d, struct verbs_comp **out);
void ib_comp_close(struct verbs_comp *c);
int ib_comp_fd(struct verbs_comp *c);
void ib_comp_drain(struct verbs_comp *c);
int ib_cq_create(struct verbs_device *d, unsigned entries, struct verbs_comp *c,
		 struct verbs_cq **out);
void ib_cq_destroy(struct verbs_cq *cq);
int ib_poll(struct verbs_cq *cq, struct verbs_wc *wc, int n);
int ib_arm(struct verbs_cq *cq);
int ib_qp_create(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out);
void ib_qp_destroy(struct verbs_qp *qp);
int ib_peer_qp_create(struct verbs_device *d, struct verbs_qp_init *init, struct verbs_qp **out);
int ib_peer_qp_connect(struct verbs_qp *qp, const struct verbs_peer *to,
		       const struct verbs_conn_param *p);
int ib_post_send(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n);
int ib_post_recv(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n);
int ib_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
	   struct verbs_mr **out);
void ib_dereg(struct verbs_mr *mr);

#endif
