#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# usage: same.sh SIM OTHER
#
# The same from the same seeds, whatever compiler built it: else what one finds says little about the other.

dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
for sim; do
	"$sim" --first 1 --count 30 --hashes >>"$dir/$#" 2>&1 || { cat "$dir/$#"; exit 1; }
	shift
done
diff "$dir/2" "$dir/1" && cat "$dir/1"
