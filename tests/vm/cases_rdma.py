# SPDX-License-Identifier: BSD-3-Clause
"""gpunet over RDMA, from machine to machine: kernels against kernels and against the programs of rsockets."""

import re

from vmlib import Fail, Packets, case, check, echo, figure, needs, netem

NO_RNR = ("rcvd_rnr_err", "send_rnr_err")


def peer(env, machine, *args, limited=False, forks=0, env_is=""):
    """rdma_peer in a machine, started; a server of it is ready when this returns."""
    extra = "RDMA_PEER_LIMITED=1 " if limited else ""
    extra += f"RDMA_PEER_FORKS={forks} " if forks else ""
    running = machine.start(f"exec env {extra}{env_is} rdma_peer " + " ".join(str(a) for a in args) + " 2>&1")
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
        env.m2.run(f"gpunet cat {url} --device cpu </tmp/in | cmp - /tmp/in", 120)


@case()
def rdma_kernel_to_kernel_ipv6(env):
    _, url = echo(env, env.m1, "rdma://[fd00::1]:7471")
    random_file(env, 200000)
    with Packets(env, 100):
        env.m2.run(f"gpunet cat {url} --device cpu </tmp/in | cmp - /tmp/in", 120)


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
    with Packets(env, 100), NoRnr(env):
        kernel = peer(env, env.m1, "rcopy-server", "10.0.2.1", 7427, "/tmp/out")
        out = env.m2.run("rcopy /tmp/in 10.0.2.1:/tmp/there", 60)
        kernel.expect(0, 20)
    env.note("to a kernel: " + out.strip().splitlines()[-1])
    check(env.m1.run("sha256sum </tmp/out") == env.m2.run("sha256sum </tmp/in"), "the copy differs")
    stock = env.m1.start("cd /tmp && exec rcopy")
    env.m1.run("rm -f /tmp/out; sleep 1")
    with Packets(env, 100), NoRnr(env):
        peer(env, env.m2, "rcopy-client", "10.0.2.1", 7427, "/tmp/in", "/tmp/out").expect(0, 60)
    stock.kill()
    check(env.m1.run("sha256sum </tmp/out") == env.m2.run("sha256sum </tmp/in"), "the copy differs")


@case(60)
def rdma_fork(env):
    """Both processes fork while 4 MB go from one to the other: their children end well, and every byte is right."""
    random_file(env, 4000000)
    with Packets(env, 20):
        server = peer(env, env.m1, "rcopy-server", "10.0.2.1", 7427, "/tmp/out", forks=5)
        peer(env, env.m2, "rcopy-client", "10.0.2.1", 7427, "/tmp/in", "/tmp/out", forks=5).expect(0, 120)
        server.expect(0, 20)
    check(env.m1.run("sha256sum </tmp/out") == env.m2.run("sha256sum </tmp/in"), "the copy differs")


def set_mtu(env, machine, mtu):
    env.on_clean(machine, f"ip link set eth0 mtu {env.opt.mtu}")
    machine.run(f"ip link set eth0 mtu {mtu}")


@case(90)
def rdma_mtu(env):
    """Cards of 9,000 and of 1,500 bytes. Who connects says how large packets are: two large cards use 4,096 bytes, a small one that
    connects to a large one 1,024, and a large one that connects to a small one is refused at once, by a line that says why, and
    nobody waits for packets that do not come through."""
    random_file(env, 1 << 20)
    set_mtu(env, env.m1, 9000)
    server, url = echo(env, env.m1, "rdma://10.0.2.1:7471")
    sent = []
    for mtu in env.opt.mtu, 9000:
        set_mtu(env, env.m2, mtu)
        before = env.m2.counters()["sent_pkts"]
        env.m2.run(f"gpunet cat {url} --device cpu </tmp/in | cmp - /tmp/in", 40)
        sent.append(env.m2.counters()["sent_pkts"] - before)
    env.note(f"{sent[0]} and {sent[1]} packets")
    check(sent[1] < sent[0] / 2, f"packets were not larger: {sent}")
    server.kill()
    set_mtu(env, env.m1, env.opt.mtu)
    server, url = echo(env, env.m1, "rdma://10.0.2.1:7471")
    check("result -111," in peer(env, env.m2, "error", "10.0.2.1", 7471).expect(0, 20), "it was not refused")
    server.until("it asks for larger packets than rxe0 takes", 10)


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
    with Packets(env, 40), NoRnr(env):
        kernel = peer(env, env.m1, "sink", "10.0.2.1", 7471, 3000, 2000)
        sender = peer(env, env.m2, "send", "10.0.2.1", 7471, 50001, 80)
        check("result 0, 0 bytes" in sender.expect(0, 120), sender.text())
        check(f"result 0, {80 * 50001} bytes" in kernel.expect(0, 30), kernel.text())


@case(60)
def rdma_refused(env):
    """Nobody listens; nobody is there; no RDMA device reaches it."""
    for host, port, wanted in ("10.0.2.1", 7999, -111), ("10.0.2.77", 7471, -113), ("10.77.0.1", 7471, None):
        out = peer(env, env.m2, "error", host, port).expect(0, 40)
        got = int(figure(out, r"result (-?\d+)"))
        env.note(f"{host}:{port} {got}")
        check(got == wanted if wanted else got < 0, f"{host}:{port}: {got}")


def until_rdma_listens(machine, port):
    machine.run(f"until rdma resource show cm_id | grep -q 'state LISTEN.*:{port}'; do sleep 0.1; done", 20)


@case(60)
def rdma_port_in_use(env):
    """A port is the machine's: what stock rstream holds is none for a kernel, nor what a kernel holds for rstream; then it is free again."""
    stock = env.m1.start("rstream -p 7471")
    until_rdma_listens(env.m1, 7471)
    for host, port, wanted in ("10.0.2.1", 7471, -98), ("0.0.0.0", 7471, -98), ("10.0.2.1", 7472, 0), ("10.0.2.9", 7472, -99):
        out = peer(env, env.m1, "listen", host, port).expect(0, 20)
        check(f"result {wanted}," in out, f"{host}:{port}: {out}")
    stock.kill()
    kernel = peer(env, env.m1, "sink", "10.0.2.1", 7471, 1, 0)
    stock = env.m1.start("rstream -p 7471 2>&1")
    # So the kernel's CM calls it.
    check("Cannot assign requested address" in stock.until("rbind: .*|rlisten: .*", 20)[0], "rstream listens beside a kernel")
    stock.kill()
    kernel.kill()
    check("result 0," in peer(env, env.m1, "listen", "10.0.2.1", 7471).expect(0, 20), "the port did not become free")


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
    small = "GPUNET_SEGMENT_BYTES=128K "
    server = env.m1.start(small + "exec gpunet echo rdma://10.0.2.1:7471 --device cpu --blocks 2 --threads 32")
    server.until(r"^listening on (\S+)", 40)
    many = env.m2.start(small + "exec rdma_peer many 10.0.2.1 7471 200 2>&1")
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
    """The cable stays out: the sender learns it when the retries have run out, after 7.5 s, and no later than in 18 s."""
    kernel = peer(env, env.m1, "sink", "10.0.2.1", 7471, 3000, 0)
    sender = env.m2.start("cat /dev/zero | timeout 60 gpunet cat rdma://10.0.2.1:7471 --device cpu 2>&1; echo ended $?")
    env.m1.run("sleep 2")
    env.unplug(env.m1)
    out = sender.expect(0, 18)
    check("ended 1" in out and re.search("timed out|Connection", out), out)
    line = out.strip().splitlines()[0]
    for part in "10.0.2.1:7471", "status 12", "6 retries of 1073 ms", "the peer's machine or the network":
        check(part in line, f"no {part!r} in {line!r}")
    env.note(line[:160])
    kernel.kill()


@case(60)
def rdma_example_rsocket(env):
    """The example of a CPU program over librdmacm's rsockets."""
    needs(env, "example-rsocket")
    _, url = echo(env, env.m1, "rdma://10.0.2.1:7471")
    with Packets(env, 4):
        out = env.m2.run("example-rsocket 10.0.2.1 7471 'hello kernel'", 30)
    check(out == "hello kernel\n", out)


# The clock, whose calls only an emulated machine has to make; and futex and signal masks, which are the CPU device's: waking its kernels.
NOT_COUNTED = {"futex", "rt_sigprocmask", "clock_gettime"}
TRACE = "/sys/kernel/tracing/events/raw_syscalls/sys_enter"


def talk(env, ours, size, count, rounds, how=""):
    """rstream's exchange between the machines, of kernels (`how`: their environment) or of the stock program (its options): its client's output."""
    if ours:
        server = peer(env, env.m1, "rstream-server", "10.0.2.1", 7471, size, count, rounds, env_is=how)
        client = f"{how} rdma_peer rstream-client 10.0.2.1 7471 {size} {count} {rounds}"
    else:
        stock = f"rstream -T b {how} -S {size} -C {count} -I {rounds}"
        server = env.m1.start(stock)
        until_rdma_listens(env.m1, 7471)
        # With -T a it ends with 16, POLLHUP, where the server's end comes with its last bytes. The server then says whether it had all of them.
        client = f"{stock} -s 10.0.2.1" + (" || [ $? = 16 ]" if "-T a" in how else "")
    out = env.m2.run(client, 120)
    server.expect(0, 20)
    return out


def counts(env, ours, size, rounds, how):
    """Posts, packets, system calls and waits (epoll_wait) of a client in so many rounds. The machine's kernel counts the calls: strace would
    make each last so long that the answer is there when it returns, and nobody sleeps. Counted is the thread that has the RDMA device; a
    kernel's own thread makes calls only on the CPU device (and wakes the former by one)."""
    name = "rdma_peer" if ours else "rstream"
    env.m2.run(f"echo 'hist:keys=common_pid,id.syscall if comm == \"{name}\"' >{TRACE}/trigger")
    try:
        before = env.m2.counters()["sent_pkts"]
        talk(env, ours, size, 1, rounds, how)
        packets = env.m2.counters()["sent_pkts"] - before
        seen = env.m2.run(f"cat {TRACE}/hist")
    finally:
        env.m2.run(f"echo '!hist:keys=common_pid,id.syscall' >{TRACE}/trigger")
    threads = {}
    for thread, call, n in re.findall(r"common_pid: *(\d+), id: sys_(\w+) .*hitcount: *(\d+)", seen):
        threads.setdefault(thread, {})[call] = int(n)
    calls = max(threads.values(), key=lambda of: of.get("ioctl", 0))
    total = sum(n for call, n in calls.items() if call not in NOT_COUNTED)
    return calls["write"], packets, total, calls.get("epoll_wait", 0)


def counted(env, ours, size, rounds, how):
    """The same. Of the stock program's failures the comparison does not tell: it has four tries more."""
    for _ in range(0 if ours else 4):
        try:
            return counts(env, ours, size, rounds, how)
        except Fail as e:
            env.note(f"stock rstream failed and is run again: {str(e)[:80]}")
            env.m1.run("pkill -x rstream; true")
    return counts(env, ours, size, rounds, how)


def a_message(env, ours, size, few, many, how=""):
    """The same of one message, as the difference of a long and a short run, so that setting up does not count."""
    short, long = counted(env, ours, size, few, how), counted(env, ours, size, many, how)
    return [(b - a) / (many - few) for a, b in zip(short, long)]


def fit(env, what, mine, theirs):
    """No more posts, packets and system calls, or one in ten."""
    for name, m, t in zip(("posts", "packets", "system calls"), mine, theirs):
        env.note(f"{what}: {m:.2f} {name} a message, rstream {t:.2f}")
    return all(m <= 1.1 * t for m, t in zip(mine[:3], theirs))


def small(env):
    """64 B, both waiting asleep. A proxy thread waits for all its sockets, as rstream does with -T a (rpoll), so that is what the sum is compared
    with; rstream that can wait for one socket only makes no call for the wait, so there epoll_wait is left out."""
    many, one, mine = (a_message(env, ours, 64, 10, 110, how) for ours, how in ((False, "-T a"), (False, ""), (True, "")))
    env.note(f"of two kernels' calls {mine[3]:.2f} epoll_wait")
    # At least what rstream does if it sleeps for each message, which on a slow host it does not: post, arming, read; and poll and one read more.
    one[2] = max(one[2], 3)
    many[2] = max(many[2], 5)
    rest = [*mine[:2], mine[2] - mine[3]]
    return fit(env, "64 B", mine, many) and fit(env, "64 B but for epoll_wait", rest, one) and mine[3] <= 3


def large(env):
    """64 KiB, both waiting asleep."""
    theirs, mine = (a_message(env, ours, 65536, 4, 24) for ours in (False, True))
    return fit(env, "64 KiB", mine, theirs)


def polling(env):
    """Who polls makes no call for a message but the post, which rstream makes as well."""
    _, _, total, waits = a_message(env, True, 64, 10, 110, "GPUNET_SPIN_US=-1")
    env.note(f"64 B, polling: {total - waits:.2f} system calls a message")
    return total - waits <= 1.1


@case(240)
def rdma_costs(env):
    """Posts, packets and system calls a message between two kernels, beside stock rstream's (-T b, which sleeps): as many, or one in ten
    more. Posts are calls here (write), as rdma_rxe has no doorbell. A sleep costs rstream two calls, to arm the queue and to read what
    woke it; who waits for several sockets makes one more, or two. Ours hang on the pace of emulated processors:
    a kernel that is slower than the thread waits awake for it costs another wait, and so do other sockets' events, asked for every 4 ms.
    A busy host changes all counts, so what does not fit is counted again."""
    env.m2.run("grep -q tracefs /proc/mounts || mount -t tracefs none /sys/kernel/tracing")
    for fits in small, large, polling:
        check(any(fits(env) for _ in range(3)), "more than 1.1 of it")


@case(120)
def rdma_speed(env):
    """What rstream measures, of it and of two kernels in the same boot: figures, no bars."""
    for what, size, count, rounds in ("latency", 64, 1, 300), ("bandwidth", 65536, 100, 1):
        us = []
        for ours in False, True:
            out = talk(env, ours, size, count, rounds)
            if ours:
                us.append(int(figure(out, r"(\d+) ns")) / 1000 / (2 * count * rounds))
            else:
                us.append(float(out.strip().splitlines()[-1].split()[-1]))
        rate = f", {8e-3 * size / us[1]:.3f} and {8e-3 * size / us[0]:.3f} Gb/s" if what == "bandwidth" else ""
        env.note(f"{what}, {size} B: {us[1]:.1f} us a message, rstream {us[0]:.1f}{rate}")
