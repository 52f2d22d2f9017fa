/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels' calls in orders that are rare: each of these was found by the simulation (tests/sim) and is set up here by hand. The
 * test's threads are the blocks.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunet/dev/impl/compat2014.h>
#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#include "kernel_pair.h"

#define SEGMENTS 4

static gpunet_t *net_open(void)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	gpunet_t *g = NULL;

	o.device = "cpu";
	o.max_sockets = 32;
	o.slab_bytes = SEGMENTS << 14;
	o.segment_bytes = 1 << 14;
	assert_int_equal(gpunet_open(&g, &o), 0);
	return g;
}

struct other {
	gnet_t *n;
	int fd;
	int64_t rc;
};

static void *shut(void *arg)
{
	struct other *o = arg;

	o->rc = gshutdown(o->n, o->fd, GNET_SHUT_WR);
	return NULL;
}

/* It has set its mark by then, so an -EAGAIN would leave a socket that neither sends nor ends. */
static void a_shutdown_waits_for_a_sender_even_if_the_socket_does_not(void **state)
{
	gpunet_t *g = net_open();
	struct other o = { .n = gpunet_device(g) };
	struct gnet_borrow b = { .len = { 0 } };
	pthread_t t;
	int host;
	char c;

	(void)state;
	o.fd = pair(o.n, &host);
	assert_int_equal(gfcntl(o.n, o.fd, GNET_F_SETFL, GNET_O_NONBLOCK), 0);
	assert_int_equal(gsend_reserve(o.n, o.fd, &b, 1, 0), 0);
	assert_int_equal(pthread_create(&t, NULL, shut, &o), 0);
	while (!(gnet_dev_load(&o.n->socks[GNET_FD_SLOT(o.fd)].tx) & GNET_L_SHUT_WR))
		usleep(1000);
	b.ptr[0][0] = 'x';
	assert_int_equal(gsend_commit(o.n, o.fd, 1), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_int_equal(o.rc, 0);
	assert_int_equal(read(host, &c, 1), 1);
	assert_int_equal(read(host, &c, 1), 0);
	gclose(o.n, o.fd);
	close(host);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

static short events_of(gnet_t *n, int fd, int64_t timeout_ns)
{
	struct gnet_pollfd p = { .fd = fd, .events = GNET_POLLRDHUP };

	assert_true(gpoll(n, &p, 1, timeout_ns) >= 0);
	return p.revents;
}

static void poll_tells_an_error_until_a_call_was_told_of_it(void **state)
{
	gpunet_t *g = net_open();
	gnet_t *n = gpunet_device(g);
	struct linger reset = { 1, 0 };
	uint32_t len = sizeof(int);
	int host, fd = pair(n, &host), err = 0;
	const short end = GNET_POLLHUP | GNET_POLLRDHUP;

	(void)state;
	assert_int_equal(setsockopt(host, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
	close(host);
	while (events_of(n, fd, -1) != (end | GNET_POLLERR))
		usleep(1000);
	assert_int_equal(ggetsockopt(n, fd, SOL_SOCKET, SO_ERROR, &err, &len), 0);
	assert_int_equal(err, ECONNRESET);
	assert_int_equal(events_of(n, fd, 0), end);
	gclose(n, fd);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

/* What another block sends while gpoll looks: its position may be loaded before, and the send word that tells of it after. */
static void poll_finds_room_though_it_knows_of_a_send_only_by_its_end(void **state)
{
	gpunet_t *g = net_open();
	gnet_t *n = gpunet_device(g);
	int host, fd = pair(n, &host);
	struct gnet_pollfd p = { .fd = fd, .events = GNET_POLLOUT };
	struct gpollfd old = { .fd = fd, .events = GNET_POLLOUT };
	uint64_t *tail = &n->socks[GNET_FD_SLOT(fd)].tx_tail;
	uint64_t *txw = &n->bus[GNET_FD_SLOT(fd)].txw;

	(void)state;
	assert_int_equal(gsend(n, fd, "x", 1, 0), 1);
	while (!(__atomic_load_n(txw, __ATOMIC_ACQUIRE) & GNET_TXW_POS_MASK))
		usleep(1000);
	assert_int_equal(*tail, 1);
	*tail = 0;
	assert_int_equal(gpoll(n, &p, 1, 0), 1);
	assert_int_equal(p.revents, GNET_POLLOUT);
	gnet__2014_net = n;
	assert_int_equal(gnet2014_gpoll(GNET__THREAD, &old, 1, 1), 1);
	assert_int_equal(old.wbytes, GNET_MINI_BYTES);
	*tail = 1;
	gclose(n, fd);
	close(host);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

static int64_t sends_known(gnet_t *n, int fd)
{
	assert_int_equal(gsend(n, fd, "x", 1, 0), 1);
	return gnet__block_scratch()->known_now;
}

/*
 * K1: each socket that a slot has takes an entry of the queue at least. So within this many the descriptor, and with it the side's
 * word and its position, cannot have come again as those of another socket, with less room than is remembered.
 */
static void what_is_known_of_a_socket_holds_for_fewer_entries_than_there_are_generations(
	void **state)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	gpunet_t *g = NULL;
	uint32_t q;
	gnet_t *n;
	int host, fd, i;

	(void)state;
	o.device = "cpu";
	o.max_sockets = 32;
	o.queue_entries = 8192;
	assert_int_equal(gpunet_open(&g, &o), 0);
	n = gpunet_device(g);
	fd = pair(n, &host);
	q = gnet__queue(n, fd);
	(void)sends_known(n, fd);
	assert_true(sends_known(n, fd));
	for (i = 0; i < (int)GNET_GEN_MAX / 2; i++)
		assert_int_equal(gnet__post(n, q, GNET_OP_NOP, 0, 0, 0), 0);
	assert_true(sends_known(n, fd));
	for (; i < (int)GNET_GEN_MAX; i++)
		assert_int_equal(gnet__post(n, q, GNET_OP_NOP, 0, 0, 0), 0);
	assert_false(sends_known(n, fd));
	/* From then on it is again. */
	assert_true(sends_known(n, fd));
	gclose(n, fd);
	close(host);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

struct poller {
	gnet_t *n;
	int fd;
	int64_t limit;
	uint64_t seen; /* word: its test has seen what it asks for */
	int rc;
};

/* Until it has news, or was seen to ask. */
static void *polls(void *arg)
{
	struct poller *p = arg;

	do {
		struct gnet_pollfd f = { .fd = p->fd, .events = GNET_POLLIN };

		p->rc = gpoll(p->n, &f, 1, p->limit);
		p->limit *= 2; /* enough for a long wait at last */
	} while (!p->rc && !__atomic_load_n(&p->seen, __ATOMIC_ACQUIRE));
	return NULL;
}

/* The wait is a long one when events of other sockets have ended it many times. */
static void until_it_asks(gnet_t *n, const uint64_t *word)
{
	while (!__atomic_load_n(word, __ATOMIC_RELAXED)) {
		gnet_dev_add_relaxed(&n->hints[0], GNET_HINT_ONE);
		usleep(10);
	}
}

/* H6 */
static void a_poll_that_ends_leaves_what_another_one_asks_for(void **state)
{
	gpunet_t *g = net_open();
	gnet_t *n = gpunet_device(g);
	int host, fd = pair(n, &host);
	struct poller stays = { n, fd, -1, 1, 0 }, goes = { n, fd, 20000000, 0, 0 };
	uint64_t *word = &n->bus[GNET_FD_SLOT(fd)].waits[GNET_WAIT_POLL];
	pthread_t t[2];

	(void)state;
	assert_int_equal(pthread_create(&t[0], NULL, polls, &stays), 0);
	until_it_asks(n, word);
	__atomic_store_n(word, 0, __ATOMIC_RELAXED); /* as one who hints */
	assert_int_equal(pthread_create(&t[1], NULL, polls, &goes), 0);
	until_it_asks(n, word);
	__atomic_store_n(&goes.seen, 1, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(t[1], NULL), 0);
	assert_int_equal(goes.rc, 0);
	assert_true(__atomic_load_n(word, __ATOMIC_RELAXED));
	assert_int_equal(write(host, "x", 1), 1);
	assert_int_equal(pthread_join(t[0], NULL), 0);
	assert_int_equal(stays.rc, 1);
	assert_false(__atomic_load_n(word, __ATOMIC_RELAXED));
	assert_int_equal(GNET_HINT_POLLS(n->hints[GNET_FD_SLOT(fd)]), 0);
	gclose(n, fd);
	close(host);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

/* What other blocks do before this thread's look number `at` at shared memory, in this order; `looks` is 0 if nobody does anything. */
struct between {
	gnet_t *n;
	int fd;
	unsigned looks;
	struct {
		unsigned at;
		void (*fn)(gnet_t *n, int fd);
	} event[2];
};

static __thread struct between between;

static void happens(unsigned look)
{
	between.looks = 0;
	for (unsigned i = 0; i < 2; i++) {
		void (*fn)(gnet_t *, int) = between.event[i].fn;

		if (!fn || between.event[i].at > look)
			continue;
		between.event[i].fn = NULL;
		fn(between.n, between.fd);
	}
	between.looks = look + 1;
}

void __real_gpunet_cpu_look(const void *word);
void __wrap_gpunet_cpu_look(const void *word);

void __wrap_gpunet_cpu_look(const void *word)
{
	__real_gpunet_cpu_look(word);
	if (between.looks)
		happens(between.looks);
}

static void asks(gnet_t *n, int fd)
{
	gnet__poll_begins(n, fd);
	gnet__ask_hint(n, fd, GNET_WAIT_POLL, 0);
}

/* A gpoll that has asked ends, with `b` in between: is the socket's mark left? */
static uint64_t ends_with(struct between b)
{
	asks(b.n, b.fd);
	between = b;
	between.looks = 1;
	gnet__poll_ends(b.n, b.fd);
	happens(UINT_MAX - 1); /* what has not */
	between.looks = 0;
	return b.n->bus[GNET_FD_SLOT(b.fd)].waits[GNET_WAIT_POLL];
}

/* H6: at whatever moment another one comes and goes. */
static void polls_that_end_together_leave_no_mark(void **state)
{
	gpunet_t *g = net_open();
	gnet_t *n = gpunet_device(g);
	int host, fd = pair(n, &host);
	unsigned at, to;

	(void)state;
	for (at = 1; at < 8; at++) {
		struct between goes = { n, fd, 0, { { at, gnet__poll_ends } } };
		struct between stays = { n, fd, 0, { { at, asks } } };
		uint64_t hints;

		asks(n, fd); /* before the other one */
		assert_false(ends_with(goes));
		for (to = at; to < 8; to++) {
			struct between b = { n, fd, 0, { { at, asks }, { to, gnet__poll_ends } } };

			assert_false(ends_with(b));
		}
		hints = gnet__hints(n, fd);
		assert_true(ends_with(stays) || gnet__hints(n, fd) != hints);
		gnet__poll_ends(n, fd);
		assert_int_equal(GNET_HINT_POLLS(n->hints[GNET_FD_SLOT(fd)]), 0);
	}
	gclose(n, fd);
	close(host);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

static uint64_t segments_used(gpunet_t *g)
{
	struct gpunet_stats s = { .size = sizeof(s) };

	assert_int_equal(gpunet_get_stats(g, &s), 0);
	return s.slab_segments_used;
}

/* Nothing else happens to the socket of datagrams when at last a segment is free. */
static void a_datagram_waits_for_a_segment_until_there_is_one(void **state)
{
	gpunet_t *g = net_open();
	gnet_t *n = gpunet_device(g);
	struct sockaddr_in a = { .sin_family = AF_INET };
	const int64_t limit[2] = { 10, 0 };
	uint32_t len = sizeof(a);
	int host[SEGMENTS], fd[SEGMENTS], i, d, from;
	char big[1000] = "";

	(void)state;
	for (i = 0; i < SEGMENTS; i++) {
		fd[i] = pair(n, &host[i]);
		assert_int_equal(write(host[i], big, sizeof(big)), sizeof(big));
	}
	while (segments_used(g) < SEGMENTS)
		usleep(1000);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	d = gsocket(n, GNET_AF_INET, GNET_SOCK_DGRAM, 0);
	assert_int_equal(gbind(n, d, &a, sizeof(a)), 0);
	assert_int_equal(ggetsockname(n, d, &a, &len), 0);
	assert_int_equal(gsetsockopt(n, d, SOL_SOCKET, SO_RCVTIMEO, limit, sizeof(limit)), 0);
	from = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(sendto(from, "x", 1, 0, (struct sockaddr *)&a, len), 1);
	usleep(50000);
	assert_int_equal(grecvfrom(n, d, big, sizeof(big), GNET_MSG_DONTWAIT, NULL, NULL), -EAGAIN);
	for (i = 0; i < SEGMENTS; i++)
		assert_int_equal(gclose(n, fd[i]), 0);
	assert_int_equal(grecvfrom(n, d, big, sizeof(big), 0, NULL, NULL), 1);
	gclose(n, d);
	for (i = 0; i < SEGMENTS; i++)
		close(host[i]);
	close(from);
	assert_int_equal(gpunet_close(g, 5000), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_shutdown_waits_for_a_sender_even_if_the_socket_does_not),
		cmocka_unit_test(a_poll_that_ends_leaves_what_another_one_asks_for),
		cmocka_unit_test(polls_that_end_together_leave_no_mark),
		cmocka_unit_test(poll_tells_an_error_until_a_call_was_told_of_it),
		cmocka_unit_test(poll_finds_room_though_it_knows_of_a_send_only_by_its_end),
		cmocka_unit_test(
			what_is_known_of_a_socket_holds_for_fewer_entries_than_there_are_generations),
		cmocka_unit_test(a_datagram_waits_for_a_segment_until_there_is_one),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
