#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The man pages are right in the eyes of mandoc, each page of ours that one refers to is there, and each public call is in
# one page, a kernel's call in each scope. Skipped (77) without mandoc.
# usage: man.sh ROOT

if ! command -v mandoc >/dev/null; then
	echo "man: no mandoc"
	exit 77
fi
cd "$1" || exit 1
# mandoc looks for other pages in what is installed; ours are looked for below.
wrong=$(for page in man/*.[1-9]; do mandoc -T lint "$page" 2>&1; done |
	grep -v -e 'referenced manual not found' -e 'mandoc.db')
missing=$(grep -ho '\(^\.\| \)Xr [a-z_-]* [1-9]' man/*.[1-9] | sed 's/^.*Xr //' | sort -u |
	while read -r name section; do
		[ "$section" = 2 ] || [ -f "man/$name.$section" ] || echo "man/$name.$section: no such page"
	done)
# names HEADER PATTERN: what PATTERN captures in HEADER
names()
{
	sed -n "$2" "$1" | sort -u
}
# Each call is explained by one page of section 3.
calls=$(names include/gpunet/dev/socket.h 's/^GNET_DEV [a-z0-9_]* \(g[a-z0-9_]*\)(.*/\1/p'
	names include/gpunet/gpunet.h '/^static/d; s/^[a-z].*[ *]\(gpunet_[a-z_]*\)(.*/\1/p')
[ "$(echo "$calls" | wc -l)" -gt 40 ] || missing="$missing
man.sh: the headers' calls are not found"
missing="$missing
$(for name in $calls; do
	[ "$(cat man/*.3 | grep -c "^\.Fn $name \"")" = 1 ] || echo "man/*.3: $name() is not in one page's synopsis"
	[ "$(cat man/*.3 | grep -c "^\.Nm $name\( ,\)*\$")" = 1 ] || echo "man/*.3: $name is not one page's name"
done)
$(names include/gpunet/dev/socket.h 's/^GNET_DEV [a-z0-9_]* \(g[a-z0-9]*\)(.*/\1/p' | while read -r name; do
	grep -q "^\.Fn $name " man/gpunet.7 || echo "man/gpunet.7: $name() is missing"
done)"
bad=$(printf '%s\n%s\n' "$wrong" "$missing" | grep .)
[ -z "$bad" ] || echo "$bad"
set -- man/*.[1-9]
echo "man: $# pages"
[ -z "$bad" ] && [ -f "$1" ]
