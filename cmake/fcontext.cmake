# SPDX-License-Identifier: BSD-3-Clause
#
# The CPU device switches fibers with the two assembly routines of Boost.Context. Their objects are
# taken out of Boost's static library and become part of ours, so nobody who uses gpunet needs
# Boost. Sets gpunet_fcontext_objects.

find_library(GPUNET_BOOST_CONTEXT NAMES libboost_context.a)
if(NOT GPUNET_BOOST_CONTEXT)
	message(FATAL_ERROR "libboost_context.a is missing (Debian and Ubuntu: apt install libboost-context-dev)")
endif()

execute_process(COMMAND ${CMAKE_AR} t ${GPUNET_BOOST_CONTEXT}
	OUTPUT_VARIABLE members COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(make|jump)_[^\n]*_gas[^\n]*" members "${members}")
list(LENGTH members count)
if(NOT count EQUAL 2)
	message(FATAL_ERROR "${GPUNET_BOOST_CONTEXT}: expected make_… and jump_…, found: ${members}")
endif()

set(gpunet_fcontext_dir ${CMAKE_BINARY_DIR}/fcontext)
list(TRANSFORM members PREPEND ${gpunet_fcontext_dir}/ OUTPUT_VARIABLE gpunet_fcontext_objects)
file(MAKE_DIRECTORY ${gpunet_fcontext_dir})
add_custom_command(OUTPUT ${gpunet_fcontext_objects}
	COMMAND ${CMAKE_AR} x ${GPUNET_BOOST_CONTEXT} ${members}
	DEPENDS ${GPUNET_BOOST_CONTEXT}
	WORKING_DIRECTORY ${gpunet_fcontext_dir}
	COMMENT "Taking the fiber switch out of ${GPUNET_BOOST_CONTEXT}"
	VERBATIM)
add_custom_target(gpunet_fcontext DEPENDS ${gpunet_fcontext_objects})
set_source_files_properties(${gpunet_fcontext_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
