/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packet captures: a device that talks to itself, over UDP sockets (IPv4 and IPv6) and in memory, writes what it sends and
 * receives. Our decoders must find each packet right, checksums and ICRC included, and so must tshark where it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/sys.h"
#include "rnic/pcap.h"
#include "rnic/rnic.h"
#include "rnic/wire.h"
#include "rnic/wire_mem.h"
#include "rnic/wire_udp.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/pcap.h"
#include "wire/roce.h"
#include "rnic_join.h"

enum { MEM = 1 << 20, EPOCH = 1700000000 };

static const uint8_t v4[1][16] = { { [10] = 0xff, [11] = 0xff, 127, 0, 0, 4 } };
static const uint8_t v6[1][16] = { { [15] = 1 } };

struct loop {
	char path[64];
	struct rnic_pcap *pcap;
	struct rnic_mem_net *net; /* NULL: UDP */
	struct rnic_wire *wire;
	struct rnic *r;
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_mr *mr;
	struct rnic_qp *qp[2];
	uint8_t *mem;
};

static void open_wire(struct loop *l, bool memory, const uint8_t gid[16])
{
	struct rnic_udp_config udp = { 0 };
	struct rnic_mem_config mem = { .seed = 1 };
	int rc;

	if (memory) {
		assert_int_equal(rnic_mem_create(&mem, &l->net), 0);
		l->wire = rnic_mem_port(l->net);
		return;
	}
	memcpy(udp.gid, gid, 16);
	rc = rnic_udp_create(&udp, &l->wire);
	if (rc == -EADDRINUSE || rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT)
		skip();
	assert_int_equal(rc, 0);
}

static void loop_open(struct loop *l, bool memory, const uint8_t gid[1][16], uint64_t max_bytes)
{
	struct rnic_pcap_config pcap = { .path = l->path,
					 .max_bytes = max_bytes,
					 .epoch_ns = EPOCH * UINT64_C(1000000000) - sys.now_ns() };
	struct rnic_config cfg = { .gids = gid, .ngids = 1, .max_mr = 16 };
	struct rnic_qp_init in = { .type = RNIC_QP_RC,
				   .max_send_wr = 16,
				   .max_recv_wr = 16,
				   .max_send_sge = 1,
				   .max_recv_sge = 1 };
	const struct rnic_qp_attr never = { .timeout = 0 };
	int i;

	memset(l, 0, sizeof(*l));
	snprintf(l->path, sizeof(l->path), "/tmp/gpunet-pcap-%d", (int)getpid());
	open_wire(l, memory, gid[0]);
	assert_int_equal(rnic_pcap_open(&pcap, &l->pcap), 0);
	l->wire->pcap = l->pcap;
	assert_int_equal(rnic_open(&l->r, &cfg, l->wire), 0);
	if (memory)
		rnic_mem_attach(l->net, l->wire, gid[0], l->r);
	else
		rnic_udp_attach(l->wire, l->r);
	l->mem = calloc(1, MEM);
	assert_int_equal(rnic_pd_create(l->r, &l->pd), 0);
	assert_int_equal(rnic_cq_create(l->r, 64, &l->cq), 0);
	assert_int_equal(
		rnic_mr_create(l->pd, l->mem, MEM, (uintptr_t)l->mem, RNIC_ACCESS_ALL, &l->mr), 0);
	in.send_cq = in.recv_cq = l->cq;
	for (i = 0; i < 2; i++)
		assert_int_equal(rnic_qp_create(l->pd, &in, &l->qp[i]), 0);
	rnic_join(l->qp[0], rnic_qp_num(l->qp[1]), 1024, gid[0], gid[0]);
	rnic_join(l->qp[1], rnic_qp_num(l->qp[0]), 1024, gid[0], gid[0]);
	/* Packets are counted: none is sent again because this thread was stopped for a while. */
	for (i = 0; i < 2; i++)
		assert_int_equal(rnic_qp_modify(l->qp[i], &never, RNIC_ATTR_TIMEOUT, sys.now_ns()),
				 0);
}

/* One operation from the first queue pair to the second, until it is complete. */
static void operate(struct loop *l, enum rnic_wr_opcode op, uint32_t len)
{
	struct rnic_sge sge = { (uintptr_t)l->mem, len, rnic_mr_lkey(l->mr) };
	struct rnic_send_wr wr = { .opcode = op,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .raddr = (uintptr_t)l->mem + MEM / 2,
				   .rkey = rnic_mr_rkey(l->mr) };
	uint64_t now = sys.now_ns(), end = now + UINT64_C(5000000000);
	struct rnic_wc wc;

	assert_int_equal(rnic_post_send(l->qp[0], &wr, now), 0);
	while (rnic_cq_poll(l->cq, &wc, 1) == 0) {
		now = sys.now_ns();
		assert_true(now < end);
		if (l->net)
			rnic_mem_step(l->net, now);
		else
			assert_true(rnic_udp_poll(l->wire, now, 64) >= 0);
		rnic_step(l->r, now, 64);
	}
	assert_int_equal(wc.status, RNIC_WC_SUCCESS);
}

/* Packets sent and received. */
static uint64_t loop_close(struct loop *l)
{
	uint64_t n = rnic_counters(l->r)->tx_packets + rnic_counters(l->r)->rx_packets;

	rnic_qp_destroy(l->qp[0]);
	rnic_qp_destroy(l->qp[1]);
	rnic_mr_destroy(l->mr);
	free(l->mem);
	assert_int_equal(rnic_cq_destroy(l->cq), 0);
	assert_int_equal(rnic_pd_destroy(l->pd), 0);
	assert_int_equal(rnic_close(l->r), 0);
	if (l->net)
		rnic_mem_destroy(l->net);
	else
		rnic_udp_destroy(l->wire);
	rnic_pcap_close(l->pcap);
	return n;
}

static uint8_t file[4 << 20];

static void open_file(struct wire_pcap_reader *r, const char *path)
{
	FILE *f = fopen(path, "rb");
	size_t n;

	assert_non_null(f);
	n = fread(file, 1, sizeof(file), f);
	fclose(f);
	assert_int_equal(wire_pcap_open(r, file, n), 0);
}

/* Every packet is whole and right. Their number; opcodes are counted. */
static uint64_t read_back(const char *path, unsigned opcodes[256])
{
	struct wire_pcap_reader r;
	struct wire_frame f;
	struct wire_roce p;
	const uint8_t *frame, *bth;
	uint64_t count = 0;
	int64_t n;

	open_file(&r, path);
	while ((n = wire_pcap_next(&r, &frame)) >= 0) {
		assert_int_equal(wire_frame_decode(&f, frame, (size_t)n), 0);
		assert_int_equal(f.hdr_len + f.payload_len, n);
		assert_int_equal(f.udp.dport, WIRE_ROCE_PORT);
		assert_int_equal(f.udp.csum, wire_udp_csum(&f, frame));
		assert_int_equal(f.eth_src[0], 2);
		bth = frame + f.hdr_len;
		assert_int_equal(wire_roce_decode(&p, bth, f.payload_len), 0);
		assert_int_equal(wire_icrc(&f.ip, &f.udp, bth, f.payload_len - WIRE_ICRC_LEN),
				 wire_get_le32(bth + f.payload_len - WIRE_ICRC_LEN));
		assert_in_range(r.stamp_ns / 1000000000, EPOCH, EPOCH + 60);
		opcodes[p.bth.opcode]++;
		count++;
	}
	assert_int_equal(n, -ENODATA);
	return count;
}

/* tshark finds as many packets of each operation, and nothing wrong in them. */
static void ask_tshark(const char *path, const unsigned opcodes[256])
{
	unsigned theirs[256] = { 0 };
	char command[512], line[256];
	FILE *p;

	if (system("command -v tshark >/dev/null 2>&1") != 0)
		return;
	/* With CRCs of Ethernet off: a capture has none. */
	snprintf(command, sizeof(command),
		 "timeout 60 tshark -n --disable-protocol rpcordma -o udp.check_checksum:TRUE "
		 "-o ip.check_checksum:TRUE -r %s -T fields -e infiniband.bth.opcode "
		 "-e _ws.malformed -e udp.checksum.status -e ip.checksum.status 2>/dev/null",
		 path);
	p = popen(command, "r");
	assert_non_null(p);
	while (fgets(line, sizeof(line), p)) {
		char *end;
		unsigned long op = strtoul(line, &end, 10);

		assert_true(end != line && op < 256);
		assert_string_equal(end, "\t\t1\t1\n"); /* not malformed; both good */
		theirs[op]++;
	}
	assert_int_equal(pclose(p), 0);
	assert_memory_equal(theirs, opcodes, sizeof(theirs));
}

static void captured(bool memory, const uint8_t gid[1][16], bool tshark)
{
	unsigned opcodes[256] = { 0 };
	struct loop l;
	uint64_t n;

	loop_open(&l, memory, gid, 0);
	operate(&l, RNIC_WR_WRITE, 10001);
	operate(&l, RNIC_WR_READ, 5000);
	operate(&l, RNIC_WR_FETCH_ADD, 8);
	assert_int_equal(rnic_pcap_left_out(l.pcap), 0);
	n = loop_close(&l);
	assert_int_equal(read_back(l.path, opcodes), n);
	/* Each was sent and received. */
	assert_int_equal(opcodes[WIRE_RC | WIRE_WRITE_FIRST], 2);
	assert_int_equal(opcodes[WIRE_RC | WIRE_WRITE_MIDDLE], 2 * 8);
	assert_int_equal(opcodes[WIRE_RC | WIRE_READ_RESP_MIDDLE], 2 * 3);
	assert_int_equal(opcodes[WIRE_RC | WIRE_FETCH_ADD], 2);
	assert_int_equal(opcodes[WIRE_RC | WIRE_ATOMIC_ACK], 2);
	if (tshark)
		ask_tshark(l.path, opcodes);
	unlink(l.path);
}

static void udp_sockets_on_ipv4(void **state)
{
	(void)state;
	captured(false, v4, true);
}

static void udp_sockets_on_ipv6(void **state)
{
	(void)state;
	captured(false, v6, false);
}

static void a_network_in_memory(void **state)
{
	(void)state;
	captured(true, v4, false);
}

static void a_capture_has_a_bound(void **state)
{
	unsigned opcodes[256] = { 0 };
	struct loop l;
	uint64_t n, left_out;
	FILE *f;

	(void)state;
	loop_open(&l, true, v4, 20000);
	operate(&l, RNIC_WR_WRITE, 200000);
	left_out = rnic_pcap_left_out(l.pcap);
	n = loop_close(&l);
	assert_true(left_out > 100);
	assert_int_equal(read_back(l.path, opcodes), n - left_out);
	f = fopen(l.path, "rb");
	assert_non_null(f);
	fseek(f, 0, SEEK_END);
	assert_in_range(ftell(f), 18000, 20000);
	fclose(f);
	unlink(l.path);
}

static ssize_t full_disk(int fd, const void *buf, size_t n)
{
	(void)fd;
	(void)buf;
	(void)n;
	return -ENOSPC;
}

static void a_full_disk_ends_the_capture_and_nothing_else(void **state)
{
	struct loop l;

	(void)state;
	loop_open(&l, true, v4, 0);
	sys.write = full_disk;
	operate(&l, RNIC_WR_WRITE, 5000);
	operate(&l, RNIC_WR_WRITE, 5000);
	assert_true(rnic_pcap_left_out(l.pcap) > 0);
	sys.write = sys_real.write;
	loop_close(&l);
	unlink(l.path);
}

static void a_path_that_cannot_be_written_is_an_error(void **state)
{
	struct rnic_pcap_config cfg = { .path = "/nonexistent/file" };
	struct rnic_pcap *p = NULL;

	(void)state;
	assert_int_equal(rnic_pcap_open(&cfg, &p), -ENOENT);
	assert_null(p);
	assert_non_null(strstr(log_last(), "/nonexistent/file"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(udp_sockets_on_ipv4),
		cmocka_unit_test(udp_sockets_on_ipv6),
		cmocka_unit_test(a_network_in_memory),
		cmocka_unit_test(a_capture_has_a_bound),
		cmocka_unit_test(a_full_disk_ends_the_capture_and_nothing_else),
		cmocka_unit_test(a_path_that_cannot_be_written_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
