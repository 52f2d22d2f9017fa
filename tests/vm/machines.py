# SPDX-License-Identifier: BSD-3-Clause
"""Two machines on a bridge, and what runs in them.

Everything is inside a network namespace of the run and a process namespace whose first process is the run: when that
ends, however it ends, machines, taps and bridge are gone.

    10.0.2.1, fd00::1  machine 1 ─┐
    10.0.2.2, fd00::2  machine 2 ─┼─ bridge, 10.0.2.254 and fd00::254 of this end
    10.9.N.2 on a second card of machine N: its agent, whatever happens to the bridge
"""

import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import time

PORT = 9999
MAX_MTU = 9000


class Fail(Exception):
    """Something does not do what it promises."""


class Skip(Exception):
    """What the case needs is not there."""


def check(ok, what):
    if not ok:
        raise Fail(what)


def shorten(text, n=500):
    text = " | ".join(text.strip().splitlines())
    return text if len(text) <= n else "…" + text[-n:]


class Running:
    """A command that runs, here or in a machine; its output is collected as it comes."""

    def __init__(self, what, fd, clock):
        self.what, self.fd, self.clock = what, fd, clock
        self.data = b""
        self.copy_to = None  # a file that gets the output as well, as it comes

    def text(self):
        return self.data.decode("utf-8", "replace")

    def so_far(self):
        """The output until now, without waiting."""
        while select.select([self.fd], [], [], 0)[0] and self._more(time.monotonic()):
            pass
        return self.text()

    def _more(self, end):
        """Reads once, until `end`; False at the end of the output."""
        if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            raise Fail(f"{self.what}: no end within its time limit; so far: {shorten(self.text())!r}")
        try:
            part = os.read(self.fd, 1 << 16)
        except ConnectionError:
            part = b""
        self.data += part
        if self.copy_to:
            self.copy_to.write(re.sub(rb"\0\d+\n$", b"", part))
            self.copy_to.flush()
        return bool(part)

    def until(self, pattern, seconds=30):
        """Waits until the output matches."""
        end = self.clock.end(seconds)
        while not (match := re.search(pattern, self.text(), re.M)):
            if not self._more(end):
                raise Fail(f"{self.what}: ended without {pattern!r}: {shorten(self.text())!r}")
        return match

    def wait(self, seconds=60):
        """Waits for its end; returns the exit code."""
        end = self.clock.end(seconds)
        while self._more(end):
            pass
        return self._code()

    def expect(self, code=0, seconds=60):
        """Waits for its end, which must have this exit code; returns the output."""
        got = self.wait(seconds)
        check(got == code, f"{self.what}: exit {got} instead of {code}: {shorten(self.text())!r}")
        return self.text()

    def _code(self):
        raise NotImplementedError


class Remote(Running):
    def __init__(self, machine, command, data):
        self.conn = socket.create_connection((machine.agent, PORT), timeout=20)
        self.conn.settimeout(60)
        raw = command.encode()
        self.conn.sendall(b"%d %d\n" % (len(raw), len(data)) + raw + data)
        super().__init__(f"vm{machine.number}: {command}", self.conn.fileno(), machine.clock)

    def _code(self):
        match = re.search(rb"\0(\d+)\n$", self.data)
        check(match, f"{self.what}: the machine hung up")
        self.data = self.data[:match.start()]
        self.kill()
        return int(match[1])

    def kill(self):
        self.conn.close()


class Local(Running):
    def __init__(self, argv, clock, data=b"", env=None):
        with tempfile.TemporaryFile() as stdin:
            stdin.write(data)
            stdin.seek(0)
            self.p = subprocess.Popen(argv, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      env={**os.environ, **(env or {})}, start_new_session=True)
        super().__init__(f"here: {' '.join(argv)}", self.p.stdout.fileno(), clock)

    def _code(self):
        return self.p.wait()

    def kill(self):
        try:
            os.killpg(self.p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.p.wait()


class Clock:
    """The time limit of the case that runs: no single wait goes beyond it."""

    def __init__(self, slow):
        self.slow = slow
        self.deadline = None

    def end(self, seconds):
        end = time.monotonic() + seconds * self.slow
        return min(end, self.deadline) if self.deadline else end


class Machine:
    def __init__(self, number, folder, clock):
        self.number = number
        self.folder = folder
        self.clock = clock
        self.agent = f"10.9.{number}.2"
        self.ip = f"10.0.2.{number}"
        self.ip6 = f"fd00::{number}"
        self.console = os.path.join(folder, f"vm{number}.console")
        self.running = []
        self.qemu = None

    def boot(self, linux, root, mtu, cores):
        n = self.number
        argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cores), "-m", "1024",
                "-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{self.console}",
                "-kernel", linux, "-initrd", root, "-append",
                f"console=ttyS0 quiet panic=-1 mitigations=off nokaslr node={n} mtu={mtu}"]
        for card, tap in enumerate((f"net{n}", f"ctl{n}")):
            argv += ["-netdev", f"tap,id={tap},ifname={tap},script=no,downscript=no", "-device",
                     f"virtio-net-pci,netdev={tap},mac=52:54:00:00:0{card}:0{n},romfile="
                     f",host_mtu={MAX_MTU}"]
        with open(os.path.join(self.folder, f"vm{n}.qemu"), "wb") as log:
            self.qemu = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_boot(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            check(self.qemu.poll() is None, f"qemu of machine {self.number} ended: {self.last_words()}")
            try:
                Remote(self, "true", b"").expect(0)
                return
            except OSError:
                time.sleep(0.1)
        raise Fail(f"machine {self.number} did not boot within {seconds:g} s: {self.last_words()}")

    def last_words(self):
        text = ""
        for path in (os.path.join(self.folder, f"vm{self.number}.qemu"), self.console):
            if os.path.exists(path):
                with open(path, "rb") as f:
                    text += f.read().decode("utf-8", "replace")
        return repr(shorten(text))

    def start(self, command, data=b""):
        """Starts a command; it is killed at the end of the case at the latest."""
        running = Remote(self, command, data)
        self.running.append(running)
        return running

    def run(self, command, seconds=60, data=b"", code=0):
        """Runs a command, which must end with this exit code; returns its output."""
        running = self.start(command, data)
        try:
            return running.expect(code, seconds)
        finally:
            running.kill()
            self.running.remove(running)

    def kill_all(self):
        for running in self.running:
            running.kill()
        self.running.clear()

    def counters(self):
        """The RDMA device's counters, as a dict."""
        text = self.run("cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *")
        return {name: int(value) for name, value in (line.split(":") for line in text.split())}


def ip(*args):
    p = subprocess.run(("ip",) + args, capture_output=True, text=True, check=False)
    if p.returncode:
        raise Skip(f"ip {' '.join(args)}: {p.stderr.strip()}")


def make_network(mtu):
    ip("link", "set", "lo", "up")
    ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
    ip("link", "set", "br0", "up")
    ip("addr", "add", "10.0.2.254/24", "dev", "br0")
    ip("addr", "add", "fd00::254/64", "dev", "br0", "nodad")
    for n in (1, 2):
        for tap in (f"net{n}", f"ctl{n}"):
            ip("tuntap", "add", "dev", tap, "mode", "tap")
            ip("link", "set", tap, "mtu", str(MAX_MTU), "up")
        ip("link", "set", f"net{n}", "master", "br0")
        ip("addr", "add", f"10.9.{n}.1/30", "dev", f"ctl{n}")
    # As the machines' cards: RDMA takes its packets' size from the card at the active end alone.
    ip("link", "set", "br0", "mtu", str(mtu))
