/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer: ucx_perftest (Debian: ucx-utils) over its TCP transport on the loopback interface. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rnic.h"

#define TRIES 20

static pid_t start(const char *host, const char *port, const char *test, unsigned size,
		   unsigned count, int out)
{
	char size_text[16], count_text[16], warm_text[16];
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(size_text, sizeof(size_text), "%u", size);
	snprintf(count_text, sizeof(count_text), "%u", count);
	snprintf(warm_text, sizeof(warm_text), "%u", count / 10);
	setenv("UCX_TLS", "tcp", 1);
	setenv("UCX_NET_DEVICES", "lo", 1);
	setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	if (host)
		execlp("ucx_perftest", "ucx_perftest", host, "-p", port, "-t", test, "-s",
		       size_text, "-n", count_text, "-w", warm_text, "-f", "-v", (char *)NULL);
	else
		execlp("ucx_perftest", "ucx_perftest", "-p", port, "-f", (char *)NULL);
	_exit(127);
}

/* The client's output; its exit code. */
static int client_output(const char *port, const char *test, unsigned size, unsigned count,
			 char *text, size_t room)
{
	int fd[2], status = 0;
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	if (pipe(fd))
		die("no pipe: %s", strerror(errno));
	pid = start("127.0.0.1", port, test, size, count, fd[1]);
	close(fd[1]);
	while (n + 1 < room && (got = read(fd[0], text + n, room - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = 0;
	close(fd[0]);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The last line is iterations, latencies (percentile, average, overall), MiB/s and messages a second (average, overall). */
static struct ucx_result understand(const char *text)
{
	struct ucx_result r = { NAN, NAN, "ucx_perftest printed something else" };
	const char *line = text, *at;
	double v[8];

	for (at = text; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
		line = at;
	if (sscanf(line, "%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf", &v[0], &v[1], &v[2], &v[3], &v[4],
		   &v[5], &v[6], &v[7]) != 8)
		return r;
	return (struct ucx_result){ v[5] * 1048576 / 1e9, v[1], NULL };
}

struct ucx_result ucx_run(const char *test, unsigned size, unsigned count)
{
	struct ucx_result r = { NAN, NAN,
				"not measured: ucx_perftest is missing (Debian: apt install "
				"ucx-utils)" };
	char port[8], text[8192];
	pid_t server;
	int code = 1, i;

	snprintf(port, sizeof(port), "%d", 20000 + getpid() % 20000);
	server = start(NULL, port, test, size, count, open("/dev/null", O_WRONLY | O_CLOEXEC));
	for (i = 0; i < TRIES && code && code != 127; i++) {
		usleep(50000);
		code = client_output(port, test, size, count, text, sizeof(text));
	}
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	if (code == 127)
		return r;
	r.why = "not measured: ucx_perftest failed";
	return code ? r : understand(text);
}
