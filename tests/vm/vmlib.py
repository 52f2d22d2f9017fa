# SPDX-License-Identifier: BSD-3-Clause
"""What the cases share: how one is registered, the two machines, and gpunet in them and on this end."""

import io
import os
import re
import tarfile

from machines import Fail, Local, Skip, check, ip  # noqa: F401

CASES = []
# Of the build, for the machines, besides the tool. Some are built only where rdma-core's headers are: see needs().
PROGRAMS = ("vm_peer", "rdma_peer", "example-rsocket", "mw_bind")
PRELOAD = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so.1"


def case(limit=60, long=False):
    """Registers a function as a case. `limit`: seconds, generous, on two cores that emulate four."""

    def register(fn):
        CASES.append((fn.__name__, limit, long, fn))
        return fn

    return register


class Env:
    """The machines, and what the case that runs has started."""

    def __init__(self, opt, machines, folder, clock):
        self.opt = opt
        self.gpunet = opt.gpunet
        self.m1, self.m2 = machines
        self.machines = machines
        self.folder = folder
        self.clock = clock
        self.local = []
        self.notes = []
        self.mended = []
        self.unplugged = []

    def begin(self, limit):
        self.clock.deadline = None
        self.clock.deadline = self.clock.end(limit)
        self.notes = []

    def note(self, text):
        """A figure or a remark for the case's line."""
        self.notes.append(text)

    def on_clean(self, machine, command):
        """Runs the command in the machine after the case, however that ends."""
        self.mended.append((machine, command))

    def end(self):
        for machine in self.machines:
            check(machine.qemu is None or machine.qemu.poll() is None, f"machine {machine.number} is gone")

    def clean(self):
        self.clock.deadline = None
        for running in self.local:
            running.kill()
        self.local.clear()
        for machine in self.machines:
            machine.kill_all()
            if machine.number in self.unplugged:
                self.plug(machine)
        for machine, command in reversed(self.mended):
            machine.run(command)
        self.mended.clear()

    def unplug(self, machine):
        """Pulls the cable of the machine's card, until plug() or the end of the case."""
        ip("link", "set", f"net{machine.number}", "down")
        self.unplugged.append(machine.number)

    def plug(self, machine):
        """Puts it back."""
        ip("link", "set", f"net{machine.number}", "up")
        self.unplugged.remove(machine.number)

    def here(self, *argv, data=b"", env=None):
        """A program on this end of the bridge."""
        running = Local([str(word) for word in argv], self.clock, data, env)
        self.local.append(running)
        return running

    def carry(self):
        """Puts the tool into the machines."""
        if not os.path.exists(self.gpunet):
            raise Fail(f"there is no program {self.gpunet}")
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w") as tar:
            tar.add(self.gpunet, "usr/bin/gpunet")
            for name in PROGRAMS:
                if os.path.exists(path := beside(self, name)):
                    tar.add(path, f"usr/bin/{name}")
        for machine in self.machines:
            machine.run("tar -x -C /", data=raw.getvalue())


def echo(env, machine, url, blocks=4, threads=32):
    """gpunet echo in a machine, ready; returns it and its URL."""
    server = machine.start(f"exec gpunet echo {url} --device cpu --blocks {blocks} --threads {threads}")
    return server, server.until(r"^listening on (\S+)", 40)[1]


class Packets:
    """The RDMA devices of the machines have sent and received at least so many packets meanwhile."""

    def __init__(self, env, at_least, machines=None):
        self.machines, self.at_least = machines or env.machines, at_least

    def __enter__(self):
        self.before = [m.counters() for m in self.machines]
        return self

    def __exit__(self, kind, *_):
        if kind:
            return
        for m, before in zip(self.machines, self.before):
            after = m.counters()
            for name in ("sent_pkts", "rcvd_pkts"):
                n = after[name] - before[name]
                check(n >= self.at_least, f"machine {m.number}: only {n} {name}: not over RDMA")


def beside(env, name):
    return os.path.join(os.path.dirname(env.gpunet), name)


def program(env, name):
    """One of the build's other programs, beside the tool."""
    path = beside(env, name)
    if not os.path.exists(path):
        raise Fail(f"there is no program {path}")
    return path


def needs(env, name):
    """Skips the case where the build has no such program."""
    if not os.path.exists(beside(env, name)):
        raise Skip(f"no {name} in this build, which needs rdma-core's headers")


def await_listener(machine, port, seconds=30):
    """Until somebody listens on the TCP port there."""
    machine.run(f"until [ -n \"$(ss -Hltn 'sport = :{port}')\" ]; do sleep 0.1; done", seconds)


def port_of(url):
    return url.rsplit(":", 1)[1]


def netem(env, machine, how):
    """What the machine sends is lost, late or slow until the end of the case."""
    machine.run(f"tc qdisc add dev eth0 root netem {how}")
    env.on_clean(machine, "tc qdisc del dev eth0 root")


def until_lost(machine, once):
    """Again until netem has lost something of what the machine sends: of few packets 1% may be none."""
    for _ in range(20):
        once()
        if "dropped 0," not in machine.run("tc -s qdisc show dev eth0"):
            return
    raise Fail("nothing was lost in twenty runs")


# A row of stock perftest. Where it finds that the processor's clock does not count evenly, as on an emulated machine with a busy
# host, it says so (a "Correlation coefficient"), and its figures are 0.00 or inf.
PERFTEST_ROW = r"^ *(\d+ +\d+ +(?:[0-9.]+|inf|-?nan)\s.*)$"


def figure(text, pattern):
    match = re.search(pattern, text, re.M)
    check(match, f"no {pattern!r} in {text[-300:]!r}")
    return match[1]
