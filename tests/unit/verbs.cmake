# SPDX-License-Identifier: BSD-3-Clause
#
# The verbs table, and sockets over it

gpunet_unit_test(verbs_table verbs_table.c)
gpunet_unit_test(rdma_stream rdma_stream.c verbs_stub.c)
gpunet_unit_test(verbs_rnic verbs_rnic.c)
