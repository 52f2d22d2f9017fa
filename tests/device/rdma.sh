#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# rdma.sh PROGRAM…: a device test over rdma:// by the software RNIC, at an address that is no loopback one, in a network namespace of
# its own. Exit code 77: there is none to be had.

unshare -n true 2>/dev/null || { echo "skipped: no network namespace to be had" >&2; exit 77; }
GPUNET_VERBS=rnic GPUNET_TEST_RDMA=10.79.9.1
export GPUNET_VERBS GPUNET_TEST_RDMA
# shellcheck disable=SC2016 # for the inner shell
exec unshare -n sh -c 'ip link set lo up && ip addr add 10.79.9.1/32 dev lo && exec "$@"' sh "$@"
