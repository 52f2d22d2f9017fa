/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets in kernels.
 *
 * Scope: every call is block-cooperative unless its name ends in _warp or _thread: all threads of the block, of the warp, or
 * the one thread call it at the same point with the same arguments (a buffer is the same memory for all of them), and all get
 * the same result. A call acts as a barrier of its scope, at its begin and at its end. Blocks may be of any size; several
 * blocks, warps and threads may use one socket at once. A thread that waits in a call of thread scope keeps its warp
 * waiting; calls of warp scope take 9 KiB of the block's shared memory.
 *
 * The network is what gpunet_device has given the host for the kernel's arguments. NULL in its place is -EINVAL from gsocket and
 * ggetaddrinfo, with which a kernel begins; calls on a descriptor do not look.
 *
 * Results: 0, a count or a descriptor, or a negative errno. Besides those that a call lists, each can return:
 *   -EBADF     no such descriptor, or it was closed while the call waited
 *   -ECANCELED gpunet_abort or gpunet_close was called on the host, at once where the call waits, else by one of the next calls; or
 *              another block of the kernel has failed (CPU device)
 *   -EIO       the proxy failed; the reason is in the host's log
 *   -EPROTO    these headers and the library that opened the network differ in version (gsocket)
 *
 * Blocking calls wait without a time limit unless SO_RCVTIMEO or SO_SNDTIMEO sets one: then -ETIMEDOUT. A blocking call holds
 * its direction of the socket to its end, so that its bytes stay together; with MSG_DONTWAIT, or on a non-blocking socket,
 * a held direction is -EAGAIN.
 *
 * Addresses are the system's: struct sockaddr_in, sockaddr_in6, sockaddr_un, in memory that the kernel can read and write;
 * lengths and values as in POSIX. Flags and families are the system's constants, repeated below as GNET_* for kernels
 * that cannot include <sys/socket.h>.
 */
#ifndef GPUNET_DEV_SOCKET_H
#define GPUNET_DEV_SOCKET_H

#include <gpunet/dev/abi/net.h>
#include <gpunet/dev/abi/socket.h>
#include <gpunet/dev/device.h>
#include <gpunet/dev/order.h>

/* Makes a socket. domain AF_INET, AF_INET6 or AF_UNIX; type SOCK_STREAM or SOCK_DGRAM, with SOCK_NONBLOCK or not
 * (SOCK_CLOEXEC is always in force); protocol 0.
 * -EINVAL (net is NULL); -EAFNOSUPPORT, -EPROTONOSUPPORT, -ESOCKTNOSUPPORT; -EMFILE: the process's or the network's (option max_sockets) limit. */
GNET_DEV int gsocket(gnet_t *net, int domain, int type, int protocol);

/* -EADDRINUSE, -EADDRNOTAVAIL, -EACCES, -EINVAL (bound already; addr is NULL or its length is wrong), -ENOENT, -EAFNOSUPPORT, ... as
 * bind(2). A server's TCP address can be bound again at once after its last use (SO_REUSEADDR is set). */
GNET_DEV int gbind(gnet_t *net, int fd, const void *addr, uint32_t len);

/* -EADDRINUSE, -EOPNOTSUPP as listen(2). */
GNET_DEV int glisten(gnet_t *net, int fd, int backlog);

/* Waits for a connection and returns its descriptor. Several blocks may wait on one listener; each connection goes to one.
 * `addr` and `len` (in: room, out: length) receive the peer's address, or are NULL. The descriptor can be used by any block.
 * -EINVAL: not listening. While the host is out of descriptors or memory the connection stays in the backlog and gaccept goes
 * on waiting; the host's log says so. */
GNET_DEV int gaccept(gnet_t *net, int fd, void *addr, uint32_t *len);

/* gaccept with flags: MSG_DONTWAIT: -EAGAIN if no connection is there; SOCK_NONBLOCK: the new socket is non-blocking (otherwise
 * it blocks, whatever the listener does). SOCK_CLOEXEC and MSG_NOSIGNAL are accepted, other flags are -EOPNOTSUPP. */
GNET_DEV int gaccept4(gnet_t *net, int fd, void *addr, uint32_t *len, int flags);

/*
 * Connects and waits for the result. -ECONNREFUSED, -ETIMEDOUT, -EHOSTUNREACH, -ENETUNREACH, -EISCONN, -ENOENT,
 * -EALREADY (a connect is under way), ... as connect(2). A non-blocking socket: -EINPROGRESS; so does SO_SNDTIMEO with -ETIMEDOUT:
 * the connect goes on, gpoll tells its end (POLLOUT), SO_ERROR its result, and sends and receives find it by themselves
 * (until then -EAGAIN, or they wait). A UNIX listener with a full backlog: -EAGAIN on a non-blocking socket.
 */
GNET_DEV int gconnect(gnet_t *net, int fd, const void *addr, uint32_t len);

/* Sends `len` bytes and returns `len`, or fewer if an error or shutdown came in between, or with MSG_DONTWAIT fewer if
 * there was no room for more. Returning means handed over, not received, as send(2). MSG_NOSIGNAL is accepted (and always
 * in force). -EAGAIN, -EPIPE, -ECONNRESET, -ENOTCONN, -EOPNOTSUPP (other flags). */
GNET_DEV int64_t gsend(gnet_t *net, int fd, const void *buf, uint64_t len, int flags);

/* Waits for bytes and returns how many of them, at most `len`, are now in `buf`; 0 at the end of the stream (or len = 0).
 * MSG_DONTWAIT: -EAGAIN if none is there; MSG_PEEK: leaves them; MSG_WAITALL: waits for all `len`, fewer at the end or an
 * error, but not together with MSG_PEEK, which is content with what is there (Linux would wait). -EAGAIN, -ECONNRESET, -ENOTCONN, -EOPNOTSUPP;
 * -ETIMEDOUT without a time limit: the peer has vanished and TCP gave up (SO_KEEPALIVE), the connection is over. */
GNET_DEV int64_t grecv(gnet_t *net, int fd, void *buf, uint64_t len, int flags);

/* The same by one warp, and by one thread. */
GNET_DEV int64_t gsend_warp(gnet_t *net, int fd, const void *buf, uint64_t len, int flags);
GNET_DEV int64_t gsend_thread(gnet_t *net, int fd, const void *buf, uint64_t len, int flags);
GNET_DEV int64_t grecv_warp(gnet_t *net, int fd, void *buf, uint64_t len, int flags);
GNET_DEV int64_t grecv_thread(gnet_t *net, int fd, void *buf, uint64_t len, int flags);

/*
 * Working in place. A borrow holds its direction of the socket until it is given back, by any scope: other calls of that
 * direction wait, or are -EAGAIN with MSG_DONTWAIT. `b` is memory that all threads of the call see; the bytes are b->ptr[0][0 ..
 * b->len[0] - 1], then b->ptr[1][0 .. b->len[1] - 1]. They may be written, too, until the borrow is given back.
 *
 * gclose, by whomever, does not wait for a borrow: the descriptor and the connection end, the bytes stay where they are, and giving them
 * back is -EBADF, which frees them. A borrow that nobody gives back keeps its memory until gpunet_close.
 */
struct gnet_borrow {
	uint8_t *ptr[2];
	uint64_t len[2];
	uint8_t cells[GNET_INLINE_MAX + 7]; /* small messages are copied here */
};

/* Waits for bytes, lends those that lie ready, at most `most`, and returns how many; 0 at the end of the stream. MSG_DONTWAIT.
 * -EAGAIN, -ECONNRESET, -ENOTCONN, -EOPNOTSUPP, -EINVAL (most is 0). */
GNET_DEV int64_t grecv_borrow(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t most, int flags);
/* Gives the bytes back: the first `n` are consumed, the others are received again. -EINVAL: more than were borrowed (they still are),
 * or there is no borrow. */
GNET_DEV int grecv_return(gnet_t *net, int fd, uint64_t n);

/* Waits for room for `n` bytes and lends it. 0; -EMSGSIZE: more than segment_bytes; -ENOBUFS: the slab (option slab_bytes) is used
 * up; -EAGAIN, -EPIPE, -ECONNRESET, -ENOTCONN, -EOPNOTSUPP, -EINVAL (n is 0). */
GNET_DEV int gsend_reserve(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t n, int flags);
/* Sends the first `n` bytes of the room and gives it back. -EINVAL as grecv_return. */
GNET_DEV int gsend_commit(gnet_t *net, int fd, uint64_t n);
/* The same by one warp, and by one thread. */
GNET_DEV int64_t grecv_borrow_warp(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t most,
				   int flags);
GNET_DEV int64_t grecv_borrow_thread(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t most,
				     int flags);
GNET_DEV int grecv_return_warp(gnet_t *net, int fd, uint64_t n);
GNET_DEV int grecv_return_thread(gnet_t *net, int fd, uint64_t n);
GNET_DEV int gsend_reserve_warp(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t n, int flags);
GNET_DEV int gsend_reserve_thread(gnet_t *net, int fd, struct gnet_borrow *b, uint64_t n,
				  int flags);
GNET_DEV int gsend_commit_warp(gnet_t *net, int fd, uint64_t n);
GNET_DEV int gsend_commit_thread(gnet_t *net, int fd, uint64_t n);

/*
 * Waits until at least one of `n` descriptors has one of its events, or for timeout_ns nanoseconds (0: only looks; negative: without a
 * limit), and returns how many have some; 0: none in time. struct gnet_pollfd is the system's struct pollfd; events and revents as
 * poll(2): POLLIN (bytes, their end, an error, or a connection of a listener), POLLOUT (room to send), POLLRDHUP (the peer sends no
 * more), and, whether asked for or not, POLLERR (an error that no call was told of yet), POLLHUP and POLLNVAL (no such
 * descriptor, or closed meanwhile). A
 * negative fd is passed over. `fds` is memory that the kernel can write (NULL: -EINVAL, unless n is 0). Sockets are not held: another block may
 * take what was seen.
 */
GNET_DEV int gpoll(gnet_t *net, struct gnet_pollfd *fds, uint32_t n, int64_t timeout_ns);
GNET_DEV int gpoll_warp(gnet_t *net, struct gnet_pollfd *fds, uint32_t n, int64_t timeout_ns);
GNET_DEV int gpoll_thread(gnet_t *net, struct gnet_pollfd *fds, uint32_t n, int64_t timeout_ns);

/*
 * Datagrams: UDP and UNIX sockets of type SOCK_DGRAM. One call is one datagram, whole, also of length 0. gsendto returns `len`;
 * without `addr` (NULL), as gsend, it sends to the peer that gconnect has set (AF_UNSPEC takes it away again). grecvfrom waits for
 * a datagram and returns how many of its bytes are now in `buf`: what does not fit is lost; with MSG_TRUNC it returns the
 * datagram's whole length; MSG_PEEK leaves it. `addr` and `alen` (in: room, out: length) receive the sender's address, or are NULL.
 *   -EMSGSIZE      longer than 65,507 bytes (UDP over IPv6: 65,527), or than a ring (option segment_bytes) holds
 *   -EDESTADDRREQ  no address and no peer
 *   -EINVAL        gsendto: the address's length is wrong; grecvfrom: addr without alen
 *   -ENOBUFS       no ring is to be had (option slab_bytes); one of up to 48 bytes to an IP address needs none, nor one of up to
 *                  80 bytes to the peer
 * A datagram is sent after gsendto has returned, so its error (-ECONNREFUSED, -EMSGSIZE for one beyond SO_SNDBUF, -ENETUNREACH, a
 * UNIX path without a socket, ...) is told by a later receive, by SO_ERROR or, on a connected socket, by a later send, once; the
 * socket goes on. A gsendto with an address sends whatever became of earlier ones to others. What the rings do not hold waits in the host's socket. A received datagram larger than a ring is cut.
 * On a stream gsendto without an address is gsend (with one -EISCONN) and grecvfrom is grecv, with *alen 0.
 */
GNET_DEV int64_t gsendto(gnet_t *net, int fd, const void *buf, uint64_t len, int flags,
			 const void *addr, uint32_t alen);
GNET_DEV int64_t grecvfrom(gnet_t *net, int fd, void *buf, uint64_t len, int flags, void *addr,
			   uint32_t *alen);
/* The same by one warp, and by one thread. */
GNET_DEV int64_t gsendto_warp(gnet_t *net, int fd, const void *buf, uint64_t len, int flags,
			      const void *addr, uint32_t alen);
GNET_DEV int64_t gsendto_thread(gnet_t *net, int fd, const void *buf, uint64_t len, int flags,
				const void *addr, uint32_t alen);
GNET_DEV int64_t grecvfrom_warp(gnet_t *net, int fd, void *buf, uint64_t len, int flags, void *addr,
				uint32_t *alen);
GNET_DEV int64_t grecvfrom_thread(gnet_t *net, int fd, void *buf, uint64_t len, int flags,
				  void *addr, uint32_t *alen);

/*
 * Bytes of several buffers, gathered and scattered, with an address: struct gnet_msghdr is the system's struct msghdr, the buffers
 * are in msg->iov[0 .. msg->iovlen - 1]; both lie in memory that all threads of the scope see.
 * gsendmsg on a stream is gsend of all bytes in one piece (msg->name is NULL); of datagrams it is gsendto, to msg->name if that is
 * not NULL. grecvmsg on a stream is grecv into the buffers in turn, and msg->namelen is 0 after it; of datagrams it is grecvfrom,
 * with the sender's address at msg->name if that is not NULL, and MSG_TRUNC in msg->flags if the buffers did not hold it all.
 * There is no control data: msg->controllen is 0 after grecvmsg, and must be before gsendmsg (-EOPNOTSUPP).
 * Besides the errors of those calls: -EMSGSIZE more than 1,024 buffers; -EINVAL their lengths add up to 2^63 or more.
 */
GNET_DEV int64_t gsendmsg(gnet_t *net, int fd, const struct gnet_msghdr *msg, int flags);
GNET_DEV int64_t grecvmsg(gnet_t *net, int fd, struct gnet_msghdr *msg, int flags);
/* The same by one warp, and by one thread. */
GNET_DEV int64_t gsendmsg_warp(gnet_t *net, int fd, const struct gnet_msghdr *msg, int flags);
GNET_DEV int64_t gsendmsg_thread(gnet_t *net, int fd, const struct gnet_msghdr *msg, int flags);
GNET_DEV int64_t grecvmsg_warp(gnet_t *net, int fd, struct gnet_msghdr *msg, int flags);
GNET_DEV int64_t grecvmsg_thread(gnet_t *net, int fd, struct gnet_msghdr *msg, int flags);

/* how: SHUT_RD, SHUT_WR or SHUT_RDWR. SHUT_WR: the peer gets the end of the stream after what was sent. -ENOTCONN, -EINVAL. */
GNET_DEV int gshutdown(gnet_t *net, int fd, int how);

/* Other calls that wait on the descriptor end with -EBADF. Bytes that were sent go on to the peer for the option
 * linger_ms. The descriptor is gone when gclose returns, whatever it returns. */
GNET_DEV int gclose(gnet_t *net, int fd);

/* F_GETFL: O_RDWR, and O_NONBLOCK if it is set. F_SETFL: sets or clears O_NONBLOCK, for all users of the socket, from their next
 * call on; other flags in `arg` are ignored. -EINVAL: another command. Costs no command to the host. */
GNET_DEV int gfcntl(gnet_t *net, int fd, int cmd, int arg);

/*
 * Options, as in setsockopt(2) and getsockopt(2), by the system's constants and values. Those with a meaning of their own here:
 *   SO_RCVTIMEO, SO_SNDTIMEO   (struct timeval) how long a call may wait: grecv and gaccept; gsend and gconnect. A call that
 *                              has waited so long returns what it has done, or -ETIMEDOUT, where POSIX has EAGAIN: so a
 *                              limit that passed is not taken for a call that would not wait. 0: no limit. An accepted
 *                              socket begins without
 *   SO_ERROR                   reads the error that no call was told of yet, and clears it; no command, one look across the bus
 *   SO_LINGER                  l_linger 0: gclose drops what is unsent and resets the connection; otherwise gclose waits until
 *                              the host's socket has taken all of it, l_linger seconds at most (then -ETIMEDOUT), and
 *                              l_linger stands in for the option linger_ms
 *   SO_RCVBUF, SO_SNDBUF       the buffers of the host's socket; the rings come on top of them
 *   TCP_NODELAY                is set on every socket, SO_REUSEADDR on every TCP socket
 * SO_REUSEADDR, SO_REUSEPORT, SO_KEEPALIVE, SO_BROADCAST, SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ACCEPTCONN, SO_PEERCRED,
 * SO_INCOMING_CPU, IPV6_V6ONLY, most options of IPPROTO_TCP, and those of IPPROTO_IP and IPPROTO_IPV6 about hop limits, traffic class
 * and multicast, are the host's socket's.
 * -ENOPROTOOPT: not an option of such a socket, or one that would take the socket out of the library's hands; -EINVAL: the
 * length or value; -EDOM: a time limit that is negative or has 1,000,000 microseconds or more.
 */
GNET_DEV int gsetsockopt(gnet_t *net, int fd, int level, int name, const void *val, uint32_t len);
/* `len`: in the room at `val`, out the value's length. */
GNET_DEV int ggetsockopt(gnet_t *net, int fd, int level, int name, void *val, uint32_t *len);

/*
 * The addresses of a host and service, as getaddrinfo(3) of the machine that the kernel's CPU side runs on finds them: names, numbers and
 * files as its nsswitch.conf says. Returns how many of them, at most `max` and GNET_ADDRINFO_MAX, are in `res`, best first: gsocket(r.family,
 * r.socktype, r.protocol), then gconnect or gbind to r.addr, r.addrlen. `node` and `service` are strings that end with a zero, at
 * most GNET_NODE_MAX and GNET_SERVICE_MAX long; one of them may be NULL. `hints` (flags, family, socktype, protocol; NULL: all 0) as there,
 * with flags AI_PASSIVE, AI_NUMERICHOST, AI_NUMERICSERV, AI_V4MAPPED, AI_ALL and AI_ADDRCONFIG. While it waits for a name server all
 * other calls of the network go on. In place of EAI_ codes:
 *   -ENOENT (EAI_NONAME, EAI_NODATA, EAI_ADDRFAMILY) no such name, or no address of that kind; -EAGAIN (EAI_AGAIN) the name
 *   server did not answer, try again later; -EREMOTEIO (EAI_FAIL) it cannot; -EPROTONOSUPPORT (EAI_SERVICE) no such service of
 *   that type; -EAFNOSUPPORT (EAI_FAMILY); -ESOCKTNOSUPPORT (EAI_SOCKTYPE); -EINVAL (EAI_BADFLAGS, other flags, max is 0, net is NULL);
 *   -ENAMETOOLONG; -ENOMEM (EAI_MEMORY); the system's errno (EAI_SYSTEM)
 */
GNET_DEV int ggetaddrinfo(gnet_t *net, const char *node, const char *service,
			  const struct gnet_addrinfo *hints, struct gnet_addrinfo *res,
			  uint32_t max);

/* `len`: in the room at `addr`, out the address's length, which may be larger. -ENOTCONN for ggetpeername. */
GNET_DEV int ggetsockname(gnet_t *net, int fd, void *addr, uint32_t *len);
GNET_DEV int ggetpeername(gnet_t *net, int fd, void *addr, uint32_t *len);

#include <gpunet/dev/impl/addrinfo.h>
#include <gpunet/dev/impl/dgram.h>
#include <gpunet/dev/impl/msg.h>
#include <gpunet/dev/impl/option.h>
#include <gpunet/dev/impl/borrow.h>
#include <gpunet/dev/impl/poll.h>
#include <gpunet/dev/impl/socket.h>

#endif
