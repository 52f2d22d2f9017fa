/* SPDX-License-Identifier: BSD-3-Clause */
/* Far memory (dma.h): staging memory, tickets, runs of bytes going in, bytes copied out beforehand. */
#include "rnic/impl.h"

#include <errno.h>
#include <string.h>

/* A region's end waits so long for copies. A device that does not answer by then is given up. */
#define DRAIN_NS UINT64_C(2000000000)

/* Each piece of a receive may be a run of its own, and the last of them needs a chunk for what may follow it. */
_Static_assert(RNIC_DMA_ROOM > (RNIC_MAX_SGE - 1 + RNIC_DMA_RUNS - 1) / RNIC_DMA_RUNS,
	       "a packet has room for all its pieces");

/* --- opening ------------------------------------------------------------------------------------ */

int rnic_dma_open(struct rnic *r)
{
	struct platform_copier *c = r->cfg.copier;
	struct rnic_dma *d;
	unsigned i;

	if (!c)
		return 0;
	d = rnic_alloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	r->dma = d;
	d->copier = c;
	d->next = 1;
	d->nchunks = (unsigned)(c->size / RNIC_DMA_CHUNK);
	if (d->nchunks < 2 * RNIC_DMA_ROOM) {
		d->nchunks = 0;
		return -EINVAL;
	}
	d->chunks = rnic_alloc(d->nchunks, sizeof(*d->chunks));
	if (!d->chunks)
		return -ENOMEM;
	for (i = 0; i < d->nchunks; i++) {
		d->chunks[i].data = c->staging + (size_t)i * RNIC_DMA_CHUNK;
		d->chunks[i].next = d->free;
		d->free = &d->chunks[i];
	}
	d->nfree = d->nchunks;
	return 0;
}

void rnic_dma_close(struct rnic *r)
{
	if (!r->dma)
		return;
	if (r->dma->nchunks)
		r->dma->copier->ops->drain(r->dma->copier, DRAIN_NS);
	sys.free(r->dma->chunks);
	sys.free(r->dma);
}

/* Queue pairs that there are already get their part. */
static int join_all(struct rnic *r)
{
	unsigned i;
	int rc = 0;

	for (i = 0; i < r->qp_slots && !rc; i++) {
		if (r->qps[i])
			rc = rnic_dma_qp_init(r->qps[i]);
	}
	if (!rc)
		return 0;
	for (i = 0; i < r->qp_slots; i++) {
		if (r->qps[i]) {
			sys.free(r->qps[i]->dma);
			r->qps[i]->dma = NULL;
		}
	}
	return rc;
}

int rnic_attach_copier(struct rnic *r, struct platform_copier *c)
{
	int rc;

	if (r->dma)
		return -EALREADY;
	r->cfg.copier = c;
	rc = rnic_dma_open(r);
	if (!rc)
		rc = join_all(r);
	if (!rc)
		return 0;
	rnic_dma_close(r);
	r->dma = NULL;
	r->cfg.copier = NULL;
	return rc;
}

/* --- who waits ---------------------------------------------------------------------------------- */

void rnic_dma_wait(struct rnic_qp *qp)
{
	struct rnic_dma_qp *d = qp->dma;
	struct rnic_dma *dev = qp->r->dma;

	if (d->prev)
		return;
	d->next = dev->waiting;
	d->prev = &dev->waiting;
	if (d->next)
		d->next->dma->prev = &d->next;
	dev->waiting = qp;
}

static void unlist(struct rnic_qp *qp)
{
	struct rnic_dma_qp *d = qp->dma;

	if (!d->prev)
		return;
	*d->prev = d->next;
	if (d->next)
		d->next->dma->prev = d->prev;
	d->prev = NULL;
}

/* --- chunks ------------------------------------------------------------------------------------- */

static struct rnic_chunk *take(struct rnic_dma *d)
{
	struct rnic_chunk *c = d->free;

	if (!c)
		return NULL;
	d->free = c->next;
	d->nfree--;
	c->ticket = 0;
	return c;
}

void rnic_dma_give(struct rnic_dma *d, struct rnic_chunk *c)
{
	struct rnic_chunk **to = c->ticket <= d->done ? &d->free : &d->busy;

	d->nfree += to == &d->free;
	c->next = *to;
	*to = c;
}

static void give_done(struct rnic_dma *d)
{
	struct rnic_chunk *c = d->busy, *next;

	d->busy = NULL;
	for (; c; c = next) {
		next = c->next;
		rnic_dma_give(d, c);
	}
}

/* Copies to or from the chunk were put in. */
static void used(struct rnic_dma *d, struct rnic_chunk *c)
{
	c->ticket = d->next;
	d->unmarked = true;
}

struct rnic_chunk *rnic_dma_take(struct rnic *r)
{
	return rnic_dma_room(r) ? take(r->dma) : NULL;
}

/* --- bytes going in ----------------------------------------------------------------------------- */

/* The last naturally aligned piece of what ends at `end`, as rnic_place() has it. */
static uint32_t last_word(uint64_t end, uint32_t len)
{
	uint32_t w = 8;

	while (w > len || end & (w - 1))
		w /= 2;
	return w;
}

void rnic_dma_words(struct rnic_dma *d)
{
	unsigned i;

	for (i = 0; i < d->nwords; i++)
		d->copier->ops->write_word(d->copier, d->word[i].dst, d->word[i].from,
					   d->word[i].len);
	d->nwords = 0;
}

/* The bytes of a message. A word of an earlier one that they replace must not come behind them. */
static void put_body(struct rnic_dma *d, uint64_t dst, const uint8_t *from, uint32_t n)
{
	unsigned i;

	for (i = 0; i < d->nwords; i++)
		if (d->word[i].dst < dst + n && dst < d->word[i].dst + d->word[i].len) {
			rnic_dma_words(d);
			break;
		}
	d->copier->ops->write(d->copier, dst, from, n);
}

static void put_word(struct rnic_dma *d, uint64_t dst, const uint8_t *from, uint32_t n)
{
	if (d->nwords == RNIC_DMA_WORDS)
		rnic_dma_words(d);
	d->word[d->nwords++] = (struct rnic_dma_word){ dst, from, n };
}

void rnic_dma_end(struct rnic_qp *qp, struct rnic_run *run, bool last)
{
	struct rnic_dma *d = qp->r->dma;
	uint32_t n = run->fill - run->start, w = 0;
	const uint8_t *from;

	if (!run->mr)
		return;
	run->mr = NULL;
	run->runs++;
	if (!n)
		return;
	from = run->chunk->data + run->start;
	if (last)
		w = last_word(run->dst + n, n);
	if (n > w)
		put_body(d, run->dst, from, n - w);
	if (w)
		put_word(d, run->dst + (n - w), from + (n - w), w);
	used(d, run->chunk);
	rnic_dma_wait(qp);
}

static void leave_chunk(struct rnic_dma *d, struct rnic_run *run)
{
	if (run->chunk)
		rnic_dma_give(d, run->chunk);
	run->chunk = NULL;
	run->fill = 0;
	run->runs = 0;
}

static void begin(struct rnic_qp *qp, struct rnic_run *run, const struct rnic_mr *mr, uint64_t addr,
		  uint32_t total)
{
	struct rnic_dma *d = qp->r->dma;
	uint32_t want = total < RNIC_DMA_MOST ? total : RNIC_DMA_MOST;
	uint32_t at = ((run->fill + 15) & ~15u) + (uint32_t)(addr & 15);

	if (run->chunk && (at + want > RNIC_DMA_CHUNK || run->runs == RNIC_DMA_RUNS))
		leave_chunk(d, run);
	if (!run->chunk) {
		run->chunk = take(d);
		at = (uint32_t)(addr & 15);
	}
	run->mr = mr;
	run->dst = addr;
	run->start = run->fill = at;
	rnic_dma_wait(qp);
}

void rnic_dma_put(struct rnic_qp *qp, struct rnic_run *run, const struct rnic_mr *mr, uint64_t addr,
		  const uint8_t *data, uint32_t len, uint32_t total)
{
	if (run == &qp->dma->in)
		qp->dma->far = true;
	if (run->mr && (run->mr != mr || addr != run->dst + (run->fill - run->start)))
		rnic_dma_end(qp, run, false);
	while (len) {
		uint32_t n;

		/* One copy is never of more than RNIC_DMA_MOST bytes, so that messages are cut where their chunks are. */
		if (run->mr && run->fill - run->start == RNIC_DMA_MOST)
			rnic_dma_end(qp, run, false);
		if (!run->mr)
			begin(qp, run, mr, addr, total > len ? total : len);
		n = RNIC_DMA_MOST - (run->fill - run->start);
		if (n > RNIC_DMA_CHUNK - run->fill)
			n = RNIC_DMA_CHUNK - run->fill;
		if (n > len)
			n = len;
		if (!n) {
			rnic_dma_end(qp, run, false);
			continue;
		}
		memcpy(run->chunk->data + run->fill, data, n);
		run->fill += n;
		addr += n;
		data += n;
		len -= n;
		total = total > n ? total - n : 0;
	}
}

void rnic_dma_end_all(struct rnic *r)
{
	struct rnic_qp *qp;

	for (qp = r->dma->waiting; qp; qp = qp->dma->next) {
		rnic_dma_end(qp, &qp->dma->in, false);
		rnic_dma_end(qp, &qp->dma->back, false);
	}
}

/* --- bytes copied out --------------------------------------------------------------------------- */

static void drop_first(struct rnic_dma *d, struct rnic_fetches *f)
{
	rnic_dma_give(d, f->ring[f->tail++ % RNIC_DMA_AHEAD].chunk);
}

static void drop_all(struct rnic_dma *d, struct rnic_fetches *f)
{
	while (f->tail != f->head)
		drop_first(d, f);
}

/* Finds bytes in what was copied out: 1, 0 not there yet, -ENOENT nobody asked for them. */
static int look(struct rnic_qp *qp, struct rnic_fetches *f, uint32_t id, uint32_t off, uint32_t len,
		uint8_t **data)
{
	struct rnic_dma *d = qp->r->dma;
	unsigned i;

	for (i = f->tail; i != f->head; i++) {
		struct rnic_fetch *s = &f->ring[i % RNIC_DMA_AHEAD];

		if (s->id != id || off < s->off || off - s->off + len > s->len)
			continue;
		while (f->tail != i)
			drop_first(d, f);
		*data = s->chunk->data + (off - s->off);
		return s->chunk->ticket <= d->done;
	}
	drop_all(d, f);
	return -ENOENT;
}

/* Copies bytes of a scatter list out: 0, -EAGAIN no room, -EFAULT a key or bound is wrong. */
static int fetch(struct rnic_qp *qp, struct rnic_fetches *f, const struct rnic_sge *sge,
		 unsigned nsge, struct rnic_fetch want)
{
	struct rnic_dma *d = qp->r->dma;
	struct rnic_span part[RNIC_MAX_SGE];
	uint32_t at = 0;
	int i, n;

	n = rnic_spans(qp->pd, sge, nsge, want.off, want.len, 0, part, RNIC_MAX_SGE);
	if (n < 0)
		return n;
	want.chunk = rnic_dma_take(qp->r);
	if (!want.chunk)
		return -EAGAIN;
	rnic_dma_words(d);
	for (i = 0; i < n; i++) {
		if (part[i].far)
			d->copier->ops->read(d->copier, want.chunk->data + at, part[i].addr,
					     part[i].len);
		else
			memcpy(want.chunk->data + at, part[i].p, part[i].len);
		at += part[i].len;
	}
	used(d, want.chunk);
	f->ring[f->head++ % RNIC_DMA_AHEAD] = want;
	rnic_dma_wait(qp);
	return 0;
}

static uint32_t piece(uint32_t len)
{
	return len < RNIC_DMA_MOST ? len : RNIC_DMA_MOST;
}

/* A copy out that is not needed yet must leave room for those that are. */
static bool may_look_ahead(const struct rnic_dma *d, const struct rnic_fetches *f)
{
	return f->head - f->tail < RNIC_DMA_AHEAD && d->nfree > d->nchunks / 2;
}

/* What comes behind the newest copy out, of the same work request or of later ones. */
static void gather_ahead(struct rnic_qp *qp)
{
	struct rnic_fetches *f = &qp->dma->tx;
	struct rnic_sq *sq = &qp->sq;

	while (may_look_ahead(qp->r->dma, f)) {
		const struct rnic_fetch *s = &f->ring[(f->head - 1) % RNIC_DMA_AHEAD];
		uint32_t id = s->id, off = s->off + s->len;
		const struct rnic_swqe *w = rnic_swqe_at(sq, id);

		if (off >= w->len) {
			off = 0;
			if (++id == sq->head)
				return;
			w = rnic_swqe_at(sq, id);
			/* Behind a fence, what READs before it bring may be what is sent. */
			if (!w->nsge || !w->len || w->flags & RNIC_SEND_FENCE ||
			    rnic_swqe_is_rd(w) || w->opcode >= RNIC_WR_NOP ||
			    !rnic_far_list(qp->pd, w->sge, w->nsge))
				return;
		}
		if (fetch(qp, f, w->sge, w->nsge,
			  (struct rnic_fetch){ NULL, id, off, piece(w->len - off) }))
			return;
	}
}

int rnic_dma_gather(struct rnic_qp *qp, struct rnic_swqe *w, uint32_t off, uint32_t len,
		    uint8_t **data)
{
	struct rnic_fetches *f = &qp->dma->tx;
	uint32_t id = qp->sq.cur;
	int rc = look(qp, f, id, off, len, data);

	if (rc == -ENOENT) {
		rc = fetch(qp, f, w->sge, w->nsge,
			   (struct rnic_fetch){ NULL, id, off, piece(w->len - off) });
		/* Without room the next step tries again. */
		if (rc == -EAGAIN)
			rnic_dma_wait(qp);
		else if (rc)
			return rc;
		rc = 0;
	}
	if (f->tail != f->head)
		gather_ahead(qp);
	return rc;
}

/* As fetch(), of a range that a peer names. */
static int fetch_remote(struct rnic_qp *qp, const struct rnic_res *res, uint32_t off)
{
	struct rnic_fetches *f = &qp->dma->rd;
	struct rnic_fetch want = { .id = (uint32_t)(res - qp->resp.res),
				   .off = off,
				   .len = piece(res->len - off) };
	struct rnic_dma *d = qp->r->dma;
	struct rnic_span s;

	if (!rnic_remote(qp->pd, res->rkey, res->va + off, want.len, RNIC_ACCESS_REMOTE_READ, &s) ||
	    !s.far)
		return -EFAULT;
	want.chunk = rnic_dma_take(qp->r);
	if (!want.chunk)
		return -EAGAIN;
	rnic_dma_words(d);
	d->copier->ops->read(d->copier, want.chunk->data, s.addr, want.len);
	used(d, want.chunk);
	f->ring[f->head++ % RNIC_DMA_AHEAD] = want;
	rnic_dma_wait(qp);
	return 0;
}

/* The next pieces of this READ, and of those whose turn comes after it. */
static void read_ahead(struct rnic_qp *qp)
{
	struct rnic_fetches *f = &qp->dma->rd;
	struct rnic_resp *p = &qp->resp;
	uint32_t at = p->out_tail;

	while (may_look_ahead(qp->r->dma, f)) {
		const struct rnic_fetch *s = &f->ring[(f->head - 1) % RNIC_DMA_AHEAD];
		const struct rnic_res *res = &p->res[s->id];
		uint32_t id = s->id, off = s->off + s->len;

		if (off >= res->len || off >= res->stop * qp->attr.mtu) {
			while (at != p->out_head && p->out[at % RNIC_MAX_RD] != id)
				at++;
			if (at == p->out_head || ++at == p->out_head)
				return;
			id = p->out[at % RNIC_MAX_RD];
			res = &p->res[id];
			off = res->next * qp->attr.mtu;
			if (res->type != RNIC_RES_READ || off >= res->len)
				return;
		}
		if (fetch_remote(qp, res, off))
			return;
	}
}

int rnic_dma_read(struct rnic_qp *qp, struct rnic_res *res, uint32_t off, uint32_t len,
		  uint8_t **data)
{
	struct rnic_fetches *f = &qp->dma->rd;
	uint32_t id = (uint32_t)(res - qp->resp.res);
	int rc = look(qp, f, id, off, len, data);

	if (rc == -ENOENT) {
		rc = fetch_remote(qp, res, off);
		if (rc == -EAGAIN)
			rnic_dma_wait(qp);
		else if (rc)
			return rc;
		rc = 0;
	}
	if (f->tail != f->head)
		read_ahead(qp);
	return rc;
}

void rnic_dma_read_again(struct rnic_qp *qp, const struct rnic_res *res)
{
	struct rnic_fetches *f = &qp->dma->rd;
	unsigned i;

	for (i = f->tail; i != f->head; i++)
		if (f->ring[i % RNIC_DMA_AHEAD].id == (uint32_t)(res - qp->resp.res))
			drop_all(qp->r->dma, f);
}

/* --- tickets ------------------------------------------------------------------------------------ */

bool rnic_dma_unfinished(struct rnic_qp *qp, const struct rnic_swqe *w)
{
	if (w->ticket <= qp->r->dma->done)
		return false;
	rnic_dma_wait(qp);
	return true;
}

static bool idle_fetches(const struct rnic_dma *d, const struct rnic_fetches *f)
{
	unsigned i;

	for (i = f->tail; i != f->head; i++)
		if (f->ring[i % RNIC_DMA_AHEAD].chunk->ticket > d->done)
			return false;
	return true;
}

/*
 * Open runs become copies, and what was copied out, but not used in its queue pair's turn, is dropped: it will be asked for
 * again. So queue pairs whose peers have gone silent cannot keep all staging memory.
 */
static void reclaim(struct rnic *r)
{
	struct rnic_dma *d = r->dma;
	struct rnic_qp *qp;

	rnic_dma_end_all(r);
	for (qp = d->waiting; qp; qp = qp->dma->next) {
		leave_chunk(d, &qp->dma->in);
		leave_chunk(d, &qp->dma->back);
		if (qp->ready)
			continue;
		if (idle_fetches(d, &qp->dma->tx))
			drop_all(d, &qp->dma->tx);
		if (idle_fetches(d, &qp->dma->rd))
			drop_all(d, &qp->dma->rd);
	}
}

bool rnic_dma_room(struct rnic *r)
{
	if (r->dma->nfree < RNIC_DMA_ROOM)
		reclaim(r);
	return r->dma->nfree >= RNIC_DMA_ROOM;
}

static bool idle_run(const struct rnic_dma *d, const struct rnic_run *run)
{
	return run->chunk && !run->mr && run->chunk->ticket <= d->done;
}

/* Gives back what is of no use any more; whether the queue pair still waits for something. */
static bool tidy(struct rnic_qp *qp)
{
	struct rnic_dma *d = qp->r->dma;
	struct rnic_dma_qp *q = qp->dma;
	struct rnic_sq *sq = &qp->sq;

	if (idle_run(d, &q->in))
		leave_chunk(d, &q->in);
	if (idle_run(d, &q->back))
		leave_chunk(d, &q->back);
	if (sq->cur == sq->head || qp->state == RNIC_QPS_ERR)
		drop_all(d, &q->tx);
	if (qp->resp.out_tail == qp->resp.out_head)
		drop_all(d, &q->rd);
	return q->in.chunk || q->back.chunk || q->tx.head != q->tx.tail ||
	       q->rd.head != q->rd.tail || rnic_dma_pending(q) || q->held ||
	       (sq->rep != sq->una && rnic_swqe_at(sq, sq->rep)->ticket > d->done);
}

bool rnic_dma_busy(struct rnic *r)
{
	struct rnic_dma *d = r->dma;

	if (!d)
		return false;
	if (d->unmarked && !d->failed) {
		rnic_dma_words(d);
		d->copier->ops->mark(d->copier, d->next++);
		d->unmarked = false;
	}
	return !d->failed && d->done + 1 != d->next;
}

static void give_up(struct rnic *r)
{
	struct rnic_qp *qp;

	while ((qp = r->dma->waiting) != NULL) {
		rnic_dma_fail(qp);
		unlist(qp);
	}
}

void rnic_dma_step(struct rnic *r, uint64_t now)
{
	struct rnic_dma *d = r->dma;
	struct rnic_qp *qp, *next;
	uint64_t done = d->done;

	if (!rnic_dma_busy(r)) {
		if (d->failed)
			give_up(r);
		return;
	}
	d->failed = d->copier->ops->done(d->copier, &done);
	if (d->failed) {
		give_up(r);
		return;
	}
	if (done == d->done)
		return;
	d->done = done;
	give_done(d);
	rnic_dma_atomic_done(r);
	for (qp = d->waiting; qp; qp = next) {
		next = qp->dma->next;
		rnic_dma_settle(qp, now);
		rnic_kick(qp);
		if (!tidy(qp))
			unlist(qp);
	}
}

/* --- ends --------------------------------------------------------------------------------------- */

static void discard(struct rnic_run *run, const struct rnic_mr *mr)
{
	if (run->mr == mr)
		run->mr = NULL;
}

void rnic_dma_mr_end(const struct rnic_mr *mr)
{
	struct rnic *r = mr->pd->r;
	struct rnic_dma *d = r->dma;
	struct rnic_qp *qp;

	for (qp = d->waiting; qp; qp = qp->dma->next) {
		discard(&qp->dma->in, mr);
		discard(&qp->dma->back, mr);
	}
	if (d->atomic.qp && d->atomic.mr == mr)
		rnic_dma_atomic_refuse(r);
	rnic_dma_words(d);
	if (!d->failed)
		d->failed = d->copier->ops->drain(d->copier, DRAIN_NS);
}

int rnic_dma_qp_init(struct rnic_qp *qp)
{
	if (!qp->r->dma)
		return 0;
	qp->dma = rnic_alloc(1, sizeof(*qp->dma));
	if (!qp->dma)
		return -ENOMEM;
	qp->dma->held_end = &qp->dma->held;
	return 0;
}

void rnic_dma_qp_reset(struct rnic_qp *qp)
{
	struct rnic_dma_qp *q = qp->dma;
	struct rnic_dma *d = qp->r->dma;

	if (!q)
		return;
	q->in.mr = q->back.mr = NULL;
	leave_chunk(d, &q->in);
	leave_chunk(d, &q->back);
	drop_all(d, &q->tx);
	drop_all(d, &q->rd);
	if (d->atomic.qp == qp)
		rnic_dma_atomic_drop(qp->r);
	rnic_dma_forget(qp);
	q->far = false;
	unlist(qp);
}

void rnic_dma_qp_free(struct rnic_qp *qp)
{
	if (!qp->dma)
		return;
	rnic_dma_qp_reset(qp);
	sys.free(qp->dma);
}
