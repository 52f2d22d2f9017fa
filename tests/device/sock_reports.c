/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A long wait that gives up is reported: which block, in which call, on which socket and peer, how full its rings were. One time
 * limit gives one report, an abort one for each block that waited, and a wait that got what it waited for gives none.
 */
#include "opt.h"

#define LIMIT_MS 60

/* Roles of the blocks. */
enum { RECV, RECV_TURN, SEND, ACCEPT, POLL, CONNECT, ROLES };
/* Words: descriptor + 1 of the listener, of the quiet connection, of the full one; RECV waits without a limit. */
enum {
	LISTENER = 1,
	QUIET,
	STUFFED,
	HELD,
	AT,
	TURN,
	WAITS /* + block: its last wait, or its next, comes now */
};

struct report_args {
	struct test_args t;
	struct test_addr *full;
};

GNET_DEV int published(struct report_args *a, int which)
{
	test_k_wait(&a->t.word[which], 1);
	return (int)gnet_sys_load_acquire(&a->t.word[which]) - 1;
}

GNET_DEV int receiving(struct report_args *a, struct test_report *r, uint8_t *buf)
{
	gnet_t *net = a->t.net;
	int listener, fd, full;

	K_GET(r, listener, test_k_listen(net, a->t.want, a->t.where, 5));
	K_GET(r, fd, gaccept(net, listener, NULL, NULL));
	K_GET(r, full, gaccept(net, listener, NULL, NULL));
	/* Three bytes come while this waits: no report. */
	test_k_set(&a->t.word[AT], 1);
	K_EQ(r, grecv(net, fd, buf, 3, GNET_MSG_WAITALL), 3);
	K_EQ(r, opt_limit_ms(net, fd, GNET_SO_RCVTIMEO, LIMIT_MS), 0);
	K_EQ(r, grecv(net, fd, buf, 1, 0), -ETIMEDOUT);
	K_EQ(r, opt_limit_ms(net, fd, GNET_SO_RCVTIMEO, 0), 0);
	test_k_set(&a->t.word[QUIET], (uint64_t)fd + 1);
	test_k_set(&a->t.word[STUFFED], (uint64_t)full + 1);
	test_k_set(&a->t.word[LISTENER], (uint64_t)listener + 1);
	test_k_set(&a->t.word[HELD], 1);
	test_k_set(&a->t.word[WAITS + RECV], 1);
	K_EQ(r, grecv(net, fd, buf, 1, 0), -ECANCELED);
	return 0;
}

GNET_DEV int64_t stuff(struct report_args *a, uint8_t *buf)
{
	int fd = published(a, STUFFED);
	uint64_t calls = 0;
	int64_t n;

	do {
		test_k_set(&a->t.word[WAITS + SEND], ++calls);
		n = gsend(a->t.net, fd, buf, a->t.room, 0);
	} while (n == (int64_t)a->t.room);
	return n > 0 ? gsend(a->t.net, fd, buf, 1, 0) : n;
}

GNET_DEV int64_t poll_quiet(struct report_args *a)
{
	__shared__ struct gnet_pollfd fds[2];
	int fd = published(a, QUIET);

	if (threadIdx.x == 0) {
		fds[0].fd = fd;
		fds[1].fd = -1;
		fds[0].events = fds[1].events = GNET_POLLIN;
	}
	test_k_set(&a->t.word[WAITS + POLL], 1);
	__syncthreads();
	return gpoll(a->t.net, fds, 2, -1);
}

GNET_DEV int64_t wait_in_role(struct report_args *a, uint8_t *buf)
{
	gnet_t *net = a->t.net;
	int fd;

	switch (blockIdx.x) {
	case ACCEPT:
		fd = published(a, LISTENER);
		test_k_set(&a->t.word[WAITS + ACCEPT], 1);
		return gaccept(net, fd, NULL, NULL);
	case POLL:
		return poll_quiet(a);
	case CONNECT:
		fd = gsocket(net, a->full->a.sa.sa_family, GNET_SOCK_STREAM, 0);
		test_k_set(&a->t.word[WAITS + CONNECT], 1);
		return fd < 0 ? fd : gconnect(net, fd, &a->full->a, a->full->len);
	default:
		return stuff(a, buf);
	}
}

/* Block RECV holds the direction, without a limit, when this sets one. */
GNET_DEV int wait_for_turn(struct report_args *a, struct test_report *r, uint8_t *buf)
{
	int fd = published(a, QUIET);

	test_k_wait(&a->t.word[HELD], 1);
	test_k_wait_held(a->t.net, fd);
	K_EQ(r, opt_limit_ms(a->t.net, fd, GNET_SO_RCVTIMEO, LIMIT_MS), 0);
	K_EQ(r, grecv(a->t.net, fd, buf, 1, 0), -ETIMEDOUT);
	test_k_set(&a->t.word[TURN], 1);
	test_k_set(&a->t.word[WAITS + RECV_TURN], 1);
	return 0;
}

GNET_DEV int give_up(struct report_args *a, struct test_report *r, uint8_t *buf)
{
	if (blockIdx.x == RECV)
		return receiving(a, r, buf);
	if (blockIdx.x == RECV_TURN)
		return wait_for_turn(a, r, buf);
	K_EQ(r, wait_in_role(a, buf), -ECANCELED);
	return 0;
}

GNET_KERNEL(report_kernel, struct report_args, a)
{
	struct test_report *r = &a.t.report[blockIdx.x];

	test_k_done(r, give_up(&a, r, a.t.buf + a.t.room * blockIdx.x));
}

/* What the reports say, by block. */
struct seen {
	unsigned n, timeouts, blocks[ROLES];
	char peer[64];  /* of the quiet connection, as its text must have it */
	char full[160]; /* whom block CONNECT calls */
};

static int look(const struct gpunet_report *v, void *arg)
{
	static const char *const calls[ROLES] = { "grecv", "its turn to receive",
						  "gsend", "gaccept",
						  "gpoll", "gconnect" };
	struct seen *s = (struct seen *)arg;

	s->n++;
	CHECK_EQ(v->number, s->n);
	CHECK(v->block < ROLES);
	s->blocks[v->block]++;
	s->timeouts += v->error == -ETIMEDOUT;
	if (strcmp(v->call, calls[v->block]) != 0)
		FAIL("block %u waited in %s: %s", v->block, v->call, v->text);
	if (v->error == -ETIMEDOUT && v->waited_ns < (LIMIT_MS - 20) * 1000000ull)
		FAIL("waited %llu ns: %s", (unsigned long long)v->waited_ns, v->text);
	CHECK(v->fd > 0);
	if (v->block == SEND ? v->unsent < 1000 : v->unsent || v->unread)
		FAIL("unsent %llu, unread %llu: %s", (unsigned long long)v->unsent,
		     (unsigned long long)v->unread, v->text);
	if ((v->block == RECV || v->block == RECV_TURN || v->block == POLL) &&
	    !strstr(v->text, s->peer))
		FAIL("the text does not name %s: %s", s->peer, v->text);
	if (v->block == CONNECT && !strstr(v->text, s->full))
		FAIL("the text does not name %s: %s", s->full, v->text);
	if (!strstr(v->text, "proxy thread ") ||
	    !strstr(v->text, v->error == -ETIMEDOUT ? "limit" : "aborted"))
		FAIL("%s", v->text);
	return 0;
}

/* All are soon there, on a busy machine too: nothing is left to do before. The one that sends is when no call ends any more. */
static void until_all_wait(const struct report_args *a)
{
	const uint64_t *calls = &a->t.word[WAITS + SEND];
	uint64_t before;

	for (int i = 0; i < ROLES; i++)
		test_word_wait(&a->t.word[WAITS + i], 1, a->t.report);
	do {
		before = __atomic_load_n(calls, __ATOMIC_ACQUIRE);
		test_sleep_ms(200 * TEST_SLOW);
	} while (__atomic_load_n(calls, __ATOMIC_ACQUIRE) != before);
}

static int first_only(const struct gpunet_report *v, void *arg)
{
	(void)v;
	(*(int *)arg)++;
	return 7;
}

/* How a text names the other end: the address of this end. */
static void name_of(int fd, enum test_kind kind, char *out, size_t size)
{
	struct sockaddr_in in;
	socklen_t len = sizeof(in);

	if (kind != TEST_TCP) {
		snprintf(out, size, "unix:///tmp/gpn-test-%d",
			 (int)getpid()); /* the listener's: connectors have none */
		return;
	}
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	snprintf(out, size, "to tcp://127.0.0.1:%u", ntohs(in.sin_port));
}

static void run(enum test_kind kind, unsigned threads)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct seen s;
	struct report_args a;
	struct test_full full;
	int quiet, stuffed, calls = 0; /* of first_only */
	gpunet_t *g;

	memset(&s, 0, sizeof(s));
	opt.linger_ms = 200;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(report_kernel), 0);
	a.t = test_setup(g, kind, ROLES, 64 << 10);
	test_full_open(&full, kind);
	a.full = full.addr;
	TEST_LAUNCH(g, report_kernel, a, ROLES, threads);
	test_addr_wait(a.t.where, a.t.report);
	quiet = test_connect(a.t.where);
	stuffed = test_connect(a.t.where);
	name_of(quiet, kind, s.peer, sizeof(s.peer));
	if (kind == TEST_TCP)
		snprintf(s.full, sizeof(s.full), "to tcp://127.0.0.1:%u, connecting",
			 ntohs(full.addr->a.in.sin_port));
	else
		snprintf(s.full, sizeof(s.full), "to unix://%s, connecting",
			 full.addr->a.un.sun_path);
	test_word_wait(&a.t.word[AT], 1, a.t.report);
	test_sleep_ms(20);
	CHECK_EQ(gpunet_reports(g, look, &s), 0);
	CHECK_EQ(s.n, 0);
	test_write(quiet, "abc", 3);
	test_word_wait(&a.t.word[TURN], 1, a.t.report);
	CHECK_EQ(gpunet_reports(g, look, &s), 0);
	CHECK_EQ(s.n, 2);
	CHECK_EQ(s.timeouts, 2);
	until_all_wait(&a);
	gpunet_abort(g);
	test_sync(g, a.t.report, ROLES);
	memset(s.blocks, 0, sizeof(s.blocks));
	s.n = s.timeouts = 0;
	CHECK_EQ(gpunet_reports(g, look, &s), 0);
	for (int i = 0; i < ROLES; i++) {
		if (s.blocks[i] != (i == RECV ? 2 : 1))
			FAIL("block %d has %u reports", i, s.blocks[i]);
	}
	CHECK_EQ(s.n, ROLES + 1);
	CHECK_EQ(s.timeouts, 2);
	CHECK_EQ(gpunet_reports(g, first_only, &calls), 7);
	CHECK_EQ(calls, 1);
	test_close(g);
	close(quiet);
	close(stuffed);
	test_full_close(&full);
	test_teardown(&a.t);
}

int main(void)
{
	test_begin(60);
	run(TEST_TCP, 32);
	run(TEST_UNIX, 64);
	return 0;
}
