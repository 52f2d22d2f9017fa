/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory at fixed addresses, so that what depends on an address (the topics of the CPU device's events, say) is the same in each
 * run. What was given back is not given out again: it is filled with garbage, or unmapped, so that a use of it shows.
 */
#include "sim.h"

#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "platform/cpu/sanitize.h"

#define SMALL ((char *)UINT64_C(0x100000000000))
#define SMALL_SIZE ((size_t)64 << 20)
#define LARGE ((char *)UINT64_C(0x110000000000))
#define LARGE_SIZE ((size_t)4 << 30)
#define PAGE ((size_t)4096)

struct block {
	size_t n;
	uint64_t magic;
};

#define LIVE UINT64_C(0x6c69766520626c6b)
#define DEAD UINT64_C(0x6465616420626c6b)

static size_t large_at;
static unsigned live;
unsigned sim_alloc_faults;

static char *region(char *at, size_t size)
{
	char *p = mmap(at, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (p != at)
		sim_fail("no memory at %p", (void *)at);
	return p;
}

static struct block *small(size_t size)
{
#if CPU_ASAN
	return calloc(1, size);
#else
	static size_t at;
	char *p;

	if (!at)
		region(SMALL, SMALL_SIZE);
	p = SMALL + at;
	at += (size + 63) & ~(size_t)63;
	if (at > SMALL_SIZE)
		sim_fail("more than %zu bytes were allocated", SMALL_SIZE);
	return (struct block *)(void *)p;
#endif
}

void *sim_alloc(size_t n)
{
	struct block *b;

	sim_point();
	if (sim_chance(sim_alloc_faults)) {
		sim_note("fault: no memory for %zu bytes", n);
		return NULL;
	}
	live++;
	b = small(sizeof(*b) + n);
	if (!b)
		sim_fail("no memory for %zu bytes", n);
	b->n = n;
	b->magic = LIVE;
	return b + 1;
}

void sim_free(void *p)
{
	struct block *b;

	if (!p)
		return;
	b = (struct block *)p - 1;
	if (b->magic != LIVE)
		sim_fail("%p is freed, %s", p,
			 b->magic == DEAD ? "twice" : "but was not allocated");
	b->magic = DEAD;
	live--;
#if CPU_ASAN
	free(b);
#else
	memset(p, 0xdb, b->n);
#endif
}

void *sim_map(size_t n)
{
	char *p = LARGE + large_at;

	sim_point();
	if (!large_at)
		region(LARGE, LARGE_SIZE);
	large_at += ((n + PAGE - 1) & ~(PAGE - 1)) + PAGE;
	if (large_at > LARGE_SIZE)
		sim_fail("more than %zu bytes were mapped", LARGE_SIZE);
	live++;
	return p;
}

void sim_unmap(void *p, size_t n)
{
	if (mprotect(p, n, PROT_NONE))
		sim_fail("%p, %zu bytes, is unmapped, but is no mapping", p, n);
	live--;
}

unsigned sim_leaks(void)
{
	return live;
}
