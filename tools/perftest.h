/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs of perftest (ib_write_bw and its kin) say to each other over TCP, port 18515, before and after a run, as bytes:
 * no I/O here. In each exchange the client writes first, then the server. In order:
 *
 *	version		16 bytes of text with a zero. From 6.28 on there is more, which is not sent to older ones
 *	page size	4, and cache line, 4: the larger of the two sides' counts
 *	MTU		2, the digit of its code
 *	record		108, several times: of each queue pair, then again, and some barriers
 *	(the run)	SEND and both directions: a barrier before each size; more than one size: one after it, too. Both
 *			directions: a report each after each size, and not those below
 *	record		bandwidths, but SEND: the client is done
 *	report		5 times 8 bytes: bandwidths, but SEND
 *	record		all but ib_write_lat: the end. Versions up to 6.06 write "done" behind it, which nobody reads
 */
#ifndef GPUNET_TOOLS_PERFTEST_H
#define GPUNET_TOOLS_PERFTEST_H

#include <stdint.h>

#define PERFTEST_PORT 18515
#define PERFTEST_VERSION 16 /* bytes, as the following */
#define PERFTEST_NUMBER 4
#define PERFTEST_MTU 2
#define PERFTEST_RECORD 108
#define PERFTEST_FIGURE 8
#define PERFTEST_FIGURES 5   /* of a report, each an exchange of its own */
#define PERFTEST_SPEAKS 627u /* the version that we say we are, in hundredths */

enum perftest_kind {
	PERFTEST_WRITE_BW,
	PERFTEST_WRITE_LAT,
	PERFTEST_READ_BW,
	PERFTEST_READ_LAT,
	PERFTEST_SEND_BW,
	PERFTEST_SEND_LAT,
	PERFTEST_ATOMIC_BW,
	PERFTEST_KINDS
};

/* How many records a kind exchanges, and where. */
struct perftest_script {
	unsigned
		ready; /* behind those of each queue pair, which are told twice; SEND: one between, too */
	unsigned after;
	int report;
	unsigned end;
};

extern const struct perftest_script perftest_scripts[PERFTEST_KINDS];

/* Where a queue pair is, and the memory that its peer may use. */
struct perftest_record {
	uint16_t lid;
	uint16_t reads; /* READs and atomics under way */
	uint32_t qpn;
	uint32_t psn; /* the first that it sends with */
	uint32_t rkey;
	uint64_t addr;
	uint8_t gid[16];
	uint32_t srqn;
};

/* The client's figures; rates are 2^20 bytes and million messages a second. */
struct perftest_report {
	uint64_t size, iterations;
	double peak, average, rate;
};

void perftest_put_version(uint8_t out[PERFTEST_VERSION]);
/* In hundredths: 6.06 is 606; -EPROTO. */
int perftest_get_version(const uint8_t in[PERFTEST_VERSION]);

void perftest_put_number(uint8_t out[PERFTEST_NUMBER], uint32_t v);
uint32_t perftest_get_number(const uint8_t in[PERFTEST_NUMBER]);

void perftest_put_mtu(uint8_t out[PERFTEST_MTU], unsigned bytes);
/* In bytes; -EPROTO. */
int perftest_get_mtu(const uint8_t in[PERFTEST_MTU]);

/* Numbers of more digits than the format has are cut. */
void perftest_put_record(char out[PERFTEST_RECORD], const struct perftest_record *r);
/* 0 or -EPROTO. */
int perftest_get_record(struct perftest_record *r, const char in[PERFTEST_RECORD]);

void perftest_put_report(uint8_t out[PERFTEST_FIGURES][PERFTEST_FIGURE],
			 const struct perftest_report *r);
/* 0 or -EPROTO: a rate that is no number. */
int perftest_get_report(struct perftest_report *r,
			const uint8_t in[PERFTEST_FIGURES][PERFTEST_FIGURE]);

#endif
