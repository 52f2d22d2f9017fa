# SPDX-License-Identifier: BSD-3-Clause
#
# Build options and the compiler flags that everything is built with.

option(GPUNET_TESTS "build the tests" ON)
set(GPUNET_TEST_TIMEOUT 120 CACHE STRING "seconds that one test may take")
set(GPUNET_SANITIZE "" CACHE STRING "argument of -fsanitize=, e.g. address,undefined or thread")

# A newer compiler may know warnings that nobody has seen yet; a user's build must not fail
# on them.
if((CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13)
   OR (CMAKE_C_COMPILER_ID STREQUAL "Clang" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 15))
	set(gpunet_werror_default ON)
else()
	set(gpunet_werror_default OFF)
endif()
option(GPUNET_WERROR "warnings are errors" ${gpunet_werror_default})

if(NOT CMAKE_BUILD_TYPE)
	set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "build type" FORCE)
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

# Warnings that C and the host half of CUDA C++ share, then those of C alone.
set(gpunet_warnings -Wall -Wextra -Wshadow -Wpointer-arith -Wvla -Wformat=2
	-Wwrite-strings -Wno-unused-parameter)
set(gpunet_warnings_c -Wundef -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition)
if(GPUNET_WERROR)
	list(APPEND gpunet_warnings -Werror)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C>:${gpunet_warnings};${gpunet_warnings_c}>")

# Debug information and messages name files as seen from the project, wherever it was built.
add_compile_options("$<$<COMPILE_LANGUAGE:C>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>")

if(GPUNET_SANITIZE)
	add_compile_options("$<$<COMPILE_LANGUAGE:C>:-fsanitize=${GPUNET_SANITIZE};-fno-sanitize-recover=all;-fno-omit-frame-pointer>")
	add_link_options(-fsanitize=${GPUNET_SANITIZE})
endif()
