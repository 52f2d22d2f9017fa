/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet echo: a kernel as a server. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunet/dev/abi/socket.h>

#include "tool.h"

#define BACKLOG 4096 /* the system cuts it to net.core.somaxconn */

struct echo {
	const char *device;
	unsigned blocks, threads; /* 0: as fits the device */
	struct url url;
	struct tool_addr addr[TOOL_ADDRS];
	int addrs;
	struct tool_net net;
	struct tool_setup *setup; /* these four are the kernels', too */
	uint64_t *error;
	struct tool_echo_state *state;
	struct gnet_pollfd *fds; /* streams */
	uint8_t *buffers;        /* datagrams, as the following */
	struct tool_addr *peers;
	struct unix_path file;
};

static void help(void)
{
	puts("usage: gpunet echo URL [--device auto|cpu|cuda[:N]] [--blocks N] [--threads N]\n"
	     "\n"
	     "A kernel that listens on URL and sends back what each connection sends, or each datagram to\n"
	     "its sender. A block serves many connections at once. Ends with SIGINT or SIGTERM. Prints\n"
	     "\"listening on URL\" when it is ready.\n"
	     "\n"
	     "  URL          tcp://host:port (port 0: any that is free), rdma://host:port, unix:///path,\n"
	     "               unix:@name; datagrams: udp://host:port, unix-dgram:///path,\n"
	     "               unix-dgram:@name\n"
	     "  --device D   where the kernel runs; auto: a GPU if there is one [GPUNET_DEVICE, auto]\n"
	     "  --blocks N   blocks of the kernel, 1 to 4096 [GPU 64, CPU device 16]\n"
	     "  --threads N  threads a block, 1 to 1024 [GPU 256, CPU device 32]\n"
	     "\n"
	     "Exit code: 0 done, 1 failed, 2 usage.");
}

static bool take_option(struct echo *e, int c)
{
	switch (c) {
	case 'd':
		e->device = optarg;
		return tool_device_valid(optarg);
	case 'b':
		return tool_number("--blocks", optarg, 1, 4096, &e->blocks);
	case 't':
		return tool_number("--threads", optarg, 1, 1024, &e->threads);
	default:
		tool_try_help();
		return false;
	}
}

/* TOOL_DONE: go on, unless *helped. */
static int parse(struct echo *e, int argc, char **argv, bool *helped)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "blocks", required_argument, NULL, 'b' },
		{ "threads", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	char why[URL_WHY_MAX];
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'h') {
			help();
			*helped = true;
			return TOOL_DONE;
		}
		if (!take_option(e, c))
			return TOOL_USAGE;
	}
	if (argc - optind != 1)
		return tool_usage("one URL is needed");
	if (url_parse(&e->url, argv[optind], why) != 0)
		return tool_usage("%s: %s", argv[optind], why);
	e->addrs = url_resolve(&e->url, e->addr, TOOL_ADDRS, why);
	if (e->addrs < 0)
		return tool_fail("%s: %s", argv[optind], why);
	return TOOL_DONE;
}

/* The name of this machine is often its own loopback address: then nobody else can connect. */
static void note_loopback(const struct url *u, const struct tool_addr *bound)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&bound->addr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&bound->addr;
	bool loopback = false;

	if (u->family != AF_UNSPEC || strncmp(u->host, "localhost", 9) == 0)
		return;
	if (bound->addr.ss_family == AF_INET)
		loopback = ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	else if (bound->addr.ss_family == AF_INET6)
		loopback = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
	if (loopback)
		tool_note(
			"note: \"%s\" is a loopback address on this machine, other machines cannot connect to it",
			u->host);
}

/* A kernel of one block makes the listener, and ends. */
static int make_listener(struct echo *e)
{
	struct tool_setup *s = e->setup;
	int rc;

	memcpy(s->addr, e->addr, sizeof(s->addr));
	s->addrs = e->addrs;
	s->dgram = e->url.dgram;
	s->backlog = BACKLOG;
	s->bound.len = sizeof(s->bound.addr);
	rc = e->net.kernels->listen(e->net.g, s);
	if (rc == 0)
		rc = tool_net_wait(&e->net);
	if (rc < 0)
		return tool_fail("the kernel that listens has failed: %s", tool_reason(rc));
	if (s->error && s->error != -ECANCELED)
		return tool_fail_step((enum tool_step)s->step, -s->error, &s->addr[s->which]);
	return TOOL_DONE;
}

/* Who started the server waits for this line: without it nobody would learn the port, or that it is ready. */
static int announce(struct echo *e)
{
	char url[URL_TEXT_MAX];

	url_format_addr(&e->setup->bound, url);
	if (printf("listening on %s\n", url) < 0 || fflush(stdout) != 0)
		return tool_fail("cannot write standard output");
	note_loopback(&e->url, &e->setup->bound);
	return TOOL_DONE;
}

/* The kernel that serves runs until a signal aborts the network. */
static int serve(struct echo *e)
{
	struct tool_echo args = { .net = gpunet_device(e->net.g),
				  .fds = e->fds,
				  .state = e->state,
				  .error = e->error,
				  .listener = e->setup->fd,
				  .dgram = e->url.dgram,
				  .buffers = e->buffers,
				  .peers = e->peers };
	int rc;

	rc = e->net.kernels->echo(e->net.g, e->blocks, e->threads, &args);
	if (rc < 0)
		return tool_fail("cannot start a kernel of %u blocks, %u threads each: %s",
				 e->blocks, e->threads, tool_reason(rc));
	if (announce(e) != TOOL_DONE)
		return TOOL_FAILED;
	rc = tool_net_wait(&e->net);
	if (rc == -ETIMEDOUT)
		return tool_fail("the kernel did not end in time after the signal");
	if (rc < 0)
		return tool_fail("the kernel has failed: %s", tool_reason(rc));
	if (!stop_asked())
		return tool_fail_step(TOOL_STEP_ACCEPT, *e->error ? (int)*e->error : EIO,
				      &e->setup->bound);
	return TOOL_DONE;
}

static int get_memory(struct echo *e)
{
	const struct tool_kernels *k = e->net.kernels;
	bool dgram = e->url.dgram, ok;

	e->setup = k->shared_alloc(sizeof(*e->setup));
	e->error = k->shared_alloc(sizeof(*e->error));
	e->state = k->device_alloc(sizeof(*e->state));
	if (dgram) {
		e->buffers = k->device_alloc(e->blocks * TOOL_DGRAM);
		e->peers = k->device_alloc(e->blocks * sizeof(*e->peers));
	} else {
		e->fds = k->device_alloc((size_t)e->blocks * TOOL_CONNS * sizeof(*e->fds));
	}
	ok = e->setup && e->error && e->state && (dgram ? e->buffers && e->peers : e->fds != NULL);
	return ok ? TOOL_DONE
		  : tool_fail("no memory for %u blocks, %d KiB each; use fewer with --blocks",
			      e->blocks, dgram ? 256 : 32);
}

static int run(struct echo *e)
{
	const struct tool_kernels *k = e->net.kernels;
	bool gpu = strcmp(k->kind, "cuda") == 0;
	int rc;

	if (!e->blocks)
		e->blocks = gpu ? 64 : 16;
	if (!e->threads)
		e->threads = gpu ? 256 : 32;
	rc = get_memory(e);
	if (rc == TOOL_DONE)
		rc = make_listener(e);
	if (rc != TOOL_DONE || stop_asked())
		return rc;
	unix_path_remember(&e->file, &e->setup->bound);
	return serve(e);
}

static int run_and_close(struct echo *e)
{
	const struct tool_kernels *k;
	int rc, closed;

	rc = tool_net_open(&e->net, e->device, e->blocks);
	if (rc != TOOL_DONE)
		return rc;
	k = e->net.kernels;
	rc = run(e);
	closed = tool_net_close(&e->net, 0);
	unix_path_remove(&e->file);
	/* A kernel that is still there may still use them. */
	if (closed != TOOL_DONE)
		return closed;
	k->shared_free(e->setup);
	k->shared_free(e->error);
	k->device_free(e->state);
	k->device_free(e->fds);
	k->device_free(e->buffers);
	k->device_free(e->peers);
	return rc;
}

int cmd_echo(int argc, char **argv)
{
	struct echo *e = calloc(1, sizeof(*e));
	bool helped = false;
	int rc;

	if (!e)
		return tool_fail("memory is short");
	rc = parse(e, argc, argv, &helped);
	if (rc == TOOL_DONE && !helped) {
		int claimed = unix_path_claim(&e->addr[0]);

		if (claimed < 0)
			rc = tool_fail_step(TOOL_STEP_BIND, -claimed, &e->addr[0]);
		else if ((rc = stop_hold()) != 0)
			rc = tool_fail("cannot prepare for signals: %s", strerror(-rc));
		else
			rc = run_and_close(e);
	}
	free(e);
	return rc;
}
