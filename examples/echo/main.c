/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * example-echo URL             a kernel that serves until SIGINT or SIGTERM
 * example-echo URL "some text" a kernel that sends the text and prints what comes back
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "echo.h"

static const struct echo_kernels *kernels_for(gpunet_t *g)
{
#ifdef GPUNET_WITH_CUDA
	if (example_on_gpu(g))
		return &echo_cuda;
#endif
	return example_on_gpu(g) ? NULL : &echo_cpu;
}

static int ask(const struct example_args *args, gpunet_t *g, const struct echo_kernels *k)
{
	struct echo_client *c = k->server.alloc(sizeof(*c));
	int rc = c ? k->server.prepare() : -ENOMEM;

	if (rc == 0 && example_address(args, &c->addr) != 0)
		return 2;
	if (rc == 0) {
		c->len = (uint32_t)strnlen(args->text, ECHO_TEXT - 1);
		memcpy(c->text, args->text, c->len);
		rc = k->ask(g, c);
	}
	if (rc == 0)
		rc = example_wait(g);
	if (rc == 0)
		rc = c->error;
	if (rc == 0)
		puts(c->answer);
	example_close(g);
	k->server.release(c);
	return rc < 0 ? example_fail(args, args->url, rc) : 0;
}

int main(int argc, char **argv)
{
	const struct echo_kernels *k;
	struct example_args args;
	gpunet_t *g;
	int code;

	code = example_parse(&args, argc, argv, 1);
	if (code >= 0)
		return code;
	g = example_open(&args);
	if (!g)
		return 1;
	k = kernels_for(g);
	if (!k)
		return example_fail(&args, "there are no kernels for this device", -EOPNOTSUPP);
	return args.text ? ask(&args, g, k) : example_serve(&args, g, &k->server);
}
