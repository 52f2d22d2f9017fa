/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels in the style of 2014, unchanged: an echo server, a client that connects until it is served, UNIX
 * sockets, poll, sockets that do not block, the end of a stream, calls of a single thread, abort.
 */
#include "test.h"

/* test.h has its own names for these where nvcc compiles, and so has the header of 2014. */
#undef gsocket
#undef gaccept
#undef gconnect
#undef gsend
#undef grecv

#include <gpunet/compat/gpunet2014.h>

#define BUF 4096
#define BLOCKS 3
/* Index of a 64-bit word in `out`. */
#define TOLD 32

/* ---- the kernels of 2014 ------------------------------------------------------------------- */

GPUNET_2014_KERNEL(server, struct sockaddr_in *, uchar *, int *, int);
GPUNET_2014_KERNEL(client, struct sockaddr_in *, uchar *, int *, int);
GPUNET_2014_KERNEL(pair, const char *, int, uchar *, int *);
GPUNET_2014_KERNEL(modes, struct sockaddr_in *, uchar *, int *);
GPUNET_2014_KERNEL(alone, struct sockaddr_in *, uchar *, int *);
GPUNET_2014_KERNEL(forever, struct sockaddr_in *, int *);
GPUNET_2014_KERNEL(for_nobody, struct sockaddr_in *, int *);

__device__ void tell(int *out, int n);
__device__ int fill(int sock, uchar *buf, int *res);
__device__ void polls(struct gpollfd *fds, int *res);
__device__ int send_all(int sock, uchar *buf, int size);
__device__ int recv_all(int sock, uchar *buf, int size);

/* The host waits for it: see told(). */
__device__ void tell(int *out, int n)
{
	gnet_sys_store_release((uint64_t *)(out + TOLD), (uint64_t)n);
}

/* As the published examples have it: only what is negative ends it. */
__device__ int send_all(int sock, uchar *buf, int size)
{
	int ret, sent = 0;

	do {
		if ((ret = gsend(sock, buf + sent, size - sent)) < 0)
			return ret;
		sent += ret;
	} while (sent < size);
	return 0;
}

__device__ int recv_all(int sock, uchar *buf, int size)
{
	int ret, recved = 0;

	do {
		if ((ret = grecv(sock, buf + recved, size - recved)) < 0)
			return ret;
		recved += ret;
	} while (recved < size);
	return 0;
}

/* Block 0 binds, all blocks serve; out[0]: the listener, out[1 + block]: why its last stream ended. */
__global__ void server(struct sockaddr_in *addr, uchar *bufs, int *out, int clients)
{
	__shared__ int listener, left;
	uchar *buf = bufs + (size_t)blockIdx.x * BUF;

	BEGIN_SINGLE_THREAD_PART
	{
		if (blockIdx.x == 0) {
			atomicExch(&out[0], single_thread_gbind_in(addr));
		}
		while ((listener = atomicAdd(&out[0], 0)) == 0) {
			__nanosleep(10000);
		}
	}
	END_SINGLE_THREAD_PART;

	if (listener < 0)
		return;
	for (;;) {
		int sock, ret;

		BEGIN_SINGLE_THREAD_PART
		{
			left = clients - atomicAdd(&out[1 + BLOCKS], 1);
		}
		END_SINGLE_THREAD_PART;
		if (left <= 0)
			break;
		sock = gaccept(listener);
		if (sock < 0)
			break;
		for (;;) {
			ret = grecv(sock, buf, BUF);
			if (ret <= 0)
				break;
			ret = send_all(sock, buf, ret);
			if (ret < 0)
				break;
		}
		BEGIN_SINGLE_THREAD_PART
		{
			out[1 + blockIdx.x] = ret;
			single_thread_gclose(sock);
		}
		END_SINGLE_THREAD_PART;
	}
}

/* Tells of each attempt. out[1]: 1 when all went well, out[2]: what a receive without an end gave. */
__global__ void client(struct sockaddr_in *addr, uchar *buf, int *out, int messages)
{
	int sock, ret, i, k, tries = 0;

	while ((sock = gconnect_in(addr)) < 0) {
		BEGIN_SINGLE_THREAD_PART
		{
			tell(out, ++tries);
		}
		END_SINGLE_THREAD_PART;
	}

	for (i = 0; i < messages; i++) {
		int size = 1 + i * 97 % BUF;

		__syncthreads();
		for (k = (int)threadIdx.x; k < size; k += (int)blockDim.x)
			buf[k] = (uchar)(k * 7 + i);
		__syncthreads();
		if (send_all(sock, buf, size) < 0)
			goto out;
		__syncthreads();
		for (k = (int)threadIdx.x; k < size; k += (int)blockDim.x)
			buf[k] = 0;
		__syncthreads();
		if (recv_all(sock, buf, size) < 0)
			goto out;
		__syncthreads();
		for (k = (int)threadIdx.x; k < size; k += (int)blockDim.x)
			if (buf[k] != (uchar)(k * 7 + i))
				atomicAdd(&out[3], 1);
		__syncthreads();
	}
	BEGIN_SINGLE_THREAD_PART
	{
		out[1] = 1;
		single_thread_gshutdown(sock, SHUT_WR);
	}
	END_SINGLE_THREAD_PART;
	ret = recv_all(sock, buf, 1);
	if (threadIdx.x == 0)
		out[2] = ret;
out:
	BEGIN_SINGLE_THREAD_PART
	{
		single_thread_gclose(sock);
	}
	END_SINGLE_THREAD_PART;
}

/* Two blocks over a UNIX socket; out[b]: 1 when block b is content. */
__global__ void pair(const char *path, int len, uchar *bufs, int *out)
{
	uchar *buf = bufs + (size_t)blockIdx.x * BUF;
	int sock = -1, ret = -1;

	if (blockIdx.x == 0) {
		__shared__ int listener;

		BEGIN_SINGLE_THREAD
		{
			listener = single_thread_gbind(path, len);
		}
		END_SINGLE_THREAD
		if (listener >= 0)
			sock = gaccept(listener);
		if (sock >= 0)
			ret = recv_all(sock, buf, BUF);
		if (ret == 0)
			ret = send_all(sock, buf, BUF);
		BEGIN_SINGLE_THREAD_PART
		{
			single_thread_gclose(listener);
		}
		END_SINGLE_THREAD_PART;
	} else {
		while ((sock = gconnect(path, len)) < 0) {
		}
		ret = send_all(sock, buf, BUF);
		if (ret == 0)
			ret = recv_all(sock, buf, BUF);
	}
	BEGIN_SINGLE_THREAD_PART
	{
		single_thread_gclose(sock);
		out[blockIdx.x] = ret == 0 ? 1 : ret;
	}
	END_SINGLE_THREAD_PART;
}

enum {
	NB_ACCEPT,
	NB_RECV,
	NB_BLOCKS,
	NB_BLOCKS_AGAIN,
	NB_RECV_NB,
	NB_SENT,
	NB_FULL,
	POLL_TIME,
	POLL_LISTENER,
	POLL_BOTH,
	POLL_RBYTES,
	POLL_WBYTES,
	POLL_IDLE,
	POLL_BAD,
	RECVED,
	END_FIRST,
	END_SECOND,
	DEFAULT_SHUTDOWN,
	BAD_FD,
	BAD_PATH,
	BAD_SIZE,
	MODES
};

/* Sends until the socket, which then does not block, takes no more; how much. */
__device__ int fill(int sock, uchar *buf, int *res)
{
	int n, sent = 0;

	gsetsock_block(sock, 0);
	res[NB_BLOCKS] = ggetsock_block(sock);
	res[NB_RECV] = grecv(sock, buf, BUF);
	while ((n = gsend(sock, buf, BUF)) > 0) /* the host does not read */
		sent += n;
	res[NB_FULL] = n;
	res[NB_SENT] = sent;
	gsetsock_block(sock, 1);
	res[NB_BLOCKS_AGAIN] = ggetsock_block(sock);
	res[NB_RECV_NB] = grecv_nb(sock, buf, BUF);
	return sent;
}

/* fds: a listener without connections, a socket with 200 bytes or soon, none. */
__device__ void polls(struct gpollfd *fds, int *res)
{
	int all;

	do { /* POLLOUT may come first */
		res[POLL_BOTH] = gpoll(&fds[1], 1, 0);
		__syncthreads();
		all = (fds[1].revents & POLLIN) && fds[1].rbytes == 200 &&
		      (fds[1].revents & POLLOUT);
		__syncthreads();
	} while (!all);
	res[POLL_RBYTES] = (int)fds[1].rbytes;
	res[POLL_WBYTES] = (int)fds[1].wbytes;
	res[POLL_IDLE] = gpoll(fds, 1, 1000000);
	res[POLL_BAD] = gpoll(fds, 3, 0) == 2 ? fds[2].revents : -1;
}

/* out[i]: result number i; the host speaks when it is told to. */
__global__ void modes(struct sockaddr_in *addr, uchar *buf, int *out)
{
	__shared__ struct gpollfd fds[3];
	__shared__ int listener;
	int sock, sent, res[MODES], i;

	BEGIN_SINGLE_THREAD_PART
	{
		listener = single_thread_gbind_in(addr);
		fds[0].fd = listener;
		fds[0].events = POLLIN;
	}
	END_SINGLE_THREAD_PART;
	res[NB_ACCEPT] = gaccept_nb(listener);
	res[POLL_TIME] = gpoll(fds, 1, 20000000);
	BEGIN_SINGLE_THREAD_PART
	{
		tell(out, 1); /* the host connects */
	}
	END_SINGLE_THREAD_PART;
	res[POLL_LISTENER] = gpoll(fds, 1, -1) == 1 ? fds[0].revents : -1;
	while ((sock = gaccept_nb(listener)) < 0) {
		__nanosleep(10000);
	}

	sent = fill(sock, buf, res);

	BEGIN_SINGLE_THREAD_PART
	{
		out[NB_SENT] = sent;
		fds[1].fd = sock;
		fds[1].events = POLLIN | POLLOUT;
		fds[2].fd = -1;
		fds[2].events = POLLIN;
		tell(out, 2); /* the host reads it all and sends 200 bytes */
	}
	END_SINGLE_THREAD_PART;
	polls(fds, res);
	res[RECVED] = recv_all(sock, buf, 200);

	BEGIN_SINGLE_THREAD_PART
	{
		tell(out, 3); /* the host ends its stream */
	}
	END_SINGLE_THREAD_PART;
	res[END_FIRST] = grecv(sock, buf, BUF);
	res[END_SECOND] = grecv(sock, buf, BUF);
	res[BAD_FD] = gsend(12345, buf, 1);
	res[BAD_SIZE] = grecv(sock, buf, -5);
	res[BAD_PATH] = gconnect((const char *)buf, 1000);
	BEGIN_SINGLE_THREAD_PART
	{
		res[DEFAULT_SHUTDOWN] = single_thread_gshutdown(sock);
		single_thread_gclose(sock);
		single_thread_gclose(listener);
		for (i = 0; i < MODES; i++)
			out[i] = res[i];
	}
	END_SINGLE_THREAD_PART;
}

/* Everything inside the part of a single thread, as one of the published servers has its gaccept. */
__global__ void alone(struct sockaddr_in *addr, uchar *buf, int *out)
{
	BEGIN_SINGLE_THREAD_PART
	{
		struct gtimeval begin, end, took;
		struct gpollfd fd;
		int listener = single_thread_gbind_in(addr), sock, n;

		ggettimeofday(&begin); /* before the host is told, who is not waited for */
		tell(out, 1);
		sock = gaccept(listener);
		fd.fd = sock;
		fd.events = POLLIN;
		out[1] = gpoll(&fd, 1, 0);
		n = grecv(sock, buf, BUF);
		out[2] = gsend(sock, buf, n);
		while ((n = grecv(sock, buf, BUF)) > 0)
			gsend(sock, buf, n);
		ggettimeofday(&end);
		gtimersub(&end, &begin, &took);
		out[3] = (int)(took.tv_sec * 1000000 + took.tv_usec);
		single_thread_gclose(sock);
		single_thread_gclose(listener);
		n = gsocket(AF_INET, SOCK_STREAM, 0);
		out[4] = n < 0 ? n : single_thread_gclose(n);
	}
	END_SINGLE_THREAD_PART;
}

/* Nobody listens; the host aborts. out[1]: the first send after it. */
__global__ void forever(struct sockaddr_in *addr, int *out)
{
	__shared__ uchar byte;
	int sock, ret, tries = 0;

	while ((sock = gconnect_in(addr)) < 0) {
		BEGIN_SINGLE_THREAD_PART
		{
			tell(out, ++tries);
		}
		END_SINGLE_THREAD_PART;
	}
	ret = gsend(sock, &byte, 1);
	BEGIN_SINGLE_THREAD_PART
	{
		out[1] = ret;
		out[2] = gaccept(sock);
		out[3] = single_thread_gclose(sock);
	}
	END_SINGLE_THREAD_PART;
}

/* Nobody connects; the host aborts. out[1]: the first send after it. */
__global__ void for_nobody(struct sockaddr_in *addr, int *out)
{
	__shared__ struct gpollfd p;
	__shared__ int listener;
	__shared__ uchar byte;
	int sock, ret, ready;

	BEGIN_SINGLE_THREAD_PART
	{
		listener = single_thread_gbind_in(addr);
		p.fd = listener;
		p.events = POLLIN;
		tell(out, listener > 0);
	}
	END_SINGLE_THREAD_PART;
	while ((sock = gaccept_nb(listener)) < 0)
		;
	ret = gsend(sock, &byte, 1);
	while ((ready = gpoll(&p, 1, 1)) == 0)
		;
	BEGIN_SINGLE_THREAD_PART
	{
		out[1] = ret;
		out[2] = ready;
		out[3] = single_thread_gclose(sock);
	}
	END_SINGLE_THREAD_PART;
}

/* ---- the host ------------------------------------------------------------------------------ */

/* The API has no port 0, so each test has an address of its own: loopback has one for each process. */
static void own_address(struct sockaddr_in *a)
{
	static uint16_t port = 9014;

	memset(a, 0, sizeof(*a));
	a->sin_family = AF_INET;
	a->sin_addr.s_addr = htonl(0x7f000000u | ((uint32_t)getpid() & 0xffffffu));
	a->sin_port = htons(port++);
}

static void reach(const struct sockaddr_in *a, struct test_addr *t)
{
	memset(t, 0, sizeof(*t));
	t->a.in = *a;
	t->len = sizeof(*a);
}

/* Connects to a kernel that is about to listen. */
static int connect_soon(const struct sockaddr_in *a)
{
	for (;;) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		CHECK(fd >= 0);
		if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0)
			return fd;
		CHECK_EQ(errno, ECONNREFUSED);
		close(fd);
		test_sleep_ms(2);
	}
}

struct given {
	struct sockaddr_in *addr;
	uchar *bufs;
	int *out;
};

static struct given give(void)
{
	struct given w;

	w.addr = (struct sockaddr_in *)test_shared(sizeof(*w.addr));
	w.bufs = (uchar *)test_device((size_t)BLOCKS * BUF);
	w.out = (int *)test_shared(64 * sizeof(*w.out));
	own_address(w.addr);
	return w;
}

static void take(struct given *w)
{
	test_shared_free(w->addr);
	test_device_free(w->bufs);
	test_shared_free(w->out);
}

static void told(int *out, int n)
{
	while (__atomic_load_n((uint64_t *)(void *)(out + TOLD), __ATOMIC_ACQUIRE) < (uint64_t)n)
		test_sleep_ms(1);
}

static void serves(gpunet_t *g, unsigned threads)
{
	struct gpunet_grid grid = { BLOCKS, 1, 1, threads, 1, 1, 0 };
	struct given w = give();
	uint8_t data[10000], back[10000];
	int fds[5];

	CHECK_EQ(GPUNET_2014_LAUNCH(g, server, grid, w.addr, w.bufs, w.out, 5), 0);
	for (uint32_t i = 0; i < 5; i++) {
		fds[i] = connect_soon(w.addr);
		test_pattern(data, sizeof(data), 0, i);
		test_write(fds[i], data, sizeof(data));
		test_read(fds[i], back, sizeof(back));
		test_pattern_check(back, sizeof(back), 0, i);
		CHECK_EQ(shutdown(fds[i], SHUT_WR), 0);
		test_read_end(fds[i]);
		close(fds[i]);
	}
	CHECK_EQ(gpunet_sync(g, 20000 * TEST_SLOW), 0);
	for (int i = 1; i <= BLOCKS; i++)
		CHECK_EQ(w.out[i], 0);
	take(&w);
}

static void is_served(gpunet_t *g, unsigned threads)
{
	struct gpunet_grid grid = { 1, 1, 1, threads, 1, 1, 0 };
	struct given w = give();
	struct test_addr a;
	uint8_t piece[4096];
	int listener, fd;
	ssize_t n;

	CHECK_EQ(GPUNET_2014_LAUNCH(g, client, grid, w.addr, w.bufs, w.out, 60), 0);
	told(w.out, 5); /* attempts that found nobody */
	reach(w.addr, &a);
	listener = test_listen(&a, 5);
	fd = test_accept(listener);
	while ((n = test_read_some(fd, piece, sizeof(piece))) > 0)
		test_write(fd, piece, (size_t)n);
	CHECK_EQ(n, 0);
	close(fd);
	close(listener);
	CHECK_EQ(gpunet_sync(g, 20000 * TEST_SLOW), 0);
	CHECK_EQ(w.out[1], 1);
	CHECK_EQ(w.out[2], -EPIPE);
	CHECK_EQ(w.out[3], 0);
	take(&w);
}

static void by_name(gpunet_t *g)
{
	struct gpunet_grid grid = { 2, 1, 1, 64, 1, 1, 0 };
	struct given w = give();
	char *path = (char *)test_shared(108);
	int n;

	for (int abstract = 0; abstract < 2; abstract++) {
		w.out[0] = w.out[1] = 0;
		n = snprintf(path, 108, "%s/tmp/gpn-2014-%d", abstract ? "@" : "", (int)getpid());
		if (abstract)
			path[0] = 0;
		CHECK_EQ(GPUNET_2014_LAUNCH(g, pair, grid, path, n, w.bufs, w.out), 0);
		CHECK_EQ(gpunet_sync(g, 20000 * TEST_SLOW), 0);
		CHECK_EQ(w.out[0], 1);
		CHECK_EQ(w.out[1], 1);
		if (!abstract)
			CHECK_EQ(unlink(path), 0);
	}
	test_shared_free(path);
	take(&w);
}

static void has_modes(gpunet_t *g, unsigned threads)
{
	struct gpunet_grid grid = { 1, 1, 1, threads, 1, 1, 0 };
	struct given w = give();
	uint8_t data[200], piece[4096];
	int fd, got = 0, small = 4096;

	memset(data, 1, sizeof(data));
	CHECK_EQ(GPUNET_2014_LAUNCH(g, modes, grid, w.addr, w.bufs, w.out), 0);
	told(w.out, 1);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	CHECK_EQ(connect(fd, (struct sockaddr *)w.addr, sizeof(*w.addr)), 0);
	told(w.out, 2);
	while (got < w.out[NB_SENT]) {
		ssize_t n = test_read_some(fd, piece, sizeof(piece));

		CHECK(n > 0);
		got += (int)n;
	}
	CHECK_EQ(got, w.out[NB_SENT]);
	test_write(fd, data, sizeof(data));
	told(w.out, 3);
	CHECK_EQ(shutdown(fd, SHUT_WR), 0);
	test_read_end(fd);
	close(fd);
	CHECK_EQ(gpunet_sync(g, 20000 * TEST_SLOW), 0);
	CHECK_EQ(w.out[NB_ACCEPT], -EAGAIN);
	CHECK_EQ(w.out[NB_BLOCKS], 0);
	CHECK_EQ(w.out[NB_RECV], -EAGAIN);
	CHECK_EQ(w.out[NB_FULL], -EAGAIN);
	CHECK(w.out[NB_SENT] >= BUF);
	CHECK_EQ(w.out[NB_BLOCKS_AGAIN], 1);
	CHECK_EQ(w.out[NB_RECV_NB], -EAGAIN);
	CHECK_EQ(w.out[POLL_TIME], 0);
	CHECK_EQ(w.out[POLL_LISTENER], POLLIN);
	CHECK_EQ(w.out[POLL_BOTH], 1);
	CHECK_EQ(w.out[POLL_RBYTES], 200);
	CHECK(w.out[POLL_WBYTES] > 0);
	CHECK_EQ(w.out[POLL_IDLE], 0);
	CHECK_EQ(w.out[POLL_BAD], POLLNVAL);
	CHECK_EQ(w.out[RECVED], 0);
	CHECK_EQ(w.out[END_FIRST], 0);
	CHECK_EQ(w.out[END_SECOND], -EPIPE);
	CHECK_EQ(w.out[DEFAULT_SHUTDOWN], 0);
	CHECK_EQ(w.out[BAD_FD], -EBADF);
	CHECK_EQ(w.out[BAD_SIZE], -EINVAL);
	CHECK_EQ(w.out[BAD_PATH], -EINVAL);
	take(&w);
}

static void acts_alone(gpunet_t *g, unsigned threads)
{
	struct gpunet_grid grid = { 1, 1, 1, threads, 1, 1, 0 };
	struct given w = give();
	char back[5];
	int fd, i;

	CHECK_EQ(GPUNET_2014_LAUNCH(g, alone, grid, w.addr, w.bufs, w.out), 0);
	told(w.out, 1);
	test_sleep_ms(20);
	fd = connect_soon(w.addr);
	test_write(fd, "hello", 5);
	test_read(fd, back, 5);
	CHECK_EQ(memcmp(back, "hello", 5), 0);
	/* Call after call of one thread: none goes by what the one before has left on the stack. */
	for (i = 0; i < 100; i++) {
		test_write(fd, "again", 5);
		test_read(fd, back, 5);
		CHECK_EQ(memcmp(back, "again", 5), 0);
	}
	CHECK_EQ(shutdown(fd, SHUT_WR), 0);
	test_read_end(fd);
	close(fd);
	CHECK_EQ(gpunet_sync(g, 20000 * TEST_SLOW), 0);
	CHECK_EQ(w.out[1], 1);
	CHECK_EQ(w.out[2], 5);
	CHECK(w.out[3] >= 15000 && w.out[3] < 60000000);
	CHECK_EQ(w.out[4], 0);
	take(&w);
}

static void is_aborted(gpunet_t *g)
{
	struct gpunet_grid grid = { 1, 1, 1, 64, 1, 1, 0 };
	struct given w = give();

	CHECK_EQ(GPUNET_2014_LAUNCH(g, forever, grid, w.addr, w.out), 0);
	told(w.out, 3);
	gpunet_abort(g);
	CHECK_EQ(gpunet_sync(g, 20000 * TEST_SLOW), 0);
	CHECK_EQ(w.out[1], -EBADF);
	CHECK_EQ(w.out[2], -EBADF);
	CHECK_EQ(w.out[3], -EBADF);
	take(&w);
}

static void is_aborted_alone(gpunet_t *g)
{
	struct gpunet_grid grid = { 1, 1, 1, 64, 1, 1, 0 };
	struct given w = give();

	CHECK_EQ(GPUNET_2014_LAUNCH(g, for_nobody, grid, w.addr, w.out), 0);
	told(w.out, 1);
	test_sleep_ms(50);
	gpunet_abort(g);
	CHECK_EQ(gpunet_sync(g, 20000 * TEST_SLOW), 0);
	CHECK_EQ(w.out[1], -EBADF);
	CHECK_EQ(w.out[2], -ECANCELED);
	CHECK_EQ(w.out[3], -EBADF);
	take(&w);
}

#ifndef __CUDACC__
enum { PART_GSEND, PART_GRECV_NB, PART_GACCEPT, PART_GCONNECT, PARTS };

GPUNET_2014_KERNEL(part, int, uchar *);

/* Thread 0 makes a call that is for all, and has a single thread part in its own mind only. */
__global__ void part(int what, uchar *buf)
{
	if (threadIdx.x == 0 && what == PART_GSEND)
		gsend(1, buf, 1);
	if (threadIdx.x == 0 && what == PART_GRECV_NB)
		grecv_nb(1, buf, 1);
	if (threadIdx.x == 0 && what == PART_GACCEPT)
		gaccept(1);
	if (threadIdx.x == 0 && what == PART_GCONNECT)
		gconnect("/", 1);
	__syncthreads();
}

/* Such a call is told of by the name that the kernel uses, with what helps there. */
static void names_a_part(gpunet_t *g)
{
	static const char *const names[PARTS] = { "gsend", "grecv_nb", "gaccept", "gconnect" };
	struct gpunet_grid grid = { 1, 1, 1, 64, 1, 1, 0 };
	char words[64];
	uchar byte = 0;
	int i;

	for (i = 0; i < PARTS; i++) {
		CHECK_EQ(GPUNET_2014_LAUNCH(g, part, grid, i, &byte), 0);
		CHECK_EQ(gpunet_sync(g, 20000 * TEST_SLOW), -EDEADLK);
		snprintf(words, sizeof(words), "a part of the block calls %s: thread 0", names[i]);
		CHECK(strstr(gpunet_last_error(), words));
		CHECK(strstr(gpunet_last_error(),
			     "in a BEGIN_SINGLE_THREAD_PART or begins with single_thread_"));
	}
}
#endif

int main(void)
{
	gpunet_t *g, *other;

	test_begin(60);
#ifndef __CUDACC__
	/* Device functions outside of kernels: no network yet. */
	CHECK_EQ(gaccept(3), -ENETDOWN);
	CHECK_EQ(single_thread_gclose(3), -ENETDOWN);
#endif
	g = test_open(NULL);
#ifndef __CUDACC__
	names_a_part(g);
#endif
	CHECK_EQ(GPUNET_PREPARE(server), 0);
	CHECK_EQ(GPUNET_PREPARE(client), 0);
	serves(g, 96);
	serves(g, 32);
	is_served(g, 64);
	by_name(g);
	has_modes(g, 64);
	has_modes(g, 1);
	acts_alone(g, 128);
	/* Another network takes the file over, and the first one takes it back. */
	other = test_open(NULL);
	is_served(other, 32);
	serves(g, 16);
	is_aborted(other);
	test_close(other);
	other = test_open(NULL);
	is_aborted_alone(other);
	test_close(other);
	CHECK_EQ(gpunet_2014_use(NULL), 0);
#ifndef __CUDACC__
	CHECK_EQ(gaccept(3), -ENETDOWN);
#endif
	test_close(g);
	return 0;
}
