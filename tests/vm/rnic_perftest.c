/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software RNIC as the other side of the stock ib_write_bw, ib_read_bw, ib_send_bw and ib_atomic_bw:
 *
 *	rnic_perftest write|read|send|atomic LOCAL-IPv4 [SERVER-IPv4] [-n ROUNDS] [-s BYTES] [-m MTU]
 *
 * perftest's exchange on TCP port 18515 is strictly alternating, the client first: version (16 bytes), page size and cache line
 * (4 each), MTU (2), the queue pair's record three times (108), the run, the record, five figures of 8 bytes (not for SEND), the
 * record again, "done".
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/sys.h"
#include "rnic_side.h"
#include "wire/bytes.h"

enum { RECORD = 108, DEPTH = 128, READS = 16, FIGURES = 5, PAGE = 4096 };

struct test {
	struct side side;
	enum rnic_wr_opcode opcode;
	unsigned rounds, size;
	int tcp;
	uint64_t peer_addr;
	uint32_t peer_rkey;
	unsigned received; /* SEND: messages */
	uint64_t counted;  /* FETCH_ADD: the value that the next one must find */
	double seconds;
};

/* ---- the exchange ------------------------------------------------------------------------------ */

static void record(const struct test *t, char text[RECORD])
{
	const struct side *s = &t->side;
	int n = snprintf(text, RECORD, "0000:%04x:%06x:%06x:%08x:%016" PRIx64 ":", s->rd_atomic,
			 rnic_qp_num(s->qp), s->psn, rnic_mr_rkey(s->mr),
			 (uint64_t)(uintptr_t)s->mem);
	int i;

	for (i = 0; i < 16; i++, n += 3)
		snprintf(text + n, 4, "%02x:", s->gid[0][i]);
	snprintf(text + n, (size_t)(RECORD - n), "00000000:");
}

static int understand(struct test *t, const char text[RECORD])
{
	struct side *s = &t->side;
	unsigned lid, reads, byte;
	int i, n = 0;

	if (text[RECORD - 1] ||
	    sscanf(text, "%x:%x:%x:%x:%x:%" SCNx64 ":%n", &lid, &reads, &s->peer_qpn, &s->peer_psn,
		   &t->peer_rkey, &t->peer_addr, &n) != 6)
		return side_failed("the peer's record", -EPROTO);
	for (i = 0; i < 16; i++, n += 3) {
		if (sscanf(text + n, "%2x:", &byte) != 1)
			return side_failed("the peer's GID", -EPROTO);
		s->path.dst[i] = (uint8_t)byte;
	}
	memcpy(s->path.src, s->gid[0], 16);
	if (reads < s->rd_atomic)
		s->rd_atomic = reads;
	return 0;
}

/* A completion that is not one of our own sends: a message, whose place takes the next one. */
static int received(struct test *t, const struct rnic_wc *wc)
{
	if (wc->status != RNIC_WC_SUCCESS || wc->byte_len != t->size) {
		fprintf(stderr, "a receive: status %u, %u bytes\n", wc->status, wc->byte_len);
		return -1;
	}
	t->received++;
	return side_receive(&t->side, 0, t->side.mem, t->size);
}

/* Reads one message of the peer's, while the device serves. */
static int hear(struct test *t, void *data, size_t n)
{
	struct rnic_wc wc;
	int rc;

	while ((rc = side_run(&t->side, t->tcp, &wc)) == 1) {
		if (received(t, &wc))
			return -1;
	}
	if (rc < 0 || recv(t->tcp, data, n, MSG_WAITALL) != (ssize_t)n)
		return side_failed("the exchange", -errno);
	return 0;
}

static int tell(struct test *t, const void *data, size_t n)
{
	return write(t->tcp, data, n) == (ssize_t)n ? 0 : side_failed("the exchange", -errno);
}

static int swap(struct test *t, const void *ours, void *theirs, size_t n)
{
	if (t->side.server)
		return tell(t, ours, n) || hear(t, theirs, n) ? -1 : 0;
	return hear(t, theirs, n) || tell(t, ours, n) ? -1 : 0;
}

static int swap_record(struct test *t)
{
	char ours[RECORD] = { 0 }, theirs[RECORD];

	record(t, ours);
	return swap(t, ours, theirs, RECORD);
}

static int introduce(struct test *t)
{
	char version[16] = "6.06", ours[RECORD] = { 0 }, theirs[RECORD];
	uint8_t page[4], line[4] = { 0 }, mtu[2] = { 0 };
	unsigned i;

	wire_put_be32(page, PAGE);
	mtu[0] = (uint8_t)('0' + __builtin_ctz(t->side.mtu) - 7);
	if (swap(t, version, theirs, 16) || swap(t, page, theirs, 4) || swap(t, line, theirs, 4) ||
	    swap(t, mtu, theirs, 2))
		return -1;
	record(t, ours);
	if (swap(t, ours, theirs, RECORD) || understand(t, theirs) || side_connect(&t->side))
		return -1;
	for (i = 0; t->opcode == RNIC_WR_SEND && i < DEPTH; i++) {
		if (side_receive(&t->side, 0, t->side.mem, t->size))
			return -1;
	}
	return swap_record(t) || swap_record(t) ? -1 : 0;
}

static int part(struct test *t)
{
	uint8_t figure[8], theirs[8];
	double rate = t->seconds > 0 ? t->rounds / t->seconds : 0;
	double value[FIGURES] = { 0, 0, rate * t->size / 1048576, rate * t->size / 1048576,
				  rate / 1e6 };
	uint64_t bits;
	unsigned i;

	if (swap_record(t))
		return -1;
	for (i = 0; t->opcode != RNIC_WR_SEND && i < FIGURES; i++) {
		memcpy(&bits, &value[i], 8);
		wire_put_be64(figure, i == 0 ? t->size : i == 1 ? t->rounds : bits);
		if (swap(t, figure, theirs, 8))
			return -1;
	}
	if (swap_record(t) || tell(t, "done", 5) || hear(t, theirs, 5))
		return -1;
	return 0;
}

/* ---- the run ------------------------------------------------------------------------------------ */

static int post(struct test *t, unsigned i)
{
	struct side *s = &t->side;
	/* Each atomic has a place for its answer, as it may be looked at late. */
	size_t at = t->opcode == RNIC_WR_FETCH_ADD ? i % DEPTH * 8 : 0;
	struct rnic_sge sge = { (uintptr_t)s->mem + at, t->size, rnic_mr_lkey(s->mr) };
	struct rnic_send_wr wr = { .wr_id = 1 + i,
				   .opcode = t->opcode,
				   .flags = RNIC_SEND_SIGNALED,
				   .sge = &sge,
				   .nsge = 1,
				   .raddr = t->peer_addr,
				   .rkey = t->peer_rkey,
				   .swap_add = 1 };

	return rnic_post_send(s->qp, &wr, sys.now_ns());
}

static int completed(struct test *t, const struct rnic_wc *wc)
{
	uint64_t found;

	if (wc->status != RNIC_WC_SUCCESS) {
		fprintf(stderr, "work request %u ended with status %u\n", (unsigned)wc->wr_id,
			wc->status);
		return -1;
	}
	if (t->opcode != RNIC_WR_FETCH_ADD)
		return 0;
	memcpy(&found, t->side.mem + (wc->wr_id - 1) % DEPTH * 8, 8);
	if (wc->wr_id > 1 && found != t->counted)
		return side_failed("an atomic found another value than the one before it left",
				   -EIO);
	t->counted = found + 1;
	return 0;
}

static int run(struct test *t)
{
	uint64_t begin = sys.now_ns();
	unsigned posted = 0, done = 0;
	struct rnic_wc wc;
	int rc;

	while (done < t->rounds) {
		while (posted < t->rounds && posted - done < DEPTH / 2) {
			rc = post(t, posted);
			if (rc)
				return side_failed("post_send", rc);
			posted++;
		}
		if (side_run(&t->side, -1, &wc) != 1 || completed(t, &wc)) {
			fprintf(stderr, "%u of %u were done\n", done, t->rounds);
			side_report(&t->side);
			return -1;
		}
		done++;
	}
	t->seconds = (double)(sys.now_ns() - begin) / 1e9;
	return 0;
}

/* What the peer's atomics have added, wherever in the page it did so. */
static uint64_t total(const struct test *t)
{
	uint64_t word, sum = 0;
	size_t at;

	for (at = 0; at < PAGE; at += 8) {
		memcpy(&word, t->side.mem + at, 8);
		sum += word;
	}
	return sum;
}

static void report(const struct test *t)
{
	unsigned i, n = 0;

	if (t->side.server) {
		printf("%u times %u bytes, %.2f MiB/s; ", t->rounds, t->size,
		       (double)t->rounds * t->size / t->seconds / 1048576);
	} else if (t->opcode == RNIC_WR_FETCH_ADD) {
		printf("added %" PRIu64 "; ", total(t));
	} else {
		for (i = 0; i < t->size; i++)
			n += t->side.mem[i] != 0;
		printf("messages %u, bytes that are not 0: %u; ", t->received, n);
	}
	side_report(&t->side);
}

static int usage(void)
{
	fputs("usage: rnic_perftest write|read|send|atomic LOCAL-IPv4 [SERVER-IPv4] [-n ROUNDS] "
	      "[-s BYTES] [-m MTU]\n",
	      stderr);
	return 2;
}

static int kind(struct test *t, const char *name)
{
	static const struct {
		const char *name;
		enum rnic_wr_opcode opcode;
	} kinds[] = { { "write", RNIC_WR_WRITE },
		      { "read", RNIC_WR_READ },
		      { "send", RNIC_WR_SEND },
		      { "atomic", RNIC_WR_FETCH_ADD } };
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(name, kinds[i].name))
			continue;
		t->opcode = kinds[i].opcode;
		if (t->opcode == RNIC_WR_FETCH_ADD)
			t->size = 8;
		return 0;
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct test t = { .rounds = 1000,
			  .size = 65536,
			  .side = { .type = RNIC_QP_RC, .mtu = 1024, .rd_atomic = READS } };
	int opt, rc;

	while ((opt = getopt(argc, argv, "n:s:m:")) != -1) {
		unsigned value = (unsigned)strtoul(optarg ? optarg : "0", NULL, 10);

		if (opt == '?')
			return usage();
		*(opt == 'n' ? &t.rounds : opt == 's' ? &t.size : &t.side.mtu) = value;
	}
	if (argc - optind < 2 || argc - optind > 3 || kind(&t, argv[optind]))
		return usage();
	t.side.local = argv[optind + 1];
	t.side.server = argv[optind + 2]; /* or NULL, the end of argv */
	rc = side_open(&t.side, 2 * (size_t)t.size + 2 * PAGE, RNIC_ACCESS_ALL, DEPTH);
	if (!rc) {
		t.tcp = side_tcp(&t.side);
		rc = t.tcp < 0 ? side_failed("the TCP connection", -errno) : introduce(&t);
	}
	if (!rc && t.side.server)
		rc = run(&t);
	if (!rc)
		rc = part(&t);
	if (!rc) {
		report(&t);
		side_linger(&t.side);
	}
	side_close(&t.side);
	return rc ? 1 : 0;
}
