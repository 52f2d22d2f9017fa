/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long waits, as others see them: a table of who waits, and a ring of waits that gave up (docs/bus.md, "For those who look").
 * Nothing of this runs before a wait is a long one. One thread runs each of these. Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_TOLD_H
#define GPUNET_DEV_IMPL_TOLD_H

#include <gpunet/dev/impl/bus.h>

/* A wait that ended sooner than this, after it was told of, needs no explaining. */
#define GNET__GAVE_UP_NS 250000u

/* This block's number in its grid. */
GNET_DEV uint32_t gnet__block(void)
{
	return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}

GNET__COLD void gnet__tell(gnet_t *net, uint32_t call, int fd, uint32_t n)
{
	struct gnet_told *e = &net->told[gnet__block() % GNET_TOLD];

	gnet_sys_store(&e->block, gnet__block());
	gnet_sys_store(&e->since, gnet_time_ns());
	gnet_sys_store_release(&e->what, GNET_TOLD_WHAT(call, n, fd));
}

/* Bytes handed over up to position `tail` that are unsent. The send word may be newer than the position: then all of them were sent. */
GNET_DEV uint64_t gnet__unsent(uint64_t tail, uint64_t txw)
{
	uint64_t n = (tail - txw) & GNET_TXW_POS_MASK;

	return n <= GNET_TXW_POS_MASK / 2 ? n : 0;
}

/* Bytes that have arrived and are unread, and that were handed over and are unsent. */
GNET_DEV void gnet__fill(gnet_t *net, int fd, uint64_t *unread, uint64_t *unsent, uint32_t *flags)
{
	uint32_t slot = GNET_FD_SLOT(fd);
	struct gnet_sock *sk = &net->socks[slot];
	uint64_t c0 = gnet_sys_load(&net->bus[slot].line.cell[0]);
	uint64_t txw = gnet_sys_load(&net->bus[slot].txw);

	*unread =
		((c0 >> GNET_LINE_TAIL_SHIFT) - gnet_dev_load(&sk->rx_head)) & GNET_LINE_TAIL_MASK;
	*unsent = gnet__unsent(gnet_dev_load(&sk->tx_tail), txw);
	*flags = (uint32_t)(c0 >> GNET_LINE_FLAGS_SHIFT) & 0xff;
	/* The words are not of one moment. */
	if (*unread > GNET_LINE_TAIL_MASK / 2)
		*unread = 0;
}

/* Is the wait for connections, where receivers wait for bytes? */
GNET_DEV int gnet__listens(gnet_t *net, int fd)
{
	return (gnet_dev_load(&net->socks[GNET_FD_SLOT(fd)].rx) & GNET_L_LISTENING) != 0;
}

/*
 * A long wait ends with an errno that may need explaining: its record, and an entry for the proxy, which puts it into words; a dead
 * proxy does not, but whoever asks for the reports.
 */
GNET__COLD void gnet__gave_up(gnet_t *net, uint32_t call, int fd, uint32_t n, uint64_t since,
			      int rc)
{
	uint64_t cell[GNET_GAVE_UP_CELLS], unread = 0, unsent = 0, now = gnet_time_ns(), p;
	uint32_t flags = 0, q = fd < 0 ? 0 : gnet__queue(net, fd), i;
	int is_socket = fd >= 0 && GNET_FD_GEN(fd) && GNET_FD_SLOT(fd) < net->max_socks;
	struct gnet_gave_up *g;

	if ((rc != -GNET__ETIMEDOUT && rc != -GNET__ECANCELED && rc != -GNET__EIO) ||
	    now - since < GNET__GAVE_UP_NS)
		return;
	if (is_socket && !gnet__listens(net, fd))
		gnet__fill(net, fd, &unread, &unsent, &flags);
	else if (call == GNET_W_RECV)
		call = GNET_W_ACCEPT;
	cell[0] = call | (uint64_t)(uint32_t)-rc << 8 | (uint64_t)flags << 16 | (uint64_t)n << 24;
	cell[1] = gnet__block();
	cell[2] = (uint32_t)fd;
	cell[3] = now - since;
	cell[4] = unread;
	cell[5] = unsent;
	cell[6] = gnet_dev_load(&net->sqd[q].tail) - gnet_sys_load(&net->sq_head[q].pos);
	cell[7] = 0;
	p = gnet_dev_ticket(net->gave_up_next);
	g = &net->gave_up[p % GNET_GAVE_UPS];
	for (i = 0; i < GNET_GAVE_UP_CELLS; i++)
		gnet_sys_store(&g->cell[i], cell[i] << 8 | GNET_GAVE_UP_TAG(p));
	if (rc != -GNET__EIO)
		gnet__post(net, q, GNET_OP_GAVE_UP, fd < 0 ? 0 : fd, 0, 1);
}

GNET__COLD void gnet__tell_end(gnet_t *net, uint32_t call, int fd, uint32_t n, int rc)
{
	struct gnet_told *e = &net->told[gnet__block() % GNET_TOLD];

	if (rc)
		gnet__gave_up(net, call, fd, n, gnet_sys_load(&e->since), rc);
	gnet_sys_store(&e->what, 0);
}

#endif
