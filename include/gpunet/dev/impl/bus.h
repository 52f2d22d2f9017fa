/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kernel side of the bus (docs/bus.md): waiting, submission, calls. One thread runs each of these unless it says "lanes".
 * Not for direct inclusion.
 */
#ifndef GPUNET_DEV_IMPL_BUS_H
#define GPUNET_DEV_IMPL_BUS_H

#include <gpunet/dev/abi/net.h>
#include <gpunet/dev/device.h>
#include <gpunet/dev/order.h>

/* The errno values that this code itself returns; those of the host's socket calls come through as they are. */
#define GNET__ENOENT 2
#define GNET__EIO 5
#define GNET__EBADF 9
#define GNET__EAGAIN 11
#define GNET__EBUSY 16
#define GNET__EINVAL 22
#define GNET__EMFILE 24
#define GNET__EPIPE 32
#define GNET__ENAMETOOLONG 36
#define GNET__EDOM 33
#define GNET__EPROTO 71
#define GNET__EDESTADDRREQ 89
#define GNET__EMSGSIZE 90
#define GNET__ENOPROTOOPT 92
#define GNET__EOPNOTSUPP 95
#define GNET__EAFNOSUPPORT 97
#define GNET__ECONNABORTED 103
#define GNET__ENOBUFS 105
#define GNET__EISCONN 106
#define GNET__ENOTCONN 107
#define GNET__ETIMEDOUT 110
#define GNET__EINPROGRESS 115
#define GNET__ECANCELED 125

/* Turns of a wait on a GPU without and with a short sleep; after both the sleep is long. A turn costs about a bus load. */
#define GNET__SPIN_BUSY 256u
#define GNET__SPIN_SHORT 4096u
/* The turn, counted from 1, from which on a wait is told of. The first one of the CPU device lasts until an event. */
#ifdef __CUDACC__
#define GNET__SPIN_LONG GNET__SPIN_BUSY
#else
#define GNET__SPIN_LONG 1u
#endif

/*
 * One turn of a wait whose condition was found false: 0, or the reason to give up. The caller looks at its condition again
 * after each 0. On the CPU device the thread parks until something was written that it might wait for, or the clock of
 * gnet_time_ns reaches `deadline` (0: none).
 */
GNET_DEV int gnet__spin_until(gnet_t *net, uint64_t *turn, uint64_t deadline)
{
	uint64_t t = (*turn)++;

#ifdef __CUDACC__
	(void)deadline;
	if ((t & 63u) == 63u && (t <= GNET__SPIN_SHORT || (t & 511u) == 511u)) {
		uint64_t stop = gnet_sys_load(&net->ctl->stop);

		if (stop)
			return -(int)stop;
	}
	if (t > GNET__SPIN_BUSY)
		__nanosleep(t > GNET__SPIN_SHORT ? 2000 : 200);
#else
	uint64_t stop = gnet_sys_load(&net->ctl->stop);

	(void)t;
	if (stop)
		return -(int)stop;
	if (gpunet_cpu_wait(deadline))
		return -GNET__ECANCELED;
#endif
	return 0;
}

/* The same without a deadline. */
GNET_DEV int gnet__spin(gnet_t *net, uint64_t *turn)
{
	return gnet__spin_until(net, turn, 0);
}

/*
 * Why the network has ended, or 0: what does not wait, or never for long, asks when it begins. On a GPU one in 64 looks across the bus,
 * as its clock has it: nothing is counted, so of threads that run in step each one comes to look. (The odd factor spreads the clock's
 * values, whatever their distance is.) On the CPU device also if the kernel has failed.
 */
GNET_DEV int gnet__ended(gnet_t *net)
{
	uint64_t stop;

#ifdef __CUDACC__
	if ((uint32_t)clock64() * 2654435769u >> 26)
		return 0;
#endif
	stop = gnet_sys_load(&net->ctl->stop);
#ifndef __CUDACC__
	if (!stop && gpunet_cpu_failed())
		stop = GNET__ECANCELED;
#endif
	return -(int)stop;
}

/* ---- long waits, as others see them: told.h ------------------------------------------------------------------------ */

/* The wait is a long one now. */
GNET__COLD void gnet__tell(gnet_t *net, uint32_t call, int fd, uint32_t n);
/* A wait that was told of is over: rc is 0, or why it gave up. */
GNET__COLD void gnet__tell_end(gnet_t *net, uint32_t call, int fd, uint32_t n, int rc);

/* gnet__spin_until for a wait in `call` that others are to see once it is a long one. */
GNET_DEV int gnet__seen_spin(gnet_t *net, uint32_t call, int fd, uint32_t n, uint64_t *turn,
			     uint64_t deadline)
{
	int rc;

	if (*turn + 1 == GNET__SPIN_LONG)
		gnet__tell(net, call, fd, n);
	rc = gnet__spin_until(net, turn, deadline);
	if (rc && *turn >= GNET__SPIN_LONG)
		gnet__tell_end(net, call, fd, n, rc);
	return rc;
}

/* Its end, when it has what it waited for. */
GNET_DEV void gnet__seen_end(gnet_t *net, uint64_t turn)
{
	if (turn >= GNET__SPIN_LONG)
		gnet__tell_end(net, GNET_W_NONE, 0, 0, 0);
}

/*
 * Tells the proxy thread of queue `q` that there is something new: an entry, or (GNET_KICK_ROOM) room in a ring for which it
 * may be asleep. A GPU cannot: the sentinel looks.
 */
GNET_DEV void gnet__kick(gnet_t *net, uint32_t q)
{
#ifdef __CUDACC__
	(void)net;
	(void)q;
#else
	gpunet_cpu_kick(net->cpu_dev, q);
#endif
}

/* The queue of the proxy thread that owns a socket. */
GNET_DEV uint32_t gnet__queue(gnet_t *net, int fd)
{
	return GNET_FD_SLOT(fd) % net->n_queues;
}

/* ---- submission ---------------------------------------------------------------------------------------------------- */

/* S1: waits until the proxy has freed a position that was taken. Only a dead proxy ends the wait: after an abort it still
 * drains, and a position that nobody writes would stop the queue. `head`: the cached head. */
GNET__COLD int gnet__sq_wait(gnet_t *net, struct gnet_sq_dev *d, uint32_t q, uint64_t p,
			     uint64_t head)
{
	uint64_t size = (uint64_t)1 << net->sq_log2, turn = 0;

	while (p - head >= size) {
		uint64_t seen = gnet_sys_load_acquire(&net->sq_head[q].pos);

		while (seen > head) {
			uint64_t old = gnet_dev_cas(&d->head, head, seen);

			if (old == head)
				break;
			head = old;
		}
		if (head < seen)
			head = seen;
		if (p - head >= size && gnet__spin(net, &turn) == -GNET__EIO)
			return -GNET__EIO;
	}
	return 0;
}

/* The same if it is not free. */
GNET_DEV int gnet__sq_room(gnet_t *net, struct gnet_sq_dev *d, uint32_t q, uint64_t p,
			   uint64_t head)
{
	return p - head >= (uint64_t)1 << net->sq_log2 ? gnet__sq_wait(net, d, q, p, head) : 0;
}

/* S1: takes a position and waits until it is free. */
GNET_DEV int gnet__reserve(gnet_t *net, uint32_t q, uint64_t *pos)
{
	struct gnet_sq_dev *d = &net->sqd[q];
	uint64_t p = gnet_dev_ticket(&d->tail), head = gnet_dev_load_acquire(&d->head);

	*pos = p;
	return gnet__sq_room(net, d, q, p, head);
}

GNET_DEV uint64_t gnet__cell0(uint32_t op, int fd, uint32_t len)
{
	return (uint64_t)op << GNET_SQE0_OP_SHIFT | (uint64_t)(uint32_t)fd << GNET_SQE0_FD_SHIFT |
	       (uint64_t)len << GNET_SQE0_LEN_SHIFT;
}

GNET_DEV struct gnet_sqe *gnet__sqe(gnet_t *net, uint32_t q, uint64_t pos)
{
	uint64_t size = (uint64_t)1 << net->sq_log2;

	return &net->sq[((uint64_t)q << net->sq_log2) + (pos & (size - 1))];
}

/* S2, S3: writes a whole entry from one thread; `release` if it speaks of bytes that lie elsewhere. c0..c2 have no tags. */
GNET_DEV void gnet__put(gnet_t *net, uint32_t q, uint64_t pos, uint64_t c0, uint64_t c1,
			uint64_t c2, int release)
{
	struct gnet_sqe *e = gnet__sqe(net, q, pos);
	uint64_t tag = GNET_SQ_TAG(pos, net->sq_log2);
	uint32_t i;

	if (release)
		gnet_sys_store_release(&e->cell[0], c0 | tag);
	else
		gnet_sys_store(&e->cell[0], c0 | tag);
	gnet_sys_store(&e->cell[1], c1 << 8 | tag);
	gnet_sys_store(&e->cell[2], c2 << 8 | tag);
	for (i = 3; i < GNET_CELLS; i++)
		gnet_sys_store(&e->cell[i], tag);
	gnet__kick(net, q);
}

/* Submits an entry without an answer. */
GNET__COLD int gnet__post(gnet_t *net, uint32_t q, uint32_t op, int fd, uint64_t c1, int release)
{
	uint64_t pos = 0;
	int rc = gnet__reserve(net, q, &pos);

	if (rc)
		return rc;
	gnet__put(net, q, pos, gnet__cell0(op, fd, 0), c1, 0, release);
	return 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------ */

/* Takes a free call; its number, or the reason why not. */
GNET__COLD int gnet__call_take(gnet_t *net)
{
	uint32_t words = net->n_calls / 64, start = (uint32_t)(blockIdx.x % words), i;
	uint64_t turn = 0;

	for (;;) {
		int rc;

		for (i = 0; i < words; i++) {
			uint32_t w = (start + i) % words;
			uint64_t have = gnet_dev_load(&net->call_map[w]);

			while (~have) {
				uint64_t bit = ~have & (have + 1);
				uint64_t old = gnet_dev_or(&net->call_map[w], bit);

				if (!(old & bit)) {
					gnet__seen_end(net, turn);
					return (int)(w * 64 + (uint32_t)__ffsll((long long)bit) -
						     1);
				}
				have = old;
			}
		}
		rc = gnet__seen_spin(net, GNET_W_CALLS, 0, 0, &turn, 0);
		if (rc)
			return rc;
	}
}

GNET_DEV void gnet__call_free(gnet_t *net, int call)
{
	gnet_dev_and(&net->call_map[call / 64], ~((uint64_t)1 << (call % 64)));
}

/*
 * The call ends without its answer. On the CPU device also because another block has failed: then the network goes on, the answer comes,
 * and the call has to be free again.
 */
GNET_DEV void gnet__call_drop(gnet_t *net, int call, uint64_t tag)
{
#ifndef __CUDACC__
	uint64_t turn = 0;

	while ((gnet_sys_load_acquire(&net->calls[call].reply) & 0xffff) != tag) {
		if (gnet__spin(net, &turn) && gnet_sys_load(&net->ctl->stop))
			return;
	}
	gnet__call_free(net, call);
#else
	(void)net;
	(void)call;
	(void)tag;
#endif
}

/*
 * Submits a command on a call that the caller has taken and waits for its answer. On 0 *value is the answer and the call
 * is still the caller's; else it no longer is: where the network is ending it stays taken, so that a late answer finds no new owner.
 */
GNET__COLD int gnet__call_wait(gnet_t *net, uint32_t q, int call, uint32_t op, int fd, uint64_t a,
			       uint64_t b, int64_t *value)
{
	struct gnet_call *c = &net->calls[call];
	uint64_t tag = (gnet_dev_load(&net->call_tag[call]) + 1) & 0xffff, turn = 0, pos = 0, v;
	int rc = gnet__reserve(net, q, &pos);

	if (rc)
		return rc;
	gnet_dev_store_release(&net->call_tag[call], tag);
	gnet__put(net, q, pos, gnet__cell0(op, fd, 0),
		  (uint64_t)(uint32_t)call | tag << 16 | a << 32, b, 1);
	for (;;) {
		v = gnet_sys_load_acquire(&c->reply);
		if ((v & 0xffff) == tag)
			break;
		rc = gnet__seen_spin(net, GNET_W_COMMAND, fd, op, &turn, 0);
		if (rc) {
			gnet__call_drop(net, call, tag);
			return rc;
		}
	}
	gnet__seen_end(net, turn);
	*value = (int64_t)v >> 16;
	rc = gnet__ended(net);
	if (rc)
		gnet__call_drop(net, call, tag);
	return rc;
}

/* A command whose argument is at most `a` and `b`: its answer. */
GNET__COLD int64_t gnet__call(gnet_t *net, uint32_t q, uint32_t op, int fd, uint64_t a, uint64_t b)
{
	int64_t value = 0;
	int call = gnet__call_take(net), rc;

	if (call < 0)
		return call;
	rc = gnet__call_wait(net, q, call, op, fd, a, b, &value);
	if (rc)
		return rc;
	gnet__call_free(net, call);
	return value;
}

/* A command that carries an address. */
GNET__COLD int64_t gnet__call_addr(gnet_t *net, uint32_t op, int fd, const void *addr, uint32_t len,
				   uint64_t b)
{
	int64_t value = 0;
	uint32_t i;
	int call, rc;

	if (!addr || len < 2 || len > GNET_CALL_ARG)
		return -GNET__EINVAL;
	call = gnet__call_take(net);
	if (call < 0)
		return call;
	for (i = 0; i < len; i++)
		net->calls[call].arg[i] = ((const uint8_t *)addr)[i];
	rc = gnet__call_wait(net, gnet__queue(net, fd), call, op, fd, len, b, &value);
	if (rc)
		return rc;
	gnet__call_free(net, call);
	return value;
}

/* A command that is answered with an address. */
GNET__COLD int64_t gnet__call_name(gnet_t *net, uint32_t op, int fd, void *addr, uint32_t *len)
{
	int64_t value = 0;
	uint32_t i;
	int call, rc;

	if (!addr || !len)
		return -GNET__EINVAL;
	call = gnet__call_take(net);
	if (call < 0)
		return call;
	rc = gnet__call_wait(net, gnet__queue(net, fd), call, op, fd, 0, 0, &value);
	if (rc)
		return rc;
	if (value >= 0) {
		for (i = 0; i < (uint32_t)value && i < *len && i < GNET_CALL_ARG; i++)
			((uint8_t *)addr)[i] = net->calls[call].arg[i];
		*len = (uint32_t)value;
		value = 0;
	}
	gnet__call_free(net, call);
	return value;
}

#include <gpunet/dev/impl/told.h>

#endif
