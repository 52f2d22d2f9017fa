#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds the benchmark of sockets and prints its table: each figure of a kernel's sockets beside what a user would
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
  --only ROWS  some rows only, as build/bin/bench-sock --list names them

Bars ("ok", "MISSED") are for a GPU; the figures of the CPU device are recorded.
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
	mkdir -p build
	if ! timeout 120 cmake --preset release >build/bench.log 2>&1 ||
		! timeout 1500 cmake --build --preset release --target program_bench-sock \
			>>build/bench.log 2>&1; then
		tail -n 40 build/bench.log
		return 1
	fi
	grep '^-- CUDA:' build/bench.log | sed 's/^-- //'
}

if [ -f CMakeLists.txt ]; then
	build_it || exit 2
	program=build/bin/bench-sock
	commit=$(git log -1 --format='commit %H' 2>/dev/null)
	git diff --quiet HEAD 2>/dev/null || commit="$commit with uncommitted changes"
else
	program=bin/bench-sock
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

# measure DEVICE ROW LIMIT [command before the program…]
measure()
{
	local dev=$1 row=$2 limit=$3 code

	shift 3
	# The program has limits of its own; this one is for a process that no signal handler reaches.
	timeout -k 5 $((limit * 2 + 30)) "$@" "$program" --device "$dev" "${quick[@]}" --json "$lines" "$row" </dev/null
	code=$?
	count=$((count + 1))
	if [ $code != 0 ]; then
		echo "$row: not measured to its end (exit code $code)"
		missing=$((missing + 1))
	fi
}

"$program" --header
while read -r row limit; do
	if [ -n "$only" ]; then
		case ,$only, in
		*,"$row",*) ;;
		*) continue ;;
		esac
	elif [ "$row" = curves ] && [ $curves = 0 ]; then
		continue
	fi
	measure "$device" "$row" "$limit"
done < <("$program" --list)
# Recorded beside a GPU's figures: the same kernel on the CPU device, on two cores.
if [ "$device" = cuda ] && [ -z "$only" ]; then
	pin=()
	command -v taskset >/dev/null && pin=(taskset -c "0,1")
	measure cpu echo 60 "${pin[@]}"
fi

[ -z "$json" ] || cp "$lines" "$json"
if [ $curves = 1 ] && [ -f bench/curves.sh ] && command -v gnuplot >/dev/null; then
	bench/curves.sh "$lines" docs
fi
echo "all of it: $SECONDS s, $count rows, $missing not measured"
[ $count != 0 ] && [ $missing = 0 ]
