/* SPDX-License-Identifier: BSD-3-Clause */
/* What the host's kernel consists of, for its own files: descriptors, and what goes between two of them. */
#ifndef GPUNET_TESTS_SIM_HOST_IMPL_H
#define GPUNET_TESTS_SIM_HOST_IMPL_H

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/un.h>

#include "host.h"
#include "sim.h"

#define HOST_FILES 512
#define HOST_DGRAMS 10 /* in a socket's queue */
#define VALUES 64

enum kind { K_FREE, K_EPOLL, K_EVENT, K_SOCK };
enum state { S_NEW, S_LISTEN, S_CONNECTING, S_CONNECTED, S_ENDED };

/* An address: a port, or a UNIX name. Length 0: none. */
struct name {
	socklen_t len;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_un un;
	} a;
};

struct file {
	enum kind kind;
	int fd;
	/* What watches it. */
	struct file *epoll;
	uint32_t interest;
	void *ptr;
	bool ready; /* an edge came since it was last told */
	/* K_EVENT */
	uint64_t count;
	/* K_SOCK */
	int domain;
	enum state state;
	struct name local, remote;
	bool closed; /* by its owner; the connection may go on for a while */
	bool reuse;
	/* listening */
	unsigned backlog, n_queued;
	struct file *queued[64];
	/* connected */
	struct file *peer;
	uint8_t *rx; /* arrived, not read */
	size_t rx_len;
	size_t flight;    /* on its way to here */
	uint64_t arrives; /* the last of it */
	unsigned pending; /* packets on their way */
	bool fin;         /* arrived */
	bool broken;      /* a reset arrived, or was sent */
	bool shut_rd, shut_wr;
	int err;       /* SO_ERROR */
	bool refused;  /* a connect failed, and connect has not told it yet */
	bool no_space; /* a sender found no room: an edge will tell */
	bool drained;  /* a reader found nothing: an edge will tell */
	bool reset_on_close;
	int value[VALUES]; /* of options that mean nothing here */
	uint64_t hello;    /* the first bytes that were sent, by a connector */
	unsigned n_hello;
	struct sim_timer syn;
	/* datagrams */
	bool dgram;
	struct packet *first, **last; /* arrived */
	unsigned n_dgrams, dropped;
};

enum what { P_DATA, P_FIN, P_RESET, P_DGRAM };

struct packet {
	struct sim_timer timer;
	struct packet *next;
	struct file *to;
	enum what what;
	struct name from;
	size_t n;
	uint8_t data[];
};

/* ---- host.c ---- */

extern struct host_params host_params;
/* The first host_next_fd of them are in use, or were. */
extern struct file host_files[HOST_FILES];
extern int host_next_fd;

/* NULL: there is none that is open, or it is no socket. */
struct file *host_file(int fd);
struct file *host_sock(int fd);
struct file *host_new(enum kind kind);

/* ---- host_events.c ---- */

/* Bytes that the socket may send now. */
size_t host_space(const struct file *f);
/* As poll(2). */
uint32_t host_poll(struct file *f);
/* Something happened to the file: those who wait for it look again. */
void host_edge(struct file *f);

int h_epoll_create(void);
int h_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int h_epoll_wait(int epfd, struct epoll_event *ev, int max, int64_t timeout_ns);
int h_eventfd(void);
ssize_t h_read(int fd, void *buf, size_t n);
ssize_t h_write(int fd, const void *buf, size_t n);

/* ---- host_wire.c ---- */

/* To the socket's peer, if it has one. */
void host_send_packet(struct file *from, enum what what, const void *data, size_t n);
/* The packet's receiver gets it, now or later. */
void host_on_its_way(struct file *from, struct packet *p);
/* The connection is broken off; the peer is told. */
void host_reset(struct file *f);
/* Bytes were read: a peer that waited may send again. */
void host_room_again(struct file *f);

#endif
