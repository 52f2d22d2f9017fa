/* SPDX-License-Identifier: BSD-3-Clause */
/* The submission queue's consumer: docs/bus.md, rules S3 and S4. */
#include "proxy/internal.h"

#include <string.h>

static const struct gnet_sqe *entry_at(const struct proxy_params *p, unsigned q, uint64_t pos)
{
	uint64_t mask = (UINT64_C(1) << p->sq_log2) - 1;

	return &p->sq[((uint64_t)q << p->sq_log2) + (pos & mask)];
}

/* Loads the cells of the entry at `pos` while their tags fit; cell 0 with acquire, for what it speaks of. */
static bool load(const struct proxy_params *p, unsigned q, uint64_t pos, uint64_t cell[GNET_CELLS])
{
	const struct gnet_sqe *e = entry_at(p, q, pos);
	uint8_t tag = GNET_SQ_TAG(pos, p->sq_log2);
	unsigned i;

	cell[0] = __atomic_load_n(&e->cell[0], __ATOMIC_ACQUIRE);
	if ((uint8_t)cell[0] != tag)
		return false;
	for (i = 1; i < GNET_CELLS; i++) {
		cell[i] = __atomic_load_n(&e->cell[i], __ATOMIC_RELAXED);
		if ((uint8_t)cell[i] != tag)
			return false;
	}
	return true;
}

bool proxy_sq_ready(const struct proxy_params *p, unsigned q, uint64_t head)
{
	uint64_t cell[GNET_CELLS];

	return load(p, q, head, cell);
}

static void decode(const uint64_t cell[GNET_CELLS], struct proxy_entry *e)
{
	uint64_t c1 = cell[1] >> 8;
	unsigned i;

	e->op = cell[0] >> GNET_SQE0_OP_SHIFT & 0xff;
	e->fd = (int)(cell[0] >> GNET_SQE0_FD_SHIFT & 0x7fffffff);
	e->len = cell[0] >> GNET_SQE0_LEN_SHIFT & 0x7f;
	if (e->len > GNET_INLINE_MAX)
		e->len = GNET_INLINE_MAX; /* a kernel's memory is not trusted to be sane */
	e->pos = c1;
	e->call = c1 & 0xffff;
	e->tag = c1 >> 16 & 0xffff;
	e->a = c1 >> 32 & 0xffffff;
	e->b = cell[2] >> 8;
	for (i = 1; i < GNET_CELLS && e->op == GNET_OP_SEND; i++) {
		uint64_t v = cell[i] >> 8;

		memcpy(e->data + (size_t)(i - 1) * GNET_CELL_DATA, &v, sizeof(v));
	}
}

bool proxy_sq_take(struct proxy_thread *t, struct proxy_entry *e)
{
	const struct proxy_params *p = &t->p->params;
	uint64_t cell[GNET_CELLS];

	if (!load(p, t->index, t->head, cell))
		return false;
	t->head++;
	__atomic_store_n(&p->sq_head[t->index].pos, t->head, __ATOMIC_RELEASE);
	decode(cell, e);
	return true;
}
