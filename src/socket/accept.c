/* SPDX-License-Identifier: BSD-3-Clause */
/* Listeners: connections go from the transport's backlog into the accept ring (docs/bus.md). */
#include "socket/socket.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

/* How soon a complaint is made again that was over in between. */
#define QUIET_NS UINT64_C(10000000000)

bool sock_complain(struct complaint *c, uint64_t now)
{
	bool say = !c->made && now >= c->quiet_until;

	c->made = true;
	if (say)
		c->quiet_until = now + QUIET_NS;
	return say;
}

void sock_retry(struct sock *s, uint64_t now)
{
	struct sock_thread *t = sock_thread_of(s);

	list_del(&s->link);
	if (list_empty(&t->retry))
		t->retry_at = now + SOCK_RETRY_NS;
	list_add_tail(&t->retry, &s->link);
}

bool sock_accept_room(const struct sock *s)
{
	return s->accepted - __atomic_load_n(&s->st.bus->head, __ATOMIC_ACQUIRE) < GNET_ACCEPT_RING;
}

/* Connections have to wait in the backlog. */
static void short_of(struct sock *s, const char *what, uint64_t now)
{
	if (sock_complain(&s->short_of, now))
		log_line(LOG_WARN, "connections wait in the backlog of a listening socket: %s",
			 what);
	sock_retry(s, now);
}

static struct sock *new_connection(struct sockets *all, struct channel *ch)
{
	unsigned first = atomic_fetch_add_explicit(&all->next_thread, 1, memory_order_relaxed), i;
	struct sock *s = NULL;

	for (i = 0; i < all->threads && !s; i++)
		s = sock_new(all, (first + i) % all->threads, ch);
	return s;
}

static const char no_slot[] = "all sockets of the network are open (option max_sockets)";

/*
 * Puts the connection in hand into the ring: NULL, or why it has to wait. The cell is stored last: whoever reads it finds the
 * socket's record as it should be.
 */
static const char *put(struct sock *listener)
{
	struct sockets *all = listener->all;
	struct channel *ch = listener->in_hand;
	struct sock *s = new_connection(all, ch);
	uint64_t p = listener->accepted;
	int rc, fd;

	if (!s)
		return no_slot;
	fd = sock_fd(s);
	ch->event = listener->ch->event;
	s->state = SOCK_CONNECTED;
	s->linger = listener->linger;
	s->linger_s = listener->linger_s;
	stream_connected(&s->st, ch);
	if (young_begin(s, listener)) {
		stat_tell_young(s, listener);
	} else {
		/* Before it is another thread's: its names are read here. */
		stat_tell(s, true);
		s->started = true;
		rc = ch->ops->start(ch, sock_thread_of(s)->set.t);
		if (rc) {
			sock_unnew(s);
			return rc == -ENOSPC ? "sysctl fs.epoll.max_user_watches" : strerror(-rc);
		}
	}
	listener->in_hand = NULL;
	/* From here on its thread may close it, when the network ends: then nothing of it is ours any more. */
	sock_publish(s);
	__atomic_store_n(&listener->st.bus->line.cell[1 + p % GNET_ACCEPT_RING],
			 (uint64_t)(uint32_t)fd << 8 | GNET_ACCEPT_TAG(p), __ATOMIC_RELEASE);
	listener->accepted = p + 1;
	stat_tell_state(listener);
	atomic_fetch_add_explicit(&all->accepted, 1, memory_order_relaxed);
	stream_tell(&listener->st, GNET_WAIT_RX, &listener->st.bus->line.cell[0]);
	return NULL;
}

/* Slots that could take a connection: looked at before the backlog is asked, where connections wait best. */
static bool slot_free(struct sockets *all)
{
	return atomic_load_explicit(&all->open, memory_order_relaxed) < all->p.max;
}

unsigned sock_accept_step(struct sock *s, uint64_t now)
{
	const char *why;
	unsigned n = 0;
	int rc;

	while (s->acceptable || s->in_hand) {
		if (!sock_accept_room(s)) {
			list_add_tail(&sock_thread_of(s)->full, &s->link);
			return n;
		}
		/* Kernels may claim as fast as clients come: others have their turn. */
		if (n >= GNET_ACCEPT_RING) {
			list_add_tail(&sock_thread_of(s)->ready, &s->link);
			return n;
		}
		rc = 0;
		if (!s->in_hand && slot_free(s->all))
			rc = s->ch->ops->accept(s->ch, &s->in_hand);
		if (rc == -EAGAIN) {
			s->acceptable = false;
			continue;
		}
		if (rc)
			why = strerror(-rc);
		else /* it may have to wait in hand: another thread was faster to the last slot */
			why = s->in_hand ? put(s) : no_slot;
		if (why) {
			short_of(s, why, now);
			return n;
		}
		s->short_of.made = false;
		n++;
	}
	return n;
}

void sock_drop_in_hand(struct sock *s)
{
	if (s->in_hand)
		s->in_hand->ops->close(s->in_hand, 1);
	s->in_hand = NULL;
}

void sock_drop_unclaimed(struct sock *s, uint64_t claimed)
{
	for (; claimed < s->accepted && s->accepted - claimed <= GNET_ACCEPT_RING; claimed++) {
		uint64_t c = __atomic_load_n(&s->st.bus->line.cell[1 + claimed % GNET_ACCEPT_RING],
					     __ATOMIC_RELAXED);
		int fd = (int)(c >> 8 & 0x7fffffff);

		if (GNET_FD_SLOT(fd) < s->all->p.max)
			sock_order_close(s->all, fd);
	}
}
