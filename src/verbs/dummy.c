/* SPDX-License-Identifier: BSD-3-Clause */
/* The provider that has nothing: what others take for the slots that they do not have. */
#include "verbs/verbs.h"

#include <errno.h>
#include <stdio.h>

static int no_open(struct verbs **out, char *why, size_t why_size)
{
	snprintf(why, why_size, "not part of this build");
	return -ENOSYS;
}

static void no_close(struct verbs *v)
{
}

static int no_devices(struct verbs *v, int (*fn)(const struct verbs_device_info *d, void *arg),
		      void *arg)
{
	return -EOPNOTSUPP;
}

static int no_events_open(struct verbs *v, unsigned flags, struct verbs_events **out)
{
	return -EOPNOTSUPP;
}

static void no_events_close(struct verbs_events *e)
{
}

static int no_events_fd(struct verbs_events *e)
{
	return -1;
}

static int no_event_next(struct verbs_events *e, struct verbs_event *out)
{
	return -EOPNOTSUPP;
}

static int no_id_create(struct verbs_events *e, void *user, struct verbs_id **out)
{
	return -EOPNOTSUPP;
}

static void no_id_destroy(struct verbs_id *id)
{
}

static int no_id_migrate(struct verbs_id *id, struct verbs_events *to, void *user)
{
	return -EOPNOTSUPP;
}

static int no_id_option(struct verbs_id *id, enum verbs_id_option option, int value)
{
	return -EOPNOTSUPP;
}

static struct verbs_device *no_id_device(struct verbs_id *id)
{
	return NULL;
}

static int no_id_name(struct verbs_id *id, int peer, struct sockaddr *a, socklen_t *n)
{
	return -EOPNOTSUPP;
}

static int no_bind(struct verbs_id *id, const struct sockaddr *a, socklen_t n)
{
	return -EOPNOTSUPP;
}

static int no_listen(struct verbs_id *id, int backlog)
{
	return -EOPNOTSUPP;
}

static int no_resolve(struct verbs_id *id, const struct sockaddr *a, socklen_t n,
		      unsigned timeout_ms)
{
	return -EOPNOTSUPP;
}

static int no_connect(struct verbs_id *id, const struct verbs_conn_param *p)
{
	return -EOPNOTSUPP;
}

static int no_reject(struct verbs_id *id, const void *private_data, uint8_t n)
{
	return -EOPNOTSUPP;
}

static int no_disconnect(struct verbs_id *id)
{
	return -EOPNOTSUPP;
}

static int no_device_info(struct verbs_device *d, struct verbs_device_info *out)
{
	return -EOPNOTSUPP;
}

static int no_comp_open(struct verbs_device *d, struct verbs_comp **out)
{
	return -EOPNOTSUPP;
}

static void no_comp(struct verbs_comp *c)
{
}

static int no_comp_fd(struct verbs_comp *c)
{
	return -1;
}

static int no_cq_create(struct verbs_device *d, unsigned entries, struct verbs_comp *c,
			struct verbs_cq **out)
{
	return -EOPNOTSUPP;
}

static void no_cq_destroy(struct verbs_cq *cq)
{
}

static int no_poll(struct verbs_cq *cq, struct verbs_wc *wc, int n)
{
	return -EOPNOTSUPP;
}

static int no_arm(struct verbs_cq *cq)
{
	return -EOPNOTSUPP;
}

static int no_qp_create(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out)
{
	return -EOPNOTSUPP;
}

static void no_qp_destroy(struct verbs_qp *qp)
{
}

static int no_post_send(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n)
{
	return -EOPNOTSUPP;
}

static int no_post_recv(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n)
{
	return -EOPNOTSUPP;
}

static int no_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
		  struct verbs_mr **out)
{
	return -EOPNOTSUPP;
}

static void no_dereg(struct verbs_mr *mr)
{
}

static int no_export_queue(struct verbs_qp *qp, struct verbs_queue_export *out)
{
	return -EOPNOTSUPP;
}

static int no_device_open(struct verbs *v, const char *name, struct verbs_device **out)
{
	return -EOPNOTSUPP;
}

static int no_device_gid(struct verbs_device *d, unsigned index, struct verbs_gid *out)
{
	return -EOPNOTSUPP;
}

static int no_peer_qp_create(struct verbs_device *d, struct verbs_qp_init *init,
			     struct verbs_qp **out)
{
	return -EOPNOTSUPP;
}

static int no_peer_qp_connect(struct verbs_qp *qp, const struct verbs_peer *to,
			      const struct verbs_conn_param *p)
{
	return -EOPNOTSUPP;
}

#define DUMMY(name_, open_)                                                                        \
	{                                                                                          \
		.name = name_, .open = open_, .close = no_close, .devices = no_devices,            \
		.events_open = no_events_open, .events_close = no_events_close,                    \
		.events_fd = no_events_fd, .event_next = no_event_next, .id_create = no_id_create, \
		.id_destroy = no_id_destroy, .id_migrate = no_id_migrate,                          \
		.id_option = no_id_option, .id_device = no_id_device, .id_name = no_id_name,       \
		.bind = no_bind, .listen = no_listen, .resolve = no_resolve,                       \
		.connect = no_connect, .accept = no_connect, .reject = no_reject,                  \
		.disconnect = no_disconnect, .device_info = no_device_info,                        \
		.comp_open = no_comp_open, .comp_close = no_comp, .comp_fd = no_comp_fd,           \
		.comp_drain = no_comp, .cq_create = no_cq_create, .cq_destroy = no_cq_destroy,     \
		.poll = no_poll, .arm = no_arm, .qp_create = no_qp_create,                         \
		.qp_destroy = no_qp_destroy, .post_send = no_post_send, .post_recv = no_post_recv, \
		.reg = no_reg, .dereg = no_dereg, .export_queue = no_export_queue,                 \
		.device_open = no_device_open, .device_gid = no_device_gid,                        \
		.peer_qp_create = no_peer_qp_create, .peer_qp_connect = no_peer_qp_connect,        \
	}

const struct verbs_ops verbs_dummy = DUMMY("dummy", no_open);

#ifndef GPUNET_WITH_IBVERBS
static int no_ibverbs(struct verbs **out, char *why, size_t why_size)
{
	snprintf(
		why, why_size,
		"not part of this build, which had no headers (Debian: apt install libibverbs-dev librdmacm-dev, then build again)");
	return -ENOSYS;
}

const struct verbs_ops verbs_ibverbs = DUMMY("ibverbs", no_ibverbs);
#endif
