/* SPDX-License-Identifier: BSD-3-Clause */
#include "socket/report.h"

#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/log.h"
#include "base/sys.h"
#include "proxy/proxy.h"
#include "socket/stat.h"

#define LINES_A_SECOND 10

/* What a kernel wrote. */
struct record {
	unsigned call, err, flags;
	uint32_t n, block;
	int fd;
	uint64_t waited, unread, unsent, queued;
};

/* A text that is cut where it ends. */
struct text {
	char *to;
	size_t size, at;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(t->to + t->at, t->size - t->at, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->at += (size_t)n;
	if (t->at >= t->size)
		t->at = t->size - 1;
}

const char *report_call(unsigned call)
{
	static const char *const names[GNET_W_COUNT] = {
		[GNET_W_NONE] = "nothing",
		[GNET_W_RECV] = "grecv",
		[GNET_W_SEND] = "gsend",
		[GNET_W_ACCEPT] = "gaccept",
		[GNET_W_CONNECT] = "gconnect",
		[GNET_W_CLOSE] = "gclose",
		[GNET_W_POLL] = "gpoll",
		[GNET_W_COMMAND] = "the answer to a command",
		[GNET_W_RECV_SIDE] = "its turn to receive",
		[GNET_W_SEND_SIDE] = "its turn to send",
		[GNET_W_CALLS] = "a free call (option calls)",
	};

	return call < GNET_W_COUNT ? names[call] : "something unknown";
}

/* ---- words ------------------------------------------------------------------------------------------------------------ */

static void add_unix(struct text *t, const struct sockaddr_un *un, uint32_t len)
{
	size_t n = len > offsetof(struct sockaddr_un, sun_path)
			   ? len - offsetof(struct sockaddr_un, sun_path)
			   : 0;

	if (!n)
		add(t, "a UNIX socket without a name");
	else if (un->sun_path[0])
		add(t, "unix://%.*s", (int)strnlen(un->sun_path, n), un->sun_path);
	else
		add(t, "unix:@%.*s", (int)strnlen(un->sun_path + 1, n - 1), un->sun_path + 1);
}

static void add_name(struct text *t, const struct gpunet_stat_socket *s, const uint8_t *name,
		     uint32_t len)
{
	char host[NI_MAXHOST], port[16];
	struct sockaddr_storage a = { 0 };

	memcpy(&a, name, len < GPUNET_STAT_NAME_MAX ? len : GPUNET_STAT_NAME_MAX);
	if (a.ss_family == AF_UNIX)
		add_unix(t, (const struct sockaddr_un *)&a, len);
	else if (!len || getnameinfo((const struct sockaddr *)&a, len, host, sizeof(host), port,
				     sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		add(t, "nobody");
	else
		add(t, a.ss_family == AF_INET6 ? "%.8s://[%s]:%s" : "%.8s://%s:%s", s->transport,
		    host, port);
}

static const char *state_words(const struct gpunet_stat_socket *s, unsigned flags)
{
	if (s->state == GPUNET_STAT_LISTENING)
		return "listening";
	if (flags & GNET_LINE_CONNECTING)
		return "connecting";
	if (flags & GNET_LINE_ERR)
		return "failed";
	return flags & GNET_LINE_EOF ? "the peer sends no more" : NULL;
}

static void add_socket(struct text *t, const struct reports *r, const struct record *v)
{
	struct gpunet_stat_socket s;
	const char *state;

	add(t, " on socket %d (slot %u", v->fd, GNET_FD_SLOT(v->fd));
	if (!stat_look(r->stat, GNET_FD_SLOT(v->fd), v->fd, &s)) {
		add(t, ", closed since)");
		return;
	}
	add(t, ", ");
	add_name(t, &s, s.local, s.local_len);
	if (s.state != GPUNET_STAT_LISTENING) {
		add(t, " to ");
		add_name(t, &s, s.peer, s.peer_len);
	}
	state = state_words(&s, v->flags);
	add(t, state ? ", %s)" : ")", state);
}

static const char *reason(const struct reports *r, unsigned err)
{
	if (err == ECANCELED && !proxy_is_aborted(r->proxy))
		return "its kernel has failed";
	return err == ETIMEDOUT   ? "its time limit was over"
	       : err == ECANCELED ? "the network was aborted"
	       : err == EIO       ? "the proxy is dead"
				  : strerror((int)err);
}

static void compose(const struct reports *r, const struct record *v, char *to, size_t size)
{
	struct text t = { to, size, 0 };
	unsigned thread = v->fd > 0 ? GNET_FD_SLOT(v->fd) % proxy_threads(r->proxy) : 0;

	add(&t, "block %u gave up waiting %s %s", v->block,
	    v->call >= GNET_W_COMMAND ? "for" : "in", report_call(v->call));
	if (v->call == GNET_W_COMMAND)
		add(&t, " %u", v->n);
	if (v->call == GNET_W_POLL)
		add(&t, " for %u socket%s, the first", v->n, v->n == 1 ? "" : "s");
	if (v->fd > 0)
		add_socket(&t, r, v);
	add(&t, " after %llu.%03u ms: %s", (unsigned long long)(v->waited / 1000000),
	    (unsigned)(v->waited / 1000 % 1000), reason(r, v->err));
	if (v->fd > 0)
		add(&t, "; %llu bytes unread, %llu unsent", (unsigned long long)v->unread,
		    (unsigned long long)v->unsent);
	add(&t, "; proxy thread %u %s, %llu entries were before it", thread,
	    proxy_state(r->proxy, thread), (unsigned long long)v->queued);
}

/* ---- collecting --------------------------------------------------------------------------------------------------------- */

void reports_open(struct reports *r, const struct gnet_gave_up *ring, const struct stat_book *stat,
		  const struct proxy *proxy)
{
	memset(r, 0, sizeof(*r));
	pthread_mutex_init(&r->lock, NULL);
	r->ring = ring;
	r->stat = stat;
	r->proxy = proxy;
}

void reports_close(struct reports *r)
{
	pthread_mutex_destroy(&r->lock);
}

/* Record p: 1 and its payloads, 0 if it is not (all) there yet, -1 if a later one has its place. */
static int take(const struct reports *r, uint64_t p, uint64_t cell[GNET_GAVE_UP_CELLS])
{
	const struct gnet_gave_up *g = &r->ring[p % GNET_GAVE_UPS];
	uint8_t tag = GNET_GAVE_UP_TAG(p);
	unsigned i, laps;

	for (i = 0; i < GNET_GAVE_UP_CELLS; i++) {
		cell[i] = __atomic_load_n(&g->cell[i], __ATOMIC_ACQUIRE);
		laps = ((uint8_t)cell[i] + 255u - tag) % 255u;
		if ((uint8_t)cell[i] && laps && laps < 128)
			return -1;
		if ((uint8_t)cell[i] != tag)
			return 0;
		cell[i] >>= 8;
	}
	return 1;
}

static void decode(const uint64_t cell[GNET_GAVE_UP_CELLS], struct record *v)
{
	v->call = cell[0] & 0xff;
	v->err = cell[0] >> 8 & 0xff;
	v->flags = cell[0] >> 16 & 0xff;
	v->n = (uint32_t)(cell[0] >> 24 & 0xffffff);
	v->block = (uint32_t)cell[1];
	v->fd = (int)(uint32_t)cell[2];
	v->waited = cell[3];
	v->unread = cell[4];
	v->unsent = cell[5];
	v->queued = cell[6];
}

static void log_report(struct reports *r, const char *text, unsigned err)
{
	uint64_t second = sys.now_ns() / 1000000000u;
	enum log_level level = err == EIO ? LOG_WARN : LOG_NOTE;

	if (second != r->second) {
		if (r->skipped)
			log_line(level, "%u more waits gave up; gpunet stat shows the last %d",
				 r->skipped, GPUNET_STAT_REPORTS);
		r->second = second;
		r->lines = r->skipped = 0;
	}
	if (r->lines++ < LINES_A_SECOND)
		log_line(level, "%s", text);
	else
		r->skipped++;
}

static void report(struct reports *r, const struct record *v)
{
	struct gpunet_stat_report out = {
		.number = ++r->total,
		.fd = (uint64_t)(uint32_t)v->fd,
		.block = v->block,
		.call = v->call,
		.error = v->err,
		.waited_ns = v->waited,
		.unread = v->unread,
		.unsent = v->unsent,
	};

	compose(r, v, out.text, sizeof(out.text));
	stat_report(r->stat, &out);
	log_report(r, out.text, v->err);
}

void reports_collect(struct reports *r)
{
	uint64_t cell[GNET_GAVE_UP_CELLS];
	struct record v;
	int have;

	pthread_mutex_lock(&r->lock);
	while ((have = take(r, r->next, cell))) {
		r->next++;
		if (have < 0)
			continue;
		decode(cell, &v);
		report(r, &v);
	}
	pthread_mutex_unlock(&r->lock);
}

int reports_each(struct reports *r, int (*fn)(const struct gpunet_report *v, void *arg), void *arg)
{
	struct gpunet_stat_report s;
	uint64_t total, i;
	int rc = 0;

	reports_collect(r);
	pthread_mutex_lock(&r->lock);
	total = r->total;
	pthread_mutex_unlock(&r->lock);
	i = total > GPUNET_STAT_REPORTS ? total - GPUNET_STAT_REPORTS : 0;
	while (i++ < total && !rc) {
		struct gpunet_report v;

		/* fn may take its time: the place may have a later report by now. */
		if (!stat_reported(r->stat, i, &s))
			continue;
		v.number = s.number;
		v.block = (unsigned)s.block;
		v.call = report_call((unsigned)s.call);
		v.fd = (int)s.fd;
		v.error = -(int)s.error;
		v.waited_ns = s.waited_ns;
		v.unread = s.unread;
		v.unsent = s.unsent;
		v.text = s.text;
		rc = fn(&v, arg);
	}
	return rc;
}
