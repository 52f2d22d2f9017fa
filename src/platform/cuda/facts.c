/* SPDX-License-Identifier: BSD-3-Clause */
/* What the driver and sysfs say about a GPU. A fact that nobody knows is no error. */
#include "platform/cuda/device.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WARP 32

/* The device's attribute, or `otherwise` where the driver does not know it. */
static int attribute_or(const struct cuda_dev *d, cuda_attribute attr, int otherwise)
{
	int v = otherwise;

	return d->api->device_attribute(&v, attr, d->id) == CUDA_OK ? v : otherwise;
}

/* The first line of a small file of /sys or /proc; false if there is none. */
static bool first_line(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return buf[0] != '\0';
}

/* "0000:1b:00.0" */
static bool pci_address(const struct cuda_dev *d, char *buf, size_t size)
{
	int domain = attribute_or(d, CUDA_ATTR_PCI_DOMAIN, -1);
	int bus = attribute_or(d, CUDA_ATTR_PCI_BUS, -1);
	int device = attribute_or(d, CUDA_ATTR_PCI_DEVICE, -1);

	if (domain < 0 || bus < 0 || device < 0)
		return false;
	snprintf(buf, size, "%04x:%02x:%02x.0", domain & 0xffffu, bus & 0xffu, device & 0xffu);
	return true;
}

int cuda_numa_node(const struct cuda_dev *d)
{
	int node = attribute_or(d, CUDA_ATTR_HOST_NUMA_ID, -1);
	char pci[16], path[64], line[32];

	if (node >= 0)
		return node;
	if (!pci_address(d, pci, sizeof(pci)))
		return -1;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", pci);
	if (!first_line(path, line, sizeof(line)))
		return -1;
	node = atoi(line);
	return node >= 0 ? node : -1;
}

/* For blocks of one warp, the smallest there are. */
static unsigned resident_blocks(const struct cuda_dev *d)
{
	int sms = attribute_or(d, CUDA_ATTR_SM_COUNT, 0);
	int warps = attribute_or(d, CUDA_ATTR_SM_THREADS, 0) / WARP;
	int per_sm = attribute_or(d, CUDA_ATTR_SM_BLOCKS, warps);

	return sms > 0 && per_sm > 0 ? (unsigned)sms * (unsigned)per_sm : 0;
}

static int lazy_loading(const struct cuda_dev *d)
{
	cuda_loading_mode mode = CUDA_LOADING_EAGER;

	/* A driver without the call has no lazy loading. */
	if (!d->api->loading_mode || d->api->loading_mode(&mode) != CUDA_OK)
		return 0;
	return mode == CUDA_LOADING_LAZY;
}

static void describe(const struct cuda_dev *d, char *buf, size_t size)
{
	int version = 0;
	char driver[24], pci[16];

	if (!first_line("/sys/module/nvidia/version", driver, sizeof(driver)))
		snprintf(driver, sizeof(driver), "unknown");
	if (!pci_address(d, pci, sizeof(pci)))
		snprintf(pci, sizeof(pci), "unknown");
	d->api->driver_version(&version);
	snprintf(buf, size, "driver %s, CUDA %d.%d, sm_%d%d, %d SMs, PCI %s%s", driver,
		 version / 1000, version % 1000 / 10, attribute_or(d, CUDA_ATTR_CC_MAJOR, 0),
		 attribute_or(d, CUDA_ATTR_CC_MINOR, 0), attribute_or(d, CUDA_ATTR_SM_COUNT, 0),
		 pci, attribute_or(d, CUDA_ATTR_KERNEL_TIMEOUT, 0) ? ", display watchdog on" : "");
}

int cuda_info(struct platform_dev *dev, struct platform_info *out)
{
	const struct cuda_dev *d = cuda_of(dev);
	struct platform_info i = { .numa_node = d->numa_node };
	cuda_result r;

	r = d->api->device_name(i.name, (int)sizeof(i.name), d->id);
	if (r != CUDA_OK)
		return cuda_fail(d, r, "ask for its name");
	i.name[sizeof(i.name) - 1] = '\0';
	describe(d, i.detail, sizeof(i.detail));
	i.max_resident_blocks = resident_blocks(d);
	i.lazy_loading = lazy_loading(d);
	*out = i;
	return 0;
}
