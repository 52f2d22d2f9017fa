/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet perf over RDMA: the runs, in perftest's way, and what is printed. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "perf_verbs.h"
#include "tool.h"

#define BATCH 64                                /* completions and work requests at once */
#define IS_RECV (UINT64_C(1) << 63)             /* in a wr_id; below that the queue pair, */
#define QP_SHIFT 40                             /* and how many were posted on it by then */
#define PROGRESS_NS UINT64_C(200000000)         /* between two lines of progress */
#define PATIENCE_NS (30 * UINT64_C(1000000000)) /* without anything, */
#define QUIET_NS UINT64_C(1000000000)           /* and before a peer that has left is missed */

/* perftest's exchange does not compare them: sides that differ find out by what fails. */
#define UNEQUAL "; both sides need the same test, --size and --count"

/* Of a completion, as libibverbs numbers them: how requests end that are too long, or at memory that is not there. */
enum { LOCAL_LENGTH = 1, REMOTE_INVALID = 9, REMOTE_ACCESS = 10 };

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
	return p->client || p->o.both || kinds[p->o.kind].both;
}

bool pv_is_send(const struct pv *p)
{
	return kinds[p->o.kind].opcode == GPUNET_VERBS_SEND;
}

/* Messages of a direction. */
static uint64_t total(const struct pv *p)
{
	return (uint64_t)p->o.count * p->o.qps;
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

/* Who waits for the peer's messages alone hears of its end by TCP. */
static bool has_left(const struct pv *p)
{
	struct pollfd fd = { .fd = p->tcp, .events = POLLRDHUP };

	return poll(&fd, 1, 0) > 0;
}

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
	if (now - c->moved > QUIET_NS && has_left(p))
		return tool_fail("the peer has ended: %llu of %llu were done",
				 (unsigned long long)done, (unsigned long long)total(p));
	if (now - c->moved > PATIENCE_NS)
		return tool_fail("nothing has come for %llu s: %llu of %llu were done" UNEQUAL,
				 (unsigned long long)(PATIENCE_NS / 1000000000),
				 (unsigned long long)done, (unsigned long long)total(p));
	if (now - c->looked > PROGRESS_NS && isatty(STDERR_FILENO)) {
		fprintf(stderr, "\r%s, %u bytes: %llu of %llu\033[K", pv_name(p->o.kind), p->o.size,
			(unsigned long long)done, (unsigned long long)total(p));
		c->looked = now;
	}
	return TOOL_DONE;
}

static int failed_wc(const struct pv *p, const struct gpunet_verbs_wc *wc)
{
	bool recv = wc->wr_id & IS_RECV;
	bool unequal = wc->status == LOCAL_LENGTH || wc->status == REMOTE_INVALID ||
		       wc->status == REMOTE_ACCESS;

	return tool_fail("a %s of %s has failed: %s%s", recv ? "receive" : "work request",
			 pv_name(p->o.kind), gpunet_verbs_status_text(wc->status),
			 unequal ? UNEQUAL : "");
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

/* n more on a queue pair, but no more than messages come: the last ones have their receives already. */
static int post_receives(struct pv *p, unsigned q, unsigned n)
{
	struct gpunet_verbs_sge sge = local(p, p->half);
	struct gpunet_verbs_recv_wr wr[BATCH];
	unsigned i, some;
	int got;

	for (i = 0; i < BATCH; i++)
		wr[i] = (struct gpunet_verbs_recv_wr){ IS_RECV | (uint64_t)q << QP_SHIFT, &sge, 1,
						       0 };
	if (n > p->o.count - p->receives[q])
		n = p->o.count - p->receives[q];
	for (; n; n -= some) {
		some = n < BATCH ? n : BATCH;
		got = gpunet_verbs_post_recv(p->qp[q], wr, (int)some);
		if (got != (int)some)
			return tool_fail("cannot post receives: %s",
					 got < 0 ? strerror(-got) : "the queue is full");
		p->receives[q] += some;
	}
	return TOOL_DONE;
}

/* Whether messages come that take a receive. */
static bool hears(const struct pv *p)
{
	return p->o.kind == PERFTEST_SEND_LAT ||
	       (p->o.kind == PERFTEST_SEND_BW && (!p->client || p->o.both));
}

int pv_receives(struct pv *p)
{
	int rc = TOOL_DONE;
	unsigned q;

	for (q = 0; q < p->o.qps && hears(p) && rc == TOOL_DONE; q++) {
		p->receives[q] = 0;
		rc = post_receives(p, q, p->recv_depth);
	}
	return rc;
}

static void fill_wr(const struct pv *p, unsigned q, struct gpunet_verbs_send_wr *wr,
		    const struct gpunet_verbs_sge *sge, uint64_t posted, bool signaled)
{
	*wr = (struct gpunet_verbs_send_wr){ .wr_id = (uint64_t)q << QP_SHIFT | posted,
					     .opcode = kinds[p->o.kind].opcode,
					     .flags = signaled ? GPUNET_VERBS_SIGNALED : 0,
					     .sge = sge,
					     .nsge = 1,
					     .remote_addr = p->theirs[q].addr,
					     .rkey = p->theirs[q].rkey,
					     .swap_add = 1 };
}

/* ---- bandwidth ------------------------------------------------------------------------------------------------------------- */

/* The best rate over at least as many messages as all queues hold. */
struct peak {
	uint64_t at, done;
	double best; /* messages a nanosecond */
};

static void peak_look(const struct pv *p, struct peak *k, uint64_t done)
{
	uint64_t now;
	double rate;

	if (done - k->done < (uint64_t)p->depth * p->o.qps)
		return;
	now = now_ns();
	rate = now > k->at ? (double)(done - k->done) / (double)(now - k->at) : 0;
	k->best = rate > k->best ? rate : k->best;
	k->at = now;
	k->done = done;
}

static void set_result(struct pv *p, const struct peak *k, uint64_t ns)
{
	double rate = (double)total(p) / (double)(ns ? ns : 1); /* a nanosecond */
	double best = k->best > rate ? k->best : rate, mib = (double)p->o.size / 1048576 * 1e9;

	p->result =
		(struct perftest_report){ p->o.size, total(p), best * mib, rate * mib, rate * 1e3 };
}

/* A bandwidth's run. */
struct flow {
	unsigned posted[PERF_VERBS_QPS], acked[PERF_VERBS_QPS];
	uint64_t done, heard; /* of all: ours that are acknowledged, the peer's that have come */
	uint64_t begin;
	unsigned every; /* so many are acknowledged together */
	struct peak peak;
};

/* Posts what there is room for on a queue pair; how many are posted now, or a negative exit code. */
static int post_more(struct pv *p, unsigned q, struct flow *f)
{
	unsigned posted = f->posted[q], room = p->depth - (posted - f->acked[q]), n, i;
	struct gpunet_verbs_sge sge = local(p, 0);
	struct gpunet_verbs_send_wr wr[BATCH];
	int got;

	n = room < p->o.count - posted ? room : p->o.count - posted;
	n = n < p->o.list ? n : p->o.list;
	for (i = 0; i < n; i++) {
		unsigned next = posted + i + 1;

		fill_wr(p, q, &wr[i], &sge, next, next % f->every == 0 || next == p->o.count);
	}
	got = n ? gpunet_verbs_post_send(p->qp[q], wr, (int)n) : 0;
	if (got < 0 && got != -EAGAIN)
		return -tool_fail("cannot post: %s", strerror(-got));
	f->posted[q] += got > 0 ? (unsigned)got : 0;
	return got > 0 ? got : 0;
}

/* On all queue pairs, as long as there is room: only then is a completion worth a look. */
static int post_all(struct pv *p, struct flow *f)
{
	unsigned q;
	int n = 0;

	for (q = 0; q < p->o.qps && n >= 0; q++) {
		while ((n = post_more(p, q, f)) > 0)
			;
	}
	return n < 0 ? -n : TOOL_DONE;
}

static int settle(struct pv *p, struct flow *f)
{
	unsigned came[PERF_VERBS_QPS] = { 0 }, q;
	struct gpunet_verbs_wc wc[BATCH];
	int n = take(p, wc, BATCH), i, rc = TOOL_DONE;

	if (n < 0)
		return -n;
	if (n && !f->begin)
		f->begin = f->peak.at = now_ns();
	for (i = 0; i < n; i++) {
		unsigned upto = (unsigned)(wc[i].wr_id & ((UINT64_C(1) << QP_SHIFT) - 1));

		q = (unsigned)(wc[i].wr_id >> QP_SHIFT) & 0xffff;
		if (wc[i].wr_id & IS_RECV) {
			f->heard++;
			came[q]++;
		} else {
			f->done += upto - f->acked[q];
			f->acked[q] = upto;
		}
	}
	for (q = 0; q < p->o.qps && f->heard && rc == TOOL_DONE; q++)
		rc = post_receives(p, q, came[q]);
	return rc;
}

/* What this side has to do in a bandwidth's run: to send, to hear, or both. */
static int stream(struct pv *p)
{
	bool sends = p->client || p->o.both;
	uint64_t send = sends ? total(p) : 0, hear = hears(p) ? total(p) : 0;
	struct flow f = {
		.every = p->depth >= 400 ? 100
			 : p->depth >= 4 ? p->depth / 4
					 : 1,
		.begin = sends ? now_ns() : 0,
	};
	struct course course = { 0 };
	int rc = TOOL_DONE;

	f.peak.at = f.begin;
	while (rc == TOOL_DONE && (f.done < send || f.heard < hear)) {
		if (sends)
			rc = post_all(p, &f);
		if (rc == TOOL_DONE)
			rc = settle(p, &f);
		peak_look(p, &f.peak, sends ? f.done : f.heard);
		if (rc == TOOL_DONE)
			rc = look(p, &course, f.done + f.heard);
	}
	set_result(p, &f.peak, now_ns() - f.begin);
	return rc;
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
	return post_receives(p, 0, recvs);
}

static int rally_send(struct pv *p, struct rally *r)
{
	struct gpunet_verbs_sge sge = local(p, 0);
	struct gpunet_verbs_send_wr wr;
	int rc;

	p->ns[r->sent] = now_ns();
	p->mem[p->o.size - 1] = (uint8_t)++r->sent;
	fill_wr(p, 0, &wr, &sge, r->sent, true);
	if (p->o.size <= p->max_inline && wr.opcode != GPUNET_VERBS_READ)
		wr.flags |= GPUNET_VERBS_INLINE;
	/* Acknowledgements may lag behind answers. */
	do {
		rc = gpunet_verbs_post_send(p->qp[0], &wr, 1);
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
		rc = stream(p);
	if (isatty(STDERR_FILENO))
		fputs("\r\033[K", stderr);
	return rc;
}

/* ---- what is printed ------------------------------------------------------------------------------------------------------- */

void pv_header(const struct pv *p)
{
	if (p->o.json || (pv_is_latency(p->o.kind) && !pv_is_active(p)))
		return;
	printf(" %s by %s, %s, path MTU %u, send queue %u", pv_name(p->o.kind), p->info.provider,
	       p->info.name, p->mtu, p->depth);
	if (p->o.qps > 1)
		printf(", %u queue pairs", p->o.qps);
	puts(p->o.both ? ", both directions" : "");
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
	printf(",\"size\":%u,\"iterations\":%llu,\"mtu\":%u,\"tx_depth\":%u,\"qps\":%u,"
	       "\"bidirectional\":%s",
	       p->o.size, (unsigned long long)total(p), p->mtu, p->depth, p->o.qps,
	       p->o.both ? "true" : "false");
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
	struct perftest_report sum = p->result, *r = &sum;

	if (p->o.both) {
		sum.peak += p->peer.peak;
		sum.average += p->peer.average;
		sum.rate += p->peer.rate;
	}
	if (p->o.json) {
		json_begin(p);
		printf(",\"bw_peak_mib_s\":%.6g,\"bw_avg_mib_s\":%.6g,\"msg_rate_mpps\":%.6g}\n",
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
