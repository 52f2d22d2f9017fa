/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a connection: queue pair and memory, connect, accept, close. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "channel/verbs/rdc.h"

#define MAX_SLOTS 65535u

/* ---- ids -------------------------------------------------------------------------------------------------------------------- */

/* Makes the id, with the options and the address that were set. */
int rdc_id(struct rdc *c)
{
	const struct verbs_ops *ops = c->net->use.ops;
	int rc;

	if (c->id)
		return 0;
	rc = ops->id_create(c->t->events, c, &c->id);
	if (rc)
		return rc;
	/* Not every provider has these, and a default is in force then. */
	(void)ops->id_option(c->id, VERBS_ID_REUSEADDR, c->reuseaddr);
	if (c->domain == AF_INET6)
		(void)ops->id_option(c->id, VERBS_ID_AFONLY, c->v6only);
	rc = c->bound_len ? ops->bind(c->id, (struct sockaddr *)&c->bound, c->bound_len) : 0;
	if (rc) {
		ops->id_destroy(c->id);
		c->id = NULL;
	}
	return rc;
}

static void drop_id(struct rdc *c)
{
	if (c->id)
		c->net->use.ops->id_destroy(c->id);
	c->id = NULL;
}

/* ---- queue pair and memory --------------------------------------------------------------------------------------------------- */

static int take_slot(struct rdc *c)
{
	struct rdc_thread *t = c->t;
	unsigned i, n = t->slots ? 2 * t->slots : 16;
	struct rdc **slot;
	uint16_t *gen;

	for (i = 0; i < t->slots && t->slot[i]; i++)
		;
	if (i == t->slots) {
		if (n > MAX_SLOTS)
			return -EMFILE;
		slot = sys.alloc(n * sizeof(struct rdc *));
		gen = sys.alloc(n * sizeof(*gen));
		if (!slot || !gen) {
			sys.free(slot);
			sys.free(gen);
			return -ENOMEM;
		}
		if (t->slots) {
			memcpy(slot, t->slot, t->slots * sizeof(struct rdc *));
			memcpy(gen, t->gen, t->slots * sizeof(*gen));
		}
		sys.free(t->slot);
		sys.free(t->gen);
		t->slot = slot;
		t->gen = gen;
		t->slots = n;
	}
	t->slot[i] = c;
	t->gen[i]++;
	t->live++;
	c->slot = i;
	return 0;
}

static int set_queues(struct rdc *c)
{
	const struct verbs_ops *ops = c->net->use.ops;
	struct verbs_qp_init init = { 0 };
	int rc;

	c->credits = RDC_CREDITS;
	rc = rdc_cq_get(c->t, ops->id_device(c->id), &c->cq);
	if (rc) {
		c->cq = NULL;
		return log_error(rc, "rdma: cannot make a completion queue: %s", strerror(-rc));
	}
	init.send_cq = c->cq->send.cq;
	init.recv_cq = c->cq->recv.cq;
	init.max_send_wr = RDC_SENDS + RDC_CTRL_SLACK;
	init.max_recv_wr = c->credits + RDC_RECV_SLACK;
	init.max_send_sge = init.max_recv_sge = 1;
	init.max_inline = RDC_INLINE;
	rc = ops->qp_create(c->id, &init, &c->qp);
	if (rc)
		return log_error(rc, "rdma: cannot make a queue pair on %s: %s",
				 c->cq->dev->info.name, strerror(-rc));
	c->inline_max = init.max_inline < RDC_INLINE ? init.max_inline : RDC_INLINE;
	return 0;
}

int rdc_setup(struct rdc *c)
{
	int rc = take_slot(c);

	if (rc)
		return log_error(rc, "rdma: no room for another connection");
	rc = set_queues(c);
	if (!rc)
		rc = rdc_set_memory(c);
	if (rc) {
		rdc_teardown(c);
		return rc;
	}
	rdc_data_init(c);
	rdc_flow(c); /* the receives, before the peer can send */
	return -c->err;
}

void rdc_teardown(struct rdc *c)
{
	struct rdc_thread *t = c->t;

	if (c->qp)
		c->net->use.ops->qp_destroy(c->qp);
	c->qp = NULL;
	if (c->slot < t->slots && t->slot[c->slot] == c) {
		t->slot[c->slot] = NULL;
		t->live--;
	}
	if (c->attention)
		rdc_drain_sends(c); /* what it leaves behind does not stay in the queue */
	rdc_attend(c);
	rdc_drop_memory(c);
	if (c->cq)
		rdc_cq_put(c->cq);
	c->cq = NULL;
}

static void fill_param(const struct rdc *c, struct verbs_conn_param *p)
{
	struct wire_rsock_conn local;

	memset(p, 0, sizeof(*p));
	p->retry = RDC_RETRY;
	p->rnr_retry = RDC_RNR_RETRY;
	p->ack_timeout = RDC_ACK_TIMEOUT;
	p->min_rnr_timer = RDC_MIN_RNR;
	p->flow_control = true;
	p->private_len = WIRE_RSOCK_CONN_LEN;
	rdc_local_conn(c, &local);
	wire_rsock_conn_encode(&local, p->private_data);
}

/* ---- the active side ----------------------------------------------------------------------------------------------------------- */

int rdc_connect(struct rdc *c, const struct sockaddr *a, socklen_t n)
{
	int rc;

	if (c->state == RDC_FAILED) {
		c->state = RDC_FRESH;
		c->err = 0;
	}
	if (c->state != RDC_FRESH)
		return c->state == RDC_OPEN ? -EISCONN : -EALREADY;
	if (n > sizeof(c->peer) || a->sa_family != c->domain)
		return n > sizeof(c->peer) ? -EINVAL : -EAFNOSUPPORT;
	rc = rdc_take_segments(c);
	if (rc == -EAGAIN)
		return rc;
	if (rc)
		return log_error(rc, "rdma: all segments are in use (option slab_bytes)");
	rc = rdc_id(c);
	if (!rc)
		rc = c->net->use.ops->resolve(c->id, a, n, RDC_RESOLVE_MS);
	if (rc) {
		rdc_teardown(c);
		drop_id(c);
		/* No thread, say. -EAGAIN would say that segments come, and be tried for ever. */
		return rc == -EAGAIN ? -ENOMEM : rc;
	}
	memcpy(&c->peer, a, n);
	c->peer_len = n;
	c->state = RDC_RESOLVING;
	rdc_time(c, RDC_CONNECT_NS);
	return -EINPROGRESS;
}

void rdc_go_on(struct rdc *c)
{
	struct verbs_conn_param p;
	int rc;

	rdc_take_near(c);
	rc = rdc_setup(c);
	if (!rc) {
		fill_param(c, &p);
		c->state = RDC_CONNECTING;
		rc = c->net->use.ops->connect(c->id, &p);
	}
	if (rc)
		rdc_connect_failed(c, -rc);
}

void rdc_connected(struct rdc *c, const struct verbs_conn_param *p)
{
	char name[RDC_NAME];

	if (wire_rsock_conn_decode(&c->remote, p->private_data, p->private_len)) {
		log_line(LOG_WARN, "rdma: %s answers, but not as an rsockets program does",
			 rdc_name(&c->peer, name));
		rdc_connect_failed(c, EPROTO);
		return;
	}
	rdc_untime(c);
	rdc_data_start(c);
	c->state = RDC_OPEN;
	c->established = true;
	rdc_keep(c);
	rdc_tell(c, CHANNEL_IN | CHANNEL_OUT);
}

void rdc_connect_failed(struct rdc *c, int err)
{
	rdc_untime(c);
	rdc_teardown(c);
	drop_id(c);
	c->state = RDC_FAILED;
	c->err = err;
	rdc_tell(c, CHANNEL_IN | CHANNEL_OUT);
}

/* ---- the passive side ---------------------------------------------------------------------------------------------------------- */

void rdc_adopt(struct rdc *c)
{
	struct verbs_conn_param p;
	char name[RDC_NAME];
	int rc = c->err ? -c->err : rdc_setup(c);

	c->state = RDC_OPEN;
	if (!rc) {
		rdc_data_start(c);
		fill_param(c, &p);
		rc = c->net->use.ops->accept(c->id, &p);
	}
	if (!rc) {
		rdc_keep(c);
		return;
	}
	if (rc == -EMSGSIZE && c->cq)
		log_line(
			LOG_WARN,
			"rdma: a connection from %s is refused: it asks for larger packets than %s takes (%u bytes): give both machines' cards one MTU",
			rdc_name(&c->peer, name), c->cq->dev->info.name, c->cq->dev->info.mtu);
	if (!c->err)
		(void)c->net->use.ops->reject(c->id, NULL,
					      0); /* it goes with the id at the latest */
	c->err = ECONNABORTED;
	rdc_tell(c, CHANNEL_IN | CHANNEL_OUT);
}

/* No event of the id is lost: those not yet taken move with it. */
void rdc_hand_over(struct rdc *c, struct rdc_thread *to)
{
	int rc = c->net->use.ops->id_migrate(c->id, to->events, c);

	c->t = to;
	if (rc)
		c->err = -rc;
	pthread_mutex_lock(&to->lock);
	list_add_tail(&to->handed, &c->hand_link);
	atomic_store_explicit(&to->has_handed, true, memory_order_release);
	pthread_mutex_unlock(&to->lock);
	proxy_wake(to->pt);
}

static void unhand(struct rdc *c)
{
	pthread_mutex_lock(&c->t->lock);
	list_del(&c->hand_link);
	pthread_mutex_unlock(&c->t->lock);
}

/* ---- the end ------------------------------------------------------------------------------------------------------------------- */

static void finish_close(struct rdc *c)
{
	struct rdc_net *n = c->net;

	bool held = !list_empty(&c->held_link);

	list_del(&c->held_link);
	atomic_fetch_sub(&c->t->n_held, held);
	if (c->id)
		(void)n->use.ops->disconnect(c->id); /* the peer's CM is told; it may be gone */
	rdc_free(c);
	atomic_fetch_sub(held ? &n->held : &n->lingering, 1);
}

/*
 * Who has said goodbye first waits for its acknowledgement, and a device may show what it has received before it acknowledges it, or
 * the acknowledgement is lost. Without a queue pair nobody acknowledges what is sent again; on rdma_rxe such a peer waits for ever. It
 * has no need to wait once we have said goodbye as well.
 */
static bool awaited(const struct rdc *c)
{
	return c->gone && !c->bye;
}

/* Nothing of ours is under way: what is waited for from here on is the peer's, whatever the time that our own bytes were given. */
static void hold(struct rdc *c)
{
	struct rdc_net *n = c->net;

	if (!list_empty(&c->held_link))
		return;
	list_add_tail(&c->t->held, &c->held_link);
	atomic_fetch_add(&c->t->n_held, 1);
	atomic_fetch_add(&n->held, 1);
	atomic_fetch_sub(&n->lingering, 1);
	rdc_time(c, n->p.linger_ns < RDC_HOLD_NS ? n->p.linger_ns : RDC_HOLD_NS);
}

void rdc_close_step(struct rdc *c)
{
	bool said = c->gone || !c->want_ctrl;

	if (c->err || c->left || !c->qp || (said && !c->sends && !c->ctrls && !awaited(c)))
		finish_close(c);
	else if (awaited(c) && !c->sends && !c->ctrls)
		hold(c);
}

bool rdc_end_held(struct rdc_thread *t, enum rdc_room room)
{
	struct list *l;

	for (l = t->held.next; l != &t->held; l = l->next) {
		struct rdc *c = list_entry(l, struct rdc, held_link);

		/* Each has something in host memory. */
		if (room == RDC_ROOM_NEAR && c->near_rx < 0)
			continue;
		finish_close(c);
		return true;
	}
	return false;
}

bool rdc_make_room(struct rdc_thread *t, enum rdc_room room)
{
	struct rdc_net *n = t->net;
	unsigned i;

	if (rdc_end_held(t, room))
		return true;
	for (i = 0; i < n->threads; i++) {
		if (&n->t[i] == t || !atomic_load(&n->t[i].n_held))
			continue;
		atomic_fetch_or(&n->t[i].asked, (unsigned)room);
		proxy_wake(n->t[i].pt);
	}
	return false;
}

/* Says goodbye, unless the peer did, and stays until the peer's device has acknowledged all that is under way, or the peer has gone. */
static void close_open(struct rdc *c, int abort)
{
	atomic_fetch_add(&c->net->lingering, 1);
	c->state = RDC_CLOSING;
	if (!c->err && !c->gone && c->qp && !c->bye)
		c->want_ctrl = 1 + WIRE_RSOCK_DISCONNECT;
	rdc_time(c,
		 abort && c->net->p.linger_ns > RDC_ABORT_NS ? RDC_ABORT_NS : c->net->p.linger_ns);
	rdc_flow(c);
	rdc_close_step(c);
}

static void close_listener(struct rdc *c)
{
	while (!list_empty(&c->requests)) {
		struct rdc *r = list_entry(c->requests.next, struct rdc, request_link);

		list_del(&r->request_link);
		(void)c->net->use.ops->reject(r->id, NULL, 0);
		rdc_free(r);
	}
	rdc_free(c);
}

void rdc_close(struct rdc *c, int abort)
{
	switch (c->state) {
	case RDC_OPEN:
		close_open(c, abort);
		break;
	case RDC_LISTENING:
		close_listener(c);
		break;
	case RDC_REQUESTED:
		unhand(c);
		(void)c->net->use.ops->reject(c->id, NULL, 0);
		rdc_free(c);
		break;
	default:
		rdc_free(c);
	}
}

void rdc_keep(struct rdc *c)
{
	if (c->state != RDC_OPEN)
		return;
	rdc_untime(c);
	if (c->keepalive && !c->err && !c->gone)
		rdc_time(c, c->keep_s * UINT64_C(1000000000));
}

void rdc_expired(struct rdc *c)
{
	char name[RDC_NAME];

	if (c->state == RDC_OPEN) {
		rdc_probe(c);
		rdc_keep(c);
	} else if (c->state == RDC_CLOSING) {
		if (!c->gone)
			log_line(LOG_NOTE, "rdma: %s did not acknowledge the end of the connection",
				 rdc_name(&c->peer, name));
		finish_close(c);
	} else {
		rdc_connect_failed(c, ETIMEDOUT);
	}
}
