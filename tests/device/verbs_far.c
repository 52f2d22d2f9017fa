/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * <gpunet/verbs.h> over provider rnic with regions in a GPU's memory: two devices of one process, UDP between them. WRITE, READ, SEND
 * and atomics between CPU memory and the GPU's, and from GPU memory to GPU memory, right to the last byte; then a resident kernel
 * looks behind each flag. Registering is what opens the GPU here; rnic_far tests the device under it alone.
 *
 *	verbs_far [TURNS]	turns of the watching kernel, of each kind of memory [20000]
 *
 * Needs a GPU (77 without). unit.verbs_far has a stand-in for one.
 */
#include "rnic_far.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gpunet/gpunet.h>
#include <gpunet/verbs.h>

enum {
	SIZE = 4 << 20,
	BLOCK = 65536,
	ALL = GPUNET_VERBS_LOCAL_WRITE | GPUNET_VERBS_REMOTE_WRITE | GPUNET_VERBS_REMOTE_READ |
	      GPUNET_VERBS_REMOTE_ATOMIC
};

struct side {
	gpunet_verbs_t *v;
	gpunet_verbs_cq_t *cq;
	gpunet_verbs_qp_t *qp;
	struct gpunet_verbs_address at;
};

struct region {
	uint8_t *p;
	gpunet_verbs_mr_t *mr;
};

static struct side a, b;
static struct region near;   /* a's, the CPU's */
static struct region far;    /* b's, the GPU's */
static struct region second; /* a's, the GPU's */
static uint8_t want[SIZE], got[SIZE];
static const char *kind_name = "opening";
static size_t seam;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void must(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "verbs_far: %s: %s (%s)\n", kind_name, what, gpunet_last_error());
	exit(1);
}

static void side_open(struct side *s, const char *address)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct gpunet_verbs_options o = GPUNET_VERBS_OPTIONS_INIT;
	struct gpunet_verbs_qp_init init = { .size = sizeof(init),
					     .max_send_wr = 64,
					     .max_recv_wr = 8 };

	inet_pton(AF_INET, address, &in.sin_addr);
	o.provider = "rnic";
	o.local = (struct sockaddr *)&in;
	o.local_len = sizeof(in);
	must(!gpunet_verbs_open(&s->v, &o), "gpunet_verbs_open");
	must(!gpunet_verbs_cq_create(s->v, 128, &s->cq), "gpunet_verbs_cq_create");
	init.send_cq = init.recv_cq = s->cq;
	must(!gpunet_verbs_qp_create(s->v, NULL, &init, &s->qp), "gpunet_verbs_qp_create");
	s->at.size = sizeof(s->at);
	must(!gpunet_verbs_qp_address(s->qp, &s->at), "gpunet_verbs_qp_address");
}

static void side_close(struct side *s)
{
	gpunet_verbs_qp_destroy(s->qp);
	must(!gpunet_verbs_cq_destroy(s->cq) && !gpunet_verbs_close(s->v), "gpunet_verbs_close");
}

/* --- one operation ------------------------------------------------------------------------------ */

static void complete(struct side *s, uint64_t id)
{
	struct gpunet_verbs_wc wc;

	must(gpunet_verbs_poll(s->cq, &wc, 1, 10000) == 1, "no completion within ten seconds");
	if (wc.status || wc.wr_id != id) {
		fprintf(stderr, "verbs_far: %s: completion %llu instead of %llu: %s\n", kind_name,
			(unsigned long long)wc.wr_id, (unsigned long long)id,
			gpunet_verbs_status_text(wc.status));
		exit(1);
	}
}

static void post(struct side *s, enum gpunet_verbs_opcode op, const struct region *from, size_t at,
		 uint32_t len, const struct region *to, size_t there, uint64_t id)
{
	struct gpunet_verbs_sge sge = { (uintptr_t)from->p + at, len, gpunet_verbs_lkey(from->mr) };
	struct gpunet_verbs_send_wr wr = { .wr_id = id,
					   .opcode = op,
					   .flags = GPUNET_VERBS_SIGNALED,
					   .sge = &sge,
					   .nsge = 1,
					   .remote_addr = (uintptr_t)to->p + there,
					   .rkey = gpunet_verbs_rkey(to->mr),
					   .swap_add = 3 };

	must(gpunet_verbs_post_send(s->qp, &wr, 1) == 1, "gpunet_verbs_post_send");
}

static void one(struct side *s, enum gpunet_verbs_opcode op, const struct region *from, size_t at,
		uint32_t len, const struct region *to, size_t there)
{
	post(s, op, from, at, len, to, there, 1);
	complete(s, 1);
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

/* A GPU's region is `want`, all of it. */
static void gpu_is(const struct region *r, const char *after)
{
	must(!far_get(got, r->p, SIZE), "far_get");
	must(!memcmp(got, want, SIZE), after);
}

static void one_size(size_t off, uint32_t len)
{
	struct gpunet_verbs_sge in = { (uintptr_t)far.p + off, len, gpunet_verbs_lkey(far.mr) };
	struct gpunet_verbs_recv_wr recv = { .wr_id = 2, .sge = &in, .nsge = 1 };

	noise(near.p, len, off * 31 + len);
	one(&a, GPUNET_VERBS_WRITE, &near, 0, len, &far, off);
	memcpy(want + off, near.p, len);
	gpu_is(&far, "WRITE into GPU memory");
	one(&a, GPUNET_VERBS_READ, &near, SIZE / 2, len, &far, off);
	must(!memcmp(near.p + SIZE / 2, want + off, len), "READ out of GPU memory");

	noise(near.p, len, off * 37 + len);
	must(gpunet_verbs_post_recv(b.qp, &recv, 1) == 1, "gpunet_verbs_post_recv");
	post(&a, GPUNET_VERBS_SEND, &near, 0, len, &far, 0, 1);
	complete(&b, 2);
	complete(&a, 1);
	memcpy(want + off, near.p, len);
	gpu_is(&far, "SEND into GPU memory");
	memset(near.p, 0, len);
	one(&b, GPUNET_VERBS_WRITE, &far, off, len, &near, 0);
	must(!memcmp(near.p, want + off, len), "WRITE out of GPU memory");
	noise(near.p, len, off * 41 + len);
	one(&b, GPUNET_VERBS_READ, &far, off, len, &near, 0);
	memcpy(want + off, near.p, len);
	gpu_is(&far, "READ into GPU memory");
}

static void gpu_to_gpu(void)
{
	one(&b, GPUNET_VERBS_WRITE, &far, 0, SIZE, &second, 0);
	gpu_is(&second, "WRITE from GPU memory to GPU memory");
	noise(want, SIZE, 77);
	must(!far_put(far.p, want, SIZE), "far_put");
	one(&a, GPUNET_VERBS_READ, &second, 0, SIZE, &far, 0);
	gpu_is(&second, "READ from GPU memory to GPU memory");
}

static void atomics(void)
{
	uint64_t v = 0, old;
	unsigned i;

	memcpy(want + 4096, &v, 8);
	must(!far_put(far.p + 4096, want + 4096, 8), "far_put");
	for (i = 0; i < 100; i++, v += 3) {
		one(&a, GPUNET_VERBS_FETCH_ADD, &near, 0, 8, &far, 4096);
		memcpy(&old, near.p, 8);
		must(old == v, "FETCH_ADD's old value");
	}
	memcpy(want + 4096, &v, 8);
	gpu_is(&far, "atomics on GPU memory");
}

/* A region that goes beyond the memory. */
static void refused(void)
{
	gpunet_verbs_mr_t *mr;

	must(gpunet_verbs_reg(b.v, far.p, (size_t)1 << 40, ALL, &mr) == -EFAULT,
	     "a region beyond its memory was taken");
}

static void all_sizes(void)
{
	static const size_t offsets[] = { 0, 1, 4096, 65536 };
	static const uint32_t sizes[] = { 1, 8, 4097, 200001 };
	unsigned i, k;

	noise(want, SIZE, 5);
	must(!far_put(far.p, want, SIZE), "far_put");
	for (i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
			one_size(offsets[i], sizes[k]);
	if (seam)
		one_size(seam - 100, 70000);
	one_size(SIZE - 70001, 70001);
	atomics();
	gpu_to_gpu();
	refused();
	printf("%s: right\n", kind_name);
}

/* --- a kernel that watches, and how fast -------------------------------------------------------- */

/* Even turns: payload and flag are two WRITEs; odd ones: the flag is the last word of one. */
static void one_turn(uint64_t turn, unsigned words)
{
	uint64_t *w = (uint64_t *)(void *)near.p;
	unsigned i;

	for (i = 0; i < words; i++)
		w[i] = FAR_WORD(turn, i);
	w[words] = turn;
	if (turn % 2) {
		one(&a, GPUNET_VERBS_WRITE, &near, 0, words * 8 + 8, &far, 0);
		return;
	}
	post(&a, GPUNET_VERBS_WRITE, &near, 0, words * 8, &far, 0, 1);
	post(&a, GPUNET_VERBS_WRITE, &near, words * 8, 8, &far, words * 8, 2);
	complete(&a, 1);
	complete(&a, 2);
}

static void watched(uint64_t turns)
{
	const unsigned words = 125;
	uint64_t start, turn, end;
	struct far_watch *w;

	memset(near.p, 0, 4096);
	must(!far_put(far.p, near.p, 4096), "far_put");
	must(!far_watch_start(&w, far.p, words, far.p + words * 8, turns), "far_watch_start");
	start = now_ns();
	end = start + 15000000000u;
	for (turn = 1; turn <= turns && now_ns() < end; turn++) {
		one_turn(turn, words);
		/* The bytes that it looks at stay until it has. */
		while (__atomic_load_n(&w->seen, __ATOMIC_ACQUIRE) != turn)
			if (now_ns() > end || __atomic_load_n(&w->ended, __ATOMIC_ACQUIRE))
				break;
	}
	turn = __atomic_load_n(&w->seen, __ATOMIC_ACQUIRE);
	__atomic_store_n(&w->stop, 1, __ATOMIC_RELEASE);
	must(!far_watch_end(), "far_watch_end");
	printf("{\"what\":\"payload and flag through the provider, seen by a resident kernel\","
	       "\"turns\":%llu,\"stale\":%llu,\"us\":%.2f}\n",
	       (unsigned long long)turn, (unsigned long long)w->wrong,
	       (double)(now_ns() - start) / 1000.0 / (double)(turn ? turn : 1));
	must(!w->wrong, "old bytes behind a new flag");
	must(turn == turns, "the kernel did not see all turns in the time that they may take");
}

static void fast(uint64_t ns)
{
	uint64_t start = now_ns(), posted = 0, done = 0, end = start + ns;
	struct gpunet_verbs_wc wc[32];
	int n, i;

	while (now_ns() < end || done < posted) {
		while (posted - done < 32 && now_ns() < end) {
			size_t at = posted % (SIZE / BLOCK) * BLOCK;

			post(&a, GPUNET_VERBS_WRITE, &near, at, BLOCK, &far, at, posted++);
		}
		n = gpunet_verbs_poll(a.cq, wc, 32, 0);
		for (i = 0; i < n; i++)
			must(!wc[i].status, "a WRITE failed");
		done += (uint64_t)(n > 0 ? n : 0);
		must(now_ns() < end + 10000000000u, "WRITEs do not end");
	}
	printf("{\"what\":\"WRITE into GPU memory over UDP, 64 KiB, 32 under way\",\"gb_s\":%.2f}\n",
	       (double)done * BLOCK / (double)(now_ns() - start));
}

static void one_kind(enum far_kind kind, uint64_t turns)
{
	size_t other;
	void *p;

	must(!far_alloc(kind, SIZE, &p, &seam), "far_alloc");
	far.p = p;
	must(!far_alloc(kind, SIZE, &p, &other), "far_alloc");
	second.p = p;
	must(!gpunet_verbs_reg(b.v, far.p, SIZE, ALL, &far.mr), "registering GPU memory");
	must(!gpunet_verbs_reg(a.v, second.p, SIZE, ALL, &second.mr), "registering GPU memory");
	all_sizes();
	fast(500000000);
	watched(turns);
	gpunet_verbs_dereg(far.mr);
	gpunet_verbs_dereg(second.mr);
}

int main(int argc, char **argv)
{
	static const char *const names[FAR_KINDS] = { "cudaMalloc", "pool", "VMM" };
	uint64_t turns = argc > 1 ? strtoull(argv[1], NULL, 0) : 20000;
	int kind, rc = far_open();

	if (rc) {
		if (rc == 77)
			fputs("skipped: no GPU\n", stderr);
		return rc == 77 ? 77 : 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	near.p = malloc(SIZE);
	must(near.p, "no memory");
	side_open(&a, "127.0.72.1");
	side_open(&b, "127.0.72.2");
	must(!gpunet_verbs_qp_connect(a.qp, &b.at, NULL) &&
		     !gpunet_verbs_qp_connect(b.qp, &a.at, NULL),
	     "gpunet_verbs_qp_connect");
	must(!gpunet_verbs_reg(a.v, near.p, SIZE, ALL, &near.mr), "gpunet_verbs_reg");
	for (kind = 0; kind < FAR_KINDS; kind++) {
		kind_name = names[kind];
		one_kind((enum far_kind)kind, turns);
	}
	gpunet_verbs_dereg(near.mr);
	side_close(&a);
	side_close(&b);
	free(near.p);
	return 0;
}
