/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The provider `rnic` behind the table of verbs, over the loopback interface: in one process (two networks on an address
 * each, or on one), and between two processes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunet/stat.h>

#include "base/sys.h"
#include "verbs_ends.h"

/* --- tests -------------------------------------------------------------------------------------- */

static void transfer(const char *host, bool spin)
{
	struct end a, b;
	struct verbs_id *l;
	struct sockaddr_in name, peer;
	socklen_t n = sizeof(name);
	struct verbs_wc wc;

	end_open(&a);
	end_open(&b);
	l = listener(&b, host, 7471);
	begin(&a, host, 7471);
	take(&b);
	joined(&a, &b);
	assert_int_equal(ops->id_name(a.id, 1, (struct sockaddr *)&peer, &n), 0);
	assert_int_equal(ntohs(peer.sin_port), 7471);
	n = sizeof(peer);
	assert_int_equal(ops->id_name(b.id, 1, (struct sockaddr *)&peer, &n), 0);
	n = sizeof(name);
	assert_int_equal(ops->id_name(a.id, 0, (struct sockaddr *)&name, &n), 0);
	assert_memory_equal(&name, &peer, sizeof(name));
	exchange(&a, &b, spin);
	exchange(&b, &a, spin);

	assert_int_equal(ops->disconnect(a.id), 0);
	assert_int_equal(ops->disconnect(a.id), 0);
	next_event(&b, VERBS_EVENT_DISCONNECTED);
	next_event(&a, VERBS_EVENT_DISCONNECTED);
	/* Both queue pairs are in error: what is posted is flushed. */
	send_from(&b, &a, VERBS_WR_WRITE, 0, 8, 77);
	wc = completion(&b, spin);
	assert_int_equal(wc.status, VERBS_WC_WR_FLUSH_ERR);
	assert_int_equal(wc.wr_id, 77);
	no_event(&a);
	no_event(&b);
	end_close(&a);
	ops->id_destroy(l);
	end_close(&b);
}

static void two_networks_sleeping(void **state)
{
	(void)state;
	transfer(here, false);
}

static void two_networks_spinning(void **state)
{
	(void)state;
	transfer(here, true);
}

static void connections_are_refused(void **state)
{
	struct end a, b;
	struct verbs_event ev;
	struct verbs_id *l;

	(void)state;
	end_open(&a);
	end_open(&b);
	l = listener(&b, here, 7471);
	begin(&a, here, 7472);
	ev = next_event(&a, VERBS_EVENT_REJECTED);
	assert_int_equal(ev.status, -ECONNREFUSED);
	assert_int_equal(ev.reason, 8);
	end_close(&a);
	end_open(&a);
	begin(&a, here, 7471);
	ev = next_event(&b, VERBS_EVENT_CONNECT_REQUEST);
	assert_int_equal(ops->reject(ev.request, "no", 2), 0);
	ops->id_destroy(ev.request);
	ev = next_event(&a, VERBS_EVENT_REJECTED);
	assert_int_equal(ev.status, -ECONNREFUSED);
	assert_int_equal(ev.reason, 28);
	assert_memory_equal(ev.param.private_data, "no", 3);
	end_close(&a);
	/* A listener that goes away with a request that nobody took. */
	end_open(&a);
	begin(&a, here, 7471);
	usleep(50000);
	ops->id_destroy(l);
	ev = next_event(&a, VERBS_EVENT_REJECTED);
	assert_int_equal(ev.status, -ECONNREFUSED);
	no_event(&b);
	end_close(&a);
	end_close(&b);
}

/* Nobody has UDP port 4791 there: that is known long before the CM would have asked in vain. */
static void an_address_that_nobody_serves(void **state)
{
	struct end e;

	(void)state;
	end_open(&e);
	begin(&e, nowhere, 7471);
	assert_int_equal(next_event(&e, VERBS_EVENT_UNREACHABLE).status, -ECONNREFUSED);
	end_close(&e);
}

static void *no_shared_memory(const char *name, size_t size, int *fd)
{
	(void)name;
	(void)size;
	*fd = -1;
	return NULL;
}

/* The device's thread keeps the time of what a call has begun, where nothing else wakes it: no page of counters, no answer. */
static void a_request_without_an_answer_is_repeated(void **state)
{
	struct sockaddr_in silent = at(mute, 4791);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), requests = 0;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char buf[512];
	struct end e;

	(void)state;
	assert_int_equal(bind(fd, (struct sockaddr *)&silent, sizeof(silent)), 0);
	sys.map_fd = no_shared_memory;
	end_open(&e);
	begin(&e, mute, 7471);
	while (requests < 2) {
		assert_int_equal(poll(&p, 1, 10000), 1);
		/* An empty datagram asks whether anybody is there. */
		requests += recv(fd, buf, sizeof(buf), 0) > 0;
	}
	end_close(&e);
	sys.map_fd = sys_real.map_fd;
	close(fd);
}

static void ports_belong_to_one(void **state)
{
	struct sockaddr_in a = at(here, 7471), any = at(here, 0);
	struct verbs_id *id, *l;
	socklen_t n = sizeof(any);
	struct end e;

	(void)state;
	end_open(&e);
	l = listener(&e, here, 7471);
	assert_int_equal(ops->id_create(e.e, NULL, &id), 0);
	assert_int_equal(ops->bind(id, (struct sockaddr *)&a, sizeof(a)), -EADDRINUSE);
	assert_int_equal(ops->id_option(id, VERBS_ID_REUSEADDR, 1), 0);
	assert_int_equal(ops->bind(id, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(ops->listen(id, 1), -EADDRINUSE);
	ops->id_destroy(l);
	assert_int_equal(ops->listen(id, 1), 0);
	ops->id_destroy(id);
	assert_int_equal(ops->id_create(e.e, NULL, &id), 0);
	assert_int_equal(ops->bind(id, (struct sockaddr *)&any, sizeof(any)), 0);
	assert_int_equal(ops->id_name(id, 0, (struct sockaddr *)&any, &n), 0);
	assert_int_not_equal(any.sin_port, 0);
	ops->id_destroy(id);
	a = at("192.0.2.77", 1);
	assert_int_equal(ops->id_create(e.e, NULL, &id), 0);
	assert_int_equal(ops->bind(id, (struct sockaddr *)&a, sizeof(a)), -EADDRNOTAVAIL);
	ops->id_destroy(id);
	end_close(&e);
}

/* The port that an id has got by resolving, to connect from. */
static uint16_t chosen_port(struct end *e, struct verbs_id **id, const char *host)
{
	struct sockaddr_in a = at(host, 7471), local;
	socklen_t n = sizeof(local);

	assert_int_equal(ops->id_create(e->e, e, id), 0);
	assert_int_equal(ops->id_option(*id, VERBS_ID_REUSEADDR, 1), 0);
	assert_int_equal(ops->resolve(*id, (struct sockaddr *)&a, sizeof(a), 1000), 0);
	next_event(e, VERBS_EVENT_RESOLVED);
	assert_int_equal(ops->id_name(*id, 0, (struct sockaddr *)&local, &n), 0);
	return ntohs(local.sin_port);
}

/* So many that two would be the same if each were drawn for itself, but for one time in a hundred. */
static void ports_that_are_chosen_differ(void **state)
{
	enum { MANY = 400 };
	struct verbs_id *id[MANY];
	uint8_t *seen = calloc(1, 65536);
	uint16_t port;
	struct end e;
	unsigned i;

	(void)state;
	end_open(&e);
	for (i = 0; i < MANY; i++) {
		port = chosen_port(&e, &id[i], here);
		assert_int_equal(seen[port]++, 0);
	}
	for (i = 0; i < MANY; i++)
		ops->id_destroy(id[i]);
	free(seen);
	end_close(&e);
}

/* Whether requests for a port of 127.0.0.1, from where ids connect, come to a process, this one or another. */
static bool port_has_a_name(uint16_t port)
{
	char want[96], line[256];
	FILE *f = fopen("/proc/net/unix", "r");
	bool found = false;

	assert_non_null(f);
	snprintf(want, sizeof(want), "@gpunet-rnic.00000000000000000000ffff7f000001.0.p%u\n", port);
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, want) != NULL;
	fclose(f);
	return found;
}

/* While somebody connects from a port, another may listen there, and then it is the machine's as any listener's. */
static void who_listens_where_another_connects_from_has_the_port(void **state)
{
	struct verbs_id *from, *l;
	struct sockaddr_in a;
	struct end e;
	uint16_t port;

	(void)state;
	end_open(&e);
	port = chosen_port(&e, &from, here);
	while (port_has_a_name(port)) { /* of another program's listener */
		ops->id_destroy(from);
		port = chosen_port(&e, &from, here);
	}
	a = at("127.0.0.1", port);
	assert_int_equal(ops->id_create(e.e, &e, &l), 0);
	assert_int_equal(ops->id_option(l, VERBS_ID_REUSEADDR, 1), 0);
	assert_int_equal(ops->bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(ops->listen(l, 1), 0);
	assert_true(port_has_a_name(port));
	ops->id_destroy(l);
	assert_false(port_has_a_name(port));
	ops->id_destroy(from);
	end_close(&e);
}

static void memory_that_is_not_there_is_refused(void **state)
{
	struct verbs_mem m = { .addr = (void *)8192, .fd = -1, .length = 4096 };
	struct sockaddr_in a = at(here, 0);
	struct verbs_mr *mr;
	struct end e;

	(void)state;
	end_open(&e);
	assert_int_equal(ops->id_create(e.e, NULL, &e.id), 0);
	assert_int_equal(ops->bind(e.id, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(ops->reg(ops->id_device(e.id), &m, 0, &mr), -EOPNOTSUPP);
	m.fd = 3;
	assert_int_equal(ops->reg(ops->id_device(e.id), &m, 0, &mr), -EOPNOTSUPP);
	m.fd = -1;
	m.length = 0;
	assert_int_equal(ops->reg(ops->id_device(e.id), &m, 0, &mr), -EINVAL);
	end_close(&e);
}

/* A peer's WRITE would end this process. What is only read may be registered; the look at it changes nothing. */
static void memory_that_is_read_only_is_not_written(void **state)
{
	struct verbs_mem m = { .fd = -1, .length = 8192 };
	struct sockaddr_in a = at(here, 0);
	struct verbs_mr *mr;
	struct end e;
	uint8_t *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned i;

	(void)state;
	assert_true(p != MAP_FAILED);
	memset(p, 0xa5, 8192);
	end_open(&e);
	assert_int_equal(ops->id_create(e.e, NULL, &e.id), 0);
	assert_int_equal(ops->bind(e.id, (struct sockaddr *)&a, sizeof(a)), 0);
	m.addr = p;
	assert_int_equal(mprotect(p + 4096, 4096, PROT_READ), 0);
	assert_int_equal(ops->reg(ops->id_device(e.id), &m, VERBS_ACCESS_LOCAL_WRITE, &mr),
			 -EFAULT);
	assert_int_equal(ops->reg(ops->id_device(e.id), &m, VERBS_ACCESS_REMOTE_READ, &mr), 0);
	ops->dereg(mr);
	/* Up to the last byte that can be written. */
	m.length = 4096;
	assert_int_equal(ops->reg(ops->id_device(e.id), &m, VERBS_ACCESS_LOCAL_WRITE, &mr), 0);
	ops->dereg(mr);
	for (i = 0; i < 8192; i++)
		assert_int_equal(p[i], 0xa5);
	end_close(&e);
	munmap(p, 8192);
}

/* In a sandbox that does not let a process ask about itself. */
static void what_can_be_read_is_found_out_by_a_pipe(void **state)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { 4, f };
	pid_t child = fork();
	int status;

	(void)state;
	if (!child) {
		/* Its own thread, which the filter is for, opens all that it uses. */
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
			_exit(77);
		memory_that_is_not_there_is_refused(NULL);
		memory_that_is_read_only_is_not_written(NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

/* A page for `gpunet rnic` among this process's descriptors. */
static bool has_page(void)
{
	char path[32], name[64] = "";
	int fd;

	for (fd = 0; fd < 1024 && !strstr(name, GPUNET_STAT_RNIC_NAME); fd++) {
		memset(name, 0, sizeof(name));
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, name, sizeof(name) - 1) < 0)
			name[0] = 0;
	}
	return strstr(name, GPUNET_STAT_RNIC_NAME);
}

/*
 * What a child of a fork does with its copies nobody hears, and the address does not stay in use for its sake; what it opens is its
 * own.
 */
static void a_child_has_no_part_in_it(void **state)
{
	struct end a, b, own;
	int done[2], go[2], status;
	struct verbs_id *l;
	pid_t child;
	char c = 0;

	(void)state;
	assert_int_equal(pipe(done) | pipe(go), 0);
	end_open(&a);
	end_open(&b);
	l = listener(&b, here, 7471);
	begin(&a, here, 7471);
	take(&b);
	joined(&a, &b);
	assert_true(has_page());
	child = fork();
	if (!child) {
		send_from(&a, &b, VERBS_WR_WRITE, 0, 5000, 1);
		ops->disconnect(a.id);
		end_close(&a);
		ops->id_destroy(l);
		end_close(&b);
		c = has_page();
#ifndef __SANITIZE_THREAD__ /* it forbids new threads there */
		end_open(&own);
		l = listener(&own, here, 7473);
		ops->id_destroy(l);
		end_close(&own);
#else
		(void)own;
#endif
		_exit(write(done[1], &c, 1) != 1 || read(go[0], &c, 1) != 1);
	}
	assert_int_equal(read(done[0], &c, 1), 1);
	assert_int_equal(c, 0);
	no_event(&a);
	no_event(&b);
	exchange(&a, &b, false);
	exchange(&b, &a, true);
	end_close(&a);
	ops->id_destroy(l);
	end_close(&b);
	/* The child is still there. */
	transfer(here, false);
	assert_int_equal(write(go[1], &c, 1), 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close(done[0]);
	close(done[1]);
	close(go[0]);
	close(go[1]);
}

static atomic_bool enough;

static void *look_for_events(void *arg)
{
	struct end *e = arg;
	struct verbs_event ev;

	while (!enough)
		ops->event_next(e->e, &ev);
	return NULL;
}

/* Whatever other threads were doing at the fork: nothing that the child waits for is held by one that it does not have. */
static void a_child_of_a_busy_process_can_close(void **state)
{
	pthread_t busy;
	struct end e;
	int i, status;
	pid_t child;

	(void)state;
	end_open(&e);
	enough = false;
	assert_int_equal(pthread_create(&busy, NULL, look_for_events, &e), 0);
	for (i = 0; i < 20; i++) {
		child = fork();
		if (!child) {
			alarm(20);
			end_close(&e);
			_exit(0);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	enough = true;
	pthread_join(busy, NULL);
	end_close(&e);
}

/* What a listener was asked for and its user has taken is the user's: a server of one client closes it first. */
static void a_request_that_was_taken_outlives_its_listener(void **state)
{
	struct verbs_conn_param p = say("welcome");
	struct verbs_event ev;
	struct end a, b, late;
	struct verbs_id *l;

	(void)state;
	end_open(&a);
	end_open(&b);
	end_open(&late);
	l = listener(&b, here, 7471);
	begin(&a, here, 7471);
	ev = next_event(&b, VERBS_EVENT_CONNECT_REQUEST);
	begin(&late, here, 7471);
	usleep(20000); /* usually it is there by then, and not taken */
	ops->id_destroy(l);
	b.id = ev.request;
	end_equip(&b);
	assert_int_equal(ops->accept(b.id, &p), 0);
	joined(&a, &b);
	exchange(&a, &b, false);
	assert_int_equal(next_event(&late, VERBS_EVENT_REJECTED).status, -ECONNREFUSED);
	end_close(&a);
	end_close(&b);
	end_close(&late);
}

/* The peer takes the connection and ends it, before the answer is looked at. */
static void a_connection_that_ends_at_once_says_so(void **state)
{
	struct pollfd p = { .events = POLLIN };
	struct verbs_event ev;
	struct verbs_id *l;
	struct end a, b;

	(void)state;
	end_open(&a);
	end_open(&b);
	l = listener(&b, here, 7471);
	begin_alone(&a, here, 7471);
	no_event(&a); /* what is readable from now on is the answer */
	take(&b);
	p.fd = ops->events_fd(a.e);
	assert_int_equal(poll(&p, 1, 10000), 1);
	assert_int_equal(ops->disconnect(b.id), 0);
	next_event(&b, VERBS_EVENT_DISCONNECTED);
	ev = next_event(&a, VERBS_EVENT_UNREACHABLE);
	assert_int_equal(ev.status, -ECONNRESET);
	next_event(&a, VERBS_EVENT_DISCONNECTED);
	end_close(&a);
	ops->id_destroy(l);
	end_close(&b);
}

/* --- descriptors and signals ---------------------------------------------------------------------- */

/* A queue pair of its own CQ, connected to nobody; both CQs tell one descriptor. */
struct alone {
	struct verbs_cq *cq;
	struct verbs_qp *qp;
};

static struct {
	_Atomic(struct alone *) posts; /* while the descriptor is read */
	atomic_int fd;
} meanwhile = { NULL, -1 };

static void alone_open(struct alone *o, struct verbs_device *d, struct verbs_comp *c)
{
	struct verbs_qp_init init = {
		.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1
	};
	struct verbs_peer to = { .mtu = 1024 };
	struct verbs_gid g;

	assert_int_equal(ops->cq_create(d, 4, c, &o->cq), 0);
	init.send_cq = init.recv_cq = o->cq;
	assert_int_equal(ops->peer_qp_create(d, &init, &o->qp), 0);
	assert_int_equal(ops->device_gid(d, 0, &g), 0);
	memcpy(to.gid, g.gid, 16);
	to.qpn = init.qpn;
	assert_int_equal(ops->peer_qp_connect(o->qp, &to, &usual), 0);
	assert_int_equal(ops->arm(o->cq), 0);
}

/* A WRITE of memory that is not registered: it has failed when the call returns, and what is posted later is flushed. */
static void alone_post(struct alone *o)
{
	struct verbs_sge sge = { .addr = 8, .len = 8, .lkey = 0 };
	struct verbs_send_wr wr = {
		.opcode = VERBS_WR_WRITE, .flags = VERBS_SEND_SIGNALED, .sge = &sge, .nsge = 1
	};

	assert_int_equal(ops->post_send(o->qp, &wr, 1), 1);
}

static ssize_t read_late(int fd, void *buf, size_t n)
{
	struct alone *o = fd == meanwhile.fd ? atomic_exchange(&meanwhile.posts, NULL) : NULL;

	if (o)
		alone_post(o);
	return sys_real.read(fd, buf, n);
}

static void alone_close(struct alone *o)
{
	ops->qp_destroy(o->qp);
	ops->cq_destroy(o->cq);
}

/* While the descriptor is made unreadable for the first, the other one completes; who polls both then waits for the next. */
static void a_completion_while_the_descriptor_is_drained_is_not_the_last(void **state)
{
	struct pollfd p = { .events = POLLIN };
	struct verbs_device *d;
	struct verbs_comp *c;
	struct alone a, b;
	struct verbs_wc wc;
	struct end e;

	(void)state;
	sys.read = read_late;
	end_open(&e);
	assert_int_equal(ops->device_open(e.v, device_name, &d), 0);
	assert_int_equal(ops->comp_open(d, &c), 0);
	alone_open(&a, d, c);
	alone_open(&b, d, c);
	p.fd = ops->comp_fd(c);
	meanwhile.fd = p.fd;
	alone_post(&a);
	assert_int_equal(poll(&p, 1, 10000), 1);
	meanwhile.posts = &b;
	ops->comp_drain(c);
	assert_null(meanwhile.posts);
	assert_int_equal(ops->poll(a.cq, &wc, 1), 1);
	assert_int_equal(ops->poll(b.cq, &wc, 1), 1);
	assert_int_equal(ops->arm(a.cq), 0);
	assert_int_equal(ops->arm(b.cq), 0);
	alone_post(&a);
	assert_int_equal(poll(&p, 1, 10000), 1);
	alone_close(&a);
	alone_close(&b);
	ops->comp_close(c);
	end_close(&e);
	sys.read = sys_real.read;
}

static volatile sig_atomic_t taken_by_another;

static void take_signal(int sig)
{
	(void)sig;
	taken_by_another = 1;
}

/* A program that blocks a signal in its own threads, to wait for it, gets it: the device's thread does not. */
static void signals_are_for_the_programs_threads(void **state)
{
	struct sigaction sa = { .sa_handler = take_signal }, before;
	const struct timespec patience = { .tv_sec = 10 };
	struct verbs_device *d;
	sigset_t set, old;
	struct end e;

	(void)state;
	end_open(&e);
	assert_int_equal(ops->device_open(e.v, device_name, &d), 0);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaction(SIGUSR1, &sa, &before);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	kill(getpid(), SIGUSR1);
	poll(NULL, 0, 100); /* another thread that may have it has it by now */
	while (sigtimedwait(&set, NULL, taken_by_another ? &(struct timespec){ 0 } : &patience) !=
	       SIGUSR1)
		assert_int_equal(errno, EINTR);
	assert_int_equal(taken_by_another, 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	sigaction(SIGUSR1, &before, NULL);
	end_close(&e);
}

#ifdef __SANITIZE_THREAD__
enum { SLEEPS = 40 };
#else
enum { SLEEPS = 5 };
#endif

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool quiet_second(void)
{
	struct rusage before, after;
	uint64_t cpu = cpu_ns();

	getrusage(RUSAGE_SELF, &before);
	sleep(1);
	getrusage(RUSAGE_SELF, &after);
	/* This thread's sleep is one. The sanitizer has a thread of its own. */
	return after.ru_nvcsw - before.ru_nvcsw <= SLEEPS && cpu_ns() - cpu < 20000000;
}

static void nothing_spins_when_idle(void **state)
{
	struct end a, b;
	struct verbs_id *l;
	unsigned tries;

	(void)state;
	end_open(&a);
	end_open(&b);
	l = listener(&b, here, 7471);
	begin_alone(&a, here, 7471);
	take(&b);
	joined(&a, &b);
	exchange(&a, &b, false);
	usleep(100000);
	/* On a busy machine timers of the exchange come late; what polls never has such a second. */
	for (tries = 0; !quiet_second(); tries++)
		assert_true(tries < 10);
	end_close(&a);
	ops->id_destroy(l);
	end_close(&b);
}

/* --- two processes -------------------------------------------------------------------------------- */

/* Echoes SENDs until the peer disconnects. The parent waits for a byte on the pipe before it connects. */
static void server(int ready)
{
	struct verbs_recv_wr recv = { .wr_id = 1, .nsge = 1 };
	struct verbs_sge sge;
	struct verbs_wc wc;
	struct end e;
	struct verbs_id *l;

	end_open(&e);
	l = listener(&e, "127.0.0.1", common_port);
	assert_int_equal(write(ready, "r", 1), 1);
	e.id = next_event(&e, VERBS_EVENT_CONNECT_REQUEST).request;
	end_equip(&e);
	sge = (struct verbs_sge){ (uintptr_t)e.mem, 4096, e.mr->lkey };
	recv.sge = &sge;
	assert_int_equal(ops->post_recv(e.qp, &recv, 1), 1);
	assert_int_equal(ops->accept(e.id, &usual), 0);
	for (;;) {
		struct verbs_send_wr wr = { .wr_id = 2,
					    .opcode = VERBS_WR_SEND,
					    .flags = VERBS_SEND_SIGNALED,
					    .sge = &sge,
					    .nsge = 1 };

		wc = completion(&e, false);
		if (wc.status)
			break;
		if (wc.wr_id != 1)
			continue;
		sge.len = wc.byte_len;
		assert_int_equal(ops->post_send(e.qp, &wr, 1), 1);
		sge.len = 4096;
		assert_int_equal(ops->post_recv(e.qp, &recv, 1), 1);
	}
	next_event(&e, VERBS_EVENT_ESTABLISHED);
	next_event(&e, VERBS_EVENT_DISCONNECTED);
	ops->id_destroy(l);
	end_close(&e);
}

static void client(void)
{
	struct verbs_recv_wr recv = { .wr_id = 1, .nsge = 1 };
	struct verbs_sge sge;
	struct end e;
	unsigned i, k;

	end_open(&e);
	begin(&e, "127.0.0.1", common_port);
	next_event(&e, VERBS_EVENT_ESTABLISHED);
	for (i = 1; i <= 200; i++) {
		struct verbs_send_wr wr = { .wr_id = 2,
					    .opcode = VERBS_WR_SEND,
					    .flags = VERBS_SEND_SIGNALED,
					    .sge = &sge,
					    .nsge = 1 };
		uint32_t len = i * 20;

		for (k = 0; k < len; k++)
			e.mem[k] = (uint8_t)(k * i);
		sge = (struct verbs_sge){ (uintptr_t)e.mem + 8192, 4096, e.mr->lkey };
		recv.sge = &sge;
		assert_int_equal(ops->post_recv(e.qp, &recv, 1), 1);
		sge = (struct verbs_sge){ (uintptr_t)e.mem, len, e.mr->lkey };
		assert_int_equal(ops->post_send(e.qp, &wr, 1), 1);
		for (k = 0; k < 2; k++)
			assert_int_equal(completion(&e, i & 1).status, VERBS_WC_SUCCESS);
		assert_memory_equal(e.mem, e.mem + 8192, len);
	}
	assert_int_equal(ops->disconnect(e.id), 0);
	next_event(&e, VERBS_EVENT_DISCONNECTED);
	end_close(&e);
}

/* The server has 127.0.0.1; the client finds another address of the loopback network by itself. */
static void two_processes(void **state)
{
	int p[2], status = 0;
	pid_t pid;
	char c;

	(void)state;
	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		server(p[1]);
		_exit(0);
	}
	assert_int_equal(read(p[0], &c, 1), 1);
	client();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(p[0]);
	close(p[1]);
}

/* The peer is killed: what is posted comes back with an error, soon enough. */
static void a_peer_that_is_killed(void **state)
{

	struct verbs_wc wc;
	int p[2], status;
	struct end e;
	pid_t pid;
	char c;

	(void)state;
	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		server(p[1]);
		_exit(0);
	}
	assert_int_equal(read(p[0], &c, 1), 1);
	end_open(&e);

	begin(&e, "127.0.0.1", common_port);
	next_event(&e, VERBS_EVENT_ESTABLISHED);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	{
		struct verbs_sge sge = { (uintptr_t)e.mem, 64, e.mr->lkey };
		struct verbs_send_wr wr = { .opcode = VERBS_WR_SEND,
					    .flags = VERBS_SEND_SIGNALED,
					    .sge = &sge,
					    .nsge = 1 };

		assert_int_equal(ops->post_send(e.qp, &wr, 1), 1);
	}
	wc = completion(&e, false);
	assert_int_equal(wc.status, VERBS_WC_RETRY_EXC_ERR);
	end_close(&e);
	close(p[0]);
	close(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_networks_sleeping),
		cmocka_unit_test(two_networks_spinning),
		cmocka_unit_test(connections_are_refused),
		cmocka_unit_test(an_address_that_nobody_serves),
		cmocka_unit_test(a_request_without_an_answer_is_repeated),
		cmocka_unit_test(ports_belong_to_one),
		cmocka_unit_test(ports_that_are_chosen_differ),
		cmocka_unit_test(who_listens_where_another_connects_from_has_the_port),
		cmocka_unit_test(memory_that_is_not_there_is_refused),
		cmocka_unit_test(memory_that_is_read_only_is_not_written),
		cmocka_unit_test(what_can_be_read_is_found_out_by_a_pipe),
		cmocka_unit_test(a_child_has_no_part_in_it),
		cmocka_unit_test(a_child_of_a_busy_process_can_close),
		cmocka_unit_test(a_request_that_was_taken_outlives_its_listener),
		cmocka_unit_test(a_connection_that_ends_at_once_says_so),
		cmocka_unit_test(a_completion_while_the_descriptor_is_drained_is_not_the_last),
		cmocka_unit_test(signals_are_for_the_programs_threads),
		cmocka_unit_test(nothing_spins_when_idle),
		cmocka_unit_test(two_processes),
		cmocka_unit_test(a_peer_that_is_killed),
	};

	choose_names();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
