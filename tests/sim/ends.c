/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How things end, against what POSIX says: a close that lingers for a time, in which the peer reads or does not; a reset, which one call is
 * told of, or SO_ERROR; a close by one block while another is in a call; a lookup of names. Not instrumented, as program.c.
 */
#include "ends.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/sys.h"
#include "block.h"
#include "host.h"
#include "sim.h"

#define SECOND UINT64_C(1000000000)
#define MOST 4000u /* bytes that a call hands over without waiting, whatever the slab has left */

enum kind { LINGERS, RESETS, CLOSES, LOOKS_UP, KINDS_OF_ENDS };

struct ends {
	enum kind kind;
	int listener;
	unsigned peer; /* thread */
	struct sockaddr_storage at;
	socklen_t at_len;
	uint64_t mute_ns; /* the peer reads nothing for so long */
	uint32_t total;
	bool orderly; /* all of it must arrive, and its end */
	bool cut;     /* it must not all arrive */
	bool any;     /* whatever arrives */
	uint64_t fd;  /* word: descriptor + 1 of a connection that two blocks use */
	int over;
	uint8_t buf[2][MOST];
};

/* Thread 0: must be a or b. True, in all threads: the run is over. */
static bool expect(struct world *w, struct ends *e, const char *call, int64_t rc, int64_t a,
		   int64_t b)
{
	if (is_first()) {
		sim_note("ends: %s = %lld", call, (long long)rc);
		if (wait_ended(w, rc) || w->aborted)
			e->over = 1;
		else if (rc != a && rc != b)
			sim_fail("ends: %s: %lld, should be %lld or %lld", call, (long long)rc,
				 (long long)a, (long long)b);
	}
	return share(e->over);
}

static struct world *world;

/* ---- the peer on the host ------------------------------------------------------------------------------------------------ */

static void peer_reads(struct world *w, struct ends *e, int fd)
{
	uint8_t buf[512];
	uint32_t got = 0;
	ssize_t rc;

	sim_park(&e->mute_ns, sim_now() + e->mute_ns, "the end of its silence (host)");
	while ((rc = host_recv(fd, buf, sizeof(buf))) > 0)
		got += (uint32_t)rc;
	sim_note("ends: the peer gets %u bytes, then %zd", got, rc);
	if (w->aborted || e->any)
		return;
	if (e->orderly && (got != e->total || rc))
		sim_fail("ends: of %u bytes %u arrived, then %zd", e->total, got, rc);
	if (e->cut && got >= e->total)
		sim_fail("ends: the time to linger was over, but all %u bytes arrived", got);
}

/* Small messages, until nobody takes them any more. */
static void peer_writes(int fd)
{
	static const uint8_t data[40];
	ssize_t rc;

	do {
		rc = host_send(fd, data, sizeof(data));
		sim_park(data, sim_now() + sim_below(3000), "its rest's end");
	} while (rc > 0);
}

static void peer_resets(struct ends *e, int fd)
{
	const struct linger at_once = { 1, 0 };

	while (!e->fd && !world->aborted)
		sim_park(&e->fd, sim_now() + 10000, "the kernel's connect (host)");
	sim_park(&e->mute_ns, sim_now() + e->mute_ns, "the time of its reset (host)");
	sys.setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

static void *peer_main(void *arg)
{
	struct ends *e = arg;
	int fd = host_accept(e->listener);

	if (fd < 0)
		return NULL;
	if (e->kind == LINGERS)
		peer_reads(world, e, fd);
	else if (e->kind == RESETS)
		peer_resets(e, fd);
	else
		peer_writes(fd);
	sys.close(fd);
	return NULL;
}

static void any_address(struct world *w, struct ends *e)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&e->at;
	struct sockaddr_un *un = (struct sockaddr_un *)&e->at;

	e->at.ss_family = (sa_family_t)w->domain;
	if (w->domain == AF_INET) {
		in->sin_port = htons(7000);
		in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		e->at_len = sizeof(*in);
		return;
	}
	un->sun_path[1] = 'e';
	e->at_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 2);
}

unsigned ends_make(struct world *w, struct ends *e, unsigned which)
{
	int rc;

	world = w;
	e->kind = which % KINDS_OF_ENDS;
	host_names();
	if (e->kind == LOOKS_UP)
		return 2;
	any_address(w, e);
	e->listener = sys.socket(w->domain, SOCK_STREAM, 0);
	rc = sys.bind(e->listener, (struct sockaddr *)&e->at, e->at_len);
	if (!rc)
		rc = sys.listen(e->listener, 4);
	if (rc)
		sim_fail("ends: bind, listen: %s", strerror(-rc));
	e->peer = sim_spawn("endspeer", peer_main, e);
	return e->kind == CLOSES ? 2 : 1;
}

void ends_end(struct world *w, struct ends *e)
{
	(void)w;
	if (e->kind == LOOKS_UP)
		return;
	sys.close(e->listener);
	sim_join(e->peer);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------------------- */

/* A connected socket, or -1. */
static int connect_to_peer(struct world *w, struct ends *e)
{
	int fd = gsocket(w->net, w->domain, SOCK_STREAM, 0);
	int64_t rc;

	if (expect(w, e, "gsocket", fd < 0 ? fd : 0, 0, 0))
		return -1;
	rc = gconnect(w->net, fd, &e->at, e->at_len);
	return expect(w, e, "gconnect", rc, 0, 0) ? -1 : fd;
}

/*
 * The peer reads soon: the close waits for it. Or not before the time is over: what its buffers do not take is dropped and the close
 * says so. Or there is no linger, and all arrives however late.
 */
static void lingers(struct world *w, struct ends *e)
{
	const char *call = "gclose of one that lingers";
	bool soon = share(sim_chance(500)), waits = share(sim_chance(800));
	struct linger l = { waits, soon ? 20 : 1 };
	uint64_t start, took;
	int64_t rc;
	int fd;

	if (is_first()) {
		e->total = sim_between(1, 20 * host_buffer() < MOST ? 20 * (uint32_t)host_buffer()
								    : MOST);
		e->mute_ns = soon ? sim_below(100000000) : 2 * SECOND;
		e->cut = waits && !soon && e->total > host_buffer();
		e->orderly = !e->cut;
		memset(e->buf[0], 0xe1, MOST); /* not what says which connection it is */
	}
	fd = connect_to_peer(w, e);
	if (fd < 0)
		return;
	rc = gsetsockopt(w->net, fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	if (expect(w, e, "SO_LINGER", rc, 0, 0))
		return;
	rc = gsend(w->net, fd, e->buf[0], e->total, 0);
	if (expect(w, e, "gsend", rc, e->total, e->total))
		return;
	start = sim_now();
	rc = gclose(w->net, fd);
	took = sim_now() - start;
	if (expect(w, e, call, rc, e->cut ? -ETIMEDOUT : 0, e->cut ? -ETIMEDOUT : 0) || !is_first())
		return;
	/* The proxy's clock stands still during a pass, so it may have begun a little earlier. */
	if (e->cut ? took + SECOND / 1000 < SECOND || took > SECOND + SECOND / 10
		   : took > 2 * SECOND)
		sim_fail("ends: %s takes %llu ns", call, (unsigned long long)took);
	if (!waits && took > SECOND)
		sim_fail("ends: gclose without a linger takes %llu ns", (unsigned long long)took);
}

static bool expect_so_error(struct world *w, struct ends *e, int fd, int err)
{
	__shared__ int value;
	uint32_t n = sizeof(value);
	int64_t rc;

	__syncthreads();
	rc = ggetsockopt(w->net, fd, SOL_SOCKET, SO_ERROR, &value, &n);
	return expect(w, e, "SO_ERROR", rc ? rc : -share(value), -err, -err);
}

/* gpoll tells of a reset, and then one call is told: SO_ERROR, or a receive. */
static void is_reset(struct world *w, struct ends *e)
{
	__shared__ struct gnet_pollfd p;
	int64_t rc;
	int fd;

	if (is_first())
		e->mute_ns = sim_below(3000000);
	fd = connect_to_peer(w, e);
	if (fd < 0)
		return;
	if (is_first()) {
		gnet_dev_store_release(&e->fd, (uint64_t)fd + 1);
		sim_wake(&e->fd, ~0u);
	}
	if (is_first())
		p = (struct gnet_pollfd){ .fd = fd, .events = GNET_POLLIN };
	__syncthreads();
	rc = gpoll(w->net, &p, 1, -1);
	if (expect(w, e, "gpoll", rc, 1, 1))
		return;
	if (is_first() &&
	    (p.revents & (GNET_POLLERR | GNET_POLLIN)) != (GNET_POLLERR | GNET_POLLIN))
		sim_fail("ends: gpoll tells %x of a reset", p.revents);
	if (share(sim_chance(500))) {
		if (expect_so_error(w, e, fd, ECONNRESET))
			return;
	} else {
		rc = grecv(w->net, fd, e->buf[0], 10, 0);
		if (expect(w, e, "grecv of a reset", rc, -ECONNRESET, -ECONNRESET))
			return;
	}
	rc = grecv(w->net, fd, e->buf[0], 10, 0);
	if (expect(w, e, "grecv behind it", rc, 0, 0) || expect_so_error(w, e, fd, 0))
		return;
	rc = gsend(w->net, fd, e->buf[0], 10, 0);
	if (expect(w, e, "gsend behind it", rc, -EPIPE, -EPIPE))
		return;
	rc = gclose(w->net, fd);
	expect(w, e, "gclose", rc, 0, 0);
}

/* Small messages in one block, each call with the side that it had last; the other one closes. */
static void closes(struct world *w, struct ends *e, unsigned self)
{
	uint64_t turn = 0;
	int64_t rc = 0;
	int fd;

	if (!self) {
		fd = connect_to_peer(w, e);
		if (is_first())
			gnet_dev_store_release(&e->fd, fd < 0 ? 1 : (uint64_t)fd + 1);
		if (fd < 0)
			return;
		__nanosleep((uint32_t)share(sim_below(20000)));
		rc = gclose(w->net, fd);
		expect(w, e, "gclose while another block is in calls", rc, 0, 0);
		return;
	}
	while (is_first() && !rc && !gnet_dev_load_acquire(&e->fd))
		rc = gnet__spin(w->net, &turn);
	fd = (int)share((int64_t)e->fd) - 1;
	if (share(rc) || !fd)
		return;
	do {
		rc = grecv(w->net, fd, e->buf[1], 40, 0);
		if (rc > 0 && share(sim_chance(500)))
			rc = gsend(w->net, fd, e->buf[1], 40, GNET_MSG_DONTWAIT);
	} while (rc > 0 || rc == -EAGAIN);
	expect(w, e, "a call of a closed socket", rc, -EBADF, -EBADF);
}

/* The host's names: "3" has as many addresses, 10.0.0.1 and so on; "none" has none; "again" is not known just now. */
static void looks_up(struct world *w, struct ends *e)
{
	__shared__ struct gnet_addrinfo res[GNET_ADDRINFO_MAX + 2];
	unsigned n = (unsigned)share(sim_between(1, 12)), max = (unsigned)share(sim_between(1, 9)),
		 i;
	unsigned which = (unsigned)share(sim_below(6)), want = n;
	char name[16] = "none";
	int64_t rc;

	if (which == 0)
		strcpy(name, "again");
	else if (which > 1)
		snprintf(name, sizeof(name), "%u", n);
	want = want > GNET_ADDRINFO_MAX ? GNET_ADDRINFO_MAX : want;
	want = want > max ? max : want;
	rc = ggetaddrinfo(w->net, name, "77", NULL, res, max);
	if (expect(w, e, "ggetaddrinfo", rc,
		   which == 0   ? -EAGAIN
		   : which == 1 ? -ENOENT
				: (int64_t)want,
		   which == 0 ? -EAGAIN : -ENOENT))
		return;
	for (i = 0; rc > 0 && i < (unsigned)rc && is_first(); i++) {
		const struct sockaddr_in *in =
			(const struct sockaddr_in *)(const void *)res[i].addr;

		if (which < 2 || in->sin_addr.s_addr != htonl(0x0a000001 + i) ||
		    in->sin_port != htons(77) || res[i].addrlen != sizeof(*in))
			sim_fail("ends: address %u of %u is wrong", i, want);
	}
	__syncthreads();
}

void ends_run(struct world *w, struct ends *e, unsigned self)
{
	unsigned i, n;

	switch (e->kind) {
	case LINGERS:
		lingers(w, e);
		break;
	case RESETS:
		is_reset(w, e);
		break;
	case CLOSES:
		closes(w, e, self);
		break;
	default:
		n = (unsigned)share(sim_between(1, 4));
		for (i = 0; i < n && !share(e->over); i++)
			looks_up(w, e);
	}
}

size_t ends_size(void)
{
	return sizeof(struct ends);
}
