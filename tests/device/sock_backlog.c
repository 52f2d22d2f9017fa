/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel connects to a host listener whose backlog is full: gconnect waits, as connect(2) does,
 * and succeeds when the host accepts. And a host connects to a kernel's full backlog while the
 * kernel is busy elsewhere.
 */
#include "test.h"

enum { AT, GO, BACKLOG };

GNET_DEV int connect_to_full(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	test_k_set(&a->word[AT], 1);
	K_GET(r, fd, test_k_connect(a->net, a->where));
	K_EQ(r, gsend(a->net, fd, buf, 300, 0), 300);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

/*
 * Accepts only when the host says so: by then more have connected than the accept ring holds, and
 * over UNIX more than the backlog. (Over TCP Linux lets a client believe that it is connected when
 * the backlog is full, and lets it wait for minutes then, so the backlog is large enough there.)
 */
GNET_DEV int accept_late(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, (int)a->word[BACKLOG]));
	test_k_wait(&a->word[GO], 1);
	for (uint64_t i = 0; i < a->n; i++) {
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		K_EQ(r, grecv(a->net, fd, buf, 3, GNET_MSG_WAITALL), 3);
		K_EQ(r, gclose(a->net, fd), 0);
	}
	K_EQ(r, gaccept4(a->net, listener, NULL, NULL, GNET_MSG_DONTWAIT), -EAGAIN);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(connect_kernel, connect_to_full)
TEST_KERNEL(accept_kernel, accept_late)

static void to_host(gpunet_t *g, enum test_kind kind)
{
	struct test_args a = test_setup(g, kind, 1, 4096);
	struct test_addr addr = *a.want;
	int listener = test_listen(&addr, 0), fds[64], n = 0, fd;
	uint8_t data[300];

	for (int full = 0; !full; n++) {
		struct pollfd p;

		CHECK(n < 64);
		fds[n] = socket(addr.a.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(fds[n] >= 0);
		p.fd = fds[n];
		p.events = POLLOUT;
		if (connect(fds[n], &addr.a.sa, addr.len) != 0)
			full = errno == EAGAIN || poll(&p, 1, 200) == 0;
	}
	addr.ready = 1;
	*a.where = addr;
	TEST_LAUNCH(g, connect_kernel, a, 1, 32);
	test_word_wait(&a.word[AT], 1, a.report);
	test_sleep_ms(300);
	/*
	 * The clients that filled the backlog go away; the kernel's connection is the one that
	 * sends.
	 */
	for (int i = 0; i < n; i++)
		close(fds[i]);
	for (;;) {
		ssize_t k;

		fd = test_accept(listener);
		k = test_read_some(fd, data, 1);
		if (k == 1)
			break;
		close(fd);
	}
	test_read(fd, data + 1, 299);
	close(fd);
	test_sync(g, a.report, 1);
	close(listener);
	test_teardown(&a);
}

struct client {
	pthread_t thread;
	const struct test_addr *addr;
};

static void *visit(void *arg)
{
	struct client *c = (struct client *)arg;
	int fd = test_connect(c->addr);

	test_write(fd, "abc", 3);
	test_read_end(fd);
	close(fd);
	return NULL;
}

static void to_kernel(gpunet_t *g, enum test_kind kind)
{
	struct client clients[40];
	struct test_args a = test_setup(g, kind, 1, 4096);
	unsigned i, n = sizeof(clients) / sizeof(clients[0]);

	a.n = n;
	a.word[BACKLOG] = kind == TEST_UNIX ? 1 : n;
	TEST_LAUNCH(g, accept_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	for (i = 0; i < n; i++) {
		clients[i].addr = a.where;
		CHECK_EQ(pthread_create(&clients[i].thread, NULL, visit, &clients[i]), 0);
	}
	test_sleep_ms(300);
	test_word_set(&a.word[GO], 1);
	for (i = 0; i < n; i++)
		pthread_join(clients[i].thread, NULL);
	test_sync(g, a.report, 1);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(connect_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(accept_kernel), 0);
	to_host(g, TEST_UNIX);
	to_host(g, TEST_TCP);
	to_kernel(g, TEST_UNIX);
	to_kernel(g, TEST_TCP);
	test_close(g);
	return 0;
}
