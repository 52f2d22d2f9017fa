/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that cannot be given back yet. Freeing and unpinning wait for every kernel in the context, also for a resident one of
 * another network, which may never end. So while another handle of the context is open, what a handle frees is kept, used
 * again by the next allocation of its size, and freed with the last handle.
 */
#include "platform/cuda/device.h"

#include "base/sys.h"

#include <pthread.h>
#include <string.h>

struct kept {
	struct kept *next;
	cuda_context ctx;
	struct platform_mem mem;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_dev *handles; /* that are open */
static struct kept *memory;

void cuda_keep_open(struct cuda_dev *d)
{
	pthread_mutex_lock(&lock);
	d->next = handles;
	handles = d;
	pthread_mutex_unlock(&lock);
}

bool cuda_keep_has(cuda_device id)
{
	const struct cuda_dev *h;

	pthread_mutex_lock(&lock);
	for (h = handles; h && h->id != id; h = h->next)
		continue;
	pthread_mutex_unlock(&lock);
	return h != NULL;
}

static bool shared(const struct cuda_dev *d)
{
	const struct cuda_dev *h;

	for (h = handles; h; h = h->next) {
		if (h != d && h->ctx == d->ctx)
			return true;
	}
	return false;
}

bool cuda_keep_put(const struct cuda_dev *d, struct platform_mem *m)
{
	struct kept *k;
	bool keep;

	pthread_mutex_lock(&lock);
	keep = shared(d);
	pthread_mutex_unlock(&lock);
	k = keep ? sys.alloc(sizeof(*k)) : NULL;
	if (!k)
		return false;
	k->ctx = d->ctx;
	k->mem = *m;
	/* If the others have closed meanwhile, this handle is the last and frees it when it closes. */
	pthread_mutex_lock(&lock);
	k->next = memory;
	memory = k;
	pthread_mutex_unlock(&lock);
	memset(m, 0, sizeof(*m));
	return true;
}

/* Takes one allocation of the context out of the list: of `mapped` bytes, host memory or not, or any if `mapped` is 0. */
static bool is_such(const struct platform_mem *m, size_t mapped, bool host, bool shared)
{
	return m->mapped == mapped && !m->host != host && (!host || m->shared == shared);
}

/* mapped 0: any. */
static struct kept *take(const struct cuda_dev *d, size_t mapped, bool host, bool shared)
{
	struct kept **at, *k = NULL;

	for (at = &memory; *at; at = &(*at)->next) {
		if ((*at)->ctx != d->ctx || (mapped && !is_such(&(*at)->mem, mapped, host, shared)))
			continue;
		k = *at;
		*at = k->next;
		break;
	}
	return k;
}

bool cuda_keep_take(const struct cuda_dev *d, size_t mapped, bool host, bool shared,
		    struct platform_mem *out)
{
	struct kept *k;

	pthread_mutex_lock(&lock);
	k = take(d, mapped, host, shared);
	pthread_mutex_unlock(&lock);
	if (!k)
		return false;
	*out = k->mem;
	sys.free(k);
	return true;
}

void cuda_keep_close(struct cuda_dev *d)
{
	struct cuda_dev **at;
	struct kept *k;
	bool last;

	pthread_mutex_lock(&lock);
	for (at = &handles; *at != d; at = &(*at)->next)
		;
	*at = d->next;
	last = !shared(d);
	pthread_mutex_unlock(&lock);
	while (last) {
		pthread_mutex_lock(&lock);
		k = take(d, 0, false, false);
		pthread_mutex_unlock(&lock);
		if (!k)
			break;
		cuda_mem_free(d, &k->mem);
		sys.free(k);
	}
}
