#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The gpunet command without a network: help, usage errors, exit codes, doctor and info.

What it does on the network is tested in tests/peers. usage: command.py ROOT [launcher ...] GPUNET
"""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT, COMMAND = sys.argv[1], sys.argv[2:]
NAMES = ("echo", "cat", "perf", "stat", "rnic", "doctor", "info")
STATES = {"ok", "missing", "limited", "not built"}


def run(*args, **more):
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPUNET_")}
    env.update(more.pop("env", {}))
    more.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([*COMMAND, *args], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          timeout=60, check=False, env=env, **more)


def source(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as stream:
        return stream.read()


class Command(unittest.TestCase):
    def usage_error(self, *args, word=None):
        got = run(*args)
        self.assertEqual(got.returncode, 2, got)
        self.assertEqual(got.stdout, "")
        self.assertTrue(got.stderr.startswith("gpunet"), got.stderr)
        self.assertIn("--help", got.stderr)
        if word:
            self.assertIn(word, got.stderr)

    def test_help(self):
        got = run("--help")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        for name in NAMES:
            self.assertRegex(got.stdout, rf"(?m)^  {name} ")
            page = run(name, "--help")
            self.assertEqual((page.returncode, page.stderr), (0, ""))
            self.assertTrue(page.stdout.startswith(f"usage: gpunet {name}"), page.stdout)
            for option in re.findall(r'\{ "([a-z-]+)", (?:no|required)_argument', source(f"tools/{name}.c")):
                if option != "help":
                    self.assertIn(f"--{option}", page.stdout)

    def test_version(self):
        version = ".".join(re.search(rf"GPUNET_VERSION_{part} (\d+)", source("include/gpunet/version.h"))[1]
                           for part in ("MAJOR", "MINOR", "PATCH"))
        self.assertEqual(run("--version").stdout, f"gpunet {version}\n")

    def test_usage_errors(self):
        self.usage_error()
        self.usage_error("nonsense", word="nonsense")
        for name in NAMES:
            self.usage_error(name, "--nonsense", word="nonsense")
            self.usage_error(name, "a", "b")
        for name in ("echo", "cat"):
            self.usage_error(name, word="URL")
            self.usage_error(name, "gopher://x", word="tcp://host:port")
            self.usage_error(name, "tcp://127.0.0.1:1", "--device", "tpu", word="tpu")
            self.usage_error(name, "tcp://127.0.0.1:1", "--device", "cuda:x", word="cuda:")
            self.usage_error(name, "tcp://127.0.0.1:1", "--device", word="device")
            self.usage_error(name, "tcp://127.0.0.1:1", "--threads", "0", word="1024")
            self.usage_error(name, "tcp://127.0.0.1:1", "--threads", "1025", word="1024")
            self.usage_error(name, "tcp://127.0.0.1:1", "--threads", "4294967297", word="1024")
        self.usage_error("echo", "tcp://127.0.0.1:1", "--blocks", "many", word="many")
        self.usage_error("cat", "udp://127.0.0.1:0", word="port 0")
        self.usage_error("cat", "udp://127.0.0.1:1", "--size", "65508", word="65507")
        self.usage_error("cat", "udp://127.0.0.1:1", "--wait", "3601", word="3600")
        self.usage_error("perf", "stream_lat", "unix-dgram:@x", word="unix-dgram:")
        self.usage_error("perf", word="URL")
        self.usage_error("perf", "foo", word="foo is neither a URL nor a test")
        self.usage_error("perf", "foo", "tcp://127.0.0.1:1", word="foo: a test is")
        self.usage_error("perf", "stream_lat", word="stream_lat: a test needs")
        self.usage_error("stat", "none", word="none")
        self.usage_error("stat", "0", word="1 to")
        self.usage_error("rnic", "none", word="none")
        self.usage_error("perf", "write_bw", "host", "--bind", "127.0.0.1", word="--bind")
        self.usage_error("perf", "write_bw", "--provider", "foo", word="--provider foo")
        self.usage_error("perf", "write_bw", "--nonsense", word='"gpunet perf write_bw --help"')
        self.usage_error("perf", "atomic_bw", "--size", "4", word="8 bytes")
        self.usage_error("perf", "stream_lat", "tcp://127.0.0.1:0", word="port 0")
        self.usage_error("perf", "stream_lat", "udp://127.0.0.1:1", word="tcp://")
        self.usage_error("perf", "stream_lat", "rdma://127.0.0.1:1", "--device", "host", word="RDMA")
        self.usage_error("perf", "dgram_lat", "tcp://127.0.0.1:1", word="udp://")
        self.usage_error("perf", "stream_lat", "tcp://127.0.0.1:1", "--size", "1048577", word="1048576")
        self.usage_error("perf", "tcp://127.0.0.1:1", "--device", "hosts", word="hosts")
        self.usage_error("cat", "tcp://127.0.0.1:0", word="port 0")

    def test_full_disk(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            for args in (("--help",), ("doctor",), ("info", "--json"), ("echo", "tcp://127.0.0.1:0")):
                got = run(*args, stdout=full)
                self.assertEqual(got.returncode, 1, got)
                self.assertIn("standard output", got.stderr)

    def checks(self, checks):
        self.assertEqual(len({c["name"] for c in checks}), len(checks))
        for check in checks:
            self.assertEqual(set(check), {"name", "status", "detail", "remedy"})
            self.assertIn(check["status"], STATES)
            self.assertTrue(check["detail"], check)
        return {c["name"]: c for c in checks}

    def test_doctor(self):
        got = run("doctor", "--json")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        report = json.loads(got.stdout)
        self.assertIs(report["works"], True)
        by_name = self.checks(report["checks"])
        self.assertEqual(by_name["cpu device"]["status"], "ok")
        self.assertEqual(by_name["transport unix"]["status"], "ok")
        text = run("doctor")
        self.assertEqual(text.returncode, 0)
        for name, check in by_name.items():
            self.assertRegex(text.stdout, rf"(?m)^{re.escape(name)} +{check['status']} ")

    def test_doctor_sees_a_limit(self):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        report = json.loads(run("doctor", "--json", preexec_fn=few).stdout)
        limit = self.checks(report["checks"])["open files limit"]
        self.assertEqual(limit["status"], "limited")
        self.assertIn("64", limit["detail"])
        self.assertIn("ulimit -n", limit["remedy"])

    def test_info(self):
        got = run("info", "--json")
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        report = json.loads(got.stdout)
        self.assertEqual(report["version"], report["headers"])
        self.assertIs(report["build"]["cpu_kernels"], True)
        devices = self.checks(report["devices"])
        transports = self.checks(report["transports"])
        self.assertIn("cpu device", devices)
        self.assertTrue({"transport tcp (IPv4)", "transport udp", "transport unix"} <= set(transports))
        self.assertIn(report["choice"]["device"], ("cpu", "cuda"))
        self.assertEqual(report["choice"]["asked"], "auto")
        self.assertTrue(report["choice"]["why"])
        self.assertEqual(run("info").returncode, 0)

    def test_info_of_an_asked_device(self):
        choice = json.loads(run("info", "--json", env={"GPUNET_DEVICE": "cpu"}).stdout)["choice"]
        self.assertEqual((choice["device"], choice["asked"]), ("cpu", "cpu"))
        self.assertIn("GPUNET_DEVICE", choice["why"])
        got = run("info", "--json", env={"GPUNET_DEVICE": "tpu"})
        self.assertEqual(got.returncode, 1)
        self.assertEqual(json.loads(got.stdout)["choice"]["device"], "none")
        self.assertIn("tpu", got.stderr)

    def test_unknown_log_level_is_told_once(self):
        got = run("info", env={"GPUNET_LOG": "verbose"})
        self.assertEqual(got.returncode, 0, got)
        self.assertEqual(got.stderr.count("GPUNET_LOG=verbose"), 1, got.stderr)
        for word in ("", "error", "warn", "note", "debug"):
            self.assertNotIn("GPUNET_LOG", run("info", env={"GPUNET_LOG": word}).stderr)

    def test_wrong_path_mtu_is_told_once(self):
        def said(value):
            return run("perf", "write_bw", "--provider", "rnic", "--ib-dev", "none",
                       env={"GPUNET_RNIC_MTU": value}).stderr

        for value in ("100", "1024x", "4097", "9000"):
            text = said(value)
            self.assertEqual(text.count(f"GPUNET_RNIC_MTU={value} is no"), 1, text)
        for value in ("", "1500", "4096"):
            self.assertNotIn("GPUNET_RNIC_MTU", said(value))

    def test_file_that_is_no_socket(self):
        with tempfile.NamedTemporaryFile() as file:
            got = run("cat", f"unix://{file.name}", "--device", "cpu")
            self.assertEqual(got.returncode, 1, got)
            self.assertIn("no socket", got.stderr)

    def test_port_in_use(self):
        """The remedy names the listing that the port is in."""
        for kind, scheme, listing in ((socket.SOCK_STREAM, "tcp", "ss -ltnp"), (socket.SOCK_DGRAM, "udp", "ss -lunp")):
            with socket.socket(socket.AF_INET, kind) as other:
                other.bind(("127.0.0.1", 0))
                got = run("echo", f"{scheme}://127.0.0.1:{other.getsockname()[1]}", "--device", "cpu")
            self.assertEqual(got.returncode, 1, got)
            self.assertIn(listing, got.stderr)

    def test_server_without_its_device(self):
        """Said before anybody waits for a client, with the devices that there are."""
        got = run("perf", "write_bw", "--provider", "rnic", "--ib-dev", "mlx5_0")
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertIn("no device mlx5_0; it has: rnic:", got.stderr)

    def test_gpu_without_cuda(self):
        """A7: a GPU option that this build cannot fulfil is an error that says so."""
        if json.loads(run("info", "--json").stdout)["build"]["cuda_kernels"]:
            self.skipTest("this build has CUDA")
        for got in (run("echo", "tcp://127.0.0.1:0", "--device", "cuda"),
                    run("cat", "tcp://127.0.0.1:1", "--device", "cuda:3"),
                    run("echo", "tcp://127.0.0.1:0", env={"GPUNET_DEVICE": "cuda"})):
            self.assertEqual(got.returncode, 1, got)
            self.assertIn("without CUDA", got.stderr)


if __name__ == "__main__":
    unittest.main(argv=["command.py", "-v"])
