/* SPDX-License-Identifier: BSD-3-Clause */
/* What the stub's files share: verbs_stub.c has the faults and the connections, verbs_stub_data.c the bytes. */
#ifndef GPUNET_TESTS_UNIT_VERBS_STUB_PRIV_H
#define GPUNET_TESTS_UNIT_VERBS_STUB_PRIV_H

#include "verbs_stub.h"

#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/list.h"

#define MAX_MR 4096

struct verbs_qp {
	struct list link;
	struct verbs_id *id;
	struct verbs_cq *send_cq, *recv_cq;
	struct posted *sq;
	unsigned sq_size, sq_head, sq_count;
	uint64_t *rq;
	unsigned rq_size, rq_head, rq_count;
	unsigned max_inline;
	int error, stuck;
};

enum id_state {
	ID_IDLE,
	ID_BOUND,
	ID_LISTEN,
	ID_RESOLVED,
	ID_ASKED,
	ID_ANSWERING,
	ID_CONNECTED,
	ID_OVER
};

struct verbs_id {
	struct list link;
	struct verbs_events *events;
	void *user;
	enum id_state state;
	struct sockaddr_storage local, remote;
	struct verbs_id *peer;
	struct verbs_qp *qp;
};

struct stub_state {
	char slot[32];
	unsigned nth, any_nth, calls, failed;
	int err, status_op;
	uint32_t status;
	int frozen, late;
	unsigned parts; /* DISCONNECTED events that were taken */
	unsigned objects, rnr, posted, post_calls, ack_arms, max_inline;
	int gpu;
	unsigned takes, by_dmabuf, by_pointer;
};

/* Of all that there is. */
extern pthread_mutex_t stub_lock;
extern struct stub_state stub_st;

/* Under the lock: whether this call fails, 0 or -errno; the second one when only its name counts. */
int stub_fault(const char *slot);
int stub_named_fault(const char *slot);
void stub_poke(int fd);

/* Under the lock: the queue pair ends, with all that is posted; all of them go on. */
void stub_to_error(struct verbs_qp *qp);
void stub_run_all(void);

/* The slots of the table that move bytes. */
int stub_comp_open(struct verbs_device *d, struct verbs_comp **out);
void stub_comp_close(struct verbs_comp *c);
int stub_comp_fd(struct verbs_comp *c);
void stub_comp_drain(struct verbs_comp *c);
int stub_cq_create(struct verbs_device *d, unsigned entries, struct verbs_comp *c,
		   struct verbs_cq **out);
void stub_cq_destroy(struct verbs_cq *cq);
int stub_poll(struct verbs_cq *cq, struct verbs_wc *wc, int n);
int stub_arm(struct verbs_cq *cq);
int stub_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
	     struct verbs_mr **out);
void stub_dereg(struct verbs_mr *mr);
int stub_qp_create(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out);
void stub_qp_destroy(struct verbs_qp *qp);
int stub_post_send(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n);
int stub_post_recv(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n);

#endif
