# SPDX-License-Identifier: BSD-3-Clause
"""What the cases share: the servers they start, ways to connect, and how a case ends."""

import fcntl
import hashlib
import os
import random
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time


class Fail(Exception):
    """The library or a tool did something else than it promises."""


class Skip(Exception):
    """This machine lacks something that the case needs."""


CASES = []


def case(name, limit=30, long=False, device=None, beside="others"):
    """Registers a case. `limit`: seconds on an idle two-core machine, generous. `beside`: which cases may run at the
    same time: "others"; "idle": only its like, since it measures a server that does nothing; "none"."""

    def register(fn):
        CASES.append((name, limit, long, device, beside, fn))
        return fn

    return register


def each(kinds, beside="others", **more):
    """Registers a case once for each kind of address; the function gets (env, kind)."""

    def register(fn):
        for kind in kinds:
            case(f"{fn.__name__}_{kind}", beside=beside, **more)(lambda env, k=kind: fn(env, k))
        return fn

    return register


ALL = ("tcp", "tcp6", "unix", "abstract")
TCP_UNIX = ("tcp", "unix")


def check(ok, what):
    if not ok:
        raise Fail(what)


def need_program(name):
    if not shutil.which(name):
        raise Skip(f"no {name} on this machine")


def need_root():
    if os.geteuid() != 0:
        raise Skip("needs root")


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as s:
            s.bind(("::1", 0))
        return True
    except OSError:
        return False


class Env:
    """The options of the run, and one case's own folder and processes."""

    def __init__(self, opt, folder):
        self.gpunet = opt.gpunet
        self.examples = opt.examples
        self.device = opt.device
        self.wrapper = opt.wrapper
        self.slow = opt.slow
        self.long = opt.long
        self.folder = folder
        self.servers = []
        self.count = 0

    def seconds(self, s):
        return s * self.slow

    def size(self, full, short):
        """Bytes or rounds to use: the full number unless the build is a slow one."""
        return full if self.slow <= 1 else short

    def command(self, *args):
        return self.wrapper + [self.gpunet] + [str(a) for a in args]

    def file(self, name):
        self.count += 1
        return os.path.join(self.folder, f"{self.count}.{name}")

    def url(self, kind):
        if kind == "tcp":
            return "tcp://127.0.0.1:0"
        if kind == "tcp6":
            if not has_ipv6():
                raise Skip("no IPv6 loopback here")
            return "tcp://[::1]:0"
        if kind == "unix":
            return "unix://" + self.file("sock")
        return f"unix:@gpunet-test-{os.getpid()}-{self.count}"

    def echo(self, url, **kw):
        return Server(self, url, **kw)

    def cat(self, url, **kw):
        return Cat(self, url, **kw)

    def close(self):
        for s in self.servers:
            s.stop()


def limits(nofile=None, memlock=None, uid=None):
    """A preexec function. The soft and the hard limit are set."""

    def apply():
        if nofile is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))
        if memlock is not None:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (memlock, memlock))
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)

    return apply


def raise_nofile(n):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < n:
        if hard != resource.RLIM_INFINITY and hard < n:
            raise Skip(f"needs {n} descriptors, the hard limit is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))


def address(url):
    """(family, address for connect) of a URL as the tool prints it."""
    if url.startswith("unix:@"):
        return socket.AF_UNIX, "\0" + url[6:]
    if url.startswith("unix://"):
        return socket.AF_UNIX, url[7:]
    check(url.startswith("tcp://"), f"unexpected URL {url!r}")
    host, port = url[6:].rsplit(":", 1)
    if host.startswith("["):
        info = socket.getaddrinfo(host[1:-1], int(port), socket.AF_INET6, socket.SOCK_STREAM)
        return socket.AF_INET6, info[0][4]
    return socket.AF_INET, (host, int(port))


class Process:
    """A program with its standard error in a file."""

    def __init__(self, env, argv, **kw):
        self.env = env
        self.err_path = env.file("stderr")
        extra = kw.pop("extra_env", {})
        with open(self.err_path, "wb") as err:
            self.p = subprocess.Popen(argv, stderr=err, env={**os.environ, **extra}, **kw)
        self.pid = self.p.pid

    def err(self):
        with open(self.err_path, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def wait(self, seconds, what):
        try:
            return self.p.wait(self.env.seconds(seconds))
        except subprocess.TimeoutExpired:
            raise Fail(f"{what} within {self.env.seconds(seconds):g} s; stderr: "
                       f"{self.err()[-400:]!r}") from None

    def expect(self, code, seconds=10, what="it did not end"):
        got = self.wait(seconds, what)
        check(got == code, f"exit {got} instead of {code}; stderr: {self.err()[-1200:]!r}")

    def kill(self):
        self.p.kill()
        self.p.wait()


class Server(Process):
    """gpunet echo (or another program that prints "listening on URL")."""

    def __init__(self, env, url, blocks=4, threads=32, argv=None, **kw):
        if argv is None:
            argv = env.command("echo", url, "--device", env.device, "--blocks", blocks,
                               "--threads", threads)
        super().__init__(env, argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **kw)
        env.servers.append(self)
        self.url = self._listening()
        self.stopped = False

    def _listening(self):
        end = time.monotonic() + self.env.seconds(20)
        buf = b""
        while b"\n" not in buf or b"listening on " not in buf:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.p.stdout], [], [], left)[0]:
                self.kill()
                raise Fail(f"no 'listening on' within {self.env.seconds(20):g} s; stderr: "
                           f"{self.err()[-400:]!r}")
            part = os.read(self.p.stdout.fileno(), 4096)
            if not part:
                code = self.p.wait()
                raise Fail(f"server ended with {code} before it listened; stderr: "
                           f"{self.err()[-800:]!r}")
            buf += part
        line = [l for l in buf.split(b"\n") if l.startswith(b"listening on ")]
        check(line, f"'listening on' is not on a line of its own: {buf!r}")
        return line[0][len(b"listening on "):].decode()

    def socket(self):
        family, _ = address(self.url)
        s = socket.socket(family, socket.SOCK_STREAM)
        s.settimeout(self.env.seconds(20))
        return s

    def connect(self):
        s = self.socket()
        s.connect(address(self.url)[1])
        return s

    def port(self):
        return int(self.url.rsplit(":", 1)[1])

    def serves(self, what="next client is not served"):
        """A client, now: one message there and back, then the end of the stream."""
        try:
            with self.connect() as s:
                exchange(s, b"are you there?")
        except OSError as e:
            raise Fail(f"{what}: {e}; stderr: {self.err()[-400:]!r}") from None

    def stop(self, sig=signal.SIGTERM, seconds=15):
        """Ends it as a user would and requires a clean exit."""
        if self.stopped:
            return
        self.stopped = True
        self.p.send_signal(sig)
        self.expect(0, seconds, f"no exit after {signal.Signals(sig).name}")

    def kill(self):
        self.stopped = True
        super().kill()


class Cat(Process):
    """gpunet cat."""

    def __init__(self, env, url, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **kw):
        super().__init__(env, env.command("cat", url, "--device", env.device), stdin=stdin,
                         stdout=stdout, **kw)


def exchange(s, data):
    """Sends, closes this direction, and requires exactly the same bytes and then EOF."""
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    got = recv_all(s)
    check(got == data, f"sent {len(data)} bytes, {len(got)} came back, equal: {got == data}")


def recv_all(s):
    parts = []
    while True:
        part = s.recv(1 << 20)
        if not part:
            return b"".join(parts)
        parts.append(part)


def recv_exact(s, n):
    parts = []
    while n:
        part = s.recv(min(n, 1 << 20))
        if not part:
            raise Fail(f"end of stream with {n} bytes missing")
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


def pattern(n, seed=1):
    return random.Random(seed).randbytes(n)


def first_difference(a, b):
    for i in range(0, min(len(a), len(b)), 4096):
        if a[i:i + 4096] != b[i:i + 4096]:
            for j in range(i, min(i + 4096, len(a), len(b))):
                if a[j] != b[j]:
                    return j
    return min(len(a), len(b))


def same(want, got):
    check(len(want) == len(got), f"{len(got)} bytes instead of {len(want)}")
    if hashlib.sha256(want).digest() != hashlib.sha256(got).digest():
        raise Fail(f"bytes differ from position {first_difference(want, got)} on")


class Sender(threading.Thread):
    """Sends `data` in pieces from another thread, then closes that direction."""

    def __init__(self, s, data, piece=lambda: 1 << 20):
        super().__init__(daemon=True)
        self.s, self.data, self.piece, self.error = s, memoryview(data), piece, None
        self.start()

    def run(self):
        at = 0
        try:
            while at < len(self.data):
                at += self.s.send(self.data[at:at + self.piece()])
            self.s.shutdown(socket.SHUT_WR)
        except OSError as e:
            self.error = f"send failed after {at} bytes: {e}"


def linger_zero(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def nonblocking(fd):
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)


def cpu_ticks(pid):
    """User and system time of a process in clock ticks."""
    with open(f"/proc/{pid}/stat", "rb") as f:
        field = f.read().rsplit(b")", 1)[1].split()
    return int(field[11]) + int(field[12])


def switches(pid):
    """Voluntary context switches of all its threads: how often something woke up."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="ascii") as f:
            for line in f:
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
    return total


def at_rest(measure, tries=3):
    """Requires that `measure` once finds nothing wrong: it looks at a process that has nothing to do, and on a busy machine
    that may come to rest late. One that polls never does."""
    for _ in range(tries):
        wrong = measure()
        if not wrong:
            return
    raise Fail(wrong)


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))
