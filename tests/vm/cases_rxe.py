# SPDX-License-Identifier: BSD-3-Clause
"""The testbed itself: the stock programs against each other, from one machine's rxe to the other's.

When one of these fails, no case of gpunet's own means anything. Their lines have the peers' figures.
"""

import re

from vmlib import PERFTEST_ROW, PRELOAD, Packets, await_listener, case, check, figure, needs


def pair(env, server, client, port=None, seconds=60, packets=4):
    """The server's command in machine 1, the client's in 2; both must end well. Returns their output."""
    with Packets(env, packets):
        one = env.m1.start(server)
        if port:
            await_listener(env.m1, port)
        else:  # no program shows the connection manager's ports
            env.m1.run("sleep 1")
        two = env.m2.start(client)
        out = two.expect(0, seconds)
        return one.expect(0, seconds), out


@case()
def rxe_rping(env):
    server, client = pair(env, "rping -s -a 10.0.2.1 -C 10 -v", "rping -c -a 10.0.2.1 -C 10 -v", packets=40)
    for text in server, client:
        check(len(re.findall(r"ping data: rdma-ping-\d", text)) == 10, f"not 10 pings: {text[-300:]!r}")


@case()
def rxe_rping_ipv6(env):
    _, client = pair(env, "rping -s -a fd00::1 -C 3 -v", "rping -c -a fd00::1 -C 3 -v", packets=12)
    check(len(re.findall(r"ping data: rdma-ping-\d", client)) == 3, f"not 3 pings: {client[-300:]!r}")


@case()
def rxe_cm(env):
    """Connections and datagrams of the connection manager."""
    pair(env, "ucmatose -b 10.0.2.1 -c 2 -C 5", "ucmatose -b 10.0.2.2 -s 10.0.2.1 -c 2 -C 5")
    pair(env, "udaddy -b 10.0.2.1 -C 5", "udaddy -b 10.0.2.2 -s 10.0.2.1 -C 5")


@case(90)
def rxe_pingpong(env):
    """RC, UC and UD with the queue pairs' numbers exchanged over TCP."""
    for kind in "rc", "uc", "ud":
        size = 1024 if kind == "ud" else 4096  # a datagram is a packet
        command = f"ibv_{kind}_pingpong -g 1 -e -n 200 -s {size}"
        _, out = pair(env, command, command + " 10.0.2.1", 18515, packets=200)
        env.note(f"{kind} {figure(out, r'= ([0-9.]+) usec/iter')} us")


@case(120)
def rxe_perftest(env):
    for name, size, extra in (("write_bw", 65536, "-n 500"), ("read_bw", 65536, "-n 300"),
                              ("send_bw", 65536, "-n 300"), ("write_lat", 64, "-n 300"),
                              ("atomic_bw", 8, "-n 300")):
        size = "" if name.startswith("atomic") else f"-s {size}"
        command = f"ib_{name} -x 1 -F {size} {extra}"
        _, out = pair(env, command, command + " 10.0.2.1", 18515, packets=300)
        column = 6 if name.endswith("lat") else 4
        row = figure(out, PERFTEST_ROW).split()
        env.note(f"{name} {row[column - 1]} {'us' if name.endswith('lat') else 'MB/s'}")


@case()
def rxe_windows(env):
    """Memory windows of both types are bound in RTS only, so no key of one can stand in REQ or REP (docs/wire/rsocket.md)."""
    needs(env, "mw_bind")
    out = env.m1.run("mw_bind rxe0 1", 30)
    check(out == "windows 1, type 2B 1\nINIT 22 22\nRTR 22 22\nRTS 0 0\ncompleted 2\n", out)


@case(90)
def rxe_rstream(env):
    for size, rounds in (64, 500), (65536, 50):
        command = f"rstream -S {size} -C 1 -I {rounds} -T b" if size == 64 else f"rstream -S {size} -C {rounds} -I 1"
        _, out = pair(env, command, command + " -s 10.0.2.1", packets=rounds)
        env.note(out.strip().splitlines()[-1])


@case(90)
def rxe_rcopy(env):
    """20 MB there, to the byte."""
    env.m2.run("head -c 20000000 /dev/urandom >/tmp/in")
    env.on_clean(env.m2, "rm -f /tmp/in")
    env.on_clean(env.m1, "rm -f /tmp/out")
    server = env.m1.start("cd /tmp && exec rcopy")
    env.m1.run("sleep 1")
    with Packets(env, 500):
        out = env.m2.run("rcopy /tmp/in 10.0.2.1:/tmp/out", 80)
    server.kill()
    env.note(out.strip().splitlines()[-1])
    check(env.m1.run("sha256sum </tmp/out") == env.m2.run("sha256sum </tmp/in"), "the copy differs")


@case(90)
def rxe_librspreload(env):
    """A program of ordinary sockets, client and server, that librspreload takes to RDMA."""
    server = env.m1.start(f"{PRELOAD} exec vm_peer serve 10.0.2.1 7001")
    server.until("listening")
    for how in "ask", "first":
        size = 1 << 20 if how == "ask" else 60000
        with Packets(env, size // 1024):
            env.m2.run(f"{PRELOAD} vm_peer {how} 10.0.2.1 7001 {size} 10000")
