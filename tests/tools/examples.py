#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The examples' command lines: help, usage errors, exit codes.

What they do on the network is tested in tests/peers. usage: examples.py ECHO HTTP VERBS [RSOCKET]
"""

import subprocess
import sys
import unittest

ECHO, HTTP = sys.argv[1:3]
OTHERS = sys.argv[3:]


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=60, check=False)


class Examples(unittest.TestCase):
    def test_help_is_no_error(self):
        for program in (ECHO, HTTP, *OTHERS):
            got = run(program, "--help")
            self.assertEqual((got.returncode, got.stderr), (0, ""))
            self.assertTrue(got.stdout.startswith("usage: "), got.stdout)

    def test_usage_errors(self):
        for command in ((ECHO,), (HTTP,), (ECHO, "unix:@x", "a text", "one more"), (HTTP, "unix:@x", "a text"),
                        (HTTP, "--nonsense"), *((program,) for program in OTHERS),
                        *((program, "--nonsense") for program in OTHERS)):
            got = run(*command)
            self.assertEqual((got.returncode, got.stdout), (2, ""), command)
            self.assertIn("usage: ", got.stderr)

    def test_message_names_program_and_address(self):
        for program in (ECHO, HTTP):
            got = run(program, "127.0.0.1:80", "--device", "cpu")
            self.assertEqual((got.returncode, got.stdout), (2, ""))
            self.assertTrue(got.stderr.startswith(f"{program}: 127.0.0.1:80: "), got.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
