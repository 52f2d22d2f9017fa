# SPDX-License-Identifier: BSD-3-Clause
#
# The library is compiled once, as objects. From them come
#   gpunet           libgpunet.so, exports what src/gpunet.map names
#   gpunet_static    libgpunet.a, one object in which all other symbols are local, so that a
#                    program's own names cannot collide with our internal ones
#   gpunet_internal  an archive for unit tests and fuzzers only, with every symbol in reach

add_library(gpunet_objects OBJECT)
target_include_directories(gpunet_objects PRIVATE
	${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(gpunet_objects PRIVATE _GNU_SOURCE)

# gpunet_sources(a.c b.c …): adds files of the calling folder to the library
function(gpunet_sources)
	target_sources(gpunet_objects PRIVATE ${ARGN})
endfunction()

# gpunet_add_folders(dir …): add_subdirectory for those that exist
function(gpunet_add_folders)
	foreach(dir IN LISTS ARGN)
		if(EXISTS ${PROJECT_SOURCE_DIR}/${dir}/CMakeLists.txt)
			add_subdirectory(${dir})
		endif()
	endforeach()
endfunction()

function(gpunet_finish_library)
	set(objects $<TARGET_OBJECTS:gpunet_objects> ${gpunet_fcontext_objects})
	set(public_includes
		$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
		$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
	set(map ${PROJECT_SOURCE_DIR}/src/gpunet.map)

	add_library(gpunet SHARED ${objects})
	set_target_properties(gpunet PROPERTIES
		VERSION ${PROJECT_VERSION}
		SOVERSION ${PROJECT_VERSION_MAJOR}
		LINK_DEPENDS ${map}
		LINKER_LANGUAGE C)
	# nodelete: a thread may be in the system's resolver after the last network was closed.
	target_link_options(gpunet PRIVATE -Wl,--version-script=${map} -Wl,-z,noexecstack
		-Wl,-z,nodelete)
	if(NOT GPUNET_SANITIZE)
		target_link_options(gpunet PRIVATE -Wl,-z,defs)
	endif()
	target_link_libraries(gpunet PRIVATE pthread dl)
	target_include_directories(gpunet INTERFACE ${public_includes})

	set(whole ${CMAKE_BINARY_DIR}/gpunet-whole.o)
	add_custom_command(OUTPUT ${whole}
		COMMAND ${CMAKE_C_COMPILER} -r -nostdlib -o ${whole} ${objects}
		COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=gpunet_* ${whole}
		DEPENDS ${objects}
		COMMENT "Linking ${whole}"
		COMMAND_EXPAND_LISTS VERBATIM)
	set_source_files_properties(${whole} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
	add_library(gpunet_static STATIC ${whole})
	set_target_properties(gpunet_static PROPERTIES OUTPUT_NAME gpunet LINKER_LANGUAGE C)
	target_link_libraries(gpunet_static INTERFACE pthread dl)
	target_include_directories(gpunet_static INTERFACE ${public_includes})

	add_library(gpunet_internal STATIC EXCLUDE_FROM_ALL ${objects})
	set_target_properties(gpunet_internal PROPERTIES LINKER_LANGUAGE C)
	target_link_libraries(gpunet_internal INTERFACE pthread dl)
	target_include_directories(gpunet_internal INTERFACE
		${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
	foreach(lib gpunet gpunet_static gpunet_internal)
		add_dependencies(${lib} gpunet_fcontext)
	endforeach()
endfunction()
