/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions in memory that the CPU cannot map, on the CPU device's stand-in for a GPU's: a load or store by the CPU faults,
 * copies are done late and their pieces in any order. After each piece the test looks at all memory: nothing that says
 * "it is there" may be seen before what it speaks of.
 *
 * rnic_property runs its random lists over such memory, too.
 */
#include "rnic_rig.h"

#include "base/log.h"

struct seen {
	struct rig *g;
	void (*look)(struct seen *s);
	size_t at, len, flag; /* in side 1's memory */
	const uint8_t *before, *after;
	uint64_t *host_flag;
	unsigned looks, halves, early;
	uint64_t turn;
	bool told; /* the flag of this turn was seen */
};

static void on_piece(void *ctx)
{
	struct seen *s = ctx;

	s->looks++;
	s->look(s);
}

static void open_far(struct rig *g, unsigned sides, uint64_t seed, const struct rnic_config *dev)
{
	g->far_sides = sides;
	g->far_seed = seed;
	rig_open_far(g, dev, NULL);
}

/* --- the last word ------------------------------------------------------------------------------ */

/* Once the last byte is new, all are. */
static void last_is_last(struct seen *s)
{
	const uint8_t *mem = s->g->side[1].mem + s->at;

	if (mem[s->len - 1] == s->before[s->len - 1]) {
		s->halves += memcmp(mem, s->before, s->len) != 0;
		return;
	}
	s->early += memcmp(mem, s->after, s->len) != 0;
}

/* In another value than before at every byte. */
static void new_bytes(struct rig *g, uint8_t *before, uint32_t len, size_t at)
{
	uint32_t i;

	for (i = 0; i < len; i++) {
		before[i] = g->side[1].mem[at + i];
		g->side[0].mem[i] = (uint8_t)(before[i] + 1 + i % 250);
	}
}

static void the_last_word_of_a_write_comes_last(void **state)
{
	static const uint32_t sizes[] = { 1, 2, 3, 4, 7, 8, 9, 12, 16, 63, 64, 1024, 4099, 70001 };
	static uint8_t before[70001];
	struct rnic_qp *qp[2];
	struct seen s = { 0 };
	struct rig g;
	unsigned i, off;

	(void)state;
	open_far(&g, 2, 11, NULL);
	rig_pair(&g, NULL, qp);
	s = (struct seen){
		.g = &g, .look = last_is_last, .before = before, .after = g.side[0].mem
	};
	cpu_copier_watch(g.side[1].copier, on_piece, &s);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (off = 0; off<16; off += sizes[i]> 5000 ? 5 : 1) {
			s.at = 8192 + off;
			s.len = sizes[i];
			new_bytes(&g, before, sizes[i], s.at);
			assert_int_equal(
				rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, sizes[i], s.at, off), 0);
			rig_run(&g, 10 * RIG_S);
			rig_expect(g.side[0].scq, off, RNIC_WC_SUCCESS);
			assert_memory_equal(g.side[1].mem + s.at, g.side[0].mem, sizes[i]);
			assert_int_equal(s.early, 0);
		}
	/* The stand-in was unorderly enough for that to mean something. */
	assert_true(s.halves > 300);
	rig_unpair(qp);
	rig_close(&g);
}

enum { TOGETHER = 6, LENGTH = 2000, STEP = 4096 };

/* Bytes of message i but for the last word; the last word alone. */
static bool body_is(const struct seen *s, size_t i)
{
	return memcmp(s->g->side[1].mem + i * STEP, s->after + i * LENGTH, LENGTH - 8) == 0;
}

static bool word_is(const struct seen *s, size_t i)
{
	return memcmp(s->g->side[1].mem + i * STEP + LENGTH - 8, s->after + (i + 1) * LENGTH - 8,
		      8) == 0;
}

/* Who sees a message's last word has all of it and of those before it. Bodies come as they like. */
static void words_tell_of_all_before(struct seen *s)
{
	size_t i, k;

	for (i = 0; i < TOGETHER; i++) {
		for (k = 0; k <= i && word_is(s, i); k++)
			s->early += !body_is(s, k) || !word_is(s, k);
		for (k = 0; k < i && body_is(s, i); k++)
			s->halves += !body_is(s, k);
	}
}

static void messages_of_a_step_come_as_they_like_but_for_their_last_words(void **state)
{
	struct seen s = { 0 };
	struct rnic_qp *qp[2];
	unsigned turn, i;
	struct rig g;

	(void)state;
	open_far(&g, 2, 13, NULL);
	rig_pair(&g, NULL, qp);
	s = (struct seen){ .g = &g, .look = words_tell_of_all_before, .after = g.side[0].mem };
	cpu_copier_watch(g.side[1].copier, on_piece, &s);
	for (turn = 0; turn < 40; turn++) {
		for (i = 0; i < TOGETHER * LENGTH; i++)
			g.side[0].mem[i] = (uint8_t)(turn * 5 + i / 8 + 1);
		/* All packets are there before a copy begins. */
		cpu_copier_hold(g.side[1].copier, 1);
		for (i = 0; i < TOGETHER; i++)
			assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, i * LENGTH, LENGTH,
						  i * STEP, i),
					 0);
		rig_run(&g, 20000);
		cpu_copier_hold(g.side[1].copier, 0);
		rig_run(&g, RIG_S);
		for (i = 0; i < TOGETHER; i++)
			rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
		assert_int_equal(s.early, 0);
	}
	assert_true(s.halves > 100);
	rig_unpair(qp);
	rig_close(&g);
}

/* --- payload, then something that speaks of it -------------------------------------------------- */

enum { TURNS = 60, PAYLOAD = 3000 };

/* As it was sent; the memory behind the copies is one that the test may look at. */
static bool payload_is(const struct rig *g)
{
	return memcmp(g->side[1].mem, g->side[0].mem, PAYLOAD) == 0;
}

static void make_payload(struct rig *g, uint64_t turn)
{
	size_t i;

	for (i = 0; i < PAYLOAD; i++)
		g->side[0].mem[i] = (uint8_t)(turn * 7 + i);
	memcpy(g->side[0].mem + PAYLOAD, &turn, 8);
}

static void flag_means_payload(struct seen *s)
{
	uint64_t far_flag, host_flag = *s->host_flag;

	memcpy(&far_flag, s->g->side[1].mem + s->flag, 8);
	s->told = far_flag == s->turn || host_flag == s->turn;
	if (s->told)
		s->early += !payload_is(s->g);
	else
		s->halves += payload_is(s->g);
}

/* Steps one event at a time, looking after each until the flag is there; then there is nothing more to see. */
static void run_looking(struct seen *s, uint64_t ns)
{
	uint64_t end = s->g->now + ns;

	s->told = false;
	while (!s->told && s->g->now < end && !rig_run(s->g, 200))
		s->look(s);
	rig_run(s->g, ns);
}

static void post_flag(struct rig *g, struct rnic_qp *qp, uint64_t va, uint32_t rkey, uint64_t id)
{
	struct rnic_sge sge = rig_sge(g, 0, PAYLOAD, 8);
	struct rnic_send_wr wr = { .wr_id = id,
				   .opcode = RNIC_WR_WRITE,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .raddr = va,
				   .rkey = rkey };

	assert_int_equal(rnic_post_send(qp, &wr, g->now), 0);
}

/* F2: a flag, in GPU memory or in the CPU's, is seen after the payload of a WRITE before it. */
static void a_flag_comes_after_the_payload(void **state)
{
	static uint64_t host_flag;
	struct rnic_mr *mr;
	struct rnic_qp *qp[2];
	struct seen s;
	struct rig g;

	(void)state;
	open_far(&g, 2, 5, NULL);
	rig_pair(&g, NULL, qp);
	assert_int_equal(rnic_mr_create(g.side[1].pd, &host_flag, 8, 0, RNIC_ACCESS_ALL, &mr), 0);
	s = (struct seen){
		.g = &g, .look = flag_means_payload, .flag = 65536, .host_flag = &host_flag
	};
	cpu_copier_watch(g.side[1].copier, on_piece, &s);
	for (s.turn = 1; s.turn <= TURNS; s.turn++) {
		make_payload(&g, s.turn);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, PAYLOAD, 0, 1), 0);
		if (s.turn % 2)
			post_flag(&g, qp[0], rig_va(s.flag), rnic_mr_rkey(g.side[1].mr), 2);
		else
			post_flag(&g, qp[0], 0, rnic_mr_rkey(mr), 2);
		run_looking(&s, RIG_S);
		rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
		rig_expect(g.side[0].scq, 2, RNIC_WC_SUCCESS);
		assert_int_equal(s.early, 0);
	}
	assert_true(s.halves > TURNS / 2);
	assert_true(rnic_counters(g.side[1].r)->held >= TURNS / 4);
	assert_int_equal(rnic_counters(g.side[1].r)->held_lost, 0);
	rig_unpair(qp);
	rnic_mr_destroy(mr);
	rig_close(&g);
}

enum { SECOND = 300000, TOLD = 90000, CPU_READ = 100 };

/* Both payloads are there, and what a SEND brought. */
static bool all_is_there(const struct rig *g, bool sent)
{
	const uint8_t *mem = g->side[1].mem;

	return payload_is(g) && !memcmp(mem + SECOND, mem, PAYLOAD) &&
	       (!sent || !memcmp(mem + TOLD, mem, PAYLOAD));
}

static void post_teller(struct rig *g, struct rnic_qp *qp[2], unsigned op, uint64_t turn,
			const struct rnic_mr *cpu)
{
	uint32_t len = op == RNIC_WR_WRITE_IMM ? 0 : op == RNIC_WR_SEND ? PAYLOAD : 8;
	size_t off = op == RNIC_WR_SEND ? 0 : 200000;
	struct rnic_sge sge = rig_sge(g, 0, off, 8);
	struct rnic_send_wr wr = { .wr_id = 3,
				   .opcode = RNIC_WR_READ,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .rkey = rnic_mr_rkey(cpu) };

	if (op == RNIC_WR_SEND || op == RNIC_WR_WRITE_IMM)
		assert_int_equal(rig_recv(g, 1, qp[1], TOLD, PAYLOAD, turn), 0);
	if (op == CPU_READ)
		assert_int_equal(rnic_post_send(qp[0], &wr, g->now), 0);
	else
		assert_int_equal(
			rig_post(g, 0, qp[0], (enum rnic_wr_opcode)op, off, len, 400000, 3), 0);
}

/*
 * A completion on either side, an immediate of a WRITE without bytes (F7), a READ's data, out of the CPU's memory, too, and an
 * atomic's answer.
 */
static void completions_come_after_the_payload(void **state)
{
	static const unsigned what[] = { RNIC_WR_SEND, RNIC_WR_WRITE_IMM, RNIC_WR_READ,
					 RNIC_WR_FETCH_ADD, CPU_READ };
	/* Packets come one by one, and copies take longer than answers. */
	const struct rnic_mem_config net = { .seed = 1,
					     .faults = { .delay_ns = 100, .rate = 2000000000 } };
	static uint64_t word;
	struct rnic_qp *qp[2];
	struct rnic_mr *cpu;
	struct rnic_wc wc;
	struct rig g = { .far_sides = 2, .far_seed = 23 };
	uint64_t turn;

	(void)state;
	rig_open_far(&g, NULL, &net);
	cpu_copier_pace(g.side[1].copier, 4);
	rig_pair(&g, NULL, qp);
	assert_int_equal(rnic_mr_create(g.side[1].pd, &word, 8, 0, RNIC_ACCESS_ALL, &cpu), 0);
	for (turn = 1; turn <= TURNS; turn++) {
		unsigned op = what[turn % 5];
		bool told = op != RNIC_WR_SEND && op != RNIC_WR_WRITE_IMM, done = false;

		make_payload(&g, turn);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, PAYLOAD, 0, 1), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, PAYLOAD, SECOND, 2), 0);
		post_teller(&g, qp, op, turn, cpu);
		while (!told || !done) {
			assert_true(g.now < turn * RIG_S);
			rig_run(&g, 100);
			if (rnic_cq_poll(g.side[1].rcq, &wc, 1)) {
				assert_true(all_is_there(&g, op == RNIC_WR_SEND));
				told = true;
			}
			if (rnic_cq_poll(g.side[0].scq, &wc, 1)) {
				assert_int_equal(wc.status, RNIC_WC_SUCCESS);
				assert_true(payload_is(&g));
				if (wc.wr_id > 1)
					assert_true(all_is_there(&g, false));
				done = wc.wr_id == 3;
			}
		}
	}
	rnic_mr_destroy(cpu);
	rig_unpair(qp);
	rig_close(&g);
}

/* A READ brings what the WRITE before it has put there, and completes when it is there itself. */
static void a_read_sees_the_write_before_it(void **state)
{
	const struct rnic_mem_config net = { .seed = 1, .faults = { .delay_ns = 100 } };
	struct rig g = { .far_sides = 3, .far_seed = 29 };
	struct rnic_qp *qp[2];
	struct rnic_wc wc;
	uint64_t turn;

	(void)state;
	rig_open_far(&g, NULL, &net);
	rig_pair(&g, NULL, qp);
	cpu_copier_pace(g.side[0].copier, 4);
	for (turn = 1; turn <= TURNS; turn++) {
		make_payload(&g, turn);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, PAYLOAD, 0, 1), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_READ, 200000, PAYLOAD, 0, 2), 0);
		do {
			assert_true(g.now < turn * RIG_S);
			rig_run(&g, 100);
		} while (!rnic_cq_poll(g.side[0].scq, &wc, 1) || wc.wr_id != 2);
		assert_int_equal(wc.status, RNIC_WC_SUCCESS);
		assert_memory_equal(g.side[0].mem, g.side[0].mem + 200000, PAYLOAD);
	}
	rig_unpair(qp);
	rig_close(&g);
}

/* While the GPU does nothing, nobody is told anything; and a WRITE that is not acknowledged is not placed twice. */
static void nothing_is_told_while_copies_wait(void **state)
{
	struct rig_qp with = { .timeout = 18 };
	struct rnic_qp *qp[2];
	struct rig g;

	(void)state;
	open_far(&g, 2, 3, NULL);
	rig_pair(&g, &with, qp);
	make_payload(&g, 1);
	cpu_copier_hold(g.side[1].copier, 1);
	assert_int_equal(rig_recv(&g, 1, qp[1], 90000, 64, 5), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, PAYLOAD, 0, 1), 0);
	rig_run(&g,
		10 * RIG_MS); /* no acknowledgement, nor any other answer behind which it would wait */
	rig_expect_none(g.side[0].scq);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 64, 0, 2), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_READ, 100000, 64, 0, 3), 0);
	rig_run(&g, 900 * RIG_MS);
	rig_expect_none(g.side[0].scq);
	rig_expect_none(g.side[1].rcq);
	assert_int_equal(g.side[1].mem[0], 0);
	rig_run(&g, RIG_S); /* past a time-out, which the peer meets with the packets it had */
	cpu_copier_hold(g.side[1].copier, 0);
	rig_run(&g, 10 * RIG_S);
	rig_expect(g.side[0].scq, 1, RNIC_WC_SUCCESS);
	rig_expect(g.side[0].scq, 2, RNIC_WC_SUCCESS);
	rig_expect(g.side[0].scq, 3, RNIC_WC_SUCCESS);
	rig_expect(g.side[1].rcq, 5, RNIC_WC_SUCCESS);
	assert_true(payload_is(&g));
	assert_memory_equal(g.side[0].mem + 100000, g.side[0].mem, 64);
	rig_unpair(qp);
	rig_close(&g);
}

/* --- copies ------------------------------------------------------------------------------------- */

/* One copy a message, of up to 64 KiB, and one for its last word, whatever the MTU. */
static void a_message_is_one_copy(void **state)
{
	static const unsigned mtus[] = { 256, 1024, 4096 };
	struct rnic_qp *qp[2];
	struct rig g;
	unsigned i, k;

	(void)state;
	for (i = 0; i < 3; i++) {
		struct rig_qp with = { .mtu = mtus[i], .timeout = 14 };
		uint64_t before;

		open_far(&g, 2, 0, NULL);
		rig_pair(&g, &with, qp);
		rig_fill(&g, 0, i);
		before = cpu_copier_count(g.side[1].copier);
		for (k = 0; k < 16; k++)
			assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, k * 65536, 65536,
						  k * 65536, k),
					 0);
		rig_run(&g, RIG_S);
		for (k = 0; k < 16; k++)
			rig_expect(g.side[0].scq, k, RNIC_WC_SUCCESS);
		assert_memory_equal(g.side[0].mem, g.side[1].mem, RIG_MEM);
		assert_int_equal(cpu_copier_count(g.side[1].copier) - before, 16 * 2);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, RIG_MEM, 0, 99), 0);
		rig_run(&g, RIG_S);
		rig_expect(g.side[0].scq, 99, RNIC_WC_SUCCESS);
		assert_int_equal(cpu_copier_count(g.side[1].copier) - before, 16 * 2 + 16 + 1);
		rig_unpair(qp);
		rig_close(&g);
	}
}

/* 40 queue pairs whose messages stop half way hold no staging memory that others need; they go on later. */
static void silent_peers_do_not_keep_staging_memory(void **state)
{
	enum { PAIRS = 40 };
	struct rnic_mem_faults cut = { .delay_ns = 1000, .loss = 1000000 },
			       well = { .delay_ns = 1000 };
	struct rig_qp with = { .timeout = 22, .mtu = 1024 };
	struct rnic_qp *qp[PAIRS][2], *other[2];
	struct rig g;
	unsigned i;

	(void)state;
	open_far(&g, 3, 9, NULL);
	rig_fill(&g, 0, 4);
	for (i = 0; i < PAIRS; i++) {
		rig_pair(&g, &with, qp[i]);
		assert_int_equal(rig_post(&g, 0, qp[i][0], RNIC_WR_WRITE, i * 20000, 20000,
					  i * 20000, i),
				 0);
	}
	rig_pair(&g, &with, other);
	/* None of them is done when the wire is cut. */
	cpu_copier_hold(g.side[1].copier, 1);
	rig_run(&g, 3000);
	rnic_mem_set_faults(g.net, &cut);
	cpu_copier_hold(g.side[1].copier, 0);
	rig_run(&g, RIG_MS);
	rnic_mem_set_faults(g.net, &well);
	assert_int_equal(rig_post(&g, 0, other[0], RNIC_WR_WRITE, 900000, 100000, 900000, 77), 0);
	rig_run(&g, RIG_S);
	rig_expect(g.side[0].scq, 77, RNIC_WC_SUCCESS);
	rig_run(&g, 200 * RIG_S);
	for (i = 0; i < PAIRS; i++) {
		struct rnic_wc wc;

		assert_int_equal(rnic_cq_poll(g.side[0].scq, &wc, 1), 1);
		assert_int_equal(wc.status, RNIC_WC_SUCCESS);
		rig_unpair(qp[i]);
	}
	assert_memory_equal(g.side[0].mem, g.side[1].mem, PAIRS * 20000);
	assert_memory_equal(g.side[0].mem + 900000, g.side[1].mem + 900000, 100000);
	rig_unpair(other);
	rig_close(&g);
}

/*
 * A receive in 32 pieces, of which the last may get long: its first packet takes four parts of the staging memory. However many of them
 * others have, it waits or is taken.
 */
static void a_packet_in_pieces_has_room_or_waits(void **state)
{
	enum { OTHERS = 31, FEWEST = 24, PIECES = 32, PIECE = 80, LEN = 10000, AT = 800000 };
	struct rig_qp with = { .timeout = 22, .mtu = 4096, .recv_sge = PIECES };
	struct rnic_qp *qp[OTHERS][2], *pieces[2];
	struct rnic_sge sge[PIECES];
	unsigned n, i;
	struct rig g;

	(void)state;
	for (n = FEWEST; n <= OTHERS; n++) {
		open_far(&g, 2, n, NULL);
		rig_fill(&g, 0, n);
		for (i = 0; i < n; i++) {
			rig_pair(&g, &with, qp[i]);
			assert_int_equal(rig_post(&g, 0, qp[i][0], RNIC_WR_WRITE, i * 1000, 1000,
						  i * 1000, i),
					 0);
		}
		rig_pair(&g, &with, pieces);
		for (i = 0; i < PIECES - 1; i++)
			sge[i] = rig_sge(&g, 1, AT + i * 128, PIECE);
		sge[i] = rig_sge(&g, 1, AT + 10000, 70000);
		assert_int_equal(rnic_post_recv(pieces[1], 5, sge, PIECES), 0);
		cpu_copier_hold(g.side[1].copier, 1);
		rig_run(&g, 10 * RIG_MS);
		assert_int_equal(rig_post(&g, 0, pieces[0], RNIC_WR_SEND, 0, LEN, 0, 99), 0);
		rig_run(&g, RIG_MS);
		rig_expect_none(g.side[1].rcq);
		cpu_copier_hold(g.side[1].copier, 0);
		rig_run(&g, RIG_S);
		assert_int_equal(rig_expect(g.side[1].rcq, 5, RNIC_WC_SUCCESS).byte_len, LEN);
		for (i = 0; i < PIECES - 1; i++)
			assert_memory_equal(g.side[1].mem + AT + i * 128, g.side[0].mem + i * PIECE,
					    PIECE);
		assert_memory_equal(g.side[1].mem + AT + 10000, g.side[0].mem + i * PIECE,
				    LEN - i * PIECE);
		assert_memory_equal(g.side[1].mem, g.side[0].mem, n * 1000);
		for (i = 0; i < n; i++)
			rig_unpair(qp[i]);
		rig_unpair(pieces);
		rig_close(&g);
	}
}

/* --- atomics ------------------------------------------------------------------------------------ */

/* Four queue pairs add to one word, each many under way: every old value is seen once. */
static void atomics_are_atomic_among_themselves(void **state)
{
	enum { PAIRS = 4, EACH = 50 };
	struct rnic_qp *qp[PAIRS][2];
	bool seen[PAIRS * EACH] = { false };
	struct rig g;
	unsigned i, k;
	uint64_t v;

	(void)state;
	open_far(&g, 3, 77, NULL);
	for (i = 0; i < PAIRS; i++)
		rig_pair(&g, NULL, qp[i]);
	for (k = 0; k < EACH; k++)
		for (i = 0; i < PAIRS; i++) {
			struct rnic_sge sge = rig_sge(&g, 0, (k * PAIRS + i) * 8, 8);
			struct rnic_send_wr wr = { .wr_id = k,
						   .opcode = RNIC_WR_FETCH_ADD,
						   .flags = RNIC_SEND_SIGNALED,
						   .sge = &sge,
						   .nsge = 1,
						   .raddr = rig_va(4096),
						   .rkey = rnic_mr_rkey(g.side[1].mr),
						   .swap_add = 1 };

			assert_int_equal(rnic_post_send(qp[i][0], &wr, g.now), 0);
		}
	rig_run(&g, 100 * RIG_S);
	memcpy(&v, g.side[1].mem + 4096, 8);
	assert_int_equal(v, PAIRS * EACH);
	for (k = 0; k < PAIRS * EACH; k++) {
		memcpy(&v, g.side[0].mem + k * 8, 8);
		assert_true(v < PAIRS * EACH && !seen[v]);
		seen[v] = true;
	}
	for (i = 0; i < PAIRS; i++)
		rig_unpair(qp[i]);
	rig_close(&g);
}

/* --- ends --------------------------------------------------------------------------------------- */

/* A region that ends in the middle of a message is not touched from then on; D7: its neighbours live. */
static void a_region_that_ends_is_left_alone(void **state)
{
	enum { SMALL = 100, EACH = 64 };
	struct rnic_mr *mr[SMALL];
	struct rnic_qp *qp[2];
	struct rig g;
	unsigned i;

	(void)state;
	open_far(&g, 2, 31, NULL);
	rig_pair(&g, NULL, qp);
	rig_fill(&g, 0, 1);
	for (i = 0; i < SMALL; i++)
		assert_int_equal(rnic_mr_create_far(g.side[1].pd, g.side[1].far + i * EACH, EACH, 0,
						    RNIC_ACCESS_ALL, &mr[i]),
				 0);
	rnic_mr_destroy(mr[50]);
	for (i = 0; i < SMALL; i++) {
		struct rnic_sge sge = rig_sge(&g, 0, i * EACH, EACH);
		struct rnic_send_wr wr = {
			.wr_id = i, .flags = RNIC_SEND_SIGNALED, .sge = &sge, .nsge = 1, .raddr = 0
		};

		if (i == 50)
			continue;
		wr.rkey = rnic_mr_rkey(mr[i]);
		assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
		rig_run(&g, RIG_S);
		rig_expect(g.side[0].scq, i, RNIC_WC_SUCCESS);
		rnic_mr_destroy(mr[i]);
	}
	assert_memory_equal(g.side[1].mem, g.side[0].mem, 50 * EACH);
	assert_memory_equal(g.side[1].mem + 51 * EACH, g.side[0].mem + 51 * EACH, 49 * EACH);
	/* Half of a message is there, and copies of it wait. */
	cpu_copier_hold(g.side[1].copier, 1);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 500000, 100000, 1), 0);
	rig_run(&g, 1500);
	cpu_copier_hold(g.side[1].copier, 0);
	rnic_mr_destroy(g.side[1].mr);
	memset(g.side[1].mem, 0, RIG_MEM);
	rig_run(&g, RIG_S);
	for (i = 0; i < RIG_MEM; i++)
		assert_int_equal(g.side[1].mem[i], 0);
	rig_expect(g.side[0].scq, 1, RNIC_WC_REM_ACCESS_ERR);
	assert_int_equal(rnic_mr_create(g.side[1].pd, g.side[1].mem, RIG_MEM, RIG_IOVA,
					RNIC_ACCESS_ALL, &g.side[1].mr),
			 0);
	rig_unpair(qp);
	rig_close(&g);
}

/* D10, D2: what is not the GPU's is refused at once, with a reason; also when only its last byte is not. */
static void memory_of_others_is_refused(void **state)
{
	struct rnic_mr *mr;
	struct rig g;

	(void)state;
	log_set_level((enum log_level) - 1);
	open_far(&g, 2, 1, NULL);
	assert_int_equal(rnic_mr_create_far(g.side[1].pd, (uintptr_t)g.side[1].mem, 64, 0,
					    RNIC_ACCESS_ALL, &mr),
			 -EFAULT);
	assert_true(strlen(log_last()) > 20);
	assert_int_equal(rnic_mr_create_far(g.side[1].pd, g.side[1].far + 1, RIG_MEM, 0,
					    RNIC_ACCESS_ALL, &mr),
			 -EFAULT);
	assert_int_equal(rnic_mr_create_far(g.side[1].pd, g.side[1].far, 0, 0, RNIC_ACCESS_ALL,
					    &mr),
			 -EINVAL);
	assert_int_equal(rnic_mr_create_far(g.side[0].pd, g.side[1].far, 64, 0, RNIC_ACCESS_ALL,
					    &mr),
			 -EOPNOTSUPP);
	rig_close(&g);
}

/* One byte too far: nothing is written, as in memory of the CPU. */
static void bounds_are_exact(void **state)
{
	struct rnic_qp *qp[2];
	struct rnic_mr *mr;
	struct rig g;
	unsigned i;

	(void)state;
	open_far(&g, 2, 13, NULL);
	rig_fill(&g, 0, 3);
	assert_int_equal(rnic_mr_create_far(g.side[1].pd, g.side[1].far + 1000, 5000, 1000,
					    RNIC_ACCESS_ALL, &mr),
			 0);
	for (i = 0; i < 3; i++) {
		struct rnic_sge sge = rig_sge(&g, 0, 0, 5000 + (i > 0));
		struct rnic_send_wr wr = { .wr_id = i,
					   .flags = RNIC_SEND_SIGNALED,
					   .sge = &sge,
					   .nsge = 1,
					   .raddr = 1000 - (i == 1),
					   .rkey = rnic_mr_rkey(mr) };

		rig_pair(&g, NULL, qp);
		assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
		rig_run(&g, RIG_S);
		rig_expect(g.side[0].scq, i, i ? RNIC_WC_REM_ACCESS_ERR : RNIC_WC_SUCCESS);
		rig_unpair(qp);
	}
	assert_memory_equal(g.side[1].mem + 1000, g.side[0].mem, 5000);
	assert_int_equal(g.side[1].mem[999], 0);
	assert_int_equal(g.side[1].mem[6000], 0);
	rnic_mr_destroy(mr);
	rig_close(&g);
}

/* The GPU is lost: both sides learn it, nothing hangs, and everything can be closed. */
static void a_lost_device_is_an_error_on_both_sides(void **state)
{
	struct rnic_qp *qp[2], *reader[2];
	struct rnic_wc wc;
	struct rig g;

	(void)state;
	open_far(&g, 3, 17, NULL);
	rig_pair(&g, NULL, qp);
	rig_pair(&g, NULL, reader);
	assert_int_equal(rig_recv(&g, 1, qp[1], 0, 64, 9), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 64, 0, 1), 0);
	assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_FETCH_ADD, 0, 8, 0, 2), 0);
	cpu_copier_hold(g.side[1].copier, 1);
	rig_run(&g, 4000);
	cpu_copier_fail(g.side[1].copier, -EIO);
	rig_run(&g, 10 * RIG_S);
	assert_int_equal(rnic_cq_poll(g.side[1].rcq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, 9);
	assert_int_equal(wc.status, RNIC_WC_LOC_PROT_ERR);
	rig_expect(g.side[0].scq, 1, RNIC_WC_REM_OP_ERR);
	rig_expect(g.side[0].scq, 2, RNIC_WC_WR_FLUSH_ERR);
	assert_int_equal(rig_post(&g, 0, reader[0], RNIC_WR_READ, 0, 64, 0, 3), 0);
	rig_run(&g, 10 * RIG_S);
	rig_expect(g.side[0].scq, 3, RNIC_WC_REM_ACCESS_ERR);
	rig_unpair(qp);
	rig_unpair(reader);
	rig_close(&g);
}

/* A queue pair goes away while all kinds of its work wait for copies. */
static void a_queue_pair_ends_with_copies_under_way(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < 60; i++) {
		struct rig_qp with = { .timeout = 18 };
		struct rnic_qp_attr a = { .state = i % 2 ? RNIC_QPS_RESET : RNIC_QPS_ERR };
		struct rnic_qp *qp[2];
		struct rig g;

		open_far(&g, 3, 100 + i, NULL);
		rig_pair(&g, &with, qp);
		assert_int_equal(rig_recv(&g, 1, qp[1], 500000, 9000, 1), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_SEND, 0, 9000, 0, 1), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_READ, 20000, 9000, 0, 2), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_FETCH_ADD, 30000, 8, 0, 3), 0);
		assert_int_equal(rig_post(&g, 0, qp[0], RNIC_WR_WRITE, 0, 70000, 100000, 4), 0);
		rig_run(&g, 500 * (uint64_t)i);
		assert_int_equal(rnic_qp_modify(qp[i / 2 % 2], &a, RNIC_ATTR_STATE, g.now), 0);
		if (i % 3 == 0)
			rig_unpair(qp);
		rig_run(&g, 30 * RIG_S);
		if (i % 3)
			rig_unpair(qp);
		rig_run(&g, RIG_S);
		rig_close(&g);
	}
}

/* --- datagrams ---------------------------------------------------------------------------------- */

static void datagrams_out_of_and_into_it(void **state)
{
	struct rig_qp with = { .type = RNIC_QP_UD };
	struct rnic_qp *qp[2];
	struct rnic_wc wc;
	struct rig g;
	unsigned i;

	(void)state;
	open_far(&g, 3, 41, NULL);
	rig_pair(&g, &with, qp);
	rig_fill(&g, 0, 6);
	for (i = 0; i < 20; i++) {
		struct rnic_sge sge = rig_sge(&g, 0, i * 100, 1000 + i);
		struct rnic_path path = { 0 };
		struct rnic_send_wr wr = { .wr_id = i,
					   .opcode = RNIC_WR_SEND,
					   .flags = RNIC_SEND_SIGNALED,
					   .sge = &sge,
					   .nsge = 1,
					   .path = &path,
					   .dest_qpn = rnic_qp_num(qp[1]),
					   .qkey = 0x1234 };

		memcpy(path.src, g.side[0].gid[0], 16);
		memcpy(path.dst, g.side[1].gid[0], 16);
		assert_int_equal(rig_recv(&g, 1, qp[1], i * 2000, 2000, i), 0);
		assert_int_equal(rnic_post_send(qp[0], &wr, g.now), 0);
	}
	for (i = 0; i < 20;) {
		rig_run(&g, 1000);
		if (!rnic_cq_poll(g.side[1].rcq, &wc, 1))
			continue;
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, 1040 + i);
		assert_memory_equal(g.side[1].mem + i * 2000 + 40, g.side[0].mem + i * 100,
				    1000 + i);
		i++;
	}
	rig_unpair(qp);
	rig_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_word_of_a_write_comes_last),
		cmocka_unit_test(messages_of_a_step_come_as_they_like_but_for_their_last_words),
		cmocka_unit_test(a_flag_comes_after_the_payload),
		cmocka_unit_test(completions_come_after_the_payload),
		cmocka_unit_test(a_read_sees_the_write_before_it),
		cmocka_unit_test(nothing_is_told_while_copies_wait),
		cmocka_unit_test(a_message_is_one_copy),
		cmocka_unit_test(silent_peers_do_not_keep_staging_memory),
		cmocka_unit_test(a_packet_in_pieces_has_room_or_waits),
		cmocka_unit_test(atomics_are_atomic_among_themselves),
		cmocka_unit_test(a_region_that_ends_is_left_alone),
		cmocka_unit_test(memory_of_others_is_refused),
		cmocka_unit_test(bounds_are_exact),
		cmocka_unit_test(a_lost_device_is_an_error_on_both_sides),
		cmocka_unit_test(a_queue_pair_ends_with_copies_under_way),
		cmocka_unit_test(datagrams_out_of_and_into_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
