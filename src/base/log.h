/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's messages. An error is logged once, by the function that first decides that it is one, and names the
 * object, the cause and the remedy. The text of the last error of the calling thread is what gpunet_last_error() gives.
 */
#ifndef GPUNET_BASE_LOG_H
#define GPUNET_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_NOTE, LOG_DEBUG };

/* Writes a line to standard error if `level` is at most the threshold (GPUNET_LOG=error|warn|note|debug; warn). */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Keeps the text as this thread's last error, logs it at LOG_ERROR, and returns `err`, a negative errno. */
int log_error(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Keeps the text as this thread's last error without a line in the log: another thread has logged it. */
void log_keep(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* This thread's last error text; "" if none. Valid until the thread's next log_error or log_keep. */
const char *log_last(void);

void log_set_level(enum log_level level);
enum log_level log_get_level(void);

#endif
