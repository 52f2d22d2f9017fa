# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # sourced by check.sh, whose variables and functions it uses
#
# check.sh --gpu-bundle DIR: the CUDA build of the device tests, the tool, the examples and the benchmarks,
# the real-program tests, and a script that runs them where there is a GPU and no package manager.

bundle_fill()
{
	local out=$1 file

	# Nothing but a bundle is replaced.
	if [ -e "$out" ] && [ ! -f "$out/commit" ] && [ -n "$(ls -A "$out")" ]; then
		echo "$out exists and is no bundle"
		return 1
	fi
	rm -rf "$out.new"
	mkdir -p "$out.new/bin" "$out.new/device"
	for file in build-cuda/bin/*; do
		objcopy --strip-all "$file" "$out.new/bin/${file##*/}" || return 1
	done
	for file in build-cuda/tests/device/cuda_*; do
		[ -x "$file" ] || continue
		objcopy --strip-all "$file" "$out.new/device/${file##*/cuda_}" || return 1
	done
	if [ -f tests/peers/run.py ]; then
		mkdir "$out.new/peers"
		cp -R tests/peers/. "$out.new/peers/" || return 1
		rm -rf "$out.new/peers/__pycache__"
	fi
	cp tests/bundle-run.sh "$out.new/run.sh" || return 1
	chmod +x "$out.new/run.sh"
	cp bench.sh "$out.new/bench.sh" || return 1
	git log -1 --format='commit %H%ncommitted %cI' >"$out.new/commit" 2>/dev/null ||
		echo "commit unknown" >"$out.new/commit"
	git diff --quiet HEAD 2>/dev/null || echo "with uncommitted changes" >>"$out.new/commit"
	rm -rf "$out" && mv "$out.new" "$out"
}

# The target has the C library and the driver, nothing else.
bundle_needs()
{
	local out=$1 file lib bad=0

	for file in "$out"/bin/* "$out"/device/*; do
		[ -f "$file" ] || continue
		for lib in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
			case $lib in
			libc.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | libm.so.6 | ld-linux*) ;;
			*)
				echo "$file needs $lib"
				bad=1
				;;
			esac
		done
	done
	return $bad
}

bundle_size()
{
	local kib

	kib=$(du -sk "$1" | cut -f1)
	echo "$kib KiB"
	[ "$kib" -lt $((50 * 1024)) ]
}

bundle_tests()
{
	local tests
	tests=$(find "$1/device" -type f | wc -l)
	echo "$tests device tests"
	[ "$tests" -gt 0 ] && [ -x "$1/bin/gpunet" ]
}

bundle=$(realpath -m "$bundle")
if build cuda --target gpunet_gpu; then
	# The functions run in this shell's copy: run() starts commands with timeout, which needs a program.
	export -f bundle_fill bundle_needs bundle_size bundle_tests
	for part in fill needs size tests; do
		# shellcheck disable=SC2016
		step "bundle-$part" 120 bash -c 'bundle_"$1" "$2"' bash "$part" "$bundle" || break
		tail -n 1 "$logs/bundle-$part.log"
	done
fi
