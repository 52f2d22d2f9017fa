/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes from one socket to another. */
#include "host_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void deliver(void *arg);

static void note_hello(struct file *f, const uint8_t *data, size_t n)
{
	for (; n && f->n_hello < sizeof(f->hello); n--, data++)
		((uint8_t *)&f->hello)[f->n_hello++] = *data;
}

void host_send_packet(struct file *from, enum what what, const void *data, size_t n)
{
	struct packet *p;
	struct file *to = from->peer;

	if (!to)
		return;
	p = malloc(sizeof(*p) + n);
	if (!p)
		sim_fail("no memory for a packet");
	if (n)
		memcpy(p->data, data, n);
	p->to = to;
	p->what = what;
	p->n = n;
	if (what == P_DATA) {
		note_hello(from, data, n);
		to->flight += n;
	}
	p->from.len = 0;
	host_on_its_way(from, p);
}

void host_on_its_way(struct file *from, struct packet *p)
{
	uint64_t at = sim_now();
	struct file *to = p->to;

	if (host_params.delay_ns && from->domain != AF_UNIX)
		at += sim_random() % host_params.delay_ns;
	if (at < to->arrives)
		at = to->arrives;
	to->arrives = at;
	to->pending++;
	if (at == sim_now() && to->pending == 1)
		deliver(p);
	else
		sim_timer(&p->timer, at, deliver, p);
}

static void ended(struct file *f, int err)
{
	if (f->state == S_ENDED)
		return;
	f->state = S_ENDED;
	f->broken = true;
	f->err = err;
	host_edge(f);
}

void host_reset(struct file *f)
{
	host_send_packet(f, P_RESET, NULL, 0);
	f->state = S_ENDED;
	f->broken = true;
}

void host_room_again(struct file *f)
{
	if (f->peer && f->peer->no_space && host_space(f->peer)) {
		f->peer->no_space = false;
		host_edge(f->peer);
	}
}

static void take_data(struct file *f, const struct packet *p)
{
	f->flight -= p->n;
	if (f->state == S_ENDED)
		return;
	if (f->closed) {
		host_reset(f); /* nobody is there to read it */
		return;
	}
	f->rx = realloc(f->rx, f->rx_len + p->n);
	if (!f->rx)
		sim_fail("no memory for received bytes");
	memcpy(f->rx + f->rx_len, p->data, p->n);
	f->rx_len += p->n;
	if (f->drained || sim_chance(500)) {
		f->drained = false;
		host_edge(f);
	}
}

/* ---- datagrams ------------------------------------------------------------------------------------------------------------ */

static void take_dgram(struct file *f, struct packet *p)
{
	f->flight--;
	if (f->closed || (f->domain != AF_UNIX && f->n_dgrams >= HOST_DGRAMS)) {
		f->dropped++;
		sim_note("host: a datagram to %d is dropped", f->fd);
		free(p);
		return;
	}
	p->next = NULL;
	if (!f->first)
		f->last = &f->first;
	*f->last = p;
	f->last = &p->next;
	f->n_dgrams++;
	if (f->drained || sim_chance(500)) {
		f->drained = false;
		host_edge(f);
	}
}

static void deliver(void *arg)
{
	struct packet *p = arg;
	struct file *f = p->to;

	f->pending--;
	if (p->what == P_DGRAM) {
		take_dgram(f, p);
		return;
	}
	if (p->what == P_DATA) {
		take_data(f, p);
	} else if (p->what == P_FIN) {
		f->fin = true;
		host_edge(f);
	} else {
		ended(f, ECONNRESET);
	}
	free(p);
}

void host_break(uint64_t hello, int err)
{
	int i;

	for (i = 0; i < host_next_fd; i++) {
		struct file *f = &host_files[i];

		if (f->kind != K_SOCK || f->n_hello != sizeof(hello) || f->hello != hello ||
		    f->state != S_CONNECTED)
			continue;
		sim_note("the connection of descriptor %d breaks", f->fd);
		ended(f->peer, err);
		ended(f, err);
	}
}
