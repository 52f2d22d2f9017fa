#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Draws latency and bandwidth over the message size, from the JSON lines of "bench.sh --curves --json FILE".
#
# usage: bench/curves.sh FILE [FOLDER]     writes FOLDER/curve-latency.svg and FOLDER/curve-bandwidth.svg [docs]

set -u
if [ $# -lt 1 ] || [ $# -gt 2 ] || [ ! -f "$1" ]; then
	echo "usage: bench/curves.sh FILE [FOLDER]" >&2
	exit 2
fi
out=${2:-docs}
command -v gnuplot >/dev/null || { echo "no gnuplot here (Debian: apt install gnuplot-nox)" >&2; exit 2; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

# points NAME TRANSPORT KEY: lines "size value"
points()
{
	sed -n "/\"name\":\"$1\"/{/\"transport\":\"$2\"/s/.*\"size\":\([0-9]*\).*\"$3\":\([0-9.e+-]*\),.*/\1 \2/p}" "$file"
}

file=$1
device=$(sed -n 's/.*"name":"curve [^}]*"device":"\([a-z]*\)".*/\1/p' "$file" | head -n 1)
case $device in
cuda) place="a kernel on the GPU" ;;
cpu) place="a kernel on the CPU device" ;;
*) echo "$file has no curves: bench.sh --curves --json FILE" >&2; exit 1 ;;
esac
for via in tcp unix; do
	points "curve echo p50" $via ours >"$work/echo.$via.ours"
	points "curve echo p50" $via peer >"$work/echo.$via.peer"
	for way in to from; do
		points "curve $way the kernel" $via ours >"$work/$way.$via.ours"
		points "curve $way the kernel" $via peer >"$work/$way.$via.peer"
	done
done

gnuplot <<END
set terminal svg size 800,500 font "sans-serif,13" background "white"
set grid
set key left top
set logscale x 2
set format x "%.0b %BB"
set xlabel "message"
set style data linespoints

set output "$out/curve-latency.svg"
set title "Echo over loopback, p50: $place against a spinning CPU server"
set logscale y
set ylabel "round trip, us"
plot "$work/echo.tcp.ours" title "TCP, kernel" lc 1 pt 7 ps 0.5, \
     "$work/echo.tcp.peer" title "TCP, CPU" lc 1 dt 2 pt 6 ps 0.5, \
     "$work/echo.unix.ours" title "UNIX, kernel" lc 2 pt 7 ps 0.5, \
     "$work/echo.unix.peer" title "UNIX, CPU" lc 2 dt 2 pt 6 ps 0.5

set output "$out/curve-bandwidth.svg"
set title "One stream over loopback: $place against a CPU server that touches no byte"
unset logscale y
set yrange [0:*]
set ylabel "GB/s"
set xlabel "bytes a call of the server"
plot "$work/to.tcp.ours" title "TCP, to the kernel" lc 1 pt 7 ps 0.5, \
     "$work/to.tcp.peer" title "TCP, to the CPU" lc 1 dt 2 pt 6 ps 0.5, \
     "$work/from.tcp.ours" title "TCP, from the kernel" lc 3 pt 7 ps 0.5, \
     "$work/from.tcp.peer" title "TCP, from the CPU" lc 3 dt 2 pt 6 ps 0.5, \
     "$work/to.unix.ours" title "UNIX, to the kernel" lc 2 pt 7 ps 0.5, \
     "$work/to.unix.peer" title "UNIX, to the CPU" lc 2 dt 2 pt 6 ps 0.5, \
     "$work/from.unix.ours" title "UNIX, from the kernel" lc 4 pt 7 ps 0.5, \
     "$work/from.unix.peer" title "UNIX, from the CPU" lc 4 dt 2 pt 6 ps 0.5
END
[ -s "$out/curve-latency.svg" ] && [ -s "$out/curve-bandwidth.svg" ] &&
	echo "drawn: $out/curve-latency.svg $out/curve-bandwidth.svg"
