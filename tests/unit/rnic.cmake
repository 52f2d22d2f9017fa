# SPDX-License-Identifier: BSD-3-Clause
#
# The RoCE codecs and the software RNIC

foreach(wire_test golden codec)
	gpunet_unit_test(wire_${wire_test} wire_${wire_test}.c)
endforeach()
if(TARGET unit_wire_golden)
	target_compile_definitions(unit_wire_golden PRIVATE
		GPUNET_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
		GPUNET_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()

foreach(rnic_test cc cm objects rc uc_ud hostile mlx5 loss property far many)
	gpunet_unit_test(rnic_${rnic_test} rnic_${rnic_test}.c rnic_rig.c)
endforeach()
if(TARGET unit_rnic_property AND GPUNET_TEST_TIMEOUT LESS 300)
	# 40 s of processor time, whatever else the machine does
	set_tests_properties(unit.rnic_property PROPERTIES TIMEOUT 300)
endif()
gpunet_unit_test(rnic_cm_golden rnic_cm_golden.c)
if(TARGET unit_rnic_cm_golden)
	target_compile_definitions(unit_rnic_cm_golden PRIVATE
		GPUNET_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
endif()
gpunet_unit_test(rnic_udp rnic_udp.c)
gpunet_unit_test(rnic_pcap rnic_pcap.c)
gpunet_unit_test(rnic_path rnic_path.c)
gpunet_unit_test(rnic_raw rnic_raw.c)
