/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes the page of <gpunet/stat.h>. Only what happens once in a connection's life is written here; bytes and waits are
 * read from where they are anyway, so that showing them costs a transfer nothing.
 */
#include "socket/stat.h"

#include <gpunet/dev/abi/net.h>

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "socket/socket.h"

void stat_open(struct stat_book *b, const struct stat_params *p)
{
	struct gpunet_stat_page *page;
	size_t hops_at = sizeof(*page) + (size_t)p->sockets * sizeof(*b->socket);

	b->size = hops_at + (p->hops ? p->threads * sizeof(*b->hops) : 0);
	page = sys.map_fd(GPUNET_STAT_NAME, b->size, &b->fd);
	if (!page || b->fd < 0)
		log_line(LOG_NOTE, "gpunet stat will not see this network: no memory file");
	if (!page) {
		b->fd = -1;
		return;
	}
	b->page = page;
	b->socket = (struct gpunet_stat_socket *)(void *)(page + 1);
	page->size = sizeof(*page);
	page->record_size = sizeof(*b->socket);
	page->sockets = p->sockets;
	page->threads = p->threads;
	page->pid = (int32_t)getpid();
	page->bus_fd = p->bus_fd;
	page->bus_at = p->bus_at;
	page->told_at = p->told_at;
	page->told = GNET_TOLD;
	page->reports = GPUNET_STAT_REPORTS;
	page->hops_at = p->hops ? hops_at : 0;
	page->same_clock = p->same_clock;
	if (p->hops)
		b->hops = (void *)((uint8_t *)page + hops_at);
	page->abi = GNET_ABI_VERSION;
	page->seg_log2 = p->seg_log2;
	strncpy(page->device, p->device, sizeof(page->device) - 1);
	__atomic_store_n(&page->magic, GPUNET_STAT_MAGIC, __ATOMIC_RELEASE);
}

void stat_close(struct stat_book *b)
{
	if (!b->page)
		return;
	__atomic_store_n(&b->page->magic, 0, __ATOMIC_RELEASE);
	sys.unmap(b->page, b->size);
	if (b->fd >= 0)
		sys.close(b->fd);
	b->page = NULL;
}

static struct gpunet_stat_socket *record(const struct sock *s)
{
	const struct stat_book *b = s->all->p.stat;

	return b && b->page ? &b->socket[s->slot] : NULL;
}

static uint64_t state_of(const struct sock *s)
{
	switch (s->state) {
	case SOCK_NEW:
		return GPUNET_STAT_NEW;
	case SOCK_CONNECTING:
		return GPUNET_STAT_CONNECTING;
	case SOCK_CONNECTED:
		return GPUNET_STAT_CONNECTED;
	case SOCK_LISTENING:
		return GPUNET_STAT_LISTENING;
	case SOCK_DATAGRAMS:
		return GPUNET_STAT_DATAGRAMS;
	case SOCK_CLOSED:
		return GPUNET_STAT_CLOSED;
	}
	return GPUNET_STAT_FREE;
}

static void put(uint64_t *word, uint64_t v)
{
	__atomic_store_n(word, v, __ATOMIC_RELAXED);
}

static uint16_t name_of(const struct sock *s, int peer, uint8_t *out)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);

	if (!s->ch || s->ch->ops->name_of(s->ch, peer, (struct sockaddr *)&a, &n) != 0 ||
	    n > GPUNET_STAT_NAME_MAX)
		return 0;
	memcpy(out, &a, n);
	return (uint16_t)n;
}

/* Each word by an atomic store: a reader may look at any time, and tells by `seq` that it saw halves. */
static void put_words(void *to, const void *from, size_t n)
{
	uint64_t word;
	size_t i;

	for (i = 0; i < n / sizeof(word); i++) {
		memcpy(&word, (const uint8_t *)from + i * sizeof(word), sizeof(word));
		put((uint64_t *)to + i, word);
	}
}

/*
 * Odd before anything else of what it guards changes: a read-modify-write on both sides is a fence that ThreadSanitizer knows.
 * The value to end with.
 */
static uint64_t begin_change(uint64_t *seq)
{
	uint64_t v = __atomic_load_n(seq, __ATOMIC_RELAXED) + 1;

	__atomic_exchange_n(seq, v, __ATOMIC_ACQ_REL);
	return v + 1;
}

/* Stores a record with the names of `v`. */
static void put_record(const struct sock *s, struct gpunet_stat_socket *r,
		       struct gpunet_stat_socket *v)
{
	const size_t from = offsetof(struct gpunet_stat_socket, transport);
	uint64_t seq;

	if (s->ch)
		strncpy(v->transport, s->ch->ops->name, sizeof(v->transport) - 1);
	seq = begin_change(&r->seq);
	put(&r->state, state_of(s));
	put(&r->accepted, s->accepted);
	put_words((uint8_t *)r + from, (const uint8_t *)v + from, sizeof(*v) - from);
	put(&r->fd, (uint64_t)sock_fd(s));
	__atomic_store_n(&r->seq, seq, __ATOMIC_RELEASE);
}

void stat_tell(const struct sock *s, bool names)
{
	struct gpunet_stat_socket *r = record(s), v = { 0 };

	if (!r)
		return;
	if (names) {
		v.local_len = name_of(s, 0, v.local);
		if (s->state != SOCK_LISTENING)
			v.peer_len = name_of(s, 1, v.peer);
	}
	put_record(s, r, &v);
}

void stat_tell_young(const struct sock *s, const struct sock *listener)
{
	struct gpunet_stat_socket *r = record(s), v = { 0 };
	const struct gpunet_stat_socket *of = record(listener);

	if (!r)
		return;
	if (of->local_len <= GPUNET_STAT_NAME_MAX) {
		v.local_len = of->local_len;
		memcpy(v.local, of->local, v.local_len);
	}
	v.peer_len = name_of(s, CHANNEL_PEER_THEN, v.peer);
	put_record(s, r, &v);
}

void stat_tell_connecting(const struct sock *s, const struct sockaddr *a, socklen_t n)
{
	struct gpunet_stat_socket *r = record(s), v = { 0 };

	if (!r)
		return;
	v.local_len = name_of(s, 0, v.local);
	if (n <= GPUNET_STAT_NAME_MAX) {
		memcpy(v.peer, a, n);
		v.peer_len = n;
	}
	put_record(s, r, &v);
}

void stat_tell_state(const struct sock *s)
{
	struct gpunet_stat_socket *r = record(s);

	if (!r)
		return;
	put(&r->state, state_of(s));
	put(&r->accepted, s->accepted);
}

void stat_tell_gone(const struct sock *s)
{
	struct gpunet_stat_socket *r = record(s);

	if (!r)
		return;
	put(&r->fd, 0);
	put(&r->state, GPUNET_STAT_FREE);
}

/* Copies n bytes that begin with their `seq`, of one moment: false if they change all the time. */
static bool copy(const void *from, void *to, size_t n)
{
	const uint64_t *words = from;
	unsigned tries;
	size_t i;

	for (tries = 0; tries < 100; tries++) {
		uint64_t seq = __atomic_load_n(words, __ATOMIC_ACQUIRE), v;

		for (i = 0; i < n / 8; i++) {
			v = __atomic_load_n(words + i, __ATOMIC_ACQUIRE);
			memcpy((uint8_t *)to + i * 8, &v, sizeof(v));
		}
		if (!(seq & 1) && __atomic_load_n(words, __ATOMIC_ACQUIRE) == seq)
			return true;
	}
	return false;
}

bool stat_look(const struct stat_book *b, uint32_t slot, int fd, struct gpunet_stat_socket *out)
{
	return b->page && slot < b->page->sockets && copy(&b->socket[slot], out, sizeof(*out)) &&
	       out->fd == (uint64_t)fd;
}

void stat_report(const struct stat_book *b, const struct gpunet_stat_report *v)
{
	const size_t from = offsetof(struct gpunet_stat_report, number);
	struct gpunet_stat_report *r;
	uint64_t seq;

	if (!b->page)
		return;
	r = &b->page->report[(v->number - 1) % GPUNET_STAT_REPORTS];
	seq = begin_change(&r->seq);
	put_words(&r->number, (const uint8_t *)v + from, sizeof(*v) - from);
	__atomic_store_n(&r->seq, seq, __ATOMIC_RELEASE);
}

bool stat_reported(const struct stat_book *b, uint64_t number, struct gpunet_stat_report *out)
{
	return b->page &&
	       copy(&b->page->report[(number - 1) % GPUNET_STAT_REPORTS], out, sizeof(*out)) &&
	       out->number == number;
}
