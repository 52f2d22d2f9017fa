/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA as a transport. */
#ifndef GPUNET_CHANNEL_VERBS_VERBS_H
#define GPUNET_CHANNEL_VERBS_VERBS_H

#include "channel/channel.h"

struct gpunet_check;
struct rdc_net;

/* Opens no provider yet: the first socket does. */
int rdc_net_open(struct rdc_net **out, const struct channel_net_params *p);
void rdc_net_close(struct rdc_net *n);
unsigned rdc_net_step(struct rdc_net *n, struct proxy_thread *t, uint64_t now, uint64_t *next);
bool rdc_net_has_work(struct rdc_net *n, struct proxy_thread *t);
bool rdc_net_lingers(struct rdc_net *n);
bool rdc_net_holds(struct rdc_net *n);

/* Could a device on this machine be given memory of a GPU? Cheap, and true rather than false. */
bool rdc_near_wanted(const char *verbs);

/* AF_INET or AF_INET6, SOCK_STREAM. -EPROTONOSUPPORT: no RDMA on this machine; the reason is in the log. */
int rdc_create(struct rdc_net *n, struct proxy_thread *t, int domain, int type,
	       struct channel **out);

/* As gpunet_doctor: where rings would be, device by device; `near`: a little memory of the GPU's. */
int rdc_near_doctor(const struct channel_near *near,
		    int (*fn)(const struct gpunet_check *c, void *arg), void *arg);
/* As gpunet_doctor, about RDMA. Files of the system are looked for below `root`; "": the machine's own. */
int rdc_doctor(const char *root, int (*fn)(const struct gpunet_check *c, void *arg), void *arg);

#endif
