# SPDX-License-Identifier: BSD-3-Clause
#
# The CUDA platform against a libcuda that keeps books, of three ages. No GPU and no toolkit is needed; where a toolkit
# is installed its <cuda.h> and its own stub library are looked at too.

if(GPUNET_CMOCKA)
	add_library(cuda_stub MODULE cuda_stub.c)
	add_library(cuda_stub_ancient MODULE cuda_stub.c)
	target_compile_definitions(cuda_stub_ancient PRIVATE CUDA_STUB_ANCIENT)
	add_library(cuda_stub_before_lazy MODULE cuda_stub.c)
	target_compile_definitions(cuda_stub_before_lazy PRIVATE CUDA_STUB_BEFORE_LAZY)
	add_library(cuda_stub_copies MODULE cuda_stub.c)
	target_compile_definitions(cuda_stub_copies PRIVATE CUDA_STUB_COPIES)
	add_library(cuda_stub_one_by_one MODULE cuda_stub.c)
	target_compile_definitions(cuda_stub_one_by_one PRIVATE CUDA_STUB_COPIES CUDA_STUB_NO_BATCH)
	foreach(lib cuda_stub cuda_stub_ancient cuda_stub_before_lazy cuda_stub_copies cuda_stub_one_by_one)
		target_compile_definitions(${lib} PRIVATE _GNU_SOURCE)
		set_target_properties(${lib} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
	endforeach()

	gpunet_unit_test(cuda_abi cuda_abi.c)
	gpunet_unit_test(cuda_load cuda_load.c)
	gpunet_unit_test(cuda_device cuda_device.c)
	gpunet_unit_test(cuda_copy cuda_copy.c)
	gpunet_unit_test(cuda_near cuda_near.c)
	gpunet_unit_test(proxy_place proxy_place.c)
	foreach(test unit_cuda_load unit_cuda_device unit_proxy_place)
		target_compile_definitions(${test} PRIVATE
			STUB="$<TARGET_FILE:cuda_stub>"
			STUB_ANCIENT="$<TARGET_FILE:cuda_stub_ancient>"
			STUB_BEFORE_LAZY="$<TARGET_FILE:cuda_stub_before_lazy>")
		add_dependencies(${test} cuda_stub cuda_stub_ancient cuda_stub_before_lazy)
	endforeach()
	gpunet_unit_test(cuda_copier cuda_copier.c)
	target_compile_definitions(unit_cuda_copier PRIVATE
		STUB="$<TARGET_FILE:cuda_stub_copies>" STUB_ONE_BY_ONE="$<TARGET_FILE:cuda_stub_one_by_one>")
	add_dependencies(unit_cuda_copier cuda_stub_copies cuda_stub_one_by_one)
	# It stands in for a program that shows its CUDA runtime.
	set_target_properties(unit_cuda_load PROPERTIES ENABLE_EXPORTS ON)

	find_path(GPUNET_CUDA_INCLUDE cuda.h
		HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
	if(GPUNET_CUDA_INCLUDE)
		target_include_directories(unit_cuda_abi SYSTEM PRIVATE ${GPUNET_CUDA_INCLUDE})
	endif()
	find_file(GPUNET_CUDA_TOOLKIT_STUB libcuda.so
		HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda
		PATH_SUFFIXES lib64/stubs lib/stubs targets/x86_64-linux/lib/stubs)
	if(GPUNET_CUDA_TOOLKIT_STUB)
		target_compile_definitions(unit_cuda_load PRIVATE TOOLKIT_STUB="${GPUNET_CUDA_TOOLKIT_STUB}")
	endif()
endif()
