# SPDX-License-Identifier: BSD-3-Clause
"""gpunet over rdma:// with ordinary programs as peers, which librspreload takes to RDMA, on rdma_rxe in machine 2.

The kernels run in machine 1 on its rdma_rxe (provider ibverbs), or on this end of the bridge on the software RNIC
(provider rnic): each case runs on either.
"""

from vmlib import CASES, PRELOAD, Fail, Packets, Skip, case, check, figure, netem, until_lost

PORT = 7471


class Place:
    """Where gpunet runs, and with which provider."""

    def __init__(self, name, ip, ip6):
        self.name, self.ip, self.ip6 = name, ip, ip6

    def gpunet(self, env, *args, **options):
        options = {"GPUNET_VERBS": self.name, **options}
        if self.name == "ibverbs":
            words = [f"{name}={value}" for name, value in options.items()] + ["exec gpunet"] + list(map(str, args))
            return env.m1.start(" ".join(words))
        return env.here(env.gpunet, *args, env=options)

    def echo(self, env, blocks=4, threads=32, address=None, **options):
        """A server, ready."""
        url = f"rdma://{address or self.ip}:{PORT}"
        server = self.gpunet(env, "echo", url, "--device", "cpu", "--blocks", blocks, "--threads", threads, **options)
        server.until(r"^listening on rdma://", 40)
        return server


PLACES = (Place("ibverbs", "10.0.2.1", "fd00::1"), Place("rnic", "10.0.2.254", "fd00::254"))


def everywhere(limit=60, long=False):
    """Registers a case once a place; the function gets (env, place)."""

    def register(fn):
        for place in PLACES:
            CASES.append((f"{fn.__name__}_{place.name}", limit, long, lambda env, p=place: fn(env, p)))
        return fn

    return register


def client(env, place, how, seconds=60, address=None):
    """vm_peer under librspreload in machine 2; `how`: its words behind address and port."""
    word, *more = how.split()
    return env.m2.run(f"{PRELOAD} vm_peer {word} {address or place.ip} {PORT} {' '.join(more)}", seconds)


def rnr(env):
    """RNR NAKs that the peer's device has sent and received since it was made."""
    counters = env.m2.counters()
    return counters["send_rnr_err"] + counters["rcvd_rnr_err"]


@everywhere(90)
def rsockets_rstream(env, place):
    """Latency and bandwidth, as their authors measure them."""
    place.echo(env)
    before = rnr(env)
    for size, count, rounds in (64, 1, 300), (65536, 1, 50):
        with Packets(env, rounds * count, [env.m2]):
            out = env.m2.run(f"rstream -s {place.ip} -p {PORT} -S {size} -C {count} -I {rounds} -T b", 60)
        row = out.strip().splitlines()[-1].split()
        check(row[0] == "custom", out)
        env.note(f"{size} B: {row[-2]} Gb/s, {row[-1]} us")
    check(rnr(env) == before, f"{rnr(env) - before} RNR NAKs")


@everywhere(120)
def rsockets_sizes(env, place):
    """Bytes come back as they were sent, around each boundary: inline, packet, SGE, ring."""
    place.echo(env)
    with Packets(env, 5000, [env.m2]):
        for size, piece in ((1, 1), (64, 64), (65, 65), (1023, 1023), (1025, 1025), (65535, 65535), (65536, 65536),
                            (65537, 65536), (131072, 10000), (131073, 65535), (1 << 20, 4097), (4 << 20, 65536)):
            out = client(env, place, f"ask {size} {piece}")
            check("the same" in out, f"{size} bytes in pieces of {piece}: {out}")


@everywhere(120)
def rsockets_one_byte_sends(env, place):
    """Credits wrap at 65,536 messages."""
    place.echo(env)
    before = env.m2.counters()["sent_pkts"]
    client(env, place, "ask 70000 1", 110)
    sent = env.m2.counters()["sent_pkts"] - before
    check(sent >= 70000, f"the peer sent {sent} packets: not each byte on its own")


@everywhere()
def rsockets_sends_then_shutdown(env, place):
    """As many sends as there are receives, and the end behind them: no RNR."""
    place.echo(env)
    before = rnr(env)
    client(env, place, "first 384 1")
    client(env, place, "first 60000 10000")
    check(rnr(env) == before, f"{rnr(env) - before} RNR NAKs")


@everywhere()
def rsockets_slow_reader(env, place):
    place.echo(env)
    client(env, place, "ask 1000000 10000 late")


@everywhere()
def rsockets_ipv6(env, place):
    place.echo(env, address=f"[{place.ip6}]")
    with Packets(env, 100, [env.m2]):
        client(env, place, "ask 100000 5000", address=place.ip6)


@everywhere(120)
def rsockets_many(env, place):
    """200 connections at once; with rings of 1 MiB, the default, the slab serves 128."""
    place.echo(env, blocks=200, threads=1, GPUNET_SEGMENT_BYTES="128K")
    running = env.m2.start(f"{PRELOAD} exec vm_peer many {place.ip} {PORT} 200")
    try:
        running.expect(0, 80)
    except Fail as e:
        # In which call its kernel keeps it, and whether its device sends something again and again.
        where = env.m2.run("cat /proc/$(pgrep -x vm_peer)/stack; cat /sys/class/infiniband/rxe0/ports/1/hw_counters/"
                           "completer_retry_err; sleep 5; cat /sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err")
        raise Fail(f"{e}; it waits in {where.split()}") from e


@everywhere()
def rsockets_peer_killed(env, place):
    """kill -9 of a client under load: the one block of the server serves the next."""
    place.echo(env, blocks=1)
    env.m2.start(f"{PRELOAD} exec vm_peer pour {place.ip} {PORT}").until("flows")
    env.m2.run("pkill -KILL -x vm_peer")
    client(env, place, "ask 1000 100", 40)


@everywhere()
def rsockets_peer_stopped(env, place):
    """A client that has stopped holds its block only, and goes on when it is continued."""
    place.echo(env, blocks=2)
    stopped = env.m2.start(f"{PRELOAD} exec vm_peer pour {place.ip} {PORT}")
    stopped.until("flows")
    env.m2.run("pkill -STOP -x vm_peer")
    client(env, place, "ask 1000 100", 40)
    last = stopped.so_far().split()[-1]
    env.m2.run("pkill -CONT -x vm_peer")
    stopped.until(f"flows {int(last) + 2}$")


@everywhere(90)
def rsockets_peer_host_dead(env, place):
    """The other host vanishes: the block that waits for it is free when the retries have run out, after 7.5 s."""
    place.echo(env, blocks=1)
    env.m2.start(f"{PRELOAD} exec vm_peer pour {place.ip} {PORT}").until("flows")
    env.unplug(env.m2)
    env.m2.run("sleep 1; pkill -KILL -x vm_peer; sleep 14")
    env.plug(env.m2)
    client(env, place, "ask 1000 100", 40)


@everywhere(90)
def rsockets_unplugged(env, place):
    """The peer's cable is pulled for two seconds in the middle of a stream."""
    place.echo(env)
    netem(env, env.m2, "rate 8mbit")
    stream = env.m2.start(f"{PRELOAD} exec vm_peer ask {place.ip} {PORT} 2000000 10000")
    env.m2.run("sleep 1")
    env.unplug(env.m2)
    env.m2.run("sleep 2")
    check("the same" not in stream.so_far(), "the stream was over too early")
    env.plug(env.m2)
    check("the same" in stream.expect(0, 60), stream.text())


@everywhere(150)
def rsockets_loss(env, place):
    """1% of what the peer sends is lost."""
    place.echo(env)
    netem(env, env.m2, "loss 1%")
    until_lost(env.m2, lambda: client(env, place, "ask 250000 4000", 140))


@everywhere()
def rsockets_cat(env, place):
    """A client kernel, and a program of ordinary sockets as its server."""
    server = env.m2.start(f"{PRELOAD} exec vm_peer serve 10.0.2.2 {PORT}")
    server.until("listening")
    with Packets(env, 300, [env.m2]):
        if place.name == "ibverbs":
            env.on_clean(env.m1, "rm -f /tmp/in")
            env.m1.run(f"head -c 300000 /dev/urandom >/tmp/in; GPUNET_VERBS=ibverbs gpunet cat rdma://10.0.2.2:{PORT} "
                       "--device cpu </tmp/in | cmp - /tmp/in")
        else:
            data = bytes(range(256)) * 1200
            cat = env.here(env.gpunet, "cat", f"rdma://10.0.2.2:{PORT}", "--device", "cpu", data=data,
                           env={"GPUNET_VERBS": "rnic"})
            cat.expect(0)
            check(cat.data == data, f"{len(cat.data)} bytes came back, the same: {cat.data == data}")


@everywhere(90)
def rdma_no_peer(env, place):
    """A client kernel is told in one line why it cannot connect."""
    for url, reason in ((f"rdma://10.0.2.2:{PORT + 1}", "refused"), (f"rdma://10.0.2.77:{PORT}", "")):
        cat = place.gpunet(env, "cat", url, "--device", "cpu")
        out = cat.expect(1, 60).strip()
        check(reason in out and len(out.splitlines()) == 1, f"{url}: {out!r}")
        env.note(out)


@case()
def rdma_ibverbs_to_rnic(env):
    """One on rdma_rxe, one on the software RNIC."""
    PLACES[0].echo(env)
    data = bytes(range(256)) * 1200
    cat = env.here(env.gpunet, "cat", f"rdma://10.0.2.1:{PORT}", "--device", "cpu", data=data,
                   env={"GPUNET_VERBS": "rnic"})
    cat.expect(0)
    check(cat.data == data, f"{len(cat.data)} bytes came back, the same: {cat.data == data}")
