/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The provider `rnic`: the software RNIC behind the table of verbs.
 *
 *	provider.c	opening, devices, memory, the table
 *	host.c		a software RNIC on one address of the machine, and what makes it progress
 *	share.c		several processes on one address
 *	addr.c		addresses: of the machine, and from where to reach a peer
 *	nobody.c	whether the machine knows that a peer is not there
 *	far.c		memory of GPUs
 *	id.c		listeners and connections
 *	port.c		whether interfaces are up
 *	probe.c		how large packets to a peer may be
 *	events.c	queues of events
 *	data.c		completion queues, queue pairs, posting
 *	stat.c		what `gpunet rnic` shows
 *
 * One host (struct vhost) for each local address that is in use, for all networks of the process. Its lock protects the
 * device, which knows no threads, and all objects on it.
 *
 * Progress: whoever polls a CQ and finds nothing runs the device, so that a thread that spins has no other thread between
 * it and the network. While nobody polls, the host's own thread does, asleep in epoll until packets come or a timer is due;
 * arming a CQ gives the device back to it at once. Posting runs the device, too: packets leave before the call returns.
 *
 * Order of locks: providers, a provider's, hosts (all host.c), a host's, then events'. A fork takes all of them.
 */
#ifndef GPUNET_VERBS_RNIC_INTERNAL_H
#define GPUNET_VERBS_RNIC_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "rnic/cm.h"
#include "rnic/cm_gsi.h"
#include "rnic/far.h"
#include "rnic/rnic.h"
#include "rnic/wire.h"
#include "verbs/verbs.h"

enum {
	VRNIC_ADDRESSES = 32,
	VRNIC_ACK_TIMEOUT = 17, /* 0.5 s: the provider's own default */
};

struct vaddr {
	uint8_t gid[16];
	uint32_t scope;
	unsigned mtu; /* of its interface */
	bool up;
	char dev[16];
};

/* Packets of one size (the last may be shorter) that came from one peer and are passed on together. */
struct vpassed {
	unsigned slot;
	const uint8_t *data; /* NULL: none */
	size_t len, size;
	uint8_t src[16];
	uint8_t tos;
};

enum { VPROBE_KNOWN = 32 };

struct vprobe_known {
	uint8_t gid[16];
	uint8_t code; /* of the path MTU; 0: empty */
	uint64_t until;
};

struct vhost {
	struct list link;
	unsigned refs; /* with the link, under the lock of hosts */
	struct vaddr addr;
	unsigned mtu_code;
	bool mtu_forced; /* by GPUNET_RNIC_MTU: nobody is asked */

	pthread_mutex_t lock; /* all that follows */
	pthread_t thread;
	bool running, stop;
	int all_ep, kick_ep, kick_fd;
	int port_fd; /* news of interfaces, -1: none */
	bool port_up;
	int share_fd; /* packets that other processes pass on, see share.c */
	uint8_t slot;
	struct list port_names; /* of RDMA ports, with sockets as share_fd */
	struct vpassed batch;   /* packets for one slot, one behind the other */
	uint8_t *passed;        /* room for those that come */
	uint32_t loss;          /* of 2^32 packets that come so many are dropped, for tests */
	uint64_t dice;
	struct rnic_wire *wire;
	struct rnic_pcap *pcap; /* or NULL */
	struct rnic *r;
	struct rnic_far far; /* copies into and out of a GPU's memory */
	uint64_t *doorbells; /* of queue pairs posted in memory; one page */
	struct rnic_gsi *gsi;
	struct rnic_cm *cm;
	struct gpunet_stat_rnic *page; /* what other processes may see, see stat.c; NULL: nothing */
	size_t page_size;
	int page_fd;
	uint64_t stat_at, stat_mark; /* when it was told, and what had happened by then */
	uint64_t stat_touched;       /* queue pairs came, went or changed their state */
	uint64_t polled_at;          /* somebody polled and ran the device */
	uint64_t handed_at;          /* somebody armed, and left it to the thread */
	uint64_t wake_at;            /* the thread looks again then, whatever happens */
	bool backoff;                /* it leaves packets to those who poll */
	bool put_off;                /* what came last has had no consequences yet */
	uint64_t proceeded_at;       /* when it last had all of them, connections included */
	struct list waiting;         /* ids that wait for an RTU */
	struct {
		int fd; /* of ICMP, -1: not open */
		bool raw;
		uint16_t id;
		struct list asking; /* ids that wait for an echo */
		struct vprobe_known known[VPROBE_KNOWN];
		unsigned next;
	} probe;
	struct list devices; /* of the providers */
	uint16_t *ports;     /* ids bound to each port */
};

struct verbs {
	struct list link; /* in the list of providers */
	pthread_mutex_t lock;
	struct list devices;
	pthread_mutex_t ev_lock; /* of all queues of events: an id moves between them */
	struct verbs_events *async;
};

enum { VPENDING_ERROR = 1, VPENDING_UP = 2, VPENDING_DOWN = 4 };

struct verbs_device {
	struct list link; /* in the provider's list */
	struct list on;   /* in the host's list */
	struct verbs *v;
	struct vhost *host;
	struct rnic_pd *pd;
	unsigned pending;  /* VPENDING_* */
	struct list async; /* in the queue of asynchronous events, while something is pending */
};

/* An event on its way. Each lies in what it is about, so that none is lost for lack of memory. */
struct vevent {
	struct list link;
	struct verbs_id *id; /* NULL: asynchronous */
	struct verbs_id *request;
	enum verbs_event_type type;
	int status;
	unsigned reason;
	bool pending;
	struct verbs_conn_param param;
};

struct verbs_events {
	struct verbs *v;
	int fd;
	struct list queue;
	struct list devices; /* of which something is to be told */
};

/* One address on which an id listens. */
struct vlisten {
	struct verbs_id *id;
	struct verbs_device *dev;
	struct rnic_cm_listener *l;
};

struct verbs_id {
	struct verbs_events *e; /* under ev_lock, as are the events */
	void *user;
	struct vevent request_ev; /* that it came */
	struct vevent ev[3];      /* resolved; connected or not; disconnected */
	struct verbs *v;
	struct sockaddr_storage local, peer;
	socklen_t local_len, peer_len;
	uint16_t port; /* bound to */
	bool bound, reuse, afonly, any;
	bool chosen;                        /* its port was chosen to connect from */
	struct vlisten on[VRNIC_ADDRESSES]; /* where it is bound */
	unsigned non;
	struct verbs_device *dev;
	struct rnic_cm_conn *conn;
	bool passive;
	struct verbs_qp *qp;
	struct verbs_conn_param param;
	uint32_t my_psn;
	struct rnic_cm_qp theirs; /* as told */
	struct list waiting;      /* in the host's, for an RTU */
	uint8_t mtu_code;         /* of the way to the peer */
	struct {
		struct list link; /* in the host's */
		uint8_t gid[16];  /* who is asked */
		uint32_t scope;
		uint8_t cookie[8];
		uint8_t whole; /* the largest code of which an echo came back whole, or 0 */
		uint8_t cut;   /* bits of those that came in pieces */
		uint64_t again, end;
	} probe;
};

struct verbs_comp {
	int fd;
	atomic_bool signaled;
};

struct verbs_cq {
	struct vhost *host;
	struct rnic_cq *cq;
	struct verbs_comp *comp;
};

struct verbs_qp {
	struct vhost *host;
	struct rnic_qp *qp;
	struct verbs_id *id; /* NULL: its peer is told by numbers */
	struct vexport *ex;  /* NULL: posted by calls */
};

/* --- addr.c ------------------------------------------------------------------------------------- */

/* Calls fn for each of the machine's addresses, of interfaces that are up, until it returns other than 0: that, or a negative errno. */
int vaddr_each(int (*fn)(const struct vaddr *a, void *arg), void *arg);
/* The first `max` of them; how many, or a negative errno. */
int vaddr_list(struct vaddr *a, unsigned max);
/* One of them. -EADDRNOTAVAIL. Any of 127.0.0.0/8 is one. */
int vaddr_find(const uint8_t gid[16], uint32_t scope, struct vaddr *out);
/* The address from which the machine reaches a peer. */
int vaddr_toward(const struct sockaddr *to, socklen_t n, struct vaddr *out);
int vaddr_from_sockaddr(const struct sockaddr *a, socklen_t n, uint8_t gid[16], uint32_t *scope,
			uint16_t *port, bool *any);
socklen_t vaddr_to_sockaddr(const uint8_t gid[16], uint32_t scope, uint16_t port, int family,
			    struct sockaddr_storage *out);
bool vaddr_is_local(const uint8_t gid[16]);
/* GPUNET_RNIC_MTU, for networks where nobody can be asked for the path MTU: bytes, or 0. Interfaces seem to have no more. */
unsigned vaddr_forced_mtu(void);

/* --- nobody.c ----------------------------------------------------------------------------------- */

/*
 * Why a peer that does not answer never will: -EHOSTUNREACH when its address, or the router's, does not resolve; -ECONNREFUSED when
 * it is this machine's and nobody has UDP port 4791 of it. 0: that is not known.
 */
int vaddr_nobody(const struct vaddr *from, const uint8_t dst[16]);

/* --- host.c ------------------------------------------------------------------------------------- */

/* From then on, until it leaves, a fork waits until nobody holds a lock of the provider's. */
void vhost_join(struct verbs *v);
void vhost_leave(struct verbs *v);
/* The host of an address, opened if need be. `quiet`: a port that is taken is not logged. */
int vhost_get(const struct vaddr *a, bool quiet, struct vhost **out);
void vhost_put(struct vhost *h);
static inline void vhost_lock(struct vhost *h)
{
	pthread_mutex_lock(&h->lock);
}
static inline void vhost_unlock(struct vhost *h)
{
	pthread_mutex_unlock(&h->lock);
}
/* With the lock. Runs the device, for somebody who polls. */
void vhost_poll(struct vhost *h);
/* With the lock. Sends what was posted, and sees that the thread keeps the time. */
void vhost_flush(struct vhost *h);
/* With the lock. Nobody polls any more. */
void vhost_hand_over(struct vhost *h);

/* At open, before the thread runs, or with the lock: the thread wakes up when it is readable. */
int vhost_watch(struct vhost *h, int fd);

/* --- port.c ------------------------------------------------------------------------------------- */

/* Without it a host works all the same: its port is looked at when somebody asks. */
void vport_open(struct vhost *h);
void vport_close(struct vhost *h);
/* With the lock. Something has changed. */
void vport_hear(struct vhost *h);

/* --- probe.c ------------------------------------------------------------------------------------ */

void vprobe_open(struct vhost *h);
void vprobe_close(struct vhost *h);
/* With the lock. Sets the id's path MTU. True: not yet, and its RESOLVED comes when it is known, within 0.3 s. */
bool vprobe_start(struct vhost *h, struct verbs_id *id, const uint8_t gid[16], uint32_t scope,
		  uint64_t now);
/* With the lock. The time of the next call that is needed without news. */
uint64_t vprobe_work(struct vhost *h, uint64_t now);
/* Takes what has come, also when nobody asks: else the descriptor stays readable. */
void vprobe_hear(struct vhost *h, uint64_t now);

/* --- share.c ------------------------------------------------------------------------------------ */

/* Takes a slot. */
int vshare_open(struct vhost *h);
/* In the child of a fork: the names are the parent's alone. */
void vshare_silence(struct vhost *h, int nothing);
/* With the lock. Requests for the port come to this process. -EADDRINUSE: to another one. */
int vshare_take_port(struct vhost *h, uint16_t port);
/* With the lock, once for each time that it was taken. */
void vshare_leave_port(struct vhost *h, uint16_t port);
/* Passes a packet on, when it is not for this process. */
bool vshare_steer(void *ctx, const struct rnic_rx *rx);
/* With the lock. Takes what was passed on to one of our sockets. */
void vshare_take(struct vhost *h, int fd, uint64_t now);

/* --- stat.c ------------------------------------------------------------------------------------- */

/* Never fails: without the page a host works all the same. */
void vstat_open(struct vhost *h, const char *device);
void vstat_close(struct vhost *h);
/* In the child of a fork: the page is the parent's, and stays. */
void vstat_forget(struct vhost *h);
/* With the lock. Brings it up to date if it is time; when to look again, UINT64_MAX: when something has happened. */
uint64_t vstat_look(struct vhost *h, uint64_t now);

/* --- events.c ----------------------------------------------------------------------------------- */

/* Puts an event of an id into its queue; one that is there already stays as it is. */
void vevent_put(struct vevent *ev, enum verbs_event_type type, int status, unsigned reason);
/* With what the peer has said. */
void vevent_put_param(struct vevent *ev, enum verbs_event_type type, int status, unsigned reason,
		      const struct verbs_conn_param *param);
/* The listener has a request, which has the listener's queue and user at once: from then on both move together. */
void vevent_put_request(struct verbs_id *l, struct verbs_id *request,
			const struct verbs_conn_param *param);
/* Takes an id's events out of its queue. */
void vevents_drop(struct verbs_id *id);
/* The next request to a listener that nobody has taken, or NULL. Under ev_lock. */
struct verbs_id *vevents_request(const struct verbs_id *l);
/* A queue pair failed; the port went up or down: VPENDING_*. */
void vevents_device(struct verbs_device *d, unsigned what);
int vevents_open(struct verbs *v, unsigned flags, struct verbs_events **out);
void vevents_close(struct verbs_events *e);
int vevents_fd(struct verbs_events *e);
int vevents_next(struct verbs_events *e, struct verbs_event *out);
int vid_migrate(struct verbs_id *id, struct verbs_events *to, void *user);

/* --- id.c --------------------------------------------------------------------------------------- */

enum { VID_RESOLVED, VID_ANSWER, VID_END }; /* of id->ev */

/* The CM has something to tell; with the host's lock, from within the CM. */
int vid_hear(void *ctx, const struct rnic_cm_event *ev);
/* With the host's lock: whoever has sent data needs no RTU. */
void vid_work(struct vhost *h, uint64_t now);
/* The peer's answer is taken: the queue pair to RTS, and the RTU. */
int vid_finish_connect(struct verbs_id *id);
int vid_create(struct verbs_events *e, void *user, struct verbs_id **out);
void vid_destroy(struct verbs_id *id);
int vid_option(struct verbs_id *id, enum verbs_id_option option, int value);
struct verbs_device *vid_device(struct verbs_id *id);
int vid_name(struct verbs_id *id, int peer, struct sockaddr *a, socklen_t *n);
int vid_bind(struct verbs_id *id, const struct sockaddr *a, socklen_t n);
int vid_listen(struct verbs_id *id, int backlog);
int vid_resolve(struct verbs_id *id, const struct sockaddr *a, socklen_t n, unsigned timeout_ms);
int vid_connect(struct verbs_id *id, const struct verbs_conn_param *p);
int vid_accept(struct verbs_id *id, const struct verbs_conn_param *p);
int vid_reject(struct verbs_id *id, const void *private_data, uint8_t n);
int vid_disconnect(struct verbs_id *id);

/* --- provider.c --------------------------------------------------------------------------------- */

/* The provider's device on an address. It stays until the provider is closed. */
int vdevice_get(struct verbs *v, const struct vaddr *a, bool quiet, struct verbs_device **out);

/* --- export.c ----------------------------------------------------------------------------------- */

enum { VEXPORT_DOORBELLS = 512 };

struct vexport;

/* With the host's lock. Makes the memory, and puts the queues into what a queue pair is created with. */
int vexport_open(struct vhost *h, struct rnic_pd *pd, const struct verbs_qp_init *init,
		 struct rnic_qp_init *in, struct vexport **out);
/* With the host's lock, after its queue pair is gone. */
void vexport_close(struct vexport *x);
int vexport_post_recv(struct vexport *x, uint64_t wr_id, const struct rnic_sge *sge, unsigned nsge);
int vexport_get(struct verbs_qp *qp, struct verbs_queue_export *out);

/* --- far.c -------------------------------------------------------------------------------------- */

/* Registers memory that the CPU cannot load from. -EOPNOTSUPP: it is no GPU's either. */
int vfar_reg(struct verbs_device *d, const struct verbs_mem *m, unsigned access,
	     struct rnic_mr **out);
/* rnic_far_open; tests have their own. */
extern int (*vfar_open)(const void *p, struct rnic_far *f);

/* --- data.c ------------------------------------------------------------------------------------- */

int vcomp_open(struct verbs_device *d, struct verbs_comp **out);
void vcomp_close(struct verbs_comp *c);
int vcomp_fd(struct verbs_comp *c);
void vcomp_drain(struct verbs_comp *c);
int vcq_create(struct verbs_device *d, unsigned entries, struct verbs_comp *c,
	       struct verbs_cq **out);
void vcq_destroy(struct verbs_cq *cq);
int vcq_poll(struct verbs_cq *cq, struct verbs_wc *wc, int n);
int vcq_arm(struct verbs_cq *cq);
int vqp_create(struct verbs_id *id, struct verbs_qp_init *init, struct verbs_qp **out);
void vqp_destroy(struct verbs_qp *qp);
int vqp_create_alone(struct verbs_device *d, struct verbs_qp_init *init, struct verbs_qp **out);
int vqp_connect_alone(struct verbs_qp *qp, const struct verbs_peer *to,
		      const struct verbs_conn_param *p);
int vqp_post_send(struct verbs_qp *qp, const struct verbs_send_wr *wr, int n);
int vqp_post_recv(struct verbs_qp *qp, const struct verbs_recv_wr *wr, int n);
/* With the host's lock. To RTS, for the peer of its id. */
int vqp_connect(struct verbs_qp *qp, uint64_t now);
/* With the host's lock. */
void vqp_fail(struct verbs_qp *qp, uint64_t now);

#endif
