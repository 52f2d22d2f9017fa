#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The layout of every C file is what clang-format makes of it. Skipped (77) without the version that the
# layout was agreed with: others break lines differently.
# usage: format.sh ROOT [clang-format [--fix]]

want=14
root=$1
tool=${2:-clang-format}

if ! version=$("$tool" --version 2>/dev/null); then
	echo "format: no clang-format"
	exit 77
fi
case $version in
*"version $want."*) ;;
*)
	echo "format: $version is not version $want"
	exit 77
	;;
esac

cd "$root" || exit 1
folders=
for folder in include src tools examples bench tests cmake; do
	[ -d "$folder" ] && folders="$folders $folder"
done
# shellcheck disable=SC2086 # a list of words
files=$(find $folders -name '*.[ch]' -o -name '*.cu' | sort)
# shellcheck disable=SC2086
if [ "$3" = --fix ]; then
	"$tool" -i $files
else
	"$tool" --dry-run -Werror $files
fi
result=$?
# shellcheck disable=SC2086
echo "format: $(printf '%s\n' $files | wc -l) files"
exit $((result != 0))
