#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The man pages are right in the eyes of mandoc, and each page of ours that one refers to is there. Skipped (77) without
# mandoc.
# usage: man.sh ROOT

if ! command -v mandoc >/dev/null; then
	echo "man: no mandoc"
	exit 77
fi
cd "$1" || exit 1
# mandoc looks for other pages in what is installed; ours are looked for below.
wrong=$(mandoc -T lint man/*.[1-9] 2>&1 | grep -v -e 'referenced manual not found' -e 'mandoc.db')
missing=$(grep -ho '\(^\.\| \)Xr [a-z_-]* [1-9]' man/*.[1-9] | sed 's/^.*Xr //' | sort -u |
	while read -r name section; do
		[ "$section" = 2 ] || [ -f "man/$name.$section" ] || echo "man/$name.$section: no such page"
	done)
[ -z "$wrong$missing" ] || printf '%s\n' "$wrong" "$missing"
set -- man/*.[1-9]
echo "man: $# pages"
[ -z "$wrong$missing" ] && [ -f "$1" ]
