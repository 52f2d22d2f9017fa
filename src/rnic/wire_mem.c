/* SPDX-License-Identifier: BSD-3-Clause */
#include "rnic/wire_mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/pcap.h"
#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/roce.h"

enum { MAX_PORTS = 64, MILLION = 1000000, PACKET_MAX = WIRE_MTU_MAX + 128 };

struct packet {
	struct rnic_mem_packet p;
	uint64_t at;
	uint64_t order; /* of equal times, the one sent first */
	uint8_t buf[PACKET_MAX];
};

struct port {
	struct rnic_wire wire;
	struct rnic_mem_net *net;
	uint8_t gid[16];
	struct rnic *r;
	uint64_t busy_until; /* sending what waits */
	uint64_t out_until;  /* the switch towards it */
};

struct rnic_mem_net {
	struct rnic_mem_config cfg;
	struct rnic_mem_stats stats;
	uint64_t rnd;
	uint64_t order;
	struct port port[MAX_PORTS];
	unsigned nports;
	struct packet *pool;
	struct packet **free;
	unsigned nfree;
	struct packet **heap; /* by time of arrival */
	unsigned nheap;
};

static uint64_t rnd(struct rnic_mem_net *n)
{
	n->rnd ^= n->rnd << 13;
	n->rnd ^= n->rnd >> 7;
	n->rnd ^= n->rnd << 17;
	return n->rnd * UINT64_C(0x2545f4914f6cdd1d);
}

static bool chance(struct rnic_mem_net *n, unsigned of_a_million)
{
	return of_a_million && rnd(n) % MILLION < of_a_million;
}

static uint64_t up_to(struct rnic_mem_net *n, uint64_t ns)
{
	return ns ? rnd(n) % (ns + 1) : 0;
}

/* --- the heap of packets on their way ----------------------------------------------------------- */

static bool earlier(const struct packet *a, const struct packet *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct rnic_mem_net *n, struct packet *p)
{
	unsigned i = n->nheap++;

	while (i && earlier(p, n->heap[(i - 1) / 2])) {
		n->heap[i] = n->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	n->heap[i] = p;
}

static struct packet *pop(struct rnic_mem_net *n)
{
	struct packet *top = n->heap[0], *p = n->heap[--n->nheap];
	unsigned i = 0, c;

	while ((c = 2 * i + 1) < n->nheap) {
		if (c + 1 < n->nheap && earlier(n->heap[c + 1], n->heap[c]))
			c++;
		if (earlier(p, n->heap[c]))
			break;
		n->heap[i] = n->heap[c];
		i = c;
	}
	n->heap[i] = p;
	return top;
}

static struct packet *take(struct rnic_mem_net *n)
{
	struct packet *p;

	if (!n->nfree) {
		n->stats.overflow++;
		return NULL;
	}
	p = n->free[--n->nfree];
	p->p.data = p->buf;
	return p;
}

static void give_back(struct rnic_mem_net *n, struct packet *p)
{
	n->free[n->nfree++] = p;
}

/* --- sending ------------------------------------------------------------------------------------ */

static void launch(struct rnic_mem_net *n, struct packet *p, uint64_t now)
{
	const struct rnic_mem_faults *f = &n->cfg.faults;

	p->at = now + f->delay_ns + up_to(n, f->jitter_ns);
	if (chance(n, f->reorder)) {
		p->at += up_to(n, f->reorder_ns);
		n->stats.held_back++;
	}
	p->order = n->order++;
	if (chance(n, f->corrupt)) {
		uint64_t bit = rnd(n) % (p->p.len * 8);

		p->buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
		n->stats.corrupted++;
	}
	push(n, p);
}

static void route(struct rnic_mem_net *n, struct packet *p, uint64_t now)
{
	const struct rnic_mem_faults *f = &n->cfg.faults;
	enum rnic_mem_verdict v = n->cfg.hook ? n->cfg.hook(n->cfg.ctx, &p->p, now) : RNIC_MEM_PASS;
	struct packet *copy;

	if (v == RNIC_MEM_DROP || chance(n, f->loss)) {
		n->stats.lost++;
		give_back(n, p);
		return;
	}
	if (v == RNIC_MEM_DOUBLE || chance(n, f->duplicate)) {
		copy = take(n);
		if (copy) {
			copy->p.ip = p->p.ip;
			copy->p.sport = p->p.sport;
			copy->p.len = p->p.len;
			memcpy(copy->buf, p->buf, p->p.len);
			n->stats.doubled++;
			launch(n, copy, now);
		}
	}
	launch(n, p, now);
}

/* When a packet that a port is given now has left it; 0 when it does not fit the port's queue. */
static uint64_t leaves(const struct rnic_mem_faults *f, struct port *port, size_t len, uint64_t now)
{
	uint64_t start = port->busy_until > now ? port->busy_until : now;
	/* Ethernet, IPv4 and UDP headers and what lies between frames. */
	uint64_t bytes = len + 42 + 24;

	if (!f->rate)
		return now;
	if (f->queue && (start - now) * (f->rate / 1000) / MILLION > f->queue)
		return 0;
	port->busy_until = start + bytes * 1000 * MILLION / f->rate;
	return port->busy_until;
}

static struct port *port_of(struct rnic_mem_net *n, const uint8_t gid[16])
{
	unsigned i;

	for (i = 0; i < n->nports; i++)
		if (n->port[i].r && memcmp(n->port[i].gid, gid, 16) == 0)
			return &n->port[i];
	return NULL;
}

/* Bytes that wait for the switch's port at that time. */
static uint64_t waiting(const struct rnic_mem_faults *f, const struct port *to, uint64_t at)
{
	uint64_t ns = to->out_until > at ? to->out_until - at : 0;

	return ns * (f->out_rate / 1000) / MILLION;
}

static void mark(struct rnic_mem_net *n, struct packet *p, uint64_t depth)
{
	const struct rnic_mem_faults *f = &n->cfg.faults;
	uint64_t span = f->mark_to - f->mark_from;

	if (!f->mark_to || depth <= f->mark_from || !(p->p.ip.tos & 3))
		return;
	if (depth < f->mark_to &&
	    !chance(n, (unsigned)((depth - f->mark_from) * MILLION / (span ? span : 1))))
		return;
	p->p.ip.tos |= 3;
	n->stats.marked++;
}

/* When a packet that reaches the switch at `at` has left it towards its device; 0 when there is no room. */
static uint64_t switched(struct rnic_mem_net *n, struct packet *p, uint64_t at)
{
	const struct rnic_mem_faults *f = &n->cfg.faults;
	struct port *to = f->out_rate ? port_of(n, p->p.ip.dst) : NULL;
	uint64_t bytes = p->p.len + 42 + 24, depth;

	if (!to)
		return at;
	depth = waiting(f, to, at);
	if (f->out_queue && depth + bytes > f->out_queue)
		return 0;
	mark(n, p, depth);
	if (depth + bytes > n->stats.out_most)
		n->stats.out_most = depth + bytes;
	to->out_until =
		(to->out_until > at ? to->out_until : at) + bytes * 1000 * MILLION / f->out_rate;
	return to->out_until;
}

/* Whether the switch has told this sender to stop, for the sake of the port it sends to. */
static bool paused(struct rnic_mem_net *n, const struct rnic_tx *tx, uint64_t now)
{
	const struct rnic_mem_faults *f = &n->cfg.faults;
	const struct port *to = f->pause_from ? port_of(n, tx->path->dst) : NULL;

	if (!to || waiting(f, to, now) < f->pause_from)
		return false;
	n->stats.paused++;
	return true;
}

static int mem_send(struct rnic_wire *w, const struct rnic_tx *tx, uint64_t now)
{
	struct port *port = (struct port *)w;
	struct rnic_mem_net *n = port->net;
	struct packet *p;
	int len;

	if (chance(n, n->cfg.faults.refuse) || paused(n, tx, now))
		return -EAGAIN;
	n->stats.sent++;
	p = take(n);
	if (!p)
		return 0;
	p->p.ip = (struct wire_ip){
		.flow = tx->path->flow,
		.tos = tx->path->tclass,
		.ttl = tx->path->hop_limit ? tx->path->hop_limit : 64,
		.dont_frag = true,
	};
	memcpy(p->p.ip.src, tx->path->src, 16);
	memcpy(p->p.ip.dst, tx->path->dst, 16);
	p->p.sport = tx->sport;
	len = rnic_tx_flatten(tx, &p->p.ip, WIRE_ROCE_PORT, p->buf, sizeof(p->buf));
	if (len < 0) {
		give_back(n, p);
		return len;
	}
	p->p.len = (size_t)len;
	rnic_pcap_packet(w->pcap, &p->p.ip, p->p.sport, WIRE_ROCE_PORT, p->buf, p->p.len, now);
	now = leaves(&n->cfg.faults, port, p->p.len, now);
	now = now ? switched(n, p, now) : 0;
	if (!now) {
		n->stats.overflow++;
		give_back(n, p);
		return 0;
	}
	route(n, p, now);
	return 0;
}

static const struct rnic_wire_ops mem_ops = { .send = mem_send };

int rnic_mem_inject(struct rnic_mem_net *n, const struct rnic_mem_packet *from, uint64_t now)
{
	struct packet *p;

	if (from->len > PACKET_MAX)
		return -EMSGSIZE;
	p = take(n);
	if (!p)
		return -ENOBUFS;
	p->p.ip = from->ip;
	p->p.sport = from->sport;
	p->p.len = from->len;
	memcpy(p->buf, from->data, from->len);
	p->at = now;
	p->order = n->order++;
	push(n, p);
	return 0;
}

static uint32_t icrc_of(const struct rnic_mem_packet *p)
{
	struct wire_udp udp = { .sport = p->sport, .dport = WIRE_ROCE_PORT };

	return wire_icrc(&p->ip, &udp, p->data, p->len - WIRE_ICRC_LEN);
}

void rnic_mem_reseal(struct rnic_mem_packet *p)
{
	wire_put_le32(p->data + p->len - WIRE_ICRC_LEN, icrc_of(p));
}

/* --- delivery ----------------------------------------------------------------------------------- */

static void deliver(struct rnic_mem_net *n, struct packet *p, uint64_t now)
{
	struct rnic_rx rx = { .ip = p->p.ip, .data = p->buf, .len = p->p.len };
	unsigned i;

	if (p->p.len < WIRE_BTH_LEN + WIRE_ICRC_LEN ||
	    icrc_of(&p->p) != wire_get_le32(p->buf + p->p.len - WIRE_ICRC_LEN)) {
		n->stats.bad_icrc++;
		return;
	}
	if (n->cfg.tap)
		n->cfg.tap(n->cfg.ctx, &p->p, now);
	for (i = 0; i < n->nports; i++)
		if (n->port[i].r && memcmp(n->port[i].gid, rx.ip.dst, 16) == 0) {
			n->stats.delivered++;
			rnic_pcap_packet(n->port[i].wire.pcap, &rx.ip, p->p.sport, WIRE_ROCE_PORT,
					 rx.data, rx.len, now);
			rnic_receive(n->port[i].r, &rx, now);
			return;
		}
	n->stats.no_route++;
}

uint64_t rnic_mem_step(struct rnic_mem_net *n, uint64_t now)
{
	while (n->nheap && n->heap[0]->at <= now) {
		struct packet *p = pop(n);

		deliver(n, p, now);
		give_back(n, p);
	}
	return n->nheap ? n->heap[0]->at : UINT64_MAX;
}

/* --- set-up ------------------------------------------------------------------------------------- */

int rnic_mem_create(const struct rnic_mem_config *cfg, struct rnic_mem_net **out)
{
	struct rnic_mem_net *n = calloc(1, sizeof(*n));
	unsigned i;

	if (!n)
		return -ENOMEM;
	n->cfg = *cfg;
	if (!n->cfg.packets)
		n->cfg.packets = 4096;
	n->rnd = cfg->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	n->pool = calloc(n->cfg.packets, sizeof(*n->pool));
	n->free = calloc(n->cfg.packets, sizeof(struct packet *));
	n->heap = calloc(n->cfg.packets, sizeof(struct packet *));
	if (!n->pool || !n->free || !n->heap) {
		rnic_mem_destroy(n);
		return -ENOMEM;
	}
	for (i = 0; i < n->cfg.packets; i++)
		n->free[n->nfree++] = &n->pool[i];
	*out = n;
	return 0;
}

void rnic_mem_destroy(struct rnic_mem_net *n)
{
	free(n->pool);
	free(n->free);
	free(n->heap);
	free(n);
}

void rnic_mem_set_faults(struct rnic_mem_net *n, const struct rnic_mem_faults *f)
{
	n->cfg.faults = *f;
}

struct rnic_wire *rnic_mem_port(struct rnic_mem_net *n)
{
	struct port *p;

	if (n->nports == MAX_PORTS)
		return NULL;
	p = &n->port[n->nports++];
	p->wire.ops = &mem_ops;
	p->net = n;
	return &p->wire;
}

int rnic_mem_attach(struct rnic_mem_net *n, struct rnic_wire *port, const uint8_t gid[16],
		    struct rnic *r)
{
	struct port *p = (struct port *)port;

	if (p->net != n)
		return -EINVAL;
	memcpy(p->gid, gid, 16);
	p->r = r;
	return 0;
}

const struct rnic_mem_stats *rnic_mem_stats(const struct rnic_mem_net *n)
{
	return &n->stats;
}
