/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Eight blocks on one socket: the bytes of one gsend stay together, and so do those of one grecv
 * that waits for all of them. Records of every size, also larger than a ring.
 */
#include "test.h"

#define BLOCKS 8
#define SEGMENT (16u << 10)
#define BIGGEST (40u << 10)
#define READ_SIZE 1000u

enum { LISTENER, HANDED };

/* Record: block, number, length (4 bytes each), then its pattern, of key block * 1000 + number. */
struct head {
	uint32_t block, number, length;
};

#define LENGTH(block, number)                                \
	((number) % 7 == 3 ? BIGGEST - (block)*11 - (number) \
			   : 12 + ((block)*131u + (number)*577u) % 3000u)

/* The socket that block 0 accepts and all use. */
GNET_DEV int shared_fd(struct test_args *a, struct test_report *r, int *fd)
{
	int listener;

	if (blockIdx.x == 0) {
		K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
		K_GET(r, *fd, gaccept(a->net, listener, NULL, NULL));
		K_EQ(r, gclose(a->net, listener), 0);
		test_k_set(&a->word[HANDED], (uint64_t)*fd + 1);
	}
	test_k_wait(&a->word[HANDED], 1);
	*fd = (int)gnet_sys_load_acquire(&a->word[HANDED]) - 1;
	return 0;
}

/* The last block closes. */
GNET_DEV int leave(struct test_args *a, struct test_report *r, int fd)
{
	__shared__ uint64_t before;

	__syncthreads();
	if (threadIdx.x == 0)
		before = gnet_dev_add((uint64_t *)&a->dword[0], 1);
	__syncthreads();
	if (before == BLOCKS - 1)
		K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int write_records(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_CALL(shared_fd(a, r, &fd));
	for (uint32_t i = 0; i < a->n; i++) {
		struct head h = { blockIdx.x, i, LENGTH(blockIdx.x, i) };

		test_k_pattern(buf + sizeof(h), h.length - sizeof(h), 0, blockIdx.x * 1000 + i);
		if (threadIdx.x == 0)
			memcpy(buf, &h, sizeof(h));
		__syncthreads();
		K_EQ(r, gsend(a->net, fd, buf, h.length, 0), h.length);
	}
	return leave(a, r, fd);
}

/*
 * Each call of grecv takes one record of READ_SIZE bytes; dword[1 + block] counts, the sum of
 * numbers is word 2.
 */
GNET_DEV int read_records(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_CALL(shared_fd(a, r, &fd));
	for (;;) {
		uint32_t number;
		int64_t n;

		K_GET(r, n, grecv(a->net, fd, buf, READ_SIZE, GNET_MSG_WAITALL));
		if (n == 0)
			break;
		K_EQ(r, n, READ_SIZE);
		memcpy(&number, buf, 4);
		K_EQ(r, test_k_wrong(buf + 4, READ_SIZE - 4, 0, number), 0);
		if (threadIdx.x == 0) {
			atomicAdd(&a->dword[1], 1ull);
			atomicAdd(&a->dword[2], (unsigned long long)number * number);
		}
		__syncthreads();
	}
	return leave(a, r, fd);
}

/* Device memory is the kernel's: it copies the sums to where the host looks. */
GNET_DEV int sums(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	test_k_set(&a->word[2], a->dword[1]);
	test_k_set(&a->word[3], a->dword[2]);
	return 0;
}

TEST_KERNEL(write_kernel, write_records)
TEST_KERNEL(read_kernel, read_records)
TEST_KERNEL(sums_kernel, sums)

static void run_writers(gpunet_t *g, enum test_kind kind, uint32_t rounds)
{
	struct test_args a = test_setup(g, kind, BLOCKS, BIGGEST);
	uint32_t next[BLOCKS] = { 0 };
	uint8_t *data = (uint8_t *)malloc(BIGGEST);
	int fd;

	CHECK(data != NULL);
	a.n = rounds;
	TEST_LAUNCH(g, write_kernel, a, BLOCKS, 32);
	test_addr_wait(a.where, a.report);
	fd = test_connect(a.where);
	for (uint32_t i = 0; i < BLOCKS * rounds; i++) {
		struct head h;

		test_read(fd, &h, sizeof(h));
		CHECK(h.block < BLOCKS);
		CHECK_EQ(h.number, next[h.block]);
		CHECK_EQ(h.length, LENGTH(h.block, h.number));
		test_read(fd, data, h.length - sizeof(h));
		test_pattern_check(data, h.length - sizeof(h), 0, h.block * 1000 + h.number);
		next[h.block]++;
	}
	test_read_end(fd);
	close(fd);
	test_sync(g, a.report, BLOCKS);
	test_teardown(&a);
	free(data);
}

static void run_readers(gpunet_t *g, enum test_kind kind, uint32_t records)
{
	struct test_args a = test_setup(g, kind, BLOCKS, BIGGEST);
	uint64_t squares = 0;
	uint8_t data[READ_SIZE];
	int fd;

	TEST_LAUNCH(g, read_kernel, a, BLOCKS, 32);
	test_addr_wait(a.where, a.report);
	fd = test_connect(a.where);
	for (uint32_t i = 0; i < records; i++) {
		memcpy(data, &i, 4);
		test_pattern(data + 4, READ_SIZE - 4, 0, i);
		test_write(fd, data, READ_SIZE);
		squares += (uint64_t)i * i;
	}
	CHECK_EQ(shutdown(fd, SHUT_WR), 0);
	test_read_end(fd);
	close(fd);
	test_sync(g, a.report, BLOCKS);
	TEST_LAUNCH(g, sums_kernel, a, 1, 32);
	test_sync(g, a.report, 1);
	CHECK_EQ(a.word[2], records);
	CHECK_EQ(a.word[3], squares);
	test_teardown(&a);
}

int main(void)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	gpunet_t *g;

	test_begin(60);
	opt.segment_bytes = SEGMENT;
	g = test_open(&opt);
	CHECK_EQ(GPUNET_PREPARE(write_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(read_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(sums_kernel), 0);
	for (int kind = TEST_TCP; kind <= TEST_UNIX; kind += TEST_UNIX) {
		run_writers(g, (enum test_kind)kind, test_rounds(60, 1000));
		run_readers(g, (enum test_kind)kind, test_rounds(2000, 100000));
	}
	test_close(g);
	return 0;
}
