/* SPDX-License-Identifier: BSD-3-Clause */
/* Socket files: a dead server's is taken away, everything else is left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../tools/tool.h"

static char folder[] = "/tmp/gpunet-unix-XXXXXX";

static struct tool_addr address(const char *name)
{
	char text[URL_TEXT_MAX], why[URL_WHY_MAX];
	struct tool_addr a;
	struct url u;

	snprintf(text, sizeof(text), "unix://%s/%s", folder, name);
	assert_int_equal(url_parse(&u, text, why), 0);
	assert_int_equal(url_resolve(&u, &a, 1, why), 1);
	return a;
}

static const char *path_of(const struct tool_addr *a)
{
	return ((const struct sockaddr *)&a->addr)->sa_data;
}

static int bound(const struct tool_addr *a, int type)
{
	int fd = socket(AF_UNIX, type, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&a->addr, a->len), 0);
	return fd;
}

static bool exists(const struct tool_addr *a)
{
	struct stat st;

	return lstat(path_of(a), &st) == 0;
}

static void nothing_there(void **state)
{
	struct tool_addr a = address("none"), below = address("none/below");

	assert_int_equal(unix_path_claim(&a), 0);
	/* bind will say what is wrong. */
	assert_int_equal(unix_path_claim(&below), 0);
}

static void dead_server(void **state)
{
	struct tool_addr a = address("dead");

	close(bound(&a, SOCK_STREAM));
	assert_true(exists(&a));
	assert_int_equal(unix_path_claim(&a), 0);
	assert_false(exists(&a));
}

static void live_server(void **state)
{
	struct tool_addr a = address("live");
	int fd = bound(&a, SOCK_STREAM), clients[2];

	assert_int_equal(listen(fd, 0), 0);
	assert_int_equal(unix_path_claim(&a), -EADDRINUSE);
	assert_true(exists(&a));
	/* Its queue is full: it lives all the same. */
	clients[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	clients[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	connect(clients[0], (const struct sockaddr *)&a.addr, a.len);
	connect(clients[1], (const struct sockaddr *)&a.addr, a.len);
	assert_int_equal(unix_path_claim(&a), -EADDRINUSE);
	assert_true(exists(&a));
	close(clients[0]);
	close(clients[1]);
	close(fd);
	unlink(path_of(&a));
}

static void other_kind_of_socket(void **state)
{
	struct tool_addr a = address("datagram");
	int fd = bound(&a, SOCK_DGRAM);

	assert_int_equal(unix_path_claim(&a), -EADDRINUSE);
	assert_true(exists(&a));
	close(fd);
	unlink(path_of(&a));
}

static void no_socket(void **state)
{
	struct tool_addr a = address("file"), link = address("link");
	int fd = open(path_of(&a), O_CREAT | O_WRONLY, 0600);

	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(unix_path_claim(&a), -EEXIST);
	assert_true(exists(&a));
	assert_int_equal(symlink(path_of(&a), path_of(&link)), 0);
	assert_int_equal(unix_path_claim(&link), -EEXIST);
	assert_true(exists(&link));
	unlink(path_of(&link));
	unlink(path_of(&a));
}

static void other_families(void **state)
{
	struct tool_addr a;
	char why[URL_WHY_MAX];
	struct unix_path file;
	struct url u;

	assert_int_equal(url_parse(&u, "unix:@name", why), 0);
	assert_int_equal(url_resolve(&u, &a, 1, why), 1);
	assert_int_equal(unix_path_claim(&a), 0);
	unix_path_remember(&file, &a);
	assert_string_equal(file.path, "");
	unix_path_remove(&file);
}

/* Only the file that was made is removed, not one that has taken its place. */
static void removed_at_the_end(void **state)
{
	struct tool_addr a = address("mine");
	struct unix_path file;
	int fd = bound(&a, SOCK_STREAM), other;

	unix_path_remember(&file, &a);
	assert_string_equal(file.path, path_of(&a));
	assert_int_equal(unlink(path_of(&a)), 0);
	other = bound(&a, SOCK_STREAM);
	unix_path_remove(&file);
	assert_true(exists(&a));
	unix_path_remember(&file, &a);
	unix_path_remove(&file);
	assert_false(exists(&a));
	unix_path_remove(&file);
	close(other);
	close(fd);
}

static int make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_there),      cmocka_unit_test(dead_server),
		cmocka_unit_test(live_server),        cmocka_unit_test(other_kind_of_socket),
		cmocka_unit_test(no_socket),          cmocka_unit_test(other_families),
		cmocka_unit_test(removed_at_the_end),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
