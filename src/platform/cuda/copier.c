/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A thread makes the CUDA calls, so that whoever puts copies in never waits for the driver: while another thread loads a
 * kernel beside a resident one, the driver holds the context's lock until the GPU is idle, and even a copy waits for it.
 * Then the copies wait, but not the network.
 *
 * The calls it makes while kernels are resident, all on a non-blocking stream of its own, all from and to memory that was
 * pinned before: cuMemcpyHtoDAsync, cuMemcpyBatchAsync of such copies, cuMemcpyDtoHAsync, cuStreamWriteValue32 and 64,
 * cuStreamBatchMemOp of such writes, cuStreamQuery. None allocates, none waits for another stream. That tickets are done is
 * written by the GPU into pinned memory (cuStreamWriteValue64, which is ordered behind the copies), so that asking costs no
 * call.
 */
#include "platform/cuda/copier.h"

#include "base/log.h"
#include "base/relax.h"
#include "base/sys.h"
#include "platform/cuda/device.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

/* It looks for work so long before it sleeps, and so often asks the driver whether all is well. */
#define SPIN_NS UINT64_C(50000)
#define ALIVE_NS UINT64_C(1000000)
#define CLOSE_NS UINT64_C(2000000000)

/* So many copies wait at most until the thread is shown them; a mark shows all. */
enum { SHOW = 8 };

/* Words and tickets that follow each other become one call, of so many; and copies. */
enum { BATCH = 64, GATHER = 16 };

/* Whether the driver writes words is the same all over a piece of memory of this size. */
enum { PIECE = 2 << 20, PIECES = 256 };

/* Processors fetch two lines of 64 bytes at once. */
enum { APART = 128 };

enum kind { WRITE, WORD, READ, MARK };

struct op {
	enum kind kind;
	uint32_t n;
	cuda_devptr dev;
	void *host;
	uint64_t ticket;
};

/*
 * Who spins on a line makes each store to it slow, so what one side writes all the time lies in lines of its own, and the other
 * side looks there as seldom as it can.
 */
struct cuda_copier {
	struct platform_copier pub;
	struct platform_dev *dev;
	cuda_stream stream;
	struct platform_mem mem; /* staging memory, then the line with the ticket */
	uint64_t *done;
	cuda_devptr done_dev;
	bool words; /* the driver can write words; else they are copied, and tickets cost a wait */
	struct op *ring;
	uint32_t mask;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	char apart1[APART];
	uint32_t put;  /* the caller's: behind the newest copy */
	uint32_t room; /* … up to where the ring was free */
	uint64_t marked;
	char apart2[APART];
	uint32_t head; /* what of that the thread may see */
	char apart3[APART];
	uint32_t tail; /* the thread's */
	char apart4[APART];
	uint32_t asleep, stop;
	int err; /* negative errno */
	char apart5[APART];
	bool batches; /* the driver takes several words in one call */
	bool gathers; /* … and several copies */
	/* The thread's: the pieces of memory that words went to, and whether the driver wrote them. */
	struct known {
		uint64_t piece;
		bool good;
	} known[PIECES];
	cuda_mem_op op[BATCH];
	cuda_devptr to[GATHER], from[GATHER];
	size_t len[GATHER];
};

static struct cuda_copier *of(struct platform_copier *c)
{
	return (struct cuda_copier *)c;
}

/* --- the caller's half -------------------------------------------------------------------------- */

static void wake(struct cuda_copier *c)
{
	pthread_mutex_lock(&c->lock);
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
}

/* Lets the thread see what was put in. */
static void show(struct cuda_copier *c)
{
	if (c->put == c->head)
		return;
	/* Either the thread sees this, or it is seen asleep. */
	__atomic_store_n(&c->head, c->put, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&c->asleep, __ATOMIC_SEQ_CST))
		wake(c);
}

/* The first reason stays. */
static void is_over(struct cuda_copier *c, int err)
{
	int none = 0;

	__atomic_compare_exchange_n(&c->err, &none, err, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void put(struct cuda_copier *c, struct op op)
{
	if (c->put == c->room)
		c->room = __atomic_load_n(&c->tail, __ATOMIC_ACQUIRE) + c->mask + 1;
	/* There is room, by the agreement; without it the copy would be lost, so that nothing may be believed. */
	if (c->put == c->room) {
		is_over(c, -ENOBUFS);
		return;
	}
	c->ring[c->put++ & c->mask] = op;
	/* Behind words there is soon a mark, which goes with them. */
	if (op.kind == MARK || (op.kind != WORD && c->put - c->head >= SHOW))
		show(c);
}

static void copy_in(struct platform_copier *p, uint64_t dst, const void *src, size_t n)
{
	put(of(p), (struct op){ WRITE, (uint32_t)n, dst, (void *)(uintptr_t)src, 0 });
}

static void word_in(struct platform_copier *p, uint64_t dst, const void *src, size_t n)
{
	put(of(p), (struct op){ WORD, (uint32_t)n, dst, (void *)(uintptr_t)src, 0 });
}

static void copy_out(struct platform_copier *p, void *dst, uint64_t src, size_t n)
{
	put(of(p), (struct op){ READ, (uint32_t)n, src, dst, 0 });
}

static void mark(struct platform_copier *p, uint64_t ticket)
{
	of(p)->marked = ticket;
	put(of(p), (struct op){ MARK, 0, 0, NULL, ticket });
}

static int done(struct platform_copier *p, uint64_t *ticket)
{
	struct cuda_copier *c = of(p);

	*ticket = __atomic_load_n(c->done, __ATOMIC_ACQUIRE);
	return __atomic_load_n(&c->err, __ATOMIC_ACQUIRE);
}

static int drain(struct platform_copier *p, uint64_t timeout_ns)
{
	const struct timespec nap = { .tv_nsec = 20000 };
	struct cuda_copier *c = of(p);
	uint64_t end = sys.now_ns() + timeout_ns, ticket = 0;
	int err;

	/* What was put in behind the last mark is not covered by it; the ticket stays the caller's. */
	put(c, (struct op){ MARK, 0, 0, NULL, c->marked | UINT64_C(1) << 63 });
	for (;;) {
		err = done(p, &ticket);
		if (err || ticket >> 63)
			break;
		if (sys.now_ns() >= end)
			return -ETIMEDOUT;
		nanosleep(&nap, NULL);
	}
	if (!err)
		__atomic_store_n(c->done, c->marked, __ATOMIC_RELEASE);
	return err;
}

/* --- the thread --------------------------------------------------------------------------------- */

/* --- words --- */

static struct known *known(struct cuda_copier *c, cuda_devptr at)
{
	return &c->known[at / PIECE % PIECES];
}

static bool takes_words(struct cuda_copier *c, cuda_devptr at)
{
	const struct known *k = known(c, at);

	return k->piece == at / PIECE && k->good;
}

/* A word that the driver does not write on its own, as it need not into all kinds of memory, is copied. */
static cuda_result write_word(struct cuda_copier *c, cuda_devptr dst, const void *src, uint32_t n)
{
	const struct cuda_api *api = cuda_of(c->dev)->api;
	struct known *k = known(c, dst);
	cuda_result r = CUDA_INVALID_VALUE;
	uint64_t v8;
	uint32_t v4;

	if (k->piece != dst / PIECE)
		*k = (struct known){ dst / PIECE, true };
	if (c->words && k->good && n == 8) {
		memcpy(&v8, src, 8);
		r = api->write_value64(c->stream, dst, v8, 0);
	} else if (c->words && k->good && n == 4) {
		memcpy(&v4, src, 4);
		r = api->write_value32(c->stream, dst, v4, 0);
	} else {
		return api->write_async(dst, src, n, c->stream);
	}
	k->good = r == CUDA_OK;
	return r == CUDA_INVALID_VALUE ? api->write_async(dst, src, n, c->stream) : r;
}

static cuda_result tell(struct cuda_copier *c, uint64_t ticket)
{
	const struct cuda_api *api = cuda_of(c->dev)->api;
	cuda_result r;

	if (c->words)
		return api->write_value64(c->stream, c->done_dev, ticket, 0);
	do {
		r = api->stream_query(c->stream);
	} while (r == CUDA_NOT_READY && !__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE));
	if (r == CUDA_OK)
		__atomic_store_n(c->done, ticket, __ATOMIC_RELEASE);
	return r == CUDA_NOT_READY ? CUDA_OK : r;
}

/* Whether it can be one of several in a call; if so it is put there. Where no word was written before, that is tried alone. */
static bool join(struct cuda_copier *c, const struct op *o, cuda_mem_op *to)
{
	bool ticket = o->kind == MARK, wide = ticket || o->n == 8;
	uint64_t v = o->ticket;
	uint32_t v4;

	if (!ticket) {
		if (o->kind != WORD || (o->n != 8 && o->n != 4) || !takes_words(c, o->dev))
			return false;
		if (wide) {
			memcpy(&v, o->host, 8);
		} else {
			memcpy(&v4, o->host, 4);
			v = v4;
		}
	}
	memset(to, 0, sizeof(*to));
	to->write.operation = wide ? CUDA_MEM_OP_WRITE_64 : CUDA_MEM_OP_WRITE_32;
	to->write.address = ticket ? c->done_dev : o->dev;
	to->write.value = v;
	return true;
}

static cuda_result execute(struct cuda_copier *c, const struct op *o)
{
	const struct cuda_api *api = cuda_of(c->dev)->api;

	switch (o->kind) {
	case WRITE:
		return api->write_async(o->dev, o->host, o->n, c->stream);
	case WORD:
		return write_word(c, o->dev, o->host, o->n);
	case READ:
		return api->read_async(o->host, o->dev, o->n, c->stream);
	default:
		return tell(c, o->ticket);
	}
}

/* The places before `at` are free: told before a ticket is, which promises them. */
static void let_go(struct cuda_copier *c, uint32_t at)
{
	__atomic_store_n(&c->tail, at, __ATOMIC_RELEASE);
}

/*
 * Words and tickets from `at` on that go in one call; how many did. 0: they have to go one by one. The GPU does them in their
 * order.
 */
static uint32_t batch(struct cuda_copier *c, uint32_t at, uint32_t end, cuda_result *r)
{
	struct op taken[BATCH];
	bool all_words = true;
	uint32_t n = 0, i;

	if (!c->batches)
		return 0;
	while (n < BATCH && at + n != end) {
		taken[n] = c->ring[(at + n) & c->mask];
		if (!join(c, &taken[n], &c->op[n]))
			break;
		n++;
	}
	if (n < 2)
		return 0;
	let_go(c, at + n);
	*r = cuda_of(c->dev)->api->batch_mem_op(c->stream, n, c->op, 0);
	if (*r != CUDA_INVALID_VALUE && *r != CUDA_NOT_SUPPORTED)
		return n;
	/*
	 * Refused as a whole: memory has been replaced by some of another kind, or the driver has no such call, or in name
	 * only. One by one, then; if each is taken as a word, the memory was not to blame.
	 */
	memset(c->known, 0, sizeof(c->known));
	*r = CUDA_OK;
	for (i = 0; i < n && *r == CUDA_OK; i++) {
		*r = execute(c, &taken[i]);
		all_words = all_words && (taken[i].kind == MARK || takes_words(c, taken[i].dev));
	}
	c->batches = !all_words;
	return n;
}

/* --- copies --- */

/* Whether the copy may be done at once with those before it: no order holds within a call. */
static bool apart(const struct cuda_copier *c, const struct op *o, uint32_t n)
{
	while (n--)
		if (o->dev < c->to[n] + c->len[n] && c->to[n] < o->dev + o->n)
			return false;
	return true;
}

/* As batch(), copies in. */
static uint32_t gather(struct cuda_copier *c, uint32_t at, uint32_t end, cuda_result *r)
{
	cuda_copy_attributes how;
	size_t first = 0;
	uint32_t n = 0;

	if (!c->gathers)
		return 0;
	while (n < GATHER && at + n != end) {
		const struct op *o = &c->ring[(at + n) & c->mask];

		if (o->kind != WRITE || !apart(c, o, n))
			break;
		c->to[n] = o->dev;
		c->from[n] = (cuda_devptr)(uintptr_t)o->host;
		c->len[n++] = o->n;
	}
	if (n < 2)
		return 0;
	memset(&how, 0, sizeof(how));
	how.order = CUDA_COPY_IN_STREAM_ORDER;
	/* Not by a kernel, which would have to wait for those that are resident. */
	how.flags = CUDA_COPY_BESIDE_KERNELS;
	*r = cuda_of(c->dev)->api->copy_batch(c->to, c->from, c->len, n, &how, &first, 1,
					      c->stream);
	if (*r == CUDA_INVALID_VALUE || *r == CUDA_NOT_SUPPORTED) {
		/* The same, one by one, does no harm if some of it was done. */
		c->gathers = false;
		return 0;
	}
	return n;
}

static void failed(struct cuda_copier *c, cuda_result r, const char *what)
{
	if (!__atomic_load_n(&c->err, __ATOMIC_RELAXED))
		is_over(c, cuda_fail(cuda_of(c->dev), r, what));
}

static const char *const names[] = {
	[WRITE] = "copy into GPU memory for RDMA",
	[WORD] = "write the last word of a message into GPU memory for RDMA",
	[READ] = "copy out of GPU memory for RDMA",
	[MARK] = "tell how far copies for RDMA have come",
};

/* Sleeps until something is put in, or a moment while copies are under way, whose failure only the driver knows. */
static void sleep_a_while(struct cuda_copier *c)
{
	bool under_way = cuda_of(c->dev)->api->stream_query(c->stream) == CUDA_NOT_READY;
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)ALIVE_NS * 10;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_mutex_lock(&c->lock);
	__atomic_store_n(&c->asleep, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&c->head, __ATOMIC_SEQ_CST) == c->tail &&
	    !__atomic_load_n(&c->stop, __ATOMIC_SEQ_CST)) {
		if (under_way)
			pthread_cond_timedwait(&c->wake, &c->lock, &until);
		else
			pthread_cond_wait(&c->wake, &c->lock);
	}
	__atomic_store_n(&c->asleep, 0, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&c->lock);
}

static void check_alive(struct cuda_copier *c)
{
	cuda_result r = cuda_of(c->dev)->api->stream_query(c->stream);

	if (r != CUDA_OK && r != CUDA_NOT_READY)
		failed(c, r, "copy for RDMA to or from GPU memory");
}

/* Does what is in the ring up to `head`. */
static void serve(struct cuda_copier *c, uint32_t head)
{
	uint32_t at = c->tail, n;

	while (at != head) {
		const struct op o = c->ring[at & c->mask];
		cuda_result r = CUDA_OK;

		n = 1;
		if (!__atomic_load_n(&c->err, __ATOMIC_ACQUIRE)) {
			n = o.kind == WRITE ? gather(c, at, head, &r) : batch(c, at, head, &r);
			if (!n) {
				n = 1;
				if (o.kind == MARK)
					let_go(c, at + n);
				r = execute(c, &o);
			}
		}
		if (r != CUDA_OK)
			failed(c, r, names[o.kind]);
		at += n;
		let_go(c, at);
	}
}

static void *work(void *arg)
{
	struct cuda_copier *c = arg;
	uint64_t idle_since = 0, now, asked = 0;
	uint32_t head;

	if (cuda_enter(cuda_of(c->dev), "copy for RDMA")) {
		__atomic_store_n(&c->err, -ENODEV, __ATOMIC_RELEASE);
		return NULL;
	}
	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
		head = __atomic_load_n(&c->head, __ATOMIC_ACQUIRE);
		if (head != c->tail) {
			serve(c, head);
			idle_since = 0;
			continue;
		}
		relax();
		now = sys.now_ns();
		idle_since = idle_since ? idle_since : now;
		if (now - asked > ALIVE_NS) {
			check_alive(c);
			asked = now;
		}
		if (now - idle_since > SPIN_NS)
			sleep_a_while(c);
	}
	cuda_leave(cuda_of(c->dev));
	return NULL;
}

/* --- memory ------------------------------------------------------------------------------------- */

static bool attribute(const struct cuda_api *api, void *to, cuda_pointer_attribute attr,
		      uint64_t at)
{
	return api->pointer_attribute(to, attr, at) == CUDA_OK;
}

/* How far the memory that begins at or before `at` goes on: the first address behind it, or 0. */
static uint64_t mapped_to(const struct cuda_copier *c, uint64_t at)
{
	const struct cuda_dev *d = cuda_of(c->dev);
	unsigned type = 0;
	int ordinal = -1;
	cuda_devptr start = 0;
	size_t size = 0;

	if (!attribute(d->api, &type, CUDA_POINTER_MEMORY_TYPE, at) || type != CUDA_MEMORY_DEVICE ||
	    !attribute(d->api, &ordinal, CUDA_POINTER_DEVICE_ORDINAL, at) || ordinal != d->ordinal)
		return 0;
	/* A reserved range may be mapped in pieces, or in part; older drivers know whole ranges only. */
	if (!attribute(d->api, &start, CUDA_POINTER_MAPPING_BASE, at) ||
	    !attribute(d->api, &size, CUDA_POINTER_MAPPING_SIZE, at) || !size) {
		if (!attribute(d->api, &start, CUDA_POINTER_RANGE_START, at) ||
		    !attribute(d->api, &size, CUDA_POINTER_RANGE_SIZE, at))
			return 0;
	}
	return start <= at && start + size > at ? start + size : 0;
}

int cuda_owner(const void *p)
{
	char why[160];
	const struct cuda_api *api = cuda_driver(why, sizeof(why));
	uint64_t at = (uintptr_t)p;
	unsigned type = 0;
	int ordinal = -1;

	if (!api || !api->pointer_attribute ||
	    !attribute(api, &type, CUDA_POINTER_MEMORY_TYPE, at) || type != CUDA_MEMORY_DEVICE ||
	    !attribute(api, &ordinal, CUDA_POINTER_DEVICE_ORDINAL, at))
		return -1;
	return ordinal;
}

static int check(struct platform_copier *p, uint64_t addr, uint64_t len)
{
	const struct cuda_copier *c = of(p);
	uint64_t at = addr, to;

	if (cuda_enter(cuda_of(c->dev), "look at GPU memory"))
		return -EFAULT;
	do {
		to = mapped_to(c, at);
		at = to;
	} while (to && to - addr < len);
	cuda_leave(cuda_of(c->dev));
	if (to)
		return 0;
	return log_error(-EFAULT,
			 "cuda:%d: %llu bytes at %#llx are not, or not all, memory of this GPU: "
			 "register host memory as such, and only what is allocated or mapped",
			 cuda_of(c->dev)->ordinal, (unsigned long long)len,
			 (unsigned long long)addr);
}

/* --- opening and closing ------------------------------------------------------------------------ */

static void close_copier(struct platform_copier *p)
{
	struct cuda_copier *c = of(p);
	const struct cuda_dev *d = cuda_of(c->dev);

	/* What still runs then may write into staging memory later: rather lost than corrupted. */
	if (drain(p, CLOSE_NS) == -ETIMEDOUT) {
		log_line(LOG_WARN, "cuda:%d: copies do not end; their staging memory is kept",
			 d->ordinal);
		c->mem.host = NULL;
	}
	__atomic_store_n(&c->stop, 1, __ATOMIC_SEQ_CST);
	wake(c);
	pthread_join(c->thread, NULL);
	if (c->mem.host && !cuda_enter(d, "end copies")) {
		d->api->stream_destroy(c->stream);
		cuda_leave(d);
	}
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	if (c->mem.host)
		cuda_host_free(c->dev, &c->mem);
	sys.free(c->ring);
	sys.free(c);
}

static const struct platform_copier_ops ops = {
	.close = close_copier,
	.check = check,
	.write = copy_in,
	.write_word = word_in,
	.read = copy_out,
	.mark = mark,
	.done = done,
	.drain = drain,
};

static int start_thread(struct cuda_copier *c)
{
	pthread_condattr_t a;
	int err;

	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&c->wake, &a);
	pthread_condattr_destroy(&a);
	err = sys.thread_start(&c->thread, NULL, work, c);
	if (!err)
		return 0;
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	return log_error(err, "cuda:%d: cannot start a thread for copies: %s",
			 cuda_of(c->dev)->ordinal, strerror(-err));
}

static int make_stream(struct cuda_copier *c)
{
	const struct cuda_dev *d = cuda_of(c->dev);
	int err = cuda_enter(d, "make a stream for copies");
	cuda_result r;

	if (err)
		return err;
	r = d->api->stream_create(&c->stream, CUDA_STREAM_NON_BLOCKING, 0);
	cuda_leave(d);
	return r == CUDA_OK ? 0 : cuda_fail(d, r, "make a stream for copies");
}

/* The stream can write words if it has written one. */
static void try_words(struct cuda_copier *c)
{
	const struct cuda_dev *d = cuda_of(c->dev);

	if (!d->api->write_value64 || !d->api->write_value32 || cuda_enter(d, "try a copy"))
		return;
	c->words = d->api->write_value64(c->stream, c->done_dev, 0, 0) == CUDA_OK;
	c->batches = c->words && d->api->batch_mem_op;
	cuda_leave(d);
}

int cuda_copier_open(struct platform_dev *dev, size_t staging, struct platform_copier **out)
{
	const struct cuda_dev *d = cuda_of(dev);
	struct cuda_copier *c;
	uint32_t n = 1;
	int err;

	if (!staging || staging % PLATFORM_COPIER_UNIT || staging > UINT32_MAX / 4)
		return log_error(-EINVAL, "cuda:%d: %zu bytes cannot be staging memory", d->ordinal,
				 staging);
	if (!d->api->pointer_attribute)
		return log_error(-EOPNOTSUPP, "cuda:%d: the driver cannot tell whose memory it is",
				 d->ordinal);
	while (n < staging / PLATFORM_COPIER_UNIT * PLATFORM_COPIER_OPS)
		n *= 2;
	c = sys.alloc(sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->dev = dev;
	c->mask = n - 1;
	c->room = n;
	err = -ENOMEM;
	c->ring = sys.alloc(n * sizeof(*c->ring));
	if (!c->ring)
		goto free_copier;
	err = cuda_host_alloc(dev, staging + 4096, false, &c->mem);
	if (err)
		goto free_copier;
	c->pub.ops = &ops;
	c->pub.staging = c->mem.host;
	c->pub.size = staging;
	c->done = (uint64_t *)(void *)(c->pub.staging + staging);
	*c->done = 0;
	c->done_dev = (cuda_devptr)(uintptr_t)c->mem.dev + staging;
	err = make_stream(c);
	if (err)
		goto free_mem;
	c->gathers = d->api->copy_batch != NULL;
	try_words(c);
	err = start_thread(c);
	if (err)
		goto destroy_stream;
	*out = &c->pub;
	return 0;

destroy_stream:
	if (!cuda_enter(d, "end copies")) {
		d->api->stream_destroy(c->stream);
		cuda_leave(d);
	}
free_mem:
	cuda_host_free(dev, &c->mem);
free_copier:
	sys.free(c->ring);
	sys.free(c);
	return err;
}
