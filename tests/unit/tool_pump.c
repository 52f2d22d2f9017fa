/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet cat's way between standard input, standard output and its socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../tools/pump.h"

#define MUCH (3 << 20)

struct ends {
	int in[2], out[2]; /* pipes: [1] is the writer's end */
	int sock[2];       /* [0] the pump's, [1] the peer's */
	int stop;
	struct pump_end end;
	bool over; /* what the callback says */
};

static int setup(void **state)
{
	struct ends *e = calloc(1, sizeof(*e));

	signal(SIGPIPE, SIG_IGN);
	*state = e;
	e->stop = eventfd(0, EFD_NONBLOCK);
	return !e || pipe(e->in) || pipe(e->out) || e->stop < 0 ||
	       socketpair(AF_UNIX, SOCK_STREAM, 0, e->sock) ||
	       fcntl(e->sock[0], F_SETFL, O_NONBLOCK);
}

static int teardown(void **state)
{
	struct ends *e = *state;
	int fds[] = { e->in[0], e->in[1], e->out[0], e->out[1], e->sock[0], e->sock[1], e->stop };
	unsigned i;

	for (i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
	free(e);
	return 0;
}

static void drop(int *fd)
{
	close(*fd);
	*fd = -1;
}

static bool is_over(void *arg)
{
	return ((struct ends *)arg)->over;
}

static void run(struct ends *e)
{
	pump(e->in[0], e->out[1], e->sock[0], e->stop, is_over, e, &e->end);
}

/* Both ends of a pipe or socket may block, so each has a thread. */
struct job {
	int fd;
	size_t bytes;   /* to write, or what was read */
	unsigned wrong; /* read: bytes that are not the pattern's */
	int then_shut;  /* write: SHUT_WR after it; 2: close */
};

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 2654435761u >> 13);
}

static void *writer(void *arg)
{
	struct job *j = arg;
	uint8_t buf[5000];
	size_t at = 0, i;

	while (at < j->bytes) {
		size_t n = j->bytes - at < sizeof(buf) ? j->bytes - at : sizeof(buf), done = 0;

		for (i = 0; i < n; i++)
			buf[i] = pattern(at + i);
		while (done < n) {
			ssize_t w = write(j->fd, buf + done, n - done);

			if (w < 0)
				return NULL;
			done += (size_t)w;
		}
		at += n;
	}
	if (j->then_shut == 1)
		shutdown(j->fd, SHUT_WR);
	if (j->then_shut == 2)
		close(j->fd);
	return NULL;
}

static void *reader(void *arg)
{
	struct job *j = arg;
	uint8_t buf[7001];
	ssize_t n, i;

	while ((n = read(j->fd, buf, sizeof(buf))) > 0) {
		for (i = 0; i < n; i++)
			j->wrong += buf[i] != pattern(j->bytes + (size_t)i);
		j->bytes += (size_t)n;
	}
	return NULL;
}

/* Both directions at once, much more than pipes and sockets hold, each byte in its place. */
static void both_directions(void **state)
{
	struct ends *e = *state;
	struct job in = { e->in[1], MUCH, 0, 2 }, out = { e->out[0], 0, 0, 0 };
	struct job from = { e->sock[1], MUCH + 7, 0, 1 }, to = { e->sock[1], 0, 0, 0 };
	pthread_t t[4];
	int i;

	e->in[1] = -1; /* the writer closes it */
	pthread_create(&t[0], NULL, writer, &in);
	pthread_create(&t[1], NULL, reader, &out);
	pthread_create(&t[2], NULL, writer, &from);
	pthread_create(&t[3], NULL, reader, &to);
	run(e);
	drop(&e->out[1]);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(out.bytes, MUCH + 7);
	assert_int_equal(to.bytes, MUCH);
	assert_int_equal(out.wrong + to.wrong, 0);
	assert_int_equal(e->end.read_error, 0);
	assert_int_equal(e->end.write_error, 0);
}

/* The peer has ended its stream and reads on: it still gets all the input there is. */
static void peer_ends_first(void **state)
{
	struct ends *e = *state;
	struct job in = { e->in[1], MUCH, 0, 2 }, to = { e->sock[1], 0, 0, 0 };
	pthread_t t[2];

	e->in[1] = -1;
	assert_int_equal(shutdown(e->sock[1], SHUT_WR), 0);
	pthread_create(&t[0], NULL, writer, &in);
	pthread_create(&t[1], NULL, reader, &to);
	run(e);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	assert_int_equal(to.bytes, MUCH);
	assert_int_equal(to.wrong, 0);
}

/* The peer is gone and the input is open and silent: nobody waits for it. */
static void silent_input(void **state)
{
	struct ends *e = *state;

	drop(&e->sock[1]);
	run(e);
	assert_int_equal(e->end.read_error, 0);
}

/* The end of the input is the end of the stream, and the other direction goes on. */
static void input_ends(void **state)
{
	struct ends *e = *state;
	struct job from = { e->sock[1], 1000, 0, 1 };
	char c;
	pthread_t t;

	drop(&e->in[1]);
	pthread_create(&t, NULL, writer, &from);
	run(e);
	pthread_join(t, NULL);
	assert_int_equal(read(e->sock[1], &c, 1), 0);
	drop(&e->out[1]);
	from = (struct job){ e->out[0], 0, 0, 0 };
	reader(&from);
	assert_int_equal(from.bytes, 1000);
}

static void stopped(void **state)
{
	struct ends *e = *state;
	uint64_t one = 1;

	assert_int_equal(write(e->stop, &one, sizeof(one)), sizeof(one));
	run(e);
}

static void nobody_there(void **state)
{
	struct ends *e = *state;

	e->over = true;
	run(e);
}

static void output_fails(void **state)
{
	struct ends *e = *state;

	drop(&e->out[0]);
	assert_int_equal(write(e->sock[1], "x", 1), 1);
	run(e);
	assert_int_equal(e->end.write_error, EPIPE);
}

static void input_fails(void **state)
{
	struct ends *e = *state;

	shutdown(e->sock[1], SHUT_WR);
	drop(&e->in[0]);
	e->in[0] = open("/", O_RDONLY | O_DIRECTORY);
	assert_true(e->in[0] >= 0);
	run(e);
	assert_int_equal(e->end.read_error, EISDIR);
}

/* ---- datagrams ---------------------------------------------------------------------------------- */

static int setup_dgrams(void **state)
{
	struct ends *e;
	int rc = setup(state);

	e = *state;
	close(e->sock[0]);
	close(e->sock[1]);
	return rc || socketpair(AF_UNIX, SOCK_DGRAM, 0, e->sock) ||
	       fcntl(e->sock[0], F_SETFL, O_NONBLOCK);
}

static void run_dgrams(struct ends *e)
{
	struct pump_dgrams p = { .in = e->in[0],
				 .out = e->out[1],
				 .sock = e->sock[0],
				 .stop = e->stop,
				 .most = 1000,
				 .quiet_ms = 1 };

	pump_dgrams(&p, is_over, e, &e->end);
}

/* A kernel's part: it takes datagrams to the empty one, and answers it. Were there fewer, the test would not end. */
static void *other_end(void *arg)
{
	struct job *j = arg;
	char buf[2000];
	ssize_t n;

	while ((n = recv(j->fd, buf, sizeof(buf), 0)) > 0) {
		j->bytes += (size_t)n;
		j->wrong += n > 1000;
	}
	send(j->fd, "tail", 4, 0);
	send(j->fd, "", 0, 0);
	return NULL;
}

/* A read is a datagram, of a limited length; the end of the input asks the other end for its own, and what came before that counts. */
static void dgrams_both_directions(void **state)
{
	struct ends *e = *state;
	struct job in = { e->in[1], 30000, 0, 2 }, out = { e->sock[1], 0, 0, 0 };
	char buf[1000];
	pthread_t t[2];

	e->in[1] = -1;
	assert_int_equal(send(e->sock[1], "one", 3, 0), 3);
	assert_int_equal(send(e->sock[1], "two", 3, 0), 3);
	pthread_create(&t[0], NULL, writer, &in);
	pthread_create(&t[1], NULL, other_end, &out);
	run_dgrams(e);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	assert_int_equal(out.bytes, 30000);
	assert_int_equal(out.wrong, 0);
	assert_int_equal(read(e->out[0], buf, sizeof(buf)), 10);
	assert_memory_equal(buf, "onetwotail", 10);
	assert_int_equal(e->end.read_error, 0);
	assert_int_equal(e->end.write_error, 0);
}

/* Counts datagrams and bytes to the empty one, and answers it. */
static void *collect(void *arg)
{
	struct job *j = arg;
	char buf[2000];
	ssize_t n;

	while ((n = recv(j->fd, buf, sizeof(buf), 0)) > 0) {
		j->bytes += (size_t)n;
		j->wrong++;
	}
	send(j->fd, "", 0, 0);
	return NULL;
}

/* Two writes that are apart are two datagrams. */
static void dgrams_keep_boundaries(void **state)
{
	struct ends *e = *state;
	pthread_t t;
	int pair[2];
	struct job out = { e->sock[1], 0, 0, 0 };

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
	close(e->in[0]);
	e->in[0] = pair[0];
	assert_int_equal(send(pair[1], "first", 5, 0), 5);
	assert_int_equal(send(pair[1], "second one", 10, 0), 10);
	assert_int_equal(send(pair[1], "", 0, 0), 0);
	pthread_create(&t, NULL, collect, &out);
	run_dgrams(e);
	pthread_join(t, NULL);
	assert_int_equal(out.bytes, 15);
	assert_int_equal(out.wrong, 2);
	close(pair[1]);
}

/* Nobody moves datagrams any more. */
static void dgrams_nobody_there(void **state)
{
	struct ends *e = *state;

	e->over = true;
	drop(&e->in[1]);
	run_dgrams(e);
	assert_int_equal(e->end.write_error, 0);
}

static void dgrams_stopped(void **state)
{
	struct ends *e = *state;
	uint64_t one = 1;

	assert_int_equal(write(e->stop, &one, sizeof(one)), sizeof(one));
	run_dgrams(e);
}

static void dgrams_output_fails(void **state)
{
	struct ends *e = *state;

	drop(&e->out[0]);
	assert_int_equal(send(e->sock[1], "x", 1, 0), 1);
	run_dgrams(e);
	assert_int_equal(e->end.write_error, EPIPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(both_directions, setup, teardown),
		cmocka_unit_test_setup_teardown(peer_ends_first, setup, teardown),
		cmocka_unit_test_setup_teardown(silent_input, setup, teardown),
		cmocka_unit_test_setup_teardown(input_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(stopped, setup, teardown),
		cmocka_unit_test_setup_teardown(nobody_there, setup, teardown),
		cmocka_unit_test_setup_teardown(output_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(input_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(dgrams_both_directions, setup_dgrams, teardown),
		cmocka_unit_test_setup_teardown(dgrams_keep_boundaries, setup_dgrams, teardown),
		cmocka_unit_test_setup_teardown(dgrams_nobody_there, setup_dgrams, teardown),
		cmocka_unit_test_setup_teardown(dgrams_stopped, setup_dgrams, teardown),
		cmocka_unit_test_setup_teardown(dgrams_output_fails, setup_dgrams, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
