/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ggetsockname, ggetpeername and the address that gaccept gives: contents, lengths, room that is
 * too small.
 */
#include "test.h"

/* Words for the host: lengths. The addresses go to where[0..3]. */
enum { PEER_LEN, SHORT_LEN, ACCEPT_LEN, CLIENT_LEN, DONE };

GNET_DEV void set_len(uint32_t *len, uint32_t v)
{
	__syncthreads();
	if (threadIdx.x == 0)
		*len = v;
	__syncthreads();
}

GNET_DEV int names(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ uint32_t len;
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	set_len(&len, 128);
	K_EQ(r, ggetpeername(a->net, listener, buf, &len), -ENOTCONN);
	K_GET(r, fd, gaccept(a->net, listener, &a->where[1].a, &len));
	test_k_set(&a->word[ACCEPT_LEN], len);
	set_len(&len, 128);
	K_EQ(r, ggetpeername(a->net, fd, &a->where[2].a, &len), 0);
	test_k_set(&a->word[PEER_LEN], len);
	set_len(&len, 128);
	K_EQ(r, ggetsockname(a->net, fd, &a->where[3].a, &len), 0);
	test_k_set(&a->word[CLIENT_LEN], len);
	/*
	 * Room for four bytes: they are filled, the next one is not, and the length is the whole
	 * one's.
	 */
	if (threadIdx.x == 0)
		for (int i = 0; i < 16; i++)
			buf[i] = 0xee;
	set_len(&len, 4);
	K_EQ(r, ggetsockname(a->net, fd, buf, &len), 0);
	test_k_set(&a->word[SHORT_LEN], len);
	K_EQ(r, buf[0] | buf[1] << 8, a->want->a.sa.sa_family);
	K_EQ(r, buf[4], 0xee);
	set_len(&len, 0);
	K_EQ(r, ggetsockname(a->net, fd, buf, &len), 0);
	K_EQ(r, gclose(a->net, fd), 0);
	/* The second client's address does not interest anybody. */
	K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(names_kernel, names)

/* The peer of an accepted connection has its name from then on that it binds, and still when it has gone. */
GNET_DEV int late_name(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	__shared__ uint32_t len;
	int listener, fd;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	set_len(&len, 128);
	K_GET(r, fd, gaccept(a->net, listener, &a->where[1].a, &len));
	test_k_set(&a->word[ACCEPT_LEN], len);
	K_EQ(r, gsend(a->net, fd, buf, 1, 0), 1);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 1);
	set_len(&len, 128);
	K_EQ(r, ggetpeername(a->net, fd, &a->where[2].a, &len), 0);
	test_k_set(&a->word[PEER_LEN], len);
	K_EQ(r, gsend(a->net, fd, buf, 1, 0), 1);
	K_EQ(r, grecv(a->net, fd, buf, 1, 0), 0);
	set_len(&len, 128);
	K_EQ(r, ggetpeername(a->net, fd, &a->where[3].a, &len), 0);
	test_k_set(&a->word[CLIENT_LEN], len);
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(late_name_kernel, late_name)

static void same(const struct test_addr *got, uint64_t got_len, const struct sockaddr *want,
		 socklen_t want_len)
{
	CHECK_EQ(got_len, want_len);
	if (memcmp(got->a.bytes, want, want_len) != 0)
		FAIL("the addresses differ");
}

static void run(gpunet_t *g, enum test_kind kind)
{
	struct test_args a = test_setup(g, kind, 1, 4096);
	struct test_addr *seen = (struct test_addr *)test_shared(4 * sizeof(*seen));
	struct test_addr here, there;
	socklen_t here_len = sizeof(here.a), there_len = sizeof(there.a);
	int fd, other;

	a.where = seen;
	memset(&here, 0, sizeof(here));
	memset(&there, 0, sizeof(there));
	TEST_LAUNCH(g, names_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	fd = test_connect(a.where);
	other = test_connect(a.where);
	CHECK_EQ(getsockname(fd, &here.a.sa, &here_len), 0);
	CHECK_EQ(getpeername(fd, &there.a.sa, &there_len), 0);
	test_sync(g, a.report, 1);
	same(&seen[0], seen[0].len, &there.a.sa, there_len);
	same(&seen[1], a.word[ACCEPT_LEN], &here.a.sa, here_len);
	same(&seen[2], a.word[PEER_LEN], &here.a.sa, here_len);
	same(&seen[3], a.word[CLIENT_LEN], &there.a.sa, there_len);
	CHECK_EQ(a.word[SHORT_LEN], there_len);
	close(fd);
	close(other);
	test_teardown(&a);
	test_shared_free(seen);
}

static void binds_late(gpunet_t *g, enum test_kind kind)
{
	struct test_args a = test_setup(g, kind, 1, 4096);
	struct test_addr *seen = (struct test_addr *)test_shared(4 * sizeof(*seen));
	struct test_addr nameless, here;
	socklen_t nameless_len = sizeof(nameless.a), here_len = sizeof(here.a);
	char byte;
	int fd;

	a.where = seen;
	memset(&nameless, 0, sizeof(nameless));
	memset(&here, 0, sizeof(here));
	TEST_LAUNCH(g, late_name_kernel, a, 1, 32);
	test_addr_wait(a.where, a.report);
	fd = test_connect(a.where);
	CHECK_EQ(getsockname(fd, &nameless.a.sa, &nameless_len), 0);
	test_read(fd, &byte, 1);
	here.a.sa.sa_family = AF_UNIX;
	CHECK_EQ(bind(fd, &here.a.sa, sizeof(here.a.sa.sa_family)), 0); /* the system chooses */
	CHECK_EQ(getsockname(fd, &here.a.sa, &here_len), 0);
	CHECK(here_len > nameless_len);
	test_write(fd, &byte, 1);
	test_read(fd, &byte, 1);
	close(fd);
	test_sync(g, a.report, 1);
	same(&seen[1], a.word[ACCEPT_LEN], &nameless.a.sa, nameless_len);
	same(&seen[2], a.word[PEER_LEN], &here.a.sa, here_len);
	same(&seen[3], a.word[CLIENT_LEN], &here.a.sa, here_len);
	test_teardown(&a);
	test_shared_free(seen);
}

int main(void)
{
	gpunet_t *g;

	test_begin(30);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(names_kernel), 0);
	CHECK_EQ(GPUNET_PREPARE(late_name_kernel), 0);
	run(g, TEST_TCP);
	if (test_has_ipv6())
		run(g, TEST_TCP6);
	run(g, TEST_UNIX);
	run(g, TEST_ABSTRACT);
	if (!test_rdma()) /* a UNIX socket's matter */
		binds_late(g, TEST_UNIX);
	test_close(g);
	return 0;
}
