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
    p.add_argument("--jobs", type=int, default=1, help="cases that run at the same time (default 1)")
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


class Running:
    """A case in a process of its own, with what it left running."""

    def __init__(self, opt, case):
        self.name, limit, _, _, _, fn = case
        self.limit = limit * opt.slow
        self.folder = tempfile.mkdtemp(prefix="gpn-peers-")
        self.pipe, w = os.pipe()
        self.end = time.monotonic() + self.limit
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            os.close(self.pipe)
            in_child(opt, fn, self.folder, w)
        try:
            os.setpgid(self.pid, self.pid)
        except OSError:
            pass  # the child was faster
        os.close(w)

    def poll(self):
        """The result, or None: it runs."""
        # The child is left as a zombie for now, so that its group's number stays ours.
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if not ended and time.monotonic() <= self.end:
            return None
        text = "" if ended else diagnosis(self.folder)
        os.killpg(self.pid, signal.SIGKILL)  # what the case left running
        os.waitpid(self.pid, 0)
        result = os.read(self.pipe, 8192).decode("utf-8", "replace") if ended else \
            f"FAIL time limit of {self.limit:g} s{text}"
        os.close(self.pipe)
        return result or "FAIL the case ended without a result"

    def clean(self, keep):
        if keep:
            print(f"     kept: {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def run_cases(opt, cases, jobs):
    """Runs them, `jobs` at a time, and prints their results; how many failed."""
    failed, running = 0, []
    cases = list(reversed(cases))
    while cases or running:
        while cases and len(running) < jobs:
            running.append(Running(opt, cases.pop()))
        for r in list(running):
            line = r.poll()
            if line is None:
                continue
            running.remove(r)
            result, reason = (line + " ").split(" ", 1)
            print(f"{result} {r.name} {reason}".rstrip())
            failed += result == "FAIL"
            r.clean(opt.keep and result == "FAIL")
        time.sleep(0.005)
    return failed


def wanted(opt):
    """The cases to run; says why another one is not."""
    cases = []
    for case in peerlib.CASES:
        name, _, long, device, _, _ = case
        if not re.search(opt.only, name):
            continue
        if opt.list:
            print(name)
        elif long and not opt.long:
            print(f"SKIP {name} only with --long")
        elif device and device != opt.device:
            print(f"SKIP {name} only on the {device} device")
        else:
            cases.append(case)
    return cases


def main():
    opt = options()
    sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    cases = wanted(opt)
    if cases and not os.access(opt.gpunet, os.X_OK):
        for case in cases:
            print(f"FAIL {case[0]} there is no program {opt.gpunet}")
        return 1
    failed = 0
    for beside in ("idle", "others", "none"):
        jobs = 1 if beside == "none" else opt.jobs
        failed += run_cases(opt, [c for c in cases if c[4] == beside], jobs)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
