/* SPDX-License-Identifier: BSD-3-Clause */
/* Our own declarations of the driver's ABI against <cuda.h>, where that is installed. */
#if defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>
#endif
#endif

#include "platform/cuda/driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#if defined(CUDA_VERSION) && CUDA_VERSION >= 11070

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)

SAME(CUDA_OK, CUDA_SUCCESS);
SAME(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
SAME(CUDA_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(CUDA_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
#if CUDA_VERSION >= 12010
SAME(CUDA_NEEDS_NEWER_DRIVER, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
#endif
SAME(CUDA_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
SAME(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(CUDA_CONTEXT_IN_USE, CUDA_ERROR_CONTEXT_ALREADY_IN_USE);
SAME(CUDA_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM);
SAME(CUDA_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CUDA_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CUDA_CONTEXT_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(CUDA_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
SAME(CUDA_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
SAME(CUDA_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS);
SAME(CUDA_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
SAME(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CUDA_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
SAME(CUDA_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME(CUDA_COMPAT_NOT_SUPPORTED, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE);
SAME(CUDA_UNKNOWN, CUDA_ERROR_UNKNOWN);

SAME(CUDA_ATTR_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CUDA_ATTR_KERNEL_TIMEOUT, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT);
SAME(CUDA_ATTR_PCI_BUS, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
SAME(CUDA_ATTR_PCI_DEVICE, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
SAME(CUDA_ATTR_SM_THREADS, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
SAME(CUDA_ATTR_PCI_DOMAIN, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
SAME(CUDA_ATTR_CC_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CUDA_ATTR_CC_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CUDA_ATTR_SM_BLOCKS, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
#if CUDA_VERSION >= 12030
SAME(CUDA_ATTR_HOST_NUMA_ID, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
#endif

SAME(CUDA_ATTR_FLUSH_OPTIONS, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
SAME(CUDA_ATTR_WRITES_ORDERING, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
SAME(CUDA_ATTR_DMA_BUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
SAME(CUDA_POINTER_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
SAME(CUDA_RANGE_DMA_BUF_FD, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
SAME(CUDA_FLUSH_OPTION_HOST, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
SAME(CUDA_FLUSH_TARGET_CURRENT, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
SAME(CUDA_FLUSH_TO_OWNER, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
SAME(CUDA_ORDERING_OWNER, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);

SAME(CUDA_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME(CUDA_REGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CUDA_LOADING_EAGER, CU_MODULE_EAGER_LOADING);
SAME(CUDA_LOADING_LAZY, CU_MODULE_LAZY_LOADING);
SAME(CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CUDA_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(CUDA_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME(CUDA_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME(CUDA_POINTER_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
SAME(CUDA_POINTER_MAPPING_BASE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);

SAME(CUDA_MEM_OP_WRITE_32, CU_STREAM_MEM_OP_WRITE_VALUE_32);
SAME(CUDA_MEM_OP_WRITE_64, CU_STREAM_MEM_OP_WRITE_VALUE_64);
SAME(sizeof(union cuda_word), sizeof(CUstreamBatchMemOpParams));
#define WORD(ours, theirs)                          \
	SAME(offsetof(union cuda_word, write.ours), \
	     offsetof(CUstreamBatchMemOpParams, writeValue.theirs))
WORD(operation, operation);
WORD(address, address);
WORD(value, value);
WORD(value, value64);
WORD(flags, flags);
WORD(alias, alias);

#if CUDA_VERSION >= 13000
SAME(CUDA_COPY_IN_STREAM_ORDER, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
SAME(CUDA_COPY_BESIDE_KERNELS, CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
SAME(sizeof(struct cuda_copy_how), sizeof(CUmemcpyAttributes));
#define HOW(ours, theirs) \
	SAME(offsetof(struct cuda_copy_how, ours), offsetof(CUmemcpyAttributes, theirs))
HOW(order, srcAccessOrder);
HOW(src, srcLocHint);
HOW(dst, dstLocHint);
HOW(flags, flags);
#endif

/* What driver.h uses for these types where there is no <cuda.h>. */
#define WIDTH(theirs, ours) _Static_assert(sizeof(theirs) == sizeof(ours), #theirs)
WIDTH(CUresult, int);
WIDTH(CUdevice, int);
WIDTH(CUdeviceptr, unsigned long long);
WIDTH(CUdevice_attribute, int);
WIDTH(CUmoduleLoadingMode, int);
WIDTH(CUpointer_attribute, int);
WIDTH(CUmemRangeHandleType, int);
WIDTH(CUflushGPUDirectRDMAWritesTarget, int);
WIDTH(CUflushGPUDirectRDMAWritesScope, int);
_Static_assert(__builtin_types_compatible_p(CUcontext, struct CUctx_st *), "CUcontext");
_Static_assert(__builtin_types_compatible_p(CUstream, struct CUstream_st *), "CUstream");

/* <cuda.h> maps the plain names to versioned ones: X and NAME see the latter. */
#define NAME(x) #x
#define X(slot, call)                                                                         \
	_Static_assert(__builtin_types_compatible_p(__typeof__(((struct cuda_api *)0)->slot), \
						    __typeof__(&call)),                       \
		       #slot);
#if CUDA_VERSION >= 13000
#define CALLS_13(X) X(copy_batch, cuMemcpyBatchAsync)
#define LATER 0
#else
#define CALLS_13(X)
#define LATER 1
#endif
#define CALLS(X)                                          \
	X(init, cuInit)                                   \
	X(driver_version, cuDriverGetVersion)             \
	X(error_name, cuGetErrorName)                     \
	X(device_count, cuDeviceGetCount)                 \
	X(device_get, cuDeviceGet)                        \
	X(device_name, cuDeviceGetName)                   \
	X(device_attribute, cuDeviceGetAttribute)         \
	X(primary_retain, cuDevicePrimaryCtxRetain)       \
	X(primary_release, cuDevicePrimaryCtxRelease)     \
	X(ctx_current, cuCtxGetCurrent)                   \
	X(ctx_device, cuCtxGetDevice)                     \
	X(ctx_push, cuCtxPushCurrent)                     \
	X(ctx_pop, cuCtxPopCurrent)                       \
	X(host_register, cuMemHostRegister)               \
	X(host_unregister, cuMemHostUnregister)           \
	X(host_device_pointer, cuMemHostGetDevicePointer) \
	X(mem_alloc, cuMemAlloc)                          \
	X(mem_free, cuMemFree)                            \
	X(set_async, cuMemsetD8Async)                     \
	X(write_async, cuMemcpyHtoDAsync)                 \
	X(read_async, cuMemcpyDtoHAsync)                  \
	X(stream_create, cuStreamCreateWithPriority)      \
	X(stream_destroy, cuStreamDestroy)                \
	X(stream_query, cuStreamQuery)                    \
	X(loading_mode, cuModuleGetLoadingMode)           \
	X(pointer_attribute, cuPointerGetAttribute)       \
	X(write_value32, cuStreamWriteValue32)            \
	X(write_value64, cuStreamWriteValue64)            \
	X(batch_mem_op, cuStreamBatchMemOp)               \
	CALLS_13(X)                                       \
	X(pointer_set, cuPointerSetAttribute)             \
	X(range_handle, cuMemGetHandleForAddressRange)    \
	X(flush_writes, cuFlushGPUDirectRDMAWrites)
CALLS(X)

static const char *symbol_of(size_t slot)
{
	for (size_t i = 0; i < cuda_symbol_count; i++)
		if (cuda_symbols[i].slot == slot)
			return cuda_symbols[i].name;
	return "none";
}

static void symbols_are_those_of_the_header(void **state)
{
	size_t n = 0;

	(void)state;
#define CHECK(slot, call)                                                            \
	assert_string_equal(symbol_of(offsetof(struct cuda_api, slot)), NAME(call)); \
	n++;
	CALLS(CHECK)
	n += LATER;
	assert_int_equal(n, cuda_symbol_count);
	/* Every slot is a pointer and has a row. */
	assert_int_equal(n * sizeof(void (*)(void)), sizeof(struct cuda_api));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(symbols_are_those_of_the_header) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	fputs("skipped: no <cuda.h> of CUDA 11.7 or later\n", stderr);
	return 77;
}

#endif
