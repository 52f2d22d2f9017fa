/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_STREAM_INTERNAL_H
#define GPUNET_STREAM_INTERNAL_H

#include "stream/stream.h"

/* Queues the stream for the next pass. */
void stream_run(struct stream *s);

/* Queues it for a pass a little later: what it wanted the system was short of. */
void stream_later(struct stream *s);

/* Something was received: for a while the stream is asked directly. */
void stream_heat(struct stream *s);
void stream_cool(struct stream *s);

/* One bounded receive and one send; how much was done. After tx_step the stream may be gone. */
unsigned stream_rx_step(struct stream *s);
unsigned stream_tx_step(struct stream *s);

/* Stores what was sent, and the last error, for the kernel to see (T4, E1). */
void stream_publish_txw(struct stream *s);

/* The channel failed: both directions end. */
void stream_fail(struct stream *s, int err);
void stream_rx_release(struct stream *s);
/* A free segment, or that of a reader of this thread which has consumed everything: -ENOBUFS if there is none. */
int stream_take_segment(struct stream_set *set);

#endif
