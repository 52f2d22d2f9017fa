# SPDX-License-Identifier: BSD-3-Clause
#
# The verbs table, and sockets over it

set(verbs_stub verbs_stub.c verbs_stub_data.c)

gpunet_unit_test(verbs_table verbs_table.c)
gpunet_unit_test(rdma_stream rdma_stream.c ${verbs_stub})
gpunet_unit_test(verbs_rnic verbs_rnic.c verbs_ends.c)
gpunet_unit_test(verbs_move verbs_move.c verbs_ends.c)
if(TARGET unit_verbs_move)
	# Something happens when a lock of the library's is left.
	target_link_options(unit_verbs_move PRIVATE -Wl,--wrap=pthread_mutex_unlock)
endif()
gpunet_unit_test(verbs_nobody verbs_nobody.c)
gpunet_unit_test(verbs_export verbs_export.c)
gpunet_unit_test(verbs_far verbs_far.c)
gpunet_unit_test(verbs_api verbs_api.c)
gpunet_unit_test(wire_rsocket wire_rsocket.c)
if(TARGET unit_wire_rsocket)
	target_compile_definitions(unit_wire_rsocket PRIVATE GPUNET_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()
gpunet_unit_test(rdma_faults rdma_faults.c ${verbs_stub})
gpunet_unit_test(rdma_hostile rdma_hostile.c ${verbs_stub})
gpunet_unit_test(rdma_late_acks rdma_late_acks.c ${verbs_stub})
gpunet_unit_test(rdma_memory rdma_memory.c ${verbs_stub})
gpunet_unit_test(rdma_doctor rdma_doctor.c ${verbs_stub})
