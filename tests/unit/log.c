/* SPDX-License-Identifier: BSD-3-Clause */
/* Where lines go when standard error does not take them: a proxy thread must not wait for who reads them. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"

static int was, reader;

/* Standard error is a pipe. */
static int up(void **state)
{
	int p[2];

	(void)state;
	was = dup(STDERR_FILENO);
	if (was < 0 || pipe(p) || dup2(p[1], STDERR_FILENO) < 0)
		return -1;
	close(p[1]);
	reader = p[0];
	return 0;
}

static int down(void **state)
{
	(void)state;
	dup2(was, STDERR_FILENO);
	close(was);
	if (reader >= 0)
		close(reader);
	return 0;
}

static void into_a_full_pipe_a_line_is_lost(void **state)
{
	static char much[1 << 20];
	int flags = fcntl(STDERR_FILENO, F_GETFL);
	ssize_t n;

	(void)state;
	assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK), 0);
	while (write(STDERR_FILENO, much, 4096) > 0)
		;
	assert_int_equal(fcntl(STDERR_FILENO, F_SETFL, flags), 0);
	log_line(LOG_WARN, "nobody reads this");
	assert_int_equal(log_error(-1, "nor this"), -1);
	assert_string_equal(log_last(), "nor this");
	n = read(reader, much, sizeof(much));
	assert_true(n > 0);
	assert_null(memchr(much, 'n', (size_t)n));
	/* There is room again. */
	log_line(LOG_WARN, "but this");
	n = read(reader, much, sizeof(much));
	assert_int_equal(n, strlen("gpunet: warning: but this\n"));
}

static void without_a_reader_the_process_goes_on(void **state)
{
	(void)state;
	assert_ptr_equal(signal(SIGPIPE, SIG_DFL), SIG_DFL);
	close(reader);
	reader = -1;
	log_line(LOG_WARN, "nobody can read this");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(into_a_full_pipe_a_line_is_lost, up, down),
		cmocka_unit_test_setup_teardown(without_a_reader_the_process_goes_on, up, down),
	};

	alarm(10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
