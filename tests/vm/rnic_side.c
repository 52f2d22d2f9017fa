/* SPDX-License-Identifier: BSD-3-Clause */
#include "rnic_side.h"

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
#include "wire/frame.h"

enum { PATIENCE_MS = 30000, STEP = 64 };

int side_failed(const char *what, int rc)
{
	fprintf(stderr, "%s: %s %s\n", what, rc ? strerror(-rc) : "", log_last());
	return -1;
}

int side_open(struct side *s, size_t len, unsigned access, unsigned depth)
{
	struct rnic_udp_config udp = { 0 };
	struct rnic_config cfg = { .gids = (const uint8_t(*)[16])s->gid, .ngids = 1 };
	struct rnic_qp_init in = { .type = s->type,
				   .max_send_wr = depth,
				   .max_recv_wr = depth,
				   .max_send_sge = 1,
				   .max_recv_sge = 1 };
	struct in_addr addr;
	int rc;

	if (inet_pton(AF_INET, s->local, &addr) != 1)
		return side_failed("the local address", -EINVAL);
	wire_gid_from_v4(s->gid[0], (const uint8_t *)&addr);
	memcpy(udp.gid, s->gid[0], 16);
	rc = rnic_udp_create(&udp, &s->wire);
	if (rc)
		return side_failed("the wire", rc);
	s->psn = 0xfffff0; /* soon wraps */
	s->mem = calloc(1, len);
	if (!s->mem || rnic_open(&s->rnic, &cfg, s->wire) || rnic_pd_create(s->rnic, &s->pd) ||
	    rnic_cq_create(s->rnic, 2 * depth, &s->cq) ||
	    rnic_mr_create(s->pd, s->mem, len, (uintptr_t)s->mem, access, &s->mr))
		return side_failed("the device", 0);
	rnic_udp_attach(s->wire, s->rnic);
	in.send_cq = in.recv_cq = s->cq;
	rc = rnic_qp_create(s->pd, &in, &s->qp);
	return rc ? side_failed("the queue pair", rc) : 0;
}

void side_close(struct side *s)
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

int side_tcp(const struct side *s)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(SIDE_PORT) };
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

int side_connect(struct side *s)
{
	struct rnic_qp_attr a = { .access = RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_READ |
					    RNIC_ACCESS_REMOTE_ATOMIC,
				  .path = s->path,
				  .mtu = s->mtu,
				  .dest_qpn = s->peer_qpn,
				  .rq_psn = s->peer_psn,
				  .sq_psn = s->psn,
				  .timeout = 17, /* 537 ms: emulation makes peers slow */
				  .retry = 7,
				  .rnr_retry = 7,
				  .min_rnr = 12,
				  .rd_atomic = s->rd_atomic,
				  .dest_rd_atomic = s->rd_atomic,
				  .qkey = SIDE_QKEY };
	unsigned mask[] = { [RNIC_QPS_INIT] = 0, [RNIC_QPS_RTR] = 0, [RNIC_QPS_RTS] = 0 };
	int state, error = 0;

	mask[RNIC_QPS_RTS] = RNIC_ATTR_SQ_PSN;
	if (s->type == RNIC_QP_UD)
		mask[RNIC_QPS_INIT] = RNIC_ATTR_QKEY;
	else
		mask[RNIC_QPS_RTR] = RNIC_ATTR_PATH | RNIC_ATTR_MTU | RNIC_ATTR_DEST_QPN |
				     RNIC_ATTR_RQ_PSN | RNIC_ATTR_ACCESS;
	if (s->type == RNIC_QP_RC) {
		mask[RNIC_QPS_RTR] |= RNIC_ATTR_MIN_RNR | RNIC_ATTR_DEST_RD_ATOMIC;
		mask[RNIC_QPS_RTS] |= RNIC_ATTR_TIMEOUT | RNIC_ATTR_RETRY | RNIC_ATTR_RNR_RETRY |
				      RNIC_ATTR_RD_ATOMIC;
	}
	for (state = RNIC_QPS_INIT; state <= RNIC_QPS_RTS && !error; state++) {
		a.state = (enum rnic_qp_state)state;
		error = rnic_qp_modify(s->qp, &a, mask[state] | RNIC_ATTR_STATE, sys.now_ns());
	}
	return error ? side_failed("the queue pair's state", error) : 0;
}

int side_receive(struct side *s, uint64_t id, uint8_t *to, uint32_t len)
{
	struct rnic_sge sge = { (uintptr_t)to, len, rnic_mr_lkey(s->mr) };
	int rc = rnic_post_recv(s->qp, id, &sge, 1);

	return rc ? side_failed("post_recv", rc) : 0;
}

int side_run(struct side *s, int tcp, struct rnic_wc *wc)
{
	struct pollfd fds[2] = { { .fd = rnic_udp_fd(s->wire), .events = POLLIN },
				 { .fd = tcp, .events = POLLIN } };
	uint64_t now, due, end = sys.now_ns() + PATIENCE_MS * UINT64_C(1000000);
	int ms;

	for (;;) {
		now = sys.now_ns();
		if (now > end)
			return side_failed("nothing came for 30 s", 0);
		if (rnic_udp_poll(s->wire, now, STEP) < 0)
			return side_failed("receiving", 0);
		due = rnic_step(s->rnic, now, STEP);
		if (rnic_cq_poll(s->cq, wc, 1))
			return 1;
		ms = due <= now ? 0 : due - now > 100000000 ? 100 : (int)((due - now) / 1000000);
		if (poll(fds, 2, ms) > 0 && fds[1].revents)
			return 0;
	}
}

void side_linger(struct side *s)
{
	struct pollfd fd = { .fd = rnic_udp_fd(s->wire), .events = POLLIN };
	uint64_t end = sys.now_ns() + UINT64_C(500000000);

	while (sys.now_ns() < end) {
		rnic_udp_poll(s->wire, sys.now_ns(), STEP);
		rnic_step(s->rnic, sys.now_ns(), STEP);
		poll(&fd, 1, 10);
	}
}

void side_report(const struct side *s)
{
	const struct rnic_counters *c = rnic_counters(s->rnic);
	const struct rnic_udp_stats *u = rnic_udp_stats(s->wire);

	printf("packets sent %llu, received %llu, wrong ICRCs %llu, any ID %llu, sent again "
	       "%llu, time-outs %llu; NAKs sent %llu, received %llu, of RNR %llu\n",
	       (unsigned long long)c->tx_packets, (unsigned long long)c->rx_packets,
	       (unsigned long long)u->rx_bad_icrc, (unsigned long long)u->rx_any_id,
	       (unsigned long long)c->retransmits, (unsigned long long)c->timeouts,
	       (unsigned long long)c->tx_naks, (unsigned long long)c->rx_naks,
	       (unsigned long long)c->rx_rnr_naks);
}
