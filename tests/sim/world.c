/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include <gpunet/gpunet.h>

#include "base/sys.h"
#include "host.h"
#include "mixed.h"
#include "sim.h"

static struct world *reported;

/* ---- bytes -------------------------------------------------------------------------------------------------------------- */

uint8_t flow_byte(const struct flow *f, uint64_t pos)
{
	uint64_t x =
		(pos / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ f->id * UINT64_C(0xd6e8feb86659fd93);

	/* A connector's first bytes are the connection's number. */
	if (pos < HELLO && f->id % 2 == 0)
		x = f->id / 2;
	else
		x ^= x >> 29;
	return (uint8_t)(x >> 8 * (pos % 8));
}

void flow_fill(const struct flow *f, uint64_t pos, uint8_t *buf, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++)
		buf[i] = flow_byte(f, pos + i);
}

void flow_check(const struct flow *f, uint64_t pos, const uint8_t *buf, uint64_t n)
{
	uint64_t i;

	for (i = 0; i < n; i++) {
		if (buf[i] != flow_byte(f, pos + i))
			sim_fail(
				"flow %u: byte %llu is %02x, should be %02x (a read of %llu bytes at %llu)",
				f->id, (unsigned long long)(pos + i), buf[i], flow_byte(f, pos + i),
				(unsigned long long)n, (unsigned long long)pos);
	}
	if (pos + n > f->sent)
		sim_fail("flow %u: byte %llu was read, but %llu were sent", f->id,
			 (unsigned long long)(pos + n), (unsigned long long)f->sent);
}

uint64_t bytes_sum(const uint8_t *buf, uint64_t n)
{
	uint64_t sum = 0, i;

	for (i = 0; i < n; i++)
		sum += buf[i] * UINT64_C(0x9e3779b97f4a7c15) >> 8;
	return sum;
}

bool wait_ended(const struct world *w, int64_t rc)
{
	return w->aborted && rc == (w->dies ? -EIO : -ECANCELED);
}

void units_fill(struct task *t, uint8_t *buf, unsigned n)
{
	const struct flow *f = &t->c->flow[t->end];
	struct unit u = { (uint8_t)f->id, (uint8_t)t->writer, t->call++, 0, (uint16_t)n };

	for (; u.number < n; u.number++)
		memcpy(buf + 8 * u.number, &u, sizeof(u));
}

static void unit_check(struct task *t, const struct unit *u)
{
	const struct flow *f = &t->c->flow[!t->end];
	struct place *p = &t->place;
	const struct unit *l = &p->last;
	bool ok = u->flow == f->id && u->writer < f->n_writers && u->number < u->of;

	if (ok && p->any && l->number + 1 < l->of)
		ok = u->writer == l->writer && u->call == l->call && u->number == l->number + 1;
	else if (ok && (t->alone || p->any))
		ok = !u->number;
	if (ok && !u->number)
		ok = t->alone ? u->call == p->call[u->writer] : u->call >= p->call[u->writer];
	if (!ok)
		sim_fail(
			"flow %u: unit %u of %u of writer %u's call %u comes after unit %u of %u of writer "
			"%u's call %u",
			f->id, u->number, u->of, u->writer, u->call, l->number, l->of, l->writer,
			l->call);
	p->call[u->writer] = (uint16_t)(u->call + 1);
	p->last = *u;
	p->any = true;
}

void units_check(struct task *t, const uint8_t *buf, uint64_t n)
{
	struct flow *f = &t->c->flow[!t->end];
	struct place *p = &t->place;
	struct unit u;
	uint64_t i;

	/* Others may have read in between. */
	f->sum[1] += bytes_sum(buf, n);
	if (f->loose)
		return;
	if (!t->alone)
		p->any = false;
	for (i = 0; i < n && !f->cut; i++) {
		p->part[p->n_part++] = buf[i];
		if (p->n_part < 8)
			continue;
		p->n_part = 0;
		memcpy(&u, p->part, sizeof(u));
		unit_check(t, &u);
	}
	if (!p->n_part || t->alone)
		return;
	if (!t->c->chaos)
		sim_fail("flow %u: a read of %llu bytes ends in the middle of a unit", f->id,
			 (unsigned long long)n);
	f->cut = true;
}

void call_failed(struct conn *c, unsigned end, const char *call, int64_t rc)
{
	bool told = rc == -ECONNRESET || rc == -EPIPE || rc == -ETIMEDOUT || rc == -EHOSTUNREACH;
	bool known = told || rc == -EBADF || rc == -ENOTCONN;

	if (c->orderly)
		known = rc == -EPIPE && strcmp(call, "receive") != 0;
	if (told)
		c->end[end].told = true;
	sim_note("%s fails: %s", call, strerror((int)-rc));
	if ((c->chaos && known) || wait_ended(reported, rc))
		return;
	sim_fail("%s on connection %u, end %u: %s", call, c->id, end, strerror((int)-rc));
}

void flow_end(struct flow *f)
{
	f->ended = true;
	sim_wake(f, ~0u);
}

void flow_got(struct conn *c, unsigned end, const uint8_t *buf, int64_t rc)
{
	struct flow *f = &c->flow[!end];

	if (rc > 0) {
		if (buf && !f->shared)
			flow_check(f, f->received, buf, (uint64_t)rc);
		f->received += (uint64_t)rc;
		if (f->eof && !f->shared)
			sim_fail("flow %u: %lld bytes after its end", f->id, (long long)rc);
		if (f->received > f->sent)
			sim_fail("flow %u: %llu bytes were received, %llu sent", f->id,
				 (unsigned long long)f->received, (unsigned long long)f->sent);
		return;
	}
	if (rc < 0) {
		call_failed(c, end, "receive", rc);
		return;
	}
	f->eof = true;
	if (c->end[end].told || c->chaos || f->shared)
		return; /* by an error, or with what a call still has in hand: see check_flow */
	if (!f->ended || f->received != f->sent)
		sim_fail("flow %u: ends after %llu bytes, of %llu that were sent%s", f->id,
			 (unsigned long long)f->received, (unsigned long long)f->sent,
			 f->ended ? "" : " so far: it was not ended");
}

/* ---- the host's part ------------------------------------------------------------------------------------------------------ */

static int host_listener;

/* A piece's size: mostly small. */
static uint32_t piece(void)
{
	static const uint32_t most[] = { 8, 105, 200, 1000, 5000, BUFFER };

	return sim_between(1, most[sim_below(6)]);
}

static void rest(void)
{
	if (sim_chance(100))
		sim_park(&host_listener, sim_now() + sim_below(3000000), "its rest's end");
}

static void host_writes(struct conn *c, unsigned end)
{
	struct flow *f = &c->flow[end];
	int fd = (int)c->end[end].fd - 1;
	uint8_t buf[1024];

	while (f->sent < f->total) {
		uint32_t n = piece();
		ssize_t rc;

		n = n < sizeof(buf) ? n : (uint32_t)sizeof(buf);
		n = n < f->total - f->sent ? n : (uint32_t)(f->total - f->sent);
		flow_fill(f, f->sent, buf, n);
		f->sent += n; /* before, for the reader may be faster than the call's return */
		rc = host_send(fd, buf, n);
		if (rc < 0) {
			f->sent -= n;
			call_failed(c, end, "host: send", rc);
			break;
		}
		f->sent -= n - (uint64_t)rc;
		rest();
	}
	flow_end(f);
	sys.shutdown(fd, SHUT_WR);
}

/*
 * Takes no more. With UNIX sockets that is all that the other side's writer needs to know, so nothing else is done until it has ended,
 * and what had arrived before is read then, since an end with bytes unread would be a reset.
 */
static void host_goes_deaf(struct conn *c, unsigned end)
{
	const struct flow *f = &c->flow[!end];
	int fd = (int)c->end[end].fd - 1;
	uint8_t buf[1024];

	/* Most of the time its socket is full by then. */
	if (sim_chance(800))
		sim_park(&host_listener, sim_now() + sim_below(3000000), "its time to go deaf");
	sim_note("host: %d is shut down for reading", fd);
	sys.shutdown(fd, SHUT_RD);
	while (c->orderly && !f->ended)
		sim_park(f, SIM_NEVER, "the writer's end (host, deaf)");
	while (c->orderly && host_recv(fd, buf, sizeof(buf)) > 0)
		continue;
}

static void host_reads(struct conn *c, unsigned end)
{
	int fd = (int)c->end[end].fd - 1;
	uint64_t enough = sim_below((uint32_t)c->flow[!end].total + 1);
	uint8_t buf[1024];
	ssize_t rc;

	do {
		uint32_t n = piece();

		if (c->chaos == DEAF && c->flow[!end].received >= enough) {
			host_goes_deaf(c, end);
			return;
		}

		rc = host_recv(fd, buf, n < sizeof(buf) ? n : sizeof(buf));
		sim_note("host: %d receives %zd", fd, rc);
		flow_got(c, end, buf, rc);
		rest();
	} while (rc > 0);
}

static void host_done(struct conn *c, unsigned end)
{
	if (!--c->end[end].users)
		sys.close((int)c->end[end].fd - 1);
}

static void *host_writer(void *arg)
{
	struct conn *c = arg;
	unsigned end = !c->end[0].host;

	host_writes(c, end);
	host_done(c, end);
	return NULL;
}

static void host_pair(struct conn *c, unsigned end)
{
	unsigned writer = sim_spawn("hostwrite", host_writer, c);

	host_reads(c, end);
	host_done(c, end);
	sim_join(writer);
}

/* A client of the kernel's listener. */
static void *host_client(void *arg)
{
	struct conn *c = arg;
	int fd = sys.socket(reported->domain, SOCK_STREAM, 0), rc;

	while (!reported->up && !reported->aborted)
		sim_park(&reported->up, sim_now() + 10000, "the kernel's listener");
	rc = host_connect(fd, (struct sockaddr *)&reported->addr[0], reported->addr_len[0]);
	if (rc && !reported->aborted)
		sim_fail("host: connect: %s", strerror(-rc));
	if (rc) {
		sys.close(fd);
		return NULL;
	}
	c->end[0].fd = (uint64_t)fd + 1;
	host_pair(c, 0);
	return NULL;
}

/* A connection that a kernel has made to the host's listener. */
static void *host_server(void *arg)
{
	int fd = host_accept(host_listener);
	uint8_t hello[HELLO];
	struct conn *c;
	unsigned got = 0;

	(void)arg;
	if (fd < 0 && !reported->aborted)
		sim_fail("host: accept: %s", strerror(-fd));
	if (fd < 0)
		return NULL;
	while (got < HELLO) {
		ssize_t rc = host_recv(fd, hello + got, HELLO - got);

		if (rc <= 0 && !reported->aborted)
			sim_fail("host: a connection ends before it has said which it is: %zd", rc);
		if (rc <= 0) {
			sys.close(fd);
			return NULL;
		}
		got += (unsigned)rc;
	}
	c = &reported->conn[hello[0]];
	flow_got(c, 1, hello, HELLO);
	c->end[1].fd = (uint64_t)fd + 1;
	host_pair(c, 1);
	return NULL;
}

static unsigned host_threads[MOST_CONNS], n_host_threads, abort_thread;

void world_host_begin(struct world *w)
{
	unsigned i;
	int rc;

	reported = w;
	n_host_threads = 0;
	host_listener = sys.socket(w->domain, SOCK_STREAM, 0);
	rc = sys.bind(host_listener, (struct sockaddr *)&w->addr[1], w->addr_len[1]);
	if (!rc)
		rc = sys.listen(host_listener, (int)sim_below(4));
	if (rc)
		sim_fail("host: bind, listen: %s", strerror(-rc));
	for (i = 0; i < w->n_conns; i++) {
		struct conn *c = &w->conn[i];

		if (c->end[0].host)
			host_threads[n_host_threads++] = sim_spawn("hostclient", host_client, c);
		else if (c->end[1].host)
			host_threads[n_host_threads++] = sim_spawn("hostserver", host_server, c);
	}
}

void world_host_end(struct world *w)
{
	unsigned i;

	/* Connections that nobody will make any more. */
	if (w->aborted)
		sys.close(host_listener);
	for (i = 0; i < n_host_threads; i++)
		sim_join(host_threads[i]);
	if (!w->aborted)
		sys.close(host_listener);
}

/* ---- chaos -------------------------------------------------------------------------------------------------------------- */

static void break_conn(void *arg)
{
	const struct conn *c = arg;

	static const int errs[] = { ECONNRESET, ECONNRESET, ETIMEDOUT, EHOSTUNREACH };

	/* Before that nobody knows which connection it is. */
	if (c->end[0].fd && c->end[1].fd)
		host_break(c->id, errs[sim_below(4)]);
}

static void *abort_all(void *arg)
{
	sim_park(&reported->aborted, sim_now() + reported->abort_after, "the time of its abort");
	reported->aborted = true;
	if (reported->dies) {
		host_fail_epoll();
	} else {
		sim_note("gpunet_abort");
		gpunet_abort(arg);
	}
	return NULL;
}

void world_chaos_end(struct world *w)
{
	if (w->abort_after)
		sim_join(abort_thread);
}

void world_chaos_begin(struct world *w, struct gpunet *g)
{
	static struct sim_timer t[MOST_CONNS];
	unsigned i;

	for (i = 0; i < w->n_conns; i++) {
		if (w->conn[i].chaos == BREAKS)
			sim_timer(&t[i], sim_now() + sim_random() % 5000000, break_conn,
				  &w->conn[i]);
	}
	if (w->abort_after)
		abort_thread = sim_spawn("aborter", abort_all, g);
}

/* ---- a program ------------------------------------------------------------------------------------------------------------ */

static void address(struct world *w, unsigned which)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&w->addr[which];
	struct sockaddr_un *un = (struct sockaddr_un *)&w->addr[which];

	if (w->domain == AF_INET) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)(5000 + which));
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		w->addr_len[which] = sizeof(*in);
		return;
	}
	un->sun_family = AF_UNIX;
	un->sun_path[1] = (char)('a' + which);
	w->addr_len[which] = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 2);
}

/* Bytes of a flow; not too many if they go through a keyhole. */
static uint64_t total(void)
{
	static const uint32_t most[] = { 1, 20, 300, 300, 3000, 40000 };
	uint64_t n = sim_below(most[sim_below(6)]);

	return n < 40 * host_buffer() ? n : 40 * host_buffer();
}

/* Tasks that are not alone always find room in two blocks. */
static bool few_left(const struct world *w)
{
	unsigned i, n = 0;

	for (i = 0; i < w->n_blocks; i++)
		n += !w->block[i].full;
	return n <= 2;
}

/* A block with room for a task, or (alone) for one and no other. */
static struct task *give_task(struct world *w, struct conn *c, unsigned end, bool reads, bool alone)
{
	unsigned first = sim_below(w->n_blocks), i;

	for (i = 0; i < w->n_blocks && !(alone && few_left(w)); i++) {
		struct block *b = &w->block[(first + i) % w->n_blocks];
		struct task *t = &b->task[b->n_tasks];

		if (b->full || b->n_tasks == MOST_TASKS || (alone && b->n_tasks))
			continue;
		b->full = alone;
		b->n_tasks++;
		*t = (struct task){ .c = c, .end = end, .reads = reads };
		c->end[end].users++;
		return t;
	}
	return NULL;
}

/* Several tasks for a flow between kernels, as many as there are blocks that have nothing else to do. */
static void share_writers(struct world *w, struct conn *c, unsigned d)
{
	struct flow *f = &c->flow[d];
	unsigned most = sim_between(1, MOST_WRITERS);
	struct task *t;

	f->total = d ? 0 : HELLO;
	while (f->n_writers < most && (t = give_task(w, c, d, false, true))) {
		t->writer = f->n_writers++;
		t->units = total() / 8;
		f->total += 8 * t->units;
	}
	f->writers = f->n_writers;
}

static void share_flow(struct world *w, struct conn *c, unsigned d)
{
	struct flow *f = &c->flow[d];
	struct task *t[3] = { NULL };
	unsigned n = 0, most = sim_between(1, 3);

	share_writers(w, c, d);
	f->shared = f->n_writers;
	if (!f->shared)
		return;
	while (n < most && (t[n] = give_task(w, c, !d, true, true)))
		n++;
	if (!n) {
		t[0] = give_task(w, c, !d, true, false);
		n = t[0] ? 1 : 0;
	}
	if (!n)
		sim_fail("no block has room for a task");
	t[0]->alone = n == 1;
	f->loose = n > 1 && sim_chance(400);
	if (n > 1)
		c->end[!d].nonblock = false;
	c->end[d].nonblock = false;
}

static void give_flow(struct world *w, struct conn *c, unsigned d)
{
	if (!c->end[0].host && !c->end[1].host && sim_chance(300))
		share_flow(w, c, d);
	if (c->flow[d].shared)
		return;
	if (c->end[d].host)
		c->end[d].users++;
	else if (!give_task(w, c, d, false, false))
		sim_fail("no block has room for a task");
	if (c->end[!d].host)
		c->end[!d].users++;
	else if (!give_task(w, c, !d, true, false))
		sim_fail("no block has room for a task");
}

static void make_conn(struct world *w, unsigned id)
{
	struct conn *c = &w->conn[id];
	unsigned i, host = sim_below(4);

	c->id = id;
	for (i = 0; i < 2; i++) {
		c->flow[i].id = 2 * id + i;
		c->flow[i].total = total() + (i ? 0 : HELLO);
	}
	if (w->narrow)
		host = sim_below(2);
	c->end[0].host = host == 0;
	c->end[1].host = host == 1;
	c->chaos = w->abort_after ? ALL_ABORTED : sim_chance(300) ? sim_below(ALL_ABORTED) : CALM;
	if (w->narrow) {
		c->chaos = sim_chance(250) ? DEAF : CALM;
		/* Many times the ring, if it does not go through a keyhole. */
		c->flow[host].total += 17000 + sim_below(host_buffer() < 512 ? 30000 : 250000);
	}
	if (c->chaos == DEAF && host > 1)
		c->chaos = CALM;
	c->orderly = c->chaos == DEAF && w->domain == AF_UNIX;
	if (c->orderly)
		c->flow[!host].total += host_buffer() + sim_below(40000);
	for (i = 0; i < 2; i++) {
		c->end[i].nonblock = sim_chance(200);
		c->end[i].left = c->chaos == CALM && sim_chance(50);
	}
	/* Those that accept do not connect, so that nobody waits for an accept that comes after. */
	if (!c->end[0].host)
		w->block[w->acceptors + sim_below(w->n_blocks - w->acceptors)].connects |= 1u << id;
	if (!c->end[1].host)
		w->to_accept++;
	for (i = 0; i < 2; i++)
		give_flow(w, c, i);
}

void world_make(struct world *w)
{
	static const unsigned threads[] = { 1, 1, 1, 2, 7, 32, 33, 64 };
	unsigned i;

	w->domain = sim_below(3) ? AF_INET : AF_UNIX;
	w->n_blocks = sim_between(2, MOST_BLOCKS);
	w->n_threads = threads[sim_below(8)];
	w->narrow = sim_chance(150);
	/* Through a keyhole many threads take too many steps. */
	if (w->narrow && host_buffer() < 64 && w->n_threads > 7)
		w->n_threads = 7;
	w->n_conns = w->narrow ? 1 : sim_between(1, MOST_CONNS);
	if (w->narrow && sim_chance(500))
		w->n_blocks = 2;
	w->acceptors = w->n_blocks > 2 ? sim_between(1, 2) : 1;
	for (i = 0; i < w->acceptors; i++)
		w->block[i].accepts = true;
	w->backlog = (int)sim_below(5);
	if (!w->narrow && sim_chance(100))
		w->abort_after = 1 + sim_random() % (1000u << sim_below(13));
	w->dies = sim_chance(300);
	address(w, 0);
	address(w, 1);
	for (i = 0; i < w->n_conns; i++)
		make_conn(w, i);
	for (i = 0; i < w->n_blocks; i++)
		w->block[i].polls =
			w->block[i].n_tasks > 1 || (!w->block[i].full && sim_chance(300));
}

static void check_flow(const struct conn *c, unsigned d)
{
	const struct flow *f = &c->flow[d];

	if (c->chaos == CALM && (f->sent != f->total || f->received != f->total || !f->eof))
		sim_fail("flow %u: of %llu bytes %llu were sent and %llu received%s", f->id,
			 (unsigned long long)f->total, (unsigned long long)f->sent,
			 (unsigned long long)f->received, f->eof ? "" : ", without its end");
	if (c->chaos == CALM && f->loose && f->sum[0] != f->sum[1])
		sim_fail("flow %u: the bytes that were received are not those that were sent",
			 f->id);
	if (c->orderly && c->end[!d].host < c->end[d].host && (f->received != f->total || !f->eof))
		sim_fail("flow %u: of %llu bytes of one who takes no more %llu were received%s",
			 f->id, (unsigned long long)f->total, (unsigned long long)f->received,
			 f->eof ? "" : ", without its end");
	/* A close in good order sends all that the calls before it took; another end tells somebody why. */
	if ((c->chaos == CLOSED || c->chaos == BREAKS) && f->eof && !c->end[!d].told &&
	    f->received != f->sent)
		sim_fail(
			"flow %u: of %llu bytes that were sent %llu were received, and no error told",
			f->id, (unsigned long long)f->sent, (unsigned long long)f->received);
}

unsigned world_left(const struct world *w)
{
	unsigned i, n = 0;

	for (i = 0; i < w->n_conns; i++) {
		const struct conn *c = &w->conn[i];

		n += (c->end[0].left && !c->end[0].host) + (c->end[1].left && !c->end[1].host);
	}
	return n;
}

void world_check(const struct world *w)
{
	unsigned i;

	for (i = 0; i < w->n_conns; i++) {
		check_flow(&w->conn[i], 0);
		check_flow(&w->conn[i], 1);
	}
}

void world_report(void)
{
	const struct world *w = reported;
	unsigned i, d;

	if (!w)
		return;
	for (i = 0; i < w->n_blocks; i++)
		fprintf(stderr, "  block %u (%u threads): %s\n", i, w->n_threads,
			w->block[i].doing);
	for (i = 0; i < w->n_conns; i++) {
		const struct conn *c = &w->conn[i];

		for (d = 0; d < 2; d++)
			fprintf(stderr,
				"  flow %u, %s %llx to %s: total %llu sent %llu received %llu%s%s%s %d\n",
				c->flow[d].id, c->end[d].host ? "host" : "kernel",
				(unsigned long long)c->end[d].fd - 1,
				c->end[!d].host ? "host" : "kernel",
				(unsigned long long)c->flow[d].total,
				(unsigned long long)c->flow[d].sent,
				(unsigned long long)c->flow[d].received,
				c->flow[d].ended ? " ended" : "", c->flow[d].eof ? " eof" : "",
				c->chaos ? " chaos" : "", (int)c->chaos);
	}
	if (w->mixed)
		mixed_report(w->mixed);
	host_report();
}
