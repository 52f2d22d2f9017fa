/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of a test with the software RNIC: a device on a UDP wire with one queue pair, whose numbers go to the peer over TCP. An
 * end is either the server or the client of that connection.
 */
#ifndef TESTS_VM_RNIC_SIDE_H
#define TESTS_VM_RNIC_SIDE_H

#include <stddef.h>
#include <stdint.h>

#include "rnic/rnic.h"
#include "rnic/wire_udp.h"

enum { SIDE_QKEY = 0x11111111, SIDE_PORT = 18515 };

struct side {
	/* given by the caller */
	enum rnic_qp_type type;
	const char *local, *server; /* addresses; server NULL: this end is the server */
	unsigned mtu;
	unsigned rd_atomic;
	/* set by side_open */
	uint8_t gid[1][16];
	struct rnic_wire *wire;
	struct rnic *rnic;
	struct rnic_pd *pd;
	struct rnic_cq *cq;
	struct rnic_qp *qp;
	struct rnic_mr *mr;
	uint8_t *mem;
	uint32_t psn; /* of our first packet */
	/* of the peer, set by the caller before side_connect */
	uint32_t peer_qpn, peer_psn;
	struct rnic_path path;
};

/* Says what failed, with the errno and the library's own words; -1. */
int side_failed(const char *what, int rc);

/* `len` bytes of memory that the peer may use as `access` says, and a queue pair of that depth. 0 or -1. */
int side_open(struct side *s, size_t len, unsigned access, unsigned depth);
void side_close(struct side *s);

/* The TCP connection: listens (and says so on standard output) or connects; -1. */
int side_tcp(const struct side *s);

/* Takes the queue pair to RTS. */
int side_connect(struct side *s);

int side_receive(struct side *s, uint64_t id, uint8_t *to, uint32_t len);

/*
 * Lets the device run until a completion (1; its status may be an error), or until `tcp` can be read (0; -1: do not look at it);
 * negative when neither comes for 30 s.
 */
int side_run(struct side *s, int tcp, struct rnic_wc *wc);

/* Lets it run for half a second more: an answer of ours may be lost, and the peer's last request must not stay unanswered. */
void side_linger(struct side *s);

/* The device's counters, for people and for the cases. */
void side_report(const struct side *s);

#endif
