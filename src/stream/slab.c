/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream/slab.h"

#include <errno.h>

#include "base/sys.h"

int slab_init(struct slab *s, uint8_t *base, unsigned seg_log2, uint32_t n)
{
	uint32_t i;

	s->free = sys.alloc(n * sizeof(*s->free));
	if (!s->free)
		return -ENOMEM;
	pthread_mutex_init(&s->lock, NULL);
	s->base = base;
	s->seg_log2 = seg_log2;
	s->n = s->n_free = n;
	s->asked = 0;
	for (i = 0; i < n; i++)
		s->free[i] = n - 1 - i;
	return 0;
}

void slab_fini(struct slab *s)
{
	if (!s->free)
		return;
	pthread_mutex_destroy(&s->lock);
	sys.free(s->free);
	s->free = NULL;
}

int slab_get(struct slab *s)
{
	int seg = -ENOBUFS;

	pthread_mutex_lock(&s->lock);
	if (s->n_free)
		seg = (int)s->free[--s->n_free];
	pthread_mutex_unlock(&s->lock);
	return seg;
}

void slab_put(struct slab *s, int seg)
{
	pthread_mutex_lock(&s->lock);
	s->free[s->n_free++] = (uint32_t)seg;
	pthread_mutex_unlock(&s->lock);
}

uint32_t slab_used(struct slab *s)
{
	uint32_t used;

	pthread_mutex_lock(&s->lock);
	used = s->n - s->n_free;
	pthread_mutex_unlock(&s->lock);
	return used;
}

bool slab_scarce(struct slab *s)
{
	return slab_used(s) > s->n / 2;
}
