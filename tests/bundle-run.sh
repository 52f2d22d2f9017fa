#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs a GPU bundle (made by check.sh --gpu-bundle): the device tests, then ordinary programs against
# kernels on the GPU. Ends with "N passed, N failed" (and ", N skipped"); exit code 0 if none failed, 1 if some
# have, 2 usage, 77 if there is no GPU: then it says so and runs nothing.
#
# usage: run.sh [--only device|peers] [--limit SECONDS for one device test]

set -u
cd "$(dirname "$0")" || exit 2

only=
limit=60
while [ $# -ge 2 ]; do
	case $1 in
	--only) only=$2 ;;
	--limit) limit=$2 ;;
	*) break ;;
	esac
	shift 2
done
if [ $# != 0 ]; then
	echo "usage: run.sh [--only device|peers] [--limit SECONDS]" >&2
	exit 2
fi

missing=$(bin/gpunet doctor | sed -n 's/^cuda device *missing *//p')
if [ -n "$missing" ]; then
	echo "there is no GPU here, so nothing is run: $missing" >&2
	exit 77
fi

passed=0 failed=0 skipped=0
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT

result()
{
	case $1 in
	PASS) passed=$((passed + 1)) ;;
	FAIL) failed=$((failed + 1)) ;;
	SKIP) skipped=$((skipped + 1)) ;;
	esac
	printf '%s %s\n' "$1" "$2"
}

# device_test FILE [NAME=VALUE]
device_test()
{
	local file=$1 start=$SECONDS code

	timeout -k 5 "$limit" env ${2:+"$2"} stdbuf -oL -eL "$file" >"$log" 2>&1 </dev/null
	code=$?
	file="$file${2:+ under $2}"
	case $code in
	0) result PASS "$file ($((SECONDS - start)) s)" ;;
	77) result SKIP "$file $(tail -n 1 "$log")" ;;
	124 | 137) result FAIL "$file: ended after its limit of $limit s" ;;
	*) result FAIL "$file: exit code $code" ;;
	esac
	case $code in
	0 | 77) ;;
	*) tail -n 30 "$log" ;;
	esac
}

device_tests()
{
	local file name count=0

	for file in device/*; do
		[ -x "$file" ] || continue
		count=$((count + 1))
		device_test "$file"
	done
	[ $count != 0 ] || result FAIL "device: there are no tests"
	# Those whose launching thread has nothing to do for its kernel.
	while read -r name; do
		if [ -x "device/$name" ]; then
			device_test "device/$name" CUDA_LAUNCH_BLOCKING=1
		else
			result FAIL "device/$name of blocking.txt: there is no such test"
		fi
	done <blocking.txt
}

count()
{
	grep -c "^$1 " "$log"
}

peers()
{
	local code

	timeout -k 5 800 python3 -u peers/run.py --gpunet bin/gpunet --device cuda 2>&1 </dev/null |
		tee "$log"
	code=${PIPESTATUS[0]}
	passed=$((passed + $(count PASS))) failed=$((failed + $(count FAIL)))
	skipped=$((skipped + $(count SKIP)))
	if ! grep -qE '^(PASS|FAIL) ' "$log"; then
		result FAIL "peers: no result, exit code $code"
	elif [ "$code" != 0 ] && [ "$(count FAIL)" = 0 ]; then
		result FAIL "peers: exit code $code"
	fi
}

date -u '+%Y-%m-%d %H:%M UTC'
cat commit
if command -v nvidia-smi >/dev/null; then
	timeout 30 nvidia-smi --query-gpu=name,driver_version,pci.bus_id --format=csv,noheader
else
	echo "no nvidia-smi here"
fi
[ "$only" = peers ] || device_tests
[ "$only" = device ] || [ ! -f peers/run.py ] || peers
line="$passed passed, $failed failed"
[ $skipped = 0 ] || line="$line, $skipped skipped"
echo "$line"
[ $failed = 0 ] && [ $passed != 0 ]
