/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues in memory, in the formats of mlx5: the formats themselves, and a device that is driven by stores alone. */
#include "rnic_rig.h"

#include <endian.h>

#include "wire/mlx5.h"

enum { BLOCKS = 8, MANY_BLOCKS = 1024, RECVS = 4, STRIDE = 64, CQES = 16 };

/* --- formats --------------------------------------------------------------------------------------- */

static void wqes_have_the_documented_bytes(void **state)
{
	static const uint8_t want[64] = {
		0x00, 0x12, 0x34, 0x09, 0x00, 0x5a, 0x5b, 0x04, /* index, WRITE_IMM; QPN, 4 segments */
		0x00, 0x00, 0x00, 0x8a, 0x01, 0x02, 0x03, 0x04, /* fence, CQ update, solicited; imm */
		0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, /* remote address */
		0xa1, 0xa2, 0xa3, 0xa4, 0x00, 0x00, 0x00, 0x00, /* remote key */
		0x00, 0x00, 0x10, 0x00, 0xb1, 0xb2, 0xb3, 0xb4, /* length, local key */
		0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, /* address */
		0x00, 0x00, 0x00, 0x07, 0xc1, 0xc2, 0xc3, 0xc4, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09,
	};
	struct wire_mlx5_wqe w = {
		.opcode = WIRE_MLX5_WRITE_IMM,
		.index = 0x1234,
		.qpn = 0x5a5b,
		.cq_update = true,
		.solicited = true,
		.fence = true,
		.imm = 0x01020304,
		.raddr = UINT64_C(0x1112131415161718),
		.rkey = 0xa1a2a3a4,
		.ndata = 2,
		.data = { { UINT64_C(0x2122232425262728), 0x1000, 0xb1b2b3b4 },
			  { 9, 7, 0xc1c2c3c4 } },
	};
	struct wire_mlx5_wqe back;
	uint8_t p[64];

	(void)state;
	assert_int_equal(wire_mlx5_wqe_encode(&w, p, sizeof(p), false), 64);
	assert_memory_equal(p, want, sizeof(p));
	assert_int_equal(wire_mlx5_wqe_encode(&w, p, 63, false), -ENOBUFS);
	assert_int_equal(wire_mlx5_wqe_decode(&back, want, 63, false), -EMSGSIZE);
	assert_int_equal(wire_mlx5_wqe_decode(&back, want, 64, false), 0);
	assert_int_equal(back.ds, 4);
	assert_memory_equal(&back, &w,
			    offsetof(struct wire_mlx5_wqe, data) + 2 * sizeof(w.data[0]));
}

/* The test's own view of an inline WQE, an atomic and a datagram, by offsets. */
static void wqes_of_other_shapes_are_read(void **state)
{
	uint8_t p[128] = { 0, 0, 5, WIRE_MLX5_SEND, 0, 0, 9, 6 };
	struct wire_mlx5_wqe w;

	(void)state;
	/* UD: address vector of 48 bytes, then inline data. */
	memcpy(p + 16, (uint8_t[]){ 0x80, 1, 0, 0 }, 4);
	memcpy(p + 24, (uint8_t[]){ 0x80, 0, 0, 1 }, 4);
	p[16 + 26] = 0x22;
	p[16 + 27] = 7;
	memcpy(p + 16 + 28, (uint8_t[]){ 0, 0x38, 0x80, 0xa8 }, 4);
	memset(p + 16 + 32, 0xfe, 16);
	memcpy(p + 64, (uint8_t[]){ 0x80, 0, 0, 28 }, 4);
	assert_int_equal(wire_mlx5_wqe_decode(&w, p, sizeof(p), true), 0);
	assert_int_equal(w.av.qkey, 0x80010000);
	assert_int_equal(w.av.dqpn, 1);
	assert_int_equal(w.av.tclass, 0x22);
	assert_int_equal(w.av.hop_limit, 7);
	assert_int_equal(w.av.sgid_index, 3);
	assert_int_equal(w.av.flow, 0x880a8);
	assert_int_equal(w.av.rgid[15], 0xfe);
	assert_ptr_equal(w.inl, p + 68);
	assert_int_equal(w.inl_len, 28);
	p[67] = 29; /* a byte more than there is */
	assert_int_equal(wire_mlx5_wqe_decode(&w, p, sizeof(p), true), -EINVAL);
	p[7] = 3; /* the address vector is cut */
	assert_int_equal(wire_mlx5_wqe_decode(&w, p, sizeof(p), true), -EINVAL);
	memset(p, 0, sizeof(p));
	p[3] = WIRE_MLX5_ATOMIC_CS;
	p[7] = 4;
	p[39] = 1;
	p[47] = 2;
	assert_int_equal(wire_mlx5_wqe_decode(&w, p, sizeof(p), false), 0);
	assert_int_equal(w.swap_add, 1);
	assert_int_equal(w.compare, 2);
	p[3] = 0x0f;
	assert_int_equal(wire_mlx5_wqe_decode(&w, p, sizeof(p), false), -EOPNOTSUPP);
}

static void cqes_have_the_documented_bytes(void **state)
{
	struct wire_mlx5_cqe c = { .opcode = WIRE_MLX5_CQE_RESP_SEND_IMM,
				   .solicited = true,
				   .qpn = 0x123456,
				   .byte_cnt = 77,
				   .imm = 0xa1a2a3a4,
				   .wqe_counter = 0x5152,
				   .src_qpn = 0x99,
				   .grh = true },
			     back;
	uint8_t p[64];

	(void)state;
	p[63] = wire_mlx5_cqe_encode(&c, p, true);
	assert_int_equal(p[63], 0x33); /* opcode 3, format 0, solicited, owner 1 */
	assert_memory_equal(p + 36, "\xa1\xa2\xa3\xa4", 4);
	assert_memory_equal(p + 44, "\0\0\0\x4d", 4);
	assert_memory_equal(p + 56, "\0\x12\x34\x56\x51\x52", 6);
	wire_mlx5_cqe_decode(&back, p);
	assert_memory_equal(&back, &c, sizeof(c));
	c = (struct wire_mlx5_cqe){ .opcode = WIRE_MLX5_CQE_REQ_ERR,
				    .syndrome = 0x15,
				    .vendor = 0x81 };
	p[63] = wire_mlx5_cqe_encode(&c, p, false);
	assert_int_equal(p[54], 0x81);
	assert_int_equal(p[55], 0x15);
	assert_int_equal(p[63], 0xd0);
	assert_int_equal(wire_mlx5_syndrome(RNIC_WC_RETRY_EXC_ERR), 0x15);
	assert_int_equal(wire_mlx5_status(0x13), RNIC_WC_REM_ACCESS_ERR);
	assert_int_equal(wire_mlx5_status(0x02), RNIC_WC_LOC_QP_OP_ERR);
}

/* --- a producer that only stores -------------------------------------------------------------------- */

struct gpu {
	struct rig g;
	uint64_t doorbells[4];
	_Alignas(64) uint8_t sq[MANY_BLOCKS * 64], rq[RECVS * STRIDE];
	_Alignas(64) uint8_t cqe[CQES * 64];
	uint32_t dbrec[2], cq_dbrec[2];
	struct rnic_cq *cq;
	struct rnic_qp *qp[2]; /* [0] is posted by memory, [1] by calls */
	unsigned blocks;
	uint16_t pi, ri;
	uint32_t ci;
};

static void gpu_open_blocks(struct gpu *u, enum rnic_qp_type type, bool collapsed, unsigned blocks)
{
	struct rnic_config dev = { .doorbells = u->doorbells, .ndoorbells = 4 };
	struct rnic_mlx5_queues q = { u->sq, blocks, u->rq, RECVS, STRIDE, u->dbrec };
	struct rnic_mlx5_cq_init cq = { u->cqe, CQES, u->cq_dbrec, collapsed, collapsed };
	struct rig_qp with = { .type = type };

	memset(u, 0, sizeof(*u));
	u->blocks = blocks;
	rig_open(&u->g, &dev, NULL);
	assert_int_equal(rnic_mlx5_cq_create(u->g.side[0].r, &cq, &u->cq), 0);
	with.queues = &q;
	with.queues_cq = u->cq;
	rig_pair(&u->g, &with, u->qp);
}

static void gpu_open(struct gpu *u, enum rnic_qp_type type, bool collapsed)
{
	gpu_open_blocks(u, type, collapsed, BLOCKS);
}

static void gpu_close(struct gpu *u)
{
	rig_unpair(u->qp);
	assert_int_equal(rnic_cq_destroy(u->cq), 0);
	rig_close(&u->g);
}

static struct wire_mlx5_wqe wqe(const struct gpu *u, uint8_t opcode, size_t off, uint32_t len,
				size_t roff)
{
	return (struct wire_mlx5_wqe){
		.opcode = opcode,
		.cq_update = true,
		.raddr = rig_va(roff),
		.rkey = rnic_mr_rkey(u->g.side[1].mr),
		.ndata = len ? 1 : 0,
		.data = { { rig_va(off), len, rnic_mr_lkey(u->g.side[0].mr) } },
	};
}

/* Stores a WQE at the producer's index and moves the index; the record is written by ring(). */
static void store(struct gpu *u, struct wire_mlx5_wqe *w)
{
	uint8_t p[WIRE_MLX5_MAX_WQE + 16];
	unsigned i, n;

	w->index = u->pi;
	w->qpn = rnic_qp_num(u->qp[0]);
	n = (unsigned)wire_mlx5_wqe_encode(w, p, sizeof(p), false);
	assert_true(n >= 16 && n < sizeof(p));
	for (i = 0; i < n; i += 16)
		memcpy(u->sq + (u->pi * 64u + i) % (u->blocks * 64), p + i, 16);
	u->pi = (uint16_t)(u->pi + wire_mlx5_blocks(w->ds));
}

static void ring(struct gpu *u)
{
	__atomic_store_n(&u->dbrec[1], htobe32(u->pi), __ATOMIC_RELEASE);
}

static void post(struct gpu *u, struct wire_mlx5_wqe w)
{
	store(u, &w);
	ring(u);
}

/* The next completion, if it is there; its consumer index is not published. */
static bool poll_cqe(struct gpu *u, struct wire_mlx5_cqe *c)
{
	const uint8_t *p = u->cqe + u->ci % CQES * 64;

	if (p[63] >> 4 == WIRE_MLX5_CQE_INVALID || (p[63] & 1) != !!(u->ci & CQES))
		return false;
	wire_mlx5_cqe_decode(c, p);
	u->ci++;
	return true;
}

static void publish(struct gpu *u)
{
	__atomic_store_n(&u->cq_dbrec[0], htobe32(u->ci & 0xffffff), __ATOMIC_RELEASE);
}

static void expect_cqe(struct gpu *u, uint16_t index, uint8_t opcode, uint8_t syndrome)
{
	struct wire_mlx5_cqe c;

	assert_true(poll_cqe(u, &c));
	assert_int_equal(c.wqe_counter, index);
	assert_int_equal(c.opcode, opcode);
	assert_int_equal(c.syndrome, syndrome);
	assert_int_equal(c.qpn, rnic_qp_num(u->qp[0]));
	publish(u);
}

static void every_operation_can_be_stored(void **state)
{
	uint8_t bytes[100] = "straight from the queue";
	struct wire_mlx5_wqe w;
	static struct gpu u;

	(void)state;
	gpu_open(&u, RNIC_QP_RC, false);
	rig_fill(&u.g, 0, 3);
	post(&u, wqe(&u, WIRE_MLX5_WRITE, 0, 5000, 100));
	rig_run(&u.g, 10 * RIG_MS);
	expect_cqe(&u, 0, WIRE_MLX5_CQE_REQ, 0);
	assert_memory_equal(u.g.side[1].mem + 100, u.g.side[0].mem, 5000);
	post(&u, wqe(&u, WIRE_MLX5_READ, 9000, 3000, 100));
	rig_run(&u.g, 10 * RIG_MS);
	expect_cqe(&u, 1, WIRE_MLX5_CQE_REQ, 0);
	assert_memory_equal(u.g.side[0].mem + 9000, u.g.side[0].mem, 3000);
	/* Inline data: three blocks. */
	w = wqe(&u, WIRE_MLX5_WRITE, 0, 0, 20000);
	w.inl = bytes;
	w.inl_len = sizeof(bytes);
	post(&u, w);
	rig_run(&u.g, 10 * RIG_MS);
	expect_cqe(&u, 2, WIRE_MLX5_CQE_REQ, 0);
	assert_memory_equal(u.g.side[1].mem + 20000, bytes, sizeof(bytes));
	assert_int_equal(u.pi, 5);
	*(uint64_t *)(void *)(u.g.side[1].mem + 64) = 40;
	w = wqe(&u, WIRE_MLX5_ATOMIC_FA, 8, 8, 64);
	w.swap_add = 2;
	post(&u, w);
	w = wqe(&u, WIRE_MLX5_ATOMIC_CS, 16, 8, 64);
	w.compare = 42;
	w.swap_add = 7;
	post(&u, w);
	rig_run(&u.g, 10 * RIG_MS);
	expect_cqe(&u, 5, WIRE_MLX5_CQE_REQ, 0);
	expect_cqe(&u, 6, WIRE_MLX5_CQE_REQ, 0);
	assert_int_equal(*(uint64_t *)(void *)(u.g.side[0].mem + 8), 40);
	assert_int_equal(*(uint64_t *)(void *)(u.g.side[0].mem + 16), 42);
	assert_int_equal(*(uint64_t *)(void *)(u.g.side[1].mem + 64), 7);
	post(&u, wqe(&u, WIRE_MLX5_NOP, 0, 0, 0));
	post(&u, wqe(&u, WIRE_MLX5_DUMP, 0, 0, 0));
	rig_run(&u.g, 10 * RIG_MS);
	expect_cqe(&u, 7, WIRE_MLX5_CQE_REQ, 0);
	expect_cqe(&u, 8, WIRE_MLX5_CQE_REQ, 0);
	/* SEND with an immediate, to the side that posts by calls. */
	assert_int_equal(rig_recv(&u.g, 1, u.qp[1], 0, 64, 5), 0);
	w = wqe(&u, WIRE_MLX5_SEND_IMM, 0, 64, 0);
	w.imm = 0x12345678;
	post(&u, w);
	rig_run(&u.g, 10 * RIG_MS);
	expect_cqe(&u, 9, WIRE_MLX5_CQE_REQ, 0);
	assert_int_equal(rig_expect(u.g.side[1].rcq, 5, RNIC_WC_SUCCESS).imm, 0x12345678);
	assert_int_equal(rnic_post_send(u.qp[0], &(struct rnic_send_wr){ .opcode = RNIC_WR_SEND },
					0),
			 -EINVAL);
	assert_int_equal(rnic_post_recv(u.qp[0], 0, NULL, 0), -EINVAL);
	gpu_close(&u);
}

/* A NOP behind a WRITE completes after it, and after a loss as well. */
static void completions_keep_the_order_of_the_queue(void **state)
{
	static struct gpu u;
	struct rnic_mem_faults all = { .loss = 1000000 }, none = { .delay_ns = 1000 };
	struct wire_mlx5_cqe c;

	(void)state;
	gpu_open(&u, RNIC_QP_RC, false);
	rnic_mem_set_faults(u.g.net, &all);
	post(&u, wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0));
	post(&u, wqe(&u, WIRE_MLX5_NOP, 0, 0, 0));
	post(&u, wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0));
	rig_run(&u.g, 2 * RIG_MS);
	assert_false(poll_cqe(&u, &c));
	rnic_mem_set_faults(u.g.net, &none);
	rig_run(&u.g, 10 * RIG_MS);
	expect_cqe(&u, 0, WIRE_MLX5_CQE_REQ, 0);
	expect_cqe(&u, 1, WIRE_MLX5_CQE_REQ, 0);
	expect_cqe(&u, 2, WIRE_MLX5_CQE_REQ, 0);
	gpu_close(&u);
}

/* 70,000 WQEs of one to three blocks in a queue of 8: the index and the ring wrap, and blocks lie across its end. */
static void indices_wrap(void **state)
{
	static struct gpu u;
	uint8_t bytes[120];
	uint32_t i;

	(void)state;
	gpu_open(&u, RNIC_QP_RC, false);
	for (i = 0; i < 70000; i++) {
		struct wire_mlx5_wqe w = wqe(&u, WIRE_MLX5_WRITE, 0, 0, 64);
		uint16_t at = u.pi;

		memset(bytes, (int)i, sizeof(bytes));
		w.inl = bytes;
		w.inl_len = i * 7 % sizeof(bytes) + 1;
		post(&u, w);
		rig_run(&u.g, 100000);
		expect_cqe(&u, at, WIRE_MLX5_CQE_REQ, 0);
		assert_memory_equal(u.g.side[1].mem + 64, bytes, w.inl_len);
	}
	assert_true(i > 65536);
	gpu_close(&u);
}

static void receives_come_from_memory(void **state)
{
	struct wire_mlx5_data d[3];
	struct wire_mlx5_cqe c;
	static struct gpu u;
	uint32_t i;

	(void)state;
	gpu_open(&u, RNIC_QP_RC, false);
	rig_fill(&u.g, 1, 8);
	for (i = 0; i < 20; i++) {
		d[0] = (struct wire_mlx5_data){ rig_va(0), 10, rnic_mr_lkey(u.g.side[0].mr) };
		d[1] = (struct wire_mlx5_data){ rig_va(100), 4000, rnic_mr_lkey(u.g.side[0].mr) };
		assert_int_equal(wire_mlx5_recv_encode(u.rq + u.ri % RECVS * STRIDE, STRIDE, d, 2),
				 0);
		__atomic_store_n(&u.dbrec[0], htobe32(++u.ri), __ATOMIC_RELEASE);
		assert_int_equal(rig_post(&u.g, 1, u.qp[1], i & 1 ? RNIC_WR_SEND : RNIC_WR_SEND_IMM,
					  0, 3000, 0, i),
				 0);
		rig_run(&u.g, 100000);
		rig_expect(u.g.side[1].scq, i, RNIC_WC_SUCCESS);
		assert_true(poll_cqe(&u, &c));
		publish(&u);
		assert_int_equal(c.opcode,
				 i & 1 ? WIRE_MLX5_CQE_RESP_SEND : WIRE_MLX5_CQE_RESP_SEND_IMM);
		assert_int_equal(c.wqe_counter, i);
		assert_int_equal(c.byte_cnt, 3000);
		assert_memory_equal(u.g.side[0].mem, u.g.side[1].mem, 10);
		assert_memory_equal(u.g.side[0].mem + 100, u.g.side[1].mem + 10, 2990);
	}
	/* Five lengths of what a receive without room makes of a message. */
	assert_int_equal(wire_mlx5_recv_encode(u.rq + u.ri % RECVS * STRIDE, STRIDE, d, 1), 0);
	__atomic_store_n(&u.dbrec[0], htobe32(++u.ri), __ATOMIC_RELEASE);
	assert_int_equal(rig_post(&u.g, 1, u.qp[1], RNIC_WR_SEND, 0, 11, 0, 50), 0);
	rig_run(&u.g, 100000);
	expect_cqe(&u, 20, WIRE_MLX5_CQE_RESP_ERR, 0x01);
	rig_expect(u.g.side[1].scq, 50, RNIC_WC_REM_INV_REQ_ERR);
	/* One that is rung later is flushed. */
	__atomic_store_n(&u.dbrec[0], htobe32(++u.ri), __ATOMIC_RELEASE);
	rig_run(&u.g, 2 * RIG_MS);
	expect_cqe(&u, 21, WIRE_MLX5_CQE_RESP_ERR, 0x05);
	gpu_close(&u);
}

/* --- what a GPU may get wrong --------------------------------------------------------------------------- */

static void bad_opcode(struct gpu *u)
{
	u->sq[64 + 3] = 0x0f;
}

static void no_segments(struct gpu *u)
{
	u->sq[64 + 7] = 0;
}

static void too_many_segments(struct gpu *u)
{
	u->sq[64 + 7] = 63;
}

static void wrong_index(struct gpu *u)
{
	u->sq[64 + 2] ^= 1;
}

static void wrong_number(struct gpu *u)
{
	u->sq[64 + 6] ^= 1;
}

static void bad_key(struct gpu *u)
{
	u->sq[64 + 32 + 7] ^= 1;
}

static void too_long(struct gpu *u)
{
	u->sq[64 + 32] = 0x7f;
}

static void a_bad_wqe_fails_in_its_turn(void **state)
{
	static const struct {
		void (*spoil)(struct gpu *u);
		uint8_t syndrome;
	} bad[] = {
		{ bad_opcode, 0x02 },  { no_segments, 0x02 },  { too_many_segments, 0x01 },
		{ wrong_index, 0x02 }, { wrong_number, 0x02 }, { bad_key, 0x04 },
		{ too_long, 0x01 },
	};
	static struct gpu u;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct wire_mlx5_wqe w;

		gpu_open(&u, RNIC_QP_RC, false);
		w = wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0);
		store(&u, &w);
		w = wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0);
		store(&u, &w);
		bad[i].spoil(&u);
		if (bad[i].spoil != too_many_segments) {
			w = wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0);
			w.cq_update = false; /* an error is told all the same */
			store(&u, &w);
		}
		ring(&u);
		rig_run(&u.g, 10 * RIG_MS);
		expect_cqe(&u, 0, WIRE_MLX5_CQE_REQ, 0);
		expect_cqe(&u, 1, WIRE_MLX5_CQE_REQ_ERR, bad[i].syndrome);
		if (bad[i].spoil != too_many_segments)
			expect_cqe(&u, 2, WIRE_MLX5_CQE_REQ_ERR, 0x05);
		/* Rung later: flushed. */
		post(&u, wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0));
		rig_run(&u.g, 10 * RIG_MS);
		expect_cqe(&u, (uint16_t)(u.pi - 1), WIRE_MLX5_CQE_REQ_ERR, 0x05);
		gpu_close(&u);
	}
}

/* All blocks are good, but the record says that there is one more than there can be: none of it is done. */
static void a_record_out_of_range_ends_the_queue_pair(void **state)
{
	static struct gpu u;
	unsigned i;

	(void)state;
	gpu_open(&u, RNIC_QP_RC, false);
	memset(u.g.side[0].mem, 0x77, 16);
	for (i = 0; i < BLOCKS; i++) {
		struct wire_mlx5_wqe w = wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0);

		store(&u, &w);
	}
	u.dbrec[1] = htobe32(BLOCKS + 1);
	rig_run(&u.g, 10 * RIG_MS);
	expect_cqe(&u, 0, WIRE_MLX5_CQE_REQ_ERR, 0x02);
	assert_int_equal(u.g.side[1].mem[0], 0);
	gpu_close(&u);
}

/* More than are fetched at once: the rest follows without a new bell or scan. */
static void a_long_list_is_fetched_in_pieces(void **state)
{
	static struct gpu u;
	unsigned i;

	(void)state;
	gpu_open_blocks(&u, RNIC_QP_RC, false, MANY_BLOCKS);
	rig_run(&u.g, 20 * RIG_MS);
	for (i = 0; i < 1000; i++) {
		struct wire_mlx5_wqe w = { .opcode = WIRE_MLX5_NOP, .cq_update = i == 999 };

		store(&u, &w);
	}
	ring(&u);
	u.doorbells[0]++;
	for (i = 0; i < 10; i++)
		rnic_step(u.g.side[0].r, u.g.now, 100);
	expect_cqe(&u, 999, WIRE_MLX5_CQE_REQ, 0);
	gpu_close(&u);
}

/* --- doorbells and completion queues ---------------------------------------------------------------------- */

static void a_doorbell_shortens_the_wait(void **state)
{
	static struct gpu u;
	struct wire_mlx5_cqe c;
	uint64_t start;
	int slot, i;

	(void)state;
	gpu_open(&u, RNIC_QP_RC, false);
	slot = rnic_qp_doorbell(u.qp[0]);
	assert_int_equal(slot, 0);
	/* Idle for a while: the device looks once in a millisecond. */
	rig_run(&u.g, 20 * RIG_MS);
	post(&u, wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0));
	start = u.g.now;
	while (!poll_cqe(&u, &c))
		rig_run(&u.g, 5000);
	assert_in_range(u.g.now - start, 10000, RIG_MS + 10000);
	publish(&u);
	/* And often when there was something. */
	post(&u, wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0));
	rig_run(&u.g, 20000);
	expect_cqe(&u, 1, WIRE_MLX5_CQE_REQ, 0);
	/* A step sees a slot that changed, however long it was idle. */
	rig_run(&u.g, 20 * RIG_MS);
	post(&u, wqe(&u, WIRE_MLX5_NOP, 0, 0, 0));
	memcpy(&u.doorbells[slot], u.sq + (u.pi - 1u) % u.blocks * 64, 8);
	rnic_step(u.g.side[0].r, u.g.now, 10);
	expect_cqe(&u, 2, WIRE_MLX5_CQE_REQ, 0);
	/* Bells for nothing are no harm. */
	for (i = 0; i < 10; i++) {
		u.doorbells[slot]++;
		u.doorbells[3]++;
		rig_run(&u.g, 10000);
	}
	assert_false(poll_cqe(&u, &c));
	gpu_close(&u);
}

static void a_full_cq_in_memory_holds_completions_back(void **state)
{
	struct wire_mlx5_cqe c;
	static struct gpu u;
	uint32_t i, got = 0;

	(void)state;
	gpu_open(&u, RNIC_QP_RC, false);
	for (i = 0; i < 3; i++) {
		unsigned k;

		/* 8 blocks at a time, nothing taken: the third load finds 16 entries full. */
		for (k = 0; k < BLOCKS; k++)
			post(&u, wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0));
		rig_run(&u.g, 10 * RIG_MS);
	}
	assert_true(rnic_counters(u.g.side[0].r)->cq_full > 0);
	for (i = 0; i < CQES; i++)
		assert_true(poll_cqe(&u, &c));
	assert_false(poll_cqe(&u, &c));
	publish(&u);
	rig_run(&u.g, 10 * RIG_MS);
	while (poll_cqe(&u, &c))
		got++;
	assert_int_equal(got, 3 * BLOCKS - CQES);
	gpu_close(&u);
}

static void a_collapsed_cq_shows_the_last(void **state)
{
	struct wire_mlx5_cqe c;
	static struct gpu u;
	unsigned i;

	(void)state;
	gpu_open(&u, RNIC_QP_RC, true);
	for (i = 0; i < 100; i++) {
		post(&u, wqe(&u, WIRE_MLX5_WRITE, 0, 10, 0));
		rig_run(&u.g, 100000);
		wire_mlx5_cqe_decode(&c, u.cqe);
		assert_int_equal(c.opcode, WIRE_MLX5_CQE_REQ);
		assert_int_equal(c.wqe_counter, i);
		assert_int_equal(u.cqe[64 + 63], WIRE_MLX5_CQE_FREE);
	}
	gpu_close(&u);
}

static void queues_that_make_no_sense_are_refused(void **state)
{
	static struct gpu u;
	const struct rnic_mlx5_queues good = { u.sq, BLOCKS, u.rq, RECVS, STRIDE, u.dbrec };
	struct rnic_mlx5_queues bad[8];
	struct rnic_mlx5_cq_init cq[5];
	struct rnic_qp_init in = { .type = RNIC_QP_RC };
	struct rnic_cq *c;
	struct rnic_qp *qp;
	unsigned i;

	(void)state;
	gpu_open(&u, RNIC_QP_RC, false);
	for (i = 0; i < 8; i++)
		bad[i] = good;
	bad[0].dbrec = NULL;
	bad[1].sq_blocks = 6;
	bad[2].sq = NULL;
	bad[3].rq_entries = 3;
	bad[4].rq_stride = 48;
	bad[5].rq_stride = 1024;
	bad[6].dbrec = (uint8_t *)u.dbrec + 4;
	bad[7].sq_blocks = 65536;
	in.send_cq = in.recv_cq = u.cq;
	for (i = 0; i < 8; i++) {
		in.queues = &bad[i];
		assert_int_equal(rnic_qp_create(u.g.side[0].pd, &in, &qp), -EINVAL);
	}
	for (i = 0; i < 5; i++)
		cq[i] = (struct rnic_mlx5_cq_init){ u.cqe, CQES, u.cq_dbrec, false, false };
	cq[0].buf = NULL;
	cq[1].buf = u.cqe + 32;
	cq[2].entries = 12;
	cq[3].dbrec = NULL;
	cq[4].entries = 1 << 23;
	for (i = 0; i < 5; i++)
		assert_int_equal(rnic_mlx5_cq_create(u.g.side[0].r, &cq[i], &c), -EINVAL);
	gpu_close(&u);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wqes_have_the_documented_bytes),
		cmocka_unit_test(wqes_of_other_shapes_are_read),
		cmocka_unit_test(cqes_have_the_documented_bytes),
		cmocka_unit_test(every_operation_can_be_stored),
		cmocka_unit_test(completions_keep_the_order_of_the_queue),
		cmocka_unit_test(indices_wrap),
		cmocka_unit_test(receives_come_from_memory),
		cmocka_unit_test(a_bad_wqe_fails_in_its_turn),
		cmocka_unit_test(a_record_out_of_range_ends_the_queue_pair),
		cmocka_unit_test(a_long_list_is_fetched_in_pieces),
		cmocka_unit_test(a_doorbell_shortens_the_wait),
		cmocka_unit_test(a_full_cq_in_memory_holds_completions_back),
		cmocka_unit_test(a_collapsed_cq_shows_the_last),
		cmocka_unit_test(queues_that_make_no_sense_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
