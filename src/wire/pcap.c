/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/pcap.h"

#include <errno.h>
#include <string.h>

#include "wire/bytes.h"

enum { LINK_ETHERNET = 1 };
#define MAGIC_US UINT32_C(0xa1b2c3d4)
#define MAGIC_NS UINT32_C(0xa1b23c4d)

void wire_pcap_header_put(uint8_t *p)
{
	memset(p, 0, WIRE_PCAP_HDR_LEN);
	wire_put_le32(p, MAGIC_NS);
	wire_put_le16(p + 4, 2);
	wire_put_le16(p + 6, 4);
	wire_put_le32(p + 16, WIRE_PCAP_SNAPLEN);
	wire_put_le32(p + 20, LINK_ETHERNET);
}

void wire_pcap_record_put(uint8_t *p, uint64_t stamp_ns, size_t len)
{
	wire_put_le32(p, (uint32_t)(stamp_ns / 1000000000));
	wire_put_le32(p + 4, (uint32_t)(stamp_ns % 1000000000));
	wire_put_le32(p + 8, (uint32_t)len);
	wire_put_le32(p + 12, (uint32_t)len);
}

int wire_pcap_open(struct wire_pcap_reader *r, const uint8_t *buf, size_t len)
{
	uint32_t magic;

	if (len < WIRE_PCAP_HDR_LEN)
		return -EMSGSIZE;
	magic = wire_get_le32(buf);
	if ((magic != MAGIC_US && magic != MAGIC_NS) || wire_get_le32(buf + 20) != LINK_ETHERNET)
		return -EPROTONOSUPPORT;
	*r = (struct wire_pcap_reader){
		.buf = buf,
		.len = len,
		.off = WIRE_PCAP_HDR_LEN,
		.frac_ns = magic == MAGIC_US ? 1000 : 1,
	};
	return 0;
}

int64_t wire_pcap_next(struct wire_pcap_reader *r, const uint8_t **frame)
{
	const uint8_t *p = r->buf + r->off;
	size_t left = r->len - r->off;
	uint32_t n;

	if (!left)
		return -ENODATA;
	if (left < WIRE_PCAP_REC_LEN)
		return -EBADMSG;
	n = wire_get_le32(p + 8);
	if (n > left - WIRE_PCAP_REC_LEN || n != wire_get_le32(p + 12))
		return -EBADMSG;
	r->stamp_ns = (uint64_t)wire_get_le32(p) * 1000000000 +
		      (uint64_t)wire_get_le32(p + 4) * r->frac_ns;
	*frame = p + WIRE_PCAP_REC_LEN;
	r->off += WIRE_PCAP_REC_LEN + n;
	return n;
}
