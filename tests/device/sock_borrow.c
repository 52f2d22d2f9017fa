/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Working in place: an echo from ring to ring, partial returns, who holds what, the end of a stream,
 * close under a borrow, borrows that are never given back.
 */
#include "test.h"

/* Words: who is where; what the kernel saw. */
enum { STEP, LISTENER, FD };

GNET_DEV void copy_span(uint8_t *dst, const uint8_t *src, uint64_t n)
{
	for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)
		dst[i] = src[i];
}

/* The byte number i of a borrow. */
GNET_DEV uint8_t *byte_of(const struct gnet_borrow *b, uint64_t i)
{
	return i < b->len[0] ? b->ptr[0] + i : b->ptr[1] + (i - b->len[0]);
}

GNET_DEV int wrong_in(const struct gnet_borrow *b, uint64_t n, uint64_t pos, uint32_t key)
{
	int wrong = 0;

	for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)
		wrong |= *byte_of(b, i) != TEST_PATTERN_(key, pos + i);
	return __syncthreads_count(wrong);
}

/* From one ring to the other, every third time a part only. */
GNET_DEV int echo_in_place(struct test_args *a, struct test_report *r, int fd)
{
	__shared__ struct gnet_borrow in, out;
	uint64_t round, i, n;
	int64_t got;

	for (round = 0;; round++) {
		K_GET(r, got, grecv_borrow(a->net, fd, &in, a->n, 0));
		if (got == 0)
			return 0;
		K_EQ(r, in.len[0] + in.len[1], got);
		n = round % 3 == 2 ? ((uint64_t)got + 1) / 2 : (uint64_t)got;
		K_EQ(r, gsend_reserve(a->net, fd, &out, n + (round & 1), 0), 0);
		K_EQ(r, out.len[0] + out.len[1], n + (round & 1));
		for (i = threadIdx.x; i < n; i += blockDim.x)
			*byte_of(&out, i) = *byte_of(&in, i);
		K_EQ(r, gsend_commit(a->net, fd, n), 0);
		K_EQ(r, grecv_return(a->net, fd, n), 0);
	}
}

/* What one write sent is there all at once, but where system calls misbehave. */
GNET_DEV int borrow_whole(struct test_args *a, struct test_report *r, int fd, struct gnet_borrow *b,
			  uint64_t max, int64_t whole)
{
	int64_t n;

	for (;;) {
		K_GET(r, n, grecv_borrow(a->net, fd, b, max, 0));
		if (n >= whole || !TEST_FAULTY)
			break;
		K_EQ(r, grecv_return(a->net, fd, 0), 0);
	}
	K_EQ(r, n, whole);
	return 0;
}

/* 50 and 300 bytes of the pattern have come, one after the other was seen; then the end. */
GNET_DEV int holds(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	__shared__ struct gnet_borrow b, c;
	int64_t n;

	K_EQ(r, grecv_return(a->net, fd, 0), -EINVAL);
	K_EQ(r, gsend_commit(a->net, fd, 0), -EINVAL);
	K_EQ(r, grecv_borrow(a->net, fd, &b, 0, 0), -EINVAL);
	K_EQ(r, gsend_reserve(a->net, fd, &b, 0, 0), -EINVAL);
	K_EQ(r, grecv_borrow(a->net, fd, &b, 10, GNET_MSG_PEEK), -EOPNOTSUPP);
	K_EQ(r, gsend_reserve(a->net, fd, &b, (1ull << a->net->seg_log2) + 1, 0), -EMSGSIZE);
	K_EQ(r, grecv_borrow(a->net, 12345, &b, 10, 0), -EBADF);
	K_EQ(r, gsend_reserve(a->net, 12345, &b, 10, 0), -EBADF);
	K_EQ(r, grecv_borrow(a->net, fd, &b, 10, GNET_MSG_DONTWAIT), -EAGAIN);
	test_k_set(&a->word[STEP], 1);
	/* A message in the status line, given back in parts. */
	K_CALL(borrow_whole(a, r, fd, &b, 20, 20));
	K_EQ(r, wrong_in(&b, 20, 0, 3), 0);
	K_EQ(r, grecv_borrow(a->net, fd, &c, 20, GNET_MSG_DONTWAIT), -EAGAIN);
	K_EQ(r, grecv(a->net, fd, buf, 20, GNET_MSG_DONTWAIT), -EAGAIN);
	K_EQ(r, grecv_return(a->net, fd, 21), -EINVAL);
	K_EQ(r, grecv_return(a->net, fd, 5), 0);
	K_EQ(r, grecv_return(a->net, fd, 0), -EINVAL);
	K_CALL(borrow_whole(a, r, fd, &b, 1000, 45));
	K_EQ(r, wrong_in(&b, 45, 5, 3), 0);
	/* More arrives meanwhile: what is borrowed stays. */
	test_k_set(&a->word[STEP], 2);
	test_k_sleep(30000);
	K_EQ(r, wrong_in(&b, 45, 5, 3), 0);
	K_EQ(r, grecv_return(a->net, fd, 40), 0);
	n = 45;
	while (n < 350) {
		int64_t k;

		K_GET(r, k, grecv_borrow(a->net, fd, &b, 1000, 0));
		K_EQ(r, wrong_in(&b, (uint64_t)k, (uint64_t)n, 3), 0);
		K_EQ(r, grecv_return(a->net, fd, (uint64_t)k), 0);
		n += k;
	}
	K_EQ(r, n, 350);
	K_EQ(r, grecv_borrow(a->net, fd, &b, 10, 0), 0);
	K_EQ(r, grecv_return(a->net, fd, 0), -EINVAL);
	/* The whole ring at once; one reserve a socket; a commit of less. */
	K_EQ(r, gsend_reserve(a->net, fd, &b, 1ull << a->net->seg_log2, 0), 0);
	K_EQ(r, gsend_reserve(a->net, fd, &c, 1, GNET_MSG_DONTWAIT), -EAGAIN);
	K_EQ(r, gsend(a->net, fd, buf, 1, GNET_MSG_DONTWAIT), -EAGAIN);
	for (uint64_t i = threadIdx.x; i < 1000; i += blockDim.x)
		*byte_of(&b, i) = TEST_PATTERN_(4, i);
	K_EQ(r, gsend_commit(a->net, fd, (1ull << a->net->seg_log2) + 1), -EINVAL);
	K_EQ(r, gsend_commit(a->net, fd, 1000), 0);
	K_EQ(r, gsend_commit(a->net, fd, 1), -EINVAL);
	return 0;
}

/* Both directions are borrowed when the socket is closed; the bytes are there until they are given back. */
GNET_DEV int closes(struct test_args *a, struct test_report *r, int fd)
{
	__shared__ struct gnet_borrow in, out;

	test_k_set(&a->word[STEP], 3);
	K_EQ(r, grecv_borrow(a->net, fd, &in, 5000, 0) > 0, 1);
	K_EQ(r, gsend_reserve(a->net, fd, &out, 5000, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, fd), -EBADF);
	K_EQ(r, grecv_borrow(a->net, fd, &in, 5000, 0), -EBADF);
	test_k_sleep(30000);
	K_EQ(r, wrong_in(&in, in.len[0] + in.len[1], 0, 5), 0);
	copy_span(out.ptr[0], in.ptr[0], in.len[0] < out.len[0] ? in.len[0] : out.len[0]);
	K_EQ(r, gsend_commit(a->net, fd, 5000), -EBADF);
	K_EQ(r, grecv_return(a->net, fd, 1), -EBADF);
	K_EQ(r, grecv_return(a->net, fd, 1), -EBADF);
	return 0;
}

GNET_DEV int scenes(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct gnet_borrow b;
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	for (int scene = 0; scene < 4; scene++) {
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		if (scene == 0)
			K_CALL(echo_in_place(a, r, fd));
		else if (scene == 1)
			K_CALL(holds(a, r, fd, buf));
		else if (scene == 2)
			K_CALL(closes(a, r, fd));
		else
			K_EQ(r, gsend_reserve(a->net, fd, &b, 100, 0), 0); /* forgotten */
		if (scene != 2)
			K_EQ(r, gclose(a->net, fd), 0);
	}
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(scenes_kernel, scenes)

/* Block 0 closes while block 1 waits for a borrow, or has one and gives it back at that moment. */
GNET_DEV int races(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct gnet_borrow b;
	int listener = -1, fd, rc;

	if (blockIdx.x == 0)
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	for (uint64_t round = 1; round <= a->n; round++) {
		if (blockIdx.x == 0) {
			K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
			test_k_set(&a->word[FD], (uint64_t)fd);
			test_k_set(&a->word[STEP], 2 * round);
			test_k_sleep(round % 7 * 100);
			K_EQ(r, gclose(a->net, fd), 0);
			test_k_wait(&a->word[STEP], 2 * round + 1);
			continue;
		}
		test_k_wait(&a->word[STEP], 2 * round);
		fd = (int)gnet_sys_load_acquire(&a->word[FD]);
		rc = gsend_reserve(a->net, fd, &b, 100, 0);
		if (rc == 0) {
			rc = gsend_commit(a->net, fd, 0);
			K_EQ(r, rc == 0 || rc == -EBADF, 1);
		} else {
			K_EQ(r, rc == -EBADF || rc == -EPIPE, 1);
		}
		for (;;) {
			int64_t n = grecv_borrow(a->net, fd, &b, 50, 0);

			if (n <= 0) {
				K_EQ(r, n == -EBADF || n == 0 || n == -ECONNRESET, 1);
				break;
			}
			rc = grecv_return(a->net, fd, 1);
			K_EQ(r, rc == 0 || rc == -EBADF, 1);
		}
		test_k_set(&a->word[STEP], 2 * round + 1);
	}
	if (blockIdx.x == 0)
		K_EQ(r, gclose(a->net, listener), 0);
	return buf ? 0 : -1;
}

TEST_KERNEL(races_kernel, races)

/* One segment in all, and one socket has it. */
GNET_DEV int runs_out(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct gnet_borrow b;
	int listener, fd, other;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	K_GET(r, other, gaccept(a->net, listener, NULL, NULL));
	K_EQ(r, gsend_reserve(a->net, fd, &b, 10, 0), 0);
	K_EQ(r, gsend_reserve(a->net, other, &b, 10, 0), -ENOBUFS);
	/* It holds nothing: the bytes go another way. */
	K_EQ(r, gsend(a->net, other, buf, 10, 0), 10);
	K_EQ(r, gsend_commit(a->net, fd, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, other), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(runs_out_kernel, runs_out)

struct echo {
	int fd;
	size_t size;
};

static void *echo_sends(void *arg)
{
	struct echo *e = (struct echo *)arg;
	uint8_t piece[20000];
	size_t pos = 0, n;

	for (unsigned i = 0; pos < e->size; i++) {
		n = i % 4 ? i * 37 % 120 + 1 : i * 2654435761u % sizeof(piece) + 1;
		n = n < e->size - pos ? n : e->size - pos;
		test_pattern(piece, n, pos, 7);
		test_write(e->fd, piece, n);
		pos += n;
		if (i % 16 == 0)
			test_sleep_ms(1);
	}
	CHECK_EQ(shutdown(e->fd, SHUT_WR), 0);
	return NULL;
}

static void host_echo(int fd, size_t size)
{
	struct echo e = { fd, size };
	uint8_t piece[5000];
	pthread_t t;
	size_t pos = 0;

	CHECK_EQ(pthread_create(&t, NULL, echo_sends, &e), 0);
	while (pos < size) {
		ssize_t n = test_read_some(fd, piece, sizeof(piece));

		CHECK(n > 0);
		test_pattern_check(piece, (size_t)n, pos, 7);
		pos += (size_t)n;
	}
	test_read_end(fd);
	pthread_join(t, NULL);
}

static void run(gpunet_t *g, enum test_kind kind, unsigned threads, size_t size)
{
	struct test_args a = test_setup(g, kind, 1, 4096);
	uint8_t data[6000];
	int fd;

	a.n = 5000;
	TEST_LAUNCH(g, scenes_kernel, a, 1, threads);
	test_addr_wait(a.where, a.report);
	fd = test_connect(a.where);
	host_echo(fd, size);
	close(fd);

	fd = test_connect(a.where);
	test_word_wait(&a.word[STEP], 1, a.report);
	test_pattern(data, 350, 0, 3);
	test_write(fd, data, 50);
	test_word_wait(&a.word[STEP], 2, a.report);
	test_write(fd, data + 50, 300);
	CHECK_EQ(shutdown(fd, SHUT_WR), 0);
	test_read(fd, data, 1000);
	test_pattern_check(data, 1000, 0, 4);
	test_read_end(fd);
	close(fd);

	fd = test_connect(a.where);
	test_word_wait(&a.word[STEP], 3, a.report);
	test_pattern(data, sizeof(data), 0, 5);
	test_write(fd, data, sizeof(data));
	/* The end, or a reset since the kernel did not read everything. */
	CHECK(test_read_some(fd, data, 1) <= 0);
	close(fd);

	fd = test_connect(a.where);
	test_read_end(fd);
	close(fd);
	test_sync(g, a.report, 1);
	test_teardown(&a);
}

static void run_out(void)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;
	char data[11];
	int fd, other;

	o.segment_bytes = o.slab_bytes = 64 << 10;
	g = test_open(&o);
	a = test_setup(g, TEST_TCP, 1, 4096);
	TEST_LAUNCH(g, runs_out_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	fd = test_connect(a.where);
	other = test_connect(a.where);
	test_read_end(fd);
	CHECK_EQ(recv(other, data, 11, MSG_WAITALL), 10);
	test_sync(g, a.report, 1);
	close(fd);
	close(other);
	test_teardown(&a);
	test_close(g);
}

static uint64_t sockets(gpunet_t *g)
{
	struct gpunet_stats s;

	memset(&s, 0, sizeof(s));
	s.size = sizeof(s);
	CHECK_EQ(gpunet_get_stats(g, &s), 0);
	return s.sockets;
}

static void run_races(gpunet_t *g, uint64_t rounds)
{
	struct test_args a = test_setup(g, TEST_UNIX, 2, 4096);
	char piece[500];

	memset(piece, 1, sizeof(piece));
	a.n = rounds;
	TEST_LAUNCH(g, races_kernel, a, 2, 32);
	test_addr_wait(a.where, a.report);
	for (uint64_t i = 0; i < rounds; i++) {
		int fd = test_connect(a.where);

		if (send(fd, piece, sizeof(piece), MSG_NOSIGNAL) < 0)
			CHECK(errno == EPIPE || errno == ECONNRESET);
		CHECK(test_read_some(fd, piece, 1) <= 0);
		close(fd);
	}
	test_sync(g, a.report, 2);
	test_teardown(&a);
}

int main(void)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	size_t size = (size_t)test_rounds(1 << 20, 16 << 20);
	gpunet_t *g;

	test_begin(60);
	o.segment_bytes = 16 << 10;
	g = test_open(&o);
	CHECK_EQ(GPUNET_PREPARE(scenes_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(races_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(runs_out_kernel), 0);
	run(g, TEST_TCP, 64, size);
	run(g, TEST_UNIX, 33, size);
	run(g, TEST_UNIX, 1, size / 8);
	/* What was closed under a borrow and given back is gone; three were forgotten. */
	for (int i = 0; sockets(g) > 3 && i < 20000; i++)
		test_sleep_ms(1);
	CHECK_EQ(sockets(g), 3);
	run_races(g, test_rounds(200, 2000));
	for (int i = 0; sockets(g) > 3 && i < 20000; i++)
		test_sleep_ms(1);
	CHECK_EQ(sockets(g), 3);
	test_close(g);
	/* Over RDMA a socket has its segments from before the connection on, and others wait for it. */
	if (!test_rdma())
		run_out();
	return 0;
}
