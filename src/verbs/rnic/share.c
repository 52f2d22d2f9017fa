/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several processes on one address. All bind UDP port 4791 of it (SO_REUSEPORT), each has a slot, and the slot is the top
 * byte of the numbers of its queue pairs and connections. A filter on the sockets sends a packet to the socket in the place
 * of its slot; that is the right one until a process ends and the places shift, and for QP1 it is always the first. So
 * whoever gets a packet that is not for it passes it on, through a UNIX socket whose abstract name says slot or port:
 *
 *	a packet for a queue pair	to the slot of its number, else it is lost
 *	a REQ for an RDMA port		to the one who has the port, else it is answered here: refused
 *	another message of the CM	to the slot of the connection's number, else it is answered here
 *
 * Nobody is the master and nothing is taken over: when a process dies, its names and its place are free at once. All must
 * be of one user, for the kernel allows a port to be shared by one user only.
 */
#include "verbs/rnic/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sys.h"
#include "rnic/wire.h"
#include "wire/bytes.h"
#include "wire/cm.h"
#include "wire/roce.h"

enum {
	SLOTS = 256,
	MAD_AT = WIRE_BTH_LEN + WIRE_DETH_LEN,
	MAD_BODY = 24,
	ROOM = 65536, /* what comes from a UDP socket at once */
	BUFFER = 4 << 20,
	PATIENCE_US = 2000,
	A_TURN = 64, /* messages that are taken from one socket at a time */
	CONTROL = 128,
};

#define MAGIC 0x67724e01u

/* Before packets that are passed on: all of one size, but the last may be shorter. */
struct passed {
	uint32_t magic;
	uint32_t size;
	uint8_t src[16];
	uint8_t tos;
	uint8_t spare[3];
};

struct vport {
	struct list link;
	unsigned refs;
	int fd;
	uint16_t port;
};

/* --- names -------------------------------------------------------------------------------------- */

static socklen_t name_of(const struct vhost *h, char kind, unsigned n, struct sockaddr_un *a)
{
	char text[sizeof(a->sun_path)];
	size_t at = 0;
	unsigned i;

	at += (size_t)snprintf(text, sizeof(text), "gpunet-rnic.");
	for (i = 0; i < 16; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%02x", h->addr.gid[i]);
	at += (size_t)snprintf(text + at, sizeof(text) - at, ".%u.%c%u", h->addr.scope, kind, n);
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	memcpy(a->sun_path + 1, text, at);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + at);
}

static int take_name(const struct vhost *h, char kind, unsigned n)
{
	struct sockaddr_un a;
	socklen_t len = name_of(h, kind, n, &a);
	int fd = sys.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1, rc;

	if (fd < 0)
		return fd;
	rc = sys.setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	if (!rc)
		rc = sys.bind(fd, (struct sockaddr *)&a, len);
	if (rc) {
		sys.close(fd);
		return rc;
	}
	return fd;
}

int vshare_open(struct vhost *h)
{
	const struct timeval patience = { .tv_usec = PATIENCE_US };
	const int buffer = BUFFER;
	unsigned slot;
	int fd = -EADDRINUSE;

	for (slot = 0; slot < SLOTS && fd == -EADDRINUSE; slot++)
		fd = take_name(h, 's', slot);
	if (fd == -EADDRINUSE)
		return log_error(fd, "rnic: %d processes share this address already", SLOTS);
	if (fd < 0)
		return fd;
	h->passed = sys.alloc(ROOM);
	h->share_fd = fd;
	if (!h->passed)
		return -ENOMEM;
	sys.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	sys.setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	h->slot = (uint8_t)(slot - 1);
	return 0;
}

static struct vport *port_by(struct vhost *h, int fd, int port)
{
	struct list *l;

	for (l = h->port_names.next; l != &h->port_names; l = l->next) {
		struct vport *p = list_entry(l, struct vport, link);

		if (p->fd == fd || p->port == port)
			return p;
	}
	return NULL;
}

int vshare_take_port(struct vhost *h, uint16_t port)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct vport *p = port_by(h, -1, port);
	int rc;

	if (p) {
		p->refs++;
		return 0;
	}
	p = sys.alloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	rc = p->fd = take_name(h, 'p', port);
	if (rc >= 0) {
		ev.data.fd = p->fd;
		rc = sys.epoll_ctl(h->all_ep, EPOLL_CTL_ADD, p->fd, &ev);
		if (!rc)
			rc = sys.epoll_ctl(h->kick_ep, EPOLL_CTL_ADD, p->fd, &ev);
		if (rc)
			sys.close(p->fd);
	}
	if (rc) {
		sys.free(p);
		return rc;
	}
	p->refs = 1;
	p->port = port;
	list_add_tail(&h->port_names, &p->link);
	return 0;
}

void vshare_leave_port(struct vhost *h, uint16_t port)
{
	struct vport *p = port_by(h, -1, port);
	struct epoll_event none = { .events = 0 };

	if (!p || --p->refs)
		return;
	sys.epoll_ctl(h->all_ep, EPOLL_CTL_DEL, p->fd, &none);
	sys.epoll_ctl(h->kick_ep, EPOLL_CTL_DEL, p->fd, &none);
	sys.close(p->fd);
	list_del(&p->link);
	sys.free(p);
}

void vshare_silence(struct vhost *h, int nothing)
{
	struct list *l;

	dup3(nothing, h->share_fd, O_CLOEXEC);
	for (l = h->port_names.next; l != &h->port_names; l = l->next)
		dup3(nothing, list_entry(l, struct vport, link)->fd, O_CLOEXEC);
}

/* --- passing on --------------------------------------------------------------------------------- */

static bool pass(struct vhost *h, char kind, unsigned n, const struct vpassed *b)
{
	struct passed head = { .magic = MAGIC, .size = (uint32_t)b->size, .tos = b->tos };
	struct sockaddr_un a;
	struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)(uintptr_t)b->data, b->len } };
	struct msghdr m = { .msg_name = &a, .msg_iov = iov, .msg_iovlen = 2 };
	ssize_t rc;

	memcpy(head.src, b->src, 16);
	m.msg_namelen = name_of(h, kind, n, &a);
	/* A full socket is waited for, for a moment. If it stays full that is a loss; else it says that there is nobody. */
	rc = sys.sendmsg(h->share_fd, &m, 0);
	return rc >= 0 || rc == -EAGAIN;
}

static struct vpassed batch_of(unsigned slot, const struct rnic_rx *rx)
{
	struct vpassed b = {
		.slot = slot, .data = rx->data, .len = rx->len, .size = rx->len, .tos = rx->ip.tos
	};

	memcpy(b.src, rx->ip.src, 16);
	return b;
}

static bool pass_one(struct vhost *h, char kind, unsigned n, const struct rnic_rx *rx)
{
	struct vpassed b = batch_of(n, rx);

	return pass(h, kind, n, &b);
}

static void pass_batch(struct vhost *h)
{
	if (h->batch.data)
		pass(h, 's', h->batch.slot, &h->batch);
	h->batch.data = NULL;
}

/* Packets that came in one piece lie one behind the other, and go on so. */
static void collect(struct vhost *h, unsigned slot, const struct rnic_rx *rx)
{
	struct vpassed *b = &h->batch;
	bool next = b->data && b->slot == slot && b->data + b->len == rx->data &&
		    b->len % b->size == 0 && rx->len <= b->size && b->tos == rx->ip.tos &&
		    memcmp(b->src, rx->ip.src, 16) == 0;

	if (next) {
		b->len += rx->len;
		return;
	}
	pass_batch(h);
	*b = batch_of(slot, rx);
}

/* A message of the CM; true when somebody else has it. */
static bool steer_cm(struct vhost *h, const struct rnic_rx *rx)
{
	const uint8_t *mad = rx->data + MAD_AT, *body = mad + MAD_BODY;
	uint16_t attr, ps = 0, port = 0;
	uint32_t id;

	if (rx->len < MAD_AT + WIRE_MAD_LEN + 4)
		return false;
	attr = wire_get_be16(mad + 16);
	if (attr == WIRE_CM_REQ || attr == WIRE_CM_SIDR_REQ) {
		if (!wire_rdmacm_from_service_id(wire_get_be64(body + 8), &ps, &port) ||
		    port_by(h, -1, port))
			return false;
		return pass_one(h, 'p', port, rx);
	}
	id = wire_get_be32(attr == WIRE_CM_SIDR_REP ? body : body + 4);
	return id && id >> 24 != h->slot && pass_one(h, 's', id >> 24, rx);
}

/* xorshift: one packet is as likely to be lost as another, which is all that a test needs. */
static bool unlucky(struct vhost *h)
{
	h->dice ^= h->dice << 13;
	h->dice ^= h->dice >> 7;
	h->dice ^= h->dice << 17;
	return (uint32_t)(h->dice >> 32) < h->loss;
}

bool vshare_steer(void *ctx, const struct rnic_rx *rx)
{
	struct vhost *h = ctx;
	uint32_t qpn;

	if (!rx) {
		pass_batch(h);
		return false;
	}
	if (h->loss && unlucky(h))
		return true;
	qpn = wire_get_be24(rx->data + 5);
	if (qpn == WIRE_CM_QPN_GSI)
		return steer_cm(h, rx);
	if (qpn >> 16 == h->slot)
		return false;
	collect(h, qpn >> 16, rx);
	return true;
}

/* --- taking ------------------------------------------------------------------------------------- */

/* Only a process of the same user, or the machine's administrator, may hand us packets. */
static bool may_pass(struct msghdr *m)
{
	struct ucred cred = { .uid = (uid_t)-1 };
	struct cmsghdr *c;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS &&
		    c->cmsg_len >= CMSG_LEN(sizeof(cred)))
			memcpy(&cred, CMSG_DATA(c), sizeof(cred));
	return cred.uid == geteuid() || cred.uid == 0;
}

static void deliver(struct vhost *h, const struct passed *head, size_t len, uint64_t now)
{
	struct rnic_rx rx = { .ip = { .ttl = 64, .dont_frag = true, .tos = head->tos } };
	size_t off;

	memcpy(rx.ip.src, head->src, 16);
	memcpy(rx.ip.dst, h->addr.gid, 16);
	for (off = 0; off < len; off += rx.len) {
		rx.data = h->passed + off;
		rx.len = len - off < head->size ? len - off : head->size;
		rnic_receive(h->r, &rx, now);
	}
}

/* One message; false when there is none. */
static bool take(struct vhost *h, int fd, uint64_t now)
{
	_Alignas(struct cmsghdr) uint8_t control[CONTROL];
	struct passed head;
	struct iovec iov[2] = { { &head, sizeof(head) }, { h->passed, ROOM } };
	struct msghdr m = { .msg_iov = iov,
			    .msg_iovlen = 2,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t n = sys.recvmsg(fd, &m, MSG_DONTWAIT);

	if (n < 0)
		return false;
	if ((size_t)n > sizeof(head) && !(m.msg_flags & MSG_TRUNC) && head.magic == MAGIC &&
	    head.size && may_pass(&m))
		deliver(h, &head, (size_t)n - sizeof(head), now);
	return true;
}

void vshare_take(struct vhost *h, int fd, uint64_t now)
{
	unsigned i;

	/* A port's socket may have been closed since its event came. */
	if (fd != h->share_fd && !port_by(h, fd, -1))
		return;
	for (i = 0; i < A_TURN && take(h, fd, now); i++)
		;
}
