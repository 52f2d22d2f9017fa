/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs_stub_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct verbs {
	int opened;
};

struct verbs_device {
	int unused;
};

struct queued_event {
	struct list link;
	struct verbs_event e;
};

struct verbs_events {
	int fd;
	struct list queue;
};

pthread_mutex_t stub_lock = PTHREAD_MUTEX_INITIALIZER;
struct stub_state stub_st;
static struct verbs_device device;
static struct list ids = { &ids, &ids };
static uint16_t next_port = 20000;
int stub_no_rtu;

void stub_install(void)
{
	memset(&stub_st, 0, sizeof(stub_st));
	stub_st.max_inline = 64;
	verbs_override = &verbs_stub;
}

void stub_fail(const char *slot, unsigned nth, int err)
{
	pthread_mutex_lock(&stub_lock);
	snprintf(stub_st.slot, sizeof(stub_st.slot), "%s", slot);
	stub_st.nth = nth;
	stub_st.err = err;
	stub_st.failed = 0;
	pthread_mutex_unlock(&stub_lock);
}

void stub_fail_any(unsigned nth, int err)
{
	pthread_mutex_lock(&stub_lock);
	stub_st.any_nth = nth;
	stub_st.calls = 0;
	stub_st.err = err;
	stub_st.failed = 0;
	pthread_mutex_unlock(&stub_lock);
}

static unsigned count_of(const unsigned *what)
{
	unsigned n;

	pthread_mutex_lock(&stub_lock);
	n = *what;
	pthread_mutex_unlock(&stub_lock);
	return n;
}

unsigned stub_calls(void)
{
	return count_of(&stub_st.calls);
}

int stub_failed(void)
{
	return (int)count_of(&stub_st.failed);
}

void stub_status(int op, uint32_t status)
{
	pthread_mutex_lock(&stub_lock);
	stub_st.status_op = op;
	stub_st.status = status;
	pthread_mutex_unlock(&stub_lock);
}

int stub_objects(void)
{
	return (int)count_of(&stub_st.objects);
}

unsigned stub_rnr(void)
{
	return count_of(&stub_st.rnr);
}

unsigned stub_posted(void)
{
	return count_of(&stub_st.posted);
}

unsigned stub_ack_arms(void)
{
	return count_of(&stub_st.ack_arms);
}

unsigned stub_post_calls(void)
{
	return count_of(&stub_st.post_calls);
}

void stub_gpu(unsigned takes)
{
	stub_st.gpu = 1;
	stub_st.takes = takes;
}

unsigned stub_regs(unsigned kind)
{
	return count_of(kind == STUB_DMABUF ? &stub_st.by_dmabuf : &stub_st.by_pointer);
}

void stub_inline(unsigned n)
{
	stub_st.max_inline = n;
}

/* Under the lock: does this call fail? */
int stub_named_fault(const char *slot)
{
	if (stub_st.nth && !strcmp(stub_st.slot, slot) && !--stub_st.nth) {
		stub_st.failed = 1;
		return -stub_st.err;
	}
	return 0;
}

int stub_fault(const char *slot)
{
	stub_st.calls++;
	if (stub_st.any_nth && stub_st.calls == stub_st.any_nth) {
		stub_st.failed = 1;
		if (getenv("STUB_TRACE"))
			fprintf(stderr, "stub: %s fails\n", slot);
		return -stub_st.err;
	}
	return stub_named_fault(slot);
}

void stub_poke(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0)
		return;
}

/* ---- events -------------------------------------------------------------------------------------------------------------------- */

static struct verbs_event *queue_event(struct verbs_id *id, enum verbs_event_type type)
{
	struct queued_event *q = calloc(1, sizeof(*q));

	q->e.type = type;
	q->e.id = id;
	q->e.user = id->user;
	list_add_tail(&id->events->queue, &q->link);
	stub_poke(id->events->fd);
	return &q->e;
}

static void end_id(struct verbs_id *id);

/* All of a queue, or those of one id. Requests that nobody has taken end with their listener: their peers are refused. */
static void drop_events(struct verbs_events *e, const struct verbs_id *id)
{
	struct list *l = e->queue.next;

	while (l != &e->queue) {
		struct queued_event *q = list_entry(l, struct queued_event, link);

		l = l->next;
		if (id && q->e.id != id)
			continue;
		list_del(&q->link);
		if (q->e.request) {
			end_id(q->e.request);
			l = e->queue.next; /* it had events, too */
		}
		free(q);
	}
}

static int s_open(struct verbs **out, char *why, size_t why_size)
{
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("open");
	if (rc)
		snprintf(why, why_size, "the stub was told to fail");
	else
		*out = calloc(1, sizeof(**out));
	stub_st.objects += !rc;
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

static void s_close(struct verbs *v)
{
	pthread_mutex_lock(&stub_lock);
	free(v);
	stub_st.objects--;
	pthread_mutex_unlock(&stub_lock);
}

static int s_device_info(struct verbs_device *d, struct verbs_device_info *out)
{
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("device_info");
	pthread_mutex_unlock(&stub_lock);
	if (rc)
		return rc;
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "stub0");
	snprintf(out->detail, sizeof(out->detail), "within this process");
	out->port = VERBS_PORT_ACTIVE;
	out->mtu = 4096;
	out->max_qp = out->max_cq = out->max_mr = MAX_MR;
	out->max_cqe = 32767;
	out->max_wr = 16384;
	out->max_sge = 1;
	out->flags = stub_st.gpu ? 0 : VERBS_DEVICE_SOFTWARE;
	return 0;
}

static int s_devices(struct verbs *v, int (*fn)(const struct verbs_device_info *d, void *arg),
		     void *arg)
{
	struct verbs_device_info info;
	int rc = s_device_info(&device, &info);

	return rc ? rc : fn(&info, arg);
}

static int s_events_open(struct verbs *v, unsigned flags, struct verbs_events **out)
{
	struct verbs_events *e;
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("events_open");
	if (!rc) {
		e = calloc(1, sizeof(*e));
		e->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		list_init(&e->queue);
		stub_st.objects++;
		*out = e;
	}
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

static void s_events_close(struct verbs_events *e)
{
	pthread_mutex_lock(&stub_lock);
	drop_events(e, NULL);
	close(e->fd);
	free(e);
	stub_st.objects--;
	pthread_mutex_unlock(&stub_lock);
}

static int s_events_fd(struct verbs_events *e)
{
	return e->fd;
}

static int s_event_next(struct verbs_events *e, struct verbs_event *out)
{
	struct queued_event *q = NULL;
	uint64_t n;

	pthread_mutex_lock(&stub_lock);
	if (!list_empty(&e->queue)) {
		q = list_entry(e->queue.next, struct queued_event, link);
		list_del(&q->link);
		*out = q->e;
		stub_st.parts += q->e.type == VERBS_EVENT_DISCONNECTED;
		free(q);
	} else if (read(e->fd, &n, sizeof(n)) < 0) {
		n = 0;
	}
	pthread_mutex_unlock(&stub_lock);
	return q ? 0 : -EAGAIN;
}

/* ---- connections ---------------------------------------------------------------------------------------------------------------- */

static uint16_t *port_of(struct sockaddr_storage *a)
{
	return &((struct sockaddr_in *)(void *)a)->sin_port; /* at the same place in IPv6 */
}

static struct verbs_id *new_id(struct verbs_events *e, void *user)
{
	struct verbs_id *id = calloc(1, sizeof(*id));

	id->events = e;
	id->user = user;
	list_add_tail(&ids, &id->link);
	stub_st.objects++;
	return id;
}

static int s_id_create(struct verbs_events *e, void *user, struct verbs_id **out)
{
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("id_create");
	if (!rc)
		*out = new_id(e, user);
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

static void part(struct verbs_id *id, enum verbs_event_type type, int status)
{
	struct verbs_id *peer = id->peer;
	struct verbs_event *e;

	if (!peer)
		return;
	e = queue_event(peer, type);
	e->status = status;
	e->reason = 28;
	peer->state = ID_OVER;
	id->peer = NULL;
	peer->peer = NULL;
}

static void end_id(struct verbs_id *id)
{
	bool answering = id->state == ID_ANSWERING;

	if (id->qp) {
		fprintf(stderr, "stub: an id goes before its queue pair\n");
		abort();
	}
	if (answering || id->state == ID_CONNECTED || id->state == ID_ASKED)
		part(id, answering ? VERBS_EVENT_REJECTED : VERBS_EVENT_DISCONNECTED,
		     answering ? -ECONNREFUSED : 0);
	drop_events(id->events, id);
	list_del(&id->link);
	free(id);
	stub_st.objects--;
}

static void s_id_destroy(struct verbs_id *id)
{
	pthread_mutex_lock(&stub_lock);
	end_id(id);
	stub_run_all();
	pthread_mutex_unlock(&stub_lock);
}

static int s_id_migrate(struct verbs_id *id, struct verbs_events *to, void *user)
{
	struct list *l, *next;
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("id_migrate");
	if (rc) {
		pthread_mutex_unlock(&stub_lock);
		return rc;
	}
	for (l = id->events->queue.next; l != &id->events->queue; l = next) {
		struct queued_event *q = list_entry(l, struct queued_event, link);

		next = l->next;
		if (q->e.id != id)
			continue;
		q->e.user = user;
		if (to == id->events)
			continue;
		list_del(l);
		list_add_tail(&to->queue, l);
		stub_poke(to->fd);
	}
	id->events = to;
	id->user = user;
	pthread_mutex_unlock(&stub_lock);
	return 0;
}

static int s_id_option(struct verbs_id *id, enum verbs_id_option option, int value)
{
	return 0;
}

static struct verbs_device *s_id_device(struct verbs_id *id)
{
	struct verbs_device *d;

	pthread_mutex_lock(&stub_lock);
	d = id->state >= ID_RESOLVED ? &device : NULL;
	pthread_mutex_unlock(&stub_lock);
	return d;
}

static int s_id_name(struct verbs_id *id, int peer, struct sockaddr *a, socklen_t *n)
{
	struct sockaddr_storage *s = peer ? &id->remote : &id->local;
	socklen_t len =
		s->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	if (!s->ss_family)
		return -ENOTCONN;
	memcpy(a, s, len < *n ? len : *n);
	*n = len;
	return 0;
}

static int port_taken(uint16_t port)
{
	struct list *l;

	for (l = ids.next; l != &ids; l = l->next) {
		struct verbs_id *id = list_entry(l, struct verbs_id, link);

		if ((id->state == ID_BOUND || id->state == ID_LISTEN) &&
		    *port_of(&id->local) == port)
			return 1;
	}
	return 0;
}

static int do_bind(struct verbs_id *id, const struct sockaddr *a, socklen_t n)
{
	memcpy(&id->local, a, n);
	if (!*port_of(&id->local))
		*port_of(&id->local) = htons(next_port++);
	else if (port_taken(*port_of(&id->local)))
		return -EADDRINUSE;
	id->state = ID_BOUND;
	return 0;
}

static int s_bind(struct verbs_id *id, const struct sockaddr *a, socklen_t n)
{
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("bind");
	if (!rc)
		rc = do_bind(id, a, n);
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

static int s_listen(struct verbs_id *id, int backlog)
{
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("listen");
	if (!rc)
		id->state = ID_LISTEN;
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

/* Port 1 has no route. */
static int s_resolve(struct verbs_id *id, const struct sockaddr *a, socklen_t n,
		     unsigned timeout_ms)
{
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("resolve");
	if (!rc) {
		memcpy(&id->remote, a, n);
		if (!id->local.ss_family) {
			memcpy(&id->local, a, n);
			*port_of(&id->local) = htons(next_port++);
		}
		if (*port_of(&id->remote) == htons(1)) {
			queue_event(id, VERBS_EVENT_UNREACHABLE)->status = -EHOSTUNREACH;
		} else {
			id->state = ID_RESOLVED;
			queue_event(id, VERBS_EVENT_RESOLVED);
		}
	}
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

static struct verbs_id *listener_on(uint16_t port)
{
	struct list *l;

	for (l = ids.next; l != &ids; l = l->next) {
		struct verbs_id *id = list_entry(l, struct verbs_id, link);

		if (id->state == ID_LISTEN && *port_of(&id->local) == port)
			return id;
	}
	return NULL;
}

static int s_connect(struct verbs_id *id, const struct verbs_conn_param *p)
{
	struct verbs_id *l, *r;
	struct verbs_event *e;
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("connect");
	l = rc ? NULL : listener_on(*port_of(&id->remote));
	if (!rc && !l) {
		e = queue_event(id, VERBS_EVENT_REJECTED);
		e->status = -ECONNREFUSED;
		e->reason = 8;
	} else if (l) {
		r = new_id(l->events, l->user);
		r->local = l->local;
		r->remote = id->local;
		r->state = ID_ANSWERING;
		r->peer = id;
		id->peer = r;
		id->state = ID_ASKED;
		e = queue_event(l, VERBS_EVENT_CONNECT_REQUEST);
		e->request = r;
		e->param = *p;
		e->param.private_len = VERBS_PRIVATE_REQ;
	}
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

static int s_accept(struct verbs_id *id, const struct verbs_conn_param *p)
{
	struct verbs_event *e;
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("accept");
	if (!rc && !id->peer)
		rc = -ECONNRESET;
	if (!rc) {
		id->state = id->peer->state = ID_CONNECTED;
		e = queue_event(id->peer, VERBS_EVENT_ESTABLISHED);
		e->param = *p;
		e->param.private_len = VERBS_PRIVATE_MAX;
		if (!stub_no_rtu)
			queue_event(id, VERBS_EVENT_ESTABLISHED);
		stub_run_all();
	}
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

static int s_reject(struct verbs_id *id, const void *private_data, uint8_t n)
{
	pthread_mutex_lock(&stub_lock);
	part(id, VERBS_EVENT_REJECTED, -ECONNREFUSED);
	id->state = ID_OVER;
	pthread_mutex_unlock(&stub_lock);
	return 0;
}

static int s_disconnect(struct verbs_id *id)
{
	pthread_mutex_lock(&stub_lock);
	if (id->qp && !id->qp->error)
		stub_to_error(id->qp);
	part(id, VERBS_EVENT_DISCONNECTED, 0);
	id->state = ID_OVER;
	stub_run_all();
	pthread_mutex_unlock(&stub_lock);
	return 0;
}

static int s_device_open(struct verbs *v, const char *name, struct verbs_device **out)
{
	if (strcmp(name, "stub0"))
		return -ENODEV;
	*out = &device;
	return 0;
}

static int s_export_queue(struct verbs_qp *qp, struct verbs_queue_export *out)
{
	return -EOPNOTSUPP;
}

const struct verbs_ops verbs_stub = {
	.name = "stub",
	.open = s_open,
	.close = s_close,
	.devices = s_devices,
	.events_open = s_events_open,
	.events_close = s_events_close,
	.events_fd = s_events_fd,
	.event_next = s_event_next,
	.id_create = s_id_create,
	.id_destroy = s_id_destroy,
	.id_migrate = s_id_migrate,
	.id_option = s_id_option,
	.id_device = s_id_device,
	.id_name = s_id_name,
	.bind = s_bind,
	.listen = s_listen,
	.resolve = s_resolve,
	.connect = s_connect,
	.accept = s_accept,
	.reject = s_reject,
	.disconnect = s_disconnect,
	.device_info = s_device_info,
	.comp_open = stub_comp_open,
	.comp_close = stub_comp_close,
	.comp_fd = stub_comp_fd,
	.comp_drain = stub_comp_drain,
	.cq_create = stub_cq_create,
	.cq_destroy = stub_cq_destroy,
	.poll = stub_poll,
	.arm = stub_arm,
	.qp_create = stub_qp_create,
	.qp_destroy = stub_qp_destroy,
	.post_send = stub_post_send,
	.post_recv = stub_post_recv,
	.reg = stub_reg,
	.dereg = stub_dereg,
	.export_queue = s_export_queue,
	.device_open = s_device_open,
};
