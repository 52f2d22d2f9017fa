/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stamps of messages that a kernel echoes one at a time: each message's are in the order of its way, and lie between the moments at which
 * its sender sent it and had it back. So the hops of one message add up to less than its round trip, however slow the machine is.
 */
#include "../device/test.h"

#include <gpunet/stat.h>

#include "base/sys.h"
#include "socket/net.h"

#define MESSAGES 200u
#define SIZE 64

static uint64_t sent[MESSAGES], back[MESSAGES];

GNET_DEV int echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 1));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	return test_k_echo(r, a->net, fd, buf, a->room);
}

TEST_KERNEL(echo_kernel, echo)

static void ping_pong(int fd)
{
	uint8_t message[SIZE];
	unsigned i;

	for (i = 0; i < MESSAGES; i++) {
		test_pattern(message, SIZE, i * SIZE, 1);
		sent[i] = sys.now_ns();
		test_write(fd, message, SIZE);
		test_read(fd, message, SIZE);
		back[i] = sys.now_ns();
		test_pattern_check(message, SIZE, i * SIZE, 1);
	}
}

/* The message that was on its way at `when`. */
static unsigned message_at(uint64_t when)
{
	unsigned i = 0;

	while (i < MESSAGES && back[i] < when)
		i++;
	CHECK(i < MESSAGES);
	CHECK(sent[i] <= when);
	return i;
}

static void in_order(const uint64_t *at, unsigned n)
{
	unsigned i;

	for (i = 1; i < n; i++)
		CHECK(at[i - 1] <= at[i]);
}

/* Call left, line, seen, stored, entry seen, call entered: all within message i's time. Returns how many were looked at. */
static unsigned check_records(const struct gpunet_stat_hops *h)
{
	unsigned i, n = 0, last = MESSAGES;
	uint64_t seen = 0, number;

	for (number = 1; number <= h->count; number++) {
		const struct gpunet_stat_hop *m = &h->hop[number % GPUNET_STAT_HOPS];

		CHECK_EQ(m->number, number);
		if (m->kind_fd >> 32 == GPUNET_STAT_HOP_RECEIVED) {
			in_order(m->at, 4);
			last = message_at(m->at[1]);
			CHECK(m->at[3] <= back[last]);
			seen = m->at[3];
			continue;
		}
		CHECK_EQ(m->kind_fd >> 32, GPUNET_STAT_HOP_SENT);
		in_order(m->at, 4);
		i = message_at(m->at[2]);
		CHECK(sent[i] <= m->at[0]);
		CHECK(m->at[4] <= m->at[0]);
		if (i == last) {
			CHECK_EQ(m->at[4], seen);
			n++;
		}
	}
	return n;
}

static void check_sums(gpunet_t *g)
{
	struct gpunet_hops h = { .size = sizeof(h) };
	unsigned i;

	CHECK_EQ(gpunet_get_hops(g, &h), 0);
	CHECK_EQ(h.clock_error_ns, 0);
	for (i = 0; i < GPUNET_HOP_COUNT; i++) {
		CHECK(h.hop[i].count > 0);
		CHECK(h.hop[i].p50 >= 0 && h.hop[i].p50 <= h.hop[i].p99);
	}
}

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;
	int fd;

	test_begin(60);
	opt.hops = 1;
	opt.proxy_threads = 1;
	g = test_open(&opt);
	a = test_setup(g, TEST_TCP, 1, SIZE);
	TEST_LAUNCH(g, echo_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	fd = test_connect(a.where);
	ping_pong(fd);
	close(fd);
	test_sync(g, a.report, 1);
	/* Both kinds of all messages fit the page. */
	CHECK(g->stat.hops[0].count <= 2 * MESSAGES);
	CHECK(check_records(&g->stat.hops[0]) >= MESSAGES / 2);
	check_sums(g);
	CHECK_EQ(gpunet_close(g, 10000), 0);
	test_teardown(&a);
	return 0;
}
