/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends of a connection over the provider `rnic`, for its tests: see verbs_ends.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sys.h"
#include "verbs_ends.h"

char device_name[32], nowhere[20], mute[20], alone[20];
const char *const here = device_name + 5; /* "rnic:" */
uint16_t common_port;

void choose_names(void)
{
	unsigned n = (unsigned)getpid(), x = 1 + n / 253 % 253, y = 1 + n % 253;

	snprintf(device_name, sizeof(device_name), "rnic:127.%u.%u.9", x, y);
	snprintf(nowhere, sizeof(nowhere), "127.%u.%u.77", x, y);
	snprintf(mute, sizeof(mute), "127.%u.%u.78", x, y);
	snprintf(alone, sizeof(alone), "127.%u.%u.10", x, y);
	common_port = (uint16_t)(10000 + n % 20000);
}

struct sockaddr_in at(const char *host, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, host, &a.sin_addr), 1);
	return a;
}

void end_open(struct end *e)
{
	char why[256];

	memset(e, 0, sizeof(*e));
	assert_int_equal(ops->open(&e->v, why, sizeof(why)), 0);
	assert_int_equal(ops->events_open(e->v, 0, &e->e), 0);
}

struct verbs_event next_event(struct end *e, enum verbs_event_type type)
{
	struct verbs_event ev;
	struct pollfd p = { .fd = ops->events_fd(e->e), .events = POLLIN };
	int rc, tries;

	for (tries = 0; (rc = ops->event_next(e->e, &ev)) == -EAGAIN && tries < 100; tries++)
		poll(&p, 1, 100);
	assert_int_equal(rc, 0);
	assert_int_equal(ev.type, type);
	return ev;
}

void no_event(struct end *e)
{
	struct verbs_event ev;

	assert_int_equal(ops->event_next(e->e, &ev), -EAGAIN);
}

void end_equip(struct end *e)
{
	struct verbs_qp_init init = { .max_send_wr = DEPTH,
				      .max_recv_wr = DEPTH,
				      .max_send_sge = 2,
				      .max_recv_sge = 2,
				      .max_inline = 64 };
	struct verbs_mem m = { .fd = -1, .length = MEM };

	e->d = ops->id_device(e->id);
	assert_non_null(e->d);
	assert_int_equal(ops->comp_open(e->d, &e->comp), 0);
	assert_int_equal(ops->cq_create(e->d, 4 * DEPTH, e->comp, &e->cq), 0);
	init.send_cq = init.recv_cq = e->cq;
	assert_int_equal(ops->qp_create(e->id, &init, &e->qp), 0);
	assert_int_equal(init.max_inline, 64);
	e->mem = calloc(1, MEM);
	m.addr = e->mem;
	m.iova = (uintptr_t)e->mem;
	assert_int_equal(ops->reg(e->d, &m,
				  VERBS_ACCESS_LOCAL_WRITE | VERBS_ACCESS_REMOTE_WRITE |
					  VERBS_ACCESS_REMOTE_READ,
				  &e->mr),
			 0);
}

void end_close(struct end *e)
{
	if (e->qp)
		ops->qp_destroy(e->qp);
	if (e->mr)
		ops->dereg(e->mr);
	free(e->mem);
	if (e->cq)
		ops->cq_destroy(e->cq);
	if (e->comp)
		ops->comp_close(e->comp);
	if (e->id)
		ops->id_destroy(e->id);
	ops->events_close(e->e);
	ops->close(e->v);
}

struct verbs_id *listener(struct end *e, const char *host, uint16_t port)
{
	struct sockaddr_in a = at(host, port);
	struct verbs_id *l = NULL;

	assert_int_equal(ops->id_create(e->e, e, &l), 0);
	assert_int_equal(ops->bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(ops->listen(l, 16), 0);
	return l;
}

const struct verbs_conn_param usual = { .retry = 7,
					.rnr_retry = 7,
					.ack_timeout = 15,
					.min_rnr_timer = 12,
					.responder_resources = 4,
					.initiator_depth = 4 };

struct verbs_conn_param say(const char *text)
{
	struct verbs_conn_param p = usual;

	p.private_len = (uint8_t)strlen(text);
	memcpy(p.private_data, text, p.private_len);
	return p;
}

static void go_on(struct end *e, const char *host, uint16_t port)
{
	struct verbs_conn_param p = say("hello");
	struct sockaddr_in a = at(host, port);

	assert_int_equal(ops->resolve(e->id, (struct sockaddr *)&a, sizeof(a), 1000), 0);
	assert_ptr_equal(next_event(e, VERBS_EVENT_RESOLVED).id, e->id);
	end_equip(e);
	assert_int_equal(ops->connect(e->id, &p), 0);
}

void begin_alone(struct end *e, const char *host, uint16_t port)
{
	struct sockaddr_in a = at(alone, 0);

	assert_int_equal(ops->id_create(e->e, e, &e->id), 0);
	assert_int_equal(ops->bind(e->id, (struct sockaddr *)&a, sizeof(a)), 0);
	go_on(e, host, port);
}

void begin(struct end *e, const char *host, uint16_t port)
{
	assert_int_equal(ops->id_create(e->e, e, &e->id), 0);
	assert_null(ops->id_device(e->id));
	go_on(e, host, port);
}

void take(struct end *e)
{
	struct verbs_conn_param p = say("welcome");
	struct verbs_event ev = next_event(e, VERBS_EVENT_CONNECT_REQUEST);

	e->id = ev.request;
	assert_ptr_equal(ev.user, e);
	assert_memory_equal(ev.param.private_data, "hello", 6);
	assert_int_equal(ev.param.responder_resources, 4);
	end_equip(e);
	assert_int_equal(ops->accept(e->id, &p), 0);
}

void joined(struct end *a, struct end *b)
{
	struct verbs_event ev = next_event(a, VERBS_EVENT_ESTABLISHED);

	assert_memory_equal(ev.param.private_data, "welcome", 8);
	assert_ptr_equal(ev.user, a);
	assert_ptr_equal(next_event(b, VERBS_EVENT_ESTABLISHED).id, b->id);
}

struct verbs_wc completion(struct end *e, bool spin)
{
	struct pollfd p = { .fd = ops->comp_fd(e->comp), .events = POLLIN };
	uint64_t end = sys.now_ns() + UINT64_C(10000000000);
	struct verbs_wc wc;

	while (ops->poll(e->cq, &wc, 1) == 0) {
		assert_true(sys.now_ns() < end);
		if (spin)
			continue;
		assert_int_equal(ops->arm(e->cq), 0);
		if (ops->poll(e->cq, &wc, 1) == 1)
			break;
		poll(&p, 1, 1000);
		ops->comp_drain(e->comp);
	}
	return wc;
}

void send_from(struct end *e, struct end *to, enum verbs_wr_opcode op, size_t off, uint32_t len,
	       uint64_t id)
{
	struct verbs_sge sge = { (uintptr_t)e->mem + off, len, e->mr->lkey };
	struct verbs_send_wr wr = { .wr_id = id,
				    .opcode = op,
				    .flags = VERBS_SEND_SIGNALED,
				    .sge = &sge,
				    .nsge = 1,
				    .imm = 0x1234,
				    .raddr = (uintptr_t)to->mem + off,
				    .rkey = to->mr->rkey };

	assert_int_equal(ops->post_send(e->qp, &wr, 1), 1);
}

void exchange(struct end *a, struct end *b, bool spin)
{
	struct verbs_recv_wr recv = { .wr_id = 9 };
	struct verbs_wc wc;
	size_t i;

	for (i = 0; i < 300000; i++)
		a->mem[i] = (uint8_t)(i * 31 >> 3);
	assert_int_equal(ops->post_recv(b->qp, &recv, 1), 1);
	send_from(a, b, VERBS_WR_WRITE_IMM, 0, 300000, 5);
	wc = completion(b, spin);
	assert_int_equal(wc.status, VERBS_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 9);
	assert_int_equal(wc.opcode, VERBS_WC_RECV_WRITE_IMM);
	assert_int_equal(wc.byte_len, 300000);
	assert_int_equal(wc.imm, 0x1234);
	assert_true(wc.flags & VERBS_WC_WITH_IMM);
	assert_memory_equal(a->mem, b->mem, 300000);
	wc = completion(a, spin);
	assert_int_equal(wc.status, VERBS_WC_SUCCESS);
	assert_int_equal(wc.wr_id, 5);
	memset(b->mem, 0x77, 5000);
	send_from(a, b, VERBS_WR_READ, 0, 5000, 6);
	wc = completion(a, spin);
	assert_int_equal(wc.status, VERBS_WC_SUCCESS);
	assert_memory_equal(a->mem, b->mem, 5000);
}
