/* SPDX-License-Identifier: BSD-3-Clause */
/* The CM's connections, listeners and timers, and the calls of its user. */
#include "rnic/cm_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/sys.h"

#define NEVER UINT64_MAX

static uint64_t random_default(void *ctx)
{
	uint64_t v;

	(void)ctx;
	while (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
		;
	return v;
}

#define DEFAULT(field, value)             \
	do {                              \
		if (!c->field)            \
			c->field = value; \
	} while (0)

static int config_complete(struct rnic_cm_config *c)
{
	DEFAULT(max_conns, 4096);
	DEFAULT(max_half_open, c->max_conns < 1024 ? c->max_conns : 1024);
	DEFAULT(max_half_open_peer, c->max_half_open < 256 ? c->max_half_open : 256);
	DEFAULT(max_mtu, 5);
	DEFAULT(resend_ns, 250000000);
	DEFAULT(resend_max_ns, 4000000000);
	DEFAULT(resends, 7);
	DEFAULT(answer_ns, 30000000000);
	DEFAULT(timewait_ns, 1000000000);
	DEFAULT(random, random_default);
	/* The number 0 means none. */
	return c->max_conns > 32768 || c->max_mtu > 5 || !c->send || !c->event ? -EINVAL : 0;
}

int rnic_cm_open(struct rnic_cm **out, const struct rnic_cm_config *cfg)
{
	struct rnic_cm *cm = sys.alloc(sizeof(*cm));
	uint32_t i;

	if (!cm)
		return -ENOMEM;
	cm->cfg = *cfg;
	list_init(&cm->timed);
	list_init(&cm->listeners);
	cm->next = NEVER;
	if (config_complete(&cm->cfg)) {
		rnic_cm_close(cm);
		return -EINVAL;
	}
	for (cm->slots = 1; cm->slots < cm->cfg.max_conns; cm->slots *= 2)
		;
	cm->conn = sys.alloc(cm->slots * sizeof(*cm->conn));
	cm->by_peer = sys.alloc(cm->slots * sizeof(struct rnic_cm_conn *));
	if (!cm->conn || !cm->by_peer) {
		rnic_cm_close(cm);
		return -ENOMEM;
	}
	for (i = cm->cfg.max_conns; i-- > 0;) {
		cm->conn[i].cm = cm;
		cm->conn[i].next_free = cm->free;
		list_init(&cm->conn[i].timed);
		cm->free = &cm->conn[i];
	}
	*out = cm;
	return 0;
}

void rnic_cm_close(struct rnic_cm *cm)
{
	while (!list_empty(&cm->listeners)) {
		struct rnic_cm_listener *l =
			list_entry(cm->listeners.next, struct rnic_cm_listener, link);

		list_del(&l->link);
		sys.free(l);
	}
	sys.free(cm->conn);
	sys.free(cm->by_peer);
	sys.free(cm);
}

const struct rnic_cm_counters *rnic_cm_counters(const struct rnic_cm *cm)
{
	return &cm->ctr;
}

/* --- timers ------------------------------------------------------------------------------------- */

void cm_timer(struct rnic_cm_conn *c, uint64_t at)
{
	list_del(&c->timed);
	c->at = at;
	if (at == NEVER)
		return;
	list_add_tail(&c->cm->timed, &c->timed);
	if (at < c->cm->next)
		c->cm->next = at;
}

/* Doubled with each try. */
static uint64_t patience(const struct rnic_cm_conn *c)
{
	const struct rnic_cm_config *cfg = &c->cm->cfg;
	uint64_t ns = cfg->resend_ns;
	unsigned i;

	for (i = 0; i < c->tries && ns < cfg->resend_max_ns; i++)
		ns *= 2;
	return ns < cfg->resend_max_ns ? ns : cfg->resend_max_ns;
}

void cm_await(struct rnic_cm_conn *c, enum cm_state state, uint64_t now)
{
	c->state = state;
	c->tries = 0;
	cm_timer(c, now + patience(c));
}

void cm_timewait(struct rnic_cm_conn *c, uint64_t now)
{
	cm_half_open_end(c);
	c->state = CM_TIMEWAIT;
	cm_timer(c, now + c->cm->cfg.timewait_ns);
}

/* Nobody answered for too long (-ETIMEDOUT), or nobody is there. */
static void give_up(struct rnic_cm_conn *c, int status, uint64_t now)
{
	struct rnic_cm_event ev = { .type = RNIC_CM_UNREACHABLE, .status = status };
	enum cm_state was = c->state;

	c->cm->ctr.unreachable += was != CM_DREQ_SENT;
	if (status == -ETIMEDOUT && (was == CM_REP_SENT || was == CM_REQ_SENT))
		cm_send_rej(c, was == CM_REQ_SENT ? WIRE_CM_MSG_REQ : WIRE_CM_MSG_REP,
			    WIRE_REJ_TIMEOUT, NULL, 0, now);
	c->mad_attr = 0;
	if (was == CM_DREQ_SENT)
		ev.type = RNIC_CM_DISCONNECTED;
	cm_tell(c, &ev);
	cm_timewait(c, now);
}

static int nobody(const struct rnic_cm_conn *c)
{
	const struct rnic_cm_config *cfg = &c->cm->cfg;

	return cfg->nobody && (c->state == CM_REQ_SENT || c->state == CM_SIDR_SENT)
		       ? cfg->nobody(cfg->ctx, &c->route.path)
		       : 0;
}

static void repeat(struct rnic_cm_conn *c, uint64_t now)
{
	int status = c->tries++ < c->cm->cfg.resends ? nobody(c) : -ETIMEDOUT;

	if (status) {
		give_up(c, status, now);
		return;
	}
	cm_timer(c, now + patience(c));
	cm_resend(c, now);
}

static void expire(struct rnic_cm_conn *c, uint64_t now)
{
	const struct rnic_cm_event late = { .type = RNIC_CM_UNREACHABLE, .status = -ETIMEDOUT };

	cm_timer(c, NEVER);
	switch (c->state) {
	case CM_REQ_SENT:
	case CM_REP_SENT:
	case CM_DREQ_SENT:
	case CM_SIDR_SENT:
		repeat(c, now);
		break;
	case CM_REQ_RCVD:
	case CM_SIDR_RCVD:
	case CM_REP_RCVD:
		/* Our own side did not answer. */
		rnic_cm_reject(c, WIRE_REJ_TIMEOUT, NULL, 0, now);
		cm_tell(c, &late);
		break;
	case CM_TIMEWAIT:
		c->state = CM_OVER;
		cm_tell_type(c, RNIC_CM_TIMEWAIT_EXIT);
		if (c->released)
			cm_conn_free(c);
		break;
	default:
		break;
	}
}

uint64_t rnic_cm_step(struct rnic_cm *cm, uint64_t now)
{
	struct list *l, *next;
	struct list due;

	if (now < cm->next)
		return cm->next;
	/* Those due first: what they do may put them, or others, into the list anew. */
	list_init(&due);
	cm->next = NEVER;
	for (l = cm->timed.next; l != &cm->timed; l = next) {
		struct rnic_cm_conn *c = list_entry(l, struct rnic_cm_conn, timed);

		next = l->next;
		if (c->at > now) {
			cm->next = c->at < cm->next ? c->at : cm->next;
			continue;
		}
		list_del(l);
		list_add_tail(&due, l);
	}
	while (!list_empty(&due))
		expire(list_entry(due.next, struct rnic_cm_conn, timed), now);
	return cm->next;
}

uint64_t rnic_cm_next(const struct rnic_cm *cm)
{
	return cm->next;
}

bool rnic_cm_ending(const struct rnic_cm *cm)
{
	const struct list *l;

	for (l = cm->timed.next; l != &cm->timed; l = l->next)
		if (list_entry(l, struct rnic_cm_conn, timed)->state == CM_DREQ_SENT)
			return true;
	return false;
}

/* --- connections -------------------------------------------------------------------------------- */

static uint32_t hash(const struct rnic_cm *cm, const uint8_t gid[16], uint32_t id)
{
	uint32_t h = id * 2654435761u;
	int i;

	for (i = 0; i < 16; i++)
		h = (h ^ gid[i]) * 16777619u;
	return (h ^ h >> 15) & (cm->slots - 1);
}

void cm_conn_hash(struct rnic_cm_conn *c)
{
	struct rnic_cm_conn **at = &c->cm->by_peer[hash(c->cm, c->route.path.dst, c->remote_id)];

	c->next_same = *at;
	*at = c;
}

static void conn_unhash(struct rnic_cm_conn *c)
{
	struct rnic_cm_conn **at = &c->cm->by_peer[hash(c->cm, c->route.path.dst, c->remote_id)];

	while (*at && *at != c)
		at = &(*at)->next_same;
	if (*at)
		*at = c->next_same;
}

struct rnic_cm_conn *cm_conn_of_peer(struct rnic_cm *cm, const uint8_t gid[16], uint32_t remote_id,
				     bool datagram)
{
	struct rnic_cm_conn *c;

	for (c = cm->by_peer[hash(cm, gid, remote_id)]; c; c = c->next_same)
		if (c->remote_id == remote_id && memcmp(c->route.path.dst, gid, 16) == 0 &&
		    (c->route.port_space == WIRE_RDMACM_PS_UDP) == datagram && c->state != CM_OVER)
			return c;
	return NULL;
}

struct rnic_cm_conn *cm_conn_find(struct rnic_cm *cm, uint32_t local_id)
{
	struct rnic_cm_conn *c = &cm->conn[local_id & (cm->slots - 1)];

	return c->state != CM_FREE && c->local_id == local_id ? c : NULL;
}

/* One that is over and that nobody holds any more gives its slot to a new one. */
static void recycle(struct rnic_cm *cm)
{
	struct list *l;

	for (l = cm->timed.next; l != &cm->timed; l = l->next) {
		struct rnic_cm_conn *c = list_entry(l, struct rnic_cm_conn, timed);

		if (c->state == CM_TIMEWAIT && c->released) {
			cm_conn_free(c);
			return;
		}
	}
}

struct rnic_cm_conn *cm_conn_new(struct rnic_cm *cm, const struct rnic_path *path)
{
	struct rnic_cm_conn *c;
	uint64_t v;

	if (!cm->free)
		recycle(cm);
	c = cm->free;
	if (!c)
		return NULL;
	cm->free = c->next_free;
	memset(c, 0, sizeof(*c));
	c->cm = cm;
	list_init(&c->timed);
	c->route.path = *path;
	do {
		v = cm->cfg.random(cm->cfg.ctx);
		c->local_id = ((uint32_t)v & ~(cm->slots - 1)) | (uint32_t)(c - cm->conn);
		if (cm->cfg.prefixed)
			c->local_id = (c->local_id & 0xffffff) | (uint32_t)cm->cfg.prefix << 24;
	} while (!c->local_id);
	c->tid = cm->cfg.random(cm->cfg.ctx);
	return c;
}

void cm_conn_free(struct rnic_cm_conn *c)
{
	cm_timer(c, NEVER);
	cm_half_open_end(c);
	if (c->passive)
		conn_unhash(c);
	c->state = CM_FREE;
	c->next_free = c->cm->free;
	c->cm->free = c;
}

void cm_half_open(struct rnic_cm_conn *c, struct rnic_cm_listener *l)
{
	c->half_open = true;
	c->listener = l;
	l->half_open++;
	c->cm->half_open++;
}

void cm_half_open_end(struct rnic_cm_conn *c)
{
	if (!c->half_open)
		return;
	c->half_open = false;
	if (c->listener)
		c->listener->half_open--;
	c->listener = NULL;
	c->cm->half_open--;
}

/* Those of one address are counted only when there are many, so that the count costs little. */
bool cm_half_open_room(struct rnic_cm *cm, const struct rnic_cm_listener *l, const uint8_t gid[16])
{
	const struct list *i;
	unsigned same = 0;

	if (cm->half_open >= cm->cfg.max_half_open || l->half_open >= l->backlog)
		return false;
	if (cm->half_open < cm->cfg.max_half_open_peer)
		return true;
	/* Each half-open connection has a timer. */
	for (i = cm->timed.next; i != &cm->timed; i = i->next) {
		const struct rnic_cm_conn *c = list_entry(i, struct rnic_cm_conn, timed);

		same += c->half_open && memcmp(c->route.path.dst, gid, 16) == 0;
	}
	return same < cm->cfg.max_half_open_peer;
}

int cm_tell(struct rnic_cm_conn *c, const struct rnic_cm_event *ev)
{
	struct rnic_cm_event e = *ev;

	if (c->released)
		return 0;
	e.conn = c;
	e.user = c->user;
	return c->cm->cfg.event(c->cm->cfg.ctx, &e);
}

int cm_tell_type(struct rnic_cm_conn *c, enum rnic_cm_event_type type)
{
	struct rnic_cm_event ev = { .type = type };

	return cm_tell(c, &ev);
}

void rnic_cm_set_user(struct rnic_cm_conn *c, void *user)
{
	c->user = user;
}

const struct rnic_cm_route *rnic_cm_route(const struct rnic_cm_conn *c)
{
	return &c->route;
}

const struct rnic_cm_qp *rnic_cm_mine(const struct rnic_cm_conn *c)
{
	return &c->mine;
}

const struct rnic_cm_qp *rnic_cm_peer(const struct rnic_cm_conn *c)
{
	return &c->theirs;
}

/* --- listeners ---------------------------------------------------------------------------------- */

static const uint8_t any[16];

static bool same_place(const struct rnic_cm_listener *l, uint16_t ps, const uint8_t gid[16],
		       uint16_t port)
{
	return l->ps == ps && l->port == port &&
	       (memcmp(l->gid, gid, 16) == 0 || memcmp(l->gid, any, 16) == 0);
}

struct rnic_cm_listener *cm_listener_find(struct rnic_cm *cm, uint16_t ps, const uint8_t gid[16],
					  uint16_t port)
{
	struct list *i;

	for (i = cm->listeners.next; i != &cm->listeners; i = i->next) {
		struct rnic_cm_listener *l = list_entry(i, struct rnic_cm_listener, link);

		if (same_place(l, ps, gid, port))
			return l;
	}
	return NULL;
}

/* Whether a listener there would take what another one takes already. */
static bool taken(struct rnic_cm *cm, uint16_t ps, const uint8_t gid[16], uint16_t port)
{
	struct list *i;

	for (i = cm->listeners.next; i != &cm->listeners; i = i->next) {
		const struct rnic_cm_listener *l = list_entry(i, struct rnic_cm_listener, link);

		if (same_place(l, ps, gid, port) ||
		    (l->ps == ps && l->port == port && memcmp(gid, any, 16) == 0))
			return true;
	}
	return false;
}

int rnic_cm_listen(struct rnic_cm *cm, uint16_t ps, const uint8_t gid[16], uint16_t port,
		   unsigned backlog, void *user, struct rnic_cm_listener **out)
{
	struct rnic_cm_listener *l;

	if (taken(cm, ps, gid, port))
		return -EADDRINUSE;
	l = sys.alloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->cm = cm;
	l->ps = ps;
	l->port = port;
	memcpy(l->gid, gid, 16);
	l->backlog = backlog ? backlog : cm->cfg.max_half_open;
	l->user = user;
	list_add_tail(&cm->listeners, &l->link);
	*out = l;
	return 0;
}

void rnic_cm_unlisten(struct rnic_cm_listener *l)
{
	struct list *i;

	for (i = l->cm->timed.next; i != &l->cm->timed; i = i->next) {
		struct rnic_cm_conn *c = list_entry(i, struct rnic_cm_conn, timed);

		if (c->listener == l)
			c->listener = NULL;
	}
	list_del(&l->link);
	sys.free(l);
}

/* --- the caller's calls ------------------------------------------------------------------------- */

int rnic_cm_connect(struct rnic_cm *cm, const struct rnic_cm_route *to,
		    const struct rnic_cm_qp *mine, const void *priv, size_t len, void *user,
		    struct rnic_cm_conn **out, uint64_t now)
{
	bool datagram = to->port_space == WIRE_RDMACM_PS_UDP;
	size_t room = datagram ? WIRE_CM_SIDR_REQ_PRIV : WIRE_CM_REQ_PRIV;
	struct rnic_cm_conn *c;

	if (len > room - WIRE_RDMACM_LEN)
		return -EINVAL;
	c = cm_conn_new(cm, &to->path);
	if (!c)
		return -ENOMEM;
	c->route = *to;
	c->mine = *mine;
	if (!c->mine.mtu || c->mine.mtu > cm->cfg.max_mtu)
		c->mine.mtu = (uint8_t)cm->cfg.max_mtu;
	c->user = user;
	cm_await(c, datagram ? CM_SIDR_SENT : CM_REQ_SENT, now);
	if (datagram)
		cm_send_sidr_req(c, priv, len, now);
	else
		cm_send_req(c, priv, len, now);
	*out = c;
	return 0;
}

int rnic_cm_accept(struct rnic_cm_conn *c, const struct rnic_cm_qp *mine, const void *priv,
		   size_t len, uint64_t now)
{
	bool datagram = c->state == CM_SIDR_RCVD;

	if (len > (datagram ? WIRE_CM_SIDR_REP_PRIV : WIRE_CM_REP_PRIV))
		return -EINVAL;
	if (datagram) {
		c->mine = *mine;
		cm_send_sidr_rep(c, WIRE_SIDR_OK, priv, len, now);
		cm_timewait(c, now);
		return 0;
	}
	if (c->state != CM_REQ_RCVD)
		return -EINVAL;
	c->mine = *mine;
	c->mine.mtu = c->theirs.mtu;
	cm_await(c, CM_REP_SENT, now);
	cm_send_rep(c, priv, len, now);
	return 0;
}

int rnic_cm_establish(struct rnic_cm_conn *c, uint64_t now)
{
	if (c->state != CM_REP_RCVD)
		return -EINVAL;
	c->state = CM_ESTABLISHED;
	cm_timer(c, NEVER);
	cm_send_rtu(c, now);
	return 0;
}

int rnic_cm_reject(struct rnic_cm_conn *c, uint16_t reason, const void *priv, size_t len,
		   uint64_t now)
{
	bool datagram = c->state == CM_SIDR_RCVD;

	if (len > (datagram ? WIRE_CM_SIDR_REP_PRIV : WIRE_CM_REJ_PRIV))
		return -EINVAL;
	if (datagram)
		cm_send_sidr_rep(c, WIRE_SIDR_REJECTED, priv, len, now);
	else if (c->state == CM_REQ_RCVD || c->state == CM_REP_RCVD)
		cm_send_rej(c, c->state == CM_REQ_RCVD ? WIRE_CM_MSG_REQ : WIRE_CM_MSG_REP, reason,
			    priv, len, now);
	else
		return -EINVAL;
	cm_timewait(c, now);
	return 0;
}

void rnic_cm_data_seen(struct rnic_cm_conn *c, uint64_t now)
{
	(void)now;
	if (c->state != CM_REP_SENT)
		return;
	cm_half_open_end(c);
	cm_timer(c, NEVER);
	c->state = CM_ESTABLISHED;
	c->mad_attr = 0;
	cm_tell_type(c, RNIC_CM_ESTABLISHED);
}

int rnic_cm_disconnect(struct rnic_cm_conn *c, uint64_t now)
{
	switch (c->state) {
	case CM_REP_SENT:
		cm_half_open_end(c);
		/* fall through */
	case CM_ESTABLISHED:
		cm_await(c, CM_DREQ_SENT, now);
		cm_send_dreq(c, now);
		return 0;
	case CM_DREQ_SENT:
	case CM_TIMEWAIT:
	case CM_OVER:
		return -EALREADY;
	default:
		return -EINVAL;
	}
}

void rnic_cm_release(struct rnic_cm_conn *c, uint64_t now)
{
	c->released = true;
	switch (c->state) {
	case CM_REQ_SENT:
		cm_send_rej(c, WIRE_CM_MSG_REQ, WIRE_REJ_TIMEOUT, NULL, 0, now);
		cm_conn_free(c);
		break;
	case CM_SIDR_SENT:
	case CM_OVER:
		cm_conn_free(c);
		break;
	case CM_REQ_RCVD:
	case CM_REP_RCVD:
	case CM_SIDR_RCVD:
		rnic_cm_reject(c, WIRE_REJ_CONSUMER, NULL, 0, now);
		break;
	case CM_REP_SENT:
	case CM_ESTABLISHED:
		rnic_cm_disconnect(c, now);
		break;
	default:
		break; /* ends by itself */
	}
}
