/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends of a connection over the provider `rnic`, for its tests. Waiting is done by the descriptors, unless a test says otherwise. */
#ifndef GPUNET_TESTS_VERBS_ENDS_H
#define GPUNET_TESTS_VERBS_ENDS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "verbs/verbs.h"

static const struct verbs_ops *const ops = &verbs_rnic;

enum { MEM = 1 << 20, DEPTH = 64 };

/* Addresses and a port that another run of this program at the same time does not use; 127.0.0.1 is everybody's. */
extern char device_name[32], nowhere[20], mute[20], alone[20];
extern const char *const here;
extern uint16_t common_port;
/* First of all. */
void choose_names(void);

/* One end: a network with a connection. */
struct end {
	struct verbs *v;
	struct verbs_events *e;
	struct verbs_id *id;
	struct verbs_device *d;
	struct verbs_comp *comp;
	struct verbs_cq *cq;
	struct verbs_qp *qp;
	struct verbs_mr *mr;
	uint8_t *mem;
};

struct sockaddr_in at(const char *host, uint16_t port);
void end_open(struct end *e);
/* CQ, queue pair and memory for an id whose device is known. */
void end_equip(struct end *e);
void end_close(struct end *e);

/* The next event, which must come within 10 s and be of this type. */
struct verbs_event next_event(struct end *e, enum verbs_event_type type);
void no_event(struct end *e);

extern const struct verbs_conn_param usual;
/* The usual, and these private data. */
struct verbs_conn_param say(const char *text);

struct verbs_id *listener(struct end *e, const char *host, uint16_t port);
/* Asks for a connection, with "hello". */
void begin(struct end *e, const char *host, uint16_t port);
/* From an address of our own: on 127.0.0.1 other programs' packets may come by. */
void begin_alone(struct end *e, const char *host, uint16_t port);
/* The other end takes it, with "welcome", */
void take(struct end *e);
/* and both hear of it. */
void joined(struct end *a, struct end *b);

/* The next completion, awaited by the descriptor or by polling. */
struct verbs_wc completion(struct end *e, bool spin);
void send_from(struct end *e, struct end *to, enum verbs_wr_opcode op, size_t off, uint32_t len,
	       uint64_t id);
/* A WRITE and a READ of a, with all their bytes. */
void exchange(struct end *a, struct end *b, bool spin);

#endif
