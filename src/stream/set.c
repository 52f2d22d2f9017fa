/* SPDX-License-Identifier: BSD-3-Clause */
/* Which streams of a proxy thread have something to do. */
#include "stream/internal.h"

#include "base/sys.h"

void stream_set_init(struct stream_set *set, struct proxy_thread *t, struct slab *slab,
		     uint64_t linger_ns)
{
	set->hops = NULL;
	set->t = t;
	set->slab = slab;
	set->linger_ns = linger_ns;
	list_init(&set->run);
	list_init(&set->waiters);
	list_init(&set->attached);
	set->asked = 0;
	list_init(&set->hot);
	set->n_hot = 0;
	set->crowded_until = 0;
	list_init(&set->closing);
	list_init(&set->later);
	list_init(&set->full);
	set->bytes_in = set->bytes_out = set->unsent = 0;
}

void stream_run(struct stream *s)
{
	if (list_empty(&s->run_link))
		list_add_tail(&s->set->run, &s->run_link);
}

/* How soon a call is tried again for which the system had no memory: no event tells when it has. */
#define LATER_NS 2000000

void stream_later(struct stream *s)
{
	struct stream_set *set = s->set;

	if (list_empty(&set->later))
		set->later_at = proxy_now(set->t) + LATER_NS;
	if (list_empty(&s->later_link))
		list_add_tail(&set->later, &s->later_link);
}

static void run_later(struct stream_set *set, uint64_t now)
{
	while (now >= set->later_at && !list_empty(&set->later)) {
		struct stream *s = list_entry(set->later.next, struct stream, later_link);

		list_del(&s->later_link);
		stream_run(s);
	}
}

/*
 * How often full sockets are tried again whose peer may take no more without an event that tells of it (T8), and how many at a
 * time: ten thousand whose peers are only slow must not keep a processor busy.
 */
#define FULL_NS 20000000
#define FULL_AT_ONCE 32

void stream_try_full(struct stream *s)
{
	struct stream_set *set = s->set;

	if (list_empty(&set->full))
		set->full_at = proxy_now(set->t) + FULL_NS;
	if (list_empty(&s->full_link))
		list_add_tail(&set->full, &s->full_link);
}

static void run_full(struct stream_set *set, uint64_t now)
{
	unsigned n;

	if (list_empty(&set->full) || now < set->full_at)
		return;
	for (n = 0; n < FULL_AT_ONCE && !list_empty(&set->full); n++) {
		struct stream *s = list_entry(set->full.next, struct stream, full_link);

		list_del(&s->full_link);
		s->writable = true;
		stream_run(s);
	}
	set->full_at = now + FULL_NS;
}

static bool head_moved(const struct stream *s)
{
	return __atomic_load_n(&s->bus->head, __ATOMIC_ACQUIRE) != s->rx_seen;
}

/* So many are looked at in a pass, whose length all others have to wait for. */
#define WAITERS_A_PASS 256

static unsigned wake_waiters(struct stream_set *set)
{
	struct list *l = set->waiters.next, *next;
	unsigned i, n = 0;

	for (i = 0; i < WAITERS_A_PASS && l != &set->waiters; i++, l = next) {
		struct stream *s = list_entry(l, struct stream, wait_link);

		next = l->next;
		if (!head_moved(s))
			continue;
		list_del(&s->wait_link);
		stream_run(s);
		n++;
	}
	if (l == &set->waiters)
		return n;
	/* The next pass goes on from there. */
	list_del(&set->waiters);
	list_add_tail(l, &set->waiters);
	return n;
}

/*
 * A peer that answers within microseconds is met sooner by asking its socket than by waiting for the event that tells of it, and
 * the asking saves a system call. So a few streams that have just received are asked in every pass. When more than a few
 * receive, one question for events tells of many, and who is not asked would wait while the few are.
 */
#define HOT_STREAMS 4
#define HOT_NS 50000
#define DEFER 8

void stream_heat(struct stream *s)
{
	struct stream_set *set = s->set;

	s->hot_until = proxy_now(set->t) + HOT_NS;
	if (!list_empty(&s->hot_link))
		return;
	if (set->n_hot == HOT_STREAMS) {
		set->crowded_until = s->hot_until;
		return;
	}
	list_add_tail(&set->hot, &s->hot_link);
	set->n_hot++;
}

void stream_cool(struct stream *s)
{
	if (list_empty(&s->hot_link))
		return;
	list_del(&s->hot_link);
	s->set->n_hot--;
}

static void ask_hot(struct stream_set *set, uint64_t now)
{
	struct list *l, *next;
	bool bulk = false;

	for (l = set->hot.next; l != &set->hot; l = next) {
		struct stream *s = list_entry(l, struct stream, hot_link);

		next = l->next;
		if (s->hot_until < now) {
			stream_cool(s);
			continue;
		}
		if (now < set->crowded_until)
			continue;
		s->readable = true;
		stream_run(s);
		bulk |= s->rx_bulk;
	}
	/* Where a pass receives much the system call saves little, and what others say would wait for several such passes. */
	if (set->n_hot && now >= set->crowded_until && !bulk)
		proxy_defer_events(set->t, DEFER);
}

/* Closed streams in the order of their deadlines. */
static void end_lingering(struct stream_set *set, uint64_t now, uint64_t *next)
{
	while (!list_empty(&set->closing)) {
		struct stream *s = list_entry(set->closing.next, struct stream, closing_link);

		if (s->deadline > now) {
			if (s->deadline < *next)
				*next = s->deadline;
			return;
		}
		stream_abort(s);
	}
}

/* ---- what streams send and receive, several by one call where the proxy can ------------------------------------------- */

/* What is received is told of when the whole call has returned: so not too many. */
#define AT_ONCE 32

struct together {
	unsigned n;
	struct stream *of[AT_ONCE];
	struct sys_io io[AT_ONCE];
};

typedef unsigned (*end_fn)(struct stream *s, const struct sys_io *io);

static void call(struct stream_set *set, struct sys_io *io, unsigned n)
{
	if (set->hops)
		set->call_at[0] = sys.now_ns();
	proxy_io(set->t, io, n);
	if (set->hops)
		set->call_at[1] = sys.now_ns();
}

static unsigned make(struct stream_set *set, struct together *t, end_fn end)
{
	unsigned i, done = 0;

	if (t->n)
		call(set, t->io, t->n);
	for (i = 0; i < t->n; i++)
		done += end(t->of[i], &t->io[i]);
	t->n = 0;
	return done;
}

/* One more, or alone if it is large or there is no way to make several. */
static unsigned add(struct stream_set *set, struct together *t, struct stream *s, bool alone,
		    end_fn end)
{
	struct sys_io *io = &t->io[t->n];

	if (alone || !proxy_has_ring(set->t)) {
		call(set, io, 1);
		return end(s, io);
	}
	t->of[t->n++] = s;
	return 0;
}

static unsigned send_all(struct stream_set *set, struct together *t, struct stream **s, unsigned n)
{
	unsigned i, done = 0;

	for (i = 0; i < n; i++) {
		struct sys_io *io = &t->io[t->n];

		if (s[i]->rings)
			done += stream_ring_tx(s[i]);
		else if (s[i]->dgram)
			done += stream_send_datagrams(s[i]);
		else if (stream_tx_begin(s[i], io))
			done += add(set, t, s[i], io->v[0].iov_len >= STREAM_BULK, stream_tx_end);
	}
	return done + make(set, t, stream_tx_end);
}

static unsigned receive_all(struct stream_set *set, struct together *t, struct stream **s,
			    unsigned n)
{
	unsigned i, done = 0;

	for (i = 0; i < n; i++) {
		if (s[i]->rings)
			done += stream_ring_rx(s[i]);
		else if (s[i]->dgram)
			done += stream_dgram_rx(s[i]);
		else if (stream_rx_begin(s[i], &t->io[t->n]))
			done += add(set, t, s[i], s[i]->rx_bulk, stream_rx_end);
	}
	return done + make(set, t, stream_rx_end);
}

/* Takes the first few off the list; what they do may queue them anew. */
static unsigned take_some(struct list *todo, struct stream **s)
{
	unsigned n = 0;

	while (n < AT_ONCE && !list_empty(todo)) {
		s[n] = list_entry(todo->next, struct stream, run_link);
		list_del(&s[n]->run_link);
		n += s[n]->ch != NULL;
	}
	return n;
}

static unsigned run_all(struct stream_set *set)
{
	struct stream *s[AT_ONCE];
	struct together t;
	struct list todo;
	unsigned n, i, left, done = 0;

	t.n = 0;
	list_init(&todo);
	list_take(&set->run, &todo);
	while ((n = take_some(&todo, s))) {
		/* What kernels say goes out before anybody is asked for more. */
		done += send_all(set, &t, s, n);
		for (i = left = 0; i < n; i++) {
			if (!stream_tx_over(s[i]))
				s[left++] = s[i];
		}
		done += receive_all(set, &t, s, left);
	}
	return done;
}

unsigned stream_set_step(struct stream_set *set, uint64_t now, uint64_t *next)
{
	unsigned n = wake_waiters(set);

	stream_give_asked(set);
	ask_hot(set, now);
	run_later(set, now);
	run_full(set, now);
	n += run_all(set);
	end_lingering(set, now, next);
	if (!list_empty(&set->later) && set->later_at < *next)
		*next = set->later_at;
	if (!list_empty(&set->full) && set->full_at < *next)
		*next = set->full_at;
	if (!list_empty(&set->run))
		*next = now;
	return n;
}

bool stream_set_waits(const struct stream_set *set)
{
	return !list_empty(&set->waiters);
}

bool stream_set_has_room(const struct stream_set *set)
{
	const struct list *l;

	for (l = set->waiters.next; l != &set->waiters; l = l->next) {
		if (head_moved(list_entry(l, struct stream, wait_link)))
			return true;
	}
	return false;
}
