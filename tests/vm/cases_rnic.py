# SPDX-License-Identifier: BSD-3-Clause
"""The software RNIC on a UDP socket of this end of the bridge, against rdma_rxe in machine 1."""

from vmlib import Packets, await_listener, case, check, figure, netem, program

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
