/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_RNIC_CM_GSI_H
#define GPUNET_RNIC_CM_GSI_H

/*
 * QP1 of a device, which carries the datagrams of connection management: ties a struct rnic_cm to a struct rnic.
 *
 * After each batch of rnic_receive() call rnic_gsi_poll(); call rnic_cm_step() when it is due. Of the thread that the
 * device belongs to.
 */
#include "rnic/cm.h"
#include "rnic/rnic.h"

struct rnic_gsi;

/** Opens QP1 (-EBUSY: the device has one) and a CM on it; `send` in `cfg` is not used. */
int rnic_gsi_open(struct rnic *r, const struct rnic_cm_config *cfg, struct rnic_gsi **out);
void rnic_gsi_close(struct rnic_gsi *g);

struct rnic_cm *rnic_gsi_cm(struct rnic_gsi *g);

/** Gives the CM what has come. True when there was something. */
bool rnic_gsi_poll(struct rnic_gsi *g, uint64_t now);

#endif
