/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Times of hops from stamps of two clocks: a page written by hand, whose kernel's clock is far from the CPU's, old messages and ones
 * that are being written; pages that are none.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <gpunet/dev/abi/bus.h>
#include <gpunet/gpunet.h>
#include <gpunet/stat.h>

#include "stream/internal.h"

#define START UINT64_C(5000000000000)
#define MESSAGES 100u

struct page {
	struct gpunet_stat_page head;
	struct gpunet_stat_hops hops[2];
};

static struct page *make(void)
{
	struct page *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->head.magic = GPUNET_STAT_MAGIC;
	p->head.size = sizeof(p->head);
	p->head.threads = 2;
	p->head.hops_at = offsetof(struct page, hops);
	return p;
}

static uint64_t kernel_time(uint64_t cpu, uint64_t apart)
{
	return (cpu + apart) & ((UINT64_C(1) << GNET_HOP_TIME_BITS) - 1);
}

static struct gpunet_stat_hop *next(struct gpunet_stat_hops *r, uint64_t kind)
{
	struct gpunet_stat_hop *h = &r->hop[++r->count % GPUNET_STAT_HOPS];

	h->number = r->count;
	h->kind_fd = kind << 32;
	return h;
}

/*
 * A request and its answer: read 100, to the line 20, to the kernel 700 and more, in it 300, to the proxy 900 and more, to the call
 * 40, written 200.
 */
static void exchange(struct gpunet_stat_hops *r, uint64_t t, uint64_t apart, uint64_t more)
{
	struct gpunet_stat_hop *h = next(r, GPUNET_STAT_HOP_RECEIVED);
	uint64_t seen = t + 120 + 700 + more, stored = seen + 300, saw = stored + 900 + more;

	h->at[0] = t;
	h->at[1] = t + 100;
	h->at[2] = t + 120;
	h->at[3] = kernel_time(seen, apart);
	h = next(r, GPUNET_STAT_HOP_SENT);
	h->at[0] = kernel_time(stored, apart);
	h->at[1] = saw;
	h->at[2] = saw + 40;
	h->at[3] = saw + 240;
	h->at[4] = kernel_time(seen, apart);
}

static void fill(struct page *p, uint64_t apart)
{
	unsigned i;

	/* Half of them by the other thread. The middle one takes 10 more each way than the fastest. */
	for (i = 0; i < MESSAGES; i++)
		exchange(&p->hops[i % 2], START + i * 20000, apart, i < 40 ? 0 : i < 60 ? 10 : 500);
}

static struct gpunet_hops get(const struct page *p)
{
	struct gpunet_hops h = { .size = sizeof(h) };

	assert_int_equal(gpunet_stat_get_hops(p, sizeof(*p), &h), 0);
	return h;
}

static void check_times(const struct gpunet_hops *h, int64_t to_kernel, int64_t to_proxy)
{
	const int64_t want[GPUNET_HOP_COUNT] = { 100, 20, to_kernel, 300, to_proxy, 40, 200 };
	unsigned i;

	for (i = 0; i < GPUNET_HOP_COUNT; i++) {
		assert_int_equal(h->hop[i].count, MESSAGES);
		assert_int_equal(h->hop[i].p50, want[i]);
	}
}

static void one_clock(void **state)
{
	struct page *p = make();
	struct gpunet_hops h;

	(void)state;
	p->head.same_clock = 1;
	fill(p, 0);
	h = get(p);
	check_times(&h, 710, 910);
	assert_int_equal(h.hop[GPUNET_HOP_TO_KERNEL].p99, 1200);
	assert_int_equal(h.clock_error_ns, 0);
	free(p);
}

/* However far apart, ahead or behind, across the 48 bits' end: the middle of what the fastest ones allow, 700 and 900. */
static void two_clocks(void **state)
{
	static const uint64_t apart[] = { 0,
					  12345678901234,
					  (UINT64_C(1) << 48) - 999,
					  (UINT64_C(1) << 47) - START,
					  (UINT64_C(1) << 48) - START - 70000,
					  UINT64_C(1795000000000000000) };
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(apart) / sizeof(apart[0]); i++) {
		struct page *p = make();
		struct gpunet_hops h;

		fill(p, apart[i]);
		h = get(p);
		check_times(&h, 810, 810);
		assert_int_equal(h.clock_error_ns, 800);
		free(p);
	}
}

/* What is old, or not whole, does not count; one direction alone says nothing of the way across the bus. */
static void left_out(void **state)
{
	struct page *p = make();
	struct gpunet_hops h;
	unsigned i;

	(void)state;
	exchange(&p->hops[0], START - UINT64_C(3000000000), 77, 5000);
	fill(p, 77);
	exchange(&p->hops[1], START, 77, 6000);
	p->hops[1].hop[p->hops[1].count % GPUNET_STAT_HOPS].number = 0;
	p->hops[1].hop[(p->hops[1].count - 1) % GPUNET_STAT_HOPS].number = 0;
	h = get(p);
	check_times(&h, 810, 810);
	for (i = 0; i < GPUNET_STAT_HOPS; i++) {
		if (p->hops[0].hop[i].kind_fd >> 32 == GPUNET_STAT_HOP_SENT)
			p->hops[0].hop[i].number = 0;
		if (p->hops[1].hop[i].kind_fd >> 32 == GPUNET_STAT_HOP_SENT)
			p->hops[1].hop[i].number = 0;
	}
	h = get(p);
	assert_int_equal(h.hop[GPUNET_HOP_READ].count, MESSAGES);
	assert_int_equal(h.hop[GPUNET_HOP_TO_KERNEL].count, 0);
	assert_int_equal(h.clock_error_ns, 0);
	free(p);
}

static void no_page(void **state)
{
	struct gpunet_hops h = { .size = sizeof(h) };
	struct page *p = make();

	(void)state;
	assert_int_equal(gpunet_stat_get_hops(NULL, 0, &h), -EINVAL);
	assert_int_equal(gpunet_stat_get_hops(p, sizeof(*p) - 1, &h), -EINVAL);
	h.size--;
	assert_int_equal(gpunet_stat_get_hops(p, sizeof(*p), &h), -EINVAL);
	h.size++;
	p->head.hops_at = sizeof(*p);
	assert_int_equal(gpunet_stat_get_hops(p, sizeof(*p), &h), -EINVAL);
	p->head.hops_at = 8;
	assert_int_equal(gpunet_stat_get_hops(p, sizeof(*p), &h), -EINVAL);
	p->head.hops_at = 0;
	assert_int_equal(gpunet_stat_get_hops(p, sizeof(*p), &h), -EOPNOTSUPP);
	assert_int_equal(gpunet_stat_get_hops(p, sizeof(p->head), &h), -EOPNOTSUPP);
	p->head.threads = 3;
	p->head.hops_at = offsetof(struct page, hops);
	assert_int_equal(gpunet_stat_get_hops(p, sizeof(*p), &h), -EINVAL);
	assert_string_equal(gpunet_hop_name(GPUNET_HOP_KERNEL), "kernel");
	assert_string_equal(gpunet_hop_name(GPUNET_HOP_COUNT), "");
	free(p);
}

static struct gpunet_stat_hops kept;
static struct gnet_hops words;

static void receive_it(struct stream *s, uint64_t n, uint64_t entered)
{
	s->set->call_at[0] = entered;
	s->set->call_at[1] = entered + 1;
	stream_hop_received(s);
	s->rx_tail += n;
}

static void send_it(struct stream *s, uint64_t n, int64_t taken, uint64_t entered)
{
	s->tx_tail += n;
	stream_hop_handed(s);
	s->set->call_at[0] = entered;
	s->set->call_at[1] = entered + 1;
	stream_hop_sent(s, taken);
	s->tx_head += taken > 0 ? (uint64_t)taken : 0;
}

/* A kernel's word counts for the message that it speaks of, though another has the same low bits of its position. */
static void words_of_received(void **state)
{
	struct stream_set set = { .hops = &kept, .hops_bus = &words };
	struct stream s = { .set = &set };

	(void)state;
	memset(&kept, 0, sizeof(kept));
	words.seen = GNET_HOP(64, 5); /* of the socket that was here before */
	stream_hop_init(&s);
	receive_it(&s, 64, 100);
	receive_it(&s, 64, 200); /* the first is not taken: no times of it */
	assert_int_equal(kept.count, 0);
	words.seen = GNET_HOP(128, 300);
	receive_it(&s, 65536, 400);
	assert_int_equal(kept.count, 1);
	assert_int_equal(kept.hop[1].kind_fd >> 32, GPUNET_STAT_HOP_RECEIVED);
	assert_int_equal(kept.hop[1].at[0], 200);
	assert_int_equal(kept.hop[1].at[1], 201);
	assert_int_equal(kept.hop[1].at[3], 300);
	receive_it(&s, 1, 500); /* the word is that of position 128, not of 128 + 65536 */
	assert_int_equal(kept.count, 1);
}

static void words_of_sent(void **state)
{
	struct stream_set set = { .hops = &kept, .hops_bus = &words };
	struct stream s = { .set = &set };

	(void)state;
	memset(&kept, 0, sizeof(kept));
	words.stored = GNET_HOP(64, 5);
	stream_hop_init(&s);
	send_it(&s, 64, 64, 100);
	assert_int_equal(kept.count, 0);
	words.stored = GNET_HOP(128, 300);
	send_it(&s, 64, 64, 400);
	assert_int_equal(kept.count, 1);
	assert_int_equal(kept.hop[1].kind_fd >> 32, GPUNET_STAT_HOP_SENT);
	assert_int_equal(kept.hop[1].at[0], 300);
	assert_int_equal(kept.hop[1].at[2], 400);
	assert_int_equal(kept.hop[1].at[3], 401);
	send_it(&s, 65536, 65536, 500);
	assert_int_equal(kept.count, 1);
	/* Not all of it by this call, none of it by this one. */
	words.stored = GNET_HOP(s.tx_tail + 64, 600);
	send_it(&s, 64, 63, 700);
	words.stored = GNET_HOP(s.tx_tail + 1, 800);
	send_it(&s, 1, -EAGAIN, 900);
	assert_int_equal(kept.count, 1);
	/* What is left of those goes with this one. */
	words.stored = GNET_HOP(s.tx_tail + 1, 1000);
	send_it(&s, 1, 3, 1100);
	assert_int_equal(kept.count, 1);
	words.stored = GNET_HOP(s.tx_tail + 1, 1200);
	send_it(&s, 1, 1, 1300);
	assert_int_equal(kept.count, 2);
	assert_int_equal(kept.hop[2].at[0], 1200);
}

/* Two, three or four that go with one call: no times of any of them, but of the next. */
static void several_sent(void **state)
{
	struct stream_set set = { .hops = &kept, .hops_bus = &words };
	struct stream s = { .set = &set };
	unsigned n, i;

	(void)state;
	memset(&kept, 0, sizeof(kept));
	stream_hop_init(&s);
	for (n = 2; n <= 4; n++) {
		for (i = 1; i < n; i++) {
			s.tx_tail += 10;
			words.stored = GNET_HOP(s.tx_tail, n * 100 + i);
			stream_hop_handed(&s);
		}
		words.stored = GNET_HOP(s.tx_tail + 10, n * 100 + i);
		send_it(&s, 10, n * 10, 1000);
		assert_int_equal(s.tx_head, s.tx_tail);
		assert_int_equal(kept.count, n - 2);
		words.stored = GNET_HOP(s.tx_tail + 10, n * 1000);
		send_it(&s, 10, 10, 2000);
		assert_int_equal(kept.count, n - 1);
		assert_int_equal(kept.hop[n - 1].at[0], n * 1000);
	}
}

/* A network without the option has none, one with it none so far. */
static void networks(void **state)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct gpunet_hops h = { .size = sizeof(h) };
	gpunet_t *g = NULL;

	(void)state;
	o.device = "cpu";
	assert_int_equal(gpunet_open(&g, &o), 0);
	assert_int_equal(gpunet_get_hops(g, &h), -EOPNOTSUPP);
	assert_int_equal(gpunet_close(g, 1000), 0);
	o.hops = 1;
	assert_int_equal(gpunet_open(&g, &o), 0);
	assert_int_equal(gpunet_get_hops(g, &h), 0);
	assert_int_equal(h.hop[GPUNET_HOP_READ].count, 0);
	assert_int_equal(gpunet_close(g, 1000), 0);
	assert_int_equal(gpunet_get_hops(NULL, &h), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_clock),     cmocka_unit_test(two_clocks),
		cmocka_unit_test(left_out),      cmocka_unit_test(no_page),
		cmocka_unit_test(networks),      cmocka_unit_test(words_of_received),
		cmocka_unit_test(words_of_sent), cmocka_unit_test(several_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
