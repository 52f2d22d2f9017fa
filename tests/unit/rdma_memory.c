/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings in memory that the CPU does not touch, on a provider that takes such memory by dma-buf, by its address, or not at all: the
 * bytes are right in each case, the kernel is the same, and what was chosen has its reason. On the CPU device that memory is one
 * mapping for kernels and another for the provider; the address that stands for it between the two cannot be touched by anybody.
 */
#include "../device/test.h"
#include "channel/verbs/rdc.h"
#include "platform/cpu/cpu.h"
#include "verbs_stub.h"

#define CONNS 3
#define MESSAGES (TEST_SLOW > 1 ? 120u : 400u)
#define SEGMENT (16u << 10)
#define MOST 6000u

/* The length of message i: small ones first, which go inline, then all kinds; at the end small ones, which then go by the ring. */
#define LENGTH(i) ((i) < 20 || (i) > MESSAGES - 20 ? 1 + (i) % 105 : 1 + (i)*2654435761u % MOST)

GNET_DEV int serve(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, fd[CONNS];

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, CONNS));
	for (int i = 0; i < CONNS; i++)
		K_GET(r, fd[i], gaccept(a->net, listener, NULL, NULL));
	for (int i = 0; i < CONNS; i++)
		K_CALL(test_k_echo(r, a->net, fd[i], buf, a->room));
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

/* One in three is written in place. */
GNET_DEV int put(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, uint64_t n,
		 uint64_t pos, uint32_t i)
{
	__shared__ struct gnet_borrow b;

	if (i < 20 || i % 3) {
		test_k_pattern(buf, n, pos, 1);
		K_EQ(r, gsend(a->net, fd, buf, n, 0), n);
		return 0;
	}
	K_EQ(r, gsend_reserve(a->net, fd, &b, n, 0), 0);
	test_k_pattern(b.ptr[0], b.len[0], pos, 1);
	test_k_pattern(b.ptr[1], b.len[1], pos + b.len[0], 1);
	K_EQ(r, gsend_commit(a->net, fd, n), 0);
	return 0;
}

GNET_DEV int get(struct test_args *a, struct test_report *r, int fd, uint8_t *buf, uint64_t n,
		 uint64_t pos, uint32_t i)
{
	__shared__ struct gnet_borrow b;
	int64_t got;

	if (i % 5)
		return test_k_recv_all(r, a->net, fd, buf, n, n, pos, 1);
	for (uint64_t done = 0; done < n; done += (uint64_t)got) {
		K_GET(r, got, grecv_borrow(a->net, fd, &b, n - done, 0));
		K_EQ(r, test_k_wrong(b.ptr[0], b.len[0], pos + done, 1), 0);
		K_EQ(r, test_k_wrong(b.ptr[1], b.len[1], pos + done + b.len[0], 1), 0);
		K_EQ(r, grecv_return(a->net, fd, (uint64_t)got), 0);
	}
	return 0;
}

/*
 * K1, T7: who remembers a socket may not see the segment that another call has attached, and sent nothing. So a near one, beside which no
 * byte may go inline, changes the side's word. (So does a commit of nothing, by a mark of its own.)
 */
GNET_DEV int near_is_in_the_word(struct test_args *a, struct test_report *r, int fd, uint8_t *buf)
{
	const struct gnet_sock *sk = &a->net->socks[GNET_FD_SLOT(fd)];
	__shared__ struct gnet_borrow b;
	uint64_t was, is, seg;

	K_EQ(r, gsend(a->net, fd, buf, 5, 0), 5);
	K_EQ(r, grecv(a->net, fd, buf, 5, GNET_MSG_WAITALL), 5);
	was = gnet_dev_load(&sk->tx);
	K_EQ(r, gsend_reserve(a->net, fd, &b, 100, 0), 0);
	K_EQ(r, gsend_commit(a->net, fd, 0), 0);
	is = gnet_dev_load(&sk->tx) & ~(uint64_t)GNET_L_WRITTEN;
	seg = gnet_dev_load(&sk->tx_seg) & GNET_SOCK_SEG;
	K_EQ(r, seg != 0, 1);
	K_EQ(r, is != was, gnet__tx_near(seg));
	return 0;
}

GNET_DEV int ask(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int fd[CONNS];

	for (int i = 0; i < CONNS; i++)
		K_GET(r, fd[i], test_k_connect(a->net, a->where));
	K_CALL(near_is_in_the_word(a, r, fd[0], buf));
	for (int k = 0; k < CONNS; k++) {
		uint64_t pos = 0;

		for (uint32_t i = 0; i < a->n; i++) {
			uint64_t n = LENGTH(i);

			K_CALL(put(a, r, fd[k], buf, n, pos, i));
			K_CALL(get(a, r, fd[k], buf, n, pos, i));
			pos += n;
		}
		K_EQ(r, gshutdown(a->net, fd[k], GNET_SHUT_WR), 0);
		K_EQ(r, grecv(a->net, fd[k], buf, 1, 0), 0);
		K_EQ(r, gclose(a->net, fd[k]), 0);
	}
	return 0;
}

GNET_DEV int both(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	return blockIdx.x ? ask(a, r, buf) : serve(a, r, buf);
}

TEST_KERNEL(both_kernel, both)

/* Where rings of the sockets of CONNS connections between two kernels were. Of `segments` each kind of memory has. */
static void run(const char *what, unsigned takes, unsigned segments, unsigned by_dmabuf,
		unsigned by_pointer, const char *option)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	fprintf(stderr, "%s\n", what);
	stub_install();
	stub_gpu(takes);
	o.segment_bytes = SEGMENT;
	o.slab_bytes = segments * SEGMENT;
	o.rdma_memory = option;
	g = test_open(&o);
	a = test_setup(g, TEST_TCP, 2, 8192);
	a.want->protocol = GNET_PROTO_RDMA;
	a.n = MESSAGES;
	TEST_LAUNCH(g, both_kernel, a, 2, 32);
	test_sync(g, a.report, 2);
	CHECK_EQ(stub_regs(STUB_DMABUF), by_dmabuf);
	CHECK_EQ(stub_regs(STUB_PEERMEM), by_pointer);
	test_close(g);
	test_teardown(&a);
	CHECK_EQ(stub_objects(), 0);
}

/* ---- too few segments ----------------------------------------------------------------------------------------------------------- */

/* Four: one connection within the block has them all. The next is refused, with a name for what is short, and works once they are free. */
GNET_DEV int limited(struct test_args *a, struct test_report *r, uint8_t *buf)
{
	int listener, client, server, fd, rc = 0;

	K_GET(r, listener, test_k_listen(a->net, a->want, a->where, 2));
	K_GET(r, client, test_k_connect(a->net, a->where));
	K_GET(r, server, gaccept(a->net, listener, NULL, NULL));
	K_EQ(r, test_k_connect(a->net, a->where), -ENOBUFS);
	K_EQ(r, gsend(a->net, client, buf, 200, 0), 200);
	K_EQ(r, grecv(a->net, server, buf, 200, GNET_MSG_WAITALL), 200);
	K_EQ(r, gclose(a->net, client), 0);
	K_EQ(r, gclose(a->net, server), 0);
	do {
		fd = test_k_connect(a->net, a->where);
		if (fd == -ENOBUFS)
			test_k_sleep(1000); /* the goodbyes are under way */
	} while (fd == -ENOBUFS && ++rc < 5000);
	K_EQ(r, fd >= 0, 1);
	K_GET(r, server, gaccept(a->net, listener, NULL, NULL));
	K_EQ(r, gclose(a->net, fd), 0);
	K_EQ(r, grecv(a->net, server, buf, 1, 0), 0);
	K_EQ(r, gclose(a->net, server), 0);
	K_EQ(r, gclose(a->net, listener), 0);
	return 0;
}

TEST_KERNEL(limited_kernel, limited)

static void too_few_segments(void)
{
	struct gpunet_options o = GPUNET_OPTIONS_INIT;
	struct test_args a;
	gpunet_t *g;

	stub_install();
	o.segment_bytes = SEGMENT;
	o.slab_bytes = 4 * SEGMENT;
	g = test_open(&o);
	/* Nobody has asked for RDMA yet, and nothing was done for it. */
	CHECK_EQ(stub_calls(), 0);
	a = test_setup(g, TEST_TCP, 1, 4096);
	a.want->protocol = GNET_PROTO_RDMA;
	TEST_LAUNCH(g, limited_kernel, a, 1, 32);
	test_sync(g, a.report, 1);
	test_close(g);
	test_teardown(&a);
	CHECK_EQ(stub_objects(), 0);
}

/* ---- the reasons -------------------------------------------------------------------------------------------------------------------- */

static void reason(unsigned takes, bool gpu, const struct channel_near *near,
		   enum rdc_memory wanted, const char *part)
{
	struct verbs_device *dev = (struct verbs_device *)(void *)near; /* the stub's one device */
	char why[512];

	stub_install();
	if (gpu)
		stub_gpu(takes);
	CHECK_EQ(rdc_memory_try(&verbs_stub, dev, near, why, sizeof(why)), wanted);
	fprintf(stderr, "%s\n", why);
	if (!strstr(why, part))
		FAIL("\"%s\" has no \"%s\"", why, part);
	CHECK_EQ(stub_objects(), 0);
}

static int keep(const struct gpunet_check *c, void *arg)
{
	snprintf((char *)arg, 600, "%s: %d: %s", c->name, (int)c->status, c->detail);
	return 0;
}

/* The doctor tries it as a network does. */
static void doctor(unsigned takes, const struct channel_near *near, const char *wanted)
{
	char said[600] = "";

	stub_install();
	stub_gpu(takes);
	CHECK_EQ(rdc_near_doctor(near, keep, said), 0);
	if (strncmp(said, wanted, strlen(wanted)))
		FAIL("\"%s\" does not begin with \"%s\"", said, wanted);
	CHECK_EQ(stub_objects(), 0);
}

static void reasons(void)
{
	struct platform_near n;
	struct platform_dev *dev;
	struct channel_near near = { .fd = -1, .why = "kernels run on the CPU, in its memory" };

	reason(0, true, &near, RDC_HOST, "pinned host memory: kernels run on the CPU");
	CHECK_EQ(platform_cpu.open(0, NULL, &dev), 0);
	CHECK_EQ(platform_cpu.near_alloc(dev, SEGMENT, &n), 0);
	near = (struct channel_near){
		.n = 1, .size = SEGMENT, .dev = n.dev, .bus = n.bus, .fd = n.fd
	};
	reason(0, false, &near, RDC_HOST, "the device is software");
	reason(STUB_DMABUF | STUB_PEERMEM, true, &near, RDC_DMABUF, "GPU memory, by dma-buf");
	reason(STUB_PEERMEM, true, &near, RDC_PEERMEM,
	       "GPU memory, by nvidia-peermem (no dma-buf: Operation not supported)");
	reason(0, true, &near, RDC_HOST,
	       "pinned host memory: GPU memory cannot be registered by dma-buf (Operation not supported), nor by its address (Bad address): modprobe nvidia-peermem");
	doctor(STUB_DMABUF, &near, "rdma rings on stub0: 0: GPU memory, by dma-buf");
	doctor(0, &near, "rdma rings on stub0: 2: pinned host memory: GPU memory cannot");
	near.fd = -1;
	snprintf(near.why, sizeof(near.why), "the driver is old");
	reason(STUB_DMABUF, true, &near, RDC_HOST, "by dma-buf (the driver is old)");
	platform_cpu.near_free(dev, &n);
	platform_cpu.close(dev);
}

/* A segment of the CPU's, and such memory that nobody has asked for. */
static void no_such_memory(void)
{
	struct platform_near n;
	struct platform_dev *dev;
	gpunet_t *g = NULL;
	struct gpunet_options o = GPUNET_OPTIONS_INIT;

	cpu_hooks.near = false;
	CHECK_EQ(platform_cpu.open(0, NULL, &dev), 0);
	CHECK_EQ(platform_cpu.near_alloc(dev, SEGMENT, &n), -EOPNOTSUPP);
	CHECK(strstr(n.why, "in its memory") != NULL);
	platform_cpu.close(dev);
	o.device = "cpu";
	o.rdma_memory = "gpu";
	CHECK_EQ(gpunet_open(&g, &o), -EINVAL);
	CHECK(strstr(gpunet_last_error(), "use auto or host") != NULL);
	run("no such memory", STUB_DMABUF, 4 * CONNS, 0, 0, NULL);
	cpu_hooks.near = true;
}

int main(void)
{
	test_begin(60);
	cpu_hooks.near = true;
	/* Two a socket, and a socket at each end of a connection. */
	run("by dma-buf", STUB_DMABUF | STUB_PEERMEM, 4 * CONNS, 4 * CONNS, 0, NULL);
	run("by its address", STUB_PEERMEM, 4 * CONNS, 0, 4 * CONNS, NULL);
	run("not at all", 0, 4 * CONNS, 0, 0, NULL);
	run("not wanted", STUB_DMABUF, 4 * CONNS, 0, 0, "host");
	run("not enough of it: the third connection's rings are the host's", STUB_DMABUF,
	    4 * CONNS - 4, 4 * CONNS - 4, 0, NULL);
	no_such_memory();
	too_few_segments();
	reasons();
	return 0;
}
