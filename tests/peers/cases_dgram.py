# SPDX-License-Identifier: BSD-3-Clause
"""Datagrams of ordinary programs: a kernel (gpunet echo) sends each back to its sender, and one (gpunet cat) is a client."""

import os
import random
import socket
import subprocess
import time

from peerlib import Process, Skip, case, check, descriptors, each, has_ipv6, need_program, pattern

KINDS = ("udp", "udp6", "unix", "abstract")


def own_url(env, kind):
    """Where somebody can be, with port 0 or a new name."""
    if kind == "udp6" and not has_ipv6():
        raise Skip("no IPv6 loopback here")
    return {"udp": "udp://127.0.0.1:0", "udp6": "udp://[::1]:0"}.get(kind) or \
        env.url(kind).replace("unix:", "unix-dgram:")


def start(env, kind):
    """The server, and a way to make sockets that talk to it."""
    s = env.echo(own_url(env, kind))
    return s, lambda: connected(env, s.url)


def place(url):
    """(family, address) of a URL."""
    if url.startswith("udp://"):
        host, port = url[6:].rsplit(":", 1)
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        return family, (host.strip("[]"), int(port))
    name = url[len("unix-dgram:"):]
    return socket.AF_UNIX, "\0" + name[1:] if name.startswith("@") else name[2:]


def connected(env, url):
    family, to = place(url)
    c = socket.socket(family, socket.SOCK_DGRAM)
    if family == socket.AF_UNIX:
        c.bind(env.file("client"))
    c.settimeout(env.seconds(20))
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


@each(("unix", "abstract"))
def dgram_descriptors(env, kind):
    """Descriptors that come with a datagram are refused or dropped, and the datagram is answered where it was taken."""
    s, new = start(env, kind)
    with new() as c:
        same_back(c, b"x")
        before = descriptors(s.pid)
        for i in range(5):
            try:
                socket.send_fds(c, [b"%d" % i], [0, 1, 2])
            except PermissionError:
                continue  # Linux 6.16 and later
            check(c.recv(100) == b"%d" % i, "something else came back")
        same_back(c, b"and one without")
        check(descriptors(s.pid) == before, "the server kept descriptors")
    s.stop()


@case("dgram_taken_over")
def dgram_taken_over(env):
    """The file of a server that was killed does not keep the next one out; one of a server that lives does."""
    url = own_url(env, "unix")
    env.echo(url).kill()
    s = env.echo(url)
    second = Process(env, env.command("echo", url, "--device", env.device), stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL)
    second.expect(1, 20)
    check("in use" in second.err(), f"no reason: {second.err()!r}")
    s.stop()
    check(not os.path.exists(place(url)[1]), "the file is left")


class Client:
    """gpunet cat and the socket that it talks to."""

    def __init__(self, env, kind, *options):
        self.s, self.url = bound(env, own_url(env, kind))
        self.cat = Process(env, env.command("cat", self.url, "--device", env.device, *options),
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.peer = None

    def takes(self, data):
        """What is written to standard input comes as one datagram."""
        self.cat.p.stdin.write(data)
        got, self.peer = self.s.recvfrom(1 << 20)
        check(got == data, f"{len(data)} bytes written, a datagram of {len(got)}, equal: {got == data}")

    def prints(self, *datagrams):
        for d in datagrams:
            self.s.sendto(d, self.peer)
        want, got = b"".join(datagrams), b""
        while len(got) < len(want):
            part = self.cat.p.stdout.read(len(want) - len(got))
            check(part, f"the output ends after {len(got)} bytes of {len(want)}")
            got += part
        check(got == want, f"{len(got)} bytes printed, equal: {got == want}")

    def ends(self):
        self.cat.p.stdin.close()
        self.cat.expect(0, 20)
        check(self.cat.p.stdout.read() == b"", "there is more output")
        self.s.close()


def bound(env, url):
    """A socket of ours at a URL, and the URL with its port."""
    family, at = place(url)
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(env.seconds(20))
    s.bind(at)
    if family != socket.AF_UNIX:
        url = url[:url.rindex(":") + 1] + str(s.getsockname()[1])
    return s, url


@each(KINDS)
def dgram_cat(env, kind):
    """A write to gpunet cat is a datagram, each datagram is printed, an empty one is nothing, and the end is the input's."""
    c = Client(env, kind, "--wait", "0")
    for n in (1, 48, 49, 80, 81, 1399, 1400):
        c.takes(pattern(n, seed=n))
    c.prints(b"one", b"", b"two", pattern(65507 if kind.startswith("udp") else 150000))
    c.takes(b"and more")
    c.ends()


@each(("udp", "abstract"))
def dgram_cat_size(env, kind):
    """Option --size cuts what is read into datagrams."""
    c = Client(env, kind, "--size", "10", "--wait", "0")
    c.cat.p.stdin.write(b"0123456789abcdefghijxyz")
    got = [c.s.recv(100) for _ in range(3)]
    check(got == [b"0123456789", b"abcdefghij", b"xyz"], f"{got}")
    c.ends()


@case("dgram_cat_refused")
def dgram_cat_refused(env):
    """Nobody is there: gpunet cat says so and fails."""
    for kind in ("udp", "unix"):
        s, url = bound(env, own_url(env, kind))
        s.close()
        cat = Process(env, env.command("cat", url, "--device", env.device), stdin=subprocess.PIPE,
                      stdout=subprocess.DEVNULL, bufsize=0)
        try:
            cat.p.stdin.write(b"is there anybody?")
        except BrokenPipeError:
            pass
        cat.expect(1, 20)
        check("refused" in cat.err() and url in cat.err(), f"{cat.err()!r}")
        cat.p.stdin.close()


@case("dgram_cat_socat")
def dgram_cat_socat(env):
    """socat as a server of UNIX datagrams, gpunet cat as its client."""
    need_program("socat")
    path = env.file("socat")
    p = Process(env, ["socat", f"UNIX-RECVFROM:{path},fork", "EXEC:cat"])
    end = time.monotonic() + env.seconds(20)
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    cat = Process(env, env.command("cat", f"unix-dgram://{path}", "--device", env.device, "--wait", "0"),
                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    cat.p.stdin.write(b"to socat and back")
    check(cat.p.stdout.read(100) == b"to socat and back", "something else came back")
    cat.p.stdin.close()
    cat.expect(0, 20)
    p.kill()


@case("dgram_nc")
def dgram_nc(env):
    """nc as a UDP client."""
    need_program("nc")
    s, _ = start(env, "udp")
    p = Process(env, ["nc", "-u", "127.0.0.1", str(s.port())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                bufsize=0)
    for data in (b"a line", pattern(1400)):
        p.p.stdin.write(data)
        check(p.p.stdout.read(5000) == data, "something else came back")
    p.kill()
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
