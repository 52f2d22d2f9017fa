#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ordinary programs as peers of kernels: runs the gpunet tool and the examples against nc, socat,
curl and Python. Prints one line a case, PASS, FAIL or SKIP with a reason, and exits 1 if one failed.

Each case runs in a process group of its own and is killed at its time limit. Python 3.9, nothing else.
"""

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import peerlib  # noqa: E402
import cases_stream  # noqa: E402,F401
import cases_faults  # noqa: E402,F401
import cases_address  # noqa: E402,F401
import cases_process  # noqa: E402,F401
import cases_programs  # noqa: E402,F401
import cases_rdma  # noqa: E402,F401
import cases_perf  # noqa: E402,F401
import cases_dgram  # noqa: E402,F401
import cases_stat  # noqa: E402,F401


def options():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--gpunet", default=os.path.join(root, "build/bin/gpunet"), help="the tool")
    p.add_argument("--examples", default=None, help="folder of the examples (the tool's folder)")
    p.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    p.add_argument("--wrapper", default="", help="command before each gpunet, e.g. 'setarch -R'")
    p.add_argument("--slow", type=float, default=1.0,
                   help="multiplies time limits; above 1 less data is moved (sanitizers)")
    p.add_argument("--long", action="store_true", help="also the long cases")
    p.add_argument("--only", default="", help="regular expression on names")
    p.add_argument("--list", action="store_true")
    p.add_argument("--keep", action="store_true", help="keep the folder of failed cases")
    opt = p.parse_args()
    opt.gpunet = os.path.abspath(opt.gpunet)
    opt.examples = os.path.abspath(opt.examples or os.path.dirname(opt.gpunet))
    opt.wrapper = opt.wrapper.split()
    return opt


def in_child(opt, fn, folder, pipe):
    """Runs a case and writes "PASS", "SKIP reason" or "FAIL reason" into the pipe."""
    env = peerlib.Env(opt, folder)
    try:
        fn(env)
        env.close()
        result = "PASS"
    except peerlib.Skip as e:
        result = f"SKIP {e}"
    except peerlib.Fail as e:
        result = f"FAIL {e}"
    except Exception as e:  # noqa: BLE001: a case must not end the run
        where = traceback.extract_tb(e.__traceback__)[-1]
        result = (f"FAIL {type(e).__name__}: {e} ({os.path.basename(where.filename)}:"
                  f"{where.lineno})")
        for s in env.servers:
            if s.p.poll() not in (None, 0):
                result += f"; server exit {s.p.returncode}, stderr: {s.err()[-600:]!r}"
    os.write(pipe, result.replace("\n", " ").encode()[:4000])
    os._exit(0)


def diagnosis(folder):
    """The last words of the processes of a case that hung."""
    text = ""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".stderr"):
            with open(os.path.join(folder, name), "rb") as f:
                tail = f.read()[-300:].decode("utf-8", "replace").strip()
            if tail:
                text += f"; {name}: {tail!r}"
    return text


def run_case(opt, limit, fn, folder):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.close(r)
        in_child(opt, fn, folder, w)
    try:
        os.setpgid(pid, pid)
    except OSError:
        pass  # the child was faster
    os.close(w)
    end = time.monotonic() + limit
    # The child is left as a zombie for now, so that its group's number stays ours.
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > end:
            text = diagnosis(folder)
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(r)
            return f"FAIL time limit of {limit:g} s{text}"
        time.sleep(0.005)
    os.killpg(pid, signal.SIGKILL)  # what the case left running
    os.waitpid(pid, 0)
    result = os.read(r, 8192).decode("utf-8", "replace")
    os.close(r)
    return result or "FAIL the case ended without a result"


def main():
    opt = options()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    failed = 0
    for name, limit, long, device, fn in peerlib.CASES:
        if not re.search(opt.only, name):
            continue
        if opt.list:
            print(name)
            continue
        if long and not opt.long:
            print(f"SKIP {name} only with --long")
            continue
        if device and device != opt.device:
            print(f"SKIP {name} only on the {device} device")
            continue
        if not os.access(opt.gpunet, os.X_OK):
            print(f"FAIL {name} there is no program {opt.gpunet}")
            failed += 1
            continue
        folder = tempfile.mkdtemp(prefix="gpn-peers-")
        result, reason = (run_case(opt, limit * opt.slow, fn, folder) + " ").split(" ", 1)
        print(f"{result} {name} {reason}".rstrip())
        failed += result == "FAIL"
        if result == "FAIL" and opt.keep:
            print(f"     kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
