/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of connections and devices. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "channel/verbs/rdc.h"

/* A request that cannot be served is told so at once, and costs nothing. */
static void refuse(struct rdc *l, struct verbs_id *id, const struct sockaddr_storage *peer,
		   const char *why)
{
	char name[RDC_NAME];

	log_line(LOG_NOTE, "rdma: a connection from %s is refused: %s", rdc_name(peer, name), why);
	(void)l->net->use.ops->reject(id, NULL, 0);
	l->net->use.ops->id_destroy(id);
}

static void requested(struct rdc *l, const struct verbs_event *e)
{
	const struct verbs_ops *ops = l->net->use.ops;
	struct sockaddr_storage peer = { 0 };
	socklen_t len = sizeof(peer);
	struct wire_rsock_conn remote;
	struct rdc *r = NULL;

	if (ops->id_name(e->request, 1, (struct sockaddr *)&peer, &len))
		len = 0;
	if (l->state != RDC_LISTENING || l->n_requests >= l->backlog) {
		refuse(l, e->request, &peer, "the backlog is full");
		return;
	}
	if (wire_rsock_conn_decode(&remote, e->param.private_data, e->param.private_len)) {
		refuse(l, e->request, &peer, "it does not speak the rsocket protocol");
		return;
	}
	r = rdc_new(l->t, l->domain);
	if (!r || ops->id_migrate(e->request, l->t->events, r)) {
		refuse(l, e->request, &peer, "no memory");
		if (r)
			rdc_free(r);
		return;
	}
	r->id = e->request;
	r->state = RDC_REQUESTED;
	r->remote = remote;
	r->keepalive = l->keepalive;
	r->keep_s = l->keep_s;
	r->peer = peer;
	r->peer_len = len;
	list_add_tail(&l->requests, &r->request_link);
	l->n_requests++;
	rdc_tell(l, CHANNEL_IN);
}

static void established(struct rdc *c, const struct verbs_event *e)
{
	if (c->state == RDC_CONNECTING) {
		rdc_connected(c, &e->param);
	} else if (c->state == RDC_OPEN || c->state == RDC_CLOSING) {
		c->established = true;
		rdc_tell(c, CHANNEL_OUT);
	}
}

/*
 * What arrived before the end is in the completion queue already. It is counted only: an owner who is told of it, or a close that
 * ends with it, would take the connection away from under this function.
 */
static void disconnected(struct rdc *c, int err)
{
	bool over;

	c->left = true;
	rdc_drain(c);
	(void)c->net->use.ops->disconnect(
		c->id); /* answers the peer, and flushes what is under way */
	over = c->gone || (c->rx_end && c->tx_shut);
	if (over)
		c->gone = true;
	else
		rdc_fail(c, err);
	rdc_tell(c, CHANNEL_IN | CHANNEL_OUT);
}

/* The way to the peer is lost, or was never there. */
static void lost(struct rdc *c, int err)
{
	switch (c->state) {
	case RDC_RESOLVING:
	case RDC_CONNECTING:
		rdc_connect_failed(c, err);
		break;
	case RDC_OPEN:
	case RDC_CLOSING:
		disconnected(c, err);
		break;
	case RDC_REQUESTED:
		c->err = err;
		break;
	default:
		break;
	}
}

static void one_event(struct rdc_thread *t, const struct verbs_event *e)
{
	struct rdc *c = e->user;
	struct verbs_device_info info = { .name = "a device" };

	switch (e->type) {
	case VERBS_EVENT_RESOLVED:
		if (c->state == RDC_RESOLVING)
			rdc_go_on(c);
		break;
	case VERBS_EVENT_CONNECT_REQUEST:
		requested(c, e);
		break;
	case VERBS_EVENT_ESTABLISHED:
		established(c, e);
		break;
	case VERBS_EVENT_UNREACHABLE:
	case VERBS_EVENT_REJECTED:
		lost(c, e->status ? -e->status : EHOSTUNREACH);
		break;
	case VERBS_EVENT_DISCONNECTED:
		lost(c, ECONNRESET);
		break;
	case VERBS_EVENT_DEVICE_REMOVED:
		lost(c, ENODEV);
		break;
	case VERBS_EVENT_PORT_DOWN:
	case VERBS_EVENT_PORT_ACTIVE:
	case VERBS_EVENT_DEVICE_FATAL:
		(void)t->net->use.ops->device_info(e->device, &info);
		log_line(
			e->type == VERBS_EVENT_PORT_ACTIVE ? LOG_NOTE : LOG_WARN, "rdma: %s: %s",
			info.name,
			e->type == VERBS_EVENT_PORT_ACTIVE ? "the port is up"
			: e->type == VERBS_EVENT_PORT_DOWN
				? "the port is down: connections end unless it comes back within seconds"
				: "the device failed: connections on it end");
		break;
	default:
		break;
	}
}

void rdc_events(struct rdc_thread *t)
{
	struct verbs_event e;

	while (!t->net->use.ops->event_next(t->events, &e))
		one_event(t, &e);
}
