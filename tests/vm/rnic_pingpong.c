/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software RNIC as the other side of the stock ibv_rc_pingpong, ibv_uc_pingpong and ibv_ud_pingpong:
 *
 *	rnic_pingpong rc|uc|ud LOCAL-IPv4 [SERVER-IPv4] [-n ROUNDS] [-s BYTES] [-m MTU]
 *
 * Queue pair numbers go over TCP port 18515, as the stock programs do it. As a client it sends other bytes in each round; the
 * peer, which sends and receives in one buffer, returns them. So what comes back is compared to the byte.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "rnic/rnic.h"
#include "rnic/wire_udp.h"
#include "wire/frame.h"

enum {
	PORT = 18515,
	MESSAGE = 52, /* lid:qpn:psn:gid and a NUL */
	QKEY = 0x11111111,
	GRH = 40,
	RECEIVES = 64,
	SEND = 1000, /* wr_id; below it: receives */
	PATIENCE_MS = 30000,
};

struct side {
	enum rnic_qp_type type;
	const char *local, *server;
	unsigned rounds, size, mtu;
	uint8_t gid[1][16];
	struct rnic_wire *wire;
	struct rnic *rnic;
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_qp *qp;
	struct rnic_mr *mr;
	uint8_t *mem; /* what is sent, then the receives */
	uint32_t psn;
	uint32_t peer_qpn, peer_psn;
	struct rnic_path path;
};

static int failed(const char *what, int rc)
{
	fprintf(stderr, "rnic_pingpong: %s: %s %s\n", what, rc ? strerror(-rc) : "", log_last());
	return -1;
}

static unsigned slot_size(const struct side *s)
{
	return s->size + GRH;
}

static uint8_t *slot(const struct side *s, unsigned i)
{
	return s->mem + (size_t)(i + 1) * slot_size(s);
}

static int open_side(struct side *s)
{
	struct rnic_udp_config udp = { 0 };
	struct rnic_config cfg = { .gids = (const uint8_t(*)[16])s->gid, .ngids = 1 };
	struct rnic_qp_init in = { .type = s->type,
				   .max_send_wr = 4,
				   .max_recv_wr = RECEIVES,
				   .max_send_sge = 1,
				   .max_recv_sge = 1 };
	struct in_addr addr;
	size_t len = (size_t)(RECEIVES + 1) * slot_size(s);
	int rc;

	if (inet_pton(AF_INET, s->local, &addr) != 1)
		return failed("the local address", -EINVAL);
	wire_gid_from_v4(s->gid[0], (const uint8_t *)&addr);
	memcpy(udp.gid, s->gid[0], 16);
	rc = rnic_udp_create(&udp, &s->wire);
	if (rc)
		return failed("the wire", rc);
	s->mem = calloc(1, len);
	if (!s->mem || rnic_open(&s->rnic, &cfg, s->wire) || rnic_pd_create(s->rnic, &s->pd) ||
	    rnic_cq_create(s->rnic, 256, &s->cq) ||
	    rnic_mr_create(s->pd, s->mem, len, (uintptr_t)s->mem, RNIC_ACCESS_LOCAL_WRITE, &s->mr))
		return failed("the device", 0);
	rnic_udp_attach(s->wire, s->rnic);
	in.send_cq = in.recv_cq = s->cq;
	rc = rnic_qp_create(s->pd, &in, &s->qp);
	return rc ? failed("the queue pair", rc) : 0;
}

static void close_side(struct side *s)
{
	if (s->qp)
		rnic_qp_destroy(s->qp);
	if (s->mr)
		rnic_mr_destroy(s->mr);
	if (s->cq)
		rnic_cq_destroy(s->cq);
	if (s->pd)
		rnic_pd_destroy(s->pd);
	if (s->rnic)
		rnic_close(s->rnic);
	if (s->wire)
		rnic_udp_destroy(s->wire);
	free(s->mem);
}

/* ---- the exchange over TCP ------------------------------------------------------------------- */

static void message(const struct side *s, char text[MESSAGE])
{
	int n = snprintf(text, MESSAGE, "0000:%06x:%06x:", rnic_qp_num(s->qp), s->psn);
	int i;

	for (i = 0; i < 16; i++)
		snprintf(text + n + 2 * i, 3, "%02x", s->gid[0][i]);
}

static int understand(struct side *s, const char text[MESSAGE])
{
	unsigned byte, lid;
	int i;

	if (text[MESSAGE - 1] || sscanf(text, "%x:%x:%x:", &lid, &s->peer_qpn, &s->peer_psn) != 3)
		return failed("the peer's message", -EPROTO);
	for (i = 0; i < 16; i++) {
		if (sscanf(text + 19 + 2 * i, "%2x", &byte) != 1)
			return failed("the peer's GID", -EPROTO);
		s->path.dst[i] = (uint8_t)byte;
	}
	memcpy(s->path.src, s->gid[0], 16);
	return 0;
}

static int connected(const struct side *s)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), conn, one = 1;

	inet_pton(AF_INET, s->server ? s->server : s->local, &a.sin_addr);
	if (s->server)
		return connect(fd, (struct sockaddr *)&a, sizeof(a)) ? -1 : fd;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 1))
		return -1;
	puts("listening");
	fflush(stdout);
	conn = accept(fd, NULL, NULL);
	close(fd);
	return conn;
}

static int receive(struct side *s, unsigned i)
{
	struct rnic_sge sge = { (uintptr_t)slot(s, i), slot_size(s), rnic_mr_lkey(s->mr) };
	int rc = rnic_post_recv(s->qp, i, &sge, 1);

	return rc ? failed("post_recv", rc) : 0;
}

/* Ready for the peer's first message, which without a connection must find a receive. */
static int to_rts(struct side *s)
{
	struct rnic_qp_attr a = { .path = s->path,
				  .mtu = s->mtu,
				  .dest_qpn = s->peer_qpn,
				  .rq_psn = s->peer_psn,
				  .sq_psn = s->psn,
				  .timeout = 14,
				  .retry = 7,
				  .rnr_retry = 7,
				  .min_rnr = 12,
				  .rd_atomic = 1,
				  .dest_rd_atomic = 1,
				  .qkey = QKEY };
	unsigned ud = RNIC_ATTR_QKEY, connection = RNIC_ATTR_PATH | RNIC_ATTR_MTU |
						   RNIC_ATTR_DEST_QPN | RNIC_ATTR_RQ_PSN;
	unsigned rc = RNIC_ATTR_MIN_RNR | RNIC_ATTR_DEST_RD_ATOMIC;
	unsigned rc_send =
		RNIC_ATTR_TIMEOUT | RNIC_ATTR_RETRY | RNIC_ATTR_RNR_RETRY | RNIC_ATTR_RD_ATOMIC;
	unsigned mask[] = { [RNIC_QPS_INIT] = 0, [RNIC_QPS_RTR] = 0, [RNIC_QPS_RTS] = 0 };
	unsigned i;
	int state, error = 0;

	mask[RNIC_QPS_RTS] = RNIC_ATTR_SQ_PSN;
	if (s->type == RNIC_QP_UD)
		mask[RNIC_QPS_INIT] = ud;
	else
		mask[RNIC_QPS_RTR] = connection;
	if (s->type == RNIC_QP_RC) {
		mask[RNIC_QPS_RTR] |= rc;
		mask[RNIC_QPS_RTS] |= rc_send;
	}
	for (state = RNIC_QPS_INIT; state <= RNIC_QPS_RTS && !error; state++) {
		a.state = (enum rnic_qp_state)state;
		error = rnic_qp_modify(s->qp, &a, mask[state] | RNIC_ATTR_STATE, sys.now_ns());
	}
	if (error)
		return failed("the queue pair's state", error);
	for (i = 0; i < RECEIVES && !error; i++)
		error = receive(s, i);
	return error;
}

static int introduce(struct side *s)
{
	char text[MESSAGE], done[5];
	int fd = connected(s), rc = -1;

	if (fd < 0)
		return failed("the TCP connection", -errno);
	if (s->server) {
		message(s, text);
		if (write(fd, text, MESSAGE) == MESSAGE &&
		    recv(fd, text, MESSAGE, MSG_WAITALL) == MESSAGE && !understand(s, text))
			rc = to_rts(s);
		if (!rc && write(fd, "done", 5) != 5)
			rc = -1;
	} else {
		if (recv(fd, text, MESSAGE, MSG_WAITALL) == MESSAGE && !understand(s, text))
			rc = to_rts(s);
		message(s, text);
		if (!rc && (write(fd, text, MESSAGE) != MESSAGE || read(fd, done, 5) <= 0))
			rc = -1;
	}
	close(fd);
	return rc ? failed("the exchange", 0) : 0;
}

/* ---- the game --------------------------------------------------------------------------------- */

/* Lets the device run until the next completion. */
static int complete(struct side *s, struct rnic_wc *wc)
{
	struct pollfd fd = { .fd = rnic_udp_fd(s->wire), .events = POLLIN };
	uint64_t now, due, end = sys.now_ns() + PATIENCE_MS * UINT64_C(1000000);

	for (;;) {
		now = sys.now_ns();
		if (now > end)
			return failed("nothing came for 30 s", 0);
		if (rnic_udp_poll(s->wire, now, 64) < 0)
			return failed("receiving", 0);
		due = rnic_step(s->rnic, now, 64);
		if (rnic_cq_poll(s->cq, wc, 1))
			break;
		if (due > now && due - now > 1000000)
			poll(&fd, 1, due - now < 100000000 ? (int)((due - now) / 1000000) : 100);
	}
	if (wc->status != RNIC_WC_SUCCESS) {
		fprintf(stderr, "rnic_pingpong: work request %u completed with status %u\n",
			(unsigned)wc->wr_id, wc->status);
		return -1;
	}
	return 0;
}

static int send_from(struct side *s, uint8_t *from)
{
	struct rnic_sge sge = { (uintptr_t)from, s->size, rnic_mr_lkey(s->mr) };
	struct rnic_send_wr wr = { .wr_id = SEND,
				   .opcode = RNIC_WR_SEND,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .path = &s->path,
				   .dest_qpn = s->peer_qpn,
				   .qkey = QKEY };
	int rc = rnic_post_send(s->qp, &wr, sys.now_ns());

	return rc ? failed("post_send", rc) : 0;
}

static void fill(struct side *s, unsigned round)
{
	unsigned i;

	for (i = 0; i < s->size; i++)
		s->mem[i] = (uint8_t)((i * 2654435761u + round * 40503u) >> 11);
}

/* One round: sends and receives, the client first. */
static int play(struct side *s, unsigned round)
{
	bool sent = false, got = false, client = s->server != NULL;
	uint8_t *data = NULL;
	struct rnic_wc wc;

	if (client) {
		fill(s, round);
		if (send_from(s, s->mem))
			return -1;
	}
	/* When the last acknowledgement is lost the peer may be gone already; linger() sends on. */
	while (!got || (!sent && round + 1 < s->rounds)) {
		if (complete(s, &wc))
			return -1;
		if (wc.wr_id == SEND) {
			sent = true;
			continue;
		}
		got = true;
		data = slot(s, (unsigned)wc.wr_id) + (s->type == RNIC_QP_UD ? GRH : 0);
		if (wc.byte_len != s->size + (s->type == RNIC_QP_UD ? GRH : 0))
			return failed("a message of another length", -EMSGSIZE);
		if (client && memcmp(data, s->mem, s->size))
			return failed("other bytes came back", -EIO);
		if (!client) {
			memcpy(s->mem, data, s->size);
			if (send_from(s, s->mem))
				return -1;
		}
		if (receive(s, (unsigned)wc.wr_id))
			return -1;
	}
	return 0;
}

static int game(struct side *s)
{
	const struct rnic_counters *c;
	uint64_t begin;
	unsigned i;

	begin = sys.now_ns();
	for (i = 0; i < s->rounds; i++) {
		if (play(s, i)) {
			fprintf(stderr, "rnic_pingpong: in round %u of %u\n", i + 1, s->rounds);
			return -1;
		}
	}
	c = rnic_counters(s->rnic);
	printf("%u rounds of %u bytes, %.1f us each; packets sent %llu, received %llu, sent again %llu, "
	       "time-outs %llu; NAKs sent %llu, received %llu, of RNR %llu\n",
	       s->rounds, s->size, (double)(sys.now_ns() - begin) / 1000 / s->rounds,
	       (unsigned long long)c->tx_packets, (unsigned long long)c->rx_packets,
	       (unsigned long long)c->retransmits, (unsigned long long)c->timeouts,
	       (unsigned long long)c->tx_naks, (unsigned long long)c->rx_naks,
	       (unsigned long long)c->rx_rnr_naks);
	return 0;
}

/* An answer of ours may be lost, and the peer's last request must not stay unanswered. */
static void linger(struct side *s)
{
	struct pollfd fd = { .fd = rnic_udp_fd(s->wire), .events = POLLIN };
	uint64_t end = sys.now_ns() + UINT64_C(500000000);

	while (sys.now_ns() < end) {
		rnic_udp_poll(s->wire, sys.now_ns(), 64);
		rnic_step(s->rnic, sys.now_ns(), 64);
		poll(&fd, 1, 10);
	}
}

static int usage(void)
{
	fputs("usage: rnic_pingpong rc|uc|ud LOCAL-IPv4 [SERVER-IPv4] [-n ROUNDS] [-s BYTES] [-m MTU]\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct side s = { .rounds = 1000, .size = 4096, .mtu = 1024, .psn = 0xfffff0 };
	int opt, rc;

	while ((opt = getopt(argc, argv, "n:s:m:")) != -1) {
		unsigned value = (unsigned)strtoul(optarg ? optarg : "0", NULL, 10);

		if (opt == '?')
			return usage();
		*(opt == 'n' ? &s.rounds : opt == 's' ? &s.size : &s.mtu) = value;
	}
	if (argc - optind < 2 || argc - optind > 3)
		return usage();
	s.type = !strcmp(argv[optind], "ud")   ? RNIC_QP_UD
		 : !strcmp(argv[optind], "uc") ? RNIC_QP_UC
					       : RNIC_QP_RC;
	s.local = argv[optind + 1];
	s.server = argv[optind + 2]; /* or NULL, the end of argv */
	rc = open_side(&s) || introduce(&s) || game(&s);
	if (!rc)
		linger(&s);
	close_side(&s);
	return rc ? 1 : 0;
}
