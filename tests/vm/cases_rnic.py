# SPDX-License-Identifier: BSD-3-Clause
"""The software RNIC on a UDP socket of this end of the bridge, against rdma_rxe in machine 1."""

import hashlib
import os
import re

from vmlib import PERFTEST_ROW, Packets, await_listener, case, check, echo, figure, ip, netem, program

HERE = "10.0.2.254"


def ping_pong(env, kind, rounds=300, size=4096, serve_here=False, seconds=60):
    """Either side may be the server. Returns the output of ours."""
    ours = [program(env, "rnic_pingpong"), kind, HERE]
    stock = f"ibv_{kind}_pingpong -g 1 -e -c -n {rounds} -s {size}"
    with Packets(env, rounds, machines=[env.m1]):
        if serve_here:
            here = env.here(*ours, "-n", rounds, "-s", size)
            here.until("listening")
            there = env.m1.start(f"{stock} {HERE}")
        else:
            there = env.m1.start(stock)
            await_listener(env.m1, 18515)
            here = env.here(*ours, "10.0.2.1", "-n", rounds, "-s", size)
        text = here.expect(0, seconds)
        there.expect(0, seconds)
    return text


def each_way(env, kind, **how):
    for serve_here in (False, True):
        text = ping_pong(env, kind, serve_here=serve_here, **how)
        # A busy machine may let time-outs pass, but nothing must be out of order or refused.
        check("NAKs sent 0, received 0," in text, f"a packet was lost or wrong: {text}")
        env.note(f"{kind} {'server' if serve_here else 'client'} {figure(text, r', ([0-9.]+) us each')} us")


@case(120)
def rnic_rc_pingpong(env):
    """SEND in one packet, in four, and in many with a last one that needs a pad."""
    each_way(env, "rc", size=64)
    each_way(env, "rc", size=4096)
    each_way(env, "rc", size=65537, rounds=60)


@case()
def rnic_uc_pingpong(env):
    each_way(env, "uc", size=4096)


@case()
def rnic_ud_pingpong(env):
    each_way(env, "ud", size=1024)


@case(120)
def rnic_rc_pingpong_loss(env):
    """1% of what rxe sends is lost: acknowledgements and messages."""
    netem(env, env.m1, "loss 1%")
    text = ping_pong(env, "rc", rounds=300, size=8192, seconds=100)
    env.note(text.strip().partition("; ")[2])
    again = int(figure(text, r"sent again (\d+)"))
    check(again > 0, "nothing was lost")


RNIC = {"GPUNET_VERBS": "rnic"}


def cm_pair(env, mode, here, there, packets, server_here, seconds=60):
    """Our program against a stock one; connections are made by the connection manager."""
    ours = [program(env, "rnic_cm"), f"{mode}-{'server' if server_here else 'client'}"]
    with Packets(env, packets, machines=[env.m1]):
        if server_here:
            mine = env.here(*ours, HERE, *here)
            mine.until("listening")
            other = env.m1.start(there)
        else:
            other = env.m1.start(there)
            env.m1.run("sleep 1")  # no program shows the connection manager's ports
            mine = env.here(*ours, "10.0.2.1", *here)
        text = mine.expect(0, seconds)
        stock = other.expect(0, seconds)
    check("every byte right" in text, text)
    return stock


@case(90)
def rnic_rping(env):
    """READ and WRITE by the server, SEND by both; each side is the server once."""
    here = ["-p", 7174, "-C", 10]
    for server_here, there in (True, f"rping -c -a {HERE} -C 10 -V -p 7174"), (False, "rping -s -a 10.0.2.1 -C 10 -V -p 7174"):
        cm_pair(env, "rping", here, there, 40, server_here)


@case(90)
def rnic_ucmatose(env):
    """Several connections at once, 10 messages each way on each."""
    here = ["-p", 7471, "-C", 10, "-c", 5, "-S", 1000]
    stock = "ucmatose -C 10 -c 5 -S 1000"
    for server_here, there in (True, f"{stock} -s {HERE}"), (False, f"{stock} -b 10.0.2.1"):
        text = cm_pair(env, "cmatose", here, there, 60, server_here)
        check("test complete" in text and "return status 0" in text, text[-300:])


@case()
def rnic_udaddy(env):
    """Datagrams whose queue pairs the connection manager tells (SIDR); each side is the server once."""
    ours = [program(env, "rnic_daddy"), HERE]
    for server_here, there in (True, f"udaddy -C 10 -s {HERE}"), (False, "udaddy -C 10 -b 10.0.2.1"):
        with Packets(env, 10, machines=[env.m1]):
            if server_here:
                mine = env.here(*ours)
                mine.until("listening")
                other = env.m1.start(there)
            else:
                other = env.m1.start(there)
                env.m1.run("sleep 1")
                mine = env.here(*ours, "10.0.2.1")
            mine.expect(0, 30)
            text = other.expect(0, 30)
        check("test complete" in text and "return status 0" in text, text[-300:])


@case(90)
def rnic_rcopy(env):
    """2 MB to a kernel on the software RNIC and from one, to the byte."""
    ours, here = program(env, "rdma_peer"), os.path.join(env.folder, "rcopy")
    env.m1.run("head -c 2000000 /dev/urandom >/tmp/in")
    env.on_clean(env.m1, "rm -f /tmp/in /tmp/out")
    with Packets(env, 500, machines=[env.m1]):
        kernel = env.here(ours, "rcopy-server", HERE, 7427, here, env=RNIC)
        kernel.until("^ready", 40)
        env.m1.run(f"rcopy /tmp/in {HERE}:/tmp/there", 60)
        kernel.expect(0, 20)
        stock = env.m1.start("cd /tmp && exec rcopy")
        env.m1.run("sleep 1")
        env.here(ours, "rcopy-client", "10.0.2.1", 7427, here, "/tmp/out", env=RNIC).expect(0, 60)
        stock.kill()
    with open(here, "rb") as f:
        check(hashlib.sha256(f.read()).hexdigest() in env.m1.run("sha256sum </tmp/in"), "what came here differs")
    env.m1.run("cmp /tmp/in /tmp/out")


@case(90)
def rnic_refused(env):
    """A stock client at a port where nobody listens, and our client likewise: refused at once."""
    mine = env.here(program(env, "rnic_cm"), "rping-server", HERE, "-p", 7175)
    mine.until("listening")
    stock = env.m1.start(f"rping -c -a {HERE} -C 1 -p 7176")
    code = stock.wait(30)
    check(code != 0 and "REJECTED" in stock.text(), f"exit {code}: {stock.text()}")
    mine.kill()  # an address has one owner
    ours = env.here(program(env, "rnic_cm"), "rping-client", "10.0.2.1", "-p", 7177)
    code = ours.wait(30)
    check(code == 1 and "reason 8" in ours.text(), f"exit {code}: {ours.text()}")


@case(120)
def rnic_rsockets(env):
    """Streams of rsockets between a kernel on the software RNIC here and one on rxe there; each is the server once."""
    env.m1.run("head -c 2000000 /dev/urandom >/tmp/in")
    env.on_clean(env.m1, "rm -f /tmp/in")
    data = bytes(range(256)) * 4000
    server = env.here(env.gpunet, "echo", f"rdma://{HERE}:7471", "--device", "cpu", env=RNIC)
    server.until(r"^listening on (\S+)", 40)
    with Packets(env, 1000, machines=[env.m1]):
        env.m1.run(f"gpunet cat rdma://{HERE}:7471 --device cpu </tmp/in | cmp - /tmp/in", 60)
    server.kill()
    _, url = echo(env, env.m1, "rdma://10.0.2.1:7471")
    with Packets(env, 500, machines=[env.m1]):
        mine = env.here(env.gpunet, "cat", url, "--device", "cpu", data=data, env=RNIC)
        mine.expect(0, 60)
    check(mine.data == data, f"{len(mine.data)} bytes came back, {len(data)} were sent")


@case(60)
def rnic_small_mtu(env):
    """This end could do 4096 bytes a packet, rxe's interface 1024. It would accept 4096, and its packets would be lost."""
    data = bytes(range(256)) * 2000
    _, url = echo(env, env.m1, "rdma://10.0.2.1:7471")
    ip("link", "set", "br0", "mtu", "9000")
    try:
        mine = env.here(env.gpunet, "cat", url, "--device", "cpu", data=data, env=RNIC)
        mine.expect(0, 40)
    finally:
        ip("link", "set", "br0", "mtu", str(env.opt.mtu))
    check(mine.data == data, f"{len(mine.data)} bytes came back, {len(data)} were sent")


def perftest(env, test, serve_here, rounds, ours, where=None, extra=""):
    """Stock ib_* in machine 1 and gpunet perf on this end, or in machine `where`; returns the columns of the client's row."""
    stock = f"ib_{test} -x 1 -F -n {rounds} {extra}"
    start = (lambda *argv: where.start(" ".join(argv))) if where else env.here
    ours = [ours, "perf", test, "-n", str(rounds), "--provider", "ibverbs" if where else "rnic", *extra.split()]
    with Packets(env, rounds // 2, machines=[env.m1]):
        if serve_here:
            server = start(*ours)
            server.until("listening")
            client = env.m1.start(f"{stock} {'10.0.2.2' if where else HERE}")
        else:
            server = env.m1.start(stock)
            await_listener(env.m1, 18515)
            client = start(*ours, "10.0.2.1")
        text = client.expect(0, 60)
        server.expect(0, 20)
    rows = [row.split() for row in re.findall(PERFTEST_ROW, text, re.M)]
    check(len(rows) == (23 if "-a" in extra.split() else 1), f"rows: {text}")
    check(float(rows[-1][2]) > 0 or "Correlation coefficient" in text, f"no figures: {text}")
    return rows[-1]


BANDWIDTHS = ("write_bw", 100), ("read_bw", 60), ("send_bw", 60), ("atomic_bw", 200)
LATENCIES = ("write_lat", 150), ("read_lat", 100), ("send_lat", 150)


def against_perftest(env, serve_here, tests, **how):
    for test, rounds in tests:
        row = perftest(env, test, serve_here, rounds, how.get("ours", env.gpunet), how.get("where"))
        env.note(f"{test} {row[3] if test.endswith('bw') else row[4]}")


@case(150)
def rnic_perftest_client(env):
    """gpunet perf measures the stock programs. Latencies are us, bandwidths MiB/s."""
    against_perftest(env, False, BANDWIDTHS + LATENCIES)


@case(150)
def rnic_perftest_server(env):
    """The stock programs measure gpunet perf, which counts what atomics have added."""
    against_perftest(env, True, BANDWIDTHS + LATENCIES)


def modes(env, *runs):
    for serve_here, test, rounds, extra in runs:
        row = perftest(env, test, serve_here, rounds, env.gpunet, extra=extra)
        queues = int(re.search(r"-q (\d+)", extra + " -q 1")[1])
        check(int(row[1]) == rounds * queues, f"{test} {extra}: {row}")
        env.note(f"{test} {extra} {row[3]}")


@case(120)
def rnic_perftest_modes(env):
    """Several queue pairs and both directions, as client of the stock programs and as their server."""
    modes(env, (False, "write_bw", 60, "-q 3"), (True, "send_bw", 60, "-q 3 -b"), (False, "read_bw", 60, "-q 2 -b"),
          (True, "atomic_bw", 60, "-q 2 -b"))


@case(200, long=True)
def rnic_perftest_sizes(env):
    """All sizes to 8 MiB."""
    modes(env, (True, "send_bw", 5, "-a"), (False, "write_bw", 5, "-a -b"), (False, "write_lat", 5, "-a"))


@case(150)
def ibverbs_perftest(env):
    """The same over rdma_rxe in machine 2: gpunet perf by libibverbs, as client and as server."""
    against_perftest(env, False, BANDWIDTHS[:1], ours="gpunet", where=env.m2)
    against_perftest(env, True, LATENCIES[2:], ours="gpunet", where=env.m2)


def between(env, server_argv, client_argv, ready, row):
    """The middle one of three runs, machine 2 against machine 1."""
    figures = []
    for _ in range(3):
        server = env.m1.start(server_argv)
        ready(server)
        figures.append(float(figure(env.m2.run(client_argv, 70), row).split()[3]))
        server.expect(0)
    return sorted(figures)[1]


@case(400, long=True)
def rnic_between_machines(env):
    """Ours in both machines, without RDMA in their kernels; beside it what rxe gives in the same boot. Both print 2^20 bytes a second."""
    stock, ours = "ib_write_bw -x 1 -F -s 65536 -n 1000", "gpunet perf write_bw --provider rnic -n 1000"
    theirs = between(env, stock, f"{stock} 10.0.2.1", lambda _: await_listener(env.m1, 18515), PERFTEST_ROW)
    for machine in env.machines:
        env.on_clean(machine, "insmod /modules/rdma_rxe; rdma link add rxe0 type rxe netdev eth0")
        machine.run("rdma link delete rxe0; rmmod rdma_rxe")
    mine = between(env, ours, f"{ours} 10.0.2.1", lambda server: server.until("listening"), r"^ *(65536 +\d+ +[0-9.].*)$")
    env.note(f"64 KiB WRITE: ours {mine}, rxe {theirs} MiB/s, {mine / theirs:.2f}")
