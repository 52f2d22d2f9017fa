/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided RDMA between two CPU processes: the server offers memory and sleeps, the client writes into it, reads it back and
 * counts in it; no code of the server runs for that.
 *
 *	example-verbs server ADDRESS [PORT]
 *	example-verbs client ADDRESS PORT [TEXT]
 *
 * GPUNET_VERBS=rnic makes it work on a machine without RDMA hardware; between two machines both need an address of their own.
 */
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunet/gpunet.h>
#include <gpunet/verbs.h>

enum { TEXT_MAX = 256, QUEUE = 16, PATIENCE_MS = 10000 };

/* What the server offers, told in the private data of its answer: both ends must have one byte order. */
struct offer {
	uint64_t addr;
	uint32_t rkey;
	uint32_t length;
};

/* The memory that is offered. */
struct shelf {
	uint64_t visits;
	char text[TEXT_MAX];
};

struct end {
	gpunet_verbs_t *v;
	gpunet_verbs_mr_t *mr;
	gpunet_verbs_cq_t *cq;
	gpunet_verbs_conn_t *conn;
	gpunet_verbs_qp_t *qp;
};

static int failed(const char *what, int rc)
{
	fprintf(stderr, "%s: %s %s\n", what, strerror(-rc), gpunet_last_error());
	return 1;
}

static struct addrinfo *look_up(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;

	if (getaddrinfo(host, port, &hints, &found))
		fprintf(stderr, "%s: no such address\n", host);
	return found;
}

/* Memory that this end works in, and where completions go. */
static int equip(struct end *e, void *memory, size_t length, unsigned access)
{
	int rc = gpunet_verbs_reg(e->v, memory, length, access, &e->mr);

	if (!rc)
		rc = gpunet_verbs_cq_create(e->v, 2 * QUEUE, &e->cq);
	return rc;
}

static int make_qp(struct end *e)
{
	struct gpunet_verbs_qp_init init = { .size = sizeof(init),
					     .send_cq = e->cq,
					     .recv_cq = e->cq,
					     .max_send_wr = QUEUE,
					     .max_recv_wr = QUEUE };

	return gpunet_verbs_qp_create(e->v, e->conn, &init, &e->qp);
}

/* Children go first. */
static void end_close(struct end *e)
{
	if (e->qp)
		gpunet_verbs_qp_destroy(e->qp);
	if (e->conn)
		gpunet_verbs_conn_close(e->conn);
	if (e->cq)
		gpunet_verbs_cq_destroy(e->cq);
	if (e->mr)
		gpunet_verbs_dereg(e->mr);
	if (e->v)
		gpunet_verbs_close(e->v);
}

/* ---- the server ------------------------------------------------------------------------------------------------------------- */

static int announce(gpunet_verbs_listener_t *l)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	char host[NI_MAXHOST], port[NI_MAXSERV];
	int rc = gpunet_verbs_listener_name(l, (struct sockaddr *)&a, &n);

	if (rc || getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port, sizeof(port),
			      NI_NUMERICHOST | NI_NUMERICSERV))
		return rc;
	printf("listening on %s port %s\n", host, port);
	fflush(stdout);
	return 0;
}

static int serve_one(struct end *e, gpunet_verbs_listener_t *l, struct shelf *shelf)
{
	struct gpunet_verbs_param p = GPUNET_VERBS_PARAM_INIT;
	struct offer offer = { (uintptr_t)shelf, gpunet_verbs_rkey(e->mr), sizeof(*shelf) };
	int rc = gpunet_verbs_next(l, -1, &e->conn);

	p.private_data = &offer;
	p.private_length = sizeof(offer);
	if (!rc)
		rc = make_qp(e);
	if (!rc)
		rc = gpunet_verbs_accept(e->conn, &p, PATIENCE_MS);
	/* The client does the rest, without us. */
	if (!rc)
		rc = gpunet_verbs_wait_end(e->conn, -1);
	return rc;
}

static int server(const struct addrinfo *at)
{
	struct gpunet_verbs_options opt = GPUNET_VERBS_OPTIONS_INIT;
	gpunet_verbs_listener_t *l = NULL;
	struct shelf shelf = { 0 };
	struct end e = { 0 };
	int rc;

	opt.local = at->ai_addr;
	opt.local_len = at->ai_addrlen;
	rc = gpunet_verbs_open(&e.v, &opt);
	if (!rc)
		rc = equip(&e, &shelf, sizeof(shelf),
			   GPUNET_VERBS_LOCAL_WRITE | GPUNET_VERBS_REMOTE_WRITE |
				   GPUNET_VERBS_REMOTE_READ | GPUNET_VERBS_REMOTE_ATOMIC);
	if (!rc)
		rc = gpunet_verbs_listen(e.v, at->ai_addr, at->ai_addrlen, 1, &l);
	if (!rc)
		rc = announce(l);
	if (!rc)
		rc = serve_one(&e, l, &shelf);
	if (!rc)
		printf("%" PRIu64 " visits, and the text \"%.*s\"\n", shelf.visits, TEXT_MAX - 1,
		       shelf.text);
	if (l)
		gpunet_verbs_listener_close(l);
	end_close(&e);
	return rc ? failed("server", rc) : 0;
}

/* ---- the client ------------------------------------------------------------------------------------------------------------- */

/* What the client works in. */
struct desk {
	uint64_t found;
	char out[TEXT_MAX], in[TEXT_MAX];
};

/* Posts one work request and waits until it has completed. */
static int do_one(struct end *e, struct gpunet_verbs_send_wr *wr, void *here, uint32_t length)
{
	struct gpunet_verbs_sge sge = { (uintptr_t)here, length, gpunet_verbs_lkey(e->mr) };
	struct gpunet_verbs_wc wc;
	int rc;

	wr->flags = GPUNET_VERBS_SIGNALED;
	wr->sge = &sge;
	wr->nsge = 1;
	rc = gpunet_verbs_post_send(e->qp, wr, 1);
	if (rc < 0)
		return rc;
	rc = gpunet_verbs_poll(e->cq, &wc, 1, PATIENCE_MS);
	if (rc < 0)
		return rc;
	if (rc == 0)
		return -ETIMEDOUT;
	if (wc.status)
		fprintf(stderr, "%s\n", gpunet_verbs_status_text(wc.status));
	return wc.status ? -EIO : 0;
}

static int visit(struct end *e, const struct offer *offer, struct desk *d)
{
	struct gpunet_verbs_send_wr wr = { .opcode = GPUNET_VERBS_WRITE, .rkey = offer->rkey };
	int rc;

	wr.remote_addr = offer->addr + offsetof(struct shelf, text);
	rc = do_one(e, &wr, d->out, TEXT_MAX);
	wr.opcode = GPUNET_VERBS_READ;
	if (!rc)
		rc = do_one(e, &wr, d->in, TEXT_MAX);
	wr.opcode = GPUNET_VERBS_FETCH_ADD;
	wr.remote_addr = offer->addr + offsetof(struct shelf, visits);
	wr.swap_add = 1;
	if (!rc)
		rc = do_one(e, &wr, &d->found, sizeof(d->found));
	return rc;
}

static int connect_to(struct end *e, const struct addrinfo *to, struct offer *offer)
{
	int rc = gpunet_verbs_dial(e->v, to->ai_addr, to->ai_addrlen, PATIENCE_MS, &e->conn);

	if (!rc)
		rc = make_qp(e);
	if (!rc)
		rc = gpunet_verbs_connect(e->conn, NULL, PATIENCE_MS);
	/* The connection manager may have filled up what was sent. */
	if (!rc && gpunet_verbs_peer_data(e->conn, offer, sizeof(*offer)) < (int)sizeof(*offer))
		rc = -EPROTO;
	return rc;
}

static int client(const struct addrinfo *to, const char *text)
{
	struct gpunet_verbs_options opt = GPUNET_VERBS_OPTIONS_INIT;
	struct desk d = { 0 };
	struct offer offer;
	struct end e = { 0 };
	int rc;

	opt.toward = to->ai_addr;
	opt.toward_len = to->ai_addrlen;
	snprintf(d.out, sizeof(d.out), "%s", text);
	rc = gpunet_verbs_open(&e.v, &opt);
	if (!rc)
		rc = equip(&e, &d, sizeof(d), GPUNET_VERBS_LOCAL_WRITE);
	if (!rc)
		rc = connect_to(&e, to, &offer);
	if (!rc)
		rc = visit(&e, &offer, &d);
	if (!rc)
		printf("wrote and read \"%s\"; %" PRIu64 " visits before\n", d.in, d.found);
	if (!rc)
		rc = gpunet_verbs_disconnect(e.conn);
	end_close(&e);
	return rc ? failed("client", rc) : 0;
}

int main(int argc, char **argv)
{
	int is_server = argc >= 3 && argc <= 4 && strcmp(argv[1], "server") == 0;
	int is_client = argc >= 4 && argc <= 5 && strcmp(argv[1], "client") == 0;
	int help = argc == 2 && strcmp(argv[1], "--help") == 0;
	struct addrinfo *a;
	int code;

	if (!is_server && !is_client) {
		fputs("usage: example-verbs server ADDRESS [PORT]\n"
		      "       example-verbs client ADDRESS PORT [TEXT]\n",
		      help ? stdout : stderr);
		return help ? 0 : 2;
	}
	a = look_up(argv[2], argc > 3 ? argv[3] : "0");
	if (!a)
		return 1;
	code = is_server ? server(a) : client(a, argc > 4 ? argv[4] : "hello");
	freeaddrinfo(a);
	return code;
}
