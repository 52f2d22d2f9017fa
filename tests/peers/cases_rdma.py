# SPDX-License-Identifier: BSD-3-Clause
"""rdma:// between two processes through the software RNIC: no RDMA in the kernel is needed.

Each case has a loopback address of its own.
"""

import os
import re
import select
import signal
import socket
import subprocess
import time

from cases_programs import find_example
from peerlib import Process, Skip, at_rest, case, check, cpu_ticks, pattern, same

MIB = 1 << 20
RNIC = {"GPUNET_VERBS": "rnic"}


def own_address(env):
    """A loopback address that nothing else uses, if the machine lets us have its RoCE port."""
    env.count += 1
    host = f"127.{100 + os.getpid() // 254 % 100}.{1 + os.getpid() % 254}.{env.count}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.bind((host, 4791))
        except OSError as e:
            raise Skip(f"UDP port 4791 cannot be had: {e}") from None
    return host


def serve(env, **kw):
    return env.echo(f"rdma://{own_address(env)}:7471", extra_env=RNIC, **kw)


def through(env, server, data, seconds=60):
    """The data as it comes back from the server."""
    cat = env.cat(server.url, extra_env=RNIC)
    try:
        out, _ = cat.p.communicate(data, timeout=env.seconds(seconds))
    except subprocess.TimeoutExpired:
        cat.kill()
        check(False, f"cat did not end within {env.seconds(seconds):g} s: {cat.err()[-400:]!r}")
    check(cat.p.returncode == 0, f"cat: exit {cat.p.returncode}, {cat.err()[-400:]!r}")
    return out


@case("rdma_echo", limit=120)
def rdma_echo(env):
    """Random bytes there and back; then another client, and none of it hangs."""
    server = serve(env, blocks=2, threads=128)
    for n in (1, 1000, env.size(64, 4) * MIB):
        data = pattern(n)
        same(data, through(env, server, data))


@case("rdma_verbs_example")
def rdma_verbs_example(env):
    """The example of <gpunet/verbs.h>: WRITE, READ and FETCH_ADD between two CPU processes."""
    program = env.wrapper + [find_example(env, "verbs")]
    host = own_address(env)
    server = Process(env, program + ["server", host], stdout=subprocess.PIPE, extra_env=RNIC)
    line = server.p.stdout.readline().decode().split()
    check(line[:1] == ["listening"], f"the server said {line}, {server.err()}")
    client = Process(env, program + ["client", host, line[-1], "good morning"], stdout=subprocess.PIPE, extra_env=RNIC)
    text = client.p.stdout.read().decode()
    client.expect(0)
    check(text == 'wrote and read "good morning"; 0 visits before\n', text)
    server.expect(0)
    check(server.p.stdout.read() == b'1 visits, and the text "good morning"\n', "the server has seen something else")


@case("rdma_clients", limit=120)
def rdma_clients(env):
    """Several clients at once, each a process; they share an address."""
    server = serve(env, blocks=4, threads=64)
    data = [pattern(env.size(4, 1) * MIB, seed) for seed in range(6)]
    cats = []
    for d in data:
        path = env.file("in")
        with open(path, "wb") as f:
            f.write(d)
        with open(path, "rb") as f:
            cats.append(env.cat(server.url, stdin=f, stdout=open(path + ".out", "wb"),
                                extra_env=RNIC))
        cats[-1].out = path + ".out"
    for c, d in zip(cats, data):
        c.expect(0, 60, "a client did not end")
        with open(c.out, "rb") as f:
            same(d, f.read())


@case("rdma_refused")
def rdma_refused(env):
    """Nobody listens on that port, or on that address of this machine: refused."""
    server = serve(env)
    for url in (server.url.replace(":7471", ":7472"), f"rdma://{own_address(env)}:7471"):
        cat = env.cat(url, stdin=subprocess.DEVNULL, extra_env=RNIC)
        cat.expect(1, 15, "cat did not end")
        check("refused" in cat.err(), f"not named: {cat.err()[-400:]!r}")


@case("rdma_server_killed", limit=90)
def rdma_server_killed(env):
    """kill -9 of the server: the client ends with an error in bounded time, and a line says who, how often, how long and why."""
    server = serve(env)
    cat = env.cat(server.url, extra_env=RNIC)
    cat.p.stdin.write(b"x" * 1000)
    cat.p.stdin.flush()
    check(len(os.read(cat.p.stdout.fileno(), 1000)) > 0, "no echo")
    server.kill()
    try:
        cat.p.stdin.write(b"y" * 1000)
        cat.p.stdin.flush()
    except BrokenPipeError:
        pass
    cat.expect(1, 60, "cat did not end")
    cat.p.stdout.close()
    line = re.search(r"rdma: .* to (\S+) failed: no answer after all retries \(status 12; (\d+) retries of (\d+) ms and more\): (.*)",
                     cat.err())
    check(line, f"not said: {cat.err()[-400:]!r}")
    check(line[1] == server.url.partition("//")[2] and int(line[2]) > 0 and int(line[3]) > 0 and "gone" in line[4], line[0])


@case("rdma_client_killed", limit=90)
def rdma_client_killed(env):
    """kill -9 of a client in the middle of a stream: the server serves the next."""
    server = serve(env, blocks=2)
    cat = env.cat(server.url, extra_env=RNIC)
    cat.p.stdin.write(b"x" * 100000)
    cat.p.stdin.flush()
    os.read(cat.p.stdout.fileno(), 1000)
    cat.p.send_signal(signal.SIGKILL)
    cat.p.wait()
    data = pattern(MIB)
    same(data, through(env, server, data))


def echo_fails(env, url, words):
    p = Process(env, env.command("echo", url, "--device", env.device), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, extra_env=RNIC)
    p.expect(1, 15, "it did not end")
    check(words in p.err().lower(), f"not named: {p.err()[-400:]!r}")


@case("rdma_port_taken")
def rdma_port_taken(env):
    """Another process has the RDMA port, or somebody who does not share has UDP port 4791: named errors."""
    server = serve(env)
    echo_fails(env, server.url, "in use")
    host = own_address(env)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind((host, 4791))
        echo_fails(env, f"rdma://{host}:7471", "4791")


class Talk:
    """A client that stays connected."""

    def __init__(self, env, url):
        self.cat = env.cat(url, extra_env=RNIC)
        self.n = 0

    def exchange(self, env):
        self.n += 1
        data = pattern(5000, self.n)
        self.cat.p.stdin.write(data)
        self.cat.p.stdin.flush()
        got = b""
        end = time.monotonic() + env.seconds(20)
        while len(got) < len(data):
            left = end - time.monotonic()
            check(left > 0 and select.select([self.cat.p.stdout], [], [], left)[0],
                  f"{len(got)} of {len(data)} bytes came; {self.cat.err()[-300:]!r}")
            part = os.read(self.cat.p.stdout.fileno(), len(data) - len(got))
            check(part, f"end of the stream: {self.cat.err()[-300:]!r}")
            got += part
        same(data, got)


@case("rdma_sharing", limit=180)
def rdma_sharing(env):
    """Three servers on one address. Each is killed in turn and comes back; the others notice nothing."""
    host = own_address(env)

    def start(i):
        return env.echo(f"rdma://{host}:{7471 + i}", extra_env=RNIC, blocks=2)

    servers = [start(i) for i in range(3)]
    data = pattern(env.size(4, 1) * MIB)
    for victim in range(3):
        talks = {i: Talk(env, servers[i].url) for i in range(3) if i != victim}
        for t in talks.values():
            t.exchange(env)
        servers[victim].kill()
        for i, t in talks.items():
            t.exchange(env)
            same(data, through(env, servers[i], data))
        servers[victim] = start(victim)
        same(data, through(env, servers[victim], data))
        for t in talks.values():
            t.exchange(env)
            t.cat.p.stdin.close()
            t.cat.expect(0, 15, "a client did not end")
            t.cat.p.stdout.close()


@case("rdma_idle", beside="idle")
def rdma_idle(env):
    """A server with a silent connection sleeps."""
    server = serve(env)
    cat = env.cat(server.url, extra_env=RNIC)
    cat.p.stdin.write(b"x")
    cat.p.stdin.flush()
    check(os.read(cat.p.stdout.fileno(), 1) == b"x", "no echo")
    time.sleep(0.5)

    def unrest():
        before = cpu_ticks(server.pid)
        time.sleep(2)
        used = cpu_ticks(server.pid) - before
        # On a GPU the sentinel looks a thousand times a second; 5% of a core is the limit.
        allowed = (4 if env.device == "cpu" else 10) * env.slow
        return f"{used} ticks in 2 s without traffic, {allowed} allowed" if used > allowed else None

    at_rest(unrest)
    cat.p.stdin.close()
    cat.expect(0, 15, "cat did not end")
    cat.p.stdout.close()
