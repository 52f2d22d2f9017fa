/* SPDX-License-Identifier: BSD-3-Clause */
/* The host API: include/gpunet/gpunet.h. */
#include "socket/net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"

/* ---- choosing a device ------------------------------------------------------------------------------------------------ */

static const struct platform_ops *platform_named(const char *name, size_t n)
{
	unsigned i;

	for (i = 0; platform_all[i]; i++) {
		if (strlen(platform_all[i]->name) == n && !strncmp(platform_all[i]->name, name, n))
			return platform_all[i];
	}
	return NULL;
}

static int choose_auto(const struct platform_ops **ops, char *why, size_t why_size)
{
	char missing[256];
	unsigned i;
	int n;

	why[0] = 0;
	for (i = 0; platform_all[i]; i++) {
		n = platform_all[i]->count(missing, sizeof(missing));
		if (n > 0) {
			*ops = platform_all[i];
			return 0;
		}
		snprintf(why, why_size, "%s: %s", platform_all[i]->name, missing);
	}
	return -ENODEV;
}

/* The device that `name` ("auto", "cpu", "cuda", "cuda:N") means; or in `why`, why there is none. */
static int choose(const char *name, const struct platform_ops **ops, int *ordinal, char *why,
		  size_t why_size)
{
	const char *colon = strchr(name, ':');
	size_t len = colon ? (size_t)(colon - name) : strlen(name);
	char *end;
	long n = 0;
	int have;

	*ordinal = 0;
	if (!strcmp(name, "auto"))
		return choose_auto(ops, why, why_size);
	*ops = platform_named(name, len);
	if (colon)
		n = strtol(colon + 1, &end, 10);
	if (!*ops || (colon && (end == colon + 1 || *end || n < 0 || n > 1023))) {
		snprintf(why, why_size, "there is no device \"%s\": use auto, cpu, cuda or cuda:N",
			 name);
		return -EINVAL;
	}
	have = (*ops)->count(why, why_size);
	if (have <= 0)
		return -ENODEV;
	if (n >= have) {
		snprintf(why, why_size, "device %s: there %s only %d of that kind", name,
			 have == 1 ? "is" : "are", have);
		return -ENODEV;
	}
	*ordinal = (int)n;
	return 0;
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

static unsigned log2_of(uint64_t v)
{
	return 63u - (unsigned)__builtin_clzll(v);
}

static uint64_t segments(const struct gpunet_options *o)
{
	return o->slab_bytes / o->segment_bytes;
}

static void lay_out(struct gpunet *g)
{
	const struct gpunet_options *o = &g->opt;
	struct net_layout *at = &g->at;

	at->ctl = 0;
	at->sq_head = at->ctl + sizeof(struct gnet_ctl);
	at->sq = at->sq_head + o->proxy_threads * sizeof(struct gnet_sq_head);
	at->calls = at->sq + (size_t)o->proxy_threads * o->queue_entries * sizeof(struct gnet_sqe);
	at->news = at->calls + o->calls * sizeof(struct gnet_call);
	at->told = at->news + o->proxy_threads * sizeof(struct gnet_news);
	at->gave_up = at->told + GNET_TOLD * sizeof(struct gnet_told);
	at->hops = at->gave_up + GNET_GAVE_UPS * sizeof(struct gnet_gave_up);
	at->bus = at->hops + (o->hops ? o->max_sockets * sizeof(struct gnet_hops) : 0);
	at->end = at->bus + (size_t)o->max_sockets * sizeof(struct gnet_sock_bus);
}

static int allocate(struct gpunet *g)
{
	const struct platform_ops *p = g->platform;
	const struct gpunet_options *o = &g->opt;
	int rc;

	lay_out(g);
	rc = p->host_alloc(g->dev, g->at.end, true, &g->shared);
	if (!rc)
		rc = p->host_alloc(g->dev, segments(o) * o->segment_bytes, false, &g->slab_mem);
	if (!rc)
		rc = p->dev_alloc(g->dev, sizeof(struct gnet), &g->net_mem);
	if (!rc)
		rc = p->dev_alloc(g->dev, o->max_sockets * sizeof(struct gnet_sock), &g->socks);
	if (!rc)
		rc = p->dev_alloc(g->dev, o->proxy_threads * sizeof(struct gnet_sq_dev), &g->sqd);
	if (!rc)
		rc = p->dev_alloc(g->dev,
				  o->proxy_threads * sizeof(struct gnet_nap) +
					  o->max_sockets * sizeof(uint64_t),
				  &g->naps);
	if (!rc)
		rc = p->dev_alloc(g->dev, (o->calls / 64 + o->calls + 1) * sizeof(uint64_t),
				  &g->calls);
	return rc;
}

static void *shared_host(const struct gpunet *g, size_t off)
{
	return (char *)g->shared.host + off;
}

static void *shared_dev(const struct gpunet *g, size_t off)
{
	return (char *)g->shared.dev + off;
}

/* Kernels of an earlier network may have left this one's number in shared memory: time, process and address make it another. */
static uint64_t new_id(const struct gpunet *g)
{
	uint64_t v = sys.now_ns() ^ (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)g << 20;

	return v ? v : 1;
}

/* Writes the handle that kernels get. */
static int write_handle(struct gpunet *g)
{
	struct gnet n = {
		.magic = GNET_MAGIC,
		.version = GNET_ABI_VERSION,
		.size = sizeof(n),
		.max_socks = g->opt.max_sockets,
		.n_queues = g->opt.proxy_threads,
		.sq_log2 = log2_of(g->opt.queue_entries),
		.n_calls = g->opt.calls,
		.seg_log2 = log2_of(g->opt.segment_bytes),
		.ctl = shared_dev(g, g->at.ctl),
		.bus = shared_dev(g, g->at.bus),
		.hops = g->opt.hops ? shared_dev(g, g->at.hops) : NULL,
		.sq = shared_dev(g, g->at.sq),
		.sq_head = shared_dev(g, g->at.sq_head),
		.calls = shared_dev(g, g->at.calls),
		.news = shared_dev(g, g->at.news),
		.slab = g->slab_mem.dev,
		.told = shared_dev(g, g->at.told),
		.gave_up = shared_dev(g, g->at.gave_up),
		.near_slab = g->near.dev,
		.socks = g->socks.dev,
		.sqd = g->sqd.dev,
		.naps = g->naps.dev,
		.hints =
			(uint64_t *)(void *)((struct gnet_nap *)g->naps.dev + g->opt.proxy_threads),
		.call_map = g->calls.dev,
		.call_tag = (uint64_t *)g->calls.dev + g->opt.calls / 64,
		.gave_up_next = (uint64_t *)g->calls.dev + g->opt.calls / 64 + g->opt.calls,
		.cpu_dev = g->dev,
		.id = new_id(g),
	};

	return g->platform->dev_write(g->dev, &g->net_mem, 0, &n, sizeof(n));
}

/* ---- open and close -------------------------------------------------------------------------------------------------------- */

static int open_device(struct gpunet *g)
{
	struct platform_params pp = { .size = sizeof(pp),
				      .cpu_blocks = g->opt.cpu_blocks,
				      .cpu_seed = g->opt.cpu_seed };
	char why[320] = "";
	int ordinal, rc;

	rc = choose(g->opt.device, &g->platform, &ordinal, why, sizeof(why));
	if (rc)
		return log_error(rc, "%s", why);
	options_for_device(&g->opt, strcmp(g->platform->name, "cpu") != 0);
	return g->platform->open(ordinal, &pp, &g->dev);
}

static int open_proxy(struct gpunet *g)
{
	const struct proxy_params pp = {
		.threads = g->opt.proxy_threads,
		.ring = strcmp(g->opt.engine, "epoll") != 0,
		.spin_ns = g->opt.spin_us < 0 ? -1 : (int64_t)g->opt.spin_us * 1000,
		.sentinel_ns = (uint64_t)g->opt.sentinel_us * 1000,
		.sq_log2 = log2_of(g->opt.queue_entries),
		.sq = shared_host(g, g->at.sq),
		.sq_head = shared_host(g, g->at.sq_head),
		.calls = shared_host(g, g->at.calls),
		.n_calls = g->opt.calls,
		.ctl = shared_host(g, g->at.ctl),
		.news = shared_host(g, g->at.news),
		.platform = g->platform,
		.dev = g->dev,
	};

	return proxy_open(&g->proxy, &pp);
}

static int segment_get(void *slab)
{
	return slab_get(slab);
}

static void segment_put(void *slab, int seg)
{
	slab_put(slab, seg);
}

static int open_channels(struct gpunet *g)
{
	struct channel_net_params cp = {
		.proxy = g->proxy,
		.linger_ns = (uint64_t)g->opt.linger_ms * 1000000u,
		.verbs = g->opt.verbs,
		.slab = g->slab_mem.host,
		.seg_log2 = log2_of(g->opt.segment_bytes),
		.seg_get = segment_get,
		.seg_put = segment_put,
		.seg_ctx = &g->slab,
	};
	int rc;

	net_near_params(g, &cp.near);
	rc = channel_net_open(&g->channels, &cp);
	return rc ? log_error(rc, "no memory for the transports of a network") : 0;
}

static void open_stat(struct gpunet *g)
{
	const struct stat_params sp = {
		.device = g->platform->name,
		.sockets = g->opt.max_sockets,
		.threads = g->opt.proxy_threads,
		.seg_log2 = log2_of(g->opt.segment_bytes),
		.bus_fd = g->shared.fd,
		.bus_at = g->at.bus,
		.told_at = g->at.told,
		.hops = g->opt.hops,
		.same_clock = !strcmp(g->platform->name, "cpu"),
	};

	stat_open(&g->stat, &sp);
}

static int open_sockets(struct gpunet *g)
{
	struct sockets_params sp = {
		.max = g->opt.max_sockets,
		.bus = shared_host(g, g->at.bus),
		.slab = &g->slab,
		.proxy = g->proxy,
		.linger_ns = (uint64_t)g->opt.linger_ms * 1000000u,
		.lookups = g->opt.calls / 4,
		.hops = g->opt.hops ? shared_host(g, g->at.hops) : NULL,
	};
	int rc = slab_init(&g->slab, g->slab_mem.host, log2_of(g->opt.segment_bytes),
			   (uint32_t)segments(&g->opt));

	if (rc)
		return log_error(rc, "no memory for the slab's list of segments");
	g->slab_ready = true;
	rc = open_channels(g);
	if (rc)
		return rc;
	sp.channels = g->channels;
	open_stat(g);
	reports_open(&g->reports, shared_host(g, g->at.gave_up), &g->stat, g->proxy);
	g->reports_ready = true;
	sp.stat = &g->stat;
	sp.reports = &g->reports;
	rc = sockets_init(&g->sockets, &sp);
	g->sockets_ready = !rc;
	return rc;
}

/* Frees whatever open has made. No kernel is resident. */
static void destroy(struct gpunet *g)
{
	struct platform_mem *host[] = { &g->shared, &g->slab_mem };
	struct platform_mem *dev[] = { &g->net_mem, &g->socks, &g->sqd, &g->naps, &g->calls };
	unsigned i;

	if (g->proxy)
		proxy_stop(g->proxy);
	if (g->sockets_ready)
		sockets_fini(&g->sockets);
	if (g->reports_ready)
		reports_close(&g->reports);
	stat_close(&g->stat);
	channel_net_close(g->channels);
	if (g->slab_ready)
		slab_fini(&g->slab);
	net_near_close(g);
	proxy_close(g->proxy);
	for (i = 0; i < 2; i++) {
		if (host[i]->host)
			g->platform->host_free(g->dev, host[i]);
	}
	for (i = 0; i < sizeof(dev) / sizeof(dev[0]); i++) {
		if (dev[i]->dev)
			g->platform->dev_free(g->dev, dev[i]);
	}
	if (g->dev)
		g->platform->close(g->dev);
	sys.free(g);
}

int gpunet_open_abi(unsigned abi, gpunet_t **out, const struct gpunet_options *opt)
{
	struct gpunet *g;
	int rc;

	log_get_level(); /* a wrong GPUNET_LOG is told now, not with the first message, which may never come */
	if (abi != GNET_ABI_VERSION)
		return log_error(
			-EPROTO,
			"the program was compiled with gpunet headers of ABI %u, and the library loaded, %s, has ABI %u; "
			"compile the program with the headers of that library, or let it load its own",
			abi, gpunet_version(), GNET_ABI_VERSION);
	if (!out)
		return log_error(-EINVAL, "gpunet_open needs a place for the network");
	g = sys.alloc(sizeof(*g));
	if (!g)
		return log_error(-ENOMEM, "no memory for a network");
	rc = options_complete(&g->opt, opt);
	if (!rc)
		rc = open_device(g);
	if (!rc)
		rc = allocate(g);
	if (!rc)
		rc = net_near_open(g);
	if (!rc)
		rc = write_handle(g);
	if (!rc)
		rc = open_proxy(g);
	if (!rc)
		rc = open_sockets(g);
	if (!rc)
		rc = proxy_start(g->proxy);
	if (rc) {
		destroy(g);
		return rc;
	}
	*out = g;
	return 0;
}

/* For who has no use for the macro, such as other languages. */
int(gpunet_open)(gpunet_t **out, const struct gpunet_options *opt)
{
	return gpunet_open_abi(GNET_ABI_VERSION, out, opt);
}

/* Users pass on what a failed gpunet_open has left. */
static int no_network(const char *call)
{
	return log_error(-EINVAL, "%s: the network is NULL; has gpunet_open succeeded?", call);
}

void gpunet_abort(gpunet_t *g)
{
	if (g)
		proxy_end_waits(g->proxy, ECANCELED);
}

/* A small step of a wait for the proxy's work; false: no more is to be waited for. */
static bool wait_on(const struct gpunet *g, uint64_t end)
{
	const struct timespec ms = { 0, 1000000 };

	if (proxy_is_dead(g->proxy) || sys.now_ns() >= end)
		return false;
	nanosleep(&ms, NULL);
	return true;
}

static bool still_to_send(struct gpunet *g)
{
	return !proxy_queues_empty(g->proxy) || sockets_unsent(&g->sockets);
}

int gpunet_drain(gpunet_t *g, unsigned timeout_ms)
{
	uint64_t end = sys.now_ns() + (uint64_t)timeout_ms * 1000000u;

	if (!g)
		return no_network("gpunet_drain");
	while (still_to_send(g) || channel_net_holds(g->channels)) {
		if (wait_on(g, end))
			continue;
		if (!still_to_send(g))
			return 0;
		return proxy_is_dead(g->proxy) ? -EIO : -ETIMEDOUT;
	}
	return 0;
}

int gpunet_sync(gpunet_t *g, unsigned timeout_ms)
{
	int rc;

	if (!g)
		return no_network("gpunet_sync");
	rc = g->platform->sync(g->dev, (uint64_t)timeout_ms * 1000000u);
	if (proxy_is_dead(g->proxy))
		reports_collect(&g->reports); /* nobody else does */
	return rc;
}

/*
 * Closes what kernels left open, once the proxy knows of all that they handed over, and waits until its bytes are sent or
 * its linger time is over, and until transports' peers know of the end.
 */
static void close_sockets(struct gpunet *g, uint64_t timeout_ns)
{
	uint64_t end = sys.now_ns() + timeout_ns;

	while (!proxy_queues_empty(g->proxy) && wait_on(g, end))
		continue;
	sockets_close_all(&g->sockets);
	while ((atomic_load(&g->sockets.open) || channel_net_lingers(g->channels) ||
		channel_net_holds(g->channels)) &&
	       wait_on(g, end))
		continue;
}

int gpunet_close(gpunet_t *g, unsigned timeout_ms)
{
	uint64_t timeout = (uint64_t)timeout_ms * 1000000u, start = sys.now_ns(), used;
	int rc;

	if (!g)
		return 0;
	gpunet_abort(g);
	rc = g->platform->sync(g->dev, timeout);
	if (rc == -ETIMEDOUT)
		return log_error(
			-EBUSY,
			"cannot close the network: a kernel is still resident after %u ms; end it and close again",
			timeout_ms);
	used = sys.now_ns() - start;
	close_sockets(g, used < timeout ? timeout - used : 0);
	destroy(g);
	return 0;
}

/* ---- the rest -------------------------------------------------------------------------------------------------------------- */

struct gnet *gpunet_device(gpunet_t *g)
{
	return g ? g->net_mem.dev : NULL;
}

static struct platform_grid whole_grid(const struct gpunet_grid *grid)
{
	const struct platform_grid pg = {
		.grid = { grid->grid_x ? grid->grid_x : 1, grid->grid_y ? grid->grid_y : 1,
			  grid->grid_z ? grid->grid_z : 1 },
		.block = { grid->block_x ? grid->block_x : 1, grid->block_y ? grid->block_y : 1,
			   grid->block_z ? grid->block_z : 1 },
		.shared = grid->shared,
	};

	return pg;
}

int gpunet_launch_cpu(gpunet_t *g, void (*entry)(void *args), const struct gpunet_grid *grid,
		      const void *args, size_t args_size)
{
	struct platform_grid pg;

	if (!g)
		return no_network("gpunet_launch_cpu");
	if (!entry || !grid || (!args && args_size))
		return log_error(
			-EINVAL,
			"gpunet_launch_cpu needs a kernel, its geometry and its arguments");
	pg = whole_grid(grid);
	return g->platform->launch(g->dev, entry, &pg, args, args_size);
}

void *gpunet_stream(gpunet_t *g)
{
	return g ? g->platform->stream(g->dev) : NULL;
}

const char *gpunet_device_kind(gpunet_t *g)
{
	return g ? g->platform->name : "";
}

int gpunet_get_stats(gpunet_t *g, struct gpunet_stats *s)
{
	struct gpunet_stats all = { .size = sizeof(all) };
	struct proxy_counters c;
	size_t size;
	unsigned i;

	if (!g)
		return no_network("gpunet_get_stats");
	if (!s)
		return log_error(-EINVAL, "gpunet_get_stats needs a place for the figures");
	size = s->size;
	if (size < offsetof(struct gpunet_stats, accepted))
		return log_error(
			-EINVAL,
			"struct gpunet_stats has size %zu: set it to sizeof(struct gpunet_stats)",
			size);
	proxy_get_counters(g->proxy, &c);
	all.sockets = atomic_load(&g->sockets.open);
	all.accepted = atomic_load(&g->sockets.accepted);
	for (i = 0; i < g->sockets.threads; i++) {
		all.bytes_received += atomic_load(&g->sockets.t[i].set.bytes_in);
		all.bytes_sent += atomic_load(&g->sockets.t[i].set.bytes_out);
	}
	all.commands = c.entries;
	all.sleeps = c.sleeps;
	all.wakeups = c.wakeups;
	all.slab_segments = segments(&g->opt);
	all.slab_segments_used = slab_used(&g->slab);
	all.pinned_bytes = g->shared.mapped + g->slab_mem.mapped;
	all.size = size < sizeof(all) ? size : sizeof(all);
	memcpy(s, &all, all.size);
	return 0;
}

int gpunet_reports(gpunet_t *g, int (*fn)(const struct gpunet_report *r, void *arg), void *arg)
{
	if (!g)
		return no_network("gpunet_reports");
	return reports_each(&g->reports, fn, arg);
}

int gpunet_get_hops(gpunet_t *g, struct gpunet_hops *h)
{
	if (!g)
		return no_network("gpunet_get_hops");
	if (!g->stat.hops)
		return log_error(
			-EOPNOTSUPP,
			"this network stamps no hops: set option hops, or GPUNET_HOPS=1, before gpunet_open");
	return gpunet_stat_get_hops(g->stat.page, g->stat.size, h);
}

const char *gpunet_last_error(void)
{
	return log_last();
}
