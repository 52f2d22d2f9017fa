# SPDX-License-Identifier: BSD-3-Clause

set(tools ${PROJECT_SOURCE_DIR}/tools)
gpunet_unit_test(tool_url tool_url.c ${tools}/url.c)
gpunet_unit_test(tool_perftest tool_perftest.c ${tools}/perftest.c)
gpunet_unit_test(tool_pump tool_pump.c ${tools}/pump.c)
gpunet_unit_test(tool_unix_path tool_unix_path.c ${tools}/unix_path.c ${tools}/url.c)
