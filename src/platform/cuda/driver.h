/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NVIDIA driver's API, as far as this library uses it, without NVIDIA's headers: the library is
 * built on machines that have none, and one binary serves machines with and without the driver.
 *
 * The ABI: handles are pointers, a device is an int, device pointers are 64 bits wide, results are
 * a C enum (an int). Symbols carry the version suffix that today's <cuda.h> maps the plain names
 * to; the suffixed symbols never change their prototype. tests/unit/cuda_abi.c compares every name,
 * prototype and number below with <cuda.h> where it is installed, for which it includes <cuda.h>
 * first and so gets that header's types here.
 */
#ifndef GPUNET_CUDA_DRIVER_H
#define GPUNET_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef CUDA_VERSION
typedef CUresult cuda_result;
typedef CUdevice cuda_device;
typedef CUdeviceptr cuda_devptr;
typedef CUcontext cuda_context;
typedef CUstream cuda_stream;
typedef CUdevice_attribute cuda_attribute;
typedef CUmoduleLoadingMode cuda_loading_mode;
typedef CUpointer_attribute cuda_pointer_attribute;
typedef CUmemRangeHandleType cuda_range_type;
typedef CUflushGPUDirectRDMAWritesTarget cuda_flush_target;
typedef CUflushGPUDirectRDMAWritesScope cuda_flush_scope;
#else
typedef int cuda_result;
typedef int cuda_device;
typedef unsigned long long cuda_devptr;
typedef struct CUctx_st *cuda_context;
typedef struct CUstream_st *cuda_stream;
typedef int cuda_attribute;
typedef int cuda_loading_mode;
typedef int cuda_pointer_attribute;
typedef int cuda_range_type;
typedef int cuda_flush_target;
typedef int cuda_flush_scope;
#endif

enum {
	CUDA_OK = 0,
	CUDA_INVALID_VALUE = 1,
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_NOT_INITIALIZED = 3, /* also after a fork */
	CUDA_DEINITIALIZED = 4,   /* the process is ending */
	CUDA_STUB_LIBRARY = 34,
	CUDA_NEEDS_NEWER_DRIVER = 36,
	CUDA_DEVICE_UNAVAILABLE = 46,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_DEVICE = 101,
	CUDA_INVALID_CONTEXT = 201,
	CUDA_ECC_UNCORRECTABLE = 214,
	CUDA_CONTEXT_IN_USE = 216,
	CUDA_OPERATING_SYSTEM = 304,
	CUDA_INVALID_HANDLE = 400,
	CUDA_NOT_FOUND = 500,
	CUDA_NOT_READY = 600,
	CUDA_ILLEGAL_ADDRESS = 700,
	CUDA_CONTEXT_DESTROYED = 709,
	CUDA_ALREADY_REGISTERED = 712,
	CUDA_NOT_REGISTERED = 713,
	CUDA_MISALIGNED_ADDRESS = 716,
	CUDA_NOT_PERMITTED = 800,
	CUDA_NOT_SUPPORTED = 801,
	CUDA_SYSTEM_NOT_READY = 802,
	CUDA_DRIVER_MISMATCH = 803,
	CUDA_COMPAT_NOT_SUPPORTED = 804,
	CUDA_UNKNOWN = 999,
};

enum {
	CUDA_ATTR_SM_COUNT = 16,
	CUDA_ATTR_KERNEL_TIMEOUT = 17,
	CUDA_ATTR_PCI_BUS = 33,
	CUDA_ATTR_PCI_DEVICE = 34,
	CUDA_ATTR_SM_THREADS = 39,
	CUDA_ATTR_PCI_DOMAIN = 50,
	CUDA_ATTR_CC_MAJOR = 75,
	CUDA_ATTR_CC_MINOR = 76,
	CUDA_ATTR_SM_BLOCKS = 106,     /* since 11.0 */
	CUDA_ATTR_FLUSH_OPTIONS = 117, /* these two since 11.3 */
	CUDA_ATTR_WRITES_ORDERING = 118,
	CUDA_ATTR_DMA_BUF = 124,      /* since 11.7 */
	CUDA_ATTR_HOST_NUMA_ID = 134, /* since 12.2; older drivers answer CUDA_INVALID_VALUE */
};

enum {
	CUDA_REGISTER_PORTABLE = 1,
	CUDA_REGISTER_DEVICEMAP = 2,
	CUDA_STREAM_NON_BLOCKING = 1,
	CUDA_POINTER_SYNC_MEMOPS = 6,
	CUDA_RANGE_DMA_BUF_FD = 1,
	CUDA_FLUSH_OPTION_HOST = 1,
	CUDA_FLUSH_TARGET_CURRENT = 0,
	CUDA_FLUSH_TO_OWNER = 100,
	CUDA_ORDERING_OWNER = 100,
	CUDA_LOADING_EAGER = 1,
	CUDA_LOADING_LAZY = 2,
	CUDA_MEMORY_DEVICE = 2,
	CUDA_POINTER_MEMORY_TYPE = 2,
	CUDA_POINTER_DEVICE_ORDINAL = 9,
	CUDA_POINTER_RANGE_START = 11, /* since 11.0 */
	CUDA_POINTER_RANGE_SIZE = 12,
	CUDA_POINTER_MAPPING_SIZE = 18, /* since 11.4 */
	CUDA_POINTER_MAPPING_BASE = 19,
	CUDA_MEM_OP_WRITE_32 = 2,
	CUDA_MEM_OP_WRITE_64 = 5,
	CUDA_COPY_IN_STREAM_ORDER = 1,
	CUDA_COPY_BESIDE_KERNELS = 1,
};

/* One of several words that one call writes: CUstreamBatchMemOpParams, of which this is the part for writes. */
union cuda_word {
	struct {
		int operation;
		cuda_devptr address;
		uint64_t value; /* 32 bits: in its low half, as on every CPU with such a GPU */
		unsigned flags;
		cuda_devptr alias; /* the driver's */
	} write;
	uint64_t pad[6];
};
#ifdef CUDA_VERSION
typedef CUstreamBatchMemOpParams cuda_mem_op;
#else
typedef union cuda_word cuda_mem_op;
#endif

/* How copies of one call are done: CUmemcpyAttributes. */
struct cuda_copy_how {
	int order; /* of reading the source */
	struct {
		int type, id;
	} src, dst; /* for managed memory only */
	unsigned flags;
};
#if defined(CUDA_VERSION) && CUDA_VERSION >= 13000
typedef CUmemcpyAttributes cuda_copy_attributes;
#else
typedef struct cuda_copy_how cuda_copy_attributes;
#endif

/* The oldest driver taken: the one with every required symbol of the table. */
#define CUDA_MIN_DRIVER 11000

struct cuda_api {
	cuda_result (*init)(unsigned flags);
	cuda_result (*driver_version)(int *version);
	cuda_result (*error_name)(cuda_result error, const char **name);
	cuda_result (*device_count)(int *count);
	cuda_result (*device_get)(cuda_device *dev, int ordinal);
	cuda_result (*device_name)(char *name, int size, cuda_device dev);
	cuda_result (*device_attribute)(int *value, cuda_attribute attr, cuda_device dev);
	cuda_result (*primary_retain)(cuda_context *ctx, cuda_device dev);
	cuda_result (*primary_release)(cuda_device dev);
	cuda_result (*ctx_current)(cuda_context *ctx);
	cuda_result (*ctx_device)(cuda_device *dev);
	cuda_result (*ctx_push)(cuda_context ctx);
	cuda_result (*ctx_pop)(cuda_context *ctx);
	cuda_result (*host_register)(void *p, size_t size, unsigned flags);
	cuda_result (*host_unregister)(void *p);
	cuda_result (*host_device_pointer)(cuda_devptr *dev, void *p, unsigned flags);
	cuda_result (*mem_alloc)(cuda_devptr *dev, size_t size);
	cuda_result (*mem_free)(cuda_devptr dev);
	cuda_result (*set_async)(cuda_devptr dev, unsigned char byte, size_t n, cuda_stream s);
	cuda_result (*write_async)(cuda_devptr dst, const void *src, size_t n, cuda_stream s);
	cuda_result (*read_async)(void *dst, cuda_devptr src, size_t n, cuda_stream s);
	cuda_result (*stream_create)(cuda_stream *s, unsigned flags, int priority);
	cuda_result (*stream_destroy)(cuda_stream s);
	cuda_result (*stream_query)(cuda_stream s);
	cuda_result (*loading_mode)(cuda_loading_mode *mode); /* NULL before 11.7 */
	/* Only for copies beside kernels (copier.c); NULL where the driver has none. */
	cuda_result (*pointer_attribute)(void *value, cuda_pointer_attribute attr, cuda_devptr p);
	cuda_result (*write_value32)(cuda_stream s, cuda_devptr dst, uint32_t v, unsigned flags);
	cuda_result (*write_value64)(cuda_stream s, cuda_devptr dst, uint64_t v, unsigned flags);
	cuda_result (*batch_mem_op)(cuda_stream s, unsigned n, cuda_mem_op *ops,
				    unsigned flags); /* NULL before 11.7 */
	cuda_result (*copy_batch)(cuda_devptr *dst, cuda_devptr *src, size_t *size, size_t n,
				  cuda_copy_attributes *how, size_t *first, size_t hows,
				  cuda_stream s); /* NULL before 13.0 */
	cuda_result (*pointer_set)(const void *value, cuda_pointer_attribute attr, cuda_devptr p);
	cuda_result (*range_handle)(void *handle, cuda_devptr p, size_t size, cuda_range_type type,
				    unsigned long long flags); /* NULL before 11.7 */
	cuda_result (*flush_writes)(cuda_flush_target target,
				    cuda_flush_scope scope); /* NULL before 11.3 */
};

/* Where each slot comes from; the test of the ABI walks it too. */
struct cuda_symbol {
	const char *name;
	size_t slot; /* offset in struct cuda_api */
	bool optional;
};
extern const struct cuda_symbol cuda_symbols[];
extern const size_t cuda_symbol_count;

/*
 * The driver, loaded and initialised once a process; NULL when there is none that works, with the
 * cause and the remedy in `why`. A failure is not remembered: the next call tries again. Loaded
 * stays loaded: cuInit cannot be undone, and code of the driver may still run. The library is
 * libcuda.so.1, or the file that GPUNET_LIBCUDA names: tests only.
 */
const struct cuda_api *cuda_driver(char *why, size_t why_size);

/*
 * Tests only: forgets a driver that was loaded, so that the next call loads again. No device may be
 * open.
 */
void cuda_driver_forget(void);

/*
 * The driver's name of an error, "CUDA_ERROR_..." ; for one that it does not know, "CUDA error N"
 * in `buf`.
 */
const char *cuda_error_name(const struct cuda_api *api, cuda_result r, char *buf, size_t size);

/* The negative errno that stands for an error. */
int cuda_errno(cuda_result r);

/*
 * What a user can do about an error, beginning with "; " or ": ", or "" when the name says all
 * there is.
 */
const char *cuda_remedy(cuda_result r);

#endif
