/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * BSD semantics over streams and channels: the table of sockets, their states, and what the kernels' commands do. A socket
 * belongs to the proxy thread with index slot % threads; only that thread touches it, from the moment its descriptor is
 * published until its slot is free again.
 */
#ifndef GPUNET_SOCKET_H
#define GPUNET_SOCKET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "channel/channel.h"
#include "proxy/proxy.h"
#include "socket/report.h"
#include "socket/stat.h"
#include "socket/resolve.h"
#include "stream/slab.h"
#include "stream/stream.h"

enum sock_state {
	SOCK_NEW,
	SOCK_CONNECTING,
	SOCK_CONNECTED,
	SOCK_LISTENING,
	SOCK_DATAGRAMS, /* open for them from the start, connected or not */
	SOCK_CLOSED
};

/* A warning: made once while its cause lasts, and at most once in ten seconds when that comes and goes. */
struct complaint {
	bool made;
	uint64_t quiet_until;
};

struct sock {
	struct stream st;
	struct sockets *all;
	struct channel *ch;
	_Atomic int fd; /* 0: the slot is free, or its socket is not published yet */
	uint32_t slot;
	unsigned gen;
	enum sock_state state;
	bool started; /* the channel tells of events */

	/* SO_LINGER */
	bool linger;
	unsigned linger_s;
	enum { LINGER_NONE, LINGER_SENDS, LINGER_OVER } lingers; /* closed, but for its slot */

	struct sockaddr_storage addr; /* of a connect that is to be tried again */
	socklen_t addr_len;

	/* listening */
	bool acceptable;           /* accept may have something */
	struct complaint short_of; /* that connections have to wait */
	uint64_t accepted;         /* put into the accept ring */
	struct channel *in_hand;   /* a connection that has to wait here: NULL or not yet started */

	/* accepted, and not started yet */
	bool young, asked;
	bool claimed;              /* by a kernel, as far as was looked */
	int from;                  /* the listener's descriptor */
	uint64_t place;            /* in its accept ring */
	uint64_t born_at, born_in; /* accepted, then claimed: time, and pass */

	struct list link; /* in sock_thread.ready, .full, .retry or .young */

	/* Under the lock of the slot's thread, whoever has the slot now: an order may outlive the socket that it was for. */
	struct sock *order_next; /* in sock_thread.orders */
	bool ordered;
	int order_fd; /* the descriptor that was meant */
};

/* What belongs to one proxy thread. */
struct sock_thread {
	struct sockets *all;
	struct stream_set set;
	struct list ready; /* listeners with something to do */
	struct list full;  /* listeners whose ring is full */
	struct list
		retry; /* to be tried again at retry_at: connects, and what was short of something */
	uint64_t retry_at;
	struct list young;          /* oldest first */
	unsigned n_young;           /* of these, and of those in retry */
	struct complaint unwatched; /* that some cannot be watched */
	uint64_t passes, pass_at;

	pthread_mutex_t lock; /* of what other threads may do: */
	uint32_t *free;       /* free slots, first freed first used */
	uint32_t free_head, free_count, free_size;
	struct sock *orders; /* sockets that another thread wants closed */
	_Atomic bool ordered;
	bool closed_all; /* close_all was carried out */
};

struct sockets_params {
	uint32_t max;
	struct gnet_sock_bus *bus; /* [max] */
	struct slab *slab;
	struct proxy *proxy;
	struct channel_net *channels;
	struct stat_book *stat;
	struct reports *reports;
	uint64_t linger_ns;
	unsigned lookups;       /* of names, at a time */
	struct gnet_hops *hops; /* [max], NULL: no stamps */
};

struct sockets {
	struct sockets_params p;
	unsigned threads;
	_Atomic uint32_t next_thread; /* of the next accepted connection */
	_Atomic uint64_t open, accepted;
	_Atomic bool close_all;
	struct sock *sock;     /* [max] */
	struct sock_thread *t; /* [threads] */
	struct resolver *resolver;
};

/* Makes the table and registers its ops and hooks with the proxy, which does not run yet. */
int sockets_init(struct sockets *all, const struct sockets_params *p);
/* The proxy has stopped. Drops what is left. */
void sockets_fini(struct sockets *all);

/* Has every thread close its sockets; those with unsent bytes linger. Returns at once. */
void sockets_close_all(struct sockets *all);
/* Bytes that kernels handed over and the transports have not taken, or closed sockets still there, or ordered to close? */
bool sockets_unsent(struct sockets *all);

/* ---- table.c ---- */

/* A free slot of a thread, made a new socket of a channel, not yet published: NULL if there is none. Any thread. */
struct sock *sock_new(struct sockets *all, unsigned thread, struct channel *ch);
/* Its descriptor can be found from now on: whoever owns its thread may close it. */
void sock_publish(struct sock *s);
/* Takes back what sock_new gave and nobody has seen; the channel is the caller's again. */
void sock_unnew(struct sock *s);
/* The thread's socket with this descriptor, or NULL. */
struct sock *sock_find(struct proxy_thread *t, struct sockets *all, int fd);
struct sock_thread *sock_thread_of(const struct sock *s);
int sock_fd(const struct sock *s);
/* Bytes or datagrams may flow. */
static inline bool sock_carries(const struct sock *s)
{
	return s->state == SOCK_CONNECTED || s->state == SOCK_DATAGRAMS;
}

/* ---- state.c ---- */

/* Makes a new socket one of datagrams. */
int sock_open_datagrams(struct sock *s, int domain);
int sock_listen(struct sock *s, int backlog);
/* 0, an error, or -EINPROGRESS: then the line will tell. `patient`: waits while a UNIX listener's backlog is full. */
int sock_connect(struct sock *s, const struct sockaddr *a, socklen_t n, bool patient);
/* Once more to the address that it was given. */
void sock_connect_again(struct sock *s);
/* claimed: connections that kernels took from a listener. */
void sock_close(struct sock *s, uint64_t claimed);
/* A kernel's gclose: 0, or -EINPROGRESS: it lingers; the line tells its end, and then sock_close_again. */
int sock_close_call(struct sock *s, uint64_t claimed);
/* Gives up the slot of a socket that has lingered: 0, -ETIMEDOUT: not all was sent, or -EBADF: there is none. */
int sock_close_again(struct proxy_thread *t, struct sockets *all, int fd);
/* Nobody waits for the end of a closed socket any more. */
void sock_forget(struct sock *s);
/* From another thread: the owner closes the socket if its slot still holds that descriptor. */
void sock_order_close(struct sockets *all, int fd);

/* ---- accept.c ---- */

/* Takes connections while there is room in the ring, and not more than it holds; how many. */
unsigned sock_accept_step(struct sock *s, uint64_t now);
bool sock_accept_room(const struct sock *s);
/* Closes the connection that has to wait, if there is one. */
void sock_drop_in_hand(struct sock *s);
/* Closes the connections in the ring that no kernel has claimed. */
void sock_drop_unclaimed(struct sock *s, uint64_t claimed);

/* There is cause for it: is it to be made? */
bool sock_complain(struct complaint *c, uint64_t now);

/* ---- young.c ---- */

/* An accepted connection, not yet published, shall be watched later, if at all: false if it has to be started at once. */
bool young_begin(struct sock *s, const struct sock *listener);
/* In each step; `quiet`: there is nothing else to do. */
void young_step(struct sock_thread *t, uint64_t now, bool quiet);
/* Now: tried again a little later if it cannot be. */
void young_watch(struct sock *s);
/* All of them: the thread goes to sleep. */
void young_rest(struct sock_thread *t);
/* It is watched, or gone. No-op for those that are not young. */
void young_end(struct sock *s);

/* How soon something is tried again that cannot tell when it would work. */
#define SOCK_RETRY_NS 2000000u
/* Puts the socket on the list of those to be tried again soon. */
void sock_retry(struct sock *s, uint64_t now);

/* ---- option.c ---- */

/* 0 or a negative errno. */
int64_t sock_set_option(struct sock *s, int level, int name, const uint8_t *v, socklen_t n);
/* The length. */
int64_t sock_get_option(struct sock *s, int level, int name, uint8_t *v, socklen_t room);

/* ---- ops.c ---- */

void sock_register_ops(struct sockets *all);

#endif
