/* SPDX-License-Identifier: BSD-3-Clause */
#include "rnic/cm_gsi.h"

#include <errno.h>
#include <string.h>

#include "base/sys.h"
#include "wire/frame.h"

enum {
	RECVS = 256, /* a flood beyond it is lost, as anywhere on the way */
	SENDS = 256,
	BUF = WIRE_CM_GRH_LEN + WIRE_MAD_LEN,
};

struct rnic_gsi {
	struct rnic *r;
	struct rnic_cm *cm;
	struct rnic_pd *pd;
	struct rnic_cq *scq, *rcq;
	struct rnic_mr *mr;
	struct rnic_qp *qp;
	int (*event)(void *ctx, const struct rnic_cm_event *ev);
	int (*nobody)(void *ctx, const struct rnic_path *path);
	uint64_t (*random)(void *ctx);
	void *ctx;
	uint8_t buf[RECVS][BUF];
};

static int gsi_send(void *ctx, const struct rnic_path *path, const uint8_t mad[WIRE_MAD_LEN],
		    uint64_t now)
{
	struct rnic_gsi *g = ctx;
	struct rnic_sge sge = { (uintptr_t)mad, WIRE_MAD_LEN, 0 };
	struct rnic_path to = *path;
	struct rnic_send_wr wr = { .opcode = RNIC_WR_SEND,
				   .flags = RNIC_SEND_INLINE,
				   .sge = &sge,
				   .nsge = 1,
				   .path = &to,
				   .dest_qpn = WIRE_CM_QPN_GSI,
				   .qkey = WIRE_CM_QKEY_GSI };

	/* The flow label belongs to the connection, not to what is said about it. */
	to.flow = 0;
	to.sport = 0;
	return rnic_post_send(g->qp, &wr, now);
}

static int gsi_event(void *ctx, const struct rnic_cm_event *ev)
{
	struct rnic_gsi *g = ctx;

	return g->event(g->ctx, ev);
}

static int gsi_nobody(void *ctx, const struct rnic_path *path)
{
	struct rnic_gsi *g = ctx;

	return g->nobody(g->ctx, path);
}

static uint64_t gsi_random(void *ctx)
{
	struct rnic_gsi *g = ctx;

	return g->random(g->ctx);
}

static int post_recv(struct rnic_gsi *g, uint64_t i)
{
	struct rnic_sge sge = { (uintptr_t)g->buf[i], BUF, rnic_mr_lkey(g->mr) };

	return rnic_post_recv(g->qp, i, &sge, 1);
}

static int make_ready(struct rnic_gsi *g)
{
	struct rnic_qp_attr a = { .qkey = WIRE_CM_QKEY_GSI };
	uint64_t i;
	int s, rc = 0;

	for (s = RNIC_QPS_INIT; s <= RNIC_QPS_RTS && !rc; s++) {
		a.state = (enum rnic_qp_state)s;
		rc = rnic_qp_modify(g->qp, &a, RNIC_ATTR_STATE | RNIC_ATTR_QKEY, 0);
	}
	for (i = 0; i < RECVS && !rc; i++)
		rc = post_recv(g, i);
	return rc;
}

static int open_objects(struct rnic_gsi *g)
{
	struct rnic_qp_init in = { .type = RNIC_QP_GSI,
				   .max_send_wr = SENDS,
				   .max_recv_wr = RECVS,
				   .max_recv_sge = 1,
				   .max_inline = WIRE_MAD_LEN };
	int rc;

	if ((rc = rnic_pd_create(g->r, &g->pd)) || (rc = rnic_cq_create(g->r, SENDS, &g->scq)) ||
	    (rc = rnic_cq_create(g->r, RECVS, &g->rcq)) ||
	    (rc = rnic_mr_create(g->pd, g->buf, sizeof(g->buf), (uintptr_t)g->buf,
				 RNIC_ACCESS_LOCAL_WRITE, &g->mr)))
		return rc;
	in.send_cq = g->scq;
	in.recv_cq = g->rcq;
	rc = rnic_qp_create(g->pd, &in, &g->qp);
	return rc ? rc : make_ready(g);
}

int rnic_gsi_open(struct rnic *r, const struct rnic_cm_config *cfg, struct rnic_gsi **out)
{
	struct rnic_gsi *g = sys.alloc(sizeof(*g));
	struct rnic_cm_config c = *cfg;
	int rc;

	if (!g)
		return -ENOMEM;
	g->r = r;
	g->event = cfg->event;
	g->ctx = cfg->ctx;
	c.send = gsi_send;
	c.event = gsi_event;
	if (cfg->random) {
		g->random = cfg->random;
		c.random = gsi_random;
	}
	if (cfg->nobody) {
		g->nobody = cfg->nobody;
		c.nobody = gsi_nobody;
	}
	c.ctx = g;
	rc = open_objects(g);
	if (!rc)
		rc = rnic_cm_open(&g->cm, &c);
	if (rc) {
		rnic_gsi_close(g);
		return rc;
	}
	*out = g;
	return 0;
}

void rnic_gsi_close(struct rnic_gsi *g)
{
	if (g->cm)
		rnic_cm_close(g->cm);
	if (g->qp)
		rnic_qp_destroy(g->qp);
	if (g->mr)
		rnic_mr_destroy(g->mr);
	if (g->rcq)
		rnic_cq_destroy(g->rcq);
	if (g->scq)
		rnic_cq_destroy(g->scq);
	if (g->pd)
		rnic_pd_destroy(g->pd);
	sys.free(g);
}

struct rnic_cm *rnic_gsi_cm(struct rnic_gsi *g)
{
	return g->cm;
}

/* Addresses from the 40 bytes before a datagram: an IPv6 header, or an IPv4 header in the last 20 of them. */
static void back_from(const uint8_t *grh, struct rnic_path *back)
{
	memset(back, 0, sizeof(*back));
	if (grh[0] >> 4 == 6) {
		memcpy(back->dst, grh + 8, 16);
		memcpy(back->src, grh + 24, 16);
		return;
	}
	wire_gid_from_v4(back->dst, grh + 20 + 12);
	wire_gid_from_v4(back->src, grh + 20 + 16);
}

bool rnic_gsi_poll(struct rnic_gsi *g, uint64_t now)
{
	struct rnic_wc wc;
	struct rnic_path back;
	bool any = false;

	while (rnic_cq_poll(g->scq, &wc, 1))
		; /* failed sends: lost */
	while (rnic_cq_poll(g->rcq, &wc, 1)) {
		const uint8_t *buf = g->buf[wc.wr_id];

		any = true;
		if (wc.status == RNIC_WC_SUCCESS) {
			back_from(buf, &back);
			rnic_cm_receive(g->cm, &back, buf + WIRE_CM_GRH_LEN,
					wc.byte_len - WIRE_CM_GRH_LEN, now);
		}
		post_recv(g, wc.wr_id);
	}
	return any;
}
