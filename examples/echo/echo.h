/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EXAMPLES_ECHO_ECHO_H
#define EXAMPLES_ECHO_ECHO_H

#include "../common/example.h"

#define ECHO_TEXT 1024

/* The client kernel's order and its result, in memory that both sides see. */
struct echo_client {
	struct example_addr addr;
	uint32_t len;
	int32_t error; /* negative errno, 0: done */
	char text[ECHO_TEXT], answer[ECHO_TEXT];
};

/* What echo_kernels.c offers; it is compiled once for each device. */
struct echo_kernels {
	struct example_server server;
	int (*ask)(gpunet_t *g, struct echo_client *c);
};

#ifdef __cplusplus
extern "C" {
#endif
extern const struct echo_kernels echo_cpu;
extern const struct echo_kernels echo_cuda;
#ifdef __cplusplus
}
#endif

#endif
