/* SPDX-License-Identifier: BSD-3-Clause */
/* One pass of a proxy thread, its sleep, and the sentinel. */
#include "proxy/internal.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/log.h"
#include "base/relax.h"
#include "base/sys.h"

/* Bounds of one pass. */
#define ENTRIES_A_PASS 64
#define EVENTS_A_PASS 64
/* While busy descriptors are looked at directly: passes from one question for events to the next, at least. */
#define PASSES_AN_EVENT_CALL 8u
/* So many passes without work take as long as one with. */
#define IDLE_PASSES 16u
/* However many passes are left: one that moves much takes its time. */
#define DEFER_NS UINT64_C(4000000)

static void dispatch(struct proxy_thread *t, const struct proxy_entry *e)
{
	struct proxy *p = t->p;

	if (e->op < GNET_OP_COUNT && p->ops[e->op].fn)
		p->ops[e->op].fn(t, e, p->ops[e->op].ctx);
	else if (e->op >= GNET_OP_FIRST_COMMAND)
		proxy_reply(t, e->call, e->tag, -EOPNOTSUPP);
}

static unsigned take_entries(struct proxy_thread *t)
{
	struct proxy_entry e;
	unsigned n = 0;

	while (n < ENTRIES_A_PASS && proxy_sq_take(t, &e)) {
		dispatch(t, &e);
		atomic_store_explicit(&t->done, t->head, memory_order_release);
		n++;
	}
	if (n) {
		proxy_touched(t, &t->p->params.sq_head[t->index]); /* kernels may wait for room */
		atomic_fetch_add_explicit(&t->entries, n, memory_order_relaxed);
	}
	return n;
}

/* The thread cannot go on (somebody has closed its descriptors, say). Kernels' waits end with -EIO. */
static void die(struct proxy_thread *t, int err)
{
	if (t->dead)
		return;
	t->dead = true;
	log_error(err, "proxy thread %u cannot wait for events: %s; the network is dead: close it",
		  t->index, strerror(-err));
	proxy_end_waits(t->p, EIO);
}

static unsigned take_events(struct proxy_thread *t, int64_t timeout_ns)
{
	struct epoll_event ev[EVENTS_A_PASS];
	int n = sys.epoll_wait(t->epfd, ev, EVENTS_A_PASS, timeout_ns), i;

	if (n < 0) {
		if (n != -EINTR)
			die(t, n);
		return 0;
	}
	for (i = 0; i < n; i++) {
		struct proxy_watch *w = ev[i].data.ptr;

		w->fn(w, ev[i].events);
	}
	return (unsigned)n;
}

/* What was closed during this pass is freed at its end, when no event of it can be at hand any more. */
void proxy_dig(struct proxy_thread *t)
{
	while (!list_empty(&t->graveyard)) {
		struct proxy_grave *g = list_entry(t->graveyard.next, struct proxy_grave, link);

		list_del(&g->link);
		g->fn(g);
	}
}

static void tell_device(struct proxy_thread *t)
{
	const struct proxy_params *p = &t->p->params;
	unsigned i;

	if (t->n_touched > PROXY_TOUCHED)
		p->platform->notify(p->dev, NULL);
	else
		for (i = 0; i < t->n_touched; i++)
			p->platform->notify(p->dev, t->touched[i]);
	t->n_touched = 0;
}

static unsigned run_hooks(struct proxy_thread *t, uint64_t *next)
{
	const struct proxy_hooks *h = &t->p->hooks;

	return h->step ? h->step(t, t->now, next, h->ctx) : 0;
}

unsigned proxy_step(struct proxy_thread *t, uint64_t now, uint64_t *next)
{
	/* Before the hooks defer anew: however busy, events have their turn, and however long a pass takes. */
	bool ask = (!t->defer && now >= t->awake_until) ||
		   (!t->rested && now - t->asked_at >= DEFER_NS);
	unsigned n, events;

	if (t->rested)
		t->asked_at = now;
	if (ask) {
		t->defer = 0;
		t->asked_at = now;
	}
	t->now = now;
	*next = UINT64_MAX;
	n = take_entries(t);
	t->quiet = !n;
	/* What kernels send does not wait for the system call below. */
	if (n)
		n += run_hooks(t, next);
	events = ask ? take_events(t, 0) : 0;
	if (events)
		t->deferred /= 8; /* one alone may be what the caller had found already */
	t->quiet &= !events;
	if (events || !n)
		n += events + run_hooks(t, next);
	/* Last: what has run out is deferred anew only when the next pass has asked. */
	if (!ask && t->defer)
		t->defer -= n && t->defer > IDLE_PASSES ? IDLE_PASSES : 1;
	t->rested = false;
	proxy_dig(t);
	tell_device(t);
	return n;
}

void proxy_defer_events(struct proxy_thread *t, unsigned most)
{
	if (t->defer && !t->rested)
		return;
	/* A sleep has asked, and waited for the answer: that says nothing of how often to ask. */
	if (t->deferred < PASSES_AN_EVENT_CALL)
		t->deferred = PASSES_AN_EVENT_CALL;
	else if (!t->rested)
		t->deferred = 2 * t->deferred < most ? 2 * t->deferred : most;
	if (t->defer < t->deferred)
		t->defer = t->deferred;
}

void proxy_stay_awake(struct proxy_thread *t, uint64_t until)
{
	t->awake_until = until;
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------- */

/* Z1, Z3: the mark is set before the last look, so that whoever stores after that look sees the mark. */
static void sleep_until(struct proxy_thread *t, uint64_t now, uint64_t next)
{
	struct proxy *p = t->p;
	const struct proxy_hooks *h = &p->hooks;
	bool room = h->waits_for_room && h->waits_for_room(t, h->ctx);
	int64_t timeout;

	atomic_exchange(&t->mark, room ? ASLEEP_FOR_ROOM : ASLEEP);
	if (proxy_sq_ready(&p->params, t->index, t->head) ||
	    (h->has_work && h->has_work(t, h->ctx)) ||
	    atomic_load_explicit(&p->stop, memory_order_relaxed)) {
		atomic_store(&t->mark, AWAKE);
		return;
	}
	if (h->rest)
		h->rest(t, &next, h->ctx);
	timeout = next == UINT64_MAX ? -1 : next > now ? (int64_t)(next - now) : 0;
	if (room && !p->kicks && (timeout < 0 || timeout > (int64_t)p->params.sentinel_ns))
		timeout = (int64_t)p->params.sentinel_ns;
	atomic_fetch_add_explicit(&t->sleeps, 1, memory_order_relaxed);
	/* What waits is known now: the next pass need not ask for it again. */
	t->rested = take_events(t, timeout) < EVENTS_A_PASS;
	if (!t->rested)
		t->defer = 0; /* there may be more than fit */
	else if (!t->defer)
		t->defer = 1;
	atomic_exchange(&t->mark, AWAKE);
	/* The events have set their sockets' flags; the next pass serves them. */
	proxy_dig(t);
}

void *proxy_thread_main(void *arg)
{
	struct proxy_thread *t = arg;
	struct proxy *p = t->p;
	uint64_t last = sys.now_ns();

	while (!t->dead && !atomic_load_explicit(&p->stop, memory_order_acquire)) {
		uint64_t now = sys.now_ns(), next;

		if (proxy_step(t, now, &next)) {
			last = now;
			continue;
		}
		if (p->params.spin_ns < 0 || now - last < (uint64_t)p->params.spin_ns ||
		    now < t->awake_until)
			relax();
		else
			sleep_until(t, now, next);
	}
	return NULL;
}

void proxy_wake(struct proxy_thread *t)
{
	uint64_t one = 1;

	if (atomic_exchange(&t->mark, AWAKE) == AWAKE)
		return;
	atomic_fetch_add_explicit(&t->wakeups, 1, memory_order_relaxed);
	if (sys.write(t->wake_fd, &one, sizeof(one)) < 0)
		return; /* the counter is at its limit: it is readable already */
}

void proxy_wake_others(struct proxy_thread *t)
{
	unsigned i;

	for (i = 0; i < t->p->params.threads; i++) {
		if (i != t->index)
			proxy_wake(&t->p->t[i]);
	}
}

/* Z2: a GPU cannot wake a thread. */
void *proxy_sentinel_main(void *arg)
{
	struct proxy *p = arg;
	struct timespec ts = { (time_t)(p->params.sentinel_ns / 1000000000u),
			       (long)(p->params.sentinel_ns % 1000000000u) };

	while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
		unsigned i;

		for (i = 0; i < p->params.threads; i++) {
			struct proxy_thread *t = &p->t[i];
			uint64_t head =
				__atomic_load_n(&p->params.sq_head[i].pos, __ATOMIC_RELAXED);

			if (atomic_load_explicit(&t->mark, memory_order_relaxed) != AWAKE &&
			    proxy_sq_ready(&p->params, i, head))
				proxy_wake(t);
		}
		nanosleep(&ts, NULL);
	}
	return NULL;
}

void proxy_bury(struct proxy_thread *t, struct proxy_grave *g)
{
	list_add_tail(&t->graveyard, &g->link);
}
