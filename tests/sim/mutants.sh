#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# usage: mutants.sh SIM "LOST…" NUMBER[:SEED]…
#
# Each planted fault (mutants.cmake) must be found. LOST: those whose text is no longer in the sources; they must be written anew.
# SEED: where to begin, a little before the seed that found it last; that is a matter of time only.

sim=$1
bad=0
for number in $2; do
	echo "mutant $number: its text is gone from the sources"
	bad=1
done
shift 2
for number; do
	# It takes thousands of seeds after each change that moves the simulation's steps.
	case ${number%:*} in 2) [ -n "$GPUNET_LONG" ] || continue ;; esac
	first=${number#*:}
	[ "$first" = "$number" ] && first=1
	"$sim" --mutant "${number%:*}" --first "$first" --expect-failure --count 20000 --seconds ${GPUNET_LONG:+10}60 || bad=1
done
exit $bad
