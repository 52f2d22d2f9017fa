#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Installs what is missing, builds and runs every test; the last line is "N passed, N failed" (and
# ", N skipped"). See --help.

set -u
cd "$(dirname "$0")" || exit 2
. tests/need.sh

usage()
{
	cat <<'END'
usage: ./check.sh [--long] [--no-vm]
       ./check.sh --gpu-bundle DIR
       ./check.sh --help

Installs what is missing (as root, with apt), builds gpunet plain, with ASan+UBSan and with TSan, and
runs all tests. On two cores that takes some 23 minutes.

  --long            runs the long tests whole
  --no-vm           leaves out the two virtual machines, which QEMU emulates
  --gpu-bundle DIR  only builds for CUDA and leaves in DIR what a machine with a GPU needs to run the
                    device tests: copy DIR there and start DIR/run.sh (exit code 77: no GPU)

Exit code: 0 all passed, 1 some failed, 2 usage, or something is missing that could not be installed.
Logs stay in build/check/.
END
}

long=0
vm=1
bundle=
while [ $# -gt 0 ]; do
	case $1 in
	--long) long=1 ;;
	--no-vm) vm=0 ;;
	--gpu-bundle)
		[ $# -ge 2 ] || { usage >&2; exit 2; }
		bundle=$2
		shift
		;;
	--help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done

# The tests set the options that they mean to set.
for name in ${!GPUNET_*}; do
	unset "$name"
done
flags=()
if [ $long = 1 ]; then
	export GPUNET_LONG=1
	flags=(--long)
fi

jobs=$(nproc)
logs=build/check
mkdir -p "$logs"
passed=0 failed=0 skipped=0

# What runs beside is ended with the script.
# shellcheck disable=SC2317 # a trap calls it
interrupted()
{
	# shellcheck disable=SC2046 # numbers
	kill $(jobs -p) 2>/dev/null
	exit 130
}
trap interrupted INT TERM

# run NAME LIMIT command…: output to a log, a line with the time it took
run()
{
	local name=$1 limit=$2 start=$SECONDS result

	shift 2
	[ $long = 1 ] && limit=$((limit * 20))
	# Not in the foreground: a trap would wait for its end.
	timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null &
	wait $!
	result=$?
	printf '%-24s %4d s' "$name" $((SECONDS - start))
	[ $result = 124 ] && printf '  (ended after its limit of %d s)' "$limit"
	return $result
}

# One thing that works or not, such as a build.
step()
{
	if run "$@"; then
		echo "  ok"
		passed=$((passed + 1))
	else
		echo "  FAILED"
		tail -n 40 "$logs/$1.log"
		failed=$((failed + 1))
		return 1
	fi
}

# A suite: counts its tests' lines, as ctest or as "PASS name" prints them. One that ends badly without a failed
# test, or that ran no test at all, is a failure itself.
suite()
{
	local name=$1 result p f s

	run "$@"
	result=$?
	# What a test prints under ctest does not count, even if it looks like a result.
	read -r p f s < <(awk '
		/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
			ctest = 1
			if (/ Passed +[0-9.]+ sec/) cp++
			else if (/\*\*\*Skipped /) cs++
			else cf++
		}
		/^PASS / { p++ }
		/^FAIL / { f++ }
		/^SKIP / { s++ }
		END {
			if (ctest) print cp + 0, cf + 0, cs + 0
			else print p + 0, f + 0, s + 0
		}' "$logs/$name.log")
	if [ "$result" != 0 ] && [ "$f" = 0 ] || [ $((p + f + s)) = 0 ]; then
		f=$((f + 1))
	fi
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	echo "  $p passed, $f failed, $s skipped"
	grep -E '^SKIP |\*\*\*Skipped ' "$logs/$name.log"
	if [ "$f" != 0 ]; then
		grep -vE '^(PASS|SKIP) | Passed +[0-9.]+ sec|^ +Start ' "$logs/$name.log" | tail -n 120
	fi
}

# aside NAME function…: beside what follows, with what that leaves of the processors: most tests wait most of their time
aside()
{
	local name=$1

	shift
	rm -f "$logs/$name.counts"
	(
		trap interrupted INT TERM
		renice -n 19 -p "$BASHPID" >/dev/null
		# shellcheck disable=SC2030 # joined reads them
		passed=0 failed=0 skipped=0
		"$@"
		echo "$passed $failed $skipped" >"$logs/$name.counts"
	) >"$logs/$name.aside" 2>&1 &
}

# joined NAME: waits for what runs aside; its lines and its counts, as if it had run now; fails if something in it failed
joined()
{
	local p=0 f=1 s=0

	wait
	cat "$logs/$1.aside"
	[ -f "$logs/$1.counts" ] && read -r p f s <"$logs/$1.counts"
	# shellcheck disable=SC2031
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	[ "$f" = 0 ]
}

summary()
{
	local line="$passed passed, $failed failed"

	[ "$skipped" != 0 ] && line="$line, $skipped skipped"
	echo "all of it: $SECONDS s"
	echo "$line"
	[ "$failed" = 0 ] && [ "$passed" != 0 ]
	exit
}

# build PRESET [options of the build…]
build()
{
	local preset=$1

	shift
	step "$preset-configure" 120 cmake --preset "$preset" \
		-DGPUNET_TEST_TIMEOUT=$((long ? 1800 : 120)) &&
		step "$preset-build" 1500 cmake --build --preset "$preset" -j "$jobs" "$@"
}

if [ -n "$bundle" ]; then
	need_install "$NEED_BUILD" || exit 2
	. tests/bundle.sh
	summary
fi

need_install "$NEED_BUILD $NEED_PEERS $NEED_TESTS" || exit 2

# gcc 12's TSan cannot place its shadow under 32 bits of address randomisation.
bits=$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)
wrapper=
[ "$bits" -gt 28 ] && wrapper="setarch -R"

# real_programs PRESET FOLDER LIMIT SLOWNESS
real_programs()
{
	suite "$1-peers" "$3" python3 -u tests/peers/run.py --gpunet "$2/bin/gpunet" --slow "$4" \
		--jobs "$jobs" --wrapper "$wrapper" "${flags[@]}"
}

# tests PRESET [options of ctest…]
tests()
{
	local preset=$1

	shift
	suite "$preset-tests" $((600 / jobs + 300)) ctest --preset "$preset" -j "$jobs" "$@" --no-tests=error
}

# While the tests of one build run, the next one is built.
build release
built=$?
aside asan build asan
if [ $built = 0 ]; then
	tests release
	real_programs release build 240 1
fi
joined asan
built=$?
aside tsan build tsan
if [ $built = 0 ]; then
	tests asan
	real_programs asan build-asan 360 3
fi
if joined tsan; then
	tests tsan
	real_programs tsan build-tsan 480 5
fi
# The other compiler: its warnings, and what its optimizer makes of the same code.
aside clang build clang
aside model suite model 700 tests/model/run.sh -j "$jobs"
if [ $vm = 1 ]; then
	# Without QEMU the suite says so and is skipped.
	need_install "$NEED_VM"
	suite vm 560 python3 -u tests/vm/run.py "${flags[@]}"
fi
joined model
if joined clang; then
	tests clang -L 'unit|device'
	step sim-compilers 60 tests/sim/same.sh build/tests/sim/sim build-clang/tests/sim/sim
fi
summary
