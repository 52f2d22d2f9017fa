/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which way of giving frames to the kernel is worth a wire of the software RNIC? Between two network namespaces, over a pair of veth
 * interfaces, each in a process of its own that sets all up anew: UDP sockets (with and without segmentation), packet sockets, and
 * AF_XDP (in the generic and in the driver's mode, which both copy: veth has no other). Packets a second of 64 and of 2,048 bytes of
 * payload, sender and receiver spinning on a core each, and half of a round trip of 64 bytes. Prints a line of JSON a figure.
 *
 * Needs root. `bench-wires [ROUNDS]`.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <linux/udp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	BATCH = 64,
	HEAD = 42, /* Ethernet, IPv4, UDP */
	PORT = 4791,
	CHUNK = 4096,
	CHUNKS = 4096, /* half of them for sending */
	RING = 2048,
	SMALL = 64,
	LARGE = 2048,
	MAX = 65536,
	WINDOW = 1024,
};

#define RUN_NS UINT64_C(500000000)

enum kind { UDP, UDP_GSO, PACKET, XDP_GENERIC, XDP_DRIVER, KINDS };

static const char *const names[KINDS] = { "udp", "udp_segments", "packet", "xdp_generic",
					  "xdp_driver" };

/* One of a socket's four rings, which the kernel shares. */
struct ring {
	uint32_t *producer, *consumer;
	void *entries;
};

struct end {
	enum kind kind;
	const char *ifname;
	unsigned host; /* last byte of its addresses */
	int fd, link, map;
	uint8_t *umem;
	struct ring rx, tx, fill, done;
	size_t size;    /* of payload */
	unsigned batch; /* receives at once */
	uint8_t frame[HEAD + LARGE];
	uint8_t *buf;
};

static struct end a = { .ifname = "wa", .host = 1, .fd = -1 },
		  b = { .ifname = "wb", .host = 2, .fd = -1 };
static volatile int stop;
static volatile uint64_t received;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "bench-wires: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* ---- AF_XDP -------------------------------------------------------------------------------------------- */

static int bpf(int cmd, union bpf_attr *attr)
{
	return (int)syscall(SYS_bpf, cmd, attr, sizeof(*attr));
}

/* A program that gives every frame to the socket of its queue, if there is one. */
static void attach(struct end *e)
{
	struct bpf_insn code[] = {
		{ BPF_LDX | BPF_W | BPF_MEM, BPF_REG_2, BPF_REG_1,
		  offsetof(struct xdp_md, rx_queue_index), 0 },
		{ BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, 0 },
		{ 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_3, 0, 0, XDP_PASS },
		{ BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_redirect_map },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	union bpf_attr map = {
		.map_type = BPF_MAP_TYPE_XSKMAP, .key_size = 4, .value_size = 4, .max_entries = 4
	};
	union bpf_attr prog = { .prog_type = BPF_PROG_TYPE_XDP,
				.insn_cnt = sizeof(code) / sizeof(code[0]),
				.insns = (uintptr_t)code,
				.license = (uintptr_t) "BSD" };
	union bpf_attr link = { .link_create = { .attach_type = BPF_XDP } };
	int fd;

	e->map = bpf(BPF_MAP_CREATE, &map);
	must(e->map >= 0, "cannot make a map of sockets");
	code[1].imm = e->map;
	fd = bpf(BPF_PROG_LOAD, &prog);
	must(fd >= 0, "cannot load the program");
	link.link_create.prog_fd = (uint32_t)fd;
	link.link_create.target_ifindex = if_nametoindex(e->ifname);
	link.link_create.flags = e->kind == XDP_DRIVER ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE;
	e->link = bpf(BPF_LINK_CREATE, &link);
	must(e->link >= 0, "cannot attach the program");
}

static void map_rings(struct end *e)
{
	struct xdp_mmap_offsets o;
	socklen_t n = sizeof(o);
	struct {
		struct ring *r;
		const struct xdp_ring_offset *o;
		uint64_t where;
		size_t entry;
	} all[4] = { { &e->rx, &o.rx, XDP_PGOFF_RX_RING, sizeof(struct xdp_desc) },
		     { &e->tx, &o.tx, XDP_PGOFF_TX_RING, sizeof(struct xdp_desc) },
		     { &e->fill, &o.fr, XDP_UMEM_PGOFF_FILL_RING, 8 },
		     { &e->done, &o.cr, XDP_UMEM_PGOFF_COMPLETION_RING, 8 } };
	int i;

	must(getsockopt(e->fd, SOL_XDP, XDP_MMAP_OFFSETS, &o, &n) == 0, "no offsets");
	for (i = 0; i < 4; i++) {
		uint8_t *p =
			mmap(NULL, all[i].o->desc + RING * all[i].entry, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_POPULATE, e->fd, (off_t)all[i].where);

		must(p != MAP_FAILED, "cannot map a ring");
		all[i].r->producer = (uint32_t *)(void *)(p + all[i].o->producer);
		all[i].r->consumer = (uint32_t *)(void *)(p + all[i].o->consumer);
		all[i].r->entries = p + all[i].o->desc;
	}
}

static void open_xdp(struct end *e)
{
	struct xdp_umem_reg reg = { .len = (uint64_t)CHUNK * CHUNKS, .chunk_size = CHUNK };
	struct sockaddr_xdp to = { .sxdp_family = AF_XDP, .sxdp_flags = XDP_COPY };
	static const int options[4] = { XDP_RX_RING, XDP_TX_RING, XDP_UMEM_FILL_RING,
					XDP_UMEM_COMPLETION_RING };
	union bpf_attr set = { 0 };
	uint32_t key = 0, i;
	int entries = RING;

	attach(e);
	e->umem = mmap(NULL, reg.len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	must(e->umem != MAP_FAILED, "no memory");
	e->fd = socket(AF_XDP, SOCK_RAW, 0);
	must(e->fd >= 0, "no socket of AF_XDP");
	reg.addr = (uintptr_t)e->umem;
	must(setsockopt(e->fd, SOL_XDP, XDP_UMEM_REG, &reg, sizeof(reg)) == 0, "no umem");
	for (i = 0; i < 4; i++)
		must(setsockopt(e->fd, SOL_XDP, options[i], &entries, sizeof(entries)) == 0,
		     "cannot make a ring");
	map_rings(e);
	to.sxdp_ifindex = if_nametoindex(e->ifname);
	must(bind(e->fd, (struct sockaddr *)&to, sizeof(to)) == 0, "cannot bind AF_XDP");
	for (i = 0; i < RING; i++)
		((uint64_t *)e->fill.entries)[i] = (uint64_t)(CHUNKS / 2 + i) * CHUNK;
	__atomic_store_n(e->fill.producer, RING, __ATOMIC_RELEASE);
	set.map_fd = (uint32_t)e->map;
	set.key = (uintptr_t)&key;
	set.value = (uintptr_t)&e->fd;
	must(bpf(BPF_MAP_UPDATE_ELEM, &set) == 0, "cannot enter the socket");
}

static unsigned xdp_send(struct end *e, unsigned n)
{
	uint32_t done = __atomic_load_n(e->done.producer, __ATOMIC_ACQUIRE), at = *e->tx.producer,
		 i;
	struct xdp_desc *d = e->tx.entries;

	__atomic_store_n(e->done.consumer, done, __ATOMIC_RELEASE);
	if (n > RING - (at - done))
		n = RING - (at - done);
	for (i = 0; i < n; i++) {
		uint64_t addr = (uint64_t)((at + i) % RING) * CHUNK;

		memcpy(e->umem + addr, e->frame, HEAD + e->size);
		d[(at + i) % RING] =
			(struct xdp_desc){ .addr = addr, .len = (uint32_t)(HEAD + e->size) };
	}
	__atomic_store_n(e->tx.producer, at + n, __ATOMIC_RELEASE);
	(void)sendto(e->fd, NULL, 0, MSG_DONTWAIT, NULL, 0);
	return n;
}

static unsigned xdp_receive(struct end *e)
{
	uint32_t have = __atomic_load_n(e->rx.producer, __ATOMIC_ACQUIRE), at = *e->rx.consumer,
		 fill = *e->fill.producer, n = have - at, i;
	const struct xdp_desc *d = e->rx.entries;
	unsigned ours = 0;

	for (i = 0; i < n; i++) {
		const struct xdp_desc *x = &d[(at + i) % RING];

		ours += x->len == HEAD + e->size;
		memcpy(e->buf, e->umem + x->addr, x->len < MAX ? x->len : MAX);
		((uint64_t *)e->fill.entries)[(fill + i) % RING] = x->addr & ~(uint64_t)(CHUNK - 1);
	}
	__atomic_store_n(e->rx.consumer, at + n, __ATOMIC_RELEASE);
	__atomic_store_n(e->fill.producer, fill + n, __ATOMIC_RELEASE);
	return ours;
}

/* ---- sockets ------------------------------------------------------------------------------------------- */

static struct sockaddr_in address(unsigned host)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	in.sin_addr.s_addr = htonl(0x0a510000 + host);
	return in;
}

static void open_udp(struct end *e)
{
	struct sockaddr_in in = address(e->host);
	int one = 1, size = 4 << 20;

	e->fd = socket(AF_INET, SOCK_DGRAM, 0);
	must(e->fd >= 0 && bind(e->fd, (struct sockaddr *)&in, sizeof(in)) == 0, "no UDP socket");
	setsockopt(e->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	if (e->kind == UDP_GSO)
		must(!setsockopt(e->fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one)), "no UDP_GRO");
}

static void open_packet(struct end *e)
{
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	int size = 4 << 20;

	e->fd = socket(AF_PACKET, SOCK_RAW, 0);
	to.sll_ifindex = (int)if_nametoindex(e->ifname);
	must(e->fd >= 0 && bind(e->fd, (struct sockaddr *)&to, sizeof(to)) == 0,
	     "no packet socket");
	setsockopt(e->fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	setsockopt(e->fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
}

/* Segments of one send, as many as one may have. */
static unsigned gso_send(struct end *e, struct sockaddr_in *to, unsigned n)
{
	char control[CMSG_SPACE(2)] = { 0 };
	struct iovec iov = { e->buf, 0 };
	struct msghdr m = { .msg_name = to,
			    .msg_namelen = sizeof(*to),
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	uint16_t size = (uint16_t)e->size;

	if (n * e->size > 65000)
		n = (unsigned)(65000 / e->size);
	iov.iov_len = n * e->size;
	c->cmsg_level = IPPROTO_UDP;
	c->cmsg_type = UDP_SEGMENT;
	c->cmsg_len = CMSG_LEN(2);
	memcpy(CMSG_DATA(c), &size, 2);
	return sendmsg(e->fd, &m, MSG_DONTWAIT) < 0 ? 0 : n;
}

static unsigned socket_send(struct end *e, unsigned n)
{
	struct sockaddr_in to = address(3 - e->host);
	struct mmsghdr m[BATCH];
	struct iovec iov = { e->frame, HEAD + e->size };
	int got;

	if (e->kind == UDP_GSO && n > 1)
		return gso_send(e, &to, n);
	memset(m, 0, n * sizeof(m[0]));
	if (e->kind != PACKET)
		iov = (struct iovec){ e->frame + HEAD, e->size };
	for (unsigned i = 0; i < n; i++) {
		m[i].msg_hdr.msg_iov = &iov;
		m[i].msg_hdr.msg_iovlen = 1;
		if (e->kind != PACKET) {
			m[i].msg_hdr.msg_name = &to;
			m[i].msg_hdr.msg_namelen = sizeof(to);
		}
	}
	got = sendmmsg(e->fd, m, n, MSG_DONTWAIT);
	return got > 0 ? (unsigned)got : 0;
}

static unsigned socket_receive(struct end *e)
{
	struct mmsghdr m[BATCH];
	struct sockaddr_ll from[BATCH];
	struct iovec iov[BATCH];
	/* Each place has room for what segments that were joined make. */
	unsigned n = e->kind == UDP_GSO ? 1 : e->batch, ours = 0;
	size_t room = e->kind == UDP_GSO ? MAX : HEAD + LARGE;
	int got;

	memset(m, 0, n * sizeof(m[0]));
	for (unsigned i = 0; i < n; i++) {
		iov[i] = (struct iovec){ e->buf + i * room % MAX, room };
		m[i].msg_hdr.msg_iov = &iov[i];
		m[i].msg_hdr.msg_iovlen = 1;
		m[i].msg_hdr.msg_name = &from[i];
		m[i].msg_hdr.msg_namelen = sizeof(from[i]);
	}
	got = recvmmsg(e->fd, m, n, MSG_DONTWAIT, NULL);
	for (int i = 0; i < got; i++) {
		if (e->kind != PACKET)
			ours += (unsigned)(m[i].msg_len / e->size);
		else
			ours += m[i].msg_len == HEAD + e->size &&
				from[i].sll_pkttype != PACKET_OUTGOING;
	}
	return ours;
}

static unsigned give(struct end *e, unsigned n)
{
	return e->kind >= XDP_GENERIC ? xdp_send(e, n) : socket_send(e, n);
}

static unsigned take(struct end *e)
{
	return e->kind >= XDP_GENERIC ? xdp_receive(e) : socket_receive(e);
}

/* ---- the two namespaces -------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 2))) static void shell(const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	must(system(line) == 0, line);
}

static uint16_t sum_of(const uint8_t *p, size_t n)
{
	uint32_t s = 0;

	for (size_t i = 0; i < n; i += 2)
		s += (uint32_t)p[i] << 8 | p[i + 1];
	s = (s & 0xffff) + (s >> 16);
	return (uint16_t) ~((s & 0xffff) + (s >> 16));
}

/* A frame for the other end, whose interface has the address 02:00:00:00:00:HOST. */
static void make_frame(struct end *e, size_t size)
{
	uint8_t head[HEAD] = { 2, 0, 0,    0, 0,  (uint8_t)(3 - e->host),
			       2, 0, 0,    0, 0,  (uint8_t)e->host,
			       8, 0, 0x45, 0, 0,  0,
			       0, 0, 0x40, 0, 64, 17 };
	struct sockaddr_in from = address(e->host), to = address(3 - e->host);
	uint16_t v = htons((uint16_t)(28 + size));

	memcpy(head + 16, &v, 2);
	/* Addresses that the kernel does not have, so that it has no answer for frames that it sees, too. */
	memcpy(head + 26, &from.sin_addr, 4);
	memcpy(head + 30, &to.sin_addr, 4);
	head[28] = head[32] = 99;
	v = htons(sum_of(head + 14, 20));
	memcpy(head + 24, &v, 2);
	head[34] = head[36] = PORT >> 8;
	head[35] = head[37] = PORT & 255;
	v = htons((uint16_t)(8 + size));
	memcpy(head + 38, &v, 2);
	memcpy(e->frame, head, HEAD);
	e->size = size;
}

static void open_end(struct end *e)
{
	shell("ip link set lo up; ip link set %s address 02:00:00:00:00:0%u mtu 3000 up && "
	      "ip addr add 10.81.0.%u/24 dev %s && ip neigh add 10.81.0.%u lladdr "
	      "02:00:00:00:00:0%u dev %s",
	      e->ifname, e->host, e->host, e->ifname, 3 - e->host, 3 - e->host, e->ifname);
	e->buf = malloc(MAX + LARGE + HEAD);
	must(e->buf != NULL, "no memory");
	if (e->kind >= XDP_GENERIC)
		open_xdp(e);
	else if (e->kind == PACKET)
		open_packet(e);
	else
		open_udp(e);
}

static pthread_barrier_t meet;
static pid_t far_tid;

/* The other namespace is this thread's. */
static void *far_main(void *arg)
{
	must(unshare(CLONE_NEWNET) == 0, "no network namespace");
	far_tid = (pid_t)syscall(SYS_gettid);
	pthread_barrier_wait(&meet);
	pthread_barrier_wait(&meet);
	open_end(&b);
	return arg;
}

static void set_up(enum kind kind)
{
	pthread_t t;

	a.kind = b.kind = kind;
	must(unshare(CLONE_NEWNET) == 0, "no network namespace (root?)");
	pthread_barrier_init(&meet, NULL, 2);
	must(pthread_create(&t, NULL, far_main, NULL) == 0, "no thread");
	pthread_barrier_wait(&meet);
	shell("ip link add wa type veth peer name wb && ip link set wb netns %d", (int)far_tid);
	pthread_barrier_wait(&meet);
	open_end(&a);
	pthread_join(t, NULL);
	usleep(300000); /* the links come up */
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void *flood(void *arg)
{
	uint64_t sent = 0, moved = now_ns(), last = 0;

	pin(0);
	while (!stop) {
		if (received != last) {
			last = received;
			moved = now_ns();
		}
		/* As a requester has it; what was lost is given up after a while. */
		if (sent - received < WINDOW)
			sent += give(&a, BATCH);
		else if (now_ns() - moved > 1000000)
			sent = received;
	}
	return arg;
}

/* Packets a second that arrive, with no more than WINDOW under way. */
static double rate(size_t size)
{
	uint64_t begin, start, end, n;
	pthread_t t;

	make_frame(&a, size);
	make_frame(&b, size);
	b.batch = BATCH;
	pin(1);
	stop = 0;
	received = 0;
	must(pthread_create(&t, NULL, flood, NULL) == 0, "no thread");
	for (begin = now_ns(); now_ns() - begin < RUN_NS / 5;)
		received += take(&b);
	n = received;
	for (start = now_ns(); (end = now_ns()) - start < RUN_NS;)
		received += take(&b);
	n = received - n;
	stop = 1;
	pthread_join(t, NULL);
	for (begin = now_ns(); now_ns() - begin < RUN_NS / 10;)
		take(&b);
	return (double)n * 1e9 / (double)(end - start);
}

static void *echo(void *arg)
{
	pin(1);
	while (!stop) {
		if (take(&b))
			give(&b, 1);
	}
	return arg;
}

static int by_value(const void *x, const void *y)
{
	double p = *(const double *)x, q = *(const double *)y;

	return p < q ? -1 : p > q;
}

/* The median of half round trips, us. */
static double latency(void)
{
	enum { N = 20000 };
	static double us[N];
	pthread_t t;
	int i;

	make_frame(&a, SMALL);
	make_frame(&b, SMALL);
	a.batch = b.batch = 1;
	pin(0);
	stop = 0;
	must(pthread_create(&t, NULL, echo, NULL) == 0, "no thread");
	for (i = 0; i < N; i++) {
		uint64_t begin = now_ns();

		give(&a, 1);
		while (!take(&a) && now_ns() - begin < 10000000)
			;
		us[i] = (double)(now_ns() - begin) / 2000;
	}
	stop = 1;
	pthread_join(t, NULL);
	qsort(us, N, sizeof(us[0]), by_value);
	return us[N / 2];
}

static void measure(enum kind kind, int round)
{
	double small, large, half;

	set_up(kind);
	half = latency();
	small = rate(SMALL);
	large = rate(LARGE);
	printf("{\"wire\":\"%s\",\"round\":%d,\"pps_64\":%.0f,\"pps_2048\":%.0f,\"half_rtt_us\":%.2f}\n",
	       names[kind], round, small, large, half);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 5, status = 0, failed = 0;

	for (int i = 0; i < rounds * KINDS; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			measure((enum kind)(i % KINDS), i / KINDS);
			_exit(0);
		}
		must(pid > 0 && waitpid(pid, &status, 0) == pid, "no process");
		failed |= status;
	}
	return failed ? 1 : 0;
}
