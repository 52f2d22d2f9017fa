/* SPDX-License-Identifier: BSD-3-Clause */
#include "platform/cpu/copier.h"

#include "base/log.h"
#include "base/sys.h"
#include "platform/platform.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { RANGES = 8, MAX_PIECES = 64, PACE = 48, AT_ONCE = 8 };

/* No address of a process begins with these bits, so a load or store of one faults. */
#define FAR_BASE (UINT64_C(0xfa) << 56)
#define FAR_STRIDE (UINT64_C(1) << 40)

enum kind { WRITE, WORD, READ, MARK };

struct op {
	enum kind kind;
	uint8_t *to;
	const uint8_t *from;
	size_t n;
	uint64_t ticket;
	/* Pieces, and which are done. */
	unsigned pieces, left;
	uint64_t piece_done;
};

struct cpu_copier {
	struct platform_copier pub;
	uint64_t rnd; /* 0: in order */
	struct {
		uint8_t *backing;
		uint64_t addr, size;
	} range[RANGES];
	unsigned nranges;
	struct op *ring;
	uint32_t mask, head, tail;
	uint64_t done, count;
	int err;
	bool held;
	unsigned pace; /* pieces done at a time, fewer than that */
	void (*seen)(void *ctx);
	void *ctx;
};

static struct cpu_copier *of(struct platform_copier *c)
{
	return (struct cpu_copier *)c;
}

static uint64_t draw(struct cpu_copier *c)
{
	c->rnd ^= c->rnd << 13;
	c->rnd ^= c->rnd >> 7;
	c->rnd ^= c->rnd << 17;
	return c->rnd * UINT64_C(0x2545f4914f6cdd1d) >> 20;
}

/* --- what is where ------------------------------------------------------------------------------ */

static uint8_t *backing(const struct cpu_copier *c, uint64_t addr, uint64_t len)
{
	unsigned i;

	for (i = 0; i < c->nranges; i++) {
		uint64_t off = addr - c->range[i].addr;

		if (off < c->range[i].size && len <= c->range[i].size - off)
			return c->range[i].backing + off;
	}
	return NULL;
}

static int check(struct platform_copier *p, uint64_t addr, uint64_t len)
{
	if (backing(of(p), addr, len))
		return 0;
	return log_error(-EFAULT,
			 "%llu bytes at %#llx are not memory of the CPU device that copies reach",
			 (unsigned long long)len, (unsigned long long)addr);
}

int cpu_copier_add(struct platform_copier *p, void *mem, size_t size, uint64_t *addr)
{
	struct cpu_copier *c = of(p);

	if (c->nranges == RANGES)
		return -ENOMEM;
	*addr = FAR_BASE + c->nranges * FAR_STRIDE + (uintptr_t)mem % 4096;
	c->range[c->nranges].backing = mem;
	c->range[c->nranges].addr = *addr;
	c->range[c->nranges++].size = size;
	return 0;
}

/* --- putting in --------------------------------------------------------------------------------- */

/* A range that was not checked is the caller's error; what it would break on a GPU, it breaks here, too. */
static void put(struct cpu_copier *c, enum kind kind, uint8_t *to, const uint8_t *from, size_t n)
{
	if (!to || !from || c->head - c->tail > c->mask) {
		c->err = -EFAULT;
		return;
	}
	c->ring[c->head++ & c->mask] = (struct op){ .kind = kind, .to = to, .from = from, .n = n };
	c->count++;
}

static void copy_in(struct platform_copier *p, uint64_t dst, const void *src, size_t n)
{
	put(of(p), WRITE, backing(of(p), dst, n), src, n);
}

static void word_in(struct platform_copier *p, uint64_t dst, const void *src, size_t n)
{
	put(of(p), WORD, dst % n ? NULL : backing(of(p), dst, n), src, n);
}

static void copy_out(struct platform_copier *p, void *dst, uint64_t src, size_t n)
{
	put(of(p), READ, dst, backing(of(p), src, n), n);
}

static void mark(struct platform_copier *p, uint64_t ticket)
{
	struct cpu_copier *c = of(p);

	if (c->head - c->tail > c->mask) {
		c->err = -ENOBUFS;
		return;
	}
	c->ring[c->head++ & c->mask] = (struct op){ .kind = MARK, .ticket = ticket };
}

/* --- getting it done ---------------------------------------------------------------------------- */

static void cut(struct cpu_copier *c, struct op *o)
{
	unsigned most = o->n < MAX_PIECES ? (unsigned)o->n : MAX_PIECES;

	o->pieces = o->kind == WORD || !c->rnd ? 1 : 1 + (unsigned)(draw(c) % most);
	o->left = o->pieces;
	o->piece_done = 0;
}

static void one_piece(struct cpu_copier *c, struct op *o)
{
	unsigned i = o->pieces > 1 ? (unsigned)(draw(c) % o->pieces) : 0;
	size_t from, to;

	while (o->piece_done & UINT64_C(1) << i)
		i = (i + 1) % o->pieces;
	from = o->n * i / o->pieces;
	to = o->n * (i + 1) / o->pieces;
	memcpy(o->to + from, o->from + from, to - from);
	o->piece_done |= UINT64_C(1) << i;
	o->left--;
	if (c->seen)
		c->seen(c->ctx);
}

/* How many of the copies at the tail may be done at once: writes that do not overlap. */
static unsigned at_once(const struct cpu_copier *c)
{
	unsigned n, i;

	for (n = 0; n < AT_ONCE && c->tail + n != c->head; n++) {
		const struct op *o = &c->ring[(c->tail + n) & c->mask], *p;

		if (o->kind != WRITE)
			break;
		for (i = 0; i < n; i++) {
			p = &c->ring[(c->tail + i) & c->mask];
			if (o->to < p->to + p->n && p->to < o->to + o->n)
				return n;
		}
	}
	return n;
}

/* One of those that are not done yet, of which the one at the tail is one. */
static struct op *some_op(struct cpu_copier *c)
{
	unsigned n = c->rnd ? at_once(c) : 0;
	uint32_t i = n ? (uint32_t)(draw(c) % n) : 0;
	struct op *o = &c->ring[(c->tail + i) & c->mask];

	return o->pieces && !o->left ? &c->ring[c->tail & c->mask] : o;
}

/* False when there is nothing to do. */
static bool advance(struct cpu_copier *c)
{
	struct op *o = &c->ring[c->tail & c->mask];

	if (c->head == c->tail || c->err || c->held)
		return false;
	if (o->kind == MARK) {
		c->done = o->ticket;
		c->tail++;
		return true;
	}
	o = some_op(c);
	if (!o->pieces)
		cut(c, o);
	one_piece(c, o);
	while (c->tail != c->head) {
		o = &c->ring[c->tail & c->mask];
		if (!o->pieces || o->left)
			break;
		c->tail++;
	}
	return true;
}

static int done(struct platform_copier *p, uint64_t *ticket)
{
	struct cpu_copier *c = of(p);
	uint64_t n = c->rnd ? draw(c) % c->pace : UINT64_MAX;

	/* Now and then far, so that long queues end. */
	if (c->rnd && c->pace >= PACE && draw(c) % 16 == 0)
		n = 1000;
	while (n-- && advance(c))
		;
	*ticket = c->done;
	return c->err;
}

static int drain(struct platform_copier *p, uint64_t timeout_ns)
{
	struct cpu_copier *c = of(p);

	(void)timeout_ns;
	while (advance(c))
		;
	return c->held ? -ETIMEDOUT : c->err;
}

static void close_copier(struct platform_copier *p)
{
	sys.free(of(p)->ring);
	sys.free(p->staging);
	sys.free(p);
}

static const struct platform_copier_ops ops = {
	.close = close_copier,
	.check = check,
	.write = copy_in,
	.write_word = word_in,
	.read = copy_out,
	.mark = mark,
	.done = done,
	.drain = drain,
};

int cpu_copier_open(size_t staging, uint64_t seed, struct platform_copier **out)
{
	struct cpu_copier *c;
	uint32_t n = 1;

	if (!staging || staging % PLATFORM_COPIER_UNIT || staging > UINT32_MAX / 2)
		return -EINVAL;
	while (n < staging / PLATFORM_COPIER_UNIT * PLATFORM_COPIER_OPS)
		n *= 2;
	c = sys.alloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->pub.ops = &ops;
	c->pub.size = staging;
	c->pub.staging = sys.alloc(staging);
	c->ring = sys.alloc(n * sizeof(*c->ring));
	c->mask = n - 1;
	c->rnd = seed;
	c->pace = PACE;
	if (!c->pub.staging || !c->ring) {
		close_copier(&c->pub);
		return -ENOMEM;
	}
	*out = &c->pub;
	return 0;
}

void cpu_copier_watch(struct platform_copier *p, void (*seen)(void *ctx), void *ctx)
{
	of(p)->seen = seen;
	of(p)->ctx = ctx;
}

void cpu_copier_pace(struct platform_copier *p, unsigned pieces)
{
	of(p)->pace = pieces;
}

void cpu_copier_fail(struct platform_copier *p, int err)
{
	of(p)->err = err;
}

void cpu_copier_hold(struct platform_copier *p, int held)
{
	of(p)->held = held;
}

uint64_t cpu_copier_count(const struct platform_copier *p)
{
	return ((const struct cpu_copier *)p)->count;
}
