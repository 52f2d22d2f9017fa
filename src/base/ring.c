/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many sends and receives by one system call: an io_uring in which nothing is ever under way. Every request is one that does not
 * block, so it has ended when the call returns, and who made it may free, close or reuse what it likes.
 *
 * By the two system calls, without liburing: so little of it is needed that a library more to find would cost more.
 */
#include "base/sys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ThreadSanitizer knows that what is sent comes before what is received from the calls themselves; of a ring it sees nothing. */
#if __has_include(<linux/io_uring.h>) && defined(__NR_io_uring_setup) && \
	!defined(__SANITIZE_THREAD__)
#include <linux/io_uring.h>

#define ENTRIES 64
/* Linux 6.3: since 5.19 a receive of TCP tells whether the socket has more. */
#define FEATURE_NEWER (1u << 13)
#define SOCK_NONEMPTY (1u << 2)

struct sys_ring {
	int fd;
	uint8_t *rings;
	size_t rings_size, sqes_size;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	unsigned *sq_head, *sq_tail, *cq_head, *cq_tail;
	unsigned sq_mask, cq_mask;
	bool tells_more; /* a receive without SOCK_NONEMPTY has emptied the socket */
	struct msghdr m[ENTRIES];
};

/* ---- requests ---------------------------------------------------------------------------------------------------------- */

static void describe(struct sys_ring *r, unsigned i, unsigned pos, struct sys_io *io)
{
	struct io_uring_sqe *e = &r->sqe[pos & r->sq_mask];

	memset(e, 0, sizeof(*e));
	e->fd = io->fd;
	e->user_data = i;
	e->msg_flags = io->send ? MSG_NOSIGNAL | MSG_DONTWAIT : MSG_DONTWAIT;
	if (io->n == 1) {
		e->opcode = io->send ? IORING_OP_SEND : IORING_OP_RECV;
		e->addr = (uint64_t)(uintptr_t)io->v[0].iov_base;
		e->len = (uint32_t)io->v[0].iov_len;
	} else {
		r->m[i] = (struct msghdr){ .msg_iov = io->v, .msg_iovlen = (size_t)io->n };
		e->opcode = io->send ? IORING_OP_SENDMSG : IORING_OP_RECVMSG;
		e->addr = (uint64_t)(uintptr_t)&r->m[i];
		e->len = 1;
	}
	io->rc = -EIO;
	io->more = true;
}

static unsigned collect(struct sys_ring *r, struct sys_io *io)
{
	unsigned head = *r->cq_head, tail = __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE), n = 0;

	for (; head != tail; head++, n++) {
		const struct io_uring_cqe *c = &r->cqe[head & r->cq_mask];

		io[c->user_data].rc = c->res;
		io[c->user_data].more = !r->tells_more || (c->flags & SOCK_NONEMPTY);
	}
	__atomic_store_n(r->cq_head, head, __ATOMIC_RELEASE);
	return n;
}

static long enter(struct sys_ring *r, unsigned submit, unsigned wait)
{
	long rc;

	do
		rc = syscall(__NR_io_uring_enter, r->fd, submit, wait,
			     wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : rc;
}

/* Hands over n requests that begin at `first`: how many the kernel took. A request that it finds wrong ends a call early. */
static unsigned submit(struct sys_ring *r, unsigned first, unsigned n)
{
	unsigned taken = 0;

	__atomic_store_n(r->sq_tail, first + n, __ATOMIC_RELEASE);
	while (taken < n && enter(r, n - taken, 0) > 0)
		taken = __atomic_load_n(r->sq_head, __ATOMIC_ACQUIRE) - first;
	/* Memory is short, say: what was not taken is taken back. */
	__atomic_store_n(r->sq_tail, first + taken, __ATOMIC_RELEASE);
	return taken;
}

/* At most ENTRIES; how many went through the ring. */
static unsigned some(struct sys_ring *r, struct sys_io *io, unsigned n)
{
	unsigned first = *r->sq_tail, i, taken, done;

	for (i = 0; i < n; i++)
		describe(r, i, first + i, &io[i]);
	taken = submit(r, first, n);
	done = collect(r, io);
	/* None of them waits for anything; but the kernel must have let go of all memory before the caller may have it. */
	while (done < taken && enter(r, 0, 1) >= 0)
		done += collect(r, io);
	sys_io_each(io + taken, n - taken);
	return taken;
}

void sys_ring_io(struct sys_ring *r, struct sys_io *io, unsigned n)
{
	unsigned k;

	for (; n; io += k, n -= k) {
		k = n < ENTRIES ? n : ENTRIES;
		some(r, io, k);
	}
}

/* ---- start and end ------------------------------------------------------------------------------------------------------ */

/* A receive that finds nothing, a send, a receive that leaves a byte. */
static int three(struct sys_ring *r, const int pair[2])
{
	char out[2] = { 0 }, in;
	struct sys_io io[3] = {
		{ .fd = pair[0], .n = 1, .v = { { &in, 1 } } },
		{ .fd = pair[1], .n = 1, .v = { { out, 2 } }, .send = true },
		{ .fd = pair[0], .n = 1, .v = { { &in, 1 } } },
	};

	if (some(r, io, 3) != 3 || io[0].rc != -EAGAIN || io[1].rc != 2 || io[2].rc != 1)
		return -EOPNOTSUPP;
	/* Since Linux 6.17 UNIX sockets tell whether there is more, too. */
	if (!io[2].more)
		r->tells_more = false;
	return 0;
}

/* Some systems let a ring be made and then forbid its use. */
static int try_out(struct sys_ring *r)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
		return -errno;
	rc = three(r, pair);
	close(pair[0]);
	close(pair[1]);
	return rc;
}

static void *map_part(const struct sys_ring *r, size_t size, off_t what)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, what);

	if (p == MAP_FAILED)
		return NULL;
	/* A child of a fork has no part in it. */
	madvise(p, size, MADV_DONTFORK);
	return p;
}

static unsigned *at(const struct sys_ring *r, unsigned offset)
{
	return (unsigned *)(void *)(r->rings + offset);
}

static int map_rings(struct sys_ring *r, const struct io_uring_params *p)
{
	size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe),
	       sq = p->sq_off.array + p->sq_entries * sizeof(unsigned);
	unsigned i;

	if (!(p->features & IORING_FEAT_SINGLE_MMAP))
		return -ENOSYS; /* before Linux 5.4 */
	r->rings_size = cq > sq ? cq : sq;
	r->sqes_size = p->sq_entries * sizeof(struct io_uring_sqe);
	r->rings = map_part(r, r->rings_size, IORING_OFF_SQ_RING);
	r->sqe = map_part(r, r->sqes_size, IORING_OFF_SQES);
	if (!r->rings || !r->sqe)
		return -ENOMEM;
	r->sq_head = at(r, p->sq_off.head);
	r->sq_tail = at(r, p->sq_off.tail);
	r->cq_head = at(r, p->cq_off.head);
	r->cq_tail = at(r, p->cq_off.tail);
	r->cqe = (struct io_uring_cqe *)(void *)(r->rings + p->cq_off.cqes);
	r->sq_mask = p->sq_entries - 1;
	r->cq_mask = p->cq_entries - 1;
	for (i = 0; i < p->sq_entries; i++)
		at(r, p->sq_off.array)[i] = i;
	r->tells_more = p->features & FEATURE_NEWER;
	return 0;
}

void sys_ring_close(struct sys_ring *r)
{
	if (!r)
		return;
	if (r->rings)
		munmap(r->rings, r->rings_size);
	if (r->sqe)
		munmap(r->sqe, r->sqes_size);
	close(r->fd);
	free(r);
}

int sys_ring_open(struct sys_ring **out)
{
	struct sys_ring *r = calloc(1, sizeof(*r));
	struct io_uring_params p;
	int rc;

	if (!r)
		return -ENOMEM;
	memset(&p, 0, sizeof(p));
	r->fd = (int)syscall(__NR_io_uring_setup, ENTRIES, &p);
	if (r->fd < 0) {
		rc = -errno;
		free(r);
		return rc;
	}
	rc = map_rings(r, &p);
	if (!rc)
		rc = try_out(r);
	if (rc) {
		sys_ring_close(r);
		return rc;
	}
	*out = r;
	return 0;
}

#else /* built on a system without it */

int sys_ring_open(struct sys_ring **out)
{
	return -ENOPKG;
}

void sys_ring_close(struct sys_ring *r)
{
}

void sys_ring_io(struct sys_ring *r, struct sys_io *io, unsigned n)
{
	sys_io_each(io, n);
}
#endif
