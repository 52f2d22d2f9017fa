# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by check.sh and demo.sh: what a fresh machine lacks, and its installation.

# package:probe,probe…  A probe is a command, a header or library file that gcc must find, or an option that
# clang must know how to link.
# What is there counts, whoever installed it; the package name is the remedy on Debian and Ubuntu.
NEED_BUILD="
build-essential:gcc,g++,make,objcopy
cmake:cmake
ninja-build:ninja
libboost-context-dev:libboost_context.a
python3:python3"
NEED_PEERS="
netcat-openbsd:nc
socat:socat
curl:curl
iproute2:ip"
NEED_TESTS="
libcmocka-dev:cmocka.h,libcmocka.so
pkg-config:pkg-config
libibverbs-dev:infiniband/verbs.h
librdmacm-dev:rdma/rdma_cma.h
clang:clang,clang++
libclang-rt-dev:-fsanitize=fuzzer
clang-format:clang-format
spin:spin
mandoc:mandoc
gdb:gdb"
NEED_VM="
qemu-system-x86:qemu-system-x86_64"

need_probe()
{
	case $1 in
	*.h) echo "#include <$1>" | gcc -include stddef.h -include stdarg.h -include stdint.h \
		-include setjmp.h -E -x c - >/dev/null 2>&1 ;;
	lib*) [ -e "$(gcc -print-file-name="$1" 2>/dev/null)" ] ;;
	-f*) echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d && n ? 0 : 0; }' |
		clang -x c "$1" - -o /dev/null >/dev/null 2>&1 ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

# need_missing LIST: the packages of LIST that have a failing probe
need_missing()
{
	local entry probe

	for entry in $1; do
		for probe in $(echo "${entry#*:}" | tr , ' '); do
			if ! need_probe "$probe"; then
				echo "${entry%%:*}"
				break
			fi
		done
	done
}

# need_install LIST: installs what is missing; if that is impossible says what it is and returns 2
need_install()
{
	local missing log
	local -a apt

	missing=$(need_missing "$1")
	[ -z "$missing" ] && return 0
	# shellcheck disable=SC2086 # words
	echo "missing:" $missing
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		log=$(mktemp)
		apt=(timeout 600 env DEBIAN_FRONTEND=noninteractive apt-get -y
			-o DPkg::Lock::Timeout=120 -o Acquire::Retries=2)
		# The package lists of a fresh machine are empty or old: a second try with new ones.
		# shellcheck disable=SC2086
		"${apt[@]}" install --no-install-recommends $missing >"$log" 2>&1 </dev/null ||
			{ "${apt[@]}" update && "${apt[@]}" install --no-install-recommends $missing; } \
				>>"$log" 2>&1 </dev/null || tail -n 15 "$log"
		rm -f "$log"
	fi
	missing=$(need_missing "$1")
	[ -z "$missing" ] && return 0
	# shellcheck disable=SC2086
	echo "still missing, as root run: apt-get install" $missing
	return 2
}
