# SPDX-License-Identifier: BSD-3-Clause
"""Datagrams of ordinary programs: a kernel (gpunet perf's server) sends each back to its sender."""

import os
import random
import socket
import subprocess

from cases_perf import server
from peerlib import Skip, case, check, each, has_ipv6, need_program, pattern

KINDS = ("udp", "udp6", "unix", "abstract")


def start(env, kind):
    """The server, and a way to make sockets that talk to it."""
    if kind == "udp6" and not has_ipv6():
        raise Skip("no IPv6 loopback here")
    url = {"udp": "udp://127.0.0.1:0", "udp6": "udp://[::1]:0"}.get(kind) or env.url(kind)
    s = server(env, env.device, url, "--dgram")
    return s, lambda: connected(env, s.url)


def connected(env, url):
    if url.startswith("udp://"):
        host, port = url[6:].rsplit(":", 1)
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        c = socket.socket(family, socket.SOCK_DGRAM)
        to = (host.strip("[]"), int(port))
    else:
        c = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        c.bind(env.file("client"))
        to = "\0" + url[6:] if url.startswith("unix:@") else url[7:]
    c.settimeout(env.seconds(5))
    c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    c.connect(to)
    return c


def same_back(c, data):
    c.send(data)
    back = c.recv(1 << 17)
    check(back == data, f"{len(data)} bytes sent, {len(back)} came back, equal: {back == data}")


@each(KINDS, limit=60)
def dgram_lengths(env, kind):
    """Every length around the bus's own limits, none, and the longest; boundaries stay."""
    s, new = start(env, kind)
    most = {"udp": 65507, "udp6": 65527}.get(kind, 100000)
    lengths = [0, 1, 47, 48, 49, 63, 64, 65, 79, 80, 81, 104, 105, 106, 1472, 1473, 9000, 65000, most]
    with new() as c:
        for n in lengths + [random.Random(3).randint(0, 3000) for _ in range(env.size(200, 30))]:
            same_back(c, pattern(n, seed=n))
    s.stop()


@each(("udp", "unix"), limit=60)
def dgram_clients(env, kind):
    """Twenty clients in turns, five datagrams each on their way: everybody gets his own, in order (on loopback)."""
    s, new = start(env, kind)
    socks = [new() for _ in range(20)]
    for turn in range(env.size(20, 4)):
        for i, c in enumerate(socks):
            for k in range(5):
                c.send(b"%d %d %d" % (turn, i, k) + b"." * (turn * 37 % 500))
        for i, c in enumerate(socks):
            got = sorted(c.recv(2000) for k in range(5))  # blocks of the server answer side by side
            want = [b"%d %d %d" % (turn, i, k) + b"." * (turn * 37 % 500) for k in range(5)]
            check(got == want, f"client {i} has {[g[:12] for g in got]}")
    for c in socks:
        c.close()
    s.stop()


@each(("udp", "unix"), limit=60)
def dgram_gone(env, kind):
    """Clients that leave before their answers come do no harm to others."""
    s, new = start(env, kind)
    with new() as stays:
        for i in range(env.size(100, 20)):
            with new() as c:
                c.send(b"x" * (i * 29 % 1000))
                if kind == "unix":
                    os.unlink(c.getsockname())
            same_back(stays, b"%d" % i)
    s.stop()


@case("dgram_socat", limit=30)
def dgram_socat(env):
    """socat as a UDP client."""
    need_program("socat")
    s, _ = start(env, "udp")
    data = pattern(1000, seed=5)
    p = subprocess.run(["socat", "-t2", "-", f"UDP:{s.url[6:]}"], input=data, stdout=subprocess.PIPE,
                       check=True, timeout=env.seconds(20))
    check(p.stdout == data, f"{len(p.stdout)} bytes came back of {len(data)}")
    s.stop()
