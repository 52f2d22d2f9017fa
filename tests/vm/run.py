#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Two virtual machines with a real RDMA stack (Linux rdma_rxe) and a network that can break: boots them, runs the
cases in them, prints one line a case, PASS, FAIL or SKIP with a reason, and exits 1 if one failed.

Needs root, or a kernel that lets users make namespaces; QEMU and a Debian apt. See README.md beside this file.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

import image  # noqa: E402
import vmlib  # noqa: E402
import cases_rxe  # noqa: E402,F401
import cases_rdma  # noqa: E402,F401
import cases_rsockets  # noqa: E402,F401
import cases_rnic  # noqa: E402,F401
import cases_suite  # noqa: E402,F401
import cases_tcp  # noqa: E402,F401
from machines import Clock, Fail, Machine, Skip, make_network  # noqa: E402

INSIDE = "GPUNET_VM_INSIDE"


def options():
    p = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    p.add_argument("--gpunet", default=os.path.join(ROOT, "build/bin/gpunet"), help="the tool")
    p.add_argument("--cache", default=os.environ.get("GPUNET_VM_CACHE") or os.path.join(ROOT, "build-vm"),
                   help="folder of the packages and of what was made of them")
    p.add_argument("--only", default="", help="regular expression on names")
    p.add_argument("--list", action="store_true")
    p.add_argument("--long", action="store_true", help="also the long cases")
    p.add_argument("--slow", type=float, default=1.0, help="multiplies time limits")
    p.add_argument("--mtu", type=int, default=1500, help="of the cards under test (default 1500)")
    p.add_argument("--cores", type=int, default=2, help="of each machine (default 2)")
    p.add_argument("--rebuild", action="store_true", help="fetch the packages again, newest versions")
    p.add_argument("--keep", action="store_true",
                   help="boot and stay until interrupted: runs started meanwhile use these machines")
    p.add_argument("--sh", nargs=2, metavar=("N", "COMMAND"),
                   help="run a command in kept machine N; 0 is the host's end of the bridge")
    opt = p.parse_args()
    opt.gpunet = os.path.abspath(opt.gpunet)
    opt.cache = os.path.abspath(opt.cache)
    # A working tree's own, even where several share a cache.
    opt.kept = os.path.join(ROOT, "build-vm", "kept")
    return opt


def need(opt):
    """Why this cannot run here, or None. Makes what the machines boot."""
    for program in ("qemu-system-x86_64", "unshare", "nsenter", "ip", "gcc", "dpkg-deb", "apt-get"):
        if not shutil.which(program):
            return f"no {program} here"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "/dev/net/tun cannot be opened"
    p = subprocess.run(namespaces() + ["true"], capture_output=True, text=True, check=False)
    if p.returncode:
        return f"no namespaces: {p.stderr.strip()}"
    try:
        image.ready(opt.cache, opt.rebuild)
    except image.Unavailable as e:
        return f"no machine to boot: {e}"
    return None


def namespaces():
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare"] + user + ["--net", "--pid", "--fork", "--kill-child"]


def kept_pid(opt):
    """The process that keeps machines up for other runs."""
    try:
        with open(opt.kept, encoding="ascii") as f:
            pid = int(f.read())
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return pid if b"run.py" in f.read() else None
    except (OSError, ValueError):
        return None


def enter(argv):
    """Runs this program again, in the namespaces."""
    os.environ[INSIDE] = "1"
    os.execvp(argv[0], argv + [sys.executable, os.path.abspath(sys.argv[0])] + sys.argv[1:])


def run_case(env, limit, fn):
    env.begin(limit)
    try:
        fn(env)
        env.end()
        return "PASS", ""
    except Skip as e:
        return "SKIP", str(e)
    except Fail as e:
        return "FAIL", str(e)
    except Exception as e:  # noqa: BLE001: a case must not end the run
        where = traceback.extract_tb(e.__traceback__)[-1]
        return "FAIL", f"{type(e).__name__}: {e} ({os.path.basename(where.filename)}:{where.lineno})"
    finally:
        env.clean()


def run_cases(opt, env):
    failed = 0
    for name, limit, long, fn in vmlib.CASES:
        if not re.search(opt.only, name):
            continue
        if long and not opt.long:
            print(f"SKIP {name} only with --long")
            continue
        start = time.monotonic()
        result, reason = run_case(env, limit, fn)
        note = "; ".join(env.notes + [reason] if reason else env.notes).replace("\n", " ")
        print(f"{result} {name} ({time.monotonic() - start:.1f} s) {note}".rstrip())
        failed += result == "FAIL"
    return failed


def boot(opt, machines):
    linux, root = image.ready(opt.cache)
    make_network(opt.mtu)
    start = time.monotonic()
    for machine in machines:
        machine.boot(linux, root, opt.mtu, opt.cores)
    for machine in machines:
        machine.wait_boot(120 * opt.slow)
    return time.monotonic() - start


def inside(opt):
    sys.stdout.reconfigure(line_buffering=True)
    # The first process of a namespace is not ended by a signal that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    shared = kept_pid(opt)
    folder = tempfile.mkdtemp(prefix="gpn-vm-")
    try:
        clock = Clock(opt.slow)
        machines = [Machine(n, folder, clock) for n in (1, 2)]
        if opt.sh:
            return by_hand(machines, *opt.sh)
        if not shared:
            print(f"# two machines booted in {boot(opt, machines):.1f} s")
        if opt.keep:
            return keep(opt)
        env = vmlib.Env(opt, machines, folder, clock)
        env.carry()
        return 1 if run_cases(opt, env) else 0
    except (Fail, Skip) as e:
        print(f"{'FAIL' if isinstance(e, Fail) else 'SKIP'} vm {e}")
        return isinstance(e, Fail)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def by_hand(machines, number, command):
    if number == "0":
        return subprocess.run(("bash", "-c", command), check=False).returncode
    running = machines[int(number) - 1].start(command)
    running.copy_to = sys.stdout.buffer
    return running.wait(3600)


def keep(opt):
    # The process number that others see, which is not the one in here.
    with open("/proc/self/stat", encoding="ascii") as f:
        pid = f.read().split()[0]
    os.makedirs(os.path.dirname(opt.kept), exist_ok=True)
    with open(opt.kept, "w", encoding="ascii") as f:
        f.write(pid)
    print("# they stay until this is interrupted; run.py --sh N COMMAND, or run.py for cases, from elsewhere")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return 0
    finally:
        os.unlink(opt.kept)


def main():
    opt = options()
    if opt.list:
        print("\n".join(name for name, *_ in vmlib.CASES))
        return 0
    if os.environ.get(INSIDE):
        return inside(opt)
    pid = kept_pid(opt)
    if opt.sh and not pid:
        print("no machines are kept: run.py --keep first", file=sys.stderr)
        return 2
    if pid and not opt.keep:
        enter(["nsenter", f"--net=/proc/{pid}/ns/net", "unshare", "--pid", "--fork", "--kill-child"])
    reason = need(opt)
    if reason:
        print(f"SKIP vm {reason}")
        return 0
    enter(namespaces())


if __name__ == "__main__":
    sys.exit(main())
