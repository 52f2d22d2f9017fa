/* SPDX-License-Identifier: BSD-3-Clause */
#include "rnic/wire_udp.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <linux/filter.h>
#include <string.h>
#include <unistd.h>
#include <sys/socket.h>

#include "base/log.h"
#include "base/sys.h"
#include "rnic/pcap.h"
#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/roce.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
	MAX_PORTS = 64,
	FIRST_PORT = 0xc000,
	PORT_TRIES = 4096,
	BATCH_BYTES = 61440, /* leaves room for IP and UDP headers below 64 KiB */
	BATCH_PACKETS = 64,  /* the kernel's limit of segments */
	RX_BYTES = 65536,
	PEERS = 1024,        /* whose rule of IDs is remembered */
	TRUST_AFTER = 16,    /* sends that began with ID 0 */
	DISTRUST_AFTER = 64, /* packets in a row that are not as they were */
	SEGMENTS = 128, /* of one send, by any kernel: IDs of a sender such as this one are below */
	LENGTHS = 16,   /* of packets whose IDs were found, remembered */
	FLOWS = 64,     /* of which the sum over the headers is remembered, by length */
	CONTROL = 128,
};

/* Packets of one size, the last perhaps shorter, for one destination: one send. */
struct batch {
	unsigned packets;
	size_t size; /* of a packet */
	size_t len;
	unsigned port;
	uint8_t tclass;
	uint8_t dst[16];
	uint8_t buf[BATCH_BYTES];
};

/* What a sender does with its IP IDs, learned from its ICRCs. A collision of two peers costs a check. */
struct peer {
	uint8_t src[16];
	uint32_t qpn;
	unsigned starts;  /* packets of ID 0, none of an ID that ours never have between them */
	unsigned strange; /* … of such IDs in a row since this is known */
};

/* wire_icrc_undo() of a length. */
struct undo {
	size_t len;
	uint32_t factor;
};

/* wire_icrc_begin() of ID 0, of a flow and a length; an ID changes the same bits of all of them. */
struct start {
	uint8_t src[16], dst[16];
	size_t len; /* 0: nothing is known here */
	uint16_t sport;
	uint32_t crc;
};

struct udp {
	struct rnic_wire wire;
	struct rnic *r;
	struct rnic_udp_config cfg;
	struct rnic_udp_stats stats;
	bool v4;
	bool segments;
	int rx;
	int tx[MAX_PORTS];
	uint16_t sport[MAX_PORTS];
	unsigned nports;
	struct batch batch;
	struct peer peer[PEERS];
	struct undo undo[LENGTHS];
	struct start start[FLOWS];
	uint32_t of_id[SEGMENTS]; /* what an ID changes; 0 with IPv6, which has none */
	uint8_t rxbuf[RX_BYTES];
};

/* --- addresses ---------------------------------------------------------------------------------- */

static socklen_t to_sockaddr(const struct udp *u, struct sockaddr_storage *ss,
			     const uint8_t gid[16], uint16_t port)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;

	memset(ss, 0, sizeof(*ss));
	if (u->v4) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, gid + 12, 4);
		return sizeof(*in);
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(port);
	memcpy(&in6->sin6_addr, gid, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = u->cfg.scope_id;
	return sizeof(*in6);
}

static void from_sockaddr(const struct sockaddr_storage *ss, uint8_t gid[16])
{
	if (ss->ss_family == AF_INET)
		wire_gid_from_v4(gid, (const uint8_t *)&((const struct sockaddr_in *)ss)->sin_addr);
	else
		memcpy(gid, &((const struct sockaddr_in6 *)ss)->sin6_addr, 16);
}

/* --- the sum over the headers ------------------------------------------------------------------- */

static uint32_t begin_anew(const struct wire_ip *ip, uint16_t sport, size_t len)
{
	struct wire_udp udp = { .sport = sport, .dport = WIRE_ROCE_PORT };

	return wire_icrc_begin(ip, &udp, len);
}

/* For packets of `len` bytes of UDP payload. */
static uint32_t begin(struct udp *u, const struct wire_ip *ip, uint16_t sport, size_t len)
{
	uint32_t h = (uint32_t)len / 4 ^ sport * 7u ^ ip->src[15] * 5u ^ ip->dst[15] * 3u;
	struct start *s = &u->start[h % FLOWS];
	struct wire_ip first = *ip;

	if (ip->id >= SEGMENTS)
		return begin_anew(ip, sport, len);
	if (s->len != len || s->sport != sport || memcmp(s->src, ip->src, 16) != 0 ||
	    memcmp(s->dst, ip->dst, 16) != 0) {
		first.id = 0;
		s->crc = begin_anew(&first, sport, len);
		memcpy(s->src, ip->src, 16);
		memcpy(s->dst, ip->dst, 16);
		s->len = len;
		s->sport = sport;
	}
	return s->crc ^ u->of_id[ip->id];
}

/* A CRC is linear: what an ID changes depends on the number of bytes behind it alone. */
static void prepare_ids(struct udp *u)
{
	struct wire_ip ip = { .dont_frag = true };
	uint32_t zero;
	unsigned i;

	memcpy(ip.src, u->cfg.gid, 16);
	memcpy(ip.dst, u->cfg.gid, 16);
	zero = begin_anew(&ip, 0, 0);
	for (i = 0; i < SEGMENTS; i++) {
		ip.id = (uint16_t)i;
		u->of_id[i] = begin_anew(&ip, 0, 0) ^ zero;
	}
}

/* --- sending ------------------------------------------------------------------------------------ */

static struct udp *of(struct rnic_wire *w)
{
	return (struct udp *)w;
}

static void add_control(struct msghdr *m, int level, int type, const void *v, size_t n)
{
	struct cmsghdr *c =
		(struct cmsghdr *)(void *)((uint8_t *)m->msg_control + m->msg_controllen);

	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(n);
	memcpy(CMSG_DATA(c), v, n);
	m->msg_controllen += CMSG_SPACE(n);
}

/* Sends the batch. 0; -EAGAIN with the batch kept. */
static int flush(struct udp *u)
{
	struct batch *b = &u->batch;
	_Alignas(struct cmsghdr) uint8_t control[CONTROL] = { 0 };
	struct sockaddr_storage ss;
	struct iovec iov = { b->buf, b->len };
	struct msghdr m = {
		.msg_name = &ss, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control
	};
	uint16_t size = (uint16_t)b->size;
	int tos = b->tclass;
	ssize_t n;

	if (!b->packets)
		return 0;
	m.msg_namelen = to_sockaddr(u, &ss, b->dst, WIRE_ROCE_PORT);
	if (b->packets > 1)
		add_control(&m, SOL_UDP, UDP_SEGMENT, &size, sizeof(size));
	if (tos)
		add_control(&m, u->v4 ? IPPROTO_IP : IPPROTO_IPV6, u->v4 ? IP_TOS : IPV6_TCLASS,
			    &tos, sizeof(tos));
	if (!m.msg_controllen)
		m.msg_control = NULL;
	n = sys.sendmsg(u->tx[b->port], &m, MSG_DONTWAIT);
	if (n == -EAGAIN || n == -ENOBUFS || n == -EINTR)
		return -EAGAIN;
	u->stats.tx_sends++;
	if (n < 0)
		u->stats.tx_dropped += b->packets;
	else
		u->stats.tx_packets += b->packets;
	b->packets = 0;
	b->len = 0;
	return 0;
}

/* Whether a packet of `size` bytes may join the batch as it is. */
static bool joins(const struct udp *u, const struct rnic_tx *tx, unsigned port, size_t size)
{
	const struct batch *b = &u->batch;

	if (!b->packets)
		return true;
	return u->segments && b->packets < BATCH_PACKETS && b->len + size <= BATCH_BYTES &&
	       size <= b->size && b->len == b->packets * b->size && b->port == port &&
	       b->tclass == tx->path->tclass && memcmp(b->dst, tx->path->dst, 16) == 0;
}

static int udp_send(struct rnic_wire *w, const struct rnic_tx *tx, uint64_t now)
{
	struct udp *u = of(w);
	struct batch *b = &u->batch;
	size_t size = rnic_tx_len(tx);
	unsigned port = tx->sport % u->nports;
	struct wire_ip ip = { .dont_frag = true };
	uint16_t sport = u->sport[port];
	int n;

	if (wire_gid_is_v4(tx->path->dst) != u->v4)
		return -EINVAL;
	if (!joins(u, tx, port, size) && flush(u))
		return -EAGAIN;
	memcpy(ip.src, tx->path->src, 16);
	memcpy(ip.dst, tx->path->dst, 16);
	ip.id = (uint16_t)b->packets;
	n = rnic_tx_flatten_from(tx, begin(u, &ip, sport, size), b->buf + b->len,
				 BATCH_BYTES - b->len);
	if (n < 0)
		return n;
	ip.tos = tx->path->tclass;
	rnic_pcap_packet(w->pcap, &ip, sport, WIRE_ROCE_PORT, b->buf + b->len, (size_t)n, now);
	if (!b->packets) {
		b->size = size;
		b->port = port;
		b->tclass = tx->path->tclass;
		memcpy(b->dst, tx->path->dst, 16);
	}
	b->packets++;
	b->len += size;
	return 0;
}

static int udp_flush(struct rnic_wire *w, uint64_t now)
{
	(void)now;
	return flush(of(w));
}

static const struct rnic_wire_ops udp_ops = { .send = udp_send, .flush = udp_flush };

/* --- receiving ---------------------------------------------------------------------------------- */

static struct peer *peer_of(struct udp *u, const uint8_t src[16], uint32_t qpn)
{
	uint32_t h = wire_get_be32(src + 12) * 2654435761u ^ qpn * 40503u;
	struct peer *p = &u->peer[(h >> 16 ^ h) % PEERS];

	if (p->qpn != qpn || memcmp(p->src, src, 16) != 0) {
		memcpy(p->src, src, 16);
		p->qpn = qpn;
		p->starts = p->strange = 0;
	}
	return p;
}

static uint32_t undo_of(struct udp *u, size_t len)
{
	struct undo *k = &u->undo[len / 4 % LENGTHS];

	if (k->len != len)
		*k = (struct undo){ len, wire_icrc_undo(len) };
	return k->factor;
}

/*
 * Whether to believe a packet. *id is the IP ID that is expected, and becomes the one that the ICRC was computed with: it
 * goes up by one from piece to piece of what the kernel has joined, but it starts anywhere where a sender's segments
 * went over a network and were joined anew.
 */
static bool believe(struct udp *u, const struct rnic_rx *rx, uint16_t sport, uint16_t *id)
{
	size_t len = rx->len - WIRE_ICRC_LEN;
	uint32_t want, got = wire_get_le32(rx->data + len);
	struct wire_ip ip = rx->ip;
	struct peer *p;

	ip.id = u->v4 ? *id : 0;
	ip.dont_frag = true;
	p = peer_of(u, rx->ip.src, wire_get_be24(rx->data + 5));
	want = wire_icrc_bth(begin(u, &ip, sport, rx->len), rx->data);
	want = wire_icrc_end(
		wire_crc32(want, rx->data + WIRE_BTH_LEN, rx->len - WIRE_BTH_LEN - WIRE_ICRC_LEN));
	if (want != got && (!u->v4 || !wire_icrc_find_id(undo_of(u, len), want, got, id))) {
		u->stats.rx_bad_icrc++;
		return false;
	}
	if (*id < SEGMENTS) {
		/* A sender that counts its packets comes through these, too, but past 0 only once. */
		p->starts += *id == 0 && p->starts < TRUST_AFTER;
		p->strange = 0;
		return true;
	}
	/* The address and the number may have got another owner since. */
	if (p->starts >= TRUST_AFTER && ++p->strange < DISTRUST_AFTER) {
		u->stats.rx_bad_icrc++;
		return false;
	}
	p->starts = p->strange = 0;
	u->stats.rx_any_id++;
	return true;
}

static void deliver(struct udp *u, const uint8_t *data, size_t len, const struct rnic_rx *from,
		    uint16_t sport, uint16_t *id, uint64_t now)
{
	struct rnic_rx rx = *from;
	bool believed;

	u->stats.rx_packets++;
	rx.data = data;
	rx.len = len;
	if (len < WIRE_BTH_LEN + WIRE_ICRC_LEN)
		return;
	believed = believe(u, &rx, sport, id);
	rx.ip.id = u->v4 ? *id : 0;
	rnic_pcap_packet(u->wire.pcap, &rx.ip, sport, WIRE_ROCE_PORT, data, len, now);
	if (!believed || !u->r)
		return;
	if (!u->cfg.steer || !u->cfg.steer(u->cfg.steer_ctx, &rx))
		rnic_receive(u->r, &rx, now);
}

/* Size of the pieces that the kernel has joined (0: one packet), and the traffic class. */
static size_t read_control(struct msghdr *m, struct wire_ip *ip)
{
	struct cmsghdr *c;
	size_t size = 0;
	int v;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
			memcpy(&v, CMSG_DATA(c), sizeof(v));
			size = v > 0 ? (size_t)v : 0;
		} else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
			ip->tos = *CMSG_DATA(c);
		} else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
			memcpy(&v, CMSG_DATA(c), sizeof(v));
			ip->tos = (uint8_t)v;
		}
	}
	return size;
}

/* Receives once. Packets delivered, 0 when there are none, or a negative errno. */
static int receive(struct udp *u, uint64_t now)
{
	_Alignas(struct cmsghdr) uint8_t control[CONTROL];
	struct sockaddr_storage ss;
	struct iovec iov = { u->rxbuf, sizeof(u->rxbuf) };
	struct msghdr m = { .msg_name = &ss,
			    .msg_namelen = sizeof(ss),
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct rnic_rx rx = { .ip = { .ttl = 64, .dont_frag = true } };
	ssize_t n = sys.recvmsg(u->rx, &m, MSG_DONTWAIT);
	size_t size, off;
	uint16_t sport, id = 0;
	int packets = 0;

	if (n == -EAGAIN || n == -EINTR)
		return 0;
	/* An answer to something sent earlier: no packet, and no fault of the socket. */
	if (n == -ECONNREFUSED || n == -EHOSTUNREACH || n == -ENETUNREACH)
		return 0;
	if (n < 0)
		return (int)n;
	u->stats.rx_receives++;
	from_sockaddr(&ss, rx.ip.src);
	memcpy(rx.ip.dst, u->cfg.gid, 16);
	sport = ntohs(u->v4 ? ((struct sockaddr_in *)&ss)->sin_port
			    : ((struct sockaddr_in6 *)&ss)->sin6_port);
	size = read_control(&m, &rx.ip);
	if (!size)
		size = (size_t)n;
	for (off = 0; off < (size_t)n; off += size) {
		size_t len = (size_t)n - off < size ? (size_t)n - off : size;

		deliver(u, u->rxbuf + off, len, &rx, sport, &id, now);
		id++;
		packets++;
	}
	if (u->cfg.steer)
		u->cfg.steer(u->cfg.steer_ctx, NULL);
	/* A datagram without a byte is one, too. */
	return packets ? packets : 1;
}

int rnic_udp_poll(struct rnic_wire *w, uint64_t now, unsigned budget)
{
	struct udp *u = of(w);
	unsigned done = 0;
	int n;

	while (done < budget) {
		n = receive(u, now);
		if (n < 0)
			return done ? (int)done : n;
		if (!n)
			break;
		done += (unsigned)n;
	}
	return (int)done;
}

/* --- set-up ------------------------------------------------------------------------------------- */

static void set_int(int fd, int level, int name, int v)
{
	sys.setsockopt(fd, level, name, &v, sizeof(v));
}

static int open_socket(const struct udp *u)
{
	int fd = sys.socket(u->v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			    0);

	if (fd < 0)
		return log_error(fd, "rnic: cannot open a UDP socket: %s", strerror(-fd));
	set_int(fd, SOL_SOCKET, SO_SNDBUF, (int)u->cfg.socket_buffer);
	set_int(fd, SOL_SOCKET, SO_RCVBUF, (int)u->cfg.socket_buffer);
	/* Never fragments, and does not believe what an ICMP message says of the path: anybody may have sent it. */
	if (u->v4)
		set_int(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
	else
		set_int(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
	return fd;
}

/* A sending socket takes nothing in: what strangers send to its port is dropped by a filter of one instruction. */
static void deafen(int fd)
{
	struct sock_filter drop = { .code = BPF_RET | BPF_K, .k = 0 };
	struct sock_fprog prog = { .len = 1, .filter = &drop };

	sys.setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog));
}

/* The place of a packet's socket among those that share the port: the top byte of DestQP. */
static void steer_by_qpn(int fd)
{
	struct sock_filter by_qpn[] = { { .code = BPF_LD | BPF_B | BPF_ABS, .k = 5 },
					{ .code = BPF_RET | BPF_A } };
	struct sock_fprog prog = { .len = 2, .filter = by_qpn };

	/* Without it packets go anywhere, and are passed on. */
	sys.setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog));
}

static int open_rx(struct udp *u)
{
	struct sockaddr_storage ss;
	socklen_t n = to_sockaddr(u, &ss, u->cfg.gid, WIRE_ROCE_PORT);
	int one = 1, rc;

	u->rx = open_socket(u);
	if (u->rx < 0)
		return u->rx;
	if (u->cfg.share)
		set_int(u->rx, SOL_SOCKET, SO_REUSEPORT, 1);
	rc = sys.bind(u->rx, (struct sockaddr *)&ss, n);
	if (!rc && u->cfg.share)
		steer_by_qpn(u->rx);
	if (rc == -EADDRINUSE && u->cfg.quiet)
		return rc;
	if (rc == -EADDRINUSE)
		return log_error(
			rc,
			"rnic: UDP port %d is taken on this address, by rdma_rxe or by another "
			"process: unload rdma_rxe (rdma link delete), or use another address",
			WIRE_ROCE_PORT);
	if (rc)
		return log_error(rc, "rnic: cannot bind UDP port %d: %s", WIRE_ROCE_PORT,
				 strerror(-rc));
	if (u->v4) {
		set_int(u->rx, IPPROTO_IP, IP_RECVTOS, 1);
	} else {
		set_int(u->rx, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
		/* rxe sends UDP checksum 0 on IPv6. */
		set_int(u->rx, SOL_UDP, UDP_NO_CHECK6_RX, 1);
	}
	u->segments = !u->cfg.no_segments &&
		      sys.setsockopt(u->rx, SOL_UDP, UDP_GRO, &one, sizeof(one)) == 0;
	return 0;
}

/* One sending socket on a port of RoCE's range that is free, spread by the table's place. */
static int open_tx(struct udp *u, unsigned i)
{
	struct sockaddr_storage ss;
	unsigned try;
	socklen_t n;
	int rc;

	u->tx[i] = open_socket(u);
	if (u->tx[i] < 0)
		return u->tx[i];
	u->nports++;
	deafen(u->tx[i]);
	for (try = 0; try < PORT_TRIES; try++) {
		u->sport[i] = (uint16_t)(FIRST_PORT + (i * 251 + try * 67) % 0x4000);
		n = to_sockaddr(u, &ss, u->cfg.gid, u->sport[i]);
		rc = sys.bind(u->tx[i], (struct sockaddr *)&ss, n);
		if (rc != -EADDRINUSE)
			break;
	}
	if (rc)
		return log_error(rc, "rnic: cannot bind a UDP port from %d on to send from: %s",
				 FIRST_PORT, strerror(-rc));
	return 0;
}

int rnic_udp_create(const struct rnic_udp_config *cfg, struct rnic_wire **out)
{
	struct udp *u;
	unsigned i, ports = cfg->ports ? cfg->ports : 8;
	int rc;

	if (ports > MAX_PORTS)
		return -EINVAL;
	u = sys.alloc(sizeof(*u));
	if (!u)
		return -ENOMEM;
	u->wire.ops = &udp_ops;
	u->cfg = *cfg;
	if (!u->cfg.socket_buffer)
		u->cfg.socket_buffer = 4 << 20;
	u->v4 = wire_gid_is_v4(cfg->gid);
	prepare_ids(u);
	rc = open_rx(u);
	for (i = 0; i < ports && !rc; i++)
		rc = open_tx(u, i);
	if (rc) {
		rnic_udp_destroy(&u->wire);
		return rc;
	}
	*out = &u->wire;
	return 0;
}

void rnic_udp_destroy(struct rnic_wire *w)
{
	struct udp *u = of(w);
	unsigned i;

	for (i = 0; i < u->nports; i++)
		sys.close(u->tx[i]);
	if (u->rx >= 0)
		sys.close(u->rx);
	sys.free(u);
}

void rnic_udp_silence(struct rnic_wire *w, int nothing)
{
	struct udp *u = of(w);
	unsigned i;

	dup3(nothing, u->rx, O_CLOEXEC);
	for (i = 0; i < u->nports; i++)
		dup3(nothing, u->tx[i], O_CLOEXEC);
}

void rnic_udp_attach(struct rnic_wire *w, struct rnic *r)
{
	of(w)->r = r;
}

int rnic_udp_fd(const struct rnic_wire *w)
{
	return ((const struct udp *)w)->rx;
}

const struct rnic_udp_stats *rnic_udp_stats(const struct rnic_wire *w)
{
	return &((const struct udp *)w)->stats;
}
