/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A proxy whose threads are stepped by hand, on a clock of the test's, with a table of sockets where the test wants one; its
 * kernels are played by the test.
 */
#ifndef GPUNET_TEST_PROXY_RIG_H
#define GPUNET_TEST_PROXY_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "proxy/proxy.h"
#include "socket/socket.h"

enum { RIG_THREADS = 4, RIG_SQ_LOG2 = 10, RIG_SEG_LOG2 = 16, RIG_SEGMENTS = 80 };

struct proxy_rig {
	struct platform_ops platform;
	struct platform_dev *dev;
	struct proxy *proxy;
	struct gnet_sqe sq[RIG_THREADS << RIG_SQ_LOG2];
	struct gnet_sq_head sq_head[RIG_THREADS];
	struct gnet_call calls[64];
	struct gnet_ctl ctl;
	struct gnet_news news[RIG_THREADS];
	uint64_t tail[RIG_THREADS], now;

	/* With sockets */
	struct gnet_sock_bus *bus; /* pages of its own */
	struct slab slab;
	struct sockets all;
};
extern struct proxy_rig rig;

/* 0, or it has failed. */
int rig_open(const struct platform_ops *platform, unsigned threads, bool ring);
/* The table `p`: max, and what a test wants besides. */
int rig_open_sockets(struct sockets_params p);
/* And takes back what the test has set in `sys`. */
void rig_close(void);

/* A kernel's entry with n bytes after cell 0. */
void rig_put(unsigned q, unsigned op, int fd, const void *data, unsigned n);
/* A pass, `ns` after the one before; how much was done. */
unsigned rig_step(unsigned q, uint64_t ns);

/* A name of this process among UNIX sockets: its length. */
socklen_t rig_unix_name(struct sockaddr_un *a, const char *what);
/* A kernel's socket of thread q. */
struct sock *rig_socket(unsigned q, int domain, int type);
/* A kernel's listener. */
struct sock *rig_listen(unsigned q, const void *a, socklen_t n);
/* A kernel takes the next connection out of the accept ring: its descriptor, or 0. */
int rig_claim(const struct sock *listener);
/* How far the socket's line tells of bytes. */
uint64_t rig_told(const struct sock *s);

/* As many connections as wanted, if this process may have the descriptors for both their ends. */
unsigned rig_connections(unsigned wanted);
/* The processor time of this thread. */
double rig_thread_us(void);
/* In place of platform_ops.notify: the CPU device's kernels are woken by system calls, a GPU's are not. */
void rig_no_notify(struct platform_dev *dev, const void *word);

#endif
