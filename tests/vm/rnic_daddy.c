/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software RNIC as the other side of udaddy: numbers of datagrams' queue pairs by SIDR, then messages one way, then the other.
 *
 *	rnic_daddy LOCAL [SERVER] [-p PORT] [-C MESSAGES] [-S BYTES]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sys.h"
#include "rnic/cm_gsi.h"
#include "rnic_side.h"
#include "wire/frame.h"

enum { QKEY = 0x01234567, GRH = 40, PEER_AT = 20 + 12, DEPTH = 64, MEM = 1 << 18, STEP = 64 };

struct daddy {
	struct side s;
	struct rnic_gsi *gsi;
	unsigned port, messages, size;
	/* from the CM */
	struct rnic_cm_conn *conn;
	bool asked, told, over;
	uint32_t qpn, qkey; /* of the peer */
};

static int hear(void *ctx, const struct rnic_cm_event *ev)
{
	struct daddy *d = ctx;

	if (ev->type == RNIC_CM_REQUEST) {
		d->conn = ev->conn;
		d->asked = true;
	} else if (ev->type == RNIC_CM_DATAGRAM) {
		d->qpn = ev->peer.qpn;
		d->qkey = ev->peer.qkey;
		d->told = true;
	} else {
		d->over = true;
	}
	return 0;
}

/* Lets the device run until *flag, or a completion. 0 or -1. */
static int until(struct daddy *d, const bool *flag, struct rnic_wc *wc)
{
	struct pollfd fd = { .fd = rnic_udp_fd(d->s.wire), .events = POLLIN };
	uint64_t now = sys.now_ns(), end = now + UINT64_C(30000000000);

	for (; now < end; now = sys.now_ns()) {
		if (rnic_udp_poll(d->s.wire, now, STEP) < 0)
			return side_failed("receiving", 0);
		rnic_gsi_poll(d->gsi, now);
		rnic_cm_step(rnic_gsi_cm(d->gsi), now);
		rnic_step(d->s.rnic, now, STEP);
		if ((flag && *flag) || (wc && rnic_cq_poll(d->s.cq, wc, 1)))
			return 0;
		if (d->over)
			return side_failed("refused, or nobody there", 0);
		poll(&fd, 1, 10);
	}
	return side_failed("nothing came for 30 s", 0);
}

static int make_ready(struct daddy *d)
{
	static const unsigned mask[] = { [RNIC_QPS_INIT] = RNIC_ATTR_STATE | RNIC_ATTR_QKEY,
					 [RNIC_QPS_RTR] = RNIC_ATTR_STATE,
					 [RNIC_QPS_RTS] = RNIC_ATTR_STATE | RNIC_ATTR_SQ_PSN };
	struct rnic_qp_attr a = { .qkey = QKEY, .sq_psn = 1 };
	struct rnic_cm_config cm = { .guid = 0x4711, .event = hear, .ctx = d };
	int state, rc = 0;
	unsigned i;

	for (state = RNIC_QPS_INIT; state <= RNIC_QPS_RTS && !rc; state++) {
		a.state = (enum rnic_qp_state)state;
		rc = rnic_qp_modify(d->s.qp, &a, mask[state], sys.now_ns());
	}
	for (i = 0; i < d->messages && !rc; i++)
		rc = side_receive(&d->s, i, d->s.mem + MEM / 2 + i * (GRH + d->size),
				  GRH + d->size);
	if (!rc)
		rc = rnic_gsi_open(d->s.rnic, &cm, &d->gsi);
	return rc ? side_failed("the queue pair", rc) : 0;
}

static int send_all(struct daddy *d, const struct rnic_path *to)
{
	struct rnic_sge sge = { (uintptr_t)d->s.mem, d->size, rnic_mr_lkey(d->s.mr) };
	struct rnic_send_wr wr = { .opcode = RNIC_WR_SEND_IMM,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .imm = rnic_qp_num(d->s.qp),
				   .path = to,
				   .dest_qpn = d->qpn,
				   .qkey = d->qkey };
	struct rnic_wc wc;
	unsigned i;
	int rc = 0;

	for (i = 0; i < d->messages && !rc; i++) {
		rc = rnic_post_send(d->s.qp, &wr, sys.now_ns());
		if (!rc)
			rc = until(d, NULL, &wc) || wc.status ? -EIO : 0;
	}
	return rc ? side_failed("sending", rc) : 0;
}

/* All of the peer's: each as long as agreed, with the number of its queue pair, from `from` (or whoever it is). */
static int take_all(struct daddy *d, uint8_t from[16])
{
	struct rnic_wc wc;
	unsigned i;

	for (i = 0; i < d->messages; i++) {
		uint8_t gid[16];

		if (until(d, NULL, &wc))
			return -1;
		if (wc.status || wc.byte_len != GRH + d->size || wc.imm != wc.src_qpn)
			return side_failed("a message is not as it was sent", -EBADMSG);
		wire_gid_from_v4(gid, d->s.mem + MEM / 2 + i * (GRH + d->size) + PEER_AT);
		if (!i && !d->told)
			memcpy(from, gid, 16);
		if (memcmp(from, gid, 16) != 0)
			return side_failed("a message from somebody else", -EBADMSG);
		d->qpn = wc.src_qpn;
	}
	return 0;
}

static int play(struct daddy *d)
{
	struct rnic_cm_qp mine = { .qpn = rnic_qp_num(d->s.qp), .qkey = QKEY };
	struct rnic_cm_route to = { .port_space = WIRE_RDMACM_PS_UDP,
				    .sport = 50001,
				    .dport = (uint16_t)d->port,
				    .path = d->s.path };
	struct rnic_cm *cm = rnic_gsi_cm(d->gsi);
	static const uint8_t any[16];
	struct rnic_cm_listener *l;
	int rc;

	memcpy(to.path.src, d->s.gid[0], 16);
	if (d->s.server) {
		rc = rnic_cm_connect(cm, &to, &mine, NULL, 0, d, &d->conn, sys.now_ns());
		if (rc || until(d, &d->told, NULL))
			return side_failed("SIDR", rc);
		return send_all(d, &to.path) || take_all(d, to.path.dst) ? -1 : 0;
	}
	rc = rnic_cm_listen(cm, WIRE_RDMACM_PS_UDP, any, (uint16_t)d->port, 1, d, &l);
	puts("listening");
	fflush(stdout);
	if (rc || until(d, &d->asked, NULL) ||
	    (rc = rnic_cm_accept(d->conn, &mine, NULL, 0, sys.now_ns())))
		return side_failed("SIDR", rc);
	d->qkey = QKEY;
	return take_all(d, to.path.dst) || send_all(d, &to.path) ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct daddy d = {
		.s = { .type = RNIC_QP_UD, .mtu = 1024 }, .port = 7174, .messages = 10, .size = 100
	};
	struct in_addr peer;
	int opt, rc;

	while ((opt = getopt(argc, argv, "p:C:S:")) != -1) {
		unsigned value = (unsigned)strtoul(optarg ? optarg : "0", NULL, 10);

		if (opt == '?')
			return 2;
		*(opt == 'p' ? &d.port : opt == 'C' ? &d.messages : &d.size) = value;
	}
	if (argc - optind < 1 || argc - optind > 2 || d.messages > DEPTH || d.size > 1024)
		return 2;
	d.s.local = argv[optind];
	d.s.server = argv[optind + 1];
	if (d.s.server && inet_pton(AF_INET, d.s.server, &peer) != 1)
		return 2;
	if (d.s.server)
		wire_gid_from_v4(d.s.path.dst, (const uint8_t *)&peer);
	rc = side_open(&d.s, MEM, RNIC_ACCESS_LOCAL_WRITE, DEPTH);
	if (!rc)
		rc = make_ready(&d);
	if (!rc)
		rc = play(&d);
	if (d.gsi)
		rnic_gsi_close(d.gsi);
	side_close(&d.s);
	if (!rc)
		printf("%u messages each way\n", d.messages);
	return rc ? 1 : 0;
}
