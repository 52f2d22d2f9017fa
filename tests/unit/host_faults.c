/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traffic between kernels while the system calls under it misbehave, from a seed: short reads and
 * writes, interruptions, no memory, no descriptors for a while. Every byte arrives all the same,
 * and the ends do. GPUNET_TEST_SEED sets the first seed, GPUNET_TEST_LONG=1 tries many.
 */
#include "../device/test.h"

#include "base/log.h"
#include "base/sys.h"

#define PAIRS 4

enum fault { SHORT, INTERRUPT, NO_MEMORY, NO_DESCRIPTORS, FAULTS };

static const char *const fault_names[] = { "short I/O", "EINTR", "ENOMEM and ENOBUFS", "EMFILE" };

static uint64_t draws;
static unsigned injected[FAULTS];
static uint64_t seed;
static unsigned chance[FAULTS]; /* in 1,000 */

static uint64_t draw(void)
{
	uint64_t z = seed + __atomic_add_fetch(&draws, 1, __ATOMIC_RELAXED) * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static int happens(enum fault f)
{
	if (!chance[f] || draw() % 1000 >= chance[f])
		return 0;
	__atomic_add_fetch(&injected[f], 1, __ATOMIC_RELAXED);
	return 1;
}

/* The first few bytes of what the message describes. */
static size_t cut(const struct msghdr *m, struct iovec *one)
{
	size_t n = 1 + draw() % 200;

	*one = m->msg_iov[0];
	if (one->iov_len > n)
		one->iov_len = n;
	return one->iov_len;
}

static ssize_t bad_sendmsg(int fd, const struct msghdr *m, int flags)
{
	struct msghdr shorter = *m;
	struct iovec one;

	if (happens(INTERRUPT))
		return -EINTR;
	if (happens(NO_MEMORY))
		return draw() % 2 ? -ENOMEM : -ENOBUFS;
	if (happens(SHORT) && cut(m, &one)) {
		shorter.msg_iov = &one;
		shorter.msg_iovlen = 1;
		return sys_real.sendmsg(fd, &shorter, flags);
	}
	return sys_real.sendmsg(fd, m, flags);
}

static ssize_t bad_recvmsg(int fd, struct msghdr *m, int flags)
{
	struct msghdr shorter = *m;
	struct iovec one;

	if (happens(INTERRUPT))
		return -EINTR;
	if (happens(NO_MEMORY))
		return draw() % 2 ? -ENOMEM : -ENOBUFS;
	if (happens(SHORT) && cut(m, &one)) {
		shorter.msg_iov = &one;
		shorter.msg_iovlen = 1;
		return sys_real.recvmsg(fd, &shorter, flags);
	}
	return sys_real.recvmsg(fd, m, flags);
}

static int bad_accept(int fd, struct sockaddr *a, socklen_t *n)
{
	if (happens(INTERRUPT))
		return -EINTR;
	if (happens(NO_MEMORY))
		return -ENOMEM;
	if (happens(NO_DESCRIPTORS))
		return draw() % 2 ? -EMFILE : -ENFILE;
	return sys_real.accept(fd, a, n);
}

static int bad_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	int rc = sys_real.connect(fd, a, n);

	/* An interrupted connect goes on, so it is interrupted after it has begun. */
	return rc == -EINPROGRESS && happens(INTERRUPT) ? -EINTR : rc;
}

static int bad_epoll_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	if (happens(INTERRUPT))
		return -EINTR;
	return sys_real.epoll_wait(epfd, ev, max, timeout_ns);
}

/* The next allocations that fail. */
static int shortage;

static void *bad_alloc(size_t size)
{
	if (__atomic_load_n(&shortage, __ATOMIC_RELAXED) > 0 &&
	    __atomic_fetch_sub(&shortage, 1, __ATOMIC_RELAXED) > 0)
		return NULL;
	return sys_real.alloc(size);
}

/* ---- the traffic -------------------------------------------------------------------------------- */

GNET_DEV int echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;
	int64_t n;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, PAIRS));
		test_k_set(&a->word[0], (uint64_t)listener + 1);
	}
	test_k_wait(&a->word[0], 1);
	listener = (int)gnet_sys_load_acquire(&a->word[0]) - 1;
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	for (;;) {
		K_GET(r, n, grecv(a->net, fd, buf, a->room, 0));
		if (n == 0)
			break;
		K_EQ(r, gsend(a->net, fd, buf, (uint64_t)n, 0), n);
	}
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int ask(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint32_t key = blockIdx.x;
	int fd;

	K_GET(r, fd, test_k_connect(a->net, a->where));
	for (uint64_t i = 0; i < a->n; i++) {
		uint64_t n = 1 + i * (i % 9 == 8 ? 1231 : 17) % 12000;

		test_k_pattern(buf, n, i, key);
		K_EQ(r, gsend(a->net, fd, buf, n, 0), n);
		K_EQ(r, grecv(a->net, fd, buf, n, GNET_MSG_WAITALL), n);
		K_EQ(r, test_k_wrong(buf, n, i, key), 0);
	}
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int traffic(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x % 2 ? ask(a, r, buf) : echo(a, r, buf);
}

TEST_KERNEL(traffic_kernel, traffic)

/* Takes n connections and answers each. */
GNET_DEV int answer(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 64));
	for (uint64_t i = 0; i < a->n; i++) {
		do
			fd = gaccept(a->net, listener, NULL, NULL);
		while (fd == -ENOMEM);
		K_GET(r, fd, fd);
		K_EQ(r, grecv(a->net, fd, buf, 300, GNET_MSG_WAITALL), 300);
		K_EQ(r, gsend(a->net, fd, buf, 300, 0), 300);
		K_EQ(r, gclose(a->net, fd), 0);
	}
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(answer_kernel, answer)

/* No memory for connections that come: they wait in the backlog until there is some. */
static void accept_without_memory(enum test_kind kind)
{
	gpunet_t *g = test_open(NULL);
	struct test_args a = test_setup(g, kind, 1, 4096);
	uint8_t data[300];
	int fds[20];

	seed = 0;
	memset(chance, 0, sizeof(chance));
	a.n = sizeof(fds) / sizeof(fds[0]);
	TEST_LAUNCH(g, answer_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	for (unsigned i = 0; i < a.n; i++) {
		__atomic_store_n(&shortage, i % 4 == 0 ? 5 : 0, __ATOMIC_RELAXED);
		fds[i] = test_connect(a.where);
		test_sleep_ms(2);
	}
	__atomic_store_n(&shortage, 0, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < a.n; i++) {
		test_pattern(data, sizeof(data), 0, i);
		test_write(fds[i], data, sizeof(data));
		test_read(fds[i], data, sizeof(data));
		test_pattern_check(data, sizeof(data), 0, i);
		test_read_end(fds[i]);
		close(fds[i]);
	}
	test_sync(g, a.report, 1);
	test_close(g);
	test_teardown(&a);
}

static void run(enum test_kind kind, unsigned threads)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	opt.proxy_threads = threads;
	opt.segment_bytes = 16 << 10;
	opt.slab_bytes = 1 << 20;
	opt.cpu_seed = seed;
	g = test_open(&opt);
	a = test_setup(g, kind, 2 * PAIRS, 16 << 10);
	a.n = test_rounds(200, 400);
	TEST_LAUNCH(g, traffic_kernel, a, 2 * PAIRS, 32);
	test_sync(g, a.report, 2 * PAIRS);
	test_close(g);
	test_teardown(&a);
}

int main(void)
{
	const char *first = getenv("GPUNET_TEST_SEED");
	unsigned seeds = test_rounds(4, 200);

	test_begin(100);
	/* What is short for a while is said as a warning, once a socket. */
	log_set_level(LOG_ERROR);
	sys.sendmsg = bad_sendmsg;
	sys.recvmsg = bad_recvmsg;
	sys.accept = bad_accept;
	sys.connect = bad_connect;
	sys.epoll_wait = bad_epoll_wait;
	sys.alloc = bad_alloc;
	accept_without_memory(TEST_TCP);
	accept_without_memory(TEST_UNIX);
	for (unsigned i = 0; i < seeds; i++) {
		seed = (first ? strtoull(first, NULL, 0) : 1) + i;
		for (int f = 0; f <= FAULTS; f++) {
			/* Each fault alone, then all together. */
			for (int k = 0; k < FAULTS; k++)
				chance[k] = f == k || f == FAULTS ? 100 : 0;
			injected[SHORT] = injected[INTERRUPT] = injected[NO_MEMORY] = 0;
			fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed,
				f == FAULTS ? "all" : fault_names[f]);
			run(i % 2 ? TEST_UNIX : TEST_TCP, 1 + i % 3);
			if (f < NO_DESCRIPTORS)
				CHECK(injected[f] > 10);
		}
	}
	return 0;
}
