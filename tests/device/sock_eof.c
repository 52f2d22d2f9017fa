/* SPDX-License-Identifier: BSD-3-Clause */
/* The end of a stream: half-close in both orders, each SHUT_*, and a peer that is gone. */
#include "test.h"

enum { SCENE, HOST };

/* The host ends its direction first; the other one still works. */
GNET_DEV int host_first(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	K_CALL(test_k_recv_all(r, a->net, fd, buf, a->room, 1000, 0, 1));
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	K_CALL(test_k_send_all(r, a->net, fd, buf, a->room, 200000, 2));
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	return 0;
}

/* The kernel ends its direction first. */
GNET_DEV int kernel_first(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	K_CALL(test_k_send_all(r, a->net, fd, buf, a->room, 1000, 2));
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	K_EQ(r, gsend(a->net, fd, buf, 10, 0), -EPIPE);
	K_EQ(r, gsend(a->net, fd, buf, 10, GNET_MSG_DONTWAIT), -EPIPE);
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), 0);
	K_CALL(test_k_recv_all(r, a->net, fd, buf, a->room, 200000, 0, 1));
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	return 0;
}

/* Nothing more is wanted from the host; sending goes on. */
GNET_DEV int shut_rd(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_RD), 0);
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	K_EQ(r, grecv(a->net, fd, buf, 10, GNET_MSG_DONTWAIT), 0);
	K_CALL(test_k_send_all(r, a->net, fd, buf, a->room, 1000, 2));
	return 0;
}

GNET_DEV int shut_both(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	K_CALL(test_k_send_all(r, a->net, fd, buf, a->room, 1000, 2));
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_RDWR), 0);
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	K_EQ(r, gsend(a->net, fd, buf, 10, 0), -EPIPE);
	return 0;
}

/* gclose at once after sending: all of it arrives, then the end. */
GNET_DEV int close_at_once(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	return test_k_send_all(r, a->net, fd, buf, a->room, 300000, 2);
}

/*
 * The host closes both directions: the end is seen, and sending fails before long, then for good.
 */
GNET_DEV int gone(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	int64_t n = 0;

	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	for (int i = 0; i < 2000 && n >= 0; i++) {
		n = gsend(a->net, fd, buf, 1000, 0);
		test_k_sleep(1000);
	}
	if (n != -EPIPE && n != -ECONNRESET)
		return test_k_bad(r, __LINE__, n, -EPIPE);
	K_EQ(r, gsend(a->net, fd, buf, 1000, 0), -EPIPE);
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), 0);
	return 0;
}

GNET_DEV int unconnected(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd;

	K_GET(r, fd, gsocket(a->net, a->want->a.sa.sa_family, GNET_SOCK_STREAM, a->want->protocol));
	K_EQ(r, grecv(a->net, fd, buf, 10, 0), -ENOTCONN);
	K_EQ(r, gsend(a->net, fd, buf, 10, 0), -ENOTCONN);
	K_EQ(r, gshutdown(a->net, fd, GNET_SHUT_WR), -ENOTCONN);
	K_EQ(r, gshutdown(a->net, fd, 7), -EINVAL);
	K_EQ(r, gclose(a->net, fd), 0);
	return 0;
}

GNET_DEV int scenes(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd;

	K_CALL(unconnected(a, r, buf));
	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 5));
	for (uint64_t scene = 0; scene < 6; scene++) {
		K_GET(r, fd, gaccept(a->net, listener, NULL, NULL));
		switch (scene) {
		case 0:
			K_CALL(host_first(a, r, fd, buf));
			break;
		case 1:
			K_CALL(kernel_first(a, r, fd, buf));
			break;
		case 2:
			K_CALL(shut_rd(a, r, fd, buf));
			break;
		case 3:
			K_CALL(shut_both(a, r, fd, buf));
			break;
		case 4:
			K_CALL(close_at_once(a, r, fd, buf));
			break;
		default:
			K_CALL(gone(a, r, fd, buf));
		}
		/*
		 * A direction that nobody shut stays open until gclose, so the host's last read
		 * ends by it.
		 */
		K_EQ(r, gclose(a->net, fd), 0);
	}
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(eof_kernel, scenes)

static void give(int fd, size_t n)
{
	uint8_t *data = (uint8_t *)malloc(n);

	CHECK(data != NULL);
	test_pattern(data, n, 0, 1);
	test_write(fd, data, n);
	free(data);
}

static void take(int fd, size_t n)
{
	uint8_t *data = (uint8_t *)malloc(n);

	CHECK(data != NULL);
	test_read(fd, data, n);
	test_pattern_check(data, n, 0, 2);
	free(data);
	test_read_end(fd);
}

static void host_scene(int fd, unsigned scene)
{
	switch (scene) {
	case 0:
		give(fd, 1000);
		CHECK_EQ(shutdown(fd, SHUT_WR), 0);
		take(fd, 200000);
		break;
	case 1:
		take(fd, 1000);
		give(fd, 200000);
		break;
	case 4:
		test_sleep_ms(100);
		take(fd, 300000);
		break;
	case 5:
		break;
	default:
		take(fd, 1000);
	}
	close(fd);
}

static void run(gpunet_t *g, enum test_kind kind, unsigned threads)
{
	struct test_args a = test_setup(g, kind, 1, 32 << 10);

	TEST_LAUNCH(g, eof_kernel, a, 1, threads);
	test_addr_wait(a.where, a.report);
	for (unsigned scene = 0; scene < 6; scene++)
		host_scene(test_connect(a.where), scene);
	test_sync(g, a.report, 1);
	test_teardown(&a);
}

int main(void)
{
	gpunet_t *g;

	test_begin(60);
	g = test_open(NULL);
	CHECK_EQ(GPUNET_PREPARE(eof_kernel), 0);
	run(g, TEST_TCP, 64);
	run(g, TEST_UNIX, 32);
	test_close(g);
	return 0;
}
