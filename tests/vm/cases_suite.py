# SPDX-License-Identifier: BSD-3-Clause
"""The suite of the sockets (tests/device) over rdma://: the same programs, told by GPUNET_TEST_RDMA to use RDMA.

In machine 1 on its rdma_rxe, where the hosts' ends of the programs are rsockets, by librspreload; and on this end of the
bridge on the software RNIC, those programs whose both ends are kernels'.

Of the programs for streams these are left out, as what they test is not there:
  linger, reset, sockopt             rsockets have no reset, and no options of TCP
  abort, backlog, calls, close_wakes, nonblock, errno     a listener whose backlog is full: the RDMA CM has no such state
  many, churn, thousands, share      more connections than segments, or connects that end before they are accepted
  borrow, borrow_scope, quiet, msg   two threads on one rsocket: librdmacm 44 lets the sender sleep for ever when the
                                     receiver has taken the completion that it waits for (seen: all granted, nobody awake)
  exit, fork, processes, signals     forks: librdmacm's verbs contexts are the parent's
Their RDMA counterparts are the cases of cases_rdma.py and cases_rsockets.py and the unit tests rdma_*.
"""

import io
import os
import tarfile

from vmlib import PRELOAD, Packets, case, check

# Both ends are kernels'.
KERNELS = "self sizes stream messages options".split()
# The other end is the host's.
HOST = "poll echo eof flags names timeout together lifecycle two_nets".split()


def binary(env, name):
    path = os.path.join(os.path.dirname(os.path.dirname(env.gpunet)), "tests/device", f"device_sock_{name}")
    check(os.path.exists(path), f"there is no program {path}")
    return path


def carry(env, machine, names):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name in names:
            tar.add(binary(env, name), f"tmp/suite/sock_{name}")
    env.on_clean(machine, "rm -rf /tmp/suite")
    machine.run("tar -x -C /", data=raw.getvalue())


@case(240)
def suite_rdma_ibverbs(env):
    """Each program in turn. Both ends are in one machine, whose device counts what it sends to itself as well."""
    carry(env, env.m1, KERNELS + HOST)
    runs = [(name, "10.0.2.1") for name in KERNELS + HOST] + [("sizes", "fd00::1")]
    for name, address in runs:
        preload = PRELOAD if name in HOST else ""
        with Packets(env, 10, [env.m1]):
            program = env.m1.start(f"GPUNET_TEST_RDMA={address} GPUNET_VERBS=ibverbs GPUNET_TEST_SLOW=4 {preload} "
                                   f"exec /tmp/suite/sock_{name} 2>&1")
            check(program.wait(60) == 0, f"sock_{name} at {address}: {program.text().strip()}")
    env.note(f"{len(runs)} programs")


def datagrams():
    """UDP datagrams that this end has sent."""
    with open("/proc/net/snmp", encoding="ascii") as f:
        names, values = (line.split() for line in f if line.startswith("Udp:"))
    return int(values[names.index("OutDatagrams")])


@case(120)
def suite_rdma_rnic(env):
    before = datagrams()
    for name in KERNELS:
        env.here(binary(env, name), env={"GPUNET_TEST_RDMA": "10.0.2.254", "GPUNET_VERBS": "rnic"}).expect(0, 60)
    sent = datagrams() - before
    check(sent > 1000, f"only {sent} datagrams: not over RDMA")
    env.note(f"{len(KERNELS)} programs, {sent} datagrams")
