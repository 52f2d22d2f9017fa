/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gsendmsg and grecvmsg: buffers gathered and scattered, of streams and datagrams, in every scope; empty buffers, one byte each,
 * more than a ring holds; MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT, MSG_TRUNC; and what is refused. Against a host's socket.
 */
#include "opt.h"

#include <sys/uio.h>

enum { STEP, AT };
enum { BLOCK, WARP, THREAD };

#define PARTS 5
#define BIG (300u << 10)
#define LATE 8u

struct msg_args {
	struct test_args t;
	struct test_addr *host; /* the host's socket of datagrams */
	struct test_addr *from;
	struct gnet_msghdr *m; /* these are memory that kernels and host see */
	struct gnet_iovec *v;  /* [1025] */
	int scope;
};

static int same_layout(void)
{
	return sizeof(struct gnet_msghdr) == sizeof(struct msghdr) &&
	       offsetof(struct gnet_msghdr, namelen) == offsetof(struct msghdr, msg_namelen) &&
	       offsetof(struct gnet_msghdr, iov) == offsetof(struct msghdr, msg_iov) &&
	       offsetof(struct gnet_msghdr, iovlen) == offsetof(struct msghdr, msg_iovlen) &&
	       offsetof(struct gnet_msghdr, control) == offsetof(struct msghdr, msg_control) &&
	       offsetof(struct gnet_msghdr, controllen) ==
		       offsetof(struct msghdr, msg_controllen) &&
	       offsetof(struct gnet_msghdr, flags) == offsetof(struct msghdr, msg_flags) &&
	       sizeof(struct gnet_iovec) == sizeof(struct iovec) &&
	       offsetof(struct gnet_iovec, len) == offsetof(struct iovec, iov_len);
}

#define SET(stmt)                     \
	do {                          \
		__syncthreads();      \
		if (threadIdx.x == 0) \
			stmt;         \
		__syncthreads();      \
	} while (0)

/* `n` bytes at `buf`; `way` says how they are cut. */
struct whole {
	uint8_t *buf;
	uint64_t n, way;
};

/* One thread: cuts them into parts. Some are empty. */
GNET_DEV void cut_here(struct msg_args *a, const struct whole *w)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < PARTS; i++) {
		uint64_t part = i == PARTS - 1 ? w->n - at : (w->way * 37 + i * 91) % 130;

		if (part > w->n - at || (w->way + i) % 4 == 3)
			part = i == PARTS - 1 ? w->n - at : 0;
		a->v[i].base = w->buf + at;
		a->v[i].len = part;
		at += part;
	}
	a->m->name = 0;
	a->m->namelen = 0;
	a->m->iov = a->v;
	a->m->iovlen = PARTS;
	a->m->control = 0;
	a->m->controllen = 0;
	a->m->flags = 77;
}

GNET_DEV void cut(struct msg_args *a, uint8_t *buf, uint64_t n, uint64_t way)
{
	struct whole w = { buf, n, way };

	__syncthreads();
	if (threadIdx.x == 0)
		cut_here(a, &w);
	__syncthreads();
}

/* By the threads that the scope says; the result for all of the block. `late`: the last of them fills the header right before it calls. */
GNET_DEV int64_t one_of(struct msg_args *a, int fd, int flags, int sending,
			const struct whole *late)
{
	__shared__ int64_t result;
	uint32_t n = a->scope == BLOCK ? blockDim.x : a->scope == THREAD ? 1 : 32;
	uint32_t last = (n < blockDim.x ? n : blockDim.x) - 1;
	struct gnet_msghdr *m = a->m;
	gnet_t *net = a->t.net;
	int64_t rc = 0;

	if (a->scope != BLOCK)
		__syncthreads();
	if (late && threadIdx.x == last)
		cut_here(a, late);
	if (a->scope == BLOCK)
		return sending ? gsendmsg(net, fd, m, flags) : grecvmsg(net, fd, m, flags);
	if (a->scope == WARP && threadIdx.x < 32)
		rc = sending ? gsendmsg_warp(net, fd, m, flags) : grecvmsg_warp(net, fd, m, flags);
	else if (a->scope == THREAD && threadIdx.x == 0)
		rc = sending ? gsendmsg_thread(net, fd, m, flags)
			     : grecvmsg_thread(net, fd, m, flags);
	if (threadIdx.x == 0)
		result = rc;
	__syncthreads();
	rc = result;
	__syncthreads();
	return rc;
}

GNET_DEV int64_t send_parts(struct msg_args *a, int fd, int flags)
{
	return one_of(a, fd, flags, 1, NULL);
}

GNET_DEV int64_t recv_parts(struct msg_args *a, int fd, int flags)
{
	return one_of(a, fd, flags, 0, NULL);
}

GNET_DEV uint64_t length_of(uint64_t i)
{
	return i == 7 ? BIG : i == 3 ? 0 : 1 + i * 7919 % (i % 3 ? 150 : 9000);
}

/* The host sends back what comes. */
GNET_DEV int stream_echo(struct msg_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	for (uint64_t i = 0; i < a->t.n; i++) {
		uint64_t n = length_of(i);

		test_k_pattern(buf, n, i, 3);
		cut(a, buf, n, i);
		K_EQ(r, send_parts(a, fd, 0), n);
		test_k_pattern(buf, n, i, 99);
		cut(a, buf, n, i + 1);
		if (n) {
			K_EQ(r, recv_parts(a, fd, GNET_MSG_WAITALL | GNET_MSG_PEEK) > 0, 1);
			K_EQ(r, test_k_wrong(buf, 1, i, 3), 0);
		}
		K_EQ(r, recv_parts(a, fd, GNET_MSG_WAITALL), n);
		K_EQ(r, test_k_wrong(buf, n, i, 3), 0);
		K_EQ(r, a->m->flags, 0);
	}
	return 0;
}

/*
 * Each call begins and ends with a barrier: the header is the last thread's work, and whoever comes first out of the call may write it.
 * The host sends back what comes.
 */
GNET_DEV int stream_late(struct msg_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	for (uint64_t i = 0; i < LATE; i++) {
		struct whole out = { buf, 200 + i, i }, in = { buf + 1024, 200 + i, i + 2 };

		test_k_pattern(in.buf, in.n, i, 99);
		test_k_pattern(out.buf, out.n, i, 6);
		K_EQ(r, one_of(a, fd, 0, 1, &out), out.n);
		K_EQ(r, one_of(a, fd, GNET_MSG_WAITALL, 0, &in), in.n);
		K_EQ(r, a->m->flags, 0);
		K_EQ(r, test_k_wrong(in.buf, in.n, i, 6), 0);
		SET(a->m->name = &a->host->a);
		K_EQ(r, send_parts(a, fd, 0), -EISCONN);
		if (threadIdx.x == 0)
			a->m->name = 0;
	}
	return 0;
}

/* The same of grecvfrom on a stream, whose length of an address is 0 for whoever looks first. */
GNET_DEV int stream_from(struct msg_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	for (uint64_t i = 0; i < LATE; i++) {
		uint32_t seen;

		K_EQ(r, gsend(a->t.net, fd, buf, 10, 0), 10);
		if (threadIdx.x == blockDim.x - 1)
			a->from->len = 77;
		K_EQ(r,
		     grecvfrom(a->t.net, fd, buf, 10, GNET_MSG_WAITALL, &a->from->a, &a->from->len),
		     10);
		seen = a->from->len;
		K_EQ(r, __syncthreads_count(seen != 0), 0);
	}
	return 0;
}

/* Without MSG_WAITALL: what is there, over all buffers. The host has sent 200 bytes and, after they are taken, ends. */
GNET_DEV int stream_short(struct msg_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	uint64_t got = 0;
	int64_t n;

	cut(a, buf, 1000, 5);
	K_EQ(r, recv_parts(a, fd, GNET_MSG_DONTWAIT), -EAGAIN);
	test_k_set(&a->t.word[AT], 1);
	while (got < 200) {
		cut(a, buf + got, 1000, 5);
		K_GET(r, n, recv_parts(a, fd, 0));
		K_EQ(r, n > 0, 1);
		got += (uint64_t)n;
	}
	K_EQ(r, got, 200);
	K_EQ(r, test_k_wrong(buf, 200, 0, 4), 0);
	K_EQ(r, gshutdown(a->t.net, fd, GNET_SHUT_WR), 0);
	K_EQ(r, recv_parts(a, fd, 0), 0);
	K_EQ(r, send_parts(a, fd, 0), -EPIPE);
	return 0;
}

GNET_DEV int refused(struct msg_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	cut(a, buf, 10, 0);
	SET(a->m->controllen = 1);
	K_EQ(r, send_parts(a, fd, 0), -EOPNOTSUPP);
	SET(a->m->controllen = 0);
	K_EQ(r, send_parts(a, fd, 1), -EOPNOTSUPP); /* MSG_OOB */
	K_EQ(r, recv_parts(a, fd, 1), -EOPNOTSUPP);
	SET(a->m->iovlen = 1025);
	K_EQ(r, send_parts(a, fd, 0), -EMSGSIZE);
	K_EQ(r, recv_parts(a, fd, 0), -EMSGSIZE);
	SET(a->m->iovlen = (uint64_t)1 << 32 | 1);
	K_EQ(r, send_parts(a, fd, 0), -EMSGSIZE);
	SET(a->m->iovlen = 2);
	SET(a->v[0].len = a->v[1].len = INT64_MAX);
	K_EQ(r, send_parts(a, fd, 0), -EINVAL);
	K_EQ(r, recv_parts(a, fd, 0), -EINVAL);
	SET(a->m->iov = 0);
	K_EQ(r, send_parts(a, fd, 0), -EINVAL);
	SET(a->m->iovlen = 0);
	K_EQ(r, send_parts(a, fd, 0), 0);
	K_EQ(r, recv_parts(a, fd, 0), 0);
	K_EQ(r, send_parts(a, -1, 0), -EBADF);
	K_EQ(r, recv_parts(a, fd + (1 << GNET_SLOT_BITS), 0), -EBADF);
	SET(a->m->name = &a->host->a);
	K_EQ(r, send_parts(a, fd, 0), -EISCONN);
	return 0;
}

/* A thousand buffers of a byte; then all that the limit allows. */
GNET_DEV int many(struct msg_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	for (uint32_t n = 1000; n <= 1024; n += 24) {
		test_k_pattern(buf, n, n, 5);
		cut(a, buf, 0, 0);
		for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
			a->v[i].base = buf + i;
			a->v[i].len = 1;
		}
		SET(a->m->iovlen = n);
		K_EQ(r, send_parts(a, fd, 0), n);
		test_k_pattern(buf, n, n, 98);
		K_EQ(r, recv_parts(a, fd, GNET_MSG_WAITALL), n);
		K_EQ(r, test_k_wrong(buf, n, n, 5), 0);
	}
	return 0;
}

GNET_DEV int stream_all(struct msg_args *a, struct test_report *r, uint8_t *buf)
{
	gnet_t *net = a->t.net;
	int fd;

	K_GET(r, fd, test_k_connect(net, a->t.where));
	K_CALL(refused(a, r, fd, buf));
	K_CALL(stream_echo(a, r, fd, buf));
	K_CALL(many(a, r, fd, buf));
	K_CALL(stream_late(a, r, fd, buf));
	K_CALL(stream_from(a, r, fd, buf));
	K_CALL(stream_short(a, r, fd, buf));
	K_EQ(r, gclose(net, fd), 0);
	K_EQ(r, recv_parts(a, fd, 0), -EBADF);
	return 0;
}

GNET_KERNEL(stream_kernel, struct msg_args, a)
{
	test_k_done(a.t.report, stream_all(&a, a.t.report, a.t.buf));
}

/* ---- datagrams --------------------------------------------------------------------------------------------------------- */

GNET_DEV int name_is_host(struct msg_args *a, struct test_report *r)
{
	int same = 1;

	for (uint32_t i = 0; i < a->host->len; i++)
		same &= a->from->a.bytes[i] == a->host->a.bytes[i];
	K_EQ(r, a->m->namelen, a->host->len);
	K_EQ(r, same, 1);
	return 0;
}

GNET_DEV int dgram_all(struct msg_args *a, struct test_report *r, uint8_t *buf)
{
	gnet_t *net = a->t.net;
	int fd;

	K_GET(r, fd, gsocket(net, a->host->a.sa.sa_family, GNET_SOCK_DGRAM, 0));
	K_EQ(r,
	     gbind(net, fd, &a->t.want->a, a->host->a.sa.sa_family == AF_UNIX ? 2 : a->t.want->len),
	     0);
	cut(a, buf, 10, 0);
	K_EQ(r, send_parts(a, fd, 0), -EDESTADDRREQ);
	for (uint64_t i = 0; i < a->t.n; i++) {
		uint64_t n = length_of(i) % 9000;

		test_k_pattern(buf, n, i, 3);
		cut(a, buf, n, i);
		SET(a->m->name = &a->host->a);
		SET(a->m->namelen = a->host->len);
		K_EQ(r, send_parts(a, fd, 0), n);
		test_k_pattern(buf, n, i, 97);
		cut(a, buf, n, i + 1);
		SET(a->m->name = &a->from->a);
		SET(a->m->namelen = sizeof(a->from->a));
		SET(a->m->controllen = 9);
		K_EQ(r, recv_parts(a, fd, 0), n);
		K_EQ(r, test_k_wrong(buf, n, i, 3), 0);
		K_EQ(r, a->m->flags, 0);
		K_EQ(r, a->m->controllen, 0);
		K_CALL(name_is_host(a, r));
	}
	/* 300 bytes into 100, then into 100 and their length. */
	K_EQ(r, gconnect(net, fd, &a->host->a, a->host->len), 0);
	for (int i = 0; i < 2; i++) {
		test_k_pattern(buf, 300, 0, 3);
		cut(a, buf, 300, 1);
		K_EQ(r, send_parts(a, fd, 0), 300);
		test_k_pattern(buf, 300, 0, 97);
		cut(a, buf, 100, 2);
		K_EQ(r, recv_parts(a, fd, i ? GNET_MSG_TRUNC : 0), i ? 300 : 100);
		K_EQ(r, test_k_wrong(buf, 100, 0, 3), 0);
		K_EQ(r, test_k_wrong(buf + 100, 200, 100, 97), 0);
		K_EQ(r, a->m->flags, GNET_MSG_TRUNC);
	}
	K_EQ(r, recv_parts(a, fd, GNET_MSG_DONTWAIT), -EAGAIN);
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

GNET_KERNEL(dgram_kernel, struct msg_args, a)
{
	test_k_done(a.t.report, dgram_all(&a, a.t.report, a.t.buf));
}

/* ---- host -------------------------------------------------------------------------------------------------------------- */

static struct msg_args set_up(gpunet_t *g, enum test_kind kind, int scope)
{
	struct msg_args a;

	memset(&a, 0, sizeof(a));
	a.t = test_setup(g, kind, 1, BIG + 4096);
	a.t.n = test_rounds(100, 1000);
	if (a.t.n < 12)
		a.t.n = 12;
	a.host = (struct test_addr *)test_shared(2 * sizeof(*a.host));
	a.from = a.host + 1;
	a.m = (struct gnet_msghdr *)test_shared(sizeof(*a.m));
	a.v = (struct gnet_iovec *)test_shared(1025 * sizeof(*a.v));
	a.scope = scope;
	return a;
}

static void tear_down(struct msg_args *a)
{
	test_addr_remove(a->host);
	test_shared_free(a->v);
	test_shared_free(a->m);
	test_shared_free(a->host);
	test_teardown(&a->t);
}

/* Until there is something to read, or the kernel has failed. */
static void wait_for(const struct msg_args *a, int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	while (poll(&p, 1, 100) != 1)
		if (__atomic_load_n(&a->t.report->line, __ATOMIC_ACQUIRE))
			test_reports(a->t.report, 1);
}

static void serve_stream(struct msg_args *a, int fd)
{
	static uint8_t data[64 << 10];
	uint64_t left = 1000 + 1024 + LATE * 10;

	for (uint64_t i = 0; i < LATE; i++)
		left += 200 + i;
	for (uint64_t i = 0; i < a->t.n; i++)
		left += i == 7 ? BIG : i == 3 ? 0 : 1 + i * 7919 % (i % 3 ? 150 : 9000);
	while (left) {
		ssize_t n;

		wait_for(a, fd);
		n = test_read_some(fd, data, left < sizeof(data) ? left : sizeof(data));
		if (n <= 0)
			test_reports(a->t.report, 1);
		CHECK(n > 0);
		test_write(fd, data, (size_t)n);
		left -= (uint64_t)n;
	}
	test_word_wait(&a->t.word[AT], 1, a->t.report);
	test_pattern(data, 200, 0, 4);
	test_write(fd, data, 200);
	test_read_end(fd);
}

static void run_stream(enum test_kind kind, int scope, unsigned threads, uint64_t seed)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct msg_args a;
	gpunet_t *g;
	int listener, fd;

	opt.segment_bytes = 64 << 10;
	opt.cpu_seed = seed;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(stream_kernel), 0);
	a = set_up(g, kind, scope);
	*a.t.where = *a.t.want;
	listener = test_listen(a.t.where, 1);
	a.t.where->ready = 1;
	TEST_LAUNCH(g, stream_kernel, a, 1, threads);
	fd = test_accept(listener);
	serve_stream(&a, fd);
	close(fd);
	close(listener);
	test_sync(g, a.t.report, 1);
	test_close(g);
	tear_down(&a);
}

static void run_dgram(enum test_kind kind, int scope, unsigned threads)
{
	static uint8_t data[16 << 10];
	struct sockaddr_storage from;
	struct msg_args a;
	socklen_t len = sizeof(a.host->a);
	gpunet_t *g = test_open(NULL);
	int fd;

	CHECK_EQ(GPUNET_PREPARE(dgram_kernel), 0);
	a = set_up(g, kind, scope);
	test_addr_make(a.host, kind);
	fd = socket(a.host->a.sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK_EQ(bind(fd, &a.host->a.sa, a.host->len), 0);
	CHECK_EQ(getsockname(fd, &a.host->a.sa, &len), 0);
	a.host->len = len;
	TEST_LAUNCH(g, dgram_kernel, a, 1, threads);
	for (uint64_t i = 0; i < a.t.n + 2; i++) {
		ssize_t n;

		wait_for(&a, fd);
		len = sizeof(from);
		n = recvfrom(fd, data, sizeof(data), 0, (struct sockaddr *)&from, &len);
		CHECK(n >= 0);
		CHECK_EQ(sendto(fd, data, (size_t)n, 0, (struct sockaddr *)&from, len), n);
	}
	test_sync(g, a.t.report, 1);
	close(fd);
	test_close(g);
	tear_down(&a);
}

int main(void)
{
	test_begin(60);
	CHECK(same_layout());
	run_stream(TEST_TCP, BLOCK, 64, 0);
	run_stream(TEST_UNIX, BLOCK, 5, 7);
	run_stream(TEST_TCP, WARP, 70, 0);
	run_stream(TEST_UNIX, THREAD, 33, 0);
	run_dgram(TEST_TCP, BLOCK, 64);
	run_dgram(TEST_ABSTRACT, WARP, 32);
	run_dgram(TEST_TCP, THREAD, 3);
	return 0;
}
