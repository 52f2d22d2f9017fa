/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpunet cat: a kernel as a client.
 *
 * A kernel cannot read standard input, but it can read a socket. So the tool listens on a UNIX socket of its own, the
 * kernel connects there as well as to the peer and moves bytes between the two, and the tool moves them between its
 * end of the UNIX socket and standard input and output. All waiting is the library's and poll's. For datagrams the UNIX socket
 * is one of datagrams, so that their boundaries stay.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pump.h"
#include "tool.h"

#define DRAIN_MS 10000        /* for bytes that the peer has not taken yet */
#define DGRAM_SIZE 1400       /* fits the frames of most networks */
#define DGRAM_SIZE_MOST 65507 /* of UDP over IPv4 */

struct cat {
	const char *device;
	unsigned threads;    /* 0: as fits the device */
	unsigned size, wait; /* datagrams: bytes, seconds */
	struct url url;
	struct tool_addr addr[TOOL_ADDRS];
	int addrs;
	struct tool_net net;
	int listener, sock;       /* the tool's own socket: -1 or open */
	struct tool_setup *setup; /* the following are the kernels', too */
	struct tool_shovel_result *result;
	struct tool_shovel_state *state;
	uint8_t *buffers;
};

static void help(void)
{
	puts("usage: gpunet cat URL [--device auto|cpu|cuda[:N]] [--threads N] [--size N] [--wait S]\n"
	     "\n"
	     "A kernel that connects to URL and sends standard input there; what comes back goes to\n"
	     "standard output. The end of input is passed on to the peer; ends at the peer's end.\n"
	     "\n"
	     "With datagrams each read of standard input is one, and each that comes is written out. They\n"
	     "have no end: ends when the input has ended and none has come for a while.\n"
	     "\n"
	     "  URL          tcp://host:port, rdma://host:port, unix:///path, unix:@name; datagrams:\n"
	     "               udp://host:port, unix-dgram:///path, unix-dgram:@name\n"
	     "  --device D   where the kernel runs; auto: a GPU if there is one [GPUNET_DEVICE, auto]\n"
	     "  --threads N  threads a block, 1 to 1024 [GPU 256, CPU device 32]\n"
	     "  --size N     datagrams: bytes of the longest one sent, 1 to 65507 [1400]\n"
	     "  --wait S     datagrams: seconds without one before it ends, 0 to 3600 [1]\n"
	     "\n"
	     "Exit code: 0 the peer has ended its stream, 1 failed, 2 usage.");
}

static bool take_option(struct cat *c, int option)
{
	switch (option) {
	case 'd':
		c->device = optarg;
		return tool_device_valid(optarg);
	case 't':
		return tool_number("--threads", optarg, 1, 1024, &c->threads);
	case 's':
		return tool_number("--size", optarg, 1, DGRAM_SIZE_MOST, &c->size);
	case 'w':
		return tool_number("--wait", optarg, 0, 3600, &c->wait);
	default:
		tool_try_help();
		return false;
	}
}

/* TOOL_DONE: go on, unless *helped. */
static int parse(struct cat *c, int argc, char **argv, bool *helped)
{
	static const struct option options[] = {
		{ "device", required_argument, NULL, 'd' },
		{ "threads", required_argument, NULL, 't' },
		{ "size", required_argument, NULL, 's' },
		{ "wait", required_argument, NULL, 'w' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	char why[URL_WHY_MAX];
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'h') {
			help();
			*helped = true;
			return TOOL_DONE;
		}
		if (!take_option(c, option))
			return TOOL_USAGE;
	}
	if (argc - optind != 1)
		return tool_usage("one URL is needed");
	if (url_parse(&c->url, argv[optind], why) != 0)
		return tool_usage("%s: %s", argv[optind], why);
	if (c->url.family != AF_UNIX && c->url.port == 0)
		return tool_usage("%s: nobody can be reached at port 0", argv[optind]);
	c->addrs = url_resolve(&c->url, c->addr, TOOL_ADDRS, why);
	if (c->addrs < 0)
		return tool_fail("%s: %s", argv[optind], why);
	return TOOL_DONE;
}

/* ---- the tool's own socket --------------------------------------------------------------------- */

/* Listens, or with datagrams just is there, under an abstract name that the system chooses. */
static int local_listen(struct cat *c, struct tool_addr *addr)
{
	struct sockaddr_un any = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(addr->addr);
	int type = c->url.dgram ? SOCK_DGRAM : SOCK_STREAM;

	c->listener = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->listener < 0 ||
	    bind(c->listener, (struct sockaddr *)&any, sizeof(any.sun_family)) != 0 ||
	    (!c->url.dgram && listen(c->listener, 8) != 0) ||
	    getsockname(c->listener, (struct sockaddr *)&addr->addr, &len) != 0)
		return -errno;
	addr->len = len;
	return 0;
}

/* The kernel's connection, which is one of this process; anybody else's is dropped. */
static int local_accept(struct cat *c)
{
	for (;;) {
		int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct ucred peer;
		socklen_t len = sizeof(peer);

		if (fd < 0 && errno == EINTR)
			continue;
		if (fd < 0)
			return -errno;
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
		    peer.pid == getpid()) {
			c->sock = fd;
			return 0;
		}
		close(fd);
	}
}

/* The kernel's socket becomes the peer of the tool's: from then on nobody else can send to it, and what somebody did is dropped. */
static int local_join(struct cat *c)
{
	const struct tool_addr *kernel = &c->setup->bound;
	char byte;

	if (connect(c->listener, (const struct sockaddr *)&kernel->addr, kernel->len) != 0)
		return -errno;
	while (recv(c->listener, &byte, 1, 0) >= 0)
		continue;
	if (errno != EAGAIN)
		return -errno;
	c->sock = c->listener;
	c->listener = -1;
	return 0;
}

/* ---- the kernels ------------------------------------------------------------------------------- */

/* A kernel of one block connects to the peer and to the tool, and ends. */
static int connect_both(struct cat *c)
{
	struct tool_setup *s = c->setup;
	int rc = local_listen(c, &s->local);

	if (rc < 0)
		return tool_fail("cannot make a UNIX socket for standard input and output: %s",
				 strerror(-rc));
	memcpy(s->addr, c->addr, sizeof(s->addr));
	s->addrs = c->addrs;
	s->dgram = c->url.dgram;
	s->bound.len = sizeof(s->bound.addr);
	rc = c->net.kernels->connect(c->net.g, s);
	if (rc == 0)
		rc = tool_net_wait(&c->net);
	if (stop_asked())
		return tool_fail("interrupted");
	if (rc < 0)
		return tool_fail("the kernel that connects has failed: %s", tool_reason(rc));
	if (s->error)
		return tool_fail_step((enum tool_step)s->step, -s->error, &s->addr[s->which]);
	rc = c->url.dgram ? local_join(c) : local_accept(c);
	if (rc < 0)
		return tool_fail("cannot accept the kernel's connection: %s", strerror(-rc));
	return TOOL_DONE;
}

/* Bytes of a block's buffer. */
static uint64_t room(const struct cat *c)
{
	return c->url.dgram ? TOOL_DGRAM : TOOL_BUFFER;
}

static bool kernel_over(void *arg)
{
	struct cat *c = arg;

	return gpunet_sync(c->net.g, 0) != -ETIMEDOUT;
}

/* What the two blocks have met, the peer's failure before our own. */
static int check_shovel(const struct cat *c)
{
	const struct tool_shovel_result *r = c->result;
	int i;

	for (i = 1; i >= 0; i--) {
		if (r->error[i])
			return tool_fail_step((enum tool_step)r->step[i], (int)r->error[i],
					      &c->setup->addr[c->setup->which]);
	}
	return TOOL_DONE;
}

static void move(struct cat *c, struct pump_end *end)
{
	struct pump_dgrams p = { .in = STDIN_FILENO,
				 .out = STDOUT_FILENO,
				 .sock = c->sock,
				 .stop = stop_fd(),
				 .most = c->size,
				 .quiet_ms = c->wait * 1000 };

	if (c->url.dgram)
		pump_dgrams(&p, kernel_over, c, end);
	else
		pump(STDIN_FILENO, STDOUT_FILENO, c->sock, stop_fd(), kernel_over, c, end);
}

static int shovel(struct cat *c)
{
	struct tool_shovel args = { .net = gpunet_device(c->net.g),
				    .buffers = c->buffers,
				    .state = c->state,
				    .result = c->result,
				    .local = c->setup->local_fd,
				    .peer = c->setup->fd,
				    .dgram = c->url.dgram,
				    .room = room(c) };
	struct pump_end end;
	int rc;

	rc = c->net.kernels->shovel(c->net.g, c->threads, &args);
	if (rc < 0)
		return tool_fail("cannot start a kernel of 2 blocks, %u threads each: %s",
				 c->threads, tool_reason(rc));
	move(c, &end);
	if (end.write_error)
		return tool_fail("cannot write standard output: %s", strerror(end.write_error));
	rc = tool_net_wait(&c->net);
	if (stop_asked())
		return tool_fail("interrupted");
	if (rc < 0)
		return tool_fail("the kernel has failed: %s", tool_reason(rc));
	if (end.read_error)
		return tool_fail("cannot read standard input: %s", strerror(end.read_error));
	return check_shovel(c);
}

static int run(struct cat *c)
{
	const struct tool_kernels *k = c->net.kernels;
	int rc;

	if (!c->threads)
		c->threads = strcmp(k->kind, "cuda") == 0 ? 256 : 32;
	c->setup = k->shared_alloc(sizeof(*c->setup));
	c->result = k->shared_alloc(sizeof(*c->result));
	c->state = k->device_alloc(sizeof(*c->state));
	c->buffers = k->device_alloc(2 * room(c));
	if (!c->setup || !c->result || !c->state || !c->buffers)
		return tool_fail("memory is short");
	rc = connect_both(c);
	return rc == TOOL_DONE ? shovel(c) : rc;
}

static int run_and_close(struct cat *c)
{
	const struct tool_kernels *k;
	int rc, closed;

	rc = tool_net_open(&c->net, c->device, 2);
	if (rc != TOOL_DONE)
		return rc;
	k = c->net.kernels;
	rc = run(c);
	closed = tool_net_close(&c->net, rc == TOOL_DONE ? DRAIN_MS : 0);
	/* A kernel that is still there may still use the memory. */
	if (closed != TOOL_DONE)
		return closed;
	k->shared_free(c->setup);
	k->shared_free(c->result);
	k->device_free(c->state);
	k->device_free(c->buffers);
	return rc;
}

int cmd_cat(int argc, char **argv)
{
	struct cat *c = calloc(1, sizeof(*c));
	bool helped = false;
	int rc;

	if (!c)
		return tool_fail("memory is short");
	c->listener = c->sock = -1;
	c->size = DGRAM_SIZE;
	c->wait = 1;
	rc = parse(c, argc, argv, &helped);
	if (rc == TOOL_DONE && !helped) {
		if ((rc = stop_hold()) != 0)
			rc = tool_fail("cannot prepare for signals: %s", strerror(-rc));
		else
			rc = run_and_close(c);
	}
	if (c->listener >= 0)
		close(c->listener);
	if (c->sock >= 0)
		close(c->sock);
	free(c);
	return rc;
}
