/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs_stub.h"
#include "wire/rsocket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/list.h"

#define MAX_MR 4096
#define MAX_SGE_BYTES 64

struct verbs {
	int opened;
};

struct verbs_device {
	int unused;
};

struct queued_event {
	struct list link;
	struct verbs_event e;
};

struct verbs_events {
	int fd;
	struct list queue;
};

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

struct verbs_qp {
	struct list link;
	struct verbs_id *id;
	struct verbs_cq *send_cq, *recv_cq;
	struct posted *sq;
	unsigned sq_size, sq_head, sq_count;
	uint64_t *rq;
	unsigned rq_size, rq_head, rq_count;
	unsigned max_inline;
	int error, stuck;
};

enum id_state {
	ID_IDLE,
	ID_BOUND,
	ID_LISTEN,
	ID_RESOLVED,
	ID_ASKED,
	ID_ANSWERING,
	ID_CONNECTED,
	ID_OVER
};

struct verbs_id {
	struct list link;
	struct verbs_events *events;
	void *user;
	enum id_state state;
	struct sockaddr_storage local, remote;
	struct verbs_id *peer;
	struct verbs_qp *qp;
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_device device;
static struct list ids = { &ids, &ids }, qps = { &qps, &qps };
static struct region regions[MAX_MR];
static uint32_t next_key;
static uint16_t next_port = 20000;
int stub_no_rtu;

static struct {
	char slot[32];
	unsigned nth, any_nth, calls, failed;
	int err, status_op;
	uint32_t status;
	int frozen, late;
	unsigned parts; /* DISCONNECTED events that were taken */
	unsigned objects, rnr, posted, post_calls, ack_arms, max_inline;
	int gpu;
	unsigned takes, by_dmabuf, by_pointer;
} st;

void stub_install(void)
{
	memset(&st, 0, sizeof(st));
	st.max_inline = 64;
	verbs_override = &verbs_stub;
}

void stub_fail(const char *slot, unsigned nth, int err)
{
	pthread_mutex_lock(&lock);
	snprintf(st.slot, sizeof(st.slot), "%s", slot);
	st.nth = nth;
	st.err = err;
	st.failed = 0;
	pthread_mutex_unlock(&lock);
}

void stub_fail_any(unsigned nth, int err)
{
	pthread_mutex_lock(&lock);
	st.any_nth = nth;
	st.calls = 0;
	st.err = err;
	st.failed = 0;
	pthread_mutex_unlock(&lock);
}

static unsigned count_of(const unsigned *what)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = *what;
	pthread_mutex_unlock(&lock);
	return n;
}

unsigned stub_calls(void)
{
	return count_of(&st.calls);
}

int stub_failed(void)
{
	return (int)count_of(&st.failed);
}

void stub_status(int op, uint32_t status)
{
	pthread_mutex_lock(&lock);
	st.status_op = op;
	st.status = status;
	pthread_mutex_unlock(&lock);
}

int stub_objects(void)
{
	return (int)count_of(&st.objects);
}

unsigned stub_rnr(void)
{
	return count_of(&st.rnr);
}

unsigned stub_posted(void)
{
	return count_of(&st.posted);
}

unsigned stub_ack_arms(void)
{
	return count_of(&st.ack_arms);
}

unsigned stub_post_calls(void)
{
	return count_of(&st.post_calls);
}

void stub_gpu(unsigned takes)
{
	st.gpu = 1;
	st.takes = takes;
}

unsigned stub_regs(unsigned kind)
{
	return count_of(kind == STUB_DMABUF ? &st.by_dmabuf : &st.by_pointer);
}

void stub_inline(unsigned n)
{
	st.max_inline = n;
}

/* Under the lock: does this call fail? */
static int named_fault(const char *slot)
{
	if (st.nth && !strcmp(st.slot, slot) && !--st.nth) {
		st.failed = 1;
		return -st.err;
	}
	return 0;
}

static int fault(const char *slot)
{
	st.calls++;
	if (st.any_nth && st.calls == st.any_nth) {
		st.failed = 1;
		if (getenv("STUB_TRACE"))
			fprintf(stderr, "stub: %s fails\n", slot);
		return -st.err;
	}
	return named_fault(slot);
}

static void poke(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0)
		return;
}

/* ---- events -------------------------------------------------------------------------------------------------------------------- */

static struct verbs_event *queue_event(struct verbs_id *id, enum verbs_event_type type)
{
	struct queued_event *q = calloc(1, sizeof(*q));

	q->e.type = type;
	q->e.id = id;
	q->e.user = id->user;
	list_add_tail(&id->events->queue, &q->link);
	poke(id->events->fd);
	return &q->e;
}

static void end_id(struct verbs_id *id);

/* All of a queue, or those of one id. Requests that nobody has taken end with their listener: their peers are refused. */
static void drop_events(struct verbs_events *e, const struct verbs_id *id)
{
	struct list *l = e->queue.next;

	while (l != &e->queue) {
		struct queued_event *q = list_entry(l, struct queued_event, link);

		l = l->next;
		if (id && q->e.id != id)
			continue;
		list_del(&q->link);
		if (q->e.request) {
			end_id(q->e.request);
			l = e->queue.next; /* it had events, too */
		}
		free(q);
	}
}

static int s_open(struct verbs **out, char *why, size_t why_size)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("open");
	if (rc)
		snprintf(why, why_size, "the stub was told to fail");
	else
		*out = calloc(1, sizeof(**out));
	st.objects += !rc;
	pthread_mutex_unlock(&lock);
	return rc;
}

static void s_close(struct verbs *v)
{
	pthread_mutex_lock(&lock);
	free(v);
	st.objects--;
	pthread_mutex_unlock(&lock);
}

static int s_device_info(struct verbs_device *d, struct verbs_device_info *out)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("device_info");
	pthread_mutex_unlock(&lock);
	if (rc)
		return rc;
	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "stub0");
	snprintf(out->detail, sizeof(out->detail), "within this process");
	out->port = VERBS_PORT_ACTIVE;
	out->mtu = 4096;
	out->max_qp = out->max_cq = out->max_mr = MAX_MR;
	out->max_cqe = 32767;
	out->max_wr = 16384;
	out->max_sge = 1;
	out->flags = st.gpu ? 0 : VERBS_DEVICE_SOFTWARE;
	return 0;
}

static int s_devices(struct verbs *v, int (*fn)(const struct verbs_device_info *d, void *arg),
		     void *arg)
{
	struct verbs_device_info info;
	int rc = s_device_info(&device, &info);

	return rc ? rc : fn(&info, arg);
}

static int s_events_open(struct verbs *v, unsigned flags, struct verbs_events **out)
{
	struct verbs_events *e;
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("events_open");
	if (!rc) {
		e = calloc(1, sizeof(*e));
		e->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		list_init(&e->queue);
		st.objects++;
		*out = e;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static void s_events_close(struct verbs_events *e)
{
	pthread_mutex_lock(&lock);
	drop_events(e, NULL);
	close(e->fd);
	free(e);
	st.objects--;
	pthread_mutex_unlock(&lock);
}

static int s_events_fd(struct verbs_events *e)
{
	return e->fd;
}

static int s_event_next(struct verbs_events *e, struct verbs_event *out)
{
	struct queued_event *q = NULL;
	uint64_t n;

	pthread_mutex_lock(&lock);
	if (!list_empty(&e->queue)) {
		q = list_entry(e->queue.next, struct queued_event, link);
		list_del(&q->link);
		*out = q->e;
		st.parts += q->e.type == VERBS_EVENT_DISCONNECTED;
		free(q);
	} else if (read(e->fd, &n, sizeof(n)) < 0) {
		n = 0;
	}
	pthread_mutex_unlock(&lock);
	return q ? 0 : -EAGAIN;
}

/* ---- completions --------------------------------------------------------------------------------------------------------------- */

static void complete(struct verbs_cq *cq, const struct verbs_wc *wc)
{
	if (cq->count == cq->size) {
		fprintf(stderr, "stub: a completion queue overflows\n");
		abort();
	}
	cq->wc[(cq->head + cq->count++) % cq->size] = *wc;
	if (cq->armed)
		poke(cq->comp->fd);
	cq->armed = 0;
}

static int s_comp_open(struct verbs_device *d, struct verbs_comp **out)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("comp_open");
	if (!rc) {
		*out = calloc(1, sizeof(**out));
		(*out)->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		st.objects++;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static void s_comp_close(struct verbs_comp *c)
{
	pthread_mutex_lock(&lock);
	close(c->fd);
	free(c);
	st.objects--;
	pthread_mutex_unlock(&lock);
}

static int s_comp_fd(struct verbs_comp *c)
{
	return c->fd;
}

static void s_comp_drain(struct verbs_comp *c)
{
	uint64_t n;

	if (read(c->fd, &n, sizeof(n)) < 0)
		return;
}

static int s_cq_create(struct verbs_device *d, unsigned entries, struct verbs_comp *c,
		       struct verbs_cq **out)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("cq_create");
	if (!rc && (!entries || entries > 32767))
		rc = -EINVAL;
	if (!rc) {
		*out = calloc(1, sizeof(**out));
		(*out)->comp = c;
		(*out)->size = entries;
		(*out)->wc = calloc(entries, sizeof(struct verbs_wc));
		st.objects++;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static void s_cq_destroy(struct verbs_cq *cq)
{
	pthread_mutex_lock(&lock);
	if (cq->qps) {
		fprintf(stderr, "stub: a completion queue goes before its queue pairs\n");
		abort();
	}
	free(cq->wc);
	free(cq);
	st.objects--;
	pthread_mutex_unlock(&lock);
}

static int s_poll(struct verbs_cq *cq, struct verbs_wc *wc, int n)
{
	int i, rc;

	pthread_mutex_lock(&lock);
	rc = named_fault("poll");
	if (rc) {
		pthread_mutex_unlock(&lock);
		return rc;
	}
	if (cq->late && cq->parts != st.parts)
		cq->late = 0;
	for (i = 0; i < n && cq->count && !cq->late; i++) {
		wc[i] = cq->wc[cq->head];
		cq->head = (cq->head + 1) % cq->size;
		cq->count--;
	}
	pthread_mutex_unlock(&lock);
	return i;
}

static int s_arm(struct verbs_cq *cq)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = named_fault("arm");
	cq->armed = !rc;
	st.ack_arms += (unsigned)cq->sends;
	pthread_mutex_unlock(&lock);
	return rc;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------------- */

/* Maps a dma-buf's bytes, as a device would see them. */
static int map_buf(struct region *r, const struct verbs_mem *m)
{
	if (!(st.takes & STUB_DMABUF))
		return -EOPNOTSUPP;
	r->view_size = m->offset + m->length;
	r->view = mmap(NULL, r->view_size, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (r->view == MAP_FAILED)
		return -EBADF;
	r->addr = (uint8_t *)r->view + m->offset;
	st.by_dmabuf += m->length != TRIAL;
	return 0;
}

static int map_pointer(struct region *r, const struct verbs_mem *m)
{
	r->addr = m->addr;
	if (m->iova == (uintptr_t)m->addr)
		return 0;
	st.by_pointer += (st.takes & STUB_PEERMEM) && m->length != TRIAL;
	return st.takes & STUB_PEERMEM ? 0 : -EFAULT;
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

static int s_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
		 struct verbs_mr **out)
{
	struct region *r = regions;
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("reg");
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
		st.objects++;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static void s_dereg(struct verbs_mr *mr)
{
	struct region *r = (struct region *)(void *)mr;
	struct list *l;

	pthread_mutex_lock(&lock);
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
	st.objects--;
	pthread_mutex_unlock(&lock);
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
	if (st.late && p->wr.imm == wire_rsock_imm(WIRE_RSOCK_OP_CTRL, WIRE_RSOCK_DISCONNECT)) {
		qp->send_cq->late = 1;
		qp->send_cq->parts = st.parts;
	}
	complete(qp->send_cq, &wc);
}

static void to_error(struct verbs_qp *qp)
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

	if (st.status && (st.status_op < 0 || (int)(p->wr.imm >> 29) == st.status_op)) {
		int s = (int)st.status;

		st.status = 0;
		return s;
	}
	if (st.frozen)
		return -1;
	if (!to || to->error)
		return VERBS_WC_RETRY_EXC_ERR;
	if (p->wr.opcode == VERBS_WR_WRITE_IMM && !to->rq_count) {
		st.rnr += !qp->stuck;
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
			to_error(to);
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
			to_error(qp);
	}
}

static void run_all(void)
{
	struct list *l;

	for (l = qps.next; l != &qps; l = l->next)
		run(list_entry(l, struct verbs_qp, link));
}

void stub_late(void)
{
	pthread_mutex_lock(&lock);
	st.late = 1;
	pthread_mutex_unlock(&lock);
}

void stub_freeze(void)
{
	pthread_mutex_lock(&lock);
	st.frozen = 1;
	pthread_mutex_unlock(&lock);
}

void stub_thaw(uint32_t status)
{
	pthread_mutex_lock(&lock);
	st.frozen = 0;
	st.status = status;
	st.status_op = -1;
	run_all();
	pthread_mutex_unlock(&lock);
}

static int s_qp_create(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out)
{
	struct verbs_qp *qp;
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("qp_create");
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
		qp->max_inline = init->max_inline = st.max_inline;
		qp->sq = calloc(qp->sq_size, sizeof(*qp->sq));
		qp->rq = calloc(qp->rq_size, sizeof(*qp->rq));
		id->qp = made = qp;
		list_add_tail(&qps, &qp->link);
		st.objects++;
		*out = qp;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static void s_qp_destroy(struct verbs_qp *qp)
{
	pthread_mutex_lock(&lock);
	list_del(&qp->link);
	qp->id->qp = NULL;
	qp->send_cq->qps--;
	qp->recv_cq->qps--;
	free(qp->sq);
	free(qp->rq);
	free(qp);
	st.objects--;
	run_all();
	pthread_mutex_unlock(&lock);
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
	st.posted++;
	return 0;
}

static int s_post_send(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n)
{
	int rc, i;

	pthread_mutex_lock(&lock);
	rc = fault("post_send");
	st.post_calls++;
	for (i = 0; i < n && !rc; i++)
		rc = post_one(qp, &wr[i]);
	i -= rc != 0;
	if (qp->error)
		to_error(qp);
	else
		run(qp);
	pthread_mutex_unlock(&lock);
	return i > 0 ? i : rc;
}

static int s_post_recv(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n)
{
	int rc, i;

	pthread_mutex_lock(&lock);
	rc = fault("post_recv");
	for (i = 0; i < n && !rc; i++) {
		if (qp->rq_count == qp->rq_size)
			rc = -EAGAIN;
		else
			qp->rq[(qp->rq_head + qp->rq_count++) % qp->rq_size] = wr[i].wr_id;
	}
	i -= rc != 0;
	if (qp->error)
		to_error(qp);
	else
		run_all();
	pthread_mutex_unlock(&lock);
	return i > 0 ? i : rc;
}

/* ---- connections ---------------------------------------------------------------------------------------------------------------- */

static uint16_t *port_of(struct sockaddr_storage *a)
{
	return &((struct sockaddr_in *)(void *)a)->sin_port; /* at the same place in IPv6 */
}

static struct verbs_id *new_id(struct verbs_events *e, void *user)
{
	struct verbs_id *id = calloc(1, sizeof(*id));

	id->events = e;
	id->user = user;
	list_add_tail(&ids, &id->link);
	st.objects++;
	return id;
}

static int s_id_create(struct verbs_events *e, void *user, struct verbs_id **out)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("id_create");
	if (!rc)
		*out = new_id(e, user);
	pthread_mutex_unlock(&lock);
	return rc;
}

static void part(struct verbs_id *id, enum verbs_event_type type, int status)
{
	struct verbs_id *peer = id->peer;
	struct verbs_event *e;

	if (!peer)
		return;
	e = queue_event(peer, type);
	e->status = status;
	e->reason = 28;
	peer->state = ID_OVER;
	id->peer = NULL;
	peer->peer = NULL;
}

static void end_id(struct verbs_id *id)
{
	bool answering = id->state == ID_ANSWERING;

	if (id->qp) {
		fprintf(stderr, "stub: an id goes before its queue pair\n");
		abort();
	}
	if (answering || id->state == ID_CONNECTED || id->state == ID_ASKED)
		part(id, answering ? VERBS_EVENT_REJECTED : VERBS_EVENT_DISCONNECTED,
		     answering ? -ECONNREFUSED : 0);
	drop_events(id->events, id);
	list_del(&id->link);
	free(id);
	st.objects--;
}

static void s_id_destroy(struct verbs_id *id)
{
	pthread_mutex_lock(&lock);
	end_id(id);
	run_all();
	pthread_mutex_unlock(&lock);
}

static int s_id_migrate(struct verbs_id *id, struct verbs_events *to, void *user)
{
	struct list *l, *next;
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("id_migrate");
	if (rc) {
		pthread_mutex_unlock(&lock);
		return rc;
	}
	for (l = id->events->queue.next; l != &id->events->queue; l = next) {
		struct queued_event *q = list_entry(l, struct queued_event, link);

		next = l->next;
		if (q->e.id != id)
			continue;
		q->e.user = user;
		if (to == id->events)
			continue;
		list_del(l);
		list_add_tail(&to->queue, l);
		poke(to->fd);
	}
	id->events = to;
	id->user = user;
	pthread_mutex_unlock(&lock);
	return 0;
}

static int s_id_option(struct verbs_id *id, enum verbs_id_option option, int value)
{
	return 0;
}

static struct verbs_device *s_id_device(struct verbs_id *id)
{
	struct verbs_device *d;

	pthread_mutex_lock(&lock);
	d = id->state >= ID_RESOLVED ? &device : NULL;
	pthread_mutex_unlock(&lock);
	return d;
}

static int s_id_name(struct verbs_id *id, int peer, struct sockaddr *a, socklen_t *n)
{
	struct sockaddr_storage *s = peer ? &id->remote : &id->local;
	socklen_t len =
		s->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	if (!s->ss_family)
		return -ENOTCONN;
	memcpy(a, s, len < *n ? len : *n);
	*n = len;
	return 0;
}

static int port_taken(uint16_t port)
{
	struct list *l;

	for (l = ids.next; l != &ids; l = l->next) {
		struct verbs_id *id = list_entry(l, struct verbs_id, link);

		if ((id->state == ID_BOUND || id->state == ID_LISTEN) &&
		    *port_of(&id->local) == port)
			return 1;
	}
	return 0;
}

static int do_bind(struct verbs_id *id, const struct sockaddr *a, socklen_t n)
{
	memcpy(&id->local, a, n);
	if (!*port_of(&id->local))
		*port_of(&id->local) = htons(next_port++);
	else if (port_taken(*port_of(&id->local)))
		return -EADDRINUSE;
	id->state = ID_BOUND;
	return 0;
}

static int s_bind(struct verbs_id *id, const struct sockaddr *a, socklen_t n)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("bind");
	if (!rc)
		rc = do_bind(id, a, n);
	pthread_mutex_unlock(&lock);
	return rc;
}

static int s_listen(struct verbs_id *id, int backlog)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("listen");
	if (!rc)
		id->state = ID_LISTEN;
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Port 1 has no route. */
static int s_resolve(struct verbs_id *id, const struct sockaddr *a, socklen_t n,
		     unsigned timeout_ms)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("resolve");
	if (!rc) {
		memcpy(&id->remote, a, n);
		if (!id->local.ss_family) {
			memcpy(&id->local, a, n);
			*port_of(&id->local) = htons(next_port++);
		}
		if (*port_of(&id->remote) == htons(1)) {
			queue_event(id, VERBS_EVENT_UNREACHABLE)->status = -EHOSTUNREACH;
		} else {
			id->state = ID_RESOLVED;
			queue_event(id, VERBS_EVENT_RESOLVED);
		}
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static struct verbs_id *listener_on(uint16_t port)
{
	struct list *l;

	for (l = ids.next; l != &ids; l = l->next) {
		struct verbs_id *id = list_entry(l, struct verbs_id, link);

		if (id->state == ID_LISTEN && *port_of(&id->local) == port)
			return id;
	}
	return NULL;
}

static int s_connect(struct verbs_id *id, const struct verbs_conn_param *p)
{
	struct verbs_id *l, *r;
	struct verbs_event *e;
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("connect");
	l = rc ? NULL : listener_on(*port_of(&id->remote));
	if (!rc && !l) {
		e = queue_event(id, VERBS_EVENT_REJECTED);
		e->status = -ECONNREFUSED;
		e->reason = 8;
	} else if (l) {
		r = new_id(l->events, l->user);
		r->local = l->local;
		r->remote = id->local;
		r->state = ID_ANSWERING;
		r->peer = id;
		id->peer = r;
		id->state = ID_ASKED;
		e = queue_event(l, VERBS_EVENT_CONNECT_REQUEST);
		e->request = r;
		e->param = *p;
		e->param.private_len = VERBS_PRIVATE_REQ;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int s_accept(struct verbs_id *id, const struct verbs_conn_param *p)
{
	struct verbs_event *e;
	int rc;

	pthread_mutex_lock(&lock);
	rc = fault("accept");
	if (!rc && !id->peer)
		rc = -ECONNRESET;
	if (!rc) {
		id->state = id->peer->state = ID_CONNECTED;
		e = queue_event(id->peer, VERBS_EVENT_ESTABLISHED);
		e->param = *p;
		e->param.private_len = VERBS_PRIVATE_MAX;
		if (!stub_no_rtu)
			queue_event(id, VERBS_EVENT_ESTABLISHED);
		run_all();
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int s_reject(struct verbs_id *id, const void *private_data, uint8_t n)
{
	pthread_mutex_lock(&lock);
	part(id, VERBS_EVENT_REJECTED, -ECONNREFUSED);
	id->state = ID_OVER;
	pthread_mutex_unlock(&lock);
	return 0;
}

static int s_disconnect(struct verbs_id *id)
{
	pthread_mutex_lock(&lock);
	if (id->qp && !id->qp->error)
		to_error(id->qp);
	part(id, VERBS_EVENT_DISCONNECTED, 0);
	id->state = ID_OVER;
	run_all();
	pthread_mutex_unlock(&lock);
	return 0;
}

static int s_device_open(struct verbs *v, const char *name, struct verbs_device **out)
{
	if (strcmp(name, "stub0"))
		return -ENODEV;
	*out = &device;
	return 0;
}

static int s_export_queue(struct verbs_qp *qp, struct verbs_queue_export *out)
{
	return -EOPNOTSUPP;
}

const struct verbs_ops verbs_stub = {
	.name = "stub",
	.open = s_open,
	.close = s_close,
	.devices = s_devices,
	.events_open = s_events_open,
	.events_close = s_events_close,
	.events_fd = s_events_fd,
	.event_next = s_event_next,
	.id_create = s_id_create,
	.id_destroy = s_id_destroy,
	.id_migrate = s_id_migrate,
	.id_option = s_id_option,
	.id_device = s_id_device,
	.id_name = s_id_name,
	.bind = s_bind,
	.listen = s_listen,
	.resolve = s_resolve,
	.connect = s_connect,
	.accept = s_accept,
	.reject = s_reject,
	.disconnect = s_disconnect,
	.device_info = s_device_info,
	.comp_open = s_comp_open,
	.comp_close = s_comp_close,
	.comp_fd = s_comp_fd,
	.comp_drain = s_comp_drain,
	.cq_create = s_cq_create,
	.cq_destroy = s_cq_destroy,
	.poll = s_poll,
	.arm = s_arm,
	.qp_create = s_qp_create,
	.qp_destroy = s_qp_destroy,
	.post_send = s_post_send,
	.post_recv = s_post_recv,
	.reg = s_reg,
	.dereg = s_dereg,
	.export_queue = s_export_queue,
	.device_open = s_device_open,
};
