#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each C file that nvcc compiles too is C++17 without warnings, as the C++ compiler that nvcc calls will find.

Machines without nvcc see so what would stop a build for a GPU. What is under __CUDACC__ is not seen, nor what nvcc itself
would say.

usage: kernels.py [--cxx c++] [--jobs N] [--flags='-Wall …'] ROOT FILE… | kernels.py --self-test
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile


def compile_one(options, name):
    command = [options.cxx, "-x", "c++", "-std=c++17", *options.flags, "-fsyntax-only",
               "-I", os.path.join(options.root, "include"), os.path.join(options.root, name)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False)
    if run.returncode == 0:
        return None
    return f"{name}: does not compile as C++17 with {options.cxx}:\n{run.stdout}"


def check(options):
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda name: compile_one(options, name), options.files)
        return [error for error in results if error]


def self_test(options):
    """What C takes and C++ does not, or not without a warning, is caught."""
    cases = {
        "pointer": ("int *f(void *p);\nint *f(void *p)\n{\n\treturn p;\n}\n", 1),
        "members": ("struct s {\n\tint a, b;\n};\nint f(void)\n{\n"
                    "\tstruct s x = { 0 };\n\n\treturn x.b;\n}\n", 1),
        "order": ("struct s {\n\tint a, b;\n};\nstruct s f(void)\n{\n"
                  "\tstruct s x = { .b = 1, .a = 2 };\n\n\treturn x;\n}\n", 1),
        "good": ("int f(int a)\n{\n\treturn a;\n}\n", 0),
    }
    wrong = 0
    for name, (text, expected) in cases.items():
        with tempfile.TemporaryDirectory() as root:
            with open(os.path.join(root, name + ".c"), "w", encoding="utf-8") as out:
                out.write(text)
            options.root, options.files = root, [name + ".c"]
            errors = check(options)
            if len(errors) != expected:
                print(f"self-test: {name}: {len(errors)} errors, expected {expected}: {errors}")
                wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--flags", default="-Wall -Wextra -Werror", type=str.split)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        sys.exit(1 if self_test(options) else 0)
    errors = check(options)
    print("".join(errors), end="")
    print(f"kernels: {len(options.files)} compilations, {len(errors)} errors")
    sys.exit(1 if errors or not options.files else 0)


if __name__ == "__main__":
    main()
