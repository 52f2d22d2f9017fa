#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark of sockets: its rows run on the CPU device, and its JSON lines are what bench.sh promises. No figure is judged.

usage: bench.py ROOT [launcher ...] BENCH-SOCK
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT, COMMAND = sys.argv[1], sys.argv[2:]
KEYS = ["name", "device", "transport", "size", "conns", "ours", "peer_name", "peer", "unit", "ratio"]


def run(command, *args):
    return subprocess.run([*command, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=100, check=False)


class Bench(unittest.TestCase):
    def test_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            got = run(COMMAND, "--device", "cpu", "--quick", "--reps", "1", "--transport", "unix", "--json", path,
                      "echo", "accepts", "waiters")
            self.assertEqual((got.returncode, got.stderr), (0, ""))
            with open(path, encoding="ascii") as stream:
                lines = [json.loads(line) for line in stream]
        self.assertEqual(len(lines), 5)
        self.assertEqual(len(got.stdout.splitlines()), 5)
        for line, text in zip(lines, got.stdout.splitlines()):
            self.assertEqual(list(line), KEYS)
            self.assertEqual((line["device"], line["transport"]), ("cpu", "unix"))
            self.assertGreater(line["ours"], 0)
            self.assertAlmostEqual(line["ratio"], line["ours"] / line["peer"], delta=1e-4 * line["ratio"])
            self.assertTrue(text.startswith(line["name"]), text)
            self.assertTrue(text.endswith(line["peer_name"]), text)

    def test_usage(self):
        for args in ((), ("nonsense",), ("--device", "tpu", "echo"), ("--transport", "ipx", "echo"), ("--what",)):
            got = run(COMMAND, *args)
            self.assertEqual((got.returncode, got.stdout), (2, ""), args)
        asked = run(COMMAND, "--help")
        self.assertEqual((asked.returncode, asked.stderr), (0, ""))
        self.assertTrue(asked.stdout.startswith("usage: bench-sock "), asked.stdout)
        names = [line.split()[0] for line in run(COMMAND, "--list").stdout.splitlines()]
        self.assertIn("sockets10k", names)

    def test_script(self):
        script = [os.path.join(ROOT, "bench.sh")]
        self.assertEqual(run(script, "--help").returncode, 0)
        for args in (("--nonsense",), ("--device",), ("--device", "tpu")):
            got = run(script, *args)
            self.assertEqual(got.returncode, 2, args)
            self.assertIn("usage", got.stderr)


if __name__ == "__main__":
    unittest.main(argv=["bench.py", "-v"])
