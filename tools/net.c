/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening and closing the network that a subcommand's kernels use. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"

#define TICK_MS 500  /* how often a wait looks whether a signal came without ending it */
#define STOP_MS 800  /* after a signal a kernel has this long */
#define CLOSE_MS 500 /* what closed sockets still have to send has this long */
#define CPU_BLOCKS_DEFAULT 64

bool tool_device_valid(const char *text)
{
	unsigned ordinal;

	if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0 || strcmp(text, "cuda") == 0)
		return true;
	if (strncmp(text, "cuda:", 5) == 0)
		return tool_number("--device cuda:", text + 5, 0, 1023, &ordinal);
	tool_usage("--device %s: a device is auto, cpu, cuda or cuda:N", text);
	return false;
}

#ifndef GPUNET_WITH_CUDA
/* Kernels are not there for a GPU: says so, rather than to run somewhere else than was asked for. */
static int choose(const char **device)
{
	if (strncmp(*device, "cuda", 4) == 0)
		return tool_fail(
			"device %s: this gpunet was built without CUDA and has no kernels for a "
			"GPU; build it where nvcc is: cmake --preset cuda",
			*device);
	if (strcmp(*device, "auto") == 0) {
		if (access("/dev/nvidiactl", F_OK) == 0)
			tool_note(
				"note: this gpunet was built without CUDA, so it uses the CPU device "
				"and not the GPU; build it where nvcc is: cmake --preset cuda");
		*device = "cpu";
	}
	return TOOL_DONE;
}

static const struct tool_kernels *kernels_for(const char *kind)
{
	return strcmp(kind, tool_kernels_cpu.kind) == 0 ? &tool_kernels_cpu : NULL;
}
#else
static int choose(const char **device)
{
	(void)device; /* the library finds out whether it is there */
	return TOOL_DONE;
}

static const struct tool_kernels *kernels_for(const char *kind)
{
	if (strcmp(kind, tool_kernels_cuda.kind) == 0)
		return &tool_kernels_cuda;
	return strcmp(kind, tool_kernels_cpu.kind) == 0 ? &tool_kernels_cpu : NULL;
}
#endif

static int load_kernels(struct tool_net *net, const char *device)
{
	int rc;

	net->kernels = kernels_for(gpunet_device_kind(net->g));
	if (!net->kernels)
		return -EOPNOTSUPP;
	/* The CUDA runtime's calls mean the GPU that the network is on. */
	rc = net->kernels->select_device(strncmp(device, "cuda:", 5) == 0 ? atoi(device + 5) : 0);
	return rc ? rc : net->kernels->prepare();
}

int tool_net_open(struct tool_net *net, const char *device, unsigned blocks)
{
	struct gpunet_options opt = GPUNET_OPTIONS_INIT;
	int rc;

	if (!device)
		device = getenv("GPUNET_DEVICE");
	if (!device || !*device)
		device = "auto";
	rc = choose(&device);
	if (rc != TOOL_DONE)
		return rc;
	opt.device = device;
	/* Blocks that serve never end, so one that is not resident would never start. */
	if (blocks > CPU_BLOCKS_DEFAULT)
		opt.cpu_blocks = blocks;
	rc = gpunet_open(&net->g, &opt);
	if (rc < 0)
		/* The library has said why. */
		return tool_fail("cannot open a network on device %s%s%s", device,
				 *gpunet_last_error() ? "" : ": ",
				 *gpunet_last_error() ? "" : strerror(-rc));
	rc = load_kernels(net, device);
	if (rc == 0)
		rc = stop_arm(net->g);
	if (rc < 0) {
		tool_fail("cannot load the kernels for device %s: %s", device, strerror(-rc));
		gpunet_close(net->g, 0);
		return TOOL_FAILED;
	}
	return TOOL_DONE;
}

int tool_net_wait(struct tool_net *net)
{
	int rc, late = 0;

	/* A signal aborts the network, and that ends the kernels: the wait ends at once. */
	do {
		rc = gpunet_sync(net->g, stop_asked() ? STOP_MS : TICK_MS);
		late += stop_asked();
	} while (rc == -EINTR || (rc == -ETIMEDOUT && late < 2));
	return rc;
}

int tool_net_close(struct tool_net *net, unsigned drain_ms)
{
	int rc, drained = 0;

	if (drain_ms && !stop_asked())
		drained = gpunet_drain(net->g, drain_ms);
	stop_disarm();
	rc = gpunet_close(net->g, CLOSE_MS);
	if (rc < 0)
		return tool_fail("cannot close the network: %s",
				 rc == -EBUSY ? "a kernel is still running" : strerror(-rc));
	if (drained == -ETIMEDOUT && !stop_asked())
		return tool_fail("the peer has not taken everything within %u s; the rest is lost",
				 drain_ms / 1000);
	return TOOL_DONE;
}
