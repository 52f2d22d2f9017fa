/* SPDX-License-Identifier: BSD-3-Clause */
/* gpunet rnic: the software RNIC of running processes, read from the pages that they show (<gpunet/stat.h>). */
#include <arpa/inet.h>
#include <getopt.h>
#include <gpunet/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "page.h"
#include "tool.h"

#define ROOM 4096 /* queue pairs that we list */

static const char *const names[] = { GPUNET_STAT_RNIC_NAMES };

#define NAMES (sizeof(names) / sizeof(names[0]))

/* One device of one process, copied at one moment. */
struct view {
	int pid;
	struct gpunet_stat_rnic d;
	struct gpunet_stat_rnic_qp qp[ROOM];
	unsigned qps; /* of qp[] */
};

static void help(void)
{
	puts("usage: gpunet rnic [PID] [--json]\n"
	     "\n"
	     "The software RNIC of one process or of all of this user: its devices (one an address), their\n"
	     "queue pairs and counters. Reading has no effect on the process.\n"
	     "\n"
	     "  --json  a line of JSON a device\n"
	     "\n"
	     "Exit code: 0 done, 1 the process has no such device or cannot be looked into, 2 usage.");
}

/* ---- reading --------------------------------------------------------------------------------------- */

static void copy(void *to, const void *from, size_t n)
{
	const uint64_t *words = from;
	uint64_t word;
	size_t i;

	for (i = 0; i < n / sizeof(word); i++) {
		word = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
		memcpy((uint8_t *)to + i * sizeof(word), &word, sizeof(word));
	}
}

/* What is in the page was written by another process: nothing of it is trusted further than the page reaches. */
static bool sane(const struct gpunet_stat_rnic *p, size_t size)
{
	return size >= sizeof(*p) &&
	       __atomic_load_n(&p->magic, __ATOMIC_ACQUIRE) == GPUNET_STAT_RNIC_MAGIC &&
	       p->size >= sizeof(*p) && p->record_size >= sizeof(struct gpunet_stat_rnic_qp) &&
	       p->size % 8 == 0 && p->record_size % 8 == 0 && p->size <= size &&
	       (size - p->size) / p->record_size >= p->records;
}

static void copy_view(struct view *v, const struct gpunet_stat_rnic *p)
{
	const uint8_t *at = (const uint8_t *)p + p->size;
	unsigned tries, i;

	for (tries = 0; tries < 1000; tries++) {
		uint64_t seq = __atomic_load_n(&p->seq, __ATOMIC_ACQUIRE);

		copy(&v->d, p, sizeof(v->d));
		v->qps = v->d.qps < p->records ? (unsigned)v->d.qps : p->records;
		v->qps = v->qps < ROOM ? v->qps : ROOM;
		for (i = 0; i < v->qps; i++)
			copy(&v->qp[i], at + (size_t)i * p->record_size, sizeof(v->qp[i]));
		if (!(seq & 1) && __atomic_load_n(&p->seq, __ATOMIC_ACQUIRE) == seq)
			break;
	}
	v->d.device[sizeof(v->d.device) - 1] = 0;
	v->d.interface[sizeof(v->d.interface) - 1] = 0;
}

static bool open_view(struct view *v, int pid, int fd)
{
	const struct gpunet_stat_rnic *p;
	size_t size = 0;
	bool ok;

	if (!page_is_named(pid, fd, GPUNET_STAT_RNIC_NAME))
		return false;
	p = page_map(pid, fd, &size);
	if (!p)
		return false;
	/* A forked child has a copy of the descriptor, and no part in the device. */
	ok = sane(p, size) && page_same_process(pid, p->pid);
	v->pid = pid;
	if (ok)
		copy_view(v, p);
	munmap((void *)(uintptr_t)p, size);
	return ok;
}

/* ---- printing -------------------------------------------------------------------------------------- */

static const char *state_name(uint64_t state)
{
	static const char *const states[] = {
		"reset", "init", "rtr", "rts", "sqd", "sqe", "error"
	};

	return state < sizeof(states) / sizeof(states[0]) ? states[state] : "unknown";
}

static void address(const uint8_t gid[16], char *out)
{
	static const uint8_t v4[12] = { [10] = 0xff, [11] = 0xff }, none[16];

	*out = 0;
	if (memcmp(gid, none, 16) == 0)
		return;
	if (memcmp(gid, v4, 12) == 0)
		inet_ntop(AF_INET, gid + 12, out, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, gid, out, INET6_ADDRSTRLEN);
}

static void print_text(const struct view *v)
{
	char peer[INET6_ADDRSTRLEN];
	unsigned i, shown = 0;

	printf("process %d, device %s, interface %s, MTU %u, %llu queue pairs\n", v->pid,
	       v->d.device, v->d.interface, v->d.mtu, (unsigned long long)v->d.qps);
	for (i = 0; i < NAMES; i++) {
		if (!v->d.counter[i])
			continue;
		printf("%s%s %llu", shown++ ? ", " : "  ", names[i],
		       (unsigned long long)v->d.counter[i]);
	}
	puts(shown ? "" : "  no packets yet");
	if (v->qps)
		printf("  %-8s %-8s %-8s %-24s %12s %8s %12s %8s  %s\n", "qpn", "state", "peer",
		       "at", "posted", "pending", "received", "window", "rate");
	for (i = 0; i < v->qps; i++) {
		const struct gpunet_stat_rnic_qp *q = &v->qp[i];

		address(q->peer, peer);
		printf("  %06llx   %-8s %06llx   %-24s %12llu %8llu %12llu %8llu  ",
		       (unsigned long long)q->qpn, state_name(q->state),
		       (unsigned long long)q->peer_qpn, *peer ? peer : "-",
		       (unsigned long long)q->posted, (unsigned long long)q->pending,
		       (unsigned long long)q->received, (unsigned long long)q->window);
		if (q->rate)
			printf("%.1f MB/s\n", (double)q->rate / 1e6);
		else
			puts("-");
	}
}

static void print_json(const struct view *v)
{
	char peer[INET6_ADDRSTRLEN];
	unsigned i;

	printf("{\"pid\":%d", v->pid);
	json_member(false, "device", v->d.device);
	json_member(false, "interface", v->d.interface);
	printf(",\"mtu\":%u,\"slot\":%u,\"qps\":%llu,\"counters\":{", v->d.mtu, v->d.slot,
	       (unsigned long long)v->d.qps);
	for (i = 0; i < NAMES; i++)
		printf("%s\"%s\":%llu", i ? "," : "", names[i],
		       (unsigned long long)v->d.counter[i]);
	fputs("},\"queue_pairs\":[", stdout);
	for (i = 0; i < v->qps; i++) {
		const struct gpunet_stat_rnic_qp *q = &v->qp[i];

		address(q->peer, peer);
		printf("%s{\"qpn\":%llu", i ? "," : "", (unsigned long long)q->qpn);
		json_member(false, "state", state_name(q->state));
		json_member(false, "peer", peer);
		printf(",\"peer_qpn\":%llu,\"posted\":%llu,\"pending\":%llu,\"received\":%llu,"
		       "\"window\":%llu,\"rate\":%llu}",
		       (unsigned long long)q->peer_qpn, (unsigned long long)q->posted,
		       (unsigned long long)q->pending, (unsigned long long)q->received,
		       (unsigned long long)q->window, (unsigned long long)q->rate);
	}
	puts("]}");
}

static bool show_one(int pid, int fd, bool json)
{
	static struct view v;

	if (!open_view(&v, pid, fd))
		return false;
	if (json)
		print_json(&v);
	else
		print_text(&v);
	return true;
}

static int show(int pid, bool json)
{
	return page_show(pid, json, show_one, "uses no software RNIC", "uses the software RNIC");
}

int cmd_rnic(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	bool json = false;
	unsigned pid = 0;
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (c == 'h') {
			help();
			return TOOL_DONE;
		}
		if (c != 'j') {
			tool_try_help();
			return TOOL_USAGE;
		}
		json = true;
	}
	if (argc - optind > 1)
		return tool_usage("%s: one process at most", argv[optind + 1]);
	if (optind < argc && !tool_number("process", argv[optind], 1, 999999999, &pid))
		return TOOL_USAGE;
	return show((int)pid, json);
}
