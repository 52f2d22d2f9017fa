/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bad access in a kernel ends the process, as in any program; before that a line says which kernel, block and thread it was,
 * which neither a core file nor a debugger shows by itself. Only signals that would do what they do by default
 * anyway are looked at: a program's own handlers, a sanitizer's or a debugger's are left alone.
 */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "platform/cpu/sched.h"

static const int signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL };

#define SIGNALS (sizeof(signals) / sizeof(signals[0]))
#define NULL_PAGE 4096 /* members of what NULL points to are there */

/* Text that is put together without the C library, which may be in the middle of something. */
struct line {
	char text[256];
	size_t n;
};

static void add(struct line *l, const char *text)
{
	while (*text && l->n < sizeof(l->text))
		l->text[l->n++] = *text++;
}

static void add_number(struct line *l, uint64_t v, unsigned base)
{
	char digits[24];
	unsigned n = sizeof(digits) - 1;

	digits[n] = '\0';
	do {
		digits[--n] = "0123456789abcdef"[v % base];
		v /= base;
	} while (v);
	add(l, digits + n);
}

static void add_dim(struct line *l, const struct gpunet_cpu_dim *d)
{
	add(l, "(");
	add_number(l, d->x, 10);
	add(l, ",");
	add_number(l, d->y, 10);
	add(l, ",");
	add_number(l, d->z, 10);
	add(l, ")");
}

static const char *name_of(int sig)
{
	switch (sig) {
	case SIGSEGV:
		return "SIGSEGV, a bad access";
	case SIGBUS:
		return "SIGBUS, a bad access";
	case SIGFPE:
		return "SIGFPE, such as a division by zero";
	default:
		return "SIGILL, no instruction";
	}
}

static void say(const struct cpu_fiber *f, int sig, const void *at)
{
	struct line l = { .n = 0 };

	add(&l, "gpunet: error: kernel ");
	add_number(&l, f->block->launch->number, 10);
	add(&l, " on the CPU device, block ");
	add_dim(&l, &f->block->pub.block_idx);
	add(&l, ", thread ");
	add_dim(&l, &f->pub.thread_idx);
	add(&l, ": ");
	add(&l, name_of(sig));
	add(&l, ", at 0x");
	add_number(&l, (uint64_t)(uintptr_t)at, 16);
	if ((uintptr_t)at < NULL_PAGE)
		add(&l,
		    "; NULL was used: a network that the kernel's arguments do not have, perhaps\n");
	else
		add(&l, "; a frame beyond the thread's stack does that, too\n");
	if (write(STDERR_FILENO, l.text, l.n) < 0)
		return; /* nobody is told */
}

/*
 * A worker, by the stack that it has given its handlers: another thread's own data may not exist yet, if the library was
 * loaded late, and making them allocates, which must not happen where a crash in the allocator is being handled.
 */
static const struct cpu_fiber *crashed_fiber(void)
{
	stack_t s;

	return !sigaltstack(NULL, &s) && (s.ss_flags & SS_ONSTACK) ? cpu_self() : NULL;
}

static void set_default(int sig)
{
	struct sigaction none = { .sa_flags = 0 };

	none.sa_handler = SIG_DFL;
	sigemptyset(&none.sa_mask);
	sigaction(sig, &none, NULL);
}

/* Blocks often crash together: one says so, and the others do not end the process before it has. */
static void say_once(const struct cpu_fiber *f, int sig, const void *at)
{
	static int said; /* 1: somebody is at it, 2: done */
	int none = 0;

	if (__atomic_compare_exchange_n(&said, &none, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		say(f, sig, at);
		__atomic_store_n(&said, 2, __ATOMIC_RELEASE);
	}
	while (__atomic_load_n(&said, __ATOMIC_ACQUIRE) == 1)
		sched_yield();
}

/* Afterwards the instruction is tried again and ends the process, where it stands. */
static void crashed(int sig, siginfo_t *info, void *context)
{
	const struct cpu_fiber *f;

	(void)context;
	if (info->si_code <= 0) {
		set_default(sig);
		raise(sig); /* somebody has sent it: nothing would send it again */
		return;
	}
	f = crashed_fiber();
	if (f && f->block)
		say_once(f, sig, info->si_addr);
	set_default(sig);
}

static int ours(int sig)
{
	struct sigaction is;

	return !sigaction(sig, NULL, &is) && (is.sa_flags & SA_SIGINFO) &&
	       is.sa_sigaction == crashed;
}

void cpu_crash_watch(void)
{
	struct sigaction act = { .sa_flags = SA_SIGINFO | SA_ONSTACK }, is;
	unsigned i;

	if (CPU_ASAN || CPU_TSAN)
		return;
	act.sa_sigaction = crashed;
	sigemptyset(&act.sa_mask);
	for (i = 0; i < SIGNALS; i++) {
		if (!sigaction(signals[i], NULL, &is) && !(is.sa_flags & SA_SIGINFO) &&
		    is.sa_handler == SIG_DFL)
			sigaction(signals[i], &act, NULL);
	}
}

void cpu_crash_unwatch(void)
{
	unsigned i;

	for (i = 0; i < SIGNALS; i++) {
		if (ours(signals[i]))
			set_default(signals[i]);
	}
}

void cpu_crash_thread(void *stack, size_t size)
{
	stack_t s = { .ss_flags = stack ? 0 : SS_DISABLE };
	sigset_t set;
	unsigned i;

	s.ss_sp = stack;
	s.ss_size = size;
	/* Without it a frame beyond the stack is a crash that says nothing. Sanitizers have their own. */
	if (!CPU_ASAN && !CPU_TSAN)
		sigaltstack(&s, NULL);
	/* Of the signals that the library's threads do not take these are no messages: blocked, they end the process unseen. */
	sigemptyset(&set);
	for (i = 0; i < SIGNALS; i++)
		sigaddset(&set, signals[i]);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
