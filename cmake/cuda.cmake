# SPDX-License-Identifier: BSD-3-Clause
#
# CUDA is optional. The library itself never needs it (the driver is loaded at run time); nvcc
# compiles kernels of tests, tools and examples. AUTO: where nvcc and an NVIDIA GPU are here.

set(GPUNET_CUDA AUTO CACHE STRING "build kernels for CUDA: AUTO, ON or OFF")
set_property(CACHE GPUNET_CUDA PROPERTY STRINGS AUTO ON OFF)

set(GPUNET_WITH_CUDA OFF)
if(GPUNET_CUDA STREQUAL "AUTO" AND NOT GPUNET_SANITIZE AND (EXISTS /dev/nvidiactl OR EXISTS /dev/dxg))
	set(gpunet_try_cuda ON)
elseif(GPUNET_CUDA STREQUAL "AUTO")
	set(gpunet_try_cuda OFF)
	if(NOT GPUNET_SANITIZE)
		set(gpunet_why ": no NVIDIA GPU here; ON builds all the same")
	endif()
else()
	set(gpunet_try_cuda ${GPUNET_CUDA})
endif()

if(gpunet_try_cuda)
	if(GPUNET_SANITIZE)
		message(FATAL_ERROR "GPUNET_CUDA=ON and GPUNET_SANITIZE cannot be combined")
	endif()
	find_program(GPUNET_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH ENV CUDA_HOME
		PATH_SUFFIXES bin)
	if(NOT GPUNET_NVCC)
		# Also knows the places where NVIDIA's packages put the toolkit.
		find_package(CUDAToolkit QUIET)
		set(GPUNET_NVCC ${CUDAToolkit_NVCC_EXECUTABLE})
	endif()
	if(GPUNET_NVCC)
		set(GPUNET_WITH_CUDA ON)
	elseif(GPUNET_CUDA STREQUAL "ON")
		message(FATAL_ERROR "GPUNET_CUDA=ON, but there is no nvcc: install the CUDA toolkit "
			"or put nvcc into PATH")
	endif()
endif()

if(GPUNET_WITH_CUDA)
	set(CMAKE_CUDA_COMPILER ${GPUNET_NVCC})
	# sm_80 code runs on all 8.x, sm_90 on Hopper, the PTX on whatever comes later.
	if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
		set(CMAKE_CUDA_ARCHITECTURES "80-real;90")
	endif()
	set(CMAKE_CUDA_STANDARD 17)
	set(CMAKE_CUDA_STANDARD_REQUIRED ON)
	set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
	set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
	if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
		find_program(GPUNET_CXX NAMES g++ c++)
		set(CMAKE_CUDA_HOST_COMPILER ${GPUNET_CXX})
	endif()
	enable_language(CUDA)
	# The shared CUDA run time, put where programs of the build look for it (see gpunet_link_cuda); a toolkit
	# without it has the static one.
	cmake_path(GET GPUNET_NVCC PARENT_PATH nvcc_dir)
	find_library(GPUNET_CUDART NAMES cudart cudart_static
		HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} ${nvcc_dir}/../lib64 ${nvcc_dir}/../lib REQUIRED)
	execute_process(COMMAND ${CMAKE_READELF} -d ${GPUNET_CUDART} OUTPUT_VARIABLE dynamic ERROR_QUIET)
	if(dynamic MATCHES "\\(SONAME\\)[^\n]*\\[(libcudart[^]]*)\\]")
		configure_file(${GPUNET_CUDART} ${CMAKE_BINARY_DIR}/lib/${CMAKE_MATCH_1} COPYONLY)
	endif()
	# nvcc's launch stubs need a few routines of the C++ run time; linked statically, so that a
	# program depends on the C library, the driver and what lies beside it only.
	set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")
	list(JOIN gpunet_warnings "," gpunet_xcompiler)
	set(gpunet_cuda_flags -Xcompiler=${gpunet_xcompiler})
	# A test's kernels take 0.15 MiB instead of 1.5 with -lineinfo; nvcc before 12.8 does not know it.
	include(CheckCompilerFlag)
	check_compiler_flag(CUDA --compress-mode=size GPUNET_NVCC_COMPRESSES)
	if(GPUNET_NVCC_COMPRESSES)
		list(APPEND gpunet_cuda_flags --compress-mode=size)
	endif()
	if(GPUNET_WERROR)
		list(APPEND gpunet_cuda_flags -Werror all-warnings)
	endif()
	add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${gpunet_cuda_flags}>")
	message(STATUS "CUDA: kernels are built with ${GPUNET_NVCC} for ${CMAKE_CUDA_ARCHITECTURES}")
else()
	message(STATUS "CUDA: off (GPUNET_CUDA=${GPUNET_CUDA}${gpunet_why}), kernels are built for the CPU device only")
endif()
