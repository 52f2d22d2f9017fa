# SPDX-License-Identifier: BSD-3-Clause
"""nc, socat, curl and the examples."""

import os
import re
import socket
import subprocess
import time

from cases_stream import MIB
from peerlib import (TCP_UNIX, Server, Skip, case, check, each, need_program, pattern, recv_all,
                     same)


def through(env, argv, data, seconds=60):
    """Runs a client with `data` as its input and returns its output."""
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    try:
        out, err = p.communicate(data, timeout=env.seconds(seconds))
    except subprocess.TimeoutExpired:
        p.kill()
        check(False, f"{' '.join(argv)} did not end within {env.seconds(seconds):g} s")
    check(p.returncode == 0, f"{' '.join(argv)}: exit {p.returncode}, {err[-300:]!r}")
    return out


def need_openbsd_nc():
    need_program("nc")
    p = subprocess.run(("nc", "-h"), capture_output=True, text=True, check=False)
    if "-N" not in p.stdout + p.stderr and "klNn" not in p.stdout + p.stderr:
        raise Skip("this nc has no -N")


@each(("tcp", "tcp6", "unix"), limit=120)
def nc(env, kind):
    """nc -N: random bytes there and back."""
    need_openbsd_nc()
    server = env.echo(env.url(kind), blocks=2, threads=128)
    data = pattern(env.size(64, 4) * MIB)
    if kind == "unix":
        argv = ["nc", "-N", "-U", server.url[7:]]
    else:
        host = "127.0.0.1" if kind == "tcp" else "::1"
        argv = ["nc", "-N", host, str(server.port())]
    same(data, through(env, argv, data))


@each(("tcp", "tcp6", "unix", "abstract"), limit=120)
def socat(env, kind):
    """socat: random bytes there and back."""
    need_program("socat")
    server = env.echo(env.url(kind), blocks=2, threads=128)
    data = pattern(env.size(16, 2) * MIB)
    where = {"tcp": lambda: f"TCP4:127.0.0.1:{server.port()}",
             "tcp6": lambda: f"TCP6:[::1]:{server.port()}",
             "unix": lambda: "UNIX-CONNECT:" + server.url[7:],
             "abstract": lambda: "ABSTRACT-CONNECT:" + server.url[6:]}[kind]()
    # -t: how long socat waits for the other direction after one has ended.
    same(data, through(env, ["socat", "-t", str(env.seconds(30)), "-", where], data))


@case("nc_as_server")
def nc_as_server(env):
    """gpunet cat to nc -l, each way."""
    need_openbsd_nc()
    path = env.file("nc")
    p = subprocess.Popen(["nc", "-l", "-N", "-U", path], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE)
    end = time.monotonic() + env.seconds(5)
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.1)
    cat = env.cat("unix://" + path)
    cat.p.stdin.write(b"from the kernel")
    cat.p.stdin.close()
    p.stdin.write(b"from nc")
    p.stdin.close()
    check(cat.p.stdout.read() == b"from nc", "cat printed something else")
    check(p.stdout.read() == b"from the kernel", "nc printed something else")
    cat.expect(0)
    p.wait()


# ---- the http example -------------------------------------------------------------------------

class Http(Server):
    """The example, its URL as curl wants it."""

    def __init__(self, env):
        path = find_example(env, "http")
        super().__init__(env, "", argv=env.wrapper + [path, "tcp://127.0.0.1:0", "--device",
                                                      env.device])
        self.base = f"http://127.0.0.1:{self.port()}"


def find_example(env, name):
    for form in (f"example-{name}", f"example_{name}", name):
        path = os.path.join(env.examples, form)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    raise Skip(f"no example {name} in {env.examples}")


def curl(env, *args):
    need_program("curl")
    return through(env, ["curl", "-sS", "--noproxy", "*", "--max-time", str(int(env.seconds(15))),
                         *args], b"", 20)


@case("http_get")
def http_get(env):
    """GET of the root page."""
    server = Http(env)
    out = curl(env, "-i", server.base + "/").decode()
    check(out.startswith("HTTP/1.1 200"), f"answer: {out[:200]!r}")
    head, body = out.split("\r\n\r\n", 1)
    length = re.search(r"(?im)^content-length: *(\d+)", head)
    check(length and int(length.group(1)) == len(body), f"length: {head!r}, {len(body)} bytes")
    check(re.search(r"(?im)^content-type: ", head), f"no type: {head!r}")


@case("http_head")
def http_head(env):
    """HEAD: the same header, no body, and the connection stays usable."""
    server = Http(env)
    get = curl(env, "-i", server.base + "/").decode()
    head = curl(env, "-I", server.base + "/", "--next", "-sS", "-i", server.base + "/").decode()
    length = re.search(r"(?im)^content-length: *\d+", get).group(0)
    first, rest = head.split("\r\n\r\n", 1)
    check(first.startswith("HTTP/1.1 200") and length in first, f"answer: {first!r}")
    check(rest.startswith("HTTP/1.1 200"), f"after HEAD: {rest[:100]!r}")


@case("http_not_found")
def http_not_found(env):
    """An unknown path is 404."""
    server = Http(env)
    out = curl(env, "-o", "/dev/null", "-w", "%{http_code}", server.base + "/no/such/page")
    check(out == b"404", f"status {out!r}")


@case("http_keep_alive")
def http_keep_alive(env):
    """Five requests, one connection."""
    server = Http(env)
    args = []
    for _ in range(5):
        args += ["-o", "/dev/null", server.base + "/"]
    out = curl(env, "-w", "%{num_connects} %{http_code}\n", *args).decode().split("\n")
    check(out[:5] == ["1 200"] + ["0 200"] * 4, f"connections and codes: {out}")


@case("http_close")
def http_close(env):
    """Connection: close is obeyed, as is HTTP/1.0's default."""
    server = Http(env)
    for request in (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                    b"GET / HTTP/1.0\r\n\r\n"):
        with server.connect() as s:
            s.sendall(request)
            got = recv_all(s)
        check(got.startswith(b"HTTP/1."), f"answer: {got[:100]!r}")


@case("http_pipelining")
def http_pipelining(env):
    """Twenty requests in one segment, then byte by byte: as many answers, in order."""
    server = Http(env)
    one = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with server.connect() as s:
        s.sendall(one * 19 + last)
        got = recv_all(s)
    check(got.count(b"HTTP/1.1 200") == 20, f"{got.count(b'HTTP/1.1 200')} answers to 20 requests")
    with server.connect() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(last)):
            s.send(last[i:i + 1])
        got = recv_all(s)
    check(got.count(b"HTTP/1.1 200") == 1, f"answer to a slow request: {got[:100]!r}")


@case("http_bad_requests")
def http_bad_requests(env):
    """Nonsense gets an error or a closed connection, and the server lives on."""
    server = Http(env)
    for request in (b"\r\n\r\n", b"GET\r\n\r\n", b"\0" * 100 + b"\r\n\r\n", b"A" * 100000,
                    b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
                    b"GET / HTTP/9.9\r\n\r\n"):
        with server.connect() as s:
            try:
                s.sendall(request)
                s.shutdown(socket.SHUT_WR)
                got = recv_all(s)
            except (BrokenPipeError, ConnectionResetError):
                continue
        check(not got or got.startswith(b"HTTP/1.1 "), f"{request[:20]!r}: {got[:100]!r}")
    out = curl(env, "-o", "/dev/null", "-w", "%{http_code}", server.base + "/")
    check(out == b"200", f"after bad requests: {out!r}")


@case("http_many", limit=60)
def http_many(env):
    """Thirty browsers at once."""
    server = Http(env)
    request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    socks = [server.connect() for _ in range(30)]
    for s in socks:
        s.sendall(request)
    for i, s in enumerate(socks):
        got = recv_all(s)
        check(got.startswith(b"HTTP/1.1 200"), f"browser {i}: {got[:100]!r}")
        s.close()


# ---- the echo example -------------------------------------------------------------------------

@each(TCP_UNIX)
def example_echo(env, kind):
    """The example's server serves Python as the tool's does."""
    path = find_example(env, "echo")
    server = Server(env, "", argv=env.wrapper + [path, env.url(kind)])
    server.serves()
