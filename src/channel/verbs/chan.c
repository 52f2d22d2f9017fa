/* SPDX-License-Identifier: BSD-3-Clause */
/* The channel's table. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include <gpunet/dev/abi/bus.h>

#include "base/sys.h"
#include "channel/verbs/rdc.h"

#define BACKLOG_MAX 1024

static const struct channel_ops rdc_ops;

struct rdc *rdc_new(struct rdc_thread *t, int domain)
{
	struct rdc *c = sys.alloc(sizeof(*c));

	if (!c)
		return NULL;
	c->base.ops = &rdc_ops;
	c->net = t->net;
	c->t = t;
	c->domain = domain;
	c->rx_seg = c->tx_seg = c->near_rx = c->near_tx = -1;
	c->slot = UINT32_MAX;
	c->keep_s = RDC_KEEP_S;
	c->reuseaddr =
		true; /* as the other transports: a server's port can be bound again at once */
	list_init(&c->timed_link);
	list_init(&c->hand_link);
	list_init(&c->dirty_link);
	list_init(&c->held_link);
	list_init(&c->requests);
	list_init(&c->request_link);
	return c;
}

static void grave_free(struct proxy_grave *g)
{
	sys.free(list_entry(g, struct rdc, grave));
}

void rdc_free(struct rdc *c)
{
	rdc_untime(c);
	list_del(&c->dirty_link);
	list_del(&c->held_link);
	rdc_teardown(c);
	if (c->id)
		c->net->use.ops->id_destroy(c->id);
	c->id = NULL;
	c->grave.fn = grave_free;
	proxy_bury(c->t->pt, &c->grave);
}

void rdc_tell(struct rdc *c, unsigned events)
{
	c->news |= events;
	if (list_empty(&c->dirty_link))
		list_add_tail(&c->t->dirty, &c->dirty_link);
}

int rdc_create(struct rdc_net *n, struct proxy_thread *t, int domain, int type,
	       struct channel **out)
{
	struct rdc *c;
	int rc;

	if (domain != AF_INET && domain != AF_INET6)
		return -EAFNOSUPPORT;
	if (type != SOCK_STREAM)
		return -ESOCKTNOSUPPORT;
	rc = rdc_net_ready(n);
	if (rc)
		return rc;
	c = rdc_new(rdc_thread_of(n, t), domain);
	if (!c)
		return -ENOMEM;
	*out = &c->base;
	return 0;
}

/* ---- the table ---------------------------------------------------------------------------------------------------------------- */

static int op_bind(struct channel *ch, const struct sockaddr *a, socklen_t n)
{
	struct rdc *c = rdc_of(ch);
	int rc;

	if (c->state != RDC_FRESH || c->bound_len)
		return -EINVAL;
	if (a->sa_family != c->domain)
		return -EAFNOSUPPORT;
	if (n > sizeof(c->bound))
		return -EINVAL;
	memcpy(&c->bound, a, n);
	c->bound_len = n;
	rc = rdc_id(c);
	if (rc)
		c->bound_len = 0;
	return rc;
}

static int op_listen(struct channel *ch, int backlog)
{
	struct rdc *c = rdc_of(ch);
	int rc;

	if (c->state != RDC_FRESH && c->state != RDC_LISTENING)
		return -EINVAL;
	c->backlog = backlog < 1 ? 1 : backlog > BACKLOG_MAX ? BACKLOG_MAX : (unsigned)backlog;
	if (c->state == RDC_LISTENING)
		return 0;
	if (!c->bound_len) {
		memset(&c->bound, 0, sizeof(c->bound));
		c->bound.ss_family = (sa_family_t)c->domain;
		c->bound_len = c->domain == AF_INET ? sizeof(struct sockaddr_in)
						    : sizeof(struct sockaddr_in6);
	}
	rc = rdc_id(c);
	if (!rc)
		rc = c->net->use.ops->listen(c->id, (int)c->backlog);
	if (!rc)
		c->state = RDC_LISTENING;
	return rc;
}

static int op_connect(struct channel *ch, const struct sockaddr *a, socklen_t n)
{
	return rdc_connect(rdc_of(ch), a, n);
}

static int op_connect_result(struct channel *ch)
{
	struct rdc *c = rdc_of(ch);

	if (c->state == RDC_RESOLVING || c->state == RDC_CONNECTING)
		return -EINPROGRESS;
	return c->state == RDC_OPEN ? 0 : -c->err;
}

/* A request whose peer has gone meanwhile is passed over. Without segments it waits where it is. */
static int op_accept(struct channel *ch, struct channel **out)
{
	struct rdc *l = rdc_of(ch), *c;
	int rc;

	while (!list_empty(&l->requests)) {
		c = list_entry(l->requests.next, struct rdc, request_link);
		rc = c->err ? 0 : rdc_take_segments(c);
		if (rc) /* -EAGAIN would say that nobody waits */
			return -ENOBUFS;
		list_del(&c->request_link);
		l->n_requests--;
		if (c->err) {
			rdc_free(c);
			continue;
		}
		rdc_take_near(c);
		*out = &c->base;
		return 0;
	}
	return -EAGAIN;
}

/* What has been said cannot be taken back, so the second half of a close says that both are over. */
static int op_shutdown(struct channel *ch, int how)
{
	struct rdc *c = rdc_of(ch);

	if (c->state != RDC_OPEN && c->state != RDC_REQUESTED)
		return -ENOTCONN;
	if (how == SHUT_RD) {
		c->rx_shut = true;
		return 0;
	}
	return rdc_say(c, c->rx_end || c->rx_shut ? WIRE_RSOCK_DISCONNECT : WIRE_RSOCK_SHUTDOWN);
}

static int op_name_of(struct channel *ch, int peer, struct sockaddr *a, socklen_t *n)
{
	struct rdc *c = rdc_of(ch);
	const struct sockaddr_storage *s = peer ? &c->peer : &c->bound;
	socklen_t len =
		c->domain == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	struct sockaddr_storage none = { .ss_family = (sa_family_t)c->domain };

	if (peer && (c->state == RDC_FRESH || c->state == RDC_LISTENING || c->state == RDC_FAILED))
		return -ENOTCONN;
	if (!peer && c->id && !c->net->use.ops->id_name(c->id, 0, a, n))
		return 0;
	if (!s->ss_family)
		s = &none;
	memcpy(a, s, len < *n ? len : *n);
	*n = len;
	return 0;
}

/* ---- options ------------------------------------------------------------------------------------------------------------------ */

static int get_int(const void *v, socklen_t n, int *out)
{
	if (n < sizeof(*out))
		return -EINVAL;
	memcpy(out, v, sizeof(*out));
	return 0;
}

static int op_set_option(struct channel *ch, int level, int name, const void *v, socklen_t n)
{
	struct rdc *c = rdc_of(ch);
	int value = 0, rc = get_int(v, n, &value);

	if (rc)
		return rc;
	if (level == SOL_SOCKET && name == SO_REUSEADDR)
		c->reuseaddr = value != 0;
	else if (level == SOL_SOCKET && name == SO_KEEPALIVE)
		c->keepalive = value != 0;
	else if (level == IPPROTO_TCP && name == TCP_KEEPIDLE && value > 0 && value <= 32767)
		c->keep_s = (unsigned)value;
	else if (level == IPPROTO_TCP && name == TCP_KEEPIDLE)
		return -EINVAL;
	else if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY && c->domain == AF_INET6)
		c->v6only = value != 0;
	else if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF))
		return 0; /* the rings are what they are: option segment_bytes */
	else if (level == IPPROTO_TCP && name == TCP_NODELAY)
		return 0; /* there is no delay to turn off */
	else
		return -ENOPROTOOPT;
	rdc_keep(c);
	return 0;
}

static int value_of(const struct rdc *c, int level, int name, int *value)
{
	if (level == SOL_SOCKET) {
		switch (name) {
		case SO_TYPE:
			*value = SOCK_STREAM;
			return 0;
		case SO_DOMAIN:
			*value = c->domain;
			return 0;
		case SO_PROTOCOL:
			*value = GNET_PROTO_RDMA;
			return 0;
		case SO_ACCEPTCONN:
			*value = c->state == RDC_LISTENING;
			return 0;
		case SO_REUSEADDR:
			*value = c->reuseaddr;
			return 0;
		case SO_KEEPALIVE:
			*value = c->keepalive;
			return 0;
		case SO_RCVBUF:
		case SO_SNDBUF:
			*value = 1 << c->net->p.seg_log2;
			return 0;
		default:
			return -ENOPROTOOPT;
		}
	}
	if (level == IPPROTO_TCP && (name == TCP_NODELAY || name == TCP_KEEPIDLE)) {
		*value = name == TCP_NODELAY ? 1 : (int)c->keep_s;
		return 0;
	}
	if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY && c->domain == AF_INET6) {
		*value = c->v6only;
		return 0;
	}
	return -ENOPROTOOPT;
}

static int op_get_option(struct channel *ch, int level, int name, void *v, socklen_t *n)
{
	int value = 0, rc = value_of(rdc_of(ch), level, name, &value);

	if (rc)
		return rc;
	if (*n > sizeof(value))
		*n = sizeof(value);
	memcpy(v, &value, *n);
	return 0;
}

/* ---- start and end ------------------------------------------------------------------------------------------------------------ */

/* A request is answered by the thread that owns it from now on. */
static int op_start(struct channel *ch, struct proxy_thread *pt)
{
	struct rdc *c = rdc_of(ch);
	struct rdc_thread *t = rdc_thread_of(c->net, pt);

	if (c->state != RDC_REQUESTED)
		return 0;
	if (t == c->t)
		rdc_adopt(c);
	else
		rdc_hand_over(c, t);
	return 0;
}

static void op_close(struct channel *ch, int abort)
{
	rdc_close(rdc_of(ch), abort);
}

static void op_segments(struct channel *ch, int *rx, int *tx)
{
	struct rdc *c = rdc_of(ch);

	*rx = c->near_rx >= 0 ? c->near_rx | (int)GNET_SEG_NEAR : c->rx_seg;
	*tx = c->tx_seg;
}

static int op_attach(struct channel *ch, uint64_t pos)
{
	struct rdc *c = rdc_of(ch);

	c->attached = true;
	if (c->near_tx < 0)
		return c->tx_seg;
	if (c->near_from > pos)
		c->near_from = pos;
	return c->near_tx | (int)GNET_SEG_NEAR;
}

static const struct channel_ring_ops rdc_ring_ops = {
	.segments = op_segments,
	.attach = op_attach,
	.recv = rdc_ring_recv,
	.send = rdc_ring_send,
	.hurry = rdc_hurry,
};

static const struct channel_ops rdc_ops = {
	.name = "rdma",
	.ring = &rdc_ring_ops,
	.bind = op_bind,
	.listen = op_listen,
	.connect = op_connect,
	.connect_result = op_connect_result,
	.accept = op_accept,
	.shutdown = op_shutdown,
	.name_of = op_name_of,
	.set_option = op_set_option,
	.get_option = op_get_option,
	.start = op_start,
	.close = op_close,
};
