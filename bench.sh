#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds the benchmarks of sockets and of the software RNIC and prints their table: each figure beside what a user would
# take instead, both measured in this run. Also runs from a GPU bundle (check.sh --gpu-bundle), without sources.

set -u
cd "$(dirname "$0")" || exit 2

usage()
{
	cat <<'END'
usage: ./bench.sh [--device cpu|cuda] [--json FILE] [--quick] [--curves] [--only ROW,...]

  --device D   where kernels run [cuda if there is a GPU and this build has kernels for it, else cpu]
  --json FILE  also writes each figure as a line of JSON, to a new FILE
  --quick      fewer and shorter runs, under two minutes in all
  --curves     also latency and bandwidth over the message size; with gnuplot, draws them into docs/
  --only ROWS  some rows only, as build/bin/bench-sock --list and build/bin/bench-rnic --list name them

Bars ("ok", "MISSED") of sockets are for a GPU; the figures of the CPU device are recorded. The peer of the software RNIC is
ucx_perftest (Debian: ucx-utils), which is installed if it can be.
Exit code: 0 each row was measured, 1 some were not, 2 usage or no build.
END
}

device="" json="" only="" quick=() curves=0
while [ $# -gt 0 ]; do
	case $1 in
	--device | --json | --only)
		[ $# -ge 2 ] || { usage >&2; exit 2; }
		case $1 in
		--device) device=$2 ;;
		--json) json=$2 ;;
		--only) only=$2 ;;
		esac
		shift
		;;
	--quick) quick=(--quick) ;;
	--curves) curves=1 ;;
	--help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
case $device in
'' | cpu | cuda) ;;
*) usage >&2; exit 2 ;;
esac

# Options of networks would change what is measured.
for name in ${!GPUNET_*}; do
	unset "$name"
done

build_it()
{
	# shellcheck source=tests/need.sh
	. tests/need.sh
	need_install "$NEED_BUILD" || return 1
	need_install "ucx-utils:ucx_perftest" || echo "note: no ucx_perftest, the software RNIC is measured without its peer"
	mkdir -p build
	if ! timeout 120 cmake --preset release >build/bench.log 2>&1 ||
		! timeout 1500 cmake --build --preset release --target program_bench-sock program_bench-rnic \
			>>build/bench.log 2>&1; then
		tail -n 40 build/bench.log
		return 1
	fi
	grep '^-- CUDA:' build/bench.log | sed 's/^-- //'
}

if [ -f CMakeLists.txt ]; then
	build_it || exit 2
	program=build/bin/bench-sock rnic=build/bin/bench-rnic
	commit=$(git log -1 --format='commit %H' 2>/dev/null)
	git diff --quiet HEAD 2>/dev/null || commit="$commit with uncommitted changes"
else
	program=bin/bench-sock rnic=bin/bench-rnic
	commit=$(tr '\n' ' ' <commit 2>/dev/null)
fi
[ -x "$program" ] || { echo "there is no program $program"; exit 2; }

kinds=$("$program" --kinds)
if [ -z "$device" ]; then
	device=cpu
	if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; then
		case $kinds in
		*cuda*) device=cuda ;;
		*) echo "note: there is a GPU, but this build has no kernels for it: the CPU device is measured" ;;
		esac
	fi
fi

echo "$(date -u '+%Y-%m-%d %H:%M UTC'), ${commit:-commit unknown}"
sed -n 's/^model name[^:]*: */CPU: /p' /proc/cpuinfo | head -n 1
[ "$device" = cuda ] && command -v nvidia-smi >/dev/null &&
	timeout 30 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sed 's/^/GPU: /'
echo "$("$program" --where); load $(cut -d' ' -f1-3 /proc/loadavg)"

[ -z "$json" ] || : >"$json" || exit 2
lines=$(mktemp) || exit 2
trap 'rm -f "$lines"' EXIT
missing=0 count=0

# measure PROGRAM DEVICE ROW LIMIT [command before the program…]
measure()
{
	local of=$1 dev=$2 row=$3 limit=$4 code

	shift 4
	# The program has limits of its own; this one is for a process that no signal handler reaches.
	timeout -k 5 $((limit * 2 + 30)) "$@" "$of" --device "$dev" "${quick[@]}" --json "$lines" "$row" </dev/null
	code=$?
	count=$((count + 1))
	if [ $code != 0 ]; then
		echo "$row: not measured to its end (exit code $code)"
		missing=$((missing + 1))
	fi
}

# measure_rows PROGRAM
measure_rows()
{
	local row limit

	while read -r row limit; do
		if [ -n "$only" ]; then
			case ,$only, in
			*,"$row",*) ;;
			*) continue ;;
			esac
		elif [ "$row" = curves ] && [ $curves = 0 ]; then
			continue
		fi
		measure "$1" "$device" "$row" "$limit"
	done < <("$1" --list)
}

"$program" --header
measure_rows "$program"
[ ! -x "$rnic" ] || measure_rows "$rnic"
# Recorded beside a GPU's figures: the same kernel on the CPU device, on two cores.
if [ "$device" = cuda ] && [ -z "$only" ]; then
	pin=()
	command -v taskset >/dev/null && pin=(taskset -c "0,1")
	measure "$program" cpu echo 60 "${pin[@]}"
fi

[ -z "$json" ] || cp "$lines" "$json"
if [ $curves = 1 ] && [ -f bench/curves.sh ] && command -v gnuplot >/dev/null; then
	bench/curves.sh "$lines" docs
fi
echo "all of it: $SECONDS s, $count rows, $missing not measured"
[ $count != 0 ] && [ $missing = 0 ]
