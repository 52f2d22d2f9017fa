/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What does a kernel as a server cost over a CPU program as a server? Echo of small messages and streams in both
 * directions over TCP and UNIX, the same client against both servers in one run. One JSON line a figure.
 *
 *   bench-sock [--quick] [--threads N]
 *
 * One source for both devices: C11 for the CPU device, CUDA for a GPU.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <gpunet/dev/socket.h>
#include <gpunet/gpunet.h>

#define BUF (1u << 20)

enum mode { ECHO, SINK, SOURCE };

struct shared {
	uint64_t port;  /* of the TCP listener, or 1 for UNIX; an errno as a negative number */
	uint64_t bytes; /* what a sink received */
};

struct args {
	gnet_t *net;
	struct shared *out;
	uint8_t *buf; /* BUF bytes of device memory */
	int family;
	int mode;
	uint64_t total; /* bytes of a stream */
	uint32_t name;  /* of the UNIX socket, in the abstract space */
};

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

GNET_DEV uint32_t make_addr(const struct args *a, uint8_t *addr)
{
	uint32_t i;

	for (i = 0; i < 32; i++)
		addr[i] = 0;
	addr[0] = (uint8_t)a->family;
	if (a->family == GNET_AF_INET) {
		addr[4] = 127;
		addr[7] = 1;
		return 16;
	}
	for (i = 0; i < 8; i++)
		addr[3 + i] = (uint8_t)('a' + (a->name >> 4 * i & 15));
	return 11;
}

GNET_DEV void serve(const struct args *a, int fd)
{
	uint64_t done = 0;
	int64_t n = 1;

	while (n > 0) {
		if (a->mode == SOURCE) {
			uint64_t left = a->total - done;

			n = left ? gsend(a->net, fd, a->buf, left < BUF ? left : BUF, 0) : 0;
		} else {
			n = grecv(a->net, fd, a->buf, BUF, 0);
			if (n > 0 && a->mode == ECHO)
				n = gsend(a->net, fd, a->buf, (uint64_t)n, 0);
		}
		done += n > 0 ? (uint64_t)n : 0;
	}
	if (a->mode == SINK) {
		gsend(a->net, fd, a->buf, 1, 0);
		if (threadIdx.x == 0)
			gnet_sys_store_release(&a->out->bytes, done);
	}
	gclose(a->net, fd);
}

GNET_KERNEL_MAX(server, struct args, a, 512)
{
	__shared__ uint8_t addr[32];
	__shared__ uint32_t len;
	int fd = gsocket(a.net, a.family, GNET_SOCK_STREAM, 0), rc, conn;

	if (threadIdx.x == 0)
		len = make_addr(&a, addr);
	__syncthreads();
	rc = fd < 0 ? fd : gbind(a.net, fd, addr, len);
	if (!rc)
		rc = glisten(a.net, fd, 8);
	__syncthreads();
	if (!rc && a.family == GNET_AF_INET) {
		if (threadIdx.x == 0)
			len = 32;
		__syncthreads();
		rc = ggetsockname(a.net, fd, addr, &len);
	}
	if (threadIdx.x == 0)
		gnet_sys_store_release(&a.out->port, rc ? (uint64_t)(int64_t)rc
						     : a.family == GNET_AF_INET
							     ? (uint64_t)addr[2] << 8 | addr[3]
							     : 1);
	while (!rc && (conn = gaccept(a.net, fd, 0, 0)) >= 0)
		serve(&a, conn);
}

/* ---- the CPU as a server -------------------------------------------------------------------------------------------- */

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Spins, as the proxy does. */
static ssize_t spin_recv(int fd, void *buf, size_t n)
{
	ssize_t r;

	do
		r = recv(fd, buf, n, MSG_DONTWAIT);
	while (r < 0 && (errno == EAGAIN || errno == EINTR));
	return r;
}

static ssize_t send_all(int fd, const void *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = send(fd, (const char *)buf + done, n - done, MSG_NOSIGNAL);

		if (r < 0 && errno != EINTR)
			return -1;
		done += r > 0 ? (size_t)r : 0;
	}
	return (ssize_t)n;
}

struct cpu_server {
	int listener, mode;
	uint64_t total;
	pthread_t thread;
};

static void *cpu_server_main(void *arg)
{
	struct cpu_server *s = (struct cpu_server *)arg;
	char *buf = (char *)malloc(BUF);
	int fd = accept(s->listener, NULL, NULL), one = 1;
	uint64_t done = 0;
	ssize_t n = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	memset(buf, 1, BUF);
	while (n > 0) {
		if (s->mode == SOURCE) {
			uint64_t left = s->total - done;

			n = left ? send_all(fd, buf, left < 65536 ? left : 65536) : 0;
		} else {
			n = spin_recv(fd, buf, s->mode == ECHO ? BUF : 65536);
			if (n > 0 && s->mode == ECHO)
				n = send_all(fd, buf, (size_t)n);
		}
		done += n > 0 ? (uint64_t)n : 0;
	}
	if (s->mode == SINK)
		send_all(fd, buf, 1);
	close(fd);
	free(buf);
	return NULL;
}

/* ---- the client ----------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct result {
	double p50, p99, gbs;
};

static int echo(int fd, unsigned size, unsigned rounds, struct result *r)
{
	double *t = (double *)malloc(rounds * sizeof(*t));
	uint8_t *out = (uint8_t *)malloc(size), *in = (uint8_t *)malloc(size);
	unsigned i, k, warm = rounds / 10;
	int bad = 0;

	for (i = 0; i < rounds + warm && !bad; i++) {
		double start = now_us();
		size_t got = 0;

		for (k = 0; k < size; k++)
			out[k] = (uint8_t)(i * 7 + k);
		start = now_us();
		bad = send_all(fd, out, size) < 0;
		while (!bad && got < size) {
			ssize_t n = spin_recv(fd, in + got, size - got);

			bad = n <= 0;
			got += n > 0 ? (size_t)n : 0;
		}
		if (i >= warm)
			t[i - warm] = now_us() - start;
		bad = bad || memcmp(out, in, size);
	}
	qsort(t, rounds, sizeof(*t), compare);
	r->p50 = t[rounds / 2];
	r->p99 = t[(size_t)rounds * 99 / 100];
	free(t);
	free(out);
	free(in);
	return bad;
}

static int stream(int fd, int mode, uint64_t total, struct result *r)
{
	char *buf = (char *)calloc(1, BUF), one;
	double start = now_us();
	uint64_t done = 0;
	int bad = 0;

	while (done < total && !bad) {
		ssize_t n = mode == SINK
				    ? send_all(fd, buf, total - done < 65536 ? total - done : 65536)
				    : spin_recv(fd, buf, 65536);

		bad = n <= 0;
		done += n > 0 ? (uint64_t)n : 0;
	}
	if (mode == SINK && !bad) {
		shutdown(fd, SHUT_WR);
		bad = spin_recv(fd, &one, 1) != 1;
	}
	r->gbs = (double)total / (now_us() - start) / 1e3;
	free(buf);
	return bad;
}

static int dial(int family, uint32_t name, uint64_t port)
{
	struct sockaddr_storage ss;
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	struct sockaddr_un *un = (struct sockaddr_un *)&ss;
	socklen_t n = sizeof(*in);
	int fd = socket(family, SOCK_STREAM, 0), one = 1, i;

	memset(&ss, 0, sizeof(ss));
	ss.ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		in->sin_port = htons((uint16_t)port);
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	} else {
		for (i = 0; i < 8; i++)
			un->sun_path[1 + i] = (char)('a' + (name >> 4 * i & 15));
		n = 11;
	}
	if (connect(fd, (struct sockaddr *)&ss, n)) {
		fprintf(stderr, "connect: %s\n", strerror(errno));
		exit(1);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static int measure(int fd, int mode, unsigned size, unsigned rounds, uint64_t total,
		   struct result *r)
{
	int bad = mode == ECHO ? echo(fd, size, rounds, r) : stream(fd, mode, total, r);

	close(fd);
	return bad;
}

/* ---- the two servers side by side ------------------------------------------------------------------------------------ */

static void *shared_alloc(size_t n, int device)
{
	void *p = NULL;

#ifdef __CUDACC__
	if (device ? cudaMalloc(&p, n) : cudaHostAlloc(&p, n, cudaHostAllocMapped))
		p = NULL;
	if (p && !device)
		memset(p, 0, n);
#else
	(void)device;
	p = calloc(1, n);
#endif
	if (!p)
		exit(1);
	return p;
}

static int with_cpu(int family, int mode, unsigned size, unsigned rounds, uint64_t total,
		    struct result *r)
{
	struct cpu_server s = { socket(family, SOCK_STREAM, 0), mode, total, 0 };
	struct sockaddr_storage ss;
	socklen_t n = sizeof(ss);
	uint32_t name = (uint32_t)getpid() ^ 0x5a5a5a5a;
	int bad, i;

	memset(&ss, 0, sizeof(ss));
	ss.ss_family = (sa_family_t)family;
	for (i = 0; i < 8 && family == AF_UNIX; i++)
		((struct sockaddr_un *)&ss)->sun_path[1 + i] = (char)('a' + (name >> 4 * i & 15));
	if (bind(s.listener, (struct sockaddr *)&ss,
		 family == AF_UNIX ? 11 : sizeof(struct sockaddr_in)) ||
	    listen(s.listener, 8) || getsockname(s.listener, (struct sockaddr *)&ss, &n)) {
		fprintf(stderr, "CPU server: %s\n", strerror(errno));
		exit(1);
	}
	pthread_create(&s.thread, NULL, cpu_server_main, &s);
	bad = measure(dial(family, name, ntohs(((struct sockaddr_in *)&ss)->sin_port)), mode, size,
		      rounds, total, r);
	pthread_join(s.thread, NULL);
	close(s.listener);
	return bad;
}

static int with_kernel(unsigned threads, int family, int mode, unsigned size, unsigned rounds,
		       uint64_t total, struct result *r)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct gpunet_grid grid = { 1, 1, 1, 0, 1, 1, 0 };
	static struct shared *out;
	static uint8_t *buf;
	struct args a;
	gpunet_t *g;
	int64_t port;
	int bad;

#ifdef __CUDACC__
	o.device = "cuda";
#else
	o.device = "cpu";
#endif
	grid.block_x = threads;
	if (!out) {
		out = (struct shared *)shared_alloc(sizeof(*out), 0);
		buf = (uint8_t *)shared_alloc(BUF, 1);
	}
	memset(out, 0, sizeof(*out));
	if (gpunet_open(&g, &o))
		exit(1);
	a.net = gpunet_device(g);
	a.out = out;
	a.buf = buf;
	a.family = family;
	a.mode = mode;
	a.total = total;
	a.name = (uint32_t)getpid();
	if (GPUNET_LAUNCH(g, server, grid, a)) {
		fprintf(stderr, "launch of %u threads failed\n", threads);
		exit(1);
	}
	while (!(port = (int64_t)__atomic_load_n(&out->port, __ATOMIC_ACQUIRE)))
		usleep(1000);
	if (port < 0) {
		fprintf(stderr, "kernel: %s\n", strerror((int)-port));
		exit(1);
	}
	bad = measure(dial(family, a.name, (uint64_t)port), mode, size, rounds, total, r);
	if (gpunet_close(g, 5000)) {
		fprintf(stderr, "%s\n", gpunet_last_error());
		exit(1);
	}
	return bad;
}

static void line(const char *name, const char *transport, unsigned size, unsigned threads,
		 double ours, double peer, const char *unit)
{
#ifdef __CUDACC__
	const char *device = "cuda";
#else
	const char *device = "cpu";
#endif
	printf("{\"name\":\"%s\",\"device\":\"%s\",\"transport\":\"%s\",\"size\":%u,\"conns\":1,\"threads\":%u,\"ours\":%.3f,"
	       "\"peer_name\":\"CPU server, spinning\",\"peer\":%.3f,\"unit\":\"%s\",\"ratio\":%.3f,\"added\":%.3f}\n",
	       name, device, transport, size, threads, ours, peer, unit, ours / peer, ours - peer);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const unsigned sizes[] = { 1, 64, 105, 106, 1024, 16384 };
	unsigned rounds = 20000, threads = 64, i, f;
	uint64_t total = UINT64_C(2) << 30;
	int k, bad = 0;

	for (k = 1; k < argc; k++) {
		if (!strcmp(argv[k], "--quick")) {
			rounds = 2000;
			total = UINT64_C(64) << 20;
		} else if (!strcmp(argv[k], "--threads") && k + 1 < argc) {
			threads = (unsigned)atoi(argv[++k]);
		} else {
			fprintf(stderr, "usage: %s [--quick] [--threads N]\n", argv[0]);
			return 2;
		}
	}
	alarm(240);
	for (f = 0; f < 2; f++) {
		int family = f ? AF_UNIX : AF_INET;
		const char *t = f ? "unix" : "tcp";
		struct result r, c;

		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			bad |= with_cpu(family, ECHO, sizes[i], rounds, 0, &c);
			bad |= with_kernel(threads, family, ECHO, sizes[i], rounds, 0, &r);
			line("echo_p50", t, sizes[i], threads, r.p50, c.p50, "us");
			line("echo_p99", t, sizes[i], threads, r.p99, c.p99, "us");
		}
		bad |= with_cpu(family, SINK, 65536, 0, total, &c);
		bad |= with_kernel(threads < 512 ? 512 : threads, family, SINK, 65536, 0, total,
				   &r);
		line("stream_to_kernel", t, 65536, 512, r.gbs, c.gbs, "GB/s");
		bad |= with_cpu(family, SOURCE, 65536, 0, total, &c);
		bad |= with_kernel(threads < 512 ? 512 : threads, family, SOURCE, 65536, 0, total,
				   &r);
		line("stream_from_kernel", t, 65536, 512, r.gbs, c.gbs, "GB/s");
	}
	if (bad)
		fprintf(stderr, "wrong bytes or a broken connection\n");
	return bad;
}
