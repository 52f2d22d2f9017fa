/* SPDX-License-Identifier: BSD-3-Clause */
/* Socket options of whole numbers and times, as tests set and read them: by all threads of a block. */
#ifndef GPUNET_TEST_OPT_H
#define GPUNET_TEST_OPT_H

#include "test.h"

GNET_DEV int opt_set(gnet_t *net, int fd, int level, int name, int v)
{
	__shared__ int val;

	__syncthreads();
	if (threadIdx.x == 0)
		val = v;
	__syncthreads();
	return gsetsockopt(net, fd, level, name, &val, sizeof(val));
}

/* The value, or a negative errno. */
GNET_DEV int opt_get(gnet_t *net, int fd, int level, int name)
{
	__shared__ int val;
	__shared__ uint32_t len;
	int rc;

	__syncthreads();
	if (threadIdx.x == 0) {
		val = -1;
		len = sizeof(val);
	}
	__syncthreads();
	rc = ggetsockopt(net, fd, level, name, &val, &len);
	if (rc == 0 && len != sizeof(val))
		return -1000;
	return rc ? rc : val;
}

/* Two longs: a struct timeval; or, halved, a struct linger. */
GNET_DEV int opt_set_time(gnet_t *net, int fd, int name, int64_t sec, int64_t usec)
{
	__shared__ int64_t val[2];

	__syncthreads();
	if (threadIdx.x == 0) {
		val[0] = sec;
		val[1] = usec;
	}
	__syncthreads();
	return gsetsockopt(net, fd, GNET_SOL_SOCKET, name, val, sizeof(val));
}

GNET_DEV int opt_limit_ms(gnet_t *net, int fd, int name, int ms)
{
	return opt_set_time(net, fd, name, ms / 1000, ms % 1000 * 1000);
}

GNET_DEV int opt_linger(gnet_t *net, int fd, int on, int seconds)
{
	__shared__ int val[2];

	__syncthreads();
	if (threadIdx.x == 0) {
		val[0] = on;
		val[1] = seconds;
	}
	__syncthreads();
	return gsetsockopt(net, fd, GNET_SOL_SOCKET, GNET_SO_LINGER, val, sizeof(val));
}

/* Thread 0's milliseconds, for all threads. */
GNET_DEV int64_t opt_now_ms(void)
{
	__shared__ int64_t ms;
	int64_t v;

	__syncthreads();
	if (threadIdx.x == 0)
		ms = (int64_t)(gnet_time_ns() / 1000000);
	__syncthreads();
	v = ms;
	__syncthreads();
	return v;
}

#endif
