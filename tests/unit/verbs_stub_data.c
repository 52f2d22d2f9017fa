/* SPDX-License-Identifier: BSD-3-Clause */
/* The stub's completions, memory and queue pairs. */
#include "verbs_stub_priv.h"
#include "wire/rsocket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_SGE_BYTES 64

struct verbs_comp {
	int fd;
};

struct verbs_cq {
	struct verbs_comp *comp;
	struct verbs_wc *wc;
	unsigned size, head, count;
	int armed;
	int qps;
	int sends;      /* it is a queue pair's for what it sends */
	int late;       /* what lies in it is not shown until another disconnect */
	unsigned parts; /* is taken */
};

struct posted {
	struct verbs_send_wr wr;
	struct verbs_sge sge;
	uint8_t data[MAX_SGE_BYTES];
};

struct region {
	struct verbs_mr mr;
	uint8_t *addr; /* where the bytes are for this process */
	uint64_t iova; /* how work requests name them */
	uint64_t len;
	unsigned access;
	int used;
	void *view; /* of a dma-buf, to be unmapped */
	size_t view_size;
	struct verbs_qp *qp; /* made before it by the same thread: it has to go first */
};

/* The queue pair whose memory this thread registers now. */
static __thread struct verbs_qp *made;
/* Registered to see whether it can be, for no queue pair (src/channel/verbs/memory.c). */
#define TRIAL 65536u

static struct list qps = { &qps, &qps };
static struct region regions[MAX_MR];
static uint32_t next_key;

/* ---- completions --------------------------------------------------------------------------------------------------------------- */

static void complete(struct verbs_cq *cq, const struct verbs_wc *wc)
{
	if (cq->count == cq->size) {
		fprintf(stderr, "stub: a completion queue overflows\n");
		abort();
	}
	cq->wc[(cq->head + cq->count++) % cq->size] = *wc;
	if (cq->armed)
		stub_poke(cq->comp->fd);
	cq->armed = 0;
}

int stub_comp_open(struct verbs_device *d, struct verbs_comp **out)
{
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("comp_open");
	if (!rc) {
		*out = calloc(1, sizeof(**out));
		(*out)->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		stub_st.objects++;
	}
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

void stub_comp_close(struct verbs_comp *c)
{
	pthread_mutex_lock(&stub_lock);
	close(c->fd);
	free(c);
	stub_st.objects--;
	pthread_mutex_unlock(&stub_lock);
}

int stub_comp_fd(struct verbs_comp *c)
{
	return c->fd;
}

void stub_comp_drain(struct verbs_comp *c)
{
	uint64_t n;

	if (read(c->fd, &n, sizeof(n)) < 0)
		return;
}

int stub_cq_create(struct verbs_device *d, unsigned entries, struct verbs_comp *c,
		   struct verbs_cq **out)
{
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("cq_create");
	if (!rc && (!entries || entries > 32767))
		rc = -EINVAL;
	if (!rc) {
		*out = calloc(1, sizeof(**out));
		(*out)->comp = c;
		(*out)->size = entries;
		(*out)->wc = calloc(entries, sizeof(struct verbs_wc));
		stub_st.objects++;
	}
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

void stub_cq_destroy(struct verbs_cq *cq)
{
	pthread_mutex_lock(&stub_lock);
	if (cq->qps) {
		fprintf(stderr, "stub: a completion queue goes before its queue pairs\n");
		abort();
	}
	free(cq->wc);
	free(cq);
	stub_st.objects--;
	pthread_mutex_unlock(&stub_lock);
}

int stub_poll(struct verbs_cq *cq, struct verbs_wc *wc, int n)
{
	int i, rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_named_fault("poll");
	if (rc) {
		pthread_mutex_unlock(&stub_lock);
		return rc;
	}
	if (cq->late && cq->parts != stub_st.parts)
		cq->late = 0;
	for (i = 0; i < n && cq->count && !cq->late; i++) {
		wc[i] = cq->wc[cq->head];
		cq->head = (cq->head + 1) % cq->size;
		cq->count--;
	}
	pthread_mutex_unlock(&stub_lock);
	return i;
}

int stub_arm(struct verbs_cq *cq)
{
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_named_fault("arm");
	cq->armed = !rc;
	stub_st.ack_arms += (unsigned)cq->sends;
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------- */

/* Maps a dma-buf's bytes, as a device would see them. */
static int map_buf(struct region *r, const struct verbs_mem *m)
{
	if (!(stub_st.takes & STUB_DMABUF))
		return -EOPNOTSUPP;
	r->view_size = m->offset + m->length;
	r->view = mmap(NULL, r->view_size, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (r->view == MAP_FAILED)
		return -EBADF;
	r->addr = (uint8_t *)r->view + m->offset;
	stub_st.by_dmabuf += m->length != TRIAL;
	return 0;
}

static int map_pointer(struct region *r, const struct verbs_mem *m)
{
	r->addr = m->addr;
	if (m->iova == (uintptr_t)m->addr)
		return 0;
	stub_st.by_pointer += (stub_st.takes & STUB_PEERMEM) && m->length != TRIAL;
	return stub_st.takes & STUB_PEERMEM ? 0 : -EFAULT;
}

/* Memory that a key still names is not to be used for anything else. */
static void check_overlap(const struct verbs_mem *m)
{
	int i;

	for (i = 0; i < MAX_MR; i++) {
		const struct region *r = &regions[i];

		if (r->used && m->iova < r->iova + r->len && r->iova < m->iova + m->length) {
			fprintf(stderr, "stub: memory is registered twice\n");
			abort();
		}
	}
}

int stub_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
	     struct verbs_mr **out)
{
	struct region *r = regions;
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("reg");
	while (r->used) /* some are always free */
		r++;
	if (!rc && (access & VERBS_ACCESS_REMOTE_WRITE) && !(access & VERBS_ACCESS_LOCAL_WRITE))
		rc = -EINVAL;
	if (!rc)
		check_overlap(m);
	if (!rc)
		rc = m->fd >= 0 ? map_buf(r, m) : map_pointer(r, m);
	if (!rc) {
		r->used = 1;
		r->iova = m->iova;
		r->len = m->length;
		r->access = access;
		r->qp = m->length == TRIAL ? NULL : made;
		r->mr.lkey = r->mr.rkey = ++next_key << 12 | (uint32_t)(r - regions);
		*out = &r->mr;
		stub_st.objects++;
	}
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

void stub_dereg(struct verbs_mr *mr)
{
	struct region *r = (struct region *)(void *)mr;
	struct list *l;

	pthread_mutex_lock(&stub_lock);
	for (l = qps.next; l != &qps; l = l->next) {
		if (list_entry(l, struct verbs_qp, link) == r->qp) {
			fprintf(stderr, "stub: memory goes before its queue pair\n");
			abort();
		}
	}
	if (r->view)
		munmap(r->view, r->view_size);
	r->view = NULL;
	r->used = 0;
	stub_st.objects--;
	pthread_mutex_unlock(&stub_lock);
}

static struct region *region(uint32_t key, uint64_t addr, uint64_t len, unsigned access)
{
	struct region *r = &regions[key % MAX_MR];

	if (!r->used || r->mr.rkey != key || (r->access & access) != access || addr < r->iova ||
	    len > r->len || addr - r->iova > r->len - len)
		return NULL;
	return r;
}

static uint8_t *bytes_at(const struct region *r, uint64_t addr)
{
	return r->addr + (addr - r->iova);
}

/* ---- queue pairs ---------------------------------------------------------------------------------------------------------------- */

static void complete_send(struct verbs_qp *qp, const struct posted *p, uint32_t status)
{
	struct verbs_wc wc = { .wr_id = p->wr.wr_id, .status = status, .opcode = VERBS_WC_WRITE };

	if (status)
		wc.opcode = wc.byte_len = wc.imm = 0x5a5a5a5a; /* nothing to lean on */
	if (stub_st.late &&
	    p->wr.imm == wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_DISCONNECT)) {
		qp->send_cq->late = 1;
		qp->send_cq->parts = stub_st.parts;
	}
	complete(qp->send_cq, &wc);
}

void stub_to_error(struct verbs_qp *qp)
{
	struct verbs_wc wc = { .status = VERBS_WC_WR_FLUSH_ERR, .imm = 0x5a5a5a5a };

	qp->error = 1;
	for (; qp->sq_count; qp->sq_count--, qp->sq_head++)
		complete_send(qp, &qp->sq[qp->sq_head % qp->sq_size], VERBS_WC_WR_FLUSH_ERR);
	for (; qp->rq_count; qp->rq_count--, qp->rq_head++) {
		wc.wr_id = qp->rq[qp->rq_head % qp->rq_size];
		complete(qp->recv_cq, &wc);
	}
}

/* Places the bytes as a device does: the last eight at last, in one store. */
static void place(uint8_t *to, const uint8_t *from, uint32_t n)
{
	uint64_t last;

	if (n < 8 || ((uintptr_t)(to + n) & 7)) {
		memcpy(to, from, n);
		return;
	}
	memcpy(to, from, n - 8);
	memcpy(&last, from + n - 8, 8);
	__atomic_store_n((uint64_t *)(void *)(to + n - 8), last, __ATOMIC_RELEASE);
}

/* The status of one work request; -1: it has to wait. */
static int carry_out(struct verbs_qp *qp, struct posted *p)
{
	struct verbs_qp *to = qp->id->peer ? qp->id->peer->qp : NULL;
	struct verbs_wc wc = { .opcode = VERBS_WC_RECV_WRITE_IMM,
			       .flags = VERBS_WC_WITH_IMM,
			       .imm = p->wr.imm };
	const struct region *mine, *theirs;
	const uint8_t *from = p->data;

	if (stub_st.status &&
	    (stub_st.status_op < 0 || (int)(p->wr.imm >> 29) == stub_st.status_op)) {
		int s = (int)stub_st.status;

		stub_st.status = 0;
		return s;
	}
	if (stub_st.frozen)
		return -1;
	if (!to || to->error)
		return VERBS_WC_RETRY_EXC_ERR;
	if (p->wr.opcode == VERBS_WR_WRITE_IMM && !to->rq_count) {
		stub_st.rnr += !qp->stuck;
		qp->stuck = 1;
		return -1;
	}
	qp->stuck = 0;
	if (p->wr.nsge && p->sge.len) {
		mine = region(p->sge.lkey, p->sge.addr, p->sge.len, 0);
		theirs = region(p->wr.rkey, p->wr.raddr, p->sge.len, VERBS_ACCESS_REMOTE_WRITE);
		if (!(p->wr.flags & VERBS_SEND_INLINE)) {
			if (!mine)
				return VERBS_WC_LOC_PROT_ERR;
			from = bytes_at(mine, p->sge.addr);
		}
		if (!theirs) {
			stub_to_error(to);
			return VERBS_WC_REM_ACCESS_ERR;
		}
		place(bytes_at(theirs, p->wr.raddr), from, p->sge.len);
		wc.byte_len = p->sge.len;
	}
	if (p->wr.opcode == VERBS_WR_WRITE_IMM) {
		wc.wr_id = to->rq[to->rq_head++ % to->rq_size];
		to->rq_count--;
		complete(to->recv_cq, &wc);
	}
	return 0;
}

static void run(struct verbs_qp *qp)
{
	while (qp->sq_count && !qp->error && qp->id->state == ID_CONNECTED) {
		struct posted *p = &qp->sq[qp->sq_head % qp->sq_size];
		int status = carry_out(qp, p);

		if (status < 0)
			return;
		qp->sq_head++;
		qp->sq_count--;
		complete_send(qp, p, (uint32_t)status);
		if (status)
			stub_to_error(qp);
	}
}

void stub_run_all(void)
{
	struct list *l;

	for (l = qps.next; l != &qps; l = l->next)
		run(list_entry(l, struct verbs_qp, link));
}

void stub_late(void)
{
	pthread_mutex_lock(&stub_lock);
	stub_st.late = 1;
	pthread_mutex_unlock(&stub_lock);
}

void stub_freeze(void)
{
	pthread_mutex_lock(&stub_lock);
	stub_st.frozen = 1;
	pthread_mutex_unlock(&stub_lock);
}

void stub_thaw(uint32_t status)
{
	pthread_mutex_lock(&stub_lock);
	stub_st.frozen = 0;
	stub_st.status = status;
	stub_st.status_op = -1;
	stub_run_all();
	pthread_mutex_unlock(&stub_lock);
}

int stub_qp_create(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out)
{
	struct verbs_qp *qp;
	int rc;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("qp_create");
	if (!rc) {
		qp = calloc(1, sizeof(*qp));
		qp->id = id;
		qp->send_cq = init->send_cq;
		qp->recv_cq = init->recv_cq;
		qp->send_cq->qps++;
		qp->send_cq->sends = 1;
		qp->recv_cq->qps++;
		qp->sq_size = init->max_send_wr;
		qp->rq_size = init->max_recv_wr;
		qp->max_inline = init->max_inline = stub_st.max_inline;
		qp->sq = calloc(qp->sq_size, sizeof(*qp->sq));
		qp->rq = calloc(qp->rq_size, sizeof(*qp->rq));
		id->qp = made = qp;
		list_add_tail(&qps, &qp->link);
		stub_st.objects++;
		*out = qp;
	}
	pthread_mutex_unlock(&stub_lock);
	return rc;
}

void stub_qp_destroy(struct verbs_qp *qp)
{
	pthread_mutex_lock(&stub_lock);
	list_del(&qp->link);
	qp->id->qp = NULL;
	qp->send_cq->qps--;
	qp->recv_cq->qps--;
	free(qp->sq);
	free(qp->rq);
	free(qp);
	stub_st.objects--;
	stub_run_all();
	pthread_mutex_unlock(&stub_lock);
}

static int post_one(struct verbs_qp *qp, const struct verbs_send_wr *wr)
{
	struct posted *p;

	if (wr->nsge > 1 || (wr->flags & VERBS_SEND_INLINE && wr->sge->len > qp->max_inline))
		return -EINVAL;
	if (qp->sq_count == qp->sq_size)
		return -EAGAIN;
	p = &qp->sq[(qp->sq_head + qp->sq_count++) % qp->sq_size];
	p->wr = *wr;
	if (wr->nsge)
		p->sge = *wr->sge;
	if (wr->flags & VERBS_SEND_INLINE)
		memcpy(p->data, (void *)(uintptr_t)wr->sge->addr, wr->sge->len);
	stub_st.posted++;
	return 0;
}

int stub_post_send(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n)
{
	int rc, i;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("post_send");
	stub_st.post_calls++;
	for (i = 0; i < n && !rc; i++)
		rc = post_one(qp, &wr[i]);
	i -= rc != 0;
	if (qp->error)
		stub_to_error(qp);
	else
		run(qp);
	pthread_mutex_unlock(&stub_lock);
	return i > 0 ? i : rc;
}

int stub_post_recv(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n)
{
	int rc, i;

	pthread_mutex_lock(&stub_lock);
	rc = stub_fault("post_recv");
	for (i = 0; i < n && !rc; i++) {
		if (qp->rq_count == qp->rq_size)
			rc = -EAGAIN;
		else
			qp->rq[(qp->rq_head + qp->rq_count++) % qp->rq_size] = wr[i].wr_id;
	}
	i -= rc != 0;
	if (qp->error)
		stub_to_error(qp);
	else
		stub_run_all();
	pthread_mutex_unlock(&stub_lock);
	return i > 0 ? i : rc;
}
