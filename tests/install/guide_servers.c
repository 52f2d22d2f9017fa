/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's side of the guide's servers: serves on 127.0.0.1:PORT until SIGTERM. usage: guide_servers udp|many PORT */
#include "guide.h" /* of the test: the guide's kernels, and the headers that they need */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gpunet_t *g;

static void on_signal(int number)
{
	(void)number;
	gpunet_abort(g);
}

int main(int argc, char **argv)
{
	static struct sockaddr_in at = { .sin_family = AF_INET };
	struct gpunet_grid grid = { 1, 1, 1, 32, 1, 1, 0 };
	struct udp_args udp = { NULL, &at };
	struct many_args many = { NULL, &at };
	int rc;

	if (argc != 3 || gpunet_open(&g, NULL) < 0)
		return 2;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	udp.net = many.net = gpunet_device(g);
	signal(SIGTERM, on_signal);
	rc = strcmp(argv[1], "udp") == 0 ? GPUNET_LAUNCH(g, udp_echo, grid, udp)
					 : GPUNET_LAUNCH(g, serve_many, grid, many);
	if (rc == 0)
		rc = gpunet_sync(g, 60000);
	if (rc < 0)
		fprintf(stderr, "guide_servers: %s\n", gpunet_last_error());
	return gpunet_close(g, 1000) < 0 || rc < 0;
}
