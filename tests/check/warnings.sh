#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# usage: warnings.sh ROOT COMPILER…
#
# A kernel that passes a constant is compiled without warnings of the headers, at each level of optimisation (warnings.c).

root=$1
bad=0
shift
for compiler; do
	case $compiler in *-NOTFOUND) continue ;; esac
	for flags in -O1 -O2 -O3 "-O2 -DALONE"; do
		"$compiler" -std=gnu11 -Wall -Wextra -Werror $flags -I "$root/include" -c -o /dev/null \
			"$root/tests/check/warnings.c" || { bad=1; echo "warnings: $compiler $flags"; }
	done
done
exit $bad
