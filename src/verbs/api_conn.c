/* SPDX-License-Identifier: BSD-3-Clause */
/* <gpunet/verbs.h>: connections. Each has its own queue of events, so one thread's wait takes nothing of another's. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "verbs/api.h"

/* ---- events ------------------------------------------------------------------------------------------------------------ */

/* The next event: 0; -ETIMEDOUT, or -EAGAIN when nobody wanted to wait. */
static int await(const struct verbs_ops *ops, struct verbs_events *e, int timeout_ms,
		 struct verbs_event *out)
{
	uint64_t deadline = api_deadline(timeout_ms);
	int rc;

	for (;;) {
		rc = ops->event_next(e, out);
		if (rc != -EAGAIN || !timeout_ms)
			return rc;
		rc = api_wait(ops->events_fd(e), deadline);
		if (rc <= 0)
			return rc ? rc : -ETIMEDOUT;
	}
}

static void put_port(struct sockaddr_storage *a, uint16_t port)
{
	if (a->ss_family == AF_INET)
		((struct sockaddr_in *)a)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)a)->sin6_port = htons(port);
}

static void address_text(const struct sockaddr *a, socklen_t n, char *out, size_t size)
{
	char port[NI_MAXSERV], host[NI_MAXHOST];

	if (getnameinfo(a, n, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(out, size, "an address that is none");
	else
		snprintf(out, size, a->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

/* ---- which device ------------------------------------------------------------------------------------------------------ */

static int resolve(const struct verbs_ops *ops, struct verbs_events *e, struct verbs_id *id,
		   const struct sockaddr *to, socklen_t n, int timeout_ms)
{
	struct verbs_event ev;
	int rc = ops->resolve(id, to, n, timeout_ms < 0 ? 5000 : (unsigned)timeout_ms);

	if (!rc)
		rc = await(ops, e, timeout_ms, &ev);
	if (!rc && ev.type != VERBS_EVENT_RESOLVED)
		rc = ev.status ? ev.status : -EHOSTUNREACH;
	return rc;
}

static int learn_device(gpunet_verbs_t *v, struct verbs_events *e, struct verbs_id *id,
			const struct gpunet_verbs_options *opt)
{
	const struct verbs_ops *ops = v->use.ops;
	struct sockaddr_storage a;
	socklen_t n = sizeof(v->local);
	int rc;

	if (opt->local) {
		if (opt->local_len > (socklen_t)sizeof(a))
			return -EINVAL;
		memcpy(&a, opt->local, opt->local_len);
		put_port(&a, 0);
		rc = ops->bind(id, (struct sockaddr *)&a, opt->local_len);
	} else {
		rc = resolve(ops, e, id, opt->toward, opt->toward_len, (int)opt->timeout_ms);
	}
	if (rc)
		return rc;
	v->dev = ops->id_device(id);
	/* "Any" is on all devices, and so on none. */
	if (!v->dev)
		return opt->local ? -EADDRNOTAVAIL : -EHOSTUNREACH;
	v->bind = opt->local != NULL;
	if (!ops->id_name(id, 0, (struct sockaddr *)&v->local, &n)) {
		v->local_len = n;
		put_port(&v->local, 0);
	}
	return 0;
}

int api_device_by_address(gpunet_verbs_t *v, const struct gpunet_verbs_options *opt)
{
	const struct sockaddr *a = opt->local ? opt->local : opt->toward;
	socklen_t n = opt->local ? opt->local_len : opt->toward_len;
	const struct verbs_ops *ops = v->use.ops;
	struct verbs_events *e;
	struct verbs_id *id;
	char text[96];
	int rc;

	if (n < (socklen_t)sizeof(struct sockaddr_in))
		return log_error(-EINVAL, "gpunet_verbs_open: an address is too short");
	rc = ops->events_open(v->use.v, 0, &e);
	if (rc)
		return log_error(rc, "no queue of events: %s", strerror(-rc));
	rc = ops->id_create(e, NULL, &id);
	if (!rc) {
		rc = learn_device(v, e, id, opt);
		ops->id_destroy(id);
	}
	ops->events_close(e);
	if (!rc)
		return 0;
	address_text(a, n, text, sizeof(text));
	return log_error(rc, "no device of provider %s %s %s: %s%s", ops->name,
			 opt->local ? "has the address" : "leads to", text, strerror(-rc),
			 strcmp(ops->name, "ibverbs") == 0
				 ? "; provider rnic needs no device (GPUNET_VERBS=rnic)"
				 : "");
}

/* ---- parameters -------------------------------------------------------------------------------------------------------- */

int api_param(const struct gpunet_verbs_param *p, uint8_t private_max, struct verbs_conn_param *out)
{
	const struct gpunet_verbs_param defaults = GPUNET_VERBS_PARAM_INIT;

	if (!p)
		p = &defaults;
	if (p->size != sizeof(*p) || p->private_length > private_max || p->retry > 7 ||
	    p->rnr_retry > 7 || p->ack_timeout > 31 || p->min_rnr_timer > 31)
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	out->retry = p->retry;
	out->rnr_retry = p->rnr_retry;
	out->ack_timeout = p->ack_timeout;
	out->min_rnr_timer = p->min_rnr_timer;
	out->initiator_depth = p->initiator_depth;
	out->responder_resources = p->responder_resources;
	out->flow_control = true;
	out->private_len = p->private_length;
	if (p->private_length)
		memcpy(out->private_data, p->private_data, p->private_length);
	return 0;
}

/* ---- connections ------------------------------------------------------------------------------------------------------- */

static int new_conn(gpunet_verbs_t *v, gpunet_verbs_conn_t **out)
{
	gpunet_verbs_conn_t *c = sys.alloc(sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	rc = v->use.ops->events_open(v->use.v, 0, &c->events);
	if (rc) {
		sys.free(c);
		return rc;
	}
	c->v = v;
	atomic_fetch_add(&v->children, 1);
	*out = c;
	return 0;
}

int gpunet_verbs_conn_close(gpunet_verbs_conn_t *c)
{
	const struct verbs_ops *ops = c->v->use.ops;

	if (c->qp)
		return -EBUSY;
	if (c->id)
		ops->id_destroy(c->id);
	ops->events_close(c->events);
	atomic_fetch_sub(&c->v->children, 1);
	sys.free(c);
	return 0;
}

static int find_way(gpunet_verbs_conn_t *c, const struct sockaddr *peer, socklen_t len,
		    int timeout_ms)
{
	gpunet_verbs_t *v = c->v;
	const struct verbs_ops *ops = v->use.ops;
	int rc = ops->id_create(c->events, c, &c->id);

	if (!rc && v->bind && v->local.ss_family == peer->sa_family)
		rc = ops->bind(c->id, (struct sockaddr *)&v->local, v->local_len);
	if (!rc)
		rc = resolve(ops, c->events, c->id, peer, len, timeout_ms);
	if (!rc && ops->id_device(c->id) != v->dev)
		rc = -EXDEV;
	return rc;
}

int gpunet_verbs_dial(gpunet_verbs_t *v, const struct sockaddr *peer, socklen_t len, int timeout_ms,
		      gpunet_verbs_conn_t **out)
{
	gpunet_verbs_conn_t *c;
	char text[96];
	int rc = new_conn(v, &c);

	if (rc)
		return rc;
	rc = find_way(c, peer, len, timeout_ms);
	if (rc) {
		gpunet_verbs_conn_close(c);
		address_text(peer, len, text, sizeof(text));
		return log_error(rc, "%s: no way to %s: %s", v->info.name, text, strerror(-rc));
	}
	*out = c;
	return 0;
}

static void keep_data(gpunet_verbs_conn_t *c, const struct verbs_conn_param *p)
{
	c->data_length = p->private_len;
	memcpy(c->data, p->private_data, p->private_len);
}

int gpunet_verbs_connect(gpunet_verbs_conn_t *c, const struct gpunet_verbs_param *p, int timeout_ms)
{
	struct verbs_conn_param param;
	struct verbs_event ev;
	int rc = api_param(p, VERBS_PRIVATE_REQ, &param);

	if (!rc && (!c->qp || c->passive))
		rc = -EINVAL;
	if (!rc)
		rc = c->v->use.ops->connect(c->id, &param);
	if (!rc)
		rc = await(c->v->use.ops, c->events, timeout_ms, &ev);
	if (rc)
		return rc;
	keep_data(c, &ev.param);
	if (ev.type == VERBS_EVENT_ESTABLISHED)
		return 0;
	c->over = true;
	return ev.status ? ev.status : -ECONNRESET;
}

int gpunet_verbs_accept(gpunet_verbs_conn_t *c, const struct gpunet_verbs_param *p, int timeout_ms)
{
	struct verbs_conn_param param;
	struct verbs_event ev;
	int rc = api_param(p, VERBS_PRIVATE_MAX, &param);

	if (!rc && (!c->qp || !c->passive))
		rc = -EINVAL;
	if (!rc)
		rc = c->v->use.ops->accept(c->id, &param);
	if (!rc)
		rc = await(c->v->use.ops, c->events, timeout_ms, &ev);
	if (rc)
		return rc;
	if (ev.type == VERBS_EVENT_ESTABLISHED)
		return 0;
	c->over = true;
	return -ECONNRESET;
}

int gpunet_verbs_reject(gpunet_verbs_conn_t *c, const void *private_data, uint8_t length)
{
	return c->passive ? c->v->use.ops->reject(c->id, private_data, length) : -EINVAL;
}

int gpunet_verbs_peer_data(gpunet_verbs_conn_t *c, void *data, size_t n)
{
	if (n)
		memcpy(data, c->data, n < c->data_length ? n : c->data_length);
	return c->data_length;
}

int gpunet_verbs_conn_name(gpunet_verbs_conn_t *c, int peer, struct sockaddr *addr, socklen_t *len)
{
	return c->v->use.ops->id_name(c->id, peer, addr, len);
}

int gpunet_verbs_conn_fd(gpunet_verbs_conn_t *c)
{
	return c->v->use.ops->events_fd(c->events);
}

int gpunet_verbs_wait_end(gpunet_verbs_conn_t *c, int timeout_ms)
{
	uint64_t deadline = api_deadline(timeout_ms);
	struct verbs_event ev;
	int rc;

	while (!c->over) {
		uint64_t now = sys.now_ns();
		int left = timeout_ms <= 0 ? timeout_ms : (int)((deadline - now) / 1000000);

		rc = await(c->v->use.ops, c->events, deadline > now ? left : 0, &ev);
		if (rc == -EAGAIN && timeout_ms)
			rc = -ETIMEDOUT;
		if (rc)
			return rc;
		c->over = ev.type != VERBS_EVENT_ESTABLISHED;
	}
	return 0;
}

int gpunet_verbs_disconnect(gpunet_verbs_conn_t *c)
{
	int rc = c->v->use.ops->disconnect(c->id);

	/* Twice, or after the peer has. */
	return rc == -ENOTCONN || rc == -EINVAL ? 0 : rc;
}

/* ---- listeners --------------------------------------------------------------------------------------------------------- */

static int start_listening(gpunet_verbs_listener_t *l, const struct sockaddr *addr, socklen_t len,
			   int backlog)
{
	const struct verbs_ops *ops = l->v->use.ops;
	int rc = ops->id_create(l->events, l, &l->id);

	if (!rc)
		rc = ops->bind(l->id, addr, len);
	if (!rc && ops->id_device(l->id) != l->v->dev)
		rc = -EXDEV;
	return rc ? rc : ops->listen(l->id, backlog);
}

int gpunet_verbs_listen(gpunet_verbs_t *v, const struct sockaddr *addr, socklen_t len, int backlog,
			gpunet_verbs_listener_t **out)
{
	gpunet_verbs_listener_t *l = sys.alloc(sizeof(*l));
	char text[96];
	int rc;

	if (!l)
		return -ENOMEM;
	l->v = v;
	atomic_fetch_add(&v->children, 1);
	rc = v->use.ops->events_open(v->use.v, 0, &l->events);
	if (!rc)
		rc = start_listening(l, addr, len, backlog);
	if (rc) {
		gpunet_verbs_listener_close(l);
		address_text(addr, len, text, sizeof(text));
		return log_error(rc, "%s cannot listen on %s: %s", v->info.name, text,
				 rc == -EXDEV ? "it is no address of this device" : strerror(-rc));
	}
	*out = l;
	return 0;
}

void gpunet_verbs_listener_close(gpunet_verbs_listener_t *l)
{
	const struct verbs_ops *ops = l->v->use.ops;

	if (l->id)
		ops->id_destroy(l->id);
	if (l->events)
		ops->events_close(l->events);
	atomic_fetch_sub(&l->v->children, 1);
	sys.free(l);
}

int gpunet_verbs_listener_name(gpunet_verbs_listener_t *l, struct sockaddr *addr, socklen_t *len)
{
	return l->v->use.ops->id_name(l->id, 0, addr, len);
}

int gpunet_verbs_listener_fd(gpunet_verbs_listener_t *l)
{
	return l->v->use.ops->events_fd(l->events);
}

int gpunet_verbs_next(gpunet_verbs_listener_t *l, int timeout_ms, gpunet_verbs_conn_t **out)
{
	const struct verbs_ops *ops = l->v->use.ops;
	gpunet_verbs_conn_t *c;
	struct verbs_event ev;
	int rc;

	do {
		rc = await(ops, l->events, timeout_ms, &ev);
		if (rc)
			return rc;
	} while (ev.type != VERBS_EVENT_CONNECT_REQUEST);
	rc = new_conn(l->v, &c);
	if (rc) {
		ops->id_destroy(ev.request);
		return rc;
	}
	c->id = ev.request;
	c->passive = true;
	keep_data(c, &ev.param);
	rc = ops->id_migrate(c->id, c->events, c);
	if (rc) {
		gpunet_verbs_conn_close(c);
		return rc;
	}
	*out = c;
	return 0;
}
