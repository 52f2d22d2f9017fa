/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Names to addresses for kernels (GNET_OP_GETADDRINFO). The system's resolver may block for as long as a name server is silent, so
 * it is called in threads of its own, which come when there is something to look up and end when there is not.
 */
#ifndef GPUNET_SOCKET_RESOLVE_H
#define GPUNET_SOCKET_RESOLVE_H

#include <stdbool.h>

#include "proxy/proxy.h"

struct resolver;

/* `most`: lookups at a time; more are answered -EBUSY. */
int resolver_open(struct resolver **out, struct proxy *p, unsigned most);
/* The proxy has stopped. Waits for no lookup: those under way end later, unheard. NULL is fine. */
void resolver_close(struct resolver *r);

/* Begins the lookup of an entry, whose call is answered by a later resolver_answer, or now if it cannot begin. */
void resolver_ask(struct resolver *r, struct proxy_thread *t, const struct proxy_entry *e);
/* Answers the calls of thread `t` whose lookups have ended; how many. */
unsigned resolver_answer(struct resolver *r, struct proxy_thread *t);
/* Is there something to answer? */
bool resolver_ready(struct resolver *r, unsigned thread);

#endif
