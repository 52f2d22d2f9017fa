/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transport serves what. A new transport adds its lines here. */
#include <errno.h>

#include "base/sys.h"
#include "channel/channel.h"
#include "channel/tcp/tcp.h"
#include "channel/verbs/verbs.h"

struct channel_net {
	struct rdc_net *rdma;
};

bool channel_near_wanted(const char *verbs)
{
	return rdc_near_wanted(verbs);
}

int channel_net_open(struct channel_net **out, const struct channel_net_params *p)
{
	struct channel_net *n = sys.alloc(sizeof(*n));
	int rc;

	if (!n)
		return -ENOMEM;
	rc = rdc_net_open(&n->rdma, p);
	if (rc) {
		sys.free(n);
		return rc;
	}
	*out = n;
	return 0;
}

void channel_net_close(struct channel_net *n)
{
	if (!n)
		return;
	rdc_net_close(n->rdma);
	sys.free(n);
}

unsigned channel_net_step(struct channel_net *n, struct proxy_thread *t, uint64_t now,
			  uint64_t *next)
{
	return n ? rdc_net_step(n->rdma, t, now, next) : 0;
}

bool channel_net_has_work(struct channel_net *n, struct proxy_thread *t)
{
	return n && rdc_net_has_work(n->rdma, t);
}

bool channel_net_lingers(struct channel_net *n)
{
	return n && rdc_net_lingers(n->rdma);
}

bool channel_net_holds(struct channel_net *n)
{
	return n && rdc_net_holds(n->rdma);
}

int channel_near_doctor(const struct channel_near *near,
			int (*fn)(const struct gpunet_check *c, void *arg), void *arg)
{
	return rdc_near_doctor(near, fn, arg);
}

int channel_doctor(int (*fn)(const struct gpunet_check *c, void *arg), void *arg)
{
	return rdc_doctor("", fn, arg);
}

int channel_create(struct channel_net *n, struct proxy_thread *t, int domain, int type,
		   int protocol, struct channel **out)
{
	if (protocol == GNET_PROTO_RDMA)
		return !n ? -EPROTONOSUPPORT : rdc_create(n->rdma, t, domain, type, out);
	return tcp_create(domain, type, protocol, out);
}
