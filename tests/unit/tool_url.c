/* SPDX-License-Identifier: BSD-3-Clause */
/* The tool's addresses: what is accepted, what is refused and why, and that text, URL and socket address agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/un.h>

#include "../../tools/url.h"

static void formats_as(const char *text, const char *want)
{
	char why[URL_WHY_MAX] = "", out[URL_TEXT_MAX];
	struct url u, again;

	if (url_parse(&u, text, why) != 0)
		fail_msg("%s: %s", text, why);
	assert_int_equal(url_format(&u, out), strlen(want));
	assert_string_equal(out, want);
	assert_int_equal(url_parse(&again, out, why), 0);
	assert_memory_equal(&u, &again, sizeof(u));
}

static void good_texts(void **state)
{
	formats_as("tcp://127.0.0.1:7001", "tcp://127.0.0.1:7001");
	formats_as("TCP://127.0.0.1:07001", "tcp://127.0.0.1:7001");
	formats_as("tcp://0.0.0.0:0", "tcp://0.0.0.0:0");
	formats_as("tcp://localhost:65535", "tcp://localhost:65535");
	formats_as("tcp://a_b.example-1.com:1", "tcp://a_b.example-1.com:1");
	formats_as("tcp://[::1]:1", "tcp://[::1]:1");
	formats_as("UDP://[::1]:1", "udp://[::1]:1");
	formats_as("udp://127.0.0.1:53", "udp://127.0.0.1:53");
	formats_as("tcp://[0:0::1]:1", "tcp://[::1]:1");
	formats_as("tcp://[::ffff:1.2.3.4]:1", "tcp://[::ffff:1.2.3.4]:1");
	formats_as("tcp://[fe80::1%eth0]:80", "tcp://[fe80::1%eth0]:80");
	formats_as("tcp://[FE80::A%br-12:x]:80", "tcp://[fe80::a%br-12:x]:80");
	formats_as("RDMA://10.0.2.1:7471", "rdma://10.0.2.1:7471");
	formats_as("rdma://[fd00::1]:0", "rdma://[fd00::1]:0");
	formats_as("unix:///tmp/a b", "unix:///tmp/a b");
	formats_as("unix:////", "unix:////");
	formats_as("unix:@name", "unix:@name");
	formats_as("unix:@//not a path", "unix:@//not a path");
	formats_as("unix-dgram:///tmp/a b", "unix-dgram:///tmp/a b");
	formats_as("UNIX-DGRAM:@name", "unix-dgram:@name");
}

static void refused(const char *text, const char *why_part)
{
	char why[URL_WHY_MAX] = "";
	struct url u, before;

	memset(&u, 0x5a, sizeof(u));
	before = u;
	assert_int_equal(url_parse(&u, text, why), -EINVAL);
	/* Outputs are set on success only. */
	assert_memory_equal(&u, &before, sizeof(u));
	if (!strstr(why, why_part))
		fail_msg("%s: \"%s\" does not say \"%s\"", text, why, why_part);
}

static void bad_texts(void **state)
{
	refused("", "tcp://host:port");
	refused("http://127.0.0.1:80", "tcp://host:port");
	refused("127.0.0.1:80", "tcp://host:port");
	refused("tcp:/127.0.0.1:80", "tcp://host:port");
	refused("SHM://x", "not built yet");
	refused("tcp://127.0.0.1", "port is missing");
	refused("tcp://:80", "host is missing");
	refused("tcp://127.0.0.1:", "no port");
	refused("tcp://127.0.0.1:65536", "no port");
	refused("tcp://127.0.0.1:000080", "no port");
	refused("tcp://127.0.0.1:-1", "no port");
	refused("tcp://127.0.0.1:80/", "no port");
	refused("tcp://127.0.0.1: 80", "no port");
	refused("tcp://127.1:80", "no IPv4 address");
	refused("tcp://1.2.3.256:80", "no IPv4 address");
	refused("tcp://2130706433:80", "no IPv4 address");
	refused("tcp://::1:80", "in brackets");
	refused("tcp://[::1]80", "IPv6 address");
	refused("tcp://[::1", "IPv6 address");
	refused("tcp://[::1]", "IPv6 address");
	refused("tcp://[]:1", "no IPv6 address");
	refused("tcp://[::g]:1", "no IPv6 address");
	refused("tcp://[127.0.0.1]:1", "no IPv6 address");
	refused("tcp://[fe80::1%]:1", "name of an interface");
	refused("tcp://[fe80::1%sixteen-letters-]:1", "name of an interface");
	refused("tcp://[fe80::1%a%b]:1", "name of an interface");
	refused("tcp://127.0.0.1%eth0:1", "only an IPv6 address");
	refused("tcp://user@host:1", "letters");
	refused("tcp://host\n:1", "control character");
	refused("unix:", "unix:///path or unix:@name");
	refused("unix://", "unix:///path or unix:@name");
	refused("unix:@", "name is missing");
	refused("unix:///a\tb", "control character");
	refused("unix-dgram:", "unix:///path or unix:@name");
	refused("unix-dgram:@", "name is missing");
	refused("unix-dgramm:@x", "unix-dgram:");
	refused("udp://127.0.0.1", "udp://host:port");
	refused("RDMA://127.0.0.1", "rdma://host:port");
}

/* Whoever leaves slashes out is told of them. */
static void a_path_must_be_absolute(void **state)
{
	refused("unix:relative", "path is absolute");
	refused("unix:relative", "not unix:relative");
	refused("unix:./here", "path is absolute");
	refused("unix:/one/slash", "behind two slashes");
	refused("unix://two/slashes", "unix:///path");
}

static void length_limits(void **state)
{
	char text[1024];

	snprintf(text, sizeof(text), "unix:///%0*d", URL_PATH_MAX - 1, 7);
	formats_as(text, text);
	snprintf(text, sizeof(text), "unix:///%0*d", URL_PATH_MAX, 7);
	refused(text, "too long: 108 bytes");
	snprintf(text, sizeof(text), "unix:@%0*d", URL_PATH_MAX, 7);
	formats_as(text, text);
	snprintf(text, sizeof(text), "unix:@%0*d", URL_PATH_MAX + 1, 7);
	refused(text, "has room for 107");
	snprintf(text, sizeof(text), "tcp://a%0*d:1", URL_HOST_MAX - 1, 7);
	formats_as(text, text);
	snprintf(text, sizeof(text), "tcp://a%0*d:1", URL_HOST_MAX, 7);
	refused(text, "too long");
	snprintf(text, sizeof(text), "tcp://[%0*d]:1", 300, 7);
	refused(text, "too long");
	snprintf(text, sizeof(text), "tcp://[fe80::1%%%0*d]:1", URL_ZONE_MAX, 7);
	formats_as(text, text);
}

/* Text that is nearly right, by chance: what is accepted comes back as it was. */
static void random_texts(void **state)
{
	static const char *const parts[] = { "tcp://", "unix:", "unix-dgram:", "udp://",    "///",
					     "@",      "[",     "]",           "::1",       "%",
					     "eth0",   ":",     "80",          "/",         "65535",
					     "a b",    ".",     "fe80::1",     "127.0.0.1", "host",
					     "0",      "\x7f" };
	unsigned accepted = 0, i;

	srand(1);
	for (i = 0; i < 200000; i++) {
		char text[256] = "", why[URL_WHY_MAX], out[URL_TEXT_MAX];
		struct url u, again;
		int n = rand() % 9, j;

		for (j = 0; j < n; j++)
			strcat(text, parts[(unsigned)rand() % (sizeof(parts) / sizeof(parts[0]))]);
		if (url_parse(&u, text, why) != 0)
			continue;
		accepted++;
		assert_in_range(url_format(&u, out), 1, URL_TEXT_MAX - 1);
		assert_int_equal(url_parse(&again, out, why), 0);
		assert_memory_equal(&u, &again, sizeof(u));
	}
	assert_true(accepted > 500);
}

/* Text to socket address and back. */
static void there_and_back(const char *text)
{
	char why[URL_WHY_MAX] = "", out[URL_TEXT_MAX];
	struct tool_addr list[3];
	struct url u, back;

	assert_int_equal(url_parse(&u, text, why), 0);
	if (url_resolve(&u, list, 3, why) != 1)
		fail_msg("%s: %s", text, why);
	assert_int_equal(url_of_addr(&back, &list[0]), 0);
	assert_memory_equal(&u, &back, sizeof(u));
	url_format_addr(&list[0], out);
	assert_string_equal(out, text);
}

static void socket_addresses(void **state)
{
	there_and_back("tcp://127.0.0.1:7001");
	there_and_back("tcp://255.255.255.255:65535");
	there_and_back("tcp://[::]:0");
	there_and_back("tcp://[2001:db8::1]:443");
	there_and_back("tcp://[fe80::1%lo]:7001");
	there_and_back("unix:///tmp/x");
	there_and_back("unix:@x");
	there_and_back("udp://127.0.0.1:53");
	there_and_back("udp://[::1]:53");
	there_and_back("unix-dgram:///tmp/x");
	there_and_back("unix-dgram:@x");
}

static void zones(void **state)
{
	char why[URL_WHY_MAX] = "";
	struct tool_addr a;
	struct url u;

	assert_int_equal(url_parse(&u, "tcp://[fe80::1%nosuch0]:1", why), 0);
	assert_int_equal(url_resolve(&u, &a, 1, why), -ENODEV);
	assert_non_null(strstr(why, "nosuch0"));
	assert_non_null(strstr(why, "this machine has: "));
	assert_non_null(strstr(why, "lo"));

	/* Without its interface such an address is nobody's. */
	assert_int_equal(url_parse(&u, "tcp://[fe80::1]:1", why), 0);
	assert_int_equal(url_resolve(&u, &a, 1, why), -EINVAL);
	assert_non_null(strstr(why, "fe80::1%"));

	/* By number, as the system prints an interface that has no name any more. */
	assert_int_equal(url_parse(&u, "tcp://[fe80::1%1]:1", why), 0);
	assert_int_equal(url_resolve(&u, &a, 1, why), 1);
	assert_int_equal(((struct sockaddr_in6 *)&a.addr)->sin6_scope_id, 1);
}

static void names(void **state)
{
	char why[URL_WHY_MAX] = "";
	struct tool_addr list[4];
	struct url u;
	int i, n;

	assert_int_equal(url_parse(&u, "tcp://localhost:7001", why), 0);
	n = url_resolve(&u, list, 4, why);
	assert_in_range(n, 1, 4);
	for (i = 0; i < n; i++) {
		char out[URL_TEXT_MAX];

		url_format_addr(&list[i], out);
		assert_true(strcmp(out, "tcp://127.0.0.1:7001") == 0 ||
			    strcmp(out, "tcp://[::1]:7001") == 0);
	}
	/* Where no name server answers that is known soon. */
	assert_int_equal(setenv("RES_OPTIONS", "timeout:1 attempts:1", 1), 0);
	assert_int_equal(url_parse(&u, "tcp://no-such-host.invalid:1", why), 0);
	assert_true(url_resolve(&u, list, 4, why) < 0);
	assert_non_null(strstr(why, "no-such-host.invalid"));
}

static void unnamed_addresses(void **state)
{
	struct tool_addr a = { .len = sizeof(sa_family_t) };
	char out[URL_TEXT_MAX];
	struct url u;

	a.addr.ss_family = AF_UNIX;
	assert_int_equal(url_of_addr(&u, &a), -EINVAL);
	url_format_addr(&a, out);
	assert_string_equal(out, "an unnamed socket");
	/* An abstract name with a zero in it has no text. */
	a.len = sizeof(sa_family_t) + 4;
	memcpy(((struct sockaddr_un *)&a.addr)->sun_path, "\0a\0b", 4);
	assert_int_equal(url_of_addr(&u, &a), -EINVAL);
	a.addr.ss_family = AF_NETLINK;
	assert_int_equal(url_of_addr(&u, &a), -EINVAL);
	a.addr.ss_family = AF_INET;
	a.len = 4;
	assert_int_equal(url_of_addr(&u, &a), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_texts),
		cmocka_unit_test(bad_texts),
		cmocka_unit_test(a_path_must_be_absolute),
		cmocka_unit_test(length_limits),
		cmocka_unit_test(random_texts),
		cmocka_unit_test(socket_addresses),
		cmocka_unit_test(zones),
		cmocka_unit_test(names),
		cmocka_unit_test(unnamed_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
