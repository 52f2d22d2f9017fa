/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a pass of a proxy thread costs the system: calls are counted in the table that they go through. Threads are stepped by
 * hand, kernels are played by the test; sockets are real ones. Every case runs with a call a socket and with a ring.
 * "unit_proxy_engine costs" prints what both cost the thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proxy_rig.h"
#include "stream/internal.h"

#define CONNS 20
#define IDLE 10000
#define SOCKETS (RIG_THREADS * (IDLE + 512))

static struct {
	struct sockaddr_un at;
	socklen_t at_len;
	int listener;
	bool ring; /* wanted, and there is one */
} r;

static struct {
	unsigned sends, receives, waits, rings, in_rings, connects;
} calls_made;

static ssize_t count_sendmsg(int fd, const struct msghdr *m, int flags)
{
	calls_made.sends++;
	return sys_real.sendmsg(fd, m, flags);
}

static ssize_t count_recvmsg(int fd, struct msghdr *m, int flags)
{
	calls_made.receives++;
	return sys_real.recvmsg(fd, m, flags);
}

static int count_epoll_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	calls_made.waits++;
	return sys_real.epoll_wait(epfd, ev, max, timeout_ns);
}

static int count_connect(int fd, const struct sockaddr *a, socklen_t n)
{
	calls_made.connects++;
	return sys_real.connect(fd, a, n);
}

static void count_ring_io(struct sys_ring *ring, struct sys_io *io, unsigned n)
{
	calls_made.rings++;
	calls_made.in_rings += n;
	sys_real.ring_io(ring, io, n);
}

/* ---- the rig ----------------------------------------------------------------------------------- */

static void *table; /* of sockets: in pages of its own, so that some can be taken away */

static void *alloc_pages(size_t size)
{
	void *p;

	if (size != SOCKETS * sizeof(struct sock))
		return sys_real.alloc(size);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	table = p == MAP_FAILED ? NULL : p;
	return table;
}

static void free_pages(void *p)
{
	if (p && p == table)
		munmap(p, SOCKETS * sizeof(struct sock));
	else
		sys_real.free(p);
}

static void listen_somewhere(void)
{
	r.at_len = rig_unix_name(&r.at, "engine");
	r.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(r.listener, (struct sockaddr *)&r.at, r.at_len), 0);
	assert_int_equal(listen(r.listener, 100), 0);
}

static struct platform_ops platform;

static int rig_up(void **state, bool ring)
{
	struct sockets_params sp = { .max = SOCKETS };

	memset(&r, 0, sizeof(r));
	if (rig_open(&platform, RIG_THREADS, ring))
		return -1;
	sys.alloc = alloc_pages;
	sys.free = free_pages;
	sys.sendmsg = count_sendmsg;
	sys.recvmsg = count_recvmsg;
	sys.epoll_wait = count_epoll_wait;
	sys.ring_io = count_ring_io;
	sys.connect = count_connect;
	if (rig_open_sockets(sp))
		return -1;
	r.ring = proxy_has_ring(proxy_thread(rig.proxy, 0));
	if (ring && !r.ring)
		print_message("no io_uring here: a call a socket is tested twice\n");
	listen_somewhere();
	return 0;
}

static int up_each(void **state)
{
	return rig_up(state, false);
}

static int up_ring(void **state)
{
	return rig_up(state, true);
}

static int rig_down(void **state)
{
	rig_close();
	close(r.listener);
	return 0;
}

static void step(unsigned q)
{
	memset(&calls_made, 0, sizeof(calls_made));
	rig_step(q, 1000);
}

static void step_until_idle(unsigned q)
{
	unsigned idle = 0;

	while (idle < 20)
		idle = rig_step(q, 0) ? 0 : idle + 1;
}

/* Until nothing is left to do, and nobody has received so lately that he is asked without being told. */
static void settle(unsigned q)
{
	step_until_idle(q);
	rig.now += 1000000;
	step_until_idle(q);
}

/* A kernel sends a few bytes inline. */
static void kernel_sends(struct sock *s, const char *text)
{
	rig_put(s->slot % RIG_THREADS, GNET_OP_SEND, sock_fd(s), text, (unsigned)strlen(text));
}

/* How many bytes the socket's line tells of; a kernel has consumed them. */
static uint64_t kernel_receives(struct sock *s)
{
	struct gnet_sock_bus *b = &rig.bus[s->slot];
	uint64_t tail = rig_told(s), n = tail - b->head;

	__atomic_store_n(&b->head, tail, __ATOMIC_RELEASE);
	return n;
}

/* A connected socket of thread q, and its peer. */
static struct sock *connection(unsigned q, int *peer)
{
	struct sock *s = rig_socket(q, r.at.sun_family, SOCK_STREAM);
	int rc = sock_connect(s, (struct sockaddr *)&r.at, r.at_len, false);
	assert_true(rc == 0 || rc == -EINPROGRESS);
	*peer = accept4(r.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(*peer >= 0);
	return s;
}

/* ---- (a) what is queued goes in one call ------------------------------------------------------- */

static void what_is_queued_goes_in_one_call(void **state)
{
	char in[2048];
	struct sock *s;
	int peer, i;

	s = connection(0, &peer);
	settle(0);
	for (i = 0; i < 40; i++)
		kernel_sends(s, "one of forty, ");
	step(0);
	assert_int_equal(calls_made.sends, 1);
	assert_int_equal(calls_made.rings, 0); /* alone it is not worth one */
	assert_int_equal(read(peer, in, sizeof(in)), 40 * strlen("one of forty, "));
	close(peer);
}

static void several_sockets_share_a_call(void **state)
{
	struct sock *s[CONNS];
	int peer[CONNS], i;
	char in[64];

	for (i = 0; i < CONNS; i++)
		s[i] = connection(0, &peer[i]);
	settle(0);
	for (i = 0; i < CONNS; i++) {
		kernel_sends(s[i], "to each ");
		kernel_sends(s[i], "of them");
	}
	step(0);
	assert_int_equal(calls_made.sends, r.ring ? 0 : CONNS);
	for (i = 0; i < CONNS; i++) {
		assert_int_equal(read(peer[i], in, sizeof(in)), 15);
		assert_memory_equal(in, "to each of them", 15);
	}
	settle(0);
	for (i = 0; i < CONNS; i++)
		assert_int_equal(write(peer[i], "answer", 6), 6);
	step(0);
	assert_int_equal(calls_made.waits, 1);
	assert_int_equal(calls_made.receives, r.ring ? 0 : CONNS);
	if (r.ring) {
		assert_int_equal(calls_made.rings, 1);
		assert_int_equal(calls_made.in_rings, CONNS);
	}
	for (i = 0; i < CONNS; i++) {
		assert_int_equal(kernel_receives(s[i]), 6);
		close(peer[i]);
	}
}

/* What the line of a socket holds inline, and consumes it. */
static unsigned kernel_reads(struct sock *s, char *out)
{
	const struct gnet_line *l = &rig.bus[s->slot].line;
	unsigned n = l->cell[0] >> GNET_LINE_INLINE_SHIFT & 0x7f, i;

	for (i = 0; i < n; i++)
		out[i] = (char)(l->cell[1 + i / GNET_CELL_DATA] >> 8 * (1 + i % GNET_CELL_DATA));
	assert_int_equal(kernel_receives(s), n);
	return n;
}

/* A connection of thread q whose segment has 27 bytes that its kernel has not read. */
static struct sock *with_a_segment(unsigned q, int *peer)
{
	struct sock *s = connection(q, peer);

	settle(q);
	assert_int_equal(write(*peer, "unread", 6), 6);
	settle(q);
	assert_int_equal(write(*peer, "so there is a segment", 21), 21);
	settle(q);
	assert_true(s->st.rx_seg >= 0);
	return s;
}

/* All segments are others'. */
static void use_up(void)
{
	while (slab_get(&rig.slab) >= 0)
		;
}

/* Who needs a segment may have that of another whose reader has consumed everything (R7), but not while it is being filled. */
static void a_segment_that_is_being_filled_stays(void **state)
{
	struct sock *a, *b;
	int of_a, of_b;
	char in[128];

	a = with_a_segment(0, &of_a);
	b = connection(0, &of_b);
	settle(0);
	use_up();
	assert_int_equal(write(of_b, "unread", 6), 6);
	settle(0);
	assert_int_equal(b->st.rx_seg, -1);
	assert_int_equal(kernel_receives(a), 27);
	assert_int_equal(write(of_a, "first", 5), 5);
	assert_int_equal(write(of_b, "second", 6), 6);
	step(0);
	assert_int_equal(kernel_reads(a, in), 5);
	assert_memory_equal(in, "first", 5);
	/* The other one has to wait until its own reader goes on. */
	assert_int_equal(kernel_receives(b), 6);
	settle(0);
	assert_int_equal(kernel_reads(b, in), 6);
	assert_memory_equal(in, "second", 6);
	close(of_a);
	close(of_b);
}

/*
 * A reader that has always consumed everything before the next receive leaves nothing unread, which would be the reason for a segment: it
 * gets one when the line has been too short. A reader of whole lines with silence between them does not.
 */
static void a_fast_reader_gets_a_segment(void **state)
{
	static char out[64 * 1024];
	uint64_t got = 0, n;
	unsigned news = 0, i;
	struct sock *s;
	int peer;

	s = connection(0, &peer);
	settle(0);
	for (i = 0; i < 3; i++) {
		assert_int_equal(write(peer, out, GNET_INLINE_MAX), GNET_INLINE_MAX);
		step(0);
		assert_int_equal(kernel_receives(s), GNET_INLINE_MAX);
		settle(0);
	}
	assert_int_equal(slab_used(&rig.slab), 0);
	assert_int_equal(write(peer, out, sizeof(out)), sizeof(out));
	for (i = 0; i < 2000 && got < sizeof(out); i++) {
		step(0);
		n = kernel_receives(s);
		got += n;
		news += n > 0;
	}
	assert_int_equal(got, sizeof(out));
	/* Two lines, then as much as one receive takes: half a ring. */
	assert_in_range(news, 1, 5);
	assert_int_equal(slab_used(&rig.slab), 1);
	/* It is taken back as any other whose reader has consumed everything. */
	use_up();
	assert_true(stream_take_segment(&rig.all.t[0].set) >= 0);
	assert_int_equal(s->st.rx_seg, -1);
	/* With none to be had the bytes come by the line. */
	assert_int_equal(write(peer, out, 1000), 1000);
	for (i = 0, got = 0; i < 200 && got < 1000; i++) {
		step(0);
		got += kernel_receives(s);
	}
	assert_int_equal(got, 1000);
	assert_int_equal(s->st.rx_seg, -1);
	close(peer);
}

/* The same when messages that are a little longer than a line come one by one. */
static void messages_longer_than_a_line_get_a_segment(void **state)
{
	char out[200] = "";
	unsigned news[3], i, k;
	struct sock *s;
	uint64_t got;
	int peer;

	s = connection(0, &peer);
	settle(0);
	for (k = 0; k < 3; k++) {
		assert_int_equal(write(peer, out, sizeof(out)), sizeof(out));
		for (got = i = news[k] = 0; i < 20 && got < sizeof(out); i++) {
			uint64_t n;

			step(0);
			n = kernel_receives(s);
			got += n;
			news[k] += n > 0;
		}
		assert_int_equal(got, sizeof(out));
		settle(0);
	}
	assert_int_equal(news[0], 2);
	assert_int_equal(news[1], 1);
	assert_int_equal(news[2], 1);
	close(peer);
}

/* A bound socket of datagrams of thread q. */
static struct sock *datagrams(unsigned q, struct sockaddr_un *at, socklen_t *at_len)
{
	struct sock *s = rig_socket(q, AF_UNIX, SOCK_DGRAM);

	assert_int_equal(sock_open_datagrams(s, AF_UNIX), 0);
	*at_len = rig_unix_name(at, "datagrams");
	assert_int_equal(s->ch->ops->bind(s->ch, (struct sockaddr *)at, *at_len), 0);
	return s;
}

/*
 * D7: whose readers are idle is asked for a segment, and neither the one that asks nor others that have none take the question from
 * it, however often they come round meanwhile.
 */
static void a_question_for_a_segment_reaches_every_thread(void **state)
{
	struct sockaddr_un at;
	socklen_t at_len;
	struct sock *idle, *d;
	int peer, fd, i;

	idle = with_a_segment(1, &peer);
	use_up();
	assert_int_equal(kernel_receives(idle), 27);
	settle(1);
	d = datagrams(0, &at, &at_len);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(sendto(fd, "datagram", 8, 0, (struct sockaddr *)&at, at_len), 8);
	for (i = 0; i < 5; i++) {
		step(0);
		step(2);
	}
	assert_int_equal(d->st.rx_seg, -1);
	/* What a thread that is about to sleep looks at. */
	assert_true(stream_set_is_asked(&rig.all.t[1].set));
	step(1);
	assert_false(stream_set_is_asked(&rig.all.t[1].set));
	assert_int_equal(idle->st.rx_seg, -1);
	rig.now += 2000000;
	step(0);
	assert_true(d->st.rx_seg >= 0);
	assert_int_equal(kernel_receives(d), sizeof(struct gnet_dgram) + d->st.addr_room + 16);
	close(peer);
	close(fd);
}

/* Only so many are looked at in one go: the next one looks at others. */
static void an_idle_reader_is_found_behind_many_slow_ones(void **state)
{
	int of_slow[64], of_idle, i;
	struct sockaddr_un at;
	socklen_t at_len;
	struct sock *idle, *d;
	int fd;

	for (i = 0; i < 64; i++)
		with_a_segment(0, &of_slow[i]);
	idle = with_a_segment(0, &of_idle);
	use_up();
	kernel_receives(idle);
	d = datagrams(0, &at, &at_len);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(sendto(fd, "datagram", 8, 0, (struct sockaddr *)&at, at_len), 8);
	for (i = 0; i < 5; i++) {
		step(0);
		rig.now += 2000000;
	}
	assert_int_equal(idle->st.rx_seg, -1);
	assert_true(d->st.rx_seg >= 0);
	for (i = 0; i < 64; i++)
		close(of_slow[i]);
	close(of_idle);
	close(fd);
}

#define SLOW 450

/* However many readers go on at the same time, a pass is a short one: each has its turn. */
static void slow_readers_that_go_on_have_their_turns(void **state)
{
	unsigned before, i, pass, went_on;
	struct sock *s[SLOW];
	int peer[SLOW];

	use_up();
	for (i = 0; i < SLOW; i++) {
		s[i] = connection(0, &peer[i]);
		step_until_idle(0);
		assert_int_equal(write(peer[i], "unread", 6), 6);
		step_until_idle(0);
		assert_int_equal(write(peer[i], "more", 4), 4);
		step_until_idle(0);
		assert_int_equal(rig_told(s[i]), 6);
	}
	settle(0);
	for (i = 0; i < SLOW; i++)
		kernel_receives(s[i]);
	for (pass = went_on = 0; went_on < SLOW && pass < 100; pass++) {
		before = went_on;
		step(0);
		for (i = went_on = 0; i < SLOW; i++)
			went_on += rig_told(s[i]) == 10;
		assert_in_range(went_on - before, 1, 300);
	}
	assert_int_equal(went_on, SLOW);
	for (i = 0; i < SLOW; i++)
		close(peer[i]);
}

/* A pass with as much as there is for the bulk's kernel, which consumes it. */
static void bulk_pass(struct sock *bulk, int peer)
{
	static char much[1 << 16];

	while (write(peer, much, sizeof(much)) > 0)
		;
	step(0);
	kernel_receives(bulk);
}

/* To ask for events costs little beside what a receive of much does: another's message does not wait for several of those. */
static void beside_much_a_message_does_not_wait(void **state)
{
	struct sock *bulk, *other;
	unsigned phase, i;
	int peer[2];

	bulk = connection(0, &peer[0]);
	other = connection(0, &peer[1]);
	settle(0);
	for (phase = 0; phase < 16; phase++) {
		for (i = 0; i < 20 + phase; i++)
			bulk_pass(bulk, peer[0]);
		assert_int_equal(write(peer[1], "message", 7), 7);
		bulk_pass(bulk, peer[0]);
		assert_int_equal(kernel_receives(other), 7);
		settle(0);
	}
	close(peer[0]);
	close(peer[1]);
}

/* ---- (b) what idle sockets cost ---------------------------------------------------------------- */

/* Nobody reads or writes anything about sockets from `first` on; slots are taken in their order. */
static void forbid(uint32_t first, int how)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t from = (first * sizeof(*rig.bus) + page - 1) / page * page;

	assert_int_equal(mprotect((char *)rig.bus + from, SOCKETS * sizeof(*rig.bus) - from, how),
			 0);
	from = (first * sizeof(struct sock) + page - 1) / page * page;
	assert_int_equal(mprotect((char *)table + from, SOCKETS * sizeof(struct sock) - from, how),
			 0);
}

/* One round of traffic on all connections; the calls that it took. */
static unsigned traffic(struct sock **s, const int *peer)
{
	unsigned sum = 0, i, pass;
	char in[64];

	for (i = 0; i < CONNS; i++)
		assert_int_equal(write(peer[i], "question", 8), 8);
	for (pass = 0; pass < 12; pass++) {
		step(0);
		sum += calls_made.sends + calls_made.receives + calls_made.waits + calls_made.rings;
		for (i = 0; i < CONNS; i++) {
			if (kernel_receives(s[i]))
				kernel_sends(s[i], "answer");
		}
	}
	for (i = 0; i < CONNS; i++)
		assert_int_equal(read(peer[i], in, sizeof(in)), 6);
	settle(0);
	return sum;
}

static void idle_sockets_cost_nothing(void **state)
{
	static int idle[IDLE];
	unsigned n = rig_connections(IDLE), i, alone, among;
	struct sock *s[CONNS], *first = NULL, *other;
	int peer[CONNS];

	for (i = 0; i < CONNS; i++)
		s[i] = connection(0, &peer[i]);
	settle(0);
	traffic(s, peer);
	alone = traffic(s, peer);
	for (i = 0; i < n; i++) {
		other = connection(0, &idle[i]);
		if (!first)
			first = other;
	}
	for (i = 0; i < n / 64 + 2; i++)
		settle(0);
	/* The first few share pages with those that are busy. */
	forbid(first->slot, PROT_NONE);
	among = traffic(s, peer);
	forbid(first->slot, PROT_READ | PROT_WRITE);
	assert_int_equal(among, alone);
	print_message("%u calls for %u messages there and back, beside %u idle sockets, too\n",
		      alone, CONNS, n);
	for (i = 0; i < n; i++)
		close(idle[i]);
	for (i = 0; i < CONNS; i++)
		close(peer[i]);
}

#define WAITING 450

/* However many wait for room in a UNIX listener's backlog: others have their turn, and each of them in the end. */
static void connects_that_wait_do_not_hold_a_pass_up(void **state)
{
	struct sock *s[WAITING];
	unsigned i, n = 0, open;
	int peer[WAITING];

	assert_int_equal(fcntl(r.listener, F_SETFL, O_NONBLOCK), 0);
	for (i = 0; i < WAITING; i++) {
		s[i] = rig_socket(0, AF_UNIX, SOCK_STREAM);
		sock_connect(s[i], (struct sockaddr *)&r.at, r.at_len, true);
	}
	for (i = 0; i < 20; i++) {
		rig.now += 2000000;
		step(0);
		assert_in_range(calls_made.connects, 1, 200);
		step(0);
		assert_int_equal(calls_made.connects, 0);
	}
	for (i = 0; i < 100 && n < WAITING; i++) {
		while (n < WAITING && (peer[n] = accept(r.listener, NULL, NULL)) >= 0)
			n++;
		rig.now += 2000000;
		step(0);
	}
	assert_int_equal(n, WAITING);
	for (i = open = 0; i < WAITING; i++)
		open += s[i]->state == SOCK_CONNECTED;
	assert_int_equal(open, WAITING);
	for (i = 0; i < WAITING; i++)
		close(peer[i]);
}

/* ---- (c) sockets are spread over the threads ---------------------------------------------------- */

static void accepted_sockets_are_spread_evenly(void **state)
{
	unsigned of[RIG_THREADS] = { 0 }, i;
	int fd[64 * RIG_THREADS];
	struct sockaddr_un at;
	socklen_t len = rig_unix_name(&at, "spread");
	struct sock *l = rig_listen(1, &at, len);

	for (i = 0; i < 64 * RIG_THREADS; i++) {
		fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd[i], (struct sockaddr *)&at, len), 0);
		step(1);
		assert_int_equal(l->accepted, i + 1);
		of[GNET_FD_SLOT(rig_claim(l)) % RIG_THREADS]++;
	}
	for (i = 0; i < RIG_THREADS; i++)
		assert_int_equal(of[i], 64);
	for (i = 0; i < 64 * RIG_THREADS; i++)
		close(fd[i]);
}

/* ---- where it is forbidden --------------------------------------------------------------------- */

/* In a process that may not make this system call: what opening a ring gives. */
static int opened_without(unsigned call)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = { sizeof(f) / sizeof(f[0]), f };
	struct sys_ring *ring = NULL;
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
			_exit(255);
		_exit(-sys_ring_open(&ring));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Also a sandbox that lets one be made and then not be used. */
static void a_sandbox_forbids_the_ring(void **state)
{
	struct sys_ring *ring;
	int rc;

	(void)state;
	rc = sys_ring_open(&ring);
	if (rc)
		skip();
	sys_ring_close(ring);
	rc = opened_without(__NR_io_uring_setup);
	if (rc == 255)
		skip();
	assert_int_equal(rc, EPERM);
	assert_int_equal(opened_without(__NR_io_uring_enter), EOPNOTSUPP);
}

/* ---- costs: not a test, figures for docs/measurements.md ---------------------------------------- */

#define MOST 256

/* A message of 64 bytes to each of n kernels, and their answers: the time that passes of the proxy take. */
static double round_us(struct sock **s, const int *peer, unsigned n)
{
	char bytes[65] = "0123456789012345678901234567890123456789012345678901234567890123";
	char in[64];
	unsigned i, back;
	double us = 0, start;

	for (i = 0; i < n; i++)
		assert_int_equal(write(peer[i], bytes, 64), 64);
	for (back = 0; back < n;) {
		start = rig_thread_us();
		rig_step(0, 1000);
		us += rig_thread_us() - start;
		for (i = 0; i < n; i++) {
			if (kernel_receives(s[i]))
				kernel_sends(s[i], bytes);
			if (read(peer[i], in, sizeof(in)) > 0)
				back++;
		}
	}
	return us;
}

static int tcp_listener(void)
{
	struct sockaddr_in *in = (struct sockaddr_in *)(void *)&r.at;

	close(r.listener);
	memset(&r.at, 0, sizeof(r.at));
	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	r.at_len = sizeof(*in);
	r.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(r.listener, (struct sockaddr *)&r.at, r.at_len) || listen(r.listener, MOST))
		return -1;
	return getsockname(r.listener, (struct sockaddr *)&r.at, &r.at_len);
}

static double cost(bool ring, bool tcp, unsigned n)
{
	unsigned turns = 6000 / n + 20, i;
	struct sock *s[MOST];
	void *none = NULL;
	int peer[MOST];
	double us = 0;

	if (rig_up(&none, ring) || (tcp && tcp_listener()))
		return -1;
	sys.sendmsg = sys_real.sendmsg;
	sys.recvmsg = sys_real.recvmsg;
	sys.epoll_wait = sys_real.epoll_wait;
	sys.ring_io = sys_real.ring_io;
	for (i = 0; i < n; i++)
		s[i] = connection(0, &peer[i]);
	settle(0);
	for (i = 0; i < turns; i++)
		us += round_us(s, peer, n);
	for (i = 0; i < n; i++)
		close(peer[i]);
	rig_down(&none);
	return us / turns / n;
}

static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return d < 0 ? -1 : d > 0;
}

static int costs(void)
{
	static const unsigned conns[] = { 1, 2, 4, 8, 64, MOST };
	double us[2][5];
	unsigned i, k, e;

	platform.notify = rig_no_notify;
	for (i = 0; i < 12; i++) {
		for (k = 0; k < 5; k++)
			for (e = 0; e < 2; e++)
				us[e][k] = cost(e, i < 6, conns[i % 6]);
		qsort(us[0], 5, sizeof(us[0][0]), by_value);
		qsort(us[1], 5, sizeof(us[1][0]), by_value);
		printf("{\"transport\":\"%s\",\"conns\":%u,\"epoll_us\":%.2f,\"io_uring_us\":%.2f}\n",
		       i < 6 ? "tcp" : "unix", conns[i % 6], us[0][2], us[1][2]);
		fflush(stdout);
	}
	return 0;
}

#define BOTH(name)                                                    \
	{ #name ", a call a socket", name, up_each, rig_down, NULL }, \
	{                                                             \
#name ", with a ring", name, up_ring, rig_down, NULL  \
	}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		BOTH(what_is_queued_goes_in_one_call),
		BOTH(several_sockets_share_a_call),
		BOTH(a_segment_that_is_being_filled_stays),
		BOTH(a_fast_reader_gets_a_segment),
		BOTH(messages_longer_than_a_line_get_a_segment),
		BOTH(a_question_for_a_segment_reaches_every_thread),
		BOTH(an_idle_reader_is_found_behind_many_slow_ones),
		BOTH(slow_readers_that_go_on_have_their_turns),
		BOTH(beside_much_a_message_does_not_wait),
		BOTH(idle_sockets_cost_nothing),
		BOTH(connects_that_wait_do_not_hold_a_pass_up),
		BOTH(accepted_sockets_are_spread_evenly),
		cmocka_unit_test(a_sandbox_forbids_the_ring),
	};

	platform = platform_cpu;
	if (argc > 1 && !strcmp(argv[1], "costs"))
		return costs();
	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
