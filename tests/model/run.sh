#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# Verifies the models of docs/bus.md with spin, and that each mutant of a rule is rejected.
#
#   run.sh [-j jobs] [-t seconds] [-k] [model[/case]]...
#
# A model is a .pml file here; its head comment lists VARIANT and MUTANT cases. -t: limit of one case (120 s). -k: keeps the
# temporary folder, with the trails of rejected cases. Exit status: 0 all as expected, 1 not, 77 skipped.
set -u

here=$(cd "$(dirname "$0")" && pwd)
jobs=2
limit=120
keep=

# one case: FILE NAME MACROS WANT, in a folder of its own
one()
{
	file=$1 name=$2 macros=$3 want=$4
	model=$(basename "$file" .pml)
	dir=$MODEL_TMP/$model-$name
	title=model:$model
	[ "$want" = pass ] || title=$title/mutant-$name
	[ "$name" = base ] || [ "$want" = fail ] || title=$title/$name
	if ! { mkdir -p "$dir" && cd "$dir" && cp "$file" "$here/memory.pmh" .; }; then
		echo "FAIL $title: no temporary folder"
		return
	fi
	# shellcheck disable=SC2086 # macros are several words
	if ! timeout "$MODEL_LIMIT" spin $macros -a "$model.pml" >spin.log 2>&1 || [ ! -f pan.c ]; then
		echo "FAIL $title: spin does not take it: $(head -n 1 spin.log)"
		return
	fi
	# Mutants fall early, so their time is the compiler's.
	opt=-O0
	[ "$want" = fail ] || opt=-O1
	if ! timeout "$MODEL_LIMIT" "${CC:-cc}" $opt -w -DSAFETY -DNOFAIR -DMEMLIM=1800 -o pan pan.c >cc.log 2>&1; then
		echo "FAIL $title: pan.c does not compile: $(head -n 1 cc.log)"
		return
	fi
	start=$(date +%s.%N)
	timeout "$MODEL_LIMIT" ./pan -m1000000 -n >pan.log 2>&1
	rc=$?
	took=$(echo "$start $(date +%s.%N)" | awk '{ printf "%.1f", $2 - $1 }')
	states=$(awk '/states, stored/ { print $1; exit }' pan.log)
	why=$(sed -n 's/^pan:[0-9]*: \(.*\) (at depth.*/\1/p' pan.log | head -n 1)
	if [ $rc -eq 124 ]; then
		echo "FAIL $title: over its limit of $MODEL_LIMIT s"
	elif grep -q 'search depth too small\|out of memory\|memory limit' pan.log; then
		echo "FAIL $title: not searched whole (depth or memory)"
	elif ! grep -q 'errors: [0-9]' pan.log; then
		echo "FAIL $title: pan ended with status $rc: $(tail -n 1 pan.log)"
	elif [ "$want" = pass ] && grep -q 'errors: 0$' pan.log; then
		echo "PASS $title ($states states, $took s)"
	elif [ "$want" = pass ]; then
		echo "FAIL $title: $why"
	elif grep -q 'errors: 0$' pan.log; then
		echo "FAIL $title survives ($states states, $took s)"
	elif echo "$why" | grep -q '^assertion violated\|^invalid end state'; then
		echo "PASS $title rejected: $why"
	else
		echo "FAIL $title: an error of another kind: $why"
	fi
	[ -n "$MODEL_KEEP" ] || rm -rf "$dir"
}

# prints FILE NAME WANT MACROS for the cases of a model
cases()
{
	file=$here/$1.pml
	only=$2
	{
		echo "base pass"
		sed -n 's/^ \* VARIANT \([a-z0-9_]*\): \(\(-D[A-Z0-9_]* *\)*\).*/\1 pass \2/p' "$file"
		# a mutant that ends in "under X" needs the variant's macro
		sed -n 's/^ \* MUTANT \([A-Z0-9_]*\): .*under \([A-Z0-9_]*\)$/\1 fail -DM_\1 -D\2/p; t
			s/^ \* MUTANT \([A-Z0-9_]*\): .*/\1 fail -DM_\1/p' "$file"
	} | while read -r name want macros; do
		[ -z "$only" ] || [ "$only" = "$name" ] || continue
		echo "$file $name $want${macros:+ $macros}"
	done
}

if [ "${1:-}" = --one ]; then
	shift
	file=$1 name=$2 want=$3
	shift 3
	one "$file" "$name" "$*" "$want"
	exit 0
fi

while getopts j:t:k opt; do
	case $opt in
	j) jobs=$OPTARG ;;
	t) limit=$OPTARG ;;
	k) keep=yes ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))

for tool in spin "${CC:-cc}"; do
	if ! command -v "$tool" >/dev/null 2>&1; then
		echo "SKIP model: no $tool on this machine (Debian: apt-get install $tool)"
		exit 77
	fi
done

MODEL_TMP=$(mktemp -d) || exit 1
MODEL_LIMIT=$limit
MODEL_KEEP=$keep
export MODEL_TMP MODEL_LIMIT MODEL_KEEP
if [ -n "$keep" ]; then
	echo "# kept in $MODEL_TMP"
else
	trap 'rm -rf "$MODEL_TMP"' EXIT
	trap 'exit 1' INT TERM
fi

if [ $# -eq 0 ]; then
	for f in "$here"/*.pml; do
		set -- "$@" "$(basename "$f" .pml)"
	done
fi
for arg in "$@"; do
	model=${arg%%/*}
	only=
	case $arg in */*) only=${arg#*/} ;; esac
	[ -f "$here/$model.pml" ] || { echo "FAIL model:$model: no such model"; continue; }
	cases "$model" "$only"
done >"$MODEL_TMP/cases"
grep '^FAIL' "$MODEL_TMP/cases"
grep -v '^FAIL' "$MODEL_TMP/cases" | xargs -P "$jobs" -L 1 "$here/run.sh" --one | tee "$MODEL_TMP/results"

wanted=$(wc -l <"$MODEL_TMP/cases")
good=$(grep -c '^PASS' "$MODEL_TMP/results")
echo "# $good of $wanted cases as expected"
[ "$wanted" -gt 0 ] && [ "$good" -eq "$wanted" ]
