/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of copies on a driver that keeps books: which calls it makes of what is put in, in what order, and what it does when
 * the driver refuses some. What only a GPU shows, device/rnic_far does.
 */
#include "cuda_stub.h"

#include "platform/cuda/copier.h"
#include "platform/cuda/driver.h"
#include "platform/platform.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

enum { MIB = 1 << 20, GPU = 16 * MIB };

static struct cuda_stub stub;
static struct platform_dev *dev;
static struct platform_copier *copier;
static uint8_t *gpu; /* the stub's: it can be looked at */
static uint64_t ticket;
static size_t staged;

static void nap(void)
{
	const struct timespec t = { .tv_nsec = 200000 };

	nanosleep(&t, NULL);
}

static void open_units(const char *file, unsigned units)
{
	stub = (struct cuda_stub){ 0 };
	assert_true(cuda_stub_use(&stub, file));
	ticket = 0;
	assert_int_equal(platform_cuda.open(0, NULL, &dev), 0);
	assert_int_equal(cuda_copier_open(dev, units * PLATFORM_COPIER_UNIT, &copier), 0);
	/* A piece of memory of which the driver's words are remembered is 2 MiB. */
	gpu = aligned_alloc(2 * MIB, GPU);
	assert_non_null(gpu);
	memset(gpu, 0, GPU);
	/* Opening has tried a word. */
	assert_string_equal(stub.state->work, "w");
	stub.state->works = 0;
	memset(stub.state->work, 0, sizeof(stub.state->work));
}

static void open_with(const char *file)
{
	open_units(file, 1);
}

static void close_all(void)
{
	copier->ops->close(copier);
	platform_cuda.close(dev);
	assert_int_equal(stub.state->misuse, 0);
	free(gpu);
	cuda_driver_forget();
	dlclose(stub.library);
}

static uint64_t at(size_t off)
{
	return (uintptr_t)gpu + off;
}

/* `n` bytes of `value` in a place of their own, until much more has been put in. */
static const uint8_t *stage(uint8_t value, size_t n)
{
	uint8_t *from;

	staged = staged + n > copier->size ? 0 : staged;
	from = copier->staging + staged;
	staged += n;
	memset(from, value, n);
	return from;
}

static void body(size_t off, uint8_t value, size_t n)
{
	copier->ops->write(copier, at(off), stage(value, n), n);
}

static void word(size_t off, uint8_t value, size_t n)
{
	copier->ops->write_word(copier, at(off), stage(value, n), n);
}

static void mark(void)
{
	copier->ops->mark(copier, ++ticket);
}

static void await(void)
{
	uint64_t seen = 0;

	while (!copier->ops->done(copier, &seen) && seen != ticket)
		nap();
	assert_int_equal(copier->ops->done(copier, &seen), 0);
	assert_int_equal(seen, ticket);
}

/*
 * The thread is in a copy, so that all that is put in now is there when it comes out. After open_gate() it has made the calls in
 * `calls`, behind that copy and its ticket.
 */
static void close_gate(void)
{
	__atomic_store_n(&stub.state->in_gate, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&stub.state->gate, 1, __ATOMIC_RELEASE);
	body(GPU - 64, 1, 1);
	mark();
	while (!__atomic_load_n(&stub.state->in_gate, __ATOMIC_ACQUIRE))
		nap();
	stub.state->works = 0;
	memset(stub.state->work, 0, sizeof(stub.state->work));
}

static void open_gate(const char *calls)
{
	__atomic_store_n(&stub.state->gate, 0, __ATOMIC_RELEASE);
	await();
	assert_memory_equal(stub.state->work, "cw", 2);
	assert_string_equal(stub.state->work + 2, calls);
}

static bool all(size_t off, uint8_t value, size_t n)
{
	while (n--)
		if (gpu[off + n] != value)
			return false;
	return true;
}

/* Where words went before, those behind each other and the ticket are one call; the rest are calls of their own. */
static void words_of_a_step_go_in_one_call(void **state)
{
	(void)state;
	open_with(STUB);
	close_gate();
	word(8, 1, 8);
	word(16, 2, 4);
	mark();
	open_gate("w2"); /* the first is tried alone */
	close_gate();
	body(4096, 3, 1000);
	body(8192, 4, 1000);
	word(5096, 5, 8);
	word(9192, 6, 4);
	word(9200, 7, 8);
	mark();
	open_gate("C24");
	assert_true(all(4096, 3, 1000) && all(8192, 4, 1000));
	assert_true(all(5096, 5, 8) && all(9192, 6, 4) && all(9200, 7, 8));
	/* Bytes between keep their place. */
	close_gate();
	word(0, 8, 8);
	word(8, 9, 8);
	body(0, 10, 8);
	word(16, 11, 2);
	word(24, 12, 8);
	mark();
	open_gate("2cc2");
	assert_true(all(0, 10, 8) && all(8, 9, 8) && all(16, 11, 2) && all(24, 12, 8));
	close_all();
}

/* More than one call takes: 64. */
static void a_hundred_words(void **state)
{
	size_t i;

	(void)state;
	open_units(STUB, 2);
	word(0, 1, 8);
	mark();
	await();
	close_gate();
	for (i = 0; i < 100; i++)
		word(i * 8, (uint8_t)i, 8);
	mark();
	open_gate("99");
	for (i = 0; i < 100; i++)
		assert_true(all(i * 8, (uint8_t)i, 8));
	close_all();
}

/* Memory that the driver writes no words into: found out once for each piece. */
static void memory_that_takes_no_words_gets_copies(void **state)
{
	(void)state;
	open_with(STUB);
	stub.state->no_words_from = at(4 * MIB);
	stub.state->no_words_to = at(8 * MIB);
	close_gate();
	word(0, 1, 8);
	word(4 * MIB, 2, 8);
	word(4 * MIB + 8, 3, 4);
	word(8, 4, 8);
	word(6 * MIB, 5, 8);
	mark();
	open_gate("wxccwxcw");
	close_gate();
	word(0, 6, 8);
	word(4 * MIB, 7, 8);
	word(6 * MIB, 8, 4);
	word(8, 9, 8);
	mark();
	open_gate("wcc2");
	assert_true(all(0, 6, 8) && all(4 * MIB, 7, 8) && all(4 * MIB + 8, 3, 4) &&
		    all(6 * MIB, 8, 4) && all(8, 9, 8));
	close_all();
}

/* The memory at an address may become one of another kind. */
static void memory_that_changes_its_kind(void **state)
{
	(void)state;
	open_with(STUB);
	close_gate();
	word(0, 1, 8);
	word(2 * MIB, 2, 8);
	mark();
	open_gate("www");
	stub.state->no_words_from = at(2 * MIB);
	stub.state->no_words_to = at(4 * MIB);
	close_gate();
	word(0, 3, 8);
	word(2 * MIB, 4, 8);
	mark();
	/* All of it again, one by one. */
	open_gate("ywxcw");
	assert_true(all(0, 3, 8) && all(2 * MIB, 4, 8));
	close_gate();
	word(0, 5, 8);
	word(8, 6, 8);
	word(2 * MIB, 7, 8);
	mark();
	open_gate("2cw");
	assert_true(all(0, 5, 8) && all(8, 6, 8) && all(2 * MIB, 7, 8));
	close_all();
}

/* Copies in that follow each other are one call, if none overlaps another. */
static void copies_of_a_step_go_in_one_call(void **state)
{
	size_t i;

	(void)state;
	open_with(STUB);
	close_gate();
	body(0, 1, 100);
	body(100, 2, 100);
	body(300, 3, 100);
	body(199, 4, 102); /* two of them */
	body(500, 5, 100);
	body(0, 6, 1);
	mark();
	open_gate("C3C3w");
	assert_true(all(0, 6, 1) && all(1, 1, 99) && all(100, 2, 99) && all(199, 4, 102) &&
		    all(301, 3, 99) && all(500, 5, 100));
	/* More than one call takes; and a copy out keeps its place. */
	close_gate();
	for (i = 0; i < 20; i++)
		body(i * 64, (uint8_t)(i + 10), 64);
	copier->ops->read(copier, copier->staging, at(5 * 64), 64);
	body(5 * 64, 99, 64);
	mark();
	open_gate("C9C4rcw");
	for (i = 0; i < 20; i++)
		assert_true(all(i * 64, i == 5 ? 99 : (uint8_t)(i + 10), 64));
	for (i = 0; i < 64; i++)
		assert_int_equal(copier->staging[i], 15);
	close_all();
}

static void a_driver_that_takes_no_several_copies(void **state)
{
	static const int codes[] = { 1, 801 };
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		open_with(STUB);
		stub.state->copies_code = codes[i];
		close_gate();
		body(0, 1, 100);
		body(100, 2, 100);
		mark();
		open_gate("Dccw");
		close_gate();
		body(0, 3, 100);
		body(100, 4, 100);
		mark();
		open_gate("ccw");
		assert_true(all(0, 3, 100) && all(100, 4, 100));
		close_all();
	}
}

static void a_driver_without_that_call(void **state)
{
	(void)state;
	open_with(STUB_ONE_BY_ONE);
	close_gate();
	body(64, 1, 8);
	body(72, 1, 8);
	word(0, 1, 8);
	word(8, 2, 8);
	mark();
	open_gate("ccwww");
	close_all();
}

/* Found out once. */
static void a_driver_that_has_that_call_in_name_only(void **state)
{
	static const int codes[] = { 1, 801 };
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		open_with(STUB);
		word(0, 1, 8);
		mark();
		await();
		stub.state->words_code = codes[i];
		close_gate();
		word(0, 3, 8);
		word(8, 4, 8);
		mark();
		open_gate("ywww");
		close_gate();
		word(0, 5, 8);
		word(8, 6, 8);
		mark();
		open_gate("www");
		assert_true(all(0, 5, 8) && all(8, 6, 8));
		close_all();
	}
}

/* Any other refusal is the end, and the ticket never comes. */
static void a_failure_is_final(void **state)
{
	uint64_t seen = 0;

	(void)state;
	open_with(STUB);
	word(0, 1, 8);
	mark();
	await();
	stub.state->words_code = 700;
	word(0, 2, 8);
	mark();
	while (!copier->ops->done(copier, &seen))
		nap();
	assert_int_equal(copier->ops->done(copier, &seen), -EFAULT);
	assert_int_equal(seen, ticket - 1);
	close_all();
	open_with(STUB);
	stub.state->copies_code = 700;
	close_gate();
	body(0, 2, 8);
	body(8, 2, 8);
	mark();
	__atomic_store_n(&stub.state->gate, 0, __ATOMIC_RELEASE);
	while (!copier->ops->done(copier, &seen))
		nap();
	assert_int_equal(copier->ops->done(copier, &seen), -EFAULT);
	assert_int_equal(seen, ticket - 1);
	close_all();
}

/* What no mark has shown is done by the time that drain returns; what is more than was agreed is said. */
static void drained_and_overrun(void **state)
{
	uint64_t seen = 0;
	unsigned i;

	(void)state;
	open_with(STUB);
	body(100, 1, 10);
	assert_int_equal(copier->ops->drain(copier, UINT64_C(10000000000)), 0);
	assert_true(all(100, 1, 10));
	close_gate();
	for (i = 0; i < 62; i++)
		body(i, 2, 1);
	assert_int_equal(copier->ops->done(copier, &seen), 0);
	body(i, 2, 1);
	assert_int_equal(copier->ops->done(copier, &seen), -ENOBUFS);
	__atomic_store_n(&stub.state->gate, 0, __ATOMIC_RELEASE);
	close_all();
}

/* What came before a ticket has left its places when the ticket is seen, wherever the thread is then. */
static void a_ticket_says_that_there_is_room(void **state)
{
	unsigned i, turn;

	(void)state;
	open_with(STUB);
	word(0, 1, 8); /* the first is tried alone */
	mark();
	await();
	for (turn = 0; turn < 2; turn++) {
		__atomic_store_n(&stub.state->late, 1, __ATOMIC_RELEASE);
		if (turn)
			word(0, 2, 8); /* goes with the ticket in one call */
		mark();
		await();
		for (i = 0; i < 63; i++)
			body(100 + i, 3, 1);
		mark();
		__atomic_store_n(&stub.state->late, 0, __ATOMIC_RELEASE);
		await();
		assert_true(all(100, 3, 63));
	}
	close_all();
}

/* The thread sleeps when nothing comes, and is woken; and much goes through without a gate, whatever is seen together. */
static void many_and_pauses(void **state)
{
	unsigned i, k;

	(void)state;
	open_with(STUB);
	for (i = 1; i <= 300; i++) {
		for (k = 0; k < 20; k++)
			body(k * 1024, (uint8_t)(i + k), 1000);
		for (k = 0; k < 20; k++)
			word(k * 1024 + 1000, (uint8_t)(i + k), 8);
		mark();
		await();
		for (k = 0; k < 20; k++)
			assert_true(all(k * 1024, (uint8_t)(i + k), 1008));
		if (i % 30 == 0)
			nap();
	}
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_of_a_step_go_in_one_call),
		cmocka_unit_test(a_hundred_words),
		cmocka_unit_test(memory_that_takes_no_words_gets_copies),
		cmocka_unit_test(memory_that_changes_its_kind),
		cmocka_unit_test(copies_of_a_step_go_in_one_call),
		cmocka_unit_test(a_driver_that_takes_no_several_copies),
		cmocka_unit_test(a_driver_without_that_call),
		cmocka_unit_test(a_driver_that_has_that_call_in_name_only),
		cmocka_unit_test(a_failure_is_final),
		cmocka_unit_test(drained_and_overrun),
		cmocka_unit_test(a_ticket_says_that_there_is_room),
		cmocka_unit_test(many_and_pauses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
