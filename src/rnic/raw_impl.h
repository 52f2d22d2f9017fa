/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_RAW_IMPL_H
#define GPUNET_RNIC_RAW_IMPL_H

/*
 * The raw wire's two halves: wire_raw.c opens descriptors and reads and writes them; raw_frame.c knows what is in a frame, and
 * whom it goes to, and makes no system call, so that a fuzzer can be its network.
 */
#include <linux/virtio_net.h>

#include "rnic/wire_raw.h"
#include "wire/frame.h"
#include "wire/roce.h"

enum {
	RAW_VNET = sizeof(struct virtio_net_hdr),
	RAW_FRAME_MAX = WIRE_FRAME_MAX_HDR + WIRE_MTU_MAX + 128,
	RAW_RX_BYTES = 65536 + 256,
	RAW_NEIGHBOURS = 256,
};

struct raw_neighbour {
	uint8_t gid[16]; /* zeros: empty */
	uint8_t mac[6];
	bool known;
	uint64_t asked_at, answered_at;
	size_t waiting; /* length of the frame below */
	uint8_t frame[RAW_FRAME_MAX];
};

struct raw {
	struct rnic_wire wire;
	struct rnic *r;
	struct rnic_raw_config cfg;
	struct rnic_raw_stats stats;
	int fd;
	bool v4;
	uint8_t mac[6];
	struct raw_neighbour neighbour[RAW_NEIGHBOURS];
	uint8_t tx[RAW_VNET + RAW_FRAME_MAX];
	uint8_t rx[RAW_VNET + RAW_RX_BYTES];
};

/* wire_raw.c: sends a frame, before which there is room for RAW_VNET bytes. 0 or -EAGAIN. */
int raw_put(struct raw *w, uint8_t *frame, size_t len);

/* raw_frame.c */
extern const struct rnic_wire_ops raw_ops;

/*
 * A frame came, from a kernel perhaps before it has cut it up (size: of the pieces, else 0) or summed it (`unsummed`). How many
 * packets were in it.
 */
unsigned raw_take(struct raw *w, const uint8_t *frame, size_t len, size_t size, bool unsummed,
		  uint64_t now);

#endif
