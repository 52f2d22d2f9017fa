/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a connection costs the proxy that a kernel accepts, and what becomes of one that stays. Threads are stepped by hand with
 * a clock of the test's, calls are counted in the table that they go through, kernels are played by the test; sockets are real
 * ones. "unit_proxy_accept costs" prints what accepts cost the thread beside a loop of accept and close.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "proxy_rig.h"

#define THREADS 2
#define MANY 10000
#define SOCKETS (THREADS * (MANY + 512))
#define BATCH 12 /* fewer than the accept ring has room for */

static struct {
	struct stat_book stat;
	struct sock *listener;
	struct sockaddr_storage at;
	socklen_t at_len;
} r;

static struct {
	unsigned accepts, receives, adds, ends, names;
	unsigned no_watches; /* how many fail from now on */
	bool claimed;        /* a kernel takes each at once */
} made;

static int count_accept(int fd, struct sockaddr *a, socklen_t *n)
{
	int rc = sys_real.accept(fd, a, n);

	if (made.claimed)
		rig_claim(r.listener);
	made.accepts += rc >= 0;
	return rc;
}

static ssize_t count_recvmsg(int fd, struct msghdr *m, int flags)
{
	made.receives++;
	return sys_real.recvmsg(fd, m, flags);
}

static int count_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	if (op == EPOLL_CTL_ADD && made.no_watches) {
		made.no_watches--;
		return -ENOSPC;
	}
	made.adds += op == EPOLL_CTL_ADD;
	made.ends += op == EPOLL_CTL_DEL;
	return sys_real.epoll_ctl(epfd, op, fd, ev);
}

static int count_getsockname(int fd, struct sockaddr *a, socklen_t *n)
{
	made.names++;
	return sys_real.getsockname(fd, a, n);
}

static int count_getpeername(int fd, struct sockaddr *a, socklen_t *n)
{
	made.names++;
	return sys_real.getpeername(fd, a, n);
}

/* ---- the rig ----------------------------------------------------------------------------------- */

/* A kernel's listener of thread 0. */
static void listen_at(const void *a, socklen_t n)
{
	struct channel *ch;

	r.listener = rig_listen(0, a, n);
	r.at_len = sizeof(r.at);
	ch = r.listener->ch;
	assert_int_equal(ch->ops->name_of(ch, 0, (struct sockaddr *)&r.at, &r.at_len), 0);
}

static int rig_of(unsigned threads, const struct platform_ops *platform)
{
	struct sockets_params sp = { .max = SOCKETS, .stat = &r.stat, .linger_ns = 1000000000 };
	struct stat_params st = { .device = "test", .sockets = SOCKETS, .bus_fd = -1 };
	struct sockaddr_un at;

	memset(&r, 0, sizeof(r));
	memset(&made, 0, sizeof(made));
	if (rig_open(platform, threads, false))
		return -1;
	sys.accept = count_accept;
	sys.recvmsg = count_recvmsg;
	sys.epoll_ctl = count_epoll_ctl;
	sys.getsockname = count_getsockname;
	sys.getpeername = count_getpeername;
	stat_open(&r.stat, &st);
	if (!r.stat.page || rig_open_sockets(sp))
		return -1;
	listen_at(&at, rig_unix_name(&at, "accept"));
	return 0;
}

static int rig_up(void **state)
{
	return rig_of(THREADS, &platform_cpu);
}

static int rig_down(void **state)
{
	rig_close();
	stat_close(&r.stat);
	return 0;
}

static void count_anew(void)
{
	unsigned no_watches = made.no_watches;

	memset(&made, 0, sizeof(made));
	made.no_watches = no_watches;
}

/* Passes of a thread that has nothing else to do, for `us`. */
static void idle_for(unsigned us)
{
	while (us--)
		rig_step(0, 1000);
}

static int dial_at(const void *a, socklen_t n)
{
	int fd = socket(((const struct sockaddr *)a)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, a, n), 0);
	return fd;
}

static int dial(void)
{
	return dial_at(&r.at, r.at_len);
}

/* The next connections belong to this thread. */
static void give_to(unsigned q)
{
	atomic_store(&rig.all.next_thread, q);
}

static struct sock *sock_of(int fd)
{
	return &rig.all.sock[GNET_FD_SLOT(fd)];
}

static int claim(void)
{
	return rig_claim(r.listener);
}

/* A connection that thread 0 has and a kernel has claimed, a pass after it was accepted. */
static struct sock *accepted(int *peer)
{
	int fd;

	give_to(0);
	*peer = dial();
	rig_step(0, 1000);
	fd = claim();
	assert_true(fd > 0);
	rig_step(0, 1000);
	return sock_of(fd);
}

static void kernel_closes(int fd)
{
	const uint8_t call0_tag1[2 * GNET_CELL_DATA] = { 0, 0, 1 };

	rig_put(GNET_FD_SLOT(fd) % rig.all.threads, GNET_OP_CLOSE, fd, call0_tag1,
		sizeof(call0_tag1));
}

static void kernel_sends(int fd, char byte)
{
	rig_put(GNET_FD_SLOT(fd) % rig.all.threads, GNET_OP_SEND, fd, &byte, 1);
}

static bool flagged(const struct sock *s, uint64_t flag)
{
	return rig.bus[s->slot].line.cell[0] >> GNET_LINE_FLAGS_SHIFT & flag;
}

/* ---- closed at once ------------------------------------------------------------------------------ */

static void closed_at_once_it_costs_accept_and_close(void **state)
{
	unsigned i, n = 50;
	int peer, fd;

	idle_for(50);
	count_anew();
	for (i = 0; i < n; i++) {
		give_to(0);
		peer = dial();
		rig_step(0, 15000);
		fd = claim();
		assert_true(fd > 0);
		kernel_closes(fd);
		rig_step(0, 15000);
		close(peer);
	}
	assert_int_equal(made.accepts, n);
	assert_int_equal(made.adds, 0);
	assert_int_equal(made.ends, 0);
	assert_int_equal(made.names, 0);
	assert_int_equal(made.receives, 0);
	assert_int_equal(rig.all.open, 1);
	assert_int_equal(rig.all.t[0].n_young, 0);
}

/* One that waits in the accept ring, since all kernels are busy, is not asked and not watched; but not for ever. */
static void unclaimed_it_is_not_watched(void **state)
{
	int peer[BATCH], fd;
	unsigned i;

	idle_for(50);
	count_anew();
	for (i = 0; i < BATCH; i++) {
		give_to(0);
		peer[i] = dial();
		rig_step(0, 1000);
	}
	idle_for(400);
	assert_int_equal(made.adds, 0);
	assert_true(made.receives <= 10); /* while there were only a few */
	while ((fd = claim()) > 0)
		kernel_closes(fd);
	rig_step(0, 1000);
	assert_int_equal(made.adds, 0);
	assert_int_equal(rig.all.open, 1);
	for (i = 0; i < BATCH; i++)
		close(peer[i]);
	give_to(0);
	peer[0] = dial();
	idle_for(1100);
	assert_int_equal(made.adds, 1);
	close(peer[0]);
}

/* ---- those that stay ----------------------------------------------------------------------------- */

static void what_the_client_says_first_comes_before_any_event(void **state)
{
	struct sock *s;
	int peer;

	idle_for(50);
	count_anew();
	give_to(0);
	peer = dial();
	assert_int_equal(write(peer, "first", 5), 5);
	rig_step(0, 1000);
	s = sock_of(claim());
	rig_step(0, 1000);
	assert_int_equal(rig_told(s), 5);
	rig.bus[s->slot].head = 5;
	assert_int_equal(write(peer, "more", 4), 4);
	rig_step(0, 1000);
	assert_int_equal(rig_told(s), 9);
	assert_int_equal(made.adds, 0);
	close(peer);
}

/* Many at a time are asked once each, and none is forgotten. */
static void of_many_each_is_asked(void **state)
{
	struct sock *s[BATCH];
	int peer[BATCH];
	unsigned i;

	idle_for(50);
	for (i = 0; i < BATCH; i++) {
		give_to(0);
		peer[i] = dial();
		rig_step(0, 1000);
		s[i] = sock_of(claim());
		assert_int_equal(write(peer[i], "hello", 5), 5);
	}
	rig_step(0, 1000);
	for (i = 0; i < BATCH; i++) {
		assert_int_equal(rig_told(s[i]), 5);
		close(peer[i]);
	}
}

static void one_that_stays_is_watched(void **state)
{
	struct sock *s;
	int peer;

	idle_for(50);
	count_anew();
	s = accepted(&peer);
	idle_for(15);
	assert_int_equal(made.adds, 0);
	idle_for(15);
	assert_int_equal(made.adds, 1);
	idle_for(1000);
	assert_int_equal(made.adds, 1);
	assert_false(s->young);
	count_anew();
	idle_for(1000);
	assert_int_equal(made.receives, 0);
	assert_int_equal(write(peer, "late", 4), 4);
	rig_step(0, 1000);
	assert_int_equal(rig_told(s), 4);
	rig.bus[s->slot].head = 4;
	idle_for(100);
	close(peer);
	rig_step(0, 1000);
	assert_true(flagged(s, GNET_LINE_EOF));
	assert_true(flagged(s, GNET_LINE_HUP));
	kernel_closes(sock_fd(s));
	rig_step(0, 1000);
	assert_int_equal(made.ends, 1);
}

/* The peer's end is met while the connection is young, and all that only an event tells a little later. */
static void one_whose_peer_has_gone_ends(void **state)
{
	struct sock *s;
	int peer;

	idle_for(50);
	s = accepted(&peer);
	close(peer);
	rig_step(0, 1000);
	assert_true(flagged(s, GNET_LINE_EOF));
	idle_for(30);
	assert_true(flagged(s, GNET_LINE_HUP));
}

/* A connection that was claimed after a pass of that length, which had an entry, and whose client has said something. */
static struct sock *beside_a_busy_one(struct sock **busy, int peer[2], uint64_t pass_ns)
{
	struct sock *s;

	idle_for(50);
	*busy = accepted(&peer[0]);
	idle_for(50);
	give_to(0);
	peer[1] = dial();
	kernel_sends(sock_fd(*busy), 'x');
	rig_step(0, pass_ns);
	s = sock_of(claim());
	assert_int_equal(write(peer[1], "hello", 5), 5);
	return s;
}

/* A pass may be long, and have entries each time: after a few of them the new ones have their turn. */
static void a_busy_thread_watches_too(void **state)
{
	struct sock *busy, *s;
	int peer[2];
	unsigned i;
	char in[16];

	s = beside_a_busy_one(&busy, peer, 1000);
	for (i = 0; i < 8; i++) {
		kernel_sends(sock_fd(busy), 'x');
		rig_step(0, 10000);
	}
	assert_false(s->young);
	assert_int_equal(rig_told(s), 5);
	assert_int_equal(read(peer[0], in, sizeof(in)), 9);
	close(peer[0]);
	close(peer[1]);
}

/* With thousands of busy sockets a pass takes milliseconds: then a few of them are too many. */
static void behind_long_passes_it_waits_for_one(void **state)
{
	struct sock *busy, *s;
	int peer[2];

	s = beside_a_busy_one(&busy, peer, 5000000);
	kernel_sends(sock_fd(busy), 'x');
	rig_step(0, 5000000);
	assert_true(s->young);
	kernel_sends(sock_fd(busy), 'x');
	rig_step(0, 5000000);
	assert_false(s->young);
	assert_int_equal(rig_told(s), 5);
	close(peer[0]);
	close(peer[1]);
}

/* Closed by its kernel while what it sent does not fit into the peer's socket. */
static void a_young_one_sends_what_is_left(void **state)
{
	static char much[1 << 16];
	int peer, fd, flags, here, n;
	struct sock *s;
	char last = 0;

	idle_for(50);
	s = accepted(&peer);
	fd = sock_fd(s);
	here = s->ch->ops->descriptor(s->ch);
	while (send(here, much, sizeof(much), MSG_DONTWAIT) > 0)
		;
	kernel_sends(fd, 'z');
	kernel_closes(fd);
	rig_step(0, 1000);
	assert_true(s->young);
	assert_true(sockets_unsent(&rig.all));
	idle_for(30);
	assert_false(s->young);
	flags = fcntl(peer, F_GETFL);
	fcntl(peer, F_SETFL, flags | O_NONBLOCK);
	while ((n = (int)read(peer, much, sizeof(much))) != 0) {
		if (n > 0)
			last = much[n - 1];
		else
			rig_step(0, 1000);
	}
	assert_int_equal(last, 'z');
	assert_false(sockets_unsent(&rig.all));
	close(peer);
}

static void ten_thousand_idle_ones_are_all_watched(void **state)
{
	static int peer[MANY], fd[MANY];
	unsigned n = rig_connections(MANY), i, most = 0;

	idle_for(50);
	count_anew();
	for (i = 0; i < n; i++) {
		give_to(0);
		peer[i] = dial();
		rig_step(0, 10);
		fd[i] = claim();
		assert_true(fd[i] > 0);
		if (rig.all.t[0].n_young > most)
			most = rig.all.t[0].n_young;
	}
	assert_int_equal(most, 256);
	idle_for(50);
	assert_int_equal(rig.all.t[0].n_young, 0);
	assert_int_equal(made.adds, n);
	while (rig_step(0, 1000))
		;
	count_anew();
	idle_for(100);
	assert_int_equal(made.receives, 0);
	for (i = 0; i < n; i += 97) {
		assert_int_equal(write(peer[i], "!", 1), 1);
		idle_for(10);
		assert_int_equal(rig_told(sock_of(fd[i])), 1);
		close(peer[i]);
		idle_for(10);
		peer[i] = -1;
		rig.bus[GNET_FD_SLOT(fd[i])].head = 1;
		assert_true(flagged(sock_of(fd[i]), GNET_LINE_HUP));
	}
	for (i = 0; i < n; i++)
		close(peer[i]);
}

/* However fast kernels claim and clients come: what else the thread has to do has its turn. */
static void a_flood_does_not_hold_a_pass_up(void **state)
{
	unsigned i, passes;
	int peer[200];

	idle_for(50);
	count_anew();
	made.claimed = true;
	for (i = 0; i < 200; i++)
		peer[i] = dial();
	for (passes = 0; made.accepts < 200; passes++) {
		i = made.accepts;
		assert_true(rig_step(0, 1000) > 0);
		assert_in_range(made.accepts - i, 1, GNET_ACCEPT_RING);
	}
	for (i = 0; i < 200; i++)
		close(peer[i]);
}

/* ---- the system is short of watches ---------------------------------------------------------------- */

static void unwatched_it_is_asked_at_intervals(void **state)
{
	struct sock *s;
	int peer;

	idle_for(50);
	s = accepted(&peer);
	made.no_watches = 3;
	idle_for(50);
	assert_int_equal(made.no_watches, 2);
	assert_int_equal(write(peer, "still", 5), 5);
	idle_for(2100);
	assert_int_equal(made.no_watches, 1);
	assert_int_equal(rig_told(s), 5);
	assert_true(s->young);
	idle_for(4100);
	assert_int_equal(made.no_watches, 0);
	assert_false(s->young);
	assert_int_equal(rig.all.t[0].n_young, 0);
	close(peer);
}

/* No more than the young ones are asked so: who comes after them waits in the backlog, as before there were any. */
static void unwatched_ones_do_not_become_many(void **state)
{
	static int peer[300], fd[300];
	unsigned i;

	idle_for(50);
	made.no_watches = UINT32_MAX;
	for (i = 0; i < 300; i++) {
		give_to(0);
		peer[i] = dial();
		idle_for(2);
		fd[i] = claim();
	}
	assert_int_equal(rig.all.t[0].n_young, 256);
	assert_int_equal(r.listener->accepted, 256);
	assert_non_null(r.listener->in_hand);
	made.no_watches = 0;
	idle_for(4000);
	while (i--) {
		if (fd[i])
			kernel_closes(fd[i]);
		close(peer[i]);
		rig_step(0, 1000);
	}
	idle_for(4000);
	assert_int_equal(rig.all.t[0].n_young, 0);
	assert_int_equal(r.listener->accepted, 256 + GNET_ACCEPT_RING);
}

static unsigned lines_of(FILE *f)
{
	unsigned n = 0;
	int c;

	rewind(f);
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	return n;
}

/* Every other one of thread 0 cannot be watched, and each of thread 1 only when it is tried again. */
static void come_and_go(unsigned n)
{
	unsigned i;
	int peer;

	for (i = 0; i < n; i++) {
		made.no_watches = i % 2;
		accepted(&peer);
		idle_for(50);
		close(peer);
		idle_for(2);
		made.no_watches = 1;
		give_to(1);
		peer = dial();
		rig_step(0, 1000);
		rig_step(0, 3000000);
		rig_step(0, 1000);
		assert_true(claim() > 0);
		close(peer);
	}
}

/* Sockets that come and go while the system is short of watches would have it said thousands of times a second. */
static void what_is_short_is_said_once_in_ten_seconds(void **state)
{
	FILE *f = tmpfile();
	int err = dup(STDERR_FILENO);

	assert_non_null(f);
	dup2(fileno(f), STDERR_FILENO);
	come_and_go(100);
	rig_step(0, 10000000000);
	come_and_go(100);
	dup2(err, STDERR_FILENO);
	close(err);
	assert_int_equal(lines_of(f), 4); /* a listening socket's and a thread's, twice each */
	fclose(f);
}

/* ---- threads that sleep -------------------------------------------------------------------------------- */

static bool soon(const struct sock *s, uint64_t tail, uint64_t flag)
{
	unsigned ms;

	for (ms = 0; ms < 5000; ms++) {
		uint64_t c = __atomic_load_n(&rig.bus[s->slot].line.cell[0], __ATOMIC_ACQUIRE);

		if (rig_told(s) == tail && (c >> GNET_LINE_FLAGS_SHIFT & flag) == flag)
			return true;
		usleep(1000);
	}
	return false;
}

/* It begins to sleep at once when there is nothing to do: only a watched socket can wake it. */
static void a_sleeping_thread_hears_of_them(void **state)
{
	struct sock *s;
	int peer, fd = 0;
	unsigned ms;

	give_to(0);
	assert_int_equal(proxy_start(rig.proxy), 0);
	peer = dial();
	for (ms = 0; ms < 5000 && !fd; ms++) {
		usleep(1000);
		fd = __atomic_load_n(&rig.bus[r.listener->slot].line.cell[1], __ATOMIC_ACQUIRE) >>
			     8 &
		     0x7fffffff;
	}
	assert_true(fd > 0);
	s = sock_of(fd);
	usleep(20000);
	assert_int_equal(write(peer, "wake up", 7), 7);
	assert_true(soon(s, 7, 0));
	__atomic_store_n(&rig.bus[s->slot].head, 7, __ATOMIC_RELEASE);
	close(peer);
	assert_true(soon(s, 7, GNET_LINE_EOF | GNET_LINE_HUP));
	proxy_stop(rig.proxy);
}

/* ---- names ----------------------------------------------------------------------------------------------- */

static void names_are(const struct sock *s, const void *local, socklen_t local_len,
		      const void *peer, socklen_t peer_len)
{
	struct gpunet_stat_socket v;

	assert_true(stat_look(&r.stat, s->slot, sock_fd(s), &v));
	assert_int_equal(v.state, GPUNET_STAT_CONNECTED);
	assert_int_equal(v.local_len, local_len);
	assert_memory_equal(v.local, local, local_len);
	assert_int_equal(v.peer_len, peer_len);
	assert_memory_equal(v.peer, peer, peer_len);
}

/* A connection is in the listener's backlog: TCP's may come there later than connect returns. */
static void arrives(void)
{
	struct pollfd p = { r.listener->ch->ops->descriptor(r.listener->ch), POLLIN, 0 };

	assert_int_equal(poll(&p, 1, 10000), 1);
}

/* Both at once; but behind a listener of all addresses the own one only when the connection stays. */
static void check_names(const void *bound, socklen_t n, const void *to, bool all)
{
	struct sockaddr_storage own, here = { 0 }, target;
	socklen_t own_len = sizeof(own), here_len = sizeof(here);
	struct sock *s;
	int fd;

	listen_at(bound, n);
	memcpy(&target, to ? to : (const void *)&r.at, r.at_len);
	if (to) /* the port is the listener's */
		((struct sockaddr_in *)(void *)&target)->sin_port =
			((struct sockaddr_in *)(void *)&r.at)->sin_port;
	idle_for(50);
	give_to(0);
	fd = dial_at(&target, r.at_len);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &own_len), 0);
	assert_int_equal(getpeername(fd, (struct sockaddr *)&here, &here_len), 0);
	arrives();
	count_anew();
	rig_step(0, 1000);
	s = sock_of(claim());
	names_are(s, all ? (void *)&r.at : (void *)&here, here_len, &own, own_len);
	assert_int_equal(made.names, 0);
	idle_for(50);
	names_are(s, &here, here_len, &own, own_len);
	close(fd);
}

static void its_names_are_right(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET }, loop = in;
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 }, loop6 = in6;
	struct sockaddr_un un;
	int probe;

	loop.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	loop6.sin6_addr = in6addr_loopback;
	check_names(&un, rig_unix_name(&un, "names"), NULL, false);
	check_names(&loop, sizeof(loop), NULL, false);
	check_names(&in, sizeof(in), &loop, true);
	probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (probe < 0 || bind(probe, (struct sockaddr *)&loop6, sizeof(loop6))) {
		print_message("no IPv6 here\n");
	} else {
		check_names(&loop6, sizeof(loop6), NULL, false);
		check_names(&in6, sizeof(in6), &loop6, true);
	}
	if (probe >= 0)
		close(probe);
}

/* ---- another thread's --------------------------------------------------------------------------------------- */

static void another_threads_is_watched_at_once(void **state)
{
	struct sock *s;
	int peer;

	idle_for(50);
	count_anew();
	give_to(1);
	peer = dial();
	rig_step(0, 1000);
	s = sock_of(claim());
	assert_int_equal(s->slot % THREADS, 1);
	assert_int_equal(made.adds, 1);
	assert_int_equal(write(peer, "over there", 10), 10);
	rig_step(1, 1000);
	assert_int_equal(rig_told(s), 10);
	close(peer);
}

static _Atomic bool over;

/* Thread 1, which has young ones all the time. */
static void *comes_and_goes(void *arg)
{
	struct sock *s = arg;
	struct sock_thread *t = sock_thread_of(s);

	while (!atomic_load_explicit(&over, memory_order_relaxed)) {
		s->young = true;
		t->n_young++;
		young_end(s);
	}
	return NULL;
}

/* A connection of thread 1 that thread 0 takes back, since it cannot be watched: how many young ones there are is thread 1's. */
static void one_that_is_taken_back_touches_no_count(void **state)
{
	struct sock *s;
	pthread_t other;
	unsigned i;
	int peer;

	s = rig_socket(1, AF_UNIX, SOCK_STREAM);
	made.no_watches = UINT32_MAX;
	give_to(1);
	peer = dial();
	atomic_store(&over, false);
	assert_int_equal(pthread_create(&other, NULL, comes_and_goes, s), 0);
	for (i = 0; i < 5000; i++) {
		give_to(1);
		rig_step(0, 3000000);
	}
	atomic_store(&over, true);
	pthread_join(other, NULL);
	assert_int_equal(UINT32_MAX - made.no_watches, 2500);
	assert_int_equal(rig.all.t[1].n_young, 0);
	close(peer);
}

/* ---- costs: not a test, figures for docs/measurements.md ------------------------------------------------------- */

static void dial_batch(int *peer, const struct sockaddr_storage *a, socklen_t n)
{
	struct linger hard = { 1, 0 };
	unsigned i;

	for (i = 0; i < BATCH; i++) {
		peer[i] = dial_at(a, n);
		setsockopt(peer[i], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	}
}

static void hang_up_batch(const int *peer)
{
	unsigned i;

	for (i = 0; i < BATCH; i++)
		close(peer[i]);
}

/* What a connection costs a loop of accept and close, and the proxy: several at a time, which kernels claim and then close. */
static double loop_us(int listener, const struct sockaddr_storage *a, socklen_t n)
{
	int peer[BATCH];
	double start;
	unsigned i;

	dial_batch(peer, a, n);
	start = rig_thread_us();
	for (i = 0; i < BATCH; i++)
		close(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	start = rig_thread_us() - start;
	hang_up_batch(peer);
	return start / BATCH;
}

static double proxy_us(void)
{
	double us = 0, start;
	int peer[BATCH], fd;
	uint64_t others = rig.all.open;
	unsigned closed = 0;

	dial_batch(peer, &r.at, r.at_len);
	while (closed < BATCH || rig.all.open > others) {
		start = rig_thread_us();
		rig_step(0, 10000);
		us += rig_thread_us() - start;
		for (; (fd = claim()) > 0; closed++)
			kernel_closes(fd);
	}
	hang_up_batch(peer);
	return us / BATCH;
}

#define ROUNDS 2000

static int cost(bool tcp)
{
	struct sockaddr_storage a = { .ss_family = tcp ? AF_INET : AF_UNIX };
	socklen_t n = tcp ? sizeof(struct sockaddr_in) : sizeof(a.ss_family);
	int listener = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct platform_ops quiet = platform_cpu;
	struct sockaddr_in any = { .sin_family = AF_INET };
	double loop = 0, proxy = 0;
	void *none = NULL;
	unsigned i;

	any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (tcp)
		memcpy(&a, &any, sizeof(any));
	quiet.notify = rig_no_notify;
	if (rig_of(1, &quiet) || bind(listener, (struct sockaddr *)&a, n) ||
	    listen(listener, BATCH))
		return 1;
	if (tcp)
		listen_at(&any, sizeof(any));
	n = sizeof(a);
	if (getsockname(listener, (struct sockaddr *)&a, &n))
		return 1;
	for (i = 0; i < ROUNDS; i++) {
		loop += loop_us(listener, &a, n);
		proxy += proxy_us();
	}
	printf("{\"transport\":\"%s\",\"loop_us\":%.2f,\"proxy_us\":%.2f,\"watched\":%.3f,"
	       "\"names\":%.3f,\"receives\":%.3f}\n",
	       tcp ? "tcp" : "unix", loop / ROUNDS, proxy / ROUNDS,
	       (double)made.adds / ROUNDS / BATCH, (double)made.names / ROUNDS / BATCH,
	       (double)made.receives / ROUNDS / BATCH);
	close(listener);
	return rig_down(&none);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, rig_up, rig_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(closed_at_once_it_costs_accept_and_close),
		CASE(unclaimed_it_is_not_watched),
		CASE(what_the_client_says_first_comes_before_any_event),
		CASE(of_many_each_is_asked),
		CASE(one_that_stays_is_watched),
		CASE(one_whose_peer_has_gone_ends),
		CASE(a_busy_thread_watches_too),
		CASE(behind_long_passes_it_waits_for_one),
		CASE(a_young_one_sends_what_is_left),
		CASE(ten_thousand_idle_ones_are_all_watched),
		CASE(a_flood_does_not_hold_a_pass_up),
		CASE(unwatched_it_is_asked_at_intervals),
		CASE(unwatched_ones_do_not_become_many),
		CASE(what_is_short_is_said_once_in_ten_seconds),
		CASE(a_sleeping_thread_hears_of_them),
		CASE(its_names_are_right),
		CASE(another_threads_is_watched_at_once),
		CASE(one_that_is_taken_back_touches_no_count),
	};

	if (argc > 1 && !strcmp(argv[1], "costs"))
		return cost(false) || cost(true);
	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
