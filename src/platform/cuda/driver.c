/* SPDX-License-Identifier: BSD-3-Clause */
#include "platform/cuda/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYMBOL(name, slot)                                   \
	{                                                    \
		name, offsetof(struct cuda_api, slot), false \
	}

const struct cuda_symbol cuda_symbols[] = {
	SYMBOL("cuInit", init),
	SYMBOL("cuDriverGetVersion", driver_version),
	SYMBOL("cuGetErrorName", error_name),
	SYMBOL("cuDeviceGetCount", device_count),
	SYMBOL("cuDeviceGet", device_get),
	SYMBOL("cuDeviceGetName", device_name),
	SYMBOL("cuDeviceGetAttribute", device_attribute),
	SYMBOL("cuDevicePrimaryCtxRetain", primary_retain),
	SYMBOL("cuDevicePrimaryCtxRelease_v2", primary_release),
	SYMBOL("cuCtxGetCurrent", ctx_current),
	SYMBOL("cuCtxGetDevice", ctx_device),
	SYMBOL("cuCtxPushCurrent_v2", ctx_push),
	SYMBOL("cuCtxPopCurrent_v2", ctx_pop),
	SYMBOL("cuMemHostRegister_v2", host_register),
	SYMBOL("cuMemHostUnregister", host_unregister),
	SYMBOL("cuMemHostGetDevicePointer_v2", host_device_pointer),
	SYMBOL("cuMemAlloc_v2", mem_alloc),
	SYMBOL("cuMemFree_v2", mem_free),
	SYMBOL("cuMemsetD8Async", set_async),
	SYMBOL("cuMemcpyHtoDAsync_v2", write_async),
	SYMBOL("cuMemcpyDtoHAsync_v2", read_async),
	SYMBOL("cuStreamCreateWithPriority", stream_create),
	SYMBOL("cuStreamDestroy_v2", stream_destroy),
	SYMBOL("cuStreamQuery", stream_query),
	{ "cuModuleGetLoadingMode", offsetof(struct cuda_api, loading_mode), true },
	{ "cuPointerGetAttribute", offsetof(struct cuda_api, pointer_attribute), true },
	{ "cuStreamWriteValue32_v2", offsetof(struct cuda_api, write_value32), true },
	{ "cuStreamWriteValue64_v2", offsetof(struct cuda_api, write_value64), true },
	{ "cuStreamBatchMemOp_v2", offsetof(struct cuda_api, batch_mem_op), true },
	{ "cuMemcpyBatchAsync_v2", offsetof(struct cuda_api, copy_batch), true },
	{ "cuPointerSetAttribute", offsetof(struct cuda_api, pointer_set), true },
	{ "cuMemGetHandleForAddressRange", offsetof(struct cuda_api, range_handle), true },
	{ "cuFlushGPUDirectRDMAWrites", offsetof(struct cuda_api, flush_writes), true },
};
const size_t cuda_symbol_count = sizeof(cuda_symbols) / sizeof(cuda_symbols[0]);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_api api;
static void *library;
static bool ready; /* under lock: api is filled and cuInit has succeeded */

const char *cuda_error_name(const struct cuda_api *a, cuda_result r, char *buf, size_t size)
{
	const char *name = NULL;

	/*
	 * A driver that fails may leave the name unset: NULL is the answer for codes that it does
	 * not know.
	 */
	if (a->error_name && a->error_name(r, &name) == CUDA_OK && name)
		return name;
	snprintf(buf, size, "CUDA error %d", (int)r);
	return buf;
}

int cuda_errno(cuda_result r)
{
	switch ((int)r) {
	case CUDA_OK:
		return 0;
	case CUDA_INVALID_VALUE:
	case CUDA_INVALID_HANDLE:
		return -EINVAL;
	case CUDA_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_NOT_READY:
		return -EAGAIN;
	case CUDA_NO_DEVICE:
	case CUDA_INVALID_DEVICE:
	case CUDA_STUB_LIBRARY:
	case CUDA_NOT_INITIALIZED:
	case CUDA_DEINITIALIZED:
	case CUDA_INVALID_CONTEXT:
	case CUDA_CONTEXT_DESTROYED:
		return -ENODEV;
	case CUDA_DEVICE_UNAVAILABLE:
	case CUDA_CONTEXT_IN_USE:
		return -EBUSY;
	case CUDA_NOT_PERMITTED:
		return -EPERM;
	case CUDA_ALREADY_REGISTERED:
		return -EEXIST;
	case CUDA_NOT_SUPPORTED:
	case CUDA_NEEDS_NEWER_DRIVER:
		return -EOPNOTSUPP;
	case CUDA_ILLEGAL_ADDRESS:
	case CUDA_MISALIGNED_ADDRESS:
		return -EFAULT;
	default:
		return -EIO;
	}
}

const char *cuda_remedy(cuda_result r)
{
	switch ((int)r) {
	case CUDA_NOT_INITIALIZED:
		return "; CUDA does not work in a child after fork(): use it in one process, or exec first";
	case CUDA_STUB_LIBRARY:
		return ": the libcuda that was found is the CUDA toolkit's stub for linking; take the toolkit's stubs folder "
		       "out of LD_LIBRARY_PATH and install the NVIDIA driver";
	case CUDA_DEVICE_UNAVAILABLE:
	case CUDA_CONTEXT_IN_USE:
		return "; another process holds the GPU in exclusive mode: see nvidia-smi -q -d COMPUTE";
	case CUDA_INVALID_CONTEXT:
	case CUDA_CONTEXT_DESTROYED:
		return "; the CUDA context was destroyed (cudaDeviceReset?) while the network used it";
	case CUDA_NEEDS_NEWER_DRIVER:
		return "; install a newer NVIDIA driver";
	case CUDA_SYSTEM_NOT_READY:
		return "; start nvidia-fabricmanager (NVSwitch machines), then look at dmesg";
	case CUDA_DRIVER_MISMATCH:
		return ": the kernel module and libcuda are of different versions; reboot, or reload the nvidia module";
	case CUDA_COMPAT_NOT_SUPPORTED:
		return ": CUDA's forward-compatibility libcuda does not take this GPU; remove its folder from "
		       "LD_LIBRARY_PATH";
	case CUDA_ILLEGAL_ADDRESS:
	case CUDA_MISALIGNED_ADDRESS:
		return "; a kernel of this process made a bad access: compute-sanitizer names it";
	case CUDA_ECC_UNCORRECTABLE:
		return "; the GPU's memory is at fault: see dmesg and nvidia-smi -q -d ECC";
	default:
		return "";
	}
}

/* What hides or lacks the GPUs, once the driver has said that there are none. */
static void say_no_device(char *why, size_t n)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	if (visible && !*visible)
		snprintf(why, n,
			 "CUDA_VISIBLE_DEVICES is set and empty, which hides every GPU; unset it");
	else if (visible)
		snprintf(
			why, n,
			"no NVIDIA GPU among CUDA_VISIBLE_DEVICES=%.64s; unset it or name one that nvidia-smi -L "
			"lists",
			visible);
	else if (access("/proc/driver/nvidia/version", F_OK))
		snprintf(
			why, n,
			"libcuda is here but the nvidia kernel module is not loaded; modprobe nvidia");
	else if (access("/dev/nvidiactl", R_OK | W_OK))
		snprintf(
			why, n,
			"the NVIDIA driver is loaded but /dev/nvidiactl cannot be opened: %s; in a container, pass "
			"the GPU in (--gpus all)",
			strerror(errno));
	else
		snprintf(why, n, "the NVIDIA driver finds no GPU; look at nvidia-smi and dmesg");
}

static void say_init(const struct cuda_api *a, cuda_result r, char *why, size_t n)
{
	char buf[32];

	if (r == CUDA_NO_DEVICE)
		say_no_device(why, n);
	else
		snprintf(why, n, "the NVIDIA driver does not start: %s%s",
			 cuda_error_name(a, r, buf, sizeof(buf)), cuda_remedy(r));
}

/* Fills the table. The name of a required symbol that is missing, or NULL. */
static const char *resolve(void *lib, struct cuda_api *a)
{
	for (size_t i = 0; i < cuda_symbol_count; i++) {
		void *p = dlsym(lib, cuda_symbols[i].name);

		if (!p && !cuda_symbols[i].optional)
			return cuda_symbols[i].name;
		/*
		 * ISO C has no conversion between object and function pointers; POSIX says that the
		 * bits are the same.
		 */
		memcpy((char *)a + cuda_symbols[i].slot, &p, sizeof(p));
	}
	return NULL;
}

/*
 * A CUDA runtime of a later major version than the driver runs no kernel. Only a runtime that the
 * process exports can be asked (the shared one, or a static one in a program linked with
 * -rdynamic); asking initialises nothing.
 */
static bool runtime_too_new(int driver, char *why, size_t n)
{
	int (*runtime_version)(int *) = NULL;
	void *p = dlsym(RTLD_DEFAULT, "cudaRuntimeGetVersion");
	int runtime = 0;

	memcpy(&runtime_version, &p, sizeof(p));
	if (!p || runtime_version(&runtime) || runtime / 1000 <= driver / 1000)
		return false;
	snprintf(
		why, n,
		"the NVIDIA driver is too old: it offers CUDA %d.%d and this program was built with CUDA %d.%d; "
		"install a newer driver or its cuda-compat package",
		driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
	return true;
}

/* Checks that need no cuInit, so that the library can be unloaded when one of them fails. */
static bool usable(void *lib, struct cuda_api *a, char *why, size_t n)
{
	const char *missing = resolve(lib, a);
	int version = 0;
	cuda_result r;

	if (missing) {
		snprintf(
			why, n,
			"the NVIDIA driver lacks %s: it is older than CUDA %d.%d; install a newer driver",
			missing, CUDA_MIN_DRIVER / 1000, CUDA_MIN_DRIVER % 1000 / 10);
		return false;
	}
	r = a->driver_version(&version);
	if (r != CUDA_OK) {
		say_init(a, r, why, n);
		return false;
	}
	if (version < CUDA_MIN_DRIVER) {
		snprintf(
			why, n,
			"the NVIDIA driver offers CUDA %d.%d, at least %d.%d is needed; install a newer driver",
			version / 1000, version % 1000 / 10, CUDA_MIN_DRIVER / 1000,
			CUDA_MIN_DRIVER % 1000 / 10);
		return false;
	}
	return !runtime_too_new(version, why, n);
}

static bool load(char *why, size_t n)
{
	const char *file = secure_getenv("GPUNET_LIBCUDA");
	cuda_result r;

	if (!library) {
		struct cuda_api a = { 0 };
		void *lib = dlopen(file && *file ? file : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

		if (!lib) {
			snprintf(
				why, n,
				"no NVIDIA driver: %s; install it (Debian: apt install libcuda1; in a container, pass "
				"the GPU in with --gpus all)",
				dlerror());
			return false;
		}
		if (!usable(lib, &a, why, n)) {
			dlclose(lib);
			return false;
		}
		library = lib;
		api = a;
	}
	r = api.init(0);
	if (r != CUDA_OK) {
		say_init(&api, r, why, n);
		return false;
	}
	return true;
}

const struct cuda_api *cuda_driver(char *why, size_t why_size)
{
	const struct cuda_api *a = NULL;

	pthread_mutex_lock(&lock);
	if (!ready)
		ready = load(why, why_size);
	if (ready)
		a = &api;
	pthread_mutex_unlock(&lock);
	return a;
}

void cuda_driver_forget(void)
{
	pthread_mutex_lock(&lock);
	if (library)
		dlclose(library);
	library = NULL;
	ready = false;
	memset(&api, 0, sizeof(api));
	pthread_mutex_unlock(&lock);
}
