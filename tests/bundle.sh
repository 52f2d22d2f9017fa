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
	mkdir -p "$out.new/bin" "$out.new/device" "$out.new/lib"
	for file in build-cuda/bin/* build-cuda/device/*; do
		# What has no kernels for a GPU is of no use there, but for what the real-program cases start.
		readelf -SW "$file" | grep -q '\.nv_fatbin' || [ "${file##*/}" = example-verbs ] || continue
		objcopy --strip-all "$file" "$out.new/${file#build-cuda/}" || return 1
	done
	# A library lies there under the name by which programs ask for it.
	for file in build-cuda/lib/lib*.so.*; do
		[ -L "$file" ] || cp "$file" "$out.new/lib/$(bundle_soname "$file")" || return 1
	done
	strip --strip-unneeded "$out.new"/lib/libgpunet.so.* || return 1
	if [ -f tests/peers/run.py ]; then
		mkdir "$out.new/peers"
		cp -R tests/peers/. "$out.new/peers/" || return 1
		rm -rf "$out.new/peers/__pycache__"
	fi
	cp tests/bundle-run.sh "$out.new/run.sh" || return 1
	chmod +x "$out.new/run.sh"
	cp tests/device/blocking.txt "$out.new/" || return 1
	cp bench.sh "$out.new/bench.sh" || return 1
	git log -1 --format='commit %H%ncommitted %cI' >"$out.new/commit" 2>/dev/null ||
		echo "commit unknown" >"$out.new/commit"
	git diff --quiet HEAD 2>/dev/null || echo "with uncommitted changes" >>"$out.new/commit"
	rm -rf "$out" && mv "$out.new" "$out"
}

bundle_soname()
{
	readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'
}

# The target has the C library and the driver. Two libraries more lie in the bundle and are found there, wherever
# it lies and whatever the environment says.
bundle_needs()
{
	local out=$1 moved file lib found bad=0

	moved=$(mktemp -d) && cp -a "$out" "$moved/elsewhere" || return 1
	for file in "$moved"/elsewhere/*/*; do
		readelf -h "$file" >/dev/null 2>&1 || continue
		for lib in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
			case $lib in
			libc.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | libm.so.6 | ld-linux*) ;;
			libgpunet.so.* | libcudart.so.*)
				found=$(LD_LIBRARY_PATH=/nowhere ldd "$file" | awk -v lib="$lib" '$1 == lib { print $3 }')
				[ "$(realpath -m "$found")" = "$(realpath "$moved")/elsewhere/lib/$lib" ] && continue
				echo "${file#"$moved"/elsewhere/}: $lib is ${found:-not found}, not lib/$lib"
				bad=1
				;;
			*)
				echo "${file#"$moved"/elsewhere/} needs $lib"
				bad=1
				;;
			esac
		done
	done
	rm -rf "$moved"
	return $bad
}

# A moved bundle starts: a program of each kind runs, or says that there is no GPU.
bundle_starts()
{
	local out=$1 moved code bad=0

	moved=$(mktemp -d) && cp -a "$out" "$moved/elsewhere" || return 1
	env -u LD_LIBRARY_PATH timeout 60 "$moved/elsewhere/device/sock_echo"
	code=$?
	[ $code = 0 ] || [ $code = 77 ] || bad=1
	echo "device/sock_echo: exit code $code"
	env -u LD_LIBRARY_PATH timeout 60 "$moved/elsewhere/bin/gpunet" info || bad=1
	# Where there is no GPU run.sh says so once.
	if "$moved/elsewhere/bin/gpunet" doctor | grep -q '^cuda device *missing'; then
		env -u LD_LIBRARY_PATH timeout 60 "$moved/elsewhere/run.sh" >"$moved/said" 2>&1
		code=$?
		cat "$moved/said"
		[ $code = 77 ] && [ "$(wc -l <"$moved/said")" = 1 ] || bad=1
	fi
	# The bench and the real programs, on the CPU device.
	(
		cd "$moved/elsewhere" && unset LD_LIBRARY_PATH || exit 1
		timeout 60 ./bench.sh --device cpu --quick --only echo &&
			timeout 60 python3 peers/run.py --gpunet bin/gpunet --only '^(echo_bytes|example_echo)_tcp$'
	) || bad=1
	rm -rf "$moved"
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
	export -f bundle_fill bundle_soname bundle_needs bundle_starts bundle_size bundle_tests
	for part in fill needs starts size tests; do
		# shellcheck disable=SC2016
		step "bundle-$part" 120 bash -c 'bundle_"$1" "$2"' bash "$part" "$bundle" || break
		tail -n 1 "$logs/bundle-$part.log"
	done
fi
