# SPDX-License-Identifier: BSD-3-Clause
"""gpunet perf: each test, between kernels and between kernels and plain sockets. No figure is judged."""

import json
import re
import socket
import subprocess

from cases_rdma import RNIC, own_address
from peerlib import TCP_UNIX, Process, Server, case, check, each, recv_all

MEMBERS = {
    "stream_lat": {"t_min_us", "t_max_us", "t_typical_us", "t_avg_us", "t_stdev_us", "t_99_us", "t_999_us", "lost"},
    "stream_bw": {"seconds", "bw_peak_mib_s", "bw_avg_mib_s", "msg_rate_mpps", "reverse"},
    "conn_rate": {"seconds", "conn_rate"},
}
MEMBERS["dgram_lat"] = MEMBERS["stream_lat"]
COMMON = {"test", "device", "url", "size", "conns", "iterations"}


def server(env, device, url, *more):
    return Server(env, url, argv=env.command("perf", url, "--device", device, "--blocks", 4, *more), extra_env=RNIC)


def client(env, device, test, url, *more):
    """One run: its rows."""
    p = Process(env, env.command("perf", test, url, "--device", device, "--json", *more),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, extra_env=RNIC)
    out = p.p.stdout.read()
    p.expect(0, 30, f"{test} to {url} did not end")
    rows = [json.loads(line) for line in out.splitlines()]
    for row in rows:
        check(set(row) == COMMON | MEMBERS[test], f"members of {row}")
        check(row["test"] == test and row["device"] == device and row["url"] == url, f"{row}")
        if "t_min_us" in row:
            order = [row[k] for k in ("t_min_us", "t_typical_us", "t_99_us", "t_999_us", "t_max_us")]
            check(0 < order[0] and order == sorted(order), f"times out of order: {row}")
            check(order[0] <= row["t_avg_us"] <= order[-1], f"average out of range: {row}")
    check(rows, f"{test} printed nothing")
    return rows


HOPS = ("read call", "call to line", "line to kernel", "kernel", "kernel to proxy", "proxy to call", "write call")


@each(TCP_UNIX, limit=40)
def perf_hops(env, kind):
    """--hops: each step of a message's way has a time, of the client's and, for gpunet stat, of the server's."""
    s = server(env, env.device, env.url(kind), "--hops")
    p = Process(env, env.command("perf", "stream_lat", s.url, "--device", env.device, "--json", "--count", 300, "--hops"),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    row = json.loads(p.p.stdout.read())
    p.expect(0)
    got = subprocess.run(env.command("stat", s.pid, "--json"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         check=True, timeout=env.seconds(20))
    for who, hops in (("client", row["hops"]), ("server", json.loads(got.stdout)["hops"])):
        check(set(hops) == set(HOPS) | {"clock_error_ns", "clock_step_ns"}, f"{who}: {hops}")
        for name in HOPS:
            h = hops[name]
            check(h["count"] >= 10, f"{who}, {name}: {h}")  # of the last two seconds, on a machine however slow
            check(-hops["clock_error_ns"] <= h["p50_ns"] <= h["p99_ns"] < 20 * 10**9, f"{who}, {name}: {h}")
        if env.device == "cpu":
            check(hops["clock_error_ns"] == 0, f"{hops}")
    # What the hops of the client's side add up to is less than the round trips that they were part of.
    mine = sum(row["hops"][name]["p50_ns"] for name in HOPS)
    check(mine < 2000 * row["t_max_us"], f"{mine} ns of {row}")
    text = subprocess.run(env.command("stat", s.pid), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                          timeout=env.seconds(20)).stdout.decode()
    check(all(f"hop {name}" in text for name in HOPS), text)
    s.stop()


def streams(env, ours, theirs, url):
    s = server(env, theirs, url)
    row = client(env, ours, "stream_lat", s.url, "--count", 50, "--size", 1000, "--conns", 2)[0]
    check(row["iterations"] == 100 and row["size"] == 1000, f"{row}")
    row = client(env, ours, "stream_bw", s.url, "--count", 40, "--size", 100001)[0]
    check(row["iterations"] == 40 and row["bw_avg_mib_s"] > 0, f"{row}")
    row = client(env, ours, "stream_bw", s.url, "--count", 40, "--size", 65536, "--reverse", "--conns", 2)[0]
    check(row["iterations"] == 80 and row["reverse"] is True, f"{row}")
    row = client(env, ours, "conn_rate", s.url, "--count", 20, "--conns", 2)[0]
    check(row["iterations"] == 40 and row["conn_rate"] > 0, f"{row}")
    s.stop()


@each(("tcp", "unix"), limit=60)
def perf_kernels(env, kind):
    """A kernel at both ends."""
    streams(env, env.device, env.device, env.url(kind))


@each(("tcp6", "abstract"), limit=60)
def perf_kernel_client(env, kind):
    """A kernel measures a server with plain sockets."""
    streams(env, env.device, "host", env.url(kind))


@each(("tcp", "unix"), limit=60)
def perf_kernel_server(env, kind):
    """Plain sockets measure a kernel."""
    streams(env, "host", env.device, env.url(kind))


@case("perf_rdma", limit=60, beside="none")
def perf_rdma(env):
    """The streams over RDMA, by the software RNIC."""
    streams(env, env.device, env.device, f"rdma://{own_address(env)}:7471")


@each(("udp", "unix"), limit=60)
def perf_datagrams(env, kind):
    """dgram_lat, each end a kernel and plain sockets."""
    for theirs in (env.device, "host"):
        url = "udp://127.0.0.1:0" if kind == "udp" else env.url("unix")
        s = server(env, theirs, url, "--dgram")
        for ours in (env.device, "host"):
            for size in (1, 64, 1400):
                row = client(env, ours, "dgram_lat", s.url, "--count", 50, "--size", size)[0]
                check(row["iterations"] == 50 and row["lost"] <= 10, f"{row}")
        s.stop()


@each(("cpu", "host"), limit=60)
def perf_strangers(env, kind):
    """A server outlives peers that do not speak its language, and those that leave in the middle."""
    s = server(env, "host" if kind == "host" else env.device, "tcp://127.0.0.1:0")
    for text in (b"GET / HTTP/1.0\r\n\r\n" * 10, b"", b"x" * 63):
        with s.connect() as c:
            c.sendall(text)
            c.shutdown(socket.SHUT_WR)
            try:
                check(recv_all(c) == b"", "an answer to what is no hello")
            except ConnectionResetError:
                pass
    client(env, "host", "stream_lat", s.url, "--count", 10)
    s.stop()


@each(("tcp", "udp"), limit=60)
def perf_nobody(env, kind):
    """A client whose server is not there says so, and ends."""
    with socket.socket(type=socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        url = f"{kind}://127.0.0.1:{s.getsockname()[1]}"
    for device in (env.device, "host"):
        p = Process(env, env.command("perf", "stream_lat" if kind == "tcp" else "dgram_lat", url, "--device", device),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        p.expect(1, 30)
        check(url in p.err() and "refused" in p.err(), f"stderr: {p.err()!r}")


@each(("table",), limit=60)
def perf_columns(env, _):
    """Columns for people: a heading, then a row a size."""
    s = server(env, "host", "tcp://127.0.0.1:0")
    out = subprocess.run(env.command("perf", "stream_lat", s.url, "--device", "host", "--all", "--count", 10),
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                         timeout=env.seconds(30)).stdout.decode().splitlines()
    check(out[0].split()[0] == "#bytes" and "t_typical[usec]" in out[0], f"heading {out[0]!r}")
    check([int(line.split()[0]) for line in out[1:]] == [1 << i for i in range(21)], f"sizes in {out[1:]}")
    s.stop()


# ---- RDMA posted by the CPU --------------------------------------------------------------------

BANDWIDTH = {"bw_peak_mib_s", "bw_avg_mib_s", "msg_rate_mpps"}
LATENCY = {"t_min_us", "t_max_us", "t_typical_us", "t_avg_us", "t_stdev_us", "t_99_us", "t_999_us"}
POSTED = {"test", "provider", "device", "role", "size", "iterations", "mtu", "tx_depth", "qps", "bidirectional"}


def verbs_server(env, test, host, *more):
    p = Process(env, env.command("perf", test, "--bind", host, *more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                extra_env=RNIC)
    line = p.p.stdout.readline()
    check(line == b"listening on TCP port 18515\n", f"the server said {line!r}, {p.err()!r}")
    return p


def verbs_rows(env, test, *more):
    """A client and a server, each a process with the software RNIC: the client's rows and what the server printed."""
    host = own_address(env)
    server = verbs_server(env, test, host, *more)
    client = Process(env, env.command("perf", test, host, "--json", *more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     extra_env=RNIC)
    out = client.p.stdout.read()
    client.expect(0, 30, f"the client of {test} did not end")
    server.expect(0, 10, f"the server of {test} did not end")
    rows = [json.loads(line) for line in out.splitlines()]
    wanted = LATENCY if test.endswith("_lat") else BANDWIDTH
    for row in rows:
        check(set(row) == POSTED | wanted, f"members of {row}")
        check(row["test"] == test and row["provider"] == "rnic" and row["device"].startswith("rnic:127.")
              and row["role"] == "client", f"{row}")
        # A few bytes in the time that a busy machine takes can be no hundredth of a MiB a second.
        check(all(row[k] > 0 or row["size"] < 1024 and "mib" in k for k in wanted - {"t_stdev_us"}), f"{row}")
    return rows, server.p.stdout.read().decode()


def verbs_pair(env, test, *more):
    """The same where there is one row."""
    rows, text = verbs_rows(env, test, *more)
    check(len(rows) == 1, f"{rows}")
    return rows[0], text


@each(("write", "read", "send", "atomic"), limit=60, beside="none")
def perf_verbs_bw(env, kind):
    """Bandwidths: several sizes and depths, more messages than receives are posted at once."""
    size = 8 if kind == "atomic" else 65536
    row, text = verbs_pair(env, f"{kind}_bw", "-n", "700", "-t", "16", "-l", "8")
    check((row["size"], row["iterations"], row["tx_depth"]) == (size, 700, 16), f"{row}")
    check(text.splitlines()[-1].split()[:2] == [str(size), "700"], f"the server printed {text!r}")
    if kind != "atomic":
        row, _ = verbs_pair(env, f"{kind}_bw", "--size", "70001", "--count", "20", "--mtu", "1024")
        check((row["size"], row["mtu"]) == (70001, 1024), f"{row}")


@each(("write", "read", "send"), limit=60, beside="none")
def perf_verbs_lat(env, kind):
    """Latencies: as perftest's columns, and with sizes that are not inline."""
    row, text = verbs_pair(env, f"{kind}_lat", "-n", "300")
    check((row["size"], row["iterations"]) == (2, 300), f"{row}")
    order = [row[k] for k in ("t_min_us", "t_typical_us", "t_99_us", "t_999_us", "t_max_us")]
    check(order == sorted(order), f"times out of order: {row}")
    if kind == "read":
        check(text == "", f"a server that does nothing printed {text!r}")
    else:
        check("t_typical[usec]" in text and text.splitlines()[-1].split()[0] == "2", f"the server printed {text!r}")
    verbs_pair(env, f"{kind}_lat", "--size", "9000", "--count", "30")


@each(("write", "read", "send", "atomic"), limit=60, beside="none")
def perf_verbs_many(env, kind):
    """Several queue pairs, both directions, both of them at once; what arrives is counted by the program where it can be."""
    row, text = verbs_pair(env, f"{kind}_bw", "-n", "100", "-t", "16", "-q", "3")
    check((row["iterations"], row["qps"], row["bidirectional"]) == (300, 3, False), f"{row}")
    check(text.splitlines()[-1].split()[1] == "300" and "3 queue pairs" in text, f"the server printed {text!r}")
    row, text = verbs_pair(env, f"{kind}_bw", "-n", "600", "-q", "2", "-b", *(("-s", "3000") if kind != "atomic" else ()))
    check((row["iterations"], row["qps"], row["bidirectional"]) == (1200, 2, True), f"{row}")
    check(text.splitlines()[-1].split()[1] == "1200" and "both directions" in text, f"the server printed {text!r}")


@each(("write_bw", "send_bw", "write_lat"), limit=60, beside="none")
def perf_verbs_all(env, test):
    """A row for each size, in one direction and in both."""
    for both in ((), ("-b",)) if test == "send_bw" else ((),):
        rows, text = verbs_rows(env, test, "-a", "-n", "5", *both)
        check([row["size"] for row in rows] == [1 << i for i in range(1, 24)], f"{rows}")
        served = [line.split()[0] for line in text.splitlines() if re.match(r" *\d+ +5 ", line)]
        check(len(served) == (1 if test == "write_bw" else 23), f"the server printed {text!r}")


@case("perf_verbs_client_killed", limit=60, beside="none")
def perf_verbs_client_killed(env):
    """A server that waits for SENDs alone hears of its client's end by TCP."""
    host = own_address(env)
    many = ("-n", "50000000")
    server = verbs_server(env, "send_bw", host, *many)
    client = Process(env, env.command("perf", "send_bw", host, *many), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                     extra_env=RNIC)
    line = client.p.stdout.readline()
    check(line.startswith(b" send_bw by rnic"), f"the client said {line!r}, {client.err()!r}")
    client.kill()
    server.expect(1, 15, "the server did not end")
    check("gpunet perf send_bw: the peer has ended" in server.err(), f"no reason: {server.err()!r}")


@case("perf_verbs_strangers", limit=60, beside="none")
def perf_verbs_strangers(env):
    """Peers that do not speak perftest's language, or leave in the middle of it; and nobody at all."""
    for text in (b"GET / HTTP/1.0\r\n\r\n" * 10, b"", b"6.27" + bytes(12) + b"\0\0\x10\0" + bytes(4) + b"9\0",
                 b"6.27" + bytes(12) + b"\0\0\x10\0" + bytes(4) + b"3\0" + b"z" * 108):
        host = own_address(env)
        server = verbs_server(env, "write_bw", host)
        with socket.create_connection((host, 18515)) as c:
            c.sendall(text)
            c.shutdown(socket.SHUT_WR)
            server.expect(1, 10, "the server did not end")
            check("gpunet perf write_bw: " in server.err(), f"no reason: {server.err()!r}")
    client = Process(env, env.command("perf", "read_lat", host), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     extra_env=RNIC)
    client.expect(1, 10)
    check("refused" in client.err() and 'start "gpunet perf read_lat" there' in client.err(), f"{client.err()!r}")
