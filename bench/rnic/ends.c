/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes with the software RNIC, each on a loopback address of its own; both spin. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gpunet/gpunet.h>

#include "rnic.h"

#define BATCH 64

/* What the ends tell each other; then the addresses of the queue pairs follow. */
struct hello {
	uint64_t addr;
	uint32_t rkey;
};

/* What the client asks of its server, besides being there: to answer `count` WRITEs of `size` bytes. */
struct order {
	uint32_t size, count;
};

static void check(int rc, const char *what)
{
	if (rc)
		die("%s: %s; %s", what, strerror(-rc), gpunet_last_error());
}

static void put(int fd, const void *data, size_t n)
{
	if (send(fd, data, n, MSG_NOSIGNAL) != (ssize_t)n)
		die("the other process is gone");
}

static void get(int fd, void *data, size_t n)
{
	if (recv(fd, data, n, MSG_WAITALL) != (ssize_t)n)
		die("the other process is gone");
}

static void open_device(struct client *c, const char *host)
{
	struct gpunet_verbs_options o = GPUNET_VERBS_OPTIONS_INIT;
	struct sockaddr_in a = { .sin_family = AF_INET };

	inet_pton(AF_INET, host, &a.sin_addr);
	o.provider = "rnic";
	o.local = (struct sockaddr *)&a;
	o.local_len = sizeof(a);
	check(gpunet_verbs_open(&c->v, &o), host);
	c->mem = aligned_alloc(4096, MEMORY);
	if (!c->mem)
		die("memory is short");
	memset(c->mem, 0, MEMORY);
	check(gpunet_verbs_reg(c->v, c->mem, MEMORY,
			       GPUNET_VERBS_LOCAL_WRITE | GPUNET_VERBS_REMOTE_WRITE, &c->mr),
	      "memory");
	check(gpunet_verbs_cq_create(c->v, 4096, &c->cq), "completion queue");
}

static void make_qps(struct client *c, unsigned n)
{
	struct gpunet_verbs_qp_init init = { .size = sizeof(init),
					     .send_cq = c->cq,
					     .recv_cq = c->cq,
					     .max_send_wr = DEPTH,
					     .max_inline = 64 };

	for (c->qps = 0; c->qps < n; c->qps++)
		check(gpunet_verbs_qp_create(c->v, NULL, &init, &c->qp[c->qps]), "queue pair");
}

static void meet(struct client *c, const struct setup *s)
{
	struct hello h = { (uintptr_t)c->mem, gpunet_verbs_rkey(c->mr) };
	struct gpunet_verbs_param p = GPUNET_VERBS_PARAM_INIT;
	struct gpunet_verbs_address a = { .size = sizeof(a) };
	unsigned i;

	p.ack_timeout = s->ack_timeout;
	put(c->fd, &h, sizeof(h));
	get(c->fd, &h, sizeof(h));
	c->addr = h.addr;
	c->rkey = h.rkey;
	for (i = 0; i < c->qps; i++) {
		check(gpunet_verbs_qp_address(c->qp[i], &a), "address");
		put(c->fd, &a, sizeof(a));
		get(c->fd, &a, sizeof(a));
		check(gpunet_verbs_qp_connect(c->qp[i], &a, &p), "connection");
	}
	/* Both are connected. */
	put(c->fd, &h, 1);
	get(c->fd, &h, 1);
}

static void free_end(struct client *c)
{
	while (c->qps)
		gpunet_verbs_qp_destroy(c->qp[--c->qps]);
	gpunet_verbs_cq_destroy(c->cq);
	gpunet_verbs_dereg(c->mr);
	gpunet_verbs_close(c->v);
	free(c->mem);
	close(c->fd);
}

/* Takes completions; how many. */
static int take(struct client *c, struct gpunet_verbs_wc *wc)
{
	int n = gpunet_verbs_poll(c->cq, wc, BATCH, 0), i;

	if (n < 0)
		die("poll: %s", strerror(-n));
	for (i = 0; i < n; i++) {
		if (wc[i].status)
			die("a work request has failed: %s",
			    gpunet_verbs_status_text(wc[i].status));
	}
	return n;
}

static struct gpunet_verbs_send_wr write_wr(const struct client *c,
					    const struct gpunet_verbs_sge *sge)
{
	return (struct gpunet_verbs_send_wr){ .opcode = GPUNET_VERBS_WRITE,
					      .sge = sge,
					      .nsge = 1,
					      .remote_addr = c->addr,
					      .rkey = c->rkey };
}

/* ---- ping and pong --------------------------------------------------------------------------------------------------------- */

/* The n-th message's last byte is n. The data goes from the upper half of the memory to the peer's lower half. */
static void ping(struct client *c, unsigned size, unsigned n)
{
	struct gpunet_verbs_sge sge = { (uintptr_t)c->mem + MEMORY / 2, size,
					gpunet_verbs_lkey(c->mr) };
	struct gpunet_verbs_send_wr wr = write_wr(c, &sge);

	wr.flags = GPUNET_VERBS_SIGNALED | (size <= 64 ? GPUNET_VERBS_INLINE : 0);
	c->mem[MEMORY / 2 + size - 1] = (uint8_t)n;
	if (gpunet_verbs_post_send(c->qp[0], &wr, 1) != 1)
		die("a message could not be posted");
}

static void pong(struct client *c, unsigned size, unsigned n)
{
	struct gpunet_verbs_wc wc[BATCH];

	while (__atomic_load_n(&c->mem[size - 1], __ATOMIC_ACQUIRE) != (uint8_t)n)
		take(c, wc);
}

double client_ping(struct client *c, unsigned size, unsigned count)
{
	struct order o = { size, count };
	double *us = malloc(count * sizeof(*us)), from = 0, to, half;
	unsigned i;

	if (!us)
		die("memory is short");
	c->mem[size - 1] = 0;
	put(c->fd, &o, sizeof(o));
	get(c->fd, &o, 1);
	for (i = 0; i < count; i++) {
		from = now_us();
		ping(c, size, i + 1);
		pong(c, size, i + 1);
		to = now_us();
		us[i] = (to - from) / 2;
	}
	half = median(us, count);
	free(us);
	return half;
}

/* ---- the server ------------------------------------------------------------------------------------------------------------ */

static void serve(struct client *c)
{
	struct gpunet_verbs_wc wc[BATCH];
	struct order o;
	ssize_t n;
	unsigned i;

	for (;;) {
		for (i = 0; i < 500; i++)
			take(c, wc);
		n = recv(c->fd, &o, sizeof(o), MSG_DONTWAIT);
		if (n == 0)
			return;
		if (n != sizeof(o))
			continue;
		c->mem[o.size - 1] = 0;
		put(c->fd, "r", 1);
		for (i = 0; i < o.count; i++) {
			pong(c, o.size, i + 1);
			ping(c, o.size, i + 1);
		}
	}
}

static void server(int fd, const struct setup *s)
{
	struct client c = { .fd = fd };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	open_device(&c, "127.0.0.2");
	make_qps(&c, s->qps);
	meet(&c, s);
	serve(&c);
	free_end(&c);
	_exit(0);
}

void client_open(struct client *c, const struct setup *s)
{
	char text[16];
	int fd[2];

	memset(c, 0, sizeof(*c));
	snprintf(text, sizeof(text), "%u", s->loss);
	setenv("GPUNET_RNIC_LOSS", text, 1);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
		die("no pair of sockets: %s", strerror(errno));
	c->pid = fork();
	if (c->pid < 0)
		die("no process: %s", strerror(errno));
	if (c->pid == 0) {
		close(fd[0]);
		server(fd[1], s);
	}
	close(fd[1]);
	c->fd = fd[0];
	open_device(c, "127.0.0.1");
	make_qps(c, s->qps);
	meet(c, s);
}

void client_close(struct client *c)
{
	int status;

	free_end(c);
	if (waitpid(c->pid, &status, 0) != c->pid || status)
		die("the server process has failed");
}

/* ---- writes ---------------------------------------------------------------------------------------------------------------- */

/* The queue pairs' work: posted and acknowledged, in messages. */
struct work {
	unsigned posted[QPS_MAX], done[QPS_MAX];
};

/* The last of a batch completes, and tells whose and how far. */
static unsigned post_batch(struct client *c, struct work *w, unsigned q,
			   struct gpunet_verbs_send_wr *wr, unsigned n)
{
	unsigned room = DEPTH - (w->posted[q] - w->done[q]);
	int got;

	if (room < n)
		return 0;
	wr[n - 1].flags = GPUNET_VERBS_SIGNALED;
	wr[n - 1].wr_id = (uint64_t)q << 32 | (w->posted[q] + n);
	got = gpunet_verbs_post_send(c->qp[q], wr, (int)n);
	wr[n - 1].flags = 0;
	if (got == -EAGAIN)
		return 0;
	if (got != (int)n)
		die("posting: %s", got < 0 ? strerror(-got) : "a batch was taken in part");
	w->posted[q] += n;
	return n;
}

static unsigned reap(struct client *c, struct work *w)
{
	struct gpunet_verbs_wc wc[BATCH];
	unsigned all = 0;
	int n = take(c, wc), i;

	for (i = 0; i < n; i++) {
		unsigned q = (unsigned)(wc[i].wr_id >> 32), upto = (unsigned)wc[i].wr_id;

		all += upto - w->done[q];
		w->done[q] = upto;
	}
	return all;
}

double client_writes(struct client *c, unsigned size, unsigned count, unsigned batch, unsigned busy)
{
	struct gpunet_verbs_sge sge = { (uintptr_t)c->mem, size, gpunet_verbs_lkey(c->mr) };
	static struct work w;
	struct gpunet_verbs_send_wr wr[BATCH];
	unsigned posted = 0, done = 0, q, i, n, turn;
	double from = now_us();

	memset(&w, 0, sizeof(w));
	for (i = 0; i < BATCH; i++)
		wr[i] = write_wr(c, &sge);
	while (done < count) {
		/* Until all queues are full. */
		do {
			turn = 0;
			for (q = 0; q < busy && posted < count; q++) {
				n = count - posted < batch ? count - posted : batch;
				turn += n = post_batch(c, &w, q, wr, n);
				posted += n;
			}
		} while (turn);
		done += reap(c, &w);
	}
	return (now_us() - from) / 1e6;
}
