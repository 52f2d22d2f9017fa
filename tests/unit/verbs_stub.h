/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A provider of verbs within one process: queue pairs are memory copies, the network is a table of ports. It checks what a device
 * would (keys, bounds, rights, queue depths, lifetimes) and can be told to fail.
 */
#ifndef GPUNET_TESTS_UNIT_VERBS_STUB_H
#define GPUNET_TESTS_UNIT_VERBS_STUB_H

#include "verbs/verbs.h"

extern const struct verbs_ops verbs_stub;

/* Makes the library use it. Everything that was set below is forgotten. */
void stub_install(void);

/* The n-th call (from 1) of this slot fails with `err`, a positive errno. */
void stub_fail(const char *slot, unsigned nth, int err);
/* Every call of a slot that can fail counts: the n-th one of all fails. */
void stub_fail_any(unsigned nth, int err);
/* Calls of slots that can fail so far. */
unsigned stub_calls(void);
/* Has what was asked to fail failed? */
int stub_failed(void);
/* The next send whose immediate begins with `op` (see wire/rsocket.h; -1: any) completes with `status`. */
void stub_status(int op, uint32_t status);
/* From now on nothing that is posted arrives or completes; stub_thaw(status): what is posted completes with `status`, 0: arrives. */
void stub_freeze(void);
void stub_thaw(uint32_t status);
/* That a goodbye was acknowledged is found in the completion queue only when the id's DISCONNECTED has been taken. */
void stub_late(void);
/* While it is set, who accepts is not told that the connection is established: the peer's RTU is lost. */
extern int stub_no_rtu;
/* Objects that are alive: 0 when all was given back. */
int stub_objects(void);
/* Receiver-not-ready stops, work requests posted and calls that posted some so far. */
unsigned stub_rnr(void);
unsigned stub_posted(void);
unsigned stub_post_calls(void);
/* How often a queue for completions of sends was armed. */
unsigned stub_ack_arms(void);
/*
 * Memory of a GPU: which kinds of it `reg` takes (STUB_*) [none, and the device says that it is software]. A refused dma-buf is
 * -EOPNOTSUPP, a refused pointer to such memory -EFAULT.
 */
#define STUB_DMABUF 1u
#define STUB_PEERMEM 2u
void stub_gpu(unsigned takes);
/* Regions of a GPU's memory that were registered so far, other than to try it: by dma-buf, by pointer. */
unsigned stub_regs(unsigned kind);
/* Inline bytes of new queue pairs [64]. */
void stub_inline(unsigned n);

#endif
