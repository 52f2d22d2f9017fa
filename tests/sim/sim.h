/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulation: the whole library, its threads, its kernels and the host's sockets in one OS thread from one seed.
 *
 * Nothing of the library is replaced above the C library. Its threads become coroutines here, since pthread_create, locks,
 * futexes, sleeps and clocks are wrapped at link time (wrap.c); the host's sockets are those of host.c, behind base/sys.h; and the
 * library's atomic accesses are macros (points.h), where another thread may go on. So every order of atomic accesses, system calls
 * and wake-ups can happen, the clock moves only when nobody can run (and a little with each step), and one number gives the same run
 * again, whatever the compiler.
 */
#ifndef GPUNET_TESTS_SIM_H
#define GPUNET_TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_NEVER UINT64_MAX

/* Exit codes of a seed's process. */
enum { SIM_OK = 0, SIM_FAILED = 1, SIM_DEADLOCK = 3, SIM_ENDLESS = 4 };

/* What differs from run to run; set before sim_begin. */
struct sim_options {
	uint64_t seed;
	unsigned trace;     /* 1: calls and their results; 2: every switch as well */
	uint64_t max_steps; /* more are taken for a run that goes nowhere */
	uint64_t max_ns;    /* the same by the virtual clock */
};

extern bool sim_on;      /* between sim_begin and the end of the process */
extern int sim_mutant;   /* which planted fault is in force; 0: none */
extern int sim_gpu_like; /* kernels cannot wake proxy threads */
extern int sim_naps;     /* waits that last long nap, as on a GPU */
/* The longest nap without a hint, ns. For ever, nearly, where none may get lost. */
extern unsigned long sim_belt;
extern unsigned long sim_first; /* where positions begin */
extern int sim_late;            /* what blocks store without order arrives late */

/* The caller becomes thread 0. */
void sim_begin(const struct sim_options *o);
/* All other threads must have ended. Returns the hash of all that happened. */
uint64_t sim_end(void);
/* Prints what each thread waits for. Called when the run fails, after sim_fail's own line. */
extern void (*sim_report)(void);

/* ---- threads --------------------------------------------------------------------------------------------------------- */

/* A new thread; its number. */
unsigned sim_spawn(const char *name, void *(*fn)(void *), void *arg);
void sim_join(unsigned thread);
/* Waits for the threads that nobody joins. */
void sim_detached_end(void);
/* Another thread may go on here. */
void sim_point(void);
/* The same, and at times for long: where a thread is about to say something that others look at. */
void sim_stall(void);
/* Another thread does go on if one can. */
void sim_yield(void);
/* For changed sources: what is about to be stored late belongs to this descriptor's life, and is no older than what is there. */
void sim_in_life(int fd, unsigned long life);
void sim_goes_on(unsigned long was, unsigned long head);
/* Waits until sim_wake(word, ...) or `deadline`: true if it was woken. `what`: for reports. */
bool sim_park(const void *word, uint64_t deadline, const char *what);
/* Wakes up to `n` threads that wait for `word`, any of them: how many. */
unsigned sim_wake(const void *word, unsigned n);
unsigned sim_self(void);
void sim_name(const char *name);

/* ---- time ------------------------------------------------------------------------------------------------------------ */

uint64_t sim_now(void);
struct sim_timer {
	struct sim_timer *next;
	uint64_t at;
	void (*fn)(void *arg);
	void *arg;
};
/* `fn` runs when the clock has reached t->at, in whatever thread runs then. */
void sim_timer(struct sim_timer *t, uint64_t at, void (*fn)(void *), void *arg);

/* ---- chance: for programs and faults; the scheduler has numbers of its own -------------------------------------------- */

uint64_t sim_random(void);
uint32_t sim_below(uint32_t n);
bool sim_chance(uint32_t per_mille);
/* One of the numbers from low to high. */
uint32_t sim_between(uint32_t low, uint32_t high);

/* ---- memory: at the same addresses in each run ------------------------------------------------------------------------ */

void *sim_alloc(size_t n); /* zeroed */
void sim_free(void *p);
void *sim_map(size_t n); /* whole pages, zeroed */
void sim_unmap(void *p, size_t n);
/* Allocations that were not given back. */
unsigned sim_leaks(void);
/* The next allocations may fail; per mille. */
extern unsigned sim_alloc_faults;

/* ---- what happened ---------------------------------------------------------------------------------------------------- */

/* Goes into the hash, and to standard error with the option trace. */
void sim_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Something is wrong: says so and ends the process with SIM_FAILED. */
void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
