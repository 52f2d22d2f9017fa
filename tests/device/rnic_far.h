/* SPDX-License-Identifier: BSD-3-Clause */
/* What rnic_far.c asks of CUDA: memory of three kinds, copies, a kernel that watches. 0 or -1 after a message. */
#ifndef GPUNET_TEST_RNIC_FAR_H
#define GPUNET_TEST_RNIC_FAR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum far_kind { FAR_MALLOC, FAR_POOL, FAR_VMM, FAR_KINDS };

/* What host and watching kernel share, in pinned memory. */
struct far_watch {
	uint64_t seen;  /* the kernel: turns that it saw and checked */
	uint64_t wrong; /* … with old bytes behind a new flag */
	uint64_t ended; /* the watching kernel */
	uint64_t stop;  /* the host: end now */
};

int far_open(void); /* 77: there is no GPU */
/* VMM memory is mapped from pieces, which are as small as they can be. */
int far_alloc(enum far_kind kind, size_t size, void **out, size_t *seam);
int far_put(void *gpu, const void *host, size_t n);
int far_get(void *host, const void *gpu, size_t n);
/*
 * Starts a kernel that waits for flag == 1, 2, … `turns` and looks then whether each of `words` 8-byte words at `payload` is
 * FAR_WORD(turn, i). Ends when `turns` are over or `stop` is set, which it is at exit.
 */
int far_watch_start(struct far_watch **w, const void *payload, unsigned words, const void *flag,
		    uint64_t turns);
int far_watch_end(void);
/* A kernel that leaves no room for another: it fills all multiprocessors until `stop`. `seen`: blocks that run. */
int far_crowd_start(struct far_watch **w, unsigned *blocks);

#define FAR_WORD(turn, i) ((uint64_t)(turn)*UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(i))

#ifdef __cplusplus
}
#endif

#endif
