/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 768

static _Thread_local char last_error[LINE_MAX_BYTES];
static _Atomic int threshold = -1;

static const char *const names[] = { "error", "warning", "note", "debug" };

/* -1: the variable has no such word. */
static int level_from_env(const char *s)
{
	static const char *const words[] = { "error", "warn", "note", "debug" };
	int i;

	if (!s || !*s)
		return LOG_WARN;
	for (i = 0; i < (int)(sizeof(words) / sizeof(words[0])); i++) {
		if (!strcmp(s, words[i]))
			return i;
	}
	return -1;
}

enum log_level log_get_level(void)
{
	int t = atomic_load_explicit(&threshold, memory_order_relaxed);

	if (t < 0) {
		const char *s = getenv("GPUNET_LOG");
		int known = level_from_env(s), unset = -1;

		t = known < 0 ? LOG_WARN : known;
		/* One thread says it; the line below asks for the level itself. */
		if (atomic_compare_exchange_strong(&threshold, &unset, t) && known < 0)
			log_line(LOG_WARN,
				 "GPUNET_LOG=%s is not error, warn, note or debug; warn is used",
				 s);
	}
	return (enum log_level)t;
}

void log_set_level(enum log_level level)
{
	atomic_store_explicit(&threshold, (int)level, memory_order_relaxed);
}

/*
 * Not when the reader of a pipe has stopped, since all sockets of a proxy thread would wait with it, nor when it has gone: SIGPIPE
 * would end the process.
 */
static bool takes_a_line(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };

	return poll(&p, 1, 0) == 1 && p.revents == POLLOUT;
}

/* One write a line, so that lines of several threads do not mix. */
static void emit(enum log_level level, const char *text)
{
	char line[LINE_MAX_BYTES + 32];
	int n;

	if (level > log_get_level() || !takes_a_line())
		return;
	n = snprintf(line, sizeof(line), "gpunet: %s: %s\n", names[level], text);
	if (n > (int)sizeof(line) - 1)
		n = (int)sizeof(line) - 1;
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return; /* nowhere to report it */
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char text[LINE_MAX_BYTES];
	va_list ap;

	if (level > log_get_level())
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	emit(level, text);
}

int log_error(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
	emit(LOG_ERROR, last_error);
	return err;
}

void log_keep(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(last_error, sizeof(last_error), fmt, ap);
	va_end(ap);
}

const char *log_last(void)
{
	return last_error;
}
