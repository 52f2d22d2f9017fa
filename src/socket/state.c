/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of a socket: listening, connecting, connected, closed. */
#include "socket/socket.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

static void on_event(struct channel *c, unsigned events);

/* Has the channel tell of events, once. */
static int start(struct sock *s)
{
	int rc;

	if (s->started)
		return 0;
	s->ch->event = on_event;
	rc = s->ch->ops->start(s->ch, s->st.set->t);
	s->started = !rc;
	if (rc)
		log_line(LOG_WARN, "cannot watch a socket for events: %s%s", strerror(-rc),
			 rc == -ENOSPC ? " (sysctl fs.epoll.max_user_watches)" : "");
	return rc;
}

static void connected(struct sock *s)
{
	s->state = SOCK_CONNECTED;
	stream_connected(&s->st, s->ch);
	stat_tell(s, true);
	stream_is_connected(&s->st);
	stream_event(&s->st, CHANNEL_IN | CHANNEL_OUT);
}

/* The end of a connect that was under way. */
static void end_connect(struct sock *s, int rc)
{
	if (!rc) {
		connected(s);
		return;
	}
	s->state = SOCK_NEW;
	stat_tell(s, true);
	stream_not_connected(&s->st, -rc);
}

static void on_event(struct channel *c, unsigned events)
{
	struct sock *s = c->owner;
	int rc;

	if (sock_carries(s) || s->state == SOCK_CLOSED) {
		stream_event(&s->st, events);
	} else if (s->state == SOCK_LISTENING) {
		s->acceptable = true;
		if (list_empty(&s->link))
			list_add_tail(&sock_thread_of(s)->ready, &s->link);
	} else if (s->state == SOCK_CONNECTING && !s->addr_len && (events & CHANNEL_OUT)) {
		rc = c->ops->connect_result(c);
		if (rc == -EINPROGRESS)
			return;
		end_connect(s, rc);
		if (!rc)
			stream_event(&s->st, events);
	}
}

/* No UDP datagram is longer. */
#define UDP_MOST 65535u

int sock_open_datagrams(struct sock *s, int domain)
{
	unsigned room = domain == AF_INET ? 16 : domain == AF_INET6 ? 32 : GNET_DGRAM_ADDR_MAX;
	int rc;

	stream_set_dgram(&s->st, room, domain == AF_UNIX ? UINT32_MAX : UDP_MOST);
	rc = start(s);
	if (rc)
		return rc;
	s->state = SOCK_DATAGRAMS;
	stream_connected(&s->st, s->ch);
	return 0;
}

int sock_listen(struct sock *s, int backlog)
{
	int rc;

	if (s->state == SOCK_DATAGRAMS)
		return -EOPNOTSUPP;
	if (s->state != SOCK_NEW && s->state != SOCK_LISTENING)
		return -EINVAL;
	rc = s->ch->ops->listen(s->ch, backlog);
	if (!rc)
		rc = start(s);
	if (rc || s->state == SOCK_LISTENING)
		return rc;
	s->state = SOCK_LISTENING;
	s->acceptable = true;
	list_add_tail(&sock_thread_of(s)->ready, &s->link);
	stat_tell(s, true);
	return 0;
}

/* One attempt: 0, -EINPROGRESS, or an error. */
static int attempt(struct sock *s, const struct sockaddr *a, socklen_t n)
{
	int rc = s->ch->ops->connect(s->ch, a, n), err;

	if (rc && rc != -EINPROGRESS)
		return rc;
	err = start(s);
	return err ? err : rc;
}

int sock_connect(struct sock *s, const struct sockaddr *a, socklen_t n, bool patient)
{
	int rc;

	s->addr_len = 0;
	rc = attempt(s, a, n);
	if (rc == -EAGAIN && (s->ch->ops->ring || (a->sa_family == AF_UNIX && patient))) {
		/*
		 * There will be segments; or room in the backlog of a UNIX listener, the only thing that connect(2) has this error for there, and
		 * of which no event tells. Nobody says when.
		 */
		memcpy(&s->addr, a, n);
		s->addr_len = n;
		sock_retry(s, proxy_now(s->st.set->t));
		rc = -EINPROGRESS;
	}
	if (rc == -EINPROGRESS) {
		s->state = SOCK_CONNECTING;
		stat_tell_connecting(s, a, n);
		stream_connecting(&s->st);
	} else if (!rc) {
		connected(s);
	}
	return rc;
}

void sock_connect_again(struct sock *s)
{
	int rc = attempt(s, (struct sockaddr *)&s->addr, s->addr_len);

	if (rc == -EAGAIN) {
		sock_retry(s, proxy_now(s->st.set->t));
		return;
	}
	s->addr_len = 0;
	if (rc != -EINPROGRESS)
		end_connect(s, rc);
}

void sock_close(struct sock *s, uint64_t claimed)
{
	enum sock_state was = s->state;
	bool carried = sock_carries(s);

	if (!s->young) /* it may have to be watched, to send what is left */
		list_del(&s->link);
	s->state = SOCK_CLOSED;
	stat_tell_state(s);
	sock_drop_in_hand(s);
	if (was == SOCK_LISTENING)
		sock_drop_unclaimed(s, claimed);
	if (!carried)
		s->ch->ops->close(s->ch, 0);
	if (s->linger)
		stream_set_linger(&s->st, (uint64_t)s->linger_s * 1000000000u);
	stream_close(&s->st); /* a stream without a channel is gone at once */
}

int sock_close_call(struct sock *s, uint64_t claimed)
{
	struct proxy_thread *t = s->st.set->t;
	struct sockets *all = s->all;
	int fd = sock_fd(s);

	if (!s->linger || !sock_carries(s)) {
		sock_close(s, claimed);
		return 0;
	}
	s->lingers = LINGER_SENDS;
	sock_close(s, claimed);
	return sock_close_again(t, all, fd); /* it may have nothing to wait for */
}

void sock_order_close(struct sockets *all, int fd)
{
	struct sock *s = &all->sock[GNET_FD_SLOT(fd)];
	struct sock_thread *t = &all->t[GNET_FD_SLOT(fd) % all->threads];

	pthread_mutex_lock(&t->lock);
	s->order_fd = fd;
	if (!s->ordered) {
		s->order_next = t->orders;
		t->orders = s;
	}
	s->ordered = true;
	atomic_store_explicit(&t->ordered, true, memory_order_release);
	pthread_mutex_unlock(&t->lock);
	proxy_wake(t->set.t);
}
