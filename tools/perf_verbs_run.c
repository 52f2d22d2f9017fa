/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet perf over RDMA: the runs, in perftest's way, and what is printed. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "perf_verbs.h"
#include "tool.h"

#define BATCH 64                                /* completions and work requests at once */
#define IS_RECV (UINT64_C(1) << 63)             /* in a wr_id */
#define PROGRESS_NS UINT64_C(200000000)         /* between two lines of progress */
#define PATIENCE_NS (30 * UINT64_C(1000000000)) /* without anything */

static const struct {
	const char *name;
	bool latency, both; /* both sides are active */
	enum gpunet_verbs_opcode opcode;
} kinds[PERFTEST_KINDS] = {
	[PERFTEST_WRITE_BW] = { "write_bw", false, false, GPUNET_VERBS_WRITE },
	[PERFTEST_WRITE_LAT] = { "write_lat", true, true, GPUNET_VERBS_WRITE },
	[PERFTEST_READ_BW] = { "read_bw", false, false, GPUNET_VERBS_READ },
	[PERFTEST_READ_LAT] = { "read_lat", true, false, GPUNET_VERBS_READ },
	[PERFTEST_SEND_BW] = { "send_bw", false, true, GPUNET_VERBS_SEND },
	[PERFTEST_SEND_LAT] = { "send_lat", true, true, GPUNET_VERBS_SEND },
	[PERFTEST_ATOMIC_BW] = { "atomic_bw", false, false, GPUNET_VERBS_FETCH_ADD },
};

const char *pv_name(enum perftest_kind kind)
{
	return kinds[kind].name;
}

bool pv_is_latency(enum perftest_kind kind)
{
	return kinds[kind].latency;
}

bool pv_is_active(const struct pv *p)
{
	return p->client || kinds[p->o.kind].both;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- what all runs do -------------------------------------------------------------------------------------------------------- */

/* How far a run is, for people, and whether it stands still. */
struct course {
	uint64_t looked, moved, done;
	unsigned turns;
};

static int look(struct pv *p, struct course *c, uint64_t done)
{
	uint64_t now;

	/* Reading the clock costs more than a turn. */
	if (++c->turns & 255)
		return TOOL_DONE;
	now = now_ns();
	if (done != c->done || !c->moved)
		c->moved = now;
	c->done = done;
	if (stop_asked())
		return tool_fail("interrupted");
	if (now - c->moved > PATIENCE_NS)
		return tool_fail("nothing has come for %llu s: %llu of %u were done",
				 (unsigned long long)(PATIENCE_NS / 1000000000),
				 (unsigned long long)done, p->o.count);
	if (now - c->looked > PROGRESS_NS && isatty(STDERR_FILENO)) {
		fprintf(stderr, "\r%s, %u bytes: %llu of %u\033[K", pv_name(p->o.kind), p->o.size,
			(unsigned long long)done, p->o.count);
		c->looked = now;
	}
	return TOOL_DONE;
}

static int failed_wc(const struct pv *p, const struct gpunet_verbs_wc *wc)
{
	bool recv = wc->wr_id & IS_RECV;

	return tool_fail("a %s of %s has failed: %s", recv ? "receive" : "work request",
			 pv_name(p->o.kind), gpunet_verbs_status_text(wc->status));
}

/* Takes completions: how many, or a negative exit code. */
static int take(struct pv *p, struct gpunet_verbs_wc *wc, int n)
{
	int got = gpunet_verbs_poll(p->cq, wc, n, 0), i;

	if (got < 0)
		return -tool_fail("cannot poll: %s", strerror(-got));
	for (i = 0; i < got; i++) {
		if (wc[i].status)
			return -failed_wc(p, &wc[i]);
	}
	return got;
}

int pv_idle(struct pv *p)
{
	struct gpunet_verbs_wc wc;
	int got = take(p, &wc, 1);

	return got < 0 ? -got : TOOL_DONE;
}

static struct gpunet_verbs_sge local(const struct pv *p, size_t at)
{
	return (struct gpunet_verbs_sge){ (uintptr_t)p->mem + at, p->o.size,
					  gpunet_verbs_lkey(p->mr) };
}

/* n more, but no more than messages come: the last ones have their receives already. */
static int post_receives(struct pv *p, unsigned n)
{
	struct gpunet_verbs_sge sge = local(p, p->half);
	struct gpunet_verbs_recv_wr wr[BATCH];
	unsigned i, some;
	int got;

	for (i = 0; i < BATCH; i++)
		wr[i] = (struct gpunet_verbs_recv_wr){ IS_RECV, &sge, 1, 0 };
	if (n > p->o.count - p->receives)
		n = p->o.count - p->receives;
	for (; n; n -= some) {
		some = n < BATCH ? n : BATCH;
		got = gpunet_verbs_post_recv(p->qp, wr, (int)some);
		if (got != (int)some)
			return tool_fail("cannot post receives: %s",
					 got < 0 ? strerror(-got) : "the queue is full");
		p->receives += some;
	}
	return TOOL_DONE;
}

int pv_receives(struct pv *p)
{
	bool receives =
		p->o.kind == PERFTEST_SEND_LAT || (p->o.kind == PERFTEST_SEND_BW && !p->client);

	return receives ? post_receives(p, p->recv_depth) : TOOL_DONE;
}

static void fill_wr(const struct pv *p, struct gpunet_verbs_send_wr *wr,
		    const struct gpunet_verbs_sge *sge, uint64_t id, bool signaled)
{
	*wr = (struct gpunet_verbs_send_wr){ .wr_id = id,
					     .opcode = kinds[p->o.kind].opcode,
					     .flags = signaled ? GPUNET_VERBS_SIGNALED : 0,
					     .sge = sge,
					     .nsge = 1,
					     .remote_addr = p->theirs.addr,
					     .rkey = p->theirs.rkey,
					     .swap_add = 1 };
}

/* ---- bandwidth ------------------------------------------------------------------------------------------------------------- */

/* The best rate over at least a queue's depth of messages. */
struct peak {
	uint64_t at, done;
	double best; /* messages a nanosecond */
};

static void peak_look(const struct pv *p, struct peak *k, uint64_t done)
{
	uint64_t now;
	double rate;

	if (done - k->done < p->depth)
		return;
	now = now_ns();
	rate = now > k->at ? (double)(done - k->done) / (double)(now - k->at) : 0;
	k->best = rate > k->best ? rate : k->best;
	k->at = now;
	k->done = done;
}

static void set_result(struct pv *p, const struct peak *k, uint64_t ns)
{
	double rate = (double)p->o.count / (double)(ns ? ns : 1); /* a nanosecond */
	double best = k->best > rate ? k->best : rate, mib = (double)p->o.size / 1048576 * 1e9;

	p->result = (struct perftest_report){ p->o.size, p->o.count, best * mib, rate * mib,
					      rate * 1e3 };
}

/* Posts what there is room for; how many are posted now, or a negative exit code. */
static int post_more(struct pv *p, const struct gpunet_verbs_sge *sge, unsigned posted,
		     unsigned done, unsigned every)
{
	unsigned room = p->depth - (posted - done), left = p->o.count - posted, n, i;
	struct gpunet_verbs_send_wr wr[BATCH];
	int got;

	n = room < left ? room : left;
	n = n < p->o.list ? n : p->o.list;
	for (i = 0; i < n; i++) {
		unsigned next = posted + i + 1;

		fill_wr(p, &wr[i], sge, next, next % every == 0 || next == p->o.count);
	}
	got = n ? gpunet_verbs_post_send(p->qp, wr, (int)n) : 0;
	if (got < 0 && got != -EAGAIN)
		return -tool_fail("cannot post: %s", strerror(-got));
	return got > 0 ? got : 0;
}

static int send_all(struct pv *p)
{
	unsigned every = p->depth >= 400 ? 100 : p->depth >= 4 ? p->depth / 4 : 1;
	struct gpunet_verbs_sge sge = local(p, 0);
	struct gpunet_verbs_wc wc[BATCH];
	unsigned posted = 0, done = 0;
	struct course course = { 0 };
	struct peak peak = { 0 };
	uint64_t begin = now_ns();
	int n, rc;

	peak.at = begin;
	while (done < p->o.count) {
		/* As long as there is room: only then is a completion worth a look. */
		while ((n = post_more(p, &sge, posted, done, every)) > 0)
			posted += (unsigned)n;
		if (n < 0)
			return -n;
		n = take(p, wc, BATCH);
		if (n < 0)
			return -n;
		if (n)
			done = (unsigned)wc[n - 1].wr_id;
		peak_look(p, &peak, done);
		rc = look(p, &course, done);
		if (rc != TOOL_DONE)
			return rc;
	}
	set_result(p, &peak, now_ns() - begin);
	return TOOL_DONE;
}

static int receive_all(struct pv *p)
{
	struct gpunet_verbs_wc wc[BATCH];
	struct course course = { 0 };
	struct peak peak = { 0 };
	unsigned done = 0;
	uint64_t begin = 0;
	int n, rc;

	while (done < p->o.count) {
		n = take(p, wc, BATCH);
		if (n < 0)
			return -n;
		if (n && !begin)
			begin = peak.at = now_ns();
		done += (unsigned)n;
		rc = post_receives(p, (unsigned)n);
		peak_look(p, &peak, done);
		if (rc == TOOL_DONE)
			rc = look(p, &course, done);
		if (rc != TOOL_DONE)
			return rc;
	}
	set_result(p, &peak, now_ns() - begin);
	return TOOL_DONE;
}

/* ---- latency --------------------------------------------------------------------------------------------------------------- */

/* What ping and pong count. */
struct rally {
	unsigned sent, acked, heard;
	struct course course;
};

static int rally_take(struct pv *p, struct rally *r)
{
	struct gpunet_verbs_wc wc[BATCH];
	unsigned recvs = 0;
	int n = take(p, wc, BATCH), i;

	for (i = 0; i < n; i++)
		recvs += wc[i].wr_id & IS_RECV ? 1 : 0;
	if (n < 0)
		return -n;
	r->acked += (unsigned)n - recvs;
	r->heard += recvs;
	return post_receives(p, recvs);
}

static int rally_send(struct pv *p, struct rally *r)
{
	struct gpunet_verbs_sge sge = local(p, 0);
	struct gpunet_verbs_send_wr wr;
	int rc;

	p->ns[r->sent] = now_ns();
	p->mem[p->o.size - 1] = (uint8_t)++r->sent;
	fill_wr(p, &wr, &sge, r->sent, true);
	if (p->o.size <= p->max_inline && wr.opcode != GPUNET_VERBS_READ)
		wr.flags |= GPUNET_VERBS_INLINE;
	/* Acknowledgements may lag behind answers. */
	do {
		rc = gpunet_verbs_post_send(p->qp, &wr, 1);
		if (rc == -EAGAIN && rally_take(p, r) != TOOL_DONE)
			return TOOL_FAILED;
	} while (rc == -EAGAIN && !stop_asked());
	return rc == 1 ? TOOL_DONE : tool_fail("cannot post: %s", strerror(-rc));
}

/* WRITE: the last byte of the peer's n-th message is n. */
static bool written(const struct pv *p, unsigned n)
{
	return __atomic_load_n(p->mem + p->half + p->o.size - 1, __ATOMIC_ACQUIRE) == (uint8_t)n;
}

/* The peer's next message. Looking for completions makes a software device work. */
static int rally_hear(struct pv *p, struct rally *r)
{
	bool write = p->o.kind == PERFTEST_WRITE_LAT;
	unsigned want = r->heard + 1;
	int rc = TOOL_DONE;

	while (rc == TOOL_DONE && (write ? !written(p, want) : r->heard < want)) {
		rc = rally_take(p, r);
		if (rc == TOOL_DONE)
			rc = look(p, &r->course, r->heard);
	}
	if (write && rc == TOOL_DONE)
		r->heard = want;
	return rc;
}

/* Who begins is perftest's choice: the server of WRITE, the client of SEND. */
static int ping_pong(struct pv *p)
{
	bool begins = (p->o.kind == PERFTEST_WRITE_LAT) != p->client;
	struct rally r = { 0 };
	int rc = TOOL_DONE;

	while (rc == TOOL_DONE && (r.sent < p->o.count || r.heard < p->o.count)) {
		if (r.heard < p->o.count && (r.sent || !begins))
			rc = rally_hear(p, &r);
		if (rc == TOOL_DONE && r.sent < p->o.count)
			rc = rally_send(p, &r);
	}
	p->ns[p->o.count] = now_ns();
	while (rc == TOOL_DONE && r.acked < p->o.count) {
		rc = rally_take(p, &r);
		if (rc == TOOL_DONE)
			rc = look(p, &r.course, r.heard + r.acked);
	}
	return rc;
}

static int read_one_by_one(struct pv *p)
{
	struct rally r = { 0 };
	int rc = TOOL_DONE;

	while (rc == TOOL_DONE && r.acked < p->o.count) {
		if (r.sent == r.acked)
			rc = rally_send(p, &r);
		else
			rc = rally_take(p, &r);
		if (rc == TOOL_DONE)
			rc = look(p, &r.course, r.acked);
	}
	p->ns[p->o.count] = now_ns();
	return rc;
}

int pv_run(struct pv *p)
{
	int rc;

	if (pv_is_latency(p->o.kind))
		rc = p->o.kind == PERFTEST_READ_LAT ? read_one_by_one(p) : ping_pong(p);
	else
		rc = p->client ? send_all(p) : receive_all(p);
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	return rc;
}

/* ---- what is printed ------------------------------------------------------------------------------------------------------- */

void pv_header(const struct pv *p)
{
	if (p->o.json || (pv_is_latency(p->o.kind) && !pv_is_active(p)))
		return;
	printf(" %s by %s, %s, path MTU %u, send queue %u\n", pv_name(p->o.kind), p->info.provider,
	       p->info.name, p->mtu, p->depth);
	if (pv_is_latency(p->o.kind))
		puts(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    "
		     "t_avg[usec]    t_stdev[usec]   99% percentile[usec]   "
		     "99.9% percentile[usec]");
	else
		puts(" #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   "
		     "MsgRate[Mpps]");
	fflush(stdout);
}

static void json_begin(const struct pv *p)
{
	putchar('{');
	json_member(true, "test", pv_name(p->o.kind));
	json_member(false, "provider", p->info.provider);
	json_member(false, "device", p->info.name);
	json_member(false, "role", p->client ? "client" : "server");
	printf(",\"size\":%u,\"iterations\":%u,\"mtu\":%u,\"tx_depth\":%u", p->o.size, p->o.count,
	       p->mtu, p->depth);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static int report_latency(const struct pv *p)
{
	/* A READ goes there and back; of ping and pong it is one way. */
	double part = p->o.kind == PERFTEST_READ_LAT ? 1e3 : 2e3, sum = 0, squares = 0, avg;
	unsigned n = p->o.count, i;
	double *us = malloc(n * sizeof(*us));

	if (!us)
		return tool_fail("memory is short");
	for (i = 0; i < n; i++) {
		us[i] = (double)(p->ns[i + 1] - p->ns[i]) / part;
		sum += us[i];
	}
	avg = sum / n;
	for (i = 0; i < n; i++)
		squares += (us[i] - avg) * (us[i] - avg);
	qsort(us, n, sizeof(*us), compare);
	if (p->o.json) {
		json_begin(p);
		printf(",\"t_min_us\":%.3f,\"t_max_us\":%.3f,\"t_typical_us\":%.3f,\"t_avg_us\":%.3f,"
		       "\"t_stdev_us\":%.3f,\"t_99_us\":%.3f,\"t_999_us\":%.3f}\n",
		       us[0], us[n - 1], us[n / 2], avg, sqrt(squares / n),
		       us[(uint64_t)n * 99 / 100], us[(uint64_t)n * 999 / 1000]);
	} else {
		printf(" %-7u %-14u %-14.2f %-12.2f %-16.2f %-14.2f %-15.2f %-22.2f %.2f\n",
		       p->o.size, n, us[0], us[n - 1], us[n / 2], avg, sqrt(squares / n),
		       us[(uint64_t)n * 99 / 100], us[(uint64_t)n * 999 / 1000]);
	}
	free(us);
	return TOOL_DONE;
}

static void report_bandwidth(const struct pv *p)
{
	const struct perftest_report *r = &p->result;

	if (p->o.json) {
		json_begin(p);
		printf(",\"bw_peak_mib_s\":%.2f,\"bw_avg_mib_s\":%.2f,\"msg_rate_mpps\":%.6f}\n",
		       r->peak, r->average, r->rate);
	} else {
		printf(" %-10llu %-14llu %-19.2f %-21.2f %.6f\n", (unsigned long long)r->size,
		       (unsigned long long)r->iterations, r->peak, r->average, r->rate);
	}
}

int pv_report(struct pv *p)
{
	int rc = TOOL_DONE;

	if (!pv_is_latency(p->o.kind))
		report_bandwidth(p);
	else if (pv_is_active(p))
		rc = report_latency(p);
	fflush(stdout);
	return rc;
}
