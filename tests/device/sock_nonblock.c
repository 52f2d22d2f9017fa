/* SPDX-License-Identifier: BSD-3-Clause */
/* Non-blocking sockets: gfcntl, SOCK_NONBLOCK, calls that would wait, gconnect under way, done and failed. */
#include "opt.h"

enum { STEP, AT, SENT };

struct nb_args {
	struct test_args t;
	struct test_addr *host; /* a listener of the host */
	struct test_addr *full; /* one whose backlog is full */
	struct test_addr *none; /* nobody listens there */
};

GNET_DEV int flags_of(struct nb_args *a, struct test_report *r)
{
	gnet_t *net = a->t.net;
	int family = a->host->a.sa.sa_family, fd;

	K_GET(r, fd, gsocket(net, family, GNET_SOCK_STREAM, 0));
	K_EQ(r, gfcntl(net, fd, GNET_F_GETFL, 0), GNET_O_RDWR);
	K_EQ(r, gfcntl(net, fd, GNET_F_SETFL, GNET_O_NONBLOCK), 0);
	K_EQ(r, gfcntl(net, fd, GNET_F_GETFL, 0), GNET_O_RDWR | GNET_O_NONBLOCK);
	K_EQ(r, gfcntl(net, fd, GNET_F_SETFL, GNET_O_RDWR), 0);
	K_EQ(r, gfcntl(net, fd, GNET_F_GETFL, 0), GNET_O_RDWR);
	K_EQ(r, gfcntl(net, fd, 1030, 0), -EINVAL);
	K_EQ(r, gclose(net, fd), 0);
	K_EQ(r, gfcntl(net, fd, GNET_F_GETFL, 0), -EBADF);
	K_GET(r, fd,
	      gsocket(net, family, GNET_SOCK_STREAM | GNET_SOCK_NONBLOCK | GNET_SOCK_CLOEXEC, 0));
	K_EQ(r, gfcntl(net, fd, GNET_F_GETFL, 0), GNET_O_RDWR | GNET_O_NONBLOCK);
	K_EQ(r, grecv(net, fd, a->t.buf, 1, 0), -ENOTCONN);
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

/* Waits for one event, without the socket being known as connected. */
GNET_DEV int events_of(gnet_t *net, int fd, int events, int64_t timeout_ns)
{
	__shared__ struct gnet_pollfd p;
	int n;

	__syncthreads();
	if (threadIdx.x == 0) {
		p.fd = fd;
		p.events = (short)events;
		p.revents = 0;
	}
	__syncthreads();
	n = gpoll(net, &p, 1, timeout_ns);
	return n < 0 ? n : p.revents;
}

/* A connect that succeeds, and is found to have by poll, or (blind) by the send itself. */
GNET_DEV int connects(struct nb_args *a, struct test_report *r, uint8_t *buf, int blind)
{
	gnet_t *net = a->t.net;
	int64_t n;
	int fd, rc;

	K_GET(r, fd,
	      gsocket(net, a->host->a.sa.sa_family, GNET_SOCK_STREAM | GNET_SOCK_NONBLOCK, 0));
	rc = gconnect(net, fd, &a->host->a, a->host->len);
	if (rc != 0 && rc != -EINPROGRESS)
		return test_k_bad(r, __LINE__, rc, -EINPROGRESS);
	if (!blind) {
		K_EQ(r, events_of(net, fd, GNET_POLLOUT, -1), GNET_POLLOUT);
		K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR), 0);
		K_EQ(r, gconnect(net, fd, &a->host->a, a->host->len), -EISCONN);
	}
	test_k_pattern(buf, 300, 0, 4);
	do
		n = gsend(net, fd, buf, 300, 0);
	while (n == -EAGAIN);
	K_EQ(r, n, 300);
	do
		n = grecv(net, fd, buf, 1, 0);
	while (n == -EAGAIN);
	K_EQ(r, n, 1);
	/* 99 bytes more have come with it: none of them is missed, though calls follow each other closely. */
	for (int i = 1; i < 100; i++) {
		do
			n = grecv(net, fd, buf, 1, 0);
		while (n == -EAGAIN && TEST_FAULTY);
		K_EQ(r, n, 1);
	}
	K_EQ(r, grecv(net, fd, buf, 1, 0), -EAGAIN);
	K_EQ(r, gshutdown(net, fd, GNET_SHUT_WR), 0);
	K_EQ(r, gsend(net, fd, buf, 1, 0), -EPIPE);
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

GNET_DEV int refused(struct nb_args *a, struct test_report *r, uint8_t *buf)
{
	gnet_t *net = a->t.net;
	int fd, rc;

	K_GET(r, fd,
	      gsocket(net, a->none->a.sa.sa_family, GNET_SOCK_STREAM | GNET_SOCK_NONBLOCK, 0));
	for (int i = 0; i < 4; i++) {
		rc = gconnect(net, fd, &a->none->a, a->none->len);
		if (rc == -EINPROGRESS) {
			K_EQ(r,
			     (events_of(net, fd, GNET_POLLOUT, -1) &
			      (GNET_POLLOUT | GNET_POLLERR | GNET_POLLHUP)),
			     GNET_POLLOUT | GNET_POLLERR | GNET_POLLHUP);
			/* Told once: by SO_ERROR, a receive, a send or the next gconnect. */
			if (i == 0)
				rc = -opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR);
			else if (i == 1)
				rc = (int)grecv(net, fd, buf, 1, 0);
			else if (i == 2)
				rc = (int)gsend(net, fd, buf, 1, 0);
			else
				rc = gconnect(net, fd, &a->none->a, a->none->len);
		}
		K_EQ(r, rc, -ECONNREFUSED);
		K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR), 0);
		K_EQ(r, gsend(net, fd, buf, 1, 0), -ENOTCONN);
		K_EQ(r, grecv(net, fd, buf, 1, 0), -ENOTCONN);
	}
	/* And blocking again. */
	K_EQ(r, gfcntl(net, fd, GNET_F_SETFL, 0), 0);
	K_EQ(r, gconnect(net, fd, &a->none->a, a->none->len), -ECONNREFUSED);
	K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR), 0);
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

/* A connect that does not end: a TCP one goes on, a UNIX one is not begun. */
GNET_DEV int stuck(struct nb_args *a, struct test_report *r, uint8_t *buf)
{
	int tcp = a->full->a.sa.sa_family != GNET_AF_UNIX, fd;
	gnet_t *net = a->t.net;
	int64_t t;

	K_GET(r, fd,
	      gsocket(net, a->full->a.sa.sa_family, GNET_SOCK_STREAM | GNET_SOCK_NONBLOCK, 0));
	K_EQ(r, gconnect(net, fd, &a->full->a, a->full->len), tcp ? -EINPROGRESS : -EAGAIN);
	if (tcp) {
		K_EQ(r, gconnect(net, fd, &a->full->a, a->full->len), -EALREADY);
		K_EQ(r, gsend(net, fd, buf, 1, 0), -EAGAIN);
		K_EQ(r, grecv(net, fd, buf, 1, 0), -EAGAIN);
		K_EQ(r, events_of(net, fd, GNET_POLLOUT | GNET_POLLIN, 0), 0);
		K_EQ(r, gshutdown(net, fd, GNET_SHUT_WR), -ENOTCONN);
		K_EQ(r, opt_get(net, fd, GNET_SOL_SOCKET, GNET_SO_ERROR), 0);
	}
	K_EQ(r, gclose(net, fd), 0);

	K_GET(r, fd, gsocket(net, a->full->a.sa.sa_family, GNET_SOCK_STREAM, 0));
	K_EQ(r, opt_limit_ms(net, fd, GNET_SO_SNDTIMEO, 50), 0);
	K_EQ(r, opt_limit_ms(net, fd, GNET_SO_RCVTIMEO, 30), 0);
	t = opt_now_ms();
	K_EQ(r, gconnect(net, fd, &a->full->a, a->full->len), -ETIMEDOUT);
	K_EQ(r, opt_now_ms() - t >= 49, 1);
	K_EQ(r, gconnect(net, fd, &a->full->a, a->full->len), -EALREADY);
	K_EQ(r, gsend(net, fd, buf, 1, 0), -ETIMEDOUT);
	K_EQ(r, grecv(net, fd, buf, 1, 0), -ETIMEDOUT);
	K_EQ(r, grecv(net, fd, buf, 1, GNET_MSG_DONTWAIT), -EAGAIN);
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

GNET_DEV int serves(struct nb_args *a, struct test_report *r, uint8_t *buf)
{
	gnet_t *net = a->t.net;
	uint64_t pos = 0;
	int listener, fd;
	int64_t n;

	K_GET(r, listener, test_k_listen(net, a->t.want, a->t.where, 5));
	K_EQ(r, gfcntl(net, listener, GNET_F_SETFL, GNET_O_NONBLOCK), 0);
	K_EQ(r, gaccept(net, listener, NULL, NULL), -EAGAIN);
	test_k_set(&a->t.word[AT], 1);
	do
		fd = gaccept4(net, listener, NULL, NULL, GNET_SOCK_NONBLOCK);
	while (fd == -EAGAIN);
	K_GET(r, fd, fd);
	K_EQ(r, gfcntl(net, fd, GNET_F_GETFL, 0), GNET_O_RDWR | GNET_O_NONBLOCK);
	K_EQ(r, grecv(net, fd, buf, 10, 0), -EAGAIN);
	K_EQ(r, grecv(net, fd, buf, 10, GNET_MSG_WAITALL), -EAGAIN);
	for (int quiet = 0; quiet < 10;) {
		test_k_pattern(buf, 50000, pos, 2);
		n = gsend(net, fd, buf, 50000, 0);
		if (n == -EAGAIN) {
			quiet++;
			test_k_sleep(2000);
			continue;
		}
		K_EQ(r, n > 0 && n <= 50000, 1);
		pos += (uint64_t)n;
	}
	test_k_set(&a->t.word[SENT], pos);
	/* A second one, blocking, though its listener is not. */
	do
		n = gaccept(net, listener, NULL, NULL);
	while (n == -EAGAIN);
	K_EQ(r, gfcntl(net, (int)n, GNET_F_GETFL, 0), GNET_O_RDWR);
	K_EQ(r, grecv(net, (int)n, buf, 10, 0), 1);
	K_EQ(r, gclose(net, (int)n), 0);
	K_EQ(r, gclose(net, fd), 0);
	K_EQ(r, gclose(net, listener), 0);
	return 0;
}

GNET_DEV int all(struct nb_args *a, struct test_report *r, uint8_t *buf)
{
	K_CALL(flags_of(a, r));
	for (int i = 0; i < 10; i++)
		K_CALL(connects(a, r, buf, i % 2));
	K_CALL(refused(a, r, buf));
	K_CALL(stuck(a, r, buf));
	return serves(a, r, buf);
}

GNET_KERNEL(nonblock_kernel, struct nb_args, a)
{
	test_k_done(a.t.report, all(&a, a.t.report, a.t.buf));
}

/* The host's side of `connects`. */
static void serve_one(int listener)
{
	int fd = test_accept(listener);
	uint8_t data[300];

	test_read(fd, data, sizeof(data));
	test_pattern_check(data, sizeof(data), 0, 4);
	test_write(fd, data, 100);
	test_read_end(fd);
	close(fd);
}

static void drain(struct test_args *t)
{
	uint8_t data[4096];
	uint64_t pos = 0;
	int fd = test_connect(t->where), other;
	ssize_t n;

	test_word_wait(&t->word[SENT], 1, t->report);
	other = test_connect(t->where);
	test_sleep_ms(20);
	test_write(other, "x", 1);
	test_read_end(other);
	while ((n = test_read_some(fd, data, sizeof(data))) > 0) {
		test_pattern_check(data, (size_t)n, pos, 2);
		pos += (uint64_t)n;
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(pos, __atomic_load_n(&t->word[SENT], __ATOMIC_ACQUIRE));
	close(other);
	close(fd);
}

static void run(gpunet_t *g, enum test_kind kind, unsigned threads)
{
	struct test_addr *addr = (struct test_addr *)test_shared(2 * sizeof(*addr));
	struct test_full full;
	struct nb_args a;
	int listener;

	a.t = test_setup(g, kind, 1, 64 << 10);
	test_full_open(&full, kind);
	a.host = addr;
	a.full = full.addr;
	a.none = addr + 1;
	test_addr_make(a.host, kind);
	test_addr_make(a.none, kind);
	listener = test_listen(a.host, 20);
	close(test_listen(a.none, 1));
	TEST_LAUNCH(g, nonblock_kernel, a, 1, threads);
	for (int i = 0; i < 10; i++)
		serve_one(listener);
	test_word_wait(&a.t.word[AT], 1, a.t.report);
	drain(&a.t);
	test_sync(g, a.t.report, 1);
	test_full_close(&full);
	close(listener);
	test_addr_remove(a.host);
	test_addr_remove(a.none);
	test_shared_free(addr);
	test_teardown(&a.t);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(nonblock_kernel), 0);
	run(g, TEST_TCP, 64);
	run(g, TEST_UNIX, 1);
	run(g, TEST_TCP, 33);
	test_close(g);
	return 0;
}
