# SPDX-License-Identifier: BSD-3-Clause
#
# Functions for everything that ends as an executable.

# Defaults of the sanitizers' options, in one place, part of every program of a sanitizer build.
if(GPUNET_SANITIZE)
	add_library(gpunet_sanitizer_options OBJECT ${PROJECT_SOURCE_DIR}/cmake/sanitizer_options.c)
endif()

# gcc 12's TSan cannot place its shadow under 32 bits of address randomisation.
set(gpunet_test_launcher "")
if(GPUNET_SANITIZE MATCHES "thread" AND EXISTS /proc/sys/vm/mmap_rnd_bits)
	file(READ /proc/sys/vm/mmap_rnd_bits bits)
	if(bits GREATER 28)
		set(gpunet_test_launcher setarch -R)
	endif()
endif()

set(GPUNET_CMOCKA OFF)
find_library(GPUNET_CMOCKA_LIBRARY cmocka)
find_path(GPUNET_CMOCKA_INCLUDE cmocka.h)
if(GPUNET_CMOCKA_LIBRARY AND GPUNET_CMOCKA_INCLUDE)
	set(GPUNET_CMOCKA ON)
elseif(GPUNET_TESTS)
	message(STATUS "cmocka: missing, unit tests are not built (Debian: apt install libcmocka-dev)")
endif()

function(gpunet_executable target)
	add_executable(${target} ${ARGN})
	target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE>)
	# g++ would add the shared libstdc++ to programs with kernels.
	set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
	if(GPUNET_SANITIZE)
		target_link_libraries(${target} PRIVATE gpunet_sanitizer_options)
	endif()
endfunction()

# The CUDA half of a C file: a wrapper with its own name, since one file cannot have two languages
# in one folder. The C file's own lines stay in messages and debug information.
function(gpunet_cuda_source result file)
	cmake_path(ABSOLUTE_PATH file NORMALIZE)
	cmake_path(GET file STEM stem)
	set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/${stem}.cu)
	file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"${file}\"\n")
	set(${result} ${wrapper} PARENT_SCOPE)
endfunction()

# Those files, also where there is no nvcc: tests/check compiles them as the C++ that they have to be, too.
function(gpunet_note_kernels)
	foreach(file IN LISTS ARGN)
		cmake_path(ABSOLUTE_PATH file NORMALIZE)
		cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
		set_property(GLOBAL APPEND PROPERTY GPUNET_KERNELS ${file})
	endforeach()
endfunction()

# Everything that has kernels for a GPU: what check.sh --gpu-bundle builds.
add_custom_target(gpunet_gpu)

# gpunet_link_cuda(target [STATIC]): the library, the CUDA run time and the part of the C++ run time that the
# launch stubs need. Programs find the shared libraries in ../lib, seen from where they lie, in the build and in a GPU
# bundle; one copy serves sixty programs. An installed one (STATIC) carries its own.
function(gpunet_link_cuda target)
	add_dependencies(gpunet_gpu ${target})
	if("STATIC" IN_LIST ARGN)
		target_link_libraries(${target} PRIVATE gpunet_static cudart_static)
	else()
		target_link_libraries(${target} PRIVATE gpunet ${GPUNET_CUDART})
		set_target_properties(${target} PROPERTIES
			BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib")
		# DT_RPATH: it comes before LD_LIBRARY_PATH, which may name another gpunet.
		target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
	endif()
	target_link_libraries(${target} PRIVATE -l:libstdc++.a rt pthread dl)
	target_link_options(${target} PRIVATE -static-libgcc)
	target_link_directories(${target} PRIVATE ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES})
endfunction()

# gpunet_program(name [INSTALL] sources… [KERNELS file.c …]): bin/name, which uses the public API only. Each file
# under KERNELS is compiled as C11 and, with CUDA, a second time by nvcc. The target is program_name,
# since the tool is called as the library is.
function(gpunet_program name)
	cmake_parse_arguments(arg "INSTALL" "" "KERNELS" ${ARGN})
	set(target program_${name})
	set(sources ${arg_UNPARSED_ARGUMENTS} ${arg_KERNELS})
	gpunet_note_kernels(${arg_KERNELS})
	if(GPUNET_WITH_CUDA)
		foreach(file IN LISTS arg_KERNELS)
			gpunet_cuda_source(wrapper ${file})
			list(APPEND sources ${wrapper})
		endforeach()
	endif()
	gpunet_executable(${target} ${sources})
	set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
	if(NOT GPUNET_WITH_CUDA OR NOT arg_KERNELS)
		target_link_libraries(${target} PRIVATE gpunet_static)
	else()
		target_compile_definitions(${target} PRIVATE GPUNET_WITH_CUDA=1)
		if(arg_INSTALL)
			gpunet_link_cuda(${target} STATIC)
		else()
			gpunet_link_cuda(${target})
		endif()
	endif()
	if(arg_INSTALL)
		install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
	endif()
endfunction()

# A test that hangs says what its threads do before ctest ends it (tests/device/test.h).
math(EXPR gpunet_test_limit "${GPUNET_TEST_TIMEOUT} * 4 / 5")

function(gpunet_add_test name target)
	add_test(NAME ${name} COMMAND ${gpunet_test_launcher} $<TARGET_FILE:${target}>)
	set_target_properties(${target} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
	set_tests_properties(${name} PROPERTIES
		TIMEOUT ${GPUNET_TEST_TIMEOUT} SKIP_RETURN_CODE 77)
	set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
		GPUNET_TEST_LIMIT=${gpunet_test_limit}
		GPUNET_TEST_HANG=${PROJECT_SOURCE_DIR}/tests/hang.sh
		GPUNET_TEST_TOOL=${CMAKE_BINARY_DIR}/bin/gpunet)
endfunction()

# gpunet_unit_test(name sources…): a cmocka program; it reaches the library's hidden symbols and
# its headers under src/. ctest knows it as unit.name.
function(gpunet_unit_test name)
	if(NOT GPUNET_CMOCKA)
		return()
	endif()
	gpunet_executable(unit_${name} ${ARGN})
	target_include_directories(unit_${name} SYSTEM PRIVATE ${GPUNET_CMOCKA_INCLUDE})
	target_link_libraries(unit_${name} PRIVATE gpunet_internal ${GPUNET_CMOCKA_LIBRARY})
	gpunet_add_test(unit.${name} unit_${name})
	set_tests_properties(unit.${name} PROPERTIES LABELS unit)
endfunction()

# gpunet_device_test(name file.c): one file, two programs: C11 on the CPU device (ctest: device.name)
# and, with CUDA, the same file by nvcc (ctest: cuda.name; device/name in the build, as in a GPU bundle). Exit code 77:
# skipped.
function(gpunet_device_test name file)
	gpunet_executable(device_${name} ${file})
	gpunet_note_kernels(${file})
	set_target_properties(device_${name} PROPERTIES C_EXTENSIONS OFF)
	target_link_libraries(device_${name} PRIVATE gpunet_static)
	gpunet_add_test(device.${name} device_${name})
	set_tests_properties(device.${name} PROPERTIES LABELS device)
	if(GPUNET_WITH_CUDA)
		gpunet_cuda_source(wrapper ${file})
		gpunet_executable(cuda_${name} ${wrapper})
		gpunet_link_cuda(cuda_${name})
		gpunet_add_test(cuda.${name} cuda_${name})
		set_target_properties(cuda_${name} PROPERTIES OUTPUT_NAME ${name}
			RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/device)
		set_tests_properties(cuda.${name} PROPERTIES LABELS cuda)
	endif()
endfunction()
