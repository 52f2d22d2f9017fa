# SPDX-License-Identifier: BSD-3-Clause
"""gpunet over RDMA, from machine to machine: kernels against kernels and against the programs of rsockets."""

import re

from vmlib import Packets, case, check, echo, figure, netem

NO_RNR = ("rcvd_rnr_err", "send_rnr_err")


def peer(env, machine, *args, limited=False):
    """rdma_peer in a machine, started; a server of it is ready when this returns."""
    extra = "RDMA_PEER_LIMITED=1 " if limited else ""
    running = machine.start(f"exec env {extra}rdma_peer " + " ".join(str(a) for a in args) + " 2>&1")
    if args[0].endswith("server") or args[0] == "sink":
        running.until("^ready", 40)
    return running


def rnr(machine):
    counters = machine.counters()
    return sum(counters.get(name, 0) for name in NO_RNR)


class NoRnr:
    """Nobody was told meanwhile that a receiver was not ready."""

    def __init__(self, env):
        self.machines = env.machines

    def __enter__(self):
        self.before = [rnr(m) for m in self.machines]

    def __exit__(self, kind, *_):
        if kind is None:
            after = [rnr(m) for m in self.machines]
            check(after == self.before, f"receivers were not ready: {self.before} became {after}")


def random_file(env, size):
    env.on_clean(env.m2, "rm -f /tmp/in /tmp/out")
    env.on_clean(env.m1, "rm -f /tmp/in /tmp/out")
    env.m2.run(f"head -c {size} /dev/urandom >/tmp/in")


@case()
def rdma_kernel_to_kernel(env):
    _, url = echo(env, env.m1, "rdma://10.0.2.1:7471")
    random_file(env, 4 << 20)
    with Packets(env, 2000), NoRnr(env):
        env.m2.run(f"gpunet cat {url} --device cpu </tmp/in | cmp - /tmp/in", 50)


@case()
def rdma_kernel_to_kernel_ipv6(env):
    _, url = echo(env, env.m1, "rdma://[fd00::1]:7471")
    random_file(env, 200000)
    with Packets(env, 100):
        env.m2.run(f"gpunet cat {url} --device cpu </tmp/in | cmp - /tmp/in", 50)


@case(120)
def rdma_rstream(env):
    """Stock rstream, both roles, as it measures latency and bandwidth."""
    for size, count, rounds in (64, 1, 200), (1, 2000, 1), (65536, 60, 1), (1000001, 4, 2):
        for ours in "server", "client":
            stock = f"rstream -S {size} -C {count} -I {rounds}"
            with Packets(env, 20), NoRnr(env):
                if ours == "server":
                    kernel = peer(env, env.m1, "rstream-server", "10.0.2.1", 7471, size, count, rounds)
                    stock = env.m2.start(stock + " -s 10.0.2.1")
                else:
                    stock = env.m1.start(stock)
                    env.m1.run("sleep 1")
                    kernel = peer(env, env.m2, "rstream-client", "10.0.2.1", 7471, size, count, rounds)
                out = stock.expect(0, 60)
                kernel.expect(0, 30)
            row = out.strip().splitlines()[-1].split()
            env.note(f"{ours} {row[1]} x {count}: {row[-1]} us, {row[-2]} Gb/s")


@case(90)
def rdma_rcopy(env):
    """20 MB to a kernel and from a kernel, to the byte."""
    random_file(env, 20000000)
    with Packets(env, 100):
        kernel = peer(env, env.m1, "rcopy-server", "10.0.2.1", 7427, "/tmp/out")
        out = env.m2.run("rcopy /tmp/in 10.0.2.1:/tmp/there", 60)
        kernel.expect(0, 20)
    env.note("to a kernel: " + out.strip().splitlines()[-1])
    check(env.m1.run("sha256sum </tmp/out") == env.m2.run("sha256sum </tmp/in"), "the copy differs")
    stock = env.m1.start("cd /tmp && exec rcopy")
    env.m1.run("rm -f /tmp/out; sleep 1")
    with Packets(env, 100):
        peer(env, env.m2, "rcopy-client", "10.0.2.1", 7427, "/tmp/in", "/tmp/out").expect(0, 60)
    stock.kill()
    check(env.m1.run("sha256sum </tmp/out") == env.m2.run("sha256sum </tmp/in"), "the copy differs")


@case(60)
def rdma_burst_then_shutdown(env):
    """384 sends and SHUT_WR: a burst that fills the queue makes nobody wait for a receiver."""
    for size in 1, 100:
        with Packets(env, 5), NoRnr(env):
            kernel = peer(env, env.m1, "sink", "10.0.2.1", 7471, 65536, 500)
            sender = peer(env, env.m2, "send", "10.0.2.1", 7471, size, 384)
            check("result 0, 0 bytes" in sender.expect(0, 30), sender.text())
            check(f"result 0, {384 * size} bytes" in kernel.expect(0, 30), kernel.text())


@case(60)
def rdma_slow_reader(env):
    """A reader that begins late and reads little at a time gets every byte; credits wrap on the way."""
    with Packets(env, 40):
        kernel = peer(env, env.m1, "sink", "10.0.2.1", 7471, 3000, 2000)
        sender = peer(env, env.m2, "send", "10.0.2.1", 7471, 50001, 80)
        check("result 0, 0 bytes" in sender.expect(0, 50), sender.text())
        check(f"result 0, {80 * 50001} bytes" in kernel.expect(0, 30), kernel.text())


@case(60)
def rdma_refused(env):
    """Nobody listens; nobody is there; no RDMA device reaches it."""
    for host, port, wanted in ("10.0.2.1", 7999, -111), ("10.0.2.77", 7471, -113), ("10.77.0.1", 7471, None):
        out = peer(env, env.m2, "error", host, port).expect(0, 40)
        got = int(figure(out, r"result (-?\d+)"))
        env.note(f"{host}:{port} {got}")
        check(got == wanted if wanted else got < 0, f"{host}:{port}: {got}")


@case(90)
def rdma_peer_killed(env):
    """kill -9 of a peer in the middle: the other end gets an error, the server serves the next."""
    _, url = echo(env, env.m1, "rdma://10.0.2.1:7471", blocks=1)
    busy = env.m2.start(f"cat /dev/zero | gpunet cat {url} --device cpu | "
                        "{ head -c 100000 >/dev/null; echo flows; cat >/dev/null; }")
    busy.until("flows", 40)
    env.m2.run("pkill -KILL -x gpunet")
    random_file(env, 100000)
    env.m2.run(f"timeout 40 gpunet cat {url} --device cpu </tmp/in | cmp - /tmp/in", 60)


@case(90)
def rdma_many_connections(env):
    """200 connections of one process at once."""
    server = env.m1.start("exec gpunet echo rdma://10.0.2.1:7471 --device cpu --blocks 2 --threads 32", )
    server.until(r"^listening on (\S+)", 40)
    many = peer(env, env.m2, "many", "10.0.2.1", 7471, 120)
    many.expect(0, 80)


@case(60)
def rdma_memlock(env):
    """64 KiB of locked memory: the network opens, and the first RDMA connection names the limit and the remedy."""
    kernel = peer(env, env.m2, "sink", "10.0.2.2", 7471, 1, 0)
    env.m1.run("chmod a+rw /dev/infiniband/*")
    limited = peer(env, env.m1, "error", "10.0.2.2", 7471, limited=True)
    out = limited.expect(0, 40)
    check("RLIMIT_MEMLOCK is 64 KiB; raise it with ulimit -l" in out, out)
    check("result -12," in out, out)
    kernel.kill()


@case(90)
def rdma_loss(env):
    """1% of the packets lost each way: 256 KiB there and back."""
    _, url = echo(env, env.m1, "rdma://10.0.2.1:7471")
    random_file(env, 256 << 10)
    for machine in env.machines:
        netem(env, machine, "loss 1%")
    env.m2.run(f"gpunet cat {url} --device cpu </tmp/in | cmp - /tmp/in", 80)


@case(90)
def rdma_link_down_and_up(env):
    """The card goes down for a second and up again: the stream goes on."""
    _, url = echo(env, env.m1, "rdma://10.0.2.1:7471")
    random_file(env, 2 << 20)
    netem(env, env.m2, "rate 8mbit")
    client = env.m2.start(f"echo begins; gpunet cat {url} --device cpu </tmp/in | cmp - /tmp/in && echo the same")
    client.until("begins")
    env.m1.run("sleep 1")
    env.unplug(env.m1)
    env.m2.run("sleep 1")
    env.plug(env.m1)
    check("the same" in client.expect(0, 60), client.text())


@case(90)
def rdma_dead_host(env):
    """The cable stays out: the sender learns it within seconds."""
    kernel = peer(env, env.m1, "sink", "10.0.2.1", 7471, 3000, 0)
    sender = env.m2.start("cat /dev/zero | timeout 60 gpunet cat rdma://10.0.2.1:7471 --device cpu 2>&1; echo ended $?")
    env.m1.run("sleep 2")
    env.unplug(env.m1)
    out = sender.expect(0, 40)
    check("ended 1" in out and re.search("timed out|Connection", out), out)
    env.note(out.strip().splitlines()[0][:160])
    kernel.kill()


@case(60)
def rdma_example_rsocket(env):
    """The example of a CPU program over librdmacm's rsockets."""
    _, url = echo(env, env.m1, "rdma://10.0.2.1:7471")
    with Packets(env, 4):
        out = env.m2.run("example-rsocket 10.0.2.1 7471 'hello kernel'", 30)
    check(out == "hello kernel\n", out)


@case(120)
def rdma_packets(env):
    """Packets a message between two kernels, beside stock rstream's: as many, or one in ten more."""
    for size, count, rounds in (64, 1, 200), (65536, 30, 2):
        taken = []
        for ours in False, True:
            before = env.m2.counters()["sent_pkts"]
            if ours:
                server = peer(env, env.m1, "rstream-server", "10.0.2.1", 7471, size, count, rounds)
                client = peer(env, env.m2, "rstream-client", "10.0.2.1", 7471, size, count, rounds)
            else:
                server = env.m1.start(f"rstream -S {size} -C {count} -I {rounds}")
                env.m1.run("sleep 1")
                client = env.m2.start(f"rstream -S {size} -C {count} -I {rounds} -s 10.0.2.1")
            client.expect(0, 50)
            server.expect(0, 20)
            taken.append((env.m2.counters()["sent_pkts"] - before) / (count * rounds))
        env.note(f"{size} B: {taken[1]:.2f} packets a message and its answer, rstream {taken[0]:.2f}")
        check(taken[1] <= 1.1 * taken[0], f"{size} B: {taken[1]:.2f} packets a message, rstream {taken[0]:.2f}")
