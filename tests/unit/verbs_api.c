/* SPDX-License-Identifier: BSD-3-Clause */
/* <gpunet/verbs.h> over provider rnic on the loopback interface: both ways to connect, each operation, each wait, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>

#include <cmocka.h>

#include <gpunet/gpunet.h>
#include <gpunet/verbs.h>

enum { MEM = 1 << 20, DEPTH = 64, WAIT = 10000 };

struct end {
	gpunet_verbs_t *v;
	gpunet_verbs_mr_t *mr;
	gpunet_verbs_cq_t *cq;
	gpunet_verbs_conn_t *conn;
	gpunet_verbs_qp_t *qp;
	uint8_t *mem;
};

static struct sockaddr_in at(const char *host, uint16_t port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

	assert_int_equal(inet_pton(AF_INET, host, &a.sin_addr), 1);
	return a;
}

static gpunet_verbs_t *open_local(const char *host)
{
	struct gpunet_verbs_options opt = GPUNET_VERBS_OPTIONS_INIT;
	struct sockaddr_in a = at(host, 0);
	gpunet_verbs_t *v = NULL;

	opt.provider = "rnic";
	opt.local = (struct sockaddr *)&a;
	opt.local_len = sizeof(a);
	assert_int_equal(gpunet_verbs_open(&v, &opt), 0);
	return v;
}

static void equip(struct end *e)
{
	e->mem = calloc(1, MEM);
	assert_int_equal(gpunet_verbs_reg(e->v, e->mem, MEM,
					  GPUNET_VERBS_LOCAL_WRITE | GPUNET_VERBS_REMOTE_WRITE |
						  GPUNET_VERBS_REMOTE_READ |
						  GPUNET_VERBS_REMOTE_ATOMIC,
					  &e->mr),
			 0);
	assert_int_equal(gpunet_verbs_cq_create(e->v, 4 * DEPTH, &e->cq), 0);
}

static void make_qp(struct end *e)
{
	struct gpunet_verbs_qp_init init = { .size = sizeof(init),
					     .send_cq = e->cq,
					     .recv_cq = e->cq,
					     .max_send_wr = DEPTH,
					     .max_recv_wr = DEPTH,
					     .max_send_sge = 2,
					     .max_inline = 64 };

	assert_int_equal(gpunet_verbs_qp_create(e->v, e->conn, &init, &e->qp), 0);
	assert_true(init.max_send_wr >= DEPTH);
	assert_int_equal(init.max_inline, 64);
}

static void end_close(struct end *e)
{
	gpunet_verbs_qp_destroy(e->qp);
	if (e->conn)
		assert_int_equal(gpunet_verbs_conn_close(e->conn), 0);
	gpunet_verbs_dereg(e->mr);
	assert_int_equal(gpunet_verbs_cq_destroy(e->cq), 0);
	assert_int_equal(gpunet_verbs_close(e->v), 0);
	free(e->mem);
}

static struct gpunet_verbs_wc completion(struct end *e)
{
	struct gpunet_verbs_wc wc;

	assert_int_equal(gpunet_verbs_poll(e->cq, &wc, 1, WAIT), 1);
	return wc;
}

static void post_receive(struct end *e, uint64_t id, size_t to, uint32_t len)
{
	struct gpunet_verbs_sge sge = { (uintptr_t)e->mem + to, len, gpunet_verbs_lkey(e->mr) };
	struct gpunet_verbs_recv_wr wr = { id, &sge, 1, 0 };

	assert_int_equal(gpunet_verbs_post_recv(e->qp, &wr, 1), 1);
}

/* One work request of `len` bytes at `from` here, to `to` there, and its completion. */
static struct gpunet_verbs_wc send_one(struct end *e, const struct end *peer, uint32_t opcode,
				       size_t from, uint32_t len, size_t to)
{
	struct gpunet_verbs_sge sge = { (uintptr_t)e->mem + from, len, gpunet_verbs_lkey(e->mr) };
	struct gpunet_verbs_send_wr wr = { .wr_id = 77,
					   .opcode = opcode,
					   .flags = GPUNET_VERBS_SIGNALED,
					   .sge = &sge,
					   .nsge = 1,
					   .imm = 0x12345678,
					   .remote_addr = (uintptr_t)peer->mem + to,
					   .rkey = gpunet_verbs_rkey(peer->mr),
					   .compare = 42,
					   .swap_add = 1000 };
	struct gpunet_verbs_wc wc;

	assert_int_equal(gpunet_verbs_post_send(e->qp, &wr, 1), 1);
	wc = completion(e);
	assert_int_equal(wc.wr_id, 77);
	return wc;
}

static void fill(uint8_t *to, size_t n, unsigned seed)
{
	size_t i;

	for (i = 0; i < n; i++)
		to[i] = (uint8_t)(i * 31 + seed + (i >> 8));
}

static uint64_t word(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Every operation once, and what each completes with. */
static void each_operation(struct end *a, struct end *b)
{
	const uint64_t before = 42;
	struct gpunet_verbs_wc wc;

	fill(a->mem, 100000, 1);
	wc = send_one(a, b, GPUNET_VERBS_WRITE, 0, 100000, 17);
	assert_int_equal(wc.status, 0);
	assert_int_equal(wc.opcode, GPUNET_VERBS_WC_WRITE);
	assert_memory_equal(b->mem + 17, a->mem, 100000);
	wc = send_one(a, b, GPUNET_VERBS_READ, 300000, 50000, 100);
	assert_int_equal(wc.opcode, GPUNET_VERBS_WC_READ);
	assert_memory_equal(a->mem + 300000, b->mem + 100, 50000);

	post_receive(b, 5, 500000, 4000);
	wc = send_one(a, b, GPUNET_VERBS_SEND_IMM, 10, 3333, 0);
	assert_int_equal(wc.opcode, GPUNET_VERBS_WC_SEND);
	wc = completion(b);
	assert_int_equal(wc.wr_id, 5);
	assert_int_equal(wc.opcode, GPUNET_VERBS_WC_RECV);
	assert_int_equal(wc.byte_len, 3333);
	assert_int_equal(wc.flags, GPUNET_VERBS_WC_WITH_IMM);
	assert_int_equal(wc.imm, 0x12345678);
	assert_memory_equal(b->mem + 500000, a->mem + 10, 3333);

	memcpy(b->mem, &before, 8);
	wc = send_one(a, b, GPUNET_VERBS_CMP_SWAP, 800000, 8, 0);
	assert_int_equal(wc.opcode, GPUNET_VERBS_WC_CMP_SWAP);
	assert_int_equal(word(a->mem + 800000), 42);
	assert_int_equal(word(b->mem), 1000);
	wc = send_one(a, b, GPUNET_VERBS_FETCH_ADD, 800000, 8, 0);
	assert_int_equal(wc.opcode, GPUNET_VERBS_WC_FETCH_ADD);
	assert_int_equal(word(a->mem + 800000), 1000);
	assert_int_equal(word(b->mem), 2000);
}

/* ---- by the connection manager -------------------------------------------------------------------------------------------- */

struct server {
	struct end e;
	gpunet_verbs_listener_t *l;
	int refuse;
};

static void *serve_one(void *arg)
{
	struct gpunet_verbs_param p = GPUNET_VERBS_PARAM_INIT;
	struct server *s = arg;
	char text[64];

	assert_int_equal(gpunet_verbs_next(s->l, WAIT, &s->e.conn), 0);
	assert_int_equal(gpunet_verbs_peer_data(s->e.conn, text, sizeof(text)) >= 6, 1);
	assert_string_equal(text, "hello");
	if (s->refuse) {
		assert_int_equal(gpunet_verbs_reject(s->e.conn, "no", 3), 0);
		return NULL;
	}
	make_qp(&s->e);
	p.private_data = "welcome";
	p.private_length = 8;
	assert_int_equal(gpunet_verbs_accept(s->e.conn, &p, WAIT), 0);
	return NULL;
}

static struct sockaddr_in server_start(struct server *s, pthread_t *t)
{
	struct sockaddr_in a = at("127.0.0.93", 0);
	socklen_t n = sizeof(a);

	s->e.v = open_local("127.0.0.93");
	equip(&s->e);
	assert_int_equal(gpunet_verbs_listen(s->e.v, (struct sockaddr *)&a, n, 4, &s->l), 0);
	assert_int_equal(gpunet_verbs_listener_name(s->l, (struct sockaddr *)&a, &n), 0);
	assert_int_not_equal(a.sin_port, 0);
	assert_int_equal(pthread_create(t, NULL, serve_one, s), 0);
	return a;
}

static void client_dial(struct end *c, const struct sockaddr_in *to)
{
	struct gpunet_verbs_options opt = GPUNET_VERBS_OPTIONS_INIT;

	opt.provider = "rnic";
	opt.toward = (const struct sockaddr *)to;
	opt.toward_len = sizeof(*to);
	assert_int_equal(gpunet_verbs_open(&c->v, &opt), 0);
	equip(c);
	assert_int_equal(gpunet_verbs_dial(c->v, (const struct sockaddr *)to, sizeof(*to), WAIT,
					   &c->conn),
			 0);
}

static int client_connect(struct end *c)
{
	struct gpunet_verbs_param p = GPUNET_VERBS_PARAM_INIT;

	make_qp(c);
	p.private_data = "hello";
	p.private_length = 6;
	return gpunet_verbs_connect(c->conn, &p, WAIT);
}

static void listen_dial_connect(void **state)
{
	struct server s = { .refuse = 0 };
	struct end c = { 0 };
	struct sockaddr_in to, name;
	socklen_t n = sizeof(name);
	struct pollfd fd;
	char text[64];
	pthread_t t;

	to = server_start(&s, &t);
	client_dial(&c, &to);
	assert_int_equal(client_connect(&c), 0);
	pthread_join(t, NULL);
	assert_true(gpunet_verbs_peer_data(c.conn, text, sizeof(text)) >= 8);
	assert_string_equal(text, "welcome");
	assert_int_equal(gpunet_verbs_conn_name(c.conn, 1, (struct sockaddr *)&name, &n), 0);
	assert_int_equal(name.sin_port, to.sin_port);
	each_operation(&c, &s.e);
	each_operation(&s.e, &c);

	assert_int_equal(gpunet_verbs_wait_end(s.e.conn, 0), -EAGAIN);
	assert_int_equal(gpunet_verbs_wait_end(s.e.conn, 20), -ETIMEDOUT);
	assert_int_equal(gpunet_verbs_conn_close(c.conn), -EBUSY);
	assert_int_equal(gpunet_verbs_close(c.v), -EBUSY);
	assert_int_equal(gpunet_verbs_disconnect(c.conn), 0);
	assert_int_equal(gpunet_verbs_disconnect(c.conn), 0);
	fd = (struct pollfd){ .fd = gpunet_verbs_conn_fd(s.e.conn), .events = POLLIN };
	assert_int_equal(poll(&fd, 1, WAIT), 1);
	assert_int_equal(gpunet_verbs_wait_end(s.e.conn, WAIT), 0);
	assert_int_equal(gpunet_verbs_wait_end(s.e.conn, -1), 0);
	gpunet_verbs_listener_close(s.l);
	end_close(&c);
	end_close(&s.e);
	(void)state;
}

static void refused(void **state)
{
	struct server s = { .refuse = 1 };
	struct sockaddr_in to;
	struct end c = { 0 };
	char text[64];
	pthread_t t;

	to = server_start(&s, &t);
	client_dial(&c, &to);
	assert_int_equal(client_connect(&c), -ECONNREFUSED);
	pthread_join(t, NULL);
	assert_true(gpunet_verbs_peer_data(c.conn, text, sizeof(text)) >= 3);
	assert_string_equal(text, "no");
	end_close(&c);
	/* Nobody listens. */
	gpunet_verbs_listener_close(s.l);
	memset(&c, 0, sizeof(c));
	client_dial(&c, &to);
	assert_int_equal(client_connect(&c), -ECONNREFUSED);
	end_close(&c);
	s.e.qp = NULL;
	assert_int_equal(gpunet_verbs_conn_close(s.e.conn), 0);
	gpunet_verbs_dereg(s.e.mr);
	assert_int_equal(gpunet_verbs_cq_destroy(s.e.cq), 0);
	assert_int_equal(gpunet_verbs_close(s.e.v), 0);
	free(s.e.mem);
	(void)state;
}

/* ---- by numbers ------------------------------------------------------------------------------------------------------------- */

static void pair_by_numbers(struct end *a, struct end *b)
{
	struct gpunet_verbs_address at_a = { .size = sizeof(at_a) },
				    at_b = { .size = sizeof(at_b) };

	memset(a, 0, sizeof(*a));
	memset(b, 0, sizeof(*b));
	a->v = open_local("127.0.0.93");
	b->v = open_local("127.0.0.94");
	equip(a);
	equip(b);
	make_qp(a);
	make_qp(b);
	assert_int_equal(gpunet_verbs_qp_address(a->qp, &at_a), 0);
	assert_int_equal(gpunet_verbs_qp_address(b->qp, &at_b), 0);
	assert_int_equal(at_b.gid[12], 127);
	assert_int_equal(gpunet_verbs_qp_connect(a->qp, &at_b, NULL), 0);
	assert_int_equal(gpunet_verbs_qp_connect(b->qp, &at_a, NULL), 0);
}

static void exchanged_numbers(void **state)
{
	struct end a, b;

	pair_by_numbers(&a, &b);
	each_operation(&a, &b);
	each_operation(&b, &a);
	end_close(&a);
	end_close(&b);
	(void)state;
}

/* More than the queue holds, and more than a batch of the inside. */
static void a_full_queue_takes_less(void **state)
{
	struct gpunet_verbs_send_wr wr[3 * DEPTH] = { { 0 } };
	struct gpunet_verbs_wc wc[3 * DEPTH];
	struct gpunet_verbs_sge sge;
	int i, n = 0, got = 0;
	struct end a, b;

	pair_by_numbers(&a, &b);
	fill(a.mem, 64, 3);
	sge = (struct gpunet_verbs_sge){ (uintptr_t)a.mem, 64, 0 };
	for (i = 0; i < 3 * DEPTH; i++)
		wr[i] = (struct gpunet_verbs_send_wr){
			.wr_id = (uint64_t)i,
			.opcode = GPUNET_VERBS_WRITE,
			.flags = GPUNET_VERBS_SIGNALED | GPUNET_VERBS_INLINE,
			.sge = &sge,
			.nsge = 1,
			.remote_addr = (uintptr_t)b.mem + (uint64_t)i * 64,
			.rkey = gpunet_verbs_rkey(b.mr)
		};
	/* The device's own thread may make room meanwhile. */
	while (n < 3 * DEPTH) {
		i = gpunet_verbs_post_send(a.qp, wr + n, 3 * DEPTH - n);
		assert_true(i > 0 || i == -EAGAIN);
		assert_true(n || i >= DEPTH);
		n += i > 0 ? i : 0;
		i = gpunet_verbs_poll(a.cq, wc + got, 3 * DEPTH - got, WAIT);
		assert_true(i > 0);
		got += i;
	}
	while (got < n) {
		i = gpunet_verbs_poll(a.cq, wc + got, 3 * DEPTH - got, WAIT);
		assert_true(i > 0);
		got += i;
	}
	for (i = 0; i < n; i++) {
		assert_int_equal(wc[i].wr_id, i);
		assert_memory_equal(b.mem + i * 64, a.mem, 64);
	}
	wr[0].opcode = 99;
	assert_int_equal(gpunet_verbs_post_send(a.qp, wr, 1), -EINVAL);
	assert_int_equal(gpunet_verbs_post_send(a.qp, wr + 1, 0), 0);
	end_close(&a);
	end_close(&b);
	(void)state;
}

static void waits_end(void **state)
{
	struct gpunet_verbs_wc wc;
	struct timespec from, to;
	struct pollfd fd;
	struct end a, b;

	pair_by_numbers(&a, &b);
	assert_int_equal(gpunet_verbs_poll(a.cq, &wc, 1, 0), 0);
	clock_gettime(CLOCK_MONOTONIC, &from);
	assert_int_equal(gpunet_verbs_poll(a.cq, &wc, 1, 50), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	assert_true((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 >= 49);
	/* The descriptor of an armed queue. */
	post_receive(&b, 1, 0, 64);
	assert_int_equal(gpunet_verbs_cq_arm(b.cq), 0);
	fd = (struct pollfd){ .fd = gpunet_verbs_cq_fd(b.cq), .events = POLLIN };
	assert_int_equal(poll(&fd, 1, 0), 0);
	send_one(&a, &b, GPUNET_VERBS_SEND, 0, 64, 0);
	assert_int_equal(poll(&fd, 1, WAIT), 1);
	assert_int_equal(gpunet_verbs_poll(b.cq, &wc, 1, 0), 1);
	assert_int_equal(gpunet_verbs_cq_arm(b.cq), 0);
	assert_int_equal(poll(&fd, 1, 0), 0);
	/* Protection: a key that is none. */
	post_receive(&b, 2, 0, 64);
	gpunet_verbs_dereg(b.mr);
	b.mr = NULL;
	assert_int_equal(gpunet_verbs_reg(b.v, b.mem, MEM, GPUNET_VERBS_LOCAL_WRITE, &b.mr), 0);
	wc = send_one(&a, &b, GPUNET_VERBS_WRITE, 0, 64, 0);
	assert_int_equal(wc.status, 10);
	assert_non_null(strstr(gpunet_verbs_status_text(wc.status), "refused access"));
	end_close(&a);
	end_close(&b);
	(void)state;
}

/* ---- refusals ----------------------------------------------------------------------------------------------------------------- */

static int count(const struct gpunet_verbs_info *info, void *arg)
{
	assert_string_equal(info->provider, "rnic");
	assert_non_null(strstr(info->name, "rnic:"));
	assert_int_equal(info->software, 1);
	++*(int *)arg;
	return 0;
}

static void devices(void **state)
{
	struct gpunet_verbs_options opt = GPUNET_VERBS_OPTIONS_INIT;
	struct gpunet_verbs_info info = { .size = sizeof(info) };
	struct sockaddr_in a = at("192.0.2.1", 0);
	gpunet_verbs_t *v = NULL;
	int n = 0;

	assert_int_equal(gpunet_verbs_list("rnic", count, &n), 0);
	assert_true(n > 0);
	assert_int_equal(gpunet_verbs_list("nonsense", count, &n), -EINVAL);
	opt.provider = "rnic";
	assert_int_equal(gpunet_verbs_open(&v, &opt), -EINVAL);
	opt.device = "rnic:127.0.0.1";
	opt.size = 4096;
	assert_int_equal(gpunet_verbs_open(&v, &opt), -EINVAL);
	opt.size = sizeof(opt);
	assert_int_equal(gpunet_verbs_open(&v, &opt), 0);
	assert_int_equal(gpunet_verbs_query(v, &info), 0);
	assert_string_equal(info.name, "rnic:127.0.0.1");
	assert_int_equal(info.mtu, 4096);
	assert_int_equal(gpunet_verbs_close(v), 0);
	v = NULL;
	opt.device = "mlx5_0";
	assert_int_equal(gpunet_verbs_open(&v, &opt), -ENODEV);
	assert_non_null(strstr(gpunet_last_error(), "mlx5_0"));
	opt.device = NULL;
	opt.local = (struct sockaddr *)&a;
	opt.local_len = sizeof(a);
	assert_int_equal(gpunet_verbs_open(&v, &opt), -EADDRNOTAVAIL);
	assert_non_null(strstr(gpunet_last_error(), "192.0.2.1"));
	assert_null(v);
	(void)state;
}

static void another_devices_address(void **state)
{
	struct sockaddr_in a = at("127.0.0.94", 0);
	gpunet_verbs_t *v = open_local("127.0.0.93");
	gpunet_verbs_listener_t *l = NULL;

	assert_int_equal(gpunet_verbs_listen(v, (struct sockaddr *)&a, sizeof(a), 1, &l), -EXDEV);
	assert_null(l);
	assert_int_equal(gpunet_verbs_close(v), 0);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(listen_dial_connect),
		cmocka_unit_test(refused),
		cmocka_unit_test(exchanged_numbers),
		cmocka_unit_test(a_full_queue_takes_less),
		cmocka_unit_test(waits_end),
		cmocka_unit_test(devices),
		cmocka_unit_test(another_devices_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
