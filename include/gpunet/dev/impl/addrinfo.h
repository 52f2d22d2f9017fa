/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ggetaddrinfo: a command whose answer may take long, given by the proxy when its resolver has found something.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_ADDRINFO_H
#define GPUNET_DEV_IMPL_ADDRINFO_H

#include <gpunet/dev/impl/socket.h>

/* How soon it is asked again when the proxy has as many lookups as it takes at a time. */
#define GNET__LOOKUP_AGAIN_NS 1000000u

/* A string's length, `most` + 1 if it is longer. */
GNET_DEV uint32_t gnet__text_len(const char *text, uint32_t most)
{
	uint32_t n = 0;

	while (n <= most && text[n])
		n++;
	return n;
}

/* Copies with the zero at the end: the place behind it. */
GNET_DEV char *gnet__text_put(char *to, const char *text, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		to[i] = text[i];
	to[n] = 0;
	return to + n + 1;
}

/* One attempt: the number of results, all in the call's argument, and in *call which; or why not. */
GNET_DEV int64_t gnet__lookup(gnet_t *net, const char *node, const char *service,
			      const struct gnet_addrinfo *hints, int *call)
{
	uint32_t q = blockIdx.x % net->n_queues, what = (node ? 1u : 0u) | (service ? 2u : 0u);
	struct gnet_lookup *ask;
	int64_t value = 0;
	char *to;
	int rc;

	*call = gnet__call_take(net);
	if (*call < 0)
		return *call;
	ask = (struct gnet_lookup *)(void *)net->calls[*call].arg;
	ask->flags = hints ? hints->flags : 0;
	ask->family = hints ? hints->family : 0;
	ask->socktype = hints ? hints->socktype : 0;
	ask->protocol = hints ? hints->protocol : 0;
	to = ask->text;
	if (node)
		to = gnet__text_put(to, node, gnet__text_len(node, GNET_NODE_MAX));
	if (service)
		gnet__text_put(to, service, gnet__text_len(service, GNET_SERVICE_MAX));
	rc = gnet__call_wait(net, q, *call, GNET_OP_GETADDRINFO, 0, what, 0, &value);
	if (rc)
		return rc; /* the call is not ours any more */
	if (value <= 0)
		gnet__call_free(net, *call);
	return value;
}

/* A moment, in which other lookups may end. */
GNET_DEV int gnet__lookup_pause(gnet_t *net)
{
	uint64_t until = gnet_time_ns() + GNET__LOOKUP_AGAIN_NS, turn = 0;
	int rc = 0;

	while (!rc && gnet_time_ns() < until)
		rc = gnet__spin_until(net, &turn, until);
	return rc;
}

GNET_DEV int gnet__lookup_check(const char *node, const char *service,
				const struct gnet_addrinfo *hints)
{
	const int known = GNET_AI_PASSIVE | GNET_AI_NUMERICHOST | GNET_AI_V4MAPPED | GNET_AI_ALL |
			  GNET_AI_ADDRCONFIG | GNET_AI_NUMERICSERV;

	if (hints && hints->flags & ~known)
		return -GNET__EINVAL;
	if (!node && !service)
		return -GNET__ENOENT;
	if ((node && gnet__text_len(node, GNET_NODE_MAX) > GNET_NODE_MAX) ||
	    (service && gnet__text_len(service, GNET_SERVICE_MAX) > GNET_SERVICE_MAX))
		return -GNET__ENAMETOOLONG;
	return 0;
}

GNET__COLD int64_t gnet__getaddrinfo(gnet_t *net, const char *node, const char *service,
				     const struct gnet_addrinfo *hints, struct gnet_addrinfo *res,
				     uint32_t max)
{
	int64_t rc = net && res && max ? gnet__lookup_check(node, service, hints) : -GNET__EINVAL,
		i;
	const struct gnet_addrinfo *from;
	int call = -1;

	if (rc)
		return rc;
	for (;;) {
		rc = gnet__lookup(net, node, service, hints, &call);
		if (rc != -GNET__EBUSY)
			break;
		rc = gnet__lookup_pause(net);
		if (rc)
			return rc;
	}
	if (rc <= 0)
		return rc;
	rc = rc < (int64_t)max ? rc : (int64_t)max;
	from = (const struct gnet_addrinfo *)(const void *)net->calls[call].arg;
	for (i = 0; i < rc && i < (int64_t)GNET_ADDRINFO_MAX; i++)
		res[i] = from[i];
	gnet__call_free(net, call);
	return rc;
}

GNET_DEV int ggetaddrinfo(gnet_t *net, const char *node, const char *service,
			  const struct gnet_addrinfo *hints, struct gnet_addrinfo *res,
			  uint32_t max)
{
	GNET__BY_THREAD_0(gnet__getaddrinfo(net, node, service, hints, res, max));
}

#endif
