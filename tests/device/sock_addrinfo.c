/* SPDX-License-Identifier: BSD-3-Clause */
/* ggetaddrinfo: numbers, names and services of this machine, hints, results that gconnect takes, and every refusal. */
#include "opt.h"

#include <netdb.h>

enum { NUMBER, NUMBER6, LOCALHOST, INVALID, LONGEST, TOO_LONG, PORT, HTTP, NO_SERVICE, TEXTS };

struct info_args {
	struct test_args t;
	char (*text)[300];
	struct gnet_addrinfo *hints, *res;
	int http; /* the host knows the service "http" */
};

GNET_DEV void hints_are(struct info_args *a, int flags, int family, int socktype)
{
	__syncthreads();
	if (threadIdx.x == 0) {
		a->hints->flags = flags;
		a->hints->family = family;
		a->hints->socktype = socktype;
		a->hints->protocol = 0;
	}
	__syncthreads();
}

/* -1: NULL. */
GNET_DEV int ask(struct info_args *a, int node, int service, uint32_t max)
{
	return ggetaddrinfo(a->t.net, node < 0 ? NULL : a->text[node],
			    service < 0 ? NULL : a->text[service], a->hints, a->res, max);
}

GNET_DEV uint32_t port_of(const struct gnet_addrinfo *r)
{
	return (uint32_t)r->addr[2] << 8 | r->addr[3];
}

GNET_DEV int numbers(struct info_args *a, struct test_report *r)
{
	hints_are(a, GNET_AI_NUMERICHOST | GNET_AI_NUMERICSERV, 0, GNET_SOCK_STREAM);
	K_EQ(r, ask(a, NUMBER, PORT, 8), 1);
	K_EQ(r, a->res[0].family, GNET_AF_INET);
	K_EQ(r, a->res[0].socktype, GNET_SOCK_STREAM);
	K_EQ(r, a->res[0].protocol, GNET_IPPROTO_TCP);
	K_EQ(r, a->res[0].addrlen, 16);
	K_EQ(r, port_of(a->res), 4321);
	K_EQ(r, a->res[0].addr[4], 127);
	K_EQ(r, a->res[0].addr[7], 9);
	K_EQ(r, ask(a, NUMBER6, PORT, 8), 1);
	K_EQ(r, a->res[0].family, GNET_AF_INET6);
	K_EQ(r, a->res[0].addrlen, 28);
	K_EQ(r, a->res[0].addr[8], 0x20);
	K_EQ(r, a->res[0].addr[23], 0x77);
	/* Streams and datagrams, nothing that a kernel has no socket for. */
	hints_are(a, GNET_AI_NUMERICHOST, 0, 0);
	K_EQ(r, ask(a, NUMBER, -1, 8), 2);
	K_EQ(r, a->res[0].socktype + a->res[1].socktype, GNET_SOCK_STREAM + GNET_SOCK_DGRAM);
	K_EQ(r, ask(a, NUMBER, -1, 1), 1);
	hints_are(a, GNET_AI_PASSIVE, GNET_AF_INET, GNET_SOCK_DGRAM);
	K_EQ(r, ask(a, -1, PORT, 8), 1);
	K_EQ(r, a->res[0].socktype, GNET_SOCK_DGRAM);
	K_EQ(r, a->res[0].addr[4], 0);
	K_EQ(r, ggetaddrinfo(a->t.net, a->text[NUMBER], NULL, NULL, a->res, 8), 2);
	return 0;
}

GNET_DEV int refusals(struct info_args *a, struct test_report *r)
{
	gnet_t *net = a->t.net;
	int rc;

	hints_are(a, 0, 0, GNET_SOCK_STREAM);
	K_EQ(r, ask(a, -1, -1, 8), -ENOENT);
	K_EQ(r, ask(a, NUMBER, -1, 0), -EINVAL);
	K_EQ(r, ggetaddrinfo(net, a->text[NUMBER], NULL, a->hints, NULL, 8), -EINVAL);
	K_EQ(r, ggetaddrinfo(NULL, a->text[NUMBER], NULL, a->hints, a->res, 8), -EINVAL);
	K_EQ(r, ask(a, TOO_LONG, -1, 8), -ENAMETOOLONG);
	K_EQ(r, ask(a, NUMBER, TOO_LONG, 8), -ENAMETOOLONG);
	rc = ask(a, LONGEST, PORT, 8);
	K_EQ(r, rc < 0 && rc != -ENAMETOOLONG && rc != -EINVAL, 1);
	K_EQ(r, ask(a, NUMBER, NO_SERVICE, 8), -EPROTONOSUPPORT);
	hints_are(a, GNET_AI_NUMERICHOST, 0, GNET_SOCK_STREAM);
	K_EQ(r, ask(a, LOCALHOST, PORT, 8), -ENOENT);
	K_EQ(r, ask(a, INVALID, PORT, 8), -ENOENT);
	hints_are(a, GNET_AI_NUMERICSERV, 0, GNET_SOCK_STREAM);
	K_EQ(r, ask(a, NUMBER, HTTP, 8), -ENOENT);
	hints_are(a, GNET_AI_NUMERICHOST, GNET_AF_INET6, GNET_SOCK_STREAM);
	K_EQ(r, ask(a, NUMBER, PORT, 8), -ENOENT);
	hints_are(a, 0, 77, GNET_SOCK_STREAM);
	K_EQ(r, ask(a, NUMBER, PORT, 8), -EAFNOSUPPORT);
	hints_are(a, 0, 0, 77);
	K_EQ(r, ask(a, NUMBER, PORT, 8), -ESOCKTNOSUPPORT);
	hints_are(a, 2, 0, GNET_SOCK_STREAM); /* AI_CANONNAME: there is no place for it */
	K_EQ(r, ask(a, NUMBER, PORT, 8), -EINVAL);
	return 0;
}

/* A name of this machine leads to the host's listener. */
GNET_DEV int names(struct info_args *a, struct test_report *r)
{
	gnet_t *net = a->t.net;
	int n, fd;

	hints_are(a, 0, GNET_AF_INET, GNET_SOCK_STREAM);
	if (a->http) {
		K_EQ(r, ask(a, NUMBER, HTTP, 8), 1);
		K_EQ(r, port_of(a->res), 80);
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		uint32_t port = (uint32_t)a->t.where->a.bytes[2] << 8 | a->t.where->a.bytes[3];

		for (int i = 4; i >= 0; i--, port /= 10)
			a->text[PORT][i] = (char)('0' + port % 10);
		a->text[PORT][5] = 0;
	}
	K_GET(r, n, ask(a, LOCALHOST, PORT, 8));
	K_EQ(r, n >= 1, 1);
	K_GET(r, fd, gsocket(net, a->res[0].family, a->res[0].socktype, a->res[0].protocol));
	K_EQ(r, gconnect(net, fd, a->res[0].addr, a->res[0].addrlen), 0);
	K_EQ(r, gsend(net, fd, "hi", 2, 0), 2);
	K_EQ(r, gclose(net, fd), 0);
	return 0;
}

GNET_DEV int all(struct info_args *a, struct test_report *r)
{
	K_CALL(numbers(a, r));
	K_CALL(refusals(a, r));
	return names(a, r);
}

GNET_KERNEL(info_kernel, struct info_args, a)
{
	test_k_done(a.t.report, all(&a, a.t.report));
}

static int same_constants(void)
{
	return GNET_AI_PASSIVE == AI_PASSIVE && GNET_AI_NUMERICHOST == AI_NUMERICHOST &&
	       GNET_AI_V4MAPPED == AI_V4MAPPED && GNET_AI_ALL == AI_ALL &&
	       GNET_AI_ADDRCONFIG == AI_ADDRCONFIG && GNET_AI_NUMERICSERV == AI_NUMERICSERV;
}

static void texts(struct info_args *a)
{
	a->text = (char(*)[300])test_shared(TEXTS * sizeof(*a->text));
	strcpy(a->text[NUMBER], "127.0.0.9");
	strcpy(a->text[NUMBER6], "2001:db8::77");
	strcpy(a->text[LOCALHOST], "localhost");
	strcpy(a->text[INVALID], "no such name");
	memset(a->text[LONGEST], 'x', GNET_NODE_MAX);
	memset(a->text[TOO_LONG], 'x', GNET_NODE_MAX + 1);
	strcpy(a->text[PORT], "4321");
	strcpy(a->text[HTTP], "http");
	strcpy(a->text[NO_SERVICE], "no-such-service");
}

static void run(unsigned threads)
{
	struct info_args a;
	gpunet_t *g = test_open(NULL);
	char got[2];
	int listener, fd;

	memset(&a, 0, sizeof(a));
	CHECK_EQ(GPUNET_PREPARE(info_kernel), 0);
	a.t = test_setup(g, TEST_TCP, 1, 4096);
	texts(&a);
	a.hints = (struct gnet_addrinfo *)test_shared(sizeof(*a.hints));
	a.res = (struct gnet_addrinfo *)test_shared(8 * sizeof(*a.res));
	a.http = getservbyname("http", "tcp") != NULL;
	*a.t.where = *a.t.want;
	listener = test_listen(a.t.where, 1);
	TEST_LAUNCH(g, info_kernel, a, 1, threads);
	test_sync(g, a.t.report, 1);
	fd = test_accept(listener);
	test_read(fd, got, 2);
	test_read_end(fd);
	close(fd);
	close(listener);
	test_close(g);
	test_shared_free(a.res);
	test_shared_free(a.hints);
	test_shared_free(a.text);
	test_teardown(&a.t);
}

int main(void)
{
	test_begin(60);
	CHECK(same_constants());
	run(64);
	run(1);
	return 0;
}
