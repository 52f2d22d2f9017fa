/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits that have lasted long leave the bus alone: the proxy hints at sockets on which something has changed, and any one of the
 * waits looks at its ring of hints for all (docs/bus.md, rules H). A hint that gets lost costs GNET__BELT_NS: then a wait looks for itself.
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_NAP_H
#define GPUNET_DEV_IMPL_NAP_H

#include <gpunet/dev/impl/bus.h>

/* Between two looks at device memory; between two at a ring of hints; the longest without a look at what is waited for. */
#define GNET__NAP_NS 300u
#define GNET__NEWS_NS 1500u
#define GNET__BELT_NS 1000000u

/* H3: how many hints were given at a socket so far. */
GNET_DEV uint64_t gnet__hints(gnet_t *net, int fd)
{
	return GNET_HINTS(gnet_dev_load(&net->hints[GNET_FD_SLOT(fd)]));
}

GNET_DEV void gnet__hint(gnet_t *net, int fd)
{
	gnet_dev_add_relaxed(&net->hints[GNET_FD_SLOT(fd)], GNET_HINT_ONE);
}

/* H1: asks for a hint. `wait`: GNET_WAIT_*. */
GNET_DEV void gnet__ask_hint(gnet_t *net, int fd, int wait, uint64_t pos)
{
	gnet_sys_store(&net->bus[GNET_FD_SLOT(fd)].waits[wait], GNET_WAIT(gnet__block(), pos));
}

GNET_DEV void gnet__ask_no_hint(gnet_t *net, int fd, int wait)
{
	gnet_sys_store(&net->bus[GNET_FD_SLOT(fd)].waits[wait], 0);
}

/* H6: a gpoll begins to ask. */
GNET_DEV void gnet__poll_begins(gnet_t *net, int fd)
{
	gnet_dev_add_relaxed(&net->hints[GNET_FD_SLOT(fd)], 1);
}

/*
 * H6: it asks no more. What others ask for stays; whoever has come while the last one went looks for himself, and asks anew: were he asked for
 * here, he might have gone meanwhile. The addition says who is the last of those that end together, and what they asked comes before.
 */
GNET_DEV void gnet__poll_ends(gnet_t *net, int fd)
{
	uint64_t *word = &net->hints[GNET_FD_SLOT(fd)];
	uint64_t was = gnet_dev_add(word, ~(uint64_t)0);

	if (GNET_HINT_POLLS(was) != 1)
		return;
	gnet__ask_no_hint(net, fd, GNET_WAIT_POLL);
	if (GNET_HINT_POLLS(gnet_dev_load(word)))
		gnet__hint(net, fd);
}

#ifdef __CUDACC__

/* H4: passes on the hints of queue `q` if it is time. Several threads may be here at once: a hint is whose who moves `at`. */
GNET_DEV void gnet__news(gnet_t *net, uint32_t q, uint64_t now)
{
	struct gnet_news *r = &net->news[q];
	struct gnet_nap *n = &net->naps[q];
	uint64_t due = gnet_dev_load(&n->due), at, c;

	if (now < due || gnet_dev_cas_relaxed(&n->due, due, now + GNET__NEWS_NS) != due)
		return;
	at = gnet_dev_load(&n->at);
	for (;;) {
		c = gnet_sys_load(&r->cell[at % GNET_NEWS_RING]);
		if ((c & 0xff) != GNET_NEWS_TAG(at) || c >> 8 >= net->max_socks ||
		    gnet_dev_cas_relaxed(&n->at, at, at + 1) != at)
			return;
		gnet_dev_add_relaxed(&net->hints[c >> 8], GNET_HINT_ONE);
		gnet_sys_store(&r->head, ++at);
	}
}

/* H5: the head again: two threads of different blocks may have published theirs in the wrong order. */
GNET_DEV void gnet__news_head(gnet_t *net, uint32_t q)
{
	gnet_sys_store(&net->news[q].head, gnet_dev_load(&net->naps[q].at));
}

#endif
#endif
