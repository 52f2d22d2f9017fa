/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_WIRE_MEM_H
#define GPUNET_RNIC_WIRE_MEM_H

/*
 * A network in memory: devices plugged into it reach each other by address. It is a switch with delay, and with faults
 * drawn from a seed: the same seed and calls give the same packets at the same times. Packets are real ones, with
 * ICRC, which is checked on arrival; so a corrupted packet is a lost one, unless four bytes lie.
 *
 * Not thread-safe; one thread runs the devices and the network:
 *
 *	for (now = 0; now != UINT64_MAX; now = next) {
 *		next = least of rnic_step(each device, now) and rnic_mem_step(net, now)
 *	}
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/rnic.h"
#include "rnic/wire.h"

struct rnic_mem_net;

/** A packet on its way. */
struct rnic_mem_packet {
	struct wire_ip ip;
	uint16_t sport;
	size_t len;
	uint8_t *
		data; /**< UDP payload, ICRC included; a hook may change it (and then calls rnic_mem_reseal()) */
};

enum rnic_mem_verdict { RNIC_MEM_PASS, RNIC_MEM_DROP, RNIC_MEM_DOUBLE };

/** Faults, as parts of a million; delays in nanoseconds. Zero means none. */
struct rnic_mem_faults {
	unsigned loss;
	unsigned duplicate;
	unsigned corrupt; /**< one bit is flipped, anywhere in the packet */
	unsigned reorder; /**< this part is held back by up to reorder_ns */
	uint64_t reorder_ns;
	uint64_t delay_ns;  /**< of every packet */
	uint64_t jitter_ns; /**< added, up to */
	unsigned refuse;    /**< the wire says that it is full */
	uint64_t rate;      /**< bytes a second that a port sends, headers included; 0: any */
	uint64_t queue;     /**< bytes that may wait for it; what does not fit is lost; 0: any */
	/* The switch's own port towards each device: where flows meet. */
	uint64_t out_rate;  /**< bytes a second; 0: any */
	uint64_t out_queue; /**< bytes that may wait there; what does not fit is lost; 0: any */
	uint64_t
		mark_from; /**< from so many waiting bytes on, packets that allow it are marked (ECN) … */
	uint64_t mark_to; /**< … the more surely the nearer to this; 0: none */
	uint64_t
		pause_from; /**< from so many on, senders are paused (PFC): their wire is full; 0: never */
};

struct rnic_mem_config {
	uint64_t seed;
	unsigned packets; /**< on their way at most, more are lost [4096] */
	struct rnic_mem_faults faults;
	/** Sees every packet before the faults do; may be NULL. */
	enum rnic_mem_verdict (*hook)(void *ctx, struct rnic_mem_packet *p, uint64_t now);
	/** Sees every packet that is delivered; may be NULL. */
	void (*tap)(void *ctx, const struct rnic_mem_packet *p, uint64_t now);
	void *ctx;
};

struct rnic_mem_stats {
	uint64_t sent, delivered, lost, doubled, corrupted, bad_icrc, held_back, overflow, no_route;
	uint64_t marked, paused, out_most; /**< packets, refusals, most bytes that waited */
};

int rnic_mem_create(const struct rnic_mem_config *cfg, struct rnic_mem_net **out);
void rnic_mem_destroy(struct rnic_mem_net *net); /**< after the devices on it are closed */

/** Changes the faults; for the next packets. */
void rnic_mem_set_faults(struct rnic_mem_net *net, const struct rnic_mem_faults *f);

/** A new port; open a device on it and say so with rnic_mem_attach(). At most 64 ports. */
struct rnic_wire *rnic_mem_port(struct rnic_mem_net *net);

/** Packets for `gid` are given to the device from now on; NULL: to nobody. */
int rnic_mem_attach(struct rnic_mem_net *net, struct rnic_wire *port, const uint8_t gid[16],
		    struct rnic *r);

/** Puts a packet of the caller's making on the network as if it came from p->ip.src; faults do not apply. */
int rnic_mem_inject(struct rnic_mem_net *net, const struct rnic_mem_packet *p, uint64_t now);

/** Computes the ICRC of a packet anew. */
void rnic_mem_reseal(struct rnic_mem_packet *p);

/** Delivers what has arrived by `now`; the time of the next arrival, or UINT64_MAX. */
uint64_t rnic_mem_step(struct rnic_mem_net *net, uint64_t now);

const struct rnic_mem_stats *rnic_mem_stats(const struct rnic_mem_net *net);

#endif
