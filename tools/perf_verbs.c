/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpunet perf write_bw and so on: RDMA posted by the CPU, between two gpunets or with a program of perftest, by whose exchange
 * over TCP the two sides always meet.
 */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf_run.h"
#include "perf_verbs.h"

enum { PAGE = 4096, LINE = 64, READS = 16, RECV_DEPTH = 512, INLINE = 220, LEAVE_MS = 1000 };

/* ---- the command line ------------------------------------------------------------------------------------------------------ */

static void help(void)
{
	puts("usage: gpunet perf RDMA-TEST [option ...]\n"
	     "       gpunet perf RDMA-TEST HOST [option ...]\n"
	     "\n"
	     "RDMA posted by the CPU. The first form is the server, for one client, the second the\n"
	     "client, which measures. Either can be a program of perftest, of the same test, size and\n"
	     "count: ib_write_bw for write_bw and so on; with -a, -b and -q on both sides, or neither.\n"
	     "\n"
	     "  RDMA-TEST        write_bw, write_lat, read_bw, read_lat, send_bw, send_lat, atomic_bw\n"
	     "  HOST             name or address of the server, on its RDMA device\n"
	     "  --provider P     auto, ibverbs, rnic (software) [GPUNET_VERBS, auto]\n"
	     "  --ib-dev D       device by name [the one that leads to the peer]      (-d)\n"
	     "  --bind ADDRESS   server: listen there only\n"
	     "  --port N         of TCP, for the exchange [18515]                     (-p)\n"
	     "  --size N         bytes a message [bandwidth 65536, latency 2]         (-s)\n"
	     "  --count N        messages [write_bw 5000, others 1000]                (-n)\n"
	     "  --tx-depth N     work requests at once [bandwidth 128]                (-t)\n"
	     "  --post-list N    work requests a call, 1 to 64 [1]                    (-l)\n"
	     "  --all            sizes 2, 4, ... 8 MiB, a row each                    (-a)\n"
	     "  --bidirectional  a bandwidth of both directions, summed               (-b)\n"
	     "  --qp N           queue pairs of a bandwidth, 1 to 64 [1]              (-q)\n"
	     "  --mtu N          path MTU at most, 256 to 4096                        (-m)\n"
	     "  --gid-index N    entry of the device's GID table                      (-x)\n"
	     "  --json           a line of JSON\n"
	     "\n"
	     "write_lat and send_lat are half of a round trip. Exit code: 0 done, 1 failed, 2 usage.");
}

static bool take_provider(struct pv_opt *o, const char *name)
{
	o->provider = name;
	if (!strcmp(name, "auto") || !strcmp(name, "ibverbs") || !strcmp(name, "rnic"))
		return true;
	tool_usage("--provider %s: a provider is auto, ibverbs or rnic", name);
	return false;
}

static bool take_option(struct pv_opt *o, int c)
{
	unsigned n;

	switch (c) {
	case 'P':
		return take_provider(o, optarg);
	case 'd':
		o->device = optarg;
		return true;
	case 'b':
		o->bind = optarg;
		return true;
	case 'p':
		return tool_number("--port", optarg, 1, 65535, &o->port);
	case 's':
		return tool_number("--size", optarg, 1, PERF_VERBS_MAX, &o->size);
	case 'n':
		return tool_number("--count", optarg, 5, 100000000, &o->count);
	case 't':
		return tool_number("--tx-depth", optarg, 1, 32768, &o->depth);
	case 'l':
		return tool_number("--post-list", optarg, 1, 64, &o->list);
	case 'm':
		return tool_number("--mtu", optarg, 256, 4096, &o->mtu);
	case 'x':
		if (!tool_number("--gid-index", optarg, 0, 65535, &n))
			return false;
		o->gid_index = (int)n;
		return true;
	case 'q':
		return tool_number("--qp", optarg, 1, PERF_VERBS_QPS, &o->qps);
	case 'a':
		return o->all = true;
	case 'B':
		return o->both = true;
	case 'j':
		return o->json = true;
	default:
		tool_try_help();
		return false;
	}
}

static void defaults(struct pv_opt *o)
{
	bool latency = pv_is_latency(o->kind);

	if (o->kind == PERFTEST_ATOMIC_BW)
		o->size = 8;
	if (o->all)
		o->size = PERF_VERBS_ALL; /* what memory is made for */
	if (!o->size)
		o->size = latency ? 2 : 65536;
	if (!o->count)
		o->count = o->kind == PERFTEST_WRITE_BW ? 5000 : 1000;
	if (!o->depth || latency)
		o->depth = 128;
	if (o->depth > o->count)
		o->depth = o->count;
}

/* Finds the name of a test; -1. */
static int kind_of(const char *name)
{
	int k;

	for (k = 0; k < PERFTEST_KINDS; k++) {
		if (strcmp(name, pv_name((enum perftest_kind)k)) == 0)
			return k;
	}
	return -1;
}

/* TOOL_DONE: go on, unless *helped. */
static int parse(struct pv_opt *o, int argc, char **argv, bool *helped)
{
	static const struct option options[] = {
		{ "provider", required_argument, NULL, 'P' },
		{ "ib-dev", required_argument, NULL, 'd' },
		{ "bind", required_argument, NULL, 'b' },
		{ "port", required_argument, NULL, 'p' },
		{ "size", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'n' },
		{ "iters", required_argument, NULL, 'n' },
		{ "tx-depth", required_argument, NULL, 't' },
		{ "post-list", required_argument, NULL, 'l' },
		{ "post_list", required_argument, NULL, 'l' },
		{ "mtu", required_argument, NULL, 'm' },
		{ "gid-index", required_argument, NULL, 'x' },
		{ "qp", required_argument, NULL, 'q' },
		{ "all", no_argument, NULL, 'a' },
		{ "bidirectional", no_argument, NULL, 'B' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int c, kind;

	while ((c = getopt_long(argc, argv, "d:p:s:n:t:l:m:x:q:abh", options, NULL)) != -1) {
		if (c == 'h') {
			help();
			*helped = true;
			return TOOL_DONE;
		}
		if (!take_option(o, c == 'b' && !optarg ? 'B' : c))
			return TOOL_USAGE;
	}
	kind = optind < argc ? kind_of(argv[optind]) : -1;
	if (kind < 0 || argc - optind > 2)
		return tool_usage("an RDMA test, and for a client a host, are needed");
	o->kind = (enum perftest_kind)kind;
	o->host = argv[optind + 1]; /* or NULL, the end of argv */
	if (o->kind == PERFTEST_ATOMIC_BW && o->size && o->size != 8)
		return tool_usage("--size %u: an atomic has 8 bytes", o->size);
	if (o->bind && o->host)
		return tool_usage("--bind is for a server");
	if (pv_is_latency(o->kind) && (o->both || o->qps > 1))
		return tool_usage("--bidirectional and --qp are for bandwidths");
	if (o->all && (o->size || o->kind == PERFTEST_ATOMIC_BW))
		return tool_usage(o->size ? "--all and --size do not go together"
					  : "--all: an atomic has 8 bytes");
	defaults(o);
	return TOOL_DONE;
}

/* ---- the TCP connection ---------------------------------------------------------------------------------------------------- */

static int look_up(const char *host, unsigned port, bool passive, struct addrinfo **out)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = passive ? AI_PASSIVE | AI_NUMERICHOST : 0 };
	char text[8];
	int rc;

	snprintf(text, sizeof(text), "%u", port);
	if (passive && !host)
		host = "0.0.0.0";
	rc = getaddrinfo(host, text, &hints, out);
	return rc ? tool_fail("%s: %s", host, gai_strerror(rc)) : TOOL_DONE;
}

static int dial(struct pv *p)
{
	struct addrinfo *all, *a;
	int rc = look_up(p->o.host, p->o.port, false, &all), err = ECONNREFUSED;

	if (rc != TOOL_DONE)
		return rc;
	for (a = all; a && p->tcp < 0; a = a->ai_next) {
		p->tcp = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (p->tcp >= 0 && connect(p->tcp, a->ai_addr, a->ai_addrlen) == 0)
			break;
		err = errno;
		if (p->tcp >= 0)
			close(p->tcp);
		p->tcp = -1;
	}
	freeaddrinfo(all);
	if (p->tcp >= 0)
		return TOOL_DONE;
	return tool_fail("%s, TCP port %u: %s%s%s%s", p->o.host, p->o.port, strerror(err),
			 err == ECONNREFUSED ? "; start \"gpunet perf " : "",
			 err == ECONNREFUSED ? pv_name(p->o.kind) : "",
			 err == ECONNREFUSED ? "\" there" : "");
}

static int accept_one(struct pv *p, int listener)
{
	struct pollfd fd = { .fd = listener, .events = POLLIN };

	while (poll(&fd, 1, -1) < 0) {
		if (errno != EINTR || stop_asked())
			return tool_fail("interrupted");
	}
	p->tcp = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	return p->tcp < 0 ? tool_fail("cannot accept: %s", strerror(errno)) : TOOL_DONE;
}

static int wait_for_client(struct pv *p)
{
	struct addrinfo *a;
	int rc = look_up(p->o.bind, p->o.port, true, &a), fd, one = 1;

	if (rc != TOOL_DONE)
		return rc;
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 1) != 0) {
		rc = tool_fail("cannot listen on TCP port %u: %s", p->o.port, strerror(errno));
	} else {
		if (!p->o.json)
			printf("listening on TCP port %u\n", p->o.port);
		fflush(stdout);
		rc = accept_one(p, fd);
	}
	if (fd >= 0)
		close(fd);
	freeaddrinfo(a);
	return rc;
}

static int gone(int n)
{
	if (stop_asked())
		return tool_fail("interrupted");
	return tool_fail("the peer has ended: %s", n < 0 ? strerror(errno) : "end of its exchange");
}

static int tell(struct pv *p, const void *data, size_t n)
{
	const uint8_t *at = data;

	while (n) {
		ssize_t done = send(p->tcp, at, n, MSG_NOSIGNAL);

		if (done < 0 && errno == EINTR && !stop_asked())
			continue;
		if (done <= 0)
			return gone((int)done);
		at += done;
		n -= (size_t)done;
	}
	return TOOL_DONE;
}

static int hear(struct pv *p, void *data, size_t n)
{
	uint8_t *at = data;

	while (n) {
		ssize_t done = recv(p->tcp, at, n, 0);

		if (done < 0 && errno == EINTR && !stop_asked())
			continue;
		if (done <= 0)
			return gone((int)done);
		at += done;
		n -= (size_t)done;
	}
	return TOOL_DONE;
}

/* One exchange: the client writes first. */
static int swap(struct pv *p, const void *ours, void *theirs, size_t n)
{
	int rc;

	if (p->client) {
		rc = tell(p, ours, n);
		return rc == TOOL_DONE ? hear(p, theirs, n) : rc;
	}
	rc = hear(p, theirs, n);
	return rc == TOOL_DONE ? tell(p, ours, n) : rc;
}

/* ---- the device ------------------------------------------------------------------------------------------------------------ */

/* An IPv4 peer of an IPv6 socket. */
static socklen_t plain_address(struct sockaddr_storage *a, socklen_t n)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
	struct sockaddr_in in = { .sin_family = AF_INET };

	if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		return n;
	memcpy(&in.sin_addr, &in6->sin6_addr.s6_addr[12], 4);
	memcpy(a, &in, sizeof(in));
	return sizeof(in);
}

/* The server uses the device of the address at which the client came. */
static int open_device(struct pv *p)
{
	struct gpunet_verbs_options opt = GPUNET_VERBS_OPTIONS_INIT;
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	int rc;

	if (p->client)
		rc = getpeername(p->tcp, (struct sockaddr *)&a, &n);
	else
		rc = getsockname(p->tcp, (struct sockaddr *)&a, &n);
	if (rc)
		return gone(rc);
	n = plain_address(&a, n);
	opt.provider = p->o.provider;
	opt.device = p->o.device;
	opt.gid_index = p->o.gid_index;
	*(p->client ? &opt.toward : &opt.local) = (struct sockaddr *)&a;
	*(p->client ? &opt.toward_len : &opt.local_len) = n;
	rc = gpunet_verbs_open(&p->v, &opt);
	p->info.size = sizeof(p->info);
	if (rc == 0)
		rc = gpunet_verbs_query(p->v, &p->info);
	/* The library has said why. */
	return rc ? tool_fail("no RDMA device") : TOOL_DONE;
}

static int no_matter(const struct gpunet_verbs_info *info, void *arg)
{
	(void)info;
	(void)arg;
	return 0;
}

/* What no client can change, a server says before it waits for one. */
static int try_device(const struct pv *p)
{
	struct gpunet_verbs_options opt = GPUNET_VERBS_OPTIONS_INIT;
	gpunet_verbs_t *v = NULL;
	int rc;

	opt.provider = p->o.provider;
	opt.device = p->o.device;
	opt.gid_index = p->o.gid_index;
	rc = opt.device ? gpunet_verbs_open(&v, &opt)
			: gpunet_verbs_list(opt.provider, no_matter, NULL);
	if (v)
		gpunet_verbs_close(v);
	return rc ? tool_fail("no RDMA device") : TOOL_DONE;
}

static int make_memory(struct pv *p)
{
	size_t n = p->o.size > PAGE ? p->o.size : PAGE;
	int rc;

	/* A peer may spread small messages over a page. */
	p->half = (n + PAGE - 1) / PAGE * PAGE;
	p->mem = aligned_alloc(PAGE, 2 * p->half);
	p->ns = calloc(pv_is_latency(p->o.kind) ? p->o.count + 1 : 1, sizeof(*p->ns));
	if (!p->mem || !p->ns)
		return tool_fail("memory is short");
	memset(p->mem, p->client ? 1 : 0, p->half);
	memset(p->mem + p->half, 0, p->half);
	rc = gpunet_verbs_reg(p->v, p->mem, 2 * p->half,
			      GPUNET_VERBS_LOCAL_WRITE | GPUNET_VERBS_REMOTE_WRITE |
				      GPUNET_VERBS_REMOTE_READ | GPUNET_VERBS_REMOTE_ATOMIC,
			      &p->mr);
	return rc ? tool_fail("cannot register memory") : TOOL_DONE;
}

static int make_queues(struct pv *p)
{
	/* Receives take room in the one completion queue, of which devices may have little. */
	unsigned recvs = RECV_DEPTH / p->o.qps < 32 ? 32 : RECV_DEPTH / p->o.qps, q;
	struct gpunet_verbs_qp_init init;
	int rc = gpunet_verbs_cq_create(p->v, (p->o.depth + recvs) * p->o.qps, &p->cq);

	for (q = 0; q < p->o.qps && !rc; q++) {
		init = (struct gpunet_verbs_qp_init){ .size = sizeof(init),
						      .send_cq = p->cq,
						      .recv_cq = p->cq,
						      .max_send_wr = p->o.depth,
						      .max_recv_wr = recvs,
						      .max_inline = INLINE };
		rc = gpunet_verbs_qp_create(p->v, NULL, &init, &p->qp[q]);
	}
	if (rc)
		return tool_fail("cannot make %u queue pairs of %u work requests: %s", p->o.qps,
				 p->o.depth, strerror(-rc));
	p->depth = p->o.depth;
	p->recv_depth = recvs;
	p->max_inline = init.max_inline;
	return TOOL_DONE;
}

static void free_all(struct pv *p)
{
	unsigned q;

	for (q = 0; q < PERF_VERBS_QPS && p->qp[q]; q++)
		gpunet_verbs_qp_destroy(p->qp[q]);
	if (p->cq)
		gpunet_verbs_cq_destroy(p->cq);
	if (p->mr)
		gpunet_verbs_dereg(p->mr);
	if (p->v)
		gpunet_verbs_close(p->v);
	if (p->tcp >= 0)
		close(p->tcp);
	free(p->mem);
	free(p->ns);
}

/* ---- the exchange ---------------------------------------------------------------------------------------------------------- */

/* The numbers of one queue pair, which also say that both sides have come this far. */
static int swap_record(struct pv *p, unsigned q)
{
	char mine[PERFTEST_RECORD], theirs[PERFTEST_RECORD];

	perftest_put_record(mine, &p->ours[q]);
	return swap(p, mine, theirs, PERFTEST_RECORD);
}

static int swap_records(struct pv *p, unsigned n)
{
	int rc = TOOL_DONE;

	while (n-- && rc == TOOL_DONE)
		rc = swap_record(p, 0);
	return rc;
}

/* Of each queue pair in turn. */
static int swap_all(struct pv *p)
{
	unsigned q;
	int rc = TOOL_DONE;

	for (q = 0; q < p->o.qps && rc == TOOL_DONE; q++)
		rc = swap_record(p, q);
	return rc;
}

/* Versions, sizes and MTU. */
static int greet(struct pv *p)
{
	uint8_t ours[PERFTEST_VERSION], theirs[PERFTEST_VERSION];
	int rc, v;

	perftest_put_version(ours);
	rc = swap(p, ours, theirs, PERFTEST_VERSION);
	if (rc != TOOL_DONE)
		return rc;
	v = perftest_get_version(theirs);
	if (v < 533)
		return tool_fail("the peer is no program of perftest, or older than 5.33");
	perftest_put_number(ours, PAGE);
	rc = swap(p, ours, theirs, PERFTEST_NUMBER);
	if (rc == TOOL_DONE && perftest_get_number(theirs) > PAGE &&
	    perftest_get_number(theirs) > p->half)
		rc = tool_fail("the peer's pages of %u bytes are larger than ours",
			       perftest_get_number(theirs));
	perftest_put_number(ours, LINE);
	if (rc == TOOL_DONE)
		rc = swap(p, ours, theirs, PERFTEST_NUMBER);
	p->mtu = p->o.mtu && p->o.mtu < p->info.mtu ? p->o.mtu : p->info.mtu;
	perftest_put_mtu(ours, p->mtu);
	if (rc == TOOL_DONE)
		rc = swap(p, ours, theirs, PERFTEST_MTU);
	v = perftest_get_mtu(theirs);
	if (rc == TOOL_DONE && v < 0)
		rc = tool_fail("the peer's MTU makes no sense");
	if (v > 0 && (unsigned)v < p->mtu)
		p->mtu = (unsigned)v;
	return rc;
}

static int connect_qp(struct pv *p, unsigned q)
{
	const struct perftest_record *theirs = &p->theirs[q];
	struct gpunet_verbs_address to = { .size = sizeof(to),
					   .qpn = theirs->qpn,
					   .psn = theirs->psn,
					   .lid = theirs->lid,
					   .mtu = (uint16_t)p->mtu };
	struct gpunet_verbs_param param = GPUNET_VERBS_PARAM_INIT;

	memcpy(to.gid, theirs->gid, 16);
	param.initiator_depth = theirs->reads < READS ? (uint8_t)theirs->reads : READS;
	param.responder_resources = READS;
	return gpunet_verbs_qp_connect(p->qp[q], &to, &param) ? tool_fail("cannot connect")
							      : TOOL_DONE;
}

static int know(struct pv *p, unsigned q)
{
	struct gpunet_verbs_address at = { .size = sizeof(at) };
	char mine[PERFTEST_RECORD], theirs[PERFTEST_RECORD];
	int rc;

	if (gpunet_verbs_qp_address(p->qp[q], &at))
		return tool_fail("the device has no address");
	p->ours[q] = (struct perftest_record){ .lid = at.lid,
					       .reads = READS,
					       .qpn = at.qpn,
					       .psn = at.psn,
					       .rkey = gpunet_verbs_rkey(p->mr),
					       .addr = (uintptr_t)p->mem + p->half };
	memcpy(p->ours[q].gid, at.gid, 16);
	perftest_put_record(mine, &p->ours[q]);
	rc = swap(p, mine, theirs, PERFTEST_RECORD);
	if (rc == TOOL_DONE && perftest_get_record(&p->theirs[q], theirs))
		rc = tool_fail("the peer's record cannot be understood");
	return rc;
}

/* Until the queue pairs of both sides are ready. */
static int meet(struct pv *p)
{
	bool send = pv_is_send(p);
	int rc = TOOL_DONE;
	unsigned q;

	for (q = 0; q < p->o.qps && rc == TOOL_DONE; q++)
		rc = know(p, q);
	for (q = 0; q < p->o.qps && rc == TOOL_DONE; q++)
		rc = connect_qp(p, q);
	if (rc == TOOL_DONE && send)
		rc = swap_record(p, 0);
	if (rc == TOOL_DONE)
		rc = swap_all(p);
	return rc == TOOL_DONE ? swap_records(p, perftest_scripts[p->o.kind].ready) : rc;
}

/*
 * Whether a software device is worked from here while the peer works on our memory. That is quicker than the device's thread,
 * which sleeps between packets: good for who waits for an answer, and on this machine, where who sends would have to wake it
 * each time. Over a network the thread does as well, and looking in vain may take a processor from the other side, as it does
 * between two virtual machines.
 */
static bool must_work(const struct pv *p)
{
	return p->info.software &&
	       (pv_is_latency(p->o.kind) || memcmp(p->ours[0].gid, p->theirs[0].gid, 16) == 0);
}

/* The peer works on our memory until it says something. */
static int be_there(struct pv *p)
{
	struct pollfd fd = { .fd = p->tcp, .events = POLLIN };
	bool work = must_work(p);
	int rc = TOOL_DONE, i;

	while (rc == TOOL_DONE && poll(&fd, 1, work ? 0 : 100) <= 0) {
		for (i = 0; i < 200 && rc == TOOL_DONE && work; i++)
			rc = pv_idle(p);
		if (rc == TOOL_DONE && stop_asked())
			rc = tool_fail("interrupted");
	}
	return rc;
}

static int swap_reports(struct pv *p)
{
	uint8_t ours[PERFTEST_FIGURES][PERFTEST_FIGURE], theirs[PERFTEST_FIGURES][PERFTEST_FIGURE];
	int rc = TOOL_DONE, i;

	perftest_put_report(ours, &p->result);
	for (i = 0; i < PERFTEST_FIGURES && rc == TOOL_DONE; i++)
		rc = swap(p, ours[i], theirs[i], PERFTEST_FIGURE);
	/* A client of one direction is told what it has said, or nothing. */
	if (rc == TOOL_DONE && (!p->client || p->o.both) && perftest_get_report(&p->peer, theirs))
		rc = tool_fail("the peer's report makes no sense");
	if (rc == TOOL_DONE && !p->client && !p->o.both)
		p->result = p->peer;
	return rc;
}

/* An acknowledgement of ours may have been lost: the peer's last request must not stay without an answer. */
static int leave(struct pv *p)
{
	struct pollfd fd = { .fd = p->tcp, .events = POLLIN };
	char text[64];
	int ms, rc = TOOL_DONE;

	if (perftest_scripts[p->o.kind].end)
		rc = tell(p, "done", 5);
	shutdown(p->tcp, SHUT_WR);
	for (ms = 0; ms < LEAVE_MS && rc == TOOL_DONE && !stop_asked(); ms += 10) {
		if (poll(&fd, 1, 10) > 0 && recv(p->tcp, text, sizeof(text), 0) <= 0)
			break;
		rc = pv_idle(p);
	}
	return rc;
}

/* What a peer's atomics have added, wherever in the page it did so. */
static int count_atomics(const struct pv *p)
{
	uint64_t sum = 0, word;
	size_t at;

	for (at = p->half; at < 2 * p->half; at += sizeof(word)) {
		memcpy(&word, p->mem + at, sizeof(word));
		sum += word;
	}
	return sum == p->peer.iterations
		       ? TOOL_DONE
		       : tool_fail("the peer tells of %llu atomics, its additions make %llu",
				   (unsigned long long)p->peer.iterations, (unsigned long long)sum);
}

/*
 * One size. SENDs meet before each, since receives must be posted; those of both directions before and, when more sizes follow,
 * after each. Both directions tell their figures after each.
 */
static int play_size(struct pv *p)
{
	bool send = pv_is_send(p), both = p->o.both;
	int rc = TOOL_DONE;

	if (send)
		rc = pv_receives(p);
	if (rc == TOOL_DONE && (send || both))
		rc = swap_record(p, 0);
	if (rc == TOOL_DONE)
		rc = pv_run(p);
	if (rc == TOOL_DONE && both && !send && p->o.all)
		rc = swap_record(p, 0);
	if (rc == TOOL_DONE && both)
		rc = swap_reports(p);
	if (rc == TOOL_DONE && p->o.kind == PERFTEST_SEND_BW && p->o.all)
		rc = swap_record(p, 0);
	return rc;
}

static int play_sizes(struct pv *p)
{
	uint32_t last = p->o.size, size = p->o.all ? 2 : last;
	int rc = TOOL_DONE;

	for (; size <= last && rc == TOOL_DONE; size *= 2) {
		p->o.size = size;
		rc = play_size(p);
		/* One direction's client tells its last figures at the end; before them is the time to print. */
		if (rc == TOOL_DONE && (p->o.all || p->o.both))
			rc = pv_report(p);
	}
	return rc;
}

static int play(struct pv *p)
{
	const struct perftest_script *s = &perftest_scripts[p->o.kind];
	int rc = greet(p);

	if (rc == TOOL_DONE)
		rc = meet(p);
	if (rc != TOOL_DONE)
		return rc;
	pv_header(p);
	rc = pv_is_active(p) ? play_sizes(p) : be_there(p);
	if (rc == TOOL_DONE && !p->o.both)
		rc = swap_records(p, s->after);
	if (rc == TOOL_DONE && s->report && !p->o.both)
		rc = swap_reports(p);
	if (rc == TOOL_DONE && p->o.kind == PERFTEST_ATOMIC_BW && (!p->client || p->o.both))
		rc = count_atomics(p);
	if (rc == TOOL_DONE && !(pv_is_active(p) && (p->o.all || p->o.both)))
		rc = pv_report(p);
	if (rc == TOOL_DONE)
		rc = swap_records(p, s->end);
	return rc == TOOL_DONE ? leave(p) : rc;
}

static int run(struct pv *p)
{
	int rc = stop_hold();

	if (rc == 0)
		rc = stop_arm(NULL);
	if (rc < 0)
		return tool_fail("cannot prepare for signals: %s", strerror(-rc));
	p->client = p->o.host != NULL;
	p->tcp = -1;
	rc = p->client ? TOOL_DONE : try_device(p);
	if (rc == TOOL_DONE)
		rc = p->client ? dial(p) : wait_for_client(p);
	if (rc == TOOL_DONE)
		rc = open_device(p);
	if (rc == TOOL_DONE)
		rc = make_memory(p);
	if (rc == TOOL_DONE)
		rc = make_queues(p);
	if (rc == TOOL_DONE)
		rc = play(p);
	free_all(p);
	return rc;
}

/* The test that a command line names, or NULL. */
static const char *test_in(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		if (kind_of(argv[i]) >= 0)
			return argv[i];
	}
	return NULL;
}

bool perf_is_verbs(int argc, char **argv)
{
	return test_in(argc, argv) != NULL;
}

int perf_verbs(int argc, char **argv)
{
	struct pv p = { .o = { .port = PERFTEST_PORT, .list = 1, .qps = 1, .gid_index = -1 } };
	static char title[48];
	bool helped = false;
	int rc;

	/* Messages, getopt's too, point to this test's own help. */
	snprintf(title, sizeof(title), "gpunet perf %s", test_in(argc, argv));
	tool_set_name(title);
	argv[0] = title;
	rc = parse(&p.o, argc, argv, &helped);
	return rc == TOOL_DONE && !helped ? run(&p) : rc;
}
