/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Provider rnic: a queue pair whose sends are stored into exported memory byte by byte, as code on a GPU does, and whose
 * completions are read from there. Also three processes with two contexts each on one address, which are killed in turn.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sys.h"
#include "verbs/verbs.h"

static const struct verbs_ops *const ops = &verbs_rnic;

enum { MEM = 1 << 16, BLOCKS = 16, ROUNDS = 200 };

struct end {
	struct verbs *v;
	struct verbs_device *d;
	struct verbs_cq *cq;
	struct verbs_qp *qp;
	struct verbs_mr *mr;
	uint8_t *mem;
	uint32_t qpn;
};

static const struct verbs_conn_param usual = { .retry = 6,
					       .rnr_retry = 6,
					       .ack_timeout = 14,
					       .min_rnr_timer = 12,
					       .responder_resources = 4,
					       .initiator_depth = 4 };

static void end_open(struct end *e, const char *host, bool external)
{
	struct verbs_qp_init init = { .max_send_wr = BLOCKS,
				      .max_recv_wr = 16,
				      .max_send_sge = 1,
				      .max_recv_sge = 1,
				      .external = external };
	struct verbs_mem m = { .fd = -1, .length = MEM };
	char why[256];

	memset(e, 0, sizeof(*e));
	assert_int_equal(ops->open(&e->v, why, sizeof(why)), 0);
	assert_int_equal(ops->device_open(e->v, host, &e->d), 0);
	assert_int_equal(ops->cq_create(e->d, 64, NULL, &e->cq), 0);
	init.send_cq = init.recv_cq = e->cq;
	assert_int_equal(ops->peer_qp_create(e->d, &init, &e->qp), 0);
	e->qpn = init.qpn;
	e->mem = calloc(1, MEM);
	m.addr = e->mem;
	m.iova = (uintptr_t)e->mem;
	assert_int_equal(ops->reg(e->d, &m, 7, &e->mr), 0);
}

static void end_join(struct end *e, uint32_t qpn, const uint8_t gid[16])
{
	struct verbs_peer to = { .my_psn = 5, .psn = 5, .qpn = qpn, .mtu = 1024 };

	memcpy(to.gid, gid, 16);
	assert_int_equal(ops->peer_qp_connect(e->qp, &to, &usual), 0);
}

static void end_close(struct end *e)
{
	ops->qp_destroy(e->qp);
	ops->dereg(e->mr);
	ops->cq_destroy(e->cq);
	ops->close(e->v);
	free(e->mem);
}

static struct verbs_gid gid_of(struct end *e)
{
	struct verbs_gid g;

	assert_int_equal(ops->device_gid(e->d, 0, &g), 0);
	return g;
}

/* --- by hand ------------------------------------------------------------------------------------ */

static void put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, 4);
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htobe64(v);
	memcpy(p, &v, 8);
}

struct poster {
	struct verbs_queue_export q;
	uint16_t pi;
	uint32_t ci;
};

/* One block: control, remote address, data. `opcode` as mlx5 has it: 8 WRITE, 0x10 READ, 0x0a SEND. */
static void store(struct poster *p, uint8_t opcode, const struct end *from, size_t off,
		  uint32_t len, uint64_t raddr, uint32_t rkey)
{
	uint8_t *w = (uint8_t *)p->q.sq + (size_t)(p->pi % p->q.sq_blocks) * 64, *data = w + 32;

	memset(w, 0, 64);
	put32(w, (uint32_t)p->pi << 8 | opcode);
	put32(w + 4, p->q.qpn << 8 | (opcode == 0x0a ? 2 : 3));
	w[11] = 0x08; /* a completion, please */
	if (opcode == 0x0a) {
		data = w + 16;
	} else {
		put64(w + 16, raddr);
		put32(w + 24, rkey);
	}
	put32(data, len);
	put32(data + 4, from->mr->lkey);
	put64(data + 8, (uintptr_t)from->mem + off);
	p->pi++;
}

static void ring(struct poster *p, bool bell)
{
	__atomic_store_n(p->q.sq_dbrec, htobe32(p->pi), __ATOMIC_RELEASE);
	if (bell)
		__atomic_store_n(p->q.doorbell, (uint64_t)p->pi << 32 | p->q.qpn, __ATOMIC_RELEASE);
}

/* Waits for the next completion in memory, as a kernel does: nothing is called. Its opcode. */
static unsigned await(struct poster *p)
{
	const uint8_t *c = (const uint8_t *)p->q.cq + (size_t)(p->ci % p->q.cq_entries) * 64;
	uint64_t end = sys.now_ns() + UINT64_C(10000000000);
	const struct timespec nap = { .tv_nsec = 20000 };
	unsigned owner = !!(p->ci & p->q.cq_entries);
	uint32_t last;

	for (;;) {
		last = __atomic_load_n((const uint32_t *)(const void *)(c + 60), __ATOMIC_ACQUIRE);
		last = le32toh(last) >> 24;
		if (last >> 4 != 15 && (last & 1) == owner)
			break;
		assert_true(sys.now_ns() < end);
		nanosleep(&nap, NULL);
	}
	p->ci++;
	__atomic_store_n(p->q.cq_dbrec, htobe32(p->ci & 0xffffff), __ATOMIC_RELEASE);
	return last >> 4;
}

/* WRITE, then READ back, over several turns of the queue, every third time without ringing. */
static void rounds(struct poster *p, struct end *a, struct end *b)
{
	unsigned i, k;

	for (i = 1; i <= ROUNDS; i++) {
		for (k = 0; k < 1500; k++)
			a->mem[k] = (uint8_t)(i * 3 + k);
		store(p, 8, a, 0, 1500, (uintptr_t)b->mem + 100, b->mr->rkey);
		store(p, 0x10, a, 8192, 1500, (uintptr_t)b->mem + 100, b->mr->rkey);
		ring(p, i % 3 != 0);
		assert_int_equal(await(p), 0);
		assert_int_equal(await(p), 0);
		assert_memory_equal(a->mem, b->mem + 100, 1500);
		assert_memory_equal(a->mem, a->mem + 8192, 1500);
	}
}

static void sends_are_posted_in_memory(void **state)
{
	struct verbs_send_wr wr = { .opcode = VERBS_WR_SEND };
	struct verbs_recv_wr recv = { .wr_id = 44, .nsge = 1 };
	struct verbs_queue_export none;
	struct verbs_sge sge;
	struct poster p = { 0 };
	struct verbs_wc wc;
	struct end a, b;

	(void)state;
	end_open(&a, "127.0.0.61", true);
	end_open(&b, "127.0.0.62", false);
	end_join(&a, b.qpn, gid_of(&b).gid);
	end_join(&b, a.qpn, gid_of(&a).gid);
	assert_int_equal(ops->export_queue(b.qp, &none), -EOPNOTSUPP);
	assert_int_equal(ops->export_queue(a.qp, &p.q), 0);
	assert_int_equal(p.q.qpn, a.qpn);
	assert_true(p.q.sq_blocks >= BLOCKS && p.q.doorbell);
	assert_int_equal(ops->post_send(a.qp, &wr, 1), -EINVAL);
	rounds(&p, &a, &b);
	/* Its receives are posted by calls, and complete where they always do. */
	sge = (struct verbs_sge){ (uintptr_t)a.mem + 30000, 100, a.mr->lkey };
	recv.sge = &sge;
	assert_int_equal(ops->post_recv(a.qp, &recv, 1), 1);
	memset(b.mem, 0x61, 64);
	sge = (struct verbs_sge){ (uintptr_t)b.mem, 64, b.mr->lkey };
	wr.sge = &sge;
	wr.nsge = 1;
	assert_int_equal(ops->post_send(b.qp, &wr, 1), 1);
	while (ops->poll(a.cq, &wc, 1) == 0)
		;
	assert_int_equal(wc.wr_id, 44);
	assert_memory_equal(a.mem + 30000, b.mem, 64);
	/* A key that is nobody's: the error's entry comes into memory, too. */
	store(&p, 8, &a, 0, 64, (uintptr_t)b.mem, b.mr->rkey ^ 1);
	ring(&p, true);
	assert_int_equal(await(&p), 13);
	end_close(&a);
	end_close(&b);
}

/* --- three processes on one address ------------------------------------------------------------- */

enum { PROCESSES = 3, CONTEXTS = 2, ECHOES = 30, PORT = 7600 };

struct told {
	uint32_t qpn[CONTEXTS];
};

static struct sockaddr_in at(const char *host, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	inet_pton(AF_INET, host, &a.sin_addr);
	return a;
}

/* Says no to whoever connects, which tells that the request came to this process. */
static void say_no(struct verbs_events *events)
{
	struct verbs_event ev;

	if (ops->event_next(events, &ev) || ev.type != VERBS_EVENT_CONNECT_REQUEST)
		return;
	ops->reject(ev.request, NULL, 0);
	ops->id_destroy(ev.request);
}

static struct verbs_events *take_port(struct verbs *v, const char *host, int port)
{
	struct sockaddr_in a = at(host, port);
	struct verbs_events *events;
	struct verbs_id *id;

	if (ops->events_open(v, 0, &events) || ops->id_create(events, NULL, &id) ||
	    ops->bind(id, (struct sockaddr *)&a, sizeof(a)) || ops->listen(id, 4))
		_exit(1);
	return events;
}

/* Two contexts, each with a queue pair that sends back what it gets, and an RDMA port. It ends by being killed. */
static void echo_for_ever(int in, int out, const char *host, int port)
{
	struct verbs_events *events;
	struct end e[CONTEXTS];
	struct told mine, theirs;
	struct verbs_gid g;
	struct verbs_wc wc;
	char go;
	int i;

	if (read(in, &go, 1) != 1)
		_exit(0);
	for (i = 0; i < CONTEXTS; i++) {
		end_open(&e[i], host, false);
		mine.qpn[i] = e[i].qpn;
	}
	events = take_port(e[0].v, host, port);
	if (write(out, &mine, sizeof(mine)) != sizeof(mine) ||
	    read(in, &theirs, sizeof(theirs)) != sizeof(theirs) ||
	    read(in, &g, sizeof(g)) != sizeof(g))
		_exit(1);
	for (i = 0; i < CONTEXTS; i++) {
		struct verbs_sge sge = { (uintptr_t)e[i].mem, 4096, e[i].mr->lkey };
		struct verbs_recv_wr recv = { .sge = &sge, .nsge = 1 };

		end_join(&e[i], theirs.qpn[i], g.gid);
		ops->post_recv(e[i].qp, &recv, 1);
	}
	if (write(out, "r", 1) != 1)
		_exit(1);
	for (i = 0;; i = (i + 1) % CONTEXTS) {
		const struct timespec nap = { .tv_nsec = 100000 };
		struct verbs_sge sge = { (uintptr_t)e[i].mem, 4096, e[i].mr->lkey };
		struct verbs_recv_wr recv = { .sge = &sge, .nsge = 1 };
		struct verbs_send_wr wr = {
			.wr_id = 7, .opcode = VERBS_WR_SEND, .sge = &sge, .nsge = 1
		};

		if (ops->poll(e[i].cq, &wc, 1) == 1 && wc.opcode == VERBS_WC_RECV && !wc.status) {
			sge.len = wc.byte_len;
			wr.flags = VERBS_SEND_SIGNALED;
			ops->post_send(e[i].qp, &wr, 1);
			sge.len = 4096;
			ops->post_recv(e[i].qp, &recv, 1);
		}
		say_no(events);
		nanosleep(&nap, NULL);
	}
}

/* A process and this one's ends of its connections. */
struct child {
	pid_t pid;
	int to, from;
	struct end e[CONTEXTS];
	unsigned echoed[CONTEXTS];
};

/* Forks before this process has threads of the provider. It waits for start(). */
static void spawn(struct child *c, const char *host, int port)
{
	int to[2], from[2];

	assert_int_equal(pipe(to), 0);
	assert_int_equal(pipe(from), 0);
	c->pid = fork();
	if (c->pid == 0) {
		alarm(60);
		close(to[1]);
		echo_for_ever(to[0], from[1], host, port);
	}
	close(to[0]);
	close(from[1]);
	c->to = to[1];
	c->from = from[0];
}

static void start(struct child *c, const char *mine)
{
	struct told theirs, ours;
	struct verbs_gid g, peer;
	char ready;
	int i;

	for (i = 0; i < CONTEXTS; i++) {
		c->echoed[i] = 0;
		end_open(&c->e[i], mine, false);
		ours.qpn[i] = c->e[i].qpn;
	}
	g = gid_of(&c->e[0]);
	assert_int_equal(write(c->to, "g", 1), 1);
	assert_int_equal(read(c->from, &theirs, sizeof(theirs)), sizeof(theirs));
	peer = g;
	peer.gid[15] = 71;
	for (i = 0; i < CONTEXTS; i++)
		end_join(&c->e[i], theirs.qpn[i], peer.gid);
	assert_int_equal(write(c->to, &ours, sizeof(ours)), sizeof(ours));
	assert_int_equal(write(c->to, &g, sizeof(g)), sizeof(g));
	assert_int_equal(read(c->from, &ready, 1), 1);
}

static struct verbs_event event(struct verbs_events *events)
{
	uint64_t end = sys.now_ns() + UINT64_C(10000000000);
	const struct timespec nap = { .tv_nsec = 100000 };
	struct verbs_event ev;

	while (ops->event_next(events, &ev)) {
		assert_true(sys.now_ns() < end);
		nanosleep(&nap, NULL);
	}
	return ev;
}

/* A request to connect reaches the process that holds the port, and its answer comes back. */
static void port_answers(const char *host, int port)
{
	struct verbs_qp_init init = { .max_send_wr = 1, .max_recv_wr = 1 };
	struct sockaddr_in a = at(host, port);
	struct verbs_events *events;
	struct verbs_event ev;
	struct verbs_cq *cq;
	struct verbs_id *id;
	struct verbs_qp *qp;
	struct verbs *v;
	char why[256];

	assert_int_equal(ops->open(&v, why, sizeof(why)), 0);
	assert_int_equal(ops->events_open(v, 0, &events), 0);
	assert_int_equal(ops->id_create(events, NULL, &id), 0);
	assert_int_equal(ops->resolve(id, (struct sockaddr *)&a, sizeof(a), 1000), 0);
	assert_int_equal(event(events).type, VERBS_EVENT_RESOLVED);
	assert_int_equal(ops->cq_create(ops->id_device(id), 4, NULL, &cq), 0);
	init.send_cq = init.recv_cq = cq;
	assert_int_equal(ops->qp_create(id, &init, &qp), 0);
	assert_int_equal(ops->connect(id, &usual), 0);
	ev = event(events);
	assert_int_equal(ev.type, VERBS_EVENT_REJECTED);
	assert_int_equal(ev.reason, 28);
	ops->qp_destroy(qp);
	ops->id_destroy(id);
	ops->cq_destroy(cq);
	ops->events_close(events);
	ops->close(v);
}

static struct verbs_wc next(struct end *e)
{
	uint64_t end = sys.now_ns() + UINT64_C(20000000000);
	const struct timespec nap = { .tv_nsec = 20000 };
	struct verbs_wc wc;

	while (ops->poll(e->cq, &wc, 1) == 0) {
		assert_true(sys.now_ns() < end);
		nanosleep(&nap, NULL);
	}
	return wc;
}

static void echo(struct child *c, int i)
{
	struct end *e = &c->e[i];
	unsigned n = ++c->echoed[i];
	struct verbs_sge out = { (uintptr_t)e->mem, 100 + n * 50, e->mr->lkey };
	struct verbs_sge in = { (uintptr_t)e->mem + 8192, 4096, e->mr->lkey };
	struct verbs_recv_wr recv = { .wr_id = 1, .sge = &in, .nsge = 1 };
	struct verbs_send_wr wr = { .wr_id = 2,
				    .opcode = VERBS_WR_SEND,
				    .flags = VERBS_SEND_SIGNALED,
				    .sge = &out,
				    .nsge = 1 };
	int k;

	memset(e->mem, (int)n, out.len);
	assert_int_equal(ops->post_recv(e->qp, &recv, 1), 1);
	assert_int_equal(ops->post_send(e->qp, &wr, 1), 1);
	for (k = 0; k < 2; k++)
		assert_int_equal(next(e).status, VERBS_WC_SUCCESS);
	assert_memory_equal(e->mem, e->mem + 8192, out.len);
}

static void echo_all(struct child *c, int but)
{
	int i, k;

	for (i = 0; i < PROCESSES; i++)
		for (k = 0; i != but && k < CONTEXTS; k++)
			echo(&c[i], k);
}

/* What was under way with a dead process ends with an error, in bounded time; the others' traffic goes on meanwhile. */
static void kill_one(struct child *c, int which)
{
	struct end *e = &c[which].e[0];
	struct verbs_sge sge = { (uintptr_t)e->mem, 64, e->mr->lkey };
	struct verbs_send_wr wr = {
		.opcode = VERBS_WR_SEND, .flags = VERBS_SEND_SIGNALED, .sge = &sge, .nsge = 1
	};
	int i, status;

	kill(c[which].pid, SIGKILL);
	assert_int_equal(waitpid(c[which].pid, &status, 0), c[which].pid);
	assert_int_equal(ops->post_send(e->qp, &wr, 1), 1);
	for (i = 0; i < ECHOES / 3; i++)
		echo_all(c, which);
	assert_int_equal(next(e).status, VERBS_WC_RETRY_EXC_ERR);
	for (i = 0; i < CONTEXTS; i++)
		end_close(&c[which].e[i]);
	close(c[which].to);
	close(c[which].from);
}

static void three_processes_are_killed_in_turn(void **state)
{
	static const char address[] = "127.0.0.71", mine[] = "127.0.0.72";
	struct child c[PROCESSES], spare[PROCESSES];
	int i, k;

	(void)state;
	for (i = 0; i < PROCESSES; i++) {
		spawn(&c[i], address, PORT + i);
		spawn(&spare[i], address, PORT + i);
	}
	for (i = 0; i < PROCESSES; i++)
		start(&c[i], mine);
	for (i = 0; i < PROCESSES; i++) {
		for (k = 0; k < ECHOES / 6; k++)
			echo_all(c, -1);
		kill_one(c, i);
		for (k = 0; k < PROCESSES; k++)
			if (k != i)
				port_answers(address, PORT + k);
		/* Another one takes the place, slot, port and all. */
		c[i] = spare[i];
		start(&c[i], mine);
		port_answers(address, PORT + i);
	}
	echo_all(c, -1);
	for (i = 0; i < PROCESSES; i++) {
		kill(c[i].pid, SIGKILL);
		waitpid(c[i].pid, NULL, 0);
		close(c[i].to);
		close(c[i].from);
		for (k = 0; k < CONTEXTS; k++)
			end_close(&c[i].e[k]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: its children come from a process without threads. */
		cmocka_unit_test(three_processes_are_killed_in_turn),
		cmocka_unit_test(sends_are_posted_in_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
