/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Raw frames, in a network namespace of the test's own (skipped where it cannot have one): a packet socket against another one
 * and against UDP sockets over a pair of veth interfaces, and a TAP interface against UDP sockets of the kernel behind it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/sys.h"
#include "rnic/rnic.h"
#include "rnic/wire_raw.h"
#include "rnic/wire_udp.h"
#include "wire/arp.h"
#include "wire/bytes.h"
#include "wire/icmp.h"
#include "wire/icrc.h"
#include "wire/roce.h"
#include "rnic_join.h"

enum { MEM = 1 << 20 };

struct end {
	uint8_t gid[1][16];
	struct rnic_wire *wire;
	bool udp;
	struct rnic *r;
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_mr *mr;
	struct rnic_qp *qp;
	uint8_t *mem;
};

static bool have_namespace;
static bool six; /* addresses are IPv6's: fd77:NET::HOST */

static void shell(const char *command)
{
	assert_int_equal(system(command), 0);
}

static void enter_namespace(void)
{
	int flags = CLONE_NEWNET | (geteuid() ? CLONE_NEWUSER : 0);

	have_namespace = unshare(flags) == 0 && access("/dev/net/tun", R_OK | W_OK) == 0 &&
			 system("ip link set lo up && ip link add va type veth peer name vb && "
				"ip link set va up && ip link set vb up && "
				"ip addr add 10.77.0.2/24 dev vb && "
				"ip addr add fd77:4d::2/64 dev vb nodad") == 0;
}

static void end_open(struct end *e, unsigned net, unsigned host, const char *raw, bool tap)
{
	struct rnic_raw_config c = { .ifname = raw, .tap = tap, .prefix = six ? 64 : 24 };
	struct rnic_udp_config u = { .ports = 2 };
	struct rnic_config cfg = { .gids = (const uint8_t(*)[16])e->gid, .ngids = 1, .max_mr = 16 };
	struct rnic_qp_init in = { .type = RNIC_QP_RC,
				   .max_send_wr = 64,
				   .max_recv_wr = 64,
				   .max_send_sge = 1,
				   .max_recv_sge = 1 };

	memset(e, 0, sizeof(*e));
	wire_gid_from_v4(e->gid[0], (const uint8_t[]){ 10, (uint8_t)net, 0, (uint8_t)host });
	if (six)
		memcpy(e->gid[0],
		       (const uint8_t[16]){ 0xfd, 0x77, 0, (uint8_t)net, [15] = (uint8_t)host },
		       16);
	memcpy(c.gid, e->gid[0], 16);
	memcpy(u.gid, e->gid[0], 16);
	e->udp = !raw;
	assert_int_equal(raw ? rnic_raw_create(&c, &e->wire) : rnic_udp_create(&u, &e->wire), 0);
	assert_int_equal(rnic_open(&e->r, &cfg, e->wire), 0);
	if (raw)
		rnic_raw_attach(e->wire, e->r);
	else
		rnic_udp_attach(e->wire, e->r);
	assert_int_equal(rnic_pd_create(e->r, &e->pd), 0);
	assert_int_equal(rnic_cq_create(e->r, 256, &e->cq), 0);
	e->mem = calloc(1, MEM);
	assert_int_equal(
		rnic_mr_create(e->pd, e->mem, MEM, (uintptr_t)e->mem, RNIC_ACCESS_ALL, &e->mr), 0);
	in.send_cq = in.recv_cq = e->cq;
	assert_int_equal(rnic_qp_create(e->pd, &in, &e->qp), 0);
}

static void end_close(struct end *e)
{
	rnic_qp_destroy(e->qp);
	rnic_mr_destroy(e->mr);
	free(e->mem);
	assert_int_equal(rnic_cq_destroy(e->cq), 0);
	assert_int_equal(rnic_pd_destroy(e->pd), 0);
	assert_int_equal(rnic_close(e->r), 0);
	if (e->udp)
		rnic_udp_destroy(e->wire);
	else
		rnic_raw_destroy(e->wire);
}

static void drive(struct end *e)
{
	uint64_t now = sys.now_ns();

	assert_true((e->udp ? rnic_udp_poll(e->wire, now, 64) : rnic_raw_poll(e->wire, now, 64)) >=
		    0);
	rnic_step(e->r, now, 64);
}

static void operate(struct end *a, struct end *b, enum rnic_wr_opcode op, uint32_t len, size_t off)
{
	struct rnic_sge sge = { (uintptr_t)a->mem + off, len, rnic_mr_lkey(a->mr) };
	struct rnic_send_wr wr = { .wr_id = len,
				   .opcode = op,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .raddr = (uintptr_t)b->mem,
				   .rkey = rnic_mr_rkey(b->mr) };
	uint64_t end = sys.now_ns() + UINT64_C(10000000000);
	struct rnic_wc wc;

	assert_int_equal(rnic_post_send(a->qp, &wr, sys.now_ns()), 0);
	while (rnic_cq_poll(a->cq, &wc, 1) == 0) {
		assert_true(sys.now_ns() < end);
		drive(a);
		drive(b);
	}
	assert_int_equal(wc.status, RNIC_WC_SUCCESS);
}

static void transfer(struct end *a, struct end *b)
{
	static const uint32_t sizes[] = { 1, 64, 1023, 1024, 1025, 65536, 200001 };
	size_t i, k;

	rnic_join(a->qp, rnic_qp_num(b->qp), 1024, a->gid[0], b->gid[0]);
	rnic_join(b->qp, rnic_qp_num(a->qp), 1024, b->gid[0], a->gid[0]);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (k = 0; k < sizes[i]; k++)
			a->mem[k] = (uint8_t)((k * 2654435761u + i) >> 13);
		operate(a, b, RNIC_WR_WRITE, sizes[i], 0);
		assert_memory_equal(a->mem, b->mem, sizes[i]);
		operate(a, b, RNIC_WR_READ, sizes[i], MEM / 2);
		assert_memory_equal(a->mem + MEM / 2, a->mem, sizes[i]);
	}
}

static void check_raw(const struct end *e)
{
	const struct rnic_raw_stats *s = rnic_raw_stats(e->wire);

	assert_int_equal(s->rx_bad_icrc, 0);
	assert_int_equal(s->rx_bad_csum, 0);
	/* While a neighbour is asked for one packet waits. Where that takes so long that it is sent again, both are not needed. */
	assert_true(s->tx_dropped <= rnic_counters(e->r)->retransmits);
	assert_in_range(s->arp_asked, 1, 2 + rnic_counters(e->r)->timeouts);
	assert_true(s->rx_packets > 200);
}

static void both_ends(void)
{
	struct end a, b;

	end_open(&a, 76, 1, "va", false);
	end_open(&b, 76, 2, "vb", false);
	transfer(&a, &b);
	check_raw(&a);
	check_raw(&b);
	end_close(&a);
	end_close(&b);
}

static void packet_sockets_at_both_ends(void **state)
{
	(void)state;
	if (!have_namespace)
		skip();
	both_ends();
	six = true;
	both_ends();
	six = false;
}

/* What a stranger sends from the kernel's address with an ICRC that is not right is never taken. */
static void send_broken(struct end *raw, const struct end *udp)
{
	struct sockaddr_in6 from = { .sin6_family = AF_INET6 },
			    to = { .sin6_family = AF_INET6, .sin6_port = htons(WIRE_ROCE_PORT) };
	uint64_t end = sys.now_ns() + UINT64_C(5000000000);
	uint8_t buf[32] = { WIRE_RC | WIRE_ACK, 0x40, 0xff, 0xff };
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);

	/* An IPv4 address stands in such a socket as in a GID. */
	memcpy(&from.sin6_addr, udp->gid[0], 16);
	memcpy(&to.sin6_addr, raw->gid[0], 16);
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(sendto(fd, buf, 20, 0, (struct sockaddr *)&to, sizeof(to)), 20);
	while (!rnic_raw_stats(raw->wire)->rx_bad_icrc) {
		assert_true(sys.now_ns() < end);
		drive(raw);
	}
	close(fd);
}

static void against_udp(unsigned net, const char *name, bool tap)
{
	struct end raw, udp;

	end_open(&raw, net, 1, name, tap);
	if (tap)
		shell("ip addr add 10.78.0.2/24 dev gpntap && "
		      "ip addr add fd77:4e::2/64 dev gpntap nodad && ip link set gpntap up");
	end_open(&udp, net, 2, NULL, false);
	transfer(&udp, &raw);
	check_raw(&raw);
	/* The kernel asked for our address first, and we sent as those do whose IDs are known. */
	assert_true(rnic_raw_stats(raw.wire)->arp_answered > 0);
	assert_int_equal(rnic_udp_stats(udp.wire)->rx_any_id, 0);
	assert_int_equal(rnic_udp_stats(udp.wire)->rx_bad_icrc, 0);
	send_broken(&raw, &udp);
	end_close(&raw);
	end_close(&udp);
}

static void a_packet_socket_against_udp_sockets(void **state)
{
	(void)state;
	if (!have_namespace)
		skip();
	against_udp(77, "va", false);
	six = true;
	against_udp(77, "va", false);
	six = false;
}

static void a_tap_against_udp_sockets(void **state)
{
	(void)state;
	if (!have_namespace)
		skip();
	against_udp(78, "gpntap", true);
	six = true;
	against_udp(78, "gpntap", true);
	six = false;
}

static void what_cannot_be_opened_is_a_named_error(void **state)
{
	struct rnic_raw_config c = { .ifname = "nosuch0",
				     .gid = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 } };
	struct rnic_wire *w = NULL;

	(void)state;
	if (!have_namespace)
		skip();
	assert_int_equal(rnic_raw_create(&c, &w), -ENODEV);
	assert_non_null(strstr(log_last(), "nosuch0"));
	c.prefix = 33;
	assert_int_equal(rnic_raw_create(&c, &w), -EINVAL);
	c.prefix = 24;
	c.gateway[0] = 0xfd;
	assert_int_equal(rnic_raw_create(&c, &w), -EINVAL);
	c.gateway[0] = 0;
	memset(c.gid, 0, 16);
	assert_int_equal(rnic_raw_create(&c, &w), -EINVAL);
	wire_gid_from_v4(c.gid, (const uint8_t[]){ 10, 0, 0, 1 });
	c.ifname = "a-name-that-is-too-long";
	assert_int_equal(rnic_raw_create(&c, &w), -EINVAL);
	assert_null(w);
}

static void arp_comes_back_as_it_went(void **state)
{
	struct wire_arp a = { WIRE_ARP_REPLY,  { 1, 2, 3, 4, 5, 6 }, { 7, 8, 9, 10, 11, 12 },
			      { 10, 0, 0, 1 }, { 1, 2, 3, 4, 5, 6 }, { 10, 0, 0, 2 } },
			b;
	uint8_t buf[WIRE_ARP_LEN + 18] = { 0 };
	size_t n;

	(void)state;
	wire_arp_put(buf, &a);
	assert_int_equal(wire_arp_get(&b, buf, sizeof(buf)), 0); /* with the link's padding */
	assert_memory_equal(&a, &b, sizeof(a));
	for (n = 0; n < WIRE_ARP_LEN; n++)
		assert_int_not_equal(wire_arp_get(&b, buf, n), 0);
	buf[17] = 8; /* IPv6's length */
	assert_int_equal(wire_arp_get(&b, buf, sizeof(buf)), -EPROTONOSUPPORT);
}

/* A question as Linux puts it on the wire, and what is wrong with it when a byte is. */
static void neighbour_discovery_comes_back_as_it_went(void **state)
{
	struct wire_nd q = { .has_mac = true,
			     .eth_src = { 2, 0, 0, 0, 0, 1 },
			     .src = { 0xfd, [15] = 1 },
			     .target = { 0xfd, [13] = 7, [14] = 8, [15] = 9 },
			     .mac = { 2, 0, 0, 0, 0, 1 } },
		       b;
	uint8_t buf[WIRE_ND_LEN + 4] = { 0 };
	size_t n, len;

	(void)state;
	wire_nd_group(q.target, q.dst, q.eth_dst);
	assert_memory_equal(q.eth_dst, ((uint8_t[]){ 0x33, 0x33, 0xff, 7, 8, 9 }), 6);
	len = wire_nd_put(buf, &q);
	assert_int_equal(len, WIRE_ND_LEN);
	assert_int_equal(wire_nd_get(&b, buf, sizeof(buf)), 0); /* with the link's padding */
	assert_memory_equal(&q, &b, sizeof(b));
	for (n = 0; n < len; n++)
		assert_int_not_equal(wire_nd_get(&b, buf, n), 0);
	for (n = 22; n < len;
	     n++) { /* the checksum has all of it but the hop limit, which must be 255 */
		buf[n] ^= 1;
		assert_int_not_equal(wire_nd_get(&b, buf, len), 0);
		buf[n] ^= 1;
	}
	buf[21] = 64;
	assert_int_equal(wire_nd_get(&b, buf, len), -EBADMSG);
	q.has_mac = false;
	q.advert = true;
	q.flags = WIRE_ND_SOLICITED; /* to a group: nonsense */
	len = wire_nd_put(buf, &q);
	assert_int_equal(wire_nd_get(&b, buf, len), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arp_comes_back_as_it_went),
		cmocka_unit_test(neighbour_discovery_comes_back_as_it_went),
		cmocka_unit_test(packet_sockets_at_both_ends),
		cmocka_unit_test(a_packet_socket_against_udp_sockets),
		cmocka_unit_test(a_tap_against_udp_sockets),
		cmocka_unit_test(what_cannot_be_opened_is_a_named_error),
	};

	enter_namespace();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
