/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The UDP wire, over the loopback interface: two devices, on 127.0.0.82 and 127.0.0.83 (or one that talks to itself on ::1),
 * driven by one thread and the real clock. Also a measurement between two processes, not run by the suite:
 *
 *	unit_rnic_udp bench [ROUNDS]
 *
 * and what the two ends cost together, which other work on the machine changes little:
 *
 *	unit_rnic_udp costs [write|read|batch|alone]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/sys.h"
#include "rnic/rnic.h"
#include "rnic/wire_udp.h"
#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/roce.h"
#include "rnic_join.h"

enum { MEM = 4 << 20 };

static const uint8_t addr_a[16] = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 82 };
static const uint8_t addr_b[16] = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 83 };
static const uint8_t addr_v6[16] = { [15] = 1 };

struct end {
	uint8_t gid[1][16];
	struct rnic_wire *wire;
	struct rnic *r;
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_mr *mr;
	uint8_t *mem;
};

static int end_open(struct end *e, const uint8_t gid[16], const struct rnic_udp_config *with)
{
	struct rnic_udp_config udp = with ? *with : (struct rnic_udp_config){ 0 };
	struct rnic_config cfg = { .gids = (const uint8_t(*)[16])e->gid, .ngids = 1, .max_mr = 16 };
	int rc;

	memcpy(e->gid[0], gid, 16);
	memcpy(udp.gid, gid, 16);
	rc = rnic_udp_create(&udp, &e->wire);
	if (rc)
		return rc;
	if (rnic_open(&e->r, &cfg, e->wire) || rnic_pd_create(e->r, &e->pd) ||
	    rnic_cq_create(e->r, 4096, &e->cq))
		return -ENOMEM;
	rnic_udp_attach(e->wire, e->r);
	e->mem = calloc(1, MEM);
	return rnic_mr_create(e->pd, e->mem, MEM, (uintptr_t)e->mem, RNIC_ACCESS_ALL, &e->mr);
}

static void end_close(struct end *e)
{
	rnic_mr_destroy(e->mr);
	free(e->mem);
	assert_int_equal(rnic_cq_destroy(e->cq), 0);
	assert_int_equal(rnic_pd_destroy(e->pd), 0);
	assert_int_equal(rnic_close(e->r), 0);
	rnic_udp_destroy(e->wire);
}

/* Opens, or skips the test where the address or the port cannot be had. */
static void end_open_or_skip(struct end *e, const uint8_t gid[16],
			     const struct rnic_udp_config *with)
{
	int rc = end_open(e, gid, with);

	if (rc == -EADDRINUSE || rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT) {
		print_message("skipped: %s\n", log_last());
		skip();
	}
	assert_int_equal(rc, 0);
}

static struct rnic_qp *make_qp(struct end *e)
{
	struct rnic_qp_init in = { .type = RNIC_QP_RC,
				   .send_cq = e->cq,
				   .recv_cq = e->cq,
				   .max_send_wr = 256,
				   .max_recv_wr = 256,
				   .max_send_sge = 2,
				   .max_recv_sge = 2,
				   .max_inline = 128 };
	struct rnic_qp *qp = NULL;

	assert_int_equal(rnic_qp_create(e->pd, &in, &qp), 0);
	return qp;
}

static void drive(struct end *e)
{
	uint64_t now = sys.now_ns();

	assert_true(rnic_udp_poll(e->wire, now, 256) >= 0);
	rnic_step(e->r, now, 256);
}

static int post(struct end *e, struct rnic_qp *qp, const struct end *peer, enum rnic_wr_opcode op,
		size_t off, uint32_t len, size_t roff, uint64_t id)
{
	struct rnic_sge sge = { (uintptr_t)e->mem + off, len, rnic_mr_lkey(e->mr) };
	struct rnic_send_wr wr = { .wr_id = id,
				   .opcode = op,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .raddr = (uintptr_t)peer->mem + roff,
				   .rkey = rnic_mr_rkey(peer->mr) };

	return rnic_post_send(qp, &wr, sys.now_ns());
}

/* Drives both ends until one has a completion, which must be a success of that id. */
static void wait_for(struct end *e, struct end *other, uint64_t id)
{
	uint64_t end = sys.now_ns() + UINT64_C(5000000000);
	struct rnic_wc wc;

	while (rnic_cq_poll(e->cq, &wc, 1) == 0) {
		assert_true(sys.now_ns() < end);
		drive(e);
		drive(other);
	}
	assert_int_equal(wc.status, RNIC_WC_SUCCESS);
	assert_int_equal(wc.wr_id, id);
}

static void fill(struct end *e, unsigned seed)
{
	size_t i;

	for (i = 0; i < MEM; i++)
		e->mem[i] = (uint8_t)((i * 2654435761u + seed) >> 13);
}

/* --- tests ---------------------------------------------------------------------------------------- */

static void transfer(struct end *a, struct end *b)
{
	static const uint32_t sizes[] = { 1, 8, 100, 4095, 4096, 4097, 65536, 1000001 };
	struct rnic_qp *qa = make_qp(a), *qb = make_qp(b);
	struct rnic_sge sge;
	size_t i;

	rnic_join(qa, rnic_qp_num(qb), 4096, a->gid[0], b->gid[0]);
	rnic_join(qb, rnic_qp_num(qa), 4096, b->gid[0], a->gid[0]);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		fill(a, (unsigned)i);
		assert_int_equal(post(a, qa, b, RNIC_WR_WRITE, 0, sizes[i], 2 << 20, i), 0);
		wait_for(a, b, i);
		assert_memory_equal(b->mem + (2 << 20), a->mem, sizes[i]);
		assert_int_equal(post(a, qa, b, RNIC_WR_READ, 1 << 20, sizes[i], 2 << 20, i), 0);
		wait_for(a, b, i);
		assert_memory_equal(a->mem + (1 << 20), a->mem, sizes[i]);
		sge = (struct rnic_sge){ (uintptr_t)b->mem + (3 << 20), 1 << 20,
					 rnic_mr_lkey(b->mr) };
		assert_int_equal(rnic_post_recv(qb, 77, &sge, 1), 0);
		assert_int_equal(post(a, qa, b, RNIC_WR_SEND, 0, sizes[i], 0, a == b ? 77 : i), 0);
		wait_for(a, b, a == b ? 77 : i);
		wait_for(b, a, 77);
		assert_memory_equal(b->mem + (3 << 20), a->mem, sizes[i]);
	}
	rnic_qp_destroy(qa);
	rnic_qp_destroy(qb);
}

static void everything_arrives(const uint8_t ga[16], const uint8_t gb[16], bool no_segments)
{
	struct rnic_udp_config cfg = { .no_segments = no_segments };
	struct end a, b;

	end_open_or_skip(&a, ga, &cfg);
	end_open_or_skip(&b, gb, &cfg);
	transfer(&a, &b);
	assert_int_equal(rnic_udp_stats(a.wire)->rx_bad_icrc, 0);
	assert_int_equal(rnic_udp_stats(b.wire)->rx_bad_icrc, 0);
	assert_int_equal(rnic_udp_stats(b.wire)->tx_dropped, 0);
	/* Every ICRC was checked: the IP IDs are what the wire says that they are. */
	assert_int_equal(rnic_udp_stats(b.wire)->rx_any_id, 0);
	if (!no_segments)
		assert_true(rnic_udp_stats(a.wire)->tx_sends * 2 <
			    rnic_udp_stats(a.wire)->tx_packets);
	else
		assert_int_equal(rnic_udp_stats(a.wire)->tx_sends,
				 rnic_udp_stats(a.wire)->tx_packets);
	end_close(&a);
	end_close(&b);
}

static void everything_arrives_in_segments(void **state)
{
	(void)state;
	everything_arrives(addr_a, addr_b, false);
}

static void everything_arrives_one_by_one(void **state)
{
	(void)state;
	everything_arrives(addr_a, addr_b, true);
}

/* Receives until that many packets have come. */
static void take_in(struct end *e, uint64_t packets)
{
	uint64_t end = sys.now_ns() + UINT64_C(5000000000);

	while (rnic_udp_stats(e->wire)->rx_packets < packets) {
		assert_true(sys.now_ns() < end);
		assert_true(rnic_udp_poll(e->wire, sys.now_ns(), 1) >= 0);
	}
}

/* A message is answered before it is acknowledged: both go out in one system call, and each way is one. */
static void an_answer_takes_the_acknowledgement_along(void **state)
{
	struct end a, b;
	struct rnic_qp *qa, *qb;
	const struct rnic_udp_stats *s;
	struct rnic_wc wc;

	(void)state;
	end_open_or_skip(&a, addr_a, NULL);
	end_open_or_skip(&b, addr_b, NULL);
	qa = make_qp(&a);
	qb = make_qp(&b);
	rnic_join(qa, rnic_qp_num(qb), 4096, a.gid[0], b.gid[0]);
	rnic_join(qb, rnic_qp_num(qa), 4096, b.gid[0], a.gid[0]);
	s = rnic_udp_stats(b.wire);
	assert_int_equal(post(&a, qa, &b, RNIC_WR_WRITE, 0, 64, 0, 1), 0);
	rnic_step(a.r, sys.now_ns(), 256);
	take_in(&b, 1);
	assert_int_equal(post(&b, qb, &a, RNIC_WR_WRITE, 0, 64, 0, 2), 0);
	rnic_step(b.r, sys.now_ns(), 256);
	assert_int_equal(s->tx_packets, 2);
	assert_int_equal(s->tx_sends, 1);
	take_in(&a, 2);
	assert_int_equal(rnic_udp_stats(a.wire)->rx_receives, 1);
	assert_int_equal(rnic_cq_poll(a.cq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, 1);
	wait_for(&b, &a, 2);
	rnic_qp_destroy(qa);
	rnic_qp_destroy(qb);
	end_close(&a);
	end_close(&b);
}

static void a_device_talks_to_itself_on_ipv6(void **state)
{
	struct end a;

	(void)state;
	end_open_or_skip(&a, addr_v6, NULL);
	transfer(&a, &a);
	assert_int_equal(rnic_udp_stats(a.wire)->rx_any_id, 0);
	assert_int_equal(rnic_udp_stats(a.wire)->rx_bad_icrc, 0);
	end_close(&a);
}

static void a_port_that_is_taken_is_a_named_error(void **state)
{
	struct rnic_udp_config cfg = { 0 };
	struct rnic_wire *second = NULL;
	struct end a;

	(void)state;
	end_open_or_skip(&a, addr_a, NULL);
	memcpy(cfg.gid, addr_a, 16);
	log_set_level(LOG_ERROR);
	assert_int_equal(rnic_udp_create(&cfg, &second), -EADDRINUSE);
	assert_null(second);
	assert_non_null(strstr(log_last(), "rdma_rxe"));
	end_close(&a);
}

static void an_address_of_another_machine_is_refused(void **state)
{
	struct rnic_udp_config cfg = { .gid = { [10] = 0xff, [11] = 0xff, 192, 0, 2, 1 } };
	struct rnic_wire *w;

	(void)state;
	assert_int_equal(rnic_udp_create(&cfg, &w), -EADDRNOTAVAIL);
}

/* A stranger's packets from the address of `a`, each a WRITE of one byte to the start of b's memory. */
struct forger {
	struct end *b;
	struct wire_roce p;
	struct sockaddr_in from, to;
	int fd;
};

static void forger_open(struct forger *f, struct end *b, struct rnic_qp *qb, const uint8_t from[16])
{
	socklen_t n = sizeof(f->from);

	*f = (struct forger){ .b = b,
			      .p = { .bth = { .opcode = WIRE_RC | WIRE_WRITE_ONLY,
					      .pad = 3,
					      .pkey = 0xffff,
					      .dqpn = rnic_qp_num(qb) },
				     .reth = { (uintptr_t)b->mem, rnic_mr_rkey(b->mr), 1 },
				     .payload_len = 1 },
			      .from = { .sin_family = AF_INET },
			      .to = { .sin_family = AF_INET, .sin_port = htons(WIRE_ROCE_PORT) } };
	memcpy(&f->from.sin_addr, from + 12, 4);
	memcpy(&f->to.sin_addr, b->gid[0] + 12, 4);
	f->fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(bind(f->fd, (struct sockaddr *)&f->from, n), 0);
	assert_int_equal(getsockname(f->fd, (struct sockaddr *)&f->from, &n), 0);
}

/* Sends `byte` with the ICRC that the IP ID would give, spoilt by `wrong`. Whether it was placed; else it was counted as bad. */
static bool forge(struct forger *f, uint32_t psn, uint8_t byte, uint16_t id, uint32_t wrong)
{
	struct wire_ip ip = { .id = id, .dont_frag = true };
	struct wire_udp udp = { .sport = ntohs(f->from.sin_port), .dport = WIRE_ROCE_PORT };
	const struct rnic_udp_stats *stats = rnic_udp_stats(f->b->wire);
	uint64_t bad = stats->rx_bad_icrc, until = sys.now_ns() + UINT64_C(5000000000);
	uint8_t buf[64];
	int n;

	f->b->mem[0] = 0;
	f->p.bth.psn = psn;
	f->p.payload = &byte;
	n = wire_roce_encode(&f->p, buf, sizeof(buf));
	wire_gid_from_v4(ip.src, (const uint8_t *)&f->from.sin_addr);
	memcpy(ip.dst, f->b->gid[0], 16);
	wire_put_le32(buf + n - 4, wire_icrc(&ip, &udp, buf, (size_t)n - 4) ^ wrong);
	assert_int_equal(sendto(f->fd, buf, (size_t)n, 0, (struct sockaddr *)&f->to, sizeof(f->to)),
			 n);
	while (!f->b->mem[0] && stats->rx_bad_icrc == bad) {
		assert_true(sys.now_ns() < until);
		drive(f->b);
	}
	assert_true(!f->b->mem[0] || f->b->mem[0] == byte);
	return f->b->mem[0] == byte;
}

/*
 * Before anything is known of a peer its packets may have any ID, but not a wrong ICRC. When they were as ours are, they
 * must be so: from the start of a send or from its middle, where a network has parted what was sent together.
 */
static void icrcs_are_enforced_though_the_id_is_not_seen(void **state)
{
	struct rnic_qp *qa, *qb;
	struct forger f;
	struct end a, b;
	int i;

	(void)state;
	end_open_or_skip(&a, addr_a, NULL);
	end_open_or_skip(&b, addr_b, NULL);
	qa = make_qp(&a);
	qb = make_qp(&b);
	rnic_join(qa, rnic_qp_num(qb), 4096, a.gid[0], addr_b);
	rnic_join(qb, rnic_qp_num(qa), 4096, b.gid[0], addr_a);
	forger_open(&f, &b, qb, addr_a);
	assert_true(forge(&f, 7, 0x42, 51234, 0));
	assert_int_equal(rnic_udp_stats(b.wire)->rx_any_id, 1);
	assert_false(forge(&f, 8, 0x43, 0, 0x12345678));

	/* The real peer sends; its PSN 7 counts as seen. */
	for (i = 0; i < 40; i++) {
		assert_int_equal(post(&a, qa, &b, RNIC_WR_WRITE, 100, 1, 0, (uint64_t)i), 0);
		wait_for(&a, &b, (uint64_t)i);
	}
	assert_int_equal(rnic_udp_stats(b.wire)->rx_bad_icrc, 1);
	assert_int_equal(b.mem[0], 0);
	assert_false(forge(&f, 7 + 40, 0x44, 51234, 0));
	assert_false(forge(&f, 7 + 40, 0x45, 3, 1));
	assert_false(forge(&f, 7 + 40, 0x46, 3, 0x80000000));
	assert_true(forge(&f, 7 + 40, 0x47, 37, 0));
	assert_int_equal(rnic_udp_stats(b.wire)->rx_any_id, 1);
	/* Another machine has taken the address over. */
	for (i = 0; !forge(&f, 7 + 41, 0x48, (uint16_t)(51234 + i), 0); i++)
		assert_true(i < 70);
	assert_true(i > 50);
	assert_true(forge(&f, 7 + 42, 0x49, 50000, 0));
	close(f.fd);
	rnic_qp_destroy(qa);
	rnic_qp_destroy(qb);
	end_close(&a);
	end_close(&b);
}

/* Linux counts its packets: its IDs come past 0 without being as ours are. */
static void ids_that_count_up_and_wrap_are_no_rule(void **state)
{
	struct rnic_qp *qa, *qb;
	struct forger f;
	struct end a, b;
	unsigned i;

	(void)state;
	end_open_or_skip(&a, addr_a, NULL);
	end_open_or_skip(&b, addr_b, NULL);
	qa = make_qp(&a);
	qb = make_qp(&b);
	rnic_join(qb, rnic_qp_num(qa), 4096, b.gid[0], addr_a);
	forger_open(&f, &b, qb, addr_a);
	for (i = 0; i < 300; i++)
		assert_true(forge(&f, 7 + i, 0x42, (uint16_t)(65536 - 20 + i), 0));
	close(f.fd);
	rnic_qp_destroy(qa);
	rnic_qp_destroy(qb);
	end_close(&a);
	end_close(&b);
}

/* --- the n-th system call fails --------------------------------------------------------------------- */

static int calls, fail_at, open_fds;

static bool fails(void)
{
	return ++calls == fail_at;
}

static int failing_socket(int domain, int type, int protocol)
{
	int fd = fails() ? -EMFILE : sys_real.socket(domain, type, protocol);

	open_fds += fd >= 0;
	return fd;
}

static int failing_bind(int fd, const struct sockaddr *a, socklen_t n)
{
	return fails() ? -EACCES : sys_real.bind(fd, a, n);
}

static void *failing_alloc(size_t n)
{
	return fails() ? NULL : sys_real.alloc(n);
}

static int counting_close(int fd)
{
	open_fds--;
	return sys_real.close(fd);
}

static void a_call_that_fails_leaves_nothing_behind(void **state)
{
	struct rnic_udp_config cfg = { .ports = 3 };
	struct rnic_wire *w;
	int rc = -1;

	(void)state;
	memcpy(cfg.gid, addr_a, 16);
	sys.socket = failing_socket;
	sys.bind = failing_bind;
	sys.alloc = failing_alloc;
	sys.close = counting_close;
	for (fail_at = 1; rc; fail_at++) {
		calls = 0;
		rc = rnic_udp_create(&cfg, &w);
		if (rc == 0)
			rnic_udp_destroy(w);
		else
			assert_true(rc == -EMFILE || rc == -EACCES || rc == -ENOMEM);
		assert_int_equal(open_fds, 0);
		if (rc == -EADDRINUSE)
			break;
	}
	assert_true(fail_at >= 9);
	sys = sys_real;
}

/* --- measurement ------------------------------------------------------------------------------------ */

struct hello {
	uint64_t va;
	uint32_t rkey, qpn;
};

/* Serves: drives its device until the pipe is closed. */
static void bench_server(int in, int out)
{
	struct hello mine, theirs;
	struct rnic_qp *qp;
	struct end e;
	char byte;

	assert_int_equal(end_open(&e, addr_b, NULL), 0);
	qp = make_qp(&e);
	mine = (struct hello){ (uintptr_t)e.mem, rnic_mr_rkey(e.mr), rnic_qp_num(qp) };
	assert_int_equal(write(out, &mine, sizeof(mine)), sizeof(mine));
	assert_int_equal(read(in, &theirs, sizeof(theirs)), sizeof(theirs));
	rnic_join(qp, theirs.qpn, 4096, e.gid[0], addr_a);
	assert_int_equal(write(out, "r", 1), 1);
	fcntl(in, F_SETFL, O_NONBLOCK);
	while (read(in, &byte, 1) != 0) {
		int i;

		for (i = 0; i < 100; i++)
			drive(&e);
	}
	rnic_qp_destroy(qp);
	end_close(&e);
}

static double bench_run(struct end *e, struct rnic_qp *qp, const struct hello *h,
			enum rnic_wr_opcode op, uint32_t len, unsigned count, unsigned depth)
{
	struct rnic_sge sge = { (uintptr_t)e->mem, len, rnic_mr_lkey(e->mr) };
	struct rnic_send_wr wr = { .opcode = op,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .raddr = h->va,
				   .rkey = h->rkey };
	uint64_t start = sys.now_ns();
	unsigned posted = 0, done = 0;
	struct rnic_wc wc[16];
	unsigned n;

	while (done < count) {
		while (posted < count && posted - done < depth &&
		       rnic_post_send(qp, &wr, sys.now_ns()) == 0)
			posted++;
		drive(e);
		while ((n = rnic_cq_poll(e->cq, wc, 16)) != 0) {
			assert_int_equal(wc[0].status, RNIC_WC_SUCCESS);
			done += n;
		}
	}
	return (double)(sys.now_ns() - start) * 1e-9;
}

static void bench_client(int in, int out, unsigned rounds)
{
	struct hello mine, theirs;
	struct rnic_qp *qp;
	unsigned round;
	struct end e;
	double t;
	char c;

	assert_int_equal(end_open(&e, addr_a, NULL), 0);
	qp = make_qp(&e);
	mine = (struct hello){ 0, 0, rnic_qp_num(qp) };
	assert_int_equal(read(in, &theirs, sizeof(theirs)), sizeof(theirs));
	rnic_join(qp, theirs.qpn, 4096, e.gid[0], addr_b);
	assert_int_equal(write(out, &mine, sizeof(mine)), sizeof(mine));
	assert_int_equal(read(in, &c, 1), 1);
	for (round = 0; round < rounds; round++) {
		t = bench_run(&e, qp, &theirs, RNIC_WR_WRITE, 65536, 10000, 32);
		printf("WRITE 64 KiB: %.2f GB/s\n", 10000 * 65536.0 / t * 1e-9);
		t = bench_run(&e, qp, &theirs, RNIC_WR_READ, 65536, 5000, 32);
		printf("READ 64 KiB: %.2f GB/s\n", 5000 * 65536.0 / t * 1e-9);
		t = bench_run(&e, qp, &theirs, RNIC_WR_WRITE, 64, 500000, 200);
		printf("WRITE 64 B: %.2f million/s\n", 500000 / t * 1e-6);
		t = bench_run(&e, qp, &theirs, RNIC_WR_WRITE, 64, 20000, 1);
		printf("WRITE 64 B and its ACK, one at a time: %.2f us\n", t / 20000 * 1e6);
		printf("  %llu retransmits, %llu time-outs\n",
		       (unsigned long long)rnic_counters(e.r)->retransmits,
		       (unsigned long long)rnic_counters(e.r)->timeouts);
	}
	rnic_qp_destroy(qp);
	end_close(&e);
}

static int bench(unsigned rounds)
{
	int down[2], up[2], status = 1;
	pid_t pid;

	if (pipe(down) || pipe(up))
		return 1;
	pid = fork();
	if (pid == 0) {
		close(down[1]);
		bench_server(down[0], up[1]);
		_exit(0);
	}
	bench_client(up[0], down[1], rounds);
	close(down[1]);
	waitpid(pid, &status, 0);
	return status;
}

/*
 * What the ends cost, driven by one thread: its CPU time, so that it does not matter what else the machine does. Over the
 * loopback interface the kernel's part of receiving is the sender's up to the socket.
 */
struct cost {
	double sender, receiver; /* nanoseconds */
};

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct cost cost(struct end *a, struct end *b, struct rnic_qp *qp, enum rnic_wr_opcode op,
			uint32_t len, unsigned count, unsigned depth)
{
	unsigned posted = 0, done = 0, n;
	uint64_t t0 = cpu_ns(), t1, sender = 0, receiver = 0;
	struct rnic_wc wc[16];

	while (done < count) {
		while (posted < count && posted - done < depth &&
		       post(a, qp, b, op, 0, len, 1 << 20, posted) == 0)
			posted++;
		drive(a);
		while ((n = rnic_cq_poll(a->cq, wc, 16)) != 0) {
			assert_int_equal(wc[0].status, RNIC_WC_SUCCESS);
			done += n;
		}
		t1 = cpu_ns();
		sender += t1 - t0;
		drive(b);
		t0 = cpu_ns();
		receiver += t0 - t1;
	}
	return (struct cost){ (double)sender / count, (double)receiver / count };
}

static int costs(const char *only)
{
	static const struct {
		const char *name;
		enum rnic_wr_opcode op;
		uint32_t len;
		unsigned count, depth;
	} rows[] = { { "write", RNIC_WR_WRITE, 65536, 20000, 32 },
		     { "read", RNIC_WR_READ, 65536, 10000, 32 },
		     { "batch", RNIC_WR_WRITE, 64, 1000000, 200 },
		     { "alone", RNIC_WR_WRITE, 64, 50000, 1 } };
	struct rnic_qp *qa, *qb;
	struct end a, b;
	size_t i;

	assert_int_equal(end_open(&a, addr_a, NULL), 0);
	assert_int_equal(end_open(&b, addr_b, NULL), 0);
	qa = make_qp(&a);
	qb = make_qp(&b);
	rnic_join(qa, rnic_qp_num(qb), 4096, a.gid[0], addr_b);
	rnic_join(qb, rnic_qp_num(qa), 4096, b.gid[0], addr_a);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct cost c;

		if (only && strcmp(only, rows[i].name) != 0)
			continue;
		c = cost(&a, &b, qa, rows[i].op, rows[i].len, rows[i].count, rows[i].depth);
		printf("%s, %u bytes: asking end %.0f ns, other end %.0f ns\n", rows[i].name,
		       rows[i].len, c.sender, c.receiver);
	}
	rnic_qp_destroy(qa);
	rnic_qp_destroy(qb);
	end_close(&a);
	end_close(&b);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_arrives_in_segments),
		cmocka_unit_test(everything_arrives_one_by_one),
		cmocka_unit_test(an_answer_takes_the_acknowledgement_along),
		cmocka_unit_test(a_device_talks_to_itself_on_ipv6),
		cmocka_unit_test(a_port_that_is_taken_is_a_named_error),
		cmocka_unit_test(an_address_of_another_machine_is_refused),
		cmocka_unit_test(icrcs_are_enforced_though_the_id_is_not_seen),
		cmocka_unit_test(ids_that_count_up_and_wrap_are_no_rule),
		cmocka_unit_test(a_call_that_fails_leaves_nothing_behind),
	};

	if (argc > 1 && strcmp(argv[1], "bench") == 0)
		return bench(argc > 2 ? (unsigned)atoi(argv[2]) : 3);
	if (argc > 1 && strcmp(argv[1], "costs") == 0)
		return costs(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
