# SPDX-License-Identifier: BSD-3-Clause
"""Bytes there and back: volume, short I/O, many clients, half-close."""

import random
import select
import signal
import socket
import subprocess
import threading
import time

from peerlib import (ALL, TCP_UNIX, Fail, Sender, address, case, check, descriptors, each, exchange,
                     linger_zero, pattern, raise_nofile, recv_all, recv_exact, same)

MIB = 1 << 20


def echo_through(server, data, piece=lambda: MIB, prepare=None, read=lambda s: s.recv(MIB)):
    """One connection: sends `data` from a thread while this one reads."""
    with server.socket() as s:
        if prepare:
            prepare(s)
        s.connect(address(server.url)[1])
        sender = Sender(s, data, piece)
        parts = []
        while True:
            part = read(s)
            if not part:
                break
            parts.append(part)
        sender.join()
        check(sender.error is None, sender.error)
    same(data, b"".join(parts))


@each(ALL, limit=120)
def echo_bytes(env, kind):
    """64 MiB of random bytes come back as they were, in pieces of every size."""
    server = env.echo(env.url(kind), blocks=2, threads=128)
    rng = random.Random(7)
    echo_through(server, pattern(env.size(64, 4) * MIB), lambda: rng.randint(1, 3 * MIB))


@each(TCP_UNIX, limit=120)
def echo_tiny_buffers(env, kind):
    """Short sends through small socket buffers, a reader that falls behind. (With the smallest that Linux grants, TCP stands in
    zero-window probes for seconds whoever the server is.)"""
    server = env.echo(env.url(kind), blocks=2, threads=64)
    rng = random.Random(8)
    reads = random.Random(9)

    def prepare(s):
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def read(s):
        if reads.random() < 0.01:
            time.sleep(0.01)
        return s.recv(reads.randint(1, 3000))

    data = pattern(env.size(4 * MIB, MIB // 2))
    echo_through(server, data, lambda: rng.randint(1, 3000), prepare, read)


@each(TCP_UNIX, limit=90)
def echo_small_rings(env, kind):
    """The least memory that the options allow: 16 KiB segments, four of them, for eight clients."""
    server = env.echo(env.url(kind), blocks=8, threads=32, extra_env={
        "GPUNET_SEGMENT_BYTES": "16384", "GPUNET_SLAB_BYTES": "65536",
        "GPUNET_QUEUE_ENTRIES": "64", "GPUNET_CALLS": "64"})
    errors = []

    def client(i):
        try:
            echo_through(server, pattern(env.size(2 * MIB, MIB // 4), seed=i))
        except (Fail, OSError) as e:
            errors.append(f"client {i}: {e}")

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not errors, "; ".join(errors))


@case("echo_proxy_threads", limit=90)
def echo_proxy_threads(env):
    """Four proxy threads: sockets of different owners at the same time."""
    server = env.echo(env.url("tcp"), blocks=8, threads=32,
                      extra_env={"GPUNET_PROXY_THREADS": "4"})
    many_clients(env, server, 64, MIB // 4)


def many_clients(env, server, count, size):
    """`count` connections that are all open before the first byte; each gets its own bytes back."""
    raise_nofile(count + 64)
    socks = []
    for _ in range(count):
        socks.append(server.connect())
    data = [pattern(size, seed=i) for i in range(count)]
    left = {}
    for i, s in enumerate(socks):
        s.setblocking(False)
        left[s.fileno()] = [i, s, 0, bytearray(), False]
    pump(env, left, data)
    for s in socks:
        s.close()


def pump(env, left, data):
    poller = select.poll()
    for fd in left:
        poller.register(fd, select.POLLIN | select.POLLOUT)
    while left:
        ready = poller.poll(env.seconds(20) * 1000)
        check(ready, f"nothing moved for {env.seconds(20):g} s, {len(left)} clients unserved")
        for fd, _ in ready:
            if step(poller, left[fd], data):
                i, s, _, got, _ = left.pop(fd)
                poller.unregister(s)
                same(data[i], bytes(got))


def step(poller, c, data):
    """Moves what one client can move; True when its stream has ended."""
    i, s, at, got, closed = c
    if at < len(data[i]):
        try:
            c[2] = at = at + s.send(data[i][at:at + 65536])
        except BlockingIOError:
            pass
    if at == len(data[i]) and not closed:
        s.shutdown(socket.SHUT_WR)
        c[4] = True
        poller.modify(s, select.POLLIN)
    try:
        part = s.recv(65536)
    except BlockingIOError:
        return False
    got += part
    return not part


@each(TCP_UNIX, limit=60)
def clients_200(env, kind):
    """200 clients at once on four blocks: all are served."""
    server = env.echo(env.url(kind), blocks=4, threads=32)
    many_clients(env, server, 200, env.size(64 << 10, 8 << 10))


@each(TCP_UNIX, limit=60)
def idle_clients_200(env, kind):
    """200 silent clients on four blocks keep nobody out, and none of them is forgotten."""
    raise_nofile(300)
    server = env.echo(env.url(kind), blocks=4, threads=32)
    idle = [server.connect() for _ in range(200)]
    for i in range(5):
        with server.connect() as s:
            exchange(s, pattern(env.size(100_000, 10_000), seed=i))
    for i, s in enumerate(idle):
        s.sendall(b"%d" % i)
    for i, s in enumerate(idle):
        check(recv_exact(s, len(b"%d" % i)) == b"%d" % i, f"other bytes for client {i}")
        s.close()
    server.serves("after 200 idle clients have left")


@each(TCP_UNIX, limit=60)
def busy_clients_share(env, kind):
    """40 clients that never pause on two blocks: each has its turn, and about as often as the others."""
    server = env.echo(env.url(kind), blocks=2, threads=32)
    poller, turns, socks = select.poll(), {}, {}
    for _ in range(40):
        s = server.connect()
        socks[s.fileno()] = s
        turns[s.fileno()] = 0
        poller.register(s, select.POLLIN)
        s.sendall(b"turn")
    end = time.monotonic() + env.seconds(1.5)
    while time.monotonic() < end:
        for fd, _ in poller.poll(1000):
            recv_exact(socks[fd], 4)
            turns[fd] += 1
            socks[fd].sendall(b"turn")
    least, mean = min(turns.values()), sum(turns.values()) / len(turns)
    check(least >= 1 and least >= mean / 10, f"{least} turns for one client, {mean:.0f} on average")
    for s in socks.values():
        s.close()


@each(TCP_UNIX, limit=60)
def deaf_client_beside_others(env, kind):
    """One block: a client that sends and does not read holds up nobody else, and gets all its bytes when it reads."""
    server = env.echo(env.url(kind), blocks=1, threads=32)
    deaf = server.connect()
    deaf.setblocking(False)
    sent, quiet, block = 0, 0, pattern(1 << 16)
    while quiet < 10:
        at = sent % len(block)
        try:
            sent += deaf.send(block[at:])
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.03)
    for _ in range(3):
        server.serves("beside a client that does not read")
    deaf.setblocking(True)
    deaf.settimeout(env.seconds(20))
    deaf.shutdown(socket.SHUT_WR)
    want = block * (sent // len(block)) + block[:sent % len(block)]
    same(want, recv_all(deaf))
    deaf.close()


@each(TCP_UNIX, limit=60)
def reset_beside_others(env, kind):
    """One block: clients that reset their connections take no other one with them."""
    server = env.echo(env.url(kind), blocks=1, threads=32)
    socks = [server.connect() for _ in range(20)]
    for s in socks:
        s.sendall(b"x")
        recv_exact(s, 1)
    for s in socks[::2]:
        linger_zero(s)
        s.sendall(bytes(1000))
        s.close()
    for i, s in enumerate(socks[1::2]):
        exchange(s, pattern(50_000, seed=i))
        s.close()


@each(TCP_UNIX)
def half_close_client_first(env, kind):
    """The client ends its direction before it reads: every byte still comes back, then EOF."""
    server = env.echo(env.url(kind), blocks=1)
    for size in (0, 1, 104, 105, 106, 5000):
        with server.connect() as s:
            exchange(s, pattern(size))


@each(TCP_UNIX)
def half_close_late(env, kind):
    """The end of the client's direction comes alone, long after its last byte was answered."""
    server = env.echo(env.url(kind), blocks=1)
    with server.connect() as s:
        s.sendall(b"first")
        check(recv_exact(s, 5) == b"first", "other bytes came back")
        time.sleep(0.3)
        s.shutdown(socket.SHUT_WR)
        check(s.recv(1) == b"", "a byte after the end")


@each(TCP_UNIX)
def ping_pong(env, kind):
    """Small messages, one at a time, of every size around an inline line."""
    server = env.echo(env.url(kind), blocks=1)
    data = pattern(4096)
    with server.connect() as s:
        for i in range(env.size(2000, 300)):
            n = 1 + i % 300
            s.sendall(data[:n])
            check(recv_exact(s, n) == data[:n], f"message {i} came back changed")


@each(TCP_UNIX)
def idle_then_data(env, kind):
    """A connection that was quiet long enough for every thread to sleep answers again."""
    server = env.echo(env.url(kind), blocks=2)
    with server.connect() as s:
        for i in range(4):
            s.sendall(b"wake up")
            check(recv_exact(s, 7) == b"wake up", "other bytes came back")
            time.sleep(0.4)


@case("urgent_data")
def urgent_data(env):
    """A client that sends an urgent byte, as telnet does: the bytes before and after it come back,
    also when all of them were there before the server looked."""
    server = env.echo(env.url("tcp"), blocks=1)
    with server.connect() as s:
        for _ in range(3):
            server.p.send_signal(signal.SIGSTOP)
            s.sendall(b"before")
            s.send(b"!", socket.MSG_OOB)
            s.sendall(b"after")
            time.sleep(0.05)
            server.p.send_signal(signal.SIGCONT)
            check(recv_exact(s, 11) == b"beforeafter", "other bytes came back")


def can_refuse_descriptors():
    """Whether this system has SO_PASSRIGHTS."""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            return s.getsockopt(socket.SOL_SOCKET, 83) == 1
        except OSError:
            return False


def send_descriptor(s, data):
    """With a descriptor, or without where the other end takes none (Linux 6.16 on); whether it did."""
    try:
        socket.send_fds(s, [data], [0])
    except PermissionError:
        s.sendall(data)
        return False
    return True


@case("descriptors_passed")
def descriptors_passed(env):
    """A UNIX client that passes descriptors along: they are refused or dropped, not leaked, and no byte is."""
    server = env.echo(env.url("unix"), blocks=1)
    with server.connect() as s:
        s.sendall(b"x")
        recv_exact(s, 1)
        before = descriptors(server.pid)
        for _ in range(3):
            server.p.send_signal(signal.SIGSTOP)
            s.sendall(b"first")
            taken = send_descriptor(s, b"second")
            check(not taken or not can_refuse_descriptors(), "the server takes descriptors")
            s.sendall(b"third")
            time.sleep(0.05)
            server.p.send_signal(signal.SIGCONT)
            check(recv_exact(s, 16) == b"firstsecondthird", "other bytes came back")
        check(descriptors(server.pid) == before, "the server kept descriptors")


@each(TCP_UNIX, limit=60)
def cat_bytes(env, kind):
    """gpunet cat to a Python server and back, byte-exact."""
    data = pattern(env.size(16, 1) * MIB)
    with listen_like(env, kind) as (listener, url):
        cat = env.cat(url, stdin=subprocess.PIPE)
        conn, _ = listener.accept()

        def echo():
            with conn:
                while True:
                    part = conn.recv(MIB)
                    if not part:
                        break
                    conn.sendall(part)

        t = threading.Thread(target=echo, daemon=True)
        t.start()
        got, _ = cat.p.communicate(data, timeout=env.seconds(50))
        cat.expect(0)
    same(data, got)


class listen_like:  # noqa: N801: used as a with-statement's function
    """A Python listener of the kind, and its URL for gpunet cat."""

    def __init__(self, env, kind):
        self.url = env.url(kind)
        if kind == "unix":
            self.s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.s.bind(self.url[7:])
        elif kind == "abstract":
            self.s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.s.bind("\0" + self.url[6:])
        else:
            self.s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self.s.bind(("127.0.0.1", 0))
            self.url = f"tcp://127.0.0.1:{self.s.getsockname()[1]}"
        self.s.listen(16)
        self.s.settimeout(env.seconds(20))

    def __enter__(self):
        return self.s, self.url

    def __exit__(self, *unused):
        self.s.close()


@each(TCP_UNIX, limit=60)
def cat_to_echo(env, kind):
    """Kernel to kernel, two processes: gpunet cat and gpunet echo."""
    server = env.echo(env.url(kind), blocks=2)
    data = pattern(env.size(8, 1) * MIB)
    cat = env.cat(server.url)
    got, _ = cat.p.communicate(data, timeout=env.seconds(50))
    cat.expect(0)
    same(data, got)


@each(TCP_UNIX)
def cat_no_input(env, kind):
    """An input that ends at once: the peer sees EOF, its bytes are printed, exit 0."""
    with listen_like(env, kind) as (listener, url):
        cat = env.cat(url, stdin=subprocess.DEVNULL)
        conn, _ = listener.accept()
        with conn:
            conn.settimeout(env.seconds(10))
            check(recv_all(conn) == b"", "bytes from an empty input")
            conn.sendall(b"late answer")
        check(cat.p.stdout.read() == b"late answer", "the answer was not printed")
        cat.expect(0)


@each(TCP_UNIX)
def cat_server_half_closes_first(env, kind):
    """The peer's end of the stream comes first: what it had sent is printed, cat does not hang."""
    with listen_like(env, kind) as (listener, url):
        cat = env.cat(url)
        conn, _ = listener.accept()
        with conn:
            conn.settimeout(env.seconds(10))
            conn.sendall(b"hello")
            conn.shutdown(socket.SHUT_WR)
            check(cat.p.stdout.read() == b"hello", "the peer's bytes were not printed")
            cat.p.stdin.close()
            recv_all(conn)
        cat.expect(0)
