# SPDX-License-Identifier: BSD-3-Clause
#
# find_package(gpunet): targets gpunet::gpunet (shared) and gpunet::gpunet_static.

include(${CMAKE_CURRENT_LIST_DIR}/gpunet-targets.cmake)
