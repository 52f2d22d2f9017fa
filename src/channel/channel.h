/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A transport behind one table: moves bytes between memory that it is given and a peer. It keeps no bytes of its own.
 *
 * Everything about a channel happens in the proxy thread that owns it; only `accept` makes a channel for another thread,
 * which is told of events from channel_start on. Calls return 0 or a count, or a negative errno; they never block.
 */
#ifndef GPUNET_CHANNEL_H
#define GPUNET_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <gpunet/dev/abi/socket.h>

struct channel;
struct gpunet_check;
struct proxy;
struct proxy_thread;

/* Of name_of: the peer's name as it was when the connection began, where that costs less. */
#define CHANNEL_PEER_THEN 2

/* Events. Edge-triggered: told once, until -EAGAIN was seen again. */
#define CHANNEL_IN 1u   /* recv, or accept, may have something (also the end, or an error) */
#define CHANNEL_OUT 2u  /* send may take something; a pending connect has ended */
#define CHANNEL_END 4u  /* the peer sends no more, or there is an error: with CHANNEL_IN */
#define CHANNEL_HUP 8u  /* nothing goes either way any more: with CHANNEL_END */
#define CHANNEL_ERR 16u /* an error, which SO_ERROR tells if recv does not: with CHANNEL_END */

/*
 * A channel that moves the bytes of the rings itself (RDMA): it has a receive and a send segment from before the connection to
 * long after the close, and instead of send and recv it is told positions of the stream. Position p lies at p modulo the
 * segment's size.
 */
struct channel_ring_ops {
	void (*segments)(struct channel *c, int *rx, int *tx);
	/*
	 * A kernel wants to write the bytes from `pos` on into the ring itself: the number of the segment, which may be another
	 * than that of the bytes before, in the device's memory (GNET_SEG_NEAR).
	 */
	int (*attach)(struct channel *c, uint64_t pos);
	/*
	 * The reader has consumed everything before `head`. How many more bytes are in the ring, 0 at the end, -EAGAIN when
	 * there are no more yet, or an error. *watch: whether it has to be told when the head moves on.
	 */
	ssize_t (*recv)(struct channel *c, uint64_t head, bool *watch);
	/* The bytes before `tail` may be sent. How many more have been sent, so that their room is free; -EAGAIN: no more yet. */
	ssize_t (*send)(struct channel *c, uint64_t tail);
	/* Somebody waits until all has been sent; before, nobody may be told of it until there is something else to tell. */
	void (*hurry)(struct channel *c);
};

struct channel_ops {
	const char *name; /* "tcp", "unix", "rdma": what stat and errors call it */
	const struct channel_ring_ops *ring; /* NULL: bytes go by the descriptor */
	bool end_is_last; /* recv tells no error that comes after the end of the stream */
	bool hides_deaf; /* while its socket is full no event tells that the peer takes no more: sending has to be tried */

	int (*bind)(struct channel *c, const struct sockaddr *a, socklen_t n);
	int (*listen)(struct channel *c, int backlog);
	/*
	 * 0 or -EINPROGRESS: then CHANNEL_OUT, and connect_result gives 0, the error, or -EINPROGRESS still. -EAGAIN: a
	 * little later it may work; a channel with `ring` will say by itself when there is no use in that.
	 */
	int (*connect)(struct channel *c, const struct sockaddr *a, socklen_t n);
	int (*connect_result)(struct channel *c);
	/* The next connection, not yet started; -EAGAIN when there is none. */
	int (*accept)(struct channel *c, struct channel **out);
	/* Whose sendmsg(2) and recvmsg(2) move the bytes: so the calls of several channels can be made together (proxy_io). */
	int (*descriptor)(struct channel *c);
	/* Datagrams: each call is a whole one. `a` may be NULL when the channel is connected. Received: its length, even if that is more
	 * than there was room for; *n: the length of the sender's address. `next`: the next one's length; it stays. */
	ssize_t (*send_to)(struct channel *c, const struct iovec *iov, int n,
			   const struct sockaddr *a, socklen_t len);
	ssize_t (*recv_from)(struct channel *c, const struct iovec *iov, int n, struct sockaddr *a,
			     socklen_t *len);
	ssize_t (*next)(struct channel *c);
	int (*shutdown)(struct channel *c, int how);
	/* *n: in the room at `a`, out the address's length. `peer`: 0, the own one, 1, or CHANNEL_PEER_THEN. */
	int (*name_of)(struct channel *c, int peer, struct sockaddr *a, socklen_t *n);
	/* An option of the transport's own socket, as setsockopt(2) and getsockopt(2). */
	int (*set_option)(struct channel *c, int level, int name, const void *v, socklen_t n);
	int (*get_option)(struct channel *c, int level, int name, void *v, socklen_t *n);
	/* Begins to tell `t` of events. Everything that `event` uses must be set. */
	int (*start)(struct channel *c, struct proxy_thread *t);
	/* Ends it; the memory goes when events at hand have been handled. Before start: at once. `abort`: bytes on their way to the
	 * peer are dropped and the peer gets a reset. */
	void (*close)(struct channel *c, int abort);
};

struct channel {
	const struct channel_ops *ops;
	void (*event)(struct channel *c, unsigned events);
	void *owner;
};

/* ---- what the transports of one network share ---------------------------------------------------------------------------- */

/* Segments in the device's memory, for transports whose devices reach it (platform.h, struct platform_near). */
struct channel_near {
	uint32_t n; /* how many there are; 0: none */
	uint64_t size;
	uint8_t *dev;
	uint64_t bus;
	int fd;
	uint64_t fd_offset;
	int (*get)(void *ctx); /* a number, without GNET_SEG_NEAR, or -ENOBUFS; from any thread */
	void (*put)(void *ctx, int seg);
	int (*flush)(void *ctx); /* NULL: there is no need to */
	void *ctx;
	char why[160];
};

struct channel_net_params {
	struct proxy *proxy;
	const char *verbs;  /* the provider of RDMA: option `verbs` */
	uint64_t linger_ns; /* how long a closed channel may go on saying goodbye */
	/* The memory of all data rings, and how to get a segment of it: a number, or -ENOBUFS. From any thread. */
	uint8_t *slab;
	unsigned seg_log2;
	int (*seg_get)(void *ctx);
	void (*seg_put)(void *ctx, int seg);
	void *seg_ctx;
	struct channel_near near;
};

/* NULL serves those that share nothing: the host's own sockets. */
struct channel_net;

/* Might a transport want segments in the device's memory? */
bool channel_near_wanted(const char *verbs);
int channel_net_open(struct channel_net **out, const struct channel_net_params *p);
/* The proxy has stopped and all channels are closed. No-op for NULL. */
void channel_net_close(struct channel_net *n);
/* In each step of a proxy thread: as the hook of proxy.h. */
unsigned channel_net_step(struct channel_net *n, struct proxy_thread *t, uint64_t now,
			  uint64_t *next);
/* Before the thread sleeps: has it still something to do? If not, events will wake it. */
bool channel_net_has_work(struct channel_net *n, struct proxy_thread *t);
/* Closed channels still say goodbye to their peers. From any thread. */
bool channel_net_lingers(struct channel_net *n);
/*
 * Closed channels have nothing more to say, but their peers may: for seconds, not as long as channels may linger. From any
 * thread.
 */
bool channel_net_holds(struct channel_net *n);

/* As gpunet_doctor, about transports that need more than the host's sockets. */
int channel_near_doctor(const struct channel_near *near,
			int (*fn)(const struct gpunet_check *c, void *arg), void *arg);
int channel_doctor(int (*fn)(const struct gpunet_check *c, void *arg), void *arg);

/*
 * Makes a channel for thread `t` of the transport that serves a family, type and protocol (GNET_PROTO_RDMA, or as socket(2)):
 * -EAFNOSUPPORT, -ESOCKTNOSUPPORT,
 * -EPROTONOSUPPORT, -EMFILE, -ENFILE, -ENOMEM, ... as socket(2).
 */
int channel_create(struct channel_net *n, struct proxy_thread *t, int domain, int type,
		   int protocol, struct channel **out);

#endif
