/* SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <string.h>

#include "rnic.h"

#define REPS_MAX 16
#define BIG 65536u
#define SMALL 64u

static unsigned part(unsigned n)
{
	return opt.quick ? n / 5 : n;
}

static double gbs(double seconds, unsigned size, unsigned count)
{
	return (double)size * count / seconds / 1e9;
}

/* WRITE of 64 KiB against ucp_put_bw over TCP. */
void row_write_bw(void)
{
	const struct setup s = { .qps = 1 };
	unsigned count = part(30000), i;
	double ours[REPS_MAX], peer[REPS_MAX];
	struct figure f = {
		"WRITE bandwidth", "udp", BIG, 1, 0, "ucx_perftest ucp_put_bw, TCP", 0, "GB/s",
		">= 3 times",      false
	};
	struct ucx_result u = { .why = NULL };
	struct client c;

	for (i = 0; i < opt.reps; i++) {
		client_open(&c, &s);
		client_writes(&c, BIG, count / 10, 1, 1);
		ours[i] = gbs(client_writes(&c, BIG, count, 1, 1), BIG, count);
		client_close(&c);
		u = ucx_run("ucp_put_bw", BIG, count / 2);
		peer[i] = u.gbs;
	}
	f.ours = median(ours, opt.reps);
	f.peer = u.why ? NAN : median(peer, opt.reps);
	f.peer_name = u.why ? u.why : f.peer_name;
	f.good = f.ours >= 3 * f.peer;
	report(&f);
}

/* WRITE of 64 B there and back, halved, as ucp_put_lat counts it. */
void row_write_lat(void)
{
	const struct setup s = { .qps = 1 };
	unsigned count = part(20000), i;
	double ours[REPS_MAX], peer[REPS_MAX];
	struct figure f = {
		"WRITE latency", "udp", SMALL, 1, 0, "ucx_perftest ucp_put_lat, TCP", 0, "us",
		"<= 0.5",        false
	};
	struct ucx_result u = { .why = NULL };
	struct client c;

	for (i = 0; i < opt.reps; i++) {
		client_open(&c, &s);
		client_ping(&c, SMALL, count / 10);
		ours[i] = client_ping(&c, SMALL, count);
		client_close(&c);
		u = ucx_run("ucp_put_lat", SMALL, count);
		peer[i] = u.us;
	}
	f.ours = median(ours, opt.reps);
	f.peer = u.why ? NAN : median(peer, opt.reps);
	f.peer_name = u.why ? u.why : f.peer_name;
	f.good = f.ours <= 0.5 * f.peer;
	report(&f);
}

void row_msg_rate(void)
{
	const struct setup s = { .qps = 1 };
	unsigned count = part(5000000), i;
	double ours[REPS_MAX];
	struct figure f = {
		"WRITE message rate", "udp",  SMALL, 1, 0, "batches of 64, one thread a side", NAN,
		"million/s",          ">= 2", false
	};
	struct client c;

	client_open(&c, &s);
	client_writes(&c, SMALL, count / 10, 64, 1);
	for (i = 0; i < opt.reps; i++)
		ours[i] = count / client_writes(&c, SMALL, count, 64, 1) / 1e6;
	client_close(&c);
	f.ours = median(ours, opt.reps);
	f.good = f.ours >= 2;
	report(&f);
}

/* Each end drops one packet of a hundred that came. */
void row_loss(void)
{
	const struct setup s = { .qps = 1, .ack_timeout = 14, .loss = 10000 };
	unsigned count = part(10000), i;
	double ours[REPS_MAX];
	struct figure f = { "WRITE goodput at 1% loss",
			    "udp",
			    BIG,
			    1,
			    0,
			    "MTU 4096, window 256, time-out 67 ms, loss both ways",
			    NAN,
			    "GB/s",
			    ">= 0.4",
			    false };
	struct client c;

	client_open(&c, &s);
	for (i = 0; i < opt.reps; i++)
		ours[i] = gbs(client_writes(&c, BIG, count, 1, 1), BIG, count);
	client_close(&c);
	f.ours = median(ours, opt.reps);
	f.good = f.ours >= 0.4;
	report(&f);
}

static double rate_of(unsigned qps, unsigned count)
{
	const struct setup s = { .qps = qps };
	struct client c;
	double rate;

	client_open(&c, &s);
	client_writes(&c, SMALL, count / 10, 16, 10);
	rate = count / client_writes(&c, SMALL, count, 16, 10) / 1e6;
	client_close(&c);
	return rate;
}

/* Queue pairs that do nothing cost those that do. */
void row_idle_qps(void)
{
	unsigned count = part(4000000), i;
	double many[REPS_MAX], few[REPS_MAX];
	struct figure f = { "WRITE rate, 10 busy of 1,000 QPs",
			    "udp",
			    SMALL,
			    QPS_MAX,
			    0,
			    "10 of 10 queue pairs",
			    0,
			    "million/s",
			    ">= 0.9",
			    false };

	for (i = 0; i < opt.reps; i++) {
		few[i] = rate_of(10, count);
		many[i] = rate_of(QPS_MAX, count);
	}
	f.ours = median(many, opt.reps);
	f.peer = median(few, opt.reps);
	f.good = f.ours >= 0.9 * f.peer;
	report(&f);
}
