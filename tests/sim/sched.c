/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads as coroutines, the virtual clock, and who goes on next. */
#include "sim.h"

#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform/cpu/sched.h"

void *make_fcontext(void *stack_top, size_t size, void (*fn)(struct cpu_jump));

#define MOST_THREADS 64
#define STACK ((size_t)256 << 10)
#define NEW_WEIGHTS 256 /* choices from one draw of the threads' weights to the next */

enum state { RUNS, WAITS, ENDED };

struct thread {
	char name[24];
	void *context; /* where it goes on */
	void *(*fn)(void *);
	void *arg;
	enum state state;
	const void *word;
	const char *what;
	uint64_t deadline;
	bool woken;
	unsigned weight;
	uint64_t stall; /* the step from which on it goes on, or when nobody else can */
	int err;        /* its errno */
	char *tls;
	void *asan_stack;
	const void *stack; /* the one that it was on when it stopped: a fiber's, say */
	size_t stack_size;
};

static struct {
	struct sim_options o;
	uint64_t random, choice; /* two sequences */
	uint64_t now, next_due, steps, hash;
	int countdown; /* points to the next switch */
	unsigned quantum, choices;
	struct thread t[MOST_THREADS];
	unsigned n, self;
	struct sim_timer *timers; /* in their order */
	char *tls; /* this OS thread's image of the program's thread-local variables */
	size_t tls_size, tls_init_size;
	const void *tls_init;
} sim;

bool sim_on;
int sim_mutant, sim_gpu_like, sim_late, sim_naps;
unsigned long sim_belt = 1000000, sim_first;
void (*sim_report)(void);

/* ---- chance ---------------------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static uint64_t next(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	return mix(*state);
}

static uint32_t below(uint64_t *state, uint32_t n)
{
	return (uint32_t)((next(state) >> 32) * n >> 32);
}

uint64_t sim_random(void)
{
	return next(&sim.random);
}

uint32_t sim_below(uint32_t n)
{
	return below(&sim.random, n);
}

bool sim_chance(uint32_t per_mille)
{
	return per_mille && below(&sim.random, 1000) < per_mille;
}

uint32_t sim_between(uint32_t low, uint32_t high)
{
	return low + below(&sim.random, high - low + 1);
}

/* ---- what happened ---------------------------------------------------------------------------------------------------- */

static void hash_in(uint64_t v)
{
	sim.hash = mix(sim.hash ^ v);
}

void sim_note(const char *fmt, ...)
{
	char text[256];
	const char *p;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (p = text; *p; p++)
		sim.hash = (sim.hash ^ (uint8_t)*p) * UINT64_C(0x100000001b3);
	hash_in(sim.now);
	if (sim.o.trace)
		fprintf(stderr, "%10llu.%03u %-10s %s\n", (unsigned long long)(sim.now / 1000),
			(unsigned)(sim.now % 1000), sim.t[sim.self].name, text);
}

static void report(void)
{
	unsigned i;

	for (i = 0; i < sim.n; i++) {
		const struct thread *t = &sim.t[i];

		if (t->state == ENDED)
			continue;
		fprintf(stderr, "  %-12s %s%s", t->name,
			t->state == RUNS ? "runs" : "waits: ", t->state == RUNS ? "" : t->what);
		if (t->state == WAITS && t->deadline != SIM_NEVER)
			fprintf(stderr, " until %llu us", (unsigned long long)(t->deadline / 1000));
		fprintf(stderr, "\n");
	}
	if (sim_report)
		sim_report();
}

static void give_up(int code, const char *text)
{
	sim_on = false;
	fprintf(stderr, "seed %llu: %s (at %llu us, step %llu, thread %s)\n",
		(unsigned long long)sim.o.seed, text, (unsigned long long)(sim.now / 1000),
		(unsigned long long)sim.steps, sim.t[sim.self].name);
	report();
	fflush(stderr);
	_exit(code);
}

void sim_fail(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	give_up(SIM_FAILED, text);
	_exit(SIM_FAILED);
}

/* ---- the switch --------------------------------------------------------------------------------------------------------- */

static void arrived(struct cpu_jump j)
{
	struct thread *from = j.data;

	from->context = j.context;
#if CPU_ASAN
	__sanitizer_finish_switch_fiber(sim.t[sim.self].asan_stack, &from->stack,
					&from->stack_size);
#endif
}

static void switch_to(unsigned to, bool ends)
{
	struct thread *from = &sim.t[sim.self], *t = &sim.t[to];

	hash_in(to);
	if (sim.o.trace > 1)
		fprintf(stderr, "%10llu.%03u -> %s\n", (unsigned long long)(sim.now / 1000),
			(unsigned)(sim.now % 1000), t->name);
	if (t == from)
		return;
	from->err = errno;
	memcpy(from->tls, sim.tls, sim.tls_size);
	memcpy(sim.tls, t->tls, sim.tls_size);
	sim.self = to;
#if CPU_ASAN
	__sanitizer_start_switch_fiber(ends ? NULL : &from->asan_stack, t->stack, t->stack_size);
#endif
	(void)ends;
	arrived(jump_fcontext(t->context, from));
	errno = sim.t[sim.self].err;
}

/* ---- time ------------------------------------------------------------------------------------------------------------ */

uint64_t sim_now(void)
{
	return sim.now;
}

void sim_timer(struct sim_timer *t, uint64_t at, void (*fn)(void *), void *arg)
{
	struct sim_timer **p = &sim.timers;

	t->at = at;
	t->fn = fn;
	t->arg = arg;
	while (*p && (*p)->at <= at)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
	if (at < sim.next_due)
		sim.next_due = at;
}

/* Does all that is due and finds out when the next thing is. */
static void fire(void)
{
	unsigned i;

	while (sim.timers && sim.timers->at <= sim.now) {
		struct sim_timer *t = sim.timers;

		sim.timers = t->next;
		t->fn(t->arg);
	}
	sim.next_due = sim.timers ? sim.timers->at : SIM_NEVER;
	for (i = 0; i < sim.n; i++) {
		struct thread *t = &sim.t[i];

		if (t->state != WAITS)
			continue;
		if (t->deadline <= sim.now)
			t->state = RUNS;
		else if (t->deadline < sim.next_due)
			sim.next_due = t->deadline;
	}
}

/* ---- who goes on ------------------------------------------------------------------------------------------------------ */

/* At times some threads are much slower than others, as on a machine with too much to do. */
static void draw_weights(void)
{
	static const unsigned weights[] = { 1, 16, 16, 16, 16, 64, 256 };
	unsigned i;

	for (i = 0; i < sim.n; i++)
		sim.t[i].weight = weights[below(&sim.choice, 7)];
}

static void new_countdown(void)
{
	sim.countdown = 1 + (int)below(&sim.choice, 2 * sim.quantum);
}

static uint32_t weight(const struct thread *t)
{
	return t->state == RUNS && t->stall <= sim.steps ? t->weight : 0;
}

/* What all threads weigh that can run; at worst the stalled ones. */
static uint32_t weigh(void)
{
	uint32_t sum = 0;
	unsigned i;

	for (i = 0; i < sim.n; i++)
		sum += weight(&sim.t[i]);
	if (sum)
		return sum;
	for (i = 0; i < sim.n; i++) {
		sim.t[i].stall = 0;
		sum += weight(&sim.t[i]);
	}
	return sum;
}

/* The next thread that can run; the clock moves if none can. */
static unsigned pick(void)
{
	uint32_t sum, at;
	unsigned i;

	if (!sim.choices--) {
		sim.choices = NEW_WEIGHTS;
		draw_weights();
	}
	for (;;) {
		if (sim.now >= sim.next_due)
			fire();
		sum = weigh();
		if (sum)
			break;
		if (sim.next_due == SIM_NEVER)
			give_up(SIM_DEADLOCK, "deadlock: nobody can run and no timer is set");
		sim.now = sim.next_due;
		if (sim.now > sim.o.max_ns)
			give_up(SIM_ENDLESS, "the run goes nowhere: its time is over");
	}
	at = below(&sim.choice, sum);
	for (i = 0;; i++) {
		uint32_t w = weight(&sim.t[i]);

		if (at < w)
			return i;
		at -= w;
	}
}

static void reschedule(bool ends)
{
	unsigned to = pick();

	new_countdown();
	switch_to(to, ends);
}

void sim_point(void)
{
	if (!sim_on)
		return;
	sim.now += 3;
	sim.steps++;
	if (--sim.countdown > 0)
		return;
	if (sim.steps > sim.o.max_steps)
		give_up(SIM_ENDLESS, "the run goes nowhere: its steps are used up");
	reschedule(false);
}

void sim_stall(void)
{
	if (!sim_on || below(&sim.choice, 4))
		return;
	sim.t[sim.self].stall = sim.steps + below(&sim.choice, 1u << below(&sim.choice, 10));
	sim.countdown = 1;
	sim_point();
}

void sim_yield(void)
{
	if (!sim_on)
		return;
	sim.now += 50;
	sim.steps += 20;
	sim.countdown = 1;
	sim_point();
}

bool sim_park(const void *word, uint64_t deadline, const char *what)
{
	struct thread *t = &sim.t[sim.self];

	t->word = word;
	t->what = what;
	t->deadline = deadline;
	t->woken = false;
	t->state = WAITS;
	if (deadline < sim.next_due)
		sim.next_due = deadline;
	sim.now += 100;
	sim.steps++;
	if (sim.steps > sim.o.max_steps)
		give_up(SIM_ENDLESS, "the run goes nowhere: its steps are used up");
	reschedule(false);
	return t->woken;
}

unsigned sim_wake(const void *word, unsigned n)
{
	unsigned first = below(&sim.choice, sim.n), i, woken = 0;

	for (i = 0; i < sim.n && woken < n; i++) {
		struct thread *t = &sim.t[(first + i) % sim.n];

		if (t->state != WAITS || t->word != word)
			continue;
		t->state = RUNS;
		t->woken = true;
		woken++;
	}
	return woken;
}

/* ---- threads --------------------------------------------------------------------------------------------------------- */

unsigned sim_self(void)
{
	return sim.self;
}

void sim_name(const char *name)
{
	snprintf(sim.t[sim.self].name, sizeof(sim.t[0].name), "%s", name);
}

static void thread_main(struct cpu_jump j)
{
	struct thread *t = &sim.t[sim.self];

	arrived(j);
	t->fn(t->arg);
	t->state = ENDED;
	sim_wake(t, MOST_THREADS);
	reschedule(true);
}

static char *tls_new(void)
{
	char *p = calloc(1, sim.tls_size + 1);

	if (!p)
		sim_fail("no memory for a thread");
	memcpy(p, sim.tls_init, sim.tls_init_size);
	return p;
}

static struct thread *thread_new(const char *name)
{
	struct thread *t = &sim.t[sim.n];

	if (sim.n == MOST_THREADS)
		sim_fail("more than %d threads", MOST_THREADS);
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->tls = tls_new();
	t->weight = 16;
	t->state = RUNS;
	sim.n++;
	return t;
}

unsigned sim_spawn(const char *name, void *(*fn)(void *), void *arg)
{
	struct thread *t = thread_new(name);
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (stack == MAP_FAILED)
		sim_fail("no memory for a thread's stack");
	t->fn = fn;
	t->arg = arg;
	t->stack = stack;
	t->stack_size = STACK;
	t->context = make_fcontext(stack + STACK, STACK, thread_main);
	return (unsigned)(t - sim.t);
}

void sim_join(unsigned thread)
{
	while (sim.t[thread].state != ENDED)
		sim_park(&sim.t[thread], SIM_NEVER, "a thread's end");
}

/* The program's own thread-local variables: those of the library and of kernels' __shared__ are among them. */
static int find_tls(struct dl_phdr_info *info, size_t size, void *arg)
{
	unsigned i;

	(void)size;
	(void)arg;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];

		if (h->p_type != PT_TLS)
			continue;
		sim.tls = info->dlpi_tls_data;
		sim.tls_size = h->p_memsz;
		sim.tls_init = (const void *)(info->dlpi_addr + h->p_vaddr);
		sim.tls_init_size = h->p_filesz;
	}
	return 1; /* the first object is the program */
}

/* ---- begin and end ------------------------------------------------------------------------------------------------------ */

void sim_begin(const struct sim_options *o)
{
	static const unsigned quanta[] = { 1, 3, 10, 10, 30, 100, 300, 2000 };

	sim.o = *o;
	sim.random = mix(o->seed ^ 1);
	sim.choice = mix(o->seed ^ 2);
	sim.next_due = SIM_NEVER;
	sim.now = 1000000;
	sim.quantum = quanta[below(&sim.choice, 8)];
	new_countdown();
	dl_iterate_phdr(find_tls, NULL);
	thread_new("main");
	sim_on = true;
}

uint64_t sim_end(void)
{
	unsigned i;

	for (i = 1; i < sim.n; i++) {
		if (sim.t[i].state != ENDED)
			sim_fail("thread %s has not ended", sim.t[i].name);
	}
	sim_on = false;
	hash_in(sim.now);
	hash_in(sim.steps);
	return sim.hash;
}
