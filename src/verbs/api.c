/* SPDX-License-Identifier: BSD-3-Clause */
/* <gpunet/verbs.h>: devices, memory, completions, queue pairs. Thin over the table of verbs. */
#include "verbs/api.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/sys.h"

enum {
	BATCH = 32,
	SEND_BATCH = 64, /* packets that the software RNIC sends in one system call */
	PSN_MASK = 0xffffff,
	NAMES_MAX = 512,
};

/* One numbering for the table and for users: nothing is translated. */
#define SAME(public_, internal_) \
	_Static_assert((unsigned)(public_) == (unsigned)(internal_), #public_ " is not " #internal_)

SAME(GPUNET_VERBS_LOCAL_WRITE, VERBS_ACCESS_LOCAL_WRITE);
SAME(GPUNET_VERBS_REMOTE_WRITE, VERBS_ACCESS_REMOTE_WRITE);
SAME(GPUNET_VERBS_REMOTE_READ, VERBS_ACCESS_REMOTE_READ);
SAME(GPUNET_VERBS_REMOTE_ATOMIC, VERBS_ACCESS_REMOTE_ATOMIC);
SAME(GPUNET_VERBS_WRITE, VERBS_WR_WRITE);
SAME(GPUNET_VERBS_WRITE_IMM, VERBS_WR_WRITE_IMM);
SAME(GPUNET_VERBS_SEND, VERBS_WR_SEND);
SAME(GPUNET_VERBS_SEND_IMM, VERBS_WR_SEND_IMM);
SAME(GPUNET_VERBS_READ, VERBS_WR_READ);
SAME(GPUNET_VERBS_CMP_SWAP, VERBS_WR_CMP_SWAP);
SAME(GPUNET_VERBS_FETCH_ADD, VERBS_WR_FETCH_ADD);
SAME(GPUNET_VERBS_FENCE, VERBS_SEND_FENCE);
SAME(GPUNET_VERBS_SIGNALED, VERBS_SEND_SIGNALED);
SAME(GPUNET_VERBS_SOLICITED, VERBS_SEND_SOLICITED);
SAME(GPUNET_VERBS_INLINE, VERBS_SEND_INLINE);
SAME(GPUNET_VERBS_WC_SEND, VERBS_WC_SEND);
SAME(GPUNET_VERBS_WC_WRITE, VERBS_WC_WRITE);
SAME(GPUNET_VERBS_WC_READ, VERBS_WC_READ);
SAME(GPUNET_VERBS_WC_CMP_SWAP, VERBS_WC_CMP_SWAP);
SAME(GPUNET_VERBS_WC_FETCH_ADD, VERBS_WC_FETCH_ADD);
SAME(GPUNET_VERBS_WC_RECV, VERBS_WC_RECV);
SAME(GPUNET_VERBS_WC_RECV_WRITE_IMM, VERBS_WC_RECV_WRITE_IMM);
SAME(GPUNET_VERBS_WC_WITH_IMM, VERBS_WC_WITH_IMM);
SAME(sizeof(struct gpunet_verbs_sge), sizeof(struct verbs_sge));
SAME(offsetof(struct gpunet_verbs_sge, length), offsetof(struct verbs_sge, len));
SAME(offsetof(struct gpunet_verbs_sge, lkey), offsetof(struct verbs_sge, lkey));

/* ---- waiting ----------------------------------------------------------------------------------------------------------- */

uint64_t api_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : sys.now_ns() + (uint64_t)timeout_ms * 1000000;
}

int api_wait(int fd, uint64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t now = sys.now_ns(),
		 left = deadline > now ? (deadline - now + 999999) / 1000000 : 0;
	int ms = deadline == UINT64_MAX ? -1 : left > INT_MAX ? INT_MAX : (int)left;
	int n = poll(&p, 1, ms);

	return n < 0 ? -errno : n;
}

/* ---- devices ----------------------------------------------------------------------------------------------------------- */

/* An option struct of an older program is shorter, and what it lacks is the default. */
static int take_options(struct gpunet_verbs_options *to, const struct gpunet_verbs_options *opt)
{
	const struct gpunet_verbs_options defaults = GPUNET_VERBS_OPTIONS_INIT;

	*to = defaults;
	if (!opt || opt->size < offsetof(struct gpunet_verbs_options, device) ||
	    opt->size > sizeof(*to))
		return log_error(-EINVAL, "gpunet_verbs_open: options have the wrong size");
	memcpy(to, opt, opt->size);
	if (!to->timeout_ms)
		to->timeout_ms = 5000;
	if (!to->device && !to->local && !to->toward)
		return log_error(-EINVAL,
				 "gpunet_verbs_open: a device, an address or a peer is needed");
	return 0;
}

static bool is_v4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

/* Whether an entry of the table is the device's address. */
static bool is_local(const gpunet_verbs_t *v, const uint8_t gid[16])
{
	const struct sockaddr_in6 *in6 = (const void *)&v->local;
	const struct sockaddr_in *in = (const void *)&v->local;

	if (!v->local_len)
		return false;
	if (v->local.ss_family == AF_INET)
		return is_v4(gid) && memcmp(gid + 12, &in->sin_addr, 4) == 0;
	return memcmp(gid, &in6->sin6_addr, 16) == 0;
}

/* How well an entry serves when the user names none. */
static int worth(const gpunet_verbs_t *v, const struct verbs_gid *g)
{
	if (!g->usable)
		return 0;
	return is_local(v, g->gid) ? 3 : is_v4(g->gid) ? 2 : 1;
}

static int choose_gid(gpunet_verbs_t *v, int wanted)
{
	struct verbs_gid g;
	int best = 0, rc;
	unsigned i;

	if (wanted >= 0) {
		v->gid_index = (unsigned)wanted;
		rc = v->use.ops->device_gid(v->dev, v->gid_index, &v->gid);
		return rc ? log_error(rc, "%s has no GID with index %d", v->info.name, wanted) : 0;
	}
	for (i = 0; v->use.ops->device_gid(v->dev, i, &g) == 0; i++) {
		if (worth(v, &g) <= best)
			continue;
		best = worth(v, &g);
		v->gid = g;
		v->gid_index = i;
	}
	/* Without one, connections by the connection manager work all the same. */
	return 0;
}

/* A device that was opened by name is bound to the address that its GID stands for. */
static void address_of_gid(gpunet_verbs_t *v)
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	if (v->local_len || !is_v4(v->gid.gid))
		return;
	memcpy(&in.sin_addr, v->gid.gid + 12, 4);
	memcpy(&v->local, &in, sizeof(in));
	v->local_len = sizeof(in);
	v->bind = true;
}

static int add_name(const struct verbs_device_info *d, void *arg)
{
	static const char more[] = ", ...";
	char *to = arg;
	size_t n = strlen(to);

	/* A machine may have more than a line has room for. */
	if (n + strlen(d->name) + sizeof(more) + 2 > NAMES_MAX) {
		memcpy(to + n, more, sizeof(more));
		return 1;
	}
	snprintf(to + n, NAMES_MAX - n, "%s%s", n ? ", " : "", d->name);
	return 0;
}

static int no_device(const gpunet_verbs_t *v, const char *name, int rc)
{
	char names[NAMES_MAX] = "";

	v->use.ops->devices(v->use.v, add_name, names);
	return log_error(rc, "provider %s has no device %s; it has: %s", v->use.ops->name, name,
			 *names ? names : "none");
}

static int open_device(gpunet_verbs_t *v, const struct gpunet_verbs_options *opt)
{
	int rc;

	if (opt->device) {
		rc = v->use.ops->device_open(v->use.v, opt->device, &v->dev);
		if (rc == -ENODEV)
			return no_device(v, opt->device, rc);
		if (rc)
			return log_error(rc, "provider %s cannot open device %s: %s",
					 v->use.ops->name, opt->device, strerror(-rc));
	} else {
		rc = api_device_by_address(v, opt);
		if (rc)
			return rc;
	}
	rc = v->use.ops->device_info(v->dev, &v->info);
	if (rc)
		return log_error(rc, "provider %s cannot tell what its device has",
				 v->use.ops->name);
	rc = choose_gid(v, opt->gid_index);
	if (!rc)
		address_of_gid(v);
	return rc;
}

int gpunet_verbs_open(gpunet_verbs_t **out, const struct gpunet_verbs_options *opt)
{
	struct gpunet_verbs_options o;
	gpunet_verbs_t *v;
	int rc = take_options(&o, opt);

	if (rc)
		return rc;
	v = sys.alloc(sizeof(*v));
	if (!v)
		return log_error(-ENOMEM, "gpunet_verbs_open: memory is short");
	rc = verbs_open(&v->use, o.provider);
	if (rc)
		log_error(rc, "RDMA cannot be used: %s", v->use.why);
	else
		rc = open_device(v, &o);
	if (rc) {
		verbs_close(&v->use);
		sys.free(v);
		return rc;
	}
	*out = v;
	return 0;
}

int gpunet_verbs_close(gpunet_verbs_t *v)
{
	if (atomic_load(&v->children))
		return -EBUSY;
	verbs_close(&v->use);
	sys.free(v);
	return 0;
}

static int fill_info(struct gpunet_verbs_info *out, const struct verbs_device_info *d,
		     const char *provider)
{
	struct gpunet_verbs_info info = { .provider = provider,
					  .name = d->name,
					  .detail = d->detail,
					  .active = d->port == VERBS_PORT_ACTIVE,
					  .mtu = d->mtu,
					  .max_wr = d->max_wr,
					  .max_cqe = d->max_cqe,
					  .max_sge = d->max_sge,
					  .max_qp = d->max_qp,
					  .software = (d->flags & VERBS_DEVICE_SOFTWARE) != 0 };

	info.size = out->size < sizeof(info) ? out->size : sizeof(info);
	if (info.size < offsetof(struct gpunet_verbs_info, detail))
		return -EINVAL;
	memcpy(out, &info, info.size);
	return 0;
}

int gpunet_verbs_query(gpunet_verbs_t *v, struct gpunet_verbs_info *info)
{
	return fill_info(info, &v->info, v->use.ops->name);
}

struct listing {
	const char *provider;
	int (*fn)(const struct gpunet_verbs_info *info, void *arg);
	void *arg;
};

static int list_one(const struct verbs_device_info *d, void *arg)
{
	const struct listing *l = arg;
	struct gpunet_verbs_info info = { .size = sizeof(info) };

	fill_info(&info, d, l->provider);
	return l->fn(&info, l->arg);
}

int gpunet_verbs_list(const char *provider,
		      int (*fn)(const struct gpunet_verbs_info *info, void *arg), void *arg)
{
	struct listing l = { NULL, fn, arg };
	struct verbs_use use;
	int rc = verbs_open(&use, provider);

	if (rc)
		return log_error(rc, "RDMA cannot be used: %s", use.why);
	l.provider = use.ops->name;
	rc = use.ops->devices(use.v, list_one, &l);
	verbs_close(&use);
	return rc;
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

int gpunet_verbs_reg(gpunet_verbs_t *v, void *addr, size_t length, unsigned access,
		     gpunet_verbs_mr_t **out)
{
	struct verbs_mem m = { .addr = addr, .fd = -1, .length = length, .iova = (uintptr_t)addr };
	gpunet_verbs_mr_t *mr;
	int rc;

	if (access & ~15u || !length)
		return -EINVAL;
	mr = sys.alloc(sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	rc = v->use.ops->reg(v->dev, &m, access, &mr->mr);
	if (rc) {
		sys.free(mr);
		return log_error(rc, "%s cannot register %zu bytes: %s%s", v->info.name, length,
				 strerror(-rc),
				 rc == -ENOMEM ? "; see ulimit -l (RLIMIT_MEMLOCK)" : "");
	}
	mr->v = v;
	atomic_fetch_add(&v->children, 1);
	*out = mr;
	return 0;
}

void gpunet_verbs_dereg(gpunet_verbs_mr_t *mr)
{
	mr->v->use.ops->dereg(mr->mr);
	atomic_fetch_sub(&mr->v->children, 1);
	sys.free(mr);
}

uint32_t gpunet_verbs_lkey(const gpunet_verbs_mr_t *mr)
{
	return mr->mr->lkey;
}

uint32_t gpunet_verbs_rkey(const gpunet_verbs_mr_t *mr)
{
	return mr->mr->rkey;
}

/* ---- completions ------------------------------------------------------------------------------------------------------- */

int gpunet_verbs_cq_create(gpunet_verbs_t *v, unsigned entries, gpunet_verbs_cq_t **out)
{
	const struct verbs_ops *ops = v->use.ops;
	gpunet_verbs_cq_t *cq;
	int rc;

	if (!entries || entries > v->info.max_cqe)
		return -EINVAL;
	cq = sys.alloc(sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	rc = ops->comp_open(v->dev, &cq->comp);
	if (!rc) {
		rc = ops->cq_create(v->dev, entries, cq->comp, &cq->cq);
		if (rc)
			ops->comp_close(cq->comp);
	}
	if (rc) {
		sys.free(cq);
		return rc;
	}
	cq->v = v;
	atomic_fetch_add(&v->children, 1);
	*out = cq;
	return 0;
}

int gpunet_verbs_cq_destroy(gpunet_verbs_cq_t *cq)
{
	if (atomic_load(&cq->qps))
		return -EBUSY;
	cq->v->use.ops->cq_destroy(cq->cq);
	cq->v->use.ops->comp_close(cq->comp);
	atomic_fetch_sub(&cq->v->children, 1);
	sys.free(cq);
	return 0;
}

/* A piece at a time, for the two structs are laid out apart: this one stays as it is, the table's may change. */
static int take(gpunet_verbs_cq_t *cq, struct gpunet_verbs_wc *wc, int n)
{
	struct verbs_wc w[BATCH];
	int done = 0, got = BATCH, i;

	while (done < n && got == BATCH) {
		got = cq->v->use.ops->poll(cq->cq, w, n - done < BATCH ? n - done : BATCH);
		if (got < 0)
			return done ? done : got;
		for (i = 0; i < got; i++)
			wc[done + i] = (struct gpunet_verbs_wc){ .wr_id = w[i].wr_id,
								 .status = w[i].status,
								 .opcode = w[i].opcode,
								 .byte_len = w[i].byte_len,
								 .imm = w[i].imm,
								 .qpn = w[i].qpn,
								 .flags = w[i].flags,
								 .vendor_err = w[i].vendor_err };
		done += got;
	}
	return done;
}

static int take_later(gpunet_verbs_cq_t *cq, struct gpunet_verbs_wc *wc, int n, int timeout_ms)
{
	uint64_t deadline = api_deadline(timeout_ms);
	int rc, got;

	for (;;) {
		rc = gpunet_verbs_cq_arm(cq);
		if (rc)
			return rc;
		got = take(cq, wc, n);
		if (got)
			return got;
		rc = api_wait(cq->v->use.ops->comp_fd(cq->comp), deadline);
		if (rc <= 0)
			return rc ? rc : take(cq, wc, n);
	}
}

int gpunet_verbs_poll(gpunet_verbs_cq_t *cq, struct gpunet_verbs_wc *wc, int n, int timeout_ms)
{
	int got = take(cq, wc, n);

	return got || !timeout_ms ? got : take_later(cq, wc, n, timeout_ms);
}

int gpunet_verbs_cq_fd(gpunet_verbs_cq_t *cq)
{
	return cq->v->use.ops->comp_fd(cq->comp);
}

int gpunet_verbs_cq_arm(gpunet_verbs_cq_t *cq)
{
	cq->v->use.ops->comp_drain(cq->comp);
	return cq->v->use.ops->arm(cq->cq);
}

const char *gpunet_verbs_status_text(uint32_t status)
{
	return verbs_status_text(status);
}

/* ---- queue pairs ------------------------------------------------------------------------------------------------------- */

static int new_psn(uint32_t *out)
{
	if (getrandom(out, sizeof(*out), 0) != (ssize_t)sizeof(*out))
		return -EIO;
	*out &= PSN_MASK;
	return 0;
}

static int check_init(const gpunet_verbs_t *v, const gpunet_verbs_conn_t *c,
		      const struct gpunet_verbs_qp_init *init)
{
	if (init->size != sizeof(*init) || !init->send_cq || !init->recv_cq ||
	    init->send_cq->v != v || init->recv_cq->v != v || (c && (c->v != v || c->qp)))
		return -EINVAL;
	if (init->max_send_wr > v->info.max_wr || init->max_recv_wr > v->info.max_wr ||
	    init->max_send_sge > v->info.max_sge || init->max_recv_sge > v->info.max_sge)
		return -EINVAL;
	return 0;
}

static int create(gpunet_verbs_qp_t *qp, struct gpunet_verbs_qp_init *init)
{
	const struct verbs_ops *ops = qp->v->use.ops;
	struct verbs_qp_init in = { .send_cq = init->send_cq->cq,
				    .recv_cq = init->recv_cq->cq,
				    .max_send_wr = init->max_send_wr ? init->max_send_wr : 1,
				    .max_recv_wr = init->max_recv_wr ? init->max_recv_wr : 1,
				    .max_send_sge = init->max_send_sge ? init->max_send_sge : 1,
				    .max_recv_sge = init->max_recv_sge ? init->max_recv_sge : 1,
				    .max_inline = init->max_inline };
	int rc = new_psn(&qp->psn);

	if (!rc)
		rc = qp->conn ? ops->qp_create(qp->conn->id, &in, &qp->qp)
			      : ops->peer_qp_create(qp->v->dev, &in, &qp->qp);
	if (rc)
		return rc;
	qp->qpn = in.qpn;
	init->max_send_wr = in.max_send_wr;
	init->max_recv_wr = in.max_recv_wr;
	init->max_send_sge = in.max_send_sge;
	init->max_recv_sge = in.max_recv_sge;
	init->max_inline = in.max_inline;
	return 0;
}

int gpunet_verbs_qp_create(gpunet_verbs_t *v, gpunet_verbs_conn_t *c,
			   struct gpunet_verbs_qp_init *init, gpunet_verbs_qp_t **out)
{
	gpunet_verbs_qp_t *qp;
	int rc = check_init(v, c, init);

	if (rc)
		return rc;
	qp = sys.alloc(sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	qp->v = v;
	qp->conn = c;
	rc = create(qp, init);
	if (rc) {
		sys.free(qp);
		return rc;
	}
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	atomic_fetch_add(&qp->send_cq->qps, 1);
	atomic_fetch_add(&qp->recv_cq->qps, 1);
	atomic_fetch_add(&v->children, 1);
	if (c)
		c->qp = qp;
	*out = qp;
	return 0;
}

void gpunet_verbs_qp_destroy(gpunet_verbs_qp_t *qp)
{
	qp->v->use.ops->qp_destroy(qp->qp);
	if (qp->conn)
		qp->conn->qp = NULL;
	atomic_fetch_sub(&qp->send_cq->qps, 1);
	atomic_fetch_sub(&qp->recv_cq->qps, 1);
	atomic_fetch_sub(&qp->v->children, 1);
	sys.free(qp);
}

static bool fill_send(struct verbs_send_wr *to, const struct gpunet_verbs_send_wr *wr)
{
	if (wr->opcode > GPUNET_VERBS_FETCH_ADD || wr->flags & ~15u)
		return false;
	*to = (struct verbs_send_wr){ .wr_id = wr->wr_id,
				      .opcode = (enum verbs_wr_opcode)wr->opcode,
				      .flags = wr->flags,
				      .sge = (const struct verbs_sge *)(const void *)wr->sge,
				      .nsge = wr->nsge,
				      .imm = wr->imm,
				      .raddr = wr->remote_addr,
				      .rkey = wr->rkey,
				      .compare = wr->compare,
				      .swap_add = wr->swap_add };
	return true;
}

int gpunet_verbs_post_send(gpunet_verbs_qp_t *qp, const struct gpunet_verbs_send_wr *wr, int n)
{
	struct verbs_send_wr w[SEND_BATCH];
	int done = 0, want, got;

	do {
		for (want = 0; want < SEND_BATCH && done + want < n; want++) {
			if (!fill_send(&w[want], &wr[done + want]))
				break;
		}
		got = want ? qp->v->use.ops->post_send(qp->qp, w, want) : n ? -EINVAL : 0;
		if (got < 0)
			return done ? done : got;
		done += got;
	} while (got == SEND_BATCH && done < n);
	return done;
}

int gpunet_verbs_post_recv(gpunet_verbs_qp_t *qp, const struct gpunet_verbs_recv_wr *wr, int n)
{
	struct verbs_recv_wr w[BATCH];
	int done = 0, want, got;

	do {
		for (want = 0; want < BATCH && done + want < n; want++)
			w[want] = (struct verbs_recv_wr){
				wr[done + want].wr_id,
				(const struct verbs_sge *)(const void *)wr[done + want].sge,
				wr[done + want].nsge
			};
		got = want ? qp->v->use.ops->post_recv(qp->qp, w, want) : 0;
		if (got < 0)
			return done ? done : got;
		done += got;
	} while (got == BATCH && done < n);
	return done;
}

/* ---- peers by number ----------------------------------------------------------------------------------------------------- */

int gpunet_verbs_qp_address(gpunet_verbs_qp_t *qp, struct gpunet_verbs_address *out)
{
	if (out->size != sizeof(*out))
		return -EINVAL;
	if (!qp->v->gid.usable)
		return log_error(-EADDRNOTAVAIL, "%s has no address for RoCEv2", qp->v->info.name);
	out->qpn = qp->qpn;
	out->psn = qp->psn;
	out->lid = qp->v->gid.lid;
	out->mtu = (uint16_t)qp->v->info.mtu;
	memcpy(out->gid, qp->v->gid.gid, 16);
	return 0;
}

int gpunet_verbs_qp_connect(gpunet_verbs_qp_t *qp, const struct gpunet_verbs_address *peer,
			    const struct gpunet_verbs_param *p)
{
	struct verbs_peer to = { .gid_index = qp->v->gid_index, .my_psn = qp->psn };
	struct verbs_conn_param param;
	int rc = api_param(p, 0, &param);

	if (rc || peer->size != sizeof(*peer) || qp->conn)
		return -EINVAL;
	to.qpn = peer->qpn;
	to.psn = peer->psn & PSN_MASK;
	to.lid = qp->v->gid.lid ? peer->lid : 0;
	to.mtu = peer->mtu < qp->v->info.mtu ? peer->mtu : qp->v->info.mtu;
	memcpy(to.gid, peer->gid, 16);
	rc = qp->v->use.ops->peer_qp_connect(qp->qp, &to, &param);
	return rc ? log_error(rc, "%s cannot connect queue pair %u to %u: %s", qp->v->info.name,
			      qp->qpn, to.qpn, strerror(-rc))
		  : 0;
}
