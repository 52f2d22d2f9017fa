# SPDX-License-Identifier: BSD-3-Clause
"""Peers that die, reset, stall or were never there."""

import os
import signal
import socket
import subprocess
import sys
import time

from cases_stream import MIB, listen_like
from peerlib import (TCP_UNIX, Sender, Skip, address, case, check, each, exchange, linger_zero, pattern,
                     raise_nofile, recv_all, same)

# A client that sends without reading until somebody kills it; it says when it is under way.
FLOOD = """
import socket, sys
family, addr = int(sys.argv[1]), eval(sys.argv[2])
s = socket.socket(family, socket.SOCK_STREAM)
s.connect(addr)
sent = 0
while True:
    sent += s.send(bytes(100000))
    if sent > {mark}:
        print("going", flush=True)
    if {read}:
        s.recv(65536)
"""


def flood(env, server, read):
    family, addr = address(server.url)
    script = FLOOD.format(mark=200000, read=read)
    p = subprocess.Popen([sys.executable, "-c", script, str(int(family)), repr(addr)],
                         stdout=subprocess.PIPE)
    check(p.stdout.readline() == b"going\n", "the flooding client failed")
    return p


@each(TCP_UNIX, limit=60)
def client_killed(env, kind):
    """SIGKILL of a client in mid-transfer, while it reads and while it does not; the only block
    of the server then serves the next one."""
    server = env.echo(env.url(kind), blocks=1)
    for i in range(env.size(10, 4)):
        p = flood(env, server, read=i % 2)
        time.sleep(0.02 * i)
        p.kill()
        p.wait()
        p.stdout.close()
        server.serves(f"after killed client {i}")


@each(TCP_UNIX, limit=60)
def client_killed_others_live(env, kind):
    """A client that dies does not disturb another one's transfer."""
    server = env.echo(env.url(kind), blocks=4)
    data = pattern(env.size(16, 2) * MIB)
    with server.connect() as s:
        sender = Sender(s, data)
        for _ in range(3):
            p = flood(env, server, read=1)
            p.kill()
            p.wait()
            p.stdout.close()
        got = recv_all(s)
        sender.join()
        check(sender.error is None, sender.error)
    same(data, got)


@case("client_reset")
def client_reset(env):
    """RST instead of FIN at three moments: at once, after bytes, with an answer unread."""
    server = env.echo(env.url("tcp"), blocks=1)
    for i in range(env.size(30, 9)):
        s = server.connect()
        linger_zero(s)
        if i % 3 >= 1:
            s.sendall(pattern(50000))
        if i % 3 == 2:
            s.recv(1)
        s.close()
    server.serves("after resets")


@each(TCP_UNIX)
def client_stalled(env, kind):
    """A client that sends and never reads fills every buffer; others are served meanwhile, and its
    block is free again once it is gone."""
    server = env.echo(env.url(kind), blocks=2)
    s = server.connect()
    s.setblocking(False)
    quiet = 0
    while quiet < 10:
        try:
            s.send(bytes(MIB))
            quiet = 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.03)
    for _ in range(5):
        server.serves("beside a stalled client")
    s.close()
    with server.connect() as a, server.connect() as b:
        exchange(a, b"one")
        exchange(b, b"two")


@case("connect_and_close", limit=60)
def connect_and_close(env):
    """Connections that are gone before they are accepted."""
    server = env.echo(env.url("tcp"), blocks=1)
    for i in range(env.size(300, 60)):
        s = server.connect()
        if i % 2:
            linger_zero(s)
        s.close()
    server.serves("after connections that were gone at once")


@each(TCP_UNIX)
def cat_refused(env, kind):
    """Nobody listens: exit 1, and the reason names the cause."""
    with listen_like(env, kind) as (_, url):
        pass
    cat = env.cat(url, stdin=subprocess.DEVNULL)
    cat.expect(1)
    check("refused" in cat.err().lower(), f"the reason is missing: {cat.err()!r}")


@each(TCP_UNIX)
def cat_server_killed(env, kind):
    """The peer dies without having read cat's bytes: over TCP that is a reset, and cat says so."""
    child_says, say = os.pipe()
    with listen_like(env, kind) as (listener, url):
        pid = os.fork()
        if pid == 0:
            conn, _ = listener.accept()
            conn.recv(1, socket.MSG_PEEK)
            os.write(say, b"x")
            signal.pause()
    cat = env.cat(url)
    cat.p.stdin.write(b"nobody reads this")
    cat.p.stdin.flush()
    os.read(child_says, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    cat.expect(1)
    check("reset" in cat.err().lower(), f"the reason is missing: {cat.err()!r}")


@each(TCP_UNIX)
def cat_server_killed_while_sending(env, kind):
    """The peer dies in the middle of its answer; the input stays open. cat ends all the same."""
    with listen_like(env, kind) as (listener, url):
        pid = os.fork()
        if pid == 0:
            conn, _ = listener.accept()
            while True:
                conn.send(bytes(100000))
    cat = env.cat(url)
    got = cat.p.stdout.read(500000)
    check(len(got) == 500000, "the stream ended early")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    cat.p.stdout.read()
    code = cat.wait(20, "cat did not end after its peer's death")
    check(code in (0, 1), f"exit {code}; stderr: {cat.err()[-400:]!r}")


@case("cat_output_closed")
def cat_output_closed(env):
    """Standard output goes away (head -c): cat ends instead of waiting for ever."""
    with listen_like(env, "tcp") as (listener, url):
        r, w = os.pipe()
        cat = env.cat(url, stdin=subprocess.PIPE, stdout=w)
        os.close(w)
        conn, _ = listener.accept()
        with conn:
            conn.settimeout(env.seconds(10))
            conn.sendall(b"x")
            check(os.read(r, 1) == b"x", "nothing was printed")
            os.close(r)
            end = time.monotonic() + env.seconds(10)
            try:
                while time.monotonic() < end and cat.p.poll() is None:
                    conn.sendall(bytes(65536))
            except OSError:
                pass
        code = cat.wait(15, "cat did not end after its output was closed")
        check(code in (1, -signal.SIGPIPE), f"exit {code}; stderr: {cat.err()[-400:]!r}")


@case("cat_nonblocking_stdio", limit=60)
def cat_nonblocking_stdio(env):
    """Standard input and output inherited with O_NONBLOCK, a slow producer and a slow consumer:
    EAGAIN is not an error and nothing is lost."""
    server = env.echo(env.url("tcp"), blocks=1)
    in_r, in_w = os.pipe()
    out_r, out_w = os.pipe()
    os.set_blocking(in_r, False)
    os.set_blocking(out_w, False)
    cat = env.cat(server.url, stdin=in_r, stdout=out_w)
    os.close(in_r)
    os.close(out_w)
    time.sleep(0.3)  # cat meets an empty pipe first
    data = pattern(env.size(2 * MIB, MIB // 4))
    feeder = subprocess.Popen([sys.executable, "-c", "import sys, shutil; "
                               "shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"],
                              stdin=subprocess.PIPE, stdout=in_w)
    os.close(in_w)
    got = bytearray()
    pid = os.fork()
    if pid == 0:
        os.close(out_r)
        feeder.stdin.write(data)
        feeder.stdin.close()
        os._exit(0)
    feeder.stdin.close()
    time.sleep(0.5)  # cat meets a full pipe
    while True:
        part = os.read(out_r, 8192)
        if not part:
            break
        got += part
    os.waitpid(pid, 0)
    feeder.wait()
    cat.expect(0)
    same(data, bytes(got))


@each(TCP_UNIX, limit=90)
def backlog_2000(env, kind):
    """2,000 clients connect and send while the server is stopped; none is lost."""
    count = 2000
    with open("/proc/sys/net/core/somaxconn", encoding="ascii") as f:
        somaxconn = int(f.read())
    if somaxconn < count:
        raise Skip(f"net.core.somaxconn is {somaxconn}")
    raise_nofile(count + 100)
    server = env.echo(env.url(kind), blocks=4)
    server.p.send_signal(signal.SIGSTOP)
    socks = []
    for i in range(count):
        s = server.connect()
        s.sendall(b"client %d" % i)
        s.shutdown(socket.SHUT_WR)
        socks.append(s)
    time.sleep(2)
    server.p.send_signal(signal.SIGCONT)
    for i, s in enumerate(socks):
        s.settimeout(env.seconds(60))
        try:
            got = recv_all(s)
        except OSError as e:
            check(False, f"client {i} of {count}: {e}")
        check(got == b"client %d" % i, f"client {i} got {got!r}")
        s.close()


@case("stopped_and_continued", limit=60)
def stopped_and_continued(env):
    """SIGSTOP and SIGCONT in mid-transfer interrupt system calls; no byte is lost."""
    server = env.echo(env.url("tcp"), blocks=1)
    data = pattern(env.size(16, 2) * MIB)
    got = bytearray()
    with server.connect() as s:
        sender = Sender(s, data)
        for _ in range(40):
            server.p.send_signal(signal.SIGSTOP)
            time.sleep(0.005)
            server.p.send_signal(signal.SIGCONT)
            got += s.recv(len(data) // 50)
        got += recv_all(s)
        sender.join()
        check(sender.error is None, sender.error)
    same(data, bytes(got))
