# SPDX-License-Identifier: BSD-3-Clause
#
# The host API: gpunet_open and its options, faults in it and under it.

gpunet_unit_test(host_options host_options.c)
gpunet_unit_test(host_faults host_faults.c faults.c)
gpunet_unit_test(host_nth host_nth.c)
gpunet_unit_test(host_resolve host_resolve.c)
gpunet_unit_test(host_hops host_hops.c)
gpunet_unit_test(hops_live hops_live.c)
gpunet_unit_test(host_counters host_counters.c)
gpunet_unit_test(proxy_dies proxy_dies.c)
gpunet_unit_test(open_fail open_fail.c)

gpunet_unit_test(kernel_full_queue kernel_full_queue.c)

# What the simulation found.
gpunet_unit_test(kernel_calls kernel_calls.c)
if(TARGET unit_kernel_calls)
	# Other blocks do something when this one looks at shared memory.
	target_link_options(unit_kernel_calls PRIVATE -Wl,--wrap=gpunet_cpu_look)
endif()

# The proxy stepped by hand, and kernels that write anything.
gpunet_unit_test(proxy_hand proxy_hand.c proxy_rig.c)
gpunet_unit_test(proxy_engine proxy_engine.c proxy_rig.c)
gpunet_unit_test(proxy_accept proxy_accept.c proxy_rig.c)
# Garbage is written without order, which is what ThreadSanitizer would report.
if(NOT GPUNET_SANITIZE MATCHES "thread")
	gpunet_unit_test(kernel_garbage kernel_garbage.c)
endif()
