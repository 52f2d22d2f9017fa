/* SPDX-License-Identifier: BSD-3-Clause */
/* What the subcommands of gpunet share. */
#ifndef GPUNET_TOOLS_TOOL_H
#define GPUNET_TOOLS_TOOL_H

#include <stdbool.h>
#include <stddef.h>

#include <gpunet/gpunet.h>

#include "kernels.h"
#include "url.h"

enum tool_exit { TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 };

/* A subcommand: argv[0] is "gpunet NAME", for messages; returns the exit code. */
int cmd_echo(int argc, char **argv);
int cmd_cat(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_perf(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_rnic(int argc, char **argv);

/* ---- messages (message.c) ------------------------------------------------------------------- */

/* Name that begins each message, "gpunet echo". */
void tool_set_name(const char *name);

/* One line to standard error; the value returned is the exit code that fits. */
int tool_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int tool_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The line that follows getopt's own message. */
void tool_try_help(void);

void tool_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* What the library says about its call that has just failed, else the errno `rc` (negative) in words. */
const char *tool_reason(int rc);

/* What a user can do about `err` (positive errno) of a kernel's `step` on this address; "" if we do not know. */
const char *tool_remedy(enum tool_step step, int err, const struct tool_addr *addr);

/* Fails with object, cause and remedy of what a kernel ran into. `err` is positive. */
int tool_fail_step(enum tool_step step, int err, const struct tool_addr *addr);

/* ---- signals (stop.c) ------------------------------------------------------------------------ */

/* Holds SIGINT and SIGTERM back, so that no thread of the library receives them, and ignores SIGPIPE. */
int stop_hold(void);

/* From now on SIGINT and SIGTERM abort the waits on `g`; one that comes seconds later ends the process. */
int stop_arm(gpunet_t *g);

/* Call before gpunet_close: later signals no longer touch the network. */
void stop_disarm(void);

/* Whether one of the signals came. */
bool stop_asked(void);

/* A descriptor that becomes readable when one comes, -1 before stop_hold. */
int stop_fd(void);

/* ---- the network (net.c) --------------------------------------------------------------------- */

struct tool_net {
	gpunet_t *g;
	const struct tool_kernels *kernels; /* compiled for the device that `g` is on */
};

/* Whether `text` is a device that gpunet_open may know; else says so as a usage error. */
bool tool_device_valid(const char *text);

/*
 * Opens a network on `device` (NULL: GPUNET_DEVICE, else "auto") with room for `blocks` resident blocks, loads the
 * kernels and arms the signals. TOOL_DONE, or TOOL_FAILED after a message.
 */
int tool_net_open(struct tool_net *net, const char *device, unsigned blocks);

/* Waits until the kernels have ended: 0 or a negative errno. After a signal it waits a bounded time: -ETIMEDOUT. */
int tool_net_wait(struct tool_net *net);

/* Waits at most `drain_ms` for what is still to be sent, then closes. TOOL_DONE, or TOOL_FAILED after a message. */
int tool_net_close(struct tool_net *net, unsigned drain_ms);

/* ---- UNIX socket files (unix_path.c) ---------------------------------------------------------- */

/*
 * Before a kernel binds a path: removes the socket file of a server that is gone, as servers do. 0; -EADDRINUSE: a
 * server listens there; -EEXIST: what is there is no socket; or another negative errno. Nothing to do for other addresses.
 */
int unix_path_claim(const struct tool_addr *addr);

/* The file that a kernel's bind made, to be removed at the end and only if it is still that one. */
struct unix_path {
	char path[URL_PATH_MAX + 1]; /* "": none */
	unsigned long long device, inode;
};

void unix_path_remember(struct unix_path *file, const struct tool_addr *addr);
void unix_path_remove(const struct unix_path *file);

/* ---- JSON (json.c) --------------------------------------------------------------------------- */

/* A subcommand whose only option is --json: reads its command line and runs `report`; the exit code. */
int tool_report(int argc, char **argv, void (*help)(void), int (*report)(bool json));

/* To standard output, quoted. */
void json_string(const char *text);

/* ,"key":"text" without the comma if `first` */
void json_member(bool first, const char *key, const char *text);

/* ---- numbers ---------------------------------------------------------------------------------- */

/* Decimal, from `min` to `max`; else a usage error that names `option`, and false. */
bool tool_number(const char *option, const char *text, unsigned min, unsigned max, unsigned *out);

/* ---- hops.c ------------------------------------------------------------------------------------- */

struct gpunet_hops;

void hops_text(const struct gpunet_hops *h);
/* A member "hops" behind others. */
void hops_json(const struct gpunet_hops *h);

#endif
