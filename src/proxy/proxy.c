/* SPDX-License-Identifier: BSD-3-Clause */
#include "proxy/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/sys.h"
#include "platform/numa.h"

/* Each write to an event descriptor is an edge, whether it is read in between or not; its counter lasts for 2^64 of them. */
static void wake_event(struct proxy_watch *w, uint32_t events)
{
	(void)w;
	(void)events;
}

/* Where it is forbidden, in a container say, everything works without; one note for all threads. */
static void open_ring(struct proxy_thread *t)
{
	int rc;

	if (t->index && !t->p->t[0].ring)
		return;
	rc = sys.ring_open(&t->ring);
	if (rc)
		log_line(
			LOG_NOTE,
			"there is no io_uring for proxy thread %u (%s): it makes a system call a socket",
			t->index, strerror(-rc));
}

static int thread_open(struct proxy *p, unsigned i)
{
	struct proxy_thread *t = &p->t[i];
	int rc;

	t->p = p;
	t->index = i;
	t->epfd = sys.epoll_create();
	if (t->epfd < 0)
		return log_error(t->epfd, "cannot make the epoll descriptor of proxy thread %u: %s",
				 i, strerror(-t->epfd));
	t->wake_fd = sys.eventfd();
	if (t->wake_fd < 0)
		return log_error(t->wake_fd,
				 "cannot make the event descriptor of proxy thread %u: %s", i,
				 strerror(-t->wake_fd));
	if (p->params.ring)
		open_ring(t);
	t->wake.fn = wake_event;
	rc = proxy_watch(t, t->wake_fd, &t->wake);
	return rc ? log_error(rc, "proxy thread %u cannot watch its event descriptor: %s", i,
			      strerror(-rc))
		  : 0;
}

static void thread_close(struct proxy_thread *t)
{
	proxy_dig(t);
	if (t->ring)
		sys.ring_close(t->ring);
	if (t->wake_fd >= 0)
		sys.close(t->wake_fd);
	if (t->epfd >= 0)
		sys.close(t->epfd);
}

/* Called by kernels of the CPU device after they have stored an entry, or moved a head (Z3). */
static void kick(void *ctx, unsigned q)
{
	struct proxy *p = ctx;
	struct proxy_thread *t = &p->t[(q & ~GNET_KICK_ROOM) % p->params.threads];

	/* A read-modify-write even if only to look: it and the sleeper's exchange come in one order. */
	if ((q & GNET_KICK_ROOM) && atomic_fetch_or(&t->mark, 0) != ASLEEP_FOR_ROOM)
		return;
	proxy_wake(t);
}

int proxy_open(struct proxy **out, const struct proxy_params *params)
{
	struct proxy *p = sys.alloc(sizeof(*p) + params->threads * sizeof(p->t[0]));
	unsigned i;
	int rc;

	if (!p)
		return log_error(-ENOMEM, "no memory for %u proxy threads", params->threads);
	p->params = *params;
	for (i = 0; i < params->threads; i++) {
		p->t[i].epfd = p->t[i].wake_fd = -1;
		list_init(&p->t[i].graveyard);
	}
	for (i = 0; i < params->threads; i++) {
		rc = thread_open(p, i);
		if (rc) {
			proxy_close(p);
			return rc;
		}
	}
	p->kicks = params->platform->set_kick(params->dev, kick, p);
	*out = p;
	return 0;
}

void proxy_close(struct proxy *p)
{
	unsigned i;

	if (!p)
		return;
	proxy_stop(p);
	p->params.platform->set_kick(p->params.dev, NULL, NULL);
	for (i = 0; i < p->params.threads; i++)
		thread_close(&p->t[i]);
	sys.free(p);
}

void proxy_on_op(struct proxy *p, unsigned op, proxy_op_fn fn, void *ctx)
{
	p->ops[op].fn = fn;
	p->ops[op].ctx = ctx;
}

void proxy_set_hooks(struct proxy *p, const struct proxy_hooks *h)
{
	p->hooks = *h;
}

/* Threads run near the device, as far as the caller's thread may run there. */
static void place_threads(const struct proxy *p, pthread_attr_t *attr)
{
	struct platform_info info;
	cpu_set_t cpus;

	if (!p->params.platform->info(p->params.dev, &info) && !numa_cpus(info.numa_node, &cpus))
		pthread_attr_setaffinity_np(attr, sizeof(cpus), &cpus);
}

static int start_threads(struct proxy *p)
{
	pthread_attr_t attr;
	unsigned i;
	int rc = pthread_attr_init(&attr);

	if (rc)
		return -rc;
	place_threads(p, &attr);
	for (i = 0; i < p->params.threads && !rc; i++) {
		rc = sys.thread_start(&p->t[i].thread, &attr, proxy_thread_main, &p->t[i]);
		p->started += !rc;
	}
	if (!rc && !p->kicks) {
		rc = sys.thread_start(&p->sentinel, &attr, proxy_sentinel_main, p);
		p->sentinel_started = !rc;
	}
	pthread_attr_destroy(&attr);
	return rc;
}

int proxy_start(struct proxy *p)
{
	int rc;

	atomic_store(&p->stop, false);
	rc = start_threads(p);
	if (rc) {
		log_error(rc, "cannot start proxy thread %u of %u: %s", p->started,
			  p->params.threads, strerror(-rc));
		proxy_stop(p);
	}
	return rc;
}

void proxy_stop(struct proxy *p)
{
	unsigned i;

	atomic_store(&p->stop, true);
	for (i = 0; i < p->started; i++)
		proxy_wake(&p->t[i]);
	for (i = 0; i < p->started; i++)
		pthread_join(p->t[i].thread, NULL);
	p->started = 0;
	if (p->sentinel_started)
		pthread_join(p->sentinel, NULL);
	p->sentinel_started = false;
}

void proxy_end_waits(struct proxy *p, int err)
{
	uint64_t none = 0;

	/* An abort must not hide that a thread is dead: that ends waits which an abort does not. */
	if (err == ECANCELED)
		__atomic_compare_exchange_n(&p->params.ctl->stop, &none, ECANCELED, false,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	else
		__atomic_store_n(&p->params.ctl->stop, (uint64_t)err, __ATOMIC_RELEASE);
	p->params.platform->notify(p->params.dev, NULL);
}

static bool waits_ended(const struct proxy *p, int err)
{
	return __atomic_load_n(&p->params.ctl->stop, __ATOMIC_ACQUIRE) == (uint64_t)err;
}

bool proxy_is_dead(const struct proxy *p)
{
	return waits_ended(p, EIO);
}

bool proxy_is_aborted(const struct proxy *p)
{
	return waits_ended(p, ECANCELED);
}

const char *proxy_state(const struct proxy *p, unsigned i)
{
	if (proxy_is_dead(p))
		return "dead";
	if (atomic_load_explicit(&p->stop, memory_order_relaxed))
		return "stopped";
	return atomic_load_explicit(&p->t[i].mark, memory_order_relaxed) == AWAKE ? "awake"
										  : "asleep";
}

unsigned proxy_threads(const struct proxy *p)
{
	return p->params.threads;
}

struct proxy_thread *proxy_thread(struct proxy *p, unsigned i)
{
	return &p->t[i];
}

unsigned proxy_index(const struct proxy_thread *t)
{
	return t->index;
}

uint64_t proxy_now(const struct proxy_thread *t)
{
	return t->now;
}

void proxy_touched(struct proxy_thread *t, const void *word)
{
	if (t->n_touched < PROXY_TOUCHED)
		t->touched[t->n_touched] = word;
	if (t->n_touched <= PROXY_TOUCHED)
		t->n_touched++;
}

bool proxy_quiet(const struct proxy_thread *t)
{
	return t->quiet;
}

bool proxy_may_hint(struct proxy_thread *t)
{
	const struct gnet_news *r = &t->p->params.news[t->index];

	/* A head beyond the tail is none of ours: a kernel's memory is not trusted to be sane. */
	return !t->p->kicks &&
	       t->hints - __atomic_load_n(&r->head, __ATOMIC_RELAXED) < GNET_NEWS_RING;
}

void proxy_hint(struct proxy_thread *t, uint32_t slot)
{
	struct gnet_news *r = &t->p->params.news[t->index];
	uint64_t p = t->hints++;

	__atomic_store_n(&r->cell[p % GNET_NEWS_RING], (uint64_t)slot << 8 | GNET_NEWS_TAG(p),
			 __ATOMIC_RELEASE);
}

uint8_t *proxy_arg(struct proxy_thread *t, unsigned call)
{
	return call < t->p->params.n_calls ? t->p->params.calls[call].arg : NULL;
}

void proxy_reply(struct proxy_thread *t, unsigned call, unsigned tag, int64_t value)
{
	if (call >= t->p->params.n_calls)
		return; /* a kernel's memory is not trusted to be sane */
	__atomic_store_n(&t->p->params.calls[call].reply, (uint64_t)value << 16 | (tag & 0xffff),
			 __ATOMIC_RELEASE);
	proxy_touched(t, &t->p->params.calls[call].reply);
}

int proxy_watch(struct proxy_thread *t, int fd, struct proxy_watch *w)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
				  .data.ptr = w };

	w->t = t;
	return sys.epoll_ctl(t->epfd, EPOLL_CTL_ADD, fd, &ev);
}

void proxy_unwatch(struct proxy_thread *t, int fd)
{
	struct epoll_event none = { 0 };
	int rc = sys.epoll_ctl(t->epfd, EPOLL_CTL_DEL, fd, &none);

	if (rc)
		log_line(LOG_DEBUG, "descriptor %d was not watched any more: %s", fd,
			 strerror(-rc));
}

/* Fewer calls are no dearer made directly. */
#define RING_LEAST 3

void proxy_io(struct proxy_thread *t, struct sys_io *io, unsigned n)
{
	if (t->ring && n >= RING_LEAST)
		sys.ring_io(t->ring, io, n);
	else
		sys_io_each(io, n);
}

bool proxy_has_ring(const struct proxy_thread *t)
{
	return t->ring;
}

void proxy_get_counters(struct proxy *p, struct proxy_counters *c)
{
	unsigned i;

	memset(c, 0, sizeof(*c));
	for (i = 0; i < p->params.threads; i++) {
		c->entries += atomic_load_explicit(&p->t[i].entries, memory_order_relaxed);
		c->sleeps += atomic_load_explicit(&p->t[i].sleeps, memory_order_relaxed);
		c->wakeups += atomic_load_explicit(&p->t[i].wakeups, memory_order_relaxed);
	}
}

bool proxy_queues_empty(struct proxy *p)
{
	unsigned i;

	for (i = 0; i < p->params.threads; i++) {
		uint64_t done = atomic_load_explicit(&p->t[i].done, memory_order_acquire);

		if (__atomic_load_n(&p->params.sq_head[i].pos, __ATOMIC_ACQUIRE) != done ||
		    proxy_sq_ready(&p->params, i, done))
			return false;
	}
	return true;
}
