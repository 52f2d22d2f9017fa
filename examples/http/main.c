/* SPDX-License-Identifier: BSD-3-Clause */
/* example-http URL: a kernel that answers web browsers until SIGINT or SIGTERM. */
#include <errno.h>

#include "../common/example.h"

extern const struct example_server http_cpu, http_cuda; /* http_kernels.c, once for each device */

static const struct example_server *kernels_for(gpunet_t *g)
{
#ifdef GPUNET_WITH_CUDA
	if (example_on_gpu(g))
		return &http_cuda;
#endif
	return example_on_gpu(g) ? NULL : &http_cpu;
}

int main(int argc, char **argv)
{
	const struct example_server *kernels;
	struct example_args args;
	gpunet_t *g;
	int code;

	code = example_parse(&args, argc, argv, 0);
	if (code >= 0)
		return code;
	g = example_open(&args);
	if (!g)
		return 1;
	kernels = kernels_for(g);
	if (!kernels)
		return example_fail(&args, "there are no kernels for this device", -EOPNOTSUPP);
	return example_serve(&args, g, kernels);
}
