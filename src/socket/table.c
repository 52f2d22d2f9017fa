/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of sockets: slots, descriptors, start and end. */
#include "socket/socket.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"

struct sock_thread *sock_thread_of(const struct sock *s)
{
	return &s->all->t[s->slot % s->all->threads];
}

int sock_fd(const struct sock *s)
{
	return GNET_FD(s->slot, s->gen);
}

static void slot_free(struct sock_thread *t, uint32_t slot)
{
	pthread_mutex_lock(&t->lock);
	t->free[(t->free_head + t->free_count) % t->free_size] = slot;
	t->free_count++;
	pthread_mutex_unlock(&t->lock);
}

static void give_slot(struct sock *s)
{
	stat_tell_gone(s);
	atomic_store_explicit(&s->fd, 0, memory_order_relaxed);
	s->lingers = LINGER_NONE;
	atomic_fetch_sub(&s->all->open, 1);
	slot_free(sock_thread_of(s), s->slot);
}

/* A stream has given everything back. */
static void gone(struct stream *st)
{
	struct sock *s = list_entry(st, struct sock, st);

	s->state = SOCK_CLOSED;
	s->ch = NULL;
	young_end(s);
	list_del(&s->link);
	if (s->lingers == LINGER_NONE) {
		give_slot(s);
		return;
	}
	/* The line is the closer's until it has seen this. */
	s->lingers = LINGER_OVER;
	stream_tell_gone(st);
}

void sock_forget(struct sock *s)
{
	if (s->lingers == LINGER_OVER)
		give_slot(s);
	s->lingers = LINGER_NONE;
}

struct sock *sock_new(struct sockets *all, unsigned thread, struct channel *ch)
{
	struct sock_thread *t = &all->t[thread];
	struct sock *s = NULL;
	unsigned gen;

	pthread_mutex_lock(&t->lock);
	if (t->free_count) {
		s = &all->sock[t->free[t->free_head]];
		s->slot = t->free[t->free_head];
		t->free_head = (t->free_head + 1) % t->free_size;
		t->free_count--;
	}
	pthread_mutex_unlock(&t->lock);
	if (!s)
		return NULL;
	gen = s->gen == GNET_GEN_MAX ? 1 : s->gen + 1;
	stream_init(&s->st, &t->set, &all->p.bus[s->slot], s->slot, gone);
	s->all = all;
	s->gen = gen;
	s->ch = ch;
	s->state = SOCK_NEW;
	s->started = s->acceptable = s->young = false;
	s->short_of = (struct complaint){ 0 };
	s->linger = false;
	s->lingers = LINGER_NONE;
	s->linger_s = 0;
	s->accepted = 0;
	s->in_hand = NULL;
	list_init(&s->link);
	ch->owner = s;
	atomic_fetch_add(&all->open, 1);
	return s;
}

void sock_publish(struct sock *s)
{
	atomic_store_explicit(&s->fd, sock_fd(s), memory_order_release);
}

void sock_unnew(struct sock *s)
{
	gone(&s->st);
}

/* The thread's socket with this descriptor, closed or not, or NULL. */
static struct sock *find(struct proxy_thread *t, struct sockets *all, int fd)
{
	uint32_t slot = GNET_FD_SLOT(fd);
	struct sock *s;

	if (slot >= all->p.max || slot % all->threads != proxy_index(t))
		return NULL;
	s = &all->sock[slot];
	return fd && atomic_load_explicit(&s->fd, memory_order_acquire) == fd ? s : NULL;
}

struct sock *sock_find(struct proxy_thread *t, struct sockets *all, int fd)
{
	struct sock *s = find(t, all, fd);

	return s && s->state != SOCK_CLOSED ? s : NULL;
}

int sock_close_again(struct proxy_thread *t, struct sockets *all, int fd)
{
	struct sock *s = find(t, all, fd);
	bool late;

	if (!s || s->lingers == LINGER_NONE)
		return -EBADF;
	if (s->lingers == LINGER_SENDS)
		return -EINPROGRESS;
	late = s->st.late;
	sock_forget(s);
	return late ? -ETIMEDOUT : 0;
}

/* ---- hooks of the proxy ------------------------------------------------------------------------------------------------ */

/* The next socket that another thread wants closed, and the descriptor that it meant. */
static struct sock *take_order(struct sock_thread *t, int *fd)
{
	struct sock *s;

	pthread_mutex_lock(&t->lock);
	s = t->orders;
	if (s) {
		t->orders = s->order_next;
		s->ordered = false;
		*fd = s->order_fd;
	} else {
		atomic_store_explicit(&t->ordered, false, memory_order_release);
	}
	pthread_mutex_unlock(&t->lock);
	return s;
}

static void run_orders(struct sock_thread *t)
{
	struct sock *s;
	int fd;

	if (!atomic_load_explicit(&t->ordered, memory_order_acquire))
		return;
	while ((s = take_order(t, &fd))) {
		/* It may have been closed, and its slot used again, since the order was given. */
		if (fd && atomic_load_explicit(&s->fd, memory_order_acquire) == fd &&
		    s->state != SOCK_CLOSED)
			sock_close(s, s->accepted);
	}
}

static void close_own(struct sockets *all, unsigned thread)
{
	uint32_t i;

	for (i = thread; i < all->p.max; i += all->threads) {
		struct sock *s = &all->sock[i];

		if (!atomic_load_explicit(&s->fd, memory_order_acquire))
			continue;
		if (s->state == SOCK_CLOSED)
			sock_forget(s);
		else
			sock_close(s, s->state == SOCK_LISTENING
					      ? __atomic_load_n(&s->st.bus->head, __ATOMIC_ACQUIRE)
					      : 0);
	}
}

static unsigned run_listeners(struct sock_thread *t, uint64_t now)
{
	struct list todo, *l, *next;
	unsigned n = 0;

	for (l = t->full.next; l != &t->full; l = next) {
		struct sock *s = list_entry(l, struct sock, link);

		next = l->next;
		if (sock_accept_room(s)) {
			list_del(l);
			list_add_tail(&t->ready, l);
		}
	}
	list_init(&todo);
	list_take(&t->ready, &todo);
	while (!list_empty(&todo)) {
		struct sock *s = list_entry(todo.next, struct sock, link);

		list_del(&s->link);
		n += sock_accept_step(s, now);
	}
	return n;
}

/* So many at a time, oldest first: each takes a system call or more, and thousands of connects may wait for one backlog. */
#define RETRIES_AT_ONCE 128

static void try_again(struct sock_thread *t, struct sock *s)
{
	list_del(&s->link);
	if (s->state == SOCK_LISTENING)
		list_add_tail(&t->ready, &s->link);
	else if (s->state == SOCK_CONNECTING)
		sock_connect_again(s);
	else if (s->young)
		young_watch(s);
}

static void run_retries(struct sock_thread *t, uint64_t now, uint64_t *next)
{
	const struct list *last = t->retry.prev, *l;
	unsigned n = 0;

	if (list_empty(&t->retry))
		return;
	if (now >= t->retry_at) {
		do {
			l = t->retry.next;
			try_again(t, list_entry(l, struct sock, link));
		} while (l != last && ++n < RETRIES_AT_ONCE);
		t->retry_at = now + SOCK_RETRY_NS;
	}
	if (!list_empty(&t->retry) && t->retry_at < *next)
		*next = t->retry_at;
	if (!list_empty(&t->ready))
		*next = now;
}

static unsigned step(struct proxy_thread *pt, uint64_t now, uint64_t *next, void *ctx)
{
	struct sockets *all = ctx;
	struct sock_thread *t = &all->t[proxy_index(pt)];
	unsigned n;

	run_orders(t);
	if (!t->closed_all && atomic_load_explicit(&all->close_all, memory_order_acquire)) {
		t->closed_all = true;
		close_own(all, proxy_index(pt));
	}
	n = channel_net_step(all->p.channels, pt, now, next);
	n += resolver_answer(all->resolver, pt);
	n += run_listeners(t, now);
	run_retries(t, now, next);
	young_step(t, now, !n && proxy_quiet(pt));
	return n + stream_set_step(&t->set, now, next);
}

static void rest(struct proxy_thread *pt, uint64_t *next, void *ctx)
{
	struct sock_thread *t = &((struct sockets *)ctx)->t[proxy_index(pt)];

	young_rest(t);
	if (!list_empty(&t->retry) && t->retry_at < *next)
		*next = t->retry_at;
}

static bool waits_for_room(struct proxy_thread *pt, void *ctx)
{
	struct sock_thread *t = &((struct sockets *)ctx)->t[proxy_index(pt)];

	return !list_empty(&t->full) || stream_set_waits(&t->set);
}

/* What anybody else may have handed to this thread since its last step (docs/bus.md, Z1 and Z3). */
static bool has_work(struct proxy_thread *pt, void *ctx)
{
	struct sockets *all = ctx;
	struct sock_thread *t = &all->t[proxy_index(pt)];
	struct list *l;

	if (atomic_load_explicit(&t->ordered, memory_order_acquire) ||
	    resolver_ready(all->resolver, proxy_index(pt)) ||
	    (!t->closed_all && atomic_load_explicit(&all->close_all, memory_order_acquire)))
		return true;
	for (l = t->full.next; l != &t->full; l = l->next) {
		if (sock_accept_room(list_entry(l, struct sock, link)))
			return true;
	}
	return stream_set_has_room(&t->set) || stream_set_is_asked(&t->set) ||
	       channel_net_has_work(all->p.channels, pt);
}

/* ---- start and end ------------------------------------------------------------------------------------------------------ */

static int thread_init(struct sockets *all, unsigned i)
{
	struct sock_thread *t = &all->t[i];
	uint32_t slot;

	t->all = all;
	stream_set_init(&t->set, proxy_thread(all->p.proxy, i), all->p.slab, all->p.linger_ns);
	if (all->p.hops && all->p.stat->hops) {
		t->set.hops = &all->p.stat->hops[i];
		t->set.hops_bus = all->p.hops;
	}
	list_init(&t->ready);
	list_init(&t->full);
	list_init(&t->retry);
	list_init(&t->young);
	t->free_size = all->p.max / all->threads + 1;
	t->free = sys.alloc(t->free_size * sizeof(*t->free));
	if (!t->free)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	for (slot = i; slot < all->p.max; slot += all->threads)
		t->free[t->free_count++] = slot;
	return 0;
}

int sockets_init(struct sockets *all, const struct sockets_params *p)
{
	const struct proxy_hooks hooks = { .ctx = all,
					   .step = step,
					   .waits_for_room = waits_for_room,
					   .has_work = has_work,
					   .rest = rest };
	unsigned i;
	int rc = 0;

	memset(all, 0, sizeof(*all));
	all->p = *p;
	all->threads = proxy_threads(p->proxy);
	all->sock = sys.alloc(p->max * sizeof(*all->sock));
	all->t = sys.alloc(all->threads * sizeof(*all->t));
	if (!all->sock || !all->t)
		rc = -ENOMEM;
	for (i = 0; i < all->threads && !rc; i++)
		rc = thread_init(all, i);
	if (!rc)
		rc = resolver_open(&all->resolver, p->proxy, p->lookups);
	if (rc) {
		sockets_fini(all);
		return log_error(rc, "no memory for a table of %u sockets (option max_sockets)",
				 p->max);
	}
	sock_register_ops(all);
	proxy_set_hooks(p->proxy, &hooks);
	return 0;
}

void sockets_fini(struct sockets *all)
{
	uint32_t i;

	for (i = 0; all->sock && i < all->p.max; i++) {
		struct sock *s = &all->sock[i];

		if (!s->ch)
			continue;
		sock_drop_in_hand(s);
		if (!s->st.ch)
			s->ch->ops->close(s->ch, 0);
		stream_abort(&s->st);
	}
	for (i = 0; all->t && i < all->threads; i++) {
		if (!all->t[i].free)
			continue;
		pthread_mutex_destroy(&all->t[i].lock);
		sys.free(all->t[i].free);
	}
	resolver_close(all->resolver);
	sys.free(all->t);
	sys.free(all->sock);
	all->resolver = NULL;
	all->t = NULL;
	all->sock = NULL;
}

void sockets_close_all(struct sockets *all)
{
	unsigned i;

	atomic_store_explicit(&all->close_all, true, memory_order_release);
	for (i = 0; i < all->threads; i++)
		proxy_wake(proxy_thread(all->p.proxy, i));
}

bool sockets_unsent(struct sockets *all)
{
	unsigned i;

	for (i = 0; i < all->threads; i++) {
		/* The order first: when it is carried out, what is unsent has been counted. */
		if (atomic_load_explicit(&all->t[i].ordered, memory_order_acquire) ||
		    atomic_load(&all->t[i].set.unsent))
			return true;
	}
	return channel_net_lingers(all->p.channels);
}
