/* SPDX-License-Identifier: BSD-3-Clause */
/* What the doctor says about RDMA on machines that are trees of files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunet/gpunet.h>

#include "channel/verbs/verbs.h"
#include "verbs_stub.h"

static char root[64];

static void put(const char *path, const char *text)
{
	char full[300], *p;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (p = full + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		assert_true(!mkdir(full, 0755) || errno == EEXIST);
		*p = '/';
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int make_root(void **state)
{
	snprintf(root, sizeof(root), "/tmp/gpn-doctor-XXXXXX");
	assert_non_null(mkdtemp(root));
	stub_install();
	return 0;
}

static int drop_root(void **state)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static char said[4000];

static int keep(const struct gpunet_check *c, void *arg)
{
	static const char *const names[] = { "ok", "missing", "limited", "not built" };
	size_t n = strlen(said);

	snprintf(said + n, sizeof(said) - n, "[%s: %s: %s -> %s]", c->name, names[c->status],
		 c->detail, c->remedy);
	return 0;
}

static void look(void)
{
	said[0] = 0;
	assert_int_equal(rdc_doctor(root, keep, NULL), 0);
}

static void says(const char *text)
{
	if (!strstr(said, text))
		fail_msg("\"%s\" is not in %s", text, said);
}

static void says_not(const char *text)
{
	if (strstr(said, text))
		fail_msg("\"%s\" is in %s", text, said);
}

static void modules(void **state)
{
	look();
	says("[rdma kernel modules: missing: ib_uverbs is not loaded -> modprobe ib_uverbs");
	says("[transport rdma: ok: stub");
	says_not("GPU");
	put("/sys/class/infiniband_verbs/abi_version", "6\n");
	look();
	says("rdma_ucm is not loaded");
	put("/sys/class/misc/rdma_cm/abi_version", "4\n");
	look();
	says("[rdma kernel modules: missing: loaded, but there is no RDMA device -> Soft-RoCE");
}

static void devices(void **state)
{
	put("/sys/class/infiniband_verbs/abi_version", "6\n");
	put("/sys/class/misc/rdma_cm/abi_version", "4\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n");
	look();
	says("[rdma kernel modules: ok");
	says("[rdma device mlx5_0: limited: port 1 1: DOWN, Ethernet, 0 RoCE v2 addresses -> the port is down");
	put("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/gids/0",
	    "fe80:0000:0000:0000:0000:00ff:fe00:0001\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/gids/1",
	    "fe80:0000:0000:0000:0000:00ff:fe00:0001\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1", "RoCE v2\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/gids/2",
	    "0000:0000:0000:0000:0000:0000:0000:0000\n");
	look();
	says("[rdma device mlx5_0: limited");
	says("give its interface an IP address");
	put("/sys/class/infiniband/mlx5_0/ports/1/gids/2",
	    "0000:0000:0000:0000:0000:ffff:0a00:0201\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/2", "RoCE v2\n");
	look();
	says("[rdma device mlx5_0: ok: port 1 4: ACTIVE, Ethernet, 1 RoCE v2 addresses");
	put("/sys/class/infiniband/ib1/ports/1/state", "4: ACTIVE\n");
	put("/sys/class/infiniband/ib1/ports/1/link_layer", "InfiniBand\n");
	look();
	says("[rdma device ib1: ok");
}

static void permissions(void **state)
{
	look();
	says_not("rdma permissions");
	put("/dev/infiniband/rdma_cm", "");
	look();
	says("[rdma permissions: missing"); /* no uverbs0 */
	put("/dev/infiniband/uverbs0", "");
	look();
	says("[rdma permissions: ok");
}

/* Not installed, not loaded and no symbols are told apart. */
static void peermem(void **state)
{
	put("/proc/driver/nvidia/version", "NVRM\n");
	put("/proc/sys/kernel/osrelease", "6.1.0-test\n");
	put("/proc/kallsyms", "0 T ib_register_client\n");
	look();
	says("[rdma to GPU memory: limited: rings are in pinned host memory -> nvidia-peermem is not installed");
	put("/lib/modules/6.1.0-test/updates/dkms/nvidia-peermem.ko.xz", "");
	look();
	says("this kernel has no ib_register_peer_memory_client");
	put("/proc/kallsyms",
	    "0 T ib_register_client\n0 T ib_register_peer_memory_client [ib_core]\n");
	look();
	says("installed and not loaded -> modprobe nvidia-peermem");
	put("/sys/module/nvidia_peermem/version", "550\n");
	look();
	says("[rdma to GPU memory: ok");
}

static void iommu(void **state)
{
	put("/proc/driver/nvidia/version", "NVRM\n");
	put("/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
	look();
	says("[iommu: ok: off");
	put("/sys/class/iommu/dmar0/x", "");
	put("/proc/cmdline", "quiet intel_iommu=on\n");
	look();
	says("[iommu: limited");
	put("/proc/cmdline", "quiet intel_iommu=on iommu=pt\n");
	look();
	says("[iommu: ok: on, passing DMA through");
}

static int stop_at_once(const struct gpunet_check *c, void *arg)
{
	++*(int *)arg;
	return -7;
}

static void a_callback_stops_it(void **state)
{
	int calls = 0;

	assert_int_equal(rdc_doctor(root, stop_at_once, &calls), -7);
	assert_int_equal(calls, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(modules, make_root, drop_root),
		cmocka_unit_test_setup_teardown(devices, make_root, drop_root),
		cmocka_unit_test_setup_teardown(permissions, make_root, drop_root),
		cmocka_unit_test_setup_teardown(peermem, make_root, drop_root),
		cmocka_unit_test_setup_teardown(iommu, make_root, drop_root),
		cmocka_unit_test_setup_teardown(a_callback_stops_it, make_root, drop_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
