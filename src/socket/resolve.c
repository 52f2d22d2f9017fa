/* SPDX-License-Identifier: BSD-3-Clause */
#include "socket/resolve.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include <gpunet/dev/abi/socket.h>

#include "base/sys.h"

/* Threads, and so lookups that a silent name server can hold up, at a time. */
#define THREADS 8

struct lookup {
	struct list link; /* in resolver.todo, or in its thread's .done */
	unsigned thread;  /* of the proxy, to answer */
	unsigned call, tag;
	bool has_node, has_service;
	struct gnet_lookup ask;
	int64_t rc; /* results, or a negative errno */
	struct gnet_addrinfo result[GNET_ADDRINFO_MAX];
};

struct done {
	struct list list;
	_Atomic bool some;
};

/* Belongs to the network and to its threads: whoever is last frees it. */
struct resolver {
	pthread_mutex_t lock;
	bool closed; /* the network is gone, and `proxy` with it */
	struct proxy *proxy;
	unsigned threads;
	unsigned pending, most; /* lookups from ask to answer */
	struct list todo;
	unsigned n_done;
	struct done done[];
};

int resolver_open(struct resolver **out, struct proxy *p, unsigned most)
{
	unsigned n = proxy_threads(p), i;
	struct resolver *r = sys.alloc(sizeof(*r) + n * sizeof(r->done[0]));

	if (!r)
		return -ENOMEM;
	pthread_mutex_init(&r->lock, NULL);
	r->proxy = p;
	r->most = most;
	r->n_done = n;
	list_init(&r->todo);
	for (i = 0; i < n; i++)
		list_init(&r->done[i].list);
	*out = r;
	return 0;
}

static void drop_all(struct list *l)
{
	while (!list_empty(l)) {
		struct lookup *q = list_entry(l->next, struct lookup, link);

		list_del(&q->link);
		sys.free(q);
	}
}

static void destroy(struct resolver *r)
{
	pthread_mutex_destroy(&r->lock);
	sys.free(r);
}

void resolver_close(struct resolver *r)
{
	bool last;
	unsigned i;

	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->closed = true;
	drop_all(&r->todo);
	for (i = 0; i < r->n_done; i++)
		drop_all(&r->done[i].list);
	last = !r->threads;
	pthread_mutex_unlock(&r->lock);
	if (last)
		destroy(r);
}

/* ---- one lookup -------------------------------------------------------------------------------------------------------- */

static int errno_of(int eai)
{
	switch (eai) {
	case EAI_NONAME:
	case EAI_NODATA:
	case EAI_ADDRFAMILY:
		return -ENOENT;
	case EAI_AGAIN:
		return -EAGAIN;
	case EAI_SERVICE:
		return -EPROTONOSUPPORT;
	case EAI_FAMILY:
		return -EAFNOSUPPORT;
	case EAI_SOCKTYPE:
		return -ESOCKTNOSUPPORT;
	case EAI_BADFLAGS:
		return -EINVAL;
	case EAI_OVERFLOW:
		return -ENAMETOOLONG;
	case EAI_MEMORY:
		return -ENOMEM;
	case EAI_SYSTEM:
		return errno ? -errno : -EREMOTEIO;
	default:
		return -EREMOTEIO;
	}
}

/* What a kernel can use of the system's list. */
static int64_t keep(struct lookup *q, const struct addrinfo *ai)
{
	unsigned n = 0;

	for (; ai && n < GNET_ADDRINFO_MAX; ai = ai->ai_next) {
		struct gnet_addrinfo *to = &q->result[n];

		if (ai->ai_addrlen > sizeof(to->addr) ||
		    (ai->ai_socktype != SOCK_STREAM && ai->ai_socktype != SOCK_DGRAM))
			continue;
		to->family = ai->ai_family;
		to->socktype = ai->ai_socktype;
		to->protocol = ai->ai_protocol;
		to->addrlen = ai->ai_addrlen;
		memcpy(to->addr, ai->ai_addr, ai->ai_addrlen);
		n++;
	}
	return n ? (int64_t)n : -ENOENT;
}

static int64_t look_up(struct lookup *q)
{
	const struct addrinfo hints = { .ai_flags = q->ask.flags,
					.ai_family = q->ask.family,
					.ai_socktype = q->ask.socktype,
					.ai_protocol = q->ask.protocol };
	const char *node = q->ask.text;
	const char *service = q->has_node ? node + strlen(node) + 1 : node;
	struct addrinfo *all = NULL;
	int rc = sys.getaddrinfo(q->has_node ? node : NULL, q->has_service ? service : NULL, &hints,
				 &all);
	int64_t n;

	if (rc)
		return errno_of(rc);
	n = keep(q, all);
	sys.freeaddrinfo(all);
	return n;
}

static void finish(struct resolver *r, struct lookup *q)
{
	struct done *d = &r->done[q->thread];

	if (r->closed) {
		sys.free(q);
		return;
	}
	list_add_tail(&d->list, &q->link);
	atomic_store(&d->some, true);
	proxy_wake(proxy_thread(r->proxy, q->thread));
}

static void *thread_main(void *arg)
{
	struct resolver *r = arg;
	bool last;

	pthread_mutex_lock(&r->lock);
	while (!list_empty(&r->todo)) {
		struct lookup *q = list_entry(r->todo.next, struct lookup, link);

		list_del(&q->link);
		pthread_mutex_unlock(&r->lock);
		q->rc = look_up(q);
		pthread_mutex_lock(&r->lock);
		finish(r, q);
	}
	r->threads--;
	last = r->closed && !r->threads;
	pthread_mutex_unlock(&r->lock);
	if (last)
		destroy(r);
	return NULL;
}

/* One more thread, if there may be more: there is at least one for what is to do, or a negative errno. */
static int add_thread(struct resolver *r)
{
	pthread_t thread;
	int rc;

	if (r->threads == THREADS)
		return 0;
	rc = sys.thread_start(&thread, NULL, thread_main, r);
	if (rc)
		return r->threads ? 0 : rc;
	pthread_detach(thread);
	r->threads++;
	return 0;
}

/* ---- asking and answering ------------------------------------------------------------------------------------------------ */

/* A copy of what a kernel wrote, and may go on writing; its texts end. NULL and *rc: it is not what a kernel writes. */
static struct lookup *take(struct proxy_thread *t, const struct proxy_entry *e, int *rc)
{
	const uint8_t *arg = proxy_arg(t, e->call);
	struct lookup *q = arg ? sys.alloc(sizeof(*q)) : NULL;
	const char *end;

	*rc = arg ? -ENOMEM : -EINVAL;
	if (!q)
		return NULL;
	memcpy(&q->ask, arg, sizeof(q->ask));
	list_init(&q->link);
	q->thread = proxy_index(t);
	q->call = e->call;
	q->tag = e->tag;
	q->has_node = e->a & 1;
	q->has_service = e->a & 2;
	end = memchr(q->ask.text, 0, sizeof(q->ask.text));
	if (end && q->has_node && q->has_service)
		end = memchr(end + 1, 0, sizeof(q->ask.text) - (size_t)(end + 1 - q->ask.text));
	if (end)
		return q;
	*rc = -EINVAL;
	sys.free(q);
	return NULL;
}

static int begin(struct resolver *r, struct lookup *q)
{
	int rc;

	if (r->pending == r->most)
		return -EBUSY;
	list_add_tail(&r->todo, &q->link);
	rc = add_thread(r);
	if (rc) {
		list_del(&q->link);
		return rc;
	}
	r->pending++;
	return 0;
}

void resolver_ask(struct resolver *r, struct proxy_thread *t, const struct proxy_entry *e)
{
	int rc;
	struct lookup *q = take(t, e, &rc);

	if (q) {
		pthread_mutex_lock(&r->lock);
		rc = begin(r, q);
		pthread_mutex_unlock(&r->lock);
	}
	if (!rc)
		return;
	if (q)
		sys.free(q);
	proxy_reply(t, e->call, e->tag, rc);
}

bool resolver_ready(struct resolver *r, unsigned thread)
{
	return atomic_load(&r->done[thread].some);
}

unsigned resolver_answer(struct resolver *r, struct proxy_thread *t)
{
	struct done *d = &r->done[proxy_index(t)];
	struct list todo;
	unsigned n = 0;

	if (!atomic_load_explicit(&d->some, memory_order_relaxed))
		return 0;
	list_init(&todo);
	pthread_mutex_lock(&r->lock);
	atomic_store(&d->some, false);
	list_take(&d->list, &todo);
	pthread_mutex_unlock(&r->lock);
	while (!list_empty(&todo)) {
		struct lookup *q = list_entry(todo.next, struct lookup, link);

		list_del(&q->link);
		if (q->rc > 0)
			memcpy(proxy_arg(t, q->call), q->result,
			       (size_t)q->rc * sizeof(q->result[0]));
		proxy_reply(t, q->call, q->tag, q->rc);
		sys.free(q);
		n++;
	}
	pthread_mutex_lock(&r->lock);
	r->pending -= n;
	pthread_mutex_unlock(&r->lock);
	return n;
}
