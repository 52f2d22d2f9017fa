/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet stat: the sockets of running processes, read from the pages that they show (<gpunet/stat.h>). */
#include <errno.h>
#include <getopt.h>
#include <gpunet/dev/abi/net.h>
#include <gpunet/gpunet.h>
#include <gpunet/stat.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "page.h"
#include "tool.h"

/* One network of one process. */
struct view {
	int pid;
	const struct gpunet_stat_page *page;
	const uint8_t *bus;           /* NULL: not to be had */
	const struct gnet_told *told; /* in it; NULL: not there */
	size_t page_size, bus_size;
};

/* A socket, copied at one moment. */
struct row {
	struct gpunet_stat_socket s;
	uint64_t received, unread, sent, unsent, errors;
	unsigned err;                        /* the last errno */
	long rx_block, tx_block, poll_block; /* blocks that wait, -1: none */
};

static void help(void)
{
	puts("usage: gpunet stat [PID] [--json] [--watch]\n"
	     "\n"
	     "The sockets of kernels, of one process or of all of this user, as ss shows those of\n"
	     "programs: state, bytes that wait in the rings, bytes so far, errors, names, and the blocks\n"
	     "that wait in a call; then the waits that gave up. Reading has no effect on the process.\n"
	     "\n"
	     "  --json   a line of JSON a network\n"
	     "  --watch  again every second, until SIGINT or SIGTERM\n"
	     "\n"
	     "Exit code: 0 done, 1 the process has no network or cannot be looked into, 2 usage.");
}

/* ---- finding ------------------------------------------------------------------------------------- */

static void close_view(struct view *v)
{
	if (v->page)
		munmap((void *)(uintptr_t)v->page, v->page_size);
	if (v->bus)
		munmap((void *)(uintptr_t)v->bus, v->bus_size);
}

/* What is in the page was written by another process: nothing of it is trusted further than the page reaches. */
static bool sane(const struct view *v)
{
	const struct gpunet_stat_page *p = v->page;

	return v->page_size >= sizeof(*p) &&
	       __atomic_load_n(&p->magic, __ATOMIC_ACQUIRE) == GPUNET_STAT_MAGIC &&
	       p->size >= sizeof(*p) && p->record_size >= sizeof(struct gpunet_stat_socket) &&
	       p->size % 8 == 0 && p->record_size % 8 == 0 && p->reports == GPUNET_STAT_REPORTS &&
	       (v->page_size - p->size) / p->record_size >= p->sockets;
}

static bool open_view(struct view *v, int pid, int fd)
{
	const struct gpunet_stat_page *p;

	memset(v, 0, sizeof(*v));
	v->pid = pid;
	if (!page_is_named(pid, fd, GPUNET_STAT_NAME))
		return false;
	v->page = page_map(pid, fd, &v->page_size);
	p = v->page;
	/* A forked child has a copy of the descriptor, and no part in the network. */
	if (!p || !sane(v) || !page_same_process(pid, p->pid)) {
		close_view(v);
		return false;
	}
	if (p->bus_fd >= 0 && p->abi == GNET_ABI_VERSION &&
	    page_is_named(pid, p->bus_fd, GPUNET_STAT_BUS_NAME))
		v->bus = page_map(pid, p->bus_fd, &v->bus_size);
	if (v->bus && (p->bus_at > v->bus_size ||
		       (v->bus_size - p->bus_at) / sizeof(struct gnet_sock_bus) < p->sockets)) {
		munmap((void *)(uintptr_t)v->bus, v->bus_size);
		v->bus = NULL;
	}
	if (v->bus && p->told == GNET_TOLD && p->told_at % 8 == 0 && p->told_at < v->bus_size &&
	    (v->bus_size - p->told_at) / sizeof(*v->told) >= GNET_TOLD)
		v->told = (const void *)(v->bus + p->told_at);
	return true;
}

/* ---- reading --------------------------------------------------------------------------------------- */

static uint64_t load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Copies n bytes that begin with their `seq` and belong together while it is even; at last whatever is there. */
static void copy_whole(const void *from, void *to, size_t n)
{
	const uint64_t *words = from;
	unsigned tries;

	for (tries = 0; tries < 1000; tries++) {
		uint64_t seq = load(words), v;
		size_t i;

		for (i = 0; i < n / 8; i++) {
			v = load(words + i);
			memcpy((uint8_t *)to + i * 8, &v, sizeof(v));
		}
		if (!(seq & 1) && load(words) == seq)
			return;
	}
}

/* A copy of the record: false if there is no socket. */
static bool copy_record(const struct gpunet_stat_socket *r, struct gpunet_stat_socket *out)
{
	copy_whole(r, out, sizeof(*out));
	if (out->local_len > GPUNET_STAT_NAME_MAX || out->peer_len > GPUNET_STAT_NAME_MAX)
		return false;
	return out->fd != 0;
}

static void read_bus(const struct gnet_sock_bus *b, struct row *r)
{
	bool listens = r->s.state == GPUNET_STAT_LISTENING;
	uint64_t head = load(&b->head), cell0 = load(&b->line.cell[0]), txw = load(&b->txw);
	uint64_t tail = load(&b->tx_tail), rx = load(&b->waits[GNET_WAIT_RX]);
	uint64_t tx = load(&b->waits[GNET_WAIT_TX]), poll = load(&b->waits[GNET_WAIT_POLL]);
	uint64_t unread = ((cell0 >> GNET_LINE_TAIL_SHIFT) - head) & GNET_LINE_TAIL_MASK;

	r->unread = listens ? r->s.accepted - head : unread;
	/* The two words are not of one moment. */
	if (r->unread >> 40)
		r->unread = 0;
	r->received = listens ? 0 : head + r->unread;
	r->unsent = (tail - txw) & GNET_TXW_POS_MASK;
	if (r->unsent >> 40)
		r->unsent = 0;
	r->sent = tail - r->unsent;
	r->err = (unsigned)(txw >> GNET_TXW_ERR_SHIFT & 0xff);
	r->errors = txw >> GNET_TXW_ERRS_SHIFT;
	if (rx && GNET_WAIT_POS(rx) == (uint32_t)head && !r->unread)
		r->rx_block = (long)GNET_WAIT_BLOCK(rx);
	if (tx && GNET_WAIT_POS(tx) == (uint32_t)tail && r->unsent)
		r->tx_block = (long)GNET_WAIT_BLOCK(tx);
	if (poll)
		r->poll_block = (long)GNET_WAIT_BLOCK(poll);
}

static bool read_row(const struct view *v, uint32_t slot, struct row *r)
{
	const struct gpunet_stat_page *p = v->page;
	const uint8_t *at = (const uint8_t *)p + p->size + (size_t)slot * p->record_size;

	memset(r, 0, sizeof(*r));
	r->rx_block = r->tx_block = r->poll_block = -1;
	if (!copy_record((const void *)at, &r->s))
		return false;
	if (v->bus)
		read_bus((const void *)(v->bus + p->bus_at + slot * sizeof(struct gnet_sock_bus)),
			 r);
	return true;
}

static const char *state_name(uint64_t state)
{
	static const char *const names[] = {
		[GPUNET_STAT_FREE] = "free",
		[GPUNET_STAT_NEW] = "new",
		[GPUNET_STAT_CONNECTING] = "connecting",
		[GPUNET_STAT_CONNECTED] = "connected",
		[GPUNET_STAT_LISTENING] = "listening",
		[GPUNET_STAT_DATAGRAMS] = "datagrams",
		[GPUNET_STAT_CLOSED] = "closed",
	};

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

/* "" for a socket without a name on that side. */
static void name_text(const struct gpunet_stat_socket *s, bool peer, char *out)
{
	struct tool_addr a = { .len = peer ? s->peer_len : s->local_len };
	struct url u;

	memcpy(&a.addr, peer ? s->peer : s->local,
	       a.len < GPUNET_STAT_NAME_MAX ? a.len : GPUNET_STAT_NAME_MAX);
	*out = 0;
	if (!a.len || url_of_addr(&u, &a) != 0)
		return;
	u.dgram = s->state == GPUNET_STAT_DATAGRAMS;
	u.rdma = strncmp(s->transport, "rdma", sizeof(s->transport)) == 0;
	url_format(&u, out);
}

/* A long wait that is not in a socket's own words. */
struct wait {
	unsigned call, n;
	int fd;
	unsigned long block;
};

/* The wait in entry i, or of a socket if `fd` is not 0. */
static bool read_wait(const struct view *v, unsigned i, int fd, struct wait *w)
{
	uint64_t what = v->told ? load(&v->told[i].what) : 0;

	w->call = GNET_TOLD_CALL(what);
	w->n = GNET_TOLD_N(what);
	w->fd = GNET_TOLD_FD(what);
	w->block = what ? (unsigned long)load(&v->told[i].block) : 0;
	return what && w->call < GNET_W_COUNT && (!fd || fd == w->fd);
}

/* The wait is for a call's turn: another block has that direction of the socket. */
static bool is_behind(unsigned call)
{
	return call == GNET_W_RECV_SIDE || call == GNET_W_SEND_SIDE;
}

/* What a block does that waits, in one word. */
static const char *call_name(unsigned call)
{
	static const char *const names[GNET_W_COUNT] = {
		[GNET_W_NONE] = "",           [GNET_W_RECV] = "recv",
		[GNET_W_SEND] = "send",       [GNET_W_ACCEPT] = "accept",
		[GNET_W_CONNECT] = "connect", [GNET_W_CLOSE] = "close",
		[GNET_W_POLL] = "poll",       [GNET_W_COMMAND] = "command",
		[GNET_W_RECV_SIDE] = "recv",  [GNET_W_SEND_SIDE] = "send",
		[GNET_W_CALLS] = "calls",
	};

	return call < GNET_W_COUNT ? names[call] : "unknown";
}

/* A listener's receivers accept. */
static const char *wait_name(const struct wait *w, bool listens)
{
	return listens && w->call == GNET_W_RECV_SIDE ? "accept" : call_name(w->call);
}

/* Waits of one socket only; those of a poll are of many. */
static bool read_sock_wait(const struct view *v, unsigned i, const struct row *r, struct wait *w)
{
	return read_wait(v, i, (int)r->s.fd, w) && w->call != GNET_W_POLL;
}

static bool read_report(const struct view *v, unsigned i, struct gpunet_stat_report *out)
{
	copy_whole(&v->page->report[i], out, sizeof(*out));
	out->text[sizeof(out->text) - 1] = 0;
	return out->number != 0;
}

/* The place of the oldest report. */
static unsigned oldest_report(const struct view *v)
{
	uint64_t least = UINT64_MAX;
	unsigned i, at = 0;

	for (i = 0; i < GPUNET_STAT_REPORTS; i++) {
		uint64_t n = load(&v->page->report[i].number);

		if (n && n < least) {
			least = n;
			at = i;
		}
	}
	return at;
}

/* ---- printing --------------------------------------------------------------------------------------- */

static void print_waits(const struct view *v, const struct row *r)
{
	bool listens = r->s.state == GPUNET_STAT_LISTENING;
	const char *before = " waits";
	struct wait w;
	unsigned i;

	if (r->rx_block >= 0) {
		printf("%s %s:%ld", before, listens ? "accept" : "recv", r->rx_block);
		before = "";
	}
	if (r->tx_block >= 0) {
		printf("%s send:%ld", before, r->tx_block);
		before = "";
	}
	if (r->poll_block >= 0) {
		printf("%s poll:%ld", before, r->poll_block);
		before = "";
	}
	for (i = 0; i < GNET_TOLD; i++) {
		if (!read_sock_wait(v, i, r, &w))
			continue;
		printf("%s %s%s:%lu", before, is_behind(w.call) ? "behind-" : "",
		       wait_name(&w, listens), w.block);
		before = "";
	}
}

static void print_row(const struct view *v, const struct row *r)
{
	char local[URL_TEXT_MAX], peer[URL_TEXT_MAX];

	name_text(&r->s, false, local);
	name_text(&r->s, true, peer);
	printf("%-10s %-8llu %8llu %8llu %12llu %12llu %4llu  %-28s %-28s", state_name(r->s.state),
	       (unsigned long long)GNET_FD_SLOT((int)r->s.fd), (unsigned long long)r->unread,
	       (unsigned long long)r->unsent, (unsigned long long)r->received,
	       (unsigned long long)r->sent, (unsigned long long)r->errors, *local ? local : "-",
	       *peer ? peer : "-");
	print_waits(v, r);
	if (r->err)
		printf(" last error: %s", strerror((int)r->err));
	putchar('\n');
}

/* Blocks whose wait is of no single socket, or of many. */
static void print_other_waits(const struct view *v)
{
	bool any = false;
	struct wait w;
	unsigned i;

	for (i = 0; i < GNET_TOLD; i++) {
		if (!read_wait(v, i, 0, &w) || (w.call != GNET_W_POLL && w.fd > 0))
			continue;
		printf("%s %s:%lu", any ? "" : "blocks that wait:", call_name(w.call), w.block);
		any = true;
		if (w.call == GNET_W_POLL)
			printf("(%u sockets, first slot %u)", w.n, GNET_FD_SLOT(w.fd));
	}
	if (any)
		putchar('\n');
}

static void print_reports(const struct view *v)
{
	unsigned from = oldest_report(v), i;
	struct gpunet_stat_report r;

	for (i = 0; i < GPUNET_STAT_REPORTS; i++) {
		if (read_report(v, (from + i) % GPUNET_STAT_REPORTS, &r))
			printf("gave up, number %llu: %s\n", (unsigned long long)r.number, r.text);
	}
}

/* The times of hops: false if the process stamps none. */
static bool read_hops(const struct view *v, struct gpunet_hops *h)
{
	h->size = sizeof(*h);
	return v->page->abi == GNET_ABI_VERSION && v->page->hops_at &&
	       gpunet_stat_get_hops(v->page, v->page_size, h) == 0;
}

static void print_text(const struct view *v)
{
	struct gpunet_hops h;
	struct row r;
	uint32_t i;

	printf("process %d, device %s, %u proxy threads, rings of %llu KiB\n", v->pid,
	       v->page->device, v->page->threads,
	       (unsigned long long)(UINT64_C(1) << v->page->seg_log2) >> 10);
	if (!v->bus)
		puts("(bytes and waits are not to be had: another version, or no memory file)");
	printf("%-10s %-8s %8s %8s %12s %12s %4s  %-28s %-28s\n", "state", "slot", "recv-q",
	       "send-q", "received", "sent", "errs", "local", "peer");
	for (i = 0; i < v->page->sockets; i++) {
		if (read_row(v, i, &r))
			print_row(v, &r);
	}
	print_other_waits(v);
	print_reports(v);
	if (read_hops(v, &h))
		hops_text(&h);
}

static void json_wait(bool *first, const char *call, long block, bool behind)
{
	if (block < 0)
		return;
	printf("%s{\"call\":\"%s\",\"block\":%ld,\"behind\":%s}", *first ? "" : ",", call, block,
	       behind ? "true" : "false");
	*first = false;
}

static void json_waits(const struct view *v, const struct row *r)
{
	bool listens = r->s.state == GPUNET_STAT_LISTENING, first = true;
	struct wait w;
	unsigned i;

	json_wait(&first, listens ? "accept" : "recv", r->rx_block, false);
	json_wait(&first, "send", r->tx_block, false);
	json_wait(&first, "poll", r->poll_block, false);
	for (i = 0; i < GNET_TOLD; i++) {
		if (read_sock_wait(v, i, r, &w))
			json_wait(&first, wait_name(&w, listens), (long)w.block, is_behind(w.call));
	}
}

/* Waits that are of no single socket. */
static void json_other_waits(const struct view *v)
{
	bool first = true;
	struct wait w;
	unsigned i;

	fputs(",\"waits\":[", stdout);
	for (i = 0; i < GNET_TOLD; i++) {
		if (!read_wait(v, i, 0, &w) || (w.call != GNET_W_POLL && w.fd > 0))
			continue;
		printf("%s{\"call\":\"%s\",\"block\":%lu,\"sockets\":%u,\"fd\":%d}",
		       first ? "" : ",", call_name(w.call), w.block, w.n, w.fd);
		first = false;
	}
	putchar(']');
}

static void json_reports(const struct view *v)
{
	unsigned from = oldest_report(v), i;
	struct gpunet_stat_report r;
	bool first = true;

	fputs(",\"reports\":[", stdout);
	for (i = 0; i < GPUNET_STAT_REPORTS; i++) {
		if (!read_report(v, (from + i) % GPUNET_STAT_REPORTS, &r))
			continue;
		printf("%s{\"number\":%llu,\"block\":%llu,\"call\":\"%s\",\"behind\":%s,\"fd\":%d,"
		       "\"error\":%d,\"waited_ns\":%llu,\"unread\":%llu,\"unsent\":%llu",
		       first ? "" : ",", (unsigned long long)r.number, (unsigned long long)r.block,
		       call_name((unsigned)r.call), is_behind((unsigned)r.call) ? "true" : "false",
		       (int)r.fd, (int)r.error, (unsigned long long)r.waited_ns,
		       (unsigned long long)r.unread, (unsigned long long)r.unsent);
		json_member(false, "text", r.text);
		putchar('}');
		first = false;
	}
	putchar(']');
}

static void json_row(const struct view *v, const struct row *r)
{
	char text[URL_TEXT_MAX];

	printf("{\"fd\":%llu", (unsigned long long)r->s.fd);
	json_member(false, "state", state_name(r->s.state));
	snprintf(text, sizeof(text), "%.8s", r->s.transport);
	json_member(false, "transport", text);
	name_text(&r->s, false, text);
	json_member(false, "local", text);
	name_text(&r->s, true, text);
	json_member(false, "peer", text);
	printf(",\"received\":%llu,\"unread\":%llu,\"sent\":%llu,\"unsent\":%llu,\"accepted\":%llu,"
	       "\"errors\":%llu,\"last_error\":%u,\"waits\":[",
	       (unsigned long long)r->received, (unsigned long long)r->unread,
	       (unsigned long long)r->sent, (unsigned long long)r->unsent,
	       (unsigned long long)r->s.accepted, (unsigned long long)r->errors, r->err);
	json_waits(v, r);
	fputs("]}", stdout);
}

static void print_json(const struct view *v)
{
	struct gpunet_hops h;
	bool first = true;
	struct row r;
	uint32_t i;

	printf("{\"pid\":%d", v->pid);
	json_member(false, "device", v->page->device);
	printf(",\"proxy_threads\":%u,\"ring_bytes\":%llu,\"complete\":%s,\"sockets\":[",
	       v->page->threads, (unsigned long long)(UINT64_C(1) << v->page->seg_log2),
	       v->bus ? "true" : "false");
	for (i = 0; i < v->page->sockets; i++) {
		if (!read_row(v, i, &r))
			continue;
		if (!first)
			putchar(',');
		json_row(v, &r);
		first = false;
	}
	putchar(']');
	json_other_waits(v);
	json_reports(v);
	if (read_hops(v, &h))
		hops_json(&h);
	puts("}");
}

/* ---- all of them ------------------------------------------------------------------------------------- */

static bool show_one(int pid, int fd, bool json)
{
	struct view v;

	if (!open_view(&v, pid, fd))
		return false;
	if (json)
		print_json(&v);
	else
		print_text(&v);
	close_view(&v);
	return true;
}

static int show(int pid, bool json)
{
	return page_show(pid, json, show_one, "has no network open", "has a network open");
}

static int watch(int pid, bool json)
{
	struct pollfd p = { .events = POLLIN };
	int rc = stop_hold();

	if (rc == 0)
		rc = stop_arm(NULL);
	if (rc < 0)
		return tool_fail("cannot prepare for signals: %s", strerror(-rc));
	p.fd = stop_fd();
	do {
		if (!json && isatty(STDOUT_FILENO))
			fputs("\033[H\033[2J", stdout);
		rc = show(pid, json);
		if (rc == TOOL_DONE && poll(&p, 1, 1000) < 0 && errno != EINTR)
			return tool_fail("cannot wait: %s", strerror(errno));
	} while (rc == TOOL_DONE && !stop_asked());
	return rc;
}

int cmd_stat(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "watch", no_argument, NULL, 'w' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	bool json = false, again = false;
	unsigned pid = 0;
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'w':
			again = true;
			break;
		case 'h':
			help();
			return TOOL_DONE;
		default:
			tool_try_help();
			return TOOL_USAGE;
		}
	}
	if (argc - optind > 1)
		return tool_usage("%s: one process at most", argv[optind + 1]);
	if (optind < argc && !tool_number("process", argv[optind], 1, 999999999, &pid))
		return TOOL_USAGE;
	return again ? watch((int)pid, json) : show((int)pid, json);
}
