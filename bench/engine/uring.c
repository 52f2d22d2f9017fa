/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The same through io_uring, by its system calls alone: a receive waits in the ring for each connection; what all completions of a turn
 * want next goes to the kernel in one call, which also waits for the next completion.
 */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine.h"

#define ENTRIES 1024

struct uring {
	int fd;
	uint8_t *rings;
	size_t rings_size, sqes_size;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	unsigned *sq_tail, *sq_array, sq_mask;
	unsigned *cq_head, *cq_tail, cq_mask;
	unsigned queued;
};

static int uring_open(struct uring *u)
{
	struct io_uring_params p;

	memset(&p, 0, sizeof(p));
	p.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
	u->fd = (int)syscall(__NR_io_uring_setup, ENTRIES, &p);
	if (u->fd < 0)
		return -errno;
	u->rings_size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	if (u->rings_size < p.sq_off.array + p.sq_entries * sizeof(unsigned))
		u->rings_size = p.sq_off.array + p.sq_entries * sizeof(unsigned);
	u->sqes_size = p.sq_entries * sizeof(struct io_uring_sqe);
	u->rings = mmap(NULL, u->rings_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			u->fd, IORING_OFF_SQ_RING);
	u->sqe = mmap(NULL, u->sqes_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd,
		      IORING_OFF_SQES);
	if (u->rings == MAP_FAILED || (void *)u->sqe == MAP_FAILED ||
	    !(p.features & IORING_FEAT_SINGLE_MMAP))
		return -ENOMEM;
	u->sq_tail = (unsigned *)(void *)(u->rings + p.sq_off.tail);
	u->sq_array = (unsigned *)(void *)(u->rings + p.sq_off.array);
	u->sq_mask = p.sq_entries - 1;
	u->cq_head = (unsigned *)(void *)(u->rings + p.cq_off.head);
	u->cq_tail = (unsigned *)(void *)(u->rings + p.cq_off.tail);
	u->cqe = (struct io_uring_cqe *)(void *)(u->rings + p.cq_off.cqes);
	u->cq_mask = p.cq_entries - 1;
	return 0;
}

static void uring_close(struct uring *u)
{
	if (u->rings && u->rings != MAP_FAILED)
		munmap(u->rings, u->rings_size);
	if (u->sqe && (void *)u->sqe != MAP_FAILED)
		munmap(u->sqe, u->sqes_size);
	if (u->fd >= 0)
		close(u->fd);
}

static void put(struct uring *u, unsigned op, int fd, void *data, size_t n, uint64_t what)
{
	unsigned tail = *u->sq_tail, i = tail & u->sq_mask;
	struct io_uring_sqe *e = &u->sqe[i];

	memset(e, 0, sizeof(*e));
	e->opcode = (uint8_t)op;
	e->fd = fd;
	e->addr = (uint64_t)(uintptr_t)data;
	e->len = (uint32_t)n;
	e->user_data = what;
	if (op == IORING_OP_RECV)
		e->ioprio = IORING_RECVSEND_POLL_FIRST; /* what is there was taken just now */
	else
		e->msg_flags = MSG_NOSIGNAL | MSG_WAITALL;
	u->sq_array[i] = i;
	__atomic_store_n(u->sq_tail, tail + 1, __ATOMIC_RELEASE);
	u->queued++;
}

/* Submits what is queued and waits for a completion. */
static int enter(struct uring *u, uint64_t *calls)
{
	long rc =
		syscall(__NR_io_uring_enter, u->fd, u->queued, 1, IORING_ENTER_GETEVENTS, NULL, 0);

	++*calls;
	if (rc < 0)
		return errno == EINTR ? 0 : -errno;
	u->queued -= (unsigned)rc;
	return 0;
}

/* user_data: the connection, and whether it was a send. */
#define SENT 0x10000u

/* What a completion wants next; 1: the connection has ended, or a negative errno. */
static int next(struct uring *u, const struct io_uring_cqe *c, const int *fd,
		uint8_t (*room)[ENGINE_ROOM])
{
	uint64_t i = c->user_data & ~(uint64_t)SENT;

	if (c->res < 0 || (c->res == 0 && c->user_data & SENT))
		return c->res ? c->res : -EIO;
	if (c->res == 0)
		return 1;
	if (c->user_data & SENT)
		put(u, IORING_OP_RECV, fd[i], room[i], ENGINE_ROOM, i);
	else
		put(u, IORING_OP_SEND, fd[i], room[i], (size_t)c->res, i | SENT);
	return 0;
}

static int run(struct uring *u, const int *fd, int n, uint8_t (*room)[ENGINE_ROOM], uint64_t *calls)
{
	int open = n, i, rc = 0;

	for (i = 0; i < n; i++)
		put(u, IORING_OP_RECV, fd[i], room[i], ENGINE_ROOM, (uint64_t)i);
	while (open && !rc) {
		unsigned head = *u->cq_head, tail;

		rc = enter(u, calls);
		tail = __atomic_load_n(u->cq_tail, __ATOMIC_ACQUIRE);
		for (; head != tail && rc >= 0; head++) {
			rc = next(u, &u->cqe[head & u->cq_mask], fd, room);
			open -= rc == 1;
		}
		__atomic_store_n(u->cq_head, head, __ATOMIC_RELEASE);
		rc = rc < 0 ? rc : 0;
	}
	return rc;
}

static int serve(const int *fd, int n, uint8_t (*room)[ENGINE_ROOM], uint64_t *calls)
{
	struct uring u;
	int rc;

	memset(&u, 0, sizeof(u));
	rc = uring_open(&u);
	if (!rc)
		rc = run(&u, fd, n, room, calls);
	uring_close(&u);
	return rc;
}

const struct engine engine_uring = { "io_uring", serve };
