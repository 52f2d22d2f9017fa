/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet perf: bandwidth, latency and connections a second, between kernels and between kernels and plain sockets. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf_run.h"

#define LOOK_MS 200 /* how often the progress is looked at */
#define DRAIN_MS 2000

static void help(void)
{
	puts("usage: gpunet perf URL [--dgram] [option ...]\n"
	     "       gpunet perf TEST URL [option ...]\n"
	     "       gpunet perf RDMA-TEST [HOST] [option ...]\n"
	     "\n"
	     "The first form is the server: it serves any test until SIGINT or SIGTERM. The second form\n"
	     "is the client, which measures and prints columns as perftest does. The third form is RDMA\n"
	     "posted by the CPU: write_bw, write_lat, read_bw, read_lat, send_bw, send_lat, atomic_bw;\n"
	     "\"gpunet perf write_bw --help\" tells more.\n"
	     "\n"
	     "  TEST         stream_lat, stream_bw, conn_rate, dgram_lat\n"
	     "  URL          tcp://host:port, rdma://host:port, unix:///path, unix:@name; datagrams:\n"
	     "               udp://host:port, unix-dgram:, and unix: with --dgram on the server\n"
	     "  --device D   auto, cpu, cuda or cuda:N: where the kernel runs; host: plain sockets and\n"
	     "               threads instead of a kernel [GPUNET_DEVICE, auto]\n"
	     "  --size N     bytes a message, 1 to 1048576 [latency 64, stream_bw 65536]\n"
	     "  --all        sizes 1, 2, 4, ... 1 MiB (datagrams: 32 KiB), a row each\n"
	     "  --count N    messages or connections, for each of --conns [10000; stream_bw: 1 GiB of\n"
	     "               them, 100000 at most]\n"
	     "  --conns N    connections at once, a block or thread each, 1 to 256 [1]\n"
	     "  --reverse    stream_bw: from the server to the client\n"
	     "  --threads N  threads a block, 1 to 256 [GPU 256, latency 64, CPU device 32]\n"
	     "  --blocks N   server: connections served at once, 1 to 256 [16]\n"
	     "  --dgram      server: datagrams on a unix: address\n"
	     "  --hops       stamps each message's way: the client prints the time of each hop, of the\n"
	     "               server gpunet stat does\n"
	     "  --json       a line of JSON a row\n"
	     "\n"
	     "Latencies are half of a round trip. Exit code: 0 done, 1 failed, 2 usage.");
}

static bool take_device(struct perf_opt *o, const char *text)
{
	o->device = text;
	o->host = strcmp(text, "host") == 0;
	return o->host || tool_device_valid(text);
}

static bool take_option(struct perf_opt *o, int c)
{
	switch (c) {
	case 'd':
		return take_device(o, optarg);
	case 's':
		return tool_number("--size", optarg, 1, PERF_BUFFER, &o->size);
	case 'n':
		return tool_number("--count", optarg, 1, 100000000, &o->count);
	case 'c':
		return tool_number("--conns", optarg, 1, PERF_CONNS, &o->conns);
	case 't':
		return tool_number("--threads", optarg, 1, 256, &o->threads);
	case 'b':
		return tool_number("--blocks", optarg, 1, PERF_CONNS, &o->blocks);
	case 'a':
		return o->all_sizes = true;
	case 'r':
		return o->reverse = true;
	case 'g':
		return o->dgram = true;
	case 'j':
		return o->json = true;
	case 'o':
		return o->hops = true;
	default:
		tool_try_help();
		return false;
	}
}

#define TESTS "stream_lat, stream_bw, conn_rate or dgram_lat"

/* PERF_TESTS: of no test. */
static unsigned test_of(const char *name)
{
	unsigned test;

	for (test = 0; test < PERF_TESTS; test++) {
		if (strcmp(name, perf_name(test)) == 0)
			break;
	}
	return test;
}

/* One word is the URL of a server. Someone who forgot half of a client's command line is told so. */
static int parse_words(struct perf_opt *o, int n, char **word)
{
	if (n < 1 || n > 2)
		return tool_usage("a URL, or a test and a URL, are needed");
	o->server = n == 1;
	if (n == 1 && test_of(word[0]) < PERF_TESTS)
		return tool_usage("%s: a test needs the server's URL behind it", word[0]);
	if (n == 1 && !strchr(word[0], ':'))
		return tool_usage("%s is neither a URL nor a test: " TESTS
				  ", or one of RDMA, \"gpunet perf write_bw --help\"",
				  word[0]);
	o->test = n == 2 ? test_of(word[0]) : 0;
	return o->test < PERF_TESTS
		       ? TOOL_DONE
		       : tool_usage("%s: a test is " TESTS
				    ", or one of RDMA, \"gpunet perf write_bw --help\"",
				    word[0]);
}

static int parse_url(struct perf_opt *o, const char *text)
{
	char why[URL_WHY_MAX];

	if (url_parse(&o->url, text, why) != 0)
		return tool_usage("%s: %s", text, why);
	/* unix: does not tell: for a client the test does, for a server --dgram. */
	o->dgram = o->server ? o->dgram || o->url.dgram : o->test == PERF_DGRAM_LAT;
	if ((o->url.family != AF_UNIX || o->url.dgram) && o->url.dgram != o->dgram)
		return tool_usage(
			"%s: datagrams have udp:// or unix-dgram:, streams tcp:// or unix:", text);
	if (o->host && o->url.rdma)
		return tool_usage("%s: plain sockets have no RDMA; --device host is for others",
				  text);
	if (!o->server && o->url.family != AF_UNIX && o->url.port == 0)
		return tool_usage("%s: nobody can be reached at port 0", text);
	o->addrs = url_resolve(&o->url, o->addr, TOOL_ADDRS, why);
	return o->addrs < 0 ? tool_fail("%s: %s", text, why) : TOOL_DONE;
}

/* TOOL_DONE: go on, unless *helped. */
static int parse(struct perf_opt *o, int argc, char **argv, bool *helped)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "size", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'n' },
		{ "conns", required_argument, NULL, 'c' },
		{ "threads", required_argument, NULL, 't' },
		{ "blocks", required_argument, NULL, 'b' },
		{ "all", no_argument, NULL, 'a' },
		{ "reverse", no_argument, NULL, 'r' },
		{ "dgram", no_argument, NULL, 'g' },
		{ "json", no_argument, NULL, 'j' },
		{ "hops", no_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, rc;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'h') {
			help();
			*helped = true;
			return TOOL_DONE;
		}
		if (!take_option(o, c))
			return TOOL_USAGE;
	}
	rc = parse_words(o, argc - optind, argv + optind);
	if (rc != TOOL_DONE)
		return rc;
	if (o->hops && o->host)
		return tool_usage("--hops: there is no kernel on device host");
	/* An option of the network's, which is opened further down. */
	if (o->hops && setenv("GPUNET_HOPS", "1", 1) != 0)
		return tool_fail("memory is short");
	return parse_url(o, argv[argc - 1]);
}

/* ---- memory that kernels may use until the network is closed ----------------------------------------- */

static struct kept {
	void *memory[128];
	bool device[128];
	unsigned n;
} kept;

/* NULL if there is none. */
static void *keep(const struct tool_kernels *k, bool device, uint64_t size)
{
	void *memory = NULL;

	if (kept.n < 128)
		memory = device ? k->device_alloc(size) : k->shared_alloc(size);
	if (memory) {
		kept.memory[kept.n] = memory;
		kept.device[kept.n++] = device;
	}
	return memory;
}

static void free_kept(const struct tool_kernels *k)
{
	while (kept.n) {
		void *memory = kept.memory[--kept.n];

		if (kept.device[kept.n])
			k->device_free(memory);
		else
			k->shared_free(memory);
	}
}

/* ---- a kernel as the server ----------------------------------------------------------------------- */

static const struct tool_perf_kernels *perf_kernels(const struct tool_net *net)
{
#ifdef GPUNET_WITH_CUDA
	if (strcmp(net->kernels->kind, "cuda") == 0)
		return &tool_perf_kernels_cuda;
#endif
	(void)net;
	return &tool_perf_kernels_cpu;
}

static bool is_gpu(const struct tool_net *net)
{
	return strcmp(net->kernels->kind, "cpu") != 0;
}

static int prepare(const struct tool_net *net)
{
	int rc = perf_kernels(net)->prepare();

	return rc < 0 ? tool_fail("cannot load the kernels: %s", strerror(-rc)) : TOOL_DONE;
}

static int bind_socket(const struct perf_opt *o, struct tool_net *net, struct tool_setup *s)
{
	int rc;

	memcpy(s->addr, o->addr, sizeof(s->addr));
	s->addrs = o->addrs;
	s->backlog = 4096;
	s->dgram = o->dgram;
	s->bound.len = sizeof(s->bound.addr);
	rc = net->kernels->listen(net->g, s);
	if (rc == 0)
		rc = tool_net_wait(net);
	if (rc < 0)
		return tool_fail("the kernel that listens has failed: %s", tool_reason(rc));
	if (s->error && s->error != -ECANCELED)
		return tool_fail_step((enum tool_step)s->step, -s->error, &s->addr[s->which]);
	return TOOL_DONE;
}

static int serve(const struct perf_opt *o, struct tool_net *net, struct tool_setup *s)
{
	const struct tool_kernels *k = net->kernels;
	unsigned threads = o->threads ? o->threads : is_gpu(net) ? 256 : 32;
	struct perf_server args = { .net = gpunet_device(net->g),
				    .socket = s->fd,
				    .dgram = o->dgram };
	int rc;

	args.buffers = keep(k, true, o->blocks * PERF_BUFFER);
	args.peers = keep(k, true, o->blocks * sizeof(*args.peers));
	args.error = keep(k, false, sizeof(*args.error));
	if (!args.buffers || !args.peers || !args.error)
		return tool_fail("no memory for %u blocks, 1 MiB each; use fewer with --blocks",
				 o->blocks);
	rc = perf_kernels(net)->server(net->g, o->blocks, threads, &args);
	if (rc < 0)
		return tool_fail("cannot start a kernel of %u blocks, %u threads each: %s",
				 o->blocks, threads, tool_reason(rc));
	perf_announce(o, &s->bound);
	rc = tool_net_wait(net);
	if (rc < 0)
		return tool_fail("the kernel has failed: %s", tool_reason(rc));
	if (!stop_asked())
		return tool_fail_step(TOOL_STEP_ACCEPT, *args.error ? (int)*args.error : EIO,
				      &s->bound);
	return TOOL_DONE;
}

static int server(const struct perf_opt *o)
{
	struct unix_path file = { 0 };
	struct tool_setup *s;
	struct tool_net net;
	int rc, closed;

	rc = tool_net_open(&net, o->device, o->blocks);
	if (rc != TOOL_DONE)
		return rc;
	s = keep(net.kernels, false, sizeof(*s));
	rc = s ? prepare(&net) : tool_fail("memory is short");
	if (rc == TOOL_DONE)
		rc = bind_socket(o, &net, s);
	if (rc == TOOL_DONE && !stop_asked()) {
		unix_path_remember(&file, &s->bound);
		rc = serve(o, &net, s);
	}
	closed = tool_net_close(&net, 0);
	unix_path_remove(&file);
	return closed == TOOL_DONE
		       ? rc
		       : closed; /* the process ends: memory that a kernel may use stays */
}

/* ---- the client ------------------------------------------------------------------------------------- */

static uint64_t default_count(const struct perf_opt *o, uint64_t size)
{
	uint64_t n = (UINT64_C(1) << 30) / size;

	if (o->test != PERF_STREAM_BW)
		return 10000;
	return n < 100000 ? n : 100000;
}

static void plan(struct perf_run *r, uint64_t size)
{
	const struct perf_opt *o = r->opt;

	r->hello = (struct perf_hello){ .magic = PERF_MAGIC,
					.version = PERF_VERSION,
					.test = o->test,
					.reverse = o->reverse,
					.size = size,
					.count = o->count ? o->count : default_count(o, size) };
	r->warm = r->hello.count / 10 < 1000 ? (unsigned)(r->hello.count / 10) : 1000;
	r->peak = 0;
}

static void wait_host(struct perf_run *r)
{
	unsigned i;

	while (!perf_ended(r) && !stop_asked()) {
		for (i = 0; i < LOOK_MS && !perf_ended(r) && !stop_asked(); i += 10)
			usleep(10000);
		perf_progress(r);
	}
}

static int run_host(struct perf_run *r)
{
	const struct perf_opt *o = r->opt;
	uint64_t samples = perf_is_latency(o->test) ? r->hello.count * o->conns : 1;
	int rc;

	r->results = calloc(o->conns, sizeof(*r->results));
	r->ticks = calloc(samples, sizeof(*r->ticks));
	if (!r->results || !r->ticks)
		return tool_fail("no memory for %llu latencies", (unsigned long long)samples);
	rc = perf_host_client(r, wait_host);
	perf_progress_end();
	if (rc == TOOL_DONE)
		rc = perf_report(r);
	/* After a signal threads may still be there. */
	if (!stop_asked()) {
		free(r->results);
		free(r->ticks);
	}
	return rc;
}

static int wait_kernel(struct perf_run *r, struct tool_net *net)
{
	int rc, late = 0;

	do {
		rc = gpunet_sync(net->g, LOOK_MS);
		perf_progress(r);
		late += stop_asked();
	} while (rc == -EINTR || (rc == -ETIMEDOUT && late < 6));
	perf_progress_end();
	if (stop_asked())
		return tool_fail("interrupted");
	return rc < 0 ? tool_fail("the kernel has failed: %s", tool_reason(rc)) : TOOL_DONE;
}

static unsigned client_threads(const struct perf_opt *o, const struct tool_net *net)
{
	if (o->threads)
		return o->threads;
	if (!is_gpu(net))
		return 32;
	return o->test == PERF_STREAM_BW ? 256 : 64;
}

static int report_kernel(struct perf_run *r, struct tool_net *net)
{
	struct gpunet_hops h = { .size = sizeof(h) };

	r->hops = r->opt->hops && perf_is_latency(r->hello.test) && gpunet_get_hops(net->g, &h) == 0
			  ? &h
			  : NULL;
	return perf_report(r);
}

static int run_kernel(struct perf_run *r, struct tool_net *net, uint8_t *buffers)
{
	const struct perf_opt *o = r->opt;
	const struct tool_kernels *k = net->kernels;
	uint64_t samples = perf_is_latency(o->test) ? r->hello.count * o->conns : 1;
	struct perf_client args = {
		.net = gpunet_device(net->g), .hello = r->hello, .conns = o->conns, .warm = r->warm
	};
	struct tool_addr *to = keep(k, false, sizeof(*to));
	int rc;

	args.results = keep(k, false, o->conns * sizeof(*args.results));
	args.ticks = keep(k, false, samples * sizeof(*args.ticks));
	args.buffers = buffers;
	if (!to || !args.results || !args.ticks)
		return tool_fail("no memory for %u connections and %llu latencies", o->conns,
				 (unsigned long long)samples);
	*to = *r->to;
	args.addr = to;
	r->results = args.results;
	r->ticks = args.ticks;
	rc = perf_kernels(net)->client(net->g, client_threads(o, net), &args);
	if (rc < 0)
		return tool_fail("cannot start a kernel of %u blocks: %s", o->conns,
				 tool_reason(rc));
	rc = wait_kernel(r, net);
	return rc == TOOL_DONE ? report_kernel(r, net) : rc;
}

static int run_one(struct perf_run *r, struct tool_net *net, uint8_t *buffers, uint64_t size)
{
	plan(r, size);
	return r->opt->host ? run_host(r) : run_kernel(r, net, buffers);
}

static int run_all(struct perf_run *r, struct tool_net *net, uint8_t *buffers)
{
	const struct perf_opt *o = r->opt;
	uint64_t most = o->dgram ? 32768 : PERF_BUFFER, size;
	int rc = TOOL_DONE;

	perf_header(o);
	if (!o->all_sizes || o->test == PERF_CONN_RATE)
		return run_one(r, net, buffers, o->size);
	for (size = 1; size <= most && rc == TOOL_DONE; size *= 2)
		rc = run_one(r, net, buffers, size);
	return rc;
}

static int client(const struct perf_opt *o)
{
	struct perf_run r = { .opt = o, .to = &o->addr[0] };
	struct tool_net net = { 0 };
	uint8_t *buffers;
	int rc, closed;

	if (o->host) {
		r.kind = "host";
		return run_all(&r, NULL, NULL);
	}
	rc = tool_net_open(&net, o->device, o->conns);
	if (rc != TOOL_DONE)
		return rc;
	r.kind = net.kernels->kind;
	rc = prepare(&net);
	if (rc == TOOL_DONE) {
		buffers = keep(net.kernels, true, o->conns * PERF_BUFFER);
		rc = buffers ? run_all(&r, &net, buffers)
			     : tool_fail("no memory for %u connections, 1 MiB each", o->conns);
	}
	closed = tool_net_close(&net, rc == TOOL_DONE ? DRAIN_MS : 0);
	if (closed == TOOL_DONE)
		free_kept(net.kernels);
	return rc == TOOL_DONE ? closed : rc;
}

static int run(struct perf_opt *o)
{
	int rc = stop_hold(), claimed;

	if (rc != 0)
		return tool_fail("cannot prepare for signals: %s", strerror(-rc));
	if (!o->size)
		o->size = o->test == PERF_STREAM_BW ? 65536 : 64;
	if (!o->server) {
		rc = o->host ? stop_arm(NULL) : 0;
		return rc < 0 ? tool_fail("cannot prepare for signals: %s", strerror(-rc))
			      : client(o);
	}
	claimed = unix_path_claim(&o->addr[0]);
	if (claimed < 0)
		return tool_fail_step(TOOL_STEP_BIND, -claimed, &o->addr[0]);
	rc = o->host ? stop_arm(NULL) : 0;
	if (rc < 0)
		return tool_fail("cannot prepare for signals: %s", strerror(-rc));
	return o->host ? perf_host_server(o) : server(o);
}

int cmd_perf(int argc, char **argv)
{
	struct perf_opt *o = calloc(1, sizeof(*o));
	const char *device = getenv("GPUNET_DEVICE");
	bool helped = false;
	int rc;

	if (!o)
		return tool_fail("memory is short");
	if (perf_is_verbs(argc, argv)) {
		free(o);
		return perf_verbs(argc, argv);
	}
	o->conns = 1;
	o->blocks = 16;
	o->host = device && strcmp(device, "host") == 0;
	rc = parse(o, argc, argv, &helped);
	if (rc == TOOL_DONE && !helped)
		rc = run(o);
	free(o);
	return rc;
}
