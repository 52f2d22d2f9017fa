# SPDX-License-Identifier: BSD-3-Clause
"""gpunet stat: what it says of a server's sockets against what its clients know."""

import errno
import json
import os
import signal
import socket
import struct
import subprocess
import time

from cases_rdma import RNIC, own_address
from peerlib import (TCP_UNIX, Process, Server, at_rest, case, check, each, limits, need_root, recv_exact, switches)

MAGIC, STREAM_BW, STREAM_LAT = 0x46724567, 0, 1


def hello(test, size, count, reverse=False):
    """What begins a connection to gpunet perf (tools/perf.h)."""
    return struct.pack("<IIIIQQ32x", MAGIC, 1, test, reverse, size, count)


def server(env, url, blocks):
    return Server(env, url, argv=env.command("perf", url, "--device", env.device, "--blocks", blocks))


def stat(env, pid):
    """The one network of a process."""
    got = subprocess.run(env.command("stat", pid, "--json"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         check=False, timeout=env.seconds(20))
    check(got.returncode == 0, f"exit {got.returncode}")
    nets = [json.loads(line) for line in got.stdout.splitlines()]
    check(len(nets) == 1 and nets[0]["pid"] == pid and nets[0]["complete"], f"{nets}")
    return nets[0]


def until(env, pid, want, what):
    """Looks until `want(sockets)` holds."""
    end = time.monotonic() + env.seconds(10)
    while True:
        sockets = stat(env, pid)["sockets"]
        if want(sockets):
            return sockets
        check(time.monotonic() < end, f"{what}: {sockets}")
        time.sleep(0.05)


def connected(sockets):
    return [s for s in sockets if s["state"] == "connected"]


@each(TCP_UNIX, limit=40)
def stat_bytes(env, kind):
    """State, names, bytes and accepted connections are those of the client; a closed one is gone."""
    s = server(env, env.url(kind), 2)
    net = stat(env, s.pid)
    check(net["device"] == env.device and len(net["sockets"]) == 1, f"{net}")
    listener = net["sockets"][0]
    check(listener["state"] == "listening" and listener["local"] == s.url and listener["accepted"] == 0,
          f"{listener}")
    with s.connect() as c:
        c.sendall(hello(STREAM_LAT, 1000, 1))
        for _ in range(3):
            c.sendall(bytes(1000))
            recv_exact(c, 1000)
        c.sendall(bytes(10))
        one = connected(until(env, s.pid, lambda all: any(k["received"] == 64 + 3010 for k in all),
                              "3,074 bytes received"))[0]
        check(one["sent"] == 3000 and one["unsent"] == 0 and one["errors"] == 0, f"{one}")
        check(one["transport"] == ("unix" if kind == "unix" else "tcp"), f"{one}")
        if kind == "tcp":
            host, port = c.getsockname()
            check(one["peer"] == f"tcp://{host}:{port}" and one["local"] == s.url, f"{one}")
    sockets = until(env, s.pid, lambda all: not connected(all), "the connection is gone")
    check(len(sockets) == 1 and sockets[0]["accepted"] == 1, f"{sockets}")
    s.stop()


@each(TCP_UNIX, limit=40)
def stat_waits(env, kind):
    """Blocks that wait, by call: two in the accept and receive of one connection, then one in a send that nobody reads."""
    s = server(env, env.url(kind), 2)
    until(env, s.pid, lambda all: [(w["call"], w["behind"]) for w in all[0]["waits"]] ==
          [("accept", False), ("accept", True)], "a block waits in accept, and one for its turn to")
    with s.connect() as c:
        c.sendall(hello(STREAM_LAT, 1000, 1))
        sockets = until(env, s.pid, lambda all: any(w["call"] == "recv" for k in connected(all) for w in k["waits"]),
                        "a block waits in recv")
        block = connected(sockets)[0]["waits"][0]["block"]
        check(block in (0, 1), f"block {block}")
        until(env, s.pid, lambda all: [w["block"] for w in all[0]["waits"]] == [1 - block],
              "the other block waits in accept")
        c.sendall(bytes(1000))
        recv_exact(c, 1000)
    with s.connect() as c:
        c.sendall(hello(STREAM_BW, 1 << 20, 64, True))
        sockets = until(env, s.pid, lambda all: any(w["call"] == "send" for k in connected(all) for w in k["waits"]),
                        "a block waits in send")
        one = connected(sockets)[0]
        check(0 < one["unsent"] <= stat(env, s.pid)["ring_bytes"], f"{one}")
        while c.recv(1 << 20):
            pass
        c.shutdown(socket.SHUT_RDWR)
    until(env, s.pid, lambda all: not connected(all), "the connection is gone")
    s.stop()


@case("stat_polls", limit=40)
def stat_polls(env):
    """Blocks in gpoll are seen, with how many sockets they look at; an answer that is being sent is no wait."""
    s = env.echo(env.url("tcp"), blocks=4)

    def polls(want):
        end = time.monotonic() + env.seconds(10)
        while True:
            waits = stat(env, s.pid)["waits"]
            if len(waits) == 4 and sum(w["sockets"] for w in waits) == want:
                return waits
            check(time.monotonic() < end, f"{want} sockets polled: {waits}")
            time.sleep(0.05)

    waits = polls(4)  # each looks at the listener
    check(sorted(w["block"] for w in waits) == [0, 1, 2, 3] and {w["call"] for w in waits} == {"poll"}, f"{waits}")
    with s.connect() as c:
        c.sendall(b"x")
        recv_exact(c, 1)
        waits = polls(5)
        block = next(w["block"] for w in waits if w["sockets"] == 2)
        until(env, s.pid, lambda all: [(w["call"], w["block"]) for w in connected(all)[0]["waits"]] == [("poll", block)],
              f"block {block} polls the connection")
    polls(4)
    s.stop()


@each(TCP_UNIX, limit=40)
def stat_reports(env, kind):
    """A wait that gave up is kept, with block, call and ring fill, for as long as the process is there."""
    s = server(env, env.url(kind), 1)
    with s.connect() as c:
        c.sendall(hello(STREAM_BW, 1 << 20, 64, True))
        until(env, s.pid, lambda all: any(w["call"] == "send" for k in connected(all) for w in k["waits"]),
              "a block waits in send")
        check(stat(env, s.pid)["reports"] == [], "nothing has given up yet")
        # It is stopped while it is looked at: on its way out, half a second, it does not wait for anybody who starts slowly. Nor is it to be
        # stopped between the abort and the report.
        s.p.send_signal(signal.SIGTERM)
        end = time.monotonic() + env.seconds(10)
        reports = []
        while not reports and time.monotonic() < end:
            s.p.send_signal(signal.SIGCONT)
            time.sleep(0.1)
            s.p.send_signal(signal.SIGSTOP)
            reports = stat(env, s.pid)["reports"]
        check(len(reports) == 1, f"{reports}")
        one = reports[0]
        check((one["number"], one["block"], one["call"], one["behind"]) == (1, 0, "send", False), f"{one}")
        check(one["error"] == errno.ECANCELED and 0 < one["unsent"] and one["unread"] == 0, f"{one}")
        check("gsend" in one["text"] and "aborted" in one["text"], f"{one}")
        text = subprocess.run(env.command("stat", s.pid), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                              timeout=env.seconds(20)).stdout.decode()
        check("gave up, number 1: " + one["text"] in text, text)
        s.p.send_signal(signal.SIGCONT)
        try:
            while c.recv(1 << 20):
                pass
        except ConnectionResetError:
            pass  # it was stopped for longer than it waits for a peer on its way out
    s.expect(0)


@case("stat_datagrams", limit=40)
def stat_datagrams(env):
    s = Server(env, "udp", argv=env.command("perf", "udp://127.0.0.1:0", "--device", env.device))
    one = stat(env, s.pid)["sockets"]
    check([(k["state"], k["local"]) for k in one] == [("datagrams", s.url)], f"{one}")
    s.stop()


@case("stat_is_not_felt", limit=40, device="cpu")
def stat_is_not_felt(env):
    """Looking wakes nobody up."""
    s = env.echo(env.url("tcp"), blocks=4)
    with s.connect() as c:
        c.sendall(b"x")
        recv_exact(c, 1)
        time.sleep(env.seconds(1))
        before, start = switches(s.pid), time.monotonic()
        time.sleep(2)
        rate = (switches(s.pid) - before) / (time.monotonic() - start)  # of the tool that looks for signals, say

        def looked_at():
            before, start = switches(s.pid), time.monotonic()
            for _ in range(20):
                stat(env, s.pid)
            woken, most = switches(s.pid) - before, 10 + 1.5 * rate * (time.monotonic() - start)
            return f"{woken} wake-ups, {most:.0f} allowed" if woken > most else None

        at_rest(looked_at)


@case("stat_after_a_kill", limit=40)
def stat_after_a_kill(env):
    """A killed process leaves nothing that is shown."""
    s = server(env, env.url("tcp"), 1)
    stat(env, s.pid)
    s.kill()
    got = subprocess.run(env.command("stat", "--json"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                         timeout=env.seconds(20))
    check(all(json.loads(line)["pid"] != s.pid for line in got.stdout.splitlines()), "a dead process is shown")
    p = Process(env, env.command("stat", s.pid), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    p.expect(1)
    check(str(s.pid) in p.err(), p.err())


@case("stat_of_others", limit=40)
def stat_of_others(env):
    """Another user's process is not shown, and asked for by number it is an error."""
    need_root()
    s = server(env, env.url("tcp"), 1)
    p = Process(env, env.command("stat", s.pid), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                preexec_fn=limits(uid=65534))
    code = p.wait(10, "it did not end")
    check(code == 1 and "another user" in p.err() or code == 126, f"exit {code}, stderr: {p.err()!r}")
    s.stop()


@case("stat_watch", limit=40)
def stat_watch(env):
    """--watch shows again and again, and ends with a signal; text has a row a socket."""
    s = server(env, env.url("tcp"), 1)
    p = Process(env, env.command("stat", s.pid, "--watch"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    seen = b""
    while seen.count(b"listening") < 2:
        part = os.read(p.p.stdout.fileno(), 65536)
        check(part, f"it ended: {p.err()!r}")
        seen += part
    check(s.url.encode() in seen and f"process {s.pid}".encode() in seen, f"{seen!r}")
    p.p.send_signal(signal.SIGTERM)
    p.expect(0)
    s.stop()


@case("rnic_shows", limit=60)
def rnic_shows(env):
    """The software RNIC of a server: its device, the queue pair of a client, counters; and nothing once the client is gone."""
    host = own_address(env)
    server = env.echo(f"rdma://{host}:7471", extra_env=RNIC)

    def device():
        out = subprocess.run(env.command("rnic", server.pid, "--json"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             check=True, timeout=env.seconds(10)).stdout.decode()
        return json.loads(out)

    def until(what, seconds=10):
        end = time.monotonic() + env.seconds(seconds)
        while not what(device()):
            check(time.monotonic() < end, f"it did not come to that: {device()}")
            time.sleep(0.05)

    first = device()
    check(first["device"] == f"rnic:{host}" and first["pid"] == server.pid and first["qps"] == 0 and first["mtu"] == 4096,
          f"{first}")
    cat = env.cat(server.url, extra_env=RNIC)
    cat.p.stdin.write(b"x" * 100000)
    cat.p.stdin.flush()
    left = 100000
    while left:
        left -= len(os.read(cat.p.stdout.fileno(), left))
    # The last bytes may be on their way, and the page of the first may stand for 50 ms more.
    until(lambda d: d["qps"] == 1 and d["queue_pairs"][0]["state"] == "rts" and d["queue_pairs"][0]["pending"] == 0 and
          min(d["counters"]["rx_bytes"], d["counters"]["tx_bytes"]) >= 100000)
    now = device()
    pair = now["queue_pairs"][0]
    check(pair["peer"].startswith("127.") and pair["posted"] > 0 and pair["received"] > 0 and pair["peer_qpn"] > 0, f"{pair}")
    text = subprocess.run(env.command("rnic", server.pid), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                          timeout=env.seconds(10)).stdout.decode()
    check(f"device rnic:{host}, interface lo, MTU 4096, 1 queue pairs" in text and " rts " in text, text)
    cat.p.stdin.close()
    cat.expect(0, 20)
    until(lambda d: d["qps"] == 0)
    p = Process(env, env.command("rnic", os.getpid()), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    p.expect(1)
    check("uses no software RNIC" in p.err(), p.err())
