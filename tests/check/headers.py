#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each public header compiles alone: as C11 and C++17 with every compiler given, as CUDA with nvcc.

usage: headers.py ROOT --c cc … --cxx c++ … [--nvcc nvcc] [--jobs N] | headers.py --self-test
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile

WARN = ["-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wno-unused-parameter"]


def public_headers(root):
    """Paths below include/; bodies (dev/impl/) are not for direct inclusion."""
    base = os.path.join(root, "include")
    for folder, _, names in os.walk(base):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), base)
            if name.endswith(".h") and "/dev/impl/" not in path:
                yield path


def commands(options, header):
    # Device headers may use the compilers' extensions where the header says so.
    pedantic = [] if header.startswith("gpunet/dev/") else ["-pedantic-errors"]
    for compiler in options.c:
        yield [compiler, "-x", "c", "-std=c11", "-Wstrict-prototypes", *pedantic, *WARN,
               "-fsyntax-only"]
    for compiler in options.cxx:
        yield [compiler, "-x", "c++", "-std=c++17", *pedantic, *WARN, "-fsyntax-only"]
    if options.nvcc:
        yield [options.nvcc, "-x", "cu", "-std=c++17", "-arch=sm_80", "-Werror", "all-warnings",
               "-Xcompiler", "-Wall,-Wextra,-Werror,-Wno-unused-parameter", "-c",
               "-o", "/dev/null"]


def source_of(header, folder):
    return os.path.join(folder, header.replace("/", "_") + ".c")


def write_source(header, folder):
    with open(source_of(header, folder), "w", encoding="utf-8") as out:
        # Twice: a header without a guard is caught too. A file without a declaration is not C.
        out.write(f"#include <{header}>\n#include <{header}>\nextern int gpunet_header_check;\n")


def compile_alone(root, header, command, folder):
    source = source_of(header, folder)
    run = subprocess.run(command + ["-I", os.path.join(root, "include"), source],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if run.returncode == 0:
        return None
    language = command[command.index("-x") + 1]
    return f"{header}: does not compile alone with {command[0]} as {language}:\n{run.stdout}"


def check(root, options):
    headers = list(public_headers(root))
    jobs = [(header, command) for header in headers for command in commands(options, header)]
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for header in headers:
            write_source(header, folder)
        results = pool.map(lambda job: compile_alone(root, *job, folder), jobs)
        errors = [error for error in results if error]
    return errors, len(jobs)


def self_test(options):
    """A header that lacks an include, one that is not C++, one without a guard: all are caught."""
    cases = {
        "missing": ("uint32_t x(void);\n", 2),
        "not_cxx": ("#ifndef A\n#define A\nint f(int class);\n#endif\n", 1),
        "no_guard": ("struct a {\n\tint b;\n};\n", 2),
        "good": ("#ifndef A\n#define A\n#include <stdint.h>\nuint32_t x(void);\n#endif\n", 0),
    }
    wrong = 0
    for name, (text, expected) in cases.items():
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "include/gpunet"))
            with open(os.path.join(root, "include/gpunet", name + ".h"), "w",
                      encoding="utf-8") as out:
                out.write(text)
            errors, _ = check(root, options)
            if len(errors) != expected:
                print(f"self-test: {name}: {len(errors)} errors, expected {expected}: {errors}")
                wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?")
    parser.add_argument("--c", nargs="*", default=[])
    parser.add_argument("--cxx", nargs="*", default=[])
    parser.add_argument("--nvcc")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        options.c, options.cxx, options.nvcc = ["cc"], ["c++"], None
        sys.exit(1 if self_test(options) else 0)
    errors, count = check(options.root, options)
    print("".join(errors), end="")
    print(f"headers: {count} compilations, {len(errors)} errors")
    sys.exit(1 if errors or not count else 0)


if __name__ == "__main__":
    main()
