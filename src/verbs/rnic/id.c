/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners and connections. */
#include "verbs/rnic/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/sys.h"
#include "wire/frame.h"
#include "wire/roce.h"

enum {
	FIRST_PORT = 49152, /* of those that are chosen */
	LOOPBACK_TRIES = 64,
	FLOW_MASK = 0xfffff,
};

static uint32_t rnd32(void)
{
	uint32_t v;

	while (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
		;
	return v;
}

/* --- creation ----------------------------------------------------------------------------------- */

static struct verbs_id *new_id(struct verbs *v)
{
	struct verbs_id *id = sys.alloc(sizeof(*id));
	unsigned i;

	if (!id)
		return NULL;
	id->v = v;
	list_init(&id->waiting);
	list_init(&id->probe.link);
	list_init(&id->request_ev.link);
	for (i = 0; i < 3; i++) {
		list_init(&id->ev[i].link);
		id->ev[i].id = id;
	}
	return id;
}

int vid_create(struct verbs_events *e, void *user, struct verbs_id **out)
{
	struct verbs_id *id = new_id(e->v);

	if (!id)
		return -ENOMEM;
	id->e = e;
	id->user = user;
	*out = id;
	return 0;
}

static void leave_one(const struct verbs_id *id, struct vhost *h, uint16_t port);

static void unbind(struct verbs_id *id)
{
	unsigned i;

	for (i = 0; i < id->non; i++) {
		struct vhost *h = id->on[i].dev->host;

		vhost_lock(h);
		if (id->on[i].l)
			rnic_cm_unlisten(id->on[i].l);
		leave_one(id, h, id->port);
		vhost_flush(h);
		vhost_unlock(h);
	}
	id->non = 0;
	id->bound = false;
}

/* The next request to a listener that nobody has taken. */
static struct verbs_id *untaken(struct verbs_id *id)
{
	struct verbs_id *found;

	pthread_mutex_lock(&id->v->ev_lock);
	found = vevents_request(id);
	if (found) {
		list_del(&found->request_ev.link);
		found->request_ev.pending = false;
	}
	pthread_mutex_unlock(&id->v->ev_lock);
	return found;
}

static void refuse_untaken(struct verbs_id *id)
{
	struct verbs_id *request;

	while ((request = untaken(id)) != NULL)
		vid_destroy(request);
}

void vid_destroy(struct verbs_id *id)
{
	if (id->bound)
		unbind(id);
	refuse_untaken(id);
	if (id->dev) {
		struct vhost *h = id->dev->host;

		vhost_lock(h);
		list_del(&id->waiting);
		list_del(&id->probe.link);
		if (id->conn)
			rnic_cm_release(id->conn, sys.now_ns());
		vhost_flush(h);
		vhost_unlock(h);
	}
	vevents_drop(id);
	sys.free(id);
}

int vid_option(struct verbs_id *id, enum verbs_id_option option, int value)
{
	switch (option) {
	case VERBS_ID_REUSEADDR:
		id->reuse = value;
		return 0;
	case VERBS_ID_AFONLY:
		id->afonly = value;
		return 0;
	default:
		return -EINVAL;
	}
}

struct verbs_device *vid_device(struct verbs_id *id)
{
	return id->dev;
}

int vid_name(struct verbs_id *id, int peer, struct sockaddr *a, socklen_t *n)
{
	const struct sockaddr_storage *ss = peer ? &id->peer : &id->local;
	socklen_t len = peer ? id->peer_len : id->local_len;

	if (!len)
		return -ENOTCONN;
	memcpy(a, ss, *n < len ? *n : len);
	*n = len;
	return 0;
}

/* --- binding ------------------------------------------------------------------------------------ */

/* `sole`: nobody else may have it, whatever the id allows. */
static int take_one(const struct verbs_id *id, struct vhost *h, uint16_t port, bool sole)
{
	int rc = 0;

	if ((h->ports[port] && (sole || !id->reuse)) || h->ports[port] == UINT16_MAX)
		return -EADDRINUSE;
	/* Ports to connect from are the active side's: nobody asks for them. */
	if (!id->chosen)
		rc = vshare_take_port(h, port);
	h->ports[port] += !rc;
	return rc;
}

static void leave_one(const struct verbs_id *id, struct vhost *h, uint16_t port)
{
	h->ports[port]--;
	if (!id->chosen)
		vshare_leave_port(h, port);
}

/* Takes the port on all hosts of the id, or on none. */
static int take_port(const struct verbs_id *id, uint16_t port, bool sole)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < id->non && !rc; i++) {
		struct vhost *h = id->on[i].dev->host;

		vhost_lock(h);
		rc = take_one(id, h, port, sole);
		vhost_unlock(h);
	}
	if (!rc)
		return 0;
	for (i--; i-- > 0;) {
		struct vhost *h = id->on[i].dev->host;

		vhost_lock(h);
		leave_one(id, h, port);
		vhost_unlock(h);
	}
	return rc;
}

static int choose_port(const struct verbs_id *id, uint16_t *port)
{
	uint32_t start = rnd32(), i, range = 65536 - FIRST_PORT;
	int rc = -EADDRINUSE;

	for (i = 0; i < range && rc == -EADDRINUSE; i++) {
		*port = (uint16_t)(FIRST_PORT + (start + i) % range);
		rc = take_port(id, *port, true);
	}
	return rc;
}

static int on_address(struct verbs_id *id, const struct vaddr *a, bool quiet)
{
	struct vlisten *on = &id->on[id->non];
	int rc = vdevice_get(id->v, a, quiet, &on->dev);

	if (rc)
		return rc;
	on->id = id;
	on->l = NULL;
	id->non++;
	return 0;
}

/* On all addresses, but those that another process has. */
static int on_any(struct verbs_id *id, int family)
{
	struct vaddr a[VRNIC_ADDRESSES];
	int n = vaddr_list(a, VRNIC_ADDRESSES), i, rc = -EADDRNOTAVAIL, one;

	for (i = 0; i < n; i++) {
		bool v4 = wire_gid_is_v4(a[i].gid);

		if (family == AF_INET ? !v4 : (v4 && id->afonly))
			continue;
		one = on_address(id, &a[i], true);
		if (one && rc != -EADDRINUSE)
			rc = one;
	}
	return n < 0 ? n : id->non ? 0 : rc;
}

int vid_bind(struct verbs_id *id, const struct sockaddr *a, socklen_t n)
{
	uint8_t gid[16] = { 0 };
	uint32_t scope = 0;
	uint16_t port = 0;
	struct vaddr at;
	int rc;

	if (id->bound || id->conn)
		return -EINVAL;
	rc = vaddr_from_sockaddr(a, n, gid, &scope, &port, &id->any);
	if (rc)
		return rc;
	id->non = 0;
	if (id->any)
		rc = on_any(id, a->sa_family);
	else if (!(rc = vaddr_find(gid, scope, &at)))
		rc = on_address(id, &at, false);
	if (!rc)
		rc = port ? take_port(id, port, false) : choose_port(id, &port);
	if (rc) {
		id->non = 0;
		return rc;
	}
	id->bound = true;
	id->port = port;
	id->local_len = vaddr_to_sockaddr(gid, scope, port, a->sa_family, &id->local);
	if (!id->any)
		id->dev = id->on[0].dev;
	return 0;
}

int vid_listen(struct verbs_id *id, int backlog)
{
	static const uint8_t any[16];
	unsigned i;
	int rc = 0;

	if (!id->bound)
		return -EINVAL;
	for (i = 0; i < id->non && !rc; i++) {
		struct vlisten *on = &id->on[i];
		struct vhost *h = on->dev->host;

		vhost_lock(h);
		if (!on->l)
			rc = rnic_cm_listen(h->cm, WIRE_RDMACM_PS_TCP, any, id->port,
					    backlog > 0 ? (unsigned)backlog : 1, on, &on->l);
		vhost_unlock(h);
	}
	if (!rc)
		return 0;
	for (i = 0; i < id->non; i++) {
		struct vhost *h = id->on[i].dev->host;

		vhost_lock(h);
		if (id->on[i].l)
			rnic_cm_unlisten(id->on[i].l);
		id->on[i].l = NULL;
		vhost_unlock(h);
	}
	/* Peers may have been faster. */
	refuse_untaken(id);
	return rc;
}

/* --- resolving ---------------------------------------------------------------------------------- */

/*
 * A peer on this machine whose address another process serves: UDP port 4791 can be had once for each address, but the
 * loopback network has addresses enough.
 */
static int from_loopback(struct verbs *v, struct verbs_device **out)
{
	struct vaddr a;
	uint8_t gid[16];
	const uint8_t first[4] = { 127, 0, 0, 1 };
	uint32_t host = (uint32_t)getpid() * 2654435761u >> 8;
	int rc, i;

	wire_gid_from_v4(gid, first);
	rc = vaddr_find(gid, 0, &a);
	if (rc)
		return rc;
	rc = -EADDRINUSE;
	for (i = 0; i < LOOPBACK_TRIES && rc == -EADDRINUSE; i++, host++) {
		a.gid[13] = (uint8_t)(1 + host / 254 / 254 % 254);
		a.gid[14] = (uint8_t)(host / 254 % 254);
		a.gid[15] = (uint8_t)(1 + host % 254);
		rc = vdevice_get(v, &a, true, out);
	}
	return rc;
}

static int device_toward(struct verbs *v, const struct sockaddr *a, socklen_t n,
			 const uint8_t gid[16], struct verbs_device **out)
{
	bool near = wire_gid_is_v4(gid) && vaddr_is_local(gid);
	struct vaddr from;
	int rc = vaddr_toward(a, n, &from);

	if (!rc)
		rc = vdevice_get(v, &from, near, out);
	if (rc == -EADDRINUSE && near)
		rc = from_loopback(v, out);
	return rc;
}

static int bind_toward(struct verbs_id *id, const struct sockaddr *a, socklen_t n,
		       const uint8_t gid[16])
{
	const struct vaddr *from;
	uint16_t port;
	int rc;

	rc = device_toward(id->v, a, n, gid, &id->dev);
	if (rc || id->bound)
		return rc;
	id->on[0] = (struct vlisten){ id, id->dev, NULL };
	id->non = 1;
	id->chosen = true;
	rc = choose_port(id, &port);
	if (rc) {
		id->non = 0;
		id->dev = NULL;
		id->chosen = false;
		return rc;
	}
	id->bound = true;
	id->port = port;
	from = &id->dev->host->addr;
	id->local_len = vaddr_to_sockaddr(from->gid, from->scope, port, a->sa_family, &id->local);
	return 0;
}

/* Resolved is it when its path MTU is known, too. */
static void find_mtu(struct verbs_id *id, const uint8_t gid[16], uint32_t scope)
{
	struct vhost *h = id->dev->host;

	vhost_lock(h);
	if (!vprobe_start(h, id, gid, scope, sys.now_ns()))
		vevent_put(&id->ev[VID_RESOLVED], VERBS_EVENT_RESOLVED, 0, 0);
	vhost_flush(h);
	vhost_unlock(h);
}

int vid_resolve(struct verbs_id *id, const struct sockaddr *a, socklen_t n, unsigned timeout_ms)
{
	uint8_t gid[16];
	uint32_t scope;
	uint16_t port;
	bool any;
	int rc;

	if (id->conn || id->peer_len)
		return -EINVAL;
	rc = vaddr_from_sockaddr(a, n, gid, &scope, &port, &any);
	if (rc)
		return rc;
	if (any)
		return -EINVAL;
	if (!id->dev)
		rc = bind_toward(id, a, n, gid);
	else if (wire_gid_is_v4(gid) != wire_gid_is_v4(id->dev->host->addr.gid))
		rc = -EAFNOSUPPORT;
	if (rc) {
		vevent_put(&id->ev[VID_RESOLVED], VERBS_EVENT_UNREACHABLE, rc, 0);
		return 0;
	}
	id->peer_len = vaddr_to_sockaddr(gid, scope, port, a->sa_family, &id->peer);
	find_mtu(id, gid, scope);
	return 0;
}

/* --- connecting --------------------------------------------------------------------------------- */

static struct rnic_cm_qp mine_of(struct verbs_id *id, const struct verbs_conn_param *p)
{
	id->param = *p;
	if (!id->param.ack_timeout)
		id->param.ack_timeout = VRNIC_ACK_TIMEOUT;
	id->my_psn = rnd32() & WIRE_PSN_MASK;
	return (struct rnic_cm_qp){ .qpn = rnic_qp_num(id->qp->qp),
				    .psn = id->my_psn,
				    .responder_resources = p->responder_resources,
				    .initiator_depth = p->initiator_depth,
				    .retry = p->retry,
				    .rnr_retry = p->rnr_retry,
				    .flow_control = p->flow_control,
				    .mtu = id->mtu_code,
				    .ack_timeout = id->param.ack_timeout };
}

int vid_connect(struct verbs_id *id, const struct verbs_conn_param *p)
{
	struct rnic_cm_route to = { .port_space = WIRE_RDMACM_PS_TCP };
	uint16_t sport;
	struct rnic_cm_qp mine;
	struct vhost *h;
	uint32_t scope;
	bool any;
	int rc;

	if (!id->peer_len || !id->qp || id->conn || id->passive ||
	    p->private_len > VERBS_PRIVATE_REQ)
		return -EINVAL;
	h = id->dev->host;
	vaddr_from_sockaddr((struct sockaddr *)&id->local, id->local_len, to.path.src, &scope,
			    &sport, &any);
	vaddr_from_sockaddr((struct sockaddr *)&id->peer, id->peer_len, to.path.dst, &scope,
			    &to.dport, &any);
	memcpy(to.path.src, h->addr.gid, 16);
	to.sport = sport;
	/* It sets the UDP source ports of both sides, so it differs from connection to connection. */
	to.path.flow = (rnd32() & FLOW_MASK) | 1;
	mine = mine_of(id, p);
	vhost_lock(h);
	rc = rnic_cm_connect(h->cm, &to, &mine, p->private_data, p->private_len, id, &id->conn,
			     sys.now_ns());
	vhost_flush(h);
	vhost_unlock(h);
	return rc;
}

int vid_accept(struct verbs_id *id, const struct verbs_conn_param *p)
{
	struct rnic_cm_qp mine;
	struct vhost *h;
	uint64_t now;
	int rc;

	if (!id->passive || !id->qp || p->private_len > VERBS_PRIVATE_MAX)
		return -EINVAL;
	h = id->dev->host;
	mine = mine_of(id, p);
	vhost_lock(h);
	now = sys.now_ns();
	rc = vqp_connect(id->qp, now);
	if (!rc)
		rc = rnic_cm_accept(id->conn, &mine, p->private_data, p->private_len, now)
			     ? -ECONNRESET
			     : 0; /* the peer has given up */
	if (!rc)
		list_add_tail(&h->waiting, &id->waiting);
	vhost_flush(h);
	vhost_unlock(h);
	return rc;
}

int vid_reject(struct verbs_id *id, const void *private_data, uint8_t n)
{
	struct vhost *h;
	int rc;

	if (!id->passive)
		return -EINVAL;
	h = id->dev->host;
	vhost_lock(h);
	rc = rnic_cm_reject(id->conn, WIRE_REJ_CONSUMER, private_data,
			    n < WIRE_CM_REJ_PRIV ? n : WIRE_CM_REJ_PRIV, sys.now_ns());
	vhost_flush(h);
	vhost_unlock(h);
	return rc;
}

int vid_disconnect(struct verbs_id *id)
{
	struct vhost *h;
	int rc;

	if (!id->conn)
		return -ENOTCONN;
	h = id->dev->host;
	vhost_lock(h);
	if (id->qp) {
		/* What is acknowledged has been delivered: the peer hears so before the end. */
		vhost_flush(h);
		vqp_fail(id->qp, sys.now_ns());
	}
	rc = rnic_cm_disconnect(id->conn, sys.now_ns());
	vhost_flush(h);
	vhost_unlock(h);
	return rc == -EINVAL ? -ENOTCONN : 0;
}

/* --- what the CM tells -------------------------------------------------------------------------- */

static struct verbs_conn_param param_of(const struct rnic_cm_event *ev)
{
	const struct rnic_cm_qp *q = &ev->peer;
	struct verbs_conn_param p = { .retry = q->retry,
				      .rnr_retry = q->rnr_retry,
				      .ack_timeout = q->ack_timeout,
				      .responder_resources = q->initiator_depth,
				      .initiator_depth = q->responder_resources,
				      .flow_control = q->flow_control };
	size_t n = ev->priv_len < VERBS_PRIVATE_MAX ? ev->priv_len : VERBS_PRIVATE_MAX;

	p.private_len = (uint8_t)n;
	if (n)
		memcpy(p.private_data, ev->priv, n);
	return p;
}

static int hear_request(const struct rnic_cm_event *ev)
{
	struct vlisten *on = ev->user;
	struct verbs_id *l = on->id, *id = new_id(l->v);
	const struct rnic_cm_route *r = rnic_cm_route(ev->conn);
	uint32_t scope = on->dev->host->addr.scope;
	int family = wire_gid_is_v4(r->path.src) ? AF_INET : AF_INET6;
	struct verbs_conn_param param;

	if (!id)
		return -ENOMEM;
	id->passive = true;
	id->dev = on->dev;
	id->conn = ev->conn;
	id->theirs = ev->peer;
	id->local_len = vaddr_to_sockaddr(r->path.src, scope, r->sport, family, &id->local);
	id->peer_len = vaddr_to_sockaddr(r->path.dst, scope, r->dport, family, &id->peer);
	rnic_cm_set_user(ev->conn, id);
	param = param_of(ev);
	vevent_put_request(l, id, &param);
	return 0;
}

/* The connection is over, or never came to be. */
static void hear_end(struct verbs_id *id, const struct rnic_cm_event *ev)
{
	bool answer = !id->passive && ev->type != RNIC_CM_DISCONNECTED;
	struct vevent *to = &id->ev[answer ? VID_ANSWER : VID_END];
	bool late = ev->reason == WIRE_REJ_TIMEOUT;
	struct verbs_conn_param param;

	list_del(&id->waiting);
	if (id->qp)
		vqp_fail(id->qp, sys.now_ns());
	if (!answer) {
		vevent_put(to, VERBS_EVENT_DISCONNECTED, 0, 0);
	} else if (ev->type == RNIC_CM_UNREACHABLE) {
		vevent_put(to, VERBS_EVENT_UNREACHABLE, ev->status, 0);
	} else {
		param = param_of(ev);
		vevent_put_param(to, VERBS_EVENT_REJECTED, late ? -ETIMEDOUT : -ECONNREFUSED,
				 ev->reason, &param);
	}
}

int vid_hear(void *ctx, const struct rnic_cm_event *ev)
{
	struct verbs_id *id = ev->user;
	struct verbs_conn_param param;

	(void)ctx;

	switch (ev->type) {
	case RNIC_CM_REQUEST:
		return hear_request(ev);
	case RNIC_CM_RESPONSE:
		/* The queue pair gets ready when this is taken, so that nothing arrives before. */
		id->theirs = ev->peer;
		param = param_of(ev);
		vevent_put_param(&id->ev[VID_ANSWER], VERBS_EVENT_ESTABLISHED, 0, 0, &param);
		break;
	case RNIC_CM_ESTABLISHED:
		list_del(&id->waiting);
		vevent_put(&id->ev[VID_ANSWER], VERBS_EVENT_ESTABLISHED, 0, 0);
		break;
	case RNIC_CM_REJECTED:
	case RNIC_CM_UNREACHABLE:
	case RNIC_CM_DISCONNECTED:
		hear_end(id, ev);
		break;
	default:
		break;
	}
	return 0;
}

int vid_finish_connect(struct verbs_id *id)
{
	struct vhost *h = id->dev->host;
	uint64_t now = sys.now_ns();
	int rc = -EINVAL;

	vhost_lock(h);
	if (id->qp)
		rc = vqp_connect(id->qp, now);
	/* If the peer has given up meanwhile that is why, and why the queue pair is in error. */
	if (rc ? rnic_cm_reject(id->conn, WIRE_REJ_CONSUMER, NULL, 0, now)
	       : rnic_cm_establish(id->conn, now))
		rc = -ECONNRESET;
	vhost_flush(h);
	vhost_unlock(h);
	return rc;
}

void vid_work(struct vhost *h, uint64_t now)
{
	struct list *l, *next;

	for (l = h->waiting.next; l != &h->waiting; l = next) {
		struct verbs_id *id = list_entry(l, struct verbs_id, waiting);

		next = l->next;
		if (id->qp && rnic_qp_established(id->qp->qp))
			rnic_cm_data_seen(id->conn, now);
	}
}
