/* SPDX-License-Identifier: BSD-3-Clause */
#include "bus.h"

#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALARM_S 58

static uint64_t *abort_cell;

/*
 * The first alarm tells kernels to stop, the second ends the process: a kernel that cannot hear is
 * the driver's.
 */
static void on_alarm(int sig)
{
	static const char text[] = "bench-bus: over its time\n";

	(void)sig;
	if (!abort_cell || *abort_cell)
		_exit(3);
	bus_store(abort_cell, 1);
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(3);
	alarm(5);
}

void bus_begin(struct bus *b)
{
	memset(b->cells, 0, BUS_CELLS * BUS_LINE * sizeof(uint64_t));
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

int bus_launched(const char *name)
{
	const cudaError_t err = cudaGetLastError();

	if (err != cudaSuccess)
		fprintf(stderr, "bench-bus: %s: cannot launch: %s\n", name,
			cudaGetErrorString(err));
	return err == cudaSuccess;
}

int bus_wait(struct bus *b, const uint64_t *p, uint64_t v)
{
	uint64_t end = 0;
	unsigned turns;

	for (turns = 0; bus_load(p) != v; turns++) {
		bus_pause();
		if (turns % 65536u != 65535u)
			continue;
		if (!end)
			end = bus_now() + BUS_LIMIT_NS;
		if (bus_now() > end || bus_load(bus_cell(b, BUS_ABORT))) {
			bus_store(bus_cell(b, BUS_ABORT), 1);
			return -1;
		}
	}
	return 0;
}

int bus_end(struct bus *b, const char *name, int ok)
{
	uint64_t end = bus_now() + BUS_LIMIT_NS;
	cudaError_t err;

	if (!ok)
		bus_store(bus_cell(b, BUS_ABORT), 1);
	while ((err = cudaStreamQuery(b->stream)) == cudaErrorNotReady) {
		if (bus_now() > end) {
			bus_store(bus_cell(b, BUS_ABORT), 1);
			if (bus_now() > end + BUS_LIMIT_NS) {
				fprintf(stderr, "bench-bus: %s: the kernel does not stop\n", name);
				_exit(3);
			}
		}
	}
	if (err != cudaSuccess) {
		fprintf(stderr, "bench-bus: %s: %s\n", name, cudaGetErrorString(err));
		_exit(1); /* such an error stays with the context */
	}
	if (ok && !bus_load(bus_cell(b, BUS_ABORT)))
		return 0;
	fprintf(stderr, "bench-bus: %s: gave up waiting\n", name);
	b->failed = 1;
	return -1;
}

int bus_timer_make(struct bus_timer *t)
{
	return cudaEventCreate(&t->from) == cudaSuccess && cudaEventCreate(&t->to) == cudaSuccess
		       ? 0
		       : -1;
}

void bus_timer_free(struct bus_timer *t)
{
	cudaEventDestroy(t->from);
	cudaEventDestroy(t->to);
}

static int compare(const void *x, const void *y)
{
	const double a = *(const double *)x, b = *(const double *)y;

	return (a > b) - (a < b);
}

void bus_report(const struct bus *b, const char *name, const char *form, const char *unit,
		double *sample, size_t n, const char *extra)
{
	double p50, p99;

	if (!n)
		return;
	qsort(sample, n, sizeof(*sample), compare);
	p50 = sample[n / 2];
	p99 = sample[n - 1 - n / 100];
	if (b->table)
		printf("%-18s %-44s %10.3f %10.3f %10.3f %-8s %8zu  %s\n", name, form, sample[0],
		       p50, p99, unit, n, extra);
	else
		printf("{\"name\":\"%s\",\"form\":\"%s\",\"unit\":\"%s\",\"min\":%.3f,\"p50\":%.3f,\"p99\":%.3f,\"n\":%zu%s%s}\n",
		       name, form, unit, sample[0], p50, p99, n, *extra ? "," : "", extra);
	fflush(stdout);
}

static void head(const struct bus *b)
{
	struct cudaDeviceProp p;
	int driver = 0, runtime = 0;
	char day[32] = "";
	time_t t = time(NULL);
	struct tm tm;

	if (cudaGetDeviceProperties(&p, 0) != cudaSuccess)
		return;
	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	strftime(day, sizeof(day), "%Y-%m-%d %H:%M UTC", gmtime_r(&t, &tm));
	if (b->table)
		printf("%s, sm_%d%d, driver for CUDA %d.%d, built with %d.%d, %s\n\n%-18s %-44s %10s %10s %10s %-8s %8s\n",
		       p.name, p.major, p.minor, driver / 1000, driver % 1000 / 10, runtime / 1000,
		       runtime % 1000 / 10, day, "name", "form", "min", "p50", "p99", "unit", "n");
	else
		printf("{\"name\":\"machine\",\"gpu\":\"%s\",\"sm\":%d%d,\"driver_cuda\":%d,\"runtime_cuda\":%d,\"date\":\"%s\"}\n",
		       p.name, p.major, p.minor, driver, runtime, day);
}

static int setup(struct bus *b)
{
	const size_t size = BUS_AREA + 4096;
	void *cells = NULL, *gpu = NULL;
	int gpus = 0;

	if (cudaGetDeviceCount(&gpus) != cudaSuccess || !gpus) {
		fputs("bench-bus: no GPU\n", stderr);
		return 77;
	}
	b->host = (unsigned char *)mmap(NULL, size, PROT_READ | PROT_WRITE,
					MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b->host == MAP_FAILED ||
	    cudaHostRegister(b->host, size, cudaHostRegisterPortable | cudaHostRegisterMapped) !=
		    cudaSuccess ||
	    cudaHostAlloc(&cells, 4096, cudaHostAllocPortable | cudaHostAllocMapped) !=
		    cudaSuccess ||
	    cudaMalloc(&gpu, size) != cudaSuccess || cudaMemset(gpu, 0, size) != cudaSuccess ||
	    cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking) != cudaSuccess ||
	    cudaDeviceSynchronize() != cudaSuccess) {
		fprintf(stderr, "bench-bus: cannot set up: %s\n",
			cudaGetErrorString(cudaGetLastError()));
		return 1;
	}
	memset(b->host, 0, size);
	b->cells = (uint64_t *)cells;
	b->gpu = (unsigned char *)gpu;
	bus_begin(b);
	abort_cell = bus_cell(b, BUS_ABORT);
	return 0;
}

struct question {
	const char *name, *what;
	void (*ask)(struct bus *b);
};

static const struct question questions[] = {
	{ "flags", "a flag from the CPU to a kernel and back", bus_flags },
	{ "lines", "a line of tagged cells to a kernel, an entry of tagged cells back", bus_lines },
	{ "rings", "bytes through rings with release and acquire", bus_rings },
	{ "rings-call", "the same with a copy that is a call, see GNET_COPY_CALL", bus_rings_call },
	{ "copies", "bandwidth of ring copies", bus_copies },
	{ "latency", "single accesses and atomics", bus_latency },
	{ "litmus", "orders that may and may not be seen", bus_litmus },
};
#define QUESTIONS (sizeof(questions) / sizeof(questions[0]))

static int usage(FILE *to)
{
	size_t i;

	fputs("usage: bench-bus [--table] [--quick] [--cpu N] [QUESTION...]\n\n"
	      "Measures the bus between the CPU and a GPU. One JSON line a figure, or a table.\n"
	      "  --quick  a tenth of the rounds      --cpu N  runs the CPU's side on processor N\n\n",
	      to);
	for (i = 0; i < QUESTIONS; i++)
		fprintf(to, "  %-10s %s\n", questions[i].name, questions[i].what);
	return to == stdout ? 0 : 2;
}

static int wanted(const char *name, int n, char **names)
{
	int i;

	for (i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return 1;
	return n == 0;
}

static int known(int n, char **names)
{
	int i;
	size_t k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < QUESTIONS && strcmp(names[i], questions[k].name) != 0; k++)
			;
		if (k == QUESTIONS)
			return 0;
	}
	return 1;
}

static int run_on(const char *cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(atoi(cpu), &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "table", no_argument, NULL, 't' },
		{ "quick", no_argument, NULL, 'q' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct bus b;
	size_t i;
	int c, rc;

	memset(&b, 0, sizeof(b));
	b.scale = 1;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'h')
			return usage(stdout);
		if (c == 't')
			b.table = 1;
		else if (c == 'q')
			b.scale = 10;
		else if (c != 'c' || run_on(optarg))
			return usage(stderr);
	}
	if (!known(argc - optind, argv + optind))
		return usage(stderr);
	rc = setup(&b);
	if (rc)
		return rc;
	signal(SIGALRM, on_alarm);
	alarm(ALARM_S);
	head(&b);
	for (i = 0; i < QUESTIONS; i++)
		if (wanted(questions[i].name, argc - optind, argv + optind))
			questions[i].ask(&b);
	return b.failed;
}
