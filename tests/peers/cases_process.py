# SPDX-License-Identifier: BSD-3-Clause
"""The server as a process: signals, limits, what it costs when idle, what it leaves behind."""

import os
import re
import signal
import socket
import subprocess
import time

from cases_stream import MIB, many_clients
from peerlib import (TCP_UNIX, Process, Skip, at_rest, case, check, cpu_ticks, descriptors, each, exchange,
                     limits, pattern, raise_nofile, recv_exact, switches)


@each(TCP_UNIX)
def sigterm_in_accept(env, kind):
    """Every block waits in gaccept."""
    server = env.echo(env.url(kind), blocks=8)
    server.stop(signal.SIGTERM)


@each(TCP_UNIX)
def sigterm_in_recv(env, kind):
    """Blocks wait in grecv for silent clients, and one in gaccept."""
    server = env.echo(env.url(kind), blocks=4)
    socks = [server.connect() for _ in range(3)]
    for s in socks:
        s.sendall(b"x")
        recv_exact(s, 1)
    server.stop(signal.SIGTERM, 2)
    for s in socks:
        s.close()


@each(TCP_UNIX)
def sigterm_in_send(env, kind):
    """A block waits in gsend for a client that does not read."""
    server = env.echo(env.url(kind), blocks=2)
    s = server.connect()
    stuff(s)
    server.stop(signal.SIGTERM, 2)
    s.close()


def stuff(s):
    """Sends without reading until nothing moves any more."""
    s.setblocking(False)
    quiet = 0
    while quiet < 10:
        try:
            s.send(bytes(MIB))
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.03)


@case("sigint")
def sigint(env):
    """Ctrl-C, a second one close behind."""
    server = env.echo(env.url("tcp"), blocks=4)
    server.serves()
    server.p.send_signal(signal.SIGINT)
    try:
        server.p.send_signal(signal.SIGINT)
    except ProcessLookupError:
        pass
    server.stopped = True
    server.expect(0, 15, "no exit after SIGINT")


@case("sigterm_under_load")
def sigterm_under_load(env):
    """In the middle of transfers."""
    server = env.echo(env.url("tcp"), blocks=4)
    socks = [server.connect() for _ in range(4)]
    end = time.monotonic() + 0.5
    for s in socks:
        s.setblocking(False)
    while time.monotonic() < end:
        for s in socks:
            try:
                s.send(bytes(65536))
                s.recv(65536)
            except BlockingIOError:
                pass
    server.stop(signal.SIGTERM, 2)


@case("sigterm_cat")
def sigterm_cat(env):
    """cat waits for its peer, its input is open: it ends by the signal or with a code, but it ends."""
    server = env.echo(env.url("tcp"), blocks=1)
    cat = env.cat(server.url)
    cat.p.stdin.write(b"x")
    cat.p.stdin.flush()
    check(cat.p.stdout.read(1) == b"x", "no echo")
    cat.p.send_signal(signal.SIGTERM)
    cat.wait(15, "cat did not end after SIGTERM")
    server.serves("after a client that was ended")


def unrest(env, server, what):
    """What is wrong with a server that has nothing to do: more than 5% of a core in 3 seconds, or polling on the CPU
    device."""
    ticks, woken = cpu_ticks(server.pid), switches(server.pid)
    time.sleep(3)
    ticks, woken = cpu_ticks(server.pid) - ticks, switches(server.pid) - woken
    limit = 0.05 * 3 * os.sysconf("SC_CLK_TCK")
    if ticks > limit:
        return f"{ticks} clock ticks in 3 s {what}, {limit:g} allowed"
    # The GPU's sentinel may look a thousand times a second.
    most = 300 if env.device == "cpu" else 4500
    return f"{woken} wake-ups in 3 s {what}, {most} allowed" if woken > most else None


@each(TCP_UNIX, limit=60, beside="idle")
def idle(env, kind):
    """A server without work, and one whose client is silent, sleeps."""
    server = env.echo(env.url(kind), blocks=4)
    for connected in (False, True):
        s = None
        if connected:
            s = server.connect()
            s.sendall(b"x")
            recv_exact(s, 1)
        time.sleep(env.seconds(1))
        at_rest(lambda c=connected: unrest(env, server, "with a silent client" if c else "without clients"))
        if s:
            s.close()


@each(TCP_UNIX, limit=60, beside="idle")
def idle_full(env, kind):
    """The same while a client does not read what was sent to it: waiting for room is idle too."""
    server = env.echo(env.url(kind), blocks=2)
    s = server.connect()
    stuff(s)
    time.sleep(env.seconds(1))
    if env.device == "cpu":
        at_rest(lambda: unrest(env, server, "with a client that does not read"))
    s.close()
    server.serves("after a client that did not read")


@case("nofile_64", limit=60)
def nofile_64(env):
    """ulimit -n 64: more clients than descriptors, one after the other and at once."""
    server = env.echo(env.url("tcp"), blocks=4, preexec_fn=limits(nofile=64))
    for _ in range(env.size(100, 80)):
        server.serves()
    many_clients(env, server, 150, 2000)


@each(TCP_UNIX, limit=60, beside="none")
def emfile_and_recovery(env, kind):
    """More open connections than descriptors: those that do not fit wait in the backlog, the server
    does not spin over them, and all are served when there is room again."""
    server = env.echo(env.url(kind), blocks=60, threads=32, preexec_fn=limits(nofile=64))
    socks = [server.connect() for _ in range(100)]
    for i, s in enumerate(socks):
        s.sendall(b"number %d" % i)
    time.sleep(env.seconds(1))
    check(descriptors(server.pid) <= 64, "more descriptors than the limit")
    ticks = cpu_ticks(server.pid)
    time.sleep(2)
    ticks = cpu_ticks(server.pid) - ticks
    for i, s in enumerate(socks):
        try:
            s.shutdown(socket.SHUT_WR)
            want = b"number %d" % i
            check(recv_exact(s, len(want)) == want, f"client {i} got other bytes")
            check(s.recv(1) == b"", f"client {i} got more than it sent")
        except OSError as e:
            check(False, f"client {i}: {e}")
        s.close()
    # Half a core: five hundred tries a second, which a sanitizer makes dearer.
    limit = int(2 * os.sysconf("SC_CLK_TCK") * (0.5 if env.slow <= 1 else 0.9))
    # Under TSan sixty blocks take longer than that to come to rest.
    if env.device == "cpu" and env.slow < 5:
        check(ticks <= limit, f"{ticks} clock ticks in 2 s out of descriptors, {limit} allowed")
    server.serves("after EMFILE")


@case("max_sockets_16", limit=60)
def max_sockets_16(env):
    """The network's own limit: connections beyond it wait in the backlog and are served later."""
    server = env.echo(env.url("tcp"), blocks=32, extra_env={"GPUNET_MAX_SOCKETS": "16"})
    many_clients(env, server, 100, 2000)
    server.serves("after the socket limit")


@case("descriptors_stable", limit=60)
def descriptors_stable(env):
    """500 connections later the process has as many descriptors as before."""
    server = env.echo(env.url("tcp"), blocks=4)
    server.serves()
    time.sleep(0.2)
    before = descriptors(server.pid)
    for i in range(env.size(500, 100)):
        with server.connect() as s:
            if i % 3:
                exchange(s, b"x")
    end = time.monotonic() + env.seconds(5)
    while descriptors(server.pid) > before and time.monotonic() < end:
        time.sleep(0.05)
    now = descriptors(server.pid)
    check(now <= before, f"{now} descriptors, {before} before; server at {server.url}")


def memory_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


@case("memory_stable", limit=120, long=True)
def memory_stable(env):
    """20,000 connections: resident memory after the second half is what it was after the first."""
    # Few slots: each that is used for the first time touches memory of its own.
    server = env.echo(env.url("tcp"), blocks=4, extra_env={"GPUNET_MAX_SOCKETS": "256"})
    sizes = []
    for _ in range(2):
        for _ in range(10000):
            with server.connect() as s:
                exchange(s, b"x" * 500)
        sizes.append(memory_of(server.pid))
    check(sizes[1] <= sizes[0] + 1024, f"resident KiB: {sizes}")


@case("memlock_64k")
def memlock_64k(env):
    """A tight limit on locked memory does not concern TCP on the CPU device: no word about it."""
    if env.device != "cpu":
        raise Skip("the GPU's memory is pinned by the driver")
    server = env.echo(env.url("tcp"), preexec_fn=limits(memlock=65536))
    server.serves()
    server.stop()
    check(server.err() == "", f"unasked words: {server.err()[-400:]!r}")


@case("quiet")
def quiet(env):
    """A server that has nothing to complain about writes nothing to standard error."""
    server = env.echo(env.url("tcp"))
    server.serves()
    server.stop()
    check(server.err() == "", f"unasked words: {server.err()[-400:]!r}")


@case("gpu_asked_for_in_vain")
def gpu_asked_for_in_vain(env):
    """--device cuda without a GPU is an error, never the CPU device in silence."""
    if os.path.exists("/dev/nvidiactl"):
        raise Skip("there is a GPU")
    for args in (("--device", "cuda"), ("--device", "cuda:7")):
        p = Process(env, env.command("echo", "tcp://127.0.0.1:0", *args), stdout=subprocess.DEVNULL)
        p.expect(1)
        check("cuda" in p.err().lower() or "gpu" in p.err().lower(), f"no reason: {p.err()!r}")
    p = Process(env, env.command("echo", "tcp://127.0.0.1:0"), stdout=subprocess.DEVNULL,
                extra_env={"GPUNET_DEVICE": "cuda"})
    p.expect(1)
    check("cuda" in p.err().lower() or "gpu" in p.err().lower(), f"no reason: {p.err()!r}")


@case("bad_options")
def bad_options(env):
    """An option out of range or unreadable is an error that names it."""
    for name, value in (("GPUNET_SEGMENT_BYTES", "3000"), ("GPUNET_MAX_SOCKETS", "many"),
                        ("GPUNET_PROXY_THREADS", "1000"), ("GPUNET_QUEUE_ENTRIES", "100"),
                        ("GPUNET_SLAB_BYTES", "-1"), ("GPUNET_DEVICE", "tpu")):
        p = Process(env, env.command("echo", "tcp://127.0.0.1:0"), stdout=subprocess.DEVNULL,
                    extra_env={name: value})
        code = p.wait(10, f"{name}={value}: it runs")
        check(code in (1, 2), f"{name}={value}: exit {code}")
        text = p.err()
        check(name in text or name[7:].lower() in text or value in text,
              f"{name}={value}: the reason does not name it: {text!r}")


@case("kill_200", limit=300, beside="none")
def kill_200(env):
    """SIGKILL, 200 times, with a client in mid-transfer: the port is free again at once, and nothing is left."""
    server = env.echo(env.url("tcp"), blocks=2)
    url = server.url
    before = leftovers()
    for i in range(env.size(200, 8)):
        s = server.connect()
        s.sendall(pattern(200000))
        s.recv(1)
        server.kill()
        s.close()
        server = env.echo(url, blocks=2)
        check(server.url == url, f"{server.url} instead of {url} in round {i}")
    server.serves()
    server.kill()
    new = leftovers() - before
    check(not new, f"left behind: {sorted(new)}")


def leftovers():
    """What a process could leave outside itself: shared memory, temporary files, System V objects. (tmpxft_: nvcc is at
    work on our headers.)"""
    names = set()
    for folder in ("/dev/shm", "/dev/mqueue", "/dev/hugepages", "/tmp", "/var/tmp", "/run"):
        try:
            names.update(f"{folder}/{n}" for n in os.listdir(folder)
                         if re.search("gpunet|gnet", n) and not n.startswith("tmpxft_"))
        except OSError:
            pass
    for table in ("shm", "sem", "msg"):
        try:
            with open(f"/proc/sysvipc/{table}", encoding="ascii") as f:
                names.update(f"{table} {line.split()[1]}" for line in f.readlines()[1:])
        except OSError:
            pass
    return names


@case("kill_unix", limit=200)
def kill_unix(env):
    """After SIGKILL a UNIX path is stale and an abstract name is free: both serve again at once."""
    path_url = env.url("unix")
    name_url = env.url("abstract")
    for _ in range(env.size(10, 3)):
        for url in (path_url, name_url):
            server = env.echo(url, blocks=2)
            server.serves()
            server.kill()


@case("affinity_kept")
def affinity_kept(env):
    """The threads of the process stay on the CPUs that the caller allowed."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise Skip("one CPU only")
    server = env.echo(env.url("tcp"), preexec_fn=lambda: os.sched_setaffinity(0, {allowed[0]}))
    server.serves()
    main = os.sched_getaffinity(server.pid)
    check(main == {allowed[0]}, f"the main thread may run on {main}")


@case("server_stdin_closed")
def server_stdin_closed(env):
    """Descriptors 0 and 2 closed at start: the library's own descriptors take their numbers and
    nothing breaks."""
    import peerlib

    argv = env.command("echo", env.url("tcp"), "--device", env.device, "--blocks", "2", "--threads",
                       "32")

    def close_both():
        os.close(0)
        os.close(2)

    server = peerlib.Server(env, "", argv=argv, preexec_fn=close_both)
    for _ in range(3):
        server.serves()


@case("many_accepting_blocks", limit=60)
def many_accepting_blocks(env):
    """64 blocks wait on one listener; connections go to one each."""
    raise_nofile(256)
    server = env.echo(env.url("tcp"), blocks=64, threads=32)
    socks = [server.connect() for _ in range(64)]
    for i, s in enumerate(socks):
        s.sendall(b"%04d" % i)
    for i, s in enumerate(socks):
        check(recv_exact(s, 4) == b"%04d" % i, f"client {i} got another's bytes")
    for s in socks:
        s.close()


@each(("1", "7", "33", "256", "1024"), limit=60)
def block_size(env, threads):
    """Blocks of every size serve."""
    server = env.echo(env.url("tcp"), blocks=2, threads=int(threads))
    with server.connect() as s:
        exchange(s, pattern(env.size(MIB // 4, MIB // 16)))
    server.serves()
