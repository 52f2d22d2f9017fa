/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Young connections: accepted, and not watched for events yet. Many a connection is closed within microseconds, and to watch it,
 * and to end that, costs the proxy as much as to accept it. So it is asked directly at first, when the proxy has nothing else to
 * do, and watched when it has grown older, or the thread is about to sleep. Before a kernel has claimed it nobody can see
 * whether it is. One that another thread gets is watched at once, and so is one whose transport moves the rings' bytes itself.
 */
#include "socket/socket.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

/*
 * How old it becomes unwatched: from its claim on in time, and in passes of a proxy that is busy, since its kernels' closes come in
 * the next one or two.
 */
#define YOUNG_NS 20000u
#define YOUNG_PASSES 4u
/*
 * However long the passes are, since what a client has said first waits for it; and however long the accept ring is full, since then
 * `gpunet stat` shows names that are right.
 */
#define AT_MOST_NS 1000000u
/* No more are kept: the oldest is watched when one comes. */
#define YOUNG_MOST 256u
/* So few are asked in each pass that has nothing else to do; when there are more, each is asked once. */
#define YOUNG_FEW 4u

static void not_watched(struct sock_thread *t, int rc)
{
	if (sock_complain(&t->unwatched, proxy_now(t->set.t)))
		log_line(
			LOG_WARN,
			"cannot watch accepted sockets for events: %s%s; they are asked at intervals",
			strerror(-rc), rc == -ENOSPC ? " (sysctl fs.epoll.max_user_watches)" : "");
}

void young_watch(struct sock *s)
{
	struct sock_thread *t = sock_thread_of(s);
	int rc;

	list_del(&s->link);
	/* It is here to stay: its own name may tell more than its listener's, which was given for it. */
	stat_tell(s, true);
	rc = s->ch->ops->start(s->ch, t->set.t);
	if (rc) {
		not_watched(t, rc);
		stream_event(&s->st, CHANNEL_IN | CHANNEL_OUT);
		sock_retry(s, proxy_now(t->set.t));
		return;
	}
	t->unwatched.made = false;
	young_end(s);
	s->started = true;
}

void young_end(struct sock *s)
{
	/* It may be another thread's, taken back by its listener's: then it is not, and the count is not ours to touch. */
	if (!s->young)
		return;
	s->young = false;
	sock_thread_of(s)->n_young--;
}

bool young_begin(struct sock *s, const struct sock *listener)
{
	struct sock_thread *t = sock_thread_of(s);

	/* Another thread has to be told; and what moves the rings' bytes itself needs to know whose it is. */
	if (t != sock_thread_of(listener) || s->ch->ops->ring)
		return false;
	if (t->n_young >= YOUNG_MOST && !list_empty(&t->young))
		young_watch(list_entry(t->young.next, struct sock, link));
	if (t->n_young >= YOUNG_MOST)
		return false;
	s->young = true;
	s->asked = s->claimed = false;
	s->from = sock_fd(listener);
	s->place = listener->accepted;
	s->born_at = proxy_now(t->set.t);
	list_add_tail(&t->young, &s->link);
	t->n_young++;
	return true;
}

/* With its listener closed and perhaps another socket in that slot it was claimed, or its own close is under way. */
static bool claimed(const struct sock *s)
{
	uint32_t slot = GNET_FD_SLOT(s->from);

	return atomic_load_explicit(&s->all->sock[slot].fd, memory_order_relaxed) != s->from ||
	       __atomic_load_n(&s->all->p.bus[slot].head, __ATOMIC_ACQUIRE) > s->place;
}

static bool grown(struct sock_thread *t, struct sock *s, uint64_t now)
{
	uint64_t age;

	if (!s->claimed && claimed(s)) {
		s->claimed = true;
		s->born_at = now;
		s->born_in = t->passes;
	}
	age = now - s->born_at;
	return age >= AT_MOST_NS ||
	       (s->claimed && age >= YOUNG_NS && t->passes - s->born_in >= YOUNG_PASSES);
}

static void ask(struct sock *s)
{
	s->asked = true;
	stream_event(&s->st, CHANNEL_IN);
}

void young_step(struct sock_thread *t, uint64_t now, bool quiet)
{
	struct list *l, *next;

	/* A pass may come here twice. */
	t->passes += now != t->pass_at;
	t->pass_at = now;
	for (l = t->young.next; l != &t->young; l = next) {
		struct sock *s = list_entry(l, struct sock, link);

		next = l->next;
		if (grown(t, s, now))
			young_watch(s);
		else if (quiet && (t->n_young <= YOUNG_FEW || (s->claimed && !s->asked)))
			ask(s);
	}
}

void young_rest(struct sock_thread *t)
{
	while (!list_empty(&t->young))
		young_watch(list_entry(t->young.next, struct sock, link));
}
