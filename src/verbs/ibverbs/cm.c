/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections by librdmacm. Every event is copied and acknowledged at once, so that no call waits for an acknowledgement. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/sys.h"
#include "verbs/ibverbs/ib.h"

static int result(int rc)
{
	return rc ? -errno : 0;
}

/* ---- queues of events --------------------------------------------------------------------------------------------------------- */

static int add(int epfd, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int rc = ib_nonblocking(fd);

	return rc ? rc : sys.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &ev);
}

/* One descriptor for the channel and all devices. */
static int watch_all(struct verbs_events *e)
{
	unsigned i;
	int rc;

	e->epfd = sys.epoll_create();
	if (e->epfd < 0)
		return e->epfd;
	rc = add(e->epfd, e->channel->fd);
	for (i = 0; i < e->v->n_devs && !rc; i++)
		rc = add(e->epfd, e->v->dev[i].ctx->async_fd);
	return rc;
}

int ib_events_open(struct verbs *v, unsigned flags, struct verbs_events **out)
{
	struct verbs_events *e = sys.alloc(sizeof(*e));
	int rc;

	if (!e)
		return -ENOMEM;
	e->v = v;
	e->epfd = -1;
	e->channel = ib_lib.create_event_channel();
	rc = e->channel ? ib_nonblocking(e->channel->fd) : -errno;
	if (!rc && (flags & VERBS_EVENTS_ASYNC))
		rc = watch_all(e);
	if (rc) {
		ib_events_close(e);
		return rc;
	}
	*out = e;
	return 0;
}

void ib_events_close(struct verbs_events *e)
{
	if (e->epfd >= 0)
		sys.close(e->epfd);
	if (e->channel)
		ib_lib.destroy_event_channel(e->channel);
	sys.free(e);
}

int ib_events_fd(struct verbs_events *e)
{
	return e->epfd >= 0 ? e->epfd : e->channel->fd;
}

static struct verbs_id *new_id(struct verbs_events *e, void *user)
{
	struct verbs_id *id = sys.alloc(sizeof(*id));

	if (id) {
		id->events = e;
		id->user = user;
	}
	return id;
}

static void copy_param(struct verbs_conn_param *to, const struct rdma_conn_param *from)
{
	uint8_t n = from->private_data_len;

	to->retry = from->retry_count;
	to->rnr_retry = from->rnr_retry_count;
	to->responder_resources = from->responder_resources;
	to->initiator_depth = from->initiator_depth;
	to->flow_control = from->flow_control != 0;
	if (n > VERBS_PRIVATE_MAX)
		n = VERBS_PRIVATE_MAX;
	if (!from->private_data)
		n = 0;
	to->private_len = n;
	if (n)
		memcpy(to->private_data, from->private_data, n);
}

/* The new id has its listener's context until it gets its own. False: no memory; the peer is refused. */
static bool take_request(struct rdma_cm_event *ev, struct verbs_event *out)
{
	struct verbs_id *l = ev->listen_id->context, *id = new_id(l->events, l->user);

	if (!id)
		return false;
	id->cm = ev->id;
	ev->id->context = id;
	out->type = VERBS_EVENT_CONNECT_REQUEST;
	out->id = l;
	out->user = l->user;
	out->request = id;
	copy_param(&out->param, &ev->param.conn);
	return true;
}

static int unreachable(int status)
{
	return status == -ETIMEDOUT ? status : -EHOSTUNREACH;
}

/* Which event it is to the user; false: none. */
static bool translate(struct rdma_cm_event *ev, struct verbs_event *out)
{
	struct verbs_id *id = ev->id->context;

	memset(out, 0, offsetof(struct verbs_event, param.private_data));
	out->id = id;
	out->user = id ? id->user : NULL;
	switch (ev->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return take_request(ev, out);
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (!ib_lib.resolve_route(ev->id, (int)id->timeout_ms))
			return false;
		out->type = VERBS_EVENT_UNREACHABLE;
		out->status = unreachable(-errno);
		return true;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		out->type = VERBS_EVENT_RESOLVED;
		return true;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		out->type = VERBS_EVENT_UNREACHABLE;
		out->status =
			-EHOSTUNREACH; /* nobody answered for the address, or no device leads there */
		return true;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		out->type = VERBS_EVENT_UNREACHABLE;
		out->status = unreachable(ev->status);
		return true;
	case RDMA_CM_EVENT_REJECTED:
		out->type = VERBS_EVENT_REJECTED;
		out->status = -ECONNREFUSED;
		out->reason = (unsigned)ev->status;
		copy_param(&out->param, &ev->param.conn);
		return true;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (id->active)
			ib_set_min_rnr(id);
		out->type = VERBS_EVENT_ESTABLISHED;
		copy_param(&out->param, &ev->param.conn);
		return true;
	case RDMA_CM_EVENT_DISCONNECTED:
		out->type = VERBS_EVENT_DISCONNECTED;
		return true;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		out->type = VERBS_EVENT_DEVICE_REMOVED;
		return true;
	default:
		return false;
	}
}

static bool next_cm(struct verbs_events *e, struct verbs_event *out)
{
	struct rdma_cm_event *ev;

	while (!ib_lib.get_cm_event(e->channel, &ev)) {
		bool told = translate(ev, out);
		/* The context is still the listener's where a request found no memory. */
		struct rdma_cm_id *refused =
			ev->event == RDMA_CM_EVENT_CONNECT_REQUEST && !told ? ev->id : NULL;

		ib_lib.ack_cm_event(ev);
		if (refused) {
			(void)ib_lib.reject(refused, NULL, 0);
			(void)ib_lib.destroy_id(refused);
		}
		if (told)
			return true;
	}
	return false;
}

static enum verbs_event_type async_type(enum ibv_event_type t)
{
	switch (t) {
	case IBV_EVENT_PORT_ACTIVE:
		return VERBS_EVENT_PORT_ACTIVE;
	case IBV_EVENT_PORT_ERR:
		return VERBS_EVENT_PORT_DOWN;
	case IBV_EVENT_DEVICE_FATAL:
		return VERBS_EVENT_DEVICE_FATAL;
	case IBV_EVENT_CQ_ERR:
		return VERBS_EVENT_CQ_ERROR;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		return VERBS_EVENT_QP_ERROR;
	default:
		return VERBS_EVENT_OTHER;
	}
}

static bool next_async(struct verbs_events *e, struct verbs_event *out)
{
	struct ibv_async_event ev;
	unsigned i;

	for (i = 0; i < e->v->n_devs; i++) {
		if (ib_lib.get_async_event(e->v->dev[i].ctx, &ev))
			continue;
		memset(out, 0, sizeof(*out));
		out->type = async_type(ev.event_type);
		out->device = &e->v->dev[i];
		ib_lib.ack_async_event(&ev);
		return true;
	}
	return false;
}

int ib_event_next(struct verbs_events *e, struct verbs_event *out)
{
	struct epoll_event ev;

	if (next_cm(e, out) || (e->epfd >= 0 && next_async(e, out)))
		return 0;
	/* Clears the list of what was ready, so that the next event makes an edge. */
	if (e->epfd >= 0)
		(void)sys.epoll_wait(e->epfd, &ev, 1, 0);
	return -EAGAIN;
}

/* ---- ids ---------------------------------------------------------------------------------------------------------------------- */

int ib_id_create(struct verbs_events *e, void *user, struct verbs_id **out)
{
	struct verbs_id *id = new_id(e, user);

	if (!id)
		return -ENOMEM;
	if (ib_lib.create_id(e->channel, &id->cm, id, RDMA_PS_TCP)) {
		int rc = -errno;

		sys.free(id);
		return rc;
	}
	*out = id;
	return 0;
}

void ib_id_destroy(struct verbs_id *id)
{
	(void)ib_lib.destroy_id(id->cm);
	sys.free(id);
}

int ib_id_migrate(struct verbs_id *id, struct verbs_events *to, void *user)
{
	id->user = user;
	if (id->events == to)
		return 0;
	/* Before the call: the other thread may take an event of the id as soon as it has moved. */
	id->events = to;
	return result(ib_lib.migrate_id(id->cm, to->channel));
}

int ib_id_option(struct verbs_id *id, enum verbs_id_option option, int value)
{
	int name = option == VERBS_ID_REUSEADDR ? RDMA_OPTION_ID_REUSEADDR : RDMA_OPTION_ID_AFONLY;

	return result(ib_lib.set_option(id->cm, RDMA_OPTION_ID, name, &value, sizeof(value)));
}

struct verbs_device *ib_id_device(struct verbs_id *id)
{
	return ib_device(id->events->v, id->cm->verbs);
}

int ib_id_name(struct verbs_id *id, int peer, struct sockaddr *a, socklen_t *n)
{
	struct rdma_addr *addr = &id->cm->route.addr;
	struct sockaddr *s = peer ? &addr->dst_addr : &addr->src_addr;
	socklen_t len =
		s->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	if (s->sa_family != AF_INET && s->sa_family != AF_INET6)
		return -ENOTCONN;
	memcpy(a, s, len < *n ? len : *n);
	*n = len;
	return 0;
}

/* librdmacm does not change what it is given. */
static struct sockaddr *plain(const struct sockaddr *a)
{
	return (struct sockaddr *)(uintptr_t)a;
}

/*
 * What is in use is "not available" to the kernel's CM if another has the port at all addresses, or this one wants it at all. Who lets
 * others bind as well is told by listen.
 */
int ib_bind(struct verbs_id *id, const struct sockaddr *a, socklen_t n)
{
	struct sockaddr_storage any_port = { 0 };
	int rc = result(ib_lib.bind_addr(id->cm, plain(a)));

	if (rc == -ENODEV)
		return -EADDRNOTAVAIL; /* an address of this machine that no RDMA device has */
	if (rc != -EADDRNOTAVAIL || n > sizeof(any_port))
		return rc;
	/* Is it the address or the port? The id is of no more use either way. */
	memcpy(&any_port, a, n);
	((struct sockaddr_in *)&any_port)->sin_port = 0; /* where sin6_port is */
	return result(ib_lib.bind_addr(id->cm, (struct sockaddr *)&any_port)) ? rc : -EADDRINUSE;
}

int ib_listen(struct verbs_id *id, int backlog)
{
	int rc = result(ib_lib.listen(id->cm, backlog));

	return rc == -EADDRNOTAVAIL ? -EADDRINUSE : rc;
}

int ib_resolve(struct verbs_id *id, const struct sockaddr *a, socklen_t n, unsigned timeout_ms)
{
	int rc;

	(void)n;
	id->timeout_ms = timeout_ms;
	rc = result(ib_lib.resolve_addr(id->cm, NULL, plain(a), (int)timeout_ms));
	return rc == -ENODEV ? -EHOSTUNREACH : rc;
}

/* ---- connect and accept ---------------------------------------------------------------------------------------------------------- */

static void fill(struct rdma_conn_param *to, const struct verbs_conn_param *p)
{
	memset(to, 0, sizeof(*to));
	to->private_data = p->private_data;
	to->private_data_len = p->private_len;
	to->responder_resources = p->responder_resources;
	to->initiator_depth = p->initiator_depth;
	to->flow_control = p->flow_control;
	to->retry_count = p->retry;
	to->rnr_retry_count = p->rnr_retry;
}

/* The queue pair uses it although the request goes on saying what the kernel's CM says. Kernels before 5.1 have no such option. */
static void set_ack_timeout(struct verbs_id *id, uint8_t code)
{
	if (code)
		(void)ib_lib.set_option(id->cm, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &code,
					sizeof(code));
}

/* The RDMA CM sets 0, which is the longest there is, 655 ms. */
void ib_set_min_rnr(struct verbs_id *id)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = id->min_rnr };

	if (id->cm->qp)
		(void)ib_lib.modify_qp(id->cm->qp, &attr, IBV_QP_MIN_RNR_TIMER);
}

int ib_connect(struct verbs_id *id, const struct verbs_conn_param *p)
{
	struct rdma_conn_param c;

	fill(&c, p);
	id->active = true;
	id->min_rnr = p->min_rnr_timer;
	set_ack_timeout(id, p->ack_timeout);
	return result(ib_lib.connect(id->cm, &c));
}

/*
 * Does the peer ask for larger packets than our port takes? An answer cannot ask for less, and packets that are too large vanish: so such
 * a connection would be made, and be silent.
 */
static bool too_large(struct verbs_id *id)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	uint8_t number = id->cm->port_num ? id->cm->port_num : 1;
	struct ibv_port_attr port;
	int mask = 0;

	return ib_lib.init_qp_attr && !ib_lib.init_qp_attr(id->cm, &attr, &mask) &&
	       (mask & IBV_QP_PATH_MTU) && !ib_query_port(id->cm->verbs, number, &port) &&
	       attr.path_mtu > port.active_mtu;
}

int ib_accept(struct verbs_id *id, const struct verbs_conn_param *p)
{
	struct rdma_conn_param c;
	int rc;

	if (too_large(id))
		return -EMSGSIZE;
	fill(&c, p);
	id->min_rnr = p->min_rnr_timer;
	set_ack_timeout(id, p->ack_timeout);
	rc = result(ib_lib.accept(id->cm, &c));
	if (!rc)
		ib_set_min_rnr(id);
	return rc;
}

int ib_reject(struct verbs_id *id, const void *private_data, uint8_t n)
{
	return result(ib_lib.reject(id->cm, private_data, n));
}

int ib_disconnect(struct verbs_id *id)
{
	return result(ib_lib.disconnect(id->cm));
}
