#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# usage: mutants.sh SIM "LOST…" NUMBER…
#
# Each planted fault (mutants.cmake) must be found. LOST: those whose text is no longer in the sources; they must be written anew.

sim=$1
bad=0
for number in $2; do
	echo "mutant $number: its text is gone from the sources"
	bad=1
done
shift 2
for number; do
	# It takes thousands of seeds.
	[ "$number" = 2 ] && [ -z "$GPUNET_LONG" ] && continue
	"$sim" --mutant "$number" --expect-failure --count 20000 --seconds ${GPUNET_LONG:+10}60 || bad=1
done
exit $bad
