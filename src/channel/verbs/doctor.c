/* SPDX-License-Identifier: BSD-3-Clause */
/* What RDMA needs of this machine, and what of it is there. Files are looked for below a root, so that a test can make its own. */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gpunet/gpunet.h>

#include "channel/verbs/rdc.h"
#include "channel/verbs/verbs.h"
#include "verbs/verbs.h"

struct doctor {
	const char *root; /* "" is the machine itself */
	int (*fn)(const struct gpunet_check *c, void *arg);
	void *arg;
	int rc;
	unsigned devices; /* that the kernel has */
};

static void tell(struct doctor *d, const char *name, enum gpunet_status status, const char *detail,
		 const char *remedy)
{
	struct gpunet_check c = { name, status, detail, remedy };

	if (!d->rc)
		d->rc = d->fn(&c, d->arg);
}

/* ---- files ------------------------------------------------------------------------------------------------------------------------ */

#define PATH 512

__attribute__((format(printf, 3, 4))) static void path_of(const struct doctor *d, char *out,
							  const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(out, PATH, "%s", d->root);

	va_start(ap, fmt);
	vsnprintf(out + n, (size_t)(PATH - n), fmt, ap);
	va_end(ap);
}

static bool there(const struct doctor *d, const char *path)
{
	char p[PATH];

	path_of(d, p, "%s", path);
	return !access(p, F_OK);
}

/* The file's first line; "" if there is none. */
static void first_line(const char *path, char *out, int size)
{
	FILE *f = fopen(path, "re");

	out[0] = 0;
	if (f && !fgets(out, size, f))
		out[0] = 0;
	if (f)
		fclose(f);
	out[strcspn(out, "\n")] = 0;
}

/* Calls fn for each entry of a folder; how many there are. */
static unsigned each(struct doctor *d, const char *folder,
		     void (*fn)(struct doctor *d, const char *name))
{
	char p[PATH];
	struct dirent *e;
	unsigned n = 0;
	DIR *dir;

	path_of(d, p, "%s", folder);
	dir = opendir(p);
	while (dir && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		n++;
		if (fn)
			fn(d, e->d_name);
	}
	if (dir)
		closedir(dir);
	return n;
}

/* ---- devices ----------------------------------------------------------------------------------------------------------------------- */

/* An address that other machines can reach: not all zero, and not link-local only. */
static bool routable(const char *gid)
{
	return strspn(gid, "0:") != strlen(gid) && strncmp(gid, "fe80", 4) != 0;
}

/* Entries of the GID table that RoCE v2 between machines can use. */
static unsigned gids(const struct doctor *d, const char *dev)
{
	char p[PATH], gid[64], type[32];
	unsigned i, n = 0;

	for (i = 0; i < 256; i++) {
		path_of(d, p, "/sys/class/infiniband/%.64s/ports/1/gids/%u", dev, i);
		if (access(p, F_OK))
			break;
		first_line(p, gid, sizeof(gid));
		path_of(d, p, "/sys/class/infiniband/%.64s/ports/1/gid_attrs/types/%u", dev, i);
		first_line(p, type, sizeof(type));
		n += routable(gid) && !strcmp(type, "RoCE v2");
	}
	return n;
}

static void one_device(struct doctor *d, const char *dev)
{
	char p[PATH], state[32], layer[32], name[96], detail[160];
	bool active, ethernet;
	unsigned n;

	path_of(d, p, "/sys/class/infiniband/%.64s/ports/1/state", dev);
	first_line(p, state, sizeof(state));
	path_of(d, p, "/sys/class/infiniband/%.64s/ports/1/link_layer", dev);
	first_line(p, layer, sizeof(layer));
	active = strstr(state, "ACTIVE") != NULL;
	ethernet = !strcmp(layer, "Ethernet");
	n = gids(d, dev);
	snprintf(name, sizeof(name), "rdma device %.64s", dev);
	snprintf(detail, sizeof(detail), "port 1 %s, %s, %u RoCE v2 addresses",
		 *state ? state : "unknown", *layer ? layer : "unknown link layer", n);
	if (!active)
		tell(d, name, GPUNET_LIMITED, detail,
		     "the port is down: set its interface up, look at the cable");
	else if (ethernet && !n)
		tell(d, name, GPUNET_LIMITED, detail,
		     "no address that other machines reach: give its interface an IP address");
	else
		tell(d, name, GPUNET_OK, detail, "");
}

static void check_devices(struct doctor *d)
{
	d->devices = each(d, "/sys/class/infiniband", one_device);
	if (!there(d, "/sys/class/infiniband_verbs/abi_version"))
		tell(d, "rdma kernel modules", GPUNET_MISSING, "ib_uverbs is not loaded",
		     "modprobe ib_uverbs rdma_ucm; without RDMA hardware: modprobe rdma_rxe, rdma link add rxe0 type rxe netdev eth0");
	else if (!there(d, "/sys/class/misc/rdma_cm"))
		tell(d, "rdma kernel modules", GPUNET_MISSING, "rdma_ucm is not loaded",
		     "modprobe rdma_ucm");
	else if (!d->devices)
		tell(d, "rdma kernel modules", GPUNET_MISSING,
		     "loaded, but there is no RDMA device",
		     "Soft-RoCE: modprobe rdma_rxe, rdma link add rxe0 type rxe netdev eth0");
	else
		tell(d, "rdma kernel modules", GPUNET_OK, "ib_uverbs and rdma_ucm are loaded", "");
}

static bool may_use(const struct doctor *d, const char *path)
{
	char p[PATH];

	path_of(d, p, "%s", path);
	return !access(p, R_OK | W_OK);
}

static void check_permissions(struct doctor *d)
{
	if (!there(d, "/dev/infiniband"))
		return; /* the modules make it */
	if (may_use(d, "/dev/infiniband/rdma_cm") && may_use(d, "/dev/infiniband/uverbs0"))
		tell(d, "rdma permissions", GPUNET_OK, "/dev/infiniband can be used", "");
	else
		tell(d, "rdma permissions", GPUNET_MISSING,
		     "this user may not open /dev/infiniband/rdma_cm and uverbs0",
		     "udev's rules of rdma-core give them mode 0666; or join the group that owns them");
}

/* ---- GPU memory --------------------------------------------------------------------------------------------------------------------- */

static bool module_file(struct doctor *d)
{
	static const char *const places[] = { "updates/dkms", "updates", "extra",
					      "kernel/drivers/video", "kernel/nvidia" };
	static const char *const names[] = { "nvidia-peermem.ko", "nvidia-peermem.ko.xz",
					     "nvidia-peermem.ko.zst" };
	char p[PATH], release[128];
	unsigned i, k;

	path_of(d, p, "/proc/sys/kernel/osrelease");
	first_line(p, release, sizeof(release));
	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		for (k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
			path_of(d, p, "/lib/modules/%s/%s/%s", release, places[i], names[k]);
			if (!access(p, F_OK))
				return true;
		}
	}
	return false;
}

/* Does the running kernel export what nvidia-peermem registers with? */
static bool has_peer_symbols(const struct doctor *d)
{
	char p[PATH], line[256];
	bool found = false;
	FILE *f;

	path_of(d, p, "/proc/kallsyms");
	f = fopen(p, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "ib_register_peer_memory_client") != NULL;
	if (f)
		fclose(f);
	return found;
}

static void check_gpu_memory(struct doctor *d)
{
	static const char name[] = "rdma to GPU memory";
	const char *host = "rings are in pinned host memory";

	if (!there(d, "/proc/driver/nvidia/version"))
		return; /* no NVIDIA driver, no GPU memory */
	if (there(d, "/sys/module/nvidia_peermem/version"))
		tell(d, name, GPUNET_OK, "nvidia_peermem is loaded", "");
	else if (module_file(d) && !has_peer_symbols(d))
		tell(d, name, GPUNET_LIMITED,
		     "nvidia-peermem is installed, but this kernel has no ib_register_peer_memory_client: it cannot be loaded",
		     "nothing to do where the driver exports dma-bufs; else MLNX_OFED's kernel modules");
	else if (module_file(d))
		tell(d, name, GPUNET_LIMITED, "nvidia-peermem is installed and not loaded",
		     "modprobe nvidia-peermem");
	else
		tell(d, name, GPUNET_LIMITED, host,
		     "nvidia-peermem is not installed; it comes with the driver's kernel modules");
}

/* Where devices talk to each other through the IOMMU, GPU memory is slow to reach or out of reach. */
static void check_iommu(struct doctor *d)
{
	char p[PATH], line[1024];

	if (!there(d, "/proc/driver/nvidia/version") || !d->devices)
		return;
	path_of(d, p, "/proc/cmdline");
	first_line(p, line, sizeof(line));
	if (!each(d, "/sys/class/iommu", NULL))
		tell(d, "iommu", GPUNET_OK, "off", "");
	else if (strstr(line, "iommu=pt") || strstr(line, "iommu.passthrough=1"))
		tell(d, "iommu", GPUNET_OK, "on, passing DMA through", "");
	else
		tell(d, "iommu", GPUNET_LIMITED,
		     "on: a NIC reaches GPU memory slowly, or not at all",
		     "boot with iommu=pt, and turn ACS off on the switch between GPU and NIC");
}

/* ---- the transport ------------------------------------------------------------------------------------------------------------------- */

static void check_provider(struct doctor *d)
{
	struct verbs_use use;
	int rc = verbs_open(&use, NULL);

	tell(d, "transport rdma", rc ? GPUNET_MISSING : GPUNET_OK, use.why,
	     rc ? "see the lines about rdma" : "");
	verbs_close(&use);
}

struct near_doctor {
	struct doctor d;
	struct verbs_use use;
	const struct channel_near *near;
};

static int one_rings(const struct verbs_device_info *info, void *arg)
{
	struct near_doctor *n = arg;
	struct verbs_device *dev;
	char name[96], why[512];
	enum rdc_memory how;

	if ((info->flags & VERBS_DEVICE_SOFTWARE) ||
	    n->use.ops->device_open(n->use.v, info->name, &dev))
		return 0;
	how = rdc_memory_try(n->use.ops, dev, n->near, why, sizeof(why));
	snprintf(name, sizeof(name), "rdma rings on %s", info->name);
	tell(&n->d, name, how == RDC_HOST ? GPUNET_LIMITED : GPUNET_OK, why,
	     how == RDC_HOST ? "see the line about rdma to GPU memory" : "");
	return n->d.rc;
}

/* By trial, as a network does it. Without a provider other lines say what is missing. */
int rdc_near_doctor(const struct channel_near *near,
		    int (*fn)(const struct gpunet_check *c, void *arg), void *arg)
{
	struct near_doctor n = { .d = { "", fn, arg, 0, 0 }, .near = near };

	if (!verbs_open(&n.use, NULL))
		(void)n.use.ops->devices(n.use.v, one_rings, &n);
	verbs_close(&n.use);
	return n.d.rc;
}

int rdc_doctor(const char *root, int (*fn)(const struct gpunet_check *c, void *arg), void *arg)
{
	struct doctor d = { root, fn, arg, 0, 0 };

	check_devices(&d);
	check_permissions(&d);
	check_gpu_memory(&d);
	check_iommu(&d);
	check_provider(&d);
	return d.rc;
}
