/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ggetaddrinfo while the name server is silent: everybody else goes on, more lookups than the network takes at a time wait for their
 * turn, an abort and gpunet_close wait for none, and results that come later than that find nobody.
 */
#include "../device/test.h"

#include "base/sys.h"

#define ASKING 100

static _Atomic int silent;
static _Atomic unsigned inside, most_inside, asked;

/* Blocks while the name server is silent; then the name's number is the address's. */
static int fake_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
			    struct addrinfo **out)
{
	struct addrinfo numbers = *hints;
	unsigned n = ++inside;
	char text[32];

	(void)service;
	if (n > most_inside)
		most_inside = n;
	asked++;
	while (silent)
		test_sleep_ms(1);
	inside--;
	if (strcmp(node, "again") == 0)
		return EAI_AGAIN;
	if (strcmp(node, "fail") == 0)
		return EAI_FAIL;
	if (strcmp(node, "system") == 0) {
		errno = ENFILE;
		return EAI_SYSTEM;
	}
	snprintf(text, sizeof(text), "10.0.0.%s", node);
	/* For what is no address no name server is asked: it might be silent itself. */
	numbers.ai_flags |= AI_NUMERICHOST;
	return getaddrinfo(text, NULL, &numbers, out);
}

enum { SILENT_SEEN, DONE, CHURNED };

GNET_DEV int lookup(struct test_args *a, char *name, struct gnet_addrinfo *res)
{
	return ggetaddrinfo(a->net, name, NULL, NULL, res, 8);
}

/* Blocks from 1 on: each looks up a name of its own. */
GNET_DEV int look_up(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	struct gnet_addrinfo *res = (struct gnet_addrinfo *)(void *)(buf + 64);
	char *name = (char *)buf;

	if (test_k_tid() == 0) {
		name[0] = (char)('0' + blockIdx.x / 100);
		name[1] = (char)('0' + blockIdx.x / 10 % 10);
		name[2] = (char)('0' + blockIdx.x % 10);
		name[3] = 0;
	}
	__syncthreads();
	K_EQ(r, lookup(a, name[0] == '0' ? name + (name[1] == '0' ? 2 : 1) : name, res), 2);
	K_EQ(r, res[0].addr[4], 10);
	K_EQ(r, res[0].addr[7], blockIdx.x);
	return 0;
}

/* Block 0: sockets come and go, which needs calls. */
GNET_DEV int churn(struct test_args *a, struct test_report *r)
{
	int fd;

	test_k_wait(&a->word[SILENT_SEEN], 1);
	for (int i = 0; i < 200; i++) {
		K_GET(r, fd, gsocket(a->net, GNET_AF_INET, GNET_SOCK_STREAM, 0));
		K_EQ(r, gclose(a->net, fd), 0);
	}
	test_k_set(&a->word[CHURNED], 1);
	return 0;
}

GNET_DEV int many(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x ? look_up(a, r, buf) : churn(a, r);
}

TEST_KERNEL(many_kernel, many)

GNET_DEV int one(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	K_EQ(r, lookup(a, (char *)a->word, (struct gnet_addrinfo *)(void *)buf), (int64_t)a->n);
	return 0;
}

TEST_KERNEL(one_kernel, one)

static void while_silent(unsigned proxy_threads)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	opt.calls = 64;
	opt.cpu_blocks = ASKING + 1;
	opt.proxy_threads = proxy_threads;
	g = test_open(&opt);
	a = test_setup(g, TEST_TCP, ASKING + 1, 1024);
	silent = 1;
	inside = most_inside = 0;
	TEST_LAUNCH(g, many_kernel, a, ASKING + 1, 2);
	while (inside < 4)
		test_sleep_ms(1);
	test_word_set(&a.word[SILENT_SEEN], 1);
	test_word_wait(&a.word[CHURNED], 1, a.report);
	CHECK_EQ(silent, 1);
	silent = 0;
	test_sync(g, a.report, ASKING + 1);
	CHECK(most_inside <= 8);
	test_close(g);
	test_teardown(&a);
}

static void answers(const char *name, int64_t rc)
{
	gpunet_t *g = test_open(NULL);
	struct test_args a = test_setup(g, TEST_TCP, 1, 1024);

	strcpy((char *)a.word, name);
	a.n = (uint64_t)rc;
	TEST_LAUNCH(g, one_kernel, a, 1, 32);
	test_sync(g, a.report, 1);
	test_close(g);
	test_teardown(&a);
}

/* Kernel and network end while the lookup is under way; it ends long after them. */
static void ends_first(void)
{
	gpunet_t *g = test_open(NULL);
	struct test_args a = test_setup(g, TEST_TCP, 1, 1024);

	silent = 1;
	inside = 0;
	strcpy((char *)a.word, "1");
	a.n = (uint64_t)-ECANCELED;
	TEST_LAUNCH(g, one_kernel, a, 1, 32);
	while (!inside)
		test_sleep_ms(1);
	gpunet_abort(g);
	test_sync(g, a.report, 1);
	test_close(g);
	CHECK_EQ(inside, 1); /* what ended has not waited for it */
	test_teardown(&a);
	silent = 0;
	while (inside)
		test_sleep_ms(1);
	test_sleep_ms(50); /* its thread finds that the network has gone */
}

int main(void)
{
	test_begin(60);
	sys.getaddrinfo = fake_getaddrinfo;
	answers("7", 2);
	answers("again", -EAGAIN);
	answers("fail", -EREMOTEIO);
	answers("system", -ENFILE);
	answers("999", -ENOENT);
	while_silent(1);
	while_silent(3);
	for (int i = 0; i < 3; i++)
		ends_first();
	return 0;
}
