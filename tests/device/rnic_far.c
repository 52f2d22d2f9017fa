/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software RNIC's regions in a GPU's memory: cudaMalloc, a stream-ordered pool, VMM. Two devices on a wire in memory; B's
 * region is the GPU's. WRITE, READ, SEND and atomics into and out of it, right to the last byte; then a kernel that stays
 * resident and looks behind each flag, a million times; then how fast 64 KiB WRITEs go.
 *
 *	rnic_far [TURNS [SECONDS]]	turns of the watching kernel [1000000], time limit for them [60]
 *
 * Needs a GPU (77 without). unit.rnic_far tests the same code without one, and its order more sharply.
 */
#include "rnic_far.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "platform/cuda/copier.h"
#include "platform/platform.h"
#include "rnic/rnic.h"
#include "rnic/wire.h"
#include "wire/roce.h"

enum {
	SIZE = 8 << 20,
	STAGING = 256 * PLATFORM_COPIER_UNIT,
	DEPTH = 512,
	BLOCK = 65536,
	UNDER_WAY = 32
};

static const uint8_t gid[2][1][16] = { { { [10] = 0xff, [11] = 0xff, 10, 0, 0, 1 } },
				       { { [10] = 0xff, [11] = 0xff, 10, 0, 0, 2 } } };

struct side {
	struct rnic_wire wire;
	struct side *peer;
	struct rnic *r;
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_qp *qp;
	struct rnic_mr *mr;
};

static struct side side[2];
static uint8_t *host, *want, *got, *gpu;
static const char *kind_name = "opening";
static size_t seam;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fail(const char *what)
{
	fprintf(stderr, "rnic_far: %s: %s\n", kind_name, what);
	exit(1);
}

static void must(bool good, const char *what)
{
	if (!good)
		fail(what);
}

/* --- the wire: a packet is given to the other device at once, without an ICRC -------------------- */

static int wire_send(struct rnic_wire *w, const struct rnic_tx *tx, uint64_t now)
{
	static uint8_t buf[WIRE_MTU_MAX + 128];
	struct side *to = ((struct side *)w)->peer;
	struct rnic_rx rx = { .data = buf };

	memcpy(rx.ip.src, tx->path->src, 16);
	memcpy(rx.ip.dst, tx->path->dst, 16);
	if (tx->nseg == 1 && tx->payload_len % 4 == 0) {
		memcpy(buf, tx->hdr, tx->hdr_len);
		rx.len = tx->hdr_len + 4;
		rx.payload = tx->seg[0].iov_base;
		rx.payload_len = tx->payload_len;
	} else {
		size_t n = tx->hdr_len;
		unsigned i;

		memcpy(buf, tx->hdr, n);
		for (i = 0; i < tx->nseg; i++) {
			memcpy(buf + n, tx->seg[i].iov_base, tx->seg[i].iov_len);
			n += tx->seg[i].iov_len;
		}
		rx.len = n + (-n & 3) + 4;
	}
	rnic_receive(to->r, &rx, now);
	return 0;
}

static const struct rnic_wire_ops wire_ops = { .send = wire_send };

/* --- devices ------------------------------------------------------------------------------------ */

static void open_side(int i, struct platform_copier *copier)
{
	struct rnic_config cfg = { .gids = gid[i], .ngids = 1, .window = 1024, .copier = copier };
	struct side *s = &side[i];
	struct rnic_qp_init in = { .type = RNIC_QP_RC,
				   .max_send_wr = DEPTH,
				   .max_recv_wr = DEPTH,
				   .max_send_sge = 2,
				   .max_recv_sge = 2 };

	s->wire.ops = &wire_ops;
	s->peer = &side[1 - i];
	must(!rnic_open(&s->r, &cfg, &s->wire), "rnic_open");
	must(!rnic_pd_create(s->r, &s->pd), "rnic_pd_create");
	must(!rnic_cq_create(s->r, 2 * DEPTH, &s->cq), "rnic_cq_create");
	in.send_cq = in.recv_cq = s->cq;
	must(!rnic_qp_create(s->pd, &in, &s->qp), "rnic_qp_create");
}

static void connect_side(int i)
{
	struct rnic_qp_attr a = { .access = RNIC_ACCESS_ALL,
				  .mtu = 4096,
				  .dest_qpn = rnic_qp_num(side[1 - i].qp),
				  .timeout = 20,
				  .retry = 7,
				  .rnr_retry = 7,
				  .min_rnr = 1,
				  .rd_atomic = 16,
				  .dest_rd_atomic = 16 };
	int s;

	memcpy(a.path.src, gid[i], 16);
	memcpy(a.path.dst, gid[1 - i], 16);
	for (s = RNIC_QPS_INIT; s <= RNIC_QPS_RTS; s++) {
		a.state = (enum rnic_qp_state)s;
		must(!rnic_qp_modify(side[i].qp, &a,
				     s == RNIC_QPS_RTR ? (1 << 14) - 1 : RNIC_ATTR_STATE, now_ns()),
		     "rnic_qp_modify");
	}
}

static void step(void)
{
	uint64_t now = now_ns();

	/* Eight messages of 64 KiB at most. */
	rnic_step(side[0].r, now, 128);
	rnic_step(side[1].r, now, 128);
}

static void complete(int i, uint64_t id)
{
	uint64_t end = now_ns() + 10000000000u;
	struct rnic_wc wc;

	while (!rnic_cq_poll(side[i].cq, &wc, 1)) {
		step();
		must(now_ns() < end, "no completion within ten seconds");
	}
	if (wc.status || wc.wr_id != id) {
		fprintf(stderr, "rnic_far: %s: completion %llu, status %u, instead of %llu\n",
			kind_name, (unsigned long long)wc.wr_id, wc.status, (unsigned long long)id);
		exit(1);
	}
}

/* Both regions are named by offsets. */
static void post(int i, enum rnic_wr_opcode op, size_t at, uint32_t len, size_t to, uint64_t add,
		 uint64_t compare, uint64_t id)
{
	struct rnic_sge sge = { at, len, rnic_mr_lkey(side[i].mr) };
	struct rnic_send_wr wr = { .wr_id = id,
				   .opcode = op,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .raddr = to,
				   .rkey = rnic_mr_rkey(side[1 - i].mr),
				   .swap_add = add,
				   .compare = compare };

	must(!rnic_post_send(side[i].qp, &wr, now_ns()), "rnic_post_send");
}

/* --- right to the last byte --------------------------------------------------------------------- */

static void noise(uint8_t *p, size_t n, uint64_t seed)
{
	size_t i;

	for (i = 0; i < n; i++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
		p[i] = (uint8_t)(seed >> 56);
	}
}

/* The GPU's memory is `want`, all of it. */
static void gpu_is(const char *after)
{
	must(!far_get(got, gpu, SIZE), "far_get");
	must(!memcmp(got, want, SIZE), after);
}

static void one_size(size_t off, uint32_t len)
{
	struct rnic_sge in = { off, len, rnic_mr_lkey(side[1].mr) };

	noise(host, len, off * 31 + len);
	post(0, RNIC_WR_WRITE, 0, len, off, 0, 0, 1);
	complete(0, 1);
	memcpy(want + off, host, len);
	gpu_is("WRITE into GPU memory");
	post(0, RNIC_WR_READ, SIZE / 2, len, off, 0, 0, 2);
	complete(0, 2);
	must(!memcmp(host + SIZE / 2, want + off, len), "READ out of GPU memory");
	/* Received there, and sent from there. */
	noise(host, len, off * 37 + len);
	must(!rnic_post_recv(side[1].qp, 3, &in, 1), "rnic_post_recv");
	post(0, RNIC_WR_SEND, 0, len, 0, 0, 0, 4);
	complete(1, 3);
	complete(0, 4);
	memcpy(want + off, host, len);
	gpu_is("SEND into GPU memory");
	memset(host, 0, len);
	post(1, RNIC_WR_WRITE, off, len, 0, 0, 0, 5);
	complete(1, 5);
	must(!memcmp(host, want + off, len), "WRITE out of GPU memory");
	/* READ into it */
	noise(host, len, off * 41 + len);
	post(1, RNIC_WR_READ, off, len, 0, 0, 0, 6);
	complete(1, 6);
	memcpy(want + off, host, len);
	gpu_is("READ into GPU memory");
}

static void atomics(void)
{
	uint64_t v = 0, old;
	unsigned i;

	memset(want + 4096, 0, 8);
	must(!far_put(gpu + 4096, want + 4096, 8), "far_put");
	for (i = 0; i < 200; i++) {
		post(0, RNIC_WR_FETCH_ADD, 0, 8, 4096, i, 0, i);
		complete(0, i);
		memcpy(&old, host, 8);
		must(old == v, "FETCH_ADD's old value");
		v += i;
	}
	post(0, RNIC_WR_CMP_SWAP, 0, 8, 4096, 77, v + 1, 1);
	complete(0, 1);
	post(0, RNIC_WR_CMP_SWAP, 8, 8, 4096, 88, v, 2);
	complete(0, 2);
	memcpy(&old, host + 8, 8);
	must(old == v, "CMP_SWAP's old value");
	v = 88;
	memcpy(want + 4096, &v, 8);
	gpu_is("atomics on GPU memory");
}

/* D10, D7: refused with a reason; a hundred small regions in one page. */
static void registrations(void)
{
	struct rnic_mr *mr[100], *bad;
	unsigned i;

	must(rnic_mr_create_far(side[1].pd, (uintptr_t)host, 64, 0, RNIC_ACCESS_ALL, &bad) == -14,
	     "host memory was taken for the GPU's");
	must(rnic_mr_create_far(side[1].pd, (uintptr_t)gpu, UINT64_C(1) << 40, 0, RNIC_ACCESS_ALL,
				&bad) == -14,
	     "a region beyond its memory was taken");
	for (i = 0; i < 100; i++)
		must(!rnic_mr_create_far(side[1].pd, (uintptr_t)gpu + i * 16, 16, 0,
					 RNIC_ACCESS_ALL, &mr[i]),
		     "a small region");
	for (i = 0; i < 100; i++)
		rnic_mr_destroy(mr[i]);
}

static void all_sizes(const char *name)
{
	static const size_t offsets[] = { 0, 1, 256, 4096, 65536 };
	static const uint32_t sizes[] = { 1, 3, 8, 64, 4096, 4097, 65536, 200001 };
	unsigned i, k;

	noise(want, SIZE, 5);
	must(!far_put(gpu, want, SIZE), "far_put");
	for (i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
			one_size(offsets[i], sizes[k]);
	if (seam)
		one_size(seam - 100, 70000);
	one_size(SIZE - 70001, 70001);
	atomics();
	registrations();
	printf("%s: right\n", name);
}

/* --- a kernel that watches ---------------------------------------------------------------------- */

/* Even turns: payload and flag are two WRITEs; odd ones: the flag is the last word of one. */
static void one_turn(uint64_t turn, unsigned words)
{
	uint64_t *w = (uint64_t *)(void *)host;
	unsigned i;

	for (i = 0; i < words; i++)
		w[i] = FAR_WORD(turn, i);
	w[words] = turn;
	if (turn % 2) {
		post(0, RNIC_WR_WRITE, 0, words * 8 + 8, 0, 0, 0, turn);
		complete(0, turn);
		return;
	}
	post(0, RNIC_WR_WRITE, 0, words * 8, 0, 0, 0, 0);
	post(0, RNIC_WR_WRITE, words * 8, 8, words * 8, 0, 0, turn);
	complete(0, 0);
	complete(0, turn);
}

static void watched(uint64_t turns, uint64_t limit_ns)
{
	const unsigned words = 125; /* the message is longer than one line, and no power of two */
	uint64_t start, turn, end;
	struct far_watch *w;

	memset(host, 0, 4096);
	must(!far_put(gpu, host, 4096), "far_put");
	must(!far_watch_start(&w, gpu, words, gpu + words * 8, turns), "far_watch_start");
	start = now_ns();
	end = start + limit_ns;
	for (turn = 1; turn <= turns && now_ns() < end; turn++) {
		one_turn(turn, words);
		while (__atomic_load_n(&w->seen, __ATOMIC_ACQUIRE) != turn)
			if (now_ns() > end || __atomic_load_n(&w->ended, __ATOMIC_ACQUIRE))
				break;
	}
	turn = __atomic_load_n(&w->seen, __ATOMIC_ACQUIRE);
	__atomic_store_n(&w->stop, 1, __ATOMIC_RELEASE);
	must(!far_watch_end(), "far_watch_end");
	printf("{\"what\":\"payload and flag seen by a resident kernel\",\"turns\":%llu,\"stale\":%llu,"
	       "\"us\":%.2f}\n",
	       (unsigned long long)turn, (unsigned long long)w->wrong,
	       (double)(now_ns() - start) / 1000.0 / (double)(turn ? turn : 1));
	must(!w->wrong, "old bytes behind a new flag");
	must(turn == turns, "the kernel did not see all turns in the time that they may take");
}

/* --- beside a kernel that fills the GPU --------------------------------------------------------- */

/* Copies need no room on a multiprocessor: they do not wait for the kernel, which ends when it is told to. */
static void crowded(void)
{
	uint64_t end = now_ns() + 5000000000u, seen = 0;
	struct far_watch *w;
	unsigned blocks, i, k;

	must(!far_crowd_start(&w, &blocks), "far_crowd_start");
	while (seen != blocks && now_ns() < end)
		seen = __atomic_load_n(&w->seen, __ATOMIC_ACQUIRE);
	for (i = 0; i < 200; i++) {
		noise(host, BLOCK, i + 7);
		for (k = 0; k < 8; k++)
			post(0, RNIC_WR_WRITE, 0, BLOCK - k, (i * 8 + k) % 100 * BLOCK, 0, 0, k);
		for (k = 0; k < 8; k++)
			complete(0, k);
		for (k = 0; k < 8; k++)
			memcpy(want + (i * 8 + k) % 100 * BLOCK, host, BLOCK - k);
	}
	post(0, RNIC_WR_READ, 0, BLOCK, 0, 0, 0, 1);
	complete(0, 1);
	must(!memcmp(host, want, BLOCK), "READ beside a kernel that fills the GPU");
	__atomic_store_n(&w->stop, 1, __ATOMIC_RELEASE);
	must(!far_watch_end(), "far_watch_end");
	must(seen == blocks, "the kernel did not fill the GPU");
	gpu_is("WRITEs beside a kernel that fills the GPU");
	printf("beside a kernel of %u blocks: right\n", blocks);
}

/* --- how fast ----------------------------------------------------------------------------------- */

static void post_writes(uint64_t from, uint64_t to)
{
	for (; from != to; from++) {
		size_t at = from % (SIZE / BLOCK) * BLOCK;

		post(0, RNIC_WR_WRITE, at % (1 << 20), BLOCK, at, 0, 0, from);
	}
}

static unsigned take_writes(void)
{
	struct rnic_wc wc[UNDER_WAY];
	unsigned i, n = rnic_cq_poll(side[0].cq, wc, UNDER_WAY);

	for (i = 0; i < n; i++)
		must(!wc[i].status, "a WRITE failed");
	return n;
}

/* `waiting`: the part of the time in which there was nothing to do but ask whether copies are done. */
static void fast(uint64_t ns)
{
	uint64_t start = now_ns(), now = start, then, idle = 0, posted = 0, done = 0;

	while (now < start + ns || done < posted) {
		uint64_t upto = now < start + ns ? done + UNDER_WAY : posted;
		bool nothing = upto == posted;
		unsigned n;

		post_writes(posted, upto);
		posted = upto;
		step();
		n = take_writes();
		done += n;
		then = now;
		now = now_ns();
		if (nothing && !n)
			idle += now - then;
		must(now < start + ns + 10000000000u, "WRITEs do not end");
	}
	printf("{\"what\":\"WRITE into GPU memory, 64 KiB, %u under way\",\"gb_s\":%.2f,\"bar\":10,"
	       "\"us\":%.2f,\"waiting\":%.2f}\n",
	       UNDER_WAY, (double)done * BLOCK / (double)(now - start),
	       (double)(now - start) / 1000.0 / (double)done, (double)idle / (double)(now - start));
}

int main(int argc, char **argv)
{
	static const char *const names[FAR_KINDS] = { "cudaMalloc", "pool", "VMM" };
	uint64_t turns = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
	uint64_t seconds = argc > 2 ? strtoull(argv[2], NULL, 0) : 60;
	struct platform_copier *copier;
	struct platform_dev *dev;
	int kind, rc = far_open();

	if (rc) {
		if (rc == 77)
			fputs("skipped: no GPU\n", stderr);
		return rc == 77 ? 77 : 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	host = malloc(SIZE);
	want = malloc(SIZE);
	got = malloc(SIZE);
	must(host && want && got, "no memory");
	must(!platform_cuda.open(0, NULL, &dev), "platform_cuda.open");
	must(!cuda_copier_open(dev, STAGING, &copier), "cuda_copier_open");
	open_side(0, NULL);
	open_side(1, copier);
	connect_side(0);
	connect_side(1);
	must(!rnic_mr_create(side[0].pd, host, SIZE, 0, RNIC_ACCESS_ALL, &side[0].mr),
	     "rnic_mr_create");
	for (kind = 0; kind < FAR_KINDS; kind++) {
		void *p;

		kind_name = names[kind];
		must(!far_alloc((enum far_kind)kind, SIZE, &p, &seam), "far_alloc");
		gpu = p;
		must(!rnic_mr_create_far(side[1].pd, (uintptr_t)gpu, SIZE, 0, RNIC_ACCESS_ALL,
					 &side[1].mr),
		     "rnic_mr_create_far");
		all_sizes(names[kind]);
		crowded();
		fast(1000000000);
		watched(kind ? turns / 10 : turns, seconds * 1000000000u);
		rnic_mr_destroy(side[1].mr);
	}
	rnic_mr_destroy(side[0].mr);
	rnic_qp_destroy(side[0].qp);
	rnic_qp_destroy(side[1].qp);
	for (kind = 0; kind < 2; kind++) {
		must(!rnic_cq_destroy(side[kind].cq) && !rnic_pd_destroy(side[kind].pd) &&
			     !rnic_close(side[kind].r),
		     "rnic_close");
	}
	copier->ops->close(copier);
	platform_cuda.close(dev);
	return 0;
}
