/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software RNIC as the other side of the stock ibv_rc_pingpong, ibv_uc_pingpong and ibv_ud_pingpong:
 *
 *	rnic_pingpong rc|uc|ud LOCAL-IPv4 [SERVER-IPv4] [-n ROUNDS] [-s BYTES] [-m MTU]
 *
 * As a client it sends other bytes in each round; the peer, which sends and receives in one buffer, returns them. So what
 * comes back is compared to the byte.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "rnic_side.h"

enum {
	MESSAGE = 52, /* lid:qpn:psn:gid and a NUL */
	GRH = 40,
	RECEIVES = 64,
	SEND = 1000, /* wr_id; below it: receives */
};

struct game {
	struct side side;
	unsigned rounds, size;
};

/* What is sent lies first in memory, then the receives. */
static unsigned slot_size(const struct game *g)
{
	return g->size + GRH;
}

static uint8_t *slot(const struct game *g, unsigned i)
{
	return g->side.mem + (size_t)(i + 1) * slot_size(g);
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
		return side_failed("the peer's message", -EPROTO);
	for (i = 0; i < 16; i++) {
		if (sscanf(text + 19 + 2 * i, "%2x", &byte) != 1)
			return side_failed("the peer's GID", -EPROTO);
		s->path.dst[i] = (uint8_t)byte;
	}
	memcpy(s->path.src, s->gid[0], 16);
	return 0;
}

static int receive(struct game *g, unsigned i)
{
	return side_receive(&g->side, i, slot(g, i), slot_size(g));
}

/* Ready for the peer's first message, which without a connection must find a receive. */
static int ready(struct game *g)
{
	unsigned i;
	int rc = side_connect(&g->side);

	for (i = 0; i < RECEIVES && !rc; i++)
		rc = receive(g, i);
	return rc;
}

static int introduce(struct game *g)
{
	struct side *s = &g->side;
	char text[MESSAGE], done[5];
	int fd = side_tcp(s), rc = -1;

	if (fd < 0)
		return side_failed("the TCP connection", -errno);
	if (s->server) {
		message(s, text);
		if (write(fd, text, MESSAGE) == MESSAGE &&
		    recv(fd, text, MESSAGE, MSG_WAITALL) == MESSAGE && !understand(s, text))
			rc = ready(g);
		if (!rc && write(fd, "done", 5) != 5)
			rc = -1;
	} else {
		if (recv(fd, text, MESSAGE, MSG_WAITALL) == MESSAGE && !understand(s, text))
			rc = ready(g);
		message(s, text);
		if (!rc && (write(fd, text, MESSAGE) != MESSAGE || read(fd, done, 5) <= 0))
			rc = -1;
	}
	close(fd);
	return rc ? side_failed("the exchange", 0) : 0;
}

/* ---- the game --------------------------------------------------------------------------------- */

static int send_from(struct game *g, uint8_t *from)
{
	struct side *s = &g->side;
	struct rnic_sge sge = { (uintptr_t)from, g->size, rnic_mr_lkey(s->mr) };
	struct rnic_send_wr wr = { .wr_id = SEND,
				   .opcode = RNIC_WR_SEND,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .path = &s->path,
				   .dest_qpn = s->peer_qpn,
				   .qkey = SIDE_QKEY };
	int rc = rnic_post_send(s->qp, &wr, sys.now_ns());

	return rc ? side_failed("post_send", rc) : 0;
}

static void fill(struct game *g, unsigned round)
{
	unsigned i;

	for (i = 0; i < g->size; i++)
		g->side.mem[i] = (uint8_t)((i * 2654435761u + round * 40503u) >> 11);
}

static int check(const struct game *g, const struct rnic_wc *wc, const uint8_t *data)
{
	if (wc->byte_len != g->size + (g->side.type == RNIC_QP_UD ? GRH : 0))
		return side_failed("a message of another length", -EMSGSIZE);
	if (g->side.server && memcmp(data, g->side.mem, g->size))
		return side_failed("other bytes came back", -EIO);
	return 0;
}

/* One round: sends and receives, the client first. */
static int play(struct game *g, unsigned round)
{
	bool sent = false, got = false, client = g->side.server != NULL;
	const uint8_t *data;
	struct rnic_wc wc;

	if (client) {
		fill(g, round);
		if (send_from(g, g->side.mem))
			return -1;
	}
	/* When the last acknowledgement is lost the peer may be gone already; side_linger() sends on. */
	while (!got || (!sent && round + 1 < g->rounds)) {
		if (side_run(&g->side, -1, &wc) != 1)
			return -1;
		if (wc.status != RNIC_WC_SUCCESS) {
			fprintf(stderr, "work request %u ended with status %u\n",
				(unsigned)wc.wr_id, wc.status);
			return -1;
		}
		if (wc.wr_id == SEND) {
			sent = true;
			continue;
		}
		got = true;
		data = slot(g, (unsigned)wc.wr_id) + (g->side.type == RNIC_QP_UD ? GRH : 0);
		if (check(g, &wc, data))
			return -1;
		if (!client) {
			memcpy(g->side.mem, data, g->size);
			if (send_from(g, g->side.mem))
				return -1;
		}
		if (receive(g, (unsigned)wc.wr_id))
			return -1;
	}
	return 0;
}

static int game(struct game *g)
{
	uint64_t begin = sys.now_ns();
	unsigned i;

	for (i = 0; i < g->rounds; i++) {
		if (play(g, i)) {
			fprintf(stderr, "in round %u of %u\n", i + 1, g->rounds);
			side_report(&g->side);
			return -1;
		}
	}
	printf("%u rounds of %u bytes, %.1f us each; ", g->rounds, g->size,
	       (double)(sys.now_ns() - begin) / 1000 / g->rounds);
	side_report(&g->side);
	return 0;
}

static int usage(void)
{
	fputs("usage: rnic_pingpong rc|uc|ud LOCAL-IPv4 [SERVER-IPv4] [-n ROUNDS] [-s BYTES] [-m MTU]\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct game g = { .rounds = 1000, .size = 4096, .side = { .mtu = 1024, .rd_atomic = 1 } };
	int opt, rc;

	while ((opt = getopt(argc, argv, "n:s:m:")) != -1) {
		unsigned value = (unsigned)strtoul(optarg ? optarg : "0", NULL, 10);

		if (opt == '?')
			return usage();
		*(opt == 'n' ? &g.rounds : opt == 's' ? &g.size : &g.side.mtu) = value;
	}
	if (argc - optind < 2 || argc - optind > 3)
		return usage();
	g.side.type = !strcmp(argv[optind], "ud")   ? RNIC_QP_UD
		      : !strcmp(argv[optind], "uc") ? RNIC_QP_UC
						    : RNIC_QP_RC;
	g.side.local = argv[optind + 1];
	g.side.server = argv[optind + 2]; /* or NULL, the end of argv */
	rc = side_open(&g.side, (size_t)(RECEIVES + 1) * slot_size(&g), RNIC_ACCESS_LOCAL_WRITE,
		       RECEIVES) ||
	     introduce(&g) || game(&g);
	if (!rc)
		side_linger(&g.side);
	side_close(&g.side);
	return rc ? 1 : 0;
}
