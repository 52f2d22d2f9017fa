/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs seeds, each in a process of its own, so that a crash is that seed's only and each begins alike. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <gpunet/gpunet.h>

#include "dgmix.h"
#include "dgram.h"
#include "ends.h"
#include "host.h"
#include "misuse.h"
#include "mixed.h"
#include "platform/cpu/cpu.h"
#include "sim.h"
#include "socket/net.h"
#include "world.h"

#define SEED_SECONDS 120 /* of real time, for one seed */

static const char usage[] =
	"usage: sim [--first N] [--count N] [--seconds N] [--mutant N] [--expect-failure] [--twice] [--hashes]\n"
	"       sim --seed N [--trace[=2]] [--mutant N]\n"
	"\n"
	"Runs the library from seeds, N of them from the first on, until the time is over. A seed that fails is\n"
	"printed; --seed runs it again, exactly, and --trace prints what happens in it. --hashes prints a number\n"
	"for each seed that stands for all that happened.\n";

/* What the parent gets from a seed's process. */
struct outcome {
	uint64_t hash;
};

static struct outcome *outcome;

/* ---- one seed ------------------------------------------------------------------------------------------------------------ */

static struct host_params any_host(void)
{
	struct host_params p = { .buffer = 16u << sim_below(13) };
	struct host_faults *f = &p.faults;

	if (sim_chance(500))
		p.delay_ns = 1u << sim_between(8, 20);
	f->at_once = sim_below(1000);
	if (sim_chance(300))
		return p;
	f->short_io = sim_chance(500) ? 300 : 0;
	f->eintr = sim_chance(500) ? 30 : 0;
	f->enobufs = sim_chance(300) ? 20 : 0;
	f->emfile = sim_chance(300) ? 200 : 0;
	f->aborted = sim_chance(300) ? 100 : 0;
	f->spurious = sim_chance(300) ? 100 : 0;
	return p;
}

static gpunet_t *any_net(const struct world *w)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	gpunet_t *g = NULL;
	int rc;

	o.device = "cpu";
	o.proxy_threads = sim_chance(600) ? 1 : sim_between(2, 3);
	o.spin_us = sim_chance(500) ? 0 : (int)sim_between(1, 5);
	o.max_sockets = sim_chance(500) && !w->misuse && !w->n_dgrams && !w->n_ends &&
					!w->n_mixed && !w->n_dgmix
				? 16
				: 64;
	o.segment_bytes = 16384;
	/* Few segments, so that they have to be shared. */
	o.slab_bytes = sim_chance(400) && !w->n_dgrams ? 65536 : 1 << 20;
	sim_gpu_like = sim_chance(200);
	sim_naps = sim_gpu_like && (w->narrow || sim_chance(500));
	sim_belt = w->abort_after ? 1000000 : 3600000000000u; /* an abort gives no hint */
	sim_late = sim_chance(300);
	o.sentinel_us = sim_between(10, 1000);
	o.queue_entries = 64;
	o.calls = 64;
	o.linger_ms = 10000;
	o.cpu_blocks = 64;
	o.cpu_seed = sim_random() | 1;
	rc = gpunet_open(&g, &o);
	if (rc)
		sim_fail("gpunet_open: %s", gpunet_last_error());
	return g;
}

static int no_protection(void *p, size_t n)
{
	(void)p;
	(void)n;
	return 0;
}

void sim_in_life(int fd, unsigned long life)
{
	if (life >> GNET_L_GEN_SHIFT != GNET_FD_GEN(fd))
		sim_fail("a position of %x arrives after its end", fd);
}

void sim_goes_on(unsigned long was, unsigned long head)
{
	if ((long)(head - was) < 0)
		sim_fail("a head goes back from %lu to %lu", was, head);
}

/*
 * Where positions begin, of some seeds, which draw no number for that (one in four, and each second one with what mixed.c or dgmix.c does):
 * a little before one at which a copy of them wraps (2^24, 2^32, 2^41, 2^48) or a difference changes its sign. Datagrams want multiples of 16.
 */
static uint64_t first_position(uint64_t seed)
{
	static const unsigned bits[] = { 32, 24, 31, 32, 41, 40, 48, 32 };
	uint64_t n = seed % 4 == 2 ? seed / 4 : seed / 8;

	if (seed % 4 != 2 && seed % 8 != 3 && seed % 16 != 12)
		return 0;
	return (UINT64_C(1) << bits[n % 8]) - 16 * (n * 7919 % (n % 3 ? 20 : 800));
}

/* What else happens beside the programs. Of those with a seed's number alone, which draw none, the other seeds know nothing. */
static void make_others(struct world *w, uint64_t seed)
{
	w->misuse = !w->narrow && sim_chance(400) ? sim_alloc(misuse_size()) : NULL;
	w->dgrams = !w->narrow && sim_chance(300) ? sim_alloc(dgram_size()) : NULL;
	w->n_dgrams = w->dgrams ? dgram_make(w, w->dgrams) : 0;
	w->ends = !w->narrow && seed % 4 == 1 ? sim_alloc(ends_size()) : NULL;
	w->n_ends = w->ends ? ends_make(w, w->ends, (unsigned)(seed / 4)) : 0;
	w->mixed = !w->narrow && seed % 4 == 3 ? sim_alloc(mixed_size()) : NULL;
	w->n_mixed = w->mixed ? mixed_make(w, w->mixed) : 0;
	w->dgmix = !w->narrow && seed % 8 == 4 ? sim_alloc(dgmix_size()) : NULL;
	w->n_dgmix = w->dgmix ? dgmix_make(w, w->dgmix) : 0;
}

static uint64_t run_seed(const struct sim_options *o)
{
	struct host_params hp;
	struct world *w;
	gpunet_t *g;
	int rc;

	sim_begin(o);
	sim_first = first_position(o->seed);
	sim_report = world_report;
	hp = any_host();
	host_begin(&hp);
	cpu_hooks.protect = no_protection; /* system calls that are of no use here */
	w = sim_alloc(sizeof(*w));
	world_make(w);
	make_others(w, o->seed);
	world_host_begin(w);
	g = any_net(w);
	w->net = gpunet_device(g);
	program_launch(g, w);
	world_chaos_begin(w, g);
	rc = g->platform->sync(g->dev, UINT64_MAX);
	if (rc)
		sim_fail("the kernel ended with %s: %s", strerror(-rc), gpunet_last_error());
	world_chaos_end(w);
	if (!w->abort_after)
		world_host_end(w);
	rc = gpunet_drain(g, 60000);
	if (rc && !w->aborted)
		sim_fail("gpunet_drain: %s", strerror(-rc));
	if (!w->aborted && atomic_load(&g->sockets.open) != world_left(w))
		sim_fail("%u sockets are open, should be %u",
			 (unsigned)atomic_load(&g->sockets.open), world_left(w));
	rc = gpunet_close(g, 60000);
	if (rc)
		sim_fail("gpunet_close: %s", strerror(-rc));
	if (w->abort_after)
		world_host_end(w);
	if (w->misuse)
		misuse_end(w->misuse);
	if (w->ends)
		ends_end(w, w->ends);
	sim_detached_end();
	world_check(w);
	if (host_open_files())
		sim_fail("%u of the host's descriptors are still open", host_open_files());
	if (w->dgrams)
		dgram_check(w, w->dgrams);
	if (w->dgmix)
		dgmix_check(w->dgmix);
	sim_free(w->dgmix);
	sim_free(w->mixed);
	sim_free(w->ends);
	sim_free(w->dgrams);
	sim_free(w->misuse);
	sim_free(w);
	if (sim_leaks())
		sim_fail("%u allocations were not given back", sim_leaks());
	return sim_end();
}

/* ---- many seeds ----------------------------------------------------------------------------------------------------------- */

/* The process's status: 0 if all was well. */
static int run_child(const struct sim_options *o, bool quiet)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		fprintf(stderr, "fork: %s\n", strerror(errno));
		return -1;
	}
	if (!pid) {
		alarm(SEED_SECONDS);
		if (quiet && !freopen("/dev/null", "w", stderr))
			_exit(SIM_FAILED);
		outcome->hash = run_seed(o);
		_exit(SIM_OK);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
	}
	if (status && WIFSIGNALED(status) && !quiet)
		fprintf(stderr, "seed %llu: killed by signal %d (%s)\n",
			(unsigned long long)o->seed, WTERMSIG(status), strsignal(WTERMSIG(status)));
	return status;
}

struct command {
	uint64_t first, count, seconds;
	bool one, expect_failure, twice, hashes;
	struct sim_options o;
};

/* What seeds have used, or by the clock. */
static uint64_t seconds_now(bool used)
{
	struct timespec t;
	struct rusage r;

	if (used) {
		getrusage(RUSAGE_CHILDREN, &r);
		return (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec);
	}
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec;
}

static int run_many(struct command *c)
{
	/* A fault must be found on a busy machine, too. */
	uint64_t end = seconds_now(c->expect_failure) + c->seconds, n, failed = 0, hash;

	for (n = 0; n < c->count && failed < 10; n++) {
		if (c->seconds && seconds_now(c->expect_failure) >= end)
			break;
		c->o.seed = c->first + n;
		if (run_child(&c->o, c->expect_failure)) {
			failed++;
			if (c->expect_failure)
				break;
			continue;
		}
		hash = outcome->hash;
		if (c->hashes)
			printf("seed %llu: hash %016llx\n", (unsigned long long)c->o.seed,
			       (unsigned long long)hash);
		if (c->twice && (run_child(&c->o, false) || outcome->hash != hash)) {
			fprintf(stderr, "seed %llu: two runs differ\n",
				(unsigned long long)c->o.seed);
			failed++;
		}
	}
	if (c->expect_failure) {
		printf("mutant %d: %s after %llu seeds\n", sim_mutant,
		       failed ? "found" : "NOT FOUND", (unsigned long long)n + (failed ? 1 : 0));
		return failed ? EXIT_SUCCESS : EXIT_FAILURE;
	}
	printf("%llu seeds, %llu failed\n", (unsigned long long)n, (unsigned long long)failed);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int run_one(struct command *c)
{
	int status = run_child(&c->o, false);

	if (!status)
		printf("seed %llu: hash %016llx\n", (unsigned long long)c->o.seed,
		       (unsigned long long)outcome->hash);
	return status ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int parse(int argc, char **argv, struct command *c)
{
	static const struct option options[] = {
		{ "first", required_argument, NULL, 'f' },
		{ "count", required_argument, NULL, 'n' },
		{ "seconds", required_argument, NULL, 's' },
		{ "mutant", required_argument, NULL, 'm' },
		{ "seed", required_argument, NULL, 'o' },
		{ "trace", optional_argument, NULL, 't' },
		{ "twice", no_argument, NULL, '2' },
		{ "expect-failure", no_argument, NULL, 'e' },
		{ "hashes", no_argument, NULL, 'h' },
		{ 0 },
	};
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (o) {
		case 'f':
			c->first = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			c->count = strtoull(optarg, NULL, 0);
			break;
		case 's':
			c->seconds = strtoull(optarg, NULL, 0);
			break;
		case 'm':
			sim_mutant = atoi(optarg);
			break;
		case 'o':
			c->one = true;
			c->o.seed = strtoull(optarg, NULL, 0);
			break;
		case 't':
			c->o.trace = optarg ? (unsigned)atoi(optarg) : 1;
			break;
		case '2':
			c->twice = true;
			break;
		case 'e':
			c->expect_failure = true;
			break;
		case 'h':
			c->hashes = true;
			break;
		default:
			return -1;
		}
	}
	return optind == argc ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct command c = { .first = 1,
			     .count = 100,
			     .o = { .max_steps = 30000000, .max_ns = 3600000000000u } };

	if (parse(argc, argv, &c)) {
		fputs(usage, stderr);
		return 2;
	}
	setenv("GPUNET_CPU_WATCHDOG_MS", "0", 1);
	setenv("GPUNET_LOG", "error", 1); /* always: each line has its own accesses */
	outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	if (outcome == MAP_FAILED)
		return 2;
	return c.one ? run_one(&c) : run_many(&c);
}
