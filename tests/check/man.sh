#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The man pages are right in the eyes of mandoc, each page of ours that one refers to is there, and each public call is in
# its page. Skipped (77) without mandoc.
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
# has PAGE HEADER PATTERN: each name that PATTERN captures in HEADER is in PAGE's synopsis
has()
{
	sed -n "$3" "$2" | sort -u | while read -r name; do
		grep -q "^\.Fn $name " "$1" || echo "$1: $name() of $2 is missing"
	done
}
missing="$missing$(has man/gpunet.7 include/gpunet/dev/socket.h \
	's/^GNET_DEV [a-z0-9_]* \(g[a-z0-9]*\)(.*/\1/p')
$(has man/gpunet_open.3 include/gpunet/gpunet.h \
	'/^static/d; s/^[a-z].*[ *]\(gpunet_[a-z_]*\)(.*/\1/p')
$(has man/gpunet_verbs.3 include/gpunet/verbs.h \
	's/^[a-z].*[ *]\(gpunet_verbs_[a-z_]*\)(.*/\1/p')"
bad=$(printf '%s\n%s\n' "$wrong" "$missing" | grep .)
[ -z "$bad" ] || echo "$bad"
set -- man/*.[1-9]
echo "man: $# pages"
[ -z "$bad" ] && [ -f "$1" ]
