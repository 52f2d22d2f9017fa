/* SPDX-License-Identifier: BSD-3-Clause */
/* What the RDMA channels of a network and of one proxy thread share: provider, devices, completion queues, deadlines. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/sys.h"
#include "channel/verbs/rdc.h"

/* Completions taken by one call, and calls for one queue in one pass. */
#define POLL_BATCH 32
#define POLL_ROUNDS 4
/* For so long after something has come what comes next is looked for without a question for events; passes from one to the next. */
#define BUSY_NS UINT64_C(10000000)
#define DEFER 1024
/* Connections that the first completion queues of a thread have room for; each further pair is twice as large. */
#define FIRST_CQ 4
#define RECV_ENTRIES (RDC_CREDITS + RDC_RECV_SLACK)
#define SEND_ENTRIES (RDC_SENDS + RDC_CTRL_SLACK)

struct rdc_thread *rdc_thread_of(struct rdc_net *n, struct proxy_thread *t)
{
	return &n->t[proxy_index(t)];
}

/* ---- completion queues ------------------------------------------------------------------------------------------------------ */

static struct rdc *by_wr_id(const struct rdc_thread *t, uint64_t id)
{
	unsigned slot = (unsigned)(id >> 48);

	/* A queue pair that is gone may have left completions behind. */
	return slot < t->slots && t->slot[slot] && t->gen[slot] == (uint16_t)(id >> 32)
		       ? t->slot[slot]
		       : NULL;
}

/* Nothing more will be told of the connections on it. */
static void broken(struct rdc_thread *t, struct rdc_cq *q, int err)
{
	unsigned i;

	log_line(LOG_ERROR, "rdma: a completion queue of %s is broken: %s", q->dev->info.name,
		 strerror(-err));
	for (i = 0; i < t->slots; i++) {
		if (t->slot[i] && t->slot[i]->cq == q)
			rdc_fail(t->slot[i], -err);
	}
}

static unsigned poll_cq(struct rdc_thread *t, struct rdc_cq *q, struct verbs_cq *cq)
{
	const struct verbs_ops *ops = t->net->use.ops;
	struct verbs_wc wc[POLL_BATCH];
	unsigned done = 0, round;
	int n = POLL_BATCH, i;

	for (round = 0; round < POLL_ROUNDS && n == POLL_BATCH; round++) {
		n = ops->poll(cq, wc, POLL_BATCH);
		if (n < 0) {
			broken(t, q, n);
			return done;
		}
		for (i = 0; i < n; i++) {
			struct rdc *c = by_wr_id(t, wc[i].wr_id);

			if (c)
				rdc_completion(c, &wc[i]);
		}
		done += (unsigned)n;
	}
	return done;
}

static void drain(struct rdc *c, struct verbs_cq *cq, unsigned entries)
{
	unsigned n, done = 0, full = POLL_BATCH * POLL_ROUNDS;

	do {
		n = poll_cq(c->t, c->cq, cq);
		done += n;
	} while (n == full && done < c->cq->size * entries);
}

void rdc_drain_sends(struct rdc *c)
{
	if (c->cq)
		drain(c, c->cq->send.cq, SEND_ENTRIES);
}

/* All of what lies in it now: a goodbye may be behind many messages of other connections. */
void rdc_drain_recvs(struct rdc *c)
{
	if (c->cq)
		drain(c, c->cq->recv.cq, RECV_ENTRIES);
}

void rdc_drain(struct rdc *c)
{
	rdc_drain_recvs(c);
	rdc_drain_sends(c);
	rdc_settle(c);
}

/* Owners are told at last, when everything that came at once is known. */
static void tell_owners(struct rdc_thread *t)
{
	struct list todo;

	list_init(&todo);
	list_take(&t->dirty, &todo);
	while (!list_empty(&todo)) {
		struct rdc *c = list_entry(todo.next, struct rdc, dirty_link);
		unsigned news;

		list_del(&c->dirty_link);
		rdc_settle(c);
		rdc_flow(c);
		news = c->news;
		c->news = 0;
		if (c->state == RDC_CLOSING)
			rdc_close_step(c);
		else if (news && c->base.event)
			c->base.event(&c->base, news);
	}
}

/* What has arrived, and then what was acknowledged before that. */
static unsigned poll_pair(struct rdc_thread *t, struct rdc_cq *q)
{
	unsigned n = poll_cq(t, q, q->recv.cq), acked = t->unacked ? poll_cq(t, q, q->send.cq) : 0;

	if (acked)
		t->patience = proxy_now(t->pt) + RDC_PATIENCE_NS;
	return n + acked;
}

unsigned rdc_poll(struct rdc_thread *t)
{
	struct list *d, *l;
	unsigned n = 0;

	for (d = t->devs.next; d != &t->devs; d = d->next) {
		struct rdc_dev *dev = list_entry(d, struct rdc_dev, link);

		for (l = dev->cqs.next; l != &dev->cqs; l = l->next) {
			struct rdc_cq *q = list_entry(l, struct rdc_cq, link);

			if (q->used)
				n += poll_pair(t, q);
		}
	}
	n += !list_empty(&t->dirty);
	tell_owners(t);
	return n;
}

static void arm_one(struct rdc_thread *t, struct rdc_cq *q, struct rdc_queue *one)
{
	int rc = one->armed ? 0 : t->net->use.ops->arm(one->cq);

	if (rc)
		broken(t, q, rc);
	else
		one->armed = true;
}

/* Makes sure that the next message wakes the thread, and the next acknowledgement if somebody waits for it. */
static void arm(struct rdc_thread *t)
{
	bool sends = t->urgent || (t->unacked && proxy_now(t->pt) >= t->patience);
	struct list *d, *l;

	for (d = t->devs.next; d != &t->devs; d = d->next) {
		struct rdc_dev *dev = list_entry(d, struct rdc_dev, link);

		for (l = dev->cqs.next; l != &dev->cqs; l = l->next) {
			struct rdc_cq *q = list_entry(l, struct rdc_cq, link);

			if (q->used)
				arm_one(t, q, &q->recv);
			if (q->used && sends)
				arm_one(t, q, &q->send);
		}
	}
}

static void on_comp(struct proxy_watch *w, uint32_t events)
{
	struct rdc_dev *dev = list_entry(w, struct rdc_dev, watch);
	struct list *l;

	(void)events;
	dev->t->net->use.ops->comp_drain(dev->comp);
	/* Which one it was is not told; to arm one again that still is does no harm. */
	for (l = dev->cqs.next; l != &dev->cqs; l = l->next) {
		struct rdc_cq *q = list_entry(l, struct rdc_cq, link);

		q->recv.armed = q->send.armed = false;
	}
	rdc_poll(dev->t);
}

static int dev_get(struct rdc_thread *t, struct verbs_device *device, struct rdc_dev **out)
{
	const struct verbs_ops *ops = t->net->use.ops;
	struct rdc_dev *dev;
	struct list *d;
	int rc;

	for (d = t->devs.next; d != &t->devs; d = d->next) {
		*out = list_entry(d, struct rdc_dev, link);
		if ((*out)->dev == device)
			return 0;
	}
	dev = sys.alloc(sizeof(*dev));
	if (!dev)
		return -ENOMEM;
	dev->t = t;
	dev->dev = device;
	list_init(&dev->cqs);
	rc = ops->device_info(device, &dev->info);
	if (!rc)
		rc = ops->comp_open(device, &dev->comp);
	if (rc) {
		sys.free(dev);
		return rc;
	}
	dev->watch.fn = on_comp;
	rc = proxy_watch(t->pt, ops->comp_fd(dev->comp), &dev->watch);
	if (rc) {
		ops->comp_close(dev->comp);
		sys.free(dev);
		return rc;
	}
	list_add_tail(&t->devs, &dev->link);
	*out = dev;
	return 0;
}

static struct rdc_cq *with_room(struct rdc_dev *dev)
{
	struct list *l;

	for (l = dev->cqs.next; l != &dev->cqs; l = l->next) {
		struct rdc_cq *q = list_entry(l, struct rdc_cq, link);

		if (q->used < q->size)
			return q;
	}
	return NULL;
}

static int new_cq(struct rdc_dev *dev, struct rdc_cq **out)
{
	const struct verbs_ops *ops = dev->t->net->use.ops;
	struct rdc_cq *q = sys.alloc(sizeof(*q));
	int rc;

	if (!q)
		return -ENOMEM;
	q->dev = dev;
	q->size = list_empty(&dev->cqs) ? FIRST_CQ
					: 2 * list_entry(dev->cqs.prev, struct rdc_cq, link)->size;
	if (q->size > dev->info.max_cqe / RECV_ENTRIES)
		q->size = dev->info.max_cqe / RECV_ENTRIES;
	rc = q->size ? ops->cq_create(dev->dev, q->size * RECV_ENTRIES, dev->comp, &q->recv.cq)
		     : -ENOSPC;
	if (!rc) {
		rc = ops->cq_create(dev->dev, q->size * SEND_ENTRIES, dev->comp, &q->send.cq);
		if (rc)
			ops->cq_destroy(q->recv.cq);
	}
	if (rc) {
		sys.free(q);
		return rc;
	}
	list_add_tail(&dev->cqs, &q->link);
	*out = q;
	return 0;
}

int rdc_cq_get(struct rdc_thread *t, struct verbs_device *device, struct rdc_cq **out)
{
	struct rdc_dev *dev;
	int rc = dev_get(t, device, &dev);

	if (rc)
		return rc;
	*out = with_room(dev);
	if (!*out)
		rc = new_cq(dev, out);
	if (!rc)
		(*out)->used++;
	return rc;
}

void rdc_cq_put(struct rdc_cq *q)
{
	q->used--;
}

/*
 * An acknowledgement is waited for by who closes or shuts down, by a kernel whose ring, or window without one, is filling up, and by control messages of which
 * no more may be under way.
 */
static bool urgent(const struct rdc *c)
{
	uint64_t window = c->attached ? UINT64_C(1) << c->net->p.seg_log2 : GNET_MINI_BYTES;

	return c->hurry || c->want_ctrl || c->state == RDC_CLOSING || c->sends >= RDC_SENDS / 2 ||
	       c->ctrls >= RDC_CTRL - 1 || c->tx_tail - c->tx_done > window / 2;
}

void rdc_attend(struct rdc *c)
{
	unsigned want = !c->qp || !(c->sends + c->ctrls) ? RDC_QUIET
			: urgent(c)                      ? RDC_URGENT
							 : RDC_PATIENT;
	struct rdc_thread *t = c->t;

	if (want == c->attention)
		return;
	if (!t->unacked)
		t->patience = proxy_now(t->pt) + RDC_PATIENCE_NS;
	t->unacked += (want != RDC_QUIET) - (c->attention != RDC_QUIET);
	t->urgent += (want == RDC_URGENT) - (c->attention == RDC_URGENT);
	c->attention = want;
}

/* ---- answers ---------------------------------------------------------------------------------------------------------------- */

/*
 * A kernel that answers does so at once, mostly: sooner than a sleep and being woken take, which are system calls besides. So the thread
 * stays awake for twice as long as answers take, and not at all once they do not come or take longer.
 */
void rdc_told(struct rdc_thread *t)
{
	t->told_at = proxy_now(t->pt);
	t->late = false;
}

void rdc_answered(struct rdc_thread *t)
{
	uint64_t took = proxy_now(t->pt) - t->told_at, old = t->think - t->think / 8;

	if (!t->told_at)
		return;
	t->told_at = 0;
	if (took > RDC_THINK_NS)
		return; /* that it is late has been counted */
	t->think = 2 * took > old ? 2 * took : old;
	if (t->think > RDC_THINK_NS)
		t->think = RDC_THINK_NS;
}

static void await_answer(struct rdc_thread *t, uint64_t now)
{
	if (!t->told_at || t->late)
		return;
	if (now - t->told_at < t->think) {
		proxy_stay_awake(t->pt, t->told_at + t->think);
		return;
	}
	/* One that comes later still says how long they take. */
	t->late = true;
	t->think -= t->think / 4;
}

/* ---- deadlines -------------------------------------------------------------------------------------------------------------- */

void rdc_time(struct rdc *c, uint64_t ns)
{
	struct rdc_thread *t = c->t;

	c->deadline = proxy_now(t->pt) + ns;
	if (list_empty(&t->timed) || c->deadline < t->next_deadline)
		t->next_deadline = c->deadline;
	list_del(&c->timed_link);
	list_add_tail(&t->timed, &c->timed_link);
}

void rdc_untime(struct rdc *c)
{
	list_del(&c->timed_link);
}

static void run_deadlines(struct rdc_thread *t, uint64_t now)
{
	struct list todo;

	if (list_empty(&t->timed) || now < t->next_deadline)
		return;
	list_init(&todo);
	list_take(&t->timed, &todo);
	t->next_deadline = UINT64_MAX;
	while (!list_empty(&todo)) {
		struct rdc *c = list_entry(todo.next, struct rdc, timed_link);

		list_del(&c->timed_link);
		if (c->deadline <= now) {
			rdc_expired(c);
			continue;
		}
		list_add_tail(&t->timed, &c->timed_link);
		if (c->deadline < t->next_deadline)
			t->next_deadline = c->deadline;
	}
}

/* ---- steps of a proxy thread ------------------------------------------------------------------------------------------------ */

static unsigned take_handed(struct rdc_thread *t)
{
	struct list todo;
	unsigned n = 0;

	if (!atomic_load_explicit(&t->has_handed, memory_order_acquire))
		return 0;
	list_init(&todo);
	pthread_mutex_lock(&t->lock);
	list_take(&t->handed, &todo);
	atomic_store_explicit(&t->has_handed, false, memory_order_relaxed);
	pthread_mutex_unlock(&t->lock);
	for (; !list_empty(&todo); n++) {
		struct rdc *c = list_entry(todo.next, struct rdc, hand_link);

		list_del(&c->hand_link);
		rdc_adopt(c);
	}
	return n;
}

static void give_room(struct rdc_thread *t, unsigned asked)
{
	if (asked & RDC_ROOM_NEAR)
		(void)rdc_end_held(t, RDC_ROOM_NEAR);
	if (asked & RDC_ROOM_HOST)
		(void)rdc_end_held(t, RDC_ROOM_HOST);
}

unsigned rdc_net_step(struct rdc_net *n, struct proxy_thread *pt, uint64_t now, uint64_t *next)
{
	struct rdc_thread *t = rdc_thread_of(n, pt);
	unsigned done;

	if (!atomic_load_explicit(&t->open, memory_order_acquire))
		return 0;
	done = take_handed(t);
	if (atomic_load(&t->asked))
		give_room(t, atomic_exchange(&t->asked, 0));
	done += rdc_poll(t);
	run_deadlines(t, now);
	await_answer(t, now);
	if (!list_empty(&t->timed) && t->next_deadline < *next)
		*next = t->next_deadline;
	if (t->unacked && !t->urgent && t->patience > now && t->patience < *next)
		*next = t->patience;
	if (done || t->unacked)
		t->busy_until = now + BUSY_NS;
	if (now < t->busy_until)
		proxy_defer_events(pt, DEFER);
	return done;
}

/* What was armed may have something already, so the queues are looked at once more. */
bool rdc_net_has_work(struct rdc_net *n, struct proxy_thread *pt)
{
	struct rdc_thread *t = rdc_thread_of(n, pt);

	if (!atomic_load_explicit(&t->open, memory_order_acquire))
		return false;
	if (atomic_load_explicit(&t->has_handed, memory_order_acquire) || atomic_load(&t->asked) ||
	    !list_empty(&t->dirty))
		return true;
	if (!t->live)
		return false;
	arm(t);
	return rdc_poll(t) != 0;
}

bool rdc_net_lingers(struct rdc_net *n)
{
	return atomic_load(&n->lingering) != 0;
}

bool rdc_net_holds(struct rdc_net *n)
{
	return atomic_load(&n->held) != 0;
}

/* ---- open and close ---------------------------------------------------------------------------------------------------------- */

int rdc_net_open(struct rdc_net **out, const struct channel_net_params *p)
{
	struct rdc_net *n = sys.alloc(sizeof(*n));
	unsigned i;

	if (!n)
		return -ENOMEM;
	n->p = *p;
	n->threads = proxy_threads(p->proxy);
	n->t = sys.alloc(n->threads * sizeof(*n->t));
	if (!n->t) {
		sys.free(n);
		return -ENOMEM;
	}
	pthread_mutex_init(&n->lock, NULL);
	list_init(&n->where);
	for (i = 0; i < n->threads; i++) {
		struct rdc_thread *t = &n->t[i];

		t->net = n;
		t->pt = proxy_thread(p->proxy, i);
		list_init(&t->devs);
		list_init(&t->dirty);
		list_init(&t->timed);
		list_init(&t->held);
		list_init(&t->handed);
		pthread_mutex_init(&t->lock, NULL);
	}
	*out = n;
	return 0;
}

static void on_events(struct proxy_watch *w, uint32_t events)
{
	struct rdc_thread *t = list_entry(w, struct rdc_thread, watch);

	(void)events;
	rdc_events(t);
}

/* From the thread that opens the provider; the watch works in `t`. */
static int thread_ready(struct rdc_thread *t)
{
	const struct verbs_ops *ops = t->net->use.ops;
	int rc = ops->events_open(t->net->use.v, proxy_index(t->pt) ? 0 : VERBS_EVENTS_ASYNC,
				  &t->events);

	if (rc)
		return log_error(rc, "rdma: cannot open a queue of events: %s", strerror(-rc));
	t->watch.fn = on_events;
	atomic_store(&t->open, true);
	rc = proxy_watch(t->pt, ops->events_fd(t->events), &t->watch);
	if (rc) {
		atomic_store(&t->open, false);
		ops->events_close(t->events);
	}
	return rc;
}

static int open_provider(struct rdc_net *n)
{
	int rc = verbs_open(&n->use, n->p.verbs);
	unsigned i;

	if (rc) {
		log_error(rc, "RDMA cannot be used: %s", n->use.why);
		/* To a program that is a protocol which does not exist here. */
		return -EPROTONOSUPPORT;
	}
	log_line(LOG_NOTE, "rdma by %s", n->use.why);
	for (i = 0; i < n->threads && !rc; i++)
		rc = thread_ready(&n->t[i]);
	return rc;
}

int rdc_net_ready(struct rdc_net *n)
{
	int rc;

	pthread_mutex_lock(&n->lock);
	if (!n->tried)
		n->rc = open_provider(n);
	n->tried = true;
	rc = n->rc;
	pthread_mutex_unlock(&n->lock);
	return rc;
}

static void thread_close(struct rdc_thread *t)
{
	const struct verbs_ops *ops = t->net->use.ops;
	unsigned i;

	/* Channels whose goodbye was cut short. */
	for (i = 0; i < t->slots; i++) {
		if (t->slot[i])
			rdc_free(t->slot[i]);
	}
	while (!list_empty(&t->devs)) {
		struct rdc_dev *dev = list_entry(t->devs.next, struct rdc_dev, link);

		while (!list_empty(&dev->cqs)) {
			struct rdc_cq *q = list_entry(dev->cqs.next, struct rdc_cq, link);

			list_del(&q->link);
			ops->cq_destroy(q->recv.cq);
			ops->cq_destroy(q->send.cq);
			sys.free(q);
		}
		list_del(&dev->link);
		proxy_unwatch(t->pt, ops->comp_fd(dev->comp));
		ops->comp_close(dev->comp);
		sys.free(dev);
	}
	if (t->open) {
		proxy_unwatch(t->pt, ops->events_fd(t->events));
		ops->events_close(t->events);
	}
	sys.free(t->slot);
	sys.free(t->gen);
	pthread_mutex_destroy(&t->lock);
}

void rdc_net_close(struct rdc_net *n)
{
	unsigned i;

	for (i = 0; i < n->threads; i++)
		thread_close(&n->t[i]);
	rdc_memory_forget(n);
	verbs_close(&n->use);
	pthread_mutex_destroy(&n->lock);
	sys.free(n->t);
	sys.free(n);
}
