/* SPDX-License-Identifier: BSD-3-Clause */
#include "rnic/pcap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "base/log.h"
#include "base/sys.h"
#include "wire/pcap.h"

enum { BUFFER = 256 << 10, FRAME_MAX = 16 << 10 };

struct rnic_pcap {
	uint64_t max_bytes, epoch_ns;
	uint64_t bytes; /* of the file, once all is written */
	uint64_t left_out;
	int fd;
	bool failed;
	size_t used;
	uint8_t buf[BUFFER];
};

void rnic_pcap_flush(struct rnic_pcap *p)
{
	size_t done = 0;
	ssize_t n;

	while (p && done < p->used && !p->failed) {
		n = sys.write(p->fd, p->buf + done, p->used - done);
		if (n == -EINTR)
			continue;
		if (n <= 0) {
			p->failed = true;
			log_error(n ? (int)n : -EIO, "rnic: the packet capture ends here: %s",
				  strerror(n ? (int)-n : EIO));
		}
		done += n > 0 ? (size_t)n : 0;
	}
	if (p)
		p->used = 0;
}

/* Where a frame of `len` bytes may be written, behind its record's header; NULL: there is no room for it. */
static uint8_t *record(struct rnic_pcap *p, size_t len, uint64_t now)
{
	size_t need = WIRE_PCAP_REC_LEN + len;
	uint8_t *at;

	if (p->failed || len > FRAME_MAX || p->bytes + need > p->max_bytes) {
		p->left_out++;
		return NULL;
	}
	if (p->used + need > BUFFER)
		rnic_pcap_flush(p);
	at = p->buf + p->used;
	wire_pcap_record_put(at, p->epoch_ns + now, len);
	p->used += need;
	p->bytes += need;
	return at + WIRE_PCAP_REC_LEN;
}

static void made_up_address(uint8_t mac[6], const uint8_t gid[16])
{
	mac[0] = 2;
	mac[1] = 0;
	memcpy(mac + 2, gid + 12, 4);
}

void rnic_pcap_packet(struct rnic_pcap *p, const struct wire_ip *ip, uint16_t sport, uint16_t dport,
		      const uint8_t *payload, size_t len, uint64_t now)
{
	struct wire_frame f = { .ip = *ip, .udp = { sport, dport, 0 }, .payload_len = len };
	size_t hdr = WIRE_ETH_LEN + wire_ip_len(ip) + WIRE_UDP_LEN;
	uint8_t *at;

	if (!p || wire_gid_is_v4(ip->src) != wire_gid_is_v4(ip->dst))
		return;
	if (!f.ip.ttl)
		f.ip.ttl = 64;
	made_up_address(f.eth_dst, ip->dst);
	made_up_address(f.eth_src, ip->src);
	at = record(p, hdr + len, now);
	if (!at)
		return;
	memcpy(at + hdr, payload, len);
	/* There is room, and what a wire carries fits an IP packet. */
	(void)wire_frame_encode(&f, at, hdr + len);
	wire_frame_seal(&f, at);
}

void rnic_pcap_frame(struct rnic_pcap *p, const uint8_t *frame, size_t len, uint64_t now)
{
	uint8_t *at = p ? record(p, len, now) : NULL;

	if (at)
		memcpy(at, frame, len);
}

uint64_t rnic_pcap_left_out(const struct rnic_pcap *p)
{
	return p->left_out;
}

int rnic_pcap_open(const struct rnic_pcap_config *cfg, struct rnic_pcap **out)
{
	struct rnic_pcap *p = sys.alloc(sizeof(*p));
	int rc;

	if (!p)
		return -ENOMEM;
	p->max_bytes = cfg->max_bytes ? cfg->max_bytes : 64 << 20;
	p->epoch_ns = cfg->epoch_ns;
	p->fd = open(cfg->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (p->fd < 0) {
		rc = -errno;
		sys.free(p);
		return log_error(rc, "rnic: cannot write the packet capture %s: %s", cfg->path,
				 strerror(-rc));
	}
	wire_pcap_header_put(p->buf);
	p->used = WIRE_PCAP_HDR_LEN;
	p->bytes = WIRE_PCAP_HDR_LEN;
	rnic_pcap_flush(p);
	*out = p;
	return 0;
}

void rnic_pcap_close(struct rnic_pcap *p)
{
	if (!p)
		return;
	rnic_pcap_flush(p);
	sys.close(p->fd);
	sys.free(p);
}
