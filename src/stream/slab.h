/* SPDX-License-Identifier: BSD-3-Clause */
/* The pinned memory of all data rings, in segments of one size. Any thread. */
#ifndef GPUNET_STREAM_SLAB_H
#define GPUNET_STREAM_SLAB_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct slab {
	pthread_mutex_t lock;
	uint8_t *base;
	unsigned seg_log2;
	uint32_t n;
	uint32_t n_free;
	uint32_t *free; /* a stack */
	/* How often a thread's datagrams have asked for a segment that another thread's idle readers may have. */
	_Atomic uint64_t asked;
};

/* `base` has n << seg_log2 bytes and stays the caller's. */
int slab_init(struct slab *s, uint8_t *base, unsigned seg_log2, uint32_t n);
void slab_fini(struct slab *s);

/* A segment's number, or -ENOBUFS when all are in use (option slab_bytes). */
int slab_get(struct slab *s);
void slab_put(struct slab *s, int seg);
uint32_t slab_used(struct slab *s);
/* More than half are in use: who has one for sending gives it back soon. */
bool slab_scarce(struct slab *s);

/* Of a segment: a power of two. */
static inline uint64_t slab_seg_size(const struct slab *s)
{
	return UINT64_C(1) << s->seg_log2;
}

static inline uint8_t *slab_at(const struct slab *s, int seg)
{
	return s->base + ((uint64_t)(uint32_t)seg << s->seg_log2);
}

#endif
