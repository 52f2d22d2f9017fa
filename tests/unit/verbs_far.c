/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * <gpunet/verbs.h> over provider rnic with memory that the CPU cannot load from: the CPU device's stand-in for a GPU, whose addresses
 * fault. What the copies themselves promise is tested by rnic_far.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

#include <cmocka.h>

#include <gpunet/verbs.h>

#include "platform/cpu/copier.h"
#include "verbs/rnic/internal.h"

enum { SIZE = 300001, ALL = 15 };

/* The GPU. */
static struct platform_copier *copier;
static unsigned opened;
static uint8_t backing[SIZE];
static uint64_t far_at;

static int open_stub(const void *p, struct rnic_far *f)
{
	(void)p;
	opened++;
	f->copier = copier;
	return copier ? 0 : -EOPNOTSUPP;
}

struct side {
	gpunet_verbs_t *v;
	gpunet_verbs_cq_t *cq;
	gpunet_verbs_qp_t *qp;
	struct gpunet_verbs_address at;
};

static void side_open(struct side *s, const char *address)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct gpunet_verbs_options o = GPUNET_VERBS_OPTIONS_INIT;
	struct gpunet_verbs_qp_init init = { .size = sizeof(init),
					     .max_send_wr = 8,
					     .max_recv_wr = 8 };

	inet_pton(AF_INET, address, &in.sin_addr);
	o.provider = "rnic";
	o.local = (struct sockaddr *)&in;
	o.local_len = sizeof(in);
	assert_int_equal(gpunet_verbs_open(&s->v, &o), 0);
	assert_int_equal(gpunet_verbs_cq_create(s->v, 32, &s->cq), 0);
	init.send_cq = init.recv_cq = s->cq;
	assert_int_equal(gpunet_verbs_qp_create(s->v, NULL, &init, &s->qp), 0);
	s->at.size = sizeof(s->at);
	assert_int_equal(gpunet_verbs_qp_address(s->qp, &s->at), 0);
}

static void side_close(struct side *s)
{
	gpunet_verbs_qp_destroy(s->qp);
	assert_int_equal(gpunet_verbs_cq_destroy(s->cq), 0);
	assert_int_equal(gpunet_verbs_close(s->v), 0);
}

static void operate(struct side *s, enum gpunet_verbs_opcode op, uint64_t from, uint32_t lkey,
		    uint64_t to, uint32_t rkey)
{
	struct gpunet_verbs_sge sge = { from, SIZE, lkey };
	struct gpunet_verbs_send_wr wr = { .opcode = op,
					   .flags = GPUNET_VERBS_SIGNALED,
					   .sge = &sge,
					   .nsge = 1,
					   .remote_addr = to,
					   .rkey = rkey };
	struct gpunet_verbs_wc wc;

	assert_int_equal(gpunet_verbs_post_send(s->qp, &wr, 1), 1);
	assert_int_equal(gpunet_verbs_poll(s->cq, &wc, 1, 20000), 1);
	assert_int_equal(wc.status, 0);
}

static void fill(uint8_t *p, unsigned seed)
{
	size_t i;

	for (i = 0; i < SIZE; i++)
		p[i] = (uint8_t)((i * 2654435761u + seed) >> 11);
}

static void memory_of_a_gpu_is_written_read_and_sent_from(void **state)
{
	uint8_t *near = malloc(SIZE), *was = malloc(SIZE);
	gpunet_verbs_mr_t *mr, *far, *again;
	struct side a, b;

	(void)state;
	assert_int_equal(cpu_copier_open(64 * PLATFORM_COPIER_UNIT, 7, &copier), 0);
	assert_int_equal(cpu_copier_add(copier, backing, SIZE, &far_at), 0);
	/* The queue pairs are there before the GPU is. */
	side_open(&a, "127.0.71.1");
	side_open(&b, "127.0.71.2");
	assert_int_equal(gpunet_verbs_reg(a.v, near, SIZE, ALL, &mr), 0);
	assert_int_equal(gpunet_verbs_reg(b.v, (void *)(uintptr_t)far_at, SIZE, ALL, &far), 0);
	assert_int_equal(gpunet_verbs_reg(b.v, (void *)(uintptr_t)(far_at + 1), 8, ALL, &again), 0);
	assert_int_equal(opened, 1);
	assert_int_equal(gpunet_verbs_qp_connect(a.qp, &b.at, NULL), 0);
	assert_int_equal(gpunet_verbs_qp_connect(b.qp, &a.at, NULL), 0);

	fill(near, 1);
	operate(&a, GPUNET_VERBS_WRITE, (uintptr_t)near, gpunet_verbs_lkey(mr), far_at,
		gpunet_verbs_rkey(far));
	assert_memory_equal(near, backing, SIZE);
	fill(backing, 2);
	operate(&a, GPUNET_VERBS_READ, (uintptr_t)near, gpunet_verbs_lkey(mr), far_at,
		gpunet_verbs_rkey(far));
	assert_memory_equal(near, backing, SIZE);
	fill(backing, 3);
	operate(&b, GPUNET_VERBS_WRITE, far_at, gpunet_verbs_lkey(far), (uintptr_t)near,
		gpunet_verbs_rkey(mr));
	assert_memory_equal(near, backing, SIZE);
	fill(near, 4);
	memcpy(was, near, SIZE);
	operate(&b, GPUNET_VERBS_READ, far_at, gpunet_verbs_lkey(far), (uintptr_t)near,
		gpunet_verbs_rkey(mr));
	assert_memory_equal(was, backing, SIZE);

	gpunet_verbs_dereg(again);
	gpunet_verbs_dereg(far);
	gpunet_verbs_dereg(mr);
	side_close(&a);
	side_close(&b); /* and the copier with it */
	copier = NULL;
	free(near);
	free(was);
}

/* Neither the CPU's nor a GPU's; a GPU's in part; a copier that has too little memory. */
static void what_is_not_a_gpus_either_is_refused(void **state)
{
	gpunet_verbs_mr_t *mr;
	struct side a;

	(void)state;
	side_open(&a, "127.0.71.3");
	copier = NULL;
	assert_int_equal(gpunet_verbs_reg(a.v, (void *)16, 64, ALL, &mr), -EOPNOTSUPP);
	assert_int_equal(cpu_copier_open(2 * PLATFORM_COPIER_UNIT, 0, &copier), 0);
	assert_int_equal(gpunet_verbs_reg(a.v, (void *)16, 64, ALL, &mr), -EINVAL);
	assert_int_equal(cpu_copier_open(64 * PLATFORM_COPIER_UNIT, 0, &copier), 0);
	assert_int_equal(cpu_copier_add(copier, backing, SIZE, &far_at), 0);
	assert_int_equal(gpunet_verbs_reg(a.v, (void *)(uintptr_t)(far_at + 1), SIZE, ALL, &mr),
			 -EFAULT);
	side_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_of_a_gpu_is_written_read_and_sent_from),
		cmocka_unit_test(what_is_not_a_gpus_either_is_refused),
	};

	vfar_open = open_stub;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
