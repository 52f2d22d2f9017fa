/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The path MTU that provider rnic asks a peer for, against kernels that take larger packets than they send, or do not take them:
 * the other end of a pair of veth interfaces, in a network namespace of its own. Skipped where there is none to be had.
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
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sys.h"
#include "rnic/wire_udp.h"
#include "verbs/rnic/internal.h"
#include "verbs/verbs.h"

static pid_t peer;
static int to_peer[2], from_peer[2];

/* The other namespace: runs the commands that come, one a line. */
static void be_peer(void)
{
	char line[256], answer;
	FILE *in = fdopen(to_peer[0], "r");

	close(to_peer[1]);
	answer = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
	while (write(from_peer[1], &answer, 1) == 1 && in && fgets(line, sizeof(line), in))
		answer = system(line) == 0 ? 'y' : 'n';
	_exit(0);
}

static bool peer_did(void)
{
	char answer = 'n';

	return read(from_peer[0], &answer, 1) == 1 && answer == 'y';
}

static bool there(const char *command)
{
	return dprintf(to_peer[1], "%s\n", command) > 0 && peer_did();
}

static bool enter_namespaces(void)
{
	char command[128];

	if (unshare(CLONE_NEWNET) || pipe(to_peer) || pipe(from_peer))
		return false;
	peer = fork();
	if (peer == 0)
		be_peer();
	if (peer < 0 || !peer_did())
		return false;
	snprintf(command, sizeof(command),
		 "ip link set lo up && ip link add pa mtu 9000 type veth peer name pb mtu 9000 && "
		 "ip link set pb netns %d",
		 (int)peer);
	return system(command) == 0 &&
	       system("ip link set pa up && ip addr add 10.79.0.1/24 dev pa && "
		      "ip addr add fd79::1/64 dev pa nodad") == 0 &&
	       there("ip link set pb up && ip addr add fd79::2/64 dev pb nodad && "
		     "for i in 2 3 4 5 6 7 8; do ip addr add 10.79.0.$i/24 dev pb; done");
}

static bool ready;
/* What path_mtu() does before it lets go of the device; NULL: nothing. */
static void (*afterwards)(void);

/* Resolves a peer: the path MTU in bytes, and how long it took. */
static unsigned path_mtu(const char *address, uint64_t *ns)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(9) };
	bool six = inet_pton(AF_INET6, address, &in6.sin6_addr) == 1;
	uint64_t begin = sys.now_ns();
	struct verbs_events *e;
	struct verbs_event ev;
	struct verbs_id *id;
	struct verbs *v;
	unsigned mtu;
	char why[128];
	int rc;

	assert_true(six || inet_pton(AF_INET, address, &in.sin_addr) == 1);
	assert_int_equal(verbs_rnic.open(&v, why, sizeof(why)), 0);
	assert_int_equal(verbs_rnic.events_open(v, 0, &e), 0);
	assert_int_equal(verbs_rnic.id_create(e, NULL, &id), 0);
	rc = six ? verbs_rnic.resolve(id, (struct sockaddr *)&in6, sizeof(in6), 1000)
		 : verbs_rnic.resolve(id, (struct sockaddr *)&in, sizeof(in), 1000);
	assert_int_equal(rc, 0);
	while ((rc = verbs_rnic.event_next(e, &ev)) == -EAGAIN) {
		struct pollfd p = { .fd = verbs_rnic.events_fd(e), .events = POLLIN };

		assert_int_equal(poll(&p, 1, 10000), 1);
	}
	assert_int_equal(rc, 0);
	assert_int_equal(ev.type, VERBS_EVENT_RESOLVED);
	mtu = 128u << id->mtu_code;
	if (ns)
		*ns = sys.now_ns() - begin;
	if (afterwards)
		afterwards();
	verbs_rnic.id_destroy(id);
	verbs_rnic.events_close(e);
	verbs_rnic.close(v);
	return mtu;
}

static void as_large_as_what_comes_back_whole(void **state)
{
	(void)state;
	if (!ready)
		skip();
	assert_int_equal(path_mtu("10.79.0.2", NULL), 4096);
	assert_int_equal(path_mtu("fd79::2", NULL), 4096);
	/* By a socket that needs no privilege. */
	assert_int_equal(system("echo 0 0 >/proc/sys/net/ipv4/ping_group_range"), 0);
	assert_int_equal(path_mtu("10.79.0.2", NULL), 4096);
	assert_int_equal(path_mtu("fd79::2", NULL), 4096);
	assert_int_equal(path_mtu("127.0.0.1", NULL), 4096);
}

/* An echo of somebody else's, which every raw socket gets; then the device's thread rests, as before. */
static void ping_and_rest(void)
{
	uint8_t echo[8] = { 8, 0, 0xf7, 0xfe, 0, 0, 0, 1 }, answer[128];
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
	struct timespec before, after, pause = { .tv_nsec = 300000000 };
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_true(fd >= 0);
	inet_pton(AF_INET, "10.79.0.2", &to.sin_addr);
	assert_int_equal(sendto(fd, echo, sizeof(echo), 0, (struct sockaddr *)&to, sizeof(to)),
			 sizeof(echo));
	do
		assert_int_equal(poll(&p, 1, 10000), 1);
	while (recv(fd, answer, sizeof(answer), 0) != 28 || answer[20] != 0);
	close(fd);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	assert_true((after.tv_sec - before.tv_sec) * 1000 +
			    (after.tv_nsec - before.tv_nsec) / 1000000 <
		    30);
}

static void an_echo_that_nobody_asked_for_is_taken(void **state)
{
	(void)state;
	if (!ready)
		skip();
	/* No group may have sockets of its own for echoes: it is a raw one. */
	assert_int_equal(system("echo 1 0 >/proc/sys/net/ipv4/ping_group_range"), 0);
	afterwards = ping_and_rest;
	assert_int_equal(path_mtu("10.79.0.2", NULL), 4096);
	afterwards = NULL;
}

/* As a virtual machine: large packets are taken, and none are sent. */
static void a_peer_that_answers_in_pieces_gets_no_more_than_it_sends(void **state)
{
	(void)state;
	if (!ready)
		skip();
	assert_true(there("ip route change 10.79.0.0/24 dev pb mtu 1500"));
	assert_int_equal(path_mtu("10.79.0.3", NULL), 1024);
	assert_true(there("ip route change 10.79.0.0/24 dev pb mtu 3000"));
	assert_int_equal(path_mtu("10.79.0.4", NULL), 2048);
	assert_true(there("ip route change 10.79.0.0/24 dev pb"));
}

static void silence_is_the_safe_one(void **state)
{
	uint64_t ns;

	(void)state;
	if (!ready)
		skip();
	assert_true(there("echo 1 >/proc/sys/net/ipv4/icmp_echo_ignore_all"));
	assert_int_equal(path_mtu("10.79.0.5", &ns), 1024);
	assert_true(there("echo 0 >/proc/sys/net/ipv4/icmp_echo_ignore_all"));
	/* It waits that long, but nobody for ever. */
	assert_true(ns >= UINT64_C(300000000));
	assert_true(there("ip link set pb mtu 1500"));
	assert_int_equal(path_mtu("10.79.0.6", NULL), 1024);
	assert_true(there("ip link set pb mtu 9000"));
}

/* An asynchronous event within 5 s. */
static void next_is(struct verbs_events *e, enum verbs_event_type type,
		    const struct verbs_device *d)
{
	struct pollfd p = { .fd = verbs_rnic.events_fd(e), .events = POLLIN };
	struct verbs_event ev;
	int rc, tries = 50;

	while ((rc = verbs_rnic.event_next(e, &ev)) == -EAGAIN && tries--)
		poll(&p, 1, 100);
	assert_int_equal(rc, 0);
	assert_int_equal(ev.type, type);
	assert_ptr_equal(ev.device, d);
}

static void an_interface_that_goes_down_says_so(void **state)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(9) };
	struct verbs_device_info info;
	struct verbs_events *e;
	struct verbs_event ev;
	struct verbs_id *id;
	struct verbs_device *d;
	struct verbs *v;
	char why[128];

	(void)state;
	if (!ready)
		skip();
	inet_pton(AF_INET, "10.79.0.1", &in.sin_addr);
	assert_int_equal(verbs_rnic.open(&v, why, sizeof(why)), 0);
	assert_int_equal(verbs_rnic.events_open(v, VERBS_EVENTS_ASYNC, &e), 0);
	assert_int_equal(verbs_rnic.id_create(e, NULL, &id), 0);
	assert_int_equal(verbs_rnic.bind(id, (struct sockaddr *)&in, sizeof(in)), 0);
	d = verbs_rnic.id_device(id);
	assert_int_equal(system("ip link set pa down"), 0);
	next_is(e, VERBS_EVENT_PORT_DOWN, d);
	assert_int_equal(verbs_rnic.device_info(d, &info), 0);
	assert_int_equal(info.port, VERBS_PORT_DOWN);
	assert_int_equal(system("ip link set pa up"), 0);
	next_is(e, VERBS_EVENT_PORT_ACTIVE, d);
	/* Something else of the interface is no news of the port. */
	assert_int_equal(system("ip addr add 10.79.1.1/24 dev pa"), 0);
	assert_int_equal(verbs_rnic.event_next(e, &ev), -EAGAIN);
	verbs_rnic.id_destroy(id);
	verbs_rnic.events_close(e);
	verbs_rnic.close(v);
}

static void a_user_who_knows_is_believed(void **state)
{
	(void)state;
	if (!ready)
		skip();
	assert_true(there("echo 1 >/proc/sys/net/ipv4/icmp_echo_ignore_all"));
	setenv("GPUNET_RNIC_MTU", "2048", 1);
	assert_int_equal(path_mtu("10.79.0.7", NULL), 2048);
	unsetenv("GPUNET_RNIC_MTU");
}

enum { MTU_SAID = 600, LARGER = 1100 };

/* ICMP "fragmentation needed" about a packet from 10.79.0.1, port `port`, to port 4791 of 10.79.0.8. */
static void spoof(uint16_t port)
{
	uint8_t icmp[36] = { 3, 4, [6] = MTU_SAID >> 8, [7] = MTU_SAID & 0xff };
	uint8_t *ip = icmp + 8, *udp = ip + 20;
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
	uint32_t sum = 0;
	unsigned i;

	assert_true(fd >= 0);
	ip[0] = 0x45;
	ip[2] = LARGER >> 8;
	ip[3] = LARGER & 0xff;
	ip[6] = 0x40;
	ip[8] = 64;
	ip[9] = IPPROTO_UDP;
	inet_pton(AF_INET, "10.79.0.1", ip + 12);
	inet_pton(AF_INET, "10.79.0.8", ip + 16);
	udp[0] = (uint8_t)(port >> 8);
	udp[1] = (uint8_t)port;
	udp[2] = 4791 >> 8;
	udp[3] = 4791 & 0xff;
	for (i = 0; i < sizeof(icmp); i += 2)
		sum += (uint32_t)icmp[i] << 8 | icmp[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~(sum + (sum >> 16));
	icmp[2] = (uint8_t)(sum >> 8);
	icmp[3] = (uint8_t)sum;
	inet_pton(AF_INET, "10.79.0.1", &to.sin_addr);
	assert_int_equal(sendto(fd, icmp, sizeof(icmp), 0, (struct sockaddr *)&to, sizeof(to)),
			 sizeof(icmp));
	close(fd);
}

/* A socket that believes such a message; it is what the message is about. */
static int believer(uint16_t *port)
{
	struct sockaddr_in here = { .sin_family = AF_INET };
	socklen_t n = sizeof(here);
	int on = IP_PMTUDISC_DO, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, "10.79.0.1", &here.sin_addr);
	assert_int_equal(setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &on, sizeof(on)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&here, n), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&here, &n), 0);
	*port = ntohs(here.sin_port);
	return fd;
}

static bool believes(int fd)
{
	static const uint8_t bytes[LARGER];
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(4791) };

	inet_pton(AF_INET, "10.79.0.8", &to.sin_addr);
	return sendto(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&to, sizeof(to)) < 0 &&
	       errno == EMSGSIZE;
}

/* Anybody can say that a path takes small packets only; the kernel remembers it for ten minutes. */
static void a_strangers_word_about_the_path_stops_nothing(void **state)
{
	static uint8_t bytes[LARGER];
	struct rnic_udp_config cfg = { .gid = { [10] = 0xff, [11] = 0xff, 10, 79, 0, 1 } };
	struct rnic_path path = { .src = { [10] = 0xff, [11] = 0xff, 10, 79, 0, 1 },
				  .dst = { [10] = 0xff, [11] = 0xff, 10, 79, 0, 8 } };
	struct rnic_tx tx = { .path = &path, .hdr_len = 12, .nseg = 1, .payload_len = LARGER };
	uint64_t end = sys.now_ns() + UINT64_C(10000000000);
	struct rnic_wire *w;
	uint16_t port;
	int fd;

	(void)state;
	if (!ready)
		skip();
	fd = believer(&port);
	assert_false(believes(fd));
	do {
		assert_true(sys.now_ns() < end);
		spoof(port);
	} while (!believes(fd));
	tx.seg[0] = (struct iovec){ bytes, LARGER };
	assert_int_equal(rnic_udp_create(&cfg, &w), 0);
	assert_int_equal(w->ops->send(w, &tx, sys.now_ns()), 0);
	assert_int_equal(w->ops->flush(w, sys.now_ns()), 0);
	assert_int_equal(rnic_udp_stats(w)->tx_packets, 1);
	assert_int_equal(rnic_udp_stats(w)->tx_dropped, 0);
	assert_true(believes(fd));
	rnic_udp_destroy(w);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_echo_that_nobody_asked_for_is_taken),
		cmocka_unit_test(as_large_as_what_comes_back_whole),
		cmocka_unit_test(a_peer_that_answers_in_pieces_gets_no_more_than_it_sends),
		cmocka_unit_test(silence_is_the_safe_one),
		cmocka_unit_test(a_strangers_word_about_the_path_stops_nothing),
		cmocka_unit_test(an_interface_that_goes_down_says_so),
		cmocka_unit_test(a_user_who_knows_is_believed),
	};
	int rc;

	ready = enter_namespaces();
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	if (peer > 0) {
		kill(peer, SIGKILL);
		waitpid(peer, NULL, 0);
	}
	return rc;
}
