/* SPDX-License-Identifier: BSD-3-Clause */
#include "example.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static _Atomic(gpunet_t *) network;
static atomic_int stopped;

/* ---- arguments and addresses ------------------------------------------------------------------ */

static void usage(FILE *to, const char *program, int takes_text)
{
	fprintf(to, "usage: %s URL%s [--device auto|cpu|cuda[:N]]\n", program,
		takes_text ? " [text]" : "");
}

int example_parse(struct example_args *args, int argc, char **argv, int takes_text)
{
	int i, bad = 0;

	*args = (struct example_args){ .program = argv[0] };
	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0) {
			usage(stdout, argv[0], takes_text);
			return 0;
		}
		if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
			args->device = argv[++i];
		else if (!args->url)
			args->url = argv[i];
		else if (!args->text && takes_text)
			args->text = argv[i];
		else
			bad = 1;
	}
	if (!bad && args->url && args->url[0] != '-')
		return -1;
	usage(stderr, argv[0], takes_text);
	return 2;
}

static int unix_address(const char *name, struct sockaddr_un *un)
{
	size_t n = strlen(name);
	int abstract = name[0] == '@';

	if (n == 0 || n >= sizeof(un->sun_path))
		return 0;
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, name, n);
	if (abstract)
		un->sun_path[0] = 0;
	/* A path ends with a zero, an abstract name begins with one. */
	return (int)(offsetof(struct sockaddr_un, sun_path) + n + !abstract);
}

static int tcp_address(const char *name, struct sockaddr_storage *addr)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found;
	const char *port = strrchr(name, ':');
	char host[256];
	size_t n = port ? (size_t)(port - name) : 0;
	int len;

	if (n >= 2 && name[0] == '[' && name[n - 1] == ']') {
		name++;
		n -= 2;
	}
	if (n == 0 || n >= sizeof(host))
		return 0;
	memcpy(host, name, n);
	host[n] = 0;
	/* getaddrinfo takes the number 70000 for 4464 */
	if (strtol(port + 1, NULL, 10) > 65535 || getaddrinfo(host, port + 1, &hints, &found) != 0)
		return 0;
	len = (int)found->ai_addrlen;
	memcpy(addr, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return len;
}

int example_address(const struct example_args *args, struct example_addr *out)
{
	const char *url = args->url;
	int len = 0;

	memset(out, 0, sizeof(*out));
	if (strncmp(url, "tcp://", 6) == 0)
		len = tcp_address(url + 6, &out->addr);
	else if (strncmp(url, "unix:///", 8) == 0)
		len = unix_address(url + 7, (struct sockaddr_un *)&out->addr);
	else if (strncmp(url, "unix:@", 6) == 0)
		len = unix_address(url + 5, (struct sockaddr_un *)&out->addr);
	if (len <= 0) {
		fprintf(stderr,
			"%s: %s: no address: tcp://host:port, unix:///path or unix:@name is needed\n",
			args->program, url);
		return -1;
	}
	out->len = (uint32_t)len;
	return 0;
}

void example_announce(const struct example_addr *addr)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&addr->addr;
	size_t n = addr->len - offsetof(struct sockaddr_un, sun_path);
	char host[64], port[8];

	if (addr->addr.ss_family == AF_UNIX && un->sun_path[0]) {
		printf("listening on unix://%s\n", un->sun_path);
	} else if (addr->addr.ss_family == AF_UNIX) {
		printf("listening on unix:@%.*s\n", (int)n - 1, un->sun_path + 1);
	} else if (getnameinfo((const struct sockaddr *)&addr->addr, addr->len, host, sizeof(host),
			       port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
		int v6 = addr->addr.ss_family == AF_INET6;

		printf("listening on tcp://%s%s%s:%s\n", v6 ? "[" : "", host, v6 ? "]" : "", port);
	}
	fflush(stdout);
}

void example_remove(const struct example_addr *addr)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)&addr->addr;

	if (addr->addr.ss_family == AF_UNIX && un->sun_path[0])
		unlink(un->sun_path);
}

/* ---- the network ------------------------------------------------------------------------------ */

/* gpunet_abort may be called from a signal handler; every wait of every kernel ends with -ECANCELED. */
static void on_signal(int number)
{
	gpunet_t *g = atomic_load(&network);

	(void)number;
	atomic_store(&stopped, 1);
	if (g)
		gpunet_abort(g);
}

gpunet_t *example_open(const struct example_args *args)
{
	struct gpunet_options options = GPUNET_OPTIONS_INIT;
	struct sigaction action = { .sa_handler = on_signal };
	gpunet_t *g;
	int rc;

	signal(SIGPIPE, SIG_IGN);
	options.device = args->device;
#ifndef GPUNET_WITH_CUDA
	/* No kernel here was compiled for a GPU, so "a GPU if there is one" must not be taken. */
	if (!options.device || strcmp(options.device, "auto") == 0)
		options.device = "cpu";
#endif
	rc = gpunet_open(&g, &options);
	if (rc < 0) {
		fprintf(stderr, "%s: cannot open a network: %s\n", args->program,
			gpunet_last_error());
		return NULL;
	}
	atomic_store(&network, g);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	return g;
}

int example_wait(gpunet_t *g)
{
	int rc;

	do
		rc = gpunet_sync(g, 500);
	while (rc == -ETIMEDOUT || rc == -EINTR);
	return rc;
}

int example_stopped(void)
{
	return atomic_load(&stopped);
}

void example_close(gpunet_t *g)
{
	if (!example_stopped())
		gpunet_drain(g, 10000);
	atomic_store(&network, NULL);
	gpunet_close(g, 1000);
}

int example_fail(const struct example_args *args, const char *what, int rc)
{
	fprintf(stderr, "%s: %s: %s\n", args->program, what, strerror(rc < 0 ? -rc : rc));
	return 1;
}

int example_on_gpu(gpunet_t *g)
{
	return strcmp(gpunet_device_kind(g), "cuda") == 0;
}

/* The first kernel makes the socket and ends, the second one serves: a socket outlives a kernel. */
static int run_kernels(gpunet_t *g, const struct example_server *server, struct example_listener *l)
{
	int rc = server->listen(g, l);

	if (rc == 0)
		rc = example_wait(g);
	if (rc == 0 && l->fd >= 0)
		rc = server->serve(g, l->fd);
	if (rc == 0 && l->fd >= 0) {
		example_announce(&l->addr);
		rc = example_wait(g);
		example_remove(&l->addr);
	}
	return rc;
}

int example_serve(const struct example_args *args, gpunet_t *g, const struct example_server *server)
{
	struct example_listener *l = server->alloc(sizeof(*l));
	int rc = l ? server->prepare() : -ENOMEM, fd = -1;

	if (rc == 0 && example_address(args, &l->addr) != 0) {
		example_close(g);
		server->release(l);
		return 2;
	}
	if (rc == 0)
		rc = run_kernels(g, server, l);
	if (l)
		fd = l->fd;
	example_close(g);
	server->release(l);
	if (rc < 0)
		return example_fail(args, "a kernel has failed", rc);
	if (example_stopped())
		return 0;
	return example_fail(args, args->url, fd < 0 ? fd : -EIO);
}
