/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether the machine knows that nobody is at an address: in a network namespace of the test's own (skipped where it cannot have
 * one), whose kernel gives up resolving early.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "verbs/rnic/internal.h"
#include "wire/frame.h"
#include "wire/roce.h"

static bool have_namespace;

static void enter_namespace(void)
{
	int flags = CLONE_NEWNET | (geteuid() ? CLONE_NEWUSER : 0);

	have_namespace =
		unshare(flags) == 0 &&
		system("exec 2>/dev/null; ip link set lo up && ip link add va type veth peer name vb && "
		       "ip link set va up && ip link set vb up && ip addr add 10.77.0.2/24 dev vb && "
		       "ip route add 10.78.0.0/24 via 10.77.0.3 && "
		       "ip neigh add 10.77.0.4 lladdr 02:00:00:00:00:04 dev vb && "
		       "echo 20 >/proc/sys/net/ipv4/neigh/vb/retrans_time_ms && "
		       "ip -6 addr add fd77::2/64 dev vb nodad && "
		       "echo 20 >/proc/sys/net/ipv6/neigh/vb/retrans_time_ms") == 0;
}

struct place {
	struct sockaddr_storage sa;
	socklen_t len;
	uint8_t gid[16];
	struct vaddr from;
};

static struct place at(int family, const char *text)
{
	struct place p = { .len = 0 };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(WIRE_ROCE_PORT) };
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(WIRE_ROCE_PORT) };
	uint32_t scope;
	uint16_t port;
	bool any;

	assert_int_equal(inet_pton(family, text,
				   family == AF_INET ? (void *)&in.sin_addr
						     : (void *)&in6.sin6_addr),
			 1);
	p.len = family == AF_INET ? sizeof(in) : sizeof(in6);
	memcpy(&p.sa, family == AF_INET ? (void *)&in : (void *)&in6, p.len);
	assert_int_equal(vaddr_from_sockaddr((struct sockaddr *)&p.sa, p.len, p.gid, &scope, &port,
					     &any),
			 0);
	assert_int_equal(vaddr_toward((struct sockaddr *)&p.sa, p.len, &p.from), 0);
	return p;
}

/* What is known some time after a packet was sent there: the first that is not 0, within 5 s. */
static int after_a_packet(const struct place *p)
{
	int fd = socket(p->sa.ss_family, SOCK_DGRAM, 0), rc = 0, i;

	assert_true(fd >= 0);
	assert_int_equal(sendto(fd, "x", 1, 0, (const struct sockaddr *)&p->sa, p->len), 1);
	for (i = 0; i < 500 && !rc; i++) {
		rc = vaddr_nobody(&p->from, p->gid);
		usleep(10000);
	}
	close(fd);
	return rc;
}

static void addresses_that_do_not_resolve_are_known(void **state)
{
	struct place p;

	(void)state;
	if (!have_namespace)
		skip();
	p = at(AF_INET, "10.77.0.9");
	assert_int_equal(vaddr_nobody(&p.from, p.gid), 0); /* nothing was tried yet */
	assert_int_equal(after_a_packet(&p), -EHOSTUNREACH);
	p = at(AF_INET6, "fd77::9");
	assert_int_equal(vaddr_nobody(&p.from, p.gid), 0);
	assert_int_equal(after_a_packet(&p), -EHOSTUNREACH);
	/* Behind a router that is not there. */
	p = at(AF_INET, "10.78.0.9");
	assert_int_equal(after_a_packet(&p), -EHOSTUNREACH);
}

static int count(const struct vaddr *a, void *arg)
{
	unsigned *n = arg;

	/* The kernel gives the interface an IPv6 address when it gets to it. */
	*n += strcmp(a->dev, "vb") == 0 && wire_gid_is_v4(a->gid);
	return 0;
}

static int count_device(const struct verbs_device_info *d, void *arg)
{
	unsigned *n = arg;

	*n += strncmp(d->name, "rnic:10.79.0.", 13) == 0;
	return 0;
}

/* A machine with many addresses has all of them: one behind the first 32 can be bound as well, and is a device. */
static void an_address_behind_many_others_is_found(void **state)
{
	const uint8_t last[4] = { 10, 79, 0, 40 };
	struct vaddr v;
	unsigned before = 0, after = 0, devices = 0;
	uint8_t gid[16];

	(void)state;
	if (!have_namespace)
		skip();
	wire_gid_from_v4(gid, last);
	assert_int_equal(vaddr_find(gid, 0, &v), -EADDRNOTAVAIL);
	assert_int_equal(vaddr_each(count, &before), 0);
	assert_int_equal(system("seq 40 | sed 's|.*|addr add 10.79.0.&/24 dev vb|' | ip -batch -"),
			 0);
	assert_int_equal(vaddr_find(gid, 0, &v), 0);
	assert_string_equal(v.dev, "vb");
	assert_int_equal(v.mtu, 1500);
	assert_true(vaddr_is_local(gid));
	assert_int_equal(vaddr_each(count, &after), 0);
	assert_int_equal(after - before, 40);
	assert_int_equal(verbs_rnic.devices(NULL, count_device, &devices), 0);
	assert_int_equal(devices, 40);
}

/* Somebody who is there and silent may yet answer. */
static void a_silent_machine_is_not_given_up(void **state)
{
	struct place p;

	(void)state;
	if (!have_namespace)
		skip();
	p = at(AF_INET, "10.77.0.4");
	assert_int_equal(vaddr_nobody(&p.from, p.gid), 0);
}

static void a_port_of_this_machine_that_nobody_has(void **state)
{
	static const char *const texts[] = { "127.0.0.9", "10.77.0.2", "fd77::2" };
	unsigned i;

	(void)state;
	if (!have_namespace)
		skip();
	for (i = 0; i < 3; i++) {
		int family = strchr(texts[i], ':') ? AF_INET6 : AF_INET;
		int fd = socket(family, SOCK_DGRAM, 0);
		struct place p = at(family, texts[i]);

		assert_true(fd >= 0);
		assert_int_equal(vaddr_nobody(&p.from, p.gid), -ECONNREFUSED);
		assert_int_equal(bind(fd, (struct sockaddr *)&p.sa, p.len), 0);
		assert_int_equal(vaddr_nobody(&p.from, p.gid), 0);
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_that_do_not_resolve_are_known),
		cmocka_unit_test(an_address_behind_many_others_is_found),
		cmocka_unit_test(a_silent_machine_is_not_given_up),
		cmocka_unit_test(a_port_of_this_machine_that_nobody_has),
	};

	enter_namespace();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
