/* SPDX-License-Identifier: BSD-3-Clause */
/* SIGINT and SIGTERM end the waits of the network's kernels. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "tool.h"

static _Atomic(gpunet_t *) stop_net;
static atomic_int stop_signal;
static atomic_long stop_second; /* when the first one came */
static int stop_event = -1;

#define PATIENCE_S 3 /* what a first signal asked for has ended by then, or never will */

static void on_signal(int number)
{
	gpunet_t *g = atomic_load(&stop_net);
	int saved = errno;
	uint64_t one = 1;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!atomic_load(&stop_signal))
		atomic_store(&stop_second, (long)now.tv_sec);
	else if ((long)now.tv_sec - atomic_load(&stop_second) > PATIENCE_S)
		_exit(TOOL_FAILED);
	atomic_store(&stop_signal, number);
	if (g)
		gpunet_abort(g);
	if (write(stop_event, &one, sizeof(one)) < 0) {
		/* It can only be full, and then it is readable, which is all that is wanted. */
	}
	errno = saved;
}

static void stop_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
}

int stop_hold(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop_event < 0)
		return -errno;
	stop_set(&set);
	return sigprocmask(SIG_BLOCK, &set, NULL) == 0 ? 0 : -errno;
}

int stop_arm(gpunet_t *g)
{
	struct sigaction action = { .sa_handler = on_signal };
	sigset_t set;

	stop_set(&set);
	action.sa_mask = set;
	atomic_store(&stop_net, g);
	if (sigaction(SIGINT, &action, NULL) != 0 || sigaction(SIGTERM, &action, NULL) != 0 ||
	    sigprocmask(SIG_UNBLOCK, &set, NULL) != 0)
		return -errno;
	return 0;
}

void stop_disarm(void)
{
	/* The handler runs on this thread only, for the others were started with the signals held back. */
	atomic_store(&stop_net, NULL);
}

bool stop_asked(void)
{
	return atomic_load(&stop_signal) != 0;
}

int stop_fd(void)
{
	return stop_event;
}
