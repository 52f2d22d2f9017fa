/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first and only service of a test machine: runs the shell commands that the host sends.
 *
 * A connection is a command. The host sends "LENGTH INPUT\n", LENGTH bytes of command, INPUT bytes for its
 * standard input; what the command prints comes back as it is printed, and after its end the line "\0N\n" with its
 * exit code (128 + signal). A connection that the host closes early ends the command and all that it started, so a
 * host that dies leaves nothing behind.
 *
 * It runs as process 1: it never ends, and its ignored SIGCHLD reaps orphans.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT 9999
#define COMMAND_MAX 65536

static int read_all(int fd, char *to, size_t n)
{
	ssize_t got;

	for (; n; n -= (size_t)got, to += got) {
		got = read(fd, to, n);
		if (got <= 0)
			return -1;
	}
	return 0;
}

static int write_all(int fd, const char *from, size_t n)
{
	ssize_t put;

	for (; n; n -= (size_t)put, from += put) {
		put = write(fd, from, n);
		if (put < 0)
			return -1;
	}
	return 0;
}

static int read_sizes(int conn, unsigned long *command, unsigned long *input)
{
	char line[64];
	size_t n = 0;

	do {
		if (n == sizeof(line) - 1 || read_all(conn, line + n, 1))
			return -1;
	} while (line[n++] != '\n');
	line[n] = 0;
	return sscanf(line, "%lu %lu", command, input) == 2 && *command < COMMAND_MAX ? 0 : -1;
}

static pid_t start(int conn, const char *command, int input)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	setpgid(0, 0);
	dup2(input, 0);
	dup2(conn, 1);
	dup2(conn, 2);
	syscall(SYS_close_range, 3, ~0U, 0);
	execl("/bin/bash", "bash", "-c", command, (char *)NULL);
	_exit(127);
}

static void feed(int conn, int pipe_in, unsigned long n)
{
	static char buf[65536];
	size_t part;

	for (; n; n -= part) {
		part = n < sizeof(buf) ? n : sizeof(buf);
		if (read_all(conn, buf, part) || write_all(pipe_in, buf, part))
			return;
	}
}

/* Until the command ends, or the host hangs up. */
static void watch(int conn, pid_t pid)
{
	struct pollfd fds[2] = {
		{ .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN },
		{ .fd = conn, .events = POLLRDHUP },
	};

	while (poll(fds, 2, -1) < 0 && errno == EINTR)
		;
}

static void serve(int conn)
{
	static char command[COMMAND_MAX];
	unsigned long length, input;
	int pipe_in[2], status, n;
	char end[16];
	pid_t pid;

	if (read_sizes(conn, &length, &input) || read_all(conn, command, length) || pipe(pipe_in))
		return;
	pid = start(conn, command, pipe_in[0]);
	if (pid < 0)
		return;
	setpgid(pid, pid);
	close(pipe_in[0]);
	feed(conn, pipe_in[1], input);
	close(pipe_in[1]);
	watch(conn, pid);
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	n = snprintf(end, sizeof(end), "%c%d\n", 0,
		     WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	write_all(conn, end, (size_t)n);
}

int main(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int conn;

	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) || listen(listener, 64)) {
		perror("agent");
		return 1;
	}
	for (;;) {
		conn = accept(listener, NULL, NULL);
		if (conn < 0)
			continue;
		if (fork() == 0) {
			signal(SIGCHLD, SIG_DFL);
			close(listener);
			serve(conn);
			_exit(0);
		}
		close(conn);
	}
}
