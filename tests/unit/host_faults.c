/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Traffic between kernels while the system calls under it misbehave (faults.h). Every byte arrives all the same,
 * and the ends do. GPUNET_TEST_SEED sets the first seed, GPUNET_TEST_LONG=1 tries many.
 */
#include "../device/test.h"

#include "base/log.h"
#include "faults.h"

#define PAIRS 4

static const char *const fault_names[] = { "short I/O", "EINTR", "ENOMEM and ENOBUFS", "EMFILE",
					   "delays" };

/* ---- the traffic -------------------------------------------------------------------------------- */

GNET_DEV int echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, PAIRS));
		test_k_set(&a->word[0], (uint64_t)listener + 1);
	}
	test_k_wait(&a->word[0], 1);
	listener = (int)gnet_sys_load_acquire(&a->word[0]) - 1;
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	return test_k_echo(r, a->net, fd, buf, a->room);
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

/* ---- the same with datagrams: one block answers, each to its sender ----------------------------- */

GNET_DEV uint64_t burst_of(uint64_t i)
{
	return 1 + i % 4;
}

GNET_DEV uint64_t datagram_of(uint64_t i, uint64_t k)
{
	return i % 5 == 0 ? k : (i * 7919 + k * 631) % 3000;
}

/* A socket of datagrams on a name of its own. */
GNET_DEV int datagrams_at(struct test_args *a, const struct test_addr *at, uint32_t len)
{
	int fd = gsocket(a->net, at->a.sa.sa_family, GNET_SOCK_DGRAM, 0);
	int rc = fd < 0 ? fd : gbind(a->net, fd, &at->a, len);

	return rc < 0 ? rc : fd;
}

GNET_DEV int datagrams_echo(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct test_addr from;
	__shared__ uint32_t len;
	uint64_t left = 0;
	int64_t n;
	int fd;

	for (uint64_t i = 0; i < a->n; i++)
		left += PAIRS * burst_of(i);
	K_GET(r, fd, datagrams_at(a, a->want, a->want->len));
	if (test_k_tid() == 0)
		len = sizeof(from.a);
	K_EQ(r, ggetsockname(a->net, fd, &a->where->a, &len), 0);
	if (test_k_tid() == 0)
		a->where->len = len;
	test_k_set(&a->where->ready, 1);
	for (; left; left--) {
		__syncthreads();
		if (test_k_tid() == 0)
			len = sizeof(from.a);
		__syncthreads();
		K_GET(r, n, grecvfrom(a->net, fd, buf, a->room, 0, &from.a, &len));
		K_EQ(r, gsendto(a->net, fd, buf, (uint64_t)n, 0, &from.a, len), n);
	}
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int datagrams_ask(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint32_t key = blockIdx.x, unix_ = a->want->a.sa.sa_family == GNET_AF_UNIX;
	uint64_t i, k, n;
	int fd;

	test_k_wait(&a->where->ready, 1);
	/* A UNIX address without a path: the system finds a name. */
	K_GET(r, fd, datagrams_at(a, a->want, unix_ ? 2 : a->want->len));
	K_EQ(r, gconnect(a->net, fd, &a->where->a, a->where->len), 0);
	for (i = 0; i < a->n; i++) {
		for (k = 0; k < burst_of(i); k++) {
			n = datagram_of(i, k);
			test_k_pattern(buf, n, i + k, key);
			K_EQ(r, gsend(a->net, fd, buf, n, 0), n);
		}
		for (k = 0; k < burst_of(i); k++) {
			n = datagram_of(i, k);
			K_EQ(r, grecv(a->net, fd, buf, a->room, 0), n);
			K_EQ(r, test_k_wrong(buf, n, i + k, key), 0);
		}
	}
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int datagrams(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x ? datagrams_ask(a, r, buf) : datagrams_echo(a, r, buf);
}

TEST_KERNEL(datagrams_kernel, datagrams)

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

/* What connections that come need is short (no_memory, no_watches): they wait until it is there. */
static void accept_while_short(enum test_kind kind, int *of)
{
	gpunet_t *g = test_open(NULL);
	struct test_args a = test_setup(g, kind, 1, 4096);
	uint8_t data[300];
	int fds[20];

	faults.seed = 0;
	memset(faults.chance, 0, sizeof(faults.chance));
	a.n = sizeof(fds) / sizeof(fds[0]);
	TEST_LAUNCH(g, answer_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	for (unsigned i = 0; i < a.n; i++) {
		__atomic_store_n(of, i % 4 == 0 ? 5 : 0, __ATOMIC_RELAXED);
		fds[i] = test_connect(a.where);
		test_sleep_ms(2);
	}
	__atomic_store_n(of, 0, __ATOMIC_RELAXED);
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

static void run(enum test_kind kind, unsigned threads, int dgram)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	opt.proxy_threads = threads;
	opt.segment_bytes = 16 << 10;
	opt.slab_bytes = 1 << 20;
	opt.cpu_seed = faults.seed;
	g = test_open(&opt);
	a = test_setup(g, kind, 2 * PAIRS, 16 << 10);
	a.n = test_rounds(200, 400);
	if (dgram)
		TEST_LAUNCH(g, datagrams_kernel, a, 1 + PAIRS, 32);
	else
		TEST_LAUNCH(g, traffic_kernel, a, 2 * PAIRS, 32);
	test_sync(g, a.report, dgram ? 1 + PAIRS : 2 * PAIRS);
	test_close(g);
	test_teardown(&a);
}

static void run_fault(unsigned i, int f, int dgram)
{
	if (f == DELAY)
		return; /* alone they are what every busy machine has */
	if (dgram && (f == SHORT || f == NO_DESCRIPTORS))
		return; /* neither is a fault of datagrams */
	memset(faults.injected, 0, sizeof(faults.injected));
	setenv("GPUNET_ENGINE", (i / 2 + (unsigned)f) % 2 ? "epoll" : "io_uring", 1);
	fprintf(stderr, "seed %llu: %s%s\n", (unsigned long long)faults.seed,
		f == FAULTS ? "all" : fault_names[f], dgram ? ", datagrams" : "");
	run(i % 2 ? TEST_UNIX : TEST_TCP, 1 + i % 3, dgram);
	if (f < NO_DESCRIPTORS)
		CHECK(faults.injected[f] > 10);
}

int main(void)
{
	const char *first = getenv("GPUNET_TEST_SEED");
	unsigned seeds = test_rounds(4, 200);

	test_begin(100);
	/* What is short for a while is said as a warning, once a socket. */
	log_set_level(LOG_ERROR);
	faults_install();
	accept_while_short(TEST_TCP, &faults.no_memory);
	accept_while_short(TEST_UNIX, &faults.no_memory);
	accept_while_short(TEST_TCP, &faults.no_watches);
	accept_while_short(TEST_UNIX, &faults.no_watches);
	for (unsigned i = 0; i < seeds; i++) {
		faults.seed = (first ? strtoull(first, NULL, 0) : 1) + i;
		for (int f = 0; f <= FAULTS; f++) {
			/* Each fault alone, then all together. */
			for (int k = 0; k < FAULTS; k++)
				faults.chance[k] = f == k || f == FAULTS ? 100 : 0;
			for (int dgram = 0; dgram < 2; dgram++)
				run_fault(i, f, dgram);
		}
	}
	return 0;
}
