/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernels that speak what the stock programs over rsockets speak, for the cases in the machines:
 *   rdma_peer rstream-server|rstream-client HOST PORT SIZE COUNT ROUNDS
 *   rdma_peer rcopy-server HOST PORT FILE            one file, which is kept as FILE
 *   rdma_peer rcopy-client HOST PORT FILE NAME       sends FILE, to be kept there as NAME
 *   rdma_peer send HOST PORT SIZE COUNT              COUNT sends, SHUT_WR, then reads to the end
 *   rdma_peer sink HOST PORT SIZE MILLISECONDS       reads SIZE bytes at a time to the end, with a pause before it begins
 *   rdma_peer many HOST PORT CONNS                   a server's: CONNS connections at once, one byte back on each
 *   rdma_peer error HOST PORT                        the errno of a connect
 *   rdma_peer listen HOST PORT                       the errno of a bind and listen
 * With RDMA_PEER_LIMITED in the environment: without privileges and with 64 KiB of locked memory. With RDMA_PEER_FORKS: so many children
 * are forked meanwhile, one every 50 ms, which write to all memory that they have of their own and close all descriptors.
 */
#include "../device/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/resource.h>

enum peer_mode {
	RSTREAM_SERVER,
	RSTREAM_CLIENT,
	RCOPY_SERVER,
	RCOPY_CLIENT,
	SEND,
	SINK,
	MANY,
	ERROR,
	LISTEN
};

/* word: */
enum { W_MODE, W_SIZE, W_COUNT, W_ROUNDS, W_RESULT, W_BYTES, W_NS };

GNET_DEV int peer_socket(struct test_args *a, struct test_report *r, int listens)
{
	int fd, listener;

	K_GET(r, fd, gsocket(a->net, a->want->a.sa.sa_family, GNET_SOCK_STREAM, GNET_PROTO_RDMA));
	if (!listens) {
		K_EQ(r, gconnect(a->net, fd, &a->want->a, a->want->len), 0);
		return fd;
	}
	listener = fd;
	K_EQ(r, gbind(a->net, listener, &a->want->a, a->want->len), 0);
	K_EQ(r, glisten(a->net, listener, 8), 0);
	test_k_set(&a->where->ready, 1);
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	K_EQ(r, gclose(a->net, listener), 0);
	return fd;
}

GNET_DEV int send_n(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, uint64_t n)
{
	K_EQ(r, gsend(a->net, fd, buf, n, 0), n);
	return 0;
}

GNET_DEV int recv_n(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, uint64_t n)
{
	K_EQ(r, grecv(a->net, fd, buf, n, GNET_MSG_WAITALL), n);
	return 0;
}

/* ---- rstream: 16 bytes there and back, then ROUNDS times COUNT messages there and as many back ------------------------------------- */

GNET_DEV int rstream_way(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, int out,
			 uint64_t n, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		K_CALL(out ? send_n(a, r, fd, buf, n) : recv_n(a, r, fd, buf, n));
	return 0;
}

GNET_DEV int rstream(struct test_args *a, struct test_report *r, uint8_t *buf, int client)
{
	uint64_t since;
	int fd;

	K_GET(r, fd, peer_socket(a, r, !client));
	K_CALL(rstream_way(a, r, fd, buf, client, 16, 1));
	K_CALL(rstream_way(a, r, fd, buf, !client, 16, 1));
	since = gnet_time_ns();
	for (uint64_t i = 0; i < a->word[W_ROUNDS]; i++) {
		K_CALL(rstream_way(a, r, fd, buf, client, a->word[W_SIZE], a->word[W_COUNT]));
		K_CALL(rstream_way(a, r, fd, buf, !client, a->word[W_SIZE], a->word[W_COUNT]));
	}
	if (test_k_tid() == 0)
		a->word[W_NS] = gnet_time_ns() - since;
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_RDWR), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

/* ---- rcopy ------------------------------------------------------------------------------------------------------------------------- */

struct rcopy_header {
	uint8_t version, command;
	uint16_t len;
	uint32_t data;
	uint64_t id;
};

enum { RCOPY_OPEN = 1, RCOPY_CLOSE = 2, RCOPY_WRITE = 3, RCOPY_ANSWER = 0x80 };

GNET_DEV int rcopy_serve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ struct rcopy_header h;
	__shared__ uint64_t size;
	__shared__ uint8_t path[256];
	int fd, command;

	K_GET(r, fd, peer_socket(a, r, 1));
	do {
		K_CALL(recv_n(a, r, fd, (uint8_t *)&h, sizeof(h)));
		command = h.command;
		if (command == RCOPY_OPEN && h.len > sizeof(h))
			K_CALL(recv_n(a, r, fd, path, h.len - sizeof(h)));
		if (command == RCOPY_WRITE) {
			K_CALL(recv_n(a, r, fd, (uint8_t *)&size, sizeof(size)));
			K_CALL(recv_n(a, r, fd, buf, size));
			if (test_k_tid() == 0)
				a->word[W_BYTES] = size;
		}
		__syncthreads();
		if (test_k_tid() == 0) {
			h.command = (uint8_t)(command | RCOPY_ANSWER);
			h.len = sizeof(h);
			h.data = 0;
		}
		__syncthreads();
		K_CALL(send_n(a, r, fd, (uint8_t *)&h, sizeof(h)));
	} while (command != RCOPY_CLOSE);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int rcopy_ask(struct test_args *a, struct test_report *r, int fd, int command,
		       const uint8_t *more, uint64_t n, uint64_t counted)
{
	__shared__ struct rcopy_header h;

	__syncthreads();
	if (test_k_tid() == 0) {
		h.version = 0;
		h.command = (uint8_t)command;
		h.len = (uint16_t)(sizeof(h) + counted);
		h.data = command == RCOPY_OPEN ? 0x81a4 : 0;
		h.id = 0;
	}
	__syncthreads();
	K_EQ(r, gsend(a->net, fd, &h, sizeof(h), 0), sizeof(h));
	if (n)
		K_EQ(r, gsend(a->net, fd, more, n, 0), n);
	K_CALL(recv_n(a, r, fd, (uint8_t *)&h, sizeof(h)));
	K_EQ(r, h.command, command | RCOPY_ANSWER);
	K_EQ(r, h.data, 0);
	return 0;
}

/* The buffer: a path of 256 bytes, the size, the bytes. */
GNET_DEV int rcopy_send(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_GET(r, fd, peer_socket(a, r, 0));
	K_CALL(rcopy_ask(a, r, fd, RCOPY_OPEN, buf, 256, 256));
	K_CALL(rcopy_ask(a, r, fd, RCOPY_WRITE, buf + 256, 8 + a->word[W_BYTES], 8));
	K_CALL(rcopy_ask(a, r, fd, RCOPY_CLOSE, NULL, 0, 0));
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_RDWR), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

/* ---- the others ---------------------------------------------------------------------------------------------------------------------- */

GNET_DEV int send_and_read(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint64_t total = 0;
	int64_t n;
	int fd;

	K_GET(r, fd, peer_socket(a, r, 0));
	for (uint64_t i = 0; i < a->word[W_COUNT]; i++)
		K_CALL(send_n(a, r, fd, buf, a->word[W_SIZE]));
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	do {
		n = grecv(a->net, fd, buf, a->room, 0);
		if (n > 0)
			total += (uint64_t)n;
	} while (n > 0);
	if (test_k_tid() == 0) {
		a->word[W_BYTES] = total;
		a->word[W_RESULT] = (uint64_t)n;
	}
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int sink(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	uint64_t total = 0;
	int64_t n;
	int fd;

	K_GET(r, fd, peer_socket(a, r, 1));
	test_k_sleep(a->word[W_COUNT] * 1000);
	do {
		n = grecv(a->net, fd, buf, a->word[W_SIZE], 0);
		if (n > 0)
			total += (uint64_t)n;
	} while (n > 0);
	if (test_k_tid() == 0) {
		a->word[W_BYTES] = total;
		a->word[W_RESULT] = (uint64_t)n;
	}
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int many(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int *fds = (int *)(void *)(buf + 64);
	uint64_t n = a->word[W_COUNT];
	int fd;

	for (uint64_t i = 0; i < n; i++) {
		K_GET(r, fd,
		      gsocket(a->net, a->want->a.sa.sa_family, GNET_SOCK_STREAM, GNET_PROTO_RDMA));
		K_EQ(r, gconnect(a->net, fd, &a->want->a, a->want->len), 0);
		if (test_k_tid() == 0)
			fds[i] = fd;
		__syncthreads();
	}
	for (uint64_t i = 0; i < n; i++)
		K_CALL(send_n(a, r, fds[i], buf, 1));
	for (uint64_t i = 0; i < n; i++) {
		K_CALL(recv_n(a, r, fds[i], buf, 1));
		K_EQ(r, gclose(a->net, fds[i]), 0);
	}
	return 0;
}

GNET_DEV int connect_error(struct test_args *a, struct test_report *r)
{
	int fd, rc;

	K_GET(r, fd, gsocket(a->net, a->want->a.sa.sa_family, GNET_SOCK_STREAM, GNET_PROTO_RDMA));
	rc = gconnect(a->net, fd, &a->want->a, a->want->len);
	if (test_k_tid() == 0)
		a->word[W_RESULT] = (uint64_t)rc;
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int listen_error(struct test_args *a, struct test_report *r)
{
	int fd, rc;

	K_GET(r, fd, gsocket(a->net, a->want->a.sa.sa_family, GNET_SOCK_STREAM, GNET_PROTO_RDMA));
	rc = gbind(a->net, fd, &a->want->a, a->want->len);
	if (!rc)
		rc = glisten(a->net, fd, 1);
	if (test_k_tid() == 0)
		a->word[W_RESULT] = (uint64_t)rc;
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int peer(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	switch (a->word[W_MODE]) {
	case RSTREAM_SERVER:
	case RSTREAM_CLIENT:
		return rstream(a, r, buf, a->word[W_MODE] == RSTREAM_CLIENT);
	case RCOPY_SERVER:
		return rcopy_serve(a, r, buf);
	case RCOPY_CLIENT:
		return rcopy_send(a, r, buf);
	case SEND:
		return send_and_read(a, r, buf);
	case SINK:
		return sink(a, r, buf);
	case MANY:
		return many(a, r, buf);
	case LISTEN:
		return listen_error(a, r);
	default:
		return connect_error(a, r);
	}
}

TEST_KERNEL(peer_kernel, peer)

/* ---- host ---------------------------------------------------------------------------------------------------------------------------- */

struct mode {
	const char *name;
	int mode, args, listens;
};

static const struct mode modes[] = {
	{ "rstream-server", RSTREAM_SERVER, 3, 1 },
	{ "rstream-client", RSTREAM_CLIENT, 3, 0 },
	{ "rcopy-server", RCOPY_SERVER, 1, 1 },
	{ "rcopy-client", RCOPY_CLIENT, 2, 0 },
	{ "send", SEND, 2, 0 },
	{ "sink", SINK, 2, 1 },
	{ "many", MANY, 1, 0 },
	{ "error", ERROR, 0, 0 },
	{ "listen", LISTEN, 0, 0 },
};

#define FILE_MAX ((size_t)32 << 20)

static void load(struct test_args *a, const char *file, const char *name)
{
	uint64_t size;
	ssize_t n;
	int fd = open(file, O_RDONLY);

	CHECK(fd >= 0);
	n = read(fd, a->buf + 264, FILE_MAX - 264);
	CHECK(n >= 0);
	close(fd);
	size = (uint64_t)n;
	snprintf((char *)a->buf, 256, "%s", name);
	memcpy(a->buf + 256, &size, sizeof(size));
	a->word[W_BYTES] = size;
}

static void keep(const struct test_args *a, const char *file)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	CHECK(fd >= 0);
	test_write(fd, a->buf, a->word[W_BYTES]);
	close(fd);
}

static void address(struct test_args *a, const char *host, const char *port)
{
	struct test_addr *w = a->want;

	memset(w, 0, sizeof(*w));
	if (inet_pton(AF_INET, host, &w->a.in.sin_addr) == 1) {
		w->a.in.sin_family = AF_INET;
		w->len = sizeof(w->a.in);
	} else {
		CHECK(inet_pton(AF_INET6, host, &w->a.in6.sin6_addr) == 1);
		w->a.in6.sin6_family = AF_INET6;
		w->len = sizeof(w->a.in6);
	}
	w->a.in.sin_port = htons((uint16_t)atoi(port));
}

/* As a user without privileges who may lock 64 KiB. */
static void limit(void)
{
	const struct rlimit l = { 64 << 10, 64 << 10 };

	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &l), 0);
	CHECK_EQ(setgid(65534), 0);
	CHECK_EQ(setuid(65534), 0);
}

static void write_to_all(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long from, to;
	char line[512], how[8];

	CHECK(maps != NULL);
	while (fgets(line, sizeof(line), maps)) {
		/* Not those that parent and child share. */
		if (sscanf(line, "%lx-%lx %7s", &from, &to, how) != 3 || strcmp(how, "rw-p") != 0)
			continue;
		for (; from < to; from += 4096) {
			volatile uint8_t *p = (uint8_t *)from;

			*p = *p;
		}
	}
	fclose(maps);
}

static void fork_children(int n)
{
	int status;
	pid_t pid;

	for (; n > 0; n--) {
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			write_to_all();
			for (int fd = 3; fd < 1024; fd++)
				close(fd);
			_exit(0);
		}
		test_sleep_ms(50);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK_EQ(status, 0);
	}
}

int main(int argc, char **argv)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	const struct mode *m = NULL;
	struct test_args a;
	gpunet_t *g;
	unsigned i;
	int k;

	for (i = 0; argc > 1 && i < sizeof(modes) / sizeof(modes[0]); i++)
		m = strcmp(modes[i].name, argv[1]) ? m : &modes[i];
	if (!m || argc != 4 + m->args)
		FAIL("see the top of rdma_peer.c for what to give it");
	test_begin(600);
	if (getenv("RDMA_PEER_LIMITED"))
		limit();
	g = test_open(&o);
	a = test_setup(g, TEST_TCP, 1, FILE_MAX);
	address(&a, argv[2], argv[3]);
	a.word[W_MODE] = (uint64_t)m->mode;
	if (m->mode == RCOPY_CLIENT)
		load(&a, argv[4], argv[5]);
	else if (m->mode == MANY)
		a.word[W_COUNT] = (uint64_t)atoll(argv[4]);
	else
		for (k = 0; k < m->args && m->mode != RCOPY_SERVER; k++)
			a.word[W_SIZE + k] = (uint64_t)atoll(argv[4 + k]);
	TEST_LAUNCH(g, peer_kernel, a, 1, 32);
	if (m->listens) {
		test_addr_wait(a.where, a.report);
		printf("ready\n");
		fflush(stdout);
	}
	if (getenv("RDMA_PEER_FORKS"))
		fork_children(atoi(getenv("RDMA_PEER_FORKS")));
	test_sync(g, a.report, 1);
	if (m->mode == RCOPY_SERVER)
		keep(&a, argv[4]);
	printf("result %lld, %llu bytes, %llu ns\n", (long long)a.word[W_RESULT],
	       (unsigned long long)a.word[W_BYTES], (unsigned long long)a.word[W_NS]);
	test_close(g);
	return 0;
}
