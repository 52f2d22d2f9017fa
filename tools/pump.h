/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GPUNET_TOOLS_PUMP_H
#define GPUNET_TOOLS_PUMP_H

#include <stdbool.h>

/* Why a pump ended. */
struct pump_end {
	int read_error;  /* errno of standard input, 0: none */
	int write_error; /* errno of standard output, 0: none */
};

/*
 * Moves `in` to `sock` and `sock` to `out` until the stream from `sock` has ended and `in` has, or has paused. The end of
 * `in` becomes the end of the stream to `sock`. Ends early when `stop` becomes readable, or when `over(arg)` says that
 * nobody is at the other end any more.
 */
void pump(int in, int out, int sock, int stop, bool (*over)(void *arg), void *arg,
	  struct pump_end *end);

/* No datagram from `sock` is longer. */
#define PUMP_DGRAM_MOST (256 << 10)

struct pump_dgrams {
	int in, out, sock, stop;
	unsigned most, quiet_ms;
};

/*
 * The same for datagrams: what one read of `in` gives, at most `most` bytes, is one to `sock`, and what comes from `sock` goes to
 * `out`. Datagrams have no end, so when `in` has ended and none has come for `quiet_ms`, an empty one asks whoever is at the other
 * end of `sock` to end, who answers with an empty one behind the last.
 */
void pump_dgrams(const struct pump_dgrams *p, bool (*over)(void *arg), void *arg,
		 struct pump_end *end);

#endif
