#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# A build folder that was configured before the RDMA headers were there finds them when it is configured again, as after
# ./demo.sh, then ./check.sh on a fresh machine. Skipped (77) without those headers.
# usage: later.sh ROOT CMAKE CC

root=$1 cmake=$2 cc=$3
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

if ! printf '#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n' | "$cc" -E -x c - >/dev/null 2>&1; then
	echo "later: no libibverbs-dev, librdmacm-dev"
	exit 77
fi
# The folder's own rules, with the little of the project that they need.
cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(later C)
add_library(gpunet_objects OBJECT part.c)
function(gpunet_sources)
	message(STATUS "headers found")
endfunction()
add_subdirectory($root/src/verbs/ibverbs part)
END
echo 'int part;' >"$work/part.c"

# configure FLAGS WANT
configure()
{
	out=$("$cmake" -S "$work" -B "$work/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$1" 2>&1)
	case $out in
	*"headers $2"*) return 0 ;;
	esac
	echo "$out"
	echo "later: configured with '$1', expected headers $2"
	exit 1
}

configure -DINFINIBAND_VERBS_H "missing, no RDMA hardware"  # its guard: the header says nothing
configure "" found
configure "" found
