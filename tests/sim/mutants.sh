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
	first=1
	# Rare: a seed a little before the first one that finds it.
	case $number in
	2) first=1500 ;;
	esac
	"$sim" --mutant "$number" --expect-failure --first $first --count 3000 --seconds 20 || bad=1
done
exit $bad
