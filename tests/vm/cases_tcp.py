# SPDX-License-Identifier: BSD-3-Clause
"""gpunet over TCP from machine to machine: a real path that loses packets, breaks, and whose other end dies."""

from vmlib import case, check, echo, netem, port_of, until_lost


def through(env, url, client="nc -N 10.0.2.1", size=1 << 20, seconds=60):
    """`size` random bytes from machine 2 through the echo server; they must come back."""
    env.on_clean(env.m2, "rm -f /tmp/in")
    env.m2.run(f"head -c {size} /dev/urandom >/tmp/in && {client} {port_of(url)} </tmp/in | cmp - /tmp/in", seconds)


def serves(env, url, seconds=30):
    """This end of the bridge is served, now."""
    client = env.here("nc", "-N", "10.0.2.1", port_of(url), data=b"are you there?")
    check(client.expect(0, seconds) == "are you there?", f"another client got {client.text()!r}")


def busy_client(env, url):
    """A client in machine 2 that sends without end and reads what comes back."""
    client = env.m2.start(f"cat /dev/zero | nc -N 10.0.2.1 {port_of(url)} | "
                          "{ head -c 100000 >/dev/null; echo flows; cat >/dev/null; }")
    client.until("flows")
    return client


@case()
def tcp_echo(env):
    _, url = echo(env, env.m1, "tcp://10.0.2.1:0")
    through(env, url, size=8 << 20)
    through(env, url)


@case()
def tcp_echo_ipv6(env):
    _, url = echo(env, env.m1, "tcp://[fd00::1]:0")
    through(env, url, client="nc -N fd00::1")


@case()
def tcp_kernel_to_kernel(env):
    _, url = echo(env, env.m1, "tcp://10.0.2.1:0")
    env.on_clean(env.m2, "rm -f /tmp/in")
    env.m2.run(f"head -c 1M /dev/urandom >/tmp/in && gpunet cat {url} --device cpu </tmp/in | cmp - /tmp/in")


@case(90)
def tcp_loss(env):
    """1% lost each way, with delay, duplicates and reordering."""
    _, url = echo(env, env.m1, "tcp://10.0.2.1:0")
    for machine in env.machines:
        netem(env, machine, "loss 1% delay 2ms 1ms duplicate 1%")
    until_lost(env.m1, lambda: through(env, url, size=2 << 20, seconds=80))


@case(90)
def tcp_link_down_and_up(env):
    """The card goes down and up in the middle of a stream: no byte is lost, nothing ends."""
    _, url = echo(env, env.m1, "tcp://10.0.2.1:0")
    netem(env, env.m2, "rate 8mbit")
    env.on_clean(env.m2, "rm -f /tmp/in")
    client = env.m2.start(f"head -c 4M /dev/urandom >/tmp/in; echo begins; nc -N 10.0.2.1 {port_of(url)} </tmp/in | "
                          "cmp - /tmp/in && echo the same")
    client.until("begins")
    env.on_clean(env.m1, "ip link set eth0 up; ip addr replace fd00::1/64 dev eth0 nodad")
    env.m1.run("sleep 1; ip link set eth0 down; sleep 2")
    check("the same" not in client.so_far(), "the stream was over too early")
    env.m1.run("ip link set eth0 up")
    check("the same" in client.expect(0, 60), client.text())


@case()
def tcp_peer_killed(env):
    """kill -9 of a client under load: the one block of the server serves the next."""
    _, url = echo(env, env.m1, "tcp://10.0.2.1:0", blocks=1)
    busy_client(env, url)
    env.m2.run("pkill -KILL -x nc")
    serves(env, url)


@case()
def tcp_peer_stopped(env):
    """A client that no longer reads holds its block only, and goes on where it was when it is continued."""
    _, url = echo(env, env.m1, "tcp://10.0.2.1:0", blocks=2)
    client = env.m2.start(f"head -c 8M /dev/zero | nc -N 10.0.2.1 {port_of(url)} | "
                          "{ head -c 100000 >/dev/null; echo flows; cat | wc -c; }")
    client.until("flows")
    env.m2.run("pkill -STOP -x nc")
    for _ in range(3):
        serves(env, url)
    env.m2.run("pkill -CONT -x nc")
    left = int(client.expect(0).split()[-1])
    check(left > (8 << 20) - 200000, f"{left} bytes came after the first 100000")


@case()
def tcp_peer_host_dead(env):
    """The other host vanishes: what waits for its acknowledgements ends when TCP gives up, and the block is free."""
    _, url = echo(env, env.m1, "tcp://10.0.2.1:0", blocks=1)
    env.on_clean(env.m1, "sysctl -q net.ipv4.tcp_retries2=15")
    env.m1.run("sysctl -q net.ipv4.tcp_retries2=3")
    busy_client(env, url)
    env.unplug(env.m2)
    serves(env, url, seconds=40)


@case()
def tcp_unreachable(env):
    """A client kernel is told why it cannot connect."""
    for address, reason in (("10.0.2.1:9", "refused"), ("10.0.2.77:9", "No route to host"),
                            ("192.0.2.1:9", "unreachable")):
        client = env.m2.start(f"gpunet cat tcp://{address} --device cpu </dev/null")
        out = client.expect(1, 30)
        check(reason in out, f"{address}: {out!r} does not say {reason!r}")
        check(len(out.strip().splitlines()) == 1, f"more than a line: {out!r}")
