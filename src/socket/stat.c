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

	b->size = sizeof(*page) + (size_t)p->sockets * sizeof(*b->socket);
	page = sys.map_fd(GPUNET_STAT_NAME, b->size, &b->fd);
	if (!page || b->fd < 0) {
		log_line(LOG_NOTE, "gpunet stat will not see this network: no memory file");
		if (page)
			sys.unmap(page, b->size);
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

/* Each word of the names by an atomic store: a reader may look at any time, and tells by `seq` that it saw halves. */
static void put_names(struct gpunet_stat_socket *r, const struct gpunet_stat_socket *v)
{
	const size_t from = offsetof(struct gpunet_stat_socket, transport);
	uint64_t words[(sizeof(*v) - offsetof(struct gpunet_stat_socket, transport)) / 8];
	size_t i;

	memcpy(words, (const uint8_t *)v + from, sizeof(words));
	for (i = 0; i < sizeof(words) / 8; i++)
		put((uint64_t *)(void *)((uint8_t *)r + from) + i, words[i]);
}

void stat_tell(const struct sock *s, bool names)
{
	struct gpunet_stat_socket *r = record(s), v = { 0 };
	uint64_t seq;

	if (!r)
		return;
	if (names) {
		v.local_len = name_of(s, 0, v.local);
		if (s->state != SOCK_LISTENING)
			v.peer_len = name_of(s, 1, v.peer);
	}
	if (s->ch)
		strncpy(v.transport, s->ch->ops->name, sizeof(v.transport) - 1);
	seq = __atomic_load_n(&r->seq, __ATOMIC_RELAXED) + 1;
	/* Odd before anything else of it changes: a read-modify-write on both sides is a fence that ThreadSanitizer knows. */
	__atomic_exchange_n(&r->seq, seq, __ATOMIC_ACQ_REL);
	put(&r->state, state_of(s));
	put(&r->accepted, s->accepted);
	put_names(r, &v);
	put(&r->fd, (uint64_t)sock_fd(s));
	__atomic_store_n(&r->seq, seq + 1, __ATOMIC_RELEASE);
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
