/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits that gave up: from what kernels wrote (struct gnet_gave_up) to words, in the page of <gpunet/stat.h> and in the log. */
#ifndef GPUNET_SOCKET_REPORT_H
#define GPUNET_SOCKET_REPORT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpunet/dev/abi/bus.h>
#include <gpunet/gpunet.h>

struct proxy;
struct stat_book;

/* Any thread. */
struct reports {
	const struct gnet_gave_up *ring;
	const struct stat_book *stat;
	const struct proxy *proxy;
	pthread_mutex_t lock;
	uint64_t next;  /* record not looked at */
	uint64_t total; /* reports so far */
	/* lines in the log */
	uint64_t second; /* they are counted in */
	unsigned lines, skipped;
};

void reports_open(struct reports *r, const struct gnet_gave_up *ring, const struct stat_book *stat,
		  const struct proxy *proxy);
void reports_close(struct reports *r);
/* Takes what was written since. */
void reports_collect(struct reports *r);
int reports_each(struct reports *r, int (*fn)(const struct gpunet_report *v, void *arg), void *arg);

/* The name of an enum gnet_wait_call, with `n` for those that have one. */
const char *report_call(unsigned call);

#endif
