# SPDX-License-Identifier: BSD-3-Clause
#
# cmake --install: a tree that works wherever it is moved to. Nothing in it names a folder of the
# build or the prefix.

include(CMakePackageConfigHelpers)

set(gpunet_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gpunet)

install(TARGETS gpunet gpunet_static EXPORT gpunet-targets
	LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
	ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
	INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/gpunet DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
	FILES_MATCHING PATTERN *.h)

install(EXPORT gpunet-targets NAMESPACE gpunet:: DESTINATION ${gpunet_package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gpunet-config-version.cmake
	COMPATIBILITY SameMinorVersion)
install(FILES cmake/gpunet-config.cmake ${CMAKE_BINARY_DIR}/gpunet-config-version.cmake
	DESTINATION ${gpunet_package_dir})

# The prefix as seen from the folder of gpunet.pc; pkg-config's ${pcfiledir} makes it absolute.
file(RELATIVE_PATH gpunet_prefix_from_pc
	/${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" gpunet_prefix_from_pc "${gpunet_prefix_from_pc}")
configure_file(cmake/gpunet.pc.in ${CMAKE_BINARY_DIR}/gpunet.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/gpunet.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

foreach(section 1 3 7)
	file(GLOB pages CONFIGURE_DEPENDS man/*.${section})
	if(pages)
		install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
	endif()
endforeach()
# Each call of a page that has several is found by its own name.
install(CODE "set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man3\")")
install(CODE [[
	file(GLOB pages "${folder}/*.3")
	foreach(page IN LISTS pages)
		file(STRINGS ${page} names REGEX "^[.]Nm [A-Za-z]")
		foreach(line IN LISTS names)
			string(REGEX REPLACE "^[.]Nm ([A-Za-z0-9_]+).*" "\\1" name "${line}")
			cmake_path(GET page FILENAME target)
			if(NOT EXISTS "${folder}/${name}.3")
				file(CREATE_LINK ${target} "${folder}/${name}.3" SYMBOLIC)
			endif()
		endforeach()
	endforeach()
]])
# The pages for users, and what they point to; the others are about the inside.
install(FILES LICENSE docs/guide.md docs/options.md docs/subset.md docs/rnic.md docs/measurements.md
	DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/wire/rsocket.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/wire)
