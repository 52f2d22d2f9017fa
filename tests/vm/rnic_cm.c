/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The provider `rnic` as the other side of rping and ucmatose, whichever is asked:
 *
 *	rnic_cm rping-server|rping-client|cmatose-server|cmatose-client ADDRESS [-p PORT] [-C ROUNDS] [-S BYTES] [-c CONNECTIONS]
 *
 * ADDRESS is ours for a server, the peer's for a client. Bytes are compared wherever the program sees them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "verbs/verbs.h"
#include "wire/bytes.h"

enum { PATIENCE_MS = 30000, INFO = 16, PING = 64, MAX_CONNS = 16, MEM = 1 << 16 };

static const struct verbs_ops *const ops = &verbs_rnic;

/* One connection; the first half of its memory is sent from, the second received into. */
struct conn {
	struct verbs_id *id;
	struct verbs_comp *comp;
	struct verbs_cq *cq;
	struct verbs_qp *qp;
	struct verbs_mr *mr;
	uint8_t *mem;
};

struct run {
	struct sockaddr_storage addr;
	socklen_t len;
	uint16_t port;
	unsigned rounds, size, conns;
	struct verbs *v;
	struct verbs_events *e;
	struct verbs_id *listener;
	struct conn c[MAX_CONNS];
	struct verbs_event keep[MAX_CONNS];
	unsigned kept;
};

static int fail(const char *what, int rc)
{
	fprintf(stderr, "rnic_cm: %s: %s\n", what, strerror(rc < 0 ? -rc : rc));
	return -1;
}

/* --- waiting ------------------------------------------------------------------------------------ */

/* The next event of this type; a request may come in between, and is kept. */
static int event(struct run *r, enum verbs_event_type type, struct verbs_event *ev)
{
	struct pollfd p = { .fd = ops->events_fd(r->e), .events = POLLIN };

	if (type == VERBS_EVENT_CONNECT_REQUEST && r->kept) {
		*ev = r->keep[--r->kept];
		return 0;
	}
	do {
		while (ops->event_next(r->e, ev) == -EAGAIN)
			if (poll(&p, 1, PATIENCE_MS) <= 0)
				return fail("no event", ETIMEDOUT);
		if (ev->type == type)
			return 0;
		if (ev->type == VERBS_EVENT_CONNECT_REQUEST && r->kept < MAX_CONNS)
			r->keep[r->kept++] = *ev;
	} while (ev->type == VERBS_EVENT_CONNECT_REQUEST);
	fprintf(stderr, "rnic_cm: event %d instead of %d, status %d, reason %u\n", (int)ev->type,
		(int)type, ev->status, ev->reason);
	return -1;
}

static int completion(struct conn *c, uint64_t id, uint32_t len)
{
	struct pollfd p = { .fd = ops->comp_fd(c->comp), .events = POLLIN };
	struct verbs_wc wc;

	while (ops->poll(c->cq, &wc, 1) == 0) {
		ops->arm(c->cq);
		if (ops->poll(c->cq, &wc, 1) == 1)
			break;
		if (poll(&p, 1, PATIENCE_MS) <= 0)
			return fail("no completion", ETIMEDOUT);
		ops->comp_drain(c->comp);
	}
	if (wc.status || wc.wr_id != id || (len && wc.byte_len != len)) {
		fprintf(stderr, "rnic_cm: completion %llu of %u bytes instead of %llu of %u: %s\n",
			(unsigned long long)wc.wr_id, wc.byte_len, (unsigned long long)id, len,
			verbs_status_text(wc.status));
		return -1;
	}
	return 0;
}

/* --- set-up ------------------------------------------------------------------------------------- */

static int equip(struct conn *c)
{
	struct verbs_qp_init init = {
		.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1
	};
	struct verbs_device *d = ops->id_device(c->id);
	struct verbs_mem m = { .fd = -1, .length = MEM };
	int rc;

	c->mem = calloc(1, MEM);
	m.addr = c->mem;
	m.iova = (uintptr_t)c->mem;
	rc = ops->comp_open(d, &c->comp);
	if (!rc)
		rc = ops->cq_create(d, 256, c->comp, &c->cq);
	init.send_cq = init.recv_cq = c->cq;
	if (!rc)
		rc = ops->qp_create(c->id, &init, &c->qp);
	if (!rc)
		rc = ops->reg(d, &m,
			      VERBS_ACCESS_LOCAL_WRITE | VERBS_ACCESS_REMOTE_WRITE |
				      VERBS_ACCESS_REMOTE_READ,
			      &c->mr);
	return rc ? fail("set-up", rc) : 0;
}

static const struct verbs_conn_param param = { .retry = 7,
					       .rnr_retry = 7,
					       .ack_timeout = 17,
					       .min_rnr_timer = 12,
					       .responder_resources = 1,
					       .initiator_depth = 1 };

static int receive(struct conn *c, size_t off, uint32_t len)
{
	struct verbs_sge sge = { (uintptr_t)c->mem + MEM / 2 + off, len, c->mr->lkey };
	struct verbs_recv_wr wr = { .wr_id = 1, .sge = &sge, .nsge = 1 };

	return ops->post_recv(c->qp, &wr, 1) == 1 ? 0 : fail("post_recv", EIO);
}

static int post(struct conn *c, enum verbs_wr_opcode op, size_t off, uint32_t len, uint64_t raddr,
		uint32_t rkey)
{
	struct verbs_sge sge = { (uintptr_t)c->mem + off, len, c->mr->lkey };
	struct verbs_send_wr wr = { .wr_id = 2,
				    .opcode = op,
				    .flags = VERBS_SEND_SIGNALED,
				    .sge = &sge,
				    .nsge = 1,
				    .raddr = raddr,
				    .rkey = rkey };

	return ops->post_send(c->qp, &wr, 1) == 1 ? 0 : fail("post_send", EIO);
}

static int start_listening(struct run *r)
{
	int rc = ops->id_create(r->e, NULL, &r->listener);

	if (!rc)
		rc = ops->bind(r->listener, (struct sockaddr *)&r->addr, r->len);
	if (!rc)
		rc = ops->listen(r->listener, 16);
	if (rc)
		return fail("listening", rc);
	printf("listening\n");
	fflush(stdout);
	return 0;
}

/* `first`: posts the receives that the peer counts on. */
static int take(struct run *r, struct conn *c, int (*first)(struct run *, struct conn *))
{
	struct verbs_event ev;
	int rc;

	if (event(r, VERBS_EVENT_CONNECT_REQUEST, &ev))
		return -1;
	c->id = ev.request;
	if (equip(c) || first(r, c))
		return -1;
	rc = ops->accept(c->id, &param);
	if (rc)
		return fail("accept", rc);
	return event(r, VERBS_EVENT_ESTABLISHED, &ev);
}

static int reach(struct run *r, struct conn *c, int (*first)(struct run *, struct conn *))
{
	struct verbs_event ev;
	int rc = ops->id_create(r->e, NULL, &c->id);

	if (!rc)
		rc = ops->resolve(c->id, (struct sockaddr *)&r->addr, r->len, 2000);
	if (rc)
		return fail("resolve", rc);
	if (event(r, VERBS_EVENT_RESOLVED, &ev) || equip(c) || first(r, c))
		return -1;
	rc = ops->connect(c->id, &param);
	if (rc)
		return fail("connect", rc);
	return event(r, VERBS_EVENT_ESTABLISHED, &ev);
}

static void done(struct conn *c)
{
	if (c->qp)
		ops->qp_destroy(c->qp);
	if (c->mr)
		ops->dereg(c->mr);
	if (c->cq)
		ops->cq_destroy(c->cq);
	if (c->comp)
		ops->comp_close(c->comp);
	if (c->id)
		ops->id_destroy(c->id);
	free(c->mem);
}

/* --- rping: messages of 16 bytes say where the peer reads and writes ------------------------------- */

enum { AT_INFO = 0, AT_TEXT = 1024, AT_SINK = 2048 };

static int rping_first(struct run *r, struct conn *c)
{
	(void)r;
	return receive(c, 0, INFO);
}

static int say(struct conn *c, size_t off, uint32_t len)
{
	wire_put_be64(c->mem + AT_INFO, (uintptr_t)c->mem + off);
	wire_put_be32(c->mem + AT_INFO + 8, c->mr->rkey);
	wire_put_be32(c->mem + AT_INFO + 12, len);
	return post(c, VERBS_WR_SEND, AT_INFO, INFO, 0, 0) || completion(c, 2, 0);
}

/* What the peer said, and the next receive. */
static int hear(struct conn *c, uint64_t *addr, uint32_t *key, uint32_t *len)
{
	const uint8_t *p = c->mem + MEM / 2;

	if (completion(c, 1, INFO))
		return -1;
	*addr = wire_get_be64(p);
	*key = wire_get_be32(p + 8);
	*len = wire_get_be32(p + 12);
	return receive(c, 0, INFO);
}

static int rping_server(struct run *r)
{
	struct conn *c = &r->c[0];
	uint64_t addr;
	uint32_t key, len;
	char want[32];
	unsigned i;

	if (start_listening(r) || take(r, c, rping_first))
		return -1;
	for (i = 0; i < r->rounds; i++) {
		if (hear(c, &addr, &key, &len))
			return -1;
		if (len > 1024)
			return fail("a length", EMSGSIZE);
		if (post(c, VERBS_WR_READ, AT_TEXT, len, addr, key) || completion(c, 2, 0))
			return -1;
		snprintf(want, sizeof(want), "rdma-ping-%u: ", i);
		if (memcmp(c->mem + AT_TEXT, want, strlen(want)) != 0)
			return fail("what was read", EBADMSG);
		if (say(c, AT_TEXT, len) || hear(c, &addr, &key, &len))
			return -1;
		if (post(c, VERBS_WR_WRITE, AT_TEXT, len, addr, key) || completion(c, 2, 0) ||
		    say(c, AT_TEXT, len))
			return -1;
	}
	return 0;
}

static int rping_client(struct run *r)
{
	struct conn *c = &r->c[0];
	uint64_t addr;
	uint32_t key, len;
	unsigned i, k;

	if (reach(r, c, rping_first))
		return -1;
	for (i = 0; i < r->rounds; i++) {
		memset(c->mem + AT_TEXT, 0, PING);
		k = (unsigned)snprintf((char *)c->mem + AT_TEXT, PING, "rdma-ping-%u: ", i);
		for (; k < PING - 1; k++)
			c->mem[AT_TEXT + k] = (uint8_t)('A' + (i + k) % 58);
		memset(c->mem + AT_SINK, 0, PING);
		if (say(c, AT_TEXT, PING) || hear(c, &addr, &key, &len) || say(c, AT_SINK, PING) ||
		    hear(c, &addr, &key, &len))
			return -1;
		if (memcmp(c->mem + AT_TEXT, c->mem + AT_SINK, PING) != 0)
			return fail("what came back", EBADMSG);
	}
	return 0;
}

/* --- ucmatose: the server sends, then the client ---------------------------------------------------- */

static int cmatose_first(struct run *r, struct conn *c)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < r->rounds && !rc; i++)
		rc = receive(c, 0, r->size);
	return rc;
}

static int cmatose_data(struct run *r, struct conn *c, bool send)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < r->rounds && !rc; i++)
		rc = send ? post(c, VERBS_WR_SEND, 0, r->size, 0, 0) : completion(c, 1, r->size);
	for (i = 0; i < r->rounds && !rc && send; i++)
		rc = completion(c, 2, 0);
	return rc;
}

static int cmatose(struct run *r, bool server)
{
	struct verbs_event ev;
	unsigned i;
	int rc = server ? start_listening(r) : 0;

	for (i = 0; i < r->conns && !rc; i++)
		rc = server ? take(r, &r->c[i], cmatose_first) : reach(r, &r->c[i], cmatose_first);
	for (i = 0; i < r->conns && !rc; i++)
		rc = cmatose_data(r, &r->c[i], server);
	for (i = 0; i < r->conns && !rc; i++)
		rc = cmatose_data(r, &r->c[i], !server);
	/* The server says goodbye. */
	for (i = 0; i < r->conns && !rc && server; i++)
		rc = ops->disconnect(r->c[i].id);
	for (i = 0; i < r->conns && !rc; i++)
		rc = event(r, VERBS_EVENT_DISCONNECTED, &ev);
	return rc;
}

/* --- the program ---------------------------------------------------------------------------------- */

static int play(struct run *r, const char *mode)
{
	if (!strcmp(mode, "rping-server"))
		return rping_server(r);
	if (!strcmp(mode, "rping-client"))
		return rping_client(r);
	if (!strcmp(mode, "cmatose-server"))
		return cmatose(r, true);
	if (!strcmp(mode, "cmatose-client"))
		return cmatose(r, false);
	return fail(mode, EINVAL);
}

static int parse(struct run *r, const char *host)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(r->port) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(r->port) };

	if (inet_pton(AF_INET, host, &in.sin_addr) == 1) {
		memcpy(&r->addr, &in, sizeof(in));
		r->len = sizeof(in);
		return 0;
	}
	memcpy(&r->addr, &in6, sizeof(in6));
	r->len = sizeof(in6);
	if (inet_pton(AF_INET6, host, &((struct sockaddr_in6 *)&r->addr)->sin6_addr) == 1)
		return 0;
	return fail(host, EINVAL);
}

int main(int argc, char **argv)
{
	struct run r = { .port = 7174, .rounds = 10, .size = 100, .conns = 1 };
	char why[256];
	unsigned i;
	int opt, rc;

	while ((opt = getopt(argc, argv, "p:C:S:c:")) != -1) {
		unsigned value = (unsigned)strtoul(optarg ? optarg : "0", NULL, 10);

		if (opt == 'p')
			r.port = (uint16_t)value;
		else if (opt == '?')
			return 2;
		else
			*(opt == 'C' ? &r.rounds : opt == 'S' ? &r.size : &r.conns) = value;
	}
	if (argc - optind != 2 || r.conns > MAX_CONNS || r.rounds > 60 || r.size > MEM / 2)
		return 2;
	if (parse(&r, argv[optind + 1]) || ops->open(&r.v, why, sizeof(why)) ||
	    ops->events_open(r.v, 0, &r.e))
		return 1;
	rc = play(&r, argv[optind]);
	for (i = 0; i < r.conns; i++)
		done(&r.c[i]);
	if (r.listener)
		ops->id_destroy(r.listener);
	ops->events_close(r.e);
	ops->close(r.v);
	if (!rc)
		printf("%u rounds, every byte right\n", r.rounds);
	return rc ? 1 : 0;
}
