/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queues of events behind a descriptor. The descriptor is an eventfd that is written when an event comes and read when the
 * queue is found empty.
 */
#include "verbs/rnic/internal.h"

#include <errno.h>
#include <string.h>

#include "base/sys.h"

static void ring(struct verbs_events *e)
{
	uint64_t one = 1;

	if (sys.write(e->fd, &one, sizeof(one)) < 0)
		return; /* at its limit: readable already */
}

/* Under ev_lock. */
static void put(struct vevent *ev, enum verbs_event_type type, int status, unsigned reason,
		const struct verbs_conn_param *param)
{
	if (ev->pending)
		return;
	ev->pending = true;
	ev->type = type;
	ev->status = status;
	ev->reason = reason;
	if (param)
		ev->param = *param;
	list_add_tail(&ev->id->e->queue, &ev->link);
	ring(ev->id->e);
}

void vevent_put_param(struct vevent *ev, enum verbs_event_type type, int status, unsigned reason,
		      const struct verbs_conn_param *param)
{
	struct verbs *v = ev->id->v;

	pthread_mutex_lock(&v->ev_lock);
	put(ev, type, status, reason, param);
	pthread_mutex_unlock(&v->ev_lock);
}

void vevent_put(struct vevent *ev, enum verbs_event_type type, int status, unsigned reason)
{
	vevent_put_param(ev, type, status, reason, NULL);
}

void vevent_put_request(struct verbs_id *l, struct verbs_id *request,
			const struct verbs_conn_param *param)
{
	request->request_ev.id = l;
	request->request_ev.request = request;
	pthread_mutex_lock(&l->v->ev_lock);
	request->e = l->e;
	request->user = l->user;
	put(&request->request_ev, VERBS_EVENT_CONNECT_REQUEST, 0, 0, param);
	pthread_mutex_unlock(&l->v->ev_lock);
}

static void drop(struct vevent *ev)
{
	if (ev->pending)
		list_del(&ev->link);
	ev->pending = false;
}

void vevents_drop(struct verbs_id *id)
{
	unsigned i;

	pthread_mutex_lock(&id->v->ev_lock);
	drop(&id->request_ev);
	for (i = 0; i < 3; i++)
		drop(&id->ev[i]);
	pthread_mutex_unlock(&id->v->ev_lock);
}

void vevents_device(struct verbs_device *d, unsigned what)
{
	pthread_mutex_lock(&d->v->ev_lock);
	if (d->v->async) {
		if (!d->pending)
			list_add_tail(&d->v->async->devices, &d->async);
		if (~d->pending & what)
			ring(d->v->async);
		/* Of a port the last news counts. */
		if (what & (VPENDING_UP | VPENDING_DOWN))
			d->pending &= ~(unsigned)(VPENDING_UP | VPENDING_DOWN);
		d->pending |= what;
	}
	pthread_mutex_unlock(&d->v->ev_lock);
}

int vevents_open(struct verbs *v, unsigned flags, struct verbs_events **out)
{
	struct verbs_events *e = sys.alloc(sizeof(*e));
	int rc = 0;

	if (!e)
		return -ENOMEM;
	e->v = v;
	list_init(&e->queue);
	list_init(&e->devices);
	e->fd = sys.eventfd();
	if (e->fd < 0)
		rc = e->fd;
	pthread_mutex_lock(&v->ev_lock);
	if (!rc && flags & VERBS_EVENTS_ASYNC && v->async)
		rc = -EBUSY;
	if (!rc && flags & VERBS_EVENTS_ASYNC)
		v->async = e;
	pthread_mutex_unlock(&v->ev_lock);
	if (rc) {
		if (e->fd >= 0)
			sys.close(e->fd);
		sys.free(e);
		return rc;
	}
	*out = e;
	return 0;
}

void vevents_close(struct verbs_events *e)
{
	pthread_mutex_lock(&e->v->ev_lock);
	if (e->v->async == e)
		e->v->async = NULL;
	while (!list_empty(&e->devices)) {
		struct verbs_device *d = list_entry(e->devices.next, struct verbs_device, async);

		list_del(&d->async);
		d->pending = 0;
	}
	pthread_mutex_unlock(&e->v->ev_lock);
	sys.close(e->fd);
	sys.free(e);
}

int vevents_fd(struct verbs_events *e)
{
	return e->fd;
}

static void take(struct verbs_events *e, struct verbs_event *out)
{
	struct vevent *ev = list_entry(e->queue.next, struct vevent, link);

	drop(ev);
	*out = (struct verbs_event){ .type = ev->type,
				     .id = ev->id,
				     .user = ev->id->user,
				     .request = ev->request,
				     .status = ev->status,
				     .reason = ev->reason,
				     .param = ev->param };
}

/* Of a device one thing at a time. */
static void take_device(struct verbs_events *e, struct verbs_event *out)
{
	struct verbs_device *d = list_entry(e->devices.next, struct verbs_device, async);
	unsigned port = d->pending & (VPENDING_UP | VPENDING_DOWN);

	*out = (struct verbs_event){ .type = !port                ? VERBS_EVENT_QP_ERROR
					     : port & VPENDING_UP ? VERBS_EVENT_PORT_ACTIVE
								  : VERBS_EVENT_PORT_DOWN,
				     .device = d };
	d->pending &= port ? ~port : 0;
	if (!d->pending)
		list_del(&d->async);
}

/* As with librdmacm, the active side's queue pair works when its user has heard of it. */
static void finish(struct verbs_event *ev)
{
	int rc = vid_finish_connect(ev->id);

	if (!rc)
		return;
	ev->type = VERBS_EVENT_UNREACHABLE;
	ev->status = rc;
}

int vevents_next(struct verbs_events *e, struct verbs_event *out)
{
	uint64_t count;
	int rc = 0;

	pthread_mutex_lock(&e->v->ev_lock);
	if (!list_empty(&e->queue)) {
		take(e, out);
	} else if (!list_empty(&e->devices)) {
		take_device(e, out);
	} else {
		rc = sys.read(e->fd, &count, sizeof(count)) == -EBADF ? -EBADF : -EAGAIN;
	}
	pthread_mutex_unlock(&e->v->ev_lock);
	if (!rc && out->type == VERBS_EVENT_ESTABLISHED && !out->id->passive)
		finish(out);
	return rc;
}

static void move(struct vevent *ev, struct verbs_events *to)
{
	if (!ev->pending)
		return;
	list_del(&ev->link);
	list_add_tail(&to->queue, &ev->link);
	ring(to);
}

static void move_id(struct verbs_id *id, struct verbs_events *to, void *user)
{
	unsigned i;

	id->user = user;
	id->e = to;
	for (i = 0; i < 3; i++)
		move(&id->ev[i], to);
}

/* The request to this listener that the event is about, or NULL. */
static struct verbs_id *request_of(const struct verbs_id *id, struct list *l)
{
	struct vevent *ev = list_entry(l, struct vevent, link);

	return ev->id == id ? ev->request : NULL;
}

struct verbs_id *vevents_request(const struct verbs_id *id)
{
	struct verbs_id *found = NULL;
	struct list *l;

	for (l = id->e->queue.next; l != &id->e->queue && !found; l = l->next)
		found = request_of(id, l);
	return found;
}

static void change_user(struct verbs_id *id, void *user)
{
	struct verbs_id *request;
	struct list *l;

	id->user = user;
	for (l = id->e->queue.next; l != &id->e->queue; l = l->next) {
		request = request_of(id, l);
		if (request)
			request->user = user;
	}
}

int vid_migrate(struct verbs_id *id, struct verbs_events *to, void *user)
{
	struct verbs_id *request;

	pthread_mutex_lock(&id->v->ev_lock);
	if (id->e == to) {
		change_user(id, user);
	} else {
		while ((request = vevents_request(id)) != NULL) {
			move(&request->request_ev, to);
			move_id(request, to, user);
		}
		move_id(id, to, user);
	}
	pthread_mutex_unlock(&id->v->ev_lock);
	return 0;
}
