/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Protection domains and memory regions. A key is 32 random bits that are looked up in a table, not an index:
 * knowing one key, or how many regions there are, tells nothing about another, and the key of a region that is gone
 * names nothing (but for the one chance in 2^32 that a later region draws it again).
 *
 * Each packet looks its key up anew, so a region can be destroyed or invalidated at any time, in the middle of a
 * message too.
 */
#include "rnic/impl.h"

#include <errno.h>
#include <string.h>

/* mlx5 receive queues end a scatter list with this local key. */
#define KEY_TERMINATOR 0x100u

int rnic_pd_create(struct rnic *r, struct rnic_pd **out)
{
	struct rnic_pd *pd = rnic_alloc(1, sizeof(*pd));

	if (!pd)
		return -ENOMEM;
	pd->r = r;
	r->npd++;
	*out = pd;
	return 0;
}

int rnic_pd_destroy(struct rnic_pd *pd)
{
	if (pd->refs)
		return -EBUSY;
	pd->r->npd--;
	sys.free(pd);
	return 0;
}

/* --- keys --------------------------------------------------------------------------------------- */

int rnic_keys_init(struct rnic_keys *k, uint32_t max_mr)
{
	uint32_t n = 16;

	while (n < 4 * max_mr) /* two keys a region, at most half full */
		n *= 2;
	k->slot = rnic_alloc(n, sizeof(*k->slot));
	k->mask = n - 1;
	k->max = 2 * max_mr;
	return k->slot ? 0 : -ENOMEM;
}

void rnic_keys_free(struct rnic_keys *k)
{
	sys.free(k->slot);
}

/* Keys are random, so their low bits are a hash already. */
static struct rnic_key *key_slot(struct rnic_keys *k, uint32_t key)
{
	uint32_t i = key & k->mask;

	while (k->slot[i].key && k->slot[i].key != key)
		i = (i + 1) & k->mask;
	return &k->slot[i];
}

static struct rnic_mr *key_find(struct rnic_keys *k, uint32_t key)
{
	return key ? key_slot(k, key)->mr : NULL;
}

static uint32_t key_add(struct rnic *r, struct rnic_mr *mr)
{
	struct rnic_key *s;
	uint32_t key;

	do {
		key = (uint32_t)r->cfg.random(r->cfg.ctx);
		s = key_slot(&r->keys, key);
	} while (!key || key == KEY_TERMINATOR || s->key);
	s->key = key;
	s->mr = mr;
	r->keys.used++;
	return key;
}

/* Empties a slot and moves up what a search from its own place would no longer reach. */
static void key_remove(struct rnic_keys *k, uint32_t key)
{
	uint32_t hole = (uint32_t)(key_slot(k, key) - k->slot);
	uint32_t i = hole;

	k->used--;
	for (;;) {
		i = (i + 1) & k->mask;
		if (!k->slot[i].key)
			break;
		if (((i - k->slot[i].key) & k->mask) < ((i - hole) & k->mask))
			continue; /* its home lies behind the hole */
		k->slot[hole] = k->slot[i];
		hole = i;
	}
	k->slot[hole] = (struct rnic_key){ 0, NULL };
}

/* --- regions ------------------------------------------------------------------------------------ */

static int region(struct rnic_pd *pd, uint64_t addr, uint64_t len, uint64_t iova, unsigned access,
		  struct rnic_mr **out)
{
	struct rnic *r = pd->r;
	struct rnic_mr *mr;

	if (!len || iova + len - 1 < iova || addr + len - 1 < addr)
		return -EINVAL;
	if (access & ~(unsigned)RNIC_ACCESS_ALL)
		return -EINVAL;
	if (access & (RNIC_ACCESS_REMOTE_WRITE | RNIC_ACCESS_REMOTE_ATOMIC) &&
	    !(access & RNIC_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	if (r->keys.used + 2 > r->keys.max)
		return -ENOMEM;
	mr = rnic_alloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	mr->pd = pd;
	mr->address = addr;
	mr->iova = iova;
	mr->len = len;
	mr->access = access;
	mr->lkey = key_add(r, mr);
	mr->rkey = key_add(r, mr);
	pd->refs++;
	*out = mr;
	return 0;
}

int rnic_mr_create(struct rnic_pd *pd, void *addr, uint64_t len, uint64_t iova, unsigned access,
		   struct rnic_mr **out)
{
	int rc = region(pd, (uintptr_t)addr, len, iova, access, out);

	if (!rc)
		(*out)->base = addr;
	return rc;
}

int rnic_mr_create_far(struct rnic_pd *pd, uint64_t addr, uint64_t len, uint64_t iova,
		       unsigned access, struct rnic_mr **out)
{
	struct rnic_dma *d = pd->r->dma;
	int rc;

	if (!d)
		return -EOPNOTSUPP;
	if (!len)
		return -EINVAL;
	rc = d->copier->ops->check(d->copier, addr, len);
	rc = rc ? rc : region(pd, addr, len, iova, access, out);
	if (!rc)
		(*out)->far = true;
	return rc;
}

void rnic_mr_destroy(struct rnic_mr *mr)
{
	struct rnic_keys *k = &mr->pd->r->keys;

	if (mr->far)
		rnic_dma_mr_end(mr);

	key_remove(k, mr->lkey);
	if (mr->rkey)
		key_remove(k, mr->rkey);
	mr->pd->refs--;
	sys.free(mr);
}

uint32_t rnic_mr_lkey(const struct rnic_mr *mr)
{
	return mr->lkey;
}

uint32_t rnic_mr_rkey(const struct rnic_mr *mr)
{
	return mr->rkey;
}

bool rnic_invalidate(struct rnic_pd *pd, uint32_t rkey)
{
	struct rnic_keys *k = &pd->r->keys;
	struct rnic_mr *mr = key_find(k, rkey);

	if (!mr || mr->pd != pd || mr->rkey != rkey)
		return false;
	key_remove(k, rkey);
	mr->rkey = 0;
	return true;
}

/* --- access ------------------------------------------------------------------------------------- */

static bool bounded(const struct rnic_mr *mr, uint64_t va, uint32_t len, unsigned access,
		    struct rnic_span *s)
{
	uint64_t off = va - mr->iova;

	if ((mr->access & access) != access)
		return false;
	/* An address below iova wraps to a large offset. */
	if (off >= mr->len || len > mr->len - off)
		return false;
	if (mr->far && mr->pd->r->dma->failed)
		return false;
	*s = (struct rnic_span){ .p = mr->far ? NULL : mr->base + off,
				 .addr = mr->address + off,
				 .len = len,
				 .far = mr->far,
				 .mr = mr };
	return true;
}

bool rnic_remote(struct rnic_pd *pd, uint32_t rkey, uint64_t va, uint32_t len, unsigned access,
		 struct rnic_span *s)
{
	struct rnic_mr *mr = key_find(&pd->r->keys, rkey);

	if (!mr || mr->rkey != rkey || mr->pd != pd)
		return false;
	return bounded(mr, va, len, access, s);
}

static bool local_span(struct rnic_pd *pd, const struct rnic_sge *sge, uint32_t off, uint32_t len,
		       unsigned access, struct rnic_span *s)
{
	struct rnic_mr *mr = key_find(&pd->r->keys, sge->lkey);

	if (!mr || mr->lkey != sge->lkey || mr->pd != pd)
		return false;
	return bounded(mr, sge->addr + off, len, access, s);
}

void rnic_place(uint8_t *dst, const uint8_t *src, size_t len)
{
	uintptr_t end = (uintptr_t)dst + len;
	size_t w = 8;

	if (!len)
		return;
	while (w > len || (end & (w - 1)))
		w /= 2;
	memcpy(dst, src, len - w);
	dst += len - w;
	src += len - w;
	switch (w) {
	case 8: {
		uint64_t v;

		memcpy(&v, src, 8);
		__atomic_store_n((uint64_t *)(void *)dst, v, __ATOMIC_RELEASE);
		break;
	}
	case 4: {
		uint32_t v;

		memcpy(&v, src, 4);
		__atomic_store_n((uint32_t *)(void *)dst, v, __ATOMIC_RELEASE);
		break;
	}
	case 2: {
		uint16_t v;

		memcpy(&v, src, 2);
		__atomic_store_n((uint16_t *)(void *)dst, v, __ATOMIC_RELEASE);
		break;
	}
	default:
		__atomic_store_n(dst, *src, __ATOMIC_RELEASE);
	}
}

int rnic_spans(struct rnic_pd *pd, const struct rnic_sge *sge, unsigned nsge, uint32_t off,
	       uint32_t len, unsigned access, struct rnic_span *s, unsigned max)
{
	unsigned i, n = 0;

	for (i = 0; i < nsge && len; i++) {
		uint32_t piece = sge[i].len;

		if (off >= piece) {
			off -= piece;
			continue;
		}
		piece -= off;
		if (piece > len)
			piece = len;
		if (n == max || !local_span(pd, &sge[i], off, piece, access, &s[n++]))
			return -EFAULT;
		len -= piece;
		off = 0;
	}
	return len ? -EFAULT : (int)n;
}

bool rnic_far_list(struct rnic_pd *pd, const struct rnic_sge *sge, unsigned nsge)
{
	struct rnic_span s;
	unsigned i;

	for (i = 0; i < nsge; i++)
		if (sge[i].len && local_span(pd, &sge[i], 0, 1, 0, &s) && s.far)
			return true;
	return false;
}

int rnic_gather(struct rnic_pd *pd, const struct rnic_sge *sge, unsigned nsge, uint32_t off,
		uint32_t len, struct iovec *seg, unsigned max)
{
	struct rnic_span s[RNIC_MAX_SGE];
	int i, n = rnic_spans(pd, sge, nsge, off, len, 0, s,
			      max < RNIC_MAX_SGE ? max : RNIC_MAX_SGE);

	for (i = 0; i < n; i++) {
		if (s[i].far)
			return -EREMOTE;
		seg[i] = (struct iovec){ s[i].p, s[i].len };
	}
	return n;
}

/* Room for what of the pieces goes to far memory. */
static bool room(struct rnic *r, const struct rnic_span *s, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (s[i].far)
			return rnic_dma_room(r);
	return true;
}

int rnic_scatter(struct rnic_qp *qp, const struct rnic_scatter *to, const uint8_t *data,
		 uint32_t len)
{
	struct rnic_span s[RNIC_MAX_SGE];
	int i, n;

	/* All of it is checked before any of it is written. */
	n = rnic_spans(to->pd, to->sge, to->nsge, to->off, len, RNIC_ACCESS_LOCAL_WRITE, s,
		       RNIC_MAX_SGE);
	if (n < 0)
		return n;
	if (qp->dma && !room(qp->r, s, n))
		return -EAGAIN;
	for (i = 0; i < n; i++) {
		/* Only behind the last piece more can follow at the next address. */
		if (s[i].far)
			rnic_dma_put(qp, to->run, s[i].mr, s[i].addr, data, s[i].len,
				     i == n - 1 ? to->total : s[i].len);
		else
			rnic_place(s[i].p, data, s[i].len);
		data += s[i].len;
	}
	return 0;
}
