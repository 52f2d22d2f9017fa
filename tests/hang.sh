#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# hang.sh PID [gpunet]: what the threads of a test that hangs are doing, and its sockets; the test starts it when its time is over.

pid=$1
tool=$2

echo "---- process $pid hangs; load: $(cat /proc/loadavg)"
for task in /proc/"$pid"/task/*; do
	# State, times in user mode and in the kernel; where it waits.
	echo "${task##*/} $(cat "$task/comm") $(sed 's/.*) //' "$task/stat" | cut -d' ' -f1,12,13)" \
		"$(cat "$task/wchan") $(cut -d' ' -f1 "$task/syscall")"
done
[ -x "$tool" ] && timeout 5 "$tool" stat "$pid"
if command -v gdb >/dev/null; then
	timeout -s KILL 20 gdb -nx -q -batch -p "$pid" -ex 'thread apply all backtrace 24' 2>&1 |
		grep -vE '^(\[New LWP|\[Thread debugging|Using host|warning: |#[0-9]+ .*(futex_abstimed|pthread_cond_))'
fi
echo "---- end of process $pid"
