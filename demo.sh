#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Builds gpunet and shows a kernel that answers nc, curl and a Python client over TCP and UNIX sockets: on the
# GPU where there are an NVIDIA GPU and nvcc, else on the CPU device. Exit code 0 if every answer was right,
# 1 if not, 2 if something is missing that could not be installed.

set -u
cd "$(dirname "$0")" || exit 2
. tests/need.sh

if [ $# != 0 ]; then
	echo "usage: ./demo.sh"
	[ "$1" = --help ] && exit 0
	exit 2
fi

NEED_DEMO="
netcat-openbsd:nc
curl:curl"

bin=build/bin
work=$(mktemp -d) || exit 2
server=
wrong=0
trap '[ -n "$server" ] && kill -9 "$server" 2>/dev/null; rm -rf "$work"' EXIT

say()
{
	printf '\n== %s\n' "$*"
}

# verdict TEXT CODE
verdict()
{
	if [ "$2" = 0 ]; then
		echo "   ok: $1"
	else
		echo "   WRONG: $1"
		sed 's/^/   | /' "$work/server.err" | tail -n 10
		wrong=$((wrong + 1))
	fi
}

build_it()
{
	local log=build/demo.log

	mkdir -p build
	if ! timeout 120 cmake --preset release >"$log" 2>&1 ||
		! timeout 900 cmake --build --preset release --target program_gpunet \
			--target program_example-http >>"$log" 2>&1; then
		tail -n 40 "$log"
		return 1
	fi
	grep '^-- CUDA:' "$log" | sed 's/^-- /   /'
}

# serve COMMAND…: starts a server whose kernel listens; sets $server and $url
serve()
{
	local i

	echo "   \$ $*"
	: >"$work/server.out"
	"$@" >>"$work/server.out" 2>"$work/server.err" </dev/null &
	server=$!
	url=
	for ((i = 0; i < 300; i++)); do
		url=$(sed -n 's/^listening on //p' "$work/server.out")
		[ -n "$url" ] && break
		kill -0 "$server" 2>/dev/null || break
		sleep 0.1
	done
	if [ -z "$url" ]; then
		verdict "it listens" 1
		stop_quietly
		return 1
	fi
	echo "   listening on $url"
}

stop_quietly()
{
	kill -9 "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	server=
}

# The server leaves cleanly on SIGTERM.
stop()
{
	local i code

	kill -TERM "$server"
	for ((i = 0; i < 50; i++)); do
		kill -0 "$server" 2>/dev/null || break
		sleep 0.1
	done
	if kill -0 "$server" 2>/dev/null; then
		stop_quietly
		verdict "the server ends on SIGTERM" 1
		return
	fi
	wait "$server"
	code=$?
	server=
	[ $code = 0 ]
	verdict "the server ends on SIGTERM, exit code $code" $?
}

# same COMMAND…: sends $work/sent into the command, which must give it back
same()
{
	echo "   \$ head -c $(stat -c %s "$work/sent") /dev/urandom | $*"
	timeout 60 "$@" <"$work/sent" >"$work/back" 2>"$work/client.err"
	cmp "$work/sent" "$work/back"
	verdict "the kernel gave the same bytes back" $?
}

python_client()
{
	cat >"$work/client.py" <<'END'
import os
import socket
import sys

kind, where = sys.argv[1:]
if kind == "unix":
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(30)
    peer.connect(where)
else:
    host, port = where.rsplit(":", 1)
    peer = socket.create_connection((host, int(port)), 30)
for size in (1, 100, 1000, 65536):
    sent = os.urandom(size)
    peer.sendall(sent)
    back = b""
    while len(back) < size:
        part = peer.recv(size - len(back))
        if not part:
            sys.exit("the kernel closed too early")
        back += part
    if back != sent:
        sys.exit("other bytes came back")
peer.shutdown(socket.SHUT_WR)
if peer.recv(1) != b"":
    sys.exit("bytes after the end")
END
	echo "   \$ python3 client.py $1 $2"
	timeout 60 python3 "$work/client.py" "$1" "$2"
	verdict "four messages came back to Python, then the end of the stream" $?
}

demo_tcp()
{
	local host port

	say "a kernel echoes TCP"
	serve "$bin/gpunet" echo tcp://127.0.0.1:0 || return
	port=${url##*:}
	host=127.0.0.1
	same nc -N "$host" "$port"
	python_client tcp "$host:$port"
	stop
}

# The other direction, and no CPU program at either end: a kernel is the client of a kernel.
demo_client()
{
	say "a kernel connects to a kernel"
	serve "$bin/gpunet" echo tcp://127.0.0.1:0 || return
	same "$bin/gpunet" cat "$url"
	stop
}

demo_unix()
{
	say "a kernel echoes a UNIX socket"
	serve "$bin/gpunet" echo "unix://$work/echo.sock" || return
	same nc -N -U "$work/echo.sock"
	python_client unix "$work/echo.sock"
	stop
}

demo_http()
{
	local page codes right

	say "a kernel answers HTTP"
	serve "$bin/example-http" tcp://127.0.0.1:0 || return
	page=http://127.0.0.1:${url##*:}/
	echo "   \$ curl $page $page"
	timeout 60 curl -sS --max-time 30 -o "$work/one" -o "$work/two" \
		-w '%{http_code} connections=%{num_connects}\n' "$page" "$page" >"$work/codes"
	[ -f "$work/one" ] && sed 's/^/   /' "$work/one" | head -n 8
	# Two pages over one connection: the second needs no new one.
	codes=$(tr '\n' ' ' <"$work/codes")
	[ "$codes" = "200 connections=1 200 connections=0 " ] && grep -q '<h1>' "$work/one" &&
		cmp -s "$work/one" "$work/two"
	right=$?
	verdict "curl got the page twice over one connection: $codes" $right
	stop
}

say "building"
need_install "$NEED_BUILD $NEED_DEMO" || exit 2
build_it || exit 1
head -c 1000000 /dev/urandom >"$work/sent"
timeout 30 "$bin/gpunet" info | sed 's/^/   /'
demo_tcp
demo_unix
demo_client
demo_http
say "all of it took $SECONDS s"
if [ $wrong != 0 ]; then
	echo "$wrong answers were wrong"
	exit 1
fi
echo "every answer was right"
