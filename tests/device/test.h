/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The house of the device tests: one file is one program, C11 for the CPU device and CUDA for a
 * GPU. Exit code 0: passed, 1: failed, with a line that says where, 77: skipped, with the reason.
 *
 * A kernel is written as a function that returns at its first wrong result (K_EQ and its kin), so
 * a failure is the line, the value and the value wanted. All its threads see the same values, so
 * they leave together.
 */
#ifndef GPUNET_TEST_H
#define GPUNET_TEST_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#define TEST_SKIP 77

/* How much slower this build is: time limits grow and rounds shrink by it. */
#if defined(__SANITIZE_THREAD__)
#define TEST_SLOW 8
#elif defined(__SANITIZE_ADDRESS__)
#define TEST_SLOW 3
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_SLOW 8
#elif __has_feature(address_sanitizer)
#define TEST_SLOW 3
#endif
#endif
#ifndef TEST_SLOW
#define TEST_SLOW 1
#endif

/* System calls misbehave under this build (tests/unit/faults_suite.c): what one write sent may come in parts. */
#ifndef TEST_FAULTY
#define TEST_FAULTY 0
#endif

#ifdef __CUDACC__
#define TEST_ON_GPU 1
#else
#define TEST_ON_GPU 0
#endif

/* ---- host: checks -------------------------------------------------------------------------- */

#define FAIL(...)                                               \
	do {                                                    \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
		fprintf(stderr, __VA_ARGS__);                   \
		fprintf(stderr, "\n");                          \
		_exit(1);                                       \
	} while (0)

#define CHECK(cond)                        \
	do {                               \
		if (!(cond))               \
			FAIL("%s", #cond); \
	} while (0)

#define CHECK_EQ(expr, wanted)                                                                     \
	do {                                                                                       \
		long long test_got_ = (long long)(expr), test_want_ = (long long)(wanted);         \
		if (test_got_ != test_want_)                                                       \
			FAIL("%s is %lld, not %lld; last error: %s", #expr, test_got_, test_want_, \
			     gpunet_last_error());                                                 \
	} while (0)

static inline void test_skip(const char *why)
{
	fprintf(stderr, "skipped: %s\n", why);
	_exit(TEST_SKIP);
}

extern char **environ;

/* What hangs: GPUNET_TEST_HANG names a program that tells of this process. Also within a signal handler. */
static inline void test_hangs(void)
{
	const char *program = getenv("GPUNET_TEST_HANG"), *tool = getenv("GPUNET_TEST_TOOL");
	char pid[16], *argv[4];
	int status;
	pid_t child;

	if (!program)
		return;
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	argv[0] = (char *)program;
	argv[1] = pid;
	argv[2] = (char *)(tool ? tool : "");
	argv[3] = NULL;
	if (posix_spawn(&child, program, NULL, NULL, argv, environ) == 0)
		waitpid(child, &status, 0);
}

static inline void test_on_alarm(int sig)
{
	static const char text[] = "time limit: the test hangs\n";

	(void)sig;
	if (write(2, text, sizeof(text) - 1) < 0)
		_exit(2);
	test_hangs();
	_exit(1);
}

/* A number of the environment, 0: it is not there. */
static inline unsigned test_env(const char *name)
{
	const char *text = getenv(name);

	return text ? (unsigned)atoi(text) : 0;
}

/*
 * A program that hangs ends with a failure after `seconds` of an idle two-core machine, and before GPUNET_TEST_LIMIT seconds, when
 * whoever started it would end it without a word.
 */
static inline void test_begin(unsigned seconds)
{
	unsigned factor = test_env("GPUNET_TEST_SLOW"), limit = test_env("GPUNET_TEST_LIMIT");

	seconds *= TEST_SLOW * (factor ? factor : 1);
	signal(SIGALRM, test_on_alarm);
	signal(SIGPIPE, SIG_IGN);
	alarm(limit && limit < seconds ? limit : seconds);
}

static inline const char *test_rdma(void);

/* For tests that load kernels before they open a network, which would skip by itself: is there a GPU for them? */
static inline void test_need_device(void)
{
#ifdef __CUDACC__
	int gpus = 0;
	cudaError_t rc = cudaGetDeviceCount(&gpus);

	if (rc != cudaSuccess || !gpus)
		test_skip(rc == cudaSuccess ? "no GPU" : cudaGetErrorString(rc));
#endif
}

/* Rounds: `full` in a plain build, less in a slow one and over RDMA, `whole` with GPUNET_TEST_LONG=1. */
static inline unsigned test_rounds(unsigned full, unsigned whole)
{
	const char *text = getenv("GPUNET_TEST_LONG");

	if (text && strcmp(text, "1") == 0)
		return whole;
	full /= TEST_SLOW * (test_rdma() ? 16 : 1);
	return full ? full : 1;
}

static inline void test_sleep_ms(unsigned ms)
{
	struct timespec t = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };

	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		continue;
}

static inline uint64_t test_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- host: the network and memory ---------------------------------------------------------- */

static inline gpunet_t *test_open(const struct gpunet_options *opt)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	gpunet_t *g = NULL;
	int rc;

	if (opt)
		o = *opt;
	o.device = TEST_ON_GPU ? "cuda" : "cpu";
	rc = gpunet_open(&g, &o);
	if (TEST_ON_GPU && rc == -ENODEV)
		test_skip(gpunet_last_error());
	if (rc != 0)
		FAIL("gpunet_open: %d, %s", rc, gpunet_last_error());
	return g;
}

static inline void test_close(gpunet_t *g)
{
	CHECK_EQ(gpunet_close(g, 20000 * TEST_SLOW), 0);
}

/* Zeroed memory that kernels and the host see. Get it before a kernel is resident. */
static inline void *test_shared(size_t size)
{
	void *p = NULL;

#ifdef __CUDACC__
	if (cudaHostAlloc(&p, size, cudaHostAllocMapped) != cudaSuccess)
		FAIL("cudaHostAlloc of %zu bytes", size);
	memset(p, 0, size);
#else
	p = calloc(1, size);
	CHECK(p != NULL);
#endif
	return p;
}

static inline void test_shared_free(void *p)
{
#ifdef __CUDACC__
	cudaFreeHost(p);
#else
	free(p);
#endif
}

/* Zeroed memory of the device. Get it before a kernel is resident. */
static inline void *test_device(size_t size)
{
	void *p = NULL;

#ifdef __CUDACC__
	if (cudaMalloc(&p, size) != cudaSuccess)
		FAIL("cudaMalloc of %zu bytes", size);
	if (cudaMemset(p, 0, size) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess)
		FAIL("cudaMemset of %zu bytes", size);
#else
	p = calloc(1, size);
	CHECK(p != NULL);
#endif
	return p;
}

static inline void test_device_free(void *p)
{
#ifdef __CUDACC__
	cudaFree(p);
#else
	free(p);
#endif
}

/* ---- results of a kernel, one a block ------------------------------------------------------ */

struct test_report {
	uint64_t line; /* of the first wrong result, 0: none */
	uint64_t got, want;
	uint64_t done; /* the block came to its end */
	uint64_t pad[12];
};

static inline void test_reports(const struct test_report *r, unsigned blocks)
{
	for (unsigned i = 0; i < blocks; i++) {
		if (r[i].line)
			FAIL("kernel, block %u, line %llu: %lld, not %lld", i,
			     (unsigned long long)r[i].line, (long long)r[i].got,
			     (long long)r[i].want);
		if (!r[i].done)
			FAIL("kernel, block %u: it did not come to its end", i);
	}
}

/* Waits for the kernels of `g`, looks at what they report and clears it. */
static inline void test_sync(gpunet_t *g, struct test_report *r, unsigned blocks)
{
	int rc = gpunet_sync(g, 60000 * TEST_SLOW);

	if (rc == -ETIMEDOUT)
		test_hangs();
	for (unsigned i = 0; i < blocks; i++) {
		uint64_t line = __atomic_load_n(&r[i].line, __ATOMIC_ACQUIRE);

		if (rc != 0 && line)
			FAIL("kernel, block %u, line %llu: %lld, not %lld (and sync is %d)", i,
			     (unsigned long long)line, (long long)r[i].got, (long long)r[i].want,
			     rc);
	}
	CHECK_EQ(rc, 0);
	test_reports(r, blocks);
	memset(r, 0, blocks * sizeof(*r));
}

/* ---- addresses ----------------------------------------------------------------------------- */

/* An address in the system's layout, and a word for whoever waits until it is known. */
struct test_addr {
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
		uint8_t bytes[128];
	} a;
	uint32_t len;
	int protocol; /* of gsocket */
	uint64_t ready;
};

enum test_kind { TEST_TCP, TEST_TCP6, TEST_UNIX, TEST_ABSTRACT, TEST_KINDS };

/*
 * GPUNET_TEST_RDMA=ADDRESS: every kind of stream goes over RDMA instead, at that address of this machine, IPv4 or IPv6. The host's own
 * ends do so as well where the program runs under librspreload.
 */
static inline const char *test_rdma(void)
{
	return getenv("GPUNET_TEST_RDMA");
}

/* A stream socket of the host. librspreload lets those with flags be ordinary ones. */
static inline int test_host_socket(int family)
{
	return socket(family, SOCK_STREAM | (test_rdma() ? 0 : SOCK_CLOEXEC), 0);
}

static inline int test_has_ipv6(void)
{
	struct sockaddr_in6 a;
	int fd = test_rdma() ? -1 : socket(AF_INET6, SOCK_STREAM, 0), rc;

	if (fd < 0)
		return 0;
	memset(&a, 0, sizeof(a));
	a.sin6_family = AF_INET6;
	a.sin6_addr = in6addr_loopback;
	rc = bind(fd, (struct sockaddr *)&a, sizeof(a));
	close(fd);
	return rc == 0;
}

static inline void test_addr_rdma(struct test_addr *a, const char *text)
{
	a->protocol = GNET_PROTO_RDMA;
	if (inet_pton(AF_INET, text, &a->a.in.sin_addr) == 1) {
		a->a.in.sin_family = AF_INET;
		a->len = sizeof(a->a.in);
		return;
	}
	a->a.in6.sin6_family = AF_INET6;
	a->len = sizeof(a->a.in6);
	if (inet_pton(AF_INET6, text, &a->a.in6.sin6_addr) != 1)
		FAIL("GPUNET_TEST_RDMA: %s is no address", text);
}

/* A loopback address to bind: port 0, or a path or name of this process. */
static inline void test_addr_make(struct test_addr *a, enum test_kind kind)
{
	static unsigned count;
	char name[64];

	memset(a, 0, sizeof(*a));
	if (test_rdma()) {
		test_addr_rdma(a, test_rdma());
		return;
	}
	switch (kind) {
	case TEST_TCP:
		a->a.in.sin_family = AF_INET;
		a->a.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		a->len = sizeof(a->a.in);
		break;
	case TEST_TCP6:
		a->a.in6.sin6_family = AF_INET6;
		a->a.in6.sin6_addr = in6addr_loopback;
		a->len = sizeof(a->a.in6);
		break;
	default:
		a->a.un.sun_family = AF_UNIX;
		snprintf(name, sizeof(name), "/tmp/gpn-test-%d-%u", (int)getpid(), count++);
		if (kind == TEST_UNIX) {
			/* A process of the same number may have been killed before it could. */
			unlink(name);
			memcpy(a->a.un.sun_path, name, strlen(name) + 1);
			a->len = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) +
					    1);
		} else {
			memcpy(a->a.un.sun_path + 1, name + 5, strlen(name) - 5);
			a->len = (uint32_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) -
					    4);
		}
		break;
	}
}

static inline void test_addr_remove(const struct test_addr *a)
{
	if (a->a.sa.sa_family == AF_UNIX && a->a.un.sun_path[0])
		unlink(a->a.un.sun_path);
}

/* Waits until a kernel has published the address. `reports` may be NULL. */
static inline void test_addr_wait(struct test_addr *a, const struct test_report *reports)
{
	while (!__atomic_load_n(&a->ready, __ATOMIC_ACQUIRE)) {
		if (reports && __atomic_load_n(&reports->line, __ATOMIC_ACQUIRE))
			test_reports(reports, 1);
		test_sleep_ms(1);
	}
}

/* ---- host peers ---------------------------------------------------------------------------- */

static inline int test_connect(const struct test_addr *a)
{
	int fd = test_host_socket(a->a.sa.sa_family);

	CHECK(fd >= 0);
	if (connect(fd, &a->a.sa, a->len) != 0)
		FAIL("connect: %s", strerror(errno));
	return fd;
}

/* A listener of the host; `a` is then the address to connect to. */
static inline int test_listen(struct test_addr *a, int backlog)
{
	int fd = test_host_socket(a->a.sa.sa_family);
	socklen_t len = sizeof(a->a);

	CHECK(fd >= 0);
	if (bind(fd, &a->a.sa, a->len) != 0)
		FAIL("bind: %s", strerror(errno));
	CHECK_EQ(listen(fd, backlog), 0);
	CHECK_EQ(getsockname(fd, &a->a.sa, &len), 0);
	a->len = len;
	return fd;
}

static inline int test_accept(int fd)
{
	int c;

	do
		c = accept(fd, NULL, NULL);
	while (c < 0 && errno == EINTR);
	CHECK(c >= 0);
	return c;
}

/* A listener of the host whose backlog is full: connects to `addr` do not end. */
struct test_full {
	struct test_addr *addr;
	int listener, n, fds[64];
};

static inline void test_full_open(struct test_full *f, enum test_kind kind)
{
	f->addr = (struct test_addr *)test_shared(sizeof(*f->addr));
	test_addr_make(f->addr, kind);
	f->listener = test_listen(f->addr, 0);
	for (f->n = 0; f->n < 64;) {
		int fd = socket(f->addr->a.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
		struct pollfd p = { fd, POLLOUT, 0 };

		CHECK(fd >= 0);
		f->fds[f->n++] = fd;
		if (connect(fd, &f->addr->a.sa, f->addr->len) == 0)
			continue;
		if (errno == EAGAIN)
			return;
		CHECK_EQ(errno, EINPROGRESS);
		if (poll(&p, 1, 200) == 0)
			return;
	}
	FAIL("a backlog of 0 took %d connections", f->n);
}

static inline void test_full_close(struct test_full *f)
{
	while (f->n > 0)
		close(f->fds[--f->n]);
	close(f->listener);
	test_addr_remove(f->addr);
	test_shared_free(f->addr);
}

static inline void test_write(int fd, const void *data, size_t n)
{
	const uint8_t *p = (const uint8_t *)data;

	while (n) {
		ssize_t k = write(fd, p, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			FAIL("write: %s", strerror(errno));
		p += k;
		n -= (size_t)k;
	}
}

/* One read, repeated after signals: a count, 0 or -errno. */
static inline ssize_t test_read_some(int fd, void *data, size_t n)
{
	ssize_t k;

	do
		k = read(fd, data, n);
	while (k < 0 && errno == EINTR);
	return k < 0 ? -errno : k;
}

static inline void test_read(int fd, void *data, size_t n)
{
	uint8_t *p = (uint8_t *)data;

	while (n) {
		ssize_t k = test_read_some(fd, p, n);

		if (k <= 0)
			FAIL("read: %zd with %zu bytes missing", k, n);
		p += k;
		n -= (size_t)k;
	}
}

/* The stream of `fd` is at its end. */
static inline void test_read_end(int fd)
{
	char c;

	CHECK_EQ(test_read_some(fd, &c, 1), 0);
}

/* ---- a pattern in which every position and every stream differ ----------------------------- */

#define TEST_PATTERN_(key, pos)                                                        \
	((uint8_t)((((uint32_t)(pos) + (uint32_t)(key)*40503u) * 2654435761u) >> 24) ^ \
	 (uint8_t)((uint64_t)(pos) >> 8))

static inline void test_pattern(uint8_t *p, size_t n, uint64_t pos, uint32_t key)
{
	for (size_t i = 0; i < n; i++)
		p[i] = TEST_PATTERN_(key, pos + i);
}

static inline void test_pattern_check(const uint8_t *p, size_t n, uint64_t pos, uint32_t key)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != TEST_PATTERN_(key, pos + i))
			FAIL("byte %llu of stream %u is 0x%02x, not 0x%02x",
			     (unsigned long long)(pos + i), key, p[i], TEST_PATTERN_(key, pos + i));
}

/* ---- what most kernels are given ----------------------------------------------------------- */

#define TEST_WORDS 64

struct test_args {
	gnet_t *net;
	struct test_report *report; /* one a block */
	struct test_addr *want;     /* to bind */
	struct test_addr *where;    /* to connect to, once it is published */
	uint64_t *word;             /* TEST_WORDS of shared memory, zero at first */
	unsigned long long *dword;  /* TEST_WORDS of device memory, zero at first */
	uint8_t *buf;               /* device memory, `room` bytes a block */
	uint64_t room;
	uint64_t n;
};

static inline struct test_args test_setup(gpunet_t *g, enum test_kind kind, unsigned blocks,
					  size_t room)
{
	struct test_args a;

	memset(&a, 0, sizeof(a));
	a.net = gpunet_device(g);
	a.report = (struct test_report *)test_shared(blocks * sizeof(*a.report));
	a.want = (struct test_addr *)test_shared(2 * sizeof(*a.want));
	a.where = a.want + 1;
	a.word = (uint64_t *)test_shared(TEST_WORDS * sizeof(*a.word));
	a.dword = (unsigned long long *)test_device(TEST_WORDS * sizeof(*a.dword));
	a.buf = (uint8_t *)test_device(blocks * room);
	a.room = room;
	test_addr_make(a.want, kind);
	return a;
}

/* No kernel uses them any more. */
static inline void test_teardown(struct test_args *a)
{
	test_addr_remove(a->want);
	test_device_free(a->buf);
	test_device_free(a->dword);
	test_shared_free(a->word);
	test_shared_free(a->want);
	test_shared_free(a->report);
}

/* The host's side of a word that a kernel waits for, or sets. */
static inline void test_word_set(uint64_t *word, uint64_t v)
{
	__atomic_store_n(word, v, __ATOMIC_RELEASE);
}

static inline void test_word_wait(const uint64_t *word, uint64_t v,
				  const struct test_report *reports)
{
	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < v) {
		if (__atomic_load_n(&reports->line, __ATOMIC_ACQUIRE))
			test_reports(reports, 1);
		test_sleep_ms(1);
	}
}

#define TEST_LAUNCH(g, kernel, a, blocks, threads)                                  \
	do {                                                                        \
		struct gpunet_grid test_grid_ = { blocks, 1, 1, threads, 1, 1, 0 }; \
		CHECK_EQ(GPUNET_LAUNCH(g, kernel, test_grid_, a), 0);               \
	} while (0)

/*
 * Defines the kernel that runs `int fn(struct test_args *, struct test_report *, uint8_t *buf)`
 * in each block.
 */
#define TEST_KERNEL(name, fn)                                                                    \
	GNET_KERNEL(name, struct test_args, test_a)                                              \
	{                                                                                        \
		struct test_report *test_r = &test_a.report[blockIdx.x];                         \
                                                                                                 \
		test_k_done(test_r, fn(&test_a, test_r, test_a.buf + test_a.room * blockIdx.x)); \
	}

/* ---- kernel: checks ------------------------------------------------------------------------ */

/* Number of the thread in its block, whose dimensions may be several. */
GNET_DEV unsigned test_k_tid(void)
{
	return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

GNET_DEV int test_k_bad(struct test_report *r, int line, int64_t got, int64_t want)
{
	if (test_k_tid() == 0) {
		r->got = (uint64_t)got;
		r->want = (uint64_t)want;
		gnet_sys_store_release(&r->line, (uint64_t)line);
	}
	return -1;
}

/* In a function that returns int: leaves it with -1 when the expression has another value. */
#define K_EQ(r, expr, wanted)                                                        \
	do {                                                                         \
		int64_t test_got_ = (int64_t)(expr), test_want_ = (int64_t)(wanted); \
		if (test_got_ != test_want_)                                         \
			return test_k_bad(r, __LINE__, test_got_, test_want_);       \
	} while (0)

/* The expression is a descriptor or count (not negative), kept in `var`. */
#define K_GET(r, var, expr)                                                \
	do {                                                               \
		var = (expr);                                              \
		if (var < 0)                                               \
			return test_k_bad(r, __LINE__, (int64_t)(var), 0); \
	} while (0)

/* A function of this file that reports for itself. */
#define K_CALL(expr)               \
	do {                       \
		if ((expr) != 0)   \
			return -1; \
	} while (0)

GNET_DEV void test_k_done(struct test_report *r, int rc)
{
	__syncthreads();
	if (test_k_tid() == 0 && rc == 0)
		gnet_sys_store_release(&r->done, 1);
}

/*
 * nvcc inlines every device function of gpunet into its caller, which is right for a kernel with a
 * few calls and takes minutes for a test with a hundred. Here each is compiled once a file.
 */
#ifdef __CUDACC__
#define TEST_ONCE static __device__ __noinline__ __attribute__((unused))

TEST_ONCE int test_gsocket(gnet_t *net, int domain, int type, int protocol)
{
	return gsocket(net, domain, type, protocol);
}

TEST_ONCE int test_gbind(gnet_t *net, int fd, const void *addr, uint32_t len)
{
	return gbind(net, fd, addr, len);
}

TEST_ONCE int test_glisten(gnet_t *net, int fd, int backlog)
{
	return glisten(net, fd, backlog);
}

TEST_ONCE int test_gaccept4(gnet_t *net, int fd, void *addr, uint32_t *len, int flags)
{
	return gaccept4(net, fd, addr, len, flags);
}

TEST_ONCE int test_gconnect(gnet_t *net, int fd, const void *addr, uint32_t len)
{
	return gconnect(net, fd, addr, len);
}

TEST_ONCE int64_t test_gsend(gnet_t *net, int fd, const void *buf, uint64_t len, int flags)
{
	return gsend(net, fd, buf, len, flags);
}

TEST_ONCE int64_t test_grecv(gnet_t *net, int fd, void *buf, uint64_t len, int flags)
{
	return grecv(net, fd, buf, len, flags);
}

TEST_ONCE int test_gshutdown(gnet_t *net, int fd, int how)
{
	return gshutdown(net, fd, how);
}

TEST_ONCE int test_gclose(gnet_t *net, int fd)
{
	return gclose(net, fd);
}

TEST_ONCE int test_ggetsockname(gnet_t *net, int fd, void *addr, uint32_t *len)
{
	return ggetsockname(net, fd, addr, len);
}

TEST_ONCE int test_ggetpeername(gnet_t *net, int fd, void *addr, uint32_t *len)
{
	return ggetpeername(net, fd, addr, len);
}

#define gsocket test_gsocket
#define gbind test_gbind
#define glisten test_glisten
#define gaccept(net, fd, addr, len) test_gaccept4(net, fd, addr, len, 0)
#define gaccept4 test_gaccept4
#define gconnect test_gconnect
#define gsend test_gsend
#define grecv test_grecv
#define gshutdown test_gshutdown
#define gclose test_gclose
#define ggetsockname test_ggetsockname
#define ggetpeername test_ggetpeername
#endif

/* ---- kernel: words, addresses, patterns ---------------------------------------------------- */

/* Waits until a word in shared memory is at least `v`. */
GNET_DEV void test_k_wait(const uint64_t *word, uint64_t v)
{
	if (test_k_tid() == 0)
		while (gnet_sys_load_acquire(word) < v)
			__nanosleep(20000);
	__syncthreads();
}

GNET_DEV void test_k_set(uint64_t *word, uint64_t v)
{
	__syncthreads();
	if (test_k_tid() == 0)
		gnet_sys_store_release(word, v);
}

GNET_DEV void test_k_sleep(uint64_t us)
{
	uint64_t end = gnet_time_ns() + us * 1000;

	if (test_k_tid() == 0)
		while (gnet_time_ns() < end)
			__nanosleep(20000);
	__syncthreads();
}

/* Waits until some block's call holds the receiving direction, and has had the time to look at the socket's limit. */
GNET_DEV void test_k_wait_held(gnet_t *net, int fd)
{
	if (test_k_tid() == 0)
		while (!(gnet_dev_load(&net->socks[GNET_FD_SLOT(fd)].rx) & GNET_L_HELD))
			__nanosleep(20000);
	test_k_sleep(100000);
}

/* Makes a listener on *want and publishes where it is: the descriptor or a negative errno. */
GNET_DEV int test_k_listen(gnet_t *net, const struct test_addr *want, struct test_addr *where,
			   int backlog)
{
	__shared__ uint32_t len;
	int fd = gsocket(net, want->a.sa.sa_family, GNET_SOCK_STREAM, want->protocol), rc;

	if (fd < 0)
		return fd;
	rc = gbind(net, fd, &want->a, want->len);
	if (rc == 0)
		rc = glisten(net, fd, backlog);
	if (test_k_tid() == 0)
		len = sizeof(where->a);
	__syncthreads();
	if (rc == 0)
		rc = ggetsockname(net, fd, &where->a, &len);
	if (rc < 0) {
		gclose(net, fd);
		return rc;
	}
	if (test_k_tid() == 0) {
		where->len = len;
		where->protocol = want->protocol;
	}
	test_k_set(&where->ready, 1);
	return fd;
}

/* Connects to an address that another block or the host publishes. */
GNET_DEV int test_k_connect(gnet_t *net, const struct test_addr *where)
{
	int fd, rc;

	test_k_wait(&where->ready, 1);
	fd = gsocket(net, where->a.sa.sa_family, GNET_SOCK_STREAM, where->protocol);
	if (fd < 0)
		return fd;
	rc = gconnect(net, fd, &where->a, where->len);
	if (rc < 0) {
		gclose(net, fd);
		return rc;
	}
	return fd;
}

GNET_DEV void test_k_pattern(uint8_t *p, uint64_t n, uint64_t pos, uint32_t key)
{
	__syncthreads();
	for (uint64_t i = test_k_tid(); i < n; i += blockDim.x * blockDim.y * blockDim.z)
		p[i] = TEST_PATTERN_(key, pos + i);
	__syncthreads();
}

/* How many bytes are wrong, the same for all threads (up to a count a thread). */
GNET_DEV int test_k_wrong(const uint8_t *p, uint64_t n, uint64_t pos, uint32_t key)
{
	int wrong = 0;

	for (uint64_t i = test_k_tid(); i < n; i += blockDim.x * blockDim.y * blockDim.z)
		wrong |= p[i] != TEST_PATTERN_(key, pos + i);
	return __syncthreads_count(wrong);
}

/* Sends back what comes through `buf` of `room` bytes, to the end of the stream, and closes. */
GNET_DEV int test_k_echo(struct test_report *r, gnet_t *net, int fd, uint8_t *buf, uint64_t room)
{
	int64_t n;

	for (;;) {
		K_GET(r, n, grecv(net, fd, buf, room, 0));
		if (n == 0)
			break;
		K_EQ(r, gsend(net, fd, buf, (uint64_t)n, 0), n);
	}
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

/* All of `n` bytes of a stream, through `buf` of `room` bytes. */
GNET_DEV int test_k_send_all(struct test_report *r, gnet_t *net, int fd, uint8_t *buf,
			     uint64_t room, uint64_t n, uint32_t key)
{
	uint64_t pos = 0;

	while (pos < n) {
		uint64_t k = n - pos < room ? n - pos : room;

		test_k_pattern(buf, k, pos, key);
		K_EQ(r, gsend(net, fd, buf, k, 0), k);
		pos += k;
	}
	return 0;
}

/*
 * For loops of gsend with MSG_DONTWAIT to a peer that does not read, given each result: 1 when nothing has gone out for so long that
 * the path is full. Once is no proof: the proxy's thread may only have had no processor.
 */
GNET_DEV int test_k_full(int64_t n, int *quiet)
{
	if (n != -EAGAIN) {
		*quiet = 0;
		return 0;
	}
	test_k_sleep(5000);
	return ++*quiet >= 20;
}

/* The next `n` bytes of a stream are the pattern from `pos` on. */
GNET_DEV int test_k_recv_all(struct test_report *r, gnet_t *net, int fd, uint8_t *buf,
			     uint64_t room, uint64_t n, uint64_t pos, uint32_t key)
{
	uint64_t end = pos + n;

	while (pos < end) {
		uint64_t want = end - pos < room ? end - pos : room;
		int64_t k = grecv(net, fd, buf, want, 0);

		if (k <= 0 || (uint64_t)k > want)
			return test_k_bad(r, __LINE__, k, (int64_t)want);
		K_EQ(r, test_k_wrong(buf, (uint64_t)k, pos, key), 0);
		pos += (uint64_t)k;
	}
	return 0;
}

#endif
